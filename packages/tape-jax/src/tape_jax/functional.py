"""`call`: a function of JAX as one op of Tape.

This module finds the arrays among the arguments, in any structure that JAX knows, and makes a flat function of them,
which :mod:`tape_jax.tasks` runs, records and differentiates.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from enum import Enum
from numbers import Number
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from tape_compile.extend import TracedArray
from tape_core import Tensor, Variable, asarray
from tape_core.backends import is_host_array
from tape_core.staging import current
from tape_core.support import OPEN_AXES, Lock, forbid_captures, innermost, new_serial, setting, wrap
from tape_core.tracing import STAGE
from tape_core.typing import PyTree

from tape_jax.tasks import NEEDS_VALUES, Fixed, Structure, Task, bind, is_leaf, jax_backend

Function = Callable[..., Any]
T = TypeVar("T")


def call(fn: Function, /, *args: Any, **kwargs: Any) -> Any:
    """Return `fn(*args, **kwargs)`, recorded as one op, which JAX differentiates to any order.

    `fn` is any function of JAX arrays, such as one that `jax.jit` or `equinox.filter_jit` made, or an equinox module.
    It gets JAX arrays in place of Tensors, Variables and NumPy's arrays, also inside of what JAX knows as a pytree. The
    arrays it returns come back as Tensors, in the same structure.

    A function of `jax.jit` or `equinox.filter_jit` is compiled together with its derivatives, once for all calls with
    such arrays. Any other one runs in each call, as JAX runs it. What `jax.vjp` keeps of it serves the backward pass.

    It works under every transformation: inside `vmap`, `jax.vmap` runs the function on all examples, forward mode takes
    `jax.jvp`. In a compiled function the call is one instruction, which JAX compiles: Python runs when it is traced.

    >>> import jax
    >>> import tape_core as tc, tape_jax
    >>> smooth = jax.jit(jax.nn.softplus)
    >>> x = tc.Variable([0.0, 1.0], backend="jax")
    >>> with tc.GradientTape() as tape:
    ...     y = tape_jax.call(smooth, x)
    >>> [f"{g:.4f}" for g in tape.gradient(y, x)]
    ['0.5000', '0.7311']

    Raises:
        TypeError: an argument is on another backend; `fn` reads a Variable or computes with a watched Tensor that is
            not among its arguments, so that its gradient would be lost; or it returns something that may hide an array.
    """
    if not callable(fn):
        raise TypeError(f"call: takes a function first, and its arguments after it; got {fn!r}")
    while type(fn) is functools.partial:  # what it holds is given in each call, and not a constant
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    if type(fn) is _PJIT:
        fn = _first_like(fn)
    label = f"call({getattr(fn, '__name__', None) or type(fn).__name__})"
    leaves, structure = jax.tree_util.tree_flatten((fn, args, kwargs), is_leaf=is_leaf)
    stage = current()
    is_jitted = _is_jitted(fn)
    # In a compiled function a number is what it was when that was traced.
    numbers = [k for k, leaf in enumerate(leaves) if _is_number(leaf)] if is_jitted else []
    # A jitted function is a leaf; what equinox made of one is a part of the structure.
    key = structure, fn if type(fn) is _PJIT else None
    if stage is not None or not numbers or key in _with_fixed_numbers:
        return _call(label, leaves, structure, (), is_jitted=is_jitted)
    try:
        return _call(label, list(leaves), structure, numbers, is_jitted=True)
    except (*NEEDS_VALUES, ValueError, OverflowError):
        # A number may be a static argument, or decide the shape of something.
        found = _call(label, leaves, structure, (), is_jitted=True)
        _remember(_with_fixed_numbers, key, True)
        return found


def _call(label: str, leaves: list[Any], structure: Structure, numbers: Sequence[int], *, is_jitted: bool) -> Any:
    backend = jax_backend()
    tensors: list[Tensor] = []
    places: list[int] = []
    keys: list[tuple[int, Any]] = []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            _check_backend(leaf, label, structure, k)
            found = leaf._read() if isinstance(leaf, Variable) else leaf
        elif isinstance(leaf, jax.Array):
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                keys.append((k, jax.random.key_impl(leaf)))
                leaf = jax.random.key_data(leaf)
            found = wrap(leaf, backend)
        elif is_host_array(leaf):
            found = asarray(leaf, backend=backend)
        elif k in numbers:
            found = wrap(jnp.asarray(leaf), backend)  # weak, as a number of Python's is
        else:
            continue
        tensors.append(found)
        places.append(k)
        leaves[k] = None  # a task may live as long as a record: it holds no value of this call
    task = _task(_Call(label, leaves, structure, places, keys), is_jitted=is_jitted)
    outs, shape = bind(task, tensors)
    return shape.value.result(outs)


def _is_jitted(fn: Function) -> bool:
    """Return whether JAX compiles a function: Python runs once for all calls with such arrays, as its user knows."""
    return type(fn) is _PJIT or (type(fn).__module__ == "equinox._jit" and type(fn).__name__ == "_JitWrapper")


_PJIT = type(jax.jit(lambda: None))


_jitted: OrderedDict[Hashable, Function] = OrderedDict()


def _first_like(fn: Function) -> Function:
    """Return the first jitted function that was made of the same one in the same way; itself if there is none.

    `jax.jit(f)` in each step is another object each time, of which JAX compiles one.
    """
    if fn in _known:
        return _known[fn] or fn
    info: Any = getattr(fn, "_jit_info", ())
    options = [value for name, value in zip(getattr(info, "_fields", ()), info, strict=False) if name not in _NAMES]
    found = fn
    if options:  # else nothing is known of them, and each function is one of its own
        with suppress(TypeError):  # an option may have no hash
            found = _remember(_jitted, (getattr(fn, "__wrapped__", fn), *options), fn)
    _known[fn] = None if found is fn else found
    return found


_known: WeakKeyDictionary[Function, Function | None] = WeakKeyDictionary()
"""For each jitted function the first one that is like it; None for that itself, which must not be kept alive here."""

_NAMES = ("fun_sourceinfo", "fun_signature")


def _is_number(leaf: object) -> bool:
    """Return whether an argument is a number that may be another one in the next call; truth values rather decide."""
    return type(leaf) in (int, float, complex) or isinstance(leaf, np.number)


def _check_backend(tensor: Tensor, label: str, structure: Structure, k: int) -> None:
    array = innermost(tensor._array)[0]
    if not isinstance(array.value if type(array) is TracedArray else array, jax.Array):
        raise TypeError(
            f"{label}: argument {_argument_name(structure, k)} is on backend {tensor.backend.name!r}; a function of "
            f"JAX takes Tensors on 'jax': convert it with tape_core.asarray(x, backend='jax')"
        )


def _argument_name(structure: Structure, k: int) -> str:
    """Return the name of an argument for messages: `0`, `weights`, `1['x']`."""
    marked = jax.tree_util.tree_unflatten(structure, range(structure.num_leaves))
    path = next(path for path, leaf in jax.tree_util.tree_flatten_with_path(marked)[0] if leaf == k)
    rest = jax.tree_util.keystr(path[2:])
    first = getattr(path[1], "key", getattr(path[1], "idx", path[1])) if len(path) > 1 else "the function"
    return f"{first}{rest}"


# -- tasks


_KEPT = 256
_tasks: OrderedDict[Hashable, Task] = OrderedDict()
_lock = Lock()
_with_fixed_numbers: OrderedDict[Hashable, bool] = OrderedDict()
"""Calls of functions that need the values of Python's numbers."""


def _remember(known: OrderedDict[Hashable, T], key: Hashable, value: T) -> T:
    """Keep a value for a key, and drop that which nobody has asked for longest."""
    with _lock.now:
        found = known.setdefault(key, value)
        known.move_to_end(key)
        if len(known) > _KEPT:
            known.popitem(last=False)
    return found


def _task(one: _Call, *, is_jitted: bool) -> Task:
    """Return the task of a call; that of an earlier one, with all that JAX has compiled for it, where it may be."""
    if not is_jitted:
        # A plain function may refer to what changes, so another call of it is another function. In a compiled function
        # its Python code runs while that is traced, as all code there.
        return Task(one.run, one.label, is_jitted=current() is not None)
    key = one.structure, tuple(one.places), tuple(one.keys), tuple(map(_Known, one.leaves))
    try:
        found = _tasks.get(key)
    except TypeError:  # an argument has no hash
        return Task(one.run, one.label, is_jitted=False)
    return _remember(_tasks, key, found or Task(one.run, one.label, is_jitted=True))


class _Known:
    """An argument that is no array, in the key of a call: 1, 1.0 and True are three."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Known)
        return type(self.value) is type(other.value) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)


class _Call:
    """A call of a function as a function of the arrays among its arguments."""

    __slots__ = ("keys", "label", "leaves", "places", "structure")

    def __init__(
        self,
        label: str,
        leaves: Sequence[Any],
        structure: Structure,
        places: Sequence[int],
        keys: Sequence[tuple[int, Any]],
    ) -> None:
        self.label = label
        self.leaves = leaves
        self.structure = structure
        self.places = places
        self.keys = keys

    def run(self, *arrays: Any) -> Any:
        """Return the arrays of the result, and its shape."""
        leaves = list(self.leaves)
        for k, array in zip(self.places, arrays, strict=True):
            leaves[k] = array
        for k, implementation in self.keys:
            leaves[k] = jax.random.wrap_key_data(leaves[k], impl=implementation)
        fn, args, kwargs = jax.tree_util.tree_unflatten(self.structure, leaves)
        before = new_serial()
        # What it computes with Tape, it computes on arrays of JAX: JAX differentiates it, and no tape records.
        with forbid_captures(self.label) as readers, setting(STAGE, None), setting(OPEN_AXES, ()):
            out = fn(*args, **kwargs)
        if read := [v for v in readers.found if v._serial < before]:
            raise TypeError(
                f"{self.label} reads {_names(read)}, which is no argument, so it would be a constant without a "
                f"gradient; give it as an argument"
            )
        return self._flattened(out)

    def _flattened(self, out: PyTree) -> Any:
        leaves, structure = jax.tree_util.tree_flatten(out)
        arrays: list[Any] = []
        plain: dict[int, Any] = {}
        keys: dict[int, Any] = {}
        for k, leaf in enumerate(leaves):
            if isinstance(leaf, jax.Array):
                if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                    keys[k] = jax.random.key_impl(leaf)
                    leaf = jax.random.key_data(leaf)
                arrays.append(leaf)
            elif is_host_array(leaf):
                arrays.append(jnp.asarray(leaf))
            elif isinstance(leaf, _PLAIN) or callable(leaf):
                plain[k] = leaf
            else:
                place = jax.tree_util.keystr(jax.tree_util.tree_flatten_with_path(out)[0][k][0])
                raise TypeError(
                    f"{self.label}: its result{place} is a {type(leaf).__name__}; let it return arrays, in structures "
                    f"that JAX knows; others would lose their gradient"
                )
        return arrays, Fixed(_Shape(self.label, structure, plain, keys))


# Results that cannot hide an array, and are returned as they are.
_PLAIN = (bool, int, float, complex, str, bytes, jnp.dtype, jax.Device, slice, range, Number, Enum)


class _Shape:
    """The structure of a result, and its leaves that are no arrays, by their places."""

    __slots__ = ("keys", "label", "plain", "structure")

    def __init__(self, label: str, structure: Structure, plain: dict[int, Any], keys: dict[int, Any]) -> None:
        self.label = label
        self.structure = structure
        self.plain = plain
        self.keys = keys

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """Return the result with Tensors in the place of arrays; keys of random numbers stay JAX's."""
        each = iter(tensors)
        leaves = [self.plain[k] if k in self.plain else next(each) for k in range(self.structure.num_leaves)]
        for k, implementation in self.keys.items():
            array = leaves[k]._array
            if not isinstance(array, jax.Array):
                raise TypeError(
                    f"{self.label} returns a key of random numbers, which inside vmap and compiled functions has no "
                    f"Tensor; let it return jax.random.key_data(key)"
                )
            leaves[k] = jax.random.wrap_key_data(array, impl=implementation)
        return jax.tree_util.tree_unflatten(self.structure, leaves)


def _names(variables: Sequence[Variable]) -> str:
    return ", ".join([repr(v.name) if v.name else f"a Variable of shape {v.shape}" for v in variables])
