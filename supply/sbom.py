"""The bill of materials of the operator's image and chart, as CycloneDX JSON.

``python -m supply.sbom`` prints it. It holds no time and no random number: the same sources give the same bytes. The
base image is whoever builds to choose, so what it brings is not in here.
"""

import json
import tomllib

import yaml
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from supply.licenses import license_of
from supply.requirements import REQUIREMENTS, ROOT, Pin, pins


def document() -> str:
    """The whole document, one newline at its end."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((ROOT / "charts/tierkeeper/Chart.yaml").read_text())
    known = pins(REQUIREMENTS.read_text())
    parts = {pin.name: _library(pin) for pin in known}
    root = _ours("pypi", project["name"], project["version"])
    bom = Bom(components=[*parts.values(), _ours("helm", chart["name"], chart["version"])])
    bom.metadata.component = root
    parents = {project["name"]: root, **parts}
    for name, parent in parents.items():
        bom.register_dependency(parent, [parts[pin.name] for pin in known if name in pin.wanted_by])
    content = json.loads(JsonV1Dot6(bom).output_as_string())
    del content["serialNumber"], content["metadata"]["timestamp"]
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _ours(kind: str, name: str, version: str) -> Component:
    purl = PackageURL(kind, None, name, version)
    licence = LicenseExpression("Apache-2.0")
    return Component(
        type=ComponentType.APPLICATION, name=name, version=version, purl=purl, bom_ref=str(purl), licenses=[licence]
    )


def _library(pin: Pin) -> Component:
    purl = PackageURL("pypi", None, pin.name, pin.version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(str(purl)),
        comment="the files of this version, of which one is installed",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pin.sha256],
    )
    return Component(
        type=ComponentType.LIBRARY,
        name=pin.name,
        version=pin.version,
        purl=purl,
        bom_ref=str(purl),
        licenses=[LicenseExpression(license_of(pin.name))],
        external_references=[files],
    )


if __name__ == "__main__":
    print(document(), end="")
