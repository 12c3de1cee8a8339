"""Control flow and Python functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tape_core as tc
from tape_core.base import pytree
from tape_core.engine.recording import ACTIVE
from tape_core.staging import opaque

from tape_tf import dtypes, nest
from tape_tf.conversion import convert_to_tensor, native, static, unwrap, wrap
from tape_tf.names import exported
from tape_tf.ops.arrays import TensorArray
from tape_tf.ops.function import returned
from tape_tf.shapes import TensorSpec
from tape_tf.tensor import IndexedSlices, Value, wrap_tensor
from tape_tf.tracing import NOT_TRACED, as_instruction, is_assigned, is_traced, run_uncompiled
from tape_tf.typing import DTypeLike, IntLike, PyTree, TensorLike
from tape_tf.variable import NAME_SCOPE

UNROLL_MAX_STEPS = 32
"""Elements: a tf.function that is being traced unrolls map_fn, foldl and scan over so many, or fewer."""

Branch: TypeAlias = Callable[[], Any]
"""A branch of a condition: a function without arguments."""


def _beneath(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the façade's values as one of tape_core's."""
    return lambda *args: unwrap(_returned_all(function(*wrap(args))))


@exported("cond")
def cond(pred: TensorLike, true_fn: Branch, false_fn: Branch, name: str | None = None) -> Any:
    """`true_fn()` if `pred` is true, else `false_fn()`."""
    if callable(pred):
        raise TypeError("pred must not be a Python function; call it")
    if isinstance(pred, Value) and is_traced(given := pred._read_native()):
        found = as_instruction(lambda: tc.cond(given, _beneath(true_fn), _beneath(false_fn)))
        if found is not NOT_TRACED:
            return wrap(found)
    return _returned_all(true_fn() if bool(pred) else false_fn())


def _returned_all(value: PyTree) -> Any:
    return nest.map_structure(returned, value)


@exported("case")
def case(
    pred_fn_pairs: Iterable[tuple[TensorLike, Branch]],
    default: Branch | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = "case",
) -> Any:
    """The function of the first pair whose condition is true, called; else `default()`.

    Raises:
        InvalidArgumentError: several are true and `exclusive`, or none is and there is no default.
    """
    from tape_tf.errors import InvalidArgumentError

    pairs = list(pred_fn_pairs)
    if default is not None and not exclusive:
        return _first_of(pairs, default)
    chosen: list[Branch] = [fn for pred, fn in pairs if bool(pred)]
    if exclusive and len(chosen) > 1:
        raise InvalidArgumentError(None, None, "More than one condition evaluated as True but exclusive=True.")
    if chosen:
        return _returned_all(chosen[0]())
    if default is None:
        raise InvalidArgumentError(None, None, "None of the conditions evaluated as True, and there is no default")
    return _returned_all(default())


def _first_of(pairs: list[tuple[Any, Branch]], default: Branch) -> Any:
    if not pairs:
        return _returned_all(default())
    (pred, fn), *rest = pairs
    return cond(pred, fn, lambda: _first_of(rest, default))


@exported("switch_case")
def switch_case(
    branch_index: IntLike,
    branch_fns: Mapping[int, Branch] | Sequence[Branch | tuple[int, Branch]],
    default: Branch | None = None,
    name: str | None = "switch_case",
) -> Any:
    """The function of this number, called; another number than there are calls `default`, or the last one."""
    pairs: Iterable[tuple[int, Any]] = branch_fns.items() if isinstance(branch_fns, dict) else enumerate(branch_fns)
    table = {k: fn[1] if isinstance(fn, tuple) else fn for k, fn in pairs}
    fallback = default if default is not None else table[max(table)]
    if isinstance(branch_index, Value) and is_traced(branch_index.native):
        return _first_of([(branch_index == k, fn) for k, fn in table.items()], fallback)
    return _returned_all(table.get(static(branch_index), fallback)())


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
    """`body(*loop_vars)` gives the next ones, as long as `cond(*loop_vars)` is true."""
    most = static(maximum_iterations)
    values = nest.map_structure(_tensor, loop_vars)

    def next_ones(values: PyTree) -> Any:
        found = body(*values)
        packed = found if isinstance(found, list | tuple) else (found,)
        if len(packed) != len(values):
            raise ValueError(f"body must return {len(values)} values, as many as loop_vars; it returned {len(packed)}")
        return nest.pack_sequence_as(loop_vars, [_tensor(leaf) for leaf in nest.flatten(list(packed))])

    def goes_on(carry: PyTree) -> Any:
        found = native(cond(*wrap(carry[1])))
        return found if most is None else tc.logical_and(carry[0] < most, found)

    if all(isinstance(leaf, Value) for leaf in nest.flatten(values)):
        found = as_instruction(
            lambda: tc.while_loop(goes_on, lambda c: (c[0] + 1, unwrap(next_ones(wrap(c[1])))), (0, unwrap(values)))
        )
        if found is not NOT_TRACED:
            return wrap(found[1])
    steps = 0
    while (most is None or steps < most) and bool(cond(*values)):
        values = next_ones(values)
        steps += 1
    return values


def _long(elems: PyTree) -> Any:
    """Elements as arrays of tape_core, where a loop over them is to be an instruction; else None."""
    leaves, structure = pytree.flatten(elems)
    given = [native(leaf) for leaf in leaves if not isinstance(leaf, TensorArray | IndexedSlices)]
    if len(given) != len(leaves) or not any(map(is_traced, given)) or any(x.ndim == 0 for x in given):
        return None
    return pytree.unflatten(structure, given) if given[0].shape[0] > UNROLL_MAX_STEPS else None


def _tensor(value: TensorLike | TensorArray) -> Any:
    return value if isinstance(value, IndexedSlices | TensorArray) else wrap_tensor(native(value))


def _parts(elems: PyTree) -> Iterator[Any]:
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
    elems: PyTree,
    dtype: PyTree = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: PyTree = None,
) -> Any:
    """`fn` of each part of `elems` along the first dimension, stacked.

    Args:
        elems: a tensor, or a nested structure of them, of one length.
        fn_output_signature: the dtype of the results, or their structure of dtypes; checked.

    Raises:
        TypeError: a result has another dtype.
    """
    expected = dtype if fn_output_signature is None else fn_output_signature

    def one(part: PyTree) -> Any:
        result = fn(part)
        return result if expected is None else nest.map_structure(_as_expected, expected, result)

    if (long := _long(elems)) is not None:
        found = as_instruction(lambda: tc.map(_beneath(one), long))
        if found is not NOT_TRACED:
            return wrap(found)
    return _stacked([one(part) for part in _parts(elems)])


def _as_expected(spec: TensorSpec | DTypeLike, value: TensorLike) -> Any:
    wanted = spec.dtype if isinstance(spec, TensorSpec) else dtypes.as_dtype(spec)
    found = value if isinstance(value, Value) else convert_to_tensor(value, dtype=wanted)
    if found.dtype != wanted:
        raise TypeError(f"map_fn: fn_output_signature says {wanted.name}, and fn returned {found.dtype.name}")
    return found


@exported("vectorized_map")
def vectorized_map(
    fn: Callable[[Any], Any], elems: PyTree, fallback_to_while_loop: bool = True, warn: bool = True
) -> Any:
    """As :func:`map_fn`, all parts at once: `tape_core.vmap`."""

    def beneath(part: PyTree) -> Any:
        return nest.map_structure(native, fn(wrap(part)))

    return wrap(tc.vmap(beneath)(nest.map_structure(native, elems)))


@exported("foldl")
def foldl(
    fn: Callable[[Any, Any], Any], elems: PyTree, initializer: PyTree = None, name: str | None = None, **options: Any
) -> Any:
    """`fn(result so far, part)` over the parts of `elems`, from the first."""
    return _folded(fn, elems, initializer)[0]


@exported("foldr")
def foldr(
    fn: Callable[[Any, Any], Any], elems: PyTree, initializer: PyTree = None, name: str | None = None, **options: Any
) -> Any:
    """`fn(result so far, part)` over the parts of `elems`, from the last."""
    return _folded(fn, elems, initializer, reverse=True)[0]


def _folded(
    fn: Callable[[Any, Any], Any], elems: PyTree, initializer: PyTree, reverse: bool = False
) -> tuple[Any, Any]:
    """What comes out in the end, and after each part."""
    total = None if initializer is None else nest.map_structure(_tensor, initializer)
    if total is not None and (long := _long(elems)) is not None:

        def step(carry: PyTree, part: PyTree) -> Any:
            new = _beneath(fn)(carry, part)
            return new, new

        found = as_instruction(lambda: tc.scan(step, unwrap(total), long, reverse=reverse))
        if found is not NOT_TRACED:
            return wrap(found[0]), wrap(found[1])
    parts = list(_parts(elems))
    totals = []
    for part in reversed(parts) if reverse else parts:
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
    """The results of :func:`foldl` after each part, stacked."""
    _, totals = _folded(fn, elems, initializer, reverse)
    return _stacked(totals) if isinstance(totals, list) else totals


@exported("py_function")
def py_function(func: Callable[..., Any], inp: Sequence[TensorLike], Tout: PyTree, name: str | None = None) -> Any:
    """`func(*inp)` of tensors, its results in the dtypes `Tout`; gradients pass."""
    if ACTIVE.get() or is_assigned():
        run_uncompiled("what py_function computes with, and its derivative,")
        return wrap(_called(func, list(inp), Tout))
    return wrap(_called_each_time(func, [native(x) for x in inp], Tout))


@exported("numpy_function")
def numpy_function(
    func: Callable[..., Any], inp: Sequence[TensorLike], Tout: PyTree, stateful: bool = True, name: str | None = None
) -> Any:
    """`func(*inp)` of NumPy arrays, its results in the dtypes `Tout`; no gradient passes."""
    if is_assigned():
        run_uncompiled("what numpy_function computes with")
    return wrap(_called_each_time(lambda *inp: func(*[x.numpy() for x in inp]), [native(x) for x in inp], Tout))


def _called(func: Callable[..., Any], inp: list[Any], Tout: PyTree) -> Any:
    """What a function of the façade's tensors gives, as tensors of tape_core."""
    found = func(*[_tensor(x) for x in inp])
    if Tout is None or (isinstance(Tout, list | tuple) and not Tout):
        return None
    if isinstance(Tout, list | tuple):
        results = found if isinstance(found, list | tuple) else [found]
        return [native(value, dtype) for value, dtype in zip(results, Tout, strict=True)]
    spec = Tout.dtype if isinstance(Tout, TensorSpec) else Tout
    return native(found, spec)


_called_each_time = opaque(_called)


# -- the rest


@exported("is_symbolic_tensor")
def is_symbolic_tensor(tensor: object) -> bool:
    """False: tensors have values."""
    return False


@exported("get_current_name_scope")
def get_current_name_scope() -> str:
    """What the names of new Variables begin with."""
    return NAME_SCOPE.get().rstrip("/")


@exported("timestamp")
def timestamp(name: str | None = None) -> Any:
    """Seconds since the epoch, a float64 tensor."""
    return wrap(_now())


@opaque
def _now() -> tc.Tensor:
    return native(time.time(), dtypes.float64)


@exported("tuple")
def tuple_(tensors: Sequence[TensorLike | None], control_inputs: object = None, name: str | None = None) -> list[Any]:
    """The tensors, as a list."""
    return [t if t is None else _tensor(t) for t in tensors]


@exported("scalar_mul math.scalar_mul")
def scalar_mul(scalar: TensorLike, x: TensorLike, name: str | None = None) -> Any:
    """`scalar * x`."""
    from tape_tf.ops.elementwise import FUNCTIONS

    return FUNCTIONS["multiply"](x, scalar)
