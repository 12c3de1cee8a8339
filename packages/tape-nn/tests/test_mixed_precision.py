"""Half precision: layers that compute in it, and losses that are scaled for it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn

LAYERS: list[Any] = [
    pytest.param(lambda: nn.Dense(3, activation="relu"), (4, 5), id="Dense"),
    pytest.param(lambda: nn.Conv1D(3, 2), (2, 5, 4), id="Conv1D"),
    pytest.param(lambda: nn.Conv2D(3, 2, layout="channels_first"), (2, 4, 5, 5), id="Conv2D"),
    pytest.param(lambda: nn.BatchNorm(), (6, 4), id="BatchNorm"),
    pytest.param(lambda: nn.LayerNorm(), (6, 4), id="LayerNorm"),
    pytest.param(lambda: nn.RMSNorm(), (6, 4), id="RMSNorm"),
    pytest.param(lambda: nn.LSTM(3, return_sequences=True), (2, 5, 4), id="LSTM"),
    pytest.param(lambda: nn.GRU(3), (2, 5, 4), id="GRU"),
]


def gradients_of(model: nn.Module, x: Any) -> tuple[Any, list[Any]]:
    with tc.GradientTape() as tape:
        y = model(x)  # type: ignore[operator]
        loss = tc.sum(tc.astype(y, tc.float32) ** 2)
    return y, tape.gradient(loss, model.trainable_variables)


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_layers_compute_in_half_precision(make: Any, shape: tuple[int, ...]) -> None:
    x = tc.default_rng(0).normal(shape)
    tc.set_seed(1)
    single = make()
    expected, theirs = gradients_of(single, x)
    tc.set_seed(1)
    layer = nn.mixed_precision(make(), tc.float16)
    y, gradients = gradients_of(layer, x)
    assert (y.dtype, expected.dtype) == (tc.float16, tc.float32)
    assert {v.dtype for v in layer.variables} == {tc.float32}
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=0.01, atol=0.005)
    for gradient, exact in zip(gradients, theirs, strict=True):
        assert gradient.dtype is tc.float32
        np.testing.assert_allclose(gradient.numpy(), exact.numpy(), rtol=0.03, atol=0.03)


def test_attention_and_embedding() -> None:
    ids = tc.asarray([[1, 2, 3]])
    embedding = nn.mixed_precision(nn.Embedding(10, 4))
    with tc.GradientTape() as tape:
        rows = embedding(ids)
        loss = tc.sum(tc.astype(rows, tc.float32))
    gradient = tape.gradient(loss, embedding.embeddings)
    assert (rows.dtype, type(gradient), gradient.dtype) == (tc.float16, tc.IndexedSlices, tc.float32)
    attention = nn.mixed_precision(nn.MultiHeadAttention(2, 3))
    assert attention(tc.ones((1, 3, 4)), tc.ones((1, 3, 4))).dtype is tc.float16
    assert {v.dtype for v in attention.variables} == {tc.float32}


def test_normalisation_does_not_overflow() -> None:
    x = tc.asarray([[300.0, -300.0, 600.0, 900.0]])  # their squares are beyond float16
    for layer in (nn.LayerNorm(), nn.RMSNorm()):
        expected = layer(x)
        np.testing.assert_allclose(nn.mixed_precision(layer)(x).numpy(), expected.numpy(), rtol=0.01)
    nn.mixed_precision(normalisation := nn.BatchNorm())(tc.concat([x, -x]))
    assert normalisation.moving_variance is not None
    assert normalisation.moving_variance.dtype is tc.float32
    assert math.isfinite(float(tc.sum(normalisation.moving_variance)))


def test_switching() -> None:
    model = nn.Sequential([nn.Dense(3), nn.Dense(2)])
    assert nn.mixed_precision(model, "float16") is model
    assert model(tc.ones((2, 2))).dtype is tc.float16
    model[1].compute_dtype = None  # type: ignore[attr-defined]
    assert model(tc.ones((2, 2))).dtype is tc.float32
    nn.mixed_precision(model, None)
    assert model[0](tc.ones((2, 2))).dtype is tc.float32


def test_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="must be real floating-point, such as 'float16'; got int32"):
        nn.mixed_precision(nn.Dense(1), "int32")
    with pytest.raises(TypeError, match="unknown dtype 'half'"):
        nn.mixed_precision(nn.Dense(1), "half")
    with pytest.raises(ValueError, match="no layer with Variables"):
        nn.mixed_precision(nn.Sequential([nn.Flatten()]))
    backend = tc.ones(1, backend="numpy").backend
    monkeypatch.setattr(backend, "_raw_dtypes", {})
    monkeypatch.setattr(backend, "foreign_dtype", super(type(backend), backend).foreign_dtype)
    layer = nn.mixed_precision(nn.Dense(1), "bfloat16")
    with pytest.raises(TypeError, match="backend 'numpy' has no dtype bfloat16"):
        layer(tc.ones((1, 1), backend="numpy"))
    with pytest.raises(TypeError, match="backend 'numpy' has no dtype bfloat16"):
        layer.build((None, 1), backend="numpy")
        nn.mixed_precision(layer, "bfloat16")


def data() -> tuple[tc.Tensor, tc.Tensor]:
    x = tc.default_rng(0).normal((256, 2))
    return x, tc.astype(x[:, 0] * x[:, 1] > 0, tc.int64)


def accuracy(dtype: str | None, scaled: bool) -> float:
    tc.set_seed(2)
    hidden = [nn.Dense(32, activation="tanh"), nn.BatchNorm(momentum=0.8), nn.Dense(32, activation="relu")]
    model = nn.Sequential([*hidden, nn.Dense(2)])
    if dtype is not None:
        nn.mixed_precision(model, dtype)
    optimizer: Any = nn.LossScaler(nn.Adam(0.01)) if scaled else nn.Adam(0.01)
    loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    nn.fit(model, data(), loss=loss, optimizer=optimizer, epochs=20, progress=False, seed=0)
    assert {v.dtype for v in model.variables} == {tc.float32}
    return nn.evaluate(model, data(), metrics=[nn.metrics.SparseCategoricalAccuracy("accuracy")])["accuracy"]


def test_a_net_learns_as_well_in_float16() -> None:
    single = accuracy(None, False)
    assert single > 0.93
    assert accuracy("float16", True) == pytest.approx(single, abs=0.02)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_net_learns_as_well_in_bfloat16(backend: str) -> None:
    pytest.importorskip("torch" if backend == "torch" else "ml_dtypes")
    with tc.use_backend(backend):
        assert accuracy("bfloat16", False) == pytest.approx(accuracy(None, False), abs=0.03)


def test_small_gradients_are_lost_without_scaling() -> None:
    """The loss is so small that its gradient is 0 in float16; scaled, it is that of float32."""

    def moved(optimizer: Any) -> float:
        model = nn.mixed_precision(nn.Dense(1, use_bias=False, kernel_initializer="ones"))
        x = tc.ones((1, 1))
        nn.fit(model, (x, x), loss=lambda y, p: 1e-8 * tc.astype(p, tc.float32), optimizer=optimizer, progress=False)
        assert model.kernel is not None
        return model.kernel.item() - 1.0

    assert moved(nn.SGD(1e7)) == 0.0
    assert moved(nn.LossScaler(nn.SGD(1e7))) == pytest.approx(-0.1, rel=1e-3)


def test_a_trajectory_with_overflow() -> None:
    """By hand: SGD with momentum 0.5 and rate 1; the second gradient is not finite."""
    w, table = tc.Variable([4.0]), tc.Variable([[1.0], [2.0]])
    inner = nn.SGD(1.0, momentum=0.5)
    scaler = nn.LossScaler(inner, initial_scale=8.0, growth_interval=2, growth_factor=4.0, backoff_factor=0.5)
    seen = []
    for gradient in (1.0, math.inf, 1.0, math.nan, 2.0, 1.0, 0.0):
        slices = tc.IndexedSlices(tc.asarray([[gradient * scaler.scale]]), tc.asarray([1]), (2, 1))
        scaler.apply_gradients([(tc.asarray([gradient * scaler.scale]), w), (slices, table)])
        seen.append((w.item(), table.tolist(), scaler.scale, scaler.iterations, scaler.skipped))
    # The momentum m = m / 2 - g, and w = w + m: m is -1, then -1.5, -2.75, -2.375, -1.1875.
    assert seen == [
        (3.0, [[1.0], [1.0]], 8.0, 1, 0),
        (3.0, [[1.0], [1.0]], 4.0, 1, 1),  # nothing moves, and the count of good updates begins anew
        (1.5, [[1.0], [-0.5]], 4.0, 2, 1),
        (1.5, [[1.0], [-0.5]], 2.0, 2, 2),
        (-1.25, [[1.0], [-3.25]], 2.0, 3, 2),
        (-3.625, [[1.0], [-5.625]], 8.0, 4, 2),  # two in a row
        (-4.8125, [[1.0], [-6.8125]], 8.0, 5, 2),
    ]


def test_all_gradients_are_looked_at() -> None:
    variables = [tc.Variable([1.0]), tc.Variable([2.0]), tc.Variable([3.0])]
    scaler = nn.LossScaler(nn.SGD(1.0), 1.0)
    for gradients in ([[1.0], [math.inf], None], [[math.nan], None, [1.0]], [None, [1.0], [-math.inf]]):
        scaler.apply_gradients(zip(gradients, variables, strict=True))
    assert [v.item() for v in variables] == [1.0, 2.0, 3.0]
    assert (scaler.skipped, scaler.iterations) == (3, 0)


def test_a_scale_that_stays() -> None:
    w = tc.Variable([1.0])
    scaler = nn.LossScaler(nn.SGD(0.5), 4.0, growth_interval=None)
    for gradient in (4.0, math.inf, 4.0):
        scaler.apply_gradients([([gradient], w)])
    assert (w.item(), scaler.scale, scaler.skipped) == (0.0, 4.0, 1)


def test_losses_are_scaled_in_single_precision() -> None:
    scaler = nn.LossScaler(nn.SGD(0.5))
    scaled = scaler.scale_loss(tc.asarray(100.0, dtype=tc.float16))
    assert (scaled.dtype, scaled.item()) == (tc.float32, 100 * 2.0**15)
    assert nn.SGD(0.5).scale_loss(3.0) == 3.0


def test_a_loss_that_is_not_finite_is_no_matter_of_scale() -> None:
    w = tc.Variable([1.0])
    scaler = nn.LossScaler(nn.SGD(0.5))
    with pytest.raises(FloatingPointError, match=r"not finite with the scale .*check_numerics=True"):
        for _ in range(100):
            scaler.apply_gradients([([math.nan], w)])
    assert w.item() == 1.0


def test_state_of_a_scaler() -> None:
    w = tc.Variable([1.0])

    def make() -> nn.LossScaler:
        return nn.LossScaler(nn.Adam(0.5), growth_interval=3)

    scaler = make()
    for gradient in (1.0, math.inf, 1.0, 1.0):
        scaler.apply_gradients([([gradient], w)])
    state = scaler.state_dict({"w": w})
    again = make()
    again.load_state_dict(state, {"w": w})
    assert (again.scale, again.skipped, again.iterations) == (2.0**14, 1, 3)
    again.apply_gradients([([1.0], w)])
    assert again.scale == 2.0**15
    again.learning_rate = 0.25
    assert again.optimizer.learning_rate == again.learning_rate == 0.25
    with pytest.raises(ValueError, match="'loss_scale' is missing: this is no state of a LossScaler"):
        again.load_state_dict(again.optimizer.state_dict({"w": w}), {"w": w})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"initial_scale": 0}, "initial_scale must be above 0", id="scale"),
        pytest.param({"growth_interval": 0}, "growth_interval must be at least 1", id="interval"),
        pytest.param({"growth_factor": 1}, "growth_factor must be more than 1", id="growth"),
        pytest.param({"backoff_factor": 1}, "backoff_factor must be between 0 and 1", id="backoff"),
    ],
)
def test_numbers_of_a_scaler(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.LossScaler(nn.SGD(0.1), **options)
    with pytest.raises(TypeError, match="optimizer must be one"):
        nn.LossScaler("adam")  # type: ignore[arg-type]
