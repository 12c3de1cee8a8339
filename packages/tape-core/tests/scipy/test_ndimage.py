"""Functions of `tape_core.scipy.ndimage`: SciPy's values and arguments, and derivatives, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from scipy_names import check, check_signature

theirs = pytest.importorskip("scipy.ndimage")
own = tc.scipy.ndimage

pytestmark = pytest.mark.each_backend

RNG = np.random.default_rng(0)
X = RNG.standard_normal(7)
M = RNG.standard_normal((5, 4))
LARGE = RNG.standard_normal((13, 12))  # SciPy's splines miss the elements of small images with "reflect"
V = RNG.standard_normal((3, 4, 3))
W = RNG.standard_normal(4)
K = RNG.standard_normal((3, 2))
INSIDE = np.asarray([[0.3, 1.6, 3.4, 2.2], [0.7, 2.4, 1.3, 0.4]])
AROUND = np.asarray([[-0.7, 1.6, 5.4, 2.2, -7.3], [0.7, -2.4, 1.3, 4.4, 8.2]])
MATRIX = np.asarray([[0.9, 0.2], [-0.1, 1.1]])
MODES = ("reflect", "constant", "nearest", "mirror", "wrap")
MORE = (*MODES, "grid-constant", "grid-wrap", "grid-mirror")


def called(name: str, *after: Any, **options: Any) -> Callable[[Any], Callable[..., Any]]:
    return lambda m: lambda *xs: getattr(m, name)(*xs, *after, **options)


CASES: dict[str, tuple[Callable[[Any], Callable[..., Any]], tuple[Any, ...]]] = {
    **{
        f"{name}, {mode}": (called(name, mode=mode, cval=0.4, origin=origin, axis=0), (M, W))
        for name in ("correlate1d", "convolve1d")
        for mode, origin in zip(MODES, (0, 1, -1, 0, 0), strict=True)
    },
    **{
        f"{name}, {mode}": (called(name, mode=mode, cval=0.4, origin=origin), (M, K))
        for name in ("correlate", "convolve")
        for mode, origin in zip(MODES, (0, (1, 0), (-1, -1), 0, 0), strict=True)
    },
    **{f"gaussian_filter1d, {order}": (called("gaussian_filter1d", 0.8, order=order), (M,)) for order in range(4)},
    "gaussian_filter": (called("gaussian_filter", 0.7), (M,)),
    "gaussian_filter, each": (called("gaussian_filter", [0.7, 1.1], order=[1, 0], mode=["wrap", "nearest"]), (M,)),
    "gaussian_filter, axes": (called("gaussian_filter", 0.7, axes=(0, 2), radius=2), (V,)),
    "uniform_filter1d": (called("uniform_filter1d", 4, mode="mirror", origin=1), (X,)),
    "uniform_filter": (called("uniform_filter", (3, 2), origin=(0, -1)), (M,)),
    "uniform_filter, axes": (called("uniform_filter", 2, axes=1, mode="constant"), (V,)),
    "laplace": (called("laplace", mode="wrap"), (M,)),
    "sobel": (called("sobel", axis=0), (V,)),
    "prewitt": (called("prewitt"), (M,)),
    "gaussian_laplace": (called("gaussian_laplace", 0.8), (M,)),
    "gaussian_gradient_magnitude": (called("gaussian_gradient_magnitude", 0.8, truncate=3.0), (M,)),
    "maximum_filter": (called("maximum_filter", 3), (M,)),
    "maximum_filter, footprint": (called("maximum_filter", footprint=[[0, 1, 0], [1, 1, 0]], origin=(0, 1)), (M,)),
    "minimum_filter": (called("minimum_filter", (2, 3), mode="constant", cval=-0.2), (M,)),
    **{
        f"map_coordinates, {order} {mode}": (
            called("map_coordinates", order=order, mode=mode, cval=0.3),
            (LARGE if mode in ("reflect", "grid-mirror") else M, AROUND),
        )
        for order in range(6)
        for mode in MORE
        if order in (1, 3) or mode in ("constant", "mirror", "reflect")
    },
    "map_coordinates, inside": (called("map_coordinates"), (M, INSIDE)),
    "map_coordinates, coefficients": (called("map_coordinates", prefilter=False), (M, INSIDE)),
    "spline_filter": (called("spline_filter", 4), (M,)),
    "spline_filter, wrap": (called("spline_filter", 3, mode="grid-wrap"), (M,)),
    "shift": (lambda m: lambda x: m.shift(x, (0.3, -0.6), mode="nearest"), (M,)),
    "shift, one": (called("shift", 0.4, order=1), (M,)),
    "zoom": (called("zoom", 1.5, mode="mirror"), (M,)),
    "zoom, each": (called("zoom", (0.6, 2.0), order=1), (M,)),
    "affine_transform": (lambda m: lambda x: m.affine_transform(x, MATRIX, (0.1, 0.2), order=1), (M,)),
    "affine_transform, diagonal": (lambda m: lambda x: m.affine_transform(x, (0.9, 0.7), output_shape=(3, 5)), (M,)),
    "affine_transform, homogeneous": (
        lambda m: lambda x: m.affine_transform(x, np.concatenate([MATRIX, [[0.2], [0.4]]], axis=1), mode="wrap"),
        (M,),
    ),
    "rotate": (called("rotate", 33.0), (M,)),
    "rotate, same size": (called("rotate", 70.0, reshape=False, mode="mirror", order=2), (M,)),
    "rotate, planes": (called("rotate", 20.0, axes=(0, 2), order=1), (V,)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_has_scipys_values_and_derivatives_however_it_is_run(name: str) -> None:
    function, arrays = CASES[name]
    check(function(own), function(theirs), *arrays, rtol=1e-7, slope=1e-5)


def test_each_function_is_checked_and_has_scipys_arguments() -> None:
    assert {*own.__all__} == {name.partition(",")[0] for name in CASES}
    for name in own.__all__:
        if name != "spline_filter":  # whose `output` is a dtype of NumPy's
            check_signature(getattr(own, name), getattr(theirs, name))


def test_shifts_matrices_angles_and_widths_have_derivatives_too() -> None:
    x = tc.asarray(M)
    for f, start in (
        (lambda s: own.shift(x, s, mode="mirror"), [0.3, -0.6]),
        (lambda m: own.affine_transform(x, m, order=3, mode="reflect"), MATRIX),
        (lambda by: own.affine_transform(x, MATRIX, by, mode="reflect"), [0.1, 0.3]),
        (lambda angle: own.rotate(x, angle, reshape=False, mode="reflect"), 33.0),
        (lambda s: own.gaussian_filter1d(x, s, radius=3), 0.8),
    ):
        tc.testing.check_grads(f, [tc.asarray(start, dtype=tc.float64)])
    np.testing.assert_allclose(
        tc.function(lambda s: own.gaussian_filter1d(x, s, radius=3))(tc.asarray(0.8, dtype=tc.float64)).numpy(),
        theirs.gaussian_filter1d(M, 0.8, radius=3),
    )


@pytest.mark.parametrize("mode", MORE)
def test_splines_go_through_the_elements(mode: str) -> None:
    places = np.indices(M.shape).astype("float64")
    for order in range(6):
        found = own.map_coordinates(tc.asarray(M), tc.asarray(places), order=order, mode=mode)
        np.testing.assert_allclose(found.numpy(), M, rtol=1e-10, atol=1e-10)


def test_what_does_not_go_is_refused_by_name() -> None:
    x = tc.asarray(M)
    with pytest.raises(NotImplementedError, match=r"scipy\.ndimage\.zoom: grid_mode=True has no counterpart"):
        own.zoom(x, 2.0, grid_mode=True)
    with pytest.raises(NotImplementedError, match=r"scipy\.ndimage\.sobel: output= has no counterpart"):
        own.sobel(x, output=np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mode must be one of 'reflect', .*got 'circular'"):
        own.laplace(x, mode="circular")
    with pytest.raises(ValueError, match="coordinates must have one row for each of 2 axes, got 3"):
        own.map_coordinates(x, tc.zeros((3, 2)))
    with pytest.raises(ValueError, match="order must be one of 0, 1, 2, 3, 4, 5; got 6"):
        own.shift(x, 0.5, order=6)


@pytest.mark.parametrize("name", ["gaussian_filter", "map_coordinates"])
def test_scipys_own_function_names_the_counterpart(name: str) -> None:
    x = tc.Variable(M)
    with tc.GradientTape(), pytest.warns(UserWarning, match=rf"tape_core\.scipy\.ndimage\.{name}, which has a deriv"):
        getattr(theirs, name)(x, INSIDE if name == "map_coordinates" else 1.0)
