"""Dtypes of results: the one mechanism by which every op on every backend follows `base.dtypes.common_dtype`.

Array libraries agree on the dtypes of operations within one kind, and differ between kinds: of int64 with float32 NumPy
makes float64, PyTorch float32, and strict libraries an error. So call paths look at the dtype of a result, which takes
less time than to compare those of operands: if it is the usual one of the backend, or that of an operand, the library
has done what the rule says. Else `converted` gives the operands with the integers among them converted to floats, by
ops, and the call is made again. Records then hold arrays of one dtype, and compiled code has the conversions.

A backend whose kernels follow the rule says so (`Backend.promotes`), and nothing is looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from tape_core.backends.kernels import REFUSED
from tape_core.base.dtypes import (
    DType,
    common_dtype,
    complex64,
    get_default_dtype,
    integer_limits,
    out_of_bounds,
    precision,
    promote,
)
from tape_core.base.lookup import ops
from tape_core.base.mistakes import in_users_terms
from tape_core.engine.rules import NONDIFF
from tape_core.engine.tensor import SCALARS, Tensor, wrap
from tape_core.typing import Raw

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.op import Op

NEVER = object()
"""The usual dtype of backends that have none: each result is looked at."""


EACH = (-1,)
"""The places of all arrays of a sequence."""


def promoted_inputs(op: Op) -> tuple[int, ...]:
    """Return the places of the inputs whose common dtype is that of the result; indices, labels and masks are none."""
    if op.writes_into_first or not op.promotes:
        return ()
    if op.sequence:
        return EACH
    differentiable = tuple([k for k, name in enumerate(op.inputs) if op.rules.get(name) is not NONDIFF])
    return tuple(range(len(op.inputs))) if op.elementwise and not differentiable else differentiable


def usual_dtype(op: Op, backend: Backend) -> Any:
    """Return the raw dtype that needs no look at results of an op; `NEVER` if all do, None if none does."""
    # A dtype that is asked for stays what it is.
    if not op.promoted or op.keeps_integers or op.takes_dtype or backend.promotes(op.name):
        return None
    # A kernel of several calls may take a float16 of integers on its way, whatever it gives.
    usual = None if op.kernel is not None else backend.usual_dtype
    return NEVER if usual is None else usual


def usual_scalar(usual: Any, backend: Backend) -> type | None:
    """Return the type of results without dimensions that have the usual dtype, if the backend has such types."""
    return next((kind for kind in backend.scalar_types if kind().dtype is usual), None)


class MixedDtypesError(TypeError):
    """A kernel is not called with arrays of several dtypes, but with their common one instead; see `unmixed`."""


def unmixed(op: Op, kernel: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    """Return a kernel that refuses arrays of several dtypes, where it is made of several functions of the library.

    Each of these promotes by itself, and what is right in between, as the negative of an unsigned integer or a float16,
    is wrong for the result.
    """
    places = op.promoted
    if op.kernel is None or backend.promotes(op.name) or op.keeps_integers or not (places is EACH or places[1:]):
        return kernel
    dtype_of = backend.dtype

    def checked(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if op.sequence else args
        met: set[DType] = set()
        for a in given if places is EACH else [given[k] for k in places]:
            kind = type(a)
            if kind in SCALARS:
                # Others are weak beside any array.
                if (kind is float or kind is complex) and not all([dtype.inexact for dtype in met]):
                    raise MixedDtypesError(f"{op.name} takes arrays of one dtype")
            elif a is not None:
                met.add(precision(dtype_of(a.dtype)))
        if len(met) > 1:
            raise MixedDtypesError(f"{op.name} takes arrays of one dtype")
        return kernel(*args, **kwargs)

    return checked


def check_real(op: Op, values: Sequence[Any]) -> None:
    """Raise a TypeError for complex operands of an op of real numbers."""
    if op.complex_kernel is not REFUSED:
        return
    for k, value in enumerate(values):
        if isinstance(value, Tensor) and value.dtype.kind == "complex floating":
            found = f"{op.input_name(k)}: {value.dtype}{list(value.shape)}"
        elif type(value) is complex:
            found = f"{op.input_name(k)}: {value!r}"
        else:
            continue
        raise in_users_terms(
            TypeError(
                f"{op.name}({found}): it takes real numbers, not complex ones; give it a real part, by "
                "tape_core.real or tape_core.imag, or a magnitude, by tape_core.abs"
            )
        ) from None


def integer_error(op: Op, values: Sequence[Any], out: Any = None) -> OverflowError | None:
    """Return the error of an integer of Python's that arrays of integers beside it cannot hold; None if all can.

    Args:
        values: the operands: Tensors, Python numbers and None.
        out: the raw result, or the error that the kernel raised; None before the call of an op whose result has the
            dtype of the operands. A result of another dtype, as of a comparison or a quotient, is right whatever the
            number is.
    """
    wide = [v for v in values if type(v) is int and not 0 <= v < 128]
    tensors = [values[k] for k in op.promoted if k >= 0 and isinstance(values[k], Tensor)] if wide else []
    if not tensors:
        return None
    dtype = promote_all([t.dtype for t in tensors])
    made = getattr(out, "dtype", None)
    if made is not None and tensors[0].backend.dtype(made) is not dtype:
        return None
    wrong = next((text for number in wide if (text := out_of_bounds(number, dtype)) is not None), None)
    return None if wrong is None else OverflowError(wrong)


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip


def without_idle_bounds(op: Op, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the operands of `clip` without bounds that all numbers of the dtype keep; None if it has none of them.

    Raises:
        OverflowError: no number of the dtype keeps a bound.
    """
    x, least, greatest = values
    if any([type(v) is float for v in values]):  # the result is one of floats
        return None
    low, high = integer_limits(promote_all([v.dtype for v in values if isinstance(v, Tensor)]))
    kept = (
        None if type(least) is int and least <= low else least,
        None if type(greatest) is int and greatest >= high else greatest,
    )
    if (wrong := integer_error(op, (x, *kept))) is not None:
        raise wrong
    return None if kept == (least, greatest) else (x, *kept)


def with_integers_as_arrays(_: Op, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the operands with integers that the dtype does not have as arrays of their own; None if it has all."""
    tensor = next(v for v in values if isinstance(v, Tensor))
    if all([out_of_bounds(v, tensor.dtype) is None for v in values]):
        return None
    return tuple([ops.asarray(v, backend=tensor.backend) if type(v) is int else v for v in values])


def with_integers_in_bounds(op: Op, values: Sequence[Any]) -> None:
    """Raise an OverflowError for an integer that the dtype does not have."""
    if (wrong := integer_error(op, values)) is not None:
        raise wrong


FITTING: dict[str, Callable[[Op, Sequence[Any]], tuple[Any, ...] | None]] = {
    "clip": without_idle_bounds,
    "isin": with_integers_as_arrays,
    "search_in_order": with_integers_as_arrays,
}
"""What is done where an operand is an integer of Python's that the dtype of the arrays may not have."""


def converted(op: Op, values: Sequence[Any], out: Any) -> tuple[Any, ...] | None:
    """Return the operands with integers as floats, if the call is to be made again with these, or else None.

    Args:
        values: the operands: Tensors, Python numbers and None.
        out: the raw result or results, or the error that the kernel raised.
    """
    made = out if type(out) in (tuple, list) else (out,)
    if any([_is_complex(o, values) for o in made]):
        check_real(op, values)
    found = _conversion(op, values, out)
    return None if found is None else cast_to(found[0], values, found[1])


def _is_complex(out: Any, values: Sequence[Any]) -> bool:
    """Return whether a result is complex, which its backend meets here if it has met no complex number before."""
    dtype = getattr(out, "dtype", None)
    backend = next((v.backend for v in values if isinstance(v, Tensor)), None)
    return dtype is not None and backend is not None and backend.dtype(dtype).kind == "complex floating"


def call_again(
    backend: Backend, call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any] | None = None
) -> Any:
    """Return the result of a call that is made again with converted operands, after the first one has had warnings."""
    with backend.library.repeating():
        return call(*args, **(kwargs or {}))


def is_discarded(op: Op, backend: Backend, arrays: Sequence[Any], out: Raw) -> bool:
    """Return whether call paths discard the result of a kernel, and call it again with converted operands.

    Args:
        arrays: the operands: raw arrays, Python numbers and None.
        out: the raw result or results.
    """
    usual = usual_dtype(op, backend)
    if usual is None or getattr(out, "dtype", None) is usual:
        return False
    values = [wrap(a, backend) if hasattr(a, "dtype") else a for a in arrays]
    return _conversion(op, values, out) is not None


def _conversion(op: Op, values: Sequence[Any], out: Any) -> tuple[DType, Sequence[int]] | None:
    """Return the dtype and the places of the operands that are to be cast to it; see `converted`."""
    tensors, kinds = [], []
    for k in range(len(values)) if op.promoted is EACH else op.promoted:
        value = values[k]
        if isinstance(value, Tensor):
            tensors.append(k)
        elif type(value) in SCALARS:
            kinds.append(type(value))
    found = {values[k].dtype for k in tensors}
    floats = {dtype for dtype in found if dtype.inexact}
    failed = isinstance(out, Exception)
    if isinstance(out, MixedDtypesError) or (failed and len(floats) == len(found) > 1):
        wanted = common_dtype(found, kinds)
        return precision(wanted if wanted.inexact else promote_all(found)), tensors
    if len(floats) == len(found):
        return None
    if not floats and len(found) > 1 and (mixed := _integers_of_one_dtype(values, tensors, kinds, out)) is not None:
        return mixed
    if failed and op.takes_dtype:
        return None
    # An op of any dtype that fails for integers alone means it; beside floats a strict library may refuse the mixture.
    if failed and op.keeps_integers and not floats:
        return None
    if floats:
        wanted = common_dtype(found, kinds)
    else:
        # A function of real numbers, of integers alone. What refuses some integers, as a power does, may mean it.
        if failed and (op.refuses or not isinstance(out, TypeError | RuntimeError)):
            return None
        wanted = get_default_dtype()
    if not failed:
        backend = values[tensors[0]].backend
        made = [backend.dtype(o.dtype) for o in (out if type(out) in (tuple, list) else (out,)) if hasattr(o, "dtype")]
        if floats and all([not dtype.inexact or precision(dtype) is precision(wanted) for dtype in made]):
            return None
        if not any([dtype.inexact for dtype in made]) or (made == [wanted] and op.kernel is None):
            return None
    return precision(promote_all(floats or {wanted})), [k for k in tensors if not values[k].dtype.inexact]


def _integers_of_one_dtype(
    values: Sequence[Any], places: Sequence[int], kinds: Iterable[type], out: Any
) -> tuple[DType, Sequence[int]] | None:
    """Return the common dtype of operands that are all integers or bools, if a library refused them, or took another.

    The standard leaves bool beside integers open, and some libraries let the first operand decide.
    """
    wanted = common_dtype([values[k].dtype for k in places], kinds)
    if wanted.inexact:
        return None
    if not isinstance(out, Exception):
        dtype = getattr(out, "dtype", None)
        made = None if dtype is None else values[places[0]].backend.dtype(dtype)
        if made is None or made.inexact or made.kind == "bool" or made is wanted:
            return None
    return wanted, places


def promote_all(dtypes: Iterable[DType]) -> DType:
    """Return the common dtype of arrays."""
    return reduce(promote, dtypes)


def cast_to(dtype: DType, values: Sequence[Any], places: Iterable[int]) -> tuple[Any, ...]:
    """Return operands with those at some places in the precision of a dtype: complex ones stay complex."""
    cast = list(values)
    for k in places:
        own = values[k].dtype
        wanted = promote(dtype, complex64) if own.kind == "complex floating" else dtype
        if own is not wanted:
            cast[k] = ops.astype(values[k], wanted)
    return tuple(cast)
