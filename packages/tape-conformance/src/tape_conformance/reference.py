"""Expected values of ops, in float64: from a NumPy or SciPy function, or from Tape's default kernels on plain NumPy.

The functions are in `tape_conformance.references`, a module for each chapter of ops. The reference of any other op is
NumPy's function of the same name, called through the backend `PLAIN`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np
import tape_core as tc
from numpy.typing import NDArray

from tape_conformance import references
from tape_conformance.plain import PLAIN
from tape_conformance.samples import Case

NO_ARRAYS: Final[Mapping[int, NDArray[Any]]] = {}


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Return the reference functions by the name of the op."""
    found: dict[str, Callable[..., Any]] = {}
    for module in pkgutil.iter_modules(references.__path__):
        # Each module that lies in the folder, so that a new chapter needs no list.
        more = import_module(f"{references.__name__}.{module.name}").REFERENCES
        if twice := found.keys() & more.keys():
            raise ValueError(f"ops with two references: {', '.join(sorted(twice))}")
        found |= more
    return found


def results(case: Case, replaced: Mapping[int, NDArray[Any]] = NO_ARRAYS) -> list[NDArray[Any]]:
    """Return the expected observed results as NumPy arrays, for the case's inputs with some replaced."""
    function = functions().get(case.op.name)
    values = [replaced.get(k, v) for k, v in enumerate(case.drawn_values)]
    with np.errstate(all="ignore"):  # special values are part of the game
        if function is None:
            out = _call_on_plain_numpy(case, [_to_plain_argument(v) for v in values])
        else:
            values = _to_numpy(values)
            given = [values] if case.op.sequence else values
            out = function(*given, *map(_to_numpy, _other_arguments(case)), **_keywords(case))
    # `observed` computes with Tensors, so NumPy's results become some, on plain NumPy.
    outs = [o if isinstance(o, tc.Tensor) else _to_plain(o) for o in (out if isinstance(out, tuple | list) else (out,))]
    return [o.numpy() for o in case.observed(tuple(outs))]


def gradients(case: Case, given: Mapping[int, NDArray[Any]], leaves: list[int]) -> dict[int, NDArray[Any]]:
    """Return the gradients of some inputs for a cotangent of ones: the op's own rules, on plain NumPy."""
    values = [_to_plain(given[k]) if k in given else _to_plain_argument(v) for k, v in enumerate(case.drawn_values)]
    with np.errstate(all="ignore"):
        with tc.GradientTape() as tape:
            sources: list[Any] = [values[k] for k in leaves]
            tape.watch(sources)
            out = _call_on_plain_numpy(case, values)
        found = tape.gradient(out, sources, unconnected_gradients="zero")
    return {k: g.numpy() for k, g in zip(leaves, found, strict=True)}


def _call_on_plain_numpy(case: Case, values: list[Any]) -> Any:
    given = [values] if case.op.sequence else values
    return case.op.function(*given, *map(_to_numpy, _other_arguments(case)), **_keywords(case))


def _other_arguments(case: Case) -> tuple[Any, ...]:
    """Return the positional arguments that are no inputs."""
    return case.drawn.args[len(case.op.inputs) :]


def _keywords(case: Case) -> dict[str, Any]:
    return {k: _to_numpy(v) for k, v in case.drawn.kwargs.items()}


def _to_plain(array: NDArray[Any]) -> tc.Tensor:
    return tc.asarray(array, backend=PLAIN)


def _to_plain_argument(value: object) -> object:
    """Convert an input to a Tensor on plain NumPy; Python scalars stay as they are."""
    return _to_plain(_to_numpy(value)) if isinstance(value, tc.Tensor | np.ndarray) else value


def _to_numpy(value: object) -> Any:
    """Replace the backend's arrays in an argument, such as an index key, by NumPy arrays."""
    if isinstance(value, tc.Tensor):
        return value.numpy()
    if isinstance(value, list | tuple):
        return type(value)([_to_numpy(v) for v in value])
    # NumPy's functions take NumPy's dtypes, which have the same names.
    if isinstance(value, tc.DType):
        return np.dtype(value.name)
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, np.ndarray):
        return tc.get_backend().numpy(value)
    return value
