"""TemporalEngine: answers about vertices at a time, from the memory and the sampled past, while events stream in.

Invariants. Under the graph's lock, the memory has observed exactly the events of the graph's version. The memory is a
function of the weights and of the batches; docs/training.md.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from livegnn import _native
from livegnn.errors import (
    ColumnMissing,
    EdgeOffloaded,
    InvariantBroken,
    ModelMismatch,
    StoredStateInvalid,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph import Graph, Updates
from livegnn.graph.checks import time_array, time_unit, whole_number
from livegnn.graph.consumers import Switch, Switching
from livegnn.graph.schema import TypeName
from livegnn.graph.updates import VertexType
from livegnn.optional import need
from livegnn.stored import file_path
from livegnn.temporal.checkpoint import fitting, read_checkpoint, write_checkpoint
from livegnn.temporal.checks import check_whole, checked_parts
from livegnn.temporal.edge_types import EdgeTypes, edge_codes
from livegnn.temporal.events import Events, arrived
from livegnn.temporal.link import LinkPass, cut
from livegnn.temporal.loading import EdgeColumn, Fetches, InputLoader, SlotSampler, VertexFeatures
from livegnn.temporal.switches import switch_of, switched
from livegnn.temporal.view import TemporalView
from livegnn.types import AnyArray, Float32Array, Int64Array

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.models.interface import TemporalModel

_ROOTS_MAX = 4096  # roots of one forward pass
_CATCH_UPS_MAX = 4  # of a swap without the lock; then it takes it


class _Batch(NamedTuple):
    """What a batch brought, in order of (time, edge id), and the version that it made."""

    version: int
    events: Events
    vertices: Int64Array  # slots that lost their vertex
    edge_x: torch.Tensor  # attributes of the events' edges, as they came


class WhatNext(NamedTuple):
    """The most probable destinations of some sources, best first: (n, k) ids and (n, k) float32 probabilities."""

    dst: AnyArray
    probability: Float32Array


class TemporalEngine(Switching):
    """A temporal model that stays live on a graph.

    Args:    model: copied; training it further changes nothing here until swap().  sampler: TemporalSampler of the
             graph, of the model's hops.  vertex_features, edge_features, edge_columns: as InputLoader.
             edge_types: edges of these types are events, as for the trainer; all unless given.
             memory_step: events of a batch that the memory observes at once.  device: of model and inputs.
             memory: its state at the graph's version; None: made from all edges of the graph.
             events_kept_max: events kept for swap(memory=, upto=), the newest.
             name: with one, a swap on a graph with a log is an entry of the log, and a version.  about: what such an
             entry says of the engine, as JSON has it.
    Raises:  UsageError, WidthMismatch, ValueInvalid.
    Cost:    a prediction follows the fan-outs, a batch its events; at the start the memory observes all edges.
             Source: Rossi et al. 2021 (TGN), section 3; the live half that GNNFlow leaves open.
    """

    needs_all_edges = False  # the memory has observed the old ones, and samples say what they need

    def __init__(
        self,
        model: TemporalModel,
        graph: Graph,
        sampler: SlotSampler,
        *,
        vertex_features: VertexFeatures = None,
        edge_features: Fetches | None = None,
        edge_columns: Sequence[EdgeColumn] = ("attr",),
        edge_types: EdgeTypes | None = None,
        memory_step: int = 200,
        memory: dict[str, torch.Tensor] | None = None,
        events_kept_max: int = 1_000_000,
        device: torch.device | str = "cpu",
        name: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> None:
        device = checked_parts("TemporalEngine", model, graph, sampler, device)
        check_whole("TemporalEngine", 1, memory_step=memory_step, events_kept_max=events_kept_max)
        if not graph.has_time:
            raise UsageError("[TemporalEngine] expected a graph whose edges have times, got one without; give time=")
        self._torch: Any = need("torch", "train")
        self.graph, self.memory_step, self.events_kept_max = graph, memory_step, events_kept_max
        self.name, self._about = name, dict(about or {})
        self._loader = InputLoader(
            graph,
            sampler,
            vertex_features=vertex_features,
            edge_features=edge_features,
            edge_columns=edge_columns,
            device=device,
        )
        self.edge_types = edge_codes("TemporalEngine", graph, edge_types)
        self.edge_columns = self._loader.edge_columns
        self._loader.check(model)
        self._since: list[_Batch] = []  # batches that a model still in training may not have seen
        self._views: list[TemporalView] = []  # of answers under way; changed under the graph's lock
        self._failed: BaseException | None = None
        self._closed = False
        self._pass = self._made(model)
        with graph.host.writing("TemporalEngine"):
            self._since_version = graph.version  # every batch after this version is in _since
            self.follower = _native.Arrivals(graph.host.store, self.edge_types)
            if memory is None or self._pass.model.memory is None:
                self._relive(self._pass)
            else:
                self._pass.model.memory.load_state(memory)
                self._settle(self._pass)
            graph.host.attach(self)

    # ---- writing

    def apply(self, updates: Updates) -> int:
        """graph.apply; returns the version. The memory has observed the batch's events when it returns.

        Raises:  as graph.apply; UsageError after close().
        """
        self._refuse_closed()
        version: int = self.graph.host.apply(updates, self)[1]
        return version

    def published(self, change: Any, version: int) -> int:
        """The memory observes the batch's events."""
        events, _, vertices = arrived(self.graph, self.follower)
        if self._pass.model.memory is None:
            return version
        try:
            events = events.in_time_order()
            batch = _Batch(version, events, vertices, self._loader.edge_rows(events))
            for view in self._views:
                if view.model is self._pass.model:
                    view.keep(np.concatenate([events.src, events.dst, vertices]))
            self._since.append(batch)
            if self._failed is None:
                self._observe(self._pass, [batch])
        except BaseException as error:
            if not self._since or self._since[-1].version != version:
                self._since, self._since_version = [], version  # what this batch brought is not known
            self._failed = error
            raise
        kept = sum(len(one.events) for one in self._since)
        while kept > self.events_kept_max:
            oldest = self._since.pop(0)
            kept, self._since_version = kept - len(oldest.events), oldest.version
        return version

    def swap(self, model: TemporalModel, *, memory: dict[str, torch.Tensor] | None = None, upto: int = -1) -> None:
        """Answers by another model of the same kind from now on. Readers wait for the last few events only.

        Args:    memory: the state of its memory at version `upto` of the graph; the batches since are observed again.
                 Where it is None, or those batches are not known any more, the memory is made from all edges of the
                 graph.
        Raises:  ModelMismatch; ValueInvalid for weights that are not finite; UsageError for a version that is not there
                 yet, or after close(); EdgeOffloaded. Then the old model stays.
        """
        self._refuse_closed()
        new, upto = self._made(model), whole_number("swap", "upto", upto)
        if upto > self.graph.version:
            raise UsageError(
                f"[swap] expected the memory of version {self.graph.version} or before, got that of {upto}; apply the "
                "batches up to there first"
            )
        if new.model.memory is None or memory is None or not self._replay(new, memory, upto):
            with self.graph.host.writing("swap"):
                self._relive(new)
                self._take(new, self.graph.version)

    def _replay(self, new: LinkPass, memory: dict[str, torch.Tensor], upto: int) -> bool:
        """Loads the memory of version upto, observes what came since, and switches; False if that is not known."""
        assert new.model.memory is not None
        new.model.memory.load_state(memory)
        done = upto
        for attempt in range(_CATCH_UPS_MAX + 1):  # the bulk of what came meanwhile is observed without the lock
            with self.graph.host.writing("swap") if self._is_recorded else self.graph.host.lock:
                if done < self._since_version:
                    return False
                waiting = [batch for batch in self._since if batch.version > done]
                few = sum(len(batch.events) for batch in waiting) <= self.memory_step
                if few or attempt == _CATCH_UPS_MAX:
                    self._observe(new, waiting)
                    self._settle(new)
                    self._take(new, upto, given=True)
                    return True
            self._observe(new, waiting)
            done = waiting[-1].version
        raise InvariantBroken("a swap that did not end")

    @property
    def _is_recorded(self) -> bool:
        return bool(self.name and self.graph.host.recorders)

    def _take(self, new: LinkPass, upto: int, *, given: bool = False) -> None:
        """Switches; where there is a log, as an entry of it, with the memory where it was given. The caller holds the
        graph's lock, and writing() where there is a log.
        """
        if not self._is_recorded:
            self._switch(new, upto)
            return
        memory = new.model.memory.state() if given and new.model.memory is not None else None
        switch = switch_of(self.name, self._about, new.model.state_dict(), memory)
        self.graph.host.switch(self, None, switch, lambda: self._switch(new, upto))

    def redo(self, switch: Switch) -> None:
        """Takes the weights, and where it is there the memory, of a recorded swap. Raises: as swap."""
        weights, memory = switched(switch)
        model = copy.deepcopy(self._pass.model)
        _load_weights(model, weights)
        new = self._made(model)
        with self.graph.host.writing("replay"):
            if memory is None or new.model.memory is None:
                self._relive(new)
            else:
                new.model.memory.load_state(memory)
                self._settle(new)
            self.graph.host.switch(self, None, switch, lambda: self._switch(new, self.graph.version))

    def _switch(self, new: LinkPass, upto: int) -> None:
        """The caller holds the graph's lock. Batches up to that version are not asked for again."""
        self._pass, self._failed = new, None
        if upto > self._since_version:
            self._since = [batch for batch in self._since if batch.version > upto]
            self._since_version = upto

    def close(self) -> None:
        """Follows the graph no more, and so answers no more. A second call does no harm."""
        with self.graph.host.lock:
            self._closed = True
            self.graph.host.detach(self)

    # ---- reading

    def embeddings(self, vertices: object, time: object, *, vertex_type: VertexType | None = None) -> Float32Array:
        """(k, out_width) float32: the model's rows of vertices at times, one time for all or one for each.

        vertex_type: whose ids they are, where vertices have types.
        Raises:  VertexUnknown; DtypeInvalid, WidthMismatch for times.
        """
        with ExitStack() as reading:
            reading.enter_context(self.graph.host.lock)
            slots = self._live("embeddings", "vertices", vertices, vertex_type)
            times = _times("embeddings", self.graph, time, len(slots))
            with self._viewed(len(slots)) as view:
                return self._numpy(self._embed(view, slots, times, reading))

    def predict(
        self, src: object, dst: object, time: object, *, edge_type: TypeName | int | None = None
    ) -> Float32Array:
        """(k,) float32 probabilities of links src[i] -> dst[i] at a time. Raises: as embeddings.

        edge_type: whose ends' types have the ids, where vertices have types; unless given, the only type of events.
        """
        with ExitStack() as reading, self._torch.no_grad():
            reading.enter_context(self.graph.host.lock)
            of = self._pass
            src_type, dst_type = self._end_types("predict", edge_type)
            sources = self._live("predict", "src", src, src_type)
            destinations = self._live("predict", "dst", dst, dst_type)
            if len(sources) != len(destinations):
                raise WidthMismatch(
                    f"[predict] expected as many dst as src, got {len(destinations)} and {len(sources)}; give pairs"
                )
            times = _times("predict", self.graph, time, len(sources))
            roots = np.concatenate([sources, destinations])
            with self._viewed(len(roots)) as view:
                h = self._embed(view, roots, np.tile(times, 2), reading)
            logits = of.score(sources, h[: len(sources)], destinations, h[len(sources) :])
            return self._numpy(self._torch.sigmoid(logits))

    def next(
        self,
        src: object,
        time: object,
        *,
        candidates: object = None,
        k: int = 10,
        edge_type: TypeName | int | None = None,
    ) -> WhatNext:
        """The k most probable destinations of each source at a time, among candidates (default: all vertices that an
        edge leads to, of the type that edge_type leads to; in an undirected graph all that have an edge), each of which
        counts once. edge_type: as for predict().

        Raises:  as embeddings; ValueInvalid, DtypeInvalid for k.
        Cost:    embeds every candidate once per distinct time.
        """
        with ExitStack() as reading, self._torch.no_grad():
            reading.enter_context(self.graph.host.lock)
            src_type, dst_type = self._end_types("next", edge_type)
            of, sources = self._pass, self._live("next", "src", src, src_type)
            if candidates is None:
                slots = self._destinations(dst_type)
            else:
                slots = np.unique(self._live("next", "candidates", candidates, dst_type))
            if not 1 <= (k := whole_number("next", "k", k)) <= len(slots):
                raise ValueInvalid(f"[next] expected k from 1 to the {len(slots)} candidates, got {k}; ask for fewer")
            times = _times("next", self.graph, time, len(sources))
            best = np.zeros((len(sources), k), np.int64)
            probability = np.zeros((len(sources), k), np.float32)
            moments = np.unique(times)
            with self._viewed(len(sources) + len(moments) * len(slots)) as view:
                reads_on = None if view.source is None else reading  # not pinned, all is read under the lock
                for at in moments:
                    rows = np.flatnonzero(times == at)
                    h_dst = self._embed(view, slots, np.full(len(slots), at), reads_on)
                    h_src = self._embed(view, sources[rows], times[rows], reads_on)
                    for row, h in zip(rows, h_src, strict=True):
                        logits = of.score(sources[row].repeat(len(slots)), h.expand(len(slots), -1), slots, h_dst)
                        top = self._torch.topk(logits, k)
                        best[row] = slots[top.indices.cpu().numpy()]
                        probability[row] = self._numpy(self._torch.sigmoid(top.values))
                named = self.graph if view.source is None else view.source
                names = named.to_external(best.reshape(-1)).reshape(best.shape)
            return WhatNext(names, probability)

    @property
    def version(self) -> int:
        """Of the graph, and so of every answer."""
        return self.graph.version

    # ---- saving

    def state_digest(self) -> int:
        """64-bit hash of weights and memory, bit for bit."""
        with self.graph.host.lock:
            hashed = hashlib.blake2b(digest_size=8)
            for name, value in sorted(self._state().items()):
                hashed.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
                hashed.update(value.detach().cpu().contiguous().numpy().tobytes())
            return int.from_bytes(hashed.digest(), "little")

    def state(self) -> dict[str, torch.Tensor]:
        """Copies of the tensors of weights and memory; names begin with "weights." and "memory.".

        Raises:  InvariantBroken if the memory failed to observe a batch.
        """
        with self.graph.host.lock:
            self._refuse_failed()
            return {name: value.detach().clone() for name, value in self._state().items()}

    def model_copy(self) -> TemporalModel:
        """A copy of the model that answers now, to train on; its memory is a copy, too."""
        with self.graph.host.lock:
            return copy.deepcopy(self._pass.model)

    def save(self, path: str | Path) -> None:
        """Writes weights and memory, and the version and digest of the graph that they belong to.

        Raises:  InvariantBroken if the memory failed to observe a batch; UsageError, StorageFailed.
        """
        with self.graph.host.lock:
            self._refuse_failed()
            about = {"kind": "engine", "version": self.graph.version, "graph": str(self.graph.digest())}
            about["config"] = str(getattr(self._pass.model, "config", ""))
            state = {**about, "memory_step": self.memory_step, "state": self._state()}
            write_checkpoint(file_path("TemporalEngine.save", path), state, "TemporalEngine.save")

    @classmethod
    def load(
        cls, path: str | Path, model: TemporalModel, graph: Graph, sampler: SlotSampler, **options: Any
    ) -> TemporalEngine:
        """The engine that save() wrote, on the graph as it was then; a log replays what came since.

        Args:    model: of the saved model's kind and widths; its weights are replaced.  options: as TemporalEngine's.
        Raises:  StoredStateInvalid if the file or the graph is another; ModelMismatch; FileMissing, StorageFailed.
        """
        where = "TemporalEngine.load"
        file = file_path(where, path)
        stored = read_checkpoint(file, where)
        if stored.get("kind") != "engine":
            raise StoredStateInvalid(
                f"[{where}] expected a file of TemporalEngine.save, got another kind in {path}; give that"
            )
        with fitting(file, where):
            of, step, config, state = stored["version"], stored["memory_step"], stored["config"], stored["state"]
            if (of, stored["graph"]) != (graph.version, str(graph.digest())):
                raise StoredStateInvalid(
                    f"[{where}] expected the graph of version {of} that {path} belongs to, got version {graph.version}"
                    f"{' with other content' if graph.version == of else ''}; bring the graph to that version first"
                )
            weights = {n.removeprefix("weights."): v for n, v in state.items() if n.startswith("weights.")}
            memory = {n.removeprefix("memory."): v for n, v in state.items() if n.startswith("memory.")}
        _check_config(where, config, model)
        model = copy.deepcopy(model)
        _load_weights(model, weights)
        return cls(model, graph, sampler, memory_step=step, memory=memory, **options)

    def _state(self) -> dict[str, Any]:
        model = self._pass.model
        state = {f"weights.{name}": value for name, value in model.state_dict().items()}
        if model.memory is not None:
            state.update({f"memory.{name}": value for name, value in model.memory.state().items()})
        return state

    # ---- inside

    def _made(self, model: TemporalModel) -> LinkPass:
        """A copy of the model, ready to be asked."""
        if hasattr(self, "_pass"):
            mine = copy.deepcopy(self._pass.model)
            if type(mine) is not type(model):
                raise ModelMismatch(
                    f"[swap] expected a {type(mine).__name__}, got a {type(model).__name__}; make a new engine for it"
                )
            _check_config("swap", str(getattr(mine, "config", "")), model)
            _check_weights(self._torch, model)
            _load_weights(mine, model.state_dict())
        else:
            _check_weights(self._torch, model)
            mine = copy.deepcopy(model).to(self._loader.device)
        _check_weights(self._torch, mine)  # as they are used: of a wider type some may have become infinite
        mine.eval()
        return LinkPass(mine, self._loader, batch_size=self.memory_step)

    def _relive(self, of: LinkPass) -> None:
        """Gives it the memory of all edges that are there. Raises: EdgeOffloaded where some lie in files."""
        if of.model.memory is not None:
            if self.graph.offloaded.count:
                raise EdgeOffloaded(
                    "[TemporalEngine] expected every edge in memory, to observe it, got "
                    f"{self.graph.offloaded.count} in files ({', '.join(self.graph.offloaded.paths)}); reload them, or "
                    "load() a saved engine"
                )
            of.model.memory.reset(self.graph.slot_count)
            of.observe(Events.of(self.graph, self.edge_types).in_time_order())
            self._settle(of)

    def _observe(self, of: LinkPass, batches: list[_Batch]) -> None:
        memory = of.model.memory
        if memory is None:
            return
        memory.grow(self.graph.slot_count)
        for batch in batches:
            if len(batch.vertices):
                memory.forget(self._torch.from_numpy(batch.vertices).to(self._loader.device))
            of.observe(batch.events, edge_x=batch.edge_x)

    def _settle(self, of: LinkPass) -> None:
        """Messages that wait are taken in: they would be by the first answer."""
        memory: Any = of.model.memory
        memory.grow(self.graph.slot_count)
        memory.read(self._torch.zeros(0, dtype=self._torch.int64, device=self._loader.device))

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UsageError(
                "[TemporalEngine] expected an open engine, got one that was closed and follows its graph no more; make "
                "a new one"
            )

    def _refuse_failed(self) -> None:
        self._refuse_closed()
        if self._failed is not None:
            raise InvariantBroken(
                "[TemporalEngine] expected a memory of every event, got one that failed to observe a batch; swap() the "
                "model to make it anew"
            ) from self._failed

    @contextmanager
    def _viewed(self, roots: int) -> Iterator[TemporalView]:
        """What an answer reads; the caller holds the graph's lock. Of many roots a version that stays while the lock
        is let go between forward passes, unless this thread's what_if block or on_change callback holds it anyway.
        """
        pinned = getattr(self._loader.sampler, "pin", None)
        with ExitStack() as held:
            source = None
            if roots > _ROOTS_MAX and pinned is not None and not (self.graph.host.in_what_if or self.graph.host.busy):
                source = held.enter_context(pinned())
            view = TemporalView(self._pass.model, source, self.graph.slot_count, self._loader.device)
            if source is not None:
                self._views.append(view)
                held.callback(self._unview, view)
            yield view

    def _unview(self, view: TemporalView) -> None:
        with self.graph.host.lock:
            self._views = [other for other in self._views if other is not view]

    def _embed(
        self, view: TemporalView, slots: Int64Array, times: Int64Array, reading: ExitStack | None = None
    ) -> torch.Tensor:
        """Rows by the model of a view. `reading`, which holds the graph's lock, is closed before roots go through a
        model that looks at no memory by itself: before the first of them where the view is pinned, else the last.
        """
        parts = []
        with self._torch.no_grad():
            for part in cut(max(len(slots), 1), _ROOTS_MAX):
                with ExitStack() as piece:
                    piece.enter_context(self.graph.host.lock)
                    self._refuse_failed()
                    inputs = view.recalled(self._loader.load(slots[part], times[part], view.source))
                    if view.model.memory is None or all(each.memory is not None for each in inputs):
                        piece.close()
                        if reading is not None and (view.source is not None or part.stop >= len(slots)):
                            reading.close()
                    parts.append(view.model.embed(inputs))
            rows: torch.Tensor = self._torch.cat(parts)
            return rows

    def _end_types(self, where: str, edge_type: TypeName | int | None) -> tuple[str | None, str | None]:
        """Vertex types of a link's source and destination; None in a graph without."""
        schema = self.graph.host.schema
        if not schema.has_types:
            if edge_type is not None:
                raise ColumnMissing(
                    f"[{where}] expected no edge_type, of a graph of one kind of vertex, got {edge_type!r}; leave it "
                    "out"
                )
            return None, None
        if edge_type is None and len(self.edge_types or schema.edge_types) == 1:
            edge_type = (self.edge_types or [0])[0]
        src_type, _, dst_type = schema.edge_types[schema.edge_code(where, edge_type)]
        return src_type, dst_type

    def _live(self, where: str, name: str, ids: object, vertex_type: VertexType | None) -> Int64Array:
        """Slots of live vertices. The caller holds the graph's lock."""
        slots = self.graph.host.ids.slots(where, ids, vertex_type, name=name)
        try:
            self.graph.host.store.in_degree(slots)  # of live vertices alone
        except VertexUnknown:
            row = int(np.argmin(self.graph.is_live(slots)))
            raise VertexUnknown(
                f"[{where}] expected live vertices in {name}, got {slots[row]} at row {row}; add the vertex first"
            ) from None
        return slots

    def _destinations(self, vertex_type: str | None) -> Int64Array:
        slots = self.graph.host.live_slots("next", vertex_type)
        return slots[self.graph.host.store.in_degree(slots) > 0].astype(np.int64)

    def _numpy(self, tensor: torch.Tensor) -> Float32Array:
        values: Float32Array = tensor.detach().float().cpu().numpy()
        return values


def _check_config(where: str, wanted: str, model: TemporalModel) -> None:
    got = str(getattr(model, "config", ""))
    if got != wanted:
        raise ModelMismatch(f"[{where}] expected a model of {wanted}, got {got}; make a new engine for it")


def _load_weights(model: TemporalModel, weights: dict[str, torch.Tensor]) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as cause:
        raise ModelMismatch(
            f"[TemporalEngine] expected weights of a {type(model).__name__} of the same widths, got others ({cause}); "
            "make a new engine for it"
        ) from cause


def _times(where: str, graph: Graph, time: object, count: int) -> Int64Array:
    """One for each of `count` vertices, in the graph's unit. The caller holds the graph's lock."""
    if np.ndim(time) == 0:  # type: ignore[arg-type, unused-ignore]
        return np.full(count, graph.host.edge_time(where, "time", time), np.int64)
    times = time_array(where, "time", time)
    graph.host.same_unit(where, time_unit(time))
    if times.shape != (count,):
        raise WidthMismatch(
            f"[{where}] expected one time or {count}, got shape {times.shape}; give one for each vertex"
        )
    return times


def _check_weights(torch: Any, model: TemporalModel) -> None:
    for name, value in model.state_dict().items():
        if value.is_meta:
            raise ValueInvalid(
                f"[TemporalEngine] expected weights with numbers, got {name} on device meta, which has none; load the "
                "trained weights"
            )
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            got = f"NaN or infinity in {name}"
            raise ValueInvalid(f"[TemporalEngine] expected finite weights, got {got}; train the model again")
