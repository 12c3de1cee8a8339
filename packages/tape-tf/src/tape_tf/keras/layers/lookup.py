"""StringLookup and IntegerLookup: tokens to their numbers in a vocabulary, and back."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import convert_to_tensor, native
from tape_tf.data import Dataset
from tape_tf.errors import InvalidArgumentError
from tape_tf.hashing import fingerprint64
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.symbolic import is_probing
from tape_tf.ops.ragged import RaggedTensor
from tape_tf.ops.text import decoded, encoded
from tape_tf.string_tensor import StringTensor, as_strings, is_text, strings_of, wrap_strings
from tape_tf.tensor import Tensor, Value, wrap_tensor
from tape_tf.typing import NumPyArray, PathLike, TensorLike

_MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")
_OLD_MODES = {"binary": "multi_hot", "tf-idf": "tf_idf"}  # Keras 2's names


def refuse_files(config: dict[str, Any], kind: str) -> None:
    """Raise a ValueError for a description whose vocabulary is the path of a file."""
    if isinstance(config.get("vocabulary"), str | os.PathLike):
        raise ValueError(
            f"{kind}: a description has the words of a vocabulary, and names no file: {config['vocabulary']!r} is not "
            "read"
        )


def text_argument(value: Any) -> Any:
    """Return text, which a layer of strings is called with, as a tensor of strings; anything else as it is."""
    return as_strings(value) if is_text(value) else value


class IndexLookup(Layer):
    """The base class of StringLookup and IntegerLookup."""

    __tf_differs__ = "the vocabulary is a part of the config; no sparse output"

    _of_strings: bool

    def __init__(
        self,
        max_tokens: int | None,
        num_oov_indices: int,
        mask_token: Any,
        oov_token: Any,
        vocabulary: Any,
        idf_weights: Any,
        invert: bool,
        output_mode: str,
        sparse: bool,
        pad_to_max_tokens: bool,
        options: dict[str, Any],
    ) -> None:
        kind = type(self).__name__
        for name in ("vocabulary_size", "has_input_vocabulary"):
            options.pop(name, None)  # which Keras writes into configs
        super().__init__(**options)
        mode = _OLD_MODES.get(output_mode, output_mode)
        if mode not in _MODES:
            raise ValueError(f"{kind}: output_mode must be one of {', '.join(_MODES)}; got {output_mode!r}")
        if max_tokens is not None and max_tokens <= 1:
            raise ValueError(f"{kind}: max_tokens must be greater than 1; got {max_tokens}")
        if pad_to_max_tokens and max_tokens is None:
            raise ValueError(f"{kind}: pad_to_max_tokens needs max_tokens")
        if num_oov_indices < 0:
            raise ValueError(f"{kind}: num_oov_indices must not be negative; got {num_oov_indices}")
        if invert and mode != "int":
            raise ValueError(f'{kind}: output_mode must be "int" when invert is true; got {mode!r}')
        if sparse:
            raise ValueError(f"{kind}: there are no sparse tensors: leave sparse=True out")
        if (idf_weights is not None) and mode != "tf_idf":
            raise ValueError(f'{kind}: idf_weights are for output_mode="tf_idf"; got {mode!r}')
        self.max_tokens, self.num_oov_indices = max_tokens, num_oov_indices
        self.mask_token, self.oov_token = mask_token, oov_token
        self.invert, self.output_mode, self.pad_to_max_tokens = invert, mode, pad_to_max_tokens
        self.idf_weights: Any = None
        self._tokens: list[Any] = []  # without the special ones
        self._numbers: dict[Any, int] = {}
        self._is_given = vocabulary is not None
        self.reset_state()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)
        self.built = True

    # -- the vocabulary

    @property
    def _oov_start(self) -> int:
        return 1 if self.mask_token is not None and self.output_mode == "int" else 0

    @property
    def _token_start(self) -> int:
        return self._oov_start + self.num_oov_indices

    def _as_token(self, value: Any) -> Any:
        """Return a token as it is kept: bytes, or an int."""
        if self._of_strings:
            return strings_of(value).item()
        return int(value)

    def _shown(self, token: Any) -> Any:
        return decoded(token) if isinstance(token, bytes) else token

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Return the tokens in the order of their numbers.

        Args:
            include_special_tokens: with those for masks and unknown tokens in front.
        """
        found = [self._shown(token) for token in self._tokens]
        if not include_special_tokens:
            return found
        special = [self.mask_token] * self._oov_start + [self.oov_token] * self.num_oov_indices
        return special + found

    def vocabulary_size(self) -> int:
        """Return the number of tokens, with the special ones."""
        return self._token_start + len(self._tokens)

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Set the tokens, with or without the special ones in front.

        Args:
            vocabulary: a list, an array, a tensor, or the path of a text file with a token on each line.
            idf_weights: for `output_mode="tf_idf"` the weight of each token.

        Raises:
            ValueError: a token is there twice, is a special one, or there are more than `max_tokens`.
        """
        kind = type(self).__name__
        if isinstance(vocabulary, str | os.PathLike):
            with open(vocabulary, encoding="utf-8") as file:
                lines = file.read().splitlines()
            vocabulary = lines if self._of_strings else list(map(int, lines))
        if isinstance(vocabulary, Value):
            vocabulary = vocabulary.numpy()
        tokens = [self._as_token(token) for token in vocabulary]
        special = [self.mask_token] * self._oov_start + [self.oov_token] * self.num_oov_indices
        special = [self._as_token(token) if token is not None else None for token in special]
        weights = None if idf_weights is None else np.asarray(idf_weights, np.float32)
        if special and tokens[: len(special)] == special:
            tokens = tokens[len(special) :]
            if weights is not None:
                weights = weights[len(special) :]
        if repeated := [token for token, count in Counter(tokens).items() if count > 1]:
            raise ValueError(f"{kind}: the vocabulary has {self._shown(repeated[0])!r} more than once")
        for name, token in (("mask_token", self.mask_token), ("oov_token", self.oov_token)):
            if token is not None and self._as_token(token) in tokens and not (name == "oov_token" and self.invert):
                raise ValueError(
                    f"{kind}: the vocabulary has the {name} {token!r} in the middle: special tokens come first, as "
                    f"{self.get_vocabulary()[: self._token_start]}, or not at all"
                )
        if self.max_tokens is not None and self._token_start + len(tokens) > self.max_tokens:
            raise ValueError(
                f"{kind}: the vocabulary has {self._token_start + len(tokens)} tokens with the special ones, more than "
                f"max_tokens={self.max_tokens}"
            )
        if self.output_mode == "tf_idf":
            if weights is None or len(weights) != len(tokens):
                raise ValueError(f'{kind}: output_mode="tf_idf" needs idf_weights, one for each token')
            self._set_weights(weights)
        self._tokens = tokens
        self._numbers = {token: k + self._token_start for k, token in enumerate(tokens)}

    def _set_weights(self, weights: NumPyArray) -> None:
        # An unknown token weighs as much as the mean of the known ones.
        unknown = np.full(self._token_start, weights.mean() if len(weights) else 0, np.float32)
        self.idf_weights = np.concatenate([unknown, weights]).astype(np.float32)

    # -- learning it

    def reset_state(self) -> None:
        """Forget what :meth:`update_state` has counted."""
        self._counts: Counter[Any] = Counter()
        self._documents: Counter[Any] = Counter()
        self._document_count = 0

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learn the vocabulary: the tokens of data, the most frequent first.

        Args:
            data: an array, a list, a tensor, or a `tf.data.Dataset` of batches.
            batch_size: no effect.
            steps: the number of batches to read; all by default.
        """
        self.reset_state()
        for batch in batches_of(data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Count the tokens of a batch; :meth:`finalize_state` makes the vocabulary."""
        if self._is_given:
            raise ValueError(
                f"Cannot adapt layer '{self.name}' after setting a static vocabulary via `vocabulary` argument"
            )
        rows = self._rows(data)
        for row in rows:
            self._counts.update(row)
            self._documents.update(set(row))
        self._document_count += len(rows)

    def _rows(self, data: Any) -> list[list[Any]]:
        """Return the tokens of each example."""
        if isinstance(data, RaggedTensor):
            return data.to_list()
        values = strings_of(data) if self._of_strings else np.asarray(data)
        values = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(-1, 1)
        found: list[list[Any]] = values.tolist()
        return found

    def finalize_state(self) -> None:
        """Make the vocabulary of what :meth:`update_state` has counted."""
        if self._is_given or not self._counts:
            return
        for token in (self.mask_token, self.oov_token):
            if token is not None:
                self._counts.pop(self._as_token(token), None)
        # Keras' order: those of one count in the reverse order of their names.
        tokens = sorted(self._counts, key=lambda token: (self._counts[token], token), reverse=True)
        if self.max_tokens is not None:
            tokens = tokens[: max(self.max_tokens - self._token_start, 0)]
        if self.output_mode == "tf_idf":
            documents = np.array([self._documents[token] for token in tokens], np.float64)
            self._set_weights(np.log(1 + self._document_count / (1 + documents)).astype(np.float32))
        self._tokens = tokens
        self._numbers = {token: k + self._token_start for k, token in enumerate(tokens)}
        self.reset_state()

    # -- the call

    def _convert_argument(self, value: Any, first: bool) -> Any:
        if first and isinstance(value, RaggedTensor):
            return value
        return super()._convert_argument(text_argument(value) if first else value, first)

    def call(self, inputs: TensorLike | RaggedTensor) -> Any:
        """Look tokens up."""
        if isinstance(inputs, RaggedTensor):
            found: Any = inputs.with_flat_values(self._look_up(inputs.flat_values))
        else:
            found = self._look_up(inputs)
        return found if self.output_mode == "int" else self._encode(found)

    def _look_up(self, inputs: Any) -> Tensor:
        if self.invert:
            return self._look_back(inputs)
        if isinstance(inputs, StringTensor) is not self._of_strings:
            raise ValueError(
                f"Layer {self.name!r} takes {'strings' if self._of_strings else 'integers'}; got {inputs!r}"
            )
        if not self._of_strings:
            return wrap_tensor(self._look_up_integers(native(inputs)))
        strings = strings_of(inputs)
        distinct, places = np.unique(strings.ravel(), return_inverse=True)
        numbers = np.array([self._number(token) for token in distinct], np.int64)
        return convert_to_tensor(
            numbers[places].reshape(strings.shape) if len(numbers) else np.empty(strings.shape, int)
        )

    def _number(self, token: bytes) -> int:
        if self.mask_token is not None and token == encoded(str(self.mask_token)):
            return 0 if self.output_mode == "int" else -1
        found = self._numbers.get(token)
        if found is not None:
            return found
        if self.num_oov_indices == 0:
            if is_probing():
                return 0
            raise InvalidArgumentError(
                None,
                None,
                f"When `num_oov_indices=0` all inputs should be in vocabulary, found OOV value {decoded(token)!r}, "
                "consider setting `num_oov_indices=1`.",
            )
        if self.num_oov_indices == 1:
            return self._oov_start
        return self._oov_start + fingerprint64(token) % self.num_oov_indices

    def _look_up_integers(self, x: tc.Tensor) -> tc.Tensor:
        """Look integers up by a binary search, in operations that are compiled."""
        where: dict[str, Any] = {"dtype": tc.int64, "backend": x.backend.root, "device": x.device}
        x = tc.astype(x, tc.int64)
        unknown = self._oov_start + x % self.num_oov_indices if self.num_oov_indices else tc.full_like(x, -1)
        if self._tokens:
            keys = np.array(self._tokens, np.int64)
            order = np.argsort(keys)
            sorted_keys = tc.asarray(keys[order], **where)
            numbers = tc.asarray(order + self._token_start, **where)
            flat = tc.reshape(x, (-1,))
            places = tc.minimum(tc.searchsorted(sorted_keys, flat), tc.asarray(len(keys) - 1, **where))
            is_known = tc.take(sorted_keys, places, axis=0) == flat
            found = tc.where(is_known, tc.take(numbers, places, axis=0), tc.reshape(unknown, (-1,)))
            found = tc.reshape(found, x.shape)
        else:
            found = unknown
        if self.mask_token is not None:
            found = tc.where(x == int(self.mask_token), 0 if self.output_mode == "int" else -1, found)
        if self.num_oov_indices == 0 and self.mask_token is None and not is_probing():
            missing = wrap_tensor(x).numpy()[wrap_tensor(found).numpy() == -1]
            if missing.size:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"When `num_oov_indices=0` all inputs should be in vocabulary, found OOV values {missing}, "
                    "consider setting `num_oov_indices=1`.",
                )
        return found

    def _look_back(self, inputs: Any) -> Tensor:
        """Return the tokens of numbers."""
        tokens = self.get_vocabulary()
        if not self._of_strings:
            table = convert_to_tensor(np.array([*tokens, self.oov_token], np.int64))
            numbers = tc.astype(native(inputs), tc.int64)
            outside = tc.logical_or(numbers < 0, numbers >= len(tokens))
            return wrap_tensor(tc.take(table.native, tc.where(outside, len(tokens), numbers), axis=0))
        found = np.asarray(convert_to_tensor(inputs).numpy())
        out = np.empty(found.size, object)
        unknown = encoded(str(self.oov_token))
        kept = [encoded(str(token)) for token in tokens]
        out[:] = [kept[k] if 0 <= k < len(kept) else unknown for k in found.ravel().tolist()]
        return wrap_strings(out.reshape(found.shape))

    def _encode(self, numbers: Tensor | RaggedTensor) -> Tensor:
        """Return a vector for each example: which tokens it has, how many, or their weights."""
        depth = self.max_tokens if self.pad_to_max_tokens else self.vocabulary_size()
        assert depth is not None
        if not self._tokens and not self.pad_to_max_tokens:
            raise RuntimeError(
                f"When using `output_mode={self.output_mode}` and `pad_to_max_tokens=False`, you must set the layer's "
                "vocabulary before calling it: pass `vocabulary`, or call `adapt`"
            )
        if isinstance(numbers, RaggedTensor):
            rows = [np.asarray(row) for row in numbers.to_list()]
            shape: tuple[int, ...] = (len(rows),)
        else:
            values = np.asarray(numbers.numpy())
            values = values.reshape(1) if values.ndim == 0 else values
            if self.output_mode == "one_hot" and (values.ndim == 1 or values.shape[-1] != 1):
                values = values[..., None]
            rows, shape = list(values.reshape(-1, values.shape[-1])), values.shape[:-1]
        out = np.zeros((len(rows), depth), np.int64)
        for row, target in zip(rows, out, strict=True):
            np.add.at(target, row[row >= 0].astype(np.int64), 1)
        if self.output_mode in ("one_hot", "multi_hot"):
            out = np.minimum(out, 1)
        found = out.reshape(*shape, depth)
        if self.output_mode == "tf_idf":
            weights = np.zeros(depth, np.float32)
            weights[: len(self.idf_weights)] = self.idf_weights[:depth]
            return convert_to_tensor(found.astype(np.float32) * weights)
        return convert_to_tensor(found)

    # -- in files

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer, with the vocabulary that it has learned."""
        names = (
            "max_tokens",
            "num_oov_indices",
            "mask_token",
            "oov_token",
            "invert",
            "output_mode",
            "pad_to_max_tokens",
        )
        found = super().get_config() | {name: getattr(self, name) for name in names}
        found["vocabulary"] = self.get_vocabulary(include_special_tokens=False) if self._tokens else None
        found["idf_weights"] = None
        if self.idf_weights is not None:
            found["idf_weights"] = self.idf_weights[self._token_start :].tolist()
        return found

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a layer of a description.

        Raises:
            ValueError: it names a file: a description that comes from a file could name any.
        """
        refuse_files(config, cls.__name__)
        return super().from_config(config)

    def save_assets(self, dir_path: PathLike) -> None:
        """Write the vocabulary to `vocabulary.txt` in a folder, as Keras does."""
        with open(os.path.join(dir_path, "vocabulary.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(map(str, self.get_vocabulary())))

    def load_assets(self, dir_path: PathLike) -> None:
        """Read the vocabulary that :meth:`save_assets`, or Keras, wrote."""
        with open(os.path.join(dir_path, "vocabulary.txt"), encoding="utf-8") as file:
            lines = file.read().split("\n")
        weights = None if self.idf_weights is None else self.idf_weights[self._token_start :]
        self.set_vocabulary(lines if self._of_strings else list(map(int, lines)), weights)


def batches_of(data: Any, steps: int | None) -> Iterable[Any]:
    """Return the batches that `adapt` reads."""
    if isinstance(data, Dataset) or not (
        isinstance(data, list | tuple | np.ndarray | Value | RaggedTensor) or is_text(data)
    ):
        return (batch for k, batch in enumerate(data) if steps is None or k < steps)
    return [data]


class StringLookup(IndexLookup):
    """Map strings to their numbers in a vocabulary, or with `invert` numbers to strings.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.StringLookup(vocabulary=["a", "b"])
    >>> layer([["a", "c"], ["b", "a"]]).numpy().tolist()
    [[1, 0], [2, 1]]
    >>> layer.get_vocabulary()
    ['[UNK]', 'a', 'b']
    >>> tf.keras.layers.StringLookup(vocabulary=["a", "b"], invert=True)([2, 0]).numpy().tolist()
    [b'b', b'[UNK]']

    Args:
        max_tokens: the most tokens, with the special ones, that `adapt` keeps.
        num_oov_indices: how many numbers there are for unknown tokens, told apart by a hash; with 0 an unknown token
            is an error.
        mask_token: a token with the number 0 (output_mode "int") or none at all.
        oov_token: what unknown tokens are called.
        vocabulary: the tokens, or the path of a text file; otherwise call `adapt`.
        idf_weights: their weights for "tf_idf".
        invert: map numbers to tokens.
        output_mode: "int"; or a vector for each example: "one_hot", "multi_hot", "count" or "tf_idf".
        pad_to_max_tokens: make those vectors `max_tokens` long.

    Raises:
        ValueError: arguments do not fit together.
    """

    _of_strings = True

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: str | None = None,
        oov_token: str = "[UNK]",
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        encoding: str = "utf-8",
        **kwargs: Any,
    ) -> None:
        if encoding != "utf-8":
            raise ValueError(
                f"StringLookup: encoding must be 'utf-8', got {encoding!r}; use tf.strings.unicode_transcode"
            )
        for name in ("salt", "oov_method", "vocabulary_dtype"):
            kwargs.pop(name, None)  # which Keras writes into configs
        super().__init__(
            max_tokens, num_oov_indices, mask_token, oov_token, vocabulary, idf_weights, invert, output_mode, sparse,
            pad_to_max_tokens, kwargs,
        )  # fmt: skip


class IntegerLookup(IndexLookup):
    """Map integers to their numbers in a vocabulary, or with `invert` back.

    >>> import tape_tf as tf
    >>> tf.keras.layers.IntegerLookup(vocabulary=[12, 36, 1138])([[12, 1138], [36, 7]]).numpy().tolist()
    [[1, 3], [2, 0]]

    Args:
        max_tokens, num_oov_indices, mask_token, oov_token, vocabulary, idf_weights, invert, output_mode,
            pad_to_max_tokens: as for :class:`StringLookup`; unknown integers are told apart by their remainder.
        vocabulary_dtype: "int64".
    """

    _of_strings = False

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: int | None = None,
        oov_token: int = -1,
        vocabulary: Any = None,
        vocabulary_dtype: str = "int64",
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        **kwargs: Any,
    ) -> None:
        if not dtypes.as_dtype(vocabulary_dtype).is_integer:
            raise ValueError(f"IntegerLookup: vocabulary_dtype must be one of integers; got {vocabulary_dtype!r}")
        for name in ("salt", "oov_method"):
            kwargs.pop(name, None)
        super().__init__(
            max_tokens, num_oov_indices, mask_token, oov_token, vocabulary, idf_weights, invert, output_mode, sparse,
            pad_to_max_tokens, kwargs,
        )  # fmt: skip
