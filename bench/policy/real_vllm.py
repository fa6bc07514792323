"""Real vLLM on this machine's CPU, without a cluster or a container runtime.

The files come out of the image that the end-to-end tests run (``e2e/vllm_cpu``), unpacked once into the artifact cache,
with a larger random model: 16 million parameters, at which a step depends visibly on what is in it. vLLM runs with that
folder as its root, in a mount namespace of its own, so that nothing stays mounted. Root is needed, as for the local
cluster.

The worker that computes is bound to one processor; scheduler, HTTP server, and whoever loads it, share the other.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.artifacts import BuildError, cached, run_logged
from e2e.platform import vllm_cpu_image

MODEL = "/mnt"
HIDDEN, LAYERS = "512", "6"
READY_SECONDS = 300.0
_ENTER = (
    'root=$1; model=$2; shift 2; for here in proc dev sys; do mount --rbind "/$here" "$root/$here" || exit; done;'
    ' mount -t tmpfs tmpfs "$root/tmp" && mount --bind "$model" "$root/mnt" && exec chroot "$root" "$@"'
)
"""Mounts what a process needs, and the model's folder, in the namespace that it is run in."""
_ENVIRONMENT = (
    "HOME=/tmp",
    "PATH=/opt/vllm/bin:/usr/bin:/bin",
    "HF_HUB_OFFLINE=1",
    "VLLM_NO_USAGE_STATS=1",
    "VLLM_HOST_IP=127.0.0.1",
    "GLOO_SOCKET_IFNAME=lo",
)


class ServerError(Exception):
    """vLLM did not start; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server is started with."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int = 4096
    kv_cache_bytes: int = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Server:
    """A running vLLM."""

    url: str
    model: str
    kv_tokens: int
    """Size of its KV cache as it tells on /metrics."""
    version: str


def root() -> Path:
    """The image unpacked; 2.5 GB, a minute the first time. Raises BuildError."""
    image = vllm_cpu_image()

    def build(folder: Path) -> None:
        files = folder / "root"
        files.mkdir()
        for layer in _layers(image):
            pipe = 'tar -xOf "$1" "$2" | tar -x --numeric-owner -C "$3"'
            run_logged(["bash", "-o", "pipefail", "-c", pipe, "bash", image, layer, files], log=folder / "build.log")

    return cached("vllm-cpu-root", [image.parent.name], build, expected_seconds=60) / "root"


def model(files: Path) -> Path:
    """The model's folder, made with what is in the root folder ``files``. Raises BuildError."""
    script = Path(__file__).parents[2] / "e2e/vllm_cpu/make_model.py"

    def build(folder: Path) -> None:
        made = folder / "model"
        made.mkdir()
        (made / script.name).write_bytes(script.read_bytes())
        python = ("/opt/vllm/bin/python", f"{MODEL}/{script.name}", MODEL, HIDDEN, LAYERS)
        run_logged([*_inside(files, made), *python], log=folder / "build.log")
        run_logged(["chmod", "-R", "a+rX", folder], log=folder / "build.log")

    return cached("vllm-cpu-bench-model", [script, HIDDEN, LAYERS], build, expected_seconds=20) / "model"


def _inside(files: Path, made: Path) -> list[str | Path]:
    """Words before a command that make it run with the image as its root and the model in MODEL."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh", files, made]


def _layers(image: Path) -> list[str]:
    """The layers of a docker-archive, the lowest first. None of this image's takes a file of a lower one away."""
    with tarfile.open(image) as archive:
        manifest = archive.extractfile("manifest.json")
        if manifest is None:
            raise BuildError(f"{image}: no manifest.json in it; delete its folder and build the image anew")
        layers: list[str] = json.load(manifest)[0]["Layers"]
    return layers


def processors() -> tuple[int, int]:
    """(engine, everything else). Raises ServerError where there is only one."""
    ours = sorted(os.sched_getaffinity(0))
    if len(ours) < 2:
        raise ServerError(f"only processor {ours[0]} may be used; the engine and its clients need one each")
    return ours[0], ours[1]


@contextmanager
def serve(limits: Limits, *, port: int, log: Path) -> Iterator[Server]:
    """Start vLLM on loopback and end it with the block. Raises BuildError and ServerError."""
    engine, _ = processors()
    files = root()
    command = [
        *_inside(files, model(files)),
        *("setpriv", "--reuid=2000", "--regid=0", "--clear-groups", "/usr/bin/env", "-i", *_ENVIRONMENT),
        *(f"VLLM_CPU_OMP_THREADS_BIND={engine}", *_command(limits, port)),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _until_ready(process, url, log)
        yield running(url, "bench")
    finally:
        _end(process)


def running(url: str, model: str) -> Server:
    """A vLLM that runs already. Raises ServerError where it cannot be asked or does not tell what is needed."""
    try:
        page, version = _get(f"{url}/metrics"), json.loads(_get(f"{url}/version"))["version"]
    except (OSError, ValueError, KeyError) as error:
        raise ServerError(f"{url}: {error}; give the root of a vLLM that is ready") from error
    return Server(url=url, model=model, kv_tokens=kv_tokens(page), version=str(version))


def _command(limits: Limits, port: int) -> Sequence[str]:
    """float32: processors without AVX-512 have no fast bfloat16."""
    return [
        *(
            "vllm",
            "serve",
            MODEL,
            "--dtype",
            "float32",
            "--served-model-name",
            "bench",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ),
        *("--enforce-eager", "--no-enable-prefix-caching", "--kv-cache-memory-bytes", str(limits.kv_cache_bytes)),
        *("--max-num-seqs", str(limits.max_num_seqs), "--max-model-len", str(limits.max_model_len)),
        *("--max-num-batched-tokens", str(limits.max_num_batched_tokens)),
    ]


def kv_tokens(page: str) -> int:
    """``kv_cache_size_tokens`` of vLLM's /metrics page (0.24 and later). Raises ServerError where it is not there."""
    found = re.search(r'vllm:cache_config_info\{[^}]*kv_cache_size_tokens="(\d+)"', page)
    if found is None:
        raise ServerError("vllm:cache_config_info has no kv_cache_size_tokens; vLLM 0.24 or later tells it")
    return int(found.group(1))


def _until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"vLLM ended with {process.returncode}:\n{_tail(log)}")
        try:
            _get(f"{url}/health")
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise ServerError(f"vLLM is not ready after {READY_SECONDS:.0f} s:\n{_tail(log)}")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - loopback
        text: str = answer.read().decode()
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server and the processes it started: they are one group."""
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
