"""The ``status`` of a ServiceTier: what the operator sees and last decided. No floats: whole units, or texts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, ValidationError

from tierkeeper.api.base import ApiModel, Bool, Int, keyed_list
from tierkeeper.api.conditions import Condition

LARGEST = 1_000_000_000_000
"""Figures end here: what is larger is shown as this, so that one absurd sample does not cost a tier its status."""
TEXT_LIMIT = 32_768

Count = Annotated[Int, Field(ge=0, le=LARGEST)]
Milliseconds = Annotated[Int, Field(ge=0, le=LARGEST)]
Word = Annotated[str, Field(max_length=256)]
Text = Annotated[str, Field(max_length=TEXT_LIMIT)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
Decimal = Annotated[str, Field(max_length=32, pattern=r"^-?[0-9]+([.][0-9]+)?$")]
"""A number with a fraction, as text: CRDs know no reliable float."""


class SliName(StrEnum):
    TTFT = "TTFT"
    TPOT = "TPOT"


class ReplicaStatus(ApiModel):
    """Replicas of the pool."""

    current: Count | None = None
    """What the Deployment asks for."""
    ready: Count | None = None
    """Pods that serve."""
    desired: Count | None = None
    """What the loop last decided."""


class LimitStatus(ApiModel):
    """A live limit of the engines."""

    current: Count | None = None
    """What the pods are told."""
    desired: Count | None = None
    """What the loop last decided."""
    applied: Count | None = None
    """What every Ready pod has shown; absent while they differ or do not say."""


class LiveResizeStatus(ApiModel):
    """Whether limits change without a restart."""

    supported: Bool
    """True where the engine takes new limits live."""
    reason: Word
    """One word of the closed set in the API reference."""
    message: Text = ""
    """For people: what is so, and what to change."""
    last_apply_milliseconds: Milliseconds | None = None
    """From the last write of the limits until every Ready pod showed them."""
    count: Count = 0
    """Live resizes that every Ready pod has shown."""


class ErrorRatio(ApiModel):
    """Share of requests that missed the threshold, 0 to 1, with its bounds."""

    lower: Decimal
    """At least this much."""
    point: Decimal
    """The best estimate."""
    upper: Decimal
    """At most this much."""


class BurnWindow(ApiModel):
    """How fast the error budget burns over one window: 1 spends it exactly over its period."""

    window_seconds: Count
    """Length of the window."""
    burn: Decimal
    """Error ratio divided by the error budget."""
    requests: Count
    """Requests seen in the window."""


class SloStatus(ApiModel):
    """One promised latency."""

    sli: SliName
    """What is promised."""
    threshold_milliseconds: Milliseconds
    """The promised threshold."""
    metric: Word | None = None
    """The engine's histogram that is read."""
    state: Word
    """Whether the signal can be believed: Ok, NoTraffic, NoData, Stale, Ambiguous or SourceDown."""
    p50_milliseconds: Milliseconds | None = None
    """Median latency."""
    p95_milliseconds: Milliseconds | None = None
    """95th percentile of the latency."""
    p99_milliseconds: Milliseconds | None = None
    """99th percentile of the latency."""
    p99: Word | None = None
    """The same for people, such as 412ms or >=10000ms."""
    error_ratio: ErrorRatio | None = None
    """Share of requests that missed the threshold, 0 to 1, over the last 5 minutes, as the quantiles."""
    burn: Annotated[tuple[BurnWindow, ...], *keyed_list("windowSeconds", max_length=16)] = ()
    """How fast the error budget burns, by window."""
    budget_left_percent: Annotated[Int, Field(ge=-1_000_000, le=100)] | None = None
    """Error budget left in the period; negative once overspent."""
    boundary_aligned: Bool = True
    """Whether the threshold is an edge of the engine's buckets, so that the error ratio is exact."""
    nearest_aligned_milliseconds: Annotated[tuple[Milliseconds, ...], Field(max_length=2)] = ()
    """Where it is not: the edges around it."""


class LastDecision(ApiModel):
    """The loop's last decision that changed something, or its current reason to hold."""

    time: Time
    """When it was made."""
    reason: Word
    """One word of the closed set in the API reference."""
    message: Text = ""
    """For people: what was decided, and why."""
    replicas: Count | None = None
    """Replicas decided."""
    max_num_seqs: Count | None = None
    """Running batch decided."""
    max_num_batched_tokens: Count | None = None
    """Token budget decided."""
    inputs: Annotated[dict[str, Annotated[str, Field(max_length=64)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """The figures that it rests on."""


class ServiceTierStatus(ApiModel):
    """What is."""

    observed_generation: Annotated[Int, Field(ge=-1)] = -1
    """The metadata.generation that this status speaks of; -1 before the first look."""
    conditions: Annotated[tuple[Condition, ...], *keyed_list("type", max_length=32)] = ()
    """Ready, Reconciling, Stalled, MetricsAvailable, SLOMet, ScalingLimited, Resizing and BudgetFrozen."""
    replicas: ReplicaStatus | None = None
    """Replicas of the pool."""
    max_num_seqs: LimitStatus | None = None
    """The running batch of a replica."""
    max_num_batched_tokens: LimitStatus | None = None
    """The token budget of a step of a replica."""
    live_resize: LiveResizeStatus | None = None
    """Whether limits change without a restart."""
    slos: Annotated[tuple[SloStatus, ...], *keyed_list("sli", max_length=2)] = ()
    """The promised latencies."""
    last_decision: LastDecision | None = None
    """The loop's last decision."""
    ttft: Word | None = None
    """P99 time to first token over the last 5 minutes against its target, such as 412/500ms."""
    tpot: Word | None = None
    """P99 time per output token over the last 5 minutes against its target, such as 31/50ms."""
    burn: Word | None = None
    """Burn over the last 5 minutes of the SLO that burns faster, such as 1.4x; slos[].burn has the other windows."""
    budget: Word | None = None
    """Smallest error budget left among the SLOs over the period of windowDays, such as 63%."""
    replicas_summary: Word | None = None
    """Ready of wanted replicas, such as 1/2 while one starts; 2/2->3 where the loop wants another number than is
    set."""
    seqs: Word | None = None
    """The running batch, such as 64, or 64->48 while it changes."""


def read_status(tier: Mapping[str, Any]) -> ServiceTierStatus:
    """The status of a live object. One that cannot be read (edited by hand, or of a later release) is as none."""
    said = tier.get("status") or {}
    try:
        # A part whose every field was let go of may be left behind empty: it says nothing.
        return ServiceTierStatus.model_validate({name: part for name, part in said.items() if part != {}})
    except ValidationError:
        return ServiceTierStatus()
