"""`call`: a function of PyTorch, or a module, as one op of Tape.

This module finds what the function computes with: the tensors among its arguments and the parameters of modules, and
makes a flat function of them, which :mod:`tape_torch.torch_op` runs, records and differentiates.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from tape_compile.extend import TracedArray
from tape_core import Tensor, asarray
from tape_core.backends import is_host_array
from tape_core.staging import current
from tape_core.support import ACTIVE, binding, check_assignable, innermost, is_watched, keep_former, pytree
from tape_core.tracing import is_captured

from tape_torch.conversion import detached
from tape_torch.inside import SIDE
from tape_torch.parameters import ParameterVariable, known_variable, variable_of
from tape_torch.torch_graphs import Arrays, Graph
from tape_torch.torch_op import bind, bind_here
from tape_torch.torch_tasks import Task

Function = Callable[..., Any]


def call(fn: Function, /, *args: Any, **kwargs: Any) -> Any:
    """Return `fn(*args, **kwargs)`, recorded as one op, which torch.autograd differentiates to any order.

    `fn` is any function of torch tensors, or a `torch.nn.Module`. It gets torch tensors in place of Tensors, Variables
    and NumPy's arrays. The tensors it returns come back as Tensors, in the same structure of tuples, lists and
    dictionaries.

    Tapes watch parameters, too: those of `fn` if it is a module, of modules that `fn` refers to by a name or a closure,
    of modules among the arguments, and tensors among the arguments that require grad. :func:`tape_torch.variables`
    returns them as Variables. The function runs once, so buffers, such as those of a batch norm, are updated once.

    It works under every transformation. Inside `vmap`, `torch.func.vmap` runs the function on all examples, or a loop
    where the function does not allow that; its derivatives there run it again. In a compiled function the call is one
    instruction, which calls the function in each run, with the values that the parameters and buffers have then.

    >>> import torch
    >>> import tape_core as tc, tape_torch
    >>> x = tc.Variable([1.0, 2.0], backend="torch")
    >>> with tc.GradientTape() as tape:
    ...     y = tape_torch.call(torch.logcumsumexp, x, dim=0)
    >>> [f"{g:.4f}" for g in tape.gradient(y, x)]
    ['1.2689', '0.7311']

    Raises:
        TypeError: an argument is on another backend, `fn` returns something that may hide a tensor, or the result
            depends on a tensor that requires grad and is not among the arguments, so that its gradient would be lost;
            or a module inside exchanges gradients between processes, as DistributedDataParallel; or it draws random
            numbers or updates buffers where a derivative would run it again.
        RuntimeError: `fn` writes into an argument.
    """
    if not callable(fn):
        raise TypeError(f"call: takes a function or module first, and its arguments after it; got {fn!r}")
    label = _label(fn)
    leaves, structure = pytree.flatten((args, kwargs))
    tensors: list[Tensor] = []
    names: list[str] = []
    places: list[int] = []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            if not leaf.is_leaf:
                leaves[k] = detached(leaf)
                continue
            leaf = variable_of(leaf)
        if isinstance(leaf, Tensor):
            where = _argument_name(structure, k)
            _check_backend(leaf, label, where)
            names.append(where)
            tensors.append(leaf if type(leaf) is Tensor else leaf._read())  # type: ignore[attr-defined]
            places.append(k)
            leaves[k] = None  # a task may live as long as a record: it holds no value of this call
    modules = _modules(fn, leaves)
    _refuse_distributed(modules, label)
    for k, leaf in enumerate(leaves):
        if is_host_array(leaf):
            names.append(_argument_name(structure, k))
            tensors.append(asarray(leaf, backend="torch", device=_device(tensors, modules)))
            places.append(k)
            leaves[k] = None
    stage = current()
    is_plain = stage is None and not binding.in_use and not ACTIVE.get() and SIDE.get() is None
    if is_plain and not any([t.backend.level for t in tensors]):
        # Nothing records, so a module may as well use its own parameters.
        task = _Call(fn, label, leaves, structure, places, names, modules, forbids="")
        return task.result(bind_here(task, tensors))
    # Parameters come after the arguments, and those that are constants after the others.
    names_of_parameters, variables, constants = _parameters(modules, every=stage is not None)
    tensors += [v._read() for v in variables]
    in_vmap = any([t.backend.level for t in tensors])
    task = _Call(fn, label, leaves, structure, places, names, modules, forbids=_repeats(in_vmap))
    task.parameters = names_of_parameters
    task.buffers, buffers = ([], []) if stage is None and not task.forbids else _buffers(modules)
    inputs = [*tensors, *[v._read() for v in buffers]]
    task.constants = len(buffers) + constants
    # Only where nothing is recorded, the module may as well use its own.
    if stage is None and not in_vmap and not binding.in_use and not is_watched(inputs) and not task.buffers:
        task.parameters, inputs = [], tensors[: len(places)]
    if stage is not None and modules:
        layout = _Layout(modules)
        stage.guard(layout, layout())
    if stage is not None and tensors and _is_shaped_by_values(fn):
        stage.require_value(f"the shape of the result of {label}")
    found = (bind_here if stage is None and not in_vmap else bind)(task, inputs)
    for variable, new in zip(buffers, found[len(found) - len(buffers) :], strict=True):
        if new is not None:
            check_assignable(variable)
            keep_former([variable, variable], ["_raw", "_raw_slots"])
            variable._array, variable._slots = new._array, {}
    return task.result(found)


def _device(tensors: Sequence[Tensor], modules: Sequence[torch.nn.Module]) -> str | None:
    """Return the device of the first tensor or parameter of a call; None, the default, if there is none."""
    if tensors:
        return tensors[0].device
    return next((str(p.device) for module in modules for p in module.parameters()), None)


def _repeats(in_vmap: bool) -> str:
    """Return why a function may run several times for one call, for messages; else an empty string."""
    if in_vmap:
        return "inside vmap, where each example would have its own"
    return "in a function that its derivative runs again, which would update them twice" if is_captured() else ""


class _Call(Task):
    """A call of a function of PyTorch, as a function of the tensors among the arguments, then parameters and buffers.

    Attributes:
        parameters, buffers: the names, as in `_FunctionModule`, of those that come after the arguments.
        forbids: why buffers must not be updated; an empty string if they may.
    """

    __slots__ = (
        "_fn",
        "_holder",
        "_leaves",
        "_modules",
        "_names",
        "_places",
        "_seen",
        "_structure",
        "_updates",
        "buffers",
        "forbids",
        "parameters",
    )

    def __init__(
        self,
        fn: Function,
        label: str,
        leaves: Sequence[Any],
        structure: pytree.Structure,
        places: Sequence[int],
        names: Sequence[str],
        modules: Sequence[torch.nn.Module],
        forbids: str,
    ) -> None:
        super().__init__(self._run_once, label, written=len(places), is_pure=not modules and is_pure(fn))
        self._fn = fn
        self._leaves = leaves
        self._structure = structure
        self._places = places
        self._names = names
        self._modules = modules
        self._holder: _FunctionModule | None = None  # made when it is needed
        self.parameters: Sequence[str] = ()
        self.buffers: Sequence[str] = ()
        self.forbids = forbids
        self._updates: set[str] | None = None  # the buffers that the first run has updated
        # The structure of the first result, and its leaves that are no tensors, each with its place.
        self._seen: tuple[pytree.Structure, dict[int, Any]] | None = None

    def name_of_argument(self, k: int) -> str:
        """Return the path of an argument."""
        return self._names[k]

    def _run_once(self, arrays: Arrays) -> Arrays:
        leaves, n = list(self._leaves), len(self._places)
        for k, array in zip(self._places, arrays[:n], strict=True):
            leaves[k] = array
        args, kwargs = self._structure.unflatten(leaves)
        m = n + len(self.parameters)
        values = dict(zip(self.parameters, arrays[n:m], strict=True))
        # A module updates its buffers in place, and their values are others'.
        given = {name: array.clone() for name, array in zip(self.buffers, arrays[m:], strict=True)}
        if not values and not given:
            return self._flattened(self._fn(*args, **kwargs))
        versions = [b._version for b in given.values()]
        if self._holder is None:
            self._holder = _FunctionModule(self._fn, self._modules)
        self._holder.gives_buffers = bool(given)
        out, after = torch.func.functional_call(self._holder, {**values, **given}, args, kwargs)
        news: Arrays = []
        first = self._updates is None
        updates = self._updates or set()
        for (name, before), version, old in zip(given.items(), versions, arrays[m:], strict=True):
            now = after[name]
            # Batch norm writes past PyTorch's count of writes, so the first run compares the values.
            if now is not before or now._version != version or (first and not torch.equal(now, old)):
                updates.add(name)
            if name in updates and self.forbids:
                raise TypeError(
                    f"{self.label} updates the buffer {name.split('.', 2)[2]!r} of a module {self.forbids}: let the "
                    f"module be in eval() mode, or call it outside"
                )
            news.append(now.detach() if name in updates else None)
        self._updates = updates
        return [*self._flattened(out), *news]

    def _flattened(self, out: Any) -> Arrays:
        outs, structure = pytree.flatten(out)
        arrays: Arrays = []
        plain: dict[int, Any] = {}
        for k, value in enumerate(outs):
            if _is_tensor(value, self.label, structure, k):
                arrays.append(value)
            else:
                plain[k] = value
        if self._seen is None:
            self._seen = structure, plain
        elif (len(plain), structure) != (len(self._seen[1]), self._seen[0]) or any(
            [v != w for v, w in zip(plain.values(), self._seen[1].values(), strict=True)]
        ):
            raise TypeError(
                f"{self.label}: its result differs from that of another run, of another example or in a compiled "
                f"function, in more than the values of tensors: {[*self._seen[1].values()]} then, {[*plain.values()]} "
                f"now; let it return tensors, in one structure"
            )
        return arrays

    def on_result(self, outs: Arrays, graph: Graph | None) -> None:
        """Refuse a graph that leads to other tensors than the arguments."""
        if graph is not None and graph.unknown:
            _refuse_unknown(self.label, graph.unknown)

    def result(self, tensors: Sequence[Any]) -> Any:
        """Return results in the structure in which the function has returned them."""
        assert self._seen is not None  # it has run
        structure, plain = self._seen
        each = iter(tensors)
        return pytree.unflatten(
            structure, [plain[k] if k in plain else next(each) for k in range(structure.num_leaves)]
        )


_DRAWING_BUILTINS = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh", "rrelu"})
"""Functions that may draw, for dropout, without PyTorch's tag for that."""


@functools.lru_cache(maxsize=1024)
def _tags(name: str) -> frozenset[torch.Tag] | None:
    """Return what PyTorch says of the overloads of a function; None if it is no op."""
    packet: Any = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    return frozenset([tag for overload in packet.overloads() for tag in getattr(packet, overload).tags])


def is_pure(fn: Function) -> bool:
    """Return whether a function is one of PyTorch's own that draws no random numbers."""
    if type(fn) is not BuiltinFunctionType or fn.__name__ in _DRAWING_BUILTINS or "dropout" in fn.__name__:
        return False
    tags = _tags(fn.__name__)
    return tags is not None and torch.Tag.nondeterministic_seeded not in tags


def _is_shaped_by_values(fn: Function) -> bool:
    tags = _tags(fn.__name__) if type(fn) is BuiltinFunctionType else None
    return tags is not None and torch.Tag.dynamic_output_shape in tags


_DISTRIBUTED = frozenset({"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"})


def _refuse_distributed(modules: Sequence[torch.nn.Module], label: str) -> None:
    """Refuse modules that exchange gradients in hooks of `backward()`, which does not run here.

    Raises:
        TypeError: a module, or one inside of it, is of such a class.
    """
    for module in modules:
        for part in module.modules():
            for kind in type(part).__mro__:
                if kind.__name__ in _DISTRIBUTED and kind.__module__.startswith("torch."):
                    raise TypeError(
                        f"{label}: {kind.__name__} adds up gradients in hooks of PyTorch's backward(), which Tape's "
                        f"derivatives do not run, so each process would train alone; call the module inside, its "
                        f".module, and add up the gradients: torch.distributed.all_reduce(g.array) of each; or let "
                        f"parameters and batches be DTensors, which add them up themselves"
                    )


# -- arguments and results


def _label(fn: Function) -> str:
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return f"call({name})"


def _check_backend(tensor: Tensor, label: str, where: str) -> None:
    array = innermost(tensor._array)[0]
    if not isinstance(array.value if type(array) is TracedArray else array, torch.Tensor):
        raise TypeError(
            f"{label}: argument {where} is on backend {tensor.backend.name!r}; a function of PyTorch takes Tensors on "
            f"'torch': convert it with tape_core.asarray(x, backend='torch')"
        )


def _argument_name(structure: pytree.Structure, k: int) -> str:
    """Return the name of an argument for messages: `0`, `weights`, `1['x']`."""
    kind, first, *rest = structure.paths()[k]
    return f"{first if kind == 0 else str(first)}{''.join(f'[{part!r}]' for part in rest)}"


# Results that cannot hide a tensor, and are returned as they are.
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, type(None), slice, range)


def _is_tensor(value: object, label: str, structure: pytree.Structure, k: int) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if not isinstance(value, _PLAIN):
        place = f"result{pytree.path(structure, k)}"
        if isinstance(value, Tensor):
            hint = (
                "it computes with torch tensors: give it every Tensor as an argument, and call Tape's functions outside"
            )
        else:
            hint = "let it return tensors, in tuples, lists and dictionaries; others would lose their gradient"
        raise TypeError(f"{label}: its {place} is a {type(value).__name__}; {hint}")
    return False


def _refuse_unknown(label: str, unknown: Sequence[torch.Tensor]) -> None:
    shapes = ", ".join([str(tuple(tensor.shape)) for tensor in unknown])
    raise TypeError(
        f"{label}: the result depends on tensors that require grad and are no arguments, of shape {shapes}: their "
        f"gradient would be lost. Give them, or the module that has them, as arguments; where they are meant as "
        f"constants, use their detach()"
    )


# -- modules


class _FunctionModule(torch.nn.Module):
    """A module around a function: `functional_call` runs it with other values for the parameters of several modules."""

    function: Function
    gives_buffers = False

    def __init__(self, function: Function, modules: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.__dict__["function"] = function  # no submodule, though it may be a module
        self.held = torch.nn.ModuleList(modules)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's result, and the buffers after it."""
        out = self.function(*args, **kwargs)
        return out, dict(self.named_buffers()) if self.gives_buffers else {}


def _parameters(modules: Sequence[torch.nn.Module], *, every: bool) -> tuple[list[str], list[ParameterVariable], int]:
    """Return the parameters with a derivative, or `every` one, each once, and the number of constants, which come last.

    The first list has their names in a `_FunctionModule`. A frozen parameter has a derivative where a tape watches its
    Variable, or a binding gives it a value.
    """
    found: dict[int, tuple[str, ParameterVariable]] = {}
    constants: dict[int, tuple[str, ParameterVariable]] = {}
    for k, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            if id(parameter) in found or id(parameter) in constants:
                continue
            variable = variable_of(parameter, name) if every or parameter.requires_grad else known_variable(parameter)
            if variable is not None:
                if parameter._backward_hooks:
                    raise TypeError(
                        f"call: the parameter {name!r} has a hook of register_hook(), which Tape's derivatives do not "
                        f"run; remove it, and change the gradient that the tape returns"
                    )
                varies = parameter.requires_grad or variable._bound() is not None or is_watched([variable])
                if varies or every:
                    (found if varies else constants)[id(parameter)] = f"held.{k}.{name}", variable
    pairs = [*found.values(), *constants.values()]
    return [name for name, _ in pairs], [variable for _, variable in pairs], len(constants)


def _buffers(modules: Sequence[torch.nn.Module]) -> tuple[list[str], list[ParameterVariable]]:
    """Return the buffers likewise."""
    found: dict[int, tuple[str, ParameterVariable]] = {}
    for k, module in enumerate(modules):
        for name, buffer in module.named_buffers():
            if id(buffer) not in found:
                found[id(buffer)] = f"held.{k}.{name}", variable_of(buffer, name)
    return [name for name, _ in found.values()], [variable for _, variable in found.values()]


class _Layout:
    """The guard of a trace: modules have the parts, tensors and mode that they had, as trainable as then."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        owners = [part for module in modules for part in module.modules()]
        held: list[Mapping[str, Any]] = [
            table for owner in owners for table in (owner._modules, owner._parameters, owner._buffers)
        ]
        self._entries = [(table, name, value) for table in held for name, value in table.items()]
        self._sizes = [(table, len(table)) for table in held]
        tensors = [value for _, _, value in self._entries if isinstance(value, torch.Tensor)]
        self._trainable = [(t, t.requires_grad) for t in tensors]
        self._modes = [(owner, owner.training) for owner in owners]

    def __call__(self) -> bool:
        """Return whether nothing has changed."""
        return (
            all([table.get(name) is value for table, name, value in self._entries])
            and all([len(table) == size for table, size in self._sizes])
            and all([t.requires_grad is flag for t, flag in self._trainable])
            and all([owner.training is flag for owner, flag in self._modes])
        )


def _modules(fn: Function, leaves: Sequence[Any]) -> list[torch.nn.Module]:
    """Return the modules that a function may use: itself, those it refers to, and those among its arguments."""
    # By id, since a module may be referred to twice, as by a closure and among the arguments.
    found: dict[int, torch.nn.Module] = {}
    for value in (*_referenced_objects(fn), *leaves):
        if isinstance(value, torch.nn.Module):
            found[id(value)] = value
    return list(found.values())


def _referenced_objects(fn: Any) -> Iterator[Any]:
    # What a function may reach without an argument: a partial's arguments, the object of a method, cells of a closure,
    # globals that the code names. Attributes of these are not searched, but for modules' own.
    while isinstance(fn, functools.partial):
        yield from fn.args
        yield from fn.keywords.values()
        fn = fn.func
    yield fn
    if isinstance(fn, MethodType):
        yield fn.__self__
        fn = fn.__func__
    fn = inspect.unwrap(fn)
    if isinstance(fn, FunctionType):
        for cell in fn.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not yet assigned
                continue
        for name in _global_names(fn.__code__):
            yield fn.__globals__.get(name)


@functools.lru_cache(maxsize=256)
def _global_names(code: CodeType) -> tuple[str, ...]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a comprehension or an inner function
            names += _global_names(constant)
    return tuple(names)
