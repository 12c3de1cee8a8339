"""L-BFGS, which evaluates the loss several times for one step, by a closure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, Never, TypeAlias

import tape_core as tc
from tape_core import IndexedSlices, Tensor, Variable
from tape_core.staging import current
from tape_core.support import assign_together, check_assignable, integer, lenient, pytree, wrap
from tape_core.typing import ArrayLike, PyTree, Raw

from tape_nn.clipping import check_positive
from tape_nn.module import Module
from tape_nn.naming import describe_settings, named_variables, unknown_names
from tape_nn.optimizers.line_search import Point, strong_wolfe
from tape_nn.optimizers.pairs import check_gradient, names_of
from tape_nn.thresholds import SMALLEST_CURVATURE

Closure: TypeAlias = Callable[[], Any]
"""A function without arguments that returns the loss, or the loss and its gradients."""

_ARRAYS = ("s", "y", "gradient", "direction")
_NUMBERS = ("distance", "scale")
_COUNTS = ("iterations", "evaluations")


class LBFGS:
    """L-BFGS (Liu and Nocedal, 1989): a quasi-Newton method for losses that are the same function in each call.

    `step(closure, variables)` calls the closure several times, with other values in the Variables, and leaves them at
    the best. The closure returns the loss; its gradients are taken with a tape, or returned by the closure as well. Use
    all data, or the same batch for the whole step, and no dropout. Variables of mixed dtypes are worked on in the
    widest.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> p = tc.Variable([-1.2, 1.0])
    >>> def rosenbrock():
    ...     return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
    >>> optimizer = nn.LBFGS(max_iter=100)
    >>> loss = optimizer.step(rosenbrock, [p])
    >>> round(loss.item(), 2), bool(tc.all(tc.abs(p - 1) < 1e-2))
    (24.2, True)

    A closure may be compiled by `tape_core.function`; the step itself decides by values and cannot be. For a pure
    function, `tape_core.scipy_objective` leads to SciPy's minimizers.

    Args:
        learning_rate: the first distance to try, in units of the quasi-Newton step; without a line search the distance.
        max_iter: the largest number of iterations in a step.
        max_eval: the largest number of evaluations in a step, by default 1.25 times `max_iter`. A line search that has
            begun is ended.
        tolerance_grad: a step ends where no element of the gradient is larger.
        tolerance_change: a step ends where the Variables, or the loss, change by less.
        history_size: the number of pairs of changes, of the Variables and the gradient, that are kept.
        line_search: `"strong_wolfe"`, or None for steps of the same length, as PyTorch has by default.

    Raises:
        TypeError, ValueError: a number is out of range, or `line_search` something else.
    """

    def __init__(
        self,
        learning_rate: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search: Literal["strong_wolfe"] | None = "strong_wolfe",
    ) -> None:
        self.learning_rate = check_positive("LBFGS: learning_rate", learning_rate)
        self.max_iter = integer("LBFGS", "max_iter", max_iter, 1)
        self.max_eval = self.max_iter * 5 // 4 if max_eval is None else integer("LBFGS", "max_eval", max_eval, 1)
        self.tolerance_grad = check_positive("LBFGS: tolerance_grad", tolerance_grad)
        self.tolerance_change = check_positive("LBFGS: tolerance_change", tolerance_change)
        self.history_size = integer("LBFGS", "history_size", history_size, 1)
        if line_search not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: line_search must be 'strong_wolfe' or None; got {line_search!r}")
        self.line_search = line_search
        self.iterations = 0
        self.evaluations = 0
        self._variables: list[Variable] = []
        self._state: dict[str, Any] = {}

    @lenient
    def __repr__(self) -> str:
        return describe_settings(self)

    def apply_gradients(self, *args: object, **kwargs: object) -> Never:
        """Raise an error: one gradient is not enough.

        Raises:
            TypeError: always; it says what to call.
        """
        raise TypeError(
            "LBFGS evaluates the loss several times for a step, so it takes no gradients: call "
            "optimizer.step(closure, variables), where closure() returns the loss"
        )

    scale_loss = apply_gradients

    def step(self, closure: Closure, variables: PyTree) -> Tensor:
        """Move the Variables to where the loss is smaller; return the loss before that.

        If the closure raises an error, the Variables and the optimizer are as they were before.

        Args:
            closure: returns the loss, a real number; or a pair of the loss and its gradients, in the structure of
                `variables` or as a list.
            variables: a Module, whose trainable Variables are meant, or any pytree of Variables: the same in each step.

        Raises:
            TypeError: what is given or returned is something else; the Variables are complex, or on several backends.
            ValueError: the Variables are others than before.
            FloatingPointError: the loss or its gradient is not finite where the step begins.
            TracingError: it is called in a compiled function.
        """
        stage = current()
        if stage is not None:
            stage.require_value("the loss in LBFGS.step, which decides by it (compile the closure instead)")
        if not callable(closure):
            raise TypeError(f"LBFGS.step takes a closure, a function that returns the loss; got {closure!r}")
        own = self._check(variables)
        problem = _Problem(closure, own)
        before = [wrap(v._array, v.backend) for v in own]
        # Work on a copy of the state, so that an error leaves it.
        found = dict(self._state, s=list(self._state.get("s", [])), y=list(self._state.get("y", [])))
        try:
            with own[0].backend.quiet():
                iterations, x = self._iterate(problem, found)
            problem.assign(x)
        except BaseException:
            assign_together(own, before)
            raise
        self._state, self._variables = found, own
        self.iterations += iterations
        self.evaluations += problem.evaluations
        first: Tensor = problem.first
        return first

    def _check(self, variables: PyTree) -> list[Variable]:
        leaves = list(variables.trainable_variables) if isinstance(variables, Module) else pytree.flatten(variables)[0]
        for leaf in leaves:
            if not isinstance(leaf, Variable):
                raise TypeError(
                    f"LBFGS.step takes Variables; got an element of type {type(leaf).__name__!r}. For a function of "
                    "Tensors see tape_core.scipy_objective"
                )
            check_assignable(leaf)
            if leaf.dtype.kind != "real floating":
                raise TypeError(f"LBFGS updates real variables; {names_of([leaf])} has dtype {leaf.dtype}")
            if leaf.backend is not leaves[0].backend:
                raise TypeError(f"LBFGS: {names_of([leaf])} is on another backend than {names_of([leaves[0]])}")
        if not leaves:
            raise ValueError("LBFGS.step: there are no Variables to optimize")
        size = sum([leaf.size for leaf in leaves])
        others = self._variables and [id(leaf) for leaf in leaves] != [id(leaf) for leaf in self._variables]
        if others or (self._state and self._state["gradient"].shape != (size,)):
            raise ValueError("LBFGS.step: the Variables are others than before; make an optimizer for them")
        return leaves

    def _iterate(self, problem: _Problem, state: dict[str, Any]) -> tuple[int, Raw]:
        """Iterate until one of the limits is reached; return the number of iterations and the last values."""
        xp = problem.xp
        x = problem.values()
        loss, gradient = problem.evaluate(None)
        if not math.isfinite(loss) or not math.isfinite(_largest(xp, gradient)):
            raise FloatingPointError(
                f"LBFGS: the loss or its gradient is not finite where the step begins; the loss is {loss}"
            )
        iterations = 0
        while iterations < self.max_iter and _largest(xp, gradient) > self.tolerance_grad:
            is_first = "gradient" not in state
            direction = -gradient if is_first else self._direction(xp, gradient, state)
            slope = _dot(xp, gradient, direction)
            if slope > -self.tolerance_change:
                break
            iterations += 1
            # The very first step has no curvature to go by: its length is at most that of one unit.
            t = self.learning_rate * (min(1.0, 1.0 / float(xp.sum(xp.abs(gradient)))) if is_first else 1.0)
            before, base = loss, x
            state["gradient"], state["direction"] = gradient, direction
            if self.line_search is None:
                x = base + direction * t
                # The last values need no gradient.
                if iterations < self.max_iter:
                    loss, gradient = problem.evaluate(x)
            else:

                def at(t: float, base: Raw = base, direction: Raw = direction) -> Point:
                    value, g = problem.evaluate(base + direction * t)
                    return Point(t, value, _dot(xp, g, direction), g)

                smallest = self.tolerance_change / max(_largest(xp, direction), self.tolerance_change)
                point = strong_wolfe(at, Point(0.0, loss, slope, gradient), t, smallest)
                t, loss, gradient = point.t, point.value, point.gradient
                x = base + direction * t
            state["distance"] = t
            if problem.evaluations >= self.max_eval or _largest(xp, direction) * t <= self.tolerance_change:
                break
            if abs(loss - before) < self.tolerance_change:
                break
        return iterations, x

    def _direction(self, xp: Any, gradient: Raw, state: dict[str, Any]) -> Raw:
        """Return minus the product of the inverse Hessian's approximation and the gradient: the two-loop recursion."""
        y, s = gradient - state["gradient"], state["direction"] * state["distance"]
        curvature = _dot(xp, y, s)
        if curvature > SMALLEST_CURVATURE:
            state["s"], state["y"] = [*state["s"], s][-self.history_size :], [*state["y"], y][-self.history_size :]
            state["scale"] = curvature / _dot(xp, y, y)
        q = -gradient
        shares = []
        for s, y in zip(reversed(state["s"]), reversed(state["y"]), strict=True):
            shares.append(_dot(xp, s, q) / _dot(xp, y, s))
            q = q - y * shares[-1]
        q = q * state.get("scale", 1.0)
        for s, y, share in zip(state["s"], state["y"], reversed(shares), strict=True):
            q = q + s * (share - _dot(xp, y, q) / _dot(xp, y, s))
        return q

    def state_dict(self, variables: Module | Mapping[str, Variable]) -> dict[str, Tensor]:
        """Return copies of what the optimizer has learned about the curvature, and its counters.

        Args:
            variables: as for the other optimizers; all of them together are one vector here.
        """
        state = {name: tc.asarray(getattr(self, name), dtype=tc.int64) for name in _COUNTS}
        state["learning_rate"] = tc.asarray(self.learning_rate, dtype=tc.float64)
        if self._state:
            home = self._home(variables)
            arrays = {name: self._state[name] for name in ("gradient", "direction")}
            if self._state["s"]:
                arrays |= {name: home.xp.stack(self._state[name]) for name in ("s", "y")}
            state |= {name: wrap(home.asarray(array, copy=True), home) for name, array in arrays.items()}
            state |= {n: tc.asarray(self._state[n], dtype=tc.float64) for n in _NUMBERS if n in self._state}
        return state

    def _home(self, variables: Module | Mapping[str, Variable]) -> Any:
        return named_variables(variables)[0][1].backend

    def load_state_dict(self, state: Mapping[str, ArrayLike], variables: Module | Mapping[str, Variable]) -> None:
        """Continue from a state that :meth:`state_dict` gave.

        Raises:
            ValueError: a name is unknown or missing, or the size is not that of the Variables. Nothing is changed.
        """
        known = (*_COUNTS, *_ARRAYS, *_NUMBERS, "learning_rate")
        if unknown := [name for name in state if name not in known]:
            raise ValueError(unknown_names("load_state_dict", unknown, known))
        if missing := [name for name in _COUNTS if name not in state]:
            raise ValueError(f"load_state_dict: {missing[0]!r} is missing: this is no state of an LBFGS")
        found: dict[str, Any] = {}
        if "gradient" in state:
            named = [v for _, v in named_variables(variables)]
            trained = [v for v in named if v.trainable] if isinstance(variables, Module) else named
            size = sum([variable.size for variable in trained])
            home, device = trained[0].backend, trained[0].device
            for name in _ARRAYS:
                if name in state:
                    array = tc.asarray(state[name], copy=True, backend=home, device=device)
                    if array.shape[-1:] != (size,):
                        raise ValueError(
                            f"load_state_dict: {name!r} has shape {array.shape}; the Variables {size} elements"
                        )
                    found[name] = array._array
            for name in ("s", "y"):
                rows = found.get(name)
                found[name] = [] if rows is None else [rows[k, ...] for k in range(rows.shape[0])]
            found |= {name: float(state[name]) for name in _NUMBERS if name in state}
        self.iterations, self.evaluations = (int(state[name]) for name in _COUNTS)
        if "learning_rate" in state:
            self.learning_rate = float(state["learning_rate"])
        self._state = found


class _Problem:
    """The loss as a function of one vector: the values of all Variables, one after the other."""

    first: Tensor

    def __init__(self, closure: Closure, variables: list[Variable]) -> None:
        self.closure = closure
        self.variables = variables
        self.backend = variables[0].backend
        self.xp = self.backend.xp
        widest = max(variables, key=lambda v: tc.finfo(v.dtype).bits).dtype
        self.dtype = self.backend.raw_dtype(widest)
        self.evaluations = 0

    def values(self) -> Raw:
        return self._joined([variable._array for variable in self.variables])

    def _joined(self, arrays: list[Raw]) -> Raw:
        xp = self.xp
        return xp.concat([xp.astype(xp.reshape(array, (-1,)), self.dtype) for array in arrays])

    def assign(self, x: Raw) -> None:
        """Give the Variables the values in a vector."""
        place, values = 0, []
        for variable in self.variables:
            part = self.xp.reshape(x[place : place + variable.size], variable.shape)
            part = self.xp.astype(part, self.backend.raw_dtype(variable.dtype))
            values.append(wrap(part, self.backend))
            place += variable.size
        assign_together(self.variables, values)

    def evaluate(self, x: Raw | None) -> tuple[float, Raw]:
        """Return the loss and its gradient at a vector, or where the Variables are."""
        if x is not None:
            self.assign(x)
        self.evaluations += 1
        with tc.GradientTape() as tape:
            tape.watch(self.variables)
            found = self.closure()
        if isinstance(found, tuple | list) and len(found) == 2:
            loss, gradients = found
            gradients = pytree.flatten(gradients)[0]
            if len(gradients) != len(self.variables):
                raise ValueError(
                    f"LBFGS: the closure returned {len(gradients)} gradients for {len(self.variables)} Variables"
                )
        else:
            loss, gradients = found, None
        if not isinstance(loss, Tensor) or loss.shape != () or loss.dtype.kind != "real floating":
            shown = (
                f"shape {loss.shape} and dtype {loss.dtype}" if isinstance(loss, Tensor) else repr(type(loss).__name__)
            )
            raise TypeError(f"LBFGS: the closure must return the loss, a real number as a Tensor; got {shown}")
        if gradients is None:
            gradients = tape.gradient(loss, self.variables)
        if all([gradient is None for gradient in gradients]):
            raise ValueError(f"LBFGS: the loss does not depend on any variable: {names_of(self.variables)}")
        if self.evaluations == 1:
            self.first = tc.stop_gradient(loss)
        return float(loss), self._joined([self._raw(g, v) for g, v in zip(gradients, self.variables, strict=True)])

    def _raw(self, gradient: Any, variable: Variable) -> Raw:
        if gradient is None:
            return self.xp.zeros_like(variable._array)
        own = check_gradient(gradient, variable)
        return own.densify()._array if isinstance(own, IndexedSlices) else own


def _dot(xp: Any, a: Raw, b: Raw) -> float:
    return float(xp.sum(a * b))


def _largest(xp: Any, a: Raw) -> float:
    return float(xp.max(xp.abs(a)))
