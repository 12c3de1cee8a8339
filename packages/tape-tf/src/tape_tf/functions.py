"""`op`, the decorator that declares a function of TensorFlow: it converts arguments, calls the body, wraps results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import tape_core as tc

from tape_tf import dtypes
from tape_tf.coded import Results, call_with_numbers, moves_strings
from tape_tf.conversion import check_floating, match_dtypes, native, static, wrap
from tape_tf.errors import RaggedGivenError, StringsGivenError, translated
from tape_tf.names import export
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import TensorLike

OF_RAGGED: dict[str, Callable[..., Any]] = {}
"""By the name of a function, what it does with ragged tensors; others refuse them."""

_DTYPES = frozenset({"dtype", "out_type", "output_type"})
"""Names of parameters that are dtypes in all of TensorFlow's functions: their values are converted to tape_core's."""


class _Group(NamedTuple):
    """Tensor parameters of an op that must have one dtype."""

    names: tuple[str, ...]
    is_sequence: bool  # one parameter that is a list of tensors

    def convert(self, given: dict[str, Any], label: str, keep_scalars: bool) -> None:
        """Replace the arguments of this group in `given` by tape_core Tensors; missing and None ones stay so."""
        there = [p for p in self.names if given.get(p) is not None]
        if len(there) == 1:
            value = given[there[0]]
            if self.is_sequence:
                values = list(value)
                given[there[0]] = match_dtypes(values, label) if values else []
            else:
                given[there[0]] = value.native if type(value) is Tensor else native(value)
        elif there:
            # Only the arguments that are there take part: an optional bias that is None does not fix the dtype.
            given.update(zip(there, match_dtypes([given[p] for p in there], label, keep_scalars), strict=True))


def _function_name(names: str) -> str:
    """Return `"add"` for `"math.add add"`."""
    return names.split(maxsplit=1)[0].rpartition(".")[2]


def op(
    names: str,
    inputs: str = "x",
    *,
    static_args: str = "",
    kernel: str | None = None,
    differs: str = "",
    floating: bool = False,
    keep_scalars: bool = False,
    publish: bool = True,
    strings: Results | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: publish a function under TensorFlow's names; its body takes and returns tape_core values.

    The published function also takes `name`, which is ignored. ValueErrors and IndexErrors of the core become
    InvalidArgumentErrors. Parameters called `dtype`, `out_type` or `output_type` reach the body as tape_core's dtypes.

    Args:
        names: TensorFlow's names, such as `"math.add add"`.
        inputs: the parameters that are tensors. Those in one group must have one dtype, which Python numbers take;
            groups are separated by `;`. `*values` is a list of tensors of one dtype.
        static_args: the parameters that are axes, shapes or counts: tensors given for them become Python ints, lists
            become tuples.
        kernel: TensorFlow's name of the operation, for messages.
        differs: how it differs from TensorFlow's.
        floating: the tensors of the first group must be floating or complex.
        keep_scalars: leave Python numbers beside a tensor to the core.
        publish: with False, the names are only for messages.
        strings: for a function that only moves or compares elements, so that tensors of strings may be given, which of
            its results are such elements.

    Raises:
        TypeError: `inputs` or `static_args` name a parameter that the body does not have.
    """
    groups = [
        _Group(tuple(part.strip("*") for part in group.split()), group.strip().startswith("*"))
        for group in inputs.split(";")
        if group.strip()
    ]
    statics = static_args.split()

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        short = _function_name(names)
        signature = inspect.signature(body)
        parameters = tuple(signature.parameters)
        label = kernel or "".join(part.capitalize() for part in short.split("_"))
        tensors = [p for group in groups for p in group.names]
        if unknown := {*tensors, *statics} - {*parameters}:
            raise TypeError(f"op {short}: no parameter is called {', '.join(sorted(unknown))}")
        # Worked out when the function is declared, so that a call has loops over short tuples, and no inspection.
        typed = [p for p in parameters if p in _DTYPES]
        required = [p for p in tensors if signature.parameters[p].default is inspect.Parameter.empty]
        # For tracebacks and help: the body may be called `reduce` or `conv` in the code that makes several functions.
        body.__name__ = body.__qualname__ = short

        @wraps(body)
        def function(*args: Any, **kwargs: Any) -> Any:
            # TensorFlow names nodes of a graph by it; there is no graph.
            kwargs.pop("name", None)
            if len(args) == len(parameters) + 1 and (args[-1] is None or isinstance(args[-1], str)):
                args = args[:-1]  # `name`, given by position
            given = dict(zip(parameters, args, strict=False))
            if len(args) > len(given) or (kwargs and not given.keys().isdisjoint(kwargs)):
                signature.bind(*args, **kwargs)  # raises Python's own TypeError
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
                return wrap_tensor(found) if type(found) is tc.Tensor else wrap(found)  # the common case first
            except StringsGivenError as error:
                if strings is None:
                    raise StringsGivenError(label) from error
                return call_with_numbers(function, signature, groups[0].names, strings, args, kwargs)
            except (ValueError, IndexError) as error:
                raise translated(error, label) from error
            except RaggedGivenError:
                if short not in OF_RAGGED:
                    raise
                return OF_RAGGED[short](*args, **kwargs)
            except (AttributeError, TypeError) as error:
                # A None for a required tensor is looked for only when the body has failed: calls that work do not pay.
                missing = next((p for p in required if given.get(p, p) is None), None)
                if missing is None:
                    raise
                text = (
                    f"{missing}: Attempt to convert a value (None) with an unsupported type ({type(None)}) to a Tensor."
                )
                raise translated(ValueError(text), label) from error

        # The body's annotations say what reaches it. A caller may give anything that converts to a tensor.
        accepted = {p: "Sequence[TensorLike]" if g.is_sequence else "TensorLike" for g in groups for p in g.names}
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                *[p.replace(annotation=accepted[n]) if n in accepted else p for n, p in signature.parameters.items()],
                inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None),
            ],
            # The body returns a Tensor of tape_core, and the function one of the façade.
            return_annotation="Tensor" if signature.return_annotation == "tc.Tensor" else "Any",
        )
        return export(names, function, differs) if publish else function

    return decorate


def binary(
    names: str, function: Callable[..., Any], kernel: str, *, differs: str = "", strings: bool = False
) -> Callable[..., Any]:
    """Publish an elementwise function of two tensors, `f(x, y)`; with `strings` it compares strings as well.

    It does what `op` would, written out: the operators of tensors call these functions, so their overhead counts.
    """

    def call(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
        a: Any
        b: Any
        try:
            if type(x) is not Tensor:
                a, b = match_dtypes([x, y], kernel, keep_scalars=True)
            else:
                a, dtype = x.native, x.native.dtype
                if type(y) is Tensor and y.native.dtype is dtype:
                    b = y.native
                elif dtype.inexact and (type(y) is float or type(y) is int):
                    b = y  # the core's weak promotion gives it the tensor's dtype
                else:
                    a, b = match_dtypes([x, y], kernel, keep_scalars=True)
        except StringsGivenError:
            raise StringsGivenError(kernel) from None
        try:
            return wrap_tensor(function(a, b))
        except (ValueError, IndexError) as error:
            raise translated(error, kernel) from error

    return _export_call(moves_strings("x y", "none")(call) if strings else call, names, function, differs)


def unary(names: str, function: Callable[..., Any], *, floating: bool = True, differs: str = "") -> Callable[..., Any]:
    """Publish a function of one tensor, `f(x)`, which must be floating or complex unless `floating` is False."""
    label = _function_name(names).capitalize()

    def call(x: TensorLike, name: str | None = None) -> Tensor:
        try:
            value = x.native if type(x) is Tensor else native(x)
            if floating:
                check_floating(value, label)
            return wrap_tensor(function(value))
        except StringsGivenError:
            raise StringsGivenError(label) from None
        except (ValueError, IndexError) as error:
            raise translated(error, label) from error

    return _export_call(call, names, function, differs)


def _export_call(
    call: Callable[..., Any], names: str, function: Callable[..., Any], differs: str
) -> Callable[..., Any]:
    """Export `call` with the name it is published under and the docstring of the core's function."""
    call.__name__ = call.__qualname__ = _function_name(names)
    call.__doc__ = function.__doc__
    return export(names, call, differs)
