"""A tier and a status with every field set: the ground from which each case departs by what it is about."""

from typing import Any

TIER: dict[str, Any] = {
    "apiVersion": "tierkeeper.dev/v1alpha1",
    "kind": "ServiceTier",
    "metadata": {"name": "gold"},
    "spec": {
        "model": {
            "id": "meta-llama/Llama-3.1-8B-Instruct",
            "servedName": "llama",
            "revision": "main",
            "tokenSecretRef": {"name": "hub", "key": "token"},
            "volumeClaim": {"name": "weights", "path": "/models"},
        },
        "slo": {
            "objectivePercent": 99,
            "ttftMilliseconds": 1500,
            "tpotMilliseconds": 100,
            "windowDays": 30,
            "budgetPolicy": {"warnPercent": 50, "freezePercent": 80},
        },
        "engine": {
            "image": "vllm/vllm-openai:v0.32.0",
            "imagePullPolicy": "IfNotPresent",
            "version": "0.32.0",
            "maxNumSeqs": 64,
            "maxNumBatchedTokens": 8192,
            "maxModelLen": 32768,
            "tensorParallelSize": 2,
            "pipelineParallelSize": 1,
            "extraArgs": ["--enable-prefix-caching"],
            "env": [
                {"name": "PLAIN", "value": "yes"},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
                {"name": "CONFIG", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": False}}},
                {"name": "FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "liveResize": "Auto",
        },
        "resources": {
            "gpusPerReplica": 2,
            "gpuResourceName": "nvidia.com/gpu",
            "cpu": 8,
            "memory": "64Gi",
            "sharedMemory": "2Gi",
        },
        "scaling": {
            "mode": "Auto",
            "replicas": {"min": 1, "max": 4},
            "maxNumSeqs": {"min": 8, "max": 128},
            "maxNumBatchedTokens": {"min": 512, "max": 8192},
            "scaleDownStabilizationSeconds": 300,
        },
        "priority": 800,
        "reservation": False,
        "overflow": {
            "policy": "Degrade",
            "maxQueuedRequests": 100,
            "maxQueuedTokens": 100000,
            "degradeTo": "standard",
        },
        "ramp": {"maxIncreasePercent": 50, "windowMinutes": 15, "minTokensPerMinute": 1000000},
        "routing": {
            "gatewayRef": {"name": "front", "namespace": "gateways"},
            "headerName": "x-service-tier",
            "headerValue": "gold",
            "default": False,
        },
        "rollout": {"maxSurge": 0, "maxUnavailable": 1, "startupSeconds": 1800, "drainSeconds": 120},
        "pod": {
            "nodeSelector": {"gpu": "h100"},
            "tolerations": [
                {
                    "key": "nvidia.com/gpu",
                    "operator": "Equal",
                    "value": "present",
                    "effect": "NoExecute",
                    "tolerationSeconds": 60,
                }
            ],
            "affinity": {"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}},
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
            ],
            "runtimeClassName": "nvidia",
            "priorityClassName": "tierkeeper-gold",
            "serviceAccountName": "vllm",
            "imagePullSecrets": [{"name": "registry"}],
            "labels": {"team": "search"},
            "annotations": {"example.com/note": "text"},
        },
    },
}
STATUS: dict[str, Any] = {
    "observedGeneration": 3,
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "PoolReady",
            "message": "2 of 2 replicas are Ready",
            "lastTransitionTime": "2026-11-29T18:00:00Z",
            "observedGeneration": 3,
        },
        {
            "type": "SLOMet",
            "status": "Unknown",
            "reason": "SourceDown",
            "message": "Prometheus does not answer",
            "lastTransitionTime": "2026-11-29T18:00:00Z",
            "observedGeneration": 3,
        },
    ],
    "replicas": {"current": 2, "ready": 2, "desired": 3},
    "maxNumSeqs": {"current": 64, "desired": 48, "applied": 64},
    "maxNumBatchedTokens": {"current": 2048, "desired": 2048, "applied": 2048},
    "liveResize": {
        "supported": True,
        "reason": "Supported",
        "message": "",
        "lastApplyMilliseconds": 640,
        "count": 3,
    },
    "slos": [
        {
            "sli": "TTFT",
            "thresholdMilliseconds": 500,
            "metric": "vllm:time_to_first_token_seconds",
            "state": "Ok",
            "p50Milliseconds": 80,
            "p95Milliseconds": 300,
            "p99Milliseconds": 412,
            "p99": "412ms",
            "errorRatio": {"lower": "0.0041", "point": "0.0042", "upper": "0.0042"},
            "burn": [{"windowSeconds": 300, "burn": "0.4", "requests": 1200}],
            "budgetLeftPercent": 63,
            "boundaryAligned": False,
            "nearestAlignedMilliseconds": [250, 500],
        }
    ],
    "lastDecision": {
        "time": "2026-11-29T18:00:00Z",
        "reason": "TpotLowerCap",
        "message": "TPOT burns from the batch itself",
        "replicas": 3,
        "maxNumSeqs": 48,
        "maxNumBatchedTokens": 2048,
        "inputs": {"running": "62.5"},
    },
    "ttft": "412/500ms",
    "tpot": "31/50ms",
    "burn": "0.4x",
    "budget": "63%",
    "replicasSummary": "2/2→3",
    "seqs": "64→48",
}
