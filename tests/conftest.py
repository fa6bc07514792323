"""What every test stands on."""

import gc
import os

from hypothesis import settings

from tierkeeper.garbage import search_seldom

# How long one example takes is the machine's affair: a busy one must not fail a property that holds. Where a change is
# judged ($CI), the examples are the same each time: new ones are looked for by those who can mend what they find.
settings.register_profile("tierkeeper", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tierkeeper")


def pytest_collection_finish() -> None:
    """All modules are imported: to search them for cycles, again and again, took a sixth of the tests' time."""
    search_seldom()


def pytest_sessionfinish() -> None:
    """pytest looks five times for garbage that failed to go; the first look finds it, and the others see nothing."""
    gc.collect()
    gc.freeze()
