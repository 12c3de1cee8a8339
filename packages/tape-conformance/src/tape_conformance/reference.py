"""What an op should give: by a NumPy or SciPy function in float64, or by plain NumPy under Tape's own kernels.

The functions are in `tape_conformance.references`, a module for each chapter of ops. For an op that has none there, the
reference is NumPy's function of the same name, or for an op beyond the standard its default kernel on plain NumPy.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.backends import ArrayAPIBackend

from tape_conformance import references
from tape_conformance.references import standard
from tape_conformance.samples import NOTHING, Case, Replaced

# NumPy's functions follow the standard, but that these cannot sort in descending order.
_KERNELS = {name: standard.REFERENCES[name] for name in ("sort", "argsort")}
PLAIN = ArrayAPIBackend("reference", np, array_types=("numpy:ndarray", "numpy:generic"), kernels=_KERNELS)


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """The reference function of each op that has one."""
    found: dict[str, Callable[..., Any]] = {}
    for module in pkgutil.iter_modules(references.__path__):
        more = import_module(f"{references.__name__}.{module.name}").REFERENCES
        if twice := found.keys() & more.keys():
            raise ValueError(f"ops with two references: {', '.join(sorted(twice))}")
        found |= more
    return found


def results(case: Case, replaced: Replaced = NOTHING) -> list[Any]:
    """What is observed of the op's results, as NumPy arrays; `replaced` stands in place of inputs."""
    function = functions().get(case.op.name)
    values = [replaced.get(k, v) for k, v in enumerate(case.values)]
    with np.errstate(all="ignore"):
        if function is None:
            out = _on_plain(case, [_plain_argument(v) for v in values])
        else:
            values = _numpy(values)
            out = function(*([values] if case.op.sequence else values), *map(_numpy, _rest(case)), **_named(case))
    outs = [o if isinstance(o, tc.Tensor) else _plain(o) for o in (out if isinstance(out, tuple | list) else (out,))]
    return [o.numpy() for o in case.observed(tuple(outs))]


def gradients(case: Case, given: Mapping[int, Any], leaves: list[int]) -> dict[int, Any]:
    """What flows back to inputs from a cotangent of ones, on plain NumPy."""
    values = [_plain(given[k]) if k in given else _plain_argument(v) for k, v in enumerate(case.values)]
    with np.errstate(all="ignore"):
        with tc.GradientTape() as tape:
            tape.watch([values[k] for k in leaves])
            out = _on_plain(case, values)
        found = tape.gradient(out, [values[k] for k in leaves], unconnected_gradients="zero")
    return {k: g.numpy() for k, g in zip(leaves, found, strict=True)}


def _on_plain(case: Case, values: list[Any]) -> Any:
    return case.op.function(*([values] if case.op.sequence else values), *map(_numpy, _rest(case)), **_named(case))


def _rest(case: Case) -> tuple[Any, ...]:
    """The positional arguments that are no inputs."""
    return case.sample.args[len(case.op.inputs) :]


def _named(case: Case) -> dict[str, Any]:
    return {k: _numpy(v) for k, v in case.sample.kwargs.items()}


def _plain(array: Any) -> Any:
    return tc.asarray(array, backend=PLAIN)


def _plain_argument(value: Any) -> Any:
    """An input as a Tensor on plain NumPy; Python scalars as they are."""
    return _plain(_numpy(value)) if isinstance(value, tc.Tensor | np.ndarray) else value


def _numpy(value: Any) -> Any:
    """An argument with NumPy arrays in place of the backend's, also inside a key."""
    if isinstance(value, tc.Tensor):
        return value.numpy()
    if isinstance(value, list | tuple):
        return type(value)([_numpy(v) for v in value])
    if isinstance(value, tc.DType):
        return np.dtype(value.name)
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, np.ndarray):
        return tc.get_backend().numpy(value)
    return value
