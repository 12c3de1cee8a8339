"""How a function of TensorFlow is made of one of tape_core: `op`, the one place that converts, calls and wraps."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import matched, native, static, wrap
from tape_tf.errors import translated
from tape_tf.names import export

_STATIC = frozenset(
    "axis axes shape perm k num size multiples paddings block_shape shift batch_dims num_segments depth repeats "
    "num_or_size_splits ksize strides dilations output_shape fft_length indexing num_lower num_upper minlength "
    "maxlength num_classes lower upper begin end offset".split()
)
"""Parameters that are shapes, axes or counts: tensors among them become Python ints."""

_DTYPES = frozenset({"dtype", "out_type", "output_type"})
"""Parameters that are dtypes: they arrive as those of tape_core."""


class Group(NamedTuple):
    """Parameters whose tensors must have one dtype."""

    names: tuple[str, ...]
    sequence: bool


def op(
    names: str,
    inputs: str = "x",
    *,
    kernel: str | None = None,
    differs: str = "",
    keep_scalars: bool = False,
    raw: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Publish a function under TensorFlow's names; its body gets values of tape_core and returns such.

    `name` is accepted and ignored. Errors that the core raises about values become InvalidArgumentErrors.

    Args:
        names: TensorFlow's names, such as `"math.add add"`.
        inputs: the parameters that are tensors. Those in one group must have one dtype, which Python numbers take; groups
            are separated by `;`. `*values` is a list of tensors of one dtype.
        kernel: TensorFlow's name of the operation, for messages.
        differs: what it does otherwise than TensorFlow's.
        keep_scalars: Python numbers beside a tensor are left to the core.
        raw: parameters to be left alone though they are called like a shape or a dtype.
    """
    groups = [
        Group(tuple(part.strip("*") for part in group.split()), group.strip().startswith("*"))
        for group in inputs.split(";")
        if group.strip()
    ]

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(body)
        parameters = tuple(signature.parameters)
        label = kernel or "".join(part.capitalize() for part in body.__name__.strip("_").split("_"))
        statics = [p for p in parameters if p in _STATIC and p not in raw.split() and p not in inputs.split()]
        typed = [p for p in parameters if p in _DTYPES and p not in raw.split()]
        defaults = {p: given.default for p, given in signature.parameters.items()}
        count = len(parameters)

        @wraps(body)
        def function(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("name", None)
            if len(args) == count + 1:
                args = args[:count]  # the name, by position
            given = dict(zip(parameters, args, strict=False))
            if len(args) > count or (kwargs and not given.keys().isdisjoint(kwargs)):
                signature.bind(*args, **kwargs)
            given.update(kwargs)
            try:
                for group in groups:
                    if group.sequence:
                        given[group.names[0]] = _sequence(given, group.names[0], label)
                    elif len(group.names) == 1:
                        (only,) = group.names
                        value = given.get(only)
                        if value is not None:
                            given[only] = native(value)
                    else:
                        there = [
                            p
                            for p in group.names
                            if given.get(p, defaults[p]) is not None and _given(given, defaults, p)
                        ]
                        found = matched([given.get(p, defaults[p]) for p in there], label, keep_scalars)
                        given.update(zip(there, found, strict=True))
                for p in statics:
                    if p in given:
                        given[p] = static(given[p])
                for p in typed:
                    if p in given:
                        given[p] = dtypes.native_dtype(given[p])
                return wrap(body(**given))
            except (ValueError, IndexError) as error:
                raise _reraised(error, label) from error

        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                *signature.parameters.values(),
                inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None),
            ]
        )
        return export(names, function, differs)  # type: ignore[no-any-return]

    return decorate


def _given(given: dict[str, Any], defaults: dict[str, Any], parameter: str) -> bool:
    return parameter in given or defaults[parameter] is not inspect.Parameter.empty


def _sequence(given: dict[str, Any], parameter: str, label: str) -> list[tc.Tensor]:
    values = given[parameter]
    if not isinstance(values, list | tuple):
        values = list(values)
    return matched(list(values), label) if values else []


def _reraised(error: ValueError | IndexError, label: str) -> Exception:
    return translated(error, label)


def binary(names: str, function: Callable[..., Any], kernel: str, *, differs: str = "") -> Callable[..., Any]:
    """Publish an elementwise function of two tensors, `f(x, y)`; the short way, since operators are made of these."""
    from tape_tf.tensor import Tensor, wrap_tensor

    def call(x: Any, y: Any, name: Any = None) -> Any:
        if type(x) is Tensor and type(y) is Tensor:
            a, b = x.native, y.native
            if a.dtype is not b.dtype:
                matched([x, y], kernel)
        else:
            a, b = matched([x, y], kernel, keep_scalars=True)
        try:
            return wrap_tensor(function(a, b))
        except (ValueError, IndexError) as error:
            raise _reraised(error, kernel) from error

    return _labelled(call, names, function, differs)


def unary(names: str, function: Callable[..., Any], *, differs: str = "") -> Callable[..., Any]:
    """Publish an elementwise function of one tensor, `f(x)`."""
    from tape_tf.tensor import Tensor, wrap_tensor

    label = names.split()[0].rpartition(".")[2].capitalize()

    def call(x: Any, name: Any = None) -> Any:
        try:
            return wrap_tensor(function(x.native if type(x) is Tensor else native(x)))
        except (ValueError, IndexError) as error:
            raise _reraised(error, label) from error

    return _labelled(call, names, function, differs)


def _labelled(call: Callable[..., Any], names: str, function: Callable[..., Any], differs: str) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = names.split()[0].rpartition(".")[2]
    call.__doc__ = function.__doc__
    return export(names, call, differs)  # type: ignore[no-any-return]
