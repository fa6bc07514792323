"""The plugin as pods get it: the rendered ConfigMap on PYTHONPATH, found by its entry point, in separate processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tierkeeper.plugin import plugin_source
from tierkeeper.render.pod import PLUGIN, PLUGIN_FILES
from tierkeeper.render.pool import ENTRY_POINTS, PACKAGE_METADATA

FAKE_VLLM = Path(__file__).with_name("fake_vllm")

SERVER = """
import importlib.metadata, multiprocessing, os, sys

def load_plugins():
    for entry in importlib.metadata.entry_points(group="vllm.general_plugins"):
        entry.load()()

def engine(steps):
    load_plugins()
    from vllm.v1.core.sched.scheduler import Scheduler
    scheduler = Scheduler(max_num_seqs=64, max_num_batched_tokens=2048)
    for _ in range(steps):
        scheduler.schedule()
    print("SET", scheduler.max_num_running_reqs, getattr(scheduler, "max_num_active_reqs", None),
          scheduler.max_num_scheduled_tokens, flush=True)
    os.read(held[0], 1)

load_plugins()
held = os.pipe()
child = multiprocessing.get_context("fork").Process(target=engine, args=(int(sys.argv[1]),))
child.start()
sys.stdin.readline()
from prometheus_client import CollectorRegistry, REGISTRY, generate_latest, multiprocess
registry = REGISTRY
if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # as vLLM builds it for several API servers
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
print(generate_latest(registry).decode(), flush=True)
os.write(held[1], b"x")
child.join()
"""


@pytest.fixture
def pod(tmp_path):
    """The plugin's folder and the limits as the kubelet lays them out."""
    data = {f"{PLUGIN}.py": plugin_source(), "METADATA": PACKAGE_METADATA, "entry_points.txt": ENTRY_POINTS}
    for key, path in PLUGIN_FILES.items():
        target = tmp_path / "plugin" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(data[key], encoding="utf-8")
    limit = tmp_path / "limit"
    limit.mkdir()
    (limit / "max-num-seqs").write_text("16")
    (limit / "max-num-batched-tokens").write_text("512")
    (tmp_path / "server.py").write_text(SERVER)
    return tmp_path


def serve(pod: Path, *, version: str = "0.32.0", steps: int = 1, **extra: str) -> tuple[str, dict[str, float]]:
    """Run an API server with one engine core; what the engine set, and the samples on the metrics page."""
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{pod / 'plugin'}:{FAKE_VLLM}",
        "TMPDIR": str(pod),
        "TIERKEEPER_LIMIT_DIR": str(pod / "limit"),
        "FAKE_VLLM_VERSION": version,
        **extra,
    }
    command = [sys.executable, str(pod / "server.py"), str(steps)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        settings = process.stdout.readline().strip()
        process.stdin.write("scrape\n")
        process.stdin.close()
        page = process.stdout.read()
    assert process.returncode == 0
    samples = {s.name: s.value for family in text_string_to_metric_families(page) for s in family.samples}
    return settings, {name: value for name, value in samples.items() if name.startswith("tierkeeper_")}


@pytest.mark.parametrize(
    ("version", "settings"),
    [
        ("0.18.0", "SET 16 None 512"),
        ("0.27.1", "SET 16 None 512"),
        ("0.31.0", "SET 64 16 512"),
        ("0.33.0", "SET 64 16 512"),
    ],
)
def test_each_release_gets_the_attribute_that_it_reads(pod, version, settings):
    assert serve(pod, version=version)[0] == settings


def test_what_the_engine_process_applies_is_on_the_api_servers_page(pod):
    _, samples = serve(pod)
    assert samples == {
        "tierkeeper_live_limit_supported": 1,
        "tierkeeper_max_num_seqs_seen": 16,
        "tierkeeper_max_num_seqs_applied": 16,
        "tierkeeper_max_num_batched_tokens_seen": 512,
        "tierkeeper_max_num_batched_tokens_applied": 512,
    }


def test_with_several_api_servers_the_page_has_the_gauges_too(pod):
    (pod / "prometheus").mkdir()
    _, samples = serve(pod, PROMETHEUS_MULTIPROC_DIR=str(pod / "prometheus"))
    assert samples["tierkeeper_max_num_seqs_applied"] == 16


def test_an_idle_engine_shows_that_its_pod_has_seen_the_limit(pod):
    _, samples = serve(pod, steps=0)
    assert samples["tierkeeper_max_num_seqs_seen"] == 16
    assert "tierkeeper_max_num_seqs_applied" not in samples


@pytest.mark.parametrize("version", ["0.17.2", "0.34.0", "1.0.0", "0.1.dev7+g0"])
def test_an_unknown_release_is_left_alone_and_says_so(pod, version):
    settings, samples = serve(pod, version=version, steps=0)
    assert settings.endswith("2048")
    assert samples["tierkeeper_live_limit_supported"] == 0
    assert "tierkeeper_max_num_seqs_applied" not in samples
