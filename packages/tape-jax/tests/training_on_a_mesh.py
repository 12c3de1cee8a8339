"""Runs of `fit` on a mesh of eight devices against one device; test_distributed.py has the eight."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from runs_on_meshes import Run, assert_same_run, attend, classify

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 8)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")


@pytest.fixture(autouse=True)
def jax_selected() -> Iterable[None]:
    assert jax.device_count() == 8
    with tc.use_backend("jax"):
        yield


def grid() -> nn.parallel.Mesh:
    return nn.parallel.mesh({"data": 4, "model": 2})


def network() -> nn.Module:
    return nn.Sequential(
        [
            nn.Dense(16, activation="relu"),
            nn.BatchNorm(),
            nn.Dropout(0.2),
            nn.Dense(1),
        ]
    )


def fit(strategy: Any, **options: Any) -> Run:
    tc.set_seed(0)
    metrics = [nn.metrics.BinaryAccuracy(threshold=0.0)] if options.pop("measured", False) else []
    return classify(network(), (X, Y), strategy, metrics=metrics, validation=(X[:8], Y[:8]), **options)


@cache
def alone(**options: Any) -> Run:
    return fit(None, compile="xla", **options)


same = partial(assert_same_run, atol=1e-4)


def parts(v: tc.Tensor) -> set[int]:
    return {shard.data.size for shard in v.array.addressable_shards}


def test_replicated() -> None:
    found = fit(nn.parallel.Replicated(grid()), compile="xla", measured=True)
    same(found, alone(measured=True))
    assert parts(found[2].layers[0].kernel) == {8 * 16}


@pytest.mark.parametrize("compiler", [False, "xla"])
def test_sharded(compiler: Any) -> None:
    found = fit(nn.parallel.Sharded(grid()), compile=compiler)
    same(found, alone())
    assert parts(found[2].layers[0].kernel) == {8 * 16 // 4}


def test_the_last_batch_may_be_one_that_cannot_be_divided() -> None:
    x, (y, none) = nn.parallel.Sharded(grid()).divide((X[:6], (Y[:8], None)))
    assert none is None
    assert (parts(x), parts(y)) == ({6 * 8}, {2})


def test_sharded_with_accumulated_gradients_and_averages() -> None:
    options = {"accumulate": 2, "averaged": True}
    same(fit(nn.parallel.Sharded(grid()), compile="xla", **options), alone(**options))


@pytest.mark.parametrize("plan", [None, {"layers.0.kernel": (None, "model")}])
def test_divided_by_layers(plan: Any) -> None:
    found = fit(nn.parallel.TensorParallel(grid(), plan, sharded=plan is not None), compile="xla")
    same(found, alone())
    assert parts(found[2].layers[0].kernel) == {8 * 16 // 2}


def test_a_run_is_saved_whole_and_resumed_in_any_layout(tmp_path: Path) -> None:
    fit(nn.parallel.Sharded(grid()), compile="xla", checkpoint=tmp_path / "run", epochs=1)
    same(fit(nn.parallel.TensorParallel(grid()), compile="xla", checkpoint=tmp_path / "run"), alone())
    found = nn.load_tensors(tmp_path / "run")[0]
    assert found["model/layers.0.kernel"].shape == (8, 16)


def test_save_run_and_load_run_keep_values_and_layouts(tmp_path: Path) -> None:
    m = grid()
    strategy = nn.parallel.Sharded(m)
    runs = []
    for seed in (0, 1):
        tc.set_seed(seed)
        model, optimizer = nn.Dense(8), nn.SGD(0.1, momentum=0.9)
        model.build((None, 8))
        runs.append((strategy.prepare(model), optimizer))

    def step(model: Any, optimizer: Any) -> float:
        with tc.GradientTape() as tape:
            loss = tc.mean(model(strategy.divide(X)) ** 2)
        gradients = tape.gradient(loss, model.variables)
        optimizer.apply_gradients(zip(gradients, model.variables, strict=True))
        return float(loss)

    first, second = runs
    step(*first)
    nn.save_run(tmp_path / "run", *first, step=3, parallel=strategy)
    assert nn.load_run(tmp_path / "run", *second, parallel=m).step == 3
    for _ in range(2):
        assert step(*first) == pytest.approx(step(*second), rel=1e-5)
    for model, optimizer in runs:  # also what the optimizer keeps is divided as it was
        state = {**model.state_dict(), **optimizer.state_dict(model)}
        assert [parts(v) for name, v in state.items() if v.ndim == 2] == [{8 * 8 // 4}] * 2
    with pytest.raises(ValueError, match="keep and asynchronous are for runs in several processes of PyTorch"):
        nn.save_run(tmp_path / "run", *first, keep=2, parallel=m)
    with pytest.raises(TypeError, match=r"parallel must be a strategy or a mesh of nn\.parallel"):
        nn.save_run(tmp_path / "run", *first, parallel="all")


def test_attention_divided_by_heads_and_a_vocabulary() -> None:
    found, alone = [
        attend(strategy, optimizer=nn.SGD(0.1), compile="xla")
        for strategy in (nn.parallel.TensorParallel(grid()), None)
    ]
    same(found, alone)
    assert parts(found[2].embedding.variables[0]) == {80 // 2}


def test_a_loop_of_ones_own() -> None:
    m = grid()
    for strategy in (nn.parallel.Replicated(m), nn.parallel.Sharded(m)):
        losses = []
        for where in (None, strategy):
            tc.set_seed(0)
            model, optimizer = nn.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(1)]), nn.Adam(0.05)
            model.build((None, 8))

            @tc.function(compile="xla")
            def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
                with tc.GradientTape() as tape:
                    loss = tc.mean((model(x) - y) ** 2)
                gradients = tape.gradient(loss, model.variables)
                optimizer.apply_gradients(zip(gradients, model.variables, strict=True))
                return loss

            batch: Any = (X[:16], Y[:16])
            if where is not None:
                where.prepare(model)
                batch = where.divide(batch)
                assert {shard.data.shape for shard in batch[0].array.addressable_shards} == {(4, 8)}
            losses.append([float(step(*batch)) for _ in range(4)])
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_mistakes() -> None:
    m = grid()
    with pytest.raises(ValueError, match="the 3 heads of attention cannot be divided into 2 equal parts"):
        attend(nn.parallel.TensorParallel(m), heads=3, optimizer=nn.SGD(0.1))
    with pytest.raises(ValueError, match="Replicated: data='batch' is no axis of the mesh, whose axes are 'data', 'm"):
        nn.parallel.Replicated(m, data="batch")
    for strategy in (nn.parallel.Replicated, nn.parallel.Sharded, nn.parallel.TensorParallel):
        with pytest.raises(TypeError, match=rf"{strategy.__name__}: mesh must be one of nn\.parallel\.mesh"):
            strategy(jax.make_mesh((8,), ("data",)))
    with pytest.raises(TypeError, match=r"parallel must be a strategy of nn\.parallel, such as Replicated"):
        fit(m)
    with pytest.raises(ValueError, match="batch_size=7 cannot be divided into 4 equal parts, as the axis 'data'"):
        fit(nn.parallel.Sharded(m), batch_size=7)
    with pytest.raises(ValueError, match="there are no Variables yet"):
        nn.parallel.Sharded(m).prepare(network())
    with (
        tc.use_backend("numpy"),
        pytest.raises(ValueError, match=r"'numpy' \(use_backend\('numpy'\)\) computes on one"),
    ):
        nn.parallel.mesh()
