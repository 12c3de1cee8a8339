"""The samples an op carries: inputs it is checked on, and inputs it must refuse.

Declaring an op is writing its test: whatever checks ops derives its checks from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tape_core.base.lookup import ops
from tape_core.random import Generator


class Sample:
    """One call of an op: `Sample(x, axis=0)`."""

    __slots__ = ("args", "kwargs", "observed", "projected")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.projected: Callable[[Any], Any] = lambda direction: direction
        self.observed: Callable[..., Any] = lambda xp, *results: results

    def along(self, project: Callable[[Any], Any]) -> Sample:
        """Change the inputs only along `project(direction)`, a NumPy array; for ops of symmetric matrices, for one."""
        self.projected = project
        return self

    def observe(self, function: Callable[..., Any]) -> Sample:
        """Compare `function(xp, *results)`, one or several values: for results with an arbitrary sign or the like."""
        self.observed = function
        return self

    def __repr__(self) -> str:
        parts = [_short(a) for a in self.args] + [f"{k}={_short(v)}" for k, v in self.kwargs.items()]
        return f"({', '.join(parts)})"


class Refused(Sample):
    """One call that must raise `error`, with a message that matches the regular expression `match`."""

    __slots__ = ("error", "match")

    def __init__(self, error: type[Exception], match: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.error = error
        self.match = match


class Draw:
    """Draws float64 Tensors for samples: `draw(2, 3)` is uniform in [low, high), the same in every run."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = Generator(seed)

    def __call__(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        return self.rng.uniform(shape, low=low, high=high, dtype="float64")

    def complex(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        """Draw complex128, with both parts uniform in [low, high)."""
        return Draw.__call__(self, *shape, low=low, high=high) + 1j * Draw.__call__(self, *shape, low=low, high=high)

    def distinct(self, *shape: int) -> Any:
        """Draw values at least 0.1 apart, in random order, for ops with kinks where values are equal."""
        size = 1
        for length in shape:
            size *= length
        order = self.rng.permutation(size).tolist()
        return ops.reshape(ops.asarray([0.1 + 0.2 * i - 0.1 * size for i in order], dtype="float64"), shape)


class ComplexDraw(Draw):
    """Draws complex128 where `Draw` draws float64."""

    def __call__(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        return self.complex(*shape, low=low, high=high)


Samples = Callable[[Draw], Iterator[Sample]]


def with_complex(samples: Samples, n: int = 2) -> Samples:
    """Return the samples, and the first n of them once more with complex values."""

    def more(draw: Draw) -> Iterator[Sample]:
        yield from samples(draw)
        taken = (sample for sample in samples(ComplexDraw(2)) if not isinstance(sample, Refused))
        yield from islice(taken, n)

    return more


def unary(low: float = -2.0, high: float = 2.0) -> Samples:
    """Return samples of an elementwise op of one input, on (low, high)."""

    def samples(draw: Draw) -> Iterator[Sample]:
        for shape in ((2, 3), (), (0, 2)):
            yield Sample(draw(*shape, low=low, high=high))

    return samples


def binary(low: float = -2.0, high: float = 2.0, low2: float | None = None, high2: float | None = None) -> Samples:
    """Return samples of an elementwise op of two inputs, broadcasting included."""
    low2 = low if low2 is None else low2
    high2 = high if high2 is None else high2

    def samples(draw: Draw) -> Iterator[Sample]:
        for shape1, shape2 in (
            ((2, 3), (2, 3)),
            ((2, 3), (3,)),
            ((2, 1), (1, 3)),
            ((), (2,)),
            ((), ()),
            ((0, 2), (2,)),
        ):
            yield Sample(draw(*shape1, low=low, high=high), draw(*shape2, low=low2, high=high2))
        yield Refused(ValueError, "broadcast", draw(2, low=low, high=high), draw(3, low=low2, high=high2))

    return samples


def _short(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else repr(value)
