"""Transformations of a program, which change no bit of a result, but for `reassociate`, which must be asked for.

A pass is a function from :class:`~tape_core.compiled.program.Program` to another one. `ORDER` has those that run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tape_core.compiled.passes.algebra import algebra
from tape_core.compiled.passes.broadcasts import broadcasts
from tape_core.compiled.passes.constants import constants
from tape_core.compiled.passes.dead_code import dead_code
from tape_core.compiled.passes.early import early
from tape_core.compiled.passes.expansion import expansion
from tape_core.compiled.passes.fusion import fusion
from tape_core.compiled.passes.inlining import inlining
from tape_core.compiled.passes.reassociate import reassociate
from tape_core.compiled.passes.reuse import reuse
from tape_core.compiled.passes.same_calls import same_calls
from tape_core.compiled.passes.scalars import scalars
from tape_core.compiled.passes.scatters import scatters
from tape_core.compiled.passes.slices import slices
from tape_core.compiled.passes.views import views
from tape_core.compiled.program import Program
from tape_core.mistakes import flag, meant

Pass = Callable[[Program], Program]

ORDER: dict[str, Pass] = {
    "constants": constants,
    "algebra": algebra,
    "views": views,
    "reassociate": reassociate,
    "inlining": inlining,
    "expansion": expansion,
    "same_calls": same_calls,
    "dead_code": dead_code,
    "slices": slices,
    "scatters": scatters,
    "broadcasts": broadcasts,
    "early": early,
    "fusion": fusion,
    "scalars": scalars,
    "reuse": reuse,
}
"""By name, in the order in which they run."""

ON_REQUEST = frozenset({"reassociate"})
"""Those that run only where they are asked for."""


def check(options: Mapping[str, Any]) -> None:
    """Raise a ValueError where an option names no pass, and a TypeError where it is neither True nor False."""
    for name, wanted in options.items():
        if name not in ORDER:
            raise ValueError(f"function: there is no pass {name!r}{meant(name, ORDER)}; they are {', '.join(ORDER)}")
        flag("function", f"passes[{name!r}]", wanted)


def run(program: Program, options: dict[str, bool]) -> tuple[Program, dict[str, int]]:
    """The program after the passes that `options` do not turn off, or ask for, and how many instructions each left.

    Raises:
        ValueError: an option names no pass.
    """
    check(options)
    left: dict[str, int] = {}
    owned = program.owned
    for name, transform in ORDER.items():
        if options.get(name, name not in ON_REQUEST):
            program = transform(program)
            program.owned = owned
            left[name] = len(program.instructions)
    return program, left
