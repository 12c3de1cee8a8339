"""L-BFGS: PyTorch's and SciPy's minima, the strong Wolfe conditions, mistakes and state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.staging import TracingError
from tape_nn.optimizers.line_search import Point, strong_wolfe

pytestmark = pytest.mark.each_backend

START = [-1.2, 1.0]


def rosenbrock(p: Any) -> Any:
    return sum((1 - p[k]) ** 2 + 100 * (p[k + 1] - p[k] ** 2) ** 2 for k in range(p.shape[0] - 1))


def a_variable(start: Any = START) -> Any:
    return tc.Variable(tc.asarray(start, dtype=tc.float64))


def test_without_a_line_search_it_is_pytorchs_to_rounding() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    other = torch.optim.LBFGS([theirs], lr=0.05, max_iter=5, history_size=3)

    def closure() -> Any:
        other.zero_grad()
        loss = rosenbrock(theirs)
        loss.backward()
        return loss

    p = a_variable()
    optimizer = nn.LBFGS(0.05, max_iter=5, history_size=3, line_search=None)
    for _ in range(4):
        loss = optimizer.step(lambda: rosenbrock(p), p)
        assert loss.item() == pytest.approx(other.step(closure).item(), rel=1e-9)
        np.testing.assert_allclose(p.numpy(), theirs.detach().numpy(), rtol=1e-9)
    assert optimizer.iterations == 20


@pytest.mark.parametrize("start", [START, [0.5, 2.0, 0.3], [2.0, 1.5, 0.2, 3.0]])
def test_with_the_line_search_it_finds_the_minimum_of_pytorch_and_scipy_as_fast(start: Any) -> None:
    torch = pytest.importorskip("torch")
    optimize = pytest.importorskip("scipy.optimize")
    theirs = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    other = torch.optim.LBFGS(
        [theirs], max_iter=200, max_eval=400, line_search_fn="strong_wolfe", tolerance_change=1e-14
    )
    calls = []

    def closure() -> Any:
        calls.append(1)
        other.zero_grad()
        loss = rosenbrock(theirs)
        loss.backward()
        return loss

    other.step(closure)
    p = a_variable(start)
    optimizer = nn.LBFGS(max_iter=200, max_eval=400, tolerance_change=1e-14)
    optimizer.step(lambda: rosenbrock(p), [p])
    fun, x0, _ = tc.scipy_objective(rosenbrock, tc.asarray(start, dtype=tc.float64))
    best = optimize.minimize(fun, x0, jac=True, method="L-BFGS-B", options={"gtol": 1e-8, "ftol": 1e-15})
    np.testing.assert_allclose(p.numpy(), best.x, atol=1e-5)
    np.testing.assert_allclose(p.numpy(), theirs.detach().numpy(), atol=1e-5)
    assert optimizer.evaluations <= 1.3 * min(len(calls), best.nfev)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_network_with_a_closure_of_either_kind(compiled: bool) -> None:
    x = tc.default_rng(0).normal((60, 2), dtype=tc.float64)
    y = x[:, :1] * x[:, 1:]

    def make() -> Any:
        tc.set_seed(0)
        model = nn.Sequential([nn.Dense(12, activation="tanh"), nn.Dense(1)])
        model(x)
        return model

    model, other = make(), make()

    def loss(model: Any) -> Any:
        return tc.mean((model(x) - y) ** 2)

    closure: Any = lambda: loss(model)  # noqa: E731
    optimizer, second = nn.LBFGS(max_iter=50), nn.LBFGS(max_iter=50)
    first = optimizer.step(tc.function(closure) if compiled else closure, model)

    def with_gradients() -> Any:
        with tc.GradientTape() as tape:
            value = loss(other)
        return value, tape.gradient(value, other.trainable_variables)

    second.step(tc.function(with_gradients) if compiled else with_gradients, other)
    assert loss(model).item() < 0.02 * first.item()
    for a, b in zip(model.variables, other.variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


def test_mixed_dtypes_sparse_gradients_and_unused_variables() -> None:
    table = tc.Variable(tc.ones((3, 2)), name="table")
    offset = tc.Variable(tc.asarray(0.0, dtype=tc.float64), name="offset")
    unused = tc.Variable(5.0)

    def closure() -> Any:
        rows = tc.gather(table, tc.asarray([0, 0, 2]))
        return tc.sum(tc.astype(rows - 3.0, tc.float64) ** 2) + (offset - tc.mean(rows)) ** 2

    nn.LBFGS(max_iter=50).step(closure, {"t": table, "o": offset, "u": unused})
    np.testing.assert_allclose(table.numpy(), [[3, 3], [1, 1], [3, 3]], atol=1e-3)
    assert table.dtype is tc.float32
    assert offset.dtype is tc.float64
    assert offset.item() == pytest.approx(3.0, abs=1e-3)
    assert unused.item() == 5.0


def test_the_state_continues(tmp_path: Any) -> None:
    model = nn.Dense(2, kernel_initializer="ones")
    model(tc.ones((1, 2), dtype=tc.float64))
    optimizer = nn.LBFGS(max_iter=3)

    def closure_of(m: Any) -> Any:
        return lambda: tc.sum((m.kernel**2 - 3.0) ** 2) + tc.sum((m.bias - 1.0) ** 4)

    optimizer.step(closure_of(model), model)
    nn.save_run(tmp_path / "run", model, optimizer)
    other = nn.Dense(2)
    other(tc.ones((1, 2), dtype=tc.float64))
    again = nn.LBFGS(max_iter=3)
    nn.load_run(tmp_path / "run", other, again)
    assert (again.iterations, again.evaluations) == (optimizer.iterations, optimizer.evaluations)
    optimizer.step(closure_of(model), model)
    again.step(closure_of(other), other)
    for a, b in zip(model.variables, other.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    with pytest.raises(ValueError, match="has shape"):
        again.load_state_dict(optimizer.state_dict(model), {"w": tc.Variable([1.0])})
    with pytest.raises(ValueError, match="no state of an LBFGS"):
        again.load_state_dict({}, other)


def test_an_error_in_the_closure_leaves_everything_as_it_was() -> None:
    p = a_variable()
    optimizer = nn.LBFGS()
    optimizer.step(lambda: rosenbrock(p), p)
    before, state = p.numpy(), {k: v.numpy() for k, v in optimizer.state_dict({"p": p}).items()}
    calls: list[int] = []

    def closure() -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return rosenbrock(p)

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure, p)
    np.testing.assert_array_equal(p.numpy(), before)
    for name, value in optimizer.state_dict({"p": p}).items():
        np.testing.assert_array_equal(value.numpy(), state[name])


def test_points_where_the_loss_is_not_finite_are_avoided() -> None:
    v = tc.Variable(tc.asarray([0.1], dtype=tc.float64))
    # The first steps lead beyond 1, where the logarithm is NaN.
    nn.LBFGS(learning_rate=5.0, max_iter=50).step(lambda: tc.sum(-tc.log(v) - tc.log(1.0 - v)), v)
    assert v.item() == pytest.approx(0.5, abs=1e-4)
    v.assign([2.0])
    with pytest.raises(FloatingPointError, match="not finite where the step begins"):
        nn.LBFGS().step(lambda: tc.sum(tc.log(1.0 - v)), v)


@pytest.mark.parametrize("first", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("kind", ["quartic", "cosine", "steep"])
def test_the_line_search_fulfils_the_strong_wolfe_conditions(kind: str, first: float) -> None:
    functions = {
        "quartic": (lambda t: (t - 2.0) ** 4 + (t - 2.0) ** 2, lambda t: 4 * (t - 2.0) ** 3 + 2 * (t - 2.0)),
        "cosine": (lambda t: -math.sin(t) + 0.05 * t * t, lambda t: -math.cos(t) + 0.1 * t),
        "steep": (lambda t: math.exp(min(t, 700)) - 50 * t, lambda t: math.exp(min(t, 700)) - 50),
    }
    value, slope = functions[kind]
    start = Point(0.0, value(0.0), slope(0.0), None)
    found = strong_wolfe(lambda t: Point(t, value(t), slope(t), None), start, first, 1e-12)
    assert found.value <= start.value + 1e-4 * found.t * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)


def test_mistakes() -> None:
    v = tc.Variable([1.0])
    optimizer = nn.LBFGS()
    assert repr(optimizer).startswith("LBFGS(learning_rate=1.0, max_iter=20")
    with pytest.raises(TypeError, match=r"takes no gradients: call optimizer\.step"):
        optimizer.apply_gradients([([1.0], v)])
    with pytest.raises(TypeError, match="needs a train_step of your own"):
        nn.fit(nn.Dense(1), (tc.ones((2, 1)), tc.ones((2, 1))), loss=nn.losses.MeanSquaredError(), optimizer=optimizer)
    with pytest.raises(TypeError, match=r"takes a closure, a function that returns the loss"):
        optimizer.step(tc.asarray(1.0), v)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must return the loss, a real number as a Tensor; got shape \(1,\)"):
        optimizer.step(lambda: v * v, v)
    with pytest.raises(TypeError, match=r"must return the loss.*got 'NoneType'"):
        optimizer.step(lambda: None, v)
    with pytest.raises(ValueError, match="does not depend on any variable"):
        optimizer.step(lambda: tc.asarray(1.0), v)
    with pytest.raises(TypeError, match="takes Variables; got an element of type 'Tensor'"):
        optimizer.step(lambda: tc.sum(v * v), tc.asarray([1.0]))
    with pytest.raises(ValueError, match="line_search must be"):
        nn.LBFGS(line_search="armijo")  # type: ignore[arg-type]
    optimizer.step(lambda: tc.sum(v**4), v)
    with pytest.raises(ValueError, match="others than before"):
        optimizer.step(lambda: tc.sum(v**4), tc.Variable([1.0]))
    with pytest.raises(TracingError, match="compile the closure instead"):
        tc.function(lambda: optimizer.step(lambda: tc.sum(v**4), v))()
