"""StringLookup, IntegerLookup and TextVectorization; the expected values are those of Keras 3."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
import tape_tf as tf

layers = tf.keras.layers
pytestmark = pytest.mark.each_backend
TEXTS = ["The cat sat, on the mat.", "A dog! a cat?", "mat mat dog"]
WORDS = ["mat", "the", "dog", "cat", "a", "sat", "on"]


def listed(tensor) -> list:
    return tensor.numpy().tolist()


# -- StringLookup


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[1, 2], [3, 0]]),
        ({"mask_token": ""}, [[2, 3], [4, 1]]),
        ({"output_mode": "multi_hot"}, [[0, 1, 1, 0], [1, 0, 0, 1]]),
        ({"output_mode": "count", "mask_token": "x"}, [[0, 1, 1, 0], [0, 0, 0, 1]]),
        (
            {"output_mode": "one_hot"},
            [[[0, 1, 0, 0], [0, 0, 1, 0]], [[0, 0, 0, 1], [1, 0, 0, 0]]],
        ),
        (
            {"output_mode": "multi_hot", "max_tokens": 6, "pad_to_max_tokens": True},
            [[0, 1, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0]],
        ),
    ],
    ids=["int", "mask", "multi_hot", "count", "one_hot", "padded"],
)
def test_strings_are_looked_up(options, expected):
    layer = layers.StringLookup(vocabulary=["a", "b", "c"], **options)
    found = layer([["a", "b"], ["c", "x"]])
    assert found.dtype == tf.int64
    assert listed(found) == expected
    assert (
        listed(layers.StringLookup.from_config(layer.get_config())(tf.constant([["a", "b"], ["c", "x"]]))) == expected
    )


def test_shapes_of_one_hot_vectors():
    layer = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")
    for words, shape in (("b", (1, 3)), (["b"], (1, 3)), (["a", "b"], (2, 3)), ([["a"], ["b"]], (2, 3))):
        assert layer(tf.constant(words)).shape == shape
    assert layer(tf.constant([["a", "b"]])).shape == (1, 2, 3)


def test_numbers_become_strings_again():
    forth = layers.StringLookup(vocabulary=["a", "b"])
    back = layers.StringLookup(vocabulary=forth.get_vocabulary(), invert=True)
    assert listed(back(forth(["b", "a", "x"]))) == [b"b", b"a", b"[UNK]"]
    assert back.get_vocabulary() == ["[UNK]", "a", "b"]
    assert listed(back([9])) == [b"[UNK]"]


def test_a_vocabulary_is_learned_by_frequency():
    layer = layers.StringLookup(max_tokens=4)
    layer.adapt(tf.data.Dataset.from_tensor_slices(["x", "y", "y", "z", "w"]).batch(2))
    assert layer.get_vocabulary() == ["[UNK]", "y", "z", "x"]
    assert layer.get_vocabulary(include_special_tokens=False) == ["y", "z", "x"]
    assert layer.vocabulary_size() == 4
    weighted = layers.StringLookup(output_mode="tf_idf")
    weighted.adapt([["a", "a", "b"], ["a", "c", "c"]])
    np.testing.assert_allclose(
        weighted([["a", "a", "x"]]).numpy()[0], [np.mean(weighted.idf_weights[1:]), 2 * np.log(1 + 2 / 3), 0, 0], 1e-6
    )


def test_unknown_strings():
    several = layers.StringLookup(vocabulary=["a"], num_oov_indices=3)
    found = several(["a", "p", "q", "p"]).numpy()
    assert found[0] == 3
    assert found[1] == found[3]
    assert (found[1:] < 3).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_oov_indices=1"):
        layers.StringLookup(vocabulary=["a"], num_oov_indices=0)(["b"])


def test_a_vocabulary_in_a_file(tmp_path):
    (tmp_path / "words.txt").write_text("ä\nb\n", encoding="utf-8")
    layer = layers.StringLookup(vocabulary=str(tmp_path / "words.txt"))
    assert layer.get_vocabulary() == ["[UNK]", "ä", "b"]
    layer.save_assets(tmp_path)
    again = layers.StringLookup()
    again.load_assets(tmp_path)
    assert listed(again(["b", "ä"])) == [2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_mode": "words"}, "output_mode must be one of"),
        ({"max_tokens": 1}, "greater than 1"),
        ({"pad_to_max_tokens": True}, "needs max_tokens"),
        ({"invert": True, "output_mode": "count"}, "invert"),
        ({"sparse": True, "output_mode": "count"}, "no sparse tensors"),
        ({"vocabulary": ["a", "a"]}, "'a' more than once"),
        ({"vocabulary": ["a", "[UNK]"]}, "oov_token"),
        ({"vocabulary": ["a", "b"], "max_tokens": 2}, "max_tokens=2"),
        ({"vocabulary": ["a"], "output_mode": "tf_idf"}, "idf_weights"),
        ({"encoding": "latin-1"}, "unicode_transcode"),
    ],
    ids=str,
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        layers.StringLookup(**options)


def test_what_cannot_be_looked_up():
    layer = layers.StringLookup(vocabulary=["a"])
    with pytest.raises(ValueError, match="takes strings"):
        layer([1, 2])
    with pytest.raises(ValueError, match="static vocabulary"):
        layer.adapt(["a"])
    with pytest.raises(RuntimeError, match="adapt"):
        layers.StringLookup(output_mode="count")(["a"])


# -- IntegerLookup


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[1, 3], [0, 0]]),
        ({"mask_token": 0}, [[2, 4], [1, 0]]),
        ({"num_oov_indices": 3}, [[3, 5], [1, 0]]),
        ({"output_mode": "multi_hot"}, [[0, 1, 0, 1], [1, 0, 0, 0]]),
    ],
    ids=["int", "mask", "buckets", "multi_hot"],
)
def test_integers_are_looked_up(options, expected):
    layer = layers.IntegerLookup(vocabulary=[12, 36, 5], **options)
    assert listed(layer([[12, 5], [7, 0]])) == expected
    assert listed(tf.function(lambda x: layer(x))(tf.constant([[12, 5], [7, 0]]))) == expected


def test_integers_and_back():
    forth = layers.IntegerLookup()
    forth.adapt(np.array([3, 3, 4, 5]))
    assert forth.get_vocabulary() == [-1, 3, 5, 4]
    back = layers.IntegerLookup(vocabulary=forth.get_vocabulary(), invert=True)
    assert listed(back(forth([4, 3, 8]))) == [4, 3, -1]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[8\]"):
        layers.IntegerLookup(vocabulary=[3], num_oov_indices=0)([3, 8])


def test_a_lookup_is_compiled_once():
    layer = layers.IntegerLookup(vocabulary=[5, 6])
    traced = []

    @tf.function
    def f(x):
        traced.append(1)
        return layer(x)

    for x in ([5, 6], [6, 7], [9, 5]):
        assert listed(f(tf.constant(x))) == listed(layer(x))
    assert len(traced) == 1


# -- TextVectorization


@pytest.mark.parametrize(
    ("options", "vocabulary", "expected"),
    [
        ({}, ["", "[UNK]", *WORDS], [[3, 5, 1], [2, 0, 0]]),
        ({"output_sequence_length": 4}, ["", "[UNK]", *WORDS], [[3, 5, 1, 0], [2, 0, 0, 0]]),
        ({"output_sequence_length": 2}, ["", "[UNK]", *WORDS], [[3, 5], [2, 0]]),
        ({"max_tokens": 5}, ["", "[UNK]", "mat", "the", "dog"], [[3, 1, 1], [2, 0, 0]]),
        ({"output_mode": "multi_hot"}, ["[UNK]", *WORDS], [[1, 0, 1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]]),
        ({"output_mode": "count", "max_tokens": 5}, ["[UNK]", *WORDS[:4]], [[1, 0, 1, 0, 1], [0, 1, 0, 0, 0]]),
        (
            {"standardize": "lower"},
            ["", "[UNK]", "the", "mat", "a", "sat,", "on", "mat.", "dog!", "dog", "cat?", "cat"],
            [[2, 11, 1], [3, 0, 0]],
        ),
        (
            {"standardize": lambda x: tf.strings.regex_replace(x, "cat", "dog")},
            ["", "[UNK]", "mat", "dog", "the", "sat,", "on", "mat.", "dog?", "dog!", "a", "The", "A"],
            [[4, 3, 1], [2, 0, 0]],
        ),
        (
            {"split": "character", "output_sequence_length": 3},
            ["", "[UNK]", *" taomhgedcsn"],
            [[3, 7, 9], [6, 4, 3]],
        ),
        ({"split": lambda x: tf.strings.split(x, "a"), "max_tokens": 3}, ["", "[UNK]", "t"], None),
        ({"split": None}, ["", "[UNK]", "the cat sat on the mat", "mat mat dog", "a dog a cat"], [1, 1]),
    ],
    ids=range(11),
)
def test_texts_become_integers(options, vocabulary, expected):
    layer = layers.TextVectorization(**options)
    layer.adapt(np.array(TEXTS))
    if expected is None:
        assert layer.get_vocabulary()[:2] == vocabulary[:2]
        return
    assert layer.get_vocabulary() == vocabulary
    found = layer(["the cat flew", "mat"])
    assert found.dtype == tf.int64
    assert listed(found) == expected


def test_ngrams_and_weights():
    layer = layers.TextVectorization(ngrams=2)
    layer.adapt(["a b a b"])
    assert layer.get_vocabulary() == ["", "[UNK]", "b", "a b", "a", "b a"]
    assert listed(layer(["b a b"])) == [[2, 4, 2, 5, 3]]
    weighted = layers.TextVectorization(output_mode="tf_idf")
    weighted.adapt(TEXTS)
    np.testing.assert_allclose(weighted(["the cat flew"]).numpy(), [[0.8207, 0, 0.9163, 0, 0.6931, 0, 0, 0]], atol=1e-4)


def test_one_text_a_column_of_texts_and_ragged_results():
    layer = layers.TextVectorization(vocabulary=["a", "b"])
    assert listed(layer("b a x")) == [3, 2, 1]
    assert listed(layer([["a"], ["b b"]])) == [[2, 0], [3, 3]]
    ragged = layers.TextVectorization(vocabulary=["a", "b"], ragged=True)
    assert ragged(["a b", "b"]).to_list() == [[2, 3], [3]]
    with pytest.raises(ValueError, match="last shape dimension must be 1"):
        layer([["a", "b"]])


def test_in_a_pipeline():
    texts = tf.data.Dataset.from_tensor_slices(TEXTS)
    layer = layers.TextVectorization(output_sequence_length=3)
    layer.adapt(texts.batch(2))
    assert layer.get_vocabulary()[2:] == WORDS
    assert [listed(x) for x in texts.map(layer)] == [[3, 5, 7], [6, 4, 6], [2, 2, 4]]
    assert [listed(x) for x in texts.batch(3).map(lambda text: layer(text)[:, :1])] == [[[3], [6], [2]]]


def model(words=("good", "bad")):
    return tf.keras.Sequential(
        [
            tf.keras.Input(shape=(1,), dtype=tf.string),
            layers.TextVectorization(vocabulary=list(words), output_sequence_length=4),
            layers.Embedding(len(words) + 2, 3),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


@pytest.mark.parametrize("form", ["arrays", "tensors", "dataset"])
def test_a_model_of_texts_learns(form):
    tf.keras.utils.set_random_seed(1)
    texts, labels = np.array([["a good one"], ["a bad one"]] * 8), np.array([1.0, 0.0] * 8)
    net = model()
    assert net.output_shape == (None, 1)
    net.compile(tf.keras.optimizers.Adam(0.1), "binary_crossentropy", metrics=["accuracy"])
    if form == "dataset":
        net.fit(tf.data.Dataset.from_tensor_slices((texts, labels)).batch(4), epochs=20, verbose=0)
    else:
        x = texts if form == "arrays" else tf.constant(texts)
        net.fit(x, labels, batch_size=4, epochs=20, validation_split=0.25, verbose=0)
    loss, accuracy = net.evaluate(texts, labels, verbose=0)
    assert accuracy == 1.0
    assert loss < 0.2
    found = net.predict(tf.constant([["good"], ["bad"]]), verbose=0)
    assert found[0] > 0.5 > found[1]
    np.testing.assert_allclose(net.predict_on_batch(np.array([["good"], ["bad"]])), found, rtol=1e-5)


def test_a_learned_vocabulary_is_in_files(tmp_path):
    inputs = tf.keras.Input((), dtype="string")
    vectorize = layers.TextVectorization(output_sequence_length=3)
    vectorize.adapt(TEXTS)
    outputs = layers.Dense(2)(tf.keras.layers.Embedding(9, 2)(vectorize(inputs)))
    net = tf.keras.Model(inputs, outputs)
    net.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert next(x for x in again.layers if isinstance(x, layers.TextVectorization)).get_vocabulary()[2:] == WORDS
    x = tf.constant(["the dog", "mat"])
    np.testing.assert_allclose(again(x).numpy(), net(x).numpy(), rtol=1e-6)


def test_shapes_are_known_before_the_call():
    text = tf.keras.Input((1,), dtype=tf.string)
    assert layers.TextVectorization(vocabulary=["a"])(text).shape.as_list() == [None, None]
    assert layers.TextVectorization(vocabulary=["a"], output_mode="count")(text).shape.as_list() == [None, 2]
    words = tf.keras.Input((), dtype=tf.string)
    assert layers.StringLookup(vocabulary=["a"], num_oov_indices=0)(words).shape.as_list() == [None]
    back = layers.StringLookup(vocabulary=["a"], invert=True)(tf.keras.Input((3,), dtype="int64"))
    assert back.dtype == tf.string


def test_a_derivative_flows_to_what_comes_after_the_lookup():
    net = model()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(net(tf.constant([["good"], ["bad bad"]])))
    gradients = tape.gradient(loss, net.trainable_variables)
    assert all(g is not None for g in gradients)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"standardize": "upper"}, "standardize must be a function"),
        ({"split": "words"}, "split must be a function"),
        ({"output_mode": "count", "output_sequence_length": 3}, 'output_mode="int"'),
        ({"output_mode": "one_hot"}, "output_mode must be"),
    ],
    ids=str,
)
def test_mistakes_with_texts_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        layers.TextVectorization(**options)


# -- files of Keras


def keras_file(path, net, vocabularies, change=None):
    """Save a model as Keras would: with the vocabularies beside the description."""
    net.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(members["config.json"])
    for layer in config["config"]["layers"]:
        if "vocabulary" in layer["config"]:
            layer["config"]["vocabulary"] = change
    members["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        for name, words in vocabularies.items():
            archive.writestr(f"assets/{name}/vocabulary.txt", "\n".join(words))


def test_vocabularies_in_files_of_keras_are_read(tmp_path):
    pytest.importorskip("h5py")
    net, path = model(), tmp_path / "model.keras"
    words = ["", "[UNK]", "bad", "good"]
    keras_file(path, net, {"layers/text_vectorization": words, "layers/text_vectorization/_lookup_layer": words})
    again = tf.keras.models.load_model(path)
    assert again.layers[0].get_vocabulary() == words
    x = tf.constant([["good bad"], ["other"]])
    assert listed(again.layers[0](x)) == [[3, 2, 0, 0], [1, 0, 0, 0]]


def test_a_vocabulary_whose_layer_is_not_found_is_not_lost_in_silence(tmp_path):
    pytest.importorskip("h5py")
    path = tmp_path / "model.keras"
    keras_file(path, model(), {"layers/text_vectorization_1": ["", "[UNK]", "good"]})
    with pytest.raises(ValueError, match=r"layers/text_vectorization_1.* set_vocabulary after"):
        tf.keras.models.load_model(path)


def test_a_file_of_a_model_names_no_other_file(tmp_path):
    pytest.importorskip("h5py")
    (tmp_path / "secret.txt").write_text("secret")
    path = tmp_path / "model.keras"
    keras_file(path, model(), {}, change=str(tmp_path / "secret.txt"))
    with pytest.raises(ValueError, match="names no file"):
        tf.keras.models.load_model(path)
    with pytest.raises(ValueError, match="names no file"):
        layers.StringLookup.from_config({"vocabulary": str(tmp_path / "secret.txt")})


def test_descriptions_have_all_that_keras_asks_for():
    config = layers.TextVectorization(vocabulary=["a"], ngrams=2).get_config()
    assert {"standardize", "split", "ngrams", "output_mode", "max_tokens", "vocabulary"} <= config.keys()
    assert config["vocabulary"] == ["a"]
    assert layers.IntegerLookup(vocabulary=[3]).get_config()["oov_token"] == -1
