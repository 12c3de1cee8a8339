"""NumPy's arrays, lists and numbers are host data: they go to the Tensor beside them, or to the selected backend."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import torch

A = np.asarray([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


@pytest.fixture
def _on_torch() -> Iterator[None]:
    with tc.use_backend("torch:cpu"):
        yield


def is_on_torch(tree: Any) -> bool:
    leaves = tree if isinstance(tree, list | tuple) else [tree]
    return all(x.backend.library.name == "torch" for x in leaves)


# -- selected


SELECTED: dict[str, Callable[..., Any]] = {
    "asarray_1": lambda: tc.asarray(A),
    "asarray_2": lambda: tc.asarray([A, A]),
    "asarray_3": lambda: tc.asarray(np.float64(2)),
    "Variable": lambda: tc.Variable(A),
    "sin": lambda: tc.sin(A),
    "sum": lambda: tc.sum(A, axis=0),
    "matmul": lambda: tc.matmul(A, A.T),
    "where": lambda: tc.where(A > 0, A, -A),
    "concat": lambda: tc.concat([A, A]),
    "einsum": lambda: tc.einsum("ij,kj->ik", A, A),
    "zeros_like": lambda: tc.zeros_like(A),
    "linspace": lambda: tc.linspace(A, 1.0, 3),
    "special_beta": lambda: tc.special.beta(np.abs(A), 2.0),
    "stats_norm_logpdf": lambda: tc.stats.norm.logpdf(A),
    "stop_gradient": lambda: tc.stop_gradient(A),
    "grad": lambda: tc.grad(lambda x: tc.sum(x**2))(A),
    "vmap": lambda: tc.vmap(lambda x: x * A[0])(A),
    "jvp": lambda: tc.jvp(tc.sin, (A,), (A,)),
    "function": lambda: tc.function(lambda x: x * A)(A),
    "scan": lambda: tc.scan(lambda c, x: (c + x, c), np.zeros(3), A),
    "cond": lambda: tc.cond(True, tc.sin, tc.cos, A),
    "fixed_point": lambda: tc.fixed_point(lambda z: 0.5 * z + A, A),
    "Dense": lambda: nn.Dense(2)(A),
    "losses_mean_squared_error": lambda: nn.losses.mean_squared_error(A, A),
    "predict": lambda: nn.predict(nn.Dense(2), A),
}


@pytest.mark.usefixtures("_on_torch")
@pytest.mark.parametrize("make", SELECTED.values(), ids=SELECTED.keys())
def test_arrays_go_to_the_selected_backend(make: Callable[[], Any]) -> None:
    assert is_on_torch(make())


@pytest.mark.usefixtures("_on_torch")
def test_dtypes_are_kept_and_the_backend_that_is_named_decides() -> None:
    for dtype in (np.float64, np.float32, np.int32, np.uint8, np.bool_, np.complex64):
        x = tc.asarray(A.astype(dtype))
        assert x.dtype.name == np.dtype(dtype).name
        assert np.array_equal(x.numpy(), A.astype(dtype))
    assert tc.asarray(A, backend="numpy").backend.name == "numpy"
    with tc.use_backend("numpy"):
        assert tc.asarray(A).backend.name == tc.sin(A).backend.name == tc.Variable(A).backend.name == "numpy"
        assert tc.sin(torch.ones(2)).backend.name == tc.asarray(torch.ones(2), device="cpu").backend.name == "torch"


# -- beside a Tensor, whatever is selected


BESIDE: dict[str, Callable[..., Any]] = {
    "operator": lambda x: x * A,
    "reflected": lambda x: A * x,
    "multiply": lambda x: np.multiply(A, x),
    "add": lambda x: tc.add(A, x),
    "where": lambda x: tc.where(A > 0, A, x),
    "stack": lambda x: tc.stack([A, x, A]),
    "matmul": lambda x: tc.matmul(A.T, x),
    "clip": lambda x: tc.clip(x, A - 1, A + 1),
    "key_1": lambda x: x[np.asarray([1, 0, 1])],
    "key_2": lambda x: x[A > 0],
    "key_3": lambda x: x[np.int64(1)],
    "key_4": lambda x: x[1, np.asarray([2, 0])],
    "key_5": lambda x: tc.at(x)[np.asarray([0, 0])].add(A),
    "take": lambda x: tc.take(x, np.asarray([1]), axis=0),
    "layer_norm": lambda x: tc.layer_norm(A, x[0], A[0]),
    "outer": lambda x: tc.outer(A[0], x[1]),
    "kron": lambda x: tc.kron(A, x),
    "tensordot": lambda x: tc.tensordot(A, x, axes=2),
    "broadcast_arrays": lambda x: tc.broadcast_arrays(A[0], x),
    "meshgrid": lambda x: tc.meshgrid(A[0], x[0]),
    "special_beta": lambda x: tc.special.beta(np.abs(A), x),
    "linspace": lambda x: tc.linspace(A, x, 3),
    "segment_sum": lambda x: tc.segment_sum(A, tc.astype(tc.abs(x[:, 0]), tc.int64), num_segments=6),
    "multi_dot": lambda x: tc.linalg.multi_dot([A.T, x, A.T]),
    "vmap": lambda x: tc.vmap(lambda row: row * A[0] + A[1])(x),
    "grad": lambda x: tc.grad(lambda x: tc.sum(tc.sin(x * A)))(x),
    "jvp": lambda x: tc.jvp(lambda x: x * A, (x,), (A,)),
    "hvp": lambda x: tc.hvp(lambda x: tc.sum((x * A) ** 2), (x,), (A,)),
    "cond": lambda x: tc.cond(x[0, 0] > 0, lambda x: x * A, lambda x: x - A, x),
    "scan": lambda x: tc.scan(lambda c, x: (c + x * A[0], c), x[0], x)[1],
    "checkpoint": lambda x: tc.checkpoint(lambda x: tc.sin(x * A))(x),
}


@pytest.mark.parametrize("combine", BESIDE.values(), ids=BESIDE.keys())
def test_arrays_go_to_the_tensor_beside_them(combine: Callable[[Any], Any]) -> None:
    values = A.astype(np.float64) + 3
    expected = combine(tc.asarray(values, backend="numpy"))
    x = tc.asarray(values, backend="torch:cpu")
    for f in (combine, tc.function(combine)):
        found = f(x)
        assert is_on_torch(found)
        pairs = zip(
            found if isinstance(found, tuple | list) else [found],
            expected if isinstance(expected, tuple | list) else [expected],
            strict=True,
        )
        for one, other in pairs:
            assert one.dtype is other.dtype
            assert np.allclose(one.numpy(), other.numpy(), rtol=1e-12)


def test_updates_in_place_and_assignments() -> None:
    x = tc.zeros((2, 3), dtype=tc.float64, backend="torch:cpu")
    x[np.asarray([True, False])] = A[0]
    x[1] = A[1]
    assert np.array_equal(x.numpy(), A)
    v = tc.Variable(x)
    v.assign(2 * A)
    v.assign_add(A)
    assert v.backend.name == "torch"
    assert np.array_equal(v.numpy(), 3 * A)
    with tc.GradientTape() as tape:
        y = tc.sin(v)
    assert np.allclose(tape.gradient(y, v, output_gradients=A).numpy(), np.cos(3 * A) * A)


def test_gradients_flow_beside_arrays() -> None:
    x = tc.asarray(A, backend="torch:cpu")
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(tc.sin(x) * A + np.float64(2) * x)
    assert np.allclose(tape.gradient(y, x).numpy(), np.cos(A) * A + 2)


def test_tensors_of_two_backends_are_refused_and_the_cure_is_the_selected_one() -> None:
    x, y = tc.asarray(A, backend="torch:cpu"), tc.asarray(A, backend="numpy")
    for name in ("torch", "numpy"):
        with tc.use_backend(name):
            for pair in ((x, y), (y, x)):
                with pytest.raises(TypeError, match=rf"on backend.*another operand on.*asarray\(x, backend='{name}'\)"):
                    tc.add(*pair)
    # An array of a device library stays where it is.
    with pytest.raises(TypeError, match="is on backend 'torch', another operand on 'numpy'"):
        y + torch.ones(3)


@pytest.mark.parametrize("under_a_tape", [False, True])
def test_a_compiled_function_of_arrays_alone_computes_where_its_values_are(under_a_tape: bool) -> None:
    w = tc.Variable(A, backend="torch:cpu")

    def f(x: Any) -> Any:
        return tc.sum(x * w)

    def run(f: Callable[..., Any], x: Any) -> list[Any]:
        if not under_a_tape:
            return [f(x).item()]
        with tc.GradientTape() as tape:
            y = f(x)
        return [y.item(), tape.gradient(y, w).tolist()]

    with tc.use_backend("numpy"):
        compiled = tc.function(f)
        for k in range(6):
            assert run(compiled, A + k) == run(f, A + k)
        assert compiled.traces == 1
        assert run(compiled, A[:1]) == run(f, A[:1])


def test_a_compiled_function_of_tensors_on_two_backends_is_refused() -> None:
    v, w = tc.Variable(A, backend="numpy"), tc.Variable(A, backend="torch:cpu")
    with tc.use_backend("numpy"), pytest.raises(TypeError, match="another operand on"):
        tc.function(lambda x: tc.sum(x * v) + tc.sum(x * w))(A)


# -- memory


@pytest.mark.usefixtures("_on_torch")
def test_memory_is_shared_where_it_may_be_and_never_written_to() -> None:
    a = A.copy()
    assert np.shares_memory(tc.asarray(a).array.numpy(), a)
    assert not np.shares_memory(tc.asarray(a, copy=True).array.numpy(), a)
    assert not np.shares_memory(tc.Variable(a).array.numpy(), a)
    x = tc.asarray(a)
    x += 1.0
    x[0] = 5.0
    assert np.array_equal(a, A)


@pytest.mark.usefixtures("_on_torch")
def test_read_only_arrays_are_neither_written_to_nor_warned_of() -> None:
    a = A.copy()
    a.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = tc.asarray(a)
        x[0] = 5.0
        assert np.array_equal((tc.sin(a) + a).numpy(), np.sin(A) + A)
    assert np.array_equal(a, A)


# -- compiled


def test_a_compiled_function_follows_the_selection() -> None:
    places: list[str] = []

    @tc.function
    def f(x: Any) -> Any:
        y = x * A + tc.ones(3)
        places.append(y.backend.library.name)
        return y

    for name in ("numpy", "torch:cpu", "numpy", "torch:cpu"):
        with tc.use_backend(name):
            found = f(A)
            assert found.backend.name == name.partition(":")[0]
            assert np.allclose(found.numpy(), A * A + 1)
    assert places == ["numpy", "torch"]  # two traces, each once
    x = tc.asarray(A, backend="torch:cpu")
    assert tc.function(lambda x, y: x + y)(A, x).backend is x.backend


def test_arguments_of_compiled_functions_are_looked_at_in_each_call() -> None:
    with tc.use_backend("torch:cpu"):
        f = tc.function(lambda x: x * 2.0)
        for k in range(3):
            assert np.array_equal(f(A + k).numpy(), 2 * (A + k))


# -- moving


def test_to_backend() -> None:
    v = tc.Variable(A, backend="numpy", trainable=False, name="v")
    tree = {"a": A, "v": v, "n": 3, "none": None, "text": "x", "pair": (tc.ones(2, backend="numpy"), torch.ones(2))}
    found = tc.to_backend(tree, "torch", "cpu")
    assert is_on_torch([found["a"], found["v"], *found["pair"]])
    assert (found["n"], found["none"], found["text"]) == (3, None, "x")
    assert isinstance(found["v"], tc.Variable)
    assert (found["v"].trainable, found["v"].name) == (False, "v")
    assert found["v"].numpy().dtype == np.float64
    assert not np.shares_memory(found["v"].numpy(), v.numpy())
    back = tc.to_backend(found, "numpy")
    assert np.array_equal(back["v"].numpy(), A)
    x = tc.ones(3, backend="torch:cpu")
    assert tc.to_backend(x, "torch:cpu") is x
    with pytest.raises(tc.backends.BackendError, match="no device 'cuda:99'"):
        tc.to_backend(tree, "torch:cuda:99")


@pytest.mark.parametrize("compiled", [False, True])
def test_a_module_moves_with_its_optimizer_and_average(compiled: bool) -> None:
    def made() -> tuple[Any, Any, Any]:
        tc.set_seed(3)
        model = nn.Sequential([nn.Dense(4, activation="tanh"), nn.BatchNorm(), nn.Dense(1)])
        model.build((None, 3))
        return model, nn.Adam(0.1), nn.ExponentialMovingAverage(model, decay=0.5)

    x, y = A.astype("float32"), A[:, :1].astype("float32")
    results = []
    for moves in (("numpy", "numpy", "numpy"), ("numpy", "torch:cpu", "numpy")):
        with tc.use_backend("numpy"):
            model, optimizer, average = made()

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer, average: Any = average) -> Any:
            with tc.GradientTape() as tape:
                loss = tc.mean((model(x) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            average.update()
            return loss

        run = tc.function(step) if compiled else step
        losses = []
        for place in moves:
            assert model.to(place) is model
            with tc.use_backend(place):
                losses += [run(x, y).item() for _ in range(3)]
            assert {v.backend.name for v in model.variables} == {place.partition(":")[0]}
        results.append(losses)
    assert np.allclose(results[0], results[1], rtol=1e-5)
    assert results[0][-1] < results[0][0]


def test_a_move_that_fails_changes_nothing() -> None:
    with tc.use_backend("torch:cpu"):
        model = nn.Sequential([nn.Dense(2), nn.Dense(2)])
        model.build((None, 3))
        model.layers[1].bias.assign([1.0, 2.0])
        model.half = tc.Variable(np.ones(2), dtype="bfloat16")
    before = [v.numpy() for v in model.variables]
    with pytest.raises(tc.backends.BackendError, match="no backend named 'torhc'"):
        model.to("torhc")
    strict = tc.backends.ArrayAPIBackend("strict", pytest.importorskip("array_api_strict"))
    with pytest.raises(TypeError, match="bfloat16"):
        model.to(strict)
    assert is_on_torch(list(model.variables))
    for v, value in zip(model.variables, before, strict=True):
        assert np.array_equal(v.numpy(), value)
    with pytest.raises(RuntimeError, match=r"Module\.to: .*compiled"):
        tc.function(lambda: model.to("numpy"))()


def test_moved_variables_are_differentiated_where_they_are() -> None:
    model = nn.Dense(1)
    with tc.use_backend("numpy"):
        model.build((None, 3), dtype=tc.float64)
    with tc.GradientTape(persistent=True) as tape:
        before = tc.sum(model(A) ** 2)
    first = tape.gradient(before, model.kernel).numpy()
    model.to("torch:cpu")
    with tc.GradientTape() as tape:
        after = tc.sum(model(A) ** 2)
    second = tape.gradient(after, model.kernel)
    assert second.backend.name == "torch"
    assert np.allclose(first, second.numpy())


# -- training


@pytest.mark.usefixtures("_on_torch")
def test_fit_evaluate_and_predict_take_arrays() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype("float32")
    y = (x @ np.ones((3, 1))).astype("float32")
    model = nn.Dense(1)
    history = nn.fit(
        model, (x, y), loss=nn.losses.MeanSquaredError(), optimizer=nn.SGD(0.1), epochs=3, progress=False, seed=1
    )
    assert is_on_torch(list(model.variables))
    assert history["loss"][-1] < history["loss"][0]
    assert nn.evaluate(model, (x, y), loss=nn.losses.MeanSquaredError())["loss"] < history["loss"][0]
    assert is_on_torch(nn.predict(model, x))
    fun, x0, restore = tc.scipy_objective(lambda p: tc.sum((p - A) ** 2), np.zeros((2, 3)))
    assert fun(x0)[0] == pytest.approx(float((A**2).sum()))
    assert is_on_torch(restore(x0))


def test_a_chain_places_its_input_by_any_of_its_variables() -> None:
    for first in (nn.Flatten(), nn.Activation("relu"), tc.relu):
        model = nn.Sequential([first, nn.Dense(2)])
        expected = model(A)
        model.to("torch")
        found = model(A)
        assert is_on_torch(found)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
