"""A Prometheus server on loopback for the length of a test."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READY_SECONDS = 60


@contextmanager
def serving(binary: Path, folder: Path, configuration: str, *options: str) -> Iterator[str]:
    """Run a Prometheus with its data in ``folder``; gives its URL once it is ready.

    Raises RuntimeError with the end of its log where it is not ready within a minute.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    config, log = folder / "prometheus.yml", folder / "prometheus.log"
    config.write_text(configuration)
    command = [
        str(binary),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        *options,
    ]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, cwd=folder) as server:
        try:
            _wait_ready(url, server, log)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"Prometheus was not ready within {READY_SECONDS} s:\n{log.read_text()[-2000:]}")
