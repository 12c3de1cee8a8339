"""Parameter groups: Variables that an optimizer updates with other settings than the rest, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from tape_core import Tensor, Variable
from tape_core.staging import host_number, outside
from tape_core.support import counted, lenient, meant, real

from tape_nn.module import Module
from tape_nn.optimizers.agreement import Compared
from tape_nn.optimizers.rates import Schedule, check_rate, scheduled_rate

Members: TypeAlias = Module | Variable | Iterable[Variable] | Callable[[Variable], bool]
Match: TypeAlias = str | Sequence[str] | Callable[[str], bool] | None


class ParameterGroup(Compared):
    """Variables that an optimizer treats in another way: a learning rate or weight decay of their own, or frozen.

    Optimizers take them as `groups`. What a group does not give is as the optimizer has it. A Variable may be in
    several groups and has the settings of all of them; of two that give the same setting the first one counts.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> model = nn.Sequential([nn.Dense(4), nn.Dense(2)])
    >>> model.build((None, 3))
    >>> optimizer = nn.AdamW(1e-3, weight_decay=0.01, groups=[
    ...     nn.ParameterGroup(model[0], learning_rate=1e-4),
    ...     nn.ParameterGroup(model, "*.bias", weight_decay=0.0),
    ... ])
    >>> optimizer.groups[0].learning_rate = 1e-5  # at any time

    A frozen group is not updated, whatever its gradients are, which do not count in `global_clipnorm`. It costs the
    gradients' computation; `variable.trainable = False` before the loss is computed saves that, too.

    Args:
        variables: a Module, a Variable, several, or a function that is given a Variable and says whether it belongs to
            the group. A Module's Variables may be made later.
        match: which Variables of the Module: a pattern of their names in `state_dict()`, such as `"encoder.*"` or
            `"*.bias"`, several patterns, or a function of the name. `*` stands for any text, dots included.
        learning_rate: a number or a schedule, in place of the optimizer's; it can be set at any time.
        learning_rate_factor: the optimizer's learning rate is multiplied by it, also where a schedule gives it.
        weight_decay: in place of the optimizer's.
        frozen: whether the Variables stay as they are. It can be set at any time; Variables that are updated for the
            first time afterwards start fresh.

    Raises:
        TypeError: `variables` is none of these, or `match` is given without a Module.
        ValueError: a number is out of range, or both `learning_rate` and `learning_rate_factor` are given.
    """

    _rate: Any = host_number()  # the learning rate where it is a number, else NaN

    def __init__(
        self,
        variables: Members,
        match: Match = None,
        *,
        learning_rate: float | Schedule | None = None,
        learning_rate_factor: float | None = None,
        weight_decay: float | None = None,
        frozen: bool = False,
    ) -> None:
        if match is not None and not isinstance(variables, Module):
            raise TypeError("ParameterGroup: match chooses by the names in a Module; give the Module as variables")
        if isinstance(variables, Variable):
            variables = [variables]
        if not isinstance(variables, Module) and not callable(variables):
            variables = list(variables)
            for variable in variables:
                if not isinstance(variable, Variable):
                    raise TypeError(
                        "ParameterGroup: variables must be a Module, Variables or a function of a Variable; got an "
                        f"element of type {type(variable).__name__!r}"
                    )
        if learning_rate is not None and learning_rate_factor is not None:
            raise ValueError("ParameterGroup: give learning_rate or learning_rate_factor, not both")
        self._members = variables
        self._match: Any = [match] if isinstance(match, str) else match
        self.learning_rate = learning_rate
        for name, value in (("learning_rate_factor", learning_rate_factor), ("weight_decay", weight_decay)):
            if value is not None and not 0 <= real("ParameterGroup", name, value) < math.inf:
                raise ValueError(f"ParameterGroup: {name} must be at least 0; got {value}")
        self.learning_rate_factor = None if learning_rate_factor is None else float(learning_rate_factor)
        self.weight_decay = None if weight_decay is None else float(weight_decay)
        self.frozen = bool(frozen)

    @property
    def learning_rate(self) -> float | Schedule | None:
        """The learning rate or schedule of the group; None where it is the optimizer's."""
        if self._schedule is not None:
            return self._schedule
        return self._rate if self._has_rate else None

    @learning_rate.setter
    def learning_rate(self, value: float | Schedule | None) -> None:
        self._has_rate = value is not None
        self._schedule: Schedule | None = value if callable(value) and not isinstance(value, Tensor) else None
        plain = self._has_rate and self._schedule is None
        self._rate = check_rate(value, "learning_rate") if plain else math.nan

    @lenient
    def __repr__(self) -> str:
        return f"ParameterGroup({', '.join([self._described(), *self.given()])})"

    def _described(self) -> str:
        """Return text about which Variables belong to the group."""
        members = self._members
        if isinstance(members, Module):
            match = self._match
            chosen = getattr(match, "__name__", "function") if callable(match) else ", ".join(map(repr, match or []))
            return type(members).__name__ + (f": {chosen}" if match is not None else "")
        if callable(members):
            return getattr(members, "__name__", type(members).__name__)
        return counted(len(members), "variable")

    def given(self) -> list[str]:
        """Return the settings that the group gives, as text."""
        rate = self._schedule
        if rate is None and self._has_rate:
            rate = ParameterGroup._rate.of(self).kept  # not the property: in a trace a number has no text
        names = ("learning_rate_factor", "weight_decay")
        values = {"learning_rate": rate, **{name: getattr(self, name) for name in names}}
        values["frozen"] = self.frozen or None
        return [f"{name}={value!r}" for name, value in values.items() if value is not None]

    def settings(self) -> tuple[object, ...]:
        """Return all that compiled updates have in their code; the number `learning_rate` they read in each run."""
        return self._has_rate, self._schedule, self.learning_rate_factor, self.weight_decay, self.frozen

    def has_rate(self) -> bool:
        """Return whether the group gives a learning rate or a factor of it."""
        return self._has_rate or self.learning_rate_factor is not None

    def rate(self, optimizers: Any, iterations: Any) -> Any:
        """Return the learning rate of the next update, given that of the optimizer."""
        if self._schedule is not None:
            return scheduled_rate(self._schedule, iterations)
        return self._rate if self._has_rate else optimizers * self.learning_rate_factor

    def members_among(self, variables: Sequence[Variable]) -> list[bool]:
        """Return for each Variable whether it belongs to the group.

        Raises:
            ValueError: no name in the Module fits `match`, although all layers have their Variables.
        """
        members = self._members
        with outside():  # a function of the user's may look at values
            if callable(members) and not isinstance(members, Module):
                return [bool(members(variable)) for variable in variables]
            if not isinstance(members, Module):
                own = {id(variable) for variable in members}
                return [id(variable) in own for variable in variables]
        names = {id(variable): name for name, variable in members.named_variables()}
        if self._match is None:
            return [id(variable) in names for variable in variables]
        fits = {key: self._fits(name) for key, name in names.items()}
        if not any(fits.values()) and all([getattr(part, "built", True) for _, part in members.named_modules()]):
            wanted = "the function" if callable(self._match) else " or ".join(map(repr, self._match))
            close = "" if callable(self._match) else meant(str(self._match[0]), names.values())
            raise ValueError(
                f"ParameterGroup: no Variable of {type(members).__name__} fits {wanted}{close}; the names are "
                f"{', '.join(names.values())}"
            )
        return [fits.get(id(variable), False) for variable in variables]

    def _fits(self, name: str) -> bool:
        if callable(self._match):
            return bool(self._match(name))
        return any([fnmatchcase(name, pattern) for pattern in self._match])
