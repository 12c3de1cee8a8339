"""The JAX backend: the functions of `jax.numpy`, on JAX's immutable arrays."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
import tape_core as tc

# JAX has no public function that says whether it is tracing: `jax.core` and `jax.extend.core` have the state of a trace
# to be compared with another one, and not whether it is the outermost. This import is the only private one.
from tape_core.backends import DEFAULT_KERNELS, Backend, label_error
from tape_core.support import dtypes, keep_layouts, layouts

from tape_jax import devices, indexing, manual
from tape_jax.conversion import as_jax_array, is_tracing, private_copy
from tape_jax.convolution import convolution_kernels
from tape_jax.jitted import Jitted
from tape_jax.kernels import KERNELS
from tape_jax.linalg import linalg_kernels
from tape_jax.own_rules import by_tape, is_finite_order, vector_norm
from tape_jax.random import JaxRandom
from tape_jax.sliding import sliding_kernels
from tape_jax.sorting import RULES, sorting_kernels
from tape_jax.special import special_kernels
from tape_jax.thresholds import MIN_INDICES_BY_NUMPY

# JAX makes float32 of each float64 without this, and int32 of int64, the dtype of indices and of Python's integers.
if os.environ.get("JAX_ENABLE_X64", "").strip().lower() in ("0", "false", "f", "no", "n", "off"):
    raise RuntimeError(
        f"JAX_ENABLE_X64={os.environ['JAX_ENABLE_X64']} asks JAX for 32 bits, and Tape computes in float32 but needs "
        f"int64 and float64 beside it: unset JAX_ENABLE_X64, or select another backend"
    )
jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

if TYPE_CHECKING:
    from tape_core import Tensor
    from tape_core.backends import Rule
    from tape_core.meshes.draws import Making

ARRAY_TYPES = ("jax:Array", "jax.core:Tracer")
"""Arrays, and what stands for them while JAX traces a function, as `jax.jit` does."""

_FLOAT32 = np.dtype("float32")

_EXTREMES: dict[int, tuple[weakref.ref[jax.Array], tuple[int, int]]] = {}
"""The least and the greatest of living arrays of indices, by `id`: a graph's edges come to each step."""


class JaxBackend(Backend):
    """JAX on the CPU, and on the GPUs and TPUs that it finds.

    Arrays are made on JAX's default device: that of `jax.default_device` where one is set.
    """

    def __init__(self) -> None:
        super().__init__("jax", jnp, array_types=ARRAY_TYPES, rules=RULES, version=jax.__version__)
        jitted = {name: Jitted(partial(kernel, self.xp)) for name, kernel in DEFAULT_KERNELS.items()}
        for kernels in (special_kernels, linalg_kernels, convolution_kernels, sliding_kernels, sorting_kernels):
            self.kernels.update(kernels(jitted.__getitem__))
        self.kernels = {**jitted, **self.kernels, **KERNELS}
        self.kernels["vector_norm"] = by_tape(tc.linalg.vector_norm, vector_norm, is_finite_order)
        self.kernels["cross_entropy"] = partial(self._cross_entropy, jitted["cross_entropy"])
        self.kernels["cross_entropy_vjp"] = partial(self._cross_entropy_vjp, jitted["cross_entropy_vjp"])
        self.random = JaxRandom(self)
        self.distributed = "tape_jax.distributed"
        # What JAX makes once for all arrays that are alike; to ask for the device takes ten times as long.
        self.argument_guard = attrgetter("aval", "sharding")

    # -- dtypes

    @property
    def usual_dtype(self) -> Any:
        """float32, while it is the default dtype: JAX makes it of operands only where Tape's rule does."""
        return _FLOAT32 if dtypes.get_default_dtype() is dtypes.float32 else None

    def divided_like(self, tensor: Tensor, shape: tuple[int, ...]) -> Making | None:
        """Return how an array that broadcasts to a Tensor is to be made in parts, where that is on several devices."""
        array = getattr(tensor._array, "value", tensor._array)  # in a trace
        if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer) or array.is_fully_replicated:
            return None
        from tape_jax.distributed.creation import parts_like

        return parts_like(array, shape)

    # -- devices

    def devices(self) -> tuple[str, ...]:
        """List the devices of JAX's preferred kind, then the CPU's, such as `gpu:0`, `gpu:1`, `cpu:0`."""
        return tuple([devices.name_of(device) for device in devices.present()])

    @property
    def default_device(self) -> str:
        """The device of `jax.default_device`, or else the first one."""
        return devices.name_of(devices.default())

    def find_device(self, device: str) -> str:
        """Return the full name of a device: `gpu` is the first GPU, and `cuda:1` is `gpu:1`.

        Raises:
            BackendError: there is no such device; the message says how JAX gets one.
        """
        found = devices.find(device)
        return devices.name_of(found) if isinstance(found, jax.Device) else device

    def raw_device(self, device: str | None) -> Any:
        """Return a `jax.Device`, or None for the default one.

        Arrays of which no device is asked for are JAX's to move: it computes with them beside arrays on any device.
        """
        if device is None:
            devices.start()  # which says what is wrong where JAX has no device
            return None
        found = devices.find(device)
        return None if found == devices.default() else found

    def device(self, array: jax.Array) -> str:
        """Return the name of the array's device; inside `jax.jit`, where it is not known, of the default one."""
        if isinstance(array, jax.core.Tracer):
            return self.default_device
        return devices.name_of_array(array)

    # -- arrays in and out

    @staticmethod
    def is_known(array: object) -> bool:
        """Return whether the values of an array can be read and computed with: inside `jax.jit` they cannot.

        There the functions of JAX are traced also for arrays that have values.
        """
        return not isinstance(array, jax.core.Tracer) and not is_tracing()

    def branch(self, condition: Any, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
        """Return `first()` where a condition holds, else `second()`, of which XLA computes one."""
        return jax.lax.cond(condition, *manual.agreeing([lambda: [first()], lambda: [second()]]))[0]

    @staticmethod
    def halves(array: object) -> bool:
        """Return False: XLA takes longer to compile more calls than these save."""
        return False

    def asarray(self, obj: object, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Any:
        """Make an array that nobody can change: the memory of NumPy's arrays is copied unless `copy` is False."""
        devices.start()  # which says what is wrong where JAX has no device
        array = as_jax_array(obj, dtype, copy)
        if not layouts.in_use and devices.several():
            keep_layouts(devices.laid_out_like)
        return array if device is None else devices.moved(array, device, copy)

    def as_argument(self, array: Any, device: str | None) -> tuple[Any, Any] | None:
        """Return a NumPy array as `jax.jit` may be given it, and the device of what it makes of it.

        `jax.jit` takes a NumPy array in a twentieth of the time of `asarray`, onto the default device. It may read the
        memory after the call, so that it gets a copy. With several devices an array of JAX is to say where it is.
        """
        if layouts.in_use or devices.several() or not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
            return None
        place = devices.default()
        if device is not None and device != devices.name_of(place):
            return None
        found = private_copy(array)
        return None if found is None else (found, place)

    def numpy(self, array: jax.Array) -> Any:
        """Return a NumPy array: a view on the CPU, which is read-only, else a copy.

        Raises:
            ValueError: other processes have some of the values.
        """
        if not devices.is_here(array):
            raise ValueError(_ELSEWHERE.format(shape=array.shape))
        return np.asarray(array)

    def format(self, array: jax.Array) -> str:
        """Format as NumPy does; without values inside `jax.jit` and where other processes have them, or nobody.

        JAX makes Tensors of what stands for arrays in its trees, too, as `jax.eval_shape` does of shapes.
        """
        if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
            return str(array)
        return super().format(array) if devices.is_here(array) else "[values in several processes]"

    def place(self, array: jax.Array) -> str:
        """Return the devices of an array and how it is divided among them, where there are several."""
        if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
            return ""
        if isinstance(array.device, jax.Device):
            return ""
        spec = getattr(array.sharding, "spec", None)
        divided = "" if spec is None else f", sharding=P({', '.join(map(repr, spec))})"
        return f"device={self.device(array)}{divided}"

    def user_error(self, error: Exception) -> tuple[type[Exception], str] | None:
        """Translate JAX's errors to the classes of other array libraries; those of tracing stay what they are."""
        if isinstance(error, jax.errors.UnexpectedTracerError):
            return type(error), f"{_LEAKED}. {error}"
        if isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError):
            return None
        text = str(error)
        for words, cure in _CURES.items():
            if words in text:
                return ValueError, f"{text}\n  {cure}"
        if isinstance(error, TypeError) and any(word in text for word in _SHAPES):
            return ValueError, text
        return super().user_error(error)

    def _cross_entropy(self, kernel: Any, logits: Any, labels: Any, *, axis: int = -1) -> Any:
        if not self.is_known(labels) and jnp.issubdtype(labels.dtype, jnp.signedinteger):
            # JAX takes NaN for the score of a class that is not there, but counts negative ones from the end.
            labels = jnp.where(labels < 0, logits.shape[axis], labels.astype(jnp.int64))
        # On a GPU to look would be to wait for it.
        elif self.is_known(labels) and labels.dtype.kind in "iu" and labels.size and self.device(labels)[:3] == "cpu":
            least, most = self.extremes(labels)
            if least < 0 or most >= logits.shape[axis]:
                raise label_error(least, most, logits.shape[axis])
        return kernel(logits, labels, axis=axis)

    def _cross_entropy_vjp(self, kernel: Any, cotangent: Any, logits: Any, labels: Any, *, axis: int = -1) -> Any:
        if not self.is_known(labels):  # as the loss: the gradient may be all that is asked for
            exists = (labels >= 0) & (labels.astype(jnp.int64) < logits.shape[axis])
            cotangent = jnp.where(exists, cotangent, jnp.asarray(jnp.nan, cotangent.dtype))
        return kernel(cotangent, logits, labels, axis=axis)

    def extremes(self, indices: jax.Array) -> tuple[int, int]:
        """Return the least and the greatest of an array of indices: one look is enough, nobody writes to it."""
        key = id(indices)
        if (known := _EXTREMES.get(key)) is not None and known[0]() is indices:
            return known[1]
        found = self._look_for_extremes(indices)
        _EXTREMES[key] = weakref.ref(indices, lambda _: _EXTREMES.pop(key, None)), found
        return found

    def _look_for_extremes(self, indices: jax.Array) -> tuple[int, int]:
        """Return the least and the greatest of an array of indices: of a short one by Python, which is faster."""
        if not devices.is_here(indices) and indices.dtype.kind in "iu":  # computed where they are
            return int(jnp.min(indices)), int(jnp.max(indices))
        if indices.size > MIN_INDICES_BY_NUMPY or indices.dtype.kind not in "iu" or self.device(indices)[:3] != "cpu":
            return super().extremes(indices)
        numbers = np.asarray(indices).ravel().tolist()
        return min(numbers), max(numbers)

    # -- memory: nobody can write to an array, so that it is its own copy

    @staticmethod
    def put(array: jax.Array, key: Any, values: Any) -> Any:
        """Return a copy of an array with other elements at a key; under `jax.jit` XLA writes in place."""
        return indexing.put(array, key, values)

    def frozen(self, array: jax.Array) -> jax.Array:
        """Return the array itself."""
        return array

    def stopped(self, array: jax.Array) -> jax.Array:
        """Return an array through which no derivative of JAX goes."""
        return jax.lax.stop_gradient(array) if isinstance(array, jax.core.Tracer) else array

    def ruled(self, inputs: Sequence[Any], outs: Sequence[Any], rule: Rule) -> Sequence[Any]:
        """Return results as JAX is to differentiate them, where it traces what they are computed from."""
        if not any([isinstance(array, jax.core.Tracer) for array in (*inputs, *outs)]):
            return outs
        from tape_jax.given_rules import ruled

        return ruled(inputs, outs, rule)

    def differentiates(self, array: Any) -> bool:
        """Return whether the transformation of JAX that is innermost here differentiates what comes from an array."""
        return isinstance(array, jax.core.Tracer) and type(jax.lax.stop_gradient(array)) is not type(array)

    def flows(self, array: Any) -> Any:
        """Return the loops and linear systems of `jax.lax` for an array whose value JAX traces, else None."""
        if not isinstance(array, jax.core.Tracer):
            return None
        if array.to_concrete_value() is not None:  # type: ignore[no-untyped-call]  # under `jax.grad` alone
            return None
        from tape_jax import flows

        return flows

    def is_as(self, array: jax.Array, copy: jax.Array) -> bool:
        """Return whether an array is an earlier one, or has its values."""
        return array is copy or super().is_as(array, copy)


_LEAKED = (
    "an operand is of a function that JAX has traced, as jax.jit does, and that has ended: it was kept there, or "
    "assigned to a Variable. Return it from the function, and assign it outside; tape_core.function assigns Variables. "
    "A layer that makes its Variables in its first call is called, or built, before JAX traces it"
)

_ELSEWHERE = (
    "an array of shape {shape} is divided among several processes, and this one has only a part of the values: "
    "x.array.addressable_shards are its part; jax.experimental.multihost_utils.process_allgather(x.array, tiled=True), "
    "called by all processes, returns all; a sum, mean or other result that is not divided can be read by each"
)

_CURES = {
    "incompatible devices for jitted computation": (
        "Put operands on the same devices first: x.to_device(y.device) has a copy on each device of y, and "
        "tape_core.asarray(jax.device_put(x.array, y.array.sharding)) is divided as y is"
    ),
    "Mesh for all inputs should be equal": (
        "Axes of a mesh are of JAX's type Explicit: Tape's arrays have axes of type Auto, which "
        "tape_core.asarray gives; or make the mesh so, jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * n)"
    ),
    "should match the aval mesh": (
        "The mesh of jax.set_mesh has axes of JAX's type Explicit, and Tape's arrays have those of type Auto: make it "
        "so, jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * n)"
    ),
    "non-addressable (non process local) devices": _ELSEWHERE.split(": ", 1)[1],
}
"""By words of JAX's errors about several devices, what helps."""

_SHAPES = ("shape", "dimension", "ndim", "rank")
"""Words of JAX's TypeErrors for arguments whose shapes do not go together."""
