"""The functions of `tf.keras.backend`, which older programs import as `K`: functions of `tf` with Keras' arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tape_tf.conversion import convert_to_tensor
from tape_tf.keras import losses
from tape_tf.keras.backend import floatx
from tape_tf.names import export, exported, published
from tape_tf.tensor import Value
from tape_tf.typing import Axis, DTypeLike, ShapeLike, TensorLike
from tape_tf.variable import Variable

if TYPE_CHECKING:
    from tape_tf.keras.symbolic import KerasTensor

# Functions that are the same in `tf`: names in tf.keras.backend, and the pattern of their names in `tf`.
_ALIASES = {
    "abs cos equal exp eye greater greater_equal less less_equal log maximum minimum not_equal ones_like pow round "
    "shape sigmoid sign sin square stack stop_gradient tanh tile transpose zeros_like": "{}",
    "elu softmax softplus softsign in_top_k": "nn.{}",
    "cumprod cumsum": "math.{}",
    "all any max mean min prod std sum": "math.reduce_{}",
}


def publish() -> None:
    """Publish the functions of `_ALIASES`. `tape_tf` calls this last, when all functions of `tf` are published."""
    known = published()
    for names, pattern in _ALIASES.items():
        for name in names.split():
            target = pattern.format(name)
            export(f"keras.backend.{name}", known.get(target) or known[f"math.{target}"])
    export("keras.backend.var", known["math.reduce_variance"])


def _tf_function(name: str) -> Callable[..., Any]:
    """Return a function of `tf` by its name; by name, since importing `tape_tf.ops` from here would be a cycle."""
    function: Callable[..., Any] = published()[name]
    return function


@exported("keras.backend.argmax")
def argmax(x: TensorLike, axis: int = -1) -> Any:
    """The index of the largest element along an axis."""
    return _tf_function("argmax")(x, axis)


@exported("keras.backend.argmin")
def argmin(x: TensorLike, axis: int = -1) -> Any:
    """The index of the smallest element along an axis."""
    return _tf_function("argmin")(x, axis)


@exported("keras.backend.cast")
def cast(x: TensorLike, dtype: DTypeLike) -> Any:
    """Convert to another dtype."""
    return _tf_function("cast")(x, dtype)


@exported("keras.backend.clip")
def clip(x: TensorLike, min_value: TensorLike, max_value: TensorLike) -> Any:
    """Limit the elements to the range from `min_value` to `max_value`."""
    return _tf_function("clip_by_value")(x, min_value, max_value)


@exported("keras.backend.concatenate")
def concatenate(tensors: Sequence[TensorLike], axis: int = -1) -> Any:
    """Join tensors along an axis."""
    return _tf_function("concat")(tensors, axis)


@exported("keras.backend.dot")
def dot(x: TensorLike, y: TensorLike) -> Any:
    """The tensor product, summed over the last axis of `x` and the last but one of `y`."""
    x, y = convert_to_tensor(x), convert_to_tensor(y)
    # NumPy's `dot`, which for more than two axes is no batched matmul.
    return _tf_function("tensordot")(x, y, [[x.ndim - 1], [max(y.ndim - 2, 0)]])


@exported("keras.backend.expand_dims")
def expand_dims(x: TensorLike, axis: int = -1) -> Any:
    """Insert an axis of length 1."""
    return _tf_function("expand_dims")(x, axis)


@exported("keras.backend.flatten")
def flatten(x: TensorLike) -> Any:
    """Reshape to a vector."""
    return _tf_function("reshape")(x, [-1])


@exported("keras.backend.batch_flatten")
def batch_flatten(x: TensorLike) -> Any:
    """Reshape to a matrix with one row for each example."""
    x = convert_to_tensor(x)
    return _tf_function("reshape")(x, [x.shape[0], -1])


@exported("keras.backend.gather")
def gather(reference: TensorLike, indices: TensorLike) -> Any:
    """Pick rows of a tensor."""
    return _tf_function("gather")(reference, indices)


@exported("keras.backend.l2_normalize")
def l2_normalize(x: TensorLike, axis: Axis = None) -> Any:
    """Divide by the Euclidean norm."""
    return _tf_function("nn.l2_normalize")(x, axis)


@exported("keras.backend.one_hot")
def one_hot(indices: TensorLike, num_classes: int) -> Any:
    """Encode class numbers as vectors with a single 1."""
    return _tf_function("one_hot")(indices, num_classes)


@exported("keras.backend.permute_dimensions")
def permute_dimensions(x: TensorLike, pattern: Sequence[int]) -> Any:
    """Permute the axes."""
    return _tf_function("transpose")(x, pattern)


@exported("keras.backend.relu")
def relu(x: TensorLike, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Any:
    """`x` above the threshold, at most `max_value`; `alpha * (x - threshold)` below it."""
    x = convert_to_tensor(x)
    out = (
        _tf_function("where")(x >= threshold, x, alpha * (x - threshold))
        if alpha or threshold
        else _tf_function("nn.relu")(x)
    )
    return out if max_value is None else _tf_function("minimum")(out, max_value)


@exported("keras.backend.repeat_elements")
def repeat_elements(x: TensorLike, rep: int, axis: int) -> Any:
    """Repeat each element `rep` times along an axis."""
    return _tf_function("repeat")(x, rep, axis)


@exported("keras.backend.reshape")
def reshape(x: TensorLike, shape: ShapeLike) -> Any:
    """Change the shape."""
    return _tf_function("reshape")(x, shape)


@exported("keras.backend.reverse")
def reverse(x: TensorLike, axes: Axis) -> Any:
    """Reverse the order along axes."""
    return _tf_function("reverse")(x, [axes] if isinstance(axes, int) else axes)


@exported("keras.backend.sqrt")
def sqrt(x: TensorLike) -> Any:
    """The square root; 0 for negative elements."""
    x = convert_to_tensor(x)
    # Keras' backend clips at 0, where tf.sqrt returns NaN.
    return _tf_function("sqrt")(_tf_function("maximum")(x, 0.0))


@exported("keras.backend.squeeze")
def squeeze(x: TensorLike, axis: int) -> Any:
    """Remove an axis of length 1."""
    return _tf_function("squeeze")(x, [axis])


@exported("keras.backend.switch")
def switch(
    condition: TensorLike,
    then_expression: TensorLike | Callable[[], TensorLike],
    else_expression: TensorLike | Callable[[], TensorLike],
) -> Any:
    """Choose between two tensors, or the results of two functions; elementwise unless the condition is a scalar."""
    mask = convert_to_tensor(condition)
    if not mask.ndim:
        chosen = then_expression if mask else else_expression
        return convert_to_tensor(chosen() if callable(chosen) else chosen)
    both: list[Any] = [
        part() if callable(part) else convert_to_tensor(part) for part in (then_expression, else_expression)
    ]
    # The condition has the first axes of the values: it is aligned on the left, unlike a broadcast.
    missing = max(both[0].ndim - mask.ndim, 0)
    return _tf_function("where")(_tf_function("reshape")(mask, [*mask.shape, *[1] * missing]), *both)


# -- values and their properties


@exported("keras.backend.constant")
def constant(value: TensorLike, dtype: DTypeLike = None, shape: ShapeLike = None, name: str | None = None) -> Any:
    """A constant tensor, by default of Keras' float type."""
    return _tf_function("cast")(_tf_function("constant")(value, shape=shape), dtype or floatx())


@exported("keras.backend.variable")
def variable(
    value: TensorLike, dtype: DTypeLike = None, name: str | None = None, constraint: Callable[[Any], Any] | None = None
) -> Any:
    """A Variable, by default of Keras' float type."""
    made = Variable(_tf_function("cast")(value, dtype or floatx()), name=name or "Variable")
    made.constraint = constraint
    return made


@exported("keras.backend.ones")
def ones(shape: ShapeLike, dtype: DTypeLike = None, name: str | None = None) -> Any:
    """A Variable of ones."""
    return variable(_tf_function("ones")(shape), dtype)


@exported("keras.backend.zeros")
def zeros(shape: ShapeLike, dtype: DTypeLike = None, name: str | None = None) -> Any:
    """A Variable of zeros."""
    return variable(_tf_function("zeros")(shape), dtype)


@exported("keras.backend.dtype")
def dtype(x: TensorLike) -> str:
    """The name of a tensor's dtype."""
    return str(convert_to_tensor(x).dtype.name)


@exported("keras.backend.int_shape")
def int_shape(x: Value | KerasTensor) -> tuple[int | None, ...]:
    """The shape as a tuple."""
    return tuple(x.shape)


@exported("keras.backend.ndim")
def ndim(x: Value | KerasTensor) -> int:
    """The number of axes."""
    return len(x.shape)


@exported("keras.backend.get_value keras.backend.eval")
def get_value(x: TensorLike) -> Any:
    """The value as a NumPy array or scalar."""
    return convert_to_tensor(x).numpy()


@exported("keras.backend.set_value")
def set_value(x: Variable, value: TensorLike) -> None:
    """Assign to a Variable."""
    x.assign(value)


@exported("keras.backend.update")
def update(x: Variable, new_x: TensorLike) -> Any:
    """Assign to a Variable."""
    return x.assign(new_x)


@exported("keras.backend.update_add")
def update_add(x: Variable, increment: TensorLike) -> Any:
    """Add to a Variable."""
    return x.assign_add(increment)


@exported("keras.backend.update_sub")
def update_sub(x: Variable, decrement: TensorLike) -> Any:
    """Subtract from a Variable."""
    return x.assign_sub(decrement)


# -- random numbers and losses


@exported("keras.backend.random_normal", differs="other random numbers than TensorFlow's, of the same distribution")
def random_normal(
    shape: ShapeLike, mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike = None, seed: int | None = None
) -> Any:
    """Normally distributed random values."""
    return _tf_function("random.normal")(shape, mean, stddev, dtype or floatx(), seed)


@exported("keras.backend.random_uniform", differs="other random numbers than TensorFlow's, of the same distribution")
def random_uniform(
    shape: ShapeLike, minval: float = 0.0, maxval: float = 1.0, dtype: DTypeLike = None, seed: int | None = None
) -> Any:
    """Uniformly distributed random values."""
    return _tf_function("random.uniform")(shape, minval, maxval, dtype or floatx(), seed)


@exported("keras.backend.binary_crossentropy")
def binary_crossentropy(target: TensorLike, output: TensorLike, from_logits: bool = False) -> Any:
    """The loss of each element."""
    # An axis of length 1 for the mean that the loss takes, so that each element keeps its own.
    return losses.binary_crossentropy(expand_dims(target), expand_dims(output), from_logits=from_logits)


@exported("keras.backend.categorical_crossentropy")
def categorical_crossentropy(target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1) -> Any:
    """The loss of each example."""
    return losses.categorical_crossentropy(target, output, from_logits=from_logits, axis=axis)


@exported("keras.backend.sparse_categorical_crossentropy")
def sparse_categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> Any:
    """The loss of each example, for class numbers as targets."""
    return losses.sparse_categorical_crossentropy(target, output, from_logits=from_logits, axis=axis)
