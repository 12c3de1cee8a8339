"""Compiled functions that are called inside a tape's block: every result and gradient is what it is eagerly."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import tape_core as tc
from support import bits, leaves, values
from tape_compile.function import Function


def assert_as_eagerly(step: Callable[[Any], Any], f: Callable[..., Any], calls: int = 4) -> Function:
    """`step` gives the same for the function and for what is compiled of it, whose second call is traced."""
    compiled = tc.function(f)
    for _ in range(calls):
        expected = [bits(leaf) for leaf in leaves(step(f))]
        assert [bits(leaf) for leaf in leaves(step(compiled))] == expected
    assert compiled.traces
    return compiled


def test_one_record_has_the_results_and_gradients_of_all_ops() -> None:
    w, b = tc.Variable(values(4, 3)), tc.Variable(values(3, seed=1))

    def model(x: Any) -> Any:
        return tc.tanh(tc.tanh(x @ w + b) @ tc.matrix_transpose(w))

    def step(model: Any) -> Any:
        x = values(5, 4, seed=2)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
            loss = tc.sum(y * y)
        assert tape.watched_variables() == (w, b)
        return y, loss, tape.gradient(loss, [x, w, b])

    compiled = assert_as_eagerly(step, model)
    assert compiled.traces == 1
    for _ in range(2):
        with tc.GradientTape() as tape:
            compiled(values(5, 4))
    assert [row.op for row in tape.summary().rows] == ["model"]


def test_what_is_used_outside_as_well_is_added_up_in_the_order_of_eager_records() -> None:
    w = tc.Variable(values(6, 6))

    def f(x: Any) -> Any:
        return tc.sin(x * w) + x @ w

    def step(f: Any) -> Any:
        x = values(6, 6, seed=1)
        with tc.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(f(x) * w + x)
            loss = tc.sum(y * x) + tc.sum(w * y * 0.1) + tc.sum(x / 3)
        return tape.gradient(loss, [x, w]), tape.gradient(y, w), tape.gradient(loss, y)

    assert_as_eagerly(step, f, calls=8)


def test_several_results_of_which_some_are_differentiated() -> None:
    w = tc.Variable(values(3))

    def f(x: Any, y: Any) -> Any:
        h = tc.exp(x)
        return {"h": h, "sum": tc.sum(h * w), "other": y * 2, "whole": x, "n": 3, "none": None}

    def step(f: Any) -> Any:
        x, y = values(3, seed=1), values(3, seed=2)
        found = []
        for which in (["sum"], ["h"], ["other"], ["sum", "h", "whole"]):
            with tc.GradientTape() as tape:
                tape.watch([x, y])
                out = f(x, y)
                target = [out[name] * 2 for name in which]
            found.append(tape.gradient(target, [x, y, w]))
            assert out["n"] == 3
            assert out["none"] is None
        return found

    compiled = assert_as_eagerly(step, f, calls=6)
    assert compiled.traces == 1


def test_a_derivative_that_is_asked_for_again_is_compiled_then() -> None:
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        return tc.sin(x), tc.cos(x)

    compiled = tc.function(f)
    x = values(3)
    counts = []
    for _ in range(6):
        with tc.GradientTape() as tape:
            tape.watch(x)
            out = compiled(x)[0]
        assert bits(tape.gradient(out, x)) == bits(tc.cos(x))
        counts.append(len(runs))
    # As it is; traced, and run again for a derivative of the first result alone; traced for that; and compiled.
    assert counts == [1, 3, 4, 4, 4, 4]


def test_what_the_tape_does_not_watch_has_no_gradient() -> None:
    w, frozen = tc.Variable(values(3)), tc.Variable(values(3, seed=1), trainable=False)

    def f(x: Any, k: Any) -> Any:
        return x * w * frozen * k

    def step(f: Any) -> Any:
        x, k = values(3, seed=2), tc.asarray([1, 2, 3])
        with tc.GradientTape() as tape:
            y = f(x, k)
        first = tape.gradient(y, [x, w, frozen])
        with tc.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(frozen)
            y = f(x, k)
        second = tape.gradient(y, [x, w, frozen])
        with tc.GradientTape(watch_accessed_variables=False) as tape:
            y = f(x, k)
        third = tape.gradient(y, [x, w, frozen])
        with tc.GradientTape() as tape:
            tape.watch(x)
            with tape.stop_recording():
                y = f(x, k)
        return first, second, third, tape.gradient(y, [x, w])

    assert_as_eagerly(step, f)


def test_a_variable_may_become_trainable_or_frozen() -> None:
    v, w = tc.Variable(2.0), tc.Variable(3.0)

    @tc.function
    def f(x: Any) -> Any:
        return x * v * w

    for trainable in (True, True, True, False, False, False, True):
        v.trainable = trainable
        with tc.GradientTape() as tape:
            y = f(tc.asarray(5.0))
        gradients = tape.gradient(y, [v, w])
        assert [None if g is None else g.item() for g in gradients] == [15.0 if trainable else None, 10.0]


def test_gradients_of_gathers_are_slices() -> None:
    table = tc.Variable(values(5, 2))

    def f(k: Any) -> Any:
        return tc.tanh(tc.gather(table, k)) * tc.gather(table, k + 1)

    def step(f: Any) -> Any:
        k = tc.asarray([2, 0, 2])
        with tc.GradientTape() as tape:
            y = f(k)
        alone = tape.gradient(y, table)
        with tc.GradientTape() as tape:
            z = tc.sum(f(k)) + tc.sum(tc.gather(table, k))
        beside = tape.gradient(z, table)
        with tc.GradientTape() as tape:
            z = tc.sum(f(k)) + tc.sum(table * table)
        with_dense = tape.gradient(z, table)
        with tc.GradientTape() as tape:
            doubled = table * 2.0
            z = tc.sum(g(f, doubled, k))
        return alone, beside, with_dense, tape.gradient(z, table)

    def g(f: Any, rows: Any, k: Any) -> Any:
        return tc.gather(rows, k) * f(k)

    assert_as_eagerly(step, f, calls=8)


def test_an_intermediate_result_that_is_gathered_from_inside() -> None:
    def f(rows: Any, k: Any) -> Any:
        return tc.gather(rows, k) ** 2

    def step(f: Any) -> Any:
        x, k = values(4, 2), tc.asarray([1, 1, 3])
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(f(tc.sin(x), k))
        return tape.gradient(y, x)

    assert_as_eagerly(step, f)


def test_the_same_tensor_twice_and_the_value_of_a_variable() -> None:
    v = tc.Variable(values(3))

    def f(x: Any, y: Any) -> Any:
        return tc.sin(x) * y + x * v

    def step(f: Any) -> Any:
        x, y = values(3, seed=1), values(3, seed=2)
        found = []
        for a, b in ((x, y), (x, x), (v.value, x), (v, x), (v, v)):
            with tc.GradientTape() as tape:
                tape.watch([x, y])
                if a is not x and a is not v:
                    a = v.value
                out = f(a, b)
            found.append(tape.gradient(out, [x, y, v]))
        return found

    assert_as_eagerly(step, f)


def test_masks_outside_guard_what_is_inside_and_the_other_way_round() -> None:
    def root(x: Any) -> Any:
        return tc.sqrt(x)

    def guarded(x: Any) -> Any:
        return tc.where(x > 0, x, 1.0)

    def outside(root: Any) -> Any:
        x = tc.asarray([0.0, 4.0])
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.where(x > 0, root(x), 0.0)
        return tape.gradient(y, x)

    def inside(guarded: Any) -> Any:
        x = tc.asarray([0.0, 4.0])
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sqrt(x) * guarded(x) * tc.asarray([0.0, 1.0])
        return tape.gradient(y, x)

    assert_as_eagerly(outside, root, calls=5)
    assert_as_eagerly(inside, guarded, calls=5)


def test_complex_numbers() -> None:
    def f(z: Any, x: Any) -> Any:
        return tc.exp(z * x) * tc.conj(z)

    def step(f: Any) -> Any:
        z, x = tc.asarray([1 + 2j, 0.5j]), values(2)
        with tc.GradientTape() as tape:
            tape.watch([z, x])
            y = f(z, x) * x
        return tape.gradient(y, [z, x])

    assert_as_eagerly(step, f)


def test_random_numbers_are_those_of_eager_calls_in_both_directions() -> None:
    def f(x: Any) -> Any:
        return x * tc.random.global_rng().normal((4,)), x

    def run(f: Any) -> Any:
        tc.set_seed(3)
        x = values(4)
        found = []
        for _ in range(5):
            with tc.GradientTape() as tape:
                tape.watch(x)
                y, _ = f(x)
                z = y * x
            found.append((z, tape.gradient(z, x)))
        return found

    assert [bits(t) for t in leaves(run(tc.function(f)))] == [bits(t) for t in leaves(run(f))]


def test_variables_without_gradients_may_be_assigned() -> None:
    def run(compile: Any) -> Any:
        w, mean = tc.Variable(values(3)), tc.Variable(tc.zeros(3), trainable=False)

        def f(x: Any) -> Any:
            mean.assign(0.9 * mean + 0.1 * x)
            return (x - mean) * w

        f = compile(f)
        found = []
        for k in range(5):
            with tc.GradientTape(persistent=True) as tape:
                x = values(3, seed=k)
                tape.watch(x)
                y = f(x)
                z = tc.sum(y * mean)
            with tc.GradientTape() as other:
                other.watch(x)
                g = tape.gradient(z, [x, w])
            found.append((z, g, other.gradient(g[0], x), mean.value))
        return found

    assert [bits(t) for t in leaves(run(tc.function))] == [bits(t) for t in leaves(run(lambda f: f))]


def test_a_watched_variable_that_is_assigned_inside_is_a_new_leaf() -> None:
    def run(compile: Any) -> Any:
        w = tc.Variable(values(3))

        def f(x: Any) -> Any:
            y = w * x
            w.assign(w * 2)
            return y * w

        f = compile(f)
        found = []
        for _ in range(4):
            with tc.GradientTape() as tape:
                y = f(values(3, seed=1))
            found.append((y, tape.gradient(y, w), w.value))
        return found

    assert [bits(t) for t in leaves(run(tc.function))] == [bits(t) for t in leaves(run(lambda f: f))]


def test_tensors_from_around_that_the_tape_knows_have_their_gradients() -> None:
    scale, other = values(3), values(3, seed=1)
    doubled: list[Any] = [other * 1]

    def f(x: Any) -> Any:
        return tc.sin(scale) * x * doubled[0]

    compiled = tc.function(f)
    x = values(3, seed=2)
    for watched in ([x], [x], [x], [x, scale], [scale], [x]):
        found = []
        for g in (f, compiled):
            with tc.GradientTape() as tape:
                tape.watch(watched)
                y = g(x)
            found.append([bits(d) for d in tape.gradient(y, [x, scale])])
        assert found[0] == found[1]

    late = tc.function(lambda x: x * doubled[0])
    for _ in range(3):
        with tc.GradientTape() as tape:
            tape.watch(other)
            doubled[0] = other * 2
            y = late(x)
        assert bits(tape.gradient(y, other)) == bits(2 * x)


def test_higher_derivatives_and_other_recorders() -> None:
    w = tc.Variable(values(3))

    def f(x: Any) -> Any:
        return tc.sum(tc.sin(x * w) * x)

    def step(f: Any) -> Any:
        x, t = values(3, seed=1), values(3, seed=2)
        with tc.GradientTape() as outer:
            outer.watch(x)
            with tc.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            first = tape.gradient(y, x)
        second = outer.gradient(first, [x, w])
        hvp = tc.jvp(tc.grad(f), (x,), (t,))
        batched = tc.vmap(tc.grad(f))(values(4, 3, seed=3))
        return first, second, tc.grad(f)(x), tc.hessian(f)(x), hvp, batched, tc.jvp(f, (x,), (t,))

    assert_as_eagerly(step, f)


def test_a_gradient_that_is_recorded_has_derivatives_of_its_own() -> None:
    def cube(x: Any) -> Any:
        return x * x * x

    f = tc.function(cube)
    x = tc.asarray(2.0)
    for _ in range(4):
        with tc.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
            with pytest.warns(UserWarning, match="inside the context"):
                first = tape.gradient(y, x)
        assert (first.item(), tape.gradient(first, x).item()) == (12.0, 12.0)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        with tc.GradientTape() as later:
            later.watch(x)
            first = tape.gradient(y, x)
        assert (first.item(), later.gradient(first, x).item()) == (12.0, 12.0)


def test_jacobians_go_through_it() -> None:
    w = tc.Variable(values(3, 3))

    def f(x: Any) -> Any:
        return tc.tanh(x @ w)

    def step(f: Any) -> Any:
        x = values(2, 3, seed=1)
        with tc.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x) * 2.0
        return tape.jacobian(y, [x, w]), tape.batch_jacobian(y, x)

    compiled = tc.function(f)
    for _ in range(4):
        for a, b in zip(leaves(step(f)), leaves(step(compiled)), strict=True):
            assert bool(tc.all(tc.abs(a - b) <= 1e-6))


def test_loops_and_branches_inside() -> None:
    w = tc.Variable(values(3, 3) * 0.3)

    def f(xs: Any) -> Any:
        last, ys = tc.scan(lambda h, x: (tc.tanh(h @ w + x), tc.sum(h)), tc.zeros(3), xs)
        y = tc.cond(tc.sum(last) > 0, lambda v: v * 2, lambda v: -v, last)
        return tc.sum(y) + tc.sum(ys)

    def step(f: Any) -> Any:
        xs = values(6, 3, seed=1)
        with tc.GradientTape() as tape:
            tape.watch(xs)
            y = f(xs)
        return y, tape.gradient(y, [xs, w])

    compiled = assert_as_eagerly(step, f)
    assert compiled.traces == 1


def test_arguments_that_are_changed_inside_or_afterwards() -> None:
    def inside(x: Any) -> Any:
        y = x * x
        x += y
        return x * 1.0

    def step(f: Any) -> Any:
        x = values(3)
        with tc.GradientTape() as tape:
            tape.watch(x)
            z = x * 3.0
            y = f(z)
        return y, z, tape.gradient(y, x)

    compiled = tc.function(inside)
    for _ in range(3):
        assert [bits(t) for t in step(inside)] == [bits(t) for t in step(compiled)]

    def f(x: Any) -> Any:
        return tc.sin(x) * x, x

    def later(f: Any) -> Any:
        x = values(3)
        with tc.GradientTape(persistent=True) as tape:
            tape.watch(x)
            z = x * 1.0
            y = f(z)[0]
        z += 1.0
        with tc.GradientTape():
            again = tape.gradient(y, x)
        return tape.gradient(y, x), again

    assert_as_eagerly(later, f)


OPS: list[Callable[..., Any]] = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - b * 0.5,
    lambda a, b: a @ b,
    lambda a, b: tc.tanh(a),
    lambda a, b: tc.sin(a) * a,
    lambda a, b: tc.where(a > b, a, b * 2.0),
    lambda a, b: tc.maximum(a, 0.0),
    lambda a, b: a / (1.0 + b * b),
    lambda a, b: tc.sum(a, axis=0) + b,
    lambda a, b: tc.mean(a) * b,
    lambda a, b: tc.concat([a[:1], b[1:]], axis=0),
    lambda a, b: tc.softmax(a) - b,
    lambda a, b: tc.stop_gradient(a) * b,
]


def drawn(bits: Random, count: int) -> Callable[..., list[Any]]:
    """A function of some arrays and Variables that calls `count` ops on what it has so far."""
    choices = [(bits.choice(OPS), bits.random(), bits.random()) for _ in range(count)]

    def program(known: list[Any]) -> list[Any]:
        known = list(known)
        for op, i, j in choices:
            known.append(op(known[int(i * len(known))], known[int(j * len(known))]))
        return known

    return program


@pytest.mark.parametrize("seed", range(60))
def test_programs_that_are_drawn(seed: int) -> None:
    draw = Random(seed)
    before, inside, after = (drawn(draw, n) for n in (2, draw.randint(1, 8), 4))
    variables = [tc.Variable(values(3, 3, seed=k)) for k in range(2)]
    inputs = [values(3, 3, seed=k + 2) for k in range(2)]
    given, kept = draw.randint(1, 4), draw.randint(1, 3)

    def f(*xs: Any) -> Any:
        return inside([*xs, *variables])[-kept:]

    def step(f: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(inputs)
            known = before([*inputs, *variables])
            results = list(f(*known[-given:]))
            target = after([*results, *known])[-1] + tc.sum(results[0])
        return results, target, tape.gradient(target, [*inputs, *variables])

    compiled = tc.function(f)
    for _ in range(5):
        expected = [bits(leaf) for leaf in leaves(step(f))]
        assert [bits(leaf) for leaf in leaves(step(compiled))] == expected


def test_a_compiled_function_is_differentiated_on_after_a_tape_inside_of_it_has_ended():
    def f(x):
        slope = tc.grad(lambda y: tc.sum(y * 3.0))(x)
        return tc.sum(x * x * slope)

    compiled, x = tc.function(f), tc.asarray([1.0, 2.0])
    for _ in range(3):
        assert tc.grad(compiled)(x).tolist() == [6.0, 12.0]
