"""A run as one page: figures, plots, and every decision with its reason. It needs no network and no script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from tierkeeper.render.promql import budget_step
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.binned import Binned, binned, capacity
from tierkeeper.sim.plot import Line, Mark, Plot, svg
from tierkeeper.sim.record import Entry, Run, Series, TierRun
from tierkeeper.sim.score import DAY_SECONDS, Score, score
from tierkeeper.slo.burn import requests_to_tell
from tierkeeper.slo.messages import latency
from tierkeeper.tier import Bounds, Objective, TierSpec

COLUMNS: Sequence[tuple[str, str]] = (
    ("policy", "The policy and, where there are several, the tier"),
    ("attainment", "Requests that met every target, of all that arrived"),
    ("budget used", "Bad requests / the error budget: 100% spends it exactly"),
    ("GPU-hours", "From each pod scheduled until gone"),
    ("TTFT P50", "Time to first token"),
    ("TTFT P99", "Time to first token"),
    ("TPOT P50", "Time per output token"),
    ("TPOT P99", "Time per output token"),
    ("lost", "Rejected + cut + never served"),
    ("replica moves", "Changes of the replicas"),
    ("live moves", "Changes of max-num-seqs or of the token budget, without a restart"),
    ("reversals", "Changes of direction within twice the start-up time; a day, in runs of a day or more"),
)

_STYLE = """
:root { --ink:#1d2433; --soft:#667085; --line:#e3e7ee; --page:#f6f7f9; --card:#ffffff; --bad:#c0392b;
  --s1:#2563a8; --s2:#d9822b; --s3:#2a8f6a; --s4:#8a4fb0; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6e9ef; --soft:#98a2b3; --line:#2e3644; --page:#12161d;
  --card:#1a202a; --bad:#f0776a; --s1:#6ea8e5; --s2:#f0a95c; --s3:#5cc79d; --s4:#c18ee6; } }
* { box-sizing: border-box; }
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui, sans-serif; }
main { max-width:1080px; margin:0 auto; padding:24px 20px 60px; }
h1 { font-size:24px; margin:0 0 4px; } h2 { font-size:19px; margin:36px 0 8px; }
h3 { font-size:15px; margin:4px 0 8px; }
h1, h2, p { overflow-wrap:anywhere; } code { font-size:13px; }
p { margin:4px 0 14px; color:var(--soft); } p.note { margin:6px 0 0; font-size:13px; }
.card { background:var(--card); border:1px solid var(--line); border-radius:8px; padding:12px 14px; margin:12px 0;
  overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-size:13px; font-variant-numeric:tabular-nums; }
th, td { padding:5px 8px; text-align:right; border-bottom:1px solid var(--line); white-space:nowrap; }
th { font-weight:600; color:var(--soft); white-space:normal; vertical-align:bottom; }
tr:last-child td { border-bottom:0; }
th:first-child, td:first-child, .left { text-align:left !important; }
tr.after td { color:var(--soft); }
td.why { white-space:normal; min-width:340px; } td.bad { color:var(--bad); font-weight:600; }
summary { cursor:pointer; color:var(--soft); }
svg.plot { display:block; width:100%; min-width:640px; height:auto; }
svg text { fill:var(--ink); font:12px system-ui, sans-serif; } svg .title { font-weight:600; font-size:13px; }
svg .label { fill:var(--soft); } svg .end { text-anchor:end; } svg .mid { text-anchor:middle; }
svg .grid { stroke:var(--line); } svg .line { fill:none; stroke-width:1.6; stroke-linecap:round; }
svg .faint { stroke-opacity:.55; }
svg .target { stroke:var(--bad); stroke-dasharray:5 4; } svg tspan.target { fill:var(--bad); }
svg line.mark { stroke:var(--soft); stroke-opacity:.35; stroke-width:2; } svg line.mark:hover { stroke-opacity:1; }
svg tspan.mark { fill:var(--soft); }
""" + "\n".join(f"svg path.s{n} {{ stroke:var(--s{n}); }} svg tspan.s{n} {{ fill:var(--s{n}); }}" for n in (1, 2, 3, 4))


def report(runs: Sequence[Run], *, title: str, command: str = "", seed: int | None = None) -> str:
    """The page for one or more runs over the same traffic: one table for all, then the plots of each.

    ``command`` and ``seed`` are what it takes to make the page again.
    """
    again = f"<p>Made by <code>{escape(command)}</code></p>" if command else ""
    bodies = [_tier_part(run, tier, many=len(runs) > 1) for run in runs for tier in run.tiers.values()]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            '<link rel="icon" href="data:,">',
            f"<style>{_STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            f"<p>{escape(_about(runs, seed))}</p>{again}",
            _table(runs),
            *bodies,
            "</main></body></html>\n",
        ]
    )


def cells(run: Run, tier: TierRun, found: Score) -> list[str]:
    """One line of the table, in the order of ``COLUMNS``."""
    name = run.policy if len(run.tiers) == 1 else f"{run.policy}, {tier.spec.key.name}"
    return [
        name,
        f"{found.attainment * 100:.2f}%",
        "none promised" if tier.spec.objective is None else f"{found.budget_use * 100:.0f}%",
        f"{found.gpu_hours:,.1f}",
        *(_latency(value) for value in (found.ttft_p50, found.ttft_p99, found.tpot_p50, found.tpot_p99)),
        f"{found.rejected + found.cut + found.unserved:,}",
        f"{found.replica_changes:,}",
        f"{found.live_changes:,}",
        reversals(found.reversals_per_day, seconds=run.seconds),
    ]


def reversals(per_day: float, *, seconds: float) -> str:
    """``2``; of a run of a day or more ``1.3 / day``: an hour's one would be 24 a day."""
    return f"{per_day:.1f} / day" if seconds >= DAY_SECONDS else f"{per_day * seconds / DAY_SECONDS:.0f}"


def promise(spec: TierSpec) -> str:
    """What a tier promises, as a sentence."""
    objective = spec.objective
    if objective is None:
        return "promises nothing"
    targets = [
        f"{name} {_latency(seconds)}"
        for name, seconds in (("TTFT", objective.ttft_seconds), ("TPOT", objective.tpot_seconds))
        if seconds is not None
    ]
    return f"{objective.ratio * 100:g}% of requests within {' and '.join(targets)}"


def duration(seconds: float) -> str:
    """``58 min``, ``7.0 d``."""
    size, unit = next((s, u) for s, u in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")) if seconds >= s or s == 1)
    return f"{seconds / size:.1f} {unit}" if size > 60 else f"{seconds / size:.0f} {unit}"


def _counted(number: int, thing: str) -> str:
    """``1 change``, ``12,000 requests``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _about(runs: Sequence[Run], seed: int | None) -> str:
    first = runs[0]
    requests = sum(len(tier.requests) for tier in first.tiers.values())
    cap = f", at most {first.gpus} GPUs" if first.gpus is not None else ""
    drawn = f"; seed {seed}" if seed is not None else ""
    about = f"{_counted(requests, 'request')} in {duration(first.seconds)}{cap}"
    return f"{about}; decided on scraped metrics, one scrape old{drawn}."


def _table(runs: Sequence[Run]) -> str:
    heads = "".join(f'<th title="{escape(what)}">{escape(name)}</th>' for name, what in COLUMNS)
    lines = []
    for run in runs:
        for tier in run.tiers.values():
            found = score(run, tier)
            kept = tier.spec.objective is None or found.attainment >= tier.spec.objective.ratio
            words = [f"<td>{escape(cell)}</td>" for cell in cells(run, tier, found)]
            words[1] = words[1] if kept else words[1].replace("<td>", '<td class="bad">')
            lines.append(f"<tr>{''.join(words)}</tr>")
    return f'<div class="card"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _tier_part(run: Run, tier: TierRun, *, many: bool) -> str:
    name = f"{tier.spec.key.name} under {run.policy}" if many or len(run.tiers) > 1 else tier.spec.key.name
    engine = f"{tier.profile.name}, a replica is Ready {tier.startup_seconds:g} s after it has its GPUs"
    plots = "\n".join(_card(plot) for plot in _plots(run, tier))
    words = "".join(f"<p>{escape(text)}</p>" for text in (f"{promise(tier.spec)}; {engine}.", _given(tier)))
    return f"<section><h2>{escape(name)}</h2>{words}\n{plots}\n{_decisions(run, tier)}</section>"


def _given(tier: TierRun) -> str:
    """The bounds of the levers and the constants of a step, as the run was given them."""
    scaling, step = tier.spec.scaling, tier.profile
    tokens = scaling.max_num_batched_tokens
    bounds = [f"{_range(scaling.replicas)} replicas", f"max-num-seqs {_range(scaling.max_num_seqs)}"]
    bounds += [f"token budget {_range(tokens)}" if tokens is not None else "token budget left alone"]
    bounds += [f"{_counted(tier.spec.resources.gpus_per_replica, 'GPU')} a replica"]
    return (
        f"Limits: {', '.join(bounds)}. A step takes {step.base_seconds * 1e3:g} ms"
        f" + {step.per_sequence_seconds * 1e3:g} ms a sequence"
        f" + {step.per_context_token_seconds * 1e6:g} ms per 1,000 tokens of its context"
        f" + {step.per_prefill_token_seconds * 1e6:g} ms per 1,000 prefill tokens."
    )


def _range(bounds: Bounds) -> str:
    return f"{bounds.min:,} to {bounds.max:,}" if bounds.min != bounds.max else f"{bounds.min:,}"


def _card(plot: Plot) -> str:
    """A plot, and below it what is not to be seen in it."""
    notes = [plot.note] if plot.note else []
    lowest = min((float(line.y[np.isfinite(line.y)].min(initial=math.inf)) for line in plot.lines), default=math.inf)
    if plot.floor is not None and lowest < plot.floor:
        edge, down = (f"{value:,.0f}{plot.unit}" for value in (plot.floor, lowest))
        notes.append(f"Below {edge} a line stays at the edge; the lowest value is {down}.")
    said = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return f'<div class="card">{svg(plot)}{said}</div>'


def _plots(run: Run, tier: TierRun) -> Iterable[Plot]:
    series, truth, end = tier.series, binned(tier, run.seconds), run.seconds
    objective = tier.spec.objective or Objective(ratio=0.99)
    moves = tuple(
        Mark(e.at, f"{_clock(e.at)} {e.message or _change(e)}") for e in _changes(tier.decisions) if e.at <= end
    )

    def steps(name: str, y: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Line:
        return Line(name, series.at, y, steps=True)

    yield Plot(
        "Time to first token",
        "s",
        [Line("P99", truth.at, truth.ttft_p99), Line("P50", truth.at, truth.ttft_p50)],
        end,
        target=objective.ttft_seconds,
        logarithmic=True,
        marks=moves,
        note="Where P99 is missing, so many never got a first token." if np.isinf(truth.ttft_p99).any() else "",
    )
    yield Plot(
        "Time per output token",
        "ms",
        [Line("P99", truth.at, truth.tpot_p99 * 1000), Line("P50", truth.at, truth.tpot_p50 * 1000)],
        end,
        target=objective.tpot_seconds * 1000 if objective.tpot_seconds is not None else None,
        logarithmic=True,
        marks=moves,
    )
    yield Plot(
        "Demand, and what the Ready replicas can carry by the step model",
        "req/s",
        [
            Line("arrivals", truth.at, truth.arrivals_per_second),
            Line("capacity", truth.at, _capacities(tier, truth), steps=True),
        ],
        end,
    )
    pods = [steps("wanted", series.replicas), steps("Ready", series.ready), steps("starting", series.starting)]
    if (series.unschedulable > 0).any():
        pods.append(steps("without a GPU", series.unschedulable))
    yield Plot("Replicas", "", pods, end, whole=True, marks=moves)
    yield Plot("max-num-seqs", "", [steps("of each replica", series.max_num_seqs)], end, whole=True)
    if np.isfinite(series.max_num_batched_tokens).any():
        budget = steps("of each replica", series.max_num_batched_tokens)
        yield Plot("Token budget of a step", "tokens", [budget], end, whole=True)
    yield Plot(
        "Requests, as the policy saw them",
        "",
        [Line("running", series.at, series.running), Line("waiting", series.at, series.waiting)],
        end,
        whole=True,
    )
    if tier.spec.objective is not None:
        yield _budget_plot(tier.spec.objective, series, truth, end)


def _budget_plot(objective: Objective, series: Series, truth: Binned, end: float) -> Plot:
    lines, note = [Line("of all requests so far", truth.at, truth.budget_left * 100)], ""
    if np.isfinite(series.budget_left[series.at <= end]).any():
        lines.append(Line("as the policy saw it", series.at, series.budget_left * 100))
    else:
        soon = duration(2 * budget_step(objective.window_days * int(DAY_SECONDS)))
        few = requests_to_tell(objective.error_budget)
        note = f"The policy saw none: the period's budget is known after about {soon} and {few:,} requests."
    return Plot("Error budget left", "%", lines, end, floor=-100.0, note=note)


def _capacities(tier: TierRun, truth: Binned) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Requests a second of the Ready replicas at each bin's mix of lengths."""
    places = np.clip(np.searchsorted(tier.series.at, truth.at), 0, max(0, len(tier.series.at) - 1))
    tpot = tier.spec.objective.tpot_seconds if tier.spec.objective is not None else None
    found = []
    for place, prompt, output in zip(places.tolist(), truth.prompt_tokens, truth.output_tokens, strict=True):
        ready, cap = (float(line[place]) for line in (tier.series.ready, tier.series.max_num_seqs))
        one = capacity(tier.profile, sequences=cap, tpot=tpot, prompt=float(prompt), output=float(output))
        found.append(ready * one if math.isfinite(prompt) else math.nan)
    return np.array(found)


def _decisions(run: Run, tier: TierRun) -> str:
    changes = _changes(tier.decisions)
    counted = [entry for entry in changes if entry.at <= run.seconds]
    heading = _counted(len(counted), "change")
    if len(changes) > len(counted):
        heading += f", and {len(changes) - len(counted):,} after the traffic, in no figure and no plot"
    everything = [f"<h3>{heading}</h3>", _entries(changes, run.seconds)] if changes else ["<p>Nothing was changed.</p>"]
    if len(tier.decisions) > len(changes):
        summary = f"Every decision that differs from the one before, holds included: {len(tier.decisions):,}"
        body = _entries(tier.decisions, run.seconds)
        everything.append(f"<details><summary>{summary}</summary>{body}</details>")
    return f'<div class="card">{"".join(everything)}</div>'


def _changes(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.after != entry.before]


def _entries(entries: Sequence[Entry], end: float) -> str:
    """The decisions as a table; without the columns of reason and message where a policy gives none."""
    told = any(e.reason or e.message for e in entries)
    lines = []
    for e in entries:
        style = ' class="after"' if e.at > end else ""
        why = f'<td class="left">{escape(e.reason)}</td><td class="left why">{escape(e.message)}</td>' if told else ""
        lines.append(f'<tr{style}><td>{_clock(e.at)}</td><td class="left">{escape(_change(e))}</td>{why}</tr>')
    why = '<th class="left">reason</th><th class="left">message</th>' if told else ""
    heads = f'<th>time</th><th class="left">levers</th>{why}'
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _change(entry: Entry) -> str:
    """What moved, or what stays."""
    pairs = zip(_levers(entry.before), _levers(entry.after), strict=True)
    moved = [f"{name} {before} → {after}" for (name, before), (_, after) in pairs if before != after]
    return ", ".join(moved) or "hold"


def _levers(levers: Levers) -> list[tuple[str, str]]:
    tokens = levers.max_num_batched_tokens
    return [
        ("replicas", str(levers.replicas)),
        ("max-num-seqs", str(levers.max_num_seqs)),
        ("token budget", "the engine's" if tokens is None else str(tokens)),
    ]


def _clock(at: float) -> str:
    """``2 d 03:04:05``."""
    days, rest = divmod(round(at), 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock


def _latency(seconds: float) -> str:
    return latency(seconds) if math.isfinite(seconds) else "–"
