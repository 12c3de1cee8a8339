"""Compiled functions inside tapes' blocks: what is not compiled, when it is traced, and what they say of themselves."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import tape_core as tc
from support import bits, leaves, values
from tape_core.engine import pytree


def test_what_cannot_be_compiled_runs_as_it_is() -> None:
    def by_value(x: Any) -> Any:
        return x * 2 if x > 0 else -x

    def with_generator(x: Any) -> Any:
        return x * tc.default_rng(1).normal(())

    for f in (by_value, with_generator):
        compiled = tc.function(f)
        for k in (1.0, -1.0, 2.0, -2.0):
            assert bits(tc.grad(compiled)(k)) == bits(tc.grad(f)(k))
        assert compiled.traces == 0


def test_without_anything_watched_it_is_compiled_as_outside() -> None:
    runs = []

    @tc.function
    def f(x: Any) -> Any:
        runs.append(1)
        return x + 1

    for _ in range(5):
        with tc.GradientTape() as tape:
            y = f(tc.asarray(1.0))
        assert y.item() == 2.0
        assert tape.gradient(y, y).item() == 1.0
    assert len(runs) == 3  # as it is, and traced for calls in tapes and for others


def test_what_is_handed_back_is_known_as_it_was() -> None:
    v = tc.Variable(values(3))

    for f in (lambda x: x, lambda x: v.value, lambda x: (x, v.value), lambda x: v):
        compiled = tc.function(f)
        for _ in range(3):
            x = values(3, seed=1)
            with tc.GradientTape() as tape:
                tape.watch(x)
                z = [y * 2.0 for y in leaves(compiled(x))]
            found = tape.gradient(z, [x, v])
            with tc.GradientTape() as tape:
                tape.watch(x)
                z = [y * 2.0 for y in leaves(f(x))]
            assert [bits(d) for d in found] == [bits(d) for d in tape.gradient(z, [x, v])]


def test_a_rule_that_is_missing_is_missed_in_the_backward_pass_alone() -> None:
    def failing(xp: Any, g: Any, **_: Any) -> Any:
        raise NotImplementedError("not written")

    @tc.custom_gradient
    def op(x: Any) -> Any:
        return x * 2.0, lambda g: failing(None, g)

    f = tc.function(lambda x: tc.sin(op(x)))
    for _ in range(3):
        x = values(2)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert bits(y) == bits(tc.sin(x * 2.0))
        with pytest.raises(NotImplementedError, match="not written"):
            tape.gradient(y, x)


def test_static_arguments_and_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = tc.Variable(values(3))

        @tc.function(static_argnames="power")
        def __call__(self, x: Any, power: int = 2, *, shift: Any = None) -> Any:
            y = (x * self.w) ** power
            return y if shift is None else y + shift

    a, b = Model(), Model()
    b.w.assign(b.w * 2)
    x = values(3, seed=1)
    for _ in range(3):
        for model in (a, b):
            for power in (2, 3):
                with tc.GradientTape() as tape:
                    y = model(x, power=power, shift=x)
                expected = power * (x * model.w) ** (power - 1) * x
                assert bool(tc.all(tc.abs(tape.gradient(y, model.w) - expected) < 1e-4))


def test_modes_are_asked_for_in_each_call() -> None:
    mode = {"training": True}

    from tape_core.staging import guard

    @tc.function
    def f(x: Any) -> Any:
        return x * (2.0 if guard(lambda: mode["training"]) else 3.0), x

    found = []
    for training in (True, True, True, False, False, True, False):
        mode["training"] = training
        found.append(tc.grad(lambda x: f(x)[0] * 1.0)(1.0).item())
    assert found == [2.0, 2.0, 2.0, 3.0, 3.0, 2.0, 3.0]


def test_other_shapes_are_traced_on_their_own_and_many_are_warned_of() -> None:
    @tc.function
    def f(x: Any) -> Any:
        return tc.sum(x * x)

    with pytest.warns(UserWarning, match="traced for the 6th time"):
        for n in range(1, 8):
            for _ in range(2):
                assert bits(tc.grad(f)(values(n))) == bits(2 * values(n))
    assert f.traces == 7


def test_records_let_go_of_what_they_keep() -> None:
    @tc.function
    def f(x: Any) -> Any:
        return tc.sin(x) * x

    kept = []
    for _ in range(4):
        x = values(4)
        array = x._array if x.backend.name == "numpy" else x
        kept += [weakref.ref(x), weakref.ref(array)]
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(f(x))
        tape.gradient(y, x)
        del x, array
    gc.collect()
    assert [ref() for ref in kept] == [None] * 8


def test_what_show_and_stats_say() -> None:
    @tc.function
    def square(x: Any) -> Any:
        return x * x

    for _ in range(2):
        tc.grad(square)(3.0)
    assert "def square(arrays):" in square.text()
    assert "def square_derivative(arrays):" in square.text()
    assert len(square.stats()) == square.traces == 1


def test_what_debugging_tapes_say() -> None:
    w = tc.Variable(values(3))

    @tc.function
    def f(x: Any) -> Any:
        return tc.sin(x * w), x

    x = values(3, seed=1)
    for _ in range(3):
        with tc.GradientTape(persistent=True) as tape:
            y = f(x)[0] * 2.0
    assert "f" in str(tape.explain(y, w))
    assert tape.summary().total.count == 2
    with pytest.raises(ValueError, match="watch"):
        tape.gradient(y, x, unconnected_gradients="error")
    with tc.GradientTape(debug=True) as tape:
        y = f(x)[0] * 2.0
    assert {row.op for row in tape.summary().rows} >= {"sin", "multiply"}


def _all_steps(x: Any, w: Any) -> tuple[Any, Any, Any]:
    a = x * w
    b = tc.sin(a)
    return b, a, tc.sum(a * b)


def _steps_and_sums(x: Any, w: Any) -> dict[str, Any]:
    h = tc.tanh(w * x)
    return {"out": tc.exp(h), "hidden": h, "again": h, "input": x, "sum": tc.sum(h) + tc.cumulative_sum(h)}


@pytest.mark.parametrize("f", [_all_steps, _steps_and_sums])
def test_a_result_that_others_depend_on_has_the_gradient_of_eager_code(f: Any) -> None:
    """With respect to a result, what counts is what is computed of it outside of the function, and inside."""
    x, w = tc.asarray([0.5, -1.0, 2.0]), tc.Variable([1.5, 0.5, -0.25])

    def gradients(g: Any) -> list[Any]:
        found: list[Any] = []
        with tc.GradientTape() as outer:
            outer.watch(x)
            with tc.GradientTape(persistent=True) as tape:
                tape.watch(x)
                results = pytree.flatten(g(x, w))[0]
                loss = sum([tc.sum((k + 1.0) * r * r) for k, r in enumerate(results)])
            for target in (loss, *results, results[:2], [loss, results[1]]):
                found += tape.gradient(target, [*results, x, w])
                found += [tape.gradient(target, r) for r in results]
            seed = tc.asarray([1.0, -2.0, 3.0])
            found.append(tape.gradient(results[0], results[1], output_gradients=seed))
            found.append(tape.jacobian(results[0], results[1]))
            second = sum([tc.sum(d * d) for d in tape.gradient(loss, results)])
        found += outer.gradient(second, [x, w])
        with tc.GradientTape() as once:
            once.watch(x)
            results = pytree.flatten(g(x, w))[0]
            loss = tc.sum(results[0] * results[1])
        return [*found, *once.gradient(loss, [results[1], w])]

    compiled = tc.function(f)
    expected = list(map(bits, gradients(f)))
    for _ in range(4):
        assert list(map(bits, gradients(compiled))) == expected
    assert compiled.traces > 0
