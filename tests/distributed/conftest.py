"""Every test of this folder has a Ray of this machine."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def started(ray_cluster):
    """The one of tests/conftest.py, for tests that do not name it."""
