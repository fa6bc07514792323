"""What the pages show is so: tiers that plan accepts, fields, values, commands and targets that exist."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests import fast_yaml
from tests.docs.pages import DOCS, PAGES, ROOT, Block, blocks, prose, read, relative
from tierkeeper.api.convert import to_tier
from tierkeeper.cli import COMMANDS, main

#: An abridged tier in a page is a `yaml` block all the same, so it is checked as a whole one.
YAML = blocks("yaml")
CONSOLE = blocks("console")
VALUES = fast_yaml.load(read(ROOT / "charts/tierkeeper/values.yaml"))
FIELDS = set(re.findall(r"^\| `((?:spec|status|metadata)[\w.\[\]]*)` \|", read(DOCS / "api.md"), re.MULTILINE))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", read(ROOT / "Makefile"), re.MULTILINE))
TIERS = [
    pytest.param(document, id=block.name)
    for block in YAML
    for document in fast_yaml.load_all(block.text)
    if isinstance(document, dict) and document.get("kind") == "ServiceTier"
]


def commands(block: Block) -> list[str]:
    """The commands of a block, continued lines joined; comments and, where there is a prompt, outputs left out."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def has_value(path: str) -> bool:
    """Whether the chart has this dotted value; below an empty map anything goes."""
    at: Any = VALUES
    for part in path.split("."):
        if at == {}:
            return True
        if not isinstance(at, dict) or part not in at:
            return False
        at = at[part]
    return True


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.name)
def test_every_yaml_block_is_yaml(block: Block) -> None:
    assert list(fast_yaml.load_all(block.text))


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_in_a_page_is_one(tier: dict[str, Any]) -> None:
    to_tier(tier, strict=True)


def test_there_are_tiers_to_check() -> None:
    assert len(TIERS) >= 8


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_field_that_a_page_names_is_one_of_the_api(page: Path) -> None:
    named = set(re.findall(r"`((?:spec|status)\.[A-Za-z][\w.\[\]]*)", prose(page)))
    pods = {"spec.replicas", "spec.template"}  # of a Deployment
    assert sorted(named - FIELDS - pods) == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_value_that_a_page_names_is_one_of_the_chart(page: Path) -> None:
    named = set(re.findall(r"`((?:image|crds|watch|prometheus|log|serviceAccount)\.\w+)`", prose(page)))
    set_on = re.findall(r"--set '?([\w.]+)=", "".join(b.text for b in CONSOLE if b.page == page))
    assert sorted(path for path in {*named, *set_on} if not has_value(path)) == []


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.name)
def test_every_make_target_and_subcommand_exists(block: Block) -> None:
    strange = []
    for command in commands(block):
        words = shlex.split(command, comments=True)
        if words[0] == "make" and len(words) > 1 and words[1] not in TARGETS:
            strange.append(command)
        if words[0].endswith("/tierkeeper") and words[1] not in COMMANDS:
            strange.append(command)
    assert strange == []


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.name)
def test_every_file_that_a_command_names_is_there(block: Block) -> None:
    named = re.findall(r"(?:^|[\s=@])((?:examples|charts|crds|e2e|docs|bench)/[\w./-]+)", "\n".join(commands(block)))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_plan_of_the_quick_start_prints_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.search(r"\$ \S+tierkeeper plan (\S+) \| head -1\n(.*)\n", read(DOCS / "quick-start.md"))
    assert shown is not None
    monkeypatch.chdir(ROOT)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
        main(["plan", shown[1]])
    assert out.getvalue().splitlines()[0] == shown[2]


def test_the_figures_of_the_comparison_are_those_of_the_scoreboard() -> None:
    section = read(DOCS / "comparison.md").partition("## The scoreboard")[2].partition("\n## ")[0]
    figures = set(re.findall(r"\d+\.\d+|\d of \d", section))
    assert figures
    assert sorted(figure for figure in figures if figure not in read(DOCS / "policy.md")) == []


README_ROWS = {
    "tierkeeper": "tierkeeper",
    "llm-d's SLO-aware law, tuned on other traffic": "llm-d-tuned",
    "HPA on running + waiting, tuned on other traffic": "hpa-tuned",
    "the peak's replicas all the time": "static-peak",
    "oracle: fewest GPU-hours with at most 1 % late": "budget-oracle",
}
"""Who the README's words mean on the scoreboard."""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]


def scored(scenario: str) -> dict[str, str]:
    """Attainment and GPU-hours by policy, as docs/policy.md has them of a scenario."""
    _, _, after = read(DOCS / "policy.md").partition(f"**{scenario}, start-up 120 s**")
    head, _, *rows = [cells(line) for line in after.split("\n\n")[1].splitlines()]
    at, hours = head.index("attainment"), head.index("GPU-hours")
    return {row[0]: f"{row[at].removesuffix(' *')}, {row[hours]}" for row in rows}


def test_the_figures_of_the_readme_are_those_of_the_scoreboard() -> None:
    scores = [scored(name) for name in ("azure-2023", "mooncake", "azure-2024-week", "servegen-week")]
    rows = [cells(line) for line in read(ROOT / "README.md").splitlines() if line.startswith("| ")]
    shown = {row[0]: tuple(row[1:]) for row in rows if row[0] in README_ROWS}
    assert shown == {name: tuple(score[policy] for score in scores) for name, policy in README_ROWS.items()}
