"""A load that comes back: replicas that were given away and had to be asked for again within the hour.

A shrink waits until fewer replicas were enough for the stabilization window. A load that pauses for longer, every hour
or every twenty minutes, meets a small pool each time, and what arrives until the replicas are back is lost. That is
what an error budget is for while there is some; once it is spent, replicas stay through such a pause.
"""

from __future__ import annotations

from tierkeeper.values import value

#: Longer pauses are slept through: an hour of replicas that do nothing is dearer than the minutes that they spare.
LONGEST_SECONDS = 3600.0

#: The next pause may be half as long again as the longest so far.
MARGIN = 1.5

#: A load is the same again from this share of what it needed before: what a replica is trusted with varies as much.
SAME = 0.75

#: A pause is forgotten after a day without one.
MEMORY_SECONDS = 86_400.0

#: An unchanged need is noted this often.
NOTE_SECONDS = 60.0


@value(frozen=True, slots=True)
class Peak:
    """Replicas that were needed at a time, and were there."""

    at: float
    replicas: int


@value(frozen=True, slots=True)
class Rise:
    """A load that needs as much again as before a pause."""

    at: float
    pause_seconds: float


@value(frozen=True, slots=True)
class Returns:
    """See the module. Times are monotonic seconds."""

    peaks: tuple[Peak, ...] = ()
    """The sliding maximum over the last hour: older first, each larger than the next."""
    needed: int = 0
    """At the last look."""
    rise: Rise | None = None
    """The last one."""
    pause_seconds: float = 0.0
    """The longest pause after which the load met too few replicas; zero: none."""
    returned_at: float | None = None

    def hold_seconds(self) -> float:
        """How long a load is to be waited for; zero where none has come back."""
        return min(MARGIN * self.pause_seconds, LONGEST_SECONDS)

    def held(self, *, now: float) -> int:
        """Replicas that the load will need if it comes back as it has before."""
        first = now - self.hold_seconds()
        return max((peak.replicas for peak in self.peaks if peak.at > first), default=0)


def observe(
    returns: Returns, *, now: float, needed: int, serving: int, queue_stands: bool, window_seconds: float
) -> Returns:
    """What is known after a tick at which the load, without any backlog, needed so many replicas.

    Where fewer serve, a queue stands within ``window_seconds`` of a rise, if it does at all. A pause no longer than
    that takes no replicas away.
    """
    last = returns.peaks[-1] if returns.peaks else None
    used, short = min(needed, serving), queue_stands and needed > serving
    if last is not None and last.replicas == used == needed and now - last.at < NOTE_SECONDS:
        return returns
    rise, pause, at = returns.rise, returns.pause_seconds, returns.returned_at
    if at is not None and now - at > MEMORY_SECONDS:
        pause, at = 0.0, None
    if returns.needed < SAME * needed:
        paused = now - next((peak.at for peak in reversed(returns.peaks) if peak.replicas >= SAME * needed), now)
        rise = Rise(now, paused) if paused > window_seconds else None
    if short and rise is not None and now - rise.at <= window_seconds:
        pause, at = max(pause, rise.pause_seconds), now
    oldest = now - LONGEST_SECONDS
    kept = [peak for peak in returns.peaks if peak.at >= oldest and peak.replicas > used]
    return Returns((*kept, Peak(now, used)), needed, rise, pause, at)
