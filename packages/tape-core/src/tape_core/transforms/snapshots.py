"""Snapshots of closures: a function that runs again for its derivative sees the bindings of its first run."""

from __future__ import annotations

import dis
from collections.abc import Callable
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any


def snapshot(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with what its free variables hold now: `y = tc.cond(p, lambda: y * w, ...)` binds `y` anew.

    It is so for functions among the free variables, too. Variables that one of them assigns, by `nonlocal`, stay
    shared, and so do global ones.
    """
    found = _reached(function, {})
    if not found:
        return function
    shared = {
        id(cell)
        for known in found.values()
        for name, cell in _cells(known)
        if name in _assigned(known.__code__) or _is_empty(cell)
    }
    cells: dict[int, CellType] = {}
    copies = {}
    for key, known in found.items():
        own = tuple(
            [cell if id(cell) in shared else cells.setdefault(id(cell), CellType()) for _, cell in _cells(known)]
        )
        copy = FunctionType(known.__code__, known.__globals__, known.__name__, known.__defaults__, own)
        copy.__kwdefaults__ = known.__kwdefaults__
        copy.__dict__.update(known.__dict__)
        copies[key] = copy
    for known in found.values():
        for _, cell in _cells(known):
            if id(cell) in cells:
                held = cell.cell_contents
                cells[id(cell)].cell_contents = copies.get(id(held), held)
    return copies[id(function)]


def _reached(function: Any, found: dict[int, FunctionType]) -> dict[int, FunctionType]:
    """A function and those among the free variables, which have such themselves."""
    if type(function) is FunctionType and function.__closure__ and id(function) not in found:
        found[id(function)] = function
        for _, cell in _cells(function):
            if not _is_empty(cell):
                _reached(cell.cell_contents, found)
    return found


def _cells(function: FunctionType) -> list[tuple[str, CellType]]:
    return list(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _is_empty(cell: CellType) -> bool:
    """Whether nothing is assigned to it yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


@lru_cache(maxsize=512)
def _assigned(code: CodeType) -> frozenset[str]:
    """The names that a function, or one inside it, assigns or deletes in the functions around it."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname in ("STORE_DEREF", "DELETE_DEREF")}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            found |= _assigned(part)
    return frozenset(found)
