"""``tierkeeper simulate`` overwrites nothing that it reads, and knows before the run whether it can write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tierkeeper.cli import main

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{at},800,20\n" for at in range(60))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text(TRACE)
    Path("gold.yaml").write_text("a tier")
    Path("mine.yaml").write_text("a profile")
    os.link("trace.csv", "linked.csv")
    Path("soft.yaml").symlink_to("gold.yaml")
    Path("sub").mkdir()
    return tmp_path


def simulate(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--trace", "trace.csv", "--format", "azure", *arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--report", "trace.csv"], "--report trace.csv is what --trace names, and would be overwritten"),
        (["--json", "sub/../trace.csv"], "--json sub/../trace.csv is what --trace names"),
        (["--json", "linked.csv"], "--json linked.csv is what --trace names"),
        (["--tier", "gold.yaml", "--report", "soft.yaml"], "--report soft.yaml is what --tier names"),
        (["--profile", "mine.yaml", "--json", "mine.yaml"], "--json mine.yaml is what --profile names"),
        (["--json", "same", "--report", "./same"], "--report ./same is what --json names"),
        (["--json", "-"], "--json -: standard output has the table; give a file"),
        (["--report", "nofolder/x.html"], "the folder nofolder does not exist; create it or give another"),
        (["--report", "sub"], "--report sub: cannot be written: Is a directory; give another path"),
        (["--json", "/dev/full"], "--json /dev/full: cannot be written: No space left on device"),
        (["--json", "/proc/x.json"], "--json /proc/x.json: cannot be written"),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    before = {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}
    assert simulate(*arguments) == 2
    out, error = capsys.readouterr()
    assert said in error
    assert len(error.splitlines()) == 1
    assert out == ""
    assert {file.name: file.read_text() for file in folder.iterdir() if file.is_file()} == before


def test_an_output_of_an_earlier_run_is_replaced(folder: Path) -> None:
    (folder / "run.json").write_text("old")
    assert simulate("--json", "run.json") == 0
    assert (folder / "run.json").read_text().startswith('{"runs":')


def test_a_run_that_cannot_begin_leaves_no_empty_file(folder: Path) -> None:
    assert simulate("--json", "run.json", "--profile", "900b") == 1
    assert not (folder / "run.json").exists()
