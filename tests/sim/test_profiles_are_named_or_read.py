"""Engine profiles: the named ones are plausible replicas; a file of one's own is read, or refused field by field."""

import json

import pytest

from tierkeeper.engine.latency import LLAMA_8B_2XA100, Lengths, decode_step_seconds
from tierkeeper.sim.profiles import DEFAULT_PROFILE, PROFILES, ProfileError, find_profile, read_profile

GOOD = {
    "name": "Mine",
    "gpusPerReplica": 2,
    "kvTokens": 500_000,
    "stepMilliseconds": {
        "base": 8.5,
        "perSequence": 0.03,
        "perThousandContextTokens": 0.076,
        "perThousandPrefillTokens": 62,
    },
}


@pytest.fixture
def write(tmp_path):
    def _write(text, name="profile.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return _write


def test_the_default_is_the_profile_that_ships():
    assert PROFILES[DEFAULT_PROFILE].latency is LLAMA_8B_2XA100


@pytest.mark.parametrize("name", PROFILES)
def test_a_named_profile_holds_a_long_context_and_steps_in_milliseconds(name):
    profile = PROFILES[name]
    assert find_profile(name) is profile
    assert profile.kv_tokens >= 131_072
    assert f"{profile.gpus_per_replica} x" in profile.latency.name
    assert 0.005 < decode_step_seconds(profile.latency, batch=1, lengths=Lengths()) < 0.1


def test_the_worked_kv_cache_holds():
    assert PROFILES["8b-2xa100"].kv_tokens == 1_018_000


def test_the_swept_8b_h100_meets_the_sampled_inter_token_latencies():
    """ITL of the sweep at a context of about 1,152: 6.2, 7.6, 10.6, 13.4 and 20.8 ms; the fit errs by up to 11 %."""
    lengths = Lengths(prompt_tokens=1152, output_tokens=1)
    steps = {
        batch: decode_step_seconds(PROFILES["8b-h100"].latency, batch=batch, lengths=lengths) * 1000
        for batch in (1, 16, 64, 128, 256)
    }
    assert steps == pytest.approx({1: 6.2, 16: 7.6, 64: 10.6, 128: 13.4, 256: 20.8}, rel=0.11)


@pytest.mark.parametrize(("name", "text"), [("profile.yaml", None), ("profile.json", "json")])
def test_a_profile_is_read_from_yaml_and_json(write, name, text):
    path = write(json.dumps(GOOD, indent="\t" if text else 2), name)
    profile = read_profile(path)
    assert profile.latency.base_seconds == pytest.approx(0.0085)
    assert profile.latency.per_sequence_seconds == pytest.approx(3e-5)
    assert profile.latency.per_context_token_seconds == pytest.approx(0.076e-6)
    assert profile.latency.per_prefill_token_seconds == pytest.approx(62e-6)
    assert (profile.latency.name, profile.kv_tokens, profile.gpus_per_replica) == ("Mine", 500_000, 2)
    assert find_profile(str(path)).latency == profile.latency


def test_gpus_default_to_one(write):
    assert (
        read_profile(write(json.dumps({k: v for k, v in GOOD.items() if k != "gpusPerReplica"}))).gpus_per_replica == 1
    )


def changed(**fields):
    return {**GOOD, **fields}


def stepped(**fields):
    return changed(stepMilliseconds={**GOOD["stepMilliseconds"], **fields})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "stepMilliseconds: is missing; add it"),
        ([], "[] is no mapping; give the fields gpusPerReplica, kvTokens, name, stepMilliseconds"),
        (changed(name=7), "name: 7 is no text"),
        (
            changed(kvTokens="many"),
            "kvTokens: 'many' is no whole number; write a whole number from 16 to 1,000,000,000",
        ),
        (changed(kvTokens=1.5), "kvTokens: 1.5 is no whole number"),
        (changed(kvTokens=True), "kvTokens: True is no whole number"),
        (changed(kvTokens=-1), "kvTokens: -1 is out of range"),
        (changed(gpusPerReplica=0), "gpusPerReplica: 0 is out of range; write a whole number from 1 to 1,024"),
        (changed(kvToken=1), "kvToken: is not a known field; remove it or use one of"),
        (changed(stepMilliseconds=8), "stepMilliseconds: 8 is no mapping; give the fields base"),
        (stepped(base=0), "stepMilliseconds.base: 0 is out of range; write milliseconds from 0.001 to"),
        (stepped(base="8.5 ms"), "stepMilliseconds.base: '8.5 ms' is no number"),
        (stepped(perSequence=-1), "stepMilliseconds.perSequence: -1 is out of range; write milliseconds from 0 to"),
        (stepped(perThousandPrefillTokens=float("nan")), "perThousandPrefillTokens: nan is out of range"),
        (stepped(perThousandContextTokens=float("inf")), "perThousandContextTokens: inf is out of range"),
        (stepped(base="1e6"), "stepMilliseconds.base: '1e6' is text to YAML, which takes 1.0e+6 for a number"),
        (stepped(base="x" * 10_000), "xxx... is no number; write milliseconds"),
        (stepped(extra=1), "stepMilliseconds.extra: is not a known field"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_remedy(write, document, message):
    path = write(json.dumps(document), "profile.json")
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_that_is_no_document_is_refused(write, tmp_path):
    with pytest.raises(ProfileError, match="is neither YAML nor JSON"):
        read_profile(write("a: [1"))
    with pytest.raises(ProfileError, match="is empty; give the fields gpusPerReplica, kvTokens"):
        read_profile(write(""))
    with pytest.raises(ProfileError, match="cannot be read: Is a directory; correct the path"):
        read_profile(tmp_path)


def test_a_file_of_another_kind_is_not_printed_in_full(write):
    trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "0,1,1\n" * 10_000
    for text in (trace, trace.replace("TIMESTAMP", "- x\n: y")):
        with pytest.raises(ProfileError) as caught:
            read_profile(write(text))
        assert len(str(caught.value)) < 500


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ProfileError, match=r"neither a file nor a known name; .* 8b-2xa100"):
        find_profile("9b-toaster")
