"""From the pydantic models to a structural schema that the API server accepts.

What pydantic emits and the API server refuses: references, ``anyOf`` with null, defaults of null, ``const``, titles,
``additionalProperties: false`` beside properties, ``propertyNames``. What it needs: rules in CEL, and a bound on
every list, map and text, without which the cost of a rule cannot be estimated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tierkeeper.api.base import ApiModel

Schema: TypeAlias = dict[str, Any]

_KEPT = (
    "description", "type", "format", "enum", "default", "nullable",
    "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "maxProperties",
    "items", "properties", "required", "additionalProperties",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
)  # fmt: skip
"""Keywords that a structural schema may carry, in the order in which they are printed."""


class _Structural(GenerateJsonSchema):
    """Absent instead of null, rules of the models as CEL, and defaults for scalars only.

    A default that the API server fills in is written into the stored object and shown by ``kubectl get``: right for a
    stable scalar, noise for a whole object; those are filled in when the object is read.
    """

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if isinstance(schema.get("default"), str | int):
            return super().default_schema(schema)
        return self.generate_inner(schema["schema"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        json_schema = super().model_schema(schema)
        model = schema["cls"]
        if issubclass(model, ApiModel) and model.rules:
            json_schema["x-kubernetes-validations"] = [rule.validation for rule in model.rules]
        return json_schema


def structural_schema(model: type[BaseModel]) -> Schema:
    """The schema of a model, self-contained, with no keyword that the API server refuses."""
    emitted = model.model_json_schema(schema_generator=_Structural, mode="validation")
    return _clean(emitted, emitted.get("$defs", {}))


def _clean(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """A node with references put in place, its children cleaned, and only the keywords that may stay."""
    merged: Schema = {}
    if "$ref" in node:
        merged.update(_clean(definitions[node["$ref"].rpartition("/")[2]], definitions))
    merged.update({key: value for key, value in node.items() if key in _KEPT})
    if "items" in node:
        merged["items"] = _clean(node["items"], definitions)
    if "properties" in node:
        merged["properties"] = {name: _clean(child, definitions) for name, child in node["properties"].items()}
    if "description" in merged:
        merged["description"] = re.sub(r"\s+", " ", merged["description"].replace("``", "")).strip()
    if merged.get("x-kubernetes-preserve-unknown-fields"):
        merged.pop("additionalProperties", None)
    elif isinstance(node.get("additionalProperties"), dict):
        merged["additionalProperties"] = _clean(node["additionalProperties"], definitions)
    else:
        merged.pop("additionalProperties", None)
    if merged.get("x-kubernetes-int-or-string"):
        merged.pop("type", None)
        if str(merged.get("default", "")).isdigit():
            merged["default"] = int(merged["default"])
    return {key: merged[key] for key in _KEPT if key in merged}


def walk(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every node with its path: ``spec.engine.env[].name``; the values of a map are ``spec.pod.labels{}``."""
    yield path, cast(Schema, schema)
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}".removeprefix("."))
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from walk(schema["additionalProperties"], f"{path}{{}}")
