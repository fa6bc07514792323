"""Rules across fields over an object of which only a part can be read, so that one look finds every problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, cast, get_args

from pydantic import TypeAdapter, ValidationError

from tierkeeper.api.base import ApiModel, Broken

Loc = tuple[int | str, ...]


def broken_rules(model: type[ApiModel], value: object) -> Iterator[tuple[Loc, Broken]]:
    """Every rule that does not hold, with the place of the object that carries it.

    A rule that needs a field which is missing or wrong itself says nothing: its turn comes when that is mended.
    """
    yield from _over(_read(model, value), ())


def _over(part: object, loc: Loc) -> Iterator[tuple[Loc, Broken]]:
    if isinstance(part, tuple):
        for place, entry in enumerate(part):
            yield from _over(entry, (*loc, place))
    if not isinstance(part, ApiModel):
        return
    for name, field in type(part).model_fields.items():
        yield from _over(part.__dict__.get(name), (*loc, field.alias or name))
    for rule in part.rules:
        try:
            values = rule.broken(part)
        except AttributeError:  # of a field that could not be read
            continue
        if values is not None:
            yield loc, Broken(rule, rule.found % values)


def _read(model: type[ApiModel], value: object) -> ApiModel | None:
    """The model with the fields that can be read; one that cannot is no attribute of it. None where it is no object."""
    if not isinstance(value, Mapping):
        return None
    read = model.model_construct()
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in value:
            continue
        read.__dict__.pop(name, None)
        try:
            read.__dict__[name] = _field(model, name, value[key])
        except (ValidationError, LookupError):
            continue
    return read


def _field(model: type[ApiModel], name: str, value: object) -> Any:
    """A field's value. Raises ValidationError or LookupError where it cannot be read."""
    inner = _model_in(model.model_fields[name].annotation)
    if inner is None or value is None:
        return _adapter(model, name).validate_python(value)
    parts = [_read(inner, entry) for entry in (value if isinstance(value, list) else [value])]
    if any(part is None for part in parts):
        raise LookupError(name)
    return tuple(parts) if isinstance(value, list) else parts[0]


@cache
def _adapter(model: type[ApiModel], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    bounded = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(cast(Any, bounded))


def _model_in(annotation: Any) -> type[ApiModel] | None:
    """The model that a field holds, alone, in a list or beside None."""
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        return annotation
    return next((model for one in get_args(annotation) if (model := _model_in(one)) is not None), None)
