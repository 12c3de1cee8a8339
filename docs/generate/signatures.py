"""What type checkers see of the functions of `tf` that decorators make: stubs, read from their signatures at run time.

A decorator gives a function another signature than its body has, which no type checker follows; and `publish` sets the
functions as attributes of modules, which none sees.
"""

from __future__ import annotations

import inspect
import keyword
import sys
from collections.abc import Callable
from typing import Any

import tape_tf
from tape_tf.dtypes import DType
from tape_tf.names import published

SPACES = {"": "tf", "math": "tf.math", "nn": "tf.nn", "random": "tf.random", "linalg": "tf.linalg"}

# What a body's parameter is, and what may be given for it: `static_args` are converted, and tensors among them.
_GIVEN = {
    "Axes": "Axis",
    "bool": "_bool",
    "str": "_str",
    "str | None": "_str | None",
    "float": "_float",
    "float | str": "_float | _str",
    "int": "IntLike",
    "int | None": "IntLike | None",
    "tc.DType": "DTypeLike",
    "tc.DType | None": "DTypeLike",
    "int | tuple[int, ...]": "ShapeLike",
    "int | tuple[int, ...] | None": "Axis",
    "tuple[int, ...]": "ShapeLike",
    "tuple[int, ...] | None": "ShapeLike",
    "tuple[tuple[int, int], ...]": "TensorLike",
    "Branch": "Callable[[], Any]",
    "Callable[..., Any]": "Callable[..., Any]",
    "Callable[[Any], Any]": "Callable[[Any], Any]",
    "IntLike": "IntLike",
    "IntLike | None": "IntLike | None",
    "Axis": "Axis",
    "ShapeLike": "ShapeLike",
    "DTypeLike": "DTypeLike",
    "object": "object",
    "TensorLike": "TensorLike",
    "TensorLike | None": "TensorLike | None",
    "Sequence[TensorLike]": "Sequence[TensorLike]",
    "Sequence[TensorLike | None]": "Sequence[TensorLike | None]",
}
_RETURNED = {"Tensor": "Tensor", "None": "None", "bool": "_bool", "int": "_int", "str": "_str"}

# Results that a body's annotation leaves open, since it returns what the decorator wraps.
_TENSORS = [
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_any",
    "reduce_all",
    "reduce_std",
    "reduce_variance",
    "reduce_logsumexp",
    "reduce_euclidean_norm",
    "count_nonzero",
    "einsum",
    "where",
    "boolean_mask",
    "cast",
    "zeros",
    "ones",
    "fill",
    "range",
    "linspace",
    "eye",
    "shape",
    "size",
    "rank",
    "divide",
    "divide_no_nan",
    "clip_by_value",
    "clip_by_norm",
    "max_pool2d",
    "avg_pool2d",
    "max_pool",
    "avg_pool",
    "dropout",
    "embedding_lookup",
    "normal",
    "uniform",
    "shuffle",
    "categorical",
    "truncated_normal",
    "stateless_normal",
    "stateless_uniform",
    "to_float",
    "saturate_cast",
    "complex",
    "truediv",
    "scalar_mul",
    "add_n",
    "global_norm",
    "batch_normalization",
]
_RESULTS = dict.fromkeys(_TENSORS, "Tensor") | {
    "split": "_list[Tensor]",
    "unstack": "_list[Tensor]",
    "moments": "_tuple[Tensor, Tensor]",
    "meshgrid": "_list[Tensor]",
    "clip_by_global_norm": "_tuple[_list[Any], Tensor]",
}
# Where a result has the type of an argument.
_GENERIC = {
    "cond": "def cond(pred: TensorLike, true_fn: Callable[[], _R], false_fn: Callable[[], _R], "
    "name: _str | None = ...) -> _R: ...",
    "recompute_grad": "def recompute_grad(f: Callable[_P, _R]) -> Callable[_P, _R]: ...",
}
_SEEN_ALREADY = ("function", "GradientTape")  # `tape_tf/__init__.py` imports these itself

_HEAD = '''"""{title} as type checkers see it. Written by `python docs/generate`; change docs/generate/signatures.py."""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from builtins import list as _list
from builtins import str as _str
from builtins import tuple as _tuple
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar
'''


def stubs() -> dict[str, str]:
    """Return the stubs by the names of their files."""
    return {f"{space or '__init__'}.pyi": stub(space) for space in SPACES}


def stub(space: str) -> str:
    """Return the stub of a namespace."""
    imports, lines = [], []
    for name, value in sorted(published().items()):
        where, _, last = name.rpartition(".")
        if where != space or keyword.iskeyword(last) or (not space and last in (*tape_tf.__all__, *_SEEN_ALREADY)):
            continue
        if isinstance(value, DType):
            lines.append(f"{last}: DType")
        elif inspect.isclass(value):
            module = sys.modules.get(value.__module__)
            if getattr(module, value.__qualname__, None) is value and value.__module__.startswith("tape_tf."):
                imports.append(f"from {value.__module__} import {value.__qualname__} as {last}")
        elif inspect.isfunction(value):
            lines.append(_GENERIC.get(last) or _function(last, value))
    own = [
        "from tape_tf.dtypes import DType",
        "from tape_tf.tensor import Tensor",
        "from tape_tf.typing import Axis, DTypeLike, IntLike, ShapeLike, TensorLike",
    ]
    known = {line.rpartition(" ")[2] for line in imports}
    own = [line for line in own if line.rpartition(" ")[2] not in known]
    text = "\n".join([*own, *imports, "", '_R = TypeVar("_R")', '_P = ParamSpec("_P")', "", *lines])
    return f"{_HEAD.format(title=SPACES[space])}\n{text}\n"


def _function(name: str, function: Callable[..., Any]) -> str:
    parameters, stars = [], ""
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        kind = parameter.kind
        if kind is parameter.KEYWORD_ONLY and not stars:
            stars = "*"
            parameters.append("*")
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(kind, "")
        stars = stars or ("*" if prefix == "*" else "")
        given = "_str | None" if parameter.name == "name" else _GIVEN.get(_text(parameter.annotation), "Any")
        default = "" if parameter.default is parameter.empty else " = ..."
        parameters.append(f"{prefix}{parameter.name}: {given}{default}")
    result = _RETURNED.get(_text(signature.return_annotation)) or _RESULTS.get(name, "Any")
    return f"def {name}({', '.join(parameters)}) -> {result}: ..."


def _text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
