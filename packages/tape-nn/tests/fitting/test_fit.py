"""`fit`, `evaluate` and `predict`: batches, results, own steps, mistakes. Resuming is in test_resuming.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_nn import fitting

KERAS = json.loads((Path(__file__).parents[1] / "expected" / "history.json").read_text())
MSE = nn.losses.MeanSquaredError()


class Seen(nn.Module):
    """Predicts `w * x`, and remembers what it was called with."""

    def __init__(self) -> None:
        self.w = tc.Variable([0.0])
        self.batches: list[tuple[bool, list[float]]] = []

    def __call__(self, x: Any) -> tc.Tensor:
        self.batches.append((self.training, tc.reshape(x, (-1,)).tolist()))
        return self.w * x


def column(n: int) -> tc.Tensor:
    return tc.arange(n, dtype=tc.float32)[:, None]


def fitted(model: Any, data: Any, **options: Any) -> Any:
    return nn.fit(model, data, **{"loss": MSE, "optimizer": nn.SGD(0.0), "progress": False, **options})


def test_a_model_learns_and_the_history_says_so() -> None:
    tc.set_seed(0)
    x = tc.default_rng(0).normal((200, 2))
    labels = tc.astype(x[:, 0] * x[:, 1] > 0, tc.int64)
    model = nn.Sequential([nn.Dense(16, activation="tanh"), nn.Dense(2)])
    history = nn.fit(
        model,
        (x[:150], labels[:150]),
        loss=nn.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=nn.Adam(0.03),
        epochs=30,
        metrics=[nn.metrics.SparseCategoricalAccuracy("accuracy")],
        validation=(x[150:], labels[150:]),
        progress=False,
    )
    assert list(history) == ["loss", "accuracy", "val_loss", "val_accuracy"]
    assert [len(values) for values in history.values()] == [30] * 4
    assert history["loss"][-1] < 0.3 * history["loss"][0]
    assert history["val_accuracy"][-1] > 0.85
    found = nn.evaluate(
        model,
        (x[150:], labels[150:]),
        loss=nn.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics={"val_accuracy": nn.metrics.SparseCategoricalAccuracy()},
    )
    assert found == {"loss": history["val_loss"][-1], "val_accuracy": history["val_accuracy"][-1]}


@pytest.mark.parametrize("case", KERAS["cases"], ids=["plain", "weights", "class-weight"])
def test_histories_are_those_of_keras(case: dict[str, Any]) -> None:
    data = {
        name: tc.asarray(values, dtype=None if "y" in name else tc.float64) for name, values in KERAS["data"].items()
    }
    model = nn.Sequential([nn.Dense(6, activation="tanh"), nn.Dense(3)])
    model.build((None, 3), dtype=tc.float64)
    for variable, first in zip(model.variables, KERAS["first"], strict=True):
        variable.assign(tc.asarray(first, dtype=tc.float64))
    classes = case["class_weight"]
    history = nn.fit(
        model,
        (data["x"], data["y"], data["weights"]) if case["weights"] else (data["x"], data["y"]),
        loss=nn.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=nn.Adam(0.05),
        metrics=[nn.metrics.SparseCategoricalAccuracy("accuracy")],
        validation=(data["held_out_x"], data["held_out_y"]),
        class_weight=classes and {int(number): weight for number, weight in classes.items()},
        batch_size=8,
        epochs=4,
        shuffle=False,
        progress=False,
    )
    assert history.keys() == case["history"].keys()
    for name, values in history.items():
        np.testing.assert_allclose(values, case["history"][name], rtol=1e-5)  # Keras sums in float32


def test_the_last_batch_has_what_is_left_and_results_are_means_over_examples() -> None:
    model = Seen()
    history = fitted(model, (column(7), column(7)), batch_size=3, shuffle=False)
    assert model.batches == [(True, [0, 1, 2]), (True, [3, 4, 5]), (True, [6])]
    assert history["loss"] == [pytest.approx(sum(i * i for i in range(7)) / 7)]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def orders(seed: int | None, epochs: int) -> list[list[float]]:
        model = Seen()
        fitted(model, (column(20), column(20)), batch_size=20, epochs=epochs, seed=seed)
        return [batch for _, batch in model.batches]

    first = orders(5, 3)
    tc.default_rng().uniform((7,))
    assert orders(5, 3) == first
    assert sorted(first[0]) == list(range(20))
    assert first[0] != first[1] != first[2] != first[0]
    assert orders(6, 3)[0] != first[0]
    tc.set_seed(1)
    drawn = orders(None, 1)
    assert orders(None, 1) != drawn
    tc.set_seed(1)
    assert orders(None, 1) == drawn


def test_pairs_stay_together_in_any_structure() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            self.w = tc.Variable(1.0)

        def __call__(self, x: Any) -> tc.Tensor:
            return self.w * (x["a"] + x["rest"][0])

    x = column(50)
    history = fitted(Sum(), ({"a": x, "rest": (2 * x,)}, 3 * x), batch_size=8, epochs=2)
    assert history["loss"] == [0.0, 0.0]


def test_arrays_of_numpy_go_where_the_model_is() -> None:
    model = nn.Dense(1)
    model.build((None, 1))
    history = fitted(model, (np.ones((5, 1), np.float32), [[1.0]] * 5), validation=(np.ones((5, 1), np.float32), x1()))
    assert history.epochs == 1


def x1() -> tc.Tensor:
    return tc.ones((5, 1))


def test_weights_of_examples_and_of_classes() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            self.w = tc.Variable([1.0, 0.0])

        def __call__(self, x: Any) -> tc.Tensor:
            return x * self.w

    x, y = tc.ones((3, 1)), tc.asarray([0, 1, 1])
    loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    one, other = (loss([k], [[1.0, 0.0]]).item() for k in (0, 1))

    def result(data: Any, **options: Any) -> float:
        found: float = fitted(Constant(), data, loss=loss, **options)["loss"][0]
        return found

    assert result((x, y)) == pytest.approx((one + 2 * other) / 3)
    assert result((x, y, [3.0, 0.0, 1.0])) == pytest.approx((3 * one + other) / 3)
    assert result((x, y), class_weight={1: 0.5}) == pytest.approx((one + 2 * 0.5 * other) / 3)
    assert result((x, y, [3.0, 0.0, 1.0]), class_weight={0: 2.0}) == pytest.approx((6 * one + other) / 3)
    categorical = nn.losses.CategoricalCrossentropy(from_logits=True)
    hot = tc.one_hot(y, 2)
    found = fitted(Constant(), (x, hot), loss=categorical, class_weight={1: 0.5})["loss"][0]
    assert found == pytest.approx((one + other) / 3)


def test_batches_from_elsewhere() -> None:
    class Loader:
        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[Any]:
            yield [np.ones((2, 1), np.float32), np.ones((2, 1), np.float32)]
            yield (tc.zeros((1, 1)), tc.zeros((1, 1)))

    class Length:
        def on_batch_end(self, run: Any) -> None:
            self.length = run.length

    model, length = Seen(), Length()
    fitted(model, Loader(), epochs=2, callbacks=[length])
    assert [batch for _, batch in model.batches] == [[1, 1], [0]] * 2
    assert length.length == 2

    def batches(epoch: int) -> Iterator[Any]:
        for k in range(2):
            yield tc.full((1, 1), epoch * 10.0 + k), tc.ones((1, 1))

    model = Seen()
    fitted(model, batches, epochs=2)
    assert [batch for _, batch in model.batches] == [[0], [1], [10], [11]]


def test_modes() -> None:
    model = nn.Sequential([Seen(), nn.Dropout(0.5)])
    inner: Any = model[0]
    model[1].eval()  # type: ignore[attr-defined]
    fitted(model, (column(2), column(2)), validation=(column(2), column(2)))
    assert [training for training, _ in inner.batches] == [True, False]
    assert [module.training for _, module in model.named_modules()] == [True, True, False]
    nn.predict(model, column(2))
    assert inner.batches[-1][0] is False
    assert inner.training


def test_predict_puts_batches_together() -> None:
    class Two(nn.Module):
        def __call__(self, x: Any) -> Any:
            return {"double": 2 * x, "sum": tc.sum(x, axis=-1)}

    found = nn.predict(Two(), column(7), batch_size=3)
    assert found["double"].tolist() == (2 * column(7)).tolist()
    assert found["sum"].tolist() == list(range(7))
    dropout = nn.Dropout(0.9)
    assert nn.predict(dropout, (column(3), column(3))).tolist() == column(3).tolist()


def test_a_step_of_ones_own() -> None:
    """Two updates for each batch, and results by any name, with their means in the history."""
    model = Seen()

    def step(run: fitting.Run, batch: Any) -> dict[str, Any]:
        x, y, _ = fitting.unpack(batch)
        fitting.train_step(run, batch)
        run.update_metrics(y, x)
        return {**fitting.train_step(run, batch), "size": x.shape[0], "first": x[0, 0]}

    def check(run: fitting.Run, batch: Any) -> dict[str, Any]:
        return {"seven": 7}

    optimizer = nn.SGD(0.0)
    history = fitted(
        model,
        (column(3), column(3)),
        batch_size=2,
        shuffle=False,
        optimizer=optimizer,
        train_step=step,
        validation=(column(3), column(3)),
        test_step=check,
    )
    assert optimizer.iterations == 4
    assert history == {"loss": [pytest.approx(5 / 3)], "size": [pytest.approx(5 / 3)], "first": [pytest.approx(2 / 3)],
                       "val_seven": [7.0]}  # fmt: skip
    nn.fit(model, (column(3),), train_step=lambda run, batch: {}, progress=False)


def test_the_first_call_of_a_model_does_not_depend_on_dropout() -> None:
    """Its Variables are made before any other random numbers are drawn."""
    x = tc.ones((4, 3))

    def first(rate: float) -> list[Any]:
        tc.set_seed(0)
        model = nn.Sequential([nn.Dense(3), nn.Dropout(rate), nn.Dense(3)])
        fitted(model, (x, x))
        found: list[Any] = model[2].kernel.tolist()  # type: ignore[attr-defined]
        return found

    assert first(0.5) == first(0.0)


def test_first_values_do_not_depend_on_how_batches_are_made() -> None:
    def noisy(epoch: int) -> Iterator[Any]:
        x = tc.random.global_rng().normal((4, 3))
        yield x, x

    def first(data: Any) -> list[Any]:
        tc.set_seed(0)
        model = nn.Dense(3)
        fitted(model, data)
        assert model.kernel is not None
        found: list[Any] = model.kernel.tolist()
        return found

    assert first(noisy) == first((tc.ones((4, 3)), tc.ones((4, 3))))


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    stop = nn.EarlyStopping("loss")
    fitted(Seen(), (column(3), column(3)), epochs=5, callbacks=[stop], progress=True, batch_size=1)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert [line.split("  (")[0] for line in lines[:2]] == ["epoch 1/5: loss 1.667", "epoch 2/5: loss 1.667"]
    assert lines[2:] == ["stopped after 2 of 5 epochs"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param({"model": len}, TypeError, "model must be a Module", id="model"),
        pytest.param({"loss": None}, TypeError, "needs a loss", id="no-loss"),
        pytest.param({"loss": "mse"}, TypeError, "loss must be a function .* got 'mse'", id="loss"),
        pytest.param({"optimizer": None}, TypeError, "needs an optimizer", id="no-optimizer"),
        pytest.param({"optimizer": "adam"}, TypeError, "optimizer must be one", id="optimizer"),
        pytest.param(
            {"optimizer": {"a": nn.SGD(0.1)}}, TypeError, "several optimizers need a train_step", id="several"
        ),
        pytest.param({"epochs": -1}, ValueError, "epochs must be", id="epochs"),
        pytest.param({"batch_size": 0}, ValueError, "batch_size must be", id="batch-size"),
        pytest.param({"seed": 1.5}, TypeError, "seed must be", id="seed"),
        pytest.param({"metrics": ["accuracy"]}, TypeError, "metrics must be metrics", id="metrics"),
        pytest.param(
            {"metrics": [nn.metrics.Accuracy(), nn.metrics.Accuracy()]}, ValueError, "'accuracy' is taken", id="names"
        ),
        pytest.param({"callbacks": [print]}, TypeError, "none of the methods on_train_begin", id="callbacks"),
        pytest.param(
            {"callbacks": [nn.EarlyStopping]}, TypeError, "EarlyStopping is a class; pass an object", id="class"
        ),
        pytest.param({"checkpoint_every": 3}, ValueError, "needs a checkpoint", id="checkpoint-every"),
        pytest.param({"data": 3}, TypeError, "data must be arrays .* got 'int'", id="data"),
        pytest.param({"data": iter([])}, TypeError, "can be gone through once only", id="iterator"),
        pytest.param({"data": []}, ValueError, "no batches", id="no-batches"),
        pytest.param({"data": [], "batch_size": 3}, ValueError, "batch_size is for arrays", id="batched"),
        pytest.param({"data": (tc.ones((3, 1)), tc.ones((2, 1)))}, ValueError, "same number of examples", id="lengths"),
        pytest.param({"data": (tc.ones((0, 1)), tc.ones((0, 1)))}, ValueError, "no examples", id="empty"),
        pytest.param({"data": (tc.ones(()), tc.ones(()))}, ValueError, "an axis of examples", id="0-d"),
        pytest.param({"data": (tc.ones((3, 1)), "y")}, TypeError, r"\[1\] is of type 'str'", id="text"),
        pytest.param({"data": (tc.ones((3, 1)),)}, ValueError, "have no y", id="no-y"),
        pytest.param(
            {"validation": (tc.ones((3, 1)), tc.ones(2))}, ValueError, "validation must have", id="validation"
        ),
        pytest.param({"loss": lambda y, p: y * p, "data": ()}, ValueError, "axis of examples", id="nothing"),
        pytest.param({"loss": nn.losses.Loss(nn.losses.huber, "none")}, ValueError, "must be one number", id="shape"),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], message: str) -> None:
    model = options.pop("model", None) or Seen()
    data = options.pop("data", (tc.ones((3, 1)), tc.ones((3, 1))))
    with pytest.raises(error, match=message):
        fitted(model, data, **{"optimizer": nn.SGD(1.0), **options})
    assert not isinstance(model, nn.Module) or model.state_dict()["w"].item() == 0.0


def test_evaluation_needs_something_to_compute() -> None:
    data = (tc.ones((3, 1)), tc.ones((3, 1)))
    with pytest.raises(TypeError, match="evaluate needs a loss, metrics or a test_step"):
        nn.evaluate(Seen(), data)
    with pytest.raises(TypeError, match="validation needs a loss"):
        nn.fit(Seen(), data, train_step=lambda run, batch: {}, validation=data, progress=False)


def test_evaluate_and_predict_need_batches() -> None:
    for call in (lambda: nn.evaluate(Seen(), [], loss=MSE), lambda: nn.predict(Seen(), [])):
        with pytest.raises(ValueError, match="no batches"):
            call()


@pytest.mark.parametrize("accumulate", [1, 2, 5])
@pytest.mark.parametrize("iterable", [False, True])
def test_an_average_is_followed_and_evaluated(accumulate: int, iterable: bool) -> None:
    x = np.random.default_rng(0).normal(size=(14, 3)).astype("float32")
    y = x[:, :1] * 2.0
    seen: list[Any] = []

    class Look:
        def on_epoch_end(self, run: Any) -> None:
            now = tc.mean((run.model(tc.asarray(x)) - y) ** 2).item()
            seen.append((run.model.kernel.numpy(), run.logs["val_loss"], now))

    def a_model() -> Any:
        model = nn.Dense(1, kernel_initializer="ones")
        model.build((None, 3))
        return model

    model = a_model()
    average = nn.ExponentialMovingAverage(model, 0.5)
    rows = [slice(k, k + 4) for k in range(0, 14, 4)]
    data = [(tc.asarray(x[r]), tc.asarray(y[r])) for r in rows] if iterable else (x, y)
    nn.fit(
        model, iter_of(data) if iterable else data, loss=nn.losses.MeanSquaredError(), optimizer=nn.SGD(0.1), epochs=2,
        batch_size=None if iterable else 4, shuffle=False, accumulate=accumulate, average=average, validation=(x, y),
        callbacks=[Look()], progress=False,
    )  # fmt: skip
    # The same by hand, with the large batches.
    weights, mean, expected = a_model(), None, []
    optimizer = nn.SGD(0.1)
    for _ in range(2):
        for k in range(0, 14, 4 * accumulate):
            with tc.GradientTape() as tape:
                loss = tc.mean((weights(x[k : k + 4 * accumulate]) - y[k : k + 4 * accumulate]) ** 2)
            optimizer.apply_gradients(tape.gradient(loss, weights), weights)
            kernel = weights.kernel.numpy()
            mean = kernel if mean is None else mean + 0.5 * (kernel - mean)
        expected.append(mean)
    for (found, value, now), wanted in zip(seen, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        assert value == pytest.approx(now, rel=1e-5)
    np.testing.assert_allclose(model.kernel.numpy(), weights.kernel.numpy(), rtol=1e-5)
    with pytest.raises(TypeError, match=r"average must be an nn\.ExponentialMovingAverage"):
        nn.fit(model, (x, y), loss=nn.losses.MeanSquaredError(), optimizer=optimizer, average=0.9)  # type: ignore[arg-type]


def iter_of(data: Any) -> Any:
    """Batches of which nobody knows the number."""
    return lambda epoch: iter(data)


class Squares:
    """A data set of examples by number, as PyTorch's are."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, k: int) -> Any:
        return np.asarray([k], "float32"), [float(k) ** 2][0]


def test_the_examples_of_a_data_set_come_in_the_order_of_arrays() -> None:
    x = column(10)
    found, expected = Seen(), Seen()
    histories = [
        fitted(model, data, batch_size=4, epochs=2, seed=3, loss=lambda y, p: tc.mean((y - p[:, 0]) ** 2))
        for model, data in ((found, Squares()), (expected, (x, x[:, 0] ** 2)))
    ]
    assert found.batches == expected.batches
    assert [len(batch) for _, batch in found.batches] == [4, 4, 2] * 2
    assert histories[0] == histories[1]


def test_what_an_example_draws_depends_on_its_number_and_the_epoch() -> None:
    class Noisy(Squares):
        def __getitem__(self, k: int) -> Any:
            return tc.default_rng(0).normal((1,)) * 0.0 + float(tc.random.global_rng().uniform(())), k

    def batches(**options: Any) -> list[float]:
        model = Seen()
        fitted(model, Noisy(), seed=1, loss=lambda y, p: tc.mean(p), **options)
        return [number for _, batch in model.batches for number in batch]

    tc.set_seed(0)
    alone = batches(batch_size=2, epochs=2)
    assert len(set(alone)) == 20
    tc.set_seed(5)
    assert batches(batch_size=5, epochs=2) == alone


def test_mistakes_in_data_sets() -> None:
    class Ragged(Squares):
        def __getitem__(self, k: int) -> Any:
            return np.zeros(1 + k % 2), k

    class Text(Squares):
        def __getitem__(self, k: int) -> Any:
            return "a picture", k

    class Unlike(Squares):
        def __getitem__(self, k: int) -> Any:
            return (np.zeros(1), k) if k else {"x": np.zeros(1)}

    class Empty(Squares):
        def __len__(self) -> int:
            return 0

    for data, error, text in (
        (Ragged(), ValueError, r"data\[0\]\[0\]: examples of one batch have the shapes \[\(1,\), \(2,\)\]; .* pad"),
        (Text(), TypeError, r"data\[0\]\[0\] must be an array or a number.* got 'str'"),
        (Unlike(), ValueError, "example 1 is of another structure than example 0"),
        (Empty(), ValueError, "data has no examples: it is a Empty of length 0"),
    ):
        with pytest.raises(error, match=text):
            fitted(Seen(), data, shuffle=False)
