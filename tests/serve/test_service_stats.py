"""GET /v1/stats says what happened, as /metrics does; the files of the page are open, and hold no data."""

from __future__ import annotations

import re
import time
from importlib.resources import files

import httpx
import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry
from livegnn.deployment.filters import ChangedVersion, ChangeFilter, MovedRows
from livegnn.deployment.hub import Span
from livegnn.serve.runner import background_app
from livegnn.serve.service.access import AccessToken, new_token
from livegnn.serve.service.app import service
from livegnn.serve.service.page import PAGE_PATHS, POLICY
from livegnn.serve.service.windows import ActivityWindows, MostChanged
from tests.serve.client import Client
from tests.unit.deployment.world import deployment, edge, model, prepared

ENGINES = {"engine": [{"name": "scores", "model": "fraud", "shadow": "other"}, {"name": "lazy", "model": "fraud"}]}


@pytest.fixture
def live(tmp_path):
    prepared(tmp_path)
    Registry(tmp_path / "models").add("other", model(3))
    with deployment(tmp_path, **ENGINES) as one:
        yield one


def apply(live, count):
    """Batches of one edge; the outputs that they changed, and the rows before and after."""
    engine, found = live.engine("scores"), []
    handle = engine.on_change(lambda changes: found.append(len(changes)))
    for k in range(count):
        live.apply(edge(k % 30, (7 * k + 1) % 30))
    handle.cancel()
    return sum(found)


def samples(text):
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}


def test_they_are_what_happened_and_what_metrics_say(live):
    client = Client(app := service(live))
    changed = apply(live, 12)
    app.context.stats.windows.tick()
    found = client.get("/v1/stats").json()
    metrics = samples(client.get("/metrics").text)
    assert (found["version"], found["offset"], found["updates"], found["requests"]) == (12, 12, 12, 12)
    scores, lazy = found["engines"]
    assert (scores["name"], scores["model"], scores["widths"], scores["changed"]) == (
        "scores",
        "fraud/1",
        {"": 3},
        changed,
    )
    assert scores["affected"] == changed / 12
    assert (scores["shadow"]["model"], lazy["shadow"]) == ("other/1", None)
    seen = live.shadows["scores"].disagreement
    assert (scores["shadow"]["compared"], scores["shadow"]["differing"]) == (seen.compared, seen.differing)
    assert scores["shadow"]["newest"][:1] == [[v, *pair] for v, pair in list(seen.newest.items())[-1:]]
    assert found["series"]["changed"]["scores"] == [changed]
    assert found["series"]["updates"] == [12]
    assert found["updates_per_s"] == pytest.approx(12 / found["series"]["seconds"][0])
    assert found["graph"]["edges"] == live.graph.edge_count
    # the same in /metrics
    assert metrics["livegnn_version"] == found["version"]
    assert metrics["livegnn_updates_total"] == found["updates"]
    assert metrics['livegnn_changed_outputs_total{engine="scores"}'] == changed
    assert metrics['livegnn_freshness_seconds{quantile="0.99"}'] == pytest.approx(
        found["freshness_ms"]["p99"] / 1e3, abs=1e-6
    )
    assert metrics["livegnn_waiting_updates"] == found["queue"]["updates"] == 0
    assert metrics["livegnn_snapshot_version"] == found["snapshot"]["version"] == 0
    assert found["snapshot"]["behind"] == 12
    assert 0 <= found["snapshot"]["age_s"] <= metrics["livegnn_snapshot_age_seconds"]
    assert {f'livegnn_bytes{{part="{part}"}}': size for part, size in found["memory"].items()} == {
        name: size for name, size in metrics.items() if name.startswith("livegnn_bytes")
    }


def test_a_reader_gets_what_is_new(live):
    client = Client(app := service(live))
    windows = app.context.stats.windows
    for _ in range(3):
        apply(live, 2)
        windows.tick()
    assert client.get("/v1/stats").json()["series"]["updates"] == [2, 2, 2]
    assert client.get("/v1/stats?after=2").json()["series"] | {"at": 0, "seconds": 0, "p50_ms": 0, "p99_ms": 0} == {
        "number": 3,
        "at": 0,
        "seconds": 0,
        "updates": [2],
        "p50_ms": 0,
        "p99_ms": 0,
        "waiting": [0],
        "changed": {name: [windows.ticks[-1].changed[name]] for name in ("scores", "scores.shadow", "lazy")},
    }
    assert client.get("/v1/stats?after=3").json()["series"]["number"] == 3
    for wrong in ("-1", "x"):
        assert client.get(f"/v1/stats?after={wrong}").status_code == 400


def test_a_server_looks_once_a_second(live):
    with background_app(service(live), for_others=False) as url:
        began = time.monotonic()
        while len(httpx.get(f"{url}/v1/stats", timeout=60).json()["series"]["updates"]) < 2:
            assert time.monotonic() - began < 120
            time.sleep(0.05)


def test_without_updates_there_is_nothing_to_divide(live):
    client = Client(app := service(live))
    app.context.stats.windows.tick()
    found = client.get("/v1/stats").json()
    assert found["freshness_ms"] == {"p50": None, "p99": None, "max": None}
    assert [one["affected"] for one in found["engines"]] == [None, None]
    assert found["series"]["p50_ms"] == [None]


def test_the_most_changed_are_those_of_full_rows(live):
    """Against rows before and after each version, read whole."""
    windows, engine = ActivityWindows(live), live.engine("scores")
    assert windows.most_changed("scores", 5) is None  # not followed
    ids = np.arange(30)
    moved, versions, rows = np.zeros(30), np.zeros(30, int), engine.embeddings(ids)
    with live.hub.follow(ChangeFilter("scores")):
        for k in range(15):
            live.apply(edge(k, (5 * k + 2) % 30))
            before, rows = rows, engine.embeddings(ids)
            change = np.abs(rows - before).max(axis=1)
            moved, versions = moved + change, versions + (change > 0)
            if k % 4 == 0:
                windows.most_changed("scores", 5)  # by and by, as a page asks
        found = windows.most_changed("scores", 30)
    assert {one.vertex: one.versions for one in found} == {v: n for v, n in enumerate(versions.tolist()) if n}
    np.testing.assert_allclose([one.moved for one in found], sorted(moved[moved > 0], reverse=True), rtol=1e-6)
    assert [one.prediction for one in found] == engine.predict([one.vertex for one in found]).tolist()


def spans(*versions, floor=0, reason="ring"):
    made = []
    for number, (ids, change, gone) in enumerate(versions, 1):
        rows = np.zeros((len(ids), 2), np.float32)
        after = rows + np.array(change, np.float32)[:, None]
        is_gone = np.array(gone, bool)
        part = MovedRows(np.array(ids), rows, after, np.zeros(len(ids), bool), is_gone)
        made.append(ChangedVersion(number, None, "m/1", {None: part}))
    return Span(made, floor, reason, len(made))


def test_a_minute_is_kept_and_a_new_model_begins_anew():
    most = MostChanged()
    most.take(spans(([3, 5], [2.0, 1.0], [False, False]), ([5], [4.0], [False])), 0.0, None)
    assert [(one.vertex, one.moved, one.versions) for one in most.best(1.0, 9)] == [(5, 5.0, 2), (3, 2.0, 1)]
    most.take(spans(([3], [1.0], [True])), 30.0, None)
    assert [(one.vertex, one.moved, one.prediction) for one in most.best(31.0, 9)] == [(5, 5.0, 0), (3, 2.0, None)]
    assert [one.vertex for one in most.best(70.0, 9)] == [3]  # the first ones are too long ago
    assert most.best(200.0, 9) == []
    most.take(spans(floor=9, reason="model"), 31.0, None)
    assert most.best(31.0, 9) == []


def test_many_vertices_stay_bounded():
    most, rng = MostChanged(), np.random.default_rng(0)
    for _ in range(40):
        most.take(spans((rng.permutation(50_000)[:1500], rng.random(1500), np.zeros(1500, bool))), 1.0, None)
    assert len(most.best(1.0, 10**6)) <= 2000


def test_the_files_of_the_page_are_open_and_the_policy_is_strict(live):
    token, sha256 = new_token()
    client = Client(service(live, tokens=[AccessToken("a", sha256)]))
    for path, name in PAGE_PATHS.items():
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.content == files("livegnn.serve.page").joinpath(name).read_bytes()
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert "unsafe" not in POLICY
    assert client.get("/v1/stats").status_code == 401
    assert client.get("/v1/stats", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert client.post("/").status_code == 405
    for path, status in (("/page/", 404), ("/page/../app.py", 401), ("/page/__init__.py", 401)):
        assert client.get(path).status_code == status


def test_the_package_has_every_file_of_the_page_and_no_other():
    there = {one.name for one in files("livegnn.serve.page").iterdir() if one.is_file()}
    assert there - {"__init__.py"} == set(PAGE_PATHS.values())


def test_the_page_names_no_other_host_and_no_code_in_markup():
    text = {name: files("livegnn.serve.page").joinpath(name).read_text() for name in PAGE_PATHS.values()}
    for name, content in text.items():
        assert not re.findall(r"https?://(?!www\.w3\.org/)", content), name
    assert not re.findall(r"<script(?![^>]*src=)|style=|\son\w+=", text["index.html"])
    imported = {path for content in text.values() for path in re.findall(r'from "\./([\w.]+)"', content)}
    assert imported <= set(text)


def test_an_engine_of_one_column_says_so(tmp_path):
    rng = np.random.default_rng(0)
    Registry(tmp_path / "models").add("fraud", lg.Model([lg.layers.GCN(rng.normal(size=(1, 4)))]))
    with deployment(tmp_path) as one:
        assert Client(service(one)).get("/v1/stats").json()["engines"][0]["widths"] == {"": 1}
