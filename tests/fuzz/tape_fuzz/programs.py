"""Random programs, as text: a grammar of statements, and the checks that a program must pass.

A program is drawn statement by statement, and each is run as it is drawn: one that raises, or gives numbers that are too
large to compare anything by, is left out. So an op is one line of a table in `grammar.py`; of its arguments the table says the kind alone.
What is checked is the text of a script, with one of those in `checks.py`, and a failure prints it: what is read is what was run.
"""

# ruff: noqa: E501 - an op is one line
from __future__ import annotations

import math
import re
import textwrap
import warnings
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np
import tape_core as tc
import tape_nn as nn
from hypothesis import strategies as st

from tape_fuzz.calls import calls
from tape_fuzz.checks import CHECKED, COMMON
from tape_fuzz.grammar import (
    DRAWS,
    EXTREMES,
    MASKS,
    OPS,
    OPTIMIZERS,
    PRODUCTS,
    SHARED,
    STATE,
    TRAINING,
    TRANSFORMATIONS,
    Op,
)
from tape_fuzz.masks import masked, root

_SMALL = [(3,), (2, 3), (), (3, 3), (1, 3), (4,), (2, 1, 3), (0,), (2, 0), (1,)]
_DIVISIBLE = [(4,), (6, 4), (4, 1), (4, 2, 3), (8, 3), (3, 4), (), (2, 0), (5, 2)]
_LARGE = [(5000,), (4096,), (20_000,), (70, 300), (300, 70), (100_000,), (4, 2500), (300_000,)]
_NUMBERS = ["2", "3", "-2", "0.5", "-0.5", "2.0", "1.5", "-1", "0.25", "3.0", "-1.5", "1", "0"]
_BINARY = ["+", "-", "*", "+", "-", "*", "/"]
_HOLE = re.compile(r"\{(\w+)\}")
_LARGEST = 1e4  # of a value: what is larger says little about others
_MOST = 700_000  # elements


@dataclass
class Program:
    """A program: `text` is a script that defines `inputs(seed)` and `made()`, which gives a function and its Variables.

    `calls` are further lines of it, for a check of several calls.
    """

    inputs: list[tuple[tuple[int, ...], str]]
    variables: list[tuple[tuple[int, ...], str]]
    lines: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    is_not: set[str] = field(default_factory=set)
    optimizers: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The script."""
        given = ", ".join(f"x{k}" for k in range(len(self.inputs)))
        body = "\n".join(self.lines)
        made = [f"    v{k} = tc.Variable({_drawn(*v)}, name='v{k}')" for k, v in enumerate(self.variables)]
        if self.optimizers:
            made += [f"    o{k} = {text}" for k, text in enumerate(self.optimizers)]
            named = ", ".join([f"'v{k}': v{k}" for k in range(len(self.variables))])
            made += [f"    m0 = nn.ExponentialMovingAverage({{{named}}}, decay=0.5)"]
        return "\n".join(
            [
                "import numpy as np",
                "import tape_core as tc",
                *(["import tape_nn as nn"] if self.optimizers else []),
                *(["from tape_fuzz.masks import masked, root"] if "masked(" in body else []),
                "",
                "def inputs(seed):",
                "    rng = np.random.default_rng(seed)",
                f"    return [{', '.join([_drawn(*x) for x in self.inputs])}]",
                "",
                "def made():",
                "    rng = np.random.default_rng(0)",
                *made,
                f"    h0 = np.asarray(rng.normal(size={self.inputs[0][0]}))",
                *(["    r0 = tc.default_rng(3)"] if "r0." in body else []),
                f"    def program({given}):",
                textwrap.indent(body, " " * 8),
                f"        return [{', '.join(self.results)}]",
                f"    return program, [{', '.join([f'v{k}' for k in range(len(self.variables))])}]",
                "",
                *self.calls,
            ]
        )


def _drawn(shape: tuple[int, ...], dtype: str) -> str:
    if dtype.startswith("complex"):
        return f"tc.asarray((rng.normal(size={shape}) + 1j * rng.normal(size={shape})).astype({dtype!r}))"
    if dtype.startswith("int"):
        return f"tc.asarray(np.asarray(rng.integers(-5, 6, size={shape}), dtype={dtype!r}))"
    if dtype == "bfloat16":  # which NumPy does not know by name
        return f"tc.asarray(rng.normal(size={shape}), dtype={dtype!r})"
    return f"tc.asarray(np.asarray(rng.normal(size={shape}), dtype={dtype!r}))"


class _Run:
    """A program as it is drawn, with the values that it has so far."""

    def __init__(self, draw: Any, program: Program, ops: list[Op]) -> None:
        self.draw = draw
        self.ops = ops
        self.program = program
        self.names: dict[str, Any] = {}
        tc.set_seed(0)  # the values decide what is drawn next: hypothesis must find the same when it draws again
        exec(program.text, self.names)
        # What a statement may do with a random number must not differ when Hypothesis draws the program again.
        self.names["tc"].set_seed(0)
        self.values: dict[str, Any] = {f"x{k}": x for k, x in enumerate(self.names["inputs"](1))}
        _, variables = self.names["made"]()
        self.variables = {f"v{k}": v for k, v in enumerate(variables)}
        # Others than those of `made`, which the program cannot tell from outside; they are as fresh.
        self.training = {f"o{k}": eval(text, {"nn": nn}) for k, text in enumerate(program.optimizers)}
        if program.optimizers:
            self.training["m0"] = nn.ExponentialMovingAverage(self.variables, decay=0.5)
        self.generator = tc.default_rng(2)
        self.host = np.asarray(np.random.default_rng(2).normal(size=program.inputs[0][0]))

    def choice(self, of: list[Any]) -> Any:
        return of[self.draw(st.integers(0, len(of) - 1))] if len(of) > 1 else of[0]

    def value(self, kind: str, like: str | None) -> str | None:
        """The name of a value of this kind; later ones above all."""
        found = [name for name, x in [*self.variables.items(), *self.values.items()] if _is(x, kind)]
        if like is not None:
            shape = self._of(like).shape
            found = [name for name in found if self._of(name).shape in (shape, ())] or found
        if not found:
            return None
        back = self.draw(st.integers(0, 2 * len(found)))
        return found[-1 - back % len(found)] if back < 2 * len(found) else found[-1]

    def _of(self, name: str) -> Any:
        return self.variables[name] if name in self.variables else self.values[name]

    def expression(self, like: str | None, depth: int) -> str | None:
        """Operators in operators, on real values, with all parentheses."""
        kind = self.draw(st.integers(0, 9)) if depth else 0
        if kind <= 1:
            return self.value("f", like)
        a = self.expression(like, depth - 1)
        if a is None:
            return None
        if kind == 2:
            return f"(-{a})"
        if kind == 3:
            return f"(({a} * {a} + 0.5) ** {self.choice(_NUMBERS)})"
        if kind == 4:
            return f"({a} ** {self.choice(['2', '3', '2.0'])})"
        if kind == 5:
            return f"({self.choice(_NUMBERS)} {self.choice(_BINARY[:6])} {a})"
        if kind == 6:
            return f"({a} {self.choice(_BINARY[:6])} {self.choice(_NUMBERS)})"
        b = self.expression(like, depth - 1)
        symbol = self.choice(_BINARY)
        return f"({a} / ({b} * {b} + 0.5))" if symbol == "/" else f"({a} {symbol} {b})"

    def filled(self, text: str, out: str) -> str | None:
        """Statements of the grammar with names in their holes."""
        found: dict[str, str] = {"out": out}
        parts: list[str] = []
        at = 0
        for hole in _HOLE.finditer(text):
            name = hole[1]
            given: str | None
            if name == "out":
                given = out
            elif name.endswith("0"):
                given = found.get(name[0])
            elif name == "n":
                given = self.choice(_NUMBERS)
            elif name == "k":
                given = str(self.draw(st.integers(1, 3)))
            elif name == "j":
                given = str(self.draw(st.integers(0, 1)))
            elif name == "h":
                given = self.choice(["h0", "h0", "np.float64(0.75)", "np.float32(-0.5)", "np.asarray([0.5])"])
            elif name == "o":
                given = self.choice([o for o in self.training if o.startswith("o")])
            elif name == "t":
                given = self.choice(TRANSFORMATIONS)
            elif name == "e":
                given = self.expression(found.get("f"), 3)
            elif name == "v":
                given = found.get("v") or self.value("v", None)
            elif name == "w":
                given = self.value("v", None)
            elif name == "g":
                given = self.value("f", found.get("f"))
            elif name == "p":
                given = self.value("f", found.get("f"))
                given = given and f"({given} * {given} + 0.5)"
            else:
                given = self.value(name, found.get(name))
                if name == "F" and name in found:
                    given = found[name]
            if given is None:
                return None
            if name not in ("p", "e", "g", "h"):
                found.setdefault(name, given)
            parts += [text[at : hole.start()], given]
            at = hole.end()
        return "".join([*parts, text[at:]])

    def _is_huge(self, text: str) -> bool:
        """Whether two of the values in it would be broadcast to something that takes all memory."""
        shapes = [self._of(name).shape for name in set(re.findall(r"\b[axv]\d+\b", text)) if name in self]
        return any(_size_of_both(a, b) > _MOST for a, b in combinations(shapes, 2))

    def __contains__(self, name: str) -> bool:
        return name in self.values or name in self.variables

    def statement(self) -> None:
        """Draw one, run it, and keep it where it says something."""
        op: Op = self.choice(self.ops)
        out = f"a{len(self.values)}"
        text = self.filled(op.text, out)
        if text is None or text.isidentifier() or self._is_huge(text):
            return
        if "{out}" not in op.text:
            text = f"{out} = {text}"
        held = {name: v.value for name, v in self.variables.items()}
        try:
            own = {"h0": self.host, "r0": self.generator}
            names = {
                "tc": tc,
                "np": np,
                "nn": nn,
                "masked": masked,
                "root": root,
                **self.training,
                **own,
                **self.variables,
                **self.values,
            }
            exec(text, names)
            found = names[out]
            if (
                not isinstance(found, tc.Tensor)
                or isinstance(found, tc.Variable)
                or found.size > _MOST
                or not _is_moderate(found)
            ):
                raise ValueError
            if any(not _is_moderate(v) for v in self.variables.values()):
                raise ValueError
        except Exception:  # noqa: BLE001 - whatever it is, a program has something else there
            for name, v in self.variables.items():
                v.assign(held[name])
            return
        self.values[out] = found
        self.program.lines.append(text)
        self.program.is_not.update(op.is_not)


def _size_of_both(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    try:
        return math.prod(np.broadcast_shapes(a, b))
    except ValueError:
        return 0


def _is(x: Any, kind: str) -> bool:
    is_variable = isinstance(x, tc.Variable)
    if kind == "v":
        return is_variable
    if kind == "F":
        return tc.isdtype(x.dtype, "real floating") and x.ndim >= 2 and 0 < x.size <= 64
    if kind == "d":
        return tc.isdtype(x.dtype, "real floating") and x.ndim > 0
    return tc.isdtype(x.dtype, {"f": "real floating", "i": "integral", "b": "bool", "c": "complex floating"}[kind])


def _is_moderate(x: Any) -> bool:
    array = x.numpy()
    return not array.size or bool(np.all(np.abs(array.astype(complex)) < _LARGEST))


@dataclass(frozen=True)
class Kind:
    """What programs of a kind are made of, and how often each check is made of them.

    Attributes:
        ops: the grammar.
        checks: names of checks, one of which is made.
        sizes: how often shapes are large, of twelve programs.
        variables: the smallest and the largest number of Variables.
        statements: the largest number of statements, of small and of large shapes.
        trains: whether programs have optimizers, and an average of their Variables.
        shapes: the small ones, of which a second input may have one of the first four.
        calls: how many calls differ from the first one, at most, in checks of calls.
    """

    ops: list[Op]
    checks: list[str]
    sizes: int
    variables: tuple[int, int] = (0, 3)
    statements: tuple[int, int] = (40, 16)
    trains: bool = False
    shapes: list[tuple[int, ...]] = field(default_factory=lambda: _SMALL)
    calls: int = 0


_FLOATS = ["float32", "float64", *(["bfloat16"] if find_spec("ml_dtypes") is not None else [])]
_BITS = ("compiled", "compiled gradient", "compiled in a tape", "compiled by others")
"""The checks that compare bits: they can be made in any precision."""


@st.composite
def programs(draw: Any, kind: str = "mixed") -> tuple[Program, str]:
    """A program of a kind, and which check it is for; it is made of nothing that the check cannot be made of."""
    how = KINDS[kind]
    check = how.checks[draw(st.integers(0, len(how.checks) - 1))]
    dtype = "float64" if CHECKED[check].is_exact else draw(st.sampled_from(_FLOATS if check in _BITS else _FLOATS[:2]))
    is_large = not CHECKED[check].is_small and draw(st.integers(0, 11)) < how.sizes
    shapes = _LARGE if is_large else how.shapes
    shape = shapes[draw(st.integers(0, len(shapes) - 1))]
    inputs = [(shape, dtype)]
    for _ in range(draw(st.integers(0, 2))):
        other = draw(st.sampled_from([dtype, dtype, "int64", "complex128" if dtype == "float64" else "complex64"]))
        inputs.append((shape if is_large or draw(st.booleans()) else draw(st.sampled_from(how.shapes[:4])), other))
    variables = [(shape, dtype) for _ in range(draw(st.integers(*how.variables)))]
    optimizers = draw(st.lists(st.sampled_from(OPTIMIZERS), min_size=1, max_size=2)) if how.trains else []
    run = _Run(draw, Program(inputs, variables, optimizers=optimizers), _allowed(kind, check))
    program = run.program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(draw(st.integers(2, how.statements[is_large]))):
            run.statement()
    made = [name for name in run.values if name.startswith("a")]
    if made:
        program.results = [made[-1]] + [name for name in made[:-1] if draw(st.integers(0, 3)) == 0]
    else:
        program.results = ["x0"]
    if how.calls:
        program.calls = draw(calls(how.calls))
    return program, check


@cache
def _allowed(kind: str, check: str) -> list[Op]:
    """The ops of a kind that a check can be made of, each as often as it weighs."""
    needs = {*CHECKED[check].needs}
    # Where no check needs it, PyTorch or JAX need not be installed.
    elsewhere = [import_module(f"tape_fuzz.in_{name}") for name in sorted(needs & {"torch", "jax"})]
    if elsewhere:
        needs.add("torch")
    found = [
        op for op in KINDS[kind].ops if not needs & {*op.is_not} and all(other.has(op.text) for other in elsewhere)
    ]
    return [op for op in found for _ in range(op.weight)]


_APART = {
    "masks",
    "masks by XLA",
    "JAX",
    "compiled by XLA",
    "compiled by XLA, whole",
    "second derivatives by XLA",
    "compiled by XLA, Variables donated",
    "other calls",
    "other calls by XLA",
    "compiled by torch",
    "divided",
    "divided with NaN",
}
"""Inductor and XLA take seconds for each program; the last needs processes."""
KINDS: dict[str, Kind] = {
    "mixed": Kind(OPS, ["compiled", "compiled gradient", "compiled", "compiled gradient", "autograd", "autograd", *sorted(CHECKED.keys() - _APART)], 3),
    "state": Kind(STATE, ["compiled", "compiled", "compiled", "compiled gradient", "compiled in a tape", "exported"], 10, (2, 4), (12, 12)),
    "training": Kind(TRAINING, ["compiled", "compiled", "compiled by others", "compiled gradient", "compiled in a tape", "torch"], 2, (2, 3), (8, 6), trains=True),
    "products": Kind(PRODUCTS, ["compiled second derivatives"] * 3 + ["autograd", "second derivatives", "vmap"], 0, (0, 1), (8, 8)),
    "inductor": Kind(OPS, ["compiled by torch"], 0, (0, 1), (12, 12)),
    "donated": Kind(STATE, ["compiled by XLA, Variables donated"], 0, (2, 4), (10, 8)),
    "xla": Kind(OPS, ["compiled by XLA"], 0, (0, 2), (10, 10)),
    "calls": Kind(OPS, ["other calls"], 0, (0, 2), (10, 10), calls=4),
    "calls by xla": Kind(OPS, ["other calls by XLA"], 0, (0, 2), (6, 6), calls=3),
    "shared by xla": Kind(SHARED, ["compiled by XLA, whole", "compiled by XLA, whole", "second derivatives by XLA"], 0, (0, 2), (6, 6)),
    "by jax": Kind(OPS, ["JAX"], 0, (0, 2), (10, 10)),
    "masks": Kind(MASKS, ["masks"], 0, (0, 1), (8, 8)),
    "masks by xla": Kind(MASKS, ["masks by XLA"], 0, (0, 1), (6, 6)),
    "draws": Kind(DRAWS, ["compiled", "compiled gradient", "compiled in a tape"], 2, (0, 2), (10, 10)),
    "draws by xla": Kind(DRAWS, ["compiled by XLA"], 0, (0, 2), (8, 8)),
    "divided": Kind(OPS, ["divided"], 0, (0, 2), (24, 12)),
    "extremes": Kind(EXTREMES, ["divided with NaN"], 0, (0, 1), (4, 4), shapes=_DIVISIBLE),
}  # fmt: skip
"""The kinds of programs."""


def script(program: Program, check: str) -> str:
    """A program with its check, as a script that raises where the promise is broken."""
    return program.text + COMMON + CHECKED[check].text


def check(drawn: tuple[Program, str]) -> None:
    """Run a program's script.

    Raises:
        AssertionError: with the script.
    """
    program, name = drawn
    text = script(program, name)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            exec(compile(text, "<a random program>", "exec"), {"__name__": "program"})
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}\n\n{text}") from error
