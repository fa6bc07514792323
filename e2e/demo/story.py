"""The demo's story: what traffic each tier gets, and when.

Rates are for the engine profile ``demo`` (a step takes tens of milliseconds), so that two cores carry every engine and
their clients. One Gold replica at its starting cap of 16 carries about 2.5 requests a second: 16 sequences of 1,070
tokens make a step of 24 + 16 x 0.7 + 17.1 x 0.25 = 39.5 ms, an answer has 143 tokens on average (5.6 s), and each
prompt's 994 tokens take 50 ms of prefill from the others: 16 / 5.65 = 2.8, less 0.14 for each request a second.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMESPACE = "llm"
TIERS = ("platinum", "gold", "standard")


@dataclass(frozen=True, slots=True)
class Promise:
    """Thresholds of a tier in milliseconds; None: the tier does not promise it."""

    ttft_ms: int | None
    tpot_ms: int | None


PROMISES = {
    "platinum": Promise(ttft_ms=500, tpot_ms=50),
    "gold": Promise(ttft_ms=1500, tpot_ms=100),
    "standard": Promise(ttft_ms=None, tpot_ms=None),
}


@dataclass(frozen=True, slots=True)
class Act:
    """One phase of the story: its length in seconds and each tier's rate in requests per second."""

    name: str
    seconds: int
    rates: dict[str, float]


ACTS = (
    Act("steady", 20, {"platinum": 0.8, "gold": 1.0, "standard": 0.8}),
    Act("burst on Standard", 35, {"platinum": 0.8, "gold": 1.0, "standard": 3.2}),
    Act("step on Gold", 120, {"platinum": 0.8, "gold": 3.4, "standard": 0.8}),
    Act("quiet", 115, {"platinum": 0.8, "gold": 0.5, "standard": 0.4}),
)

#: Seconds after the step on Gold within which the pool may miss its promise: evidence (20 s), a live resize and its
#: settling (15 s), a replica that starts (15 s), and the backlog that had built up until then (30 s).
GOLD_RECOVERY_SECONDS = 90


def total_seconds() -> int:
    return sum(act.seconds for act in ACTS)


def starts() -> dict[str, int]:
    """Second at which each act starts."""
    at, out = 0, {}
    for act in ACTS:
        out[act.name] = at
        at += act.seconds
    return out
