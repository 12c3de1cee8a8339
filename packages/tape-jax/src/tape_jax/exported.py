"""Programs of XLA from files: StableHLO, as `Function.export(format="stablehlo")` and `jax.export` write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import custom_batching, export
from tape_core.backends import select

from tape_jax.functional import call
from tape_jax.given_rules import Directions, bind_given


def load_exported(path: str | PathLike[str]) -> Callable[..., Any]:
    """Return the function in a file that `f.export(path, format="stablehlo")` or `jax.export` has written.

    It takes the Tensors that the program takes, on the JAX backend: the arguments, then the Variables that it reads. It
    returns a tuple: the results, then the new values of Variables. It is one op on a tape, and has the derivatives that
    were written with it, in reverse mode. Inside `vmap` it runs for one example after the other, in a loop of XLA's; so
    it does for the rows of a Jacobian. The file is data: nothing in it is run but XLA's own operations.

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
    flat = _of_leaves(program)
    run = jax.jit(lambda *arrays: jax.tree_util.tree_unflatten(program.out_tree, flat(*arrays)))

    def exported(*tensors: Any) -> Any:
        if len(tensors) != len(shapes):
            raise TypeError(f"the exported function takes {len(shapes)} arrays, got {len(tensors)}")
        return call(run, *tensors)

    return exported


def _of_leaves(program: export.Exported) -> Callable[..., list[Any]]:
    """Return a program as a function of flat arrays that JAX can transform: by its derivatives, and in vmap by a loop.

    JAX's own, `program.call`, has the derivatives too, but no way for all examples of a vmap at once.
    """
    has_values = [aval.dtype != jax.dtypes.float0 for aval in program.in_avals]

    @custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
    def run(*arrays: Any) -> list[Any]:
        each = iter(arrays)
        given = [
            next(each) if has else np.zeros(aval.shape, jax.dtypes.float0)
            for aval, has in zip(program.in_avals, has_values, strict=True)
        ]
        args, kwargs = jax.tree_util.tree_unflatten(program.in_tree, given)
        found = program.call(*args, **kwargs)  # type: ignore[no-untyped-call]
        return _with_values(jax.tree_util.tree_leaves(found))

    def derived(*arrays: Any) -> list[Any]:
        found: list[Any] = run(*map(jax.lax.stop_gradient, arrays))
        inputs = [x for x in arrays if _has_derivatives(x)]
        outs = [o for o in found if _has_derivatives(o)]

        def pull(*values: Any) -> list[Any]:
            return _of_leaves(_derivative(program))(*values[: len(arrays)], *values[len(arrays) + len(outs) :])

        directions = Directions(pull, len(inputs), len(outs), (True,) * len(inputs), pushes=False)
        given = iter(bind_given(arrays, inputs, outs, directions))
        return [next(given) if _has_derivatives(o) else o for o in found]

    return derived


def _derivative(program: export.Exported) -> export.Exported:
    """Return the program of the cotangents of another one.

    Raises:
        NotImplementedError: the file has none.
    """
    try:
        return program.vjp()
    except ValueError as error:
        raise NotImplementedError(
            "load_exported: the file has no derivatives of this order: write it with more, as by f.export(path, x, "
            "format='stablehlo', derivatives=2). Forward mode takes one order more than reverse mode"
        ) from error


def _has_derivatives(array: Any) -> bool:
    return bool(jax.numpy.issubdtype(array.dtype, np.inexact))


def _with_values(leaves: Sequence[Any]) -> list[Any]:
    """Return arrays without the derivatives of integers among them, which JAX has as arrays without values."""
    return [leaf for leaf in leaves if leaf.dtype != jax.dtypes.float0]
