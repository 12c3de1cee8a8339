"""What functions under SciPy's names have in common: their operands, and arguments that are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tape_core as tc
from tape_core.ops.special.composed import to_float_tensors
from tape_core.typing import ArrayLike


def floats(function: str, **values: ArrayLike) -> list[tc.Tensor]:
    """Return operands as Tensors of floating-point numbers on one backend; integers become the default float dtype.

    Raises:
        TypeError: one is neither an array nor a number, or is an array of booleans; it is named.
    """
    for name, value in values.items():
        if value is None:
            raise TypeError(f"{function}: {name} must be an array, got None")
    try:
        return to_float_tensors(*values.values())
    except TypeError as error:
        raise TypeError(f"{function}: {', '.join(values)} must be arrays of numbers; {error}") from None


def refuse(function: str, **given: tuple[object, Sequence[object]]) -> None:
    """Refuse arguments that have no counterpart: by name the value, and those that are all right.

    Raises:
        NotImplementedError: an argument has another value.
    """
    for name, (value, allowed) in given.items():
        if not any([value is one or (type(value) is type(one) and value == one) for one in allowed]):
            known = " or ".join([repr(one) for one in allowed])
            shown = repr(value) if value is None or isinstance(value, bool | int | float | str) else ""
            raise NotImplementedError(
                f"{function}: {name}={shown} has no counterpart for Tensors, only {name}={known}; SciPy's own takes "
                f"it of arrays without a gradient: t.numpy()"
            )


def choose(function: str, name: str, value: object, allowed: Sequence[object]) -> None:
    """Refuse a value that SciPy's function does not know either.

    Raises:
        ValueError: the argument has none of these values.
    """
    if value not in allowed:
        raise ValueError(f"{function}: {name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")


def square(function: str, name: str, x: tc.Tensor) -> None:
    """Refuse what is no square matrix, or stack of such.

    Raises:
        ValueError: it is none.
    """
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{function}: {name} must be square matrices, got shape {x.shape}")


def is_complex(x: tc.Tensor) -> bool:
    """Whether a Tensor is of complex numbers."""
    return x.dtype.kind == "complex floating"


def conj(x: tc.Tensor) -> tc.Tensor:
    """The complex conjugate; real numbers as they are, without an op."""
    return tc.conj(x) if is_complex(x) else x


def adjoint(x: tc.Tensor) -> tc.Tensor:
    """The conjugate transpose of each matrix."""
    return conj(x).mT


def zeros(x: tc.Tensor, *shape: int) -> tc.Tensor:
    """Zeros of a shape, in the dtype and on the device of a Tensor."""
    return tc.zeros(shape, dtype=x.dtype, backend=x.backend.root, device=x.device)


def identity(x: tc.Tensor, n: int) -> tc.Tensor:
    """The identity matrix, in the dtype and on the device of a Tensor."""
    return tc.eye(n, dtype=x.dtype, backend=x.backend.root, device=x.device)


def constant(x: tc.Tensor, values: Any) -> tc.Tensor:
    """Numbers of a nested list, in the dtype and on the device of a Tensor."""
    return tc.asarray(values, dtype=x.dtype, backend=x.backend.root, device=x.device)


def real_constant(x: tc.Tensor, values: Any) -> tc.Tensor:
    """Real numbers of a nested list, in the precision and on the device of a Tensor that may be complex."""
    return constant(tc.real(x) if is_complex(x) else x, values)
