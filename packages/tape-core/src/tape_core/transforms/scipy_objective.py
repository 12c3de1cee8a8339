"""scipy_objective: a function of a pytree, as `scipy.optimize` wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.base.mistakes import check_callable
from tape_core.engine import pytree
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.tensor import Tensor
from tape_core.ops.creation import asarray
from tape_core.transforms.derivatives import hvp, with_gradient
from tape_core.typing import ArrayLike, PyTree


class Objective:
    """A callable for SciPy: it returns value and gradient; `hessp` gives products with the Hessian."""

    def __init__(
        self, f: Callable[..., Any], restore: Callable[[Any], Any], flat: Callable[[Any], Any], allow_unconnected: bool
    ) -> None:
        self._f, self._restore, self._flat, self._allow_unconnected = f, restore, flat, allow_unconnected
        self._with_gradient = with_gradient("scipy_objective", f, 0, allow_unconnected=allow_unconnected)

    def __call__(self, vector: ArrayLike, *args: Any) -> tuple[float, Any]:
        """Return the value, a float, and the gradient, a float64 NumPy vector."""
        value, gradient = self._with_gradient(self._restore(vector), *args)
        if value.dtype.kind == "complex floating":
            raise ValueError("scipy_objective: the function must return a real number; its result is complex")
        return float(value), self._flat(gradient)

    def hessp(self, vector: ArrayLike, direction: ArrayLike, *args: Any) -> Any:
        """Return the product of the Hessian at `vector` with `direction`, as a float64 NumPy vector."""
        (product,) = hvp(
            lambda x: self._f(x, *args),
            (self._restore(vector),),
            (self._restore(direction),),
            allow_unconnected=self._allow_unconnected,
        )
        return self._flat(product)


def scipy_objective(
    f: Callable[..., Any], x0: PyTree, *, allow_unconnected: bool = False
) -> tuple[Objective, Any, Callable[[Any], Any]]:
    """Return `f` with its gradient as a function of one float64 vector, for `scipy.optimize.minimize`.

    >>> import tape_core as tc
    >>> from scipy.optimize import minimize
    >>> def loss(w):
    ...     return tc.sum((w["a"] - 3.0) ** 2) + (w["b"] + 1.0) ** 2
    >>> fun, x0, restore = tc.scipy_objective(loss, {"a": tc.zeros((2, 2)), "b": tc.asarray(0.0)})
    >>> result = minimize(fun, x0, jac=True)
    >>> best = restore(result.x)
    >>> [[round(x, 3) for x in row] for row in best["a"].tolist()], round(best["b"].item(), 3)
    ([[3.0, 3.0], [3.0, 3.0]], -1.0)

    Methods that use the Hessian need only its products with directions:

    >>> minimize(fun, x0, jac=True, hessp=fun.hessp, method="trust-ncg").success
    True

    `f` computes in the dtypes of `x0`. SciPy's methods iterate until the gradient is tiny, which needs float64: give
    `x0` in it if they stop early with a loss of precision.

    Args:
        f: a function of a pytree of Tensors and of the `args` of `minimize`; its result is one number.
        x0: the start: a pytree of real floating-point Tensors, arrays or numbers.
        allow_unconnected: return a gradient of zeros where the result does not depend on `x0`, as far as Tape sees.

    Returns:
        `(fun, vector, restore)`: `fun(vector, *args)` gives the value, a float, and the gradient, a float64 NumPy
        vector; `fun.hessp(vector, direction, *args)` the product of the Hessian with a direction; `vector` is `x0` as
        such a vector; `restore(vector)` has the structure, shapes, dtypes, backends and devices of `x0`.

    Raises:
        TypeError: a leaf of `x0` has no real floating-point dtype.
        ValueError: `x0` has no elements, a vector is not of its size, or the result of `f` is not one real number. In
            calls of `fun`: the result does not depend on the vector, as where `f` assigns its argument to Variables.
    """
    import numpy as np  # SciPy's vectors are NumPy's

    check_callable("scipy_objective", "f", f)
    leaves, structure = pytree.flatten(x0)
    tensors: list[Tensor] = []
    for k, leaf in enumerate(leaves):
        if leaf is None or isinstance(leaf, str | bytes):
            raise TypeError(f"scipy_objective: x0{pytree.path(structure, k)} is no array but {leaf!r}")
        tensor = leaf if isinstance(leaf, Tensor) else asarray(leaf)
        if tensor.dtype.kind != "real floating":
            raise TypeError(
                f"scipy_objective: x0{pytree.path(structure, k)} has dtype {tensor.dtype}; what is optimized must be "
                "real floating-point numbers: tape_core.astype(x, 'float64') makes them of integers"
            )
        tensors.append(tensor)
    specs = [(t.shape, t.size, t.dtype, t.backend, t.device) for t in tensors]
    size = sum(spec[1] for spec in specs)
    if size == 0:
        raise ValueError("scipy_objective: x0 has no elements: there is nothing to optimize")

    def flat(tree: PyTree) -> Any:
        parts = [g.densify() if isinstance(g, IndexedSlices) else g for g in pytree.flatten(tree)[0]]
        # SciPy computes in float64, whatever the dtypes of the leaves.
        return np.concatenate([np.asarray(part.numpy(), dtype=np.float64).reshape(-1) for part in parts])

    def restore(vector: ArrayLike) -> PyTree:
        values = np.asarray(vector, dtype=np.float64)
        if values.shape != (size,):
            raise ValueError(f"scipy_objective: x0 has {size} elements; got an array of shape {values.shape}")
        parts, start = [], 0
        for shape, n, dtype, backend, device in specs:
            part = values[start : start + n].reshape(shape)
            # A copy: SciPy may write to its vector.
            parts.append(asarray(part.copy(), dtype=dtype, backend=backend, device=device, copy=True))
            start += n
        return pytree.unflatten(structure, parts)

    return Objective(f, restore, flat, allow_unconnected), flat(tensors), restore
