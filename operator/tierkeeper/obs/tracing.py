"""The spans of a decision: what each says, and the tracer that shows none.

Names and keys are told in docs/how-to/tracing.md: people search by them, so they do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from tierkeeper.engine.limits import Limits
from tierkeeper.ports import Attributes, P, Span
from tierkeeper.scaling.model import Decision, Levers
from tierkeeper.slo.model import Assessment
from tierkeeper.slo.signals import Signal
from tierkeeper.tier import TierKey

BURN_WINDOW_SECONDS = 300
"""Of the burn rate that a span shows: the one that `kubectl get` shows."""


class _Unseen:
    """A span that nobody watches."""

    __slots__ = ()

    def tell(self, words: Callable[P, Attributes], *args: P.args, **kwargs: P.kwargs) -> None:
        """Nothing."""

    def fail(self, reason: str, message: str) -> None:
        """Nothing."""

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing."""


UNSEEN = _Unseen()


class NoTracer:
    """Tracing is off."""

    def span(self, name: str, *, below: object = None, seconds_ago: float = 0.0) -> AbstractContextManager[Span]:  # noqa: ARG002
        """The same unseen span for everything."""
        return UNSEEN

    def here(self) -> object:
        """Nowhere."""
        return None


NO_TRACER = NoTracer()


def tick(decision_id: str, tiers: int) -> Attributes:
    """``decision_id`` is what the log lines of the tick and of all that follows from it have as work or decision."""
    return {"tierkeeper.decision.id": decision_id, "tierkeeper.tiers": tiers}


def query(signal: Signal, promql: str) -> Attributes:
    """What Prometheus is asked."""
    return {"tierkeeper.query.signal": str(signal), "tierkeeper.query.promql": promql}


def assessed(assessment: Assessment) -> Attributes:
    """What is known of a tier. A figure that is not known has no key."""
    said: dict[str, str | bool | float] = {
        "tierkeeper.signal.state": assessment.state.value,
        "tierkeeper.signal.reason": assessment.reason,
    }
    for sli, slo in assessment.slos.items():
        name = f"tierkeeper.{sli.value.lower()}"
        window = slo.window(BURN_WINDOW_SECONDS)
        known = {
            "threshold_seconds": slo.threshold_seconds,
            "p99_seconds": slo.p99.seconds if slo.p99 is not None else None,
            "burn_rate": window.burn.point if window is not None else None,
            "met": slo.met,
        }
        said |= {f"{name}.{figure}": value for figure, value in known.items() if value is not None}
    return {**tier(assessment.key), **said}


def decided(key: TierKey, actual: Levers, decision: Decision) -> Attributes:
    """A decision beside the levers that are set."""
    limited = {"tierkeeper.decision.limited": decision.limited.reason.value} if decision.limited is not None else {}
    return {
        **tier(key),
        **_words(decision),
        "tierkeeper.decision.changed": [lever.value for lever in decision.changed],
        **limited,
        **lever("replicas", actual.replicas, decision.levers.replicas),
        **_limits(_of(actual), _of(decision.levers)),
    }


def applied(key: TierKey, decision_id: str | None, decision: Decision | None) -> Attributes:
    """Whose decision is carried out, and what it was."""
    words = _words(decision) if decision is not None else {}
    return {**tier(key), "tierkeeper.decision.id": decision_id or "", **words}


def turned(key: TierKey, name: str, actual: int | None, desired: int | None, *, pods: int | None = None) -> Attributes:
    """One lever that is turned; ``pods`` have shown to obey it."""
    seen = {"tierkeeper.pods": pods} if pods is not None else {}
    return {**tier(key), **lever(name, actual, desired), **seen}


def differing(actual: Limits, desired: Limits) -> Iterator[tuple[str, int | None, int | None]]:
    """Name, actual and desired value of each limit that is to change."""
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        old, new = getattr(actual, name), getattr(desired, name)
        if old != new:
            yield name, old, new


def lever(name: str, actual: int | None, desired: int | None) -> Attributes:
    """One lever as it is set and as it is to be. A value that is the engine's own has no key."""
    both = {f"tierkeeper.{name}.actual": actual, f"tierkeeper.{name}.desired": desired}
    return {key: value for key, value in both.items() if value is not None}


def tier(key: TierKey) -> Attributes:
    """Which tier it is about."""
    return {"tierkeeper.tier.namespace": key.namespace, "tierkeeper.tier.name": key.name}


def _words(decision: Decision) -> Attributes:
    return {"tierkeeper.decision.reason": decision.reason.value, "tierkeeper.decision.message": decision.message}


def _of(levers: Levers) -> Limits:
    return Limits(levers.max_num_seqs, levers.max_num_batched_tokens)


def _limits(actual: Limits, desired: Limits) -> Attributes:
    return {
        **lever("max_num_seqs", actual.max_num_seqs, desired.max_num_seqs),
        **lever("max_num_batched_tokens", actual.max_num_batched_tokens, desired.max_num_batched_tokens),
    }
