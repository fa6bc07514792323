"""Whatever the limits do, the scheduler's assertions hold, decodes are never starved, and every request finishes.

Where prompts advance by whole blocks (hybrid models: some hundred tokens), what a prompt leaves of a step lets a later
request in, and the prompt's last piece, no whole block, may then take that request's tokens: one step late, never two.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tierkeeper.plugin import tierkeeper_live_limit as plugin

CEILING, BUDGET = 32, 2048
RELEASES = [(0, 18), (0, 22), (0, 23), (0, 27), (0, 30), (0, 31), (0, 33)]

steps = st.tuples(st.just("steps"), st.integers(1, 5))
arrivals = st.tuples(st.just("arrive"), st.integers(1, 20), st.integers(1, 3000), st.integers(1, 30))
limits = st.tuples(st.just("limit"), st.integers(1, 2 * CEILING), st.none() | st.integers(1, 2 * BUDGET))
garbage = st.tuples(st.just("garbage"), st.sampled_from(["", "x", "-3", "0", "1.5", "\x00", "9" * 6000]))
scripts = st.lists(st.one_of(steps, arrivals, limits, garbage), max_size=30)


@dataclass
class Bench:
    """A scheduler under the plugin's hand, with files that are read before every step."""

    scheduler: Any
    request: Any
    folder: Path
    governor: plugin.Governor
    late: list[Any] = field(default_factory=list)
    """Requests that the last step left waiting for their tokens."""

    def write(self, seqs: str, tokens: str | None) -> None:
        (self.folder / plugin.SEQS).write_text(seqs)
        (self.folder / plugin.TOKENS).unlink(missing_ok=True)
        if tokens is not None:
            (self.folder / plugin.TOKENS).write_text(tokens)

    def step(self) -> Any:
        before = len(self.scheduler.running)
        self.governor.before_step(self.scheduler)
        output = self.scheduler.schedule()
        cap = self.governor._limits.values.get(plugin.SEQS, CEILING)
        assert before + output.admitted <= max(before, cap)
        assert output.starved == [] or self.scheduler.need_mamba_block_aligned_split
        assert not any(request is late for request in output.starved for late in self.late)
        self.late = output.starved
        assert self.scheduler.max_num_scheduled_tokens <= BUDGET
        return output


@pytest.fixture
def make_bench(fake_scheduler, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(plugin, "READ_SECONDS", 0.0)

    def make(**options: Any) -> Bench:
        base = Path(tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp()))
        (base / "limit").mkdir()
        (base / "state").mkdir()
        scheduler = fake_scheduler.Scheduler(max_num_seqs=CEILING, max_num_batched_tokens=BUDGET, **options)
        governor = plugin.Governor(plugin.LimitFolder(base / "limit"), base / "state")
        return Bench(scheduler, fake_scheduler.Request, base / "limit", governor)

    return make


@pytest.mark.parametrize("release", RELEASES)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@example(script=[("arrive", 1, 600, 1), ("arrive", 3, 1, 9), ("limit", 4, 600)], spec_tokens=3, block=528)
@example(
    script=[("arrive", 1, 3000, 1), ("arrive", 3, 1, 9), ("limit", 9, 999), ("steps", 1), ("limit", 9, 1056)],
    spec_tokens=0,
    block=528,
)
@given(script=scripts, spec_tokens=st.integers(0, 5), block=st.none() | st.just(528))
def test_any_sequence_of_limits_and_load_is_served(make_bench, release, script, spec_tokens, block):
    bench = make_bench(release=release, num_spec_tokens=spec_tokens, mamba_block_size=block)
    for action, *values in script:
        if action == "steps":
            for _ in range(values[0]):
                bench.step()
        elif action == "arrive":
            count, prompt, outputs = values
            bench.scheduler.waiting += [bench.request(prompt, outputs) for _ in range(count)]
        elif action == "limit":
            seqs, tokens = values
            bench.write(str(seqs), None if tokens is None else str(tokens))
        else:
            bench.write(values[0], values[0])
    for _ in range(60_000):
        if not bench.scheduler.running and not bench.scheduler.waiting:
            break
        bench.step()
    assert bench.scheduler.running == bench.scheduler.waiting == []


@pytest.mark.parametrize("release", RELEASES)
def test_a_lowered_cap_drains_down_and_a_raised_one_fills_up(make_bench, release):
    bench = make_bench(release=release)
    bench.scheduler.waiting = [bench.request(1, 10 * (i + 1)) for i in range(64)]
    bench.step()
    assert len(bench.scheduler.running) == 32
    bench.write("4", None)
    while len(bench.scheduler.running) > 4:
        assert bench.step().admitted == 0
    bench.write("16", None)
    bench.step()
    assert len(bench.scheduler.running) == 16


def test_the_start_values_are_the_upper_bounds(make_bench):
    bench = make_bench()
    bench.write("1000", "100000")
    bench.step()
    assert (bench.scheduler.max_num_active_reqs, bench.scheduler.max_num_scheduled_tokens) == (CEILING, BUDGET)


def test_an_absent_budget_beside_a_cap_gives_the_engine_its_own_back(make_bench):
    bench = make_bench()
    bench.write("8", "128")
    bench.step()
    assert bench.scheduler.max_num_scheduled_tokens == 128
    bench.write("8", None)
    bench.step()
    assert bench.scheduler.max_num_scheduled_tokens == BUDGET


def test_the_budget_never_falls_below_what_the_batch_decodes(make_bench):
    bench = make_bench(num_spec_tokens=3)
    bench.scheduler.waiting = [bench.request(1, 50) for _ in range(20)]
    bench.step()
    bench.write("32", "8")
    bench.step()
    assert bench.scheduler.max_num_scheduled_tokens == 20 * (1 + 3) + 16


def test_an_engine_that_may_not_split_prompts_keeps_its_whole_budget(make_bench):
    bench = make_bench(enable_chunked_prefill=False)
    bench.write("32", "64")
    bench.scheduler.waiting = [bench.request(2000, 2)]
    assert bench.step().admitted == 1
