"""How replicas would exchange values. With one replica nothing is exchanged, so these only carry their options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tape_tf.names import exported

_NOTHING_MOVES = "there is one replica: nothing is exchanged"


@exported("distribute.ReduceOp")
class ReduceOp(Enum):
    """How values of replicas become one: their sum or their mean.

    >>> import tape_tf as tf
    >>> tf.distribute.ReduceOp("SUM") is tf.distribute.ReduceOp.SUM
    True
    """

    SUM = "SUM"
    MEAN = "MEAN"


def as_reduce_op(value: ReduceOp | str) -> ReduceOp:
    """Return the ReduceOp of a name, in capitals or not.

    Raises:
        ValueError: there is no such one.
    """
    return value if isinstance(value, ReduceOp) else ReduceOp(str(value).upper())


@exported("VariableAggregation", _NOTHING_MOVES)
class VariableAggregation(Enum):
    """How a Variable of several replicas would combine their updates."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


@exported("VariableSynchronization", _NOTHING_MOVES)
class VariableSynchronization(Enum):
    """When the copies of a Variable would be brought together."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


@exported(
    "distribute.experimental.CommunicationImplementation distribute.experimental.CollectiveCommunication",
    _NOTHING_MOVES,
)
class CommunicationImplementation(Enum):
    """The library that would exchange values between devices."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


@exported("distribute.experimental.CommunicationOptions", _NOTHING_MOVES)
@dataclass(frozen=True)
class CommunicationOptions:
    """How values would be exchanged.

    Raises:
        ValueError: a number is negative, or there is no such implementation.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation = CommunicationImplementation.AUTO

    def __post_init__(self) -> None:
        if self.bytes_per_pack < 0:
            raise ValueError(f"bytes_per_pack must be no less than 0; got {self.bytes_per_pack}")
        if self.timeout_seconds is not None and self.timeout_seconds <= 0:
            raise ValueError(f"timeout_seconds must be positive; got {self.timeout_seconds}")
        object.__setattr__(self, "implementation", CommunicationImplementation(self.implementation))


@exported("distribute.CrossDeviceOps", _NOTHING_MOVES)
class CrossDeviceOps:
    """Base class of the ways in which replicas would add up their values."""


class _AllReduce(CrossDeviceOps):
    def __init__(self, num_packs: int = 1) -> None:
        if num_packs < 0:
            raise ValueError(f"{type(self).__name__}: num_packs must be no less than 0; got {num_packs}")
        self.num_packs = num_packs


@exported("distribute.HierarchicalCopyAllReduce", _NOTHING_MOVES)
class HierarchicalCopyAllReduce(_AllReduce):
    """Adding up by way of neighbours among the devices."""


@exported("distribute.NcclAllReduce", _NOTHING_MOVES)
class NcclAllReduce(_AllReduce):
    """Adding up by NVIDIA's library."""


@exported("distribute.ReductionToOneDevice", _NOTHING_MOVES)
class ReductionToOneDevice(CrossDeviceOps):
    """Adding up on one device."""

    def __init__(self, reduce_to_device: str | None = None, accumulation_fn: object = None) -> None:
        self.reduce_to_device, self.accumulation_fn = reduce_to_device, accumulation_fn


def check_cross_device_ops(strategy: str, value: object) -> None:
    """Raise a TypeError unless a value is one of the classes above or None."""
    if value is not None and not isinstance(value, CrossDeviceOps):
        raise TypeError(
            f"{strategy}: cross_device_ops must be a tf.distribute.CrossDeviceOps, such as "
            f"tf.distribute.NcclAllReduce(); got {value!r}"
        )
