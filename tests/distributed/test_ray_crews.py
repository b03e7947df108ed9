"""Crews of one name on Ray: which one serves, and which workers end, whoever attaches when."""

import pytest

from livegnn.distributed import ray_group
from livegnn.distributed.ray_group import RayGroup
from livegnn.errors import DriverReplaced, UsageError
from tests.distributed.waiting import wait_for_actors


def made_while_asked(monkeypatch, first, workers, then=lambda: None):
    """A crew that `first` makes while attach() asks its workers, in a list; then() is called after that."""
    about, made = ray_group._about, []

    def slow(ray, actors):
        answers = about(ray, actors)
        if not made:
            made.append(first.another(workers, 1))
            made[0].form()
            then()
        return answers

    monkeypatch.setattr(ray_group, "_about", slow)
    return made


def test_that_a_name_is_free_when_the_workers_that_served_are_gone(ray_cluster, name):
    """Driver and serving workers are lost (one host), while others are on their way elsewhere."""
    group = RayGroup("test", 1, backend=None, name=name)
    group.form()
    on_their_way = group.another(1, 1)
    on_their_way.form()
    group.close()
    wait_for_actors(name, 1)
    with pytest.raises(UsageError, match="got none that live"):
        RayGroup.attach("attach", name)
    again = RayGroup("test", 1, backend=None, name=name)  # what restore(detached=name) does
    again.form()
    wait_for_actors(name, 1)
    again.close()


@pytest.mark.soak
def test_that_attach_ends_workers_that_the_driver_before_starts_meanwhile(ray_cluster, name, monkeypatch):
    """attach() asks workers for up to 10 s before it takes its number."""
    first = RayGroup("test", 1, backend=None, name=name)
    first.form()
    made = made_while_asked(monkeypatch, first, 2)
    second = RayGroup.attach("attach", name)
    second.form()
    with pytest.raises(DriverReplaced):
        made[0].lead()
    made[0].close()
    first.close()
    wait_for_actors(name, 1)
    second.close()


@pytest.mark.soak
def test_that_workers_that_a_driver_left_are_not_taken_for_those_that_serve(ray_cluster, name, monkeypatch):
    """Then the second driver goes over to a crew of its own, and a third one attaches."""
    first = RayGroup("test", 1, backend=None, name=name)
    first.form()
    with monkeypatch.context() as patched:
        made_while_asked(patched, first, 2)
        second = RayGroup.attach("attach", name)
    successor = second.another(1, 1)
    successor.form()
    successor.lead()
    second.close()
    third = RayGroup.attach("attach", name)
    assert third.size == 1
    third.form()
    assert third.pids == successor.pids
    third.close()


def test_that_attach_finds_workers_that_took_over_while_it_asked(ray_cluster, name, monkeypatch):
    """They take over while attach() asks those before."""
    first = RayGroup("test", 1, backend=None, name=name)
    first.form()

    def take_over():
        made[0].lead()
        first.close()

    made = made_while_asked(monkeypatch, first, 1, take_over)
    second = RayGroup.attach("attach", name)
    second.form()
    assert second.pids == made[0].pids
    second.close()
