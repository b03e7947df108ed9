"""Which driver a name belongs to, and which crew: the protocol on a store in memory, without Ray."""

from contextlib import suppress
from types import SimpleNamespace

import pytest

from livegnn.distributed import ray_names
from livegnn.distributed.ray_names import RayName
from livegnn.errors import DriverReplaced


class Died(BaseException):
    """Instead of a process that ends."""


class Store:
    """dies_at: the number of the writing call, from 1, before which the process ends; 0: none.  after: what is called
    after such a call, by its number.
    """

    def __init__(self):
        self.values, self.dies_at, self.after, self.calls = {}, 0, {}, 0

    def _step(self):
        self.calls += 1
        self.dies_at -= 1
        if self.dies_at == 0:
            raise Died

    def _internal_kv_put(self, key, value, overwrite):
        self._step()
        there = key in self.values
        if overwrite or not there:
            self.values[key] = value
        self.after.pop(self.calls, lambda: None)()
        return there

    def _internal_kv_get(self, key):
        return self.values.get(key)

    def _internal_kv_del(self, key):
        self._step()
        self.values.pop(key, None)

    def _internal_kv_list(self, prefix):
        return [key for key in self.values if key.startswith(prefix)]


@pytest.fixture
def store(monkeypatch):
    made = Store()
    monkeypatch.setattr(ray_names, "_store", lambda: made)
    return made


def named(fresh=False):
    name = RayName("test", "fraud")
    name.claim(fresh=fresh)
    return name


def test_drivers_follow_each_other_with_one_crew(store):
    assert RayName("test", "fraud").serving() == ""
    first = named(fresh=True)
    second = named()
    assert (first.number, second.number) == (1, 2)
    assert first.crew == second.crew == RayName("test", "fraud").serving() == "1-0"
    assert first.is_replaced()
    assert not second.is_replaced()
    assert len(store.values) == 1
    with pytest.raises(DriverReplaced):
        first.of_another_crew(1).lead()
    other = second.of_another_crew(1)
    assert RayName("test", "fraud").serving() == "1-0"
    other.lead()
    assert named().crew == RayName("test", "fraud").serving() == "2-1"


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_that_a_driver_that_dies_in_claim_hides_no_crew(store, step):
    first = named(fresh=True)
    successor = first.of_another_crew(1)
    successor.lead()
    store.dies_at = step
    with suppress(Died):
        named()
    store.dies_at = 0
    assert RayName("test", "fraud").serving() == successor.crew == named().crew


@pytest.mark.parametrize("step", [1, 2])
def test_that_two_drivers_that_attach_at_once_find_the_crew(store, step):
    successor = named(fresh=True).of_another_crew(1)
    successor.lead()
    later = []
    store.after[store.calls + step] = lambda: later.append(named())
    second, (third,) = named(), later
    assert (second.number, third.number) == (2, 3)
    assert third.crew == RayName("test", "fraud").serving() == successor.crew
    assert second.is_replaced()


@pytest.mark.parametrize("step", [1, 2])
def test_that_a_driver_that_leads_while_it_is_replaced_knows_it_or_both_agree(store, step):
    """The one that follows takes its number before or after the value of the one before is written."""
    first = named(fresh=True)
    successor, later, led = first.of_another_crew(1), [], []

    def lead():
        with suppress(DriverReplaced):
            successor.lead()
            led.append(True)

    if step == 1:  # between the two looks of lead()
        store.after[store.calls + 1] = lambda: later.append(named())
        lead()
    else:  # between number and value of the one that follows
        store.after[store.calls + 1] = lead
        later.append(named())
    assert led == []
    assert later[0].crew in (first.crew, successor.crew)
    assert RayName("test", "fraud").serving() == later[0].crew


def name_actors(monkeypatch, names, get_actor=lambda name, namespace: name):
    """Ray names these."""
    found = SimpleNamespace(
        list_named_actors=lambda all_namespaces: [{"name": name, "namespace": "livegnn"} for name in names]
    )
    ray = SimpleNamespace(util=found, get_actor=get_actor)
    monkeypatch.setattr(ray_names, "need", lambda module, extra: ray)


def test_waits_until_a_crew_has_ended_and_for_no_other_one(store, monkeypatch):
    name, named_now, glances = named(fresh=True), ["fraud.1-0.0.1.1", "fraud.1-0.1.1.2", "fraud.1-1.0.1.1"], []
    clock = SimpleNamespace(monotonic=lambda: 0.1 * len(glances), sleep=lambda _: (glances.append(1), named_now.pop(0)))
    monkeypatch.setattr(ray_names, "time", clock)
    name_actors(monkeypatch, named_now)
    name.wait_for_end()
    assert (len(glances), named_now) == (2, ["fraud.1-1.0.1.1"])
    clock.sleep = lambda _: glances.append(1)
    named_now.append("fraud.1-0.0.1.3")
    name.wait_for_end()  # not for ever
    assert 90 < len(glances) < 110


def test_that_workers_that_end_meanwhile_are_none(monkeypatch):
    """Ray names them a moment longer, and cannot find them, or no longer their class."""
    endings = {"1": ValueError("Failed to look up actor"), "2": AssertionError("Expected str or bytes, got NoneType")}

    def get_actor(name, namespace):
        rank = name.split(".")[2]
        if rank in endings:
            raise endings[rank]
        return f"actor {rank}"

    name_actors(monkeypatch, [f"fraud.1-0.{rank}.1.{rank}" for rank in range(4)], get_actor)
    assert [(each.rank, each.actor) for each in RayName("test", "fraud").actors()] == [(0, "actor 0"), (3, "actor 3")]


def test_that_crews_of_two_drivers_have_two_numbers(store):
    first = named(fresh=True)
    lost = first.of_another_crew(1)
    second = named()
    assert second.of_another_crew(1).crew != lost.crew
    assert len({first.crew, lost.crew, second.of_another_crew(1).crew}) == 3
