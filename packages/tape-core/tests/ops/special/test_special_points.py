"""Derivatives of special functions where a formula is 0 / 0, or a limit that is a constant: at 0, and near it.

The expected values are those of power series, and of mpmath's functions with 50 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tape_core as tc

pytest.importorskip("scipy.special")
sp = tc.special

PI = math.pi

# A function, or one of its results; the point; by which arguments it is differentiated, in turn; the derivative.
Row = tuple[str, tuple[float, ...], tuple[int, ...], float]


def by_order(name: str, point: float, *derivatives: float) -> list[Row]:
    """The first, second, ... derivative of a function of one argument."""
    return [(name, (point,), (0,) * k, value) for k, value in enumerate(derivatives, 1)]


def of_order(name: str, n: float, point: float, *derivatives: float) -> list[Row]:
    """The first, second, ... derivative of a function with an order, by its argument."""
    return [(name, (n, point), (1,) * k, value) for k, value in enumerate(derivatives, 1)]


# Where nc is 0, the density of df degrees of freedom has the derivative (density(df + 2) - density(df)) / 2 by nc.
CHNDTR_CENTRAL = {
    (2,): -0.11539974210409144,
    (2, 2): 0.04038990973643201,
    (0, 2): -0.05769987105204572,
    (2, 0): -0.05769987105204572,
    (0, 2, 2): 0.008654980657806857,
    (2, 0, 2): 0.008654980657806857,
    (2, 2, 0): 0.008654980657806857,
    (0, 0, 2): 0.04808322587670477,
    (0, 2, 0): 0.04808322587670477,
}
CHNDTR_AT_0 = {(0, 2): -1 / 4, (2, 0): -1 / 4, (0, 2, 2): 1 / 8, (2, 0, 2): 1 / 8, (2, 0, 0): 1 / 4, (0, 2, 0): 1 / 4}

VOIGT = (-6.366197691844824e-13, 1.909859301187249e-16, -7.639437172918004e-20)
Y11, Y20 = math.sqrt(3 / (8 * PI)), math.sqrt(5 / (4 * PI))

ROWS: list[Row] = [
    *of_order("spherical_jn", 0, 0.0, 0, -1 / 3, 0),
    *of_order("spherical_jn", 1, 0.0, 1 / 3, 0, -1 / 5),
    *of_order("spherical_jn", 2, 0.0, 0, 2 / 15, 0),
    *of_order("spherical_jn", 3, 0.0, 0, 0, 2 / 35),
    *of_order("spherical_in", 0, 0.0, 0, 1 / 3, 0),
    *of_order("spherical_in", 1, 0.0, 1 / 3, 0, 1 / 5),
    *of_order("spherical_in", 2, 0.0, 0, 2 / 15, 0),
    *of_order("spherical_jn", 0, 1e-6, -1e-6 / 3, -1 / 3, 2e-7),
    *of_order("spherical_in", 1, -1e-6, 1 / 3, -2e-7, 1 / 5),
    *of_order("spherical_jn slope", 0, 0.0, -1 / 3, 0, 1 / 5),
    *of_order("spherical_jn slope", 1, 0.0, 0, -1 / 5, 0),
    *of_order("spherical_in slope", 2, 1e-6, 2 / 15, 0.4e-6 * 2 / 7, 0.4 * 2 / 7),
    *by_order("sici 0", 0.0, 1, 0, -1 / 3),
    *by_order("sici 0", -1e-6, 1, 1e-6 / 3, -1 / 3),
    *by_order("shichi 0", 0.0, 1, 0, 1 / 3),
    *by_order("shichi 0", 1e-6, 1, 1e-6 / 3, 1 / 3),
    *by_order("it2j0y0 0", 0.0, 0, 1 / 4, 0, -3 / 32),
    *by_order("it2j0y0 0", 1e-6, 1e-6 / 4, 1 / 4, -3e-6 / 32),
    *by_order("it2i0k0 0", 0.0, 0, 1 / 4, 0, 3 / 32),
    *by_order("it2struve0", 0.0, -2 / PI, 0, 4 / (9 * PI)),
    *by_order("it2struve0", 1e-6, -2 / PI, 4e-6 / (9 * PI), 4 / (9 * PI)),
    *by_order("itstruve0", 0.0, 0, 2 / PI, 0),
    *by_order("itmodstruve0", 0.0, 0, 2 / PI, 0),
    *of_order("struve", 0, 0.0, 2 / PI, 0, -4 / (3 * PI)),
    *of_order("struve", 1, 0.0, 0, 4 / (3 * PI), 0),
    *of_order("struve", -1, 0.0, 0, -4 / (3 * PI), 0),
    *of_order("struve", 0, 1e-6, 2 / PI, -4e-6 / (3 * PI), -4 / (3 * PI)),
    *of_order("modstruve", 0, 0.0, 2 / PI, 0, 4 / (3 * PI)),
    *of_order("modstruve", 1, 0.0, 0, 4 / (3 * PI), 0),
    *of_order("modstruve", -1, 0.0, 0, 4 / (3 * PI), 0),
    *by_order("ber", 0.0, 0, 0, 0, -3 / 8),
    *by_order("bei", 0.0, 0, 1 / 2, 0, 0),
    *by_order("berp", 0.0, 0, 0, -3 / 8),
    *by_order("beip", 0.0, 1 / 2, 0, 0),
    *by_order("berp", 1e-6, -3e-12 / 16, -3e-6 / 8, -3 / 8),
    *by_order("i1", 0.0, 1 / 2, 0, 3 / 8),
    *by_order("i1", 1e-6, 1 / 2, 3e-6 / 8, 3 / 8),
    *by_order("airye 2", 0.0, 0.4482883573538264, -math.inf),
    *by_order("airye 2", -0.5, 0.5059337136238472, -0.1901763298755269, 0.1273858029391303),
    *of_order("gammainc", 2.0, 0.0, 0, 1, -2),
    *of_order("gammainc", 3.0, 0.0, 0, 0, 1),
    *of_order("gammaincc", 1.0, 0.0, -1, 1, -1),
    *[("betainc", (1.0, 2.0, 0.0), (2,) * k, value) for k, value in enumerate((2, -2, 0), 1)],
    *[("betainc", (2.0, 3.0, 0.0), (2,) * k, value) for k, value in enumerate((0, 12, -48), 1)],
    *[("betainc", (2.0, 1.0, 1.0), (2,) * k, value) for k, value in enumerate((2, 2, 0), 1)],
    *[("bdtr", (1, 3, 0.0), (2,) * k, value) for k, value in enumerate((0, -6, 12), 1)],
    *[("chndtr", (1.5, 3.0, 0.0), by, value) for by, value in CHNDTR_CENTRAL.items()],
    *[("chndtr", (0.0, 2.0, 0.0), by, value) for by, value in CHNDTR_AT_0.items()],
    *by_order("rgamma", 0.0, 1, 1.1544313298030657, -3.9352684291215234),
    *by_order("rgamma", -1.0, -1, 0.8455686701969343, 7.39856241853072),
    *by_order("zeta", -1e-6, -0.9189365268512192, -2.0063504512094164, -6.004687169819066),
    *by_order("dawsn", 1e4, -5.000000075e-9, 1.00000003e-12, -3.00000015e-16),
    # n * (n - 1) / 2 and n * (n - 1) * (n - 2) / 6; where n is 2 k, too
    *[("binom", (1.0, 2.0), (0,) * k, value) for k, value in enumerate((1 / 2, 1, 0), 1)],
    *[("binom", (4.0, 2.0), (0,) * k, value) for k, value in enumerate((7 / 2, 1, 0), 1)],
    *[("binom", (0.0, 3.0), (0,) * k, value) for k, value in enumerate((1 / 3, -1, 1), 1)],
    # z * (z + 1) * (z + 2)
    *[("poch", (0.0, 3.0), (0,) * k, value) for k, value in enumerate((2, 6, 6), 1)],
    *[("poch", (-1.0, 3.0), (0,) * k, value) for k, value in enumerate((-1, 0, 6), 1)],
    ("poch", (-2.0, 2.0), (0,), -3),
    ("poch", (-2.0, 2.0), (1,), math.inf),
    # the wing of a Lorentz profile
    *[("voigt_profile", (1e4, 0.5, 1.0), (0,) * k, value) for k, value in enumerate(VOIGT, 1)],
    ("beta", (-0.5, 0.5), (0,), -2 * PI),
    *[("boxcox", (0.0, 2.0), (0,) * k, value) for k, value in enumerate((0, 1, 0), 1)],
    *[("boxcox1p", (-1.0, 3.0), (0,) * k, value) for k, value in enumerate((0, 0, 2), 1)],
    *[("boxcox", (1e-6, 2.0), (0,) * k, value) for k, value in enumerate((1e-6, 1), 1)],
    ("boxcox", (1.0, 0.0), (0,), 1),
    ("boxcox", (1.0, 0.0), (0, 0, 1), 1),
    *[("eval_sh_jacobi", (0, 0.0, 1.0, 0.5), (k,), 0) for k in (1, 2, 3)],
    # the polar angle is 0: the harmonics of order 0 are polynomials in its cosine, those of order 1 times its sine
    *[("sph_harm_y real", (2, 0, 0.0, 0.5), (2,) * k, value) for k, value in enumerate((0, -3 * Y20, 0), 1)],
    *[("sph_harm_y real", (1, 1, 0.0, 0.0), (2,) * k, value) for k, value in enumerate((-Y11, 0, Y11), 1)],
    *by_order("sinc", 0.0, 0, -(PI**2) / 3, 0),
    *by_order("exprel", 0.0, 1 / 2, 1 / 3, 1 / 4),
]  # fmt: skip


def function(name: str) -> Callable[..., tc.Tensor]:
    name, _, part = name.partition(" ")
    f = getattr(sp, name)
    if part == "real":
        return lambda *args: tc.real(f(*args))
    if part == "slope":
        return lambda *args: f(*args, True)
    return f if not part else lambda *args: f(*args)[int(part)]


def derivative(f: Any, args: Sequence[Any], by: tuple[int, ...], forward: Sequence[bool]) -> float:
    """A derivative of f, in forward or reverse mode for each of the arguments that it is taken by."""
    for k, is_forward in zip(by, forward, strict=True):

        def slope(*args: Any, f: Any = f, k: int = k, is_forward: bool = is_forward) -> Any:
            def of_one(x: Any) -> Any:
                return f(*args[:k], x, *args[k + 1 :])

            if is_forward:
                return tc.jvp(of_one, (args[k],), (tc.ones_like(args[k]),))[1]
            return tc.grad(of_one)(args[k])

        f = slope
    return float(f(*args))


@pytest.mark.parametrize(
    ("name", "point", "by", "expected"), ROWS, ids=lambda v: str(v) if type(v) is not float else ""
)
def test_a_derivative_at_a_special_point(name: str, point: Any, by: tuple[int, ...], expected: float) -> None:
    args = [tc.asarray(x, dtype="float64") if isinstance(x, float) else x for x in point]
    ways = {(False,) * len(by), (True,) * len(by), (False,) * (len(by) - 1) + (True,)}
    for way in ways:
        found = derivative(function(name), args, by, way)
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-14 if abs(expected) > 1e-9 or not expected else 0), way
