"""Module finds its Variables."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import tape_core as tc
import tape_nn as nn


def names(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_variables()]


class Pair(NamedTuple):
    first: Any
    second: Any


def test_order_of_definition_and_nesting() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            self.z = tc.Variable(1.0)
            self.a = tc.Variable(2.0)

    class Outer(nn.Module):
        def __init__(self) -> None:
            self.last = tc.Variable(0.0)
            self.inner = Inner()
            self.blocks = [Inner(), (Inner(), {"x": tc.Variable(3.0)})]
            self.by_name = {"q": tc.Variable(4.0), "b": [tc.Variable(5.0)]}
            self.pair = Pair(tc.Variable(6.0), None)
            self.number, self.text, self.tensor = 3, "kernel", tc.ones(2)

    outer = Outer()
    assert names(outer) == [
        "last",
        "inner.z",
        "inner.a",
        "blocks.0.z",
        "blocks.0.a",
        "blocks.1.0.z",
        "blocks.1.0.a",
        "blocks.1.1.x",
        "by_name.q",
        "by_name.b.0",
        "pair.0",
    ]
    assert isinstance(outer.variables, tuple)
    assert [id(v) for v in outer.variables] == [id(v) for _, v in outer.named_variables()]


def test_shared_variables_count_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.a = tc.Variable([1.0, 2.0])
            self.b = tc.Variable([1.0, 2.0])  # equal, but another
            self.again = [self.a, self.b]
            self.layer = nn.Dense(2)
            self.same_layer = self.layer

    tied = Tied()
    tied.layer(tc.ones((1, 2)))
    assert names(tied) == ["a", "b", "layer.kernel", "layer.bias"]


def test_a_child_may_hold_its_parent() -> None:
    class Node(nn.Module):
        def __init__(self, parent: nn.Module | None) -> None:
            self.parent = parent
            self.weight = tc.Variable(1.0)

    root = Node(None)
    root.child = Node(root)  # type: ignore[attr-defined]
    root.self_containing = [root]  # type: ignore[attr-defined]
    assert names(root) == ["weight", "child.weight"]


def test_trainable_variables() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            self.scale = tc.Variable(1.0)
            self.mean = tc.Variable(0.0, trainable=False)

    norm = Norm()
    assert norm.variables == (norm.scale, norm.mean)
    assert norm.trainable_variables == (norm.scale,)


def test_attributes_can_change_at_any_time() -> None:
    class Empty(nn.Module):
        pass

    module: Any = Empty()
    assert module.variables == ()
    module.w = tc.Variable(1.0)
    module.more = []
    module.more.append(tc.Variable(2.0))
    assert names(module) == ["w", "more.0"]
    del module.w
    assert names(module) == ["more.0"]


def test_module_without_call_is_not_callable() -> None:
    with pytest.raises(TypeError, match="not callable"):
        nn.Module()()  # type: ignore[operator]


def test_a_model_as_in_the_tensorflow_guide() -> None:
    class LinearModel(nn.Module):
        def __init__(self) -> None:
            self.w = tc.Variable(2.0)
            self.b = tc.Variable(1.0)

        def __call__(self, x: Any) -> tc.Tensor:
            return self.w * x + self.b

    model = LinearModel()
    x, y = tc.asarray([1.0, 2.0, 3.0]), tc.asarray([3.0, 5.0, 8.0])
    optimizer = nn.SGD(learning_rate=0.1)
    losses = []
    for _ in range(200):
        with tc.GradientTape() as tape:
            loss = tc.mean((y - model(x)) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(float(loss))
    assert losses[0] == pytest.approx(1 / 3)
    assert losses[-1] < 0.06 < losses[0]
    assert tape.watched_variables() == (model.w, model.b)
    assert repr(model) == "<LinearModel: 2 variables, 2 parameters>"


# -- values by name


class Model(nn.Module):
    def __init__(self, units: int = 2) -> None:
        self.norm = nn.BatchNorm()
        self.blocks = [nn.Dense(units), nn.Dense(1, use_bias=False)]
        self.scale = tc.Variable(1.0, name="scale")

    def __call__(self, x: Any) -> Any:
        x = self.norm(x)
        for block in self.blocks:
            x = block(x)
        return x * self.scale


def built(units: int = 2, **options: Any) -> Model:
    model = Model(units)
    model(tc.default_rng(units).normal((4, 3), **options))
    return model


def test_state_dict() -> None:
    model = built()
    state = model.state_dict()
    assert list(state) == names(model)
    assert "norm.moving_variance" in state
    before = {name: value.tolist() for name, value in state.items()}
    for variable in model.variables:
        variable.assign_add(tc.ones(variable.shape))
    assert {name: value.tolist() for name, value in state.items()} == before
    model.load_state_dict(state)
    assert {name: v.tolist() for name, v in model.named_variables()} == before
    model.variables[0].assign_add(tc.ones(3))  # nor does a later update reach into the state
    assert {name: value.tolist() for name, value in state.items()} == before
    model.load_state_dict({name: value.numpy() for name, value in state.items()})
    assert model.variables[0].tolist() == before["norm.gamma"]
    with tc.GradientTape() as tape:
        model.state_dict()
    assert tape.watched_variables() == ()


def test_load_state_dict_lists_all_problems_and_changes_nothing() -> None:
    model = built()
    state: dict[str, Any] = {name: value + 1 for name, value in model.state_dict().items()}
    before = [v.tolist() for v in model.variables]
    del state["scale"], state["norm.beta"]
    state["extra"] = tc.ones(1)
    state["blocks.0.kernel"] = tc.ones((2, 3))
    state["blocks.1.kernel"] = tc.ones((2, 1), dtype=tc.float64)
    with pytest.raises(ValueError, match="load_state_dict") as error:
        model.load_state_dict(state)
    assert str(error.value).split("\n  ") == [
        "load_state_dict: the state does not fit <Model: 8 variables, 23 parameters>:",
        "missing: 'norm.beta', 'scale'",
        "unexpected: 'extra'",
        "'blocks.0.kernel' has shape (2, 3); the variable has (3, 2)",
        "'blocks.1.kernel' has dtype float64; the variable has float32",
    ]
    with pytest.raises(ValueError, match=r"blocks\.0\.kernel"):
        model.load_state_dict(state, strict=False)
    assert [v.tolist() for v in model.variables] == before
    model.load_state_dict({"scale": tc.asarray(5.0), "extra": tc.ones(1)}, strict=False)
    assert [v.tolist() for v in model.variables] == [*before[:-1], 5.0]


def test_what_is_not_built_has_no_state(tmp_path: Any) -> None:
    model = Model()
    message = (
        r"'norm' \(BatchNorm\), 'blocks.0' \(Dense\), 'blocks.1' \(Dense\) have no Variables yet; call it once with "
        r"an input, or build\(input_shape\)"
    )
    for call in (
        model.state_dict,
        lambda: model.load_state_dict({}),
        lambda: model.save_weights(tmp_path / "x"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="state_dict: Dense has no Variables yet"):
        nn.Dense(1).state_dict()


def test_two_variables_of_one_name_are_refused() -> None:
    model: Any = nn.Module()
    model.table = {1: tc.Variable(1.0), "1": tc.Variable(2.0)}
    with pytest.raises(ValueError, match=r"two Variables have the name 'table.1'"):
        model.state_dict()


@pytest.mark.parametrize(("source", "target"), [("numpy", "numpy"), ("numpy", "torch"), ("torch", "numpy")])
def test_weights_go_from_backend_to_backend(tmp_path: Any, source: str, target: str) -> None:
    if "torch" in (source, target):
        pytest.importorskip("torch")

    def made(backend: str) -> Model:
        model = Model()
        model.scale = tc.Variable(1.5, dtype=tc.float64, backend=backend)
        model(tc.default_rng(0).normal((4, 3), dtype=tc.float64, backend=backend))
        return model

    a, b = made(source), made(target)
    path = tmp_path / "model.safetensors"
    a.save_weights(path, {"epoch": "4"})
    assert b.load_weights(path) == {"epoch": "4"}
    assert {v.backend.name for v in b.variables} == {target}
    assert [v.tolist() for v in b.variables] == [v.tolist() for v in a.variables]
    x = tc.default_rng(0).normal((3, 3), dtype=tc.float64).numpy()
    y = [m.eval()(tc.asarray(x, backend=name)).numpy() for m, name in ((a, source), (b, target))]
    tc.testing.assert_close(*y, rtol=1e-12)
    with pytest.raises(ValueError, match=r"'blocks.0.kernel' has shape \(3, 2\); the variable has \(3, 5\)"):
        built(5).load_weights(path)


def test_bfloat16_weights(tmp_path: Any) -> None:
    pytest.importorskip("torch")
    layer = nn.Dense(2)
    layer.build((3,), dtype="bfloat16", backend="torch")
    layer.save_weights(tmp_path / "x")
    assert layer.kernel is not None
    for dtype, backend in (("bfloat16", "torch"), ("float32", "numpy"), ("float32", "torch")):
        same = nn.Dense(2)
        same.build((3,), dtype=dtype, backend=backend)
        same.load_weights(tmp_path / "x")
        assert same.kernel is not None
        assert same.kernel.dtype == dtype
        assert same.kernel.tolist() == layer.kernel.tolist()


def test_modules_by_name() -> None:
    model = Model()
    assert [name for name, _ in model.named_modules()] == ["", "norm", "blocks.0", "blocks.1"]
    model.eval()
    assert not any(module.training for _, module in model.named_modules())
    model.train()
    assert all(module.training for _, module in model.named_modules())


def test_summary() -> None:
    model = Model()
    assert str(model.summary()).splitlines()[2:] == [
        "(itself)  Model      scale ()            1",
        "norm      BatchNorm  not built           ?",
        "blocks.0  Dense      not built           ?",
        "blocks.1  Dense      not built           ?",
        "1 parameters, 1 of them trainable, without what is not built",
    ]
    table = built().summary()
    assert (table.parameters, table.trainable) == (23, 17)
    assert [row[3] for row in table.rows] == [1, 12, 8, 2]
    assert "<td>kernel (3, 2), bias (2,)</td>" in table._repr_html_()


def test_the_gradient_for_a_state_that_is_loaded_into_a_model_is_an_error_that_says_so():
    model = nn.Sequential([nn.Dense(2)])
    x = tc.ones((3, 2))
    model(x)
    params = model.state_dict()

    def loss(state):
        model.load_state_dict(state)
        return tc.sum((model(x) - 3.0) ** 2)

    for derivative in (tc.grad(loss), tc.hessian(loss), tc.jacrev(loss), tc.jacfwd(loss), tc.value_and_grad(loss)):
        with pytest.raises(ValueError, match=r"(?s)assigned to a Variable.*GradientTape"):
            derivative(params)
    fun, x0, _ = tc.scipy_objective(loss, params)
    with pytest.raises(ValueError, match="assigned to a Variable"):
        fun(x0)
    with pytest.raises(ValueError, match=r"(?s)Variable 'kernel' was given as an argument, and the function reads"):
        tc.grad(lambda _: tc.sum(model(x) ** 2))(model.trainable_variables)


def test_a_tape_explains_a_state_that_is_loaded_into_a_model_as_assigned():
    model = nn.Sequential([nn.Dense(2)])
    x = tc.ones((3, 2))
    model(x)
    params = model.state_dict()
    with tc.GradientTape(debug=True) as tape:
        tape.watch(params)
        model.load_state_dict(params)
        y = tc.sum(model(x) ** 2)
    assert {part.reason for part in tape.explain(y, params).parts} == {"assigned"}
