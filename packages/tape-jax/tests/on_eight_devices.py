"""Programs on a mesh of eight devices, against one device; test_distribution.py runs them in a process with eight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_jax
import tape_nn as nn
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = Mesh(np.asarray(jax.devices()).reshape(4, 2), ("data", "model"))
FLAT = Mesh(np.asarray(jax.devices()), ("data",))


@pytest.fixture(autouse=True)
def jax_selected() -> Iterable[None]:
    assert jax.device_count() == 8
    with tc.use_backend("jax"):
        yield


def put(values: Any, *spec: Any, mesh: Mesh = MESH) -> tc.Tensor:
    return tc.asarray(jax.device_put(np.asarray(values, np.float32), NamedSharding(mesh, P(*spec))))


def spec(x: tc.Tensor) -> tuple[Any, ...]:
    """Return how an array is divided, without what P leaves out at its end."""
    found = list(x.array.sharding.spec)
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_a_function_that_is_called_often_follows_its_argument_to_other_devices() -> None:
    values = numbers(8, 4)
    there = [tc.asarray(values, device=device) for device in ("cpu:0", "cpu:1")]
    one = tc.asarray(jax.device_put(values, NamedSharding(Mesh(np.asarray(jax.devices()[:1]), ("data",)), P("data"))))
    given = [*there, one, put(values, "data"), put(values, None, "model")]
    for compile in (None, "xla"):
        f = tc.function(lambda x: x * 2.0, compile=compile, retrace="allow")
        for k in (0, 0, 0, 0, 1, 2, 0, 3, 4, 3, 3, 3, 3, 4, 0, 1, 1, 1, 1, 0):
            found = f(given[k])
            assert found.array.sharding.is_equivalent_to(given[k].array.sharding, 2)
            np.testing.assert_array_equal(found.numpy(), values * 2)


# -- one array


def test_results_gradients_and_new_arrays_are_divided_as_operands_are() -> None:
    x, w = put(numbers(8, 4), "data"), put(numbers(4, 6), None, "model")
    assert spec(x @ w) == ("data", "model")
    gx, gw = tc.grad(lambda x, w: tc.sum(tc.tanh(x @ w) ** 2), argnums=(0, 1))(x, w)
    assert (spec(gx), spec(gw)) == (("data",), (None, "model"))
    for like in (tc.zeros_like, tc.ones_like, tc.empty_like, lambda x: tc.full_like(x, 2.0)):
        assert spec(like(x)) == ("data",)
    raw_x, raw_w = np.asarray(x.numpy()), np.asarray(w.numpy())
    expected = 2 * np.tanh(raw_x @ raw_w) * (1 - np.tanh(raw_x @ raw_w) ** 2) @ raw_w.T
    np.testing.assert_allclose(gx.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiler", [None, "python", "xla"])
def test_host_data_and_numbers_go_to_all_devices_of_the_other_operand(compiler: str | None) -> None:
    x = put(numbers(8, 4), "data")
    four = np.arange(4, dtype=np.float32)

    def f(x: Any) -> Any:
        return x * 2 + four + tc.ones(4) + tc.zeros(4, device=x.device)

    for found in (f if compiler is None else tc.function(f, compile=compiler))(x), f(x):
        assert spec(found) == ("data",)
        np.testing.assert_allclose(found.numpy(), x.numpy() * 2 + four + 1, rtol=1e-6)


def test_transformations_of_divided_arrays() -> None:
    x, w = put(numbers(8, 4), "data"), put(numbers(4, 6), None, "model")

    def f(x: Any) -> Any:
        return tc.sum(tc.sin(x @ w), axis=-1)

    alone = tc.asarray(x.numpy())
    whole = w
    w = tc.asarray(whole.numpy())
    expected = tc.vmap(tc.jacrev(f))(alone), tc.jvp(f, (alone,), (alone,))[1]
    w = whole
    found = tc.vmap(tc.jacrev(f))(x), tc.jvp(f, (x,), (x,))[1]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


def test_a_device_name_is_all_devices_in_the_order_of_the_mesh() -> None:
    x = put(numbers(8, 4), "data")
    assert x.device == "cpu:0-7"
    assert tc.zeros(3, device=x.device).device == x.device
    turned = Mesh(np.asarray(jax.devices())[[0, 1, 3, 2, 4, 5, 6, 7]], ("data",))
    y = put(numbers(8, 4), "data", mesh=turned)
    assert y.device == "cpu:0,1,3,2,4-7"
    np.testing.assert_array_equal((y + tc.ones(4, device=y.device)).numpy(), y.numpy() + 1)
    assert spec(x.to_device(x.device)) == ("data",)
    assert spec(y.to_device(x.device)) == ()
    one = x.to_device("cpu:3")
    assert one.device == "cpu:3"
    assert tc.grad(lambda x: tc.sum(x.to_device("cpu:3") ** 2))(x).device == "cpu:0-7"


def test_random_numbers_on_several_devices_are_those_of_one() -> None:
    x = put(numbers(8, 4), "data")
    for draw in ("uniform", "normal"):
        here = getattr(tc.default_rng(3), draw)((8, 4))
        there = getattr(tc.default_rng(3), draw)((8, 4), device=x.device)
        assert there.device == x.device
        np.testing.assert_array_equal(here.numpy(), there.numpy())
    dropped = tc.dropout(x, 0.5, rng=tc.default_rng(1))
    np.testing.assert_array_equal(
        dropped.numpy(), tc.dropout(tc.asarray(x.numpy()), 0.5, rng=tc.default_rng(1)).numpy()
    )


def test_random_numbers_of_an_accelerator_are_made_on_all_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    from tape_jax import devices
    from tape_jax.random import JaxRandom

    backend = tc.get_backend()
    monkeypatch.setattr(type(backend), "raw_device", lambda self, name: devices.find(name.replace("gpu", "cpu")))
    found = JaxRandom(backend).normal((1, 2), 3, (4, 2), "float32", device="gpu:0-7")
    assert len(found.sharding.device_set) == 8
    np.testing.assert_allclose(found, backend.random.normal((1, 2), 3, (4, 2), "float32", device="cpu:0"), rtol=1e-5)


def test_indices_out_of_range_are_errors_and_masks_read() -> None:
    x = put(numbers(8, 4), "data")
    with pytest.raises(IndexError):
        x[9]
    with pytest.raises(IndexError):
        tc.gather(x, tc.asarray(jax.device_put(np.arange(3, 11), NamedSharding(MESH, P("data")))))
    np.testing.assert_array_equal(x[x > 0].numpy(), x.numpy()[x.numpy() > 0])


def test_the_text_says_how_an_array_is_divided() -> None:
    assert repr(put([0.0, 1.0, 2.0, 3.0], "data")) == (
        "Tensor([0. 1. 2. 3.], shape=(4,), dtype=float32, backend=jax, device=cpu:0-7, sharding=P('data'))"
    )
    assert "sharding" not in repr(tc.ones(2)) + repr(tc.ones(2, device="cpu:3"))


def test_arrays_on_other_devices_are_an_error_that_names_both_and_the_cure() -> None:
    x = put(numbers(8, 4), "data")
    other = put(numbers(8, 4), "data", mesh=Mesh(np.asarray(jax.devices())[:4], ("data",)))
    f = tc.function(lambda x, y: x * y, compile="xla")
    for call in (tc.multiply, f):
        with pytest.raises(
            ValueError, match=r"(?s)\[0, 1, 2, 3, 4, 5, 6, 7\].*\[0, 1, 2, 3\].*x\.to_device\(y\.device\)"
        ):
            call(x, other)
    np.testing.assert_array_equal((x * other.to_device(x.device)).numpy(), x.numpy() * other.numpy())
    # Two meshes of the same devices are JAX's to combine.
    assert spec(x * put(numbers(8, 4), "data", mesh=FLAT)) in (("data",), (("data", "model"),))


def test_a_mesh_of_jax_make_mesh_with_its_explicit_axes() -> None:
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    raw = jax.device_put(numbers(8, 4), NamedSharding(mesh, P("data")))
    w = tc.Variable(jax.device_put(numbers(4, 6), NamedSharding(mesh, P(None, "model"))))

    def loss(x: Any) -> Any:
        with tc.GradientTape() as tape:
            y = tc.sum(tc.tanh(x @ w) ** 2)
        return tape.gradient(y, w)

    expected = loss(put(numbers(8, 4), "data"))
    for f in (loss, tc.function(loss), tc.function(loss, compile="xla")):
        for given in (raw, tc.asarray(raw)):
            found = f(given)
            assert spec(found) == (None, "model")
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    assert [shard.data.unsafe_buffer_pointer() for shard in tc.asarray(raw).array.addressable_shards] == [
        shard.data.unsafe_buffer_pointer() for shard in raw.addressable_shards
    ]
    with jax.set_mesh(mesh), pytest.raises(ValueError, match=r"AxisType\.Auto"):
        tc.asarray(raw) + 1


# -- Variables


def test_a_variable_keeps_its_layout_whatever_is_assigned() -> None:
    w = tc.Variable(put(numbers(8, 4), "data"))
    values = np.ones((8, 4), np.float32)
    for value in (values, tc.asarray(values), values.tolist(), put(values, None, "model"), put(values)):
        w.assign(value)
        assert spec(w) == ("data",)
        np.testing.assert_array_equal(w.numpy(), values)
    w.assign_add(put(values, None, "model"))
    w.assign_sub(2.0 * values)
    assert spec(w) == ("data",)
    np.testing.assert_array_equal(w.numpy(), values - 1)
    for compiler in ("python", "xla"):
        tc.function(lambda x: w.assign(tc.sin(x)), compile=compiler)(put(numbers(8, 4), None, "model"))
        assert spec(w) == ("data",)
        np.testing.assert_allclose(w.numpy(), np.sin(numbers(8, 4)), rtol=1e-5)
    alone = tc.Variable(values, backend="jax:cpu:2")
    alone.assign(values * 2)
    alone.assign(tc.ones((8, 4), device="cpu:1"))
    assert alone.device == "cpu:2"


def test_distribute_moves_variables_of_any_backend_and_what_follows_them() -> None:
    model = nn.Sequential([nn.Dense(16, activation="tanh"), nn.Dense(8)])
    optimizer = nn.Adam(0.01)
    with tc.use_backend("numpy"):
        x = tc.asarray(numbers(8, 4))
        step(model, optimizer, x)
    names = []

    def rows(name: str, v: tc.Variable) -> NamedSharding:
        names.append(name)
        return NamedSharding(MESH, P("data") if v.shape[0] % 4 == 0 else P())

    assert tape_jax.distribute(model, rows) is model
    assert names == [name for name, _ in model.named_variables()]
    state = {**model.state_dict(), **optimizer.state_dict(model)}
    assert [spec(x) for x in state.values() if x.ndim] == [("data",)] * 12
    step(model, optimizer, put(numbers(8, 4), "data"))
    assert [spec(v) for v in model.variables] == [("data",)] * 4


def test_what_cannot_be_distributed_is_an_error_and_nothing_moves() -> None:
    model = nn.Sequential([nn.Dense(16), nn.Dense(6)])
    everywhere = NamedSharding(MESH, P("data"))
    with pytest.raises(ValueError, match="no Variables yet"):
        tape_jax.distribute(model, everywhere)
    model.build((None, 4))
    with pytest.raises(ValueError, match=r"layers\.1\.bias of shape \(6,\)"):
        tape_jax.distribute(model, everywhere)
    assert {v.device for v in model.variables} == {"cpu:0"}
    with pytest.raises(TypeError, match=r"NamedSharding\(mesh, spec\)"):
        tape_jax.distribute(model, lambda name, v: P())  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"jax\.device_put"):
        tape_jax.distribute([tc.ones(2)], everywhere)


# -- whole programs


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiHeadAttention(num_heads=2, key_dim=8)
        self.norms = [nn.LayerNorm(), nn.LayerNorm()]
        self.up = nn.Dense(32, activation="gelu")
        self.down = nn.Dense(16)

    def __call__(self, x: Any) -> Any:
        y = self.norms[0](x)
        x = x + self.attention(y, y)
        return x + self.down(self.up(self.norms[1](x)))


def perceptron() -> nn.Module:
    return nn.Sequential([nn.Dense(32, activation="tanh"), nn.Dense(16, activation="relu"), nn.Dense(16)])


def step(model: Any, optimizer: Any, x: Any) -> Any:
    with tc.GradientTape() as tape:
        loss = tc.mean((model(x) - tc.sin(x[..., :1])) ** 2)
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


def trained(make: Callable[[], Any], shape: tuple[int, ...], layout: Any, batch: Any, how: str | None) -> Any:
    """Return the losses of five steps, the model and its optimizer."""
    tc.set_seed(0)
    model, optimizer = make(), nn.Adam(0.01)
    model(tc.asarray(numbers(*shape)))
    if layout is not None:
        tape_jax.distribute(model, layout)
    run = step if how is None else tc.function(step, compile=how)
    losses = [float(run(model, optimizer, batch(numbers(*shape)))) for _ in range(5)]
    return losses, model, optimizer


def by_columns_and_rows(name: str, v: tc.Variable) -> NamedSharding:
    """Divide the weights of each second layer by columns, of the others by rows."""
    if v.ndim != 2:
        return NamedSharding(MESH, P())
    return NamedSharding(MESH, P(None, "model") if "up" in name or "0" in name else P("model", None))


def whole(name: str, v: tc.Variable) -> NamedSharding:
    return NamedSharding(MESH, P())


def by_rows(name: str, v: tc.Variable) -> NamedSharding:
    """Divide each Variable among all devices, along its longest axis that allows it."""
    axes = [k for k in np.argsort(v.shape)[::-1] if v.shape[k] % 8 == 0]
    return NamedSharding(FLAT, P(*[("data" if k == axes[0] else None) for k in range(v.ndim)]) if axes else P())


LAYOUTS = {
    "data": (whole, lambda x: put(x, "data")),
    "tensor": (by_columns_and_rows, lambda x: put(x, "data")),
    "fsdp": (by_rows, lambda x: put(x, "data", mesh=FLAT)),
}
PROGRAMS = {"perceptron": (perceptron, (8, 16)), "block": (Block, (8, 6, 16))}


@cache
def on_one_device(program: str) -> Any:
    make, shape = PROGRAMS[program]
    return trained(make, shape, None, tc.asarray, "xla")[:2]


@pytest.mark.parametrize(
    ("program", "how", "layout"),
    [
        *[("perceptron", how, layout) for how in (None, "xla") for layout in LAYOUTS],
        ("perceptron", "python", "fsdp"),
        ("block", "xla", "tensor"),
        ("block", "xla", "fsdp"),
    ],
)
def test_training_is_that_of_one_device(program: str, how: str | None, layout: str) -> None:
    make, shape = PROGRAMS[program]
    divide, batch = LAYOUTS[layout]
    expected, alone = on_one_device(program)
    losses, model, optimizer = trained(make, shape, divide, batch, how)
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for (name, v), (_, w) in zip(model.named_variables(), alone.named_variables(), strict=True):
        assert v.array.sharding.is_equivalent_to(divide(name, v), v.ndim), name
        np.testing.assert_allclose(v.numpy(), w.numpy(), rtol=2e-3, atol=2e-4, err_msg=name)
    if layout == "fsdp":
        state = {**model.state_dict(), **optimizer.state_dict(model)}
        large = {name: x for name, x in state.items() if x.size >= 64}
        assert len(large) >= 3 * len([v for v in model.variables if v.size >= 64])
        for name, x in large.items():
            assert {shard.data.size for shard in x.array.addressable_shards} == {x.size // 8}, name


def test_training_eagerly_divided_among_all() -> None:
    expected, _ = on_one_device("block")
    divide, batch = LAYOUTS["fsdp"]
    losses, _, _ = trained(Block, (8, 6, 16), divide, batch, None)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_xla_leaves_variables_where_they_are_and_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    puts = []
    divide, batch = LAYOUTS["fsdp"]
    tc.set_seed(0)
    model, optimizer = perceptron(), nn.Adam(0.01)
    model(tc.asarray(numbers(8, 16)))
    tape_jax.distribute(model, divide)
    run = tc.function(step, compile="xla")
    x = batch(numbers(8, 16))
    run(model, optimizer, x)
    run(model, optimizer, x)
    original = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda *args, **kwargs: puts.append(args) or original(*args, **kwargs))
    with jax.log_compiles():
        run(model, optimizer, x)
    assert puts == []


def test_checkpoints_keep_values_and_layouts(tmp_path: Path) -> None:
    divide, batch = LAYOUTS["fsdp"]
    _, model, optimizer = trained(perceptron, (8, 16), divide, batch, "xla")
    nn.save_tensors(tmp_path / "model.safetensors", model.state_dict())
    nn.save_tensors(tmp_path / "optimizer.safetensors", optimizer.state_dict(model))
    other, again = perceptron(), nn.Adam(0.01)
    other(tc.asarray(numbers(8, 16)))
    tape_jax.distribute(other, divide)
    other.load_state_dict(nn.load_tensors(tmp_path / "model.safetensors")[0])
    again.load_state_dict(nn.load_tensors(tmp_path / "optimizer.safetensors")[0], other)
    x = batch(numbers(8, 16))
    np.testing.assert_allclose(float(step(model, optimizer, x)), float(step(other, again, x)), rtol=1e-5)
    for v, w in zip(model.variables, other.variables, strict=True):
        assert v.array.sharding.is_equivalent_to(w.array.sharding, v.ndim)
        np.testing.assert_allclose(v.numpy(), w.numpy(), rtol=1e-4, atol=1e-5)


def test_fit_takes_batches_that_are_divided() -> None:
    x, y = numbers(32, 16), np.sin(numbers(32, 16))
    found = []
    for layout in (None, "fsdp", "data"):
        tc.set_seed(0)
        model = perceptron()
        model(tc.asarray(x[:8]))
        batch = (lambda a: a) if layout is None else LAYOUTS[layout][1]
        if layout is not None:
            tape_jax.distribute(model, LAYOUTS[layout][0])
        batches = [(batch(x[k : k + 8]), batch(y[k : k + 8])) for k in range(0, 32, 8)]
        history = nn.fit(
            model, batches, loss=nn.losses.MeanSquaredError(), optimizer=nn.Adam(0.01), epochs=2, progress=False
        )
        found.append(history["loss"])
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=1e-4)


def test_a_layer_that_meets_a_divided_batch_first_has_its_weights_on_all_devices() -> None:
    model = nn.Dense(3)
    x = put(numbers(8, 4), "data")
    assert spec(model(x)) == ("data",)
    assert (model.kernel.device, spec(model.kernel)) == (x.device, ())
    assert isinstance(model.kernel.array, jnp.ndarray)
