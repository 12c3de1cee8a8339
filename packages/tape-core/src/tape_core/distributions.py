"""Distributions of random numbers: the methods of a Generator, from uniform numbers to Dirichlet vectors.

Samples are differentiable in parameters wherever a derivative exists: by arithmetic, as `loc + scale * noise`, and for
those made of gamma variables by implicit reparameterization. A discrete sample has no derivative.

Methods that reject candidates make a fixed number of attempts, for all elements at once, so that how many numbers are
drawn depends on shapes alone, and a compiled function draws what an eager one does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tape_core.backends import selection
from tape_core.backends.random_kernels import WORD
from tape_core.base import dtypes
from tape_core.base.ambient import OPEN_AXES
from tape_core.base.lookup import ops
from tape_core.base.mistakes import explaining, integer, shape_of
from tape_core.engine import counts
from tape_core.engine.tensor import Tensor, read_array
from tape_core.staging import current, value_check
from tape_core.typing import ArrayLike, BackendLike, DTypeLike, ShapeLike

if TYPE_CHECKING:
    from tape_core.random import Draw

Sampler = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Makes a candidate of a normal and a uniform number (or two uniform ones), and tells whether it is accepted."""

SMALLEST_FRACTION: Final = 2.0**-25
"""Half of the smallest positive number that is drawn in float32: it takes the place of 0 before a logarithm."""

SUM_TOLERANCE: Final = 1e-3  # of probabilities, which may be rounded; they are divided by their sum

GAMMA_ATTEMPTS: Final = 6  # each fails for at most 1 in 20 elements: all of them for 1 in 60 million


class Parameters(NamedTuple):
    """The parameters of a distribution as Tensors of one dtype, and what a sample of it is to be like."""

    values: tuple[Tensor, ...]
    shape: tuple[int, ...]
    dtype: dtypes.DType
    backend: BackendLike
    device: str | None


def floating(what: str, dtype: DTypeLike, backend: BackendLike) -> dtypes.DType:
    """Check that a dtype is floating: as integers, most values would be 0; as complex numbers, all imaginary parts."""
    if dtype is None:
        return dtypes.get_default_dtype()
    found = dtypes.as_dtype(dtype) or selection.select(backend).backend.dtype(dtype)
    if found.kind != "real floating":
        raise TypeError(f"{what}: dtype must be floating; got {found}; Generator.integers draws integers")
    return found


def drawn_dtype(dtype: dtypes.DType) -> dtypes.DType:
    """Return the dtype in which numbers are drawn that are of another, narrower one afterwards."""
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


class Distributions:
    """The base class of Generator: the distributions, by the draws that it declares."""

    if TYPE_CHECKING:

        def _plan(self, kernel: str, shape: tuple[int, ...], *parameters: str | int) -> Draw: ...
        def _take(self, blocks: int) -> tuple[int, int, int]: ...
        def _draw(
            self,
            kernel: str,
            shape: tuple[int, ...],
            *parameters: str | int,
            backend: BackendLike,
            device: str | None,
        ) -> Tensor: ...

    def uniform(
        self,
        shape: ShapeLike | None = None,
        *,
        low: ArrayLike = 0.0,
        high: ArrayLike = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw uniform values in [low, high); differentiable in both.

        Args:
            shape: of the result; by default that of `low` and `high` together.
        """
        plain = isinstance(low, int | float) and isinstance(high, int | float)
        if plain:
            shape, kind = shape_of("uniform", () if shape is None else shape), floating("uniform", dtype, backend)
        else:
            given = {"low": low, "high": high}
            (low, high), shape, kind, backend, device = parameters("uniform", given, shape, dtype, backend, device)
        values = self._draw("uniform", shape, drawn_dtype(kind).name, backend=backend, device=device)
        # Keep no more bits than the dtype has: rounded to it, a value such as 1 - 2**-24 would become 1.
        values = _truncate(values, kind)
        if not plain or (low, high) != (0, 1):
            values = values * (high - low) + low
        return values

    def normal(
        self,
        shape: ShapeLike | None = None,
        *,
        mean: ArrayLike = 0.0,
        stddev: ArrayLike = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw normally distributed values, by the Box-Muller transform; differentiable in `mean` and `stddev`.

        Args:
            shape: of the result; by default that of `mean` and `stddev` together.
        """
        plain = isinstance(mean, int | float) and isinstance(stddev, int | float)
        if plain:
            shape, kind = shape_of("normal", () if shape is None else shape), floating("normal", dtype, backend)
        else:
            given = {"mean": mean, "stddev": stddev}
            (mean, stddev), shape, kind, backend, device = parameters("normal", given, shape, dtype, backend, device)
        values = self._draw("normal", shape, drawn_dtype(kind).name, backend=backend, device=device)
        if not plain or stddev != 1:
            values = values * stddev
        if not plain or mean != 0:
            values = values + mean
        return ops.astype(values, kind) if values.dtype is not kind else values

    def integers(
        self,
        low: int,
        high: int | None = None,
        shape: ShapeLike = (),
        *,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw integers in [low, high), int64; with one bound alone, as in `integers(10)`, in [0, low)."""
        low, high = (0, low) if high is None else (low, high)
        low, high = integer("integers", "low", low), integer("integers", "high", high)
        if high <= low:
            raise ValueError(f"integers: high must be above low, got low={low}, high={high}")
        if low < -(WORD >> 1) or high > WORD >> 1:
            raise OverflowError(f"integers: low={low}, high={high} are not all in int64")
        return self._draw("integers", shape_of("integers", shape), low, high, backend=backend, device=device)

    def permutation(self, n: int, *, backend: BackendLike = None, device: str | None = None) -> Tensor:
        """Draw the integers 0 ... n - 1 in random order, int64."""
        if getattr(n, "shape", ()) != ():
            raise TypeError("permutation: n must be an integer; shuffle(x) puts those of an array in random order")
        n = integer("permutation", "n", n, 0)
        return self._draw("permutation", (n,), backend=backend, device=device)

    # -- location and scale

    def exponential(
        self,
        shape: ShapeLike | None = None,
        *,
        scale: ArrayLike = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw exponentially distributed values with the mean `scale`."""
        p = parameters("exponential", {"scale": scale}, shape, dtype, backend, device)
        return self._scaled(p, lambda u: -ops.log1p(-u), None, *p.values)

    def gumbel(
        self,
        shape: ShapeLike | None = None,
        *,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw values of the Gumbel distribution, that of the maximum of many."""
        p = parameters("gumbel", {"loc": loc, "scale": scale}, shape, dtype, backend, device)
        return self._scaled(p, lambda u: -ops.log(-ops.log(_positive(u))), *p.values)

    def laplace(
        self,
        shape: ShapeLike | None = None,
        *,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw values of the Laplace distribution: two exponential ones, back to back."""

        def standard(u: Tensor) -> Tensor:
            side = 2 * u - 1
            return -ops.sign(side) * ops.log(_positive(1 - ops.abs(side)))

        p = parameters("laplace", {"loc": loc, "scale": scale}, shape, dtype, backend, device)
        return self._scaled(p, standard, *p.values)

    def logistic(
        self,
        shape: ShapeLike | None = None,
        *,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw values of the logistic distribution, whose distribution function is the sigmoid."""

        def standard(u: Tensor) -> Tensor:
            u = _positive(u)
            return ops.log(u) - ops.log1p(-u)

        p = parameters("logistic", {"loc": loc, "scale": scale}, shape, dtype, backend, device)
        return self._scaled(p, standard, *p.values)

    def cauchy(
        self,
        shape: ShapeLike | None = None,
        *,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw values of the Cauchy distribution, which has no mean."""
        p = parameters("cauchy", {"loc": loc, "scale": scale}, shape, dtype, backend, device)
        return self._scaled(p, lambda u: ops.tan((u - 0.5) * math.pi), *p.values)

    def truncated_normal(
        self,
        shape: ShapeLike | None = None,
        *,
        low: ArrayLike = -2.0,
        high: ArrayLike = 2.0,
        mean: ArrayLike = 0.0,
        stddev: ArrayLike = 1.0,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw normally distributed values that are at most `low` and `high` standard deviations from the mean.

        They are differentiable in all four parameters. A value is `mean + stddev * z` with z in [low, high].
        """
        given = {"low": low, "high": high, "mean": mean, "stddev": stddev}
        p = parameters("truncated_normal", given, shape, dtype, backend, device)
        # In float64, since the distribution function is nearly 1 above the mean; and so that both tails are accurate,
        # an interval that lies more to the right is reflected.
        low, high, mean, stddev = [ops.astype(value, "float64") for value in p.values]
        flipped = low + high > 0
        left, right = ops.where(flipped, -high, low), ops.where(flipped, -low, high)
        u = self.uniform(p.shape, dtype="float64", backend=p.backend, device=p.device)
        below = ops.ndtr(left)
        z = ops.ndtri(_positive(below + u * (ops.ndtr(right) - below), 1e-300))
        z = ops.clip(z, left, right)
        return ops.astype(ops.where(flipped, -z, z) * stddev + mean, p.dtype)

    def student_t(
        self,
        df: ArrayLike,
        *,
        loc: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        shape: ShapeLike | None = None,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw values of Student's distribution with `df` degrees of freedom; differentiable in all parameters."""
        p = parameters("student_t", {"df": df, "loc": loc, "scale": scale}, shape, dtype, backend, device)
        count, center, width = p.values
        half = 0.5 * ops.broadcast_to(count, p.shape)
        z = self.normal(p.shape, dtype=drawn_dtype(p.dtype), backend=p.backend, device=p.device)
        t = z * ops.exp(0.5 * (ops.log(half) - self._log_gamma(half)))
        return ops.astype(t * width + center, p.dtype)

    def multivariate_normal(
        self,
        mean: ArrayLike,
        covariance: ArrayLike,
        *,
        shape: ShapeLike = (),
        dtype: DTypeLike = None,
    ) -> Tensor:
        """Draw vectors with a mean and a covariance matrix, by its Cholesky factor; differentiable in both.

        Args:
            mean: the mean, with the vectors along the last axis.
            covariance: positive definite matrices; axes before the last two broadcast with those of `mean`.
            shape: of as many independent draws; these axes come first.
        """
        center, matrix = _floats(mean, "multivariate_normal: mean"), _floats(covariance, "multivariate_normal")
        if matrix.ndim < 2 or center.ndim < 1 or not matrix.shape[-1] == matrix.shape[-2] == center.shape[-1]:
            raise ValueError(
                f"multivariate_normal: mean must be vectors and covariance square matrices of the same length; got "
                f"shapes {center.shape} and {matrix.shape}"
            )
        kind = floating("multivariate_normal", matrix.dtype if dtype is None else dtype, None)
        whole = (
            *shape_of("multivariate_normal", shape),
            *_common_shape(center.shape[:-1], matrix.shape[:-2]),
            center.shape[-1],
        )
        z = self.normal(whole, dtype=drawn_dtype(kind), backend=matrix.backend.root, device=_device_of(matrix))
        factor = ops.matrix_transpose(ops.cholesky(ops.astype(matrix, z.dtype)))
        # One product for all draws, unless each has a factor of its own.
        found = z @ factor if factor.ndim == 2 else (z[..., None, :] @ factor)[..., 0, :]
        return ops.astype(found + center, kind)

    # -- made of gamma variables

    def gamma(
        self,
        a: ArrayLike,
        *,
        scale: ArrayLike = 1.0,
        shape: ShapeLike | None = None,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw values of the gamma distribution with the density x**(a - 1) * exp(-x) / gamma(a), times `scale`.

        The derivative by `a` is that of the quantile at which a value is.

        >>> import tape_core as tc
        >>> mean = lambda a: tc.mean(tc.default_rng(0).gamma(a, shape=2000))
        >>> print(f"{mean(3.0).item():.2f} {tc.grad(mean)(tc.asarray(3.0)).item():.2f}")
        3.02 1.00

        Sources: Marsaglia and Tsang, A simple method for generating gamma variables, ACM Transactions on Mathematical
        Software 26, 2000; Figurnov, Mohamed and Mnih, Implicit reparameterization gradients, NeurIPS 2018.
        """
        p = parameters("gamma", {"a": a, "scale": scale}, shape, dtype, backend, device)
        a, scale = p.values
        found = ops.exp(self._log_gamma(ops.broadcast_to(a, p.shape)))
        return ops.astype(found * scale, p.dtype)

    def beta(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        shape: ShapeLike | None = None,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw values of the beta distribution, as shares of two gamma variables; differentiable in `a` and `b`."""
        p = parameters("beta", {"a": a, "b": b}, shape, dtype, backend, device)
        first, second = [self._log_gamma(ops.broadcast_to(value, p.shape)) for value in p.values]
        return ops.astype(ops.expit(first - second), p.dtype)

    def dirichlet(
        self,
        concentration: ArrayLike,
        *,
        shape: ShapeLike | None = None,
        dtype: DTypeLike = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw vectors of positive numbers whose sum is 1; differentiable in `concentration`.

        Args:
            concentration: positive numbers, along the last axis.
            shape: of the result without the last axis; by default that of `concentration`.
        """
        value = _floats(concentration, "dirichlet: concentration")
        if value.ndim == 0:
            raise ValueError("dirichlet: concentration must have an axis; got a number")
        whole = value.shape if shape is None else (*shape_of("dirichlet", shape), value.shape[-1])
        p = parameters("dirichlet", {"concentration": value}, whole, dtype, backend, device)
        logs = self._log_gamma(ops.broadcast_to(p.values[0], p.shape))
        return ops.astype(ops.softmax(logs, axis=-1), p.dtype)

    # -- discrete

    def bernoulli(
        self,
        p: ArrayLike = 0.5,
        *,
        shape: ShapeLike | None = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw True with the probability `p`."""
        given = parameters("bernoulli", {"p": p}, shape, None, backend, device)
        u = self.uniform(given.shape, dtype=drawn_dtype(given.dtype), backend=given.backend, device=given.device)
        return u < given.values[0]

    def categorical(
        self,
        logits: ArrayLike,
        *,
        axis: int = -1,
        shape: ShapeLike | None = None,
    ) -> Tensor:
        """Draw indices with the probabilities `softmax(logits, axis)`, int64.

        Args:
            logits: logarithms of probabilities, up to a constant; -inf for what is never drawn.
            axis: where the alternatives are.
            shape: of the result; the shape of `logits` without `axis` must broadcast to it, and is it by default.
        """
        scores = ops.moveaxis(ops.stop_gradient(_array(logits, "categorical: logits")), axis, -1)
        whole = scores.shape if shape is None else (*shape_of("categorical", shape), scores.shape[-1])
        # argmax(logits + Gumbel noise) has the distribution softmax(logits).
        noise = self.gumbel(
            whole, dtype=drawn_dtype(scores.dtype), backend=scores.backend.root, device=_device_of(scores)
        )
        return ops.argmax(_fitting("categorical", scores + noise, whole), axis=-1)

    def choice(
        self,
        a: int | ArrayLike,
        shape: ShapeLike = (),
        *,
        replace: bool = True,
        p: ArrayLike | None = None,
        axis: int = 0,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw elements of an array along `axis`, or integers below `a`; differentiable in the array.

        >>> import tape_core as tc
        >>> tc.default_rng(0).choice(5, 5, replace=False).tolist()
        [1, 3, 4, 2, 0]

        Args:
            shape: how many. Where `a` is an array, these axes take the place of `axis`.
            replace: whether one may be drawn again.
            p: the probabilities, with the sum 1; by default all are equal.
        """
        shape = shape_of("choice", shape)
        array = None if type(a) is int else _array(a, "choice: a")
        if array is not None:
            backend, device = array.backend.root, _device_of(array)
            if array.ndim == 0:
                raise ValueError("choice: a must be an int or have an axis; got a number")
        n = integer("choice", "a", a, 0) if array is None else array.shape[axis]
        where: dict[str, Any] = {"backend": backend, "device": device}
        count = math.prod(shape)
        if count and not n:
            raise ValueError("choice: there is nothing to choose from")
        if not replace and count > n:
            raise ValueError(f"choice: {count} cannot be chosen of {n} without replacement")
        if p is None:
            found = self.integers(0, n or 1, shape, **where) if replace else self.permutation(n, **where)[:count]
        else:
            weights = ops.stop_gradient(_floats(p, "choice: p"))
            if weights.shape != (n,):
                raise ValueError(f"choice: p must have shape ({n},), got {weights.shape}")
            weights = ops.astype(weights, "float64")
            _check_weights(weights, 1 if replace else count)
            where = {"backend": weights.backend.root, "device": _device_of(weights)}
            if replace:
                sums = ops.cumulative_sum(weights)
                u = self.uniform((count,), dtype="float64", **where) * sums[-1]
                # A fraction may be rounded up to the whole sum.
                found = ops.minimum(ops.searchsorted(sums, u, side="right"), n - 1)
            else:
                possible = weights > 0
                scores = ops.where(possible, ops.log(ops.where(possible, weights, 1)), -math.inf)
                scores = scores + self.gumbel((n,), dtype="float64", **where)
                found = ops.argsort(scores, descending=True)[:count]
        if array is None:
            return ops.reshape(found, shape)
        axis = axis % array.ndim
        taken = ops.take(array, ops.reshape(found, (-1,)), axis=axis)
        return ops.reshape(taken, (*array.shape[:axis], *shape, *array.shape[axis + 1 :]))

    def shuffle(self, x: ArrayLike, *, axis: int = 0) -> Tensor:
        """Return the slices of an array along `axis` in random order; differentiable. The array is not changed."""
        value = _array(x, "shuffle: x")
        if value.ndim == 0:
            raise ValueError("shuffle: x must have an axis; got a number")
        order = self.permutation(value.shape[axis], backend=value.backend.root, device=_device_of(value))
        return ops.take(value, order, axis=axis)

    def poisson(
        self,
        rate: ArrayLike,
        *,
        shape: ShapeLike | None = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw counts with the mean `rate`, int64.

        Below a rate of 10, the distribution function is searched; else candidates are rejected.
        """
        p = parameters("poisson", {"rate": rate}, shape, None, backend, device)
        rate = ops.astype(ops.broadcast_to(ops.stop_gradient(p.values[0]), p.shape), "float64")
        where: dict[str, Any] = {"dtype": "float64", "backend": p.backend, "device": p.device}
        u = self.uniform(p.shape, **where)
        few = rate < counts.SEARCH_BELOW
        small = ops.where(few, rate, 1.0)
        found = counts.searched(u, ops.exp(-small), lambda k: small / k)
        large = ops.where(few, counts.SEARCH_BELOW, rate)
        many = self._attempts(
            counts.poisson_attempt(large), ops.floor(large), counts.ATTEMPTS, p, "uniform", dtypes.float64
        )
        return ops.astype(ops.where(few, found, many), "int64")

    def binomial(
        self,
        n: ArrayLike,
        p: ArrayLike,
        *,
        shape: ShapeLike | None = None,
        backend: BackendLike = None,
        device: str | None = None,
    ) -> Tensor:
        """Draw how many of `n` trials succeed, each with the probability `p`, int64.

        >>> import tape_core as tc
        >>> tc.default_rng(0).binomial(10, tc.asarray([0.0, 0.5, 1.0]), shape=(2, 3))[:, 2].tolist()
        [10, 10]

        Where the mean of successes, or of failures, is below 10, the distribution function is searched; else candidates
        are rejected.

        Raises:
            ValueError: `n` is no whole number of at least 0, or `p` is not from 0 to 1.
        """
        given = parameters("binomial", {"n": n, "p": p}, shape, "float64", backend, device)
        wide = [ops.broadcast_to(ops.stop_gradient(value), given.shape) for value in given.values]
        _check_trials(*wide)
        trials, chance = wide
        is_likely = chance > 0.5
        q = ops.where(is_likely, 1 - chance, chance)  # of the rarer outcome, which is counted
        few = trials * q < counts.SEARCH_BELOW
        u = self.uniform(given.shape, dtype="float64", backend=given.backend, device=given.device)
        small = ops.where(few, q, 0.0)
        odds = small / (1 - small)
        found = counts.searched(u, ops.exp(trials * ops.log1p(-small)), lambda k: odds * (trials - (k - 1)) / k)
        found = ops.minimum(found, trials)
        many_trials, many_q = ops.where(few, 40.0, trials), ops.where(few, 0.5, q)
        attempt, mode = counts.binomial_attempt(many_trials, many_q)
        many = self._attempts(attempt, mode, counts.ATTEMPTS, given, "uniform", dtypes.float64)
        successes = ops.where(few, found, many)
        return ops.astype(ops.where(is_likely, trials - successes, successes), "int64")

    # -- tools

    def _scaled(self, p: Parameters, standard: Callable[[Tensor], Tensor], loc: Tensor | None, scale: Tensor) -> Tensor:
        """Return `loc + scale * standard(u)` for uniform u."""
        u = self.uniform(p.shape, dtype=drawn_dtype(p.dtype), backend=p.backend, device=p.device)
        found = standard(u) * scale
        return ops.astype(found if loc is None else found + loc, p.dtype)

    def _log_gamma(self, a: Tensor) -> Tensor:
        """Return logarithms of gamma variables, float32 or float64: those of small `a` are too small themselves."""
        kind = drawn_dtype(a.dtype)
        a = ops.astype(a, kind)
        p = Parameters((a,), a.shape, kind, a.backend.root, _device_of(a))
        # Below 1 a variable is one of a + 1 times u**(1 / a).
        small = a < 1
        raised = ops.where(small, a + 1, a)
        d = ops.stop_gradient(raised) - 1 / 3
        c = 1 / ops.sqrt(9 * d)

        def attempt(z: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
            v = 1 + c * z
            v = v * v * v
            inside = v > 0
            v = ops.where(inside, v, 1)
            return d * v, inside & (ops.log(_positive(u)) < 0.5 * z * z + d * (1 - v + ops.log(v)))

        x = self._attempts(attempt, d, GAMMA_ATTEMPTS, p, "normal", kind)
        e = self.exponential(a.shape, dtype=kind, backend=p.backend, device=p.device)
        return ops.log(_gamma_sample(raised, x)) - ops.where(small, e / a, 0)

    def _attempts(
        self, attempt: Sampler, otherwise: Tensor, attempts: int, p: Parameters, first: str, kind: dtypes.DType
    ) -> Tensor:
        """Return for each element the first candidate that is accepted, else the number `otherwise`."""
        where: dict[str, Any] = {"dtype": kind, "backend": p.backend, "device": p.device}
        # Eagerly, no further attempts are made once all are accepted; the generator still goes on by all of them.
        may_stop = current() is None and not OPEN_AXES.get()
        found, open_ = otherwise, None
        for k in range(attempts):
            candidate, accepted = attempt(getattr(self, first)(p.shape, **where), self.uniform(p.shape, **where))
            chosen = accepted if open_ is None else accepted & open_
            found = ops.where(chosen, candidate, found)
            open_ = ~accepted if open_ is None else open_ & ~accepted
            if may_stop and not bool(ops.any(open_)):
                blocks = sum([self._plan(kernel, p.shape, kind.name).blocks for kernel in (first, "uniform")])
                self._take((attempts - 1 - k) * blocks)
                break
        return found


for _name, _method in list(vars(Distributions).items()):
    if not _name.startswith("_") and callable(_method):
        setattr(Distributions, _name, explaining(_method))


def _gamma_sample(a: Tensor, x: Tensor) -> Tensor:
    """Return gamma variables `x` that were drawn with the parameter `a`, as a function of it."""

    def sample(a: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        def grad(g: Tensor) -> Tensor:
            again = differentiable(a)  # not `x`: a second derivative needs its derivative by `a`
            # F(a, x) stays as it is: dx / da = -(dF / da) / (dF / dx).
            density = ops.exp(ops.xlogy(a - 1, again) - again - ops.gammaln(a))
            end = density == 0
            return g * ops.where(end, 0, -ops.gammainc_derivative(a, again) / ops.where(end, 1, density))

        return ops.where(a == a, x, a), grad

    custom_gradient: Any = ops.custom_gradient  # a function, not an op: it returns no Tensor
    differentiable: Callable[[Tensor], Tensor] = custom_gradient(sample)
    return differentiable(a)


def _array(value: ArrayLike, where: str) -> Tensor:
    """Return an argument as a Tensor; it may be a list of numbers."""
    return ops.asarray(value) if isinstance(value, list | tuple) else read_array(value, where)


def _floats(value: ArrayLike, where: str) -> Tensor:
    """Return a parameter as a Tensor; integers in a list become floats, as numbers do."""
    found = _array(value, where)
    is_list = isinstance(value, list | tuple) and not found.dtype.inexact
    return ops.astype(found, dtypes.get_default_dtype()) if is_list else found


def parameters(
    what: str,
    given: dict[str, ArrayLike],
    shape: ShapeLike | None,
    dtype: DTypeLike,
    backend: BackendLike,
    device: str | None,
) -> Parameters:
    """Return the parameters of a distribution as Tensors.

    A sample has the shape that its parameters have together, and the dtype and the device of those that are arrays,
    unless others are given.

    Raises:
        ValueError: the parameters do not broadcast to `shape`.
        TypeError: `dtype` is not floating.
    """
    found = {name: _floats(value, f"{what}: {name}") for name, value in given.items()}
    arrays = [found[name] for name, value in given.items() if not isinstance(value, int | float)]
    if arrays:
        backend = arrays[0].backend.root if backend is None else backend
        device = _device_of(arrays[0]) if device is None else device
    wide = [array.dtype for array in arrays if array.dtype.kind == "real floating"]
    if dtype is None and wide:
        dtype = wide[0] if len(wide) == 1 else ops.result_type(*wide)
    kind = floating(what, dtype, backend)
    own: tuple[int, ...] = _common_shape(*[array.shape for array in found.values()])
    whole = own if shape is None else shape_of(what, shape)
    if len(own) > len(whole) or any([n not in (1, m) for n, m in zip(own[::-1], whole[::-1], strict=False)]):
        raise ValueError(f"{what}: the parameters, of shape {own} together, do not broadcast to shape {whole}")
    values = [
        ops.astype(array, kind)
        if any([array is each for each in arrays])
        else ops.asarray(value, dtype=kind, backend=backend, device=device)
        for array, value in zip(found.values(), given.values(), strict=True)
    ]
    return Parameters(tuple(values), whole, kind, backend, device)


def _truncate(values: Tensor, dtype: dtypes.DType) -> Tensor:
    """Convert values in [0, 1) to a dtype; bits that it cannot hold are dropped."""
    bits = {"float16": 11, "bfloat16": 8}.get(dtype.name)  # of a significand
    if bits is not None:
        values = ops.floor(values * 2.0**bits) * 2.0**-bits
    return values if values.dtype is dtype else ops.astype(values, dtype)


def _common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    found: Any = ops.broadcast_shapes(*shapes)
    return tuple(found)


def _device_of(tensor: Tensor) -> str | None:
    return None if tensor.device == tensor.backend.default_device else tensor.device


def _positive(u: Tensor, least: float = SMALLEST_FRACTION) -> Tensor:
    """Return numbers of which none is 0."""
    return ops.maximum(u, ops.full_like(u, least))


def _fitting(what: str, found: Tensor, shape: tuple[int, ...]) -> Tensor:
    if found.shape != shape:
        raise ValueError(f"{what}: the parameters do not broadcast to shape {shape}")
    return found


@value_check
def _check_trials(n: Tensor, p: Tensor) -> None:
    if not bool(ops.all((n >= 0) & (n == ops.floor(n)))):
        raise ValueError("binomial: n must be whole numbers of at least 0")
    if not bool(ops.all((p >= 0) & (p <= 1))):
        raise ValueError("binomial: p must be probabilities from 0 to 1")


@value_check
def _check_weights(weights: Tensor, count: int) -> None:
    off = ops.abs(ops.sum(weights, axis=-1) - 1)
    if not bool(ops.all(weights >= 0)) or not bool(ops.all(off < SUM_TOLERANCE)):
        raise ValueError("choice: p must be probabilities from 0 to 1, with the sum 1")
    if bool(ops.any(ops.sum(ops.astype(weights > 0, "int64"), axis=-1) < count)):
        raise ValueError(
            f"choice: {count} cannot be chosen without replacement, since fewer have a probability above 0"
        )
