"""Waits for what Ray does in its own time."""

import time

from livegnn.distributed.ray_names import RayName


def wait_for_actors(name, count):
    """Until so many workers of a name live."""
    until = time.monotonic() + 20.0
    while len(found := RayName("test", name).actors()) != count:
        assert time.monotonic() < until, found
        time.sleep(0.1)
