"""What an engine has shown of itself: its speed, how dear it is to read prompts, and how many sequences fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tierkeeper.engine.capacity import reading_speed, speed
from tierkeeper.engine.flags import DEFAULT_BATCHED_TOKENS
from tierkeeper.engine.latency import Lengths, Profile
from tierkeeper.scaling.demand import MOST_BUNCHING, RATE_SECONDS, Look
from tierkeeper.slo.model import Traffic
from tierkeeper.values import value

#: Speed is a property of the engine: a quarter of an hour's, and 50 sequences' at least.
SPEED_SECONDS, SPEED_SEQUENCES = 900.0, 50.0

#: So many sequences must have been looked at before their speed is believed: 20 % of noise each, 5 % together.
TRUSTED_SEQUENCES = 20.0

#: The speed of reading is believed once so many requests have shown it, and never rests on fewer.
READING_REQUESTS = 100.0

#: Reading is believed to be at most this many times as dear beside decoding as in the profile: those of the GPUs and
#: models that were measured lie within a factor of two. Nor does one look count for more: an engine that stands still
#: for a minute shows 400 times, and would have shown too much for an hour.
MOST_DEAR = 4.0

#: No engine is this many times slower or faster than the profile (a step of half a second, or of 0.14 ms): gauges and
#: counters that say so do not belong together.
MOST_SLOWNESS = 60.0

#: Nor does one look count for more than this many times what is known already, either way. An engine that has become
#: twice as slow shows it within half an hour; what an edge of the load makes of one look is a whole number of times.
MOST_CHANGE = 1.5

#: KV use tells how many sequences fit from this share on; below, one long prompt would be taken for all.
KV_TELLS = 0.25


@value(frozen=True, slots=True)
class Mean:
    """A mean by weight that forgets with time, but never more than all but ``least`` of its weight."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float, weight: float, *, seconds: float, memory: float, least: float) -> Mean:
        kept = math.exp(-seconds / memory)
        if self.weight > 0:
            kept = max(kept, min(1.0, least / self.weight))
        return Mean(kept * self.total + value * weight, kept * self.weight + weight)

    def value(self, default: float) -> float:
        return self.total / self.weight if self.weight > 0 else default


@value(frozen=True, slots=True)
class Measured:
    """See the module."""

    slowness: Mean = Mean()
    """Seconds shown over seconds of the profile as ``shaped``, weighed by the sequences that the profile would have had
    for the same tokens: weighed by those seen, a look with more of them by chance would count twice for being slow."""
    reading: Mean = Mean()
    """Seconds that reading takes at least over seconds of the profile, weighed by requests."""
    kv_sequences: Mean = Mean()

    @property
    def speed(self) -> float | None:
        """Slowness of the engine against the profile; None while too little was seen."""
        return self.slowness.value(1.0) if self.slowness.weight >= TRUSTED_SEQUENCES else None

    def shaped(self, profile: Profile) -> Profile:
        """The profile with reading as dear beside decoding as the engine shows it to be at least.

        One that has it too dear is left as it is: that costs a replica at most, which clean minutes give back, where
        one that has it too cheap allows a batch and a token budget that miss TPOT.
        """
        if self.slowness.weight < TRUSTED_SEQUENCES or self.reading.weight < READING_REQUESTS:
            return profile
        dearer = min(self.reading.value(1.0) / self.slowness.value(1.0), MOST_DEAR)
        if dearer <= 1.0:
            return profile
        return dataclasses.replace(profile, per_prefill_token_seconds=dearer * profile.per_prefill_token_seconds)


def measure(
    found: Measured,
    *,
    traffic: Traffic,
    looks: Sequence[Look],
    lengths: Lengths,
    elapsed: float,
    profile: Profile,
    token_budget: float | None,
) -> Measured:
    """What is known after one look, ``elapsed`` seconds after the one before. ``token_budget``: of a step; None: the
    engine's own, taken for the smallest that there is. Taken for a larger one, the steps of a long prompt that decode
    beside it too would count as reading: at 3,000 tokens in steps of 2,048 it looked half as dear again.

    By Little's law, sequences that decode = tokens a second x seconds a token, over the same stretch of time: looks
    older than what the rates look back on are left out. Sequences that still read their prompt (arrivals x seconds of
    reading) do not decode.

    Nobody sees what runs between two looks: where a burst ends, 90, 90, 90, 0 and 0 sequences are a mean of anything
    from 36 to 54. Looks that differ by more than loads bunch count for as many sequences as would differ so by chance,
    MOST_BUNCHING * (mean / deviation) ** 2: for 7 of those 54.
    """
    pods = max(traffic.observed_pods, 1)
    ran = _ran(looks)
    running = sum(ran) / len(ran)
    decoding, tokens = decoding_sequences(traffic, looks), traffic.generation_tokens_per_second
    if decoding <= 0 or tokens <= 0:
        return found
    batch, step, prompt_rate = decoding / pods, decoding / tokens, traffic.prompt_tokens_per_second / pods
    slowness = speed(found.shaped(profile), batch=batch, lengths=lengths, step_seconds=step, prompt_rate=prompt_rate)
    if not 1.0 / MOST_SLOWNESS <= slowness <= MOST_SLOWNESS:
        return found
    expected, known = decoding / slowness, found.speed or slowness
    slowness = min(max(slowness, known / MOST_CHANGE), known * MOST_CHANGE)
    spread = sum([(one - running) ** 2 for one in ran]) / (len(ran) * running)
    steady = min(1.0, MOST_BUNCHING / spread) if spread > 0 else 1.0
    chunk_tokens = (token_budget or DEFAULT_BATCHED_TOKENS) - batch
    read = _read(profile, traffic, step_seconds=step, chunk_tokens=chunk_tokens)
    shown, kv, usage = found.reading, found.kv_sequences, traffic.kv_cache_usage or 0.0
    if read is not None:
        requests = steady * traffic.finished_per_second * elapsed
        read = min(read, MOST_DEAR * slowness)
        shown = shown.add(read, requests, seconds=elapsed, memory=SPEED_SECONDS, least=READING_REQUESTS)
    if usage >= KV_TELLS:
        kv = kv.add(running / pods / usage, 1.0, seconds=elapsed, memory=SPEED_SECONDS, least=1.0)
    weight = steady * expected
    return Measured(
        slowness=found.slowness.add(slowness, weight, seconds=elapsed, memory=SPEED_SECONDS, least=SPEED_SEQUENCES),
        reading=shown,
        kv_sequences=kv,
    )


def decoding_sequences(traffic: Traffic, looks: Sequence[Look]) -> float:
    """Sequences of the pool that decode, in the mean over the time that the rates look back on: those that run, less
    those that still read their prompt."""
    ran = _ran(looks)
    running = sum(ran) / len(ran)
    return max(running - traffic.requests_per_second * (traffic.mean_prefill_seconds or 0.0), 0.25 * running)


def _ran(looks: Sequence[Look]) -> list[float]:
    return [one.present - one.waiting for one in looks if one.at >= looks[-1].at - RATE_SECONDS]


def _read(profile: Profile, traffic: Traffic, *, step_seconds: float, chunk_tokens: float) -> float | None:
    """``reading_speed`` by one look. Prompts that waited longer than they were read tell nothing: they come into the
    batch many at once, in steps that hold more than a mean step does."""
    prefill, queued, prompt = traffic.mean_prefill_seconds, traffic.mean_queue_seconds, traffic.mean_prompt_tokens
    if prefill is None or queued is None or prompt is None or queued > prefill:
        return None
    return reading_speed(
        profile,
        prefill_seconds=prefill,
        prompt_tokens=prompt,
        step_seconds=step_seconds,
        prompt_rate=traffic.prompt_tokens_per_second / max(traffic.observed_pods, 1),
        chunk_tokens=chunk_tokens,
    )
