"""Labels, annotations and ownership that every child of a tier shares."""

from typing import Any

from tierkeeper.tier import TierSpec

API_VERSION = "tierkeeper.dev/v1alpha1"
KIND = "ServiceTier"

TIER_LABEL = "tierkeeper.dev/tier"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "tierkeeper"

HASH_ANNOTATION = "tierkeeper.dev/hash"
"""Content hash of a child as it was rendered."""
TEMPLATE_HASH_ANNOTATION = "tierkeeper.dev/template-hash"
"""Content hash of the Deployment's pod template: the pool rolls exactly when it changes."""

START_ANNOTATION = "tierkeeper.dev/start"
"""On the limit ConfigMap: where the spec let the limits start when they were written. A user who moves the start in the
spec wants it now, wherever the loop has taken the limits since."""


def selector_labels(spec: TierSpec) -> dict[str, str]:
    """What selects the pool's pods. A Deployment's selector cannot be changed, so neither may these two, ever."""
    return {TIER_LABEL: spec.key.name, MANAGED_BY_LABEL: MANAGER}


def labels(spec: TierSpec) -> dict[str, str]:
    """Labels of every child. The tier's own labels are not copied: GitOps tools would take the child for theirs."""
    return {
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/instance": spec.key.name,
        "app.kubernetes.io/component": "pool",
        "app.kubernetes.io/part-of": MANAGER,
        **selector_labels(spec),
    }


def metadata(spec: TierSpec, name: str) -> dict[str, Any]:
    """Metadata of a child: owned by the tier, and so collected with it.

    The owner does not block: deleting a tier never waits for its children, and the operator needs no right to touch
    finalizers.
    """
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": spec.key.name,
        "uid": spec.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "name": name,
        "namespace": spec.key.namespace,
        "labels": labels(spec),
        "ownerReferences": [owner],
    }
