"""What `help` and the reference say of each op besides its docstring: rules, shapes, dtypes, errors, and an example.

The rules are read from the source, all else is found by calling the op on its samples, on NumPy.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice
from types import ModuleType
from typing import Any

import reference
import rules
import tape_core as tc
from tape_core.engine.op import Op
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.extend import registry

HEAD = '''"""What the documentation of each op adds to its docstring. Written by `python docs/generate`.

docs/generate/facts.py reads the rules from the source, and finds shapes, dtypes, errors and an example by calls.
"""

from __future__ import annotations

import sys

FACTS: dict[str, str] = {
'''
TAIL = """}

if sys.version_info < (3, 13):  # docstrings are indented as in the source
    FACTS = {name: text.replace("\\n", "\\n    ") for name, text in FACTS.items()}
"""
WIDTH = 100


def source() -> str:
    """The module `tape_core/engine/facts.py`, with a line for each public op."""
    facts = {op.name: "\n\n".join(["", *_facts(name, op)]) for name, op in _public()}
    lines = [f"    {name!r}: {text!r},\n" for name, text in facts.items()]
    return "".join([HEAD, *lines, TAIL])


def _public() -> list[tuple[str, Op]]:
    """Each op that users can call, with its first name."""
    ops = {id(op.function): op for op in registry.values() if op.function.__module__.startswith("tape_core.ops.")}
    found = {id(entry.value): entry.names[0] for entry in reference.entries()}
    return [(found[key], op) for key, op in ops.items() if key in found]


def _facts(name: str, op: Op) -> Iterator[str]:
    """The paragraphs."""
    samples = _samples(op)
    called = [(sample, result) for sample in samples if (result := _call(op, sample)) is not None]
    paragraph = [*_shapes(op, called), *_dtypes(op, called), *_errors(op)]
    if paragraph:
        yield textwrap.fill(" ".join(paragraph), WIDTH, break_long_words=False, break_on_hyphens=False)
    for rule in _rules(op):
        yield textwrap.fill(rule, WIDTH, break_long_words=False, break_on_hyphens=False)
    if ">>>" not in _own(op):
        yield from islice(filter(None, (_example(name, op, sample) for sample, _ in called)), 1)


def _own(op: Op) -> str:
    """The docstring as it is written."""
    module = import_module(op.function.__module__)
    definition = rules._definitions(module)[op.name]
    assert isinstance(definition, ast.FunctionDef)
    return ast.get_docstring(definition) or ""


def _samples(op: Op) -> list[Sample]:
    if op.samples is None:
        return []
    return [sample for sample in islice(op.samples(Draw()), 12) if not isinstance(sample, Refused)]


def _call(op: Op, sample: Sample) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):  # integers that are cast samples divide by zero
            return op.function(*sample.args, **sample.kwargs)
    except Exception:  # noqa: BLE001 - a sample of another dtype may be refused in any way
        return None


def _arrays(sample: Sample) -> list[Any]:
    return [
        array
        for value in sample.args
        for array in (value if isinstance(value, list | tuple) else [value])
        if isinstance(array, tc.Tensor)
    ]


def _shape(value: Any) -> str:
    """An argument in a sentence on shapes."""
    if isinstance(value, list | tuple) and any([isinstance(part, tc.Tensor) for part in value]):
        return f"[{', '.join(map(_shape, value))}]"
    return str(tuple(value.shape)) if isinstance(value, tc.Tensor) else repr(value)


def _spelled(sample: Sample) -> str:
    named = [f"{key}={_shape(value)}" for key, value in sample.kwargs.items()]
    return ", ".join([*map(_shape, sample.args), *named])


def _first(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def _shapes(op: Op, called: Sequence[tuple[Sample, Any]]) -> Iterator[str]:
    if op.elementwise and not op.has_parameters:
        yield f"Shape: that of `{op.inputs[0]}`." if len(op.inputs) == 1 else "Shapes: the inputs broadcast."
        return
    found = {}
    for sample, result in called:
        spelled = _spelled(sample)
        shapes = ", ".join(_shape(part) for part in _first(result) if isinstance(part, tc.Tensor))
        if len(spelled) + len(shapes) < WIDTH and shapes and "Tensor(" not in spelled and "object at" not in spelled:
            found.setdefault(shapes, f"`{spelled}` gives `{shapes}`")
    if found:
        yield f"Shapes: {', '.join(islice(found.values(), 2))}."


def _dtypes(op: Op, called: Sequence[tuple[Sample, Any]]) -> Iterator[str]:
    flowing = [sample for sample, _ in called if _arrays(sample) and _is_float(_arrays(sample)[0])]
    if not flowing:
        return
    sample, same, changed, refused = flowing[0], [], [], []
    for dtype in ("float32", "int64", "complex64"):
        result = _call(op, _cast(sample, dtype))
        dtypes = {str(part.dtype) for part in _first(result) if isinstance(part, tc.Tensor)}
        if result is None:
            refused.append(dtype)
        elif dtypes == {dtype}:
            same.append(dtype)
        elif dtypes:
            changed.append(f"{dtype} gives {' and '.join(sorted(dtypes))}")
    parts = []
    if same:
        parts.append(f"{_listed(same)} {'stay' if len(same) > 1 else 'stays'}")
    parts += changed
    if refused:
        parts.append(f"{_listed(refused)} {'are' if len(refused) > 1 else 'is'} refused")
    yield f"Dtypes: {', '.join(parts)}."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _is_float(array: Any) -> bool:
    return str(array.dtype).startswith("float")


def _cast(sample: Sample, dtype: str) -> Sample:
    def cast(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(cast, value)) if type(value) in (list, tuple) else value
        return tc.astype(value, dtype) if isinstance(value, tc.Tensor) and _is_float(value) else value

    return Sample(*map(cast, sample.args), **sample.kwargs)


def _errors(op: Op) -> Iterator[str]:
    """A call that is refused for its shapes or parameters."""
    for sample in op.samples(Draw()) if op.samples is not None else ():
        spelled = _spelled(sample) if isinstance(sample, Refused) else ""
        if spelled and len(spelled) < WIDTH and "Tensor(" not in spelled and "object at" not in spelled:
            yield f"Raises {sample.error.__name__} for `{spelled}`, among others."  # type: ignore[attr-defined]
            return


def _rules(op: Op) -> Iterator[str]:
    """The derivative with respect to each input: the partial one of an elementwise op, or the rule of its cotangent."""
    if not op.differentiable:
        yield f"Nothing flows back through it{f': {op.reason}' if op.reason else ''}."
        return
    module = import_module(op.function.__module__)
    declared = rules._declarations(module)[op.name]
    if "**" in declared:
        yield f"Derivative by each input: `{rules._rule(declared['**'], module, {})}`."
        return
    yield " ".join(_rule(op, name, declared[name], module) for name in op.inputs)


def _rule(op: Op, name: str, declared: ast.expr, module: ModuleType) -> str:
    """The sentence of one input."""
    rule = rules._rule(declared, module, {})
    if rule == "NONDIFF":
        return f"No derivative by `{name}`."
    if rule == "TODO":
        return f"There is no derivative by `{name}`, and to ask for it is an error."
    definition = rules._definitions(module).get(rule)
    of_cotangent = rule.startswith("g -> ")
    rule = rule.removeprefix("g -> ")
    if isinstance(definition, ast.FunctionDef):
        of_cotangent = "g" in [argument.arg for argument in definition.args.args[:2]]
        returned = definition.body[-1]
        if len(definition.body) > 1 or not isinstance(returned, ast.Return) or returned.value is None:
            where = module.__name__.removeprefix("tape_core.").replace(".", "/")
            return f"Derivative by `{name}`: `{rule}` in `{where}.py`."
        rule = rules._source(returned.value, module)
    return f"Derivative by `{name}`{', of a cotangent g' if of_cotangent else ''}: `{rule}`."


def _literal(value: Any, op: Op) -> str:
    """An argument as code; arrays with two digits."""
    if isinstance(value, tc.Tensor):
        if op.elementwise and value.ndim:
            value = tc.reshape(value, (-1,))[:2]
        numbers = value.tolist()
        text = re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda match: repr(round(float(match[0]), 2)), repr(numbers))
        return f"tc.asarray({text})"
    if isinstance(value, list | tuple) and any([isinstance(part, tc.Tensor) for part in value]):
        return f"[{', '.join(_literal(part, op) for part in value)}]"
    return repr(value)


def _example(name: str, op: Op, sample: Sample) -> str | None:
    """A call on small arrays with its result, rounded: last digits differ between processors."""
    arrays = _arrays(sample)
    if not all([_is_float(array) or "int" in str(array.dtype) for array in arrays]):
        return None
    if not arrays or any([array.size == 0 or (array.size > 9 and not op.elementwise) for array in arrays]):
        return None
    if sample.observed.__qualname__ != Sample().observed.__qualname__:
        return None  # the sign or the like is the library's choice
    named = [f"{key}={_literal(value, op)}" for key, value in sample.kwargs.items()]
    call = (
        f"{name.replace('tape_core', 'tc', 1)}({', '.join([*(_literal(value, op) for value in sample.args), *named])})"
    )
    try:
        result = eval(call, {"tc": tc})
        if not isinstance(result, tc.Tensor) or result.size > 9 or result.ndim > 2 or "complex" in str(result.dtype):
            return None
        if "float" in str(result.dtype):
            call, result = f"{call}.round(3)", result.round(3)
            if not tc.all(tc.isfinite(result)).item() or not tc.any(result != 0).item():
                return None
    except Exception:  # noqa: BLE001 - not every sample makes a call that can be written down
        return None
    shown = repr(result)
    if len(call) > WIDTH or re.search(r"-0\.(?!\d)", shown) or "object at" in call:
        return None
    return f">>> import tape_core as tc\n>>> {call}\n{shown}"
