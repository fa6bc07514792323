"""One tier's pool as Kubernetes objects: Deployment, Service, PodDisruptionBudget and two ConfigMaps."""

from typing import Any

from tierkeeper.engine.flags import HTTP_PORT
from tierkeeper.engine.limits import Limits, limit_data, nudge_value
from tierkeeper.render.drift import content_hash
from tierkeeper.render.names import (
    HASH_ANNOTATION,
    START_ANNOTATION,
    TEMPLATE_HASH_ANNOTATION,
    metadata,
    selector_labels,
)
from tierkeeper.render.pod import PLUGIN, PORT_NAME, pod_template, termination_seconds
from tierkeeper.scaling.levers import starting_levers
from tierkeeper.scaling.model import Levers
from tierkeeper.tier import TierSpec

Object = dict[str, Any]

MIN_READY_SECONDS = 5
"""A pod that was Ready this long counts, so that one that dies at once does not let the rollout go on."""
IMAGE_PULL_SECONDS = 1800
"""A vLLM image is 10 GB and more: half an hour before a rollout counts as stuck."""
REVISIONS = 3

ENTRY_POINTS = f"[vllm.general_plugins]\n{PLUGIN} = {PLUGIN}:register\n"
PACKAGE_METADATA = f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1.0\n"


def render_pool(spec: TierSpec, *, levers: Levers, plugin_source: str) -> list[Object]:
    """All children of a tier, in the order in which they are to be applied.

    The ConfigMaps come first, so that no pod waits for its volumes. The Deployment has no ``spec.replicas``: that field
    belongs to whoever scales it. Each child carries its content hash.
    """
    return [
        render_limit(spec, levers=levers),
        _plugin(spec, plugin_source),
        _service(spec),
        _disruption_budget(spec),
        _deployment(spec, levers),
    ]


def render_limit(spec: TierSpec, *, levers: Levers) -> Object:
    """The ConfigMap with the live limits alone, equal to its element of ``render_pool``: a resize applies just this."""
    data = limit_data(Limits(levers.max_num_seqs, levers.max_num_batched_tokens))
    annotations = {START_ANNOTATION: start_value(spec)}
    return _child(spec, spec.limit_name, kind="ConfigMap", body={"data": data}, annotations=annotations)


def start_value(spec: TierSpec) -> str:
    """Value of the start annotation: it changes exactly when the spec moves where the limits start."""
    start = starting_levers(spec)
    return nudge_value(Limits(start.max_num_seqs, start.max_num_batched_tokens))


def _plugin(spec: TierSpec, source: str) -> Object:
    files = {f"{PLUGIN}.py": source, "METADATA": PACKAGE_METADATA, "entry_points.txt": ENTRY_POINTS}
    return _child(spec, spec.plugin_name, kind="ConfigMap", body={"data": files})


def _service(spec: TierSpec) -> Object:
    body = {
        "type": "ClusterIP",
        "selector": selector_labels(spec),
        "ports": [{"name": PORT_NAME, "port": HTTP_PORT, "targetPort": PORT_NAME, "protocol": "TCP"}],
    }
    return _child(spec, spec.pool_name, kind="Service", body={"spec": body})


def _disruption_budget(spec: TierSpec) -> Object:
    """One pod may leave at a time, and one that is not Ready always: neither blocks the drain of a node."""
    body = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": selector_labels(spec)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return _child(spec, spec.pool_name, api_version="policy/v1", kind="PodDisruptionBudget", body={"spec": body})


def _deployment(spec: TierSpec, levers: Levers) -> Object:
    rollout = spec.rollout
    template = pod_template(spec, levers)
    body = {
        "selector": {"matchLabels": selector_labels(spec)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": rollout.max_surge, "maxUnavailable": rollout.max_unavailable},
        },
        "minReadySeconds": MIN_READY_SECONDS,
        # Without surge a new pod starts only when the old one has left its GPU.
        "progressDeadlineSeconds": termination_seconds(spec) + IMAGE_PULL_SECONDS + rollout.startup_seconds,
        "revisionHistoryLimit": REVISIONS,
        "template": template,
    }
    return _child(
        spec,
        spec.pool_name,
        api_version="apps/v1",
        kind="Deployment",
        body={"spec": body},
        annotations={TEMPLATE_HASH_ANNOTATION: content_hash(template)},
    )


def _child(
    spec: TierSpec,
    name: str,
    *,
    kind: str,
    body: Object,
    api_version: str = "v1",
    annotations: dict[str, str] | None = None,
) -> Object:
    meta = {**metadata(spec, name), "annotations": annotations or {}}
    child = {"apiVersion": api_version, "kind": kind, "metadata": meta, **body}
    meta["annotations"][HASH_ANNOTATION] = content_hash(child)
    return child
