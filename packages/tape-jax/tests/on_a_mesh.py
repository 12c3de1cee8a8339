"""Programs of tape_jax.distributed on eight devices; test_distributed.py runs them in a process with eight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest
import tape_core as tc
import tape_jax
import tape_nn as nn
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from tape_jax.distributed import Mesh, agree, create, distribute, divide, full, local, mesh, sharding
from tape_jax.random import on_host

DATA = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


@pytest.fixture(autouse=True)
def jax_selected() -> Iterable[None]:
    assert jax.device_count() == 8
    with tc.use_backend("jax"):
        yield


@pytest.fixture
def m() -> Mesh:
    return mesh({"data": -1, "model": 2})


def layout(x: tc.Tensor) -> tuple[Any, ...]:
    """Return how an array is divided, without what P leaves out at its end."""
    found = list(x.array.sharding.spec)
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def shape_of_parts(x: tc.Tensor) -> tuple[int, ...]:
    (found,) = {shard.data.shape for shard in x.array.addressable_shards}
    return tuple(found)


# -- meshes and layouts


def test_a_mesh_tells_its_axes_and_places(m: Mesh) -> None:
    assert (m.axes, m.size, m.rank) == ({"data": 4, "model": 2}, 8, 0)
    assert m.coordinates == {"data": 0, "model": 0}
    assert m.engine is tape_jax.distributed
    assert repr(m) == "Mesh({'data': 4, 'model': 2}, rank 0, on cpu)"
    assert mesh() == mesh({"data": 8}) != m
    explicit = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    assert Mesh(explicit) == m
    assert nn.parallel.mesh(checked=True) == mesh(checked=True) == mesh()  # one process runs one program
    half = Mesh(jax.sharding.Mesh(np.asarray(jax.devices()[:4]), ("data",)))
    assert shape_of_parts(distribute(DATA, ("data",), mesh=half)) == (2, 4)


@pytest.mark.parametrize("axes", [{}, {"data": 0}, {"a": -1, "b": -1}])
def test_axes_that_are_none(axes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="one of them may be -1"):
        mesh(axes)


def test_a_mesh_of_more_devices_than_there_are() -> None:
    with pytest.raises(ValueError, match=r"asks for 3 devices, and there are 8: the product of the axes must be 8"):
        mesh({"data": 3})
    with pytest.raises(ValueError, match=r"asks for 16 devices.*XLA_FLAGS=--xla_force_host_platform_device_count=16"):
        mesh({"data": 8, "model": 2})
    with pytest.raises(ValueError, match=r"asks for a multiple of 3 devices"):
        mesh({"data": -1, "model": 3})


def test_layouts_are_tuples_or_what_jax_has(m: Mesh) -> None:
    assert sharding((None, "data", None), m, (1, 4, 1)).spec == P(None, "data")
    assert sharding(P(("data", "model")), m, (8,)).spec == P(("data", "model"))
    assert sharding(NamedSharding(m.device_mesh, P("model")), m, (8,)).spec == P("model")
    with pytest.raises(ValueError, match=r"kernel of shape \(8, 4\).*no axis 'modle'; its axes are 'data', 'model'"):
        sharding(("modle",), m, (8, 4), "kernel")
    with pytest.raises(ValueError, match=r"it is of another mesh; use one mesh for a program"):
        sharding(NamedSharding(mesh().device_mesh, P("data")), m, (8, 4))


# -- values


@pytest.mark.parametrize("given", [DATA, "numpy", "jax"])
def test_values_of_any_kind_are_divided(m: Mesh, given: Any) -> None:
    value = tc.asarray(DATA, backend=given) if isinstance(given, str) else given
    tree = distribute({"x": [value]}, ("data", "model"), mesh=m)
    x = tree["x"][0]
    assert (layout(x), shape_of_parts(x)) == (("data", "model"), (2, 2))
    np.testing.assert_array_equal(full(x).numpy(), DATA)
    assert "sharding=P('data', 'model')" in repr(x)
    assert shape_of_parts(full(x)) == (8, 4)
    assert local(x) is x
    assert full({"name": "a", "plain": DATA})["plain"] is DATA
    assert layout(distribute(x, (None, "data"), mesh=m)) == (None, "data")


def test_what_the_caller_writes_later_does_not_change_what_was_divided(m: Mesh) -> None:
    for found in (distribute, divide):
        values = np.ones((512, 512), "float32")
        x = found(values, ("data",), mesh=m)
        values[:] = 2.0
        assert float(tc.max(x)) == 1.0


def test_batches_are_divided_unless_they_are(m: Mesh) -> None:
    x = divide(DATA, ("data",), mesh=m)
    assert layout(x) == ("data",)
    assert divide(x, ("model",), mesh=m) is x
    assert layout(divide(full(x), ("model",), mesh=m)) == ("model",)
    assert agree(7, mesh=m) == 7


@pytest.mark.parametrize("compiler", [None, "python", "xla"])
def test_derivatives_go_through_and_are_laid_out_as_values_were(m: Mesh, compiler: str | None) -> None:
    x = distribute(DATA, ("data",), mesh=m)
    whole = tc.asarray(DATA)

    def f(x: Any, whole: Any) -> Any:
        columns = distribute(x, (None, "model"), mesh=m)
        parts = distribute(whole, ("data",), mesh=m)
        return tc.sum(full(x) ** 2) + tc.sum(columns**3) + tc.sum(full(parts) ** 3)

    def gradients(x: Any, whole: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch((x, whole))
            y = f(x, whole)
        return tape.gradient(y, (x, whole))

    run = gradients if compiler is None else tc.function(gradients, compile=compiler)
    by_parts, by_whole = run(x, whole)
    np.testing.assert_allclose(by_parts.numpy(), 2 * DATA + 3 * DATA**2, rtol=1e-5)
    np.testing.assert_allclose(by_whole.numpy(), 3 * DATA**2, rtol=1e-5)
    assert layout(by_parts) == ("data",)
    if compiler is None:
        rows = tc.vmap(lambda row: distribute(row, ("model",), mesh=m) * 2)(x)
        np.testing.assert_allclose(rows.numpy(), 2 * DATA)
        assert layout(rows)[1:] == ("model",)
        assert tc.jvp(lambda x: full(x) ** 2, (x,), (x,))[1].numpy() == pytest.approx(2 * DATA**2)
        np.testing.assert_allclose(tc.hvp(lambda x: f(x, whole), (x,), (x,))[0].numpy(), (2 + 6 * DATA) * DATA, 1e-4)


def test_a_compiled_function_lays_out_what_it_returns(m: Mesh) -> None:
    for compiler in ("python", "xla"):
        f = tc.function(lambda x: distribute(tc.sin(x), (None, "model"), mesh=m), compile=compiler)
        assert layout(f(distribute(DATA, ("data",), mesh=m))) == (None, "model")
        assert layout(f(DATA)) == (None, "model")


def test_what_cannot_be_divided_is_an_error(m: Mesh) -> None:
    with pytest.raises(
        ValueError, match=r"an array of shape \(6, 4\) cannot be divided into 4 equal parts along its ax"
    ):
        distribute(np.ones((6, 4)), ("data",), mesh=m)
    with pytest.raises(ValueError, match=r"divide: .*into 8 equal parts along its axis 1, as the mesh \{'data': 4"):
        divide(np.ones((8, 4)), (None, ("data", "model")), mesh=m)
    with pytest.raises(ValueError, match=r"\['x'\] of shape \(8, 4\).*no axis 'modle'"):
        distribute({"x": DATA}, ("modle",), mesh=m)
    with pytest.raises(TypeError, match=r"mesh must be a Mesh of .*; make it tape_jax\.distributed\.Mesh\(mesh\)"):
        distribute(DATA, ("data",), mesh=m.device_mesh)
    with pytest.raises(
        TypeError, match=r"create: mesh must be a Mesh of tape_jax\.distributed\.mesh\(axes\); got None"
    ):
        create(tc.zeros, (8,), ("data",), mesh=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give arrays a layout"):
        distribute(DATA, lambda name, v: (), mesh=m)
    with pytest.raises(ValueError, match=r"(?s)\[0, 1, 2, 3, 4, 5, 6, 7\].*\[0, 1, 2, 3\]"):
        half = Mesh(jax.sharding.Mesh(np.asarray(jax.devices()[:4]), ("data",)))
        distribute(DATA, ("data",), mesh=m) + distribute(DATA, ("data",), mesh=half)


# -- Variables


def test_variables_are_moved_and_keep_their_layout(m: Mesh) -> None:
    with tc.use_backend("numpy"):
        model = nn.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(4)])
        optimizer = nn.Adam(0.01)
        train(model, optimizer, tc.asarray(DATA))

    def columns(name: str, v: tc.Variable) -> Any:
        return (None, "data") if name.endswith("kernel") else P()

    assert distribute(model, columns, mesh=m) is model
    assert {v.backend.name for v in model.variables} == {"jax"}
    for compiler in (None, "python", "xla"):
        step = train if compiler is None else tc.function(train, compile=compiler)
        step(model, optimizer, distribute(DATA, ("data",), mesh=m))
        for name, value in {**model.state_dict(), **optimizer.state_dict(model)}.items():
            assert not value.ndim or layout(value) == ((None, "data") if value.ndim == 2 else ()), (compiler, name)
    with pytest.raises(ValueError, match=r"distribute: layers\.1\.kernel of shape \(8, 4\) cannot be divided into 8"):
        distribute(model, lambda name, v: (None, ("data", "model")) if v.ndim == 2 else (), mesh=m)
    assert layout(model.layers[0].kernel) == (None, "data")
    with pytest.raises(ValueError, match="there are no Variables yet"):
        distribute(nn.Dense(2), (), mesh=m)


@pytest.mark.parametrize(
    ("batch", "first", "second"),
    [((), (), ("model",)), (("data",), (None, "model"), ()), (("data",), ("data",), (None, ("data", "model")))],
)
def test_xla_lays_out_gradients_as_their_sources(m: Mesh, batch: Any, first: Any, second: Any) -> None:
    model = nn.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(8)])
    model.build((None, 4))

    @tc.function(compile="xla")
    def gradients(x: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.mean(model(x) ** 2)
        return tape.gradient(loss, model.variables)

    x = distribute(DATA, batch, mesh=m)
    for one, other in ((first, second), (second, first)):  # the function is traced once
        layouts = {"layers.0.kernel": one, "layers.1.kernel": other}
        distribute(model, lambda name, v, layouts=layouts: layouts.get(name, ()), mesh=m)
        found = dict(zip([name for name, _ in model.named_variables()], gradients(x), strict=True))
        assert {name: layout(g) for name, g in found.items()} == {name: layouts.get(name, ()) for name in found}


def train(model: Any, optimizer: Any, x: Any) -> Any:
    with tc.GradientTape() as tape:
        loss = tc.mean((model(x) - x) ** 2)
    gradients = tape.gradient(loss, model.variables)
    optimizer.apply_gradients(zip(gradients, model.variables, strict=True))
    return loss


# -- arrays that are made divided


@pytest.mark.parametrize("where", [("data",), (None, "data"), ("model", ("data",)), ()])
def test_arrays_made_divided_have_the_numbers_of_one_device(m: Mesh, where: Any) -> None:
    for draw in ("uniform", "normal", "truncated_normal"):
        made = create(getattr(tc.default_rng(3), draw), (8, 4, 3), where, mesh=m)
        alone = getattr(tc.default_rng(3), draw)((8, 4, 3))
        assert layout(made) == tuple(("data" if isinstance(one, tuple) else one) for one in where)
        np.testing.assert_allclose(made.numpy(), alone.numpy(), rtol=1e-5, atol=1e-6)
    made = create(lambda shape: tc.default_rng(3).integers(0, 9, shape), (4, 4), where, mesh=m)
    assert made.tolist() == tc.default_rng(3).integers(0, 9, (4, 4)).tolist()
    for f, value in ((tc.ones, 1.0), (tc.zeros, 0.0)):
        made = create(f, (8, 4), where, mesh=m, dtype=tc.float64)
        assert (made.dtype, made.numpy().tolist()) == (tc.float64, np.full((8, 4), value).tolist())


def test_what_is_made_divided_is_never_whole(m: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    original = jax.make_array_from_callback

    def spied(shape: Any, to: Any, part: Any) -> Any:
        def measured(index: Any) -> Any:
            nonlocal largest
            largest = max(largest, part(index).size)
            return part(index)

        return original(shape, to, measured)

    monkeypatch.setattr(jax, "make_array_from_callback", spied)
    monkeypatch.setattr("tape_jax.distributed.creation.DRAWN_AT_ONCE", 50)  # in blocks
    table = tc.Variable(create(tc.default_rng(0).normal, (64, 5), ("data",), mesh=m))
    assert largest == 64 * 5 / 4
    np.testing.assert_allclose(table.numpy(), tc.default_rng(0).normal((64, 5)).numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="create: what zeros makes of shape"):
        create(tc.zeros, (9,), ("data",), mesh=m)
    with pytest.raises(ValueError, match="has the shape"):
        create(lambda shape: tc.ones(3), (8,), ("data",), mesh=m)


# -- dropout


@pytest.mark.parametrize("compile", [None, "python", "xla"])
def test_dropout_drops_what_it_drops_on_one_device(m: Mesh, compile: str | None) -> None:
    def masked(x: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        return tc.dropout(x, 0.4, rng=rng), tc.dropout(x, 0.4, rng=rng, noise_shape=(8, 1))

    rng = tc.default_rng(3)
    expected = [out.numpy() for out in masked(tc.asarray(DATA))]
    for spec in (("data",), (None, "model"), ("data", "model"), ()):
        rng = tc.default_rng(3)
        run = masked if compile is None else tc.function(compile=compile)(masked)
        for out, other in zip(run(distribute(DATA, spec, mesh=m)), expected, strict=True):
            assert layout(out) == spec
            np.testing.assert_allclose(full(out).numpy(), other, rtol=1e-6)


def test_a_mask_is_drawn_in_parts(m: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    kernels = type(on_host())
    words = kernels.words

    def noted(self: Any, key: Any, counter: int, n: int, device: str | None = None) -> Any:
        drawn.append(n)
        return words(self, key, counter, n, device)

    monkeypatch.setattr(kernels, "words", noted)
    x = distribute(np.ones((8, 1024), "float32"), ("data",), mesh=m)
    out = tc.dropout(x, 0.5, rng=tc.default_rng(0))
    assert shape_of_parts(out) == (2, 1024)
    assert max(drawn) <= 1024 + 8  # two numbers from a word
