"""Handing a trained model over to what serves it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from livegnn.errors import UsageError
from livegnn.models.pyg.entry import from_pyg
from livegnn.temporal.engine import TemporalEngine
from livegnn.temporal.report import RoundReport

if TYPE_CHECKING:
    from livegnn.temporal.models.interface import TemporalModel

Publisher = Callable[["TemporalModel", RoundReport], None]  # the model, and the round that it comes from


def publisher_of(target: Any, model: TemporalModel) -> Publisher:
    """How a target takes models: a TemporalEngine, a livegnn.Engine (of a StaticLinks' module), or a callable.

    Raises:  UsageError for anything else; ModelUnsupported, ModelMismatch if an Engine cannot hold the module.
    """
    if isinstance(target, TemporalEngine):

        def to_temporal(trained: TemporalModel, report: RoundReport) -> None:
            target.swap(trained, memory=None if trained.memory is None else trained.memory.state(), upto=report.version)

        return to_temporal
    if hasattr(target, "swap") and hasattr(model, "module"):

        def to_engine(trained: TemporalModel, report: RoundReport) -> None:
            module: Any = copy.deepcopy(trained.module)
            target.swap(from_pyg(module.cpu().eval()))

        return to_engine
    if callable(target):
        publisher: Publisher = target
        return publisher
    raise UsageError(
        f"[publish_to] expected a TemporalEngine, an Engine for a StaticLinks model, or a callable(model, report), got "
        f"{type(target).__name__} for a {type(model).__name__}; wrap it in a callable"
    )
