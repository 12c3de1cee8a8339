"""SGD and Adam, against PyTorch's numbers and Keras' formula."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn

DATA = json.loads((Path(__file__).parent / "data" / "trajectories.json").read_text())


def trained(case: dict[str, Any], dtype: Any) -> list[list[Any]]:
    problem = {name: tc.asarray(a, dtype=dtype) for name, a in DATA["problem"].items()}
    x, y = problem["x"], problem["y"]
    variables = w, b = tc.Variable(problem["w"]), tc.Variable(problem["b"])
    optimizer = getattr(nn, case["optimizer"])(**case["options"])
    rows = []
    for step in range(1, DATA["steps"][-1] + 1):
        with tc.GradientTape() as tape:
            loss = tc.mean((tc.tanh(x @ w + b) - y) ** 2)
        gradients = tape.gradient(loss, variables)
        kept = [g.numpy() for g in gradients]
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        for gradient, before in zip(gradients, kept, strict=True):
            np.testing.assert_array_equal(gradient.numpy(), before)  # it is the caller's
        if step in DATA["steps"]:
            rows.append([v.numpy() for v in variables])
    assert w.dtype is dtype
    return rows


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [pytest.param(tc.float64, 1e-12, id="float64"), pytest.param(tc.float32, 1e-5, id="float32")],
)
@pytest.mark.parametrize(
    "case", DATA["cases"], ids=lambda c: "-".join(map(str, (c["optimizer"], *c["options"].items())))
)
def test_trajectories(case: dict[str, Any], dtype: Any, tolerance: float) -> None:
    if dtype is tc.float32 and case["options"].get("epsilon", 1) < 1e-20:
        pytest.skip("this epsilon is zero in float32")
    for ours, theirs in zip(trained(case, dtype), case["w, b"], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


OPTIMIZERS = [
    pytest.param(lambda: nn.SGD(0.1), id="sgd"),
    pytest.param(lambda: nn.SGD(0.1, momentum=0.9), id="momentum"),
    pytest.param(lambda: nn.SGD(0.1, momentum=0.9, nesterov=True), id="nesterov"),
    pytest.param(lambda: nn.Adam(0.1), id="adam"),
]


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 2)], ids=str)
def test_shapes(make: Any, shape: tuple[int, ...]) -> None:
    optimizer = make()
    v = tc.Variable(tc.ones(shape))
    for _ in range(3):
        optimizer.apply_gradients([(tc.ones(shape), v)])
    assert v.shape == shape
    assert v.dtype is tc.float32
    assert type(v.array) is type(tc.ones(1).array)
    assert bool(tc.all(v < 0.75))


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_each_variable_has_its_own_state(make: Any) -> None:
    alone, together = make(), make()
    a, b, c = tc.Variable(1.0), tc.Variable(1.0), tc.Variable(1.0)
    for step in range(4):
        together.apply_gradients([(tc.asarray(1.0), a)] + [(tc.asarray(-1.0), b)] * (step % 2))
        alone.apply_gradients([(tc.asarray(1.0), c)])
    assert a.item() == c.item() < 1 < b.item()


def test_a_variable_that_appears_late_starts_fresh() -> None:
    optimizer = nn.Adam(0.1)
    early, late = tc.Variable(0.0), tc.Variable(0.0)
    for _ in range(10):
        optimizer.apply_gradients([(tc.asarray(1.0), early)])
    optimizer.apply_gradients([(tc.asarray(1.0), late)])
    assert late.item() == pytest.approx(-0.1, rel=1e-5)  # the first step of Adam


def test_state_is_not_confused_by_reused_ids() -> None:
    optimizer = nn.SGD(1.0, momentum=0.5)
    for _ in range(100):
        v = tc.Variable(0.0)
        optimizer.apply_gradients([(tc.asarray(1.0), v)])
        assert v.item() == -1.0


def test_learning_rate_can_be_set() -> None:
    optimizer = nn.SGD(learning_rate=np.float64(1.0))  # type: ignore[arg-type]
    v = tc.Variable([0.0])
    optimizer.apply_gradients([(tc.asarray([1.0]), v)])
    optimizer.learning_rate = tc.asarray(0.5)  # type: ignore[assignment]
    optimizer.apply_gradients([(tc.asarray([1.0]), v)])
    assert v.tolist() == [-1.5]
    assert v.dtype is tc.float32
    assert optimizer.learning_rate == 0.5
    assert optimizer.iterations == 2


# -- gradients that are not there, and other mistakes


def test_none_is_skipped_and_warned_of_once() -> None:
    optimizer = nn.SGD(1.0)
    used, unused = tc.Variable(1.0, name="used"), tc.Variable([1.0, 1.0], name="unused")
    with pytest.warns(UserWarning, match="Gradients do not exist for variables 'unused'") as record:
        optimizer.apply_gradients([(tc.asarray(1.0), used), (None, unused)])
    assert record[0].filename == __file__
    assert (used.item(), unused.tolist()) == (0.0, [1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.apply_gradients([(tc.asarray(1.0), used), (None, unused)])
    assert used.item() == -1.0


def test_no_gradient_at_all() -> None:
    optimizer = nn.Adam()
    w, anonymous = tc.Variable(1.0, name="w"), tc.Variable([1.0, 2.0])
    message = r"No gradients provided for any variable\."
    with pytest.raises(ValueError, match=message + r" All are None: 'w', <Variable of shape \(2,"):
        optimizer.apply_gradients([(None, w), (None, anonymous)])
    with pytest.raises(ValueError, match=message):
        optimizer.apply_gradients([])
    assert optimizer.iterations == 0


def test_nothing_changes_when_one_gradient_is_wrong() -> None:
    optimizer = nn.SGD(1.0)
    a, b = tc.Variable([1.0]), tc.Variable([[1.0, 2.0]], name="b")
    message = r"the gradient of 'b' has shape \(2,\); the variable has \(1, 2\)"
    with pytest.raises(ValueError, match=message):
        optimizer.apply_gradients([(tc.ones(1), a), (tc.ones(2), b)])
    slices = tc.IndexedSlices(tc.ones((1, 2)), tc.asarray([0]), (3, 2))
    with pytest.raises(ValueError, match=r"has shape \(3, 2\); the variable has \(1, 2\)"):
        optimizer.apply_gradients([(tc.ones(1), a), (slices, b)])
    assert a.tolist() == [1.0]


def test_what_is_not_a_pair() -> None:
    optimizer, v = nn.SGD(), tc.Variable([1.0, 2.0])
    with pytest.raises(TypeError, match=r"zip\(gradients, variables\).*of type 'Tensor'"):
        optimizer.apply_gradients([tc.ones(2)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"of type 'Tensor'\. Are the two swapped\?"):
        optimizer.apply_gradients([(v, tc.ones(2))])  # type: ignore[list-item]


def test_dtypes_that_cannot_be_optimized() -> None:
    with pytest.raises(TypeError, match=r"only floating-point variables .* 'n' has dtype int64"):
        nn.SGD().apply_gradients([(tc.asarray(1), tc.Variable(1, name="n"))])
    with pytest.raises(TypeError, match="Adam updates real variables; 'z' has dtype complex64"):
        nn.Adam().apply_gradients([(tc.asarray(1j), tc.Variable(1j, name="z"))])
    z = tc.Variable(1 + 2j)
    with tc.GradientTape() as tape:
        loss = tc.abs(z) ** 2
    nn.SGD(0.5).apply_gradients([(tape.gradient(loss, z), z)])
    assert abs(z.item()) < 1e-6


def test_arrays_lists_and_other_dtypes_are_gradients_too() -> None:
    v = tc.Variable([1.0, 2.0])
    for gradient in ([1.0, 1.0], np.ones(2), tc.ones(2, dtype=tc.float64)):
        nn.SGD(0.25).apply_gradients([(gradient, v)])
    assert v.tolist() == [0.25, 1.25]
    assert v.dtype is tc.float32


def test_options_out_of_range() -> None:
    with pytest.raises(ValueError, match="momentum must be between 0 and 1; got 9"):
        nn.SGD(momentum=9)
    with pytest.raises(ValueError, match="beta_2 must be at least 0 and less than 1; got 1"):
        nn.Adam(beta_2=1)


# -- sparse gradients


def sparse() -> tc.IndexedSlices:
    return tc.IndexedSlices(tc.asarray([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]), tc.asarray([3, 1, 3]), (5, 2))


DENSE = [[0, 0], [10, 20], [0, 0], [101, 202], [0, 0]]


def test_sgd_updates_the_rows_of_a_sparse_gradient() -> None:
    table = tc.Variable(tc.ones((5, 2)))
    nn.SGD(0.5).apply_gradients([(sparse(), table)])
    np.testing.assert_array_equal(table.numpy(), 1 - 0.5 * np.asarray(DENSE))


def test_sgd_does_not_even_look_at_the_other_rows() -> None:
    table = tc.Variable(tc.full((5, 2), np.nan))
    nn.SGD(0.5).apply_gradients([(sparse(), table)])
    assert np.isnan(table.numpy()).all()
    table = tc.Variable(tc.full((5, 2), np.inf))
    nn.SGD(0.0).apply_gradients([(sparse(), table)])
    assert np.isinf(table.numpy()).all()


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_sparse_equals_dense(make: Any) -> None:
    one, other = tc.Variable(tc.ones((5, 2))), tc.Variable(tc.ones((5, 2)))
    a, b = make(), make()
    for _ in range(3):
        a.apply_gradients([(sparse(), one)])
        b.apply_gradients([(tc.asarray(DENSE, dtype=tc.float32), other)])
    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_merged_and_converted_slices_update_as_well(make: Any) -> None:
    tables = [tc.Variable(tc.ones((5, 2))) for _ in range(3)]
    wide = tc.IndexedSlices(tc.astype(sparse().values, tc.float64), sparse().indices, (5, 2))
    for table, slices in zip(tables, [sparse(), sparse().merged(), wide], strict=True):
        make().apply_gradients([(slices, table)])
        assert table.dtype is tc.float32
    np.testing.assert_allclose(tables[1].numpy(), tables[0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(tables[2].numpy(), tables[0].numpy(), rtol=1e-6)


@pytest.mark.parametrize("make", OPTIMIZERS[1:])
def test_rows_without_a_gradient_still_move(make: Any) -> None:
    table, optimizer = tc.Variable(tc.ones((5, 2))), make()
    optimizer.apply_gradients([(sparse(), table)])
    before = table.numpy()
    other = tc.IndexedSlices(tc.ones((1, 2)), tc.asarray([0]), (5, 2))
    optimizer.apply_gradients([(other, table)])
    moved = (table.numpy() != before).any(axis=1)
    assert moved.tolist() == [True, True, False, True, False]


def test_an_embedding_learns() -> None:
    table = tc.Variable(tc.zeros((6, 3)), name="table")
    goal = tc.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [1.0, 2.0, 3.0]])
    optimizer = nn.SGD(0.25)
    for _ in range(30):
        with tc.GradientTape() as tape:
            loss = tc.sum((tc.gather(table, tc.asarray([4, 1, 4])) - goal) ** 2)
        gradient = tape.gradient(loss, table)
        assert isinstance(gradient, tc.IndexedSlices)
        optimizer.apply_gradients([(gradient, table)])
    expected = np.zeros((6, 3))
    expected[[4, 1]] = goal.numpy()[:2]
    np.testing.assert_allclose(table.numpy(), expected, atol=1e-4)


# -- tapes


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("slices", [False, True], ids=["dense", "sparse"])
def test_an_update_is_not_recorded_and_keeps_what_was(make: Any, slices: bool) -> None:
    optimizer = make()
    v = tc.Variable(tc.full((5, 2), 3.0))
    read = v.value
    with tc.GradientTape(persistent=True) as tape:
        y = tc.sum(v * v)
        gradient = sparse() if slices else tc.ones((5, 2))
        tape.watch(gradient.values if slices else gradient)
        for _ in range(2):
            optimizer.apply_gradients([(gradient, v)])
        z = tc.sum(v)
    assert tape.gradient(z, gradient.values if slices else gradient) is None
    assert tape.gradient(y, v).tolist() == [[6.0, 6.0]] * 5  # of the value that was read
    assert tape.gradient(z, v).tolist() == [[1.0, 1.0]] * 5
    assert read.tolist() == [[3.0, 3.0]] * 5
    assert v.tolist() != read.tolist()


def test_an_update_does_not_watch() -> None:
    v = tc.Variable([1.0])
    with tc.GradientTape() as tape:
        nn.Adam().apply_gradients([(tc.ones(1), v)])
    assert tape.watched_variables() == ()
