"""Checks of ops in compiled functions: the same bits as in eager calls, with each pass and without.

A compiled function is called with the arrays of its trace and with others, plainly and inside a tape's block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
import tape_core as tc
from numpy.typing import NDArray
from tape_compile.extend import Function, Program, Source, passes, thresholds
from tape_core import function
from tape_core.backends import compilers, select
from tape_core.staging import TracingError
from tape_core.support import dense

from tape_conformance import calculus
from tape_conformance.checking import Skipped, expect, expect_close, expect_equal, expect_same_bits
from tape_conformance.samples import Case, Leaf, Weights, on_backend
from tape_conformance.tolerances import COMPILED_RTOL, REASSOCIATED_RTOL

Examples: TypeAlias = list[dict[int, tc.Tensor]]
"""Calls of a case: Tensors in place of some inputs, the same inputs in each call."""

SHAPED_BY_VALUES = frozenset({"nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse", "unique_values"})
"""Ops whose results have a shape that depends on values: compiled functions refuse them."""

AT_ANY_SIZE: dict[str, Any] = {
    "INLINE_MIN_ELEMENTS": 1,
    "FUSE_MIN_ELEMENTS": 2,
    "FUSE_MIN_CALLS": 1,
    "FUSE_MIN_WORK": 1,
    "IN_PLACE_MIN_ELEMENTS": 2,
    "HOIST_MIN_CALLS": 1,
    "OUTLINE_MIN_PROGRAM": 0,
    "OUTLINE_MIN_STRETCH": 2,
    "RECYCLE_NAMES_MIN_PROGRAM": 0,
    "SPARE_MIN_ELEMENTS": 1,
}
"""Thresholds with which the small arrays and short programs of samples take the paths of large and long ones."""


def check_compiled(case: Case, examples: Examples) -> None:
    """A compiled function returns the results, and the gradients, of an eager call to the last bit."""
    weights = case.weights()
    chosen = list(examples[0])

    def values(*xs: tc.Tensor) -> list[tc.Tensor]:
        return list(case.observed(case.call(dict(zip(chosen, xs, strict=True)))))

    def slopes(*xs: tc.Tensor) -> list[tc.Tensor]:
        at = dict(zip(chosen, xs, strict=True))
        return [dense(g) for g in calculus.gradients(case, weights, at).values()]

    try:
        _expect_same_bits(values, examples, "result")
    except TracingError as error:
        _expect_shaped_by_values(case, error)
        return
    if case.op.differentiable and case.leaves:
        gradients = _expect_same_bits(slopes, examples, "gradient")
        _expect_same_bits_in_tapes(case, weights, values, examples, gradients)


def check_compiled_by(name: str, case: Case) -> None:
    """An op and its gradient, compiled by a compiler, return what eager calls return, for other values as well.

    Bits are compared where the compiler says that it keeps them, else values.
    """
    weights = case.weights()
    example = {leaf.k: leaf.value for leaf in case.leaves}

    def values(*xs: tc.Tensor) -> list[tc.Tensor]:
        return list(case.observed(case.call(dict(zip(example, xs, strict=True)))))

    def slopes(*xs: tc.Tensor) -> list[tc.Tensor]:
        found = calculus.gradients(case, weights, dict(zip(example, xs, strict=True)))
        return [dense(g) for g in found.values()]

    _expect_as_eager(name, values, example, "result")
    if case.op.differentiable and case.leaves:
        _expect_as_eager(name, slopes, example, "gradient")


def _expect_shaped_by_values(case: Case, error: TracingError) -> None:
    expect(case.op.name in SHAPED_BY_VALUES and "the shape of the result" in str(error), str(error))


def _expect_as_eager(
    name: str, eager: Callable[..., list[tc.Tensor]], example: dict[int, tc.Tensor], what: str
) -> None:
    # The first call traces, the second one runs what the compiler has made of the trace, the third one on other values:
    # what the compiler took for a constant would be seen.
    exact = compilers.load(name).exact
    compiled = function(compile=name)(eager)
    given = list(example.values())
    others = [value * 0.9 if value.dtype.inexact else value for value in given]
    for call, arguments in enumerate((given, given, others)):
        try:
            expected = eager(*arguments)
        except ValueError:
            if call < 2:
                raise
            return  # the op refuses the other values
        try:
            outs = compiled(*arguments)
        except TracingError as error:
            raise Skipped(f"it cannot be traced: {error}") from None
        except ValueError as error:
            if f"compile={name!r}" in str(error):
                raise Skipped(str(error)) from None
            raise
        for k, (found, tensor) in enumerate(zip(outs, expected, strict=True)):
            label = f"{what} {k} of what {name} compiles"
            a, b = found.numpy(), tensor.numpy()
            expect_equal((a.shape, a.dtype), (b.shape, b.dtype), f"shape and dtype of {label}")
            if exact:
                expect_same_bits(a, b, f"{label} has other bits than an eager call")
            else:
                expect_close(a, b, label, rtol=COMPILED_RTOL)


def check_compiled_derivatives(case: Case, leaf: Leaf) -> None:
    """Compiled Jacobians, Hessians and vmap have the bits of eager ones, except for the signs of zeros."""

    def value(x: tc.Tensor) -> tc.Tensor:
        found: tc.Tensor = next(out for out in case.observed(case.call({leaf.k: x})) if out.dtype.inexact)
        return found

    def loss(x: tc.Tensor) -> tc.Tensor:
        y = value(x)
        return tc.sum(y * y)

    # Compared by bits with eager vmap, not with a loop, so the two examples may be the same.
    pair = tc.stack([leaf.value, leaf.value])
    transforms: dict[str, tuple[Callable[..., Any], tc.Tensor]] = {"vmap": (tc.vmap(value), pair)}
    if not case.is_complex and value(leaf.value).dtype.kind == "real floating":
        transforms |= {
            "jacrev": (tc.jacrev(value), leaf.value),
            "jacfwd": (tc.jacfwd(value), leaf.value),
            "hessian": (tc.hessian(loss), leaf.value),
        }
    for name, (eager, x) in transforms.items():
        try:
            expected = eager(x).numpy() + 0.0  # -0.0 + 0.0 is 0.0
        except Exception:  # noqa: BLE001 - eager derivatives that fail are a finding of other checks
            continue
        compiled = function(eager)
        for _ in range(2):
            try:
                found = compiled(x).numpy() + 0.0
            except TracingError as error:
                _expect_shaped_by_values(case, error)
                break
            expect_equal(found.dtype, expected.dtype, f"the dtype of a compiled {name}")
            expect_same_bits(found, expected, f"a compiled {name} has other bits than an eager one")


def _expect_same_bits_in_tapes(
    case: Case,
    weights: Weights,
    eager: Callable[..., list[tc.Tensor]],
    examples: Examples,
    expected: list[list[tc.Tensor]],
) -> None:
    """Expect the gradients through a compiled function that is called inside a tape's block to be the eager ones."""
    compiled = function(eager)
    chosen = list(examples[0])
    for example, slopes in [*zip(examples, expected, strict=True)] * 2:
        found = calculus.gradients(case, weights, example, lambda at: compiled(*[at[k] for k in chosen]))
        for (k, d), slope in zip(found.items(), slopes, strict=True):
            a, b = dense(d).numpy(), slope.numpy()
            label = f"gradient {k} through a compiled function"
            expect_equal((a.shape, a.dtype), (b.shape, b.dtype), f"shape and dtype of {label}")
            expect_same_bits(a, b, f"{label} has other bits than an eager one")
    expect_equal(compiled.traces, 1, "the number of traces for calls inside tapes")


def _expect_same_bits(eager: Callable[..., list[tc.Tensor]], examples: Examples, what: str) -> list[list[tc.Tensor]]:
    """Expect a compiled function to return the eager results for all examples, twice, with one trace; return them."""
    # One compiled function for all examples: the second one runs the program that was traced for the first. They come
    # twice, since a run that wrote to memory of the program's would spoil the next.
    compiled = function(eager)
    expected = [eager(*example.values()) for example in examples]
    for _ in range(2):
        for example, tensors in zip(examples, expected, strict=True):
            for k, (found, tensor) in enumerate(zip(compiled(*example.values()), tensors, strict=True)):
                label = f"{what} {k} of a compiled function"
                expect_equal(found.dtype, tensor.dtype, f"the dtype of {label}")
                expect_equal(found.shape, tensor.shape, f"the shape of {label}")
                expect_same_bits(found.numpy(), tensor.numpy(), f"{label} has other bits than an eager one")
    expect_equal(compiled.traces, 1, "the number of traces")
    _expect_exact_passes(compiled, examples, expected, what)
    return expected


def _expect_exact_passes(
    compiled: Function[..., Any], examples: list[dict[int, Any]], expected: list[list[Any]], what: str
) -> None:
    """Expect each pass alone, and all passes but each, to change no bit of a result, and no argument.

    Passes that run only on request may round differently; their results must be close.
    """
    # The trace as it was before any pass; its private parts are looked at, since a user cannot choose single passes.
    (trace,) = next(iter(compiled._compiled.values()))
    given = [[tensor._array for tensor in example.values()] for example in examples]
    # A pass that writes in place may take memory of temporaries, and never that of arguments.
    before = [[tensor.numpy().tobytes() for tensor in example.values()] for example in examples]
    known: dict[object, NDArray[Any]] = {}
    with _at_any_size():
        sources = [(label, _source(program, known)) for label, program in _programs(trace.traced)]
    for label, source in sources:
        for arrays, tensors in zip(given, expected, strict=True):
            with trace.quiet():
                found = source.run(list(arrays))
            for k, (array, tensor) in enumerate(zip(found, tensors, strict=True)):
                a, b = tensor.backend.numpy(array), tensor.numpy()
                expect_equal((a.shape, a.dtype), (b.shape, b.dtype), f"shape and dtype of {what} {k} with {label}")
                if label in passes.PASSES and passes.PASSES[label].stage == "rounding":
                    expect_close(a, b, f"{what} {k} with {label}", rtol=REASSOCIATED_RTOL)
                    continue
                expect_same_bits(a, b, f"{what} {k} has other bits with {label}")
        after = [[tensor.numpy().tobytes() for tensor in example.values()] for example in examples]
        expect(after == before, f"an argument of a compiled function is written to with {label}")


def _source(program: Program, known: dict[object, NDArray[Any]]) -> Source:
    """Return a program as Python, which looks up in `known` what a whole kernel makes of arrays that it had before.

    Passes rearrange calls of kernels, and the other checks ask what a kernel computes. Some of Tape's own kernels are
    thousands of calls of the library, and a dozen programs call them with the same arrays.
    """
    with ExitStack() as stack:
        for instruction in program.instructions:
            fn = instruction.fn
            # A partial binds the namespace to a kernel that Tape wrote on it; a function of the library is called.
            if isinstance(fn, partial) and not (instruction.effect or instruction.kwargs.get("in_place")):
                stack.enter_context(patch.object(instruction, "fn", partial(_remembered, known, fn)))
        return Source(program, "sample")


def _remembered(known: dict[object, NDArray[Any]], fn: partial[Any], *args: object, **kwargs: object) -> object:
    """Call a kernel, or return a new array with what it returned for arrays of the same bits."""
    bound = fn.args, tuple(sorted(fn.keywords.items()))
    try:
        hash(bound)
    except TypeError:  # it binds arrays
        return fn(*args, **kwargs)
    selected = select()
    if any(isinstance(a, tuple) for a in args):  # a shape, or the shape and dtype of an array that is not needed itself
        return fn(*args, **kwargs)
    arrays = [selected.backend.numpy(a) if hasattr(a, "dtype") else a for a in args]
    if not all(isinstance(a, np.ndarray | float | int) for a in arrays):
        return fn(*args, **kwargs)
    bits = [(a.shape, str(a.dtype), a.tobytes()) if isinstance(a, np.ndarray) else (type(a), repr(a)) for a in arrays]
    # With the text of what is bound, since 1, 1.0 and True are equal, and so are the two zeros.
    key = fn.func, bound, repr(bound), *bits, repr(kwargs)
    if key not in known:
        found = fn(*args, **kwargs)
        if not hasattr(found, "dtype"):  # several arrays
            return found
        # A copy, since a program may overwrite the array; its axes in the same order in memory, as BLAS rounds by that.
        known[key] = selected.backend.numpy(found).copy(order="K")
        return found
    return on_backend(known[key].copy(order="K"))._array


def _programs(traced: Program) -> Iterator[tuple[str, Program]]:
    """Yield the program that each choice of passes makes of a trace, with the name of the choice; each program once."""
    known: list[Program] = []
    choices = {"no passes": dict.fromkeys(passes.PASSES, False), "all passes": {}}
    for name in passes.PASSES:
        if passes.PASSES[name].on_request:
            choices[name] = {name: True}
    for name in [name for name in passes.PASSES if not passes.PASSES[name].on_request]:
        choices[f"{name} alone"] = {other: other == name for other in passes.PASSES}
        choices[f"all passes but {name}"] = {name: False}
    # Most passes leave most programs as they are: what each makes of each program is computed once for all choices.
    made: dict[tuple[int, str], Program] = {}

    def after(program: Program, name: str) -> Program:
        key = id(program), name
        # A pass that only removes constants leaves the same instructions, but another program.
        if key not in made:
            found = passes.PASSES[name].transform(program)
            made[key] = (
                program if _same(found, program) and found.constants.keys() == program.constants.keys() else found
            )
        return made[key]

    for label, options in choices.items():
        program = traced
        for name in passes.PASSES:
            if options.get(name, not passes.PASSES[name].on_request):
                program = after(program, name)
        if not any([_same(program, other) for other in known]):
            known.append(program)
            yield label, program


def _same(a: Program, b: Program) -> bool:
    """Return whether two programs consist of the same instruction objects."""
    return a is b or (a.instructions == b.instructions and a.outputs == b.outputs)


@contextmanager
def _at_any_size() -> Iterator[None]:
    # Passes read `thresholds.NAME` when they run, and so see what is patched.
    with patch.multiple(thresholds, **AT_ANY_SIZE):
        yield
