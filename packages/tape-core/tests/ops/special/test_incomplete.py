"""Derivatives of distribution functions by their parameters, against values of higher precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tape_core as tc

pytest.importorskip("scipy.special")
sp = tc.special

# Differences of mpmath's functions in 80 digits: the parameters, the argument, then the derivatives.
# By a, and twice by a:
GAMMA = [
    (1e-06, 0.0001, -8.6331518170392117, 72.887236267876691),
    (0.001, 30.0, -3.0458488566425611e-15, -2.4362455949660944e-14),
    (0.25, 0.125, -1.2360782806752975, 1.6984814943947862),
    (0.5, 0.75, -0.50499326470352037, -0.11046112728347322),
    (0.75, 3.0, -0.070510326544495427, -0.099381576854326786),
    (1.0, 1.0, -0.4317297106348987, 0.033618035299959197),
    (2.5, 0.01, -1.7056647497778207e-5, 9.6393275207868086e-5),
    (2.5, 2.0, -0.27455132194588155, 0.067077171809110783),
    (2.5, 40.0, -2.5267860704828765e-15, -7.197186330457072e-15),
    (12.0, 11.5, -0.1171913492953059, 0.0050912201720495707),
    (100.0, 70.0, -0.00016408115739891959, 5.8573725776485202e-5),
    (100.0, 100.0, -0.039927497857786052, 3.3327497133148415e-7),
    (1000.0, 1100.0, -0.00011048987784079389, -1.0531678471574555e-5),
    (100000.0, 100100.0, -0.0011994802802501906, -1.1988819287102753e-6),
]
# By a, by b, and by both:
BETA = [
    (0.0001, 0.5, 0.25, -2.6329215526669847, 0.00046454161328706537, 4.6433825406522319),
    (0.0001, 0.0002, 0.75, -2221.7341246360055, 1111.2331381346906, 3705330.7133247295),
    (0.25, 0.5, 0.0625, -1.38582071629437, 0.33192627093815809, -0.23855331361875921),
    (0.5, 0.5, 0.875, -0.30877374888010657, 0.61285667542964468, 0.45759079268283649),
    (2.0, 3.0, 0.5, -0.1952886866349624, 0.15410849392498291, 0.043759131896217188),
    (2.5, 0.25, 0.96875, -0.060905788313554217, 1.361902598291869, -0.082982955034464641),
    (7.0, 1.0, 0.001, -6.907755278982138e-21, 2.5919817537347618e-21, -1.7771654265048334e-20),
    (30.0, 40.0, 0.4375, -0.05423941500537046, 0.04136701608245746, 0.00095325361079120981),
    (900.0, 0.001, 0.9990234375, -4.6186392531435244e-7, 0.27045700690231329, -0.00046206963237996747),
    (3.0, 2000.0, 0.0009765625, -0.22878581098846583, 0.0002643203494221417, -6.6702340004651564e-5),
    (1500.0, 1400.0, 0.5, -0.0012977722635670487, 0.0013433306448719011, -4.5557792431017451e-5),
]
# By df, and twice by df:
STUDENT = [
    (0.001, 2.0, 2.1592619780623881, -258.50911016258135),
    (0.25, -0.125, -0.039973938595179512, 0.14674841828746336),
    (0.5, 1000.0, 0.072851471967463281, -0.5368813143790723),
    (1.0, 1.0, 0.066202980469461722, -0.093618423233100126),
    (2.5, 1e-06, 1.3554437862662635e-8, -9.733865025796863e-9),
    (3.0, -1.5, -0.014677120428661034, 0.0087788677134821203),
    (4.0, 50.0, 1.3548379808093128e-6, -3.9054140642480659e-6),
    (30.0, 0.5, 6.0466743512406453e-5, -4.0084291864304372e-6),
    (30.0, -6.0, -9.0879404662816004e-8, 1.5600390971444359e-8),
    (1000.0, 2.0, 1.3510494894605939e-7, -2.7033673645070869e-10),
    (50000.0, 0.25, 1.0270818053748381e-11, -4.1083164613675096e-16),
    (50000.0, -3.0, -1.3299028627562442e-11, 5.3203081211499634e-16),
]

CLOSE = 1e-8


def _columns(rows: Sequence[tuple[float, ...]]) -> list[Any]:
    return [tc.asarray(np.asarray(column)) for column in zip(*rows, strict=True)]


def test_gammainc_by_a() -> None:
    a, x, first, second = _columns(GAMMA)
    slope = tc.grad(lambda a: tc.sum(sp.gammainc(a, x)))
    np.testing.assert_allclose(slope(a).numpy(), first.numpy(), rtol=CLOSE)
    np.testing.assert_allclose(tc.grad(lambda a: tc.sum(sp.gammaincc(a, x)))(a).numpy(), -first.numpy(), rtol=CLOSE)
    np.testing.assert_allclose(tc.grad(lambda a: tc.sum(slope(a)))(a).numpy(), second.numpy(), rtol=CLOSE)
    np.testing.assert_allclose(sp.gammainc_derivative(a, x, 2).numpy(), second.numpy(), rtol=CLOSE)


def test_betainc_by_a_and_b() -> None:
    a, b, x, by_a, by_b, by_both = _columns(BETA)
    found = tc.grad(lambda a, b: tc.sum(sp.betainc(a, b, x)), argnums=(0, 1))(a, b)
    np.testing.assert_allclose(found[0].numpy(), by_a.numpy(), rtol=CLOSE)
    np.testing.assert_allclose(found[1].numpy(), by_b.numpy(), rtol=CLOSE)
    _, mixed = tc.jvp(lambda b: tc.grad(lambda a: tc.sum(sp.betainc(a, b, x)))(a), (b,), (tc.ones_like(b),))
    np.testing.assert_allclose(mixed.numpy(), by_both.numpy(), rtol=CLOSE)


def test_stdtr_by_its_degrees_of_freedom() -> None:
    df, t, first, second = _columns(STUDENT)
    slope = tc.grad(lambda df: tc.sum(sp.stdtr(df, t)))
    np.testing.assert_allclose(slope(df).numpy(), first.numpy(), rtol=CLOSE)
    moderate = df.numpy() < 1e4
    curvature = tc.grad(lambda df: tc.sum(slope(df)))(df).numpy()
    np.testing.assert_allclose(curvature[moderate], second.numpy()[moderate], rtol=CLOSE)
    np.testing.assert_allclose(curvature, second.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("f", "at"),
    [
        (lambda p: sp.gammainc(p[0], p[1]), [1.5, 2.0]),
        (lambda p: sp.gammaincc(p[0], p[1]), [0.5, 0.25]),
        (lambda p: sp.betainc(p[0], p[1], p[2]), [2.5, 0.75, 0.5]),
        (lambda p: sp.stdtr(p[0], p[1]), [3.0, -1.25]),
        (lambda p: sp.stdtr(p[0], p[1]), [3.0, 0.0]),
    ],
    ids=["gammainc", "gammaincc", "betainc", "stdtr", "stdtr at 0"],
)
def test_all_derivatives_agree(f: Any, at: list[float]) -> None:
    p = tc.asarray(at, dtype=tc.float64)
    tc.testing.check_grads(f, [p])
    tc.testing.check_grads(tc.grad(f), [p])
    tc.testing.check_grads(lambda p: tc.hessian(f)(p), [p], rtol=1e-4)
    hessian = tc.hessian(f)(p).numpy()
    np.testing.assert_allclose(hessian, tc.jacrev(tc.jacrev(f))(p).numpy(), rtol=1e-12, atol=1e-14)
    compiled = tc.function(tc.grad(f))
    assert np.array_equal(compiled(p).numpy(), tc.grad(f)(p).numpy())
    assert np.array_equal(compiled(p).numpy(), compiled(p).numpy())
    rows = tc.stack([p, p * 0.75])
    expected = np.stack([tc.grad(f)(row).numpy() for row in rows])
    np.testing.assert_allclose(tc.vmap(tc.grad(f))(rows).numpy(), expected, rtol=1e-12)


def test_where_there_is_no_probability() -> None:
    nan, inf = np.nan, np.inf
    a, x = (
        tc.asarray(np.asarray(v))
        for v in ([2.0, 2.0, -1.0, 2.0, 0.0, nan, 1e300], [0.0, inf, 1.0, -1.0, 1.0, 1.0, 1.0])
    )
    found = sp.gammainc_derivative(a, x).numpy()
    np.testing.assert_allclose(found, [0, 0, nan, nan, -0.21938393439552026, nan, 0], rtol=1e-12)  # minus E1(1)
    b = tc.asarray(np.asarray([0.0, 1.0, -0.5, 1.5, nan]))
    np.testing.assert_array_equal(sp.betainc_derivative(2.0, 3.0, b).numpy(), [0, 0, nan, nan, nan])
    t = tc.asarray(np.asarray([0.0, inf, -inf, nan]))
    np.testing.assert_array_equal(sp.stdtr_derivative(3.0, t).numpy(), [0, 0, 0, nan])


def test_large_arrays_are_computed_as_small_ones() -> None:
    x = tc.asarray(np.linspace(0.01, 30.0, 20_001))
    whole = sp.gammainc_derivative(2.5, x).numpy()
    np.testing.assert_allclose(whole[::1000], sp.gammainc_derivative(2.5, x[::1000]).numpy(), rtol=1e-13)


def test_a_gamma_distribution_is_fitted_by_its_cdf() -> None:
    """Newton's method for the parameter, with the derivative by it."""
    x, wanted = (
        tc.asarray(np.asarray([0.5, 1.5, 4.0])),
        tc.stats.gamma.cdf(tc.asarray(np.asarray([0.5, 1.5, 4.0])), 2.5),
    )
    a = tc.asarray(np.asarray(1.0))

    def loss(a: Any) -> Any:
        return tc.sum((tc.stats.gamma.cdf(x, a) - wanted) ** 2)

    for _ in range(20):
        a = a - tc.grad(loss)(a) / tc.abs(tc.hessian(loss)(a))
    np.testing.assert_allclose(float(a), 2.5, rtol=1e-9)


def test_orders_that_are_none() -> None:
    x = tc.asarray(0.5)
    with pytest.raises(ValueError, match="order must be between 1 and 20"):
        sp.gammainc_derivative(2.0, x, order=0)
    with pytest.raises(TypeError, match="orders must be two integers"):
        sp.betainc_derivative(2.0, 3.0, x, orders=(1,))  # type: ignore[arg-type]


def test_a_compiled_gradient_can_be_exported(tmp_path: Any) -> None:
    import runpy

    def slope(a: Any) -> Any:
        return tc.grad(lambda a: tc.sum(sp.gammainc(a, 2.0) * sp.stdtr(a, 0.5) + sp.betainc(a, 2.0, 0.25)))(a)

    a = tc.asarray(np.linspace(0.3, 3.0, 5))
    compiled = tc.function(slope)
    expected = slope(a).numpy()
    assert np.array_equal(compiled(a).numpy(), expected)
    compiled.export(tmp_path / "slope.py")
    (found,) = runpy.run_path(str(tmp_path / "slope.py"))["slope"](a.numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-13)
