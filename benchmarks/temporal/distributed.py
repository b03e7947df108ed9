"""Distributed training (GNNFlow, section 4.4): is the work spread evenly, is the accuracy that of one process, and what
do the exchanges cost?

Workers are processes of this machine, one thread each, joined by gloo. Where they are more than its cores, their
seconds say nothing of a cluster; the spread of processor time and the scores do.
"""

from __future__ import annotations

import os
import time

import numpy as np

import livegnn as lg
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate
from livegnn import datasets
from livegnn.distributed import Layout, Partition, train
from livegnn.temporal import TemporalSampler

WORKERS = (1, 2, 4)
AP_DIFFERENCE = 0.01


def run(options: Options, report: Report) -> None:
    """TGN and TGAT on the first events of Wikipedia, or of a stream like it."""
    graph = _graph(1000 if options.tiny else 10_000)
    cores = len(os.sched_getaffinity(0))
    report.progress(f"{graph}, {cores} cores")
    _balance(graph, report)
    for name, fanouts in (("tgn", [10]), ("tgat", [10, 10])):
        _training(name, fanouts, graph, options, report)


def _graph(events: int) -> lg.Graph:
    stream = datasets.load_or_generate("jodie_wikipedia")
    assert stream.time is not None
    ends = np.stack([stream.src[:events], stream.dst[:events]]).astype(np.int64)
    names, slots = np.unique(ends, return_inverse=True)
    src, dst = slots.reshape(2, -1)
    minutes = (stream.time[:events] // 60).astype(np.int64)
    attr = np.random.default_rng(1).standard_normal((len(src), 16), dtype=np.float32)
    x = np.random.default_rng(2).standard_normal((len(names), 16), dtype=np.float32)
    return lg.Graph(x, src, dst, time=minutes, edge_attr=attr, undirected=True)


def _balance(graph: lg.Graph, report: Report) -> None:
    report.heading("Parts of the graph by hash: edges of the largest over the mean")
    report.columns(("parts", "edges", "largest / mean"))
    for workers in (2, 4, 8):
        layout = Layout(1, workers)
        edges = np.array([Partition.of(graph, layout, rank).graph.edge_count for rank in range(workers)])
        report.row([workers, f"{graph.edge_count:,}", f"{edges.max() / edges.mean():.3f}"])


def _training(name: str, fanouts: list[int], graph: lg.Graph, options: Options, report: Report) -> None:
    import torch

    from livegnn.temporal.models import build

    config = {"name": name, "x_width": 16, "edge_width": 16, "embed_width": 32, "time_width": 16, "dropout": 0.0}
    config |= {"memory_width": 32} if name == "tgn" else {"hop_count": 2}
    report.heading(f"{name.upper()}, fan-outs {fanouts}, mini-batches of 600 events in all")
    report.columns(
        ("workers", "events/s", "AP", "sampling CV (paper < 0.06)", "targets served CV", "sample", "fetch", "memory")
    )
    alone = 0.0
    for workers in WORKERS[:2] if options.tiny else WORKERS:
        torch.manual_seed(1)
        model = build(config)
        sampler = TemporalSampler(graph, fanouts)
        epochs = 1 if options.tiny else 2
        began = time.perf_counter()
        done = train(model, graph, sampler, workers=workers, epochs=epochs, batch_size=600, validation=0.15)
        seconds = time.perf_counter() - began
        ap = done.epochs[-1].ap
        alone = alone or ap
        phases = [duration(done.seconds.get(phase, 0.0)) for phase in ("sample", "fetch", "memory")]
        busy = sum(done.seconds.values())
        events = rate(epochs * graph.edge_count / busy)
        report.row([workers, events, f"{ap:.4f}", f"{done.sampling_cv:.3f}", f"{done.served_cv:.3f}", *phases])
        report.progress(f"{name}, {workers} workers: {duration(seconds)} with the start of the processes")
        if abs(ap - alone) > AP_DIFFERENCE:
            report.fail(
                f"[temporal_distributed] expected {name}'s AP within {AP_DIFFERENCE} of {alone:.4f}, got {ap:.4f}"
            )
