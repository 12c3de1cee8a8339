"""Calls of `scipy.integrate`, `optimize`, `differentiate`, `interpolate` and `sparse`."""

from __future__ import annotations

import numpy as np

from cases import SciPy

_random = np.random.default_rng(0)
INTEGRATE = SciPy(
    "scipy.integrate",
    "import numpy as np\nfrom scipy import stats\nfrom scipy.integrate import *",
    {
        "x": _random.uniform(0.3, 0.9, 9),
        "y": _random.uniform(0.3, 0.9, 9),
        "p": np.asarray([1.3, 0.7]),
        "s": np.asarray(0.8),
        "low": np.asarray([0.0]),
        "high": np.asarray([1.0]),
        "times": np.asarray([0.0, 0.5, 1.0]),
    },
    """
trapezoid(x, dx=0.5)
trapezoid(x, y)
cumulative_trapezoid(x, dx=0.5, initial=0)
simpson(x, dx=0.5)
simpson(x, np.arange(9.0))
cumulative_simpson(x, dx=0.5)
romb(x, dx=0.5)
fixed_quad(lambda t: t * s, 0.0, 1.0)[0]
quad(lambda t: t * s, 0.0, 1.0)[0]
quad(np.exp, 0.0, s)[0]
quad_vec(lambda t: t * p, 0.0, 1.0)[0]
quad_vec(np.exp, 0.0, s)[0]
dblquad(lambda t, u: t * u * s, 0.0, 1.0, 0.0, 1.0)[0]
nquad(lambda t, u: t * u * s, [(0.0, 1.0), (0.0, 1.0)])[0]
qmc_quad(lambda t: t[0] * s, 0.0, 1.0, n_points=8, qrng=stats.qmc.Halton(1, rng=0)).integral
cubature(lambda t: np.exp(-t * s), low, high).estimate
cubature(lambda t: np.exp(-t), 0 * p, p).estimate
tanhsinh(lambda t, q: np.exp(-t * q), 0 * p, p, args=(p,)).integral
nsum(lambda k, q: 1 / k ** (2 + q), high, 10 * high, args=(p,)).sum
solve_ivp(lambda t, u: -u * s, (0.0, 1.0), p).y
solve_ivp(lambda t, u: -u, (0.0, 1.0), p, method="Radau").y
odeint(lambda u, t: -u * s, p, times)
""",
    fixed="low high times",
)

OPTIMIZE = SciPy(
    "scipy.optimize",
    "import numpy as np\nfrom scipy.optimize import *\nfrom scipy.optimize import elementwise",
    {
        "x": np.asarray([1.2, 0.7, 0.9]),
        "y": np.asarray([0.4, 1.1, 0.8]),
        "s": np.asarray(1.4),
        "X": _random.uniform(0.3, 0.9, (4, 3)),
        "b": np.asarray([0.4, 1.1, 0.8, 0.3]),
        "C": _random.uniform(0.3, 0.9, (3, 3)),
        "one": np.ones(3),
        "steps": np.asarray([1.0, 2.0, 3.0]),
        "minus": -np.eye(3),
    },
    """
rosen(x)
rosen_der(x)
rosen_hess(x)
rosen_hess_prod(x, y)
elementwise.find_root(lambda z, q: z * z - q, (0 * x, 0 * x + 2), args=(x,)).x
elementwise.find_minimum(lambda z, q: (z - q) ** 2, (0 * x, 0 * x + 0.5, 0 * x + 3), args=(x,)).x
brentq(lambda z: z * z - s, 0.0, 2.0)
bisect(lambda z: z * z - s, 0.0, 2.0)
toms748(lambda z: z * z - s, 0.0, 2.0)
newton(lambda z: z * z - s, 1.0)
newton(lambda z: z * z - x, one)
root_scalar(lambda z: z * z - s, bracket=(0.0, 2.0)).root
root(lambda z: z * z - x, one).x
fsolve(lambda z: z * z - x, one)
fixed_point(lambda z: np.sqrt(z + s), 1.0)
broyden1(lambda z: z * z - x, one, f_tol=1e-9)
minimize(lambda z: np.sum((z - x) ** 4 + z * z), one).x
minimize(lambda z: np.sum((z - 1.0) ** 4), x).x
minimize_scalar(lambda z: (z - s) ** 2).x
brent(lambda z: (z - s) ** 2)
fmin_bfgs(lambda z: np.sum((z - x) ** 2), one, disp=0)
least_squares(lambda z: z * z - x, one).x
leastsq(lambda z: z * z - x, one)[0]
curve_fit(lambda t, a: a * t, steps, x)[0]
lsq_linear(X, b).x
nnls(X, b)[0]
linprog(x, A_ub=minus, b_ub=-y).x
linear_sum_assignment(C)[1]
isotonic_regression(x).x
approx_fprime(x, rosen)
check_grad(rosen, rosen_der, x)
differential_evolution(lambda z: np.sum((z - x) ** 2), [(0, 2)] * 3, rng=0, maxiter=2, polish=False).x
""",
    fixed="one steps minus",
)

DIFFERENTIATE = SciPy(
    "scipy.differentiate",
    "import numpy as np\nfrom scipy.differentiate import *",
    {"x": np.asarray([1.2, 0.7, 0.9])},
    """
derivative(lambda z: z**3, x).df
jacobian(lambda z: z**3, x).df
hessian(lambda z: np.sum(z**3, axis=0), x).ddf
""",
)

INTERPOLATE = SciPy(
    "scipy.interpolate",
    "import numpy as np\nfrom scipy.interpolate import *",
    {
        "k": np.asarray([0.0, 1.1, 2.0, 3.2, 4.0, 5.1]),
        "y": np.asarray([0.3, 0.6, 0.45, 0.8, 0.2, 0.5]),
        "x": np.asarray([0.4, 1.7, 2.9]),
        "Y": _random.uniform(0.3, 0.9, (6, 6)),
        "P": np.concatenate([_random.uniform(0.3, 0.9, (4, 2)), [[0.0, 0.1], [1.1, 0.0], [0.1, 1.2], [0.9, 1.0]]]),
        "Q": np.asarray([[0.5, 0.55], [0.6, 0.5]]),
        "v": _random.uniform(0.3, 0.9, 8),
        "c": _random.uniform(0.3, 0.9, (4, 5)),
        "places": np.arange(10.0),
        "ends": np.asarray([-0.1] * 4 + [5.2] * 4),
    },
    """
CubicSpline(k, y)(x)
PchipInterpolator(k, y)(x)
Akima1DInterpolator(k, y)(x)
CubicHermiteSpline(k, y, y)(x)
make_interp_spline(k, y)(x)
make_lsq_spline(k, y, ends)(x)
make_smoothing_spline(k, y)(x)
make_splrep(k, y)(x)
BSpline(places, y, 3)(x + 3)
PPoly(c, k)(x)
BarycentricInterpolator(k, y)(x)
KroghInterpolator(k, y)(x)
FloaterHormannInterpolator(k, y)(x)
AAA(k, y)(x)
interp1d(k, y)(x)
interp1d(k, y, kind="nearest")(x)
InterpolatedUnivariateSpline(k, y)(x)
UnivariateSpline(k, y)(x)
splev(x, splrep(k, y))
pchip_interpolate(k, y, x)
barycentric_interpolate(k, y, x)
krogh_interpolate(k, y, x)
lagrange(k, y).coef
pade(y, 2)[0].coef
RegularGridInterpolator((k, k), Y)(Q)
interpn((k, k), Y, Q)
RectBivariateSpline(k, k, Y)(0.3, 0.4)
griddata(P, v, Q)
LinearNDInterpolator(P, v)(Q)
NearestNDInterpolator(P, v)(Q)
RBFInterpolator(P, v)(Q)
""",
    fixed="places ends",
)

SPARSE = SciPy(
    "scipy.sparse",
    "import numpy as np\nfrom scipy.sparse import *\nfrom scipy.sparse import linalg",
    {
        "S": _random.uniform(0.1, 0.6, (3, 3)) + 2 * np.eye(3),
        "b": np.asarray([0.3, 0.8, 0.5]),
        "one": np.ones(3),
    },
    """
csr_array(S) @ one
csr_array(np.eye(3)) @ b
csr_array(np.eye(3)).dot(b)
(csr_array(np.eye(3)) * b).toarray()
diags_array([b], offsets=[0]).toarray()
coo_array((b, ([0, 1, 2], [0, 1, 2])), shape=(3, 3)).toarray()
linalg.spsolve(csc_array(2 * np.eye(3)), b)
linalg.cg(csr_array(2 * np.eye(3)), b)[0]
linalg.gmres(csr_array(2 * np.eye(3)), b)[0]
linalg.cg(S @ S.T, one, rtol=1e-12)[0]
linalg.expm_multiply(csr_array(np.eye(3)), b)
linalg.norm(csr_array(S))
linalg.aslinearoperator(S) @ one
""",
    fixed="one",
)

SECTIONS = [INTEGRATE, OPTIMIZE, DIFFERENTIATE, INTERPOLATE, SPARSE]
