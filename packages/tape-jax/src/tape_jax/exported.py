"""Programs of XLA from files: StableHLO, as `Function.export(format="stablehlo")` and `jax.export` write it."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import jax
from jax import export
from tape_core.backends import select

from tape_jax.functional import call


def load_exported(path: str | PathLike[str]) -> Callable[..., Any]:
    """Return the function in a file that `f.export(path, format="stablehlo")` or `jax.export` has written.

    It takes the Tensors that the program takes, on the JAX backend: the arguments, then the Variables that it reads. It
    returns a tuple: the results, then the new values of Variables. It is one op on a tape, and has the derivatives that
    were written with it, in reverse mode. It has no `vmap`, nor Jacobians: `tape_core.map` takes one example at a time.
    The file is data: nothing in it is run but XLA's own operations.

    >>> import tempfile
    >>> import tape_core as tc, tape_jax
    >>> f = tc.function(lambda x: tc.sin(x) * 2, compile="xla")
    >>> x = tc.asarray([0.0, 1.0], backend="jax")
    >>> path = tempfile.mkdtemp() + "/f.stablehlo"
    >>> f.export(path, x, format="stablehlo", derivatives=1)
    >>> (y,) = tape_jax.load_exported(path)(x)
    >>> [round(v, 4) for v in y.tolist()]
    [0.0, 1.6829]

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or of another format or a newer version.
    """
    select("jax")  # its dtypes of 64 bits must be on before a program is read
    data = Path(fspath(path)).read_bytes()
    try:
        program = export.deserialize(bytearray(data))
        shapes = program.in_avals
    except Exception as error:
        raise ValueError(
            f"load_exported: {fspath(path)!r} is damaged, or is no program that this version of JAX reads: {error}"
        ) from error
    run = jax.jit(program.call)

    def exported(*tensors: Any) -> Any:
        if len(tensors) != len(shapes):
            raise TypeError(f"the exported function takes {len(shapes)} arrays, got {len(tensors)}")
        return call(run, *tensors)

    return exported
