"""Real vLLM and published measurements: what is compared, and how the comparison is told."""

from __future__ import annotations

import dataclasses

import pytest

from bench.policy import validate_published as published
from bench.policy import validate_vllm as vllm
from bench.policy.fit import Fit, fit
from bench.policy.real_vllm import ServerError, kv_tokens
from e2e.load import LoadReport, Status
from e2e.load.plan import Arrival
from tierkeeper.engine.latency import LLAMA_8B_2XA100, Profile

PLAIN = Profile(
    name="plain",
    base_seconds=0.010,
    per_sequence_seconds=0.0,
    per_context_token_seconds=0.0,
    per_prefill_token_seconds=0.001,
)


def row(**changed: object) -> published.Published:
    usual = published.Published(
        source="splitwise-sim",
        model="m",
        gpu="A100",
        gpus=8,
        prompt=512,
        batch=1,
        output=128,
        runs=5,
        prompt_seconds=0.522,
        token_seconds=0.010,
        total_seconds=1.792,
    )
    return dataclasses.replace(usual, **changed)  # type: ignore[arg-type]


def test_the_kv_cache_is_read_from_the_page() -> None:
    page = 'vllm:cache_config_info{block_size="16",kv_cache_size_tokens="43690",num_gpu_blocks="2730"} 1.0\n'
    assert kv_tokens(page) == 43_690
    with pytest.raises(ServerError, match="kv_cache_size_tokens"):
        kv_tokens("vllm:num_requests_running 0\n")


def test_the_excerpt_is_played_with_the_fitted_constants_and_the_way_to_the_engine() -> None:
    """Two requests that never meet: 10 ms + 20 tokens of 1 ms + 5 ms outside; then a token each 10 ms."""
    found = Fit(profile=PLAIN, front_seconds=0.005, mean_error=0.0, largest_error=0.0, samples=1)
    arrivals = [Arrival(0.0, 20, 5), Arrival(10.0, 20, 5)]
    seen = vllm.simulated(found, arrivals, kv_tokens=1000, limits=vllm.LIMITS)
    assert dataclasses.astuple(seen) == pytest.approx((0.035, 0.035, 0.010, 0.010))


def test_the_excerpt_is_the_same_for_both_sides() -> None:
    plan = vllm.excerpt("http://127.0.0.1:1", "m", vllm.TRACE, seconds=60.0, rate=2.0)
    arrivals = plan.arrivals(plan.targets[0])
    assert arrivals == plan.arrivals(plan.targets[0])
    assert 60 < len(arrivals) < 240
    assert max(arrival.prompt_tokens for arrival in arrivals) <= vllm.MOST_PROMPT


def test_medians_may_be_15_percent_off_and_p99s_30() -> None:
    theirs = vllm.Figures(ttft_p50=0.100, ttft_p99=0.400, tpot_p50=0.020, tpot_p99=0.050)
    near = vllm.Figures(ttft_p50=0.114, ttft_p99=0.290, tpot_p50=0.0171, tpot_p99=0.064)
    lines, well = vllm.table(theirs, near)
    assert well
    assert lines[2] == "| TTFT P50 | 100.0 | 114.0 | +14.0 % | 15 % | ok |"
    lines, well = vllm.table(theirs, dataclasses.replace(near, tpot_p50=0.0169))
    assert not well
    assert lines[4].endswith("| -15.5 % | 15 % | off |")


def test_a_failed_request_voids_the_run() -> None:
    report = LoadReport.for_targets(["vllm"])
    records = report.targets["vllm"]
    for status in (Status.OK, Status.CUT):
        records.open_row(scheduled=0.0, sent=0.0, status=status)
    with pytest.raises(ServerError, match="1 of 2 requests failed"):
        vllm.real(report)


def test_a_batch_is_replayed_as_it_was_measured() -> None:
    """All prompts share one step, then each step is 10 ms."""
    ours = published.replayed(PLAIN, row(batch=2, prompt=100, output=11))
    assert ours.prompt_seconds == pytest.approx(0.210)
    assert ours.token_seconds == pytest.approx(0.010)
    assert ours.total_seconds == pytest.approx(0.310)


def test_the_first_of_a_batch_pays_for_the_prompts_behind_it() -> None:
    """Of four prompts of 512 tokens two share the first step; the others make its next tokens late."""
    ours = published.replayed(PLAIN, row(source="SageServe", batch=4, prompt=512, output=11))
    assert ours.prompt_seconds == pytest.approx(0.010 + 1.024)
    assert ours.token_seconds == pytest.approx(0.010 + 0.1024)


def test_constants_fitted_to_rows_that_obey_the_law_replay_the_others() -> None:
    def obeying(prompt: int, batch: int) -> published.Published:
        law = LLAMA_8B_2XA100
        empty = row(prompt=prompt, batch=batch)
        return dataclasses.replace(empty, **dataclasses.asdict(published.replayed(law, empty)))

    rows = [obeying(prompt, 1) for prompt in (128, 256, 512, 2048)] + [obeying(512, batch) for batch in (2, 4, 8, 16)]
    fitted = [one for one in rows if one.fitted]
    assert 0 < len(fitted) < len(rows)
    found = fit(list(published.samples(fitted)), name="m")
    seen = published.differences(found, [one for one in rows if not one.fitted])
    assert max(abs(value) for one in seen for value in one.values()) < 0.002


def test_no_row_is_both_fitted_and_scored_and_every_engine_has_both() -> None:
    rows = published.published()
    engines = {one.engine for one in rows}
    assert len(engines) == 12
    for engine in engines:
        of = [one for one in rows if one.engine == engine]
        assert 4 <= sum(one.fitted for one in of) <= len(of) / 2
        assert any(not one.fitted and one.within for one in of)
        assert any(not one.within for one in of)


def test_output_that_ended_early_is_not_scored_by_its_whole_time() -> None:
    assert row(output=4096).ended_early
    assert "throughput" not in published.differences(Fit(PLAIN, 0.0, 0.0, 0.0, 1), [row(output=4096)])[0]


def test_a_closed_loop_keeps_its_clients_busy() -> None:
    """Four clients, no cost but 10 ms a step: a request of 10 tokens takes 10 steps, so 4 per 0.1 s."""
    free = dataclasses.replace(PLAIN, per_prefill_token_seconds=0.0)
    case = published.Served(
        what="", source="", profile="free", clients=4, prompt=10, output=10, budget=4096, figures={}
    )
    with pytest.MonkeyPatch.context() as patched:
        engine = dataclasses.replace(published.PROFILES["8b-h100"], latency=free)
        patched.setattr(published, "PROFILES", {"free": engine})
        seen = published.closed_loop(case)
    assert seen.requests_per_second == pytest.approx(40.0, rel=0.05)
    assert seen.ttft == pytest.approx(0.010)
    assert seen.tpot == pytest.approx(0.010)


def test_a_difference_is_told_by_its_middle_and_its_worst() -> None:
    values = [{"ttft": 0.01}, {"ttft": -0.20}, {"ttft": 0.02}]
    assert published.spread(values, "ttft") == "2.0 (-20)"
    assert published.spread(values, "tpot") == "-"
