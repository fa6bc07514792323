"""The pod of a pool: one vLLM server, restricted, with room to write only where it must."""

import math
from collections.abc import Mapping
from typing import Any

from tierkeeper.engine.flags import HTTP_PORT, drains_on_sigterm, live_resize, serve_args
from tierkeeper.render.names import labels
from tierkeeper.scaling.model import Levers
from tierkeeper.tier import TierSpec

Object = dict[str, Any]

CONTAINER = "vllm"
PORT_NAME = "http"
USER_ID = 2000
"""The image has this user from 0.22 on, and still starts as root: without an id the kubelet refuses a non-root pod."""

HOME = "/home/vllm"
PLUGIN = "tierkeeper_live_limit"
PLUGIN_PATH = "/tierkeeper/plugin"
LIMIT_PATH = "/tierkeeper/limit"
PLUGIN_FILES = {
    f"{PLUGIN}.py": f"{PLUGIN}.py",
    "METADATA": f"{PLUGIN}-1.0.dist-info/METADATA",
    "entry_points.txt": f"{PLUGIN}-1.0.dist-info/entry_points.txt",
}
"""ConfigMap key -> path in the mounted folder, which Python then sees as an installed package. The version in the path
is a constant: with the operator's own version in it, an upgrade of the operator would restart every pool."""

ENDPOINT_SECONDS = 15
"""Between the end of a pod's endpoints and SIGTERM: proxies and gateways must have stopped sending by then."""
EXIT_SECONDS = 15
"""For the engine to release the GPU after the last request."""
PROBE_SECONDS = 5


def termination_seconds(spec: TierSpec) -> int:
    """Grace period: endpoints (15) + drain (120) + exit (15) = 150 by default, always above preStop plus drain."""
    return ENDPOINT_SECONDS + spec.rollout.drain_seconds + EXIT_SECONDS


def pod_template(spec: TierSpec, levers: Levers) -> Object:
    """The Deployment's ``spec.template``. It depends on ``levers`` only where the engine cannot be resized live."""
    pod = spec.pod
    metadata: Object = {"labels": {**pod.labels, **labels(spec)}}
    if pod.annotations:
        metadata["annotations"] = dict(pod.annotations)
    body: Object = {
        "automountServiceAccountToken": False,
        # A Service named "vllm" would otherwise set VLLM_PORT to a URL, which ends the engine at start.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": termination_seconds(spec),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec, levers)],
        "volumes": _volumes(spec),
    }
    optional: Mapping[str, object] = {
        "nodeSelector": dict(pod.node_selector),
        "tolerations": _tolerations(spec),
        "affinity": dict(pod.affinity or {}),
        "topologySpreadConstraints": [dict(constraint) for constraint in pod.topology_spread_constraints],
        "runtimeClassName": pod.runtime_class_name,
        "priorityClassName": pod.priority_class_name,
        # Always said: the API server keeps the old name in the deprecated `serviceAccount`, which is not ours, and
        # fills a field that is no longer applied from there.
        "serviceAccountName": pod.service_account_name or "default",
        "imagePullSecrets": [{"name": name} for name in pod.image_pull_secrets],
    }
    body |= {field: value for field, value in optional.items() if value}
    return {"metadata": metadata, "spec": body}


def _container(spec: TierSpec, levers: Levers) -> Object:
    args = serve_args(spec, max_num_seqs=levers.max_num_seqs, max_num_batched_tokens=levers.max_num_batched_tokens)
    container: Object = {
        "name": CONTAINER,
        "image": spec.engine.image,
        "args": args,
        "env": _environment(spec),
        "ports": [{"name": PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "resources": _resources(spec),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "startupProbe": _health(failures=math.ceil(spec.rollout.startup_seconds / PROBE_SECONDS)),
        # Half a minute: an overloaded server that answers late must not lose its endpoint and pass its load on.
        "readinessProbe": _health(failures=6),
        # Five minutes, and only once started: for a server that hangs. One whose engine died ends by itself.
        "livenessProbe": _health(failures=60),
        # An engine writes no termination message; the end of its log says why it ended, and conditions quote it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": {"sleep": {"seconds": _pre_stop_seconds(spec)}}},
        "volumeMounts": _mounts(spec),
    }
    if spec.engine.image_pull_policy:
        container["imagePullPolicy"] = spec.engine.image_pull_policy
    return container


def _health(*, failures: int) -> Object:
    return {
        "httpGet": {"path": "/health", "port": PORT_NAME},
        "periodSeconds": PROBE_SECONDS,
        "timeoutSeconds": PROBE_SECONDS,
        "failureThreshold": failures,
    }


def _pre_stop_seconds(spec: TierSpec) -> int:
    """An engine that drops its requests on SIGTERM gets the drain time before it."""
    return ENDPOINT_SECONDS + (0 if drains_on_sigterm(spec.engine.version) else spec.rollout.drain_seconds)


def _environment(spec: TierSpec) -> list[Object]:
    """In a fixed order: ours, then the tier's in its own order, because ``$(NAME)`` looks only upwards.

    The tier may override what is ours for convenience, never what the plugin needs.
    """
    env: dict[str, Object] = {
        "HOME": {"value": HOME},
        # Python looks the user up by id, which older images do not have; with USER set it need not.
        "USER": {"value": "vllm"},
        "HF_HOME": {"value": f"{HOME}/.cache/huggingface"},
        "VLLM_CACHE_ROOT": {"value": f"{HOME}/.cache/vllm"},
    }
    if secret := spec.model.token_secret:
        env["HF_TOKEN"] = {"valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}
    for variable in spec.engine.env:
        given = variable.value_from
        env[variable.name] = {"valueFrom": dict(given)} if given is not None else {"value": variable.value or ""}
    if live_resize(spec).supported:
        _add_plugin(env)
    return [{"name": name, **source} for name, source in env.items()]


def _add_plugin(env: dict[str, Object]) -> None:
    """The plugin's folder goes before the tier's own PYTHONPATH, its name after the tier's own list of plugins."""
    for name, ours in (("PYTHONPATH", f"{PLUGIN_PATH}:{{}}"), ("VLLM_PLUGINS", f"{{}},{PLUGIN}")):
        given = env.pop(name, None)
        if given is None:
            continue
        if "valueFrom" in given:
            env[f"TIERKEEPER_GIVEN_{name}"] = given
        text = given.get("value", f"$(TIERKEEPER_GIVEN_{name})")
        env[name] = {"value": ours.format(text).strip(":,")}
    env.setdefault("PYTHONPATH", {"value": PLUGIN_PATH})
    env["TIERKEEPER_LIMIT_DIR"] = {"value": LIMIT_PATH}


def _resources(spec: TierSpec) -> Object:
    """GPUs and memory with request = limit; CPU without a limit, because throttling a tokenizer shows as TTFT."""
    wanted = spec.resources
    limits: dict[str, str] = {}
    if wanted.gpus_per_replica:
        limits[wanted.gpu_resource_name] = str(wanted.gpus_per_replica)
    if wanted.memory:
        limits["memory"] = wanted.memory
    requests = {**limits, **({"cpu": wanted.cpu} if wanted.cpu else {})}
    return {kind: values for kind, values in (("limits", limits), ("requests", requests)) if values}


def _tolerations(spec: TierSpec) -> list[Object]:
    """By convention GPU nodes are tainted with the resource's name, those with partitioned GPUs as plain GPU nodes."""
    resource = spec.resources.gpu_resource_name
    keys = dict.fromkeys((resource, f"{resource.partition('/')[0]}/gpu")) if spec.resources.gpus_per_replica else {}
    ours: list[Object] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    theirs = [dict(toleration) for toleration in spec.pod.tolerations]
    return ours + [toleration for toleration in theirs if toleration not in ours]


def _mounts(spec: TierSpec) -> list[Object]:
    mounts: list[Object] = [
        {"name": "home", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  (a mount of its own, not the node's)
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    if live_resize(spec).supported:
        mounts += [
            {"name": "plugin", "mountPath": PLUGIN_PATH, "readOnly": True},
            # The whole folder: the kubelet never refreshes a file mounted by subPath.
            {"name": "limit", "mountPath": LIMIT_PATH, "readOnly": True},
        ]
    if claim := spec.model.volume_claim:
        mounts.append({"name": "model", "mountPath": claim.path, "readOnly": True})
    return mounts


def _volumes(spec: TierSpec) -> list[Object]:
    volumes: list[Object] = [
        {"name": "home", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _shared_memory(spec)}},
    ]
    if live_resize(spec).supported:
        items = [{"key": key, "path": path} for key, path in sorted(PLUGIN_FILES.items())]
        volumes += [
            {"name": "plugin", "configMap": {"name": spec.plugin_name, "items": items}},
            {"name": "limit", "configMap": {"name": spec.limit_name}},
        ]
    if claim := spec.model.volume_claim:
        volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": claim.name, "readOnly": True}})
    return volumes


def _shared_memory(spec: TierSpec) -> str:
    """vLLM's documents ask for 2 GiB with CUDA and 8 GiB with ROCm when a model spans several GPUs.

    It is a limit, not a reservation: a pod on one GPU pays nothing for it.
    """
    if spec.resources.shared_memory:
        return spec.resources.shared_memory
    return "8Gi" if spec.resources.gpu_resource_name.startswith("amd.com/") else "2Gi"
