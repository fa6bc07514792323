"""The spans of a decision that is carried out, below the tick that made it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from tierkeeper.control.record import TierRecord
from tierkeeper.engine.limits import Limits
from tierkeeper.obs import tracing
from tierkeeper.ports import Span, Tracer


@dataclass(frozen=True, slots=True)
class Trail:
    """See the module. What no decision of the loop asks for, such as a repair, has no span."""

    tracer: Tracer

    def span(
        self, record: TierRecord, name: str, *, of_decision: bool, seconds_ago: float = 0.0
    ) -> AbstractContextManager[Span]:
        """A span around the block, below the one that is open or else below the tick."""
        if not of_decision:
            return tracing.UNSEEN
        below = self.tracer.here() or record.pending_span
        return self.tracer.span(name, below=below, seconds_ago=seconds_ago)

    def limits(
        self, record: TierRecord, before: Limits, after: Limits, *, seconds: float, pods: int | None = None
    ) -> None:
        """A span for each limit that changed, from its write to now, when it holds."""
        for name, old, new in tracing.differing(before, after):
            of_decision = record.pending_id is not None
            with self.span(record, f"apply {name}", of_decision=of_decision, seconds_ago=seconds) as span:
                span.tell(tracing.turned, record.key, name, old, new, pods=pods)
