"""TemporalEngine: answers about vertices at a time, from the memory and the sampled past, while events stream in.

Invariants. Under the graph's lock, the memory has observed exactly the events of the graph's version. The memory is a
function of the weights and of the batches; docs/training.md.
"""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from livegnn import _native
from livegnn.errors import (
    EdgeOffloaded,
    InvariantBroken,
    ModelMismatch,
    StoredStateInvalid,
    UsageError,
    ValueInvalid,
    WidthMismatch,
)
from livegnn.extras import need
from livegnn.graph import Graph, Updates
from livegnn.graph.checks import AnyArray
from livegnn.temporal.checkpoint import read_checkpoint, write_checkpoint
from livegnn.temporal.events import Arrived, Events
from livegnn.temporal.link import LinkPass
from livegnn.temporal.loading import Fetches, InputLoader, SlotSampler
from livegnn.types import Float32Array, Int64Array

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.models.interface import TemporalModel

__all__ = ["TemporalEngine", "WhatNext"]

_ROOTS_MAX = 4096  # roots of one forward pass


class _Batch(NamedTuple):
    """What a batch brought, and the version that it made."""

    version: int
    arrived: Arrived


class WhatNext(NamedTuple):
    """The most probable destinations of some sources, best first: (n, k) ids and (n, k) float32 probabilities."""

    dst: AnyArray
    probability: Float32Array


class TemporalEngine:
    """A temporal model that stays live on a graph.

    Args:    model: copied; training it further changes nothing here until swap().  sampler: TemporalSampler of the
             graph, of the model's hops.  vertex_features, edge_features: FeatureCache, or None to read the graph.
             memory_step: events of a batch that the memory observes at once.  device: of model and inputs.
    Raises:  UsageError, WidthMismatch, ValueInvalid.
    Cost:    a prediction follows the fan-outs, a batch its events; at the start the memory observes all edges.
             Source: Rossi et al. 2021 (TGN), section 3; the live half that GNNFlow leaves open.
    """

    native = None  # no exact engine
    needs_all_edges = False  # the memory has observed the old ones, and samples say what they need

    def __init__(
        self,
        model: TemporalModel,
        graph: Graph,
        sampler: SlotSampler,
        *,
        vertex_features: Fetches | None = None,
        edge_features: Fetches | None = None,
        memory_step: int = 200,
        device: torch.device | str = "cpu",
    ) -> None:
        if isinstance(memory_step, bool) or not isinstance(memory_step, int) or memory_step < 1:
            raise ValueInvalid(f"[TemporalEngine] expected memory_step of at least 1, got {memory_step!r}")
        if not graph.has_time:
            raise UsageError("[TemporalEngine] expected a graph whose edges have times, got one without; give time=")
        self._torch: Any = need("torch", "train")
        self.graph, self.memory_step = graph, memory_step
        self._loader = InputLoader(
            graph, sampler, vertex_features=vertex_features, edge_features=edge_features, device=device
        )
        self._loader.check(model)
        self._since: list[_Batch] = []  # batches that a model still in training may not have seen
        self._failed: BaseException | None = None
        with graph._writing("TemporalEngine"):
            self.follower = _native.Arrivals(graph._store)
            self._pass = self._made(model)
            self._relive(self._pass)
            graph._attach(self)

    # ---- writing

    def apply(self, updates: Updates) -> int:
        """graph.apply; returns the version. The memory has observed the batch's events when it returns."""
        version: int = self.graph._apply_for(self, updates)
        return version

    def _published(self, change: Any, version: int) -> int:
        src, dst, time, ids, removed, vertices = self.follower.take()
        arrived = Arrived(Events(src, dst, time, ids), removed, vertices)
        memory = self._pass.model.memory
        if memory is None or self._failed is not None:
            return version
        try:
            self._observe(self._pass, [_Batch(version, arrived)])
        except BaseException as error:
            self._failed = error
            raise
        self._since.append(_Batch(version, arrived))
        return version

    def swap(self, model: TemporalModel, *, memory: dict[str, torch.Tensor] | None = None, upto: int = -1) -> None:
        """Answers by another model of the same kind from now on. Readers wait for the last few events only.

        Args:    memory: the state of its memory at version `upto` of the graph; the batches since are observed again.
                 None: the memory is made from all edges of the graph.
        Raises:  ModelMismatch; then the old model stays.
        """
        new = self._made(model)
        if new.model.memory is None or memory is None:
            with self.graph._writing("swap"):
                self._relive(new)
                self._pass, self._since, self._failed = new, [], None
            return
        new.model.memory.load_state(memory)
        done = upto
        while True:  # the bulk of what came meanwhile is observed without the lock
            with self.graph._lock:
                waiting = [batch for batch in self._since if batch.version > done]
                if sum(len(batch.arrived.events) for batch in waiting) <= self.memory_step:
                    self._observe(new, waiting)
                    new.model.memory.grow(self.graph.slot_count)
                    self._since = [batch for batch in self._since if batch.version > upto]
                    self._pass, self._failed = new, None
                    return
            self._observe(new, waiting)
            done = waiting[-1].version

    def close(self) -> None:
        """Follows the graph no more."""
        self.graph._detach(self)

    # ---- reading

    def embeddings(self, vertices: object, time: object) -> Float32Array:
        """(k, out_width) float32: the model's rows of vertices at times, one time for all or one for each.

        Raises:  VertexUnknown; DtypeInvalid, WidthMismatch for times.
        """
        with self.graph._lock:
            slots = self.graph.to_slots(vertices)
            times = _times("embeddings", time, len(slots))
            return self._numpy(self._embed(slots, times))

    def predict(self, src: object, dst: object, time: object) -> Float32Array:
        """(k,) float32 probabilities of links src[i] -> dst[i] at a time. Raises: as embeddings."""
        with self.graph._lock, self._torch.no_grad():
            sources, destinations = self.graph.to_slots(src), self.graph.to_slots(dst)
            if len(sources) != len(destinations):
                raise WidthMismatch(
                    f"[predict] expected as many dst as src, got {len(destinations)} and {len(sources)}; give pairs"
                )
            times = _times("predict", time, len(sources))
            h = self._embed(np.concatenate([sources, destinations]), np.tile(times, 2))
            logits = self._pass.model.score(h[: len(sources)], h[len(sources) :])
            return self._numpy(self._torch.sigmoid(logits))

    def next(self, src: object, time: object, *, candidates: object = None, k: int = 10) -> WhatNext:
        """The k most probable destinations of each source at a time, among candidates (default: all vertices that an
        edge leads to).

        Raises:  as embeddings; ValueInvalid for k.
        Cost:    embeds every candidate once per distinct time.
        """
        with self.graph._lock, self._torch.no_grad():
            sources = self.graph.to_slots(src)
            slots = self._destinations() if candidates is None else self.graph.to_slots(candidates)
            if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= len(slots):
                raise ValueInvalid(f"[next] expected k from 1 to the {len(slots)} candidates, got {k!r}; ask for fewer")
            times = _times("next", time, len(sources))
            best = np.zeros((len(sources), k), np.int64)
            probability = np.zeros((len(sources), k), np.float32)
            for at in np.unique(times):
                rows = np.flatnonzero(times == at)
                h_dst = self._embed(slots, np.full(len(slots), at))
                h_src = self._embed(sources[rows], times[rows])
                for row, h in zip(rows, h_src, strict=True):
                    logits = self._pass.model.score(h.expand(len(slots), -1), h_dst)
                    top = self._torch.topk(logits, k)
                    best[row] = slots[top.indices.cpu().numpy()]
                    probability[row] = self._numpy(self._torch.sigmoid(top.values))
            names = self.graph.to_external(best.reshape(-1)).reshape(best.shape)
            return WhatNext(names, probability)

    @property
    def version(self) -> int:
        """Of the graph, and so of every answer."""
        return self.graph.version

    # ---- saving

    def state_digest(self) -> int:
        """64-bit hash of weights and memory, bit for bit."""
        with self.graph._lock:
            hashed = hashlib.blake2b(digest_size=8)
            for name, value in sorted(self._state().items()):
                hashed.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
                hashed.update(value.detach().cpu().contiguous().numpy().tobytes())
            return int.from_bytes(hashed.digest(), "little")

    def save(self, path: str | Path) -> None:
        """Writes weights and memory, and the version and digest of the graph that they belong to."""
        with self.graph._lock:
            state = {"version": self.graph.version, "graph": self.graph.digest(), "state": self._state()}
            state["memory_step"] = self.memory_step
            write_checkpoint(Path(path), state)

    @classmethod
    def load(
        cls, path: str | Path, model: TemporalModel, graph: Graph, sampler: SlotSampler, **options: Any
    ) -> TemporalEngine:
        """The engine that save() wrote, on the graph as it was then; a log replays what came since.

        Args:    model: of the saved model's kind and widths; its weights are replaced.  options: as TemporalEngine's.
        Raises:  StoredStateInvalid if the file or the graph is another; ModelMismatch.
        """
        stored = read_checkpoint(Path(path), "TemporalEngine.load")
        if (stored["version"], stored["graph"]) != (graph.version, graph.digest()):
            raise StoredStateInvalid(
                f"[TemporalEngine.load] expected the graph of version {stored['version']} that was saved with it, got "
                f"version {graph.version}{' with other content' if graph.version == stored['version'] else ''}; "
                "bring the graph to that version first"
            )
        weights = {n.removeprefix("weights."): v for n, v in stored["state"].items() if n.startswith("weights.")}
        memory = {n.removeprefix("memory."): v for n, v in stored["state"].items() if n.startswith("memory.")}
        model = copy.deepcopy(model)
        _load_weights(model, weights)
        engine = cls(model, graph, sampler, memory_step=stored["memory_step"], **options)
        if model.memory is not None:
            with graph._lock:
                engine._pass.model.memory.load_state(memory)  # type: ignore[union-attr]
        return engine

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
            _load_weights(mine, model.state_dict())
        else:
            mine = copy.deepcopy(model).to(self._loader.device)
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
            of.observe(Events.of(self.graph).in_time_order())

    def _observe(self, of: LinkPass, batches: list[_Batch]) -> None:
        memory = of.model.memory
        if memory is None:
            return
        memory.grow(self.graph.slot_count)
        for _, arrived in batches:
            if len(arrived.vertices):
                memory.forget(self._torch.from_numpy(arrived.vertices).to(self._loader.device))
            of.observe(arrived.events.in_time_order())

    def _embed(self, slots: Int64Array, times: Int64Array) -> torch.Tensor:
        if self._failed is not None:
            raise InvariantBroken(
                "[TemporalEngine] expected a memory of every event, got one that failed to observe a batch; swap() the "
                "model to make it anew"
            ) from self._failed
        with self._torch.no_grad():
            parts = []
            for first in range(0, max(len(slots), 1), _ROOTS_MAX):
                part = slice(first, first + _ROOTS_MAX)
                parts.append(self._pass.model.embed(self._loader.load(slots[part], times[part])))
            rows: torch.Tensor = self._torch.cat(parts)
            return rows

    def _destinations(self) -> Int64Array:
        return np.unique(self.graph._store.edges()["dst"]).astype(np.int64)

    def _numpy(self, tensor: torch.Tensor) -> Float32Array:
        values: Float32Array = tensor.detach().float().cpu().numpy()
        return values


def _load_weights(model: TemporalModel, weights: dict[str, torch.Tensor]) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as cause:
        raise ModelMismatch(
            f"[TemporalEngine] expected weights of a {type(model).__name__} of the same widths, got others ({cause}); "
            "make a new engine for it"
        ) from cause


def _times(where: str, time: object, count: int) -> Int64Array:
    times = np.asarray(time)
    if times.dtype.kind not in "iu":
        raise ValueInvalid(f"[{where}] expected whole times (int64), got {times.dtype}; they are in the graph's unit")
    times = times.astype(np.int64)
    if times.ndim == 0:
        return np.full(count, int(times), np.int64)
    if times.shape != (count,):
        raise WidthMismatch(
            f"[{where}] expected one time or {count}, got shape {times.shape}; give one for each vertex"
        )
    return times
