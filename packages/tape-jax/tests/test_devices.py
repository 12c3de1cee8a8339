"""Devices: names, transfers, the default one, several devices of the CPU, and what is said where one is missing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import tape_core as tc
from support import run_python
from tape_core.backends import BackendError


def on_four_devices(code: str) -> str:
    """Run code in a process whose CPU is four devices; return what it prints."""
    # More threads than devices: see test_distribution.py.
    four = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "NPROC": "32", "TAPE_BACKEND": "jax"}
    return run_python("-c", code, environment=four).strip()


def test_a_missing_device_is_an_error_with_the_cure() -> None:
    cures = {"cpu:3": "device_count=4", "gpu:1": r"jax\[cuda", "cuda": r"jax\[cuda", "tpu": r"jax\[tpu\]"}
    for device, cure in cures.items():
        for ask in (
            lambda device=device: tc.zeros(2, backend="jax", device=device),
            lambda device=device: tc.use_backend(f"jax:{device}"),
        ):
            with pytest.raises(BackendError, match=rf"no device '{device}'; its devices are cpu:0\n.*{cure}"):
                ask()
    with pytest.raises(BackendError, match=r"no device 'moon'; its devices are cpu:0$"):
        tc.zeros(2, backend="jax", device="moon")


def test_arrays_are_made_on_and_moved_between_devices() -> None:
    code = """
import numpy as np, tape_core as tc, jax
print(tc.get_backend().devices(), tc.get_backend().default_device)
x = tc.Variable([1.0, 2.0], backend="jax:cpu:2")
with tc.GradientTape() as tape:
    y = tc.sum((x * 2.0).to_device("cpu:1") * tc.asarray([1.0, 3.0], device="cpu:1"))
g = tape.gradient(y, x)
print(x.device, y.device, g.device, g.numpy().tolist())
print(tc.to_backend(g, "jax", "cpu:3").device, tc.to_backend(g, "jax").device, tc.to_backend(g, "numpy").device)
print(tc.to_backend(np.ones(2), "jax:cpu:3").device, tc.zeros_like(x).device)
print(tc.default_rng(0).uniform((2,), device="cpu:3").device)
with tc.use_backend("jax:cpu:1"):
    print(tc.ones(2).device, tc.asarray([1.0]).device, tc.arange(3).device)
with jax.default_device(jax.devices()[3]):
    print(tc.ones(2).device, tc.asarray([1.0]).device, tc.default_rng(0).normal((2,)).device)
    print(tc.ones(2, device="cpu:0").device)
"""
    assert on_four_devices(code).splitlines() == [
        "('cpu:0', 'cpu:1', 'cpu:2', 'cpu:3') cpu:0",
        "cpu:2 cpu:1 cpu:2 [2.0, 6.0]",
        "cpu:3 cpu:0 cpu",
        "cpu:3 cpu:2",
        "cpu:3",
        "cpu:1 cpu:1 cpu:1",
        "cpu:3 cpu:3 cpu:3",
        "cpu:0",
    ]


def test_new_arrays_follow_others_since_nobody_asked_for_their_device() -> None:
    code = """
import tape_core as tc
x = tc.ones(2, device="cpu:2")
print((x + tc.ones(2)).device, tc.where(x > 0, x, tc.zeros(2)).device)
"""
    assert on_four_devices(code) == "cpu:2 cpu:2"


def test_operands_on_two_devices_are_an_error_that_names_both() -> None:
    code = """
import tape_core as tc
try: tc.ones(2, device="cpu:1") + tc.ones(2, device="cpu:2")
except ValueError as error: print(error)
"""
    found = on_four_devices(code)
    assert "cpu:1" in found
    assert "cpu:2" in found


def test_an_array_on_several_devices_has_a_name_and_computes() -> None:
    code = """
import jax, numpy as np, tape_core as tc
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.asarray(jax.devices()), ("data",))
x = tc.asarray(jax.device_put(np.arange(8.0), NamedSharding(mesh, P("data"))))
g = tc.grad(lambda x: tc.sum(tc.sin(x) * x))(x)
print(x.device, g.device, g.array.sharding.spec[0], tc.zeros_like(x).device, tc.zeros(3, device=x.device).device)
print(np.allclose(g.numpy(), np.cos(np.arange(8.0)) * np.arange(8.0) + np.sin(np.arange(8.0))))
"""
    found = on_four_devices(code)
    assert found.splitlines() == ["cpu:0-3 cpu:0-3 data cpu:0-3 cpu:0-3", "True"]


def test_inside_jit_there_is_no_device_to_move_to() -> None:
    def f(x: jax.Array) -> jax.Array:
        return tc.asarray(x).to_device("cpu:0").array * 2

    assert jax.jit(f)(jnp.ones(2)).tolist() == [2.0, 2.0]
