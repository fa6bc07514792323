"""Time in the tests of control."""

import asyncio

from tests.fakes.leap import LeapingLoop


def pytest_asyncio_loop_factories(item):
    """A test that is marked ``leaping`` waits for nothing: its loop's time leaps from timer to timer."""
    leaping = item.get_closest_marker("leaping") is not None
    return {"loop": LeapingLoop if leaping else asyncio.SelectorEventLoop}
