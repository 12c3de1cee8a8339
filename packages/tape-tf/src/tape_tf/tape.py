"""GradientTape, ForwardAccumulator, custom gradients: those of tape_core, of the façade's values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from functools import wraps
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import tape_core as tc
from tape_core.base import pytree
from tape_core.base.contexts import Leaving
from tape_core.engine.tape import WatchError

from tape_tf import dtypes, logger
from tape_tf.conversion import matched, native, unwrap, wrap
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.tensor import IndexedSlices, Tensor, Value, wrap_tensor
from tape_tf.variable import Variable


def _warn(what: str, method: str, dtype: tc.DType) -> None:
    """Log that there is no gradient of a dtype."""
    when = "" if method == "watch" else f" when calling GradientTape.{method}"
    logger.warning(
        "The dtype of the %s tensor must be floating (e.g. tf.float32)%s, got %r", what, when, dtypes.of(dtype)
    )


class _Tape(tc.GradientTape):
    """The tape beneath: it warns of dtypes as TensorFlow does."""

    __slots__ = ()

    def _warn_of_dtype(self, method: str, tensor: tc.Tensor) -> None:
        if method == "watch":
            _warn("watched", method, tensor.dtype)


@exported("UnconnectedGradients")
class UnconnectedGradients(Enum):
    """What the gradient of something unconnected is: NONE, or ZERO."""

    NONE = "none"
    ZERO = "zero"


def _unconnected(given: Any) -> str:
    if isinstance(given, UnconnectedGradients):
        return str(given.value)
    if given not in ("none", "zero", "error"):
        raise ValueError(f"Unknown value for unconnected_gradients: {given!r}; use 'none', 'zero' or 'error'")
    return str(given)


def _natives(tree: Any, method: str, argument: str) -> Any:
    """A structure of tensors and Variables, as those of tape_core.

    Raises:
        TypeError: a leaf is something else.
    """
    if isinstance(tree, Tensor | Variable):
        return tree.native
    leaves, structure = pytree.flatten(tree)
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Value):
            leaves[k] = leaf.native
        elif isinstance(leaf, IndexedSlices):
            leaves[k] = leaf.native if argument == "sources" else leaf.densify()
        elif not isinstance(leaf, tc.Tensor | tc.IndexedSlices):
            hint = (
                "; was it the gradient of something unconnected?" if leaf is None else "; use tf.constant to make one"
            )
            raise TypeError(
                f"GradientTape.{method}: {argument}{pytree.path(structure, k)} must be a tf.Tensor or tf.Variable, got "
                f"{leaf!r} of type {type(leaf).__name__!r}{hint}, before the computation"
            )
    return pytree.unflatten(structure, leaves)


class _Block:
    """What leaves the block of a native tape or accumulator, also where Ctrl-C comes."""

    __slots__ = ()

    native: Any
    _guard: Any

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.native.__exit__(kind, error, trace)
        self._guard = None

    def _abandon(self) -> None:
        self.native._abandon()

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:
        __exit__ = Leaving(_leave, _abandon, attrgetter("native._open"))


@exported("GradientTape autodiff.GradientTape")
class GradientTape(_Block):
    """Records the operations on watched values, to differentiate them.

    >>> import tape_tf as tf
    >>> x = tf.constant(3.0)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x * x
    >>> print(tape.gradient(y, x))
    tf.Tensor(6.0, shape=(), dtype=float32)

    Args:
        persistent: keep the records after the first gradient.
        watch_accessed_variables: watch trainable Variables when they are read; with False only what is named.

    Attributes:
        native: the GradientTape of tape_core, which can also explain what it recorded.
    """

    __slots__ = ("__weakref__", "_guard", "native")

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._guard: Any = None
        self.native: tc.GradientTape = _Tape(persistent, watch_accessed_variables)

    def __enter__(self) -> GradientTape:
        self.native.__enter__()
        return self

    def watch(self, tensor: Any) -> None:
        """Record what is computed from a tensor, a Variable, or each leaf of a nested structure, from now on.

        Of IndexedSlices it is the values that are watched.

        Raises:
            ValueError: a leaf is something else. (A TypeError too.)
        """
        leaves, _ = pytree.flatten(tensor)
        for leaf in leaves:
            if not isinstance(leaf, Value | IndexedSlices | tc.Tensor | tc.IndexedSlices):
                raise WatchError(
                    f"Passed in object {leaf} of type {type(leaf).__name__!r}, not tf.Tensor or tf.Variable or "
                    f"ExtensionType."
                )
        self.native.watch([leaf.native if isinstance(leaf, Value | IndexedSlices) else leaf for leaf in leaves])

    def stop_recording(self) -> AbstractContextManager[None]:
        """Record nothing inside the block: `with tape.stop_recording(): ...`."""
        return self.native.stop_recording()

    def reset(self) -> None:
        """Forget the records, the watches and the variables, and go on recording.

        Raises:
            ValueError: the tape is not recording.
        """
        self.native.reset()

    def watched_variables(self) -> tuple[Variable, ...]:
        """The Variables watched so far, in the order of their construction."""
        return tuple([Variable.of(variable) for variable in self.native.watched_variables()])

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
    ) -> Any:
        """The gradient of the sum of `target` with respect to each of `sources`.

        Args:
            target: a tensor or Variable, or a nested structure of them, whose elements are all added up.
            sources: likewise: what to differentiate with respect to.
            output_gradients: weights of the targets, of their shapes; ones by default.
            unconnected_gradients: for a source that the target does not depend on: None (`NONE`) or zeros (`ZERO`).

        Returns:
            The structure of `sources`: at each leaf a tensor of its shape and dtype, IndexedSlices or None.

        Raises:
            RuntimeError: a second call on a tape that is not persistent.
            TypeError: a leaf is no tensor.
            ValueError: `output_gradients` do not fit.
        """
        how = _unconnected(unconnected_gradients)
        if target is None:
            raise TypeError("Argument `target` should be a list or nested structure of Tensors, got None.")
        targets = _natives(target, "gradient", "target")
        wanted = _natives(sources, "gradient", "sources")
        weights = None if output_gradients is None else _weights(output_gradients, targets)
        found = self.native.gradient(targets, wanted, weights, how)
        _warn_of_dtypes(targets, wanted)
        return wrap(found)

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """The derivative of each element of `target` with respect to each of `sources`: `target.shape + source.shape`.

        Args:
            parallel_iterations: at most so many elements of the target at once.
            experimental_use_pfor: with False, one element after the other.
        """
        return wrap(
            self.native.jacobian(
                _natives(target, "jacobian", "target"),
                _natives(sources, "jacobian", "sources"),
                _unconnected(unconnected_gradients),
                parallel_iterations,
                experimental_use_pfor,
            )
        )

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """The Jacobian of each example, where row k of `target` depends on row k of `source` only.

        Raises:
            ValueError: the numbers of examples differ, or there is no dimension beside them.
        """
        return wrap(
            self.native.batch_jacobian(
                _natives(target, "batch_jacobian", "target"),
                _natives(source, "batch_jacobian", "source"),
                _unconnected(unconnected_gradients),
                parallel_iterations,
                experimental_use_pfor,
            )
        )


def _weights(output_gradients: Any, targets: Any) -> Any:
    """Output gradients, arrays among them where the targets are."""
    leaves, structure = pytree.flatten(output_gradients)
    like = next(iter(pytree.flatten(targets)[0]), None)
    return pytree.unflatten(
        structure, [native(leaf, like=like) if isinstance(leaf, np.ndarray) else unwrap(leaf) for leaf in leaves]
    )


def _warn_of_dtypes(targets: Any, sources: Any) -> None:
    for what, tree in (("target", targets), ("source", sources)):
        for leaf in pytree.flatten(tree)[0]:
            if not leaf.dtype.inexact:
                _warn(what, "gradient", leaf.dtype)


@exported("autodiff.ForwardAccumulator")
class ForwardAccumulator(_Block):
    """Computes Jacobian-vector products in forward mode: the derivative in one direction.

    >>> import tape_tf as tf
    >>> x = tf.constant([2.0, 3.0])
    >>> with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 0.0])) as acc:
    ...     y = tf.reduce_sum(x * x)
    >>> print(acc.jvp(y))
    tf.Tensor(4.0, shape=(), dtype=float32)

    Args:
        primals: a tensor or Variable, or a nested structure of them.
        tangents: the same structure: the direction.

    Raises:
        ValueError: the structures or shapes differ, or a primal is given twice.
    """

    __slots__ = ("__weakref__", "_guard", "native")

    def __init__(self, primals: Any, tangents: Any) -> None:
        given = _natives(primals, "ForwardAccumulator", "primals")
        leaves = pytree.flatten(given)[0]
        directions, structure = pytree.flatten(tangents)
        if isinstance(given, tc.Tensor) and not isinstance(tangents, Value | tc.Tensor):
            directions, structure = [native(tangents)], None
        converted = [unwrap(d) for d in directions]
        for primal, tangent in zip(leaves, converted, strict=False):
            if isinstance(tangent, tc.Tensor) and tangent.dtype is not primal.dtype:
                matched([wrap_tensor(primal), wrap_tensor(tangent)], "ForwardAccumulator")
        self._guard: Any = None
        self.native = tc.ForwardAccumulator(given, pytree.unflatten(structure, converted))

    def __enter__(self) -> ForwardAccumulator:
        self.native.__enter__()
        return self

    def jvp(self, primals: Any, unconnected_gradients: Any = UnconnectedGradients.NONE) -> Any:
        """The tangent of each of `primals`, in their structure."""
        found = self.native.jvp(_natives(primals, "jvp", "primals"), _unconnected(unconnected_gradients))
        return wrap(found)


@exported("custom_gradient")
def custom_gradient(f: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Decorator: a function with the gradient that it says itself: `f(*args)` returns `(result, grad)`.

    >>> import tape_tf as tf
    >>> @tf.custom_gradient
    ... def clipped(x):
    ...     return tf.identity(x), lambda upstream: tf.clip_by_norm(upstream, 0.5)
    >>> v = tf.Variable(2.0)
    >>> with tf.GradientTape() as tape:
    ...     y = clipped(v * v)
    >>> print(tape.gradient(y, v))
    tf.Tensor(2.0, shape=(), dtype=float32)

    `grad(*upstream)` gets one gradient for each tensor of the result and returns one for each positional argument.
    Where `f` reads Variables that are not among them, `grad` takes `variables=None` too, and returns the gradients of
    the arguments and a list with one for each variable.

    Raises:
        TypeError: in the call: `f` reads Variables, and `grad` does not take `variables`; its result is no pair.
        ValueError: in the backward pass: `grad` returned another number of gradients.
    """
    if f is None:
        return custom_gradient
    if not callable(f):
        raise TypeError(f"tf.custom_gradient: {f!r} is not callable")

    @wraps(f)
    def beneath(*args: Any, **kwargs: Any) -> Any:
        pair = f(*wrap(args), **kwargs)
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            return pair
        result, grad = pair

        @wraps(grad)
        def pulled(*upstream: Any, variables: Any = None) -> Any:
            given = wrap(upstream)
            if variables is None:
                return unwrap(grad(*given))
            return unwrap(grad(*given, variables=wrap(list(variables))))

        pulled.takes_slices = True  # type: ignore[attr-defined]
        return _results(result), pulled

    return _on_natives(tc.custom_gradient(beneath), f)


def _results(result: Any) -> Any:
    """What a function returned, as Tensors of tape_core: arrays and numbers too."""
    leaves, structure = pytree.flatten(result)
    return pytree.unflatten(structure, [leaf if leaf is None else native(leaf) for leaf in leaves])


def _on_natives(function: Callable[..., Any], f: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrap(function(*unwrap(args), **kwargs))

    return call


@exported("recompute_grad")
def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that keeps its arguments only: what it computes is computed again in the backward pass.

    >>> import tape_tf as tf
    >>> x = tf.Variable(1.0)
    >>> with tf.GradientTape() as tape:
    ...     y = tf.recompute_grad(lambda x: tf.sin(x) ** 2)(x)
    >>> f"{tape.gradient(y, x):.4f}"
    '0.9093'
    """

    @wraps(f)
    def beneath(*args: Any, **kwargs: Any) -> Any:
        return _results(f(*wrap(args), **kwargs))

    return _on_natives(tc.checkpoint(beneath), f)


@exported("grad_pass_through")
def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, with the gradient of the identity: for what has none, such as rounding.

    >>> import tape_tf as tf
    >>> x = tf.Variable(1.4)
    >>> with tf.GradientTape() as tape:
    ...     y = tf.grad_pass_through(tf.round)(x) * 3.0
    >>> print(tape.gradient(y, x))
    tf.Tensor(3.0, shape=(), dtype=float32)
    """

    @custom_gradient
    def through(*args: Any, **kwargs: Any) -> Any:
        def grad(*upstream: Any, variables: Any = None) -> Any:
            by_argument = upstream if len(upstream) > 1 else upstream[0]
            return (by_argument, [None] * len(variables)) if variables is not None else by_argument

        return f(*args, **kwargs), grad

    return wraps(f)(through)


@op("stop_gradient", "", kernel="StopGradient")
def stop_gradient(input: Any) -> Any:
    """The value as a constant: no gradient comes back from it. A Variable is not watched by this."""
    value = unwrap(input)
    return tc.stop_gradient(value if isinstance(value, tc.Tensor) else native(value))
