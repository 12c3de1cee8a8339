"""Derivative rules: how they are spelled, checked, and compiled once, when an op is declared.

A rule is a plain function on arrays. Its first parameter is the namespace it computes with (`xp`); `vjp` and
`transpose` rules take the cotangent `g` next. The other parameters are named after what the rule needs, and
what it names is kept until the backward pass:

====================  =========================================================
`x1`                  that input of the op
`out`                 the op's result
`x1_spec`             shape and dtype of that input (a :class:`Spec`): keeps nothing
`x1_watched`          whether its cotangent may be wanted; of an input that is a sequence: for each array
`axis`, `keepdims`    a parameter of the op
`common`              what `op(common=...)` computes for several rules
`residuals`           what the kernel of `op(residual_kernel=...)` left for them
====================  =========================================================

A rule does not conjugate: it maps `g` by the plain transpose of the derivative, as JAX's do. A sweep conjugates
complex cotangents once where it begins and once where it ends, which gives the gradient of TensorFlow and PyTorch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final, Literal, NamedTuple

from tape_core.base.user_code import warn_user
from tape_core.engine.record import (
    SPECS,
    array_at,
    kwargs_at,
    out_at,
    out_slots_at,
    params_at,
    residuals_at,
    slot_at,
    slots_at,
)
from tape_core.engine.tensor import SCALARS
from tape_core.typing import Array, Cotangent, Namespace


class Spec(NamedTuple):
    """Shape and dtype of an input, in the terms of the namespace the rule computes with. Its device is that of `g`."""

    shape: tuple[int, ...]
    dtype: Any


class Marker:
    """A word in place of a rule: NONDIFF or TODO."""

    def __init__(self, name: str, doc: str) -> None:
        self.name = name
        self.__doc__ = doc

    def __repr__(self) -> str:
        return self.name


NONDIFF: Final = Marker("NONDIFF", "The derivative is zero, or there is none, on purpose: nothing flows through.")
TODO: Final = Marker("TODO", "A derivative exists and nobody wrote it: an error that names the op, never a None.")


class vjp:
    """A rule that maps the cotangent of the output to that of the input: `vjp(lambda xp, g, out: ...)`.

    For an input that is a sequence of arrays the rule returns a sequence of cotangents; for an op with several
    outputs `g` is a tuple of cotangents.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn


class transpose(vjp):
    """The transpose of a linear op, `transpose(lambda xp, g, x_spec, axis: ...)`: it cannot name `x` or `out`."""


class fused(vjp):
    """A rule for one backend that computes with its library's own functions: `fused(lambda xp, g, out: ...)`.

    It is a `vjp` that gets raw arrays always. Where a sweep is recorded, the op's own rule runs in its place, and so a
    record keeps what either names.

    Args:
        fn: the rule.
        common: a function of `xp`, `g` and what it names, for what several of these rules need; they name it `common`.
    """

    def __init__(self, fn: Callable[..., Any], *, common: Callable[..., Any] | None = None) -> None:
        super().__init__(fn)
        self.common = common


RuleSpec = Callable[..., Any] | vjp | int | float | Marker
"""A rule as it is declared: a partial derivative (elementwise ops), `vjp`, `transpose`, a number, or a marker."""

Form = Literal["elementwise", "linear", "op"]
"""The decorator of an op; it decides what the rules may be."""

PARTIAL: Final = 0  # fn(xp, *arguments): d out / d x
VJP: Final = 1  # fn(xp, g, *arguments)
ONE: Final = 2  # the cotangent itself
CONSTANT: Final = 3  # the cotangent times a number
UNWRITTEN: Final = 4  # TODO


class Rule:
    """A checked rule of one op for one of its inputs."""

    __slots__ = (
        "arguments",
        "fn",
        "input",
        "k",
        "keeps",
        "keeps_out",
        "keeps_residuals",
        "kind",
        "lifted",
        "recorded",
        "shared",
        "where",
    )

    def __init__(
        self, op: str, parameters: Parameters, k: int, rules: Mapping[str, RuleSpec], own: Mapping[str, RuleSpec] | None
    ) -> None:
        self.k = k
        spec = rules[parameters.inputs[k]]
        self.input = parameters.inputs[k]
        self.keeps: frozenset[int] = frozenset()
        self.keeps_out = False
        self.keeps_residuals = False
        self.shared: Shared | None = None
        # What runs in place of a fused rule where the sweep is recorded.
        self.recorded: Rule | None = None
        # Python expressions for what the rule is given, after `xp` (and `g`): raw arrays, or lifted ones.
        self.arguments: tuple[str, ...] = ()
        self.lifted: tuple[str, ...] = ()
        self.fn: Any = spec
        self.where = f"the rule of {op!r} for {self.input!r}"
        if spec is TODO:
            self.kind = UNWRITTEN
            return
        if isinstance(spec, int | float):
            self.kind = ONE if spec == 1 else CONSTANT
            return
        takes_g = isinstance(spec, vjp)
        fn: Any = spec.fn if isinstance(spec, vjp) else spec
        if not callable(fn):
            raise TypeError(f"{self.where} must be a function, vjp(...), transpose(...), a number, NONDIFF or TODO")
        self.fn = fn
        code = getattr(fn, "__code__", None)
        if code is not None:
            self.where += f" ({code.co_filename}:{code.co_firstlineno})"
        names = parameter_names(fn)
        expected = ["xp", "g"] if takes_g else ["xp"]
        if names[: len(expected)] != expected:
            raise TypeError(f"{self.where} must take {', '.join(expected)} first; it takes {', '.join(names)}")
        names = parameters.replace_kept(names[len(expected) :], self.where)
        flowing = [n for n in parameters.inputs if rules[n] is not NONDIFF]
        if isinstance(spec, transpose) and (kept := [n for n in names if n in flowing or n == "out"]):
            raise TypeError(f"{self.where} is a transpose and cannot depend on {', '.join(kept)}; use vjp(...)")
        common = spec.common if isinstance(spec, fused) else parameters.common
        if "common" in names and common is not None:
            if not takes_g:
                raise TypeError(f"{self.where} asks for 'common' and must be vjp(...)")
            before = parameters.replace_kept(parameter_names(common)[2:], self.where)
            self.shared = Shared(common, len(before), fn, names.index("common"))
            # A rule that runs alone computes `common` itself; a plan whose rules share it computes it once. So the
            # arguments of `common` come first, and then those of the rule.
            self.fn = self.shared.apart
            names = [*before, *(name for name in names if name != "common")]
        self.arguments = tuple(parameters.expression(name, self.where) for name in names)
        self.lifted = tuple(parameters.expression(name, self.where, lifted=True) for name in names)
        self.keeps = frozenset(parameters.inputs.index(n) for n in names if n in parameters.inputs)
        self.keeps_out = "out" in names
        self.keeps_residuals = (
            "residuals" in names and parameters.leaves_residuals and "residuals" not in parameters.own
        )
        self.kind = VJP if takes_g else PARTIAL
        if isinstance(spec, fused):
            if own is None or own[self.input] is NONDIFF:
                raise TypeError(f"{self.where} is fused: it must stand in for a rule of the op, on one backend")
            self.recorded = Rule(op, parameters, k, own, None)
            # Whether the sweep will be recorded is not known when the record is made: it keeps what either rule names.
            self.keeps |= self.recorded.keeps
            self.keeps_out |= self.recorded.keeps_out
            self.keeps_residuals |= self.recorded.keeps_residuals

    @property
    def names_arrays(self) -> bool:
        """Whether the rule computes with arrays besides the cotangent."""
        return bool(self.keeps) or self.keeps_out or self.keeps_residuals


class Shared:
    """A rule that names `common`: `apart` is the rule with it computed on the spot, from the first `n` arguments."""

    __slots__ = ("common", "n", "place", "rule")

    def __init__(self, common: Callable[..., Any], n: int, rule: Callable[..., Any], place: int) -> None:
        self.common = common
        self.n = n
        self.rule = rule
        self.place = place

    def apart(self, xp: Namespace, g: Cotangent, *arguments: Any) -> Any:
        """Return the cotangent of the input, with `common` computed for it alone."""
        return self.once({}, xp, g, arguments)

    def once(self, commons: dict[Any, Any], xp: Namespace, g: Cotangent, arguments: tuple[Any, ...]) -> Any:
        """Return the cotangent of the input; what several rules share is looked up in `commons`, or put there."""
        if self.common not in commons:
            commons[self.common] = self.common(xp, g, *arguments[: self.n])
        own = list(arguments[self.n :])
        own.insert(self.place, commons[self.common])
        return self.rule(xp, g, *own)


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters; for plain functions without `inspect`, which is slow."""
    fn = getattr(fn, "__wrapped__", fn)
    if not isinstance(fn, FunctionType):
        return list(inspect.signature(fn).parameters)
    code = fn.__code__
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return list(inspect.signature(fn).parameters)
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


class Parameters:
    """The inputs and parameters of an op's signature, and how a record answers for each name."""

    def __init__(
        self,
        op: str,
        signature: inspect.Signature,
        inputs: Sequence[str],
        sequence: bool,
        common: Callable[..., Any] | None = None,
        leaves_residuals: bool = False,
    ) -> None:
        names = list(signature.parameters)
        self.common = common
        self.leaves_residuals = leaves_residuals  # whether rules may name `residuals`
        if unknown := [name for name in inputs if name not in names]:
            raise TypeError(f"op {op!r} has no input {unknown[0]!r}; its signature is {op}{signature}")
        if not inputs:
            raise TypeError(f"op {op!r} needs a rule, NONDIFF or TODO for each input of {op}{signature}")
        self.inputs = tuple(inputs)
        if names[: len(inputs)] != list(inputs):
            raise TypeError(f"op {op!r}: rules must name the first parameters of {op}{signature} in their order")
        self.sequence = sequence
        positional = [
            p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        self.positional_only = [
            p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_ONLY and p.name not in inputs
        ]
        self.defaults = {p.name: p.default for p in signature.parameters.values() if p.name not in inputs}
        self.own = {*self.inputs, *self.defaults}
        # A record has the positional parameters in a tuple of their own, without the inputs: places are counted there.
        self.places = {name: positional.index(name) - len(inputs) for name in self.defaults if name in positional}

    def replace_kept(self, names: Sequence[str], where: str) -> list[str]:
        """Return names of a rule's parameters with `residuals` in place of `kept`, its former name, and warn of it.

        Rules get their arguments by position, so the function itself may keep the name. An op with an input or a
        parameter `kept` means that one.
        """
        if not self.leaves_residuals or "kept" not in names or "kept" in self.own:
            return list(names)
        warn_user(f"{where} asks for 'kept', which is called 'residuals' now", DeprecationWarning)
        return ["residuals" if name == "kept" else name for name in names]

    def expression(self, name: str, where: str, *, lifted: bool = False) -> str:
        """Return a Python expression over a record `rec` for a parameter `name` of a rule, for generated code.

        With `lifted` an array comes as a Tensor, made by a `Lift` of the name `lift`.
        """
        if name in self.inputs or name == "out":
            if name == "out":
                at, slots = out_at(len(self.inputs)), out_slots_at(len(self.inputs))
            else:
                at, slots = array_at(self.inputs.index(name)), slots_at(self.inputs.index(name))
            if not lifted:
                return f"rec[{at}]"
            if self.sequence and name != "out":
                return f"[*map(lift, rec[{at}], rec[{slots}])]"
            return f"lift(rec[{at}], rec[{slots}])"
        if name.endswith("_spec") and (base := name.removesuffix("_spec")) in self.inputs:
            spec = f"rec[{SPECS}][{self.inputs.index(base)}]"
            return f"[Spec(*spec) for spec in {spec}]" if self.sequence else f"new_tuple(Spec, {spec})"
        if name.endswith("_watched") and (base := name.removesuffix("_watched")) in self.inputs:
            slot = f"rec[{slot_at(self.inputs.index(base))}]"
            return f"[i is not None for i in {slot}]" if self.sequence else f"({slot} is not None)"
        if name in self.defaults:
            # The call may have given the parameter by position, by name, or not at all.
            at, place = params_at(len(self.inputs)), self.places.get(name)
            by_name = f"rec[{kwargs_at(len(self.inputs))}].get({name!r}, defaults[{name!r}])"
            return by_name if place is None else f"(rec[{at}][{place}] if len(rec[{at}]) > {place} else {by_name})"
        if name == "residuals" and self.leaves_residuals:
            at = residuals_at(len(self.inputs), bool(self.defaults))
            return f"lift(rec[{at}], ())" if lifted else f"rec[{at}]"  # constants: none, where a sweep is recorded
        known = [*self.inputs, "out", *(f"{i}_spec" for i in self.inputs), *self.defaults]
        raise TypeError(f"{where} asks for {name!r}; it can have {', '.join(known)}")


def compile_rules(
    op: str,
    form: Form,
    parameters: Parameters,
    rules: Mapping[str, RuleSpec],
    own: Mapping[str, RuleSpec] | None = None,
) -> dict[int, Rule]:
    """Check all rules of an op, and return those through which something flows, by the number of the input.

    Where a backend replaces rules, `own` are those of the op itself.
    """
    if unknown := [name for name in rules if name not in parameters.inputs]:
        raise TypeError(f"op {op!r} has no input {unknown[0]!r}; its inputs are {', '.join(parameters.inputs)}")
    for name, rule in rules.items():
        if form == "linear" and not (isinstance(rule, transpose | fused) or rule is NONDIFF):
            raise TypeError(f"linear: the rule of {op!r} for {name!r} must be transpose(...) or NONDIFF")
        if form == "op" and not isinstance(rule, vjp | Marker):
            raise TypeError(f"op: the rule of {op!r} for {name!r} must be vjp(...), NONDIFF or TODO")
    flowing = [k for k, name in enumerate(parameters.inputs) if rules[name] is not NONDIFF]
    return {k: Rule(op, parameters, k, rules, own) for k in flowing}


def spec_of(value: Array) -> tuple[Any, Any]:
    """Return the shape and dtype of a value, for a `Spec`; a Python scalar has dtype None."""
    return ((), None) if type(value) in SCALARS else (value.shape, value.dtype)
