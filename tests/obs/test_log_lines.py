"""A log line says which tier and which reconcile it belongs to, in any locale."""

import contextlib
import io
import json
import logging
import sys

import pytest

from tierkeeper.obs.logs import configure_logs, working
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
