"""tf.train: saved values are restored, also into Variables that are made later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf


class Lazy(tf.Module):
    """A layer that makes its Variable in the first call."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units, self.built = units, False

    def __call__(self, x: Any) -> Any:
        if not self.built:
            self.w = tf.Variable(tf.random.normal([x.shape[-1], self.units]), name="w")
            self.built = True
        return x @ self.w


class Net(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [Lazy(3), Lazy(2)]
        self.scale = tf.Variable(2.0)

    def __call__(self, x: Any) -> Any:
        return self.scale * self.parts[1](self.parts[0](x))


X = tf.constant([[1.0, -1.0]])


def test_a_module_comes_back(tmp_path: Path) -> None:
    net = Net()
    expected = net(X).numpy()
    path = tf.train.Checkpoint(model=net).write(str(tmp_path / "net"))
    names = ["model/parts/0/w", "model/parts/1/w", "model/scale"]
    assert [name for name, _ in tf.train.list_variables(path)] == names
    assert tf.train.load_variable(path, "model/scale") == 2.0

    built = Net()
    built(X)
    tf.train.Checkpoint(model=built).restore(path).assert_consumed()
    assert np.array_equal(built(X).numpy(), expected)


def test_variables_that_are_made_later_get_their_values(tmp_path: Path) -> None:
    net = Net()
    net.scale.assign(5.0)
    expected = net(X).numpy()
    path = tf.train.Checkpoint(model=net).write(tmp_path / "net")
    lazy = Net()
    status = tf.train.Checkpoint(model=lazy).restore(path)
    assert float(lazy.scale) == 5.0
    with pytest.raises(AssertionError, match="model/parts/0/w"):
        status.assert_consumed()
    assert np.array_equal(lazy(X).numpy(), expected)
    status.assert_consumed()


def test_layers_and_optimizers_come_back(tmp_path: Path) -> None:
    """Training continues as if it had not been interrupted."""

    def make() -> tuple[Any, Any, Any]:
        layer = tf.keras.layers.Dense(2)
        optimizer = tf.keras.optimizers.Adam(0.1)
        step = tf.Variable(0, trainable=False)
        return layer, optimizer, tf.train.Checkpoint(layer=layer, optimizer=optimizer, step=step)

    def train(layer: Any, optimizer: Any, checkpoint: Any) -> None:
        for _ in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(X) ** 2)
            gradients = tape.gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(zip(gradients, layer.trainable_variables, strict=True))
            checkpoint.step.assign_add(1)

    first = make()
    train(*first)
    path = first[2].save(tmp_path / "new" / "ckpt")
    assert path.endswith("ckpt-1")
    train(*first)

    for build_first in (True, False):
        second = make()
        if build_first:
            second[0](X)
        status = second[2].restore(tf.train.latest_checkpoint(tmp_path / "new"))
        second[0](X)
        status.assert_consumed()
        assert int(second[2].step) == 3
        assert int(second[1].iterations) == 3
        train(*second)
        assert np.array_equal(second[0].kernel.numpy(), first[0].kernel.numpy())


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    v = tf.Variable(0.0)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=v), tmp_path / "all", max_to_keep=2)
    assert manager.latest_checkpoint is None
    assert manager.restore_or_initialize() is None
    for k in range(4):
        v.assign(float(k))
        saved = manager.save()
    assert [Path(path).name for path in manager.checkpoints] == ["ckpt-3", "ckpt-4"]
    assert manager.latest_checkpoint == saved == tf.train.latest_checkpoint(tmp_path / "all")
    v.assign(-1.0)
    assert manager.restore_or_initialize() == saved
    assert float(v) == 3.0


def test_no_checkpoint_changes_nothing(tmp_path: Path) -> None:
    v = tf.Variable(1.0)
    assert tf.train.latest_checkpoint(tmp_path) is None
    tf.train.Checkpoint(v=v).restore(None)
    assert float(v) == 1.0
    with pytest.raises(FileNotFoundError):
        tf.train.Checkpoint(v=v).restore(tmp_path / "none")


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    path = tf.train.Checkpoint(a=tf.Variable(1.0), b=tf.Variable([1.0, 2.0])).write(tmp_path / "file")
    a, b = tf.Variable(0.0), tf.Variable([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"'b' has shape \(2,\) in the file; the Variable has \(3,\)"):
        tf.train.Checkpoint(a=a, b=b).restore(path)
    assert float(a) == 0.0
    status = tf.train.Checkpoint(a=a, c=tf.Variable(7.0)).restore(path)
    assert float(a) == 1.0
    with pytest.raises(AssertionError, match="for: c"):
        status.assert_existing_objects_matched()
    with pytest.raises(ValueError, match="there are a, b"):
        tf.train.load_variable(path, "c")


def test_a_folder_without_checkpoints_is_said_to_be_one(tmp_path: Path) -> None:
    assert tf.train.latest_checkpoint(tmp_path) is None
    with pytest.raises(ValueError, match="Couldn't find checkpoints"):
        tf.train.list_variables(tmp_path)


def test_what_cannot_be_saved() -> None:
    with pytest.raises(TypeError, match=r"iterator=.*cannot be saved"):
        tf.train.Checkpoint(iterator=iter([1]))
    with pytest.raises(ValueError, match="max_to_keep"):
        tf.train.CheckpointManager(tf.train.Checkpoint(), "folder", max_to_keep=0)
