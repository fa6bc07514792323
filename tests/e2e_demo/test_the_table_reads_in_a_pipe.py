"""The demo's table where its output is piped or kept in a log."""

import pytest

from e2e.demo.table import Screen
from e2e.demo.timeline import Timeline
from e2e.load.report import LoadReport, TargetRecords


def test_the_columns_are_named_once_above_the_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    report = LoadReport({"gold": TargetRecords()})
    report.start()
    with Screen(Timeline()) as screen:
        screen.show(report)
        screen.show(report)  # within ten seconds: says nothing
    header, line = capsys.readouterr().out.splitlines()
    assert header.endswith("req/s | TTFT P99 | TPOT P99 | burn | replicas | seqs | last decision")
    assert header.index("tier") == line.index("gold")
