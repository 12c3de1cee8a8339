"""GradientTape, ForwardAccumulator and custom gradients: tape_core's, for the façade's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from functools import wraps
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import tape_core as tc
from tape_core.support import Leaving, WatchError, pytree

from tape_tf import dtypes, logger
from tape_tf.conversion import match_dtypes, native, unwrap, wrap
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.tensor import IndexedSlices, Tensor, Value, wrap_tensor
from tape_tf.typing import PyTree, TensorLike
from tape_tf.variable import Variable


def _warn_not_floating(what: str, method: str, dtype: tc.DType) -> None:
    """Log TensorFlow's warning that integers and bools have no gradient."""
    when = "" if method == "watch" else f" when calling GradientTape.{method}"
    logger.warning(
        "The dtype of the %s tensor must be floating (e.g. tf.float32)%s, got %r", what, when, dtypes.of(dtype)
    )


class _Tape(tc.GradientTape):
    """The native tape of a façade tape: it warns of dtypes as TensorFlow does."""

    __slots__ = ()

    def _warn_of_dtype(self, method: str, tensor: tc.Tensor) -> None:
        # The façade itself warns of targets and sources: it knows them as the user gave them.
        if method == "watch":
            _warn_not_floating("watched", method, tensor.dtype)


@exported("UnconnectedGradients")
class UnconnectedGradients(Enum):
    """The gradient of sources that the target does not depend on: NONE, or ZERO for zeros."""

    NONE = "none"
    ZERO = "zero"


def _check_unconnected(given: str | UnconnectedGradients) -> str:
    if isinstance(given, UnconnectedGradients):
        return str(given.value)
    if given not in ("none", "zero", "error"):
        raise ValueError(f"Unknown value for unconnected_gradients: {given!r}; use 'none', 'zero' or 'error'")
    return str(given)


def _native_tree(tree: PyTree, method: str, argument: str) -> Any:
    """Convert a structure of the façade's tensors and Variables to tape_core's; `argument` of `method` is for messages.

    Raises:
        TypeError: a leaf is neither.
    """
    # Nearly all targets, and many sources, are one tensor: without a walk through a structure.
    if isinstance(tree, Tensor | Variable):
        return tree.native
    leaves, structure = pytree.flatten_whole(tree)
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Value):
            leaves[k] = leaf.native
        elif isinstance(leaf, IndexedSlices):
            # As a source IndexedSlices are known by their identity; a target is a value, of which the sum is taken.
            leaves[k] = leaf.native if argument == "sources" else leaf.densify()
        elif not isinstance(leaf, tc.Tensor | tc.IndexedSlices):
            if leaf is None:
                hint = "; was it the gradient of something unconnected?"
            elif argument == "target" and isinstance(leaf, bool | int | float | complex | np.generic | np.ndarray):
                hint = (
                    "; a value of Python or NumPy is not connected with what it was computed from: compute the target "
                    "with functions of tf, inside the tape's block"
                )
            else:
                hint = "; use tf.constant to make one, before the computation"
            raise TypeError(
                f"GradientTape.{method}: {argument}{pytree.path(structure, k)} must be a tf.Tensor or tf.Variable, got "
                f"{leaf!r} of type {type(leaf).__name__!r}{hint}"
            )
    return pytree.unflatten(structure, leaves)


class _Block:
    """Base of the façade's tape and accumulator: leaves the native one's block, also when Ctrl-C interrupts it."""

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
        # A plain method could be interrupted by Ctrl-C before it has closed the native tape.
        __exit__ = Leaving(_leave, _abandon, attrgetter("native._open"))


@exported("GradientTape autodiff.GradientTape")
class GradientTape(_Block):
    """Records operations on watched tensors and differentiates them.

    >>> import tape_tf as tf
    >>> x = tf.constant(3.0)
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x * x
    >>> print(tape.gradient(y, x))
    tf.Tensor(6.0, shape=(), dtype=float32)

    Args:
        persistent: keep the records after the first gradient.
        watch_accessed_variables: watch trainable Variables when they are read; with False, only what `watch` names.

    Attributes:
        native: the GradientTape of tape_core, which can also `explain` why a gradient is None.
    """

    __slots__ = ("__weakref__", "_guard", "native")

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._guard: Any = None
        self.native: tc.GradientTape = _Tape(persistent, watch_accessed_variables)

    def __enter__(self) -> GradientTape:
        self.native.__enter__()
        return self

    def watch(self, tensor: PyTree) -> None:
        """Record what is computed from now on from a tensor, a Variable, or the leaves of a nested structure.

        Of IndexedSlices, the values are watched.

        Raises:
            ValueError: a leaf is something else. (The error is a TypeError, too.)
        """
        leaves, _ = pytree.flatten_whole(tensor)
        for leaf in leaves:
            # All leaves are checked before the first is watched.
            if not isinstance(leaf, Value | IndexedSlices | tc.Tensor | tc.IndexedSlices):
                raise WatchError(
                    f"Passed in object {leaf} of type {type(leaf).__name__!r}, not tf.Tensor or tf.Variable or "
                    f"ExtensionType."
                )
        self.native.watch([leaf.native if isinstance(leaf, Value | IndexedSlices) else leaf for leaf in leaves])

    def stop_recording(self) -> AbstractContextManager[None]:
        """Return a context in which the tape records nothing: `with tape.stop_recording(): ...`."""
        return self.native.stop_recording()

    def reset(self) -> None:
        """Drop all records and watches, and go on recording.

        Raises:
            ValueError: the tape is not recording.
        """
        self.native.reset()

    def watched_variables(self) -> tuple[Variable, ...]:
        """Return the Variables watched so far, in the order of their construction."""
        return tuple([Variable.of(variable) for variable in self.native.watched_variables()])

    def gradient(
        self,
        target: PyTree,
        sources: PyTree,
        output_gradients: PyTree = None,
        unconnected_gradients: str | UnconnectedGradients = UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradient of the sum of `target` with respect to each of `sources`.

        Args:
            target: a tensor or Variable, or a nested structure of them, whose elements are all added up.
            sources: the tensors and Variables to differentiate with respect to, in any nested structure.
            output_gradients: the cotangents of the targets, of their structure and shapes; ones by default.
            unconnected_gradients: for a source that the target does not depend on: None (`NONE`) or zeros (`ZERO`).

        Returns:
            The structure of `sources`: at each leaf a tensor of its shape and dtype, IndexedSlices or None.

        Raises:
            RuntimeError: a second call on a tape that is not persistent.
            TypeError: a leaf is not a tensor.
            ValueError: `output_gradients` do not fit.
        """
        # Checked here, in TensorFlow's words, before the core sees the arguments.
        how = _check_unconnected(unconnected_gradients)
        if target is None:
            raise TypeError("Argument `target` should be a list or nested structure of Tensors, got None.")
        targets = _native_tree(target, "gradient", "target")
        wanted = _native_tree(sources, "gradient", "sources")
        cotangents = None if output_gradients is None else _cotangents(output_gradients, targets)
        found = self.native.gradient(targets, wanted, cotangents, unconnected_gradients=how)
        # After the gradient: an error is not to be preceded by a warning of something else.
        _warn_of_dtypes(targets, wanted)
        return wrap(found)

    def jacobian(
        self,
        target: PyTree,
        sources: PyTree,
        unconnected_gradients: str | UnconnectedGradients = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivative of each element of `target` by each of `sources`: `target.shape + source.shape`.

        Args:
            parallel_iterations: how many elements of the target are differentiated at once; it bounds the memory.
            experimental_use_pfor: with False, elements are differentiated one after the other.
        """
        return wrap(
            self.native.jacobian(
                _native_tree(target, "jacobian", "target"),
                _native_tree(sources, "jacobian", "sources"),
                _check_unconnected(unconnected_gradients),
                parallel_iterations,
                experimental_use_pfor,
            )
        )

    def batch_jacobian(
        self,
        target: PyTree,
        source: PyTree,
        unconnected_gradients: str | UnconnectedGradients = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the Jacobian of each example, if row k of `target` depends on row k of `source` only.

        Raises:
            ValueError: the numbers of examples differ, or one has no batch dimension.
        """
        return wrap(
            self.native.batch_jacobian(
                _native_tree(target, "batch_jacobian", "target"),
                _native_tree(source, "batch_jacobian", "source"),
                unconnected_gradients=_check_unconnected(unconnected_gradients),
                parallel_iterations=parallel_iterations,
                experimental_use_pfor=experimental_use_pfor,
            )
        )


def _cotangents(output_gradients: PyTree, targets: PyTree) -> Any:
    """Convert output gradients to tape_core Tensors, arrays among them on the targets' backend and device."""
    # Tensors stay where they are; a NumPy array goes to the targets' backend and device.
    leaves, structure = pytree.flatten_whole(output_gradients)
    like = next(iter(pytree.flatten_whole(targets)[0]), None)
    return pytree.unflatten(
        structure, [native(leaf, like=like) if isinstance(leaf, np.ndarray) else unwrap(leaf) for leaf in leaves]
    )


def _warn_of_dtypes(targets: PyTree, sources: PyTree) -> None:
    for what, tree in (("target", targets), ("source", sources)):
        for leaf in pytree.flatten_whole(tree)[0]:
            if not leaf.dtype.inexact:
                _warn_not_floating(what, "gradient", leaf.dtype)


@exported("autodiff.ForwardAccumulator")
class ForwardAccumulator(_Block):
    """Computes Jacobian-vector products (JVPs) in forward mode: the derivative in one direction.

    >>> import tape_tf as tf
    >>> x = tf.constant([2.0, 3.0])
    >>> with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 0.0])) as acc:
    ...     y = tf.reduce_sum(x * x)
    >>> print(acc.jvp(y))
    tf.Tensor(4.0, shape=(), dtype=float32)

    Args:
        primals: a tensor or Variable, or a nested structure of them.
        tangents: the direction, in the same structure.

    Raises:
        ValueError: the structures or shapes differ, or a primal is given twice.
    """

    __slots__ = ("__weakref__", "_guard", "native")

    def __init__(self, primals: PyTree, tangents: PyTree) -> None:
        # A Variable is not read here: the accumulator follows its readings.
        given = _native_tree(primals, "ForwardAccumulator", "primals")
        leaves = pytree.flatten_whole(given)[0]
        directions, structure = pytree.flatten_whole(tangents)
        # The tangent of a single tensor may be a list of numbers, which is no structure.
        if isinstance(given, tc.Tensor) and not isinstance(tangents, Value | tc.Tensor):
            directions, structure = [native(tangents)], None
        converted = [unwrap(d) for d in directions]
        # Not strict: the core reports structures that differ. This is only for the dtypes, which TensorFlow does not
        # promote.
        for primal, tangent in zip(leaves, converted, strict=False):
            if isinstance(tangent, tc.Tensor) and tangent.dtype is not primal.dtype:
                match_dtypes([wrap_tensor(primal), wrap_tensor(tangent)], "ForwardAccumulator")
        self._guard: Any = None
        self.native = tc.ForwardAccumulator(given, pytree.unflatten(structure, converted))

    def __enter__(self) -> ForwardAccumulator:
        self.native.__enter__()
        return self

    def jvp(
        self, primals: PyTree, unconnected_gradients: str | UnconnectedGradients = UnconnectedGradients.NONE
    ) -> Any:
        """Return the tangent of each of `primals`, in their structure."""
        found = self.native.jvp(_native_tree(primals, "jvp", "primals"), _check_unconnected(unconnected_gradients))
        return wrap(found)


@exported("custom_gradient")
def custom_gradient(f: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Decorator: give a function a gradient of its own; `f(*args)` returns `(result, grad)`.

    >>> import tape_tf as tf
    >>> @tf.custom_gradient
    ... def clipped(x):
    ...     return tf.identity(x), lambda upstream: tf.clip_by_norm(upstream, 0.5)
    >>> v = tf.Variable(2.0)
    >>> with tf.GradientTape() as tape:
    ...     y = clipped(v * v)
    >>> print(tape.gradient(y, v))
    tf.Tensor(2.0, shape=(), dtype=float32)

    `grad(*upstream)` gets one cotangent for each tensor of the result and returns one for each positional argument. If
    `f` reads Variables that are not among the arguments, `grad` must also take `variables=None`, and return the
    gradients of the arguments and a list with one gradient for each Variable.

    Raises:
        TypeError: in the call, if the result is not a pair, or `f` reads Variables and `grad` takes no `variables`.
        ValueError: in the backward pass, if `grad` returned another number of gradients.
    """
    if f is None:
        return custom_gradient
    if not callable(f):
        raise TypeError(f"tf.custom_gradient: {f!r} is not callable")

    @wraps(f)
    def native_f(*args: Any, **kwargs: Any) -> Any:
        pair = f(*wrap(args), **kwargs)
        # The core has the error for this; a conversion here would hide what `f` returned.
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            return pair
        result, grad = pair

        # The core calls this with its own cotangents, and with `variables` only if `grad` takes them, hence the wraps.
        @wraps(grad)
        def vjp(*upstream: Any, variables: Sequence[tc.Variable] | None = None) -> Any:
            given = wrap(upstream)
            if variables is None:
                return unwrap(grad(*given))
            return unwrap(grad(*given, variables=wrap(list(variables))))

        vjp.takes_slices = True  # type: ignore[attr-defined] # the core may pass IndexedSlices
        # Numbers and arrays become tensors: the core differentiates with respect to tensors only.
        return _native_results(result), vjp

    return _facade_of(tc.custom_gradient(native_f), f)


def _native_results(result: PyTree) -> Any:
    """Convert the tensors, arrays and numbers that a function returned to tape_core Tensors."""
    leaves, structure = pytree.flatten_whole(result)
    return pytree.unflatten(structure, [leaf if leaf is None else native(leaf) for leaf in leaves])


def _facade_of(function: Callable[..., Any], f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, which takes and returns tape_core's values, for the façade's, under the name of `f`."""

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrap(function(*unwrap(args), **kwargs))

    return call


@exported("recompute_grad")
def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` with gradient checkpointing: only its arguments are kept; the rest is recomputed backward.

    >>> import tape_tf as tf
    >>> x = tf.Variable(1.0)
    >>> with tf.GradientTape() as tape:
    ...     y = tf.recompute_grad(lambda x: tf.sin(x) ** 2)(x)
    >>> f"{tape.gradient(y, x):.4f}"
    '0.9093'
    """

    @wraps(f)
    def native_f(*args: Any, **kwargs: Any) -> Any:
        return _native_results(f(*wrap(args), **kwargs))

    return _facade_of(tc.checkpoint(native_f), f)


@exported("grad_pass_through")
def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` with the gradient of the identity (a straight-through estimator), for functions such as rounding.

    >>> import tape_tf as tf
    >>> x = tf.Variable(1.4)
    >>> with tf.GradientTape() as tape:
    ...     y = tf.grad_pass_through(tf.round)(x) * 3.0
    >>> print(tape.gradient(y, x))
    tf.Tensor(3.0, shape=(), dtype=float32)
    """

    @custom_gradient
    def through(*args: Any, **kwargs: Any) -> Any:
        def grad(*upstream: Any, variables: Sequence[Variable] | None = None) -> Any:
            gradients = upstream if len(upstream) > 1 else upstream[0]
            # The pass-through has no gradient for the Variables that `f` reads: TensorFlow returns None for them, too.
            return (gradients, [None] * len(variables)) if variables is not None else gradients

        return f(*args, **kwargs), grad

    return wraps(f)(through)


@op("stop_gradient", "", kernel="StopGradient")
def stop_gradient(input: TensorLike) -> tc.Tensor:
    """Return the value as a constant: no gradient flows back through it. Reading a Variable so does not watch it."""
    # Not `native`, which reads a Variable, and thereby makes tapes watch it.
    value = unwrap(input)
    return tc.stop_gradient(value if isinstance(value, tc.Tensor) else native(value))
