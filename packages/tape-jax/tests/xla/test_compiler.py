"""Functions compiled by XLA against the same functions as plain Python, on arrays of several backends."""

import os
import sys

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.backends import installed
from tape_core.staging import TracingError, host_callback, value_check

BACKENDS = [name for name in ("numpy", "torch", "jax") if name in installed()]
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    with tc.use_backend(request.param):
        yield request.param


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)
    assert found.dtype == expected.dtype
    assert type(found.array) is type(expected.array)


def leaves(result):
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, (tuple, list)) else [result]


def compare(f, *args, calls=3, tolerance=1e-5):
    compiled = tc.function(f, compile="xla")
    for _ in range(calls):
        found, expected = compiled(*args), f(*args)
        for a, b in zip(leaves(found), leaves(expected), strict=True):
            close(a, b, tolerance)


def test_value_and_gradient():
    def f(x, w):
        with tc.GradientTape() as tape:
            tape.watch([x, w])
            y = tc.sum(tc.tanh(x @ w) ** 2)
        return y, tape.gradient(y, [x, w])

    compare(f, tc.ones((4, 3)) * 0.3, tc.ones((3, 2)) * 0.5, tolerance=1e-4)


def test_training_with_a_count_draws_and_a_check():
    def losses(compile):
        tc.set_seed(0)
        model = nn.Sequential([nn.Dense(8, activation="tanh"), nn.Dropout(0.2), nn.Dense(3)])
        optimizer = nn.Adam(0.05)

        @tc.function(compile=compile)
        def step(x, y):
            with tc.GradientTape() as tape:
                loss = tc.mean(tc.cross_entropy(model(x), y))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        x = tc.reshape(tc.linspace(-1, 1, 36), (12, 3))
        y = tc.asarray([0, 1, 2] * 4)
        return [step(x, y).item() for _ in range(12)], tc.random.get_state(), optimizer.iterations

    found, state, optimizer = losses("xla")
    expected, expected_state, expected_optimizer = losses("python")
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert state == expected_state
    assert optimizer == expected_optimizer == 12


def test_random_numbers_are_those_of_tape():
    rng = tc.default_rng(5)

    def f():
        return (
            tc.random.global_rng().normal((5,)),
            tc.random.global_rng().uniform((2, 3), dtype=tc.float64),
            tc.random.global_rng().integers(0, 10, (7,)),
            tc.random.global_rng().integers(0, 2**40, (7,)),
            tc.random.global_rng().permutation(9),
            rng.uniform((3,)),
        )

    compiled = tc.function(f, compile="xla")
    found, expected = [], []
    for g, results in ((compiled, found), (f, expected)):
        tc.set_seed(3)
        rng.set_state(tc.default_rng(8).get_state())
        results += [leaf for _ in range(3) for leaf in g()]
        results.append(tc.random.global_rng().uniform((2,)))
    for a, b in zip(found, expected, strict=True):
        close(a, b, 1e-6)


def test_loops_and_branches_with_draws():
    def f(xs):
        def step(carry, x):
            noise = tc.random.global_rng().normal(())
            return carry * 0.9 + x + noise, carry + noise

        carry, ys = tc.scan(step, xs[0], xs)
        doubled = tc.while_loop(lambda v: tc.sum(v) < 100, lambda v: v * 2, tc.abs(carry) + 1)
        return ys, tc.cond(
            tc.sum(doubled) > 150, lambda a: a + tc.random.global_rng().uniform(()), lambda a: a - 1, doubled
        )

    compiled = tc.function(f, compile="xla")
    xs = tc.linspace(0, 1, 6)
    results = []
    for g in (compiled, f):
        tc.set_seed(1)
        results.append([leaf for _ in range(4) for leaf in g(xs)])
    for a, b in zip(*results, strict=True):
        close(a, b)


def test_gradients_of_loops():
    def f(x, xs):
        with tc.GradientTape() as tape:
            tape.watch([x, xs])
            carry, ys = tc.scan(lambda c, e: (tc.sin(c) + e * c, c * e), x, xs)
            grown = tc.while_loop(lambda v: tc.sum(v) < 50, lambda v: v * v + 1, carry)
            y = tc.sum(ys) + tc.sum(grown)
        return tape.gradient(y, [x, xs])

    compare(f, tc.ones((3,)) * 0.5, tc.linspace(0.1, 1, 8), tolerance=1e-4)


def test_gradients_of_scans_with_draws():
    def f(x, xs):
        with tc.GradientTape() as tape:
            tape.watch(x)
            _, ys = tc.scan(lambda c, e: (tc.sin(c) * tc.random.global_rng().uniform(()) + e, c), x, xs)
            y = tc.sum(ys)
        return y, tape.gradient(y, x)

    compiled = tc.function(f, compile="xla")
    results = []
    for g in (compiled, f):
        tc.set_seed(1)
        results.append([leaf for _ in range(3) for leaf in g(tc.ones((3,)), tc.linspace(0.1, 1, 8))])
    for a, b in zip(*results, strict=True):
        close(a, b)


def test_checkpointed_dropout():
    def f(x):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(tc.checkpoint(lambda x: tc.dropout(tc.sin(x), 0.5) ** 2)(x) + tc.dropout(x, 0.5))
        return tape.gradient(y, x)

    compiled = tc.function(f, compile="xla")
    results = []
    for g in (compiled, f):
        tc.set_seed(1)
        results.append([g(tc.ones((40,))) for _ in range(3)])
    for a, b in zip(*results, strict=True):
        close(a, b)


def test_printing_and_checks_in_order(capsys):
    @host_callback
    def say(what, value):
        sys.stdout.write(f"{what} {value.item()}\n")

    @tc.function(compile="xla")
    def f(x):
        y = x * 2
        say("twice", tc.sum(y))
        z = tc.sin(y)
        say("sine", tc.sum(z))
        return z

    for value in (1.0, 2.0, 3.0):
        f(tc.asarray(value))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["twice", "sine"] * 3
    assert float(lines[4].split()[1]) == 6.0


def test_a_failing_check_names_the_line_and_leaves_variables():
    v = tc.Variable(tc.ones(3))

    @value_check
    def is_small(x):
        if x.item() > 5:
            raise ValueError("the sum is large")

    @tc.function(compile="xla")
    def f(x):
        v.assign(v * 2)
        is_small(tc.sum(v * x))
        return tc.sum(v)

    f(tc.asarray(0.1))
    f(tc.asarray(0.1))
    before = v.tolist()
    with pytest.raises(ValueError, match="the sum is large") as caught:
        f(tc.asarray(7.0))
    assert "is_small(tc.sum(v * x))" in "".join(caught.value.__notes__)
    assert v.tolist() == before


def test_a_mask_is_refused_with_the_line_and_falls_back():
    def f(x):
        return tc.sum(x[x > 0])

    with pytest.raises(TracingError, match=r"where.*cond"):
        tc.function(f, compile="xla")(tc.ones(3))
    soft = tc.function(f, compile="xla", fallback=True)
    with pytest.warns(UserWarning, match="not compiled"):
        close(soft(tc.ones(3)), tc.asarray(3.0))
    close(soft(tc.ones(3)), tc.asarray(3.0))


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_a_mask_that_is_a_constant_may_be_in_a_key(library):
    x = tc.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], backend=library)
    mask = np.array([[True, True, False], [False, False, True]])
    for key in ((mask, None), (np.array([1, -1]), mask[0])):
        values = -x[key]

        def f(x, key=key, values=values):
            at = tc.at(x)[key]
            return (
                x[key], at.set(values), at.add(values), at.multiply(2.0), at.max(values), at.min(values),
                tc.grad(lambda x: tc.sum(x[key] ** 3))(x), tc.grad(lambda x: tc.sum(tc.at(x)[key].set(x[key] ** 2)))(x),
                tc.vmap(lambda x: x[key])(tc.stack([x, x + 1.0])),
                tc.scan(lambda c, e: (tc.at(c)[key].add(e), c[key]), x, tc.asarray([1.0, 2.0], backend=library)),
            )  # fmt: skip

        compiled = tc.function(f, compile="xla")
        for _ in range(2):
            for found, expected in zip(tc.tree_leaves(compiled(x)), tc.tree_leaves(f(x)), strict=True):
                assert found.tolist() == expected.tolist()


def test_what_a_user_keeps_is_never_changed():
    v = tc.Variable(tc.ones(1000))
    slot = tc.Variable(tc.zeros(1000))

    @tc.function(compile="xla")
    def step(x):
        slot.assign(0.9 * slot + x)
        v.assign_sub(slot)
        return v.value + 0

    x = tc.ones(1000)
    kept, copies = [], []
    for _ in range(6):
        result = step(x)
        for tensor in (v.value, slot.value, result, x):
            kept.append(tensor.array)
            copies.append(np.array(tensor.numpy()))
        v.assign_add(tc.ones(1000))  # eagerly, which may work in place where nobody holds the array
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(np.asarray(array), copy)


def test_an_argument_may_be_written_to_after_the_call(backend):
    if backend == "jax":
        pytest.skip("its arrays are immutable")

    @tc.function(compile="xla")
    def f(x):
        return x @ x, x

    x = tc.ones((300, 300))
    f(x)
    found, same = f(x)
    x.array[:] = 0
    assert found.numpy().min() == 300
    assert same.array is x.array


def test_results_of_numpy_are_read_only(backend):
    if backend != "numpy":
        pytest.skip("of NumPy")
    f = tc.function(lambda x: x + 1, compile="xla")
    f(tc.ones(3))
    with pytest.raises(ValueError, match="read-only"):
        f(tc.ones(3)).array[0] = 2


def test_constants_inputs_and_numbers_among_the_results():
    large = tc.reshape(tc.arange(2000.0), (40, 50))

    def f(x):
        return {"same": x, "constant": tc.ones((2,)) * 3, "large": x[0] + large, "number": 4}

    compiled = tc.function(f, compile="xla")
    for _ in range(3):
        found = compiled(tc.ones((2, 50)))
        assert found["number"] == 4
        close(found["large"], 1 + large)
        close(found["constant"], tc.ones((2,)) * 3)


def test_a_compiled_function_inside_others_and_transformations():
    inner = tc.function(lambda x: tc.sum(tc.sin(x) * x), compile="xla")
    python = tc.function(lambda x: tc.sum(tc.cos(x) * x))
    outer = tc.function(lambda x: inner(x) + python(x), compile="xla")
    around = tc.function(lambda x: inner(x) * python(x))

    def plain(x):
        return inner.python(x) + python.python(x)

    x = tc.linspace(0.1, 1, 5)
    for _ in range(3):
        close(outer(x), plain(x))
        close(around(x), inner.python(x) * python.python(x))
        close(tc.grad(outer)(x), tc.grad(plain)(x))
        close(
            tc.grad(tc.function(tc.grad(lambda x: outer(x) ** 2), compile="xla").python and plain)(x), tc.grad(plain)(x)
        )
        close(tc.vmap(inner)(tc.stack([x, x + 1])), tc.stack([inner.python(x), inner.python(x + 1)]))
        close(tc.jacrev(lambda x: outer(x * x))(x), tc.jacrev(lambda x: plain(x * x))(x))
        close(tc.grad(tc.checkpoint(outer))(x), tc.grad(plain)(x))
        carry, _ = tc.scan(lambda c, e: (c + inner(e), c), tc.asarray(0.0), tc.stack([x, x]))
        close(carry, 2 * inner.python(x))


def test_dtypes_come_back_as_they_were():
    def f(x, n, mask, z):
        return (
            x.astype(tc.float64) + 1,
            n // 2,
            n / 2,
            ~mask,
            z * 1j,
            tc.where(mask, x, 0),
            tc.astype(x, tc.bfloat16) * 2,
        )

    compare(
        f, tc.ones(3), tc.asarray([3, -4, 5]), tc.asarray([True, False, True]), tc.asarray([1 + 2j, 0, 1j]),
        tolerance=1e-6,
    )  # fmt: skip


def test_states_of_keyed_loops_and_seeds():
    def f(x):
        rng = tc.default_rng(3)
        return rng.uniform((2,)) + x, tc.random.global_rng().uniform((2,))

    compiled = tc.function(f, compile="xla")
    results = []
    for g in (compiled, f):
        tc.set_seed(4)
        results.append([leaf for _ in range(3) for leaf in g(tc.ones(2))])
    for a, b in zip(*results, strict=True):
        close(a, b, 1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_computes_in_python(backend):
    if backend == "jax":
        pytest.skip("JAX's own arrays need XLA's threads")
    f = tc.function(lambda x: tc.sum(tc.sin(x)), compile="xla")
    x = tc.ones(3)
    for _ in range(2):
        expected = f(x).item()
    if (child := os.fork()) == 0:
        os._exit(0 if abs(f(x).item() - expected) < 1e-5 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_rules_that_have_a_shorter_way_for_some_values_take_the_general_one():
    def f(a, b):
        with tc.GradientTape() as tape:
            tape.watch([a, b])
            y = tc.sum(tc.cumulative_prod(a, axis=0)) + tc.linalg.slogdet(a)[1] + tc.sum(tc.linalg.solve(a, b))
        return tape.gradient(y, [a, b]), tc.linalg.solve_triangular(a, b), tc.linalg.det(a)

    compare(f, tc.eye(3) * 2 + tc.ones((3, 3)), tc.ones((3, 2)), tolerance=1e-4)


@pytest.mark.parametrize("zero", [False, True])
def test_the_way_for_zeros_in_the_gradient_of_a_cumulative_product_is_computed_only_where_there_are_some(zero):
    import jax

    def f(x):
        return tc.grad(lambda x: tc.sum(tc.cumulative_prod(x, axis=1) ** 2))(x)

    x = np.linspace(0.5, 1.5, 12).reshape(2, 6)
    x[1, 2] = 0 if zero else x[1, 2]
    compare(f, tc.asarray(x))
    with tc.use_backend("jax"):
        tables = jax.make_jaxpr(lambda x: f(tc.asarray(x)).array)(x)
    shapes = [v.aval.shape for eqn in tables.jaxpr.eqns for v in eqn.outvars]
    assert (2, 6, 6) in _shapes_inside(tables.jaxpr)
    assert (2, 6, 6) not in shapes


def _shapes_inside(jaxpr):
    found = [v.aval.shape for eqn in jaxpr.eqns for v in eqn.outvars]
    for eqn in jaxpr.eqns:
        for branch in eqn.params.get("branches", ()):
            found += _shapes_inside(branch.jaxpr)
    return found


def test_convolution_and_pooling():
    def f(x, w):
        with tc.GradientTape() as tape:
            tape.watch([x, w])
            y = tc.sum(tc.max_pool(tc.conv(x, w), 2) ** 2)
        return y, tape.gradient(y, [x, w])

    x = tc.reshape(tc.sin(tc.arange(72.0)), (1, 6, 6, 2))
    compare(f, x, tc.reshape(tc.cos(tc.arange(16.0)), (2, 2, 2, 2)), tolerance=1e-4)


def test_the_first_call_on_jax_compiles_one_function(backend):
    if backend != "jax":
        pytest.skip("of JAX")
    import jax

    printed = []

    @host_callback
    def say(value):
        printed.append(value.item())

    v = tc.Variable(tc.ones(3))

    def f(x):
        with tc.GradientTape() as tape:
            tape.watch(x)
            carry, _ = tc.scan(lambda c, e: (tc.sin(c) * e + tc.random.global_rng().uniform(()), c), x, x)
            y = tc.sum(carry * v)
        v.assign(v + 1)
        say(y)
        return y, tape.gradient(y, x)

    compiled = tc.function(f, compile="xla")
    x = tc.linspace(0.1, 1.0, 3)
    names = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: names.append(name))
    tc.set_seed(0)
    first = compiled(x)
    # XLA was called for the two programs around `say`, and for nothing that the function computes.
    assert sum("backend_compile" in name for name in names) <= 3
    assert len(printed) == 1
    assert v.tolist() == [2.0] * 3
    second = compiled(x)
    v.assign(tc.ones(3))
    tc.set_seed(0)
    for found in (first, second):
        for a, b in zip(found, f(x), strict=True):
            close(a, b)


def test_a_first_call_that_needs_values_has_them(backend):
    model = nn.Dense(2)
    seen = []

    @tc.function(compile="xla")
    def f(x):
        scale = tc.asarray([1.0, 2.0])
        if tc.sum(scale) > 2:  # of constants alone
            x = x * scale
        y = model(x)
        seen.append(y.shape)
        return y

    x = tc.ones((3, 2))
    first = f(x)  # it makes the Variables
    for _ in range(3):
        close(f(x), first)
    assert set(seen) == {(3, 2)}

    def decides(x):
        return x if tc.sum(x) > 0 else -x

    with pytest.raises(TracingError, match="decides"):
        tc.function(decides, compile="xla")(x)
    with pytest.warns(UserWarning, match="plain Python"):
        close(tc.function(decides, compile="xla", fallback=True)(x), x)


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("label", [3, -1, -100])
@pytest.mark.parametrize("dtype", ["int64", "int8"])
def test_a_label_that_is_no_class_gives_nan_in_the_loss_and_in_its_gradient(backend, label, dtype):
    """XLA checks no values: -1, which often stands for no label, must not be the last class without a word."""
    pytest.importorskip(f"tape_{backend}")
    logits = tc.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], backend=backend)
    labels = [tc.asarray(x, backend=backend, dtype=dtype) for x in ([0, 2], [0, label])]
    losses = tc.function(tc.cross_entropy, compile="xla")
    gradient = tc.function(lambda z, y: tc.grad(lambda z: tc.sum(tc.cross_entropy(z, y)))(z), compile="xla")
    for function in (losses, gradient):
        for _ in range(2):
            right = function(logits, labels[0]).numpy()
        found = function(logits, labels[1]).numpy()
        assert np.all(np.isnan(found[1]))
        assert not np.any(np.isnan(right))
        np.testing.assert_array_equal(found[0], right[0])


def test_a_label_is_a_class_where_there_are_more_classes_than_its_dtype_counts():
    logits, labels = tc.ones((1, 200), backend="jax"), tc.asarray([5], dtype="int8", backend="jax")
    gradient = tc.function(lambda z: tc.grad(lambda z: tc.sum(tc.cross_entropy(z, labels)))(z), compile="xla")
    assert np.all(np.isfinite(gradient(logits).numpy()))
    assert np.isfinite(tc.function(tc.cross_entropy, compile="xla")(logits, labels).numpy()).all()


def test_an_argument_among_the_results_is_that_argument():
    @tc.function(compile="xla")
    def f(x, y, z):
        return z, x + y, y

    x, y, z = (tc.asarray([float(k), 2.0 * k]) for k in (1, 2, 3))
    for _ in range(2):  # the first call checks the shapes of results, the second is the compiled code alone
        given, added, also_given = f(x, y, z)
        assert given.numpy().tolist() == [3.0, 6.0]
        assert added.numpy().tolist() == [3.0, 6.0]
        assert also_given.numpy().tolist() == [2.0, 4.0]
