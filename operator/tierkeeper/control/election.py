"""Who leads, decided from what one candidate knows: pure functions of a view and a time of the candidate's own clock.

No two lead at once, because of three rules. A holder leads until ``renew_deadline`` after it *sent* its last renewal
that arrived. Another takes the Lease over only when it has seen one and the same version of it for its whole
``duration``, which is longer, on its own monotonic clock: it began to count after the renewal arrived. And every write
names the version that it replaces. The times written in a Lease are for people; another machine's clock is never read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tierkeeper.ports import Lease


@dataclass(frozen=True, slots=True)
class Terms:
    """All in seconds. ``renew_deadline`` is below ``duration`` by what clocks and a last request may be off."""

    duration: float
    """For how long others leave a Lease alone that nobody renews."""
    renew_deadline: float
    """For how long a holder leads on after its last renewal."""
    retry: float
    """Between two looks, and between two renewals."""


@dataclass(frozen=True, slots=True)
class View:
    """What a candidate knows. Times are seconds of its own monotonic clock."""

    lease: Lease | None = None
    """As last seen; None: there is none."""
    since: float | None = None
    """When this version was first seen; None: never looked."""
    fresh: bool = False
    """Nothing has happened since that may have changed it, as a write that had no answer."""
    until: float | None = None
    """End of the candidate's own term; None: it does not lead."""


class Step(StrEnum):
    WAIT = "Wait"
    CLAIM = "Claim"
    """Write the Lease: take it, or renew it."""
    LOST = "Lost"
    """The term is over, or somebody else holds the Lease: stop at once."""


def leads(view: View, now: float) -> bool:
    """Whether the candidate may act at this moment."""
    return view.until is not None and now < view.until


def next_step(view: View, *, me: str, terms: Terms, now: float) -> Step:
    """What to do with what is known. Unless it is fresh, look first."""
    holder = view.lease.holder if view.lease else None
    if view.until is not None:
        lost = now >= view.until or (view.fresh and holder not in (None, me))
        return Step.LOST if lost else Step.CLAIM
    if view.since is None:
        return Step.WAIT
    if view.lease and holder in (None, me):  # given back; or my own write, whose answer was lost
        return Step.CLAIM
    # One that is not there may have been deleted under its holder, who will put it back: it counts as held.
    duration = view.lease.seconds if view.lease and view.lease.seconds else terms.duration
    return Step.CLAIM if now - view.since >= duration else Step.WAIT


def seen(view: View, lease: Lease | None, *, at: float) -> View:
    """The view after a look that was answered at ``at``."""
    known = view.since is not None and _version(view.lease) == _version(lease)
    return replace(view, lease=lease, since=view.since if known else at, fresh=True)


def won(lease: Lease, *, sent_at: float, at: float, terms: Terms) -> View:
    """The view after a write that was sent at ``sent_at`` and accepted: the term counts from when it was sent."""
    return View(lease=lease, since=at, fresh=True, until=sent_at + terms.renew_deadline)


def claim(view: View, *, me: str, terms: Terms, wall: float) -> Lease:
    """What to write in place of ``view.lease``."""
    before = view.lease or Lease()
    mine = before.holder == me
    return Lease(
        holder=me,
        seconds=terms.duration,
        transitions=before.transitions + (0 if mine or before.version is None else 1),
        acquired=before.acquired if mine else wall,
        renewed=wall,
    )


def _version(lease: Lease | None) -> str | None:
    return lease.version if lease else None
