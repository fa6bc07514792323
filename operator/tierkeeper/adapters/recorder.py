"""``ports.Recorder``: Events on the ServiceTier."""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime

from tierkeeper.ports import NAMESPACE_TERMINATING, ApiError, Clock, EventType, KubeApi
from tierkeeper.tier import TierKey

log = logging.getLogger(__name__)

BURST = 50
PER_SECOND = 1.0
"""Events that may come at once, and how fast that allowance fills up again: a fleet that fails says so, and no more."""

LONGEST_MESSAGE = 1024
"""Bytes; the API server may refuse an Event with a longer message."""


class EventRecorder:
    """See ``ports.Recorder``. The same reason and message about a tier within ten minutes is posted once."""

    def __init__(self, api: KubeApi, clock: Clock, *, instance: str, quiet_seconds: float = 600.0) -> None:
        self._api = api
        self._clock = clock
        self._instance = instance
        self._quiet = quiet_seconds
        self._posted: dict[tuple[TierKey, str, str, str], float] = {}
        self._allowance, self._counted_at = float(BURST), clock.monotonic()

    async def record(self, key: TierKey, *, uid: str, event_type: EventType, reason: str, message: str) -> None:
        now = self._clock.monotonic()
        self._posted = {known: at for known, at in self._posted.items() if now - at < self._quiet}
        said = (key, uid, reason, message)
        if said in self._posted or not self._allowed(now):
            return
        self._posted[said] = now
        stamp = datetime.fromtimestamp(self._clock.wall(), UTC)
        try:
            await self._api.create_event(self._event(key, uid, event_type, reason, message, stamp))
        except ApiError as error:
            if error.reason == NAMESPACE_TERMINATING:
                return  # the tier goes with its namespace: that is no news to anybody
            log.info("event %s on %s not posted: %s", reason, key, error)

    def _allowed(self, now: float) -> bool:
        self._allowance = min(float(BURST), self._allowance + (now - self._counted_at) * PER_SECOND)
        self._counted_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _event(
        self, key: TierKey, uid: str, kind: EventType, reason: str, message: str, stamp: datetime
    ) -> dict[str, object]:
        seconds = stamp.strftime("%Y-%m-%dT%H:%M:%SZ")
        digest = hashlib.sha256(f"{uid} {reason} {message} {stamp.timestamp()}".encode()).hexdigest()[:16]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{key.name[:200]}.{digest}", "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": "tierkeeper.dev/v1alpha1",
                "kind": "ServiceTier",
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid,
            },
            "type": kind.value,
            "reason": reason,
            "message": message.encode()[:LONGEST_MESSAGE].decode(errors="ignore"),
            "source": {"component": "tierkeeper"},
            "reportingComponent": "tierkeeper",
            "reportingInstance": self._instance,
            "firstTimestamp": seconds,
            "lastTimestamp": seconds,
            "count": 1,
        }
