"""Programs in tf.keras with sequences and masks, and keras_sequences.json: what Keras gives for them.

python make_keras_sequences.py    # needs tensorflow 2.21 with keras 3.15
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from make_keras import filled, write

PROGRAMS: dict[str, Callable[[Any], Any]] = {}

IDS = np.array([[1, 2, 0, 0], [3, 4, 5, 0], [6, 0, 7, 8]])
OTHERS = np.array([[1, 2, 3, 0], [0, 2, 0, 0], [6, 2, 7, 8]])
CLASSES = np.array([[0, 1, 2, 0], [1, 1, 1, 1], [2, 0, 0, 1]])
ANSWERS = np.array([0, 1, 1])
WEIGHTS = np.arange(12.0).reshape(3, 4)


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def embedded(tf: Any, ids: Any = IDS) -> Any:
    """Vectors with a mask, made anew: some layers of Keras take the mask from their input."""
    layer = tf.keras.layers.Embedding(10, 4, mask_zero=True)
    layer(ids)
    return filled(layer)(ids)


def mask(value: Any) -> Any:
    found = getattr(value, "_keras_mask", None)
    return None if found is None else np.asarray(found).astype(int)


def called(layer: Any, *inputs: Any, **options: Any) -> Any:
    """The output of a layer and its mask."""
    layer(*inputs)
    if layer.get_weights():
        filled(layer)
    found = layer(*inputs, **options)
    return [found, mask(found)]


@program
def layers_that_pass_masks_on(tf: Any) -> Any:
    layers = tf.keras.layers
    made = [
        layers.Dense(2),
        layers.LayerNormalization(),
        layers.Activation("relu"),
        layers.Dropout(0.5),
        layers.GlobalAveragePooling1D(),
        layers.TimeDistributed(layers.Dense(2)),
        layers.Lambda(lambda x: 2 * x, mask=lambda x, mask: mask[:, ::-1]),
    ]
    return [called(layer, embedded(tf)) for layer in made]


@program
def statistics_of_the_steps_that_count(tf: Any) -> Any:
    layer = tf.keras.layers.BatchNormalization(momentum=0.5)
    y = layer(embedded(tf), training=True)
    return [y, mask(y), layer.moving_mean, layer.moving_variance]


@program
def masks_of_values_and_of_softmax(tf: Any) -> Any:
    masked = tf.keras.layers.Masking()(np.float32([[[1, 2], [0, 0], [0, 3]]]))
    scores = np.float32([[0.5, -1.0, 2.0], [0.1, 0.2, 0.3]])
    softmax = tf.keras.layers.Softmax()(scores, mask=np.array([[True, False, True], [False, False, False]]))
    return [masked, mask(masked), softmax]


@program
def merged_masks(tf: Any) -> Any:
    layers = tf.keras.layers
    found = []
    for layer in (layers.Add(), layers.Multiply(), layers.Concatenate(), layers.Concatenate(axis=1), layers.Maximum()):
        found += called(layer, [embedded(tf), embedded(tf, OTHERS)])
        found += called(layer, [embedded(tf), tf.ones((3, 4, 4))])
    return found


def counted(value: Any, counts: Any) -> Any:
    """The rows of queries that count: what the others get is no business of anybody."""
    return np.asarray(value)[np.asarray(counts)]


@program
def attention_of_what_counts(tf: Any) -> Any:
    layer = tf.keras.layers.MultiHeadAttention(2, 3)
    layer(embedded(tf), embedded(tf, OTHERS))
    filled(layer)
    found = []
    for options in ({}, {"use_causal_mask": True}, {"attention_mask": np.tril(np.ones((1, 4, 4)))}):
        y = layer(embedded(tf), embedded(tf, OTHERS + 0), **options)
        seen = (IDS != 0) & (OTHERS[:, :1] != 0) if options else IDS != 0
        found += [counted(y, seen), mask(y)]
    found.append(counted(layer(tf.ones((3, 4, 4)), embedded(tf, OTHERS)), IDS == IDS))
    return [*found, counted(layer(embedded(tf), tf.ones((3, 4, 4)), embedded(tf, OTHERS)), IDS != 0)]


@program
def attention_without_projections(tf: Any) -> Any:
    layers = tf.keras.layers
    found = []
    for layer in (layers.Attention(), layers.Attention(True, "concat"), layers.AdditiveAttention()):
        layer([embedded(tf), embedded(tf, OTHERS)])
        if layer.get_weights():
            filled(layer)
        y, scores = layer([embedded(tf), embedded(tf, OTHERS)], return_attention_scores=True)
        found += [y, scores, *called(layer, [embedded(tf), embedded(tf, OTHERS)])]
        found.append(layer([embedded(tf), embedded(tf, OTHERS), embedded(tf)], use_causal_mask=True))
    return found


for _kind in ("LSTM", "GRU", "SimpleRNN"):

    def _steps(tf: Any, kind: str = _kind) -> Any:
        found = []
        for sequences in (False, True):
            for backwards in (False, True):
                make = getattr(tf.keras.layers, kind)
                layer = make(3, return_sequences=sequences, return_state=True, go_backwards=backwards)
                layer(embedded(tf))
                y, *states = filled(layer)(embedded(tf))
                found += [y, mask(y), *states]
        return found

    PROGRAMS[f"steps of {_kind}"] = _steps

    def _both_ways(tf: Any, kind: str = _kind) -> Any:
        layers, found = tf.keras.layers, []
        for sequences in (False, True):
            for mode in ("concat", "sum", "mul", "ave"):
                layer = layers.Bidirectional(getattr(layers, kind)(3, return_sequences=sequences), merge_mode=mode)
                found += called(layer, embedded(tf))
        return found

    PROGRAMS[f"both ways of {_kind}"] = _both_ways


@program
def cells_in_a_loop(tf: Any) -> Any:
    layers = tf.keras.layers

    class Cell(layers.Layer):
        def __init__(self, units: int) -> None:
            super().__init__()
            self.state_size = units

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], self.state_size), name="kernel")
            self.recurrent = self.add_weight(shape=(self.state_size, self.state_size), name="recurrent")
            self.built = True

        def call(self, inputs: Any, states: Any) -> Any:
            h = tf.tanh(tf.matmul(inputs, self.kernel) + tf.matmul(states[0], self.recurrent))
            return h, [h]

    made = [Cell(3), layers.LSTMCell(3), layers.GRUCell(3), layers.SimpleRNNCell(3)]
    made.append(layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)]))
    found = []
    for cell in made:
        for zeros in (False, True):
            layer = layers.RNN(cell, return_sequences=True, return_state=True, zero_output_for_mask=zeros)
            layer(embedded(tf))
            y, *states = filled(layer)(embedded(tf))
            found += [y, mask(y), states]
    cell = layers.LSTMCell(3)
    cell(tf.ones((2, 4)), cell.get_initial_state(batch_size=2))
    output, states = filled(cell)(tf.ones((2, 4)), cell.get_initial_state(batch_size=2))
    return [*found, output, *states]


@program
def a_layer_that_keeps_its_state(tf: Any) -> Any:
    layers = tf.keras.layers
    x = np.arange(6.0).reshape(2, 3, 1) / 6
    parts = [tf.keras.Input(batch_shape=(2, 3, 1)), layers.LSTM(2, stateful=True), layers.Dense(1)]
    model = filled(tf.keras.Sequential(parts))
    found = [model.predict(x, verbose=0), model.predict(x, verbose=0)]
    model.layers[0].reset_state()
    found.append(model.predict(x, verbose=0))
    model.compile("sgd", "mse")
    history = model.fit(np.tile(x, (2, 1, 1)), np.ones((4, 1)), batch_size=2, epochs=2, shuffle=False, verbose=0)
    return [*found, history.history]


@program
def losses_and_metrics_of_the_steps_that_count(tf: Any) -> Any:
    losses, metrics = tf.keras.losses, tf.keras.metrics
    dense = tf.keras.layers.Dense(3)
    dense(embedded(tf))
    filled(dense)
    found = []
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight", "sum", "none"):
        loss = losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
        found += [loss(CLASSES, dense(embedded(tf))), loss(CLASSES, dense(embedded(tf)), sample_weight=WEIGHTS)]
    found.append(losses.MeanSquaredError()(np.ones((3, 4, 3)), dense(embedded(tf))))
    for metric in (metrics.SparseCategoricalAccuracy(), metrics.SparseCategoricalCrossentropy(from_logits=True)):
        metric.update_state(CLASSES, dense(embedded(tf)))
        found.append(metric.result())
        metric.update_state(CLASSES, dense(embedded(tf)), sample_weight=WEIGHTS)
        found.append(metric.result())
    return found


def subclass(tf: Any) -> Any:
    class Tagger(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = tf.keras.layers.Embedding(10, 4, mask_zero=True)
            self.lstm = tf.keras.layers.LSTM(3, return_sequences=True)
            self.dense = tf.keras.layers.Dense(3)

        def call(self, ids: Any) -> Any:
            return self.dense(self.lstm(self.embedding(ids)))

    return Tagger()


def functional(tf: Any) -> Any:
    layers = tf.keras.layers
    inputs = tf.keras.Input((None,), dtype="int32")
    x = layers.Embedding(10, 4, mask_zero=True)(inputs)
    y = layers.Bidirectional(layers.GRU(2, return_sequences=True))(layers.Dropout(0.0)(x))
    return tf.keras.Model(inputs, layers.Dense(3)(layers.Add()([x, y])))


def sequential(tf: Any) -> Any:
    layers = tf.keras.layers
    rnn = layers.RNN(layers.LSTMCell(3), return_sequences=True)
    return tf.keras.Sequential([layers.Embedding(10, 4, mask_zero=True), rnn, layers.Dense(3)])


def pooled(tf: Any) -> Any:
    layers = tf.keras.layers
    parts = [layers.LSTM(3, return_sequences=True), layers.GlobalAveragePooling1D(), layers.Dense(3)]
    return tf.keras.Sequential([layers.Embedding(10, 4, mask_zero=True), *parts])


for _make in (subclass, functional, sequential, pooled):
    for _eager in (False, True):

        def _fit(tf: Any, make: Callable[[Any], Any] = _make, eager: bool = _eager) -> Any:
            model = make(tf)
            model(IDS)
            labels = CLASSES[:, 0] if make is pooled else CLASSES
            filled(model)
            weighted = [tf.keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="weighted")]
            model.compile(
                tf.keras.optimizers.Adam(0.05),
                tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
                weighted_metrics=weighted,
                run_eagerly=eager,
            )
            history = model.fit(IDS, labels, epochs=3, batch_size=2, shuffle=False, verbose=0).history
            return [history, model.evaluate(IDS, labels, verbose=0), model.predict(IDS, verbose=0)]

        PROGRAMS[f"fit a {_make.__name__} model, {'eager' if _eager else 'compiled'}"] = _fit


if __name__ == "__main__":
    write(PROGRAMS, "keras_sequences.json")
