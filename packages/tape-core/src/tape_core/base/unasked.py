"""Calls that take a number out of a Tensor though the user's code does not say so, such as `array[0] = t`.

`float(t)` asks for a number, and means it. In `array[0] = t` and `math.exp(t)` it is C code that calls `__float__`,
with no frame of its own between: only the caller's instruction tells them apart.
"""

from __future__ import annotations

import dis
import math
from functools import lru_cache
from types import CodeType, FrameType, ModuleType

_SAME = (
    "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "hypot", "atan2", "pow",
)  # fmt: skip
# These have a derivative, and what has it for Tensors; others, such as `math.floor`, have none to lose.
_MATH = {name: f"tape_core.{name}" for name in _SAME} | {
    "copysign": "tape_core.copysign",
    "fabs": "tape_core.abs",
    "exp2": "tape_core.special.exp2",
    "cbrt": "tape_core.special.cbrt",
    "erf": "tape_core.special.erf",
    "erfc": "tape_core.special.erfc",
    "gamma": "tape_core.special.gamma",
    "lgamma": "tape_core.special.gammaln",
    "prod": "tape_core.prod of a Tensor",
    "fsum": "sum(...)",
    "dist": "tape_core.linalg.vector_norm(a - b)",
    "degrees": "x * (180 / math.pi)",
    "radians": "x * (math.pi / 180)",
    "fmod": "x - y * tape_core.trunc(x / y)",
    "remainder": "x - y * tape_core.round(x / y)",
    "modf": "x - tape_core.trunc(x)",
    "frexp": "x / 2.0**e for the mantissa",
    "ldexp": "x * 2.0**i",
}
_CURE = (
    "make the array by tape_core.zeros, or numpy.zeros_like(t), to assign to its elements, or of all its parts by "
    "tape_core.stack"
)
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD")


def unasked(frame: FrameType) -> tuple[str, str] | None:
    """Return what takes a number out of a Tensor in a frame's current instruction, and what to write for it.

    It is None where the code asks for the number, as `float(t)` does, and where that cannot be told.
    """
    assigns, names = _instruction(frame.f_code, frame.f_lasti)
    if assigns:
        return "an assignment `array[key] = t` takes the value", _CURE
    if not names or names[-1] not in _MATH:
        return None
    found = _resolve(frame, names)
    if found is None or found is not getattr(math, names[-1], None):
        return None
    return f"math.{names[-1]} takes the value", f"write {_MATH[names[-1]]}"


def _resolve(frame: FrameType, names: tuple[str, ...]) -> object:
    """What names that are joined by dots stand for in a frame, as far as these are modules; else None."""
    found: object = frame.f_globals.get(names[0])
    if found is None:
        found = frame.f_locals.get(names[0])
    for name in names[1:]:
        found = getattr(found, name, None) if isinstance(found, ModuleType) else None
    return found


@lru_cache(maxsize=256)
def _instruction(code: CodeType, at: int) -> tuple[bool, tuple[str, ...]]:
    """Whether the instruction at an offset assigns to an element; and of a call the names, as `math` and `exp`.

    Instructions carry the source positions of their expression. Those that push the function begin where the call does.
    """
    instructions = list(dis.get_instructions(code))
    here = next((one for one in instructions if one.offset == at), None)
    if here is None:
        return False, ()
    if here.opname in ("STORE_SUBSCR", "STORE_SLICE"):
        return True, ()
    place = here.positions
    if not here.opname.startswith(("CALL", "PRECALL")) or place is None or place.lineno is None:
        return False, ()
    start, end = (place.lineno, place.col_offset), (place.end_lineno or 0, place.end_col_offset or 0)
    names = []
    for one in instructions:
        its = one.positions
        if one.offset >= at or its is None or not one.opname.startswith(_LOADS):
            continue
        if (its.lineno, its.col_offset) == start and (its.end_lineno or 0, its.end_col_offset or 0) < end:
            names.append(str(one.argval))
    return False, tuple(names)
