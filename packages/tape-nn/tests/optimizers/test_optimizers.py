"""Optimizers, against the numbers of Keras and of PyTorch; sparse gradients, clipping, state and mistakes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn

DATA = json.loads((Path(__file__).parents[1] / "expected" / "trajectories.json").read_text())


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
    "case", DATA["cases"], ids=lambda c: "-".join(map(str, (c["optimizer"], c["from"], *c["options"].items())))
)
def test_trajectories(case: dict[str, Any], dtype: Any, tolerance: float) -> None:
    if dtype is tc.float32 and case["options"].get("epsilon", 1) < 1e-20:
        pytest.skip("this epsilon is zero in float32")
    if dtype is tc.float32 and case["optimizer"] == "Lion":
        pytest.skip("the sign of what is nearly 0 is that of the rounding")
    if case["from"] == "keras" and {"clipnorm", "global_clipnorm"} & case["options"].keys():
        tolerance = max(tolerance, 1e-7)  # Keras' limit is a float32
    for ours, theirs in zip(trained(case, dtype), case["w, b"], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


OPTIMIZERS = [
    pytest.param(lambda **o: nn.SGD(0.1, **o), id="sgd"),
    pytest.param(lambda **o: nn.Adagrad(0.2, **o), id="adagrad"),
    pytest.param(lambda **o: nn.SGD(0.1, momentum=0.9, **o), id="momentum"),
    pytest.param(lambda **o: nn.SGD(0.1, momentum=0.9, nesterov=True, **o), id="nesterov"),
    pytest.param(lambda **o: nn.Adam(0.1, **o), id="adam"),
    pytest.param(lambda **o: nn.Adam(0.1, amsgrad=True, **o), id="amsgrad"),
    pytest.param(lambda **o: nn.AdamW(0.1, **o), id="adamw"),
    pytest.param(lambda **o: nn.RMSprop(0.1, momentum=0.5, centered=True, **o), id="rmsprop"),
    pytest.param(lambda **o: nn.Adadelta(1.0, epsilon=0.1, **o), id="adadelta"),
    pytest.param(lambda **o: nn.Adamax(0.1, **o), id="adamax"),
    pytest.param(lambda **o: nn.Nadam(0.1, **o), id="nadam"),
    pytest.param(lambda **o: nn.Lion(0.1, **o), id="lion"),
    pytest.param(lambda **o: nn.Ftrl(0.1, **o), id="ftrl"),
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
    assert a.item() == c.item() < b.item()


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
    for wrong in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="learning_rate must be a number of at least 0; got"):
            nn.Adam(wrong)
    with pytest.raises(ValueError, match="clipnorm must be above 0; got 0"):
        nn.Adam(clipnorm=0)
    with pytest.raises(ValueError, match="clipnorm and clipvalue were both given"):
        nn.SGD(clipnorm=1.0, clipvalue=1.0)
    with pytest.raises(ValueError, match="weight_decay must be at least 0; got -1"):
        nn.SGD(weight_decay=-1)
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        nn.Adadelta(epsilon=0)


def test_a_variable_twice_and_variables_of_two_backends() -> None:
    v = tc.Variable([1.0], name="v")
    with pytest.raises(ValueError, match="'v' is there twice"):
        nn.SGD().apply_gradients([([1.0], v), ([1.0], v)])
    pytest.importorskip("tape_torch")
    a, b = tc.Variable([1.0], backend="numpy"), tc.Variable([1.0], backend="torch", name="b")
    with pytest.raises(TypeError, match="several backends: 'b' is on 'torch', those before on 'numpy'"):
        nn.SGD().apply_gradients([([1.0], a), ([1.0], b)])
    assert (a.item(), b.item()) == (1.0, 1.0)


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


@pytest.mark.parametrize(
    "make", [case for case in OPTIMIZERS if case.id not in ("sgd", "adagrad", "adadelta", "adamw", "ftrl")]
)
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


# -- large arrays, which are updated in pieces


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "clipvalue": 0.5}], ids=["plain", "options"])
def test_large_arrays_are_updated_as_small_ones(make: Any, options: dict[str, Any]) -> None:
    n = (1 << 17) + 1001  # more than a block
    start, steps = tc.linspace(-1.0, 1.0, n), [tc.linspace(a, b, n) for a, b in ((-1.0, 2.0), (1.0, -3.0))]
    whole, whole_optimizer = tc.Variable(start), make(**options)
    split, split_optimizer = [tc.Variable(start[:1000]), tc.Variable(start[1000:2000])], make(**options)
    kept = whole.value  # so that the first update cannot be in place
    for step in steps:
        whole_optimizer.apply_gradients([(step, whole)])
        split_optimizer.apply_gradients([(step[:1000], split[0]), (step[1000:2000], split[1])])
    assert bool(tc.all(kept == start))
    expected = np.concatenate([v.numpy() for v in split])
    np.testing.assert_allclose(whole.numpy()[:2000], expected, rtol=2e-6)  # kernels round by their width
    last, last_optimizer = tc.Variable(start[-1001:]), make(**options)
    for step in steps:
        last_optimizer.apply_gradients([(step[-1001:], last)])
    np.testing.assert_allclose(whole.numpy()[-1001:], last.numpy(), rtol=2e-6)


def test_a_transposed_variable_and_gradient() -> None:
    n = 300
    start = tc.permute_dims(tc.reshape(tc.linspace(0.0, 1.0, n * n), (n, n)), (1, 0))
    v, optimizer = tc.Variable(start), nn.SGD(1.0)
    optimizer.apply_gradients([(start, v)])
    assert bool(tc.all(v == 0))


# -- clipping, decay, schedules


def test_clipping_of_sparse_gradients_counts_rows_once() -> None:
    for options in ({"clipnorm": 20.0}, {"global_clipnorm": 20.0}, {"clipvalue": 150.0}):
        one, other = tc.Variable(tc.ones((5, 2))), tc.Variable(tc.ones((5, 2)))
        nn.SGD(0.5, **options).apply_gradients([(sparse(), one)])
        nn.SGD(0.5, **options).apply_gradients([(tc.asarray(DENSE, dtype=tc.float32), other)])
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)
        assert tc.max(tc.abs(one)).item() < 90


def test_rows_counted_from_the_end_are_the_same_rows() -> None:
    table = tc.Variable(tc.zeros((4, 1)))
    nn.Adagrad(1.0, initial_accumulator_value=0.0, epsilon=0.0).apply_gradients(
        [(tc.IndexedSlices(tc.asarray([[1.0], [2.0]]), tc.asarray([3, -1]), (4, 1)), table)]
    )
    assert table.tolist() == [[0.0], [0.0], [0.0], [-1.0]]


def test_norms() -> None:
    a, b = tc.asarray([3.0]), tc.asarray([[4.0]])
    assert nn.global_norm([a, None, b]).item() == 5.0
    assert nn.clip_by_norm(a, 5.0).tolist() == [3.0]
    clipped, norm = nn.clip_by_global_norm([a, None, b], 1.0)
    assert norm.item() == 5.0
    assert clipped[1] is None
    np.testing.assert_allclose([clipped[0].item(), clipped[2].item()], [0.6, 0.8], rtol=1e-6)
    assert nn.clip_by_norm(tc.zeros(2), 1.0).tolist() == [0.0, 0.0]
    lost, _ = nn.clip_by_global_norm([a, tc.asarray([np.inf])], 1.0)
    assert np.isnan([g.item() for g in lost]).all()
    half = tc.asarray([300.0, 400.0], dtype=tc.float16)  # whose squares are not float16
    assert nn.global_norm([half]).item() == 500.0
    assert nn.clip_by_norm(half, 5.0).dtype is tc.float16
    assert nn.global_norm([sparse()]).item() == pytest.approx(np.linalg.norm(DENSE))
    with pytest.raises(ValueError, match="norm of no gradients"):
        nn.global_norm([None])


def test_norms_have_derivatives() -> None:
    x = tc.asarray([3.0, 4.0])
    gradient = tc.grad(lambda x: tc.sum(nn.clip_by_norm(x, 1.0) * tc.asarray([1.0, 0.0])))(x)
    np.testing.assert_allclose(gradient.numpy(), [16 / 125, -12 / 125], rtol=1e-5)


def test_weight_decay_spares_what_is_excluded() -> None:
    kernel, bias = tc.Variable([1.0]), tc.Variable([1.0])
    optimizer = nn.SGD(0.5, weight_decay=0.5)
    optimizer.exclude_from_weight_decay([bias])
    optimizer.apply_gradients([([0.0], kernel), ([0.0], bias)])
    assert (kernel.item(), bias.item()) == (0.75, 1.0)
    with pytest.raises(TypeError, match="takes Variables; got 'str'"):
        optimizer.exclude_from_weight_decay(["bias"])  # type: ignore[list-item]


def test_weight_decay_moves_rows_without_a_gradient() -> None:
    table = tc.Variable(tc.ones((5, 2)))
    nn.SGD(0.5, weight_decay=0.5).apply_gradients([(sparse(), table)])
    np.testing.assert_allclose(table.numpy(), 0.75 - 0.5 * np.asarray(DENSE))


@pytest.mark.parametrize("case", DATA["schedules"], ids=lambda c: "-".join([c["schedule"], *map(str, c["options"])]))
def test_schedules(case: dict[str, Any]) -> None:
    schedule = getattr(nn.schedules, case["schedule"])(**case["options"])
    found = [schedule(step) for step in DATA["schedule steps"]]
    np.testing.assert_allclose(found, case["values"], rtol=1e-12)


def test_a_schedule_is_followed() -> None:
    v, optimizer = tc.Variable([0.0]), nn.SGD(nn.schedules.PiecewiseConstantDecay([0], [1.0, 0.5]))
    for _ in range(3):
        optimizer.apply_gradients([([1.0], v)])
    assert v.item() == -2.0
    optimizer.learning_rate = lambda step: step / 3  # type: ignore[assignment]
    assert optimizer.learning_rate == 1.0
    optimizer.learning_rate = lambda step: -1.0  # type: ignore[assignment]
    with pytest.raises(ValueError, match="the schedule's learning rate must be a number of at least 0; got -1"):
        optimizer.apply_gradients([([1.0], v)])
    assert v.item() == -2.0


def test_schedules_out_of_range() -> None:
    with pytest.raises(ValueError, match="decay_steps must be above 0"):
        nn.schedules.ExponentialDecay(0.1, 0, 0.5)
    with pytest.raises(ValueError, match="values must be one more than boundaries; got 1 and 1"):
        nn.schedules.PiecewiseConstantDecay([1], [0.5])
    with pytest.raises(ValueError, match="boundaries must increase"):
        nn.schedules.PiecewiseConstantDecay([2, 1], [0.5, 0.4, 0.3])
    with pytest.raises(ValueError, match="warmup_steps needs warmup_target"):
        nn.schedules.CosineDecay(0.1, 10, warmup_steps=5)


# -- state


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_state_goes_on_where_it_was(make: Any) -> None:
    def moved(optimizer: Any, variables: dict[str, tc.Variable], steps: range) -> None:
        for k in steps:
            optimizer.apply_gradients([(v * (k + 1.0) + 0.1, v) for v in variables.values()])

    a, b = ({"w": tc.Variable([1.0, -2.0]), "b": tc.Variable(3.0)} for _ in range(2))
    one, other = make(), make()
    moved(one, {"w": a["w"]}, range(1))
    moved(one, a, range(1, 4))
    one.learning_rate = 0.03
    state = one.state_dict(a)
    for name, v in a.items():
        b[name].assign(v)
    moved(one, a, range(4, 7))  # must not change the state that was taken
    other.load_state_dict(state, b)
    moved(other, b, range(4, 7))
    assert [v.tolist() for v in a.values()] == [v.tolist() for v in b.values()]
    assert (other.iterations, other.learning_rate) == (7, 0.03)


def test_states_that_do_not_fit() -> None:
    w = tc.Variable([1.0, 2.0], name="w")
    optimizer = nn.Adam()
    optimizer.apply_gradients([([1.0, 1.0], w)])
    state = optimizer.state_dict({"w": w})
    with pytest.raises(ValueError, match="'w' was updated by this optimizer and is not among the variables"):
        optimizer.state_dict({})
    with pytest.raises(ValueError, match=r"unknown names: 'w/.*There are 'kernel/momentum'"):
        nn.Adam().load_state_dict(state, {"kernel": w})
    with pytest.raises(ValueError, match=r"unknown names: 'w/velocity'\. There are 'w/momentum', 'w/started'"):
        nn.SGD(momentum=0.5).load_state_dict(state, {"w": w})
    with pytest.raises(ValueError, match=r"'w/velocity' is missing"):
        nn.Adam().load_state_dict({k: v for k, v in state.items() if k != "w/velocity"}, {"w": w})
    with pytest.raises(ValueError, match=r"'w/momentum' has shape \(2,\); the variable has \(3,\)"):
        nn.Adam().load_state_dict(state, {"w": tc.Variable([1.0, 2.0, 3.0])})
    with pytest.raises(TypeError, match="a Module or a mapping"):
        optimizer.state_dict([w])


# -- averages


def test_averages() -> None:
    model = nn.Dense(1, kernel_initializer="ones")
    average = nn.ExponentialMovingAverage(model, decay=0.75)
    with pytest.raises(RuntimeError, match="no averages before the first"):
        average.averaged().__enter__()
    model(tc.ones((1, 1)))
    kernel = model.kernel
    assert kernel is not None
    average.update()
    kernel.assign([[5.0]])
    average.update()
    state = average.state_dict()
    assert state["kernel"].tolist() == [[2.0]]
    with pytest.raises(KeyError), average.averaged():
        assert kernel.tolist() == [[2.0]]
        raise KeyError
    assert kernel.tolist() == [[5.0]]
    average.update()
    assert state["kernel"].tolist() == [[2.0]]
    average.load_state_dict(state)
    average.update()
    assert average.state_dict()["kernel"].tolist() == [[2.75]]
    with pytest.raises(ValueError, match=r"'kernal' \(did you mean 'kernel'\?\)"):
        average.load_state_dict({"kernal": 1.0})
    with pytest.raises(ValueError, match="decay must be between 0 and 1; got 2"):
        nn.ExponentialMovingAverage(model, 2)


def test_averages_of_large_arrays() -> None:
    v = tc.Variable(tc.zeros(300_000))
    average = nn.ExponentialMovingAverage({"v": v}, 0.5)
    average.update()
    v.assign(tc.ones(300_000))
    average.update()
    assert bool(tc.all(average.state_dict()["v"] == 0.5))
    assert bool(tc.all(v == 1.0))


def test_an_optimizer_can_be_told_its_variables_before() -> None:
    v, optimizer = tc.Variable([1.0]), nn.Adam(0.1)
    optimizer.build([v])
    assert sorted(optimizer.state_dict({"v": v})) == [
        "iterations", "learning_rate", "v/momentum", "v/started", "v/velocity"
    ]  # fmt: skip
    with pytest.raises(TypeError, match="build takes Variables; got 'float'"):
        optimizer.build([1.0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="only floating-point variables"):
        optimizer.build([tc.Variable([1])])
