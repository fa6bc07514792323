"""A load that comes back: replicas that were given away and had to be asked for again within the hour.

A shrink waits until fewer replicas were enough for the stabilization window. A load that pauses for longer, every hour
or every twenty minutes, meets a small pool each time, and what arrives until the replicas are back is lost. That is
what an error budget is for while there is some; once it is spent, replicas stay through such a pause.
"""

from __future__ import annotations

import math

from tierkeeper.values import value

#: Longer pauses are slept through: an hour of replicas that do nothing is dearer than the minutes that they spare.
LONGEST_SECONDS = 3600.0

#: The next pause may be half as long again as the longest so far.
MARGIN = 1.5

#: A load is the same again from this share of what it needed before: what a replica is trusted with varies as much.
SAME = 0.75

#: A pause is forgotten after a day.
MEMORY_SECONDS = 86_400.0

#: An unchanged need is noted this often.
NOTE_SECONDS = 60.0

#: A queue stands once it has been too long through two scrapes of 15 s; a burst is gone by then.
STANDS_SECONDS = 30.0


@value(frozen=True, slots=True)
class Peak:
    """What a load needed at a time."""

    at: float
    needed: float
    """Replicas; infinite where a queue had stood for so long that nobody can say."""
    used: int
    """Those of them that served."""


@value(frozen=True, slots=True)
class Rise:
    """A load that needs as much again as before a pause."""

    at: float
    pause_seconds: float
    used: int
    """Replicas that served it before."""


@value(frozen=True, slots=True)
class Pause:
    """A pause after which a load met too few replicas."""

    at: float
    """When that was seen."""
    seconds: float


@value(frozen=True, slots=True)
class Returns:
    """See the module. Times are monotonic seconds."""

    peaks: tuple[Peak, ...] = ()
    """Of the last hour, older first: each needed or used more than all after it."""
    rise: Rise | None = None
    """The last one."""
    pauses: tuple[Pause, ...] = ()
    """Of the last day, older first: each longer than all after it."""

    def hold_seconds(self, *, now: float) -> float:
        """How long a load is to be waited for; zero where none has come back."""
        longest = max((pause.seconds for pause in self.pauses if now - pause.at <= MEMORY_SECONDS), default=0.0)
        return min(MARGIN * longest, LONGEST_SECONDS)

    def held(self, *, now: float) -> int:
        """Replicas that the load will need if it comes back as it has before."""
        first = now - self.hold_seconds(now=now)
        return max((peak.used for peak in self.peaks if peak.at > first), default=0)


def observe(
    returns: Returns,
    *,
    now: float,
    needed: int,
    serving: int,
    queued_seconds: float,
    window_seconds: float,
) -> Returns:
    """What is known after a tick at which the load, without any backlog, needed ``needed`` replicas of which
    ``serving`` were there. ``queued_seconds``: for how long the queue has been too long.

    Where fewer serve, a queue stands within ``window_seconds`` of a rise, if it does at all. A pause no longer than
    that takes no replicas away; a queue that has been too long for longer is no pause, whatever is read of a pool that
    serves all it can.
    """
    need, used = math.inf if queued_seconds > window_seconds else float(needed), min(needed, serving)
    last = returns.peaks[-1] if returns.peaks else None
    if last is not None and last.needed == need == last.used == used and now - last.at < NOTE_SECONDS:
        return returns
    rise, pauses = _risen(returns.peaks, now=now, need=needed, came=now - queued_seconds), returns.pauses
    rise = rise if rise is not None and rise.pause_seconds > window_seconds else returns.rise
    fresh = rise is not None and now - rise.at <= window_seconds
    if rise is not None and fresh and queued_seconds >= STANDS_SECONDS and serving < min(needed, rise.used):
        kept = [one for one in pauses if now - one.at <= MEMORY_SECONDS and one.seconds > rise.pause_seconds]
        pauses = (*kept, Pause(now, rise.pause_seconds))
    oldest = now - LONGEST_SECONDS
    peaks = [one for one in returns.peaks if one.at >= oldest and (one.needed > need or one.used > used)]
    return Returns((*peaks, Peak(now, need, used)), rise, pauses)


def _risen(peaks: tuple[Peak, ...], *, now: float, need: int, came: float) -> Rise | None:
    """That the load needs as much again as replicas served before, if at the look before it did not. ``came``: when it
    began to, which is when its queue did."""
    used = max((peak.used for peak in peaks if SAME * peak.used <= need), default=0)
    if not peaks or peaks[-1].needed >= SAME * used:
        return None
    return Rise(now, came - max(peak.at for peak in peaks if peak.needed >= SAME * used), used)
