"""Objects with Variables and tf.functions in a folder: what `tf.saved_model` does with a `tf.Module`.

`saved_model.json` has the tree of attributes and, for each signature of each function, a program of ops (see
:mod:`tape_tf.recorded`); `variables.safetensors` has the arrays. Both are data, of which nothing is executed but ops.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tape_core as tc
from tape_nn import load_tensors, save_tensors

from tape_tf import nest
from tape_tf.conversion import convert_to_tensor, unwrap, wrap
from tape_tf.keras import limits
from tape_tf.module import Module
from tape_tf.recorded import Replay, decode, dtype_named
from tape_tf.shapes import TensorSpec
from tape_tf.tensor import Tensor, Value, wrap_tensor
from tape_tf.variable import Variable

ARRAYS = "variables.safetensors"
FORMAT = "tape-tf saved_model of functions 1"
_DESCRIBED = "tape_tf.described"  # in the metadata of the arrays: the checksum of the description


def write_object(description: Mapping[str, Any], arrays: Mapping[str, Any], folder: Path, draft: Path) -> None:
    """Write the arrays, and the description to a draft.

    Raises:
        ValueError: the description is longer than what is read.
    """
    text = json.dumps({"format": FORMAT, **description}, indent=1, allow_nan=False)
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
