"""The demo's picture: per tier TTFT and TPOT P99 against target, replicas and cap, decisions as marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from e2e.demo.story import ACTS, PROMISES, starts, total_seconds
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
        axes[0][column].set_title(tier.capitalize(), color=INK, fontweight="bold", pad=26)
        for row in range(3):
            _acts(axes[row][column], names=row == 0)
        axes[2][column].set_xlabel("seconds")
    figure.suptitle(title, color=INK)
    note = "Latencies as the clients saw them: P99 over the last 20 s (at these rates close to the maximum), log scale."
    figure.text(0.5, 0.005, note, ha="center", fontsize=8, color=QUIET)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})
    figure.savefig(out.with_suffix(".png"), dpi=110)
    plt.close(figure)


def _latency(ax: Axes, at: list[float], values: list[float | None], *, target: int | None, label: str) -> None:
    ax.plot(at, [float("nan") if v is None else v for v in values], color=ACCENT, linewidth=1.6)
    if target is not None:
        ax.axhline(target, color=ALARM, linestyle="--", linewidth=1)
        right = ax.get_yaxis_transform()
        ax.text(0.99, target, f"target {target} ms", transform=right, ha="right", va="bottom", fontsize=8, color=ALARM)
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, max(high, (target or 0) * 1.3))  # room for the word above its line
    for axis in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        axis(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:g}".strip("0.")[:1] in set("12357") else ""))
    ax.set_ylabel(label)
    ax.grid(visible=True, which="major", color="#eaeef2")


def _levers(ax: Axes, timeline: Timeline, tier: str) -> None:
    samples = timeline.of(tier)
    if samples:  # a tier that nothing changes is seen once: what was last seen holds to the end
        samples = [*samples, replace(samples[-1], at=max(samples[-1].at, float(total_seconds())))]
    at = [s.at for s in samples]
    ax.step(at, [s.ready for s in samples], where="post", color=INK, linewidth=1.8, label="replicas ready")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
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
    for number, act in enumerate(ACTS):
        begin = starts()[act.name]
        if number % 2:
            ax.axvspan(begin, begin + act.seconds, color=QUIET, alpha=0.08, linewidth=0)
        if names:
            where, two_lines = ax.get_xaxis_transform(), act.name.replace(" on ", " on\n")
            middle = begin + act.seconds / 2
            ax.text(middle, 1.02, two_lines, transform=where, ha="center", va="bottom", fontsize=6.5, color=QUIET)
