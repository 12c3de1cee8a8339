"""Compositions: random nestings of transformations and control flow, with values from around them at every level.

A program is one Python expression of `x`, a vector, and of `w`, another one or a Variable. It is evaluated as it is,
and where the name `tc` is something that knows no combinators: branches, loops and vmaps are Python's there, and every
Jacobian is a loop over its rows. That is made twice, on Tape's ops and on those of another framework with its own
derivatives: PyTorch's torch.func, or JAX. All must agree: the value, and the derivatives of first and second order by
transformations that are drawn as well.
"""

from __future__ import annotations

import operator
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import tape_core
from hypothesis import strategies as st

from tape_fuzz.compilers import CallByCall

POINT = np.array([0.3, 0.5, 0.2])
OTHER = np.array([0.7, -0.4, 0.6])
CONSTANT = np.array([1.1, 0.2, -0.7])

HELPERS = """
def outer(a, b):
    return a[:, None] * b[None, :]

def ramp(n):
    return tc.asarray([0.1 + 0.8 * k / n for k in range(n)], dtype=tc.float64, backend=backend)

def zero():
    return tc.asarray(0, backend=backend)

def times(matrix, v):
    return tc.sum(matrix * v, axis=-1)

def product(pair):
    return pair[0] * pair[1]

def by_tape(f, a):
    a = tc.asarray(a) * 1.0
    with tc.GradientTape() as tape:
        tape.watch(a)
        y = f(a)
    return tape.gradient(y, a, unconnected_gradients="zero")

def by_accumulator(f, a, t):
    a = tc.asarray(a) * 1.0
    with tc.ForwardAccumulator(a, t) as accumulator:
        y = f(a)
    return accumulator.jvp(y, unconnected_gradients="zero")

def by_pytorch(a, b):
    if backend != "torch":
        return tc.sin(a) * tc.sum(b * b)
    import tape_torch, torch
    return tape_torch.call(lambda a, b: torch.sin(a) * torch.sum(b * b), a, b)

def by_pytorch_one_by_one(a, b):
    if backend != "torch":
        return tc.tanh(a) * b
    import tape_torch, torch
    # What decides by a value is nothing for torch.func.vmap.
    return tape_torch.call(lambda a, b: torch.tanh(a) * b if a.isfinite().all() else a, a, b)

def by_jax(a, b):
    if backend != "jax":
        return tc.sin(a) * tc.sum(b * b)
    import jax.numpy as jnp, tape_jax
    return tape_jax.call(lambda a, b: jnp.sin(a) * jnp.sum(b * b), a, b)

def by_xla(f, a):
    found = tc.function(f, compile="xla")
    for _ in range(2):  # in a tape's block the second call is compiled, and the third is that again
        found(a)
    return found(a)

def by_jitted_jax(a, b):
    if backend != "jax":
        return tc.tanh(a) * b
    import tape_jax
    return tape_jax.call(jitted(), a, b)

def jitted(found=[]):
    if not found:
        import jax, jax.numpy as jnp
        found.append(jax.jit(lambda a, b: jnp.tanh(a) * b))
    return found[0]

def with_gradient(f):
    def both(u):
        y, pull = tc.vjp(f, u)
        return y, lambda upstream: pull(upstream)[0]
    return tc.custom_gradient(both)

def with_jvp(f):
    own = tc.custom_jvp(lambda u: f(u))
    own.defjvp(lambda primals, tangents: tc.jvp(f, primals, tangents))
    return own

def with_twice_the_gradient(f):
    def both(u):
        y, pull = tc.vjp(f, u)
        return y, lambda upstream: 2.0 * pull(upstream)[0]
    return tc.custom_gradient(both)

def with_twice_the_jvp(f):
    own = tc.custom_jvp(lambda u: f(u))

    @own.defjvp
    def rule(primals, tangents):
        y, t = tc.jvp(f, primals, tangents)
        return y, 2.0 * t

    return own

def by_fixed_point(f, start, a, **how):
    return tc.fixed_point(f, start, a, tol=1e-14, **how)

def by_custom_root(f, start, a, **how):
    def solve(a):  # the loop is of so many steps, so that nothing asks for a value
        return tc.while_loop(lambda s: s[0] < 40, lambda s: (s[0] + 1, f(s[1], a)), (zero(), start))[1]
    return tc.custom_root(lambda z, a: f(z, a) - z, solve, **how)(a)

def in_jax(transform, f, a, backward=None):
    if backend != "jax":
        return f(a) if backward is None else backward(f)(a)
    import jax, tape_jax
    return tape_jax.call(transform(jax, lambda a: tc.asarray(f(tc.asarray(a))).array), a)

def doubled(f):
    return lambda a: 2.0 * f(a)

def along_itself(f):
    return lambda a: tc.jvp(f, (a,), (a,))[1]

def transformed(transform, f, a):
    import jax
    return tc.asarray(transform(jax, lambda a: tc.asarray(f(tc.asarray(a))).array)(tc.asarray(a).array))

def by_using(f, a, cell):
    with cell.using({"v": a}) as values:
        return f(cell.v) + 0.0 * values["v"]

def by_assigning(f, a, cell):
    with cell.using([a]):
        y = f(cell.v) + 0.0 * a
        cell.v.assign(cell.v + 1.0)
        return y

def with_module(transform, f, a, cell):
    found = transform(lambda m: f(m.v))(tc.tree_map(lambda _: a, cell))
    return getattr(found, "v", found)
"""

MODULES = """
import tape_nn
class Cell(tape_nn.Module):
    def __init__(self):
        self.v = tc.Variable([9.0, 9.0, 9.0], dtype=tc.float64, backend=backend)
cells = [Cell() for _ in range(100)]
"""
"""Modules whose Variable has other values wherever it is read: one for each place in a program."""


# -- programs


@dataclass(frozen=True)
class Program:
    """An expression of `x`, `w` and `c`, and how it is differentiated.

    Attributes:
        first, second: names in `FIRST` and `SECOND`.
        backend: of the arrays.
        variable: whether `w` is a Variable.
        compiled: whether the whole is a compiled function, as well.
        compiler: by what, as code: a name in `COMPILERS`.
        against: with whose derivatives it is compared, too: a name in `WORLDS`, or "".
        host: whether `c` is an array of NumPy, host data on each backend.
    """

    expression: str
    first: str
    second: str
    backend: str = "numpy"
    variable: bool = False
    compiled: bool = False
    against: str = ""
    compiler: str = "None"
    host: bool = False

    def code(self) -> str:
        """The program as code that runs."""
        w = f"tc.asarray({OTHER.tolist()}, dtype=tc.float64, backend=backend)"
        return "\n".join(
            [
                "import numpy as np",
                "import tape_core as tc",
                "from tape_fuzz.compilers import CallByCall",
                f"backend = {self.backend!r}",
                HELPERS.rstrip(),
                MODULES if "cells" in self.expression else "",
                f"x = tc.asarray({POINT.tolist()}, dtype=tc.float64, backend=backend)",
                f"w = tc.Variable({w})" if self.variable else f"w = {w}",
                "tc.set_backend(backend)",
                f"c = np.asarray({CONSTANT.tolist()})"
                if self.host
                else f"c = tc.asarray({CONSTANT.tolist()}, dtype=tc.float64, backend=backend)",
                f"f = lambda x: {self.expression}",
                f"print(f(x), {_ALL_FIRST[self.first]}, {_ALL_SECOND[self.second]}, sep='\\n')",
                f"print(tc.function({_as_function(_ALL_FIRST[self.first])}, compile={self.compiler})(x))"
                if self.compiled
                else "",
                f"print(tc.function({_as_function(_ALL_SECOND[self.second])}, compile={self.compiler})(x))"
                if self.compiled
                else "",
            ]
        )


def _as_function(derivative: str) -> str:
    return f"lambda x: {derivative}"


_TAPED = "by_tape(lambda x: tc.sum(f(x)), x)"
FIRST = {
    "jacrev": "tc.jacrev(f)(x)",
    "jacrev by two rows": "tc.jacrev(f, chunk_size=2)(x)",
    "jacfwd": "tc.jacfwd(f)(x)",
    "vmap of vjp": "tc.vmap(lambda g: tc.vjp(f, x)[1](g)[0])(tc.eye(3, dtype=tc.float64, backend=backend))",
    "vmap of jvp": "tc.vmap(lambda t: tc.jvp(f, (x,), (t,))[1], out_axes=1)"
    "(tc.eye(3, dtype=tc.float64, backend=backend))",
    "linearize": "tc.vmap(tc.linearize(f, x)[1], out_axes=1)(tc.eye(3, dtype=tc.float64, backend=backend))",
    "grads": "tc.stack([tc.grad(lambda x: f(x)[k])(x) for k in range(3)])",
    "tapes": "tc.stack([by_tape(lambda x: f(x)[k], x) for k in range(3)])",
}
"""Jacobians of f at x."""
SECOND = {
    "hessian": "tc.hessian(lambda x: tc.sum(f(x)))(x)",
    "jacrev of jacrev": "tc.jacrev(tc.jacrev(lambda x: tc.sum(f(x))))(x)",
    "jacfwd of jacfwd": "tc.jacfwd(tc.jacfwd(lambda x: tc.sum(f(x))))(x)",
    "jacrev of jacfwd": "tc.jacrev(tc.jacfwd(lambda x: tc.sum(f(x))))(x)",
    "jacfwd of jacrev": "tc.jacfwd(tc.jacrev(lambda x: tc.sum(f(x))))(x)",
    "jacrev of grad": "tc.jacrev(tc.grad(lambda x: tc.sum(f(x))))(x)",
    "grads of grad": "tc.stack([tc.grad(lambda x: tc.grad(lambda x: tc.sum(f(x)))(x)[k])(x) for k in range(3)])",
    "hvp": "tc.stack([tc.hvp(lambda x: tc.sum(f(x)), (x,), (e,))[0] "
    "for e in tc.eye(3, dtype=tc.float64, backend=backend)])",
    "tape of tape": "tc.stack([by_tape(lambda x: by_tape(lambda x: tc.sum(f(x)), x)[k], x) for k in range(3)])",
}
"""Second derivatives of the sum of f at x."""


def _in_jax(transform: str, f: str = "f") -> str:
    return f"transformed(lambda jax, g: {transform}, {f}, x)"


_SUMMED = "lambda x: tc.sum(f(x))"
FIRST_OF_JAX = {
    "jax.jacrev": _in_jax("jax.jacrev(g)"),
    "jax.jacfwd": _in_jax("jax.jacfwd(g)"),
    "jit of jacrev": _in_jax("jax.jit(jax.jacrev(g))"),
    "jacfwd of jit": _in_jax("jax.jacfwd(jax.jit(g))"),
    "jacrev of checkpoint": _in_jax("jax.jit(jax.jacrev(jax.checkpoint(g)))"),
    "jit of tape": _in_jax("jax.jit(g)", "lambda x: tc.jacrev(f)(x)"),
    "jit of forward mode of Tape": _in_jax("jax.jit(g)", "lambda x: tc.jacfwd(f)(x)"),
    "vmap of grad of Tape": _in_jax(
        "lambda a: jax.vmap(lambda e: g(e))(jax.numpy.eye(3))",
        "lambda e: tc.vjp(f, x)[1](e)[0]",
    ),
    "map of jvp": _in_jax("lambda a: jax.lax.map(lambda t: jax.jvp(g, (a,), (t,))[1], jax.numpy.eye(3)).T"),
}
"""Jacobians of f at x by JAX, which traces or differentiates Tape."""
SECOND_OF_JAX = {
    "jax.hessian": _in_jax("jax.hessian(g)", _SUMMED),
    "jit of hessian": _in_jax("jax.jit(jax.hessian(g))", _SUMMED),
    "jit of jacrev of jacrev": _in_jax("jax.jit(jax.jacrev(jax.jacrev(g)))", _SUMMED),
    "jacfwd of jacfwd by JAX": _in_jax("jax.jacfwd(jax.jacfwd(g))", _SUMMED),
    "jacrev of grad of Tape": _in_jax("jax.jacrev(g)", f"lambda x: tc.grad({_SUMMED})(x)"),
    "jit of jacfwd of grad of Tape": _in_jax("jax.jit(jax.jacfwd(g))", f"lambda x: tc.grad({_SUMMED})(x)"),
}
"""Second derivatives of the sum of f at x, likewise."""
_ALL_FIRST, _ALL_SECOND = FIRST | FIRST_OF_JAX, SECOND | SECOND_OF_JAX


FLOWS = ["cond", "while_loop", "scan", "map"]
BATCHES = ["vmap", "vmap of two", "vmap of numbers"]
WRAPPERS = ["checkpoint", "function", "custom_gradient", "custom_jvp", "both", "using", "module"]
OWN = ["custom_gradient", "custom_jvp", "another gradient", "another jvp"]
"""Functions with rules of their own, of which some are not what is computed."""
IMPLICIT = ["fixed_point", "custom_root"]
IN_JAX = ["jax.jit", "jax.grad", "jax.vmap", "jax.jvp"]
"""Functions that JAX transforms, as ops on tapes."""
FORWARD = ["jvp", "linearize", "jacfwd", "accumulator"]
BACKWARD = ["grad", "value_and_grad", "vjp", "jacrev", "tape", "module grad"]
TWICE = ["hessian", "hvp"]
XLA = ["xla"]
"""Functions that XLA compiles, wherever they are called: under tapes, vmap and forward mode."""
LONG = ["long scan", "long map"]
"""Loops of more steps than are recorded one by one."""
KINDS = [*FLOWS, *FLOWS[:2], *BATCHES, "vmap", *WRAPPERS, *OWN[2:], *IMPLICIT, *FORWARD, *BACKWARD, *TWICE]
TRACED = ["scan", "map", "cond", *BATCHES, "checkpoint", "both", "module", *OWN, *IMPLICIT, *FORWARD, *BACKWARD]
"""What assigns nothing, and is of as many steps whatever the values: JAX can trace it."""


@st.composite
def programs(
    draw: Callable[..., Any],
    depth: int = 4,
    outermost: Sequence[str] = KINDS,
    backends: Sequence[str] = ("numpy", "numpy", "numpy", "torch"),
    compilers: Sequence[str] = ("None", "'python'", "CallByCall()"),
    inner: Sequence[str] = KINDS,
    against: str = "torch",
    by_jax: bool = False,
) -> Program:
    """Programs whose combinators are nested up to so deep.

    Args:
        outermost: what the outermost combinator is one of.
        backends: of which the arrays are on one.
        compilers: names in `COMPILERS`.
        inner: what the combinators inside others are some of.
        against: with which framework one in four is compared: a name in `WORLDS`.
        by_jax: whether derivatives are those of JAX's transformations, and none of the whole is compiled.
    """
    names = ["x", "w", "c"]
    expression = _Writer(draw, inner).expression(names, depth, order=2, kinds=outermost)
    return Program(
        f"{expression} + 0.1 * x * x",
        draw(st.sampled_from(sorted(FIRST_OF_JAX if by_jax else FIRST))),
        draw(st.sampled_from(sorted(SECOND_OF_JAX if by_jax else SECOND))),
        draw(st.sampled_from(backends)),
        draw(st.booleans()),
        not by_jax and draw(st.integers(0, 3)) == 3,
        against if draw(st.integers(0, 3)) == 3 else "",
        draw(st.sampled_from(compilers)),
        draw(st.booleans()),
    )


class _Writer:
    """Draws expressions.

    Attributes:
        kinds: of which combinators those inside others are.
        number: how many names there are.
    """

    def __init__(self, draw: Callable[..., Any], kinds: Sequence[str]) -> None:
        self.draw = draw
        self.kinds = kinds
        self.number = 0

    def name(self) -> str:
        self.number += 1
        return f"u{self.number}"

    def pick(self, choices: list[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def leaf(self, names: list[str]) -> str:
        # Those bound last come more often.
        return str(self.pick([*names, *names[-2:]]))

    def simple(self, names: list[str]) -> str:
        """An expression of ops."""
        a, b = self.leaf(names), self.leaf(names)
        return str(
            self.pick(
                [
                    a,
                    f"tc.sin({a})",
                    f"{a} * {b}",
                    f"tc.sin({a}) * {b}",
                    f"({a} + tc.tanh({b}))",
                    f"tc.flip({a}) * {b}",
                    f"{a} * tc.sum({b} * {b})",
                    f"({a} - 0.5 * {b} * {b})",
                    f"by_pytorch({a}, {b})",
                    f"by_pytorch_one_by_one({a}, {b})",
                    f"by_jax({a}, {b})",
                    f"by_jitted_jax({a}, {b})",
                ]
            )
        )

    def expression(self, names: list[str], depth: int, order: int, kinds: Sequence[str] | None = None) -> str:
        """A vector of three elements.

        Args:
            order: how many derivatives there may still be, one in the other.
            kinds: of which combinators the outermost is one; by default of those that there are inside.
        """
        if depth == 0 or (kinds is None and self.draw(st.integers(0, 9)) == 9):
            return self.simple(names)
        kinds = self.kinds if kinds is None else kinds
        if order < 2:
            kinds = [kind for kind in kinds if kind not in TWICE]
        if not order:
            kinds = [kind for kind in kinds if kind not in FORWARD and kind not in BACKWARD]
        kind = self.pick(list(kinds))

        def within(*own: str, cost: int = 0, names: list[str] = names, depth: int = depth) -> str:
            body = self.expression([*names, *own], depth - 1, order - cost)
            # What does not depend on its argument at all is an error to some transformations.
            return f"({body} + 0.1 * {own[0]} * {own[0]})" if cost else body

        def value() -> str:
            """What a combinator is given."""
            return self.expression(names, depth - 2, order) if depth > 2 and self.pick([0, 0, 1]) else leaf()

        def leaf() -> str:
            return self.leaf(names)

        u, v = self.name(), self.name()
        place = self.number  # what is nested has others
        few = self.pick([1, 2, 3])
        bound = self.pick([-9.0, 0.1, 9.0])
        axis = self.pick([0, 1])
        match kind:
            case "both":
                return f"({within()} {self.pick(['+', '*'])} {self.simple(names)})"
            case "cond":
                if self.pick([True, False]):
                    return f"tc.cond(tc.sum({leaf()}) > {bound}, lambda: {within()}, lambda: {self.simple(names)})"
                one, other = within(u), self.simple([*names, u])
                one, other = self.pick([(one, other), (other, one)])
                return f"tc.cond(tc.sum({leaf()}) > {bound}, lambda {u}: {one}, lambda {u}: {other}, {value()})"
            case "while_loop":
                step = f"(u + 1, (lambda {u}: tc.tanh({within(u)}))(v))".replace("u +", "k +")
                test = self.pick([f"s[0] < {few}", f"(s[0] < {few}) & (tc.sum(s[1]) < 9.0)"])
                return f"tc.while_loop(lambda s: {test}, lambda s: (lambda k, v: {step})(*s), (zero(), {value()}))[1]"
            case "scan" | "long scan":
                n = 129 if kind == "long scan" else few
                body = within(u, depth=min(depth, 3) if n > 9 else depth)
                if self.pick([True, False]):
                    return f"tc.scan(lambda {u}, r: (tc.tanh({body} + r), None), {value()}, ramp({n}))[0]"
                rows = f"tc.scan(lambda {u}, r: (tc.sin({u} * r), {body} * r), {value()}, ramp({n}))[1]"
                return f"tc.sum({rows}, axis=0) * {1 / n}"
            case "map" | "long map":
                n = 129 if kind == "long map" else few
                body = within(depth=min(depth, 3) if n > 9 else depth)
                return f"tc.sum(tc.map(lambda r: r * {body}, ramp({n})), axis=0) * {1 / n}"
            case "vmap":
                options = f"in_axes={self.pick([0, 1])}, out_axes={axis}{self.pick(['', '', ', chunk_size=2'])}"
                return f"tc.sum(tc.vmap(lambda {u}: {within(u)}, {options})(outer({leaf()}, {leaf()})), axis={axis})"
            case "vmap of two":
                options = f"in_axes=(None, {self.pick([0, 1])}), out_axes={axis}"
                arguments = f"{value()}, outer({leaf()}, {leaf()})"
                return f"tc.sum(tc.vmap(lambda {u}, {v}: {within(u, v)}, {options})({arguments}), axis={1 - axis})"
            case "vmap of numbers":
                inner = f"(lambda {u}: tc.sum({within(u)}))(q * {leaf()})"
                return f"tc.vmap(lambda q: {self.pick(['tc.sin(q)', inner, inner])})({value()})"
            case "checkpoint":
                policy = self.pick(["", "", ", policy=['sin', 'multiply']"])
                return f"tc.checkpoint(lambda {u}: {within(u)}{policy})({value()})"
            case "function":
                # Tensors from around are constants to it.
                return f"tc.function(lambda {u}: {within(u, names=['c'])})({value()})"
            case "xla":
                # Of a body that does not depend on its argument nothing is left for XLA.
                return f"by_xla(lambda {u}: {within(u, names=['c'])} + 0.1 * {u} * {u}, {value()})"
            case "custom_gradient":
                return f"with_gradient(lambda {u}: {within(u, names=['c'], depth=min(depth, 2))})({value()})"
            case "custom_jvp":
                return f"with_jvp(lambda {u}: {within(u, names=['c'], depth=min(depth, 2))})({value()})"
            case "another gradient" | "another jvp":
                how = "with_twice_the_gradient" if kind == "another gradient" else "with_twice_the_jvp"
                return f"{how}(lambda {u}: {within(u, names=['c'], depth=min(depth, 2))})({value()})"
            case "fixed_point" | "custom_root":
                # A contraction, whatever the rest is.
                step = f"0.2 * tc.sin({u}) * tc.tanh({self.simple([v])}) + 0.3 * {v}"
                how = self.pick(["", "", ", linear_solver='gmres'", ", linear_solver='dense'"])
                if kind == "fixed_point":
                    how += self.pick(["", "", ", solver='anderson'", ", solver='newton'"])
                return f"by_{kind}(lambda {u}, {v}: {step}, c, {within()}{how})"
            case "jax.jit":
                return f"in_jax(lambda jax, g: jax.jit(g), lambda {u}: {within(u, names=['c'])}, {value()})"
            case "jax.vmap":
                way = "lambda a: jax.numpy.sum(jax.vmap(lambda k: g(a * k))(jax.numpy.ones(2)), axis=0)"
                return f"in_jax(lambda jax, g: {way}, lambda {u}: {within(u, names=['c'])}, {value()}, doubled)"
            case "jax.grad":
                f = f"lambda {u}: tc.sum({within(u, names=['c'], cost=1)})"
                return f"in_jax(lambda jax, g: jax.grad(g), {f}, {value()}, tc.grad)"
            case "jax.jvp":
                f = f"lambda {u}: {within(u, names=['c'], cost=1)}"
                return f"in_jax(lambda jax, g: lambda a: jax.jvp(g, (a,), (a,))[1], {f}, {value()}, along_itself)"
            case "using":
                how = self.pick(["by_using", "by_using", "by_assigning"])
                return f"{how}(lambda {u}: {within(u)}, {value()}, cells[{place}])"
            case "module":
                return f"with_module(tc.checkpoint, lambda {u}: {within(u)}, {value()}, cells[{place}])"
            case "module grad":
                body = within(u, cost=1)
                return f"with_module(tc.grad, lambda {u}: tc.sum({body}), {value()}, cells[{place}])"
            case "grad":
                return f"tc.grad(lambda {u}: tc.sum({within(u, cost=1)}))({value()})"
            case "value_and_grad":
                return f"product(tc.value_and_grad(lambda {u}: tc.sum({within(u, cost=1)}))({value()}))"
            case "jvp":
                return f"tc.jvp(lambda {u}: {within(u, cost=1)}, ({value()},), ({leaf()},))[1]"
            case "vjp":
                return f"tc.vjp(lambda {u}: {within(u, cost=1)}, {value()})[1]({leaf()})[0]"
            case "linearize":
                return f"tc.linearize(lambda {u}: {within(u, cost=1)}, {value()})[1]({leaf()})"
            case "jacfwd" | "jacrev":
                return f"times(tc.{kind}(lambda {u}: {within(u, cost=1)})({value()}), {leaf()})"
            case "tape":
                return f"by_tape(lambda {u}: tc.sum({within(u, cost=1)}), {value()})"
            case "accumulator":
                return f"by_accumulator(lambda {u}: {within(u, cost=1)}, {value()}, {leaf()})"
            case "hessian":
                return f"times(tc.hessian(lambda {u}: tc.sum({within(u, cost=2)}))({value()}), {leaf()})"
            case "hvp":
                return f"tc.hvp(lambda {u}: tc.sum({within(u, cost=2)}), ({value()},), ({leaf()},))[0]"
        raise AssertionError(kind)


# -- the same without combinators


class Unrolled:
    """What `tc` is where there are no combinators: Python's own, and Jacobians row by row."""

    float64 = None

    def __init__(self, ops: Any, grad: Any, vjp: Any, jvp: Any, asarray: Any) -> None:
        self.grad, self.vjp, self.jvp, self.asarray = grad, vjp, jvp, asarray
        self.sin, self.tanh, self.stack = ops.sin, ops.tanh, ops.stack
        self._ops = ops

    def sum(self, a: Any, axis: int | None = None) -> Any:
        if axis is None:
            return self._ops.sum(a)
        return reduce(operator.add, [a[k] if axis == 0 else a[..., k] for k in range(a.shape[axis])])

    def flip(self, a: Any) -> Any:
        return self.stack([a[k] for k in reversed(range(a.shape[0]))])

    def cond(self, holds: Any, yes: Any, no: Any, *operands: Any) -> Any:
        return (yes if bool(holds) else no)(*operands)

    def while_loop(self, test: Any, step: Any, value: Any) -> Any:
        while bool(test(value)):
            value = step(value)
        return value

    def scan(self, f: Any, carry: Any, xs: Any) -> Any:
        rows = []
        for k in range(xs.shape[0]):
            carry, row = f(carry, xs[k])
            rows.append(row)
        return carry, None if rows[0] is None else self.stack(rows)

    def map(self, f: Any, xs: Any) -> Any:
        return self.stack([f(xs[k]) for k in range(xs.shape[0])])

    def vmap(self, f: Any, in_axes: Any = 0, out_axes: int = 0, chunk_size: Any = None) -> Any:
        def mapped(*args: Any) -> Any:
            axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
            size = next(a.shape[axis] for a, axis in zip(args, axes, strict=True) if axis is not None)
            examples = [
                f(*[a if n is None else (a[k] if n == 0 else a[:, k]) for a, n in zip(args, axes, strict=True)])
                for k in range(size)
            ]
            return self._ops.stack(examples, out_axes)

        return mapped

    def checkpoint(self, f: Any, policy: Any = None) -> Any:
        return f

    def function(self, f: Any, compile: Any = None) -> Any:
        return f

    def with_own(self, f: Any) -> Any:
        return f

    def twice(self, f: Any) -> Any:
        """A function with twice its derivative."""

        def twice(a: Any) -> Any:
            y = f(a)
            return 2.0 * y - self._ops.stop_gradient(y)

        return twice

    def repeated(self, f: Any, z: Any, a: Any, **how: Any) -> Any:
        """A fixed point after so many steps that the derivatives are right, too."""
        for _ in range(30):
            z = f(z, a)
        return z

    def value_and_grad(self, f: Any) -> Any:
        return lambda a: (f(a), self.grad(f)(a))

    def linearize(self, f: Any, a: Any) -> Any:
        return f(a), lambda t: self.jvp(f, (a,), (t,))[1]

    def hvp(self, f: Any, primals: Any, tangents: Any) -> Any:
        return (self.jvp(self.grad(f), primals, tangents)[1],)

    def jacfwd(self, f: Any) -> Any:
        return lambda a: self.stack(
            [self.jvp(f, (a,), (self.asarray(e),))[1] for e in np.eye(3)], -1 if f(a).ndim else 0
        )

    def jacrev(self, f: Any) -> Any:
        def jacobian(a: Any) -> Any:
            pull = self.vjp(f, a)[1]
            return self.stack([pull(self.asarray(e))[0] for e in np.eye(3)])

        return jacobian

    def hessian(self, f: Any) -> Any:
        return self.jacrev(self.grad(f))

    def namespace(self) -> dict[str, Any]:
        """What an expression is evaluated in."""
        found: dict[str, Any] = {"tc": self, "backend": None}
        exec(HELPERS, found)
        found["ramp"] = lambda n: self.asarray(np.array([0.1 + 0.8 * k / n for k in range(n)]))
        found["zero"] = lambda: 0
        found["with_gradient"] = found["with_jvp"] = lambda f: f
        found["with_twice_the_gradient"] = found["with_twice_the_jvp"] = self.twice
        found["by_fixed_point"] = found["by_custom_root"] = self.repeated
        found["by_tape"] = lambda f, a: self.grad(f)(a)
        found["by_using"] = found["by_assigning"] = lambda f, a, cell: f(a)
        found["with_module"] = lambda transform, f, a, cell: transform(f)(a)
        found["cells"] = [None] * 100
        found["by_accumulator"] = lambda f, a, t: self.jvp(f, (a,), (t,))[1]
        return found


def on_tape() -> Unrolled:
    """On Tape's ops and its functions of plain programs."""

    def asarray(a: Any) -> Any:
        return tape_core.asarray(a, dtype=tape_core.float64, backend="numpy")

    class Ops:
        sin, tanh, sum = tape_core.sin, tape_core.tanh, tape_core.sum
        stop_gradient = tape_core.stop_gradient

        @staticmethod
        def stack(parts: Any, axis: int = 0) -> Any:
            return tape_core.stack(parts, axis=axis)

    return Unrolled(Ops, tape_core.grad, tape_core.vjp, tape_core.jvp, asarray)


def on_torch() -> Unrolled:
    """On PyTorch's ops and torch.func."""
    import warnings

    import torch

    with warnings.catch_warnings():  # what torch.func imports warns, with Python's newer versions
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.func.jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))

    class Ops:
        sin, tanh, sum = torch.sin, torch.tanh, torch.sum
        stop_gradient = torch.Tensor.detach

        @staticmethod
        def stack(parts: Any, axis: int = 0) -> Any:
            return torch.stack(list(parts), axis)

    def asarray(a: Any) -> Any:
        return torch.as_tensor(np.asarray(a), dtype=torch.float64)

    func = torch.func
    return Unrolled(Ops, func.grad, func.vjp, func.jvp, asarray)


def on_jax() -> Unrolled:
    """On JAX's ops and its derivatives."""
    import jax
    import jax.numpy as jnp

    class Ops:
        sin, tanh, sum, stack = jnp.sin, jnp.tanh, jnp.sum, jnp.stack
        stop_gradient = jax.lax.stop_gradient

    def asarray(a: Any) -> Any:
        return jnp.asarray(a, dtype=jnp.float64)

    return Unrolled(Ops, jax.grad, jax.vjp, jax.jvp, asarray)


WORLDS = {"torch": on_torch, "jax": on_jax}
"""The frameworks that have derivatives of their own of the program unrolled."""


def expected(program: Program, world: Unrolled) -> list[Any]:
    """The value, the Jacobian and the second derivatives of the sum."""
    names = world.namespace()
    names["w"], names["c"] = world.asarray(OTHER), world.asarray(CONSTANT)
    f = eval(f"lambda x: {program.expression}", names)
    x = world.asarray(POINT)
    found = [f(x), world.jacrev(f)(x), world.jacrev(world.grad(lambda x: world.sum(f(x))))(x)]
    return [np.asarray(t.numpy() if hasattr(t, "numpy") else t) for t in found]


# -- checks


def check(program: Program) -> None:
    """Whether a program has the derivatives of the same one unrolled.

    Raises:
        AssertionError: it has not; with the program as code that runs.
    """
    with tape_core.use_backend(program.backend):
        _check(program)


def _check(program: Program) -> None:
    wanted = expected(program, on_tape())
    if not all(np.all(np.isfinite(a)) and np.max(np.abs(a), initial=0) < 1e9 for a in wanted):
        return
    if program.against:
        for a, b, what in zip(wanted, expected(program, WORLDS[program.against]()), _PARTS, strict=True):
            _compare(program, b, a, f"{what}, {program.against}'s own derivatives and the program unrolled")
    names: dict[str, Any] = {"tc": tape_core, "backend": program.backend}
    exec(HELPERS + MODULES * ("cells" in program.expression), names)
    given = {
        name: tape_core.asarray(a, dtype=tape_core.float64, backend=program.backend)
        for name, a in (("x", POINT), ("w", OTHER), ("c", CONSTANT))
    }
    names.update(given)
    if program.host:
        names["c"] = CONSTANT.copy()
    if program.variable:
        names["w"] = tape_core.Variable(given["w"])
    try:
        names["f"] = eval(f"lambda x: {program.expression}", names)
        found = [eval(text, names) for text in ("f(x)", _ALL_FIRST[program.first], _ALL_SECOND[program.second])]
        compiled = []
        if program.compiled:
            for text in ("f(x)", _ALL_FIRST[program.first], _ALL_SECOND[program.second]):
                f = tape_core.function(eval(_as_function(text), names), compile=COMPILERS[program.compiler])
                compiled.append([f(names["x"]), f(names["x"])])
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{_shown(program)}") from error
    for got, want, what in zip(found, wanted, _PARTS, strict=True):
        _compare(program, got.numpy(), want, what)
    for pair, eager, what in zip(compiled, found, _PARTS, strict=False):
        for number, got in enumerate(pair, start=1):
            # XLA, which also compiles calls of JAX's functions, computes the same with other roundings.
            by_xla = program.compiler == "'xla'" or "by_xla(" in program.expression
            is_other = by_xla or (program.backend == "jax" and "jax(" in program.expression)
            compare = _compare if is_other else _compare_bits
            compare(program, got.numpy(), eager.numpy(), f"{what}, compiled, call {number}")


COMPILERS: dict[str, Any] = {"None": None, "'python'": "python", "'xla'": "xla", "CallByCall()": CallByCall()}
_PARTS = ("the value", "the Jacobian", "the second derivatives")


def _compare(program: Program, got: Any, want: Any, what: str) -> None:
    got = np.asarray(got)
    scale = max(1.0, float(np.max(np.abs(want), initial=0)))
    if got.shape == want.shape and np.allclose(got, want, rtol=0, atol=1e-8 * scale):
        return
    raise AssertionError(f"{what}: got\n{got}\nwant\n{want}\n{_shown(program)}")


def _compare_bits(program: Program, got: Any, want: Any, what: str) -> None:
    """Compiled code has the bits of eager code; 0.0 is -0.0."""
    if got.shape == want.shape and got.dtype == want.dtype and np.array_equal(got, want):
        return
    raise AssertionError(
        f"{what}, has other bits: got\n{got}\nwant\n{want}\ndifference\n{got - want}\n{_shown(program)}"
    )


def _shown(program: Program) -> str:
    return textwrap.indent(program.code(), "    ")
