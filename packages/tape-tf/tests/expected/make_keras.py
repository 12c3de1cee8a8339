"""Programs in tf.keras, and keras.json: what Keras gives for them.

python make_keras.py    # needs tensorflow 2.21 with keras 3.15

The test runs the same programs with the façade.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PROGRAMS: dict[str, Callable[[Any], Any]] = {}

_rng = np.random.RandomState(0)
X = _rng.normal(size=(6, 4)).astype("float32")
Y = _rng.normal(size=(6, 2)).astype("float32")
LABELS = _rng.randint(0, 3, size=(6,))
IMAGES = _rng.normal(size=(6, 8, 8, 2)).astype("float32")
STEPS = _rng.normal(size=(3, 5, 4)).astype("float32")
VOLUME = _rng.normal(size=(2, 4, 4, 4, 1)).astype("float32")
IDS = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 2, 4], [6, 1, 3], [9, 5, 7]])


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def filled(model: Any) -> Any:
    """The model, with weights that every library can make."""
    rng = np.random.RandomState(1)
    model.set_weights([abs(w) + 0.5 if w.min() == 1 else rng.normal(size=w.shape) * 0.4 for w in model.get_weights()])
    return model


def mlp(tf: Any, out: int = 2, activation: Any = None) -> Any:
    layers = tf.keras.layers
    hidden = layers.Dense(5, "tanh", kernel_regularizer=tf.keras.regularizers.L2(0.01))
    parts = [tf.keras.Input((4,)), hidden, layers.BatchNormalization(), layers.Dense(out, activation)]
    return filled(tf.keras.Sequential(parts))


def trained(model: Any, x: Any, y: Any, **options: Any) -> Any:
    history = model.fit(x, y, **{"epochs": 3, "batch_size": 4, "shuffle": False, "verbose": 0, **options}).history
    return {"history": history, "predicted": model.predict(x, verbose=0), "evaluated": model.evaluate(x, y, verbose=0)}


for _name in ("SGD", "Adam", "RMSprop", "Adagrad", "Nadam", "AdamW", "Lion", "Ftrl", "Adamax", "Adadelta"):

    def _optimizer(tf: Any, name: str = _name) -> Any:
        model = mlp(tf)
        model.compile(getattr(tf.keras.optimizers, name)(0.05), "mse", metrics=["mae"])
        return trained(model, X, Y, validation_data=(X, Y))

    PROGRAMS[f"fit with {_name}"] = _optimizer


@program
def classes_by_number(tf: Any) -> Any:
    model = mlp(tf, 3, "softmax")
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, clipnorm=0.5)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return trained(model, X, LABELS, validation_split=0.3)


@program
def classes_one_hot_and_weighted(tf: Any) -> Any:
    model = mlp(tf, 3)
    loss = tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    model.compile("adam", loss, metrics=["accuracy", "top_k_categorical_accuracy"], weighted_metrics=["mse"])
    return trained(model, X, tf.keras.utils.to_categorical(LABELS, 3), class_weight={0: 1.0, 1: 2.0, 2: 3.0})


@program
def yes_or_no_with_sample_weights(tf: Any) -> Any:
    model = mlp(tf, 1, "sigmoid")
    metrics = ["accuracy", "AUC", tf.keras.metrics.Precision(name="p"), tf.keras.metrics.Recall(name="r")]
    model.compile("sgd", "binary_crossentropy", metrics=metrics)
    return trained(model, X, (LABELS > 0).astype("int64"), sample_weight=np.arange(6.0))


@program
def schedules(tf: Any) -> Any:
    model = mlp(tf)
    decay = tf.keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=2, decay_rate=0.5)
    model.compile(tf.keras.optimizers.Adam(decay), tf.keras.losses.Huber(0.5))
    return trained(model, X, Y)


@program
def custom_step(tf: Any) -> Any:
    class Model(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(2)
            self.mean = tf.keras.metrics.Mean(name="loss")
            self.mae = tf.keras.metrics.MeanAbsoluteError(name="mae")

        def call(self, x: Any, training: bool = False) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = tf.reduce_mean((predicted - y) ** 2)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            self.mean.update_state(loss)
            self.mae.update_state(y, predicted)
            return {"loss": self.mean.result(), "mae": self.mae.result()}

        @property
        def metrics(self) -> Any:
            return [self.mean, self.mae]

    model = Model()
    model(X)
    filled(model).compile(optimizer="adam")
    return model.fit(X, Y, epochs=2, batch_size=4, shuffle=False, verbose=0).history


@program
def step_with_compiled_loss_and_metrics(tf: Any) -> Any:
    class Model(tf.keras.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=predicted)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, predicted)
            return {metric.name: metric.result() for metric in self.metrics}

    inputs = tf.keras.Input((4,))
    model = filled(Model(inputs, tf.keras.layers.Dense(2)(inputs)))
    model.compile("sgd", "mse", metrics=["mae"])
    return model.fit(X, Y, epochs=2, batch_size=4, shuffle=False, verbose=0).history


@program
def two_inputs_and_two_outputs(tf: Any) -> Any:
    layers = tf.keras.layers
    a, b = tf.keras.Input((4,), name="a"), tf.keras.Input((3,), name="b")
    both = layers.Concatenate()([layers.Dense(3, name="d")(a), b])
    outputs = [layers.Dense(1, name="u")(both), layers.Dense(2, name="v")(both * 2.0)]
    model = filled(tf.keras.Model([a, b], outputs))
    model.compile("sgd", loss=["mse", "mae"], loss_weights=[1.0, 0.5], metrics=[["mae"], ["mse"]])
    data = [X, X[:, :3]], [Y[:, :1], Y]
    # One batch, in which all ways of averaging are the same.
    history = model.fit(*data, epochs=2, batch_size=6, shuffle=False, verbose=0).history
    return history, model.predict(data[0], verbose=0), [layer.name for layer in model.layers if layer.name in "abduv"]


@program
def penalties(tf: Any) -> Any:
    class Penalty(tf.keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(0.1 * tf.reduce_mean(inputs**2))
            return inputs

    dense = tf.keras.layers.Dense(2, activity_regularizer="l2", bias_regularizer="l1")
    model = filled(tf.keras.Sequential([tf.keras.Input((4,)), dense, Penalty()]))
    model.compile("sgd", "mse")
    return trained(model, X, Y)


@program
def constraints(tf: Any) -> Any:
    norm = tf.keras.constraints.MaxNorm(0.5)
    model = filled(tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2, kernel_constraint=norm)]))
    model.compile("sgd", "mse")
    return trained(model, X, Y)


@program
def averages_of_weights(tf: Any) -> Any:
    model = mlp(tf)
    model.compile(tf.keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse")
    return trained(model, X, Y)


@program
def convolutions(tf: Any) -> Any:
    layers = tf.keras.layers
    parts = [tf.keras.Input((8, 8, 2)), layers.Conv2D(3, 3, padding="same", activation="relu"), layers.MaxPooling2D()]
    model = filled(tf.keras.Sequential([*parts, layers.Flatten(), layers.Dense(2)]))
    model.compile("adam", "mse")
    return trained(model, IMAGES, Y)


@program
def words(tf: Any) -> Any:
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Embedding(10, 4), layers.LSTM(3), layers.Dense(2)])
    model(IDS)
    filled(model).compile("sgd", "mse")
    return trained(model, IDS, Y)


@program
def stopping_early_and_slower(tf: Any) -> Any:
    callbacks = tf.keras.callbacks
    model = mlp(tf)
    model.compile("sgd", "mse")
    stopping = callbacks.EarlyStopping("loss", patience=2, min_delta=0.02, restore_best_weights=True)
    slower = callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7)
    found = trained(model, X, Y, epochs=30, callbacks=[stopping, slower])
    return found, stopping.stopped_epoch, stopping.best, stopping.best_epoch


@program
def plateau(tf: Any) -> Any:
    model = mlp(tf)
    model.compile("sgd", "mse")
    callback = tf.keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=2, min_delta=0.05, cooldown=1)
    return trained(model, X, Y, epochs=14, callbacks=[callback])


LAYERS: dict[str, tuple[str, Any]] = {
    "Dense(3, 'gelu')": ("X", X),
    "Conv1D(3, 2, strides=2, activation='elu')": ("steps", STEPS),
    "Conv1D(3, 3, padding='causal', dilation_rate=2)": ("steps", STEPS),
    "Conv2D(4, (3, 2), padding='same', groups=2)": ("images", IMAGES),
    "Conv3D(2, 2)": ("volume", VOLUME),
    "MaxPooling1D(2)": ("steps", STEPS),
    "MaxPooling2D(3, 2, 'same')": ("images", IMAGES),
    "AveragePooling2D((2, 3), padding='same')": ("images", IMAGES),
    "MaxPool3D()": ("volume", VOLUME),
    "GlobalAveragePooling2D()": ("images", IMAGES),
    "GlobalMaxPooling1D(keepdims=True)": ("steps", STEPS),
    "ZeroPadding2D(((1, 0), (2, 1)))": ("images", IMAGES),
    "UpSampling2D((2, 3))": ("images", IMAGES),
    "DepthwiseConv2D(3, 2, 'same', depth_multiplier=2, activation='tanh')": ("images", IMAGES),
    "DepthwiseConv1D(2, dilation_rate=2)": ("steps", STEPS),
    "SeparableConv2D(5, 3, depth_multiplier=2)": ("images", IMAGES),
    "SeparableConv1D(5, 2, use_bias=False)": ("steps", STEPS),
    "GroupNormalization(2)": ("steps", STEPS),
    "GroupNormalization(-1, axis=1)": ("X", X),
    "Cropping1D((1, 2))": ("steps", STEPS),
    "Cropping2D(((1, 0), (2, 1)))": ("images", IMAGES),
    "BatchNormalization()": ("images", IMAGES),
    "LayerNormalization(axis=[1, 2])": ("steps", STEPS),
    "UnitNormalization()": ("X", X),
    "RMSNormalization()": ("X", X),
    "Rescaling(0.5, 1.0)": ("X", X),
    "LSTM(3, return_sequences=True, return_state=True)": ("steps", STEPS),
    "GRU(3, go_backwards=True)": ("steps", STEPS),
    "Bidirectional(tf.keras.layers.GRU(2, return_sequences=True))": ("steps", STEPS),
    "Bidirectional(tf.keras.layers.LSTM(2), merge_mode='sum')": ("steps", STEPS),
    "TimeDistributed(tf.keras.layers.Dense(2))": ("steps", STEPS),
    "ReLU(1.0, 0.1, 0.5)": ("X", X),
    "LeakyReLU()": ("X", X),
    "PReLU(shared_axes=[1])": ("steps", STEPS),
    "ELU(0.5)": ("X", X),
    "Softmax(axis=1)": ("steps", STEPS),
    "Permute((2, 1))": ("steps", STEPS),
    "RepeatVector(2)": ("X", X),
    "Reshape((-1, 2))": ("steps", STEPS),
    "Normalization(mean=[0.0, 1.0, 2.0, 3.0], variance=[1.0, 2.0, 3.0, 4.0])": ("X", X),
}

for _call, (_, _value) in LAYERS.items():

    def _layer(tf: Any, call: str = _call, value: Any = _value) -> Any:
        layer = eval(f"tf.keras.layers.{call}", {"tf": tf})
        layer(value)
        filled(layer)
        x = tf.constant(value)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            first = y[0] if isinstance(y, list | tuple) else y
            loss = tf.reduce_sum(first**3)
        gradients = tape.gradient(loss, [x, *layer.trainable_variables])
        return y, gradients, [tuple(v.shape) for v in layer.weights]

    PROGRAMS[_call] = _layer


@program
def attention(tf: Any) -> Any:
    layer = tf.keras.layers.MultiHeadAttention(2, 3, value_dim=4)
    layer(STEPS, STEPS)
    filled(layer)
    y, weights = layer(STEPS, STEPS + 1.0, return_attention_scores=True)
    return layer(STEPS, STEPS, use_causal_mask=True), y, weights


@program
def merging(tf: Any) -> Any:
    layers = tf.keras.layers
    two = [tf.constant(X), tf.constant(X[::-1].copy())]
    kinds = (layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum)
    return [kind()(two) for kind in kinds], layers.Concatenate(axis=0)(two), layers.Dot(1, normalize=True)(two)


@program
def activations(tf: Any) -> Any:
    names = (
        "elu exponential gelu hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid log_softmax mish relu "
        "relu6 selu sigmoid silu softmax softplus softsign swish tanh tanh_shrink"
    )
    return {name: tf.keras.activations.get(name)(tf.constant(3 * X)) for name in names.split()}


@program
def losses(tf: Any) -> Any:
    kinds = tf.keras.losses
    p, q = tf.nn.softmax(tf.constant(X)), tf.nn.softmax(tf.constant(X[::-1].copy()))
    weights = np.arange(6.0)
    made = [kinds.MeanSquaredError(), kinds.MeanAbsoluteError("sum"), kinds.Huber(0.1), kinds.BinaryCrossentropy()]
    made += [kinds.CategoricalCrossentropy(label_smoothing=0.2, reduction=None)]
    found: list[Any] = [[loss(p, q), loss(p, q, sample_weight=weights)] for loss in made]
    numbers = np.array([[0], [1], [2], [3], [0], [1]])
    sparse = kinds.SparseCategoricalCrossentropy(from_logits=True)
    found.append([sparse(numbers, X), sparse(numbers[:, 0].astype("float32"), X, weights)])
    found.append(kinds.MeanSquaredError()(X[:, 0], X[:, 1:2]))  # (6,) with (6, 1)
    names = "MeanAbsolutePercentageError MeanSquaredLogarithmicError LogCosh CosineSimilarity Hinge SquaredHinge"
    signs = tf.constant([[0.0, 1.0]]), tf.constant([[0.3, 0.4]])
    for name in (*names.split(), "CategoricalHinge", "KLDivergence", "Poisson"):
        loss = getattr(kinds, name)()
        found += [[loss(p, q), loss(*signs)]]
    found.append([kinds.mae(p, q), kinds.binary_crossentropy(p, q, axis=0)])
    return found


@program
def metrics(tf: Any) -> Any:
    kinds = tf.keras.metrics
    p, q = tf.nn.softmax(tf.constant(X)), tf.nn.softmax(tf.constant(X[::-1].copy()))
    weights = np.arange(1.0, 7.0)
    found = {}
    for name in ("MeanSquaredError", "MeanAbsoluteError", "RootMeanSquaredError", "CategoricalAccuracy"):
        metric = getattr(kinds, name)()
        before = metric.result()
        metric.update_state(p, q, sample_weight=weights)
        metric.update_state(q[:2], p[:2])
        found[name] = [before, metric.result()]
    for name in ("Accuracy", "BinaryAccuracy", "Precision", "Recall"):
        metric = getattr(kinds, name)()
        metric.update_state([0, 1, 1, 0], [0.0, 1.0, 0.0, 1.0])
        metric.update_state([[0], [1]], [[1.0], [1.0]])
        found[name] = metric.result()
    for name in ("TruePositives", "TrueNegatives", "FalsePositives", "FalseNegatives", "Precision", "Recall"):
        metric = getattr(kinds, name)(thresholds=0.3)
        metric.update_state([0, 1, 1, 0, 1], [0.2, 0.4, 0.1, 0.9, 0.8], sample_weight=[1.0, 2.0, 4.0, 8.0, 16.0])
        found[f"{name} at 0.3"] = metric.result()
    for name in ("CosineSimilarity", "KLDivergence", "Hinge", "LogCoshError"):
        found[name] = getattr(kinds, name)()(p, q, sample_weight=weights)
    sparse, top = kinds.SparseCategoricalAccuracy(), kinds.SparseTopKCategoricalAccuracy(2)
    found["sparse"] = [sparse(LABELS, p), sparse(LABELS[:, None], q, sample_weight=weights), top(LABELS, p)]
    mean, total = kinds.Mean(), kinds.Sum()
    found["mean"] = [mean([1.0, 5.0], sample_weight=[3.0, 1.0]), mean(7.0), total([1.0, 2.0]), total(4.0)]
    mean.reset_state()
    found["reset"] = mean.result()
    return found


@program
def learning_rates(tf: Any) -> Any:
    kinds = tf.keras.optimizers.schedules
    made = [
        kinds.CosineDecay(0.1, 20, alpha=0.1, warmup_target=0.5, warmup_steps=5),
        kinds.CosineDecayRestarts(0.1, 10, m_mul=0.5, alpha=0.1),
        kinds.CosineDecayRestarts(0.1, 10, t_mul=1.0),
        kinds.InverseTimeDecay(0.1, 10, 0.5, staircase=True),
        kinds.PiecewiseConstantDecay([5, 10], [1.0, 0.5, 0.1]),
        kinds.PolynomialDecay(0.1, 30, 0.01, power=2.0),
        kinds.PolynomialDecay(0.1, 10, power=0.5, cycle=True),
    ]
    return [[schedule(step) for step in (0, 1, 5, 9, 10, 11, 20, 29, 30, 31, 70, 71, 149)] for schedule in made]


def plain(value: Any) -> Any:
    """Numbers and text in lists and dictionaries."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple) or type(value).__name__ == "ListWrapper":
        return [plain(part) for part in value]
    if isinstance(value, str) or value is None:
        return value
    return np.asarray(value, dtype="float64").round(6).tolist()


def write(programs: dict[str, Callable[[Any], Any]], name: str) -> None:
    """Run programs with Keras, and write what they give to a file beside this one."""
    import tensorflow as tf

    found = {name: plain(function(tf)) for name, function in programs.items()}
    Path(__file__).with_name(name).write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    write(PROGRAMS, "keras.json")
