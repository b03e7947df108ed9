"""Hypothesis profiles: fixed examples by default, so that a change is judged by its own merits; fresh ones in soaks."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

slow_is_fine = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("fixed", deadline=None, derandomize=True, suppress_health_check=slow_is_fine)
settings.register_profile("soak", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=slow_is_fine)
settings.load_profile(os.environ.get("LIVEGNN_HYPOTHESIS", "fixed"))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # matrices are tiny, and tests run side by side: threads would only wait
gc.disable()  # until all tests are collected: a fifth of that time goes into walks through what stays


def pytest_collection_finish() -> None:
    """Collections of garbage skip what every test needs: modules and thousands of collected tests."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A Ray of four CPUs on this machine, for all tests of a process."""
    ray = pytest.importorskip("ray")
    folder = tempfile.mkdtemp(prefix="r")  # short: sockets lie in it
    unread = {"RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0", "LOG_NAME_UPDATE_INTERVAL_S": "1e9"}  # what workers print
    others_run_meanwhile = {"RAY_worker_niceness": "0"}
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", **unread, **others_run_meanwhile})
    options = {"log_to_driver": False, "logging_level": "ERROR", "_temp_dir": folder, "object_store_memory": 100 << 20}
    ray.init("local", num_cpus=4, include_dashboard=False, **options)
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
