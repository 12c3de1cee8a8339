"""The source of compiled functions: what is used once stands in the expression that uses it, in the order of Python."""

from __future__ import annotations

import inspect
import operator
import random
import re
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from tape_compile import thresholds

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
        monkeypatch.setattr(thresholds, "RECYCLE_NAMES_MIN_PROGRAM", 0)
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


@pytest.mark.filterwarnings("ignore:.*encountered")
@pytest.mark.parametrize("outer", range(len(BINARY)))
@pytest.mark.parametrize("shape", [(), (3,)])
def test_operators_in_operators_are_computed_first(outer: int, shape: tuple[int, ...]) -> None:
    """On either side, with signs, and with negative numbers."""

    def f(x: Any, y: Any) -> Any:
        found = []
        for inner in [*BINARY, *[lambda a, _, use=use: use(a) for use in UNARY[:4]]]:
            for a in (x, -x, 1.75, -1.75):
                found.append(BINARY[outer](inner(x, a), y))
                found.append(BINARY[outer](y, inner(y, a)))
                found.append(BINARY[outer](-inner(x, a), -2))
                found.append(BINARY[outer](-inner(x, a) + 2.0, -0.5))
        return found

    x, y = (tc.default_rng(k).uniform(shape, low=0.5, high=2.0) for k in range(2))
    compiled = tc.function(f)
    expected = f(x, y)
    for _ in range(2):
        for found, e in zip(compiled(x, y), expected, strict=True):
            assert found.numpy().tobytes() == tc.asarray(e).numpy().tobytes()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (tc.mean(x * x) ** 0.5) ** 3,
        lambda x: (tc.sum(tc.abs(x) ** 3) ** (1 / 3)) ** 2,
        lambda x: (tc.var(x) ** 0.5) ** 4,
        lambda x: (x[0] ** 2) ** 3,
        lambda x: 2.0 ** (x[0] ** x[1]) ** x[2],
        lambda x: (-(x[0] ** 2)) ** 2.0 - (-x[1]) ** 2.0,
        lambda x: ((x**0.5) ** 3.0) ** 0.25,
        lambda x: (tc.astype(x * 2, "int64") ** 2) ** 2,
        lambda x: ((x[0] < x[1]) == (x[1] > x[2])) != (x[0] > 0),
    ],
    ids=[f"program {k}" for k in range(9)],
)
def test_a_power_of_a_power_is_the_same_number_in_each_call(f: Any) -> None:
    x = tc.asarray([0.5, 1.0, 1.5])
    compiled = tc.function(f)
    for _ in range(3):
        assert compiled(x).numpy().tobytes() == f(x).numpy().tobytes()


@pytest.mark.parametrize(
    "name",
    ["x0", "c1", "arrays", "own", "is_exclusive", "class", "__builtins__", "1f", "", "\xb2", "\U0001d422\U0001d41f"],
)
def test_a_function_may_have_any_name(name: str) -> None:
    table = tc.linspace(0, 1, 5)

    def f(x: Any) -> Any:
        return tc.sin(x) * table + 1.5

    f.__name__ = name
    compiled = tc.function(f)
    for _ in range(2):
        assert compiled(tc.ones(5)).tolist() == f(tc.ones(5)).tolist()


def test_what_runs_has_nothing_of_comments_in_it(tmp_path: Any) -> None:
    """A comment of the user's is shown on one line, whatever it has in it."""
    ends = "\u2028\u2029\x85\x0c\x1c\x1d\x1e\x0b\r"
    source = f"def f(x):\n    return tc.sin(x) * 2.0  # see {ends.join('abc')}    boom()\n"
    file = tmp_path / "user\u2028    boom().py"
    file.write_text(source, encoding="utf-8", newline="")
    names: dict[str, Any] = {"tc": tc}
    exec(compile(source.replace("\r", ""), str(file), "exec"), names)
    compiled = tc.function(names["f"])
    compiled(tc.ones(3))
    compiled(tc.ones(3))
    text = compiled.text()
    assert len(text.splitlines()) == len(text.split("\n")) - 1
    assert not any(line.strip().startswith("boom") for line in text.splitlines())


def test_lines_of_what_runs_are_those_of_its_source() -> None:
    f = tc.function(lambda x: tc.sum(tc.linalg.inv(x)) + tc.sin(x[0, 0]))
    f(tc.eye(2))
    found = next(iter(f._compiled.values()))[0].source.run
    assert inspect.getsource(found) == f.text()


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
    monkeypatch.setattr(thresholds, "OUTLINE_MIN_PROGRAM", 1000)  # what comes again would be written once

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


@pytest.mark.parametrize(
    ("f", "wrong"),
    [
        (lambda x, k: tc.sum(tc.linalg.inv(x) * 2.0) + 1.0, (tc.zeros((3, 3)), tc.asarray([0]))),
        (lambda x, k: tc.sin(tc.take(x, k, axis=0)) * 2.0, (tc.eye(3), tc.asarray([7]))),
        (lambda x, k: tc.linalg.solve(x, x + 1) @ x, (tc.zeros((3, 3)), tc.asarray([0]))),
        (lambda x, k: tc.linalg.cholesky(x * 1.0), (-tc.eye(3), tc.asarray([0]))),
        (
            lambda x, k: tc.scan(lambda h, _: (tc.linalg.inv(h + x) - x, None), x, length=40)[0],
            (tc.zeros((3, 3)), tc.asarray([0])),
        ),
        (lambda x, k: tc.cond(k[0] == 0, lambda: tc.linalg.inv(x), lambda: x), (tc.zeros((3, 3)), tc.asarray([0]))),
    ],
    ids=["inv", "take", "solve", "cholesky", "scan", "cond"],
)
@pytest.mark.parametrize("how", ["called", "in a tape"])
def test_errors_of_compiled_functions_are_those_of_the_ops(f: Any, wrong: Any, how: str) -> None:
    def called(g: Any, x: Any, k: Any) -> Any:
        if how == "called":
            return g(x, k)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = g(x, k)
        return tape.gradient(y, x)

    compiled = tc.function(f)
    for _ in range(3):
        called(compiled, tc.eye(3) * 2.0, tc.asarray([0]))
    with pytest.raises(Exception, match=r"\w") as expected:
        f(*wrong)
    with pytest.raises(type(expected.value), match=r"\w") as caught:
        called(compiled, *wrong)
    assert str(caught.value) == str(expected.value)
    if how == "called":
        assert any("test_source.py" in note for note in caught.value.__notes__)


def test_an_integer_of_many_digits_is_a_constant() -> None:
    f = tc.function(lambda x: tc.argmax(x, axis=0, keepdims=10**400))  # type: ignore[arg-type]
    x = tc.asarray([[1.0, 2.0], [3.0, 0.0]])
    for _ in range(3):
        assert f(x).tolist() == [[1, 0]]
