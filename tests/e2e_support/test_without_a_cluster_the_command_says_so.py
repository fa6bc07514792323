"""`python -m e2e.cluster kubectl` where nothing is up: one line that says what to do, before anything is built."""

from pathlib import Path

import pytest

from e2e.cluster.cli import main


def test_kubectl_without_a_cluster_names_the_command_that_starts_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIERKEEPER_CLUSTER_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("TIERKEEPER_E2E_EXISTING", raising=False)
    assert main(["kubectl", "get", "pods"]) == 1
    assert capsys.readouterr().err == "error: no cluster is up: python -m e2e.cluster up\n"
