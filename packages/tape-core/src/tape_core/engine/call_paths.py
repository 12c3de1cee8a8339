"""The call paths of ops: run the kernel and, where a tape watches an input, leave one record.

Everything a program does goes through here, so it is written out: one path for one input, one for two, one for
the rest; no signature binding, no isinstance, no property, one dictionary lookup for kernel and plans.
The layout of a record is in `tape_core.engine.record`; here records are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backends.discovery import backend_of_type
from tape_core.backends.kernels import REFUSED
from tape_core.base.ambient import ACTIVE
from tape_core.base.dtypes import common_dtype
from tape_core.base.forking import Lock
from tape_core.base.mistakes import no_sequence
from tape_core.engine.binding import ask_for_bindings
from tape_core.engine.call_errors import call_beyond, fail
from tape_core.engine.cuts import on_no_derivative
from tape_core.engine.plan import Part
from tape_core.engine.promotion import (
    FITTING,
    NEVER,
    call_again,
    check_real,
    converted,
    with_integers_in_bounds,
)
from tape_core.engine.rules import spec_of
from tape_core.engine.tensor import NO_SLOTS, SCALARS, Tensor, own_slots, wrap
from tape_core.engine.variable import Variable
from tape_core.typing import ArrayLike, Raw

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.op import Op, Plans
    from tape_core.engine.recording import Recorder

_new = object.__new__
_get_active = ACTIVE.get


def constant_call(op: Op) -> Callable[..., Any]:
    """Return the call path of an op of one or two inputs through which nothing flows."""
    bindings = op.bindings
    is_real = op.complex_kernel is REFUSED

    def call(*values: Any) -> Any:
        if len(values) != len(op.inputs):
            op.normalise(values, {})
        # Libraries compare with a complex number though they may have met no complex array.
        if is_real and (type(values[-1]) is complex or type(values[0]) is complex):
            check_real(op, values)
        values = op.operands(values)
        array = values[0] if type(values[0]) is Tensor else values[1]
        backend = array.backend
        number = values[-1] if array is values[0] else values[0]
        if (
            type(number) is int
            and not 0 <= number < 128
            and op.elementwise
            and not backend.holds(number, array._raw.dtype)
        ):
            return call_beyond(op, call, *values)
        kernel, _, usual, _ = bindings.get(backend) or op.bind(backend)
        try:
            out = kernel(*[v._array if type(v) is Tensor else v for v in values])
        except Exception as error:  # noqa: BLE001 - re-raised in the user's terms
            return fail(op, error, values)
        if usual is not None and (cast := converted(op, values, out)) is not None:
            return call_again(backend, call, cast)
        if _get_active():
            for v in values:
                if type(v) is Tensor and v._slots:
                    on_no_derivative(op, v._slots, out)
        if type(out) is tuple:
            return tuple([wrap(o, backend) for o in out])
        return wrap(out, backend)

    return call


def unary_call(op: Op) -> Callable[..., Any]:
    """Return the call path of an elementwise op of one input."""
    bindings = op.bindings

    def call(x: ArrayLike, /) -> Tensor:
        if type(x) is not Tensor:
            x = read_operand(op, x, _get_active())
        backend = x._home
        a = x._raw
        # A `try` that succeeds is free in CPython; the KeyError comes once for each backend.
        try:
            kernel, plans, usual, usual_scalar = bindings[backend]
        except KeyError:
            kernel, plans, usual, usual_scalar = op.bind(backend)
        try:
            out = kernel(a)
        except Exception as error:  # noqa: BLE001 - re-raised in the user's terms
            return fail(op, error, (x,))  # type: ignore[no-any-return]
        # A scalar of the usual type is known by that: to ask it for its dtype takes longer than to ask an array.
        if usual is not None and type(out) is not usual_scalar:
            dtype = out.dtype
            if dtype is not usual and dtype is not a.dtype and (cast := converted(op, (x,), out)) is not None:
                return call_again(backend, call, cast)  # type: ignore[no-any-return]
        result: Tensor = _new(Tensor)
        result._array = out
        result.backend = backend
        result._slots = slots = NO_SLOTS
        # No slots: no recorder has met the value, and there is nothing to look up, however many are active.
        if s := x._raw_slots:
            for tape in _get_active():
                key = tape._key
                i = s.get(key)
                if i is None:
                    continue
                plan = plans[_FIRST_WATCHED]
                if plan is None:  # nothing flows through: true for every tape
                    on_no_derivative(op, s, out)
                    break
                on_op = tape._on_op
                if slots is NO_SLOTS:
                    result._slots = slots = {key: len(tape._records)}
                else:
                    slots[key] = len(tape._records)
                # The recorder has seen the dtype of the input; only another one, as that of `abs` of a complex array,
                # may be new to it.
                if out.dtype is not a.dtype:
                    tape._before_op(op, backend, out)
                # With one input nothing is broadcast, so a spec is needed only where cotangents may have to be cast.
                specs = ((a.shape, a.dtype),) if tape._special else None
                on_op(
                    (
                        plan,
                        specs,
                        i,
                        a if plan.keep1 or tape._forward else None,
                        s,
                        out if plan.keep_out or tape._forward else None,
                        slots,
                    )
                )
        return result

    return call


def single_call(op: Op) -> Callable[..., Any]:
    """Return the call path of an op of one input and parameters."""
    bindings = op.bindings
    elementwise = op.elementwise
    takes_dtype = op.takes_dtype
    has_parameters = op.has_parameters
    has_axis, axis_by_default = op.counts_axes, op.has_default_axis
    general = general_call(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not args or (kwargs and not has_parameters):
            args, kwargs = op.normalise(args, kwargs)
        x, params = args[0], args[1:]
        active = _get_active()
        if type(x) is not Tensor:
            x = read_operand(op, x, active)
        backend = x._home
        a = x._raw
        if takes_dtype and (params or kwargs):
            params = with_raw_dtype(op, backend, params, kwargs)
        try:
            kernel, plans, usual, _ = bindings[backend]
        except KeyError:
            kernel, plans, usual, _ = op.bind(backend)
        s = x._raw_slots
        # A record with residuals has another layout, which the general path makes.
        if s and plans.residual_kernel is not None:
            return general(x, *params, **kwargs)
        if has_axis and (kwargs or axis_by_default or params) and not a.ndim:
            op.check_axis((x,), params, kwargs)
        try:
            out = kernel(a, *params, **kwargs)
        except Exception as error:  # noqa: BLE001 - re-raised in the user's terms
            return fail(op, error, (x,), params, kwargs)
        if usual is not None:
            dtype = out.dtype if type(out) not in _NO_ARRAY else None
            if dtype is not usual and dtype is not a.dtype and (cast := converted(op, (x,), out)) is not None:
                return call_again(backend, call, (*cast, *params), kwargs)
        if type(out) in _NO_ARRAY:
            return wrap_and_record(op, active, plans, backend, (s,), (a,), out, params, kwargs)
        result: Tensor = _new(Tensor)
        result._array = out
        result.backend = backend
        result._slots = slots = NO_SLOTS
        if s:
            for tape in active:
                key = tape._key
                i = s.get(key)
                if i is None:
                    continue
                plan = plans[_FIRST_WATCHED]
                if plan is None or (takes_dtype and not backend.dtype(out.dtype).inexact):
                    on_no_derivative(op, s, out)
                    break
                on_op = tape._on_op
                if slots is NO_SLOTS:
                    result._slots = slots = {key: len(tape._records)}
                else:
                    slots[key] = len(tape._records)
                if out.dtype is not a.dtype:
                    tape._before_op(op, backend, out)
                specs = ((a.shape, a.dtype),) if not elementwise or tape._special else None
                kept = a if plan.keep1 or tape._forward else None
                out_kept = out if plan.keep_out or tape._forward else None
                on_op((plan, specs, i, kept, s, out_kept, slots, params, kwargs))
        return result

    return call


def read_operand(op: Op, x: ArrayLike, active: Iterable[Recorder]) -> Any:
    """Return the only operand of an op, which is no plain Tensor, as one; a Variable is read by the recorders."""
    if type(x) not in _TENSORS:
        return op.operands((x,))[0]
    slots = x._raw_slots
    for tape in active:
        if tape._key not in slots:
            tape._on_read(x)
    return x


_NO_ARRAY = frozenset({tuple, list, Tensor})  # types that a kernel returns for several results, or by mistake
# The keys of an op's plans: bit k is set if input k is watched.
_FIRST_WATCHED = 1
_SECOND_WATCHED = 2
_BOTH_WATCHED = 3


def accepts(value: object) -> bool:
    """Return whether an operator takes this operand; others get their turn with their own reflected operator."""
    if isinstance(value, Tensor) or type(value) in SCALARS:
        return True
    return backend_of_type(type(value)) is not None


def binary_call(op: Op, *, operator: bool = False) -> Callable[..., Any]:
    """Return the call path of an op of two inputs; as an operator it declines operands that it does not know."""
    bindings = op.bindings
    elementwise = op.elementwise

    def call(x1: ArrayLike, x2: ArrayLike, /) -> Any:
        kind1 = type(x1)
        kind2 = type(x2)
        if kind1 in _TENSORS:
            backend = x1._home
            a1 = x1._raw
            s1 = x1._raw_slots
            if kind2 in _TENSORS:
                if x2._home is not backend:
                    # Once more, with both operands as Tensors of one backend: that call takes the short way.
                    return call(*op.operands((x1, x2)))
                a2 = x2._raw
                s2 = x2._raw_slots
                scalar = False
            elif kind2 in SCALARS:
                a2 = x2
                s2 = NO_SLOTS
                scalar = True
                # All dtypes have the numbers from 0 to 127.
                if kind2 is int and not 0 <= x2 < 128 and elementwise and not backend.holds(x2, a1.dtype):
                    return call_beyond(op, call, x1, x2)
            elif operator and not accepts(x2):
                return NotImplemented
            else:
                return call(*op.operands((x1, x2)))
        elif kind2 in _TENSORS and kind1 in SCALARS:
            backend = x2._home
            a1 = x1
            s1 = NO_SLOTS
            a2 = x2._raw
            s2 = x2._raw_slots
            scalar = True
            if kind1 is int and not 0 <= x1 < 128 and elementwise and not backend.holds(x1, a2.dtype):
                return call_beyond(op, call, x1, x2)
        elif operator and not accepts(x2):
            return NotImplemented
        else:
            return call(*op.operands((x1, x2)))
        try:
            kernel, plans, usual, usual_scalar = bindings[backend]
        except KeyError:
            kernel, plans, usual, usual_scalar = op.bind(backend)
        try:
            out = kernel(a1, a2)
            if scalar and type(out) in SCALARS:  # 1j * np.float64(1) is a Python complex
                out = backend.asarray(out)
        except Exception as error:  # noqa: BLE001 - re-raised in the user's terms
            return fail(op, error, (x1, x2))
        if usual is not None and type(out) is not usual_scalar:
            dtype = out.dtype
            if dtype is not usual and dtype is not (a2 if kind1 in SCALARS else a1).dtype:
                cast = converted(op, (x1, x2), out)
                if cast is not None:
                    return call_again(backend, call, cast)
        result: Tensor = _new(Tensor)  # `wrap`, written out
        result._array = out
        result.backend = backend
        result._slots = slots = NO_SLOTS
        # No slots and no Variable: no recorder has met a value or could, and there is nothing to look up.
        if not s1 and not s2 and kind1 is not Variable and kind2 is not Variable:
            return result
        for tape in _get_active():
            key = tape._key
            i1 = s1.get(key)
            i2 = s2.get(key)
            # `_on_read` writes the slot into the dict of the Variable. In `v * v` both operands have that dict, so s2
            # is asked again.
            if i1 is None and kind1 is Variable:
                i1 = tape._on_read(x1)
                i2 = s2.get(key)
            if i2 is None and kind2 is Variable:
                i2 = tape._on_read(x2)
            if i1 is None:
                if i2 is None:
                    continue
                plan = plans[_SECOND_WATCHED]
            elif i2 is None:
                plan = plans[_FIRST_WATCHED]
            else:
                plan = plans[_BOTH_WATCHED]
            if plan is None:
                if tape._cuts is not None:
                    tape._cuts.on_op(op, out)
                continue
            on_op = tape._on_op
            if slots is NO_SLOTS:
                result._slots = slots = {key: len(tape._records)}
                # An elementwise op needs specs only of inputs that were broadcast or cast: those whose cotangent
                # differs from that of the result in shape or dtype.
                specs: Any = None
                mixed = False
                if scalar:
                    mixed = kind1 is complex or kind2 is complex
                    if mixed or not elementwise:
                        specs = (spec_of(a1), spec_of(a2))
                elif elementwise and type(a1) is type(a2) and type(a1) in backend.scalar_types:
                    # Both are the library's scalars of one type: neither broadcast nor cast.
                    pass
                else:
                    shape1 = a1.shape
                    shape2 = a2.shape
                    dtype1 = a1.dtype
                    dtype2 = a2.dtype
                    mixed = dtype1 is not dtype2 and dtype1 != dtype2
                    if not elementwise:
                        specs = ((shape1, dtype1), (shape2, dtype2))
                    elif shape1 != shape2 or mixed:
                        shape = out.shape
                        dtype = out.dtype
                        specs = (
                            None if shape1 == shape and dtype1 == dtype else (shape1, dtype1),
                            None if shape2 == shape and dtype2 == dtype else (shape2, dtype2),
                        )
                # A constant that is kept needs slots of its own, so that a tape opened later may watch it.
                if s1 is NO_SLOTS and kind1 is Tensor:
                    s1 = own_slots(x1)
                if s2 is NO_SLOTS and kind2 is Tensor:
                    s2 = own_slots(x2)
            else:
                slots[key] = len(tape._records)
            if mixed:
                tape._before_op(op, backend, out)
            everything = tape._forward
            keep1 = a1 if plan.keep1 or everything else None
            keep2 = a2 if plan.keep2 or everything else None
            on_op((plan, specs, i1, keep1, s1, i2, keep2, s2, out if plan.keep_out or everything else None, slots))
        return result

    return call


_TENSORS = frozenset({Tensor, Variable})


_by_name: set[str] = set()
_by_name_lock = Lock()


def read_variables_by_name(on: bool, why: str = "traces") -> None:
    """Let ops read Variables by their properties, which ask a running trace and bindings, or directly from their slots.

    It is on for all threads while a trace runs, or there is a binding, in any of them. Results are the same; calls with
    Variables take longer.
    """
    global _TENSORS
    with _by_name_lock.now:
        if on:
            _by_name.add(why)
        else:
            _by_name.discard(why)
        _TENSORS = frozenset({Tensor}) if _by_name else frozenset({Tensor, Variable})


ask_for_bindings.append(lambda on: read_variables_by_name(on, "bindings"))


def general_call(op: Op) -> Callable[..., Any]:
    """Return the call path of all other ops: any number of inputs or a sequence, parameters, several results."""
    bindings = op.bindings
    n = len(op.inputs)
    sequence = op.sequence
    takes_dtype = op.takes_dtype
    has_parameters = op.has_parameters
    has_axis, axis_by_default = op.counts_axes, op.has_default_axis
    optional = op.optional
    first = 0 if sequence or not op.promoted else op.promoted[0]
    # The input that decides on the dtype may be a number, as in `where(c, 1.0, 2.0)`: then it becomes an array.
    decisive = (1 if op.masks else 0) if op.elementwise and n > 2 else None
    fitting = FITTING.get(op.name, with_integers_in_bounds if op.masks is True else None)

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) < n or (kwargs and not has_parameters):
            args, kwargs = op.normalise(args, kwargs)
        if sequence:
            try:
                values: tuple[Any, ...] = tuple(args[0])
            except TypeError as error:
                raise no_sequence(op.name, op.inputs[0], "arrays", args[0], error) from None
            if not values:
                raise ValueError(f"{op.name}: {op.inputs[0]} is empty; it needs at least one array")
        else:
            values = args[:n]
        params = args[n:]
        active = _get_active()
        backend: Any = None
        arrays: list[Any] = []
        slots_of: list[Any] = []  # of each operand; None for what is no array
        wide = False  # whether there is a number that some dtype of integers has not
        for x in values:
            kind = type(x)
            if kind in _TENSORS:
                if x._home is not backend:
                    # A second backend: all operands go through `op.operands`, below.
                    if backend is not None:
                        backend = None
                        break
                    backend = x._home
                slots = x._raw_slots
                if kind is Variable:
                    for tape in active:
                        if tape._key not in slots:
                            tape._on_read(x)
                # A record may hold this constant, and a tape that is opened later may watch it; see `binary_call`.
                elif slots is NO_SLOTS and active:
                    slots = own_slots(x)
                arrays.append(x._raw)
                slots_of.append(slots)
            elif (kind in SCALARS and not sequence) or (x is None and optional):
                if kind is int and fitting is not None and not 0 <= x < 128:
                    wide = True
                arrays.append(x)
                slots_of.append(None)
            else:
                backend = None
                break
        if wide and backend is not None and fitting is not None:
            try:
                others = fitting(op, values)
            except OverflowError as error:
                return fail(op, error, values, params, kwargs)
            if others is not None:
                return call(*others, *params, **kwargs)
        if decisive is not None and backend is not None and type(arrays[decisive]) in SCALARS:
            arrays[decisive] = number_as_array(backend, arrays, decisive)
            slots_of[decisive] = {}
        if backend is None:
            values = op.operands(values)
            return call(values, *params, **kwargs) if sequence else call(*values, *params, **kwargs)
        if takes_dtype:
            params = with_raw_dtype(op, backend, params, kwargs)
        try:
            kernel, plans, usual, _ = bindings[backend]
        except KeyError:
            kernel, plans, usual, _ = op.bind(backend)
        if has_axis and (kwargs or axis_by_default or params) and not getattr(arrays[0], "ndim", 1):
            op.check_axis(values, params, kwargs)
        residuals: Any = ()
        residual_kernel = plans.residual_kernel
        try:
            if residual_kernel is not None and any([s and tape._key in s for s in slots_of for tape in active]):
                given = (arrays,) if sequence else arrays
                out, residuals = residual_kernel(*given, *params, **kwargs)
            else:
                out = kernel(arrays, *params, **kwargs) if sequence else kernel(*arrays, *params, **kwargs)
        except Exception as error:  # noqa: BLE001 - re-raised in the user's terms
            return fail(op, error, values, params, kwargs)
        if usual is not None:
            dtype = out.dtype if type(out) not in _NO_ARRAY else None
            if dtype is not usual and dtype is not getattr(arrays[first], "dtype", NEVER):
                cast = converted(op, values, out)
                if cast is not None:
                    return call_again(backend, call, ((cast,) if sequence else cast) + params, kwargs)
        return wrap_and_record(op, active, plans, backend, slots_of, arrays, out, params, kwargs, residuals)

    return call


def number_as_array(backend: Backend, arrays: Sequence[Any], k: int) -> Any:
    """Return the number at `k` as an array; its dtype is weak beside the values after it, as in arithmetic."""
    kinds = [type(a) for a in arrays[k:] if type(a) in SCALARS]
    dtype = common_dtype([backend.dtype(a.dtype) for a in arrays[k:] if type(a) not in _NUMBERS], kinds)
    return backend.asarray(arrays[k], dtype=backend.raw_dtype(dtype))


_NUMBERS = SCALARS | {type(None)}


def with_raw_dtype(op: Op, backend: Backend, params: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the positional parameters with `dtype` in the backend's terms; in `kwargs` it is replaced."""
    if kwargs.get("dtype") is not None:
        kwargs["dtype"] = backend.raw_dtype(kwargs["dtype"])
    elif (place := op.parameters.places.get("dtype")) is not None and len(params) > place:
        return (*params[:place], backend.raw_dtype(params[place]), *params[place + 1 :])
    return params


def wrap_and_record(
    op: Op,
    active: Iterable[Any],
    plans: Plans,
    backend: Backend,
    slots_of: Sequence[Any],
    arrays: Sequence[Any],
    out: Raw,
    params: tuple[Any, ...],
    kwargs: dict[str, Any],
    residuals: tuple[Any, ...] = (),
) -> Any:
    """Return the results of a kernel as Tensors, recorded by the recorders that know an operand."""
    several = type(out) is tuple or type(out) is list
    if type(out) is Tensor:
        raise TypeError(
            f"{op.name}: a Tensor was given for a parameter; only its inputs, {', '.join(op.inputs)}, may be arrays; "
            f"if another is to be one, the op must be declared with a rule for it"
        )
    slots = NO_SLOTS
    parts: list[dict[int, int]] = []
    for tape in active:
        key = tape._key
        at: list[int | None] = []
        watched, bit = 0, 1
        for s in slots_of:
            i = None if s is None else s.get(key)
            at.append(i)
            if i is not None:
                watched |= bit
            # All arrays of a sequence are input 0: its plan has the one rule for all of them.
            if not op.sequence:
                bit += bit
        plan = plans[watched]
        if plan is None or (op.takes_dtype and not several and not backend.dtype(out.dtype).inexact):
            if watched and tape._cuts is not None:
                tape._cuts.on_op(op, out)
            continue
        if slots is NO_SLOTS:
            slots = {}
            parts = [{} for _ in out] if several else []
        on_op = tape._on_op
        if several:
            for o in out:
                tape._before_op(op, backend, o, at)
        else:
            tape._before_op(op, backend, out, at)
        slots[key] = base = len(tape._records)
        make_record = plan.make_whole_record if tape._forward else plan.make_record
        on_op(make_record(plan, arrays, slots_of, at, out, parts or slots, params, kwargs, residuals))
        # Several results: each has a slot of its own, whose record hands its cotangent to the op's.
        for k, part in enumerate(parts):
            part[key] = len(tape._records)
            on_op((Part(k, tuple([spec_of(o) for o in out])), None, base))
    if several:
        outs = [wrap(o, backend, part) for o, part in zip(out, parts or [NO_SLOTS] * len(out), strict=True)]
        return tuple(outs) if op.result is None else op.result(*outs)
    return wrap(out, backend, slots)
