"""Functions of neural networks: values, special values, ties and errors. (Derivatives: see test_ops.)"""

from __future__ import annotations

import math
from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from tape_conformance.references.neural_networks import REFERENCES
from tape_core.backends import ArrayAPIBackend
from tape_core.extend import Draw, Op, Refused, Sample, registry
from tape_core.ops.nn import convolution

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)
STRICT = ArrayAPIBackend("strict", array_api_strict)


def samples(name: str) -> list[Sample]:
    declared = registry[name].samples
    assert declared is not None
    return [s for s in declared(Draw(1)) if not isinstance(s, Refused)]


CASES = [pytest.param(registry[name], s, id=f"{name}-{k}") for name in REFERENCES for k, s in enumerate(samples(name))]


def on(backend: Any, value: Any) -> Any:
    """An argument of a sample on a backend."""
    if isinstance(value, list):
        return [on(backend, v) for v in value]
    return tc.asarray(value.numpy(), backend=backend) if isinstance(value, tc.Tensor) else value


def results(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple) else [out]


def values_and_gradients(op: Op, sample: Sample, backend: Any) -> list[Any]:
    args = [on(backend, a) for a in sample.args]
    leaves = [v for a in args for v in (a if isinstance(a, list) else [a]) if isinstance(v, tc.Tensor)]
    leaves = [v for v in leaves if v.dtype.inexact]
    with tc.GradientTape() as tape:
        tape.watch(leaves)
        out = results(op.function(*args, **sample.kwargs))
        seen = sample.observed(tc, *out)
        total = sum(tc.sum(tc.abs(o) ** 2) for o in (seen if isinstance(seen, tuple) else (seen,)))
    found = tape.gradient(total, leaves, unconnected_gradients="zero")
    assert all(o.backend.name == backend for o in out) or backend is STRICT
    return [*(o.numpy() for o in out), *(g.numpy() for g in found)]


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_values_agree_with_the_reference(op: Op, sample: Sample) -> None:
    args = [[x.numpy() for x in a] if isinstance(a, list) else a.numpy() if isinstance(a, tc.Tensor) else a
            for a in sample.args]  # fmt: skip
    expected = results(REFERENCES[op.name](*args, **sample.kwargs))
    for out, value in zip(results(op.function(*sample.args, **sample.kwargs)), expected, strict=True):
        assert out.shape == np.shape(value)
        np.testing.assert_allclose(out.numpy(), value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_the_kernels_of_the_standard_alone_agree_with_numpys(op: Op, sample: Sample) -> None:
    found, expected = (values_and_gradients(op, sample, backend) for backend in (STRICT, "numpy"))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def gradient(f: Any, *xs: Any) -> Any:
    tensors = [tc.asarray(x, dtype="float64") for x in xs]
    with tc.GradientTape() as tape:
        tape.watch(tensors)
        y = f(*tensors)
    found = tape.gradient(y, tensors)
    return found[0].numpy() if len(xs) == 1 else [g.numpy() for g in found]


# -- pad


@FAST
@given(
    mode=st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_pad_is_numpys(mode: Any, shape: list[int], data: Any) -> None:
    widths = [(data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))) for _ in shape]
    x = np.arange(math.prod(shape)).reshape(shape)
    assert np.array_equal(tc.pad(tc.asarray(x), widths, mode).numpy(), np.pad(x, widths, mode))


def test_pad_keeps_the_dtype() -> None:
    for dtype in ("float32", "int8", "bool", "complex64"):
        assert str(tc.pad(tc.zeros(2, dtype=dtype), 1, constant_values=1).dtype) == dtype


# -- convolution


@FAST
@given(n=st.integers(1, 8), k=st.integers(1, 8), mode=st.sampled_from(["full", "same", "valid"]))
def test_convolve_is_numpys(n: int, k: int, mode: Any) -> None:
    a, v = np.arange(n) + 1.0, np.arange(k) - 2.0
    for backend in ("numpy", STRICT):
        out = tc.convolve(tc.asarray(a, backend=backend), tc.asarray(v, backend=backend), mode)
        np.testing.assert_allclose(out.numpy(), np.convolve(a, v, mode))


@FAST
@given(data=st.data(), layout=st.sampled_from(["channels_last", "channels_first"]), groups=st.integers(1, 3))
def test_any_convolution(data: Any, layout: Any, groups: int) -> None:
    m = data.draw(st.integers(1, 2))

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(m))

    kernel, stride, dilation = numbers(1, 3), numbers(1, 3), numbers(1, 3)
    padding = data.draw(st.sampled_from(["same", tuple(zip(numbers(0, 2), numbers(0, 2), strict=True))]))
    sizes = tuple((k - 1) * d + 1 + n for k, d, n in zip(kernel, dilation, numbers(0, 4), strict=True))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    last = layout == "channels_last"
    x = rng.standard_normal((2, *sizes, 2 * groups) if last else (2, 2 * groups, *sizes))
    w = rng.standard_normal((*kernel, 2, groups) if last else (groups, 2, *kernel))
    given: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    given |= {"groups": groups, "layout": layout}
    a, b = tc.asarray(x), tc.asarray(w)
    out = tc.conv(a, b, **given)
    np.testing.assert_allclose(out.numpy(), REFERENCES["conv"](x, w, **given), atol=1e-12)
    # What is transposed: <conv(x), g> = <x, conv_transpose(g)>.
    g = tc.asarray(rng.standard_normal(out.shape))
    dx, dw = gradient(lambda a, b: tc.sum(tc.conv(a, b, **given) * g), x, w)
    assert np.sum(dx * x) == pytest.approx(tc.sum(out * g).item())
    assert np.sum(dw * w) == pytest.approx(tc.sum(out * g).item())
    if padding != "same" and all(n >= 1 for n in sizes):
        back = tc.conv_transpose(g, b, **given)
        np.testing.assert_allclose(back.numpy(), REFERENCES["conv_transpose"](g.numpy(), w, **given), atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 4, 4, 4)), rng.standard_normal((2, 3, 4 // groups, 6))

    def everything() -> list[Any]:
        f = lambda x, w: tc.sum(tc.conv(x, w, groups=groups, padding="same") ** 2)  # noqa: E731
        return gradient(f, x, w)  # type: ignore[no-any-return]

    whole = everything()
    monkeypatch.setattr(convolution, "_MAX_CHUNK_ELEMENTS", 500)
    monkeypatch.setattr(convolution, "_COLUMNS_BELOW", 0)
    for a, b in zip(everything(), whole, strict=True):
        tc.testing.assert_close(a, b, rtol=1e-12)


def test_a_transposed_convolution_with_same_padding_multiplies_the_lengths() -> None:
    x, w = tc.ones((1, 3, 5, 2)), tc.ones((2, 3, 4, 2))
    assert tc.conv_transpose(x, w, stride=(2, 3), padding="same").shape == (1, 6, 15, 4)
    assert tc.conv(tc.ones((1, 6, 15, 4)), w, stride=(2, 3), padding="same").shape == x.shape


# -- pooling


@pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])
@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]),
        ([-math.inf, -math.inf, 1.0, -math.inf], [1.0, 0.0, 1.0, 0.0]),
        ([1.0, math.nan, math.nan, math.nan], [0.0, 1.0, 1.0, 0.0]),
    ],
    ids=["ties", "-inf", "nan"],
)
def test_the_first_of_the_greatest_elements_gets_the_gradient(backend: Any, x: Any, expected: Any) -> None:
    t = tc.asarray(x, dtype="float64", backend=backend)
    with tc.GradientTape() as tape:
        tape.watch(t)
        y = tc.max_pool(tc.reshape(t, (1, 4, 1)), 2)
    np.testing.assert_equal(y.numpy()[0, :, 0], [np.max(x[:2]), np.max(x[2:])])
    assert tape.gradient(y, t).tolist() == expected


@pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])
def test_padding_never_gets_the_gradient_of_a_maximum(backend: Any) -> None:
    t = tc.asarray([[[-math.inf], [-math.inf]]], dtype="float64", backend=backend)
    with tc.GradientTape() as tape:
        tape.watch(t)
        y = tc.max_pool(t, 2, stride=1, padding=1)
    assert y.tolist() == [[[-math.inf]] * 3]
    assert tape.gradient(y, t).tolist() == [[[2.0], [1.0]]]


def test_an_infinite_cotangent_of_a_maximum_makes_no_nan() -> None:
    x = tc.asarray([[[1.0], [2.0]]])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.max_pool(x, 2)
    assert tape.gradient(y, x, output_gradients=tc.asarray([[[math.inf]]])).tolist() == [[[0.0], [math.inf]]]


def test_a_maximum_of_integers_is_padded_with_their_least() -> None:
    x = tc.asarray([[[-5], [-7]]], dtype="int8")
    assert tc.max_pool(x, 2, stride=1, padding=1).tolist() == [[[-5], [-5], [-7]]]


# -- normalisation


def test_batch_norm_by_layouts_and_with_given_statistics() -> None:
    rng = np.random.default_rng(0)
    x, scale, offset = (rng.standard_normal(shape) for shape in ((4, 3, 2, 5), (5,), (5,)))
    out, mean, variance = tc.batch_norm(tc.asarray(x), tc.asarray(scale), tc.asarray(offset))
    np.testing.assert_allclose(mean.numpy(), x.mean((0, 1, 2)))
    np.testing.assert_allclose(variance.numpy(), x.var((0, 1, 2)))
    expected = (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5) * scale + offset
    np.testing.assert_allclose(out.numpy(), expected)
    first = tc.batch_norm(
        tc.asarray(np.moveaxis(x, -1, 1)), tc.asarray(scale), tc.asarray(offset), layout="channels_first"
    )
    np.testing.assert_allclose(np.moveaxis(first.output.numpy(), 1, -1), expected)
    again = tc.batch_norm(tc.asarray(x), tc.asarray(scale), tc.asarray(offset), mean, variance)
    np.testing.assert_allclose(again.output.numpy(), expected)
    given = gradient(lambda m, v: tc.sum(tc.batch_norm(tc.asarray(x), None, None, m, v).output), mean, variance)
    np.testing.assert_allclose(given[0], -24 / np.sqrt(variance.numpy() + 1e-5))


def test_the_statistics_of_a_batch_have_gradients() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3))
    found = gradient(lambda t: tc.sum(tc.batch_norm(t).mean * 2.0) + tc.sum(tc.batch_norm(t).variance), x)
    np.testing.assert_allclose(found, 2 / 4 + (x - x.mean(0)) * 2 / 4)


def test_group_and_instance_norm() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    grouped = tc.group_norm(tc.asarray(x), groups=2).numpy()
    for i, g in ((0, 0), (1, 1)):
        part = x[i, :, 2 * g : 2 * g + 2]
        np.testing.assert_allclose(grouped[i, :, 2 * g : 2 * g + 2], (part - part.mean()) / np.sqrt(part.var() + 1e-5))
    each = tc.instance_norm(tc.asarray(x)).numpy()
    np.testing.assert_allclose(each, tc.group_norm(tc.asarray(x), groups=4).numpy())
    scale = np.arange(4.0)
    first = tc.group_norm(tc.asarray(np.moveaxis(x, -1, 1)), tc.asarray(scale), groups=2, layout="channels_first")
    np.testing.assert_allclose(np.moveaxis(first.numpy(), 1, -1), grouped * scale)


def test_normalisation_of_equal_elements_is_finite() -> None:
    for f in (tc.layer_norm, tc.rms_norm):
        assert np.isfinite(gradient(lambda x, f=f: tc.sum(f(x) ** 2), [[0.0, 0.0]])).all()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: tc.layer_norm(x, axis=3), "layer_norm: axis 3 is out of bounds"),
        (lambda x: tc.group_norm(x, groups=3), "groups must be a positive integer that divides the 4 channels"),
        (lambda x: tc.group_norm(x, tc.ones(2), groups=2), r"scale must have shape \(4,\)"),
        (lambda x: tc.batch_norm(x, None, None, tc.ones(4)), "both mean and variance"),
        (lambda x: tc.batch_norm(x, layout="NC"), "layout must be"),
        (lambda x: tc.instance_norm(x), "3 dimensions or more"),
        (lambda x: tc.dropout(x, 1.5), "rate must be from 0 to 1"),
        (lambda x: tc.dropout(x, 0.5, noise_shape=(3, 4)), "noise_shape"),
        (lambda x: tc.glu(x, axis=2), "glu: axis 2"),
    ],
)
def test_errors_name_the_function_and_the_argument(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(tc.ones((2, 4)))


# -- attention


def attention(mask: Any = None, **kwargs: Any) -> Any:
    def f(*xs: Any) -> Any:
        return tc.sum(tc.scaled_dot_product_attention(*xs, mask, **kwargs) ** 2)

    rng = np.random.default_rng(0)
    xs = [rng.standard_normal((3, 4)) for _ in range(3)]
    return xs, f


@pytest.mark.parametrize("additive", [False, True], ids=["boolean", "additive"])
def test_a_query_without_a_key_gets_zeros_and_no_gradient(additive: bool) -> None:
    allowed = np.asarray([[True, False, True], [False, False, False], [True, True, True]])
    mask = tc.asarray(np.where(allowed, 0.0, -np.inf) if additive else allowed)
    xs, f = attention(mask)
    out = tc.scaled_dot_product_attention(*map(tc.asarray, xs), mask)
    assert out[1, :].tolist() == [0.0] * 4
    found = gradient(f, *xs)
    assert all(np.isfinite(g).all() for g in found)
    assert not found[0][1].any()
    rest = [0, 2]
    alone = tc.scaled_dot_product_attention(
        tc.asarray(xs[0][rest]), tc.asarray(xs[1]), tc.asarray(xs[2]), tc.asarray(allowed[rest])
    )
    np.testing.assert_allclose(out.numpy()[rest], alone.numpy())


def test_no_keys_at_all() -> None:
    q, k, v = tc.ones((2, 3)), tc.ones((0, 3)), tc.ones((0, 4))
    assert tc.scaled_dot_product_attention(q, k, v).tolist() == [[0.0] * 4] * 2


def test_large_scores_do_not_overflow() -> None:
    xs, f = attention()
    found = gradient(f, 1e4 * xs[0], 1e4 * xs[1], xs[2])
    assert all(np.isfinite(g).all() for g in found)


def test_causal_goes_with_a_mask() -> None:
    xs, _ = attention()
    tensors = [tc.asarray(x) for x in xs]
    mask = tc.asarray(np.asarray([True, False, True]))
    both = tc.asarray(np.tri(3, dtype=bool) & mask.numpy())
    np.testing.assert_allclose(
        tc.scaled_dot_product_attention(*tensors, mask, is_causal=True).numpy(),
        tc.scaled_dot_product_attention(*tensors, both).numpy(),
    )


# -- dropout


def test_dropout_scales_what_it_keeps_and_drops_the_same_of_the_gradient() -> None:
    x = tc.ones((100, 100))
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.dropout(x, 0.25, rng=tc.default_rng(0))
    found = tape.gradient(y, x)
    assert set(np.unique(y.numpy()).tolist()) == {0.0, np.float32(1 / 0.75).item()}
    assert np.mean(y.numpy() == 0) == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(found.numpy(), y.numpy())
    assert str(y.dtype) == str(found.dtype) == "float32"


def test_dropout_is_the_same_on_every_backend_and_by_seed() -> None:
    drawn = [
        tc.dropout(tc.ones((3, 4), backend=backend), 0.5, rng=tc.default_rng(7)).tolist()
        for backend in ("numpy", STRICT, "numpy")
    ]
    assert drawn[0] == drawn[1] == drawn[2]
    tc.set_seed(3)
    first = tc.dropout(tc.ones(50), 0.5).tolist()
    tc.set_seed(3)
    assert tc.dropout(tc.ones(50), 0.5).tolist() == first


def test_what_is_dropped_is_0_also_where_it_is_infinite() -> None:
    x = tc.asarray([math.inf, math.nan])
    assert tc.dropout(x, 1.0).tolist() == [0.0, 0.0]


def test_dropout_of_whole_channels() -> None:
    y = tc.dropout(tc.ones((4, 5, 6)), 0.5, rng=tc.default_rng(0), noise_shape=(4, 1, 6)).numpy()
    assert (y == y[:, :1]).all()
    assert len(np.unique(y)) == 2


# -- activations


@pytest.mark.parametrize(
    ("name", "at", "value", "slope"),
    [
        ("elu", -math.inf, -1.0, 0.0),
        ("elu", 1000.0, 1000.0, 1.0),
        ("selu", 0.0, 0.0, 1.6732632423543772 * 1.0507009873554805),
        ("leaky_relu", 0.0, 0.0, 0.01),
        ("relu6", 6.0, 6.0, 0.0),
        ("hard_sigmoid", -3.0, 0.0, 0.0),
        ("hard_silu", -math.inf, 0.0, 0.0),
        ("hard_silu", 3.0, 3.0, 1.0),
        ("log_sigmoid", -1000.0, -1000.0, 1.0),
        ("log_sigmoid", 1000.0, 0.0, 0.0),
        ("mish", 1000.0, 1000.0, 1.0),
    ],
)
def test_activations_at_kinks_and_far_out(name: str, at: float, value: float, slope: float) -> None:
    f = getattr(tc, name)
    with np.errstate(all="ignore"):
        assert f(tc.asarray(at, dtype="float64")).item() == pytest.approx(value)
        assert gradient(f, at) == pytest.approx(slope)
        assert math.isnan(f(tc.asarray(math.nan)).item())
