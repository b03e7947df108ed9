"""Engine: keeps a model's outputs equal to a run from scratch while its graph changes.

Threads. One writer at a time holds the graph's lock. Readers take published rows and no lock of the graph: they see the
outputs of one whole version and never wait for propagation.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from livegnn import _native
from livegnn.errors import (
    ColumnMissing,
    LiveGnnError,
    ModelMismatch,
    StateMismatch,
    StoredStateInvalid,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph import checks
from livegnn.graph.consumers import Switch, Switching, VertexChange
from livegnn.graph.graph import Graph
from livegnn.graph.threads import thread_count
from livegnn.graph.updates import Updates
from livegnn.inference import hetero as over_types
from livegnn.inference import storage
from livegnn.inference.callbacks import Callback, Callbacks, Handle
from livegnn.inference.changes import Changes
from livegnn.inference.demand import Demand, DemandStats
from livegnn.inference.edge_outputs import EdgeIndex, EdgeReader, refuse_rows_of_vertices
from livegnn.inference.explain.explaining import Explained
from livegnn.inference.memory import Memory, memory_options
from livegnn.inference.predict import Rows
from livegnn.inference.resolution import LayerResolution, resolutions, warn_of_coarse
from livegnn.inference.stream import Stream
from livegnn.inference.views import Outputs, SnapshotView, WhatIfView
from livegnn.models.compile import aggregation_names, compile_model
from livegnn.models.joining import GraphColumns, joined
from livegnn.models.model import Model
from livegnn.stored import file_path

Mode: TypeAlias = Literal["eager", "on_demand", "hybrid"]
Strategy: TypeAlias = Literal["incremental", "constrained", "affected", "khop", "sampled", "full"]

_STRATEGIES = {
    "incremental": _native.Strategy.Incremental,
    "constrained": _native.Strategy.Incremental,
    "affected": _native.Strategy.Affected,
    "khop": _native.Strategy.KHop,
    "sampled": _native.Strategy.Sampled,
    "full": _native.Strategy.Full,
}
_PATHS = {"auto": _native.Path.Unset, "push": _native.Path.Push, "pull": _native.Path.Pull, "sweep": _native.Path.Sweep}
_EXPONENTS, _CAPACITIES = (-100, 110), (16, 40)  # of scales that engines choose, rescaled or not
_log = logging.getLogger("livegnn")


class Follower(Protocol):
    """What is kept live from an engine's rows. Called in the applying thread, under the graph's lock."""

    def _before(self, batch: list[VertexChange]) -> None:
        """Before a batch is applied, with the vertices that it adds and removes; may raise and so refuse it."""

    def _after(self, changed: NDArray[np.int64], version: int) -> None:
        """After the rows of these slots were published, and before any callback of on_change."""

    def _suits(self, model: Model) -> None:
        """Before another model takes over; may raise and so refuse it."""

    def _rebuilt(self) -> None:
        """After all rows were made anew."""

    def close(self) -> None:
        """Leaves the engine."""


class Engine(Outputs, Switching, Explained):
    """The live outputs of `model` on `graph`.

    y[v] = model(graph now)[v], for every live v, after every batch

    Args:    strategy: "incremental", or one to compare with: "full" (the whole graph), "khop" (L-hop in-neighbourhoods
             of the affected outputs: NeutronRT's RTEC-Full), "affected" (layer-wise recompute of the affected set:
             RIPPLE's RC, NeutronRT's RTEC-UER), "constrained" (incremental, but the attention of a vertex whose own
             row moved is summed again from all its in-edges: NeutronRT's Algorithm 4), "sampled" (`fanout` in-edges a
             vertex and layer: RTEC-NS; the only inexact one).
             threads: default all cores.
             state: "fast" keeps message rows and what later layers need of a vertex; "compact" keeps aggregates only
             and derives the rest again for the vertices that a batch touches (NeutronRT V.B). The bits are the same.
             mode: "eager" brings every output up to date with each batch; "on_demand" notes batches and computes what
             is asked for when it is asked for; "hybrid" does so, but keeps the `hot` vertices that are asked for most
             up to date. Same outputs, bit for bit; reads take the writer's place, an error that a batch's messages
             bring shows when they are asked for, and `changes.vertices` names new vertices only.
             path: "auto", or one way for every layer: "push", "pull", "sweep"; the bits are the same.
             scales: exponents of the fixed-point units, as `engine.scales` gives them; default from the first run.
             memory_limit: of the engine's rows, in bytes or as text ("2GiB"), at least 4 MiB; the rows of hubs stay in
             memory, the others lie in files and come as they are touched. Slower, the same bits (docs/memory.md).
             spill_folder: of these files, on a disk; default $TMPDIR, /var/tmp or the system's temporary folder.
             name: of the engine in its graph's log; engines of one graph need it to swap or rescale (docs/log.md).
    Raises:  ModelMismatch for features of another width; ColumnMissing where the model needs edge weights and the
             graph has none; ValueInvalid for unknown options; UsageError for a model that was not imported;
             ModelUnsupported where the model is over vertex types and the graph is not, or the other way round;
             SpillUnavailable for a folder that cannot hold the files; DataMissing or StoredStateInvalid where edges lie
             in a file that is gone or damaged.
    Exactness: bit-equal to recompute() with every strategy but "sampled".
    Cost:    one run of the model at creation; then by what each batch changes.
    Source:  RIPPLE 4.3, NeutronRT IV; fixed-point accumulators: docs/guarantees.md.
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        strategy: Strategy = "incremental",
        threads: int | None = None,
        *,
        mode: Mode = "eager",
        hot: int = 1000,
        state: Literal["fast", "compact"] = "fast",
        path: Literal["auto", "push", "pull", "sweep"] = "auto",
        fanout: int = 10,
        seed: int = 0,
        scales: list[list[int]] | None = None,
        memory_limit: int | str | None = None,
        spill_folder: str | os.PathLike[str] | None = None,
        name: str = "",
    ) -> None:
        refuse_other("Engine", "model", model, Model)
        refuse_other("Engine", "graph", graph, Graph)
        _choice("strategy", strategy, _STRATEGIES)
        _choice("state", state, ("fast", "compact"))
        _choice("path", path, _PATHS)
        _choice("mode", mode, ("eager", "on_demand", "hybrid"))
        if mode != "eager" and (strategy, state) != ("incremental", "fast"):
            raise ValueInvalid(
                f'[Engine] expected strategy="incremental" and state="fast" with mode={mode!r}, got {strategy!r} and '
                f"{state!r}; leave them out"
            )
        _check_int("hot", hot, 1, math.inf, "of at least 1")
        if state == "compact" and strategy != "incremental":
            raise ValueInvalid(
                f'[Engine] expected strategy="incremental" with state="compact", got {strategy!r}, which keeps no rows '
                "to leave out; leave state= out"
            )
        if not isinstance(name, str):
            raise ValueInvalid(f"[Engine] expected name as a string, got {name!r}; pass one")
        self.threads = thread_count("Engine", threads)
        _check_int("fanout", fanout, 1, 2**31 - 1, "from 1 to 2^31 - 1")
        _check_int("seed", seed, 0, 2**64 - 1, "from 0 to 2^64 - 1")
        self.graph = graph
        self.name = name
        self.strategy = strategy
        self.state = state
        self.mode: Mode = mode
        self._hot, self._demand = hot, Demand(hot if mode == "hybrid" else 0)
        self._path, self._fanout, self._seed = path, fanout, seed
        self._memory_limit, self._spill_folder = memory_options(memory_limit, spill_folder)
        self.generation = 0  # swaps and rescales: every row is another one
        self._callbacks = Callbacks()
        self._followers: list[Follower] = []
        self._closed = False
        self._edge_reader: EdgeReader | None = None
        self._edge_index: EdgeIndex | None = None
        self.switching = threading.Lock()  # native and model change together
        self._last_version = self._last_id_epoch = 0  # the graph's, once closed
        with graph.host.attaching("Engine"):
            self.native = self._build(model, scales)
            self.model = model
            self._edge_reader = self._reader_of(model)
            graph.host.attach(self)

    def _build(self, model: Model, scales: list[list[int]] | None) -> Any:
        codes = over_types.codes_of(model, self.graph)
        if codes is None and model.input_width != self.graph.feature_width:
            raise ModelMismatch(
                f"[Engine] expected features of width {model.input_width}, as the model takes, "
                f"got {self.graph.feature_width}; give the features that it was trained on, without a label or an id"
            )
        over_types.check_strategy(model, self.strategy)
        fitted = self._joined(model)
        self._check_columns(fitted)
        split = self.strategy in ("incremental", "constrained")
        program = compile_model(fitted.output, closed=self.state == "compact", split=split, codes=codes)
        _check_scales(scales, program)
        options = _native.EngineOptions(
            strategy=_STRATEGIES[self.strategy],
            force_path=_PATHS[self._path],
            compact=self.state == "compact",
            on_demand=self.mode != "eager",
            constrained=self.strategy == "constrained",
            lists_edges=model.edge_output is not None,
            threads=self.threads,
            fanout=self._fanout,
            seed=self._seed,
            scale_exponents=scales or [],
            memory_limit=self._memory_limit,
            spill_folder=self._spill_folder,
        )
        return _native.NativeEngine.create(self.graph.host.store, program, options)

    def _joined(self, model: Model) -> Model:
        return joined(model, GraphColumns(self.graph.weight_column, self.graph.attr_width))

    def _check_columns(self, model: Model) -> None:
        if model.uses_types and not self.graph.has_type:
            raise ColumnMissing(
                "[Engine] expected edge types, which the model reads, got a graph without; pass edge_type= to Graph"
            )

    def _reader_of(self, model: Model) -> EdgeReader | None:
        return None if model.edge_output is None else EdgeReader(self._joined(model), self.graph)

    @property
    def is_eager(self) -> bool:
        """Whether every output is up to date after each batch."""
        return self.mode == "eager"

    # ---- writing

    def apply(self, updates: Updates) -> Changes:
        """Applies a batch to the graph and everything attached to it, all or none; outputs are published on return.

        Returns: the vertices whose output changed, and the cost.
        Raises:  UpdateError as Graph.apply; RangeOverflow where a message leaves the fixed-point range (the batch is
                 rolled back: call rescale()).
        """
        changes: Changes = self.graph.host.apply(updates, self)[1]
        return changes

    def stream(
        self,
        source: Iterable[Updates | tuple[Any, ...]],
        latency: str | float | timedelta,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> Stream:
        """Applies a stream of updates in batches sized by a deadline: `for batch in engine.stream(source, "50ms"): ...`

        An update's effect is published at most `latency` after it was taken from the source, where that is possible;
        batch.late says where it was not. Batches are applied as the iterator is asked for them.

        Args:    source: Updates objects, each kept whole, or tuples such as ("add_edge", u, v) and ("add_edge", u, v,
                 {"weight": 1.0}) with the scalar methods of Updates; a sequence, or an iterable that may be slow or
                 endless, which a thread reads no further ahead than the next batch.
                 latency: "50ms", "2s", "500us", "1min", seconds or a timedelta.
        Raises:  ValueInvalid, DtypeInvalid for a bad latency; while iterating UpdateError or UsageError, naming the
                 update's place in the stream: all before it is applied, and nothing else.
        """
        self.refuse_closed("stream")
        return Stream(self, source, latency, clock=clock)

    def published(self, change: Any, version: int) -> Changes:
        """Follows in readouts, then calls the callbacks of on_change."""
        if self.mode == "hybrid":
            self._demand.after_batch(self.native)
        changes = Changes(change, self.graph, version, self._edge_reader)
        if self._edge_index is not None:
            self._follow_edges(change)
        if self._followers:
            changed = change.vertices()
            for follower in self._followers:
                try:
                    follower._after(changed, version)
                except Exception:
                    _log.exception("[Readout] following failed at version %d; the next reader builds it anew", version)
        self._callbacks.call(changes)
        return changes

    def on_change(self, callback: Callback) -> Handle:
        """Calls callback(changes) in the applying thread after each version is published, in version order.

        An exception in a callback is logged (logger "livegnn") and undoes nothing. A callback may read, but not apply.
        """
        self.refuse_closed("on_change")
        return self._callbacks.add(callback)

    def _follow(self, follower: Follower) -> None:
        self._followers = [*self._followers, follower]
        self.graph.host.add_guard(follower._before)

    def _unfollow(self, follower: Follower) -> None:
        self._followers = [each for each in self._followers if each is not follower]
        self.graph.host.drop_guard(follower._before)

    def what_if(self, updates: Updates) -> WhatIfView:
        """A view of the outputs as they would be after `updates`, to be used as `with engine.what_if(u) as view`.

        Readers go on seeing the committed version; writers wait until the block ends. Leaving the block puts every
        row back, bit for bit. Raises: UpdateError as apply(), on entering the block.
        """
        refuse_other("what_if", "updates", updates, Updates)
        return WhatIfView(self, updates)

    def swap(self, model: Model) -> None:
        """Changes to another model: its state is built next to the old one, which serves on, then switched.

        In a graph with a log it is an entry, and a version without updates: durable before a reader sees it.

        Raises: ModelMismatch or ColumnMissing if it does not fit the graph; then the old model stays.  With a log,
                UsageError where another engine of the graph has this name, ValueInvalid where the model is larger than
                an entry may be, LogUnavailable, LogConflict.
        """
        refuse_other("swap", "model", model, Model)
        with self.graph.host.writing("swap"):
            self.refuse_closed("swap")
            self._suit(model)
            self._switch("swap", model, self._build(model, None))

    def rescale(self, headroom: float = 512.0) -> None:
        """Chooses the fixed-point units anew from the present graph and rebuilds the state. Never automatic.

        In a graph with a log it is an entry, as swap().

        Args:   headroom: how many times larger than the largest present one a message may become, 1 to 2^20. More
                headroom leaves coarser units: double it and a message is rounded twice as coarsely.
        Raises: ValueInvalid for another headroom. Outputs may change in their last bits, as the rounding of messages
                does.
        """
        coarser = coarser_for(headroom)
        with self.graph.host.writing("rescale"):
            self.refuse_closed("rescale")
            native = self._build(self.model, None)
            if coarser:
                native = self._build(self.model, coarsened(native.scale_exponents(), coarser))
            self._switch("rescale", self.model, native)
        _log.info("[rescale] fixed-point units chosen anew at version %d, headroom %g", self.graph.version, headroom)

    def redo(self, switch: Switch) -> None:
        """Takes the model and the scales of a recorded switch, for the replay of a log. Raises: as swap."""
        with self.graph.host.writing("replay"):
            model, scales = storage.switched(switch, self.model)
            self._suit(model)
            self._switch(switch.kind, model, self._build(model, scales), switch)

    def _suit(self, model: Model) -> None:
        for follower in self._followers:
            follower._suits(model)

    def _switch(self, kind: str, model: Model, native: Any, recorded: Switch | None = None) -> None:
        """Takes another native half; through the recorders, where there are any. The caller holds writing()."""

        reader = self._reader_of(model)

        def take() -> None:
            with self.switching:
                self.native, self.model, self._edge_reader = native, model, reader
            self.generation += 1
            if reader is None:
                self._edge_index = None
            for follower in self._followers:
                try:
                    follower._rebuilt()
                except Exception:
                    _log.exception("[Readout] following a %s failed; the next reader builds it anew", kind)

        host = self.graph.host
        if recorded is None and host.recorders:
            recorded = storage.switch_of(self.name, kind, model, native.scale_exponents())
        if recorded is None:
            take()
            host.renew_natives()
        else:
            host.switch(self, native, recorded, take)

    def close(self) -> None:
        """Detaches the engine, and its readouts, from its graph; their last rows stay readable, and nothing else.

        Where ids are not slots they stay so until vertices come or go.  Raises: UsageError inside a what_if block.
        """
        with self.graph.host.lock:
            if self._closed:
                return
            self._refuse_what_if("close", "no what_if block under way")
            for follower in self._followers:
                follower.close()
            self._last_version = self.graph.version
            try:
                self._complete()
            except LiveGnnError as error:
                self._last_version = self.native.read_versioned(np.zeros(0, np.int64))[1]
                _log.warning("[close] outputs stay as they were before the batches that are pending: %s", error)
            self._last_id_epoch = self.graph.host.id_epoch
            self._closed = True
            self.graph.host.detach(self)

    def _refuse_moved(self) -> None:
        """Once closed: where the graph's ids are no longer those of the rows. The caller holds the graph's lock."""
        if self._closed and self.graph.host.id_epoch != self._last_id_epoch:
            raise UsageError(
                f"[embeddings] expected the vertices of version {self._last_version}, at which the engine was closed, "
                "got a graph where some have come or gone since; make a new engine on it"
            )

    def refuse_closed(self, where: str) -> None:
        """Raises: UsageError after close()."""
        if self._closed:
            raise UsageError(
                f"[{where}] expected an open engine, got one that was closed at version {self._last_version}; make a "
                "new one on its graph"
            )

    def _refuse_what_if(self, where: str, expected: str = "a committed version") -> None:
        if self.graph.host.in_what_if:
            raise UsageError(
                f"[{where}] expected {expected}, got a what_if block in this thread; call it after the block"
            )

    # ---- reading (any thread)

    _where = "embeddings"

    def _of(self) -> tuple[Graph, Model]:
        return self.graph, self.model

    def _read(self, *parts: over_types.Part) -> Rows:
        if self.mode != "eager":
            return self._read_demanded(parts)
        if not self.graph.host.ids_are_slots:
            return self._read_named(parts)
        rows: Rows = self.native.read(self._slots(parts))
        return rows

    def _slots(self, parts: tuple[over_types.Part, ...]) -> NDArray[np.int64]:
        return over_types.slots_of(self.graph.host.ids, "embeddings", parts)

    def _read_named(self, parts: tuple[over_types.Part, ...]) -> Rows:
        """Rows where ids are not slots: a batch may give a slot to another id between the look-up and the read, so both
        must be of one version.
        """
        graph = self.graph
        while not self._closed:
            version = graph.host.ids_version
            try:
                rows, read_version = self.native.read_versioned(self._slots(parts))
            except VertexUnknown:
                if 0 <= version == graph.host.ids_version:  # below 0 while the ids move
                    raise
                continue
            if version == read_version == graph.host.ids_version:
                found: Rows = rows
                return found
        with graph.host.lock:
            self._refuse_moved()
            last: Rows = self.native.read(self._slots(parts))
        return last

    def _read_demanded(self, parts: tuple[over_types.Part, ...]) -> Rows:
        with self.graph.host.lock:
            self._refuse_moved()
            slots = self._slots(parts)
            return self._rows_demanded(slots)

    def _rows_demanded(self, slots: NDArray[np.int64]) -> Rows:
        if not self.graph.host.in_what_if and not self._closed:  # what_if and close have completed the state
            self._demand.query(self.native, slots)
        rows: Rows = self.native.read(slots)
        return rows

    # ---- rows of edges

    @property
    def edge_reader(self) -> EdgeReader | None:
        """What reads rows of edges; None where the model has one row per vertex."""
        return self._edge_reader

    def edge_index(self) -> EdgeIndex:
        """Where edges lie, by their ids: made on first demand. The caller holds the graph's lock."""
        if self._edge_index is None:
            self._refuse_what_if("edge_outputs by edge ids", "an index of the edges, made by an earlier call")
            self._edge_index = EdgeIndex(self.graph.host.store)
        return self._edge_index

    def _follow_edges(self, change: Any) -> None:
        assert self._edge_index is not None
        self._edge_index.follow(change.edges_added(), self.graph.host.store, self.graph.undirected)

    def _edge_rows(self, edges: object) -> Rows:
        self.refuse_closed("edge_outputs")
        self._refuse_what_if("edge_outputs", "the view of the what_if block")
        assert self._edge_reader is not None
        found = self._edge_reader.named("edge_outputs", edges, self.graph.host.ids, self.edge_index)
        return self._edge_reader.rows(found, self.native.read if self.is_eager else self._rows_demanded)

    def recompute_edges(self) -> Rows:
        """Rows of all edges from a run from scratch, (E, d) float32, in order of edge ids, as Graph.edges() gives them.

        Raises: ModelMismatch for a model with one row per vertex; UsageError after close() and in a what_if block.
        """
        with self.graph.host.lock:
            self._refuse_what_if("recompute_edges")
            if self._edge_reader is None:
                refuse_rows_of_vertices("recompute_edges", self.model)
            fresh = self.recompute()
            return self._edge_reader.rows(self._edge_reader.all_edges(), lambda slots: fresh[slots])

    def complete(self) -> None:
        """Brings every output up to date. Does nothing with mode="eager", where they always are.

        Raises: RangeOverflow where a pending batch's messages leave the fixed-point range: call rescale().
        """
        with self.graph.host.lock:
            self._complete()

    def _complete(self) -> None:
        if self.native.pending() and not self.graph.host.in_what_if and not self._closed:
            self.native.flush()

    def complete_all(self) -> None:
        """Completes every engine of the graph. The caller holds the graph's lock."""
        for consumer in self.graph.host.consumers:
            if isinstance(consumer, Engine):
                consumer._complete()

    @property
    def last_demand(self) -> DemandStats:
        """What the latest query cost; zeros with mode="eager"."""
        return self._demand.last

    def snapshot(self) -> SnapshotView:
        """A view of the outputs of the version that is published now, used as `with engine.snapshot() as view`.

        All that is read of it is of `view.version`, while batches go on being applied in any thread, this one too:
        neither waits for the other. swap() and rescale() leave it at the rows it began with.

        Raises: on entering the block UsageError for a closed engine; with mode="on_demand" or "hybrid", where what is
                pending is completed first, as complete().
        Cost:   of a batch while snapshots are open: a copy of each old row that it changes, kept until they close; at
                most one row for each vertex and version that has snapshots.
        """
        return SnapshotView(self)

    @property
    def version(self) -> int:
        """The version that reads are of: rows read later are of this version or a later one, rows read before of this
        or an earlier one. Never falls; at most the batch under way ahead of graph.version.
        """
        return self._last_version if self._closed else int(self.native.version)

    @property
    def scales(self) -> list[list[int]]:
        """Exponents of the fixed-point units per aggregation and column, and last the capacity; pass them as
        scales=.
        """
        exponents: list[list[int]] = self.native.scale_exponents()
        return exponents

    def keep_moves(self, rows_max: int) -> None:
        """From now on changes.take_moves() has the rows that a batch moved, until the next swap or rescale.

        rows_max: of one batch; of more None is kept.  -1: no more.
        """
        self.native.keep_moves(rows_max)

    def rows_at(self, slots: NDArray[np.int64]) -> Rows:
        """(k, d) float32 rows of live slots of the graph."""
        rows: Rows = self.native.read(slots)
        return rows

    def state_bytes(self) -> dict[str, int]:
        """Bytes of state by part: aggregates, messages, stored, contexts, outputs, scratch."""
        sizes: dict[str, int] = self.native.bytes()
        return sizes

    @property
    def memory(self) -> Memory | None:
        """What the rows take in memory and on disk; None without memory_limit."""
        found = self.native.paging()
        return None if found is None else Memory(*found)

    # ---- audits

    def recompute(self) -> Rows:
        """A full run from scratch with the recorded scales, (slot_count, d) float32; zeros for removed vertices.

        Row i is slot i: the vertex with id i in a graph without ids=. The live state is left alone.
        """
        with self.graph.host.lock:
            self.refuse_closed("recompute")
            rows: Rows = self.native.recompute(self.graph.host.store.slot_count)
            rows[~self.graph.host.store.live()] = 0
        return rows

    def verify(self) -> None:
        """Compares the live state with a run from scratch: all state bit for bit.

        Both sides use the recorded scales: resolution() says whether these are still fine enough.

        Raises: StateMismatch naming what differs and at which vertex.
        """
        with self.graph.host.lock:
            self.refuse_closed("verify")
            self._complete()
            if self.strategy == "sampled":
                raise UsageError(
                    "[verify] expected an exact strategy, got sampled, whose outputs are estimates; use another one"
                )
            found = self.native.verify() or self._edge_difference()
        if found is not None:
            raise StateMismatch(
                f"[verify] expected the live state to equal a run from scratch at version {self.version}, "
                f"got another {found}; load a saved engine"
            )

    def _edge_difference(self) -> str | None:
        """The first edge whose row is not that of a run from scratch, in words; None without any."""
        if self._edge_reader is None:
            return None
        found = self._edge_reader.all_edges()
        live = self._edge_reader.rows(found, self.native.read)
        differ = (live.view(np.uint32) != self.recompute_edges().view(np.uint32)).any(axis=1)
        return f"row of edge {found['id'][np.argmax(differ)]}" if differ.any() else None

    def resolution(self) -> list[LayerResolution]:
        """Whether the fixed-point grid is fine enough for the messages as they are now, by aggregation.

        Scales are chosen anew from the present graph, and compared with those in use: where a column's messages have
        shrunk (an outlier has left), the difference is the number of bits lost, which rescale() gives back. Columns
        that have lost 16 or more are `coarse`, and a warning names them (logger "livegnn"). Changes nothing.

        Raises: UsageError inside a what_if block.
        Cost:   of rescale(): a run from scratch, and its memory for that long.
        """
        with self.graph.host.lock:
            self.refuse_closed("resolution")
            self._refuse_what_if("resolution")
            names = aggregation_names(self._joined(self.model).output)
            fresh = self._build(self.model, None).scale_exponents()
            layers = resolutions(names, self.scales[:-1], fresh[:-1])
            version = self.graph.version
        warn_of_coarse(layers, version)
        return layers

    def state_digest(self) -> str:
        """Order-free hash of model, scales, vertices, features, edges (as a multiset) and aggregates, as hexadecimal.

        Equal if and only if the content is bit-equal (up to collisions of a 64-bit hash for each part); not of
        version, edge ids, batching, threads or memory layout.
        """
        with self.graph.host.lock:
            self.refuse_closed("state_digest")
            self._complete()
            return storage.state_digest(self.model, self.graph.host.store.digest(), self.native.digest())

    # ---- saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes graph, model, scales and settings to one file with a checksum: a crash leaves the old one or the new.

        State is not written: it is a function of what is, and load() gives every bit back.

        Raises: UsageError for a path without a folder, or that is none; StorageFailed where the disk refuses.
        """
        with self.graph.host.lock:
            self.refuse_closed("save")
            self._refuse_what_if("save")
            storage.save(file_path("save", path), self.graph.to_arrays(), self.model, self.scales, self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """The options of Engine that save() writes, by name."""
        return {
            "strategy": self.strategy,
            "state": self.state,
            "mode": self.mode,
            "hot": self._hot,
            "path": self._path,
            "fanout": self._fanout,
            "seed": self._seed,
            "name": self.name,
        }

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        spill_folder: str | os.PathLike[str] | None = None,
    ) -> Self:
        """The engine that save() wrote, with the same state_digest(); threads, memory_limit and spill_folder are not
        saved.

        Raises: StoredStateInvalid for a damaged or foreign file, or one with precision="float32" of livegnn 0.1;
                FileMissing; StorageFailed.
        """
        thread_count("load", threads)
        memory_options(memory_limit, spill_folder)
        if isinstance(path, str | os.PathLike) and os.path.isfile(os.path.join(path, "directory.npz")):
            raise UsageError(f"[load] expected a file, got {path}, a graph in parts; load it by lg.Cluster.load()")
        with storage.opened(path) as content:
            arrays, model, scales, settings = storage.parts(content)
            precision = settings.pop("precision", "exact")
            if precision == "exact":
                graph = Graph.from_arrays(arrays)
                settings |= {"threads": threads, "memory_limit": memory_limit, "spill_folder": spill_folder}
                return cls(model, graph, scales=scales, **settings)
        raise StoredStateInvalid(
            f"[load] expected an engine with exact sums at {path}, got precision={precision!r}, which livegnn has no "
            "more; build the engine again from its model and graph: Engine(model, graph)"
        )

    def __repr__(self) -> str:
        return f"Engine({self.model!r}, {self.graph!r}, strategy={self.strategy!r})"


def refuse_other(where: str, name: str, value: object, kind: type) -> None:
    """Raises: UsageError unless the value is of that kind."""
    if isinstance(value, kind):
        return
    remedy = {"Model": "pass a livegnn.Model, or livegnn.from_pyg(module)"}.get(kind.__name__, "pass one")
    raise UsageError(f"[{where}] expected {name} as a livegnn {kind.__name__}, got {type(value).__name__}; {remedy}")


def coarser_for(headroom: float) -> int:
    """By how many bits units are coarser with a headroom than with 512. Raises: ValueInvalid."""
    if not isinstance(headroom, int | float) or not 1.0 <= headroom <= 2.0**20:
        raise ValueInvalid(f"[rescale] expected a headroom from 1 to 2^20, got {headroom!r}; choose one in that range")
    return math.ceil(math.log2(headroom / 512.0))


def coarsened(scales: list[list[int]], bits: int) -> list[list[int]]:
    """Exponents of units that are coarser by so many bits."""
    *rows, capacity = scales
    return [[exponent - bits for exponent in row] for row in rows] + [capacity]


def _check_int(name: str, value: object, least: int, most: float, span: str) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueInvalid(f"[Engine] expected {name} as an int {span}, got {value!r}; pass another")


def _choice(name: str, value: object, known: Collection[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueInvalid(f"[Engine] expected {name} to be one of {', '.join(known)}, got {value!r}; choose one")


def _check_scales(scales: list[list[int]] | None, program: Any) -> None:
    """Raises: WidthMismatch unless there is one row of exponents per aggregation, one exponent a column, and the
    capacity.
    """
    if not scales:
        return
    if not isinstance(scales, list) or not all(isinstance(row, list) for row in scales):
        raise WidthMismatch(
            f"[Engine] expected scales as lists of exponents, got {scales!r}; pass what engine.scales gave"
        )
    wanted = [*program.aggregation_widths(), 1]
    got = [len(row) for row in scales]
    if got != wanted:
        raise WidthMismatch(
            f"[Engine] expected scales of {wanted} exponents, got {got}; pass what engine.scales gave for this model"
        )
    for k, row in enumerate(scales):
        least, most = _CAPACITIES if k == len(scales) - 1 else _EXPONENTS
        for column, exponent in enumerate(row):
            if not least <= checks.whole_number("Engine", f"scales[{k}][{column}]", exponent) <= most:
                raise ValueInvalid(
                    f"[Engine] expected scales[{k}][{column}] from {least} to {most}, got {exponent}; pass what "
                    "engine.scales gave"
                )
