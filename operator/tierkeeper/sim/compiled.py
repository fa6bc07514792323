"""How the kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit
from numba.extending import register_jitable

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Compiled at the first call, kept on disk. The numpy error model leaves out checks for division by zero.

    What is kept is thrown away when the function's own file changes, and only then: what it calls has to stand in that
    file too. After a change of a constant from elsewhere (``state``, ``model.Status``), touch that file.
    """
    return cast(_Function, njit(cache=True, error_model="numpy")(function))


def within(function: _Function) -> _Function:
    """Compiled as part of its callers, which spares it an entry of its own."""
    return register_jitable(no_cfunc_wrapper=True)(function)
