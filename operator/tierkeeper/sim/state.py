"""The memory of the kernel: structured arrays, so that compiled code reads them by name.

A *seat* is a place for one Ready or draining replica; a new pod takes the seat of one that is gone. A replica's future
is one *run*: a number of steps with the same sequences in them, planned ahead and cut short when a request arrives that
could join. Step j of a run (0, 1, ...) takes ``base + slope * j`` seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.model import Floats, PoolConfig, Requests, Status

Records: TypeAlias = Any
"""A structured array, or one record of it in compiled code."""

EMPTY, SERVING, DRAINING = 0, 1, 2
LEAST_LOADED, ROUND_ROBIN, RANDOM = 0, 1, 2
TTFT, TPOT, ITL = 0, 1, 2
NOBODY = -1
NEVER = np.iinfo(np.int64).max

POOL = np.dtype(
    [
        *((name, np.float64) for name in ("base", "per_sequence", "per_context", "per_prefill")),
        *((name, np.int64) for name in ("kv_tokens", "max_seqs", "max_tokens", "max_queued", "mocker", "routing")),
        *((name, np.int64) for name in ("next_arrival", "turn", "admissions")),
        *((name, np.int64) for name in ("held_head", "held_tail", "held", "released")),
        ("random", np.uint64),
    ],
    align=True,
)
"""Of the whole pool. ``held``: requests at the front door that found no Ready replica; ``released``: may go now."""

SEAT = np.dtype(
    [
        # What the search for the next event reads comes first, in one cache line.
        ("end", np.float64),  # of the run; inf: idle
        ("state", np.int64),
        *((name, np.int64) for name in ("decoding", "prefilling", "waiting")),
        *((name, np.int64) for name in ("steps", "prefill", "batch")),  # of the run; the latter two by step
        *((name, np.float64) for name in ("start", "step", "slope")),  # of the run; step: seconds of its first one
        ("context_in_step", np.int64),  # tokens of the sequences that get a token in the run's first step
        ("clock", np.int64),  # steps done; a sequence's end is known as a step
        ("next_finish", np.int64),  # clock of the next decoder to end
        ("context", np.int64),  # tokens of the decoders: prompt and generated
        ("reserved", np.int64),  # KV tokens of prompts under way
        *((name, np.int64) for name in ("head", "tail")),  # of the queue
        ("pod", np.int64),
        *((name, np.float64) for name in ("started_at", "idle_at")),
        *((f"{name}_sum", np.float64) for name in ("ttft", "tpot", "itl", "queue", "prefill_time")),
        *((name, np.int64) for name in ("prompt_length", "output_length", "prompt_tokens", "generation_tokens")),
        *((name, np.int64) for name in ("finished", "preemptions", "rejections")),
        ("last_seconds", np.float64),
        *((f"last_{name}", np.int64) for name in ("prefill", "batch", "context")),
    ],
    align=True,
)

BOOK = np.dtype(
    [
        ("arrival", np.float64),
        ("admitted", np.float64),
        ("first", np.float64),  # token
        ("last", np.float64),  # token
        ("prompt", np.int32),
        ("output", np.int32),
        ("pod", np.int32),
        ("next", np.int32),  # request behind this one in its queue
        ("generated", np.int32),  # tokens, when it was preempted last
        ("order", np.int32),  # of its last admission
        ("preemptions", np.int32),
        ("status", np.int8),
    ],
    align=True,
)
"""Each request and what is known of it, one cache line; NaN: has not happened."""

SLOT = np.dtype(
    [
        ("finish", np.int64),  # clock at which the decoder has its last token
        ("left", np.int64),  # prompt tokens still to compute
        ("decoder", np.int32),  # request
        ("prefill", np.int32),  # request
    ],
    align=True,
)
"""Of a seat's running requests: the decoders in no order, beside them the prompts under way in order of admission."""


class State(NamedTuple):
    """All that the kernel reads and writes. Few arrays, as each one costs compile time in every function."""

    pool: Records
    """[1]"""
    seats: Records
    """[seats]"""
    slots: Records
    """[seats, most running requests]"""
    book: Records
    """[requests]"""
    histogram: NDArray[np.int64]
    """[seats, 3, buckets] TTFT, TPOT, ITL: observations in each bucket, not summed up"""
    edges: Floats
    """[3, buckets] upper bounds, the last ones infinite"""


def new_state(config: PoolConfig, requests: Requests, *, max_num_seqs: int, max_num_batched_tokens: int) -> State:
    """A pool without a seat, before the first arrival."""
    pool = np.zeros(1, POOL)
    profile = config.profile
    pool["base"], pool["per_sequence"] = profile.base_seconds, profile.per_sequence_seconds
    pool["per_context"], pool["per_prefill"] = profile.per_context_token_seconds, profile.per_prefill_token_seconds
    pool["kv_tokens"], pool["mocker"] = config.kv_tokens, config.mocker_rules
    pool["max_seqs"], pool["max_tokens"] = max_num_seqs, max_num_batched_tokens
    pool["max_queued"] = NEVER if config.max_queued_requests is None else config.max_queued_requests
    pool["routing"] = ("least-loaded", "round-robin", "random").index(config.routing)
    pool["held_head"] = pool["held_tail"] = NOBODY
    book = np.zeros(len(requests), BOOK)
    book["arrival"], book["prompt"], book["output"] = requests.arrival, requests.prompt, requests.output
    book["admitted"] = book["first"] = book["last"] = np.nan
    book["pod"] = book["next"] = NOBODY
    book["status"] = Status.UNSERVED
    rows = (config.ttft_edges, config.tpot_edges, config.tpot_edges)
    edges = np.full((3, max(len(row) for row in rows) + 1), np.inf)
    for number, row in enumerate(rows):
        edges[number, : len(row)] = row
    empty = State(
        pool=pool,
        seats=np.zeros(0, SEAT),
        slots=np.zeros((0, 0), SLOT),
        book=book,
        histogram=np.zeros((0, *edges.shape), np.int64),
        edges=edges,
    )
    return grown(empty, seats=4, slots=max_num_seqs)


def grown(state: State, *, seats: int, slots: int) -> State:
    """The same state with room for at least so many seats, and running requests in each."""
    old_seats, old_slots = state.slots.shape
    seats, slots = max(seats, old_seats), max(slots, old_slots)
    if (seats, slots) == state.slots.shape:
        return state
    larger = State(
        pool=state.pool,
        seats=np.zeros(seats, SEAT),
        slots=np.zeros((seats, slots), SLOT),
        book=state.book,
        histogram=np.zeros((seats, *state.edges.shape), np.int64),
        edges=state.edges,
    )
    clear_seats(larger.seats)
    larger.seats[:old_seats] = state.seats
    larger.slots[:old_seats, :old_slots] = state.slots
    larger.histogram[:old_seats] = state.histogram
    return larger


def clear_seats(seats: Records) -> None:
    """Nobody sits there, nothing is counted yet. ``seats``: a structured array."""
    seats[...] = np.zeros((), SEAT)
    seats["end"] = np.inf
    seats["next_finish"] = NEVER
    seats["head"] = seats["tail"] = NOBODY
