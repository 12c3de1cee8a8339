"""Each check of the contract catches a fault: a backend that breaks one promise fails the check of that promise."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import array_api_strict
import numpy as np
import pytest
from tape_conformance import check_backend, checks
from tape_conformance.kinds import contract
from tape_core.backends import ArrayAPIBackend, Backend
from tape_core.backends.random_kernels import RandomKernels
from tape_core.backends.selection import select
from tape_core.extend import registry
from tape_numpy.backend import NumPyBackend

Fault = Callable[[pytest.MonkeyPatch], "str | Backend"]
"""Plants a fault; returns what `check_backend` is to check."""

FAULTS: dict[str, Fault] = {}

RAISED = {"contract/backward/quiet": "RuntimeWarning"}
"""The errors of checks that no assertion catches."""


def fault_for(check: str) -> Callable[[Fault], Fault]:
    """Register a fault that the check of this id must catch."""

    def register(fault: Fault) -> Fault:
        FAULTS[f"contract/{check}"] = fault
        return fault

    return register


def with_kernels(**kernels: Any) -> Backend:
    backend = NumPyBackend()
    backend.kernels.update(kernels)
    return backend


def with_methods(**methods: Any) -> Backend:
    return type("Faulty", (NumPyBackend,), methods)()


# -- what all other checks need


@fault_for("dtype/float64")
def makes_float32_in_its_place(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def raw_dtype(self: NumPyBackend, dtype: Any) -> Any:
        found = NumPyBackend.raw_dtype(self, dtype)
        return np.dtype(np.float32) if found == np.float64 else found

    return with_methods(raw_dtype=raw_dtype)


# -- the plugin


@fault_for("plugin/64-bit")
def makes_32_bits_of_64(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def asarray(self: NumPyBackend, obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
        return NumPyBackend.asarray(self, obj, dtype=np.float32 if dtype == np.float64 else dtype, copy=copy)

    return with_methods(asarray=asarray)


@fault_for("plugin/name")
def has_another_name(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(select("numpy").backend, "name", "nunpy")
    return "numpy"


@fault_for("plugin/light")
def imports_the_library_on_discovery(monkeypatch: pytest.MonkeyPatch) -> str:
    heavy = SimpleNamespace(entry_points=[SimpleNamespace(module="tape_numpy.kernels")])
    monkeypatch.setattr(contract, "installed", lambda: {"numpy": heavy})
    return "numpy"


@fault_for("plugin/types")
def states_another_array_type(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return ArrayAPIBackend("strict", array_api_strict, array_types=("array_api_strict:Tensor",))


@fault_for("plugin/names")
def has_a_kernel_for_no_op(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_kernels(sine=np.sin, sinn=np.sin)


# -- creation


@fault_for("creation/values")
def makes_ones_of_zeros(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_kernels(zeros=lambda shape, *, dtype=None, device=None: np.ones(shape, dtype))


@fault_for("creation/default-dtypes")
def is_wide_by_default(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def asarray(self: NumPyBackend, obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
        return NumPyBackend.asarray(self, obj, dtype=np.float64 if dtype == np.float32 else dtype, copy=copy)

    return with_methods(asarray=asarray)


@fault_for("creation/copies")
def forgets_to_copy(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def asarray(self: NumPyBackend, obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
        return NumPyBackend.asarray(self, obj, dtype=dtype)

    return with_methods(asarray=asarray)


@fault_for("creation/random")
def loses_a_bit_of_integers(monkeypatch: pytest.MonkeyPatch) -> Backend:
    class Faulty(RandomKernels):
        def words(self, key: Any, counter: int, n: int, device: str | None = None) -> Any:
            return super().words(key, counter, n, device) & ~1

    backend = with_kernels()
    backend.random = Faulty(backend)
    return backend


# -- dtypes


@fault_for("dtype/required")
def lacks_int32(monkeypatch: pytest.MonkeyPatch) -> Backend:
    names = [name for name in dir(np) if not name.startswith("_") and name != "int32"]
    return ArrayAPIBackend("partial", SimpleNamespace(**{name: getattr(np, name) for name in names}))


@fault_for("dtype/round-trip")
def takes_int32_for_int64(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def dtype(self: NumPyBackend, raw: Any) -> Any:
        return NumPyBackend.dtype(self, np.int64 if raw == np.int32 else raw)

    return with_methods(dtype=dtype)


@fault_for("dtype/promotion")
def adds_integers_in_64_bits(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def add(a: Any, b: Any) -> Any:
        out = a + b
        return out.astype(np.int64) if out.dtype.kind == "i" else out

    return with_kernels(add=add)


@fault_for("dtype/scalars")
def makes_arrays_of_python_numbers(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_kernels(multiply=lambda a, b: np.asarray(a) * np.asarray(b))


@fault_for("dtype/casts")
def casts_by_comparison(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_kernels(astype=lambda x, dtype, *, copy=True: (x > 1).astype(dtype))


@fault_for("dtype/bfloat16")
def adds_up_bfloat16_as_it_is(monkeypatch: pytest.MonkeyPatch) -> Backend:
    if importlib.util.find_spec("ml_dtypes") is None:
        pytest.skip("NumPy has bfloat16 with ml_dtypes only")

    def narrow_sum(x: Any, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        if x.dtype.kind != "V":
            return np.sum(x, axis=axis, dtype=dtype, keepdims=keepdims)
        total = np.add.reduce(np.ndarray.view(x, np.ndarray), axis=axis, keepdims=keepdims)
        return np.asarray(total).view(type(x))

    return with_kernels(sum=narrow_sum)


# -- devices


@fault_for("device/listed")
def lists_other_devices_than_the_default(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_methods(devices=lambda self: ("gpu:0",))


@fault_for("device/placement")
def stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return ArrayAPIBackend("strict", array_api_strict, kernels={"to_device": lambda x, device, origin: x})


@fault_for("device/absent")
def claims_every_device(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_methods(devices=lambda self: ("cpu", "warp:42"))


# -- conversion


@fault_for("conversion/values")
def converts_to_float64(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_methods(numpy=lambda self, array: np.asarray(array, dtype=np.float64))


@fault_for("conversion/array")
def gives_scalars_away(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_methods(public=lambda self, array: array)


@fault_for("conversion/host-data")
def leaves_host_data_where_they_are(monkeypatch: pytest.MonkeyPatch) -> Backend:
    # Host data are known by the description of the plugin; without it NumPy's arrays stay on NumPy.
    monkeypatch.setattr(select("numpy").backend, "host_data", False)
    return ArrayAPIBackend("strict", array_api_strict)


@fault_for("conversion/dlpack")
def imports_zeros_by_dlpack(monkeypatch: pytest.MonkeyPatch) -> Backend:
    backend = NumPyBackend()
    names = {name: getattr(np, name) for name in dir(np) if not name.startswith("_")}
    names["from_dlpack"] = lambda x, **options: np.zeros_like(np.from_dlpack(x, **options))
    backend.namespace = SimpleNamespace(**names)
    return backend


# -- errors


@fault_for("errors/mixed-backends")
def joins_arrays_of_any_backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    # The op itself is replaced: what operands belong to is decided before any kernel runs.
    def concat(arrays: Any, *, axis: Any = 0) -> Any:
        return arrays[0]

    import tape_core as tc

    monkeypatch.setattr(tc, "concat", concat)
    return NumPyBackend()


@fault_for("errors/shapes")
def cuts_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def add(a: Any, b: Any) -> Any:
        try:
            return a + b
        except ValueError:
            n = min(a.shape[-1], b.shape[-1])
            return a[..., :n] + b[..., :n]

    return with_kernels(add=add)


@fault_for("errors/operands")
def takes_objects(monkeypatch: pytest.MonkeyPatch) -> Backend:
    import tape_core as tc

    monkeypatch.setattr(tc, "sin", lambda x: tc.ones(len(x)))
    return NumPyBackend()


# -- the backward pass


@fault_for("backward/quiet")
def warns_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def quiet(self: NumPyBackend) -> AbstractContextManager[Any]:
        return nullcontext()

    return with_methods(quiet=quiet)


@fault_for("backward/exclusive")
def takes_every_array_for_its_own(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_methods(is_exclusive=lambda self, array, references: True)


@fault_for("memory/spare")
def gives_the_memory_of_others(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_methods(spare_memory=lambda self, kept, shape, dtype: kept.pop() if kept else None)


@fault_for("memory/formulas")
def writes_into_the_first_argument(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def subtract_scaled(w: Any, x: Any, scale: float, *, out: Any = None) -> Any:
        w -= x * scale
        return w

    return with_methods(formulas=lambda self, example: {"subtract_scaled": subtract_scaled})


@fault_for("backward/scale")
def scales_the_wrong_elements(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def scale(self: NumPyBackend, g: Any, partial: Any, arguments: Any, in_place: bool) -> Any:
        return np.roll(NumPyBackend.scale(self, g, partial, arguments, in_place), 1)

    return with_methods(scale=scale)


@pytest.mark.parametrize("check", FAULTS)
def test_the_check_catches_its_fault(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = check_backend(FAULTS[check](monkeypatch), only=check).results
    assert result.outcome == "failed"
    assert result.detail.startswith(RAISED.get(check, "AssertionError")), result.detail


def test_that_float64_must_be_there_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = check_backend(makes_float32_in_its_place(monkeypatch), only="contract/dtype/float64").results
    assert "your library must make float64 when asked: " in result.detail
    assert result.detail.endswith("is float32")
    assert checks("numpy")[0].id == result.id


def test_every_check_of_the_contract_has_a_fault() -> None:
    assert {check.id for check in checks("numpy", ["contract/*"])} == set(FAULTS)


def test_without_a_fault_nothing_is_caught() -> None:
    assert check_backend("numpy", only="contract/*").ok
    assert "sine" not in registry
