"""The passes by name, and the order in which they run: each declares its stage and its place beside its code.

A pass is a function from a :class:`~tape_compile.program.Program` to another one:

>>> from tape_compile.passes import PASSES, pass_
>>> @pass_(stage="exact", after=["cse"], on_request=True)
... def nothing(program):
...     \"\"\"Change nothing.\"\"\"
...     return program
>>> list(PASSES)[list(PASSES).index("dce") + 1]
'nothing'
>>> del PASSES["nothing"]

The stage says what else must be known of a pass, so that nobody lists names: what is left out of exported files, of
code that a library's compiler gets, and of a program that is still to be split into a function and its derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

from tape_core.support import flag, meant

from tape_compile.program import Program

Transform = Callable[[Program], Program]
F = TypeVar("F", bound=Transform)

Stage = Literal["exact", "rounding", "lowering", "layout", "fusion", "memory"]
"""The kind of change that a pass makes to a program:

- `exact`: simpler calls of the same kernels, with the same bits;
- `rounding`: calls that round differently, which run on request only;
- `lowering`: kernels become calls of the array library;
- `layout`: operands as the array library is quickest with them;
- `fusion`: several calls become one function that the backend writes;
- `memory`: results are written over values that nothing needs any more. From here on a value may be overwritten, so
  nothing of another stage comes after it.
"""

NOT_FOR_LIBRARY_COMPILERS: frozenset[Stage] = frozenset({"fusion", "memory"})
"""A compiler of the array library fuses calls itself, and has memory of its own."""

NOT_BY_NAME: frozenset[Stage] = frozenset({"lowering", "layout", "fusion", "memory"})
"""A compiler that knows calls by name must be left the names."""

NOT_EXPORTED: frozenset[Stage] = frozenset({"lowering", "layout", "fusion"})
"""They make more code of less, of this machine's library; a file is to be read, too."""

NOT_BEFORE_SPLIT: frozenset[Stage] = frozenset({"layout", "fusion", "memory"})
"""They would tie calls of a function to those of its derivative, or overwrite a residual. What a function and its
derivative have in common is found while they are one program; these run on each half afterwards."""

DEPRECATED = {
    "same_calls": "cse",
    "dead_code": "dce",
    "constants": "constant_folding",
    "algebra": "simplify",
    "views": "simplify_views",
    "early": "schedule_updates",
    "reuse": "in_place",
    "expansion": "lower_kernels",
    "inlining": "inline_kernels",
    "broadcasts": "hoist_broadcasts",
    "scalars": "scalars_to_arrays",
    "slices": "batch_slices",
    "scatters": "merge_scatters",
}
"""Names that passes had in 0.1, by which options and statistics know them still, with a DeprecationWarning."""


class Pass(NamedTuple):
    """A pass and its place.

    Attributes:
        name: of the function; the option of `tape_core.function(passes=...)` and the key of `Function.stats`.
        transform: the function.
        stage: what it does; see :data:`Stage`.
        after, before: the names of passes that it follows and that follow it.
        on_request: whether it runs only where `passes={name: True}` asks for it.
    """

    name: str
    transform: Transform
    stage: Stage
    after: Sequence[str]
    before: Sequence[str]
    on_request: bool


class Registry(MutableMapping[str, Pass]):
    """Passes by name, in the order in which they run.

    A pass comes one step behind the last of those that it follows; of several there, the one that was registered first
    comes first. The stage `memory` comes last.
    """

    def __init__(self) -> None:
        self._passes: dict[str, Pass] = {}
        self._order: list[str] | None = None  # until `sort`: while the first passes are imported, names are not known

    def __setitem__(self, name: str, value: Pass) -> None:
        self._change({**self._passes, name: value})

    def __delitem__(self, name: str) -> None:
        self._change({other: value for other, value in self._passes.items() if other != name})

    def __getitem__(self, name: str) -> Pass:
        return self._passes[name]

    def __len__(self) -> int:
        return len(self._passes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._passes if self._order is None else self._order)

    def _change(self, passes: dict[str, Pass]) -> None:
        before, self._passes = self._passes, passes
        if self._order is not None:
            try:
                self.sort()
            except ValueError:  # a pass that cannot have its place must not stay in the way of all functions
                self._passes = before
                raise

    def sort(self) -> None:
        """Put the passes in order, now and after each change.

        Raises:
            ValueError: passes follow each other in a circle, or one that is not there.
        """
        steps: dict[str, int] = {}
        for name in self._passes:
            self._step(name, steps, ())
        # `sorted` is stable: passes of one step stay in the order of their registration.
        self._order = sorted(self._passes, key=lambda name: (self._passes[name].stage == "memory", steps[name]))

    def _step(self, name: str, steps: dict[str, int], ahead: tuple[str, ...]) -> int:
        """Return the number of passes in the longest chain that ends with one."""
        if name in ahead:
            raise ValueError(f"passes run in a circle: {' after '.join([*ahead[ahead.index(name) :], name])}")
        if name not in self._passes:
            raise ValueError(f"pass {ahead[-1]!r} comes after {name!r}, which is no pass{meant(name, self._passes)}")
        if name not in steps:
            given = self._passes[name]
            before = [*given.after, *[other.name for other in self._passes.values() if name in other.before]]
            steps[name] = 1 + max([self._step(other, steps, (*ahead, name)) for other in before], default=0)
        return steps[name]


PASSES = Registry()


def pass_(
    *, stage: Stage, after: Sequence[str] = (), before: Sequence[str] = (), on_request: bool = False
) -> Callable[[F], F]:
    """Register a function from Program to Program as a pass of each compiled function.

    Args:
        stage: what it does; see :data:`Stage`. A pass that rounds differently runs on request only.
        after, before: the names of passes that it follows, and that follow it.
        on_request: whether it runs only where `tape_core.function(passes={name: True})` asks for it.

    Raises:
        ValueError: there is a pass of this name, or no such stage; or it would follow itself, or what is no pass.
    """
    if stage not in get_args(Stage):
        raise ValueError(f"pass_: stage must be one of {', '.join(get_args(Stage))}, got {stage!r}")

    def register(function: F) -> F:
        name = function.__name__
        if name in PASSES:
            raise ValueError(f"pass_: there is a pass {name!r} already")
        PASSES[name] = Pass(name, function, stage, tuple(after), tuple(before), on_request or stage == "rounding")
        return function

    return register


def canonical(options: Mapping[str, object]) -> dict[str, bool]:
    """Return the options under the names that passes have now.

    Raises:
        ValueError: an option names no pass.
        TypeError: it is neither True nor False.
    """
    found: dict[str, bool] = {}
    for given, wanted in options.items():
        name = DEPRECATED.get(given, given)
        if name not in PASSES:
            raise ValueError(f"function: there is no pass {name!r}{meant(name, PASSES)}; they are {', '.join(PASSES)}")
        if name is not given:
            _warn(f"function: the pass {given!r}", name)
        found[name] = flag("function", f"passes[{given!r}]", wanted)
    return found


def run(
    program: Program, options: Mapping[str, bool], without: frozenset[Stage] = frozenset()
) -> tuple[Program, dict[str, int]]:
    """Run the passes: return the program after them, and the number of instructions after each.

    Args:
        program: the program.
        options: by name passes that are left out, or asked for.
        without: stages that are left out, whatever the options say.
    """
    left: dict[str, int] = {}
    backend = program.backend
    if without >= NOT_BY_NAME:  # even an exact pass may call a function of the library, where it knows one
        program = program.replace(program.instructions)
        program.backend = None
    for name in PASSES:
        chosen = PASSES[name]
        if chosen.stage not in without and options.get(name, not chosen.on_request):
            program = chosen.transform(program)
            left[name] = len(program.instructions)
    program.backend = backend
    return program, left


class Statistics(dict[str, int]):
    """Numbers by the names of passes; those that passes had before are understood, with a DeprecationWarning."""

    def __missing__(self, name: str) -> int:
        if DEPRECATED.get(name) in self:
            _warn(f"Function.stats: the pass {name!r}", DEPRECATED[name])
            return self[DEPRECATED[name]]
        raise KeyError(name)


def _warn(what: str, name: str) -> None:
    from tape_core.support import warn_user

    warn_user(f"{what} is called {name!r} now", DeprecationWarning)
