"""Hostile arguments, as text: for every op what nobody should give it, and the ways in which it must be refused alike.

A program is one call, which an op's sample gives, with one or two of its arguments replaced. What the call does as it is
called, eagerly, is what it must do compiled, in tapes, under vmap and exported: the same bits, or the same refusal. So there
is nothing to be said here of what is right for any op; only that a refusal is one, in the user's terms, and no internal error.
"""

# ruff: noqa: E501 - a call is one line
from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tape_core as tc
from hypothesis import strategies as st
from tape_core.backends.errors import AxisError, BatchError
from tape_core.engine.indexed_slices import dense
from tape_core.extend import Draw, Op, registry
from tape_core.staging import TracingError

SECONDS = 30
"""What a call may take: arguments that are refused must not be worked on for ever."""


@dataclass(frozen=True)
class Call:
    """A call that is right: an expression with `{}` for each value, and the values: NumPy arrays and Python values."""

    text: str
    values: tuple[Any, ...]
    op: str


def _call(text: str, *values: Any) -> Call:
    return Call(text, values, text.partition("(")[0])


_RNG = np.random.default_rng(0)
X = _RNG.uniform(0.2, 2, (2, 3))
Y = _RNG.uniform(-2, 2, (2, 3))
V = np.asarray([0.5, 1.0, 2.5])
M = X @ X.T + np.eye(2)
IMAGE = _RNG.uniform(-2, 2, (2, 5, 4))
IDS = np.asarray([1, 0])
B = np.asarray([[True, False, True], [False, True, False]])

BY_FACE = {
    "astype": "tc.astype({x}, {dtype})",
    "getitem": "{x}[{key}]",
    "setitem": "tc.at({x})[{key}].set({values})",
    "scatter_add": "tc.at({x})[{key}].add({values})",
    "scatter_multiply": "tc.at({x})[{key}].multiply({values})",
    "scatter_min": "tc.at({x})[{key}].min({values})",
    "scatter_max": "tc.at({x})[{key}].max({values})",
    "einsum": "tc.einsum({expression}, *{arrays})",
    "attend": "tc.scaled_dot_product_attention(*{arrays}, is_causal={is_causal}, scale={scale})",
}
"""How ops are called that have another name than their own, or none."""

INTERNAL = {
    "add_rows", "arange_beside", "band", "cofactors", "conv_weight_vjp", "cross_entropy_vjp", "csr_transposed_matmul",
    "curvature_of_det", "drop", "expm_derivative", "linear_recurrence", "lu_solve", "max_pool_jvp", "max_pool_vjp", "normalize", "places", "scatter",
    "search_in_order", "to_device", "zeros_beside",
}  # fmt: skip
"""Ops that users do not call: what they are part of is among `MORE`."""

MORE = [
    _call("tc.searchsorted({}, {}, side={})", V, X, "left"), _call("tc.searchsorted({}, {}, sorter={})", V, X, np.asarray([0, 1, 2])),
    _call("tc.split({}, {}, axis={})", X, 3, 1), _call("tc.split({}, {}, axis={})", X, (1, 2), 1), _call("tc.moveaxis({}, {}, {})", X, 0, 1),
    _call("tc.diff({}, axis={}, n={})", X, 1, 1), _call("tc.tril({}, k={})", X, 0), _call("tc.outer({}, {})", V, V), _call("tc.kron({}, {})", X, M),
    _call("tc.tensordot({}, {}, axes={})", X, V, 1), _call("tc.tensordot({}, {}, axes={})", X, Y, ((0, 1), (0, 1))), _call("tc.transpose({}, {})", X, (1, 0)),
    _call("tc.meshgrid({}, {}, indexing={})", V, V, "xy"), _call("tc.broadcast_arrays({}, {})", X, V), _call("tc.linspace({}, {}, {})", V, V, 3),
    _call("tc.segment_sum({}, {}, {})", X, IDS, 2), _call("tc.segment_max({}, {}, {})", X, IDS, 3), _call("tc.segment_mean({}, {}, num_segments={})", X, IDS, 2),
    _call("tc.segment_prod({}, {}, {})", X, IDS, 2), _call("tc.layer_norm({}, {}, axis={})", X, V, -1), _call("tc.batch_norm({}, {}, {})", X, V, V), _call("tc.group_norm({}, groups={})", X, 3), _call("tc.instance_norm({}, layout={})", IMAGE, "channels_last"), _call("tc.glu({}, axis={})", IMAGE, -1),
    _call("tc.linalg.matrix_power({}, {})", M, 3), _call("tc.linalg.matrix_norm({}, ord={})", M, "fro"), _call("tc.linalg.matrix_norm({}, ord={})", M, 1),
    _call("tc.linalg.multi_dot([{}, {}, {}])", X.T, M, X), _call("tc.linalg.cho_solve({}, {}, upper={})", M, IDS * 1.0, False),
    _call("tc.linalg.lu_solve(tc.linalg.lu_factor({}), {}, trans={})", M, IDS * 1.0, 0), _call("tc.linalg.lu_solve(({}, {}), {})", M, IDS[::-1], IDS * 1.0),
    _call("tc.at({})[{}].divide({})", X, IDS, 2.0), _call("tc.at({})[{}].power({})", X, IDS, 2.0), _call("tc.at({})[{}].subtract({})", X, IDS, V), _call("tc.at({})[{}].get()", X, IDS),
    _call("{}[{}, {}]", X, IDS, 1), _call("{}[:, {}]", X, np.asarray([0, 2])), _call("{}[{}]", X, B), _call("{}[{}, {}]", IMAGE, IDS, IDS), _call("{}[..., {}:{}]", X, 0, 2),
    _call("{} ** {}", X, 2), _call("{} ** {}", IDS, 2), _call("{} // {}", X, 2.0), _call("{} % {}", IDS + 5, IDS + 1), _call("{} << {}", IDS, 1), _call("{} @ {}", X, V), _call("-{}", X), _call("~{}", IDS),
    _call("{} & {}", B, True), _call("abs({})", Y), _call("{} == {}", X, V), _call("{}.T", X), _call("{}.mT", X),
    _call("tc.zeros({}, dtype={})", (2, 3), "float32"), _call("tc.full({}, {})", (2, 3), 1.5), _call("tc.arange({}, {}, {})", 0, 5, 2), _call("tc.eye({}, {}, k={})", 3, 2, 0), _call("tc.full_like({}, {})", X, 2),
    _call("tc.asarray({}, dtype={})", X, "float32"), _call("tc.special.gammainc({}, {})", X, X), _call("tc.special.multigammaln({}, {})", X + 3, 2), _call("tc.special.polygamma({}, {})", 1, X),
    _call("tc.special.jn({}, {})", 1, X), _call("tc.stats.norm.logpdf({}, {}, {})", X, 0.0, 1.0), _call("tc.stats.gamma.pdf({}, {})", X, 2.0),
    _call("tc.stats.poisson.logpmf({}, {})", IDS, 2.0), _call("tc.stats.binom.pmf({}, {}, {})", IDS, 5, 0.3), _call("tc.stats.multivariate_normal.logpdf({}, {}, {})", IDS * 1.0, IDS * 0.5, M), _call("tc.stats.dirichlet.logpdf({}, {})", V / 4, V),
    _call("nn.losses.sparse_categorical_crossentropy({}, {})", IDS, X), _call("nn.losses.categorical_crossentropy({}, {})", np.eye(3)[:2], X), _call("nn.losses.binary_crossentropy({}, {})", X / 3, X / 3),
    _call("nn.losses.mean_squared_error({}, {})", X, Y), _call("nn.losses.kl_divergence({}, {})", X / 3, X / 3), _call("nn.losses.SparseCategoricalCrossentropy(from_logits={})({}, {})", True, IDS, X),
    _call("tc.map(lambda i: {}[i], {})", X, IDS), _call("tc.scan(lambda c, i: (c, {}[i]), 0.0, {}, reverse={})", X, IDS, False),
    _call("tc.vmap(lambda i: tc.take({}, i, axis={}))({})", X, 0, IDS), _call("tc.checkpoint(lambda a: tc.linalg.inv(a))({})", M), _call("tc.grad(lambda a: tc.sum(tc.linalg.cholesky(a)))({})", M),
    _call("tc.stop_gradient({})", X), _call("tc.dropout({}, {}, training=False)", X, 0.5), _call("tc.nextafter({}, {})", X, Y), _call("tc.hypot({}, {})", X, Y),
]  # fmt: skip
"""Calls of functions that are no ops, and of operators and methods."""


def _of_op(op: Op) -> Iterator[Call]:
    """What an op's samples say of how it is called."""
    path = BY_FACE.get(op.name) or _public(op.name)
    if op.name in INTERNAL or op.samples is None or path is None:
        return
    for sample in op.samples(Draw(1)):
        values: list[Any] = []
        if op.name in BY_FACE:
            bound = op.signature.bind(*sample.args, **sample.kwargs)
            bound.apply_defaults()
            given: dict[str, Any] = {**bound.arguments, **bound.arguments.get("kwargs", {})}
            text = re.sub(r"\{(\w+)\}", lambda hole: _held(given[hole[1]], values), path)  # noqa: B023
        else:
            parts = [_held(a, values) for a in sample.args]
            parts += [f"{k}={_held(v, values)}" for k, v in sample.kwargs.items()]
            text = f"{path}({', '.join(parts)})"
        yield Call(text, tuple(values), op.name)


def _public(name: str) -> str | None:
    for space in ("tc", "tc.linalg", "tc.fft", "tc.special"):
        module = tc
        for part in space.split(".")[1:]:
            module = getattr(module, part)
        if type(getattr(getattr(module, name, None), "op", None)) is Op:
            return f"{space}.{name}"
    return None


def _held(value: Any, values: list[Any]) -> str:
    """The text of an argument, with holes for its arrays, and one for all that is no array."""
    if isinstance(value, tc.Tensor | np.ndarray):
        values.append(value.numpy() if isinstance(value, tc.Tensor) else value)
        return "{}"
    if type(value) in (list, tuple) and _has_arrays(value):
        parts = [_held(part, values) for part in value]
        return f"[{', '.join(parts)}]" if type(value) is list else f"({', '.join(parts)},)"
    values.append(value)
    return "{}"


def _has_arrays(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_has_arrays, value))
    return isinstance(value, tc.Tensor | np.ndarray)


@cache
def calls() -> dict[str, list[Call]]:
    """The calls that are right, by op or function."""
    found: dict[str, list[Call]] = {}
    with tc.use_backend("numpy"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in [*(call for op in registry.values() for call in _of_op(op)), *MORE]:
            found.setdefault(call.op, []).append(call)
    return found


# -- what is put in the place of arguments


def _at_one(value: str) -> Callable[[Any, Any], Any]:
    """The array with one of its elements replaced, if its dtype has such."""

    def changed(a: Any, pick: Any) -> Any:
        a = a.copy()
        if a.size:
            limits = np.iinfo(a.dtype) if a.dtype.kind in "iu" else np.finfo(a.dtype) if a.dtype.kind in "fc" else None
            new = {
                "least": lambda: limits.min,
                "largest": lambda: limits.max,
                "subnormal": lambda: limits.smallest_subnormal,
            }  # type: ignore[union-attr]
            a.reshape(-1)[pick(a.size)] = (
                new[value]() if value in new else complex(value) if a.dtype.kind == "c" else float(value)
            )
        return a

    return changed


def _singular(a: Any, pick: Any) -> Any:
    a = a.copy()
    if a.ndim >= 2 and a.shape[-2] > 1:
        a[..., 0, :] = a[..., 1, :]
    return a


def _filled(value: float) -> Callable[[Any, Any], Any]:
    return lambda a, pick: np.full_like(a, value)


VALUES: dict[str, Callable[[Any, Any], Any]] = {
    **{f"one {v}": _at_one(v) for v in ("nan", "inf", "-inf", "-0.0", "0", "-1", "99", "-99", "least", "largest", "subnormal", "0.5", "1e-30")},
    **{f"all {v}": _filled(v) for v in (math.nan, math.inf, 0.0, -0.0, 1.0, -1.0, 1e-310)},
    "negated": lambda a, pick: ~a if a.dtype.kind == "b" else -a, "singular": _singular, "positive": lambda a, pick: np.abs(a), "rounded": lambda a, pick: np.round(a),
    "the same rows": lambda a, pick: np.broadcast_to(a[:1], a.shape).copy() if a.ndim else a, "not symmetric": lambda a, pick: np.triu(a) * 2 if a.ndim > 1 else a,
    "backwards": lambda a, pick: np.flip(a), "the same everywhere": lambda a, pick: np.full_like(a, a.reshape(-1)[0]) if a.size else a,
}  # fmt: skip
"""Other values: shape and dtype stay, so that a compiled function has no reason to look again."""

SHAPES: dict[str, str] = {
    "none": "{}[:0]", "none in the last axis": "{}[..., :0]", "0-d": "{}.reshape(-1)[0]", "one more": "{}[None]", "one row": "{}[:1]", "one column": "{}[..., :1]",
    "cut": "{}[..., :-1]", "longer": "np.concatenate([{0}, {0}])", "transposed": "{}.T", "flat": "{}.reshape(-1)", "many axes": "{}[(None,) * 30]", "repeated": "np.resize({}, (70, 7))",
}  # fmt: skip

DTYPES: dict[str, str] = {
    name: "{}.astype('" + name + "')" for name in ("float32", "float16", "int64", "int8", "uint8", "uint64", "bool", "complex64", "complex128", "object", "U4", "M8[s]", "longdouble")
}  # fmt: skip

LAYOUTS: dict[str, str] = {
    "Fortran order": "np.asfortranarray({})", "every second": "np.repeat({}, 2, -1)[..., ::2]", "negative strides": "np.flip(np.flip({}).copy())", "byte-swapped": "swapped({})",
    "read-only": "read_only({})", "unaligned": "unaligned({})", "broadcast": "np.broadcast_to({0}[:1], {0}.shape)", "a column of a table": "np.stack([{0}, {0}], -1)[..., 0]",
}  # fmt: skip

OBJECTS = [
    "None", "'x'", "''", "1.5", "1j", "nan", "inf", "-inf", "0", "1", "-1", "99", "-99", "2**70", "-2**70", "10**400", "[]", "()", "{}", "[1, 2]", "[[1, 2], [3]]", "['a']", "(0,)", "(0, 0)", "(-1,)", "(99,)",
    "(-1, -1)", "(1.5,)", "(None,)", "('x',)", "[0]", "object", "np.float32(1)", "np.int64(1)", "np.int64(-1)", "np.asarray(1)", "np.asarray([0, 1])", "tc.asarray(1)", "tc.asarray(0.5)",
    "slice(None)", "...", "tc.float32", "'float32'", "'complex64'", "'int64'", "'bool'", "int", "b'x'", "range(2)", "{1, 2}", "np.ma.masked_array([1.0, 2.0], [True, False])", "0.0", "-0.0", "-1.5", "1e-320", "(2, -3)", "(2**40, 2**40)", "((0, 1), (0,))",
]  # fmt: skip
"""What is no array, and given as it stands; and other numbers, axes and shapes."""


KINDS = ["values"] * 6 + ["shape"] * 4 + ["dtype"] * 2 + ["layout", "raw", "object", "object"]
"""How arrays are replaced, and how often."""


@dataclass(frozen=True)
class Program:
    """A call with hostile arguments.

    Attributes:
        text: the call, of x0, x1 and so on, which are Tensors.
        given: those, as text; good: what the compiled function is traced with, of the same shapes and dtypes.
    """

    text: str
    given: tuple[str, ...]
    good: tuple[str, ...]
    way: str
    backend: str

    @property
    def script(self) -> str:
        names = ", ".join([f"x{k}" for k in range(len(self.given))])
        given, good = ["".join([f"\n        {text}," for text in texts]) for texts in (self.given, self.good)]
        return SCRIPT.format(backend=self.backend, given=given, good=good, names=names, call=self.text, way=self.way)


def _text(a: Any) -> str:
    if isinstance(a, np.ndarray | np.generic):
        a = np.asarray(a)
        if not a.size:
            return f"np.zeros({a.shape}, {str(a.dtype)!r})"
        return f"np.asarray({a.tolist()}, {str(a.dtype)!r})"
    if type(a) is tuple:
        return f"({', '.join(map(_text, a))}{',' * (len(a) == 1)})"
    if type(a) is list:
        return f"[{', '.join(map(_text, a))}]"
    return "..." if a is ... else repr(a)


@st.composite
def programs(draw: Any, backend: str) -> Program:
    """Programs, as hypothesis draws them."""
    return drawn(lambda n: int(draw(st.integers(0, n - 1))), backend)


def drawn(pick: Callable[[int], int], backend: str) -> Program:
    """A call of some op with one or two hostile arguments, and the way in which it is called.

    Args:
        pick: gives a number below the one that it is given.
    """

    def choice(values: Any) -> Any:
        return values[pick(len(values))]

    known = calls()
    # Functions of PyTorch give Tensors among their parameters to Tape.
    objects = OBJECTS if backend == "numpy" else [text for text in OBJECTS if not text.startswith("tc.asarray")]
    call = choice(known[choice(sorted(known))])
    way = choice(sorted(WAYS))
    changed = {pick(len(call.values)) for _ in range(choice([1, 1, 1, 2]))} if call.values else set()
    given: list[str] = []
    good: list[str] = []
    parts: list[str] = []
    for k, value in enumerate(call.values):
        if not isinstance(value, np.ndarray):
            # Of a number in a formula NumPy takes all that broadcasts.
            fitting = (
                objects if type(value) is not float else [t for t in objects if not t.startswith(("(", "[", "np."))]
            )
            parts.append(choice(fitting) if k in changed else _text(value))
            continue
        # In the place of x in `x[i]`, `x.T` and `x + y` there stands a Tensor, or else it is no call of Tape's.
        after = call.text.split("{}")[k + 1]
        kinds = KINDS[
            : -3 if after.startswith(("[", ".")) or (not call.text.startswith(("tc.", "nn.")) and not k) else None
        ]
        kind = choice(kinds) if k in changed else "right"
        if kind == "object":
            parts.append(choice(objects))
            continue
        right = _text(value)
        now = right
        if kind == "values":
            with (
                np.errstate(all="ignore"),
                warnings.catch_warnings(),
                contextlib.suppress(ValueError, OverflowError, TypeError, AttributeError),
            ):
                warnings.simplefilter("ignore")
                now = _text(VALUES[choice(sorted(VALUES))](value, pick))
        elif kind in ("shape", "dtype", "layout"):
            table = {"shape": SHAPES, "dtype": DTYPES, "layout": LAYOUTS}[kind]
            right = now = table[choice(sorted(table))].format(right)
        elif kind == "raw":
            parts.append(right)
            continue
        parts.append(f"x{len(given)}")
        given.append(now)
        good.append(right)
    return Program(call.text.format(*parts), tuple(given), tuple(good), way, backend)


# -- how it is called

SCRIPT = """\
import numpy as np, tape_core as tc, tape_nn as nn
from numpy import inf, nan
from tape_fuzz import hostile
from tape_fuzz.hostile import read_only, swapped, unaligned

def given():
    return [tc.asarray(value, backend="{backend}") for value in [{given}]]

def good():
    return [tc.asarray(value, backend="{backend}") for value in [{good}]]

def call({names}):
    return {call}

with tc.use_backend("{backend}"):
    hostile.WAYS["{way}"](call, given, good)
"""

Function = Callable[..., Any]
Given = Callable[[], list[Any]]

REFUSALS = (ValueError, TypeError, IndexError, OverflowError, MemoryError, NotImplementedError)
"""What arguments are refused with; each may be of a kind of its own."""

OURS = re.compile(
    r"has no attribute|TracedArray|TracedNumber|BatchedArray|\bRef\(|bug in Tape|has returned|StopIteration"
)
"""What is said of Tape's own parts and not of the arguments."""

SHAPED_BY_VALUES = re.compile(
    r"Python needs (the shape of the result of|the values? of a traced (Tensor|array|number))"
    r"|the shape of the result cannot depend on"
)


def arrays(found: Any) -> list[Any]:
    """The leaves of a result, where no None is left out."""
    if isinstance(found, tc.IndexedSlices):
        return [found.values, found.indices]
    if isinstance(found, tuple | list):
        return [leaf for part in found for leaf in arrays(part)]
    return [found]


def outcome(function: Function, given: list[Any]) -> Any:
    """What a call gives, as NumPy arrays, or the error that it raises."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), in_time():
            warnings.simplefilter("ignore")
            return [x.numpy() if isinstance(x, tc.Tensor) else x for x in arrays(function(*given))]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        error.__traceback__ = None
        return error


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """A context that ends after some seconds."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def late(number: int, frame: Any) -> None:
        raise RuntimeError(f"it takes longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def expect_refusal(error: Exception, what: str) -> None:
    """An error is one of those that arguments are refused with, and speaks of them."""
    kind = type(error)
    assert isinstance(error, REFUSALS), f"{what}: an internal error, {kind.__name__}: {error}"
    assert str(error), f"{what}: {kind.__name__} says nothing"
    assert not OURS.search(str(error)), f"{what}: an internal error, {kind.__name__}: {error}"


def expect_same(found: Any, expected: Any, what: str, *, message: bool | None = True) -> None:
    """The same bits, NaN being NaN; or the same refusal: its class and with `message` its text; with None any."""
    if isinstance(found, TracingError) and SHAPED_BY_VALUES.search(str(found)):
        return  # what is compiled refuses good arguments, too
    if isinstance(found, Exception):
        expect_refusal(found, what)
        assert isinstance(expected, Exception), f"{what}: refused in this way alone, {type(found).__name__}: {found}"
        same = (
            isinstance(found, type(expected))
            if not message or type(expected) is TypeError
            else type(found) is type(expected)
        )
        assert same or message is None, (
            f"{what}: {type(found).__name__}: {found}\nnot {type(expected).__name__}: {expected}"
        )
        exact = message and not isinstance(found, TypeError) and "inside vmap" not in str(expected)
        assert not exact or str(found) == str(expected), f"{what}: it says\n{found}\nnot\n{expected}"
        return
    assert not isinstance(expected, Exception), (
        f"{what}: not refused, as eagerly: {type(expected).__name__}: {expected}"
    )
    assert len(found) == len(expected), f"{what}: {len(found)} results, not {len(expected)}"
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if not isinstance(b, np.ndarray):
            assert repr(a) == repr(b), f"{what}: result {k} is {a}, not {b}"
            continue
        assert _kind(a) == _kind(b), f"{what}: result {k} is {_kind(a)}, not {_kind(b)}"
        if a.dtype.kind in "fc":
            a, b = _one_nan(a), _one_nan(b)
        assert a.tobytes() == b.tobytes(), f"{what}: result {k} differs:\n{a}\nnot\n{b}"


def _kind(a: Any) -> str:
    return f"{a.dtype}{list(a.shape)}"


def _one_nan(a: Any) -> Any:
    if a.dtype.kind == "c":
        parts = np.ascontiguousarray(a).reshape(-1).view(a.real.dtype)
        return np.where(np.isnan(parts), np.nan, parts)
    return np.where(np.isnan(a), np.nan, a)


def expect_near(found: Any, expected: Any, what: str) -> None:
    """The same refusal, whatever it says; or the same up to rounding."""
    if isinstance(found, Exception) or isinstance(expected, Exception):
        expect_same(found, expected, what, message=False)
        return
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert _kind(a) == _kind(b), f"{what}: result {k} is {_kind(a)}, not {_kind(b)}"
        with np.errstate(all="ignore"):
            finite = np.isfinite(a) & np.isfinite(b)
            scale = np.max(np.abs(b[finite].astype(complex)), initial=1.0) * (
                1e-4 if a.dtype.itemsize < 8 or a.dtype == np.complex64 else 1e-9
            )
            same = np.where(
                finite,
                np.abs(np.where(finite, a, 0).astype(complex) - np.where(finite, b, 0)) <= scale,
                ~np.isfinite(a) & ~np.isfinite(b),
            )
        assert np.all(same), f"{what}: result {k} differs:\n{a}\nnot\n{b}"


def derived(call: Function) -> Function:
    """The gradient of a call for all that has one, and nothing else."""

    def slopes(*given: Any) -> Any:
        sources = [x for x in given if x.dtype.inexact]
        with tc.GradientTape() as tape:
            tape.watch(sources)
            targets = [y for y in arrays(call(*given)) if isinstance(y, tc.Tensor) and y.dtype.inexact]
        if not targets or not sources:
            return ()
        return [g if g is None else dense(g) for g in tape.gradient(targets, sources)]

    return slopes


def eager(call: Function, given: Given, good: Given) -> None:
    """Twice, with the same arguments, which are not written to."""
    try:
        values = given()
    except REFUSALS as error:
        expect_refusal(error, "asarray")
        return
    before = [x.numpy().tobytes() for x in values]
    expected = outcome(call, values)
    if isinstance(expected, Exception):
        expect_refusal(expected, "eager")
    assert [x.numpy().tobytes() for x in values] == before, "an argument was written to"
    expect_same(outcome(call, given()), expected, "the second call")


def compiled(call: Function, given: Given, good: Given, *, message: bool | None = True) -> None:
    """Traced with these arguments, and with good ones, what is traced is the same as what is eager."""
    try:
        given()
    except REFUSALS:
        return
    expected = outcome(call, given())
    traced = tc.function(call, retrace="allow")
    outcome(traced, good())
    outcome(traced, good())
    for number in (3, 4):
        expect_same(outcome(traced, given()), expected, f"traced with good arguments, call {number}", message=message)
    traced = tc.function(call, retrace="allow")
    for number in (1, 2, 3):
        expect_same(outcome(traced, given()), expected, f"call {number}", message=message)


def compiled_gradient(call: Function, given: Given, good: Given) -> None:
    """The gradient alone, of which compiled code leaves out what it does not need."""
    try:
        says_so = isinstance(outcome(call, given()), Exception)
    except REFUSALS:
        return
    # What a rule refuses has no op's name in an eager sweep.
    compiled(derived(call), given, good, message=says_so)


def unused(call: Function, given: Given, good: Given) -> None:
    """What the call gives is used for nothing."""

    def called(*xs: Any) -> Any:
        call(*xs)
        return [x if x.dtype.kind == "bool" else x + x for x in xs] or tc.ones(2)

    compiled(called, given, good)


def in_a_branch(call: Function, given: Given, good: Given) -> None:
    """In a branch of `cond`, of which the result is not used."""

    def called(*xs: Any) -> Any:
        return tc.cond(tc.asarray(True), lambda: (call(*xs), tc.asarray(1.0))[1], lambda: tc.asarray(2.0))

    compiled(
        called, given, good, message=None
    )  # a check that runs as plain Python comes later in a branch that is traced


def in_a_tape(call: Function, given: Given, good: Given) -> None:
    """The compiled call in a tape's block, where it is taken apart."""
    try:
        given()
    except REFUSALS:
        return
    says_so = isinstance(outcome(call, given()), Exception)
    expected = outcome(derived(call), given())
    for before in (good, given):
        traced = tc.function(call, retrace="allow")
        outcome(derived(traced), before())
        for number in (2, 3):
            expect_same(
                outcome(derived(traced), given()),
                expected,
                f"the compiled call in a tape, call {number}",
                message=says_so,
            )


def in_vmap(call: Function, given: Given, good: Given) -> None:
    """One of two examples, each of which is refused if one is."""
    try:
        one, other = good(), given()
        batch = [tc.stack([a, b]) for a, b in zip(one, other, strict=True)]
    except REFUSALS:
        return
    if not batch:
        return
    each = [outcome(call, values) for values in (one, other)]
    found = outcome(tc.vmap(call), batch)
    refused = [e for e in each if isinstance(e, Exception)]
    if isinstance(found, BatchError) and not refused:
        expect_refusal(found, "vmap")
        return
    if isinstance(found, AxisError) and not all(x.shape for x in other):
        return  # PyTorch gives an array without dimensions the axes of one with one
    if refused:  # which of several faults is found first is not the same for many examples
        if isinstance(found, Exception):
            expect_refusal(found, "vmap")
        else:  # batch rules take other kinds of values for parameters than some libraries
            assert isinstance(refused[0], TypeError), f"vmap: not refused, as for one example: {refused[0]}"
        return
    if all(isinstance(x, np.ndarray) for x in [*each[0], *each[1]]) and all(
        a.shape == b.shape for a, b in zip(*each, strict=True)
    ):
        expect_near(found, [np.stack(pair) for pair in zip(*each, strict=True)], "vmap")


def exported(call: Function, given: Given, good: Given) -> None:
    """The file refuses what the compiled function refuses, and gives its bits."""
    try:
        given()
    except REFUSALS:
        return
    traced = tc.function(call, retrace="allow")
    if isinstance(outcome(traced, good()), Exception):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "alone.py")
        try:
            traced.export(path)
        except REFUSALS as error:
            expect_refusal(error, "export")
            return
        alone: dict[str, Any] = {"__file__": path}
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), alone)
    name = getattr(call, "__name__", "call")
    expected = outcome(traced, given())
    copies = [x._array for x in given()]
    found = outcome(lambda *xs: [tc.asarray(y, copy=True) for y in arrays(alone[name](*xs))], copies)
    if not isinstance(expected, Exception):
        expected = [y for y in expected if isinstance(y, np.ndarray)]  # Python values are known beforehand
    elif type(found) is RuntimeError:
        return  # PyTorch's own: in the file is nothing of Tape's, which would say it in the terms of the op
    expect_same(found, expected, "exported", message=False)


WAYS: dict[str, Callable[[Function, Given, Given], None]] = {
    "eager": eager,
    "compiled": compiled,
    "compiled gradient": compiled_gradient,
    "unused": unused,
    "in a branch": in_a_branch,
    "in a tape": in_a_tape,
    "vmap": in_vmap,
    "exported": exported,
}
"""The ways in which a call is made."""


def read_only(a: Any) -> Any:
    """The array, which cannot be written to."""
    a.flags.writeable = False
    return a


def swapped(a: Any) -> Any:
    """The array in the other order of bytes."""
    return a.astype(a.dtype.newbyteorder())


def unaligned(a: Any) -> Any:
    """The array at an odd address."""
    memory = np.zeros(a.nbytes + 1, np.uint8)
    found = memory[1:].view(a.dtype).reshape(a.shape) if a.size else a
    found[...] = a
    return found


def check(program: Program) -> None:
    """Run a program's script.

    Raises:
        AssertionError: with the script.
    """
    text = program.script
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            exec(compile(text, "<a hostile call>", "exec"), {"__name__": "program"})
    except Exception as error:
        raise AssertionError(f"{program.way}: {type(error).__name__}: {error}\n\n{text}") from error
