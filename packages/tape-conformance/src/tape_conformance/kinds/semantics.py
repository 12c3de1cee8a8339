"""Checks of tapes, end to end on the backend. The expected numbers are exact, or worked out by hand."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import tape_core as tc

from tape_conformance.checking import Group, Target, expect, expect_close, expect_equal
from tape_conformance.tolerances import SINGLE_RTOL

GROUP = check = Group("tape")


def _gradient(f: Callable[[Any], Any], x: tc.Tensor, **kwargs: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x, **kwargs)


@check("gradient")
def gradient(target: Target) -> None:
    """The gradient of a scalar is right, and that of an array is the gradient of its sum."""
    x = tc.asarray([1.0, 2.0, 3.0])
    expect_close(_gradient(lambda x: tc.sum(x**2), x).numpy(), [2, 4, 6], "the gradient of sum(x**2)", SINGLE_RTOL)
    expect_close(_gradient(lambda x: x**3, x).numpy(), [3, 12, 27], "the gradient of x**3", SINGLE_RTOL)


@check("structures")
def structures(target: Target) -> None:
    """Sources and targets are pytrees, and gradients have the sources' structure."""
    sources: Any = {"w": tc.asarray([1.0, 2.0]), "b": (tc.asarray(3.0), [tc.asarray(4.0)])}
    with tc.GradientTape() as tape:
        tape.watch(sources)
        targets = [tc.sum(sources["w"]) * sources["b"][0], {"y": sources["b"][1][0] ** 2}]
    found = tape.gradient(targets, sources)
    expect_equal(found["w"].tolist(), [3.0, 3.0], "the gradient of w")
    expect_equal((found["b"][0].item(), found["b"][1][0].item()), (3.0, 8.0), "the gradients of b")


@check("unwatched")
def unwatched(target: Target) -> None:
    """A source that the target does not depend on gives None, zeros or an error, as asked."""
    x, other = tc.asarray(2.0), tc.asarray([1.0, 2.0])
    with tc.GradientTape(persistent=True) as tape:
        tape.watch([x, other])
        y = x * x
    expect(tape.gradient(y, other) is None, "the gradient of something unconnected is not None")
    zeros = tape.gradient(y, other, unconnected_gradients="zero")
    expect_equal((zeros.tolist(), zeros.dtype), ([0.0, 0.0], tc.float32), "the zero gradient")
    try:
        tape.gradient(y, {"w": other}, unconnected_gradients="error")
    except ValueError as error:
        expect("'w'" in str(error), f"the message {str(error)!r} does not say where")
    else:
        raise AssertionError("unconnected_gradients='error' did not raise")


@check("variables")
def variables(target: Target) -> None:
    """A trainable Variable is watched when it is read, and assigning to it afterwards changes no gradient."""
    v, fixed = tc.Variable(3.0), tc.Variable(2.0, trainable=False)
    with tc.GradientTape() as tape:
        y = v * v * fixed
        v.assign(10.0)
    found = tape.gradient(y, [v, fixed])
    expect_equal(found[0].item(), 12.0, "the gradient of a variable assigned to after it was read")
    expect(found[1] is None, "a variable that is not trainable was watched")
    expect_equal(v.item(), 10.0, "the variable after assign")


@check("assignment")
def assignment(target: Target) -> None:
    """`x[key] = value` is recorded: the gradient reaches the value, and x where it was not overwritten."""
    x, value = tc.asarray([1.0, 2.0, 3.0]), tc.asarray(5.0)
    with tc.GradientTape() as tape:
        tape.watch([x, value])
        y = x * 1.0
        y[1] = value * value
        z = tc.sum(y * y)
    # For the value: y[1] is 25, so 2 * 25, times the derivative of its square, 2 * 5.
    found = tape.gradient(z, [x, value])
    expect_equal(found[0].tolist(), [2.0, 0.0, 6.0], "the gradient of what was assigned to")
    expect_equal(found[1].item(), 500.0, "the gradient of the value")
    expect_equal(x.tolist(), [1.0, 2.0, 3.0], "the array that y was computed from")


@check("persistent")
def persistent(target: Target) -> None:
    """A persistent tape differentiates many times, any other once."""
    x = tc.asarray(3.0)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        z = y * y
    # x**2 and x**4 at 3. The sweep of a tape that is not persistent frees its records; here the third needs those of
    # the second.
    found = [tape.gradient(t, x).item() for t in (y, z, z)]
    expect_equal(found, [6.0, 108.0, 108.0], "the gradients of a persistent tape")
    with tc.GradientTape() as once:
        once.watch(x)
        y = x * x
    once.gradient(y, x)
    try:
        once.gradient(y, x)
    except RuntimeError:
        pass
    else:
        raise AssertionError("a second gradient of a tape that is not persistent did not raise")


@check("higher-order")
def higher_order(target: Target) -> None:
    """Nested tapes compute derivatives of derivatives."""
    x = tc.asarray(2.0, dtype="float64")
    with tc.GradientTape() as third, tc.GradientTape() as second, tc.GradientTape() as first:
        for tape in (first, second, third):
            tape.watch(x)
        y = x**4
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dy = first.gradient(y, x)
            ddy = second.gradient(dy, x)
    expect_equal((dy.item(), ddy.item(), third.gradient(ddy, x).item()), (32.0, 48.0, 48.0), "the derivatives of x**4")


@check("output-gradients")
def output_gradients(target: Target) -> None:
    """`output_gradients` are the cotangents of the target."""
    x, seed = tc.asarray([1.0, 2.0]), tc.asarray([10.0, 0.5])
    expect_equal(_gradient(lambda x: x**2, x, output_gradients=seed).tolist(), [20.0, 2.0], "the weighted gradient")


@check("stop-recording")
def stop_recording(target: Target) -> None:
    """Values computed while recording is stopped, or passed through stop_gradient, are constants."""
    x = tc.asarray(3.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        # c and stop_gradient(x) are constants: the derivative is 9 + 3, not 27 + 6.
        with tape.stop_recording():
            c = x * x
        y = x * c + tc.stop_gradient(x) * x
    expect_equal(tape.gradient(y, x).item(), 12.0, "the gradient beside constants")


@check("broadcasting")
def broadcasting(target: Target) -> None:
    """The cotangent of an operand that was broadcast is summed back to its shape."""
    a, b = tc.asarray([[1.0], [2.0]]), tc.asarray([3.0, 4.0, 5.0])
    with tc.GradientTape() as tape:
        tape.watch([a, b])
        y = a * b
    found = tape.gradient(y, [a, b])
    expect_equal(found[0].tolist(), [[12.0], [12.0]], "the gradient of the column")
    expect_equal(found[1].tolist(), [3.0, 3.0, 3.0], "the gradient of the row")


@check("mixed-dtypes")
def mixed_dtypes(target: Target) -> None:
    """Each source has a gradient of its own dtype; integers have none, and a warning says so."""
    narrow, wide = tc.asarray([1.0, 2.0], dtype="float32"), tc.asarray([3.0, 4.0], dtype="float64")
    with tc.GradientTape() as tape:
        tape.watch([narrow, wide])
        y = tc.sum(narrow * wide)
    found = tape.gradient(y, [narrow, wide])
    expect_equal([g.dtype for g in found], [tc.float32, tc.float64], "the dtypes of the gradients")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expect(_gradient(lambda n: n * 2, tc.asarray([1, 2])) is None, "an integer has a gradient")
    expect(any("int64" in str(w.message) for w in caught), "nothing warns of an integer source")


@check("where")
def where(target: Target) -> None:
    """The branch of `where` that is not taken has a zero gradient, even where its own derivative is infinite."""
    # The plain rules give 0 * inf for the branch that is not taken, which is NaN: a well-known trap of `where`.
    x = tc.asarray([0.0, 4.0])
    expect_equal(
        _gradient(lambda x: tc.where(x > 0, tc.sqrt(x), 0.0), x).tolist(), [0.0, 0.25], "the gradient of where"
    )


@check("gather")
def gather(target: Target) -> None:
    """The gradient of a Variable that was only gathered from is IndexedSlices; with another use it is dense."""
    table = tc.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows = tc.asarray([2, 0, 2])
    with tc.GradientTape(persistent=True) as tape:
        y = tc.sum(tc.gather(table, rows))
        z = y + tc.sum(table)
    found: Any = tape.gradient(y, table)
    expect(isinstance(found, tc.IndexedSlices), f"the gradient of a gather is a {type(found).__name__}")
    expect_equal(found.densify().tolist(), [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]], "the gradient of a gather")
    expect_equal(tape.gradient(z, table).tolist(), [[2.0, 2.0], [1.0, 1.0], [3.0, 3.0]], "the gradient of both")


@check("complex")
def complex_(target: Target) -> None:
    """The gradient of a holomorphic f is conj(f'(z)); that of a real one dL/dRe + i dL/dIm."""
    z = tc.asarray(1 + 2j)
    expect_equal(_gradient(lambda z: z * z, z).item(), 2 - 4j, "the gradient of z*z")
    expect_equal(_gradient(lambda z: tc.real(z * tc.conj(z)), z).item(), 2 + 4j, "the gradient of |z|**2")


@check("long-chain")
def long_chain(target: Target) -> None:
    """A chain of many ops differentiates without recursion."""
    x = tc.asarray(1.0, dtype="float64")

    def f(x: tc.Tensor) -> tc.Tensor:
        for _ in range(5000):  # five times Python's default recursion limit
            x = x + 0.5
        return x * x

    expect_equal(_gradient(f, x).item(), 5002.0, "the gradient of a long chain")


@check("training")
def training(target: Target) -> None:
    """Gradient descent finds the line through points."""
    x = tc.linspace(-1, 1, 32, dtype="float64")
    y = 3 * x - 0.5
    w, b = tc.Variable(0.0, dtype="float64"), tc.Variable(0.0, dtype="float64")
    # The errors of w and b shrink by factors of 0.86 and 0.6 a step, so rounding is all that is left.
    for _ in range(300):
        with tc.GradientTape() as tape:
            loss = tc.mean((w * x + b - y) ** 2)
        for variable, g in zip((w, b), tape.gradient(loss, [w, b]), strict=True):
            variable.assign_sub(0.2 * g)
    expect_close([w.item(), b.item()], [3.0, -0.5], "the line", SINGLE_RTOL)


@check("threads")
def threads(target: Target) -> None:
    """Tapes in different threads do not see each other."""
    # The barrier brings the four threads into each round together, so that their tapes are open at the same time.
    barrier = Barrier(4)
    shared = tc.asarray([1.0, 2.0])

    def work(n: int) -> list[list[float]]:
        found = []
        with tc.use_backend(target.backend, target.selection.device):
            for _ in range(20):
                barrier.wait(timeout=30)
                found.append(_gradient(lambda x: x * n + x * x, shared).tolist())
        return found

    with ThreadPoolExecutor(4) as pool:
        for n, found in enumerate(pool.map(work, range(4))):
            expect_equal(found, [[n + 2.0, n + 4.0]] * 20, f"the gradients in thread {n}")


@check("tasks")
def tasks(target: Target) -> None:
    """Tapes in different asyncio tasks do not see each other."""

    async def work(n: int) -> float:
        x = tc.asarray(float(n))
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = x * x
            await asyncio.sleep(0)  # the other tasks run with their tapes open
            y = y * x
        found: float = tape.gradient(y, x).item()
        return found

    async def all_of_them() -> list[float]:
        return list(await asyncio.gather(*map(work, range(4))))

    expect_equal(asyncio.run(all_of_them()), [0.0, 3.0, 12.0, 27.0], "the gradients in tasks")


@check("frees-memory")
def frees_memory(target: Target) -> None:
    """A loss that is kept does not keep the intermediate results alive."""
    x = tc.ones((64, 64))
    with tc.GradientTape() as tape:
        tape.watch(x)
        # The rule of sin needs `middle`, so a record of the tape keeps it; the loss must not.
        middle = tc.exp(x) * 1.0
        y = tc.sum(tc.sin(middle))
    # Some libraries' arrays take no weak references; then the Tensor has to do.
    try:
        alive = weakref.ref(middle._array)
    except TypeError:
        alive = weakref.ref(middle)
    del middle
    tape.gradient(y, x)
    del tape
    gc.collect()
    expect(alive() is None, "an intermediate result is kept alive by the loss")
