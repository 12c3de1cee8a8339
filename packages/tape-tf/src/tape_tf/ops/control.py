"""Control flow and Python functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import update_wrapper
from typing import Any

import numpy as np
import tape_core as tc
from tape_core import pytree

from tape_tf import dtypes, nest
from tape_tf.conversion import constant, convert_to_tensor, native, static, wrap
from tape_tf.names import exported
from tape_tf.ops.arrays import TensorArray
from tape_tf.shapes import TensorSpec
from tape_tf.tensor import IndexedSlices, Value, wrap_tensor
from tape_tf.variable import NAME_SCOPE, Variable


class Function:
    """What `tf.function` makes of a Python function: it runs it, as it is written.

    Attributes:
        python_function: the function.
        input_signature: the TensorSpecs that its arguments must fit.
    """

    def __init__(self, python_function: Callable[..., Any], input_signature: Any = None):
        self.python_function = python_function
        self.input_signature = None if input_signature is None else tuple(input_signature)
        update_wrapper(self, python_function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.input_signature is not None:
            args = self._checked(args)
        leaves, structure = pytree.flatten((args, kwargs))
        leaves = [convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        args, kwargs = pytree.unflatten(structure, leaves)
        return nest.map_structure(_returned, self.python_function(*args, **kwargs))

    def _checked(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments as tensors that fit the signature."""
        specs = self.input_signature or ()
        if len(args) != len(specs) and not hasattr(self.python_function, "__self__"):
            raise TypeError(
                f"{self.__name__}() takes {len(specs)} arguments, as its input_signature says; got {len(args)}"
            )

        def check(spec: TensorSpec, value: Any) -> Any:
            tensor = value if isinstance(value, Value) else convert_to_tensor(value, dtype=spec.dtype)
            if not spec.is_compatible_with(tensor):
                raise TypeError(
                    f"{self.__name__}(): a tensor of shape {tensor.shape}, dtype {tensor.dtype.name} does not fit the "
                    f"input_signature {spec}"
                )
            return tensor

        return tuple(
            check(spec, arg) if isinstance(spec, TensorSpec) else nest.map_structure(check, spec, arg)
            for spec, arg in zip(specs, args, strict=True)
        )

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        bound = Function(self.python_function.__get__(instance, owner), self.input_signature)
        bound.__dict__.pop("__wrapped__", None)
        return bound

    def __getattr__(self, name: str) -> Any:
        if name in ("get_concrete_function", "experimental_get_tracing_count", "pretty_printed_concrete_signatures"):
            raise AttributeError(f"tf.function has no {name}: functions run as they are written, nothing is traced")
        raise AttributeError(f"'Function' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<tf.function {getattr(self.python_function, '__qualname__', self.python_function)!r}>"


def _returned(value: Any) -> Any:
    """Results are tensors: numbers, arrays and Variables too."""
    if isinstance(value, Variable):
        return value.value()
    if isinstance(value, bool | int | float | complex | np.ndarray | np.generic):
        return convert_to_tensor(value)
    return value


@exported("function", differs="functions run as they are written; nothing is traced or compiled")
def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: Any = None,
    experimental_autograph_options: Any = None,
    experimental_attributes: Any = None,
    experimental_relax_shapes: Any = None,
    experimental_compile: Any = None,
    experimental_follow_type_hints: Any = None,
) -> Any:
    """Decorator: a function of tensors. Its results are tensors, and its arguments must fit `input_signature`.

    >>> import tape_tf as tf
    >>> @tf.function
    ... def double(x):
    ...     return 2 * x
    >>> print(double(tf.constant(3.0)))
    tf.Tensor(6.0, shape=(), dtype=float32)

    Raises:
        TypeError: in the call: an argument does not fit the signature.
    """
    if func is not None and not callable(func):
        raise TypeError(f"tf.function: {func!r} is not callable")
    if func is None:
        return lambda f: Function(f, input_signature)
    return Function(func, input_signature)


def _boolean(pred: Any) -> bool:
    if callable(pred):
        raise TypeError("pred must not be a Python function; call it")
    return bool(pred)


@exported("cond")
def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: Any = None) -> Any:
    """`true_fn()` if `pred` is true, else `false_fn()`."""
    return _returned_all(true_fn() if _boolean(pred) else false_fn())


def _returned_all(value: Any) -> Any:
    return nest.map_structure(_returned, value)


@exported("case")
def case(
    pred_fn_pairs: Any, default: Any = None, exclusive: bool = False, strict: bool = False, name: Any = "case"
) -> Any:
    """The function of the first pair whose condition is true, called; else `default()`.

    Raises:
        InvalidArgumentError: several are true and `exclusive`, or none is and there is no default.
    """
    from tape_tf.errors import InvalidArgumentError

    chosen = [fn for pred, fn in pred_fn_pairs if bool(pred)]
    if exclusive and len(chosen) > 1:
        raise InvalidArgumentError(None, None, "More than one condition evaluated as True but exclusive=True.")
    if not chosen and default is None:
        raise InvalidArgumentError(None, None, "None of the conditions evaluated as True, and there is no default")
    return _returned_all(chosen[0]() if chosen else default())


@exported("switch_case")
def switch_case(branch_index: Any, branch_fns: Any, default: Any = None, name: Any = "switch_case") -> Any:
    """The function of this number, called; another number than there are calls `default`, or the last one."""
    pairs = branch_fns.items() if isinstance(branch_fns, dict) else enumerate(branch_fns)
    table = {k: fn[1] if isinstance(fn, tuple) else fn for k, fn in pairs}
    fallback = default if default is not None else table[max(table)]
    return _returned_all(table.get(static(branch_index), fallback)())


@exported("while_loop")
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: Any = None,
    name: Any = None,
) -> Any:
    """`body(*loop_vars)` gives the next ones, as long as `cond(*loop_vars)` is true."""
    most = static(maximum_iterations)
    values = nest.map_structure(_tensor, loop_vars)
    steps = 0
    while (most is None or steps < most) and bool(cond(*values)):
        found = body(*values)
        packed = found if isinstance(found, list | tuple) else (found,)
        if len(packed) != len(values):
            raise ValueError(f"body must return {len(values)} values, as many as loop_vars; it returned {len(packed)}")
        values = nest.pack_sequence_as(loop_vars, [_tensor(leaf) for leaf in nest.flatten(list(packed))])
        steps += 1
    return values


def _tensor(value: Any) -> Any:
    return value if isinstance(value, IndexedSlices | TensorArray) else wrap_tensor(native(value))


def _parts(elems: Any) -> Iterator[Any]:
    """The structure at each place of the first dimension."""
    leaves, structure = pytree.flatten(elems)
    columns = [list(_tensor(leaf)) for leaf in leaves]
    if not columns:
        raise ValueError("elems must not be empty")
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"elements in elems must have the same length; they have {[len(c) for c in columns]}")
    for row in zip(*columns, strict=True):
        yield pytree.unflatten(structure, list(row))


def _stacked(results: list[Any]) -> Any:
    if not results:
        raise ValueError("elems must not be empty")
    return nest.map_structure(lambda *parts: wrap(tc.stack([native(part) for part in parts])), *results)


@exported("map_fn")
def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: Any = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: Any = None,
    fn_output_signature: Any = None,
) -> Any:
    """`fn` of each part of `elems` along the first dimension, stacked.

    Args:
        elems: a tensor, or a nested structure of them, of one length.
        fn_output_signature: the dtype of the results, or their structure of dtypes; checked.

    Raises:
        TypeError: a result has another dtype.
    """
    results = [fn(part) for part in _parts(elems)]
    expected = dtype if fn_output_signature is None else fn_output_signature
    if expected is not None:
        results = [nest.map_structure(_as_expected, expected, result) for result in results]
    return _stacked(results)


def _as_expected(spec: Any, value: Any) -> Any:
    wanted = spec.dtype if isinstance(spec, TensorSpec) else dtypes.as_dtype(spec)
    found = value if isinstance(value, Value) else convert_to_tensor(value, dtype=wanted)
    if found.dtype != wanted:
        raise TypeError(f"map_fn: fn_output_signature says {wanted.name}, and fn returned {found.dtype.name}")
    return found


@exported("vectorized_map")
def vectorized_map(fn: Callable[[Any], Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """As :func:`map_fn`, all parts at once: `tape_core.vmap`."""

    def beneath(part: Any) -> Any:
        return nest.map_structure(native, fn(wrap(part)))

    return wrap(tc.vmap(beneath)(nest.map_structure(native, elems)))


@exported("foldl")
def foldl(fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None, name: Any = None, **options: Any) -> Any:
    """`fn(result so far, part)` over the parts of `elems`, from the first."""
    return _folded(fn, list(_parts(elems)), initializer)


@exported("foldr")
def foldr(fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None, name: Any = None, **options: Any) -> Any:
    """`fn(result so far, part)` over the parts of `elems`, from the last."""
    return _folded(fn, list(_parts(elems))[::-1], initializer)


def _folded(fn: Callable[[Any, Any], Any], parts: list[Any], initializer: Any) -> Any:
    total = parts.pop(0) if initializer is None else nest.map_structure(_tensor, initializer)
    for part in parts:
        total = fn(total, part)
    return total


@exported("scan")
def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: Any = None,
) -> Any:
    """The results of :func:`foldl` after each part, stacked."""
    parts = list(_parts(elems))
    if reverse:
        parts.reverse()
    totals = []
    total = None if initializer is None else nest.map_structure(_tensor, initializer)
    for part in parts:
        total = part if total is None else fn(total, part)
        totals.append(total)
    return _stacked(totals[::-1] if reverse else totals)


@exported("py_function")
def py_function(func: Callable[..., Any], inp: Any, Tout: Any, name: Any = None) -> Any:
    """`func(*inp)` of tensors, its results in the dtypes `Tout`; gradients pass."""
    return _in_dtypes(func(*[_tensor(x) for x in inp]), Tout)


@exported("numpy_function")
def numpy_function(func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: Any = None) -> Any:
    """`func(*inp)` of NumPy arrays, its results in the dtypes `Tout`; no gradient passes."""
    return _in_dtypes(func(*[native(x).numpy()[()] for x in inp]), Tout)


def _in_dtypes(found: Any, Tout: Any) -> Any:
    if Tout is None or (isinstance(Tout, list | tuple) and not Tout):
        return None
    if isinstance(Tout, list | tuple):
        results = found if isinstance(found, list | tuple) else [found]
        return [wrap_tensor(native(value, dtype)) for value, dtype in zip(results, Tout, strict=True)]
    spec = Tout.dtype if isinstance(Tout, TensorSpec) else Tout
    return wrap_tensor(native(found, spec))


# -- the rest


@exported("executing_eagerly")
def executing_eagerly() -> bool:
    """True: code runs as it is written."""
    return True


@exported("inside_function")
def inside_function() -> bool:
    """False: nothing is traced."""
    return False


@exported("is_symbolic_tensor")
def is_symbolic_tensor(tensor: Any) -> bool:
    """False: tensors have values."""
    return False


@exported("get_current_name_scope")
def get_current_name_scope() -> str:
    """What the names of new Variables begin with."""
    return NAME_SCOPE.get().rstrip("/")


@exported("timestamp")
def timestamp(name: Any = None) -> Any:
    """Seconds since the epoch, a float64 tensor."""
    return constant(time.time(), dtype=dtypes.float64)


@exported("tuple")
def tuple_(tensors: Any, control_inputs: Any = None, name: Any = None) -> list[Any]:
    """The tensors, as a list."""
    return [t if t is None else _tensor(t) for t in tensors]


@exported("scalar_mul math.scalar_mul")
def scalar_mul(scalar: Any, x: Any, name: Any = None) -> Any:
    """`scalar * x`."""
    from tape_tf.ops.elementwise import FUNCTIONS

    return FUNCTIONS["multiply"](x, scalar)
