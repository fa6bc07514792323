"""The shipped examples in the form that this machine can run: the vLLM-shaped engine instead of vLLM on GPUs.

Everything else of ``examples/`` stays as a user would apply it: SLOs, policies, priorities.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from e2e.platform import ENGINE_TAG

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: What differs from the examples, per tier, and why: replicas and caps to the size of the traffic that two cores can
#: send, stabilization to minutes that a person will watch.
SIZES: dict[str, dict[str, Any]] = {
    "platinum": {"replicas": {"min": 2, "max": 3}, "maxNumSeqs": {"min": 4, "max": 16}, "start": 8},
    "gold": {"replicas": {"min": 1, "max": 4}, "maxNumSeqs": {"min": 8, "max": 24}, "start": 16},
    "standard": {"replicas": {"min": 1, "max": 2}, "maxNumSeqs": {"min": 16, "max": 96}, "start": 48},
    "batch": {"replicas": {"min": 1, "max": 1}, "maxNumSeqs": {"min": 16, "max": 128}, "start": 128},
}
STABILIZATION_SECONDS = 30
ENGINE_STARTUP_SECONDS = 8


def demo_form(tier: dict[str, Any]) -> dict[str, Any]:
    """One example as the demo applies it."""
    spec, size = tier["spec"], SIZES[tier["metadata"]["name"]]
    engine = {
        **spec["engine"],
        "image": ENGINE_TAG,
        "version": "0.32.0",
        "imagePullPolicy": "Never",
        "maxNumSeqs": size["start"],
        "maxModelLen": 16384,
        "tensorParallelSize": 1,
        "env": [{"name": "ENGINE_STARTUP_SECONDS", "value": str(ENGINE_STARTUP_SECONDS)}],
    }
    engine.pop("extraArgs", None)
    scaling = {
        **spec["scaling"],
        "replicas": size["replicas"],
        "maxNumSeqs": size["maxNumSeqs"],
        "scaleDownStabilizationSeconds": STABILIZATION_SECONDS,
    }
    model = {"id": spec["model"]["id"], "servedName": tier["metadata"]["name"]}
    resources = {"gpusPerReplica": 1, "cpu": "100m", "memory": "256Mi", "sharedMemory": "64Mi"}
    rollout = {**spec.get("rollout", {}), "drainSeconds": 60}
    return {
        **tier,
        "spec": {
            **spec,
            "model": model,
            "engine": engine,
            "resources": resources,
            "scaling": scaling,
            "rollout": rollout,
            "pod": {},
        },
    }


def demo_documents() -> str:
    """Every manifest of ``examples/`` in order, the tiers in their demo form, as one YAML stream."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.yaml"))]
    documents = [document for text in texts for document in yaml.safe_load_all(text)]
    return yaml.safe_dump_all(
        [demo_form(document) if document["kind"] == "ServiceTier" else document for document in documents],
        sort_keys=False,
    )


if __name__ == "__main__":  # `python -m e2e.demo.tiers | kubectl apply -f -`
    print(demo_documents(), end="")
