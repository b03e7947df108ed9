"""What works in the processes of a contest: an engine at the snapshot of a workload, which plays a run of batches and
goes back to the snapshot."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.engine.live import Live, timed
from benchmarks.engine.networks import network
from benchmarks.engine.runs import Played, Run, Source, ids_compared, restoring
from benchmarks.engine.stream import Workload
from benchmarks.peers.pyg_full import PygFull
from benchmarks.peers.rc import RecomputeAffected
from benchmarks.peers.ripple_numpy import RippleNumpy
from benchmarks.peers.ripple_torch import RippleTorch

WARM_UP_SHARE = 0.2  # of a turn's limit, for the batches that are not counted
PEERS: dict[str, Any] = {"rc": RecomputeAffected, "torch": RippleTorch, "numpy": RippleNumpy}


class Facts(NamedTuple):
    """livegnn's own: latencies of apply at batch 1 (Updates built before the clock, and inside it), seconds of a full
    run, bytes."""

    apply: npt.NDArray[np.float64]
    singly: npt.NDArray[np.float64]
    full_run_s: float
    state_bytes: int
    graph_bytes: int


class LivePlayer:
    """livegnn."""

    def __init__(self, source: Source, kind: str, hidden: tuple[int, ...], threads: int) -> None:
        self.work = source()
        self.ids = ids_compared(self.work)
        widths = [self.work.features.shape[1], *hidden, self.work.classes]
        self.live = Live(self.work, network(kind, widths), threads=threads)

    def play(self, run: Run, limit_s: float) -> Played:
        """The run, and back to the snapshot."""
        return play(self.live, self.live.prepare, self.work, self.ids, run, limit_s)

    def facts(self, count: int) -> Facts:
        """Over `count` batches of 1, twice."""
        stream = self.work.stream
        batches = list(stream.batches(0, 1, 2 * count))
        apply = timed(self.live.apply, [self.live.prepare(batch) for batch in batches[:count]])
        singly = timed(self.live.apply_singly, batches[count:])
        self.live.apply(self.live.prepare(restoring(self.work, 0, 2 * count)))
        full = float(np.median(timed(lambda _: self.live.engine.recompute(), range(3))))
        return Facts(apply[1:], singly[1:], full, self.live.state_bytes(), sum(self.live.graph.memory().values()))

    def verify(self) -> None:
        """Raises: livegnn.StateMismatch if the state differs from a run from scratch."""
        self.live.engine.verify()


class PeerPlayer:
    """A peer that takes batches one by one."""

    def __init__(self, name: str, source: Source, kind: str, hidden: tuple[int, ...], threads: int) -> None:
        torch.set_num_threads(threads)
        self.work = source()
        self.ids = ids_compared(self.work)
        widths = [self.work.features.shape[1], *hidden, self.work.classes]
        self.peer = PEERS[name](self.work, kind, network(kind, widths))

    def play(self, run: Run, limit_s: float) -> Played:
        """The run, and back to the snapshot."""
        return play(self.peer, lambda batch: batch, self.work, self.ids, run, limit_s)


class PygPlayer:
    """PyG, whose cost does not depend on the batch: the last batch of a run is timed, the others edit the graph."""

    def __init__(self, source: Source, kind: str, hidden: tuple[int, ...], threads: int) -> None:
        torch.set_num_threads(threads)
        self.work = source()
        self.ids = ids_compared(self.work)
        widths = [self.work.features.shape[1], *hidden, self.work.classes]
        self.pyg = PygFull(self.work, kind, network(kind, widths))

    def play(self, run: Run, limit_s: float) -> Played:
        """One batch of the run, whatever the limit, and back to the snapshot."""
        stream, last = self.work.stream, run.stop - run.size
        if last > run.start:
            self.pyg.edit(stream.batch(run.start, last))
        seconds = timed(self.pyg.apply, [stream.batch(last, run.stop)])
        rows = self.pyg.output(self.ids)
        self.pyg.edit(restoring(self.work, run.start, run.stop))
        return Played(seconds, rows)

    def full_run_s(self) -> float:
        """Median of three."""
        return float(np.median(timed(lambda _: self.pyg.run(), range(3))))


def play(engine: Any, prepare: Any, work: Workload, ids: npt.NDArray[np.int64], run: Run, limit_s: float) -> Played:
    """Batches one by one; those for which no time is left are applied as one batch, outside the clock."""
    stream, size = work.stream, run.size
    warm_up, counted = ([prepare(batch) for batch in batches] for batches in run.batches(work))

    def applied(items: list[Any], start: int, stop: int, seconds_max: float) -> npt.NDArray[np.float64]:
        seconds = timed(engine.apply, items, limit_s=seconds_max)
        done = start + size * len(seconds)
        if done < stop:
            engine.apply(prepare(stream.batch(done, stop)))
        return seconds

    applied(warm_up, run.start, run.middle, WARM_UP_SHARE * limit_s)
    seconds = applied(counted, run.middle, run.stop, limit_s)
    rows = engine.output(ids)
    engine.apply(prepare(restoring(work, run.start, run.stop)))
    return Played(seconds, rows)
