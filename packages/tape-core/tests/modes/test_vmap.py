"""vmap: axes, structures, nesting, derivatives inside and outside, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from support import run_python
from tape_core.backends.errors import BatchError
from tape_core.extend import NONDIFF, op, registry
from tape_core.modes.batching import way_of

X = np.arange(12.0).reshape(3, 4) / 7


def test_axes_in_and_out() -> None:
    x, y = tc.asarray(X), tc.asarray(X.T)
    found = tc.vmap(lambda a, b: a * b, in_axes=(0, 1), out_axes=1)(x, y)
    assert np.array_equal(found.numpy(), (X * X).T)
    found = tc.vmap(lambda a: tc.sum(a), in_axes=-1)(x)
    assert np.allclose(found.numpy(), X.sum(0))
    assert tc.vmap(lambda a, b: a + b, in_axes=(0, None))(x, 1.0).shape == (3, 4)


def test_structures_of_arguments_and_results() -> None:
    def f(state: Any, *, scale: Any) -> Any:
        return {"a": state["x"] * scale, "b": (tc.sum(state["w"]), None, 2.0)}

    state = {"x": tc.asarray(X), "w": tc.asarray([1.0, 2.0])}
    found = tc.vmap(f, in_axes=({"x": 0, "w": None},), out_axes={"a": 1, "b": 0})(
        state, scale=tc.asarray([1.0, 2.0, 3.0])
    )
    assert found["a"].shape == (4, 3)
    assert found["b"][0].tolist() == [3.0, 3.0, 3.0]
    assert found["b"][1] is None
    assert found["b"][2].tolist() == [2.0, 2.0, 2.0]


def test_a_result_that_is_the_same_for_all_may_stay_one() -> None:
    w = tc.asarray([1.0, 2.0])
    one, each = tc.vmap(lambda x: (w * 2, x), out_axes=(None, 0))(tc.asarray(X))
    assert one.tolist() == [2.0, 4.0]
    assert each.shape == X.shape
    with pytest.raises(ValueError, match=r"result \[0\] has out_axes None, but is not the same"):
        tc.vmap(lambda x: (x, x), out_axes=(None, 0))(tc.asarray(X))


def test_nested() -> None:
    a, b = tc.asarray([1.0, 2.0, 3.0]), tc.asarray([10.0, 20.0])
    found = tc.vmap(lambda x: tc.vmap(lambda y: x * y + y)(b))(a)
    assert np.array_equal(found.numpy(), np.outer(a.numpy(), b.numpy()) + b.numpy())
    inner_first = tc.vmap(lambda x: tc.vmap(lambda y: tc.vmap(lambda z: x + y * z)(b))(x * b))(a)
    expected = a.numpy()[:, None, None] + (a.numpy()[:, None] * b.numpy())[:, :, None] * b.numpy()
    assert np.allclose(inner_first.numpy(), expected)


def test_chunks_give_the_same() -> None:
    x = tc.asarray(np.arange(10.0))
    f = lambda v: (tc.sin(v), tc.stack([v, v]))  # noqa: E731
    whole = tc.vmap(f, out_axes=(0, 1))(x)
    for size in (1, 3, 10, 99):
        for a, b in zip(tc.vmap(f, out_axes=(0, 1), chunk_size=size)(x), whole, strict=True):
            assert np.array_equal(a.numpy(), b.numpy())


def test_a_variable_is_read_and_watched() -> None:
    w = tc.Variable([1.0, 2.0, 3.0, 4.0])
    with tc.GradientTape() as tape:
        y = tc.vmap(lambda x: tc.sum(tc.tanh(w * x)))(tc.asarray(X, dtype="float32"))
    inside = tape.gradient(y, w)
    with tc.GradientTape() as tape:
        y = tc.sum(tc.tanh(w * tc.asarray(X, dtype="float32")), axis=1)
    assert np.allclose(inside.numpy(), tape.gradient(y, w).numpy(), rtol=1e-6)


def test_gradients_of_each_example() -> None:
    w = tc.Variable(np.arange(4.0))

    def gradient(x: Any) -> Any:
        with tc.GradientTape() as tape:
            y = tc.sum(tc.sin(w * x))
        return tape.gradient(y, w)

    found = tc.vmap(gradient)(tc.asarray(X))
    assert np.allclose(found.numpy(), X * np.cos(w.numpy() * X))


def test_sparse_gradients_become_dense() -> None:
    table = tc.Variable(np.ones((5, 2)))

    def gradient(rows: Any) -> Any:
        with tc.GradientTape() as tape:
            y = tc.sum(tc.gather(table, rows) ** 2)
        return tape.gradient(y, table)

    found = tc.vmap(gradient)(tc.asarray([[0, 0], [4, 1]]))
    assert found.tolist()[0] == [[4.0, 4.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert found.tolist()[1][4] == [2.0, 2.0]


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_indexing_is_that_of_each_example(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    x = rng.standard_normal((3, 2, 4, 3))
    parts: list[Any] = []
    for n in data.draw(st.permutations([2, 4, 3])) if data.draw(st.booleans()) else [2, 4, 3]:
        kind = data.draw(st.sampled_from(["whole", "int", "slice", "array", "batched"]))
        low = min(n, 2)
        parts.append(
            {
                "whole": slice(None),
                "int": int(rng.integers(low)),
                "slice": slice(0, low),
                "array": rng.integers(0, low, (2,)),
                "batched": rng.integers(0, low, (3, 2)),
            }[kind]
        )
    batched = [k for k, part in enumerate(parts) if isinstance(part, np.ndarray) and part.ndim == 2]

    def key(example: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(example.get(k, part) for k, part in enumerate(parts))

    given_arrays = [tc.asarray(parts[k]) for k in batched]
    expected = np.stack([x[b][key({k: parts[k][b] for k in batched})] for b in range(3)])
    found = tc.vmap(lambda v, *arrays: v[key(dict(zip(batched, arrays, strict=True)))])(tc.asarray(x), *given_arrays)
    assert np.array_equal(found.numpy(), expected)
    shared = tc.asarray(x[0])
    if batched:
        found = tc.vmap(lambda *arrays: shared[key(dict(zip(batched, arrays, strict=True)))])(*given_arrays)
        expected = np.stack([x[0][key({k: parts[k][b] for k in batched})] for b in range(3)])
        assert np.array_equal(found.numpy(), expected)

    def assigned(v: Any, *arrays: Any) -> Any:
        v[key(dict(zip(batched, arrays, strict=True)))] = 7.0
        return v

    found = tc.vmap(assigned)(tc.asarray(x), *given_arrays)
    expected = x.copy()
    for b in range(3):
        expected[b][key({k: parts[k][b] for k in batched})] = 7.0
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.usefixtures("_ops_are_forgotten")
def test_an_op_without_a_rule_loops_and_says_so() -> None:
    @op(x=NONDIFF, kernel=lambda xp, x: xp.sum(x) if bool(xp.any(x > 1)) else xp.max(x), reason="a test")
    def looped(x: Any, /) -> Any:
        """Decides by values."""

    assert tc.vmap(looped)(tc.asarray([[0.5, 0.25], [2.0, 1.0]])).tolist() == [0.5, 3.0]
    assert way_of(registry["nonzero"]) == "loop"
    assert way_of(registry["sin"]) == way_of(registry["matmul"]) == "rule"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x if x[0] > 0 else -x, "whether a value is true"),
        (lambda x: x * float(x[0]), "a value as a float"),
        (lambda x: x.numpy(), "what a Tensor holds"),
        (lambda x: np.from_dlpack(x), "what a Tensor holds is not known"),
        (lambda x: x[tc.argmax(x).item()], "int"),
        (lambda x: x * tc.default_rng(0).normal((4,)), "random numbers inside vmap"),
        (lambda x: tc.nonzero(x > 0.5), "the shape of its result depends on values"),
        (lambda x: x[x > 0.5], "mask inside vmap"),
    ],
)
def test_what_needs_values_is_refused(function: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        tc.vmap(function)(tc.asarray(X))


def test_mistakes_in_arguments() -> None:
    x = tc.asarray(X)
    with pytest.raises(ValueError, match=r"different numbers of examples \(argument 0: 3, argument 1: 4\)"):
        tc.vmap(lambda a, b: a)(x, tc.asarray(X.T))
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        tc.vmap(lambda a: a, in_axes=2)(x)
    with pytest.raises(ValueError, match="in_axes has 1 entries, the function is called with 2"):
        tc.vmap(lambda a, b: a, in_axes=(0,))(x, x)
    with pytest.raises(ValueError, match="in_axes is None for all"):
        tc.vmap(lambda a: a, in_axes=None)(x)
    with pytest.raises(TypeError, match="it has no axis of examples; give it in_axes=None"):
        tc.vmap(lambda a, b: a)(x, 2.0)
    with pytest.raises(ValueError, match=r"in_axes .* does not fit the structure"):
        tc.vmap(lambda a: a, in_axes=({"y": 0},))({"x": x})
    with pytest.raises(ValueError, match="chunk_size"):
        tc.vmap(lambda a: a, chunk_size=0)
    with pytest.raises(ValueError, match="axis 3 is out of bounds"):
        tc.vmap(lambda a: a, out_axes=3)(x)


def test_a_value_that_leaves_vmap_by_another_way_is_of_no_use() -> None:
    kept: list[Any] = []
    tc.vmap(lambda x: kept.append(x) or x)(tc.asarray(X))
    with pytest.raises(ValueError, match="used where that vmap has ended"):
        kept[0] + 1
    with pytest.raises(ValueError, match="used where that vmap has ended"):
        tc.vmap(lambda x: x + kept[0])(tc.asarray(X))


def test_an_error_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError):
        tc.vmap(lambda x: 1 // 0)(tc.asarray(X))
    assert tc.vmap(lambda x: x * 2)(tc.asarray(X)).shape == X.shape
    assert tc.default_rng(0).normal((2,)).shape == (2,)


def test_errors_are_those_of_one_example() -> None:
    with pytest.raises(ValueError, match="axis 1 is out of bounds for an array of 1 dimension"):
        tc.vmap(lambda x: tc.sum(x, axis=1))(tc.asarray(X))
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        tc.vmap(lambda x: tc.linalg.inv(x))(tc.asarray(X))


def test_what_is_on_its_backend_stays() -> None:
    x = tc.asarray(X)
    assert tc.vmap(lambda x: tc.asarray(x, backend=x.backend.library) * 2)(x).tolist() == (2 * X).tolist()
    assert tc.vmap(lambda x: tc.asarray(x, dtype="float32", copy=True).to_device("cpu"))(x).dtype is tc.float32
    assert tc.vmap(lambda x: tc.full_like(x, tc.sum(x)))(x).tolist() == [[row.sum()] * 4 for row in X]


def test_no_examples() -> None:
    assert tc.vmap(lambda x: tc.sum(x * x))(tc.zeros((0, 3))).shape == (0,)
    assert tc.vmap(lambda x: tc.reshape(x, (-1, 1)))(tc.zeros((0, 3))).shape == (0, 3, 1)
    assert tc.vmap(lambda x: tc.matmul(x, tc.ones((3, 2))))(tc.zeros((0, 4, 3))).shape == (0, 4, 2)


def test_stop_gradient_inside_stops_derivatives_of_the_whole() -> None:
    x = tc.asarray([2.0, 3.0])
    assert tc.grad(lambda x: tc.sum(tc.vmap(lambda x: tc.stop_gradient(x) * x)(x)))(x).tolist() == [2.0, 3.0]
    twice = tc.vmap(tc.vmap(lambda x: tc.stop_gradient(x) * x))
    assert tc.jvp(lambda x: twice(x[None]), (x,), (tc.ones(2),))[1].tolist() == [[2.0, 3.0]]


def test_random_numbers_are_refused_with_what_to_do() -> None:
    x = tc.ones(3)
    for draw in (
        lambda x: x * tc.default_rng(0).uniform(),
        lambda x: x + tc.default_rng(0).integers(0, 3),
        lambda x: x + tc.default_rng(0).permutation(3)[0],
        lambda x: tc.dropout(x, 0.5),
    ):
        for f in (draw, tc.grad(draw), tc.checkpoint(draw)):
            with pytest.raises(TypeError, match=r"random numbers inside vmap: say how .*randomness=\"different\""):
                tc.vmap(f)(x)


@pytest.mark.parametrize("update", ["set", "add", "multiply"])
def test_a_number_is_put_where_the_mask_of_each_example_is(update: str) -> None:
    x = tc.asarray([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])

    def f(row: Any) -> Any:
        return getattr(tc.at(row * row)[row < 2.0], update)(0.5)

    def total(row: Any) -> Any:
        return tc.sum(f(row) ** 2)

    for g in (tc.vmap(f), tc.function(tc.vmap(f))):
        assert g(x).tolist() == [f(row).tolist() for row in x]
    assert tc.vmap(tc.grad(total))(x).tolist() == [tc.grad(total)(row).tolist() for row in x]
    assert tc.vmap(tc.vmap(f))(x[None]).tolist() == [[f(row).tolist() for row in x]]


def test_values_of_its_own_for_each_element_of_a_mask_are_refused() -> None:
    with pytest.raises(BatchError, match="mask inside vmap"):
        tc.vmap(lambda row: tc.at(row)[row > 0.0].set(tc.sum(row)))(tc.ones((2, 3)))


@pytest.mark.parametrize("shared", [True, False])
def test_derivatives_of_products_at_indices_of_each_example(shared: bool) -> None:
    x = tc.asarray([[2.0, 0.0, 3.0], [0.5, -1.0, 0.0]], dtype=tc.float64)
    ids = tc.asarray([[0, 1, 0], [2, 2, 2]])

    def product(row: Any, ids: Any) -> Any:
        return tc.sum(tc.segment_prod(row, ids, 3) ** 2) + tc.sum(tc.at(tc.ones(3))[ids].multiply(row))

    slope = tc.grad(product)
    own = [ids[0], ids[0]] if shared else list(tc.unstack(ids))
    wanted = [slope(row, index).tolist() for row, index in zip(tc.unstack(x), own, strict=True)]
    mapped = tc.vmap(slope, in_axes=(0, None) if shared else 0)
    for f in (mapped, tc.function(mapped)):
        np.testing.assert_allclose(f(x, ids[0] if shared else ids), wanted, rtol=1e-12)


@pytest.mark.each_backend
def test_what_an_op_inside_vmap_has_used_keeps_its_value_when_the_tensor_gets_another() -> None:
    def halved(y: tc.Tensor) -> tc.Tensor:  # as scipy.integrate.romb halves its steps
        h = tc.asarray(4.0)
        r = h * y[0]
        h /= 2.0
        return r + h * y[1]

    y = tc.asarray([1.0, 2.0])
    assert tc.grad(halved)(y).tolist() == [4.0, 2.0]
    assert tc.vmap(tc.grad(halved))(tc.stack([y, 2 * y])).tolist() == [[4.0, 2.0], [4.0, 2.0]]


def test_functions_of_tensors_alone_are_mapped_without_optree_which_takes_time_to_import() -> None:
    program = (
        "import sys, tape_core as tc; x = tc.ones((3, 2));"
        "tc.vmap(lambda a, b: [a * b, a], in_axes=(0, None), out_axes=[0, 1])(x, x[0]);"
        "tc.sparse_hessian(lambda x: tc.sum(x[1:] * x[:-1]), x[:, 0]);"
        "print('optree' in sys.modules)"
    )
    assert run_python("-c", program) == "False\n"


@pytest.mark.each_backend
def test_names_of_arguments_in_errors_are_the_same_with_keywords_and_without() -> None:
    x, y = tc.ones((3, 2)), tc.ones((4, 2))
    with pytest.raises(ValueError, match=r"\(argument 0: 3, argument 1: 4\)"):
        tc.vmap(lambda a, b: a * b)(x, y)
    with pytest.raises(ValueError, match=r"\(argument 0: 3, argument 'b': 4\)"):
        tc.vmap(lambda a, b: a * b)(x, b=y)
    with pytest.raises(ValueError, match=r"\(argument 0\['x'\]: 3, argument 1: 4\)"):
        tc.vmap(lambda a, b: a["x"] * b)({"x": x}, y)
