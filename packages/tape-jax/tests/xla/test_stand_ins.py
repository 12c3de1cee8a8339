"""What a traced function sees of JAX's arrays: the shapes and dtypes that eager calls have, in every trace."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import jax
import numpy as np
import pytest
import tape_core as tc
from tape_jax.xla.stand_ins import AbstractArray, evaluate
from tape_jax.xla.transfer import jax_backend

DTYPES = ["bool", "int32", "float16", "float64", "complex64"]
NUMBERS: list[Any] = [True, 3, 2.5]
BINARY = ["add", "divide", "pow", "less", "bitwise_and", "atan2"]
OPERATORS = ["add", "truediv", "pow", "mod", "and_"]
UNARY = ["negative", "sqrt", "abs", "floor", "isnan", "sign", "square", "real"]
DEVICE = jax.devices("cpu")[0]


def array(shape: tuple[int, ...], dtype: str) -> tc.Tensor:
    return tc.asarray(np.ones(shape), dtype=dtype, backend="jax")


def like(shape: tuple[int, ...], dtype: str) -> AbstractArray:
    return AbstractArray(shape, np.dtype(dtype), DEVICE)


def check(fn: Any, *args: Any) -> None:
    """Check that a function of stand-ins gives the shape and dtype that JAX says, or that both are errors."""
    places = [k for k, value in enumerate(args) if type(value) is AbstractArray]

    def call(*given: Any) -> Any:
        known = dict(zip(places, given, strict=True))
        return fn(*[known.get(k, value) for k, value in enumerate(args)])

    def kind(evaluated: Any) -> Any:
        try:
            found = evaluated()
        except Exception as error:  # noqa: BLE001  # any of JAX's
            return type(error)
        return found.shape, found.dtype

    structs = [jax.ShapeDtypeStruct(args[k].shape, args[k].dtype) for k in places]
    wanted = kind(lambda: jax.eval_shape(call, *structs))
    assert kind(lambda: evaluate(fn, args, {})) == wanted, (fn, args)
    assert kind(lambda: evaluate(fn, args, {})) == wanted, (fn, args)


@pytest.mark.parametrize("name", [*BINARY, *[f"__{name.strip('_')}__" for name in OPERATORS]])
def test_results_of_two_arrays_have_the_shapes_and_dtypes_that_jax_gives_them(name: str) -> None:
    fn = getattr(operator if name.startswith("_") else jax_backend().xp, name)
    # The second pair of shapes meets dtypes that the first has brought.
    for one, other in [((2, 3), (3,)), ((4, 1), (1, 2))]:
        for first, second in itertools.product(DTYPES, DTYPES):
            check(fn, like(one, first), like(other, second))
        for dtype, number in itertools.product(DTYPES, NUMBERS):
            check(fn, like(one, dtype), number)
            check(fn, number, like(one, dtype))


@pytest.mark.parametrize("name", UNARY)
def test_results_of_one_array_have_the_shapes_and_dtypes_that_jax_gives_them(name: str) -> None:
    for shape, dtype in itertools.product([(2, 3), (), (0, 4)], DTYPES):
        check(getattr(jax_backend().xp, name), like(shape, dtype))


def test_arrays_with_values_are_broadcast_and_promoted_as_any_others() -> None:
    xp = jax_backend().xp
    weak = jax.numpy.asarray(2.5) * 1
    for shape, dtype in itertools.product([(2, 3), (4, 3)], ["int32", "float16", "float32"]):
        check(xp.multiply, like(shape, dtype), jax.numpy.ones((5, 1, 3), "float16"))
        check(xp.multiply, like(shape, dtype), weak)
        check(xp.where, jax.numpy.ones(3, "bool"), like(shape, dtype), 2.0)
        check(operator.add, jax.numpy.ones(3, "int32"), like(shape, dtype))
    check(xp.add, like((2,), "int8"), 1)
    check(xp.add, like((2,), "int8"), 1000)  # which no int8 is


def test_operands_that_do_not_broadcast_are_an_error_as_they_are_in_eager_calls() -> None:
    x, y = array((2, 3), "float32"), array((3,), "float32")
    f = tc.function(lambda x, y: x * y, compile="xla")
    assert f(x, y).shape == (2, 3)
    with pytest.raises(Exception, match=r"broadcast|shapes"):
        f(x, array((4,), "float32"))


@pytest.mark.parametrize("reverse", [False, True])
def test_results_of_loops_have_their_shapes_and_dtypes_while_they_are_traced(reverse: bool) -> None:
    seen: list[Any] = []
    total = tc.Variable(array((2,), "float32"))

    def step(carry: Any, x: tc.Tensor) -> Any:
        total.assign_add(x)
        return (carry[0] + 1, carry[1] + tc.sum(x)), {"x": tc.astype(x, "float64"), "n": carry[0]}

    def loops(n: tc.Tensor, xs: tc.Tensor) -> Any:
        (count, y), parts = tc.scan(step, (n, tc.sum(xs)), xs, reverse=reverse)
        _, rows = tc.scan(lambda c, _: (c, c), xs[0], length=5)
        z = tc.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * 2.0, c[1] + 1), (y, count - count))[0]
        w = tc.cond(z > 0, lambda: (xs * 2.0, xs > 0), lambda: (xs, xs < 0))
        mapped = tc.vmap(lambda x: tc.scan(lambda c, _: (c + x, c * x), x, length=4)[1])(xs)
        found = [count, y, parts["x"], parts["n"], rows, z, *w, mapped, tc.grad(lambda x: tc.sum(rows * x))(xs[0])]
        seen.append([(t.shape, t.dtype) for t in found])
        return found

    n, xs = array((), "int32"), array((3, 2), "float32")
    eager = loops(n, xs)
    found = tc.function(loops, compile="xla")(n, xs)
    assert seen[0] == seen[1] == [(t.shape, t.dtype) for t in found]
    for one, other in zip(found, eager, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)
