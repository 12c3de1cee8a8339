"""Layers that turn numbers and classes into vectors: CategoryEncoding and Discretization."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.data import Dataset
from tape_tf.keras.conversion import cast
from tape_tf.keras.layers.base import Layer
from tape_tf.tensor import Tensor
from tape_tf.typing import TensorLike

MODES = ("one_hot", "multi_hot", "count")


def encode(layer: Layer, ids: tc.Tensor, depth: int, mode: str, weights: tc.Tensor | None = None) -> Tensor:
    """Return class numbers as vectors of length `depth`.

    Args:
        mode: "one_hot" for a vector for each number; "multi_hot" and "count" for one for each example, with 1 for the
            numbers that occur, or how often they do.
        weights: what an occurrence counts.
    """
    if ids.ndim == 0:
        ids = tc.reshape(ids, (1,))
    if mode == "one_hot" and ids.ndim > 1 and ids.shape[-1] == 1:
        ids = tc.squeeze(ids, axis=-1)
    if not ids.dtype.kind.endswith("integer"):
        ids = tc.astype(ids, tc.int64)
    where: dict[str, Any] = {
        "dtype": getattr(tc, layer.dtype),
        "backend": ids.backend.root,
        "device": ids.device,
    }
    # Rows of a unit matrix, and not tc.one_hot: a number that is no class is an error, and not a vector of zeros.
    vectors = tc.stop_gradient(tc.gather(tc.eye(depth, **where), ids))
    if mode == "one_hot":
        return wrap(vectors)  # type: ignore[no-any-return]
    axis = 1 if ids.ndim > 1 else 0
    if mode == "multi_hot":
        return wrap(tc.max(vectors, axis=axis))  # type: ignore[no-any-return]
    if weights is not None:
        vectors = vectors * tc.expand_dims(weights, axis=-1)
    return wrap(tc.sum(vectors, axis=axis))  # type: ignore[no-any-return]


class CategoryEncoding(Layer):
    """Turn class numbers into vectors of zeros and ones, or of counts.

    >>> import tape_tf as tf
    >>> tf.keras.layers.CategoryEncoding(num_tokens=4, output_mode="multi_hot")([[0, 2], [3, 3]]).numpy()
    array([[1., 0., 1., 0.],
           [0., 0., 0., 1.]], dtype=float32)

    Args:
        num_tokens: the number of classes.
        output_mode: "one_hot" for a vector for each number; "multi_hot" or "count" for one for each example.
        sparse: must be False.

    Raises:
        IndexError: in a call: a number is no class.
    """

    def __init__(
        self, num_tokens: int | None = None, output_mode: str = "multi_hot", sparse: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        mode = "multi_hot" if output_mode == "binary" else output_mode
        if mode not in MODES:
            raise ValueError(f"CategoryEncoding: output_mode must be one of {', '.join(MODES)}; got {output_mode!r}")
        if num_tokens is None or num_tokens < 1:
            raise ValueError(f"CategoryEncoding: num_tokens must be a number of at least 1; got {num_tokens}")
        if sparse:
            raise ValueError("CategoryEncoding: there are no sparse tensors; leave sparse out")
        self.num_tokens, self.output_mode = int(num_tokens), mode

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(self.num_tokens, self.num_tokens), *[(*shape, self.num_tokens) for shape in shapes]]

    def call(self, inputs: TensorLike, count_weights: TensorLike | None = None) -> Tensor:
        """Return the vectors.

        Args:
            count_weights: with "count", what each number counts, of the shape of `inputs`.
        """
        if count_weights is not None and self.output_mode != "count":
            raise ValueError(f"CategoryEncoding: count_weights go with output_mode='count', not {self.output_mode!r}")
        weights = None if count_weights is None else cast(count_weights, self.compute_dtype)
        return encode(self, native(inputs), self.num_tokens, self.output_mode, weights)


class Discretization(Layer):
    """Turn numbers into those of the bins that they lie in.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Discretization(bin_boundaries=[0.0, 1.0])([[-1.5, 0.0, 7.0]]).numpy()
    array([[0, 1, 2]], dtype=int32)

    Args:
        bin_boundaries: the boundaries, in order; a number equal to one lies in the bin above.
        num_bins: in place of boundaries: `adapt` finds some between which lie equally many numbers.
        epsilon: no effect: quantiles are exact.
        output_mode: "int" for the numbers of bins, or a mode of :class:`CategoryEncoding`.
        sparse: must be False.
    """

    __tf_differs__ = "quantiles of large data are exact"

    def __init__(
        self,
        bin_boundaries: Sequence[float] | None = None,
        num_bins: int | None = None,
        epsilon: float = 0.01,
        output_mode: str = "int",
        sparse: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if output_mode not in ("int", *MODES):
            raise ValueError(f"Discretization: output_mode must be one of int, {', '.join(MODES)}; got {output_mode!r}")
        if sparse:
            raise ValueError("Discretization: there are no sparse tensors; leave sparse out")
        if (bin_boundaries is None) == (num_bins is None):
            raise ValueError("Discretization: give either bin_boundaries or num_bins")
        self.num_bins, self.output_mode = num_bins, output_mode
        self.bin_boundaries = None if bin_boundaries is None else [float(end) for end in bin_boundaries]

    def adapt(self, data: TensorLike | Dataset, steps: int | None = None) -> None:
        """Find boundaries between which equally many numbers lie.

        Args:
            data: an array, or a `tf.data.Dataset` of batches.
            steps: the number of batches to read; all by default.
        """
        if self.num_bins is None:
            raise ValueError("Discretization: adapt needs num_bins; the boundaries were given")
        if isinstance(data, Dataset):
            batches = [np.ravel(np.asarray(batch)) for k, batch in enumerate(data) if steps is None or k < steps]
            values = np.concatenate(batches)
        else:
            values = np.ravel(np.asarray(cast(data).numpy()))
        if not values.size:
            raise ValueError("Discretization: there are no data to adapt to")
        share = np.arange(1, values.size + 1) / values.size
        wanted = np.arange(1, self.num_bins) / self.num_bins
        self.bin_boundaries = np.interp(wanted, share, np.sort(values.astype(np.float64))).tolist()

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer, with the boundaries that `adapt` found."""
        found = super().get_config() | {"bin_boundaries": self.bin_boundaries}
        return found if self.bin_boundaries is None else found | {"num_bins": None}

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        depth = len(self.bin_boundaries or ()) + 1
        return [] if self.output_mode == "int" else [(depth, depth), *[(*shape, depth) for shape in shapes]]

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the numbers of bins, or vectors."""
        if self.bin_boundaries is None:
            raise ValueError(f"Layer {self.name!r} has no boundaries yet: call adapt(data) before")
        value = native(inputs)
        if value.dtype.kind != "real floating":
            value = cast(wrap(value), self.compute_dtype)
        ends = tc.asarray(self.bin_boundaries, dtype=value.dtype, backend=value.backend.root, device=value.device)
        bins = tc.searchsorted(ends, value, side="right")
        if self.output_mode == "int":
            return wrap(tc.astype(bins, tc.int32))  # type: ignore[no-any-return]
        return encode(self, bins, len(self.bin_boundaries) + 1, self.output_mode)
