"""Random numbers inside programs of XLA."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_jax
import tape_nn as nn
from hypothesis import given, settings
from hypothesis import strategies as st
from support import run_python

PROGRAM = """
import tape_core as tc
shuffle = tc.function(lambda: tc.random.global_rng().permutation(5), compile="xla")
assert sorted(shuffle().tolist()) == sorted(shuffle().tolist()) == [0, 1, 2, 3, 4]
"""


def test_a_permutation_needs_no_other_backend_than_jax() -> None:
    run_python("-c", PROGRAM, environment={"TAPE_BACKEND": "jax", "TAPE_DISABLE_BACKENDS": "numpy"})


# Each draws from `rng` and from the global generator, in its own way.
DRAWING: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda rng, x: x * rng.normal(3) + tc.random.global_rng().uniform(3),
    "several kinds": lambda rng, x: x * rng.uniform(3) + rng.integers(7, shape=3) + rng.exponential(3) * rng.normal(3),
    "dropout": lambda rng, x: tc.dropout(x, 0.5) + rng.uniform(3),
    "one branch": lambda rng, x: tc.cond(tc.sum(x) > 0, lambda: x * rng.normal(3), lambda: tc.dropout(x, 0.5)),
    "steps of a scan": lambda rng, x: tc.scan(
        lambda c, e: (c * rng.uniform(3) + tc.dropout(e, 0.25), c), x, tc.stack([x] * 4)
    )[0],
    "a loop of unknown length": lambda rng, x: tc.while_loop(
        lambda c: tc.sum(c[0]) < 2, lambda c: (c[0] + rng.uniform(), tc.dropout(c[1], 0.1)), (tc.sum(x) * 0, x)
    )[1],
    "the test of a loop": lambda rng, x: tc.while_loop(lambda c: rng.uniform() < 0.75, lambda c: (c[0] + 1,), (x,))[0],
    "vmap": lambda rng, x: tc.vmap(lambda a: a * rng.normal(), randomness="different")(x),
    "vmap, the same": lambda rng, x: tc.vmap(lambda a: a * rng.normal(), randomness="same")(x),
    "grad": lambda rng, x: tc.grad(lambda a: tc.sum(a * a * rng.normal(3) * tc.dropout(a, 0.5)))(x),
    "jvp": lambda rng, x: tc.jvp(lambda a: tc.sin(a) * rng.normal(3), (x,), (rng.uniform(3),))[1],
    "grad of a checkpoint": lambda rng, x: tc.grad(
        lambda a: tc.sum(tc.checkpoint(lambda b: tc.sin(b) * tc.random.global_rng().normal(3) + rng.uniform(3))(a))
    )(x),
    "grad of a scan": lambda rng, x: tc.grad(
        lambda a: tc.sum(tc.scan(lambda c, e: (tc.sin(c) * rng.normal(3) * e, c), a, tc.stack([a] * 3))[0])
    )(x),
    "children": lambda rng, x: rng.split(2)[1].normal(3) * x + rng.uniform(3),
    "a seed": lambda rng, x: tc.default_rng(5).normal(3) * x + rng.uniform(3),
    "permuted": lambda rng, x: x[rng.permutation(3)] + rng.shuffle(x),
}


def _states(rng: Any) -> tuple[Any, Any]:
    return rng.get_state(), tc.random.get_state()


def _restore(rng: Any, states: tuple[Any, Any]) -> None:
    rng.set_state(states[0])
    tc.random.set_state(states[1])


@pytest.fixture(params=["numpy", "torch", "jax"])
def backend(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip(f"tape_{request.param}")
    with tc.use_backend(request.param):
        yield request.param


@pytest.mark.parametrize("name", DRAWING)
def test_calls_draw_what_python_would_in_any_order_of_seeds_and_states(name: str, backend: str) -> None:
    """Calls, new seeds and states that are kept and restored, in a row that is longer than any cache of calls."""
    draws, rng, x = DRAWING[name], tc.default_rng(3), tc.asarray(np.asarray([0.5, -0.25, 1.0], np.float32))
    compiled = tc.function(lambda x: draws(rng, x), compile="xla")
    tc.set_seed(1)
    kept, seen = _states(rng), []
    for what in ("call", "call", "call", "seed", "call", "keep", "call", "restore", "call", "call"):
        if what == "seed":
            tc.set_seed(7)
        elif what == "keep":
            kept = _states(rng)
        elif what == "restore":
            _restore(rng, kept)
        else:
            before = _states(rng)
            expected = draws(rng, x).numpy()
            after = _states(rng)
            _restore(rng, before)
            found = compiled(x).numpy()
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
            assert _states(rng) == after
            seen.append((before, found.tobytes()))
    assert seen[3][1] == seen[4][1] or seen[3][0] != seen[4][0]
    if name != "vmap, the same":
        assert len({state for state, _ in seen}) > 2


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(["draw", "compiled", "branch", "seed", "split", "keep", "restore"]), max_size=12))
def test_eager_and_compiled_draws_in_turns_are_one_sequence(steps: list[str]) -> None:
    """What the generators give does not depend on which of the calls are compiled."""
    sequences = []
    for function in (_COMPILED, _EAGER):
        rng = function["rng"]
        rng.set_state(tc.default_rng(4).get_state())
        tc.set_seed(2)
        kept, found = _states(rng), []
        for step in steps:
            if step == "draw":
                found.append(rng.normal(3) * tc.random.global_rng().uniform(3))
            elif step == "seed":
                tc.set_seed(len(found))
            elif step == "split":
                found.append(rng.split(2)[0].uniform(3))
            elif step == "keep":
                kept = _states(rng)
            elif step == "restore":
                _restore(rng, kept)
            else:
                found.append(function[step](tc.asarray([1.0, 2.0, -3.0])))
        sequences.append(([x.numpy() for x in found], _states(rng)))
    (ours, states), (theirs, expected) = sequences
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    assert states == expected


def _functions(how: Callable[[Any], Any]) -> dict[str, Any]:
    rng = tc.default_rng(4)
    return {
        "rng": rng,
        "compiled": how(lambda x: DRAWING["plain"](rng, x)),
        "branch": how(lambda x: DRAWING["one branch"](rng, x)),
    }


_EAGER = _functions(lambda f: f)
_COMPILED = _functions(lambda f: tc.function(f, compile="xla"))


def test_a_layer_drops_other_elements_in_each_call_and_none_outside_of_training(backend: str) -> None:
    model = nn.Sequential([nn.Dense(64), nn.Dropout(0.5), nn.Dropout(0.25, rng=tc.default_rng(3))])
    own: Any = model.layers[2].rng
    x = tc.ones((4, 8))
    compiled = tc.function(lambda x, training: model(x, training=training), compile="xla")
    compiled(x, True)  # makes the weights
    found = []
    for _ in range(4):
        before = _states(own)
        expected, after = model(x, training=True).numpy(), _states(own)
        _restore(own, before)
        found.append(compiled(x, True).numpy())
        np.testing.assert_allclose(found[-1], expected, rtol=2e-5, atol=1e-6)
        assert _states(own) == after
    assert len({f.tobytes() for f in found}) == 4
    before = _states(own)
    np.testing.assert_allclose(compiled(x, False).numpy(), model(x, training=False).numpy(), rtol=2e-5, atol=1e-6)
    assert _states(own) == before


def test_a_call_that_fails_assigns_nothing_and_the_next_go_on_from_the_state_that_is_restored(
    backend: str,
) -> None:
    """Labels are checked by the host in the midst of a function, after draws and before others."""
    v = tc.Variable([1.0, 2.0, 3.0])
    loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(rng: Any, labels: Any) -> Any:
        logits = tc.dropout(v * rng.normal((2, 3)), 0.5)
        v.assign_add(rng.uniform(3))
        return loss(labels, logits) + rng.uniform()

    right, wrong = tc.asarray([0, 2]), tc.asarray([0, 3])
    sequences = []
    for how in (None, "xla"):
        rng = tc.default_rng(8)
        plain = functools.partial(step, rng)
        function = plain if how is None else tc.function(plain, compile=how)
        v.assign([1.0, 2.0, 3.0])
        tc.set_seed(3)
        found = []
        for labels in (right, right, wrong, right, right):
            states, value = _states(rng), v.numpy().copy()
            if labels is right:
                found.append(float(function(labels)))
                continue
            with pytest.raises(ValueError, match="class 3"):
                function(labels)
            if how is not None:
                assert v.numpy().tobytes() == value.tobytes()
            v.assign(value)
            _restore(rng, states)
        sequences.append((found, _states(rng), v.numpy()))
    (ours, states, value), (theirs, expected, other) = sequences
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    np.testing.assert_allclose(other, value, rtol=1e-5)
    assert states == expected


def test_threads_that_draw_from_one_generator_never_get_the_same_numbers(backend: str) -> None:
    rng = tc.default_rng(1)
    compiled = tc.function(lambda x: x + rng.uniform(4, dtype="float64"), compile="xla")
    branch = tc.function(
        lambda x: tc.cond(tc.sum(x) == 0, lambda: x + rng.uniform(4, dtype="float64"), lambda: x), compile="xla"
    )
    functions = [compiled, branch]
    if backend == "jax":

        def of_jax(x: Any) -> Any:
            return tape_jax.call(lambda a: jnp.sort(jnp.cos(a) - 1.0), x) + rng.uniform(4, dtype="float64")

        functions.append(tc.function(lambda x: tc.cond(tc.sum(x) == 0, lambda: of_jax(x), lambda: x), compile="xla"))
    x = tc.zeros(4, dtype="float64")
    for function in functions:
        function(x), function(x)
        rng.set_state(tc.default_rng(1).get_state())
        found: list[bytes] = []
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(_called, function, x, found, 25))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 100
        assert len(set(found)) == 100, function


DRAWING_IN_A_CALLBACK = """
import jax, jax.numpy as jnp, numpy as np, tape_core as tc, tape_jax
rng = tc.default_rng(1)
drawn = []
def draw(a):
    if is_compiled:
        with tc.use_backend("numpy"):  # a callback must not call JAX
            drawn.append(rng.uniform(2, dtype="float64").numpy().tobytes())
    return np.zeros(a.shape)
def with_callback(a):
    return jax.pure_callback(draw, jax.ShapeDtypeStruct(a.shape, a.dtype), jnp.sin(a))
def program(x):
    return tc.cond(tc.sum(x) == 0, lambda: CALL + rng.uniform(2, dtype="float64")[0], lambda: x)
compiled = tc.function(program, compile="xla")
tc.set_backend("jax")
for n in (4, 100_000):  # JAX runs large ones, and their callbacks, in threads of its own
    is_compiled = False
    for _ in range(4):
        y = compiled(PENDING(tc.zeros(n, dtype="float64"))).numpy()
        is_compiled = True
print(len(drawn), len(set(drawn)) > 1)
"""


@pytest.mark.parametrize(
    ("call", "pending"),
    [
        ("tape_jax.call(with_callback, x)", "lambda x: x"),
        ("x", "lambda x: tc.asarray(jax.jit(with_callback)(x.array))"),
    ],
)
def test_a_callback_of_jax_may_draw_while_a_function_draws_in_a_branch(call: str, pending: str) -> None:
    """In a thread of XLA's, for which the call waits: it must not wait for the call."""
    program = DRAWING_IN_A_CALLBACK.replace("CALL", call).replace("PENDING", f"({pending})")
    count, differ = run_python("-c", program, environment={"NPROC": "8"}, timeout=300).split()
    assert int(count) >= 6
    assert differ == "True"


def _called(function: Any, x: Any, found: list[bytes], times: int) -> None:
    found.extend([function(x).numpy().tobytes() for _ in range(times)])
