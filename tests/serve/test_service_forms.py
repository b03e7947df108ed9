"""GET and POST, JSON, Arrow and frames: the same answer; temporal engines and samplers by their names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import livegnn as lg
from livegnn.client import UpdateList
from livegnn.serve import frames
from livegnn.serve.runner import background_app
from livegnn.serve.service.app import service
from livegnn.serve.update_frames import encode_updates
from tests.serve.client import Client, error_of
from tests.unit.deployment.timed import SAMPLER, TEMPORAL, event, graph, placed, put_sage
from tests.unit.deployment.world import deployment

ARROW, FRAME = "application/vnd.apache.arrow.stream", frames.CONTENT_TYPE


@pytest.fixture
def live(tmp_path):
    put_sage(placed(tmp_path))
    with deployment(tmp_path, graph, temporal=[TEMPORAL], sampler=[SAMPLER]) as one:
        yield one


@pytest.fixture
def client(live):
    return Client(service(live))


@pytest.mark.parametrize(
    ("path", "key", "column"), [("embeddings", "rows", "row"), ("predict", "predictions", "prediction")]
)
def test_every_method_and_form_gives_the_same(live, client, path, key, column):
    live.apply(event(1, 2, 100))
    ids = [7, 0, 29, 7]
    posted = client.post(f"/v1/{path}", {"ids": ids, "at_least": 1}).json()
    query = "&".join(f"ids={each}" for each in ids)
    assert client.get(f"/v1/{path}?{query}&engine=scores&at_least=1").json() == posted
    wanted = np.float32(posted[key])
    about = {"version": "1", "engine": "scores", "model": "fraud/1"}
    for form in (ARROW, FRAME):
        for answer in (
            client.post(f"/v1/{path}", {"ids": ids}, headers={"accept": f"{form};q=1, application/json"}),
            client.get(f"/v1/{path}?{query}", headers={"accept": form}),
        ):
            assert (answer.status_code, answer.headers["content-type"]) == (200, form)
            assert {name: answer.headers[f"livegnn-{name}"] for name in about} == about
            if form == FRAME:
                read = frames.decode_prediction(answer.content)
                assert read.version == 1
                np.testing.assert_array_equal(read.values.reshape(wanted.shape), wanted)
                continue
            table = pa.ipc.open_stream(answer.content).read_all()
            assert {
                name.removeprefix(b"livegnn.").decode(): value.decode() for name, value in table.schema.metadata.items()
            } == about
            assert table["id"].to_pylist() == ids
            np.testing.assert_array_equal(np.float32(table[column].to_pylist()), wanted)
    assert error_of(client.get(f"/v1/{path}?{query}", headers={"accept": "text/html"}), 406)["kind"] == "AcceptUnknown"
    assert error_of(client.get(f"/v1/{path}?ids=x"), 400)["kind"] == "QueryInvalid"
    assert error_of(client.get(f"/v1/{path}"), 400)["kind"] == "BodyInvalid"
    assert error_of(client.get(f"/v1/{path}?ids=1000"), 404)["kind"] == "VertexUnknown"


def test_graphs_with_string_ids(tmp_path):
    def named():
        rng = np.random.default_rng(0)
        return lg.Graph(rng.normal(size=(3, 4)).astype(np.float32), ["a", "b"], ["b", "c"], ids=["a", "b", "c"])

    with deployment(placed(tmp_path), named) as live:
        client = Client(service(live))
        rows = client.get("/v1/embeddings?ids=c&ids=a").json()["rows"]
        np.testing.assert_array_equal(np.float32(rows), live.engine("scores").embeddings(["c", "a"]))
        answer = client.get("/v1/embeddings?ids=c&ids=a", headers={"accept": ARROW})
        assert pa.ipc.open_stream(answer.content).read_all()["id"].to_pylist() == ["c", "a"]


def test_samples_as_frames_are_those_of_json(client):
    document = client.post("/v1/sample", {"seeds": [1, 2]}).json()
    answer = client.post("/v1/sample", {"seeds": [1, 2]}, headers={"accept": FRAME})
    found = frames.decode_sample(answer.content)
    np.testing.assert_array_equal(found.hops[0], document["hops"][0])
    np.testing.assert_array_equal(found.features[1], np.float32(document["features"][1]))
    assert (
        error_of(client.post("/v1/sample", {"seeds": [1]}, headers={"accept": ARROW}), 406)["kind"] == "AcceptUnknown"
    )


def test_temporal_engines_and_samplers_answer_by_name(live, client):
    live.apply(event(1, 2, 100))
    engine = live.temporal["links"]
    about = {"version": 1, "engine": "links", "model": "tgn/2"}
    rows = client.post("/v1/temporal/links/embeddings", {"ids": [1, 2], "time": 200, "at_least": 1}).json()
    np.testing.assert_array_equal(np.float32(rows.pop("rows")), engine.embeddings([1, 2], 200))
    assert rows == about
    asked = {"pairs": [[1, 2], [3, 4]], "time": [200, 90]}
    links = client.post("/v1/temporal/links/links", asked).json()
    np.testing.assert_array_equal(np.float32(links["probabilities"]), engine.predict([1, 3], [2, 4], [200, 90]))
    after = client.post("/v1/next", {"src": [1, 5], "time": 200, "k": 3}).json()
    wanted = engine.next([1, 5], 200, k=3)
    assert after["dst"] == wanted.dst.tolist()
    np.testing.assert_array_equal(np.float32(after["probabilities"]), wanted.probability)
    among = client.post("/v1/next", {"src": [1], "time": 200, "k": 1, "candidates": [7, 8], "temporal": "links"}).json()
    assert among["dst"] == engine.next([1], 200, k=1, candidates=[7, 8]).dst.tolist()
    rows = client.post("/v1/samplers/near/predict", {"seeds": [1, 2]}).json()
    np.testing.assert_array_equal(np.float32(rows.pop("rows")), live.sample_servers["near"].predict([1, 2]).values)
    assert rows == {"version": 1, "engine": "near", "model": "sage/1"}
    for path, body, status in (
        ("/v1/temporal/none/links", asked, 409),
        ("/v1/temporal/links/links", {**asked, "time": [1]}, 422),
        ("/v1/temporal/links/links", {**asked, "pairs": [[1, 99]], "time": 1}, 404),
        ("/v1/next", {"src": [1], "time": 1, "k": 99}, 422),
        ("/v1/samplers/none/predict", {"seeds": [1]}, 409),
        ("/v1/samplers/near/predict", {"seeds": [99]}, 404),
        ("/v1/samplers/near/predict", {"seeds": [1], "at_least": 9, "timeout_ms": 1}, 504),
    ):
        error_of(client.post(path, body), status)


def test_a_swap_of_a_temporal_engine_by_its_route(live, client):
    answer = client.post("/v1/admin/swap", {"engine": "links", "model": "tgn/1"}).json()
    assert answer == {"version": 1, "updates": 0, "repeated": False, "offset": 0}
    assert client.get("/v1/models").json()["engines"]["links"] == "tgn/1"


def test_the_client_has_these_verbs(live):
    updates = lg.Updates()
    updates.add_edge(1, 2, time=100)
    with background_app(service(live), for_others=False) as url, lg.Client(url, timeout_s=120) as client:
        assert client.apply_body(encode_updates(updates), FRAME, key="a") == (1, 1, False, 0)
        assert client.apply_body(encode_updates(updates), FRAME, key="a") == (1, 1, True, 0)
        assert client.apply(UpdateList().add_edge(3, 4, time=101)).version == 2
        table = pa.ipc.open_stream(client.embeddings_body([1, 2], ARROW, at_least=2)).read_all()
        np.testing.assert_array_equal(np.float32(table["row"].to_pylist()), live.engine("scores").embeddings([1, 2]))
        engine = live.temporal["links"]
        np.testing.assert_array_equal(
            np.float32(client.temporal_embeddings("links", [1], 200).rows), engine.embeddings([1], 200)
        )
        found = client.links("links", [(1, 2)], 200, at_least=2)
        np.testing.assert_array_equal(np.float32(found.probabilities), engine.predict([1], [2], 200))
        assert client.next([1], 200, k=2).dst == engine.next([1], 200, k=2).dst.tolist()
        rows = live.sample_servers["near"].predict([1]).values
        np.testing.assert_array_equal(np.float32(client.sampler_predict("near", [1]).rows), rows)
