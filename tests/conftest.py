"""Hypothesis profiles: fixed examples by default, so that a change is judged by its own merits; fresh ones in soaks."""

import gc
import os

from hypothesis import HealthCheck, settings

slow_is_fine = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("fixed", deadline=None, derandomize=True, suppress_health_check=slow_is_fine)
settings.register_profile("soak", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=slow_is_fine)
settings.load_profile(os.environ.get("LIVEGNN_HYPOTHESIS", "fixed"))


def pytest_collection_finish() -> None:
    """Collections of garbage skip what every test needs: modules and thousands of collected tests."""
    gc.collect()
    gc.freeze()
