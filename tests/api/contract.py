"""The contract as a table: for every constraint of the CRD what must be accepted and what must be refused.

Constraints of one field follow from the schema itself, so none can be forgotten; rules across fields are written out.
The table is run twice: over the models here, and through a real API server in ``e2e/scenarios``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.api.full_tier import STATUS, TIER
from tierkeeper.api.crd import schema
from tierkeeper.api.schema import Schema, walk

REMOVE = object()
"""As a value: take the field away."""

_WHOLE = json.dumps({**TIER, "status": STATUS})


@dataclass(frozen=True, slots=True)
class Case:
    """One try: the changes to ``TIER``, and what a refusal says (None: it is accepted)."""

    id: str
    covers: str
    """The constraint: ``path:keyword``, or ``path:message`` of a rule."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Path to value."""
    says: str | None = None
    """Regular expression that the API server's refusal contains."""

    @property
    def accepted(self) -> bool:
        return self.says is None

    def tier(self) -> dict[str, Any]:
        """The object to try, status included."""
        tier: dict[str, Any] = json.loads(_WHOLE)
        for path, value in self.changes.items():
            _set(tier, re.findall(r"[^.\[\]{}]+|\[\]|\{\}", path), value)
        return tier


def constraints() -> Iterator[tuple[str, str, Schema]]:
    """Every constraint of the CRD: its name, the path it stands at, and the schema there."""
    for path, node in walk(schema()):
        for keyword in _KEYWORDS:
            if keyword in node and path not in _KUBERNETES_OWN:
                yield f"{path}:{keyword}", path, node
        for rule in node.get("x-kubernetes-validations", []):
            yield f"{path}:{rule['message']}", path, node


def field_cases() -> list[Case]:
    """The cases of the constraints of one field, made from the schema."""
    cases: list[Case] = []
    for path, node in walk(schema()):
        for keyword, make in _KEYWORDS.items():
            if keyword in node and path not in _KUBERNETES_OWN:
                cases += make(path, node)
    return cases


# --- making cases from the schema ---------------------------------------------------------------------------------

_KUBERNETES_OWN = ("", "apiVersion", "kind", "metadata")
"""Checked by the API server itself, whatever the CRD says."""

_SAMPLES: dict[str, tuple[Callable[[int], str], str]] = {
    r"^[^\s-][^\x00-\x1f\x7f]*$": (lambda n: "m" * n, "--flag"),
    r"^[A-Za-z0-9][A-Za-z0-9._/-]*$": (lambda n: "r" * n, "-main"),
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": (lambda n: "n" * n, "Upper"),
    r"^[-._a-zA-Z0-9]+$": (lambda n: "k" * n, "a/b"),
    r"^/[A-Za-z0-9._/-]+$": (lambda n: "/" + "p" * (n - 1), "relative"),
    r"^[0-9]{1,12}(\.[0-9]{1,9})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$": (lambda n: "1" * n, "3 GB"),
    r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$": (lambda n: "i" * n, "an image"),
    r"^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}$": (lambda n: f"0.{'3' * (n - 4)}.0", "v0.32"),
    r"^[A-Za-z_][A-Za-z0-9_]*$": (lambda n: "V" * n, "with-dash"),
    r"^[a-zA-Z][a-zA-Z0-9.'\[\]/_-]*$": (lambda n: "f" * n, "0"),
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$": (
        lambda n: "a/" + "g" * (n - 2),
        "gpu",
    ),
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$": (lambda n: "t" * n, "9tier"),
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": (lambda n: "n" * n, "a.b"),
    r"^[A-Za-z0-9-]+$": (lambda n: "h" * n, "two words"),
    r"^[!-~]+$": (lambda n: "v" * n, "two words"),
    r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$": (lambda n: "l" * n, "-x-"),
    r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$": (lambda n: "R" * n, "two words"),
    r"^-?[0-9]+([.][0-9]+)?$": (lambda n: "1" * n, "1e3"),
}
"""For each pattern a maker of a fitting text of a given length, and a text that does not fit."""

_LONGEST = {
    "spec.slo.objectivePercent": "99.99",
    "spec.resources.cpu": "1" * 12 + "." + "1" * 9 + "Ki",
    "spec.resources.memory": "1" * 12 + "." + "1" * 9 + "Ki",
    "spec.resources.sharedMemory": "1" * 12 + "." + "1" * 9 + "Ki",
    "spec.engine.version": "1234.1234.123456",
    "status.conditions[].lastTransitionTime": "2026-11-29T18:00:00.123456789Z",
    "status.lastDecision.time": "2026-11-29T18:00:00.123456789Z",
}
"""Fields whose pattern, format or rule ends before their length does."""

_SEQS_1: dict[str, Any] = {
    "spec.scaling.maxNumSeqs.min": 1,
    "spec.scaling.maxNumSeqs.max": 1,
    "spec.engine.maxNumSeqs": 1,
    "spec.scaling.maxNumBatchedTokens.min": 1,
}
_TOKENS_MOST: dict[str, Any] = {
    "spec.scaling.maxNumBatchedTokens.max": 1_048_576,
    "spec.engine.maxNumBatchedTokens": 1_048_576,
}

_COMPANIONS: dict[tuple[str, object], dict[str, Any]] = {
    ("spec.scaling.replicas.min", 1000): {"spec.scaling.replicas.max": 1000},
    ("spec.engine.maxNumSeqs", 1): {"spec.scaling.maxNumSeqs.min": 1},
    ("spec.engine.maxNumSeqs", 4096): {"spec.scaling.maxNumSeqs.max": 4096},
    ("spec.scaling.maxNumSeqs.min", 4096): {
        "spec.scaling.maxNumSeqs.max": 4096,
        "spec.engine.maxNumSeqs": 4096,
        "spec.scaling.maxNumBatchedTokens.min": 4096,
    },
    ("spec.scaling.maxNumSeqs.max", 1): _SEQS_1,
    ("spec.engine.maxNumBatchedTokens", 1): _SEQS_1,
    ("spec.engine.maxNumBatchedTokens", 1_048_576): _TOKENS_MOST,
    ("spec.scaling.maxNumBatchedTokens.min", 1): {"spec.scaling.maxNumSeqs.min": 1},
    ("spec.scaling.maxNumBatchedTokens.min", 1_048_576): _TOKENS_MOST,
    ("spec.scaling.maxNumBatchedTokens.max", 1): {**_SEQS_1, "spec.engine.maxNumBatchedTokens": 1},
    ("spec.engine.tensorParallelSize", 64): {"spec.resources.gpusPerReplica": 64},
    ("spec.engine.pipelineParallelSize", 64): {
        "spec.resources.gpusPerReplica": 64,
        "spec.engine.tensorParallelSize": 1,
    },
    ("spec.slo.budgetPolicy.warnPercent", 100): {"spec.slo.budgetPolicy.freezePercent": 100},
    ("spec.slo.budgetPolicy.freezePercent", 1): {"spec.slo.budgetPolicy.warnPercent": 1},
    ("spec.rollout.maxUnavailable", 0): {"spec.rollout.maxSurge": 1},
    ("spec.overflow.policy", "Queue"): {"spec.overflow.degradeTo": REMOVE},
    ("spec.overflow.policy", "Reject"): {"spec.overflow.degradeTo": REMOVE},
    ("spec.overflow.policy", "Defer"): {"spec.overflow.degradeTo": REMOVE},
}
"""What else must move with an accepted extreme, so that the rules across fields still hold."""


def _accept(path: str, keyword: str, value: Any) -> Case:
    shown = value if isinstance(value, int) else str(value)[:12] if isinstance(value, str) else len(value)
    changes = {path: value, **_COMPANIONS.get((path, value) if not isinstance(value, list | dict) else ("", ""), {})}
    return Case(f"{path}-{keyword}-accepts-{shown}", f"{path}:{keyword}", changes)


def _refuse(path: str, keyword: str, value: Any, says: str) -> Case:
    return Case(f"{path}-{keyword}-refuses", f"{path}:{keyword}", {path: value}, says)


def _minimum(path: str, node: Schema) -> list[Case]:
    least = node["minimum"]
    return [
        _accept(path, "minimum", least),
        _refuse(path, "minimum", least - 1, f"should be greater than or equal to {least}"),
    ]


def _maximum(path: str, node: Schema) -> list[Case]:
    most = node["maximum"]
    return [
        _accept(path, "maximum", most),
        _refuse(path, "maximum", most + 1, f"should be less than or equal to {most}"),
    ]


def _text(path: str, node: Schema, length: int) -> str:
    sample = _SAMPLES[node["pattern"]][0] if "pattern" in node else lambda n: "x" * n
    return sample(length)


def _min_length(path: str, node: Schema) -> list[Case]:
    least = node["minLength"]
    return [
        _accept(path, "minLength", _text(path, node, least)),
        _refuse(path, "minLength", "a" * (least - 1), f"should be at least {least} chars long"),
    ]


def _max_length(path: str, node: Schema) -> list[Case]:
    most = node["maxLength"]
    longest = _LONGEST.get(path) or _text(path, node, most)
    return [
        _accept(path, "maxLength", longest),
        _refuse(path, "maxLength", _text(path, node, most + 1), f"Too long: may not be more than {most} bytes"),
    ]


def _pattern(path: str, node: Schema) -> list[Case]:
    fitting, unfit = _SAMPLES[node["pattern"]]
    length = 8 if "version" in path else 4
    return [_accept(path, "pattern", fitting(length)), _refuse(path, "pattern", unfit, "should match")]


def _enum(path: str, node: Schema) -> list[Case]:
    return [
        *(_accept(path, "enum", value) for value in node["enum"]),
        _refuse(path, "enum", "Nonsense", "Unsupported value"),
    ]


def _required(path: str, node: Schema) -> list[Case]:
    return [
        Case(f"{path}-requires-{name}", f"{path}:required", {f"{path}.{name}": REMOVE}, f"{name}: Required value")
        for name in node["required"]
    ] + [Case(f"{path}-has-all-required", f"{path}:required")]


def _type(path: str, node: Schema) -> list[Case]:
    wrong = {"integer": "many", "string": 5, "boolean": "yes", "object": "text", "array": "text"}[node["type"]]
    says = f'must be of type {node["type"]}: "{"integer" if wrong == 5 else "string"}"'
    if "format" in node:
        says = 'must be of type date-time: "int64"'
    return [Case(f"{path}-has-its-type", f"{path}:type"), _refuse(path, "type", wrong, says)]


def _int_or_string(path: str, node: Schema) -> list[Case]:
    keyword = "x-kubernetes-int-or-string"
    return [
        Case(f"{path}-{keyword}-accepts-a-number", f"{path}:{keyword}", {path: 50}),
        Case(f"{path}-{keyword}-accepts-a-text", f"{path}:{keyword}", {path: "50"}),
        _refuse(path, keyword, True, 'must be of type integer,string: "boolean"'),
        Case(
            f"{path}-{keyword}-refuses-a-fraction", f"{path}:{keyword}", {path: 99.5}, "must be of type integer,string"
        ),
    ]


def _entries(path: str, node: Schema, count: int) -> list[Any]:
    first = _get({**TIER, "status": STATUS}, path)[0]
    key = node.get("x-kubernetes-list-map-keys", [None])[0]
    if key == "sli":
        return [{**first, "sli": sli} for sli in ("TTFT", "TPOT", "TTFT")[:count]]
    if key is None:
        return [first] * count
    return [
        {**first, key: first[key] + (number if isinstance(first[key], int) else str(number))} for number in range(count)
    ]


def _max_items(path: str, node: Schema) -> list[Case]:
    most = node["maxItems"]
    return [
        _accept(path, "maxItems", _entries(path, node, most)),
        _refuse(path, "maxItems", _entries(path, node, most + 1), f"must have at most {most} items"),
    ]


def _max_properties(path: str, node: Schema) -> list[Case]:
    most = node["maxProperties"]
    return [
        _accept(path, "maxProperties", {f"k{number}": "v" for number in range(most)}),
        _refuse(
            path,
            "maxProperties",
            {f"k{number}": "v" for number in range(most + 1)},
            f"(must have at most {most} items|must not have more than {most} propert)",
        ),
    ]


def _list_map(path: str, node: Schema) -> list[Case]:
    keyword = "x-kubernetes-list-map-keys"
    return [
        _accept(path, keyword, _entries(path, node, 2)),
        _refuse(path, keyword, _entries(path, node, 1) * 2, "Duplicate value"),
    ]


def _format(path: str, node: Schema) -> list[Case]:
    return [
        _accept(path, "format", "2026-11-29T18:00:00Z"),
        _refuse(path, "format", "yesterday", "must be of type date-time"),
    ]


_KEYWORDS: dict[str, Callable[[str, Schema], list[Case]]] = {
    "minimum": _minimum,
    "maximum": _maximum,
    "minLength": _min_length,
    "maxLength": _max_length,
    "pattern": _pattern,
    "enum": _enum,
    "required": _required,
    "type": _type,
    "x-kubernetes-int-or-string": _int_or_string,
    "maxItems": _max_items,
    "maxProperties": _max_properties,
    "x-kubernetes-list-map-keys": _list_map,
    "format": _format,
}


# --- paths --------------------------------------------------------------------------------------------------------


def _get(node: Any, path: str) -> Any:
    for part in re.findall(r"[^.\[\]{}]+|\[\]|\{\}", path):
        node = node[0] if part == "[]" else next(iter(node.values())) if part == "{}" else node[part]
    return node


def _set(node: Any, parts: list[str], value: Any) -> None:
    """Set the value at a path: ``[]`` is the first entry that has the rest of the path, ``{}`` the first value."""
    part, rest = parts[0], parts[1:]
    if part == "[]":
        index = next(i for i, entry in enumerate(node) if not rest or _has(entry, rest))
        if rest:
            _set(node[index], rest, value)
        else:
            node[index] = value
    elif part == "{}" or rest:
        key = next(iter(node)) if part == "{}" else part
        if rest:
            _set(node[key], rest, value)
        else:
            node[key] = value
    elif value is REMOVE:
        del node[part]
    else:
        node[part] = value


def _has(node: Any, parts: list[str]) -> bool:
    for part in parts:
        if part in ("[]", "{}"):
            return bool(node)
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True
