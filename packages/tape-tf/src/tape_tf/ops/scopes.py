"""tf.init_scope, tf.autograph and tf.types.experimental: names for code that tells TensorFlow how to trace it."""

from __future__ import annotations

import inspect
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tape_core.support import setting

from tape_tf.names import export, exported
from tape_tf.ops.function import INSIDE, ConcreteFunction, Function
from tape_tf.tracing import run_uncompiled
from tape_tf.typing import TensorLike

F = TypeVar("F", bound=Callable[..., Any])


@exported("init_scope", "the function around it is not compiled, since the block runs in each call")
@contextmanager
def init_scope() -> Iterator[None]:
    """Context: the block runs eagerly, also inside of a `tf.function`.

    >>> import tape_tf as tf
    >>> @tf.function
    ... def f():
    ...     with tf.init_scope():
    ...         return tf.executing_eagerly()
    >>> f().numpy()
    np.True_
    """
    run_uncompiled("what is in tf.init_scope")
    with setting(INSIDE, False):
        yield


# -- autograph: code runs as it is written, so there is nothing to convert


@exported("autograph.to_code", "the code is what was written: nothing is converted")
def to_code(entity: Any, recursive: bool = True, experimental_optional_features: object = None) -> str:
    """Return the source of a function, which runs as it is written."""
    function = entity.python_function if isinstance(entity, Function) else entity
    return textwrap.dedent(inspect.getsource(function))


@exported("autograph.to_graph", "nothing is converted")
def to_graph(entity: F, recursive: bool = True, experimental_optional_features: object = None) -> F:
    """Return the function itself, which runs as it is written."""
    return entity


@exported("autograph.experimental.do_not_convert")
def do_not_convert(func: Any = None) -> Any:
    """Decorator: return the function itself, since nothing is converted."""
    return (lambda f: f) if func is None else func


@exported("autograph.set_verbosity")
def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Do nothing: there are no conversions to tell of."""


@exported("autograph.experimental.set_loop_options")
def set_loop_options(**options: Any) -> None:
    """Do nothing: loops run as they are written."""


# -- types


@exported("types.experimental.TraceType")
class TraceType(ABC):
    """What a trace of a `tf.function` depends on in an argument: arguments with equal types share a trace.

    A class whose `__tf_tracing_type__(context)` returns one decides so about its instances, which are otherwise told
    apart by their own equality.

    >>> import tape_tf as tf
    >>> class Kind(tf.types.experimental.TraceType):
    ...     def is_subtype_of(self, other):
    ...         return isinstance(other, Kind)
    ...     def most_specific_common_supertype(self, others):
    ...         return self
    ...     def placeholder_value(self, placeholder_context=None):
    ...         return Fruit()
    ...     def __eq__(self, other):
    ...         return isinstance(other, Kind)
    ...     def __hash__(self):
    ...         return 0
    >>> class Fruit:
    ...     def __tf_tracing_type__(self, context):
    ...         return Kind()
    >>> f = tf.function(lambda fruit, x: 2 * x)
    >>> _ = f(Fruit(), tf.constant(1.0)), f(Fruit(), tf.constant(2.0))
    >>> f.experimental_get_tracing_count()
    1
    """

    @abstractmethod
    def is_subtype_of(self, other: TraceType) -> bool:
        """Return whether a trace for `other` can be used for this type."""

    @abstractmethod
    def most_specific_common_supertype(self, others: Sequence[TraceType]) -> TraceType | None:
        """Return a type for which a trace serves all of these; not used here."""

    @abstractmethod
    def placeholder_value(self, placeholder_context: Any = None) -> Any:
        """Return a value that stands for the argument in a trace; here the argument itself does."""

    @abstractmethod
    def __hash__(self) -> int: ...

    @abstractmethod
    def __eq__(self, other: object) -> bool: ...


@exported("types.experimental.SupportsTracingProtocol")
class SupportsTracingProtocol(ABC):
    """A base class for arguments that decide, by `__tf_tracing_type__`, which of them share a trace."""

    @abstractmethod
    def __tf_tracing_type__(self, context: Any) -> TraceType:
        """Return the type of the instance."""


@exported("types.experimental.TracingContext")
class TracingContext:
    """What `__tf_tracing_type__` is given; it has nothing to tell here."""


export("types.experimental.ConcreteFunction", ConcreteFunction)
for _name in ("GenericFunction", "PolymorphicFunction", "Callable"):
    export(f"types.experimental.{_name}", Function)
export("types.experimental.TensorLike", TensorLike)
