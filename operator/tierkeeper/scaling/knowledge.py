"""What the loop has learned of one pool: its speed, its mix of requests, its demand, and how much it carries.

Plain values in the tier's memory, never saved: an operator that starts anew begins with the model on the safe side.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from dataclasses import field
from math import inf

from tierkeeper.engine.capacity import Capacity, Limits, Tail, capacity, tail, work_seconds
from tierkeeper.engine.latency import (
    DEFAULT_OUTPUT_TOKENS,
    DEFAULT_PROMPT_TOKENS,
    Lengths,
    Profile,
)
from tierkeeper.scaling import belief, demand, forecast, reach
from tierkeeper.scaling.belief import Belief
from tierkeeper.scaling.demand import Demand, Look, Minutes
from tierkeeper.scaling.evolve import evolve
from tierkeeper.scaling.forecast import Forecaster
from tierkeeper.scaling.measured import Mean, Measured, measure
from tierkeeper.scaling.model import Levers, PoolState, serving
from tierkeeper.scaling.reach import Reach
from tierkeeper.slo.model import Assessment, SignalState, Sli, Traffic
from tierkeeper.tier import Objective, TierSpec
from tierkeeper.values import value

#: Rates look back a minute already, and each second of memory beyond makes the mix older: where prompts become four
#: times as long within ten minutes, a minute more is a tenth of the load. 300 requests' at least: their mean prompt is
#: within 7 % (its coefficient of variation is 1.2).
MIX_SECONDS, MIX_REQUESTS = 20.0, 300.0

#: Gauges tell of now and rates of the last minute: they fit together once the same pods were seen for that long.
EVEN_SECONDS = 60.0

#: A cap that is moved by this factor lets in, or holds back, as many requests at once as the pool runs.
LEAP = 2.0

#: The belief is weighed once a minute, by that minute's own misses, against the highest strain of three minutes:
#: a queue outlives the load that made it.
WEIGH_SECONDS = 60.0
STRAIN_SECONDS = 180.0

#: After an overload that the model foresaw, and the backlog that it left, misses say nothing of what a pool carries
#: within its budget: until requests that began in it are done (211 tokens at 40 ms take 9 s, 1,500 take a minute) and
#: the minute that looks back on them is over.
AFTERMATH_SECONDS = 120.0

#: Beyond this share of what replicas can do at all, nothing learned counts: a queue there grows without end.
MOST_USED = 0.92

#: Who asks for one token has no token after it to be late: where the mean is no more than this, TPOT bounds no batch.
ONE_TOKEN = 1.05

#: Until a start was seen, it is taken to last this long: between a 3B model's 59 s and a 70B model's 215 s.
STARTUP_SECONDS = 120.0


@value(frozen=True, slots=False)
class Knowledge:
    """See the module. Times are monotonic seconds."""

    at: float | None = None
    """The last tick that could be believed."""
    pods: tuple[int, int] = (-1, -1)
    """Pods seen, and Ready."""
    even_since: float | None = None
    """Since when those have been the same, without a break."""
    cap: int | None = None
    """max-num-seqs as it was found."""
    cap_leapt_at: float | None = None
    """The last time that it was found twice as large as before, or half."""
    prompt_tokens: Mean = field(default_factory=Mean)
    output_tokens: Mean = field(default_factory=Mean)
    engine: Measured = field(default_factory=Measured)
    reach: Reach = field(default_factory=Reach)
    looks: tuple[Look, ...] = ()
    minutes: Minutes = field(default_factory=Minutes)
    demand: Demand | None = None
    forecaster: Forecaster = field(default_factory=Forecaster)
    belief: Belief = field(default_factory=belief.fresh)
    strains: tuple[tuple[float, float], ...] = ()
    """(time, strain) over STRAIN_SECONDS."""
    weighed_at: float | None = None
    overloaded_at: float | None = None
    """The last tick at which more arrived than the pool can serve at all, or waited since then."""
    here: Model | None = None
    """``model`` at the levers that the last believed tick found."""

    @property
    def lengths(self) -> Lengths:
        return _lengths(self.prompt_tokens, self.output_tokens)


def _lengths(prompt: Mean, output: Mean) -> Lengths:
    prompt_tokens, output_tokens = prompt.value(DEFAULT_PROMPT_TOKENS), output.value(DEFAULT_OUTPUT_TOKENS)
    return Lengths(prompt_tokens if prompt_tokens > 1.0 else 1.0, output_tokens if output_tokens > 1.0 else 1.0)


def of_another_engine(knowledge: Knowledge) -> Knowledge:
    """What stays true when the engine changes: who asks for what, not how fast it is answered."""
    return evolve(
        knowledge,
        pods=(-1, -1),
        engine=Measured(),
        reach=Reach(),
        belief=belief.fresh(),
        strains=(),
        weighed_at=None,
        overloaded_at=None,
        here=None,
    )


def limits_of(spec: TierSpec, levers: Levers, knowledge: Knowledge, objective: Objective) -> Limits:
    """What bounds a replica's batch at these levers, where this is to be kept."""
    kv = knowledge.engine.kv_sequences
    return Limits(
        max_num_seqs=levers.max_num_seqs,
        max_num_batched_tokens=levers.max_num_batched_tokens or spec.engine.max_num_batched_tokens,
        tpot_seconds=objective.tpot_seconds,
        kv_sequences=kv.value(0.0) if kv.weight > 0 else None,
    )


@value(frozen=True, slots=True)
class Model:
    """What the replicas of a pool should carry, by the model, at some levers."""

    one: Capacity
    tail: Tail
    profile: Profile
    speed: float
    lengths: Lengths
    objective: Objective
    """What is planned for: without the targets of which it is in doubt that replicas can keep them."""
    out_of_reach: tuple[Sli, ...] = ()
    """The promised targets that no number of replicas would keep."""

    @classmethod
    def of(
        cls,
        profile: Profile,
        *,
        speed: float,
        lengths: Lengths,
        objective: Objective,
        limits: Limits,
        out_of_reach: tuple[Sli, ...] = (),
    ) -> Model:
        """The model of replicas of that speed, for this mix and within these limits."""
        one = capacity(profile, speed=speed, lengths=lengths, limits=limits)
        beyond = tail(profile, speed=speed, lengths=lengths, batch=one.batch, ttft_seconds=objective.ttft_seconds)
        return cls(one, beyond, profile, speed, lengths, objective, out_of_reach)

    def within(self, limits: Limits) -> Model:
        """The same pool within other limits."""
        return Model.of(
            self.profile,
            speed=self.speed,
            lengths=self.lengths,
            objective=self.objective,
            limits=limits,
            out_of_reach=self.out_of_reach,
        )

    def rate(self, replicas: float) -> float:
        """Requests a second at which so many replicas together should spend just their error budget."""
        return self.tail.usable_share(replicas) * replicas * self.one.requests_per_second

    def replicas(self, rate: float, *, strain: float, backlog: float = 0.0) -> float:
        """How many carry ``rate`` at ``strain`` times what they should, never above MOST_USED of what they can.

        ``backlog``: requests a second to be worked off beside, at all that the replicas can.
        """
        each = self.one.requests_per_second
        least = max(rate / MOST_USED / each, (rate + backlog) / each, 0.01)
        return self.tail.replicas(rate / (strain * each), least=least)


def model(spec: TierSpec, levers: Levers, knowledge: Knowledge, profile: Profile) -> Model | None:
    """The model at these levers; None while the pool has not shown its speed, and for a tier that promises nothing."""
    slowness, objective = knowledge.engine.speed, spec.objective
    if slowness is None or objective is None:
        return None
    lengths, profile = knowledge.lengths, knowledge.engine.shaped(profile)
    doubted, alone = knowledge.reach.doubted, lengths.output_tokens <= ONE_TOKEN
    if doubted or alone:
        ttft = None if Sli.TTFT in doubted else objective.ttft_seconds
        tpot = None if Sli.TPOT in doubted or alone else objective.tpot_seconds
        objective = dataclasses.replace(objective, ttft_seconds=ttft, tpot_seconds=tpot)
    limits = limits_of(spec, levers, knowledge, objective)
    lost = knowledge.reach.lost
    return Model.of(profile, speed=slowness, lengths=lengths, objective=objective, limits=limits, out_of_reach=lost)


def learn(
    knowledge: Knowledge,
    *,
    now: float,
    spec: TierSpec,
    assessment: Assessment,
    pool: PoolState,
    profile: Profile,
    lead_seconds: float,
) -> Knowledge:
    """What is known after one tick. From a tick that cannot be believed nothing is learned, and queues' growth is
    not read across it."""
    if not assessment.state.known:
        return evolve(knowledge, looks=(), pods=(-1, -1)) if knowledge.looks else knowledge
    traffic = assessment.traffic
    pods = traffic.observed_pods, pool.ready
    even_since = knowledge.even_since if pods == knowledge.pods else now
    even = even_since is not None and now - even_since >= EVEN_SECONDS
    elapsed = min(now - knowledge.at, 60.0) if knowledge.at is not None else 15.0
    looks = demand.look(knowledge.looks, now=now, traffic=traffic)
    # A pod that was Ready a moment ago and is not seen yet has taken nothing from the others' rates so far.
    seen = traffic.observed_pods / serving(pool, traffic) if even else 1.0
    rate = demand.arrivals(looks, traffic=traffic, share_seen=seen or 1.0)
    minutes, work = knowledge.minutes, work_seconds(profile, knowledge.lengths)
    if even or minutes:
        minutes = demand.minute_over(minutes, now=now, rate=rate, work=work)
    cap, leapt_at = pool.current.max_num_seqs, knowledge.cap_leapt_at
    if knowledge.cap is not None and max(cap, knowledge.cap) >= LEAP * min(cap, knowledge.cap):
        leapt_at = now
    steady = leapt_at is None or now - leapt_at >= demand.STEADY_SECONDS
    arriving = demand.demand(looks, minutes, rate=rate, work=work, steady=steady)
    prompt_tokens, output_tokens = _mix(knowledge, traffic=traffic, elapsed=elapsed)
    engine, lengths = knowledge.engine, _lengths(prompt_tokens, output_tokens)
    if even and steady:
        engine = measure(
            engine,
            traffic=traffic,
            looks=looks,
            lengths=lengths,
            elapsed=elapsed,
            profile=profile,
            token_budget=pool.current.max_num_batched_tokens or spec.engine.max_num_batched_tokens,
        )
    knowledge = evolve(
        knowledge,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        engine=engine,
        at=now,
        pods=pods,
        even_since=even_since,
        cap=cap,
        cap_leapt_at=leapt_at,
        looks=looks,
        minutes=minutes,
        demand=arriving,
        forecaster=forecast.observe(knowledge.forecaster, arriving, now=now, lead_seconds=lead_seconds),
    )
    if spec.objective is not None and (knowledge.reach.doubted or reach.questioned(assessment)):
        knowledge = _judge(knowledge, spec.objective, assessment, profile, elapsed=elapsed if even and steady else None)
    return _weigh(knowledge, now=now, spec=spec, assessment=assessment, pool=pool, profile=profile)


def _judge(
    knowledge: Knowledge, objective: Objective, assessment: Assessment, profile: Profile, *, elapsed: float | None
) -> Knowledge:
    """Which targets replicas can keep, where one is missed; ``elapsed``: seconds of a steady look, None where it is
    none."""
    engine, lengths, within = knowledge.engine, knowledge.lengths, knowledge.reach
    shaped = engine.shaped(profile)
    if elapsed is not None:
        within = reach.observe(
            within,
            traffic=assessment.traffic,
            looks=knowledge.looks,
            lengths=lengths,
            elapsed=elapsed,
            profile=shaped,
        )
    if engine.speed is not None:
        within = reach.judge(
            within, assessment=assessment, objective=objective, profile=shaped, speed=engine.speed, lengths=lengths
        )
    return knowledge if within is knowledge.reach else evolve(knowledge, reach=within)


def _mix(knowledge: Knowledge, *, traffic: Traffic, elapsed: float) -> tuple[Mean, Mean]:
    """Mean lengths of prompts and outputs after one look. Ratios of the same pods' counters hold while pods come and
    go: the mix changes just when a pool grows for it."""
    requests = traffic.requests_per_second * elapsed
    prompt, output = knowledge.prompt_tokens, knowledge.output_tokens
    if requests > 0 and traffic.prompt_tokens_per_second > 0:
        # Both are counted at the first token; the histogram of prompt lengths only when a request ends.
        shown = traffic.prompt_tokens_per_second / traffic.requests_per_second
        prompt = prompt.add(shown, requests, seconds=elapsed, memory=MIX_SECONDS, least=MIX_REQUESTS)
    if traffic.mean_output_tokens and requests > 0:
        output = output.add(
            traffic.mean_output_tokens, requests, seconds=elapsed, memory=MIX_SECONDS, least=MIX_REQUESTS
        )
    return prompt, output


def _weigh(
    knowledge: Knowledge, *, now: float, spec: TierSpec, assessment: Assessment, pool: PoolState, profile: Profile
) -> Knowledge:
    """Note how strained the pool is, and once a minute hold the minute's misses against it."""
    here = model(spec, pool.current, knowledge, profile)
    if here is None or knowledge.demand is None:
        return evolve(knowledge, here=here)
    pods = serving(pool, assessment.traffic)
    strain = knowledge.demand.level / here.rate(pods)
    recent = bisect_right(knowledge.strains, (now - STRAIN_SECONDS, inf))
    strains = (*knowledge.strains[recent:], (now, strain))
    overloaded_at = knowledge.overloaded_at
    recently = overloaded_at is not None and now - overloaded_at < WEIGH_SECONDS
    beyond = knowledge.demand.level >= MOST_USED * pods * here.one.requests_per_second
    if beyond or (recently and backlog(assessment.traffic, here.objective) > 0):
        overloaded_at = now
    knowledge = evolve(knowledge, here=here, strains=strains, overloaded_at=overloaded_at)
    since = knowledge.weighed_at
    if since is not None and now - since < WEIGH_SECONDS:
        return knowledge
    misses, total = _minute(assessment, without=knowledge.reach.lost)
    learned = knowledge.belief
    telling = overloaded_at is None or now - overloaded_at >= AFTERMATH_SECONDS
    if total > 0 and since is not None and telling:
        learned = belief.learn(
            learned,
            strain=max(value for _, value in strains),
            misses=misses,
            total=total,
            budget=here.objective.error_budget,
            seconds=min(now - since, 10 * WEIGH_SECONDS),
        )
    return evolve(knowledge, belief=learned, weighed_at=now)


def backlog(traffic: Traffic, objective: Objective) -> float:
    """Requests that wait beyond what the TTFT target (without one, a second) lets wait."""
    return max(0.0, traffic.waiting - traffic.requests_per_second * (objective.ttft_seconds or 1.0))


def _minute(assessment: Assessment, *, without: tuple[Sli, ...]) -> tuple[float, float]:
    """Misses of either promise and requests over the last minute; (0, 0) where it had none. One request may miss both;
    both are counted. Misses of a target that no pool would keep say nothing of what this one carries."""
    misses, total = 0.0, 0.0
    for slo in assessment.slos.values():
        minute = slo.window(60) if slo.state is SignalState.OK and slo.sli not in without else None
        if minute is not None:
            misses += minute.ratio.point * minute.total
            total = max(total, minute.total)
    return misses, total
