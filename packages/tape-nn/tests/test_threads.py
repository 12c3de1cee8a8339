"""First calls of a model in several threads."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn

THREADS = 8


def _slow(shape: Any, **kwargs: Any) -> Any:
    """An initializer in which other threads get their turn."""
    value = tc.asarray([float(time.perf_counter_ns() % 1000)] * shape[0])
    time.sleep(0.005)
    return tc.broadcast_to(value[:, None], shape) if len(shape) == 2 else value


def _model() -> Any:
    return nn.Sequential(
        [nn.Dense(4, kernel_initializer=_slow), nn.Sequential([nn.Dense(3, kernel_initializer=_slow)])]
    )


def _attention() -> Any:
    layer = nn.MultiHeadAttention(2, 3)
    return lambda x: layer(tc.reshape(x, (1, *x.shape)), tc.reshape(x, (1, *x.shape)))


@pytest.mark.parametrize("make", [_model, _attention, lambda: tc.function(_model().__call__)])
def test_threads_that_make_the_first_call_at_once_see_the_same_weights(make: Any) -> None:
    for _ in range(3):
        model = make()
        x = tc.ones((2, 5))
        barrier = threading.Barrier(THREADS)

        def call(_: int, model: Any = model, x: Any = x, barrier: Any = barrier) -> Any:
            barrier.wait(60)
            return model(x).tolist()

        with ThreadPoolExecutor(THREADS) as pool:
            found = [job.result(60) for job in [pool.submit(call, k) for k in range(THREADS)]]
        assert found == [model(x).tolist()] * THREADS


def test_models_that_were_built_so_are_copied_and_pickled() -> None:
    model = nn.Sequential([nn.Dense(4), nn.Dense(3)])
    x = tc.ones((2, 5))
    y = model(x).tolist()
    assert copy.deepcopy(model)(x).tolist() == pickle.loads(pickle.dumps(model))(x).tolist() == y


class _Slow(nn.SGD):
    """An optimizer in whose first steps other threads get their turn."""

    def _slots(self) -> dict[str, float]:
        time.sleep(0.005)
        return super()._slots()


@pytest.mark.parametrize("how", ["eager", "built", "scaled"])
def test_threads_that_make_the_first_steps_at_once_make_what_is_remembered_once(how: str) -> None:
    for _ in range(3):
        optimizer = _Slow(0.5, momentum=0.5)
        own = [tc.Variable([0.0]) for _ in range(THREADS)]
        shared = tc.Variable([0.0])
        step: Any = nn.LossScaler(optimizer, 1.0, growth_interval=None) if how == "scaled" else optimizer
        barrier = threading.Barrier(THREADS)
        first: list[Any] = []

        def call(
            k: int,
            own: Any = own,
            shared: Any = shared,
            step: Any = step,
            optimizer: Any = optimizer,
            barrier: Any = barrier,
            first: Any = first,
        ) -> None:
            barrier.wait(60)
            if how == "built":
                optimizer.build([shared])
            else:
                step.apply_gradients([(tc.zeros(1), shared)])
            first.append(optimizer._states[id(shared)])
            step.apply_gradients([(tc.ones(1), own[k])])

        with ThreadPoolExecutor(THREADS) as pool:
            for job in [pool.submit(call, k) for k in range(THREADS)]:
                job.result(60)
        assert len({id(state) for state in first}) == 1
        state = optimizer.state_dict({f"v{k}": v for k, v in enumerate([*own, shared])})
        assert [state[f"v{k}/momentum"].tolist() for k in range(THREADS)] == [[-0.5]] * THREADS
        assert [v.tolist() for v in own] == [[-0.5]] * THREADS
