"""Every flag that is rendered exists in the release it is rendered for, as that release's own parser has it.

The parsers were read from the wheels (``e2e/compat/vllm_flags.py``); here are the flags and what may follow each.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tierkeeper.engine import flags

HERE = Path(__file__).parent
GOLDEN = sorted((HERE.parent / "golden/flags").glob("*.txt"))
PARSERS = {
    file.stem: json.loads(file.read_text())["flags"]
    for file in sorted((HERE / "vllm_flags").glob("*.json"), key=lambda file: int(file.stem.split(".")[1]))
}
GATES = {
    "--shutdown-timeout": flags.SHUTDOWN_TIMEOUT,
    "--max-num-queued-reqs": flags.QUEUE_LIMITS,
    "--max-num-queued-tokens": flags.QUEUE_LIMITS,
    "--max-num-active-seqs": flags.ACTIVE_SEQS,
    "--custom-histogram-buckets": flags.CUSTOM_BUCKETS,
}


def release_of(golden):
    return f"{golden.stem.split('-')[0]}.0"


def refusals(arguments, parser):
    """What a release's parser would refuse, where only the first argument may be positional."""
    positional = [] if arguments[0].startswith("--") else arguments[:1]
    wrong = [] if "model_tag" in parser else positional
    for argument, after in pairwise([*arguments[len(positional) :], "--"]):
        if argument.startswith("--"):
            kind = parser.get(argument)
            takes_value = kind != "switch"
            if kind is None or takes_value == after.startswith("--") or (takes_value and not fits(after, kind)):
                wrong.append(argument)
    return wrong


def fits(value, kind):
    """Whether vLLM's conversion takes the value."""
    if isinstance(kind, list):
        return value in kind
    try:
        {"int": int, "float": float, "json": json.loads, "text": str}[kind](value)
    except ValueError:
        return False
    return True


def test_each_golden_command_line_has_the_parser_of_its_release():
    assert set(PARSERS) == {release_of(golden) for golden in GOLDEN}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_the_release_takes_every_flag_and_value(golden):
    assert refusals(golden.read_text().splitlines(), PARSERS[release_of(golden)]) == []


@pytest.mark.parametrize("release", PARSERS)
@pytest.mark.parametrize("flag", GATES)
def test_a_flag_is_rendered_from_the_release_on_that_has_it(flag, release):
    assert (flag in PARSERS[release]) == (tuple(map(int, release.split("."))) >= GATES[flag])


@pytest.mark.parametrize("release", PARSERS)
def test_every_release_has_the_flags_that_are_rendered_without_a_gate(release):
    assert {"--model", "--pipeline-parallel-size", "--enforce-eager", "model_tag"} <= set(PARSERS[release])


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["model", "--port", "8000", "--enforce-eager"], []),
        (["model", "--no-such-flag", "1"], ["--no-such-flag"]),
        (["model", "--port", "http"], ["--port"]),
        (["model", "--port", "--enforce-eager"], ["--port"]),
        (["model", "--enforce-eager", "true"], ["--enforce-eager"]),
        (["model", "--dtype", "int3"], ["--dtype"]),
        (["model", "--custom-histogram-buckets", "{"], ["--custom-histogram-buckets"]),
    ],
)
def test_what_a_parser_refuses_is_seen(arguments, wrong):
    assert refusals(arguments, PARSERS["0.33.0"]) == wrong
