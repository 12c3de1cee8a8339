"""What all optimizers share: pairs, clipping, weight decay, schedules, sparse gradients, state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias
from weakref import ref

import tape_core as tc
from tape_core import IndexedSlices, Tensor, Variable, asarray
from tape_core.base.commit import Commit
from tape_core.base.forking import Lock
from tape_core.base.mistakes import real
from tape_core.base.row_updates import rows_added
from tape_core.base.user_code import warn_user
from tape_core.engine.recording import LISTENERS
from tape_core.engine.tensor import SCALARS, wrap
from tape_core.engine.variable import check_assignable
from tape_core.staging import current, guard, host_function, host_number, outside, stateful, value_of

from tape_nn import clipping
from tape_nn.naming import like, named, unknown_names

Schedule: TypeAlias = Callable[[int], float]

STARTING: Final = Lock()
"""Held by a thread that updates a Variable for the first time: what it remembers must not be made by two."""

_KNOWN: Final = nullcontext()


class Optimizer:
    """What all optimizers share. A new one says what it remembers in `_slots`, and what it does in `_step`.

    What it remembers about a Variable (a momentum, say) belongs to that very object, and one that
    appears late starts fresh. Updates are not recorded by tapes, and what a tape has recorded keeps
    its values: updating inside a tape's block is fine.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> class SignDescent(nn.Optimizer):
    ...     def _step(self, xp, w, g, slots, rate, t):
    ...         w -= rate * xp.sign(g)
    ...         return w
    >>> w = tc.Variable([1.0, 2.0])
    >>> SignDescent(0.25).apply_gradients([([3.0, -0.1], w)])
    >>> w.tolist()
    [0.75, 2.25]

    Args:
        learning_rate: how far one update goes: a number, or a schedule, which is called with the number of updates
            that were applied so far (see :mod:`tape_nn.schedules`).
        weight_decay: of each Variable `learning_rate * weight_decay * w` is subtracted before its update: decoupled
            weight decay (Loshchilov and Hutter, 2017).
        clipnorm: each gradient is scaled to this norm if its own is larger.
        clipvalue: elements of gradients are clipped to at most this, and at least its negative.
        global_clipnorm: all gradients are scaled by one factor, so that their norm together is at most this.

    Raises:
        ValueError: a number is out of range, or more than one kind of clipping is guard for.
    """

    _real_only: ClassVar[bool] = True

    # They change from call to call of a compiled function.
    iterations: Any = host_number()
    """How many updates were applied."""
    _rate: Any = host_number()

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
    ) -> None:
        self.learning_rate = learning_rate  # the setter takes schedules, too
        self.weight_decay = None if weight_decay is None else self._within("weight_decay", weight_decay, 0)
        clips = {"clipnorm": clipnorm, "clipvalue": clipvalue, "global_clipnorm": global_clipnorm}
        chosen = {name: clipping.positive(name, value) for name, value in clips.items() if value is not None}
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} were both given; gradients are clipped in one way only")
        self.clipnorm, self.clipvalue, self.global_clipnorm = map(chosen.get, clips)
        self.iterations = 0
        # By the Variable's id; the entry holds the Variable, so the id stays its own.
        self._states: dict[int, _State] = {}
        self._warned: set[int] = set()
        self._undecayed: dict[int, Variable] = {}
        self._changes = 0  # of what compiled functions take for granted, besides settings
        self._settings: _Settings | None = None

    @property
    def learning_rate(self) -> float:
        """How far the next update goes. It can be set at any time, to a number or to a schedule."""
        self._rely_on_settings()
        if self._schedule is None:
            return self._rate  # type: ignore[no-any-return]
        return _scheduled(self._schedule, self.iterations)

    @learning_rate.setter
    def learning_rate(self, value: float | Schedule) -> None:
        scheduled = callable(value) and not isinstance(value, Tensor)
        self._schedule: Any = value if scheduled else None
        # A Python float is weak; an np.float64 would turn float32 arrays into float64 ones.
        self._rate = math.nan if scheduled else _checked_rate(value, "learning_rate")

    def exclude_from_weight_decay(self, variables: Iterable[Variable]) -> None:
        """Leave these Variables, such as biases, out of weight decay."""
        for variable in variables:
            if not isinstance(variable, Variable):
                raise TypeError(f"exclude_from_weight_decay takes Variables; got {type(variable).__name__!r}")
            self._undecayed[id(variable)] = variable
        self._changes += 1

    def build(self, variables: Iterable[Variable]) -> None:
        """Make what is remembered about these Variables now; else their first update does.

        Raises:
            TypeError: one is no floating-point Variable.
        """
        for variable in variables:
            if not isinstance(variable, Variable):
                raise TypeError(f"build takes Variables; got {type(variable).__name__!r}")
            if id(variable) not in self._states:
                with STARTING.held():  # in which another thread may have made it
                    if id(variable) not in self._states:
                        self._states[id(variable)] = self._started(variable)

    def _holders(self) -> Iterable[Any]:
        """What holds all that updates change, besides the Variables themselves."""
        slots = [slot for state in self._states.values() for slot in state.slots.values()]
        return [*slots, Optimizer.iterations.of(self), Optimizer._rate.of(self)]

    def _rely_on_settings(self) -> None:
        """Where a trace runs, have it be of use only while the settings are these."""
        if self._settings is None or self._settings.optimizer() is not self:  # that of what this is a copy of
            self._settings = _Settings(self)
        guard(self._settings)

    @stateful(_holders)
    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Update Variables once.

        Args:
            grads_and_vars: (gradient, variable) pairs, as `zip(gradients, variables)` gives them.
                Where a gradient is None the Variable is skipped with a warning, once.

        Raises:
            ValueError: if no Variable has a gradient, one is there twice, or a gradient's shape is
                not its Variable's.
            TypeError: for what is not a pair, not a Variable or not a floating-point one, and for
                Variables of several backends. Everything is computed before anything is changed, and then all of it
                is at once, also where a KeyboardInterrupt comes.
        """
        pairs = list(grads_and_vars)
        with self._starting(pairs):
            self._updated(pairs).make()

    def _starting(self, pairs: list[Any]) -> AbstractContextManager[Any]:
        """A context for one update, in which no other thread makes what is remembered about a Variable."""
        try:
            known = self._states.keys() >= {id(variable) for _, variable in pairs}
        except (TypeError, ValueError):  # no pairs, which is said below
            known = False
        return _KNOWN if known else STARTING.held()

    def _updated(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Commit:
        """All that an update changes, before it does."""
        updates: dict[int, tuple[Any, _State]] = {}
        missing = []
        fresh: dict[int, _State] = {}
        backend = None
        for pair in grads_and_vars:
            gradient, variable = _pair(pair)
            state = self._states.get(id(variable)) or fresh.get(id(variable))
            if state is None:
                state = fresh[id(variable)] = self._started(variable)
                if current() is not None:  # which must know what is remembered, also where it tries once more
                    self._states[id(variable)] = state
            if gradient is None:
                missing.append(variable)
                continue
            check_assignable(variable)
            home = variable.backend
            if id(variable) in updates:
                raise ValueError(f"{_names([variable])} is there twice; add its gradients up")
            if backend is not None and home is not backend:
                raise TypeError(
                    f"the variables are on several backends: {_names([variable])} is on {home.name!r}, "
                    f"those before on {backend.name!r}; make an optimizer for each"
                )
            backend = home
            updates[id(variable)] = (_checked(gradient, variable), state)
        if not updates:
            raise ValueError(
                "No gradients provided for any variable."
                + (f" All are None: {_names(missing)}." if missing else "")
                + " Was the loss computed from them, inside the tape's block?"
            )
        if new := [variable for variable in missing if id(variable) not in self._warned]:
            self._warned.update(map(id, new))
            warn_user(f"Gradients do not exist for variables {_names(new)}: they are not updated")
        assert backend is not None
        rate = self.learning_rate
        commit = Commit()
        with backend.quiet():
            self._apply(list(updates.values()), backend.xp, rate, commit)
        commit.value(Optimizer.iterations.of(self), self.iterations + 1)
        if fresh:
            commit.attribute(self, "_states", {**self._states, **fresh})
        return commit

    def scale_loss(self, loss: Any) -> Any:
        """What to differentiate in place of the loss: the loss itself, but see :class:`LossScaler`."""
        return loss

    # -- what a new optimizer says

    def _slots(self) -> dict[str, float]:
        """What is remembered for each Variable: arrays like it, by name, with the number they start from."""
        return {}

    def _step(self, xp: Any, w: Any, g: Any, slots: Slots, rate: float, t: int) -> Any:
        """Update number `t`, from 1, of raw arrays; returns the new `w`.

        It must be elementwise: large arrays come in pieces. `w` and what is in `slots` are copies, to be updated in
        place (`slots["momentum"] *= 0.9`); `g` is not. With the class attribute `_in_place = False` small ones are
        what others see: new arrays take their place (`slots["momentum"] = slots["momentum"] * 0.9`), which is faster.

        In a compiled function the arrays, `rate` and `t` are traced, and so what it does becomes part of the code. A
        function of `rate` and `t` alone that takes Python's own numbers, such as `math.sqrt`, has the decorator
        `of_numbers`. Where the step decides by one of these numbers, the update runs as it is.
        """
        raise NotImplementedError

    _in_place: ClassVar[bool] = True
    """Whether `_step` may write to the arrays that it is given; see there."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # That of the class around says nothing about a step of its own.
        if "_step" in vars(cls) and "_in_place" not in vars(cls):
            cls._in_place = True

    def _step_rows(
        self, xp: Any, w: Any, indices: Any, rows: Any, slots: dict[str, Any], rate: float, add_rows: Any
    ) -> Any:
        """The same, of the rows that a sparse gradient names; None if other rows move as well.

        `add_rows(x, indices, rows)` gives `w`, or what is in `slots`, with rows added; nothing is written in place.
        """
        return None

    _distinct_rows: ClassVar[bool] = True
    """Whether `_step_rows` needs each row once."""

    # -- one update

    def _apply(self, updates: list[tuple[Any, _State]], xp: Any, rate: float, commit: Commit) -> None:
        """Compute all new values; they are nobody's before the commit."""
        clips = self.clipnorm or self.clipvalue or self.global_clipnorm
        gradients = []
        for g, _ in updates:
            if isinstance(g, IndexedSlices) and (clips or self._distinct_rows):
                g = _distinct(g, xp)
            gradients.append(g)
        factors: list[Any] = [None] * len(updates)
        if self.global_clipnorm is not None:
            norm = clipping.norm(xp, [_values(g) for g in gradients])
            factors = [clipping.factor(xp, norm, self.global_clipnorm)] * len(updates)
        elif self.clipnorm is not None:
            norms = [clipping.norm(xp, [_values(g)]) for g in gradients]
            factors = [clipping.factor(xp, norm, self.clipnorm) for norm in norms]
        number = self.iterations + 1
        for g, factor, (_, state) in zip(gradients, factors, updates, strict=True):
            if factor is not None:
                factor = xp.astype(factor, _values(g).dtype)
            t = number - state.started
            sparse = isinstance(g, IndexedSlices)
            if sparse:
                if self._move_rows(xp, g, factor, state, rate, commit):
                    continue
                g = xp.scatter(g.values.array, g.indices.array, g.dense_shape)
            self._move(xp, g, factor, state, rate, t, commit, spare=g if sparse else None)

    def _move(
        self,
        xp: Any,
        gradient: Any,
        factor: Any,
        state: _State,
        rate: float,
        t: int,
        commit: Commit,
        spare: Any = None,
    ) -> None:
        """Compute one Variable's new values; a large one's may have the memory `spare`, that of a gradient, say."""
        variable, slots = state.variable, state.slots
        if current() is None and type(variable) is Variable:
            backend = variable._home  # the slots: the properties would ask for the trace each time
            whole = [gradient, variable._raw, *[slot._raw for slot in slots.values()]]
        else:
            backend = variable.backend
            whole = [gradient, variable._array, *[slot._array for slot in slots.values()]]
        blocks = backend.blocks(whole)
        if type(blocks) is list:
            g, *own = whole
            if self._in_place:
                own = [backend.asarray(array, copy=True) for array in own]
            new = self._piece(xp, self._clipped(xp, g, factor), own, None, state, rate, t)
        else:
            new = [xp.empty_like(array) for array in whole[2:]]
            # Each block is written when its gradient was used.
            new.insert(0, xp.empty_like(whole[1]) if spare is None or self._in_place else spare)
            for (g, *own), targets in zip(blocks, backend.blocks(new), strict=True):
                if self._in_place:
                    for target, part in zip(targets, own, strict=True):
                        target[...] = part
                    own = targets
                found = self._piece(xp, self._clipped(xp, g, factor), own, targets, state, rate, t)
                for target, part in zip(targets, found, strict=True):
                    if part is not target:
                        target[...] = part
        commit.value(variable, new[0], wrap(new[0], backend) if LISTENERS else None)
        for slot, array in zip(slots.values(), new[1:], strict=True):
            commit.value(slot, array)

    def _piece(
        self, xp: Any, g: Any, own: list[Any], targets: list[Any] | None, state: _State, rate: float, t: int
    ) -> list[Any]:
        """New arrays for the Variable and for what is remembered about it, in the same order."""
        w, *rest = own
        slots = Slots(zip(state.slots, rest, strict=True))
        if targets is not None and not self._in_place:
            slots.library, slots.memory = (
                state.variable.backend.namespace,
                dict(zip(("", *state.slots), targets, strict=True)),
            )
        if self.weight_decay and id(state.variable) not in self._undecayed:
            w = w * (1 - rate * self.weight_decay)
        w = self._step(xp, w, g, slots, rate, t)
        return [w, *slots.values()]

    def _move_rows(
        self, xp: Any, slices: IndexedSlices, factor: Any, state: _State, rate: float, commit: Commit
    ) -> bool:
        if self.weight_decay and id(state.variable) not in self._undecayed:
            return False  # which moves all rows
        variable, backend = state.variable, state.variable.backend
        rows = self._clipped(xp, slices.values.array, factor)
        slots = {name: slot._array for name, slot in state.slots.items()}
        add_rows = partial(rows_added, backend)
        array = self._step_rows(xp, variable._array, slices.indices.array, rows, slots, rate, add_rows)
        if array is None:
            return False
        commit.value(variable, array, wrap(array, backend) if LISTENERS else None)
        for name, slot in state.slots.items():
            commit.value(slot, slots[name])
        return True

    def _clipped(self, xp: Any, g: Any, factor: Any) -> Any:
        if factor is not None:
            return g * factor
        return g if self.clipvalue is None else xp.clip(g, -self.clipvalue, self.clipvalue)

    def _started(self, variable: Variable) -> _State:
        """What is remembered about a Variable before its first update."""
        if not variable.dtype.inexact:
            raise TypeError(
                f"only floating-point variables can be optimized; {_names([variable])} has dtype {variable.dtype}"
            )
        if self._real_only and variable.dtype.kind == "complex floating":
            kind = type(self).__name__
            raise TypeError(f"{kind} updates real variables; {_names([variable])} has dtype {variable.dtype}")
        started = value_of(self.iterations)
        with outside():
            xp, like = variable.backend.xp, variable._array
            slots = {name: xp.full_like(like, value) for name, value in self._slots().items()}
            return _State(variable, started, slots)

    # -- state

    def state_dict(self, variables: Any) -> dict[str, Tensor]:
        """All that the optimizer remembers, by name: for a checkpoint. Copies, which later updates leave alone.

        >>> import tape_core as tc
        >>> import tape_nn as nn
        >>> w = tc.Variable([1.0, 2.0])
        >>> optimizer = nn.SGD(0.5, momentum=0.9)
        >>> optimizer.apply_gradients([([1.0, 1.0], w)])
        >>> state = optimizer.state_dict({"w": w})
        >>> sorted(state), state["w/momentum"].tolist()
        (['iterations', 'learning_rate', 'w/momentum', 'w/started'], [-0.5, -0.5])

        Args:
            variables: what names the Variables: a Module, or a mapping from names to Variables.

        Raises:
            ValueError: one that the optimizer has updated is not among them.
        """
        names = {id(variable): name for name, variable in named(variables)}
        state = {"iterations": asarray(self.iterations, dtype=tc.int64)}
        if self._schedule is None:  # a schedule is part of the program
            state["learning_rate"] = asarray(self._rate, dtype=tc.float64)
        for key, own in self._states.items():
            if key not in names:
                raise ValueError(
                    f"state_dict: {_names([own.variable])} was updated by this optimizer and is not among the variables"
                )
            state[f"{names[key]}/started"] = asarray(own.started, dtype=tc.int64)
            backend = own.variable.backend
            for slot, value in own.slots.items():
                state[f"{names[key]}/{slot}"] = wrap(backend.asarray(value._array, copy=True), backend)
        return state

    def load_state_dict(self, state: Mapping[str, Any], variables: Any) -> None:
        """Go on from a state that :meth:`state_dict` gave, for Variables of the same names.

        Raises:
            ValueError: a name or a shape is not that of the Variables or of this kind of optimizer. Nothing is changed.
        """
        by_name = dict(named(variables))
        wanted = {"iterations"} | {"learning_rate"} & state.keys()
        found: list[tuple[Variable, int, dict[str, Any]]] = []
        for name, variable in by_name.items():
            if f"{name}/started" not in state:
                continue
            slots = {}
            for slot in self._slots():
                key = f"{name}/{slot}"
                if key not in state:
                    raise ValueError(f"load_state_dict: {key!r} is missing: is it the state of another optimizer?")
                value = like(state[key], variable)
                if value.shape != variable.shape:
                    raise ValueError(
                        f"load_state_dict: {key!r} has shape {value.shape}; the variable has {variable.shape}"
                    )
                slots[slot] = value._array
                wanted.add(key)
            wanted.add(f"{name}/started")
            found.append((variable, int(state[f"{name}/started"]), slots))
        if unknown := [key for key in state if key not in wanted]:
            known = [f"{name}/{slot}" for name in by_name for slot in (*self._slots(), "started")]
            raise ValueError(unknown_names("load_state_dict", unknown, known))
        if "iterations" not in state:
            raise ValueError("load_state_dict: 'iterations' is missing: this is no optimizer's state")
        commit = Commit()
        self._take_states(found, commit)
        commit.value(Optimizer.iterations.of(self), int(state["iterations"]))
        if "learning_rate" in state and self._schedule is None:
            commit.value(Optimizer._rate.of(self), float(state["learning_rate"]))
        commit.make()

    def _take_states(self, found: list[tuple[Variable, int, dict[str, Any]]], commit: Commit) -> None:
        """Into the slots that are there, which compiled functions know."""
        states: dict[int, _State] = {}
        for variable, started, slots in found:
            known = self._states.get(id(variable))
            if known is not None and known.started == started and known.slots.keys() == slots.keys():
                for name, slot in known.slots.items():
                    commit.value(slot, slots[name])
                states[id(variable)] = known
            else:
                states[id(variable)] = _State(variable, started, slots)
        if list(map(id, self._states.values())) != list(map(id, states.values())):
            commit.attribute(self, "_changes", self._changes + 1)
        commit.attribute(self, "_states", states)

    @staticmethod
    def _within(name: str, value: float, low: float, high: float = math.inf, *, below: bool = False) -> float:
        """A number in its range; with `below` less than `high`."""
        found = real("", name, value)
        if low <= found and (found < high if below else found <= high) and found < math.inf:
            return found
        if high == math.inf:
            raise ValueError(f"{name} must be at least {low}; got {value}")
        text = f"at least {low} and less than {high}" if below else f"between {low} and {high}"
        raise ValueError(f"{name} must be {text}; got {value}")


class Slots(dict[str, Any]):
    """What is remembered about one Variable, or a block of it, as raw arrays by name.

    Attributes:
        memory: where new values are to be, by the same names, with that of the Variable as `""`; or nothing.
        library: its functions take `out=`.
    """

    memory: Mapping[str, Any] = MappingProxyType({})
    library: Any = None

    def add(self, name: str, change: Any, decay: float | None = None) -> Any:
        """Replace what has this name by its sum with a change, which returns; with `decay` times that before.

        The memory of `change` may be used.
        """
        memory, x = self.memory.get(name), self[name]
        if memory is None or change is memory:
            change += x if decay is None else x * decay
        elif decay is None:
            change = self.library.add(change, x, out=memory)
        else:
            self.library.multiply(x, decay, out=memory)
            memory += change
            change = memory
        self[name] = change
        return change

    def moved(self, w: Any, step: Any) -> Any:
        """`w - step`."""
        memory = self.memory.get("")
        return w - step if memory is None else self.library.subtract(w, step, out=memory)

    # What is computed where the result is to be needs no memory of its own, nor time to bring that to the cache.

    def difference(self, name: str, x: Any) -> Any:
        """`x` less what has this name, in the memory for its new value if there is some."""
        memory = self.memory.get(name)
        return x - self[name] if memory is None else self.library.subtract(x, self[name], out=memory)

    def square(self, name: str, x: Any) -> Any:
        """`x * x`, in the memory for the new value of that name if there is some."""
        memory = self.memory.get(name)
        return x * x if memory is None else self.library.multiply(x, x, out=memory)

    def quotient(self, xp: Any, a: Any, b: Any, epsilon: float) -> Any:
        """`a / (sqrt(b) + epsilon)`, in the memory for the new value of the Variable if there is some."""
        memory = self.memory.get("")
        root = xp.sqrt(b) if memory is None else self.library.sqrt(b, out=memory)
        root += epsilon
        return a / root if memory is None else self.library.divide(a, root, out=memory)


class _State:
    """What an optimizer remembers about one Variable: Variables of the same shape."""

    def __init__(self, variable: Variable, started: int, slots: dict[str, Any]) -> None:
        self.variable = variable
        self.started = started
        self.slots = {
            name: Variable(wrap(array, variable.backend), trainable=False, name=f"{variable.name or 'variable'}_{name}")
            for name, array in slots.items()
        }


class _Settings:
    """What a compiled function takes for granted about an optimizer: all that is a Python value."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = ref(optimizer)  # which has these settings, and is no part of them
        plain = [name for name, value in vars(optimizer).items() if type(value) in SCALARS or value is None]
        self.get = attrgetter("_schedule", *plain)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy makes its own

    def __call__(self) -> Any:
        optimizer = self.optimizer()
        return None if optimizer is None else self.get(optimizer)


@host_function
def _checked_rate(value: Any, name: str) -> float:
    rate = real("", name, value)
    if not 0 <= rate < math.inf:
        raise ValueError(f"{name} must be a number of at least 0; got {value}")
    return rate


@host_function
def _scheduled(schedule: Schedule, iterations: int) -> float:
    return _checked_rate(schedule(iterations), "the schedule's learning rate")


def _pair(pair: Any) -> tuple[Any, Variable]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(
            "apply_gradients takes (gradient, variable) pairs, such as zip(gradients, variables); "
            f"got an element of type {type(pair).__name__!r}"
        )
    gradient, variable = pair
    if not isinstance(variable, Variable):
        raise TypeError(
            "apply_gradients takes (gradient, variable) pairs; the second of this pair is no "
            f"Variable but of type {type(variable).__name__!r}"
            + (". Are the two swapped?" if isinstance(gradient, Variable) else "")
        )
    return gradient, variable


def _checked(gradient: Any, variable: Variable) -> Any:
    """The gradient as a raw array, so that nothing done with it is recorded, or IndexedSlices."""
    plain = type(gradient) is Tensor and type(variable) is Variable and current() is None
    if plain and gradient.backend is variable._home:
        array, own = gradient._array, variable._raw  # the slots: the properties would ask for the trace each time
        if array.dtype == own.dtype and array.shape == own.shape:
            return array
    if not isinstance(gradient, Tensor | IndexedSlices):
        gradient = asarray(gradient, dtype=variable.dtype, backend=variable.backend, device=variable.device)
    values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
    if values.backend is not variable.backend:
        raise TypeError(
            f"the gradient of {_names([variable])} is on backend {values.backend.name!r}; "
            f"the variable is on {variable.backend.name!r}"
        )
    if isinstance(gradient, IndexedSlices):
        shape = gradient.dense_shape
        result: Any = gradient
        if gradient.dtype is not variable.dtype:
            values = tc.astype(wrap(values.array, variable.backend), variable.dtype)
            result = IndexedSlices(values, gradient.indices, shape)
    else:
        shape = gradient.shape
        result = gradient._array
        if gradient.dtype is not variable.dtype:
            backend = variable.backend
            result = backend.xp.astype(result, backend.raw_dtype(variable.dtype))
    if shape != variable.shape:
        raise ValueError(f"the gradient of {_names([variable])} has shape {shape}; the variable has {variable.shape}")
    return result


def _distinct(slices: IndexedSlices, xp: Any) -> IndexedSlices:
    """The same, each row once, added up."""
    backend = slices.values.backend
    raw = IndexedSlices(slices.values.array, slices.indices.array, slices.dense_shape, _xp=xp).merged()
    return IndexedSlices(wrap(raw.values, backend), wrap(raw.indices, backend), slices.dense_shape)


def _values(gradient: Any) -> Any:
    return gradient.values.array if isinstance(gradient, IndexedSlices) else gradient


def _names(variables: list[Variable]) -> str:
    return ", ".join(repr(v.name) if v.name else f"<Variable of shape {v.shape}>" for v in variables)
