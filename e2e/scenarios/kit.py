"""Words that the scenarios are written in."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from e2e.cluster import Cluster, ClusterError
from e2e.platform import ENGINE_TAG
from e2e.scenarios.reading import reader

Object = dict[str, Any]
Objects = list[Object]
T = TypeVar("T")

PORT = 8000


def tier(name: str, **spec: Any) -> Object:
    """A small tier on the vLLM-shaped engine; keyword arguments replace whole top-level fields of ``spec``."""
    base: Object = {
        "model": {"id": "example/small", "servedName": name},
        "slo": {"objectivePercent": 99, "ttftMilliseconds": 1000, "tpotMilliseconds": 100},
        "engine": {
            "image": ENGINE_TAG,
            "version": "0.32.0",
            "imagePullPolicy": "Never",
            "maxNumSeqs": 16,
            "maxModelLen": 8192,
            "env": [{"name": "ENGINE_STARTUP_SECONDS", "value": "1"}],
        },
        "resources": {"gpusPerReplica": 1, "cpu": "20m", "memory": "128Mi"},
        "scaling": {
            "mode": "Auto",
            "replicas": {"min": 1, "max": 3},
            "maxNumSeqs": {"min": 4, "max": 64},
            "scaleDownStabilizationSeconds": 30,
        },
        "rollout": {"drainSeconds": 10},
    }
    return {
        "apiVersion": "tierkeeper.dev/v1alpha1",
        "kind": "ServiceTier",
        "metadata": {"name": name},
        "spec": base | spec,
    }


def changed(obj: Object, path: str, value: Any) -> Object:
    """A copy with one field set; ``path`` is dotted, e.g. ``spec.engine.maxModelLen``."""
    out = copy.deepcopy(obj)
    at = out
    *parents, last = path.split(".")
    for part in parents:
        at = at.setdefault(part, {})
    at[last] = value
    return out


class Kit:
    """One namespace of the cluster and the verbs to work in it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._reader = reader(cluster.kubeconfig)

    def kubectl(self, *arguments: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, **options)

    def create_namespace(self) -> None:
        self.delete_namespace()
        self.cluster.kubectl("create", "namespace", self.namespace)

    def delete_namespace(self, *, wait: bool = True) -> None:
        self.cluster.kubectl(
            "delete", "namespace", self.namespace, "--ignore-not-found", f"--wait={str(wait).lower()}", "--timeout=120s"
        )

    def apply(self, *objects: Object) -> None:
        for obj in objects:
            self.kubectl("apply", "-f", "-", input=json.dumps(obj))

    def get(self, resource: str, name: str) -> Object:
        return self._reader.get(self.namespace, resource, name)

    def list(self, resource: str, selector: str = "") -> Objects:
        return self._reader.list(self.namespace, resource, selector)

    def condition(self, name: str, kind: str) -> Object:
        """A condition of a tier, or an empty one."""
        found = self.get("servicetiers", name).get("status", {}).get("conditions", [])
        return next((c for c in found if c["type"] == kind), {"status": "", "reason": "", "message": ""})

    def until(self, what: str, probe: Callable[[], T | None], *, seconds: float = 60) -> T:
        """Ask until the probe answers with something true. Raises AssertionError naming what was waited for."""
        deadline = time.monotonic() + seconds
        last: BaseException | T | None = None
        while time.monotonic() < deadline:
            try:
                last = probe()
                if last:
                    return last
            except ClusterError as error:
                last = error
            time.sleep(0.5)
        raise AssertionError(f"waited {seconds:g} s for {what}; last answer: {last!r}\n{self.explain()}")

    def until_condition(self, name: str, kind: str, status: str, *, reason: str = "", seconds: float = 60) -> Object:
        def probe() -> Object | None:
            condition = self.condition(name, kind)
            right = condition["status"] == status and (not reason or condition["reason"] == reason)
            return condition if right else None

        return self.until(f"{name} to be {kind}={status} {reason}".rstrip(), probe, seconds=seconds)

    def until_ready(self, *names: str, seconds: float = 90) -> None:
        for name in names:
            self.until_condition(name, "Ready", "True", seconds=seconds)

    def pods(self, name: str) -> Objects:
        """The tier's pods that are not on their way out."""
        pods = self.list("pods", f"tierkeeper.dev/tier={name}")
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def url(self, name: str) -> str:
        service = self.get("services", f"{name}-pool")
        return f"http://{service['spec']['clusterIP']}:{PORT}"

    def events(self, name: str) -> Objects:
        """Events about a tier, oldest first."""
        found = self.list("events")
        mine = [
            e for e in found if e["involvedObject"]["kind"] == "ServiceTier" and e["involvedObject"]["name"] == name
        ]
        return sorted(mine, key=lambda e: e["metadata"]["creationTimestamp"])

    def explain(self) -> str:
        """What a person would look at next."""
        parts = []
        for question in (
            ("get", "servicetiers,deployments,pods", "-o", "wide"),
            ("get", "servicetiers", "-o", "yaml"),
            ("get", "events", "--sort-by=.lastTimestamp"),
        ):
            try:
                parts.append(self.kubectl(*question)[-6000:])
            except ClusterError as error:
                parts.append(str(error))
        try:
            parts.append(self.cluster.kubectl("-n", "tierkeeper-system", "logs", "deployment/tierkeeper", "--tail=60"))
        except ClusterError as error:
            parts.append(str(error))
        return "\n".join(parts)
