"""Checks of arguments that many functions need, and suggestions for misspelled names."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class NoCounterpartError(TypeError):
    """A function of another library, or one of its arguments, has no counterpart for Tensors."""

    def __reduce__(self) -> tuple[Any, ...]:
        return TypeError, self.args


# Tracebacks show the error that users know.
NoCounterpartError.__module__, NoCounterpartError.__qualname__ = "builtins", "TypeError"


_KEYWORDS = {
    "a_max": ("max",), "a_min": ("min",), "axes": ("axis",), "ddof": ("correction", "ddof"),
    "descending": ("largest",), "dim": ("axis",), "dim0": ("axis1",), "dim1": ("axis2",), "dims": ("axis",),
    "in_dims": ("in_axes",), "keep_dims": ("keepdims",), "keepdim": ("keepdims",), "key": ("rng",),
    "kernel_size": ("window", "size"), "loc": ("mean", "loc"), "maxval": ("high",), "minval": ("low",),
    "ndim": ("axis",), "out_dims": ("out_axes",), "p": ("rate", "ord"), "scale": ("stddev",), "seed": ("rng",),
    "size": ("shape",), "static_argnums": ("static_argnames",), "std": ("stddev",), "steps": ("num",),
    "target": ("labels",), "unbiased": ("correction", "ddof"),
}  # fmt: skip
"""Keywords of NumPy, PyTorch and JAX, and what the same parameter may be called here."""
_KEYWORDS_SAID = {
    "grad": "gradients are what tape_core.GradientTape and tape_core.grad compute",
    "order": "arrays have no order of memory here; leave it out",
    "out": "functions write into no array here; use what they return",
    "requires_grad": "a tape_core.Variable is watched when a GradientTape reads it, and tape.watch(x) watches a Tensor",
    "where": "choose elements before, with tape_core.where",
}
_SUGGESTION = re.compile(r"\.? Did you mean '\w+'\?")
"""What Python adds to such an error from 3.13 on; here more is known, and it is said in the same words everywhere."""


def meant(name: object, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return what messages add about an unknown name: the known name that is most like it, or nothing.

    >>> meant("tahn", ["tan", "tanh"]), meant("tahn", ["matmul"])
    ("; did you mean 'tanh'?", '')
    """
    return suggest(most_like(str(name), known, cutoff=cutoff))


def most_like(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like another one, or None if none is like it."""
    from difflib import get_close_matches

    known = sorted(known)
    # Two letters exchanged are the most frequent slip, and difflib ranks "tan" above "tanh" for "tahn".
    swapped = [other for other in known if sorted(other) == sorted(name)]
    close = swapped or get_close_matches(name, known, n=1, cutoff=cutoff)
    return close[0] if close else None


def suggest(close: str | None) -> str:
    """Return what messages add about an unknown name where a known one is like it; nothing for None."""
    return "" if close is None else f"; did you mean {close!r}?"


def call_mistake(error: TypeError, known: Iterable[str]) -> str:
    """Return what a message adds about an unknown keyword: what it is called here, or the name that is most like it.

    Args:
        error: of the call: Python's own, or that of `inspect.Signature.bind`.
        known: the names of the parameters.
    """
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None:
        return ""
    keyword, known = found[1], list(known)
    called = next((name for name in _KEYWORDS.get(keyword, ()) if name in known), None)
    if called is not None:
        return f"; it is called {called!r} here"
    said = _KEYWORDS_SAID.get(keyword)
    return f"; {said}" if said else meant(keyword, known)


def explaining(function: F) -> F:
    """A decorator of functions that are called in another library's words: the error says what to write here.

    It is for functions that are no ops, whose call path does the same without a wrapper.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            # Where the call itself is wrong, the function has no frame in the traceback.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            plain = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
            spelled = f"{function.__name__}{inspect.Signature(plain)}"
            text = _SUGGESTION.sub("", str(error)).replace(function.__qualname__, function.__name__)
            hint = call_mistake(error, [p.name for p in plain if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)])
            if "were given" in text and plain[:1] and (plain[0].name, plain[0].default) == ("shape", plain[0].empty):
                hint = "; a shape of several sizes is one argument, a tuple"
            raise TypeError(f"{text}{hint}; its signature is {spelled}") from None

    return call  # type: ignore[return-value]  # it has the signature of the function


def check_callable(what: str, name: str, f: object) -> None:
    """Raise a TypeError unless the value can be called."""
    if not callable(f):
        raise TypeError(f"{what}: {name} must be a function, got {f!r}")


def integer(what: str, name: str, value: object, least: int | None = None) -> int:
    """Return an argument that is a whole number as a Python int.

    >>> integer("Dense", "units", 3, 1)
    3

    Raises:
        TypeError: it is none; `True` and 2.0 are none, either.
        ValueError: it is less than `least`.
    """
    try:
        # bool is a subclass of int: `units=True` is an argument in the wrong place.
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]  # it raises for others
    except TypeError:
        raise TypeError(f"{what}: {name} must be an integer; got {value!r} of type {type(value).__name__}") from None
    if least is not None and number < least:
        raise ValueError(f"{what}: {name} must be at least {least}; got {number}")
    return number


def real(what: str, name: str, value: object) -> float:
    """Return an argument that is a real number as a Python float; an empty `what` is not shown.

    >>> real("Dropout", "rate", 1)
    1.0

    Raises:
        TypeError: it is none; text and `True` are none, either.
    """
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        return float(value)  # type: ignore[arg-type]  # likewise
    except TypeError:
        where = f"{what}: {name}" if what else name
        raise TypeError(f"{where} must be a number; got {value!r} of type {type(value).__name__}") from None


def no_sequence(what: str, name: str, of: str, value: object, error: TypeError) -> TypeError:
    """Return the error for a value that is no list or tuple; if it is one, `error`, which is about something else."""
    if hasattr(type(value), "__iter__"):
        return error
    return TypeError(f"{what}: {name} must be a list or tuple of {of}; got {value!r} of type {type(value).__name__}")


def sequence(what: str, name: str, of: str, value: object) -> tuple[Any, ...]:
    """Return an argument that can be iterated over as a tuple.

    Raises:
        TypeError: it is none.
    """
    try:
        return tuple(value)  # type: ignore[arg-type]  # likewise
    except TypeError as error:
        raise no_sequence(what, name, of, value, error) from None


def flag(what: str, name: str, value: object) -> bool:
    """Return an argument that is True or False as a bool; 1, 0 and booleans of array libraries are allowed, too.

    Raises:
        TypeError: it is neither, as the text "no", which would count as true.
    """
    if isinstance(value, bool):
        return value
    if (isinstance(value, int) and value in (0, 1)) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise TypeError(f"{what}: {name} must be True or False; got {value!r} of type {type(value).__name__}")


def shape_of(what: str, shape: object) -> tuple[int, ...]:
    """Return a shape that is given as an integer or as several.

    Raises:
        TypeError: there is something else among them.
        ValueError: one is negative.
    """
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    try:
        found = tuple([operator.index(size) for size in sizes])
    except TypeError:
        raise TypeError(f"{what}: shape must be an integer or a tuple of them; got {shape!r}") from None
    if any([size < 0 for size in found]):
        raise ValueError(f"{what}: shape must not have negative sizes; got {shape!r}")
    return found


def in_users_terms(error: Any, whole: str | None = None) -> Any:
    """Mark an error as one in the user's terms, since its class may be one of an array library, and return it.

    Where it is raised it is no local variable: its traceback has that frame, so the two would keep each other alive.
    """
    error._tape_told = True
    if whole is not None:
        error._tape_whole = whole
    return error
