"""`GradientTape(check_numerics=True)`: the first op that makes a NaN or an infinity raises, with where and of what."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from textwrap import indent
from types import FrameType
from typing import TYPE_CHECKING, Any

from tape_core.engine import record
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.levels import BatchedArray
from tape_core.engine.plan import Parts
from tape_core.engine.tensor import SCALARS, Tensor
from tape_core.typing import Cotangent, Raw

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.debugging.notes import Call, Entry, Place


class NumericsError(FloatingPointError):
    """An op made a NaN or an infinity while a tape with `check_numerics=True` looked.

    It is a FloatingPointError, as NumPy raises under `numpy.errstate` and JAX with `jax_debug_nans`.

    Attributes:
        op: the op's name.
        backward: whether its derivative rule made it, in a backward pass.
        argument: in a backward pass, the input whose cotangent it is; else None.
        place: the user's line that called the op, with `file`, `line` and `function`.
    """

    op: str
    backward: bool
    argument: str | None
    place: Place | None


def check_forward(call: Call, backend: Backend, args: tuple[Any, ...], out: Raw) -> None:
    """Raise NumericsError if a result of the call is not finite."""
    outs = out if type(out) in (tuple, list) else (out,)
    if all([is_finite(o, backend.root) for o in outs]) or _inside_backward():
        return
    op = call.op
    assert op is not None
    values = tuple(args[0]) if op.sequence else args[: len(op.inputs)]
    given = {op.input_name(k): v for k, v in enumerate(values)}
    made = ", ".join(statistics(o, backend.root) for o in outs)
    raise _error(f"{op.name} made {_what(outs, backend.root)}", call, made, given, backend.root)


def check_backward(
    plan: Any, entry: Entry, g: Cotangent, rec: tuple[Any, ...], before: Mapping[int, Any], grads: Sequence[Any]
) -> None:
    """Raise where a cotangent that a rule has just made, or added to, is not finite."""
    call = entry.call
    if call is None or entry.part is not None:
        return
    backend, op = plan.backend.root, plan.op
    for rule in plan.rules:
        at = record.slot(rec, rule.k)
        for j, i in enumerate(at if type(at) is tuple else (at,)):
            if i is None or is_finite(grads[i], backend) or not is_finite(before.get(i), backend):
                continue
            name = f"{rule.input}[{j}]" if op.sequence else rule.input
            given: dict[str, Any] = {"the cotangent of its result": g}
            names = [f"{rule.input}[{k}]" for k in range(len(at))] if op.sequence else list(op.inputs)
            for k, one in enumerate(names):
                array = record.array(rec, 0 if op.sequence else k)
                array = array[k] if op.sequence and array is not None else array
                if array is not None:
                    given[one] = array
            if record.out(rec) is not None:
                given["its result"] = record.out(rec)
            made = statistics(grads[i], backend)
            head = f"the gradient of {op.name} for {name} is {_what([grads[i]], backend)}"
            error = _error(head, call, made, given, backend)
            error.backward, error.argument = True, name
            raise error


def _error(head: str, call: Call, made: str, given: Mapping[str, Any], backend: Backend) -> NumericsError:
    lines = [head, indent(str(call.place), "  "), f"  {made}, made of"]
    spoilt = []
    for name, value in given.items():
        lines.append(f"  {name}: {statistics(value, backend)}")
        if not is_finite(value, backend):
            spoilt.append(name)
    if spoilt:
        lines.append(f"  {', '.join(spoilt)}: not finite before; it was made where this tape did not look")
    error = NumericsError("\n".join(lines))
    error.op, error.backward, error.argument, error.place = call.name, False, None, call.place
    return error


def _inside_backward() -> bool:
    """Return True inside a derivative rule: the rule may mask a NaN at its end, so only its result is checked."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "backward_careful" and frame.f_globals.get("__name__") == "tape_core.engine.plan":
            return True
        frame = frame.f_back
    return False


def _leaves(value: Cotangent) -> list[Any]:
    """Return the raw arrays in a cotangent or an operand."""
    if isinstance(value, Parts):
        return [leaf for g in value.cotangents for leaf in _leaves(g)]
    if type(value) in (tuple, list):
        return [leaf for g in value for leaf in _leaves(g)]
    if isinstance(value, IndexedSlices):
        return _leaves(value.values)
    if isinstance(value, Tensor):
        return _leaves(value._array)
    if type(value) is BatchedArray:
        return _leaves(value.value)
    return [] if value is None else [value]


def is_finite(value: Cotangent, backend: Backend) -> bool:
    """Return True if a value has no NaN and no infinity."""
    xp = backend.xp
    with backend.quiet():
        for array in _leaves(value):
            if type(array) in SCALARS:
                if array != array or array in (float("inf"), -float("inf")):
                    return False
            elif backend.dtype(array.dtype).inexact and not bool(xp.all(xp.isfinite(array))):
                return False
    return True


def _what(values: Sequence[Any], backend: Backend) -> str:
    arrays = [a for value in values for a in _leaves(value) if type(a) not in SCALARS]
    floats = [a for a in arrays if backend.dtype(a.dtype).inexact]
    return "NaN" if any([bool(backend.xp.any(backend.xp.isnan(a))) for a in floats]) else "an infinity"


def statistics(value: Cotangent, backend: Backend) -> str:
    """Shape, dtype, range and mean of the finite elements, and how many are not finite."""
    with backend.quiet():
        found = [repr(a) if type(a) in SCALARS else _statistics(a, backend) for a in _leaves(value)]
    return ", ".join(found) or "None"


def _statistics(array: Raw, backend: Backend) -> str:
    xp, dtype = backend.xp, backend.dtype(array.dtype)
    parts = [f"{dtype}{list(array.shape)}"]
    size = 1
    for n in array.shape:
        size *= int(n)
    if dtype.kind == "bool" or not size:
        return parts[0]
    if not dtype.inexact:
        return f"{parts[0]}, min {int(xp.min(array))}, max {int(xp.max(array))}"
    finite = xp.isfinite(array)
    nans = int(xp.sum(xp.astype(xp.isnan(array), backend.raw_dtype("int64"))))
    count = int(xp.sum(xp.astype(finite, backend.raw_dtype("int64"))))
    values, of = (xp.abs(array), "of |x|: ") if dtype.kind == "complex floating" else (array, "")
    if count:
        zeros = xp.zeros_like(values)
        low = float(xp.min(xp.where(finite, values, zeros + float("inf"))))
        high = float(xp.max(xp.where(finite, values, zeros - float("inf"))))
        mean = float(xp.sum(xp.where(finite, values, zeros))) / count
        parts.append(f"{of}min {low:.6g}, max {high:.6g}, mean {mean:.6g}")
    if nans:
        parts.append(f"{nans:,} NaN")
    if size - count - nans:
        parts.append(f"{size - count - nans:,} infinite")
    if count < size:
        parts[-1] += f" of {size:,}"
    return ", ".join(parts)
