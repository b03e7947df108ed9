"""A start with a tail: engines are made once, on the graph after it, unless something follows batch by batch."""

from __future__ import annotations

import pytest

import livegnn as lg
from livegnn.deployment import Registry, consumers
from livegnn.deployment.config import checked_config
from livegnn.deployment.note import Note
from livegnn.deployment.replayed import SwitchedParts
from livegnn.errors import LogDamaged
from livegnn.graph.consumers import Switch
from livegnn.log import UpdateEntry
from tests.unit.deployment.world import abandon, deployment, edge, model, prepared

EAGER = {"name": "scores", "model": "fraud"}
FOLLOWING = {
    "a sampler": {"sampler": [{"name": "near", "query": lg.query().out().sample(3).to_text()}]},
    "a sink": {"sink": [{"name": "out", "kind": "parquet", "path": "out"}]},
    "kept messages": {"explain": {"record": "always"}},
    "a shadow": {"engine": [{**EAGER, "shadow": "fraud"}]},
    "an engine on demand": {"engine": [{**EAGER, "mode": "on_demand"}]},
}


@pytest.fixture
def place(tmp_path):
    return prepared(tmp_path)


@pytest.fixture
def made(monkeypatch):
    """Versions of the graph at which engines are made."""
    versions = []

    def noted(model, graph, **options):
        versions.append(graph.version)
        return lg.Engine(model, graph, **options)

    monkeypatch.setattr(consumers, "Engine", noted)
    return versions


def test_an_engine_is_made_after_the_tail_and_has_the_live_bits(place, made):
    one = deployment(place).start()
    for vertex in range(5):
        one.apply(edge(vertex, 7), key=f"k{vertex}")
    digest = one.engine("scores").state_digest()
    abandon(one)
    made.clear()
    with deployment(place) as again:
        assert made == [5]
        assert (again.version, again.snapshot_version) == (5, 0)
        assert again.engine("scores").state_digest() == digest
        assert again.apply(edge(3, 7), key="k3") == (4, 1, True)
        assert again.apply(edge(3, 7)).version == 6


def test_switches_of_the_tail_count(place, made):
    Registry(place / "models").add("fraud", model(1))
    one = deployment(place, engine=[{**EAGER, "model": "fraud/1"}]).start()
    one.apply(edge(1, 7))
    one.rescale("scores", headroom=64.0)
    one.apply(edge(2, 7))
    one.swap("scores", "fraud/2")
    one.apply(edge(3, 7))
    one.rescale("scores", headroom=4096.0)
    one.apply(edge(4, 7))
    expected = one.engine("scores").state_digest(), one.engine("scores").scales, one.models
    abandon(one)
    made.clear()
    with deployment(place, engine=[{**EAGER, "model": "fraud/1"}]) as again:
        assert made == [7]
        assert again.version == 7
        assert (again.engine("scores").state_digest(), again.engine("scores").scales, again.models) == expected
        again.engine("scores").verify()


def test_an_engine_that_came_after_the_snapshot_has_the_model_of_its_entry(place):
    late = {"name": "late", "model": "fraud"}
    one = deployment(place, snapshots={"at_close": False})
    with one:
        one.apply(edge(1, 7))
    two = deployment(place, engine=[EAGER, late]).start()
    two.apply(edge(2, 7))
    expected = two.engine("late").state_digest(), two.models, two.version
    abandon(two)
    Registry(place / "models").add("fraud", model(2))  # newer than what the entry has
    with deployment(place, engine=[EAGER, late]) as again:
        assert (again.engine("late").state_digest(), again.models, again.version) == expected


@pytest.mark.parametrize("more", FOLLOWING.values(), ids=FOLLOWING)
def test_what_follows_each_batch_makes_the_engines_first(place, made, more, monkeypatch):
    monkeypatch.chdir(place)  # of the sink's folder
    one = deployment(place, **more).start()
    one.apply(edge(1, 7))
    digest = one.engine("scores").state_digest()
    abandon(one)
    made.clear()
    with deployment(place, **more) as again:
        assert set(made) == {0}
        assert again.version == 1
        assert again.engine("scores").state_digest() == digest


def test_a_rescale_of_an_engine_that_is_not_there_is_damage():
    parts = SwitchedParts(checked_config({"engine": [EAGER]}), {})
    entry = UpdateEntry(4, "", lg.Updates(), Switch("scores", "rescale", {"scales": []}, {}))
    with pytest.raises(LogDamaged, match=r"\[offset 4\] expected engine 'scores'"):
        parts.follow(Note(0), entry)
    parts.follow(Note(0), entry._replace(switch=Switch("gone", "rescale", {"scales": []}, {})))
    assert parts.parts == {}
