"""Which targets no number of replicas would keep: by what the pool shows, and by the profile only as far as it holds.

More replicas bring a pool no further than to requests that run alone. How fast those are is seen only where they do;
under load it follows from the steps that are seen and the shape of the profile, and a shape may be wrong. So there are
two readings. By the profile as it is, a target is in doubt: nothing is planned for it, and replicas come for it one at
a time while it burns. By the shape that is kindest to the target it is out of reach: none come. The two meet as the
replicas that came leave less to the shape.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tierkeeper.engine.capacity import batch_within, read_seconds, speed
from tierkeeper.engine.latency import Lengths, Profile, saturated_tpot_seconds
from tierkeeper.scaling.demand import Look
from tierkeeper.scaling.measured import TRUSTED_SEQUENCES, Mean, decoding_sequences
from tierkeeper.slo.evaluate import quantile_of, thresholds
from tierkeeper.slo.model import Assessment, SignalState, Sli, SloAssessment, Traffic
from tierkeeper.tier import Objective
from tierkeeper.values import value

#: A target that only a lone sequence keeps is kept by no pool: whoever is beside another one misses it.
PAIR = 2.0

#: Where a batch of so many keeps the target by the profile, it is in doubt no more: a quarter above PAIR, as limits are
#: moved by no less.
CLEAR = 2.5

#: How far a constant of the profile may be off, against the others.
SHAPE_DOUBT = 0.3

#: What the pool shows counts for five minutes, and 50 sequences at least: each look is within a fifth.
REACH_SECONDS, REACH_SEQUENCES = 300.0, 50.0


@value(frozen=True, slots=True)
class Reach:
    """See the module."""

    pair_seconds: Mean = Mean()
    """A step of two sequences, at least."""
    read_seconds: Mean = Mean()
    """Reading a mean prompt in a step of its own, at least."""
    doubted: tuple[Sli, ...] = ()
    """Targets that are missed, and by the profile beyond replicas."""
    lost: tuple[Sli, ...] = ()
    """Those of them that are out of reach whatever the shape."""


def questioned(assessment: Assessment) -> bool:
    """Whether a promise is missed: only then is it asked whether replicas could keep it."""
    return any(slo.met is False for slo in assessment.slos.values())


def observe(
    reach: Reach, *, traffic: Traffic, looks: Sequence[Look], lengths: Lengths, elapsed: float, profile: Profile
) -> Reach:
    """What is known after one look at a steady pool. Each look is a lower bound by itself, under whatever load it was,
    so looks at unlike loads may be put together."""
    pods = max(traffic.observed_pods, 1)
    decoding, tokens = decoding_sequences(traffic, looks), traffic.generation_tokens_per_second
    if decoding <= 0 or tokens <= 0:
        return reach

    def fastest(shape: Profile) -> float:
        batch, prompt_rate = decoding / pods, traffic.prompt_tokens_per_second / pods
        return speed(shape, batch=batch, lengths=lengths, step_seconds=decoding / tokens, prompt_rate=prompt_rate)

    def add(mean: Mean, seconds: float) -> Mean:
        return mean.add(seconds, decoding, seconds=elapsed, memory=REACH_SECONDS, least=REACH_SEQUENCES)

    found = [(shape, fastest(shape)) for shape in _shapes(profile)]
    pair = min([v * saturated_tpot_seconds(shape, batch=PAIR, lengths=lengths) for shape, v in found])
    read = min([read_seconds(shape, speed=v, lengths=lengths) for shape, v in found])
    return dataclasses.replace(
        reach, pair_seconds=add(reach.pair_seconds, pair), read_seconds=add(reach.read_seconds, read)
    )


def _shapes(profile: Profile) -> tuple[Profile, Profile]:
    """The two ends of what the shape may be. Which of them is kinder to a target depends on how many run."""
    less, more = 1.0 - SHAPE_DOUBT, 1.0 + SHAPE_DOUBT
    return _scaled(profile, base=less, rest=more), _scaled(profile, base=more, rest=less)


def _scaled(profile: Profile, *, base: float, rest: float) -> Profile:
    return Profile(
        name=profile.name,
        base_seconds=base * profile.base_seconds,
        per_sequence_seconds=rest * profile.per_sequence_seconds,
        per_context_token_seconds=rest * profile.per_context_token_seconds,
        per_prefill_token_seconds=rest * profile.per_prefill_token_seconds,
    )


def judge(
    reach: Reach, *, assessment: Assessment, objective: Objective, profile: Profile, speed: float, lengths: Lengths
) -> Reach:
    """Which targets are in doubt, and which are out of reach, after one look.

    A doubt begins where half of the requests miss, or too many of them where the shape says nothing any more; it ends
    where the promise is kept, or the profile says that it can be. Misses alone are no doubt, nor is the profile alone.
    """
    doubted, lost = [], []
    traffic, pods = assessment.traffic, max(assessment.traffic.observed_pods, 1)
    for sli, target in thresholds(objective).items():
        slo, before = assessment.slos.get(sli), sli in reach.doubted
        if sli is Sli.TPOT:
            batch = batch_within(profile, speed=speed, lengths=lengths, tpot_seconds=target)
            beyond, clear, least = batch < PAIR, batch >= CLEAR, reach.pair_seconds
        else:
            read = read_seconds(profile, speed=speed, lengths=lengths)
            beyond, clear, least = read > target, read <= target * PAIR / CLEAR, reach.read_seconds
        gone = least.weight >= TRUSTED_SEQUENCES and least.value(0.0) > target
        if slo is not None and slo.state is SignalState.OK:
            if before:
                before = not (slo.met or (clear and not gone))
            elif beyond:
                before = _median_misses(slo) or (gone and slo.met is False and misses_alone(slo, traffic, pods=pods))
        if before:
            doubted.append(sli)
            if gone:
                lost.append(sli)
    found = tuple(doubted), tuple(lost)
    if found == (reach.doubted, reach.lost):
        return reach
    return dataclasses.replace(reach, doubted=found[0], lost=found[1])


def _median_misses(slo: SloAssessment) -> bool:
    median = quantile_of(slo, 0.5)
    return median is not None and median.seconds > slo.threshold_seconds


def misses_alone(slo: SloAssessment, traffic: Traffic, *, pods: int, decoding: float = 0.0) -> bool:
    """Whether more missed in the last minute than can have met another request in their pod.

    A pod holds, by Little's law, those whose prompt is read, and those that are ``decoding`` where they count: a prompt
    that is read beside them is late by a step at most. Of Poisson arrivals 1 - exp(-held) find one there. With outputs
    of two tokens that are 0.4, so a third: that 3 % miss says nothing of those who run alone, and more replicas help.
    """
    reading, minute = traffic.requests_per_second * (traffic.mean_ttft_seconds or 0.0), slo.window(60)
    return minute is None or minute.ratio.point >= 1.0 - math.exp(-(decoding + reading) / pods)
