"""Operators on functions: `grad`, `jacobian`, `hessian` and their relatives, by the number of an argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.support import pytree, warn_user
from tape_core.typing import PyTree

import tape_autograd.numpy as anp
from tape_autograd import tracing
from tape_autograd.boxes import Box
from tape_autograd.primitives import defvjp_argnum, primitive
from tape_autograd.tracing import Traced
from tape_autograd.vspaces import vspace
from tape_autograd.wrap_util import unary_to_nary

Function = Callable[..., Any]

make_vjp = unary_to_nary(tracing.make_vjp)
make_jvp = unary_to_nary(tracing.make_jvp)


def _run_to_scalar(name: str, fun: Function, x: PyTree, *, has_aux: bool = False) -> Traced:
    """Run a function whose result, or the first part of it, must be one real number."""
    run = Traced(fun, x, persistent=False)
    out = run.outs[0] if len(run.outs) == 1 or has_aux else None
    # A value that depends on nothing must be one that could: a bool or an int has no derivative.
    if out is None or vspace(out).size != 1:
        raise TypeError(
            f"{name} only applies to real scalar-output functions. Try jacobian, elementwise_grad or holomorphic_grad."
        )
    return run


@unary_to_nary
def grad(fun: Function, x: PyTree) -> Any:
    """Return a function which computes the gradient of `fun` with respect to positional argument number `argnum`.

    The returned function takes the arguments of `fun`, which must return one real number, in an array of any shape.
    The gradient has the structure of the argument: an array or float, or a list, tuple or dict of them; for several
    `argnum` it is a tuple. It is an array of NumPy, and no box.

    >>> import tape_autograd.numpy as np
    >>> from tape_autograd import grad
    >>> def tanh(x):
    ...     return (1.0 - np.exp(-2 * x)) / (1.0 + np.exp(-2 * x))
    >>> print(f"{grad(tanh)(1.0):.6f}, {grad(grad(tanh))(1.0):.6f}")
    0.419974, -0.639700

    For a complex argument z = x + iy it is df/dx - i df/dy, as in autograd (and the conjugate of Tape's).

    Raises:
        TypeError: the result is not one real number, or the argument has no derivative, as an integer.
    """
    return _run_to_scalar("grad", fun, x).pull(1.0)


@unary_to_nary
def value_and_grad(fun: Function, x: PyTree) -> tuple[Any, Any]:
    """Return a function that returns the value and the gradient, as `scipy.optimize.minimize(jac=True)` takes it."""
    run = _run_to_scalar("value_and_grad", fun, x)
    return run.value, run.pull(1.0)


@unary_to_nary
def grad_and_aux(fun: Function, x: PyTree) -> tuple[Any, Any]:
    """Return a function that returns the gradient of the first result of `fun`, and its second result unchanged."""
    run = _run_to_scalar("grad_and_aux", fun, x, has_aux=True)
    value = run.value
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError("grad_and_aux: the function must return a pair: a number and anything else")
    return run.pull_leaves([1.0, *[None] * (len(run.outs) - 1)]), value[1]


@unary_to_nary
def elementwise_grad(fun: Function, x: PyTree) -> Any:
    """Return a function that computes the sum of each column of the Jacobian of `fun`, in one pass.

    If the Jacobian is diagonal, as for functions of single elements, these are the derivatives.

    >>> import tape_autograd.numpy as np
    >>> print(elementwise_grad(np.square)(np.array([1.0, 2.0])))
    [2. 4.]
    """
    run = Traced(fun, x, persistent=False)
    if any([anp.iscomplexobj(out) for out in run.outs]):
        raise TypeError("elementwise_grad only applies to real-output functions.")
    return run.pull_leaves([1.0] * len(run.outs))


@unary_to_nary
def deriv(fun: Function, x: PyTree) -> Any:
    """Return a function that computes the derivative in forward mode: the sum of the columns of the Jacobian."""
    return tracing.make_jvp(fun, x)(vspace(x).ones())[1]


@unary_to_nary
def jacobian(fun: Function, x: PyTree) -> Any:
    """Return a function which computes the Jacobian of `fun` with respect to positional argument number `argnum`.

    For an argument of shape (in1, in2, ...) and a result of shape (out1, out2, ...) it has the shape
    (out1, out2, ..., in1, in2, ...). All rows are computed at once, unless a primitive on the way has a rule of NumPy's
    own functions; then one after the other.

    >>> import tape_autograd.numpy as np
    >>> print(jacobian(lambda x: x[:2] * x[2])(np.array([1.0, 2.0, 3.0])))
    [[3. 0. 1.]
     [0. 3. 2.]]

    Raises:
        TypeError: the result is no real array.
    """
    run = Traced(fun, x, persistent=True)
    out = run.outs[0] if len(run.outs) == 1 else None
    if out is None or anp.iscomplexobj(out):
        raise TypeError(
            "jacobian: the function must return one real array; take those of np.real and np.imag of a complex one"
        )
    shape = anp.shape(out)
    if type(out) is not Box:
        rows = [tc.zeros(shape + t.shape, dtype=t.dtype, backend=t.backend.root) for t in run.sources]
        return run.nested(rows)
    try:
        with tracing.selected(run.sources):
            found = run.tape.jacobian(out._tensor, run.sources, unconnected_gradients="zero")
    except (TypeError, NotImplementedError):
        # A rule that takes values out of the batch of rows, to compute with NumPy: row by row.
        basis = [np.zeros(shape) for _ in range(out.size)]
        for k, vector in enumerate(basis):
            vector.flat[k] = 1.0
        flat = [pytree.flatten(run.pull(vector))[0] for vector in basis]
        columns = [anp.array(list(column)) for column in zip(*flat, strict=True)]
        joined = [
            anp.reshape(column, shape + t.shape) if out.size else np.zeros(shape + t.shape)
            for column, t in zip(columns, run.sources, strict=True)
        ]
        return pytree.unflatten(run.structure, joined)
    return run.nested(found)


@unary_to_nary
def holomorphic_grad(fun: Function, x: PyTree) -> Any:
    """Return a function that computes the complex derivative of a holomorphic `fun`.

    >>> import tape_autograd.numpy as np
    >>> print(holomorphic_grad(lambda z: z**2)(1.0 + 2.0j))
    (2+4j)
    """
    if not vspace(x).iscomplex:
        warn_user("Input to holomorphic_grad is not complex")
    return grad(lambda x: anp.real(fun(x)))(x)


def grad_named(fun: Function, argname: str) -> Function:
    """Return the gradient with respect to an argument by its name; not for `*args` and `**kwargs`."""
    return grad(fun, list(inspect.signature(fun).parameters).index(argname))  # type: ignore[no-any-return]


@unary_to_nary
def hessian(fun: Function, x: PyTree) -> Any:
    """Return a function that computes the Hessian, exactly.

    >>> import tape_autograd.numpy as np
    >>> print(hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0])))
    [[4. 2.]
     [2. 0.]]
    """
    return jacobian(jacobian(fun))(x)


@unary_to_nary
def make_hvp(fun: Function, x: PyTree) -> tuple[Function, Any]:
    """Return, at a point, the function that multiplies the Hessian with a vector, and the gradient."""
    return tracing.make_vjp(grad(fun), x)


def hessian_tensor_product(fun: Function, argnum: int = 0) -> Function:
    """Return a function of the arguments of `fun` and a tensor that computes the product of the Hessian with it."""
    fun_grad = grad(fun, argnum)

    def vector_dot_grad(*args: Any, **kwargs: Any) -> Any:
        *rest, vector = args
        return anp.tensordot(fun_grad(*rest, **kwargs), vector, anp.ndim(vector))

    return grad(vector_dot_grad, argnum)  # type: ignore[no-any-return]


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(fun: Function, argnum: int = 0) -> Function:
    """Return a function of the arguments of `fun` and a tensor that computes the product of it with the Jacobian."""

    def vector_dot_fun(*args: Any, **kwargs: Any) -> Any:
        *rest, vector = args
        return anp.tensordot(vector, fun(*rest, **kwargs), axes=anp.ndim(vector))

    return jacobian(vector_dot_fun, argnum)  # type: ignore[no-any-return]


vector_jacobian_product = tensor_jacobian_product


@unary_to_nary
def make_jvp_reversemode(fun: Function, x: PyTree) -> Function:
    """Return, at a point, the function that multiplies the Jacobian with a vector, by two passes of reverse mode."""
    vjp, y = tracing.make_vjp(fun, x)
    vjp_vjp, _ = tracing.make_vjp(vjp, vspace(y).zeros())
    return vjp_vjp


def _half_square(x: Any) -> Any:
    return 0.5 * anp.sum(x**2, axis=-1)


def make_ggnvp(f: Function, g: Function = _half_square, f_argnum: int = 0) -> Function:
    """Return a function that, at a point, gives the product of the generalised Gauss-Newton matrix with a vector.

    Args:
        f: the inner function.
        g: the outer one, which returns a number.
        f_argnum: the argument of `f`.
    """

    @unary_to_nary
    def maker(f: Function, x: PyTree) -> Function:
        f_vjp, f_x = tracing.make_vjp(f, x)
        g_hvp, grad_g_x = tracing.make_vjp(grad(g), f_x)
        f_jvp, _ = tracing.make_vjp(f_vjp, vspace(grad_g_x).zeros())
        return lambda v: f_vjp(g_hvp(f_jvp(v)))

    return maker(f, f_argnum)  # type: ignore[no-any-return]


def multigrad_dict(fun: Function) -> Function:
    """Return a function that computes the gradients with respect to all arguments, as a dict by their names."""
    signature = inspect.signature(fun)

    def gradfun(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def by_name(named: dict[str, Any]) -> Any:
            positional: list[Any] = []
            keywords: dict[str, Any] = {}
            for name, parameter in signature.parameters.items():
                if parameter.kind is parameter.VAR_POSITIONAL:
                    positional += named[name]
                elif parameter.kind is parameter.VAR_KEYWORD:
                    keywords |= named[name]
                elif parameter.kind is parameter.KEYWORD_ONLY:
                    keywords[name] = named[name]
                else:
                    positional.append(named[name])
            return fun(*positional, **keywords)

        found = grad(by_name)(dict(bound.arguments))
        return {name: found[name] for name in bound.arguments}

    return gradfun


def checkpoint(fun: Function) -> Function:
    """Return a function whose intermediate values are not kept for the backward pass but computed again there.

    Everything that is differentiated must be an argument.
    """

    def recomputed(argnum: int, ans: PyTree, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return make_vjp(fun, argnum)(*args, **kwargs)[0]

    wrapped = primitive(fun)
    defvjp_argnum(wrapped, recomputed)
    return wrapped


__all__ = [
    "checkpoint",
    "deriv",
    "elementwise_grad",
    "grad",
    "grad_and_aux",
    "grad_named",
    "hessian",
    "hessian_tensor_product",
    "hessian_vector_product",
    "holomorphic_grad",
    "jacobian",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_jvp_reversemode",
    "make_vjp",
    "multigrad_dict",
    "tensor_jacobian_product",
    "value_and_grad",
    "vector_jacobian_product",
]
