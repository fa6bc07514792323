"""The health script for Argo CD, run by a real Lua over every condition and reason there is."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests import fast_yaml
from tests.gitops.cases import (
    COMBINED,
    Case,
    one_condition_at_a_time,
    told_by_the_operator,
    with_conditions,
)
from tests.gitops.lua import Health, healths

ARGOCD = Path(__file__).parents[2] / "examples/gitops/argocd"
SCRIPT = ARGOCD / "health.lua"
PATCH = fast_yaml.load((ARGOCD / "argocd-cm-patch.yaml").read_text(encoding="utf-8"))
SETTING = "resource.customizations.health.tierkeeper.dev_ServiceTier"


def combined() -> list[Case]:
    return list(COMBINED)


@cache
def judged(told: Callable[[], list[Case]]) -> list[tuple[Case, Health]]:
    """Each case with what the script says of it; there are thousands, so Lua is asked once."""
    cases = told()
    return list(zip(cases, healths(SCRIPT, [case.obj for case in cases]), strict=True))


def wrong(told: Callable[[], list[Case]]) -> list[str]:
    return [
        f"{case.name}: {health.status} ({health.message}), not {case.argocd}"
        for case, health in judged(told)
        if health.status != case.argocd
    ]


def test_every_condition_with_every_reason_has_the_health_it_should() -> None:
    assert wrong(one_condition_at_a_time) == []


def test_conditions_together_and_every_mode_have_the_health_they_should() -> None:
    assert wrong(combined) == []


def test_objects_as_the_operator_writes_them_have_the_health_they_should() -> None:
    assert wrong(told_by_the_operator) == []


def test_nothing_is_healthy_unless_its_present_generation_is_ready() -> None:
    for case, health in judged(one_condition_at_a_time) + judged(combined) + judged(told_by_the_operator):
        if health.status == "Healthy":
            status = case.obj["status"]
            ready = next(c for c in status["conditions"] if c["type"] == "Ready")
            assert (ready["status"], ready["observedGeneration"]) == ("True", case.obj["metadata"]["generation"])


def test_a_ready_condition_of_an_older_generation_is_not_enough() -> None:
    obj = with_conditions({})
    obj["status"]["conditions"][0]["observedGeneration"] = 2
    assert healths(SCRIPT, [obj])[0].status == "Progressing"


def test_the_message_carries_the_reason_and_the_words() -> None:
    stalled = with_conditions({"Stalled": ("True", "InvalidSpec")})
    burning = with_conditions(
        {
            "SLOMet": ("False", "ObjectiveBurning"),
            "ScalingLimited": ("True", "AtMaximum"),
            "Ready": ("True", "ScalingUp"),
        }
    )
    silent = with_conditions({"Stalled": ("True", "ApiRefused")})
    next(c for c in silent["status"]["conditions"] if c["type"] == "Stalled")["message"] = ""
    assert [health.message for health in healths(SCRIPT, [stalled, burning, silent])] == [
        "InvalidSpec: Stalled says so",
        "ScalingUp: Ready says so; ObjectiveBurning: SLOMet says so; AtMaximum: ScalingLimited says so",
        "ApiRefused",
    ]


def test_a_tier_that_nobody_has_looked_at_is_not_healthy() -> None:
    never = with_conditions({})
    del never["status"]
    assert healths(SCRIPT, [never])[0].status == "Progressing"


def test_the_setting_of_argocd_holds_the_same_script() -> None:
    assert PATCH["data"][SETTING] == SCRIPT.read_text(encoding="utf-8")


def test_an_application_is_as_healthy_as_it_says_itself(tmp_path: Path) -> None:
    script = tmp_path / "application.lua"
    script.write_text(PATCH["data"]["resource.customizations.health.argoproj.io_Application"])
    degraded = {"status": {"health": {"status": "Degraded", "message": "a tier is stalled"}}}
    fresh: dict[str, object] = {}
    found = healths(script, [degraded, fresh])
    assert [health.status for health in found] == ["Degraded", "Progressing"]
    assert found[0].message == "a tier is stalled"
