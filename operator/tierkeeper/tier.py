"""What a tier is, as plain values: the vocabulary that every pure package shares.

The API models (``tierkeeper.api``) check and parse a ``ServiceTier``; they are converted to these
frozen dataclasses once, at the edge. Nothing here knows Kubernetes, a clock or a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class TierKey(NamedTuple):
    """Which tier: a value, never a joined string. A tuple, because it is looked up hundreds of times a tick."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Mode(StrEnum):
    """How far the loop may go."""

    AUTO = "Auto"
    """Decide and act."""
    RECOMMEND = "Recommend"
    """Decide and say so; act on nothing."""
    FIXED = "Fixed"
    """Hold replicas at ``min`` and the live limits at the engine's values."""
    PAUSED = "Paused"
    """Leave everything as it is, drift repair included."""


class LiveResize(StrEnum):
    AUTO = "Auto"
    DISABLED = "Disabled"


class OverflowPolicy(StrEnum):
    """What happens to the request that the tier has no room for."""

    QUEUE = "Queue"
    DEGRADE = "Degrade"
    REJECT = "Reject"
    DEFER = "Defer"


@dataclass(frozen=True, slots=True)
class Bounds:
    """An inclusive integer range; ``min <= max``."""

    min: int
    max: int

    def clamp(self, value: int) -> int:
        return self.min if value < self.min else self.max if value > self.max else value


@dataclass(frozen=True, slots=True)
class SecretKey:
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Model:
    """The weights a tier serves."""

    id: str
    served_name: str
    revision: str | None = None
    token_secret: SecretKey | None = None
    volume_claim: VolumeClaim | None = None


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """Shares of the error budget, in percent, at which the loop warns and at which it freezes voluntary change."""

    warn_percent: int = 50
    freeze_percent: int = 80


@dataclass(frozen=True, slots=True)
class Objective:
    """The promise. Each threshold is optional; ``None`` means the tier does not promise it.

    ``ratio`` is the share of requests that must meet a threshold, in (0, 1): 0.99 is a P99 objective.
    """

    ratio: float
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    window_days: int = 30
    budget: BudgetPolicy = BudgetPolicy()

    @property
    def error_budget(self) -> float:
        """Share of requests that may miss: 0.01 for a P99 objective."""
        return 1.0 - self.ratio


@dataclass(frozen=True, slots=True)
class EnvVar:
    """One environment variable; exactly one of ``value`` and ``value_from`` is set."""

    name: str
    value: str | None = None
    value_from: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """How vLLM is started."""

    image: str
    version: tuple[int, int, int] | None
    """vLLM release, from ``engine.version`` or the image tag; None where neither tells."""
    max_num_seqs: int
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    extra_args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    live_resize: LiveResize = LiveResize.AUTO
    image_pull_policy: str | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What one replica asks for. Quantities are Kubernetes quantity strings."""

    gpus_per_replica: int = 1
    gpu_resource_name: str = "nvidia.com/gpu"
    cpu: str | None = None
    memory: str | None = None
    shared_memory: str | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """What the loop may set."""

    mode: Mode
    replicas: Bounds
    max_num_seqs: Bounds
    max_num_batched_tokens: Bounds | None = None
    """None: the live token budget is left alone."""
    scale_down_stabilization_seconds: int = 300


@dataclass(frozen=True, slots=True)
class Overflow:
    policy: OverflowPolicy = OverflowPolicy.QUEUE
    max_queued_requests: int | None = None
    max_queued_tokens: int | None = None
    degrade_to: str | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    max_surge: int = 0
    max_unavailable: int = 1
    startup_seconds: int = 1800
    drain_seconds: int = 120


@dataclass(frozen=True, slots=True)
class PodOptions:
    """The few pod-template fields that a platform team needs; Kubernetes' own shapes, as dicts and lists."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] | None = None
    topology_spread_constraints: tuple[Mapping[str, Any], ...] = ()
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    service_account_name: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TierSpec:
    """One tier, checked: the pure core's view of a ServiceTier's ``spec``."""

    key: TierKey
    uid: str
    generation: int
    model: Model
    objective: Objective | None
    """None: the tier promises nothing (Batch)."""
    engine: Engine
    resources: Resources
    scaling: Scaling
    priority: int = 0
    reservation: bool = False
    overflow: Overflow = Overflow()
    rollout: Rollout = Rollout()
    pod: PodOptions = field(default_factory=PodOptions)

    @property
    def pool_name(self) -> str:
        """Name of the Deployment, Service and PDB: derived from the full tier name, fixed for life."""
        return f"{self.key.name}-pool"

    @property
    def limit_name(self) -> str:
        """Name of the ConfigMap that holds the live limits."""
        return f"{self.key.name}-pool-limit"

    @property
    def plugin_name(self) -> str:
        """Name of the ConfigMap that holds the vLLM plugin."""
        return f"{self.key.name}-pool-plugin"
