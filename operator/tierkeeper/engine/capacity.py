"""What one replica carries: its speed from what it shows, and the rate, the batch and the token budget that follow.

A saturated replica that decodes ``B`` sequences admits ``B / output`` prompts a step, so a step takes
``v * (a + B * (b0 + b1 * context + d * prompt / output))``. ``v`` is the replica's speed against its profile, measured
from the running pool: the profile gives only the shape.
"""

from __future__ import annotations

import math

from tierkeeper.engine.latency import (
    Lengths,
    Profile,
    decode_slope_seconds,
    decode_step_seconds,
    saturated_slope_seconds,
)
from tierkeeper.values import value

#: A long prompt is this multiple of the mean: the P95 of the recorded mixes lies at 3 to 4 times it (Azure 2023: 1,155
#: and 4,070 tokens).
LONG_PROMPT = 4.0

#: ln(1/0.01): the tail of a queue falls to 1 % at 4.6 times its mean.
TAIL = 4.6


@value(frozen=True, slots=True)
class Limits:
    """What bounds a replica's batch."""

    max_num_seqs: float
    max_num_batched_tokens: float | None = None
    """Tokens of a step; None: not known, no bound."""
    tpot_seconds: float | None = None
    """None: no TPOT is promised."""
    kv_sequences: float | None = None
    """Sequences that the KV cache holds; None while it has not been seen to fill."""


@value(frozen=True, slots=True)
class Capacity:
    """One replica at its limit."""

    batch: float
    """Sequences that decode; below one where reading prompts is nearly all there is to do."""
    step_seconds: float
    requests_per_second: float


def speed(profile: Profile, *, batch: float, lengths: Lengths, step_seconds: float, prompt_rate: float) -> float:
    """Speed ``v`` of a replica against the profile: above 1 is slower.

    ``batch`` sequences decode, each gains a token every ``step_seconds``, and ``prompt_rate`` prompt tokens are read a
    second meanwhile: v = step / (a + B * (b0 + b1 * context) + d * rate * step).
    """
    prefill = profile.per_prefill_token_seconds * prompt_rate * step_seconds
    return step_seconds / (decode_step_seconds(profile, batch=batch, lengths=lengths) + prefill)


def reading_speed(
    profile: Profile,
    *,
    prefill_seconds: float,
    prompt_tokens: float,
    step_seconds: float,
    prompt_rate: float,
    chunk_tokens: float = math.inf,
) -> float | None:
    """Speed ``v`` at which a replica reads prompts, at least, against the profile; None where nothing tells it.

    ``prefill_seconds`` pass from a prompt of ``prompt_tokens`` scheduled to its first token (means), in n steps with
    room for ``chunk_tokens`` of prompts. Each of them also holds what a mean step of ``step_seconds`` does, others'
    prompts included as far as there is room; what it lasts beyond goes into the prompt itself. An engine that schedules
    a step ahead (vLLM from 0.14 on, by default) shows one step more, and which of the two it is cannot be seen. So
    v >= (prefill - (n + 1) * step) / (d * min(prompt, n * (chunk - rate * step))). Prompts whose lengths vary like an
    exponential law need n = 1 / (1 - exp(-chunk / prompt)) steps.

    Worked as below, 1,155 tokens read at once: 96 ms between steps of 18 ms are at least 60 ms, 52 us a token and
    v = 0.84; 68 us and 1.09 at most. It tells only where that is as long as the n steps or longer.
    """
    if prompt_tokens < 1.0 or chunk_tokens < 1.0:
        return None
    steps = -1.0 / math.expm1(-chunk_tokens / prompt_tokens)
    own = min(prompt_tokens, steps * (chunk_tokens - prompt_rate * step_seconds))
    read = prefill_seconds - (steps + 1.0) * step_seconds
    if own < 1.0 or read < steps * step_seconds:
        return None
    return read / (own * profile.per_prefill_token_seconds)


def capacity(profile: Profile, *, speed: float, lengths: Lengths, limits: Limits) -> Capacity:
    """The most that one replica carries within ``limits``: the largest batch, and the rate at which it turns over.

    Worked, for Llama-3.1-8B on 2 x A100 with 1,155 prompt and 211 output tokens at v = 1: TPOT of 40 ms allows
    (40 - 8.5) / 0.465 = 67 sequences, 67 / (211 * 40 ms) = 8.0 requests/s; a cap of 24 allows
    24 / (211 * 19.7 ms) = 5.8.
    """
    batch = max(1.0, limits.max_num_seqs)
    if limits.kv_sequences is not None:
        batch = min(batch, max(1.0, limits.kv_sequences))
    if limits.max_num_batched_tokens is not None:
        batch = min(batch, limits.max_num_batched_tokens / (1.0 + lengths.prompt_tokens_per_step))
    slope = saturated_slope_seconds(profile, lengths)
    if limits.tpot_seconds is not None:
        within = _batch_within(profile.base_seconds, slope, limits.tpot_seconds / speed)
        batch = min(batch, max(within, _LEAST_BATCH))
    step = speed * (profile.base_seconds + batch * slope)
    return Capacity(batch, step, batch / (max(lengths.output_tokens, 1.0) * step))


_LEAST_BATCH = 1.0
"""Replicas carry less than one sequence at once for no target: where a lone one misses it, so it does on any number."""


def batch_within(profile: Profile, *, speed: float, lengths: Lengths, tpot_seconds: float) -> float:
    """The largest saturated batch whose step lasts at most ``tpot_seconds``; may be below 1."""
    return _batch_within(profile.base_seconds, saturated_slope_seconds(profile, lengths), tpot_seconds / speed)


def _batch_within(base_seconds: float, slope_seconds: float, step_seconds: float) -> float:
    return max(step_seconds - base_seconds, 0.0) / slope_seconds


def token_budget(profile: Profile, *, speed: float, lengths: Lengths, batch: float, tpot_seconds: float) -> float:
    """Tokens of one step at which no step is longer than ``tpot_seconds`` beside ``batch`` decoding sequences.

    Such a budget costs no throughput: steps of exactly the TPOT target are as many tokens as the target allows on
    average. Nor can any request miss TPOT then, however many prompts wait. Worked as above with 24 sequences:
    (40 - 8.5 - 24 * 0.126) / 0.062 + 24 = 483.
    """
    decode = decode_step_seconds(profile, batch=batch, lengths=lengths)
    wanted = max(tpot_seconds / speed - decode, 0.0) / profile.per_prefill_token_seconds + batch
    return max(wanted, batch + 1.0)


def long_prompt_seconds(profile: Profile, *, speed: float, lengths: Lengths, batch: float, tokens: float) -> float:
    """Seconds to read a prompt LONG_PROMPT times the mean in steps of ``tokens`` beside ``batch`` sequences.

    Worked as above, 483 tokens beside 24 sequences: 4,620 / 459 = 10 steps of 40 ms, 0.40 s.
    """
    chunk = max(tokens - batch, 1.0)
    decode = decode_step_seconds(profile, batch=batch, lengths=lengths)
    steps = LONG_PROMPT * lengths.prompt_tokens / chunk
    return speed * steps * (decode + profile.per_prefill_token_seconds * chunk)


@value(frozen=True, slots=True)
class Tail:
    """What keeps a pool from being used in full, but for the number of its replicas."""

    batch: float
    wait_seconds: float
    """TAIL times the seconds to read one prompt."""
    ttft_seconds: float | None

    def usable_share(self, replicas: float) -> float:
        """Share of the capacity of ``replicas`` together, in (0, 1), that can be used before 1 % of requests suffer.

        Two things take from it, both less in a larger pool. The number of requests present varies like its square root:
        beside a mean of N * B, P99 is 2.33 * sqrt(2 * N * B) above it, with arrivals that bunch twice as much as
        Poisson's. And prompts queue for each other: in heavy traffic a wait exceeds t with probability
        exp(-N (1 - u) t / (u S)), S the time to read one prompt, so u = 1 / (1 + 4.6 S / (N t)). (Halfin and Whitt,
        "Heavy-traffic limits for queues with many exponential servers", 1981.) Worked as above at 1.5 s: 1 replica
        0.57, 4 replicas 0.78, 8 replicas 0.84; simulated, they miss 1 % at 0.63, 0.8 and 0.85.
        """
        spread, queue = self._reserves()
        return 1.0 / ((1.0 + spread / math.sqrt(max(replicas, 1.0 / self.batch))) * (1.0 + queue / max(replicas, 1.0)))

    def replicas(self, usable: float, *, least: float) -> float:
        """How many, at least ``least``, have so many replicas' worth of usable capacity together.

        What one has depends on how many there are, so the number is tried and corrected; it settles within eight steps
        to a thousandth for a single replica, and to a millionth for four. ``usable_share`` is written out here once
        more: called sixteen times a tick of a tier, it took half of this method's time.
        """
        needed, smallest, sqrt = least, 1.0 / self.batch, math.sqrt
        spread, queue = self._reserves()
        for _ in range(8):
            reserve = 1.0 + spread / sqrt(needed if needed > smallest else smallest)
            better = usable * reserve * (1.0 + queue / (needed if needed > 1.0 else 1.0))
            if better < least:
                better = least
            if better == needed:
                break  # no further step would move it
            needed = better
        return needed

    def _reserves(self) -> tuple[float, float]:
        """What one replica alone has to have beyond its use, in shares of that: for bursts, and for prompts."""
        return _TAIL_DEVIATIONS / math.sqrt(self.batch), self.wait_seconds / (self.ttft_seconds or math.inf)


def tail(profile: Profile, *, speed: float, lengths: Lengths, batch: float, ttft_seconds: float | None) -> Tail:
    """What ``Tail.usable_share`` needs of a mix and a batch: worked out once for the many pool sizes that are tried."""
    return Tail(batch, TAIL * read_seconds(profile, speed=speed, lengths=lengths), ttft_seconds)


def read_seconds(profile: Profile, *, speed: float, lengths: Lengths) -> float:
    """Seconds to read one mean prompt in a step of its own. Worked as above: 8.5 + 1,155 x 0.062 = 80 ms."""
    return speed * (profile.base_seconds + profile.per_prefill_token_seconds * lengths.prompt_tokens)


_BUNCHING = 2.0
"""Variance over mean of arrivals: Poisson's is 1, chat traffic's 1 to 3."""

_TAIL_DEVIATIONS = 2.33 * math.sqrt(_BUNCHING)
"""From the mean to P99, in square roots of the mean: 2.33 standard deviations of a normal law."""


def work_seconds(profile: Profile, lengths: Lengths) -> float:
    """What one request of this mix costs by the profile, in seconds of a replica that runs WORK_BATCH sequences.

    Only ever compared with itself: it says how much heavier one mix is than another. 1,155 and 211 tokens cost 0.154 s,
    4,620 and 211 tokens 0.425 s.
    """
    decode = profile.base_seconds / WORK_BATCH + decode_slope_seconds(profile, lengths)
    return profile.per_prefill_token_seconds * lengths.prompt_tokens + max(lengths.output_tokens, 1.0) * decode


WORK_BATCH = 32.0
"""Sequences among which a step's base is shared out: a batch at which vLLM's throughput has passed its knee."""
