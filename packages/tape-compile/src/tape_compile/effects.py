"""Instructions with effects: opaque calls, host callbacks, random draws, and guards of a trace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tape_core import IndexedSlices, Tensor, Variable, random
from tape_core.backends import selection
from tape_core.staging import TracedValue, UnrepeatableError, value_of
from tape_core.support import OPEN_AXES, BatchedArray, contextmanager, held_for_a_while, layouts, pytree, wrap
from tape_core.typing import Raw

from tape_compile.program import literal_key
from tape_compile.tracer.contexts import handlers_outside, outside
from tape_compile.tracer.traced_backend import tracing_backend

if TYPE_CHECKING:
    from tape_core.backends import Backend
    from tape_core.random import Draw, Generator, State

    from tape_compile.program import Argument, Instruction
    from tape_compile.tracer.trace import Snapshot


class Effects:
    """The verbs of `tape_core.staging` that add instructions which compiled code calls in each run, in order.

    It is a base class of `Trace`, which has the attributes and methods declared here.
    """

    guards: list[tuple[Callable[[], Any], Any]]
    parent: Any
    instructions: list[Instruction]
    speculating: int

    if TYPE_CHECKING:

        def state(self) -> Snapshot: ...
        def roll_back(self, state: Snapshot) -> None: ...
        def effect(self, name: str, fn: Callable[..., Any], args: Sequence[Argument], backend: Backend) -> Any: ...
        def emit(self, name: str, fn: Callable[..., Any], args: Sequence[Argument], backend: Backend) -> None: ...
        def record_call(self, name: str, fn: Callable[..., Any], args: Sequence[Argument], backend: Backend) -> Any: ...
        def on_draw(self, generator: Generator) -> None: ...
        def on_new_generator(self, generator: Generator) -> None: ...

    def guard(self, get: Callable[[], Any], value: object) -> None:
        """Restrict the trace to calls in which `get()` returns this value."""
        if not any([known is get for known, _ in self.guards]):
            self.guards.append((get, value))

    def opaque(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a Python function now, and again in each run."""
        return OpaqueCall(function, args, kwargs).run_and_record(self)

    @contextmanager
    def speculation(self) -> Iterator[None]:
        """Enter an attempt: where it needs a value it fails, and where it fails nothing of it is in the trace."""
        before = self.state()
        self.speculating += 1
        try:
            yield
        except MemoryError:  # it may have come between an input and its holder: nothing of the trace is of use
            raise
        except Exception:
            self.roll_back(before)
            raise
        finally:
            self.speculating -= 1

    def stateful(
        self,
        method: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        holders: Callable[[Any], Iterable[Any]],
    ) -> Any:
        """Trace a method; if that fails, as where it decides by a value, roll back and make the call opaque."""
        args = _with_iterators_as_lists(args)  # the method may be run twice: traced, and as an opaque call
        try:
            with self.speculation():
                return method(*args, **kwargs)
        except (MemoryError, UnrepeatableError):
            raise
        except Exception:  # noqa: BLE001 - a mistake of the caller's is raised again by the opaque call
            pass
        return OpaqueCall(method, args, kwargs, holders(args[0])).run_and_record(self)

    def host_callback(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Call a Python function without a result in each run; it runs now, too, if it is known to be reached."""
        leaves, structure = pytree.flatten_whole((args, kwargs))
        if any([isinstance(leaf, Variable) for leaf in leaves]):  # it is given the values at this point
            leaves = [leaf.value if isinstance(leaf, Variable) else leaf for leaf in leaves]
            args, kwargs = pytree.unflatten(structure, leaves)
        if OPEN_AXES.get() and any(map(_is_batched, leaves)):
            function(*args, **kwargs)  # an example of a batch has no value that a later run could give it
        else:
            OpaqueCall(function, args, kwargs).emit_into(self)

    def foreign(
        self, function: Callable[..., Any], args: Sequence[Raw], backend: Backend, *, is_pure: bool
    ) -> tuple[Any, ...]:
        """Call a function of another library on raw arrays now, and again in each run."""
        traced = tracing_backend(backend)
        name = function.__name__
        if self.parent is None and not is_pure and all([not _differs(arg) for arg in args]):
            # Without an argument that differs between calls it would be a constant. In a branch or a loop it may be
            # one: there it draws nothing.
            return tuple(self.effect(name, function, args, traced))
        return tuple(self.record_call(name, function, args, traced))

    def on_foreign_draw(self, what: str) -> None:
        """Draws of another library are as in eager calls, since the instruction draws in each run."""

    # -- random numbers

    def draw(self, generator: Generator, draw: Draw, library: Backend, device: str | None) -> Tensor:
        """Return an array of random numbers, drawn again in each run."""
        self.on_draw(generator)
        # The global generator is looked up in each run, since `set_seed` may have replaced it; its own is captured.
        own = None if generator is random.global_rng() else generator
        # An effect, though it returns a value: CSE must not merge two draws, and without one the next would be another.
        traced = tracing_backend(library)
        return wrap(self.effect("random_bits", RandomBits(draw, own, library, device), (), traced), traced)

    def seed(
        self,
        generator: Generator,
        make: Callable[..., State],
        parent: Generator | None = None,
        numbers: Tensor | None = None,
    ) -> None:
        """Let a generator that the traced function makes start from the state that `make` returns in each run."""
        if parent is not None:
            self.on_draw(parent)

        def seed_generator(*arrays: Raw) -> tuple[()]:
            generator._state = make(*arrays)
            return ()

        self.on_new_generator(generator)
        arrays = () if numbers is None else (numbers._array,)
        self.effect("seed_generator", seed_generator, arrays, selection.select().backend)

    def random_state(self) -> _StateToken:
        """Return a token for the state of the global generator at this point of each run."""
        token = _StateToken()
        self.effect("note_random_state", NoteState(token), (), selection.select().backend)
        return token

    def set_random_state(self, state: Sequence[int] | _StateToken) -> None:
        """Set the global generator to a state, or to that of a token, in each run."""

        if isinstance(state, _StateToken):
            token = state
        else:
            token = _StateToken()
            token.state = random.checked_state(state)
        self.effect("set_random_state", SetState(token), (), selection.select().backend)

    def note_step_state(self, states: dict[int, Any], step: Tensor) -> None:
        """Write the state of the global generator at a loop's step into `states`, in each run."""
        self.effect("note_state_of_step", NoteStateOfStep(states), (step._array,), step.backend)

    @contextmanager
    def replay_step_state(self, states: dict[int, Any], step: Tensor) -> Iterator[None]:
        """Enter a context in which the global generator continues from the state of a step."""
        set_state_of_step = SetStateOfStep(states)
        self.effect("set_state_of_step", set_state_of_step, (step._array,), step.backend)
        try:
            yield
        finally:
            self.effect("set_state_of_step", set_state_of_step, (None,), step.backend)


@contextmanager
def _in_midst_of_run(variables: list[Any], arrays: list[Any]) -> Iterator[None]:
    """Enter a context in which Variables and host numbers have the values of the middle of a run, for nobody else.

    The run may still fail, and commits its new values at its end. Signal handlers run in the context of what they
    interrupt, so they are sent outside.
    """
    with handlers_outside(), held_for_a_while(variables, arrays):
        yield


def _with_iterators_as_lists(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments with lists in place of iterators, such as a zip, which could be read only once."""
    return tuple([list(arg) if hasattr(arg, "__next__") else arg for arg in args])


def _differs(value: object) -> bool:
    """Return whether a value may differ between calls."""
    return isinstance(value, TracedValue) and not value.is_known


def _is_batched(value: object) -> bool:
    return isinstance(value, Tensor) and type(value._array) is BatchedArray


class _StateToken:
    """A place for the state of the global generator at one point of a run; each run writes it anew."""

    __slots__ = ("state",)
    state: State


class RandomBits:
    """The function of a random draw.

    Attributes:
        draw: what is drawn.
        generator: from which; None for the global one.
        library, device: where the numbers are made.
    """

    __slots__ = ("device", "draw", "generator", "library")
    __name__ = "random_bits"

    def __init__(self, draw: Draw, generator: Generator | None, library: Backend, device: str | None) -> None:
        self.draw = draw
        self.generator = generator
        self.library = library
        self.device = device

    def __call__(self) -> Raw:
        return self.draw.run(self.generator or random.global_rng(), self.library, self.device)


class NoteState:
    """The function that notes the state of the global generator in a token."""

    __slots__ = ("token",)
    __name__ = "note_random_state"

    def __init__(self, token: _StateToken) -> None:
        self.token = token

    def __call__(self) -> tuple[()]:
        self.token.state = random.global_rng()._state
        return ()


class SetState:
    """The function that sets the global generator to the state of a token."""

    __slots__ = ("token",)
    __name__ = "set_random_state"

    def __init__(self, token: _StateToken) -> None:
        self.token = token

    def __call__(self) -> tuple[()]:
        random.global_rng()._state = self.token.state
        return ()


class NoteStateOfStep:
    """The function that notes the state of the global generator at a step of a loop, by the step's number."""

    __slots__ = ("states",)
    __name__ = "note_state_of_step"

    def __init__(self, states: dict[int, Any]) -> None:
        self.states = states

    def __call__(self, k: Raw) -> tuple[()]:
        self.states[int(k)] = random.global_rng()._state
        return ()


class SetStateOfStep:
    """The function that sets the global generator to the state of a step, and with None back to what it was."""

    __slots__ = ("before", "states")
    __name__ = "set_state_of_step"

    def __init__(self, states: dict[int, Any]) -> None:
        self.states = states
        self.before: list[Any] = []

    def __call__(self, k: Raw | None) -> tuple[()]:
        generator = random.global_rng()
        if k is None:  # the second call, after the step
            generator._state = self.before.pop()
        else:
            self.before.append(generator._state)
            if (state := self.states.get(int(k))) is not None:
                generator._state = state
        return ()


def _is_between(array: Raw, bounds: tuple[int, int], backend: Backend) -> bool:
    """Return whether integers that can be read now are surely between bounds."""
    if not backend.is_known(array) or 0 in array.shape or not backend.dtype(array.dtype).kind.endswith("integer"):
        return False
    if layouts.in_use and layouts.is_divided(array):  # each process has a part: the check itself asks all
        return False
    least, greatest = backend.extremes(array)
    return bounds[0] <= least and greatest <= bounds[1]


class OpaqueCall:
    """The function of an opaque instruction: it calls a Python function with the arrays of the run in its arguments."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], holders: Iterable[Any] = ()
    ) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.leaves, self.structure = pytree.flatten_whole((_with_iterators_as_lists(args), kwargs))
        given = [v for v in self.leaves if isinstance(v, Variable)]
        self.variables = list({id(v): v for v in [*given, *holders]}.values())
        self.tensors: list[tuple[int, Any]] = []  # the places of arrays among the leaves, and their backends
        self.out: Any = None  # the structure of the last result, and the backends of its leaves

    def _collect_arrays(self) -> list[Any]:
        """Return the arrays of the Tensors among the arguments, and note their places."""
        arrays: list[Any] = []
        for k, leaf in enumerate(self.leaves):
            parts = (leaf.values, leaf.indices) if isinstance(leaf, IndexedSlices) else (leaf,)
            if isinstance(leaf, Tensor | IndexedSlices) and not isinstance(leaf, Variable):
                arrays += [part._array for part in parts]
                self.tensors.append((k, parts[0].backend.library))
        return arrays

    def emit_into(self, trace: Effects) -> None:
        """Add an instruction for a call that returns nothing; it runs now if the trace knows that it is reached."""
        arrays = self._collect_arrays()
        backend = self.tensors[0][1] if self.tensors else selection.select().backend

        bounds = self._bounds()

        def run(*given: Any) -> tuple[()]:
            if bounds is not None and _is_between(given[0], bounds, backend):  # as it is but where the call raises
                return ()
            with outside():
                self(*given)
            return ()

        if getattr(self.function, "only_raises", False):
            run.check = self._key()  # type: ignore[attr-defined]
        if bounds is not None:
            run.bounds = bounds  # type: ignore[attr-defined]
        trace.emit(self.__name__, run, arrays, backend)

    def _bounds(self) -> tuple[int, int] | None:
        """Return the least and the greatest integer that pass, of a check of an array of integers; else None."""
        between = getattr(self.function, "between", None)
        if between is None or len(self.tensors) != 1 or "integer" not in self.leaves[self.tensors[0][0]].dtype.kind:
            return None
        args, kwargs = pytree.unflatten(self.structure, self.leaves)
        least, greatest = between(*args, **kwargs)
        return least, greatest

    def _key(self) -> Hashable:
        """Return a key for all of the call but the values of its arrays; None where something has no hash."""
        arrays = {k for k, _ in self.tensors}
        others = [literal_key(leaf) for k, leaf in enumerate(self.leaves) if k not in arrays]
        key: Hashable = self.function, self.structure, tuple(arrays), tuple(others)
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def run_and_record(self, trace: Effects) -> Any:
        """Run the call now, and add an instruction for it."""
        arrays = [*self._collect_arrays(), *[v._array for v in self.variables]]
        backends = [v.backend for v in self.variables if v.backend is not None]
        backend: Any = backends[0] if backends else selection.select().backend

        def now(*given: Any) -> Any:
            with outside():
                return self(*given)

        results, news = trace.effect(self.__name__, now, arrays, backend)
        # `now` is right for this run alone, which is outside of the trace; compiled code calls `self` on raw arrays.
        trace.instructions[-1].fn = self
        for variable, new in zip(self.variables, news, strict=True):
            variable._array, variable._slots = new, {}
        structure, backends = self.out
        made = [None if b is None else wrap(r, tracing_backend(b)) for r, b in zip(results, backends, strict=True)]
        return pytree.unflatten(structure, made)

    def __call__(self, *arrays: Any) -> Any:
        """Run the call on arrays; return its results, and the values of the Variables afterwards."""
        return self.take_over(list(arrays))

    def take_over(self, arrays: list[Any]) -> Any:
        """Run the call, and empty the list of arrays: one that nobody else holds may be updated in place."""
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
        with _in_midst_of_run(self.variables, arrays) if self.variables else nullcontext():
            arrays.clear()
            result = self.function(*args, **kwargs)
            found, structure = pytree.flatten_whole(result)
            # The library: a Tensor that the function has made may be of the traces of it, which are traced once.
            self.out = structure, [None if leaf is None else leaf.backend.library for leaf in found]
            return (
                tuple([None if leaf is None else leaf._array for leaf in found]),
                tuple([v._array for v in self.variables]),
            )
