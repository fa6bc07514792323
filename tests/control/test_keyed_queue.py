"""One reconcile a key at a time, merged, retried with growing patience."""

import asyncio
import contextlib

import pytest

from tierkeeper.control.queue import Backoff, KeyedQueue

pytestmark = pytest.mark.looptime


@contextlib.asynccontextmanager
async def running(queue, work, workers=2):
    tasks = [asyncio.create_task(queue.worker(work)) for _ in range(workers)]
    try:
        yield
    finally:
        queue.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def queue_of_strings(**options):
    return KeyedQueue[str](random=lambda: 0.0, **options)


async def test_a_key_added_many_times_before_its_turn_is_worked_on_once():
    queue, seen = queue_of_strings(), []

    async def work(key):
        seen.append(key)

    for _ in range(5):
        queue.add("gold")
    async with running(queue, work):
        await asyncio.sleep(1)
    assert seen == ["gold"]


async def test_the_same_key_is_never_in_two_hands():
    queue, at_work, overlaps = queue_of_strings(), set(), []

    async def work(key):
        overlaps.extend([key] if key in at_work else [])
        at_work.add(key)
        await asyncio.sleep(1)
        at_work.discard(key)

    async with running(queue, work, workers=4):
        for _ in range(4):
            queue.add("gold")
            await asyncio.sleep(0.4)
    assert overlaps == []


async def test_a_key_added_during_its_work_is_worked_on_once_more():
    queue, seen = queue_of_strings(), []

    async def work(key):
        seen.append(key)
        await asyncio.sleep(1)

    async with running(queue, work):
        queue.add("gold")
        await asyncio.sleep(0.5)
        queue.add("gold")
        queue.add("gold")
        await asyncio.sleep(5)
    assert seen == ["gold", "gold"]


async def test_other_keys_do_not_wait_for_a_slow_one():
    queue, seen = queue_of_strings(), []

    async def work(key):
        if key == "slow":
            await asyncio.sleep(100)
        seen.append(key)

    async with running(queue, work, workers=2):
        queue.add("slow")
        queue.add("quick")
        await asyncio.sleep(1)
        assert seen == ["quick"]


async def test_a_failing_key_comes_back_ever_more_slowly_and_a_success_forgives_it():
    loop = asyncio.get_running_loop()
    queue, times = queue_of_strings(backoff=Backoff(base=2, ceiling=8)), []

    async def work(key):
        times.append(loop.time())
        if len(times) < 6:
            raise RuntimeError("refused")

    start = loop.time()
    async with running(queue, work):
        queue.add("gold")
        await asyncio.sleep(100)
    assert [round(t - start, 3) for t in times] == [0, 1, 3, 7, 11, 15]  # waits 1, 2, 4, then 4: half of the ceiling
    assert queue.failures("gold") == 0


async def test_work_may_ask_to_be_done_again_later():
    loop = asyncio.get_running_loop()
    queue, times = queue_of_strings(), []

    async def work(key):
        times.append(loop.time())
        return 10.0 if len(times) < 3 else None

    start = loop.time()
    async with running(queue, work):
        queue.add("gold")
        await asyncio.sleep(100)
    assert [round(t - start, 3) for t in times] == [0, 10, 20]


async def test_of_two_delayed_adds_the_earlier_one_counts():
    loop = asyncio.get_running_loop()
    queue, times = queue_of_strings(), []

    async def work(key):
        times.append(loop.time())

    start = loop.time()
    async with running(queue, work):
        queue.add_after("gold", 10)
        queue.add_after("gold", 2)
        queue.add_after("gold", 5)
        await asyncio.sleep(100)
    assert [round(t - start, 3) for t in times] == [2]


async def test_a_forgotten_key_does_not_come_back():
    queue, seen = queue_of_strings(), []

    async def work(key):
        seen.append(key)

    async with running(queue, work):
        queue.add_after("gold", 2)
        queue.forget("gold")
        await asyncio.sleep(10)
    assert seen == []


def test_jitter_spreads_a_retry_over_the_upper_half_of_its_delay():
    backoff = Backoff(base=1, ceiling=60)
    assert backoff.delay(4, lambda: 0.0) == 4.0
    assert backoff.delay(4, lambda: 0.999) == pytest.approx(8.0, abs=0.01)
    assert backoff.delay(10_000, lambda: 1.0) == 60.0


async def test_a_failure_that_asks_for_patience_gets_it_beyond_the_back_off():
    queue, times = queue_of_strings(at_least=lambda error: float(str(error))), []

    async def work(_):
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise ValueError("40")

    async with running(queue, work):
        queue.add("gold")
        await asyncio.sleep(100)
    assert times[1] - times[0] == pytest.approx(40)


async def test_a_closed_queue_lets_work_in_progress_end_and_hands_out_no_other_key():
    queue, done = queue_of_strings(), []

    async def work(key):
        await asyncio.sleep(1)
        done.append(key)
        return 1.0

    async with running(queue, work, workers=1):
        for key in ("gold", "silver", "bronze"):
            queue.add(key)
        queue.add_after("batch", 0.2)
        await asyncio.sleep(0.5)
        queue.add("gold")
        queue.close()
        queue.add("late")
        await asyncio.sleep(10)
    assert done == ["gold"]
    assert not queue.busy
