"""What must be so in every run of the simulator, whoever decides in it."""

from __future__ import annotations

from collections.abc import Iterable

from bench.policy.measures import Row

LITTLE_SHARE = 0.03
"""Largest difference between the mean number of requests in a pool and arrival rate times mean time in it. The former
is the mean of what was counted at the ticks; in the scenarios that alone makes up to 1.6 %."""


def little(runs: Iterable[tuple[str, Row]]) -> tuple[str, bool]:
    """Little's law over runs (what, row): a line that tells the worst of them, and whether it holds in all.

    Runs that cut requests are left out: those have no end. Bounds are played without ticks.
    """
    seen = [
        (tier["little_residual"], f"{what}, {name}")
        for what, row in runs
        for name, tier in row.get("tiers", {}).items()
        if tier.get("little_residual") is not None and not tier["cut"]
    ]
    if not seen:
        return "Little's law: no run to check.", True
    worst, where = max(seen)
    holds = worst <= LITTLE_SHARE
    told = "holds" if holds else f"IS BROKEN (more than {100 * LITTLE_SHARE:.0f} %)"
    text = f"Little's law {told} in {len(seen)} runs of a tier; the largest residual is {100 * worst:.1f} % ({where})."
    return text, holds
