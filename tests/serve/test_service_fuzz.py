"""Any request at all: no error of this side, and what is refused has changed nothing."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pyarrow as pa
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.serve.limits import Limits
from livegnn.serve.service.app import HANDLERS, service
from livegnn.serve.update_frames import encode_updates
from tests.serve.client import FRAME, Client
from tests.unit.deployment.timed import SAMPLER, TEMPORAL, event, graph, placed, put_sage
from tests.unit.deployment.world import deployment

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
JSON = {"content-type": "application/json"}
CONFIG = {
    "engine": [{"name": "scores", "model": "fraud"}],
    "readout": [{"name": "all", "engine": "scores"}],
    "sampler": [SAMPLER],
    "temporal": [TEMPORAL],
}
ROUTES = sorted(
    (method, re.sub(r":\w+}", "}", path))
    for handler in HANDLERS
    for path in handler.paths
    for method in handler.http_methods
    if path not in ("/v1/changes", "/v1/admin/drain")  # a stream that does not end; the end of writing
)
GIVEN = settings(
    max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    place = placed(tmp_path_factory.mktemp("fuzz"))
    put_sage(place)
    with deployment(place, graph, **CONFIG) as one:
        yield one


@pytest.fixture(scope="module")
def client(live):
    return Client(service(live, limits=Limits(body_bytes_max=1 << 20)))


@pytest.fixture(scope="module")
def document(client):
    return schemathesis.openapi.from_dict(client.get("/openapi.json").json())


def state(live):
    engine, temporal = live.engine("scores"), live.temporal["links"]
    return live.version, live.log.tail, live.graph.digest(), engine.state_digest(), temporal.state_digest()


def checked(live, send):
    """The answer: no 5xx but after a wait that was too long; a refusal is in the envelope, and all is as before."""
    before = state(live)
    answer = send()
    assert answer.status_code < 500 or answer.json()["error"]["kind"] == "VersionPending", answer.text
    if answer.status_code >= 400:
        assert {"kind", "message", "retryable"} <= set(answer.json()["error"]), answer.text
        assert state(live) == before
    return answer


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_what_the_description_allows_and_what_it_does_not(live, client, document, method, path, mode):
    operation = document[path][method.lower()]
    described = document.raw_schema["paths"][path][method.lower()]
    if mode == "negative" and not described.get("parameters") and "requestBody" not in described:
        mode = "positive"  # no request is wrong

    @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    @GIVEN
    def run(case):
        sent = case.as_transport_kwargs(base_url="http://localhost")
        params, body = dict(sent.get("params") or {}), sent.get("data")
        if "json" in sent:
            if isinstance(sent["json"], dict) and "at_least" in sent["json"]:
                sent["json"]["timeout_ms"] = 1
            body = json.dumps(sent["json"])
        if "at_least" in params:
            params["timeout_ms"] = 1
        options = {"params": params, "headers": sent["headers"]} | ({} if body is None else {"content": body})
        checked(live, lambda: client.request(method, sent["url"].removeprefix("http://localhost"), **options))

    run()


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(0, 40),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["add_edge", "set_features", "remove_vertex", "u", "v", "op", "\ud800", 2**70]),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["op", "u", "v", "x", "time"]), inner),
    max_leaves=8,
)
UPDATE = st.fixed_dictionaries(
    {"op": st.sampled_from(["add_edge", "remove_edge", "set_weight", "set_features", "add_vertex", "remove_vertex"])},
    optional=dict.fromkeys(("u", "v", "w", "x", "time", "edge_type", "edge_id", "weight", "missing"), VALUES),
)


@given(st.lists(UPDATE, max_size=4) | VALUES)
@GIVEN
def test_json_of_any_kind(live, client, updates):
    body = json.dumps({"updates": updates}).encode()
    checked(live, lambda: client.post("/v1/updates", body, headers=JSON))


@given(st.binary(max_size=200))
@GIVEN
def test_bytes_of_any_kind_in_every_form(live, client, body):
    for headers in (ARROW, FRAME, JSON):
        answer = checked(live, lambda headers=headers: client.post("/v1/updates", body, headers=headers))
        assert answer.status_code >= 400


COLUMNS = {
    "src": st.sampled_from([pa.int64(), pa.int32(), pa.uint64(), pa.utf8(), pa.float32(), pa.list_(pa.int64())]),
    "dst": st.sampled_from([pa.int64(), pa.int16(), pa.utf8(), pa.bool_(), pa.null()]),
    "op": st.sampled_from([pa.utf8(), pa.large_utf8(), pa.int8(), pa.dictionary(pa.int8(), pa.utf8())]),
    "time": st.sampled_from([pa.int64(), pa.timestamp("ns"), pa.date32(), pa.float64()]),
    "weight": st.sampled_from([pa.float32(), pa.float64(), pa.int64(), pa.decimal128(5)]),
    "type": st.sampled_from([pa.int32(), pa.utf8(), pa.null()]),
    "edge_attr": st.sampled_from([pa.list_(pa.float32()), pa.list_(pa.float32(), 2), pa.float32()]),
}


def values_of(kind):
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return st.sampled_from(["add", "remove", "set_weight", "", "ann"])
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return st.lists(st.integers(0, 5), min_size=2, max_size=2)
    if pa.types.is_null(kind):
        return st.none()
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_floating(kind):
        return st.floats(width=32)
    return st.integers(0, 40)


@st.composite
def streams(draw):
    """Arrow streams of the columns of updates, of any types, with nulls, perhaps damaged."""
    count = draw(st.integers(0, 4))
    arrays = {}
    for name in draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=1)):
        kind = draw(COLUMNS[name])
        values = draw(st.lists(st.none() | values_of(kind), min_size=count, max_size=count))
        try:
            arrays[name] = pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            arrays[name] = pa.nulls(count, pa.int64())
    table = pa.table(arrays)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return damaged(draw, sink.getvalue()) if draw(st.booleans()) else sink.getvalue()


def damaged(draw, body):
    changed = bytearray(body)
    for _ in range(draw(st.integers(1, 4))):
        changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
    return bytes(changed[: draw(st.integers(1, len(changed)))]) if draw(st.booleans()) else bytes(changed)


@given(streams())
@settings(GIVEN, max_examples=150)
def test_arrow_streams_of_any_kind(live, client, body):
    checked(live, lambda: client.post("/v1/updates", body, headers=ARROW))


@st.composite
def frames(draw):
    """Frames of updates that fit the graph or not, perhaps damaged."""
    updates = event(draw(st.integers(0, 40)), draw(st.integers(0, 40)), draw(st.integers(0, 500)))
    if draw(st.booleans()):
        updates.set_features([draw(st.integers(0, 40))], np.ones((1, draw(st.integers(0, 6))), np.float32))
    if draw(st.booleans()):
        updates.remove_edge(draw(st.integers(0, 29)), draw(st.integers(0, 29)), missing="ignore")
    if draw(st.booleans()):
        updates.add_vertex(draw(st.integers(25, 40)), np.ones(4, np.float32))
    body = encode_updates(updates)
    return damaged(draw, body) if draw(st.booleans()) else body


@given(frames())
@settings(GIVEN, max_examples=150)
def test_frames_of_any_kind(live, client, body):
    checked(live, lambda: client.post("/v1/updates", body, headers=FRAME))


def test_after_all_that_the_engine_is_what_a_run_from_scratch_gives(live):
    live.engine("scores").verify()
    assert isinstance(live.graph, lg.Graph)
    live.apply(event(1, 2, 1000))
    live.engine("scores").verify()
