"""tf.summary and the callback TensorBoard: TensorBoard's own reader finds what was written."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

pytest.importorskip("tensorboard")


def read(folder: Path) -> Any:
    """Return TensorBoard's accumulator of the events in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    found.Reload()
    return found


def tensors(folder: Path, tag: str) -> list[tuple[int, Any]]:
    from tensorboard.util.tensor_util import make_ndarray

    return [(event.step, make_ndarray(event.tensor_proto)) for event in read(folder).Tensors(tag)]


def numbers(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(step, float(value)) for step, value in tensors(folder, tag)]


def plugin(folder: Path, tag: str) -> str:
    return str(read(folder).SummaryMetadata(tag).plugin_data.plugin_name)


@pytest.mark.each_backend
def test_scalars_come_back_with_their_steps(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(tmp_path)
    with writer.as_default():
        for step in range(3):
            assert bool(tf.summary.scalar("loss", tf.constant(0.5) * step, step=step, description="the *loss*"))
    with writer.as_default(step=7):
        tf.summary.scalar("loss", np.float64(9.0))
    assert not bool(tf.summary.scalar("loss", 1.0, step=1)), "there is no writer here"
    writer.close()
    assert numbers(tmp_path, "loss") == [(0, 0.0), (1, 0.5), (2, 1.0), (7, 9.0)]
    assert plugin(tmp_path, "loss") == "scalars"
    assert read(tmp_path).SummaryMetadata("loss").summary_description == "the *loss*"


def test_histograms_texts_and_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    values = np.linspace(-1.0, 1.0, 101)
    pixels = np.zeros((5, 2, 3, 1), "float32")
    pixels[0, 1, 2] = 1.0
    writer = tf.summary.create_file_writer(tmp_path, filename_suffix=".end")
    with writer.as_default(step=tf.Variable(4)):
        tf.summary.histogram("h", values, buckets=4)
        tf.summary.histogram("one", tf.ones((7,)))
        tf.summary.text("t", "a **word**")
        tf.summary.text("table", [["a", "b"], ["c", "d"]])
        tf.summary.image("i", pixels, max_outputs=2)
        tf.summary.image("bytes", (255 * pixels).astype("uint8"))
    writer.close()
    assert [path.name.endswith(".end") for path in tmp_path.iterdir()] == [True]
    [(step, h)] = tensors(tmp_path, "h")
    assert step == 4
    np.testing.assert_allclose(h, [[-1, -0.5, 25], [-0.5, 0, 25], [0, 0.5, 25], [0.5, 1, 26]])
    [(_, one)] = tensors(tmp_path, "one")
    assert one.shape == (30, 3)
    assert one[:, 2].sum() == 7
    assert [value.tolist() for _, value in tensors(tmp_path, "t")] == [b"a **word**"]
    assert [value.tolist() for _, value in tensors(tmp_path, "table")] == [[[b"a", b"b"], [b"c", b"d"]]]
    [(_, pictures)] = tensors(tmp_path, "i")
    assert pictures[:2].tolist() == [b"3", b"2"]
    assert len(pictures) == 4
    assert np.asarray(image.open(BytesIO(pictures[2]))).tolist() == [[0, 0, 0], [0, 0, 255]]
    assert tensors(tmp_path, "bytes")[0][1][2] == pictures[2]
    assert [plugin(tmp_path, tag) for tag in ("h", "t", "i")] == ["histograms", "text", "images"]


@pytest.mark.each_backend
def test_compiled_functions_write_in_each_call(tmp_path: Path) -> None:
    writer, step = tf.summary.create_file_writer(tmp_path), tf.Variable(0, dtype="int64")

    @tf.function
    def f(x: Any) -> Any:
        y = tf.reduce_sum(x * x)
        tf.summary.scalar("y", y, step=step)
        with tf.summary.record_if(step % 2 == 0):
            tf.summary.scalar("even", y, step=step)
        return y

    with writer.as_default():
        for k in range(3):
            step.assign(k)
            f(tf.constant([float(k)]))
    writer.close()
    assert numbers(tmp_path, "y") == [(0, 0.0), (1, 1.0), (2, 4.0)]
    assert numbers(tmp_path, "even") == [(0, 0.0), (2, 4.0)]


def test_when_summaries_are_written(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(tmp_path)
    assert not tf.summary.should_record_summaries()
    with writer.as_default():
        with pytest.raises(ValueError, match="No step set"):
            tf.summary.scalar("x", 1.0)
        tf.summary.experimental.set_step(5)
        assert tf.summary.experimental.get_step() == 5
        with tf.summary.record_if(False):
            assert not bool(tf.summary.scalar("x", 1.0))
        with tf.summary.record_if(lambda: tf.constant(True)):
            assert tf.summary.should_record_summaries()
            tf.summary.scalar("x", 2.0)
        tf.summary.write("w", [1.0, 2.0], step=6)
        with pytest.raises(ValueError, match="must be one number"):
            tf.summary.scalar("x", [1.0, 2.0])
        with pytest.raises(ValueError, match="pictures, height, width, channels"):
            tf.summary.image("x", np.zeros((2, 2)))
        tf.summary.flush()
        assert numbers(tmp_path, "x") == [(5, 2.0)]
    tf.summary.experimental.set_step(None)
    writer.close()
    with pytest.raises(RuntimeError, match="already closed"), writer.as_default():
        tf.summary.scalar("x", 1.0, step=1)
    with tf.summary.create_noop_writer().as_default():
        tf.summary.scalar("x", 1.0, step=1)
    with pytest.warns(UserWarning, match="there is no graph to record"):
        tf.summary.trace_on(graph=True)
    with pytest.raises(AttributeError, match=r"tf\.summary\.audio: scalars, histograms"):
        _ = tf.summary.audio


def test_the_callback_writes_epochs_batches_and_weights(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    model = tf.keras.Sequential(
        [tf.keras.Input((3,)), tf.keras.layers.Dense(2, name="first"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.SGD(0.125), "mse", metrics=["mae"])
    x = np.linspace(-1.0, 1.0, 24, dtype="float32").reshape(8, 3)
    callback = tf.keras.callbacks.TensorBoard(
        tmp_path, histogram_freq=2, write_images=True, write_steps_per_second=True, update_freq=2
    )
    history = model.fit(
        x, x[:, :1], epochs=3, batch_size=2, verbose=0, validation_data=(x, x[:, :1]), callbacks=[callback]
    ).history
    for folder, prefix in (("train", ""), ("validation", "val_")):
        for name in ("loss", "mae"):
            found = numbers(tmp_path / folder, f"epoch_{name}")
            assert [step for step, _ in found] == [0, 1, 2]
            np.testing.assert_allclose([value for _, value in found], history[prefix + name], rtol=1e-6)
    train = tmp_path / "train"
    assert numbers(train, "epoch_learning_rate") == [(0, 0.125), (1, 0.125), (2, 0.125)]
    assert all(value > 0 for _, value in numbers(train, "epoch_steps_per_second"))
    assert [step for step, _ in numbers(train, "batch_loss")] == [0, 2, 4, 6, 8, 10]
    tags = read(train).Tags()["tensors"]
    [histogram] = [tag for tag in tags if tag.startswith("first/kernel") and tag.endswith("/histogram")]
    assert [(step, value[:, 2].sum()) for step, value in tensors(train, histogram)] == [(0, 6), (2, 6)]
    assert sum(tag.endswith("/image") for tag in tags) == 4
    model.evaluate(x, x[:, :1], verbose=0, callbacks=[callback])
    callback.on_train_end()
    assert [step for step, _ in numbers(tmp_path / "validation", "evaluation_loss_vs_iterations")] == [12]
    with pytest.raises(ValueError, match="embeddings are not written"):
        tf.keras.callbacks.TensorBoard(embeddings_freq=1)


def test_without_the_package_a_sentence_says_what_to_install() -> None:
    program = """
import sys
sys.modules["tensorboard"] = None
import tape_tf as tf
try:
    tf.summary.create_file_writer("x")
except ModuleNotFoundError as error:
    assert "pip install 'tape-tf[tensorboard]'" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
