"""TextVectorization: texts to sequences of the numbers of their words, or to one vector for each text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tape_tf.conversion import convert_to_tensor
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.lookup import StringLookup, batches_of, refuse_files, text_argument
from tape_tf.ops.ragged import RaggedTensor
from tape_tf.ops.shaping import squeeze
from tape_tf.ops.text import Text, lower, ngrams, regex_replace, split, unicode_split
from tape_tf.string_tensor import as_strings
from tape_tf.tensor import Tensor
from tape_tf.typing import PathLike

_PUNCTUATION = r"""[!"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']"""
_STANDARDIZE = (None, "lower_and_strip_punctuation", "lower", "strip_punctuation")
_SPLIT = (None, "whitespace", "character")


class TextVectorization(Layer):
    """Turn texts into integers: small letters without punctuation, split at white space, and looked up.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.TextVectorization(output_sequence_length=4)
    >>> layer.adapt(["A good day.", "A good, good night!"])
    >>> layer.get_vocabulary()
    ['', '[UNK]', 'good', 'a', 'night', 'day']
    >>> layer(["a bad day", "good"]).numpy().tolist()
    [[3, 1, 5, 0], [2, 0, 0, 0]]

    Args:
        max_tokens: the most words, with the two special ones, that `adapt` keeps.
        standardize: "lower_and_strip_punctuation", "lower", "strip_punctuation", None, or a function of a tensor of
            strings.
        split: "whitespace", "character", None, or a function of a tensor of strings, such as `tf.strings.split`.
        ngrams: use groups of up to so many words as well; several numbers: groups of these lengths.
        output_mode: "int", or a vector for each text: "multi_hot", "count" or "tf_idf".
        output_sequence_length: pad or cut the sequences to this length; by default that of the longest in the batch.
        pad_to_max_tokens: make the vectors `max_tokens` long.
        vocabulary, idf_weights: as for :class:`StringLookup`; otherwise call `adapt`.
        ragged: return a ragged tensor.

    Raises:
        ValueError: arguments do not fit together.
    """

    __tf_differs__ = "the vocabulary is a part of the config; no sparse output"

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: Callable[[Any], Any] | str | None = "lower_and_strip_punctuation",
        split: Callable[[Any], Any] | str | None = "whitespace",
        ngrams: int | Sequence[int] | None = None,
        output_mode: str = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: Any = None,
        idf_weights: Any = None,
        sparse: bool = False,
        ragged: bool = False,
        encoding: str = "utf-8",
        **kwargs: Any,
    ) -> None:
        kwargs.pop("vocabulary_size", None)  # which Keras writes into configs
        super().__init__(**kwargs)
        for name, value, known in (("standardize", standardize, _STANDARDIZE), ("split", split, _SPLIT)):
            if not callable(value) and value not in known:
                raise ValueError(f"TextVectorization: {name} must be a function or one of {known}; got {value!r}")
        if output_mode != "int" and (output_sequence_length is not None or ragged):
            raise ValueError('TextVectorization: output_sequence_length and ragged are for output_mode="int"')
        if ragged and output_sequence_length is not None:
            raise ValueError("TextVectorization: a ragged output has no output_sequence_length")
        if output_mode == "one_hot":
            raise ValueError("TextVectorization: output_mode must be 'int', 'multi_hot', 'count' or 'tf_idf'")
        self.standardize, self.split, self.ngrams = standardize, split, ngrams
        self.output_mode, self.output_sequence_length, self.ragged = output_mode, output_sequence_length, ragged
        # A StringLookup with Keras' special tokens; it is no layer of this one: its state is in the config.
        self._lookup = (
            StringLookup(
                max_tokens, 1, "" if output_mode == "int" else None, "[UNK]", vocabulary, idf_weights, False,
                output_mode, pad_to_max_tokens, sparse, encoding,
            ),
        )  # fmt: skip
        self.built = True

    @property
    def _table(self) -> StringLookup:
        return self._lookup[0]

    @property
    def max_tokens(self) -> int | None:
        """The most words of the vocabulary."""
        return self._table.max_tokens

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """Return the words in the order of their numbers; with '' (padding) and '[UNK]' in front by default."""
        return self._table.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """Return the number of words, with the special ones."""
        return self._table.vocabulary_size()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Set the words: see :meth:`StringLookup.set_vocabulary`."""
        self._table.set_vocabulary(vocabulary, idf_weights)

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learn the vocabulary: the words of texts, the most frequent first.

        Args:
            data: an array, a list or a tensor of texts, or a `tf.data.Dataset` of texts or of batches of them.
            batch_size: no effect.
            steps: the number of batches to read; all by default.
        """
        self.reset_state()
        for batch in batches_of(data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Text) -> None:
        """Count the words of a batch."""
        found = self._words(as_strings(data))
        if not isinstance(found, RaggedTensor) and not found.shape:
            found = convert_to_tensor([found])
        if not isinstance(found, RaggedTensor) and len(found.shape) == 1 and self.split is not None:
            found = convert_to_tensor([found])  # the words of one text
        self._table.update_state(found)

    def reset_state(self) -> None:
        """Forget what was counted."""
        self._table.reset_state()

    def finalize_state(self) -> None:
        """Make the vocabulary of what was counted."""
        self._table.finalize_state()

    # -- the call

    def _convert_argument(self, value: Any, first: bool) -> Any:
        if first and isinstance(value, RaggedTensor):
            return value
        return super()._convert_argument(text_argument(value) if first else value, first)

    def _words(self, texts: Any) -> Any:
        """Return the words of texts, ragged."""
        if callable(self.standardize):
            texts = self.standardize(texts)
        elif self.standardize is not None:
            if self.standardize != "strip_punctuation":
                texts = lower(texts)
            if self.standardize != "lower":
                texts = regex_replace(texts, _PUNCTUATION, "")
        if self.split is not None:
            if len(texts.shape) > 1:
                if texts.shape[-1] != 1:
                    raise ValueError(
                        "When using `TextVectorization` to tokenize strings, the input rank must be 1 or the last "
                        f"shape dimension must be 1. Received: inputs.shape={texts.shape}"
                    )
                texts = squeeze(texts, -1)
            if callable(self.split):
                texts = self.split(texts)
            else:
                texts = split(texts) if self.split == "whitespace" else unicode_split(texts, "UTF-8")
        if self.ngrams is not None:
            widths = range(1, self.ngrams + 1) if isinstance(self.ngrams, int) else self.ngrams
            texts = ngrams(texts, list(widths))
        return texts

    def call(self, inputs: Text) -> Any:
        """Turn texts into integers, int64."""
        found = self._table.call(self._words(inputs))
        if self.output_mode != "int":
            return found
        length = self.output_sequence_length
        if isinstance(found, RaggedTensor):
            if self.ragged:
                return found
            return found.to_tensor(0, shape=[*[None] * (len(found.shape) - 1), length])
        return found if length is None else _with_length(found, length)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer, with the vocabulary that it has learned."""
        table = self._table.get_config()
        own = ("standardize", "split", "ngrams", "output_mode", "output_sequence_length", "ragged")
        of_table = ("max_tokens", "pad_to_max_tokens", "vocabulary", "idf_weights")
        return (
            super().get_config()
            | {name: getattr(self, name) for name in own}
            | {name: table[name] for name in of_table}
        )

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
        self._table.save_assets(dir_path)

    def load_assets(self, dir_path: PathLike) -> None:
        """Read the vocabulary that :meth:`save_assets`, or Keras, wrote."""
        self._table.load_assets(dir_path)


def _with_length(numbers: Tensor, length: int) -> Tensor:
    """Return the numbers cut or padded to a length along the last dimension."""
    values = np.asarray(numbers.numpy())[..., :length]
    widths = [(0, 0)] * (values.ndim - 1) + [(0, length - values.shape[-1])]
    return convert_to_tensor(np.pad(values, widths))
