"""The scenarios. Each is a function of one Step, which it fills with work until that is over.

share: of the soak's time.   growth_max: MiB by which a slice's memory at rest may grow.   whole: one step lasts as long
as its slice, so that memory is watched for long.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Scenario:
    """Where it is, and how it is to be run."""

    place: str
    share: float = 0.05
    growth_max: int = 64
    whole: bool = False

    def load(self) -> Callable[[Any], None]:
        """The function."""
        module, _, name = self.place.partition(":")
        found: Callable[[Any], None] = getattr(importlib.import_module(module), name)
        return found


SCENARIOS = {
    "volume": Scenario("tests.soak.volume:run", share=0.35),
    "variety": Scenario("tests.soak.variety:run"),
    "hetero": Scenario("tests.soak.hetero:run", share=0.08),
    "readers": Scenario("tests.soak.readers:run"),
    "streams": Scenario("tests.soak.streams:run"),
    "samplers": Scenario("tests.soak.samplers:run"),
    "temporal": Scenario("tests.soak.temporal:run"),
    "crash": Scenario("tests.soak.crash:run", share=0.07),
    "deployments": Scenario("tests.soak.kills:scenario"),
    "cluster": Scenario("tests.soak.clusters:run"),
    "training": Scenario("tests.soak.training:run", share=0.07),
    "damage": Scenario("tests.soak.damage:run"),
    "steady": Scenario("tests.soak.steady:run", share=0.08, growth_max=24, whole=True),
}
FILLER = "volume"  # what runs while updates are missing and time is over


def find(name: str) -> Scenario:
    """By its name, or by `module:function`. Raises: KeyError."""
    return Scenario(name) if ":" in name else SCENARIOS[name]
