"""The rules across fields: for each the nearest tier that is accepted and the nearest that is refused.

A refusal is the rule's whole message with the values found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.api.contract import REMOVE, Case
from tierkeeper.api import constraints
from tierkeeper.api.base import ApiModel, Rule
from tierkeeper.api.pod import Pod
from tierkeeper.api.resource import ServiceTier
from tierkeeper.api.spec import (
    BudgetPolicy,
    Engine,
    EnvVar,
    EnvVarSource,
    Overflow,
    ReplicaBounds,
    Rollout,
    SeqsBounds,
    ServiceTierSpec,
    Slo,
    TokenBounds,
)

_PLACES: dict[type[ApiModel], str] = {
    ServiceTier: "",
    ServiceTierSpec: "spec",
    Slo: "spec.slo",
    BudgetPolicy: "spec.slo.budgetPolicy",
    Engine: "spec.engine",
    EnvVar: "spec.engine.env[]",
    EnvVarSource: "spec.engine.env[].valueFrom",
    ReplicaBounds: "spec.scaling.replicas",
    SeqsBounds: "spec.scaling.maxNumSeqs",
    TokenBounds: "spec.scaling.maxNumBatchedTokens",
    Overflow: "spec.overflow",
    Rollout: "spec.rollout",
    Pod: "spec.pod",
}

_NO_TOKENS: dict[str, Any] = {
    "spec.scaling.maxNumBatchedTokens": REMOVE,
    "spec.engine.maxNumBatchedTokens": REMOVE,
}


def _pair(
    name: str, on: type[ApiModel], rule: Rule, *, ok: dict[str, Any], bad: dict[str, Any], found: str
) -> Iterator[Case]:
    covers = f"{_PLACES[on]}:{rule.message}"
    yield Case(f"{name}-ok", covers, ok)
    yield Case(f"{name}-broken", covers, bad, re.escape(f"{rule.message} (found {found})"))


def rule_cases() -> list[Case]:
    """Every case of every rule."""
    return [
        *_metadata(),
        *_slo(),
        *_engine(),
        *_owned_flags(),
        *_bounds(),
        *_overflow_and_rollout(),
        *_pod(),
        *_across(),
    ]


def _metadata() -> Iterator[Case]:
    rule = constraints.NAME_FITS
    longest = "a" * 40
    for name, bad in (("too-long", longest + "b"), ("digit-first", "1gold"), ("with-dot", "gold.eu")):
        yield from _pair(
            f"name-{name}",
            ServiceTier,
            rule,
            ok={"metadata.name": longest},
            bad={"metadata.name": bad},
            found=bad,
        )
    yield from _pair(
        "degrade-to-itself",
        ServiceTier,
        constraints.DEGRADES_TO_ANOTHER,
        ok={"spec.overflow.degradeTo": "batch"},
        bad={"spec.overflow.degradeTo": "gold"},
        found="gold",
    )


def _slo() -> Iterator[Case]:
    rule = constraints.OBJECTIVE_IN_RANGE
    tries = ((50, 49), (99, 100), ("50", "49.9"), ("99.99", "100.0"), ("99.9", "99,9"), ("50.0", ""))
    for ok, bad in tries:
        yield from _pair(
            f"objective-{bad}",
            Slo,
            rule,
            ok={"spec.slo.objectivePercent": ok},
            bad={"spec.slo.objectivePercent": bad},
            found=str(bad),
        )
    yield from _pair(
        "slo-without-threshold",
        Slo,
        constraints.PROMISES_SOMETHING,
        ok={"spec.slo.ttftMilliseconds": REMOVE},
        bad={"spec.slo.ttftMilliseconds": REMOVE, "spec.slo.tpotMilliseconds": REMOVE},
        found="neither",
    )
    yield from _pair(
        "freeze-before-warn",
        BudgetPolicy,
        constraints.WARNS_BEFORE_IT_FREEZES,
        ok={"spec.slo.budgetPolicy": {"warnPercent": 80, "freezePercent": 80}},
        bad={"spec.slo.budgetPolicy": {"warnPercent": 81, "freezePercent": 80}},
        found="warnPercent 81, freezePercent 80",
    )
    yield Case(
        "freeze-below-the-default-warning",
        f"spec.slo.budgetPolicy:{constraints.WARNS_BEFORE_IT_FREEZES.message}",
        {"spec.slo.budgetPolicy": {"freezePercent": 40}},
        re.escape("(found warnPercent 50, freezePercent 40)"),
    )


def _engine() -> Iterator[Case]:
    yield from _pair(
        "reserved-variable",
        Engine,
        constraints.NO_RESERVED_VARIABLE,
        ok={"spec.engine.env": [{"name": "PYTHONPATH", "value": "/opt"}, {"name": "MY_TIERKEEPER_", "value": ""}]},
        bad={"spec.engine.env": [{"name": "A", "value": "1"}, {"name": "TIERKEEPER_LIMIT", "value": "1"}]},
        found="TIERKEEPER_LIMIT",
    )
    for name, variable in (
        ("neither", {"name": "X"}),
        ("both", {"name": "X", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
    ):
        yield from _pair(
            f"variable-with-{name}",
            EnvVar,
            constraints.ONE_SOURCE,
            ok={"spec.engine.env": [{"name": "X", "value": ""}]},
            bad={"spec.engine.env": [variable]},
            found="X",
        )
    reference = {"name": "s", "key": "k"}
    for sources in ({}, {"secretKeyRef": reference, "configMapKeyRef": reference}):
        yield from _pair(
            f"value-from-{len(sources)}-sources",
            EnvVarSource,
            constraints.ONE_REFERENCE,
            ok={"spec.engine.env": [{"name": "X", "valueFrom": {"secretKeyRef": reference}}]},
            bad={"spec.engine.env": [{"name": "X", "valueFrom": sources}]},
            found=f"{len(sources)} set",
        )


def _owned_flags() -> Iterator[Case]:
    for flag, instead in constraints.OWNED_FLAGS:
        rule = constraints.owned_flag(flag, instead)
        long, _, short = flag.partition("|")
        forms = (f"--{long}", f"--{long}=7", f"--{long.replace('-', '_')}=7", *([short, f"{short}=7"] if short else []))
        for form in dict.fromkeys(forms):
            yield from _pair(
                f"extra-args-{form}",
                Engine,
                rule,
                ok={"spec.engine.extraArgs": [f"--{long}-like", f"--x={form}", f"value {form}"]},
                bad={"spec.engine.extraArgs": ["--enable-lora", form, "7"]},
                found=form,
            )


def _bounds() -> Iterator[Case]:
    replicas, seqs, tokens = "spec.scaling.replicas", "spec.scaling.maxNumSeqs", "spec.scaling.maxNumBatchedTokens"
    yield from _pair(
        "replicas-min-above-max",
        ReplicaBounds,
        ReplicaBounds.rules[0],
        ok={replicas: {"min": 4, "max": 4}},
        bad={replicas: {"min": 5, "max": 4}},
        found="min 5, max 4",
    )
    yield from _pair(
        "seqs-min-above-max",
        SeqsBounds,
        SeqsBounds.rules[0],
        ok={seqs: {"min": 64, "max": 64}},
        bad={seqs: {"min": 65, "max": 64}},
        found="min 65, max 64",
    )
    yield from _pair(
        "tokens-min-above-max",
        TokenBounds,
        TokenBounds.rules[0],
        ok={tokens: {"min": 8192, "max": 8192}},
        bad={tokens: {"min": 8193, "max": 8192}},
        found="min 8193, max 8192",
    )


def _overflow_and_rollout() -> Iterator[Case]:
    limit = {"maxQueuedRequests": 10}
    yield from _pair(
        "degrade-to-nothing",
        Overflow,
        constraints.DEGRADE_NAMES_A_TIER,
        ok={"spec.overflow": {"policy": "Degrade", "degradeTo": "standard"}},
        bad={"spec.overflow": {"policy": "Degrade"}},
        found="policy Degrade, degradeTo absent",
    )
    for policy in ("Queue", "Reject", "Defer"):
        yield from _pair(
            f"degrade-to-with-{policy}",
            Overflow,
            constraints.DEGRADE_NAMES_A_TIER,
            ok={"spec.overflow": {"policy": policy, **limit}},
            bad={"spec.overflow": {"policy": policy, **limit, "degradeTo": "standard"}},
            found=f"policy {policy}, degradeTo standard",
        )
    yield from _pair(
        "degrade-to-without-policy",
        Overflow,
        constraints.DEGRADE_NAMES_A_TIER,
        ok={"spec.overflow": {}},
        bad={"spec.overflow": {"degradeTo": "standard"}},
        found="policy Queue, degradeTo standard",
    )
    yield from _pair(
        "rollout-cannot-move",
        Rollout,
        constraints.ROLLOUT_CAN_MOVE,
        ok={"spec.rollout": {"maxSurge": 1, "maxUnavailable": 0}},
        bad={"spec.rollout": {"maxSurge": 0, "maxUnavailable": 0}},
        found="both 0",
    )
    yield Case(
        "rollout-in-percent",
        "spec.rollout.maxSurge:type",
        {"spec.rollout": {"maxSurge": "0%", "maxUnavailable": "0%"}},
        "must be of type integer",
    )


def _pod() -> Iterator[Case]:
    for key in ("tierkeeper.dev/tier", "app.kubernetes.io/name"):
        yield from _pair(
            f"label-{key}",
            Pod,
            constraints.LABELS_ARE_FREE,
            ok={"spec.pod.labels": {"tier": "x", "example.com/app.kubernetes.io": "x"}},
            bad={"spec.pod.labels": {"a": "x", key: "x"}},
            found=key,
        )
    yield from _pair(
        "annotation-of-ours",
        Pod,
        constraints.ANNOTATIONS_ARE_FREE,
        ok={"spec.pod.annotations": {"app.kubernetes.io/note": "free"}},
        bad={"spec.pod.annotations": {"tierkeeper.dev/nudge": "1"}},
        found="tierkeeper.dev/nudge",
    )


def _across() -> Iterator[Case]:
    seqs, tokens = "spec.engine.maxNumSeqs", "spec.engine.maxNumBatchedTokens"
    for ok, bad in ((8, 7), (128, 129)):
        yield from _pair(
            f"starts-with-{bad}-seqs",
            ServiceTierSpec,
            constraints.STARTS_WITHIN_SEQS,
            ok={seqs: ok},
            bad={seqs: bad},
            found=f"{bad}, bounds 8 to 128",
        )
    for ok, bad in ((512, 511), (8192, 8193)):
        yield from _pair(
            f"starts-with-{bad}-tokens",
            ServiceTierSpec,
            constraints.STARTS_WITHIN_TOKENS,
            ok={tokens: ok},
            bad={tokens: bad},
            found=f"{bad}, bounds 512 to 8192",
        )
    yield from _pair(
        "engine-tokens-below-the-batch",
        ServiceTierSpec,
        constraints.ENGINE_TOKENS_HOLD_THE_BATCH,
        ok={**_NO_TOKENS, tokens: 128},
        bad={**_NO_TOKENS, tokens: 127},
        found="127 tokens, 128 sequences",
    )
    yield Case("no-tokens-at-all", f"spec:{constraints.ENGINE_TOKENS_HOLD_THE_BATCH.message}", _NO_TOKENS)
    scaled = "spec.scaling.maxNumBatchedTokens"
    yield from _pair(
        "scaled-tokens-below-the-batch",
        ServiceTierSpec,
        constraints.SCALED_TOKENS_HOLD_THE_BATCH,
        ok={tokens: REMOVE, scaled: {"min": 64, "max": 128}},
        bad={tokens: REMOVE, scaled: {"min": 64, "max": 127}},
        found="127 tokens, 128 sequences",
    )
    yield from _pair(
        "tokens-below-the-smallest-batch",
        ServiceTierSpec,
        constraints.TOKENS_FEED_THE_SMALLEST_BATCH,
        ok={f"{scaled}.min": 8},
        bad={f"{scaled}.min": 7},
        found="7 tokens, 8 sequences",
    )
    yield from _pair(
        "ranks-without-gpus",
        ServiceTierSpec,
        constraints.RANKS_HAVE_GPUS,
        ok={"spec.engine.pipelineParallelSize": 2, "spec.resources.gpusPerReplica": 4},
        bad={"spec.engine.pipelineParallelSize": 2, "spec.resources.gpusPerReplica": 3},
        found="4 ranks, 3 GPUs",
    )
    yield from _pair(
        "ranks-without-resources",
        ServiceTierSpec,
        constraints.RANKS_HAVE_GPUS,
        ok={"spec.engine.tensorParallelSize": 1, "spec.resources": REMOVE},
        bad={"spec.resources": REMOVE},
        found="2 ranks, 1 GPUs",
    )
    yield Case(
        "no-gpus-on-cpus",
        f"spec:{constraints.RANKS_HAVE_GPUS.message}",
        {"spec.resources.gpusPerReplica": 0},
    )
    hub = {"spec.engine.env": [{"name": "HF_TOKEN", "value": "x"}]}
    yield from _pair(
        "two-model-tokens",
        ServiceTierSpec,
        constraints.ONE_MODEL_TOKEN,
        ok={**hub, "spec.model.tokenSecretRef": REMOVE},
        bad=hub,
        found="HF_TOKEN",
    )
