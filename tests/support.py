"""What tests of all packages need: numbers, results as comparable values, comparisons, derivatives, other interpreters.

Tests import from here as `from support import ...`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import array_api_strict
import numpy as np
import tape_core as tc
from tape_core.backends import ArrayAPIBackend

STRICT = ArrayAPIBackend("strict", array_api_strict)
"""The standard and nothing else: an op computes by kernels that are made of the standard."""

# -- numbers


def values(*shape: int, seed: int = 0, dtype: str | None = None, backend: str | None = None) -> tc.Tensor:
    """Draw normal numbers: the same on every backend."""
    return tc.asarray(tc.default_rng(seed).normal(shape, dtype=dtype), backend=backend)


def matrix(seed: int, *shape: int, dtype: str = "float64") -> Any:
    """Draw a NumPy array of normal numbers, complex ones for complex dtypes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if "complex" in dtype else x).astype(dtype)


# -- results


def leaves(tree: Any) -> list[Any]:
    """Return what is in nested tuples, lists and dictionaries, None included, in order."""
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple | list) else [tree]


def bits(value: Any) -> Any:
    """Return something that is equal for two results exactly if dtype, shape and every bit are."""
    if isinstance(value, tc.IndexedSlices):
        return "slices", bits(value.values), bits(value.indices), value.dense_shape
    if value is None:
        return None
    array = value.numpy()
    return str(value.dtype), value.shape, array.tobytes()


def same(found: Any, expected: Any, *, any_nan: bool = False) -> bool:
    """Tell whether two trees of results have the same bits; with `any_nan`, whatever the bits of NaNs are.

    Which one of several NaNs a sum is, is nobody's choice.
    """
    one, other = leaves(found), leaves(expected)
    if any_nan:
        one, other = [_with_one_nan(x) for x in one], [_with_one_nan(x) for x in other]
    return [bits(x) for x in one] == [bits(x) for x in other]


def _with_one_nan(x: tc.Tensor) -> tc.Tensor:
    array = x.numpy()
    return tc.asarray(np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array), backend="numpy")


# -- comparisons


def assert_same(found: Any, expected: Any) -> None:
    """Fail unless two trees of results have the same dtypes, shapes and bits."""
    for f, e in zip(leaves(found), leaves(expected), strict=True):
        assert bits(f) == bits(e), f"{f}, not {e}"


def assert_close(found: Any, expected: Any, rtol: float = 1e-5) -> None:
    """Fail unless a Tensor is a number, list or array, up to rounding."""
    np.testing.assert_allclose(found.numpy(), expected, rtol=rtol)


def assert_agrees(found: Any, expected: Any, *, double: float = 1e-12, single: float = 1e-5) -> None:
    """Fail unless a Tensor has NumPy's shape, dtype and values, up to a tolerance for each precision.

    The tolerance is relative, to the largest element for small ones. Of named tuples, names and members are compared.
    """
    if isinstance(expected, tuple):
        assert type(found)._fields == type(expected)._fields  # type: ignore[attr-defined]
        for f, e in zip(found, expected, strict=True):
            assert_agrees(f, e, double=double, single=single)
        return
    expected = np.asarray(expected)
    assert isinstance(found, tc.Tensor)
    assert found.shape == expected.shape
    assert str(found.dtype) == str(expected.dtype)
    rtol = single if str(expected.dtype) in ("float32", "complex64") else double
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(found.numpy(), expected, rtol=rtol, atol=rtol * max(1, finite.max(initial=0)))


# -- derivatives


def gradients(f: Callable[..., Any], *xs: Any, **options: Any) -> list[Any]:
    """Differentiate `f(*xs)` by each of its arguments with a tape; `options` go to `tape.gradient`."""
    with tc.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    return list(tape.gradient(y, xs, **options))


def gradient(f: Callable[[Any], Any], x: Any, **options: Any) -> Any:
    """Differentiate `f(x)` with a tape."""
    return gradients(f, x, **options)[0]


def numpy_gradients(f: Callable[..., Any], *arrays: Any, backend: Any = "numpy") -> list[Any]:
    """Differentiate `f` at arrays or lists of numbers with a tape; integers count as float64. Return NumPy arrays."""
    xs = [np.asarray(x) for x in arrays]
    tensors = [tc.asarray(x if x.dtype.kind in "fc" else x.astype("float64"), backend=backend) for x in xs]
    return [g.numpy() for g in gradients(f, *tensors)]


def numpy_gradient(f: Callable[[Any], Any], array: Any, *, backend: Any = "numpy") -> Any:
    """Differentiate `f` at one array or list of numbers with a tape. Return a NumPy array."""
    return numpy_gradients(f, array, backend=backend)[0]


# -- optimizers


def ignore_threads(monkeypatch: Any) -> None:
    """Have eager updates write over old values though pytest has threads of its own; new threads count as ever."""
    before = len(sys._current_frames())
    monkeypatch.setattr("tape_core.engine.overwriting._other_threads", lambda: len(sys._current_frames()) - before)


# -- compiled functions


def code(compiled: Any) -> str:
    """Return the text of a compiled function's traces, without comments."""
    return "\n".join([line.partition("#")[0] for line in compiled.text().splitlines() if line.strip()[:1] != "#"])


# -- other interpreters


def traced(function: Callable[..., Any], *args: Any) -> Any:
    """The program of a function, called with these arguments, before all passes."""
    compiled = tc.function(function)
    compiled(*args)
    return compiled._compiled.all[-1].traced


def names(program: Any) -> list[str]:
    """The names of a program's instructions, in order."""
    return [instruction.name for instruction in program.instructions]


def run_python(*arguments: str, environment: Mapping[str, str] | None = None, timeout: float | None = None) -> str:
    """Run Python with arguments in a process of its own, which must succeed, and return what it prints.

    `environment` is added to this process's.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_processes(
    program: str,
    n: int,
    *arguments: str,
    timeout: float = 240.0,
    may_fail: Collection[int] = (),
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Run a program in `n` processes of torch.distributed, with the environment of torchrun; return what each prints.

    The store in which they meet is in this process, so that no port can be taken meanwhile, and no process takes it
    with it. If one fails, all others are killed and its errors are raised. Needs `os.fork`.

    Args:
        program: Python source, which may import what lies beside this file; `arguments` are in `sys.argv[1:]`.
        may_fail: the numbers of processes that may die or fail while the others go on.
        environment: is added to this process's.
    """
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")] if os.name == "posix" else []
    common = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [os.path.dirname(__file__), os.environ.get("PYTHONPATH")])),
        "WORLD_SIZE": str(n),
        "LOCAL_WORLD_SIZE": str(n),
        "GROUP_RANK": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        **({"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}),
        **(environment or {}),
    }
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n)]
        request = [folder, program, ["-c", *arguments], os.getcwd(), common, own]
        launcher = stack.enter_context(_launcher())
        launcher.stdin.write(json.dumps(request) + "\n")
        launcher.stdin.flush()
        group = int(launcher.stdout.readline())

        def stop() -> None:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

        stack.callback(stop)
        # Not `with`: it is to be stopped first where it is late.
        timer = threading.Timer(timeout, stop)
        timer.daemon = True
        timer.start()
        codes: dict[int, int] = {}
        while line := launcher.stdout.readline().strip():
            rank, code = map(int, line.split())
            codes[rank] = code
            if code and rank not in may_fail:
                stop()
        timer.cancel()
        outputs, errors = ([_content(folder, f"{rank}.{kind}") for rank in range(n)] for kind in ("out", "err"))
        failed = [rank for rank, code in codes.items() if code and rank not in may_fail]
        late = [rank for rank in range(n) if rank not in codes]
        assert not failed, "".join(f"-- process {rank} ended with {codes[rank]}:\n{errors[rank]}" for rank in failed)
        assert not late, f"processes {late} took longer than {timeout} s:\n{outputs}\n" + "\n".join(errors)
    return outputs


@contextmanager
def _launcher() -> Iterator[Any]:
    """Lend the process that forks others: it has imported torch, which takes most of the time of a short program.

    It is started once, and ends with this process, which holds the other end of its input. One that was in use when
    an exception came is not used again.
    """
    launcher = _launchers.pop() if _launchers else None
    if launcher is None or launcher.poll() is not None:
        command = [sys.executable, "-c", _LAUNCHER]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        launcher = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
    try:
        yield launcher
    except BaseException:
        launcher.kill()
        launcher.communicate()
        raise
    _launchers.append(launcher)


_launchers: list[subprocess.Popen[str]] = []
_LAUNCHER = """
import json, os, sys, traceback
import torch, torch.distributed.tensor, torch.distributed.checkpoint
import numpy.testing, pytest, torch._dynamo, torch.testing
import tape_compile.function, tape_nn, tape_numpy.backend
import tape_torch.backend, tape_torch.compiled, tape_torch.distributed, tape_torch.divided_programs

torch.set_num_threads(1)


def launch(folder, program, arguments, directory, common, environments):
    # Fork a process for each of the environments, and print how each of them ends.
    os.setsid()
    print(os.getpid(), flush=True)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(common)
    sys.path[1:1] = common["PYTHONPATH"].split(os.pathsep)
    sys.argv[:] = arguments
    ranks = {}
    for rank, environment in enumerate(environments):
        if (child := os.fork()) == 0:
            run(f"{folder}/{rank}", program, environment)
        ranks[child] = rank
    while ranks:
        child, status = os.wait()
        print(ranks.pop(child), os.waitstatus_to_exitcode(status), flush=True)


def run(output, program, environment):
    os.environ.update(environment)
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{output}.{name}", os.O_WRONLY | os.O_CREAT), descriptor)
    status = 1
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


for line in sys.stdin:
    if (child := os.fork()) == 0:
        try:
            launch(*json.loads(line))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    print(flush=True)
"""


def _content(folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as stream:
        return stream.read()
