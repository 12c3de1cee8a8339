"""Snapshots of closures, for functions that run again in the backward pass.

Python binds free variables late. A branch or a loop body that runs again for its derivative must see the values of its
first run, even if the user has assigned anew to these names since.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any


def snapshot(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function whose free variables keep their present values.

    `y = tc.cond(p, lambda: y * w, ...)` rebinds `y` after the lambda has run; a second run must still see the old one.
    Functions among the free variables are copied, too. Variables that one of them assigns, by `nonlocal`, stay shared,
    and so do global ones.
    """
    found = _collect_functions(function, {})
    if not found:
        return function
    # These cells stay shared: those that a function assigns, and empty ones, which are filled later.
    shared = {
        id(cell)
        for known in found.values()
        for name, cell in _cells(known)
        if name in _assigned_names(known.__code__) or _is_empty(cell)
    }
    # New cells first, contents later: functions may hold each other, or themselves.
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


def _collect_functions(function: object, found: dict[int, FunctionType]) -> dict[int, FunctionType]:
    """Collect a function and, recursively, the functions among its free variables, by id."""
    if type(function) is FunctionType and function.__closure__ and id(function) not in found:
        found[id(function)] = function
        for _, cell in _cells(function):
            if not _is_empty(cell):
                _collect_functions(cell.cell_contents, found)
    return found


def _cells(function: FunctionType) -> list[tuple[str, CellType]]:
    return list(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _is_empty(cell: CellType) -> bool:
    """Return True for a cell that nothing is assigned to yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


@lru_cache(maxsize=512)
def _assigned_names(code: CodeType) -> frozenset[str]:
    """Return the names of cells that a function, or one nested in it, assigns or deletes."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname in ("STORE_DEREF", "DELETE_DEREF")}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            found |= _assigned_names(part)
    return frozenset(found)
