"""The batching backend: arrays of another backend that carry a hidden leading axis.

`tape_core.vmap` calls a function with Tensors on it. To the function each is one example; an op on them is one call of
the op on all examples, by the op's batch rule (see `tape_core.modes.batching`). Their values are Tensors of the backend
below, so whatever records there sees ops as always: tapes, accumulators and further batches compose by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from tape_core.backends.discovery import backend_of_type
from tape_core.backends.kernels import Kernels
from tape_core.backends.protocol import Backend
from tape_core.base.ambient import OPEN_AXES
from tape_core.base.lookup import OPS, ops
from tape_core.engine.levels import Axis, BatchedArray, is_on_level, lift, misplaced
from tape_core.engine.tensor import SCALARS, Tensor, wrap
from tape_core.modes.batching import Call, batch_rule
from tape_core.staging import TracedValue, current
from tape_core.typing import Array, DTypeLike, IndexKey, Namespace, Raw

if TYPE_CHECKING:
    from tape_core.engine.op import Op


class Batched(Backend):
    """A backend whose arrays are those of `base` with a hidden leading axis; there is one on each (`batched`)."""

    base: Backend

    def __init__(self, base: Backend) -> None:
        super().__init__(f"vmap of {base.name}", base.namespace, version=base.version)
        self.base = base
        self.root = base.root
        self.library = base.library
        self.narrow = base.narrow
        self.level = base.level + 1
        self.height = base.height + 1
        # Batch rules give results and no residuals.
        self.keeps = False
        self.xp = BatchedKernels(self)

    def __repr__(self) -> str:
        return f"<batches of {self.base!r}>"

    def promotes(self, name: str) -> bool:
        """Return True: the op is called on all examples, and that result is looked at."""
        return True

    def raw_dtype(self, dtype: DTypeLike) -> Any:
        """Return the same as the array library."""
        return self.base.raw_dtype(dtype)

    def dtype(self, raw: Any) -> Any:
        """Return the same as the array library."""
        return self.base.dtype(raw)

    def device(self, array: Raw) -> str:
        """Return the device of the examples."""
        return self.base.device(array.value._array)

    def find_device(self, device: str) -> str:
        """Return the same as the array library."""
        return self.base.find_device(device)

    def raw_device(self, device: str | None) -> Any:
        """Return the same as the array library."""
        return self.base.raw_device(device)

    def asarray(self, obj: Any, *, dtype: DTypeLike = None, device: str | None = None, copy: bool | None = None) -> Any:
        """Return an array with one value for all examples."""
        if isinstance(obj, BatchedArray):
            return obj
        return self.shared(wrap(self.base.asarray(obj, dtype=dtype, device=device, copy=copy), self.base))

    def of_all_examples(self, tensor: Tensor) -> Tensor | None:
        """Return a Tensor of all examples, with their axis in front; None if the examples share the value."""
        array = tensor._array
        return array.value if type(array) is BatchedArray else None

    @staticmethod
    def is_known(array: Raw) -> bool:
        """Return it for the array of all examples."""
        if type(array) is not BatchedArray:
            return True
        known: bool = array.value.backend.is_known(array.value._array)
        return known

    def halves(self, array: Raw) -> bool:  # type: ignore[override]
        """Ask the backend below."""
        return self.base.halves(array.value._array if type(array) is BatchedArray else array)

    def numpy(self, array: Raw) -> Any:
        """Return the values, if they are the same for all examples; inside vmap others are not known."""
        value = array._only("what a Tensor holds")
        return self.base.numpy(value._array)

    def tell(self, array: Raw) -> None:
        """Have the backend below do it."""
        self.base.tell(array.value._array)

    def format(self, array: Raw) -> str:
        """Return the text of all examples."""
        text = self.base.format(array.value._array)
        return text if array.axis is None else f"<{array.axis.size} examples>\n{text}\n"

    def user_error(self, error: Exception) -> None:
        """Return the error of the op on all examples."""
        return

    def nbytes(self, array: Raw) -> int:
        """Return it for the array of all examples."""
        return self.base.nbytes(array.value._array)

    def memory(self, array: Raw) -> tuple[Any, int]:
        """Return it for the array of all examples."""
        return self.base.memory(array.value._array)

    def quiet(self) -> AbstractContextManager[Any]:
        """Enter the context of the array library."""
        return self.base.quiet()

    def sweeping(self) -> AbstractContextManager[Any]:
        """Enter the context of the backend below."""
        return self.base.sweeping()

    def outside_sweep(self) -> AbstractContextManager[Any]:
        """Enter the context of the backend below."""
        return self.base.outside_sweep()

    # -- ops

    def shared(self, value: Tensor) -> BatchedArray:
        """Return a value of the backend below as one that is the same for all examples."""
        return BatchedArray(value, self, None)

    def lift(self, value: Any) -> Any:
        """Return an operand as an array of this backend; None, scalars and its own arrays are returned as they are."""
        if value is None or type(value) in SCALARS:
            return value
        if type(value) is BatchedArray:
            if value.backend is self:
                return value
            return self.shared(lift(wrap(value, value.backend), self.base))
        return self.shared(lift(wrap(self.root.asarray(value), self.root), self.base))

    def apply(self, op: Op, *args: Any, **kwargs: Any) -> Any:
        """Call an op on arrays of this backend."""
        n = len(op.inputs)
        if len(args) < n or (kwargs and not op.has_parameters):
            args, kwargs = op.normalise(args, kwargs)
        values = [self.lift(v) for v in (args[0] if op.sequence else args[:n])]
        call = Call(op, args[n:], kwargs)
        # The key of an index may contain arrays, which count as inputs here.
        keyed = "key" in call.params
        if keyed:
            call.params["key"] = self._lifted_key(call.params["key"])
        given = values if not keyed else [*values, *_parts(call.params["key"])]
        axis: Axis | None = None
        axes = OPEN_AXES.get()
        for v in given:
            if type(v) is BatchedArray:
                own = v.axis
                # The usual case first, without a call: the axis of the innermost vmap, on its own level.
                if not (axes and own is axes[-1] and v.backend.level == len(axes)) and not is_on_level(v):
                    raise misplaced(op.name, v)
                axis = axis or own
        # No input differs by example: one call below does for all of them.
        if axis is None:
            if keyed:
                call.params["key"] = tuple([_value(part) for part in _parts(call.params["key"])])
            return self._results(call(*map(_value, values)), None)
        return self._results(batch_rule(op)(call, *values), axis)

    def _lifted_key(self, key: IndexKey) -> Any:
        parts = [self.lift(part) if hasattr(part, "dtype") else part for part in _parts(key)]
        return tuple(parts) if isinstance(key, tuple) else parts[0]

    def _results(self, out: Raw, axis: Axis | None) -> Any:
        if isinstance(out, tuple | list):
            return tuple([self._results(o, axis) for o in out])
        return BatchedArray(out, self, axis) if isinstance(out, Tensor) else out

    def other(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return a function of the array library that is no op, such as one that makes arrays."""
        if name.endswith("_like"):
            x = args[0]
            # A cotangent of an outer vmap may be on a backend above that of the values it belongs to.
            below = x.value.backend
            made = getattr(below.xp, name)(x.value._array, *args[1:], **kwargs)
            return BatchedArray(wrap(made, below), self, x.axis)
        if name == "result_type":
            return function(*[x.value._array if type(x) is BatchedArray else x for x in args])
        if any(type(x) is BatchedArray for x in args):
            # No op, but a public function that is made of ops, which are batched one by one.
            import tape_core

            given = [wrap(x, self) if type(x) is BatchedArray else x for x in args]
            found = getattr(tape_core, name)(*given, **kwargs)
            return tuple([x._array for x in found]) if isinstance(found, tuple | list) else found._array
        made = function(*args, **kwargs)
        return self.shared(wrap(made, self.base)) if hasattr(made, "shape") and hasattr(made, "dtype") else made


def _parts(key: IndexKey) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _value(x: Any) -> Any:
    return x.value if type(x) is BatchedArray else x


class BatchedKernels(Kernels):
    """Every op by name on batched arrays, and the other functions of the array library that a rule may call."""

    _backend: Batched

    def _resolve(self, name: str) -> Any:
        backend = self._backend
        if name in OPS:
            return partial(backend.apply, OPS[name])
        found = getattr(backend.base.xp, name)
        return partial(backend.other, name, found) if callable(found) and not isinstance(found, type) else found


def holds(condition: Array) -> bool:
    """Return whether a condition holds, inside vmap for all examples: for a rule that has a shorter way then.

    For Tensors in a compiled function it is False, since they are not known. A rule that asks it of raw arrays there
    becomes one instruction.
    """
    array = condition._array if isinstance(condition, Tensor) else condition
    if isinstance(array, TracedValue) and isinstance(condition, Tensor):
        return False
    if type(array) is not BatchedArray:
        # Tape's own tracers raise here, for raw arrays, and the rule becomes one instruction.
        return bool(condition) if isinstance(array, TracedValue) else not _is_unknown(array) and bool(condition)
    return holds(ops.all(array.value))


def is_known_to_hold(condition: Array) -> bool:
    """Return whether a condition surely holds, for a check that is made again later; False if it is traced."""
    inner = condition._array if isinstance(condition, Tensor) else condition
    while type(inner) is BatchedArray and inner.axis is None:
        inner = inner.value._array
        if _is_unknown(inner):
            return False
    if _is_unknown(inner) and (isinstance(condition, Tensor) or not isinstance(inner, TracedValue)):
        return False
    return bool(condition)


# What stands for them in exported files, which have raw arrays only.
holds.of_raw_arrays = is_known_to_hold.of_raw_arrays = bool  # type: ignore[attr-defined]


def _is_unknown(array: Raw) -> bool:
    """Return whether the value is another in each run, of Tape's compiled code or of the library's own."""
    if isinstance(array, TracedValue):
        return not array.is_known
    backend = backend_of_type(type(array))
    return backend is not None and not backend.is_known(array)


def one_of(xp: Namespace, condition: Array, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """Return `first()` if a condition holds, inside vmap for all examples, else `second()`.

    For Tensors in a compiled function both are computed, and each run takes one of them: the one, with the same bits,
    that it takes where nothing is compiled. For raw arrays that a library traces, its backend decides.
    """
    tensor = condition
    lifts: list[Any] = []
    # Through all vmaps: the first way is taken only if all examples of each may take it.
    while type(array := tensor._array if isinstance(tensor, Tensor) else tensor) is BatchedArray:
        lifts.append(array.backend)
        tensor = ops.all(array.value)
    if isinstance(array, TracedValue) and not isinstance(tensor, Tensor):
        return first() if bool(tensor) else second()
    if not _is_unknown(array):
        return first() if bool(tensor) else second()
    if not isinstance(condition, Tensor) and not lifts:
        return xp.branch(tensor, first, second)  # of a library that traces: inside `jax.jit`
    if isinstance(condition, Tensor) or not lifts:
        return xp.where(tensor, first(), second())
    return xp.where(lifts[0].shared(lift(tensor, lifts[0].base)), first(), second())


def backend_in(axis: Axis, beside: Tensor) -> Backend:
    """Return the backend of Tensors with a hidden axis that is open, and those around it, on another's library."""
    stage = current()
    # In a trace, vmaps lie above the tracing backend, which then sees each op once, for all examples. That holds for
    # constants, too: two stacks of wrappers on one library have no place in common where an op could bring them.
    backend = beside.backend.root if stage is None else stage.tracing(beside.backend.library)
    for _ in range(OPEN_AXES.get().index(axis) + 1):
        backend = backend.wrapped(Batched)
    return backend
