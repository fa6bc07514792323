"""Values of the chart that change what it renders: one case for each shape, each with its golden file."""

from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaced": {"watch": {"namespaces": ["llm-a", "llm-b"]}, "crds": {"install": False}},
    "every-value-of-the-pod": {
        "image": {"repository": "registry.example/tierkeeper", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "prometheus": {"url": "https://metrics.example:9443/select/0", "scrapeIntervalSeconds": 5, "timeoutSeconds": 1},
        "tickSeconds": 2,
        "log": {"level": "debug", "format": "text"},
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "control-plane", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"team": "serving", "app.kubernetes.io/name": "other"},
        "podAnnotations": {"note": "text"},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
    },
    "image-by-digest": {"image": {"tag": "1.2.3", "digest": f"sha256:{'0123456789abcdef' * 4}"}},
    "names": {"fullnameOverride": "keeper"},
    "short-name": {"nameOverride": "tk"},
    "existing-service-account": {"serviceAccount": {"create": False, "name": "existing"}},
    "annotated-service-account": {"serviceAccount": {"name": "own", "annotations": {"team": "serving"}}},
    "common-labels": {"commonLabels": {"cost-center": "llm", "app.kubernetes.io/name": "other"}},
    "no-user-roles": {"userRoles": {"create": False}},
    "user-of-the-platform": {"runAsUser": None},
    "user-with-a-large-number": {"runAsUser": 1000680000},
    "prometheus-token": {"prometheus": {"tokenSecret": {"name": "prometheus-reader", "key": "bearer"}}},
    "metric-labels": {
        "prometheus": {"labels": {"namespace": "ns", "tier": "tierkeeper_dev_tier", "pod": "pod_name"}},
        "monitoring": {"pools": {"enabled": True}},
    },
    "monitors": {
        "monitoring": {
            "labels": {"release": "kube-prometheus-stack"},
            "operator": {"enabled": True, "intervalSeconds": 30},
            "pools": {"enabled": True},
        },
        "prometheus": {"scrapeIntervalSeconds": 10},
    },
    "monitors-namespaced": {"watch": {"namespaces": ["llm-a"]}, "monitoring": {"pools": {"enabled": True}}},
    "network-policies": {
        "networkPolicy": {
            "prometheus": {"peers": [{"ipBlock": {"cidr": "10.9.0.0/24"}}], "port": 8481},
            "operator": {
                "enabled": True,
                "apiServerCIDRs": ["10.0.0.10/32"],
                "apiServerPorts": [6443],
                "dnsPorts": [53, 5353],
            },
            "pools": {
                "enabled": True,
                "namespaces": ["chat", "1"],
                "fromNamespaces": ["gateway"],
                "fromPeers": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
            },
        }
    },
    "tracing": {"tracing": {"endpoint": "http://otel-collector.monitoring.svc:4318"}},
    "tracing-by-network-policy": {
        "tracing": {"endpoint": "https://otlp.example/team"},
        "networkPolicy": {
            "tracing": {"peers": [{"ipBlock": {"cidr": "10.8.0.0/24"}}]},
            "operator": {"enabled": True},
        },
    },
    "network-policies-namespaced": {
        "watch": {"namespaces": ["llm-a"]},
        "networkPolicy": {"operator": {"enabled": True}, "pools": {"enabled": True}},
    },
    "standby": {
        "replicas": 2,
        "leaderElection": {
            "enabled": True,
            "leaseDurationSeconds": 60,
            "renewDeadlineSeconds": 40,
            "retryPeriodSeconds": 5,
        },
        "podDisruptionBudget": {"enabled": True},
    },
    "standby-namespaced": {"watch": {"namespaces": ["llm-a"]}, "replicas": 2, "leaderElection": {"enabled": True}},
    "lease-of-one": {"leaderElection": {"enabled": True}},
    "disruption-budget": {"podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"}},
    "priority-classes": {
        "priorityClasses": {
            "create": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "classes": {"gold": 1000000, "batch": -10, "standard": None},
        }
    },
}
