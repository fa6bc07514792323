"""The demo is a test: its own checks decide."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_demo_holds_its_own_checks(platform: Cluster) -> None:
    done = subprocess.run([sys.executable, "-m", "e2e.demo"], cwd=ROOT, check=False)
    checks = json.loads((ROOT / "build/demo/summary.json").read_text())["checks"]
    assert {name: check["value"] for name, check in checks.items() if not check["ok"]} == {}
    assert done.returncode == 0
    assert (ROOT / "build/demo/timeline.svg").stat().st_size > 10_000
