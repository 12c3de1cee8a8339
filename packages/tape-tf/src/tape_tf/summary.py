"""`tf.summary`: numbers, histograms, images and texts for TensorBoard, in the event files of the package `tensorboard`.

>>> import tempfile
>>> import tape_tf as tf
>>> writer = tf.summary.create_file_writer(tempfile.mkdtemp())
>>> with writer.as_default():
...     for step in range(3):
...         recorded = tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
>>> recorded.numpy()
np.True_
>>> writer.close()
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from tape_core.staging import host_callback
from tape_core.support import contextmanager, setting, warn_user

from tape_tf.conversion import constant, convert_to_tensor, native, wrap
from tape_tf.names import absent, exported, published
from tape_tf.tensor import Value
from tape_tf.typing import IntLike, PathLike, TensorLike

_WRITER: ContextVar[SummaryWriter | None] = ContextVar("tape_tf.summary writer", default=None)
_STEP: ContextVar[Any] = ContextVar("tape_tf.summary step", default=None)
_CONDITION: ContextVar[Any] = ContextVar("tape_tf.summary condition", default=True)

_BUCKETS = 30  # TensorFlow's number
_QUEUE, _FLUSH_MILLISECONDS = 10, 120_000  # events that wait to be written, and for how long; TensorFlow's numbers


@cache
def _tensorboard(module: str) -> Any:
    """Import a module of the package tensorboard, which is an optional dependency."""
    try:
        return import_module(f"tensorboard.{module}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "tf.summary writes with the package tensorboard: pip install 'tape-tf[tensorboard]'", name=error.name
        ) from error


@exported("summary.SummaryWriter")
class SummaryWriter:
    """Writes summaries into an event file; made by :func:`tf.summary.create_file_writer`."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._closed = False

    @contextmanager
    def as_default(self, step: IntLike | None = None) -> Iterator[SummaryWriter]:
        """A context in which summaries go to this writer.

        Args:
            step: the step of summaries that are given none.
        """
        with setting(_WRITER, self), setting(_STEP, _STEP.get() if step is None else step):
            yield self
        self.flush()

    def set_as_default(self, step: IntLike | None = None) -> None:
        """Let summaries go to this writer from now on."""
        _WRITER.set(self)
        if step is not None:
            _STEP.set(step)

    def init(self) -> None:
        """Do nothing: the file is open already."""

    def flush(self) -> None:
        """Write what waits to be written."""
        if self._file is not None and not self._closed:
            self._file.flush()

    def close(self) -> None:
        """Write what waits to be written, and close the file."""
        if self._file is not None and not self._closed:
            self._file.close()
        self._closed = True

    def write(self, tag: str, tensor: Any, step: int, metadata: Any) -> None:
        """Write an event with one tensor.

        Raises:
            RuntimeError: the writer is closed.
        """
        if self._file is None:
            return
        if self._closed:
            raise RuntimeError("SummaryWriter is already closed")
        event, summary = _tensorboard("compat.proto.event_pb2"), _tensorboard("compat.proto.summary_pb2")
        value = summary.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
        self._file.add_event(event.Event(wall_time=time.time(), step=step, summary=summary.Summary(value=[value])))


@exported("summary.create_file_writer", differs="writes through the package tensorboard")
def create_file_writer(
    logdir: PathLike,
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
    experimental_trackable: bool = False,
) -> SummaryWriter:
    """Make a writer of an event file in a folder, which is made if needed.

    Args:
        max_queue: the number of events that wait to be written; 10 by default.
        flush_millis: how long they wait, in milliseconds; two minutes by default.
        filename_suffix: the end of the file's name.

    Raises:
        ModuleNotFoundError: the package tensorboard is not installed.
    """
    writer = _tensorboard("summary.writer.event_file_writer").EventFileWriter(
        os.fspath(logdir),
        _QUEUE if max_queue is None else max_queue,
        (_FLUSH_MILLISECONDS if flush_millis is None else flush_millis) / 1000,
        filename_suffix or "",
    )
    return SummaryWriter(writer)


@exported("summary.create_noop_writer")
def create_noop_writer() -> SummaryWriter:
    """Make a writer that writes nothing."""
    return SummaryWriter(None)


@exported("summary.flush")
def flush(writer: SummaryWriter | None = None, name: str | None = None) -> None:
    """Write what waits to be written by a writer, by default the current one."""
    if (chosen := writer or _WRITER.get()) is not None:
        chosen.flush()


# -- when, and at which step


@exported("summary.record_if")
@contextmanager
def record_if(condition: bool | TensorLike | Callable[[], Any]) -> Iterator[None]:
    """A context in which summaries are written only if a condition is true: a truth value, or a function of one."""
    with setting(_CONDITION, condition):
        yield


@exported("summary.should_record_summaries")
def should_record_summaries() -> bool:
    """True if there is a writer, and the condition of :func:`record_if` is true."""
    return _WRITER.get() is not None and _holds(_CONDITION.get())


def _holds(condition: Any) -> bool:
    value = condition() if callable(condition) else condition
    return bool(np.asarray(value.numpy()) if isinstance(value, Value) else value)


@exported("summary.experimental.set_step")
def set_step(step: IntLike | None) -> None:
    """Set the step of summaries that are given none: a number, or a Variable that counts."""
    _STEP.set(step)


@exported("summary.experimental.get_step")
def get_step() -> Any:
    """Return the step of summaries that are given none."""
    return _STEP.get()


# -- kinds of summaries


@exported("summary.scalar")
def scalar(name: str, data: TensorLike, step: IntLike | None = None, description: str | None = None) -> Any:
    """Write a number.

    Args:
        name: the tag in TensorBoard.
        data: a real number.
        step: by default that of the writer.
        description: text about it, in Markdown.

    Returns:
        True if it was written; there may be no writer, or :func:`record_if` may exclude it.

    Raises:
        ValueError: there is no step; or `data` is no single number.
    """
    return _record(name, _number, data, step, "scalar", description, {})


@exported("summary.histogram")
def histogram(
    name: str, data: TensorLike, step: IntLike | None = None, buckets: int | None = None, description: str | None = None
) -> Any:
    """Write how numbers are distributed: their counts in `buckets` intervals of one length, by default 30."""
    options = {"buckets": _BUCKETS if buckets is None else int(buckets)}
    return _record(name, _histogram, data, step, "histogram", description, options)


@exported("summary.image")
def image(
    name: str,
    data: TensorLike,
    step: IntLike | None = None,
    max_outputs: int = 3,
    description: str | None = None,
) -> Any:
    """Write pictures, as PNG; it takes the package Pillow.

    Args:
        data: shape (pictures, height, width, channels): 1 channel for grey, 3 for RGB, 2 or 4 with opacity; floats from
            0 to 1, or integers from 0 to 255.
        max_outputs: the number of pictures that are written, the first ones.
    """
    return _record(name, _images, data, step, "image", description, {"max_outputs": int(max_outputs)})


@exported("summary.text")
def text(name: str, data: TensorLike, step: IntLike | None = None, description: str | None = None) -> Any:
    """Write a text, or a table of texts, in Markdown."""
    return _record(name, _texts, data, step, "text", description, {})


@exported("summary.write")
def write(
    tag: str, tensor: TensorLike, step: IntLike | None = None, metadata: Any = None, name: str | None = None
) -> Any:
    """Write a tensor.

    Args:
        metadata: a `SummaryMetadata` of the package tensorboard, which tells the plugin that shows it.
    """
    return _record(tag, _number_array, tensor, step, "", None, {"metadata": metadata})


def _record(
    name: str,
    make: Callable[..., Any],
    data: Any,
    step: Any,
    plugin: str,
    description: str | None,
    options: dict[str, Any],
) -> Any:
    """Write a summary if there is a writer; in compiled functions, in each call."""
    writer = _WRITER.get()
    if writer is None:
        return constant(False)
    step = _STEP.get() if step is None else step
    if step is None:
        raise ValueError(
            "No step set. Please specify one either through the `step` argument or through "
            "tf.summary.experimental.set_step(), or as_default(step=...)"
        )
    condition = _CONDITION.get()
    if not callable(condition) and not isinstance(condition, Value):
        if not condition:
            return constant(False)
        condition = None
    if not isinstance(data, str | bytes) and make is not _texts:
        data = native(convert_to_tensor(data))
    step, condition = (native(value) if isinstance(value, Value) else value for value in (step, condition))
    _write(data, step, condition, (writer, name, make, plugin, description, options))
    return constant(True)


@host_callback
def _write(data: Any, step: Any, condition: Any, about: tuple[Any, ...]) -> None:
    writer, name, make, plugin, description, options = about
    if condition is not None and not _holds(wrap(condition)):
        return
    tensor, metadata = make(_host(data), plugin, description, **options)
    writer.write(name, tensor, int(_host(step)), metadata)


def _host(value: Any) -> Any:
    value = wrap(value)
    return value.numpy() if isinstance(value, Value) else value


def _proto(values: Any) -> Any:
    return _tensorboard("util.tensor_util").make_tensor_proto(values)


def _metadata(plugin: str, description: str | None, **options: Any) -> Any:
    make = _tensorboard(f"plugins.{plugin}.metadata").create_summary_metadata
    return make(display_name=None, description=description or "", **options)


def _number(value: Any, plugin: str, description: str | None) -> tuple[Any, Any]:
    if np.ndim(value):
        raise ValueError(f"summary.scalar: data must be one number; got shape {np.shape(value)}")
    return _proto(np.asarray(value, "float32")), _metadata(plugin, description)


def _number_array(value: Any, plugin: str, description: str | None, metadata: Any) -> tuple[Any, Any]:
    return _proto(np.asarray(value)), metadata


def _histogram(value: Any, plugin: str, description: str | None, buckets: int) -> tuple[Any, Any]:
    values = np.asarray(value, "float64").ravel()
    if buckets < 1 or not values.size:
        found = np.zeros((max(buckets, 0), 3))
    elif values.min() == values.max():
        # All in one interval around the value, as TensorFlow writes it.
        found = np.zeros((buckets, 3))
        found[:, :2] = values[0]
        found[-1] = (
            (values[0] - 0.5, values[0] + 0.5, values.size) if buckets == 1 else (values[0],) * 2 + (values.size,)
        )
    else:
        counts, edges = np.histogram(values, buckets)
        found = np.stack([edges[:-1], edges[1:], counts], axis=1)
    return _proto(found), _metadata(plugin, description)


def _images(value: Any, plugin: str, description: str | None, max_outputs: int) -> tuple[Any, Any]:
    values = np.asarray(value)
    if values.ndim != 4 or values.shape[-1] not in (1, 2, 3, 4):
        raise ValueError(
            f"summary.image: data must have shape (pictures, height, width, channels), with 1 to 4 channels; got "
            f"{values.shape}"
        )
    if values.dtype.kind == "f":
        values = np.clip(np.round(values * 255.0), 0, 255)
    values = values.astype("uint8")
    encode = published()["io.encode_png"]
    pictures = [_bytes(encode(picture)) for picture in values[:max_outputs]]
    height, width = values.shape[1:3]
    content = [str(width).encode(), str(height).encode(), *pictures]
    return _proto(np.array(content, dtype=object)), _metadata(plugin, description)


def _texts(value: Any, plugin: str, description: str | None) -> tuple[Any, Any]:
    array = np.asarray(value, dtype=object)
    content = np.vectorize(_bytes, otypes=[object])(array) if array.size else array
    return _proto(content), _metadata(plugin, description)


def _bytes(value: Any) -> bytes:
    found = value.numpy() if isinstance(value, Value) else value
    found = found.item() if isinstance(found, np.ndarray | np.generic) else found
    return found if isinstance(found, bytes) else str(found).encode()


# -- traces of graphs

_NO_TRACE = (
    "there is no graph to record: print(tf.function(f)) or tape_core's explain shows a program, and Python's profilers "
    "see every call; nothing is written"
)


@exported("summary.trace_on", differs="warns: there are no graphs")
def trace_on(graph: bool = True, profiler: bool = False, profiler_outdir: PathLike | None = None) -> None:
    """Warn that nothing is recorded."""
    warn_user(f"summary.trace_on: {_NO_TRACE}")


@exported("summary.trace_export", differs="warns: there are no graphs")
def trace_export(name: str, step: IntLike | None = None, profiler_outdir: PathLike | None = None) -> None:
    """Warn that nothing is written."""
    warn_user(f"summary.trace_export: {_NO_TRACE}")


@exported("summary.trace_off", differs="warns: there are no graphs")
def trace_off() -> None:
    """Do nothing: nothing is recorded."""


__getattr__ = absent("summary")
