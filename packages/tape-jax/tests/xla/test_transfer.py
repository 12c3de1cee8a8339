"""Arrays on their way into XLA's code: whose memory it reads, and what the results are when that is written to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
from tape_core.staging import host_callback
from tape_jax.xla.segment import Segment


@pytest.fixture(params=["xla", "python"])
def on_jax(request):
    """Return a compiler, while JAX is selected."""
    with tc.use_backend("jax"):
        yield request.param


def test_host_data_may_be_written_to_after_the_call(on_jax):
    f = tc.function(lambda x: tc.sum(x @ x @ x @ x, axis=0), compile=on_jax)
    for n in (3, 300):
        for _ in range(3):
            x = np.full((n, n), 1 / n, np.float32)
            found = f(x)
            x[...] = np.nan
            np.testing.assert_allclose(found.numpy(), np.ones(n), rtol=1e-4)


def test_host_data_and_tensors_run_one_trace(on_jax):
    f = tc.function(lambda x, y: x * y, compile=on_jax)
    x = np.arange(3.0)
    t, raw = tc.asarray(x), jnp.asarray(x)
    for args in ((x, x), (t, t), (t, x), (x, t), (raw, raw), (x, x)):
        found = f(*args)
        assert isinstance(found.array, jax.Array)
        np.testing.assert_array_equal(found.numpy(), [0, 1, 4])
    assert f.traces == 1


def test_host_data_that_come_back_are_of_jax(on_jax):
    f = tc.function(lambda x: (x, x + 1), compile=on_jax)
    for _ in range(3):
        same, more = f(np.ones(2))
        assert isinstance(same.array, jax.Array)
        assert isinstance(more.array, jax.Array)
    g = tc.function(lambda x: tc.tanh(x) * x.shape[0] if tc.any(x > 0) else x, compile=on_jax, fallback="silent")
    for _ in range(3):
        assert isinstance(g(np.ones(2)).array, jax.Array)


def test_host_data_that_the_host_needs(on_jax):
    seen = []

    @host_callback
    def note(value):
        seen.append((type(value.array).__name__, value.numpy().tolist()))

    @tc.function(compile=on_jax)
    def f(x, y):
        note(x)
        note(x * y)
        return x - y

    for k in range(3):
        x, y = np.asarray([1.0, k]), np.asarray([2.0, 3.0])
        np.testing.assert_array_equal(f(x, y).numpy(), x - y)
        kind = type(jnp.ones(1)).__name__
        assert seen[-2:] == [(kind, [1, k]), (kind, [2, 3 * k])]


def test_host_data_inside_a_tape(on_jax):
    f = tc.function(lambda w, x: tc.sum(w * x), compile=on_jax)
    w = tc.Variable([1.0, 2.0])
    for _ in range(3):
        with tc.GradientTape() as tape:
            loss = f(w, np.asarray([3.0, 4.0], np.float32))
        np.testing.assert_array_equal(tape.gradient(loss, w).numpy(), [3, 4])


def test_host_data_of_other_dtypes_and_layouts(on_jax):
    f = tc.function(lambda x: x + x, compile=on_jax)
    base = np.arange(12.0).reshape(3, 4)
    for x in (base.T, base[::-1, ::2], np.asarray(2.0), np.zeros((0, 2)), base > 3):
        for _ in range(3):
            found = f(x)
            expected = x | x if x.dtype == bool else x + x
            np.testing.assert_array_equal(found.numpy(), expected)
            assert found.dtype.name == x.dtype.name
    with pytest.raises(TypeError, match="dtype"):
        f(np.asarray([None, 1]))
    swapped = tc.function(lambda x: x + x, compile=on_jax)
    for _ in range(3):
        np.testing.assert_array_equal(swapped(base.astype(">f8")).numpy(), base + base)


def test_an_argument_that_is_assigned_to_and_host_data(on_jax):
    def f(x, y):
        x += y
        return x * 1

    f = tc.function(f, compile=on_jax)
    x = tc.ones(2)
    for k in range(3):
        np.testing.assert_array_equal(f(x, np.ones(2, np.float32)).numpy(), [k + 2] * 2)


def test_views_of_xlas_results_are_not_taken_for_the_results():
    f = tc.function(lambda x: x + 1, compile="xla")
    with tc.use_backend("numpy"):
        made = f(np.arange(4.0).reshape(2, 2))
        made = f(made)._array
        assert not made.flags.writeable
        views = [made, made.T, made[::-1], made.view(np.int64), made[:, 0], made.reshape(4), np.frombuffer(made)]
        backwards = np.ndarray((2, 2), np.float64, memoryview(made.base), 24, (-16, -8))
        for x in [*views, backwards]:
            np.testing.assert_array_equal(f(x).numpy(), x + 1)


def test_views_of_jaxs_own_arrays():
    f = tc.function(lambda x, y: x + y, compile="xla")
    with tc.use_backend("numpy"):
        array = jnp.arange(4.0)
        x = np.asarray(array)
        weak = np.asarray(jnp.asarray(3.0) * jax.jit(lambda: 2.0)())
        for _ in range(2):
            np.testing.assert_array_equal(f(x, x).numpy(), 2 * x)
            assert f(weak.reshape(1), np.ones(1, np.float32)).dtype == tc.float64
        array.delete()
        np.testing.assert_array_equal(f(x, x).numpy(), [0, 2, 4, 6])


def test_tensors_of_pytorch_that_are_changed_in_place():
    torch = pytest.importorskip("torch")
    f = tc.function(lambda x: x * 2, compile="xla")

    def check(x):
        expected = x.detach() * 2
        found = f(x).array
        assert found.shape == expected.shape
        assert torch.equal(found, expected)

    def made():
        return f(f(torch.arange(4.0).reshape(2, 2))).array

    for change in (
        lambda x: x.mul_(3), lambda x: x.t_(), lambda x: x.resize_(1, 3), lambda x: x.set_(torch.ones(2, 2)),
        lambda x: x.unsqueeze_(0), lambda x: x.requires_grad_(), lambda x: setattr(x, "data", torch.ones(2, 2)),
    ):  # fmt: skip
        x = made()
        check(x)
        change(x)
        check(x)
    check(made()[:1])
    check(made().clone())


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_program_is_lowered_once(backend, monkeypatch):
    count = 0
    traced = Segment._traced

    def counted(*args):
        nonlocal count
        count += 1
        return traced(*args)

    monkeypatch.setattr(Segment, "_traced", counted)
    f = tc.function(lambda x: tc.sin(x) * tc.random.global_rng().uniform((3,)), compile="xla")
    g = tc.function(lambda x: tc.sin(x) * 2, compile="xla")
    with tc.use_backend(backend):
        for _ in range(4):
            f(tc.ones(3))
            g(f(np.ones(3, np.float32)))
    assert count == f.traces + g.traces == 2


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", ">c16", ">f2", "<f8", "<i8"])
@pytest.mark.parametrize("size", [0, 4, 100])
def test_arrays_in_either_order_of_bytes(dtype, size):
    with tc.use_backend("numpy"):
        numbers = np.arange(1, size + 1).astype(dtype)
        constant = tc.asarray(numbers)
        total = tc.Variable(numbers)

        def f(x):
            total.assign(total + x)
            return x * constant, x[::2], tc.sum(x), constant

        compiled = tc.function(f, compile="xla")
        for calls in (1, 2, 3):
            for found, expected in zip(compiled(constant), f(constant), strict=True):
                assert found.array.dtype == expected.array.dtype
                np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-2 if dtype == ">f2" else 1e-6)
            np.testing.assert_array_equal(total.numpy(), (2 * calls + 1) * numbers)
        assert constant.array.dtype == dtype


def test_results_in_the_other_order_of_bytes_may_be_written_to():
    with tc.use_backend("numpy"):
        last = tc.Variable(np.zeros(4, ">f8"))

        @tc.function(compile="xla")
        def f(x):
            before = last + 0
            last.assign(x[::1])
            return before

        f(tc.asarray(np.arange(4).astype(">f8")))
        for number in (1.0, 2.0, 3.0):
            if last.array.flags.writeable:
                last.array[...] = number
            before = last.numpy().copy()
            np.testing.assert_array_equal(f(tc.asarray(np.arange(4).astype(">f8"))).numpy(), before)
