"""The chosen few pod fields a platform team needs, in Kubernetes' own shapes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from tierkeeper.api import constraints
from tierkeeper.api.base import AnyObject, ApiModel, Int, Rule

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
"""Name of a Secret, claim, class or the like."""

LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]
AnnotationValue = Annotated[str, Field(max_length=4096)]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]


class TolerationOperator(StrEnum):
    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class WhenUnsatisfiable(StrEnum):
    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class Toleration(ApiModel):
    """A taint that the pods tolerate."""

    key: LabelKey | None = None
    """Key of the taint; absent with operator Exists tolerates all."""
    operator: TolerationOperator | None = None
    """How the value is compared; Kubernetes takes Equal where it is absent."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: TaintEffect | None = None
    """Effect of the taint; absent tolerates every effect."""
    toleration_seconds: Annotated[Int, Field(ge=0, le=604800)] | None = None
    """For NoExecute: seconds after which the pod leaves all the same."""


class Affinity(ApiModel):
    """Where the pods like to be. The three parts are taken as Kubernetes defines them."""

    node_affinity: AnyObject | None = None
    """Rules on nodes."""
    pod_affinity: AnyObject | None = None
    """Rules that seek other pods."""
    pod_anti_affinity: AnyObject | None = None
    """Rules that avoid other pods."""


class TopologySpreadConstraint(ApiModel):
    """How evenly the pods are spread."""

    max_skew: Annotated[Int, Field(ge=1, le=1000)]
    """Largest difference in pods between two domains."""
    topology_key: LabelKey
    """Node label whose values are the domains."""
    when_unsatisfiable: WhenUnsatisfiable
    """Whether a pod that cannot be spread waits or is scheduled anyway."""
    label_selector: AnyObject | None = None
    """Pods that are counted: usually those with the label tierkeeper.dev/tier. Kubernetes counts none where absent."""


class LocalReference(ApiModel):
    """An object in the tier's namespace."""

    name: ObjectName
    """Its name."""


class Pod(ApiModel):
    """Chosen fields of the pool's pods; everything else of the pod is the operator's."""

    rules: ClassVar[tuple[Rule, ...]] = (constraints.LABELS_ARE_FREE, constraints.ANNOTATIONS_ARE_FREE)

    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Labels that a node must carry."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Taints that the pods tolerate."""
    affinity: Affinity | None = None
    """Where the pods like to be."""
    topology_spread_constraints: Annotated[tuple[TopologySpreadConstraint, ...], Field(max_length=8)] = ()
    """How evenly the pods are spread."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods, for example nvidia."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods: who is scheduled first, and may be evicted. It must exist, or no pod is made. The
    chart makes one for each tier with priorityClasses.create. A change replaces the pods."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the pods; its token is not mounted."""
    image_pull_secrets: Annotated[tuple[LocalReference, ...], Field(max_length=8)] = ()
    """Secrets for the image's registry."""
    labels: Annotated[dict[str, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """More labels for the pods. They never enter a selector, so they may change at any time."""
    annotations: Annotated[dict[str, AnnotationValue], Field(max_length=32)] = Field(default_factory=dict)
    """More annotations for the pods."""
