"""Random numbers that are the same on every backend, for initialisers, shuffling, dropout and samples.

A generator is a key and a counter: the bits are a function of both (Philox, see `backends.random_kernels`), computed on
the device where the numbers are wanted.
"""

from __future__ import annotations

import hashlib
import operator
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tape_core.backends import selection
from tape_core.backends.errors import BatchError
from tape_core.backends.random_kernels import WORD, WORDS_PER_BLOCK, words_needed
from tape_core.base.ambient import MAKING, OPEN_AXES, STAGE, STAND_INS
from tape_core.base.contexts import contextmanager, setting
from tape_core.base.forking import Holding, Lock
from tape_core.base.lookup import tool
from tape_core.base.mistakes import integer
from tape_core.base.reprs import lenient
from tape_core.distributions import Distributions
from tape_core.engine.hints import absent_attribute
from tape_core.engine.hints import missing as _missing
from tape_core.engine.levels import BatchedArray
from tape_core.engine.recording import report_draw
from tape_core.engine.tensor import wrap
from tape_core.staging import TracingError, current
from tape_core.typing import BackendLike, Raw

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
    from tape_core.backends.protocol import Backend
    from tape_core.engine.levels import Axis
    from tape_core.engine.tensor import Tensor
    from tape_core.meshes.draws import Making

State: TypeAlias = tuple[int, int, int]
"""The two words of a generator's key, and the number of its next block."""

_MERSENNE_TWISTER_LENGTH: Final = 625  # integers in the states of older versions' generators

_global: Generator | None = None
_advancing = Lock()  # two threads that draw from one generator must not get the same numbers


def advancing() -> Holding:
    """Return a context in which no other thread draws, for a call that tells only at its end how far it has drawn."""
    return _advancing.held()


class Draw(NamedTuple):
    """A call of a method of `RandomKernels`, without the stream: compiled functions make it in each run.

    Attributes:
        kernel: the name of the method.
        shape: of the result.
        parameters: the other arguments.
        blocks: how many blocks of the stream it takes.
        axes: the hidden axes of vmaps that are the first dimensions of the result.
        making: the array that is being made in parts, if the numbers are for it.
    """

    kernel: str
    shape: tuple[int, ...]
    parameters: tuple[Any, ...]
    blocks: int
    axes: tuple[Axis, ...]
    making: Making | None = None

    def run(self, generator: Generator, library: Backend, device: str | None) -> Raw:
        """Draw the numbers from a generator, which goes on behind them."""
        key0, key1, counter = generator._take(self.blocks)
        kernel = getattr(library.random, self.kernel)
        if self.making is None:
            return kernel((key0, key1), counter, self.shape, *self.parameters, device=device)
        with setting(MAKING, self.making):
            return kernel((key0, key1), counter, self.shape, *self.parameters, device=device)


class Generator(Distributions):
    """A stream of random Tensors; the same seed gives the same numbers on every backend, up to rounding.

    The bits are those of the counter-based generator Philox; the backend computes numbers from them, on its device.

    >>> import tape_core as tc
    >>> rng = tc.default_rng(0)
    >>> rng.normal((2, 3)).shape, rng.integers(0, 10, 5).dtype
    ((2, 3), int64)
    """

    _state: State

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and type(seed) is not int:
            raise TypeError(f"default_rng: seed must be an int or None, got {seed!r}")
        self._begin(lambda: _state_of(seed))

    def _begin(
        self, make: Callable[..., State], parent: Generator | None = None, numbers: Tensor | None = None
    ) -> None:
        """Start from the state that `make` returns; a generator made in a compiled function does so in each run.

        Args:
            parent: the generator that `make` takes numbers from.
            numbers: a Tensor whose array `make` is given.
        """
        if (stage := current()) is not None:
            stage.seed(self, make, parent, numbers)
            return
        if parent is not None:
            report_draw(parent)
        self._state = make() if numbers is None else make(numbers._array)

    def _take(self, blocks: int) -> State:
        """Return the state, and go on by so many blocks."""
        with _advancing.held():  # wherever an interrupt comes, no other thread waits for it
            key0, key1, counter = self._state
            self._state = key0, key1, counter + blocks
        return key0, key1, counter

    @lenient
    def __repr__(self) -> str:
        key0, key1, counter = self._state
        return f"<Generator: key {key0:016x}{key1:016x}, block {counter}>"

    def get_state(self) -> State:
        """The state of the stream: plain integers, which a file of any kind can hold.

        >>> import tape_core as tc
        >>> rng = tc.default_rng(7)
        >>> state = rng.get_state()
        >>> a = rng.uniform((2,))
        >>> rng.set_state(state)
        >>> bool(tc.all(rng.uniform((2,)) == a))
        True

        Raises:
            TracingError: a function is being compiled: each call of it would have another state.
        """
        _refuse_in_trace("get_state")
        return _standing_for(self)._state

    def set_state(self, state: Sequence[int]) -> None:
        """Continue from a state that :meth:`get_state` of this or another Generator returned.

        Raises:
            ValueError: it is not such a state. Nothing is changed.
            TracingError: a function is being compiled.
        """
        _refuse_in_trace("set_state")
        _standing_for(self)._state = checked_state(state)

    def split(self, n: int = 2) -> tuple[Generator, ...]:
        """Make `n` new generators, whose numbers are independent of each other's and of this one's.

        This one goes on: the next call makes others.

        >>> import tape_core as tc
        >>> for_weights, for_dropout = tc.default_rng(0).split()
        >>> for_weights.integers(0, 100, 3).tolist(), for_dropout.integers(0, 100, 3).tolist()
        ([99, 14, 52], [22, 6, 37])
        """
        source = _standing_for(self)
        # Looked up in each run of a compiled function, since `set_seed` may have replaced the global generator.
        parent = global_rng if source is _global else lambda: source
        made = tuple([Generator.__new__(Generator) for _ in range(integer("split", "n", n, 0))])
        for child in made:
            child._begin(lambda: _state_of(*parent()._take(1)), source)
        return made

    spawn = split  # NumPy's name

    if not TYPE_CHECKING:
        __getattr__ = absent_attribute("Generator", lambda: dir(Generator))

    def _plan(self, kernel: str, shape: tuple[int, ...], *parameters: Any) -> Draw:
        """Return the call of a method of the backend's `RandomKernels`, for all examples of vmaps around."""
        axes = _axes_that_differ(OPEN_AXES.get())
        whole = (*[axis.size for axis in axes], *shape)
        blocks = -(-words_needed(kernel, whole, *parameters) // WORDS_PER_BLOCK)
        making = MAKING.get()
        if making is not None and making.shape != whole:
            making = None
        return Draw(kernel, whole, parameters, blocks, axes, making)

    def _draw(
        self, kernel: str, shape: tuple[int, ...], *parameters: Any, backend: BackendLike, device: str | None
    ) -> Tensor:
        """Call a method of the backend's `RandomKernels`; a compiled function does so again in each call."""
        draw = self._plan(kernel, shape, *parameters)
        source = _standing_for(self)
        chosen = selection.select(backend, device)
        if (stage := current()) is not None:
            found = stage.draw(source, draw, chosen.backend.library, chosen.device)
        else:
            report_draw(source)
            found = wrap(draw.run(source, chosen.backend, chosen.device), chosen.backend)
        for axis in draw.axes:  # the outermost first: each takes the first dimension that is left
            found = tool("batch")(found, axis)
        return found


def _standing_for(generator: Generator) -> Generator:
    """Return the generator that draws in place of another one in this context."""
    return STAND_INS.get().get(id(generator), generator)


@contextmanager
def standing_in(states: Sequence[tuple[Generator, Tensor]]) -> Iterator[list[Generator]]:
    """A context in which new generators draw in place of others, which stay as they are; returns the new ones.

    Args:
        states: generators, each with the state of the one that draws in its place: the three words of `get_state` as
            an int64 Tensor, which may differ in each run of a compiled function.

    Raises:
        BatchError: a state differs between the examples of a vmap.
    """
    made = []
    for _, numbers in states:
        if isinstance(numbers._array, BatchedArray):
            raise BatchError(
                "the state of a random generator differs between the examples of a vmap: leave it out of what is "
                'mapped; vmap(f, randomness="different") draws other numbers for each example'
            )
        child = Generator.__new__(Generator)
        child._begin(_as_words(numbers.backend.library), None, numbers)
        made.append(child)
    pairs = {id(generator): child for (generator, _), child in zip(states, made, strict=True)}
    with setting(STAND_INS, {**STAND_INS.get(), **pairs}):
        yield made


def _as_words(library: Backend) -> Callable[[Raw], State]:
    def words(array: Raw) -> State:
        a, b, c = [int(number) % WORD for number in library.numpy(array)]
        return a, b, c

    return words


def _state_of(*seed: int | None) -> State:
    """Return the state of a new generator: its key is a hash of the seed, and a random one without a seed."""
    # As text, since integers may be of any length.
    key = secrets.token_bytes(16) if seed == (None,) else hashlib.sha256(repr(seed).encode()).digest()
    return int.from_bytes(key[:8], "little"), int.from_bytes(key[8:16], "little"), 0


def _refuse_in_trace(method: str) -> None:
    if current() is not None:
        raise TracingError(
            f"Generator.{method} in a compiled function: call it outside; for the global generator there are "
            f"tape_core.random.get_state and set_state"
        )


def checked_state(state: Sequence[int]) -> State:
    """Return a state with plain integers.

    Raises:
        ValueError: it is none.
    """
    try:
        numbers = [operator.index(number) for number in state]
    except TypeError as error:
        raise ValueError(f"set_state: not a state that get_state gave: {error}") from error
    if len(numbers) == _MERSENNE_TWISTER_LENGTH:
        raise ValueError(
            "set_state: this state comes from an older version of Tape, whose generator was another one: its numbers "
            "cannot be continued. Seed a generator anew"
        )
    if len(numbers) != 3 or not all([0 <= number < WORD for number in numbers]):
        raise ValueError(
            f"set_state: not a state that get_state gave: {len(numbers)} numbers, of which each must be "
            "from 0 to 2**64 - 1, and there must be 3"
        )
    return numbers[0], numbers[1], numbers[2]


def _axes_that_differ(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Return the hidden axes along which numbers are drawn one by one.

    Raises:
        BatchError: a vmap does not say how random numbers are meant.
    """
    if any([axis.randomness == "error" for axis in axes]):
        raise BatchError(
            'random numbers inside vmap: say how they are meant, vmap(f, randomness="different") for numbers of each '
            'example\'s own, or randomness="same" for the same in all; or draw them outside, with an axis for the '
            "examples"
        )
    return tuple([axis for axis in axes if axis.randomness == "different"])


def default_rng(seed: int | None = None) -> Generator:
    """Make a new :class:`Generator`; without a seed its numbers differ from run to run."""
    return Generator(seed)


def set_seed(seed: int | None) -> None:
    """Reseed the global generator, which initialisers and :func:`dropout` use unless they are given another."""
    global _global
    _global = Generator(seed)


def get_state() -> State:
    """The state of the global generator, see :meth:`Generator.get_state`."""
    if (stage := current()) is not None:
        return stage.random_state()  # type: ignore[no-any-return]  # a token, which set_state takes in that function
    return global_rng()._state


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
    global_rng()._state = checked_state(state)


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


if not TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
