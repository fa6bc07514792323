"""Runs a health script the way Argo CD does: `obj` is the object, and there is no library beside base and table."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: Argo CD's own interpreter speaks Lua 5.1, so that one is asked first.
INTERPRETERS = ("lua5.1", "lua5.4", "lua")

_PROLOGUE = """
local write = io.write
local path = arg[1]
string, math, io, os, debug, coroutine, utf8 = nil, nil, nil, nil, nil, nil, nil
getmetatable("").__index = nil
local script = assert(loadfile(path))
local function judge(object)
  obj = object
  local health = script()
  write(health.status, "\\t", health.message, "\\n")
end
"""


class Health(NamedTuple):
    status: str
    message: str


def healths(script: Path, objects: Sequence[dict[str, Any]]) -> list[Health]:
    """What the script says of each object. Skips the test, naming the package, where there is no Lua."""
    lua = next(filter(None, map(shutil.which, INTERPRETERS)), None)
    if lua is None:
        pytest.skip("no Lua here: `make setup` as root installs the Debian package lua5.1")
    program = _PROLOGUE + "".join(f"judge({literal(obj)})\n" for obj in objects)
    done = subprocess.run([lua, "-", str(script)], input=program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == len(objects)
    return [Health(*line) for line in lines]


def literal(value: object) -> str:
    """A JSON value as a Lua expression."""
    if isinstance(value, dict):
        return "{" + ",".join(f"[{_text(key)}]={literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "{" + ",".join(map(literal, value)) + "}"
    if isinstance(value, str):
        return _text(value)
    return "nil" if value is None else json.dumps(value)


def _text(text: str) -> str:
    """Lua has no `\\u`; bytes above ASCII pass as they are, and a line of output is a line of the message."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\t", " ") + '"'
