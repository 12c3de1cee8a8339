"""The layer Hashing: strings and integers to one of so many bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tape_tf.conversion import convert_to_tensor, native
from tape_tf.hashing import fingerprint64, siphash24
from tape_tf.keras import backend
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.encoding import MODES, encode
from tape_tf.keras.layers.lookup import text_argument
from tape_tf.ops.text import encoded
from tape_tf.string_tensor import StringTensor, strings_of
from tape_tf.tensor import Tensor
from tape_tf.typing import TensorLike


class Hashing(Layer):
    """Map strings and integers to the numbers of bins, by their hash: the numbers are those of Keras.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Hashing(num_bins=3)([["A"], ["B"], ["C"], ["D"], ["E"]]).numpy().ravel()
    array([1, 0, 1, 1, 2])

    Two of them may have one bin. Hashes are computed on the host.

    Args:
        num_bins: the number of bins.
        mask_value: what goes into bin 0, where nothing else goes then.
        salt: an integer, or two: another hash function (SipHash in place of FarmHash) for each.
        output_mode: "int" for the numbers of bins, or a mode of :class:`CategoryEncoding`.
        sparse: must be False.

    Raises:
        ValueError: an argument is not one of these.
        TypeError: in a call: the inputs are neither strings nor integers.
    """

    def __init__(
        self,
        num_bins: int,
        mask_value: str | int | None = None,
        salt: int | Sequence[int] | None = None,
        output_mode: str = "int",
        sparse: bool = False,
        **kwargs: Any,
    ) -> None:
        if output_mode not in ("int", *MODES):
            raise ValueError(f"Hashing: output_mode must be one of int, {', '.join(MODES)}; got {output_mode!r}")
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = "int64" if output_mode == "int" else backend.floatx()
        super().__init__(**kwargs)
        self._autocast = False  # a dtype of integers would cut floats, which are refused, to integers
        if not num_bins or num_bins < 0:
            raise ValueError(f"The `num_bins` for `Hashing` cannot be `None` or non-positive values, got {num_bins}")
        if output_mode == "int" and self.dtype not in ("int32", "int64"):
            raise ValueError(f"Hashing: with output_mode='int' the dtype must be int32 or int64, got {self.dtype}")
        if sparse:
            raise ValueError("Hashing: there are no sparse tensors; leave sparse out")
        self.num_bins, self.mask_value, self.output_mode = int(num_bins), mask_value, output_mode
        if salt is not None:
            salt = [salt, salt] if isinstance(salt, int) else [int(part) for part in salt]
            if len(salt) != 2:
                raise ValueError(f"The `salt` argument for `Hashing` must be an integer or two, got {salt}")
        self.salt: list[int] | None = salt

    def _convert_argument(self, value: Any, first: bool) -> Any:
        return super()._convert_argument(text_argument(value) if first else value, first)

    def _bin(self, text: bytes) -> int:
        if self.mask_value is not None:
            if text == encoded(str(self.mask_value)):
                return 0
            # Bin 0 belongs to the mask, unless there is no other.
            return 1 + self._hash(text) % (self.num_bins - 1) if self.num_bins > 1 else 0
        return self._hash(text) % self.num_bins

    def _hash(self, text: bytes) -> int:
        return fingerprint64(text) if self.salt is None else siphash24(text, (self.salt[0], self.salt[1]))

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the numbers of bins, or vectors."""
        if isinstance(inputs, StringTensor):
            values = strings_of(inputs)
            texts = values.ravel().tolist()
        else:
            values = np.asarray(convert_to_tensor(inputs).numpy())
            if values.dtype.kind not in "iu":
                raise TypeError(f"Layer {self.name!r} takes strings or integers; got {values.dtype}: cast it before")
            texts = [str(value).encode() for value in values.ravel().tolist()]
        bins = {text: self._bin(text) for text in set(texts)}
        found = np.array([bins[text] for text in texts], np.int64).reshape(values.shape)
        if self.output_mode == "int":
            return convert_to_tensor(found.astype(self.dtype))
        return encode(self, native(found), self.num_bins, self.output_mode)
