"""Staging: what code tells the compiler that may be tracing it, without knowing any compiler.

`tape_core.function` runs a Python function once, and keeps a program of the kernels that it called. While it does so,
:func:`current` is a :class:`Stage`, and otherwise None. Code that does more than call ops says so by one of the verbs
here, which cost one look at a context variable where nothing is traced:

| verb | for code that | in a compiled function |
|---|---|---|
| :func:`opaque` | changes state of its own, or leaves Tape | one instruction calls it in each run |
| :func:`stateful` | updates Variables and host numbers | its ops are traced; if it decides by a value, it is opaque |
| :func:`host_callback` | returns nothing: printing, logging | is called in each run, in order |
| :func:`value_check` | raises for some values | is called in each run, inside vmap with all examples |
| :func:`guard` | depends on a mode | a trace is of use only while the mode is the same |
| :class:`host_number` | counts or keeps a Python number | the number is read and assigned in each run |
| :func:`host_function` | computes a number on the host, with `math` | one instruction, with a weak result |
| :func:`outside` | must see real values | a context in which nothing is traced |

Random draws, branches and loops are methods of the :class:`Stage`, for :mod:`tape_core.random` and
:mod:`tape_core.transforms.loops`. This module imports no other of Tape but `base`, so everything may
import it; nothing but a compiler implements :class:`Stage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from tape_core.base.ambient import BINDINGS, FORMER, STAGE
from tape_core.base.contexts import contextmanager
from tape_core.base.undoing import keep_former
from tape_core.base.user_code import is_of_user

__all__ = [
    "STAGE",
    "HostNumber",
    "Stage",
    "TracedValue",
    "TracingError",
    "UnrepeatableError",
    "current",
    "foreign_tracers",
    "guard",
    "host_callback",
    "host_function",
    "host_number",
    "opaque",
    "outside",
    "stateful",
    "value_check",
    "value_of",
]

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.tensor import Tensor
    from tape_core.engine.variable import Variable
    from tape_core.random import Draw, Generator, State
    from tape_core.typing import Raw

Call = TypeVar("Call", bound=Callable[..., Any])
Result = TypeVar("Result")
Tensors = list[Any]


class TracingError(TypeError):
    """A traced function depends on a value in Python, or a Tensor of a trace is used after the trace has ended."""

    _caught: dict[str, str] | None = None

    def noted_in(self, caught: dict[str, str]) -> TracingError:
        """Have the line of the user's that catches the error be a key of a dict, with what the error says.

        That is when the error ends: to keep it would keep all that the functions hold through which it has gone.
        """
        self._caught = caught
        return self

    def __del__(self) -> None:
        traceback = self.__traceback__  # from the frame that has caught it
        if self._caught is not None and traceback is not None and is_of_user(traceback.tb_frame):
            code = traceback.tb_frame.f_code
            self._caught.setdefault(f"{code.co_filename}:{traceback.tb_lineno}, in {code.co_qualname}", str(self))


class UnrepeatableError(Exception):
    """The base class of errors after which nothing that has failed is tried in another way.

    What a trace cannot follow is called again, outside of it; where processes wait for each other, the others would
    not call it again.
    """


class TracedValue:
    """The base class of arrays and numbers that a trace knows by name: later runs have other values there.

    Attributes:
        value: the value in the run that is traced.
        made_in: the trace that made it.
    """

    __slots__ = ()
    value: Any
    made_in: Any

    @property
    def is_known(self) -> bool:
        """Return whether the value is the same in every run, so that Python may decide by it."""
        raise NotImplementedError


class Stage(Protocol):
    """A trace that is running, as the rest of Tape sees it. A compiler's tracer implements it.

    Attributes:
        notes: what others keep for the length of the trace, under keys of their own.
        fixed_shapes: whether the compiler makes code for one set of shapes, whose results may differ in the last bits:
            code with a choice computes the same without results whose shapes are a matter of values.
        repeats: whether what is traced may run more than once in a call, as the step of a loop does.
    """

    parent: Any
    fixed_shapes: bool
    repeats: bool
    failed: TracingError | None
    notes: dict[object, Any]

    def is_inside(self, other: Any) -> bool:
        """Return whether this is the trace of a branch or a loop body inside another trace."""

    def outside(self) -> AbstractContextManager[None]:
        """Enter a context in which nothing is traced, and Variables have their real values."""

    def tracing(self, backend: Backend) -> Backend:
        """Return the backend whose arrays are those of `backend`, traced."""

    def require_value(self, what: str) -> None:
        """Raise a TracingError, or stop compiling where the user allows that: Python needs the value of `what`."""

    # -- state

    def read(self, holder: Variable | HostNumber) -> Any:
        """Return what a Variable or a host number holds at this point of the program."""

    def write(self, holder: Variable | HostNumber, value: Raw) -> None:
        """Let a Variable or a host number hold a value from here on."""

    def late_formulas(
        self, backend: Backend, variables: Sequence[Variable], example: Raw
    ) -> Mapping[str, Callable[..., Raw]]:
        """Return :meth:`Backend.formulas` that add instructions and compute nothing, for an update of Variables.

        Their results are for :meth:`put_off`, and for nobody else. There are none where the update is to be computed at
        once.
        """

    def put_off(self, variables: Sequence[Variable], results: Sequence[Raw], compute: Callable[..., None]) -> None:
        """Have new values of Variables, results of :meth:`late_formulas`, computed when all else of the run is done.

        Args:
            variables: their values at the beginning are the old ones.
            compute: called with a commit, it adds the values of this run to that; with `overwrite=False` it writes none
                over an old one.
        """

    def is_assigned(self, *variables: Variable) -> bool:
        """Return whether the program has assigned to one of these Variables; without arguments, to any."""

    def assigned_variables(self) -> list[Variable]:
        """Return the Variables to which the program has assigned so far, here or around."""

    def commit(self) -> None:
        """Let the real Variables have the values that the program has assigned so far."""

    def guard(self, get: Callable[[], Any], value: object) -> None:
        """Restrict the trace to calls in which `get()` returns this value."""

    # -- calls that are not ops

    def opaque(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Add an instruction that calls a Python function; see :func:`opaque`."""

    def stateful(
        self,
        method: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        holders: Callable[[Any], Iterable[Any]],
    ) -> Any:
        """Trace a method that updates Variables and host numbers; see :func:`stateful`."""

    def host_callback(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Add an instruction that calls a Python function for its effect; see :func:`host_callback`."""

    def foreign(
        self, function: Callable[..., Any], args: Sequence[Raw], backend: Backend, *, is_pure: bool
    ) -> tuple[Any, ...]:
        """Add an instruction that calls a function of another library on raw arrays, as it is.

        Args:
            function: returns a tuple of arrays and None. It must not write into its arguments.
            args: raw arrays, traced or not.
            backend: the backend of the results.
            is_pure: True if a call may be left out where its results are not needed, and computed once where its
                arguments are constants.
        """

    def on_foreign_draw(self, what: str) -> None:
        """Hear that a call of :meth:`foreign` has drawn random numbers of its library.

        Raises:
            TracingError: the call is in a function that a derivative runs again, or of which nobody knows how often it
                runs.
        """

    def number(self, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Add an instruction that computes a Python number; see :func:`host_function`."""

    def is_traced(self, value: TracedValue) -> bool:
        """Return whether a value is an input or computed in each run, rather than a constant."""

    def symbol(self, tensor: Tensor) -> str | None:
        """Return the name of a Tensor that differs between runs, for its text; None for a constant."""

    # -- random numbers

    def draw(self, generator: Generator, draw: Draw, library: Backend, device: str | None) -> Tensor:
        """Add an instruction that draws from a generator in each run."""

    def seed(
        self,
        generator: Generator,
        make: Callable[..., State],
        parent: Generator | None = None,
        numbers: Tensor | None = None,
    ) -> None:
        """Add an instruction that gives a generator, which is being made, the state that `make` returns in each run.

        Args:
            parent: a generator that `make` takes numbers from.
            numbers: a Tensor whose array `make` is given.
        """

    def random_state(self) -> Any:
        """Add an instruction that reads the state of the global generator; return a token of that state."""

    def set_random_state(self, state: Any) -> None:
        """Add an instruction that sets the global generator to a state, or to the state of a token."""

    def note_step_state(self, states: dict[int, Any], step: Tensor) -> None:
        """Add an instruction that keeps the state of the global generator under the number of a loop's step."""

    def replay_step_state(self, states: dict[int, Any], step: Tensor) -> AbstractContextManager[None]:
        """Enter a context in which the global generator continues from the state kept for a step."""

    # -- control flow

    def recomputed(self) -> AbstractContextManager[None]:
        """Enter a context of calls whose results no derivative is to keep: it computes them again."""

    # each returns None where the branch or loop must be traced through instead

    def attempt(self, call: Callable[[], Result]) -> Result | None:
        """Return what a call returns; None, and nothing of it in the trace, where it cannot be traced."""

    def cond(self, predicate: Tensor, branches: Sequence[Any], operands: Tensors) -> Tensors | None:
        """Add a branch on flat lists of Tensors."""

    def while_loop(
        self, test: Callable[..., Any], step: Callable[..., Any], carry: Tensors, keep: bool
    ) -> tuple[Any, Any, Any] | None:
        """Add a loop that runs while a test holds."""

    def scan(
        self, step: Callable[..., Any], carry: Tensors, xs: Tensors, length: int, reverse: bool, keep: bool
    ) -> tuple[Any, Any, Any] | None:
        """Add a loop over the elements of arrays."""


current = STAGE.get
"""Return the running trace, or None; a C function, since every read of a Variable calls it."""


foreign_tracers: list[Callable[[], bool]] = []
"""For each array library that traces Python functions, as `jax.jit` does, whether it is tracing here.

Its backend appends to it. A compiled function then runs as plain Python, for that library to trace: a program of its
own would keep arrays that mean nothing afterwards.
"""


@contextmanager
def outside() -> Iterator[None]:
    """Enter a context in which nothing is traced, and Variables have their real values.

    Where no trace is running, the context changes nothing.
    """
    stage = current()
    if stage is None:
        yield
        return
    with stage.outside():
        yield


def value_of(array: Raw) -> Any:
    """Return the value of a traced array or number in the run that is traced; anything else is returned as it is."""
    return array.value if isinstance(array, TracedValue) else array


# -- decorators


def opaque(function: Call) -> Call:
    """Make a function one instruction of compiled programs, which calls it in each run.

    In a compiled function the Tensors and Variables among the arguments are all that it may compute with, Variables all
    that it may assign to, and it must return Tensors or None, in any nested structure. Other arguments keep the values
    that they had when the function was traced. Outside of traces the function is called as usual.

    State that can be kept in Variables and host numbers is better off with :func:`stateful`: it is rolled back when a
    later part of the run fails.

    >>> import tape_core as tc
    >>> seen = []
    >>> @opaque
    ... def note(x):
    ...     seen.append(x.item())
    ...     return x
    >>> f = tc.function(lambda x: note(x) * 2.0)
    >>> [f(tc.asarray(value)).item() for value in (1.0, 2.0)], seen
    ([2.0, 4.0], [1.0, 2.0])
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        stage = current()
        return function(*args, **kwargs) if stage is None else stage.opaque(function, args, kwargs)

    return run  # type: ignore[return-value]


def stateful(holders: Callable[[Any], Iterable[Any]]) -> Callable[[Call], Call]:
    """Return a decorator for methods that update the state of an object, kept in Variables and host numbers.

    In a compiled function the method's ops are traced. If it does something that cannot be traced, such as deciding by
    a value, what was traced of it is taken back, and it becomes one instruction, as with :func:`opaque`.

    Args:
        holders: a function of the object that returns the Variables and :class:`HostNumber` objects which it has
            besides those among the arguments.
    """

    def decorate(method: Call) -> Call:
        @wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            stage = current()
            if stage is None:
                return method(self, *args, **kwargs)
            return stage.stateful(method, (self, *args), kwargs, holders)

        return run  # type: ignore[return-value]

    return decorate


def host_callback(function: Call) -> Call:
    """Make a function that returns nothing an effect of compiled programs: it is called in each run, in order.

    Its arguments are as with :func:`opaque`, but of a Variable it is given the value. It may be called in branches and
    loops.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        stage = current()
        if stage is None:
            function(*args, **kwargs)
        else:
            stage.host_callback(function, args, kwargs)

    return run  # type: ignore[return-value]


@overload
def value_check(function: Call, /) -> Call: ...
@overload
def value_check(*, between: Callable[..., tuple[int, int]]) -> Callable[[Call], Call]: ...
def value_check(function: Any = None, /, *, between: Callable[..., tuple[int, int]] | None = None) -> Any:
    """Make a function that only raises, for some values of its positional arguments, a check of compiled programs.

    It is a :func:`host_callback`. Inside vmap it is given the values of all examples, with their axis in front. A
    compiled function makes the first of several calls with the same arguments alone.

    >>> import tape_core as tc
    >>> @value_check(between=lambda days: (0, 6))
    ... def check_days(days: tc.Tensor) -> None:
    ...     if tc.any((days < 0) | (days > 6)):
    ...         raise ValueError(f"days must be from 0 to 6, got {days.tolist()}")
    >>> check_days(tc.asarray([0, 6]))

    Args:
        function: what is called.
        between: a function of the same arguments that returns the least and the greatest integer which pass. There is
            one Tensor among the arguments, and the check raises for no integers between these two. Compiled functions
            do not make the call where it is known what it would find, as for what `tc.argmin` or `tc.clip` returns.
    """
    if function is None:
        return lambda given: _checking(given, between)
    return _checking(function, between)


def _checking(function: Any, between: Callable[..., tuple[int, int]] | None) -> Any:
    function.only_raises, function.between = True, between
    run = host_callback(function)

    @wraps(function)
    def check(*args: Any) -> None:
        run(*[_of_all_examples(arg) for arg in args])

    return check


def _of_all_examples(value: Raw) -> Any:
    # A backend that batches has `of_all_examples`, which returns None for what all examples share. vmaps may be nested.
    while (unbatch := getattr(getattr(value, "backend", None), "of_all_examples", None)) is not None:
        batch = unbatch(value)
        if batch is None:
            break
        value = batch
    return value


def guard(get: Callable[[], Any]) -> Any:
    """Return `get()`, such as a mode; a trace is then reused only by calls in which `get()` returns the same.

    >>> import tape_core as tc
    >>> mode = {"training": True}
    >>> get = lambda: mode["training"]
    >>> f = tc.function(lambda x: x * 2.0 if guard(get) else x)
    >>> found = [f(tc.asarray(1.0)).item()]
    >>> mode["training"] = False
    >>> [*found, f(tc.asarray(1.0)).item()], f.traces
    ([2.0, 1.0], 2)
    """
    value, stage = get(), current()
    if stage is not None:
        stage.guard(get, value)
    return value


# -- Python numbers that compiled functions read and assign


class BoundNumber:
    """The value that a host number has in one binding, as `tape_core.engine.binding.Bound` is that of a Variable."""

    __slots__ = ("_raw", "_raw_slots")
    _held_as = "_raw"

    def __init__(self, value: float) -> None:
        self._raw = value
        self._raw_slots: dict[int, int] = {}

    @property
    def _holder(self) -> BoundNumber:
        return self

    _place = _holder


class HostNumber:
    """A Python number that compiled functions read and assign in each run, as they do Variables.

    Attributes:
        name: its name in exported files.
    """

    __slots__ = ("__weakref__", "_raw", "_raw_slots", "name")
    backend = None
    shape = ()
    _held_as = "_raw"

    def __init__(self, value: float, name: str) -> None:
        self._raw: Any = value
        self.name = name
        self._raw_slots: dict[int, int] = {}

    @property
    def kept(self) -> Any:
        """The number, outside of traces."""
        return self._place._raw

    @property
    def _holder(self) -> HostNumber:
        """The object whose attribute `_held_as` has the value; see `tape_core.engine.commit`."""
        return self

    @property
    def _place(self) -> HostNumber | BoundNumber:
        """The keeper of the value here: the number itself, or what it is bound to."""
        bindings = BINDINGS.get()
        return self if bindings is None else bindings.get(id(self), self)

    @property
    def _array(self) -> Any:
        stage, place = current(), self._place
        return place._raw if stage is None or place is not self else stage.read(self)

    @_array.setter
    def _array(self, value: Any) -> None:
        stage, place = current(), self._place
        if stage is None or place is not self:
            if FORMER.get():
                keep_former([place], ["_raw"])
            place._raw = value
        else:
            stage.write(self, value)

    @property
    def _slots(self) -> dict[int, int]:
        return self._place._raw_slots

    @_slots.setter
    def _slots(self, slots: dict[int, int]) -> None:
        self._place._raw_slots = slots


class host_number:
    """An attribute that is a Python number, read and assigned by compiled functions in each run.

    In arithmetic with arrays it is weak, as Python's numbers are.

    >>> class Counter:
    ...     count = host_number()
    ...     def __init__(self):
    ...         self.count = 0
    >>> counter = Counter()
    >>> counter.count += 1
    >>> counter.count
    1
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.place = f"_{name}_held"

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else vars(instance)[self.place]._array

    def __set__(self, instance: object, value: float) -> None:
        holder = vars(instance).get(self.place)
        if holder is None:
            vars(instance)[self.place] = HostNumber(value, self.name.lstrip("_"))
        else:
            holder._array = value

    def of(self, instance: object) -> HostNumber:
        """Return the :class:`HostNumber` of an instance, for the `holders` of :func:`stateful`."""
        holder: HostNumber = vars(instance)[self.place]
        return holder


def host_function(function: Call) -> Call:
    """Make a function of numbers and arrays that returns a Python number one instruction of compiled programs.

    Arguments that are neither keep the values that they had when the function was traced.

    >>> import math
    >>> host_function(math.sqrt)(4.0)
    2.0
    """

    @wraps(function)
    def run(*args: Any) -> Any:
        stage = current()
        if stage is None or not any([isinstance(arg, TracedValue) for arg in args]):
            return function(*args)
        return stage.number(getattr(function, "__name__", "number"), function, args)

    return run  # type: ignore[return-value]
