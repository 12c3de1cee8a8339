"""A function as one op: its results are recorded with a rule of their own, which is a function, too.

vmaps make it hard: a function may be inside vmaps that a tape around it knows nothing of, and read values of them. Its
derivative is computed where it is asked for, at a level below the hidden axes of those vmaps, and each value that goes
from one level to the other gains or loses these axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tape_core.backends.errors import BatchError
from tape_core.backends.protocol import Backend
from tape_core.base.ambient import INNER_AXES, OPEN_AXES
from tape_core.base.contexts import contextmanager, setting
from tape_core.base.lookup import ops
from tape_core.engine import plan, record
from tape_core.engine.backward import lifting
from tape_core.engine.indexed_slices import IndexedSlices, dense
from tape_core.engine.levels import Axis, BatchedArray, has_axis, lift, move_to_level
from tape_core.engine.op import Binding, Op, Plans, vjp
from tape_core.engine.plan import Plan
from tape_core.engine.tensor import Tensor, wrap
from tape_core.modes.batched import Batched, backend_in
from tape_core.modes.batching import spread
from tape_core.typing import Cotangent, Raw, Record, Tangent

Pull = Callable[[list[Any], list[bool], list[Tensor]], Sequence[Any]]
Push = Callable[[list[Any], list[Tensor]], Sequence[Any]]


Axes = tuple[Axis, ...]


@contextmanager
def derivative_below(inner: Axes) -> Iterator[None]:
    """Enter the computation of a derivative below these hidden axes, those of vmaps around the function."""
    with setting(INNER_AXES, inner):
        yield


def axes_inside() -> Axes:
    """Return the hidden axes, outermost first, of vmaps around the function but not around the call for its derivative.

    The derivative is one of all examples of these. They are identified by themselves and not by their level: the
    derivative is a function, too, which runs again for the next order, and then other axes may be open below them.
    """
    return INNER_AXES.get()


def _level_below(inner: Axes) -> int:
    """Return the level right below hidden axes; without any the uppermost."""
    axes = OPEN_AXES.get()
    return axes.index(inner[0]) if inner else len(axes)


def below(tensor: Tensor, inner: Axes) -> Tensor:
    """Return a Tensor below hidden axes, where it has all examples."""
    level = _level_below(inner)
    tensor = move_to_level(tensor)
    while tensor.backend.level > level:
        tensor = tensor._array.value
    return tensor


def lower_cotangent(out: Tensor, g: Tensor, inner: Axes) -> tuple[Tensor, Tensor]:
    """Return a result and its cotangent below hidden axes."""
    out, axes = move_to_level(out), OPEN_AXES.get()
    # From the innermost vmap outwards: each round brings both one level down.
    for k in range(len(axes), _level_below(inner), -1):
        own = lift(g, backend_in(axes[k - 1], g))._array
        shared = out.backend.level < k or out._array.axis is None  # by all examples
        if shared and own.axis is None and axes[k - 1] not in inner:
            g = own.value  # of a vmap that is there again for what the function reads: the cotangent is from outside
        else:
            # What the examples share gets the sum of their cotangents.
            g = spread(own, axes[k - 1].size)
            g = _total(g) if shared else g
        if out.backend.level == k:
            out = out._array.value
    return out, g if g.backend.height > out.backend.height else lift(g, out.backend)


def with_all_axes(tensor: Tensor, inner: Axes) -> Tensor:
    """Return a Tensor with all these hidden axes.

    The arguments of a derivative have them, so that their cotangents are one for each example, as those of results: the
    cotangent of the argument of one step of a loop is that of the result of the step before.
    """
    tensor = move_to_level(tensor)
    for axis in inner:
        tensor = _with_axis(lift(tensor, backend_in(inner[-1], tensor)), axis)
    return tensor


def _with_axis(tensor: Tensor, axis: Axis) -> Tensor:
    array = tensor._array
    if array.axis is axis:
        return tensor
    if OPEN_AXES.get()[tensor.backend.level - 1] is axis:
        value = spread(array, axis.size)
        return wrap(BatchedArray(value, array.backend, axis), tensor.backend)
    return wrap(BatchedArray(_with_axis(array.value, axis), array.backend, array.axis), tensor.backend)


def lower_tangent(x: Tensor, t: Tensor, inner: Axes) -> tuple[Tensor, Tensor]:
    """Return a value, which is on its level, and its tangent below hidden axes."""
    level = _level_below(inner)
    while x.backend.level > level:
        array, axis = x._array, OPEN_AXES.get()[x.backend.level - 1]
        x, t = array.value, _shared(t, axis) if array.axis is None else _with_axis_shown(t, axis)
    return x, _lower(t, level)


def raise_derivative(derivative: Tangent, x: Tensor, inner: Axes) -> Any:
    """Return a derivative, of a value as :func:`below` returns it, for the value itself: the inverse of that."""
    if derivative is None or x.backend.level <= _level_below(inner):
        return derivative
    found = raise_derivative(derivative, x._array.value, inner)
    if x._array.axis is not None:
        return _above(found, x._array.axis)
    return found if found.backend.level > x.backend.level else lift(found, x.backend)


class FunctionCall:
    """The results of a call, and functions that map cotangents of them to those of the inputs, and tangents forward.

    It is the `Rule` of a backend whose library differentiates, too.

    Attributes:
        inner: the hidden axes of the vmaps between this call and the function, outermost first.
        is_own: whether a user gives the derivative, which may be another one than that of what is computed.
    """

    __slots__ = ("backend", "inner", "is_own", "name", "outs", "pull", "push")

    def __init__(
        self,
        outs: Sequence[Tensor],
        backend: Backend,
        pull: Pull,
        push: Push | None,
        name: str,
        inner: Axes,
        *,
        is_own: bool,
    ) -> None:
        self.name = name
        self.is_own = is_own
        self.outs = tuple([o._array for o in outs])
        self.backend = backend
        self.inner = inner
        self.pull = pull
        self.push = push

    def cotangents(self, g: Cotangent, out: Raw, watched: list[bool]) -> list[Any]:
        """Return the cotangents of the inputs that are watched; they are raw if `g` is."""
        if isinstance(g, IndexedSlices):
            return self._of_slices(g, out, watched)
        gs, outs = _listed(g), _listed(out)
        with self.backend.outside_sweep(), derivative_below(self.inner):
            if any([isinstance(one, Tensor) for one in gs]):
                return [dense(d) if w else None for d, w in zip(self.pull(gs, watched, outs), watched, strict=True)]
            # Raw arrays: nothing records the sweep. The functions are written on Tensors all the same.
            outs = [wrap(one, self.backend) for one in outs]
            found = self.pull([None if one is None else wrap(one, self.backend) for one in gs], watched, outs)
        return [dense(d)._array if w and d is not None else None for d, w in zip(found, watched, strict=True)]

    @property
    def pushes(self) -> bool:
        """Whether the call has a function for tangents."""
        return self.push is not None

    def tangents(self, ts: Sequence[Raw], out: Raw) -> list[Raw]:
        """Return the raw tangents of the results for those of the inputs."""
        assert self.push is not None
        with self.backend.outside_sweep(), derivative_below(self.inner):
            outs = [wrap(one, self.backend) for one in _listed(out)]
            found = self.push([wrap(t, self.backend) for t in ts], outs)
        pairs = zip(found, outs, strict=True)
        return [(ops.zeros_like(o) if t is None else lift(dense(t), self.backend))._array for t, o in pairs]

    def _of_slices(self, g: IndexedSlices, out: Raw, watched: list[bool]) -> list[Any]:
        """Return the same for the cotangent of a gather, which stays IndexedSlices if the function takes them."""
        recorded = isinstance(g.values, Tensor)
        values = g.values._array if recorded else g.values
        # Rows can be named neither in a function that does not know slices nor below hidden axes.
        if not getattr(self.pull, "takes_slices", False) or type(values) is BatchedArray or self.inner:
            return self.cotangents(g.densify(), out, watched)
        outs = _listed(out)
        if not recorded:
            outs = [wrap(one, self.backend) for one in outs]
            g = IndexedSlices(wrap(g.values, self.backend), wrap(g.indices, self.backend), g.dense_shape)
        with self.backend.outside_sweep():
            found = [d if w else None for d, w in zip(self.pull([g], watched, outs), watched, strict=True)]
        return found if recorded else [_raw(d) for d in found]


def _raw(d: Cotangent) -> Any:
    if isinstance(d, IndexedSlices):
        return IndexedSlices(d.values._array, d.indices._array, d.dense_shape, _xp=d.values.backend.xp)
    return None if d is None else d._array


def _listed(values: Raw) -> list[Any]:
    return list(values) if type(values) in (tuple, list) else [values]


class _FunctionOp(Op):
    """The op of such calls. It is in no registry, since each call computes something else."""

    takes_slices = True
    of_functions = True
    promotes = False
    widens = False  # its rule is a user's function, which gets cotangents in the dtype of its results

    def bind(self, backend: Backend) -> Binding:
        """Return a kernel that only returns the results, which the call has already."""
        kernel = _values_of_examples if isinstance(backend, Batched) else _values
        return self.bound(backend, kernel, Plans(self, self.compiled, None, backend))

    def push(self, plan: Plan, rec: Record) -> Any:
        """Push tangents by the call's own function, if it has one."""
        call: FunctionCall = record.kwargs(rec)["call"]
        if call.push is None:
            return NotImplemented
        _, lift_kept = lifting(plan.backend)
        slots = record.out_slots(rec)
        outs = _listed(lift_kept(record.out(rec), tuple(slots) if type(slots) is list else slots))
        with derivative_below(call.inner):
            found = tuple(call.push(list(record.slot(rec, 0)), outs))
        return found if len(outs) > 1 else found[0]


def _values_of_examples(arrays: Sequence[BatchedArray], /, *, call: FunctionCall) -> Any:
    """Return the results inside vmap, so that the tapes outside see one call for all examples."""
    backend = call.backend
    assert isinstance(backend, Batched)
    axis = OPEN_AXES.get()[backend.level - 1]

    def above(values: Sequence[Any], like: Sequence[BatchedArray]) -> list[Any]:
        """Return values from below in the vmap, with the hidden axis if the array beside has it."""
        return [None if v is None else _above(v, a.axis) for v, a in zip(values, like, strict=True)]

    def pull(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
        with _reopened(axis):
            # The cotangent of what all examples share must count once in the sum, and not once for each example.
            each = [
                None if g is None else _give_to_first_example(g, axis) if o.axis is None else _above(g, o.axis)
                for g, o in zip(gs, call.outs, strict=True)
            ]
            found = call.pull(each, watched, above(outs, call.outs))
            pairs = zip(found, arrays, strict=True)
            return [None if d is None else _cotangent_below(d, axis, shared=a.axis is None) for d, a in pairs]

    def push(ts: list[Any], outs: list[Tensor]) -> list[Any]:
        assert call.push is not None
        if any([t is not None and has_axis(axis, t) for t in ts]):
            # Of an accumulator in the vmap, which has no use for a derivative of all examples: it asks for that above.
            return [None] * len(call.outs)
        with _reopened(axis):
            found = zip(call.push(above(ts, arrays), above(outs, call.outs)), call.outs, strict=True)
            return [
                None if t is None else _shared(t, axis) if out.axis is None else _with_axis_shown(t, axis)
                for t, out in found
            ]

    inputs, values = [a.value for a in arrays], [o.value for o in call.outs]
    # Nothing differs by example, so below the vmap it is an ordinary call.
    if all([a.axis is None for a in (*arrays, *call.outs)]):
        rules, inner = _outside(axis, call.pull, call.push), call.inner
    else:
        rules, inner = (pull, push if call.push else None), (axis, *call.inner)
    found = _recorded(inputs, values, *rules, call.name, inner, is_own=call.is_own)
    results = tuple([BatchedArray(o, backend, out.axis) for o, out in zip(found, call.outs, strict=True)])
    return results if len(results) > 1 else results[0]


def _outside(axis: Axis, pull: Pull, push: Push | None) -> tuple[Pull, Push | None]:
    """Return the derivatives, outside a vmap, of a function whose inputs and results all its examples share.

    If the vmap has ended when one is called, the hidden axis is opened again: the function may read examples, though
    its results do not depend on them.
    """

    def pulled(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> Sequence[Any]:
        if axis in OPEN_AXES.get():
            return pull(gs, watched, outs)
        with _reopened(axis):
            return [None if d is None else _cotangent_below(d, axis, shared=True) for d in pull(gs, watched, outs)]

    def pushed(ts: list[Any], outs: list[Tensor]) -> Sequence[Any]:
        assert push is not None
        if axis in OPEN_AXES.get():
            return push(ts, outs)
        with _reopened(axis):
            return [None if t is None else lift(t, backend_in(axis, t).base) for t in push(ts, outs)]

    return pulled, pushed if push else None


# A derivative may vary over vmaps above the one whose examples are hidden or shown: such as a tangent in a vmap that is
# opened inside the function. Then the examples' dimension is moved below those, where it is the one after theirs.


def _above(value: Tensor, axis: Axis | None) -> Tensor:
    """Return a Tensor in a vmap: the examples are along its dimension 0, or it is the same for all."""
    if axis is None:
        return value
    level, value = OPEN_AXES.get().index(axis) + 1, move_to_level(value)
    if value.backend.level == level:
        value = value._array.value
    if value.backend.level > level:
        array = value._array
        below = array.value if array.axis is None else _moved(array.value, 1, 0)
        return wrap(BatchedArray(_above(below, axis), array.backend, array.axis), value.backend)
    backend = backend_in(axis, value)
    assert isinstance(backend, Batched)
    return wrap(BatchedArray(lift(value, backend.base), backend, axis), backend)


def _with_axis_shown(value: Tensor, axis: Axis) -> Tensor:
    """Return a Tensor of a vmap below it, with the examples along dimension 0."""
    level, value = OPEN_AXES.get().index(axis) + 1, move_to_level(value)
    if value.backend.level <= level:
        return spread(lift(value, backend_in(axis, value))._array, axis.size)
    array = value._array
    below = _with_axis_shown(array.value, axis)
    below = below if array.axis is None else _moved(below, 0, 1)
    return wrap(BatchedArray(lift(below, array.backend.base), array.backend, array.axis), value.backend)


def _shared(value: Tensor, axis: Axis) -> Tensor:
    """Return a Tensor of a vmap below it, where it is the same for all examples.

    Raises:
        BatchError: the examples have different ones.
    """
    level, value = OPEN_AXES.get().index(axis) + 1, move_to_level(value)
    if value.backend.level < level:
        return value
    array = value._array
    if value.backend.level > level:
        below = lift(_shared(array.value, axis), array.backend.base)
        return wrap(BatchedArray(below, array.backend, array.axis), value.backend)
    if array.axis is not None:
        raise BatchError("the tangent of a result is not the same for all examples, but the result is")
    return array.value  # type: ignore[no-any-return]


def _moved(value: Tensor, source: int, destination: int) -> Tensor:
    return ops.moveaxis(value, source, destination)


def _total(value: Tensor) -> Tensor:
    return ops.sum(value, axis=0)


def _give_to_first_example(g: Tensor, axis: Axis) -> Tensor:
    """Return the cotangent of a shared value as one for each example: the first has it all, the others zeros."""
    # Without examples there is none to give it to.
    if axis.size == 0:
        return g
    none = ops.zeros_like(wrap(g._array, g.backend))[None]
    return _above(ops.concat([g[None], *[none] * (axis.size - 1)]), axis)


def _cotangent_below(d: Cotangent, axis: Axis, *, shared: bool) -> Tensor:
    """Return a cotangent in a vmap below it, summed over the examples if they share the value."""
    d = move_to_level(dense(d))
    backend = backend_in(axis, d)
    own = lift(d, backend)._array
    if not shared:
        return spread(own, axis.size)
    return own.value if own.axis is None else _total(own.value)


def _lower(tensor: Tensor, level: int) -> Tensor:
    """Return a Tensor at a level, if all examples of the vmaps above share it; else as far below as they do."""
    while tensor.backend.level > level and tensor._array.axis is None:
        tensor = tensor._array.value
    return tensor


@contextmanager
def _reopened(axis: Axis) -> Iterator[None]:
    """Enter a context in which a hidden axis is open, also if its vmap has ended: functions keep values of it."""
    if axis in OPEN_AXES.get():
        yield
        return
    with setting(OPEN_AXES, (*OPEN_AXES.get(), axis)):
        try:
            axis.open = True
            yield
        finally:
            axis.open = False


def _values(arrays: Sequence[Raw], /, *, call: FunctionCall) -> Any:
    return call.outs if len(call.outs) > 1 else call.outs[0]


def function_call(arrays: Sequence[BatchedArray], /, *, call: FunctionCall) -> Any:
    """Return the results of a function."""


FUNCTION_CALL = _FunctionOp(
    function_call,
    {"arrays": vjp(lambda xp, g, out, arrays_watched, call: call.cotangents(g, out, arrays_watched))},
    form="op",
    sequence=True,
    # None for results that nothing used, in place of zeros: `pull` is to know.
    materialize=False,
)


def record_as_one(
    inputs: Sequence[Tensor],
    outs: Sequence[Tensor],
    pull: Pull,
    push: Push | None = None,
    name: str = "function_call",
    *,
    is_own: bool = False,
) -> list[Tensor]:
    """Return `outs` as new Tensors that depend on `inputs`, and on nothing else.

    Args:
        inputs: Tensors, at least one.
        outs: Tensors, at least one.
        pull: maps cotangents of `outs`, Tensors or None where nothing flows, for each input whether its cotangent is
            wanted, and the results as the tapes around know them, to those cotangents, None where it is not. They are
            plain transposes: they do not conjugate.
        push: maps tangents of `inputs`, None where there is none, and the results to tangents of those. Without it
            forward mode goes by the transpose of `pull`.
        name: what debugging tapes call it.
        is_own: whether the derivative may be another one than that of what is computed: then a library that
            differentiates, as JAX does, is told of it.
    """
    inputs, outs = list(map(move_to_level, inputs)), list(map(move_to_level, outs))
    level = max([t.backend.level for t in (*inputs, *outs)])
    # Vmaps that are open here, and of which no value has the axis: the functions may read examples nevertheless.
    for axis in reversed(OPEN_AXES.get()[level:]):
        pull, push = _outside(axis, pull, push)
    return _recorded(inputs, outs, pull, push, name, (), is_own=is_own)


# Set from here, since `plan` stands below this module and must not import it.
plan.record_as_one = record_as_one


def _recorded(
    inputs: Sequence[Tensor],
    outs: Sequence[Tensor],
    pull: Pull,
    push: Push | None,
    name: str,
    inner: Axes,
    *,
    is_own: bool,
) -> list[Tensor]:
    """Record a call of Tensors that are on their levels, with all examples of the vmaps of these axes."""
    backend = max([t.backend for t in (*inputs, *outs)], key=lambda backend: backend.height)
    given = [lift(t, backend) for t in inputs]
    call = FunctionCall([lift(o, backend) for o in outs], backend, pull, push, name, inner, is_own=is_own)
    if is_own and not backend.level:
        call.outs = tuple(backend.library.ruled([t._array for t in given], call.outs, call))
    found = FUNCTION_CALL.function(given, call=call)
    return list(found) if isinstance(found, tuple | list) else [found]
