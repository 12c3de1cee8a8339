"""Find Variables by name, and report names that nothing has."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from tape_core import Tensor, Variable, asarray
from tape_core.staging import outside
from tape_core.typing import ArrayLike

from tape_nn.module import Module


def named_variables(variables: Module | Mapping[str, Variable]) -> list[tuple[str, Variable]]:
    """Return (name, Variable) pairs of a Module, or of a mapping from names to Variables.

    Raises:
        TypeError: `variables` is neither.
    """
    if isinstance(variables, Module):
        return list(variables.named_variables())
    if isinstance(variables, Mapping):
        return list(variables.items())
    raise TypeError(
        f"variables must be a Module or a mapping from names to Variables; got {type(variables).__name__!r}"
    )


def copy_like(value: ArrayLike, variable: Variable) -> Tensor:
    """Copy a value to the dtype, the backend and the device of a Variable."""
    # A copy, since the caller may go on writing to an array that it passed.
    tensor: Tensor = asarray(value, dtype=variable.dtype, backend=variable.backend, device=variable.device, copy=True)
    return tensor


ONE_MODEL = (
    "Look for what depends on the rank, or on a configuration that only one process has. Attributes whose names begin "
    "with _, or have the word seed, rank or device, may differ"
)
"""What to do where `describe_modules` differs between processes."""

_OWN = re.compile(r"(^|[._])(seed|rank|device)s?($|_)")


def is_own(name: str) -> bool:
    """Return whether an attribute of this name may have another value in each process."""
    return _OWN.search(name) is not None


def describe_modules(model: Module) -> dict[str, str]:
    """Return the classes of a model's modules, and their settings that are numbers, text or functions, by name.

    Processes that train one model have the same.
    """
    found = {}
    for path, module in model.named_modules():
        found[path or "model"] = type(module).__name__
        for name, value in vars(module).items():
            if not name.startswith("_") and not is_own(name) and (text := _setting(value)) is not None:
                found[f"{path}.{name}" if path else name] = text
    return dict(sorted(found.items()))


def _setting(value: object) -> str | None:
    """Return the text of a number, a text, a function, or several of these; None for all else."""
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return repr([_setting(part) or type(part).__name__ for part in value])
    if callable(value) and not isinstance(value, Module | Variable | Tensor):
        return str(getattr(value, "__name__", type(value).__name__))
    return None


def unknown_names(who: str, unknown: Collection[str], known: Collection[str]) -> str:
    """Return an error message about unknown names, with the closest known ones."""
    parts = []
    for name in unknown:
        close = get_close_matches(name, known, n=1)
        parts.append(repr(name) + (f" (did you mean {close[0]!r}?)" if close else ""))
    return f"{who}: unknown names: {', '.join(parts)}. There are {', '.join(map(repr, known)) or 'none'}"


def settings_of(thing: object, **first: object) -> dict[str, object]:
    """Return after `first` the public attributes of an object that are numbers or text."""
    plain = {name: value for name, value in vars(thing).items() if not name.startswith("_")}
    return first | {name: value for name, value in plain.items() if isinstance(value, str | int | float)}


def describe_settings(thing: object, **first: object) -> str:
    """Return a `repr` of an object: its class, and its settings, as :func:`settings_of` finds them."""
    with outside():  # in a trace a number has no value that its text could have
        settings = ", ".join([f"{name}={value!r}" for name, value in settings_of(thing, **first).items()])
    return f"{type(thing).__name__}({settings})"


def describe(kind: str, thing: Any) -> dict[str, Any]:
    """Return the class of a loss or an optimizer, and its settings that are numbers or text.

    A resumed run must have the same.
    """
    if thing is None:
        return {}
    found = dict(vars(thing)) | getattr(thing, "options", {})
    for name in ("function", "optimizer"):  # the function of a Loss, the inner optimizer of a LossScaler
        if (inner := found.pop(name, None)) is not None:
            own = getattr(inner, "__name__", type(inner).__name__)
            found |= {name: own} if callable(inner) else describe(name, inner)
    # The rate that a schedule gives changes from step to step. The schedule does not; one that is a dataclass, as ours
    # are, has a repr that can be compared.
    if "_schedule" in found:
        schedule = found["_schedule"]
        found["learning_rate"] = thing.learning_rate if schedule is None else None
        if dataclasses.is_dataclass(schedule):
            found["learning_rate"] = repr(schedule)
    if groups := found.get("groups"):  # their settings; which Variables they have is part of the program
        found["groups"] = repr([group.given() for group in groups])
    plain = {
        f"{kind}.{name}": value
        for name, value in found.items()
        if isinstance(value, str | int | float) and not name.startswith("_") and name != "iterations"
    }
    return {kind: type(thing).__name__, **plain}
