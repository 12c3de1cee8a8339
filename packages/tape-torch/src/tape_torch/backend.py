"""The PyTorch backend: kernels of PyTorch's own functions, and array-api-compat's for the rest of the standard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import array_api_compat.torch as namespace
import torch
from tape_core.backends import AxisError, Backend
from tape_core.support import dtypes, forget_in_children, keep_layouts

from tape_torch import fallback
from tape_torch.conversion import as_torch_tensor
from tape_torch.divided import (
    COMPILED_PARTS,
    added_up,
    describe,
    is_asked_for,
    is_divided,
    is_here,
    own_part,
    whole_value,
    without_group,
)
from tape_torch.kernels import KERNELS, PROMOTING, RULES
from tape_torch.overwriting import formulas as formulas_over
from tape_torch.overwriting import old_value
from tape_torch.random import TorchRandom
from tape_torch.references import COUNTS, give_back_zeros, has_spares, is_exclusive, spare_memory
from tape_torch.thresholds import BLOCK_ELEMENTS_PER_THREAD, COPY_MAX_SPREAD
from tape_torch.updates import FORMULAS

if TYPE_CHECKING:
    from tape_core import Tensor
    from tape_core.meshes.draws import Making

    from tape_torch.blocks import TorchSupport
    from tape_torch.divided_together import Together

# How PyTorch's messages for shapes that do not broadcast begin.
_SHAPE_MISMATCH = ("The size of tensor", "Shape mismatch: objects cannot be broadcast")
_WRONG_AXIS = re.compile(r"[Dd]imension (out of range|specified as)|[Aa]xis")


def _compute_with_one_thread() -> None:
    """Use one thread in a forked child: OpenMP's threads are not forked, and it would wait for them forever.

    PyTorch's own data loaders do the same in their processes.
    """
    if torch.backends.openmp.is_available() and torch.get_num_threads() > 1:  # type: ignore[no-untyped-call]
        torch.set_num_threads(1)


forget_in_children(_compute_with_one_thread)


# Two bases each: code for other backends catches the first one, code for PyTorch the second.
class TorchError(ValueError, RuntimeError):
    """PyTorch refused the arguments: shapes that do not fit, or devices that differ."""


class TorchTypeError(TypeError, NotImplementedError):
    """PyTorch has no such function for the dtype."""


class TorchBackend(Backend):
    """PyTorch on the CPU and on the accelerators it finds. New arrays are made on a CUDA device where there is one."""

    def __init__(self) -> None:
        super().__init__(
            "torch",
            namespace,
            array_types=("torch:Tensor",),
            kernels=KERNELS,
            rules=RULES,
            version=torch.__version__,
        )
        fallback.set_namespace(self.xp)
        self.random = TorchRandom(self)
        self.array_class = torch.Tensor if COUNTS else None
        self.checks = frozenset({"axes", "indices"})
        self.settings = _autocast
        self.distributed = "tape_torch.distributed"
        self.tells_complex = False  # its own kernels do
        self.compilers = ("cudagraph",) if torch.cuda.is_available() else ()
        # Asked for only once: the query takes longer than making an array.
        self._default_device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    # -- dtypes

    def promotes(self, name: str) -> bool:
        """Return whether this package's kernel of an op promotes by Tape's rule."""
        return name in PROMOTING

    @property
    def usual_dtype(self) -> torch.dtype | None:
        """float32, while it is the default dtype."""
        return torch.float32 if dtypes.get_default_dtype() is dtypes.float32 else None

    # -- devices

    def devices(self) -> tuple[str, ...]:
        """List the CPU, each CUDA device, and Apple's `mps`."""
        cuda = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
        return ("cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else []))

    @property
    def default_device(self) -> str:
        """The current CUDA device if there is one, else the CPU; `mps` must be asked for."""
        device = self._default_device
        return str(device) if device.type == "cpu" else f"cuda:{torch.cuda.current_device()}"

    def raw_device(self, device: str | None) -> Any:
        """Return a `torch.device`; None is the default one."""
        return self._default_device if device is None else torch.device(device)

    def device(self, array: torch.Tensor) -> str:
        """Return PyTorch's name for the array's device."""
        return str(array.device)

    # -- arrays in and out

    def asarray(
        self, obj: object, *, dtype: torch.dtype | None = None, device: str | None = None, copy: bool | None = None
    ) -> Any:
        """Make a tensor that torch.autograd does not record; a tensor stays on its device unless `device` is given."""
        array = as_torch_tensor(
            obj, dtype, None if device is None else torch.device(device), self._default_device, copy
        )
        if is_divided(array):
            if self.guard is None:
                self.expect_divided()
            # A sum that is still to be taken would be one of many arrays for rules that compute with its terms.
            return added_up(array)
        return array

    def expect_divided(self) -> None:
        """Be prepared for arrays that are divided among processes: what costs nothing as long as there are none."""
        from torch.distributed.tensor import DTensor

        from tape_torch.divided_kernels import UNDIVIDED_RULES, guard, settled
        from tape_torch.gloo import mend_gloo
        from tape_torch.votes import compare_variables

        keep_layouts(settled, is_divided)
        compare_variables()
        if self.guard is None:
            self.divided_class = DTensor
            mend_gloo()
            if is_asked_for(COMPILED_PARTS, otherwise=True):  # else its modules are not imported
                from tape_torch.divided_programs import DividedPrograms

                self.compilers = (DividedPrograms(), *self.compilers)
            for name in UNDIVIDED_RULES:
                self.rules.pop(name, None)
            self.guarded(guard)

    def divided_like(self, tensor: Tensor, shape: tuple[int, ...]) -> Making | None:
        """Return how an array that broadcasts to a Tensor is to be made in parts, where that is a DTensor."""
        if self.guard is None:
            return None
        from tape_torch.distributed.creation import part_like

        return part_like(self, tensor, shape)

    def parts_alike(self, arrays: list[Any]) -> tuple[list[Any], Callable[[list[Any]], list[Any]]] | None:
        """Return this process's parts of DTensors that are divided alike; see the base class."""
        if self.guard is None:
            return None
        from tape_torch.divided_together import parts_alike

        return parts_alike(arrays)

    def together(self) -> Together | None:
        """Return what adds up gradients by one collective for several, once there are DTensors."""
        if self.guard is None:
            return None
        from tape_torch.divided_together import Together

        return Together()

    def sweeping(self) -> AbstractContextManager[Any]:
        """Return the context around a backward sweep: what rules make is a copy in each process beside DTensors."""
        if self.guard is None:
            return self.quiet()
        from tape_torch.divided_kernels import sweeping

        return sweeping()

    def outside_sweep(self) -> AbstractContextManager[Any]:
        """Return the context around a function that a sweep calls: its plain arrays may be its user's."""
        if self.guard is None:
            return nullcontext()
        from tape_torch.divided_kernels import replicating

        return replicating(False)

    def between(self, function: Callable[..., Any], *arrays: Any) -> Callable[..., Any]:
        """Return a function that takes plain tensors beside ones that are divided among processes."""
        if self.guard is None:
            return function
        from tape_torch.divided_kernels import guarded_if_mixed

        return guarded_if_mixed(function, arrays)

    def user_error(self, error: Exception) -> tuple[type[Exception], str] | None:
        """Translate PyTorch's errors to the classes, and the words, of other array libraries."""
        text = str(error)
        # The class itself: its subclasses, such as OutOfMemoryError, say what is wrong by themselves.
        if type(error) is RuntimeError and (gone := without_group(error)) is not None:
            return RuntimeError, str(gone)
        if type(error) is RuntimeError and "out of bounds" in text:
            return IndexError, text
        if type(error) is RuntimeError and "bool tensor" in text:
            return TorchTypeError, text
        if isinstance(error, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            return TorchError, text
        if type(error) is RuntimeError:
            # Other libraries use these words, so people search for them.
            return TorchError, f"the shapes do not broadcast: {text}" if text.startswith(_SHAPE_MISMATCH) else text
        if isinstance(error, NotImplementedError):
            return TorchTypeError, text
        if isinstance(error, IndexError) and "Expected reduction dim" in text:
            return ValueError, f"there are no elements, and so no greatest or least: {text}"
        if isinstance(error, IndexError) and _WRONG_AXIS.search(text):
            return AxisError, text
        return super().user_error(error)

    def whole(self, array: torch.Tensor) -> Any:
        """Return a plain tensor of all values."""
        return whole_value(array) if is_divided(array) else array

    def numpy(self, array: torch.Tensor) -> Any:
        """Return a NumPy array: a view, or a copy of values on another device or in bfloat16, which NumPy lacks."""
        array = self.whole(array)
        array = array.to("cpu", torch.float32 if array.dtype is torch.bfloat16 else array.dtype)
        # PyTorch conjugates by setting a bit of the tensor, which numpy() refuses.
        return array.resolve_conj().resolve_neg().numpy()

    def format(self, array: torch.Tensor) -> str:
        """Format as NumPy does; without values where other processes have some of them, or summands."""
        return super().format(array) if not is_divided(array) or is_here(array) else "[values in several processes]"

    def place(self, array: torch.Tensor) -> str:
        """Return how an array is divided among processes, where it is."""
        return describe(array) if is_divided(array) else ""

    @property
    def compiler_support(self) -> TorchSupport:
        """Calls with `out=`, and on the CPU blocks that stay in the cache."""
        from tape_torch.blocks import SUPPORT

        return SUPPORT

    # -- memory of a backward pass

    def memory(self, array: torch.Tensor) -> tuple[Any, int]:
        """Return the id and the bytes of the storage, which a view keeps alive: of this process's part, if divided."""
        storage = (own_part(array) if type(array) is self.divided_class else array).untyped_storage()
        return storage._cdata, storage.nbytes()

    def frozen(self, array: torch.Tensor) -> Any:
        """Return a copy with the same strides, or a contiguous one if the strides would take much more memory."""
        shape, strides = array.shape, array.stride()
        reach = 1 + sum([(n - 1) * step for n, step in zip(shape, strides, strict=True)])
        if array.is_contiguous() or not array.numel() or not 0 < reach <= COPY_MAX_SPREAD * array.numel():
            return array.clone()
        whole = array.as_strided((reach,), (1,))  # all memory from the first to the last element
        return whole.clone().as_strided(shape, strides, 0)

    is_exclusive = staticmethod(is_exclusive)
    has_spares = staticmethod(has_spares)
    spare_memory = staticmethod(spare_memory)
    give_back_zeros = staticmethod(give_back_zeros)
    old_value = staticmethod(old_value)
    overwriting = staticmethod(formulas_over)

    def blocks(self, arrays: list[Any]) -> Iterable[list[Any]]:
        """Split arrays into blocks on the CPU, of a part for each thread; accelerators take them whole."""
        first = arrays[0]
        size = BLOCK_ELEMENTS_PER_THREAD * torch.get_num_threads()
        if first.device.type != "cpu" or first.numel() <= size or any(map(is_divided, arrays)):
            return [arrays]
        if not all([a.dtype is first.dtype and a.shape == first.shape and a.is_contiguous() for a in arrays]):
            return [arrays]
        return zip(*[a.view(-1).split(size) for a in arrays], strict=True)  # type: ignore[return-value]

    def formulas(self, example: Any) -> Mapping[str, Callable[..., Any]]:
        """Return what PyTorch has fused, see `tape_torch.updates`."""
        return FORMULAS

    def scale(self, g: torch.Tensor, partial: Callable[..., Any], arguments: tuple[Any, ...], in_place: bool) -> Any:
        """Return `g * partial(...)` in the memory of `g` if `in_place`, else in that of the derivative if it is new."""
        if type(g) is self.divided_class:
            from tape_torch.divided_parts import scaled

            found = scaled(g, partial, arguments, self.scale)
            if found is not None:
                return found
        p = partial(self.xp, *arguments)
        if type(g) is not type(p) and self.divided_class in (type(g), type(p)):
            return g * p  # a plain array has no memory for what comes of it beside a divided one
        if in_place:
            return g.mul_(p)
        if type(p) is torch.Tensor and p.shape == g.shape and p.dtype is g.dtype and self.is_exclusive(p, 1):
            return p.mul_(g)
        return g * p

    def add_scaled(
        self, h: torch.Tensor, g: torch.Tensor, partial: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        """Add `g * partial(...)` to `h`.

        By a product and a sum, which compiled code has, too: `addcmul_` and `add_(alpha=)` round only once.
        """
        h.add_(self.scale(g, partial, arguments, in_place=False))


def _autocast() -> tuple[Any, ...] | None:
    """Return the settings of `torch.autocast`, which lets kernels compute, and return, in half precision."""
    on = torch.is_autocast_enabled
    if not (on("cpu") or on("cuda")):
        return None
    return tuple([torch.get_autocast_dtype(kind) if on(kind) else None for kind in ("cpu", "cuda")])
