"""Functions under SciPy's names that are made of others: distribution functions, polynomials, factorials."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tape_core as tc

special = pytest.importorskip("scipy.special")
sp = tc.special

X = np.asarray([0.3, 0.6, 0.45])
A = np.asarray([1.5, 2.3, 0.8])
B = np.asarray([2.5, 1.2, 3.1])
P = np.asarray([0.2, 0.55, 0.7])
CASES: list[tuple[str, tuple[Any, ...]]] = [
    *[(name, (A, B, X)) for name in ("betaincc", "gdtr", "gdtrc", "fdtr", "fdtrc")],
    *[(name, (A, B, P)) for name in ("betainccinv", "gdtrix", "fdtri")],
    *[(name, (A, X)) for name in ("chdtr", "chdtrc", "boxcox1p", "inv_boxcox", "inv_boxcox1p", "powm1", "poch", "agm")],
    *[(name, (2.0, 5, P)) for name in ("bdtr", "bdtrc", "bdtri")],
    *[(name, (2, 5, P)) for name in ("nbdtr", "nbdtrc", "nbdtri")],
    *[(name, (X,)) for name in ("cosm1", "sindg", "cosdg", "tandg", "cotdg", "ellipkm1")],
    *[(name, (3, X)) for name in ("pdtr", "pdtrc", "pdtri", "kn", "jve", "yve")],
    ("chdtri", (A, P)),
    ("gdtria", (P, B, X)),
    ("nrdtrimn", (P, A, X)),
    ("nrdtrisd", (X, P, A)),
    ("radian", (A, B, X)),
    ("binom", (B + 3, A)),
    *[(f"eval_{name}", (n, 2 * X)) for n in range(6) for name in ("legendre", "chebyt", "hermite", "laguerre")],
    *[(f"eval_{name}", (4, X)) for name in ("chebyu", "chebyc", "chebys", "hermitenorm")],
    *[(f"eval_{name}", (4, X)) for name in ("sh_legendre", "sh_chebyt", "sh_chebyu")],
    *[(f"eval_{name}", (3, A, X)) for name in ("genlaguerre", "gegenbauer")],
    *[("eval_jacobi", (n, A, B, X)) for n in (0, 1, 4)],
    ("eval_sh_jacobi", (3, B + 2, B, X)),
    ("factorial", (A,)),
    *[(name, (B, A * 0.9)) for name in ("comb", "perm")],
    ("zeta", (A + 1,)),
    ("zeta", (np.asarray([-1.5, 0.4, 25.0]),)),
    ("zeta", (A + 1, B)),
    ("zetac", (np.asarray([1.5, 30.0]),)),
    ("voigt_profile", (X, A, B)),
]


def own(name: str, args: tuple[Any, ...]) -> Any:
    return getattr(sp, name)(*(tc.asarray(a) if isinstance(a, np.ndarray) else a for a in args))


@pytest.mark.parametrize(("name", "args"), CASES, ids=[f"{name} {k}" for k, (name, _) in enumerate(CASES)])
def test_the_value_is_that_of_scipy_and_the_derivatives_hold(name: str, args: Any) -> None:
    expected = getattr(special, name)(*args)
    np.testing.assert_allclose(own(name, args).numpy(), expected, rtol=1e-11)
    numbers = [a for a in args if not isinstance(a, np.ndarray)]
    tc.testing.check_grads(
        lambda *xs: getattr(sp, name)(*numbers, *xs), [tc.asarray(a) for a in args if isinstance(a, np.ndarray)]
    )


@pytest.mark.parametrize("name", ["hankel1", "hankel2", "hankel1e", "hankel2e"])
def test_hankel_functions_of_positive_and_negative_numbers(name: str) -> None:
    x = np.asarray([-2.5, -0.4, 0.3, 1.7])
    np.testing.assert_allclose(own(name, (1.3, x)).numpy(), getattr(special, name)(1.3, x), rtol=1e-12)
    tc.testing.check_grads(lambda x: tc.imag(getattr(sp, name)(1.3, x)) + tc.real(getattr(sp, name)(2, x)), [x])


NUMBERS = {
    1: [-720, -90, -1.5, -1.0, 0.0, 1e-9, 0.5, 1.0, 2.0, 30, 45, 90, 180, 270],
    2: [-2.0, -1.5, -1.0, 0.0, 0.3, 1.0, 2.0, 12.5],
    3: [-1.0, 0.0, 0.3, 1.0, 2.0, 3.0],
}
AT_EDGES = {
    1: "cosm1 sindg cosdg tandg ellipkm1 exprel",
    2: "boxcox boxcox1p inv_boxcox inv_boxcox1p binom powm1 agm chdtr chdtrc chdtri pdtr pdtrc",
    3: "betaincc betainccinv gdtr gdtrc fdtr fdtrc fdtri bdtr bdtrc nrdtrimn radian",
}


@pytest.mark.parametrize(
    ("name", "count"), [(name, count) for count, names in AT_EDGES.items() for name in names.split()]
)
def test_at_the_edges_of_its_domain_and_beyond_the_value_is_that_of_scipy(name: str, count: int) -> None:
    grid = [np.asarray(a, dtype="float64") for a in zip(*itertools.product(NUMBERS[count], repeat=count), strict=True)]
    given: Any = list(grid)
    if name.startswith("bdtr"):  # the number of trials is an integer
        keep = grid[1] == np.floor(grid[1])
        grid = [a[keep] for a in grid]
        given = [grid[0], grid[1].astype("int64"), grid[2]]
    with np.errstate(all="ignore"):
        expected = getattr(special, name)(*given)
        found = own(name, tuple(grid)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)


def test_exprel_has_a_limit() -> None:
    assert own("exprel", (np.asarray([np.inf, -np.inf]),)).tolist() == [np.inf, 0]


def test_rising_factorials_of_negative_integers() -> None:
    z = np.asarray([-2.0, -2.0, -3.0, -2.0, -0.5])
    m = np.asarray([-2.0, 1.0, 2.0, 3.0, 2.0])
    np.testing.assert_allclose(own("poch", (z, m)).numpy(), special.poch(z, m), rtol=1e-12)


def test_a_degree_is_an_integer() -> None:
    x = tc.asarray([0.5])
    assert sp.eval_legendre(2.0, x).tolist() == sp.eval_legendre(np.int64(2), x).tolist()
    with pytest.raises(TypeError, match=r"eval_legendre: the degree must be one integer; got 1\.5"):
        sp.eval_legendre(1.5, x)
    with pytest.raises(ValueError, match="eval_chebyt: the degree must not be negative; got -1"):
        sp.eval_chebyt(-1, x)


def test_scipys_own_functions_take_tensors() -> None:
    x = tc.Variable(X)
    for call in (lambda x: special.eval_legendre(3, x), lambda x: special.fdtr(2.0, 3.0, x), special.cosm1):
        with tc.GradientTape() as tape:
            y = call(x)
        np.testing.assert_allclose(y.numpy(), call(X), rtol=1e-12)
        differences = (call(X + 1e-6) - call(X - 1e-6)) / 2e-6
        np.testing.assert_allclose(tape.gradient(y, x).numpy(), differences, rtol=1e-6)


SEVERAL = (
    "fresnel sici shichi itj0y0 it2j0y0 iti0k0 it2i0k0 airy airye itairy kelvin modfresnelp modfresnelm wofz lambertw"
)


@pytest.mark.parametrize("name", SEVERAL.split())
def test_functions_of_several_or_complex_results_are_those_of_scipy(name: str) -> None:
    expected, found = getattr(special, name)(X), getattr(special, name)(tc.asarray(X))  # SciPy's, of a Tensor
    parts = list(zip(found, expected, strict=True)) if isinstance(expected, tuple) else [(found, expected)]
    for one, other in parts:
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-12)

    def loss(x: tc.Tensor) -> tc.Tensor:
        values = getattr(sp, name)(x)
        values = values if isinstance(values, tuple) else (values,)
        parts = [tc.real(v) + (tc.imag(v) if v.dtype.kind == "complex floating" else 0.0) for v in values]
        return tc.sum(tc.stack(parts))

    tc.testing.check_grads(loss, (tc.asarray(X * 0.5),))


def test_elliptic_functions_are_those_of_scipy_on_both_sides_of_small_parameters() -> None:
    m = np.asarray([0.0, 0.09, 0.4, 0.97])
    u = np.asarray([1.4, 0.5, 0.8, 1.1])
    for one, other in zip(special.ellipj(tc.asarray(u), tc.asarray(m)), special.ellipj(u, m), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-12)
    for name in ("ellipkinc", "ellipeinc"):
        tc.testing.check_grads(getattr(sp, name), (tc.asarray(u), tc.asarray([-0.4, 0.02, 0.4, 0.9], dtype="float64")))
    tc.testing.check_grads(
        lambda u, m: sp.ellipj(u, m)[0], (tc.asarray(u), tc.asarray([0.3, 0.05, 0.4, 0.9], dtype="float64"))
    )


def test_spherical_harmonics_are_those_of_scipy() -> None:
    for n, m in ((0, 0), (3, 1), (3, -2), (2, 2)):
        np.testing.assert_allclose(sp.sph_harm_y(n, m, X, B).numpy(), special.sph_harm_y(n, m, X, B), rtol=1e-12)
    tc.testing.check_grads(lambda x, y: tc.real(sp.sph_harm_y(3, 1, x, y)), (tc.asarray(X), tc.asarray(B)))


def test_a_parameter_with_which_scipy_would_run_out_of_memory_gives_nan() -> None:
    assert np.isnan(sp.hyp2f1(1e9, 1.0, 2.0, tc.asarray([0.5], dtype="float64")).item())
    assert all(np.isnan(part.item()) for part in sp.pbdv(1e9, tc.asarray([0.5], dtype="float64")))


def test_a_parameter_without_a_rule_says_so() -> None:
    with pytest.raises(NotImplementedError, match="the rule of 'hyp1f1' for 'a' is not written yet"):
        tc.grad(lambda a: sp.hyp1f1(a, 2.0, 0.5))(1.5)


@pytest.mark.parametrize("kind", "jyik")
def test_spherical_bessel_functions_are_those_of_scipy(kind: str) -> None:
    x = np.asarray([-1.3, 0.0, 0.4, 2.5]) if kind == "j" else np.asarray([0.4, 2.5])
    for n in (0, 1, 2):
        for derivative in (False, True):
            expected = getattr(special, f"spherical_{kind}n")(n, x, derivative)
            found = getattr(sp, f"spherical_{kind}n")(n, tc.asarray(x), derivative)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-11, atol=1e-12)
    tc.testing.check_grads(lambda x: getattr(sp, f"spherical_{kind}n")(2, x), (tc.asarray(X),))
