"""Attention layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tape_core as tc
import tape_nn as nn
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.keras import initializers
from tape_tf.keras.layers.native import NativeLayer
from tape_tf.typing import ConstraintLike, InitializerLike, PartialShape, RegularizerLike, TensorLike


class MultiHeadAttention(NativeLayer):
    """Attention with several heads: see :class:`tape_nn.MultiHeadAttention`.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> x, memory = tf.ones((3, 5, 8)), tf.ones((3, 7, 6))
    >>> layer(x, memory).shape
    TensorShape([3, 5, 8])

    Args:
        num_heads, key_dim, value_dim, dropout, use_bias: as for :class:`tape_nn.MultiHeadAttention`.
        kernel_initializer, bias_initializer: see `tf.keras.initializers`.
        kernel_regularizer, bias_regularizer, kernel_constraint, bias_constraint: for all kernels, for all biases.
        seed: the seed of the dropout of attention weights.
    """

    __tf_differs__ = "weights are named as those of tape_nn; no output_shape, attention_axes or masks of layers"

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        *,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        activity_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        native_layer = nn.MultiHeadAttention(
            num_heads,
            key_dim,
            value_dim,
            dropout,
            use_bias,
            initializers.for_tape_nn(kernel_initializer),
            initializers.for_tape_nn(bias_initializer),
            None if seed is None else tc.default_rng(seed),
        )
        given = {
            "kernel_regularizer": kernel_regularizer,
            "bias_regularizer": bias_regularizer,
            "kernel_constraint": kernel_constraint,
            "bias_constraint": bias_constraint,
        }
        # tape_nn names the weights query_kernel, query_bias and so on; each option applies to all four projections.
        extras = {f"{part}_{name}": v for part in ("query", "key", "value", "output") for name, v in given.items()}
        super().__init__(native_layer, {"activity_regularizer": activity_regularizer, **kwargs}, extras)

    def build(
        self, query_shape: PartialShape, value_shape: PartialShape | None = None, key_shape: PartialShape | None = None
    ) -> None:
        """Make the weights, for queries, values and keys of these shapes."""
        super().build(*[shape for shape in (query_shape, value_shape, key_shape) if shape is not None])

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        # The projections, with all heads; then the attention weights, one for each query and each position of a key.
        native_layer = self.native
        query, *others = shapes
        projected = [
            (*shape[:-1], native_layer.num_heads, max(native_layer.key_dim, native_layer.value_dim)) for shape in shapes
        ]
        return [*projected, *[(*query[:-1], native_layer.num_heads, *other[1:-1]) for other in others]]

    def call(  # type: ignore[override]
        self,
        query: TensorLike,
        value: TensorLike,
        key: TensorLike | None = None,
        attention_mask: TensorLike | None = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
        training: bool = False,
    ) -> Any:
        """Return shape (examples, queries, features of query); with `return_attention_scores` the weights, too."""
        mask = None
        if attention_mask is not None:
            mask = native(attention_mask)
            # Keras also accepts numbers: 0 hides a position.
            mask = mask if mask.dtype is tc.bool else mask != 0
        found = self.native(
            native(query),
            native(value),
            None if key is None else native(key),
            mask,
            return_attention_scores,
            use_causal_mask,
            bool(training),
        )
        return wrap(found)
