"""How often Python looks for garbage that refers to itself.

Nearly all that the operator lets go is freed at once, when the last reference to it goes: what a tick replaces holds no
cycle. The search for the rest walks whatever was made lately, and now and then everything there is. With Python's own
thresholds (700 objects more than before, 10 and 10 such searches) what a tick makes is walked again and again, and the
whole fleet every few ticks: for nothing, and for an eighth of the tick's time at least (docs/policy.md).
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 10_000
"""So many more objects than at the last search call for the next one, among what is new since. Not more: the traceback
of a query that failed is such garbage, and keeps what the query has read."""

MIDDLE_SEARCHES = 10
OLD_SEARCHES = 50
"""So many searches among what is new call for one among what has outlived one; so many of those for one among all."""


def search_seldom() -> None:
    """For a process that runs a fleet, once all its modules are imported: they are not searched any more."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_SEARCHES, OLD_SEARCHES)
