"""cond, while_loop, scan and map: Variables, random numbers, what is empty, and what is refused."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from support import assert_same
from tape_core.engine import pytree
from tape_core.staging import TracingError


def test_variables_are_read_where_they_are_used_and_get_gradients() -> None:
    w, frozen, unused = tc.Variable([1.0, 2.0]), tc.Variable(3.0, trainable=False), tc.Variable(1.0)

    def step(x: Any) -> Any:
        with tc.GradientTape() as tape:
            h, _ = tc.scan(lambda h, e: (tc.tanh(h * w + e) * frozen.value, None), tc.zeros(2), x)
            loss = tc.sum(h)
        gradients = tape.gradient(loss, [w, frozen, unused])
        w.assign_sub(0.1 * gradients[0])
        return loss, gradients[0], [g is None for g in gradients]

    def python(x: Any) -> Any:
        with tc.GradientTape() as tape:
            h = tc.zeros(2)
            for e in x:
                h = tc.tanh(h * w + e) * frozen
            loss = tc.sum(h)
        return tape.gradient(loss, w)

    x = tc.ones((3, 2)) * 0.1
    expected = python(x)
    losses = []
    for f in (step, tc.function(step)):
        w.assign([1.0, 2.0])
        for k in range(3):
            loss, g, none = f(x)
            assert none == [False, True, True]
            losses.append(loss.item())
            assert k or bool(tc.all(tc.abs(g - expected) < 1e-6))
    assert losses[:3] == losses[3:]
    assert len(set(losses)) == 3


def test_a_gradient_is_at_the_values_that_were_read() -> None:
    v = tc.Variable(2.0)
    with tc.GradientTape() as tape:
        y = tc.scan(lambda c, _: (c * v, None), 1.0, length=3)[0]
    v.assign(100.0)
    assert tape.gradient(y, v).item() == 12.0


def test_random_numbers_are_those_of_python_and_the_same_again_for_the_gradient() -> None:
    def loss(x: Any) -> Any:
        def step(h: Any, e: Any) -> Any:
            return tc.dropout(tc.sin(h) + e, 0.5) * h, tc.random.global_rng().uniform(())

        h, drawn = tc.scan(step, x, tc.outer(x, x))
        return tc.sum(h * h) + tc.cond(h[0] > 0, lambda: tc.sum(tc.dropout(x, 0.5)), lambda: tc.sum(x)), drawn

    def python(x: Any) -> Any:
        h, drawn = x, []
        for e in tc.outer(x, x):
            h = tc.dropout(tc.sin(h) + e, 0.5) * h
            drawn.append(tc.random.global_rng().uniform(()))
        return tc.sum(h * h) + (tc.sum(tc.dropout(x, 0.5)) if h[0] > 0 else tc.sum(x)), tc.stack(drawn)

    results = []
    for f in (python, loss):
        for run in (tc.value_and_grad(f, has_aux=True), tc.function(tc.value_and_grad(f, has_aux=True))):
            if run.__class__.__name__ == "Function" and f is python:
                continue  # it decides by a value
            tc.set_seed(3)
            results.append([run(tc.linspace(1, 2, 5) + k) for k in range(3)])
            results[-1].append(tc.random.global_rng().uniform((2,)))
    expected, eager, compiled = results
    assert_same(eager, compiled)
    for e, f in zip(pytree.flatten(expected)[0], pytree.flatten(eager)[0], strict=True):
        assert bool(tc.all(tc.abs(e - f) <= 1e-5 * (1 + tc.abs(e))))


def test_a_generator_that_is_given_draws_the_same_again_or_is_refused() -> None:
    x = tc.linspace(1, 2, 4)

    def loss(x: Any, rng: Any) -> Any:
        return tc.sum(tc.scan(lambda c, e: (tc.sin(c * e) * rng.uniform((4,)), None), x[:4], x)[0])

    slopes = [tc.grad(lambda x, f=f: f(tc.tile(x, (40,)), tc.default_rng(5)))(x) for f in (loss, by_python)]
    assert bool(tc.all(tc.abs(slopes[0] - slopes[1]) < 1e-5))
    rng = tc.default_rng(5)
    with pytest.raises(TracingError, match="draws from a generator of its own"):
        tc.function(tc.grad(lambda x: loss(tc.tile(x, (40,)), rng)))(x)


def by_python(x: Any, rng: Any) -> Any:
    c = x[:4]
    for e in x:
        c = tc.sin(c * e) * rng.uniform((4,))
    return tc.sum(c)


def test_no_step_and_no_elements() -> None:
    def f(x: Any, limit: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.while_loop(lambda c: tc.sum(c) < limit, lambda c: c * 2, x)
            total = tc.sum(y * y)
        last, rows = tc.scan(lambda c, e: (c + e, tc.stack([c, e])), 1.5, tc.zeros(0))
        return y, tape.gradient(total, x), last, rows

    compiled = tc.function(f)
    x = tc.asarray([1.0, 2.0])
    for limit in (1.0, 20.0, 0.0, 5.0):  # the first has no step, nor has the third
        assert_same(f(x, tc.asarray(limit)), compiled(x, tc.asarray(limit)))
    y, gradient, last, rows = compiled(x, tc.asarray(0.0))
    assert (y.tolist(), gradient.tolist(), last.item(), rows.shape) == ([1.0, 2.0], [2.0, 4.0], 1.5, (0, 2))
    assert compiled.traces == 1


def test_one_side_of_cond_runs() -> None:
    calls = []
    x = tc.asarray(2.0)
    assert tc.cond(x > 0, lambda: calls.append("yes") or x, lambda: calls.append("no") or -x).item() == 2.0
    assert calls == ["yes"]
    assert tc.cond(False, lambda: x, lambda: x * 3).item() == 6.0
    assert tc.cond(tc.asarray(0), lambda: x, lambda: x * 4).item() == 8.0


def test_loops_carry_structures_and_python_numbers() -> None:
    total, (evens, nothing) = tc.scan(
        lambda c, e: ({"sum": c["sum"] + e["x"], "none": None}, (e["n"] % 2 == 0, None)),
        {"sum": 0.0, "none": None},
        {"x": tc.asarray([1.0, 2.0]), "n": tc.asarray([4, 5])},
        length=2,
    )
    assert total["sum"].item() == 3.0
    assert total["none"] is None
    assert nothing is None
    assert evens.tolist() == [True, False]
    assert tc.while_loop(lambda c: c[1] < 3, lambda c: (c[0], c[1] + 1), (tc.ones(2), 0))[1].dtype is tc.int64


def test_a_compiled_loop_has_its_body_once_and_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    @tc.function
    def f(x: Any) -> Any:
        return tc.scan(lambda c, e: (tc.tanh(c + e), None), tc.asarray(0.0), x)[0]

    f(tc.ones(1000))
    f.show()
    shown = capsys.readouterr().out
    assert shown.count(" tanh(") == 1
    assert "def scan_step(arrays):" in shown
    assert "scan(" in shown
    assert f.stats()[0]["traced"] == 1


def test_a_function_that_falls_back_runs_loops_as_they_are() -> None:
    @tc.function(fallback=True)
    def f(x: Any) -> Any:
        def step(c: Any, e: Any) -> Any:
            return (c + e if e > 0 else c * 2), None  # decides by a value

        return tc.scan(step, tc.asarray(1.0), x)[0]

    x = tc.asarray([1.0, -1.0, 2.0])
    with pytest.warns(UserWarning, match="is not compiled for these arguments"):
        assert f(x).item() == 6.0
    assert f(-x).item() == 6.0
    assert f(x * 2).item() == 10.0


def test_no_warning_comes_from_the_branch_that_is_not_needed() -> None:
    f = tc.function(lambda x: tc.cond(x > 0, tc.log, lambda x: x, x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(tc.asarray(-1.0)).item() == -1.0
        assert f(tc.asarray(1.0)).item() == 0.0


def test_what_a_loop_kept_is_let_go() -> None:
    before = len([o for o in gc.get_objects() if type(o) is tc.Tensor])
    x = tc.ones(3)
    assert tc.grad(lambda x: tc.sum(tc.scan(lambda c, _: (tc.sin(c), None), x, length=20)[0]))(x).shape == (3,)
    del x
    gc.collect()
    assert len([o for o in gc.get_objects() if type(o) is tc.Tensor]) <= before + 1


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: tc.cond(tc.ones(2) > 0, lambda: 1, lambda: 2),
        TypeError,
        r"cond: pred must be a scalar, got shape \(2,\)",
    ),
    (lambda: tc.cond(True, 3, lambda: 2), TypeError, "cond: true_fn must be a function, got 3"),
    (lambda: tc.scan(lambda c, x: c, 0.0, tc.ones(2)), TypeError, "scan: <lambda> must return a pair"),
    (
        lambda: tc.scan(lambda c, x: ({"a": c["a"], "b": c["b"][:1]}, x), {"a": 0.0, "b": tc.ones(2)}, tc.ones(2)),
        TypeError,
        r"scan: the carry that f returns\['b'\] has shape \(1,\) and dtype float32, init has shape \(2,\)",
    ),
    (
        lambda: tc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 0.5, c[1]), (0, 1.0)),
        TypeError,
        r"the result of body_fun\[0\] has shape \(\) and dtype float\d+, what it was given has shape",
    ),
    (
        lambda: tc.while_loop(lambda c: c[0] < 2, lambda c: [c[0] + 1, c[1]], (0, 1.0)),
        TypeError,
        r"the result of body_fun has the structure \[\*, \*\], what it was given has \(\*, \*\)",
    ),
    (lambda: tc.while_loop(lambda c: c < 2, lambda c: c + 1, tc.ones(3)), TypeError, "result of cond_fun must be a sc"),
    (lambda: tc.scan(lambda c, x: (c, x), 0.0), ValueError, "length must be given where xs has no arrays"),
    (lambda: tc.scan(lambda c, x: (c, x), 0.0, tc.ones(2), length=3), ValueError, "scan: xs 2, length 3"),
    (lambda: tc.scan(lambda c, x: (c, x), 0.0, (tc.ones(2), tc.ones(3))), ValueError, r"xs\[0\] 2, xs\[1\] 3"),
    (lambda: tc.scan(lambda c, x: (c, x), 0.0, tc.asarray(1.0)), ValueError, r"xs has shape \(\)"),
    (lambda: tc.scan(lambda c, x: (c, x), 0.0, length=-1), ValueError, "length must be an int, not below 0"),
    (lambda: tc.scan(lambda c, x: (c, x), "a", tc.ones(2)), TypeError, "scan: init must be a Tensor"),
    (lambda: tc.map(lambda x: "a", tc.ones(2)), TypeError, "result of f"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors_name_the_argument_and_the_leaf(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
    with pytest.raises(kind, match=message):
        tc.function(call)()


def test_branches_that_are_not_alike_are_refused_where_both_run() -> None:
    def shapes(x: Any) -> Any:
        return tc.cond(x > 0, lambda: tc.ones(2), lambda: tc.ones(3))

    def dtypes(x: Any) -> Any:
        return tc.cond(x > 0, lambda: {"a": x}, lambda: {"a": x > 0})

    def structures(x: Any) -> Any:
        return tc.cond(x > 0, lambda: x, lambda: (x, x))

    for f, message in (
        (shapes, r"result of false_fn has shape \(3,\) and dtype float32, that of the other function has shape \(2,\)"),
        (dtypes, r"result of false_fn\['a'\] has shape \(\) and dtype bool"),
        (structures, r"result of false_fn has the structure \(\*, \*\), that of the other function has \*"),
    ):
        with pytest.raises(TypeError, match=message):
            tc.function(f)(tc.asarray(1.0))
        with pytest.raises(TypeError, match=message):
            tc.vmap(f)(tc.ones(2))
        f(tc.asarray(1.0))


def test_an_assignment_inside_that_a_derivative_would_repeat_is_refused() -> None:
    v = tc.Variable(0.0)

    def f(x: Any) -> Any:
        def step(c: Any, e: Any) -> Any:
            v.assign_add(e)
            return c * e, None

        return tc.scan(step, tc.asarray(1.0), x)[0]

    f(tc.ones(200))
    assert v.item() == 200.0
    with pytest.raises(RuntimeError, match=r"scan\(step\): the function assigns to a Variable"):
        tc.grad(f)(tc.ones(200))
    with pytest.raises(RuntimeError, match=r"the function assigns to a Variable"):
        tc.function(tc.grad(f))(tc.ones(200))


def test_an_assignment_is_refused_before_anything_is_written() -> None:
    v = tc.Variable(tc.zeros(3))

    def f(x: Any) -> Any:
        return tc.sum(tc.scan(lambda c, e: (v.assign_add(e) * c, None), tc.ones(3), x)[0])

    for assigning in (tc.grad(f), tc.function(tc.grad(f))):
        with pytest.raises(RuntimeError, match="the function assigns to a Variable of shape"):
            assigning(tc.ones((200, 3)))
        assert v.tolist() == [0.0, 0.0, 0.0]


def test_branches_and_loops_assign_variables() -> None:
    v, n = tc.Variable(0.0), tc.Variable(1.0)

    def f(x: Any) -> Any:
        start = v.value
        tc.cond(x > 0, lambda: v.assign_add(x) * 1.0, lambda: n * 1.0)

        def step(c: Any, e: Any) -> Any:
            v.assign(v * n + e)
            return c + v.value - start, v.value

        last, rows = tc.scan(step, x, tc.asarray([1.0, 2.0]))

        def again(c: Any) -> Any:
            v.assign_add(start + 1)
            return c + n.assign_add(0.5)

        return tc.while_loop(lambda c: v < start + last, again, last), rows, v.value, n.value

    def values(f: Callable[..., Any]) -> Any:
        v.assign(0.0)
        n.assign(1.0)
        return [*[f(tc.asarray(x)) for x in (2.0, -1.0, 1.0, -3.0)], v.value, n.value]

    compiled = tc.function(f)
    assert_same(values(f), values(compiled))
    assert compiled.traces == 1


def test_a_tensor_from_inside_is_of_no_use_afterwards() -> None:
    kept = []

    @tc.function
    def f(x: Any) -> Any:
        tc.scan(lambda c, e: (kept.append(c) or c + e, None), tc.asarray(0.0), x)
        return x + kept[-1]

    with pytest.raises(TracingError, match="used after that function has returned"):
        f(tc.ones(2))
