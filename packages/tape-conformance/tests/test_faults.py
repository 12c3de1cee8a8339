"""The tester is tested: a backend with one planted fault is caught, by the check meant for it and by no other kind."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from tape_conformance import check_backend
from tape_core.backends import ArrayAPIBackend, Backend
from tape_numpy.backend import NumPyBackend


def numpy(kernels: dict[str, Any] | None = None, rules: dict[str, Any] | None = None) -> Backend:
    backend = NumPyBackend()
    backend.kernels.update(kernels or {})
    backend.rules.update(rules or {})
    return backend


def strict(**kernels: Any) -> Backend:
    return ArrayAPIBackend("strict", array_api_strict, kernels=kernels)


def wrong_rule() -> Backend:
    return numpy(rules={"multiply": {"x1": lambda xp, x2: -x2}})


def second_order_lost() -> Backend:
    def rule(xp: Any, out: Any) -> Any:
        return tc.stop_gradient(out) if isinstance(out, tc.Tensor) else out

    return numpy(rules={"exp": {"x": rule}})


def input_written_to() -> Backend:
    return numpy({"exp": lambda x: np.exp(x, out=x) if isinstance(x, np.ndarray) and x.flags.writeable else np.exp(x)})


def writes_and_restores() -> Backend:
    def negative(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return -x
        x *= -1
        out = x.copy()
        x *= -1
        return out

    return numpy({"negative": negative})


def wrong_dtype() -> Backend:
    return numpy({"tanh": lambda x: np.tanh(x, dtype=np.complex128 if np.iscomplexobj(x) else np.float64)})


def axis_off_by_one() -> Backend:
    def flip(x: Any, *, axis: Any = None) -> Any:
        return np.flip(x, axis=(axis + 1) % x.ndim if isinstance(axis, int) else axis)

    return numpy({"flip": flip})


def device_lost() -> Backend:
    return strict(to_device=lambda x, device, origin: x)


def ignores_nan() -> Backend:
    return numpy({"maximum": np.fmax})


def conjugate_forgotten() -> Backend:
    return numpy({"conj": lambda x: +x})


def keeps_its_inputs() -> Backend:
    kept: list[Any] = []

    def tan(x: Any) -> Any:
        kept.append(x)
        return np.tan(x)

    return numpy({"tan": tan})


def accepts_what_does_not_fit() -> Backend:
    def add(a: Any, b: Any) -> Any:
        try:
            return a + b
        except ValueError:
            n = min(a.shape[-1], b.shape[-1])
            return a[..., :n] + b[..., :n]

    return numpy({"add": add})


def needs_contiguous_memory() -> Backend:
    def square(x: Any) -> Any:
        flat = np.lib.stride_tricks.as_strided(x, x.shape, np.empty(x.shape, x.dtype).strides)
        return np.array(flat * flat)

    return numpy({"square": square})


def overwrites_shared_memory() -> Backend:
    class Greedy(NumPyBackend):
        def is_exclusive(self, array: Any, references: int) -> bool:
            return True

    return Greedy()


def blocks_at_the_wrong_place() -> Backend:
    class Shifted(NumPyBackend):
        def scale(self, g: Any, partial: Any, arguments: Any, in_place: bool) -> Any:
            return np.roll(super().scale(g, partial, arguments, in_place), 1)

    return Shifted()


def wide_by_default() -> Backend:
    class Wide(NumPyBackend):
        def asarray(self, obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
            return super().asarray(obj, dtype=np.float64 if dtype == np.float32 else dtype, copy=copy)

    return Wide()


@pytest.mark.parametrize(
    ("fault", "run", "caught"),
    [
        (wrong_rule, "multiply/*", ["multiply/vjp/x1/*", "multiply/[jc]*", "multiply/second/*", "multiply/special"]),
        (second_order_lost, "exp/*", ["exp/second/*", "exp/jvp/*"]),
        (input_written_to, "exp/*", ["exp/mutation/*", "exp/*"]),
        (writes_and_restores, "negative/*", ["negative/layout/*"]),
        (wrong_dtype, "tanh/*", ["tanh/float32/*"]),
        (axis_off_by_one, "flip/*", ["flip/value/*", "flip/batch/*", "flip/compose/*", "flip/sparsity/*"]),
        (device_lost, ["to_device/*", "contract/device/*"], ["contract/device/placement"]),
        (ignores_nan, "maximum/*", ["maximum/special"]),
        (conjugate_forgotten, "conj/*", ["conj/value/complex*", "conj/?vp/*complex*"]),
        (keeps_its_inputs, "tan/*", ["tan/memory/*"]),
        (accepts_what_does_not_fit, "add/*", ["add/refused/*"]),
        (needs_contiguous_memory, "square/*", ["square/layout/*"]),
        (overwrites_shared_memory, ["contract/*", "multiply/*"], ["contract/backward/exclusive", "multiply/large"]),
        (blocks_at_the_wrong_place, ["contract/*", "sin/*"], ["contract/backward/scale", "sin/large"]),
        (wide_by_default, "contract/creation/*", ["contract/creation/*"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)  # fmt: skip
def test_a_planted_fault_is_caught(fault: Callable[[], Backend], run: str, caught: list[str]) -> None:
    report = check_backend(fault(), only=run)
    failed = [result.id for result in report.failed]
    assert any(fnmatchcase(id, caught[0]) for id in failed), str(report)
    assert not [id for id in failed if not any(fnmatchcase(id, pattern) for pattern in caught)], str(report)


def test_without_a_fault_nothing_is_caught() -> None:
    assert check_backend(numpy(), only=["multiply/*", "exp/*", "tape/*"]).ok
    assert check_backend(strict(), only=["to_device/*", "contract/device/*"]).ok
