"""fixed_point and custom_root: solutions of equations, with derivatives by the implicit function theorem.

Where F(z, a) = 0 defines z, the implicit function theorem gives F_z dz + F_a da = 0. A tangent is found from that
system, a cotangent from its transpose: neither needs to know how z was found. The solution of the linear system is
again defined by an equation, so derivatives of any order follow from the same few lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

from tape_core.base.ambient import ACTIVE
from tape_core.base.mistakes import check_callable
from tape_core.engine import pytree
from tape_core.engine.binding import held_for_a_while
from tape_core.engine.changes import Moment
from tape_core.engine.levels import innermost
from tape_core.engine.tensor import SCALARS, Tensor, alias, read, wrap
from tape_core.modes.function_op import record_as_one
from tape_core.ops.creation import asarray, zeros_like
from tape_core.ops.data_types import off_tapes, stop_gradient
from tape_core.ops.statistical import max as greatest
from tape_core.staging import current, outside, value_check
from tape_core.transforms import solvers, traced, unread
from tape_core.transforms.calls import Arguments, forbid_captures, name_of, reading, substitute, unrecorded
from tape_core.transforms.custom import linear_transpose
from tape_core.transforms.derivatives import jvp
from tape_core.transforms.solvers import Accuracy, ConvergenceError, LinearSolver
from tape_core.transforms.vectors import Vector, norm
from tape_core.typing import ArrayLike, PyTree, Scalar

Function = Callable[..., Any]
Equations = Callable[[Vector, Vector], Vector]
"""`equations(zs, inputs)`: zero at the solution zs for these inputs."""

DENSE_MAX_UNKNOWNS = 1000  # elements; up to it linear systems are solved by their matrix, which has its square


def fixed_point(
    f: Function,
    z0: PyTree,
    *args: Any,
    tol: float | None = None,
    maxiter: int = 1000,
    solver: str = "iteration",
    linear_solver: str | Function | None = None,
) -> Any:
    """Find the z with `z = f(z, *args)`, from `z0`, with derivatives that do not depend on how it was found.

    >>> import tape_core as tc
    >>> root = lambda a: tc.fixed_point(lambda z, a: 0.5 * (z + a / z), 1.0, a)
    >>> root(2.0)
    Tensor(1.4142135, shape=(), dtype=float32, backend=numpy)
    >>> tc.grad(root)(4.0).item(), tc.grad(tc.grad(root))(4.0).item()
    (0.25, -0.03125)

    Derivatives, reverse and forward and of any order, come from the implicit function theorem: no step is kept. They
    exist for `args` and for trainable Variables that `f` reads, not for `z0`. Inside vmap the iteration of each example
    ends when that one has converged.

    Args:
        f: a function of pytrees whose result has the structure, shapes and dtypes of `z0`. It must do the same whenever
            it is called, and everything that is to be differentiated must be an argument.
        z0: a pytree of floating or complex Tensors.
        args: pytrees.
        tol: the iteration ends where the norm of `f(z) - z`, over all leaves, is at most `tol * (1 + norm(z))`;
            systems are solved to `tol`, relative to the norm of their solution, or of their right-hand side. By
            default eps ** (2 / 3) of the dtype: 4e-11 for float64, 2e-5 for float32.
        maxiter: the most steps.
        solver: `"iteration"` repeats z = f(z), for contractions; `"anderson"` accelerates this by Anderson's method;
            `"newton"` is for functions that are not contractions.
        linear_solver: for the systems of derivatives: `"iteration"`, which converges if the plain iteration for z
            does; `"dense"` builds the matrix; `"gmres"` uses products with it; or a function `(matvec, b)` that gives x
            with `matvec(x) = b`, all of the structure of `z0`. By default `"iteration"`; with `solver="newton"`
            `"dense"` for up to 1000 unknowns, which must be real, and else `"gmres"`.

    Raises:
        ConvergenceError: it did not converge, here or in the backward pass; an ArithmeticError. Where nobody can raise
            it, as inside `jax.jit`, and in a branch or loop of a compiled function while a tape records there, the
            result is NaN. In compiled functions a singular matrix of `"dense"` is the ValueError of `solve`.
        ValueError: the result of `f` differs from `z0` in structure or shape; or an argument has no valid value.
        TypeError: the dtypes differ; or `f` uses a watched Tensor that is not among its arguments.
    """
    check_callable("fixed_point", "f", f)
    name = "fixed_point"
    start, structure = pytree.flatten(z0)
    start = [_as_unknown(leaf, f"fixed_point: z0{pytree.path(structure, k)}", None) for k, leaf in enumerate(start)]
    arguments = Arguments(args)
    n, moment = len(arguments.places), Moment()

    def called(zs: Vector, values: Vector) -> Vector:
        out = f(pytree.unflatten(structure, list(map(alias, zs))), *arguments.replaced(values[:n]))
        return _check_like_unknowns(out, start, structure, f"fixed_point: the result of {name_of(f)}", "z0")

    # One call on trial: it checks the result, and finds the Variables, which become inputs too.
    with reading(alone=True) as readers:
        _check_captures(name, f, called(start, list(map(stop_gradient, arguments.differentiable))))
    variables = [v for v in readers.found if v.dtype.inexact]
    inputs = [*arguments.differentiable, *[v._read() for v in variables]]

    def residual(zs: Vector, values: Vector) -> Vector:
        with substitute(variables, values[n:]), moment.restored():
            out = called(zs, values)
        return [own - z for own, z in zip(out, zs, strict=True)]

    accuracy = _accuracy(name, tol, maxiter, start, "fixed_point: ")
    in_derivative = _accuracy(name, tol, maxiter, start, "fixed_point: in the derivative: ")

    def solved_by(accuracy: Accuracy) -> LinearSolver:
        # Newton's method solves systems, too, and plain iteration converges for contractions only.
        return _linear_solver(name, linear_solver if linear_solver != "iteration" else None, accuracy, start, structure)

    ways: dict[str, Function] = {
        "iteration": solvers.iteration,
        "anderson": solvers.anderson,
        "newton": partial(solvers.newton, solved_by(accuracy)),
    }
    if solver not in ways:
        raise ValueError(f"fixed_point: solver must be one of {', '.join(map(repr, ways))}, got {solver!r}")
    others = "', '".join(way for way in ways if way != solver)
    accuracy.hint = f"; start nearer to the solution, allow for more with maxiter= or tol=, or use solver='{others}'"
    # The search leaves no record, and what it captures would lose its derivative: hence `forbid_captures`.
    bare = list(map(stop_gradient, inputs))
    with forbid_captures(f"fixed_point: {name_of(f)}"), start[0].backend.quiet():
        zs = ways[solver](lambda zs: residual(zs, bare), start, accuracy)
    if linear_solver == "iteration" or (linear_solver is None and solver != "newton"):
        in_derivative.hint = "; f may be no contraction at the fixed point: use linear_solver='dense' or 'gmres'"
        linear = solvers.neumann_series(in_derivative)
    else:
        linear = solved_by(in_derivative)
    return pytree.unflatten(structure, _record_implicit("fixed_point", residual, zs, inputs, linear))


def custom_root(
    residual: Function, solver: Function, *, tol: float | None = None, linear_solver: str | Function | None = None
) -> Function:
    """Return the function `solver` with derivatives: it finds the z with `residual(z, *args) = 0`, in any way.

    >>> import tape_core as tc
    >>> def bisect(a, low=0.0, high=10.0):
    ...     for _ in range(50):
    ...         middle = (low + high) / 2
    ...         low, high = (middle, high) if middle * middle < a.item() else (low, middle)
    ...     return low
    >>> sqrt = tc.custom_root(lambda z, a: z * z - a, bisect)
    >>> round(sqrt(4.0).item(), 5), round(tc.grad(sqrt)(4.0).item(), 5)
    (2.0, 0.25)

    Derivatives, reverse and forward and of any order, come from the implicit function theorem. They exist for the
    positional arguments, and for trainable Variables that `residual` reads.

    Args:
        residual: a function of z and the arguments, pytrees, whose result has the structure and shapes of z. Everything
            that is to be differentiated must be an argument.
        solver: a function of the arguments that returns z, a pytree of floating or complex Tensors, arrays of an
            installed backend or Python floats. Nothing it does is recorded, so it may compute with other libraries.
            Keyword arguments go to the solver alone. Compiled functions call one that asks for values as it is, in
            each run.
        tol: the greatest norm of the residual at z that is accepted; by default any finite one.
        linear_solver: as for :func:`fixed_point`; by default `"dense"` for up to 1000 unknowns, which must be real,
            and else `"gmres"`.

    Raises:
        ConvergenceError: in the call: the residual is above `tol`, or not finite; in the backward pass: the derivative
            of the residual is singular, or the system was not solved. An ArithmeticError.
        ValueError: the result of `residual` differs from z in structure or shape.
        TypeError: the dtypes differ; or `residual` uses a watched Tensor that is not among its arguments.
    """
    check_callable("custom_root", "residual", residual)
    check_callable("custom_root", "solver", solver)
    name = "custom_root"
    if linear_solver == "iteration":
        raise ValueError("custom_root: linear_solver must be 'dense', 'gmres' or a function, got 'iteration'")

    @wraps(solver)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments([asarray(a) if type(a) in (float, complex) else a for a in args])
        n, moment = len(arguments.places), Moment()
        # JAX differentiates from outside: where that is stopped, `jax.grad` leaves values, which Python can read.
        bare = list(map(stop_gradient, arguments.differentiable))
        flows = traced.flows_of(bare)
        explained = nullcontext() if flows is None else flows.explained(_TRACED_SOLVER.format(name_of(solver)))
        with unrecorded(), explained:
            found, structure = pytree.flatten(_call_solver(solver, arguments.replaced(bare), kwargs))
        # Python numbers from the solver take the dtype and the device of an argument.
        beside = next(iter(bare), None)
        zs = [
            _as_unknown(leaf, f"custom_root: the result{pytree.path(structure, k)} of {name_of(solver)}", beside)
            for k, leaf in enumerate(found)
        ]

        def called(zs: Vector, values: Vector) -> Vector:
            out = residual(pytree.unflatten(structure, list(map(alias, zs))), *arguments.replaced(values[:n]))
            return _check_like_unknowns(out, zs, structure, f"custom_root: the result of {name_of(residual)}", "z")

        # This call checks the solution, and finds the Variables, which become inputs.
        with reading(alone=True) as readers:
            left = called(zs, bare)
            _check_captures(name, residual, left)
            size = norm(left)
        # A norm that is not finite leaves NaN, which no comparison passes.
        excess = size - (math.inf if tol is None else tol)
        zs = unread.checked(zs, excess, lambda: _check_root(size, tol, name_of(solver)))
        variables = [v for v in readers.found if v.dtype.inexact]
        inputs = [*arguments.differentiable, *[v._read() for v in variables]]

        def equations(zs: Vector, values: Vector) -> Vector:
            with substitute(variables, values[n:]), moment.restored():
                return called(zs, values)

        # Captured Tensors can lose a derivative only where something records.
        if ACTIVE.get():
            with forbid_captures(f"custom_root: {name_of(residual)}"):
                equations(zs, [off_tapes(t) for t in inputs])
        accuracy = _accuracy(name, None, 1000, zs, "custom_root: in the derivative: ")
        linear = _linear_solver(name, linear_solver, accuracy, zs, structure)
        return pytree.unflatten(structure, _record_implicit("custom_root", equations, zs, inputs, linear))

    return wrapped


def _call_solver(solver: Function, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what a solver finds. In a compiled function that it cannot be part of it is called in each run."""
    stage = current()
    leaves, structure = pytree.flatten_whole((args, kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    given = [leaves[k] for k in places]
    if stage is None or any([t.backend.level for t in given]) or not traced.is_unread(given):
        return solver(*args, **kwargs)
    found = stage.attempt(lambda: [solver(*args, **kwargs)])
    if found is not None:
        return found[0]
    libraries = [t.backend.library for t in given]
    variables = stage.assigned_variables()  # outside of the trace they have their values from before
    made: list[Any] = []

    def solve(*arrays: Any) -> tuple[Any, ...]:
        inner = list(leaves)
        for k, array, library in zip(places, arrays, libraries, strict=False):
            inner[k] = wrap(array, library)
        args, kwargs = pytree.unflatten(structure, inner)
        with outside(), held_for_a_while(variables, arrays[len(places) :]):
            found, own = pytree.flatten(solver(*args, **kwargs))
        made[:] = [own]
        where = f"custom_root: a result of {name_of(solver)}"
        return tuple([_as_unknown(t, where, inner[places[0]])._array for t in found])

    solve.__name__ = "custom_root_solver"  # compilers go by names, and a function of the user's may be called `solve`
    inputs = [*[t._array for t in given], *[v._array for v in variables]]
    arrays = stage.foreign(solve, inputs, libraries[0], is_pure=True)
    return pytree.unflatten(made[0], [wrap(array, stage.tracing(libraries[0])) for array in arrays])


@value_check
def _check_root(size: Tensor, tol: float | None, solver: str) -> None:
    worst = float(greatest(size)) if size.size else 0.0
    if not worst - (math.inf if tol is None else tol) <= 0:
        above = "" if tol is None else f", above tol={tol:.3g}"
        raise ConvergenceError(f"custom_root: at what {solver} gave the residual has norm {worst:.3g}{above}")


# -- the implicit function theorem


def _record_implicit(
    name: str, equations: Equations, zs: Vector, inputs: Vector, linear: LinearSolver, *, is_own: bool = True
) -> Vector:
    """Record `zs`, a solution of equations(zs, inputs) = 0, as one op of `inputs`.

    `is_own` says that a library which differentiates, as JAX does, is told of this derivative.

    The VJP solves the adjoint system F_z^T w = -g and returns F_a^T w; the JVP solves F_z u = -F_a t.
    """
    if not inputs:
        return zs
    n, m = len(zs), len(inputs)

    def pull(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
        given = [zeros_like(off_tapes(z)) if g is None else g for g, z in zip(gs, outs, strict=True)]

        def adjoint(ws: Vector, known: Vector) -> Vector:
            at, values, gs = known[:n], known[n : n + m], known[n + m :]
            back = linear_transpose(lambda zs: equations(zs, values), at, ws, [True] * n)
            # F_z^T w + g, which is zero for the w that is looked for.
            return [g if d is None else d + g for d, g in zip(back, gs, strict=True)]

        # The solution of the system is recorded as a function of all that is known here, for derivatives of higher
        # order.
        ws = _solve_linear(adjoint, [*outs, *inputs, *given], given, linear)
        return linear_transpose(lambda values: equations(outs, values), inputs, ws, watched)

    def push(ts: list[Any], outs: list[Tensor]) -> list[Tensor]:
        moving = [k for k, t in enumerate(ts) if t is not None]

        def tangent(us: Vector, known: Vector) -> Vector:
            at, values, ts = known[:n], known[n : n + m], known[n + m :]

            def moved(*xs: Tensor) -> Vector:
                given = list(values)
                for k, x in zip(moving, xs[n:], strict=True):
                    given[k] = x
                return equations(list(xs[:n]), given)

            pushed: Vector = jvp(moved, (*at, *[values[k] for k in moving]), (*us, *ts))[1]
            return pushed

        return _solve_linear(tangent, [*outs, *inputs, *[ts[k] for k in moving]], outs, linear)

    return record_as_one(inputs, zs, pull, push, name, is_own=is_own)


def _solve_linear(affine: Equations, known: Vector, like: Vector, linear: LinearSolver) -> Vector:
    """Solve the linear system affine(x, known) = 0; x is recorded as a function of `known`, by the same theorem."""
    bare = [off_tapes(t) for t in known]
    zeros = [zeros_like(off_tapes(t)) for t in like]

    def system(xs: Vector) -> Vector:
        return affine(xs, bare)

    with unrecorded(), like[0].backend.quiet():
        if (flows := traced.flows_of([*bare, *zeros])) is None:
            xs = linear(system, zeros)
        else:
            inside_vmap = any([t.backend.level for t in (*bare, *zeros)])
            xs = unread.solve_linear(flows, system, zeros, linear, inside_vmap=inside_vmap)
    return _record_implicit("linear solve", affine, xs, known, linear, is_own=False)


# -- arguments


_TRACED_SOLVER = (
    "custom_root: {} asks for the value of an array that JAX traces, which has none: write its loop with "
    "tape_core.while_loop, which JAX traces, or call a function of NumPy by jax.pure_callback, in tape_jax.call; under "
    "jax.grad alone, without jax.jit, jax.vmap or jax.lax.scan around it, there are values"
)


def _check_captures(name: str, f: Function, outs: Vector) -> None:
    """Raise where the result for constants is differentiated by the library: then the function has captured a value.

    Raises:
        TypeError: it has.
    """
    for t in outs:
        if t.backend.library.differentiates(innermost(t._array)[0]):
            raise TypeError(
                f"{name}: {name_of(f)} uses an array that JAX differentiates and that is not among its arguments, so "
                f"its derivative would be lost: make it one, or use tape_core.stop_gradient of it"
            )


def _accuracy(name: str, tol: float | None, maxiter: int, like: Vector, what: str) -> Accuracy:
    if tol is not None and not tol > 0:
        raise ValueError(f"{name}: tol must be positive, got {tol!r}")
    if type(maxiter) is not int or maxiter < 1:
        raise ValueError(f"{name}: maxiter must be a positive int, got {maxiter!r}")
    return Accuracy(tol, maxiter, like, what)


def _linear_solver(
    name: str, chosen: str | Function | None, accuracy: Accuracy, like: Vector, structure: PyTree
) -> LinearSolver:
    """Return a linear solver by its name; the default is dense for few unknowns, else GMRES."""
    if chosen is None:
        real = all([t.dtype.kind != "complex floating" for t in like])
        chosen = "dense" if real and sum([t.size for t in like]) <= DENSE_MAX_UNKNOWNS else "gmres"
    if chosen == "dense":
        return solvers.dense(accuracy)
    if chosen == "gmres":
        return solvers.gmres(accuracy)
    if not callable(chosen):
        raise ValueError(f"{name}: linear_solver must be 'iteration', 'dense', 'gmres' or a function, got {chosen!r}")
    return partial(_call_user_solver, chosen, name, structure, accuracy)


def _call_user_solver(
    solve: Function, name: str, structure: PyTree, accuracy: Accuracy, affine: solvers.Residual, zeros: Vector
) -> Vector:
    """Solve by a user's function `(matvec, b)`; the affine residual is A x - b, so b = -affine(0)."""
    constant = affine(zeros)

    def matvec(x: PyTree) -> PyTree:
        leaves = _check_like_unknowns(x, zeros, structure, f"{name}: the argument of matvec", "z")
        return pytree.unflatten(structure, [a - b for a, b in zip(affine(leaves), constant, strict=True)])

    try:
        found = solve(matvec, pytree.unflatten(structure, [-t for t in constant]))
    except ConvergenceError as error:
        raise accuracy.error(str(error)) from error
    return _check_like_unknowns(found, zeros, structure, f"{name}: the result of linear_solver", "z")


def _as_unknown(leaf: ArrayLike, where: str, beside: Tensor | None) -> Tensor:
    """Return a leaf of z as a detached Tensor."""
    value = read(leaf, where, beside)
    if type(value) in SCALARS:
        value = asarray(float(value) if type(value) is int else value) if beside is None else _scalar(value, beside)
    if not value.dtype.inexact:
        raise TypeError(f"{where} has dtype {value.dtype}, it must be floating or complex")
    return stop_gradient(value)


def _scalar(value: Scalar, beside: Tensor) -> Tensor:
    dtype = None if type(value) is complex else beside.dtype
    return asarray(value, dtype=dtype, device=beside.device, backend=beside.backend.root)


def _check_like_unknowns(tree: PyTree, like: Vector, structure: PyTree, what: str, whose: str) -> Vector:
    """Return the leaves of a pytree after checking structure, shapes and dtypes against z.

    Raises:
        ValueError: the structure or a shape differs.
        TypeError: a dtype differs.
    """
    leaves, own = pytree.flatten(tree)
    if len(leaves) != len(like) or not pytree.same(own, structure, len(like)):
        shown = pytree.difference("it", own, len(leaves), whose, structure, len(like))
        raise ValueError(f"{what} must have the structure of {whose}; {shown}")
    found = []
    for k, (leaf, z) in enumerate(zip(leaves, like, strict=True)):
        path = pytree.path(structure, k)
        value = read(leaf, f"{what}{path}", z)
        value = asarray(value, dtype=z.dtype, backend=z.backend.root) if type(value) in SCALARS else value
        if value.shape != z.shape:
            raise ValueError(
                f"{what}{path} has shape {value.shape}, {whose}{path} has {z.shape}; they must be the same"
            )
        if value.dtype is not z.dtype:
            raise TypeError(f"{what}{path} has dtype {value.dtype}, {whose}{path} has {z.dtype}; convert one")
        found.append(value)
    return found
