"""One certificate authority, a certificate for each component, and kubeconfigs made from them. Uses the openssl
command."""

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

_DAYS = "365"
_KEY = (
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
)  # P-256: made in milliseconds, unlike RSA


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a certificate speaks for: the file name, the user, its groups, and the names and addresses it may serve
    under."""

    name: str
    user: str
    groups: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()


def create_authority(folder: Path) -> None:
    """Write ca.crt, ca.key and the key pair that signs service-account tokens, sa.key and sa.pub."""
    _openssl(
        "req",
        "-x509",
        *_KEY,
        "-days",
        _DAYS,
        "-subj",
        "/CN=tierkeeper-e2e",
        "-keyout",
        folder / "ca.key",
        "-out",
        folder / "ca.crt",
    )
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "sa.key")
    _openssl("ec", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub")


def issue(folder: Path, identity: Identity) -> None:
    """Write NAME.crt and NAME.key, signed by the authority in `folder`."""
    request, extensions = folder / f"{identity.name}.csr", folder / f"{identity.name}.ext"
    subject = "".join(f"/O={group}" for group in identity.groups) + f"/CN={identity.user}"
    _openssl("req", *_KEY, "-subj", subject, "-keyout", folder / f"{identity.name}.key", "-out", request)
    extensions.write_text(extension_lines(identity))
    authority = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial")
    _openssl(
        "x509",
        "-req",
        "-in",
        request,
        *authority,
        "-days",
        _DAYS,
        "-extfile",
        extensions,
        "-out",
        folder / f"{identity.name}.crt",
    )
    request.unlink()
    extensions.unlink()


def extension_lines(identity: Identity) -> str:
    """The openssl extension file: what the certificate may be used for, and its subject alternative names."""
    lines = ["basicConstraints=CA:FALSE", "keyUsage=digitalSignature", "extendedKeyUsage=clientAuth,serverAuth"]
    if identity.serves:
        names = (f"IP:{name}" if name.replace(".", "").isdigit() else f"DNS:{name}" for name in identity.serves)
        lines.append("subjectAltName=" + ",".join(names))
    return "\n".join(lines) + "\n"


def kubeconfig(folder: Path, identity_name: str, *, server: str) -> str:
    """A kubeconfig (JSON, which is YAML too) with everything embedded, so that the file may be copied anywhere on
    this machine."""

    def embedded(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": embedded("ca.crt")}
    keys = {
        "client-certificate-data": embedded(f"{identity_name}.crt"),
        "client-key-data": embedded(f"{identity_name}.key"),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tierkeeper-e2e", "cluster": cluster}],
        "users": [{"name": identity_name, "user": keys}],
        "contexts": [{"name": "tierkeeper-e2e", "context": {"cluster": "tierkeeper-e2e", "user": identity_name}}],
        "current-context": "tierkeeper-e2e",
    }
    return json.dumps(document, indent=1) + "\n"


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
