"""SamplingWorker: one partition of the graph, its samples and who subscribes to them, step by step.

A state machine without input or output of its own: begin() takes a step, receive() what other sampling workers passed
on, and both return what is to be sent. Who carries messages, in whatever order and however often, is none of its
business: early ones wait, late and repeated ones are dropped.

Invariant: everything it returns is a function of its first state, the steps and their batches. docs/sampling-workers.md
has the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from livegnn import _native
from livegnn.errors import UpdateError, UsageError
from livegnn.sampling.cluster.messages import Batches, Checkpoint, CountChanges, Move, Push, PushArrays, Serve, Step
from livegnn.sampling.cluster.partition import COLUMNS, PartitionState, serving_flags, workers_in
from livegnn.sampling.cluster.spec import ClusterSpec


class SamplingWorker:
    """Keeps the samples of its vertices and sends serving workers what they need of them.

    Args:    spec: what the cluster agreed on.  worker, workers: its number, of how many.  state: where it starts: a
             part of split(start_state(...)), or what state() gave.  threads: for large batches.
    Raises:  UsageError for a state of another cluster.
    Source:  Helios, 4.2 and 5.3.
    """

    def __init__(
        self, spec: ClusterSpec, worker: int, workers: int, state: PartitionState, *, threads: int = 1
    ) -> None:
        if int(state.owners.max()) >= workers or not 0 <= worker < workers:
            raise UsageError(f"[SamplingWorker] expected a state cut for {workers} workers, got another; split it anew")
        self.spec, self.worker, self.workers = spec, worker, workers
        self.step, self.offset = state.step, state.offset
        self.owners, self.serving = state.owners, state.serving
        self._owned = (state.owners == worker).astype(np.uint8)
        self._next_edge_id, self._now = state.next_edge_id, state.now
        self._has_edge_data = spec.edge_columns.words > 0
        self._store = spec.new_store()
        state.fill(self._store)
        self._features = _native.FeatureRows(spec.feature_width, spec.feature_dtype)
        self._features.load(state.feature_vertices, state.features)
        self._reservoirs = _native.Reservoirs(
            self._store,
            spec.seed,
            threads,
            features=False,
            track_changes=True,
            edge_data=self._has_edge_data,
            owned=self._owned,
        )
        self._reservoirs.set_now(state.now)
        tables = spec.add_tables(self._reservoirs)
        parts = (self._store, self._reservoirs, self._features)
        self._subscriptions = _native.Subscriptions(*parts, tables, state.owners, worker, workers)
        self._subscriptions.restore(state.counts, state.serving)
        self._hops = self._subscriptions.hops
        self._running: Step | None = None
        self._hop = 0
        self._receivers: list[tuple[int, bool]] = []  # of this step's pushes, and whether they begin with it
        self._waiting: dict[tuple[int, int], dict[int, CountChanges]] = {}  # (step, hop) -> by sender
        self.moved: Move | None = None  # the step that ended this partition: take state() and cut it anew

    # ---- steps

    @property
    def is_idle(self) -> bool:
        """Whether it can begin the next step."""
        return self._running is None and self.moved is None

    def begin(self, step: Step, batches: Sequence[_native.UpdateBuffer] = ()) -> list[CountChanges | Push]:
        """Begins the next step; what to send.

        Args:    batches: those of a step Batches, in order, last - offset of them, with slots for ids; none if
                 earlier steps had them.
        Raises:  UsageError if it is not the next step, or its batches are not those that the graph accepted.
        """
        if not self.is_idle or step.step != self.step:
            raise UsageError(f"[begin] expected step {self.step} when idle, got {step.step}; finish the one before")
        if len(batches) != (max(0, step.last - self.offset) if isinstance(step, Batches) else 0):
            raise UsageError(
                f"[begin] expected the batches of the step, got {len(batches)}; read them from the history"
            )
        self._running, self._hop = step, 0
        self._receivers = [(j, False) for j in workers_in(self.serving)]
        if isinstance(step, Batches):
            self._apply(batches)
            self.offset = max(self.offset, step.last)
        elif isinstance(step, Serve):
            before = workers_in(self.serving)
            self._receivers += [(j, True) for j in workers_in(step.serving) if j not in before]
            self._subscriptions.route(step.serving)
            self.serving = step.serving
        else:
            return list(self._end(step))
        return self._advance()

    def receive(self, message: CountChanges) -> list[CountChanges | Push]:
        """Takes what another sampling worker passed on; what to send. Repeated and outdated messages do nothing."""
        if message.step < self.step or (message.step == self.step and message.hop < self._hop):
            return []
        self._waiting.setdefault((message.step, message.hop), {})[message.sender] = message
        return self._advance() if self._running is not None else []

    def needed_from(self) -> set[tuple[int, int, int]]:
        """(step, hop, sender) of the messages that wait for their turn: an inbox must still give these."""
        return {(step, hop, sender) for (step, hop), found in self._waiting.items() for sender in found}

    # ---- state

    def state(self) -> PartitionState:
        """The state between two steps. Raises: UsageError in the middle of one."""
        if self._running is not None:
            raise UsageError(f"[state] expected a worker between two steps, got one in step {self.step}; let it end")
        arrays = self._store.to_arrays()
        edges = {name: arrays[name] for name in COLUMNS if name in arrays}
        vertices, rows = self._features.arrays()
        counts = self._subscriptions.counts()
        maps = (self.owners, self.serving)
        numbers = (self._next_edge_id, self._now, self.step, self.offset)
        types = arrays.get("vertex_type", np.empty(0, np.int32))
        return PartitionState(arrays["live"], types, edges, vertices, rows, counts, *maps, *numbers)

    def check_invariants(self) -> None:
        """For tests: samples equal a scan of the partition. Raises: InvariantBroken."""
        self._store.check_invariants()
        self._reservoirs.check_invariants()

    def bytes(self) -> dict[str, int]:
        """Memory by part: graph, samples, features, subscriptions."""
        memory, samples = self._store.memory(), self._reservoirs.bytes()
        return {
            "graph": sum(memory.values()),
            "samples": sum(samples.values()),
            "features": self._features.bytes(),
            "subscriptions": self._subscriptions.bytes(),
        }

    # ---- inside

    def _apply(self, batches: Sequence[_native.UpdateBuffer]) -> None:
        whole = _native.UpdateBuffer()
        for batch in batches:
            whole.extend(batch)
        attributes = self.spec.edge_columns.attr_width > 0
        part, next_edge_id, latest = _native.partition(
            whole, self._owned, self.spec.policy, self._next_edge_id, attributes=attributes
        )
        self._reservoirs.set_now(latest)
        changed = self._features.follow(whole, self._owned)
        try:
            _native.apply_batch(self._store, [], [self._reservoirs, self._subscriptions], part)
        except UpdateError as cause:
            first = self.offset
            raise UsageError(
                f"[history, from offset {first}] expected batches that the graph accepted, got one that it refuses "
                f"({cause}); start from the state that the history began with"
            ) from cause
        self._subscriptions.features_changed(changed)
        self._next_edge_id, self._now = next_edge_id, max(self._now, latest)

    def _advance(self) -> list[CountChanges | Push]:
        """Goes on as far as what has arrived allows."""
        sent: list[CountChanges | Push] = []
        step = self._running
        while step is not None and self._running is not None:
            if self._hop > 0:
                arrived = self._waiting.get((self.step, self._hop), {})
                if len(arrived) < self.workers - 1:
                    break
                for sender in sorted(arrived):
                    self._subscriptions.take(arrived[sender].reasons)
                self._waiting.pop((self.step, self._hop), None)
            if self._hop == self._hops:
                self._subscriptions.finish()
                sent += self._end(step)
                break
            self._hop += 1
            for receiver, reasons in enumerate(self._subscriptions.advance()):
                if receiver != self.worker:
                    sent.append(CountChanges(self.worker, self.workers, receiver, self.step, self._hop, reasons))
        return sent

    def _end(self, step: Step) -> list[Push]:
        checkpoint = isinstance(step, Checkpoint)
        quiet = isinstance(step, Checkpoint | Move)
        pushes = []
        for receiver, fresh in self._receivers:
            widths = self.spec.feature_width, self.spec.edge_columns.words
            content = _nothing(*widths) if quiet else self._subscriptions.push(receiver, *widths)
            seeds = serving_flags(self.serving, receiver)
            where = (self.worker, self.workers, receiver, self.step, self.offset, step.stamp)
            pushes.append(Push(*where, fresh, checkpoint, seeds, content))
        if isinstance(step, Move):
            self.moved = step
        self._running, self._hop = None, 0
        self.step += 1
        return pushes


def _nothing(width: int, words: int) -> PushArrays:
    none, no_ids = np.empty(0, np.int32), np.empty(0, np.int64)
    no_edges, no_rows = (np.empty((0, columns), np.float32) for columns in (words, width))
    return none, none, none, none, no_ids, no_edges, none, none, none, no_rows, none
