"""Reading a stream, and where load may go."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.load.client import Outcome, TokenWatcher, body
from e2e.load.guard import check_address


def event(choices: list[dict[str, object]], **more: object) -> bytes:
    return b"data: " + json.dumps({"choices": choices, **more}, separators=(",", ":")).encode() + b"\n\n"


TOKEN = event([{"text": "a", "finish_reason": None}])
LAST = event([{"text": "b", "finish_reason": "length"}])
USAGE = event([], usage={"completion_tokens": 3})
STREAM = TOKEN + TOKEN + LAST + USAGE + b"data: [DONE]\n\n"


def watched(*pieces: tuple[bytes, float]) -> tuple[Outcome, str | None, list[float]]:
    outcome, firsts = Outcome(), []
    watcher = TokenWatcher(outcome, firsts.append)
    for piece, now in pieces:
        watcher.feed(piece, now)
    return outcome, watcher.finish_reason, firsts


def test_first_and_last_token_have_the_time_at_which_they_came():
    outcome, reason, firsts = watched((TOKEN, 1.0), (TOKEN, 2.0), (LAST + USAGE, 3.0), (b"data: [DONE]\n\n", 9.0))
    assert (outcome.first_token, outcome.last_token, outcome.tokens, reason) == (1.0, 3.0, 3, "length")
    assert firsts == [1.0]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_cut_into_any_pieces_reads_the_same(cuts):
    marks = [0, *sorted(cuts), len(STREAM)]
    outcome, reason, _ = watched(*((STREAM[a:b], 1.0) for a, b in pairwise(marks)))
    assert (outcome.tokens, reason) == (3, "length")


def test_the_servers_token_count_wins_where_a_chunk_holds_several():
    outcome, _, _ = watched((TOKEN, 1.0), (LAST + event([], usage={"completion_tokens": 8}), 2.0))
    assert outcome.tokens == 8


def test_an_abort_brings_no_token():
    outcome, reason, _ = watched((TOKEN, 1.0), (event([{"text": "", "finish_reason": "abort"}]), 2.0))
    assert (outcome.tokens, outcome.last_token, reason) == (1, 1.0, "abort")


def test_an_error_inside_the_stream_is_kept():
    outcome, reason, _ = watched((TOKEN, 1.0), (b'data: {"error":{"message":"gone"}}\n\n', 2.0))
    assert reason is None
    assert "gone" in outcome.error


@given(st.integers(1, 300), st.integers(0, 10**6))
def test_a_prompt_has_exactly_the_asked_length(tokens, number):
    payload = json.loads(body(model="m", prompt_tokens=tokens, output_tokens=7, number=number))
    assert (len(payload["prompt"]), payload["max_tokens"], payload["model"]) == (tokens, 7, "m")


def test_prompts_differ_from_the_first_tokens_on():
    prompts = [
        tuple(json.loads(body(model="", prompt_tokens=20, output_tokens=1, number=n))["prompt"]) for n in range(50)
    ]
    assert len({prompt[:8] for prompt in prompts}) == 50


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:1", "http://198.19.255.254"]
)
def test_loopback_and_the_benchmarking_range_may_be_loaded(url):
    check_address(url)


@pytest.mark.parametrize("url", ["http://10.0.0.1", "http://198.20.0.1", "http://192.168.1.1:80"])
def test_any_other_machine_may_not(url):
    with pytest.raises(ValueError, match="--any-address"):
        check_address(url)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://127.0.0.1", "http://"])
def test_what_is_no_http_url_is_refused(url):
    with pytest.raises(ValueError, match="not an http"):
        check_address(url)
