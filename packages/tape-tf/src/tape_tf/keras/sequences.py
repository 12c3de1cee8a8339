"""Sequences as data: padding, windows of time series, pairs of words, and `tf.keras.utils.PyDataset`."""

from __future__ import annotations

import random as stdlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf.conversion import native, wrap
from tape_tf.data import Dataset
from tape_tf.names import exported
from tape_tf.typing import TensorLike


@exported("keras.utils.pad_sequences keras.preprocessing.sequence.pad_sequences")
def pad_sequences(
    sequences: Sequence[Any],
    maxlen: int | None = None,
    dtype: Any = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: Any = 0.0,
) -> Any:
    """Return lists of different lengths as one NumPy array, filled up with `value` to the same length.

    >>> import tape_tf as tf
    >>> tf.keras.utils.pad_sequences([[1], [2, 3, 4]], padding="post")
    array([[1, 0, 0],
           [2, 3, 4]], dtype=int32)

    Args:
        sequences: lists or arrays; their steps may be arrays of one shape.
        maxlen: the length of all; by default that of the longest.
        dtype: of the result.
        padding: "pre" to fill up before the sequence, "post" after it.
        truncating: "pre" to drop the first steps of a sequence that is too long, "post" the last ones.
        value: what to fill up with; a string needs `dtype=object` or a dtype of strings.

    Raises:
        ValueError: a sequence has no length, its steps have another shape, or an option is unknown.
    """
    for name, option in (("padding", padding), ("truncating", truncating)):
        if option not in ("pre", "post"):
            raise ValueError(f"pad_sequences: {name} must be 'pre' or 'post'; got {option!r}")
    if not hasattr(sequences, "__len__"):
        raise ValueError(f"pad_sequences takes a list of sequences; got {type(sequences).__name__!r}")
    # `np.dtype(object)` first: of `dtype=object` and "object" alike, anything may be an element.
    wanted = np.dtype(dtype)
    if isinstance(value, str) and wanted.kind not in "OSUT":
        raise ValueError(f"pad_sequences: value {value!r} is text, and dtype {wanted} is not; use dtype=object")
    parts = []
    for k, sequence in enumerate(sequences):
        if not hasattr(sequence, "__len__"):
            raise ValueError(f"pad_sequences takes a list of sequences; number {k} is {sequence!r}")
        parts.append(np.asarray(sequence, dtype=wanted))
    longest = max([len(part) for part in parts], default=0) if maxlen is None else maxlen
    step = next((part.shape[1:] for part in parts if len(part)), ())
    found = np.full((len(parts), longest, *step), value, dtype=wanted)
    for k, part in enumerate(parts):
        if not len(part) or not longest:
            continue
        if part.shape[1:] != step:
            raise ValueError(
                f"pad_sequences: the steps of sequence {k} have shape {part.shape[1:]}, those of the first {step}"
            )
        kept = part[-longest:] if truncating == "pre" else part[:longest]
        found[k, slice(len(kept)) if padding == "post" else slice(longest - len(kept), None)] = kept
    return found


@exported("keras.preprocessing.sequence.make_sampling_table")
def make_sampling_table(size: int, sampling_factor: float = 1e-5) -> Any:
    """Return the probability to keep the word of each rank, for :func:`skipgrams`: frequent words are rare in pairs.

    Word frequencies are taken to follow Zipf's law. Source: Mikolov and others, 2013, as in Keras.
    """
    gamma = 0.577215664901532
    rank = np.arange(size, dtype=np.float64)
    rank[:1] = 1
    frequency = rank * (np.log(rank) + gamma) + 0.5 - 1.0 / (12.0 * rank)
    share = sampling_factor * frequency
    return np.minimum(1.0, share / np.sqrt(share))


@exported("keras.preprocessing.sequence.skipgrams", differs="other random numbers than TensorFlow's without a seed")
def skipgrams(
    sequence: Sequence[int],
    vocabulary_size: int,
    window_size: int = 4,
    negative_samples: float = 1.0,
    shuffle: bool = True,
    categorical: bool = False,
    sampling_table: Any = None,
    seed: int | None = None,
) -> tuple[list[list[int]], list[Any]]:
    """Return pairs of words that stand near each other in a sequence, and pairs drawn at random, with labels 1 and 0.

    Args:
        sequence: word numbers; 0 stands for no word, and is skipped.
        vocabulary_size: random words are from 1 to below this.
        window_size: pairs are at most so many steps apart.
        negative_samples: the number of random pairs for each pair of neighbours.
        shuffle: put the pairs into random order.
        categorical: labels are `[0, 1]` and `[1, 0]` instead of 1 and 0.
        sampling_table: the probability to keep each word, as from :func:`make_sampling_table`.
        seed: the seed of the order.
    """
    pairs: list[list[int]] = []
    labels: list[Any] = []
    for k, word in enumerate(sequence):
        if not word or (sampling_table is not None and sampling_table[word] < stdlib.random()):
            continue
        for other in range(max(0, k - window_size), min(len(sequence), k + window_size + 1)):
            if other != k and sequence[other]:
                pairs.append([word, sequence[other]])
                labels.append([0, 1] if categorical else 1)
    words = [first for first, _ in pairs]
    stdlib.shuffle(words)
    for k in range(int(len(labels) * negative_samples)):
        pairs.append([words[k % len(words)], stdlib.randint(1, vocabulary_size - 1)])
        labels.append([1, 0] if categorical else 0)
    if shuffle:
        seed = stdlib.randint(0, 10**6) if seed is None else seed
        # The same order for both.
        for part in (pairs, labels):
            stdlib.Random(seed).shuffle(part)
    return pairs, labels


@exported(
    "keras.utils.timeseries_dataset_from_array keras.preprocessing.timeseries_dataset_from_array",
    differs="shuffles all windows anew in each epoch",
)
def timeseries_dataset_from_array(
    data: TensorLike,
    targets: TensorLike | None,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
) -> Dataset:
    """Return a dataset of windows of a time series, with a target for each.

    >>> import numpy as np
    >>> import tape_tf as tf
    >>> windows = tf.keras.utils.timeseries_dataset_from_array(np.arange(5), None, sequence_length=3)
    >>> next(iter(windows)).numpy()
    array([[0, 1, 2],
           [1, 2, 3],
           [2, 3, 4]])

    Args:
        data: the steps of the series along the first axis.
        targets: the target of the window that begins at each step; None for windows alone.
        sequence_length: the number of steps in a window.
        sequence_stride: the number of steps from the beginning of a window to that of the next.
        sampling_rate: the number of steps from one step of a window to the next.
        batch_size: the number of windows in a batch; None for single windows.
        shuffle: put the windows into another order in each epoch.
        seed: the seed of the order.
        start_index, end_index: use the steps from this one on, and up to that one, only.

    Raises:
        ValueError: a number is less than 1, or there are not steps enough for a window.
    """
    for name, value in (
        ("sequence_length", sequence_length),
        ("sequence_stride", sequence_stride),
        ("sampling_rate", sampling_rate),
    ):
        if value < 1:
            raise ValueError(f"timeseries_dataset_from_array: {name} must be at least 1; got {value}")
    steps = native(data)[start_index:end_index]
    count = steps.shape[0] - (sequence_length - 1) * sampling_rate
    goals = None
    if targets is not None:
        goals = native(targets)[start_index:]
        count = min(count, goals.shape[0])
    if count < 1:
        raise ValueError(
            f"timeseries_dataset_from_array: windows of {sequence_length} steps at a rate of {sampling_rate} do not "
            f"fit into {steps.shape[0]} steps"
        )
    starts = np.arange(0, count, sequence_stride)
    # The dataset holds the beginnings alone: each batch reads its windows from the series.
    offsets = tc.asarray(np.arange(sequence_length) * sampling_rate, backend=steps.backend.root, device=steps.device)

    def rows(value: tc.Tensor, places: tc.Tensor) -> Any:
        found = tc.take(value, tc.reshape(places, (-1,)), axis=0)
        return wrap(tc.reshape(found, (*places.shape, *value.shape[1:])))

    def windows(start: Any) -> Any:
        first = native(start)
        read = rows(steps, tc.expand_dims(first, axis=-1) + offsets)
        return read if goals is None else (read, rows(goals, first))

    dataset = Dataset.from_tensor_slices(starts)
    if shuffle:
        dataset = dataset.shuffle(len(starts), seed=seed)
    if batch_size is not None:
        dataset = dataset.batch(batch_size)
    return dataset.map(windows)


@exported("keras.utils.PyDataset keras.utils.Sequence", differs="batches are read one after the other, in their order")
class PyDataset:
    """Base class of data that give batches by number: a new one defines `__len__` and `__getitem__`.

    >>> import numpy as np
    >>> import tape_tf as tf
    >>> class Squares(tf.keras.utils.PyDataset):
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, k):
    ...         x = np.arange(4.0)[:, None] + 4 * k
    ...         return x, x**2
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> len(model.fit(Squares(), verbose=0).history["loss"])
    1

    Args:
        workers, use_multiprocessing, max_queue_size: no effect.
    """

    def __init__(self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10) -> None:
        self.workers, self.use_multiprocessing, self.max_queue_size = workers, use_multiprocessing, max_queue_size

    def __len__(self) -> int:
        """Return the number of batches."""
        raise NotImplementedError(f"{type(self).__name__} must define __len__, the number of batches")

    def __getitem__(self, index: int) -> Any:
        """Return the batch of a number, `(x, y)` or `(x, y, sample_weight)`."""
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__, a batch by its number")

    @property
    def num_batches(self) -> int:
        """The number of batches."""
        return len(self)

    def on_epoch_begin(self) -> None:
        """Called before the first batch of an epoch."""

    def on_epoch_end(self) -> None:
        """Called after the last batch of an epoch."""

    def __iter__(self) -> Iterator[Any]:
        self.on_epoch_begin()
        for k in range(len(self)):
            yield self[k]
        self.on_epoch_end()
