"""Forked processes: a child computes what its parent does, whatever the parent's threads were doing at the fork.

Each test is a program of its own, so that one that hangs is noticed, and so that it has two threads on any machine.
"""

import os
import textwrap

import pytest
from support import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")

_PRELUDE = """
import gc, multiprocessing, os, sys, threading, time, warnings
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)  # the subject of these tests
import numpy as np
import tape_core as tc

def in_child(check, seconds=20):
    '''Fork, and raise unless `check()` is true in the child within some seconds.'''
    child = os.fork()
    if child == 0:
        import traceback
        right = False
        try:
            right = bool(check())
        except BaseException:
            traceback.print_exc()
        os._exit(0 if right else 1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert status == 0, f"the child ended with {status}"
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")

def large(x):
    return tc.tanh(x) * tc.exp(-x * x) + tc.sin(x)

x = tc.asarray(np.linspace(-2, 2, 1_000_000, dtype=np.float32))
expected = large(x).numpy()
"""


def run(program: str, seconds: int = 120) -> str:
    """What a program prints."""
    source = textwrap.dedent(_PRELUDE) + textwrap.dedent(program)
    return run_python("-c", source, environment={"TAPE_NUM_THREADS": "2"}, timeout=seconds)


def test_a_child_forked_after_a_compiled_call_with_threads_computes_the_same():
    run("""
        f = tc.function(large)
        f(x), f(x)
        in_child(lambda: np.array_equal(f(x).numpy(), expected))
        assert np.array_equal(f(x).numpy(), expected)
    """)


def test_children_of_children_compute_the_same():
    run("""
        f = tc.function(large)
        f(x), f(x)

        def check():
            assert np.array_equal(f(x).numpy(), expected)
            in_child(lambda: np.array_equal(f(x).numpy(), expected))
            return np.array_equal(f(x).numpy(), expected)

        in_child(check)
    """)


def test_a_pool_of_forked_processes_calls_a_compiled_function():
    run("""
        from concurrent.futures import ProcessPoolExecutor
        f = tc.function(large)
        f(x), f(x)

        def work(k):
            return float(tc.sum(f(x + k)).item())

        right = [float(tc.sum(large(x + k)).item()) for k in range(4)]
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            assert list(pool.map(work, range(4), timeout=60)) == right
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map_async(work, range(4)).get(60) == right
    """)


def test_a_forked_loader_prepares_batches_with_a_compiled_function():
    run("""
        f = tc.function(large)
        f(x), f(x)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()

        def load():
            for k in range(3):
                queue.put(f(x).numpy() + k)

        loader = context.Process(target=load, daemon=True)
        loader.start()
        for k in range(3):
            assert np.array_equal(queue.get(timeout=60), expected + k)
        loader.join(60)
        assert loader.exitcode == 0
    """)


_TRACING = """
    started, go_on = threading.Event(), threading.Event()
    v = tc.Variable(2.0)

    @tc.function
    def f(x):
        if threading.current_thread() is not threading.main_thread():
            started.set()
            assert go_on.wait(60)
        return x * v

    thread = threading.Thread(target=lambda: f(tc.asarray(3.0)))
    thread.start()
    assert started.wait(60)
"""


def test_a_child_forked_while_another_thread_traces_calls_the_same_function():
    run(
        textwrap.dedent(_TRACING)
        + textwrap.dedent("""
        def check():
            assert gc.isenabled()
            assert [f(tc.asarray(float(k))).item() for k in range(3)] == [0.0, 2.0, 4.0]
            v.assign(3.0)
            assert f(tc.asarray(1.0)).item() == 3.0 and f.traces == 1
            with tc.GradientTape() as tape:
                y = f(v)
            return tape.gradient(y, v).item() == 6.0

        in_child(check)
        go_on.set()
        thread.join()
        assert f(tc.asarray(1.0)).item() == 2.0
    """)
    )


def test_a_child_forked_by_the_function_that_is_traced_goes_on():
    run("""
        pids = []

        @tc.function
        def f(x):
            pids.append(os.fork())
            return x * 2.0

        right = f(tc.asarray(3.0)).item() == 6.0 and f(tc.asarray(4.0)).item() == 8.0
        if pids[0] == 0:
            os._exit(0 if right else 1)
        assert os.waitpid(pids[0], 0)[1] == 0 and right
    """)


def test_a_child_forked_while_another_thread_loads_a_backend_or_debugs_goes_on():
    run("""
        from tape_core.backends import discovery
        from tape_core.debugging import journal
        locked, go_on = threading.Event(), threading.Event()

        def hold():
            with discovery._state.plugins.lock.now, journal._lock.now, tc.GradientTape(debug=True):
                locked.set()
                assert go_on.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        assert locked.wait(60)

        def check():
            assert not journal._in_blocks  # nobody debugs here
            v = tc.Variable(3.0)
            with tc.GradientTape(debug=True) as tape:
                y = v * v
            assert not journal._in_blocks
            discovery._reset()
            return tape.gradient(y, v).item() == 6.0 and tc.asarray(1.0).item() == 1.0

        in_child(check)
        go_on.set()
        thread.join()
    """)


def test_a_child_forked_in_the_block_of_a_tape_records_on():
    run("""
        v = tc.Variable(3.0)
        with tc.GradientTape(persistent=True, debug=True) as tape:
            y = v * v

            def check():
                z = y * v
                return abs(tape.gradient(z, v).item() - 27.0) < 1e-6

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                in_child(check)
        assert tape.gradient(y, v).item() == 6.0
    """)
