"""tf.data: what datasets give, in which order, how often, and what is said of mistakes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

Dataset = tf.data.Dataset


def values(dataset: Any) -> list[Any]:
    """The elements as Python numbers, lists, tuples and dictionaries."""
    return [plain(element) for element in dataset.as_numpy_iterator()]


def plain(element: Any) -> Any:
    if isinstance(element, tuple):
        return tuple(plain(part) for part in element)
    if isinstance(element, dict):
        return {key: plain(part) for key, part in element.items()}
    return element.tolist()


# -- sources


def test_slices_of_a_structure_are_tensors_in_that_structure() -> None:
    pairs = Dataset.from_tensor_slices(({"x": [[1.0, 2.0], [3.0, 4.0]], "n": np.arange(2)}, tf.constant([5, 6])))
    assert len(pairs) == 2
    features, label = next(iter(pairs))
    assert isinstance(label, tf.Tensor)
    assert (features["x"].dtype, features["n"].dtype, label.dtype) == (tf.float32, tf.int64, tf.int32)
    assert values(pairs) == [({"x": [1.0, 2.0], "n": 0}, 5), ({"x": [3.0, 4.0], "n": 1}, 6)]
    assert pairs.element_spec[0]["x"] == tf.TensorSpec((2,), tf.float32)


def test_slices_of_a_named_tuple() -> None:
    Pair = namedtuple("Pair", "a b")
    element = next(iter(Dataset.from_tensor_slices(Pair([1, 2], [3.0, 4.0]))))
    assert type(element) is Pair
    assert float(element.b) == 3.0


def test_a_list_is_one_tensor() -> None:
    assert values(Dataset.from_tensor_slices([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]


def test_the_array_is_copied() -> None:
    array = np.zeros(2)
    dataset = Dataset.from_tensor_slices(array)
    array[:] = 1
    assert values(dataset) == [0.0, 0.0]


def test_one_element() -> None:
    dataset = Dataset.from_tensors(([1, 2], 3.0))
    assert (values(dataset), len(dataset)) == ([([1, 2], 3.0)], 1)


@pytest.mark.parametrize(("args", "expected"), [((3,), [0, 1, 2]), ((1, 4), [1, 2, 3]), ((5, 0, -2), [5, 3, 1])])
def test_range(args: tuple[int, ...], expected: list[int]) -> None:
    dataset = Dataset.range(*args)
    assert values(dataset) == expected
    assert next(iter(dataset)).dtype == tf.int64
    assert next(iter(Dataset.range(3, output_type=tf.float32))).dtype == tf.float32


def test_a_generator_is_called_anew_for_each_iteration() -> None:
    calls = []

    def generate(n: Any) -> Iterator[Any]:
        calls.append(n)
        for k in range(n):
            yield [float(k), 1.0], k

    signature = tf.TensorSpec((2,), tf.float32), tf.TensorSpec((), tf.int64)
    dataset = Dataset.from_generator(generate, args=[2], output_signature=signature)
    expected = [([0.0, 1.0], 0), ([1.0, 1.0], 1)]
    assert values(dataset) == expected == values(dataset)
    assert len(calls) == 2
    assert dataset.element_spec == signature
    assert int(dataset.cardinality()) == tf.data.UNKNOWN_CARDINALITY
    first = next(iter(dataset))
    assert [part.dtype for part in first] == [tf.float32, tf.int64]


def test_a_generator_with_types_and_shapes() -> None:
    dataset = Dataset.from_generator(
        lambda: iter([(1, [2.0])]), output_types=(tf.int32, tf.float64), output_shapes=((), (None,))
    )
    assert values(dataset) == [(1, [2.0])]
    assert dataset.element_spec[1] == tf.TensorSpec((None,), tf.float64)


def test_zip_ends_with_the_shortest() -> None:
    a, b = Dataset.range(3), Dataset.range(10, 20).batch(2)
    assert values(Dataset.zip((a, b))) == values(Dataset.zip(a, b)) == [(0, [10, 11]), (1, [12, 13]), (2, [14, 15])]
    assert len(Dataset.zip({"a": a, "b": b})) == 3
    assert values(Dataset.zip({"a": a, "b": b}).take(1)) == [{"a": 0, "b": [10, 11]}]
    assert len(Dataset.zip(a, a.repeat())) == 3


# -- transformations


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        pytest.param(lambda d: d.batch(2), [[0, 1], [2, 3], [4]], id="batch"),
        pytest.param(lambda d: d.batch(2, drop_remainder=True), [[0, 1], [2, 3]], id="batch, drop_remainder"),
        pytest.param(lambda d: d.batch(tf.constant(5)), [[0, 1, 2, 3, 4]], id="batch, tensor"),
        pytest.param(lambda d: d.batch(2).rebatch(3), [[0, 1, 2], [3, 4]], id="rebatch"),
        pytest.param(lambda d: d.batch(2).unbatch(), [0, 1, 2, 3, 4], id="unbatch"),
        pytest.param(lambda d: d.map(lambda x: x * 2), [0, 2, 4, 6, 8], id="map"),
        pytest.param(lambda d: d.map(lambda x: (x, x + 1)).map(lambda x, y: x * y), [0, 2, 6, 12, 20], id="map, pairs"),
        pytest.param(lambda d: d.map(lambda x: {"x": x}).map(lambda e: e["x"]), [0, 1, 2, 3, 4], id="map, dictionary"),
        pytest.param(
            lambda d: d.map(lambda x: [x, x], num_parallel_calls=3).map(lambda x, y: x + y), [0, 2, 4, 6, 8], id="list"
        ),
        pytest.param(lambda d: d.filter(lambda x: x % 2 == 0), [0, 2, 4], id="filter"),
        pytest.param(lambda d: d.take(2), [0, 1], id="take"),
        pytest.param(lambda d: d.take(-1), [0, 1, 2, 3, 4], id="take, all"),
        pytest.param(lambda d: d.skip(3), [3, 4], id="skip"),
        pytest.param(lambda d: d.skip(-1), [], id="skip, all"),
        pytest.param(lambda d: d.repeat(2), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4], id="repeat"),
        pytest.param(lambda d: d.repeat().take(7), [0, 1, 2, 3, 4, 0, 1], id="repeat, for ever"),
        pytest.param(lambda d: d.repeat(0), [], id="repeat, never"),
        pytest.param(lambda d: d.take(0).repeat(), [], id="repeat nothing"),
        pytest.param(lambda d: d.enumerate(10).skip(4), [(14, 4)], id="enumerate"),
        pytest.param(lambda d: d.concatenate(d.take(1)), [0, 1, 2, 3, 4, 0], id="concatenate"),
        pytest.param(lambda d: d.shard(2, 1), [1, 3], id="shard"),
        pytest.param(lambda d: d.take_while(lambda x: x < 2), [0, 1], id="take_while"),
        pytest.param(lambda d: d.prefetch(tf.data.AUTOTUNE), [0, 1, 2, 3, 4], id="prefetch"),
        pytest.param(lambda d: d.apply(lambda e: e.take(1)), [0], id="apply"),
        pytest.param(lambda d: d.take(3).flat_map(lambda n: Dataset.range(int(n))), [0, 0, 1], id="flat_map"),
        pytest.param(lambda d: d.scan(np.int64(0), lambda s, x: (s + x, s + x)), [0, 1, 3, 6, 10], id="scan"),
    ],
)
def test_transformations(dataset: Any, expected: list[Any]) -> None:
    made = dataset(Dataset.range(5))
    assert values(made) == expected
    assert values(made) == expected, "it is made anew each time"
    if int(made.cardinality()) >= 0:
        assert len(made) == len(expected)


def test_interleave_takes_blocks_in_turns() -> None:
    numbers = Dataset.range(1, 6).interleave(
        lambda x: Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    )
    expected = [1] * 4 + [2] * 4 + [1] * 2 + [2] * 2 + [3] * 4 + [4] * 4 + [3] * 2 + [4] * 2 + [5] * 6
    assert values(numbers) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": 2}, [[0, 1], [2, 3], [4, 5], [6]]),
        ({"size": 2, "drop_remainder": True}, [[0, 1], [2, 3], [4, 5]]),
        ({"size": 3, "shift": 2}, [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6]]),
        ({"size": 3, "shift": 1, "drop_remainder": True}, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]),
        ({"size": 2, "shift": 3}, [[0, 1], [3, 4], [6]]),
        ({"size": 2, "shift": 1, "stride": 3, "drop_remainder": True}, [[0, 3], [1, 4], [2, 5], [3, 6]]),
    ],
    ids=str,
)
def test_windows(options: dict[str, Any], expected: list[Any]) -> None:
    windows = Dataset.range(7).window(**options)
    assert [values(window) for window in windows] == expected
    assert values(windows.flat_map(lambda window: window.batch(9))) == expected
    assert len(windows) == len(expected)


def test_windows_of_pairs_are_pairs_of_windows() -> None:
    pairs = Dataset.zip(Dataset.range(3), Dataset.range(5, 8)).window(2)
    assert [(values(a), values(b)) for a, b in pairs] == [([0, 1], [5, 6]), ([2], [7])]
    assert values(pairs.flat_map(lambda a, b: Dataset.zip(a, b).batch(2))) == [([0, 1], [5, 6]), ([2], [7])]
    assert isinstance(pairs.element_spec[0], tf.data.DatasetSpec)


def test_each_once() -> None:
    assert values(Dataset.from_tensor_slices([3, 1, 3, 2, 1]).unique()) == [3, 1, 2]


def test_counter() -> None:
    numbers = Dataset.counter(start=5, step=2)
    assert values(numbers.take(3)) == values(numbers.take(3)) == [5, 7, 9]
    assert values(Dataset.zip(Dataset.counter(), Dataset.range(4, 6))) == [(0, 4), (1, 5)]


def test_turns_of_several_datasets() -> None:
    zeros, ones = (Dataset.from_tensors(k).repeat(200) for k in (0, 1))
    drawn = values(Dataset.sample_from_datasets([zeros, ones], weights=[0.25, 0.75], seed=1).take(200))
    assert 110 < sum(drawn) < 190
    assert sum(values(Dataset.sample_from_datasets([zeros, ones], seed=1))) == 200, "each to its end"
    short = Dataset.sample_from_datasets([zeros, ones.take(2)], seed=1, stop_on_empty_dataset=True)
    assert len(values(short)) < 100
    with pytest.raises(ValueError, match="2 datasets and 1 weights"):
        Dataset.sample_from_datasets([zeros, ones], weights=[1.0])


def test_padded_batch() -> None:
    lists = Dataset.range(1, 4).map(lambda n: (tf.fill([int(n)], n), n))
    [(rows, numbers)] = values(lists.padded_batch(3))
    assert (rows, numbers) == ([[1, 0, 0], [2, 2, 0], [3, 3, 3]], [1, 2, 3])
    [(rows, _)] = values(lists.padded_batch(3, padded_shapes=([4], []), padding_values=(np.int64(-1), None)))
    assert rows[0] == [1, -1, -1, -1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="length 3"):
        values(lists.padded_batch(3, padded_shapes=([2], [])))
    assert lists.padded_batch(3).element_spec[0].shape.as_list() == [None, None]


def test_reduce() -> None:
    assert int(Dataset.range(5).reduce(np.int64(0), lambda total, x: total + x)) == 10
    total, count = Dataset.range(5).reduce((np.int64(0), 0), lambda state, x: (state[0] + x, state[1] + 1))
    assert (int(total), int(count)) == (10, 5)


def test_single_element() -> None:
    assert int(Dataset.range(1).get_single_element()) == 0
    for n in (0, 2):
        with pytest.raises(tf.errors.InvalidArgumentError):
            Dataset.range(n).get_single_element()


def test_functions_run_when_elements_are_asked_for() -> None:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return x

    iterator = iter(Dataset.range(5).map(note))
    assert seen == []
    next(iterator)
    assert seen == [0]


def test_cache_reads_once() -> None:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return x

    dataset = Dataset.range(3).map(note).cache()
    assert values(dataset.take(1)) == [0]
    seen.clear()  # what was not read to its end is not kept
    assert values(dataset) == values(dataset) == [0, 1, 2]
    assert seen == [0, 1, 2]


# -- shuffling


def test_shuffle_keeps_all_elements_and_changes_their_order() -> None:
    dataset = Dataset.range(50).shuffle(50, seed=1)
    first, second = values(dataset), values(dataset)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second, "each iteration is shuffled anew"
    assert first != list(range(50))
    assert len(dataset) == 50


def test_the_seed_decides() -> None:
    def run(seed: int | None = None) -> list[Any]:
        dataset = Dataset.range(50).shuffle(50, seed=seed)
        return [values(dataset), values(dataset)]

    tf.random.set_seed(3)
    by_global = run()
    other = run()
    tf.random.set_seed(3)
    assert run() == by_global != other
    assert run(7) == run(7) != run(8)


def test_shuffling_once() -> None:
    dataset = Dataset.range(50).shuffle(50, reshuffle_each_iteration=False)
    assert values(dataset) == values(dataset) != list(range(50))


def test_a_small_buffer_shuffles_locally() -> None:
    order = values(Dataset.range(100).shuffle(5, seed=0))
    assert sorted(order) == list(range(100))
    assert all(place - 100 < number < place + 5 for place, number in enumerate(order))
    assert values(Dataset.range(5).shuffle(1)) == list(range(5))


def test_shuffling_is_even() -> None:
    counts = np.zeros((4, 4))
    dataset = Dataset.range(4).shuffle(4, seed=5)
    for _ in range(400):
        counts[np.arange(4), values(dataset)] += 1
    assert counts.min() > 60


# -- what is known of a dataset


def test_element_specs() -> None:
    pairs = Dataset.from_tensor_slices((np.zeros((6, 2), np.float32), np.zeros(6, np.int32)))
    batches = pairs.batch(4)
    assert batches.element_spec == (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None,), tf.int32))
    assert pairs.batch(4, drop_remainder=True).element_spec[0] == tf.TensorSpec((4, 2), tf.float32)
    mapped = batches.map(lambda x, y: (tf.reshape(x, [-1, 2, 1]), tf.reduce_sum(x)))
    assert mapped.element_spec == (tf.TensorSpec((None, 2, 1), tf.float32), tf.TensorSpec((), tf.float32))
    assert batches.unbatch().element_spec == pairs.element_spec
    assert "TensorSpec" in repr(pairs)
    assert iter(pairs).element_spec == pairs.element_spec


def test_lengths_that_are_not_known() -> None:
    with pytest.raises(TypeError, match="infinite"):
        len(Dataset.range(3).repeat())
    with pytest.raises(TypeError, match="unknown"):
        len(Dataset.range(3).filter(lambda x: x > 0))
    assert int(Dataset.range(3).repeat().cardinality()) == tf.data.INFINITE_CARDINALITY
    assert int(Dataset.range(7).batch(2).cardinality()) == 4
    assert bool(Dataset.range(0)), "a dataset is true, as any object"


def test_an_iterator_goes_on_and_ends() -> None:
    iterator = iter(Dataset.range(2))
    assert int(iterator.get_next()) == 0
    assert [int(x) for x in iterator] == [1]
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()


def test_elements_are_constants() -> None:
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        [element] = Dataset.from_tensors(v)
        loss = tf.reduce_sum(element * v)
    assert tape.gradient(loss, v).numpy().tolist() == [1.0, 2.0], "only the read beside the dataset counts"


# -- mistakes


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        pytest.param(lambda: Dataset.from_tensor_slices(([1, 2, 3], [1, 2])), ValueError, "differ: 3, 2", id="lengths"),
        pytest.param(lambda: Dataset.from_tensor_slices(3.0), ValueError, "from_tensors", id="scalar"),
        pytest.param(lambda: Dataset.from_tensor_slices(()), ValueError, "first dimension", id="nothing"),
        pytest.param(lambda: Dataset.from_generator([1, 2]), TypeError, "callable", id="no generator"),
        pytest.param(lambda: Dataset.from_generator(lambda: [1]), TypeError, "output_signature", id="no signature"),
        pytest.param(lambda: Dataset.range(3).batch(0), ValueError, "batch_size must be at least 1", id="batch of 0"),
        pytest.param(lambda: Dataset.range(3).batch(2.0), TypeError, "must be an integer", id="batch of 2.0"),
        pytest.param(lambda: Dataset.range(3).shuffle(0), ValueError, "buffer_size", id="no buffer"),
        pytest.param(lambda: Dataset.range(3).map(3), TypeError, "map: a function is needed, got 3", id="no function"),
        pytest.param(lambda: Dataset.zip(Dataset.range(3), [1]), TypeError, "from_tensor_slices", id="no dataset"),
        pytest.param(lambda: Dataset.range(3).concatenate(3), TypeError, "tf.data.Dataset is needed", id="not another"),
        pytest.param(
            lambda: values(Dataset.range(2).concatenate(Dataset.range(2).map(lambda x: (x, x)))),
            TypeError,
            "different types",
            id="concatenate pairs",
        ),
        pytest.param(lambda: Dataset.range(3).window(0), ValueError, "size must be at least 1", id="window of 0"),
        pytest.param(lambda: values(Dataset.range(3).window(2).batch(2)), TypeError, "flat_map", id="batch of windows"),
        pytest.param(lambda: Dataset.range(3).snapshot("x", "LZ4"), tf.errors.InvalidArgumentError, "GZIP", id="LZ4"),
        pytest.param(lambda: Dataset.load("nowhere"), tf.errors.NotFoundError, "no dataset here", id="no folder"),
        pytest.param(lambda: values(Dataset.range(3).flat_map(lambda x: x)), TypeError, "map_func", id="no datasets"),
    ],
)
def test_mistakes(mistake: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake()


@pytest.mark.parametrize(
    ("element", "message"),
    [
        pytest.param(([1.0, 2.0, 3.0], 1), r"shape \(3,\) where an element of shape \(2,\)", id="shape"),
        pytest.param((["a", "b"], 1), "could not be converted to the expected type", id="type"),
        pytest.param(3.0, "expected structure", id="no pair"),
        pytest.param(([1.0, 2.0],), "expected structure", id="too few"),
    ],
)
def test_what_a_generator_yields_is_checked(element: Any, message: str) -> None:
    signature = tf.TensorSpec((2,), tf.float32), tf.TensorSpec((), tf.int32)
    with pytest.raises(TypeError, match=message):
        values(Dataset.from_generator(lambda: iter([element]), output_signature=signature))


def test_elements_of_different_shapes_make_no_batch() -> None:
    lists = Dataset.range(1, 3).map(lambda n: tf.fill([int(n)], 0))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"component 0.*\(1,\) and element 1.*\(2,\).*padded_batch"
    ):
        values(lists.batch(2))
