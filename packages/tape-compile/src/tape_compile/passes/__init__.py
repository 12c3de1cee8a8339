"""Transformations of a program, which change no bit of a result, but for `reassociate`, which must be asked for.

A pass is a function from :class:`~tape_compile.program.Program` to another one. `ORDER` has those that run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tape_core.support import flag, meant

from tape_compile.passes.batch_slices import slices
from tape_compile.passes.constant_folding import constants
from tape_compile.passes.cse import same_calls
from tape_compile.passes.dce import dead_code
from tape_compile.passes.fusion import fusion
from tape_compile.passes.hoist_broadcasts import broadcasts
from tape_compile.passes.in_place import reuse
from tape_compile.passes.inline_kernels import inlining
from tape_compile.passes.lower_kernels import expansion
from tape_compile.passes.merge_scatters import scatters
from tape_compile.passes.reassociate import reassociate
from tape_compile.passes.scalars_to_arrays import scalars
from tape_compile.passes.schedule_updates import early
from tape_compile.passes.simplify import algebra
from tape_compile.passes.simplify_views import views
from tape_compile.program import Program

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
