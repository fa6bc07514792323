"""The commands, as a person calls them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import fast_yaml
from tierkeeper.api.crd import crd
from tierkeeper.api.reference import reference
from tierkeeper.cli import main
from tierkeeper.settings import Settings

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def broken_gold(folder: Path, **changes: Any) -> Path:
    tier = fast_yaml.load((ROOT / "examples/gold.yaml").read_text())
    tier["spec"] |= changes
    file = folder / "gold.yaml"
    file.write_text(yaml.safe_dump(tier))
    return file


def test_crd_prints_the_crd(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("crd") == 0
    assert fast_yaml.load(capsys.readouterr().out) == crd()


def test_crd_docs_prints_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("crd", "--docs") == 0
    assert capsys.readouterr().out == reference()


def test_plan_prints_the_objects_of_every_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", *map(str, EXAMPLES)) == 0
    objects = list(fast_yaml.load_all(capsys.readouterr().out))
    deployments = [one["metadata"]["name"] for one in objects if one["kind"] == "Deployment"]
    assert deployments == ["batch-pool", "gold-pool", "platinum-pool", "standard-pool"]
    assert len(objects) == 4 * 5


def test_plan_shows_the_plugin_s_source_only_when_asked_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    gold = str(ROOT / "examples/gold.yaml")
    assert call("plan", gold) == 0
    short = capsys.readouterr().out
    assert call("plan", "--full", gold) == 0
    full = capsys.readouterr().out
    assert "def register" in full
    assert "def register" not in short
    assert "lines, shown with --full" in short
    assert [one["kind"] for one in fast_yaml.load_all(short)] == [one["kind"] for one in fast_yaml.load_all(full)]


def test_plan_reads_what_kubectl_get_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiers = [fast_yaml.load(path.read_text()) for path in EXAMPLES if path.name != "00-namespace.yaml"]
    file = tmp_path / "tiers.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": tiers}))
    assert call("plan", str(file)) == 0
    assert capsys.readouterr().out.count("kind: Deployment") == 4


def test_plan_warns_of_a_tier_to_degrade_to_that_is_not_among_those_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = broken_gold(tmp_path, overflow={"policy": "Degrade", "degradeTo": "bronze"})
    assert call("plan", str(file), str(ROOT / "examples/standard.yaml")) == 0
    assert capsys.readouterr().err == (
        "warning: llm/gold: spec.overflow.degradeTo: no such tier is given: name one of standard (found bronze)\n"
    )
    assert call("plan", str(file)) == 0  # of one tier alone it cannot tell
    assert capsys.readouterr().err == ""


def test_plan_reads_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO((ROOT / "examples/gold.yaml").read_text()))
    assert call("plan", "-") == 0
    assert "llm/gold: starts with 1 replica at max-num-seqs 64, token budget 2048" in capsys.readouterr().out


def test_plan_says_when_limits_cannot_be_changed_live(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = broken_gold(tmp_path, engine={"image": "own/engine:7", "maxNumSeqs": 64})
    assert call("plan", str(file)) == 0
    assert "set spec.engine.version" in capsys.readouterr().out.splitlines()[0]


def test_plan_lists_every_problem_and_prints_no_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = broken_gold(tmp_path, prioritys=1, rollout={"maxSurge": 0, "maxUnavailable": 0})
    assert call("plan", str(file), str(ROOT / "examples/batch.yaml")) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"{file}: spec.rollout: with maxSurge and maxUnavailable both 0 no pod can ever be replaced: "
        "set one of them to at least 1 (found both 0)",
        f"{file}: spec.prioritys: no such field: did you mean priority? (found 1)",
    ]


def test_plan_finds_in_one_run_what_is_wrong_at_every_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = broken_gold(
        tmp_path,
        engine={"image": "vllm/vllm-openai:v0.32.0", "maxNumSeqs": 500, "extraArgs": ["--port", "1"]},
        scaling={"mode": "Automatic", "replicas": {"min": 4, "max": 1}, "maxNumSeqs": {"min": 8, "max": 128}},
        overflow={"policy": "Degrade"},
        priority="high",
    )
    file.write_text(file.read_text().replace("name: gold", "name: 1-gold"))
    assert call("plan", str(file)) == 1
    complaints = capsys.readouterr().err.splitlines()
    assert sorted(line.removeprefix(f"{file}: ").split(": ")[0] for line in complaints) == [
        "metadata.name",
        "spec.engine.extraArgs",
        "spec.engine.maxNumSeqs",
        "spec.overflow",
        "spec.priority",
        "spec.scaling.mode",
        "spec.scaling.replicas",
    ]


def test_plan_says_nothing_of_a_rule_whose_figures_it_could_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds = {"replicas": {"min": "one", "max": 1}, "maxNumSeqs": {"min": 128, "max": 8}}
    file = broken_gold(tmp_path, scaling=bounds)
    assert call("plan", str(file)) == 1
    complaints = capsys.readouterr().err.splitlines()
    assert [line.removeprefix(f"{file}: ").split(": ")[0] for line in complaints] == [
        "spec.scaling.replicas.min",
        "spec.scaling.maxNumSeqs",
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a: [", "is no YAML"),
        ("kind: Namespace", "no ServiceTier in"),
        ("", "no ServiceTier in"),
        ("{kind: ServiceTier}", "metadata.name: a tier needs a name: set it (found null)"),
    ],
)
def test_plan_refuses_what_is_no_tier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, complaint: str
) -> None:
    file = tmp_path / "tier.yaml"
    file.write_text(content)
    assert call("plan", str(file)) == 1
    assert complaint in capsys.readouterr().err


LOOP = "kind: List\nitems:\n- &a\n  kind: List\n  items: [*a]\n"


@pytest.mark.parametrize(
    "text",
    [
        "a: 2024-13-01",
        "a: 0x_",
        "a: " + "9" * 5000,
        "a: " + "[" * 1000,
        "a: " + "{a: " * 1000,
        'a: "\x00"',
        "\ta: 1",
        LOOP,
    ],
    ids=[
        "no date",
        "no number",
        "huge number",
        "deep list",
        "deep map",
        "control character",
        "tab",
        "a list of itself",
    ],
)
def test_plan_names_a_file_that_cannot_be_read_as_yaml(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text, encoding="utf-8")
    assert call("plan", str(file)) == 1
    assert "odd.yaml: is " in capsys.readouterr().err


def test_plan_names_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", str(tmp_path / "absent.yaml")) == 1
    assert "absent.yaml: cannot be read: No such file or directory; correct the path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("WORKERS", "0", "TIERKEEPER_WORKERS: Input should be greater than or equal to 1 (found '0')"),
        ("TICK_SECONDS", "inf", "TIERKEEPER_TICK_SECONDS: Input should be a finite number (found 'inf')"),
        ("LOG_LEVEL", "loud", "TIERKEEPER_LOG_LEVEL: Input should be 'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
        ("PROMETHEUS_URL", "prometheus:9090", "TIERKEEPER_PROMETHEUS_URL: Value error, must be the base URL"),
        ("PROMETHEUS_URL", "http://prometheus:99999", "TIERKEEPER_PROMETHEUS_URL: Value error, must be the base URL"),
        ("PROMETHEUS_URL", "http://[::1", "TIERKEEPER_PROMETHEUS_URL: Value error, must be the base URL"),
        ("TIER_LABEL", "tierkeeper.dev/tier", "tier_label ('tierkeeper.dev/tier') is not a Prometheus label name"),
        ("POD_LABEL", "tier", "must be three different labels"),
        ("WATCH_NAMESPACES", "llm, chat-*", "TIERKEEPER_WATCH_NAMESPACES: Value error, 'chat-*' is no namespace"),
        ("WATCH_NAMESPACES", "!llm", "'!llm' is no namespace: give whole names separated by commas"),
        ("LEASE", "tierkeeper", "TIERKEEPER_LEASE: String should match pattern"),
        ("LEASE_RENEW_DEADLINE_SECONDS", "13", "must be at most 4/5 of lease_duration_seconds (15)"),
        ("LEASE_RETRY_SECONDS", "6", "must be at most half of lease_renew_deadline_seconds (10)"),
    ],
)
def test_run_refuses_wrong_settings_by_name(
    name: str, value: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TIERKEEPER_{name}", value)
    assert call("run") == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TICK_SECONDS", "3"),
        ("PROMETHEUS_URL", "ftp://me:s3cret@prometheus:9090"),
        ("PROMETHEUS_URL", "http://me:s3cret@prometheus:99999"),
    ],
)
def test_o01_run_repeats_no_password_of_settings_that_it_refuses(
    name: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERKEEPER_PROMETHEUS_URL", "http://me:s3cret@prometheus:9090")
    monkeypatch.setenv(f"TIERKEEPER_{name}", value)
    assert call("run") == 2
    said = capsys.readouterr().err
    assert said.startswith("tierkeeper: TIERKEEPER")
    assert "s3cret" not in said


def test_the_log_level_is_taken_in_any_case_of_letters() -> None:
    assert Settings(log_level="debug").log_level == "DEBUG"  # type: ignore[arg-type]


def test_examples_are_the_four_tiers_of_one_namespace() -> None:
    objects = [fast_yaml.load(path.read_text()) for path in EXAMPLES]
    assert [one["metadata"]["name"] for one in objects] == ["llm", "batch", "gold", "platinum", "standard"]
    assert {one["metadata"]["namespace"] for one in objects[1:]} == {"llm"}


def test_kustomization_names_every_example() -> None:
    kustomization = fast_yaml.load((ROOT / "examples/Kustomization").read_text())
    assert sorted(kustomization["resources"]) == [path.name for path in EXAMPLES]
