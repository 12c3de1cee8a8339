"""The class Backend: all that the rest of Tape knows of an array library."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from tape_core.backends.errors import AxisError, BackendError
from tape_core.backends.kernels import Kernels
from tape_core.backends.random_kernels import RandomKernels
from tape_core.base import dtypes
from tape_core.base.dtypes import DType
from tape_core.base.lookup import OPS
from tape_core.base.mistakes import meant
from tape_core.base.user_code import warn_user
from tape_core.typing import Raw

if TYPE_CHECKING:
    from tape_core.backends.flows import Flows
    from tape_core.backends.given_rules import Rule
    from tape_core.engine.layouts import Together
    from tape_core.engine.overwriting import Call, Old
    from tape_core.engine.tensor import Tensor
    from tape_core.meshes.draws import Making

Wrapper = TypeVar("Wrapper", bound="Backend")


_FORMER = {
    "compiler": "set compiler_support, a tape_compile.extend.LibrarySupport",
    "chosen": "write a compiler with offer(), and name it in compilers; see docs/write-a-compiler.md",
    "accelerated": "write a compiler, a plugin of the group tape.compilers; see docs/write-a-compiler.md",
}
"""Former methods of backends, and what takes their place: an override would be ignored without a word."""

_CHECKS = ("axes", "indices")
_shape_dtype_device = attrgetter("shape", "dtype", "device")

_NO_FORMULAS: Mapping[str, Callable[..., Raw]] = MappingProxyType({})


def _library_version(namespace: Any, array_types: Iterable[str]) -> str:
    """Return the version of an array library: that of the namespace, or of the package of its classes of arrays.

    `jax.numpy` has none, and jax has.
    """
    packages = [sys.modules.get(name.partition(":")[0].partition(".")[0]) for name in array_types]
    found = [module.__version__ for module in (namespace, *packages) if hasattr(module, "__version__")]
    return str(found[0]) if found else "unknown"


class Backend:
    """An Array API namespace, kernels by op name that override or extend it, and a few facts.

    Subclass it for a library that needs more; :class:`~tape_core.backends.ArrayAPIBackend` is it, ready-made,
    for any conforming library.

    Attributes:
        name: the name that `TAPE_BACKEND`, `use_backend` and messages use.
        namespace: the library's Array API namespace (a module or an object).
        array_types: the library's array classes, as `"module:qualname"`.
        kernels: functions on raw arrays by op name; each takes the op's own arguments.
        rules: derivative rules by op name and input that replace the op's own on this backend.
        array_class: the class of arrays whose memory a backward pass may reuse, where `is_exclusive` allows; or None.
        divided_class: the class of arrays that are divided among processes, or None. Of these `scale` is asked for
            derivatives of elementwise ops, whatever their size, and `whole` for the value that `float` reads.
        narrow: dtypes that are stored only: the kernels of the backend compute with them in float32, and round. A
            backward pass calls rules with float32 in their place, and rounds each cotangent.
        guard: None, or `guard(name, kernel)`, which gives what is called in place of a kernel; see `guarded`.
        scalar_types: 0-d results that are not arrays (NumPy's `np.float32`): shape () and one dtype a type.
        compilers: names of compilers, or compilers themselves, that are offered a compiled function for which the user
            names none.
        tells_complex: whether kernels of ops that treat complex arguments in another way, or refuse them, are asked in
            each call whether they have some. False of a backend whose own kernels tell, or that sets it when it meets a
            complex dtype first, and calls `resolve_again`.
        host_data: whether the library's arrays are host data, as `BackendInfo` says; set when the plugin is loaded.
        settings: None, or a function that returns the settings of the library, such as PyTorch's autocast, by which
            results have other dtypes: a compiled function is traced again where they differ.
        distributed: None, or the name of the module with the library's meshes of processes or devices, such as
            `tape_torch.distributed`, which is imported where a program asks for a mesh (`tape_nn.parallel.mesh`).
        xp: every op by name on raw arrays, see :class:`~tape_core.backends.kernels.Kernels`.
        argument_guard: what is equal for two raw arrays only if they are of one shape and dtype and on one device: a
            compiled function asks for it in each call.
        random: random numbers, made on the device where they are wanted; a library that can do better than integer
            arithmetic sets a subclass of :class:`~tape_core.backends.random_kernels.RandomKernels`.
    """

    def __init__(
        self,
        name: str,
        namespace: Any,
        *,
        array_types: Sequence[str] = (),
        kernels: Mapping[str, Callable[..., Any]] | None = None,
        rules: Mapping[str, Mapping[str, Any]] | None = None,
        version: str | None = None,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.array_types = tuple(array_types)
        self.kernels = dict(kernels or {})
        self.rules = {op: dict(by_input) for op, by_input in (rules or {}).items()}
        self._checks: frozenset[str] = frozenset()
        self.scalar_types: frozenset[type] = frozenset()
        self.narrow: frozenset[DType] = frozenset()
        self.guard: Callable[[str, Any], Any] | None = None
        self.array_class: Any = None
        self.divided_class: Any = None
        self.compilers: tuple[object, ...] = ()
        self.host_data = False
        self.argument_guard: Callable[[Raw], object] = _shape_dtype_device
        self.settings: Callable[[], Any] | None = None
        self.distributed: str | None = None
        self.level = 0  # how many hidden axes its arrays carry, see `tape_core.modes.batched`
        self.root: Backend = self
        # Of a backend that wraps another one: that one, the array library's, and how many it wraps.
        self.base: Any = None
        self.library: Backend = self
        self.height = 0
        self.tells_complex = True
        self.era = 0  # how often kernels were resolved again
        self.is_checked = False  # whether the names of its kernels and rules were compared with those of ops
        self.keeps = True  # whether its kernels may keep something for rules
        self.version = version or _library_version(namespace, self.array_types)
        self.xp: Any = Kernels(self)
        self.random = RandomKernels(self)
        self._wrappers: dict[Callable[[Backend], Backend], Backend] = {}
        self._raw_dtypes: dict[DType, Any] = {}
        self._raw_devices: dict[str, Any] = {}
        self._dtypes: dict[Any, DType] = {}
        self._limits: dict[Any, tuple[float, float]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for old, new in _FORMER.items():
            if old in vars(cls):
                warn_user(f"{cls.__qualname__}.{old} is not used any more: {new}", DeprecationWarning)

    def __repr__(self) -> str:
        return f"<backend {self.name} {self.version}>"

    @property
    def checks(self) -> frozenset[str]:
        """What the library's functions see to by themselves; set it to a set of words.

        They are `"axes"` (negative ones are counted from the end, others that are not there are errors) and `"indices"`
        (those out of bounds are errors). Of what is not among them Tape takes care before it calls kernels.

        Raises:
            TypeError: a single text is set.
            ValueError: there is no such word.
        """
        return self._checks

    @checks.setter
    def checks(self, words: Iterable[str]) -> None:
        if isinstance(words, str):
            raise TypeError(f"backend {self.name!r}: checks must be a set of words, such as {{{words!r}}}, not a text")
        given = frozenset(words)
        for word in given.difference(_CHECKS):
            known = " and ".join(map(repr, _CHECKS))
            raise ValueError(f"backend {self.name!r}: checks may have {known}, not {word!r}{meant(word, _CHECKS)}")
        self._checks = given

    @property
    def compiler_support(self) -> object | None:
        """The array library's part of `tape_core.function`: how calls are fused, and memory is used again.

        An instance of a subclass of `tape_compile.library.LibrarySupport`, which has the contract; the compiler checks
        it. By default None: the code of compiled functions calls kernels one by one then.
        """
        return None

    def wrapped(self, kind: Callable[[Backend], Wrapper]) -> Wrapper:
        """Return the backend of a class that wraps this one, such as the batching or the tracing one; it is made once.

        Args:
            kind: the class; it is called with this backend.
        """
        found = self._wrappers.get(kind)
        if found is None:
            found = self._wrappers.setdefault(kind, kind(self))
        return found  # type: ignore[return-value]  # what `kind` made

    def wrappers(self) -> list[Backend]:
        """Return this backend and all that wrap it, also through others."""
        found = [self]
        for backend in found:  # it grows meanwhile
            found += backend._wrappers.values()
        return found

    # -- dtypes

    def promotes(self, name: str) -> bool:
        """Return whether the kernel of an op gives results of the dtype that Tape's rule says, for operands of any.

        By default False: results are looked at, and integers beside floats converted where they decide. A backend
        whose library follows the rule saves that look.
        """
        return False

    @property
    def usual_dtype(self) -> Any:
        """A raw dtype, one object, that no result has by mistake, so that it need not be looked at; None if unknown."""
        return None

    def raw_dtype(self, dtype: Any) -> Any:
        """The library's object for a `dtype=` argument; None stays None."""
        if dtype is None:
            return None
        neutral = dtype if type(dtype) is DType else self.dtype(dtype)
        try:
            return self._raw_dtypes[neutral]
        except KeyError:
            raw = getattr(self.namespace, neutral.name, None)
            if raw is None:
                raw = self.foreign_dtype(neutral)
            self.meet(neutral)
            return self._raw_dtypes.setdefault(neutral, raw)

    def foreign_dtype(self, dtype: DType) -> Any:
        """The object for a dtype that the library's namespace lacks.

        Raises:
            TypeError: there is none.
        """
        raise TypeError(f"backend {self.name!r} has no dtype {dtype.name}")

    def dtype(self, raw: Any) -> DType:
        """The :class:`~tape_core.DType` of the library's dtype object (or of a name or Python type)."""
        try:
            return self._dtypes[raw]
        except (KeyError, TypeError):
            found = dtypes.as_dtype(raw)
            if found is None:
                for candidate in dtypes.DTYPES.values():
                    own = getattr(self.namespace, candidate.name, None)
                    if own is not None and own == raw:
                        found = candidate
                        break
                else:
                    found = dtypes.of_numpy(raw)
                if found is None:
                    raise TypeError(f"{raw!r} is not a dtype of backend {self.name!r}") from None
            if not isinstance(raw, str | type):  # the meaning of `float` follows set_default_dtype
                self._dtypes[raw] = found
                self.meet(found)
            return found

    def holds(self, number: int, raw: Any) -> bool:
        """Whether the library's dtype object has this integer of Python's; dtypes of other kinds have all."""
        # A dict of each backend: a dtype of array-api-strict has the hash of NumPy's, and warns when compared with it.
        limits = self._limits.get(raw)
        if limits is None:
            limits = self._limits[raw] = dtypes.integer_limits(self.dtype(raw))
        return limits[0] <= number <= limits[1]

    def meet(self, dtype: DType) -> None:
        """Prepare for a dtype that a program uses for the first time."""

    def look_again(self) -> None:
        """Have ops ask for `promotes` and `usual_dtype` again."""
        for op in OPS.values():
            for backend in [bound for bound in op.bindings if bound.library is self]:
                op.wrap_kernels(backend)

    def guarded(self, guard: Callable[[str, Any], Any]) -> None:
        """Wrap each kernel by `guard`, from now on.

        A wrapper may have a method `chosen(args, kwargs)` that returns the function for such arguments: compiled
        functions call that, since they know dtypes beforehand. Its `unguarded` is the kernel, for exported files.
        """
        self.guard = guard
        self.resolve_again()

    def resolve_again(self) -> None:
        """Have kernels resolved again, since what is called in their place has changed."""
        self.era += 1
        for backend in self.wrappers():
            backend.xp.forget()
        for op in OPS.values():
            for backend in [bound for bound in op.bindings if bound.library is self]:
                del op.bindings[backend]  # the op's next call binds it anew

    # -- devices

    def devices(self) -> tuple[str, ...]:
        """Return the devices present, as strings that `device=` takes."""
        info = getattr(self.namespace, "__array_namespace_info__", None)
        return tuple(str(d) for d in info().devices() if d is not None) if info else ("cpu",)

    @property
    def default_device(self) -> str:
        """The device of new arrays when none is named."""
        info = getattr(self.namespace, "__array_namespace_info__", None)
        return str(info().default_device() or "cpu") if info else "cpu"

    def find_device(self, device: str) -> str:
        """Return the full name of a device: `cpu` is the first of `cpu:0`, `cpu:1`, if none is called `cpu`.

        Raises:
            BackendError: there is no such device.
        """
        present = self.devices()
        if device in present:
            return device
        for name in present:
            if name.startswith(f"{device}:"):
                return name
        raise BackendError(f"backend {self.name!r} has no device {device!r}; its devices are {', '.join(present)}")

    def raw_device(self, device: str | None) -> Any:
        """Return the library's object for a `device=` argument: the device that :meth:`find_device` finds.

        Raises:
            BackendError: there is no such device.
        """
        if device is None:
            return None
        try:
            return self._raw_devices[device]
        except KeyError:
            name = self.find_device(device)
            info = getattr(self.namespace, "__array_namespace_info__", None)
            objects = {} if info is None else {str(d): d for d in info().devices()}
            return self._raw_devices.setdefault(device, objects.get(name, name))

    def device(self, array: Raw) -> str:
        """Return the name of the device that a raw array is on."""
        return str(getattr(array, "device", self.default_device))

    # -- arrays in and out

    def asarray(self, obj: Any, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Raw:
        """Make a raw array of a raw array, a nested list, a scalar or a buffer; `dtype` is the library's."""
        return self.namespace.asarray(obj, dtype=dtype, device=self.raw_device(device), copy=copy)

    def as_argument(self, array: Any, device: str | None) -> tuple[Any, Any] | None:
        """Return a host array as compiled code may be given it in place of `asarray(array, device=device)`, or None.

        That is for compilers whose code moves host arrays itself, and faster. What is returned is nobody else's to
        write to, and has the shape and dtype of the library's array; with it comes the raw device of that.
        """
        return None

    def public(self, array: Raw) -> Raw:
        """Return an array for users, also where kernels return scalars."""
        return array

    def whole(self, array: Raw) -> Raw:
        """Return an array whose memory has all values, for another library; raise where other processes have some."""
        return array

    def numpy(self, array: Raw) -> Any:
        """Return a `numpy.ndarray` of the same values, copied only where it must be."""
        import numpy as np  # the caller asked for NumPy: it is not core's dependency

        # Without a copy by DLPack; libraries, and their versions, differ in the error for arrays that cannot pass so.
        try:
            return np.from_dlpack(array)
        except (AttributeError, TypeError, BufferError, RuntimeError):
            return np.asarray(array)

    def format(self, array: Raw) -> str:
        """Return the values as text for printing: not more of them leave their device than are shown."""
        from tape_core.backends.texts import text

        try:
            return text(self, array)
        except ImportError:
            return str(array)

    def place(self, array: Raw) -> str:
        """Return what the text of a Tensor says of where its array is, such as `device=cpu:0-7`; by default nothing."""
        return ""

    def tell(self, array: Raw) -> None:
        """Raise where the text of a Tensor must not have its values: in a compiled function, say."""

    def user_error(self, error: Exception) -> tuple[type[Exception], str] | None:
        """Return the class and the text in which users get an error of a kernel; None leaves the error as it is."""
        # Both at once is how NumPy marks an axis that is out of bounds; as one of the two, half of it would be lost.
        if isinstance(error, ValueError) and isinstance(error, IndexError):
            return AxisError, str(error)
        kind = next(
            (kind for kind in (ValueError, IndexError, TypeError, OverflowError) if isinstance(error, kind)), None
        )
        return None if kind is None else (kind, str(error))

    def quiet(self) -> AbstractContextManager[Any]:
        """Suppress floating-point warnings in the context, a backward pass: they would point at nobody's line."""
        return nullcontext()

    def repeating(self) -> AbstractContextManager[Any]:
        """Suppress in the context the warnings that a call which is made again in another dtype has given already."""
        return nullcontext()

    @property
    def is_strict(self) -> bool:
        """True while floating-point errors raise: then functions run uncompiled, to raise at the same op."""
        return False

    def sweeping(self) -> AbstractContextManager[Any]:
        """Return the context around a backward sweep: that of `quiet`."""
        return self.quiet()

    def outside_sweep(self) -> AbstractContextManager[Any]:
        """Return the context around a function that a sweep calls: what `sweeping` says of rules is not said of it."""
        return nullcontext()

    def between(self, function: Callable[..., Any], *arrays: Raw) -> Callable[..., Any]:
        """Return what a compiled function calls for a function of raw arrays in a rule, such as `operator.mul`."""
        return function

    def nbytes(self, array: Raw) -> int:
        """Return the bytes of an array's elements."""
        return int(math.prod(array.shape)) * self.dtype(array.dtype).itemsize

    def memory(self, array: Raw) -> tuple[Any, int]:
        """Return a name for the memory that an array keeps alive, and its size in bytes.

        Arrays that share memory, such as a view and what it is of, have the same name.
        """
        return id(array), self.nbytes(array)

    def frozen(self, array: Raw) -> Raw:
        """Return a copy in memory of its own, with the same layout, so that sums over it have the same bits.

        Compiled functions keep such copies of the arrays that they capture.
        """
        return self.asarray(array, copy=True)

    def stopped(self, array: Raw) -> Raw:
        """Return an array as a constant to the library, where that may be differentiating, as JAX under `jax.grad`."""
        return array

    def ruled(self, inputs: Sequence[Raw], outs: Sequence[Raw], rule: Rule) -> Sequence[Raw]:
        """Return the results of a function whose derivative the user gives, by `custom_gradient` for instance.

        A library that may be differentiating them itself, as JAX under `jax.grad`, overrides this: to it what is
        returned is to depend on the inputs alone, by the rule. By default these are the results as they are.

        Args:
            inputs: the arguments that have derivatives.
            outs: the results that have derivatives, which the library knows as computed from the inputs.
            rule: its cotangents and tangents, as functions of raw arrays.
        """
        return outs

    def differentiates(self, array: Raw) -> bool:
        """Return whether the library is known to differentiate what is computed from an array, here and now."""
        return False

    def flows(self, array: Raw) -> Flows | None:
        """Return the library's own loops and linear systems, where it traces this array and cannot read its value.

        None, the default, where the value can be read: then Python decides.
        """
        return None

    def is_as(self, array: Raw, copy: Raw) -> bool:
        """Return True if an array still has the values of an earlier copy of it; NaN equals NaN."""
        return bool(self.xp.all((array == copy) | ((array != array) & (copy != copy))))

    @staticmethod
    def put(array: Raw, key: Any, values: Any) -> Raw:
        """Return `array` with the elements at a plain key replaced by `values`; the only write of default kernels.

        The array is the caller's own, made a moment ago, and may be written to; what is returned takes its place. A
        library whose arrays are immutable overrides this: `return array.at[key].set(values)`. It stays a function
        without `self`, since exported files contain its source.

        Args:
            array: an array that nobody else refers to.
            key: a tuple of integers, which are within bounds, and slices; or a mask. There are no arrays of integers.
            values: an array that can be broadcast to the elements, or a number.
        """
        array[key] = values
        return array

    @staticmethod
    def is_known(array: Raw) -> bool:
        """Return whether the values of an array can be read now; by default they can.

        A library that traces Python functions itself, as JAX does inside `jax.jit`, overrides this: indices are then
        not compared with bounds. It stays a function without `self`, as `put` does.
        """
        return True

    def branch(self, condition: Raw, first: Callable[[], Raw], second: Callable[[], Raw]) -> Raw:
        """Return `first()` where a condition holds, else `second()`, when its value cannot be read; see `is_known`.

        By default both are computed, and one of them is taken. A library with a branch of its own, as JAX has
        `jax.lax.cond`, overrides this.

        Args:
            condition: an array of one truth value.
            first, second: functions that return arrays of the same shape and dtype.
        """
        return self.xp.where(condition, first(), second())

    @staticmethod
    def halves(array: Raw) -> bool:
        """Return whether rules divide large matrices in halves, which saves work, and makes more calls; by default so.

        It does not pay where calls are compiled, as on JAX: there it takes longer to compile them than they save.
        """
        return True

    def extremes(self, indices: Raw) -> tuple[int, int]:
        """Return the least and the greatest of an array of indices, to be compared with bounds; (0, -1) of no integers.

        It is called on libraries that do not look at indices themselves, see `checks`. Arrays in the memory of the host
        are read there, which takes a fraction of the time of two calls of most libraries.
        """
        if not self.dtype(indices.dtype).kind.endswith("integer"):
            return 0, -1
        if self.device(indices).partition(":")[0] == "cpu":
            with suppress(ImportError):
                host = self.numpy(indices)
                return int(host.min()), int(host.max())
        return int(self.xp.min(indices)), int(self.xp.max(indices))

    def is_exclusive(self, array: Raw, references: int) -> bool:
        """Return whether nobody but the caller, who knows of `references` of them, can see this array's memory.

        A wrong True lets an update in place change somebody else's value; so the answer is False where unsure.
        """
        return False

    def has_spares(self, example: Raw) -> bool:
        """Return whether the memory of former values of Variables is kept for later ones, if they are such arrays."""
        return False

    def spare_memory(self, kept: list[Raw], shape: tuple[int, ...], dtype: Any) -> Raw | None:
        """Take an array out of a list, and return its memory, or that of the part of it that this process has.

        None if the list is empty, if anybody else may see the memory, or if it is not of this shape and dtype, and one
        row after the other. The same caution applies as in `is_exclusive`.
        """
        kept.clear()
        return None

    def give_back_zeros(self, array: Raw) -> None:
        """Have an array of zeros take no memory until it is written to, if the library and the system can.

        What an optimizer begins with is read in one step, beside all that takes its place. By default nothing.
        """

    def old_value(self, array: Raw, gradient: Raw) -> Old | None:
        """Return what it takes to write over a Variable's value, by :meth:`overwriting`; None if that cannot be.

        Whether anybody else has the value is found out right before.

        Args:
            array: the value.
            gradient: what the new value is computed from, or the part of it that this process has.
        """
        return None

    def overwriting(self, example: Raw, calls: list[Call]) -> Mapping[str, Callable[..., Raw]]:
        """Return :meth:`formulas` that add calls of C functions to a list, and return `out`, in place of computing.

        They are made later, in their order, and need no memory: see `tape_core/engine/overwriting.py`.

        Args:
            example: an array as large as all that they are called with, or larger.
        """
        return {}

    def blocks(self, arrays: list[Raw]) -> Iterable[list[Raw]]:
        """Cut arrays of one shape and dtype, for an elementwise update in place, into pieces that fit into the cache.

        The pieces are flat views, to write to. By default, and where an array cannot be viewed so, `arrays` itself.
        """
        return [arrays]

    def formulas(self, example: Raw) -> Mapping[str, Callable[..., Raw]]:
        """Return formulas of optimizers' updates that the library computes in fewer passes than by its operators.

        They take arrays like the example, all of one shape and dtype, and numbers, and return such an array; and take
        `out=`, an array for the result, which may have the memory of an argument, and is not given in traces. Those
        that are missing, by default all, are computed by operators:

        - `lerp(x, y, weight)`: `x + (y - x) * weight`
        - `lerp_square(x, y, weight)`: `x + (y * y - x) * weight`
        - `accumulate(x, decay, y, scale)`: `x * decay + y * scale`
        - `subtract_scaled(w, x, scale)`: `w - x * scale`
        - `subtract_root_quotient(w, a, b, epsilon, scale)`: `w - a / (sqrt(b) + epsilon) * scale`
        """
        return _NO_FORMULAS

    def parts_alike(self, arrays: list[Raw]) -> tuple[list[Raw], Callable[[list[Raw]], list[Raw]]] | None:
        """Return this process's parts of arrays that are divided alike, for an elementwise update.

        With them comes what makes divided arrays of the new parts of all but the first. By default None: they are not.
        """
        return None

    def together(self) -> Together | None:
        """Return what lays out gradients as their sources, several at once; by default, None, each is by itself."""
        return None

    def divided_like(self, tensor: Tensor, shape: tuple[int, ...]) -> Making | None:
        """Return how an array that broadcasts to a Tensor is to be made in parts, as the Tensor is divided.

        By default, and where it is not divided, None: the array is made whole.
        """
        return None

    def scale(self, g: Raw, partial: Callable[..., Any], arguments: tuple[Any, ...], in_place: bool) -> Raw:
        """`g * partial(xp, *arguments)` for large arrays; with `in_place`, in the memory of `g`.

        `partial` is elementwise: it may be evaluated block by block.
        """
        p = partial(self.xp, *arguments)
        if in_place:
            g *= p
            return g
        return g * p

    def add_scaled(self, h: Raw, g: Raw, partial: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """`h += g * partial(xp, *arguments)` for large arrays of one shape and dtype, in the memory of `h`."""
        p = partial(self.xp, *arguments)  # named: with a temporary, NumPy may swap the factors
        h += g * p
