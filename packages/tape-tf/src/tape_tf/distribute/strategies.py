"""The strategies: each runs a function once, in its own context and on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple

import tape_core as tc
from tape_core.support import contextmanager, setting

from tape_tf import logger, nest
from tape_tf.conversion import constant, convert_to_tensor, native, wrap
from tape_tf.distribute.clusters import ClusterResolver, TFConfigClusterResolver
from tape_tf.distribute.communication import (
    CommunicationOptions,
    CrossDeviceOps,
    ReduceOp,
    as_reduce_op,
    check_cross_device_ops,
)
from tape_tf.distribute.inputs import (
    DistributedDataset,
    InputContext,
    InputOptions,
    ValueContext,
    as_dataset,
)
from tape_tf.dtypes import int32
from tape_tf.names import exported
from tape_tf.ops.devices import device, list_logical_devices
from tape_tf.tensor import Tensor
from tape_tf.typing import PyTree, TensorLike

_PROCESSES = (
    "Start one process for each device, and add up their gradients with torch.distributed.all_reduce, as docs/torch.md "
    "shows under 'Several processes'"
)
_ONE_DEVICE = f"a process computes on one device here. {_PROCESSES}; or make the strategy for one device"


class _Context(NamedTuple):
    """Where code runs: in which strategy, and whether for a replica (in `run`) or for all (in `scope()`)."""

    strategy: Strategy
    replica: ReplicaContext | None


_CURRENT: ContextVar[_Context | None] = ContextVar("tape_tf.distribute", default=None)


@exported("distribute.RunOptions")
class RunOptions(NamedTuple):
    """Options of `run`; with one device they change nothing."""

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: object = None


@exported("distribute.StrategyExtended")
class StrategyExtended:
    """What a strategy tells libraries: the devices that compute and that hold Variables."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The devices that compute: one."""
        return (self._strategy._device_name(),)

    parameter_devices = worker_devices

    def reduce_to(self, reduce_op: ReduceOp | str, value: PyTree, destinations: object, options: object = None) -> Any:
        """Return the value, which is the only one."""
        as_reduce_op(reduce_op)
        return value

    def update(
        self,
        var: object,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Return `fn(var, *args, **kwargs)`."""
        return fn(var, *args, **(kwargs or {}))


@exported("distribute.ReplicaContext")
class ReplicaContext:
    """What the code of a replica can ask and do, inside `Strategy.run`.

    Attributes:
        strategy: the strategy.
    """

    def __init__(self, strategy: Strategy, replica_id_in_sync_group: int = 0) -> None:
        self.strategy = strategy
        self._number = replica_id_in_sync_group

    @property
    def replica_id_in_sync_group(self) -> Tensor:
        """The number of the replica, an int32 tensor: 0."""
        number: Tensor = constant(self._number, dtype=int32)
        return number

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas: 1."""
        return self.strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of the replica, in a tuple."""
        return self.strategy.extended.worker_devices

    def all_reduce(self, reduce_op: ReduceOp | str, value: PyTree, options: CommunicationOptions | None = None) -> Any:
        """Return the sum or the mean over all replicas: the values themselves, as tensors; gradients flow back."""
        as_reduce_op(reduce_op)
        return nest.map_structure(convert_to_tensor, value)

    def all_gather(self, value: PyTree, axis: int, options: CommunicationOptions | None = None) -> Any:
        """Return the values of all replicas, joined along `axis`: the values themselves, as tensors."""
        return nest.map_structure(convert_to_tensor, value)

    def merge_call(
        self, merge_fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return `merge_fn(strategy, *args, **kwargs)`, called as code of all replicas."""
        with setting(_CURRENT, _Context(self.strategy, None)):
            return merge_fn(self.strategy, *args, **(kwargs or {}))


@exported("distribute.Strategy", "one replica; new strategies are not derived from it")
class Strategy:
    """Base class of strategies: how a computation is spread over devices, which is one device here.

    Args:
        extended: must be left out.
    """

    _converts: ClassVar[bool] = True  # results of `reduce` are tensors, also those of Python numbers
    _names_a_device: str | None = None  # the device of `scope` and `run`; None for the selected one

    def __init__(self, extended: object = None) -> None:
        if extended is not None:
            raise ValueError("tf.distribute.Strategy: there are no StrategyExtended to make one of; use a strategy")

    # -- contexts

    def _place(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._names_a_device is None else device(self._names_a_device)

    def _device_name(self) -> str:
        with self._place():
            found: str = constant(0).device
            return found

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Make Variables, and models, of this strategy inside the block: `with strategy.scope(): ...`.

        Raises:
            RuntimeError: the scope of another strategy is open, or the block is inside :meth:`run`.
        """
        outer = _CURRENT.get()
        if outer is not None and outer.strategy is not self:
            raise RuntimeError(
                f"Mixing different tf.distribute.Strategy objects: {outer.strategy!r} is not {self!r}; leave the scope "
                "of the one first"
            )
        self._check_cross_replica("scope")
        with setting(_CURRENT, _Context(self, None)), self._place():
            yield self

    def _check_cross_replica(self, method: str) -> None:
        context = _CURRENT.get()
        if context is not None and context.replica is not None:
            raise RuntimeError(
                f"Method requires being in cross-replica context, use get_replica_context().merge_call(): {method} was "
                "called by a function that `run` runs"
            )

    # -- computing

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas whose gradients are added up: 1."""
        return 1

    @property
    def extended(self) -> StrategyExtended:
        """What libraries ask a strategy."""
        return StrategyExtended(self)

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The cluster; None for a strategy of one process."""
        return None

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Run a function for each replica, that is once, on the strategy's device; return what it returns.

        It may be called inside of a `tf.function`, and `fn` may be one.

        >>> import tape_tf as tf
        >>> strategy = tf.distribute.MirroredStrategy()
        >>> strategy.run(lambda x: x * strategy.num_replicas_in_sync, args=(tf.constant(3.0),)).numpy()
        np.float32(3.0)

        Raises:
            TypeError: `fn` is no function, or `args` is no tuple or list.
            RuntimeError: `run` is called by a function that it runs.
        """
        if not callable(fn):
            raise TypeError(f"{type(self).__name__}.run takes a function, and its arguments as args=(...); got {fn!r}")
        if not isinstance(args, tuple | list):
            raise TypeError(f"{type(self).__name__}.run: args must be a tuple; got {type(args).__name__!r}; write (x,)")
        with self._in_replica():
            return fn(*args, **(kwargs or {}))

    @contextmanager
    def _in_replica(self) -> Iterator[None]:
        self._check_cross_replica("run")
        with setting(_CURRENT, _Context(self, ReplicaContext(self))), self._place():
            yield

    def reduce(self, reduce_op: ReduceOp | str, value: PyTree, axis: int | None) -> Any:
        """Return the sum or the mean of a value over replicas, that is the value; along `axis`, too, if it is given.

        >>> import tape_tf as tf
        >>> strategy = tf.distribute.get_strategy()
        >>> losses = strategy.run(lambda: tf.constant([1.0, 2.0]))
        >>> strategy.reduce("MEAN", losses, axis=0).numpy()
        np.float32(1.5)

        Args:
            reduce_op: a `tf.distribute.ReduceOp`, or its name.
            value: what :meth:`run` returned.
            axis: the axis of the examples; None if each replica has reduced it.

        Raises:
            ValueError: there is no such `reduce_op`; or the value has no tensors.
        """
        chosen = as_reduce_op(reduce_op)
        if axis is None:
            return nest.map_structure(convert_to_tensor, value) if self._converts else value
        return nest.map_structure(lambda leaf: _reduce_axis(chosen, leaf, axis), value)

    def gather(self, value: PyTree, axis: int) -> Any:
        """Return the values of all replicas, joined along `axis`: the values themselves, as tensors."""
        return nest.map_structure(convert_to_tensor, value)

    def experimental_local_results(self, value: PyTree) -> tuple[Any, ...]:
        """Return the values of the replicas of this process: a tuple of one."""
        return (value,)

    unwrap = experimental_local_results

    # -- data

    def experimental_distribute_dataset(self, dataset: Any, options: InputOptions | None = None) -> Any:
        """Return a dataset whose elements are the replica's: all of the dataset's.

        Raises:
            TypeError: it is no dataset.
        """
        return DistributedDataset(as_dataset(dataset, "experimental_distribute_dataset: `dataset`"), self._place)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> Any:
        """Return the dataset that a function makes, which is told of the number of replicas.

        Raises:
            TypeError: the function returns no dataset.
        """
        made = dataset_fn(InputContext(num_replicas_in_sync=self.num_replicas_in_sync))
        return DistributedDataset(
            as_dataset(made, "distribute_datasets_from_function: what `dataset_fn` returns"), self._place
        )

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_distribute_values_from_function(self, value_fn: Callable[[ValueContext], Any]) -> Any:
        """Return what a function makes for the replica."""
        with self._place():
            return value_fn(ValueContext())

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _reduce_axis(chosen: ReduceOp, leaf: TensorLike, axis: int) -> Any:
    value = native(leaf)
    # TensorFlow's mean of integers over examples: a float64.
    if chosen is ReduceOp.MEAN:
        return wrap(tc.mean(value if value.dtype.inexact else tc.astype(value, tc.float64), axis=axis))
    return wrap(tc.sum(value, axis=axis, dtype=value.dtype))


class DefaultStrategy(Strategy):
    """The strategy outside of every scope, which changes nothing."""

    _converts = False

    @contextmanager
    def _in_replica(self) -> Iterator[None]:
        yield  # code outside of every scope is a replica's already

    def experimental_distribute_dataset(self, dataset: Any, options: InputOptions | None = None) -> Any:
        """Return the dataset."""
        return dataset

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> Any:
        """Return what the function makes."""
        return dataset_fn(InputContext())

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Do nothing: this is the strategy outside of every scope."""
        if (outer := _CURRENT.get()) is not None:
            raise RuntimeError(
                f"Mixing different tf.distribute.Strategy objects: {outer.strategy!r} is not {self!r}; leave the scope "
                "of the one first"
            )
        yield self


def _one_device(strategy: str, devices: Sequence[str] | str | None) -> str | None:
    """Return the only device that is asked for; None for the selected one.

    Raises:
        ValueError: there are several, or a name is no device's.
        RuntimeError: the selected backend has no such device.
    """
    names = [devices] if isinstance(devices, str) else list(devices or ())
    if len(names) > 1:
        raise ValueError(
            f"{strategy}: {len(names)} devices are asked for, {', '.join(map(repr, names))}, but {_ONE_DEVICE}"
        )
    if not names:
        return None
    with device(names[0]):
        return names[0]


@exported("distribute.MirroredStrategy", "one device; several are refused")
class MirroredStrategy(Strategy):
    """Training on all devices of a process, which is one here.

    >>> import tape_tf as tf
    >>> strategy = tf.distribute.MirroredStrategy()
    >>> with strategy.scope():
    ...     model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    >>> strategy.num_replicas_in_sync, list(model.fit(tf.ones((8, 2)), tf.ones((8, 1)), verbose=0).history)
    (1, ['loss'])

    Args:
        devices: the device, alone or in a list, such as `["/gpu:0"]`; by default the selected one.
        cross_device_ops: a `tf.distribute.CrossDeviceOps`, which has nothing to do.

    Raises:
        ValueError: several devices are asked for, or a name is no device's.
        RuntimeError: the selected backend has no such device.
    """

    def __init__(
        self, devices: Sequence[str] | str | None = None, cross_device_ops: CrossDeviceOps | None = None
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        check_cross_device_ops(kind, cross_device_ops)
        self._names_a_device = _one_device(kind, devices)
        if devices is None and (count := len(list_logical_devices("GPU"))) > 1:
            # TensorFlow would take them all: a program whose speed is a surprise should be told why.
            logger.warning("tf.distribute.%s uses one of %d GPUs: %s", kind, count, _ONE_DEVICE)


@exported("distribute.experimental.CentralStorageStrategy", "one device; several are refused")
class CentralStorageStrategy(MirroredStrategy):
    """Variables on one device, computation on the others: here on one device.

    Args:
        compute_devices: the device that computes, as for :class:`MirroredStrategy`.
        parameter_device: the device of Variables; the same one.

    Raises:
        ValueError: two different devices are asked for.
    """

    def __init__(self, compute_devices: Sequence[str] | str | None = None, parameter_device: str | None = None) -> None:
        computing = [compute_devices] if isinstance(compute_devices, str) else list(compute_devices or ())
        extra = [] if parameter_device is None or parameter_device in computing else [parameter_device]
        super().__init__([*computing, *extra] or None)


@exported("distribute.OneDeviceStrategy")
class OneDeviceStrategy(Strategy):
    """All on one device: `tf.distribute.OneDeviceStrategy("/gpu:0")`.

    Raises:
        ValueError: the name is no device's.
        RuntimeError: the selected backend has no such device.
    """

    _converts = False

    def __init__(self, device: str) -> None:
        super().__init__()
        self._names_a_device = _one_device(type(self).__name__, device)


@exported(
    "distribute.MultiWorkerMirroredStrategy distribute.experimental.MultiWorkerMirroredStrategy",
    "one process; a cluster of several is refused",
)
class MultiWorkerMirroredStrategy(MirroredStrategy):
    """Training by several processes, which is one here: without a cluster, or with one of a single worker.

    Args:
        cluster_resolver: the cluster; by default that of the environment variable `TF_CONFIG`.
        communication_options: have nothing to do.

    Raises:
        ValueError: the cluster has several workers, or `TF_CONFIG` cannot be read.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
    ) -> None:
        super().__init__()
        self._resolver = TFConfigClusterResolver() if cluster_resolver is None else cluster_resolver
        cluster = self._resolver.cluster_spec()
        workers = sum(cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker"))
        if workers > 1:
            origin = "TF_CONFIG" if cluster_resolver is None else "the cluster_resolver"
            raise ValueError(
                f"{type(self).__name__}: {origin} names {workers} workers, but no process hears of another here: each "
                f"would train alone. {_PROCESSES}; or leave the cluster out"
            )

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The cluster, and which task of it this is."""
        return self._resolver


_DEFAULT = DefaultStrategy()


@exported("distribute.get_strategy")
def get_strategy() -> Strategy:
    """Return the strategy whose scope is open; outside of every scope the default one, of one replica."""
    context = _CURRENT.get()
    return _DEFAULT if context is None else context.strategy


@exported("distribute.has_strategy")
def has_strategy() -> bool:
    """Return whether the scope of a strategy is open."""
    return _CURRENT.get() is not None


@exported("distribute.experimental_set_strategy")
def experimental_set_strategy(strategy: Strategy | None) -> None:
    """Open the scope of a strategy until the next call, which may be with None.

    Raises:
        RuntimeError: it is called inside `run`.
    """
    if (context := _CURRENT.get()) is not None and context.replica is not None:
        raise RuntimeError("experimental_set_strategy is called by a function that `run` runs")
    if strategy is not None and strategy._names_a_device is not None:
        raise ValueError(f"{strategy!r} has a device of its own: use `with strategy.scope():`")
    _CURRENT.set(None if strategy is None or strategy is _DEFAULT else _Context(strategy, None))


@exported("distribute.in_cross_replica_context")
def in_cross_replica_context() -> bool:
    """Return whether code runs for all replicas: in `scope()`, and not inside `run`."""
    context = _CURRENT.get()
    return context is not None and context.replica is None


@exported("distribute.get_replica_context")
def get_replica_context() -> ReplicaContext | None:
    """Return what the code of a replica can ask; None in the scope of a strategy outside of `run`."""
    context = _CURRENT.get()
    return ReplicaContext(_DEFAULT) if context is None else context.replica
