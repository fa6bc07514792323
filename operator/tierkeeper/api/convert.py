"""From the API object to the values that the pure core works with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from pydantic import ValidationError

from tierkeeper import tier as core
from tierkeeper.api import pod, spec
from tierkeeper.api.problems import InvalidTier, Problem, problems_of, shown
from tierkeeper.api.resource import ServiceTier

__all__ = ["InvalidTier", "Problem", "engine_version", "to_tier"]

_RELEASE_TAG = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,6})(?:[-+_].*|\.post\d+)?")
"""``v0.32.0``, ``0.32.0``, ``0.32.0-cu129``, ``v0.32.0.post1``; a release candidate is not yet the release."""


def to_tier(obj: Mapping[str, Any], *, strict: bool = False) -> core.TierSpec:
    """Check and convert a ServiceTier.

    ``strict`` refuses unknown fields too (for files); objects from the cluster may carry fields of a later release.
    Raises InvalidTier with every problem found.
    """
    tier = parse(obj, strict=strict)
    metadata = tier.metadata
    wanted = tier.spec
    return core.TierSpec(
        key=core.TierKey(namespace=metadata.get("namespace") or "default", name=tier.name),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        model=_model(wanted.model),
        objective=_objective(wanted.slo) if wanted.slo is not None else None,
        engine=_engine(wanted.engine),
        resources=core.Resources(
            gpus_per_replica=wanted.resources.gpus_per_replica,
            gpu_resource_name=wanted.resources.gpu_resource_name,
            cpu=wanted.resources.cpu,
            memory=wanted.resources.memory,
            shared_memory=wanted.resources.shared_memory,
        ),
        scaling=_scaling(wanted.scaling),
        priority=wanted.priority,
        reservation=wanted.reservation,
        overflow=core.Overflow(
            policy=wanted.overflow.policy,
            max_queued_requests=wanted.overflow.max_queued_requests,
            max_queued_tokens=wanted.overflow.max_queued_tokens,
            degrade_to=wanted.overflow.degrade_to,
        ),
        rollout=core.Rollout(
            max_surge=wanted.rollout.max_surge,
            max_unavailable=wanted.rollout.max_unavailable,
            startup_seconds=wanted.rollout.startup_seconds,
            drain_seconds=wanted.rollout.drain_seconds,
        ),
        pod=_pod(wanted.pod),
    )


def parse(obj: Mapping[str, Any], *, strict: bool = False) -> ServiceTier:
    """The API model of an object. Raises InvalidTier with every problem found."""
    if not isinstance(obj, Mapping):
        raise InvalidTier([Problem(field="metadata.name", value=shown(obj), remedy="a tier needs a name: set it")])
    found = list(_metadata_problems(obj.get("metadata")))
    wanted = {key: part for key, part in obj.items() if key != "status"}
    try:
        tier = ServiceTier.model_validate(wanted, extra="forbid" if strict else "ignore")
    except ValidationError as error:
        said = {problem.field for problem in found}
        more = problems_of(error, ServiceTier, wanted)
        found += [one for one in more if not (said and one.field == "metadata") and one.field not in said]
        raise InvalidTier(found) from error
    if found:
        raise InvalidTier(found)
    return tier


def _metadata_problems(metadata: object) -> Iterator[Problem]:
    """What the API server sees to itself in an object of the cluster, and what a file may lack."""
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        yield Problem(field="metadata.name", value=shown(metadata), remedy="a tier needs a name: set it")
    if not isinstance(metadata, Mapping):
        return
    namespace = metadata.get("namespace") or "default"
    if not isinstance(namespace, str) or len(namespace) > 63 or not re.fullmatch(pod.DNS_LABEL, namespace):
        remedy = "must be a DNS label of at most 63 characters, or be left out: correct it"
        yield Problem(field="metadata.namespace", value=shown(namespace), remedy=remedy)


def engine_version(image: str) -> tuple[int, int, int] | None:
    """The vLLM release that an image's tag names, or None where the tag does not tell (none, a digest, ``latest``)."""
    repository_and_tag = image.partition("@")[0].rpartition("/")[2]
    match = _RELEASE_TAG.fullmatch(repository_and_tag.partition(":")[2])
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _model(model: spec.Model) -> core.Model:
    secret, claim = model.token_secret_ref, model.volume_claim
    return core.Model(
        id=model.id,
        served_name=model.served_name or model.id,
        revision=model.revision,
        token_secret=core.SecretKey(name=secret.name, key=secret.key) if secret else None,
        volume_claim=core.VolumeClaim(name=claim.name, path=claim.path) if claim else None,
    )


def _objective(slo: spec.Slo) -> core.Objective:
    return core.Objective(
        ratio=float(Decimal(slo.objective_percent) / 100),
        ttft_seconds=slo.ttft_milliseconds / 1000 if slo.ttft_milliseconds is not None else None,
        tpot_seconds=slo.tpot_milliseconds / 1000 if slo.tpot_milliseconds is not None else None,
        window_days=slo.window_days,
        budget=core.BudgetPolicy(
            warn_percent=slo.budget_policy.warn_percent, freeze_percent=slo.budget_policy.freeze_percent
        ),
    )


def _engine(engine: spec.Engine) -> core.Engine:
    return core.Engine(
        image=engine.image,
        version=engine_version(f"vllm:{engine.version}" if engine.version else engine.image),
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=engine.max_model_len,
        tensor_parallel_size=engine.tensor_parallel_size,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        extra_args=engine.extra_args,
        env=tuple(
            core.EnvVar(
                name=variable.name,
                value=variable.value,
                value_from=variable.value_from.to_dict() if variable.value_from else None,
            )
            for variable in engine.env
        ),
        live_resize=engine.live_resize,
        image_pull_policy=engine.image_pull_policy.value if engine.image_pull_policy else None,
    )


def _scaling(scaling: spec.Scaling) -> core.Scaling:
    tokens = scaling.max_num_batched_tokens
    return core.Scaling(
        mode=scaling.mode,
        replicas=core.Bounds(min=scaling.replicas.min, max=scaling.replicas.max),
        max_num_seqs=core.Bounds(min=scaling.max_num_seqs.min, max=scaling.max_num_seqs.max),
        max_num_batched_tokens=core.Bounds(min=tokens.min, max=tokens.max) if tokens else None,
        scale_down_stabilization_seconds=scaling.scale_down_stabilization_seconds,
    )


def _pod(options: pod.Pod) -> core.PodOptions:
    return core.PodOptions(
        node_selector=options.node_selector,
        tolerations=tuple(toleration.to_dict() for toleration in options.tolerations),
        affinity=options.affinity.to_dict() if options.affinity else None,
        topology_spread_constraints=tuple(one.to_dict() for one in options.topology_spread_constraints),
        runtime_class_name=options.runtime_class_name,
        priority_class_name=options.priority_class_name,
        service_account_name=options.service_account_name,
        image_pull_secrets=tuple(secret.name for secret in options.image_pull_secrets),
        labels=options.labels,
        annotations=options.annotations,
    )
