"""The compiled part: it advances all replicas of one pool to a time, from event to event.

The rules are vLLM's (v1 scheduler, chunked prefill). Each step gives one token to every decoding sequence; the token
budget left goes to prompts in order of admission, then to new ones while there is a free slot and KV for the prompt.
A prompt that ends in a step gets its first token at the step's end. When the KV cache cannot take the step's tokens,
the newest sequence is preempted and computed anew from the front of the queue; such a step admits nobody.

Steps in which nothing of this changes are not walked through. Their time grows by ``b1 * decoding`` from one to the
next, so a run of n takes ``n * base + slope * n * (n - 1) / 2``, and a sequence ends at a known step.

All of it is one file, see ``compiled``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.compiled import compiled, within
from tierkeeper.sim.model import Floats, Status
from tierkeeper.sim.state import ITL, NEVER, NOBODY, RANDOM, ROUND_ROBIN, SERVING, TPOT, TTFT, Records, State

_FINISHED, _REJECTED = int(Status.FINISHED), int(Status.REJECTED)
_MOCKER_DECODE_SECONDS = 0.001
"""NVIDIA Dynamo's mocker 1.2.1: decoding takes at least this long."""


@compiled
def run(state: State, until: float) -> None:
    """Take in all arrivals and end all runs up to ``until``, inclusive; infinity: until nothing is left to do.

    Requests released from the front door go first, at ``until``: it is to be the present time then.
    Runs that end at the instant of an arrival end after it: the step that starts then sees the request.
    """
    pool, seats = state.pool[0], state.seats
    while True:
        if pool.released > 0:
            request, now = _unhold(state), until
        elif pool.next_arrival < len(state.book) and state.book[pool.next_arrival].arrival <= until:
            request = pool.next_arrival
            now = state.book[request].arrival
            pool.next_arrival += 1
        else:
            break
        for seat in range(len(seats)):
            while seats[seat].end < now:
                _turn(state, seat)
        _route(state, request, now)
    for seat in range(len(seats)):
        while seats[seat].end <= until and seats[seat].end < math.inf:
            _turn(state, seat)


@compiled
def shorten(state: State, now: float) -> None:
    """Let every run end with the step under way at ``now``, so that new limits count from the next one."""
    for seat in range(len(state.seats)):
        _shorten(state.seats[seat], now)


@compiled
def peek(state: State, now: float, shown: Records, histograms: NDArray[np.int64]) -> None:
    """Count the finished steps of every run under way in copies of the seats and their histograms."""
    for seat in range(len(state.seats)):
        here = state.seats[seat]
        done = _steps_before(here, now)
        if done > 0:
            _count_steps(shown[seat], done, histograms[seat], state.edges[ITL])
            shown[seat].context += here.decoding * done


@within
def _unhold(state: State) -> int:
    """The request that waits longest at the front door; it waits there no more."""
    pool = state.pool[0]
    request: int = pool.held_head
    pool.held_head = state.book[request].next
    if pool.held_head == NOBODY:
        pool.held_tail = NOBODY
    state.book[request].next = NOBODY
    pool.held -= 1
    pool.released -= 1
    return request


@within
def _route(state: State, request: int, now: float) -> None:
    """Give the request to a replica, hold it where none is Ready, or reject it."""
    pool, about = state.pool[0], state.book[request]
    seat = _choose(pool, state.seats)
    if seat == NOBODY:
        if pool.held_tail == NOBODY:
            pool.held_head = request
        else:
            state.book[pool.held_tail].next = request
        pool.held_tail = request
        pool.held += 1
        return
    here = state.seats[seat]
    about.pod = here.pod
    if here.waiting >= pool.max_queued or about.prompt + about.output - 1 > pool.kv_tokens:
        about.status = _REJECTED
        here.rejections += 1
        return
    if here.tail == NOBODY:
        here.head = request
    else:
        state.book[here.tail].next = request
    here.tail = request
    here.waiting += 1
    if here.end == math.inf:
        here.end = now
        here.steps = 0
    elif here.prefill == 0 and here.decoding + here.prefilling < pool.max_seqs:
        _shorten(here, now)


@within
def _choose(pool: Records, seats: Records) -> int:
    """A Ready replica for the next request, by the pool's routing; ties in turn. NOBODY: there is none."""
    if pool.routing == RANDOM:
        return _draw(pool, seats)
    count, best, lowest = len(seats), NOBODY, NEVER
    for offset in range(count):
        seat = pool.turn + offset
        if seat >= count:
            seat -= count
        here = seats[seat]
        if here.state != SERVING:
            continue
        load = here.decoding + here.prefilling + here.waiting
        if load < lowest:
            best, lowest = seat, load
            if pool.routing == ROUND_ROBIN:
                break
    if best != NOBODY:
        pool.turn = best + 1 if best + 1 < count else 0
    return best


@within
def _draw(pool: Records, seats: Records) -> int:
    """Any Ready replica, each as likely. Knuth's MMIX generator; its high bits are the good ones."""
    serving = 0
    for seat in range(len(seats)):
        serving += seats[seat].state == SERVING
    if serving == 0:
        return NOBODY
    pool.random = pool.random * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    skip = np.int64(pool.random >> np.uint64(33)) % serving
    for seat in range(len(seats)):
        if seats[seat].state == SERVING:
            if skip == 0:
                return seat
            skip -= 1
    return NOBODY


@within
def _turn(state: State, seat: int) -> None:
    """End the seat's run and plan the next."""
    here = state.seats[seat]
    if here.steps > 0:
        _complete(state, seat)
    _plan(state, seat)


@within
def _complete(state: State, seat: int) -> None:
    """All that happens in the run's steps, and at the end of the last one."""
    here = state.seats[seat]
    steps, prefill = here.steps, here.prefill * here.steps
    _count_steps(here, steps, state.histogram[seat], state.edges[ITL])
    here.clock += steps
    here.context += here.decoding * steps
    if here.decoding > 0 and here.next_finish == here.clock:
        _finish_decoders(state, seat)
    if prefill > 0:
        ended = 0
        while ended < here.prefilling:
            place = state.slots[seat, ended]
            tokens = min(prefill, place.left)
            place.left -= tokens
            prefill -= tokens
            if place.left > 0:
                break
            ended += 1
        for slot in range(ended):
            _first_token(state, seat, state.slots[seat, slot].prefill)
        here.prefilling -= ended
        for slot in range(here.prefilling):
            place, behind = state.slots[seat, slot], state.slots[seat, slot + ended]
            place.prefill, place.left = behind.prefill, behind.left
    if here.decoding + here.prefilling + here.waiting == 0:
        here.idle_at = here.end


@within
def _finish_decoders(state: State, seat: int) -> None:
    """Let go of the sequences that have their last token, and find the next to end."""
    here, slot, soonest = state.seats[seat], 0, NEVER
    while slot < here.decoding:
        place = state.slots[seat, slot]
        if place.finish > here.clock:
            soonest = min(soonest, place.finish)
            slot += 1
            continue
        request = place.decoder
        here.context -= state.book[request].prompt + state.book[request].output
        _remove_decoder(state, seat, slot)
        _finish(state, seat, request)
    here.next_finish = soonest


@within
def _remove_decoder(state: State, seat: int, slot: int) -> None:
    here = state.seats[seat]
    here.decoding -= 1
    last, freed = state.slots[seat, here.decoding], state.slots[seat, slot]
    freed.decoder, freed.finish = last.decoder, last.finish


@within
def _first_token(state: State, seat: int, request: int) -> None:
    """The prompt is computed: its first token, or the next one of a sequence that was preempted."""
    here, about, now = state.seats[seat], state.book[request], state.seats[seat].end
    tokens = about.prompt + about.generated
    here.reserved -= tokens
    if about.generated == 0:
        about.first = now
        ttft = now - about.arrival
        here.ttft_sum += ttft
        state.histogram[seat, TTFT, _bucket(state.edges[TTFT], ttft)] += 1
        here.prompt_tokens += about.prompt
    else:
        here.itl_sum += now - about.last
        state.histogram[seat, ITL, _bucket(state.edges[ITL], now - about.last)] += 1
    to_come = about.output - about.generated - 1
    if to_come == 0:
        _finish(state, seat, request)
        return
    here.context += tokens + 1
    place = state.slots[seat, here.decoding]
    place.decoder, place.finish = request, here.clock + to_come
    here.next_finish = min(here.next_finish, place.finish)
    here.decoding += 1


@within
def _finish(state: State, seat: int, request: int) -> None:
    here, about = state.seats[seat], state.book[request]
    about.status = _FINISHED
    about.last = here.end
    tpot = (about.last - about.first) / (about.output - 1) if about.output > 1 else 0.0
    here.tpot_sum += tpot
    state.histogram[seat, TPOT, _bucket(state.edges[TPOT], tpot)] += 1
    here.queue_sum += about.admitted - about.arrival
    here.prefill_time_sum += about.first - about.admitted
    here.prompt_length += about.prompt
    here.output_length += about.output
    here.finished += 1


@within
def _plan(state: State, seat: int) -> None:
    """Schedule the step that starts where the last run ended, and as many more as will be like it."""
    pool, here = state.pool[0], state.seats[seat]
    here.start = here.end
    crowded = False
    while here.decoding > 0 and here.context + here.reserved > pool.kv_tokens:
        _preempt_newest(state, seat)
        crowded = True
    budget = pool.max_tokens - here.decoding if pool.max_tokens > here.decoding else 0
    left, slot, context = budget, 0, here.context
    while True:
        if slot == here.prefilling and (crowded or left == 0 or not _admit(state, seat)):
            break
        place = state.slots[seat, slot]
        tokens = min(left, place.left)
        left -= tokens
        if tokens < place.left:
            break
        about = state.book[place.prefill]
        context += about.prompt + about.generated
        slot += 1
    here.prefill = budget - left
    here.batch = here.decoding + slot
    here.context_in_step = context
    if here.batch == 0 and here.prefill == 0:
        here.end = math.inf
        here.steps = 0
        return
    decode = pool.base + here.batch * pool.per_sequence + context * pool.per_context
    floored = pool.mocker == 1 and (here.batch == 0 or decode < _MOCKER_DECODE_SECONDS)
    if floored:
        decode = 0.0 if here.batch == 0 else _MOCKER_DECODE_SECONDS
    here.step = decode + here.prefill * pool.per_prefill
    here.slope = here.decoding * pool.per_context
    here.steps = 1 if slot > 0 or (floored and here.batch > 0) else _like_steps(pool, here, state.slots[seat, 0].left)
    here.end = here.start + _run_seconds(here, here.steps)


@within
def _like_steps(pool: Records, here: Records, left: int) -> int:
    """How many steps will be like the planned one: none ends a prompt or a sequence, or fills the KV cache before it.

    Where prompts take the whole budget it is the first one alone that does, and nobody can be admitted beside it.
    """
    steps = NEVER
    if here.prefill > 0:
        steps = (left - 1) // here.prefill
    if here.decoding > 0:
        steps = min(steps, here.next_finish - here.clock)
        steps = min(steps, (pool.kv_tokens - here.reserved - here.context) // here.decoding + 1)
    return steps


@within
def _admit(state: State, seat: int) -> bool:
    """Take the first of the queue into the running batch, if there is a slot and KV for its prompt."""
    pool, here = state.pool[0], state.seats[seat]
    request = here.head
    if request == NOBODY or here.decoding + here.prefilling >= pool.max_seqs:
        return False
    about = state.book[request]
    tokens = about.prompt + about.generated
    if here.context + here.reserved + tokens > pool.kv_tokens:
        return False
    here.head = about.next
    if here.head == NOBODY:
        here.tail = NOBODY
    about.next = NOBODY
    here.waiting -= 1
    if math.isnan(about.admitted):
        about.admitted = here.start
    about.order = pool.admissions
    pool.admissions += 1
    here.reserved += tokens
    place = state.slots[seat, here.prefilling]
    place.prefill, place.left = request, tokens
    here.prefilling += 1
    return True


@within
def _preempt_newest(state: State, seat: int) -> None:
    """Put the sequence that was admitted last back to the front of the queue; its KV is free."""
    here, newest, order = state.seats[seat], NOBODY, -1
    for slot in range(here.decoding):
        placed = state.book[state.slots[seat, slot].decoder].order
        if placed > order:
            newest, order = slot, placed
    last = here.prefilling - 1
    if last >= 0 and state.book[state.slots[seat, last].prefill].order > order:
        request = state.slots[seat, last].prefill
        about = state.book[request]
        here.prefilling = last
        here.reserved -= about.prompt + about.generated
    else:
        request = state.slots[seat, newest].decoder
        about = state.book[request]
        about.generated = about.output - (state.slots[seat, newest].finish - here.clock)
        about.last = here.start
        here.context -= about.prompt + about.generated
        _remove_decoder(state, seat, newest)
        here.next_finish = NEVER
        for slot in range(here.decoding):
            here.next_finish = min(here.next_finish, state.slots[seat, slot].finish)
    about.preemptions += 1
    here.preemptions += 1
    about.next = here.head
    here.head = request
    if here.tail == NOBODY:
        here.tail = request
    here.waiting += 1


@within
def _count_steps(here: Records, steps: int, histogram: NDArray[np.int64], edges: Floats) -> None:
    """Count the tokens and gaps of the run's first ``steps`` steps."""
    here.generation_tokens += here.batch * steps
    here.last_seconds = here.step + here.slope * (steps - 1)
    here.last_prefill = here.prefill
    here.last_batch = here.batch
    here.last_context = here.context_in_step + here.decoding * (steps - 1)
    if here.decoding == 0:
        return
    here.itl_sum += here.decoding * _run_seconds(here, steps)
    counted, bucket = 0, _bucket(edges, here.step)
    while counted < steps:
        upto = steps
        if here.slope > 0.0:
            room = (edges[bucket] - here.step) / here.slope
            if room < steps - 1:
                upto = math.floor(room) + 1
        histogram[ITL, bucket] += here.decoding * (upto - counted)
        counted = upto
        bucket += 1


@within
def _bucket(edges: Floats, seconds: float) -> int:
    """Index of the first edge that is not below ``seconds``; the last edge is infinite."""
    bucket = 0
    while edges[bucket] < seconds:
        bucket += 1
    return bucket


@within
def _run_seconds(here: Records, steps: int) -> float:
    """Seconds of the first ``steps`` steps of the run."""
    seconds: float = steps * here.step + here.slope * (steps * (steps - 1) / 2)
    return seconds


@within
def _steps_before(here: Records, now: float) -> int:
    """How many steps of the run end before ``now``: the root of the square, corrected by what rounding moved it."""
    since = now - here.start
    if here.steps == 0 or since <= 0.0:
        return 0
    half = here.step - here.slope / 2
    steps: int = min(math.floor(2 * since / (half + math.sqrt(half * half + 2 * here.slope * since))), here.steps)
    while steps > 0 and _run_seconds(here, steps) >= since:
        steps -= 1
    while steps < here.steps and _run_seconds(here, steps + 1) < since:
        steps += 1
    return steps


@within
def _shorten(here: Records, now: float) -> None:
    """Let the run end with the step under way at ``now``."""
    if here.steps > 1:
        steps = _steps_before(here, now) + 1
        if steps < here.steps:
            here.steps = steps
            here.end = here.start + _run_seconds(here, steps)
