"""The bill of materials and the licences say what requirements.txt installs, no more and no less."""

import json

import pytest

from supply import licenses
from supply.requirements import REQUIREMENTS, pins


@pytest.fixture(scope="module")
def document() -> str:
    """Written once. What writes it takes a while to load, for which no other test has to wait."""
    from supply import sbom

    return sbom.document()


def test_the_page_of_licences_is_current():
    assert licenses.PAGE.read_text() == licenses.page(), "run `make generate`"


@pytest.mark.parametrize("pin", pins(REQUIREMENTS.read_text()), ids=lambda pin: pin.name)
def test_a_dependency_has_an_allowed_licence(pin):
    assert licenses.identifiers(licenses.license_of(pin.name)) <= licenses.ALLOWED


def test_the_bill_of_materials_is_what_requirements_txt_pins(document):
    bom = json.loads(document)
    libraries = {part["name"]: part for part in bom["components"] if part["type"] == "library"}
    known = {pin.name: pin for pin in pins(REQUIREMENTS.read_text())}
    assert {name: part["version"] for name, part in libraries.items()} == {n: p.version for n, p in known.items()}
    for name, part in libraries.items():
        (files,) = part["externalReferences"]
        assert {each["content"] for each in files["hashes"]} == set(known[name].sha256)


def test_every_part_is_reached_from_the_operator(document):
    bom = json.loads(document)
    below = {each["ref"]: each.get("dependsOn", []) for each in bom["dependencies"]}
    seen, waiting = set(), [bom["metadata"]["component"]["bom-ref"]]
    while waiting:
        if (ref := waiting.pop()) not in seen:
            seen.add(ref)
            waiting += below[ref]
    assert {part["bom-ref"] for part in bom["components"] if part["type"] == "library"} <= seen


def test_the_same_sources_give_the_same_bytes(document):
    from supply import sbom

    assert sbom.document() == document


@pytest.mark.parametrize("text", ["kopf>=1.45\n", "kopf==1.45.2 \\\n", "-e .\n"])
def test_a_line_that_pins_nothing_is_refused(text):
    with pytest.raises(ValueError, match="make lock"):
        pins(text)
