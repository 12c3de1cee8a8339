"""What sections of TensorFlow's tutorials do with files, text and images, in programs of our own.

Each test is one tutorial in small: it reads data of its kind, trains on them, and uses the result.
"""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest
import tape_tf as tf

layers = tf.keras.layers
pytestmark = pytest.mark.each_backend


@pytest.fixture(autouse=True)
def _seed():
    tf.keras.utils.set_random_seed(0)


def pictures(folder, count=12, side=12):
    """Write bright and dark pictures, a folder for each."""
    image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(0)
    for name, low, high in (("bright", 180, 255), ("dark", 0, 70)):
        (folder / name).mkdir(parents=True)
        for k in range(count):
            pixels = draw.integers(low, high, (side, side + 2, 3), dtype=np.uint8)
            image.fromarray(pixels).save(folder / name / f"{k}.png")
    return folder


def reviews(folder, count=12):
    """Write friendly and unfriendly texts, a folder for each."""
    draw = np.random.default_rng(0)
    for name, words in (("pos", ["great", "lovely", "fine"]), ("neg", ["awful", "dull", "poor"])):
        (folder / name).mkdir(parents=True)
        for k in range(count):
            text = " ".join([*draw.choice(words, 3), *draw.choice(["the", "film", "was"], 3)])
            (folder / name / f"{k}.txt").write_text(f"{text}!<br />")
    return folder


def test_texts_in_folders_are_classified(tmp_path):
    options = {"batch_size": 4, "validation_split": 0.25, "seed": 1, "verbose": False}
    train, held_out = tf.keras.utils.text_dataset_from_directory(reviews(tmp_path), subset="both", **options)
    assert train.class_names == ["neg", "pos"]

    def clean(text):
        return tf.strings.regex_replace(tf.strings.lower(text), "<br />|[!.]", " ")

    vectorize = layers.TextVectorization(max_tokens=50, standardize=clean, output_sequence_length=8)
    vectorize.adapt(train.map(lambda text, label: text))
    assert "great" in vectorize.get_vocabulary()
    numbers = train.map(lambda text, label: (vectorize(text), label)).cache().prefetch(tf.data.AUTOTUNE)
    model = tf.keras.Sequential(
        [layers.Embedding(50, 8), layers.Dropout(0.1), layers.GlobalAveragePooling1D(), layers.Dense(1)]
    )
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.1), loss, metrics=[tf.keras.metrics.BinaryAccuracy(threshold=0.0)])
    model.fit(numbers, epochs=8, verbose=0)
    whole = tf.keras.Sequential([vectorize, model, layers.Activation("sigmoid")])
    whole.compile(loss="binary_crossentropy", metrics=["accuracy"])
    assert whole.evaluate(held_out, verbose=0)[1] == 1.0
    found = whole.predict(tf.constant(["A great film!", "So dull."]), verbose=0)
    assert found[0] > 0.5 > found[1]


def test_lines_of_files_are_labelled(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{name} line {k}\n\n" for k in range(8)))
    parts = []
    for number, name in enumerate(("a", "b")):
        lines = tf.data.TextLineDataset(str(tmp_path / f"{name}.txt")).filter(lambda line: tf.strings.length(line) > 0)
        parts.append(lines.map(lambda line, number=number: (line, tf.cast(number, tf.int64))))
    data = parts[0].concatenate(parts[1]).shuffle(16, reshuffle_each_iteration=False)
    vectorize = layers.TextVectorization(output_mode="multi_hot")
    vectorize.adapt(data.map(lambda line, label: line).batch(16))
    model = tf.keras.Sequential([vectorize, layers.Dense(2)])
    model.compile(
        tf.keras.optimizers.Adam(0.02),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(data.batch(4), epochs=30, verbose=0)
    assert model.evaluate(data.batch(4), verbose=0)[1] == 1.0


def test_pictures_in_folders_are_classified(tmp_path):
    options = {"validation_split": 0.25, "seed": 2, "image_size": (8, 8), "batch_size": 6, "verbose": False}
    folder = pictures(tmp_path)
    train = tf.keras.utils.image_dataset_from_directory(folder, subset="training", **options)
    held_out = tf.keras.utils.image_dataset_from_directory(folder, subset="validation", **options)
    change = tf.keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomRotation(0.1)])
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 3)),
            change,
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(len(train.class_names)),
        ]
    )
    model.compile(
        tf.keras.optimizers.Adam(0.02),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(train.cache().shuffle(10).prefetch(tf.data.AUTOTUNE), validation_data=held_out, epochs=8, verbose=0)
    assert model.evaluate(held_out, verbose=0)[1] == 1.0
    image = tf.keras.utils.load_img(folder / "dark" / "0.png", target_size=(8, 8))
    scores = tf.nn.softmax(model.predict(tf.expand_dims(tf.keras.utils.img_to_array(image), 0), verbose=0)[0])
    assert train.class_names[int(tf.argmax(scores))] == "dark"


def test_a_pipeline_of_paths(tmp_path):
    files = tf.data.Dataset.list_files(str(pictures(tmp_path) / "*" / "*.png"), seed=3)
    names = np.array(["bright", "dark"])

    @tf.function
    def load(path):
        label = tf.strings.split(path, "/")[-2] == names
        image = tf.image.convert_image_dtype(tf.io.decode_png(tf.io.read_file(path), channels=3), tf.float32)
        return tf.image.resize(image, [4, 4], method=tf.image.ResizeMethod.NEAREST_NEIGHBOR), tf.argmax(label)

    for image, label in files.map(load, num_parallel_calls=tf.data.AUTOTUNE).take(5):
        assert image.shape == (4, 4, 3)
        assert (float(tf.reduce_mean(image)) < 0.5) == bool(label)


def test_an_archive_is_fetched_and_read(tmp_path):
    pictures(tmp_path / "set", count=2)
    with tarfile.open(tmp_path / "set.tgz", "w:gz") as archive:
        archive.add(tmp_path / "set", "set")
    folder = tf.keras.utils.get_file("set.tgz", (tmp_path / "set.tgz").as_uri(), extract=True, cache_dir=tmp_path)
    data = tf.keras.utils.image_dataset_from_directory(folder + "/set", image_size=(4, 4), verbose=False)
    assert next(iter(data))[0].shape == (4, 4, 4, 3)


def test_digits_from_a_local_file(tmp_path):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 90)
    images = (draw.uniform(0, 60, (90, 28, 28)) + labels[:, None, None] * 90).astype(np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images[:75], y_train=labels[:75], x_test=images[75:], y_test=labels[75:])
    (x_train, y_train), (x_test, y_test) = tf.keras.datasets.mnist.load_data(tmp_path / "mnist.npz")
    model = tf.keras.models.Sequential(
        [layers.Flatten(input_shape=(28, 28)), layers.Dense(16, activation="relu"), layers.Dense(10)]
    )
    model.compile(
        tf.keras.optimizers.Adam(0.02),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(x_train / 255.0, y_train, epochs=30, verbose=0)
    assert model.evaluate(x_test / 255.0, y_test, verbose=0)[1] > 0.8


def test_reviews_as_numbers_are_padded(tmp_path):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 40)
    rows = np.empty(40, object)
    rows[:] = [[int(4 + label * 3 + k) for k in draw.integers(0, 3, draw.integers(2, 6))] for label in labels]
    np.savez(tmp_path / "imdb.npz", x_train=rows, y_train=labels, x_test=rows, y_test=labels)
    (x, y), _ = tf.keras.datasets.imdb.load_data(tmp_path / "imdb.npz", num_words=20)
    x = tf.keras.utils.pad_sequences(x, maxlen=6)
    model = tf.keras.Sequential(
        [layers.Embedding(20, 4, mask_zero=True), layers.Bidirectional(layers.LSTM(4)), layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.Adam(0.05), tf.keras.losses.BinaryCrossentropy(from_logits=True))
    history = model.fit(x, y, epochs=6, batch_size=10, verbose=0)
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]


def test_pictures_in_records(tmp_path):
    pytest.importorskip("PIL.Image")
    path = str(tmp_path / "pictures.tfrecord")
    draw = np.random.default_rng(0)
    with tf.io.TFRecordWriter(path, "GZIP") as writer:
        for k in range(8):
            image = tf.io.encode_png(draw.integers(0, 100, (5, 5, 1), dtype=np.uint8) + np.uint8(150 * (k % 2)))
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.numpy()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[k % 2])),
                "weights": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 0.5 * k])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    description = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64, default_value=0),
        "weights": tf.io.FixedLenFeature([2], tf.float32),
    }

    def parse(record):
        found = tf.io.parse_single_example(record, description)
        image = tf.cast(tf.io.decode_png(found["image"], channels=1), tf.float32) / 255
        return image, found["label"]

    data = tf.data.TFRecordDataset([path], compression_type="GZIP").map(parse).repeat(10).batch(8)
    model = tf.keras.Sequential([layers.Flatten(), layers.Dense(1, activation="sigmoid")])
    model.compile(tf.keras.optimizers.Adam(0.1), "binary_crossentropy", metrics=["accuracy"])
    model.fit(data, epochs=5, verbose=0)
    assert model.evaluate(data, verbose=0)[1] == 1.0


def test_a_table_of_numbers_and_words(tmp_path):
    rows = [f"{k % 2},{20 + k},{'red' if k % 2 else 'blue'}" for k in range(20)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["target,age,colour", *rows]) + "\n")
    data = tf.data.experimental.make_csv_dataset(
        str(path), batch_size=5, label_name="target", num_epochs=1, shuffle_seed=1
    )
    inputs = {"age": tf.keras.Input((), name="age"), "colour": tf.keras.Input((), name="colour", dtype=tf.string)}
    normalize = layers.Normalization(axis=None)
    normalize.adapt(data.map(lambda row, label: tf.cast(row["age"], tf.float32)))
    lookup = layers.StringLookup(output_mode="one_hot")
    lookup.adapt(data.map(lambda row, label: row["colour"]))
    assert sorted(lookup.get_vocabulary()) == ["[UNK]", "blue", "red"]
    age = layers.Reshape((1,))(normalize(inputs["age"]))
    colour = layers.Lambda(lambda x: tf.cast(x, tf.float32))(lookup(inputs["colour"]))
    outputs = layers.Dense(1, activation="sigmoid")(layers.Concatenate()([age, colour]))
    model = tf.keras.Model(inputs, outputs)
    model.compile(tf.keras.optimizers.Adam(0.2), "binary_crossentropy", metrics=["accuracy"])
    model.fit(data, epochs=20, verbose=0)
    assert model.evaluate(data, verbose=0)[1] == 1.0
    found = model.predict({"age": tf.constant([30.0]), "colour": tf.constant(["red"])}, verbose=0)
    assert found[0, 0] > 0.5


def test_a_text_is_continued_character_by_character():
    text = "hello hello hello hello hello "
    vocabulary = sorted(set(text))
    to_ids = layers.StringLookup(vocabulary=vocabulary, mask_token=None)
    to_text = layers.StringLookup(vocabulary=to_ids.get_vocabulary(), invert=True, mask_token=None)
    ids = to_ids(tf.strings.unicode_split(text, "UTF-8"))
    sequences = tf.data.Dataset.from_tensor_slices(ids).batch(7, drop_remainder=True)
    data = sequences.map(lambda row: (row[:-1], row[1:])).shuffle(10).batch(2, drop_remainder=True).repeat(30)
    size = len(to_ids.get_vocabulary())
    model = tf.keras.Sequential([layers.Embedding(size, 8), layers.GRU(16, return_sequences=True), layers.Dense(size)])
    model.compile(tf.keras.optimizers.Adam(0.02), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(data, epochs=2, verbose=0)
    states = tf.constant(["hel"])
    for _ in range(6):
        numbers = to_ids(tf.strings.unicode_split(states, "UTF-8").to_tensor())
        last = tf.argmax(model(numbers)[:, -1], axis=-1)
        states = tf.strings.join([states, to_text(last)])
    assert states[0].numpy() == b"hello hel"


def test_a_picture_is_changed_by_gradients(tmp_path):
    pytest.importorskip("PIL.Image")
    target = np.zeros((16, 16, 3), np.uint8)
    target[4:12, 4:12] = 255
    tf.io.write_file(str(tmp_path / "target.png"), tf.io.encode_png(target))
    wanted = tf.image.decode_image(tf.io.read_file(str(tmp_path / "target.png")), channels=3, dtype=tf.float32)
    wanted = tf.image.resize(wanted, (8, 8))[tf.newaxis]
    image = tf.Variable(tf.random.uniform(wanted.shape))
    optimizer = tf.keras.optimizers.Adam(0.05)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(tf.image.sobel_edges(image) - tf.image.sobel_edges(wanted)))
            loss += tf.reduce_mean(tf.square(image - wanted)) + 1e-4 * tf.image.total_variation(image)[0]
        optimizer.apply_gradients([(tape.gradient(loss, image), image)])
        image.assign(tf.clip_by_value(image, 0.0, 1.0))
        return loss

    losses = [float(step()) for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]
    picture = tf.keras.utils.array_to_img(image[0])
    assert picture.size == (8, 8)
    out = io.BytesIO()
    picture.save(out, "PNG")
    assert tf.io.decode_png(out.getvalue()).shape == (8, 8, 3)


def test_words_of_different_counts_are_averaged():
    words = tf.strings.split(["a b c", "b", "c a"])
    lookup = layers.StringLookup(vocabulary=["a", "b", "c"])
    numbers = lookup(words)
    assert numbers.to_list() == [[1, 2, 3], [2], [3, 1]]
    table = tf.Variable(tf.random.normal((4, 2)))
    with tf.GradientTape() as tape:
        rows = tf.ragged.map_flat_values(tf.gather, table, numbers)
        padded = rows.to_tensor()
        means = tf.reduce_sum(padded, axis=1) / tf.cast(rows.row_lengths(), tf.float32)[:, None]
        loss = tf.reduce_sum(means)
    gradient = tf.convert_to_tensor(tape.gradient(loss, table)).numpy()
    np.testing.assert_allclose(gradient[:, 0], [0, 1 / 3 + 1 / 2, 1 / 3 + 1, 1 / 3 + 1 / 2], rtol=1e-6)


def test_pictures_are_changed_by_other_libraries():
    image = tf.reshape(tf.range(12.0), (3, 4, 1))

    def turn(x):
        return np.rot90(x, axes=(0, 1)).copy()

    data = tf.data.Dataset.from_tensors(image).map(lambda x: tf.numpy_function(turn, [x], tf.float32))
    np.testing.assert_array_equal(next(iter(data)).numpy()[..., 0], np.rot90(image.numpy()[..., 0]))


def test_sentences_of_different_lengths_are_tagged():
    """Masking and padding: a mask made by the embedding reaches the recurrent layers, the loss and the accuracy."""
    draw = np.random.default_rng(0)
    sentences = [draw.integers(1, 20, draw.integers(2, 9)).tolist() for _ in range(64)]
    words = tf.keras.utils.pad_sequences(sentences, padding="post")
    tags = (words > 10).astype("int64")  # of padding nobody is to learn anything
    tags[words == 0] = 1 - tags[words == 0]
    inputs = tf.keras.Input((None,), dtype="int32")
    x = layers.Embedding(20, 8, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    outputs = layers.TimeDistributed(layers.Dense(2))(x)
    model = tf.keras.Model(inputs, outputs)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.05), loss, metrics=[tf.keras.metrics.SparseCategoricalAccuracy("acc")])
    history = model.fit(words, tags, epochs=12, batch_size=16, verbose=0).history
    right = model.predict(words, verbose=0).argmax(-1) == tags
    assert history["acc"][-1] > 0.9
    assert right[words != 0].mean() > 0.9
    assert model.evaluate(words, tags, verbose=0)[1] == pytest.approx(right[words != 0].mean())


def test_a_series_is_forecast_step_by_step():
    """Time series: windows, a cell that is warmed up by a sequence and then fed with its own predictions."""

    class Feedback(tf.keras.Model):
        def __init__(self, units, steps):
            super().__init__()
            self.steps = steps
            self.cell = layers.LSTMCell(units)
            self.rnn = layers.RNN(self.cell, return_state=True)
            self.dense = layers.Dense(1)

        def call(self, inputs, training=None):
            x, *state = self.rnn(inputs)
            predictions = [self.dense(x)]
            for _ in range(1, self.steps):
                x, state = self.cell(predictions[-1], states=state, training=training)
                predictions.append(self.dense(x))
            return tf.stack(predictions, axis=1)

    series = np.sin(np.arange(240) * 0.3).astype("float32")[:, None]
    data = tf.keras.utils.timeseries_dataset_from_array(series, None, 15, shuffle=True, seed=0, batch_size=32)
    data = data.map(lambda window: (window[:, :12], window[:, 12:]))
    model = Feedback(16, steps=3)
    model.compile(tf.keras.optimizers.Adam(0.02), tf.keras.losses.MeanSquaredError(), metrics=["mae"])
    stop = tf.keras.callbacks.EarlyStopping(monitor="loss", patience=5)
    model.fit(data, epochs=20, callbacks=[stop], verbose=0)
    assert model.evaluate(data, verbose=0)[1] < 0.15
    assert model.predict(data, verbose=0).shape == (226, 3, 1)


def test_pictures_are_varied_in_the_model():
    """Data augmentation: layers that change pictures at random, inside of the model that is trained."""
    draw = np.random.default_rng(0)
    images = draw.uniform(0, 60, (48, 8, 8, 3)).astype("float32")
    labels = np.arange(48) % 2
    images[labels == 1, 2:6, 2:6] += 150
    augment = tf.keras.Sequential(
        [
            layers.RandomFlip("horizontal_and_vertical"),
            layers.RandomRotation(0.2),
            layers.RandomZoom(0.1),
            layers.RandomContrast(0.1),
        ]
    )
    assert not np.array_equal(augment(images), augment(images))
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 3)),
            augment,
            layers.Rescaling(1.0 / 255),
            layers.Conv2D(8, 3, activation="relu"),
            layers.GlobalMaxPooling2D(),
            layers.Dense(1),
        ]
    )
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.05), loss, metrics=[tf.keras.metrics.BinaryAccuracy(threshold=0.0)])
    model.fit(images, labels, epochs=6, batch_size=16, verbose=0)
    assert model.evaluate(images, labels, verbose=0)[1] == 1.0


def test_half_precision_in_a_loop_of_ones_own():
    """Mixed precision: a policy for all layers, and a loss that is scaled by hand."""
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        inputs = tf.keras.Input((6,))
        hidden = layers.Dense(16, activation="relu")(inputs)
        assert hidden.dtype == tf.float16
        model = tf.keras.Model(inputs, layers.Activation("softmax", dtype="float32")(layers.Dense(3)(hidden)))
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    x = np.random.default_rng(0).normal(size=(96, 6)).astype("float32")
    y = x[:, :3].argmax(1)
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.Adam(0.03))
    compute = tf.keras.losses.SparseCategoricalCrossentropy(reduction=tf.keras.losses.Reduction.NONE)
    mean, bar = tf.keras.metrics.Mean(), tf.keras.utils.Progbar(8, verbose=0)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(compute(y, model(x, training=True)))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        mean.update_state(loss)

    means = []
    for epoch in range(8):
        for batch in tf.data.Dataset.from_tensor_slices((x, y)).batch(32):
            step(*batch)
        means.append(float(mean.result()))
        mean.reset_states()
        bar.update(epoch + 1, [("loss", means[-1])])
    assert means[-1] < 0.5 * means[0]
    assert model.trainable_variables[0].dtype == tf.float32


def test_files_after_so_many_batches_in_a_new_folder(tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    path = str(tmp_path / "runs" / "a" / "{epoch}-{batch}.weights.h5")
    often = tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=2)
    model.fit(np.ones((6, 2)), np.ones((6, 1)), batch_size=2, epochs=2, verbose=0, callbacks=[often])
    # The batches are counted over the epochs: the second, the fourth and the sixth.
    written = sorted(file.name for file in (tmp_path / "runs" / "a").iterdir())
    assert written == ["1-2.weights.h5", "2-1.weights.h5", "2-3.weights.h5"]
    last = model.get_weights()
    model.load_weights(tmp_path / "runs" / "a" / "2-1.weights.h5")
    assert not np.array_equal(model.get_weights()[0], last[0])
    model.load_weights(tmp_path / "runs" / "a" / "2-3.weights.h5")
    np.testing.assert_array_equal(model.get_weights()[0], last[0])


def test_rates_of_many_steps_for_a_plot():
    schedule = tf.keras.optimizers.schedules.InverseTimeDecay(0.1, decay_steps=10, decay_rate=1.0)
    steps = np.linspace(0.0, 25.0, 6).reshape(2, 3)
    np.testing.assert_allclose(schedule(steps), 0.1 / (1 + steps / 10), rtol=1e-6)
    np.testing.assert_allclose(schedule([0, 10]), [0.1, 0.05], rtol=1e-6)
    assert schedule(tf.constant([0, 10])).shape == (2,)


def test_truths_are_integers_of_examples():
    values = [True, np.bool_(False), tf.constant(True), np.array(False), 3, tf.constant(4)]
    assert tf.train.Int64List(value=values).value == [1, 0, 1, 0, 3, 4]


def test_defaults_of_a_function_with_an_input_signature():
    class Scaled:
        @tf.function(input_signature=(tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)))
        def by(self, x, factor=2.0, twice=False):
            return x * factor * (2.0 if twice else 1.0)

    scaled = Scaled()
    np.testing.assert_array_equal(scaled.by(tf.constant([1.0, 2.0])), [2.0, 4.0])
    np.testing.assert_array_equal(scaled.by(tf.constant([1.0]), factor=3.0), [3.0])
    with pytest.raises(TypeError, match="missing a required argument"):
        scaled.by()
    with pytest.raises(TypeError, match="too many"):
        scaled.by(tf.constant([1.0]), twice=True)


def test_sizes_of_datasets_by_their_older_names():
    data = tf.data.Dataset.range(5)
    assert int(tf.data.experimental.cardinality(data)) == 5
    assert int(tf.data.experimental.cardinality(data.repeat())) == tf.data.experimental.INFINITE_CARDINALITY
    numbered = tf.data.Dataset.zip((data, (tf.data.experimental.Counter(3), tf.data.experimental.Counter(3))))
    assert [(int(a), int(b), int(c)) for a, (b, c) in numbered.take(2)] == [(0, 3, 3), (1, 4, 4)]
    assert data.prefetch(tf.data.experimental.AUTOTUNE).cardinality() == 5


def test_the_version_has_two_names():
    assert tf.__version__ == tf.version.VERSION


def test_pictures_of_bytes_are_adjusted():
    """The expected values are TensorFlow's."""
    picture = tf.reshape(tf.constant(np.arange(0, 240, 20), tf.uint8), (2, 2, 3))
    grey, brighter = tf.image.rgb_to_grayscale(picture), tf.image.adjust_brightness(picture, 0.4)
    assert grey.dtype == brighter.dtype == tf.uint8
    assert grey.numpy().ravel().tolist() == [16, 76, 136, 196]
    assert brighter.numpy().ravel().tolist() == [102, 122, 142, 162, 182, 202, 222, 242, 255, 255, 255, 255]
    darker = tf.image.adjust_brightness(picture, -0.1).numpy().ravel().tolist()
    assert darker == [0, 0, 14, 34, 54, 74, 94, 114, 134, 154, 174, 194]
    contrast = tf.image.adjust_contrast(picture, 2.0).numpy().ravel().tolist()
    assert contrast == [0, 0, 0, 30, 50, 70, 150, 170, 190, 255, 255, 255]
    vivid = tf.image.adjust_saturation(picture, 3).numpy().ravel().tolist()
    assert vivid == [0, 20, 40, 0, 50, 100, 40, 100, 160, 100, 160, 220]


def test_saturation_of_floats():
    """The expected values are TensorFlow's."""
    picture = tf.constant([[[0.63696170, 0.26978672, 0.04097353], [0.01652764, 0.81327021, 0.91275555], [0.3] * 3]])
    vivid = [[[0.63696170, 0.24454382, 0.0], [0.0, 0.81143570, 0.91275555], [0.3] * 3]]
    pale = [[[0.63696170, 0.45337421, 0.33896762], [0.46464160, 0.86301291, 0.91275555], [0.3] * 3]]
    np.testing.assert_allclose(tf.image.adjust_saturation(picture, 3.0), vivid, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tf.function(tf.image.adjust_saturation)(picture, 0.5), pale, rtol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(picture)
        total = tf.reduce_sum(tf.image.adjust_saturation(picture, 0.5))
    with pytest.raises(LookupError, match="gradient registry has no entry for: AdjustSaturation; write it out"):
        tape.gradient(total, picture)
    with pytest.raises(ValueError, match="RGB"):
        tf.image.adjust_saturation(picture[..., :2], 2.0)


def test_the_same_seed_changes_pictures_alike():
    picture = tf.reshape(tf.range(300.0) / 300, (10, 10, 3))
    changes = {
        "brightness": lambda seed: tf.image.stateless_random_brightness(picture, 0.5, seed),
        "contrast": lambda seed: tf.image.stateless_random_contrast(picture, 0.1, 0.9, seed=seed),
        "saturation": lambda seed: tf.image.stateless_random_saturation(picture, 0.1, 0.9, seed),
        "crop": lambda seed: tf.image.stateless_random_crop(picture, (4, 4, 3), seed=seed),
    }
    for name, change in changes.items():
        results = [change((k, 0)).numpy() for k in range(6)]
        np.testing.assert_array_equal(results[3], change(tf.constant([3, 0])), err_msg=name)
        assert len({result.tobytes() for result in results}) > 1, name
    counter = tf.data.experimental.Counter()
    pairs = tf.data.Dataset.zip((tf.data.Dataset.from_tensors(picture).repeat(3), (counter, counter)))
    mapped = pairs.map(lambda image, seed: tf.image.stateless_random_brightness(image, 0.5, seed))
    assert len({image.numpy().tobytes() for image in mapped}) == 3


def test_integers_before_symbolic_floats(tmp_path):
    x = tf.keras.Input(shape=(2,))
    model = tf.keras.Model(x, [2 * x + 1, 1 - x, 6 / x, 2**x])
    values = np.array([[1.0, 2.0]], np.float32)
    expected = [[[3.0, 5.0]], [[0.0, -1.0]], [[6.0, 3.0]], [[2.0, 4.0]]]
    np.testing.assert_allclose(model(values), expected, rtol=1e-6)
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(tf.keras.models.load_model(tmp_path / "model.keras")(values), expected, rtol=1e-6)
