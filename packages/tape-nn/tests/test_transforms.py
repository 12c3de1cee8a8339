"""Gradient transformations: the numbers of optax, inside every transformation, and as optimizers of Variables."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_nn import transforms

pytestmark = pytest.mark.each_backend

FIRST = {"w": np.asarray([[0.5, -1.0], [2.0, 0.1]]), "b": np.asarray([1.0, -3.0])}
GRADIENTS = [
    {name: np.random.default_rng(k).normal(size=value.shape) * 3 for name, value in FIRST.items()} for k in range(4)
]
CHAINS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda o: o.sgd(0.1),
    "momentum": lambda o: o.sgd(0.1, momentum=0.9),
    "nesterov": lambda o: o.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda o: o.adam(0.1, eps_root=1e-6),
    "adamw": lambda o: o.adamw(0.1, weight_decay=0.2, mask={"w": True, "b": False}),
    "clipped": lambda o: o.chain(o.clip_by_global_norm(1.0), o.scale_by_adam(b1=0.8), o.scale_by_learning_rate(0.1)),
    "values": lambda o: o.chain(o.clip(0.5), o.add_decayed_weights(0.1), o.trace(0.9), o.scale(-0.1)),
    "rms": lambda o: o.chain(o.scale_by_rms(decay=0.8), o.identity(), o.scale(-0.1)),
    "schedule": lambda o: o.chain(o.scale_by_schedule(lambda count: 0.1 / (1 + count)), o.scale(-1.0)),
}


def tensors(tree: Any) -> Any:
    return {name: tc.asarray(value, dtype=tc.float64) for name, value in tree.items()}


def follow(optimizer: Any, gradients: Any = GRADIENTS) -> Any:
    params = tensors(FIRST)
    state = optimizer.init(params)
    for g in gradients:
        updates, state = optimizer.update(tensors(g), state, params)
        params = transforms.apply_updates(params, updates)
    return params


def namespace() -> Any:
    class Ours:
        chain = staticmethod(nn.chain)

        def __getattr__(self, name: str) -> Any:
            return getattr(transforms, name)

    return Ours()


@pytest.mark.parametrize("name", CHAINS)
def test_the_numbers_are_those_of_optax(name: str) -> None:
    optax = pytest.importorskip("optax")
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    optimizer = CHAINS[name](optax)
    params = {k: jax.numpy.asarray(v) for k, v in FIRST.items()}
    state = optimizer.init(params)
    for g in GRADIENTS:
        updates, state = optimizer.update({k: jax.numpy.asarray(v) for k, v in g.items()}, state, params)
        params = optax.apply_updates(params, updates)
    found = follow(CHAINS[name](namespace()))
    for key in FIRST:
        np.testing.assert_allclose(found[key].numpy(), np.asarray(params[key]), rtol=1e-6)


def test_adam_and_momentum_are_their_formulas() -> None:
    found = follow(transforms.adam(0.1, 0.9, 0.99, 1e-3))
    for key, value in FIRST.items():
        w, m, v = value, 0.0, 0.0
        for t, g in enumerate([g[key] for g in GRADIENTS], 1):
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-3)
        np.testing.assert_allclose(found[key].numpy(), w, rtol=1e-6)
    found = follow(nn.chain(transforms.clip_by_global_norm(2.0), transforms.sgd(0.1, momentum=0.5)))
    w, t = dict(FIRST), dict.fromkeys(FIRST, 0.0)
    for g in GRADIENTS:
        norm = np.sqrt(sum((value**2).sum() for value in g.values()))
        for key in w:
            t[key] = g[key] * min(1.0, 2.0 / norm) + 0.5 * t[key]
            w[key] = w[key] - 0.1 * t[key]
    for key in w:
        np.testing.assert_allclose(found[key].numpy(), w[key], rtol=1e-6)


SCHEDULES = [
    nn.schedules.ExponentialDecay(0.1, 3, 0.5),
    nn.schedules.ExponentialDecay(0.1, 3, 0.5, staircase=True),
    nn.schedules.CosineDecay(0.1, 4, alpha=0.1),
    nn.schedules.CosineDecay(0.0, 4, warmup_target=0.2, warmup_steps=3),
    nn.schedules.PiecewiseConstantDecay([2, 4], [0.1, 0.2, 0.3]),
    nn.schedules.InverseTimeDecay(0.1, 2, 0.5, staircase=True),
    nn.schedules.PolynomialDecay(0.1, 4, power=2.0),
    nn.schedules.PolynomialDecay(0.1, 2, cycle=True),
    nn.schedules.CosineDecayRestarts(0.1, 2, m_mul=0.5),
    nn.schedules.CosineDecayRestarts(0.1, 2, t_mul=1.0),
    nn.schedules.WarmUp(nn.schedules.ExponentialDecay(0.1, 3, 0.5), 4),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=[f"{type(s).__name__}-{k}" for k, s in enumerate(SCHEDULES)])
def test_schedules_take_tensors_also_in_a_compiled_loop(schedule: Any) -> None:
    expected = [schedule(k) for k in range(9)]
    found = [float(schedule(tc.asarray(k))) for k in range(9)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
    batched = tc.function(lambda: tc.vmap(schedule)(tc.arange(9)))()
    np.testing.assert_allclose(batched.numpy(), expected, rtol=1e-5, atol=1e-8)


def loss(params: Any, x: Any) -> Any:
    return tc.sum((tc.tanh(x @ params["w"]) + params["b"] - 1.0) ** 2)


def trained(optimizer: Any, params: Any, x: Any, steps: int = 4) -> Any:
    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        value, gradients = tc.value_and_grad(loss)(params, x)
        updates, state = optimizer.update(gradients, state, params)
        return (transforms.apply_updates(params, updates), state), value

    (params, _), losses = tc.scan(step, (params, optimizer.init(params)), tc.arange(steps))
    return params, losses


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "momentum": lambda: transforms.sgd(0.05, momentum=0.9),
    "adam": lambda: nn.chain(transforms.clip_by_global_norm(1.0), transforms.adam(0.05, eps_root=1e-8)),
    "scheduled": lambda: transforms.adamw(nn.schedules.CosineDecay(0.1, 4), eps_root=1e-8),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_in_a_scan_is_the_same_compiled_and_for_an_ensemble(name: str) -> None:
    optimizer = OPTIMIZERS[name]()
    xs = tc.default_rng(0).normal((3, 5, 2), dtype=tc.float64)
    single = [trained(optimizer, tensors(FIRST), xs[k]) for k in range(3)]
    compiled = tc.function(lambda p, x: trained(optimizer, p, x))(tensors(FIRST), xs[0])
    stacked = {key: tc.stack([value] * 3) for key, value in tensors(FIRST).items()}
    ensemble = tc.vmap(lambda p, x: trained(optimizer, p, x))(stacked, xs)
    both = tc.function(lambda p, x: tc.vmap(lambda p, x: trained(optimizer, p, x))(p, x))(stacked, xs)
    for key in FIRST:
        np.testing.assert_allclose(compiled[0][key].numpy(), single[0][0][key].numpy(), rtol=1e-9)
        for k in range(3):
            np.testing.assert_allclose(ensemble[0][key][k].numpy(), single[k][0][key].numpy(), rtol=1e-8)
            np.testing.assert_allclose(both[0][key][k].numpy(), single[k][0][key].numpy(), rtol=1e-8)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_derivatives_go_through_the_steps(name: str) -> None:
    x = tc.default_rng(0).normal((5, 2), dtype=tc.float64)

    def outer(b: Any) -> Any:
        params = {"w": tc.asarray(FIRST["w"], dtype=tc.float64), "b": b}
        return loss(trained(OPTIMIZERS[name](), params, x, 3)[0], x + 0.1)

    b = tc.asarray(FIRST["b"], dtype=tc.float64)
    direction = tc.asarray([0.3, -0.7], dtype=tc.float64)
    expected = (outer(b + 1e-5 * direction) - outer(b - 1e-5 * direction)).item() / 2e-5
    for run in (outer, tc.function(outer)):
        found = tc.sum(tc.grad(run)(b) * direction).item()
        assert found == pytest.approx(expected, rel=1e-5)
    assert tc.jvp(outer, (b,), (direction,))[1].item() == pytest.approx(expected, rel=1e-5)


def test_a_learning_rate_is_learned_and_modules_are_parameters() -> None:
    model = nn.Dense(1, kernel_initializer="ones")
    model.build((None, 2))
    x = tc.asarray([[1.0, 2.0]])

    def after(rate: Any) -> Any:
        optimizer = transforms.sgd(rate)
        gradients = tc.grad(lambda m: tc.sum(m(x) ** 2))(model)
        updates, _ = optimizer.update(gradients, optimizer.init(model), model)
        return tc.sum(transforms.apply_updates(model, updates)(x) ** 2)

    # The output is 3 - 6 * rate * (1 + 1 + 4) = 3 - 36 * rate; its square has the derivative -72 * (3 - 36 * rate).
    assert tc.grad(after)(tc.asarray(0.01)).item() == pytest.approx(-72 * (3 - 0.36), rel=1e-5)


def test_none_is_no_gradient_and_half_precision_stays() -> None:
    optimizer = nn.chain(transforms.clip_by_global_norm(10.0), transforms.adam(0.5))
    params = {"a": tc.asarray([1.0], dtype=tc.float16), "b": tc.asarray([2.0])}
    state = optimizer.init(params)
    updates, state = optimizer.update({"a": tc.asarray([2.0], dtype=tc.float16), "b": None}, state, params)
    assert updates["b"] is None
    assert updates["a"].dtype is tc.float16
    params = transforms.apply_updates(params, updates)
    assert params["b"].tolist() == [2.0]
    assert params["a"].dtype is tc.float16
    assert params["a"].item() == pytest.approx(0.5, abs=0.01)


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="has another form in"):
        nn.chain(nn.Adam())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chain of 2 transformations: the state is of 1"):
        nn.chain(transforms.scale(1.0), transforms.scale(2.0)).update([1.0], ((),))
    with pytest.raises(ValueError, match="add_decayed_weights needs the parameters"):
        transforms.add_decayed_weights(0.1).update([1.0], ())
    with pytest.raises(ValueError, match="max_norm must be above 0"):
        transforms.clip_by_global_norm(0.0)
    with pytest.raises(TypeError, match="has init and update"):
        nn.TransformOptimizer(nn.Adam(), nn.Dense(1))  # type: ignore[arg-type]


# -- as an optimizer of Variables


def a_model() -> Any:
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(4, activation="tanh"), nn.Dense(2)])
    model.build((None, 3))
    return model


def a_step(model: Any, optimizer: Any) -> Callable[..., Any]:
    def step(x: Any) -> Any:
        with tc.GradientTape() as tape:
            value = tc.mean(model(x) ** 2)
        optimizer.apply_gradients(tape.gradient(value, model), model)
        return value

    return step


def test_as_an_optimizer_it_is_the_one_of_variables_eager_and_compiled() -> None:
    x = tc.default_rng(1).normal((4, 3))
    chained = nn.chain(
        transforms.clip_by_global_norm(0.1), transforms.sgd(nn.schedules.ExponentialDecay(0.5, 1, 0.5), 0.9)
    )
    found = {}
    for compiled in (False, True):
        model, reference = a_model(), a_model()
        optimizer = nn.TransformOptimizer(chained, model)
        step: Any = a_step(model, optimizer)
        step = tc.function(step) if compiled else step
        velocity = {id(v): np.zeros(v.shape) for v in reference.variables}
        for k in range(4):
            step(x)
            with tc.GradientTape() as tape:
                value = tc.mean(reference(x) ** 2)
            gradients, _ = nn.clip_by_global_norm(tape.gradient(value, reference.trainable_variables), 0.1)
            for v, g in zip(reference.trainable_variables, gradients, strict=True):
                velocity[id(v)] = g.numpy() + 0.9 * velocity[id(v)]
                v.assign_sub(tc.asarray(0.5 * 0.5**k * velocity[id(v)], dtype=v.dtype))
        assert optimizer.iterations == 4
        for a, b in zip(model.variables, reference.variables, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)
        found[compiled] = [v.numpy() for v in model.variables]
        if compiled:
            assert step.traces == 1
            (trace,) = next(iter(step._compiled.values()))
            assert "_apply" not in [i.name for i in trace.program.instructions]
    for a, b in zip(found[True], found[False], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_its_state_continues_in_fit_and_in_a_loop(tmp_path: Any) -> None:
    x = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")

    class Stop(nn.Callback):
        def on_batch_end(self, run: Any) -> None:
            if run.step == 5:
                raise KeyboardInterrupt

    def program(path: Any, callbacks: Any = ()) -> Any:
        model = a_model()
        optimizer = nn.TransformOptimizer(transforms.adam(0.05), model)
        nn.fit(
            model, (x, x[:, :2]), loss=nn.losses.MeanSquaredError(), optimizer=optimizer, epochs=2, batch_size=3,
            seed=0, checkpoint=path, checkpoint_every=3, callbacks=callbacks, progress=False,
        )  # fmt: skip
        return [v.numpy() for v in model.variables]

    with pytest.raises(KeyboardInterrupt):
        program(tmp_path / "a", [Stop()])
    for a, b in zip(program(tmp_path / "a"), program(tmp_path / "b"), strict=True):
        np.testing.assert_array_equal(a, b)
    model = a_model()
    optimizer = nn.TransformOptimizer(transforms.adam(0.05), model)
    with pytest.raises(ValueError, match="'state/0' is missing"):
        optimizer.load_state_dict({"iterations": 1}, model)
    state = optimizer.state_dict(model)
    with pytest.raises(ValueError, match="unknown names: 'other'"):
        optimizer.load_state_dict({**state, "other": 1.0}, model)
    accumulating = nn.GradientAccumulation(nn.LossScaler(optimizer), 2)
    for _ in range(2):
        with tc.GradientTape() as tape:
            value = accumulating.scale_loss(tc.mean(model(tc.asarray(x)) ** 2))
        accumulating.apply_gradients(tape.gradient(value, model), model)
    assert optimizer.iterations == 1


def test_an_update_is_recorded_by_no_tape_and_a_variable_it_does_not_know_is_an_error() -> None:
    v, w = tc.Variable([1.0], name="v"), tc.Variable(2.0, name="w")
    optimizer = nn.TransformOptimizer(transforms.sgd(0.5), {"v": v})
    with tc.GradientTape(persistent=True) as tape:
        scale = tc.Variable(2.0)
        optimizer.apply_gradients([(tc.asarray([1.0]) * scale, v)])
        after = tc.sum(v * 3.0)
    assert v.tolist() == [0.0]
    assert tape.gradient(after, scale) is None
    assert tape.gradient(after, v).tolist() == [3.0]
    with pytest.raises(ValueError, match="'w' is none of the Variables that this optimizer was made for"):
        optimizer.apply_gradients([(1.0, w)])
    with pytest.raises(ValueError, match="No gradients provided"):
        optimizer.apply_gradients([(None, v)])
    with pytest.raises(AttributeError, match="argument of the transformation"):
        _ = optimizer.learning_rate


class Foreign:
    """A transformation as somebody else writes one, that decides by values and has a state with a number in it."""

    def init(self, params: Any) -> Any:
        return {"best": tc.asarray(tc.inf), "name": "foreign"}

    def update(self, gradients: Any, state: Any, params: Any = None) -> Any:
        size = tc.sum(gradients["w"] ** 2)
        factor = 0.5 if size.item() < state["best"].item() else 0.25
        best = tc.minimum(size, tc.astype(state["best"], size.dtype))
        return {"w": -factor * gradients["w"]}, {"best": best, "name": "foreign"}


def test_one_that_decides_by_values_is_called_in_each_run() -> None:
    def train(compiled: bool) -> Any:
        w = tc.Variable([4.0])
        optimizer = nn.TransformOptimizer(Foreign(), {"w": w})

        def step(g: Any) -> None:
            optimizer.apply_gradients([(g, w)])

        run: Any = tc.function(step) if compiled else step
        for g in ([1.0], [2.0], [0.5]):
            run(tc.asarray(g))
        return w.tolist(), optimizer.iterations

    assert train(True) == train(False) == ([4.0 - 0.5 - 0.5 - 0.25], 3)
