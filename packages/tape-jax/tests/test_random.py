"""Random numbers: the bits of every backend, on the host and in XLA's program for accelerators."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import RandomKernels
from tape_jax import random

KEY = (2**64 - 5, 7)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("words", (13,)),
        ("half_words", (7,)),
        ("uniform", ((3, 5), "float32")),
        ("uniform", ((4,), "float64")),
        ("integers", ((9,), -3, 10)),
        ("permutation", ((2, 7),)),
    ],
    ids=["words", "half words", "float32", "float64", "integers", "permutations"],
)
def test_the_numbers_are_those_of_every_backend(method: str, arguments: tuple[Any, ...]) -> None:
    with tc.use_backend("jax") as backend:
        expected = np.asarray(getattr(RandomKernels(backend), method)(KEY, 3, *arguments))
        np.testing.assert_array_equal(getattr(backend.random, method)(KEY, 3, *arguments), expected)
        program = random._program(backend, method, arguments)
        found = program(np.asarray(KEY, np.uint64), np.asarray(3, np.uint64))
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_words_are_those_of_numpys_philox_also_where_the_counter_ends() -> None:
    program = jax.jit(random.philox_words, static_argnames="n")
    for counter in (0, 2**64 - 2):
        words = np.random.Philox(counter=counter, key=KEY[0] + (KEY[1] << 64)).random_raw(4)
        found = program(np.asarray(KEY, np.uint64), np.asarray(counter, np.uint64), n=4)
        np.testing.assert_array_equal(np.asarray(found).view(np.uint64), words)


def test_normal_numbers_differ_by_rounding_at_most() -> None:
    with tc.use_backend("jax") as backend:
        expected = np.asarray(RandomKernels(backend).normal(KEY, 3, (1001,), "float32"))
        np.testing.assert_allclose(backend.random.normal(KEY, 3, (1001,), "float32"), expected, rtol=1e-4, atol=1e-6)


def test_a_generator_is_the_same_on_jax_and_numpy() -> None:
    drawn = []
    for name in ("jax", "numpy"):
        with tc.use_backend(name):
            drawn.append(tc.default_rng(1).uniform((5,)).tolist())
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda f: jax.jit(jax.grad(f)), jax.make_jaxpr])
def test_a_draw_that_jax_makes_a_constant_is_warned_of(transform: Any) -> None:
    rng = tc.default_rng(0)
    with pytest.warns(UserWarning, match="constants: all later calls, and all examples of jax.vmap, get the same"):
        transform(lambda x: (x * rng.normal((), backend="jax")).array)(np.ones(2 if transform is jax.vmap else ()))


def test_an_order_that_jax_makes_a_constant_is_warned_of() -> None:
    rng = tc.default_rng(0)
    with pytest.warns(UserWarning, match="constants: all later calls"), tc.use_backend("jax"):
        jax.jit(lambda x: (x * rng.permutation(3)).array)(np.ones(3))


def test_draws_of_this_call_alone_are_not_warned_of() -> None:
    rng = tc.default_rng(0)
    gradient = jax.grad(lambda x: (x * rng.normal((), dtype=tc.float64, backend="jax")).array)
    assert gradient(1.0) != gradient(1.0)
    step = tc.function(lambda x: x * rng.normal((), backend="jax"), compile="xla")
    assert step(tc.asarray(1.0, backend="jax")).item() != step(tc.asarray(1.0, backend="jax")).item()
