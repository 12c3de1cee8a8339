"""The base class of datasets, and the numbers of elements that are no numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tape_tf.data import Dataset

AUTOTUNE = -1  # accepted wherever TensorFlow tunes a number of threads or a buffer; there is nothing to tune here
INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2

MakeIterator = Callable[[], Iterator[Any]]
"""A function that starts an iteration over the elements, as structures of NumPy arrays."""

SpecSource: TypeAlias = Any
"""The `element_spec` of a dataset, a function that computes it, or None: then the first element tells."""


class Source:
    """What the methods that derive a dataset from another need of it.

    It is `_make`, which starts an iteration, and `_cardinality`, the number of elements or a negative code.
    """

    _make: MakeIterator
    _cardinality: int
    _declared: Any  # the spec that the dataset was made with; None where an element has to be looked at

    if TYPE_CHECKING:

        def __init__(self, make: MakeIterator, cardinality: int, spec: SpecSource = None) -> None: ...

        def __iter__(self) -> Iterator[Any]: ...

        @property
        def element_spec(self) -> Any: ...

        range: Callable[..., Dataset]
        zip: Callable[..., Dataset]

    def _with_same_spec(self, make: MakeIterator, cardinality: int | None = None) -> Dataset:
        """Return a dataset whose elements have the same spec as those of this one."""
        spec = (lambda: self.element_spec) if self._declared is None else self._declared
        return self._new(make, self._cardinality if cardinality is None else cardinality, spec)

    def _new(self, make: MakeIterator, cardinality: int, spec: SpecSource = None) -> Dataset:
        return type(self)(make, cardinality, spec)  # type: ignore[return-value]


def as_dataset(value: object, where: str) -> Dataset:
    """Return the value; raise a TypeError unless it is a dataset."""
    if not isinstance(value, Source):
        raise TypeError(
            f"{where}: a tf.data.Dataset is needed, got {value!r}; tf.data.Dataset.from_tensor_slices makes one"
        )
    return value  # type: ignore[return-value]
