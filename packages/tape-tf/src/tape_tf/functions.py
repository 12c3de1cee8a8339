"""How a function of TensorFlow is made of one of tape_core: `op`, the one place that converts, calls and wraps."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import check_floating, matched, native, static, wrap
from tape_tf.errors import translated
from tape_tf.names import export
from tape_tf.tensor import Tensor, wrap_tensor

# fmt: off
_STATIC = frozenset({
    "axes", "axis", "batch_dims", "begin", "block_shape", "depth", "dilations", "end", "fft_length", "indexing",
    "k", "ksize", "lower", "maxlength", "minlength", "multiples", "num", "num_classes", "num_lower",
    "num_or_size_splits", "num_segments", "num_upper", "offset", "output_shape", "paddings", "perm", "repeats",
    "shape", "shift", "size", "strides", "upper",
})
# fmt: on
"""Parameters that are shapes, axes or counts: tensors among them become Python ints."""

_DTYPES = frozenset({"dtype", "out_type", "output_type"})
"""Parameters that are dtypes: they arrive as those of tape_core."""


class Group(NamedTuple):
    """Parameters whose tensors must have one dtype."""

    names: tuple[str, ...]
    sequence: bool

    def convert(self, given: dict[str, Any], label: str, keep_scalars: bool) -> None:
        """Put values of tape_core in place of what is given; what is missing or None stays so."""
        there = [p for p in self.names if given.get(p) is not None]
        if len(there) == 1:
            value = given[there[0]]
            if self.sequence:
                values = list(value)
                given[there[0]] = matched(values, label) if values else []
            else:
                given[there[0]] = value.native if type(value) is Tensor else native(value)
        elif there:
            given.update(zip(there, matched([given[p] for p in there], label, keep_scalars), strict=True))


def _short(names: str) -> str:
    """What a function of these names is called."""
    return names.split(maxsplit=1)[0].rpartition(".")[2]


def op(
    names: str,
    inputs: str = "x",
    *,
    kernel: str | None = None,
    differs: str = "",
    floating: bool = False,
    keep_scalars: bool = False,
    raw: str = "",
    publish: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Publish a function under TensorFlow's names; its body gets values of tape_core and returns such.

    `name` is accepted and ignored. Errors that the core raises about values become InvalidArgumentErrors.

    Args:
        names: TensorFlow's names, such as `"math.add add"`.
        inputs: the parameters that are tensors. Those in one group must have one dtype, which Python numbers take;
            groups are separated by `;`. `*values` is a list of tensors of one dtype.
        kernel: TensorFlow's name of the operation, for messages.
        differs: what it does otherwise than TensorFlow's.
        floating: the tensors of the first group must be floating or complex.
        keep_scalars: Python numbers beside a tensor are left to the core.
        raw: parameters to be left alone though they are called like a shape or a dtype.
        publish: with False, the names are only for messages.
    """
    groups = [
        Group(tuple(part.strip("*") for part in group.split()), group.strip().startswith("*"))
        for group in inputs.split(";")
        if group.strip()
    ]

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        short = _short(names)
        signature = inspect.signature(body)
        parameters = tuple(signature.parameters)
        label = kernel or "".join(part.capitalize() for part in short.split("_"))
        statics = [p for p in parameters if p in _STATIC and p not in raw.split() and p not in inputs.split()]
        typed = [p for p in parameters if p in _DTYPES and p not in raw.split()]
        needed = {p for p, parameter in signature.parameters.items() if parameter.default is parameter.empty}
        required = [p for group in groups for p in group.names if p in needed]
        body.__name__ = body.__qualname__ = short

        @wraps(body)
        def function(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("name", None)
            if len(args) == len(parameters) + 1 and (args[-1] is None or isinstance(args[-1], str)):
                args = args[:-1]  # the name, by position
            given = dict(zip(parameters, args, strict=False))
            if len(args) > len(given) or (kwargs and not given.keys().isdisjoint(kwargs)):
                signature.bind(*args, **kwargs)  # raises
            given |= kwargs
            try:
                for group in groups:
                    group.convert(given, label, keep_scalars)
                if floating:
                    for p in groups[0].names:
                        check_floating(given.get(p), label)
                for p in statics:
                    if p in given:
                        given[p] = static(given[p])
                for p in typed:
                    if p in given:
                        given[p] = dtypes.native_dtype(given[p])
                found = body(**given)
                return wrap_tensor(found) if type(found) is tc.Tensor else wrap(found)
            except (ValueError, IndexError) as error:
                raise translated(error, label) from error
            except (AttributeError, TypeError) as error:
                missing = next((p for p in required if given.get(p, p) is None), None)
                if missing is None:
                    raise
                text = (
                    f"{missing}: Attempt to convert a value (None) with an unsupported type ({type(None)}) to a Tensor."
                )
                raise translated(ValueError(text), label) from error

        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                *signature.parameters.values(),
                inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None),
            ]
        )
        return export(names, function, differs) if publish else function

    return decorate


def binary(names: str, function: Callable[..., Any], kernel: str, *, differs: str = "") -> Callable[..., Any]:
    """Publish an elementwise function of two tensors, `f(x, y)`; the short way, since operators are made of these."""

    def call(x: Any, y: Any, name: Any = None) -> Any:
        kind = type(y)
        if type(x) is not Tensor:
            a, b = matched([x, y], kernel, keep_scalars=True)
        else:
            a, dtype = x.native, x.native.dtype
            if kind is Tensor and y.native.dtype is dtype:
                b = y.native
            elif dtype.inexact and (kind is float or kind is int):
                b = y
            else:
                a, b = matched([x, y], kernel, keep_scalars=True)
        try:
            return wrap_tensor(function(a, b))
        except (ValueError, IndexError) as error:
            raise translated(error, kernel) from error

    return _labelled(call, names, function, differs)


def unary(names: str, function: Callable[..., Any], *, floating: bool = True, differs: str = "") -> Callable[..., Any]:
    """Publish a function of one tensor, `f(x)`, which must be floating or complex unless told otherwise."""
    label = _short(names).capitalize()

    def call(x: Any, name: Any = None) -> Any:
        try:
            value = x.native if type(x) is Tensor else native(x)
            if floating:
                check_floating(value, label)
            return wrap_tensor(function(value))
        except (ValueError, IndexError) as error:
            raise translated(error, label) from error

    return _labelled(call, names, function, differs)


def _labelled(call: Callable[..., Any], names: str, function: Callable[..., Any], differs: str) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = _short(names)
    call.__doc__ = function.__doc__
    return export(names, call, differs)  # type: ignore[no-any-return]
