"""The source of a run: late, asked for what is due, and sometimes at fault."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.pages import COLUMNS, page
from tierkeeper.render.promql import queries
from tierkeeper.sim.scrape import Faults, Scraping, Span
from tierkeeper.sim.source import LABELS, Snapshot, Source, answer
from tierkeeper.slo.assess import assess
from tierkeeper.slo.model import Assessment, SignalState, Sli
from tierkeeper.slo.readings import group
from tierkeeper.slo.signals import SignalKind
from tierkeeper.tier import Objective, TierKey

KEY = TierKey("llm", "gold")
OBJECTIVE = Objective(ratio=0.99, ttft_seconds=1.0, tpot_seconds=0.1)
EXACT = Scraping(jitter_seconds=0.0)


class Story:
    """Two pods of ten requests a second each, scraped and looked at every 15 s."""

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        scraping: Scraping = EXACT,
        pods: Callable[[float], list[str]] = lambda _: ["a", "b"],
    ) -> None:
        self.source = Source({KEY: COLUMNS}, scraping, budget_days={30}, faults=faults or Faults(), seed=3)
        self.pods = pods
        self.looks: list[tuple[float, Snapshot]] = []

    def play(self, seconds: int) -> Story:
        scraper = self.source.scrapers[KEY]
        for start in range(0, seconds, 15):
            scraper.next_round(start)
            for offset, at in enumerate((start + 2.5, start + 7.5, start + 12.5)):
                pages = [page(name, requests=10 * at, waiting=1) for name in self.pods(at)]
                scraper.scrape(pages, at=at, offset=offset)
            self.looks.append((start + 15.0, self.source.snapshot(start + 15.0)))
        return self

    def assessment(self) -> Assessment:
        """What the operator makes of the last looks."""
        found: Assessment | None = None
        for now, look in self.looks:
            found = assess(
                now=now,
                key=KEY,
                objective=OBJECTIVE,
                readings=look.readings.get(KEY),
                live_pods=self.pods(now),
                ready_since=0.0,
                previous=found,
                scrape_interval_seconds=15,
                source_error=look.error,
            )
        assert found is not None
        return found


def test_the_truth_comes_back_through_scrapes_and_the_operators_own_code() -> None:
    found = Story().play(450).assessment()
    assert found.state is SignalState.OK
    assert found.traffic.requests_per_second == pytest.approx(20.0)
    assert found.traffic.mean_prompt_tokens == pytest.approx(500.0)
    assert found.traffic.mean_ttft_seconds == pytest.approx(0.97 * 0.3 + 0.03 * 1.7)
    assert (found.traffic.waiting, found.traffic.waiting_floor) == (2.0, 2.0)
    window = found.slos[Sli.TTFT].window(300)
    assert window is not None
    assert window.ratio.point == pytest.approx(0.03)
    assert window.total == pytest.approx(6000.0)


def test_what_is_asked_is_answered_as_of_one_scrape_ago() -> None:
    """A third pod is scraped from 300 s on; the look at 315 s is of 300 s, the one at 330 s shows it."""
    story = Story(pods=lambda at: ["a", "b", "c"] if at >= 300 else ["a", "b"]).play(345)
    seen = {now: set(look.readings[KEY].pods[SignalKind.RUNNING]) for now, look in story.looks if KEY in look.readings}
    assert seen[315.0] == {"a", "b"}
    assert seen[330.0] == {"a", "b", "c"}


def test_readings_put_together_are_those_of_all_answers_at_once() -> None:
    """Slow windows are asked for less often; a look with all that is known, grouped anew, must say the same."""
    story = Story(scraping=Scraping())
    answers = {}
    asked_at: dict[object, float] = {}
    story.play(780)
    wanted = queries(LABELS, story.source.windows, budget_days={30})
    for now, look in story.looks:
        view = story.source.scrapers[KEY].at(now - 15.0)
        for query in wanted:
            if now - asked_at.get(query.signal, -math.inf) >= query.every_seconds:
                answers[query.signal] = answer(query.signal, KEY, view, stepped=query.optional)
                asked_at[query.signal] = now
        assert look.readings.get(KEY) == group(answers, LABELS).get(KEY)
    assert {asked_at[q.signal] for q in wanted if q.signal.window_seconds == 21600} == {735.0}


def test_a_frozen_source_repeats_itself_and_is_found_out() -> None:
    story = Story(faults=Faults(frozen=(Span(300, 450),))).play(430)
    frozen = story.assessment()
    assert len({look.readings[KEY].evaluated_at for now, look in story.looks if now >= 300}) == 1
    assert (frozen.state, frozen.reason) == (SignalState.STALE, "EvaluationFrozen")


def test_a_source_that_is_down_says_so_and_comes_back() -> None:
    faults = Faults(down=(Span(150, 250),))
    assert Story(faults=faults).play(240).assessment().state is SignalState.SOURCE_DOWN
    assert Story(faults=faults).play(300).assessment().state is SignalState.OK


def test_lost_scrapes_leave_pods_out_of_a_look_and_rates_whole() -> None:
    story = Story(faults=Faults(lost_scrapes=0.3)).play(900)
    found = story.assessment()
    seen = [len(look.readings[KEY].pods.get(SignalKind.RUNNING, {})) for _, look in story.looks if KEY in look.readings]
    assert np.mean(seen) == pytest.approx(1.4, abs=0.25)
    window = found.slos[Sli.TTFT].window(300)
    assert window is None or window.total == pytest.approx(6000.0, rel=0.15)


def test_a_nan_page_is_ambiguous_while_it_stands_at_the_end_of_a_window() -> None:
    story = Story(faults=Faults(nan_scrapes=0.2)).play(600)
    states = set()
    for length in range(20, len(story.looks)):
        part = Story()
        part.looks = story.looks[:length]
        states.add(part.assessment().reason)
    assert {"NotANumber", "Ok"} <= states


def test_counters_that_start_again_change_no_rate() -> None:
    found = Story(faults=Faults(resets_per_hour=20.0)).play(900).assessment()
    assert found.state is SignalState.OK
    assert found.traffic.requests_5m == pytest.approx(6000.0, rel=0.25)


def test_a_pod_that_is_gone_is_no_pod_after_two_scrapes() -> None:
    story = Story(pods=lambda at: ["a", "b"] if at < 300 else ["a"]).play(345)
    seen = {now: set(look.readings[KEY].pods[SignalKind.RUNNING]) for now, look in story.looks if KEY in look.readings}
    assert seen[330.0] == {"a", "b"}
    assert seen[345.0] == {"a"}


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"lost_scrapes": 1.5}, "faults.lost_scrapes: 1.5"),
        ({"nan_scrapes": -0.1}, "faults.nan_scrapes: -0.1"),
        ({"resets_per_hour": -1.0}, "faults.resets_per_hour: -1.0"),
    ],
)
def test_a_fault_that_is_no_share_is_refused_by_name(fault: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Faults(**fault)


def test_a_scrape_interval_that_the_windows_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scraping.interval_seconds: 30"):
        Scraping(interval_seconds=30)
    with pytest.raises(ValueError, match=r"scraping.jitter_seconds: 3"):
        Scraping(jitter_seconds=3.0)
