"""A log line says which tier and which reconcile it belongs to, in any locale."""

import contextlib
import io
import json
import logging
import sys

import pytest

from tests.control.stage import GOLD, POOL, agreeing
from tests.control.test_slo_loop import running_stage, ticks
from tierkeeper.obs.logs import configure_logs, working
from tierkeeper.ports import Kind
from tierkeeper.settings import LogFormat
from tierkeeper.tier import TierKey


@contextlib.contextmanager
def ascii_stderr(monkeypatch):
    """A standard error that takes ASCII only, as under LANG=C; yields what was written so far."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    page = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stderr", page)
    yield lambda: page.buffer.getvalue().decode("ascii")
    root.handlers[:], root.level = before, level


def test_json_lines_carry_tier_and_work(monkeypatch):
    with ascii_stderr(monkeypatch) as written:
        configure_logs(format=LogFormat.JSON, level="info")
        with working(id="a1b2", key=TierKey("llm", "gold")):
            logging.getLogger("tierkeeper").info("scaled %s", "up")
        line = json.loads(written())
    assert (line["tier"], line["work_id"], line["message"], line["level"]) == ("llm/gold", "a1b2", "scaled up", "info")


def test_a_line_outside_of_any_work_has_no_tier(monkeypatch):
    with ascii_stderr(monkeypatch) as written:
        configure_logs(format=LogFormat.JSON, level="info")
        logging.getLogger("tierkeeper").info("started")
        assert "tier" not in json.loads(written())


@pytest.mark.parametrize("form", list(LogFormat))
def test_a_character_the_locale_lacks_does_not_break_the_line(monkeypatch, form):
    with ascii_stderr(monkeypatch) as written:
        configure_logs(format=form, level="info")
        logging.getLogger("tierkeeper").info("waited 5 \N{MICRO SIGN}s")
        assert "waited 5" in written()


def test_an_unknown_level_is_refused(monkeypatch):
    with ascii_stderr(monkeypatch), pytest.raises(ValueError, match="NOISY"):
        configure_logs(format=LogFormat.TEXT, level="noisy")


@pytest.mark.parametrize("form", list(LogFormat))
async def test_one_id_finds_a_decision_from_its_tick_to_the_last_pod_that_obeys(monkeypatch, form):
    with ascii_stderr(monkeypatch) as written:
        configure_logs(format=form, level="info")
        stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
        await ticks(stage, 1)
        decided = next(line for line in written().splitlines() if "raise max-num-seqs 16" in line)
        work = json.loads(decided)["work_id"] if form is LogFormat.JSON else decided.split()[3]
        stage.probe.default = agreeing(stage.cap)
        stage.clock.advance(5)
        await stage.reconciler.reconcile(GOLD)
        life = [line for line in written().splitlines() if work in line]
        for said in ("QueueBoundRaiseCap: raise", "apply: ConfigMap gold-pool-limit", "carried out", "on 2 pods"):
            assert any(said in line for line in life), (said, written())
        before = len(written())
        stage.kube.objects[Kind.DEPLOYMENT, "llm", POOL]["spec"]["replicas"] = 1
        await stage.reconciler.reconcile(GOLD)
        assert "scale gold-pool" in written()[before:]
        assert work not in written()[before:]
