"""A setting for each peer, found on other traffic than that of the scoreboard; one for all scenarios.

    python -m bench.policy --tune [--quick]

Each peer has one knob and a short grid of values (``policies.GRIDS``). Every value is played on both TUNING scenarios.
Chosen is, of the values that keep the objective on both, the one with the fewest GPU-hours, each scenario counted as a
share of the best value's; where none keeps both, the one whose worse attainment is highest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.policy.jobs import Job
from bench.policy.measures import Row
from bench.policy.policies import GRIDS, HERE, TUNED, Entry, missing, peer_entry, words
from bench.policy.scenarios import TUNING

Doer = Callable[[Sequence[Job]], Sequence[Row]]
"""Runs jobs and gives their rows in the same order."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One value of a peer's knob on some scenarios."""

    changed: Mapping[str, Any]
    rows: Sequence[Row]

    @property
    def kept(self) -> bool:
        return all(row["kept"] for row in self.rows)

    @property
    def worst(self) -> float:
        """The lowest attainment."""
        return min(float(row["attainment"]) for row in self.rows)


def tune(do: Doer, peers: Sequence[str], *, quick: bool, seed: int, command: str) -> Mapping[str, Any]:
    """Play the peers' grids, choose, and write the choice to ``tuned.json``; peers that are not named keep theirs.

    A peer whose packages are missing is left out.
    """
    peers = [name for name in peers if missing(name) is None]
    trials = _trials(do, peers, list(TUNING), quick=quick, seed=seed)
    found = json.loads(TUNED.read_text(encoding="utf-8")) if TUNED.exists() else {"chosen": {}, "trials": {}}
    for peer, seen in trials.items():
        found["chosen"][peer] = dict(choose(seen).changed)
        found["trials"][peer] = [_told(one) for one in seen]
    found = {"command": command, "scenarios": list(TUNING), "quick": quick, "seed": seed, **_parts(found)}
    TUNED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def tuned_here(
    do: Doer, peer: str, scenario: str, *, startup_seconds: float, quick: bool, seed: int
) -> tuple[Entry, Row]:
    """A peer with whichever value of ``policies.HERE`` is best on this very traffic, and what it reached."""
    jobs = [
        Job(scenario, _candidate(peer, changed), startup_seconds=startup_seconds, seed=seed, quick=quick)
        for changed in HERE[peer]
    ]
    trials = [Trial(changed, [row]) for changed, row in zip(HERE[peer], do(jobs), strict=True)]
    best = choose(trials)
    about = f"{words(best.changed)}, found on this very traffic"
    return peer_entry(peer, best.changed, called=f"{peer}-here", about=about, knows=True), best.rows[0]


def choose(trials: Sequence[Trial]) -> Trial:
    """See the module."""
    kept = [trial for trial in trials if trial.kept]
    if not kept:
        return max(trials, key=lambda trial: trial.worst)
    least = [min(float(trial.rows[place]["gpu_hours"]) for trial in kept) for place in range(len(kept[0].rows))]
    return min(kept, key=lambda t: sum(row["gpu_hours"] / best for row, best in zip(t.rows, least, strict=True)))


def _trials(
    do: Doer, peers: Sequence[str], scenarios: Sequence[str], *, quick: bool, seed: int
) -> Mapping[str, list[Trial]]:
    """By peer, one trial a value; scenario by scenario, since building one takes a while."""
    places = [(peer, changed) for peer in peers for changed in GRIDS[peer]]
    jobs = [
        Job(scenario, _candidate(peer, changed), seed=seed, quick=quick)
        for scenario in scenarios
        for peer, changed in places
    ]
    rows = do(jobs)
    found: dict[str, list[Trial]] = {peer: [] for peer in peers}
    for place, (peer, changed) in enumerate(places):
        found[peer].append(Trial(changed, rows[place :: len(places)]))
    return found


def _candidate(peer: str, changed: Mapping[str, Any]) -> Entry:
    return peer_entry(peer, changed, called=peer, about=words(changed))


def _told(trial: Trial) -> Mapping[str, Any]:
    return {
        **trial.changed,
        "attainment": [round(row["attainment"], 5) for row in trial.rows],
        "gpuHours": [round(row["gpu_hours"], 2) for row in trial.rows],
    }


def _parts(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: {peer: found[name][peer] for peer in sorted(found[name])} for name in ("chosen", "trials")}
