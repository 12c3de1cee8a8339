"""Values of Variables that XLA's code keeps from call to call: who reads, assigns or puts back sees nothing of it."""

from __future__ import annotations

import contextvars
import copy
import gc
import os
import pickle
import random
import threading
import weakref

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.support import undone_on_error

pytestmark = pytest.mark.usefixtures("backend")

WIDTH = 6


class Training:
    """A small model with two functions that train it, and what a user may do between their steps."""

    def __init__(self, compile: object) -> None:
        rng = np.random.default_rng(3)
        self.model = nn.Sequential([nn.Dense(WIDTH, activation="tanh"), nn.Dense(WIDTH), nn.Dense(1)])
        self.model.build((None, WIDTH))
        state = {name: rng.standard_normal(value.shape).astype(np.float32) for name, value in self._named()}
        self.model.load_state_dict(state)
        self.optimizer = nn.Adam(0.05)
        self.x = tc.asarray(rng.standard_normal((5, WIDTH)).astype(np.float32))
        self.more = tc.asarray(rng.standard_normal((7, WIDTH)).astype(np.float32))
        self.kept: list[np.ndarray] = []

        def train(x):
            with tc.GradientTape() as tape:
                loss = tc.mean(self.model(x) ** 2)
            self.optimizer.apply_gradients(tape.gradient(loss, self.model), self.model)
            return loss

        self.train = train if compile is None else tc.function(train, compile=compile)
        self.evaluate = self.model if compile is None else tc.function(lambda x: self.model(x), compile=compile)

    def _named(self):
        return self.model.state_dict().items()

    @property
    def variables(self):
        return self.model.trainable_variables

    # -- what may happen between steps

    def step_inside(self):
        with tc.GradientTape() as tape:
            y = self.variables[0] * 2.0
            with tape.stop_recording():
                self.train(self.x)
            y = y + self.variables[0] ** 2
        self.kept += [y.numpy(), tape.gradient(y, self.variables[0]).numpy()]

    def step_of_another_thread_in_forward_mode(self):
        v = self.variables[0]
        with tc.ForwardAccumulator(v, tc.ones_like(v)) as accumulator:
            thread = threading.Thread(target=contextvars.Context().run, args=(self.train, self.x))
            thread.start()
            thread.join()
            y = v * 1.0  # of the new value, which has no tangent
        self.kept.append(accumulator.jvp(y, unconnected_gradients="zero").numpy())

    def step(self):
        self.kept.append(self.train(self.x).numpy())

    def step_on_more(self):
        self.kept.append(self.train(self.more).numpy())

    def read_one(self):
        self.kept.append(self.variables[1].numpy().copy())

    def run(self):
        self.kept.append(self.evaluate(self.x).numpy())

    def assign_one(self):
        v = self.variables[2]
        v.assign(v * 0.5)

    def assign_all(self):
        for v in self.variables:
            v.assign_add(tc.ones_like(v) * 0.25)

    def put_back(self):
        with pytest.raises(ZeroDivisionError), undone_on_error():
            self.assign_one()
            raise ZeroDivisionError

    def put_back_a_step(self):
        with pytest.raises(ZeroDivisionError), undone_on_error():
            self.train(self.x)
            self.train(self.x)
            raise ZeroDivisionError

    def step_in_vain(self):
        with undone_on_error():
            self.train(self.x)

    def gradient(self):
        with tc.GradientTape() as tape:
            y = tc.mean(self.model(self.x))
        self.kept += [g.numpy() for g in tape.gradient(y, self.variables)]

    def step_inside_a_tape(self):
        with tc.GradientTape() as tape:
            y = self.variables[0] * 1.0
        self.train(self.x)
        self.kept.append(tape.gradient(y, self.variables[0]).numpy())

    def watch_a_copy(self):
        alias = tc.asarray(self.variables[0])
        self.train(self.x)
        with tc.GradientTape() as tape:
            tape.watch(alias)
            y = tc.sum(self.variables[0] * alias)
        self.kept.append(tape.gradient(y, alias).numpy())

    def load(self):
        self.model.load_state_dict({name: np.full(value.shape, 0.1, np.float32) for name, value in self._named()})

    def bind_others(self):
        values = {name: tc.asarray(np.full(value.shape, 0.2, np.float32)) for name, value in self._named()}
        self.kept.append(nn.functional_call(self.model, values, self.x).numpy())

    def copy(self):
        self.kept += [v.numpy() for v in copy.deepcopy(self.model).trainable_variables]
        self.kept += [v.numpy() for v in pickle.loads(pickle.dumps(self.variables))]

    @property
    def state(self):
        return [
            *[v.numpy() for v in self.variables],
            *[np.asarray(x) for x in tc.tree_leaves(self.optimizer.state_dict(self.model))],
        ]


ACTIONS = [name for name, f in vars(Training).items() if not name.startswith("_") and callable(f)]


def test_whatever_happens_between_steps_they_are_those_of_eager_training():
    both = Training(None), Training("xla")
    rng = random.Random(0)
    # Each by itself between steps, and then whatever comes.
    actions = [name for action in ACTIONS for name in ("load", "step", "step", action, "step", "run", "step")]
    actions += rng.choices(ACTIONS, k=60)
    for at, action in enumerate(actions):
        for one in both:
            one.kept.clear()
            getattr(one, action)()
            if action == "run":  # else values stay unread
                one.kept += one.state
        for expected, found in zip(both[0].kept, both[1].kept, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4, err_msg=f"after {actions[: at + 1]}")


@pytest.fixture
def trained() -> Training:
    """A model after some compiled steps."""
    training = Training("xla")
    for _ in range(4):
        training.train(training.x)
    return training


def test_a_value_is_read_as_one_array(trained):
    first, *_ = trained.variables
    assert first.array is first.array
    before = first.numpy().copy()
    kept = first.array
    trained.train(trained.x)
    np.testing.assert_array_equal(np.asarray(kept), before)  # whoever keeps a former value has that
    assert np.abs(first.numpy() - before).max() > 0


def test_what_is_written_to_a_tensor_of_pytorch_counts_in_the_next_step(trained, backend):
    if backend != "torch":
        pytest.skip("arrays of others are immutable here, or read-only")
    other = Training(None)
    other.model.load_state_dict({name: value.numpy().copy() for name, value in trained.model.state_dict().items()})
    other.optimizer.load_state_dict(trained.optimizer.state_dict(trained.model), other.model)
    for one in (trained, other):
        one.variables[0].array.mul_(2.0)
        one.variables[2].array.t_()
        one.train(one.x)
    for expected, found in zip(other.state, trained.state, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_ends_a_step_leaves_all_values(trained):
    before = [value.copy() for value in trained.state]
    strange = tc.asarray(np.ones((5, WIDTH + 1), np.float32))
    with pytest.raises(ValueError, match="shape"):
        trained.train(strange)
    for expected, found in zip(before, trained.state, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_value_that_is_assigned_while_a_step_runs_is_replaced_with_all_others(trained):
    trained.train(trained.x)
    executable = next(iter(trained.train._compiled.values()))[0]
    run = executable.run

    def run_and_assign(arrays):
        found = run(arrays)
        trained.variables[1].assign(np.full(WIDTH, 7.0, np.float32))
        return found

    executable.run = run_and_assign
    trained.train(trained.x)
    assert np.abs(trained.variables[1].numpy() - 7).min() > 1


def test_an_attribute_that_is_missing_is_named(trained):
    with pytest.raises(AttributeError, match="'Variable' object has no attribute 'trainabel'"):
        trained.variables[0].trainabel  # noqa: B018
    assert not hasattr(trained.variables[0], "anything")


def test_models_and_their_values_end():
    trained = Training("xla")
    for _ in range(4):
        trained.train(trained.x)
    ends = [weakref.ref(trained.variables[0]), weakref.ref(trained.model)]
    del trained
    gc.collect()
    assert [end() for end in ends] == [None, None]


def test_threads_read_while_another_trains(trained):
    found, done = [], threading.Event()

    def read():
        while not done.is_set():
            found.append([v.numpy().copy() for v in trained.variables])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(50):
        trained.train(trained.x)
    done.set()
    for reader in readers:
        reader.join()
    assert found
    assert all([np.isfinite(value).all() for values in found for value in values])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_goes_on_from_the_last_values(trained, backend):
    if backend == "jax":
        pytest.skip("JAX has threads, which no child has")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            trained.train(trained.x)
            os.write(writer, trained.variables[0].numpy().tobytes())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        found = np.frombuffer(file.read(), np.float32)
    os.waitpid(child, 0)
    trained.train(trained.x)
    np.testing.assert_allclose(found, trained.variables[0].numpy().ravel(), rtol=1e-4, atol=1e-5)
