"""The command line of ``vllm serve``: what it takes, what it refuses, and with which exit code."""

import re
import sys

import pytest

from e2e.engine import cli
from e2e.engine.config import EngineConfig
from e2e.engine.flags import VllmArgumentParser, add_serve_flags
from e2e.engine.profiles import profile_from_environment


@pytest.fixture(autouse=True)
def import_path(monkeypatch):
    """The command changes the import path of its process; the tests' stays as it is."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def config(*flags: str, version: tuple[int, int] = (0, 32), **environment: str) -> EngineConfig:
    parser = VllmArgumentParser(allow_abbrev=False)
    add_serve_flags(parser, version)
    return EngineConfig.build(parser.parse_args(["tiny", *flags]), environment, version)


def test_the_flags_that_the_operator_renders_arrive():
    built = config(
        "--served-model-name", "gold", "--port", "8000", "--max-num-seqs", "64", "--max-num-batched-tokens", "2048",
        "--max-model-len", "8k", "--shutdown-timeout", "120", "--custom-histogram-buckets",
        '{"time_to_first_token": [0.5, 1.5]}', "--max-num-queued-reqs", "200", "--tensor-parallel-size", "2",
        "--revision", "main", "--enforce-eager",
    )  # fmt: skip
    assert (built.served_names, built.max_model_len, built.shutdown_timeout) == (("gold",), 8000, 120)
    assert (built.scheduler.max_num_seqs, built.max_num_queued_reqs) == (64, 200)
    assert built.buckets == {"time_to_first_token": (0.5, 1.5)}


def test_underscores_are_dashes():
    assert config("--max_num_seqs=7").scheduler.max_num_seqs == 7


@pytest.mark.parametrize("flag", ["--no-such-flag", "--disable-log-requests", "--max-num-seq=4"])
def test_an_unknown_flag_ends_the_process_with_two(flag, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["serve", "tiny", flag], {})
    assert end.value.code == 2
    assert f"error: unrecognized arguments: {flag}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value", "version"),
    [
        ("--shutdown-timeout", "5", (0, 17)),
        ("--max-num-queued-reqs", "5", (0, 28)),
        ("--max-num-active-seqs", "5", (0, 30)),
        ("--custom-histogram-buckets", "{}", (0, 31)),
    ],
)
def test_a_flag_is_unknown_before_the_release_that_brought_it(flag, value, version):
    with pytest.raises(SystemExit):
        config(flag, value, version=version)
    config(flag, value, version=(version[0], version[1] + 1))


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ('{"request_time_per_output_token": [0.1]}', "unknown bucket family"),
        ('{"inter_token_latency": []}', "must not be empty"),
        ('{"inter_token_latency": [0.2, 0.1]}', "strictly increasing"),
        ('{"inter_token_latency": [0, 0.1]}', "greater than 0"),
        ('{"inter_token_latency": [true]}', "finite number"),
    ],
)
def test_bad_bucket_lists_are_refused(buckets, message):
    with pytest.raises(ValueError, match=message):
        config("--custom-histogram-buckets", buckets)


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (
            ["--max-num-seqs", "64"],
            {"ENGINE_OOM_ABOVE": "32"},
            "CUDA out of memory occurred when warming up sampler with 64",
        ),
        (
            ["--max-num-seqs", "64", "--max-num-batched-tokens", "32"],
            {},
            r"max_num_batched_tokens \(32\) must be greater",
        ),
        (["--max-num-seqs", "4", "--max-num-active-seqs", "8"], {}, r"max_num_active_seqs \(8\) cannot be greater"),
        (["--max-model-len", "1M"], {}, "larger than the available KV cache memory"),
    ],
)
def test_an_engine_that_cannot_start_says_why_and_exits_with_one(flags, environment, message, capsys):
    assert cli.main(["serve", "tiny", *flags], environment) == 1
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(("environment", "version"), [({}, "0.32.0"), ({"ENGINE_VLLM_VERSION": "0.30.1"}, "0.30.1")])
def test_the_version_is_printed(environment, version, capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"], environment)
    assert capsys.readouterr().out == f"{version}\n"


def test_a_profile_can_be_changed_in_place():
    profile = profile_from_environment({"TIERKEEPER_ENGINE_PROFILE": "demo:a_ms=10.5,kv_tokens=1024"})
    assert (profile.a_ms, profile.kv_tokens, profile.b0_ms) == (10.5, 1024, 0.7)


@pytest.mark.parametrize("text", ["warp", "demo:speed=9", "demo:a_ms=fast"])
def test_a_profile_that_does_not_exist_is_refused(text):
    with pytest.raises(ValueError):
        profile_from_environment({"TIERKEEPER_ENGINE_PROFILE": text})


def test_a_step_of_the_demo_profile_takes_what_its_description_says():
    seconds = profile_from_environment({}).step_seconds(
        decode_sequences=24, decode_context_tokens=28_800, prefill_tokens=512
    )
    assert seconds == pytest.approx(0.0736)
