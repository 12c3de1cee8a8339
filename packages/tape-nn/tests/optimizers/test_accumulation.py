"""Gradient accumulation: several batches give the update of one large batch, eager, compiled, resumed, sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.staging import TracingError

pytestmark = pytest.mark.each_backend

OPTIMIZERS: dict[str, Callable[[], nn.Optimizer]] = {
    "sgd": lambda: nn.SGD(0.5, 0.9),
    "clipped": lambda: nn.Adam(0.05, global_clipnorm=0.01),
    "scheduled": lambda: nn.AdamW(nn.schedules.ExponentialDecay(0.1, 1, 0.5), weight_decay=0.1),
    "groups": lambda: nn.Adam(0.05, groups=[nn.ParameterGroup(lambda v: v.ndim == 1, learning_rate=0.2)]),
}
SIZES = (4, 1, 3, 2, 2, 4)
X = np.random.default_rng(0).normal(size=(16, 3))
Y = np.random.default_rng(1).integers(0, 2, 16)


def a_model() -> Any:
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(5, activation="tanh"), nn.Dense(2)])
    model.build((None, 3))
    return model


def a_step(model: Any, optimizer: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(model(x), y))
            scaled = optimizer.scale_loss(loss)
        variables = model.trainable_variables
        pairs = zip(tape.gradient(scaled, variables), variables, strict=True)
        if isinstance(optimizer, nn.GradientAccumulation):
            optimizer.apply_gradients(pairs, examples=x.shape[0])
        else:
            optimizer.apply_gradients(pairs)
        return loss

    return step


def batches(sizes: Any) -> list[Any]:
    ends = np.cumsum(sizes)
    return [
        (tc.asarray(X[end - size : end], dtype=tc.float32), tc.asarray(Y[end - size : end]))
        for size, end in zip(sizes, ends, strict=True)
    ]


def values(model: Any) -> list[Any]:
    return [v.numpy() for v in model.variables]


def assert_close(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_uneven_batches_give_the_update_of_one_large_batch(name: str, compiled: bool) -> None:
    model, reference = a_model(), a_model()
    optimizer, single = nn.GradientAccumulation(OPTIMIZERS[name](), 3), OPTIMIZERS[name]()
    step: Any = a_step(model, optimizer)
    step = tc.function(retrace="allow")(step) if compiled else step
    before = values(model)
    for k, batch in enumerate(batches(SIZES)):
        step(*batch)
        if k < 2:
            for a, b in zip(values(model), before, strict=True):
                np.testing.assert_array_equal(a, b)
    for batch in batches((8, 8)):
        a_step(reference, single)(*batch)
    assert optimizer.iterations == single.iterations == 2
    assert optimizer.pending == 0
    assert_close(values(model), values(reference))


def test_a_compiled_step_has_the_numbers_of_an_eager_one_in_three_traces() -> None:
    def train(compiled: bool) -> Any:
        model = a_model()
        step: Any = a_step(model, nn.GradientAccumulation(nn.Adam(0.05), 3))
        run: Any = tc.function(step) if compiled else step
        for batch in batches((2,) * 8):
            run(*batch)
        return values(model), getattr(run, "traces", 3), run

    found, traces, run = train(True)
    assert_close(found, train(False)[0])
    assert traces == 3  # the first batch of an update, those between, and the last
    for compiled in next(iter(run._compiled.values())):
        assert "apply_gradients" not in [i.name for i in compiled.program.instructions]


def test_two_updates_in_one_call_and_a_loop() -> None:
    def train(compiled: bool) -> Any:
        w = tc.Variable([1.0, 2.0])
        optimizer = nn.GradientAccumulation(nn.SGD(0.1, 0.5), 2)

        def step(gs: Any) -> None:
            for k in range(3):
                optimizer.apply_gradients([(gs[k] * w, w)])

        run: Any = tc.function(step) if compiled else step
        for _ in range(3):
            run(tc.asarray([[1.0, 2.0], [3.0, 4.0], [0.5, 0.5]]))
        return w.numpy(), optimizer.pending, optimizer.iterations

    found, expected = train(True), train(False)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    assert found[1:] == expected[1:] == (1, 4)
    w, optimizer = tc.Variable(1.0), nn.GradientAccumulation(nn.SGD(1.0), 2)

    def loop(gs: Any) -> Any:
        return tc.scan(lambda carry, g: (carry, optimizer.apply_gradients([(g, w)]) or g), tc.asarray(0.0), gs)[1]

    loop(tc.ones(4))
    assert w.item() == -1.0
    with pytest.raises(TracingError, match="apply_gradients is called in a branch or a loop"):
        tc.function(loop)(tc.ones(4))
    assert w.item() == -1.0


def test_flush_updates_with_what_waits_and_then_with_nothing() -> None:
    for compiled in (False, True):
        w = tc.Variable(1.0)
        optimizer = nn.GradientAccumulation(nn.SGD(1.0), 5)
        flush: Any = tc.function(optimizer.flush) if compiled else optimizer.flush
        flush()
        assert (w.item(), optimizer.iterations) == (1.0, 0)
        for gradient in (1.0, 3.0):
            optimizer.apply_gradients([(gradient, w)])
        flush()
        flush()
        assert (w.item(), optimizer.iterations, optimizer.pending) == (-1.0, 1, 0)


@pytest.mark.parametrize("outside", [False, True])
def test_a_loss_scaler_on_either_side(outside: bool) -> None:
    def make() -> Any:
        adam = nn.Adam(0.05)
        if outside:
            return nn.LossScaler(nn.GradientAccumulation(adam, 2), initial_scale=64.0)
        return nn.GradientAccumulation(nn.LossScaler(adam, initial_scale=64.0), 2)

    model, reference = a_model(), a_model()
    optimizer = make()
    for batch in batches((4, 4, 4, 4)):
        a_step(model, optimizer)(*batch)
    for batch in batches((8, 8)):
        a_step(reference, nn.Adam(0.05) if batch is None else optimizer_of(reference))(*batch)
    assert_close(values(model), values(reference))
    w = tc.Variable(1.0)
    optimizer = make()
    for gradient in (64.0, tc.inf, 64.0):
        optimizer.apply_gradients([(gradient, w)])
    # Outside: the bad batch is left out, and the third completes the update. Inside: the update is skipped.
    assert (w.item() != 1.0) == outside


OWN: dict[int, Any] = {}


def optimizer_of(model: Any) -> Any:
    return OWN.setdefault(id(model), nn.Adam(0.05))


@pytest.mark.long_on_jax
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_sparse_gradients_move_the_rows_that_one_large_batch_would(lazy: bool, compiled: bool) -> None:
    def train(steps: int, keys: Any) -> Any:
        table = tc.Variable(tc.reshape(tc.arange(16.0, dtype=tc.float32), (8, 2)) / 7)
        inner = nn.AdamW(0.1, weight_decay=0.5, lazy=lazy)
        optimizer = nn.GradientAccumulation(inner, steps)

        def step(k: Any) -> None:
            with tc.GradientTape() as tape:
                loss = tc.mean(tc.gather(table, k) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, table), table)], examples=k.shape[0])

        run: Any = tc.function(retrace="allow")(step) if compiled else step
        for k in keys:
            run(tc.asarray(k))
        return table.numpy(), {k: v.numpy() for k, v in optimizer.state_dict({"t": table}).items()}

    found, state = train(2, [[1, 4, 1], [4], [6, 1], [0, 0]])
    expected, same = train(1, [[1, 4, 1, 4], [6, 1, 0, 0]])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for key, value in same.items():
        np.testing.assert_allclose(state[key], value, rtol=1e-5, atol=1e-9)


def test_a_variable_without_a_gradient_in_some_batches_or_in_all() -> None:
    v, w = tc.Variable(1.0, name="v"), tc.Variable(1.0, name="w")
    optimizer = nn.GradientAccumulation(nn.SGD(1.0), 2)
    optimizer.apply_gradients([(2.0, v), (None, w)])
    optimizer.apply_gradients([(None, v), (4.0, w)])
    assert (v.item(), w.item()) == (0.0, -1.0)
    optimizer.apply_gradients([(2.0, v)])
    optimizer.apply_gradients([(4.0, w)])  # v is not even named
    assert (v.item(), w.item()) == (-1.0, -3.0)
    optimizer.apply_gradients([(None, v), (1.0, w)])
    with pytest.warns(UserWarning, match="Gradients do not exist for variables 'v'"):
        optimizer.apply_gradients([(None, v), (1.0, w)])
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizer.apply_gradients([(None, v)])
    with pytest.raises(ValueError, match="is there twice"):
        optimizer.apply_gradients([(1.0, v), (1.0, v)])
    assert optimizer.pending == 0


@pytest.mark.long_on_jax
@pytest.mark.parametrize("lazy", [False, True])
def test_a_state_in_the_middle_of_an_update_continues(tmp_path: Any, lazy: bool) -> None:
    def program() -> Any:
        model = a_model()
        return model, nn.GradientAccumulation(nn.Adam(0.05, lazy=lazy), 3)

    model, optimizer = program()
    data = batches((2,) * 7)
    for batch in data[:4]:
        a_step(model, optimizer)(*batch)
    nn.save_run(tmp_path / "run", model, optimizer, step=4)
    other, again = program()
    assert nn.load_run(tmp_path / "run", other, again).step == 4
    assert again.pending == 1
    for batch in data[4:]:
        a_step(model, optimizer)(*batch)
        a_step(other, again)(*batch)
    for a, b in zip(values(model), values(other), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="accumulation/other/sum"):
        again.load_state_dict({**optimizer.state_dict(model), "accumulation/other/sum": tc.ones(2)}, other)


def test_half_precision_is_summed_in_float32_and_a_sum_reduction_adds_up() -> None:
    w = tc.Variable(tc.asarray([1.0], dtype=tc.float16))
    optimizer = nn.GradientAccumulation(nn.SGD(0.5), 2)
    for _ in range(2):
        optimizer.apply_gradients([(tc.asarray([4.0], dtype=tc.float16), w)], examples=60000)
    assert w.tolist() == [-1.0]
    assert w.dtype is tc.float16
    v = tc.Variable(0.0)
    optimizer = nn.GradientAccumulation(nn.SGD(1.0), 2, reduction="sum")
    for gradient in (1.0, 2.0):
        optimizer.apply_gradients([(gradient, v)], examples=5)
    assert v.item() == -3.0


def test_mistakes_and_the_text() -> None:
    text = repr(nn.GradientAccumulation(nn.SGD(0.5), 2, "sum"))
    assert text.startswith("GradientAccumulation(SGD(learning_rate=0.5")
    assert text.endswith("steps=2, reduction='sum')")
    with pytest.raises(TypeError, match="optimizer must be one"):
        nn.GradientAccumulation(nn.SGD, 2)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        nn.GradientAccumulation(nn.SGD(), 0)
    with pytest.raises(ValueError, match="'mean' or 'sum'"):
        nn.GradientAccumulation(nn.SGD(), 2, "max")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="only floating-point variables"):
        nn.GradientAccumulation(nn.SGD(), 2).apply_gradients([(1, tc.Variable(1))])


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight"])
@pytest.mark.parametrize("compile", [False, True])
def test_fit_accumulates_as_if_batches_were_larger(reduction: Any, compile: bool) -> None:
    weights = np.linspace(0.5, 2.0, 16).astype("float32")

    def train(batch_size: int, accumulate: int) -> Any:
        model, inner = a_model(), nn.Adam(0.05)
        average = nn.ExponentialMovingAverage(model, 0.5)
        loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
        nn.fit(
            model, (X.astype("float32"), Y, weights), loss=loss, optimizer=inner, epochs=3, batch_size=batch_size,
            accumulate=accumulate, callbacks=[average], seed=3, compile=compile, progress=False,
        )  # fmt: skip
        return [*values(model), *[v.numpy() for v in average.state_dict().values()]], inner.iterations

    found, updates = train(3, 2)  # of 16: 3+3, 3+3, 3+1
    expected, same = train(6, 1)
    assert updates == same == 9
    assert_close(found, expected)


def test_fit_weighs_batches_by_the_labels_that_count() -> None:
    labels = np.where(np.arange(16) % 5 < 3, -1, Y)
    labels[:3] = -1  # a batch of which nothing counts

    def train(batch_size: int, accumulate: int) -> Any:
        model = a_model()
        loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
        nn.fit(
            model, (X.astype("float32"), labels), loss=loss, optimizer=nn.SGD(0.5), epochs=1, shuffle=False,
            batch_size=batch_size, accumulate=accumulate, progress=False,
        )  # fmt: skip
        return values(model)

    assert_close(train(3, 2), train(6, 1))


def test_fit_resumes_in_the_middle_of_an_update(tmp_path: Any) -> None:
    class Stop(nn.Callback):
        def on_batch_end(self, run: Any) -> None:
            if run.step == 6:
                raise KeyboardInterrupt

    def program(path: Any, callbacks: Any = ()) -> Any:
        model = a_model()
        loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True)
        nn.fit(
            model, (X.astype("float32"), Y), loss=loss, optimizer=nn.Adam(0.05), epochs=2, batch_size=3, accumulate=2,
            seed=3, checkpoint=path, checkpoint_every=5, callbacks=callbacks, progress=False,
        )  # fmt: skip
        return values(model)

    with pytest.raises(KeyboardInterrupt):
        program(tmp_path / "a", [Stop()])
    for a, b in zip(program(tmp_path / "a"), program(tmp_path / "b"), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_a_compiled_function_of_several_batches_does_what_an_eager_one_does(steps: int) -> None:
    def train(compiled: bool) -> tuple[list[bytes], Any]:
        rng = np.random.default_rng(0)
        v, w = [tc.Variable(rng.normal(size=200)) for _ in range(2)]
        optimizer = nn.GradientAccumulation(nn.SGD(0.1, momentum=0.9), steps)

        def two_batches(x: Any) -> Any:
            with tc.GradientTape() as around:
                with tc.GradientTape() as tape:
                    y = tc.sum(tc.sin(v * x - w) ** 2)
                optimizer.apply_gradients(zip(tape.gradient(y, [v, w]), [v, w], strict=True))
                with tc.GradientTape() as tape:
                    z = tc.sum(tc.sin(w * x))
                # Of one Variable alone: where it is the last batch, the update is of the other one, too.
                optimizer.apply_gradients([(tape.gradient(z, w), w)])
                loss = y + z + tc.sum(tc.tanh(v * w))
            return [y, z, *around.gradient(loss, [v, w])]

        run: Any = tc.function(two_batches) if compiled else two_batches
        found = [part.numpy() for _ in range(6) for part in run(tc.asarray(rng.normal(size=200)))]
        optimizer.flush()
        return [x.tobytes() for x in (*found, v.numpy(), w.numpy())], run

    found, run = train(True)
    assert found == train(False)[0]
    names = {i.name for entry in run._compiled.values() for made in entry for i in made.program.instructions}
    assert "apply_gradients" not in names  # which instructions there are is decided by what is guarded


def test_a_compiled_flush_updates_variables_that_it_is_not_given() -> None:
    def train(compiled: bool) -> bytes:
        w = tc.Variable(np.arange(3.0))
        optimizer = nn.GradientAccumulation(nn.SGD(0.1), 3)

        def step(x: Any) -> Any:
            with tc.GradientTape() as tape:
                y = tc.sum(w * w * x)
            optimizer.apply_gradients([(tape.gradient(y, w), w)])
            optimizer.flush()
            return w * 1.0

        run: Any = tc.function(step) if compiled else step
        return b"".join(run(tc.asarray(x)).numpy().tobytes() for x in (1.0, -0.5, 2.0))

    assert train(True) == train(False)
