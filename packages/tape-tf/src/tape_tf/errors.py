"""tf.errors: what operations raise.

Each is also the built-in error that fits, since tape_core raises those: `except ValueError` catches an
InvalidArgumentError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tape_tf.names import absent

__all__ = [
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
        op, node_def: None: there is no graph.
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


@contextmanager
def in_tensorflow_terms(name: str) -> Iterator[None]:
    """Errors that tape_core raises about arguments, as those that TensorFlow raises."""
    try:
        yield
    except (ValueError, IndexError) as error:
        raise translated(error, name) from error


def translated(error: ValueError | IndexError, name: str) -> Exception:
    """An error of an operation that tape_core runs, as TensorFlow's."""
    if isinstance(error, OpError):
        return error
    return InvalidArgumentError(None, None, f"{error} [Op:{name}]")


__getattr__ = absent("errors")
