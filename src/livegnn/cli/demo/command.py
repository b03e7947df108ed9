"""`livegnn demo`: a fraud model kept live on a real dated graph, against the ways people serve such models today."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from livegnn import datasets
from livegnn.cli.arguments import from_zero, loaded, picture, positive
from livegnn.cli.console import Console
from livegnn.cli.demo import experiment as st
from livegnn.errors import DataMissing
from livegnn.optional import need

if TYPE_CHECKING:
    from livegnn.cli.demo.replay import Played, Player

DATASETS = ("ethereum_phishing", "bitcoin_otc")
_TITLES = {
    "ethereum_phishing": "Phishing accounts on Ethereum: a GNN kept live while payments stream in",
    "bitcoin_otc": "Distrust between Bitcoin traders: a GNN kept live while ratings stream in",
}
_QUALITY = {"labels": "AUC, known accounts seen so far", "next_event": "AUC, distrust in the next ratings"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn demo`."""
    parser.add_argument(
        "--dataset", choices=DATASETS, help="which dated graph (default: the first that is at hand, of these)"
    )
    parser.add_argument(
        "--batch", type=positive, default=50, metavar="N", help="events in a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=from_zero, default=0, metavar="N", help="of training and of the split (default: 0)"
    )
    parser.add_argument(
        "--out", type=picture, default=Path("out/demo.png"), metavar="PNG", help="picture (default: %(default)s)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small generated stream, in seconds: to try the machinery"
    )
    parser.add_argument(
        "--generated", action="store_true", help="a generated stream even where the real one is at hand"
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs the demo; 0, or 130 if it was interrupted."""
    # Read when PyTorch loads: its threads then sleep while they wait, and a busy machine does not slow PyG tenfold.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for module, extra in (("torch", "pyg"), ("torch_geometric", "pyg"), ("matplotlib", "cli")):
        need(module, extra)
    from livegnn.cli.demo import replay as play

    clock = time.perf_counter()
    story = st.prepare(stream_of(options, console), options.seed)
    introduce(story, console)
    epochs = 30 if options.quick else 60
    trained = st.train(story, epochs=epochs)
    console.line(
        f"Trained a two-layer PyG GraphSAGE on the first {story.start:,} events in {trained.seconds:.1f} s"
        f" ({trained.example_count:,} examples)."
    )
    few = story.task == "labels"
    play_options = play.PlayOptions(
        batch=options.batch,
        checkpoints=10 if options.quick else 20 if few else 60,
        retrainings=2 if options.quick else 5,
        epochs=epochs,
        singles=min(20 * options.batch, 1000, (story.event_count - story.start) // 10),
    )
    player = play.Player(story, trained, play_options)
    played = _stream_rest(player, story, console)
    pooled = 1 if few else 8
    report(story, played, pooled, console)
    if not played.interrupted:
        _verify(player, console)
    if played.truths:
        _draw(story, played, pooled, options.out, console)
    console.line(f"{time.perf_counter() - clock:.0f} s in all.")
    return 130 if played.interrupted else 0


def stream_of(options: argparse.Namespace, console: Console) -> datasets.EventStream:
    """The stream that the options name."""
    wanted = DATASETS if options.dataset is None else (options.dataset,)

    def generate() -> datasets.EventStream:
        return datasets.generate_like(wanted[0], options.seed, scale=0.05 if options.quick else 1.0)

    generated = options.quick or options.generated
    return loaded(None if generated else lambda: _real(wanted, console), generate, console)


def _real(wanted: Sequence[str], console: Console) -> datasets.EventStream:
    """The first that is at hand, else the first that can be downloaded. Raises: DataMissing."""
    for name in wanted:
        try:
            return datasets.load(name)
        except DataMissing as why:
            missing = why
    for name in wanted:
        if name in datasets.downloadable():
            console.line(f"No data at hand: downloading {name}, which PyG knows.")
            return datasets.load(name, download=True)
    raise missing


def introduce(story: st.Story, console: Console) -> None:
    """Says what the story is about."""
    stream = story.stream
    console.heading(_TITLES[stream.name])
    console.line(stream.description + ".")
    rest = story.event_count - story.start
    console.line(
        f"{story.event_count:,} events between {stream.vertex_count:,} vertices; the first {story.start:,} train,"
        f" the other {rest:,} are streamed."
    )
    if story.task == "labels":
        judged = story.judge_ids
        share = float(story.truth[judged].mean())
        console.line(f"Judged on {len(judged)} known accounts that training never sees ({share:.0%} fraudulent).")
    else:
        share = float(story.truth[story.start :].mean())
        console.line(f"Every prediction is judged by the ratings that follow it ({share:.0%} of them distrust).")


def _stream_rest(player: Player, story: st.Story, console: Console) -> Played:
    console.heading("Streaming")
    with console.progress(story.event_count - story.start, "events") as advance:
        return player.run(lambda played: advance(played.event - story.start, _pace(played)))


def _pace(played: Played) -> str:
    recent = slice(-50, None)
    seconds, updates = sum(played.batches.seconds[recent]), sum(played.batches.updates[recent])
    return (
        f"{updates / seconds:,.0f} updates/s, {1e3 * float(np.median(played.batches.seconds[recent])):.2f} ms a batch"
    )


def way_labels(story: st.Story, played: Played) -> dict[str, str]:
    """Words for every way of serving predictions."""
    share = 100 // played.options.refreshes
    labels = {"live": "live (livegnn, exact)", "periodic": f"periodic (every {share}%)"}
    labels |= {f"sampled {k}": f"sampled, fan-out {k}" for k in played.options.fanouts}
    labels["retrained"] = "retrained (upper bound)" if story.task == "labels" else "retrained"
    return labels


def report(story: st.Story, played: Played, pooled: int, console: Console) -> None:
    """Writes speed and quality of a pass."""
    if played.interrupted:
        done = played.event - story.start
        console.warn(
            f"Interrupted after {done:,} of {story.event_count - story.start:,} events; this is what was seen."
        )
    if played.batches.seconds and played.full_seconds:
        _report_speed(played, console)
    if played.truths:
        _report_quality(story, played, pooled, console)


def _report_speed(played: Played, console: Console) -> None:
    ms = np.asarray(played.batches.seconds) * 1e3
    full = float(np.median(played.full_seconds)) * 1e3
    console.heading("Speed")
    rows = [
        ["updates per second", f"{sum(played.batches.updates) / (ms.sum() / 1e3):,.0f}"],
        ["updates in a batch, mean", f"{np.mean(played.batches.updates):,.0f}"],
        ["predictions changed by a batch, mean", f"{np.mean(played.batches.changed):,.0f}"],
        ["time of a batch, p50", f"{np.percentile(ms, 50):.2f} ms"],
        ["time of a batch, p99", f"{np.percentile(ms, 99):.2f} ms"],
        [f"full PyG run, median of {len(played.full_seconds)}", f"{full:.2f} ms"],
        ["speed-up over re-running, mean batch", f"{full / ms.mean():.1f}x"],
    ]
    console.table([f"batches of {played.options.batch} events", f"{len(ms):,} batches"], rows, strong=len(rows) - 1)
    if played.singles.seconds:
        single = np.asarray(played.singles.seconds) * 1e3
        rows = [
            ["predictions changed by an event, median", f"{np.median(played.singles.changed):,.0f}"],
            ["time of an event, p50", f"{np.percentile(single, 50):.3f} ms"],
            ["time of an event, p99", f"{np.percentile(single, 99):.3f} ms"],
            ["speed-up over re-running, median event", f"{full / np.median(single):,.0f}x"],
            ["speed-up over re-running, mean event", f"{full / single.mean():,.0f}x"],
        ]
        console.table(["one event at a time", f"the last {len(single):,} events"], rows, strong=len(rows) - 2)
    console.line("An event is one new edge and new features of both ends. The PyG time is the forward alone.")


def _report_quality(story: st.Story, played: Played, pooled: int, console: Console) -> None:
    from livegnn.cli.demo.plot import mean_auc

    console.heading("Quality over the stream")
    labels = way_labels(story, played)
    ways = sorted(played.scores, key=lambda way: -mean_auc(played, way, pooled))
    rows = []
    for way in ways:
        everything = played.curve(way, pooled=len(played.truths))[-1]
        mean = mean_auc(played, way, pooled)
        rows.append([labels[way], f"{mean:.3f}", f"{everything.average_precision:.3f}", f"{everything.accuracy:.1%}"])
    console.table(["predictions", "AUC, mean", "average precision", "accuracy"], rows, strong=ways.index("live"))
    console.line(
        f"{len(played.truths)} judging moments, {sum(len(truth) for truth in played.truths):,} judgements;"
        " a vertex not yet scored counts with the base rate of the training part."
    )
    console.line(
        f"Full runs of periodic: {len(played.refreshed_at)}. New trainings of retrained:"
        f" {len(played.retrained_at)}, each on all that was known by then."
    )


def _verify(player: Player, console: Console) -> None:
    console.heading("Check")
    clock = time.perf_counter()
    player.engine.verify()
    took = time.perf_counter() - clock
    console.good(f"verify: the live state equals a run from scratch, bit for bit ({took:.2f} s).")
    console.line(
        f"Largest difference from PyG at any judging moment: {player.played.deviation_max:.1e} of the largest output."
    )


def _draw(story: st.Story, played: Played, pooled: int, path: Path, console: Console) -> None:
    from livegnn.cli.demo.plot import Caption, draw

    stream = story.stream
    source = "GENERATED stream of the shape of " + stream.name if stream.generated else stream.name
    speed_up = (
        float(np.median(played.full_seconds) / np.mean(played.batches.seconds)) if played.batches.seconds else 0.0
    )
    streamed = f"{played.event - story.start:,} streamed in batches of {played.options.batch}"
    if played.interrupted:
        streamed = "INTERRUPTED after " + streamed
    subtitle = (
        f"{source}: trained on {story.start:,} events, {streamed};"
        f" re-running PyG takes {speed_up:.1f} times as long as staying live"
    )
    caption = Caption(_TITLES[stream.name], subtitle, _QUALITY[story.task], way_labels(story, played))
    draw(story, played, pooled, caption, path)
    console.line(f"Picture: {path}")
