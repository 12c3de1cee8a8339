"""Control flow (cond, while_loop, map_fn, scan ...) and calls of Python functions.

Outside of a tf.function a branch or a loop is Python's. While a function is traced, it becomes one instruction of the
trace where its condition depends on the arguments, so that it is decided anew in each call (`tracing.as_instruction`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, TypeAlias

import tape_core as tc
from tape_core.staging import opaque
from tape_core.support import ACTIVE, pytree

from tape_tf import dtypes, nest
from tape_tf.conversion import convert_to_tensor, native, static, unwrap, wrap
from tape_tf.names import exported
from tape_tf.ops.arrays import TensorArray
from tape_tf.ops.function import as_result
from tape_tf.ops.shaping import stack
from tape_tf.shapes import TensorSpec
from tape_tf.string_tensor import as_strings, is_text
from tape_tf.tensor import IndexedSlices, Value, wrap_tensor
from tape_tf.tracing import NOT_TRACED, as_instruction, is_assigned, is_traced, run_uncompiled
from tape_tf.typing import DTypeLike, IntLike, PyTree, TensorLike
from tape_tf.variable import NAME_SCOPE

UNROLL_MAX_STEPS = 32
"""Elements: a tf.function that is being traced unrolls map_fn, foldl and scan over so many, or fewer."""

Branch: TypeAlias = Callable[[], Any]
"""A branch of a condition: a function without arguments."""


# -- branches


def _native_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tape_core's values that calls `function` with the façade's."""
    return lambda *args: unwrap(_as_results(function(*wrap(args))))


@exported("cond")
def cond(pred: TensorLike, true_fn: Branch, false_fn: Branch, name: str | None = None) -> Any:
    """Return `true_fn()` if `pred` is true, else `false_fn()`."""
    if callable(pred):
        raise TypeError("pred must not be a Python function; call it")
    if isinstance(pred, Value) and is_traced(given := pred._read_native()):
        # Both branches are traced, as tf.cond does in a graph; eagerly only the one that is taken runs.
        found = as_instruction(lambda: tc.cond(given, _native_function(true_fn), _native_function(false_fn)))
        if found is not NOT_TRACED:
            return wrap(found)
    return _as_results(true_fn() if bool(pred) else false_fn())


def _as_results(value: PyTree) -> Any:
    return nest.map_structure(as_result, value)


@exported("case")
def case(
    pred_fn_pairs: Iterable[tuple[TensorLike, Branch]],
    default: Branch | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = "case",
) -> Any:
    """Call the function of the first pair whose condition is true, or else `default`; return its result.

    Raises:
        InvalidArgumentError: several conditions are true and `exclusive` is set, or none is and there is no default.
    """
    from tape_tf.errors import InvalidArgumentError

    pairs = list(pred_fn_pairs)
    # Nested conds can be traced. `exclusive` needs all conditions at once, and a missing default an error: both decide
    # in Python.
    if default is not None and not exclusive:
        return _nested_cond(pairs, default)
    chosen: list[Branch] = [fn for pred, fn in pairs if bool(pred)]
    if exclusive and len(chosen) > 1:
        raise InvalidArgumentError(None, None, "More than one condition evaluated as True but exclusive=True.")
    if chosen:
        return _as_results(chosen[0]())
    if default is None:
        raise InvalidArgumentError(None, None, "None of the conditions evaluated as True, and there is no default")
    return _as_results(default())


def _nested_cond(pairs: list[tuple[Any, Branch]], default: Branch) -> Any:
    if not pairs:
        return _as_results(default())
    (pred, fn), *rest = pairs
    return cond(pred, fn, lambda: _nested_cond(rest, default))


@exported("switch_case")
def switch_case(
    branch_index: IntLike,
    branch_fns: Mapping[int, Branch] | Sequence[Branch | tuple[int, Branch]],
    default: Branch | None = None,
    name: str | None = "switch_case",
) -> Any:
    """Return the result of the function with the number `branch_index`, or else of `default` (or the last function)."""
    pairs: Iterable[tuple[int, Any]] = branch_fns.items() if isinstance(branch_fns, dict) else enumerate(branch_fns)
    table = {k: fn[1] if isinstance(fn, tuple) else fn for k, fn in pairs}
    # In TensorFlow the branch with the highest index is the default where none is given.
    fallback = default if default is not None else table[max(table)]
    if isinstance(branch_index, Value) and is_traced(branch_index.native):
        return _nested_cond([(branch_index == k, fn) for k, fn in table.items()], fallback)
    return _as_results(table.get(static(branch_index), fallback)())


# -- loops


@exported("while_loop")
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: PyTree,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """Replace `loop_vars` by `body(*loop_vars)` as long as `cond(*loop_vars)` is true; return them."""
    max_steps = static(maximum_iterations)
    values = nest.map_structure(_tensor, loop_vars)

    def next_ones(values: PyTree) -> Any:
        found = body(*values)
        packed = found if isinstance(found, list | tuple) else (found,)
        if len(packed) != len(values):
            raise ValueError(f"body must return {len(values)} values, as many as loop_vars; it returned {len(packed)}")
        # TensorFlow allows a body to return a list for a tuple: the structure is that of loop_vars.
        return nest.pack_sequence_as(loop_vars, [_tensor(leaf) for leaf in nest.flatten(list(packed))])

    def goes_on(carry: PyTree) -> Any:
        found = native(cond(*wrap(carry[1])))
        return found if max_steps is None else tc.logical_and(carry[0] < max_steps, found)

    # As an instruction, the carry is (steps so far, loop_vars): maximum_iterations is a part of the condition.
    if all(isinstance(leaf, Value) for leaf in nest.flatten(values)):
        found = as_instruction(
            lambda: tc.while_loop(goes_on, lambda c: (c[0] + 1, unwrap(next_ones(wrap(c[1])))), (0, unwrap(values)))
        )
        if found is not NOT_TRACED:
            return wrap(found[1])
    steps = 0
    while (max_steps is None or steps < max_steps) and bool(cond(*values)):
        values = next_ones(values)
        steps += 1
    return values


def _loop_inputs(elems: PyTree) -> Any:
    """Return `elems` as tape_core Tensors if a loop over them should be one instruction of the trace; else None."""
    leaves, structure = pytree.flatten_whole(elems)
    if any(map(is_text, leaves)):
        return None
    given = [native(leaf) for leaf in leaves if not isinstance(leaf, TensorArray | IndexedSlices)]
    if len(given) != len(leaves) or not any(map(is_traced, given)) or any(x.ndim == 0 for x in given):
        return None
    # A short loop is unrolled: its steps can be fused with their surroundings, which a loop instruction forbids.
    return pytree.unflatten(structure, given) if given[0].shape[0] > UNROLL_MAX_STEPS else None


def _tensor(value: TensorLike | TensorArray) -> Any:
    if isinstance(value, IndexedSlices | TensorArray):
        return value
    return as_strings(value) if is_text(value) else wrap_tensor(native(value))


def _rows(elems: PyTree) -> Iterator[Any]:
    """Yield the structure of the tensors at each index of the first dimension."""
    leaves, structure = pytree.flatten_whole(elems)
    columns = [list(_tensor(leaf)) for leaf in leaves]
    if not columns:
        raise ValueError("elems must not be empty")
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"elements in elems must have the same length; they have {[len(c) for c in columns]}")
    for row in zip(*columns, strict=True):
        yield pytree.unflatten(structure, list(row))


def _stack_results(results: list[Any]) -> Any:
    if not results:
        raise ValueError("elems must not be empty")
    return nest.map_structure(lambda *parts: stack(list(parts)), *results)


@exported("map_fn")
def map_fn(
    fn: Callable[[Any], Any],
    elems: PyTree,
    dtype: PyTree = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: PyTree = None,
) -> Any:
    """Apply `fn` to each row of `elems` along the first dimension, and stack the results.

    Args:
        elems: a tensor, or a nested structure of tensors with the same length.
        fn_output_signature: the dtype of the results, or their structure of dtypes or TensorSpecs; checked.

    Raises:
        TypeError: a result has another dtype.
    """
    expected = dtype if fn_output_signature is None else fn_output_signature

    def one(part: PyTree) -> Any:
        result = fn(part)
        return result if expected is None else nest.map_structure(_check_output, expected, result)

    if (inputs := _loop_inputs(elems)) is not None:
        found = as_instruction(lambda: tc.map(_native_function(one), inputs))
        if found is not NOT_TRACED:
            return wrap(found)
    return _stack_results([one(part) for part in _rows(elems)])


def _check_output(spec: TensorSpec | DTypeLike, value: TensorLike) -> Any:
    wanted = spec.dtype if isinstance(spec, TensorSpec) else dtypes.as_dtype(spec)
    # A tensor of another dtype is an error; a Python number takes the dtype asked for.
    found = value if isinstance(value, Value) else convert_to_tensor(value, dtype=wanted)
    if found.dtype != wanted:
        raise TypeError(f"map_fn: fn_output_signature says {wanted.name}, and fn returned {found.dtype.name}")
    return found


@exported("vectorized_map")
def vectorized_map(
    fn: Callable[[Any], Any], elems: PyTree, fallback_to_while_loop: bool = True, warn: bool = True
) -> Any:
    """Apply `fn` to all rows of `elems` at once, by `tape_core.vmap`; like :func:`map_fn`."""

    def native_fn(part: PyTree) -> Any:
        return nest.map_structure(native, fn(wrap(part)))

    return wrap(tc.vmap(native_fn)(nest.map_structure(native, elems)))


@exported("foldl")
def foldl(
    fn: Callable[[Any, Any], Any], elems: PyTree, initializer: PyTree = None, name: str | None = None, **options: Any
) -> Any:
    """Reduce the rows of `elems` by `fn(accumulated, row)`, from the first row on."""
    return _fold(fn, elems, initializer)[0]


@exported("foldr")
def foldr(
    fn: Callable[[Any, Any], Any], elems: PyTree, initializer: PyTree = None, name: str | None = None, **options: Any
) -> Any:
    """Reduce the rows of `elems` by `fn(accumulated, row)`, from the last row on."""
    return _fold(fn, elems, initializer, reverse=True)[0]


def _fold(fn: Callable[[Any, Any], Any], elems: PyTree, initializer: PyTree, reverse: bool = False) -> tuple[Any, Any]:
    """Return the final accumulated value, and those after each row: a list, or stacked if the loop was traced."""
    total = None if initializer is None else nest.map_structure(_tensor, initializer)
    if total is not None and (inputs := _loop_inputs(elems)) is not None:

        def step(carry: PyTree, part: PyTree) -> Any:
            new = _native_function(fn)(carry, part)
            return new, new

        found = as_instruction(lambda: tc.scan(step, unwrap(total), inputs, reverse=reverse))
        if found is not NOT_TRACED:
            return wrap(found[0]), wrap(found[1])
    parts = list(_rows(elems))
    totals = []
    for part in reversed(parts) if reverse else parts:
        # Without an initializer the first row is the first accumulated value, and `fn` is not called for it.
        total = part if total is None else fn(total, part)
        totals.append(total)
    return total, totals[::-1] if reverse else totals


@exported("scan")
def scan(
    fn: Callable[[Any, Any], Any],
    elems: PyTree,
    initializer: PyTree = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Return the accumulated values of :func:`foldl` after each row, stacked."""
    _, totals = _fold(fn, elems, initializer, reverse)
    return _stack_results(totals) if isinstance(totals, list) else totals


# -- Python functions


@exported("py_function")
def py_function(
    func: Callable[..., Any] | None = None,
    inp: Sequence[TensorLike] | None = None,
    Tout: PyTree = None,
    name: str | None = None,
) -> Any:
    """Call `func(*inp)` with tensors, and convert its results to the dtypes `Tout`; gradients flow through it.

    Without `func` it is a decorator: the function that it returns takes the parts of `inp` as arguments.

    >>> import tape_tf as tf
    >>> @tf.py_function(Tout=tf.float32)
    ... def half(x):
    ...     return x / 2
    >>> half(tf.constant(3.0)).numpy()
    np.float32(1.5)
    """
    if func is None:
        return lambda function: _as_decorated(py_function, function, Tout)
    inp = inp or ()
    if _has_text(inp, Tout):
        run_uncompiled("strings of py_function")
        return wrap(_call_python(func, list(inp), Tout))
    # A host callback runs outside of the trace: tapes do not see its operations, and Variables still have their old
    # values. Where one of the two matters, the function that is traced cannot be compiled.
    if ACTIVE.get() or is_assigned():
        run_uncompiled("what py_function computes with, and its derivative,")
        return wrap(_call_python(func, list(inp), Tout))
    return wrap(_call_python_each_time(func, [native(x) for x in inp], Tout))


@exported("numpy_function")
def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Sequence[TensorLike] | None = None,
    Tout: PyTree = None,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Call `func(*inp)` with NumPy arrays, and convert its results to the dtypes `Tout`; no gradient flows back.

    Without `func` it is a decorator, as :func:`py_function` is.
    """
    if func is None:
        return lambda function: _as_decorated(numpy_function, function, Tout)
    inp = inp or ()
    if _has_text(inp, Tout):
        run_uncompiled("strings of numpy_function")
        return wrap(_call_python(lambda *inp: func(*[x.numpy() for x in inp]), list(inp), Tout))
    if is_assigned():
        run_uncompiled("what numpy_function computes with")
    return wrap(_call_python_each_time(lambda *inp: func(*[x.numpy() for x in inp]), [native(x) for x in inp], Tout))


def _call_python(func: Callable[..., Any], inp: list[Any], Tout: PyTree) -> Any:
    """Call a function with façade tensors, and return its results as tape_core Tensors of the dtypes `Tout`."""
    found = func(*[_tensor(x) for x in inp])
    if Tout is None or (isinstance(Tout, list | tuple) and not Tout):
        return None
    if isinstance(Tout, list | tuple):
        results = found if isinstance(found, list | tuple) else [found]
        return [_result(value, dtype) for value, dtype in zip(results, Tout, strict=True)]
    return _result(found, Tout)


def _result(value: TensorLike, spec: TensorSpec | DTypeLike) -> Any:
    dtype = dtypes.as_dtype(spec.dtype if isinstance(spec, TensorSpec) else spec)
    return convert_to_tensor(value, dtype) if dtype is dtypes.string else native(value, dtype)


def _has_text(inp: Sequence[TensorLike], Tout: PyTree) -> bool:
    """Return whether strings go into a Python function, or come out of it."""
    wanted = Tout if isinstance(Tout, list | tuple) else [Tout]
    return any(map(is_text, inp)) or any(
        spec is not None and (spec.dtype if isinstance(spec, TensorSpec) else spec) == dtypes.string for spec in wanted
    )


def _as_decorated(how: Callable[..., Any], function: Callable[..., Any], Tout: PyTree) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any) -> Any:
        return how(function, args, Tout)

    return call


_call_python_each_time = opaque(_call_python)


# -- the rest


@exported("is_symbolic_tensor")
def is_symbolic_tensor(tensor: object) -> bool:
    """Return False: tensors always have values."""
    return False


@exported("get_current_name_scope")
def get_current_name_scope() -> str:
    """Return the prefix of the names of new Variables."""
    return NAME_SCOPE.get().rstrip("/")


@exported("timestamp")
def timestamp(name: str | None = None) -> Any:
    """Return the seconds since the epoch, a float64 tensor."""
    return wrap(_now())


@opaque
def _now() -> tc.Tensor:
    return native(time.time(), dtypes.float64)


@exported("tuple")
def tuple_(tensors: Sequence[TensorLike | None], control_inputs: object = None, name: str | None = None) -> list[Any]:
    """Return the tensors as a list; there is nothing to wait for."""
    return [t if t is None else _tensor(t) for t in tensors]


@exported("scalar_mul math.scalar_mul")
def scalar_mul(scalar: TensorLike, x: TensorLike, name: str | None = None) -> Any:
    """Return `scalar * x`."""
    from tape_tf.ops.elementwise import FUNCTIONS

    # `x` first: a tensor decides on the dtype, the scalar follows.
    return FUNCTIONS["multiply"](x, scalar)
