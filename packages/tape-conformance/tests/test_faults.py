"""Each kind of check of ops catches a fault, planted in a backend or an op: the check meant for it, and no other kind.

`test_contract_faults`, `test_tape_faults` and `test_passes` do the same for the other checks.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from inspect import signature
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_conformance import check_backend, checks
from tape_core.backends import Backend
from tape_core.extend import registry, vjp
from tape_numpy.backend import NumPyBackend


def numpy(kernels: dict[str, Any] | None = None, rules: dict[str, Any] | None = None) -> Backend:
    backend = NumPyBackend()
    backend.kernels.update(kernels or {})
    backend.rules.update(rules or {})
    return backend


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


def promotes_as_numpy_does() -> Backend:
    backend = numpy({})
    backend.promotes = lambda name: True  # type: ignore[method-assign]  # so that no result is looked at
    return backend


def axis_off_by_one() -> Backend:
    def flip(x: Any, *, axis: Any = None) -> Any:
        return np.flip(x, axis=(axis + 1) % x.ndim if isinstance(axis, int) else axis)

    return numpy({"flip": flip})


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


def cotangent_written_to() -> Backend:
    return numpy(
        rules={"sin": {"x": vjp(lambda xp, g, x: np.multiply(g, np.cos(x), out=g) if g.ndim else g * xp.cos(x))}}
    )


def wrong_jvp() -> Backend:
    jvp = NumPyBackend().kernels["max_pool_jvp"]
    return numpy({"max_pool_jvp": lambda tangent, x, *window, **options: -jvp(tangent, x, *window, **options)})


def parameters_without_names() -> Backend:
    return numpy({"roll": lambda x, *by, axis=None: np.roll(x, *by, axis=axis)})


def wrong_in_three_dimensions() -> Backend:
    return numpy({"tanh": lambda x: np.tanh(x) if np.ndim(x) < 3 else np.tanh(x[::-1])})


def rule_wrong_in_three_dimensions() -> Backend:
    return numpy(rules={"tanh": {"x": lambda xp, out: 1 - out * out if len(out.shape) < 3 else 1 + out * out}})


def wrong_batch_rule(monkeypatch: pytest.MonkeyPatch) -> Backend:
    rule = registry["flip"].batch

    def shifted(call: Any, x: Any) -> Any:
        assert rule is not None
        return tc.roll(rule(call, x), 1, axis=0)  # each example gets the result of another one

    monkeypatch.setattr(registry["flip"], "batch", shifted)
    return numpy()


def wrong_sparsity_rule(monkeypatch: pytest.MonkeyPatch) -> Backend:
    monkeypatch.setattr(registry["matmul"], "sparsity", lambda x1, x2: x1.united(-1))  # x2 is forgotten
    return numpy()


FAULTS: list[tuple[Callable[..., Backend], str, list[str]]] = [
    (wrong_rule, "multiply/*", ["multiply/vjp/x1/*", "multiply/[jc]*", "multiply/second/*", "multiply/special"]),
    (second_order_lost, "exp/*", ["exp/second/*", "exp/jvp/*"]),
    (input_written_to, "exp/*", ["exp/mutation/*", "exp/*"]),
    (writes_and_restores, "negative/*", ["negative/layout/*"]),
    (wrong_dtype, "tanh/*", ["tanh/float32/*", "tanh/dtypes"]),
    (promotes_as_numpy_does, "multiply/*", ["multiply/dtypes"]),
    (axis_off_by_one, "flip/*", ["flip/value/*", "flip/batch/*", "flip/compose/*", "flip/sparsity/*"]),
    (ignores_nan, "maximum/*", ["maximum/special"]),
    (conjugate_forgotten, "conj/*", ["conj/value/complex*", "conj/?vp/*complex*"]),
    (keeps_its_inputs, "tan/*", ["tan/memory/*"]),
    (accepts_what_does_not_fit, "add/*", ["add/refused/*"]),
    (needs_contiguous_memory, "square/*", ["square/layout/*"]),
    (overwrites_shared_memory, "multiply/*", ["multiply/large"]),
    (blocks_at_the_wrong_place, "sin/*", ["sin/large"]),
    (cotangent_written_to, "sin/*", ["sin/mutation/*", "sin/*"]),
    (wrong_jvp, "max_pool/*", ["max_pool/jvp/*", "max_pool/compose/*"]),
    (parameters_without_names, "roll/*", ["roll/keywords/*", "roll/batch/*", "roll/compose/*", "roll/sparsity/*"]),
    (wrong_in_three_dimensions, "tanh/*", ["tanh/batch/*", "tanh/compose/*"]),
    (rule_wrong_in_three_dimensions, "tanh/*", ["tanh/compose/*"]),
    (wrong_batch_rule, "flip/*", ["flip/batch/*", "flip/compose/*", "flip/sparsity/*"]),
    (wrong_sparsity_rule, "matmul/*", ["matmul/sparsity/*"]),
]  # fmt: skip
"""A fault, the checks to run, and patterns of those that may fail. The first is of the check meant for the fault."""


@pytest.mark.parametrize(("fault", "run", "caught"), FAULTS, ids=[fault.__name__ for fault, _, _ in FAULTS])
def test_a_planted_fault_is_caught(
    fault: Callable[..., Backend], run: str, caught: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = fault(monkeypatch) if signature(fault).parameters else fault()
    report = check_backend(backend, only=run)
    failed = [result.id for result in report.failed]
    assert any(fnmatchcase(id, caught[0]) for id in failed), failed
    assert not [id for id in failed if not any(fnmatchcase(id, pattern) for pattern in caught)]


def test_without_a_fault_nothing_is_caught() -> None:
    assert check_backend(numpy(), only=sorted({run for _, run, _ in FAULTS})).ok


def test_every_kind_of_check_has_a_fault() -> None:
    kinds = {check.id.split("/")[1] for check in checks("numpy", ["multiply/*", "roll/*"])}
    caught = {patterns[0].split("/")[1] for _, _, patterns in FAULTS}
    elsewhere = {"samples", "compiled", "compiled-derivatives"}  # in test_suite and test_passes
    assert kinds == caught | elsewhere
