"""The generated CRD holds only what an API server accepts, and stands in the repository as generated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes.client import V1JSONSchemaProps

from tests import fast_yaml
from tierkeeper.api.crd import SIZE_LIMIT, crd, crd_yaml, schema
from tierkeeper.api.reference import reference
from tierkeeper.api.schema import walk

ROOT = Path(__file__).parents[2]

NODES = dict(walk(schema()))


def keywords(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from keywords(value)
    elif isinstance(node, list):
        for value in node:
            yield from keywords(value)


def test_the_file_in_crds_is_what_the_models_say() -> None:
    assert (ROOT / "crds/servicetiers.yaml").read_text() == crd_yaml(), "run `make generate`"


def test_the_api_reference_is_what_the_models_say() -> None:
    assert (ROOT / "docs/api.md").read_text() == reference(), "run `tierkeeper crd --docs > docs/api.md`"


def test_it_fits_into_the_annotation_of_client_side_apply() -> None:
    assert len(crd_yaml().encode()) < SIZE_LIMIT


def test_generating_twice_gives_the_same_bytes() -> None:
    assert crd_yaml() == crd_yaml()


def test_yaml_and_object_are_one() -> None:
    assert fast_yaml.load(crd_yaml()) == crd()


def test_the_kubernetes_client_knows_every_keyword() -> None:
    V1JSONSchemaProps.model_validate(schema())


def test_nothing_refused_by_the_api_server_is_left() -> None:
    refused = {
        "$ref",
        "$defs",
        "anyOf",
        "oneOf",
        "allOf",
        "const",
        "title",
        "prefixItems",
        "propertyNames",
        "uniqueItems",
    }
    assert refused & set(keywords(schema())) == set()


def test_each_node_has_one_type() -> None:
    types = {path: None if node.get("x-kubernetes-int-or-string") else node.get("type") for path, node in NODES.items()}
    assert set(types.values()) == {"object", "array", "string", "integer", "boolean", None}
    assert all("type" not in NODES[path] for path, kind in types.items() if kind is None)


def test_each_text_list_map_and_number_is_bounded() -> None:
    bounds = {"string": "maxLength", "array": "maxItems", "integer": "minimum"}
    unbounded = []
    for path, node in NODES.items():
        bound = "maxProperties" if "additionalProperties" in node else bounds.get(node.get("type", "string"))
        if bound is not None and bound not in node and "enum" not in node:
            unbounded.append(path)
    assert unbounded == ["apiVersion", "kind"]


def test_each_field_says_what_it_is() -> None:
    silent = {path for path, node in NODES.items() if not node.get("description", "").endswith(".")}
    assert {path for path in silent if not path.endswith(("[]", "{}"))} == {"apiVersion", "kind", "metadata"}


def test_defaults_are_scalars_and_only_in_the_spec() -> None:
    defaults = {path: node["default"] for path, node in NODES.items() if "default" in node}
    assert defaults.pop("status") == {"observedGeneration": -1}
    assert all(path.startswith("spec.") and isinstance(value, str | int) for path, value in defaults.items())


def test_no_list_map_repeats_its_key_as_optional() -> None:
    for _, node in walk(schema()):
        for key in node.get("x-kubernetes-list-map-keys", []):
            assert key in node["items"]["required"]


def test_there_is_a_status_and_no_scale_subresource() -> None:
    (version,) = crd()["spec"]["versions"]
    assert version["subresources"] == {"status": {}}


def test_names_and_columns() -> None:
    spec = crd()["spec"]
    assert spec["names"]["shortNames"] == ["svctier"]
    assert spec["names"]["categories"] == ["tierkeeper"]
    columns = spec["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if c["priority"] == 0] == [
        "Ready", "Met", "TTFT P99", "TPOT P99", "Burn 5m", "Replicas", "Seqs", "Age",
    ]  # fmt: skip
    assert [c["name"] for c in columns if c["priority"] == 1] == ["Mode", "Budget", "Decision", "Reason", "Message"]


def test_messages_survive_their_quoting() -> None:
    for _, node in walk(schema()):
        for rule in node.get("x-kubernetes-validations", []):
            assert '"' not in rule["message"]
            assert "\\" not in rule["message"]
            assert len(rule["message"]) < 2048
