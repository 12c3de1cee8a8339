"""Attention with several heads."""

from __future__ import annotations

from typing import Any

import tape_core as tc

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.layers.base import BUILDING, Add, Layer, Shape, fraction, positive


class MultiHeadAttention(Layer):
    """Attention with several heads (Vaswani and others, 2017), with Keras' arguments and weights.

    Queries, keys and values are projected for each head, each query takes the mean of the values weighted with
    `softmax(query @ key.mT / sqrt(key_dim))`, and what the heads found is projected to the features of the query.

    `query_kernel` and `key_kernel` have shape `(features, num_heads, key_dim)`, `value_kernel`
    `(features, num_heads, value_dim)`, `output_kernel` `(num_heads, value_dim, features of query)`; the biases have
    these shapes without the first axis, that of the output `(features of query,)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> x, memory = tc.ones((3, 5, 8)), tc.ones((3, 7, 6))
    >>> layer(x, memory).shape
    (3, 5, 8)
    >>> y, weights = layer(x, memory, return_attention_scores=True)
    >>> weights.shape
    (3, 2, 5, 7)

    Args:
        num_heads: how many heads there are.
        key_dim: the length of a head's queries and keys.
        value_dim: the length of a head's values; by default `key_dim`.
        dropout: the rate at which weights are dropped in training.
        use_bias: whether to add biases to the projections.
        kernel_initializer, bias_initializer, rng: as for :class:`Dense`; a kernel is initialized as the matrix that it
            is for all heads together. `rng` draws what is dropped, too.
    """

    _ndim = 3
    _form = "(examples, steps, features)"

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer | str = "glorot_uniform",
        bias_initializer: Initializer | str = "zeros",
        rng: tc.Generator | None = None,
    ) -> None:
        self.num_heads = positive(self, "num_heads", num_heads)
        self.key_dim = positive(self, "key_dim", key_dim)
        self.value_dim = self.key_dim if value_dim is None else positive(self, "value_dim", value_dim)
        self.dropout = fraction(self, "dropout", dropout)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.rng = rng
        self.query_kernel: tc.Variable | None = None
        self.query_bias: tc.Variable | None = None
        self.key_kernel: tc.Variable | None = None
        self.key_bias: tc.Variable | None = None
        self.value_kernel: tc.Variable | None = None
        self.value_bias: tc.Variable | None = None
        self.output_kernel: tc.Variable | None = None
        self.output_bias: tc.Variable | None = None

    def __call__(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Shape `(examples, queries, features of query)`; with `return_attention_scores` the weights, too.

        Args:
            query: `(examples, queries, features)`.
            value: `(examples, keys, features)`.
            key: `(examples, keys, features)`; by default `value`.
            attention_mask: booleans, True where a query may attend to a key: `(queries, keys)`,
                `(examples, queries, keys)` or `(examples, heads, queries, keys)`, or what broadcasts to it. A query
                that may attend to none gets zeros from all heads.
            return_attention_scores: whether to return the weights, `(examples, heads, queries, keys)`, after dropout.
            use_causal_mask: whether each query may attend only to the keys up to its own number.
            training: says what this call is; by default the module's mode does.
        """
        query, value = (x if isinstance(x, tc.Tensor) else tc.asarray(x) for x in (query, value))
        key = value if key is None else key if isinstance(key, tc.Tensor) else tc.asarray(key)
        if not self.built:
            self._build_beside(query, query.shape, value.shape, key.shape)
        mask = _per_head(attention_mask, query)
        q = self._heads("query", query, self.query_kernel, self.query_bias)
        k = self._heads("key", key, self.key_kernel, self.key_bias)
        v = self._heads("value", value, self.value_kernel, self.value_bias)
        training = self.training if training is None else training
        weights = None
        if return_attention_scores or (training and self.dropout > 0):
            # The means of the rows of an identity are the weights themselves.
            one = tc.eye(k.shape[-2], dtype=k.dtype, backend=k.backend.root, device=k.device)
            weights = tc.scaled_dot_product_attention(q, k, one, mask, is_causal=use_causal_mask)
            weights = tc.dropout(weights, self.dropout, training=training, rng=self.rng)
            found = tc.matmul(weights, v)
        else:
            found = tc.scaled_dot_product_attention(q, k, v, mask, is_causal=use_causal_mask)
        found = tc.permute_dims(found, (0, 2, 1, 3))
        n, steps = found.shape[:2]
        width = self.num_heads * self.value_dim
        assert self.output_kernel is not None
        y = tc.matmul(tc.reshape(found, (n, steps, width)), tc.reshape(self._value(self.output_kernel), (width, -1)))
        if self.output_bias is not None:
            y = y + self._value(self.output_bias)
        return (y, weights) if return_attention_scores else y

    def build(
        self,
        query_shape: Shape,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
        *,
        dtype: Any = None,
        backend: Any = None,
        device: str | None = None,
    ) -> None:
        """Make the Variables for these inputs; by default the value is like the query, the key like the value."""
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        with BUILDING.now:
            # What _create needs of the others.
            self._others = [self._demand(tuple(shape))[-1] for shape in (value_shape, key_shape)]
            super().build(query_shape, dtype=dtype, backend=backend, device=device)

    def _heads(self, name: str, x: tc.Tensor, kernel: Any, bias: Any) -> tc.Tensor:
        """The projection for each head, `(examples, heads, steps, length)`."""
        features, heads, length = kernel.shape
        if x.ndim != 3 or x.shape[-1] != features:
            raise ValueError(
                f"MultiHeadAttention was built for {name} of shape (examples, steps, {features}); got shape {x.shape}"
            )
        y = tc.matmul(self._cast(x), tc.reshape(self._value(kernel), (features, heads * length)))
        y = tc.reshape(y, (*x.shape[:2], heads, length))
        if bias is not None:
            y = y + self._value(bias)
        return tc.permute_dims(y, (0, 2, 1, 3))

    def _create(self, add: Add, shape: Any) -> None:
        features, heads = shape[-1], self.num_heads
        value_features, key_features = self._others
        for name, inputs, length in (
            ("query", features, self.key_dim),
            ("key", key_features, self.key_dim),
            ("value", value_features, self.value_dim),
        ):
            add(f"{name}_kernel", (inputs, heads, length), self._matrix(inputs, heads * length))
            if self.use_bias:
                add(f"{name}_bias", (heads, length), self.bias_initializer)
        matrix = self._matrix(heads * self.value_dim, features)
        add("output_kernel", (heads, self.value_dim, features), matrix)
        if self.use_bias:
            add("output_bias", (features,), self.bias_initializer)

    def _matrix(self, rows: int, columns: int) -> Initializer:
        def initializer(shape: tuple[int, ...], **keywords: Any) -> tc.Tensor:
            return tc.reshape(self.kernel_initializer((rows, columns), **keywords), shape)

        return initializer


def _per_head(mask: Any, query: tc.Tensor) -> Any:
    """The mask with an axis for the heads."""
    if mask is None:
        return None
    if not isinstance(mask, tc.Tensor):
        mask = tc.asarray(mask, backend=query.backend.root, device=query.device)
    if mask.dtype is not tc.bool or not 2 <= mask.ndim <= 4:
        raise ValueError(
            "MultiHeadAttention: attention_mask must be boolean, True where a query may attend to a key, of shape "
            f"(queries, keys), (examples, queries, keys) or (examples, heads, queries, keys); got dtype {mask.dtype}, "
            f"shape {mask.shape}"
        )
    return tc.expand_dims(mask, axis=1) if mask.ndim == 3 else mask
