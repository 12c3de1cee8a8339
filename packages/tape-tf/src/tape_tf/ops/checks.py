"""tf.debugging: assertions. Those on values raise InvalidArgumentErrors, those on shapes and dtypes Python's errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tape_core as tc
from tape_core.staging import value_check

from tape_tf import dtypes
from tape_tf.conversion import convert_to_tensor, match_dtypes, native, static, wrap
from tape_tf.errors import InvalidArgumentError
from tape_tf.names import exported
from tape_tf.ops.elementwise import FUNCTIONS
from tape_tf.shapes import as_shape
from tape_tf.string_tensor import is_text
from tape_tf.tensor import Value
from tape_tf.typing import DTypeLike, IntLike, TensorLike

_PAIRS: dict[str, tuple[Callable[..., Any], str]] = {
    "equal": (tc.equal, "=="),
    "none_equal": (tc.not_equal, "!="),
    "less": (tc.less, "<"),
    "less_equal": (tc.less_equal, "<="),
    "greater": (tc.greater, ">"),
    "greater_equal": (tc.greater_equal, ">="),
}
_SIGNS: dict[str, tuple[Callable[..., Any], str]] = {
    "positive": (tc.greater, "> 0"),
    "non_negative": (tc.greater_equal, ">= 0"),
    "negative": (tc.less, "< 0"),
    "non_positive": (tc.less_equal, "<= 0"),
}


@value_check
def _require(holds: tc.Tensor, message: str | None, text: Callable[..., str], *values: Any) -> None:
    """Raise an InvalidArgumentError with `text(*values)` unless all of `holds` is true; also in compiled functions."""
    if not bool(tc.all(holds)):
        shown = text(*map(wrap, values))
        raise InvalidArgumentError(None, None, f"{message}\n{shown}" if message else shown)


def _publish_pair(short: str, function: Callable[..., Any], symbol: str) -> None:
    also = f" assert_{short}" if short in ("equal", "less", "greater") else ""

    @exported(f"debugging.assert_{short}{also}")
    def check(
        x: TensorLike, y: TensorLike, message: str | None = None, summarize: int | None = None, name: str | None = None
    ) -> None:
        if short in ("equal", "none_equal") and (is_text(x) or is_text(y)):
            one, other = convert_to_tensor(x), convert_to_tensor(y)
            holds = native(FUNCTIONS["equal" if short == "equal" else "not_equal"](one, other))
            _require(holds, message, lambda: f"Condition x {symbol} y did not hold.\nx: {one}\ny: {other}")
            return
        a, b = match_dtypes([x, y], f"Assert{short.capitalize()}")
        _require(function(a, b), message, lambda a, b: f"Condition x {symbol} y did not hold.\nx: {a:}\ny: {b:}", a, b)

    check.__name__ = check.__qualname__ = f"assert_{short}"
    check.__doc__ = f"Raise an InvalidArgumentError unless `x {symbol} y` everywhere."


def _publish_sign(short: str, function: Callable[..., Any], text: str) -> None:
    @exported(f"debugging.assert_{short}")
    def check(x: TensorLike, message: str | None = None, summarize: int | None = None, name: str | None = None) -> None:
        value = native(x)
        _require(
            function(value, 0), message, lambda x: f"Condition x {text} did not hold element-wise:\nx: {x:}", value
        )

    check.__name__ = check.__qualname__ = f"assert_{short}"
    check.__doc__ = f"Raise an InvalidArgumentError unless `x {text}` everywhere."


for _short, (_function, _symbol) in _PAIRS.items():
    _publish_pair(_short, _function, _symbol)
for _short, (_function, _symbol) in _SIGNS.items():
    _publish_sign(_short, _function, _symbol)


# -- values


@exported("debugging.assert_near")
def assert_near(
    x: TensorLike,
    y: TensorLike,
    rtol: TensorLike | None = None,
    atol: TensorLike | None = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raise an InvalidArgumentError unless `|x - y| <= atol + rtol * |y|` everywhere; both are 10 eps by default."""
    a, b = match_dtypes([x, y], "AssertNear")
    # TensorFlow's default tolerance, of the tensors' own dtype.
    eps = 10 * tc.finfo(a.dtype).eps
    relative = eps if rtol is None else float(native(rtol))
    absolute = eps if atol is None else float(native(atol))
    _require(
        tc.abs(a - b) <= absolute + relative * tc.abs(b),
        message,
        lambda a, b: f"x and y not equal to tolerance rtol = {relative}, atol = {absolute}\nx: {a:}\ny: {b:}",
        a,
        b,
    )


@exported("debugging.Assert Assert")
def Assert(condition: TensorLike, data: object, summarize: int | None = None, name: str | None = None) -> None:
    """Raise an InvalidArgumentError that shows `data` unless `condition` is true."""

    def text(*parts: Any) -> str:
        shown = " ".join(map(format, parts))
        return f"Expected 'tf.Tensor(False, shape=(), dtype=bool)' to be true. Summarized data: {shown}"

    parts = data if isinstance(data, list | tuple) else [data]
    _require(native(condition), None, text, *[native(part) if isinstance(part, Value) else part for part in parts])


@exported("debugging.check_numerics")
def check_numerics(tensor: TensorLike, message: str, name: str | None = None) -> Any:
    """Return the tensor after checking that it has no NaN and no infinity.

    Raises:
        InvalidArgumentError: it has some.
    """
    value = native(tensor)
    _require_numbers(value, message)
    return wrap(value)


@value_check
def _require_numbers(value: tc.Tensor, message: str) -> None:
    found = [what for what, test in (("NaN", tc.isnan), ("Inf", tc.isinf)) if bool(tc.any(test(value)))]
    if found:
        raise InvalidArgumentError(None, None, f"{message} : Tensor had {' and '.join(found)} values")


@exported("debugging.assert_all_finite")
def assert_all_finite(x: TensorLike, message: str, name: str | None = None) -> Any:
    """Return the tensor after checking that it has no NaN and no infinity: :func:`check_numerics`."""
    return check_numerics(x, message)


# -- shapes: they are known while a function is traced, so these checks cost nothing in compiled code


def _rank(x: TensorLike) -> int:
    return x.native.ndim if isinstance(x, Value) else native(x).ndim


def _check_rank(x: TensorLike, holds: bool, text: str, message: str | None) -> None:
    if not holds:
        shape = as_shape(x.native.shape if isinstance(x, Value) else native(x).shape)
        raise ValueError(
            f"{message or 'assert_rank'}. Tensor must have rank {text}. Received rank {_rank(x)}, shape {shape}"
        )


@exported("debugging.assert_rank assert_rank")
def assert_rank(x: TensorLike, rank: IntLike, message: str | None = None, name: str | None = None) -> None:
    """Raise a ValueError unless `x` has `rank` dimensions."""
    _check_rank(x, _rank(x) == static(rank), str(static(rank)), message)


@exported("debugging.assert_rank_at_least")
def assert_rank_at_least(x: TensorLike, rank: IntLike, message: str | None = None, name: str | None = None) -> None:
    """Raise a ValueError unless `x` has at least `rank` dimensions."""
    _check_rank(x, _rank(x) >= static(rank), f"at least {static(rank)}", message)


@exported("debugging.assert_rank_in")
def assert_rank_in(
    x: TensorLike, ranks: Sequence[IntLike], message: str | None = None, name: str | None = None
) -> None:
    """Raise a ValueError unless the number of dimensions of `x` is among `ranks`."""
    _check_rank(x, _rank(x) in static(ranks), f"in {static(ranks)}", message)


@exported("debugging.assert_scalar")
def assert_scalar(tensor: TensorLike, name: str | None = None, message: str | None = None) -> Any:
    """Return the tensor; raise a ValueError if it has dimensions."""
    if _rank(tensor):
        raise ValueError(f"{message or ''}Expected scalar shape, saw shape: {as_shape(native(tensor).shape)}.")
    return wrap(native(tensor))


@exported("debugging.assert_shapes", differs="sizes are numbers, letters, None or '...' not at all")
def assert_shapes(
    shapes: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None
) -> None:
    """Raise a ValueError unless tensors have the given shapes, pairs `(x, ("N", 3))`; a letter is one length."""
    # The lengths of letters, from the first tensor that has them.
    known: dict[str, int] = {}
    for x, sizes in shapes.items() if isinstance(shapes, dict) else shapes:
        found = native(x).shape
        wanted = tuple(sizes) if isinstance(sizes, list | tuple | str) else (sizes,)
        if len(found) != len(wanted):
            raise ValueError(f"{message or ''} tensor of shape {found} must have {len(wanted)} dimensions: {wanted}")
        for length, size in zip(found, wanted, strict=True):
            expected = known.setdefault(size, length) if isinstance(size, str) else size
            if expected is not None and length != expected:
                raise ValueError(f"{message or ''} tensor of shape {found} must have shape {wanted}, where {known}")


# -- dtypes


@exported("debugging.assert_type")
def assert_type(tensor: TensorLike, tf_type: DTypeLike, message: str | None = None, name: str | None = None) -> None:
    """Raise a TypeError unless the tensor has the dtype `tf_type`."""
    found = dtypes.of(native(tensor).dtype)
    if found != dtypes.as_dtype(tf_type):
        raise TypeError(f"{message or ''}  tensor must be of type {dtypes.as_dtype(tf_type)!r}; got {found!r}")


@exported("debugging.assert_integer")
def assert_integer(x: TensorLike, message: str | None = None, name: str | None = None) -> None:
    """Raise a TypeError unless the tensor has an integer dtype."""
    found = dtypes.of(native(x).dtype)
    if not found.is_integer:
        raise TypeError(f'{message or ""}  Expected "x" to be integer type.  Found: {found!r}')


@exported("debugging.is_numeric_tensor")
def is_numeric_tensor(tensor: object) -> bool:
    """Return whether `tensor` is a Tensor or Variable of any dtype but bool."""
    return isinstance(tensor, Value) and tensor.dtype.is_numeric


@exported("debugging.assert_same_float_dtype")
def assert_same_float_dtype(tensors: Sequence[TensorLike] | None = None, dtype: DTypeLike = None) -> Any:
    """Return the floating dtype that all tensors have; raise a ValueError if they have several."""
    found = {dtypes.of(native(t).dtype) for t in tensors or []} | ({dtypes.as_dtype(dtype)} if dtype else set())
    if len(found) > 1 or any(not kind.is_floating for kind in found):
        raise ValueError(f"Expected tensors of one floating dtype, got {sorted(kind.name for kind in found)}")
    return next(iter(found), dtypes.float32)
