"""`livegnn run`: the sources and sinks of a configuration (run_pipes.py), or a model and files without one.

Of files it reads everything, checks it, then plays the events batch by batch.

Output: one row for each (version, vertex) whose output changed; version 0 holds every vertex before the first event, so
the last row of a vertex is its prediction now. With --final, one row for each vertex at the end. The file is written
under another name and renamed when it is complete.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import livegnn as lg
from livegnn.cli.arguments import add_columns, positive
from livegnn.cli.console import Console
from livegnn.cli.events import Ids, UserFiles, apply_rows, play, read_files, refuse_disorder, rows_named
from livegnn.cli.results import ResultFile, ResultRows
from livegnn.errors import ColumnMissing, DataMissing, ModelError, UsageError
from livegnn.files import listed
from livegnn.optional import need


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn run`."""
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="with [[source]]: docs/pipes.md")
    parser.add_argument("--data", type=Path, metavar="DIR", help="log and snapshots (default: data next to CONFIG)")
    parser.add_argument("--once", action="store_true", help="end where the sources have nothing left")
    needed = parser.add_argument_group("files, without CONFIG")
    needed.add_argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="a trained PyG module, saved by torch.save(module, path)",
    )
    needed.add_argument("--features", type=Path, metavar="FILE", help=".npy, .parquet or .csv: one row for each vertex")
    needed.add_argument(
        "--events", type=Path, metavar="FILE", help=".parquet or .csv: one row for each update, in order"
    )
    needed.add_argument(
        "--edges", type=Path, metavar="FILE", help="edges that are there before the first event (default: none)"
    )
    needed.add_argument("--out", type=Path, metavar="FILE", help=".parquet or .csv to write predictions to")
    add_columns(
        parser,
        time="checked to be in order; not given to the model",
        weight="edge weights, for models that read them",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--batch", type=positive, default=100, metavar="N", help="events in a batch (default: %(default)s)"
    )
    how.add_argument("--undirected", action="store_true", help="messages flow both ways along every edge")
    how.add_argument("--final", action="store_true", help="write the predictions after the last event only")
    how.add_argument("--outputs", action="store_true", help="also write the module's output, columns y0, y1, ...")
    how.add_argument("--verify", action="store_true", help="compare the live state with a run from scratch at the end")
    how.add_argument("--trust-pickle", action="store_true", help="load a .pt that holds code; only for files you trust")


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs a configuration, or plays the user's events through an engine; 0, or 130 if it was interrupted."""
    _refuse_mixed(options)
    if options.config is not None:
        from livegnn.cli.run_pipes import run_pipes

        return run_pipes(options, console)
    inputs = (options.model, options.features, options.events, options.edges)
    target = ResultFile(options.out, ("version", "vertex", "prediction"), inputs)
    given = read_files(options, times=False)
    if options.time_column is not None:
        refuse_disorder(given.events, options.time_column)
    engine = _engine(read_model(options.model, options.trust_pickle), given, options.undirected)
    console.line(f"{len(given.features):,} vertices, {len(given.events):,} events, batches of {options.batch:,}.")
    with target.written() as results:
        interrupted = _play(options, console, engine, given, results)
        if options.verify and not interrupted:
            engine.verify()
            console.good("verify: the live state equals a run from scratch.")
        elif options.verify:
            console.warn("verify was left out.")
    console.line(f"{results.count:,} predictions: {options.out}")
    return 130 if interrupted else 0


def _refuse_mixed(options: argparse.Namespace) -> None:
    """Raises: UsageError for a configuration and files, or for too few files."""
    files = {f"--{name}": getattr(options, name) for name in ("model", "features", "events", "out")}
    if options.config is None:
        missing = [name for name, given in files.items() if given is None]
        if missing:
            raise UsageError(f"[run] expected CONFIG, or {', '.join(files)}, got no {missing[0]}; name it")
        if options.once or options.data is not None:
            raise UsageError("[run] expected --once and --data with CONFIG, got none; leave them out, or name it")
    elif given := [name for name, value in (files | {"--edges": options.edges}).items() if value is not None]:
        raise UsageError(f"[run] expected CONFIG alone, which names its files, got {given[0]}; leave one out")


def _engine(model: lg.Model, given: UserFiles, undirected: bool) -> lg.Engine:
    """The engine before the first event; a refusal names the row of the edges, or the option that is missing."""
    graph = given.graph(undirected)
    if model.weights == "required" and not graph.has_weight:
        raise ColumnMissing("[--model] expected edge weights, which it reads, got none; name their --weight-column")
    if given.edges is None:
        return lg.Engine(model, graph)
    with rows_named(given.edges, 0, len(given.edges), "the graph"):
        return lg.Engine(model, graph)


def read_model(path: Path, trust_pickle: bool) -> Any:
    """The livegnn model of a file. Raises: DataMissing, UsageError (a pickle that is not trusted), ModelError."""
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


def _rows(version: int, ids: Ids, engine: Any, outputs: bool) -> dict[str, npt.NDArray[Any]]:
    """The engine's present predictions of `ids`, and its outputs if asked for, as columns."""
    if len(ids) == 0:
        return {"vertex": ids}
    asked = listed(ids)
    columns: dict[str, npt.NDArray[Any]] = {
        "version": np.full(len(ids), version, dtype=np.int64),
        "vertex": ids,
        "prediction": np.asarray(engine.predict(asked)),
    }
    if outputs:
        rows = np.asarray(engine.embeddings(asked))
        columns |= {f"y{i}": np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])}
    return columns


def _play(options: argparse.Namespace, console: Console, engine: Any, given: UserFiles, results: ResultRows) -> bool:
    """Applies all batches; True if Ctrl-C ended it after a whole batch."""

    def apply(begin: int, end: int) -> Any:
        return apply_rows(engine.apply, given.events, begin, end)

    def write(version: int, ids: Ids) -> None:
        results.add(_rows(version, ids, engine, options.outputs))

    def after(version: int, changes: Any) -> None:
        if not options.final:
            write(version, np.asarray(changes.vertices))

    if not options.final:
        write(0, given.known)
    played = play(console, len(given.events), options.batch, apply, after)
    done = len(played.seconds)
    if played.interrupted:
        console.warn(f"Interrupted after {done:,} batches; the file holds what they gave.")
    if options.final:
        write(done, given.known)
    if done:
        p50, p99 = np.percentile(np.asarray(played.seconds) * 1e3, [50, 99])
        console.line(f"{done:,} batches: p50 {p50:.2f} ms, p99 {p99:.2f} ms.")
    return played.interrupted
