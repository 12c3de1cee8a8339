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


def test_an_iterator_goes_on_where_it_was(tmp_path: Path) -> None:
    def make(reshuffle: bool = True) -> Any:
        data = tf.data.Dataset.range(20).shuffle(20, seed=3, reshuffle_each_iteration=reshuffle)
        return tf.train.Checkpoint(step=tf.Variable(0), iterator=iter(data.map(lambda x: 10 * x).batch(2)))

    first = make()
    for _ in range(3):
        next(first.iterator)
    path = first.save(tmp_path / "ckpt")
    expected = [next(first.iterator).numpy().tolist() for _ in range(7)]
    second = make()
    next(second.iterator)
    second.restore(path).assert_consumed()
    assert [batch.numpy().tolist() for batch in second.iterator] == expected
    third = make(reshuffle=False)
    list(third.iterator)
    third.restore(path)  # back, in one process
    assert third.iterator.get_next().numpy().tolist() == expected[0]
    short = tf.train.Checkpoint(step=tf.Variable(0), iterator=iter(tf.data.Dataset.range(2)))
    with pytest.raises(ValueError, match="has 2 elements, fewer than the 3 to skip"):
        short.restore(path)


def test_checkpoints_in_checkpoints(tmp_path: Path) -> None:
    def make(value: float) -> tuple[Any, Any, Any]:
        layer, v = tf.keras.layers.Dense(1, use_bias=False), tf.Variable(value)
        inner = tf.train.Checkpoint(layer, v=v)
        layer.build((None, 1))
        layer.set_weights([[[value]]])
        return inner, v, tf.train.Checkpoint(inner=inner, also=v)

    first, second = make(2.0), make(0.0)
    path = first[2].save(tmp_path / "ckpt")
    names = [name for name, _ in tf.train.list_variables(path)]
    assert {"inner/kernel", "inner/v", "inner/save_counter"} <= set(names)
    second[2].restore(path).assert_consumed()
    assert float(second[1]) == 2.0
    assert second[0]._objects[""].kernel.numpy().tolist() == [[2.0]]


def test_a_reader_of_a_checkpoint(tmp_path: Path) -> None:
    v = tf.Variable([1.0, 2.0])
    tf.train.Checkpoint(v=v, n=tf.Variable(3)).save(tmp_path / "ckpt")
    for reader in (tf.train.load_checkpoint(tmp_path), tf.train.load_checkpoint(tmp_path / "ckpt-1")):
        assert reader.get_variable_to_shape_map() == {"n": [], "save_counter": [], "v": [2]}
        assert reader.get_variable_to_dtype_map()["v"] == tf.float32
        assert reader.has_tensor("v")
        assert reader.get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE").tolist() == [1.0, 2.0]
        with pytest.raises(ValueError, match="there is no 'w' in the checkpoint; there are n, save_counter, v"):
            reader.get_tensor("w")


def test_what_a_manager_saves_and_keeps(tmp_path: Path) -> None:
    step, called = tf.Variable(0), []
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(step=step), tmp_path, 1, step_counter=step, checkpoint_interval=3,
        keep_checkpoint_every_n_hours=0.0, init_fn=lambda: called.append(1),
    )  # fmt: skip
    assert manager.restore_or_initialize() is None
    assert called == [1]
    saved = []
    for _ in range(7):
        saved.append(manager.save())
        step.assign_add(1)
    assert [path is not None for path in saved] == [True, False, False, True, False, False, True]
    assert [Path(path).name for path in manager.checkpoints] == ["ckpt-1", "ckpt-2", "ckpt-3"], "kept for the hours"
    assert manager.save(check_interval=False) is not None
    with pytest.raises(ValueError, match="step_counter"):
        tf.train.CheckpointManager(tf.train.Checkpoint(), tmp_path, 1, checkpoint_interval=2)


def test_new_checkpoints_are_iterated_over(tmp_path: Path) -> None:
    checkpoint, seen = tf.train.Checkpoint(v=tf.Variable(1.0)), []
    assert list(tf.train.checkpoints_iterator(tmp_path / "missing", timeout=0.01)) == []
    checkpoint.save(tmp_path / "ckpt")
    for path in tf.train.checkpoints_iterator(tmp_path, timeout=0.01, timeout_fn=lambda: True):
        seen.append(Path(path).name)
        if len(seen) < 3:
            checkpoint.save(tmp_path / "ckpt")
    assert seen == ["ckpt-1", "ckpt-2", "ckpt-3"]


def test_what_cannot_be_saved() -> None:
    with pytest.raises(TypeError, match=r"iterator=.*cannot be saved"):
        tf.train.Checkpoint(iterator=iter([1]))
    with pytest.raises(ValueError, match="max_to_keep"):
        tf.train.CheckpointManager(tf.train.Checkpoint(), "folder", max_to_keep=0)
