"""Training steps in compiled functions: the same numbers as without, and nothing of the state in Python is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn

OPTIMIZERS: dict[str, Callable[[], nn.Optimizer]] = {
    "SGD": lambda: nn.SGD(0.1, momentum=0.9),
    "Adam": lambda: nn.Adam(nn.schedules.ExponentialDecay(0.1, 2, 0.5)),
    "AdamW": lambda: nn.AdamW(0.01, clipnorm=0.5),
    "Nadam": lambda: nn.Nadam(0.01),
    "RMSprop": lambda: nn.RMSprop(0.01, centered=True),
}


def train(optimizer: nn.Optimizer, *, compiled: bool) -> tuple[list[float], Any]:
    """The losses of some steps, in training and not, and the compiled function."""
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(16, activation="relu"), nn.BatchNorm(), nn.Dropout(0.3), nn.Dense(3)])
    mean = nn.metrics.Mean()

    def step(x: Any, y: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(model(x), y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        mean.update(loss)
        return loss

    run = tc.function(step) if compiled else step
    x, y = tc.default_rng(1).normal((8, 5)), tc.default_rng(2).integers(0, 3, (8,))
    losses = [run(x, y).item() for _ in range(5)]
    model.eval()
    losses += [run(x, y).item() for _ in range(2)]
    model.train()
    losses.append(run(x, y).item())
    return [*losses, mean.result(), float(optimizer.iterations)], run


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_step_is_that_of_an_eager_one(name: str) -> None:
    found, run = train(OPTIMIZERS[name](), compiled=True)
    expected, _ = train(OPTIMIZERS[name](), compiled=False)
    assert found == expected
    assert run.traces == 2  # in training, and not


def test_a_step_leaves_the_values_that_variables_had_as_they_were() -> None:
    w = tc.Variable(tc.ones((64, 64)))
    optimizer = nn.Adam()

    @tc.function
    def step(x: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.sum((x @ w) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])
        return loss

    x = tc.ones((8, 64))
    for _ in range(4):
        kept = w.value
        before = kept.numpy().tobytes()
        step(x)
        assert kept.numpy().tobytes() == before
        assert w.numpy().tobytes() != before


def test_sparse_gradients_and_averages() -> None:
    def run(compiled: bool) -> list[Any]:
        table = tc.Variable(tc.reshape(tc.linspace(0, 1, 12), (6, 2)))
        optimizer, average = nn.Adagrad(0.5), nn.ExponentialMovingAverage({"table": table}, decay=0.5)

        def step(k: Any) -> Any:
            with tc.GradientTape() as tape:
                loss = tc.sum(tc.gather(table, k) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])
            average.update()
            return loss

        f = tc.function(step) if compiled else step
        losses = [f(tc.asarray([k, 2, k])).item() for k in range(4)]
        return [*losses, table.tolist(), average.state_dict()["table"].tolist()]

    assert run(True) == run(False)


def test_a_layer_that_is_built_inside_a_loop_trains_compiled_as_it_does_eagerly() -> None:
    def losses(*, compiled: bool) -> list[float]:
        tc.set_seed(0)
        cell, optimizer = nn.Dense(4, activation="tanh"), nn.Adam(0.1)

        def step(xs: Any) -> Any:
            with tc.GradientTape() as tape:
                last, _ = tc.scan(lambda h, x: (cell(tc.concat([h, x])[None])[0], None), tc.zeros(4), xs)
                loss = tc.sum((last - 1) ** 2)
            variables = cell.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        run = tc.function(step) if compiled else step
        return [run(tc.ones((3, 2))).item() for _ in range(4)]

    found = losses(compiled=True)
    assert found == losses(compiled=False)
    assert found[-1] < found[0] / 2


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")  # NumPy's
def test_the_scale_of_a_loss_is_that_of_each_call() -> None:
    def train(compiled: bool) -> tuple[list[float], float, int]:
        w = tc.Variable([1.0, 2.0])
        optimizer = nn.LossScaler(nn.SGD(0.1), initial_scale=2.0**126, growth_interval=2)

        def step(x: Any) -> Any:
            with tc.GradientTape() as tape:
                scaled = optimizer.scale_loss(tc.sum((w * x - 1.0) ** 2))
            optimizer.apply_gradients([(tape.gradient(scaled, w), w)])

        run = tc.function(step) if compiled else step
        for _ in range(7):
            run(tc.asarray([0.5, 9.0]))
        return w.tolist(), optimizer.scale, optimizer.skipped

    found = train(compiled=True)
    assert found == train(compiled=False)
    assert found[2] >= 2  # the scale has gone up and down


def fitted(compile: bool | str, train_step: Any = None, scaled: bool = False) -> tuple[Any, list[bytes], list[Any]]:
    tc.set_seed(0)
    x = tc.default_rng(1).normal((50, 5))
    y = tc.default_rng(2).integers(0, 3, (50,))
    model = nn.Sequential([nn.Dense(16, activation="relu"), nn.BatchNorm(), nn.Dropout(0.3), nn.Dense(3)])
    optimizer: Any = nn.Adam(nn.schedules.ExponentialDecay(0.1, 2, 0.5))
    seen: list[Any] = []

    class Seen(nn.Callback):
        def on_batch_end(self, run: Any) -> None:
            seen.append((run.epoch, run.batch, run.step, dict(run.logs)))

    history = nn.fit(
        model,
        (x, y),
        loss=nn.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=nn.LossScaler(optimizer) if scaled else optimizer,
        epochs=3,
        batch_size=16,  # the last batch is smaller
        metrics=[nn.metrics.SparseCategoricalAccuracy("accuracy")],
        validation=(x[:20], y[:20]),
        callbacks=[Seen(), nn.ExponentialMovingAverage(model), nn.EarlyStopping(restore_best=True, patience=9)],
        class_weight={0: 2.0},
        progress=False,
        train_step=train_step,
        compile=compile,
    )
    weights = [value.numpy().tobytes() for value in model.state_dict().values()]
    return history, weights, seen


@pytest.mark.parametrize("scaled", [False, True])
def test_a_compiled_fit_is_an_eager_one(scaled: bool) -> None:
    expected, found = fitted(False, scaled=scaled), fitted(True, scaled=scaled)
    assert found[0] == expected[0]
    assert found[2] == expected[2]
    if tc.get_backend().name == "numpy":
        assert found[1] == expected[1]


def test_a_compiled_step_of_ones_own_reads_the_numbers_of_the_run() -> None:
    calls = []

    def step(run: Any, batch: Any) -> Any:
        calls.append(run)
        metrics = nn.fitting.train_step(run, batch)
        return {**metrics, "number": run.step + 10 * tc.asarray(1.0), "epoch": run.epoch}

    found = fitted(True, step)
    assert len(calls) == 2  # a trace for each of the two sizes of batches
    assert found[0]["epoch"] == [0.0, 1.0, 2.0]
    assert [round(value, 3) for value in found[0]["number"]] == [
        round(10 + sum(k * n for k, n in zip(range(e, e + 4), (16, 16, 16, 2), strict=True)) / 50, 3) for e in (0, 4, 8)
    ]
    with pytest.raises(TypeError, match="compile must be True, False or the name of a compiler; got 3"):
        fitted(3)  # type: ignore[arg-type]
    with pytest.raises(tc.staging.TracingError, match="Python"):
        fitted(True, lambda run, batch: nn.fitting.train_step(run, batch) if run.epoch < 1 else {})
