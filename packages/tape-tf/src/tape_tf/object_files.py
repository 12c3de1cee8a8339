"""Objects with Variables and tf.functions in a folder: what `tf.saved_model` does with a `tf.Module`.

`saved_model.json` has the tree of attributes and, for each signature of each function, a program of ops (see
:mod:`tape_tf.recorded`); `variables.safetensors` has the arrays. Both are data, of which nothing is executed but ops.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.support import pytree
from tape_nn import load_tensors, save_tensors

from tape_tf import nest
from tape_tf.conversion import convert_to_tensor, unwrap, wrap
from tape_tf.dtypes import native_dtype
from tape_tf.keras import limits
from tape_tf.module import Module
from tape_tf.ops.function import ConcreteFunction, Function
from tape_tf.recorded import Replay, decode, dtype_named, encode, record
from tape_tf.recorded_flows import Unrecordable
from tape_tf.recorded_gradients import check_gradients
from tape_tf.shapes import TensorSpec
from tape_tf.tensor import Tensor, Value, wrap_tensor
from tape_tf.typing import Json
from tape_tf.variable import Variable

ARRAYS = "variables.safetensors"
FORMAT = "tape-tf saved_model of functions 1"
SERVING = "serving_default"
_DESCRIBED = "tape_tf.described"  # in the metadata of the arrays: the checksum of the description
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
    return {"format": FORMAT, "nodes": writer.nodes, "signatures": described}, writer.arrays


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


def write_object(description: Mapping[str, Any], arrays: Mapping[str, Any], folder: Path, draft: Path) -> None:
    """Write the arrays, and the description to a draft.

    Raises:
        ValueError: the description is longer than what is read.
    """
    text = json.dumps(description, indent=1, allow_nan=False)
    if len(text) > limits.MAX_CONFIG_BYTES:
        raise ValueError(
            f"saved_model.save: the functions take {len(text)} bytes, of {limits.MAX_CONFIG_BYTES} that are read: save "
            "fewer signatures, or functions without long Python loops"
        )
    # Arrays beside the description of something else, or one that was damaged, would be other numbers in silence.
    save_tensors(folder / ARRAYS, arrays, {_DESCRIBED: _digest(text.encode())})
    draft.write_bytes(text.encode())


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def load_object(content: Mapping[str, Any], text: bytes, folder: Path) -> LoadedObject:
    """Return the object of a description, which is given as it was read, too.

    Raises:
        ValueError: the description or a program in it is malformed, or the arrays are those of another one.
    """
    arrays, metadata = load_tensors(folder / ARRAYS)
    if metadata.get(_DESCRIBED) != _digest(text):
        raise ValueError(f"it was changed, or {ARRAYS} beside it belongs to something else that was saved")
    nodes = content["nodes"]
    made: list[Any] = [_make(node, arrays) for node in nodes]
    if not made or not isinstance(made[0], LoadedObject):
        raise ValueError("the first object is no module")
    for node, value in zip(nodes, made, strict=True):
        kind = node["kind"]
        if kind == "list":
            value.extend([made[_place(part, made)] for part in node["parts"]])
        elif kind == "dict":
            value.update({name: made[_place(part, made)] for name, part in node["parts"].items()})
        elif kind == "module":
            for name, part in node["parts"].items():
                if name != "__call__" and name.startswith("__"):
                    raise ValueError(f"an attribute {name!r}")
                vars(value)["_call" if name == "__call__" else name] = made[_place(part, made)]
        elif kind == "function":
            value.programs = [_Loaded(program, arrays, made, value) for program in node["programs"]]
    signatures = {}
    for name, (number, place) in content["signatures"].items():
        function = made[_place(number, made)]
        signatures[name] = LoadedSignature(function, function.programs[_place(place, function.programs)])
    root: LoadedObject = made[0]
    vars(root)["signatures"] = MappingProxyType(signatures)
    return root


def _place(number: object, among: Sequence[Any]) -> int:
    if type(number) is not int or not 0 <= number < len(among):
        raise ValueError(f"there is no part {number!r}")
    return number


def _make(node: Mapping[str, Any], arrays: Mapping[str, tc.Tensor]) -> Any:
    kind = node["kind"]
    if kind == "variable":
        return Variable(wrap_tensor(arrays[node["array"]]), trainable=bool(node["trainable"]), name=node["name"])
    if kind == "function":
        return LoadedFunction(str(node["name"]), [str(name) for name in node["parameters"]])
    makers: dict[str, Callable[[], Any]] = {"list": list, "dict": dict, "module": LoadedObject}
    if kind not in makers:
        raise ValueError(f"there is no kind of object {kind!r}")
    return makers[kind]()


class _Loaded:
    """A program of a loaded function, with the Variables that it reads and assigns."""

    def __init__(self, node: Mapping[str, Any], arrays: Mapping[str, Any], made: list[Any], function: Any) -> None:
        def leaf(tag: str, parts: list[Any]) -> TensorSpec:
            if tag != "tensor" or len(parts) != 3:
                raise ValueError(f"there is no kind of argument {tag!r}")
            return TensorSpec([None if n is None else int(n) for n in parts[0]], dtype_named(parts[1]).name, parts[2])

        self.signature = decode(node["signature"], leaf)
        self.replay = Replay(node, arrays)
        self.variables = [made[_place(k, made)] for k in node["variables"]]
        self.assigned = [made[_place(k, made)] for k in node["assigned"]]
        if not all(isinstance(v, Variable) for v in [*self.variables, *self.assigned]):
            raise ValueError(f"{function.name} uses something as a Variable that is none")
        specs = [s for s in nest.flatten(self.signature) if isinstance(s, TensorSpec)]
        if len(specs) + len(self.variables) != self.replay.inputs:
            raise ValueError(f"{function.name} has {self.replay.inputs} inputs, and not those of its signature")
        self.results = node["results"]
        self.count = len(self.replay.outputs) - len(self.assigned)
        decode(self.results, self._check_result)

    def _check_result(self, tag: str, parts: list[Any]) -> None:
        if tag != "result" or len(parts) != 1 or type(parts[0]) is not int or not 0 <= parts[0] < self.count:
            raise ValueError(f"there is no result {parts!r}")

    def fit(self, args: Sequence[Any]) -> list[Any] | None:
        """Return the tensors among arguments that fit the signature; None if they do not."""
        try:
            nest.assert_same_structure(self.signature, tuple(args))
        except (TypeError, ValueError):
            return None
        found = []
        for spec, value in zip(nest.flatten(self.signature), nest.flatten(tuple(args)), strict=True):
            if not isinstance(spec, TensorSpec):
                if isinstance(value, Value) or type(spec) is not type(value) or spec != value:
                    return None
                continue
            try:
                tensor = value if isinstance(value, Value) else convert_to_tensor(value, dtype=spec.dtype)
            except (TypeError, ValueError):
                return None
            if not spec.is_compatible_with(tensor):
                return None
            found.append(unwrap(tensor))
        return found

    def __call__(self, tensors: Sequence[Any]) -> Any:
        found = self.replay([*tensors, *[variable.native.value for variable in self.variables]])
        for variable, value in zip(self.assigned, found[self.count :], strict=True):
            variable.assign(wrap_tensor(value))
        return decode(self.results, lambda _, parts: wrap(found[parts[0]]))


class LoadedFunction:
    """A function from a file: it has a program for each signature with which it was saved."""

    def __init__(self, name: str, parameters: list[str]) -> None:
        self.name = self.__name__ = name
        self._parameters = parameters
        self.programs: list[_Loaded] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program whose signature fits.

        Raises:
            ValueError: none does; the message lists them.
        """
        for program in self.programs:
            given = list(args)
            rest = dict(kwargs)
            for name, spec in list(zip(self._parameters, program.signature, strict=False))[len(given) :]:
                # Python values with which it was saved may be left out, as defaults may.
                if name not in rest and any(isinstance(s, TensorSpec) for s in nest.flatten(spec)):
                    break
                given.append(rest.pop(name, spec))
            if not rest and (tensors := program.fit(given)) is not None:
                return program(tensors)
        known = "\n".join([f"  {program.signature}" for program in self.programs]) or "  none: it was never called"
        raise ValueError(
            f"Could not find matching concrete function to call loaded from the SavedModel: {self.name} was called "
            f"with {args} and {kwargs}. It was saved for these signatures:\n{known}"
        )

    def __repr__(self) -> str:
        return f"<function {self.name} from a file>"


class LoadedObject(Module):
    """A module from a file, with the attributes that lead to Variables and functions.

    Attributes:
        signatures: of the root: functions of named tensors that return dicts.
    """

    signatures: Mapping[str, LoadedSignature]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the `__call__` with which the module was saved."""
        call = vars(self).get("_call")
        if call is None:
            raise TypeError("the saved object has no tf.function __call__")
        return call(*args, **kwargs)


class LoadedSignature:
    """A program whose inputs are given by name, and whose outputs are a dict.

    Attributes:
        structured_input_signature: the positional arguments, of which there are none, and the inputs by name.
    """

    def __init__(self, function: LoadedFunction, program: _Loaded) -> None:
        self._program = program
        names = [spec.name if isinstance(spec, TensorSpec) else None for spec in program.signature]
        self._names = [
            name or given
            for name, given in zip(names, [*function._parameters, *map(str, range(len(names)))], strict=False)
        ]
        specs = zip(self._names, program.signature, strict=True)
        self.structured_input_signature = ((), {n: s for n, s in specs if isinstance(s, TensorSpec)})

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Compute the outputs by name: `output_0`, `output_1` and so on, or those of the dict that it returns.

        Raises:
            TypeError: an input is missing, of another shape or dtype, or there is another.
        """
        inputs = self.structured_input_signature[1]
        if len(args) == 1 and len(inputs) == 1 and not kwargs:
            kwargs = {next(iter(inputs)): args[0]}
        elif args or kwargs.keys() != inputs.keys():
            raise TypeError(f"the signature takes {', '.join(inputs)} by name; got {', '.join(kwargs) or 'others'}")
        given = [kwargs.get(n, s) for n, s in zip(self._names, self._program.signature, strict=True)]
        tensors = self._program.fit(given)
        if tensors is None:
            raise TypeError(f"the signature takes {inputs}; got {kwargs}")
        found = self._program(tensors)
        if isinstance(found, dict):
            return found
        return {f"output_{k}": value for k, value in enumerate(nest.flatten(found))}
