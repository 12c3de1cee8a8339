"""The callback TensorBoard: results of epochs and batches, and weights, in event files."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from tape_tf import summary
from tape_tf.keras.callbacks import Callback
from tape_tf.names import exported
from tape_tf.typing import Logs, PathLike


@exported("keras.callbacks.TensorBoard", differs="without graphs, profiles and embeddings")
class TensorBoard(Callback):
    """Write the results of training for TensorBoard: `tensorboard --logdir logs` shows them.

    It takes the package tensorboard.

    >>> import tempfile
    >>> import tape_tf as tf
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> logs = tf.keras.callbacks.TensorBoard(tempfile.mkdtemp())
    >>> history = model.fit(tf.ones((4, 1)), tf.zeros((4, 1)), epochs=2, verbose=0, callbacks=[logs])

    Args:
        log_dir: the folder; results of training go into `train` in it, those of validation into `validation`.
        histogram_freq: the number of epochs from one histogram of all weights to the next; 0 for none.
        write_images: write pictures of the weights with the histograms.
        write_steps_per_second: write the speed of training.
        update_freq: "epoch", "batch", or the number of batches from one result of batches to the next.
        write_graph, profile_batch: no effect: there are no graphs.
        embeddings_freq, embeddings_metadata: must be left out.

    Raises:
        ValueError: embeddings are asked for.
    """

    def __init__(
        self,
        log_dir: PathLike = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: str | int = "epoch",
        profile_batch: int | tuple[int, int] = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: Any = None,
    ) -> None:
        super().__init__()
        if embeddings_freq or embeddings_metadata:
            raise ValueError(
                "TensorBoard: embeddings are not written; save the weights of the layer with numpy.savetxt"
            )
        if not (update_freq in ("epoch", "batch") or (isinstance(update_freq, int) and update_freq > 0)):
            raise ValueError(f"TensorBoard: update_freq must be 'epoch', 'batch' or a number; got {update_freq!r}")
        self.log_dir = os.fspath(log_dir)
        self.histogram_freq, self.write_images = histogram_freq, write_images
        self.write_steps_per_second = write_steps_per_second
        self.update_freq = 1 if update_freq == "batch" else update_freq
        self._writers: dict[str, summary.SummaryWriter] = {}
        self._step = 0
        self._training = False

    def _writer(self, name: str) -> summary.SummaryWriter:
        if name not in self._writers:
            self._writers[name] = summary.create_file_writer(os.path.join(self.log_dir, name))
        return self._writers[name]

    def on_train_begin(self, logs: Logs = None) -> None:
        self._step, self._training = 0, True
        self._writer("train")  # so that a missing package is told before the first epoch, and not after it

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._started, self._steps_before = time.perf_counter(), self._step

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._step += 1
        if isinstance(self.update_freq, int) and (self._step - 1) % self.update_freq == 0:
            with self._writer("train").as_default(self._step - 1):
                for name, value in (logs or {}).items():
                    summary.scalar(f"batch_{name}", value)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        results = dict(logs or {})
        training = {name: value for name, value in results.items() if not name.startswith("val_")}
        training["learning_rate"] = float(self.model.optimizer.learning_rate)
        if self.write_steps_per_second:
            elapsed = max(time.perf_counter() - self._started, 1e-9)
            training["steps_per_second"] = (self._step - self._steps_before) / elapsed
        validation = {name[4:]: value for name, value in results.items() if name.startswith("val_")}
        for place, found in (("train", training), ("validation", validation)):
            if found:
                with self._writer(place).as_default(epoch):
                    for name, value in found.items():
                        summary.scalar(f"epoch_{name}", value)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._write_weights(epoch)

    def _write_weights(self, epoch: int) -> None:
        with self._writer("train").as_default(epoch):
            for layer in self.model.layers:
                for weight in layer.weights:
                    tag = weight.name.replace(":", "_")
                    summary.histogram(f"{tag}/histogram", weight)
                    picture = _as_picture(np.asarray(weight.numpy())) if self.write_images else None
                    if picture is not None:
                        summary.image(f"{tag}/image", picture)

    def on_test_end(self, logs: Logs = None) -> None:
        if self.model.optimizer is not None and not self._training and logs:
            with self._writer("validation").as_default(int(self.model.optimizer.iterations)):
                for name, value in logs.items():
                    summary.scalar(f"evaluation_{name}_vs_iterations", value)

    def on_train_end(self, logs: Logs = None) -> None:
        self._training = False
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


def _as_picture(weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return a weight as one grey picture, or None if it is no vector or matrix."""
    values = np.atleast_1d(np.squeeze(weight))
    if values.ndim not in (1, 2) or not values.size:
        return None
    values = np.atleast_2d(values)
    # Lie down, and stretch over the whole range of grey.
    values = values.T if values.shape[0] > values.shape[1] else values
    low, high = float(values.min()), float(values.max())
    return ((values - low) / (high - low if high > low else 1.0))[None, :, :, None].astype("float32")
