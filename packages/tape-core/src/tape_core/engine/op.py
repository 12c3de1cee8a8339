"""Op: one function of arrays, its derivative rules, and the hot path that runs and records it.

Declare an op by decorating its signature and docstring; the array work is the backend's kernel::

    @elementwise(x=lambda xp, x: xp.cos(x), samples=unary())
    def sin(x: ArrayLike, /) -> Tensor:
        '''Sine of each element, in radians.'''

The three decorators differ in what the engine may do with a rule:

- `elementwise`: the op broadcasts; a rule is the partial derivative (or a `vjp`), and the engine multiplies and
  sums back over broadcasting.
- `linear`: each rule is a `transpose`.
- `op`: each rule is a `vjp`. Here and for `linear` the cotangent must have exactly the input's shape.

Each input has a rule, `NONDIFF` or `TODO`. What a rule's parameters mean is in `tape_core.engine.rules`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any, Literal, TypeAlias, TypeVar

from tape_core.backends.axes import AxesOf, AxisParameter
from tape_core.backends.errors import BackendMismatchError
from tape_core.backends.kernels import COMPLEX_KERNELS, DEFAULT_KERNELS, EXTENSIONS, REFUSED
from tape_core.backends.names import check_names
from tape_core.backends.protocol import Backend
from tape_core.backends.selection import select
from tape_core.base import lookup
from tape_core.base.dtypes import DEFAULT_IS_SET, common_dtype
from tape_core.base.lookup import ops
from tape_core.base.mistakes import meant
from tape_core.base.user_code import warn_user
from tape_core.engine.call_errors import call_error, fail
from tape_core.engine.call_paths import binary_call, constant_call, general_call, single_call, unary_call
from tape_core.engine.cotangents import ALL, ELEMENTS
from tape_core.engine.facts import FACTS
from tape_core.engine.levels import BatchedArray, height, is_on_level, lift, move_to_level
from tape_core.engine.plan import Plan
from tape_core.engine.promotion import promoted_inputs, unmixed, usual_dtype, usual_scalar
from tape_core.engine.rules import NONDIFF, TODO, Form, Parameters, Rule, RuleSpec, compile_rules, fused, transpose, vjp
from tape_core.engine.samples import Samples
from tape_core.engine.tensor import SCALARS, Tensor, read_all
from tape_core.typing import Kernel

__all__ = [
    "NONDIFF",
    "REFUSED",
    "TODO",
    "Op",
    "elementwise",
    "fused",
    "linear",
    "op",
    "refuses",
    "registry",
    "transpose",
    "vjp",
]

Misfit = Callable[..., str | None]
"""Returns what is wrong with the shapes of an op's inputs, or None; it is given these and the parameters by name."""

Bounds = Callable[..., None]
"""Raises IndexError for indices out of bounds; it is called as the op's default kernel is, `bounds(xp, x, ...)`."""

BatchRule = Callable[..., Any]
"""Does the work of an op for all examples of a vmap, see `tape_core.modes.batching`."""

BOUND: list[tuple[Op, Backend]] = []
"""Each binding there ever was, of every op."""

Kernels = tuple[Kernel, Kernel | None]
"""The kernel of an op on a backend, and the one that leaves residuals for rules where an input is watched, if any."""

Interceptor = Callable[["Op", Backend, Kernels], Kernels]
"""Returns what is called in place of the kernels of an op: itself, these, or functions that call these."""

_interceptors: list[Interceptor] = []  # for all ops on all backends


def intercept_all(interceptor: Interceptor) -> None:
    """Have all kernels called through `interceptor`, around those of `Op.intercept`, until `release_all`."""
    if interceptor not in _interceptors:
        _interceptors.append(interceptor)
    _rebind_all()


def release_all(interceptor: Interceptor) -> None:
    """End what `intercept_all` began."""
    _interceptors[:] = [other for other in _interceptors if other is not interceptor]
    _rebind_all()


Binding: TypeAlias = "tuple[Kernel, Plans, Any, type | None]"
"""The kernel of an op on a backend, the plans of its records, the usual dtype of results, and its scalars' type."""


def _rebind_all() -> None:
    for op, backend in BOUND:
        op.wrap_kernels(backend)


DEFAULT_IS_SET.append(_rebind_all)  # which dtype is usual depends on it


Masks: TypeAlias = Literal[False, True, "elements"]
"""Whether an op leaves inputs out, see `elementwise`."""

SparsityRule = Callable[..., Any]
"""Returns which elements of an op's result depend on which elements of its inputs, see `op`."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """The options of a declaration, besides its signature, form and rules; see `op`."""

    samples: Samples | None = None
    kernel: Kernel | None = None
    sequence: bool = False
    masks: Masks = False
    sparse: bool = False
    reason: str | None = None
    extension: str | None = None
    result: Callable[..., Any] | None = None
    materialize: bool = True
    common: Callable[..., Any] | None = None
    residual_kernel: Kernel | None = None
    batch: BatchRule | None = None
    multilinear: bool = False
    sparsity: SparsityRule | None = None
    complex_kernel: Kernel | None = None
    keeps_integers: bool = False
    writes_into_first: bool = False
    axes_of: AxesOf | None = "input"
    misfit: Misfit | None = None
    bounds: Bounds | None = None


class Op(Options):
    """One op: its options, its rules, and its bindings to backends.

    `registry[name]` returns it, and `op.function` is what users call.
    """

    push: Callable[[Plan, tuple[Any, ...]], Any] | None = None
    """Pushes tangents through a record if that does not follow from the rules; returns NotImplemented if it does."""

    def __init__(
        self, function: Callable[..., Any], rules: Mapping[str, RuleSpec], *, form: Form, **options: Any
    ) -> None:
        super().__init__(**options)
        self.name = name = function.__name__
        self.signature = inspect.signature(function)
        self.form = form
        self.elementwise = form == "elementwise"
        self.rules = dict(rules)
        self.reach_of_mask = {False: 0, "elements": ELEMENTS, True: ALL}[self.masks]
        self.parameters = Parameters(
            name, self.signature, list(rules), self.sequence, self.common, self.residual_kernel is not None
        )
        self.inputs = self.parameters.inputs
        self.compiled = compile_rules(name, form, self.parameters, rules)
        self.has_parameters = bool(self.parameters.defaults)
        self.optional = any(self.signature.parameters[name].default is None for name in self.inputs)
        self.takes_dtype = "dtype" in self.parameters.defaults
        self.axis = axis = self._axis_parameter()
        # Of these an operand of no dimensions is looked at: it has no axis.
        self.counts_axes = axis is not None and axis.of in ("input", "line")
        self.has_default_axis = axis is not None and (
            axis.of == "line" or self.parameters.defaults[axis.name] is not None
        )
        self.bindings: dict[Backend, Binding] = {}
        self.promoted = promoted_inputs(self)
        self._interceptors: dict[Backend, list[Interceptor]] = {}
        # Whether a backend may bring a kernel of its own that leaves residuals; `_call_path` says no for the shortest
        # paths.
        self.may_keep = True
        # Nothing is known of the kernels of others.
        self.refuses: tuple[str, ...] = () if self.elementwise or _is_ours(function) else self.inputs
        self.function = self._call_path()
        update_wrapper(self.function, function)
        if (facts := FACTS.get(name)) is not None and self.function.__doc__ and _is_ours(function):
            self.function.__doc__ = f"{self.function.__doc__.rstrip()}{facts}"
        self.function.op = self  # type: ignore[attr-defined]

    advice: Callable[..., Exception | None] | None = None
    """Returns a better error for inputs of some shapes with which the kernel failed, or None for the library's own."""

    takes_slices = False
    """True if the rule takes cotangents of gathers as they are; else they are made dense."""

    widens = True
    """True if the rules compute with float32 in place of dtypes that are narrow on the backend."""

    foreign = False
    """True if the rule calls the differentiation of another library."""

    promotes = True
    """True if operands of several dtypes may be converted; False if somebody's function gets them as they are."""

    of_functions = False
    """True if the rule is a user's function, which may compute with anything."""

    def __repr__(self) -> str:
        return f"<op {self.spelled}>"

    def _axis_parameter(self) -> AxisParameter | None:
        name = next((name for name in ("axis", "axes") if name in self.parameters.defaults), None)
        if name is None or self.axes_of is None:
            return None
        inputs = 1 if self.sequence else len(self.inputs)
        place = self.parameters.places.get(name)
        return AxisParameter(name, None if place is None else place + inputs, inputs, self.sequence, self.axes_of)

    def check_axis(self, values: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise for an axis that the first operand, of no dimensions, does not have: NumPy and PyTorch take 0 for one.

        Raises:
            AxisError: `axis` is not there.
            ValueError: it has to be given.
        """
        with suppress(TypeError):  # of arguments that the op does not have: the kernel refuses them
            given = self.signature.bind(*([values] if self.sequence else values), *args, **kwargs)
            given.apply_defaults()
            if self.axis is not None and (error := self.axis.error(values, given.arguments)) is not None:
                fail(self, error, values, args, kwargs)

    @property
    def spelled(self) -> str:
        """The signature without annotations, for messages."""
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in self.signature.parameters.values()]
        return f"{self.name}{inspect.Signature(plain)}"

    @property
    def differentiable(self) -> bool:
        """True if a derivative flows through the op."""
        return bool(self.compiled)

    def _call_path(self) -> Callable[..., Any]:
        plain = not (
            self.has_parameters or self.sequence or self.sparse or self.masks or self.result or self.residual_kernel
        )
        if plain and (len(self.inputs) == 2 or (len(self.inputs) == 1 and (self.elementwise or not self.compiled))):
            self.may_keep = False  # the shortest paths ask for no such kernel
            if not self.compiled:
                return constant_call(self)
            return unary_call(self) if len(self.inputs) == 1 else binary_call(self)
        if len(self.inputs) == 1 and not (
            self.sequence or self.sparse or self.masks or self.optional or self.residual_kernel
        ):
            return single_call(self)
        return general_call(self)

    # -- what the hot path asks once per backend

    def bind(self, backend: Backend) -> Binding:
        """Return the kernel on a backend, the plans of its records by which inputs are watched, and the usual dtype.

        Results of another dtype than that are looked at, see `tape_core.engine.promotion`; of None, none are.
        """
        if not backend.library.is_checked:
            check_names(backend.library)
        era = backend.library.era
        kernel = getattr(backend.xp, self.name)
        if self.result is not None:
            kernel = partial(_as_tuple, kernel)  # of the library's own kind of named tuple
        kernel = unmixed(self, self._bounded(self._refusing(kernel), backend), backend)
        replaced = backend.rules.get(self.name)
        rules = self.compiled if replaced is None else self.compiled_for(backend, replaced)
        residual_kernel = None
        if self.leaves_residuals_on(backend):
            residual_kernel = unmixed(self, getattr(backend.xp, f"{self.name}_with_residuals"), backend)
        found = self.bound(backend, kernel, Plans(self, rules, residual_kernel, backend))
        return found if backend.library.era == era else self.bind(backend)  # another thread has set a guard meanwhile

    def _refusing(self, kernel: Kernel) -> Kernel:
        """Return a kernel that takes no arguments but the op's, of which the rules know: `ddof` of NumPy's `std`."""
        if not self.has_parameters:
            return kernel
        try:
            theirs = {p.name: p for p in inspect.signature(kernel).parameters.values()}
        except (TypeError, ValueError):
            return kernel
        placed = [p.name for p in self.signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        named = [p.name for p in self.signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        kinds = {p.kind for p in theirs.values()}
        if inspect.Parameter.VAR_KEYWORD in kinds or inspect.Parameter.VAR_POSITIONAL in kinds:
            return self._checking(kernel, len(placed), frozenset(named).union(placed))
        by_place = [p for p in theirs.values() if p.kind is not p.KEYWORD_ONLY]
        others = {*list(theirs)[len(self.inputs) :]} - {*placed, *named}
        if (len(by_place) <= len(placed) and not others) or not {*named} <= {*theirs}:
            return kernel
        # Written out with the op's signature: to compare the arguments in each call takes longer.
        plain = [
            p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else _Default(p.name))
            for p in self.signature.parameters.values()
        ]
        given = [*placed, *[f"{name}={name}" for name in named]]
        names: dict[str, Any] = {"kernel": kernel, "__name__": __name__}  # by which the frame is known as Tape's
        for p in self.signature.parameters.values():
            # 0.0 as 0: with a float for `correction` NumPy's `std` of few elements takes a fifth longer.
            whole = type(p.default) is float and p.default.is_integer()
            names[f"default_{p.name}"] = int(p.default) if whole else p.default
        refusing: Kernel = eval(f"lambda {str(inspect.Signature(plain))[1:-1]}: kernel({', '.join(given)})", names)
        return refusing

    def _bounded(self, kernel: Kernel, backend: Backend) -> Kernel:
        """Return a kernel that looks at indices first, if the library takes some elements for those out of bounds."""
        check = self.bounds
        if check is None or backend.height or "indices" in backend.library.checks:
            return kernel
        # The default kernels of indexing do it by themselves.
        if self.kernel is not None and self.name not in backend.kernels and "key" in self.parameters.defaults:
            return kernel
        xp, n, places, defaults = backend.xp, len(self.inputs), self.parameters.places, self.parameters.defaults

        def bounded(*args: Any, **kwargs: Any) -> Any:
            given = {name: args[n + place] for name, place in places.items() if len(args) > n + place}
            check(xp, *args[:n], **{**defaults, **given, **kwargs})
            return kernel(*args, **kwargs)

        return bounded

    def _checking(self, kernel: Kernel, most: int, names: frozenset[str]) -> Kernel:
        """Return a kernel that looks at its arguments in each call: one that takes any, as those of traces and vmap."""

        def checking(*args: Any, **kwargs: Any) -> Any:
            if len(args) > most or not kwargs.keys() <= names:
                raise TypeError(f"{self.name}: an argument that the op does not have")  # `fail` says which
            return kernel(*args, **kwargs)

        return checking

    def bound(self, backend: Backend, kernel: Kernel, plans: Plans) -> Binding:
        """Note a binding, for the hot path, with interceptors around its kernels."""
        BOUND.append((self, backend))
        kernels = kernel, plans.residual_kernel
        for interceptor in self._interceptors.get(backend, ()):
            kernels = interceptor(self, backend, kernels)
        # Kept apart, so that the interceptors of all ops can be put around them and be taken away again.
        plans.own_kernels = kernels
        self.bindings[backend] = kernel, plans, None, None
        self.wrap_kernels(backend)
        return self.bindings[backend]

    def intercept(self, backend: Backend, interceptor: Interceptor) -> None:
        """Have the kernels on a backend called through `interceptor` from now on; once for each interceptor."""
        own = self._interceptors.setdefault(backend, [])
        if interceptor in own:
            return
        own.append(interceptor)
        if backend in self.bindings:
            plans = self.bindings[backend][1]
            plans.own_kernels = interceptor(self, backend, plans.own_kernels)
            self.wrap_kernels(backend)
        else:
            self.bind(backend)

    def wrap_kernels(self, backend: Backend) -> None:
        """Bind the kernels on a backend again, with the interceptors of all ops around those of this one."""
        if (found := self.bindings.get(backend)) is None:
            return
        plans = found[1]
        kernels = plans.own_kernels
        for interceptor in _interceptors:
            kernels = interceptor(self, backend, kernels)
        plans.residual_kernel = kernels[1]
        usual = usual_dtype(self, backend)
        self.bindings[backend] = kernels[0], plans, usual, usual_scalar(usual, backend)

    def leaves_residuals_on(self, backend: Backend) -> bool:
        """Return whether a kernel leaves residuals for rules: the op's own, or one that the backend brings."""
        kernels, new, old = backend.kernels, f"{self.name}_with_residuals", f"{self.name}_keeping"
        former = None if old in lookup.OPS else kernels.get(old)
        if former is not None:
            warn_user(f"backend {backend.name!r} has a kernel {old!r}, which is called {new!r} now", DeprecationWarning)
            # Other threads may bind the op, too: one of both names is there at any time.
            kernels.setdefault(new, former)
            kernels.pop(old, None)
        own = self.residual_kernel is not None or (new in kernels and self.may_keep)
        return own and backend.keeps

    def compiled_for(self, backend: Backend, replaced: Mapping[str, RuleSpec]) -> dict[int, Rule]:
        """Return the rules on a backend that replaces some."""
        parameters = copy.copy(self.parameters)
        parameters.leaves_residuals = self.leaves_residuals_on(backend)
        return compile_rules(self.name, self.form, parameters, {**self.rules, **replaced}, self.rules)

    # -- what the hot path asks when operands are not plain Tensors of one backend

    def operands(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the operands as Tensors of one backend and Python scalars, at least one of them a Tensor.

        Raises:
            TypeError: for operands that are not arrays, and for two backends.
        """
        values = tuple(read_all(values, lambda k: f"{self.name}: {self.input_name(k)}", optional=self.optional))
        if self.sequence:
            values = with_numbers_as_tensors(values)
        tensors = [v for v in values if isinstance(v, Tensor)]
        if not tensors:
            first = next((k for k, v in enumerate(values) if v is not None), None)
            if first is None:
                raise TypeError(f"{self.name}: {self.inputs[0]} must be an array or a Python number, got None")
            # Numbers alone, as in `sin(1.0)`: one becomes a Tensor and so selects the backend, the others stay weak.
            tensor = ops.asarray(values[first])
            return (*values[:first], tensor, *values[first + 1 :])
        # The uppermost: what is on a backend that it wraps is a constant to it, and is lifted.
        backend = max([tensor.backend for tensor in tensors], key=height)
        if any([tensor.backend is not backend for tensor in tensors]):
            if not all([type(v._array) is not BatchedArray or is_on_level(v._array) for v in tensors]):
                values = tuple([move_to_level(v) if type(v) is Tensor else v for v in values])
                backend = max([v.backend for v in values if isinstance(v, Tensor)], key=height)
            for k, value in enumerate(values):
                if isinstance(value, Tensor) and value.backend.library is not backend.library:
                    # Where new arrays are made, the program means to compute; the other operand is the stray one.
                    wanted = select().backend
                    wanted = wanted if wanted is value.backend.library else backend
                    error = BackendMismatchError(
                        f"{self.name}: {self.input_name(k)} is on backend {value.backend.name!r}, another operand on "
                        f"{backend.name!r}; convert one with tape_core.asarray(x, backend={wanted.name!r})"
                    )
                    error.places = tuple([(v.backend.library, v.device) for v in values if isinstance(v, Tensor)])
                    raise error
            values = tuple(
                [lift(v, backend) if isinstance(v, Tensor) and v.backend is not backend else v for v in values]
            )
        return values

    def input_name(self, k: int) -> str:
        """Return the name of an input, for messages: `x1`, or `arrays[2]` of a sequence."""
        if self.sequence:
            return f"{self.inputs[0]}[{k}]"
        return self.inputs[min(k, len(self.inputs) - 1)]

    def normalise(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return all inputs as positional arguments, also those given by keyword or left to their default."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise call_error(self, error) from None
        bound.apply_defaults()
        inputs = tuple(bound.arguments[name] for name in self.inputs)
        return (*inputs, *args[len(inputs) :]), {k: v for k, v in kwargs.items() if k not in self.inputs}


def _is_ours(function: Callable[..., Any]) -> bool:
    return function.__module__.startswith("tape_core.")


def with_numbers_as_tensors(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values with Tensors in place of Python scalars, which are weak: they take the dtype of the others."""
    kinds = [type(v) for v in values if type(v) in SCALARS]
    if not kinds:
        return values
    tensors = [v for v in values if isinstance(v, Tensor)]
    dtype = common_dtype([v.dtype for v in tensors], kinds)
    backend, device = (tensors[0].backend.root, tensors[0].device) if tensors else (None, None)
    return tuple(
        [ops.asarray(v, dtype=dtype, backend=backend, device=device) if type(v) in SCALARS else v for v in values]
    )


class _Default:
    """A default that is shown as a name, in a signature that becomes source."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"default_{self.name}"


def _as_tuple(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return tuple(kernel(*args, **kwargs))


class Plans(dict[int, "Plan | None"]):
    """The plans of an op on a backend, by the set of watched inputs as bits; made when first needed."""

    def __init__(
        self, op: Op, rules: dict[int, Rule], residual_kernel: Callable[..., Any] | None, backend: Backend
    ) -> None:
        self.op = op
        self.backend = backend
        self.rules = rules
        self.residual_kernel = residual_kernel
        """The kernel that runs if an input is watched, and leaves residuals for rules."""
        self.own_kernels: Kernels
        """The kernels with the interceptors of this op alone; set when they are bound."""

    def __missing__(self, watched: int) -> Plan | None:
        rules = [rule for k, rule in self.rules.items() if watched >> k & 1]
        # None where no derivative flows from these inputs: call paths then make no record.
        plan = self[watched] = Plan(self.op, rules, self.backend) if rules else None
        return plan


class UnknownOpError(KeyError):
    """There is no op of this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name)
        self._known = known

    def __str__(self) -> str:
        name = self.args[0]
        return f"no op {name!r} is declared{meant(name, self._known)}"

    # The text is made from the whole registry, which must not be pickled with the error.
    def __reduce__(self) -> Any:
        return KeyError, (str(self),)


class Registry(Mapping[str, Op]):
    """Every op by name. Registering checks everything first, then commits."""

    def __init__(self) -> None:
        self._ops: dict[str, Op] = lookup.OPS

    def __getitem__(self, name: str) -> Op:
        try:
            return self._ops[name]
        except KeyError:
            raise UnknownOpError(name, self._ops) from None

    def __contains__(self, name: object) -> bool:
        return name in self._ops

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def register(self, op: Op) -> None:
        """Add an op.

        Raises:
            ValueError: the name is taken.
        """
        if op.name in self._ops:
            raise ValueError(f"op {op.name!r} is registered already, as {self._ops[op.name]!r}")
        if op.kernel is not None:
            DEFAULT_KERNELS[op.name] = op.kernel
        if op.residual_kernel is not None:
            DEFAULT_KERNELS[f"{op.name}_with_residuals"] = op.residual_kernel
        if op.complex_kernel is not None:
            COMPLEX_KERNELS[op.name] = op.complex_kernel
        if op.extension is not None:
            EXTENSIONS[op.name] = op.extension
        self._ops[op.name] = op

    def override(self, name: str, backend: Backend, **rules: RuleSpec) -> None:
        """Replace rules of an op on one backend; what is not named keeps the op's own rule.

        Raises:
            KeyError: there is no such op.
            TypeError: a rule does not fit the op.
        """
        op = self[name]
        # For its checks alone: it raises before anything is changed.
        op.compiled_for(backend, {**backend.rules.get(name, {}), **rules})
        backend.rules.setdefault(name, {}).update(rules)
        # Bindings hold compiled rules, on the backends of vmap and of traces as well; the next call binds again.
        for above in backend.wrappers():
            op.bindings.pop(above, None)


registry = lookup.registry = Registry()


def _declare(form: Form, **options: Any) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        declared = Op(function, form=form, **options)
        registry.register(declared)
        return declared.function  # type: ignore[return-value]

    return decorate


def refuses(*arguments: str) -> Callable[[F], F]:
    """A decorator above that of an op whose kernel refuses some values of these arguments, on any backend.

    A label out of range, a singular matrix, a division of integers by 0: compiled functions keep such a call though
    nothing needs its result, for it may raise. Elementwise ops refuse integers only. Of an op that is declared outside
    of Tape it is taken to be so for all inputs; `@refuses()` says that its kernel takes any values.

    Raises:
        TypeError: the op has no argument of that name.
    """

    def decorate(function: F) -> F:
        declared: Op = function.op  # type: ignore[attr-defined]
        if unknown := [name for name in arguments if name not in declared.signature.parameters]:
            raise TypeError(f"op {declared.name!r} has no argument {unknown[0]!r}: {declared.spelled}")
        declared.refuses = arguments
        return function

    return decorate


def elementwise(
    *,
    samples: Samples | None = None,
    kernel: Callable[..., Any] | None = None,
    masks: Masks = False,
    reason: str | None = None,
    batch: BatchRule | None = None,
    complex_kernel: Callable[..., Any] | None = None,
    keeps_integers: bool = False,
    axes_of: AxesOf | None = "input",
    **rules: RuleSpec,
) -> Callable[[F], F]:
    """Declare an elementwise op: `elementwise(x1=lambda xp, x2: x2, x2=lambda xp, x1: x1)`.

    Args:
        samples: a generator function of :class:`~tape_core.engine.samples.Sample`.
        kernel: for an op outside the standard, `kernel(xp, ...)` on raw arrays with the standard's functions.
        masks: the op leaves inputs out (`where`): a zero cotangent then stays zero, whatever the derivative. With
            `"elements"` that holds as far as elementwise ops lead, which costs less.
        reason: for an op through which nothing flows, why.
        complex_kernel: `kernel(xp, ...)` for calls with a complex argument, if it is another one; `REFUSED` for a
            function of real numbers alone. By default the kernel takes complex numbers, too.
        keeps_integers: the op takes integers as they are: it moves elements, or its result is an integer one. By
            default integers become floats where the result does.
        rules: per input, in order: the partial derivative as a function or number, a `vjp`, NONDIFF or TODO.
    """
    return _declare("elementwise", **locals())  # the options, and the rules by that name


def linear(
    *,
    samples: Samples | None = None,
    kernel: Callable[..., Any] | None = None,
    sequence: bool = False,
    masks: Masks = False,
    sparse: bool = False,
    extension: str | None = None,
    batch: BatchRule | None = None,
    complex_kernel: Callable[..., Any] | None = None,
    keeps_integers: bool = False,
    writes_into_first: bool = False,
    axes_of: AxesOf | None = "input",
    misfit: Misfit | None = None,
    bounds: Bounds | None = None,
    **rules: RuleSpec,
) -> Callable[[F], F]:
    """Declare an op linear in its differentiable inputs: `linear(x=transpose(lambda xp, g, x_spec: ...))`.

    With `sequence=True` the first argument is a sequence of arrays, and its rule returns as many cotangents.
    With `masks=True` it leaves elements out, as for elementwise ops. With `writes_into_first=True` it writes into a
    copy of its first input, whose dtype stays.
    With `sparse=True` a rule may return :class:`~tape_core.IndexedSlices`. `extension` names the extension of the
    standard that has the op: `"linalg"` or `"fft"`.
    """
    return _declare("linear", **locals())  # the options, and the rules by that name


def op(
    *,
    samples: Samples | None = None,
    kernel: Callable[..., Any] | None = None,
    sequence: bool = False,
    reason: str | None = None,
    extension: str | None = None,
    result: Callable[..., Any] | None = None,
    materialize: bool = True,
    common: Callable[..., Any] | None = None,
    residual_kernel: Callable[..., Any] | None = None,
    batch: BatchRule | None = None,
    multilinear: bool = False,
    sparsity: SparsityRule | None = None,
    complex_kernel: Callable[..., Any] | None = None,
    keeps_integers: bool = False,
    writes_into_first: bool = False,
    keeping: Callable[..., Any] | None = None,
    axes_of: AxesOf | None = "input",
    misfit: Misfit | None = None,
    bounds: Bounds | None = None,
    **rules: RuleSpec,
) -> Callable[[F], F]:
    """Declare any other op: `op(x=vjp(lambda xp, g, out, axis: ...))`; the arguments are those of the other two.

    `result` makes what users get of several results, such as a named tuple. The rule of an op of several results gets a
    tuple of cotangents; for results that nothing used they are zeros, or with `materialize=False` None.

    `common`, a function of `xp`, `g` and what it names, computes what several rules need; they name it `common`, and it
    runs once for all of them. `residual_kernel` is a kernel that runs where an input is watched: it gives the result,
    and a tuple of arrays that rules get as `residuals`. That is empty where the backward pass is itself recorded.
    `keeping` is the former name of `residual_kernel`, deprecated.

    A parameter `axis` or `axes` counts the axes of the first input, or of each array of a sequence. With
    `axes_of="result"` it counts those of the result, which has as many dimensions more; with `axes_of="each"` those of
    each input, from the end; with `axes_of="line"` those of an input that has one where none is given; with None it is
    not looked at. Kernels get only axes that are there.

    `misfit` says what is wrong with shapes, `misfit(x=(2, 3), shape=(4,), **others)`, or returns None: with it, users
    get a ValueError for shapes, whatever the library raises.

    `bounds`, a function of `xp` and the op's own arguments, raises IndexError for indices out of bounds; it is called
    on backends whose library does not look at them.

    A `multilinear` op is linear in each of its differentiable inputs: forward mode calls it once for each tangent.

    `sparsity` is for an op of which :func:`~tape_core.sparse_jacobian` would find too many entries, since neither its
    batch rule nor what it is made of tells them apart: a function of an `IndexSets` for each input that gives that of
    the result (`tape_core.sparsity`).
    """
    options = locals()  # the options, and the rules by that name
    if options.pop("keeping") is not None:
        warn_user("op: the option 'keeping' is called 'residual_kernel' now", DeprecationWarning)
        options["residual_kernel"] = residual_kernel or keeping
    return _declare("op", **options)
