"""Fused kernels and rules of neural networks: they agree with torch.autograd, are used, and have derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tape_torch import attention, convolution, fallback, nn, normalization, pooling
from torch.nn import functional

BACKEND = "torch"


def tensors(*shapes: tuple[int, ...], dtype: Any = torch.float64, seed: int = 0) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def by_tape(f: Callable[..., Any], arrays: list[Any], weight: Any) -> tuple[Any, list[Any]]:
    xs = [tc.asarray(a, backend=BACKEND) for a in arrays]
    with tc.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    found = tape.gradient(y, xs, output_gradients=tc.asarray(weight, backend=BACKEND))
    return y.array, [g.array for g in found]


def by_torch(f: Callable[..., Any], arrays: list[Any], weight: Any) -> tuple[Any, list[Any]]:
    xs = [a.detach().clone().requires_grad_() for a in arrays]
    y = f(*xs)
    return y.detach(), list(torch.autograd.grad(y, xs, weight))


LABELS = torch.arange(64) % 10

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    **{
        name: (getattr(tc, name), getattr(torch, name, None) or getattr(functional, name), [(64, 33)])
        for name in (
            "relu",
            "sigmoid",
            "tanh",
            "softplus",
            "silu",
            "gelu",
            "elu",
            "selu",
            "leaky_relu",
            "relu6",
            "mish",
        )
    },
    "softplus": (tc.softplus, functional.softplus, [(64, 33)]),
    "log_sigmoid": (tc.log_sigmoid, functional.logsigmoid, [(64, 33)]),
    "gelu, approximate": (
        lambda x: tc.gelu(x, approximate=True),
        lambda x: functional.gelu(x, approximate="tanh"),
        [(64, 33)],
    ),
    "softmax": (tc.softmax, lambda x: torch.softmax(x, -1), [(64, 100)]),
    "softmax, axis": (lambda x: tc.softmax(x, axis=1), lambda x: torch.softmax(x, 1), [(8, 50, 7)]),
    "log_softmax": (tc.log_softmax, lambda x: torch.log_softmax(x, -1), [(64, 100)]),
    "logsumexp": (lambda x: tc.logsumexp(x, axis=1), lambda x: torch.logsumexp(x, 1), [(64, 100)]),
    "cross_entropy": (
        lambda x: tc.cross_entropy(x, tc.asarray(LABELS, backend=BACKEND)),
        lambda x: functional.cross_entropy(x, LABELS, reduction="none"),
        [(64, 10)],
    ),
    "cross_entropy, many classes": (
        lambda x: tc.cross_entropy(x, tc.asarray(LABELS, backend=BACKEND)),
        lambda x: functional.cross_entropy(x, LABELS, reduction="none"),
        [(64, 5000)],
    ),
    "conv": (
        lambda x, w: tc.conv(x, w, padding=1, layout="channels_first"),
        lambda x, w: functional.conv2d(x, w, padding=1),
        [(4, 3, 16, 15), (8, 3, 3, 3)],
    ),
    "conv, channels last": (
        lambda x, w: tc.conv(x, w, stride=2, groups=2),
        lambda x, w: functional.conv2d(x.movedim(-1, 1), w.permute(3, 2, 0, 1), stride=2, groups=2).movedim(1, -1),
        [(4, 16, 15, 4), (3, 3, 2, 8)],
    ),
    "conv_transpose": (
        lambda x, w: tc.conv_transpose(x, w, stride=2, padding=1, output_padding=1, layout="channels_first"),
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        [(4, 8, 7, 9), (8, 3, 3, 3)],
    ),
    "max_pool": (
        lambda x: tc.max_pool(x, 3, stride=2, padding=1, layout="channels_first"),
        lambda x: functional.max_pool2d(x, 3, 2, 1),
        [(4, 3, 17, 16)],
    ),
    "max_pool, channels last": (
        lambda x: tc.max_pool(x, 2),
        lambda x: functional.max_pool3d(x.movedim(-1, 1), 2).movedim(1, -1),
        [(2, 6, 8, 4, 3)],
    ),
    "avg_pool": (
        lambda x: tc.avg_pool(x, 3, stride=2, padding=1, layout="channels_first"),
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        [(4, 3, 17, 16)],
    ),
    "layer_norm": (
        tc.layer_norm,
        lambda x, w, b: functional.layer_norm(x, (40,), w, b),
        [(8, 20, 40), (40,), (40,)],
    ),
    "batch_norm": (
        lambda x, w, b: tc.batch_norm(x, w, b, layout="channels_first").output,
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
        [(8, 6, 5, 4), (6,), (6,)],
    ),
    "group_norm": (
        lambda x, w, b: tc.group_norm(x, w, b, groups=3, layout="channels_first"),
        lambda x, w, b: functional.group_norm(x, 3, w, b),
        [(8, 6, 5, 4), (6,), (6,)],
    ),
    "instance_norm": (
        lambda x, w, b: tc.instance_norm(x, w, b, layout="channels_first"),
        lambda x, w, b: functional.instance_norm(x, weight=w, bias=b),
        [(8, 6, 5, 4), (6,), (6,)],
    ),
    "attention": (
        tc.scaled_dot_product_attention,
        functional.scaled_dot_product_attention,
        [(2, 3, 33, 16), (2, 3, 40, 16), (2, 3, 40, 16)],
    ),
    "attention, causal": (
        lambda q, k, v: tc.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(3, 33, 16), (3, 33, 16), (3, 33, 16)],
    ),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_autograd(case: str, dtype: Any) -> None:
    ours, theirs, shapes = CASES[case]
    arrays = tensors(*shapes, dtype=dtype)
    (weight,) = tensors(tuple(theirs(*arrays).shape), dtype=dtype, seed=1)
    value, gradients = by_tape(ours, arrays, weight)
    expected, theirs_back = by_torch(theirs, arrays, weight)
    close = 1e-9 if dtype is torch.float64 else 1e-3
    torch.testing.assert_close(value, expected, rtol=close, atol=close)
    for found, right in zip(gradients, theirs_back, strict=True):
        assert found.dtype is dtype
        torch.testing.assert_close(found, right, rtol=close, atol=10 * close)


@pytest.mark.parametrize("case", [*CASES])
def test_the_library_computes_it_and_half_precision_goes_through(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    norm = case.endswith("_norm") and case != "layer_norm"
    if case not in ("elu", "selu"):

        def never(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError(f"{case} fell back")

        for name in ("default_kernel", "declared_rule"):
            assert hasattr(fallback, name)  # else nothing below would be replaced
        for module in (fallback, nn, convolution, pooling, normalization, attention):
            for name in ("default_kernel", "declared_rule"):
                if hasattr(module, name) and not norm:
                    monkeypatch.setattr(module, name, never)
    ours, theirs, shapes = CASES[case]
    arrays = tensors(*shapes, dtype=torch.bfloat16)
    (weight,) = tensors(tuple(theirs(*tensors(*shapes, dtype=torch.float32)).shape), dtype=torch.bfloat16, seed=1)
    value, gradients = by_tape(ours, arrays, weight)
    assert value.dtype is torch.bfloat16
    assert [g.dtype for g in gradients] == [torch.bfloat16] * len(arrays)
    assert all(bool(g.isfinite().all()) for g in gradients)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_layer_norm_of_half_precision_is_that_of_autograd(dtype: Any) -> None:
    ours, theirs, shapes = CASES["layer_norm"]
    arrays = tensors(*shapes, dtype=dtype)
    (weight,) = tensors(tuple(theirs(*arrays).shape), dtype=dtype, seed=1)
    value, gradients = by_tape(ours, arrays, weight)
    expected, theirs_back = by_torch(theirs, arrays, weight)
    for found, right in zip([value, *gradients], [expected, *theirs_back], strict=True):
        assert found.dtype is dtype
        torch.testing.assert_close(found, right, rtol=0, atol=0)


SMALL: dict[str, list[tuple[int, ...]]] = {
    "gelu": [(3,)],
    "softmax": [(2, 3)],
    "max_pool": [(1, 1, 5, 5)],
    "layer_norm": [(2, 40), (40,), (40,)],
    "batch_norm": [(3, 6, 2, 1), (6,), (6,)],
    "group_norm": [(2, 6, 2, 1), (6,), (6,)],
    "attention": [(1, 1, 2, 4), (1, 1, 3, 4), (1, 1, 3, 4)],
}


@pytest.mark.parametrize("case", SMALL)
def test_second_derivatives_go_through_the_ops_own_rules(case: str) -> None:
    ours, theirs, _ = CASES[case]
    arrays = tensors(*SMALL[case])
    xs = [tc.asarray(a, backend=BACKEND) for a in arrays]
    with tc.GradientTape() as outer:
        outer.watch(xs)
        with tc.GradientTape() as inner:
            inner.watch(xs)
            y = ours(*xs)
            total = tc.sum(y * y * y)
        first = inner.gradient(total, xs)
        squares = sum(tc.sum(g * g) for g in first)
    found = outer.gradient(squares, xs)
    leaves = [a.clone().requires_grad_() for a in arrays]
    # PyTorch's fused attention has no second derivative.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        back = torch.autograd.grad((theirs(*leaves) ** 3).sum(), leaves, create_graph=True)
        expected = torch.autograd.grad(sum((g * g).sum() for g in back), leaves)
    for ours_back, right in zip(found, expected, strict=True):
        torch.testing.assert_close(ours_back.array, right, rtol=1e-7, atol=1e-7)


def test_the_variance_of_a_batch_is_exact_where_it_is_small() -> None:
    (x,) = tensors((64, 3))
    x = x * 1e-7 + 1.0
    result = tc.batch_norm(tc.asarray(x, backend=BACKEND))
    torch.testing.assert_close(result.variance.array, x.var(0, correction=0), rtol=1e-6, atol=0.0)
    tc.testing.assert_close(result.mean, x.mean(0), magnitude=abs(x).mean(0))


def test_cotangents_of_mean_and_variance_are_not_lost() -> None:
    (x,) = tensors((6, 3))
    leaf = tc.asarray(x, backend=BACKEND)
    with tc.GradientTape() as tape:
        tape.watch(leaf)
        y, mean, variance = tc.batch_norm(leaf)
        z = tc.sum(y * y * y) + tc.sum(mean * mean) + tc.sum(variance * variance)
    own = x.clone().requires_grad_()
    m, v = own.mean(0), own.var(0, correction=0)
    ((((own - m) / (v + 1e-5).sqrt()) ** 3).sum() + (m * m).sum() + (v * v).sum()).backward()
    torch.testing.assert_close(tape.gradient(z, leaf).array, own.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wrong", [-1, 10, -100])
@pytest.mark.parametrize("watched", [False, True])
def test_a_label_that_is_no_class_is_an_error(wrong: int, watched: bool) -> None:
    (x,) = tensors((4, 10))
    logits, labels = tc.asarray(x, backend=BACKEND), tc.asarray([1, 2, wrong, 3], backend=BACKEND)
    with tc.GradientTape() as tape:
        if watched:
            tape.watch(logits)
        with pytest.raises((ValueError, IndexError), match=r"labels|bounds"):
            tc.cross_entropy(logits, labels)


def test_the_gradient_of_a_maximum_is_the_firsts_also_where_all_are_infinite() -> None:
    for x in (torch.full((1, 3, 3, 1), -math.inf), torch.zeros(1, 3, 3, 1)):
        leaf = tc.asarray(x, backend=BACKEND)
        with tc.GradientTape() as tape:
            tape.watch(leaf)
            y = tc.max_pool(leaf, 2, padding="same")
        g = tape.gradient(y, leaf)[0, ..., 0]
        assert g.tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]


def test_a_tape_that_is_asked_twice_answers_twice() -> None:
    q, k, v = (tc.asarray(a, backend=BACKEND) for a in tensors((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8)))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch([q, k, v])
        y = tc.scaled_dot_product_attention(q, k, v)
    first, again = tape.gradient(y, [q, k, v]), tape.gradient(y, [q, k, v])
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a.array, b.array)
    alone = tape.gradient(y, k)
    assert torch.equal(alone.array, first[1].array)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_of_equal_maxima_the_first_is_found_as_pytorch_finds_it(data: Any) -> None:
    sizes = st.integers(1, 4)
    window, stride = data.draw(st.tuples(sizes, sizes)), data.draw(st.tuples(sizes, sizes))
    shape = (2, 3, *(k + data.draw(st.integers(0, 5)) for k in window))
    values = data.draw(st.lists(st.sampled_from([-1.0, 0.0, 2.0, math.inf]), min_size=5, max_size=20))
    x = torch.tensor(values).repeat(-(-math.prod(shape) // len(values)))[: math.prod(shape)].reshape(shape)
    leaf = x.clone().requires_grad_()
    expected = functional.max_pool2d(leaf, window, stride)
    (gradient,) = torch.autograd.grad(
        expected, leaf, weight := torch.arange(1.0, expected.numel() + 1).view_as(expected)
    )
    with tc.GradientTape() as tape:
        tape.watch(ours := tc.asarray(x))
        y = tc.max_pool(ours, window, stride=stride, layout="channels_first")
    assert torch.equal(y.array, expected)
    assert torch.equal(tape.gradient(y, ours, output_gradients=tc.asarray(weight)).array, gradient)


def test_a_maximum_that_is_nan_is_found() -> None:
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 1, 2] = math.nan
    with tc.GradientTape() as tape:
        tape.watch(ours := tc.asarray(x))
        y = tc.max_pool(ours, 2, layout="channels_first")
    assert y.array.isnan().flatten().tolist() == [False, True, False, False]
    gradient = tape.gradient(y, ours).array
    assert gradient[0, 0, 1, 2] == 1
    assert gradient.sum() == 4
