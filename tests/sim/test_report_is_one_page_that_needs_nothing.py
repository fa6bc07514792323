"""The report of a run: one file, every plot, every decision with its reason; and a real browser shows it."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.sim.worlds import sim_tier, tier_spec, traffic
from tierkeeper.engine.latency import LLAMA_8B_2XA100
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.binned import binned, capacity
from tierkeeper.sim.loop import simulate
from tierkeeper.sim.plot import Line, Mark, Plot, svg, time_ticks
from tierkeeper.sim.policy import Ours, Static
from tierkeeper.sim.record import Entry, Run
from tierkeeper.sim.report import report, reversals

GOLDEN = Path(__file__).parents[1] / "golden/sim/plot.svg"
PLOTS = 7
"""Of a tier whose token budget is never set."""


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    tier = sim_tier(tier_spec(), traffic((300, 4), (600, 16), (300, 4)), startup=60.0)
    return [simulate([tier], Ours()), simulate([tier], Static())]


@pytest.fixture(scope="module")
def page(runs: list[Run]) -> str:
    return report(runs, title="A step <4x> & back")


class Tags(HTMLParser):
    """Opening and closing tags in balance, and what they refer to."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(page: str) -> Tags:
    found = Tags()
    found.feed(page)
    assert found.open == []
    return found


def test_the_page_is_well_formed_and_refers_to_nothing_outside(page: str) -> None:
    found = tags(page)
    references = [a.get(name) for _, a in found.seen for name in ("src", "href", "action", "srcset") if name in a]
    assert references == ["data:,"]
    assert not re.search(r"url\(|@import|https?://", page)
    assert not any(tag == "script" for tag, _ in found.seen)


def test_every_plot_of_every_run_is_there_with_its_lines(page: str) -> None:
    assert page.count('<svg class="plot"') == 2 * PLOTS
    for title in (
        "Time to first token",
        "Time per output token",
        "Demand, and",
        "Replicas",
        "max-num-seqs",
        "Error budget left",
    ):
        assert page.count(f'aria-label="{title}') == 2
    assert page.count('class="target" x1') == 4


def test_every_change_is_there_with_its_reason(page: str, runs: list[Run]) -> None:
    (tier,) = runs[0].tiers.values()
    changes = [entry for entry in tier.decisions if entry.after != entry.before]
    assert changes
    for entry in changes:
        assert f'<td class="left">{entry.reason}</td>' in page
        assert entry.message[:30] in page


def test_what_a_title_holds_is_text(page: str) -> None:
    assert "<title>A step &lt;4x&gt; &amp; back</title>" in page


def test_a_broken_promise_stands_out_in_the_table(page: str) -> None:
    assert re.search(r'<td>static</td><td class="bad">[\d.]+%</td>', page)


def test_a_plot_is_drawn_as_before() -> None:
    plot = Plot(
        title="Replicas & more",
        unit="",
        lines=[
            Line("wanted", np.array([0.0, 60, 120, 180]), np.array([1.0, 3, 3, 2]), steps=True),
            Line("Ready", np.array([0.0, 60, 120, 180]), np.array([1.0, np.nan, 3, 2])),
        ],
        seconds=240.0,
        target=2.5,
        marks=[Mark(60.0, "add 2 replicas 1 → 3")],
    )
    drawn = svg(plot) + "\n"
    if os.environ.get("GOLDEN_UPDATE"):
        GOLDEN.write_text(drawn, encoding="utf-8")
    assert drawn == GOLDEN.read_text(encoding="utf-8")


def test_a_week_of_points_is_thinned_without_losing_its_peak() -> None:
    values = np.sin(np.arange(40_000) / 500)
    values[31_234] = 50.0
    drawn = svg(Plot("busy", "", [Line("line", np.arange(40_000.0), values)], seconds=40_000.0))
    assert drawn.count("L") < 1300
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", drawn)]
    assert min(heights) < min(sorted(heights)[1:]) - 100


@pytest.mark.parametrize("values", [[], [np.nan, np.nan], [0.0, 0.0], [np.inf, np.inf], [5.0, 5.0]])
@pytest.mark.parametrize("logarithmic", [True, False])
def test_lines_with_nothing_to_show_still_make_a_plot(values: list[float], logarithmic: bool) -> None:
    line = Line("line", np.arange(float(len(values))), np.array(values))
    tags(svg(Plot("plot", "s", [line], seconds=10.0, logarithmic=logarithmic)))


def test_time_is_told_in_its_largest_unit() -> None:
    assert time_ticks(40.0)[-1] == (40, "40 s")
    assert time_ticks(3600.0)[1] == (600, "10 min")
    assert time_ticks(86400.0)[1] == (10800, "3 h")
    assert time_ticks(7 * 86400.0)[-1] == (604800, "7 d")


def test_bins_say_what_happened_by_arrival(runs: list[Run]) -> None:
    (tier,) = runs[1].tiers.values()
    found = binned(tier, runs[1].seconds)
    assert found.arrivals_per_second[6] == pytest.approx(16, rel=0.2)
    assert found.ttft_p99[12] > 60
    assert found.budget_left[2] == 1.0
    assert found.budget_left[-1] < 0


@pytest.mark.parametrize("seconds", [30.0, 60.0, 61.0, 28_801.0, 86_388.0, 604_800.0])
def test_every_bin_lasts(runs: list[Run], seconds: float) -> None:
    (tier,) = runs[1].tiers.values()
    found = binned(tier, seconds)
    assert np.isfinite(found.arrivals_per_second).all()
    assert len(found.at) in (1, 2, 480)


def test_capacity_is_the_largest_batch_within_the_target() -> None:
    """1,000 + 100 tokens: at 24 sequences a step takes 26.0 ms, so 24 / 2.60 s; within 40 ms fit 43."""
    free = capacity(LLAMA_8B_2XA100, sequences=24, tpot=0.04, prompt=1000, output=100)
    bound = capacity(LLAMA_8B_2XA100, sequences=128, tpot=0.04, prompt=1000, output=100)
    none = capacity(LLAMA_8B_2XA100, sequences=128, tpot=None, prompt=1000, output=100)
    assert free == pytest.approx(9.22, abs=0.01)
    assert bound == pytest.approx(43.2 / 4.0, abs=0.05)
    assert none > bound


def only(run: Run, **changed: object) -> Run:
    """A run whose one tier is another one in these points."""
    (key,) = run.tiers
    return dataclasses.replace(run, tiers={key: dataclasses.replace(run.tiers[key], **changed)})  # type: ignore[arg-type]


def test_a_tier_without_a_promise_has_a_page_too(runs: list[Run]) -> None:
    (tier,) = runs[1].tiers.values()
    found = report([only(runs[1], spec=dataclasses.replace(tier.spec, objective=None))], title="Batch")
    assert "promises nothing" in found
    assert 'class="target" x1' not in found
    assert found.count('<svg class="plot"') == PLOTS - 1
    assert "Error budget left" not in found


def test_a_label_of_the_axis_is_short_as_the_unit_is_in_the_title() -> None:
    line = Line("line", np.arange(3.0), np.array([0.0, 60_000.0, 100_000.0]))
    drawn = svg(Plot("Demand", "req/s", [line], seconds=2.0))
    assert ">Demand (req/s)</text>" in drawn
    labels = re.findall(r'class="label end" x="52"[^>]*>([^<]*)<', drawn)
    assert labels == ["0", "25,000", "50,000", "75,000", "100,000"]


@pytest.mark.parametrize(("most", "levels"), [(1.0, "0 1"), (9.0, "0 3 6 9"), (90.0, "0 25 50 75 100")])
def test_what_is_counted_has_whole_numbers_at_its_axis(most: float, levels: str) -> None:
    drawn = svg(Plot("Replicas", "", [Line("line", np.arange(2.0), np.array([0.0, most]))], seconds=2.0, whole=True))
    assert re.findall(r'class="label end" x="52"[^>]*>([^<]*)<', drawn) == levels.split()


def test_a_value_alone_is_a_dot() -> None:
    drawn = svg(Plot("plot", "", [Line("line", np.arange(3.0), np.array([np.nan, 1.0, np.nan]))], seconds=2.0))
    assert re.search(r'd="M[\d.]+ [\d.]+h0"', drawn)


def test_marks_are_in_the_legend_where_there_are_some() -> None:
    line = Line("line", np.arange(2.0), np.ones(2))
    marked, bare = (svg(Plot("plot", "", [line], 1.0, marks=marks)) for marks in ([Mark(0.5, "add")], []))
    assert '<tspan class="mark">' in marked
    assert "mark" not in bare


def test_a_budget_that_the_policy_never_saw_has_no_line_and_a_sentence(page: str) -> None:
    assert "as the policy saw it" not in page
    assert page.count("known after about 30 min and 300 requests") == 2


def test_an_overspent_budget_says_how_far_it_fell(page: str, runs: list[Run]) -> None:
    (tier,) = runs[1].tiers.values()
    lowest = 100 * binned(tier, runs[1].seconds).budget_left.min()
    assert f"the lowest value is {lowest:,.0f}%" in page


def test_where_nobody_was_served_the_missing_line_is_explained(runs: list[Run]) -> None:
    (tier,) = runs[1].tiers.values()
    ttft = np.where(tier.requests.arrival > 600.0, np.nan, tier.outcome.ttft)
    starved = only(runs[1], outcome=dataclasses.replace(tier.outcome, ttft=ttft))
    assert "never got a first token" in report([starved], title="Starved")


def change(at: float, *, reason: str = "") -> Entry:
    return Entry(at, before=Levers(replicas=1, max_num_seqs=32), after=Levers(2, 32), reason=reason, message=reason)


def test_changes_after_the_traffic_are_told_apart_and_not_drawn(runs: list[Run]) -> None:
    late = only(runs[1], decisions=(change(60.0), change(runs[1].seconds + 60.0)))
    found = report([late], title="Late")
    assert "<h3>1 change, and 1 after the traffic, in no figure and no plot</h3>" in found
    assert found.count('<tr class="after">') == 1
    assert found.count('<line class="mark"') == 3  # TTFT, TPOT, replicas


def test_a_policy_that_gives_no_reasons_has_no_columns_for_them(runs: list[Run]) -> None:
    silent, talking = (
        report([only(runs[1], decisions=(change(60.0, reason=reason),))], title="T") for reason in ("", "why")
    )
    assert ">reason</th>" not in silent
    assert ">reason</th>" in talking


def test_the_page_holds_what_it_takes_to_make_it_again(runs: list[Run]) -> None:
    found = report(runs, title="Again", command="tierkeeper simulate --trace 'a <b>.csv'", seed=3)
    assert "<code>tierkeeper simulate --trace &#x27;a &lt;b&gt;.csv&#x27;</code>" in found
    assert "one scrape old; seed 3." in found
    assert re.search(r"Limits: 1 to \d+ replicas, max-num-seqs .*, 1 GPU a replica\. A step takes", found)
    assert "8.5 ms + 0.03 ms a sequence + 0.076 ms per 1,000 tokens of its context + 62 ms per 1,000 prefill" in found


def test_reversals_of_a_short_run_are_a_count() -> None:
    assert reversals(96.0, seconds=900.0) == "1"
    assert reversals(1.25, seconds=4 * 86400.0) == "1.2 / day"


def test_a_real_browser_shows_it_without_a_complaint(page: str, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium on PATH: run make setup as root (tests/packages.txt)")
    probe = (
        "<script>const drawn = [...document.querySelectorAll('svg.plot')].filter(plot => {"
        "const box = plot.getBoundingClientRect(); return box.width > 300 && box.height > 60 &&"
        "[...plot.querySelectorAll('path.line')].some(line => line.getTotalLength() > 100); });"
        "const wide = document.body.scrollWidth > innerWidth ? ', too wide' : '';"
        "document.title = 'drawn ' + drawn.length + wide;</script>"
    )
    file = tmp_path / "report.html"
    file.write_text(page.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1200,900",
        "--enable-logging=stderr",
    ]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr, done.stderr[-2000:]
    assert f"<title>drawn {2 * PLOTS}</title>" in done.stdout
