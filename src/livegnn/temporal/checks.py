"""Checks that trainers, engines, loaders and caches share: parts that fit together, whole numbers, devices."""

from __future__ import annotations

from typing import Any

from livegnn.errors import UsageError, ValueInvalid
from livegnn.graph import Graph
from livegnn.graph.checks import finite_float, shown
from livegnn.optional import need


def check_graph(where: str, graph: object) -> None:
    """Raises: UsageError for what is no Graph."""
    if not isinstance(graph, Graph):
        raise UsageError(f"[{where}] expected a Graph, got {type(graph).__name__}; make one with livegnn.Graph")


def check_sampler(where: str, sampler: object, graph: object, *, live: bool = False) -> None:
    """Refuses what samples no slots of this graph; live: what cannot be held to one version, too.

    Raises:  UsageError.
    """
    wanted = ["graph", "fanouts", "snapshots", "sample_slots", *(["twin", "pin", "options"] if live else [])]
    if not all(hasattr(sampler, name) for name in wanted):
        raise UsageError(
            f"[{where}] expected a TemporalSampler of the graph, got {type(sampler).__name__}; make one with "
            "livegnn.TemporalSampler"
        )
    if getattr(sampler, "graph", None) is not graph:
        raise UsageError(f"[{where}] expected a sampler of this graph, got one of another; make one for it")


def checked_parts(
    where: str, model: object, graph: object, sampler: object, device: object, *, live: bool = False
) -> Any:
    """The torch.device of a model, a graph and a sampler of it that go together. Raises: UsageError, ValueInvalid."""
    check_model(where, model)
    check_graph(where, graph)
    check_sampler(where, sampler, graph, live=live)
    return checked_device(where, device)


def check_model(where: str, model: object) -> None:
    """Raises: UsageError for a module that is no temporal model."""
    if isinstance(model, type) or not all(hasattr(model, name) for name in ("hop_count", "embed", "score", "memory")):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise UsageError(
            f"[{where}] expected a model of livegnn.temporal.models, got {got}; wrap a PyG module in StaticLinks"
        )


def check_whole(where: str, least: int, **numbers: object) -> None:
    """Raises: ValueInvalid for what is no int of at least so much."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueInvalid(f"[{where}] expected {name} of at least {least}, got {value!r}; give a whole number")


def check_from_zero(where: str, **numbers: object) -> None:
    """Raises: ValueInvalid for a negative number or one that is not finite; DtypeInvalid for what is none."""
    for name, number in numbers.items():
        if finite_float(where, name, number) < 0:
            raise ValueInvalid(f"[{where}] expected {name} from 0 on, got {number!r}; give a finite number")


def check_share(where: str, name: str, share: float) -> None:
    """Raises: ValueInvalid for what is not from 0 to below 1; DtypeInvalid for what is no number."""
    if not 0.0 <= finite_float(where, name, share) < 1.0:
        raise ValueInvalid(f"[{where}] expected {name} in [0, 1), got {share}; give a share")


def checked_device(where: str, device: object) -> Any:
    """The torch.device, which a tensor was put on. Raises: ValueInvalid for one that is not at hand."""
    torch: Any = need("torch", "train")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as cause:
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise ValueInvalid(
            f"[{where}] expected a device that is at hand, got {shown(device)} ({reason}); give another"
        ) from cause
    return found
