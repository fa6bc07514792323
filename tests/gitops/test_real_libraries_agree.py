"""What Flux, Helm and Argo CD think of a tier, by the libraries that they use themselves (built from Go modules)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e import tools
from tests import fast_yaml
from tests.gitops.cases import Case, every_case

pytestmark = [pytest.mark.built, pytest.mark.timeout(600)]

GITOPS = Path(__file__).parents[2] / "examples/gitops"
EXPRESSIONS = fast_yaml.load((GITOPS / "flux/tiers-health-patch.yaml").read_text(encoding="utf-8"))["spec"][
    "healthCheckExprs"
]
BY_ARGOCD = {"Healthy": "Current", "Suspended": "Current", "Degraded": "Failed", "Progressing": "InProgress"}


@pytest.fixture(scope="module")
def judged() -> list[tuple[Case, dict[str, Any]]]:
    """Each case with what the libraries say of it."""
    cases = every_case()
    (exprs,) = EXPRESSIONS
    question = {
        "lua": (GITOPS / "argocd/health.lua").read_text(encoding="utf-8"),
        "cel": {field: exprs[field] for field in ("inProgress", "failed", "current")},
        "objects": [case.obj for case in cases],
    }
    done = subprocess.run([tools.judge()], input=json.dumps(question), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(zip(cases, json.loads(done.stdout), strict=True))


def test_kstatus_sees_every_tier_as_it_should(judged: list[tuple[Case, dict[str, Any]]]) -> None:
    wrong = [f"{case.name}: {said}, not {case.kstatus}" for case, said in judged if said["kstatus"] != case.kstatus]
    assert wrong == []


def test_argocd_s_own_interpreter_says_what_lua_says(judged: list[tuple[Case, dict[str, Any]]]) -> None:
    assert [f"{case.name}: {said}" for case, said in judged if said["argocd"] != case.argocd] == []


def test_the_expressions_for_flux_agree_with_the_script_for_argocd(judged: list[tuple[Case, dict[str, Any]]]) -> None:
    wrong = [f"{case.name}: {said}" for case, said in judged if said["flux"] != BY_ARGOCD[case.argocd]]
    assert wrong == []


def test_kstatus_never_calls_failed_or_moving_what_argocd_calls_healthy(
    judged: list[tuple[Case, dict[str, Any]]],
) -> None:
    assert {said["kstatus"] for case, said in judged if case.argocd == "Healthy"} == {"Current"}
    assert {case.argocd for case, said in judged if said["kstatus"] == "Failed"} == {"Degraded"}
