"""The backend itself: devices, arrays in and out, errors, reuse of memory; nothing imports PyTorch too early."""

from __future__ import annotations

import array
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import torch
from tape_core.backends import BackendError

CUDA = torch.cuda.is_available()
needs_cuda = pytest.mark.skipif(not CUDA, reason="there is no CUDA device")
CPU = "torch:cpu"


def python(code: str, **environment: str) -> str:
    import os

    command = [sys.executable, "-c", code]
    kept = {k: v for k, v in os.environ.items() if k != "TAPE_BACKEND"} | environment
    return subprocess.run(command, capture_output=True, text=True, check=True, env=kept).stdout.strip()


# -- PyTorch is imported when it is needed


def test_neither_tape_nor_the_plugin_imports_torch() -> None:
    python("import tape_core, tape_torch, sys; assert 'torch' not in sys.modules")
    code = "import tape_core as tc, sys; tc.sum(tc.ones(3)); assert 'torch' not in sys.modules"
    python(code, TAPE_BACKEND="numpy")


def test_a_torch_tensor_is_known_without_being_asked_for() -> None:
    code = "import torch, tape_core as tc; print(tc.sin(torch.zeros(2)).backend.name)"
    assert python(code, TAPE_BACKEND="numpy") == "torch"


# -- devices


def test_the_environment_selects_a_device() -> None:
    code = "import tape_core as tc; x = tc.zeros(2); print(x.backend.name, x.device)"
    assert python(code, TAPE_BACKEND="torch:cpu") == "torch cpu"
    assert python(code, TAPE_BACKEND="torch") == f"torch {'cuda:0' if CUDA else 'cpu'}"


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "xpu:0"])
def test_an_absent_device_is_an_error_that_names_those_present(device: str) -> None:
    for ask in (
        lambda: tc.zeros(2, backend="torch", device=device),
        lambda: tc.use_backend("torch", device=device),
        lambda: tc.use_backend(f"torch:{device}"),
    ):
        with pytest.raises(BackendError, match=f"no device '{device}'; its devices are cpu"):
            ask()
    with pytest.raises((BackendError, ValueError), match="its devices are cpu"):
        tc.zeros(2, backend=CPU).to_device(device)


def test_arrays_stay_where_they_are() -> None:
    there = torch.zeros(2, device="meta")
    assert tc.asarray(there).device == "meta"
    assert (tc.asarray(there) * 2).device == "meta"
    assert tc.zeros_like(tc.asarray(there)).device == "meta"


def test_two_devices_in_one_operation_are_an_error_with_both_and_the_op() -> None:
    x, y = tc.asarray(torch.zeros(2)), tc.asarray(torch.zeros(2, device="meta"))
    with pytest.raises(
        (ValueError, RuntimeError), match=r"matmul\(x1: float32\[2\] on cpu, x2: float32\[2\] on meta\)"
    ):
        tc.matmul(x, y)


@needs_cuda
def test_a_gradient_travels_between_devices() -> None:
    x = tc.Variable([1.0, 2.0], backend=CPU)
    with tc.GradientTape() as tape:
        y = tc.sum(x.to_device("cuda:0") ** 2)
    gradient = tape.gradient(y, x)
    assert (y.device, gradient.device, gradient.tolist()) == ("cuda:0", "cpu", [2.0, 4.0])


@needs_cuda
def test_from_the_host_by_pinned_memory() -> None:
    values = np.random.default_rng(0).standard_normal(1 << 16)
    x = tc.asarray(values, backend="torch", device="cuda:0")
    values[:] = 0  # the asynchronous copy must not see this
    assert x.device == "cuda:0"
    assert np.any(x.numpy())
    pinned = torch.ones(1 << 16).pin_memory()
    assert tc.asarray(pinned, device="cuda:0").sum().item() == 1 << 16


# -- arrays in and out


def test_memory_is_shared_with_torch() -> None:
    raw = torch.arange(3.0)
    assert tc.asarray(raw).array is raw
    assert tc.asarray(raw, copy=True).array.data_ptr() != raw.data_ptr()
    assert tc.zeros(3, backend=CPU).array.data_ptr() != 0
    assert tc.from_dlpack(np.arange(3.0), backend=CPU).array.dtype is torch.float64


@pytest.mark.parametrize(
    "obj",
    [
        [[1, 2], [3, 4]],
        [[1.0, 2.0], [3.0, 4.0]],
        [True, False],
        [1 + 2j],
        3.5,
        [],
        [np.float64(1.5), np.float64(2.5)],
        [np.arange(3), np.arange(3)],
        array.array("d", [1.0, 2.0]),
        bytearray(b"\x01\x02"),
        np.arange(6.0)[::-1],
        np.arange(6.0).reshape(2, 3).T,
        np.zeros((0, 3), np.float32),
        np.float32(2.5),
        np.array(1 + 2j),
        np.arange(3, dtype=np.uint16),
    ],
    ids=repr,
)
def test_anything_that_numpy_reads(obj: Any) -> None:
    expected = tc.asarray(obj, backend="numpy")
    found = tc.asarray(obj, backend=CPU)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_read_only_array_is_copied() -> None:
    values = np.arange(3.0)
    values.flags.writeable = False
    assert not np.shares_memory(tc.asarray(values, backend=CPU).numpy(), values)
    with pytest.raises(ValueError, match="copy=False"):
        tc.asarray(values, backend=CPU, copy=False)


def test_python_numbers_are_rounded_once() -> None:
    assert tc.asarray([0.1], dtype="float64", backend=CPU).item() == 0.1
    tc.set_default_dtype(tc.float64)
    try:
        assert tc.asarray([0.1], backend=CPU).item() == 0.1
    finally:
        tc.set_default_dtype(None)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "complex128"])
def test_gradients_in_every_floating_dtype(dtype: str) -> None:
    x = tc.Variable([0.5, 2.0], dtype=dtype, backend=CPU)
    with tc.GradientTape() as tape:
        y = tc.sum(x * x * 3)
    gradient = tape.gradient(y, x)
    assert gradient.dtype.name == dtype
    np.testing.assert_allclose(gradient.numpy(), [3.0, 12.0])


def test_bfloat16_is_seen_by_numpy_as_float32() -> None:
    x = tc.asarray([1.5, 2.5], dtype=tc.bfloat16, backend=CPU)
    assert (x.numpy().dtype, x.tolist(), repr(x)) == (
        np.float32,
        [1.5, 2.5],
        "Tensor([1.5 2.5], shape=(2,), dtype=bfloat16, backend=torch)",
    )


def test_two_backends_in_one_operation_are_an_error() -> None:
    with pytest.raises(TypeError, match="is on backend 'numpy', another operand on 'torch'"):
        tc.zeros(2, backend=CPU) + tc.zeros(2, backend="numpy")


# -- errors in the user's terms


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: tc.add(x, tc.zeros(4, backend=CPU)), ValueError, "add.*float32.*broadcast"),
        (lambda x: tc.sum(x, axis=5), IndexError, r"sum\(x: float32"),
        (lambda x: x[7], IndexError, "getitem"),
        (lambda x: tc.reshape(x, (5, 5)), ValueError, "reshape"),
        (lambda x: tc.matmul(x, tc.zeros((7, 2), backend=CPU)), ValueError, "matmul"),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(tc.zeros((2, 3), backend=CPU))


# -- memory that a sweep may overwrite


def held_by(backend: Any, **others: Any) -> bool:
    """Return whether a new tensor counts as exclusive, while the results of `others` on it are referenced, too."""
    t = torch.zeros(1000)
    kept = [make(t) for make in others.values()]
    answer = backend.is_exclusive(t, 1)
    del kept
    return bool(answer)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="references cannot be counted")
def test_what_others_see_is_not_exclusive() -> None:
    backend = tc.zeros(1, backend=CPU).backend
    assert held_by(backend)
    assert not held_by(backend, name=lambda t: t)
    assert not held_by(backend, view=lambda t: t[3:])
    assert not held_by(backend, detached=lambda t: t.detach())
    assert not held_by(backend, numpy=lambda t: t.numpy())
    assert not held_by(backend, dlpack=torch.utils.dlpack.to_dlpack)
    assert not held_by(backend, saved=lambda t: torch.ones(1000, requires_grad=True) * t)
    assert not held_by(backend, storage=lambda t: t.untyped_storage())
    expanded = torch.zeros(1).expand(1000)
    assert not backend.is_exclusive(expanded, 1)
    shared = torch.from_numpy(np.zeros(1000))
    assert not backend.is_exclusive(shared, 1)


N = 40_000  # elements: large enough for buffers to be reused
FUNCTIONS = {
    "chain": lambda x, y: tc.tanh(tc.exp(x * y * 0.1)) + x + y,
    "twice": lambda x, y: (x + x) * (y + y) - x * tc.sin(x),
    "views": lambda x, y: x[::2] * y[1::2] + tc.flip(x)[::2],
    "broadcast": lambda x, y: tc.broadcast_to(x, (3, N)) * y + tc.sum(x),
    "square": lambda x, y: x**2 * tc.exp(-x * x) + x / (y * y + 1.0),
    "where": lambda x, y: tc.where(x > y, x * y, tc.sin(x)) + tc.relu(x) * tc.softmax(y),
    "matmul": lambda x, y: tc.reshape(x, (200, 200)) @ tc.reshape(y, (200, 200)) + tc.mean(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_that_others_can_see_is_overwritten(name: str) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(N), rng.standard_normal(N)]
    gradients = {}
    for backend in ("numpy", CPU):
        x, y = (tc.asarray(v.copy(), backend=backend) for v in values)
        with tc.GradientTape(persistent=True) as tape:
            tape.watch([x, y])
            a, b = x * 1.0, y + 0.0
            out = FUNCTIONS[name](a, b)
        seed = tc.asarray(np.asarray(rng.standard_normal(1))[0] + np.zeros(out.shape), backend=backend) * 0 + 1.5
        before = [t.numpy() for t in (x, y, a, b, out, seed)]
        first = tape.gradient(out, [x, y, a, b], output_gradients=seed)
        copies = [d.numpy() for d in first if d is not None]
        second = tape.gradient(out, [x, y, a, b], output_gradients=seed)
        for t, value in zip((x, y, a, b, out, seed), before, strict=True):
            np.testing.assert_array_equal(t.numpy(), value)
        for d, value in zip([d for d in first if d is not None], copies, strict=True):
            np.testing.assert_array_equal(d.numpy(), value)
        gradients[backend] = [d.numpy() for d in second if d is not None]
    for d, expected in zip(gradients[CPU], gradients["numpy"], strict=True):
        np.testing.assert_allclose(d, expected, rtol=1e-10, atol=1e-12)


def test_an_imaginary_part_that_is_dropped_is_warned_of_every_time() -> None:
    for _ in range(2):
        with pytest.warns(UserWarning, match="complex64 becomes torch.float32: the imaginary part is discarded"):
            assert tc.astype(tc.asarray([1 + 2j], backend=CPU), "float32").tolist() == [1.0]


def test_errors_inside_vmap_show_the_shapes_of_one_example() -> None:
    x = tc.ones((5, 3), backend="torch")
    wanted = r"^add\(x1: float32\[3\], x2: float32\[4\]\) of one example, inside vmap; called for all of them: add\("
    mapped = tc.vmap(lambda r: r + tc.ones(4, backend="torch"))
    for f in (mapped, tc.grad(lambda x: tc.sum(mapped(x)))):
        with pytest.raises(ValueError, match=wanted):
            f(x)


def test_arrays_of_numpy_pick_what_is_multiplied() -> None:
    values = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    for key in (np.asarray([0, 2]), np.asarray([2, 0], dtype="uint8"), (np.asarray(1), np.asarray([0, 0]))):

        def f(x: Any) -> Any:
            return tc.sum(tc.at(x)[key].multiply(x[key]) ** 2)  # noqa: B023

        expected = tc.grad(f)(tc.asarray(values, backend="numpy")).tolist()
        assert tc.grad(f)(tc.asarray(values, backend="torch")).tolist() == expected
        small = tc.asarray(values, dtype=tc.int8, backend="torch")
        own = tc.at(small.numpy())[key].multiply(3)
        assert tc.at(small)[key].multiply(3).tolist() == own.tolist()
