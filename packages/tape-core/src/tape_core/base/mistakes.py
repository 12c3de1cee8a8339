"""Checks of arguments that many functions need, and suggestions for misspelled names."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any


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
