"""Datasets of strategies, and what functions that make datasets or values are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tape_tf.data.dataset import DataIterator, Dataset
from tape_tf.names import exported


@exported("distribute.InputReplicationMode")
class InputReplicationMode(Enum):
    """How many datasets a function makes."""

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


@exported("distribute.InputOptions", "there is one device: the options change nothing")
class InputOptions(NamedTuple):
    """How a dataset would be spread over devices."""

    experimental_fetch_to_device: bool | None = None
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1


@exported("distribute.InputContext")
@dataclass(frozen=True)
class InputContext:
    """What a function that makes a dataset is told: how many there are, and which of them it makes.

    Attributes:
        num_input_pipelines, input_pipeline_id: the number of datasets, and that of this one.
        num_replicas_in_sync: the number of replicas that share a batch.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return the number of examples of a replica.

        Raises:
            ValueError: the replicas do not divide the batch.
        """
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(
                f"The `global_batch_size` {global_batch_size!r} is not divisible by `num_replicas_in_sync` "
                f"{self.num_replicas_in_sync!r}"
            )
        return global_batch_size // self.num_replicas_in_sync

    def __str__(self) -> str:
        return (
            f"tf.distribute.InputContext(input pipeline id {self.input_pipeline_id}, total: {self.num_input_pipelines})"
        )


@exported("distribute.experimental.ValueContext")
@dataclass(frozen=True)
class ValueContext:
    """What a function that makes a value for a replica is told."""

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1


@exported("distribute.DistributedValues", "there is one replica: a value of it is the value itself")
class DistributedValues:
    """The values of several replicas. With one replica there is none of these."""

    def __init__(self) -> None:
        raise TypeError("tf.distribute.DistributedValues: there is one replica, whose value is a tensor")


@exported("distribute.DistributedIterator")
class DistributedIterator:
    """The iterator over a :class:`DistributedDataset`; each `next` gives one element, on the strategy's device."""

    def __init__(self, iterator: DataIterator, place: Callable[[], AbstractContextManager[Any]]) -> None:
        self._iterator, self._place = iterator, place

    @property
    def element_spec(self) -> Any:
        """The `element_spec` of the dataset."""
        return self._iterator.element_spec

    def __iter__(self) -> DistributedIterator:
        return self

    def __next__(self) -> Any:
        with self._place():
            return next(self._iterator)

    def get_next(self) -> Any:
        """Return the next element.

        Raises:
            tf.errors.OutOfRangeError: the dataset has ended.
        """
        with self._place():
            return self._iterator.get_next()


@exported("distribute.DistributedDataset")
class DistributedDataset:
    """A dataset whose elements a strategy gives to its replica. Iterating gives them, on the strategy's device."""

    def __init__(self, dataset: Dataset, place: Callable[[], AbstractContextManager[Any]]) -> None:
        self._dataset, self._place = dataset, place

    @property
    def element_spec(self) -> Any:
        """The TensorSpecs of an element."""
        return self._dataset.element_spec

    @property
    def cardinality(self) -> Any:
        """The number of elements, a NumPy integer; negative if it is not known."""
        return np.int64(self._dataset._cardinality)

    def __iter__(self) -> Iterator[Any]:
        return DistributedIterator(iter(self._dataset), self._place)

    def __getattr__(self, name: str) -> Any:
        hint = "; change the dataset before it is distributed" if hasattr(Dataset, name) else ""
        raise AttributeError(f"'DistributedDataset' object has no attribute {name!r}{hint}")


def as_dataset(made: object, what: str) -> Dataset:
    """Return a value that must be a dataset.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(made, Dataset):
        raise TypeError(f"{what} must be a tf.data.Dataset; got {type(made).__name__!r}")
    return made
