"""Things that are slow to build, built once and kept by content.

An artifact lives in `<cache>/<name>-<sha256[:16]>/`, where the hash covers everything it is built from; the cache
folder is `$TIERKEEPER_CACHE`, else `$XDG_CACHE_HOME/tierkeeper`, else `~/.cache/tierkeeper`. Changing an input makes
a new folder, so a cached artifact is never stale, and deleting the cache only costs time.
Of each name the three used last are kept.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

Input = bytes | str | Path

# Artifacts kept of one name: enough to go back and forth between two branches without building again.
_KEPT = 3


# Nobody debugs these programs: without DWARF the compiler has a tenth less to do.
GO_NO_DEBUG = "-gcflags=all=-dwarf=false"


class BuildError(Exception):
    """An artifact could not be built; the message holds the command and the end of its output."""


def cache_dir() -> Path:
    """The folder all artifacts live in; it is created if it is not there."""
    chosen = os.environ.get("TIERKEEPER_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(chosen) if chosen else Path(base) / "tierkeeper"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def say(text: str) -> None:
    """Write one progress line to stderr, so that stdout stays the answer of a command."""
    print(text, file=sys.stderr, flush=True)


def content_key(inputs: Iterable[Input]) -> str:
    """Hash the inputs, in order: 16 hexadecimal digits.

    A folder counts with its files' relative names, contents and executable bits (`__pycache__` aside); a file with
    its contents alone, so that the same artifact has the same key wherever the repository lies. Every part is
    preceded by its length: ("ab", "c") and ("a", "bc") differ. Raises FileNotFoundError for a path that does not
    exist.
    """
    digest = hashlib.sha256()
    for part in inputs:
        for kind, data in _parts(part):
            digest.update(f"{kind}:{len(data)}:".encode())
            digest.update(data)
    return digest.hexdigest()[:16]


def _parts(part: Input) -> Iterator[tuple[str, bytes]]:
    if isinstance(part, str):
        yield "text", part.encode()
    elif isinstance(part, bytes):
        yield "bytes", part
    elif part.is_dir():
        for path in sorted(p for p in part.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            mode = "x" if os.access(path, os.X_OK) else "-"
            yield "name", f"{mode} {path.relative_to(part).as_posix()}".encode()
            yield "file", path.read_bytes()
        yield "end", b""
    else:
        yield "file", part.read_bytes()


def cached(
    name: str, inputs: Iterable[Input], build: Callable[[Path], None], *, expected_seconds: int | None = None
) -> Path:
    """Return the folder of the artifact `name` for these inputs, building it first where it is missing.

    `build` fills the empty folder it is given; that folder is renamed into place only when `build` returns, so an
    interrupted build leaves nothing that looks finished (and nothing built may remember the path it was built at).
    Two processes that want the same artifact build it once: the second waits. `expected_seconds` is told to the
    person who waits. Whatever `build` raises goes through.
    """
    key = content_key(inputs)
    final = cache_dir() / f"{name}-{key}"
    if final.is_dir():
        final.touch()
        return final
    with locked(f"{name}-{key}", waiting_for=f"another process that builds {name}"):
        if final.is_dir():
            return final
        partial = cache_dir() / f".building-{name}-{key}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        usual = f", ~{expected_seconds} s" if expected_seconds else ""
        say(f"building {name} (first time{usual}) ...")
        started = time.monotonic()
        try:
            build(partial)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        partial.rename(final)
        say(f"built {name} in {time.monotonic() - started:.0f} s")
        _forget_old(name)
    return final


def _forget_old(name: str) -> None:
    """Keep the few artifacts of a name that were used last: images of gigabytes would else fill the disk."""
    pattern = re.compile(re.escape(name) + "-[0-9a-f]{16}")
    found = [path for path in cache_dir().iterdir() if pattern.fullmatch(path.name)]
    for path in sorted(found, key=lambda p: p.stat().st_mtime, reverse=True)[_KEPT:]:
        shutil.rmtree(path)


@contextmanager
def locked(name: str, *, waiting_for: str) -> Iterator[None]:
    """Hold an inter-process lock; says once what it waits for. The kernel drops it when the process ends, however it
    ends."""
    folder = cache_dir() / ".locks"
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for {waiting_for} ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_logged(
    command: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    tail: int = 30,
) -> None:
    """Run a command with its output in `log`; `env` is added to the environment. Raises BuildError with the log's
    last lines."""
    with log.open("ab") as output:
        try:
            code = subprocess.run(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            ).returncode
        except FileNotFoundError as error:
            raise BuildError(
                f"{command[0]}: not found; `make setup` as root installs what the end-to-end tests need"
            ) from error
    if code != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-tail:])
        raise BuildError(f"`{' '.join(map(str, command))}` ended with exit code {code}:\n{end}")


def go_binary(
    name: str,
    module_dir: Path,
    package: str = ".",
    *,
    links: Sequence[str] = (),
    ldflags: str = "",
    expected_seconds: int | None = None,
) -> Path:
    """Build one Go command from a pinned module and return the binary's path, `<artifact>/<name>`.

    `module_dir` holds go.mod and go.sum (and the sources, for package "."); `package` may be any command of a
    required module, such as "helm.sh/helm/v4/cmd/helm". `links` are further names beside the binary that point to it.
    The result is static and without paths of this machine, so it runs in an empty image too; the machine's own
    GOPROXY and GOFLAGS are honoured. Raises BuildError.
    """
    sources = sorted(
        path for path in module_dir.rglob("*") if path.suffix in {".go", ".mod", ".sum"} and path.is_file()
    )
    inputs: list[Input] = [package, ldflags, " ".join(links), GO_NO_DEBUG, go_version()]
    for source in sources:
        inputs += [source.relative_to(module_dir).as_posix(), source]

    def build(folder: Path) -> None:
        command: list[str | Path] = ["nice", "-n", "5", "go", "build", "-mod=readonly", "-trimpath", GO_NO_DEBUG]
        command += [f"-ldflags={f'-s -w {ldflags}'.strip()}", "-o", folder / name, package]
        run_logged(command, log=folder / "build.log", cwd=module_dir, env={"CGO_ENABLED": "0", "GOWORK": "off"})
        for link in links:
            (folder / link).symlink_to(name)

    return cached(name, inputs, build, expected_seconds=expected_seconds) / name


def go_version() -> str:
    """The Go release on PATH, which everything built with it depends on. Raises BuildError where there is none."""
    try:
        return subprocess.check_output(["go", "env", "GOVERSION"], text=True, cwd="/").strip()
    except FileNotFoundError as error:
        raise BuildError(
            "go: not found; the end-to-end tests build Kubernetes from Go modules and need Go 1.26 on PATH"
        ) from error
