"""Layers: building, modes, masks, messages."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from hypothesis import given, settings
from hypothesis import strategies as st

LAYERS: list[tuple[Any, tuple[int, ...], tuple[int, ...]]] = [
    (lambda: nn.Dense(3), (2, 4), (2, 3)),
    (lambda: nn.Conv1D(3, 2), (2, 5, 4), (2, 4, 3)),
    (lambda: nn.Conv2D(3, 2, padding="same"), (2, 5, 5, 4), (2, 5, 5, 3)),
    (lambda: nn.Conv3D(3, 2, layout="channels_first"), (2, 4, 3, 3, 3), (2, 3, 2, 2, 2)),
    (lambda: nn.BatchNorm(), (3, 4), (3, 4)),
    (lambda: nn.LayerNorm(), (3, 4), (3, 4)),
    (lambda: nn.RMSNorm(axis=(1, 2)), (3, 4, 2), (3, 4, 2)),
    (lambda: nn.LSTM(3, return_sequences=True), (2, 5, 4), (2, 5, 3)),
    (lambda: nn.GRU(3), (2, 5, 4), (2, 3)),
]
IDS = [type(make()).__name__ for make, *_ in LAYERS]


@pytest.mark.parametrize(("make", "shape", "out"), LAYERS, ids=IDS)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_variables_are_like_the_first_input(
    make: Any, shape: tuple[int, ...], out: tuple[int, ...], backend: str
) -> None:
    if backend == "torch":
        pytest.importorskip("torch")
    layer = make()
    assert not layer.built
    assert layer.variables == ()
    x = tc.default_rng(0).normal(shape, dtype=tc.float64, backend=backend)
    with tc.GradientTape() as tape:
        y = layer(x)
        loss = tc.sum(y * y)
    assert (y.shape, y.dtype, y.backend.name) == (out, tc.float64, backend)
    assert layer.built
    assert {(v.dtype, v.backend.name) for v in layer.variables} == {(tc.float64, backend)}
    gradients = tape.gradient(loss, layer.trainable_variables)
    assert [g.shape for g in gradients] == [v.shape for v in layer.trainable_variables]
    # build makes the same Variables as the first call.
    names = [(name, v.shape) for name, v in layer.named_variables()]
    built = make()
    built.build((None, *shape[1:]), dtype="float64", backend=backend)
    assert [(name, v.shape) for name, v in built.named_variables()] == names
    built.load_state_dict(layer.state_dict())
    np.testing.assert_allclose(built.eval()(x).numpy(), layer.eval()(x).numpy())


@pytest.mark.parametrize(("make", "shape", "out"), LAYERS, ids=IDS)
def test_integers_count_as_floats(make: Any, shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    layer = make()
    y = layer(np.ones(shape, dtype=np.int32))
    assert (y.shape, y.dtype) == (out, tc.float32)


@pytest.mark.parametrize(("make", "shape", "out"), LAYERS, ids=IDS)
def test_wrong_shapes_name_the_layer(make: Any, shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    name = type(make()).__name__
    with pytest.raises(ValueError, match=f"^{name} takes inputs of shape .*; got shape \\(\\)"):
        make()(tc.ones(()))
    with pytest.raises(ValueError, match=f"^{name}: the length of .* must be known; got shape"):
        make().build((None,) * len(shape))
    layer = make()
    layer.build(shape)
    variables = layer.variables
    other = tuple(n + 1 for n in shape)
    message = f"{name} was built for inputs with "
    with pytest.raises(ValueError, match=f"^{message}.*; got shape {re.escape(str(other))}"):
        layer(tc.ones(other))
    with pytest.raises(ValueError, match=f"^{message}"):
        layer.build(other)
    layer.build(shape)
    assert layer.variables == variables


def test_a_failed_build_leaves_nothing() -> None:
    layer = nn.Dense(3, bias_initializer=lambda shape, **_: tc.ones(7))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Dense: the initializer of bias made shape \(7,\), not \(3,\)"):
            layer(tc.ones((1, 2)))
        assert layer.variables == ()


def test_not_built_inside_vmap() -> None:
    layer = nn.Dense(3)
    with pytest.raises(ValueError, match=r"Dense cannot be built inside vmap: call build\(input_shape\) before"):
        tc.vmap(layer)(tc.ones((4, 2)))
    layer.build((2,))
    assert tc.vmap(layer)(tc.ones((4, 2))).shape == (4, 3)


def test_recurrent_layers_inside_vmap() -> None:
    x = tc.default_rng(0).normal((3, 2, 4, 5))
    for layer in (nn.LSTM(3), nn.GRU(3)):
        layer.build((None, 4, 5))
        expected = np.stack([layer(one).numpy() for one in x])
        np.testing.assert_allclose(tc.vmap(layer)(x).numpy(), expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(4, 7), min_size=1, max_size=3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.sampled_from(["valid", "same", 0, 1]),
    first=st.booleans(),
)
def test_shapes_of_convolutions(sizes: list[int], kernel: int, stride: int, padding: Any, first: bool) -> None:
    n = len(sizes)
    options: Any = {"stride": stride, "padding": padding, "layout": "channels_first" if first else "channels_last"}

    def shape(channels: int, lengths: list[int]) -> tuple[int, ...]:
        return (2, channels, *lengths) if first else (2, *lengths, channels)

    x = tc.ones(shape(3, sizes))
    if padding == "same":
        lengths = [-(-size // stride) for size in sizes]
    else:
        pad = 0 if padding == "valid" else padding
        lengths = [(size + 2 * pad - kernel) // stride + 1 for size in sizes]
    assert getattr(nn, f"Conv{n}D")(4, kernel, **options)(x).shape == shape(4, lengths)
    if padding != 1 or kernel > 1:  # no window may see nothing but padding
        assert getattr(nn, f"MaxPool{n}D")(kernel, **options)(x).shape == shape(3, lengths)


def test_both_layouts_start_with_the_same_numbers() -> None:
    x = tc.default_rng(0).normal((2, 5, 6, 3))
    last = nn.Conv2D(4, (2, 3), rng=tc.default_rng(1))
    first = nn.Conv2D(4, (2, 3), layout="channels_first", rng=tc.default_rng(1))
    y = tc.permute_dims(first(tc.permute_dims(x, (0, 3, 1, 2))), (0, 2, 3, 1))
    np.testing.assert_allclose(last(x).numpy(), y.numpy(), rtol=1e-5, atol=1e-6)


def test_options_of_convolutions_are_checked() -> None:
    for message, options in (
        ("Conv2D: kernel_size must be", {"kernel_size": (1, 2, 3)}),
        ("Conv2D: stride must be", {"stride": 0}),
        ("Conv2D: filters must be at least 1", {"filters": 0}),
        ("Conv2D: groups must divide filters; got 2 and 3", {"groups": 2}),
        ("Conv2D: layout must be", {"layout": "NHWC"}),
    ):
        with pytest.raises(ValueError, match=message):
            nn.Conv2D(**({"filters": 3, "kernel_size": 2} | options))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="groups must divide the channels of the input; got 3 groups"):
        nn.Conv2D(3, 1, groups=3)(tc.ones((1, 2, 2, 4)))
    with pytest.raises(ValueError, match=r"MaxPool2D takes inputs of shape \(examples, height, width, channels\)"):
        nn.MaxPool2D()(tc.ones((1, 2, 2)))


# -- modes


def test_modes_reach_everything_inside() -> None:
    drop = nn.Dropout(1.0)
    model = nn.Sequential([nn.Dense(2), tc.relu, nn.Sequential([drop])])
    x = tc.ones((1, 2))
    assert model.training
    assert model(x).tolist() == [[0, 0]]
    assert model.eval() is model
    assert not drop.training
    assert model(x).tolist() == model[:2](x).tolist()
    # A call's own word goes before the mode, and changes nothing.
    assert model(x, training=True).tolist() == [[0, 0]]
    assert not drop.training
    model.train()
    assert drop.training
    assert model(x, training=False).tolist() == model[:2](x).tolist()


def test_dropout_repeats_with_its_seed() -> None:
    x = tc.ones(200)
    layer = nn.Dropout(0.25)
    tc.set_seed(3)
    first, second = layer(x).tolist(), layer(x).tolist()
    tc.set_seed(3)
    assert layer(x).tolist() == first != second
    assert sorted(set(first)) == [0.0, pytest.approx(4 / 3)]
    assert 20 < first.count(0.0) < 80
    with pytest.raises(ValueError, match=r"Dropout: rate must be from 0 to 1; got 1.5"):
        nn.Dropout(1.5)


def test_batch_norm_moves_only_in_training() -> None:
    layer = nn.BatchNorm(momentum=0.9)
    layer.build((None, 2))
    assert [v.name for v in layer.trainable_variables] == ["gamma", "beta"]
    x = tc.asarray([[1.0, 10.0], [3.0, 30.0]])
    layer.eval()(x)
    assert layer.moving_mean is not None
    assert layer.moving_variance is not None
    assert layer.moving_mean.tolist() == [0, 0]
    layer(x, training=True)
    np.testing.assert_allclose(layer.moving_mean.numpy(), [0.2, 2], rtol=1e-6)
    np.testing.assert_allclose(layer.moving_variance.numpy(), [1, 10.9], rtol=1e-6)
    for _ in range(300):
        layer(x, training=True)
    np.testing.assert_allclose(layer(x).numpy(), layer(x, training=True).numpy(), atol=1e-3)
    with pytest.raises(ValueError, match="BatchNorm: in training there must be examples"):
        layer(tc.ones((0, 2)), training=True)
    assert bool(tc.all(tc.isfinite(layer.moving_mean)))


# -- recurrent


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_states_go_on(kind: Any) -> None:
    x = tc.default_rng(0).normal((2, 6, 3))
    layer = kind(4, return_sequences=True, return_state=True, rng=tc.default_rng(1))
    whole, *end = layer(x)
    first, *middle = layer(x[:, :2])
    rest, *again = layer(x[:, 2:], initial_state=middle)
    np.testing.assert_allclose(tc.concat([first, rest], axis=1).numpy(), whole.numpy(), rtol=1e-5, atol=1e-6)
    for a, b in zip(again, end, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    layer.return_sequences = layer.return_state = False
    np.testing.assert_array_equal(layer(x).numpy(), whole.numpy()[:, -1])
    with pytest.raises(ValueError, match=rf"{kind.__name__}: initial_state must be h.* of shape \(2, 4\); got"):
        layer(x, initial_state=[tc.ones((2, 3))] * len(end))
    with pytest.raises(ValueError, match=rf"{kind.__name__} takes inputs of a step or more"):
        layer(x[:, :0])


def test_first_weights_of_lstm() -> None:
    layer = nn.LSTM(3)
    layer.build((None, None, 2))
    assert layer.bias is not None
    assert layer.bias.tolist() == [0] * 3 + [1] * 3 + [0] * 6
    assert layer.recurrent_kernel is not None
    w = layer.recurrent_kernel.numpy()
    np.testing.assert_allclose(w @ w.T, np.eye(3), atol=1e-6)
    for kind in (nn.LSTM, nn.GRU):
        bare = kind(3, use_bias=False)
        assert bare(tc.ones((1, 2, 2))).shape == (1, 3)
        assert len(bare.variables) == 2


# -- attention


def test_attention_weights_and_masks() -> None:
    layer = nn.MultiHeadAttention(2, 3, rng=tc.default_rng(0))
    x = tc.default_rng(1).normal((2, 4, 5))
    plain = layer(x, x)
    y, weights = layer(x, x, return_attention_scores=True)
    np.testing.assert_allclose(y.numpy(), plain.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tc.sum(weights, axis=-1).numpy(), np.ones((2, 2, 4)), rtol=1e-5)
    causal, weights = layer(x, x, use_causal_mask=True, return_attention_scores=True)
    assert float(tc.max(tc.abs(tc.triu(weights, k=1)))) == 0
    tril = np.tril(np.ones((4, 4), dtype=bool))
    for mask in (tril, np.broadcast_to(tril, (2, 4, 4)), np.broadcast_to(tril, (2, 2, 4, 4))):
        np.testing.assert_allclose(layer(x, x, attention_mask=mask).numpy(), causal.numpy(), rtol=1e-5, atol=1e-6)
    # One that may attend to nothing gets the bias of the output, which starts at 0.
    nothing = tril.copy()
    nothing[1] = False
    assert layer(x, x, attention_mask=nothing)[0, 1].tolist() == [0] * 5
    with pytest.raises(ValueError, match=r"attention_mask must be boolean.*got dtype float32, shape \(4, 4\)"):
        layer(x, x, attention_mask=tc.ones((4, 4)))
    with pytest.raises(ValueError, match=r"built for key of shape \(examples, steps, 5\); got shape \(2, 4, 6\)"):
        layer(x, x, tc.ones((2, 4, 6)))


def test_attention_dropout() -> None:
    layer = nn.MultiHeadAttention(2, 3, dropout=0.5, rng=tc.default_rng(0))
    x = tc.default_rng(1).normal((2, 8, 5))
    _, weights = layer(x, x, return_attention_scores=True)
    dropped = float(tc.mean(tc.astype(weights == 0, tc.float32)))
    assert 0.3 < dropped < 0.7
    _, whole = layer(x, x, return_attention_scores=True, training=False)
    kept = weights.numpy() != 0
    np.testing.assert_allclose(weights.numpy()[kept], 2 * whole.numpy()[kept], rtol=1e-5)
    assert layer(x, x).tolist() != layer(x, x).tolist()
    assert layer.eval()(x, x).tolist() == layer(x, x).tolist()


def test_embedding() -> None:
    layer = nn.Embedding(5, 2)
    with pytest.raises(TypeError, match="Embedding takes integers; got dtype float32"):
        layer(tc.ones(2))
    assert layer([[0, 4], [-1, 2]]).shape == (2, 2, 2)
    with pytest.raises(IndexError, match="Embedding: an id is out of bounds for 5 rows"):
        layer([5])


def test_layers_can_be_copied() -> None:
    layer = nn.LSTM(2)
    x = tc.ones((1, 2, 2))
    y = layer(x)
    twin = copy.deepcopy(layer)
    assert twin(x).tolist() == y.tolist()
    assert not {id(v) for v in twin.variables} & {id(v) for v in layer.variables}


@pytest.mark.each_backend
@pytest.mark.long_on_jax
def test_a_gru_that_resets_before_the_product_composes_with_the_transforms() -> None:
    layer = nn.GRU(2, reset_after=False, return_sequences=True)
    x = tc.asarray(np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(2, 3, 2))
    y = layer(x)
    assert layer.bias.shape == (6,)
    rows = tc.vmap(lambda row: layer(row[None])[0])(x)
    np.testing.assert_allclose(rows.numpy(), y.numpy(), rtol=1e-5, atol=1e-6)

    def loss(x: tc.Tensor) -> tc.Tensor:
        return tc.sum(layer(x) ** 2)

    slope = tc.grad(loss)(x)
    np.testing.assert_allclose(tc.function(tc.grad(loss))(x).numpy(), slope.numpy(), rtol=1e-4, atol=1e-6)
    ahead = tc.jvp(loss, (x,), (tc.ones_like(x),))[1]
    np.testing.assert_allclose(ahead.numpy(), np.sum(slope.numpy()), rtol=1e-4, atol=1e-5)
