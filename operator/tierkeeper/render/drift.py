"""Whether what is in the cluster is still what was rendered, and whose it is."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from tierkeeper.render.names import HASH_ANNOTATION, KIND

Object = dict[str, Any]

_MERGE_KEYS = ("containerPort", "mountPath", "port", "uid", "name", "key")
"""Fields by which the API server identifies the elements of a list, the more telling first. Tolerations may repeat
their ``key``: a list is matched by a field only where each element has it and no two agree."""

_QUANTITY = re.compile(r"([+-]?\d*\.?\d+|[+-]?\d+\.)(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3), "": Fraction(1),
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(2 ** (10 * power)) for power, suffix in enumerate("KMGTPE", start=1)},
}  # fmt: skip


class DriftReason(StrEnum):
    MISSING = "Missing"
    """No such object."""
    CHANGED = "Changed"
    """The tier changed: what is there was rendered from something else."""
    EDITED = "Edited"
    """Someone else changed a field that is ours."""


@dataclass(frozen=True, slots=True)
class Drift:
    reason: DriftReason
    message: str


def content_hash(obj: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that depend on the content alone, not on the order of keys."""
    text = json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def needs_apply(rendered: Object, live: Object | None) -> Drift | None:
    """Why ``rendered`` must be applied, or None where the live object already says the same.

    What the API server or others added beside our fields is not drift; quantities are compared as numbers. Hence a
    steady tier causes no write at all.
    """
    name = f"{rendered['kind']} {rendered['metadata']['name']}"
    if live is None:
        return Drift(DriftReason.MISSING, f"{name} does not exist")
    annotations = live.get("metadata", {}).get("annotations") or {}
    if annotations.get(HASH_ANNOTATION) != rendered["metadata"]["annotations"][HASH_ANNOTATION]:
        return Drift(DriftReason.CHANGED, f"{name} was made from another state of the tier")
    path = _difference(rendered, live, path="")
    return None if path is None else Drift(DriftReason.EDITED, f"{name} was changed by someone else at {path}")


def is_foreign(live: Object, uid: str) -> str | None:
    """None where the tier with this ``uid`` controls the object; else what to do about it. It is never adopted."""
    meta = live.get("metadata", {})
    name = f"{live.get('kind', 'Object')} {meta.get('name')}"
    remedy = f"or give the {KIND} another name"
    owner = next((ref for ref in meta.get("ownerReferences") or [] if ref.get("controller")), None)
    if owner is None:
        return f"{name} exists and belongs to no {KIND}: delete it or give it another name, {remedy}"
    if owner.get("uid") == uid:
        return None
    controller = f"{owner.get('kind')} {owner.get('name')}"
    if owner.get("kind") == KIND:
        return (
            f"{name} belongs to another {controller} (uid {owner.get('uid')}): if that one was deleted, wait until its "
            f"children are garbage-collected; else delete it, {remedy}"
        )
    return f"{name} is controlled by {controller}: delete it there or give it another name, {remedy}"


def quantity(text: str) -> Fraction | None:
    """The number a Kubernetes quantity stands for: ``500m`` is 1/2, ``1Gi`` 2**30. None where it is no quantity."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    digits, exponent, suffix = match.groups()
    return Fraction(digits.rstrip(".")) * (Fraction(f"1{exponent}") if exponent else _SUFFIXES[suffix or ""])


def _difference(ours: object, live: object, *, path: str) -> str | None:
    """Path of the first field of ``ours`` that ``live`` does not have with the same meaning."""
    if isinstance(ours, Mapping):
        if not isinstance(live, Mapping):
            return None if not ours and live is None else path
        pairs = ((f"{path}.{key}".lstrip("."), value, live.get(key)) for key, value in ours.items())
    elif isinstance(ours, list):
        matched = _matched(ours, live if isinstance(live, list) else [])
        if matched is None:
            return path
        pairs = ((f"{path}[{index}]", item, other) for index, (item, other) in enumerate(matched))
    else:
        return None if _same(ours, live, path=path) else path
    return next((found for at, item, other in pairs if (found := _difference(item, other, path=at)) is not None), None)


def _matched(ours: Sequence[Any], live: Sequence[Any]) -> list[tuple[Any, Any]] | None:
    """Each of our elements with its live counterpart, or None where the lists cannot be the same."""
    key = next((key for key in _MERGE_KEYS if _identifies(key, ours) and _identifies(key, live)), None)
    if key is None:
        return list(zip(ours, live, strict=True)) if len(ours) == len(live) else None
    by_key = {item[key]: item for item in live}
    return [(item, by_key.get(item[key])) for item in ours]


def _identifies(key: str, items: Sequence[Any]) -> bool:
    values = [item.get(key) for item in items if isinstance(item, Mapping)]
    return bool(items) and len(values) == len(items) == len(set(values)) and None not in values


def _same(ours: object, live: object, *, path: str) -> bool:
    if ours == live and isinstance(ours, bool) == isinstance(live, bool):
        return True
    if ours in (None, "") and live in (None, ""):
        return True  # the API server leaves empty strings out
    if ".resources." in path or path.endswith(".sizeLimit"):
        return quantity(str(ours)) == quantity(str(live)) is not None
    return False
