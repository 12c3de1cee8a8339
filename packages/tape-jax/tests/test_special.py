"""Special functions: SciPy's values eagerly, inside `jax.jit` and `jax.vmap`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

pytestmark = pytest.mark.usefixtures("on_jax")  # arrays are of 64 bits when the backend has been loaded

_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "betainc": ([0.5, 2.0], [1.5, 3.0], [0.2, 0.7]),
    "gammainc": ([0.5, 2.0], [0.3, 4.0]),
    "gammaincc": ([0.5, 2.0], [0.3, 4.0]),
    "exp1": ([0.3, 2.0],),
    "expi": ([0.3, 2.0],),
    "spence": ([0.3, 2.0],),
    "jv": ([0.5, 2.0], [0.3, 4.0]),
    "kve": ([0.5, 2.0], [0.3, 4.0]),
    "dawsn": ([0.3, 2.0],),
    "stdtrit": ([3.0, 2.0], [0.3, 0.6]),
    "erf": ([0.3, 2.0],),
    "gammaln": ([0.3, 2.0],),
    "i0e": ([0.3, 2.0],),
    "ndtri": ([0.3, 0.6],),
}


@pytest.mark.parametrize("name", _ARGUMENTS)
def test_values_are_scipys_eagerly_and_inside_jit(name: str) -> None:
    function = getattr(tc.special, name)
    arrays = [jnp.asarray(a) for a in _ARGUMENTS[name]]
    expected = getattr(special, name)(*_ARGUMENTS[name])
    np.testing.assert_allclose(function(*arrays).numpy(), expected, rtol=1e-12)

    def f(*args: jax.Array) -> jax.Array:
        return function(*map(tc.asarray, args)).array

    np.testing.assert_allclose(jax.jit(f)(*arrays), expected, rtol=1e-11)
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(*arrays), expected, rtol=1e-11)
    single = [a.astype(jnp.float32) for a in arrays]
    assert function(*single).dtype is tc.float32
    assert jax.jit(f)(*single).dtype == np.float32
    assert function(*[a.astype(jnp.bfloat16) for a in arrays]).dtype is tc.bfloat16


_ZEROS = [1.4616321449683622, -0.5040830082644554, -1.5734984731623904, -2.610720868444145, -9.702672541]
_AROUND_ZEROS = np.float32(_ZEROS)[:, None] + np.spacing(np.float32(_ZEROS))[:, None] * np.arange(-20, 21, dtype="f4")


@given(hnp.arrays("float32", 20, elements=st.floats(width=32, allow_subnormal=False)))
@example(_AROUND_ZEROS.ravel())
@example(np.linspace(-30, 30, 10_001, dtype="float32"))
@example(np.logspace(-37, 38, 1_001, dtype="float32"))
@example(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 2e-38, -2e-38, 2e38, 3.4028235e38, -3e38], "float32"))
def test_digamma_and_trigamma_of_float32_are_exact_to_the_last_digit(x: np.ndarray) -> None:
    """XLA's has the wrong sign at some numbers around the zero at 1.46."""
    expected = special.digamma(x.astype("float64"))
    # SciPy's own error between the negative integers is up to 2e-13.
    np.testing.assert_allclose(tc.digamma(jnp.asarray(x)).numpy(), expected, rtol=6e-8, atol=1e-12)
    with np.errstate(over="ignore"):
        expected = special.polygamma(1, x.astype("float64")).astype("float32")
    np.testing.assert_allclose(tc.polygamma(1, jnp.asarray(x)).numpy(), expected, rtol=1.2e-7, atol=2e-38)


def test_gradients_by_parameters_come_inside_jit() -> None:
    def f(a: jax.Array) -> jax.Array:
        return tc.grad(lambda a: tc.special.betainc(a, 2.0, 0.3))(tc.asarray(a)).array

    a = jnp.asarray(1.5)
    np.testing.assert_allclose(jax.jit(f)(a), f(a), rtol=1e-12)
    h = 1e-6
    slope = (special.betainc(1.5 + h, 2.0, 0.3) - special.betainc(1.5 - h, 2.0, 0.3)) / (2 * h)
    np.testing.assert_allclose(f(a), slope, rtol=1e-6)


def test_an_order_is_read_where_its_kernel_is_compiled() -> None:
    x = tc.asarray(1.0, backend="jax")
    for order in (1, tc.asarray(1, backend="jax")):
        np.testing.assert_allclose(tc.special.polygamma(order, x).numpy(), np.pi**2 / 6, rtol=1e-6)
    with pytest.raises(TypeError, match="n must be one integer"):
        tc.special.polygamma(1.5, x)


SMALL = np.asarray([0.4, 0.7, 1.3])
ON_HOST: dict[str, Any] = {
    "airy": lambda x: tc.special.airy(x)[0],
    "ber": tc.special.ber,
    "bei": tc.special.bei,
    "betainc": lambda x: tc.special.betainc(x, x + 0.5, 0.3 * x),
    "gammainc": lambda x: tc.special.gammainc(x, 0.5 + x),
    "j0": tc.special.j0,
    "jv of a constant order": lambda x: tc.special.jv(1.5, x),
    "dawsn": tc.special.dawsn,
    "ellipkinc": lambda x: tc.special.ellipkinc(x, 0.3 * x),
    "spence": tc.special.spence,
}


LONG = {"betainc", "dawsn", "ellipkinc"}  # others of one argument and of several are shown in each run


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long_on_jax] * (name in LONG)) for name in ON_HOST]
)
def test_jax_has_tapes_derivatives_of_what_the_host_computes(name: str) -> None:
    f = ON_HOST[name]
    with tc.use_backend("jax"):
        x = tc.asarray(SMALL)
        loss = lambda x: tc.sum(tc.sin(f(x)))  # noqa: E731
        on_arrays = lambda x: loss(tc.asarray(x)).array  # noqa: E731
        expected = tc.grad(loss)(x).numpy()
        h = 1e-5
        at = lambda x: float(loss(tc.asarray(x)))  # noqa: E731
        slopes = [(at(SMALL + h * e) - at(SMALL - h * e)) / (2 * h) for e in np.eye(3)]
        np.testing.assert_allclose(expected, slopes, rtol=1e-6)
        for way in (jax.grad(on_arrays), jax.jit(jax.grad(on_arrays)), jax.jacfwd(on_arrays)):
            np.testing.assert_allclose(way(SMALL), expected, rtol=1e-9)
        rows = jax.vmap(jax.grad(on_arrays))(np.stack([SMALL, SMALL + 0.1]))
        np.testing.assert_allclose(rows[0], expected, rtol=1e-9)
        np.testing.assert_allclose(jax.hessian(on_arrays)(SMALL), tc.hessian(loss)(x).numpy(), rtol=1e-7, atol=1e-9)


def test_a_complex_argument_of_the_host_is_still_no_constant_to_jax() -> None:
    with tc.use_backend("jax"), pytest.raises(ValueError, match="JVP"):
        jax.grad(lambda x: tc.real(tc.special.wofz(tc.asarray(x) * (1 + 1j))).array)(0.5)
