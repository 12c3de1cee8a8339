"""The source of compiled functions: what is used once stands in the expression that uses it, in the order of Python."""

from __future__ import annotations

import operator
import random
import re
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from tape_core.compiled import outlining, source

BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    lambda a, b: tc.where(a < b, a, b), lambda a, b: tc.where((a > 0) == (b > 0), a, -b), tc.maximum,
]  # fmt: skip
UNARY: list[Callable[[Any], Any]] = [
    operator.neg, operator.abs, tc.sin, tc.tanh, lambda a: a[0], lambda a: a[..., ::-1], lambda a: a.T @ a,
]  # fmt: skip


def lines(f: Any) -> list[str]:
    """Those of the code, without comments."""
    return [line.strip() for line in f.text().splitlines() if not line.strip().startswith(("#", "def"))]


def test_what_is_used_once_stands_where_it_is_used() -> None:
    @tc.function
    def f(x: Any) -> Any:
        y = tc.tanh(tc.sin(x * 2.0) + 1.0)
        return y, -((y - (x - 3.0)) ** 2.0)

    f(tc.asarray(0.5))
    backend = tc.get_backend().name
    if backend == "numpy":
        assert "x4 = tanh(sin(x0 * 2.0) + 1.0)" in lines(f)
    assert f.text().count(" = ") <= 4


@pytest.mark.filterwarnings("ignore:.*encountered")
@pytest.mark.parametrize("seed", range(40))
def test_expressions_have_the_parentheses_that_they_need(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(source, "LONG", 0)
    choose = random.Random(seed)

    def grown(x: Any, depth: int, draw: random.Random) -> Any:
        if depth == 0:
            return draw.choice([x, x, 2.0, 0.5])
        if draw.random() < 0.3:
            found = grown(x, depth - 1, draw)
            return draw.choice(UNARY[:4])(found * 1.5 + x)
        return draw.choice(BINARY)(grown(x, depth - 1, draw) + 0.25 * x, grown(x, depth - 1, draw))

    state = choose.getstate()

    def f(x: Any) -> Any:
        choose.setstate(state)
        return grown(x, 4, choose)

    x = tc.default_rng(seed).uniform((3,), low=0.5, high=2.0)
    compiled = tc.function(f)
    for _ in range(2):
        assert compiled(x).numpy().tobytes() == tc.asarray(f(x)).numpy().tobytes()


def test_subscripts_attributes_and_methods_of_expressions() -> None:
    def f(x: Any) -> Any:
        parts = [use(x @ x - 1.0 / (x + 1.0)) for use in UNARY]
        return tc.sum(parts[4]), *parts

    compiled = tc.function(f)
    x = tc.default_rng(0).normal((3, 3))
    for _ in range(2):
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert found.numpy().tobytes() == expected.numpy().tobytes()


def test_what_has_effects_keeps_its_place() -> None:
    v = tc.Variable(tc.ones(3))

    def f(x: Any) -> Any:
        first = tc.sin(x) * tc.random.global_rng().uniform((3,))
        v.assign_add(x)
        second = tc.cos(v * tc.random.global_rng().uniform((3,)))
        return second - first * v

    compiled = tc.function(f)
    x = tc.default_rng(1).normal((3,))
    found = []
    for function in (f, compiled, compiled):
        v.assign(tc.ones(3))
        tc.set_seed(7)
        found.append((function(x).numpy().tobytes(), v.numpy().tobytes()))
    assert found[0] == found[1] == found[2]


def test_lines_stay_narrow_and_apart_for_each_line_of_the_user() -> None:
    def f(x: Any) -> Any:
        y = x
        for _ in range(60):
            y = tc.sin(y * 1.25)
        z = tc.cos(y)
        return tc.exp(z)

    compiled = tc.function(f)
    compiled(tc.asarray(0.5))
    assert max(map(len, lines(compiled))) <= 110
    assert not any("exp(cos(" in line for line in lines(compiled))


def test_a_failing_kernel_is_pointed_at_in_the_expression() -> None:
    f = tc.function(lambda x: tc.sum(tc.linalg.inv(x) * 2.0) + 1.0)
    f(tc.eye(2))
    with pytest.raises(Exception, match=r"[Ss]ingular") as caught:
        f(tc.zeros((2, 2)))
    shown = "".join(traceback.format_exception(caught.value))
    assert "inv(x0)" in shown
    assert "compiled, " in shown


def test_long_functions_use_names_again_and_let_go_of_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlining, "LONG", 1000)  # what comes again would be written once

    def f(x: Any) -> Any:
        for k in range(300):
            x = tc.sin(x) + (x if k % 2 else tc.cos(x))
        return x

    compiled = tc.function(f)
    for n in (3, 600, 1 << 13):
        x = tc.default_rng(0).normal((n,))
        for _ in range(2):
            assert compiled(x).numpy().tobytes() == f(x).numpy().tobytes()
        assert len(set(re.findall(r"\bx\d+\b", compiled.text()))) < 10
    if tc.get_backend().name == "numpy":
        tracemalloc.start()
        compiled(x)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5 * 8 * n


def test_a_large_array_is_let_go_of_as_soon_as_nothing_needs_it() -> None:
    def f(x: Any, k: Any) -> Any:
        y = tc.sin(x) * 2.0
        z = tc.cos(x)
        a = tc.take(y, k) + tc.take(z, k)
        return a, tc.exp(a)

    compiled = tc.function(f)
    compiled(tc.ones(1 << 14), tc.asarray([0]))
    (found,) = next(iter(compiled._compiled.values()))
    kept = set(re.findall(r"\bx\d+\b", compiled.text().partition("return (")[0]))
    gone = {name for line in lines(compiled) if line.startswith("del ") for name in line[4:].split(", ")}
    large = {f"x{k}" for k, spec in found.program.specs.items() if spec.size >= 1 << 14}
    assigned = {line.partition(" = ")[0] for line in lines(compiled) if " = " in line}
    assert (large & assigned) - gone == set()
    assert gone <= kept
