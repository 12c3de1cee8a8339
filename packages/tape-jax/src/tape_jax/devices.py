"""Names of JAX's devices: `cpu:0`, `gpu:1`, and the several devices of a sharded array, as `cpu:0-7`.

A name of several says which they are and in which order, and not how an array is divided among them: what is made on
`cpu:0-7` has a copy on each. How it is divided is its sharding.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from tape_core.backends import BackendError
from tape_core.typing import Raw

_SEVERAL = re.compile(r"([a-z]+):(\d+(?:[-,]\d+)+)")


def name_of(device: jax.Device) -> str:
    """Return the name of a device: JAX's word for its kind, and its number."""
    return f"{device.platform}:{device.id}"


def present() -> list[Any]:
    """Return the devices of this process, those of JAX's preferred kind first, and the CPU's.

    Raises:
        BackendError: JAX has none of the devices that its settings ask for.
    """
    start()
    found: list[Any] = jax.local_devices()
    if found[0].platform != "cpu":
        with suppress(RuntimeError):  # JAX_PLATFORMS leaves it out
            found = [*found, *jax.local_devices(backend="cpu")]
    return found


def default() -> Any:
    """Return the device of new arrays: that of `jax.default_device`, or else JAX's first one.

    Raises:
        BackendError: JAX has none of the devices that its settings ask for.
    """
    start()
    chosen: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    if chosen is None:
        return jax.local_devices()[0]
    return jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen


def find(name: str) -> Any:
    """Return the device of a name; for a name of several, the sharding of an array with a copy on each.

    Raises:
        BackendError: there is none.
    """
    if _SEVERAL.fullmatch(name):
        return _copies(name)
    for device in present():
        own = name_of(device)
        # CUDA's and ROCm's devices are `cuda:0` and `rocm:0` where JAX prints them.
        if name in (own, device.platform, str(device)):
            return device
    raise _missing(name)


def _missing(name: str) -> BackendError:
    names = ", ".join(map(name_of, present()))
    return BackendError("\n  ".join([f"backend 'jax' has no device {name!r}; its devices are {names}", *_cure(name)]))


def name_of_array(array: jax.Array) -> str:
    """Return the name of the device of an array, or of all its devices in the order of its mesh.

    One whose memory was given away has a place, too: the lost value of a Variable is loaded there again.
    """
    try:
        place: Any = array.device
    except RuntimeError:  # of a deleted array JAX tells no device, but how it was divided among some
        place = array.sharding
        if isinstance(place, SingleDeviceSharding):
            (place,) = place.device_set
    if isinstance(place, jax.Device):
        return name_of(place)
    name = _name_of_sharding(place)
    mesh = getattr(place, "mesh", None)
    if mesh is not None:
        _meshes[name] = mesh
    return name


def moved(array: jax.Array, device: str, copy: bool | None = None) -> Any:
    """Return an array on the device, or the devices, of a name; itself if it is there, however it is divided.

    Raises:
        BackendError: there is no such device.
        ValueError: `copy` is False, and it is elsewhere.
    """
    # Inside `jax.jit` the compiled function is on one device, and that is not known yet.
    if isinstance(array, jax.core.Tracer) or name_of_array(array) == device:
        return array
    place = find(device)
    if array.device == place:
        return array
    if copy is False:
        raise ValueError("copy=False, but a copy is needed for another device")
    return jax.device_put(array, place)


def name_of_mesh(mesh: Mesh) -> str:
    """Return the name of the devices of a mesh; what is made on them from now on has this mesh."""
    sharding: Any = NamedSharding(mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    name = _name_of_sharding(sharding)
    _meshes[name] = mesh
    return name


_meshes: dict[str, Mesh] = {}
"""By the name of several devices the mesh of theirs that was met last.

What is made on them has this mesh: JAX does not combine all arrays whose meshes differ, also of the same devices.
"""


@lru_cache(maxsize=256)
def _name_of_sharding(sharding: Any) -> str:
    # JAX computes with arrays on the same devices in the same order; on TPUs a mesh has an order of its own.
    mesh = getattr(sharding, "mesh", None)
    devices = sorted(sharding.device_set, key=lambda device: device.id) if mesh is None else mesh.devices.flat
    runs: list[list[int]] = []
    for device in devices:
        if runs and device.id == runs[-1][-1] + 1:
            runs[-1].append(device.id)
        else:
            runs.append([device.id])
    listed = [",".join(map(str, run)) if len(run) < _RUN else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{next(iter(sharding.device_set)).platform}:{','.join(listed)}"


_RUN = 3
"""From so many numbers in a row on a name has the first and the last of them only."""


def _copies(name: str) -> NamedSharding:
    mesh = _meshes.get(name)
    if mesh is None:
        mesh = _meshes[name] = _mesh_of(name)
    return NamedSharding(mesh, PartitionSpec())  # type: ignore[no-untyped-call]


def _mesh_of(name: str) -> Mesh:
    platform, _, listed = name.partition(":")
    numbers: list[int] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    # Of all processes: an array may be in several.
    by_number = {device.id: device for device in jax.devices(present()[0].platform) if device.platform == platform}
    if missing := [n for n in numbers if n not in by_number]:
        raise _missing(f"{platform}:{missing[0]}")
    return Mesh(np.asarray([by_number[n] for n in numbers]), ("devices",))


def several() -> bool:
    """Return whether arrays can be on several devices.

    Raises:
        BackendError: JAX has none of the devices that its settings ask for.
    """
    return start() > 1


@cache
def start() -> int:
    """Have JAX find its devices, as it does when it is asked first, and return how many there are in all processes.

    Raises:
        BackendError: JAX has none of the devices that its settings ask for.
    """
    try:
        return jax.device_count()
    except (AssertionError, RuntimeError) as error:
        asked: Any = jax.config.jax_platforms  # type: ignore[attr-defined]
        if not asked:
            raise
        reason = str(error).removesuffix("(set JAX_PLATFORMS='' to automatically choose an available backend)").strip()
        cures = [_PLUGINS[word] for word in _PLUGINS if word in asked.split(",")][:1]
        what = f"JAX has none of the devices that JAX_PLATFORMS, or jax_platforms, asks for, {asked!r}"
        what += f" ({reason})" if reason else ""
        raise BackendError("\n  ".join([f"{what}: leave it out, or set JAX_PLATFORMS=cpu", *cures])) from None


def is_here(array: jax.Array) -> bool:
    """Return whether this process has all values of an array: others have some where a mesh spans processes."""
    return isinstance(array, jax.core.Tracer) or array.is_fully_addressable or array.is_fully_replicated


def place_on_mesh(array: object) -> NamedSharding | None:
    """Return the sharding of an array that is divided among the devices of a mesh, or has a copy on each."""
    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        return None
    place = array.sharding
    return place if isinstance(place, NamedSharding) and array.committed and len(place.device_set) > 1 else None


def with_automatic_axes(array: jax.Array) -> Any:
    """Return an array whose mesh has axes of JAX's type Auto, with the same memory.

    With axes of type Explicit, those of `jax.make_mesh`, JAX asks in each product which layout the result is to have.
    Tape, as JAX does with Auto, leaves that to XLA.
    """
    sharding: Any = array.sharding
    mesh = getattr(sharding, "mesh", None)
    if mesh is None or all(kind == AxisType.Auto for kind in mesh.axis_types):
        return array
    return jax.device_put(array, _automatic(sharding))


@lru_cache(maxsize=256)
def _automatic(sharding: Any) -> NamedSharding:
    mesh = sharding.mesh
    axes: Any = Mesh
    return NamedSharding(axes(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names)),
                         sharding.spec)  # fmt: skip


def _cure(name: str) -> list[str]:
    """Return what to do where a device is missing, if anything helps."""
    platform, _, number = name.partition(":")
    platforms = {device.platform for device in present()}
    if platform == "cpu" and number.isdigit():
        wanted = f"XLA_FLAGS=--xla_force_host_platform_device_count={int(number) + 1}"
        return [f"The CPU is one device of JAX unless the environment says more before JAX starts: {wanted}"]
    kind = "tpu" if platform == "tpu" else "gpu"
    return [_PLUGINS[platform]] if platform in _PLUGINS and kind not in platforms else []


_GPU = "JAX uses a GPU only with its plugin for it: pip install 'jax[cuda13]', or 'jax[cuda12]'"
_PLUGINS = {
    "gpu": _GPU,
    "cuda": _GPU,
    "rocm": _GPU,
    "tpu": "JAX uses a TPU only with its plugin for it: pip install 'jax[tpu]'",
}
"""What to install for a kind of device."""


def laid_out_like(array: Raw, former: Raw) -> Any:
    """Return an array on the devices and in the layout of another one of its shape, if its user chose them.

    Which layout XLA gives to a result depends on what the result is computed of.
    """
    if not isinstance(former, jax.Array) or not isinstance(array, jax.Array):
        return array
    if isinstance(array, jax.core.Tracer) or isinstance(former, jax.core.Tracer) or not former.committed:
        return array
    place: Any = former.sharding
    own: Any = array.sharding
    if own is place or own == place or array.shape != former.shape or own.is_equivalent_to(place, array.ndim):
        return array
    return jax.device_put(array, place)
