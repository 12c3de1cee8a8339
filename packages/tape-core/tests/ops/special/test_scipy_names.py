"""Special functions under SciPy's names: values, derivatives, and what has none yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import run_python

special = pytest.importorskip("scipy.special")
sp = tc.special

X = np.asarray([-3.3, -1.7, -0.4, 1e-9, 0.3, 1.0, 2.5, 7.25])
P = np.asarray([0.2, 0.7, 1.0, 1.9, 4.5])

CASES: list[tuple[str, tuple[Any, ...]]] = [
    ("beta", (P, P[::-1].copy())),
    ("beta", (np.asarray([-0.5, -1.5, -2.5, 2.5]), np.asarray([0.3, 0.7, -0.6, -1.2]))),
    ("rgamma", (X,)),
    ("loggamma", (P,)),
    ("kl_div", (P, P[::-1].copy())),
    ("huber", (0.7, X)),
    ("pseudo_huber", (0.7, X)),
    ("exprel", (X,)),
    ("cbrt", (np.concatenate([P, -1e3 * P]),)),
    ("exp2", (X,)),
    ("sinc", (X,)),
    ("exp10", (X,)),
    ("log_expit", (100 * X,)),
    ("boxcox", (P, np.asarray([-1.5, 0.0, 1e-9, 0.5, 2.0]))),
    ("exp1", (P,)),
    ("expi", (P,)),
    ("dawsn", (X,)),
    ("erfi", (P,)),
    ("spence", (np.concatenate([P, [1.0 + 1e-9, 1.04, 1.06]]),)),
    ("ellipk", (np.asarray([-5.0, -0.11, -0.09, 0.0, 1e-9, 0.09, 0.11, 0.95]),)),
    ("ellipe", (np.asarray([-5.0, -0.11, -0.09, 0.0, 1e-9, 0.09, 0.11, 0.95]),)),
    ("k0", (P,)),
    ("k1", (P,)),
    ("k0e", (100 * P,)),
    ("k1e", (100 * P,)),
    ("gammaincinv", (P, np.asarray([0.1, 0.3, 0.5, 0.7, 0.95]))),
    ("gammainccinv", (P, np.asarray([0.1, 0.3, 0.5, 0.7, 0.95]))),
    ("betaincinv", (P, P[::-1].copy(), np.asarray([0.1, 0.3, 0.5, 0.7, 0.95]))),
    ("stdtrit", (1 + P, np.asarray([0.1, 0.3, 0.5, 0.7, 0.95]))),
]
IDS = [f"{name} {k}" for k, (name, _) in enumerate(CASES)]


@pytest.mark.parametrize(("name", "args"), CASES, ids=IDS)
def test_the_value_is_that_of_scipy_and_the_derivatives_hold(name: str, args: Any) -> None:
    own = getattr(sp, name)
    expected = np.asarray(getattr(special, name)(*args))
    found = own(*(tc.asarray(a) if isinstance(a, np.ndarray) else a for a in args))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    arrays = [tc.asarray(a) for a in args if isinstance(a, np.ndarray)]
    numbers = [a for a in args if not isinstance(a, np.ndarray)]
    tc.testing.check_grads(lambda *xs: own(*numbers, *xs), arrays)
    tc.testing.check_grads(lambda *xs: tc.grad(lambda *ys: tc.sum(own(*numbers, *ys)))(*xs), arrays)
    compiled = tc.function(lambda *xs: own(*numbers, *xs))
    assert np.array_equal(compiled(*arrays).numpy(), compiled(*arrays).numpy())
    np.testing.assert_allclose(tc.vmap(lambda *xs: own(*numbers, *xs))(*arrays).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("multigammaln", (tc.asarray([3.5, 6.0], dtype=tc.float64), 3)),
        ("gammainc", (2.5, tc.asarray([0.4, 2.0], dtype=tc.float64))),
        ("gammaincc", (2.5, tc.asarray([0.4, 9.0], dtype=tc.float64))),
        ("betainc", (2.5, 0.5, tc.asarray([0.4, 0.9], dtype=tc.float64))),
        ("jn", (2, tc.asarray([0.0, 0.4, 9.0], dtype=tc.float64))),
        ("yn", (2, tc.asarray([0.4, 9.0], dtype=tc.float64))),
        ("ive", (1.5, tc.asarray([0.4, 900.0], dtype=tc.float64))),
        ("kve", (1.5, tc.asarray([0.4, 900.0], dtype=tc.float64))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_and_derivatives_of_what_takes_parameters(name: str, args: Any) -> None:
    own, theirs = getattr(sp, name), getattr(special, name)
    raw = [a.numpy() if isinstance(a, tc.Tensor) else a for a in args]
    np.testing.assert_allclose(own(*args).numpy(), theirs(*raw), rtol=1e-12)
    place = next(k for k, a in enumerate(args) if isinstance(a, tc.Tensor))
    if name != "jn":  # differences of an even function at 0
        tc.testing.check_grads(lambda x: own(*args[:place], x, *args[place + 1 :]), [args[place]])


def test_derivatives_at_delicate_points() -> None:
    zero = tc.asarray(0.0, dtype=tc.float64)
    assert [float(tc.grad(f)(zero)) for f in (sp.exprel, sp.sinc, sp.j0, sp.j1)] == [0.5, 0.0, 0.0, 0.5]
    second = [float(tc.grad(tc.grad(f))(zero)) for f in (sp.exprel, sp.sinc, np.sinc, sp.j0)]
    np.testing.assert_allclose(second, [1 / 3, -(np.pi**2) / 3, -(np.pi**2) / 3, -0.5], rtol=1e-13)
    assert float(tc.grad(sp.kl_div)(zero + 1.0, 1.0)) == 0
    assert np.isnan(sp.loggamma(tc.asarray(-0.5)).numpy())
    assert sp.huber(-1.0, zero).item() == np.inf == sp.pseudo_huber(-1.0, zero).item()
    assert sp.rgamma(zero - 2.0).item() == 0


@pytest.mark.parametrize("name", ["jv", "yv", "iv", "ive", "kv", "kve"])
def test_a_derivative_by_the_order_is_an_error_and_not_zero(name: str) -> None:
    own = getattr(sp, name)
    v = tc.Variable(1.5)
    with tc.GradientTape() as tape:
        y = own(v, tc.asarray(2.0))
    with pytest.raises(NotImplementedError, match=rf"{name}.*not written yet"):
        tape.gradient(y, v)
    with pytest.raises(NotImplementedError, match="not written yet"):
        tc.jvp(lambda v: own(v, tc.asarray(2.0)), (tc.asarray(1.5),), (tc.asarray(1.0),))


def test_quantiles_at_the_ends() -> None:
    """At probability 0 a quantile is the same for all parameters; so is the median of Student's t."""
    zero, one = tc.asarray(0.0, dtype=tc.float64), tc.asarray(1.0, dtype=tc.float64)
    two = 2 * one
    assert float(tc.grad(sp.gammaincinv)(two, zero)) == 0 == float(tc.grad(sp.gammaincinv)(two, one))
    assert float(tc.grad(sp.betaincinv)(two, two, zero)) == 0
    assert float(tc.grad(sp.stdtrit)(two, 0.5 * one)) == 0
    assert float(tc.grad(sp.gammaincinv, argnums=1)(two, zero)) == np.inf


def test_scipys_own_functions_take_tensors() -> None:
    """Through NumPy's protocol, which SciPy's ufuncs have; with a gradient."""
    x = tc.Variable(np.asarray([0.4, 2.0]))
    for call in (
        special.j0, special.y1, special.exprel, special.cbrt, special.exp2, special.rgamma,
        lambda x: special.jv(2, x), lambda x: special.jn(2, x),
        lambda x: special.yn(1, x), lambda x: special.iv(0.5, x),
        lambda x: special.gammainc(2.0, x), lambda x: special.betainc(2.0, 3.0, x / 3.0),
        lambda x: special.beta(x, 2.0),
        lambda x: special.huber(1.0, x), lambda x: special.kl_div(x, 2.0),
    ):  # fmt: skip
        with tc.GradientTape() as tape:
            y = call(x)
        assert isinstance(y, tc.Tensor)
        np.testing.assert_allclose(y.numpy(), call(x.numpy()), rtol=1e-12)
        h = 1e-6
        differences = (call(x.numpy() + h) - call(x.numpy() - h)) / (2 * h)
        np.testing.assert_allclose(tape.gradient(y, x).numpy(), differences, rtol=1e-6, atol=1e-8)


def test_without_scipy_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['scipy'] = None; import tape_core as tc\n"
        "try: tc.special.j0(tc.ones(2))\n"
        "except ImportError as error: print(error)"
    )
    assert "pip install 'tape-core[special]'" in run_python("-c", program)


def test_one_that_scipy_computes_can_be_exported_alone(tmp_path: Any) -> None:
    import runpy

    def alone(x: Any) -> Any:
        return sp.j0(x)

    def quantile(x: Any) -> Any:
        return sp.gammaincinv(2.0, x)

    def derivative(x: Any) -> Any:
        return sp.gammainc_derivative(2.0, x)

    x = tc.asarray(np.linspace(0.3, 0.9, 5000))
    for function in (alone, quantile, derivative):
        compiled = tc.function(function)
        expected = compiled(x).numpy()
        compiled.export(tmp_path / "alone.py")
        (found,) = runpy.run_path(str(tmp_path / "alone.py"))[function.__name__](x.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_compiled_function_of_them_can_be_exported(tmp_path: Any) -> None:
    import runpy

    def density(x: Any) -> Any:
        return tc.special.jv(2, x) + tc.special.gammainc(2.0, x) * tc.stats.norm.cdf(x, 0.5, 2.0)

    x = tc.asarray(np.linspace(0.3, 3.0, 5))
    compiled = tc.function(density)
    expected = compiled(x).numpy()
    assert np.array_equal(compiled(x).numpy(), density(x).numpy())
    compiled.export(tmp_path / "density.py")
    (found,) = runpy.run_path(str(tmp_path / "density.py"))["density"](x.numpy())
    assert np.array_equal(found, expected)
