"""Constraints over more than one field, each in CEL for the API server and in Python for files and stored objects."""

from __future__ import annotations

import re
from typing import Any

from tierkeeper.api.base import Rule

CHILD_NAME_LIMIT = 40
"""Longest tier name. A pool's pod is ``<tier>-pool-<10 of the template's hash>-<5>``: 40 + 22 = 62 of 63 characters."""

NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label that starts with a letter, since a Service is named after the tier."""


def ordered_bounds(unit: str) -> Rule:
    """``min <= max``."""
    return Rule(
        cel="self.min <= self.max",
        message=f"min must not be above max: lower min or raise max of the {unit}",
        found="min %d, max %d",
        values=("self.min", "self.max"),
        broken=lambda s: None if s.min <= s.max else (s.min, s.max),
    )


# --- metadata -----------------------------------------------------------------------------------------------------

NAME_FITS = Rule(
    cel=f"self.metadata.name.matches('{NAME_PATTERN}') && size(self.metadata.name) <= {CHILD_NAME_LIMIT}",
    message=(
        "the tier's name must start with a letter, hold only a-z, 0-9 and -, and have at most "
        f"{CHILD_NAME_LIMIT} characters, since the pool's objects are named after it: choose another metadata.name"
    ),
    found="%s",
    values=("self.metadata.name",),
    broken=lambda tier: (
        None if re.fullmatch(NAME_PATTERN, tier.name) and len(tier.name) <= CHILD_NAME_LIMIT else (tier.name,)
    ),
)

DEGRADES_TO_ANOTHER = Rule(
    cel="!has(self.spec.overflow) || !has(self.spec.overflow.degradeTo) || "
    "self.spec.overflow.degradeTo != self.metadata.name",
    message="a tier cannot degrade to itself: name another tier in spec.overflow.degradeTo",
    found="%s",
    values=("self.spec.overflow.degradeTo",),
    broken=lambda tier: (tier.name,) if tier.spec.overflow.degrade_to == tier.name else None,
    field="spec.overflow.degradeTo",
)

# --- spec.slo -----------------------------------------------------------------------------------------------------

OBJECTIVE_PATTERN = "^[5-9][0-9]([.][0-9]{1,2})?$"
"""50 to 99.99: below a half it is no promise, and above that a month of most tiers has too few requests to tell."""

OBJECTIVE_IN_RANGE = Rule(
    cel=f"string(self.objectivePercent).matches('{OBJECTIVE_PATTERN}')",
    message="the objective must be 50 to 99.99 percent, as a whole number or as a quoted text such as '99.9'",
    found="%s",
    values=("string(self.objectivePercent)",),
    broken=lambda s: None if re.fullmatch(OBJECTIVE_PATTERN, s.objective_percent) else (s.objective_percent,),
    field="objectivePercent",
)

PROMISES_SOMETHING = Rule(
    cel="has(self.ttftMilliseconds) || has(self.tpotMilliseconds)",
    message="slo promises nothing: set ttftMilliseconds or tpotMilliseconds, or leave slo out for a best-effort tier",
    found="neither",
    values=(),
    broken=lambda s: () if s.ttft_milliseconds is None and s.tpot_milliseconds is None else None,
)

WARNS_BEFORE_IT_FREEZES = Rule(
    cel="self.freezePercent >= self.warnPercent",
    message="freezePercent must not be below warnPercent: raise freezePercent or lower warnPercent",
    found="warnPercent %d, freezePercent %d",
    values=("self.warnPercent", "self.freezePercent"),
    broken=lambda b: None if b.freeze_percent >= b.warn_percent else (b.warn_percent, b.freeze_percent),
)

# --- spec.engine --------------------------------------------------------------------------------------------------

OWNED_FLAGS: tuple[tuple[str, str], ...] = (
    ("model", "set spec.model.id"),
    ("served-model-name", "set spec.model.servedName"),
    ("revision", "set spec.model.revision"),
    ("max-num-seqs", "set spec.engine.maxNumSeqs and spec.scaling.maxNumSeqs"),
    ("max-num-active-seqs", "set spec.engine.maxNumSeqs and spec.scaling.maxNumSeqs"),
    ("max-num-batched-tokens", "set spec.engine.maxNumBatchedTokens"),
    ("max-model-len", "set spec.engine.maxModelLen"),
    ("tensor-parallel-size|-tp", "set spec.engine.tensorParallelSize"),
    ("pipeline-parallel-size|-pp", "set spec.engine.pipelineParallelSize"),
    ("max-num-queued-reqs", "set spec.overflow.maxQueuedRequests"),
    ("max-num-queued-tokens", "set spec.overflow.maxQueuedTokens"),
    ("shutdown-timeout", "set spec.rollout.drainSeconds"),
    ("custom-histogram-buckets", "set the thresholds in spec.slo, from which the buckets follow"),
    ("host", "remove it, since probes and the Service need the engine on the pod's address"),
    ("port", "remove it, since probes, Service and metrics use the operator's port"),
    ("uds", "remove it, since probes and the Service need the engine on the pod's address"),
    ("api-key", "set VLLM_API_KEY in spec.engine.env from a Secret"),
    ("disable-log-stats", "remove it, since without the engine's metrics no promise can be kept"),
)
"""Flags that the operator renders itself, and what to do instead. ``name|-short`` gives the short form too."""


def owned_flag(flag: str, instead: str) -> Rule:
    """``extraArgs`` must not carry a flag that the operator renders; vLLM takes ``_`` for ``-``, ``=`` for a space."""
    long, _, short = flag.partition("|")
    spelled = "--" + long.replace("-", "[-_]")
    pattern = f"^({spelled}|{short})(=|$)" if short else f"^{spelled}(=|$)"
    matcher = re.compile(pattern)

    def broken(engine: Any) -> tuple[str] | None:
        return next(((arg,) for arg in engine.extra_args if matcher.match(arg)), None)

    return Rule(
        cel=f"!has(self.extraArgs) || !self.extraArgs.exists(a, a.matches('{pattern}'))",
        message=f"--{long} belongs to the operator: {instead}",
        found="%s",
        values=(f"self.extraArgs.filter(a, a.matches('{pattern}'))[0]",),
        broken=broken,
        field="extraArgs",
    )


NO_RESERVED_VARIABLE = Rule(
    cel="!has(self.env) || !self.env.exists(e, e.name.startsWith('TIERKEEPER_'))",
    message="variables named TIERKEEPER_* belong to the operator: choose another name",
    found="%s",
    values=("self.env.filter(e, e.name.startsWith('TIERKEEPER_'))[0].name",),
    broken=lambda e: next(((v.name,) for v in e.env if v.name.startswith("TIERKEEPER_")), None),
    field="env",
)

ONE_SOURCE = Rule(
    cel="has(self.value) != has(self.valueFrom)",
    message="a variable needs a value or a valueFrom, and not both: set exactly one",
    found="%s",
    values=("self.name",),
    broken=lambda v: (v.name,) if (v.value is None) == (v.value_from is None) else None,
)

ONE_REFERENCE = Rule(
    cel="[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1",
    message="valueFrom needs exactly one of secretKeyRef, configMapKeyRef and fieldRef: keep one",
    found="%d set",
    values=("[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size()",),
    broken=lambda v: None if (n := len(v.to_dict())) == 1 else (n,),
)

# --- spec.overflow, spec.rollout ----------------------------------------------------------------------------------

DEGRADE_NAMES_A_TIER = Rule(
    cel="(self.policy == 'Degrade') == has(self.degradeTo)",
    message="degradeTo goes with policy Degrade and with no other: set both or neither",
    found="policy %s, degradeTo %s",
    values=("self.policy", "has(self.degradeTo) ? self.degradeTo : 'absent'"),
    broken=lambda o: (
        None if (o.policy == "Degrade") == (o.degrade_to is not None) else (o.policy.value, o.degrade_to or "absent")
    ),
)

ROLLOUT_CAN_MOVE = Rule(
    cel="self.maxSurge > 0 || self.maxUnavailable > 0",
    message="with maxSurge and maxUnavailable both 0 no pod can ever be replaced: set one of them to at least 1",
    found="both 0",
    values=(),
    broken=lambda r: None if r.max_surge > 0 or r.max_unavailable > 0 else (),
)

# --- spec.pod -----------------------------------------------------------------------------------------------------

_OUR_LABEL = "k.startsWith('tierkeeper.dev/') || k.startsWith('app.kubernetes.io/')"

LABELS_ARE_FREE = Rule(
    cel=f"!has(self.labels) || !self.labels.exists(k, {_OUR_LABEL})",
    message="labels under tierkeeper.dev/ and app.kubernetes.io/ belong to the operator: choose another key",
    found="%s",
    values=(f"self.labels.map(k, k).filter(k, {_OUR_LABEL})[0]",),
    broken=lambda p: next(((k,) for k in p.labels if k.startswith(("tierkeeper.dev/", "app.kubernetes.io/"))), None),
    field="labels",
)

ANNOTATIONS_ARE_FREE = Rule(
    cel="!has(self.annotations) || !self.annotations.exists(k, k.startsWith('tierkeeper.dev/'))",
    message="annotations under tierkeeper.dev/ belong to the operator: choose another key",
    found="%s",
    values=("self.annotations.map(k, k).filter(k, k.startsWith('tierkeeper.dev/'))[0]",),
    broken=lambda p: next(((k,) for k in p.annotations if k.startswith("tierkeeper.dev/")), None),
    field="annotations",
)

# --- spec, across its parts ---------------------------------------------------------------------------------------


def _outside(value: int | None, bounds: Any) -> bool:
    """Bounds that contradict themselves contain nothing, and are a problem of their own."""
    return (
        value is not None and bounds is not None and bounds.min <= bounds.max and not bounds.min <= value <= bounds.max
    )


STARTS_WITHIN_SEQS = Rule(
    cel="self.engine.maxNumSeqs >= self.scaling.maxNumSeqs.min && "
    "self.engine.maxNumSeqs <= self.scaling.maxNumSeqs.max",
    message="maxNumSeqs must start within spec.scaling.maxNumSeqs: move it, or widen the bounds",
    found="%d, bounds %d to %d",
    values=("self.engine.maxNumSeqs", "self.scaling.maxNumSeqs.min", "self.scaling.maxNumSeqs.max"),
    broken=lambda s: (
        (s.engine.max_num_seqs, s.scaling.max_num_seqs.min, s.scaling.max_num_seqs.max)
        if _outside(s.engine.max_num_seqs, s.scaling.max_num_seqs)
        else None
    ),
    field="engine.maxNumSeqs",
)

STARTS_WITHIN_TOKENS = Rule(
    cel="!has(self.engine.maxNumBatchedTokens) || !has(self.scaling.maxNumBatchedTokens) || "
    "(self.engine.maxNumBatchedTokens >= self.scaling.maxNumBatchedTokens.min && "
    "self.engine.maxNumBatchedTokens <= self.scaling.maxNumBatchedTokens.max)",
    message="maxNumBatchedTokens must start within spec.scaling.maxNumBatchedTokens: move it, or widen the bounds",
    found="%d, bounds %d to %d",
    values=(
        "self.engine.maxNumBatchedTokens",
        "self.scaling.maxNumBatchedTokens.min",
        "self.scaling.maxNumBatchedTokens.max",
    ),
    broken=lambda s: (
        (
            s.engine.max_num_batched_tokens,
            s.scaling.max_num_batched_tokens.min,
            s.scaling.max_num_batched_tokens.max,
        )
        if _outside(s.engine.max_num_batched_tokens, s.scaling.max_num_batched_tokens)
        else None
    ),
    field="engine.maxNumBatchedTokens",
)

ENGINE_TOKENS_HOLD_THE_BATCH = Rule(
    cel="!has(self.engine.maxNumBatchedTokens) || self.engine.maxNumBatchedTokens >= self.scaling.maxNumSeqs.max",
    message="vLLM refuses to start with fewer batched tokens than sequences: raise maxNumBatchedTokens to at least "
    "spec.scaling.maxNumSeqs.max, or lower that",
    found="%d tokens, %d sequences",
    values=("self.engine.maxNumBatchedTokens", "self.scaling.maxNumSeqs.max"),
    broken=lambda s: (
        (s.engine.max_num_batched_tokens, s.scaling.max_num_seqs.max)
        if s.engine.max_num_batched_tokens is not None and s.engine.max_num_batched_tokens < s.scaling.max_num_seqs.max
        else None
    ),
    field="engine.maxNumBatchedTokens",
)

SCALED_TOKENS_HOLD_THE_BATCH = Rule(
    cel="!has(self.scaling.maxNumBatchedTokens) || self.scaling.maxNumBatchedTokens.max >= self.scaling.maxNumSeqs.max",
    message="the engine starts with maxNumBatchedTokens.max, and vLLM refuses fewer batched tokens than sequences: "
    "raise it to at least spec.scaling.maxNumSeqs.max",
    found="%d tokens, %d sequences",
    values=("self.scaling.maxNumBatchedTokens.max", "self.scaling.maxNumSeqs.max"),
    broken=lambda s: (
        (s.scaling.max_num_batched_tokens.max, s.scaling.max_num_seqs.max)
        if s.scaling.max_num_batched_tokens is not None
        and s.scaling.max_num_batched_tokens.max < s.scaling.max_num_seqs.max
        else None
    ),
    field="scaling.maxNumBatchedTokens",
)

TOKENS_FEED_THE_SMALLEST_BATCH = Rule(
    # A decoding sequence takes one token a step. The loop keeps the budget at or above the cap in force, so the lowest
    # budget it can ever use is the lowest cap; a minimum below that says something that can never happen.
    cel="!has(self.scaling.maxNumBatchedTokens) || self.scaling.maxNumBatchedTokens.min >= self.scaling.maxNumSeqs.min",
    message="a step must hold one token for each running sequence: raise maxNumBatchedTokens.min to at least "
    "spec.scaling.maxNumSeqs.min",
    found="%d tokens, %d sequences",
    values=("self.scaling.maxNumBatchedTokens.min", "self.scaling.maxNumSeqs.min"),
    broken=lambda s: (
        (s.scaling.max_num_batched_tokens.min, s.scaling.max_num_seqs.min)
        if s.scaling.max_num_batched_tokens is not None
        and s.scaling.max_num_batched_tokens.min < s.scaling.max_num_seqs.min
        else None
    ),
    field="scaling.maxNumBatchedTokens",
)

_GPUS = "(has(self.resources) ? self.resources.gpusPerReplica : 1)"
_RANKS = "self.engine.tensorParallelSize * self.engine.pipelineParallelSize"

RANKS_HAVE_GPUS = Rule(
    cel=f"{_GPUS} == 0 || {_RANKS} <= {_GPUS}",
    message="every tensor and pipeline rank needs a GPU of its own: raise spec.resources.gpusPerReplica, or lower "
    "tensorParallelSize or pipelineParallelSize",
    found="%d ranks, %d GPUs",
    values=(_RANKS, _GPUS),
    broken=lambda s: (
        (ranks, s.resources.gpus_per_replica)
        if s.resources.gpus_per_replica
        and (ranks := s.engine.tensor_parallel_size * s.engine.pipeline_parallel_size) > s.resources.gpus_per_replica
        else None
    ),
)

ONE_MODEL_TOKEN = Rule(
    cel="!has(self.model.tokenSecretRef) || !has(self.engine.env) || !self.engine.env.exists(e, e.name == 'HF_TOKEN')",
    message="spec.model.tokenSecretRef already sets HF_TOKEN: remove one of the two",
    found="HF_TOKEN",
    values=(),
    broken=lambda s: (
        () if s.model.token_secret_ref is not None and any(v.name == "HF_TOKEN" for v in s.engine.env) else None
    ),
    field="engine.env",
)
