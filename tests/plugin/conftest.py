"""The fake vllm package, importable for one module's tests and forgotten after them."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FAKE_VLLM = Path(__file__).with_name("fake_vllm")


def _forget() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "vllm"}


@pytest.fixture(scope="module")
def fake_scheduler() -> Iterator[ModuleType]:
    others = _forget()
    sys.path.insert(0, str(FAKE_VLLM))
    yield importlib.import_module("vllm.v1.core.sched.scheduler")
    sys.path.remove(str(FAKE_VLLM))
    _forget()
    sys.modules.update(others)
