"""Who is compared: every policy by its name on the command line, and what its result depends on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from bench.policy.variants import VARIANTS
from tierkeeper.sim.peers import catalog, dynamo
from tierkeeper.sim.policy import Ours, Policy, Static

TUNED = Path(__file__).parent / "tuned.json"


class Kind(StrEnum):
    """Which code a result depends on."""

    OURS = "ours"
    PEER = "peer"
    BOUND = "bound"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the scoreboard."""

    name: str
    kind: Kind
    about: str
    """What it is, in a few words."""
    settings: str = ""
    """All that it was set to: a result is only as good as long as this is the same."""
    make: Callable[[], Policy] | None = None
    """None: a bound, computed from the whole traffic. Pickled on its way to another process, so no lambda."""
    knows: bool = False
    """It knows traffic that no policy can know, or was set for the very scenario: no rival, a measure."""


GRIDS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "hpa": [{"utilization": share} for share in (0.8, 0.6, 0.5, 0.45, 0.4, 0.3)],
    "keda": [{"threshold_seconds": seconds} for seconds in (None, 1.0, 0.8, 0.6, 0.4)],
    "kpa": [{"target_utilization": share} for share in (0.7, 0.5, 0.35)],
    "apa": [
        {"metric": metric, "target": target, "down_select": select}
        for metric, target, select in (
            *(("kv-usage", 0.5, "min"), ("kv-usage", 0.1, "min"), ("concurrency", 15.0, "min")),
            *(("concurrency", 18.0, "max"), ("concurrency", 15.0, "max"), ("concurrency", 12.0, "max")),
        )
    ],
    "llm-d": [
        {"up": up, "down": down} for up, down in ((0.55, 0.4), (0.62, 0.46), (0.7, 0.5), (0.78, 0.55), (0.85, 0.6))
    ],
    "wva": [{"target_share": share} for share in (1.0, 0.85, 0.7, 0.5)],
    "dynamo": [{"itl_share": share} for share in (1.0, 0.8, 0.65, 0.5)],
}
"""One knob a peer (APA: its metric with the target, and which recommendation counts), the published value first."""

HERE: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "hpa": [{"utilization": share} for share in (0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45)],
    "llm-d": [
        {"up": up, "down": down}
        for up, down in ((0.55, 0.4), (0.62, 0.46), (0.7, 0.5), (0.78, 0.55), (0.85, 0.6), (0.92, 0.65), (1.0, 0.7))
    ],
}
"""The peers that are also tuned on each recorded trace itself, the two strongest, in finer steps."""


def entries() -> list[Entry]:
    """All that can be run here and now, in the order of the scoreboard."""
    found = [Entry("tierkeeper", Kind.OURS, "the shipped law", make=Ours)]
    found += [
        Entry(name, Kind.OURS, f"ours, {name.replace('-', ' ')}", make=partial(_variant, name)) for name in VARIANTS
    ]
    found.append(Entry("static-peak", Kind.BOUND, "the replicas of the peak, all the time", make=Static, knows=True))
    found += [one for name in catalog.DEFAULTS if missing(name) is None for one in _peer(name)]
    found.append(Entry("oracle", Kind.BOUND, "by the mean rate of each slot, start-up known", knows=True))
    found.append(Entry("budget-oracle", Kind.BOUND, "fewest GPU-hours with at most 1 % bad", knows=True))
    return found


def chosen(patterns: Sequence[str]) -> list[Entry]:
    """Entries whose names match one of the patterns (``hpa*``); all without a pattern. Raises ValueError for one that
    matches none."""
    every = entries()
    for pattern in patterns:
        if not any(fnmatchcase(entry.name, pattern) for entry in every):
            reason = missing(pattern.removesuffix("-tuned")) if pattern.startswith("dynamo") else None
            known = ", ".join(entry.name for entry in every)
            raise ValueError(f"--policy {pattern}: {reason or f'no such policy; there are {known}'}")
    return [entry for entry in every if not patterns or any(fnmatchcase(entry.name, p) for p in patterns)]


def missing(name: str) -> str | None:
    """Why a peer cannot be run here; None where it can."""
    return dynamo.MISSING if name == "dynamo" and not dynamo.installed() else None


def peer_entry(name: str, changed: Mapping[str, Any], *, called: str, about: str, knows: bool = False) -> Entry:
    """A peer with some of its published settings changed."""
    settings = dataclasses.replace(catalog.DEFAULTS[name], **changed)
    make = partial(catalog.peer, settings, name=called)
    return Entry(called, Kind.PEER, about, repr(settings), make=make, knows=knows)


def tuned() -> Mapping[str, Mapping[str, Any]]:
    """The settings that were found on other traffic, by peer."""
    if not TUNED.exists():
        return {}
    found: Mapping[str, Mapping[str, Any]] = json.loads(TUNED.read_text(encoding="utf-8"))["chosen"]
    return found


def words(changed: Mapping[str, Any]) -> str:
    """``target utilization 0.5``."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changed.items())


def _variant(name: str) -> Policy:
    return VARIANTS[name]()


def _peer(name: str) -> list[Entry]:
    found = [peer_entry(name, {}, called=name, about="published settings")]
    changed = tuned().get(name)
    if changed is not None:
        found.append(peer_entry(name, changed, called=f"{name}-tuned", about=f"{words(changed)}, by other traffic"))
    return found
