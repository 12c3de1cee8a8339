"""cdist on PyTorch: its kernels agree with torch.autograd and are used, but not where they would lose accuracy."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tape_core as tc
import torch
from tape_torch import distances, fallback

SHAPES = [
    ((5, 3), (4, 3)),
    ((2, 5, 3), (2, 4, 3)),
    ((2, 1, 5, 3), (3, 4, 3)),
    ((5, 3), (2, 4, 3)),
    ((0, 3), (4, 3)),
    ((2, 5, 3), (2, 0, 3)),
    ((5, 0), (4, 0)),
]


def tensors(*shapes: tuple[int, ...], dtype: Any = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def by_tape(x1: Any, x2: Any, weight: Any, p: float) -> tuple[Any, list[Any]]:
    xs = [tc.asarray(x, backend="torch") for x in (x1, x2)]
    with tc.GradientTape() as tape:
        tape.watch(xs)
        y = tc.cdist(*xs, p=p)
    found = tape.gradient(y, xs, output_gradients=tc.asarray(weight, backend="torch"))
    return y.array, [g.array for g in found]


def by_torch(x1: Any, x2: Any, weight: Any, p: float) -> tuple[Any, list[Any]]:
    xs = [x.detach().clone().requires_grad_() for x in (x1, x2)]
    y = torch.cdist(xs[0], xs[1], p=p, compute_mode="donot_use_mm_for_euclid_dist")
    return y.detach(), list(torch.autograd.grad(y, xs, weight))


def weight_of(x1: Any, x2: Any) -> Any:
    shape = (*torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2]), x2.shape[-2], x1.shape[-2])
    return tensors(shape, dtype=x1.dtype)[0].mT  # not contiguous


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, math.inf])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_autograd(shapes: Any, p: float) -> None:
    x1, x2 = tensors(*shapes)
    weight = weight_of(x1, x2)
    (y, found), (y0, expected) = by_tape(x1, x2, weight, p), by_torch(x1, x2, weight, p)
    torch.testing.assert_close(y, y0, rtol=1e-12, atol=1e-12)
    for g, g0, x in zip(found, expected, (x1, x2), strict=True):
        assert g.shape == x.shape
        torch.testing.assert_close(g, g0, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, math.inf])
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_where_rows_or_elements_are_the_same_nothing_flows(p: float, backend: str) -> None:
    x = tc.asarray([[1.0, 2.0], [1.0, 5.0]], dtype="float64", backend=backend)
    with tc.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.cdist(x, tc.asarray([[1.0, 2.0]], dtype="float64", backend=backend), p=p)
        (g,) = tape.gradient(y, [x])
    assert y[0, 0].item() == 0
    assert y[1, 0].item() == pytest.approx(1 if p == 0 else 3)
    assert g[0, :].tolist() == [0.0, 0.0]
    assert g[1, :].tolist() == [0.0, pytest.approx(0 if p == 0 else 1)]
    second = outer.gradient(g, x)
    assert second is None or all(math.isfinite(v) for row in second.tolist() for v in row)


@pytest.mark.parametrize("p", [1, 1.5, 2])
def test_both_sides_of_the_same_rows_agree_with_autograd(p: float) -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 5.0], [1.0, 2.0]], dtype=torch.float64)
    weight = weight_of(x, x)
    for g, g0 in zip(by_tape(x, x, weight, p)[1], by_torch(x, x, weight, p)[1], strict=True):
        torch.testing.assert_close(g, g0, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_at_infinity_equal_elements_share_the_gradient(backend: str) -> None:
    x1 = tc.asarray([[3.0, -3.0, 1.0, 0.0]], backend=backend)
    x2 = tc.zeros_like(x1)
    with tc.GradientTape() as tape:
        tape.watch([x1, x2])
        y = tc.cdist(x1, x2, p=math.inf)
    g1, g2 = tape.gradient(y, [x1, x2])
    assert g1.tolist() == [[0.5, -0.5, 0.0, 0.0]]
    assert g2.tolist() == [[-0.5, 0.5, 0.0, 0.0]]


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, math.inf])
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_nan_is_not_lost(p: float, backend: str) -> None:
    x1 = tc.asarray([[1.0, math.nan], [math.nan, 1.0], [0.0, 0.0]], backend=backend)
    y = tc.cdist(x1, tc.zeros((1, 2), backend=backend), p=p)
    assert [math.isnan(v) for v in tc.reshape(y, (-1,)).tolist()] == [True, True, False]


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_0_counts_infinities_that_are_the_same_as_the_same(backend: str) -> None:
    x1 = tc.asarray([[math.inf, 1.0, -0.0]], backend=backend)
    x2 = tc.asarray([[math.inf, 1.0, 0.0], [-math.inf, 1.0, 1e-40]], backend=backend)
    with tc.GradientTape() as tape:
        tape.watch(x1)
        y = tc.cdist(x1, x2, p=0)
    assert y.tolist() == [[0.0, 2.0]]
    assert tape.gradient(y, x1).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("backend", ["torch", "numpy"])
@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_large_powers_neither_overflow_nor_vanish(size: float, backend: str) -> None:
    x1 = tc.asarray([[size, -size]], dtype="float64", backend=backend)
    with tc.GradientTape() as tape:
        tape.watch(x1)
        y = tc.cdist(x1, tc.zeros_like(x1), p=400)
    g = tape.gradient(y, x1)
    assert y.item() == pytest.approx(size * 2 ** (1 / 400), rel=1e-12, abs=0)
    assert g.tolist()[0] == pytest.approx([2 ** (1 / 400 - 1), -(2 ** (1 / 400 - 1))], rel=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_close_rows_far_out_keep_their_distance(p: float) -> None:
    x1 = torch.full((40, 3), 1e6, dtype=torch.float64)
    x2 = x1.clone()
    x2[:, 0] += 0.5
    assert by_tape(x1, x2, torch.ones(40, 40, dtype=torch.float64), p)[0].unique().tolist() == [0.5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", [1, 2])
def test_half_precision_works(dtype: Any, p: float) -> None:
    x1, x2 = tensors((5, 3), (4, 3), dtype=dtype)
    weight = weight_of(x1, x2)
    y, found = by_tape(x1, x2, weight, p)
    y0, expected = by_torch(x1.double(), x2.double(), weight.double(), p)
    assert y.dtype is dtype
    torch.testing.assert_close(y.double(), y0, rtol=0.05, atol=0.05)
    for g, g0 in zip(found, expected, strict=True):
        assert g.dtype is dtype
        torch.testing.assert_close(g.double(), g0, rtol=0.1, atol=0.1)


def test_two_dtypes_are_promoted_and_gradients_have_their_own() -> None:
    x1, x2 = tensors((5, 3), (4, 3))
    y, found = by_tape(x1, x2.float(), weight_of(x1, x2), 2)
    assert [a.dtype for a in (y, *found)] == [torch.float64, torch.float64, torch.float32]


def test_torch_computes_it_and_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("left to the op")

    monkeypatch.setattr(distances, "default_kernel", refuse)
    monkeypatch.setattr(distances, "declared_rule", refuse)
    assert distances.default_kernel is not fallback.default_kernel
    x1, x2 = tensors((5, 3), (4, 3))
    for p in (0.5, 1, 1.5, 2):
        by_tape(x1, x2, weight_of(x1, x2), p)
    with pytest.raises(AssertionError, match="left to the op"):
        by_tape(x1, x2, weight_of(x1, x2), 3)


def test_the_differences_are_not_laid_out() -> None:
    x = torch.zeros(2000, 500_000, device="meta")
    assert distances.KERNELS["cdist"](x, x).shape == (2000, 2000)


def test_second_derivatives_are_those_of_the_formula() -> None:
    x1, x2 = (tc.asarray(x, backend="torch") for x in tensors((5, 3), (4, 3)))

    def second(f: Any) -> Any:
        with tc.GradientTape() as outer:
            outer.watch([x1, x2])
            with tc.GradientTape() as tape:
                tape.watch(x1)
                y = f(x1, x2)
            g = tape.gradient(y, x1)
            z = tc.sum(g * g * g)
        return outer.gradient(z, [x1, x2])

    for a, b in zip(
        second(lambda a, b: tc.cdist(a, b, p=1.5)),
        second(lambda a, b: tc.sum(tc.abs(a[:, None, :] - b) ** 1.5, axis=-1) ** (1 / 1.5)),
        strict=True,
    ):
        torch.testing.assert_close(a.array, b.array, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, math.inf])
def test_on_a_gpu_it_is_the_same(p: float) -> None:
    x1, x2 = tensors((2, 1, 5, 3), (3, 4, 3))
    weight = weight_of(x1, x2)
    y0, expected = by_tape(x1, x2, weight, p)
    y, found = by_tape(x1.cuda(), x2.cuda(), weight.cuda(), p)
    for a, b in zip((y, *found), (y0, *expected), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-10, atol=1e-10)
