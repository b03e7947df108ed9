"""Every test of this folder has a Ray of this machine."""

import uuid

import pytest

from livegnn.distributed.ray_names import RayName


@pytest.fixture(scope="session", autouse=True)
def started(ray_cluster):
    """The one of tests/conftest.py, for tests that do not name it."""


@pytest.fixture
def name(ray_cluster):
    """For workers that outlive their driver; they end with the test."""
    chosen = f"test-{uuid.uuid4().hex[:8]}"
    yield chosen
    for each in RayName("test", chosen).actors():
        ray_cluster.kill(each.actor)
