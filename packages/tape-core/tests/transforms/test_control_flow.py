"""cond, while_loop, scan and map: what they compute is what Python's own would, eager, compiled and differentiated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import assert_same, leaves, values
from tape_core.transforms import loops

draw = partial(values, dtype="float64")
W = draw(3, 3, seed=7) * 0.5


@pytest.fixture(params=[True, False], ids=["laid out", "as one record"], autouse=True)
def laid_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a scan of few steps is recorded op by op, or as a longer one is."""
    found: bool = request.param
    if not found:
        monkeypatch.setattr(loops, "UNROLL_MAX_STEPS", 0)
    return found


def assert_close(expected: Any, found: Any) -> None:
    for e, f in zip(leaves(expected), leaves(found), strict=True):
        assert e.shape == f.shape
        assert tc.all(tc.abs(e - f) <= 1e-9 * (1 + tc.abs(e)))


# Each program twice: by the functions, and by Python's own if and loops. All take a vector of three and a number.


def branch(x: Any, s: Any) -> Any:
    return tc.cond(s > 0, lambda x, s: tc.sin(x) @ W * s, lambda x, s: tc.cos(x * s) * x, x, s)


def branch_python(x: Any, s: Any) -> Any:
    return tc.sin(x) @ W * s if s > 0 else tc.cos(x * s) * x


def around(x: Any, s: Any) -> Any:
    y = tc.exp(s) * x  # what the functions find around them
    return tc.cond(s > 0, lambda: tc.tanh(x * y) + y, lambda: y * y)


def around_python(x: Any, s: Any) -> Any:
    y = tc.exp(s) * x
    return tc.tanh(x * y) + y if s > 0 else y * y


def loop(x: Any, s: Any) -> Any:
    def body(carry: Any) -> Any:
        return {"x": tc.tanh(carry["x"] @ W) + s * x, "n": carry["n"] + 1}

    start = {"x": x, "n": 0}
    return tc.while_loop(lambda c: (c["n"] < 7) & (tc.sum(c["x"] ** 2) < 4), body, start)["x"]


def loop_python(x: Any, s: Any) -> Any:
    y, n = x, 0
    while n < 7 and tc.sum(y**2) < 4:
        y, n = tc.tanh(y @ W) + s * x, n + 1
    return y


def recurrence(x: Any, s: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = tc.tanh(h @ W + row * s)
        return h, (tc.sum(h * x), row + h)

    h, (sums, rows) = tc.scan(step, x, tc.outer(x, x))
    return h * tc.sum(sums) + tc.sum(rows, axis=0)


def recurrence_python(x: Any, s: Any) -> Any:
    h, sums, rows = x, [], []
    for row in tc.outer(x, x):
        h = tc.tanh(h @ W + row * s)
        sums.append(tc.sum(h * x))
        rows.append(row + h)
    return h * tc.sum(tc.stack(sums)) + tc.sum(tc.stack(rows), axis=0)


def backwards(x: Any, s: Any) -> Any:
    last, products = tc.scan(lambda p, e: (p * e + s, p), s, x, reverse=True)
    return products * last


def backwards_python(x: Any, s: Any) -> Any:
    p, products = s, []
    for e in (x[2], x[1], x[0]):
        products.insert(0, p)
        p = p * e + s
    return tc.stack(products) * p


def nested(x: Any, s: Any) -> Any:
    def inner(c: Any) -> Any:
        return c[0] * 1.5 + s * s * tc.abs(x[0]), c[1] + 1

    def step(h: Any, e: Any) -> Any:
        a, n = tc.while_loop(lambda c: c[0] < 3, inner, (tc.abs(e * h) + 0.2, 0))
        h = tc.cond(n > 2, lambda a: tc.sin(a) * s, lambda a: a * a, a)
        return h, h * e

    return tc.scan(step, s, x)[1]


def nested_python(x: Any, s: Any) -> Any:
    h, found = s, []
    for e in x:
        a, n = tc.abs(e * h) + 0.2, 0
        while a < 3:
            a, n = a * 1.5 + s * s * tc.abs(x[0]), n + 1
        h = tc.sin(a) * s if n > 2 else a * a
        found.append(h * e)
    return tc.stack(found)


def mapped(x: Any, s: Any) -> Any:
    return tc.map(lambda e: tc.sin(e * s) * tc.sum(x * e), x)


def mapped_python(x: Any, s: Any) -> Any:
    return tc.stack([tc.sin(e * s) * tc.sum(x * e) for e in x])


PROGRAMS = [
    (branch, branch_python),
    (around, around_python),
    (loop, loop_python),
    (recurrence, recurrence_python),
    (backwards, backwards_python),
    (nested, nested_python),
    (mapped, mapped_python),
]


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, s: tc.sum(f(x, s) ** 2)


DERIVATIVES: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "value": lambda f: f,
    "gradient": lambda f: tc.grad(total(f), argnums=(0, 1)),
    "forward": lambda f: lambda x, s: tc.jvp(f, (x, s), (tc.cos(x), s)),
    "jacrev": lambda f: tc.jacrev(f, argnums=(0, 1)),
    "jacfwd": lambda f: tc.jacfwd(f, argnums=(0, 1)),
    "hessian": lambda f: tc.hessian(total(f)),
    "reverse twice": lambda f: tc.jacrev(tc.grad(total(f), argnums=(0, 1)), argnums=(0, 1)),
    "hvp": lambda f: lambda x, s: tc.hvp(lambda x: total(f)(x, s), (x,), (tc.cos(x),)),
    "third": lambda f: tc.grad(lambda x, s: tc.sum(tc.grad(lambda x: tc.sum(tc.grad(total(f))(x, s) * x))(x) ** 2)),
}


def arguments() -> list[tuple[tc.Tensor, tc.Tensor]]:
    return [(draw(3, seed=k) * 0.7, tc.asarray(s, dtype="float64")) for k, s in enumerate((0.4, -0.9, 1.3))]


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize(("f", "python"), PROGRAMS, ids=lambda f: f.__name__)
def test_derivatives_are_those_of_python(f: Callable[..., Any], python: Callable[..., Any], derivative: str) -> None:
    of = DERIVATIVES[derivative]
    compiled = tc.function(of(f))
    for x, s in arguments():
        found = of(f)(x, s)
        assert_close(of(python)(x, s), found)
        assert_same(found, compiled(x, s))
    assert compiled.traces == 1


MAPPED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "value": lambda f: f,
    "gradient inside": lambda f: tc.grad(total(f), argnums=(0, 1)),
    "forward inside": lambda f: lambda x, s: tc.jvp(f, (x, s), (tc.cos(x), s)),
    "jacobian inside": lambda f: tc.jacrev(f),
    "hessian inside": lambda f: tc.hessian(total(f)),
}


@pytest.mark.parametrize("inside", MAPPED)
@pytest.mark.parametrize("f", [f for f, _ in PROGRAMS], ids=lambda f: f.__name__)
def test_vmap_gives_each_example_what_it_gets_alone(f: Callable[..., Any], inside: str) -> None:
    one = MAPPED[inside](f)
    x, s = tc.stack([x for x, _ in arguments()]), tc.stack([s for _, s in arguments()])
    each = [leaves(one(a, b)) for a, b in zip(x, s, strict=True)]
    expected = [tc.stack(list(column)) for column in zip(*each, strict=True)]
    found = leaves(tc.vmap(one)(x, s))
    assert_close(expected, found)
    compiled = tc.function(lambda x, s: leaves(tc.vmap(one)(x, s)))
    assert_same(found, compiled(x, s))
    assert_same(leaves(tc.vmap(one)(x * 0.5, -s)), compiled(x * 0.5, -s))
    shared = leaves(tc.vmap(one, in_axes=(0, None))(x, s[0]))
    assert_close([tc.stack(list(c)) for c in zip(*[leaves(one(a, s[0])) for a in x], strict=True)], shared)


@pytest.mark.parametrize("f", [f for f, _ in PROGRAMS], ids=lambda f: f.__name__)
def test_gradients_go_through_vmap(f: Callable[..., Any]) -> None:
    def loss(x: Any, s: Any) -> Any:
        return tc.sum(tc.vmap(f)(x, s) ** 2)

    x, s = tc.stack([x for x, _ in arguments()]), tc.stack([s for _, s in arguments()])
    each = [tc.grad(total(f), argnums=(0, 1))(a, b) for a, b in zip(x, s, strict=True)]
    found = tc.grad(loss, argnums=(0, 1))(x, s)
    assert_close([tc.stack([gx for gx, _ in each]), tc.stack([gs for _, gs in each])], found)
    assert_same(found, tc.function(tc.grad(loss, argnums=(0, 1)))(x, s))
    tangents = tc.jvp(tc.vmap(f), (x, s), (tc.cos(x), s))
    assert_close(tc.stack([tc.jvp(f, (a, b), (tc.cos(a), b))[1] for a, b in zip(x, s, strict=True)]), tangents[1])


def test_in_vmap_of_vmap_each_example_finds_what_is_around_it() -> None:
    def each(a: Any, b: Any) -> Any:
        y = tc.sum(a, axis=0)
        return tc.while_loop(lambda c: tc.sum(c**2) < 3, lambda c: tc.tanh(c @ W) + 0.5 * y + c * 1.2 + 0.1, b)

    def mapped(x: Any) -> Any:
        return tc.vmap(lambda a: tc.vmap(lambda b: each(a, b))(a))(x)

    def one_by_one(x: Any) -> Any:
        return tc.stack([tc.stack([each(a, b) for b in a]) for a in x])

    x = draw(2, 4, 3)
    slope = tc.grad(lambda x: tc.sum(mapped(x) ** 2))
    assert_close(one_by_one(x), mapped(x))
    assert_close(tc.grad(lambda x: tc.sum(one_by_one(x) ** 2))(x), slope(x))
    assert_same(slope(x), tc.function(slope)(x))


def test_complex_values_and_rows_of_a_table() -> None:
    z = tc.asarray([1 + 2j, 0.5 - 1j])
    table = draw(9, 3)

    def rows(table: Any) -> Any:
        return tc.scan(lambda c, i: (tc.tanh(c + tc.gather(table, i)), None), table[0], tc.asarray([1, 3, 3]))[0]

    def rows_python(table: Any) -> Any:
        c = table[0]
        for i in (1, 3, 3):
            c = tc.tanh(c + table[i])
        return c

    for f, python, x in (
        (lambda z: tc.scan(lambda c, e: (tc.sin(c) * e, None), z, z)[0], lambda z: tc.sin(tc.sin(z) * z[0]) * z[1], z),
        (rows, rows_python, table),
    ):
        slope = tc.grad(lambda x, f=f: tc.real(tc.sum(f(x) ** 2)))
        expected = tc.grad(lambda x, python=python: tc.real(tc.sum(python(x) ** 2)))(x)
        assert tc.all(tc.abs(expected - slope(x)) <= 1e-5 * (1 + tc.abs(expected)))
        assert_same(slope(x), tc.function(slope)(x))


def examples_beside_all_of_them(x: Any, scan: Callable[..., Any]) -> Any:
    """The functions find around them an example, what it is an example of, and what is computed from either."""

    def each(q: Any) -> Any:
        def step(c: Any, k: Any) -> Any:
            return tc.tanh(c * k + q * tc.sum(x, axis=0)) + tc.sum(x * 2) * 0.1 * q, tc.sum(q * x)

        c, sums = scan(step, tc.ones(3, dtype="float64"), x)
        return tc.sum(c**2) + tc.sum(sums)

    return tc.sum(tc.vmap(each)(x) ** 2)


EXAMPLES = draw(4, 3) * 0.5


def derivatives_inside_and_outside(s: Any, scan: Callable[..., Any]) -> Any:
    """What the functions find around them has derivatives for each example, and for all."""
    x = EXAMPLES

    def each(q: Any) -> Any:
        def inner(t: Any) -> Any:
            return tc.sum(scan(lambda c, k: (tc.sin(c * k + q * t) * s + tc.sum(t * 2 * q), k), q, x)[0])

        return tc.grad(inner)(s) + tc.jvp(inner, (s,), (s * 2,))[1]

    return tc.sum(tc.vmap(each)(x) ** 2)


def scan_python(step: Callable[..., Any], c: Any, xs: Any) -> Any:
    rows = []
    for x in xs:
        c, y = step(c, x)
        rows.append(y)
    return c, tc.stack(rows)


@pytest.mark.parametrize(
    ("f", "at"),
    [(examples_beside_all_of_them, EXAMPLES), (derivatives_inside_and_outside, draw()[()] + 0.7)],
    ids=["examples beside all", "inside and outside"],
)
@pytest.mark.parametrize("derivative", ["gradient", "forward", "jacrev of gradient", "hessian"])
def test_what_is_around_a_loop_is_known_inside_and_outside_of_vmap(
    f: Callable[..., Any], at: tc.Tensor, derivative: str
) -> None:
    of = {
        "gradient": tc.grad,
        "forward": lambda f: lambda x: tc.jvp(f, (x,), (tc.cos(x),))[1],
        "jacrev of gradient": lambda f: tc.jacrev(tc.grad(f)),
        "hessian": tc.hessian,
    }[derivative]
    found = of(lambda x: f(x, tc.scan))(at)
    assert_close(of(lambda x: f(x, scan_python))(at), found)
    assert_same(found, tc.function(of(lambda x: f(x, tc.scan)))(at))


def test_what_is_made_inside_one_record_is_not_known_to_tapes_around(laid_out: bool) -> None:
    kept: list[Any] = []
    x = tc.asarray(0.7)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tc.sin(x)
        last, _ = tc.scan(lambda c, _: (kept.append(c * y) or c * y, None), tc.asarray(1.0), length=2)
    assert tc.abs(tape.gradient(last, x) - 2 * tc.sin(x) * tc.cos(x)) < 1e-6
    assert (tape.gradient(kept[0], x) is None) is not laid_out


def test_a_number_that_a_loop_begins_with_has_the_precision_of_the_arrays() -> None:
    x = np.asarray([1.0, 2.0, 3.0])
    for run in (lambda f: f, tc.function):
        total = run(lambda x: tc.scan(lambda c, x: ({"sum": c["sum"] + x * x, "n": c["n"] + 1}, None), START, x)[0])(x)
        assert (total["sum"].item(), total["sum"].dtype, total["n"].dtype) == (14.0, tc.float64, tc.int64)
        total = run(lambda x: tc.scan(lambda c, x: ({"sum": c["sum"] + x * x, "n": c["n"] + 1}, None), START, x)[0])(
            x.astype(np.float32)
        )
        assert total["sum"].dtype is tc.float32
        y, t = run(lambda y: tc.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 2, s[1] + s[0][0]), (y, 0.0)))(x)
        assert (y.tolist(), t.item(), t.dtype) == ([4.0, 8.0, 12.0], 3.0, tc.float64)


START = {"sum": 0.0, "n": 0}


@pytest.mark.each_backend
@pytest.mark.parametrize("dtype", [tc.float16, tc.float64])
@pytest.mark.parametrize("number", [0.1, 2, np.float64(0.3), np.float32(0.5), np.int32(4)], ids=repr)
def test_a_number_of_one_branch_takes_the_dtype_of_the_other_in_either_order(dtype: tc.DType, number: Any) -> None:
    x, ps = tc.ones((), dtype=dtype), tc.asarray([True, False])

    def array() -> tuple[tc.Tensor, tc.Tensor]:
        return x * 3.0, tc.sum(x)

    def numbers() -> tuple[Any, tc.Tensor]:
        return number, x

    for p, branches in enumerate([(numbers, array), (array, numbers)]):

        def f(pred: tc.Tensor, branches: Any = branches) -> Any:
            return tc.cond(pred, *branches)[0]

        expected = [float(dtype_of(dtype)(number)), 3.0]
        for outs in (tc.vmap(f)(ps), tc.function(tc.vmap(f))(ps), tc.stack([tc.function(f)(ps[k]) for k in range(2)])):
            assert outs.dtype == dtype
            assert outs.numpy().tolist() == (expected[::-1] if p else expected)


def dtype_of(dtype: tc.DType) -> Any:
    return np.dtype(dtype.name).type


@pytest.mark.each_backend
def test_a_derivative_through_a_branch_after_a_number() -> None:
    x = tc.asarray(2.0, dtype=tc.float64)

    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.cond(x > 1, lambda: 0.5, lambda: x * x) + x

    for g in (tc.function(tc.grad(f)), tc.grad(tc.function(f))):
        assert (g(x).item(), g(x / 4).item(), g(x).dtype) == (1.0, 2.0, tc.float64)
    slopes = tc.vmap(tc.grad(f))(tc.stack([x, x / 4]))
    assert slopes.numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("order", [1, -1])
def test_a_number_does_not_stand_for_integers_or_another_shape(order: int) -> None:
    for branches in ([lambda: 0.5, lambda: tc.asarray(1)], [lambda: 0.5, lambda: tc.ones(2, dtype=tc.float64)]):
        with pytest.raises(TypeError, match=r"cond: the result of (true|false)_fn has shape"):
            tc.function(lambda p, branches=branches: tc.cond(p, *branches[::order]))(tc.asarray(True))
