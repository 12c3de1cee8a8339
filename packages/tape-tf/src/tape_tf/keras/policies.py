"""Dtype policies of layers, `tf.keras.mixed_precision`: which dtype weights have, and which one a layer computes in."""

from __future__ import annotations

from typing import Any, Final

from tape_tf import dtypes
from tape_tf.keras.backend import floatx
from tape_tf.names import exported
from tape_tf.typing import DTypeLike

_MIXED: Final = "mixed_"
_HALVES: Final = ("float16", "bfloat16")


@exported(
    "keras.mixed_precision.Policy keras.mixed_precision.DTypePolicy keras.DTypePolicy keras.dtype_policies.DTypePolicy"
)
class DTypePolicy:
    """The dtype of a layer's weights, and the one that it computes in.

    >>> import tape_tf as tf
    >>> policy = tf.keras.mixed_precision.Policy("mixed_float16")
    >>> policy.compute_dtype, policy.variable_dtype
    ('float16', 'float32')

    Args:
        name: a dtype for both; or "mixed_float16" or "mixed_bfloat16", to compute in half precision with weights in
            float32. By default Keras' float type.

    Raises:
        ValueError: there is no such dtype.
    """

    def __init__(self, name: str | None = None) -> None:
        given = floatx() if name is None else name
        half = given.removeprefix(_MIXED)
        if half != given:
            if half not in _HALVES:
                raise ValueError(f"a mixed dtype policy is 'mixed_float16' or 'mixed_bfloat16'; got {given!r}")
            self.name, self.compute_dtype, self.variable_dtype = given, half, "float32"
        else:
            self.name = self.compute_dtype = self.variable_dtype = dtypes.as_dtype(given).name

    def get_config(self) -> dict[str, Any]:
        """The arguments that the policy was made with."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DTypePolicy:
        """Make a policy with these arguments."""
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicy) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f'<DTypePolicy "{self.name}">'


# One for the process, as in Keras; None stands for Keras' float type, whatever that is set to.
_settings: Final[dict[str, DTypePolicy | None]] = {"policy": None}


@exported("keras.mixed_precision.global_policy keras.mixed_precision.dtype_policy keras.config.dtype_policy")
def global_policy() -> DTypePolicy:
    """Return the policy of layers that are made without a dtype."""
    return _settings["policy"] or DTypePolicy()


@exported(
    "keras.mixed_precision.set_global_policy keras.mixed_precision.set_dtype_policy keras.config.set_dtype_policy"
)
def set_global_policy(policy: Any) -> None:
    """Set the policy of layers that are made from now on.

    >>> import tape_tf as tf
    >>> tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    >>> layer = tf.keras.layers.Dense(2)
    >>> layer(tf.ones((1, 3))).dtype, layer.kernel.dtype
    (tf.bfloat16, tf.float32)
    >>> tf.keras.mixed_precision.set_global_policy("float32")

    Args:
        policy: a :class:`DTypePolicy`, or its name; None for Keras' float type.
    """
    _settings["policy"] = None if policy is None else get(policy)


@exported("keras.dtype_policies.get")
def get(identifier: Any) -> DTypePolicy:
    """Return the policy of a name or a dtype; a policy is returned unchanged, and None gives the global one."""
    if identifier is None:
        return global_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):  # as Keras describes a policy in files
        identifier = identifier.get("config", identifier).get("name")
    return DTypePolicy(identifier if isinstance(identifier, str) else dtypes.as_dtype(identifier).name)


def dtype_of(dtype: DTypeLike) -> str:
    """Return the name of the dtype that weights have under a policy."""
    return get(dtype).variable_dtype
