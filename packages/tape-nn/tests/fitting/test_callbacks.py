"""Callbacks of `fit`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn


class Scripted(nn.Callback):
    """Puts given numbers in the place of a loss, and gives the model the epoch for a weight."""

    def __init__(self, values: list[float], name: str = "val_loss") -> None:
        self.values, self.name = values, name

    def on_epoch_end(self, run: Any) -> None:
        run.logs[self.name] = self.values[run.epoch]
        run.model.kernel.assign([[float(run.epoch)]])


def run(*callbacks: Any, epochs: int = 8) -> tuple[nn.Dense, Any]:
    model = nn.Dense(1, use_bias=False)
    x = tc.ones((4, 1))
    history = nn.fit(
        model,
        (x, x),
        loss=nn.losses.MeanSquaredError(),
        optimizer=nn.SGD(0.0),
        epochs=epochs,
        batch_size=2,
        callbacks=callbacks,
        progress=False,
    )
    return model, history


def test_order_of_calls() -> None:
    calls: list[Any] = []

    class All(nn.Callback):
        def on_train_begin(self, run: Any) -> None:
            calls.append("train")

        def on_epoch_begin(self, run: Any) -> None:
            calls.append(("epoch", run.epoch))

        def on_batch_begin(self, run: Any) -> None:
            calls.append(("batch", run.batch, run.step))

        def on_batch_end(self, run: Any) -> None:
            calls.append((run.batch, run.step, sorted(run.logs)))

        def on_epoch_end(self, run: Any) -> None:
            calls.append((run.epoch, run.history.epochs))

        def on_train_end(self, run: Any) -> None:
            calls.append(("end", run.epoch, run.history.epochs))

    run(All(), epochs=2)
    assert calls == [
        "train",
        ("epoch", 0), ("batch", 0, 0), (1, 1, ["loss"]), ("batch", 1, 1), (2, 2, ["loss"]), (0, 0),
        ("epoch", 1), ("batch", 0, 2), (1, 3, ["loss"]), ("batch", 1, 3), (2, 4, ["loss"]), (1, 1),
        ("end", 2, 2),
    ]  # fmt: skip


def test_any_object_with_a_method_will_do() -> None:
    class Stop:
        def on_batch_end(self, run: Any) -> None:
            if run.step == 3:
                run.stop()

    _, history = run(Stop())
    assert history.epochs == 2


@pytest.mark.parametrize(
    ("options", "values", "epochs"),
    [
        pytest.param({}, [3, 2, 2, 1], 3, id="at-once"),
        pytest.param({"patience": 1}, [3, 2, 2, 1], 3, id="patience-1"),
        pytest.param({"patience": 2}, [3, 2, 2, 1, 1, 1], 6, id="patience-2"),
        pytest.param({"patience": 2, "min_delta": 0.5}, [3, 2.6, 2.6, 1], 3, id="min-delta"),
        pytest.param({"patience": 2, "mode": "max"}, [1, 3, 2, 2, 9], 4, id="max"),
        pytest.param({"start_from_epoch": 3}, [1, 2, 3, 9, 8, 8], 6, id="start"),
        pytest.param({"patience": 2}, [math.nan, math.nan, 1, 1, 1], 2, id="nan"),
        pytest.param({"patience": 2}, [1, math.nan, math.nan, 1], 3, id="nan-later"),
    ],
)
def test_early_stopping(options: dict[str, Any], values: list[float], epochs: int) -> None:
    values = values + [values[-1]] * (8 - len(values))
    _, history = run(Scripted(values), nn.EarlyStopping(**options))
    assert history.epochs == epochs


def test_accuracies_grow() -> None:
    stopping = nn.EarlyStopping("val_accuracy")
    assert run(Scripted([1, 2, 3, 2, 2, 2, 2, 2], "val_accuracy"), stopping)[1].epochs == 4
    assert (stopping.best, stopping.best_epoch) == (3, 2)


def test_the_best_weights_come_back() -> None:
    for values, best in [([3, 1, 2, 2, 2, 2, 2, 2], 1.0), ([8, 7, 6, 5, 4, 3, 2, 1], 7.0)]:
        stopping = nn.EarlyStopping(patience=3, restore_best=True)
        assert run(Scripted([*map(float, values)]), stopping)[0].kernel.item() == best  # type: ignore[union-attr]
        # A second run forgets the first.
        assert run(Scripted([9.0, 8.0]), stopping, epochs=2)[0].kernel.item() == 1.0  # type: ignore[union-attr]


def test_saving_the_best(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    model, _ = run(Scripted([3, 1, 2, 2, 0.5, 9, 9, 9]), nn.SaveBest(path))
    assert model.load_weights(path) == {"epoch": "4", "val_loss": "0.5"}
    assert model.kernel.item() == 4.0  # type: ignore[union-attr]


def test_learning_rates() -> None:
    _, history = run(nn.LearningRate(lambda epoch: 2.0**-epoch), epochs=3)
    assert history["learning_rate"] == [1.0, 0.5, 0.25]
    assert run(nn.LearningRate(), epochs=1)[1]["learning_rate"] == [0.0]


def test_averages_of_weights() -> None:
    model = nn.Dense(1, use_bias=False, kernel_initializer="zeros")
    model.build((None, 1))
    average = nn.ExponentialMovingAverage(model, decay=0.5)
    x = tc.ones((2, 1))
    options: dict[str, Any] = {"loss": lambda y, p: p, "optimizer": nn.SGD(1.0), "progress": False}
    nn.fit(model, (x, x), batch_size=1, callbacks=[average], **options)
    assert model.kernel.item() == -2.0  # type: ignore[union-attr]
    with average.averaged():
        assert model.kernel.item() == -1.5  # type: ignore[union-attr]


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="mode must be 'auto', 'min' or 'max'; got 'best'"):
        nn.EarlyStopping(mode="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="patience must be at least 0"):
        nn.EarlyStopping(patience=-1)
    with pytest.raises(ValueError, match="min_delta must be at least 0"):
        nn.SaveBest("x", min_delta=-1.0)
    with pytest.warns(UserWarning, match="EarlyStopping watches 'val_loss', which is not there; there are 'loss'"):
        run(nn.EarlyStopping(), epochs=1)
