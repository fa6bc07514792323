"""The command line of each vLLM release: one golden file a release, one argument a line."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tierkeeper.engine.flags import TPOT_EDGES, TTFT_EDGES, live_resize, live_resize_support, serve_args
from tierkeeper.tier import (
    Bounds,
    Engine,
    LiveResize,
    Mode,
    Model,
    Objective,
    Overflow,
    OverflowPolicy,
    Resources,
    Scaling,
    TierKey,
    TierSpec,
)

GOLDEN = Path(__file__).parents[1] / "golden/flags"


def tier(version=(0, 32, 0), **engine):
    engine = {"max_num_seqs": 64, "max_model_len": 8192, "tensor_parallel_size": 4, **engine}
    return TierSpec(
        key=TierKey("llm", "gold"),
        uid="uid-gold",
        generation=1,
        model=Model(id="meta-llama/Llama-3.1-8B-Instruct", served_name="llama", revision="main"),
        objective=Objective(ratio=0.99, ttft_seconds=1.5, tpot_seconds=0.06),
        engine=Engine(image="vllm/vllm-openai:v0", version=version, extra_args=("--enforce-eager",), **engine),
        resources=Resources(gpus_per_replica=4),
        scaling=Scaling(Mode.AUTO, Bounds(1, 4), Bounds(8, 128), Bounds(512, 8192)),
        overflow=Overflow(OverflowPolicy.REJECT, max_queued_requests=200, max_queued_tokens=60000),
    )


def args(spec, *, cap=64, budget=4096):
    return serve_args(spec, max_num_seqs=cap, max_num_batched_tokens=budget)


def value(rendered, flag):
    return rendered[rendered.index(flag) + 1] if flag in rendered else None


@pytest.mark.parametrize("minor", [10, 18, 23, 27, 29, 31, 32, 33])
@pytest.mark.parametrize("live_resize", list(LiveResize))
def test_the_command_line_is_the_golden_one(minor, live_resize):
    text = "\n".join(args(tier((0, minor, 0), live_resize=live_resize))) + "\n"
    golden = GOLDEN / f"0.{minor}-{live_resize.lower()}.txt"
    if os.environ.get("GOLDEN_UPDATE"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize(
    ("version", "start"), [((0, 11, 0), "--model"), ((0, 11, 1), "meta-llama/Llama-3.1-8B-Instruct")]
)
def test_the_model_is_positional_from_0_11_1(version, start):
    assert args(tier(version))[0] == start


def test_an_unknown_release_gets_no_flag_that_some_release_lacks():
    gated = {"--shutdown-timeout", "--max-num-queued-reqs", "--max-num-active-seqs", "--custom-histogram-buckets"}
    assert gated.isdisjoint(args(tier(None)))


def test_a_live_engine_starts_at_the_upper_bounds_whatever_the_limits_are():
    assert args(tier(), cap=8, budget=512) == args(tier(), cap=128, budget=8192)
    assert value(args(tier()), "--max-num-seqs") == "128"
    assert value(args(tier()), "--max-num-batched-tokens") == "8192"


@pytest.mark.parametrize(
    ("minor", "seqs", "active"), [(10, "16", None), (30, "16", None), (31, "128", "16"), (33, "128", "16")]
)
def test_without_live_resize_the_limits_are_on_the_command_line(minor, seqs, active):
    rendered = args(tier((0, minor, 0), live_resize=LiveResize.DISABLED), cap=16, budget=1024)
    assert value(rendered, "--max-num-seqs") == seqs
    assert value(rendered, "--max-num-active-seqs") == active
    assert value(rendered, "--max-num-batched-tokens") == "1024"


def test_the_token_budget_is_never_below_max_num_seqs():
    spec = tier(live_resize=LiveResize.DISABLED)
    assert value(args(spec, cap=128, budget=100), "--max-num-batched-tokens") == "128"


def test_a_batch_above_vllms_own_budget_gets_a_budget():
    spec = tier()
    spec = replace(spec, scaling=replace(spec.scaling, max_num_seqs=Bounds(8, 4096), max_num_batched_tokens=None))
    assert value(args(spec), "--max-num-batched-tokens") == "4096"


def test_a_budget_that_the_loop_leaves_alone_is_the_engines():
    spec = tier(max_num_batched_tokens=2048)
    spec = replace(spec, scaling=replace(spec.scaling, max_num_batched_tokens=None))
    assert value(args(spec, budget=None), "--max-num-batched-tokens") == "2048"
    unset = replace(spec, engine=replace(spec.engine, max_num_batched_tokens=None))
    assert value(args(unset, budget=None), "--max-num-batched-tokens") is None


@pytest.mark.parametrize(
    ("overflow", "requests"),
    [
        (Overflow(OverflowPolicy.QUEUE), None),
        (Overflow(OverflowPolicy.REJECT), "128"),
        (Overflow(OverflowPolicy.REJECT, max_queued_tokens=1000), None),
        (Overflow(OverflowPolicy.QUEUE, max_queued_requests=10), "138"),
    ],
)
def test_the_queue_limit_counts_running_requests_too(overflow, requests):
    assert value(args(replace(tier(), overflow=overflow)), "--max-num-queued-reqs") == requests


def test_thresholds_become_bucket_edges_only_where_they_are_none_yet():
    aligned = replace(tier(), objective=Objective(0.99, ttft_seconds=TTFT_EDGES[9], tpot_seconds=TPOT_EDGES[4]))
    assert value(args(aligned), "--custom-histogram-buckets") is None
    assert value(args(replace(tier(), objective=None)), "--custom-histogram-buckets") is None
    one = replace(tier(), objective=Objective(0.99, ttft_seconds=0.6, tpot_seconds=TPOT_EDGES[4]))
    assert value(args(one), "--custom-histogram-buckets").startswith('{"time_to_first_token":[0.001,')


def test_a_model_name_with_quotes_and_slashes_stays_one_argument():
    spec = replace(tier(), model=Model(id="/models/llama-3", served_name='a "b" \\c/d'))
    assert value(args(spec), "--served-model-name") == 'a "b" \\c/d'


@pytest.mark.parametrize("version", [(0, 18, 0), (0, 22, 1), (0, 33, 9)])
def test_releases_that_were_read_are_resized_live(version):
    assert live_resize_support(version).supported


@pytest.mark.parametrize("version", [None, (0, 17, 9), (0, 34, 0), (1, 20, 0)])
def test_other_releases_are_restarted_and_the_message_says_why(version):
    supported, message = live_resize_support(version)
    assert not supported
    assert "rolling restart" in message


def test_a_tier_may_forbid_live_resize():
    assert live_resize(tier()).supported
    assert "Disabled" in live_resize(tier(live_resize=LiveResize.DISABLED)).message


def test_the_plugin_knows_the_same_releases():
    from tierkeeper.engine.flags import LIVE_RESIZE_FIRST, LIVE_RESIZE_LAST
    from tierkeeper.plugin.tierkeeper_live_limit import FIRST_RELEASE, LAST_RELEASE

    assert (FIRST_RELEASE, LAST_RELEASE) == (LIVE_RESIZE_FIRST, LIVE_RESIZE_LAST)
