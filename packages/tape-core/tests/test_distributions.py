"""Distributions: quantiles against SciPy, derivatives against quantile functions and torch, compositions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from scipy import special, stats
from support import STRICT

N = 20_000

CONTINUOUS: dict[str, tuple[Callable[..., Any], Any]] = {
    "exponential": (lambda rng, **k: rng.exponential(N, scale=2.0, **k), stats.expon(scale=2)),
    "gumbel": (lambda rng, **k: rng.gumbel(N, loc=1.0, scale=2.0, **k), stats.gumbel_r(1, 2)),
    "laplace": (lambda rng, **k: rng.laplace(N, loc=1.0, scale=2.0, **k), stats.laplace(1, 2)),
    "logistic": (lambda rng, **k: rng.logistic(N, loc=1.0, scale=2.0, **k), stats.logistic(1, 2)),
    "cauchy": (lambda rng, **k: rng.cauchy(N, loc=1.0, scale=2.0, **k), stats.cauchy(1, 2)),
    "truncated": (lambda rng, **k: rng.truncated_normal(N, mean=1.0, stddev=3.0, **k), stats.truncnorm(-2, 2, 1, 3)),
    "upper tail": (lambda rng, **k: rng.truncated_normal(N, low=10.0, high=math.inf, **k), stats.truncnorm(10, np.inf)),
    "lower tail": (lambda rng, **k: rng.truncated_normal(N, low=-9.0, high=-8.0, **k), stats.truncnorm(-9, -8)),
    "student": (lambda rng, **k: rng.student_t(3.0, shape=N, **k), stats.t(3)),
    "heavy student": (lambda rng, **k: rng.student_t(0.7, shape=N, **k), stats.t(0.7)),
    "gamma": (lambda rng, **k: rng.gamma(2.5, scale=2.0, shape=N, **k), stats.gamma(2.5, scale=2)),
    "gamma of 1": (lambda rng, **k: rng.gamma(1, shape=N, **k), stats.expon()),
    "large gamma": (lambda rng, **k: rng.gamma(300.0, shape=N, **k), stats.gamma(300)),
    "small gamma": (lambda rng, **k: rng.gamma(0.05, shape=N, **k), stats.gamma(0.05)),
    "beta": (lambda rng, **k: rng.beta(2.0, 0.5, shape=N, **k), stats.beta(2, 0.5)),
    "dirichlet": (lambda rng, **k: rng.dirichlet(tc.asarray([0.5, 1.0, 3.0]), shape=N, **k)[:, 0], stats.beta(0.5, 4)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_are_distributed_so(name: str, dtype: str) -> None:
    draw, distribution = CONTINUOUS[name]
    found = draw(tc.default_rng(1), dtype=dtype)
    assert (found.shape, found.dtype) == ((N,), dtype)
    pvalue = stats.kstest(found.numpy().astype("float64"), distribution.cdf).pvalue
    assert pvalue > 0.003


@pytest.mark.parametrize("name", CONTINUOUS)
def test_values_are_the_same_on_every_backend_and_compiled(name: str) -> None:
    draw = CONTINUOUS[name][0]
    expected = draw(tc.default_rng(2), dtype="float64").numpy()
    with tc.use_backend(STRICT):
        strict = draw(tc.default_rng(2), dtype="float64").numpy()
    assert strict == pytest.approx(expected, rel=1e-9, abs=1e-12)
    rng = tc.default_rng(2)
    f = tc.function(lambda: (draw(rng, dtype="float64"), rng.uniform()))
    compiled = [f() for _ in range(2)]
    assert compiled[0][0].numpy() == pytest.approx(expected, rel=1e-12)
    # The generator goes on as eagerly, although eager code makes no more attempts than it needs.
    eager = tc.default_rng(2)
    draw(eager, dtype="float64")
    assert eager.uniform().item() == compiled[0][1].item()
    assert draw(eager, dtype="float64").numpy() == pytest.approx(compiled[1][0].numpy(), rel=1e-12)


@pytest.mark.parametrize("rate", [0.1, 3.0, 9.9, 10.0, 25.0, 1e4])
def test_counts_of_poisson(rate: float) -> None:
    counts = tc.default_rng(3).poisson(rate, shape=N)
    assert counts.dtype == "int64"
    # Counts become continuous by adding uniform numbers.
    spread = counts.numpy() + np.random.default_rng(0).random(N)
    distribution = stats.poisson(rate)

    def cdf(t: Any) -> Any:
        whole = np.floor(t)
        return distribution.cdf(whole - 1) + (t - whole) * distribution.pmf(whole)

    assert stats.kstest(spread, cdf).pvalue > 0.003


@pytest.mark.parametrize(
    ("n", "p"), [(1, 0.3), (5, 0.9), (40, 0.2), (40, 0.25), (1000, 0.5), (300, 0.97), (10**6, 1e-5), (10**7, 0.3)]
)
def test_counts_of_successes(n: int, p: float) -> None:
    counts = tc.default_rng(3).binomial(n, p, shape=N)
    assert counts.dtype == "int64"
    spread = counts.numpy() + np.random.default_rng(0).random(N)
    distribution = stats.binom(n, p)

    def cdf(t: Any) -> Any:
        whole = np.floor(t)
        return distribution.cdf(whole - 1) + (t - whole) * distribution.pmf(whole)

    assert stats.kstest(spread, cdf).pvalue > 0.003
    assert 0 <= counts.numpy().min() <= counts.numpy().max() <= n


def test_binomial_with_parameters_at_their_ends_compiled_and_in_vmap() -> None:
    def draw(n: Any, p: Any) -> Any:
        return tc.default_rng(1).binomial(n, p)

    n, p = tc.asarray([0, 7, 7, 100, 100, 2**40]), tc.asarray([0.5, 0.0, 1.0, 0.3, 1.0, 1.0])
    found = draw(n, p)
    assert found.tolist()[:3] == [0, 0, 7]
    assert found.tolist()[4:] == [100, 2**40]
    assert tc.function(draw)(n, p).tolist() == found.tolist()
    rows = tc.vmap(lambda p: tc.random.global_rng().binomial(50, p, shape=400), randomness="different")(p[3:5])
    assert rows.shape == (2, 400)
    assert abs(rows.numpy()[0].mean() - 15) < 1
    assert (rows.numpy()[1] == 50).all()
    for n_bad, p_bad, text in ((-1, 0.5, "n must be whole"), (1.5, 0.5, "n must be whole"), (3, 1.5, "p must be prob")):
        with pytest.raises(ValueError, match=text):
            draw(n_bad, p_bad)
        with pytest.raises(ValueError, match=text):
            tc.function(draw)(tc.asarray(n_bad), tc.asarray(p_bad))


def test_indices_of_categories() -> None:
    rng, p = tc.default_rng(0), np.asarray([0.1, 0.2, 0.7])
    for found in (
        rng.categorical(tc.log(tc.asarray(p)), shape=N),
        rng.choice(3, N, p=tc.asarray(p)),
        tc.astype(rng.bernoulli(0.7, shape=N), "int64") + 1,
    ):
        assert found.dtype == "int64"
        assert np.bincount(found.numpy(), minlength=3)[2] / N == pytest.approx(0.7, abs=0.01)
    logits = tc.asarray([[0.0, -math.inf], [-math.inf, 0.0], [-math.inf, 5.0]])
    assert rng.categorical(logits).tolist() == [0, 1, 1]
    assert rng.categorical(logits, axis=0, shape=(4, 2)).shape == (4, 2)


def test_choice_with_and_without_replacement() -> None:
    rng = tc.default_rng(0)
    assert sorted(rng.choice(9, 9, replace=False).tolist()) == list(range(9))
    found = [tuple(rng.choice(4, 2, p=tc.asarray([0.1, 0.2, 0.7, 0.0]), replace=False).tolist()) for _ in range(2000)]
    assert {k for pair in found for k in pair} == {0, 1, 2}
    assert found.count((2, 1)) / 2000 == pytest.approx(0.7 * 0.2 / 0.3, abs=0.03)
    rows = tc.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert rng.choice(rows, (4, 5)).shape == (4, 5, 2)
    assert rng.choice(rows, axis=1).shape == (3,)
    assert sorted(rng.shuffle(rows)[:, 0].tolist()) == [1.0, 3.0, 5.0]
    assert tc.grad(lambda x: tc.sum(rng.choice(x, 3, replace=False) ** 2))(rows).tolist() == (2 * rows).tolist()
    assert tc.grad(lambda x: tc.sum(rng.shuffle(x, axis=1) ** 2))(rows).tolist() == (2 * rows).tolist()


def test_choices_that_cannot_be_made_are_refused() -> None:
    rng = tc.default_rng(0)
    for call, text in (
        (lambda: rng.choice(0, 1), "nothing to choose from"),
        (lambda: rng.choice(3, 4, replace=False), "4 cannot be chosen of 3 without replacement"),
        (lambda: rng.choice(2, 1, p=tc.asarray([0.5, 0.6])), "with the sum 1"),
        (lambda: rng.choice(2, 1, p=tc.asarray([1.5, -0.5])), "from 0 to 1"),
        (lambda: rng.choice(2, 1, p=tc.asarray([1.0])), r"p must have shape \(2,\), got \(1,\)"),
        (lambda: rng.choice(2, 2, p=tc.asarray([1.0, 0.0]), replace=False), "fewer have a probability above 0"),
        (lambda: rng.gamma(tc.ones(3), shape=(2,)), r"gamma: the parameters, of shape \(3,\) together"),
        (lambda: rng.dirichlet(1.0), "must have an axis"),
        (lambda: rng.shuffle(1.0), "must have an axis"),
        (lambda: rng.multivariate_normal(tc.ones(2), tc.ones((3, 3))), "square matrices of the same length"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="gamma: dtype must be floating"):
        rng.gamma(1.0, dtype="int64")


def test_vectors_with_a_covariance() -> None:
    mean, covariance = np.asarray([1.0, 2.0]), np.asarray([[2.0, 0.5], [0.5, 1.0]])
    found = tc.default_rng(0).multivariate_normal(tc.asarray(mean), tc.asarray(covariance), shape=N)
    assert found.numpy().mean(0) == pytest.approx(mean, abs=0.03)
    assert np.cov(found.numpy().T) == pytest.approx(covariance, abs=0.05)
    batched = tc.default_rng(0).multivariate_normal(tc.zeros((3, 2)), tc.stack([tc.eye(2)] * 3), shape=(4,))
    assert batched.shape == (4, 3, 2)


def test_parameters_broadcast_and_give_the_dtype() -> None:
    rng = tc.default_rng(0)
    a = tc.asarray([[1.0], [2.0]], dtype="float64")
    assert (rng.gamma(a, scale=tc.ones(3)).shape, rng.gamma(a).dtype) == ((2, 3), "float64")
    assert rng.normal(mean=tc.asarray([1.0, 2.0]), stddev=0.0).tolist() == [1.0, 2.0]
    assert rng.uniform(low=tc.asarray([1, 2]), high=2.0).dtype == "float32"
    assert rng.laplace(scale=tc.ones(2, dtype="float16")).dtype == "float16"
    assert rng.beta(1.0, tc.ones((2, 1)), shape=(2, 3)).shape == (2, 3)


LOCATION_SCALE = ["normal", "gumbel", "laplace", "logistic", "cauchy"]


@pytest.mark.parametrize("name", LOCATION_SCALE)
def test_location_and_scale_have_gradients_by_arithmetic(name: str) -> None:
    names = ("mean", "stddev") if name == "normal" else ("loc", "scale")

    def total(loc: Any, scale: Any) -> Any:
        return tc.sum(getattr(tc.default_rng(1), name)((50,), **dict(zip(names, (loc, scale), strict=True))))

    loc, scale = tc.asarray(0.5, dtype="float64"), tc.asarray(2.0, dtype="float64")
    tc.testing.check_grads(total, (loc, scale))
    by_loc, by_scale = tc.grad(total, argnums=(0, 1))(loc, scale)
    assert by_loc.item() == pytest.approx(50)
    assert by_scale.item() == pytest.approx((total(loc, scale).item() - 25) / 2)


@pytest.mark.parametrize("a", [0.3, 1.0, 2.5, 40.0])
def test_the_derivative_of_a_gamma_variable_is_that_of_its_quantile(a: float) -> None:
    def f(a: Any) -> Any:
        return tc.default_rng(4).gamma(a, shape=5, dtype="float64")

    p = tc.asarray(a, dtype="float64")
    x = f(p).numpy()
    # Below 1 a variable is one of a + 1 times a power, of which each has its own quantile.
    if a >= 1:
        quantile, step = special.gammainc(a, x), 1e-5 * a
        expected = (special.gammaincinv(a + step, quantile) - special.gammaincinv(a - step, quantile)) / (2 * step)
        for jacobian in (tc.jacrev(f), tc.jacfwd(f), tc.function(tc.jacrev(f)), tc.function(tc.jacfwd(f))):
            assert jacobian(p).numpy() == pytest.approx(expected, rel=1e-6)
        step = 2e-3 * a
        second = special.gammaincinv(a + step, quantile) - 2 * x + special.gammaincinv(a - step, quantile)
        assert tc.jacfwd(tc.jacrev(f))(p).numpy() == pytest.approx(second / step**2, rel=1e-3, abs=1e-7)
    else:
        assert np.isfinite(tc.jacrev(f)(p).numpy()).all()


def test_gradients_of_expectations() -> None:
    """E[x] of gamma is a; E[x**2] is a + a**2; E[x] of beta is a / (a + b); of Student's x**2, df / (df - 2)."""

    def gradient(f: Callable[[Any], Any], at: float) -> float:
        found: float = tc.grad(lambda p: tc.mean(f(p)))(tc.asarray(at, dtype="float64")).item()
        return found

    rng = tc.default_rng
    for a in (0.3, 1.1, 5.0):
        assert gradient(lambda p: rng(1).gamma(p, shape=4000), a) == pytest.approx(1, rel=0.03)
        assert gradient(lambda p: rng(1).gamma(p, shape=4000) ** 2, a) == pytest.approx(1 + 2 * a, rel=0.06)
    assert gradient(lambda p: rng(1).beta(p, 3.0, shape=4000), 2.0) == pytest.approx(3 / 25, rel=0.05)
    assert gradient(lambda p: rng(1).beta(3.0, p, shape=4000), 2.0) == pytest.approx(-3 / 25, rel=0.05)
    assert gradient(lambda p: tc.log(rng(1).student_t(p, shape=4000) ** 2), 5.0) == pytest.approx(
        0.5 * (1 / 5 - 0.5 * special.polygamma(1, 2.5)) * 2, abs=0.02
    )


@pytest.mark.parametrize("name", ["Gamma", "Beta", "StudentT", "Dirichlet"])
def test_gradients_agree_with_torch_on_average(name: str) -> None:
    torch = pytest.importorskip("torch")
    shape, n = [1.5, 3.0], 4000
    draws: dict[str, Callable[[Any], Any]] = {
        "Gamma": lambda p: tc.default_rng(0).gamma(p, shape=(n, 2)),
        "Beta": lambda p: tc.default_rng(0).beta(p[0], p[1], shape=(n,)),
        "StudentT": lambda p: tc.tanh(tc.default_rng(0).student_t(p, shape=(n, 2))),
        "Dirichlet": lambda p: tc.default_rng(0).dirichlet(p, shape=(n,)),
    }
    found = tc.grad(lambda p: tc.sum(tc.cos(draws[name](p))) / n)(tc.asarray(shape, dtype="float64")).tolist()
    torch.manual_seed(0)
    p = torch.tensor(shape, dtype=torch.float64, requires_grad=True)
    distribution = {
        "Gamma": lambda: torch.distributions.Gamma(p, 1.0),
        "Beta": lambda: torch.distributions.Beta(p[0], p[1]),
        "StudentT": lambda: torch.distributions.StudentT(p),
        "Dirichlet": lambda: torch.distributions.Dirichlet(p),
    }[name]()
    sample = distribution.rsample((n,))
    (torch.cos(torch.tanh(sample) if name == "StudentT" else sample).sum() / n).backward()
    assert found == pytest.approx(p.grad.tolist(), abs=0.03)


def test_the_ends_of_a_truncated_interval_have_derivatives() -> None:
    def f(low: Any, high: Any) -> Any:
        return tc.sum(tc.default_rng(2).truncated_normal((9,), low=low, high=high, dtype="float64"))

    for low, high in ((-1.0, 2.0), (3.0, 4.0), (-6.0, -3.0)):
        tc.testing.check_grads(f, (tc.asarray(low, dtype="float64"), tc.asarray(high, dtype="float64")))


def test_parameters_of_discrete_distributions_have_no_gradient() -> None:
    p = tc.asarray([0.2, 0.8])
    for draw in (
        lambda rng: rng.bernoulli(p),
        lambda rng: rng.categorical(p),
        lambda rng: rng.poisson(p),
        lambda rng: rng.binomial(9, p),
        lambda rng: rng.choice(2, 3, p=p),
    ):
        with tc.GradientTape() as tape:
            tape.watch(p)
            y = tc.astype(draw(tc.default_rng(0)), "float32")
        assert tape.gradient(y, p) is None


@pytest.mark.parametrize("randomness", ["different", "same"])
@pytest.mark.parametrize("compiled", [False, True])
def test_inside_vmap(randomness: Any, compiled: bool) -> None:
    def f(a: Any) -> Any:
        rng = tc.random.global_rng()
        noise = [rng.gamma(a, shape=3), rng.beta(a, 1.0, shape=3), tc.astype(rng.poisson(a * 9, shape=3), "float32")]
        logits = tc.stack([a, -a, 0 * a])
        drawn = [rng.categorical(logits, shape=3), rng.choice(3, 3, p=tc.softmax(logits)), rng.permutation(3)]
        return tc.concat([*noise, *[tc.astype(part, "float32") for part in drawn]])

    g = tc.vmap(f, randomness=randomness)
    found = (tc.function(g) if compiled else g)(tc.full((6,), 1.5)).numpy()
    assert found.shape == (6, 18)
    assert len(np.unique(found, axis=0)) == (6 if randomness == "different" else 1)
    slopes = tc.vmap(tc.grad(lambda a: tc.sum(f(a)[:6])), randomness=randomness)
    found = (tc.function(slopes) if compiled else slopes)(tc.full((4,), 1.5)).numpy()
    assert len(np.unique(found)) == (4 if randomness == "different" else 1)


def test_in_loops_and_checkpoints() -> None:
    def step(x: Any, _: Any) -> Any:
        return x + tc.random.global_rng().gamma(x), None

    def f(x: Any) -> Any:
        return tc.scan(step, x, tc.arange(4))[0]

    x = tc.asarray(1.5, dtype="float64")
    found = []
    for wrapped in (f, tc.checkpoint(f), tc.function(f), tc.function(tc.checkpoint(f))):
        tc.set_seed(0)
        found.append([v.item() for v in tc.value_and_grad(wrapped)(x)])
    assert found[1:] == [pytest.approx(found[0], rel=1e-9)] * 3
