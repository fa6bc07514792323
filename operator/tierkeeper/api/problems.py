"""What is wrong with a ServiceTier, for people: the field, the value found, and what to change."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tierkeeper.api.base import BROKEN_RULES, ApiModel, Broken
from tierkeeper.api.rules import broken_rules

_SHOWN = 80
"""Characters of a value that an error repeats."""


@dataclass(frozen=True, slots=True)
class Problem:
    field: str
    """Path in API spelling, such as ``spec.scaling.replicas.min``."""
    value: str
    """The value found, as text."""
    remedy: str
    """What must hold, and what to change."""

    def __str__(self) -> str:
        return f"{self.field}: {self.remedy} (found {self.value})"


class InvalidTier(ValueError):  # noqa: N818  (the answer to a question, not a failure of ours)
    """A ServiceTier that contradicts the contract. Its text lists every problem; ``field`` etc. speak of the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)

    @property
    def field(self) -> str:
        return self.problems[0].field

    @property
    def value(self) -> str:
        return self.problems[0].value

    @property
    def remedy(self) -> str:
        return self.problems[0].remedy


def problems_of(error: ValidationError, model: type[ApiModel], value: object) -> tuple[Problem, ...]:
    """Every problem of ``value``, whose validation as ``model`` failed.

    pydantic leaves out an object's rules while one of its fields is wrong: those are looked at here.
    """
    found = [problem for detail in error.errors(include_url=False) for problem in _problems(detail, model)]
    found += [_of_rule(_path(loc), broken) for loc, broken in broken_rules(model, value)]
    return tuple(dict.fromkeys(found))


def _problems(detail: ErrorDetails, model: type[BaseModel]) -> Iterator[Problem]:
    path = _path(detail["loc"])
    if detail["type"] == BROKEN_RULES:
        broken: list[Broken] = detail["ctx"]["broken"]
        yield from (_of_rule(path, one) for one in broken)
        return
    if detail["type"] == "missing":
        yield Problem(field=path, value="nothing", remedy="the field is required: set it")
        return
    if detail["type"] == "extra_forbidden":
        yield Problem(field=path, value=shown(detail["input"]), remedy=_unknown_field(detail["loc"], model))
        return
    yield Problem(field=path, value=shown(detail["input"]), remedy=_remedy(detail))


def _of_rule(path: str, broken: Broken) -> Problem:
    """A rule of the whole object that names no field of it is about the object's name."""
    field = ".".join(part for part in (path, broken.rule.field) if part)
    return Problem(field=field or "metadata.name", value=broken.found, remedy=broken.rule.message)


def shown(value: object) -> str:
    """A value as an error repeats it: short, and as it would stand in YAML."""
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else repr(value)
    text = str(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _path(loc: Sequence[int | str]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


_REMEDIES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than_equal": lambda c: f"must be at least {c['ge']}: raise it",
    "less_than_equal": lambda c: f"must be at most {c['le']}: lower it",
    "string_too_short": lambda c: f"must have at least {c['min_length']} characters: fill it in",
    "string_too_long": lambda c: f"must have at most {c['max_length']} characters: shorten it",
    "too_long": lambda c: f"must have at most {c['max_length']} entries: remove some",
    "string_pattern_mismatch": lambda c: f"must match {c['pattern']}: correct the spelling",
    "enum": lambda c: f"must be {c['expected']}: choose one of them",
    "literal_error": lambda c: f"must be {c['expected']}: correct it",
    "int_type": lambda _: "must be a whole number: write it without quotes or fraction",
    "bool_type": lambda _: "must be true or false: write it without quotes",
    "string_type": lambda _: "must be a text: put it in quotes",
    "tuple_type": lambda _: "must be a list: write each entry behind a dash",
    "dict_type": lambda _: "must be a map: write it as key: value",
    "invalid-json-value": lambda _: "must be a text, number, list or map: put a date or the like in quotes",
    "recursion_loop": lambda _: "must not contain itself: remove the YAML anchor",
    "model_type": lambda _: "must be an object: write its fields below it",
}


def _remedy(detail: ErrorDetails) -> str:
    known = _REMEDIES.get(detail["type"])
    if known is None:
        return detail["msg"]
    return known(detail.get("ctx", {}))


def _unknown_field(loc: Sequence[int | str], model: type[BaseModel]) -> str:
    known = _fields_at(loc[:-1], model)
    close = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.54)  # ttftMs is 0.55 of ttftMilliseconds
    if close:
        return f"no such field: did you mean {close[0]}?"
    return f"no such field: remove it; there are {', '.join(known)}" if known else "no such field: remove it"


def _fields_at(loc: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """API names of the fields of the object at ``loc``, or none where the schema is open."""
    schema = model.model_json_schema()
    defs, node = schema.get("$defs", {}), schema
    for part in (*loc, None):
        for option in [node, *node.get("anyOf", [])]:
            if "$ref" in option:
                node = defs[option["$ref"].rsplit("/", 1)[-1]]
        if part is not None:
            node = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
    return list(node.get("properties", {}))
