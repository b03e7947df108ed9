"""InputLoader: from targets to a model's inputs: sample, fetch features, wrap as tensors. Where the seconds go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, get_args

import numpy as np

from livegnn import _native
from livegnn.errors import ColumnMissing, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph import Graph
from livegnn.graph.checks import shown
from livegnn.optional import need
from livegnn.temporal.checks import check_graph, check_model, check_sampler, checked_device
from livegnn.temporal.events import Events
from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.pin import PinnedSampler
from livegnn.types import Float32Array, Int64Array

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.models.inputs import TemporalInput
    from livegnn.temporal.models.interface import TemporalModel

EdgeColumn = Literal["attr", "weight", "type"]
VertexFeatures: TypeAlias = "Fetches | Mapping[str, Fetches] | None"


class HopSource(Protocol):
    """What samples hops of slots: a TemporalSampler, one pinned to a version, or many processes as one."""

    def sample_slots(self, slots: Int64Array, times: Int64Array) -> list[TemporalHop]:
        """Hops from the targets outward."""

    def sample_snapshot_slots(self, slots: Int64Array, times: Int64Array) -> list[list[TemporalHop]]:
        """Hops of each snapshot, newest first."""

    def event_weights(self, dst: Int64Array, times: Int64Array, edge_ids: Int64Array) -> Float32Array:
        """(n,) weights of edges, each named by the slot that it leads to, its time and its id."""


class SlotSampler(HopSource, Protocol):
    """A HopSource of a graph, as trainers and engines hold it."""

    graph: Graph
    fanouts: list[int]  # edges per target, hop by hop
    snapshots: int  # windows back in time


class Fetches(Protocol):
    """Rows by id on some device: a FeatureCache."""

    @property
    def width(self) -> int:
        """Floats of a row."""

    def fetch(self, ids: Int64Array) -> torch.Tensor:
        """(k, width) float32, row i for ids[i]."""


class Clock:
    """Seconds by phase, added up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts what is done inside under this name."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """What was counted since the last call."""
        taken, self.seconds = self.seconds, {}
        return taken


class _GraphRows:
    """Features of a graph's vertices, or attributes of its edges, as they are now: what `read` gives for ids."""

    def __init__(self, graph: Graph, width: int, read: Callable[[Int64Array], Float32Array], device: Any) -> None:
        self.graph, self.width, self._read, self._device = graph, width, read, device
        self._torch = need("torch", "train")

    def fetch(self, ids: Int64Array) -> torch.Tensor:
        with self.graph.host.lock:
            rows = self._read(ids) if self.width else np.zeros((len(ids), 0), np.float32)
        tensor: torch.Tensor = self._torch.from_numpy(rows).to(self._device)
        return tensor


class InputLoader:
    """Makes the inputs of a model.

    Args:    sampler: over the graph, with as many fan-outs as the model reads hops.
             vertex_features, edge_features: FeatureCache, or None to read the graph; vertex_features perhaps one by
             vertex type, each FeatureCache(graph, vertex_type=...).  edge_columns: what an edge's features are, side by
             side: "attr", its attributes; "weight", one float; "type", 1 at the place of its type, else 0.
             feature_widths: by vertex type, where the graph is a part without features; else the graph's.
             device: where tensors go.
    Raises:  UsageError, WidthMismatch where sampler, model and graph do not fit each other; ColumnMissing.
    """

    def __init__(
        self,
        graph: Graph,
        sampler: SlotSampler,
        *,
        vertex_features: VertexFeatures = None,
        edge_features: Fetches | None = None,
        edge_columns: Sequence[EdgeColumn] = ("attr",),
        feature_widths: Mapping[str, int] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        check_graph("InputLoader", graph)
        check_sampler("InputLoader", sampler, graph)
        device = checked_device("InputLoader", device)
        self.graph, self.device = graph, device
        self.sampler = sampler
        self._widths = graph.feature_widths if feature_widths is None else feature_widths
        self.clock = Clock()
        if vertex_features is None:
            vertex_features = _GraphRows(graph, graph.feature_width, graph.host.store.features, device)
        if edge_features is None:
            read = partial(_native.edge_attrs, graph.host.store)
            edge_features = _GraphRows(graph, graph.attr_width, read, device)
        by_type = dict(vertex_features) if isinstance(vertex_features, Mapping) else {}
        self.sources = [*(by_type.values() or [vertex_features]), edge_features]
        for rows in self.sources:
            if not (hasattr(rows, "fetch") and hasattr(rows, "width")):
                name = "edge_features" if rows is edge_features else "vertex_features"
                raise UsageError(
                    f"[InputLoader] expected {name} as a FeatureCache or None, got {type(rows).__name__}; the features "
                    "themselves belong to the graph"
                )
        if by_type and set(by_type) != set(graph.feature_widths):
            raise UsageError(
                f"[InputLoader] expected vertex_features for each of the types {list(graph.feature_widths)}, got "
                f"{list(by_type)}; give FeatureCache(graph, vertex_type=...) for each"
            )
        self.vertices: Fetches | dict[str, Fetches] = by_type or cast("Fetches", vertex_features)
        self.edges = edge_features
        self.edge_columns = _checked_columns(graph, edge_columns)
        widths = {"attr": edge_features.width, "weight": 1, "type": len(graph.edge_types or ())}
        self.edge_width: int = sum(widths[column] for column in self.edge_columns)

    def check(self, model: TemporalModel) -> None:
        """Raises: UsageError for a module that is no temporal model; WidthMismatch if the sampler's hops or snapshots,
        or the features' widths, are not the model's.
        """
        check_model("InputLoader", model)
        got = (len(self.sampler.fanouts), self.sampler.snapshots)
        if got != (model.hop_count, model.snapshot_count):
            raise WidthMismatch(
                f"[InputLoader] expected a sampler of {model.hop_count} hops and {model.snapshot_count} snapshots for "
                f"{type(model).__name__}, got {got[0]} and {got[1]}; give it as many fanouts= and snapshots="
            )
        expected = model.x_width if isinstance(model.x_width, int) else list(model.x_width.items())
        found = list(widths.items()) if isinstance(widths := self.x_width, dict) else widths
        if (found, self.edge_width) != (expected, model.edge_width):
            raise WidthMismatch(
                f"[InputLoader] expected features of width {model.x_width} for vertices and {model.edge_width} for "
                f"edges, as the {type(model).__name__} reads them, got {widths} and {self.edge_width}; make the model "
                "so, its x_width= that of graph.feature_widths where vertices have types"
            )

    @property
    def x_width(self) -> int | dict[str, int]:
        """Floats of the vertex features, by type where vertices have types."""
        if not isinstance(self.vertices, dict):
            return dict(self._widths) or self.vertices.width
        return {name: self.vertices[name].width for name in self.graph.feature_widths}

    def load(
        self,
        slots: Int64Array,
        times: Int64Array,
        source: HopSource | None = None,
        without: Int64Array | None = None,
    ) -> list[TemporalInput]:
        """Inputs over the same roots, (B,) slots at (B,) times, one a snapshot, newest first.

        source: what samples, by default the sampler; a pinned one for a version that stays.
        without: ids of edges to leave out of the samples, for graphs without times.
        """
        with self.clock.phase("sample"):
            source = source or self.sampler
            if self.sampler.snapshots > 1:
                snapshots = source.sample_snapshot_slots(slots, times)
            else:
                snapshots = [source.sample_slots(slots, times)]
            if without is not None:
                snapshots = [[_less(hop, without) for hop in hops] for hops in snapshots]
        return [self._input(hops, source) for hops in snapshots]

    def edge_rows(self, events: Events, source: HopSource | None = None) -> torch.Tensor:
        """(k, edge_width) float32 features of events' edges, of the version that the source has pinned, if it is such.

        Raises:  EdgeMissing, EdgeOffloaded for an edge that is not in memory.
        """
        with self.clock.phase("fetch"):
            weights = None
            if "weight" in self.edge_columns:
                weights = (source or self.sampler).event_weights(events.dst, events.time, events.edge_ids)
            return self._edge_rows(events.edge_ids, weights, events.edge_types, source)

    def _edge_rows(
        self, ids: Int64Array, weights: Float32Array | None, types: Int64Array | None, source: HopSource | None
    ) -> torch.Tensor:
        lib: Any = need("torch", "train")
        parts: list[torch.Tensor] = []
        for column in self.edge_columns:
            if column == "attr":
                parts.append(self._rows(self.edges, ids, source, edges=True))
            elif column == "weight":
                parts.append(lib.from_numpy(weights).to(self.device)[:, None])
            else:
                codes = lib.from_numpy(types).to(self.device)
                parts.append(lib.nn.functional.one_hot(codes, len(self.graph.edge_types or ())).float())
        if not parts:
            parts = [lib.zeros(len(ids), 0, device=self.device)]
        found: torch.Tensor = parts[0] if len(parts) == 1 else lib.cat(parts, 1)
        return found

    def _rows(self, rows: Fetches, ids: Int64Array, source: HopSource | None, *, edges: bool) -> torch.Tensor:
        """Rows by id; those of the graph as the pinned version has them, also where the graph has moved on."""
        if not isinstance(source, PinnedSampler) or rows.width == 0 or getattr(rows, "graph", None) is not self.graph:
            return self._fetched(rows, ids)
        with self.graph.host.lock:
            kept = source.kept(ids, edges=edges)
            if not kept.any():
                return self._fetched(rows, ids)
            old = source.edge_attrs(ids[kept]) if edges else source.features_of_slots(ids[kept])[:, : rows.width]
            others = self._fetched(rows, ids[~kept])
        found = others.new_empty((len(ids), rows.width))
        torch = need("torch", "train")
        places = torch.from_numpy(kept).to(found.device)
        found[places], found[~places] = torch.from_numpy(old).to(found), others
        return found

    def _fetched(self, rows: Fetches, ids: Int64Array) -> torch.Tensor:
        """float32 on the loader's device: a cache may hold 16 bits, and be on another."""
        return rows.fetch(ids).to(self.device).float()

    def _vertex_rows(self, hop: TemporalHop, source: HopSource) -> torch.Tensor:
        """Features of the next targets, filled with zeros up to the widest type's."""
        slots = hop.next_targets
        if not isinstance(self.vertices, dict):
            return self._rows(self.vertices, slots, source, edges=False)
        lib: Any = need("torch", "train")
        found: torch.Tensor = lib.zeros(len(slots), self.graph.feature_width, device=self.device)
        for code, name in enumerate(self.graph.feature_widths):
            places = np.flatnonzero(hop.next_types == code)
            rows = self._rows(self.vertices[name], slots[places], source, edges=False)
            found[lib.from_numpy(places).to(self.device), : rows.shape[1]] = rows
        return found

    def _input(self, hops: list[TemporalHop], source: HopSource) -> TemporalInput:
        from livegnn.temporal.models.inputs import TemporalInput

        with self.clock.phase("fetch"):
            x = self._vertex_rows(hops[-1], source)
            edge_x = [self._edge_rows(hop.edge_ids, hop.weights, hop.edge_types, source) for hop in hops]
            return TemporalInput.of(hops, x, edge_x, self.device)


def _checked_columns(graph: Graph, columns: Sequence[EdgeColumn]) -> tuple[EdgeColumn, ...]:
    where, known = "InputLoader", get_args(EdgeColumn)
    if isinstance(columns, str) or not all(isinstance(column, str) and column in known for column in columns):
        raise ValueInvalid(f"[{where}] expected edge_columns among {', '.join(known)}, got {shown(columns)}; list them")
    if "weight" in columns and not graph.has_weight:
        raise ColumnMissing(f"[{where}] expected a graph with weights for edge_columns, got one without; give weight=")
    if "type" in columns and graph.edge_types is None:
        raise ColumnMissing(
            f"[{where}] expected a graph whose vertices have types for the edge column type, got one without; give "
            "types as attributes"
        )
    return tuple(columns)


def _less(hop: TemporalHop, edge_ids: Int64Array) -> TemporalHop:
    """The hop without these edges; the rows that they led to stay, with nothing leading to them."""
    kept = ~np.isin(hop.edge_ids, edge_ids)
    if kept.all():
        return hop
    columns = {name: getattr(hop, name) for name in ("src", "edge_ids", "times", "edge_types", "weights")}
    return replace(
        hop,
        ptr=np.concatenate([[0], np.cumsum(np.bincount(hop.dst[kept], minlength=len(hop.targets)))]),
        edge_index=np.ascontiguousarray(hop.edge_index[:, kept]),
        **{name: column[kept] for name, column in columns.items() if column is not None},
    )
