"""Attention layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tape_core as tc
import tape_nn as nn
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.keras import initializers
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.native import NativeLayer
from tape_tf.keras.masks import as_mask
from tape_tf.typing import ConstraintLike, InitializerLike, PartialShape, PyTree, RegularizerLike, TensorLike


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

    __tf_differs__ = "weights are named as those of tape_nn; no output_shape or attention_axes"

    supports_masking = True

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
        query_mask: TensorLike | None = None,
        value_mask: TensorLike | None = None,
        key_mask: TensorLike | None = None,
        attention_mask: TensorLike | None = None,
        return_attention_scores: bool = False,
        training: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        """Return shape (examples, queries, features of query); with `return_attention_scores` the weights, too.

        Args:
            query_mask, value_mask, key_mask: of shape (examples, steps); by default the masks of the tensors. Hidden
                values and keys are not attended to, and hidden queries attend to nothing.
        """
        mask = None if attention_mask is None else as_mask(attention_mask)
        hidden = [(query_mask, -1), (value_mask, -2), (None if key is None else key_mask, -2)]
        for part, axis in hidden:
            if part is not None:
                own = tc.expand_dims(as_mask(part), axis=axis)  # (examples, queries, 1) or (examples, 1, keys)
                if mask is not None and mask.ndim == 4:
                    own = tc.expand_dims(own, axis=1)
                mask = own if mask is None else mask & own
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


class Attention(Layer):
    """Attention by products of queries and keys (Luong et al., 2015), without projections.

    The layer is called with a list `[query, value]` or `[query, value, key]` of tensors of shape (examples, steps,
    features). Masks of queries and values are those of the tensors, or a list in the call's `mask`.

    >>> import tape_tf as tf
    >>> query, value = tf.ones((2, 3, 4)), tf.ones((2, 5, 4))
    >>> tf.keras.layers.Attention()([query, value]).shape
    TensorShape([2, 3, 4])

    Args:
        use_scale: multiply the scores by a number that is learned.
        score_mode: "dot" for products of queries and keys; "concat" for `tanh` of their sums.
        dropout: the probability that a weight is dropped in training.
        seed: the seed of the dropout.
    """

    supports_masking = True

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if score_mode not in ("dot", "concat"):
            raise ValueError(f"{type(self).__name__}: score_mode must be 'dot' or 'concat'; got {score_mode!r}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"{type(self).__name__}: dropout must be from 0 to 1; got {dropout!r}")
        self.use_scale, self.score_mode, self.dropout = use_scale, score_mode, float(dropout)
        self._rng = None if seed is None else tc.default_rng(seed)
        self.scale: Any = None
        self.concat_score_weight: Any = None

    def build(self, input_shape: Any) -> None:
        """Make the weights."""
        if self.use_scale:
            self.scale = self.add_weight((), "ones", name="scale")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight((), "ones", name="concat_score_weight")
        self.built = True

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        query, *others = shapes
        return [(*query[:-1], other[-2], query[-1]) for other in others]

    def _scores(self, query: tc.Tensor, key: tc.Tensor) -> tc.Tensor:
        """Return a score for each query and key, of shape (examples, queries, keys)."""
        scale = None if self.scale is None else native(self.scale)
        if self.score_mode == "dot":
            scores = tc.matmul(query, tc.matrix_transpose(key))
            return scores if scale is None else scores * scale
        sums = tc.expand_dims(query, axis=-2) + tc.expand_dims(key, axis=-3)
        return native(self.concat_score_weight) * tc.sum(tc.tanh(sums if scale is None else scale * sums), axis=-1)

    def call(
        self,
        inputs: Sequence[TensorLike],
        mask: Sequence[TensorLike | None] | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        """Return shape (examples, queries, features of value); with `return_attention_scores` the weights, too."""
        if not isinstance(inputs, list | tuple) or len(inputs) not in (2, 3):
            raise ValueError(f"{type(self).__name__} is called on a list [query, value] or [query, value, key]")
        query, value, *rest = map(native, inputs)
        query_mask, value_mask = (None, None) if mask is None else tuple(mask)[:2]
        scores = self._scores(query, rest[0] if rest else value)
        counts = None
        if value_mask is not None:
            counts = as_mask(value_mask)
            counts = tc.expand_dims(counts, axis=-2) if counts.ndim == 2 else counts
        if use_causal_mask:
            queries, keys = scores.shape[-2:]
            where: dict[str, Any] = {"backend": scores.backend.root, "device": scores.device}
            causal = tc.expand_dims(tc.arange(queries, **where), axis=1) >= tc.arange(keys, **where)
            counts = causal if counts is None else counts & causal
        if counts is not None:
            # Keras' number, and not infinity: queries without any key get an average of all values, and no NaN.
            scores = tc.where(counts, scores, scores - (65504.0 if scores.dtype is tc.float16 else 1e9))
        weights = tc.dropout(tc.softmax(scores, axis=-1), self.dropout, training=bool(training), rng=self._rng)
        found = tc.matmul(weights, value)
        if query_mask is not None:
            found = tc.where(tc.expand_dims(as_mask(query_mask), axis=-1), found, 0)
        return (wrap(found), wrap(weights)) if return_attention_scores else wrap(found)

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return the mask of the query."""
        return None if mask is None else mask[0]


class AdditiveAttention(Attention):
    """Attention by sums of queries and keys (Bahdanau et al., 2015): scores are `sum(scale * tanh(query + key))`.

    Called as :class:`Attention` is; `use_scale` makes `scale` a vector that is learned, and is True by default.
    """

    def __init__(self, use_scale: bool = True, dropout: float = 0.0, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(use_scale, "dot", dropout, seed, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Make the weights, for a query of this shape."""
        if self.use_scale:
            self.scale = self.add_weight((input_shape[0][-1],), "glorot_uniform", name="scale")
        self.built = True

    def _scores(self, query: tc.Tensor, key: tc.Tensor) -> tc.Tensor:
        sums = tc.tanh(tc.expand_dims(query, axis=-2) + tc.expand_dims(key, axis=-3))
        return tc.sum(sums if self.scale is None else native(self.scale) * sums, axis=-1)
