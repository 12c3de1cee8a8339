"""tf.strings: functions of tensors of strings, computed on the host in Python."""

from __future__ import annotations

import re
import string as ascii_text
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tape_tf import dtypes
from tape_tf.conversion import constant, convert_to_tensor, static
from tape_tf.errors import InvalidArgumentError, StringsGivenError
from tape_tf.hashing import fingerprint64, siphash24
from tape_tf.names import exported
from tape_tf.ops.ragged import RaggedTensor
from tape_tf.string_tensor import StringTensor, is_text, strings_of, wrap_strings
from tape_tf.typing import Axis, DTypeLike, IntLike, TensorLike

Text = Any
"""Text of any form: str, bytes, arrays and nested lists of them, tensors of strings, and ragged ones."""


def map_strings(f: Callable[[bytes], Any], value: Text, dtype: Any = object) -> Any:
    """Apply a function to each string; the results are strings, or numbers of a NumPy dtype."""
    if isinstance(value, RaggedTensor):
        return value.with_flat_values(map_strings(f, value.flat_values, dtype))
    given = strings_of(value)
    out = np.empty(given.size, dtype)
    out[:] = [f(part) for part in given.ravel()]
    out = out.reshape(given.shape)
    return wrap_strings(out) if dtype is object else convert_to_tensor(out)


def decoded(value: bytes) -> str:
    """Decode UTF-8; bytes that are none survive the way back through :func:`encoded`."""
    return value.decode("utf-8", "surrogateescape")


def encoded(value: str) -> bytes:
    """Encode as UTF-8: the inverse of :func:`decoded`."""
    return value.encode("utf-8", "surrogateescape")


def _check_choice(value: str, name: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")


# -- one string from one


def _publish_case(name: str, change: Callable[[Any], Any], what: str) -> Callable[..., Any]:
    @exported(f"strings.{name}")
    def function(input: Text, encoding: str = "", name: str | None = None) -> Any:
        _check_choice(encoding, "encoding", ("", "utf-8"))
        if encoding:
            return map_strings(lambda part: encoded(change(decoded(part))), input)
        return map_strings(change, input)  # bytes change ASCII letters alone

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f'Make all letters {what}: those of ASCII, or with `encoding="utf-8"` all of Unicode.'
    return function


lower = _publish_case("lower", lambda text: text.lower(), "small")
upper = _publish_case("upper", lambda text: text.upper(), "capital")


@exported("strings.strip")
def strip(input: Text, name: str | None = None) -> Any:
    """Remove white space at both ends."""
    return map_strings(bytes.strip, input)


@exported("strings.length")
def length(input: Text, unit: str = "BYTE", name: str | None = None) -> Any:
    """Return the lengths of strings, int32: of bytes, or of characters with `unit="UTF8_CHAR"`.

    >>> import tape_tf as tf
    >>> tf.strings.length(["a", "über"]).numpy(), tf.strings.length("über", unit="UTF8_CHAR").numpy()
    (array([1, 5], dtype=int32), np.int32(4))
    """
    _check_choice(unit, "unit", ("BYTE", "UTF8_CHAR"))
    return map_strings(len if unit == "BYTE" else lambda part: len(decoded(part)), input, np.int32)


@exported("strings.substr")
def substr(input: Text, pos: TensorLike, len: TensorLike, unit: str = "BYTE", name: str | None = None) -> Any:
    """Return the parts of strings that begin at `pos`, which may count from the end, and have at most `len` elements.

    Args:
        pos, len: numbers, or tensors of the shape of `input`.
        unit: "BYTE" or "UTF8_CHAR".

    Raises:
        InvalidArgumentError: a position is outside of its string.
    """
    _check_choice(unit, "unit", ("BYTE", "UTF8_CHAR"))
    given, starts, counts = np.broadcast_arrays(strings_of(input), np.asarray(pos), np.asarray(len))
    out = np.empty(given.size, object)
    for k, (part, start, count) in enumerate(zip(given.flat, starts.flat, counts.flat, strict=True)):
        text = part if unit == "BYTE" else decoded(part)
        size = text.__len__()
        if not -size <= start <= size:
            raise InvalidArgumentError(None, None, f"pos {start} out of range for string at index {k}: {part!r}")
        begin = start + size if start < 0 else start
        cut = text[begin : begin + max(count, 0)]
        out[k] = cut if isinstance(cut, bytes) else encoded(cut)
    return wrap_strings(out.reshape(given.shape))


# -- regular expressions

_CLASSES = {
    "punct": re.escape(ascii_text.punctuation),
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "0-9A-Za-z",
    "lower": "a-z",
    "upper": "A-Z",
    "space": r"\s",
    "xdigit": "0-9A-Fa-f",
    "word": r"\w",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "print": " -~",
    "graph": "!-~",
}


@lru_cache(maxsize=256)
def pattern_of(pattern: bytes) -> re.Pattern[str]:
    """Compile a regular expression of RE2, which TensorFlow has, as one of Python's.

    Raises:
        InvalidArgumentError: it is none.
    """
    text = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], found[0]), decoded(pattern))
    text = text.replace(r"\z", r"\Z").replace(r"\pL", "[^\\W\\d_]").replace(r"\p{L}", "[^\\W\\d_]")
    try:
        # In RE2 \\w and the like are those of ASCII.
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise InvalidArgumentError(
            None, None, f"Invalid pattern: {decoded(pattern)}, error: {error}; the syntax is that of Python's re"
        ) from error


def _text_argument(value: Text) -> bytes:
    found: bytes = strings_of(value).item()
    return found


@exported("strings.regex_replace", "patterns are Python's, to which those of RE2 are converted")
def regex_replace(
    input: Text, pattern: Text, rewrite: Text, replace_global: bool = True, name: str | None = None
) -> Any:
    r"""Replace the matches of a regular expression.

    >>> import tape_tf as tf
    >>> tf.strings.regex_replace("Hello, <b>world</b>!", "<[^>]+>", " ").numpy()
    b'Hello,  world !'

    Args:
        rewrite: the text that replaces a match; `\1` to `\9` stand for its groups, `\0` for all of it.
        replace_global: replace all matches; otherwise the first.
    """
    compiled = pattern_of(_text_argument(pattern))
    template = re.sub(r"\\(\d)", r"\\g<\1>", decoded(_text_argument(rewrite)))
    count = 0 if replace_global else 1
    return map_strings(lambda part: encoded(compiled.sub(template, decoded(part), count)), input)


@exported("strings.regex_full_match", "patterns are Python's, to which those of RE2 are converted")
def regex_full_match(input: Text, pattern: Text, name: str | None = None) -> Any:
    """Return whether each string as a whole matches a regular expression."""
    compiled = pattern_of(_text_argument(pattern))
    return map_strings(lambda part: compiled.fullmatch(decoded(part)) is not None, input, np.bool_)


# -- several strings from one, ragged


def split_each(f: Callable[[bytes], list[Any]], value: Text, dtype: Any = object) -> Any:
    """Make several values of each string: of a scalar a vector, otherwise a ragged tensor with one dimension more."""
    if isinstance(value, RaggedTensor):
        return value.with_values(split_each(f, value.values, dtype))
    given = strings_of(value)
    if given.ndim > 1:
        rows = split_each(f, wrap_strings(given.reshape(-1)), dtype)
        for size in reversed(given.shape[1:]):
            rows = RaggedTensor.from_row_splits(rows, np.arange(0, len(rows) + 1, size))
        return rows
    parts = [f(part) for part in given.ravel()]
    flat = np.empty(sum(map(len, parts)), dtype)
    flat[:] = [one for row in parts for one in row]
    values = wrap_strings(flat) if dtype is object else convert_to_tensor(flat)
    return RaggedTensor.from_row_lengths(values, list(map(len, parts))) if given.ndim else values


@exported("strings.split")
def split(input: Text, sep: str | bytes | None = None, maxsplit: int = -1, name: str | None = None) -> Any:
    """Split strings at `sep`, by default at white space, into a ragged tensor; a single string into a vector.

    >>> import tape_tf as tf
    >>> tf.strings.split("a b  c").numpy().tolist()
    [b'a', b'b', b'c']
    >>> tf.strings.split(["a,b", "c"], sep=",")
    <tf.RaggedTensor [[b'a', b'b'], [b'c']]>
    """
    by = None if sep is None or not strings_of(sep).item() else _text_argument(sep)
    return split_each(lambda part: part.split(by, maxsplit), input)


@exported("strings.bytes_split")
def bytes_split(input: Text, name: str | None = None) -> Any:
    """Split strings into their bytes."""
    return split_each(lambda part: [part[k : k + 1] for k in range(len(part))], input)


_ERRORS = {"replace": "replace", "strict": "strict", "ignore": "ignore"}


def _decoder(encoding: str, errors: str) -> Callable[[bytes], str]:
    _check_choice(errors, "errors", tuple(_ERRORS))

    def decode(part: bytes) -> str:
        try:
            return part.decode(encoding.replace("-BE", "-be"), _ERRORS[errors])
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(None, None, f"Invalid formatting on input string: {part!r}") from error

    return decode


@exported("strings.unicode_split")
def unicode_split(
    input: Text, input_encoding: str, errors: str = "replace", replacement_char: int = 65533, name: str | None = None
) -> Any:
    """Split strings into their characters, each a string of its own."""
    decode = _decoder(input_encoding, errors)
    return split_each(lambda part: [one.encode(input_encoding) for one in decode(part)], input)


@exported("strings.unicode_decode")
def unicode_decode(
    input: Text, input_encoding: str, errors: str = "replace", replacement_char: int = 65533, name: str | None = None
) -> Any:
    """Return the code points of the characters of strings, int32."""
    decode = _decoder(input_encoding, errors)
    return split_each(lambda part: list(map(ord, decode(part))), input, np.int32)


@exported("strings.unicode_encode")
def unicode_encode(
    input: Any, output_encoding: str = "UTF-8", errors: str = "replace", replacement_char: int = 65533,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Make strings of code points along the last dimension: the inverse of :func:`unicode_decode`."""
    if isinstance(input, RaggedTensor) and input.ragged_rank > 1:
        return input.with_values(unicode_encode(input.values, output_encoding))
    if isinstance(input, RaggedTensor):
        rows, shape = input.to_list(), (len(input),)
    else:
        codes = np.asarray(input)
        if codes.ndim == 1:
            return constant("".join(map(chr, codes)).encode(output_encoding))
        rows, shape = list(codes.reshape(-1, codes.shape[-1])), codes.shape[:-1]
    out = np.empty(len(rows), object)
    out[:] = ["".join(map(chr, row)).encode(output_encoding) for row in rows]
    return wrap_strings(out.reshape(shape))


@exported("strings.unicode_transcode")
def unicode_transcode(
    input: Text, input_encoding: str, output_encoding: str, errors: str = "replace", replacement_char: int = 65533,
    replace_control_characters: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """Convert strings from one encoding to another."""
    decode = _decoder(input_encoding, errors)
    return map_strings(lambda part: decode(part).encode(output_encoding), input)


@exported("strings.ngrams")
def ngrams(
    data: Any, ngram_width: int | Sequence[int], separator: str = " ", pad_values: Any = None,
    padding_width: int | None = None, preserve_short_sequences: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """Return the n-grams of words along the last dimension, joined by `separator`.

    Args:
        ngram_width: the number of words; several numbers: the n-grams of each, in this order.

    Raises:
        ValueError: padding or short sequences are asked for, which are not supported.
    """
    if pad_values is not None or padding_width is not None or preserve_short_sequences:
        raise ValueError("ngrams: there is no padding here; add words with tf.concat before")
    widths = [ngram_width] if isinstance(ngram_width, int) else list(ngram_width)
    between = separator.encode()

    def grams(words: list[bytes]) -> list[bytes]:
        return [between.join(words[k : k + n]) for n in widths for k in range(len(words) - n + 1)]

    if isinstance(data, RaggedTensor):
        if data.ragged_rank > 1:
            return data.with_values(ngrams(data.values, widths, separator))
        rows = [grams(row) for row in data.to_list()]
        return RaggedTensor.from_row_lengths(_vector([one for row in rows for one in row]), list(map(len, rows)))
    words = strings_of(data)
    if words.ndim == 1:
        return _vector(grams(list(words)))
    made = [grams(list(row)) for row in words.reshape(-1, words.shape[-1])]
    return wrap_strings(_vector([one for row in made for one in row])._strings.reshape((*words.shape[:-1], -1)))


def _vector(parts: list[bytes]) -> StringTensor:
    out = np.empty(len(parts), object)
    out[:] = parts
    return wrap_strings(out)


# -- one string from several


@exported("strings.join")
def join(inputs: Sequence[Text], separator: Text = "", name: str | None = None) -> Any:
    """Join the strings at the same places of several tensors; a single string is joined to all.

    >>> import tape_tf as tf
    >>> tf.strings.join(["img_", ["1", "2"], ".png"]).numpy().tolist()
    [b'img_1.png', b'img_2.png']
    """
    parts = np.broadcast_arrays(*[strings_of(part) for part in inputs])
    between = _text_argument(separator)
    out = np.empty(parts[0].size, object)
    out[:] = [between.join(row) for row in zip(*[part.flat for part in parts], strict=True)]
    return wrap_strings(out.reshape(parts[0].shape))


@exported("strings.reduce_join")
def reduce_join(
    inputs: Text, axis: Axis = None, keepdims: bool = False, separator: Text = "", name: str | None = None
) -> Any:
    """Join strings along `axis`, by default all, in order.

    >>> import tape_tf as tf
    >>> tf.strings.reduce_join([["a", "b"], ["c", "d"]], axis=1, separator=" ").numpy().tolist()
    [b'a b', b'c d']
    """
    between = _text_argument(separator)
    if isinstance(inputs, RaggedTensor):
        if static(axis) not in (-1, len(inputs.shape) - 1) or keepdims:
            raise ValueError("reduce_join: of ragged tensors along the last axis only, axis=-1")
        if inputs.ragged_rank > 1:
            return inputs.with_values(reduce_join(inputs.values, -1, separator=separator))
        return _vector([between.join(row) for row in inputs.to_list()])
    given = strings_of(inputs)
    axes = range(given.ndim) if axis is None else np.atleast_1d(np.asarray(static(axis)))
    order = [int(k) % given.ndim for k in axes]
    rest = [k for k in range(given.ndim) if k not in order]
    rows = given.transpose(rest + order).reshape([given.shape[k] for k in rest] + [-1])
    shape = [1 if k in order else n for k, n in enumerate(given.shape) if keepdims or k not in order]
    flat = _vector([between.join(row) for row in rows.reshape(-1, rows.shape[-1])])
    return wrap_strings(flat._strings.reshape(shape))


@exported("strings.format")
def format_(template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None) -> Any:
    """Fill tensors into a template, as `tf.print` shows them.

    Raises:
        ValueError: there are more or fewer tensors than placeholders.
    """
    from tape_tf.ops.printing import shown

    values = inputs if isinstance(inputs, list | tuple) else [inputs]
    pieces = template.split(placeholder)
    if len(pieces) != len(values) + 1:
        raise ValueError(f"strings.format: {len(pieces) - 1} placeholders and {len(values)} tensors")
    text = pieces[0]
    for value, piece in zip(values, pieces[1:], strict=True):
        text += shown(convert_to_tensor(value), summarize) + piece
    return constant(text)


# -- numbers


@exported("strings.to_number")
def to_number(input: Text, out_type: DTypeLike = dtypes.float32, name: str | None = None) -> Any:
    """Read numbers.

    Raises:
        InvalidArgumentError: a string is no number of this dtype.
    """
    wanted = dtypes.as_dtype(out_type)

    def read(part: bytes) -> Any:
        try:
            return int(part) if wanted.is_integer else float(part)
        except ValueError:
            raise InvalidArgumentError(
                None, None, f"StringToNumberOp could not correctly convert string: {decoded(part)}"
            ) from None

    return map_strings(read, input, wanted.as_numpy_dtype)


@exported("strings.as_string as_string")
def as_string(
    input: Any, precision: int = -1, scientific: bool = False, shortest: bool = False, width: int = -1, fill: str = "",
    name: str | None = None,
) -> Any:  # fmt: skip
    """Write numbers or truth values as strings; floats with six digits after the point, as C does.

    Args:
        precision: the number of digits after the point.
        scientific, shortest: with an exponent, or the shorter of both forms.
        width, fill: the least number of characters, and what is put before shorter ones.
    """
    if isinstance(input, RaggedTensor):
        return input.with_flat_values(as_string(input.flat_values, precision, scientific, shortest, width, fill))
    if is_text(input):
        return convert_to_tensor(input)
    values = np.asarray(convert_to_tensor(input).numpy())
    digits = "" if precision < 0 else f".{precision}"
    form = digits + ("e" if scientific else "g" if shortest else "f")

    def write(value: Any) -> bytes:
        if values.dtype == bool:
            text = "true" if value else "false"
        elif values.dtype.kind in "iu":
            text = str(value)
        elif values.dtype.kind == "c":
            text = f"({value.real:{form}},{value.imag:{form}})"
        else:
            text = f"{float(value):{form}}"
        return text.rjust(width, fill or " ").encode()

    return wrap_strings(_vector([write(value) for value in values.ravel()])._strings.reshape(values.shape))


def _bucket_count(num_buckets: IntLike) -> int:
    found = int(static(num_buckets))
    if found < 1:
        raise InvalidArgumentError(None, None, f"num_buckets must be at least 1, got {found}")
    return found


@exported("strings.to_hash_bucket_fast")
def to_hash_bucket_fast(input: Text, num_buckets: IntLike, name: str | None = None) -> Any:
    """Return a number below `num_buckets` for each string, by its hash (FarmHash's Fingerprint64), int64.

    >>> import tape_tf as tf
    >>> tf.strings.to_hash_bucket_fast(["Hello", "TensorFlow", "2.x"], 3).numpy()
    array([0, 2, 2])
    """
    buckets = _bucket_count(num_buckets)
    return map_strings(lambda part: fingerprint64(part) % buckets, input, np.int64)


@exported("strings.to_hash_bucket_strong")
def to_hash_bucket_strong(input: Text, num_buckets: IntLike, key: Sequence[int], name: str | None = None) -> Any:
    """Return a number below `num_buckets` for each string, by its hash under a key of two integers (SipHash), int64.

    Who does not know the key cannot make many strings with one number.

    Raises:
        tf.errors.InvalidArgumentError: the key is not two integers.
    """
    buckets, parts = _bucket_count(num_buckets), [int(part) for part in key]
    if len(parts) != 2:
        raise InvalidArgumentError(None, None, f"Key must have 2 elements, got {parts}")
    return map_strings(lambda part: siphash24(part, (parts[0], parts[1])) % buckets, input, np.int64)


@exported("strings.to_hash_bucket", "another hash function than TensorFlow's, which may change there: other numbers")
def to_hash_bucket(input: Text, num_buckets: IntLike, name: str | None = None) -> Any:
    """Return what :func:`to_hash_bucket_fast` does: TensorFlow promises no hash function of this one."""
    return to_hash_bucket_fast(input, num_buckets)


# -- `+`, which joins


def _add(self: StringTensor, other: Text) -> Any:
    if not is_text(other):
        raise StringsGivenError("AddV2")
    return join([self, other])


def _reflected_add(self: StringTensor, other: Text) -> Any:
    if not is_text(other):
        raise StringsGivenError("AddV2")
    return join([other, self])


setattr(StringTensor, "__add__", _add)  # noqa: B010 - the class cannot import this module
setattr(StringTensor, "__radd__", _reflected_add)  # noqa: B010
