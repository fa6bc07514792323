"""What every API model shares: camelCase names, frozen values, rules across fields, a dump in plain JSON types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StrictBool, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

BROKEN_RULES = "broken_rules"
"""Type of the pydantic error that carries broken rules in its context."""

Int = Annotated[int, Field(strict=True)]
"""A whole number: neither a bool, a float nor a text with digits passes, as with the API server."""

Bool = StrictBool

INT_OR_STRING: dict[str, JsonValue] = {"x-kubernetes-int-or-string": True}
"""Marks a text that the API also takes as a whole number; goes with ``whole_number_as_text``."""


def whole_number_as_text(value: object) -> object:
    """``4`` as ``"4"``; anything else as it is, for pydantic to judge."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _finite(value: object) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise PydanticCustomError("not_finite", "must hold no .nan and no .inf, which JSON has no word for: remove it")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(part)


def _all_finite(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _finite(value)
    return value


AnyObject = Annotated[
    dict[str, JsonValue],
    AfterValidator(_all_finite),
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
]
"""A part of another Kubernetes object, taken as it is: its own API checks it when the pool is applied."""


def keyed_list(key: str, *, max_length: int) -> tuple[FieldInfo, AfterValidator]:
    """Marks a list whose entries are told apart by one field, in which the API server refuses a value twice."""
    extra: dict[str, JsonValue] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}

    def once_each(entries: tuple[BaseModel, ...]) -> tuple[BaseModel, ...]:
        names = [entry.model_dump(by_alias=True)[key] for entry in entries]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise PydanticCustomError(
                "duplicate", "each {key} must stand once: remove {twice} or rename it", {"key": key, "twice": twice}
            )
        return entries

    return cast(FieldInfo, Field(max_length=max_length, json_schema_extra=extra)), AfterValidator(once_each)


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint over more than one field, said twice: once for the API server, once for files and stored objects.

    The two forms stand side by side and every test case of the contract runs through both.
    """

    cel: str
    """CEL expression over ``self`` that must be true."""
    message: str
    """What must hold, and what to change."""
    found: str
    """The values that break the rule, as a format: ``min %d, max %d``."""
    values: tuple[str, ...]
    """CEL expressions over ``self``, one for each place in the format, all of one type."""
    broken: Callable[[Any], tuple[object, ...] | None]
    """The same over the model: the values that break the rule, or None where it holds."""
    field: str = ""
    """Path below the object that carries the rule, in API spelling, to which the error points."""

    @property
    def validation(self) -> dict[str, str]:
        """The entry of ``x-kubernetes-validations``; so ``message`` holds no double quote, backslash or percent sign.

        ``format`` and not ``+``: the length of ``string(number)`` has no estimate, and adding to it exceeds the budget.
        """
        text = f'"{self.message} (found {self.found})"'
        entry = {
            "rule": self.cel,
            "message": self.message,
            "messageExpression": f"{text}.format([{', '.join(self.values)}])" if self.values else text,
        }
        if self.field:
            entry["fieldPath"] = "." + self.field
        return entry


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold, with the values found."""

    rule: Rule
    found: str


class ApiModel(BaseModel):
    """Base of all API models. Unknown fields are ignored; callers that read files pass ``extra="forbid"``."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _obey_rules(self) -> Self:
        broken = [Broken(rule, rule.found % values) for rule in self.rules if (values := rule.broken(self)) is not None]
        if broken:
            raise PydanticCustomError(BROKEN_RULES, "rules do not hold", {"broken": broken})
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types with camelCase keys; what is None is absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
