"""A bad limit, an unknown release or a strange scheduler costs the live limits, never a request."""

import logging
import os
from types import SimpleNamespace

import pytest

from tierkeeper.plugin import tierkeeper_live_limit as plugin


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when told to."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(plugin.time, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def folder(tmp_path):
    (tmp_path / plugin.SEQS).write_text("8\n")
    (tmp_path / plugin.TOKENS).write_text("512")
    return tmp_path


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger=plugin.logger.name)
    return caplog


@pytest.mark.parametrize("text", ["", "eight", "-8", "0", "8.5", "8 16", "\u0668"])
def test_a_malformed_limit_keeps_the_last_good_one_and_is_logged_once(folder, clock, log, text):
    limits = plugin.LimitFolder(folder)
    limits.refresh()
    (folder / plugin.SEQS).write_text(text, encoding="utf-8")
    for _ in range(5):
        clock.now += 1
        limits.refresh()
    assert limits.values == {plugin.SEQS: 8, plugin.TOKENS: 512}
    assert len(log.records) == 1


def test_a_folder_that_vanishes_keeps_both_limits(folder, clock, log):
    limits = plugin.LimitFolder(folder)
    limits.refresh()
    (folder / plugin.SEQS).unlink()
    (folder / plugin.TOKENS).unlink()
    clock.now += 1
    limits.refresh()
    assert limits.values == {plugin.SEQS: 8, plugin.TOKENS: 512}
    assert [record.levelname for record in log.records] == ["WARNING", "WARNING"]


def test_the_files_are_read_at_most_twice_a_second(folder, clock):
    limits = plugin.LimitFolder(folder)
    reads = 0
    for _ in range(1000):
        reads += limits.refresh()
        clock.now += 0.01
    assert reads == 20


def test_a_scheduler_without_the_expected_attributes_is_left_alone(folder, tmp_path, log):
    scheduler = SimpleNamespace(running=[], max_num_running_reqs=64, scheduler_config=SimpleNamespace())
    before = vars(scheduler).copy()
    governor = plugin.Governor(plugin.LimitFolder(folder), tmp_path)
    for _ in range(3):
        governor.before_step(scheduler)
    assert vars(scheduler) == before
    assert len([record for record in log.records if record.levelname == "ERROR"]) == 1
    assert _value(plugin.Gauges(plugin.LimitFolder(folder), tmp_path, supported=True), "live_limit_supported") == 0


def test_a_state_folder_that_cannot_be_written_does_not_stop_the_limits(folder, tmp_path, clock, log, fake_scheduler):
    governor = plugin.Governor(plugin.LimitFolder(folder), tmp_path / "absent")
    scheduler = fake_scheduler.Scheduler(max_num_seqs=64, max_num_batched_tokens=2048)
    for _ in range(3):
        governor.before_step(scheduler)
        clock.now += 1
    assert scheduler.max_num_active_reqs == 8
    assert len([record for record in log.records if record.levelname == "WARNING"]) == 1
    (tmp_path / "absent").mkdir()
    governor.before_step(scheduler)
    assert len(list((tmp_path / "absent").iterdir())) == 1


@pytest.mark.parametrize(
    ("limit", "set_to", "shown"), [(512, 512, 512), (1800, 1664, 1800), (2048, 1664, 2048), (4096, 1664, 2048)]
)
def test_a_limit_above_what_speculation_leaves_of_the_budget_is_kept_and_shown_as_kept(
    folder, tmp_path, fake_scheduler, limit, set_to, shown
):
    """vLLM takes the draft tokens of a full batch off the budget that it was started with: 2,048 - 6 x 64."""
    (folder / plugin.TOKENS).write_text(str(limit))
    scheduler = fake_scheduler.Scheduler(max_num_seqs=64, max_num_batched_tokens=2048)
    scheduler.scheduler_config.max_num_batched_tokens, scheduler.max_num_scheduled_tokens = 2048, 1664
    plugin.Governor(plugin.LimitFolder(folder), tmp_path).before_step(scheduler)
    assert scheduler.max_num_scheduled_tokens == set_to
    gauges = plugin.Gauges(plugin.LimitFolder(folder), tmp_path, supported=True)
    assert _value(gauges, "max_num_batched_tokens_applied") == shown


def test_a_spoiled_state_file_does_not_spoil_the_metrics_page(folder, tmp_path, log):
    (tmp_path / str(os.getpid())).write_text("{")
    assert list(plugin.Gauges(plugin.LimitFolder(folder), tmp_path, supported=True).collect()) == []


def test_of_several_engines_the_one_furthest_from_the_limit_is_shown(folder, tmp_path, monkeypatch):
    state = tmp_path / "state"
    state.mkdir()
    (state / "1").write_text('{"supported": true, "max-num-seqs": 8, "max-num-batched-tokens": 512}')
    (state / "2").write_text('{"supported": true, "max-num-seqs": 64, "max-num-batched-tokens": 512}')
    (state / "4194304").write_text(
        '{"supported": true, "max-num-seqs": 9999, "max-num-batched-tokens": 1}'
    )  # no such pid
    monkeypatch.setattr(plugin.Path, "exists", lambda path: path.name != "4194304")
    gauges = plugin.Gauges(plugin.LimitFolder(folder), state, supported=True)
    assert _value(gauges, "max_num_seqs_seen") == 8
    assert _value(gauges, "max_num_seqs_applied") == 64
    assert _value(gauges, "max_num_batched_tokens_applied") == 512


def test_without_its_variable_the_plugin_does_nothing(monkeypatch):
    monkeypatch.delenv(plugin.LIMIT_DIR_VARIABLE, raising=False)
    monkeypatch.setattr(plugin, "_wrap_scheduler", lambda _: pytest.fail("reached for the scheduler"))
    plugin.register()


def _value(gauges: plugin.Gauges, name: str) -> float:
    (sample,) = next(family for family in gauges.collect() if family.name == f"tierkeeper_{name}").samples
    return sample.value
