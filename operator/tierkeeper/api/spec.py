"""The ``spec`` of a ServiceTier: integers with the unit in the name, no floats, no duration strings."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from tierkeeper.api import constraints
from tierkeeper.api.base import INT_OR_STRING, ApiModel, Bool, Int, Rule, keyed_list, whole_number_as_text
from tierkeeper.api.pod import DNS_LABEL, ObjectName, Pod
from tierkeeper.tier import LiveResize, Mode, OverflowPolicy

Percent = Annotated[Int, Field(ge=1, le=100)]

_QUANTITY = r"^[0-9]{1,12}(\.[0-9]{1,9})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
Quantity = Annotated[
    str,
    Field(max_length=32, pattern=_QUANTITY),
    BeforeValidator(whole_number_as_text),
    Field(json_schema_extra={**INT_OR_STRING, "minimum": 0, "maximum": 999_999_999_999}),
]
"""A Kubernetes quantity: a whole number, or a text such as 500m or 24Gi."""

Name = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s-][^\x00-\x1f\x7f]*$")]
"""A model's name: anything printable that no command line takes for a flag."""

_SECRET_KEY = r"^[-._a-zA-Z0-9]+$"  # noqa: S105  (a pattern)
SecretKeyName = Annotated[str, Field(min_length=1, max_length=253, pattern=_SECRET_KEY)]


class ImagePullPolicy(StrEnum):
    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class TokenSecretRef(ApiModel):
    """A key of a Secret in the tier's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: SecretKeyName = "token"
    """Key within the Secret."""


class VolumeClaim(ApiModel):
    """A PersistentVolumeClaim with model weights."""

    name: ObjectName
    """Name of the claim, in the tier's namespace."""
    path: Annotated[str, Field(min_length=2, max_length=512, pattern=r"^/[A-Za-z0-9._/-]+$")]
    """Where the claim is mounted in the container."""


class Model(ApiModel):
    """The weights that the tier serves. Changing any field replaces the pool's pods."""

    id: Name
    """Model name on the hub, or a path in the container."""
    served_name: Name | None = None
    """Name by which clients ask for the model; the id where absent."""
    revision: Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] | None = None
    """Branch, tag or commit on the hub."""
    token_secret_ref: TokenSecretRef | None = None
    """Secret with the hub's token, given to the engine as HF_TOKEN."""
    volume_claim: VolumeClaim | None = None
    """Claim with the weights."""


class BudgetPolicy(ApiModel):
    """Shares of the period's error budget at which the loop reacts."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.WARNS_BEFORE_IT_FREEZES,)

    warn_percent: Percent = 50
    """Spent share from which the loop warns."""
    freeze_percent: Percent = 80
    """Spent share from which voluntary change is forbidden."""


class Slo(ApiModel):
    """The promise: a share of all requests meets each threshold."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.OBJECTIVE_IN_RANGE, constraints.PROMISES_SOMETHING)

    objective_percent: Annotated[
        str, Field(max_length=5), BeforeValidator(whole_number_as_text), Field(json_schema_extra={**INT_OR_STRING})
    ] = "99"
    """Percentage of requests that must meet the thresholds: 99 makes them P99 targets; also a text such as "99.9"."""
    ttft_milliseconds: Annotated[Int, Field(ge=1, le=3_600_000)] | None = None
    """Longest time to first token, waiting included."""
    tpot_milliseconds: Annotated[Int, Field(ge=1, le=60_000)] | None = None
    """Longest time per output token of a request."""
    window_days: Annotated[Int, Field(ge=1, le=90)] = 30
    """Period of the error budget."""
    budget_policy: BudgetPolicy = BudgetPolicy()
    """Shares of the period's error budget at which the loop reacts."""


class KeyReference(ApiModel):
    """A key of a Secret or ConfigMap in the tier's namespace."""

    name: ObjectName
    """Name of the object."""
    key: SecretKeyName
    """Key within it."""
    optional: Bool | None = None
    """Whether the pod starts without it."""


class FieldReference(ApiModel):
    """A field of the pod itself."""

    field_path: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-zA-Z][a-zA-Z0-9.'\[\]/_-]*$")]
    """Its path, such as metadata.name."""


class EnvVarSource(ApiModel):
    """Where a variable's value comes from."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.ONE_REFERENCE,)

    secret_key_ref: KeyReference | None = None
    """A key of a Secret."""
    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap."""
    field_ref: FieldReference | None = None
    """A field of the pod."""


class EnvVar(ApiModel):
    """One variable of the engine's environment."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.ONE_SOURCE,)

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Its name."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value."""
    value_from: EnvVarSource | None = None
    """Where its value comes from."""


class Engine(ApiModel):
    """How vLLM is started. Changing any field but maxNumSeqs replaces the pool's pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *(constraints.owned_flag(flag, instead) for flag, instead in constraints.OWNED_FLAGS),
        constraints.NO_RESERVED_VARIABLE,
    )

    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$")]
    """Image with vLLM. Its flags and live limits depend on the vLLM release, which is read from the tag."""
    image_pull_policy: ImagePullPolicy | None = None
    """When the image is pulled; Kubernetes decides where absent."""
    version: Annotated[str, Field(max_length=32, pattern=r"^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}$")] | None = None
    """vLLM release in the image, such as "0.32.0": set it where the tag is a digest or a number of your own."""
    max_num_seqs: Annotated[Int, Field(ge=1, le=4096)]
    """Running batch that the tier starts with, within scaling.maxNumSeqs."""
    max_num_batched_tokens: Annotated[Int, Field(ge=1, le=1_048_576)] | None = None
    """Tokens that a step may hold when the tier starts; vLLM decides where absent."""
    max_model_len: Annotated[Int, Field(ge=1, le=16_777_216)] | None = None
    """Longest context in tokens; the model's own where absent."""
    tensor_parallel_size: Annotated[Int, Field(ge=1, le=64)] = 1
    """GPUs that share each layer."""
    pipeline_parallel_size: Annotated[Int, Field(ge=1, le=64)] = 1
    """Stages that the layers are split into."""
    extra_args: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(max_length=64)] = ()
    """More flags for vllm serve, as given. Flags that the operator sets are refused."""
    env: Annotated[tuple[EnvVar, ...], *keyed_list("name", max_length=64)] = ()
    """More variables of the engine's environment. PYTHONPATH and VLLM_PLUGINS are kept, beside the
    operator's own entry."""
    live_resize: LiveResize = LiveResize.AUTO
    """Auto changes the live limits without a restart where the release allows it; Disabled always restarts."""


class Resources(ApiModel):
    """What one replica asks for."""

    gpus_per_replica: Annotated[Int, Field(ge=0, le=64)] = 1
    """Devices for each replica."""
    gpu_resource_name: Annotated[
        str,
        Field(
            min_length=3,
            max_length=253,
            pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        ),
    ] = "nvidia.com/gpu"
    """Extended resource that counts the devices."""
    cpu: Quantity | None = None
    """CPU request."""
    memory: Quantity | None = None
    """Memory request and limit."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm, which tensor parallelism needs."""


class ReplicaBounds(ApiModel):
    """Fewest and most replicas."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.ordered_bounds("replicas"),)

    min: Annotated[Int, Field(ge=1, le=1000)]
    """Fewest replicas."""
    max: Annotated[Int, Field(ge=1, le=1000)]
    """Most replicas."""


class SeqsBounds(ApiModel):
    """Smallest and largest running batch of a replica."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.ordered_bounds("running batch"),)

    min: Annotated[Int, Field(ge=1, le=4096)]
    """Smallest running batch."""
    max: Annotated[Int, Field(ge=1, le=4096)]
    """Largest running batch; the engine starts with it as --max-num-seqs."""


class TokenBounds(ApiModel):
    """Fewest and most tokens in a step of a replica."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.ordered_bounds("token budget"),)

    min: Annotated[Int, Field(ge=1, le=1_048_576)]
    """Smallest token budget. The loop in addition never goes below the running batch in force."""
    max: Annotated[Int, Field(ge=1, le=1_048_576)]
    """Largest token budget; the engine starts with it as --max-num-batched-tokens."""


class Scaling(ApiModel):
    """What the loop may set."""

    mode: Mode = Mode.AUTO
    """Auto acts; Recommend only says what it would do; Fixed holds min replicas and the engine's limits; Paused leaves
    everything as it is, drift included."""
    replicas: ReplicaBounds
    """Fewest and most replicas."""
    max_num_seqs: SeqsBounds
    """Smallest and largest running batch of a replica."""
    max_num_batched_tokens: TokenBounds | None = None
    """Fewest and most tokens in a step of a replica; absent, the loop leaves the engine's value alone."""
    scale_down_stabilization_seconds: Annotated[Int, Field(ge=0, le=86_400)] = 300
    """How long the load must have been low before a replica goes."""


class Overflow(ApiModel):
    """What happens to requests that the tier has no room for."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.DEGRADE_NAMES_A_TIER,)

    policy: OverflowPolicy = OverflowPolicy.QUEUE
    """Queue lets them wait; Reject answers 503. Defer lets them wait too, and the tier gets more replicas only from
    GPUs that no other tier asks for. Degrade is checked and kept for a front door; the operator lets them wait."""
    max_queued_requests: Annotated[Int, Field(ge=0, le=1_000_000)] | None = None
    """Requests that may wait in a replica before it answers 503 (vLLM 0.29 and later). Reject without a limit lets none
    wait; the others without a limit let any number wait."""
    max_queued_tokens: Annotated[Int, Field(ge=1, le=1_000_000_000)] | None = None
    """Prompt tokens that may wait in a replica before it answers 503 (vLLM 0.29 and later)."""
    degrade_to: Annotated[str, Field(max_length=40, pattern=constraints.NAME_PATTERN)] | None = None
    """Tier in the same namespace meant to take what this one cannot. Checked and kept, not acted upon by the
    operator."""


class Ramp(ApiModel):
    """How fast a front door should let this tier's traffic grow."""

    max_increase_percent: Annotated[Int, Field(ge=1, le=1000)] = 50
    """Growth allowed in a window."""
    window_minutes: Annotated[Int, Field(ge=1, le=1440)] = 15
    """Length of the window."""
    min_tokens_per_minute: Annotated[Int, Field(ge=0, le=1_000_000_000)] = 1_000_000
    """Traffic below which the ramp does not apply."""


class GatewayRef(ApiModel):
    """A Gateway of the Gateway API."""

    name: ObjectName
    """Its name."""
    namespace: Annotated[str, Field(max_length=63, pattern=DNS_LABEL)] | None = None
    """Its namespace; the tier's where absent."""


class Routing(ApiModel):
    """How a front door finds this tier."""

    gateway_ref: GatewayRef
    """Gateway that carries the route."""
    header_name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9-]+$")] = "x-service-tier"
    """Request header that names the tier."""
    header_value: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[!-~]+$")] | None = None
    """Value that means this tier; the tier's name where absent."""
    default: Bool = False
    """Whether requests without the header come here."""


class Rollout(ApiModel):
    """How pods are replaced."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.ROLLOUT_CAN_MOVE,)

    max_surge: Annotated[Int, Field(ge=0, le=100)] = 0
    """Pods above the wanted number while rolling out; they need GPUs of their own."""
    max_unavailable: Annotated[Int, Field(ge=0, le=100)] = 1
    """Pods below the wanted number while rolling out."""
    startup_seconds: Annotated[Int, Field(ge=10, le=86_400)] = 1800
    """Longest time from the container's start until the model is loaded."""
    drain_seconds: Annotated[Int, Field(ge=0, le=3600)] = 120
    """Time that running requests have to finish when a pod goes. The pod's grace period is derived from it."""


class ServiceTierSpec(ApiModel):
    """What is wanted."""

    rules: ClassVar[tuple[Rule, ...]] = (
        constraints.STARTS_WITHIN_SEQS,
        constraints.STARTS_WITHIN_TOKENS,
        constraints.ENGINE_TOKENS_HOLD_THE_BATCH,
        constraints.SCALED_TOKENS_HOLD_THE_BATCH,
        constraints.TOKENS_FEED_THE_SMALLEST_BATCH,
        constraints.RANKS_HAVE_GPUS,
        constraints.ONE_MODEL_TOKEN,
    )

    model: Model
    """The weights that the tier serves."""
    slo: Slo | None = None
    """The promise. Absent, the tier promises nothing and is scaled for throughput alone."""
    engine: Engine
    """How vLLM is started."""
    resources: Resources = Resources()
    """What one replica asks for."""
    scaling: Scaling
    """What the loop may set."""
    priority: Annotated[Int, Field(ge=0, le=1000)] = 0
    """Order between tiers of one GPU resource and one node selector: higher first. No tier adds replicas while a higher
    one burns or, where GPUs are short, asks for them; one that burns and finds no node gets replicas that lower ones
    have above their minimum. The pods' PriorityClass is spec.pod.priorityClassName."""
    reservation: Bool = False
    """Whether the tier's minimum is never lent to another tier. Checked and kept, not acted upon by the operator: it
    takes from no tier what its minimum asks for."""
    overflow: Overflow = Overflow()
    """What happens to requests that the tier has no room for."""
    ramp: Ramp | None = None
    """How fast a front door should let this tier's traffic grow. Checked and kept, not acted upon by the operator."""
    routing: Routing | None = None
    """How a front door finds this tier. Checked and kept, not acted upon by the operator."""
    rollout: Rollout = Rollout()
    """How pods are replaced."""
    pod: Pod = Pod()
    """Chosen fields of the pool's pods."""
