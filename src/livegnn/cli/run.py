"""`livegnn run`: the user's own model and files. Reads everything, checks it, then plays the events batch by batch.

Output: one row for each (version, vertex) whose output changed; version 0 holds every vertex before the first event, so
the last row of a vertex is its prediction now. With --final, one row for each vertex at the end. The file is written
under another name and renamed when it is complete.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from livegnn.cli import files
from livegnn.cli.console import Console
from livegnn.cli.events import ColumnNames, EventRows, Ids, apply_rows, read_edges, read_events, refuse_disorder
from livegnn.cli.results import ResultFile
from livegnn.errors import DataMissing, ModelError, UsageError, ValueInvalid
from livegnn.optional import need


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn run`."""
    needed = parser.add_argument_group("files")
    needed.add_argument(
        "--model",
        type=Path,
        required=True,
        metavar="FILE",
        help="a trained PyG module, saved by torch.save(module, path)",
    )
    needed.add_argument(
        "--features", type=Path, required=True, metavar="FILE", help=".npy, .parquet or .csv: one row for each vertex"
    )
    needed.add_argument(
        "--events", type=Path, required=True, metavar="FILE", help=".parquet or .csv: one row for each update, in order"
    )
    needed.add_argument(
        "--edges", type=Path, metavar="FILE", help="edges that are there before the first event (default: none)"
    )
    needed.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help=".parquet or .csv to write predictions to"
    )
    columns = parser.add_argument_group("columns")
    columns.add_argument("--src-column", default="src", metavar="NAME", help="default: src")
    columns.add_argument("--dst-column", default="dst", metavar="NAME", help="default: dst")
    columns.add_argument(
        "--op-column", metavar="NAME", help="add, remove or set_weight (default: op if there, else all are add)"
    )
    columns.add_argument("--time-column", metavar="NAME", help="checked to be in order; not given to the model")
    columns.add_argument("--weight-column", metavar="NAME", help="edge weights, for models that read them")
    columns.add_argument(
        "--id-column", metavar="NAME", help="vertex ids in the features file (default: ids are row numbers from 0)"
    )
    how = parser.add_argument_group("how")
    how.add_argument("--batch", type=int, default=100, metavar="N", help="events in a batch (default: %(default)s)")
    how.add_argument("--undirected", action="store_true", help="messages flow both ways along every edge")
    how.add_argument("--final", action="store_true", help="write the predictions after the last event only")
    how.add_argument("--outputs", action="store_true", help="also write the module's output, columns y0, y1, ...")
    how.add_argument("--verify", action="store_true", help="compare the live state with a run from scratch at the end")
    how.add_argument("--trust-pickle", action="store_true", help="load a .pt that holds code; only for files you trust")


def run(options: argparse.Namespace, console: Console) -> int:
    """Plays the user's events through an engine; 0, or 130 if it was interrupted."""
    if options.batch < 1:
        raise ValueInvalid(f"[run] expected --batch of at least 1, got {options.batch}; choose another")
    inputs = (options.model, options.features, options.events, options.edges)
    target = ResultFile(options.out, ("version", "vertex", "prediction"), inputs)
    features, ids = files.read_features(options.features, options.id_column)
    known = np.arange(len(features), dtype=np.int64) if ids is None else ids
    columns = ColumnNames(options.src_column, options.dst_column, options.op_column, options.weight_column)
    events = read_events(options.events, columns, known, options.features)
    if options.time_column is not None:
        refuse_disorder(events, options.time_column)
    model = read_model(options.model, options.trust_pickle)
    engine = _start(options, model, features, ids, columns)
    console.line(f"{len(features):,} vertices, {len(events):,} events, batches of {options.batch:,}.")
    with target as results:
        interrupted = _play(options, console, engine, events, known, results)
        if options.verify and not interrupted:
            engine.verify()
            console.good("verify: the live state equals a run from scratch.")
        elif options.verify:
            console.warn("verify was left out.")
        rows = results.finish()
    console.line(f"{rows:,} predictions: {options.out}")
    return 130 if interrupted else 0


def read_model(path: Path, trust_pickle: bool) -> Any:
    """The livegnn model of a file. Raises: DataMissing, UsageError (a pickle that is not trusted), ModelError."""
    import livegnn as lg

    if not path.is_file():
        raise DataMissing(f"[{path}] expected a model file, got nothing there; check the path")
    if not trust_pickle:
        raise UsageError(
            f"[{path}] expected --trust-pickle with a .pt module, got none: unpickling executes code"
            " stored in the file; pass --trust-pickle if you trust where it comes from"
        )
    torch = need("torch", "pyg")
    need("torch_geometric", "pyg")
    sys.path.insert(0, str(Path.cwd()))  # so that a class from a file next to the model is found
    try:
        module = torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ImportError) as cause:
        raise ModelError(
            f"[{path}] expected classes that can be imported from the working directory, got: {cause};"
            " define the module's class in an importable file and save it again"
        ) from cause
    except Exception as cause:  # torch.load raises whatever the pickle raises
        raise ModelError(
            f"[{path}] expected a file written by torch.save(module, path), got: {cause}; save it again"
        ) from cause
    finally:
        sys.path.pop(0)
    if not isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        raise ModelError(f"[{path}] expected a whole torch.nn.Module, got {kind}; save the module, not its state_dict")
    return lg.from_pyg(module.eval())


def _start(
    options: argparse.Namespace, model: Any, features: npt.NDArray[np.float32], ids: Ids | None, columns: ColumnNames
) -> Any:
    import livegnn as lg

    known = np.arange(len(features), dtype=np.int64) if ids is None else ids
    src: Ids = np.zeros(0, dtype=known.dtype)
    dst: Ids = src
    weight = None if options.weight_column is None else np.zeros(0, dtype=np.float32)
    if options.edges is not None:
        edges = read_edges(options.edges, columns, known, options.features)
        src, dst, weight = edges.src, edges.dst, edges.weight
    labels = None if ids is None else (ids if ids.dtype.kind == "i" else ids.tolist())
    if src.dtype.kind != "i":
        src, dst = src.tolist(), dst.tolist()
    graph = lg.Graph(features, src, dst, weight=weight, ids=labels, undirected=options.undirected)
    return lg.Engine(model, graph)


def _rows(version: int, ids: Ids, engine: Any, outputs: bool) -> dict[str, npt.NDArray[Any]]:
    """The engine's present predictions of `ids`, and its outputs if asked for, as columns."""
    if len(ids) == 0:
        return {"vertex": ids}
    asked = ids if ids.dtype.kind == "i" else ids.tolist()
    columns: dict[str, npt.NDArray[Any]] = {
        "version": np.full(len(ids), version, dtype=np.int64),
        "vertex": ids,
        "prediction": np.asarray(engine.predict(asked)),
    }
    if outputs:
        rows = np.asarray(engine.embeddings(asked))
        columns |= {f"y{i}": np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])}
    return columns


def _play(
    options: argparse.Namespace, console: Console, engine: Any, events: EventRows, known: Ids, results: ResultFile
) -> bool:
    """Applies all batches; True if Ctrl-C ended it after a whole batch."""
    seconds: list[float] = []
    interrupted = False
    if not options.final:
        results.add(_rows(0, known, engine, options.outputs))
    try:
        with console.progress(len(events), "events") as advance:
            for begin in range(0, len(events), options.batch):
                end = min(begin + options.batch, len(events))
                clock = time.perf_counter()
                changes = apply_rows(engine.apply, events, begin, end)
                seconds.append(time.perf_counter() - clock)
                if not options.final:
                    results.add(_rows(len(seconds), np.asarray(changes.vertices), engine, options.outputs))
                advance(end, f"{options.batch * len(seconds) / sum(seconds):,.0f} updates/s")
    except KeyboardInterrupt:
        interrupted = True
        console.warn(f"Interrupted after {len(seconds):,} batches; the file holds what they gave.")
    if options.final:
        results.add(_rows(len(seconds), known, engine, options.outputs))
    if seconds:
        p50, p99 = np.percentile(np.asarray(seconds) * 1e3, [50, 99])
        console.line(f"{len(seconds):,} batches: p50 {p50:.2f} ms, p99 {p99:.2f} ms.")
    return interrupted
