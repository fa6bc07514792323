"""The decision and what it is made from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from tierkeeper.slo.model import Traffic
from tierkeeper.values import value


class Lever(StrEnum):
    NONE = "None"
    REPLICAS = "Replicas"
    MAX_NUM_SEQS = "MaxNumSeqs"
    TOKEN_BUDGET = "TokenBudget"  # noqa: S105  (not a password)


@value(frozen=True, slots=True)
class Levers:
    """A setting of all three levers."""

    replicas: int
    max_num_seqs: int
    max_num_batched_tokens: int | None = None
    """None: the engine's own value, never touched."""

    def with_replicas(self, replicas: int) -> Levers:
        """The same limits with so many replicas: several times a tick, for a quarter of ``dataclasses.replace``."""
        return Levers(replicas, self.max_num_seqs, self.max_num_batched_tokens)

    def has_limits_of(self, other: Levers) -> bool:
        """Whether both live limits are the same."""
        return self.max_num_seqs == other.max_num_seqs and self.max_num_batched_tokens == other.max_num_batched_tokens


@value(frozen=True, slots=True)
class PoolState:
    """One pool as the cluster shows it."""

    current: Levers
    """What is set now: the Deployment's ``spec.replicas`` and the limit ConfigMap, never a status count."""
    ready: int
    unschedulable: int = 0
    unschedulable_message: str = ""
    """What keeps them from a node, and who says so: "scheduler: 0/3 nodes are available"."""
    failing: int = 0
    """Pods that crash-loop, cannot pull or were rejected: not capacity, not in flight."""
    rolling_out: bool = False
    """The template changed and not every pod runs it yet."""
    resizing: bool = False
    """Some Ready pod has not yet shown the wanted live limits."""
    live_resize: bool = True
    """The engine can be resized live; otherwise a cap change is a rolling restart."""
    external_scaler: str | None = None
    """Field manager of something else that sets replicas."""
    startup_seconds: float | None = None
    """How long the Ready pods took from created to Ready, by their own objects; None where they do not tell."""


def serving(pool: PoolState, traffic: Traffic) -> int:
    """Pods that carry the load, at least one so that it may divide. One whose readiness probe fails may still serve."""
    return max(pool.ready, traffic.observed_pods, 1)


class Reason(StrEnum):
    """Why a decision is what it is: a closed set; each has its paragraph in docs/reasons.md."""

    STEADY = "Steady"
    IDLE = "Idle"
    FIXED = "Fixed"
    PAUSED = "Paused"
    NO_OBJECTIVE = "NoObjective"
    HOLD_METRICS_UNKNOWN = "HoldMetricsUnknown"
    HOLD_RECOVERING = "HoldRecovering"
    HOLD_ROLLOUT = "HoldRollout"
    HOLD_STARTING = "HoldStarting"
    HOLD_SETTLING = "HoldSettling"
    HOLD_RESIZING = "HoldResizing"
    HOLD_EXTERNAL_SCALER = "HoldExternalScaler"
    HOLD_STABILIZING = "HoldStabilizing"
    HOLD_SURVIVORS = "HoldSurvivors"
    HOLD_EVIDENCE = "HoldEvidence"
    HOLD_UNSCHEDULABLE = "HoldUnschedulable"
    HOLD_BUDGET_FROZEN = "HoldBudgetFrozen"
    HOLD_PRIORITY = "HoldPriority"
    DEMAND_ADD_REPLICAS = "DemandAddReplicas"
    QUEUE_BOUND_RAISE_CAP = "QueueBoundRaiseCap"
    QUEUE_BOUND_ADD_REPLICAS = "QueueBoundAddReplicas"
    PREFILL_BOUND_ADD_REPLICAS = "PrefillBoundAddReplicas"
    TPOT_LOWER_TOKEN_BUDGET = "TpotLowerTokenBudget"  # noqa: S105
    TPOT_LOWER_CAP = "TpotLowerCap"
    TPOT_ADD_REPLICAS = "TpotAddReplicas"
    KV_PRESSURE_LOWER_CAP = "KvPressureLowerCap"
    KV_PRESSURE_ADD_REPLICAS = "KvPressureAddReplicas"
    ROLL_BACK_CAP = "RollBackCap"
    TUNE_LIMITS = "TuneLimits"
    RELAX_TOKEN_BUDGET = "RelaxTokenBudget"  # noqa: S105
    RESTORE_CAP = "RestoreCap"
    SCALE_DOWN = "ScaleDown"
    YIELD_REPLICAS = "YieldReplicas"
    RELEASE_UNSCHEDULABLE = "ReleaseUnschedulable"
    BACK_IN_BOUNDS = "BackInBounds"
    AT_MAXIMUM = "AtMaximum"
    INFEASIBLE = "Infeasible"


@value(frozen=True, slots=True)
class Limit:
    """Why the wanted change could not be made: the ScalingLimited condition, verbatim."""

    reason: Reason
    message: str


class Basis(Protocol):
    """What a decision was made from."""

    def figures(self) -> Mapping[str, float]: ...


@value(frozen=True, slots=False)
class Decision:
    """Value + reason + message. This one text is what condition, Event, log line and metric say."""

    levers: Levers
    reason: Reason
    message: str
    changed: tuple[Lever, ...] = ()
    """Levers that differ from what is set now, empty for a hold."""
    limited: Limit | None = None
    basis: Basis | None = None

    @property
    def inputs(self) -> Mapping[str, float]:
        """The figures the decision rests on, by camelCase name, for status.lastDecision: put together when somebody
        asks, as a status is written once a minute."""
        return {} if self.basis is None else self.basis.figures()
