"""The states of the random generators that a Module holds, as entries of its state_dict, and of all that a run uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import tape_core as tc
from tape_core import Tensor
from tape_core.random import global_rng
from tape_core.staging import opaque
from tape_core.typing import ArrayLike

if TYPE_CHECKING:
    from tape_nn.module import Module

_WORD: Final = 1 << 64


def all_generators(module: Module) -> Iterator[tuple[str, tc.Generator, bool]]:
    """Yield path, generator, and whether calls draw from it: of each that is an attribute, under its first path."""
    # One that several Modules share is in the state if one of them draws from it in calls.
    found: dict[int, tuple[str, tc.Generator, bool]] = {}
    for path, owner in module.named_modules():
        for name, value in vars(owner).items():
            if isinstance(value, tc.Generator):
                # A layer that does not say otherwise has `rng` for the first values of its Variables alone.
                draws = name != "rng" or getattr(owner, "draws_from_rng", True)
                first, _, before = found.get(id(value), (f"{path}.{name}" if path else name, value, False))
                found[id(value)] = first, value, before or draws
    yield from found.values()


def named_generators(module: Module) -> dict[str, tc.Generator]:
    """Return the generators that calls of a Module draw from, by their paths."""
    return {path: generator for path, generator, draws in all_generators(module) if draws}


def state_tensor(generator: tc.Generator) -> Tensor:
    """Return the state of a generator as an int64 Tensor, which every file of tensors can hold."""
    return tc.asarray([n - _WORD if n >= _WORD >> 1 else n for n in generator.get_state()], dtype=tc.int64)


def current_state(generator: tc.Generator) -> Tensor:
    """Return the state of a generator at this point of a program, also of a compiled one."""

    def state_of_generator() -> Tensor:
        return state_tensor(generator)

    return opaque(state_of_generator)()


def checked_state(name: str, value: ArrayLike) -> Tensor:
    """Return an entry of a state_dict as a Tensor.

    Raises:
        ValueError: it is no state of a generator.
    """
    tensor = value if isinstance(value, Tensor) else tc.asarray(value)
    if tensor.shape != (3,) or tensor.dtype is not tc.int64:
        raise ValueError(
            f"{name!r} has dtype {tensor.dtype} and shape {tensor.shape}; the state of a random generator is int64 of "
            "shape (3,)"
        )
    return tensor


def state_of(name: str, value: ArrayLike) -> tuple[int, int, int]:
    """Return the state in an entry of a state_dict.

    Raises:
        ValueError: it is no state of a generator.
    """
    tensor = checked_state(name, value)
    a, b, c = [number % _WORD for number in tensor.tolist()]
    return a, b, c


def states_in(
    state: Mapping[str, ArrayLike], module: Module
) -> tuple[list[tuple[tc.Generator, tuple[int, int, int]]], list[str]]:
    """Return the generators with a state among the entries of a state_dict, with these states; and what is wrong."""
    found, problems = [], []
    for name, generator in named_generators(module).items():
        if name in state:
            try:
                found.append((generator, state_of(name, state[name])))
            except ValueError as error:
                problems.append(str(error))
    return found, problems


def random_states(model: Module) -> dict[str, list[int]]:
    """Return the states of the random generators by their paths: the global one, `""`, and those of modules."""
    return {path: list(generator.get_state()) for path, generator in _generators(model)}


def set_random_states(model: Module, states: Mapping[str, list[int]]) -> None:
    """Set the generators to states that :func:`random_states` returned."""
    for path, generator in _generators(model):
        generator.set_state(states[path])


def agree_on_random_states(model: Module, agree: Callable[[int], int]) -> None:
    """Set the generators of all processes to the states of the first one's.

    Args:
        agree: a function that returns the first process's number in all of them.
    """
    set_random_states(model, {path: [agree(n) for n in state] for path, state in random_states(model).items()})


def _generators(model: Module) -> list[tuple[str, tc.Generator]]:
    own = [(path, generator) for path, generator, _ in all_generators(model) if generator is not global_rng()]
    return [("", global_rng()), *own]
