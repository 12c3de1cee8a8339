"""The check that a recorded function has the gradients of the Python function that it was recorded from.

A trace does not show where a function stops its gradients or has others. So the gradients are traced as well, those of
the function and those of the record: if both do the same, op by op, in each branch and loop, they are the same for all
values. If they do not, they may still be equal, and are compared at some places; but not where there are branches, of
which a place sees one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tape_core as tc
from tape_compile.extend import Flow, Program, Ref
from tape_core.support import pytree

from tape_tf.conversion import unwrap, wrap
from tape_tf.ops.function import Function
from tape_tf.recorded import Replay
from tape_tf.recorded_flows import Unrecordable

_ROUNDS = (0.0, 0.5, 2.0)
"""How far from the sample gradients are compared: a rectifier may hide at one place what differs at another."""


def check_gradients(function: Function, chosen: Any, recorded: Any, arrays: Mapping[str, Any], given: Any) -> None:
    """Compare gradients of the record with the function's own, whose custom gradients are in no trace.

    Raises:
        Unrecordable: they differ.
    """
    why = _difference(function, chosen, recorded, arrays, given)
    if why is None:
        return
    if any(len(call) > 4 for call in recorded["calls"]):
        raise Unrecordable(
            "it has branches or loops, and its gradients are not seen to be those of its ops (tf.stop_gradient, "
            f"tf.custom_gradient and the like are in no file): {why}"
        )
    random = np.random.default_rng(1)
    before = [variable.value for variable in chosen.variables]
    leaves, structure = pytree.flatten_whole(given)
    count = len(recorded["outputs"]) - len(recorded["assigned"])

    def moved(value: Any, distance: float) -> Any:
        if not isinstance(value, tc.Tensor) or value.dtype.kind != "real floating":
            return value
        return tc.asarray(value.numpy() + distance * random.standard_normal(value.shape), dtype=value.dtype)

    for distance in _ROUNDS:
        at = [moved(leaf, distance) for leaf in leaves]
        values = [moved(value, distance) for value in before]
        tensors = [leaf for leaf in at if isinstance(leaf, tc.Tensor)]

        def gradients(
            compute: Callable[[], list[Any]], values: list[Any] = values, tensors: list[Any] = tensors
        ) -> list[Any] | None:
            for variable, value in zip(chosen.variables, values, strict=True):
                variable.assign(value)
            watched = [v for v in [*tensors, *chosen.variables] if v.dtype.kind == "real floating"]
            try:
                with tc.GradientTape() as tape:
                    for value in watched:
                        tape.watch(value)
                    parts = [tc.sum(tc.sin(part)) for part in compute() if part.dtype.kind == "real floating"]
                found: list[Any] = list(tape.gradient(parts, watched)) if parts else []
                return [np.asarray(0.0 if g is None else g) for g in found]
            except Exception:  # noqa: BLE001 - what has no gradient has none when it is loaded
                return None
            finally:
                for variable, value in zip(chosen.variables, before, strict=True):
                    variable.assign(value)

        def own(at: list[Any] = at) -> list[Any]:
            found = unwrap(function.python_function(*wrap(pytree.unflatten(structure, at))))
            return [leaf for leaf in pytree.flatten_whole(found)[0] if isinstance(leaf, tc.Tensor)]

        def replayed(tensors: list[Any] = tensors) -> list[Any]:
            return Replay(recorded, arrays)([*tensors, *[v.value for v in chosen.variables]])[:count]

        ours, theirs = gradients(replayed), gradients(own)
        if theirs is not None and (ours is None or not all(map(_alike, ours, theirs))):
            raise Unrecordable(
                "its gradients are not those of its ops: tf.stop_gradient, tf.custom_gradient and the like are in "
                "no file"
            )


def _alike(ours: Any, theirs: Any) -> bool:
    size = np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))
    return np.allclose(ours, theirs, rtol=1e-3, atol=1e-4 * max(1.0, float(size)), equal_nan=True)


def _difference(function: Function, chosen: Any, recorded: Any, arrays: Mapping[str, Any], given: Any) -> str | None:
    """Return how the traces of both gradients differ, or why there are none; None where they are the same."""
    leaves, structure = pytree.flatten_whole(given)
    tensors = [leaf for leaf in leaves if isinstance(leaf, tc.Tensor)]
    count = len(recorded["outputs"]) - len(recorded["assigned"])
    if not any(value.dtype.kind == "real floating" for value in [*tensors, *chosen.variables]):
        return None  # there are no gradients
    replay = Replay(recorded, arrays)

    def own(tensors: Sequence[tc.Tensor]) -> list[Any]:
        remaining = iter(tensors)
        at = [next(remaining) if isinstance(leaf, tc.Tensor) else leaf for leaf in leaves]
        found = unwrap(function.python_function(*wrap(pytree.unflatten(structure, at))))
        return [leaf for leaf in pytree.flatten_whole(found)[0] if isinstance(leaf, tc.Tensor)]

    def replayed(tensors: Sequence[tc.Tensor]) -> list[Any]:
        found = replay([*tensors, *chosen.variables])
        for variable, value in zip(chosen.assigned, found[count:], strict=True):
            variable.assign(value)
        return found[:count]

    def traced(compute: Callable[[Sequence[tc.Tensor]], list[Any]]) -> Any:
        def gradients(*args: Any) -> Any:
            tensors = unwrap(args)
            watched = [value for value in [*tensors, *chosen.variables] if value.dtype.kind == "real floating"]
            with tc.GradientTape() as tape:
                for value in watched:
                    tape.watch(value)
                parts = [tc.sum(tc.sin(part)) for part in compute(tensors) if part.dtype.kind == "real floating"]
            return wrap(tape.gradient(parts, watched)) if parts else []

        before = [variable.value for variable in chosen.variables]
        try:
            return _as_compared(Function(gradients, None).trace_apart(tuple(tensors)).traced)
        finally:
            for variable, value in zip(chosen.variables, before, strict=True):
                variable.assign(value)

    try:
        return None if traced(own) == traced(replayed) else "they are not those of its ops"
    except (TypeError, ValueError) as error:
        return str(error)


def _as_compared(program: Program) -> Any:
    """Return what a program does, as a value that can be compared with that of another one."""
    numbers: dict[int, Any] = {k: ("input", place) for place, k in enumerate(program.inputs)}
    for k, value in program.constants.items():
        array = np.asarray(value if program.backend is None else program.backend.library.numpy(value))
        numbers[k] = ("constant", str(array.dtype), array.shape, array.tobytes())

    def described(value: Any) -> Any:
        if isinstance(value, Ref):
            return numbers[value.id]
        if isinstance(value, tuple | list):
            return [type(value).__name__, *map(described, value)]
        if isinstance(value, dict):
            return {key: described(part) for key, part in value.items()}
        if isinstance(value, slice):
            return ["slice", *map(described, (value.start, value.stop, value.step))]
        if isinstance(value, np.ndarray | np.generic):  # a repr leaves out what is in the middle
            return str(value.dtype), value.shape, value.tobytes()
        return type(value).__name__, repr(value)

    calls = []
    for number, instruction in enumerate(program.instructions):
        flow = instruction.fn if isinstance(instruction.fn, Flow) else None
        what: Any = instruction.fn
        if flow is not None:
            what = [repr(flow.settings), *[_as_compared(part.traced) for part in flow.parts]]
        calls.append([instruction.name, what, described(instruction.args), described(instruction.kwargs)])
        for place, k in enumerate(instruction.outputs):
            numbers[k] = ("result", number, place)
    return calls, [numbers[k] for k in program.outputs]
