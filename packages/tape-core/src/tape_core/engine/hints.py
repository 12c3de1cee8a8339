"""Errors for names that tape_core does not have: they say what the same thing is called here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any
from warnings import warn

# Names of NumPy, PyTorch, JAX and TensorFlow, and what is here.
_HERE = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos",
    "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "array": "asarray", "as_tensor": "asarray", "bmm": "matmul", "cast": "astype", "cat": "concat",
    "clamp": "clip", "concatenate": "concat", "constant": "asarray", "convert_to_tensor": "asarray",
    "cumprod": "cumulative_prod", "cumsum": "cumulative_sum", "dot": "matmul",
    "expand": "broadcast_to", "fabs": "abs", "fliplr": "flip", "flipud": "flip", "fmax": "maximum", "fmin": "minimum",
    "from_numpy": "asarray", "invert": "bitwise_invert", "jit": "function", "lgamma": "special.gammaln",
    "linalg_norm": "linalg.vector_norm", "mm": "matmul", "mod": "remainder", "mul": "multiply",
    "neg": "negative", "norm": "linalg.vector_norm", "permute": "permute_dims",
    "power": "pow", "product": "prod", "ravel": "reshape", "reduce_max": "max",
    "reduce_mean": "mean", "reduce_sum": "sum", "rsqrt": "1 / tc.sqrt(x)", "sub": "subtract",
    "swapaxes": "permute_dims",
    "true_divide": "divide", "unsqueeze": "expand_dims",
    "vstack": "concat", "hstack": "concat", "inner": "vecdot", "trace": "linalg.trace", "det": "linalg.det",
    "inv": "linalg.inv", "solve": "linalg.solve", "svd": "linalg.svd", "eigh": "linalg.eigh", "qr": "linalg.qr",
    "cholesky": "linalg.cholesky", "cross": "linalg.cross", "diag": "linalg.diagonal", "diagonal": "linalg.diagonal",
    "seed": "set_seed", "manual_seed": "set_seed", "float": "float32", "double": "float64", "half": "float16",
    "int": "int64", "long": "int64",
}  # fmt: skip


_MOVED = {
    ("tape_core", "dtypes"): ("tape_core.base.dtypes", "tape_core.support.dtypes"),
    ("tape_core", "pytree"): ("tape_core.engine.pytree", "tape_core.support.pytree"),
}
"""Modules that were attributes of a package by accident of being imported: where they are, and their public names."""


class _Missing(AttributeError):
    """An AttributeError whose text is made when it is shown: libraries ask for thousands of absent names."""

    def __init__(self, module: str, name: str, names: Callable[[], list[str]]) -> None:
        super().__init__(module, name)
        self._module, self._name, self._names = module, name, names

    def __str__(self) -> str:
        text = f"module {self._module!r} has no attribute {self._name!r}"
        if (here := _HERE.get(self._name)) is not None:
            text += f"; it is tc.{here} here" if here.isidentifier() or "(" not in here else f"; it is {here} here"
        elif close := get_close_matches(self._name, self._names(), n=1, cutoff=0.75):
            text += f"; did you mean tc.{close[0]}?"
        # Not imported for a message: whoever means NumPy's function has imported it.
        function = getattr(sys.modules.get("numpy"), self._name, None)
        if callable(function) and not isinstance(function, type):
            text += f" (numpy.{self._name} takes Tensors, too, where Tape has its counterpart)"
        return text

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


def missing(module: str, names: Callable[[], list[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module, which raises an AttributeError that says which name is meant."""

    def __getattr__(name: str) -> Any:
        if (module, name) in _MOVED:
            found, public = _MOVED[module, name]
            warn(f"{module}.{name} is {public} now", DeprecationWarning, stacklevel=2)
            return import_module(found)
        raise _Missing(module, name, names)

    return __getattr__
