"""tf.errors: the errors that operations raise.

Each also derives from the built-in error that tape_core raises in the same case: `except ValueError` catches an
InvalidArgumentError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tape_tf.names import absent

__all__ = [
    "DataLossError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OpError",
    "OutOfRangeError",
    "ResourceExhaustedError",
    "UnimplementedError",
]


class OpError(Exception):
    """An operation failed.

    Attributes:
        message: what was wrong.
        op, node_def: always None here: there is no graph.
    """

    def __init__(self, node_def: object = None, op: object = None, message: str = "", *args: Any) -> None:
        super().__init__(message)
        self.node_def = node_def
        self.op = op
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Any:
        return type(self), (self.node_def, self.op, self.message)


class InvalidArgumentError(OpError, ValueError):
    """An argument does not fit: a shape, a dtype, a value."""


class OutOfRangeError(OpError, IndexError):
    """An index, or an iteration, went past the end."""


class DataLossError(OpError, ValueError):
    """A file is damaged."""


class NotFoundError(OpError, LookupError):
    """Something that was asked for is not there."""


class UnimplementedError(OpError, TypeError):
    """An operation cannot be done for these dtypes."""


class FailedPreconditionError(OpError, RuntimeError):
    """Something was not ready for the operation."""


class InternalError(OpError, RuntimeError):
    """Something went wrong inside."""


class ResourceExhaustedError(OpError, MemoryError):
    """Memory ran out."""


class RaggedGivenError(TypeError):
    """A ragged tensor was given to an operation that takes none."""

    def __init__(self) -> None:
        super().__init__("this operation takes no ragged tensors: use to_tensor(), which pads the rows to one length")


class StringsGivenError(InvalidArgumentError, TypeError):
    """A tensor of strings was given to an operation on numbers.

    Args:
        op: the name of the operation.
    """

    def __init__(self, op: str, *args: Any) -> None:
        super().__init__(
            None,
            None,
            f"a tensor of strings was given to {op}, which takes numbers: strings are data on the host. tf.strings has "
            "functions of strings, tf.strings.to_number makes numbers of them, and tf.keras.layers.StringLookup "
            "and TextVectorization integers",
        )
        self._op = op

    def __reduce__(self) -> Any:
        return type(self), (self._op,)


@contextmanager
def in_tensorflow_terms(name: str) -> Iterator[None]:
    """Context: raise the ValueErrors and IndexErrors of the block as InvalidArgumentErrors of operation `name`."""
    try:
        yield
    except (ValueError, IndexError) as error:
        raise translated(error, name) from error


def translated(error: ValueError | IndexError, name: str) -> Exception:
    """Return an error of tape_core as the InvalidArgumentError of operation `name`; an OpError is returned as it is."""
    if isinstance(error, OpError):
        return error
    return InvalidArgumentError(None, None, f"{error} [Op:{name}]")


__getattr__ = absent("errors")
