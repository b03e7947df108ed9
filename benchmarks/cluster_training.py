"""Continuous training by Ray workers next to one process: events/s, epoch time, average precision, and what a killed
worker costs. docs/distributed-training.md has the table.

    python -m benchmarks.cluster_training [--tiny]

Every run has the same mini-batches, negatives and replay, on the first events of Wikipedia or of a stream like it. A
worker computes in one thread; so does one process, unless its row says otherwise. Exits with 1 where an average
precision differs from one process's by more than 0.01.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import livegnn as lg
from benchmarks.machine import description
from benchmarks.report import duration, rate
from livegnn import datasets
from livegnn.distributed import ContinuousClusterTrainer
from livegnn.temporal import ContinuousTrainer

AP_DIFFERENCE = 0.01
MODELS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "TGN": ({"name": "tgn", "memory_width": 64}, [10]),
    "TGAT": ({"name": "tgat", "hop_count": 2}, [10, 10]),
}


class Stream:
    """The first events: most are there when training begins, the rest comes in batches."""

    def __init__(self, events: int, batches: int) -> None:
        stream = datasets.load_or_generate("jodie_wikipedia")
        assert stream.time is not None
        ends = np.stack([stream.src[:events], stream.dst[:events]]).astype(np.int64)
        names, slots = np.unique(ends, return_inverse=True)
        self.src, self.dst = slots.reshape(2, -1)
        self.time = (stream.time[:events] // 60).astype(np.int64)
        self.attr = np.random.default_rng(1).standard_normal((events, 16), dtype=np.float32)
        self.x = np.random.default_rng(2).standard_normal((len(names), 16), dtype=np.float32)
        self.warm, self.size = events // 2, events // 2 // batches

    def graph(self) -> lg.Graph:
        """As it is when training begins."""
        known = slice(0, self.warm)
        columns = {"time": self.time[known], "edge_attr": self.attr[known]}
        return lg.Graph(self.x, self.src[known], self.dst[known], undirected=True, **columns)

    def batches(self) -> Iterator[lg.Updates]:
        """What comes afterwards."""
        for begin in range(self.warm, len(self.src), self.size):
            part, updates = slice(begin, begin + self.size), lg.Updates()
            updates.add_edges(self.src[part], self.dst[part], time=self.time[part], edge_attr=self.attr[part])
            yield updates


def model_of(config: dict[str, Any]) -> Any:
    """The same weights each time."""
    import torch

    from livegnn.temporal.models import build

    torch.manual_seed(1)
    return build({"x_width": 16, "edge_width": 16, "embed_width": 64, "time_width": 16, "dropout": 0.0, **config})


def row(name: str, workers: int, stream: Stream, killed: bool) -> tuple[list[str], float]:
    """One row of the table, and the mean average precision. workers: 0 for one process."""
    config, fanouts = MODELS[name]
    graph, model = stream.graph(), model_of(config)
    sampler = lg.TemporalSampler(graph, fanouts, threads=1)
    options: dict[str, Any] = {"batch_size": 1000, "epochs": 2, "replay": 0.25}
    began = time.perf_counter()
    trainer: ContinuousTrainer
    if workers:
        trainer = ContinuousClusterTrainer(model, graph, sampler, workers=workers, timeout_s=60, **options)
    else:
        trainer = ContinuousTrainer(model, graph, sampler, **options)
    with trainer:
        trainer.fit(1)  # workers start and load torch; the first pass of anything is slow
        start = time.perf_counter() - began
        rounds, repeated = [], 0.0
        for number, updates in enumerate(stream.batches()):
            if killed and number == 2:
                repeated = repeated_round(trainer, updates)
                continue
            begin = time.perf_counter()
            list(trainer.run([updates]))
            rounds.append(time.perf_counter() - begin)
        report = trainer.report
    usual = statistics.median(rounds)
    tested = report.rounds[-1]
    passes = tested.events + tested.replayed + options["epochs"] * tested.events  # the test, then the epochs
    epoch = usual * (tested.events + tested.replayed / options["epochs"]) / passes
    cells = [name, str(workers) if workers else "one process", duration(start), duration(usual), duration(epoch)]
    cells += [rate(passes / usual), f"{report.mean_ap:.4f}", duration(repeated) if killed else "-"]
    return cells, report.mean_ap


def repeated_round(trainer: ContinuousTrainer, updates: lg.Updates) -> float:
    """Seconds of a round in which a worker is killed, is replaced, and the round is done again."""
    assert isinstance(trainer, ContinuousClusterTrainer)
    begin, killer = time.perf_counter(), threading.Timer(0.1, os.kill, (trainer.worker_pids[-1], signal.SIGKILL))
    killer.start()
    list(trainer.run([updates]))
    seconds = time.perf_counter() - begin
    assert trainer.workers_replaced == 1
    return seconds


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 for other numbers than one process's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_training", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="few events: tries it out, measures nothing")
    options = parser.parse_args(arguments)
    import torch

    stream = Stream(2400 if options.tiny else 20_000, 5)
    torch.set_num_threads(1)
    print(f"# Continuous training by Ray workers\n\n`python -m benchmarks.cluster_training`. {description()}.\n")
    heads = ("model", "workers", "start and warm epoch", "round", "epoch", "events/s", "mean AP", "round with a kill")
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    wrong = 0
    for name in ["TGN"] if options.tiny else MODELS:
        alone = 0.0
        for workers in (0, 1, 2):
            cells, ap = row(name, workers, stream, killed=workers == 2)
            alone = alone or ap
            wrong += abs(ap - alone) > AP_DIFFERENCE
            print("| " + " | ".join(cells) + " |", flush=True)
    if wrong:
        print(f"\nWRONG: {wrong} rows differ from one process by more than {AP_DIFFERENCE}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
