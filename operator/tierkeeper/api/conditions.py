"""Conditions of a ServiceTier in the standard Kubernetes shape, with a closed set of types and reasons.

kstatus reads them so: ``Reconciling=True`` is in progress, ``Stalled=True`` has failed and needs a person; then it
looks at ``Ready``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from tierkeeper.api.base import ApiModel, Int

MESSAGE_LIMIT = 1024
"""Characters of a message that we write: enough for several problems, and readable in ``kubectl describe``."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class _Explained(StrEnum):
    """An enum whose members carry the sentence that documents them."""

    doc: str

    def __new__(cls, value: str, doc: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.doc = doc
        return member


class ConditionType(_Explained):
    """What is said of every tier, in the order in which it is shown."""

    READY = "Ready", "Enough replicas serve, and the pool is the one that the spec asks for."
    RECONCILING = "Reconciling", "The pool is on its way to what the spec asks for."
    STALLED = "Stalled", "Nothing more will happen until a person changes what the message names."
    METRICS_AVAILABLE = "MetricsAvailable", "The tier's signals are fresh and can be believed."
    SLO_MET = "SLOMet", "The promised latencies are kept over the control windows."
    SCALING_LIMITED = "ScalingLimited", "The loop wants a change that something forbids."
    RESIZING = "Resizing", "Live limits have been set that not every Ready pod has shown yet."
    BUDGET_FROZEN = "BudgetFrozen", "So much of the error budget is spent that voluntary change is forbidden."


class ConditionReason(_Explained):
    """Why a condition is what it is: a closed set. It holds every cause the metrics and the loop can name."""

    # Any condition
    AS_EXPECTED = "AsExpected", "Nothing to report."
    NOT_YET_KNOWN = "NotYetKnown", "The operator has not looked yet."
    # Ready, Reconciling, Stalled
    POOL_READY = "PoolReady", "All wanted replicas are Ready."
    SCALING_UP = "ScalingUp", "Enough replicas are Ready, and more are on the way."
    POOL_DEGRADED = "PoolDegraded", "Not all of the wanted replicas are Ready, and waiting may not mend it."
    POOL_STARTING = "PoolStarting", "Fewer replicas than the minimum are Ready; pods are starting."
    NO_READY_REPLICAS = "NoReadyReplicas", "No replica is Ready and none is starting."
    ROLLING_OUT = "RollingOut", "Pods are being replaced by pods of the new template."
    ROLLOUT_STUCK = "RolloutStuck", "The rollout made no progress within its deadline."
    INVALID_SPEC = "InvalidSpec", "The spec contradicts itself; the message names field, value and remedy."
    FOREIGN_OBJECT = "ForeignObject", "An object of the pool's name belongs to something else; it is never taken over."
    MISSING_REFERENCE = "MissingReference", "The spec names a Secret, claim or other object that does not exist."
    API_REFUSED = "ApiRefused", "The API server refuses the pool's objects; repeating the write cannot help."
    API_UNAVAILABLE = "ApiUnavailable", "The pool cannot be written for a minute or more; it is tried again."
    REWRITTEN = "Rewritten", "Something else changes the pool's objects back after each write."
    # Ready: what the pods say
    CRASH_LOOP = "CrashLoopBackOff", "The engine ends again and again; the message carries its exit code."
    ENGINE_EXITED = "EngineExited", "The engine ended; exit code 0 of a serving engine is a failure too."
    OUT_OF_MEMORY = "OOMKilled", "The container ran out of memory."
    IMAGE_PULL = "ImagePullBackOff", "The engine's image cannot be pulled."
    INVALID_IMAGE = "InvalidImageName", "The engine's image name cannot be read."
    CONTAINER_CONFIG = "CreateContainerConfigError", "The container cannot be made: a Secret or ConfigMap is missing."
    CONTAINER_CREATE = "CreateContainerError", "The node cannot make or start the container; the message quotes it."
    UNSCHEDULABLE = "Unschedulable", "No node has room for the pod, or a scheduling gate holds it back."
    QUOTA_EXCEEDED = "QuotaExceeded", "A ResourceQuota forbids the pods that the pool wants."
    # MetricsAvailable
    OK = "Ok", "Signals are fresh."
    NO_TRAFFIC = "NoTraffic", "The pool is measured and nothing arrives."
    NO_DATA = "NoData", "Prometheus answers and has nothing on this pool."
    STALE = "Stale", "The newest samples are too old to act on."
    AMBIGUOUS = "Ambiguous", "The samples contradict each other."
    SOURCE_DOWN = "SourceDown", "Prometheus does not answer."
    NO_SERIES = "NoSeries", "No series of the pool's pods exists."
    NOT_A_NUMBER = "NotANumber", "A signal is NaN."
    NOT_FINITE = "NotFinite", "A signal is infinite."
    NEGATIVE_VALUE = "NegativeValue", "A count is below zero."
    IMPLAUSIBLE_VALUE = "ImplausibleValue", "A signal is larger than any pool can show."
    MALFORMED_HISTOGRAM = "MalformedHistogram", "A histogram's buckets contradict each other."
    SAMPLES_TOO_OLD = "SamplesTooOld", "The newest samples are too old to act on: the pods are not being scraped."
    EVALUATION_FROZEN = (
        "EvaluationFrozen",
        "Prometheus repeats one evaluation: its clock or its rules stand still.",
    )
    WAITING_FOR_SAMPLES = "WaitingForSamples", "Pods are young; a rate needs more scrapes."
    TIMEOUT = "Timeout", "Prometheus did not answer in time."
    UNREACHABLE = "Unreachable", "Prometheus cannot be reached."
    AUTH_FAILED = "AuthFailed", "Prometheus refuses the operator's token."
    BAD_QUERY = "BadQuery", "Prometheus refuses the query."
    REDIRECTED = "Redirected", "Prometheus answered with a redirect, which is not followed."
    SERVER_ERROR = "ServerError", "Prometheus answered with an error of its own."
    BAD_ANSWER = "BadAnswer", "What answered does not speak the Prometheus API."
    # SLOMet, BudgetFrozen
    OBJECTIVES_MET = "ObjectivesMet", "Every promised latency is kept."
    OBJECTIVE_BURNING = "ObjectiveBurning", "An error budget burns faster than it may."
    TOO_FEW_REQUESTS = "TooFewRequests", "Too few requests to tell."
    TARGET_UNMEASURABLE = "TargetUnmeasurable", "The engine's buckets end below the threshold."
    BUDGET_LEFT = "BudgetLeft", "Enough of the error budget is left."
    BUDGET_LOW = "BudgetLow", "More than warnPercent of the error budget is spent."
    BUDGET_SPENT = "BudgetSpent", "More than freezePercent of the error budget is spent."
    # Resizing, and status.liveResize
    APPLIED = "Applied", "Every Ready pod shows the wanted limits."
    WAITING_FOR_PODS = "WaitingForPods", "Some pod has not shown the wanted limits yet."
    NOT_APPLIED = "NotApplied", "A pod does not show the wanted limits though its time is up."
    LIVE_RESIZE_SUPPORTED = "Supported", "The engine's limits are changed without a restart."
    LIVE_RESIZE_DISABLED = "Disabled", "spec.engine.liveResize is Disabled: a new limit restarts the pods."
    UNKNOWN_ENGINE_VERSION = (
        "UnknownEngineVersion",
        "The image tag does not tell the vLLM release: set spec.engine.version. A new limit restarts the pods.",
    )
    UNSUPPORTED_ENGINE_VERSION = "UnsupportedEngineVersion", "This vLLM release cannot be resized live."
    # ScalingLimited, and status.lastDecision: the values of tierkeeper.scaling.model.Reason
    STEADY = "Steady", "The promise is kept and nothing would be gained by a change."
    IDLE = "Idle", "Nothing arrives."
    FIXED = "Fixed", "spec.scaling.mode is Fixed."
    PAUSED = "Paused", "spec.scaling.mode is Paused."
    NO_OBJECTIVE = "NoObjective", "The tier promises no latency."
    HOLD_METRICS_UNKNOWN = "HoldMetricsUnknown", "Held: the signals cannot be believed."
    HOLD_RECOVERING = "HoldRecovering", "Held: a full clean window must pass after an outage of the metrics."
    HOLD_ROLLOUT = "HoldRollout", "Held: a rollout is under way."
    HOLD_STARTING = "HoldStarting", "Held: pods on their way count as capacity to come."
    HOLD_SETTLING = "HoldSettling", "Held: the last change has not shown its effect yet."
    HOLD_RESIZING = "HoldResizing", "Held: a live resize is not yet applied everywhere."
    HOLD_EXTERNAL_SCALER = "HoldExternalScaler", "Held: something else sets the pool's replicas."
    HOLD_STABILIZING = "HoldStabilizing", "Held: the load has not been low for long enough."
    HOLD_SURVIVORS = "HoldSurvivors", "Held: the remaining replicas could not carry the load."
    HOLD_EVIDENCE = "HoldEvidence", "Held: too few requests to justify fewer replicas."
    HOLD_UNSCHEDULABLE = "HoldUnschedulable", "Held: a pod asked for earlier finds no node, or waits at its gate."
    HOLD_BUDGET_FROZEN = "HoldBudgetFrozen", "Held: so much of the error budget is spent that only repair is allowed."
    HOLD_PRIORITY = "HoldPriority", "Held: a tier of higher priority needs the GPUs first."
    DEMAND_ADD_REPLICAS = "DemandAddReplicas", "More arrives, or soon will, than the replicas carry within the budget."
    QUEUE_BOUND_RAISE_CAP = "QueueBoundRaiseCap", "A queue burns TTFT; TPOT has room, or all are late: a larger batch."
    QUEUE_BOUND_ADD_REPLICAS = "QueueBoundAddReplicas", "TTFT burns in the queue and TPOT has no room: more replicas."
    PREFILL_BOUND_ADD_REPLICAS = "PrefillBoundAddReplicas", "TTFT burns in prefill: more replicas."
    TPOT_LOWER_TOKEN_BUDGET = "TpotLowerTokenBudget", "TPOT burns beside prompts: less prefill in a step."
    TPOT_LOWER_CAP = "TpotLowerCap", "TPOT burns from the batch itself: a smaller running batch."
    TPOT_ADD_REPLICAS = "TpotAddReplicas", "TPOT burns and the batch cannot shrink: more replicas."
    KV_PRESSURE_LOWER_CAP = "KvPressureLowerCap", "The KV cache preempts requests: a smaller running batch."
    KV_PRESSURE_ADD_REPLICAS = "KvPressureAddReplicas", "The KV cache preempts and the cap cannot fall: more replicas."
    TUNE_LIMITS = "TuneLimits", "The live limits are set to what measured steps allow for this mix of requests."
    RELAX_TOKEN_BUDGET = "RelaxTokenBudget", "TPOT has room again: more prefill in a step."
    RESTORE_CAP = "RestoreCap", "The cause of a changed cap is gone: back towards the engine's value."
    ROLL_BACK_CAP = "RollBackCap", "A raised cap did harm: back, and its bound is remembered."
    SCALE_DOWN = "ScaleDown", "Fewer replicas carry the load."
    YIELD_REPLICAS = "YieldReplicas", "Replicas make room for a higher tier that burns and has pods without a node."
    RELEASE_UNSCHEDULABLE = "ReleaseUnschedulable", "A pod got no node, or stood at its gate, for too long: given back."
    BACK_IN_BOUNDS = "BackInBounds", "What is set lies outside spec.scaling."
    AT_MAXIMUM = "AtMaximum", "The lever is at its maximum in spec.scaling."
    INFEASIBLE = "Infeasible", "A lone request already misses the target: no lever can help."


class Condition(ApiModel):
    """One condition, in the shape of meta/v1."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the condition is about."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", min_length=1, max_length=1024)]
    """One word of the closed set in the API reference."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """For people: what is so, and what to change."""
    last_transition_time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    observed_generation: Annotated[Int, Field(ge=0)] | None = None
    """The metadata.generation that the condition speaks of."""


def set_condition(
    conditions: Iterable[Condition],
    *,
    type: ConditionType,  # noqa: A002  (the API's own word)
    status: ConditionStatus | bool | None,
    reason: ConditionReason,
    message: str,
    generation: int,
    now_iso: str,
) -> tuple[Condition, ...]:
    """The conditions with one of them set, in the order of ConditionType; those of foreign types stay, at the end.

    ``status`` may be a bool, None meaning Unknown. ``now_iso`` (RFC 3339) becomes the transition time only where the
    status changes, so that setting the same twice gives an equal value and no write. Over-long messages are cut.
    """
    before = {condition.type: condition for condition in conditions}
    wanted = _status(status)
    old = before.get(type.value)
    before[type.value] = Condition(
        type=type.value,
        status=wanted,
        reason=reason.value,
        message=message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…",
        last_transition_time=old.last_transition_time if old is not None and old.status is wanted else now_iso,
        observed_generation=generation,
    )
    order = {known.value: place for place, known in enumerate(ConditionType)}
    return tuple(sorted(before.values(), key=lambda c: order.get(c.type, len(order))))


def find_condition(conditions: Iterable[Condition], type: ConditionType) -> Condition | None:  # noqa: A002
    """The condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == type.value), None)


def _status(status: ConditionStatus | bool | None) -> ConditionStatus:
    if isinstance(status, ConditionStatus):
        return status
    return {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}[status]
