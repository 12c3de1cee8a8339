"""tf.distribute on one device: programs for several devices run, with one replica."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_tf as tf
from tape_tf.distribute.strategies import Strategy

pytestmark = pytest.mark.each_backend

STRATEGIES = {
    "mirrored": lambda: tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.HierarchicalCopyAllReduce()),
    "one device": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
    "central": tf.distribute.experimental.CentralStorageStrategy,
    "workers": lambda: tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.NCCL
        )
    ),
    "default": tf.distribute.get_strategy,
}


@pytest.fixture(params=STRATEGIES)
def strategy(request: Any, monkeypatch: Any) -> Any:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return STRATEGIES[request.param]()


class Wide(tf.keras.Model):
    """A layer with a penalty, as the models of the guides have."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = tf.keras.layers.Dense(
            1, kernel_initializer="ones", kernel_regularizer=tf.keras.regularizers.L2(0.1)
        )

    def call(self, x: Any) -> Any:
        return self.dense(x)


def data() -> tuple[Any, Any]:
    x = np.arange(12.0, dtype="float32").reshape(6, 2) / 10
    return x, x.sum(axis=1, keepdims=True) * 3


def plain_losses() -> tuple[list[float], Any]:
    """The loop of the guide, written without a strategy."""
    x, y = data()
    kernel, bias = np.ones((2, 1)), np.zeros(1)
    losses = []
    for k in range(3):
        rows, truth = x[2 * k : 2 * k + 2], y[2 * k : 2 * k + 2]
        error = rows @ kernel + bias - truth
        losses.append((error**2).mean() + 0.1 * (kernel**2).sum())
        kernel = kernel - 0.1 * (rows.T @ error * (2 / len(rows)) + 0.2 * kernel)
        bias = bias - 0.1 * 2 * error.mean(axis=0)
    return losses, kernel


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("source", ["dataset", "function"])
def test_a_loop_of_ones_own_trains_as_without_a_strategy(strategy: Any, compiled: bool, source: str) -> None:
    with strategy.scope():
        model, optimizer = Wide(), tf.keras.optimizers.SGD(0.1)
        mean = tf.keras.metrics.Mean()
    dataset = tf.data.Dataset.from_tensor_slices(data())
    if source == "dataset":
        batches = strategy.experimental_distribute_dataset(dataset.batch(2 * strategy.num_replicas_in_sync))
    else:
        batches = strategy.distribute_datasets_from_function(
            lambda context: dataset.shard(context.num_input_pipelines, context.input_pipeline_id).batch(
                context.get_per_replica_batch_size(2)
            )
        )

    def train_step(inputs: Any) -> Any:
        x, y = inputs
        with tf.GradientTape() as tape:
            errors = tf.reduce_sum((model(x, training=True) - y) ** 2, axis=-1)
            loss = tf.nn.compute_average_loss(errors)
            loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        mean.update_state(loss)
        return loss

    def distributed_step(inputs: Any) -> Any:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(inputs,)), axis=None)

    step = tf.function(distributed_step) if compiled else distributed_step
    found = [float(step(batch)) for batch in batches]
    expected, kernel = plain_losses()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(model.dense.kernel, kernel, rtol=1e-5)
    np.testing.assert_allclose(mean.result(), np.mean(expected), rtol=1e-5)


def test_an_epoch_in_a_function_and_a_step_that_takes_the_iterator(strategy: Any) -> None:
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.range(6).batch(2))

    @tf.function
    def epoch(dataset: Any) -> Any:
        total, count = 0, 0
        for x in dataset:
            total += strategy.reduce("SUM", strategy.run(lambda v: v * v, args=(x,)), axis=0)
            count += 1
        return total, count

    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.run(lambda v: v + 1, args=(next(iterator),))

    assert [int(part) for part in epoch(batches)] == [55, 3]
    iterator = iter(batches)
    assert [step(iterator).numpy().tolist() for _ in range(3)] == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()


def test_keras_models_train_under_a_strategy(strategy: Any) -> None:
    seen = []

    class Asking(Wide):
        def train_step(self, batch: Any) -> Any:
            seen.append((tf.distribute.get_strategy() is strategy, tf.distribute.in_cross_replica_context()))
            return super().train_step(batch)

    x, y = data()
    with strategy.scope():
        model = Asking()
        model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
    history = model.fit(dataset, epochs=2, verbose=0).history["loss"]
    again = model.fit(strategy.experimental_distribute_dataset(dataset), epochs=1, verbose=0).history["loss"]
    assert history[0] > history[1] > again[0]
    assert set(seen) == {(True, False)}
    np.testing.assert_allclose(history[0], np.mean(plain_losses()[0]), rtol=1e-5)


def test_what_code_is_told_of_its_context(strategy: Any) -> None:
    ask = tf.distribute
    named = strategy is not ask.get_strategy()
    assert (ask.has_strategy(), ask.in_cross_replica_context()) == (False, False)
    with strategy.scope() as opened:
        assert opened is strategy is ask.get_strategy()
        assert ask.in_cross_replica_context() == ask.has_strategy() == named
        assert (ask.get_replica_context() is None) == named

        def replica() -> Any:
            context = ask.get_replica_context()
            assert ask.get_strategy() is context.strategy is strategy
            assert not ask.in_cross_replica_context()
            assert int(context.replica_id_in_sync_group) == 0
            inside = context.merge_call(lambda s, x: (s is strategy, ask.in_cross_replica_context(), x), args=(5,))
            return context.all_reduce("sum", tf.constant(2.0)), inside

        total, inside = strategy.run(replica)
        assert float(total) == 2.0
        assert inside == (True, True, 5)
    assert not ask.has_strategy()


def test_gradients_flow_through_the_sum_over_replicas(strategy: Any) -> None:
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = strategy.reduce("MEAN", tf.distribute.get_replica_context().all_reduce("SUM", v * v), axis=0)
        return tape.gradient(loss, v)

    np.testing.assert_allclose(strategy.run(step), [1.0, 2.0])


def test_reduce_gather_and_local_results(strategy: Any) -> None:
    x = tf.constant([1, 2])
    assert strategy.reduce("mean", x, axis=0).dtype == tf.float64  # as in TensorFlow, for integers
    assert strategy.reduce("SUM", x, axis=0).dtype == tf.int32
    np.testing.assert_array_equal(strategy.gather(x, axis=0), [1, 2])
    assert strategy.experimental_local_results(x) == (x,) or len(strategy.experimental_local_results(x)) == 1
    assert strategy.experimental_distribute_values_from_function(lambda context: context.num_replicas_in_sync) == 1
    with pytest.raises(ValueError, match="'MEDIAN' is not a valid ReduceOp"):
        strategy.reduce("median", x, axis=0)


def test_a_strategy_computes_on_the_device_it_was_given() -> None:
    where = tc.get_backend().devices()[0]
    name = "/gpu:0" if str(where).startswith("cuda") else "/cpu:0"
    for strategy in (tf.distribute.OneDeviceStrategy(name), tf.distribute.MirroredStrategy([name])):
        expected = strategy.extended.worker_devices
        with strategy.scope():
            assert (tf.Variable(1.0).device,) == expected
        assert (strategy.run(lambda: tf.constant(1.0)).device,) == expected
        assert (next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(2)))).device,) == expected


def test_several_devices_are_refused_and_the_message_names_the_substitute() -> None:
    for make in (
        lambda: tf.distribute.MirroredStrategy(devices=["/gpu:0", "/gpu:1"]),
        lambda: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        lambda: tf.distribute.experimental.CentralStorageStrategy(["/gpu:0"], "/cpu:0"),
    ):
        with pytest.raises(ValueError, match=r"2 devices are asked for.*torch\.distributed\.all_reduce"):
            make()
    with pytest.raises(ValueError, match="is no name of a device"):
        tf.distribute.OneDeviceStrategy("foo")
    with pytest.raises(RuntimeError, match="has the devices"):
        tf.distribute.MirroredStrategy(["/gpu:77"])
    with pytest.raises(AttributeError, match="no TPUs"):
        _ = tf.distribute.TPUStrategy
    with pytest.raises(AttributeError, match=r"torch\.distributed"):
        _ = tf.distribute.ParameterServerStrategy


def test_several_gpus_that_are_there_and_not_used_are_mentioned(monkeypatch: Any, caplog: Any) -> None:
    from tape_tf.distribute import strategies

    monkeypatch.setattr(strategies, "list_logical_devices", lambda kind: ["/device:GPU:0", "/device:GPU:1"])
    assert tf.distribute.MirroredStrategy().num_replicas_in_sync == 1
    assert "one of 2 GPUs" in caplog.text


def test_a_cluster_of_several_workers_is_refused(monkeypatch: Any) -> None:
    workers = {"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(workers))
    with pytest.raises(ValueError, match=r"TF_CONFIG names 2 workers.*torch\.distributed\.all_reduce"):
        tf.distribute.MultiWorkerMirroredStrategy()
    monkeypatch.setenv("TF_CONFIG", "{nonsense")
    with pytest.raises(ValueError, match="TF_CONFIG is not JSON"):
        tf.distribute.MultiWorkerMirroredStrategy()
    workers["cluster"] = {"worker": ["a:1"]}
    workers["task"] = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps(workers))
    resolver = tf.distribute.MultiWorkerMirroredStrategy().cluster_resolver
    assert (resolver.task_type, resolver.task_id) == ("worker", 0)
    assert resolver.cluster_spec().as_dict() == {"worker": ["a:1"]}
    monkeypatch.delenv("TF_CONFIG")
    resolver = tf.distribute.MultiWorkerMirroredStrategy().cluster_resolver
    assert (resolver.task_type, resolver.task_id, bool(resolver.cluster_spec())) == (None, None, False)


def test_scopes_do_not_mix() -> None:
    first, second = tf.distribute.MirroredStrategy(), tf.distribute.OneDeviceStrategy("/cpu:0")

    def open_scope(strategy: Strategy) -> None:
        with strategy.scope():
            pass

    with first.scope():
        open_scope(first)
        with pytest.raises(RuntimeError, match="Mixing different"):
            open_scope(second)
    with pytest.raises(RuntimeError, match="cross-replica context"):
        first.run(lambda: open_scope(first))
    with pytest.raises(RuntimeError, match="cross-replica context"):
        first.run(lambda: first.run(lambda: 1))
    assert not tf.distribute.has_strategy()  # the errors left every scope
    tf.distribute.experimental_set_strategy(first)
    assert tf.distribute.get_strategy() is first
    tf.distribute.experimental_set_strategy(None)
    assert not tf.distribute.has_strategy()


def test_mistakes() -> None:
    strategy = tf.distribute.MirroredStrategy()
    with pytest.raises(TypeError, match=r"write \(x,\)"):
        strategy.run(lambda x: x, args=tf.constant(1.0))
    with pytest.raises(TypeError, match="takes a function"):
        strategy.run(tf.constant(1.0))
    with pytest.raises(TypeError, match=r"must be a tf\.data\.Dataset"):
        strategy.experimental_distribute_dataset([1, 2])
    with pytest.raises(AttributeError, match="before it is distributed"):
        strategy.experimental_distribute_dataset(tf.data.Dataset.range(2)).batch(2)
    with pytest.raises(TypeError, match="cross_device_ops"):
        tf.distribute.MirroredStrategy(cross_device_ops="nccl")
    with pytest.raises(ValueError, match="not divisible"):
        tf.distribute.InputContext(num_replicas_in_sync=2).get_per_replica_batch_size(3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least rank 1"):
        tf.nn.compute_average_loss(tf.constant(1.0))
    assert tf.nn.compute_average_loss([1, 2]).dtype == tf.float64
