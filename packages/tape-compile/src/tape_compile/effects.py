"""What the rest of Tape tells a trace: what is drawn, what runs as it is amid compiled code, what is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from tape_core.backends import selection
from tape_core.base import pytree
from tape_core.base.commit import held_for_a_while
from tape_core.base.contexts import contextmanager
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.recording import TRACE
from tape_core.engine.tensor import Tensor, wrap
from tape_core.engine.variable import Variable
from tape_core.modes.batched import OPEN, BatchedArray

from tape_compile.tracer.traced_array import value_of

if TYPE_CHECKING:
    from tape_core.random import Generator

    from tape_compile.tracer.trace import Trace

T = TypeVar("T", bound=Callable[..., Any])


# -- what runs as it is


def runs_as_it_is(function: T) -> T:
    """A decorator for what compiled code calls, in place of what it computes: it may change its own state.

    State of its own that is in Variables and Numbers is better off with :func:`keeps_state`, for it stays as it was
    where the call of the compiled function fails later on.

    In a compiled function the call is one instruction. The Tensors and Variables in its arguments are all that it may
    compute with, Variables all that it may assign, and what it returns are Tensors or None. Whatever else is in its
    arguments stays what it was when the function was traced.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        trace = TRACE.get()
        return function(*args, **kwargs) if trace is None else _Call(function, args, kwargs).traced(trace)

    return run  # type: ignore[return-value]


def keeps_state(holders: Callable[[Any], Iterable[Any]]) -> Callable[[T], T]:
    """A decorator for a method that changes the state of an object, which is in Variables and Numbers.

    In a compiled function its computations are noted. Where it does what cannot be noted, such as deciding by a value,
    it runs as it is, in one instruction.

    Args:
        holders: gives the Variables and Numbers that the object has besides those in the arguments.
    """

    def decorate(method: T) -> T:
        @wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            trace = TRACE.get()
            if trace is None:
                return method(self, *args, **kwargs)
            args = _once(args)
            before = trace.state()
            trace.trying += 1
            try:
                return method(self, *args, **kwargs)
            except Exception:  # noqa: BLE001 - a mistake of the caller's is one again below
                trace.go_back(before)
            finally:
                trace.trying -= 1
            return _Call(method, (self, *args), kwargs, holders(self)).traced(trace)

        return run  # type: ignore[return-value]

    return decorate


def _once(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Lists for generators, such as a zip, which are there once."""
    return tuple([list(arg) if hasattr(arg, "__next__") else arg for arg in args])


@contextmanager
def untraced() -> Iterator[None]:
    """A context in which nothing is noted, and Variables have what they have outside of compiled functions."""
    if TRACE.get() is None:
        yield
        return
    from tape_compile.tracer.contexts import outside

    with outside():
        yield


def each_time(function: T) -> T:
    """A decorator for what compiled code calls each time and what gives nothing: printing, checks of values.

    As :func:`runs_as_it_is`, but without Variables among the arguments; it may be called in branches and loops, too.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        trace = TRACE.get()
        if trace is None or (OPEN.get() and any(map(_is_batched, pytree.flatten((args, kwargs))[0]))):
            function(*args, **kwargs)  # what is batched has no value
        else:
            _Call(function, args, kwargs).emitted(trace)

    return run  # type: ignore[return-value]


def check_of_values(function: T) -> T:
    """A decorator for what does nothing but raise for some values of its positional arguments.

    As :func:`each_time`; inside vmap it is given the values of all examples, with their dimension in front.
    """
    run = each_time(function)

    @wraps(function)
    def check(*args: Any) -> None:
        run(*[_of_all_examples(arg) for arg in args])

    return check  # type: ignore[return-value]


def _is_batched(value: Any) -> bool:
    return isinstance(value, Tensor) and type(value._array) is BatchedArray


def _of_all_examples(value: Any) -> Any:
    while _is_batched(value):
        value = value._array.value
    return value


class _Call:
    """A call with its arguments, without the values of those that are another in each run."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, holders: Iterable[Any] = ()) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.leaves, self.structure = pytree.flatten((_once(args), kwargs))
        given = [v for v in self.leaves if isinstance(v, Variable)]
        self.variables = list({id(v): v for v in [*given, *holders]}.values())
        self.tensors: list[tuple[int, Any]] = []  # where the arrays go, and their backends
        self.out: Any = None  # the structure of what it returns, and the backends of its leaves

    def _arrays(self) -> list[Any]:
        """Those of the Tensors among the arguments; where they go is noted."""
        arrays: list[Any] = []
        for k, leaf in enumerate(self.leaves):
            parts = (leaf.values, leaf.indices) if isinstance(leaf, IndexedSlices) else (leaf,)
            if isinstance(leaf, Tensor | IndexedSlices) and not isinstance(leaf, Variable):
                arrays += [part._array for part in parts]
                self.tensors.append((k, parts[0].backend.library))
        return arrays

    def emitted(self, trace: Trace) -> None:
        """Note it, where it gives nothing; it runs if it is known to be called."""
        arrays = self._arrays()
        backend = self.tensors[0][1] if self.tensors else selection.select().backend

        def run(*given: Any) -> tuple[()]:
            from tape_compile.tracer.contexts import outside

            with outside():
                self(*given)
            return ()

        trace.emit(self.__name__, run, arrays, backend)

    def traced(self, trace: Trace) -> Any:
        """Run it, and note that."""
        from tape_compile.tracer.contexts import outside

        arrays = [*self._arrays(), *[v._array for v in self.variables]]
        backends = [v.backend for v in self.variables if v.backend is not None]
        backend: Any = backends[0] if backends else selection.select().backend

        def now(*given: Any) -> Any:
            with outside():
                return self(*given)

        results, news = trace.effect(self.__name__, now, arrays, backend)
        trace.instructions[-1].fn = self
        for variable, new in zip(self.variables, news, strict=True):
            variable._array, variable._slots = new, {}
        structure, backends = self.out
        made = [None if b is None else wrap(r, b.traced) for r, b in zip(results, backends, strict=True)]
        return pytree.unflatten(structure, made)

    def __call__(self, *arrays: Any) -> Any:
        """Run it on arrays: what it returns, and what the Variables hold then."""
        return self.take_over(list(arrays))

    def take_over(self, arrays: list[Any]) -> Any:
        """The same, and the list is empty then: an array that nobody else holds may be updated in place."""
        arrays.reverse()
        leaves = list(self.leaves)
        for k, backend in self.tensors:
            leaf = leaves[k]
            if isinstance(leaf, IndexedSlices):
                values, indices = (wrap(value_of(arrays.pop()), backend) for _ in range(2))
                leaves[k] = IndexedSlices(values, indices, leaf.dense_shape)
            else:
                leaves[k] = wrap(value_of(arrays.pop()), backend)
        args, kwargs = pytree.unflatten(self.structure, leaves)
        arrays.reverse()
        # The new values are those of the whole run, which may still fail: it commits them at its end.
        with held_for_a_while(self.variables, arrays, [{} for _ in self.variables]):
            arrays.clear()
            result = self.function(*args, **kwargs)
            found, structure = pytree.flatten(result)
            self.out = structure, [None if leaf is None else leaf.backend for leaf in found]
            return (
                tuple([None if leaf is None else leaf._array for leaf in found]),
                tuple([v._array for v in self.variables]),
            )


# -- random numbers


def draw(
    trace: Trace, generator: Generator, make: Callable[[Any], Any], dtype: str, backend: Any, device: Any
) -> Tensor:
    """An array of what `make` makes of the generator's bits, drawn again in each call."""
    chosen = selection.select(backend, device)
    library = chosen.backend.library
    trace.drawn(generator)
    from tape_core import random

    # The one that set_seed seeds may be another by then.
    which = None if generator is random.global_rng() else generator
    raw_dtype = library.raw_dtype(dtype)

    def random_bits() -> Any:
        bits = (which or random.global_rng())._bits
        return library.asarray(make(bits), dtype=raw_dtype, device=chosen.device, copy=True)

    traced = library.traced
    return wrap(trace.effect("random_bits", random_bits, (), traced), traced)


def seeded(trace: Trace, generator: Generator, seed: int | None) -> None:
    """A generator is made, which starts from its seed in each call."""
    from random import Random

    def seed_generator() -> tuple[()]:
        generator._bits = Random(seed)
        return ()

    trace.makes(generator)
    trace.effect("seed_generator", seed_generator, (), selection.select().backend)


class _Noted:
    """Where the generator had come to, in the call that runs."""

    __slots__ = ("state",)
    state: Sequence[int]


def random_state(trace: Trace) -> Any:
    """Where the generator has come to, in each call."""
    from tape_core import random

    noted = _Noted()

    def note_random_state() -> tuple[()]:
        noted.state = random.global_rng().get_state()
        return ()

    trace.effect("note_random_state", note_random_state, (), selection.select().backend)
    return noted


def set_random_state(trace: Trace, state: Any) -> None:
    """Have the generator go on from there, or from a state that is the same in each call."""
    from tape_core import random

    def set_state() -> tuple[()]:
        random.global_rng().set_state(state.state if type(state) is _Noted else state)
        return ()

    trace.effect("set_random_state", set_state, (), selection.select().backend)


def note_states(trace: Trace, states: dict[int, Any], number: Tensor) -> None:
    """Where the generator has come to at the step with this number, in each call."""
    from tape_core import random

    def note_state_of_step(k: Any) -> tuple[()]:
        states[int(k)] = random.global_rng()._bits.getstate()
        return ()

    trace.effect("note_state_of_step", note_state_of_step, (number._array,), number.backend)


@contextmanager
def states_replayed(trace: Trace, states: dict[int, Any], number: Tensor) -> Iterator[None]:
    """A context in which the generator goes on from there."""
    from tape_core import random

    before: list[Any] = []

    def set_state_of_step(k: Any) -> tuple[()]:
        bits = random.global_rng()._bits
        if k is None:
            bits.setstate(before.pop())
        else:
            before.append(bits.getstate())
            if (state := states.get(int(k))) is not None:
                bits.setstate(state)
        return ()

    trace.effect("set_state_of_step", set_state_of_step, (number._array,), number.backend)
    try:
        yield
    finally:
        trace.effect("set_state_of_step", set_state_of_step, (None,), number.backend)


# -- what a trace depends on besides


def asked(get: Callable[[], Any]) -> Any:
    """What `get` gives, such as a mode; a trace is of use only while it gives the same."""
    value, trace = get(), TRACE.get()
    if trace is not None and not any([known is get for known, _ in trace.guards]):
        trace.guards.append((get, value))
    return value
