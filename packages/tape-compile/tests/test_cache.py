"""First calls of compiled functions in several threads, and how many traces are kept for how long."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.staging import opaque

THREADS = 8


def together(call: Any) -> list[Any]:
    """What a function returns that threads call at once, of their numbers."""
    barrier = threading.Barrier(THREADS)

    def run(k: int) -> Any:
        barrier.wait(60)
        return call(k)

    with ThreadPoolExecutor(THREADS) as pool:
        return [job.result(60) for job in [pool.submit(run, k) for k in range(THREADS)]]


@pytest.mark.parametrize("retrace", ["warn", "error"])
@pytest.mark.parametrize("_", range(5))
def test_concurrent_first_calls_make_one_trace(_: int, retrace: Any) -> None:
    runs: list[int] = []

    @tc.function(retrace=retrace)
    def f(x: Any) -> Any:
        runs.append(1)
        for _ in range(30):
            x = tc.sin(x)
        return x

    eager = [f.python(tc.asarray(float(k))).item() for k in range(THREADS)]
    runs.clear()
    assert [y.item() for y in together(lambda k: f(tc.asarray(float(k))))] == eager
    assert f.traces == len(runs) == 1


def test_concurrent_first_calls_in_tapes_make_one_trace() -> None:
    v = tc.Variable(0.5)

    @tc.function(retrace="error")
    def f(x: Any) -> Any:
        for _ in range(30):
            x = tc.sin(x) * v
        return x

    def gradient(k: int) -> Any:
        for _ in range(3):
            with tc.GradientTape() as tape:
                y = f(tc.asarray(1.0))
            g = tape.gradient(y, v)
        return y.item(), g.item()

    assert len(set(together(gradient))) == 1
    assert f.traces == 1


def test_a_function_that_runs_as_it_is_warns_once_for_concurrent_calls() -> None:
    @tc.function(fallback=True)
    def f(x: Any) -> Any:
        return x * 2.0 if x > 0.0 else x

    with pytest.warns(UserWarning, match="runs as plain Python") as noted:
        assert [y.item() for y in together(lambda k: f(tc.asarray(float(k))))] == [2.0 * k for k in range(THREADS)]
    assert len(noted) == len(f.fallbacks) == 1


def test_concurrent_first_calls_of_a_method_make_one_trace() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = tc.Variable(3.0)

        @tc.function(retrace="error")
        def call(self, x: Any) -> Any:
            return self.w * x

    for _ in range(20):
        model = Model()
        assert [y.item() for y in together(lambda k, model=model: model.call(tc.asarray(float(k))))] == [
            3.0 * k for k in range(THREADS)
        ]
        assert model.call.traces == 1


def test_functions_that_call_each_other_while_they_are_traced_do_not_wait_for_ever() -> None:
    meet = threading.Barrier(2)
    functions: dict[str, Any] = {}

    @opaque
    def other(name: str, x: Any) -> Any:
        meet.wait(30)  # both threads trace their function now
        return functions[name](x)

    def make(name: str) -> Any:
        def f(x: Any) -> Any:
            return other("gf"[name == "g"], x) * 2.0 if first[name].pop() else x + 1.0

        return tc.function(f)

    first = {"f": [False, True], "g": [False, True]}
    functions |= {"f": make("f"), "g": make("g")}
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(functions[name], tc.asarray(x)) for name, x in (("f", 1.0), ("g", 2.0))]
        assert [job.result(30).item() for job in jobs] == [4.0, 6.0]


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_no_more_traces_are_kept_than_asked_for_and_those_in_use_stay() -> None:
    runs: list[int] = []

    @tc.function(retrace="allow", max_traces=4)
    def f(x: Any) -> Any:
        runs.append(x.shape[0])
        return tc.sum(x)

    for n in range(1, 20):
        assert f(tc.ones(n)).item() == n
        assert f(tc.ones(1)).item() == 1
        assert f.traces <= 4
    assert runs == list(range(1, 20)), "the trace that is used all the time was dropped"
    assert f(tc.ones(2)).item() == 2
    assert runs[-1] == 2


def test_no_more_traces_are_kept_for_calls_in_tapes() -> None:
    @tc.function(retrace="allow", max_traces=4)
    def f(x: Any) -> Any:
        return tc.sum(x * x)

    for n in range(1, 12):
        for _ in range(3):
            x = tc.ones(n)
            with tc.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            assert tape.gradient(y, x).tolist() == [2.0] * n
    assert f.traces <= 4


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_number_of_traces_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_traces must be a positive number"):
        tc.function(max_traces=wrong)(lambda x: x)


class _Config:
    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.w = tc.Variable(np.full(10, factor, np.float32))


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("in_tape", [False, True])
def test_objects_that_were_arguments_are_not_kept(static: bool, in_tape: bool) -> None:
    @tc.function(retrace="allow", static_argnames=("config",) if static and not in_tape else ())
    def f(config: Any, x: Any) -> Any:
        return tc.sum(config.w * x * config.factor)

    left = []
    for k in range(20):
        config = _Config(float(k))
        for _ in range(3):
            if in_tape:
                x = tc.ones(10)
                with tc.GradientTape() as tape:
                    tape.watch(x)
                    y = f(config, x)
                assert tape.gradient(y, config.w).tolist() == [float(k)] * 10
            else:
                y = f(config, tc.ones(10))
            assert y.item() == 10.0 * k * k
        left += [weakref.ref(config), weakref.ref(config.w)]
        del config
    x = tape = None
    assert [r() for r in left] == [None] * 40
    assert f.traces == 0


@pytest.mark.usefixtures("_without_collector")
def test_variables_that_were_arguments_are_not_kept() -> None:
    @tc.function(retrace="allow")
    def f(v: Any, x: Any) -> Any:
        v.assign_add(x)
        return v * 2.0

    left = []
    for k in range(20):
        v = tc.Variable(float(k))
        assert [f(v, tc.asarray(1.0)).item() for _ in range(3)] == [2.0 * (k + n) for n in (1, 2, 3)]
        assert v.item() == k + 3
        left.append(weakref.ref(v))
        del v
    assert [r() for r in left] == [None] * 20
    assert f.traces == 0


def test_objects_that_are_equal_by_value_have_one_trace() -> None:
    class Key:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key)

        def __hash__(self) -> int:
            return 1

    f = tc.function(lambda key, x: x * 2.0)
    for _ in range(3):
        assert f(Key(), tc.asarray(2.0)).item() == 4.0
    assert f.traces == 1


def _decides(x: Any) -> Any:
    return x * 2.0 if x[0] > 0.0 else x


def _raises(x: Any) -> Any:
    raise ValueError("no")


def _called_in_tapes(f: Any) -> None:
    x = tc.ones(3)
    for _ in range(3):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        tape.gradient(y, x)


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("in_tape", [False, True])
@pytest.mark.parametrize("python", [lambda x: x * x, _decides, _raises], ids=["traced", "decides", "raises"])
def test_compiled_functions_go_without_the_garbage_collector(python: Any, in_tape: bool) -> None:
    left = []
    for _ in range(10):
        f = tc.function(python)
        with contextlib.suppress(TypeError, ValueError):
            _called_in_tapes(f) if in_tape else f(tc.ones(3))
        left.append(weakref.ref(f))
        del f
    assert [r() for r in left] == [None] * 10


@pytest.mark.usefixtures("_without_collector")
def test_a_derivative_outlives_the_compiled_function_that_it_is_of() -> None:
    x = tc.ones(3)
    f = tc.function(lambda x: x * x * x)
    _called_in_tapes(f)
    with tc.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        g = tape.gradient(y, x)
    assert outer.gradient(g, x).tolist() == [6.0] * 3
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    del f
    assert tape.gradient(y, x, output_gradients=tc.ones(3) * 2).tolist() == [6.0] * 3


_F = {
    "accumulator": lambda f, x: _pushed(f, x),
    "jvp": lambda f, x: tc.jvp(f, (x,), (x,)),
    "jacfwd": lambda f, x: tc.jacfwd(f)(x),
    "hvp": lambda f, x: tc.hvp(f, (x,), (x,)),
    "linearize": lambda f, x: tc.linearize(f, x)[1](x),
    "vjp": lambda f, x: tc.vjp(f, x)[1](tc.asarray(1.0)),
    "hessian": lambda f, x: tc.hessian(f)(x),
    "checkpoint": lambda f, x: tc.grad(tc.checkpoint(f))(x),
    "vmap": lambda f, x: tc.vmap(f)(tc.ones((2, 3))),
}


def _pushed(f: Any, x: Any) -> Any:
    with tc.ForwardAccumulator(x, x) as accumulator:
        y = f(x)
    return accumulator.jvp(y)


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("name", _F)
def test_transformations_leave_nothing_to_the_garbage_collector(name: str, fails: bool) -> None:
    left = []
    x = tc.ones(3)

    class Held:
        pass

    for _ in range(5):
        held = Held()

        def f(x: Any, held: Any = held) -> Any:
            if fails:
                raise ValueError("no")
            return tc.sum(x * x * x)

        with contextlib.suppress(ValueError):
            _F[name](f, x)
        left.append(weakref.ref(held))
        del f, held
    assert [r() for r in left] == [None] * 5


@pytest.mark.usefixtures("_without_collector")
def test_accumulators_go_without_the_garbage_collector() -> None:
    left = []
    for _ in range(10):
        x = tc.ones(3)
        with tc.ForwardAccumulator(x, x) as accumulator:
            y = tc.sin(x)
        accumulator.jvp(y)
        left.append(weakref.ref(accumulator))
    del accumulator
    assert [r() for r in left] == [None] * 10


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[99],
        lambda x: x @ tc.ones((2, 2)),
        lambda x: tc.vmap(lambda row: row + tc.ones(2))(x[None]),
        lambda x: tc.function(lambda x: (x * 2.0)[99])(x),
        lambda x: tc.function(lambda x: int(x[0]))(x),
        lambda x: tc.grad(lambda x: tc.sum(tc.stop_gradient(x)))(x),
        lambda x: tc.asarray([1]) + 2**70 + x,
    ],
    ids=["index", "shapes", "vmap", "trace", "decision", "unconnected", "number"],
)
def test_what_raises_goes_without_the_garbage_collector(call: Any) -> None:
    left = []
    for _ in range(10):
        x = tc.ones(3)
        with contextlib.suppress(IndexError, ValueError, TypeError, OverflowError):
            call(x)
        left.append(weakref.ref(x))
    del x
    assert [r() for r in left] == [None] * 10
