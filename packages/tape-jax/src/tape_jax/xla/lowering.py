"""Lowering: the instructions of a program, evaluated once over JAX's tracers by the kernels of the JAX backend.

A call is known by the name of its op and the op's own arguments, so the program may be of NumPy's, PyTorch's or JAX's
arrays. Results get the dtypes that they had in the trace; a kernel that gives another shape is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from tape_compile.extend import (
    AsArray,
    Flow,
    Instruction,
    Method,
    NoteState,
    NoteStateOfStep,
    Program,
    RandomBits,
    Ref,
    SetState,
    SetStateOfStep,
    Spec,
    source_line,
)
from tape_core.backends import DEFAULT_KERNELS, Kernels
from tape_core.staging import TracingError
from tape_core.typing import Raw

from tape_jax import sorting
from tape_jax.tasks import JaxCall
from tape_jax.thresholds import UNMASKED_MIN_ELEMENTS
from tape_jax.xla import products
from tape_jax.xla.draws import drawn
from tape_jax.xla.transfer import backend_dtype, jax_backend, jax_dtype

if TYPE_CHECKING:
    from tape_core.random import Generator

STATE_CALLS = (NoteState, SetState, NoteStateOfStep, SetStateOfStep)
"""Functions that read or set the state of the global generator."""
LAYOUT = "laid_out_like"
"""The op that lays a value out as another one: gradients as their sources."""
GLOBAL = 0
"""The key in `Lowering.states` of the global generator; any other generator is its own key."""

INVERSE, UNSORTED = "inverse_permutation", "unsorted"
"""Calls that only simplified programs have: the inverse of an order, and elements put back where it took them from."""
MASKED, UNMASKED = "masked", "unmasked"
"""Others: cotangents with 0 in place of the NaN that a rule makes of zeros; see the functions of these names."""

_KEYS = {"getitem": 1, "scatter": 1, **dict.fromkeys((
    "setitem", "scatter_add", "scatter_max", "scatter_min", "scatter_multiply"), 2)}  # fmt: skip
"""By the names of calls with a key: which argument it is."""

_PLAIN = frozenset({bool, int, float, complex, str, slice, type(None), type(...)})


class Lowering:
    """The values of a program while it is evaluated over tracers.

    Args:
        program: what the instructions are of, for specs and messages.
        values: by number the values that are known: inputs and constants.
        states: by generator its state, an array of three words; draws replace it.
    """

    def __init__(self, program: Program, values: dict[int, Any], states: dict[int | Generator, Any], name: str) -> None:
        self.program = program
        self.specs: Mapping[int, Spec] = program.specs
        self.values = {k: _constant(v) if isinstance(v, np.ndarray | np.generic) else v for k, v in values.items()}
        self.states = states
        self.name = name
        self.tokens: dict[int, Any] = {}  # by the id of a token, the state of the global generator that it keeps
        self.before: dict[int, list[Any]] = {}
        self.layouts: dict[int, NamedSharding] = {}  # of values that are divided among devices, where they are known
        self._transposed: set[int] = set()  # values that a call has made by exchanging the last two axes
        self.xp = jax_backend().xp

    def run(self, instructions: Sequence[Instruction]) -> None:
        """Evaluate instructions in order.

        Raises:
            TracingError: JAX's kernel cannot do one for all values, with the user's line.
        """
        for instruction in instructions:
            try:
                self._run(instruction)
            except TracingError:
                raise
            except Exception as error:
                raise self.refusal(instruction, error) from error

    def refusal(self, instruction: Instruction, error: Exception) -> TracingError:
        """Return the error for the user of an instruction that cannot be lowered."""
        where = "" if instruction.place is None else f" at {source_line(instruction.place)}"
        said = next(iter(str(error).strip().splitlines()), "")
        return TracingError(
            f"{self.name}: compile='xla' cannot take {instruction.name}{where}: {type(error).__name__}: {said}. XLA "
            "runs in the same way for all values, with results of the same shapes: use tape_core.where, cond, "
            "while_loop or scan; or compile='python'; or let the function run as plain Python, with fallback=True"
        )

    def _run(self, instruction: Instruction) -> None:
        fn: Any = instruction.fn
        kind = type(fn)
        if kind is RandomBits:
            key = GLOBAL if fn.generator is None else fn.generator
            out, self.states[key] = drawn(fn.draw, self.states[key])
        elif kind in STATE_CALLS:
            self._on_state(fn, instruction)
            return
        else:
            args = [self.argument(arg) for arg in self._without_constant_masks(instruction)]
            kwargs = {
                name: self.argument(arg) for name, arg in instruction.kwargs.items() if name not in ("device", "out")
            }
            if instruction.name == "matmul":
                self._lay_out(instruction.args[0], args)
            out = self.flow(fn, args) if kind is Flow else self.function(instruction)(*args, **kwargs)
            if instruction.name == LAYOUT:
                out = self._laid_out(out, instruction.args[1])
        self._store(instruction.out, out)
        if type(instruction.out) is int and products.is_transposition(instruction.name, out):
            source = instruction.args[0]
            if type(source) is Ref and source.id not in self.program.constants:  # those XLA transposes once
                self._transposed.add(instruction.out)

    def _lay_out(self, first: object, args: list[Any]) -> None:
        """Have XLA transpose the first factor of a product before it multiplies, where that is faster."""
        if type(first) is Ref and first.id in self._transposed:
            args[0] = products.laid_out(*args[:2])

    def _without_constant_masks(self, instruction: Instruction) -> Sequence[Any]:
        """Return the arguments of a call, with the places of its true elements for a constant mask in a key."""
        at = _KEYS.get(instruction.name)
        if at is None or len(instruction.args) <= at:
            return instruction.args
        key, constants = instruction.args[at], self.program.constants
        parts: list[Any] = []
        for part in key if type(key) is tuple else (key,):
            mask = constants.get(part.id) if type(part) is Ref else None
            if mask is not None and mask.shape and self.specs[part.id].dtype_name == "bool":
                parts += np.nonzero(np.asarray(mask))
            else:
                parts.append(part)
        return *instruction.args[:at], tuple(parts), *instruction.args[at + 1 :]

    def _laid_out(self, value: Any, like: object) -> Any:
        """Have XLA lay a value out as another one, if that is divided among devices."""
        if not isinstance(like, Ref):
            return value
        place = self.layouts.get(like.id)
        if place is None or self.specs[like.id].shape != value.shape:
            return value
        constrain: Any = jax.lax.with_sharding_constraint
        return constrain(value, place)

    def _on_state(self, fn: Any, instruction: Instruction) -> None:
        """Keep the state of the global generator for later, or go back to one that was kept."""
        if type(fn) is NoteState:
            self.tokens[id(fn.token)] = self.states[GLOBAL]
        elif type(fn) is SetState:
            found = self.tokens.get(id(fn.token))
            self.states[GLOBAL] = jnp.asarray(np.asarray(fn.token.state, np.uint64)) if found is None else found
        elif type(fn) is NoteStateOfStep:
            self.note_step(fn.states, self.argument(instruction.args[0]))
        else:
            before = self.before.setdefault(id(fn), [])
            k = self.argument(instruction.args[0])
            if k is None:
                self.states[GLOBAL] = before.pop()
            else:
                before.append(self.states[GLOBAL])
                if id(fn.states) in self.tokens:
                    self.states[GLOBAL] = self.tokens[id(fn.states)][k]

    def flow(self, flow: Flow, args: Sequence[Raw]) -> list[Raw]:
        """Return the results of a branch or a loop, which `flows.FlowLowering` knows."""
        raise NotImplementedError(flow.__name__)

    def note_step(self, states: dict[int, Any], step: Raw) -> None:
        """Note the state at a step of a loop; only the lowering of a loop's step can keep it."""
        raise NotImplementedError("the state of a generator at a step, outside of a loop")

    def function(self, instruction: Instruction) -> Callable[..., Any]:
        """Return the function of JAX's arrays that does what the instruction does."""
        found = function_by_name(instruction.name, instruction.fn)
        if found is None:
            raise NotImplementedError(f"JAX has no kernel {instruction.name!r}")
        return found

    def argument(self, value: Any) -> Any:
        """Return an argument with values in place of references, and JAX's dtypes in place of the library's."""
        kind = type(value)
        if kind is Ref:
            return self.values[value.id]
        if kind in _PLAIN:
            return value
        if kind is tuple or kind is list:
            parts = [self.argument(part) for part in value]
            return parts if kind is list else tuple(parts)
        backend = self.program.backend
        if isinstance(value, np.generic | jax.Array | np.ndarray):
            return value
        if backend is not None:
            try:
                return backend_dtype(backend, value)
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
        return value

    def _store(self, out: Any, found: Any) -> None:
        """Keep results under their numbers, with the dtypes that they had in the trace."""
        if out is None:
            return
        if isinstance(out, tuple):
            for number, part in zip(out, found, strict=True):
                self._store(number, part)
            return
        self.values[out] = as_spec(found, self.specs[out])


def on_host(value: Raw) -> np.ndarray[tuple[int, ...], np.dtype[Any]] | None:
    """Return the values of an array that the host can read at once, and that JAX may have anywhere; else None."""
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, jax.Array) or value.committed or next(iter(value.devices())).platform != "cpu":
        return None
    return np.asarray(value)


def is_uniform(value: object) -> bool:
    """Return whether an array of NumPy has several elements with the same bits, as one of zeros or ones has."""
    if not isinstance(value, np.ndarray) or value.size < 2 or value.dtype.kind not in "biuf":
        return False
    first = value.flat[0]
    if not np.all(value == first):
        return False
    return value.dtype.kind != "f" or first != 0 or bool(np.all(np.signbit(value) == np.signbit(first)))


def _constant(value: np.ndarray[tuple[int, ...], np.dtype[np.generic]] | np.generic) -> Any:
    """Return a constant as one of JAX: kernels update arrays by `.at`, which NumPy's do not have."""
    if isinstance(value, np.ndarray) and is_uniform(
        value
    ):  # XLA simplifies what is computed of one number, and reads no memory for it
        number: Any = value.flat[0]
        return jnp.full(value.shape, number, value.dtype)
    return jnp.asarray(value)


def as_spec(value: Raw, spec: Spec) -> Raw:
    """Return a value with the dtype of a spec.

    Raises:
        ValueError: it has another shape.
    """
    if spec.dtype is None:
        return value
    dtype = jax_dtype(spec.kind, spec.dtype)
    if not isinstance(value, jax.Array):
        value = jnp.asarray(value, dtype=dtype)
    elif value.dtype != dtype:
        value = value.astype(dtype)
    if value.shape != spec.shape:
        raise ValueError(f"JAX's kernel gives shape {value.shape} in place of {spec.shape}")
    return value


def function_by_name(name: str, fn: Any) -> Callable[..., Any] | None:
    """Return the function of JAX's arrays for a call of another library's; None where it is known by no name."""
    xp = jax_backend().xp
    kind: Any = type(fn)
    if kind is AsArray:
        inner = function_by_name(name, fn.function)
        return None if inner is None else lambda *args, **kwargs: jnp.asarray(inner(*args, **kwargs))
    if kind is JaxCall:  # of `tape_jax.call`, which is a function of JAX as it is
        call: Callable[..., Any] = fn
        return call
    if kind is Method:
        method: Callable[..., Any] = _METHODS.get(name, fn)
        return method
    # Not `getitem`: JAX's takes indices of small dtypes otherwise than other libraries.
    if fn is not operator.getitem and (kind is operator.attrgetter or getattr(fn, "__module__", None) == "_operator"):
        same: Callable[..., Any] = fn
        return same
    if name == "asarray":
        return lambda value, dtype=None, copy=None: jnp.asarray(value, dtype=dtype)
    if kind is partial and fn.args and isinstance(fn.args[0], Kernels):
        if DEFAULT_KERNELS.get(name) is fn.func and not name.endswith("_with_residuals"):
            return getattr(xp, name)  # type: ignore[no-any-return]
        return partial(fn.func, xp, *fn.args[1:], **fn.keywords)
    if name in _OWN:
        return _OWN[name]
    try:
        found = getattr(xp, name)
    except AttributeError:
        return None
    if not callable(found):
        return None
    function: Callable[..., Any] = found
    return function


_METHODS: dict[str, Callable[..., Any]] = {
    "astype": lambda array, dtype, **_: array.astype(dtype),
}
"""Methods of other libraries' arrays that take other arguments than those of JAX's."""


def _any(x: Raw, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    # A sum of numbers that are not negative is 0 where all of them are. On the CPU XLA has a library for sums, whereas
    # of `jax.numpy.any` it makes two loops, windows first, which take it several times as long to compile.
    return jnp.sum((x != 0).astype(jnp.float32), axis=axis, keepdims=keepdims) != 0


def _all(x: Raw, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    return jnp.sum((x == 0).astype(jnp.float32), axis=axis, keepdims=keepdims) == 0


@jax.custom_jvp
def masked(d: Raw, g: Raw) -> Any:
    """Return `d`, the product of a cotangent `g` and a number, with 0 where `g` is 0: there it is NaN or 0.

    Where JAX differentiates it, a zero cotangent has a derivative of its own, if the number is finite.
    """
    return jnp.where(g == 0, 0, d)


@masked.defjvp
def _masked_jvp(primals: Sequence[Raw], tangents: Sequence[Raw]) -> Any:
    d, g = primals
    return masked(d, g), jnp.where((g == 0) & jnp.isnan(d), 0, tangents[0])


def unmasked(d: Raw, g: Raw) -> Any:
    """Return `d`, which a rule has made of a cotangent `g`, with 0 in place of NaN if all of `g` is 0.

    On the CPU, whether it is is looked at only where there is a NaN, which one sum tells: infinities may add up to NaN,
    too. Elsewhere XLA would wait for the host to know the branch.
    """

    def replaced(d: Raw, g: Raw) -> Any:
        return jnp.where(jnp.isnan(d) & ~_any(g), 0, d)

    if g.size < UNMASKED_MIN_ELEMENTS or g.size < d.size or jax.default_backend() != "cpu":
        return replaced(d, g)
    return jax.lax.cond(jnp.isnan(jnp.sum(d)), replaced, lambda d, g: d, d, g)


_OWN: dict[str, Callable[..., Any]] = {
    "any": _any,
    "all": _all,
    INVERSE: sorting.inverse,
    UNSORTED: sorting.unsorted,
    MASKED: masked,
    UNMASKED: unmasked,
}
"""Functions that no backend has, or that XLA is given in other words: as fast to run, and faster to compile."""
