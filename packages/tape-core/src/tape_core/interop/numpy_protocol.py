"""NumPy's functions on Tensors: `np.sin(t)`, `np.linalg.solve(a, t)`, `array * t`.

NumPy hands a call to the Tensor among its arguments, by `__array_ufunc__` (NEP 13) or `__array_function__` (NEP 18).
This module is imported with the first such call, since NumPy is imported by then. Tables by NumPy's name say how each
call is answered:

- `UFUNCS`, `FUNCTIONS`: a function of tape_core, whose parameters are found by their names, or one of
  `tape_core.interop.numpy_functions`, `numpy_editing` and `numpy_statistics`, which compose it of several.
- `VALUES`: NumPy's own function of the values, which gives no array.
- `CONSTANTS`: NumPy's own function of the values, whose result has no derivative.
- `CREATION`: functions that make an array like a Tensor, by `like=t`.

A function that is in none of them, and an argument that has no counterpart, is a TypeError that names it: NumPy's own
function would run on a copy of the values, and the gradient would end there without a word.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

import tape_core
from tape_core.base.dtypes import DType
from tape_core.base.mistakes import NoCounterpartError
from tape_core.engine.call_paths import accepts
from tape_core.engine.op import registry
from tape_core.engine.tensor import SCALARS, Tensor
from tape_core.engine.variable import Variable
from tape_core.interop import numpy_editing, numpy_functions, numpy_polynomials, numpy_statistics
from tape_core.ops.creation import asarray
from tape_core.ops.data_types import astype
from tape_core.ops.special import composed, further, polynomials, probability, several
from tape_core.typing import ArrayLike

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

Function = Callable[..., Any]

# -- the tables. On the left is NumPy's name, on the right that of tape_core; `words` are called the same.


def _same_names(words: str) -> dict[str, str]:
    return {word: word for word in words.split()}


UFUNCS = {
    "_lambertw": "lambertw",
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "conjugate": "conj",
    "degrees": "rad2deg",
    "expit": "sigmoid",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "psi": "digamma",
    "radians": "deg2rad",
    "right_shift": "bitwise_right_shift",
}
"""Ufuncs of NumPy and SciPy that are called otherwise here; all others are the op of the same name, if there is one."""

# The methods `reduce` and `accumulate` of ufuncs, as ops.
REDUCTIONS = {
    "add": "sum",
    "logical_and": "all",
    "logical_or": "any",
    "maximum": "max",
    "minimum": "min",
    "multiply": "prod",
}
ACCUMULATIONS = {"add": "cumulative_sum", "multiply": "cumulative_prod"}

FUNCTIONS = {
    **_same_names(
        "all any argmax argmin argsort astype broadcast_arrays broadcast_to count_nonzero cumulative_prod "
        "cumulative_sum einsum empty_like flip full_like i0 matrix_transpose max mean meshgrid min moveaxis "
        "nonzero ones_like permute_dims prod real repeat reshape roll searchsorted sort stack std sum take "
        "take_along_axis tril triu unique_all unique_counts unique_inverse unique_values unstack var zeros_like "
        "linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eig linalg.eigh linalg.eigvals "
        "linalg.eigvalsh linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank "
        "linalg.matrix_transpose linalg.multi_dot linalg.outer linalg.pinv linalg.qr linalg.slogdet linalg.solve "
        "linalg.svdvals linalg.tensordot linalg.trace linalg.vecdot linalg.vector_norm "
        "fft.fft fft.fftn fft.fftshift fft.hfft fft.ifft fft.ifftn fft.ifftshift fft.ihfft fft.irfft fft.irfftn "
        "fft.rfft fft.rfftn"
    ),
    "amax": "max",
    "amin": "min",
    "concatenate": "concat",
    "cross": "linalg.cross",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
}

VALUES = _same_names(
    "allclose array2string array_equal array_equiv array_repr array_str can_cast common_type einsum_path iscomplexobj "
    "isrealobj may_share_memory min_scalar_type ndim result_type save savetxt savez savez_compressed shape "
    "shares_memory size"
)

CONSTANTS = _same_names(
    "argpartition argwhere diag_indices_from digitize flatnonzero isclose iscomplex isin isneginf isposinf isreal "
    "lexsort nanargmax nanargmin ravel_multi_index tril_indices_from triu_indices_from unravel_index"
)

CREATION = _same_names(
    "arange array asanyarray asarray ascontiguousarray empty eye frombuffer fromfile fromfunction fromiter full "
    "genfromtxt identity loadtxt ones require tri zeros"
)

RENAMED = {"ddof": "correction", "rcond": "rtol"}
"""Parameters that are called otherwise here."""

ARRAYS = frozenset(
    {
        *("a_max", "a_min", "append", "aweights", "base", "fweights", "max", "min", "prepend", "q", "sorter"),
        *("to_begin", "to_end", "w", "weights", "x", "y"),
    }
)
"""Parameters that are arrays."""

PARAMETERS = frozenset({"axes", "destination", "dtype", "reps", "shape", "shift", "source"})
"""Parameters that are no arrays, though they may be positional-only here."""

IGNORED = frozenset({"casting", "kind", "optimize", "subok"})
"""Parameters that ask for one of several right answers, or for another class."""

COMPOSED = {
    name: f
    for module in (
        *(composed, further, polynomials, probability, several),
        *(numpy_functions, numpy_editing, numpy_polynomials, numpy_statistics),
    )
    for name, f in vars(module).items()
    if getattr(f, "__module__", "") == module.__name__ and not name.startswith("_")
}
COMPOSED["yn"] = tape_core.special.yv
"""Functions that are composed of several of tape_core; NumPy's `linalg.norm` is `linalg_norm` here."""

FIRST_AS_GIVEN = frozenset({"apply_along_axis", "block", "einsum"})
"""Functions whose first argument is passed unconverted: nested lists of blocks, subscripts."""

UNCONVERTED = frozenset({"obj", "condlist", "funclist", "kth", "new_shape"})
"""Parameters that are passed unconverted: indices, shapes, lists of conditions and functions."""

FLATTENED = frozenset({"argsort", "cumprod", "cumsum", "sort", "take", "take_along_axis"})
"""Functions that flatten the array where `axis` is None."""


# -- ufuncs

# Types of operands that ops take as they are: one look into a set spares the checks of `_operand`.
_PLAIN = frozenset({Tensor, Variable, np.ndarray, *SCALARS, *(np.dtype(code).type for code in "?bhilBHILefdFD")})
_calls: dict[Any, Function] = {}  # for each ufunc the function that answers a plain call
# NumPy's defaults: an argument with such a value asks for nothing.
_UNSET = {"casting": "same_kind", "dtype": None, "order": "K", "subok": True, "where": True}


def ufunc(self: Tensor, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
    """Answer a call of a ufunc, as `Tensor.__array_ufunc__`."""
    for x in inputs:
        if type(x) not in _PLAIN:
            inputs = tuple([_operand(x, self.backend) for x in inputs])
            if foreign([type(x) for x in inputs]):
                return NotImplemented
            break
    # `array * t` comes here, too: a dictionary, and the op, are all that such a call costs.
    if method == "__call__" and not kwargs:
        try:
            function = _calls[ufunc]
        except KeyError:
            function = _calls[ufunc] = _counterpart(ufunc)
        return function(*inputs)
    return _general_ufunc(self, ufunc, method, inputs, kwargs)


def answers(name: str) -> bool:
    """Return whether a function of NumPy, `"linalg.lstsq"` for one of a submodule, takes Tensors."""
    try:
        function = attrgetter(name)(np)
    except AttributeError:
        return False
    if isinstance(function, np.ufunc):
        return UFUNCS.get(name, name) in COMPOSED or UFUNCS.get(name, name) in registry
    known = name in FUNCTIONS or name.replace(".", "_") in COMPOSED or name in VALUES or name in CONSTANTS
    return known and callable(function)


def _counterpart(ufunc: np.ufunc) -> Function:
    name = ufunc.__name__
    homes = (np, sys.modules.get("scipy.special"), sys.modules.get("scipy.special._ufuncs"))
    if ufunc not in [getattr(home, name, None) for home in homes]:
        # A ufunc of another library may be called "sin" and compute something else.
        refuse(_label(ufunc))
    name = UFUNCS.get(name, name)
    if name not in COMPOSED and name not in registry:
        refuse(_label(ufunc))
    return COMPOSED.get(name) or registry[name].function


def _general_ufunc(self: Tensor, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer a call with arguments by keyword, or of a method of the ufunc."""
    label = _label(ufunc)
    if kwargs.get("out") is not None:
        raise TypeError(
            f"{label}: out=, and so `array += t`, writes into an array, which no tape sees; write "
            f"`array = array + t` for a Tensor, or use t.numpy() where no gradient is needed"
        )
    given = {k: v for k, v in kwargs.items() if k not in _UNSET or v is not _UNSET[k]}
    if method == "__call__":
        function = _counterpart(ufunc)
    elif method == "outer" and ufunc.nin == 2 and ufunc.signature is None:
        # All pairs of elements, by broadcasting: the axes of x1 come first in the result.
        x1, x2 = (x if isinstance(x, Tensor) else asarray(x) for x in inputs)
        inputs = tape_core.reshape(x1, x1.shape + (1,) * x2.ndim), x2
        function = _counterpart(ufunc)
    else:
        name = {"reduce": REDUCTIONS, "accumulate": ACCUMULATIONS}.get(method, {}).get(ufunc.__name__)
        if name is None:
            refuse(f"{label}.{method}")
        label += f".{method}"
        function = getattr(tape_core, name)
        # np.add.reduce sums along the first axis by default, where np.sum sums all elements.
        given.setdefault("axis", 0)
    takes = inspect.signature(function).parameters
    for name in given:
        if name not in takes:
            refuse(label, name)
    return function(*inputs, **{name: _parameter(name, value, self.backend) for name, value in given.items()})


# -- other functions


def function(self: Tensor, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer a call of any other function, as `Tensor.__array_function__`."""
    if foreign(types):
        return NotImplemented
    name = _name(func)
    if name in VALUES:
        return func(*_to_numpy(args), **_to_numpy(kwargs))
    if name in CONSTANTS:
        return _to_tensors(func(*_to_numpy(args), **_to_numpy(kwargs)), self)
    if name in CREATION:
        return _create_like(func, self, *args, **kwargs)
    call = _call(func, name)
    if call is None:
        refuse(f"numpy.{name}")
    return call(self.backend, args, kwargs)


def _name(func: Callable[..., Any]) -> str:
    path = f"{func.__module__}.{func.__name__}"
    return path.removeprefix("numpy.")


@cache
def _call(func: Callable[..., Any], name: str) -> Call | None:
    target = COMPOSED.get(name.replace(".", "_"))
    if target is None and name in FUNCTIONS:
        try:
            target = attrgetter(FUNCTIONS[name])(tape_core)
        except AttributeError:  # not yet
            return None
    return None if target is None else Call(func, name, target)


class Call:
    """A function of NumPy as one of ours: arguments are bound by NumPy's signature, then passed by name to `target`."""

    def __init__(self, func: Callable[..., Any], name: str, target: Function) -> None:
        self.name = name
        self.target = target
        takes = inspect.signature(target)
        try:
            self.signature = inspect.signature(func)
        except ValueError:  # written in C
            self.signature = takes
        self.takes = frozenset(takes.parameters)
        # Ops, and the functions of the modules beside this one, have their arrays as positional-only parameters.
        kinds = [p.kind for p in takes.parameters.values()]
        self.inputs = kinds.count(inspect.Parameter.POSITIONAL_ONLY)
        self.sequence = next(iter(takes.parameters)) in ("arrays", "tup")

    def __call__(self, backend: Backend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"numpy.{self.name}: {error}") from None
        inputs: list[Any] = []
        options: dict[Any, Any] = {}
        cast: Any = None
        for k, (name, value) in enumerate(given.items()):
            parameter = self.signature.parameters[name]
            if self.name in FIRST_AS_GIVEN and k == 0:
                inputs += value if parameter.kind is parameter.VAR_POSITIONAL else [value]
            elif name in UNCONVERTED and k < self.inputs:
                inputs.append(value)
            elif parameter.kind is parameter.VAR_POSITIONAL:
                inputs += [_array_item(x, backend) for x in value]
            elif k == 0 and self.sequence:
                inputs.append([_array_item(x, backend) for x in value])
            elif k < self.inputs:
                inputs.append((_parameter if name in PARAMETERS else _array)(name, value, backend))
            else:
                more = value.items() if parameter.kind is parameter.VAR_KEYWORD else [(name, value)]
                for option, setting in more:
                    own = option if option in self.takes else RENAMED.get(option)
                    # `is`, since a setting may be an array, whose == has no truth value.
                    if setting is parameter.default or option in IGNORED:
                        pass  # the default of `target` holds
                    elif own in self.takes:
                        options[own] = _parameter(option, setting, backend)
                    elif option == "dtype":
                        cast = _parameter(option, setting, backend)
                    else:
                        refuse(f"numpy.{self.name}", option)
        # NumPy computes in `dtype`; where `target` has no such parameter, its input is converted.
        if cast is not None:
            first = inputs[0]
            inputs[0] = [astype(x, cast) for x in first] if self.sequence else astype(first, cast)
        if self.name in ("cumsum", "cumprod") and isinstance(given.get("axis"), tuple | list):
            raise TypeError(f"numpy.{self.name}: axis must be one integer, got {given['axis']!r}")
        if self.name in FLATTENED and given.get("axis", self.signature.parameters["axis"].default) is None:
            inputs[0] = tape_core.reshape(inputs[0], (-1,))
            options["axis"] = 0
        return self.target(*inputs, **options)


def _create_like(func: Callable[..., Any], like: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Make an array on the backend of `like`; from Tensors, as in `np.array([t, u], like=t)`, it is recorded."""
    if func.__name__ in ("array", "asarray", "asanyarray") and args and set(kwargs) <= {"copy", "dtype"}:
        obj, *rest = args
        dtype = rest[0] if rest else kwargs.get("dtype")
        if len(rest) <= 1 and _holds_tensor(obj):
            return asarray(obj, dtype=_parameter("dtype", dtype, like.backend), copy=kwargs.get("copy"))
    return asarray(func(*_to_numpy(args), **_to_numpy(kwargs)), backend=like.backend, device=like.device)


# -- arguments


def foreign(types: Any) -> bool:
    """Return whether a type is an array of another library with such methods of its own, which is then asked."""
    return any(
        (getattr(t, "__array_ufunc__", None) is not None or hasattr(t, "__array_function__"))
        and not issubclass(t, Tensor | np.ndarray | np.generic)
        for t in types
    )


def _operand(value: ArrayLike, backend: Backend) -> Any:
    """Return an array argument; a list becomes a Tensor with the dtype that NumPy gives it."""
    if value is None or accepts(value):
        return value
    if _holds_tensor(value):
        return asarray(value)
    return asarray(np.asarray(value), backend=backend) if isinstance(value, list | tuple) else value


def _array_item(value: ArrayLike, backend: Backend) -> Any:
    """Return one of several array arguments, such as a part of a concatenation, where a number is an array, too."""
    return asarray(np.asarray(value), backend=backend) if type(value) in SCALARS else _operand(value, backend)


def _holds_tensor(value: ArrayLike) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any([_holds_tensor(v) for v in value]))


def _array(name: str, value: ArrayLike, backend: Backend) -> Any:
    return _operand(value, backend)


def _parameter(name: str, value: ArrayLike, backend: Backend) -> Any:
    """Return an argument that is no array, in Python's own numbers and tuples, unless it is in `ARRAYS`."""
    if name == "dtype":
        return value if value is None or isinstance(value, DType) else np.dtype(value).name
    if name in ARRAYS:
        return _operand(value, backend)
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
        return tuple(value) if isinstance(value, list) else value
    return (value,) if name in ("reps", "shape") and isinstance(value, int) else value


def _to_numpy(value: ArrayLike) -> Any:
    """Put NumPy arrays in place of Tensors."""
    if isinstance(value, Tensor):
        return value.backend.numpy(value.array)
    if type(value) in (list, tuple):
        return type(value)([_to_numpy(v) for v in value])
    if type(value) is dict:
        return {k: _to_numpy(v) for k, v in value.items()}
    return value


def _to_tensors(value: ArrayLike, like: Tensor) -> Any:
    """Put Tensors in place of NumPy arrays."""
    if type(value) is tuple:
        return tuple([_to_tensors(v, like) for v in value])
    if isinstance(value, np.ndarray | np.generic):
        return asarray(value, backend=like.backend, device=like.device)
    return value


# -- errors


def _label(ufunc: np.ufunc) -> str:
    name = ufunc.__name__
    return f"numpy.{name}" if getattr(np, name, None) is ufunc else f"ufunc {name}"


def refuse(label: str, argument: str | None = None) -> NoReturn:
    """Raise the TypeError for a function, or an argument of one, that has no counterpart."""
    what = label if argument is None else f"{label} with {argument}="
    raise NoCounterpartError(
        f"{what} has no counterpart for Tensors, and no gradient would flow through NumPy's own: give it t.numpy() "
        f"where none is needed, or use functions of tape_core"
    )


# In place of the methods of `numpy_hooks`, which have imported this module at their first call.
Tensor.__array_ufunc__ = ufunc  # type: ignore[method-assign]
Tensor.__array_function__ = function  # type: ignore[method-assign]
