"""The code of the documents the project grew from, with Tape's names, gives the results they print.

Those documents are tutorials and the reference of TensorFlow's GradientTape. What they need Jacobians for is not
here. Where a document shows TensorFlow's rounding (`x**2` at 20 has the slope 40.000004 there), the results agree to
float32 rounding.
"""

from __future__ import annotations

from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn


@pytest.fixture(autouse=True)
def _numpy() -> Any:
    with tc.use_backend("numpy"):
        yield


def rounded(value: float) -> Any:
    return pytest.approx(value, rel=3e-7)


# -- a tutorial for scalars and constants


def test_gradient_of_a_scalar() -> None:
    scalar = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = scalar**2
    dy_dx = tape.gradient(y, scalar)
    assert str(dy_dx) == "Tensor(6.0, shape=(), dtype=float32, backend=numpy)"


def test_floating_point_variable() -> None:
    x = tc.Variable(20.0)
    assert str(x) == "Variable(20.0, shape=(), dtype=float32, backend=numpy)"
    with tc.GradientTape() as tape:
        y = x**2
    # dy = 2x * dx = 2*20.0 = 40.0
    dy_dx = tape.gradient(y, x)
    assert dy_dx.item() == rounded(40.000004)
    assert (dy_dx.shape, dy_dx.dtype) == ((), tc.float32)


def test_integer_variable() -> None:
    x = tc.Variable(30)
    with tc.GradientTape() as tape:
        y = x**3
    assert (y.item(), tc.isdtype(y.dtype, "integral")) == (27000, True)
    with pytest.warns(UserWarning, match="float32"):
        dy_dx = tape.gradient(y, x)
    assert dy_dx is None


def test_integer_value_in_a_floating_point_variable() -> None:
    x = tc.Variable(30, dtype=tc.float32)
    assert str(x) == "Variable(30.0, shape=(), dtype=float32, backend=numpy)"
    with tc.GradientTape() as tape:
        y = x**3
    dy_dx = tape.gradient(y, x)
    assert dy_dx.item() == rounded(2699.9998)


def test_vector_variable() -> None:
    x = tc.Variable([1.0, 2.0, 3.0], dtype=tc.float32)
    with tc.GradientTape() as tape:
        y = x**3
    assert str(y) == "Tensor([ 1.  8. 27.], shape=(3,), dtype=float32, backend=numpy)"
    dy_dx = tape.gradient(y, x)
    assert str(dy_dx) == "Tensor([ 3. 12. 27.], shape=(3,), dtype=float32, backend=numpy)"


def test_constant() -> None:
    x = tc.asarray(3.0)
    assert str(x) == "Tensor(3.0, shape=(), dtype=float32, backend=numpy)"
    with tc.GradientTape() as tape:
        y = x**2
    dy_dx = tape.gradient(y, x)
    assert dy_dx is None


def test_watched_constant() -> None:
    x = tc.asarray(3.0)
    with tc.GradientTape() as tape:
        # tell the tape to watch the tensor `x` explicitly
        tape.watch(x)
        y = x**2
    dy_dx = tape.gradient(y, x)
    assert str(dy_dx) == "Tensor(6.0, shape=(), dtype=float32, backend=numpy)"


def test_variable_that_is_not_trainable() -> None:
    x = tc.Variable(5.0, trainable=False)
    with tc.GradientTape() as tape:
        y = x**3
    assert tape.gradient(y, x) is None
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x**3
    assert tape.gradient(y, x).item() == rounded(74.99999)


def test_watching_accessed_variables() -> None:
    x0 = tc.Variable(5.0)
    with tc.GradientTape(watch_accessed_variables=True) as tape:
        y0 = x0**2
    assert tape.gradient(y0, x0).item() == 10.0
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        y0 = x0**2
    assert tape.gradient(y0, x0) is None
    # choose which variables to watch
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x0)
        y0 = x0**2
    assert tape.gradient(y0, x0).item() == 10.0


def test_two_gradients_need_a_persistent_tape() -> None:
    x0 = tc.Variable(5.0)
    x1 = tc.Variable(10.0)
    with tc.GradientTape() as tape:
        y0 = x0**2
        y1 = x1**2
    dy_dx0 = tape.gradient(y0, x0)
    with pytest.raises(RuntimeError) as caught:
        tape.gradient(y1, x1)
    assert str(caught.value) == (
        "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians)"
    )
    with tc.GradientTape(persistent=True) as tape:
        y0 = x0**2
        y1 = x1**2
    dy_dx0 = tape.gradient(y0, x0)
    dy_dx1 = tape.gradient(y1, x1)
    assert str(dy_dx0) == "Tensor(10.0, shape=(), dtype=float32, backend=numpy)"
    assert str(dy_dx1) == "Tensor(20.0, shape=(), dtype=float32, backend=numpy)"


# -- a linear model with an optimizer


class LinearModel(nn.Module):
    def __init__(self) -> None:
        self.w = tc.Variable(2.0)
        self.b = tc.Variable(1.0)

    def __call__(self, x: Any) -> Any:
        return self.w * x + self.b


def loss_fn(y_true: Any, y_pred: Any) -> Any:
    return tc.mean(tc.square(y_true - y_pred))


@pytest.mark.parametrize(("w", "b"), [(2.0, 1.0), (0.0, 0.0)], ids=["as written", "from zero"])
def test_linear_regression(w: float, b: float) -> None:
    model = LinearModel()
    model.w.assign(w)
    model.b.assign(b)
    x = tc.asarray([1.0, 2.0, 3.0])
    y = tc.asarray([3.0, 5.0, 7.0])
    optimizer = nn.SGD(learning_rate=0.01)
    losses = []
    for epoch in range(100):
        with tc.GradientTape() as tape:
            # Forward pass
            predictions = model(x)
            # Calculate loss
            loss = loss_fn(y, predictions)
        # Calculate gradients
        gradients = tape.gradient(loss, model.trainable_variables)
        # Update model parameters
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if epoch % 10 == 0:
            losses.append(loss.item())
    if w == 2.0:
        assert losses == [0.0] * 10, "the model starts at the solution"
        assert (model.w.item(), model.b.item()) == (2.0, 1.0)
    else:
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < 0.05
        assert model.w.item() * 2.0 + model.b.item() == pytest.approx(5.0, abs=0.1)


def test_adam_step_of_a_layer() -> None:
    tc.set_seed(1)
    model = nn.Dense(1)
    x, y = tc.asarray([[1.0], [2.0], [3.0]]), tc.asarray([[3.0], [5.0], [7.0]])
    optimizer = nn.Adam()
    losses = []
    for _ in range(3):
        with tc.GradientTape() as tape:
            predictions = model(x)
            loss = loss_fn(y, predictions)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)


# -- a tutorial in a notebook


def test_sum_and_square() -> None:
    x = tc.ones((2, 2))
    with tc.GradientTape() as t:
        t.watch(x)
        y = tc.sum(x)
        z = tc.multiply(y, y)
    assert (y.numpy(), z.numpy()) == (4.0, 16.0)
    dz_dx = t.gradient(z, x)
    for i in [0, 1]:
        for j in [0, 1]:
            assert dz_dx[i][j].numpy() == 8.0


def test_intermediate_gradient() -> None:
    x = tc.ones((2, 2))
    with tc.GradientTape() as t:
        t.watch(x)
        y = tc.sum(x)
        z = tc.multiply(y, y)
    # dz/dy = 2y
    dz_dy = t.gradient(z, y)
    assert dz_dy.numpy() == 8.0


def test_persistent_gradients() -> None:
    x = tc.asarray(3.0)
    with tc.GradientTape(persistent=True) as t:
        t.watch(x)
        y = x * x
        z = y * y
    assert (y.numpy(), z.numpy()) == (9.0, 81.0)
    # dz/dx = 4 * x^3
    assert t.gradient(z, x).numpy() == 108.0
    assert t.gradient(y, x).numpy() == 6.0
    del t


def test_control_flow() -> None:
    def sample(x: Any, y: int) -> Any:
        output = 1.0
        for i in range(y):
            if i > 1 and i < 5:
                output = tc.multiply(output, x)
        return output

    def grad(x: Any, y: int) -> Any:
        with tc.GradientTape() as t:
            t.watch(x)
            out = sample(x, y)
        return t.gradient(out, x)

    x = tc.asarray(2.0)
    assert [sample(x, n).numpy() for n in (6, 5, 4)] == [8.0, 8.0, 4.0]
    assert grad(x, 6).numpy() == 12.0
    assert grad(x, 5).numpy() == 12.0
    assert grad(x, 4).numpy() == 4.0


def test_higher_order_gradients() -> None:
    x = tc.Variable(1.0)
    with tc.GradientTape() as t:
        with tc.GradientTape() as t2:
            y = x * x * x
        dy_dx = t2.gradient(y, x)
    d2y_dx2 = t.gradient(dy_dx, x)
    assert (y.numpy(), dy_dx.numpy(), d2y_dx2.numpy()) == (1.0, 3.0, 6.0)


# -- the reference


def test_reference_square() -> None:
    x = tc.asarray(3.0)
    with tc.GradientTape() as g:
        g.watch(x)
        y = x * x
    dy_dx = g.gradient(y, x)
    assert dy_dx.item() == 6.0


def test_reference_nested() -> None:
    x = tc.asarray(3.0)
    with tc.GradientTape() as g:
        g.watch(x)
        with tc.GradientTape() as gg:
            gg.watch(x)
            y = x * x
        dy_dx = gg.gradient(y, x)
    d2y_dx2 = g.gradient(dy_dx, x)
    assert (dy_dx.item(), d2y_dx2.item()) == (6.0, 2.0)


def test_reference_selective_watching() -> None:
    variable_a, variable_b = tc.Variable(3.0), tc.Variable(2.0)
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variable_a)
        y = variable_a**2
        z = variable_b**3
    da, db = tape.gradient([y, z], [variable_a, variable_b])
    assert da.item() == 6.0
    assert db is None


def test_reference_layers_that_are_not_built_when_they_are_watched() -> None:
    a = nn.Dense(32)
    b = nn.Dense(32)
    inputs = tc.ones((2, 3))
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(a.variables)  # `a` has no variables yet, so nothing is watched
        result = b(a(inputs))
    found = tape.gradient(result, a.variables)
    assert len(found) == 2
    assert set(found) == {None}
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(a.variables)
        result = b(a(inputs))
    assert None not in set(tape.gradient(result, a.variables))


def test_reference_reset() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as t:
        loss = v * v
    with tc.GradientTape() as t:
        loss += v * 5.0
    apart = t.gradient(loss, v)  # Only differentiates what was added, not v * v
    with tc.GradientTape() as t:
        loss = v * v
        t.reset()
        loss += v * 5.0
    assert t.gradient(loss, v).item() == apart.item() == 5.0


def test_reference_reset_in_control_flow() -> None:
    v = tc.Variable(3.0)
    k = 5.0
    with tc.GradientTape() as t:
        loss = v * v
        if loss > k:
            t.reset()
        loss = loss * v
    assert t.gradient(loss, v).item() == 9.0


def test_reference_stop_recording() -> None:
    model = LinearModel()
    x, y = tc.asarray([1.0, 2.0, 3.0]), tc.asarray([3.0, 5.0, 8.0])
    with tc.GradientTape(persistent=True) as t:
        loss = loss_fn(y, model(x))
        with t.stop_recording():
            # The gradient computation below is not traced, saving memory.
            grads = t.gradient(loss, model.variables)
    assert [g.item() for g in grads] == pytest.approx([-2.0, -2 / 3])
