"""The store of results: the same content is not run again, anything else is."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from bench.policy import cache, jobs
from bench.policy.faults import FAULTS, Fault
from bench.policy.jobs import Job
from bench.policy.policies import Kind, entries, peer_entry
from bench.policy.runner import Runner
from tests.bench import small

HPA = peer_entry("hpa", {}, called="hpa", about="")


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FOLDER", tmp_path)


def test_a_result_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def traffic(name: str, *_: object) -> object:
        built.append(name)
        return small.scenario()

    monkeypatch.setattr(jobs, "traffic", traffic)
    job = Job("small", HPA)
    first, again = Runner()([job]), Runner()([job])
    assert first == again
    assert built == ["small"]


@pytest.mark.parametrize(
    "other",
    [
        {"scenario": "other"},
        {"startup_seconds": 30.0},
        {"seed": 1},
        {"fault": FAULTS["lost-10"]},
        {"entry": peer_entry("hpa", {"utilization": 0.5}, called="hpa", about="")},
    ],
)
def test_whatever_could_change_a_result_changes_its_name(other: dict[str, object]) -> None:
    job = Job("small", HPA)
    assert dataclasses.replace(job, **other).key != job.key  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS.values() if fault.ours_alone], ids=lambda fault: fault.name
)
def test_a_wrong_profile_or_a_restart_makes_another_run_of_ours_and_of_no_peer(fault: Fault) -> None:
    ours = entries()[0]
    assert Job("small", ours, fault=fault).key != Job("small", ours).key
    assert Job("small", HPA, fault=fault).key == Job("small", HPA).key


def test_a_peer_that_is_tuned_to_its_published_settings_is_the_same_peer() -> None:
    assert Job("small", HPA).key == Job("small", peer_entry("hpa", {"utilization": 0.8}, called="x", about="y")).key


def test_a_change_of_our_law_reruns_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> tuple[str, str]:
        cache.code.cache_clear()
        return cache.code(Kind.OURS), cache.code(Kind.PEER)

    law = tmp_path / "tierkeeper" / "scaling" / "decide.py"
    law.parent.mkdir(parents=True)
    monkeypatch.setattr(cache, "ROOT", tmp_path / "tierkeeper")
    law.write_text("a = 1")
    ours, peers = keys()
    law.write_text("a = 2")
    assert keys()[0] != ours
    assert keys()[1] == peers
    cache.code.cache_clear()


def test_two_processes_play_ours_a_part_of_it_and_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "traffic", lambda *_: small.scenario())  # the other processes are forks of this one
    ours, part = (next(one for one in entries() if one.name == name) for name in ("tierkeeper", "no-forecast"))
    wanted = [Job(scenario, entry) for scenario in ("one", "two") for entry in (ours, part, HPA)]
    rows = Runner(workers=2)(wanted)
    assert [row["requests"] for row in rows] == [len(small.tier().requests)] * len(wanted)
    assert rows == [jobs.done(job) for job in wanted]


def test_a_run_that_fails_ends_those_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def do(job: Job) -> object:
        return time.sleep(300.0) if job.scenario == "one" else {}["nothing"]

    monkeypatch.setattr(jobs, "do", do)
    began = time.monotonic()
    with pytest.raises(KeyError):
        Runner(workers=2)([Job("one", HPA), Job("two", HPA)])
    assert time.monotonic() - began < 60.0


def test_half_a_file_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"attainment": 0.')
    assert cache.load("x") is None


def test_all_names_on_the_scoreboard_differ() -> None:
    names = [entry.name for entry in entries()]
    assert len(set(names)) == len(names)
