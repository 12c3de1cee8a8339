"""Texts for prompts, debuggers and test reports: they never raise, also of objects that are half made or used up."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T", bound=Any)


def lenient(text: Callable[[T], str]) -> Callable[[T], str]:
    """Have a `__repr__` say what is the matter with an object where it would raise.

    A debugger shows objects whose `__init__` has not ended, arrays of a trace that is over, donated ones, and those of
    a device that has failed.

    >>> class Point:
    ...     @lenient
    ...     def __repr__(self):
    ...         return f"Point({self.x}, {self.y})"
    >>> Point()
    <Point that is not initialised>
    """

    @wraps(text)
    def shown(self: T) -> str:
        try:
            return text(self)
        except AttributeError:
            return f"<{type(self).__name__} that is not initialised>"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
            return f"<{type(self).__name__}: {error}>"

    return shown


def lenient_html(html: Callable[[T], str]) -> Callable[[T], str]:
    """Have a `_repr_html_` show the `repr` of an object where it would raise; see :func:`lenient`."""

    @wraps(html)
    def shown(self: T) -> str:
        try:
            return html(self)
        except Exception:  # noqa: BLE001 - the repr says what is the matter
            from html import escape

            return f"<pre>{escape(repr(self))}</pre>"

    return shown


def counted(number: int, noun: str) -> str:
    """Return a number with a noun.

    >>> counted(1, "variable"), counted(1000, "parameter")
    ('1 variable', '1,000 parameters')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"
