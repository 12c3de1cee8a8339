"""Tests against PyTorch's own table of ops: the fixtures that compare an op with its counterpart in Tape."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import torch
from tape_core.extend import registry
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves, tree_map

RENAMED = {"dim": "axis", "dims": "axis", "keepdim": "keepdims", "p": "ord", "dim0": "axis"}

MAX_COMPARED = 6  # samples compared for each op and dtype
MAX_TRIED = 60  # samples looked at, of which Tape's op cannot express some

Observer = Callable[..., Any]


class Reference:
    """PyTorch's table of its own ops, each with its sample inputs."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # It takes many seconds to import.
            from torch.testing._internal.common_methods_invocations import op_db

        self.ops = {f"{op.name}/{op.variant_test_name}".rstrip("/"): op for op in op_db}

    def compare(self, name: str, ours: Callable[..., Any], **options: Any) -> int:
        """Compare an op with Tape's on the samples that Tape's can express; return their number."""
        op = self.ops[name]
        wanted = options.pop("dtypes", (torch.float64, torch.complex128))
        dtypes = [dtype for dtype in wanted if op.supports_dtype(dtype, "cpu")] or [torch.int64]
        compared = 0
        for dtype in dtypes:
            torch.manual_seed(0)
            grad = op.supports_autograd and dtype in op.backward_dtypes and dtype.is_floating_point | dtype.is_complex
            samples = op.sample_inputs("cpu", dtype, requires_grad=grad)
            here = 0
            for k, sample in enumerate(itertools.islice(samples, MAX_TRIED)):
                case = Case(op, sample, ours, **options)
                try:
                    case.compare()
                except pytest.skip.Exception:
                    continue  # Tape's op has no such parameter
                except Exception as error:
                    error.add_note(f"{name}, sample {k} of {dtype}: {case}")
                    raise
                here += 1
                if here == MAX_COMPARED:
                    break
            compared += here
        return compared


class Case:
    """One sample of an op, and the call of Tape's op for it.

    Args:
        op: an entry of PyTorch's table.
        sample: one of its samples.
        ours: a function of Tape that takes the same arguments.
        observe: `observe(xp, *results)` returns the values to compare.
        given: `given(xp, *arguments)` returns the arguments for both, such as symmetric matrices.
        differentiate: compare derivatives, too.
        nan: allow Tape a number where PyTorch has NaN.
        tolerance: the tolerance, relative to the largest element.
    """

    def __init__(
        self,
        op: Any,
        sample: Any,
        ours: Callable[..., Any],
        *,
        observe: Observer | None = None,
        given: Observer | None = None,
        differentiate: bool = True,
        nan: bool = False,
        tolerance: float = 1e-9,
    ) -> None:
        self.op, self.ours, self.observe, self.prepared = op, ours, observe, given
        self.differentiate, self.nan, self.tolerance = differentiate, nan, tolerance
        self.given = (sample.input, sample.args, sample.kwargs)
        self.leaves = [t for t in _unique(tree_leaves(self.given)) if isinstance(t, torch.Tensor) and t.requires_grad]

    def __repr__(self) -> str:
        shown = tree_map(lambda t: f"{t.dtype}{list(t.shape)}" if isinstance(t, torch.Tensor) else t, self.given)
        return f"input {shown[0]}, args {shown[1]}, kwargs {shown[2]}"

    def compare(self) -> None:
        """Compare values, gradients and tangents."""
        values = [tc.asarray(t.detach()) for t in self.leaves]
        with tc.GradientTape(persistent=True) as tape:
            tape.watch(values)
            ours = self._ours(values)
        rooted = [t.detach().requires_grad_() for t in self.leaves]
        theirs = self._theirs(rooted)
        assert len(ours) == len(theirs), f"{len(ours)} results, PyTorch has {len(theirs)}"
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype.name == str(b.dtype).removeprefix("torch."), f"{a.dtype} where PyTorch has {b.dtype}"
            self._close("value", a, b)
        flowing = [k for k, b in enumerate(theirs) if b.requires_grad]
        if not self.differentiate:
            return
        if not flowing:
            assert not [a for a in ours if self.leaves and a.dtype.inexact and _connected(tape, a, values)]
            return
        seeds = [_random(theirs[k]) for k in flowing]
        expected = torch.autograd.grad([theirs[k] for k in flowing], rooted, seeds, allow_unused=True)
        found = tape.gradient([ours[k] for k in flowing], values, output_gradients=[tc.asarray(s) for s in seeds])
        for k, (a, b, leaf) in enumerate(zip(found, expected, self.leaves, strict=True)):
            a = a.densify() if isinstance(a, tc.IndexedSlices) else a
            zeros = torch.zeros_like(leaf).detach()
            self._close(f"gradient {k}", tc.asarray(zeros) if a is None else a, zeros if b is None else b)
        if self.op.supports_forward_ad:
            self._compare_tangents(values)

    def _compare_tangents(self, values: list[Any]) -> None:
        directions = [_random(t) for t in self.leaves]
        with forward_ad.dual_level():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                duals = [forward_ad.make_dual(t.detach(), d) for t, d in zip(self.leaves, directions, strict=True)]
            expected = [forward_ad.unpack_dual(t).tangent for t in self._theirs(duals)]
        found = self._pushed(values, [tc.asarray(d) for d in directions])
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            if a is not None or b is not None:
                # A missing tangent is 0.
                self._close(f"tangent {k}", b * 0 if a is None else a, a * 0 if b is None else b)

    def _pushed(self, values: list[Any], directions: list[Any]) -> list[Any]:
        """Return the tangents of Tape's results."""
        with tc.ForwardAccumulator(values, directions) as accumulator:
            outs = self._ours(values)
        found: list[Any] = accumulator.jvp(outs)
        return found

    def _replaced(self, leaves: list[Any]) -> Any:
        """Call Tape's op with the sample, in which the leaves are replaced."""
        place = {id(t): new for t, new in zip(self.leaves, leaves, strict=True)}
        for t in tree_leaves(self.given):
            if isinstance(t, torch.Tensor) and id(t) not in place:
                place[id(t)] = tc.asarray(t.detach())
        return tree_map(lambda t: place[id(t)] if isinstance(t, torch.Tensor) else t, self.given)

    def _ours(self, leaves: list[Any]) -> list[Any]:
        given, args, kwargs = self._replaced(leaves)
        if self.prepared is not None:
            given, *args = self.prepared(tc, given, *args)
        return self._observed(tc, self.ours(given, *args, **kwargs), tc.Tensor)

    def _theirs(self, leaves: list[Any]) -> list[Any]:
        place = {id(t): new for t, new in zip(self.leaves, leaves, strict=True)}
        given, args, kwargs = tree_map(lambda t: place.get(id(t), t), self.given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's warnings of its own functions
            if self.prepared is not None:
                given, *args = self.prepared(torch, given, *args)
            return self._observed(torch, self.op(given, *args, **kwargs), torch.Tensor)

    def _observed(self, xp: Any, out: Any, kind: type) -> list[Any]:
        outs = _results(out)
        return _results(self.observe(xp, *outs)) if self.observe else [o for o in outs if isinstance(o, kind)]

    def _close(self, what: str, ours: Any, theirs: Any) -> None:
        a, b = (
            x.detach().resolve_conj().resolve_neg().numpy(force=True) if isinstance(x, torch.Tensor) else x.numpy()
            for x in (ours, theirs)
        )
        assert a.shape == b.shape, f"{what}: shape {a.shape} where PyTorch has {b.shape}"
        if a.dtype == bool:
            a, b = a.astype(int), b.astype(int)
        if self.nan:
            b = np.where(np.isnan(b), a, b)
        with np.errstate(invalid="ignore"):
            error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
        scale = max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0.0))
        worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), a.shape) if a.size else ()
        assert not a.size or error[worst] <= self.tolerance * scale, (
            f"{what}: {a[worst]} at {[int(k) for k in worst]}, where PyTorch has {b[worst]}"
        )


def _connected(tape: Any, out: Any, values: list[Any]) -> bool:
    return any(g is not None for g in tape.gradient(out, values))


def _results(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple | list) else [out]


def _unique(items: list[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())


def _random(like: torch.Tensor) -> torch.Tensor:
    return torch.randn(like.shape, dtype=like.dtype)


class Call:
    """A function of Tape that is called with PyTorch's arguments.

    Args:
        function: the function of Tape.
        names: Tape's names of PyTorch's parameters, in PyTorch's order; by default those of the function's signature.
        **fixed: arguments that are always given.
    """

    def __init__(self, function: Callable[..., Any], names: str | None = None, /, **fixed: Any) -> None:
        self.function, self.fixed = function, fixed
        parameters = inspect.signature(function).parameters
        self.accepted = list(parameters)
        self.positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
        self.names = names.split() if names is not None else list(parameters)

    def bound(self, *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return Tape's arguments for PyTorch's."""
        if len(args) > len(self.names):
            pytest.skip("not expressible")
        given = dict(zip(self.names, args, strict=False))
        for name, value in kwargs.items():
            given[name if name in self.accepted else RENAMED.get(name, name)] = value
        given = {name: _translated(name, value) for name, value in given.items()} | self.fixed
        scalar = args and isinstance(args[0], tc.Tensor) and not args[0].ndim and given.get("axis") is not None
        if scalar or set(given) - set(self.accepted) or given.get("axis") in ((), []):
            pytest.skip("not expressible")
        return [given.pop(n) for n in self.positional if n in given], given

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.bound(*args, **kwargs)
        return self.function(*args, **kwargs)


def _translated(name: str, value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, list) and name in ("axis", "axes", "shape", "shift", "s"):
        return tuple(value)
    return value


@pytest.fixture(scope="session")
def reference() -> Reference:
    """PyTorch's own table of ops."""
    pytest.importorskip("expecttest", reason="PyTorch's table of its ops, torch.testing._internal, needs expecttest")
    return Reference()


@pytest.fixture
def _on_torch() -> Iterator[None]:
    with tc.use_backend("torch"):
        yield


CHAPTERS = {  # of tape_core.ops: files, and folders with all that they contain
    "test_op_db_linalg": ("linalg", "fft"),
    "test_op_db_nn": ("nn", "padding", "index.windows"),
}


def pytest_generate_tests(metafunc: Any) -> None:
    """Make a test for each pair of an op of Tape and a counterpart in PyTorch."""
    if "theirs" in metafunc.fixturenames:
        table = metafunc.module.table(Call)
        rows = [(ours, theirs, *_entry(entry)) for ours, by in table.items() for theirs, entry in by.items()]
        ids = [f"{ours}-{theirs}" for ours, theirs, *_ in rows]
        metafunc.parametrize(("theirs", "adapter", "options"), [row[1:] for row in rows], ids=ids)


def _entry(entry: Any) -> tuple[Any, dict[str, Any]]:
    return entry if isinstance(entry, tuple) else (entry, {})


@pytest.fixture
def functions(request: Any) -> set[str]:
    """The ops of the chapters that a module compares, and public functions composed of several ops."""
    own = CHAPTERS.get(request.module.__name__.split(".")[-1])
    others = [chapter for chapters in CHAPTERS.values() for chapter in chapters]
    found = {name: op.function for name, op in registry.items()}
    for namespace in (tc, tc.linalg, tc.fft, tc.special):
        for name in namespace.__all__:
            function = getattr(namespace, name)
            if inspect.isfunction(function) and not hasattr(function, "op"):
                found[name] = function
    places = {n: f"{f.__module__}.".partition("tape_core.ops.")[2] for n, f in found.items()}

    def within(place: str, chapters: Iterable[str]) -> bool:
        return place.startswith(tuple(f"{chapter}." for chapter in chapters))

    return {n for n, place in places.items() if place and (within(place, own) if own else not within(place, others))}
