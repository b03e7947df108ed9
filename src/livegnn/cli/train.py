"""`livegnn train`: a temporal model trained continuously on a stream, from one TOML file.

Order: read the events -> warm start on the first part -> round after round on the rest (test, then train) -> table,
rounds.csv, curves.png, model.pt. What was done is in the folder after each epoch and round: a run that was ended, by
Ctrl-C or harder, goes on from there, and ends with the same numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

import livegnn as lg
from livegnn import datasets, files
from livegnn.cli.arguments import loaded
from livegnn.cli.console import Console
from livegnn.cli.events import KnownVertices, listed, refuse_unknown
from livegnn.cli.train_config import Config, DataConfig, read_config
from livegnn.errors import StoredStateInvalid, ValueInvalid
from livegnn.optional import need
from livegnn.stored import replaced
from livegnn.temporal.checkpoint import writable_folder

if TYPE_CHECKING:
    from livegnn.temporal.models import TemporalModel
    from livegnn.temporal.report import RoundReport

_ROWS = 12  # of the table at the end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn train`."""
    parser.add_argument("config", nargs="?", type=Path, metavar="FILE", help="a TOML file (default: TGN on Wikipedia)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="in place of what the file says"
    )
    parser.add_argument("--print-config", action="store_true", help="print the whole configuration and stop")
    parser.add_argument("--fresh", action="store_true", help="start anew where the folder holds an unfinished run")


@dataclass(frozen=True, eq=False)
class TrainingEvents:
    """Events in time order. attributes: (E, A) float32; features: (V, F) float32; ids: (V,) or None for row numbers."""

    title: str
    src: npt.NDArray[Any]
    dst: npt.NDArray[Any]
    time: npt.NDArray[np.int64]
    attributes: npt.NDArray[np.float32] | None
    features: npt.NDArray[np.float32]
    ids: npt.NDArray[Any] | None
    is_bipartite: bool = False

    def __len__(self) -> int:
        return len(self.src)

    def graph(self, count: int, undirected: bool) -> lg.Graph:
        """The graph of the first events, with every vertex."""
        attributes = None if self.attributes is None else self.attributes[:count]
        columns: dict[str, Any] = {"time": self.time[:count], "edge_attr": attributes, "ids": self.ids}
        return lg.Graph(self.features, self.src[:count], self.dst[:count], **columns, undirected=undirected)

    def batches(self, first: int, size: int) -> Iterator[lg.Updates]:
        """The other events, so many at a time."""
        for begin in range(first, len(self), size):
            part = slice(begin, begin + size)
            updates = lg.Updates()
            src, dst = listed(self.src[part]), listed(self.dst[part])
            attributes = None if self.attributes is None else self.attributes[part]
            updates.add_edges(src, dst, time=self.time[part], edge_attr=attributes)
            yield updates


def run(options: argparse.Namespace, console: Console) -> int:
    """Trains; 0, or 130 if it was interrupted."""
    config = read_config(options.config, options.set)
    if options.print_config:
        console.line(config.to_toml().rstrip())
        return 0
    folder = writable_folder("train", "output.folder", config.output.folder)  # before events are read, perhaps for long
    if options.fresh:
        (folder / "checkpoint.pt").unlink(missing_ok=True)
    _refuse_another(config, folder)
    stream = _read(config.data, console)
    warm = int(len(stream) * config.data.warm)
    if not 0 < warm < len(stream):
        raise ValueInvalid(
            f"[train] expected data.warm to leave events for the start and for the rounds, got {config.data.warm} of "
            f"{len(stream)} events; choose a share between"
        )
    undirected = stream.is_bipartite if config.data.undirected == "auto" else config.data.undirected
    graph = stream.graph(warm, undirected)
    model = _model(config, graph)
    console.heading("The stream")
    console.line(f"{stream.title}: {len(stream):,} events, {graph.vertex_count:,} vertices.")
    ways = "both ways along every edge" if undirected else "from src to dst"
    console.line(f"Warm start on {warm:,}, then rounds of {config.data.batch:,}. Messages flow {ways}.")
    with replaced(folder / "config.toml", "train", sealed=False) as file:
        file.write(config.to_toml().encode())
    bars = _Bars(console)
    with _trainer(config, model, graph, folder, bars) as trainer:
        if trainer.rounds or trainer.report.epochs:
            done = f"{trainer.rounds:,} rounds and {len(trainer.report.epochs):,} epochs"
            console.line(f"{folder} holds an unfinished run, which goes on after {done}; --fresh starts anew.")
        interrupted = _train(config, trainer, stream, warm, console, bars)
        _finish(config, trainer, folder, console)
    return 130 if interrupted else 0


def _refuse_another(config: Config, folder: Path) -> None:
    """Raises: StoredStateInvalid if the folder holds an unfinished run of something else."""
    if not (folder / "checkpoint.pt").exists() or not (folder / "config.toml").exists():
        return
    theirs = read_config(folder / "config.toml")
    differing = [
        name
        for name in ("data", "model", "sampler", "train", "cache")
        if getattr(theirs, name) != getattr(config, name)
    ]
    if differing:
        raise StoredStateInvalid(
            f"[train] expected {folder} to hold a run of this configuration, got one with another [{differing[0]}]; "
            "name another output.folder, or start anew with --fresh"
        )


def _trainer(config: Config, model: TemporalModel, graph: lg.Graph, folder: Path, bars: _Bars) -> lg.ContinuousTrainer:
    s, t, c = config.sampler, config.train, config.cache
    sampling = structs.asdict(s) | {
        "fanouts": list(s.fanouts),
        "window": s.window or None,
        "threads": s.threads or None,
    }
    cache: dict[str, Any] = {"policy": c.policy, "max_replace": c.max_replace, "device": t.device}
    vertices: Any = lg.FeatureCache(graph, capacity=c.vertices, **cache) if c.vertices else None
    edges: Any = lg.FeatureCache.of_edges(graph, capacity=c.edges, **cache) if c.edges else None
    names = ("batch_size", "epochs", "replay", "chunks", "learning_rate", "mrr_candidates", "device", "seed")
    return lg.ContinuousTrainer(
        model,
        graph,
        lg.TemporalSampler(graph, **sampling),
        vertex_features=vertices,
        edge_features=edges,
        memory_states_max=t.memory_states,
        folder=folder,
        tensorboard=config.output.tensorboard,
        progress=bars.show,
        **{name: getattr(t, name) for name in names},
    )


class _Bars:
    """A progress bar for each pass over events."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._what = ""
        self._bar: Any = None
        self._advance: Any = None

    def show(self, what: str, done: int, count: int) -> None:
        """The trainer's progress; without a terminal only of the warm start, whose passes are long."""
        if self._console.is_plain and not what.startswith("round 0"):
            return
        if what != self._what:
            self.end()
            self._what = what
            self._bar = self._console.progress(count, what, fades=not what.startswith("round 0"))
            self._advance = self._bar.__enter__()
        self._advance(done, f"{done:,} of {count:,} events")
        if done >= count:
            self.end()

    def end(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
        self._bar, self._what = None, ""


def _train(
    config: Config, trainer: lg.ContinuousTrainer, stream: TrainingEvents, warm: int, console: Console, bars: _Bars
) -> bool:
    """All rounds, or those before Ctrl-C; whether it was interrupted."""
    t, start = config.train, time.perf_counter()
    try:
        if not trainer.rounds:
            console.heading("The warm start")
            report = trainer.fit(t.warm_epochs, validation=t.validation, patience=t.patience or None)
            for epoch in trainer.report.epochs:
                tested = f", validation AP {epoch.ap:.4f}" if np.isfinite(epoch.ap) else ""
                console.line(f"epoch {epoch.epoch + 1}: loss {epoch.loss:.4f}{tested}")
            console.line(f"{report.events:,} events in {time.perf_counter() - start:.1f} s.")
        console.heading("Test, then train")
        for report in trainer.run(stream.batches(warm, config.data.batch)):
            bars.end()
            console.line(_line(report))
    except KeyboardInterrupt:
        bars.end()
        console.warn(f"Interrupted after {trainer.rounds:,} rounds; the same command goes on from there.")
        return True
    return False


def _line(report: RoundReport) -> str:
    scores = f"AP {report.ap:.4f}  AUC {report.auc:.4f}  MRR {report.mrr:.4f}"
    return f"round {report.round:>4}  version {report.version:>5}  {scores}  {sum(report.seconds.values()):.1f} s"


def _finish(config: Config, trainer: lg.ContinuousTrainer, folder: Path, console: Console) -> None:
    torch = need("torch", "train")
    with replaced(folder / "model.pt", "train", sealed=False) as file:
        torch.save({"config": config.model, "weights": trainer.model.state_dict()}, file)
    trainer.report.to_csv(folder / "rounds.csv")
    tested = [report for report in trainer.report.rounds if np.isfinite(report.ap)]
    if not tested:
        return
    trainer.report.plot(folder / "curves.png", f"{config.model['name']} on {config.data.events or config.data.dataset}")
    console.heading("The rounds")
    step = -(-len(tested) // _ROWS)
    parts = [tested[i : i + step] for i in range(0, len(tested), step)]
    rows = []
    for part in parts:
        names = str(part[0].round) if len(part) == 1 else f"{part[0].round} to {part[-1].round}"
        events = [report.events for report in part]
        means = [np.average([getattr(r, name) for r in part], weights=events) for name in ("ap", "auc", "mrr")]
        seconds = np.mean([sum(report.seconds.values()) for report in part])
        rows.append([names, f"{sum(events):,}", *(f"{mean:.4f}" for mean in means), f"{seconds:.2f}"])
    console.table(["rounds", "events", "AP", "AUC", "MRR", "s a round"], rows)
    total = trainer.report.seconds
    spent = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in sorted(total.items(), key=lambda p: -p[1]))
    console.line(f"Mean AP {trainer.report.mean_ap:.4f}, each event tested before it was trained on.")
    console.line(f"Seconds: {spent}.")
    console.line(f"{folder}: rounds.csv, curves.png, model.pt, checkpoint.pt, config.toml.")


# ---- events and models


def _model(config: Config, graph: lg.Graph) -> TemporalModel:
    need("torch", "train").manual_seed(config.train.seed)
    from livegnn.temporal.models import build

    try:
        return build({"x_width": graph.feature_width, "edge_width": graph.attr_width, **config.model})
    except TypeError as cause:
        raise ValueInvalid(f"[train] expected arguments of a model in [model], got {config.model} ({cause})") from cause


def _read(data: DataConfig, console: Console) -> TrainingEvents:
    stream = _from_file(data) if data.events else _from_dataset(data, console)
    order = np.argsort(stream.time, kind="stable")
    if data.limit:
        order = order[: data.limit]
    attributes = None if stream.attributes is None else stream.attributes[order]
    columns = (stream.src[order], stream.dst[order], stream.time[order], attributes)
    return TrainingEvents(stream.title, *columns, stream.features, stream.ids, stream.is_bipartite)


def _from_dataset(data: DataConfig, console: Console) -> TrainingEvents:
    if data.dataset not in datasets.names():
        known = ", ".join(datasets.names())
        raise ValueInvalid(f"[train] expected data.dataset among {known}, got {data.dataset!r}; choose one of them")
    load = None if data.generated else lambda: datasets.load(data.dataset, download=data.download)
    found = loaded(load, lambda: datasets.generate_like(data.dataset), console)
    if found.time is None:
        raise ValueInvalid(f"[train] expected a data set with times, got {data.dataset!r}; choose a dated one")
    features = found.features
    if features is None:
        features = np.zeros((found.vertex_count, 0), np.float32)
    title = f"{data.dataset}{' (generated)' if found.generated else ''}"
    return TrainingEvents(title, found.src, found.dst, found.time, None, features, None, found.is_bipartite)


def _from_file(data: DataConfig) -> TrainingEvents:
    table = files.read_table(Path(data.events))
    src, dst, times = table.ids(data.src), table.ids(data.dst), table.times(data.time)
    attributes = None
    if data.attributes:
        attributes = np.ascontiguousarray(np.stack([table.float32(name) for name in data.attributes], axis=1))
    if data.features:
        path, option = Path(data.features), "--set data.id="
        features, ids = files.read_features(path, data.id or None, id_option=option)
        known = KnownVertices.of(len(features), ids, path, option)
        for name, column in ((data.src, src), (data.dst, dst)):
            refuse_unknown(table, name, column, known)
    else:
        if src.dtype.kind != dst.dtype.kind:
            table.int64(data.dst if src.dtype.kind == "i" else data.src)  # raises, naming the first that is no number
        ids = np.unique(np.concatenate([src, dst]))
        features = np.zeros((len(ids), 0), np.float32)
    return TrainingEvents(data.events, src, dst, times, attributes, features, ids)
