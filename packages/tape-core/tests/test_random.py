"""Random numbers: the bits, the same numbers everywhere, states, and draws inside transformations."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from scipy import stats
from support import STRICT
from tape_core.backends import select
from tape_core.backends.random_kernels import RandomKernels, numpy_words, python_words

KEY = (2**64 - 5, 7)
DRAWS: dict[str, Callable[[tc.Generator], tc.Tensor]] = {
    "uniform": lambda rng: rng.uniform((33,)),
    "uniform float64": lambda rng: rng.uniform((33,), dtype="float64"),
    "integers": lambda rng: rng.integers(-3, 9, (33,)),
    "many integers": lambda rng: rng.integers(0, 10**7, (33,)),
    "all integers": lambda rng: rng.integers(-(2**63), 2**63, (33,)),
    "permutation": lambda rng: rng.permutation(33),
}


def test_bits_are_those_of_numpys_philox() -> None:
    generator = np.random.Philox(key=np.asarray(KEY, np.uint64), counter=[9, 0, 0, 0])
    expected = generator.random_raw(10)
    generic = RandomKernels(STRICT).words(KEY, 9, 10)
    assert np.array_equal(STRICT.numpy(generic).view(np.uint64), expected)
    assert python_words(KEY, 9, 10) == expected.tolist() == numpy_words(KEY, 9, 10).tolist()


@pytest.mark.parametrize("name", DRAWS)
def test_the_numbers_are_the_same_everywhere(name: str) -> None:
    draw, expected = DRAWS[name], None
    for backend in (None, "numpy", STRICT):
        with tc.use_backend(select(backend).backend):
            found = draw(tc.default_rng(3)).numpy()
        expected = found if expected is None else expected
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_and_normal_numbers_are_distributed_so(dtype: str) -> None:
    rng = tc.default_rng(0)
    assert stats.kstest(rng.uniform((20_001,), dtype=dtype).numpy(), "uniform").pvalue > 0.01
    normal = rng.normal((20_001,), mean=2.0, stddev=3.0, dtype=dtype).numpy()
    assert stats.kstest(normal, stats.norm(2, 3).cdf).pvalue > 0.01
    # The two halves are cosines and sines of the same angles.
    assert abs(np.corrcoef(normal[:10_000], normal[10_001:])[0, 1]) < 0.03


@pytest.mark.parametrize("span", [10, 2**16 + 1, 2**21, 2**31, 2**40])
def test_integers_are_uniform_up_to_both_ends(span: int) -> None:
    values = tc.default_rng(1).integers(-7, span - 7, (30_000,)).numpy()
    assert values.min() >= -7
    assert values.max() < span - 7
    parts = np.bincount(((values + 7) * (10 / span)).astype(int), minlength=10)
    assert stats.chisquare(parts).pvalue > 0.01


def test_permutations_are_equally_likely() -> None:
    rng = tc.default_rng(5)
    found = [tuple(rng.permutation(3).tolist()) for _ in range(1200)]
    assert len(set(found)) == 6
    assert stats.chisquare([found.count(order) for order in set(found)]).pvalue > 0.01
    assert rng.permutation(0).tolist() == []


def test_a_permutation_without_scipy_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tc.default_rng(2).permutation(50).tolist()
    monkeypatch.setitem(__import__("sys").modules, "scipy.linalg.lapack", None)
    assert tc.default_rng(2).permutation(50).tolist() == expected


def test_generators_that_alternate_go_on_where_they_were() -> None:
    a, b = tc.default_rng(1), tc.default_rng(2)
    alternating = [rng.uniform((k + 1,)).tolist() for k in range(4) for rng in (a, b)]
    a, b = tc.default_rng(1), tc.default_rng(2)
    assert alternating[::2] == [a.uniform((k + 1,)).tolist() for k in range(4)]
    assert alternating[1::2] == [b.uniform((k + 1,)).tolist() for k in range(4)]


def test_split_generators_are_independent_and_reproducible() -> None:
    def made() -> list[Any]:
        rng = tc.default_rng(0)
        return [each.uniform((100,)).numpy() for each in (*rng.split(3), *rng.spawn(2), rng)]

    first = made()
    assert np.array_equal(first, made())
    assert len({part.tobytes() for part in first}) == 6
    assert np.abs(np.corrcoef(first) - np.eye(6)).max() < 0.4
    with pytest.raises(TypeError, match="split: n must be an int"):
        tc.default_rng(0).split("a")


def test_a_compiled_function_splits_in_each_run() -> None:
    def f(x: Any) -> Any:
        a, b = tc.random.global_rng().split()
        return x + a.uniform(), x - b.uniform()

    tc.set_seed(1)
    expected = [[t.item() for t in f(tc.asarray(0.0))] for _ in range(3)]
    tc.set_seed(1)
    g = tc.function(f)
    assert [[t.item() for t in g(tc.asarray(0.0))] for _ in range(3)] == expected


def test_threads_draw_other_numbers_from_one_generator() -> None:
    rng, found = tc.default_rng(0), []

    def draw() -> None:
        found.extend([rng.integers(0, 2**62).item() for _ in range(200)])

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 800


def test_states_are_three_integers_and_others_are_refused() -> None:
    rng = tc.default_rng(7)
    rng.uniform((9,))
    state = rng.get_state()
    assert len(state) == 3
    assert all(type(number) is int and 0 <= number < 2**64 for number in state)
    for other in (copy.deepcopy(rng), pickle.loads(pickle.dumps(rng))):
        assert other.get_state() == state
    mersenne = random.Random(0).getstate()[1]
    with pytest.raises(ValueError, match="comes from an older version of Tape"):
        rng.set_state(mersenne)
    for wrong in ((1, 2), (1, 2, -3), (1, 2, 2**64), (1.5, 2, 3), ("a", 2, 3)):
        with pytest.raises(ValueError, match="set_state: not a state that get_state gave"):
            rng.set_state(wrong)  # type: ignore[arg-type]
    assert rng.get_state() == state


def test_the_text_of_a_generator_tells_its_state() -> None:
    assert repr(tc.default_rng(0)) == "<Generator: key 6371f5019a03d691ff81547e19db02ec, block 0>"


# -- inside vmap


def noise(x: Any) -> Any:
    return x + tc.random.global_rng().uniform((2,))


@pytest.mark.parametrize("compiled", [False, True])
def test_examples_draw_numbers_of_their_own_or_the_same(compiled: bool) -> None:
    x = tc.zeros((5,))
    for randomness, distinct in (("different", 5), ("same", 1)):
        f = tc.vmap(noise, randomness=randomness)
        f = tc.function(f) if compiled else f
        first, second = f(x).numpy(), f(x).numpy()
        assert first.shape == (5, 2)
        assert len(np.unique(first, axis=0)) == distinct
        assert not np.array_equal(first, second)


@pytest.mark.parametrize(("outer", "inner"), [(a, b) for a in ("different", "same") for b in ("different", "same")])
def test_each_of_nested_vmaps_says_it_for_its_own_examples(outer: Any, inner: Any) -> None:
    f = tc.vmap(tc.vmap(noise, randomness=inner), randomness=outer)
    for g in (f, tc.function(f)):
        found = g(tc.zeros((3, 4))).numpy()
        assert found.shape == (3, 4, 2)
        assert (
            len(np.unique(found.reshape(12, 2), axis=0))
            == {"different": 3, "same": 1}[outer]
            * {
                "different": 4,
                "same": 1,
            }[inner]
        )
        for k in range(3):
            assert len(np.unique(found[k], axis=0)) == (4 if inner == "different" else 1)


def test_one_vmap_that_does_not_say_it_refuses() -> None:
    with pytest.raises(tc.backends.errors.BatchError, match='randomness="different"'):
        tc.vmap(tc.vmap(noise), randomness="different")(tc.zeros((3, 4)))
    with pytest.raises(ValueError, match='vmap: randomness must be "error", "different" or "same", got \'all\''):
        tc.vmap(noise, randomness="all")  # type: ignore[arg-type]


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_chunks_draw_as_one(randomness: Any) -> None:
    own = tc.default_rng(4)
    f = tc.vmap(lambda x: noise(x) + own.normal(), randomness=randomness, chunk_size=2)
    for g in (f, tc.function(f)):
        found = g(tc.zeros((5,))).numpy()
        assert len(np.unique(found, axis=0)) == (5 if randomness == "different" else 1)


def test_each_example_is_shuffled_by_itself() -> None:
    found = tc.vmap(lambda x: x + tc.random.global_rng().permutation(20), randomness="different")(tc.zeros(6)).numpy()
    assert np.array_equal(np.sort(found, axis=1), np.tile(np.arange(20.0), (6, 1)))
    assert len(np.unique(found, axis=0)) == 6


def test_gradients_of_examples_with_dropout_of_their_own() -> None:
    x = tc.ones((6, 50))

    def loss(w: Any, row: Any) -> Any:
        return tc.sum(tc.dropout(w * row, 0.5))

    f = tc.vmap(tc.grad(loss), in_axes=(None, 0), randomness="different")
    for g in (f, tc.function(f)):
        found = g(tc.ones(50), x).numpy()
        assert set(np.unique(found).tolist()) == {0.0, 2.0}
        assert len(np.unique(found, axis=0)) == 6


@pytest.mark.parametrize("randomness", ["different", "same"])
@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_checkpointed_inside_vmap_draws_the_same_again(randomness: Any, compiled: bool) -> None:
    def noisy(x: Any) -> Any:
        return tc.sin(x) * tc.random.global_rng().uniform((2,))

    def value_and_slope(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.vmap(tc.checkpoint(noisy), randomness=randomness)(x)
        return y, tape.gradient(y, x)

    x = tc.asarray([0.3, 0.4, 0.5])
    y, slope = (tc.function(value_and_slope) if compiled else value_and_slope)(x)
    factors = y.numpy() / np.sin(x.numpy())[:, None]
    assert len(np.unique(factors.round(5), axis=0)) == (3 if randomness == "different" else 1)
    assert slope.numpy() == pytest.approx(factors.sum(1) * np.cos(x.numpy()), rel=1e-5)


@pytest.mark.parametrize("transform", [tc.jacrev, tc.jacfwd])
@pytest.mark.parametrize("wrapped", [lambda f: f, tc.checkpoint])
def test_all_rows_of_a_jacobian_have_the_same_numbers(transform: Any, wrapped: Any) -> None:
    def f(x: Any) -> Any:
        return x**2 * tc.random.global_rng().uniform((4,))

    x = tc.asarray([0.5, 1.0, 1.5, 2.0])
    for compile_ in (lambda f: f, tc.function):
        tc.set_seed(3)
        expected = np.diag(2 * x.numpy() * tc.random.global_rng().uniform((4,)).numpy())
        tc.set_seed(3)
        assert compile_(transform(wrapped(f)))(x).numpy() == pytest.approx(expected, rel=1e-5)
        tc.set_seed(3)
        batched = tc.vmap(transform(wrapped(f)), randomness="different")(tc.stack([x, x])).numpy()
        assert not np.array_equal(batched[0], batched[1])
        assert np.count_nonzero(batched) == 8


@pytest.mark.parametrize("compiled", [False, True])
def test_steps_of_a_loop_inside_vmap_draw_their_own(compiled: bool) -> None:
    def f(x: Any) -> Any:
        return tc.scan(lambda carry, k: (carry * tc.random.global_rng().uniform(), carry), x, tc.arange(30))[0]

    def slopes(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.vmap(f, randomness="different")(x)
        return y, tape.gradient(y, x)

    x = tc.asarray([1.0, 2.0, 3.0])
    y, slope = (tc.function(slopes) if compiled else slopes)(x)
    assert slope.numpy() == pytest.approx((y / x).numpy(), rel=1e-4)
    assert len(np.unique(slope.numpy())) == 3


def test_an_ensemble_of_layers_with_dropout() -> None:
    weights, x = tc.default_rng(0).normal((3, 4, 4)), tc.ones((8, 4))
    f = tc.vmap(lambda w: tc.dropout(tc.relu(x @ w), 0.5), randomness="different")
    found = f(weights).numpy() != 0
    assert found.shape == (3, 8, 4)
    assert not np.array_equal(found[0], found[1])


def test_states_of_own_generators_are_not_read_or_set_while_compiling() -> None:
    rng = tc.default_rng(0)
    for f in (lambda x: (rng.get_state(), x)[1], lambda x: (rng.set_state((1, 2, 3)), x)[1]):
        with pytest.raises(TypeError, match="in a compiled function: call it outside"):
            tc.function(f)(tc.ones(2))
    assert rng.get_state() == tc.default_rng(0).get_state()


def test_a_compiled_function_sets_the_state_of_the_global_generator() -> None:
    state = tc.default_rng(5).get_state()

    @tc.function
    def f() -> Any:
        tc.random.set_state(state)
        return tc.random.global_rng().uniform((3,))

    assert f().tolist() == f().tolist() == tc.default_rng(5).uniform((3,)).tolist()
    with pytest.raises(ValueError, match="not a state that get_state gave"):
        tc.function(lambda x: (tc.random.set_state((1, 2)), x)[1])(tc.ones(2))


def test_a_compiled_function_splits_the_global_generator_of_each_call() -> None:
    def f(x: Any) -> Any:
        return tc.random.global_rng().split()[1].normal((2,)) + x

    def branching(x: Any) -> Any:
        return tc.cond(tc.sum(x) > 0, f, lambda x: x, x) + tc.random.global_rng().uniform()

    for g in (f, branching):
        compiled = tc.function(g)
        for seed in range(3):
            found = []
            for each in (g, compiled):
                tc.set_seed(seed)
                found.append([each(tc.full((2,), sign)).tolist() for sign in (1.0, -1.0)])
            assert found[0] == found[1]


def test_splitting_is_repeated_by_checkpoints_and_loops() -> None:
    def step(x: Any, _: Any = None) -> Any:
        y = tc.sin(x) * tc.random.global_rng().split()[0].uniform()
        return y, y

    for f in (tc.checkpoint(lambda x: step(x)[0]), lambda x: tc.scan(step, x, tc.arange(20))[0]):
        x = tc.asarray(0.7, dtype="float64")
        tc.set_seed(1)
        slope = tc.grad(f)(x).item()
        tc.set_seed(1)
        above = f(x + 1e-6).item()
        tc.set_seed(1)
        assert slope == pytest.approx((above - f_of(f, x - 1e-6)) / 2e-6, rel=1e-5, abs=1e-12)


def f_of(f: Any, x: Any) -> float:
    tc.set_seed(1)
    found: float = f(x).item()
    return found


def test_arguments_are_given_as_to_numpys_generator() -> None:
    draws = tc.default_rng(3).integers(7, shape=200).tolist()
    assert set(draws) == set(range(7))
    assert tc.default_rng(0).choice([5, 7], 20).dtype == tc.int64
    assert set(tc.default_rng(0).choice([5, 7], 20).tolist()) == {5, 7}
    assert tc.default_rng(0).choice(3, 5, p=[0, 1, 0]).tolist() == [1] * 5
    normal = tc.default_rng(0).multivariate_normal([0, 0], [[1, 0], [0, 1]])
    assert (normal.shape, normal.dtype) == ((2,), tc.float32)
    with pytest.raises(TypeError, match=r"shuffle\(x\) puts those of an array"):
        tc.default_rng(0).permutation(tc.ones(3))  # type: ignore[arg-type]
