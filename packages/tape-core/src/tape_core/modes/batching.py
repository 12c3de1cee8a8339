"""Batch rules: how one call of an op does the work for all examples of a vmap.

A rule is a function of the call and the op's inputs: `rule(call, x1, x2)`. An input is a
:class:`~tape_core.modes.batched.BatchedArray`, a Python scalar or None; at least one of them has a hidden axis.
`call(value, axis=...)` calls the op on Tensors of the backend below, with other parameters where they are named. What
the rule returns has the hidden axis first; a BatchedArray says for itself.

Which rule an op has follows from its declaration: elementwise ops broadcast, any other says `batch=`. Without that an
op runs its default kernel, which is made of other ops, or else once for each example: right, but slow.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backends.axes import line_axis, normal_axis
from tape_core.backends.errors import BatchError
from tape_core.backends.kernels import DEFAULT_KERNELS
from tape_core.base.lookup import ops
from tape_core.engine.levels import BatchedArray
from tape_core.engine.tensor import Tensor
from tape_core.typing import BatchInput

if TYPE_CHECKING:
    from tape_core.engine.op import Op

BatchRule = Callable[..., Any]


class Call:
    """A call of an op, without its inputs.

    Attributes:
        op: the op.
        params: its parameters by name, defaults among them.
    """

    __slots__ = ("op", "params")

    def __init__(self, op: Op, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.op = op
        parameters = op.parameters
        self.params = dict(parameters.defaults)
        for name, place in parameters.places.items():
            if place < len(args):
                self.params[name] = args[place]
        self.params.update(kwargs)

    def __call__(self, *inputs: Any, **changes: Any) -> Any:
        """Return the op's result for Tensors."""
        params = {**self.params, **changes}
        positional = [params.pop(name) for name in self.op.parameters.positional_only]
        given = (list(inputs),) if self.op.sequence else inputs
        return self.op.function(*given, *positional, **params)


def batch_rule(op: Op) -> BatchRule:
    """Return the batch rule of an op: its own, or the one that follows from its declaration."""
    if op.batch is not None:
        return op.batch
    if op.elementwise:
        return elementwise
    return composed if op.name in DEFAULT_KERNELS else one_by_one


def way_of(op: Op) -> str:
    """Return how an op is batched, for the support matrix: `"rule"`, `"composed"` or `"loop"`."""
    rule = batch_rule(op)
    return "loop" if rule is one_by_one else "composed" if rule is composed else "rule"


# -- what rules are made of


def is_batched(x: BatchInput) -> bool:
    """Return whether an input has the hidden axis."""
    return type(x) is BatchedArray and x.axis is not None


def front(x: BatchInput, ndim: int) -> Any:
    """Return an input as a Tensor with the hidden axis in front of `ndim` dimensions, so that inputs broadcast."""
    if type(x) is not BatchedArray:
        return x
    # What all examples share broadcasts by itself: its dimensions are counted from the end, the hidden axis is in
    # front.
    if x.axis is None or x.ndim == ndim:
        return x.value
    return ops.reshape(x.value, (x.axis.size, *[1] * (ndim - x.ndim), *x.shape))


def aligned(x: BatchInput, ndim: int) -> Any:
    """Return an input as `front` does, with a dimension of 1 in front if all examples share it."""
    if type(x) is not BatchedArray or x.axis is not None:
        return front(x, ndim)
    return ops.reshape(x.value, ((1,) * (1 + ndim - x.ndim) + x.shape))


def spread(x: BatchInput, size: int) -> Tensor:
    """Return an input as a Tensor with the hidden axis, also if it is the same for all examples."""
    if is_batched(x):
        return x.value  # type: ignore[no-any-return]
    return ops.broadcast_to(x.value, (size, *x.shape))


def size_of(xs: Sequence[Any]) -> int:
    """Return the number of examples."""
    return next(int(x.axis.size) for x in xs if is_batched(x))


def from_end(axis: int | Sequence[int] | None, ndim: int) -> Any:
    """Return an axis, or several, counted from the end, where the hidden axis shifts none. None is all of them."""
    if axis is None:
        return tuple(range(-ndim, 0))
    if isinstance(axis, tuple | list):
        return tuple([normal_axis(a, ndim) - ndim for a in axis])
    return normal_axis(axis, ndim) - ndim


def dimensions(xs: Sequence[Any]) -> int:
    """Return the largest number of dimensions of the inputs."""
    return max([int(x.ndim) for x in xs if type(x) is BatchedArray])


# -- rules


def elementwise(call: Call, *xs: Any) -> Any:
    """Batch an op of inputs that broadcast, or of one whose dimensions do not matter."""
    ndim = dimensions(xs)
    return call(*[front(x, ndim) for x in xs])


def stacks(*cores: int) -> BatchRule:
    """Return a rule for ops on the last dimensions of each input, so many, and on stacks of these that broadcast."""

    def rule(call: Call, *xs: Any) -> Any:
        pairs = list(zip(xs, cores * len(xs) if call.op.sequence else cores, strict=False))
        for x, core in pairs:
            if type(x) is BatchedArray and x.ndim < core:
                raise ValueError(f"{call.op.name} needs arrays of at least {core} dimensions, got shape {x.shape}")
        leading = max([x.ndim - core for x, core in pairs if type(x) is BatchedArray])
        return call(*[aligned(x, leading + core) for x, core in pairs])

    # For the detection of sparsity, which treats stacks of matrices alike.
    rule.cores = cores  # type: ignore[attr-defined]
    return rule


def along(call: Call, *xs: Any) -> Any:
    """Batch an op along an `axis`, or along `axes`, of inputs that broadcast; None is all of them."""
    ndim = dimensions(xs)
    name = "axes" if "axes" in call.params else "axis"
    axis = call.params[name]
    # FFTs: `s` without `axes` means the last `len(s)` axes.
    if axis is None and call.params.get("s") is not None:
        axis = tuple(range(-len(call.params["s"]), 0))
    return call(*[aligned(x, ndim) for x in xs], **{name: from_end(axis, ndim)})


def apart(call: Call, *xs: Any) -> Any:
    """Batch an op on stacks that do not broadcast, along an `axis` of the first input if it has one."""
    size = size_of(xs)
    axis = {"axis": from_end(call.params["axis"], xs[0].ndim)} if "axis" in call.params else {}
    return call(*[spread(x, size) if type(x) is BatchedArray else x for x in xs], **axis)


def along_one(call: Call, x: BatchInput) -> Any:
    """Batch an op along one axis; without one, of all elements in order."""
    if call.params["axis"] is not None:
        return along(call, x)
    size = x.axis.size
    # All elements of an example in one row; the hidden axis stays.
    out = call(ops.reshape(x.value, (size, math.prod(x.shape))), axis=-1)
    return ops.reshape(out, (size, *[1] * x.ndim)) if call.params.get("keepdims") else out


def running(call: Call, x: BatchInput) -> Any:
    """Batch an op along one axis, which only an array of one dimension may leave out."""
    line_axis(call.params["axis"], x.ndim)
    return along_one(call, x)


def merged(call: Call, *xs: Any) -> Any:
    """Batch an op whose inputs have examples of their own along their first dimension, by merging the two."""
    size = size_of(xs)
    own = next(x.shape[0] for x in xs if type(x) is BatchedArray and x.ndim)
    out = call(*[ops.reshape(spread(x, size), (size * own, *x.shape[1:])) for x in xs])
    return ops.reshape(out, (size, own, *out.shape[1:]))


def with_one_kernel(call: Call, x: BatchInput, w: Any) -> Any:
    """Batch a convolution: with one kernel for all examples by merging, else by the ops of the default kernel."""
    if is_batched(w):
        return composed(call, x, w)
    # A convolution takes a batch of images anyway: those of all examples become one.
    size, own = x.axis.size, x.shape[0]
    out = call(ops.reshape(x.value, (size * own, *x.shape[1:])), w.value)
    return ops.reshape(out, (size, own, *out.shape[1:]))


def with_shared(call: Call, x: BatchInput, *shared: Any) -> Any:
    """Batch an op along `axis` whose further inputs all examples share; else by the ops of the default kernel."""
    if any([is_batched(other) for other in shared]):
        return composed(call, x, *shared)
    return call(x.value, *[front(other, 0) for other in shared], axis=from_end(call.params["axis"], x.ndim))


def beside(call: Call, x: BatchInput) -> Any:
    """Batch an op that needs only the device of an array."""
    return x.backend.shared(call(x.value))


def composed(call: Call, *xs: Any) -> Any:
    """Batch an op by its default kernel, which is made of other ops; if that decides by values, one by one."""
    backend: Any = next(x.backend for x in xs if type(x) is BatchedArray)
    params = {k: v for k, v in call.params.items() if v is not inspect.Parameter.empty}
    positional = [params.pop(name) for name in call.op.parameters.positional_only]
    given = (list(xs),) if call.op.sequence else xs
    try:
        return DEFAULT_KERNELS[call.op.name](backend.xp, *given, *positional, **params)
    # The kernel has asked for a value, as an `if` does, and examples differ in it.
    except BatchError:
        return one_by_one(call, *xs)


def one_by_one(call: Call, *xs: Any) -> Any:
    """Batch an op by a loop over the examples."""
    size = size_of(xs)
    if size == 0:
        raise BatchError(f"vmap over 0 examples: {call.op.name} has no batch rule, and no example shows its result")
    examples = [ops.unstack(x.value) if is_batched(x) else [getattr(x, "value", x)] * size for x in xs]
    found = [call(*inputs) for inputs in zip(*examples, strict=True)]
    several = isinstance(found[0], tuple | list)
    columns = list(zip(*found, strict=True)) if several else [found]
    if any([len({part.shape for part in column}) > 1 for column in columns]):
        raise BatchError(f"{call.op.name} inside vmap: the shape of its result depends on values, and examples differ")
    stacked = [ops.stack(list(column)) for column in columns]
    return tuple(stacked) if several else stacked[0]
