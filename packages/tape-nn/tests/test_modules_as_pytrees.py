"""Modules as pytrees: each transformation takes one, and gives one that can be called."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn


def points(*shape: int, seed: int = 0) -> tc.Tensor:
    return tc.default_rng(seed).normal(shape, dtype="float64")


def network(features: int = 3, out: int = 1, seed: int = 0) -> nn.Module:
    tc.set_seed(seed)
    model = nn.Sequential([nn.Dense(4, activation="tanh"), nn.Dense(out)])
    model.build((None, features), dtype="float64")
    return model


X = points(5, 3)


def loss(model: Any) -> Any:
    return tc.mean((model(X) - 1.0) ** 2)


def close(a: Any, b: Any) -> bool:
    one, two = tc.tree_leaves(a), tc.tree_leaves(b)
    return len(one) == len(two) and all(
        np.allclose(x.numpy(), y.numpy(), atol=1e-10) for x, y in zip(one, two, strict=True)
    )


def by_tape(model: nn.Module, f: Callable[[Any], Any] = loss) -> list[Any]:
    with tc.GradientTape() as tape:
        y = f(model)
    return list(tape.gradient(y, model.trainable_variables))


def test_the_gradient_is_a_module_that_can_be_called() -> None:
    model = network()
    before = model.state_dict()
    gradient = tc.grad(loss)(model)
    assert type(gradient) is type(model)
    assert close(gradient, by_tape(model))
    assert gradient(X).shape == (5, 1)
    assert list(gradient.state_dict()) == list(model.state_dict())
    moved = tc.tree_map(lambda w, g: w - 0.1 * g, model, gradient)
    assert loss(moved).item() < loss(model).item()
    assert all(
        value is model.state_dict()[name] or (value == model.state_dict()[name]).all() for name, value in before.items()
    )


def test_leaves_are_the_trainable_variables_in_order() -> None:
    model = nn.Sequential([nn.Dense(2), nn.BatchNorm(), nn.Dense(1)])
    model.build((None, 3))
    leaves = tc.tree_leaves(model)
    assert all(leaf is variable for leaf, variable in zip(leaves, model.trainable_variables, strict=True))
    model.layers[0].bias.trainable = False
    assert len(tc.tree_leaves(model)) == len(leaves) - 1


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Dense": (lambda: nn.Dense(2, activation="gelu"), (4, 3)),
    "BatchNorm": (nn.BatchNorm, (4, 3)),
    "LayerNorm": (nn.LayerNorm, (4, 3)),
    "RMSNorm": (nn.RMSNorm, (4, 3)),
    "Conv1D": (lambda: nn.Conv1D(2, 3), (2, 6, 3)),
    "Conv2D": (lambda: nn.Conv2D(2, 3), (2, 5, 5, 1)),
    "LSTM": (lambda: nn.LSTM(2), (2, 4, 3)),
    "GRU": (lambda: nn.GRU(2), (2, 4, 3)),
    "MultiHeadAttention": (lambda: nn.MultiHeadAttention(2, 4), (2, 4, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_each_layer_as_an_argument(name: str) -> None:
    make, shape = LAYERS[name]
    layer: Any = make()
    x = points(*shape)
    call = (lambda m: m(x, x)) if name == "MultiHeadAttention" else (lambda m: m(x))
    call(layer)
    layer.eval()

    def square(m: Any) -> Any:
        return tc.sum(tc.sin(call(m)))

    expected = by_tape(layer, square)
    assert close(tc.grad(square)(layer), expected)
    assert close(tc.function(tc.grad(square))(layer), expected)
    copied = tc.tree_map(lambda w: w * 1.0, layer)
    compiled = tc.function(tc.grad(square))
    assert close(compiled(copied), expected)
    assert close(compiled(tc.tree_map(lambda w: w * 1.0, layer)), expected)
    assert compiled.traces == 1


def test_embeddings() -> None:
    layer = nn.Embedding(5, 2)
    layer(tc.asarray([0]))
    found = tc.grad(lambda m: tc.sum(m(tc.asarray([1, 1])) ** 2))(layer)
    assert isinstance(found.trainable_variables[0], tc.IndexedSlices)


class Tied(nn.Module):
    def __init__(self) -> None:
        self.encoder = nn.Dense(3, use_bias=False)
        self.encoder.build((None, 3), dtype="float64")
        self.decoder = nn.Dense(3)
        self.decoder.build((None, 3), dtype="float64")
        self.decoder.kernel = self.encoder.kernel
        self.scales = [tc.Variable(points(3)), {"a": tc.Variable(points(3, seed=1))}]
        self.fixed = tc.ones(3, dtype="float64")
        self.parts = (self.encoder, self.decoder)

    def __call__(self, x: Any) -> Any:
        return self.decoder(tc.tanh(self.encoder(x))) * self.scales[0] + self.scales[1]["a"] * self.fixed


def test_tied_weights_stay_tied() -> None:
    model = Tied()
    assert len(tc.tree_leaves(model)) == 4
    gradient = tc.grad(loss)(model)
    assert close(gradient, by_tape(model))
    assert gradient.decoder.kernel is gradient.encoder.kernel
    assert gradient.parts[0] is gradient.encoder
    assert gradient.fixed is model.fixed
    axes = tc.tree_map(lambda _: 0, model)
    assert len(tc.tree_leaves(axes)) == 4
    missing = tc.tree_map(lambda _: None, model)
    assert tc.tree_leaves(missing) == [None] * 4
    second = tc.tree_map(lambda g: g * 2.0, gradient)
    assert second.decoder.kernel is second.encoder.kernel


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_hessian_of_a_network() -> None:
    torch = pytest.importorskip("torch")
    model = network()
    found = tc.hessian(loss)(model)
    names = list(model.state_dict())
    x = torch.tensor(X.numpy())

    def reference(parameters: dict[str, Any]) -> Any:
        hidden = torch.tanh(x @ parameters[names[0]] + parameters[names[1]])
        return torch.mean((hidden @ parameters[names[2]] + parameters[names[3]] - 1.0) ** 2)

    expected = torch.func.hessian(reference)({k: torch.tensor(v.numpy()) for k, v in model.state_dict().items()})
    rows = found.named_variables()
    for name, row in rows:
        for other, block in row.named_variables():
            assert np.allclose(block.numpy(), expected[name][other].numpy(), atol=1e-10)
    compiled = tc.function(tc.hessian(loss))
    assert close(compiled(tc.tree_map(lambda w: w * 1.0, model)), found)


def test_gauss_newton_products() -> None:
    model = network(out=2)
    direction = tc.tree_map(lambda w: tc.ones_like(w), model)

    def product(m: Any, v: Any) -> Any:
        f = lambda m: m(X)  # noqa: E731
        _, pull = tc.vjp(f, m)
        return pull(2.0 / 5 * tc.jvp(f, (m,), (v,))[1])[0]

    found = product(model, direction)
    jacobian = tc.tree_leaves(tc.jacrev(lambda m: m(X))(model))
    matrix = np.concatenate([block.numpy().reshape(10, -1) for block in jacobian], axis=1)
    expected = 2.0 / 5 * matrix.T @ (matrix @ np.ones(matrix.shape[1]))
    flat = np.concatenate([leaf.numpy().ravel() for leaf in tc.tree_leaves(found)])
    assert np.allclose(flat, expected)
    compiled = tc.function(product)
    assert close(compiled(direction, direction), product(direction, direction))


@pytest.mark.parametrize("compiled", [False, True])
def test_ensembles_by_vmap(compiled: bool) -> None:
    members = [network(seed=seed) for seed in range(3)]
    stacked = nn.stack_modules(members)
    wrap = tc.function if compiled else (lambda f: f)
    together = wrap(tc.vmap(lambda m, x: m(x), in_axes=(0, None)))(stacked, X)
    assert np.allclose(together.numpy(), np.stack([m(X).numpy() for m in members]))
    gradients = wrap(tc.vmap(tc.grad(loss)))(stacked)
    for k, member in enumerate(members):
        assert close(tc.tree_map(lambda g, k=k: g[k], gradients), by_tape(member))
    each = nn.unstack_modules(gradients)
    assert close(each[2], by_tape(members[2]))


def test_prefixes_of_a_module_as_in_axes() -> None:
    members = [network(seed=seed) for seed in range(3)]
    stacked = nn.stack_modules(members)
    axes = tc.tree_map(lambda _: 0, stacked)
    assert np.allclose(
        tc.vmap(lambda m: m(X), in_axes=(axes,))(stacked).numpy(), tc.vmap(lambda m: m(X))(stacked).numpy()
    )
    per_example = tc.vmap(tc.grad(lambda m, x: tc.sum(m(x[None]) ** 2)), in_axes=(None, 0))(members[0], X)
    summed = tc.tree_map(lambda g: tc.sum(g, axis=0), per_example)
    assert close(summed, by_tape(members[0], lambda m: tc.sum(m(X) ** 2)))


def test_modules_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="stack_modules"):
        nn.stack_modules([network(), network(features=2)])
    with pytest.raises(ValueError, match="no Modules"):
        nn.stack_modules([])
    model = nn.Sequential([nn.Dense(2), nn.BatchNorm()])
    model.build((None, 3))
    with pytest.raises(ValueError, match="moving_mean"):
        nn.stack_modules([model, model])
    with pytest.raises(ValueError, match=r"has no Variables yet.*build"):
        tc.grad(loss)(nn.Dense(2))
    with pytest.raises(TypeError, match="the Module that it stems from"):
        tc.grad(loss)(network()).load_state_dict(network().state_dict())


@pytest.mark.parametrize("compiled", [False, True])
def test_maml_with_layers(compiled: bool) -> None:
    torch = pytest.importorskip("torch")
    model = network()
    support, query = points(4, 3, seed=3), points(4, 3, seed=4)

    def inner(m: Any, x: Any) -> Any:
        return tc.mean((m(x) - tc.sum(x, axis=1)[:, None]) ** 2)

    def outer(m: Any) -> Any:
        adapted = m
        for _ in range(2):
            adapted = tc.tree_map(lambda w, g: w - 0.1 * g, adapted, tc.grad(inner)(adapted, support))
        return inner(adapted, query)

    found = (tc.function(tc.grad(outer)) if compiled else tc.grad(outer))(tc.tree_map(lambda w: w * 1.0, model))
    names = list(model.state_dict())
    torches = {k: torch.tensor(v.numpy()) for k, v in model.state_dict().items()}

    def torch_inner(p: dict[str, Any], x: Any) -> Any:
        y = torch.tanh(x @ p[names[0]] + p[names[1]]) @ p[names[2]] + p[names[3]]
        return torch.mean((y - x.sum(1)[:, None]) ** 2)

    xs, xq = torch.tensor(support.numpy()), torch.tensor(query.numpy())

    def torch_outer(p: dict[str, Any]) -> Any:
        for _ in range(2):
            g = torch.func.grad(torch_inner)(p, xs)
            p = {k: p[k] - 0.1 * g[k] for k in p}
        return torch_inner(p, xq)

    expected = torch.func.grad(torch_outer)(torches)
    for name, g in found.named_variables():
        assert np.allclose(g.numpy(), expected[name].numpy(), atol=1e-10)


def test_scipy_optimizes_a_network() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    model = network()
    fun, x0, restore = tc.scipy_objective(loss, model)
    result = optimize.minimize(fun, x0, jac=True, method="L-BFGS-B")
    best = restore(result.x)
    assert result.fun < 1e-6 < loss(model).item()
    assert loss(best).item() == pytest.approx(result.fun)
    model.load_state_dict(best.state_dict())
    assert loss(model).item() == pytest.approx(result.fun)


def test_modules_in_loops_and_checkpoints() -> None:
    model = network()

    def train(m: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            return tc.tree_map(lambda w, g: w - 0.05 * g, carry, tc.grad(loss)(carry)), loss(carry)

        return tc.scan(step, m, length=3)

    trained, losses = train(model)
    assert loss(trained).item() < losses[2].item() < losses[0].item()
    assert close(tc.function(train)(model)[0], trained)
    _, count = tc.while_loop(
        lambda c: c[1] < 3,
        lambda c: (tc.tree_map(lambda w, g: w - 0.05 * g, c[0], tc.grad(loss)(c[0])), c[1] + 1),
        (model, tc.asarray(0)),
    )
    assert count.item() == 3
    chosen = tc.cond(loss(model) > 0, lambda m: m, lambda m: tc.tree_map(lambda w: w * 0.0, m), model)
    assert close(chosen, model)
    assert close(tc.grad(tc.checkpoint(loss))(model), by_tape(model))

    @tc.custom_gradient
    def doubled(m: Any) -> Any:
        return loss(m), lambda g: tc.tree_map(lambda w: 2.0 * g * w, m)

    assert close(tc.grad(doubled)(model), [2.0 * v for v in model.trainable_variables])


def test_tapes_and_optimizers_take_modules() -> None:
    model, twin = network(), network()
    with tc.GradientTape() as tape:
        y = loss(model)
    gradient = tape.gradient(y, model)
    assert isinstance(gradient, nn.Sequential)
    nn.SGD(0.1).apply_gradients(gradient, model)
    nn.SGD(0.1).apply_gradients(zip(tc.tree_leaves(gradient), twin.trainable_variables, strict=True))
    assert close(model, twin)
    with pytest.raises(ValueError, match="structure"):
        nn.SGD(0.1).apply_gradients(gradient, nn.Sequential([]))


def test_penalties_on_weights_of_a_copy_count() -> None:
    model = network()
    found = tc.grad(lambda m: sum(tc.sum(v * v) for v in m.trainable_variables))(model)
    assert close(found, [2.0 * v for v in model.trainable_variables])


def test_compiled_steps_still_train_the_module_they_are_given() -> None:
    model = nn.Dense(1)  # built by the first call
    optimizer = nn.SGD(0.1)

    @tc.function
    def step(m: Any, x: Any) -> Any:
        with tc.GradientTape() as tape:
            y = tc.mean(m(x) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(y, m.trainable_variables), m.trainable_variables, strict=True))
        return y

    losses = [step(model, X).item() for _ in range(4)]
    assert losses[3] < losses[1] < losses[0]
    assert step.traces == 1


def test_the_mode_is_part_of_the_structure() -> None:
    model = nn.Sequential([nn.Dense(4), nn.Dropout(0.5)])
    model.build((None, 3))
    f = tc.function(lambda m, x: m(x))
    copied = tc.tree_map(lambda w: w * 1.0, model.eval())
    x = tc.ones((64, 3))
    for _ in range(3):
        assert not (f(copied, x) == 0).any()
    training = tc.tree_map(lambda w: w * 1.0, model.train())
    for _ in range(3):
        assert (f(training, x) == 0).any()
    assert f.traces == 2


def test_nothing_keeps_a_module_alive() -> None:
    model = network()
    compiled = tc.function(tc.grad(loss))
    compiled(model)
    compiled(tc.tree_map(lambda w: w * 1.0, model))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_settings_and_modules_that_are_held_twice() -> None:
    shape = [3, 3]

    class Holder(nn.Module):
        def __init__(self) -> None:
            self.one, self.two = network(), network()
            self.one.shape, self.two.shape = shape, shape  # type: ignore[attr-defined]
            self.table = {"one": self.one, "sizes": (shape, shape)}
            self.one.owner = self  # type: ignore[attr-defined]

        def __call__(self, x: Any) -> Any:
            return self.table["one"](x) + self.two(x)  # type: ignore[operator]

    holder = Holder()
    found = tc.grad(loss)(holder)
    assert close(found, by_tape(holder))
    assert found.one.shape is found.two.shape is shape
    assert found.table["one"] is found.one
    assert found.one.owner is found


def test_copies_can_be_shown_copied_and_pickled() -> None:
    model = network()
    copied = tc.tree_map(lambda w: w * 1.0, model)
    assert str(copied.summary()) == str(model.summary())
    assert repr(copied) == repr(model)
    for twin in (copy.deepcopy(copied), pickle.loads(pickle.dumps(copied))):
        assert close(twin, copied)
        assert close(tc.grad(loss)(twin), by_tape(model))


def test_an_optimizer_inside_cuts_the_path_and_says_so() -> None:
    model = network()

    def trained(params: Any) -> Any:
        with model.using(params) as values:
            with tc.GradientTape() as tape:
                y = loss(model)
            nn.SGD(0.1).apply_gradients(tape.gradient(y, model), model)
            return tc.sum(values["layers.0.kernel"])

    with pytest.raises(ValueError, match="does not depend on argument 0"):
        tc.grad(trained)(model.state_dict())


def test_gradients_of_single_examples_are_those_of_torch_func() -> None:
    torch = pytest.importorskip("torch")
    model = network()
    found = tc.vmap(tc.grad(lambda m, x: tc.sum(m(x[None]) ** 2)), in_axes=(None, 0))(model, X)
    compiled = tc.function(tc.vmap(tc.grad(lambda m, x: tc.sum(m(x[None]) ** 2)), in_axes=(None, 0)))(model, X)
    state = {name: torch.tensor(v.numpy()) for name, v in model.state_dict().items()}
    a, b, c, d = state

    def reference(p: dict[str, Any], x: Any) -> Any:
        return torch.sum((torch.tanh(x @ p[a] + p[b]) @ p[c] + p[d]) ** 2)

    expected = torch.func.vmap(torch.func.grad(reference), in_dims=(None, 0))(state, torch.tensor(X.numpy()))
    for result in (found, compiled):
        assert all(np.allclose(g.numpy(), expected[name].numpy()) for name, g in result.named_variables())


class Settings(nn.Module):
    def __init__(self) -> None:
        self.sizes = [1, 2]
        self.inner = nn.Dense(2)
        self.layers = [nn.Dense(2)]
        self.shift = tc.Variable(0.5, trainable=False)
        self.weight = tc.Variable(2.0)
        for layer in (self.inner, *self.layers):
            layer.build((None, 2))

    def __call__(self, x: Any) -> Any:
        return self.weight * x * float(sum(self.sizes)) + self.shift


def changes_of_a_copy() -> dict[str, Callable[[Any], object]]:
    def replace(copied: Any) -> None:
        copied.inner = nn.Dense(2)
        copied.inner.build((None, 2))

    return {
        "a list of settings": lambda copied: copied.sizes.append(3),
        "an element of one": lambda copied: copied.sizes.__setitem__(0, 7),
        "another list": lambda copied: setattr(copied, "sizes", [1, 2, 3]),
        "a Variable in a list": lambda copied: copied.sizes.append(tc.Variable(1.0)),
        "a new attribute": lambda copied: setattr(copied, "more", tc.Variable(1.0)),
        "an attribute less": lambda copied: delattr(copied, "inner"),
        "a layer more": lambda copied: copied.layers.append(copied.inner),
        "another layer": replace,
        "a setting of a layer": lambda copied: setattr(copied.layers[0], "activation", tc.tanh),
        "training of a Variable": lambda copied: setattr(copied.shift, "trainable", True),
        "the mode": lambda copied: copied.eval(),
    }


@pytest.mark.parametrize("change", changes_of_a_copy())
def test_changes_of_a_copy_are_seen(change: str) -> None:
    model = Settings()
    copied = tc.tree_map(lambda leaf: leaf + 1.0, model)
    before = tc.tree_flatten(copied)  # it was taken apart once
    untouched = tc.tree_flatten(copied)
    assert untouched[1] == before[1]
    assert [a is b for a, b in zip(untouched[0], before[0], strict=True)] == [True] * 5
    changes_of_a_copy()[change](copied)
    leaves, structure = tc.tree_flatten(copied)
    # What a walk through a copy finds that was never taken apart.
    expected, walked = tc.tree_flatten(copy.deepcopy(copied))
    assert len(leaves) == len(expected)
    assert [np.array_equal(a.numpy(), b.numpy()) for a, b in zip(leaves, expected, strict=True)] == [True] * len(leaves)
    again = tc.tree_unflatten(structure, leaves)
    assert {name: value.numpy().tolist() for name, value in again.named_variables()} == {
        name: value.numpy().tolist() for name, value in copied.named_variables()
    }
    assert str(structure) == str(walked)


def test_leaves_of_a_copy_that_are_replaced_are_its_leaves() -> None:
    copied = tc.tree_map(lambda leaf: leaf + 1.0, Settings())
    tc.tree_leaves(copied)
    copied.weight = tc.asarray(7.0)
    copied.layers[0].bias = None
    leaves = tc.tree_leaves(copied)
    assert leaves[-1].item() == 7.0
    assert leaves[3] is None


def test_a_compiled_function_sees_settings_of_a_copy() -> None:
    f = tc.function(lambda copied, x: copied(x), retrace="allow")
    copied = tc.tree_map(lambda leaf: leaf + 0.0, Settings())
    x = tc.asarray(1.0)
    assert [f(copied, x).item() for _ in range(3)] == [6.5] * 3
    assert f.traces == 1
    copied.sizes = [1, 2, 3]
    assert f(copied, x).item() == 12.5
    copied.weight = tc.asarray(1.0)
    assert f(copied, x).item() == 6.5
    assert f.traces == 2


def test_copies_are_freed_at_once_and_keep_nothing_of_the_original() -> None:
    model = network()
    copied = tc.tree_map(lambda leaf: leaf + 1.0, model)
    tc.tree_leaves(copied)
    gc.collect()
    gc.disable()
    try:
        variable, layer, whole = map(weakref.ref, (model.trainable_variables[0], model.layers[0], copied))
        del model
        assert variable() is None
        assert layer() is None
        del copied
        assert whole() is None
    finally:
        gc.enable()


FIRST = """
import tape_core as tc
import tape_nn as nn

model = nn.Sequential([nn.Dense(2), nn.Dense(1)])
model.build((None, 3))
x = tc.ones((4, 3))

def loss(model):
    return tc.sum(model(x))

def step(given):
    model = {model}
    return {call}

compiled = tc.function(step)
found, again = compiled({given}), compiled({given})
for one, other in zip(tc.tree_leaves(found), tc.tree_leaves(again), strict=True):
    assert one.tolist() == other.tolist()
for one, other in zip(tc.tree_leaves(found), tc.tree_leaves(step({given})), strict=True):
    assert bool(tc.all(tc.abs(one - other) < 1e-5))
assert compiled.traces == 1, compiled.traces
"""


@pytest.mark.parametrize("call", ["tc.value_and_grad(loss)(model)", "tc.grad(loss)(model)", "tc.vjp(loss, model)[0]"])
@pytest.mark.parametrize(
    ("given", "model"), [("model", "given"), ("[model, x]", "given[0]"), ("{'model': model}", "given['model']")]
)
def test_a_compiled_function_may_be_the_first_in_a_process_to_meet_a_module(given: str, model: str, call: str) -> None:
    # The classes of Modules are nodes of pytrees from the first time that one is flattened.
    code = FIRST.format(given=given, model=model, call=call)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_a_compiled_step_is_not_traced_again_when_a_module_of_its_class_is_differentiated() -> None:
    class Line(nn.Module):
        def __init__(self) -> None:
            self.slope = tc.Variable(2.0)

        def __call__(self, x: Any) -> Any:
            return self.slope * x

    line, x = Line(), tc.asarray(3.0)
    f = tc.function(lambda model, x: model(x), retrace="error")
    assert f(line, x).item() == 6.0
    assert tc.grad(lambda model: model(x))(line).slope.item() == 3.0
    line.slope.assign(4.0)
    assert f(line, x).item() == 12.0
    assert f.traces == 1


def test_a_copy_of_a_pickle_is_no_constant_of_a_compiled_function_in_another_process() -> None:
    data = pickle.dumps(tc.tree_map(lambda w: w * 1.0, network()))
    code = f"""
import pickle
import tape_core as tc

model = pickle.loads({data!r})
x = tc.ones((4, 3), dtype="float64")
compiled = tc.function(lambda model, x: model(x))
for _ in range(3):
    assert bool(tc.all(compiled(model, x) == model(x)))
    model[0].kernel = model[0].kernel + 1.0
assert compiled.traces == 1
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_a_compiled_call_follows_what_has_become_of_its_module() -> None:
    def slopes(model: Any, x: Any) -> Any:
        with tc.GradientTape() as tape:
            y = tc.sum(model(x) ** 2)
        return y, tape.gradient(y, model.trainable_variables)

    class Other(nn.Sequential):
        def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
            return 2.0 * super().__call__(x, *args, **kwargs)

    compiled = tc.function(slopes, retrace="allow")

    def check(model: Any) -> None:
        assert close(compiled(model, X), slopes(model, X))
        assert close(compiled(model, X), slopes(model, X))

    model = network()
    check(model)
    model.variables[0].trainable = False
    check(model)
    model.variables[0].trainable = True
    check(model)
    model.variables[1].assign(model.variables[1] + 1.0)
    check(model)
    check(network(seed=1))
    other = Other([nn.Dense(4, activation="tanh"), nn.Dense(1)])
    other.build((None, 3), dtype="float64")
    check(other)
    model.to("numpy")
    check(model)
    # A copy whose leaves are Tensors is an argument as Tensors are: its values are read in each call.
    values = tc.function(lambda model, x: model(x), retrace="allow")
    for scale in (1.0, 2.0):
        copied = tc.tree_map(lambda w, by=scale: w * by, model)
        assert close(values(copied, X), copied(X))
        assert close(values(model, X), model(X))
    model.inner = copied  # type: ignore[attr-defined]  # now the Module is no longer one leaf
    assert close(values(model, X), model(X))
    del model.inner  # type: ignore[attr-defined]
    assert close(values(model, X), model(X))


class Scaled(nn.Module):
    def __init__(self) -> None:
        self.layers = [nn.Dense(3), nn.Dense(3)]
        self.more = {"first": nn.Dense(3), "rest": [{"dense": nn.Dense(3)}]}

    def __call__(self, x: Any) -> Any:
        for layer in (*self.layers, self.more["first"], self.more["rest"][0]["dense"]):  # type: ignore[index]
            x = layer(x)  # type: ignore[operator]
        return x + 1.0 if self.training else x


def doubled(module: Any) -> Any:
    return tc.tree_map(lambda w: w * 2.0, module)


class Holder(nn.Module):
    def __init__(self, held: Any) -> None:
        self.held = held

    def __call__(self, x: Any) -> Any:
        return self.held(x)


CHANGES: dict[str, Any] = {
    "a value": lambda m: m.layers[0].kernel.assign(m.layers[0].kernel * 3.0),
    "a value in a dict": lambda m: m.more["rest"][0]["dense"].bias.assign([1.0, 2.0, 3.0]),
    "the mode": lambda m: m.eval(),
    "a Variable is frozen": lambda m: setattr(m.layers[1].kernel, "trainable", False),
    "a copy in a list": lambda m: m.layers.__setitem__(0, doubled(m.layers[0])),
    "a copy in a dict": lambda m: m.more.__setitem__("first", doubled(m.more["first"])),
    "a copy in a dict in a list": lambda m: m.more["rest"].__setitem__(0, {"dense": doubled(m.layers[0])}),
    "a part of a copy": lambda m: m.layers.append(doubled(Holder(m.layers[0])).held),
    "a copy of a copy": lambda m: m.layers.append(copy.deepcopy(doubled(m.layers[0]))),
    "a part of a copy of a copy": lambda m: m.layers.append(copy.deepcopy(doubled(Holder(m.layers[0]))).held),
    "a copy from a pickle": lambda m: m.layers.append(pickle.loads(pickle.dumps(doubled(m.layers[0])))),
    "a shallow copy of a copy": lambda m: m.layers.append(copy.copy(doubled(m.layers[0]))),
    "a Module of a copy": lambda m: setattr(m, "layers", [Holder(doubled(m.layers[0]))]),
}


@pytest.mark.parametrize("given", ["the Module", "a list", "a keyword"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_compiled_call_sees_what_has_become_of_the_parts_of_its_module(change: str, given: str) -> None:
    model = Scaled()
    model(X)
    compiled = tc.function(
        {
            "the Module": lambda model, x: model(x),
            "a list": lambda several, x: several[0](x),
            "a keyword": lambda x, *, model: model(x),
        }[given],
        retrace="allow",
    )

    def call() -> Any:
        if given == "a keyword":
            return compiled(X, model=model)
        return compiled(model if given == "the Module" else [model], X)

    for _ in range(2):
        assert close(call(), model(X))
    CHANGES[change](model)
    gc.collect()  # nothing else is known of a copy whose parts alone are left
    for _ in range(2):
        assert close(call(), model(X))
    if "copy" in change:  # its leaves are arguments, whose values are read in each call
        parts: list[Any] = [part for _, part in model.named_modules()]
        copied = next(part for part in parts if type(getattr(part, "kernel", None)) is tc.Tensor)
        copied.kernel = copied.kernel * 3.0
        assert close(call(), model(X))


def test_no_module_is_gone_through_where_there_are_no_copies() -> None:
    class Watched(list[Any]):
        looked = 0

        def __iter__(self) -> Any:
            Watched.looked += 1
            return super().__iter__()

    model = Scaled()
    model.layers = Watched(model.layers)
    model(X)
    compiled = tc.function(lambda model, x: x * 2.0)
    compiled(model, X)
    gc.collect()
    Watched.looked = 0
    compiled(model, X)
    assert Watched.looked == 0
    copied = doubled(model.layers[0])
    compiled(model, X)
    assert Watched.looked == 1
    del copied
    compiled(model, X)
    assert Watched.looked == 1
