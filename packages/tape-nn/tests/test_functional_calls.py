"""`module.using(params)` and `functional_call`: other values for Variables, in a context."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.backends.errors import BatchError


def points(*shape: int, seed: int = 0) -> tc.Tensor:
    return tc.default_rng(seed).normal(shape, dtype="float64")


X = points(5, 3)


def network(*, norm: bool = False) -> Any:
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(4, activation="tanh"), *([nn.BatchNorm()] if norm else []), nn.Dense(1)])
    model.build((None, 3), dtype="float64")
    return model


def by_tape(model: Any, f: Callable[[Any], Any]) -> list[Any]:
    with tc.GradientTape() as tape:
        y = f(model)
    return list(tape.gradient(y, model.trainable_variables))


def same(a: Any, b: Any, atol: float = 1e-10) -> bool:
    one, two = tc.tree_leaves(a), tc.tree_leaves(b)
    return len(one) == len(two) and all(
        np.allclose(x.numpy(), y.numpy(), atol=atol) for x, y in zip(one, two, strict=True)
    )


MODEL = network()
STATE = MODEL.state_dict()
OTHER = tc.tree_map(lambda v: v + 0.25, STATE)


def changed() -> Any:
    model = network()
    model.load_state_dict(OTHER)
    return model


def loss(model: Any) -> Any:
    return tc.mean((model(X) - 1.0) ** 2)


def functional(params: Any) -> Any:
    return tc.mean((nn.functional_call(MODEL, params, X) - 1.0) ** 2)


# -- values


@pytest.mark.parametrize(
    "params",
    [OTHER, {k: v.numpy() for k, v in OTHER.items()}, list(OTHER.values()), tuple(OTHER.values()), changed()],
    ids=["a dict", "arrays", "a list", "a tuple", "a Module"],
)
def test_all_forms_of_parameters(params: Any) -> None:
    expected = changed()(X)
    assert same(nn.functional_call(MODEL, params, X), expected)
    with MODEL.using(params) as values:
        assert same(MODEL(X), expected)
        assert same(MODEL.layers[0].kernel, OTHER["layers.0.kernel"])
        assert same(MODEL.state_dict(), OTHER)
        assert same(MODEL.layers[0].bias.value, OTHER["layers.0.bias"])
        assert values["layers.0.bias"].tolist() == MODEL.layers[0].bias.numpy().tolist()
    assert same(MODEL.state_dict(), STATE)
    assert same(dict(values), OTHER)


def test_some_values() -> None:
    with MODEL.using({"layers.1.bias": tc.asarray([7.0], dtype="float64")}) as values:
        assert list(values) == ["layers.1.bias"]
        assert same(MODEL(X), MODEL(X))
        found = MODEL(X)
    assert same(found - 7.0, MODEL(X) - MODEL.layers[1].bias)


def test_values_of_another_dtype_and_backend() -> None:
    single = tc.tree_map(lambda v: tc.astype(v, "float32"), STATE)
    y = nn.functional_call(MODEL, single, tc.astype(X, "float32"))
    assert same(y, MODEL(X), atol=1e-5)
    torch = pytest.importorskip("torch")
    assert torch is not None
    on_torch = tc.tree_map(lambda v: tc.asarray(v, backend="torch"), STATE)
    with MODEL.using(on_torch):
        assert MODEL.layers[0].kernel.backend.name == "torch"
        found = MODEL(tc.asarray(X, backend="torch"))
    assert found.backend.name == "torch"
    assert same(found, MODEL(X))


def test_blocks_nest_and_an_exception_leaves_everything() -> None:
    bias = MODEL.layers[1].bias
    one, two = tc.asarray([1.0], dtype="float64"), tc.asarray([2.0], dtype="float64")
    with MODEL.using({"layers.1.bias": one}):
        with pytest.raises(KeyError), MODEL.using({"layers.1.bias": two}):
            assert bias.tolist() == [2.0]
            raise KeyError
        assert bias.tolist() == [1.0]
        with MODEL.using({"layers.0.bias": tc.zeros(4, dtype="float64")}):
            assert bias.tolist() == [1.0]
    assert bias.tolist() == STATE["layers.1.bias"].tolist()
    context = MODEL.using({"layers.1.bias": one})
    with context, MODEL.using({"layers.1.bias": two}):
        assert bias.tolist() == [2.0]


def test_other_threads_see_the_module_as_it_is() -> None:
    seen = []
    with MODEL.using(OTHER):
        worker = threading.Thread(target=lambda: seen.append(MODEL(X)))
        worker.start()
        worker.join()
    assert same(seen[0], MODEL(X))


def test_variables_shared_by_layers_and_read_elsewhere() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            self.w = tc.Variable(2.0)
            self.again = [self.w]
            held = self.w
            self.outside = lambda x: held * x

        def __call__(self, x: Any) -> Any:
            return self.w * self.outside(x) * self.again[0]

    model = Shared()
    assert nn.functional_call(model, {"w": tc.asarray(3.0)}, 1.0).item() == 27.0
    assert tc.grad(lambda p: nn.functional_call(model, p, 1.0))({"w": 3.0})["w"].item() == 27.0
    assert model(1.0).item() == 8.0


# -- transformations, eager and compiled

EXPECTED = dict(zip(STATE, by_tape(changed(), loss), strict=True))


def transformed(name: str, wrap: Callable[[Any], Any]) -> Any:
    ones = tc.tree_map(tc.ones_like, OTHER)
    match name:
        case "grad":
            return wrap(tc.grad(functional))(OTHER)
        case "value_and_grad":
            return wrap(tc.value_and_grad(functional))(OTHER)[1]
        case "vjp":
            return wrap(lambda p: tc.vjp(functional, p)[1](1.0)[0])(OTHER)
        case "jacrev":
            return wrap(tc.jacrev(functional))(OTHER)
        case "jacfwd":
            return wrap(tc.jacfwd(functional))(OTHER)
        case "checkpoint":
            return wrap(tc.grad(tc.checkpoint(functional)))(OTHER)
        case "checkpoint inside":
            return wrap(tc.grad(lambda p: tc.mean((nn.functional_call(Checkpointed(), p, X) - 1.0) ** 2)))(OTHER)
        case "vmap":
            stacked = tc.tree_map(lambda v: tc.stack([v, v + 1.0]), OTHER)
            return tc.tree_map(lambda g: g[0], wrap(tc.vmap(tc.grad(functional)))(stacked))
        case "tape in the block":
            return wrap(tape_in_the_block)(OTHER)
        case "tape around":
            return wrap(tape_around)(OTHER)
        case "sequence":
            return wrap(tc.grad(functional))(list(OTHER.values()))
        case "cond":
            return wrap(
                tc.grad(lambda p: tc.cond(p["layers.1.bias"][0] > -9, functional, lambda p: 0.0 * functional(p), p))
            )(OTHER)
        case "scan":
            step = lambda p, _: (tc.tree_map(lambda v: v * 1.0, p), functional(p))  # noqa: E731
            return wrap(tc.grad(lambda p: tc.scan(step, p, length=3)[1][2]))(OTHER)
        case "scan in the block":

            def inside(p: Any) -> Any:
                with MODEL.using(p):
                    return (
                        tc.scan(lambda c, x: (c + tc.mean((MODEL(x[None]) - 1.0) ** 2), None), 0.0 * X[0, 0], X)[0] / 5
                    )

            return wrap(tc.grad(inside))(OTHER)
        case "hvp":
            found = wrap(lambda p: tc.hvp(functional, (p,), (ones,)))(OTHER)
            eps = 1e-5
            up, down = (tc.grad(functional)(tc.tree_map(lambda v, s=s: v + s * eps, OTHER)) for s in (1, -1))
            assert same(found, tc.tree_map(lambda a, b: (a - b) / (2 * eps), up, down), atol=1e-7)
            return EXPECTED
        case _:
            raise AssertionError(name)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        self.layers = MODEL.layers

    def __call__(self, x: Any) -> Any:
        return self.layers[1](tc.checkpoint(lambda x: self.layers[0](x))(x))


def tape_in_the_block(params: Any) -> Any:
    with MODEL.using(params):
        with tc.GradientTape() as tape:
            y = loss(MODEL)
        return list(tape.gradient(y, MODEL.trainable_variables))


def tape_around(params: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch(params)
        y = functional(params)
    return tape.gradient(y, params)


NAMES = [
    "grad", "value_and_grad", "vjp", "jacrev", "jacfwd", "checkpoint", "checkpoint inside", "vmap", "sequence", "cond",
    "scan", "scan in the block", "hvp", "tape in the block", "tape around",
]  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name: str, compiled: bool) -> None:
    found = transformed(name, tc.function if compiled else lambda f: f)
    assert same(found if isinstance(found, dict) else dict(zip(STATE, found, strict=True)), EXPECTED)
    assert same(MODEL.state_dict(), STATE)


def test_second_derivatives_through_a_tape_in_the_block() -> None:
    def norm(params: Any) -> Any:
        return sum(tc.sum(g * g) for g in tape_in_the_block(params))

    def reference(params: Any) -> Any:
        return sum(tc.sum(g * g) for g in tc.tree_leaves(tc.grad(functional)(params)))

    assert same(tc.grad(norm)(OTHER), tc.grad(reference)(OTHER))
    assert same(tc.function(tc.grad(norm))(OTHER), tc.grad(reference)(OTHER))


# -- compiled functions that are called in a block


def test_compiled_functions_read_the_values_that_are_bound_around_the_call() -> None:
    compiled = tc.function(lambda x: MODEL(x))
    for _ in range(2):
        assert same(compiled(X), MODEL(X))
        with MODEL.using(OTHER):
            assert same(compiled(X), changed()(X))
    assert compiled.traces == 1
    single = tc.tree_map(lambda v: tc.astype(v, "float32"), OTHER)
    for _ in range(2):
        with MODEL.using(single):
            assert compiled(tc.astype(X, "float32")).dtype is tc.float32
            assert same(compiled(X), changed()(X), atol=1e-5)
        assert same(compiled(X), MODEL(X))
    fresh = tc.function(lambda x: MODEL(x))
    with MODEL.using(OTHER):  # traced in the block, for the first time
        assert same(fresh(X), changed()(X))
    assert same(fresh(X), MODEL(X))
    assert fresh.traces == 1


def test_compiled_functions_assign_to_the_values() -> None:
    v = tc.Variable(1.0)
    holder = nn.Module()
    holder.v = v

    @tc.function
    def count(x: Any) -> Any:
        v.assign_add(x)
        return v * 2.0

    for _ in range(2):
        with holder.using({"v": tc.asarray(10.0)}) as values:
            assert [count(tc.asarray(1.0)).item() for _ in range(3)] == [22.0, 24.0, 26.0]
        assert values["v"].item() == 13.0
        assert v.item() == 1.0
    assert count(tc.asarray(1.0)).item() == 4.0
    assert v.item() == 2.0


@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_through_a_compiled_module(compiled: bool) -> None:
    call = tc.function(lambda x: MODEL(x)) if compiled else MODEL

    def f(params: Any) -> Any:
        with MODEL.using(params):
            return tc.mean((call(X) - 1.0) ** 2)

    for _ in range(2):
        assert same(tc.grad(f)(OTHER), EXPECTED)
        assert same(dict(zip(STATE, tape_in_the_block(OTHER), strict=True)), EXPECTED)


# -- assignments


def test_statistics_go_to_the_values_and_come_out() -> None:
    model = network(norm=True)
    before = model.state_dict()
    twin = network(norm=True)
    twin(X)

    def f(state: Any) -> Any:
        with model.using(state) as values:
            y = model(X)
        return y, dict(values)

    for g in (f, tc.function(f)):
        y, after = g(before)
        assert same(after, twin.state_dict())
        assert same(model.state_dict(), before)
        stacked = tc.tree_map(lambda v: tc.stack([v, v + 1.0]), before)
        ys, states = (tc.vmap(f) if g is f else tc.function(tc.vmap(f)))(stacked)
        assert same(ys[0], y)
        assert same(tc.tree_map(lambda v: v[0], states), after)
        one = tc.tree_map(lambda v: v[1], stacked)
        assert same(tc.tree_map(lambda v: v[1], states), f(one)[1])

    def steps(state: Any) -> Any:
        return tc.scan(lambda s, _: (f(s)[1], None), state, length=3)[0]

    for g in (steps, tc.function(steps)):
        found = g(before)
        for _ in range(2):
            twin(X)
        assert same(found, twin.state_dict())
        twin = network(norm=True)
        twin(X)


def test_an_ensemble_with_statistics_and_gradients() -> None:
    model = network(norm=True)
    states = [tc.tree_map(lambda v, k=k: v + 0.1 * k, model.state_dict()) for k in range(3)]
    stacked = tc.tree_map(lambda *vs: tc.stack(vs), *states)

    def f(state: Any, x: Any) -> Any:
        with model.using(state) as values:
            return tc.mean(model(x) ** 2), dict(values)

    gradients, after = tc.vmap(tc.grad(f, has_aux=True), in_axes=(0, None))(stacked, X)
    for k, state in enumerate(states):
        g, new = tc.grad(f, has_aux=True)(state, X)
        assert same(tc.tree_map(lambda v, k=k: v[k], gradients), g)
        assert same(tc.tree_map(lambda v, k=k: v[k], after), new)


def test_assignments_under_vmap_say_how_to_bind() -> None:
    model = network(norm=True)
    with pytest.raises(TypeError, match=r"module\.using\(values\)"):
        tc.vmap(lambda x: model(x))(tc.stack([X, X + 1.0]))
    with model.using(model.state_dict()), pytest.raises(RuntimeError, match="inside, in the function that is mapped"):
        tc.vmap(lambda x: model(x))(tc.stack([X, X + 1.0]))
    assert same(model.state_dict(), network(norm=True).state_dict())


def test_optimizers_update_the_values_of_a_block() -> None:
    model, twin = network(), network()
    with tc.GradientTape() as tape:
        y = loss(twin)
    nn.SGD(0.1).apply_gradients(tape.gradient(y, twin), twin)

    def adapted(params: Any) -> Any:
        with model.using(params) as values:
            with tc.GradientTape() as tape:
                y = loss(model)
            nn.SGD(0.1).apply_gradients(tape.gradient(y, model.trainable_variables), model.trainable_variables)
            return dict(values)

    assert same(adapted(STATE), twin.state_dict())
    assert same(model.state_dict(), STATE)


def test_assign_add_and_rows_leave_the_given_arrays() -> None:
    layer = nn.Embedding(4, 2)
    layer.build((None,))
    given = tc.ones((4, 2))
    with layer.using([given]) as values:
        for _ in range(4):
            with tc.GradientTape() as tape:
                y = tc.sum(layer(tc.asarray([1, 1])))
            layer.embeddings.assign_sub(tape.gradient(y, layer.embeddings))
    assert given.tolist() == [[1.0, 1.0]] * 4
    assert values["embeddings"].tolist() == [[1.0, 1.0], [-7.0, -7.0], [1.0, 1.0], [1.0, 1.0]]


# -- mistakes


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"no Variable 'layers\.0\.kernle'"):
        nn.functional_call(MODEL, {"layers.0.kernle": 1.0}, X)
    with pytest.raises(ValueError, match="3 values are given; Sequential has 4"):
        nn.functional_call(MODEL, [1.0] * 3, X)
    with pytest.raises(ValueError, match=r"shape \(\), the Variable \(1,\)"):
        nn.functional_call(MODEL, {"layers.1.bias": 1.0}, X)
    with pytest.raises(TypeError, match="dtype int64"):
        nn.functional_call(MODEL, {"layers.1.bias": tc.asarray([1])}, X)
    with pytest.raises(TypeError, match="must be a mapping"):
        nn.functional_call(MODEL, 1.0, X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"build\(input_shape\)"):
        nn.functional_call(nn.Dense(2), {}, X)
    with pytest.raises(ValueError, match="has the leaves"):
        nn.functional_call(MODEL, MODEL.layers[0], X)
    with pytest.raises(TypeError, match="functional_call"):
        with tc.grad(loss)(MODEL).using({}):
            pass


def test_functional_call_of_a_copy() -> None:
    copied = tc.tree_map(lambda v: v * 0.0, MODEL)
    assert same(nn.functional_call(copied, OTHER, X), changed()(X))
    assert same(nn.functional_call(copied, MODEL, X), MODEL(X))
    with_statistics = tc.tree_map(lambda v: v * 1.0, network(norm=True))
    state = with_statistics.state_dict()
    assert nn.functional_call(with_statistics, state, X).shape == (5, 1)
    assert same(with_statistics.state_dict(), state)


def test_a_gradient_is_no_silent_zero() -> None:
    def by_assignment(params: Any) -> Any:
        twin.load_state_dict(params)
        return loss(twin)

    twin = network()
    for f in (tc.grad, tc.value_and_grad, tc.jacrev, tc.hessian, tc.jacfwd):
        with pytest.raises(ValueError, match="assigned to a Variable"):
            f(by_assignment)(STATE)
    fun, x0, _ = tc.scipy_objective(by_assignment, STATE)
    with pytest.raises(ValueError, match=r"using\("):
        fun(x0)
    with pytest.raises(ValueError, match="reads the Variable itself"):
        tc.grad(lambda vs: loss(twin))(twin.trainable_variables)
    with pytest.raises(ValueError, match="reads the Variable itself"):
        tc.grad(lambda m: loss(twin))(twin)


def test_fixed_points_of_a_layer() -> None:
    layer = nn.Dense(3)
    layer.build((None, 3), dtype="float64")
    layer.kernel.assign(points(3, 3) * 0.2)

    def of_module(m: Any) -> Any:
        return tc.sum(tc.fixed_point(lambda z, m: tc.tanh(m(z)) + X, X, m) ** 2)

    def of_state(state: Any) -> Any:
        with layer.using(state):
            return tc.sum(tc.fixed_point(lambda z: tc.tanh(layer(z)) + X, X) ** 2)

    expected = dict(zip(layer.state_dict(), by_tape(layer, lambda m: of_state({})), strict=True))
    assert same(tc.grad(of_state)(layer.state_dict()), expected, atol=1e-6)
    assert same(tc.grad(of_module)(layer).state_dict(), expected, atol=1e-6)
    step = {"kernel": tc.zeros((3, 3), dtype="float64"), "bias": tc.asarray([0.0, 1e-5, 0.0], dtype="float64")}
    up, down = (of_state(tc.tree_map(lambda v, d, s=s: v + s * d, layer.state_dict(), step)) for s in (1.0, -1.0))
    assert ((up - down) / 2e-5).item() == pytest.approx(expected["bias"][1].item(), rel=1e-5)


def a_model_that_draws() -> Any:
    model = nn.Sequential([nn.Dense(6), nn.Dropout(0.5, rng=tc.default_rng(0))])
    model.build((None, 3))
    return model


@pytest.mark.parametrize("compiled", [False, True])
def test_a_state_of_a_generator_is_used_for_the_call_and_the_generator_stays(compiled: bool) -> None:
    model = a_model_that_draws()
    state, x = model.state_dict(), tc.ones((4, 3))
    first, second = model(x), model(x)  # the generator has gone on
    assert not same(first, second)
    rng = model.state_dict()["layers.1.rng"]

    def call(state: Any, x: Any) -> Any:
        return nn.functional_call(model, state, x)

    def step(state: Any, x: Any) -> Any:
        with model.using(state) as values:
            return model(x), dict(values)

    run: Any = tc.function(call) if compiled else call
    go: Any = tc.function(step) if compiled else step
    for _ in range(2):
        assert same(run(state, x), first)
        found, after = go(state, x)
        assert same(found, first)
        found, last = go(after, x)
        assert same(found, second)
        assert same(last["layers.1.rng"], rng)
        assert same(model.state_dict()["layers.1.rng"], rng)
    assert compiled <= (getattr(run, "traces", 0) == 1)
    assert same(call(dict(model.named_variables()), x), model(x)) is False  # without a state, the Module's own draws
    assert not same(model.state_dict()["layers.1.rng"], rng)


def test_states_of_generators_under_transformations() -> None:
    model = a_model_that_draws()
    state, x = model.state_dict(), tc.ones((4, 3))
    rng = {"layers.1.rng": state.pop("layers.1.rng")}

    def loss(params: Any, rng: Any = rng) -> Any:
        return tc.sum(nn.functional_call(model, {**params, **rng}, x) ** 2)

    assert same(loss(state), loss(state))
    expected = tc.grad(loss)(state)
    assert same(tc.function(tc.grad(loss))(state), expected)
    assert same(tc.grad(tc.checkpoint(loss))(state), expected)
    assert same(tc.jvp(loss, (state,), (expected,))[1], sum(tc.sum(g * g) for g in expected.values()), atol=1e-3)
    copies = {name: tc.stack([value, value]) for name, value in state.items()}
    rows = tc.vmap(lambda p: nn.functional_call(model, {**p, **rng}, x), randomness="same")(copies)
    assert same(rows[0], nn.functional_call(model, {**state, **rng}, x))
    with pytest.raises(BatchError, match="the state of a random generator differs between the examples"):
        tc.vmap(lambda r: loss(state, r))({name: tc.stack([value, value]) for name, value in rng.items()})
    # The copy that a transformation makes has no Variables; the state is used all the same.
    again = tc.grad(lambda m: tc.sum(nn.functional_call(m, {**dict(m.named_variables()), **rng}, x) ** 2))(model)
    assert same(again.state_dict()["layers.0.kernel"], expected["layers.0.kernel"])


def test_a_state_of_a_generator_is_checked_and_other_threads_draw_from_the_generator() -> None:
    model = a_model_that_draws()
    with pytest.raises(
        ValueError, match=r"'layers\.1\.rng' has dtype float32.*the state of a random generator is int64"
    ):
        nn.functional_call(model, {"layers.1.rng": tc.ones(3)}, tc.ones((1, 3)))
    state, found = model.state_dict(), []
    own = model[1].rng.get_state()
    with model.using(state):
        model(tc.ones((1, 3)))
        inside = model[1].rng.get_state()
        thread = threading.Thread(target=lambda: found.append(model[1].rng.get_state()))
        thread.start()
        thread.join()
    assert found == [own]
    assert inside != own
    assert model[1].rng.get_state() == own
    first = model[1].rng.split(1)[0].get_state()
    with model.using(state):
        assert model[1].rng.split(1)[0].get_state() == first


STEPS = tc.full(200, 0.01, dtype="float64")
READS: dict[str, Callable[[Any, Any], Any]] = {
    "checkpoint": lambda x, v: tc.checkpoint(lambda a: x * a + v * v)(1.0),
    "checkpoint of the Variable": lambda x, v: tc.checkpoint(lambda a: x * 1.0 + 0.5 * a * v)(v),
    "checkpoint in checkpoint": lambda x, v: tc.checkpoint(lambda a: tc.checkpoint(lambda b: x * b)(v) + v * a)(1.0),
    "cond": lambda x, v: tc.cond(tc.sum(v) > -9.0, lambda: x * v + x, lambda: x),
    "checkpoint in cond": lambda x, v: tc.cond(tc.sum(v) > -9.0, lambda: tc.checkpoint(lambda a: x)(v), lambda: v),
    "while_loop": lambda x, v: tc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x + v), (0, x))[1],
    "long scan": lambda x, v: tc.scan(lambda c, r: (c * 0.5 + r * x * v, None), x, tc.full(200, 0.01, dtype="float64"))[
        0
    ],
    "long map": lambda x, v: tc.sum(tc.map(lambda r: r * x + v * v, STEPS), axis=0),
    "vmap of checkpoint": lambda x, v: tc.vmap(lambda a: tc.checkpoint(lambda b: tc.sum(x * b + v))(a))(x * 1.0),
    "checkpoint of vmap": lambda x, v: tc.checkpoint(lambda b: tc.vmap(lambda a: a * tc.sum(x * v))(x * b))(1.0),
}


@pytest.mark.parametrize("name", READS)
def test_a_function_that_runs_again_reads_a_value_and_the_variable_that_has_it(name: str) -> None:
    f = READS[name]
    cell = nn.Dense(1)
    cell.build((None, 3), dtype="float64")

    def bound(x: Any) -> Any:
        value = x[:, None]
        with cell.using({"kernel": value}):
            return tc.sum(tc.sin(f(value, cell.kernel)))

    def plain(x: Any) -> Any:
        return tc.sum(tc.sin(f(x[:, None], x[:, None] * 1.0)))

    x = tc.asarray([0.3, -0.5, 0.2], dtype="float64")
    for transform in (tc.grad, tc.jacfwd, tc.jacrev, tc.hessian):
        assert same(transform(bound)(x), transform(plain)(x)), transform


@pytest.mark.parametrize("name", READS)
def test_a_function_that_runs_again_reads_a_variable_and_its_value(name: str) -> None:
    v = tc.Variable([[0.3], [-0.5], [0.2]], dtype="float64")
    with tc.GradientTape() as tape:
        y = tc.sum(tc.sin(READS[name](v.value, v)))
    x = tc.asarray(v.numpy())
    with tc.GradientTape() as plain:
        plain.watch(x)
        z = tc.sum(tc.sin(READS[name](x, x * 1.0)))
    assert same(tape.gradient(y, v), plain.gradient(z, x))
