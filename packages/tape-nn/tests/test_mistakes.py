"""Error messages for wrong arguments of layers, optimizers, losses and metrics."""

import pytest
import tape_core as tc
import tape_nn as nn

NUMBERS = {
    "units of Dense": (lambda value: nn.Dense(value), "Dense: units must be an integer"),
    "units of LSTM": (lambda value: nn.LSTM(value), "LSTM: units must be an integer"),
    "units of GRU": (lambda value: nn.GRU(value), "GRU: units must be an integer"),
    "filters of Conv2D": (lambda value: nn.Conv2D(value, 3), "Conv2D: filters must be an integer"),
    "groups of Conv1D": (lambda value: nn.Conv1D(4, 3, groups=value), "Conv1D: groups must be an integer"),
    "rows of Embedding": (lambda value: nn.Embedding(value, 3), "Embedding: input_dim must be an integer"),
    "columns of Embedding": (lambda value: nn.Embedding(3, value), "Embedding: output_dim must be an integer"),
    "heads": (lambda value: nn.MultiHeadAttention(value, 2), "MultiHeadAttention: num_heads must be an integer"),
    "key_dim": (lambda value: nn.MultiHeadAttention(2, value), "MultiHeadAttention: key_dim must be an integer"),
    "patience": (lambda value: nn.EarlyStopping(patience=value), "EarlyStopping: patience must be an integer"),
    "growth_interval": (
        lambda value: nn.LossScaler(nn.SGD(0.1), growth_interval=value),
        "LossScaler: growth_interval must be an integer",
    ),
}


@pytest.mark.parametrize("value", ["a", 2.0, True, [1, 2]])
@pytest.mark.parametrize("name", NUMBERS)
def test_what_must_be_an_integer_is_named(name, value):
    make, text = NUMBERS[name]
    with pytest.raises(TypeError, match=f"^{text}; got"):
        make(value)


REALS = {
    "rate of SGD": (lambda value: nn.SGD(value), "learning_rate must be a number"),
    "rate of Adam": (lambda value: nn.Adam(value), "learning_rate must be a number"),
    "rate that is set": (lambda value: setattr(nn.Adam(0.1), "learning_rate", value), "learning_rate must be a number"),
    "momentum": (lambda value: nn.SGD(0.1, momentum=value), "momentum must be a number"),
    "beta_1": (lambda value: nn.Adam(0.1, beta_1=value), "beta_1 must be a number"),
    "epsilon of Adam": (lambda value: nn.Adam(0.1, epsilon=value), "epsilon must be a number"),
    "rho": (lambda value: nn.RMSprop(0.1, rho=value), "rho must be a number"),
    "learning_rate_power": (lambda value: nn.Ftrl(0.1, learning_rate_power=value), "learning_rate_power must be a"),
    "weight_decay": (lambda value: nn.AdamW(0.1, weight_decay=value), "weight_decay must be a number"),
    "clipnorm": (lambda value: nn.SGD(0.1, clipnorm=value), "clipnorm must be a number"),
    "rate of Dropout": (lambda value: nn.Dropout(value), "Dropout: rate must be a number"),
    "dropout": (lambda value: nn.MultiHeadAttention(1, 2, dropout=value), "MultiHeadAttention: dropout must be a num"),
    "momentum of BatchNorm": (lambda value: nn.BatchNorm(momentum=value), "BatchNorm: momentum must be a number"),
    "epsilon of BatchNorm": (lambda value: nn.BatchNorm(epsilon=value), "BatchNorm: epsilon must be a number"),
    "epsilon of LayerNorm": (lambda value: nn.LayerNorm(epsilon=value), "LayerNorm: epsilon must be a number"),
    "epsilon of RMSNorm": (lambda value: nn.RMSNorm(epsilon=value), "RMSNorm: epsilon must be a number"),
    "decay of averages": (
        lambda value: nn.ExponentialMovingAverage({"w": tc.Variable(1.0)}, decay=value),
        "ExponentialMovingAverage: decay must be a number",
    ),
    "growth_factor": (lambda value: nn.LossScaler(nn.SGD(0.1), growth_factor=value), "LossScaler: growth_factor must"),
    "min_delta": (lambda value: nn.EarlyStopping(min_delta=value), "EarlyStopping: min_delta must be a number"),
    "start of a schedule": (
        lambda value: nn.schedules.ExponentialDecay(value, 10, 0.5),
        "ExponentialDecay: initial_learning_rate must be a number",
    ),
    "end of a schedule": (
        lambda value: nn.schedules.PolynomialDecay(0.1, 10, end_learning_rate=value),
        "PolynomialDecay: end_learning_rate must be a number",
    ),
    "steps of a schedule": (
        lambda value: nn.schedules.ExponentialDecay(0.1, value, 0.5),
        "ExponentialDecay: decay_steps must be a number",
    ),
}


@pytest.mark.parametrize("value", ["a", "0.5", True, [0.1, 0.2]])
@pytest.mark.parametrize("name", REALS)
def test_what_must_be_a_number_is_named(name, value):
    make, text = REALS[name]
    with pytest.raises(TypeError, match=f"^{text}"):
        make(value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"metrics": nn.metrics.Mean()}, "metrics must be a list of metrics; got .*Mean.*: write metrics=\\[...\\]"),
        ({"callbacks": nn.EarlyStopping()}, "fit: callbacks must be a list or tuple of callbacks; got .*EarlyStopping"),
        ({"loss": nn.losses.MeanSquaredError}, r"loss: MeanSquaredError is a class; .* MeanSquaredError\(\)"),
        ({"optimizer": nn.SGD}, r"optimizer: SGD is a class; pass an object of it, SGD\(\)"),
    ],
)
def test_what_fit_is_given_in_another_form(given, text):
    x = tc.ones((2, 2))
    arguments = {"loss": nn.losses.MeanSquaredError(), "optimizer": nn.SGD(0.1), "epochs": 1, "progress": False}
    with pytest.raises(TypeError, match=text):
        nn.fit(nn.Dense(2), (x, x), **{**arguments, **given})


def test_what_is_no_name_and_no_module():
    with pytest.raises(
        TypeError, match="EarlyStopping: monitor must be the name of a result, such as 'val_loss'; got 5"
    ):
        nn.EarlyStopping(5)
    with pytest.raises(TypeError, match="mixed_precision: model must be a Module; got None"):
        nn.mixed_precision(None)
    with pytest.raises(
        ValueError, match="MaxPool2D: pool_size must be an integer of at least 1, or 2 of them, got None"
    ):
        nn.MaxPool2D(None)
