"""Bringing image tars into a node's containerd, each only once."""

import hashlib
import json
import tarfile
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import Node
from e2e.cluster.runtime import ctr


def archive_identity(archive: Path) -> str:
    """The SHA-256 of the manifest in a docker or OCI archive; the manifest names its contents by digest, so this
    identifies the image.

    Raises ClusterError where the file is neither.
    """
    try:
        with tarfile.open(archive) as tar:
            for name in ("manifest.json", "index.json"):
                try:
                    member = tar.extractfile(name)
                except KeyError:
                    continue
                if member is not None:
                    return hashlib.sha256(member.read()).hexdigest()
    except (OSError, tarfile.TarError) as error:
        raise ClusterError(f"{archive}: not a readable image archive ({error})") from error
    raise ClusterError(f"{archive}: neither a docker archive (manifest.json) nor an OCI archive (index.json)")


def load(node: Node, archive: Path) -> bool:
    """Import an archive unless the very same one was imported before; returns whether it was imported now."""
    ledger = node.images / "loaded.json"
    known = json.loads(ledger.read_text()) if ledger.exists() else {}
    identity = archive_identity(archive)
    if identity in known and set(known[identity]) <= set(images(node)):
        return False
    output = ctr(node, "images", "import", str(archive))
    # A tag that moved to new contents belongs to the newest import alone.
    names = imported_names(output)
    known = {other: tags for other, tags in known.items() if not set(tags) & set(names)}
    ledger.write_text(json.dumps({**known, identity: names}))
    return True


def imported_names(output: str) -> list[str]:
    """The image names in what `ctr images import` prints: `unpacking localhost/x:1 (sha256:...)...done`."""
    return [line.split()[1] for line in output.splitlines() if line.startswith("unpacking ")]


def images(node: Node) -> list[str]:
    """The names of all images in the node's containerd."""
    return ctr(node, "images", "list", "-q").split()
