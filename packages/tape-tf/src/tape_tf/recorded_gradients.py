"""The check that a recorded function has the gradients of the Python function that it was recorded from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.support import pytree

from tape_tf.conversion import unwrap, wrap
from tape_tf.ops.function import Function
from tape_tf.recorded import Replay, Unrecordable

_ROUNDS = (0.0, 0.5, 2.0)
"""How far from the sample gradients are compared: a rectifier may hide at one place what differs at another."""


def check_gradients(function: Function, chosen: Any, recorded: Any, arrays: Mapping[str, Any], given: Any) -> None:
    """Compare gradients of the record with the function's own, whose custom gradients are in no trace.

    Raises:
        Unrecordable: they differ.
    """
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
