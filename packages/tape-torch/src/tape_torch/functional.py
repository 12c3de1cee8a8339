"""`call`: a function of PyTorch as one op of Tape, whose VJP is torch.autograd's.

The function runs once, with grad enabled, on leaves of torch.autograd that stand for the inputs. Its graph (`_Graph`)
is kept in the tape's record, and the rule of the op walks it backward. If the sweep itself is recorded, the rule builds
the graph of the graph (`create_graph`), which becomes another op of this kind.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from tape_compile.extend import TracedArray
from tape_core import Tensor, stack
from tape_core.backends import Backend, backend_of_type
from tape_core.extend import Op, registry, vjp
from tape_core.staging import TracingError
from tape_core.support import ACTIVE, BatchedArray, Plans, binding, contextmanager, pytree, wrap
from tape_core.typing import Array, Cotangent, Namespace

from tape_torch.conversion import detached
from tape_torch.inside import inside
from tape_torch.parameters import variable_of

Function = Callable[..., Any]


def call(fn: Function, /, *args: Any, **kwargs: Any) -> Any:
    """Return `fn(*args, **kwargs)`, recorded as one op, which torch.autograd differentiates to any order.

    `fn` is any function of torch tensors, or a `torch.nn.Module`. It gets torch tensors in place of Tensors and
    Variables. The tensors it returns come back as Tensors, in the same structure of tuples, lists and dictionaries.

    Tapes watch parameters, too: those of `fn` if it is a module, of modules that `fn` refers to by a name or a closure,
    of modules among the arguments, and tensors among the arguments that require grad. :func:`tape_torch.variables`
    returns them as Variables. The function runs once, so buffers, such as those of a batch norm, are updated once.

    >>> import torch
    >>> import tape_core as tc, tape_torch
    >>> x = tc.Variable([1.0, 2.0], backend="torch")
    >>> with tc.GradientTape() as tape:
    ...     y = tape_torch.call(torch.logcumsumexp, x, dim=0)
    >>> [f"{g:.4f}" for g in tape.gradient(y, x)]
    ['1.2689', '0.7311']

    Raises:
        TypeError: an argument is on another backend, `fn` returns something that may hide a tensor, or the result
            depends on a tensor that requires grad and is not among the arguments, so that its gradient would be lost.
        RuntimeError: `fn` writes into an argument.
    """
    if not callable(fn):
        raise TypeError(f"call: takes a function or module first, and its arguments after it; got {fn!r}")
    label = _label(fn)
    leaves, structure = pytree.flatten((args, kwargs))
    given: list[tuple[str, Tensor]] = []
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
            given.append((where, leaf if type(leaf) is Tensor else leaf._read()))  # type: ignore[attr-defined]
            places.append(k)
    # Parameters come after the arguments, in `tensors` as in `arrays`.
    modules = _modules(fn, leaves)
    _refuse_distributed(modules, label)
    parameters = _parameters(modules)
    tensors = [t for _, t in given]
    # A name is held.K.NAME, with the module's number, as `_FunctionModule` has it; the Variable is called by the rest.
    tensors += [variable_of(p, name.split(".", 2)[2])._read() for name, p in parameters.items()]
    active = ACTIVE.get()
    records = any([tape._key in t._slots for tape in active for t in tensors])
    arrays = [_as_leaf(t._array) if records else t._array for t in tensors]
    # Not strict: those of parameters follow, which take no argument's place.
    for k, array in zip(places, arrays, strict=False):
        leaves[k] = array
    args, kwargs = structure.unflatten(leaves)
    versions = [_version(t) for _, t in given]  # PyTorch counts writes in place
    with _running(records, label):
        # Torch knows nothing of values that a binding gives its parameters: they are handed over.
        if parameters and (records or binding.in_use):
            holder = _FunctionModule(fn, modules)
            values = dict(zip(parameters, arrays[len(given) :], strict=True))
            out = torch.func.functional_call(holder, values, args, kwargs)
        else:
            out = fn(*args, **kwargs)
    for (where, t), version in zip(given, versions, strict=True):
        if _version(t) != version:
            raise RuntimeError(f"{label} writes into its argument {where}, whose value others hold; {_IN_PLACE_HINT}")
    outs, out_structure = pytree.flatten(out)
    numbers = [k for k, o in enumerate(outs) if _is_tensor(o, label, out_structure, k)]
    backend = tensors[0].backend if tensors else _backend()
    if records:
        unknown = _reachable_leaves([outs[k] for k in numbers]).keys() - set(map(id, arrays))
        if unknown:
            _refuse_unknown(label, [outs[k] for k in numbers], unknown)
    for k, result in zip(numbers, _record(backend, tensors, arrays, [outs[k] for k in numbers]), strict=True):
        outs[k] = result
    return pytree.unflatten(out_structure, outs)


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
                        f".module, and add up the gradients: torch.distributed.all_reduce(g.array) of each"
                    )


# -- the op


class _Graph:
    """A graph of torch.autograd: its outputs, its leaves, and the nodes whose backward function is replaced."""

    __slots__ = ("leaves", "outs", "replaced_nodes")

    def __init__(
        self, leaves: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], replaced_nodes: Sequence[Any]
    ) -> None:
        self.leaves = tuple(leaves)
        self.outs = tuple(outs)
        self.replaced_nodes = tuple(replaced_nodes)

    def cotangents(
        self, gs: Sequence[torch.Tensor | None], watched: Sequence[bool], *, create_graph: bool = False
    ) -> list[Any]:
        """Return the cotangents of the watched leaves; None for others, and where nothing flows.

        They are plain transposes, as all of Tape's rules, so the complex ones of torch.autograd are conjugated.
        """
        used = [(o, _conj(_cast_like(g, o))) for o, g in zip(self.outs, gs, strict=True) if g is not None]
        hooks = [node.register_hook(_logcumsumexp_backward(node)) for node in self.replaced_nodes]
        try:
            found = torch.autograd.grad(
                [o for o, _ in used],
                [leaf for leaf, w in zip(self.leaves, watched, strict=True) if w],
                [g for _, g in used],
                retain_graph=True,  # a persistent tape may ask again; the graph is freed with the tape's record
                create_graph=create_graph,
                allow_unused=True,
            )
        finally:
            for hook in hooks:  # one left behind would make a reference cycle
                hook.remove()
        each = iter(found)
        return [_conj(next(each)) if w else None for w in watched]


def _pull(
    xp: Namespace, g: Cotangent, arrays: Sequence[Array], arrays_watched: Sequence[bool], graph: _Graph
) -> list[Any]:
    gs = g if type(g) is tuple else (g,)
    if not isinstance(arrays[0], Tensor):
        with torch.inference_mode(False):
            return graph.cotangents(gs, arrays_watched)
    if any([t is not None and t.backend.level for t in gs]):  # inside vmap, as when a Jacobian is computed
        return _pull_each_example(xp, gs, arrays, arrays_watched, graph)
    # The sweep is recorded. Its derivatives are torch.autograd's as well, by the graph of the graph.
    seeds = [t for t in gs if t is not None]
    leaves = [_as_leaf(t._array) for t in seeds]
    each = iter(leaves)
    with torch.inference_mode(False), torch.enable_grad():
        found = graph.cotangents([None if t is None else next(each) for t in gs], arrays_watched, create_graph=True)
    flowing = [d for d in found if d is not None]
    results = iter(_record(arrays[0].backend, [*seeds, *arrays], [*leaves, *graph.leaves], flowing))
    return [None if d is None else next(results) for d in found]


def _pull_each_example(
    xp: Namespace, gs: Sequence[Any], arrays: Sequence[Tensor], watched: Sequence[bool], graph: _Graph
) -> list[Any]:
    """Call `_pull` for one example of a batch of cotangents after the other: torch.autograd cannot see Tape's vmap."""
    top = max([t.backend for t in gs if t is not None], key=lambda backend: backend.level)
    inside = [None if t is None or t.backend is not top else t._array for t in gs]
    axis = next((a.axis for a in inside if a is not None and a.axis is not None), None)

    def example(k: int) -> tuple[Any, ...]:
        pairs = zip(gs, inside, strict=True)
        return tuple([t if a is None else a.value if a.axis is None else a.value[k] for t, a in pairs])

    if axis is None:
        return _pull(xp, example(0), arrays, watched, graph)
    rows = [_pull(xp, example(k), arrays, watched, graph) for k in range(axis.size)]
    return [
        None if found[0] is None else wrap(BatchedArray(stack(list(found)), top, axis), top)
        for found in zip(*rows, strict=True)
    ]


class _CallOp(Op):
    """An op that is in no registry, since each call computes another function."""

    foreign = True

    def bind(self, backend: Backend) -> tuple[Function, Plans]:
        """Bind the one kernel there is, on every backend: it returns values that are computed already."""
        return self.bound(backend, _computed_values, Plans(self, self.compiled, None, backend))


def _computed_values(arrays: object, /, *, graph: _Graph) -> Any:
    outs = tuple([o.detach() for o in graph.outs])
    return outs if len(outs) > 1 else outs[0]


def torch_call(arrays: object, /, *, graph: _Graph) -> Any:
    """Return the results of a function of PyTorch."""


_op = _CallOp(torch_call, {"arrays": vjp(_pull)}, form="op", sequence=True, materialize=False)


def _record(
    backend: Backend, tensors: Sequence[Tensor], leaves: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]
) -> list[Tensor]:
    """Wrap `outs` as Tensors, recorded as a function of `tensors`, whose leaves in PyTorch's graph are `leaves`."""
    # Results without a gradient, such as integers, are wrapped beside the record; inputs that no result depends on are
    # left out of it.
    flowing = [o for o in outs if o.requires_grad]
    replaced_nodes: list[Any] = []
    reached = _reachable_leaves(flowing, replaced_nodes) if any([leaf.requires_grad for leaf in leaves]) else {}
    inputs = [(t, leaf) for t, leaf in zip(tensors, leaves, strict=True) if id(leaf) in reached]
    if not inputs:
        return [wrap(o.detach(), backend) for o in outs]
    graph = _Graph([leaf for _, leaf in inputs], flowing, replaced_nodes)
    found = _op.function([t for t, _ in inputs], graph=graph)
    each = iter(found if type(found) is tuple else (found,))
    return [next(each) if o.requires_grad else wrap(o.detach(), backend) for o in outs]


def _reachable_leaves(outs: Sequence[torch.Tensor], replaced_nodes: list[Any] | None = None) -> dict[int, torch.Tensor]:
    """Return the leaves that a graph leads back to, by id; append nodes with a faulty rule to `replaced_nodes`."""
    # A walk over the nodes, without recursion. AccumulateGrad is the node that ends in a leaf.
    leaves = {id(o): o for o in outs if o.requires_grad and o.grad_fn is None}
    todo: list[Any] = [o.grad_fn for o in outs if o.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        name = type(node).__name__
        if name == "AccumulateGrad":
            leaves[id(node.variable)] = node.variable
        elif name == "LogcumsumexpBackward0" and replaced_nodes is not None:
            replaced_nodes.append(node)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return leaves


def _logcumsumexp_backward(node: Any) -> Any:
    """Return a hook that replaces PyTorch's rule of logcumsumexp by Tape's.

    PyTorch's rule takes logarithms of the cotangents. Its numbers are right, but its derivative with respect to a
    cotangent of 0 is 0, and NaN after it, so second derivatives are wrong.
    """
    rule: Any = registry["logcumsumexp"].rules["x"]

    def backward(found: tuple[torch.Tensor, ...], gs: tuple[torch.Tensor, ...]) -> Any:
        x, dim = node._saved_self, node._saved_dim
        if x.ndim == 0 or x.dtype not in (torch.float32, torch.float64):
            return found
        dim -= (dim >= 1 << 63) << 64  # PyTorch shows a negative one as an unsigned integer
        return (rule.fn(_backend().xp, gs[0], x, node._saved_result, dim, False),)

    return backward


def _as_leaf(array: torch.Tensor) -> torch.Tensor:
    """Return a leaf of torch.autograd with the values, and the memory, of an array."""
    if array.is_inference():  # torch.autograd records nothing of inference tensors
        with torch.inference_mode(False):
            array = array.clone()
    else:
        array = array.detach()
    return array.requires_grad_() if array.is_floating_point() or array.is_complex() else array


def _conj(g: torch.Tensor | None) -> Any:
    """Conjugate a complex cotangent: Tape's rules are plain transposes, PyTorch's are conjugated."""
    return torch.conj_physical(g) if g is not None and g.is_complex() else g


def _cast_like(g: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    if g.dtype is out.dtype:
        return g
    return (g.real if g.is_complex() and not out.is_complex() else g).to(out.dtype)


@contextmanager
def _running(records: bool, label: str) -> Iterator[None]:
    """Context while `fn` runs: with or without torch.autograd, and refusing tensors of the wrong library."""
    with ExitStack() as stack:
        if records:
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(records))
        stack.enter_context(inside("call"))
        try:
            yield
        except RuntimeError as error:
            if "leaf Variable" in str(error) and "in-place" in str(error):
                raise RuntimeError(f"{label} writes into an argument, whose value others hold; {_IN_PLACE_HINT}") from (
                    error
                )
            raise


_IN_PLACE_HINT = "use the function that is not in place, or write into a clone() of it"


# -- arguments and results


def _label(fn: Function) -> str:
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return f"call({name})"


def _backend() -> Backend:
    backend = backend_of_type(torch.Tensor)
    assert backend is not None  # this package provides it
    return backend


def _check_backend(tensor: Tensor, label: str, where: str) -> None:
    if tensor.backend.level:
        raise TypeError(
            f"{label}: argument {where} is inside tape_core.vmap, into which a function of PyTorch cannot look; "
            f"call it with all examples, outside: tape_torch.call(torch.vmap(fn), examples)"
        )
    if type(tensor._array) is TracedArray:
        raise TracingError(
            f"{label}: argument {where} is inside a compiled function, and a function of PyTorch cannot be traced; "
            f"call it outside, or let the function run as plain Python, with tape_core.function(fallback=True)"
        )
    if not isinstance(tensor._array, torch.Tensor):
        raise TypeError(
            f"{label}: argument {where} is on backend {tensor.backend.name!r}; a function of PyTorch takes Tensors on "
            f"'torch': convert it with tape_core.asarray(x, backend='torch')"
        )


def _argument_name(structure: pytree.Structure, k: int) -> str:
    """Return the name of an argument for messages: `0`, `weights`, `1['x']`."""
    kind, first, *rest = structure.paths()[k]
    return f"{first if kind == 0 else str(first)}{''.join(f'[{part!r}]' for part in rest)}"


def _version(tensor: Tensor) -> int:
    array: torch.Tensor = tensor._array
    return 0 if array.is_inference() else array._version


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


def _refuse_unknown(label: str, outs: Sequence[torch.Tensor], unknown: set[int]) -> None:
    reached = _reachable_leaves(outs)
    shapes = ", ".join(str(tuple(reached[name].shape)) for name in unknown)
    raise TypeError(
        f"{label}: the result depends on tensors that require grad and are no arguments, of shape {shapes}: their "
        f"gradient would be lost. Give them, or the module that has them, as arguments; where they are meant as "
        f"constants, use their detach()"
    )


# -- modules


class _FunctionModule(torch.nn.Module):
    """A module around a function: `functional_call` runs it with other values for the parameters of several modules."""

    function: Function

    def __init__(self, function: Function, modules: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.__dict__["function"] = function  # no submodule, though it may be a module
        self.held = torch.nn.ModuleList(modules)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)


def _parameters(modules: Sequence[torch.nn.Module]) -> Mapping[str, torch.Tensor]:
    """Return the trainable parameters, each once, by their names in a `_FunctionModule` of the modules."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for k, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                found.setdefault(id(parameter), (f"held.{k}.{name}", parameter))
    return dict(found.values())


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
