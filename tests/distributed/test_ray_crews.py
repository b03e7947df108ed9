"""Crews of one name on Ray: which one serves, and which workers end, whoever attaches when."""

import uuid

import pytest

from livegnn.distributed import ray_group
from livegnn.distributed.ray_group import RayGroup
from livegnn.distributed.ray_names import RayName
from livegnn.errors import DriverReplaced
from tests.distributed.waiting import wait_for_actors


@pytest.fixture
def name(ray_cluster):
    chosen = f"test-{uuid.uuid4().hex[:8]}"
    yield chosen
    for each in RayName("test", chosen).actors():
        ray_cluster.kill(each.actor)


def test_that_a_name_is_free_when_the_workers_that_served_are_gone(ray_cluster, name):
    """Driver and serving workers are lost (one host), while others are on their way elsewhere."""
    group = RayGroup("test", 1, name=name)
    group.form()
    on_their_way = group.another(1, 1)
    on_their_way.form()
    group.close()
    wait_for_actors(name, 1)
    with pytest.raises(Exception, match="got none that live"):
        RayGroup.attach("attach", name)
    again = RayGroup("test", 1, name=name)  # what restore(detached=name) does
    again.form()
    wait_for_actors(name, 1)
    again.close()


@pytest.mark.soak
def test_that_attach_ends_workers_that_the_driver_before_starts_meanwhile(ray_cluster, name, monkeypatch):
    """attach() asks workers for up to 10 s before it takes its number."""
    first = RayGroup("test", 1, name=name)
    first.form()
    about, made = ray_group._about, []

    def slow(ray, actors):
        answers = about(ray, actors)
        if not made:
            made.append(first.another(2, 1))
            made[0].form()
        return answers

    monkeypatch.setattr(ray_group, "_about", slow)
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
    first = RayGroup("test", 1, name=name)
    first.form()
    about, made = ray_group._about, []

    def slow(ray, actors):
        answers = about(ray, actors)
        if not made:
            made.append(first.another(2, 1))
            made[0].form()
        return answers

    with monkeypatch.context() as patched:
        patched.setattr(ray_group, "_about", slow)
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
    first = RayGroup("test", 1, name=name)
    first.form()
    about, made = ray_group._about, []

    def slow(ray, actors):
        answers = about(ray, actors)
        if not made:
            made.append(first.another(1, 1))
            made[0].form()
            made[0].lead()
            first.close()
        return answers

    monkeypatch.setattr(ray_group, "_about", slow)
    second = RayGroup.attach("attach", name)
    second.form()
    assert second.pids == made[0].pids
    second.close()
