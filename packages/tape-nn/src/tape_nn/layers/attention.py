"""Multi-head attention."""

from __future__ import annotations

from typing import Any

import tape_core as tc
from tape_core.typing import ArrayLike, DTypeLike

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.layers.base import BUILDING, AddVariable, Layer, Shape, check_fraction, check_positive_integer
from tape_nn.types import BackendLike


class MultiHeadAttention(Layer):
    """Multi-head attention (Vaswani and others, 2017), with Keras' arguments and weights.

    Queries, keys and values are projected for each head. In a head, each query gets the mean of the values with the
    weights `softmax(query @ key.mT / sqrt(key_dim))`. The results of all heads are projected to the features of the
    query.

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
        num_heads: the number of heads.
        key_dim: the length of a head's queries and keys.
        value_dim: the length of a head's values; by default `key_dim`.
        dropout: the probability that an attention weight is dropped in training.
        use_bias: whether to add biases to the projections.
        kernel_initializer, bias_initializer, rng: as for :class:`Dense`. A kernel is initialized as one matrix for all
            heads together. `rng` is used for dropout, too.
    """

    _input_ndim = 3
    _input_form = "(examples, steps, features)"

    draws_from_rng = True

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
        self.num_heads = check_positive_integer(self, "num_heads", num_heads)
        self.key_dim = check_positive_integer(self, "key_dim", key_dim)
        self.value_dim = self.key_dim if value_dim is None else check_positive_integer(self, "value_dim", value_dim)
        self.dropout = check_fraction(self, "dropout", dropout)
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
        query: ArrayLike,
        value: ArrayLike,
        key: ArrayLike | None = None,
        attention_mask: ArrayLike | None = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Attend; return shape `(examples, queries, features of query)`, and with `return_attention_scores` weights.

        Args:
            query: `(examples, queries, features)`.
            value: `(examples, keys, features)`.
            key: `(examples, keys, features)`; by default `value`.
            attention_mask: booleans, True where a query may attend to a key: `(queries, keys)`,
                `(examples, queries, keys)` or `(examples, heads, queries, keys)`, or a shape that broadcasts to it. A
                query that may attend to no key gets zeros from all heads.
            return_attention_scores: whether to return the weights after dropout, `(examples, heads, queries, keys)`.
            use_causal_mask: whether query number i may attend only to keys up to number i.
            training: whether this call is training; by default the module's mode.
        """
        query, value = self._as_tensor(query), self._as_tensor(value)
        key = value if key is None else self._as_tensor(key)
        if not self.built:
            self._build_like(query, query.shape, value.shape, key.shape)
        mask = _mask_for_heads(attention_mask, query)
        q = self._project_to_heads("query", query, self.query_kernel, self.query_bias)
        k = self._project_to_heads("key", key, self.key_kernel, self.key_bias)
        v = self._project_to_heads("value", value, self.value_kernel, self.value_bias)
        training = self.training if training is None else training
        weights = None
        if return_attention_scores or (training and self.dropout > 0):
            # The op returns no weights. With an identity matrix as values it returns `weights @ identity`.
            identity = tc.eye(k.shape[-2], dtype=k.dtype, backend=k.backend.root, device=k.device)
            weights = tc.scaled_dot_product_attention(q, k, identity, mask, is_causal=use_causal_mask)
            weights = tc.dropout(weights, self.dropout, training=training, rng=self.rng)
            found = tc.matmul(weights, v)
        else:
            found = tc.scaled_dot_product_attention(q, k, v, mask, is_causal=use_causal_mask)
        found = tc.permute_dims(found, (0, 2, 1, 3))
        n, steps = found.shape[:2]
        width = self.num_heads * self.value_dim
        assert self.output_kernel is not None
        matrix = tc.reshape(self._cast_variable(self.output_kernel), (width, -1))
        y = tc.matmul(tc.reshape(found, (n, steps, width)), matrix)
        if self.output_bias is not None:
            y = y + self._cast_variable(self.output_bias)
        return (y, weights) if return_attention_scores else y

    def build(
        self,
        query_shape: Shape,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
        *,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> None:
        """Make the Variables for inputs of these shapes. `value_shape` defaults to the query's, `key_shape` to that."""
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        with BUILDING.now:
            # `_create_variables` gets the shape of the query alone.
            self._value_and_key_features = [self._sized_lengths(tuple(shape))[-1] for shape in (value_shape, key_shape)]
            super().build(query_shape, dtype=dtype, backend=backend, device=device)

    def _project_to_heads(
        self, name: str, x: tc.Tensor, kernel: tc.Variable | None, bias: tc.Variable | None
    ) -> tc.Tensor:
        """Return the projection of `x` for each head, of shape `(examples, heads, steps, length)`."""
        assert kernel is not None
        features, heads, length = kernel.shape
        if x.ndim != 3 or x.shape[-1] != features:
            raise ValueError(
                f"MultiHeadAttention was built for {name} of shape (examples, steps, {features}); got shape {x.shape}"
            )
        # All heads in one product of matrices, which array libraries are fastest at.
        y = tc.matmul(self._cast(x), tc.reshape(self._cast_variable(kernel), (features, heads * length)))
        y = tc.reshape(y, (*x.shape[:2], heads, length))
        if bias is not None:
            y = y + self._cast_variable(bias)
        return tc.permute_dims(y, (0, 2, 1, 3))

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        features, heads = shape[-1], self.num_heads
        value_features, key_features = self._value_and_key_features
        # The order of the Variables is that of the weights in Keras.
        for name, inputs, length in (
            ("query", features, self.key_dim),
            ("key", key_features, self.key_dim),
            ("value", value_features, self.value_dim),
        ):
            add(f"{name}_kernel", (inputs, heads, length), self._initializer_as_matrix(inputs, heads * length))
            if self.use_bias:
                add(f"{name}_bias", (heads, length), self.bias_initializer)
        # By the shapes of the kernels themselves, three-dimensional, the fans would be those of a convolution.
        matrix = self._initializer_as_matrix(heads * self.value_dim, features)
        add("output_kernel", (heads, self.value_dim, features), matrix)
        if self.use_bias:
            add("output_bias", (features,), self.bias_initializer)

    def _initializer_as_matrix(self, rows: int, columns: int) -> Initializer:
        """Return an initializer that calls the layer's own with a matrix's shape, for the right fan-in and fan-out."""

        def initializer(shape: tuple[int, ...], **keywords: Any) -> tc.Tensor:
            return tc.reshape(self.kernel_initializer((rows, columns), **keywords), shape)

        return initializer


def _mask_for_heads(mask: ArrayLike | None, query: tc.Tensor) -> tc.Tensor | None:
    """Return the mask in a shape that broadcasts over the heads.

    Raises:
        ValueError: it is not boolean, or has not 2 to 4 dimensions.
    """
    if mask is None:
        return None
    if not isinstance(mask, tc.Tensor):
        mask = tc.asarray(mask, backend=query.backend.root, device=query.device)
    # Not numbers, which are ambiguous: PyTorch adds a mask of floats to the scores, Keras takes 1 for "may attend".
    if mask.dtype is not tc.bool or not 2 <= mask.ndim <= 4:
        raise ValueError(
            "MultiHeadAttention: attention_mask must be boolean, True where a query may attend to a key, of shape "
            f"(queries, keys), (examples, queries, keys) or (examples, heads, queries, keys); got dtype {mask.dtype}, "
            f"shape {mask.shape}"
        )
    return tc.expand_dims(mask, axis=1) if mask.ndim == 3 else mask
