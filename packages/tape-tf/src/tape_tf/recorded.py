"""Programs of ops as data: what a tf.function did for one signature, to be written to a file and run again.

A program names registered ops, and has JSON literals and arrays beside them: there is no code in it. It is a list of
calls `[op, arguments, keyword arguments, result]`. An argument is `["ref", number]` for an earlier value, or a literal
that :func:`encode` has tagged. Values are numbered: inputs first, then Variables, constants, and results. A call that
is a branch or a loop has a fifth part, which has programs in its turn: see :mod:`tape_tf.recorded_flows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tape_core as tc
from tape_compile.extend import Flow, Program, Ref
from tape_core.extend import registry

from tape_tf.recorded_flows import Unrecordable, made_flow, record_flow
from tape_tf.typing import Json

MAX_RANK = 32  # axes of a shape, as in descriptions of Keras
MAX_DEPTH = 32  # of branches and loops inside of each other
_PLAIN = (bool, int, str, type(None))
_SEQUENCES: dict[str, Callable[[Sequence[Any]], Any]] = {"tuple": tuple, "list": list}


def encode(value: Any, leaf: Callable[[Any], Json | None] = lambda _: None) -> Json:
    """Return a literal as JSON that :func:`decode` reads; `leaf` encodes what else there is, or returns None.

    Raises:
        Unrecordable: it is no literal.
    """
    if type(value) in _PLAIN:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else ["float", repr(value)]
    if type(value) is complex:
        return ["complex", repr(value.real), repr(value.imag)]
    if value is Ellipsis:
        return ["ellipsis"]
    if type(value) is slice:
        return ["slice", *[encode(part, leaf) for part in (value.start, value.stop, value.step)]]
    if type(value) in (tuple, list):
        return [type(value).__name__, *[encode(part, leaf) for part in value]]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: encode(part, leaf) for key, part in value.items()}
    found = leaf(value)
    if found is None:
        raise Unrecordable(f"{value!r} is no number, text, dtype, tensor, or tuple, list or dict of such")
    return found


def decode(value: Json, leaf: Callable[[str, list[Any]], Any] | None = None) -> Any:
    """Return what :func:`encode` was given; `leaf` decodes the tags that are not those of literals.

    Raises:
        ValueError: it is not what `encode` writes.
    """
    if isinstance(value, dict):
        return {key: decode(part, leaf) for key, part in value.items()}
    if not isinstance(value, list):
        return value
    if not value or not isinstance(value[0], str):
        raise ValueError(f"{value!r} has no tag")
    tag, *parts = value
    if tag in _SEQUENCES:
        return _SEQUENCES[tag]([decode(part, leaf) for part in parts])
    if tag == "slice" and len(parts) == 3:
        return slice(*[decode(part, leaf) for part in parts])
    if tag == "ellipsis" and not parts:
        return Ellipsis
    if tag == "float" and len(parts) == 1:
        return float(parts[0])
    if tag == "complex" and len(parts) == 2:
        return complex(float(parts[0]), float(parts[1]))
    if tag == "dtype" and len(parts) == 1:
        return dtype_named(parts[0])
    if leaf is None:
        raise ValueError(f"{value!r} is no literal")
    return leaf(tag, parts)


def dtype_named(name: object) -> tc.DType:
    """Return a dtype by its name.

    Raises:
        ValueError: there is no such dtype.
    """
    found = getattr(tc, name, None) if isinstance(name, str) else None
    if not isinstance(found, tc.DType):
        raise ValueError(f"there is no dtype {name!r}")
    return found


def record(program: Program, key: str, arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, Json]:
    """Return a program as JSON; its constants are added to `arrays`, under names that begin with `key`.

    Raises:
        Unrecordable: it calls something else than ops, or has a parameter that is no literal.
    """
    numbers = {k: place for place, k in enumerate(program.inputs)}
    backend = program.backend
    used = {k for instruction in program.instructions for k in instruction.inputs} | {*program.outputs}
    constants: list[Json] = []
    for k, value in program.constants.items():
        if k in used:
            name = f"{key}/{len(arrays)}"
            arrays[name] = np.array(backend.library.numpy(value) if backend is not None else value)
            constants.append(name)
            numbers[k] = len(numbers)

    def leaf(value: Any) -> Json | None:
        if isinstance(value, Ref):
            return ["ref", numbers[value.id]]
        try:
            return None if backend is None else ["dtype", backend.dtype(value).name]
        except TypeError:
            return None

    calls: list[Json] = []
    for instruction in program.instructions:
        where = "" if instruction.place is None else f" (line {instruction.place.line} of {instruction.place.file})"
        flow = instruction.fn if isinstance(instruction.fn, Flow) else None
        if flow is None and (instruction.name not in registry or instruction.effect):
            raise Unrecordable(
                f"{instruction.name}{where} is no op: random draws and calls of Python are in no file; compute that "
                "outside of the function, and pass it as an argument"
            )
        try:
            args = [encode(arg, leaf) for arg in instruction.args]
            kwargs = {name: encode(arg, leaf) for name, arg in instruction.kwargs.items()}
        except Unrecordable as error:
            raise Unrecordable(f"{instruction.name}{where}: {error}") from None
        for k in instruction.outputs:
            numbers[k] = len(numbers)
        calls.append([instruction.name, args, kwargs, len(instruction.outputs)])
        if flow is not None:
            try:
                calls[-1].append(record_flow(flow, lambda part: record(part, key, arrays)))
            except Unrecordable as error:
                raise Unrecordable(f"{instruction.name}{where}: {error}") from None
    return {
        "inputs": len(program.inputs),
        "constants": constants,
        "calls": calls,
        "outputs": [numbers[k] for k in program.outputs],
    }


class Replay:
    """A program from a file: a function of Tensors that calls its ops.

    Raises:
        ValueError: the program is not what :func:`record` writes: it names an unknown op or array, calls an op with
            other arguments than it has, or refers to values that come after it.
    """

    def __init__(self, recorded: Mapping[str, Any], arrays: Mapping[str, Any], depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"branches and loops inside of each other, more than {MAX_DEPTH} deep")
        self.inputs = recorded["inputs"]
        self._constants = [arrays[name] for name in recorded["constants"]]
        self._calls: list[tuple[Any, list[Any], dict[str, Any], bool]] = []
        if type(self.inputs) is not int or self.inputs < 0:
            raise ValueError(f"{self.inputs!r} inputs")
        known = self.inputs + len(self._constants)
        for name, args, kwargs, results, *flow in recorded["calls"]:
            if flow:
                function: Any = made_flow(name, args, results, flow, lambda part: Replay(part, arrays, depth + 1))
                if kwargs:
                    raise ValueError(f"{name} with keyword arguments")
            elif not isinstance(name, str) or name not in registry:
                raise ValueError(f"there is no op {name!r} here")
            else:
                op = registry[name]
                function = op.function
                try:
                    op.signature.bind(*args, **kwargs)
                except TypeError as error:
                    raise ValueError(f"{op.spelled}: {error}") from None
            for number in [*_references(args), *_references(kwargs)]:
                _check_number(number, known)
            decode(["list", *args], _no_value)
            decode(kwargs, _no_value)
            if type(results) is not int or not 0 < results <= (results if flow else MAX_RANK):
                raise ValueError(f"{name} with {results!r} results")
            self._calls.append((function, args, kwargs, results > 1))
            known += results
        self.outputs: list[int] = recorded["outputs"]
        for number in self.outputs:
            _check_number(number, known)

    def __call__(self, values: Sequence[tc.Tensor], like: tc.Tensor | None = None) -> list[tc.Tensor]:
        """Return the outputs for values of the inputs; constants go beside them, or beside another Tensor."""
        like = next(iter(values), like)
        place: dict[str, Any] = {} if like is None else {"backend": like.backend.library.name, "device": like.device}
        values = [*values, *[tc.asarray(array, **place) for array in self._constants]]

        def leaf(_: str, parts: list[Any]) -> Any:
            return values[parts[0]]

        for function, args, kwargs, several in self._calls:
            found = function(*[decode(arg, leaf) for arg in args], **decode(kwargs, leaf))
            values.extend(_flat(found) if several or isinstance(found, tuple) else [found])
        return [values[number] for number in self.outputs]


def _flat(found: Any) -> Iterator[Any]:
    if isinstance(found, tuple | list):
        for part in found:
            yield from _flat(part)
    else:
        yield found


def _references(value: Json) -> Iterator[Any]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _references(part)
    elif isinstance(value, list):
        if value[:1] == ["ref"]:
            yield value[1] if len(value) == 2 else None
        else:
            for part in value:
                yield from _references(part)


def _no_value(tag: str, parts: list[Any]) -> None:
    if tag != "ref":
        raise ValueError(f"there is no kind of value {tag!r}")


def _check_number(number: object, known: int) -> None:
    if type(number) is not int or not 0 <= number < known:
        raise ValueError(f"a reference to value {number!r}, of {known} that are known there")
