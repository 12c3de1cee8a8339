"""Each check of tapes catches a fault: of a backend's kernel or rule if one can break it, else of the tape itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_conformance import check_backend, checks
from tape_core.backends import Backend
from tape_core.extend import transpose
from tape_numpy.backend import NumPyBackend

Fault = Callable[[pytest.MonkeyPatch], "str | Backend"]
"""Plants a fault; returns what `check_backend` is to check."""

FAULTS: dict[str, Fault] = {}

RAISED = {
    "tape/higher-order": "AttributeError",  # the third derivative is None
    "tape/long-chain": "RecursionError",
    "tape/tasks": "RuntimeError",  # the shared tape was used already
    "tape/variables": "AttributeError",  # the gradient is None
}
"""The errors of checks that no assertion catches."""


def fault_for(check: str) -> Callable[[Fault], Fault]:
    """Register a fault that the check of this id must catch."""

    def register(fault: Fault) -> Fault:
        FAULTS[f"tape/{check}"] = fault
        return fault

    return register


def with_rules(**rules: dict[str, Any]) -> Backend:
    backend = NumPyBackend()
    backend.rules.update(rules)
    return backend


def with_kernels(**kernels: Any) -> Backend:
    backend = NumPyBackend()
    backend.kernels.update(kernels)
    return backend


def with_gradient(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any]) -> str:
    """Put `change(gradient, tape, target, sources, **options)` in the place of `tape.gradient`."""
    gradient = tc.GradientTape.gradient

    def changed(self: tc.GradientTape, target: Any, sources: Any, **options: Any) -> Any:
        return change(gradient, self, target, sources, **options)

    monkeypatch.setattr(tc.GradientTape, "gradient", changed)
    return "numpy"


# -- faults of a backend


@fault_for("gradient")
def wrong_derivative_of_powers(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_rules(pow={"x1": lambda xp, x1, x2: x2 * x1})


@fault_for("assignment")
def gradient_of_assigned_values_lost(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_rules(setitem={"values": transpose(lambda xp, g, values_spec, key: xp.zeros(values_spec.shape))})


@fault_for("higher-order")
def second_derivative_lost(monkeypatch: pytest.MonkeyPatch) -> Backend:
    def rule(xp: Any, x1: Any, x2: Any) -> Any:  # the right value, of which a factor has no derivative
        return x2 * x1 * (tc.stop_gradient(x1) if isinstance(x1, tc.Tensor) else x1) ** (x2 - 2)

    return with_rules(pow={"x1": rule})


@fault_for("broadcasting")
def mean_in_place_of_sum(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_kernels(
        sum=lambda x, *, axis=None, dtype=None, keepdims=False: np.mean(x, axis, dtype, keepdims=keepdims)
    )


@fault_for("mixed-dtypes")
def casts_nothing(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_kernels(astype=lambda x, dtype, *, copy=True: x)


@fault_for("where")
def selects_by_products(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_kernels(where=lambda condition, a, b: condition * a + ~condition * b)


@fault_for("complex")
def forgets_to_conjugate(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return with_kernels(conj=lambda x: +x)


@fault_for("frees-memory")
def keeps_its_inputs(monkeypatch: pytest.MonkeyPatch) -> Backend:
    kept: list[Any] = []

    def sin(x: Any) -> Any:
        kept.append(x)
        return np.sin(x)

    return with_kernels(sin=sin)


@fault_for("threads")
def rule_with_state_of_the_process(monkeypatch: pytest.MonkeyPatch) -> Backend:
    last: list[Any] = []

    def rule(xp: Any, x2: Any) -> Any:
        last.append(x2)
        time.sleep(0.001)  # another thread comes in between
        return last[-1]

    return with_rules(multiply={"x1": rule})


# -- faults of tapes


@fault_for("structures")
def mixes_up_the_places_of_sources(monkeypatch: pytest.MonkeyPatch) -> str:
    def change(gradient: Any, tape: Any, target: Any, sources: Any, **options: Any) -> Any:
        found = gradient(tape, target, sources, **options)
        if isinstance(found, dict):
            b, (c,) = found["b"]
            found["b"] = (c, [b])
        return found

    return with_gradient(monkeypatch, change)


@fault_for("unwatched")
def zeros_in_place_of_none(monkeypatch: pytest.MonkeyPatch) -> str:
    def change(gradient: Any, tape: Any, target: Any, sources: Any, **options: Any) -> Any:
        return gradient(tape, target, sources, **{"unconnected_gradients": "zero", **options})

    return with_gradient(monkeypatch, change)


@fault_for("variables")
def does_not_watch_variables(monkeypatch: pytest.MonkeyPatch) -> str:
    init = tc.GradientTape.__init__

    def unwatching(self: tc.GradientTape, **options: Any) -> None:
        init(self, **{**options, "watch_accessed_variables": False})

    monkeypatch.setattr(tc.GradientTape, "__init__", unwatching)
    return "numpy"


@fault_for("persistent")
def never_frees_its_records(monkeypatch: pytest.MonkeyPatch) -> str:
    init = tc.GradientTape.__init__
    monkeypatch.setattr(
        tc.GradientTape, "__init__", lambda self, **options: init(self, **{**options, "persistent": True})
    )
    return "numpy"


@fault_for("output-gradients")
def ignores_output_gradients(monkeypatch: pytest.MonkeyPatch) -> str:
    def change(
        gradient: Any, tape: Any, target: Any, sources: Any, output_gradients: Any = None, **options: Any
    ) -> Any:
        return gradient(tape, target, sources, **options)

    return with_gradient(monkeypatch, change)


@fault_for("stop-recording")
def records_all_the_same(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tc.GradientTape, "stop_recording", lambda self: nullcontext())
    return "numpy"


@fault_for("gather")
def densifies_gradients(monkeypatch: pytest.MonkeyPatch) -> str:
    def change(gradient: Any, tape: Any, target: Any, sources: Any, **options: Any) -> Any:
        found = gradient(tape, target, sources, **options)
        return found.densify() if isinstance(found, tc.IndexedSlices) else found

    return with_gradient(monkeypatch, change)


@fault_for("long-chain")
def recurses(monkeypatch: pytest.MonkeyPatch) -> str:
    def change(gradient: Any, tape: Any, target: Any, sources: Any, **options: Any) -> Any:
        def walk(n: int) -> Any:
            return walk(n - 1) if n else gradient(tape, target, sources, **options)

        return walk(len(tape._records))

    return with_gradient(monkeypatch, change)


@fault_for("training")
def adds_to_what_it_subtracts_from(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tc.Variable, "assign_sub", tc.Variable.assign_add)
    return "numpy"


@fault_for("tasks")
def one_tape_for_all_tasks(monkeypatch: pytest.MonkeyPatch) -> str:
    entered: list[tc.GradientTape] = []
    enter, leave = tc.GradientTape.__enter__, tc.GradientTape.__exit__

    def shared_enter(self: tc.GradientTape) -> tc.GradientTape:
        entered.append(self)
        enter(self)
        return entered[0]  # the first that any task has entered

    def shared_leave(self: tc.GradientTape, *error: Any) -> None:
        entered.remove(self)
        leave(self, *error)

    monkeypatch.setattr(tc.GradientTape, "__enter__", shared_enter)
    monkeypatch.setattr(tc.GradientTape, "__exit__", shared_leave)
    return "numpy"


@pytest.mark.parametrize("check", FAULTS)
def test_the_check_catches_its_fault(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = check_backend(FAULTS[check](monkeypatch), only=check).results
    assert result.outcome == "failed"
    assert result.detail.startswith(RAISED.get(check, "AssertionError")), result.detail


def test_every_check_of_tapes_has_a_fault() -> None:
    assert {check.id for check in checks("numpy", ["tape/*"])} == set(FAULTS)


def test_without_a_fault_nothing_is_caught() -> None:
    assert check_backend("numpy", only="tape/*").ok
