"""Container images without Docker: a Debian base from debootstrap, Dockerfiles through buildah, and single binaries
packed by hand.

Every image is a cached docker-archive tar; `python -m e2e.cluster load TAR...` brings it into the cluster.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from e2e.artifacts import Input, cache_dir, cached, locked, run_logged

BASE_TAG = "localhost/tierkeeper/base:bookworm"
BASE_PACKAGES = ("python3", "ca-certificates", "libnuma1", "util-linux")


def archive_name(folder: Path) -> Path:
    """Where an image artifact keeps its tar."""
    return folder / "image.tar"


def debian_mirror(sources: str) -> str | None:
    """The Debian mirror that this machine's apt uses, from the text of its sources (one-line or deb822); None where
    they name none."""
    for line in sources.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        urls = [word for word in words[1:] if word.startswith(("http://", "https://"))]
        if words[0] in {"deb", "URIs:"} and urls and urls[0].rstrip("/").endswith("/debian"):
            return urls[0].rstrip("/")
    return None


def base_image() -> Path:
    """The base of the images built here, `localhost/tierkeeper/base:bookworm`: minimal Debian with python3 and
    libnuma1, ~275 MB. Returns its tar. Raises BuildError."""
    mirror = debian_mirror(_apt_sources())
    where = [] if mirror is None else [mirror]  # debootstrap knows one of its own

    def build(folder: Path) -> None:
        root = folder / "rootfs"
        log = folder / "build.log"
        include = ",".join(BASE_PACKAGES)
        run_logged(["debootstrap", "--variant=minbase", f"--include={include}", "bookworm", root, *where], log=log)
        for useless in (
            "var/cache/apt/archives",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
        ):
            subprocess.run(["find", root / useless, "-mindepth", "1", "-delete"], check=False)
        _pack(
            archive_name(folder),
            tag=BASE_TAG,
            layer=_layer_of_folder(folder, root),
            config={"Cmd": ["bash"], "Env": [_PATH]},
        )
        subprocess.run(["rm", "-rf", "--one-file-system", root, folder / "layer.tar"], check=True)

    return archive_name(cached("image-base", [*where, *BASE_PACKAGES, "1"], build, expected_seconds=70))


def _offer(tag: str, archive: Path) -> None:
    """Make sure that buildah knows an image under its tag, so that a Dockerfile may say FROM it."""
    marker = archive.with_name("in-buildah")
    # By digest: another state of the sources may have given the tag to another image since.
    if not marker.exists() or marker.read_text() != _local_digest(tag):
        _buildah("pull", "--quiet", f"docker-archive:{archive}", log=cache_dir() / "buildah.log")
        marker.write_text(_local_digest(tag) or "")


def build_image(
    tag: str,
    context: Path,
    dockerfile: Path,
    build_args: Mapping[str, str] | None = None,
    inputs: Iterable[Input] | None = None,
    *,
    target: str | None = None,
    parents: Mapping[str, Path] | None = None,
) -> Path:
    """Build a Dockerfile with buildah and return the image's tar.

    The key covers the tag, the Dockerfile, the build arguments, the base image, `parents` (more images that the
    Dockerfile builds on: tag -> tar) and `inputs`, which is what the Dockerfile copies from the context (default: the
    whole context). `target` ends the build at that stage. buildah runs without a daemon and without its own
    network (RUN steps use the machine's), in a storage of its own inside the cache, so no other tool's images are
    touched. Raises BuildError.
    """
    needed = {BASE_TAG: base_image(), **(parents or {})}
    arguments = dict(sorted((build_args or {}).items()))
    key: list[Input] = [tag, dockerfile, json.dumps(arguments), *(each.parent.name for each in needed.values())]
    key += [context] if inputs is None else inputs

    def build(folder: Path) -> None:
        flags = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        flags += ["--isolation=chroot", "--pull-never", "--layers=false", "--tag", tag]
        flags += [] if target is None else ["--target", target]
        log = folder / "build.log"
        with locked("buildah", waiting_for="another image build"):
            for parent, archive in needed.items():
                _offer(parent, archive)
            _buildah("bud", *flags, "--file", dockerfile, context, log=log)
            _buildah("push", "--quiet", tag, f"docker-archive:{archive_name(folder)}:{tag}", log=log)
            _buildah("rmi", "--force", tag, log=log)

    short = tag.rsplit("/", 1)[-1].replace(":", "-")
    return archive_name(cached(f"image-{short}", key, build))


def binary_image(tag: str, files: Mapping[str, Path], entrypoint: Sequence[str], *, user: str = "65532:65532") -> Path:
    """An image that holds nothing but the given static files (path in the image -> path here) and returns its tar;
    needs no buildah.

    The certificate bundle of this machine comes along, since a Go program without one cannot speak TLS to anything
    public.
    """
    described: list[Input] = [tag, user, *entrypoint]
    contents = {**files, **_certificates()}
    for target, source in sorted(contents.items()):
        described += [target, source]

    def build(folder: Path) -> None:
        layer = folder / "layer.tar"
        with tarfile.open(layer, "w") as tar:
            for target, source in sorted(contents.items()):
                _add_file(tar, target.lstrip("/"), source)
        _pack(
            archive_name(folder),
            tag=tag,
            layer=layer,
            config={"Entrypoint": list(entrypoint), "User": user, "Env": [_PATH]},
        )
        layer.unlink()

    return archive_name(cached(f"image-{tag.rsplit('/', 1)[-1].replace(':', '-')}", described, build))


_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _certificates() -> dict[str, Path]:
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    return {"etc/ssl/certs/ca-certificates.crt": bundle} if bundle.exists() else {}


def _add_file(tar: tarfile.TarFile, name: str, source: Path) -> None:
    info = tarfile.TarInfo(name)
    info.size = source.stat().st_size
    info.mode = 0o755 if os.access(source, os.X_OK) else 0o644
    with source.open("rb") as file:
        tar.addfile(info, file)


def _layer_of_folder(folder: Path, root: Path) -> Path:
    layer = folder / "layer.tar"
    command: list[str | Path] = [
        "tar",
        "--numeric-owner",
        "--sort=name",
        "--mtime=@0",
        "--exclude=./dev/*",
        "-cf",
        layer,
        "-C",
        root,
        ".",
    ]
    run_logged(command, log=folder / "build.log")
    return layer


def _pack(archive: Path, *, tag: str, layer: Path, config: Mapping[str, object]) -> None:
    """Write a docker-archive of one layer: layer, image configuration, manifest."""
    digest = hashlib.sha256()
    with layer.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    image = {
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "e2e.images"}],
    }
    encoded = json.dumps(image, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    layer_name = f"{digest.hexdigest()}.tar"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [tag], "Layers": [layer_name]}]).encode()
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, arcname=layer_name)
        for name, data in ((config_name, encoded), ("manifest.json", manifest)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _apt_sources() -> str:
    folder = Path("/etc/apt")
    paths = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    return "\n".join(path.read_text(errors="replace") for path in paths if path.is_file())


def _storage() -> list[str]:
    store = cache_dir() / "buildah"
    return ["--root", str(store / "root"), "--runroot", str(store / "run"), "--storage-driver", "overlay"]


def _buildah(*arguments: str | Path, log: Path) -> None:
    run_logged(["nice", "-n", "5", "buildah", *_storage(), *arguments], log=log, env={"BUILDAH_ISOLATION": "chroot"})


def _local_digest(tag: str) -> str | None:
    command = ["buildah", *_storage(), "images", "--quiet", "--no-trunc", tag]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() or None if found.returncode == 0 else None
