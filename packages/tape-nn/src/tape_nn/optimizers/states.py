"""The state of an optimizer by the names of the Variables that it updates, as checkpoints keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import tape_core as tc
from tape_core import Tensor, Variable, asarray
from tape_core.support import Commit, wrap
from tape_core.typing import ArrayLike, Raw

from tape_nn.module import Module
from tape_nn.naming import copy_like, named_variables, unknown_names
from tape_nn.optimizers.groups import ParameterGroup
from tape_nn.optimizers.pairs import names_of
from tape_nn.optimizers.slots import SlotState

if TYPE_CHECKING:
    from tape_nn.optimizers.base import Optimizer


def state_of(optimizer: Optimizer, variables: Module | Mapping[str, Variable]) -> dict[str, Tensor]:
    """Return copies of the slots and counters; see :meth:`Optimizer.state_dict`."""
    names = {id(variable): name for name, variable in named_variables(variables)}
    state = {"iterations": asarray(optimizer.iterations, dtype=tc.int64)}
    if optimizer._schedule is None:  # a schedule is part of the program
        state["learning_rate"] = asarray(optimizer._rate, dtype=tc.float64)
    for key, group in _rates_of_groups(optimizer).items():
        state[key] = asarray(group._rate, dtype=tc.float64)
    for own in optimizer._states.values():
        variable = own.variable
        if id(variable) not in names:
            name = names_of([variable])
            raise ValueError(f"state_dict: {name} was updated by this optimizer and is not among the variables")
        name = names[id(variable)]
        state[f"{name}/started"] = asarray(own.started, dtype=tc.int64)
        backend = variable.backend
        for slot, value in own.slots.items():
            state[f"{name}/{slot}"] = wrap(backend.asarray(value._array, copy=True), backend)
    return state


def load_state(
    optimizer: Optimizer, state: Mapping[str, ArrayLike], variables: Module | Mapping[str, Variable]
) -> Commit:
    """Check a state, and return a commit of it; see :meth:`Optimizer.load_state_dict`."""
    by_name = dict(named_variables(variables))
    rates = _rates_of_groups(optimizer)
    wanted = {"iterations"} | {"learning_rate", *rates} & state.keys()
    found: list[tuple[Variable, int, dict[str, Raw]]] = []
    for name, variable in by_name.items():
        if f"{name}/started" not in state:
            continue
        slots = {}
        for slot in optimizer._slots():
            key = f"{name}/{slot}"
            if key not in state:
                raise ValueError(f"load_state_dict: {key!r} is missing: is it the state of another optimizer?")
            value = copy_like(state[key], variable)
            if value.shape != variable.shape:
                raise ValueError(f"load_state_dict: {key!r} has shape {value.shape}; the variable has {variable.shape}")
            slots[slot] = value._array
            wanted.add(key)
        wanted.add(f"{name}/started")
        found.append((variable, int(state[f"{name}/started"]), slots))
    if unknown := [key for key in state if key not in wanted]:
        known = [f"{name}/{slot}" for name in by_name for slot in (*optimizer._slots(), "started")]
        raise ValueError(unknown_names("load_state_dict", unknown, known))
    if "iterations" not in state:
        raise ValueError("load_state_dict: 'iterations' is missing: this is no optimizer's state")
    commit = Commit()
    _load_slots(optimizer, found, commit)
    commit.value(type(optimizer).iterations.of(optimizer), int(state["iterations"]))
    if "learning_rate" in state and optimizer._schedule is None:
        commit.value(type(optimizer)._rate.of(optimizer), float(state["learning_rate"]))
    for key, group in rates.items():
        if key in state:
            commit.value(ParameterGroup._rate.of(group), float(state[key]))
    return commit


def _rates_of_groups(optimizer: Optimizer) -> dict[str, ParameterGroup]:
    """Return the groups whose learning rate is a number, which a state has; a schedule is part of the program."""
    return {
        f"groups/{k}/learning_rate": group
        for k, group in enumerate(optimizer.groups)
        if group.settings()[:2] == (True, None)
    }


def _load_slots(optimizer: Optimizer, found: list[tuple[Variable, int, dict[str, Raw]]], commit: Commit) -> None:
    """Commit loaded arrays: into the slots that exist, since compiled functions hold these Variables."""
    states: dict[int, SlotState] = {}
    for variable, started, slots in found:
        known = optimizer._states.get(id(variable))
        if known is not None and known.started == started and known.slots.keys() == slots.keys():
            for name, slot in known.slots.items():
                commit.value(slot, slots[name])
            states[id(variable)] = known
        else:
            states[id(variable)] = SlotState(variable, started, slots)
    # A compiled function holds the slots it was traced with; with other slots it must be traced again.
    if list(map(id, optimizer._states.values())) != list(map(id, states.values())):
        commit.attribute(optimizer, "_version", optimizer._version + 1)
    commit.attribute(optimizer, "_states", states)
