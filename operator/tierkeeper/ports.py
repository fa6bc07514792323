"""What control needs from the outside world. Adapters implement these protocols; tests fake them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ParamSpec, Protocol, TypeAlias

from tierkeeper.slo.model import Sample
from tierkeeper.tier import TierKey

P = ParamSpec("P")

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as the API server speaks it: plain JSON types."""


class Kind(StrEnum):
    """The kinds Tierkeeper reads or writes."""

    SERVICE_TIER = "ServiceTier"
    DEPLOYMENT = "Deployment"
    SERVICE = "Service"
    CONFIG_MAP = "ConfigMap"
    POD_DISRUPTION_BUDGET = "PodDisruptionBudget"
    POD = "Pod"
    EVENT = "Event"
    LEASE = "Lease"


class ApiError(Exception):
    """The API server refused or could not be reached. ``status`` is the HTTP code, 0 for no answer at all."""

    def __init__(self, *, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


CREATE_ONLY = "1"
"""A resourceVersion that no object ever has. An apply that names it creates what is absent, where versions are not
compared, and is refused as a conflict where an object exists: server-side apply has no other word for that."""


NAMESPACE_TERMINATING = "NamespaceTerminating"
"""Reason of an ApiError 403 where the namespace is being deleted: nothing can be created in it any more."""


class KubeApi(Protocol):
    """The few verbs the operator uses, over dicts. Every call has a time-out; applies are safe to repeat.

    A ``uid`` or ``resourceVersion`` in what is applied is a precondition: where the live object has another one, the
    answer is ApiError 409 and nothing is written.
    """

    async def get(self, kind: Kind, *, namespace: str, name: str) -> Object | None:
        """The live object, or None where it does not exist. Raises ApiError."""

    async def list(self, kind: Kind, *, namespace: str | None, label_selector: str = "") -> list[Object]:
        """All objects of a kind, in one namespace or (None) in the whole cluster. Raises ApiError."""

    async def apply(self, obj: Object, *, field_manager: str) -> Object:
        """Server-side apply with force; returns the live object. Raises ApiError."""

    async def apply_status(self, obj: Object, *, field_manager: str) -> Object:
        """Server-side apply on the status subresource. Raises ApiError (404 where the object is gone)."""

    async def scale(self, *, namespace: str, name: str, uid: str | None, replicas: int, field_manager: str) -> Object:
        """Set a Deployment's replicas through its scale subresource; of the one with that ``uid`` alone if it is given.

        Returns the Scale, whose resourceVersion is that of the Deployment. Raises ApiError.
        """

    async def annotate_pod(self, *, namespace: str, name: str, annotations: Mapping[str, str]) -> None:
        """Merge annotations into a pod. A pod that is gone is not an error."""

    async def create_event(self, event: Object) -> None:
        """Post one core/v1 Event. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads, as all replicas of the operator read it."""

    holder: str | None = None
    """None: nobody; the last one has given it back."""
    seconds: float | None = None
    """For how long the holder has asked to be left alone after each renewal."""
    transitions: int = 0
    acquired: float | None = None
    """Unix seconds of the holder's clock, like ``renewed``: for people, never compared."""
    renewed: float | None = None
    uid: str | None = None
    version: str | None = None
    """Changes with every write; None: never written."""


class LeaseLock(Protocol):
    """One Lease in the cluster. A call is tried once, and whoever calls limits its time."""

    async def read(self) -> Lease | None:
        """The Lease as it is now, or None where there is none. Raises ApiError."""

    async def write(self, lease: Lease, *, over: Lease | None) -> Lease:
        """Write it in place of ``over``; None: where there is none.

        Returns it with its new version. Raises ApiError, 409 where the live one has another version or is gone:
        nothing is written then. After any other error it may have been written or not.
        """


class MetricsErrorReason(StrEnum):
    """Why the metrics source gave no answer; a closed set, used as condition reason and metric label."""

    TIMEOUT = "Timeout"
    UNREACHABLE = "Unreachable"
    AUTH_FAILED = "AuthFailed"
    BAD_QUERY = "BadQuery"
    REDIRECTED = "Redirected"
    SERVER_ERROR = "ServerError"
    BAD_ANSWER = "BadAnswer"


class MetricsError(Exception):
    def __init__(self, reason: MetricsErrorReason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class MetricsSource(Protocol):
    async def query(self, promql: str) -> Sequence[Sample]:
        """One instant query. Raises MetricsError; an empty vector is an answer, not an error."""


@dataclass(frozen=True, slots=True)
class AppliedLimits:
    """What one vLLM pod says of its live limits. None: the pod does not say (no plugin, or not yet)."""

    seen_max_num_seqs: int | None = None
    """The limit the plugin read from its file: an idle engine that has seen a limit will apply it at its next step."""
    seen_token_budget: int | None = None
    applied_max_num_seqs: int | None = None
    """The cap the scheduler used in its last step."""
    applied_token_budget: int | None = None
    idle: bool = False
    """No request running or waiting."""


class EngineProbe(Protocol):
    async def limits(self, *, pod_ip: str, port: int) -> AppliedLimits | None:
        """Read a pod's own /metrics page; None where it does not answer in time."""


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds for intervals; never jumps."""

    def wall(self) -> float:
        """Unix seconds, for timestamps that people read; never compared with another machine's clock."""


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class Recorder(Protocol):
    async def record(self, key: TierKey, *, uid: str, event_type: EventType, reason: str, message: str) -> None:
        """Post an Event on a ServiceTier. Never raises: an Event is a courtesy, not a duty."""


Attributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str]]
"""Of a span, by dotted name."""


class Span(Protocol):
    """A piece of work that is watched."""

    def tell(self, words: Callable[P, Attributes], *args: P.args, **kwargs: P.kwargs) -> None:
        """Note what ``words(*args)`` says of it; not called where nobody watches, so that it costs nothing there."""

    def fail(self, reason: str, message: str) -> None:
        """Mark it as failed. An exception that leaves it does so by itself."""


class Tracer(Protocol):
    """Shows the operator's work as spans, each below the one that was open when it began. Never raises, never waits."""

    def span(self, name: str, *, below: object = None, seconds_ago: float = 0.0) -> AbstractContextManager[Span]:
        """A span around the block.

        ``below`` is what ``here`` gave in another task; ``seconds_ago`` is when the work began, if not just now.
        """

    def here(self) -> object:
        """The open span, for ``below``; None where there is none."""
