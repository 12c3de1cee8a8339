"""A `tf.Module` as data: the tree of its attributes, and a program of ops for each signature of its functions.

Each is compared with the function before anything is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.support import pytree

from tape_tf import nest
from tape_tf.conversion import unwrap
from tape_tf.dtypes import native_dtype
from tape_tf.module import Module
from tape_tf.ops.function import ConcreteFunction, Function
from tape_tf.recorded import Replay, encode, record
from tape_tf.recorded_flows import Unrecordable
from tape_tf.recorded_gradients import check_gradients
from tape_tf.shapes import TensorSpec
from tape_tf.tensor import wrap_tensor
from tape_tf.typing import Json
from tape_tf.variable import Variable

SERVING = "serving_default"
_TENSOR = 1  # how compiled code marks a result that is a Tensor
_SIZES = 3, 5  # lengths that stand for a None of a signature: a program that is the same for both holds for any


class _Writer:
    """The nodes of a tree, numbered; each object is one node, also where it is in two places."""

    def __init__(self) -> None:
        self.nodes: list[Json] = []
        self.arrays: dict[str, Any] = {}
        self.variables: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # so that ids stay their own
        self.functions: list[tuple[int, Function]] = []
        self.tracked: list[Variable] = []

    def add(self, value: object) -> int | None:
        """Return the number of the node of an object; None for what is not tracked."""
        key = id(value)
        if isinstance(value, Function):
            key = id(value._compiled)  # each access of a method gives another object, of the same traces
            self._alive.append(value._compiled)
        if key in self._numbers:
            return self._numbers[key]
        if not isinstance(value, Variable | Module | Function | list | tuple | dict):
            return None
        number = self._numbers[key] = len(self.nodes)
        self._alive.append(value)
        node: dict[str, Json] = {}
        self.nodes.append(node)
        if isinstance(value, Variable):
            name = f"variable/{number}"
            self.arrays[name] = value.native.value
            self.variables[id(value.native)] = number
            self.tracked.append(value)
            node.update(kind="variable", array=name, name=value.native.name, trainable=value.trainable)
        elif isinstance(value, Function):
            node["kind"] = "function"
            self.functions.append((number, value))
        elif isinstance(value, list | tuple):
            parts = [self.add(part) for part in value]
            # As TensorFlow does, a list with something else in it is no part of the tree.
            node.update(kind="list", parts=[] if None in parts else parts)
        else:
            node.update(kind="dict" if isinstance(value, dict) else "module", parts={})
            for name, part in _attributes(value):
                if (place := self.add(part)) is not None:
                    node["parts"][name] = place
        return number


@contextmanager
def _unchanged(variables: Sequence[Variable]) -> Iterator[None]:
    """A context after which Variables have the values that they had: in it functions run on samples."""
    before = [variable.native.value for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.native.assign(value)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from [(name, part) for name, part in value.items() if isinstance(name, str)]
        return
    yield from vars(value).items()
    for name in dir(type(value)):
        if isinstance(inspect.getattr_static(type(value), name, None), Function):
            yield name, getattr(value, name)


def describe_object(obj: Module, signatures: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the description of a module and its arrays by name.

    Raises:
        ValueError: a function cannot be recorded.
    """
    writer = _Writer()
    writer.add(obj)
    named = _named_signatures(obj, signatures)
    wanted: dict[str, tuple[int, Any]] = {}
    extra: dict[int, list[Any]] = {}
    for name, concrete in named.items():
        number = writer.add(concrete.function)
        assert number is not None
        extra.setdefault(number, []).append(concrete.structured_input_signature)
        wanted[name] = number, concrete.structured_input_signature
    specs: dict[int, list[Any]] = {}
    for number, function in writer.functions:
        found = list(extra.get(number, []))
        if function.input_signature is not None:
            found.append((function.input_signature, {}))
        specs[number] = []
        for signature in [*found, *function.seen]:
            if repr(signature) not in map(repr, specs[number]):  # 1 == True == 1.0
                specs[number].append(signature)
        node = writer.nodes[number]
        node["name"] = getattr(function, "__name__", "function")
        node["parameters"] = _parameters(function)
        with _unchanged(writer.tracked):
            node["programs"] = [
                _program(function, signature, f"constant/{number}/{place}", writer)
                for place, signature in enumerate(specs[number])
            ]
    described = {
        name: [number, [*map(repr, specs[number])].index(repr(signature))]
        for name, (number, signature) in wanted.items()
    }
    return {"nodes": writer.nodes, "signatures": described}, writer.arrays


def _named_signatures(obj: Module, signatures: Any) -> dict[str, ConcreteFunction]:
    if signatures is None:
        own = [part for _, part in _attributes(obj) if isinstance(part, Function) and part.input_signature is not None]
        signatures = {SERVING: own[0]} if len(own) == 1 else {}
    if not isinstance(signatures, Mapping):
        signatures = {SERVING: signatures}
    found = {}
    for name, function in signatures.items():
        if isinstance(function, Function) and function.input_signature is not None:
            function = function.get_concrete_function()
        elif isinstance(function, Function) and len(function.seen) == 1:
            args, kwargs = function.seen[0]
            function = function.get_concrete_function(*args, **kwargs)
        if not isinstance(function, ConcreteFunction):
            raise ValueError(
                f"saved_model.save: the signature {name!r} must be a tf.function with an input_signature or one trace, "
                f"or a concrete function, got {function!r}"
            )
        found[str(name)] = function
    return found


def _parameters(function: Function) -> list[str]:
    signature = function._signature
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [] if signature is None else [p.name for p in signature.parameters.values() if p.kind in kinds]


def _encode_spec(value: Any) -> Json | None:
    if isinstance(value, TensorSpec):
        return ["tensor", list(value.shape), value.dtype.name, value.name]
    return None


def _program(function: Function, signature: Any, key: str, writer: _Writer) -> Json:
    """Return the program of a function for a signature."""
    label = f"saved_model.save: {getattr(function, '__name__', 'the function')}"
    args, kwargs = signature
    if kwargs:
        raise ValueError(f"{label} has keyword-only arguments, which are not recorded: make them positional")
    flexible = any(isinstance(s, TensorSpec) and None in s.shape for s in nest.flatten(args))
    found, arrays = [], []
    try:
        for size in _SIZES if flexible else _SIZES[:1]:
            made: dict[str, Any] = {}
            found.append(_trace(function, args, size, key, made, writer.variables, label))
            arrays.append(made)
        inputs = encode(tuple(args), _encode_spec)
    except Unrecordable as error:
        raise ValueError(f"{label} cannot be saved: {error}") from None
    same = arrays[0].keys() == arrays[-1].keys() and all(
        arrays[0][name].tobytes() == arrays[-1][name].tobytes() for name in arrays[0]
    )
    if found[0] != found[-1] or not same:
        raise ValueError(
            f"{label} computes in another way for each length where its signature {args} has None, as with tf.shape(x) "
            "or a reshape to a length: give the whole shape in the signature (or write -1 in the reshape)"
        )
    writer.arrays |= arrays[0]
    return {"signature": inputs, **found[0]}


def _sample(spec: Any, size: int, random: np.random.Generator) -> Any:
    if not isinstance(spec, TensorSpec):
        return spec
    if spec.shape.rank is None:
        raise Unrecordable(f"{spec} has no rank")
    shape = [size if n is None else n for n in spec.shape]
    if spec.dtype.name == "string":
        raise Unrecordable("strings are no arrays")
    values = random.uniform(0.1, 0.9, shape) if spec.dtype.is_floating else np.zeros(shape)
    return wrap_tensor(tc.asarray(values, dtype=native_dtype(spec.dtype)))


def _trace(
    function: Function, args: Any, size: int, key: str, arrays: dict[str, Any], variables: Mapping[int, int], label: str
) -> dict[str, Json]:
    """Record a function on sample values, and check that the record computes what the function did."""
    random = np.random.default_rng(0)
    given = unwrap(nest.map_structure(lambda spec: _sample(spec, size, random), tuple(args)))
    chosen = function.trace_apart(given)
    if any(len(out) > 2 for out in chosen.outs) or chosen.changed:
        raise Unrecordable("it returns IndexedSlices, or assigns to a part of an argument")
    places = []
    for variable in chosen.variables:
        if id(variable) not in variables:
            raise Unrecordable(
                f"it uses {variable!r}, which no attribute of the object leads to: make it an attribute of a tf.Module "
                "there (or of its lists or dicts); random generators are in no file"
            )
        places.append(variables[id(variable)])
    recorded = record(chosen.traced, key, arrays)
    leaves: list[Any] = [out[1] for out in chosen.outs]
    places_of = [k for k, out in enumerate(chosen.outs) if out[0] == _TENSOR]
    for number, k in enumerate(places_of):
        leaves[k] = _Result(number)
    # A result that is one leaf has no structure.
    tree = leaves[0] if chosen.structure is None else pytree.unflatten(chosen.structure, leaves)
    results = encode(tree, lambda leaf: ["result", leaf.number] if isinstance(leaf, _Result) else None)
    recorded |= {
        "variables": places,
        "assigned": [variables[id(variable)] for variable in chosen.assigned],
        "results": results,
    }
    _check_replay(chosen, recorded, arrays, given)
    check_gradients(function, chosen, recorded, arrays, given)
    return recorded


class _Result:
    def __init__(self, number: int) -> None:
        self.number = number


def _check_replay(chosen: Any, recorded: Any, arrays: Mapping[str, Any], given: Any) -> None:
    """Compare the record with the function's own trace, on the sample."""
    tensors = [leaf for leaf in pytree.flatten_whole(given)[0] if isinstance(leaf, tc.Tensor)]
    values = [*tensors, *[variable.value for variable in chosen.variables]]
    if len(values) != recorded["inputs"]:
        raise Unrecordable("it uses a value that is neither an argument nor a Variable")
    found = Replay(recorded, arrays)(values)
    backend = chosen.traced.backend
    copies = [tc.asarray(np.array(value), backend=value.backend, device=value.device) for value in values]
    expected = chosen.run([copy.array for copy in copies])
    for ours, theirs in zip(found, expected, strict=True):
        array = np.asarray(theirs if backend is None else backend.library.numpy(theirs))
        own = np.asarray(ours)
        wide = array.dtype.kind in "fc" and array.dtype.itemsize
        if own.shape != array.shape or own.dtype != array.dtype or not np.allclose(
            own, array, rtol=1e-8 if wide and wide > 4 else 1e-3, atol=1e-5, equal_nan=True
        ):  # fmt: skip
            raise Unrecordable(
                "its ops, called one by one, compute something else: an error of Tape's, please report it"
            )
