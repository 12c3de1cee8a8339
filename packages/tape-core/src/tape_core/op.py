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

Each input has a rule, `NONDIFF` or `TODO`. What a rule's parameters mean is in `tape_core.rules`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial, update_wrapper
from typing import Any, NoReturn, TypeVar

from tape_core.backends.kernels import DEFAULT_KERNELS, EXTENSIONS
from tape_core.backends.protocol import Backend
from tape_core.hotpath import binary_call, constant_call, general_call, single_call, unary_call
from tape_core.plan import Plan
from tape_core.recording import LISTENERS
from tape_core.rules import NONDIFF, TODO, Form, Parameters, Rule, RuleSpec, compile_rules, fused, transpose, vjp
from tape_core.samples import Samples
from tape_core.tensor import Tensor, read

__all__ = ["NONDIFF", "TODO", "Op", "elementwise", "fused", "linear", "op", "registry", "transpose", "vjp"]

BatchRule = Callable[..., Any]
"""How an op does the work for all examples of a vmap, see `tape_core.batching`."""

BOUND: list[tuple[Op, Backend]] = []
"""Each binding there ever was, of every op."""

SparsityRule = Callable[..., Any]
"""Which elements of an op's result depend on which of its inputs, see `op`."""

F = TypeVar("F", bound=Callable[..., Any])


class Op:
    """What is known of one op. `registry[name]` finds it; `op.function` is what users call."""

    push: Callable[[Plan, tuple[Any, ...]], Any] | None = None
    """How tangents go through a record, where that does not follow from the rules; NotImplemented where it does."""

    def __init__(
        self,
        function: Callable[..., Any],
        rules: Mapping[str, RuleSpec],
        *,
        form: Form,
        sequence: bool = False,
        masks: bool = False,
        sparse: bool = False,
        kernel: Callable[..., Any] | None = None,
        samples: Samples | None = None,
        reason: str | None = None,
        extension: str | None = None,
        result: Callable[..., Any] | None = None,
        materialize: bool = True,
        common: Callable[..., Any] | None = None,
        keeping: Callable[..., Any] | None = None,
        batch: BatchRule | None = None,
        multilinear: bool = False,
        sparsity: SparsityRule | None = None,
    ) -> None:
        self.name = name = function.__name__
        self.signature = inspect.signature(function)
        self.form = form
        self.elementwise = form == "elementwise"
        self.masks = masks
        self.sparse = sparse
        self.kernel = kernel
        self.samples = samples
        self.reason = reason
        self.extension = extension
        self.result = result
        self.materialize = materialize
        self.sequence = sequence
        self.keeping = keeping
        self.batch = batch
        self.multilinear = multilinear
        self.sparsity = sparsity
        self.rules = dict(rules)
        self.parameters = Parameters(name, self.signature, list(rules), sequence, common, keeping is not None)
        self.inputs = self.parameters.inputs
        self.compiled = compile_rules(name, form, self.parameters, rules)
        self.has_parameters = bool(self.parameters.defaults)
        self.optional = any(self.signature.parameters[name].default is None for name in self.inputs)
        self.takes_dtype = "dtype" in self.parameters.defaults
        self.bindings: dict[Backend, tuple[Callable[..., Any], Plans]] = {}
        self.may_keep = True
        self.function = self._call_path()
        update_wrapper(self.function, function)
        self.function.op = self  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<op {self.spelled}>"

    @property
    def spelled(self) -> str:
        """How it is called, for messages: the signature without annotations."""
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in self.signature.parameters.values()]
        return f"{self.name}{inspect.Signature(plain)}"

    @property
    def differentiable(self) -> bool:
        """Whether anything flows back through the op."""
        return bool(self.compiled)

    def _call_path(self) -> Callable[..., Any]:
        plain = not (self.has_parameters or self.sequence or self.sparse or self.masks or self.result or self.keeping)
        if plain and (len(self.inputs) == 2 or (len(self.inputs) == 1 and (self.elementwise or not self.compiled))):
            self.may_keep = False  # the shortest paths ask for no such kernel
            if not self.compiled:
                return constant_call(self)
            return unary_call(self) if len(self.inputs) == 1 else binary_call(self)
        if len(self.inputs) == 1 and not (self.sequence or self.sparse or self.masks or self.optional or self.keeping):
            return single_call(self)
        return general_call(self)

    # -- what the hot path asks once per backend

    def bind(self, backend: Backend) -> tuple[Callable[..., Any], Plans]:
        """The kernel on `backend`, and the plans of its records by which inputs are watched."""
        kernel = getattr(backend.xp, self.name)
        if self.result is not None:
            kernel = partial(_as_tuple, kernel)  # of the library's own kind of named tuple
        replaced = backend.rules.get(self.name)
        rules = self.compiled if replaced is None else self.compiled_for(backend, replaced)
        keeping = getattr(backend.xp, f"{self.name}_keeping") if self.keeps_on(backend) else None
        return self.bound(backend, kernel, Plans(self, rules, keeping, backend))

    def bound(self, backend: Backend, kernel: Callable[..., Any], plans: Plans) -> tuple[Callable[..., Any], Plans]:
        """Note a binding, for the hot path and for debugging tapes."""
        BOUND.append((self, backend))
        self.bindings[backend] = found = kernel, plans
        for listener in LISTENERS:
            listener.listen(self, backend)
            found = self.bindings[backend]
        return found

    def keeps_on(self, backend: Backend) -> bool:
        """Whether a kernel leaves rules what it has found: the op's own, or one that the backend brings."""
        own = self.keeping is not None or (f"{self.name}_keeping" in backend.kernels and self.may_keep)
        return own and backend.keeps

    def compiled_for(self, backend: Backend, replaced: Mapping[str, RuleSpec]) -> dict[int, Rule]:
        """The rules on a backend that replaces some."""
        parameters = copy.copy(self.parameters)
        parameters.keeping = self.keeps_on(backend)
        return compile_rules(self.name, self.form, parameters, {**self.rules, **replaced}, self.rules)

    # -- what the hot path asks when operands are not plain Tensors of one backend

    def operands(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands as Tensors of one backend and Python scalars, at least one of them a Tensor.

        Raises:
            TypeError: for operands that are not arrays, and for two backends.
        """
        values = tuple(
            [
                v
                if type(v) is Tensor or (v is None and self.optional)
                else read(v, lambda k=k: f"{self.name}: {self._input_name(k)}")  # type: ignore[misc]
                for k, v in enumerate(values)
            ]
        )
        tensors = [v for v in values if isinstance(v, Tensor)]
        if not tensors:
            from tape_core.ops.creation import asarray

            first = next(k for k, v in enumerate(values) if v is not None)
            tensor = asarray(values[first])
            return (*values[:first], tensor, *values[first + 1 :])
        backend = max([tensor.backend for tensor in tensors], key=_height)
        if any([tensor.backend is not backend for tensor in tensors]):
            from tape_core.backends.batched import lifted

            for k, value in enumerate(values):
                if isinstance(value, Tensor) and value.backend.library is not backend.library:
                    raise TypeError(
                        f"{self.name}: {self._input_name(k)} is on backend {value.backend.name!r}, another operand on "
                        f"{backend.name!r}; convert one with tape_core.asarray(x, backend={backend.name!r})"
                    )
            values = tuple([lifted(v, backend) if isinstance(v, Tensor) else v for v in values])
        return values

    def _input_name(self, k: int) -> str:
        if self.sequence:
            return f"{self.inputs[0]}[{k}]"
        return self.inputs[min(k, len(self.inputs) - 1)]

    def normalise(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs given by keyword or left to their default, as positional arguments."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}; its signature is {self.spelled}") from None
        bound.apply_defaults()
        inputs = tuple(bound.arguments[name] for name in self.inputs)
        return (*inputs, *args[len(inputs) :]), {k: v for k, v in kwargs.items() if k not in self.inputs}

    def fail(self, error: Exception, values: tuple[Any, ...], args: Any = (), kwargs: Any = None) -> NoReturn:
        """Re-raise a kernel's error in the user's terms: the op, its inputs by name with shapes and dtypes."""
        try:
            self.signature.bind(*([values] if self.sequence else values), *args, **(kwargs or {}))
        except TypeError as mismatch:
            raise TypeError(f"{self.name}: {mismatch}; its signature is {self.spelled}") from None
        tensors = [v for v in values if isinstance(v, Tensor)]
        apart = len({v.device for v in tensors}) > 1
        given = ", ".join(
            f"{self._input_name(k)}: {v.dtype}{list(v.shape)}{f' on {v.device}' * apart}"
            if isinstance(v, Tensor)
            else f"{self._input_name(k)}: {v!r}"
            for k, v in enumerate(values)
        )
        extra = "".join(f", {v!r}" for v in args) + "".join(f", {k}={v!r}" for k, v in (kwargs or {}).items())
        known = tensors[0].backend.user_error(error)
        if known is None:
            error.add_note(f"in tape_core.{self.name}({given}{extra})")
            raise error
        kind, text = known
        raise kind(f"{self.name}({given}{extra}): {text}") from error


def _height(backend: Backend) -> int:
    return backend.height


def _as_tuple(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return tuple(kernel(*args, **kwargs))


class Plans(dict[int, "Plan | None"]):
    """The plans of an op on a backend, by the set of watched inputs as bits; made when first needed."""

    def __init__(self, op: Op, rules: dict[int, Rule], keeping: Callable[..., Any] | None, backend: Backend) -> None:
        self.op = op
        self.backend = backend
        self.rules = rules
        self.keeping = keeping
        """The kernel that runs where an input is watched, and leaves rules something."""

    def __missing__(self, watched: int) -> Plan | None:
        rules = [rule for k, rule in self.rules.items() if watched >> k & 1]
        plan = self[watched] = Plan(self.op, rules, self.backend) if rules else None
        return plan


class Registry(Mapping[str, Op]):
    """Every op by name. Registering checks everything first, then commits."""

    def __init__(self) -> None:
        self._ops: dict[str, Op] = {}

    def __getitem__(self, name: str) -> Op:
        return self._ops[name]

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
        if op.keeping is not None:
            DEFAULT_KERNELS[f"{op.name}_keeping"] = op.keeping
        if op.extension is not None:
            EXTENSIONS[op.name] = op.extension
        self._ops[op.name] = op

    def override(self, name: str, backend: Backend, **rules: RuleSpec) -> None:
        """Replace rules of an op on one backend; what is not named keeps the op's own rule.

        Raises:
            KeyError: there is no such op.
            TypeError: a rule does not fit the op.
        """
        op = self._ops[name]
        op.compiled_for(backend, {**backend.rules.get(name, {}), **rules})
        backend.rules.setdefault(name, {}).update(rules)
        op.bindings.pop(backend, None)
        op.bindings.pop(backend.traced, None)


registry = Registry()


def _declare(**options: Any) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        declared = Op(function, **options)
        registry.register(declared)
        return declared.function  # type: ignore[return-value]

    return decorate


def elementwise(
    *,
    samples: Samples | None = None,
    kernel: Callable[..., Any] | None = None,
    masks: bool = False,
    reason: str | None = None,
    batch: BatchRule | None = None,
    **rules: RuleSpec,
) -> Callable[[F], F]:
    """Declare an elementwise op: `elementwise(x1=lambda xp, x2: x2, x2=lambda xp, x1: x1)`.

    Args:
        samples: a generator function of :class:`~tape_core.samples.Sample`.
        kernel: for an op outside the standard, `kernel(xp, ...)` on raw arrays with the standard's functions.
        masks: the op leaves inputs out (`where`): a zero cotangent then stays zero, whatever the derivative.
        reason: for an op through which nothing flows, why.
        rules: per input, in order: the partial derivative as a function or number, a `vjp`, NONDIFF or TODO.
    """
    return _declare(
        form="elementwise", rules=rules, samples=samples, kernel=kernel, masks=masks, reason=reason, batch=batch
    )


def linear(
    *,
    samples: Samples | None = None,
    kernel: Callable[..., Any] | None = None,
    sequence: bool = False,
    sparse: bool = False,
    extension: str | None = None,
    batch: BatchRule | None = None,
    **rules: RuleSpec,
) -> Callable[[F], F]:
    """Declare an op linear in its differentiable inputs: `linear(x=transpose(lambda xp, g, x_spec: ...))`.

    With `sequence=True` the first argument is a sequence of arrays, and its rule returns as many cotangents.
    With `sparse=True` a rule may return :class:`~tape_core.IndexedSlices`. `extension` names the extension of the
    standard that has the op: `"linalg"` or `"fft"`.
    """
    return _declare(
        form="linear",
        rules=rules,
        samples=samples,
        kernel=kernel,
        sequence=sequence,
        sparse=sparse,
        extension=extension,
        batch=batch,
    )


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
    keeping: Callable[..., Any] | None = None,
    batch: BatchRule | None = None,
    multilinear: bool = False,
    sparsity: SparsityRule | None = None,
    **rules: RuleSpec,
) -> Callable[[F], F]:
    """Declare any other op: `op(x=vjp(lambda xp, g, out, axis: ...))`; the arguments are those of the other two.

    `result` makes what users get of several results, such as a named tuple. The rule of an op of several results gets a
    tuple of cotangents; for results that nothing used they are zeros, or with `materialize=False` None.

    `common`, a function of `xp`, `g` and what it names, computes what several rules need; they name it `common`, and it
    runs once for all of them. `keeping` is a kernel that runs where an input is watched: it gives the result, and a
    tuple of arrays that rules get as `kept`. That is empty where the backward pass is itself recorded.

    A `multilinear` op is linear in each of its differentiable inputs: forward mode calls it once for each tangent.

    `sparsity` is for an op of which :func:`~tape_core.sparse_jacobian` would find too many entries, since neither its
    batch rule nor what it is made of tells them apart: a function of an `IndexSets` for each input that gives that of
    the result (`tape_core.sparsity`).
    """
    return _declare(
        form="op",
        rules=rules,
        samples=samples,
        kernel=kernel,
        sequence=sequence,
        reason=reason,
        extension=extension,
        result=result,
        materialize=materialize,
        common=common,
        keeping=keeping,
        batch=batch,
        multilinear=multilinear,
        sparsity=sparsity,
    )
