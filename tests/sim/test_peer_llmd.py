"""llm-d's SLO-aware law: saturation, hysteresis, credit, and the HPA behind it."""

from __future__ import annotations

import pytest

from tests.sim.laws import Seen, Story
from tierkeeper.sim.peers.llmd import LlmdLaw, LlmdSettings, formula, raw_saturation


@pytest.mark.parametrize(
    ("saturation", "replicas", "ready", "wanted"),
    [
        (0.50, 4, 4, 4),  # inside the band
        (0.55, 4, 4, 4),
        (0.66, 4, 4, 5),  # 4 + ceil(4 * (0.66 / 0.55 - 1)) = 4 + 1
        (2.00, 4, 4, 15),  # 4 + ceil(4 * 2.636) = 4 + 11
        (1.10, 4, 2, 4),  # half of them still load: 1.1 * 0.5 / 0.55 = 1
        (1.10, 4, 3, 6),  # 4 + ceil(4 * 0.5)
        (0.60, 4, 1, 4),  # the credit never sheds
        (0.40, 4, 4, 4),
        (0.30, 8, 8, 6),  # 8 - floor(8 * 0.25)
        (0.30, 8, 2, 6),  # shedding knows no credit
        (0.00, 8, 8, 0),
    ],
)
def test_the_formula(saturation, replicas, ready, wanted):
    assert formula(saturation, replicas=replicas, ready=ready, settings=LlmdSettings()) == wanted


def test_saturation_is_the_worse_of_the_two_latencies_over_their_targets():
    assert raw_saturation(Seen(ttft_seconds=0.75, tpot_seconds=0.01), LlmdSettings()) == 0.5
    assert raw_saturation(Seen(ttft_seconds=0.15, tpot_seconds=0.03), LlmdSettings()) == 0.75


def test_no_data_reads_as_idle():
    assert raw_saturation(Seen(ttft_seconds=None, tpot_seconds=None), LlmdSettings()) == 0.0


def test_growth_waits_thirty_seconds_for_the_lowest_wish():
    llmd = Story(LlmdLaw(), seen=Seen(replicas=4, ready=4))
    assert [llmd.tick(ttft_seconds=0.7, ready=4) for _ in range(3)] == [4, 4, 4]
    # 2.0 at 60 s makes the average of 45 s (0.47 + 0.47 + 2.0) / 3 = 0.98: 8 are wanted. The wish for 4 at 45 s counts
    # until 75 s.
    assert [llmd.tick(ttft_seconds=90.0, ready=4) for _ in range(2)] == [4, 8]


def test_growth_is_at_most_double_or_four_more_in_a_minute():
    llmd = Story(LlmdLaw(), seen=Seen(replicas=2, ready=2))
    replicas = llmd.until(165, ttft_seconds=90.0)
    assert replicas == [2, 2, 6, 6, 6, 6, 12, 12, 12, 12, 24]


def test_shrinking_waits_three_minutes_and_goes_one_pod_in_two():
    llmd = Story(LlmdLaw(), seen=Seen(replicas=6, ready=6))
    replicas = llmd.until(465, ttft_seconds=0.15)
    assert replicas[:12] == [6] * 12
    assert replicas[12:] == [5] * 8 + [4] * 8 + [3] * 3


def test_the_tolerance_of_the_hpa_swallows_one_in_twelve():
    llmd = Story(LlmdLaw(), seen=Seen(replicas=12, ready=12))
    assert set(llmd.until(300, ttft_seconds=0.84)) == {12}  # s = 0.56 asks for 13


def test_a_source_that_is_down_holds():
    llmd = Story(LlmdLaw(), seen=Seen(replicas=6, ready=6))
    assert set(llmd.until(900, reachable=False)) == {6}
