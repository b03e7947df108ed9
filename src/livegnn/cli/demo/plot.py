"""The demo's picture: quality over stream time for every way of serving, and what one batch costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from livegnn.cli.demo import experiment as st
from livegnn.cli.demo.replay import LIVE, PERIODIC, RETRAINED, Played
from livegnn.optional import need

# Colours are Okabe and Ito's, which colour-blind readers can distinguish.
_COLOURS = {
    LIVE: "#D55E00",
    PERIODIC: "#0072B2",
    RETRAINED: "#000000",
    "sampled 5": "#E69F00",
    "sampled 10": "#009E73",
    "sampled 20": "#CC79A7",
}
_STYLES = {LIVE: "-", PERIODIC: "-", RETRAINED: "--"}


@dataclass(frozen=True)
class Caption:
    """Words of the picture."""

    title: str
    subtitle: str
    quality: str
    labels: dict[str, str]


def draw(story: st.Story, played: Played, pooled: int, caption: Caption, path: Path) -> None:
    """Writes a PNG of 1200 x 800 pixels. Raises: DataMissing if matplotlib is not installed."""
    need("matplotlib", "cli").use("Agg")
    pyplot = need("matplotlib.pyplot", "cli")
    style = {
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
    }
    with pyplot.rc_context(style):
        figure = pyplot.figure(figsize=(12, 8), dpi=100)
        grid = figure.add_gridspec(
            2, 2, height_ratios=(1.9, 1), left=0.075, right=0.975, top=0.865, bottom=0.085, hspace=0.36, wspace=0.52
        )
        _draw_quality(figure.add_subplot(grid[0, :]), story, played, pooled, caption)
        _draw_latency(figure.add_subplot(grid[1, 0]), story, played)
        _draw_bars(figure.add_subplot(grid[1, 1]), played, pooled, caption)
        figure.text(0.075, 0.945, caption.title, fontsize=16, fontweight="bold", ha="left")
        figure.text(0.075, 0.912, caption.subtitle, fontsize=11, color="#555555", ha="left")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        pyplot.close(figure)


def _draw_quality(axes: Any, story: st.Story, played: Played, pooled: int, caption: Caption) -> None:
    x = np.asarray(played.events_done) / 1000
    for way in [name for name in played.scores if name != LIVE] + [LIVE]:
        y = [quality.auc for quality in played.curve(way, pooled)]
        strong = way == LIVE
        axes.plot(
            x,
            y,
            _STYLES.get(way, "-"),
            color=_COLOURS.get(way, "#CC79A7"),
            linewidth=2.8 if strong else 1.5,
            label=caption.labels[way],
            zorder=3 if strong else 2,
        )
    for i, event in enumerate(played.refreshed_at):
        axes.axvline(event / 1000, color=_COLOURS[PERIODIC], alpha=0.25, linewidth=1, zorder=1)
        if i == 0:
            low = axes.get_ylim()[0]
            axes.annotate("periodic refresh", (event / 1000, low), (4, 3), textcoords="offset points", fontsize=9,
                          color=_COLOURS[PERIODIC])  # fmt: skip
    axes.set_ylabel(caption.quality)
    axes.set_xlabel("events so far (thousands)")
    axes.margins(x=0.01)
    axes.xaxis.set_major_formatter("{x:g}")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.005, 0.5), frameon=False, fontsize=10)
    box = axes.get_position()
    axes.set_position((box.x0, box.y0, box.width * 0.785, box.height))


def _draw_latency(axes: Any, story: st.Story, played: Played) -> None:
    ms = np.asarray(played.batches.seconds) * 1e3
    ends = (story.start + np.arange(1, len(ms) + 1) * played.options.batch) / 1000
    axes.plot(ends, ms, ".", color=_COLOURS[LIVE], markersize=3, alpha=0.5, rasterized=True)
    full = float(np.median(played.full_seconds)) * 1e3
    axes.axhline(full, color="#000000", linewidth=1.5, linestyle="--")
    axes.set_yscale("log")
    top = max(full, float(ms.max())) * 4
    axes.set_ylim(float(ms.min()) / 1.6, top)
    axes.annotate(f"full PyG run: {full:.3g} ms", (0.99, full), (0, 4), xycoords=("axes fraction", "data"),
                  textcoords="offset points", ha="right", va="bottom", fontsize=10)  # fmt: skip
    axes.set_title(f"Time of one batch: live {np.median(ms):.3g} ms (median)", fontsize=11, loc="left")
    axes.set_ylabel("ms (log scale)")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("events so far (thousands)")


def _draw_bars(axes: Any, played: Played, pooled: int, caption: Caption) -> None:
    ways = sorted(played.scores, key=lambda way: mean_auc(played, way, pooled))
    means = [mean_auc(played, way, pooled) for way in ways]
    axes.barh(
        [caption.labels[way] for way in ways], means, color=[_COLOURS.get(way, "#CC79A7") for way in ways], height=0.62
    )
    spread = max(means) - min(means) or 0.01
    axes.set_xlim(min(means) - 0.35 * spread, max(means) + 0.3 * spread)
    for i, mean in enumerate(means):
        axes.text(mean + 0.02 * spread, i, f"{mean:.3f}", va="center", fontsize=10)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", labelsize=9, length=0)
    axes.locator_params(axis="x", nbins=5)
    axes.set_title("Mean over the stream (axis does not start at 0)", fontsize=11, loc="left")
    axes.set_xlabel(caption.quality)


def mean_auc(played: Played, way: str, pooled: int) -> float:
    """Mean AUC over the checkpoints at which both classes occur; NaN if there is none."""
    values = np.asarray([quality.auc for quality in played.curve(way, pooled)])
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
