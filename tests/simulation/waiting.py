"""Waits for what another thread of a cluster does."""

import time


def wait_for_snapshot(cluster):
    """Until the snapshot that was begun is the newest, or given up: its last step is done where the lock is free."""
    until = time.monotonic() + 60
    while True:
        with cluster._crew.lock:
            if not cluster._crew._kept.is_begun:
                return
        assert time.monotonic() < until
        time.sleep(0.01)
