"""What a call of an op that fails tells its user: the op, its inputs with shapes and dtypes, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backends.errors import AxisError
from tape_core.base.dtypes import DType, out_of_bounds
from tape_core.base.lookup import ops
from tape_core.base.mistakes import call_mistake, in_users_terms
from tape_core.engine.cotangents import unequal
from tape_core.engine.levels import BatchedArray, MisplacedError, height, lift, move_to_level
from tape_core.engine.promotion import COMPARISONS, MixedDtypesError, check_real, converted, integer_error
from tape_core.engine.rule_errors import missing_attribute
from tape_core.engine.tensor import Tensor, wrap
from tape_core.staging import UnrepeatableError

if TYPE_CHECKING:
    from tape_core.engine.op import Op

_CALLED_OTHERWISE = {
    "round": "; x.round(decimals) and round(x, digits) round to digits",
    "where": "; tape_core.nonzero(condition) gives the places alone",
}
"""What an error says of calls that other libraries allow."""


def call_beyond(op: Op, call: Callable[..., Any], x1: Any, x2: Any) -> Any:
    """Call an elementwise op with an array of integers and an integer of Python's that its dtype does not have.

    Libraries wrap the number, so that -1 equals 255, or raise errors. In a comparison, each element is on the same side
    of it as 0 is. Where the result is one of floats, the number is one; where it is a truth value, it is true.

    Raises:
        OverflowError: the result is one of integers.
    """
    compare = COMPARISONS.get(op.name)
    is_first = isinstance(x1, Tensor)
    array = x1 if is_first else x2
    if compare is not None:
        return ops.full_like(array, compare(0, x2) if is_first else compare(x1, 0), dtype="bool")
    none = ops.zeros((0,), dtype=array.dtype, backend=array.backend)
    made: DType = (call(none, 1) if is_first else call(1, none)).dtype
    if made.kind.endswith("integer"):
        return fail(op, OverflowError(out_of_bounds(x2 if is_first else x1, made)), (x1, x2))
    other = float(x2 if is_first else x1) if made.inexact else 1
    return call(x1, other) if is_first else call(other, x2)


def fail(
    op: Op, error: Exception, values: Sequence[Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Re-raise a kernel's error in the user's terms: the op, its inputs by name with shapes and dtypes.

    If inputs only were on another level of vmap than their hidden axes are now, return the result for them there.
    """
    if isinstance(error, UnrepeatableError):
        raise error
    if isinstance(error, MisplacedError):
        return _call_on_level(op, values, args, kwargs or {})
    check_real(op, values)
    error = integer_error(op, values, error) or error
    if (cast := converted(op, values, error)) is not None:
        # Some libraries refuse what others promote. If it fails as well, it is told of what the user gave.
        operands = (cast,) if op.sequence else cast
        try:
            return op.function(*operands, *args, **(kwargs or {}))
        except Exception as again:  # noqa: BLE001 - re-raised below
            if isinstance(error, MixedDtypesError):
                error = again.__cause__ if isinstance(again.__cause__, Exception) else again
    # Call paths bind no signature, so a wrong number or name of arguments shows only now, as an error of the
    # kernel.
    try:
        given = op.signature.bind(*([values] if op.sequence else values), *args, **(kwargs or {}))
    except TypeError as mismatch:
        raise call_error(op, mismatch) from None
    tensors = [v for v in values if isinstance(v, Tensor)]
    given.apply_defaults()
    if op.axis is not None and (wrong := op.axis.error(values, given.arguments)) is not None:
        error = wrong
    elif op.advice is not None:
        error = op.advice(*[v.shape if isinstance(v, Tensor) else () for v in values]) or error
    apart = len({v.device for v in tensors}) > 1
    shown = ", ".join(
        f"{op.input_name(k)}: {v.dtype}{list(v.shape)}{f' on {v.device}' * apart}"
        if isinstance(v, Tensor)
        else f"{op.input_name(k)}: {v!r}"
        for k, v in enumerate(values)
    )
    extra = "".join(f", {describe(v)}" for v in args)
    extra += "".join(f", {k}={describe(v)}" for k, v in (kwargs or {}).items())
    arrays = [v for v in _flat([*args, *(kwargs or {}).values()]) if isinstance(v, Tensor)]
    # A kernel with a Tensor for `axis` or the like fails deep inside a library, with an error that does not say so.
    if arrays and isinstance(error, AttributeError | RecursionError):
        error = TypeError("a Tensor was given for a parameter, which takes a Python value: see int and float")
    if type(error) is AttributeError and (flat := [k for k, v in enumerate(values) if not getattr(v, "shape", ())]):
        error = ValueError(f"{', '.join([op.input_name(k) for k in flat])}: an array with dimensions is needed")
    known = tensors[0].backend.user_error(error)
    if (missing := missing_attribute(error, tensors[0].backend)) is not None:
        known = TypeError, missing
    elif type(error) is AxisError and not tensors[0].backend.level:  # Tape's own, whatever the library says
        known = AxisError, str(error)
    # Some libraries have TypeErrors, or errors of their own, for shapes that do not go together.
    if (known is None or not issubclass(known[0], ValueError)) and not tensors[0].backend.level:
        wrong_shapes = _misfit(op, given.arguments)
        known = known if wrong_shapes is None else (ValueError, wrong_shapes)
    is_told = type(error) in _OF_USERS or hasattr(error, "_tape_told")
    if known is None and tensors[0].backend.height and is_told:
        # Inside vmap users know one example; what failed was the call for all of them, in the innermost text.
        whole = getattr(error, "_tape_whole", None) or str(error)
        then = "; called for all of them: " if whole.startswith(f"{op.name}(") else ": "
        text = f"{op.name}({shown}{extra}) of one example, inside vmap{then}{whole}"
        raise in_users_terms(type(error)(text), whole) from error
    # An error that no library is known to raise for its arguments stays what it is; a note says which call it was.
    if known is None:
        error.add_note(f"in tape_core.{op.name}({shown}{extra})")
        raise error
    kind, text = known
    raise in_users_terms(kind(f"{op.name}({shown}{extra}): {text}")) from error


def call_error(op: Op, error: TypeError) -> TypeError:
    hint = call_mistake(error, op.signature.parameters)
    if "too many positional" in str(error) and "axis" in op.parameters.defaults:
        hint += "; give the axis by keyword, axis=..."
    hint += _CALLED_OTHERWISE.get(op.name, "")
    return TypeError(f"{op.name}: {error}{hint}; its signature is {op.spelled}")


def _misfit(op: Op, arguments: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the shapes of inputs, as far as the op knows."""

    def shape(value: Any) -> Any:
        return [shape(v) for v in value] if type(value) in (tuple, list) else tuple(getattr(value, "shape", ()))

    shapes = {name: shape(arguments[name]) for name in op.inputs}
    if op.misfit is not None:
        return op.misfit(**{**arguments, **shapes})
    return unequal(list(shapes.values())) if op.elementwise else None


def _call_on_level(op: Op, values: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result for inputs, and arrays among parameters, on the levels of vmap of their hidden axes."""
    given = [move_to_level(v) if isinstance(v, Tensor) else v for v in values]
    places = [wrap(p, p.backend) for p in _flat([*args, *kwargs.values()]) if type(p) is BatchedArray]
    tensors = [*[v for v in given if isinstance(v, Tensor)], *map(move_to_level, places)]
    backend = max([t.backend for t in tensors], key=height)

    def moved(parameter: Any) -> Any:
        if type(parameter) is BatchedArray:
            return lift(wrap(parameter, parameter.backend), backend)._array
        if type(parameter) in (tuple, list):
            return type(parameter)([moved(part) for part in parameter])
        return parameter

    given = [lift(v, backend) if isinstance(v, Tensor) else v for v in given]
    args, kwargs = [moved(p) for p in args], {name: moved(p) for name, p in kwargs.items()}
    if op.takes_dtype:  # it is in the backend's terms by now
        place = op.parameters.places.get("dtype")
        if kwargs.get("dtype") is not None:
            kwargs["dtype"] = backend.dtype(kwargs["dtype"])
        elif place is not None and len(args) > place and args[place] is not None:
            args[place] = backend.dtype(args[place])
    return op.function(given, *args, **kwargs) if op.sequence else op.function(*given, *args, **kwargs)


def describe(value: Any) -> str:
    """Return the text of an op's parameter for messages: arrays by dtype and shape, also inside tuples and lists."""
    kind = type(value)
    if kind is tuple or kind is list:
        parts = ", ".join([describe(part) for part in value])
        return f"[{parts}]" if kind is list else f"({parts}{',' * (len(value) == 1)})"
    if isinstance(value, type) or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


_OF_USERS = (ValueError, IndexError, TypeError, AxisError)


def _flat(values: Sequence[Any]) -> list[Any]:
    return [one for value in values for one in (_flat(value) if type(value) in (tuple, list) else [value])]
