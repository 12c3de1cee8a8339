"""Random numbers that are the same on every backend, for initialisers, shuffling and samples.

The bits come from Python's own generator, so that no backend has to agree with another on an algorithm.
"""

from __future__ import annotations

import math
import random as stdlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backends import selection
from tape_core.backends.errors import BatchError
from tape_core.base import dtypes
from tape_core.base.ambient import OPEN_AXES, STAGE
from tape_core.base.contexts import contextmanager, setting
from tape_core.base.lookup import ops
from tape_core.base.mistakes import integer, shape_of
from tape_core.engine.recording import report_draw
from tape_core.staging import current
from tape_core.typing import BackendLike, DTypeLike, ShapeLike

__all__ = [
    "Generator",
    "default_rng",
    "get_state",
    "global_rng",
    "replayed",
    "set_seed",
    "set_state",
]

if TYPE_CHECKING:
    from tape_core.engine.tensor import Tensor

_global: Generator | None = None


class Generator:
    """A stream of random Tensors; the same seed gives the same numbers on every backend, up to rounding.

    The bits are those of Python's Mersenne Twister; the backend computes numbers from them.

    >>> import tape_core as tc
    >>> rng = tc.default_rng(0)
    >>> rng.normal((2, 3)).shape, rng.integers(0, 10, 5).dtype
    ((2, 3), int64)
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and type(seed) is not int:
            raise TypeError(f"default_rng: seed must be an int or None, got {seed!r}")
        self._bits = stdlib.Random(seed)
        if (stage := current()) is not None:
            stage.seed(self, seed)

    def get_state(self) -> tuple[int, ...]:
        """The state of the stream: plain integers, which a file of any kind can hold.

        >>> import tape_core as tc
        >>> rng = tc.default_rng(7)
        >>> state = rng.get_state()
        >>> a = rng.uniform((2,))
        >>> rng.set_state(state)
        >>> bool(tc.all(rng.uniform((2,)) == a))
        True
        """
        state: tuple[int, ...] = self._bits.getstate()[1]
        return state

    def set_state(self, state: Sequence[int]) -> None:
        """Continue from a state that :meth:`get_state` of this or another Generator returned.

        Raises:
            ValueError: it is not such a state. Nothing is changed.
        """
        try:
            self._bits.setstate((stdlib.Random.VERSION, tuple(state), None))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"set_state: not a state that get_state gave: {error}") from error

    def _fractions(self, n: int, backend: BackendLike, device: str | None) -> Tensor:
        """Draw `n` float64 values in [0, 1), multiples of 2**-31."""
        integers = self._draw(lambda bits: memoryview(bits.randbytes(4 * n)).cast("i"), "int32", backend, device)
        # Without the sign bit, 31 bits are left, which float64 holds exactly.
        return ops.astype(integers & 0x7FFFFFFF, "float64") * 2.0**-31

    def _draw(
        self, make: Callable[[stdlib.Random], Any], dtype: str, backend: BackendLike, device: str | None
    ) -> Tensor:
        """Make a Tensor of what `make` takes from the generator; a compiled function does so again in each call."""
        _refuse_inside_vmap()
        if (stage := current()) is not None:
            return stage.draw(self, make, dtype, backend, device)
        report_draw(self)
        return ops.asarray(make(self._bits), dtype=dtype, backend=backend, device=device, copy=True)

    def uniform(
        self,
        shape: ShapeLike = (),
        *,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw uniform values in [low, high)."""
        shape, dtype = shape_of("uniform", shape), _floating("uniform", dtype, backend)
        values = self._fractions(math.prod(shape), backend, device)
        # Keep no more bits than the dtype has: rounded to it, a value such as 1 - 2**-31 would become 1.
        return ops.astype(ops.reshape(_truncate(values, dtype), shape) * (high - low) + low, dtype)

    def normal(
        self,
        shape: ShapeLike = (),
        *,
        mean: float = 0.0,
        stddev: float = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw normally distributed values, by the Box-Muller transform."""
        shape, dtype = shape_of("normal", shape), _floating("normal", dtype, backend)
        n = math.prod(shape)
        radius = ops.sqrt(-2.0 * ops.log1p(-self._fractions(n, backend, device)))
        angle = self._fractions(n, backend, device) * (2 * math.pi)
        values = ops.reshape(radius * ops.cos(angle), shape) * stddev + mean
        return ops.astype(values, dtype)

    def integers(
        self, low: int, high: int, shape: ShapeLike = (), *, backend: BackendLike = None, device: str | None = None
    ) -> Tensor:
        """Draw integers in [low, high), int64."""
        low, high = integer("integers", "low", low), integer("integers", "high", high)
        if high <= low:
            raise ValueError(f"integers: high must be above low, got low={low}, high={high}")
        shape = shape_of("integers", shape)
        n = math.prod(shape)
        values = self._draw(lambda bits: [bits.randrange(low, high) for _ in range(n)], "int64", backend, device)
        return ops.reshape(values, shape)

    def permutation(self, n: int, *, backend: BackendLike = None, device: str | None = None) -> Tensor:
        """Draw the integers 0 ... n - 1 in random order, int64."""
        n = integer("permutation", "n", n, 0)

        def shuffle(bits: stdlib.Random) -> memoryview:
            order = list(range(n))
            bits.shuffle(order)
            return memoryview(array("q", order))

        return self._draw(shuffle, "int64", backend, device)


def _refuse_inside_vmap() -> None:
    if OPEN_AXES.get():
        raise BatchError(
            "random numbers inside vmap: all examples would get the same. Draw them outside, with an axis for the "
            "examples, and give them to the function as an argument"
        )


def _floating(what: str, dtype: DTypeLike, backend: BackendLike) -> dtypes.DType:
    """Check that a dtype is floating: as integers, most values would be 0; as complex numbers, all imaginary parts."""
    if dtype is None:
        return dtypes.get_default_dtype()
    found = dtypes.as_dtype(dtype) or selection.select(backend).backend.dtype(dtype)
    if found.kind != "real floating":
        raise TypeError(f"{what}: dtype must be floating; got {found}; Generator.integers draws integers")
    return found


def _truncate(values: Tensor, dtype: dtypes.DType) -> Tensor:
    """Drop the bits of values in [0, 1) that the dtype cannot hold."""
    # The bits of a significand. float64 has 53, but gets no more than float32, so that both have the same numbers.
    bits = {"float16": 11, "bfloat16": 8}.get(dtype.name, 24)
    return ops.floor(values * 2.0**bits) * 2.0**-bits


def default_rng(seed: int | None = None) -> Generator:
    """Make a new :class:`Generator`; without a seed its numbers differ from run to run."""
    return Generator(seed)


def set_seed(seed: int | None) -> None:
    """Reseed the global generator, which initialisers and :func:`dropout` use unless they are given another."""
    global _global
    _global = Generator(seed)


def get_state() -> tuple[int, ...]:
    """The state of the global generator, see :meth:`Generator.get_state`."""
    if (stage := current()) is not None:
        return stage.random_state()  # type: ignore[no-any-return]  # a token, which set_state takes in that function
    return global_rng().get_state()


def set_state(state: Sequence[int]) -> None:
    """Let the global generator continue from a state that :func:`get_state` returned.

    >>> import tape_core as tc
    >>> state = tc.random.get_state()
    >>> a = tc.dropout(tc.ones(9), 0.5)
    >>> tc.random.set_state(state)
    >>> bool(tc.all(tc.dropout(tc.ones(9), 0.5) == a))
    True

    Raises:
        ValueError: it is not such a state. Nothing is changed.
    """
    if (stage := current()) is not None:
        stage.set_random_state(state)
        return
    global_rng().set_state(state)


@contextmanager
def replayed(state: Sequence[int]) -> Iterator[None]:
    """A context in which the global generator continues from `state`; on leaving it, the present one is back."""
    now = get_state()
    set_state(state)
    try:
        yield
    finally:
        set_state(now)


def global_rng() -> Generator:
    """The global generator, which :func:`set_seed` seeds."""
    global _global
    if _global is None:
        with setting(STAGE, None):  # outside of a trace, or each call of a compiled function would make another
            _global = Generator()
    return _global
