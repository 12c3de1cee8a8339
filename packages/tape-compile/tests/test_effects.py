"""Checks of values are effects: a compiled function refuses what the function itself refuses, whatever it returns."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.extend import NONDIFF, Draw, Sample, op, refuses, registry
from tape_core.staging import host_callback, opaque

X = np.arange(6.0).reshape(2, 3)
EYE = np.eye(3)
GOOD, BAD = np.asarray([0, 1]), np.asarray([0, 9])


def unused(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(a: Any) -> Any:
        f(a)
        return tc.sum(a) * 1.0

    return run


REFUSING: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "take": (lambda i: tc.take(tc.asarray(X), i, axis=0), GOOD, BAD),
    "take_along_axis": (lambda i: tc.take_along_axis(tc.asarray(X), i[:, None], axis=1), GOOD, BAD),
    "gather": (lambda i: tc.gather(tc.asarray(X), i), GOOD, BAD),
    "getitem": (lambda i: tc.asarray(X)[i, 1:], GOOD, BAD),
    "scalar index": (lambda i: tc.asarray(X)[i[1]], GOOD, BAD),
    "at": (lambda i: tc.at(tc.asarray(X))[i].add(1.0), GOOD, BAD),
    "scatter_min": (lambda i: tc.at(tc.asarray(X))[i].min(1.0), GOOD, BAD),
    "cross_entropy": (lambda i: tc.cross_entropy(tc.asarray(X), i), GOOD, -GOOD),
    "cross_entropy of other axes": (lambda i: tc.cross_entropy(tc.asarray(X.T), i, axis=0), GOOD, BAD),
    "cholesky": (tc.linalg.cholesky, EYE, -EYE),
    "inv": (tc.linalg.inv, EYE, EYE * 0),
    "solve": (lambda m: tc.linalg.solve(m, tc.asarray(EYE)), EYE, EYE * 0),
    "solve_triangular": (lambda m: tc.linalg.solve_triangular(m, tc.asarray(EYE)), EYE, EYE * 0),
    "vmap": (lambda i: tc.vmap(lambda k: tc.asarray(X)[k])(i), GOOD, BAD),
    "map": (lambda i: tc.map(lambda k: tc.asarray(X)[k], i), GOOD, BAD),
    "unused in a scan": (
        lambda i: tc.scan(lambda c, k: (c, (tc.asarray(X)[k], c)[1]), tc.asarray(1.0), i)[0], GOOD, BAD
    ),
    "unused in a branch": (
        lambda i: tc.cond(tc.sum(i) > -1, lambda: (tc.asarray(X)[i], tc.asarray(1.0))[1], lambda: tc.asarray(2.0)),
        GOOD, BAD,
    ),
}  # fmt: skip


def there(a: Any) -> Any:
    return tc.astype(tc.asarray(a), "int64" if a.dtype.kind == "i" else "float64") + 0


def refusal(f: Callable[..., Any], *args: Any) -> type[Exception]:
    with pytest.raises((ValueError, IndexError, RuntimeError)) as caught:
        f(*args)
    return caught.type


@pytest.mark.parametrize("name", REFUSING)
def test_what_refuses_values_does_so_though_its_result_is_not_used(name: str) -> None:
    f, good, bad = REFUSING[name]
    f = unused(f)
    refusal(f, there(bad))
    compiled = tc.function(f)
    for _ in range(2):
        compiled(there(good))
    refusal(compiled, there(bad))
    assert compiled.traces == 1


@pytest.mark.parametrize("name", REFUSING)
def test_what_refuses_values_does_so_in_a_call_inside_a_tape(name: str) -> None:
    f = unused(REFUSING[name][0])
    compiled = tc.function(lambda a, w: f(a) * w)
    w = tc.asarray(2.0, dtype=tc.float64)

    def called(a: Any) -> None:
        with tc.GradientTape() as tape:
            tape.watch(w)
            y = compiled(there(a), w)
        tape.gradient(y, w)

    for _ in range(3):
        called(REFUSING[name][1])
    assert compiled.traces == 1
    refusal(called, REFUSING[name][2])


def test_a_step_that_returns_nothing_refuses_the_labels_that_an_eager_one_refuses() -> None:
    w = tc.Variable(np.ones((4, 3), np.float32))
    x = tc.ones((2, 4))

    @tc.function
    def step(labels: Any) -> None:
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(x @ w, labels))
        w.assign_sub(0.1 * tape.gradient(loss, w))

    step(tc.asarray([0, 1]))
    step(tc.asarray([0, 1]))
    with pytest.raises(ValueError, match="labels must be in"):
        step(tc.asarray([0, -1]))


def test_an_embedding_of_which_only_the_gradient_is_used_refuses_what_is_out_of_range() -> None:
    table = tc.Variable(np.ones((4, 2), np.float32))

    @tc.function
    def slope(ids: Any) -> Any:
        with tc.GradientTape() as tape:
            y = tc.sum(tc.gather(table, ids))
        return tc.sum(tape.gradient(y, table).values)

    slope(tc.asarray([0, 1]))
    slope(tc.asarray([3, -1]))
    with pytest.raises(IndexError):
        slope(tc.asarray([0, 4]))


def test_two_equal_checks_are_one() -> None:
    compiled = tc.function(lambda i: (tc.take(tc.asarray(X), i, axis=0), tc.take(tc.asarray(X), i, axis=0), i + 1)[2])
    compiled(tc.asarray([0, 1]))
    assert compiled.stats()[0]["in_place"] == 2


def test_what_is_total_goes_with_its_result() -> None:
    compiled = tc.function(lambda a: (a @ a, tc.sum(a[1:], axis=0), a**2, a * 2)[3])
    compiled(tc.ones((3, 3)))
    assert compiled.stats()[0]["in_place"] == 1


@pytest.mark.parametrize("operate", [operator.pow, operator.floordiv, operator.mod])
def test_integers_are_kept_and_floats_are_not(operate: Callable[..., Any]) -> None:
    compiled = tc.function(lambda a, b: (operate(a, b), a + b)[1], retrace="allow")
    compiled(tc.asarray([1.0, 2.0]), tc.asarray([1.0, 2.0]))
    assert compiled.stats()[0]["in_place"] == 1
    compiled(tc.asarray([1, 2]), tc.asarray([1, 2]))
    assert sorted(s["in_place"] for s in compiled.stats()) == [1, 2]


def test_an_op_of_another_package_is_taken_to_refuse_values() -> None:
    def samples(draw: Draw) -> Any:
        yield Sample(draw(2))

    def kernel(xp: Any, x: Any) -> Any:
        if bool(xp.any(x < 0)):
            raise ValueError("positive, please")
        return x

    try:

        @op(x=NONDIFF, kernel=kernel, samples=samples, reason="a test")
        def only_positive(x: Any, /) -> tc.Tensor:
            """x, if it is positive."""
            raise NotImplementedError

        assert registry["only_positive"].refuses == ("x",)
        compiled = tc.function(lambda x: (only_positive(x), x * 2)[1])
        compiled(tc.ones(2))
        with pytest.raises(ValueError, match="positive"):
            compiled(-tc.ones(2))
        with pytest.raises(TypeError, match="no argument 'y'"):
            refuses("y")(only_positive)
        refuses()(only_positive)
        assert registry["only_positive"].refuses == ()
    finally:
        registry._ops.pop("only_positive", None)


def test_an_opaque_call_may_make_an_array_of_its_own() -> None:
    """Its result is of the library that is traced, as those of other calls: they met as foreign data."""

    @opaque
    def made(x: tc.Tensor) -> tc.Tensor:
        return tc.asarray(x.numpy() ** 2)

    @opaque
    def computed(x: tc.Tensor) -> tc.Tensor:
        return 2 * x

    for call in (lambda x: made(x) + computed(x), lambda x: computed(x) + made(x), lambda x: made(x) + x + x):
        f = tc.function(call)
        assert [f(tc.asarray(value)).item() for value in (1.0, 3.0)] == [3.0, 15.0]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_callback_of_a_variable_is_given_its_value_at_that_point(compiled: bool) -> None:
    seen: list[Any] = []
    note = host_callback(lambda x, **kwargs: seen.append((x.tolist(), kwargs["y"].tolist())))
    v = tc.Variable(1.0)

    def f(x: Any) -> None:
        v.assign(v * 2.0)
        note(v, y=x)
        v.assign(v + x)

    run = tc.function(f) if compiled else f
    for _ in range(3):
        run(tc.asarray(1.0))
    assert seen == [(2.0, 1.0), (6.0, 1.0), (14.0, 1.0)]
    assert v.item() == 15.0
