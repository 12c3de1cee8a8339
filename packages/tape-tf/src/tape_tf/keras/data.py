"""Data for `fit`, `evaluate` and `predict`: arrays or iterables in the form that `tape_nn.fit` accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import tape_core as tc
from tape_core.support import warn_user
from tape_nn.extend import Arrays

from tape_tf.conversion import unwrap
from tape_tf.data import Dataset
from tape_tf.keras.backend import floatx
from tape_tf.keras.conversion import autocast
from tape_tf.keras.structures import is_array, leaves, map_structure
from tape_tf.string_tensor import StringTensor, as_strings, is_column, is_text
from tape_tf.tensor import Value
from tape_tf.typing import PyTree

if TYPE_CHECKING:
    from tape_tf.keras.training import Trainer

_STARTS_OVER = "the epoch ends there, and the next begins at the first batch"
"""The end of a warning about arrays or a dataset with fewer batches than `steps_per_epoch`."""

DEFAULT_BATCH_SIZE = 32  # examples; Keras' default


def unpack_x_y_sample_weight(data: PyTree) -> tuple[Any, Any, Any]:
    """Split a batch into `x`, `y` and the weights of the examples; None for a part that is missing.

    >>> from tape_tf.keras.data import unpack_x_y_sample_weight
    >>> unpack_x_y_sample_weight((1, 2))
    (1, 2, None)

    Raises:
        ValueError: the batch has more than three parts.
    """
    parts = tuple(data) if isinstance(data, tuple | list) else (data,)
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            "Data is expected to be in format `x`, `(x,)`, `(x, y)`, or `(x, y, sample_weight)`; got "
            f"{len(parts)} parts"
        )
    x, y, weights = (*parts, None, None)[:3]
    return x, y, weights


def pack_x_y_sample_weight(x: PyTree, y: PyTree = None, sample_weight: PyTree = None) -> Any:
    """Return a batch of the parts that are given, in the form that :func:`unpack_x_y_sample_weight` takes."""
    if y is None:
        return (x,) if isinstance(x, list | tuple) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


class HostStrings:
    """A tensor of strings on its way through tape_nn, which sees a structure without arrays, and leaves it alone."""

    def __init__(self, strings: StringTensor) -> None:
        self.strings = strings

    @staticmethod
    def around(leaf: Any) -> Any:
        """Return a tensor of strings inside of such a structure; anything else as it is."""
        return HostStrings(leaf) if isinstance(leaf, StringTensor) else leaf

    @staticmethod
    def content(leaf: Any) -> Any:
        """Return the inverse of :meth:`around`."""
        return leaf.strings if isinstance(leaf, HostStrings) else leaf


tc.register_pytree(HostStrings, lambda node: ((), node), lambda node, children: node)


class Batches:
    """Batches that an iterable yields.

    Attributes:
        length: the number of batches of an epoch, None if it is not known.
        batch_size: None tells tape_nn that the data come in batches already.
    """

    batch_size: int | None = None

    def __init__(self, data: Iterable[PyTree], steps: int | None) -> None:
        self._data, self._steps = data, steps
        self._iterator: Iterator[Any] | None = None  # the open iterator: with `steps`, one may last several epochs
        self.length: int | None = steps
        if steps is None:
            try:
                self.length = len(data)  # type: ignore[arg-type]
            except TypeError:
                self.length = None

    def epochs(self, model: Trainer, shuffle: bool) -> Callable[[int], Iterator[Any]]:
        """Return a function from the number of an epoch to its batches."""

        def epoch(number: int) -> Iterator[Any]:
            done = 0
            for batch in self._epoch_batches():
                yield batch
                done += 1
            if self._steps is not None and done < self._steps:
                if isinstance(self._data, Iterator):  # such as a generator: it cannot be started again
                    model.stop_training = True
                    _warn_short_epoch(done, self._steps, "interrupting training: an iterator cannot start over")
                else:
                    self._iterator = None
                    _warn_short_epoch(done, self._steps, f"{_STARTS_OVER}; use repeat() to have it go on")

        return epoch

    def iterate(self) -> Iterator[Any]:
        """Return an iterator over the batches of one evaluation, from the first batch."""
        self._iterator = None
        return self._epoch_batches()

    def as_one_batch(self) -> Any:
        """Return all examples as one batch; only arrays can do that."""
        raise ValueError("one batch must be given as arrays or tensors")

    def _epoch_batches(self) -> Iterator[Any]:
        """Iterate over the batches of one epoch: all of them, or the next `steps`, starting over at the end."""
        if self._steps is None:
            batches = iter(self._data)
        else:
            # Take one batch to see whether the iterator of the epoch before has ended: then start over, unless the data
            # themselves are an iterator, which cannot.
            first = list(islice(self._iterator or (), 1))
            if not first and not (self._iterator and isinstance(self._data, Iterator)):
                self._iterator = iter(self._data)
            batches = islice(chain(first, self._iterator or ()), self._steps)
        return (
            map_structure(HostStrings.around, batch_to_native(tuple(batch) if isinstance(batch, list) else batch))
            for batch in batches
        )


def _warn_short_epoch(done: int, steps: int, then: str) -> None:
    warn_user(f"Your input ran out of data after {done} of {steps} batches; {then}")


class ArrayBatches(Batches):
    """Batches cut from arrays by tape_nn.

    Without `steps` tape_nn gets the arrays themselves and does everything; with `steps` an epoch is a part of a pass
    through the arrays, which tape_nn does not know.
    """

    def __init__(self, data: tuple[Any, ...], batch_size: int | None, steps: int | None) -> None:
        self._parts = data
        self._steps = steps
        self._size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        self._arrays = Arrays(data, self._size, None, {}, "data")
        self.batch_size = self._size if steps is None else None
        self.length = self._arrays.length if steps is None else steps

    def epochs(self, model: Trainer, shuffle: bool) -> Any:
        if self._steps is None:
            return self._parts
        # One seed for the whole run: tape_nn draws the order of a pass from the seed and the number of the pass.
        seed = int(tc.random.global_rng().integers(0, 2**31)) if shuffle else None
        arrays = Arrays(self._parts, self._size, seed, {}, "data")
        pass_length, steps = -(-arrays.examples // self._size), self._steps

        def epoch(number: int) -> Iterator[Any]:
            # An epoch continues where the one before ended, until the arrays are used up: `turn` passes are complete,
            # and this epoch is number `part` of the current one. The last epoch of a pass may have fewer batches.
            turn, part = divmod(number, -(-pass_length // steps))
            first = part * steps
            if first + steps > pass_length:
                _warn_short_epoch(pass_length - first, steps, _STARTS_OVER)
            return islice(arrays.batches(turn, skip=first), steps)

        return epoch

    def iterate(self) -> Iterator[Any]:
        return islice(self._arrays.batches(0), self._steps)

    def as_one_batch(self) -> Any:
        return self._parts


class TextBatches(Batches):
    """Batches cut from arrays of which some are text, which tape_nn does not have."""

    def __init__(self, x: PyTree, y: PyTree, sample_weight: PyTree, batch_size: int | None, steps: int | None) -> None:
        parts = [_as_tuples(part) for part in (x, y, sample_weight)]
        while parts[-1] is None:
            parts.pop()
        self._examples = Dataset.from_tensor_slices(tuple(parts) if len(parts) > 1 else (parts[0],))
        self._size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        super().__init__(self._examples.batch(self._size), steps)

    def epochs(self, model: Trainer, shuffle: bool) -> Callable[[int], Iterator[Any]]:
        if shuffle:
            self._data = self._examples.shuffle(len(self._examples)).batch(self._size)
        return super().epochs(model, shuffle)

    def as_one_batch(self) -> Any:
        return batch_to_native(next(iter(self._examples.batch(len(self._examples)))))


def _as_tuples(part: PyTree) -> Any:
    """Return several inputs in a tuple, which datasets take for a structure, and a list of texts as one array."""
    if isinstance(part, list | tuple) and all(getattr(value, "ndim", 0) for value in part):
        return tuple(part)
    return part


def _is_text(leaf: object) -> bool:
    return isinstance(leaf, str | bytes) or (isinstance(leaf, Value | np.ndarray) and is_text(leaf))


def make_batches(x: PyTree, y: PyTree, sample_weight: PyTree, batch_size: int | None, steps: int | None) -> Batches:
    """Return the batches of `x`, `y` and `sample_weight`, which are as for :meth:`Model.fit`.

    Raises:
        ValueError: the arguments do not fit together, or arrays differ in length.
    """
    if x is None:
        raise ValueError("x is missing: arrays, or batches")
    # As in Keras, a column of a table is an input of one feature, and the column of labels alike.
    x, y = map_structure(_as_column, [x, y])
    if _is_arrays(x) and any(map(_is_text, leaves((x, y)))):
        return TextBatches(x, y, sample_weight, batch_size, steps)
    if _is_arrays(x):
        parts = [_to_native(part) for part in (x, y, sample_weight)]
        # A batch of tape_nn has no None at its end: `(x,)` or `(x, y)`.
        while parts[-1] is None:
            parts.pop()
        if sample_weight is not None and y is None:
            raise ValueError("sample_weight needs y")
        return ArrayBatches(tuple(parts), batch_size, steps)
    if not hasattr(x, "__iter__"):
        raise ValueError(
            f"x must be arrays, or an iterable of batches such as a tf.data.Dataset; got {type(x).__name__!r}"
        )
    for name, value in (("y", y), ("sample_weight", sample_weight), ("batch_size", batch_size)):
        if value is not None:
            raise ValueError(
                f"{name} must not be given when x is a {type(x).__name__}: its batches are (x, y) or "
                "(x, y, sample_weight)"
            )
    return Batches(x, steps)


def _as_column(leaf: Any) -> Any:
    return leaf.to_numpy()[:, np.newaxis] if is_column(leaf) else leaf


def _is_arrays(x: object) -> bool:
    """True for arrays, in structures; False for an iterable of batches."""
    # A dict holds arrays by the names of inputs; batches never come in one.
    if isinstance(x, dict):
        return True
    if isinstance(x, list | tuple):  # several arrays, or one array written out; batches would be tuples
        return not any(isinstance(part, tuple) for part in x)
    return is_array(x) or hasattr(x, "__array__")


def _to_native(part: PyTree) -> Any:
    """Convert arrays in structures to tape_core Tensors, floating ones in Keras' float type."""
    if part is None:
        return None
    if isinstance(part, dict):
        return {key: _to_native(value) for key, value in part.items()}
    if isinstance(part, list | tuple) and all(getattr(value, "ndim", 0) for value in part):
        return tuple([_to_native(value) for value in part])  # several inputs; numbers written out have no ndim
    return autocast(part.native if isinstance(part, Value) else part, floatx())


def batch_to_native(batch: PyTree) -> Any:
    """Convert a batch to tape_core Tensors, floating ones in Keras' float type."""
    return unwrap(map_structure(_leaf_to_native, batch))


def _leaf_to_native(leaf: Any) -> Any:
    if leaf is None:
        return None
    return as_strings(leaf) if _is_text(leaf) else autocast(leaf, floatx())
