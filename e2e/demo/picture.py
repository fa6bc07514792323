"""The demo's picture: per tier TTFT and TPOT P99 against target, replicas and cap, decisions as marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from e2e.demo.story import ACTS, PROMISES, starts
from e2e.demo.timeline import Timeline

INK, ACCENT, ALARM, QUIET = "#24292f", "#0969da", "#cf222e", "#8c959f"


@dataclass(frozen=True, slots=True)
class Series:
    """A client-side P99 over time: seconds and milliseconds, None where nothing finished."""

    at: list[float]
    ttft_ms: list[float | None]
    tpot_ms: list[float | None]


def draw(series: Mapping[str, Series], timeline: Timeline, *, title: str, out: Path) -> None:
    """Write ``out`` as SVG and, beside it, as PNG."""
    mpl.rcParams["svg.hashsalt"] = "tierkeeper"  # the same input gives the same file
    figure, axes = plt.subplots(3, len(series), figsize=(5.2 * len(series), 8), sharex=True, squeeze=False)
    for column, (tier, values) in enumerate(series.items()):
        promise = PROMISES[tier]
        _latency(axes[0][column], values.at, values.ttft_ms, target=promise.ttft_ms, label="TTFT P99 (ms)")
        _latency(axes[1][column], values.at, values.tpot_ms, target=promise.tpot_ms, label="TPOT P99 (ms)")
        _levers(axes[2][column], timeline, tier)
        axes[0][column].set_title(tier.capitalize(), color=INK, fontweight="bold")
        for row in range(3):
            _acts(axes[row][column], names=row == 0)
        axes[2][column].set_xlabel("seconds")
    figure.suptitle(title, color=INK)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})
    figure.savefig(out.with_suffix(".png"), dpi=110)
    plt.close(figure)


def _latency(ax: Axes, at: list[float], values: list[float | None], *, target: int | None, label: str) -> None:
    ax.plot(at, [float("nan") if v is None else v for v in values], color=ACCENT, linewidth=1.6)
    if target is not None:
        ax.axhline(target, color=ALARM, linestyle="--", linewidth=1, label=f"target {target} ms")
        ax.legend(loc="upper left", fontsize=8, frameon=False)
    ax.set_yscale("log")
    for axis in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        axis(FuncFormatter(lambda value, _: f"{value:g}" if str(value)[0] in "125" else ""))
    ax.set_ylabel(label)
    ax.grid(visible=True, which="major", color="#eaeef2")


def _levers(ax: Axes, timeline: Timeline, tier: str) -> None:
    samples = timeline.of(tier)
    at = [s.at for s in samples]
    ax.step(at, [s.ready for s in samples], where="post", color=INK, linewidth=1.8, label="replicas ready")
    ax.set_ylim(0, max([s.ready for s in samples] + [1]) + 1.5)
    ax.set_ylabel("replicas")
    cap = ax.twinx()
    cap.step(at, [s.max_num_seqs for s in samples], where="post", color=ACCENT, linewidth=1.4, label="max-num-seqs")
    cap.set_ylim(0, max([s.max_num_seqs for s in samples] + [1]) * 1.4)
    cap.set_ylabel("max-num-seqs", color=ACCENT)
    for mark in (m for m in timeline.marks if m.tier == tier):
        ax.axvline(mark.at, color=ALARM, linewidth=0.8, alpha=0.6)
        ax.annotate(
            mark.reason, (mark.at, ax.get_ylim()[1]), rotation=90, va="top", ha="right", fontsize=6, color=ALARM
        )
    handles = [*ax.get_legend_handles_labels()[0], *cap.get_legend_handles_labels()[0]]
    ax.legend(handles, [str(h.get_label()) for h in handles], loc="lower right", fontsize=7, frameon=False)


def _acts(ax: Axes, *, names: bool) -> None:
    for act in ACTS[1:]:
        ax.axvline(starts()[act.name], color=QUIET, linewidth=0.8, linestyle=":")
    if names:
        for act in ACTS:
            at = starts()[act.name] + 2
            where = ax.get_xaxis_transform()
            ax.text(at, 0.03, act.name, transform=where, rotation=90, va="bottom", fontsize=7, color=QUIET)
