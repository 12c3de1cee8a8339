"""The base class of optimizers: (gradient, variable) pairs, clipping, weight decay, schedules, sparse rows, state.

One update goes through these steps. `apply_gradients` checks the pairs and finds or makes the slots of each Variable
(`_compute_update`), clips (`_compute_values`), computes new arrays for each Variable and its slots (`Update`, which
calls the subclass's `_step` or `_step_rows`), and collects all of them in a `Commit`. Nothing is assigned before the
commit is made; so an error or an interrupt leaves everything as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from html import escape
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import ref

from tape_core import IndexedSlices, Tensor, Variable
from tape_core.staging import current, guard, host_number, outside, stateful, value_of
from tape_core.support import (
    SCALARS,
    Commit,
    Lock,
    check_assignable,
    give_back,
    layouts,
    lenient,
    lenient_html,
    real,
    sequence,
    warn_user,
)
from tape_core.typing import ArrayLike, Namespace, PyTree, Raw

from tape_nn import clipping
from tape_nn.hints import check_optimizer_arguments, hint_at_names, present
from tape_nn.module import Module
from tape_nn.naming import describe_settings, settings_of
from tape_nn.optimizers.agreement import Compared, compare_settings
from tape_nn.optimizers.groups import ParameterGroup
from tape_nn.optimizers.pairs import (
    check_gradient,
    check_pair,
    densified,
    is_divided,
    merge_in_place,
    merge_rows,
    names_of,
    paired,
    pairs_of_variables,
    values_of,
)
from tape_nn.optimizers.rates import Schedule, check_rate, scheduled_rate
from tape_nn.optimizers.slots import Slots, SlotState
from tape_nn.optimizers.states import load_state, state_of
from tape_nn.optimizers.updates import AddRows, Update
from tape_nn.thresholds import SETTLE_MIN_BYTES
from tape_nn.types import Gradient

SLOT_CREATION: Final = Lock()
"""Held by a thread that updates a Variable for the first time, so that no two threads make slots for it."""

_NO_LOCK: Final = nullcontext()


class Optimizer(Compared):
    """Base class of optimizers. A new one names its slots in `_slots`, and computes an update in `_step`.

    A slot is an array that the optimizer keeps for each Variable, such as a momentum. Slots belong to the very Variable
    object, and those of one that appears late start fresh. Updates are not recorded by tapes, and records keep the
    values that were read: updating inside a tape's block is fine.

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
        learning_rate: a number, or a schedule, which is called with the number of updates that were applied so far
            (see :mod:`tape_nn.schedules`).
        weight_decay: decoupled weight decay (Loshchilov and Hutter, 2017): `learning_rate * weight_decay * w` is
            subtracted from each Variable before its update.
        clipnorm: each gradient is scaled to this norm if its own is larger.
        clipvalue: elements of gradients are clipped to at most this, and at least its negative.
        global_clipnorm: all gradients are scaled by one factor, so that their norm together is at most this.
        groups: Variables with a learning rate or a weight decay of their own, or frozen ones: each a
            :class:`ParameterGroup`.

    Raises:
        ValueError: a number is out of range, or more than one kind of clipping is asked for.
        TypeError: `groups` holds something else.
    """

    if not TYPE_CHECKING:  # to a type checker the arguments are those of `__init__`

        def __new__(cls, *args, **kwargs):
            # A class of the user's may have arguments of its own, whatever they are called.
            if cls.__init__.__module__.startswith("tape_nn."):
                check_optimizer_arguments(cls.__name__, kwargs, args[0] if args else None)
            return super().__new__(cls)

    _real_only: ClassVar[bool] = True
    """True if complex Variables are refused."""

    # Compiled functions read and assign a `host_number()` in each call, as they do Variables.
    iterations: Any = host_number()
    """The number of updates applied."""
    _rate: Any = host_number()  # the learning rate where it is a number, and NaN where a schedule gives it

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        groups: Sequence[ParameterGroup] = (),
    ) -> None:
        self.groups = tuple(sequence("Optimizer", "groups", "ParameterGroups", groups))
        for group in self.groups:
            if not isinstance(group, ParameterGroup):
                raise TypeError(f"groups must be ParameterGroups; got an element of type {type(group).__name__!r}")
        self.learning_rate = learning_rate  # the setter takes schedules, too
        self.weight_decay = None if weight_decay is None else self._check_range("weight_decay", weight_decay, 0)
        # One kind only, as in Keras: the result of two would depend on their order.
        clips = {"clipnorm": clipnorm, "clipvalue": clipvalue, "global_clipnorm": global_clipnorm}
        chosen = {name: clipping.check_positive(name, value) for name, value in clips.items() if value is not None}
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} were both given; gradients are clipped in one way only")
        self.clipnorm, self.clipvalue, self.global_clipnorm = map(chosen.get, clips)
        self.iterations = 0
        # By the id of the Variable. The entry keeps the Variable alive, and so its id unique.
        self._states: dict[int, SlotState] = {}
        self._without_decay: dict[int, Variable] = {}
        self._groups_by_id: dict[int, tuple[Variable, list[ParameterGroup]]] = {}
        self._warned: set[int] = set()  # ids of Variables that had no gradient: one warning each
        self._version = 0  # counts changes that compiled functions must be traced again for, besides settings
        self._settings: _SettingsGuard | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a copy, or of what was pickled: its Variables have other ids."""
        vars(self).update(state)
        self._states = {id(own.variable): own for own in self._states.values()}
        self._without_decay = {id(variable): variable for variable in self._without_decay.values()}
        self._groups_by_id = {id(entry[0]): entry for entry in self._groups_by_id.values()}
        self._warned = set()

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update. It can be set at any time, to a number or to a schedule."""
        self._guard_settings()
        if self._schedule is None:
            return self._rate  # type: ignore[no-any-return]
        return scheduled_rate(self._schedule, self.iterations)

    @learning_rate.setter
    def learning_rate(self, value: float | Schedule) -> None:
        self._schedule: Schedule | None = value if callable(value) and not isinstance(value, Tensor) else None
        # A Python float, which is weak in promotion; an np.float64 would turn float32 arrays into float64 ones.
        self._rate = check_rate(value, "learning_rate") if self._schedule is None else math.nan

    @lenient
    def __repr__(self) -> str:
        rate = Optimizer._rate.of(self).kept if self._schedule is None else self._schedule
        text = describe_settings(self, learning_rate=rate)
        return f"{text[:-1]}, groups=[{', '.join(map(repr, self.groups))}])" if self.groups else text

    @lenient_html
    def _repr_html_(self) -> str:
        """Return the display in a notebook: a table of the settings, and the groups as text."""
        rate = Optimizer._rate.of(self).kept if self._schedule is None else self._schedule
        rows = settings_of(self, learning_rate=rate)
        cells = [f"<tr><th>{escape(name)}</th><td>{escape(repr(value))}</td></tr>" for name, value in rows.items()]
        groups = "".join([f"<p>group: {escape(repr(group))}</p>" for group in self.groups])
        return f"<p>{escape(type(self).__name__)}</p><table><tbody>{''.join(cells)}</tbody></table>{groups}"

    def __dir__(self) -> list[str]:
        return present(self, super().__dir__())

    def exclude_from_weight_decay(self, variables: Iterable[Variable]) -> None:
        """Leave these Variables, such as biases, out of weight decay."""
        for variable in variables:
            if not isinstance(variable, Variable):
                raise TypeError(f"exclude_from_weight_decay takes Variables; got {type(variable).__name__!r}")
            self._without_decay[id(variable)] = variable
        # The set is no plain setting that the guard could compare.
        self._version += 1

    def build(self, variables: Iterable[Variable]) -> None:
        """Make the slots of these Variables now, and not at their first update.

        Raises:
            TypeError: one is no floating-point Variable.
        """
        for variable in variables:
            if not isinstance(variable, Variable):
                raise TypeError(f"build takes Variables; got {type(variable).__name__!r}")
            if id(variable) not in self._states:
                # Checked again under the lock: most calls find their slots and never take it.
                with SLOT_CREATION.held():
                    if id(variable) not in self._states:  # another thread may have made them meanwhile
                        self._states[id(variable)] = self._new_state(variable)

    def _prepare(self, pairs: list[tuple[Gradient, Variable]]) -> None:
        """Make slots that are missing, where a trace is running: an opaque call must know of all state before."""
        if current() is None:
            return
        variables = [variable for _, variable in pairs_of_variables(pairs) if variable.dtype.inexact]
        if self.groups:
            self._assign_groups(variables)
            variables = [v for v in variables if not any([group.frozen for group in self._groups_of(v)])]
        self.build(variables)

    def _holders(self) -> Iterable[Any]:
        """All state that updates change besides the Variables that are updated; see `stateful`."""
        slots = [slot for state in self._states.values() for slot in state.slots.values()]
        rates = [ParameterGroup._rate.of(group) for group in self.groups]
        return [*slots, Optimizer.iterations.of(self), Optimizer._rate.of(self), *rates]

    def _guard_settings(self) -> None:
        """Inside a trace, add a guard: with other settings, such as `beta_1`, the function is traced again."""
        # After copy.copy the attribute is still the guard of the original.
        if self._settings is None or self._settings.optimizer() is not self:
            self._settings = _SettingsGuard(self)
        guard(self._settings)

    @stateful(_holders)
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Gradient, Variable]] | Module, variables: PyTree = None
    ) -> None:
        """Update Variables once.

        Everything is computed before anything is changed; then all changes are made at once, so that a
        KeyboardInterrupt leaves either none of them or all.

        Args:
            grads_and_vars: (gradient, variable) pairs, as `zip(gradients, variables)` gives them.
                Where a gradient is None the Variable is skipped with a warning, once. With `variables` the gradients
                alone, in the same structure.
            variables: a Module, or any pytree of Variables.

        Raises:
            ValueError: no Variable has a gradient, one is there twice, or the shape of a gradient is not that of its
                Variable.
            TypeError: an element is no pair, or its second part no floating-point Variable; or the Variables are on
                several backends.
        """
        pairs = list(paired(grads_and_vars, variables))
        with self._slot_creation_lock(pairs):
            self._compute_update(pairs).make()

    def _slot_creation_lock(self, pairs: list[tuple[Gradient, Variable]]) -> AbstractContextManager[object]:
        """Return a context for one update, in which no other thread makes slots if this update may."""
        return _NO_LOCK if self._knows(pairs) else SLOT_CREATION.held()

    def _knows(self, pairs: list[tuple[Gradient, Variable]]) -> bool:
        """Return whether there are slots for all Variables."""
        try:
            return self._states.keys() >= {id(variable) for _, variable in pairs}
        except (TypeError, ValueError):  # an element is no pair: `check_pair` reports it
            return False

    def _compute_update(self, grads_and_vars: Iterable[tuple[Gradient, Variable]]) -> Commit:
        """Compute one update of all Variables, without making it."""
        updates: dict[int, tuple[Raw | IndexedSlices, SlotState]] = {}
        missing = []
        fresh: dict[int, SlotState] = {}
        backend = None
        frozen = []
        # First check all pairs, so that an error in the last one leaves the first Variable as it was.
        pairs: Iterable[Any] = grads_and_vars
        if groups := self.groups:
            pairs = [check_pair(pair) for pair in grads_and_vars]
            self._assign_groups([variable for _, variable in pairs])
        for pair in pairs:
            gradient, variable = check_pair(pair)
            if groups and any([group.frozen for group in self._groups_of(variable)]):
                frozen.append(variable)
                continue
            state = self._states.get(id(variable)) or fresh.get(id(variable))
            if state is None:
                state = fresh[id(variable)] = self._new_state(variable)
                # `_holders` tells a trace of the slots, also where `stateful` falls back to one opaque instruction.
                if current() is not None:
                    self._states[id(variable)] = state
            if gradient is None:
                missing.append(variable)
                continue
            check_assignable(variable)
            home = variable.backend
            if id(variable) in updates:
                raise ValueError(f"{names_of([variable])} is there twice; add its gradients up")
            if backend is not None and home is not backend:
                raise TypeError(
                    f"the variables are on several backends: {names_of([variable])} is on {home.name!r}, "
                    f"those before on {backend.name!r}; make an optimizer for each"
                )
            backend = home
            updates[id(variable)] = (check_gradient(gradient, variable), state)
        if not updates and frozen and not missing:
            raise ValueError(f"all variables are frozen by groups of the optimizer: {names_of(frozen)}")
        if not updates:
            raise ValueError(
                "No gradients provided for any variable."
                + (f" All are None: {names_of(missing)}." if missing else "")
                + " Was the loss computed from them, inside the tape's block?"
            )
        if new := [variable for variable in missing if id(variable) not in self._warned]:
            self._warned.update(map(id, new))
            warn_user(f"Gradients do not exist for variables {names_of(new)}: they are not updated")
        assert backend is not None
        if fresh and layouts.are_compared:
            compare_settings(self, [state.variable for state in fresh.values()])
        rate = self.learning_rate
        commit = Commit()
        # NumPy's warnings are off meanwhile: they would point at a line of this file, and not at one of the user's.
        with backend.quiet():
            self._compute_values(list(updates.values()), backend.xp, rate, commit)
        # In the same commit as the Variables: a count without its update would shift all bias corrections.
        commit.value(Optimizer.iterations.of(self), self.iterations + 1)
        if fresh:
            commit.attribute(self, "_states", {**self._states, **fresh})
        return commit

    def scale_loss(self, loss: ArrayLike) -> ArrayLike:
        """Return the tensor to differentiate in place of the loss: here the loss itself; see :class:`LossScaler`."""
        return loss

    # -- what a new optimizer defines

    def _slots(self) -> dict[str, float]:
        """Return the names of the slots, with the number that each is filled with at first."""
        return {}

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        """Compute update number `t`, counted from 1, of raw arrays; return the new `w`.

        The update must be elementwise, since large arrays come in blocks. `w` and the slots are copies, to be updated
        in place (`slots["momentum"] *= 0.9`); `g` is not to be written to. With the class attribute
        `_in_place = False` nothing may be written to: new arrays are put into `slots`
        (`slots["momentum"] = slots["momentum"] * 0.9`). This is faster, since nothing is copied.

        In a compiled function the arrays, `rate` and `t` are traced, so that the update is compiled. Decorate a
        function of `rate` and `t` alone that needs Python numbers, such as `math.sqrt`, with `host_function`. A step
        that branches on one of these numbers becomes one opaque instruction, which calls it in Python.
        """
        raise NotImplementedError

    _in_place: ClassVar[bool] = True
    """True if `_step` may write to the arrays that it is given; see there."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # The base class's `_in_place = False` promises nothing about the `_step` that a subclass overrides.
        if "_step" in vars(cls) and "_in_place" not in vars(cls):
            cls._in_place = True

    def _step_rows(
        self,
        xp: Namespace,
        w: Raw,
        indices: Raw,
        rows: Raw,
        slots: dict[str, Raw],
        rate: float,
        t: int,
        add_rows: AddRows,
    ) -> Raw | None:
        """Compute an update of the rows that a sparse gradient names; return None if other rows move as well.

        `t` is the number of the update of the Variable, from 1.
        `add_rows(x, indices, rows)` returns `w` or a slot with rows added; nothing is written in place.
        """
        return None

    def _moves_all_rows(self, variable: Variable) -> bool:
        """Return whether a sparse gradient moves rows that it does not name: `_step_rows` returns None then."""
        decays = bool(self._decay_of(variable)) and not self.lazy
        return decays or type(self)._step_rows is Optimizer._step_rows

    lazy: bool = False
    """True if a sparse gradient moves only the rows that it names, in the Variable and in its slots."""

    _distinct_rows: ClassVar[bool] = True
    """True if rows of a sparse gradient that are named twice must be added up before `_step_rows`."""

    # -- one update

    def _compute_values(
        self, updates: list[tuple[Raw | IndexedSlices, SlotState]], xp: Namespace, rate: float, commit: Commit
    ) -> None:
        """Clip the gradients, and put new values of all Variables and slots into the commit."""
        clips = self.clipnorm or self.clipvalue or self.global_clipnorm
        stage = current()
        fixed_shapes = stage is not None and stage.fixed_shapes
        gradients: list[Raw | IndexedSlices] = []
        firsts: dict[int, Raw] = {}  # of gradients that still have a row for each name: which rows are updated
        for g, state in updates:
            # How many rows are named is a matter of values: where all rows move anyway, all are taken.
            if fixed_shapes and isinstance(g, IndexedSlices) and self._moves_all_rows(state.variable):
                g = densified(xp, g, state.variable._array)
            # So they are where to find equal names the rows of all processes would have to be brought together.
            if isinstance(g, IndexedSlices) and not self.lazy and is_divided(state.variable):
                g = densified(xp, g, state.variable._array)
            # The norm, and a limit on values, are of the sum of rows that are named twice.
            if isinstance(g, IndexedSlices) and (clips or self._distinct_rows):
                # An array that can be written to is updated by the host at the cost of its rows; XLA copies all of it.
                written = state.variable.backend.library.array_class is not None
                if fixed_shapes and g.values.shape[0] and not written:
                    g, firsts[id(state)] = merge_in_place(g, xp)
                else:
                    g = merge_rows(g, xp)
            gradients.append(g)
        factors: list[Raw | None] = [None] * len(updates)
        if self.global_clipnorm is not None:
            norm = clipping.norm(xp, [values_of(g) for g in gradients])
            factors = [clipping.clip_factor(xp, norm, self.global_clipnorm)] * len(updates)
        elif self.clipnorm is not None:
            norms = [clipping.norm(xp, [values_of(g)]) for g in gradients]
            factors = [clipping.clip_factor(xp, norm, self.clipnorm) for norm in norms]
        # A Variable that joined late counts its own updates: Adam's bias correction depends on them.
        number = self.iterations + 1
        base, rates = rate, dict[int, float]()
        for g, factor, (_, state) in zip(gradients, factors, updates, strict=True):
            if self.groups:
                rate = self._rate_of(state.variable, base, rates)
            if factor is not None:
                # The norm may be in float32 where gradients are of half precision.
                factor = xp.astype(factor, values_of(g).dtype)
            update = Update(self, xp, state, factor, rate, number - state.started)
            sparse = isinstance(g, IndexedSlices)
            if sparse:
                if update.rows(g, commit, firsts.get(id(state))):
                    continue
                # The step moves all rows, as with a momentum: the gradient is taken as dense.
                g = densified(xp, g, state.variable._array)
            update.dense(g, commit, spare=g if sparse else None)
            if stage is not None:
                _settle(state.variable)  # a trace makes each array anew

    def _is_of_formulas(self) -> bool:
        """Return whether `_step` does nothing with new values but compute them by methods of `Slots` for formulas.

        These may then add calls to a list, see `Backend.overwriting`, which are made later.
        """
        return False

    def _new_state(self, variable: Variable) -> SlotState:
        """Make the slots of a Variable before its first update.

        Raises:
            TypeError: it is no floating-point Variable, or a complex one that the optimizer does not take.
        """
        if not variable.dtype.inexact:
            raise TypeError(
                f"only floating-point variables can be optimized; {names_of([variable])} has dtype {variable.dtype}"
            )
        if self._real_only and variable.dtype.kind == "complex floating":
            kind = type(self).__name__
            raise TypeError(f"{kind} updates real variables; {names_of([variable])} has dtype {variable.dtype}")
        started = value_of(self.iterations)
        _settle(variable)
        with outside():  # slots are made once, when a function is traced, and not in each call of it
            xp, like = variable.backend.xp, variable._array
            first = self._slots()
            slots = {name: xp.full_like(like, value) for name, value in first.items()}
            state = SlotState(variable, started, slots)
            for name, value in first.items():
                if value == 0:
                    variable.backend.give_back_zeros(state.slots[name]._raw)
            return state

    # -- parameter groups

    def _assign_groups(self, variables: list[Variable]) -> None:
        """Find the groups of Variables that this optimizer has not seen yet."""
        new = [v for v in variables if self._groups_by_id.get(id(v), (None,))[0] is not v]
        if new:
            flags = [group.members_among(new) for group in self.groups]
            for variable, own in zip(new, zip(*flags, strict=True), strict=True):
                found = [group for group, belongs in zip(self.groups, own, strict=True) if belongs]
                self._groups_by_id[id(variable)] = variable, found  # the entry keeps the id unique

    def _groups_of(self, variable: Variable) -> list[ParameterGroup]:
        return self._groups_by_id[id(variable)][1]

    def _rate_of(self, variable: Variable, base: float, known: dict[int, float]) -> float:
        """Return the learning rate of a Variable. `known` has those of groups in this update, by their ids."""
        for group in self._groups_of(variable):
            if group.has_rate():
                if id(group) not in known:
                    known[id(group)] = group.rate(base, self.iterations)
                return known[id(group)]
        return base

    def _decay_of(self, variable: Variable) -> float:
        if id(variable) in self._without_decay:
            return 0.0
        if self.groups:
            for group in self._groups_of(variable):
                if group.weight_decay is not None:
                    return group.weight_decay
        return self.weight_decay or 0.0

    # -- state

    def state_dict(self, variables: Module | Mapping[str, Variable]) -> dict[str, Tensor]:
        """Return copies of the slots and counters by name, for a checkpoint.

        >>> import tape_core as tc
        >>> import tape_nn as nn
        >>> w = tc.Variable([1.0, 2.0])
        >>> optimizer = nn.SGD(0.5, momentum=0.9)
        >>> optimizer.apply_gradients([([1.0, 1.0], w)])
        >>> state = optimizer.state_dict({"w": w})
        >>> sorted(state), state["w/momentum"].tolist()
        (['iterations', 'learning_rate', 'w/momentum', 'w/started'], [-0.5, -0.5])

        Args:
            variables: a Module, or a mapping from names to Variables, which gives the Variables their names.

        Raises:
            ValueError: a Variable that the optimizer has updated is not among them.
        """
        return state_of(self, variables)

    def load_state_dict(self, state: Mapping[str, ArrayLike], variables: Module | Mapping[str, Variable]) -> None:
        """Continue from a state that :meth:`state_dict` gave, for Variables of the same names.

        Raises:
            ValueError: a name or a shape is not that of the Variables or of this kind of optimizer. Nothing is changed.
        """
        load_state(self, state, variables).make()

    @staticmethod
    def _check_range(name: str, value: float, low: float, high: float = math.inf, *, below: bool = False) -> float:
        """Return a number from `low` to `high`; with `below` it must be less than `high`.

        Raises:
            TypeError: it is no real number.
            ValueError: it is out of range.
        """
        found = real("", name, value)
        if low <= found and (found < high if below else found <= high) and found < math.inf:
            return found
        if high == math.inf:
            raise ValueError(f"{name} must be at least {low}; got {value}")
        text = f"at least {low} and less than {high}" if below else f"between {low} and {high}"
        raise ValueError(f"{name} must be {text}; got {value}")


def _settle(variable: Variable) -> None:
    """Give freed memory back to the system: a large Variable is updated for the first time, into new memory."""
    with outside():
        if variable.backend.has_spares(variable._array):
            give_back(variable.size * variable.dtype.itemsize, SETTLE_MIN_BYTES)


hint_at_names(Optimizer, "Optimizer")


class _SettingsGuard:
    """A guard of compiled functions: returns the optimizer's attributes that are Python scalars, and its schedule.

    A compiled function that has `beta_1 = 0.9` in its code is of use only while `beta_1` is 0.9.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = ref(optimizer)  # weak: the optimizer holds this guard
        plain = [name for name, value in vars(optimizer).items() if type(value) in SCALARS or value is None]
        self.get = attrgetter("_schedule", *plain)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a pickled or copied optimizer makes a guard of its own

    def __call__(self) -> object:
        optimizer = self.optimizer()
        if optimizer is None:
            return None
        settings = self.get(optimizer)
        return (settings, *[group.settings() for group in optimizer.groups]) if optimizer.groups else settings
