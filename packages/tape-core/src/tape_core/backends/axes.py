"""Axes of ops: the one place where `axis` and `axes` are checked, and counted from the start.

Libraries differ: some know no negative axes in some functions, some raise errors of other classes, some take axes that
are not there. So the kernels of a library get axes from 0 on, which are there, unless its backend says by
`Backend.checks` that the library sees to this itself; where such a library raises, the error becomes that of here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from operator import index
from typing import Any, Literal

from tape_core.backends.errors import AxisError

AxesOf = Literal["input", "line", "result", "each"]
"""In what an op counts its axes: in its first input or each array of its sequence; in that, which has to be 1-d where
no axis is given; in the result, which has as many dimensions more; or in each input, from its end where the axis is
negative."""


def normal_axis(axis: object, ndim: int, of: str = "an array") -> int:
    """Return an axis as a non-negative number.

    >>> normal_axis(-1, 3)
    2

    Raises:
        AxisError: there is no such axis.
        TypeError: it is no integer.
    """
    place: int = index(axis)  # type: ignore[arg-type]  # it raises for others
    if not -ndim <= place < ndim:
        raise AxisError(f"axis {place} is out of bounds for {of} of {ndim} dimension{'s' * (ndim != 1)}")
    return place % ndim


def line_axis(axis: object, ndim: int) -> int:
    """Return the axis of an op along one line as a non-negative number: of a vector it need not be given.

    >>> line_axis(None, 1)
    0

    Raises:
        AxisError: there is no such axis.
        TypeError: it is no integer.
        ValueError: none is given, for an array that has not got one alone.
    """
    if axis is not None:
        return normal_axis(axis, ndim)
    if ndim != 1:
        raise ValueError(f"axis must be given for an array of {ndim} dimensions")
    return 0


class AxisParameter:
    """The parameter `axis` or `axes` of an op.

    Args:
        name: which of the two.
        place: where it is among all arguments that may be given by position; None if it is given by name only.
        inputs: how many inputs the op has.
        sequence: whether its input is a sequence of arrays.
        of: in what it counts.
    """

    def __init__(self, name: str, place: int | None, inputs: int, sequence: bool, of: AxesOf) -> None:
        self.name = name
        self.place = place
        self.inputs = inputs
        self.sequence = sequence
        self.of = of
        self.counts_in_first = of in ("input", "line") and not sequence

    def normal(self, axis: Any, values: Sequence[Any]) -> Any:
        """Return an axis, or a tuple of axes, from 0 on; as it is where it is none, or the operands are no arrays.

        Raises:
            AxisError: an axis is not there.
        """
        several = isinstance(axis, tuple | list)
        axes: Sequence[Any] = axis if several else (axis,)
        if self.sequence:
            values = values[0] if values and isinstance(values[0], tuple | list) else ()
        arrays = values[: self.inputs] if self.of == "each" else values[:1]
        dimensions = [len(a.shape) for a in arrays if hasattr(a, "shape")]
        if not dimensions or not all([type(a) is int or isinstance(a, Integral) for a in axes]):
            return axis
        if self.of == "each":
            for ndim in dimensions:
                for a in axes:
                    normal_axis(a, ndim)
            return axis
        ndim = dimensions[0]
        if self.of == "result":
            ndim += len(axes)
            found = [normal_axis(a, ndim, "a result") for a in axes]
        else:
            found = [normal_axis(a, ndim) for a in axes]
        return tuple(found) if several else found[0]

    def normal_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call with `axis` from 0 on; `kwargs` may be changed.

        Raises:
            AxisError: an axis is not there.
        """
        name, place = self.name, self.place
        if (axis := kwargs.get(name)) is not None:
            # The usual case without further calls: it takes a part of the time that one call of a library takes.
            if type(axis) is int and self.counts_in_first and args and hasattr(x := args[0], "shape"):
                ndim = len(x.shape)
                if 0 <= axis < ndim:
                    return args, kwargs
                if -ndim <= axis < 0:
                    kwargs[name] = axis + ndim
                    return args, kwargs
            normal = self.normal(axis, args)
            return args, (kwargs if normal is axis else {**kwargs, name: normal})
        if place is not None and len(args) > place and args[place] is not None:
            return (*args[:place], self.normal(args[place], args), *args[place + 1 :]), kwargs
        return args, kwargs

    def error(self, values: Sequence[Any], arguments: Mapping[str, Any]) -> ValueError | None:
        """Return the error for an axis that is not there, or has to be given, if there is one.

        Args:
            values: the operands.
            arguments: all arguments by name, defaults among them.
        """
        axis = arguments.get(self.name)
        try:
            if axis is not None:
                self.normal(axis, (values,) if self.sequence else values)
            elif self.of == "line":
                line_axis(axis, len(values[0].shape))
        except ValueError as error:
            return error
        return None


class Normalising:
    """A kernel that gets axes from 0 on, which are there: `kernel`, after `normal_call` of its arguments."""

    def __init__(self, kernel: Callable[..., Any], axis: AxisParameter) -> None:
        self.kernel = self.unguarded = kernel  # what exported files contain
        self.normal_call = axis.normal_call
        self.__name__ = getattr(kernel, "__name__", type(kernel).__name__)
        self.__wrapped__ = kernel  # its signature is that of the kernel

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the kernel.

        Raises:
            AxisError: an axis is not there.
        """
        args, kwargs = self.normal_call(args, kwargs)  # a dict of this call alone
        return self.kernel(*args, **kwargs)
