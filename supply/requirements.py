"""The run-time dependencies as requirements.txt pins them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements.txt"

_PIN = re.compile(r"([a-z0-9][a-z0-9._-]*)==(\S+)(?: ; [^\\]+)? \\")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"#(?: via)?\s*([a-z0-9][a-z0-9._-]*)?")


@dataclass(frozen=True, slots=True)
class Pin:
    name: str
    version: str
    sha256: tuple[str, ...]
    """One for each file of this version; an installation takes one of them."""
    wanted_by: tuple[str, ...]
    """Names of the distributions that require it; ``tierkeeper`` among them where we do ourselves."""


def pins(text: str) -> list[Pin]:
    """Read a requirements file as `make lock` writes it. Raises ValueError for a line that pins nothing."""
    blocks: list[list[str]] = []
    for line in filter(str.strip, text.splitlines()):
        if line.startswith(" ") and blocks:
            blocks[-1].append(line.strip())
        else:
            blocks.append([line])
    return [_pin(first, rest) for first, *rest in blocks]


def _pin(first: str, rest: list[str]) -> Pin:
    hashes = tuple(found.group(1) for line in rest if (found := _HASH.match(line)))
    if (pinned := _PIN.fullmatch(first)) is None or not hashes:
        raise ValueError(f"requirements.txt: {first!r} is not pinned and hashed: run `make lock`")
    parents = [_VIA.match(line) for line in rest if line.startswith("#")]
    wanted_by = tuple(found.group(1) for found in parents if found and found.group(1))
    return Pin(pinned.group(1), pinned.group(2), hashes, wanted_by)
