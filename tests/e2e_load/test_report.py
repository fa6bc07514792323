"""What the figures of a run count."""

import math

import pytest

from e2e.load import Status, TargetRecords
from e2e.load.report import LoadReport, percentile


def records(*rows: tuple[float, Status, float, float, int]) -> TargetRecords:
    """Rows of (arrival, status, TTFT in s, TPOT in s, tokens); sending takes no time."""
    result = TargetRecords()
    for at, status, ttft, tpot, tokens in rows:
        row = result.open_row(scheduled=at, sent=math.nan if status == Status.NOT_SENT else at, status=status)
        result.ttft[row], result.tpot[row], result.tokens[row] = ttft, tpot, tokens
        result.finished[row] = at + (0 if math.isnan(ttft) else ttft) + (0 if math.isnan(tpot) else tpot * (tokens - 1))
    return result


GOOD = (Status.OK, 0.4, 0.04, 10)


def test_an_answer_must_meet_both_thresholds():
    run = records((0, *GOOD), (1, Status.OK, 0.6, 0.04, 10), (2, Status.OK, 0.4, 0.06, 10), (3, *GOOD))
    assert run.attainment(ttft_ms=500, tpot_ms=50) == 0.5
    assert run.attainment(ttft_ms=500) == 0.75
    assert run.attainment(tpot_ms=50) == 0.75


@pytest.mark.parametrize("status", [Status.REJECTED, Status.ERROR, Status.CUT, Status.TIMEOUT, Status.NOT_SENT])
def test_every_arrival_that_ends_badly_is_a_miss(status):
    run = records((0, *GOOD), (1, status, 0.1, 0.01, 5))
    assert run.attainment(ttft_ms=500, tpot_ms=50) == 0.5


def test_a_one_token_answer_meets_any_tpot():
    assert records((0, Status.OK, 0.1, math.nan, 1)).attainment(tpot_ms=1) == 1.0


def test_a_request_that_waits_too_long_is_a_miss_before_it_is_answered():
    waiting = (Status.PENDING, math.nan, math.nan, 0)
    run = records((0, *waiting), (10.5, *waiting), (10, *GOOD))
    assert run.attainment(ttft_ms=500) == 0.5


def test_only_arrivals_of_the_asked_time_count():
    run = records((0, Status.CUT, 0.1, 0.1, 1), (5, *GOOD), (10, Status.CUT, 0.1, 0.1, 1))
    assert run.attainment(ttft_ms=500, since=1, until=10) == 1.0
    assert run.attainment(ttft_ms=500, since=20) is None


def test_the_servers_view_counts_first_tokens_and_ends_by_their_own_time():
    run = records(
        (0, Status.OK, 2.0, 0.1, 11), (0, Status.CUT, 1.0, math.nan, 1), (0, Status.REJECTED, math.nan, math.nan, 0)
    )
    assert run.observed("ttft", 1500) == (1, 2)
    assert run.observed("ttft", 1500, since=1.5) == (0, 1)
    assert run.observed("tpot", 100, since=2.9, until=3.1) == (1, 1)
    assert run.observed("tpot", 100, until=2.9) == (0, 0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentiles_are_nearest_rank(share, expected):
    assert percentile(range(1, 101), share) == expected


def test_a_percentile_of_nothing_is_nothing():
    assert percentile([], 0.99) is None


def test_a_window_shows_what_goes_on_now():
    report = LoadReport(
        {
            "gold": records(
                (0, *GOOD), (1, Status.REJECTED, math.nan, math.nan, 0), (2, Status.PENDING, 0.3, math.nan, 0)
            )
        }
    )
    report.start()
    seen = report.window(60)["gold"]
    assert (seen.in_flight, seen.failed, seen.ttft_p99_ms, seen.tpot_p99_ms) == (1, 1, 400, 40)


def test_a_report_is_json_without_nan():
    target = LoadReport({"gold": records((0, *GOOD), (1, Status.NOT_SENT, math.nan, math.nan, 0))}).to_dict()[
        "targets"
    ]["gold"]
    assert target["records"]["ttft"] == [0.4, None]
    assert target["records"]["status"] == ["ok", "not_sent"]
    assert target["summary"]["statuses"] == {"ok": 1, "not_sent": 1}
