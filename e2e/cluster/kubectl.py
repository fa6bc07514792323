"""kubectl as a function."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

KubectlCall = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Calls kubectl with one kubeconfig."""

    binary: Path
    kubeconfig: Path

    def __call__(self, *arguments: str, input: str | None = None, timeout: float = 300) -> str:  # noqa: A002 - subprocess calls it so
        """Run kubectl and return what it prints; `input` is its stdin (for `apply -f -`). Raises ClusterError with
        what it says on stderr."""
        command = [str(self.binary), f"--kubeconfig={self.kubeconfig}", *arguments]
        try:
            done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"`kubectl {' '.join(arguments)}` took longer than {timeout:.0f} s") from error
        if done.returncode != 0:
            raise ClusterError(f"`kubectl {' '.join(arguments)}` failed: {done.stderr.strip()}")
        return done.stdout
