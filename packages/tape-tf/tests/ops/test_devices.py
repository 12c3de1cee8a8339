"""tf.config: what it says of devices, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import tape_tf as tf
from tape_tf.ops import devices

pytestmark = pytest.mark.each_backend


@pytest.fixture(autouse=True)
def _fresh_settings(monkeypatch: Any) -> None:
    monkeypatch.setattr(devices._Settings, "hidden", set())
    monkeypatch.setattr(devices._Settings, "configured", {})
    monkeypatch.setattr(devices._Settings, "soft", False)


@pytest.fixture
def cpu() -> Any:
    return tf.config.list_physical_devices("CPU")[0]


@pytest.fixture
def two_gpus(monkeypatch: Any) -> list[Any]:
    monkeypatch.setattr(type(devices.tc.get_backend()), "devices", lambda self: ["cpu", "cuda:0", "cuda:1"])
    return tf.config.list_physical_devices("GPU")


def test_a_device_is_one_logical_device(cpu: Any) -> None:
    assert tf.config.get_logical_device_configuration(cpu) is None
    one = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [one])
    assert tf.config.get_logical_device_configuration(cpu) == [one]
    with pytest.raises(RuntimeError, match=r"one logical device: it cannot stand for 6.*torch\.distributed"):
        tf.config.set_logical_device_configuration(cpu, [one] * 6)
    assert tf.config.get_logical_device_configuration(cpu) == [one]
    with pytest.raises(ValueError, match="memory limit on CPU"):
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration(memory_limit=10)])
    with pytest.raises(ValueError, match="Unrecognized device: 'CPU'"):
        tf.config.set_logical_device_configuration("CPU", [one])


def test_memory_of_a_gpu_is_limited_by_its_library(two_gpus: list[Any]) -> None:
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.set_per_process_memory_fraction"):
        tf.config.set_logical_device_configuration(
            two_gpus[0], [tf.config.experimental.VirtualDeviceConfiguration(memory_limit=1024)]
        )
    tf.config.experimental.set_memory_growth(two_gpus[1], True)
    assert tf.config.experimental.get_memory_growth(two_gpus[1])


def test_devices_are_spelled_as_in_tensorflow_whatever_the_library_calls_them(monkeypatch: Any) -> None:
    monkeypatch.setattr(type(devices.tc.get_backend()), "devices", lambda self: ["cpu:0", "cpu:1", "gpu:0", "tpu:0"])
    names = [found.name for found in tf.config.list_logical_devices()]
    assert names == ["/device:CPU:0", "/device:CPU:1", "/device:GPU:0", "/device:TPU:0"]
    with pytest.raises(RuntimeError, match="/CPU:2"), tf.device("/CPU:2"):
        raise AssertionError("never reached")


def test_the_cpu_is_selected_by_its_name() -> None:
    with tf.device("/CPU:0"):
        assert tf.zeros(2).device.endswith("/device:CPU:0")


def test_hidden_devices_are_not_used(cpu: Any, two_gpus: list[Any]) -> None:
    tf.config.set_visible_devices(two_gpus[1], "GPU")
    assert [found.name for found in tf.config.list_logical_devices()] == ["/device:CPU:0", "/device:GPU:1"]
    assert tf.config.get_visible_devices("GPU") == two_gpus[1:]
    assert len(tf.config.list_physical_devices()) == 3
    with pytest.raises(RuntimeError, match="/device:CPU:0, /device:GPU:1"), tf.device("/GPU:0"):
        pass
    tf.config.set_visible_devices([], "GPU")
    assert tf.config.get_visible_devices() == [cpu]
    tf.config.set_visible_devices(two_gpus, "GPU")
    assert len(tf.config.list_logical_devices("GPU")) == 2
    with pytest.raises(RuntimeError, match="would hide /physical_device:CPU:0"):
        tf.config.set_visible_devices([], "CPU")
    with pytest.raises(ValueError, match="Unrecognized device"):
        tf.config.set_visible_devices(cpu, "GPU")
    assert len(tf.config.get_visible_devices()) == 3


def test_soft_placement_takes_the_selected_device_for_one_that_is_not_there() -> None:
    assert not tf.config.get_soft_device_placement()
    with pytest.raises(RuntimeError, match="has the devices"), tf.device("/GPU:77"):
        pass
    tf.config.set_soft_device_placement(True)
    with tf.device("/GPU:77"):
        assert tf.constant(1.0).device == tf.zeros(()).device
    with pytest.raises(ValueError, match="is no name of a device"), tf.device("nowhere"):
        pass


def test_what_is_the_array_librarys_says_so() -> None:
    with pytest.raises(AttributeError, match="OMP_NUM_THREADS"):
        tf.config.threading.set_intra_op_parallelism_threads(2)
    with pytest.raises(AttributeError, match="use_deterministic_algorithms"):
        tf.config.experimental.enable_op_determinism()
