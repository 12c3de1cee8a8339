"""Kernels on arrays that are divided among processes: what PyTorch's DTensors lack, or leave to their user.

Once there is such an array, each kernel is called through here. PyTorch computes with DTensors by itself; besides that

- a plain tensor beside them, a constant say, is a copy in each process, and that it is the same in each is checked;
- rows of tables are looked up and added to on parts, see `divided_rows`;
- an elementwise op that PyTorch does not compute, or not by one call, is computed in each process on its own part;
- any other op that PyTorch cannot divide is computed in each process on the whole arrays: the result is right, but
  costs their memory and communication. So a warning says it once for each op, and `gathered` lists them;
- a result without dimensions is added up at once: `float` of a summand would be a number of one process alone.

`DIVIDED` names the ops whose ways to be divided are known to be right. The conformance suite is run on such arrays, see
`tape_torch.distributed.conformance`.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from typing import Any, Final

import torch
from tape_compile.extend import TracedArray
from tape_core.extend import registry
from tape_core.support import warn_user
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from tape_torch.divided import added_up, is_divided, is_here, is_watched, part_of
from tape_torch.divided_calls import key_with_values, noted
from tape_torch.divided_classes import on_classes
from tape_torch.divided_copies import as_copy, copy_on, has_another_mesh, on_one_mesh
from tape_torch.divided_origins import compared, compared_sweep
from tape_torch.divided_parts import NUMBERS, Quick, is_left, key_of, note, on_known_parts, on_parts, quick_of
from tape_torch.divided_products import beside_rows
from tape_torch.divided_rows import on_rows
from tape_torch.divided_sends import followed, names_change, with_terms
from tape_torch.divided_specs import with_spec
from tape_torch.divided_together import number_later
from tape_torch.divided_ways import WAYS
from tape_torch.divided_weights import beside, forget, whole_weight
from tape_torch.kernels import KERNELS

_LACKS = (
    "does not have a sharding strategy registered",
    "does not support cross-mesh",
    "not supported yet",
    "got mixed torch.Tensor and DTensor",
    "Sharding propagation failed",
)
"""Words of PyTorch's errors for ops that DTensors do not have, or not in such a layout."""

_LINEAR: Final = frozenset(
    {
        "add", "astype", "broadcast_to", "expand_dims", "laid_out_like", "matrix_transpose", "moveaxis", "negative",
        "permute_dims", "positive", "subtract", "sum",
    }
)  # fmt: skip
"""Kernels that get `Partial` arrays, terms of a sum that is still to be taken: theirs are right in PyTorch. All others
get the sum: special functions of PyTorch, such as `bessel_j0`, are applied to each term and would be wrong."""

DIVIDED: Final = frozenset(
    {
        "all", "any", "argmax", "argmin", "astype", "attend", "broadcast_to", "concat",
        "cross_entropy", "cumulative_sum", "einsum", "expand_dims", "flip", "gather", "getitem",
        "laid_out_like", "log_softmax", "logsumexp", "matmul", "matrix_transpose", "max", "mean", "min", "normalize",
        "one_hot", "permute_dims", "prod", "reshape", "rms_norm", "softmax", "squeeze", "stack", "std", "sum", "take",
        "to_device", "unstack", "var", "vecdot", "vector_norm", "zeros_beside",
    }
)  # fmt: skip
"""Ops, besides elementwise ones, that PyTorch computes on parts where it can: the conformance suite finds them right.

All others are computed on the whole arrays. For many PyTorch has no strategy; for some it has one that is wrong or has
processes wait for each other: it divides stacks of matrices and stacks of right sides apart in `solve`, repeats each
part as if it were the whole in `repeat`, and takes a part of an array for an array of its own, so that what kernels of
indexing write into it is lost."""

_WHOLE_IF_COMPLEX: Final[dict[str, str]] = {"prod": "processes cannot multiply complex numbers"}

_WHOLE_IF_UNEVEN: Final[dict[str, str]] = {"logsumexp": "parts of different lengths are sent as if they were of one"}

_ALONG: Final = {"argsort": 0, "cross_entropy_vjp": 1, "cumulative_prod": 0, "sort": 0, "take_along_axis": 0}
"""Ops that compute each line along their `axis` by itself, and which of their arrays has these lines. Where that axis
is not divided, each process computes its lines."""

_BY_EXAMPLE: Final = {"conv": (1,), "conv_transpose": (1,), "conv_weight_vjp": ()}
"""Convolutions, and which of their arrays have no axis of examples. PyTorch exchanges borders of images, wrongly or
waiting for ever where these are small; so each process computes with its examples, or on the whole arrays."""

UNDIVIDED_RULES: Final = ("avg_pool", "cdist", "conv", "logsumexp", "max_pool", "relu6")
"""Ops whose rules call kernels of PyTorch's that it cannot divide; once there are divided arrays, ops' own run."""

_LIKE: Final = frozenset({"empty_like", "full_like", "ones_like", "zeros_like"})
"""Functions that ask an array for anything but its values."""

_QUICK_MOST: Final = 256
"""Kinds of calls of one kernel that are found by the identities of descriptions: then all are forgotten."""

_NESTED: Final = frozenset({list, tuple, dict})

_WHERE: Final = {"laid_out_like": "a cotangent, tangent or gradient of a divided array"}
"""Where a plain array stands beside a divided one, by kernels that users do not call by name."""

_DISPATCHER: Any = DTensor._op_dispatcher

gathered: Final[dict[str, str]] = {}
"""The ops that this process has computed on whole arrays, each with PyTorch's reason."""


def guard(name: str, kernel: Any) -> Any:
    """Return what is called in place of a kernel; see `tape_core.backends.Backend.guarded`."""

    # What divides arrays, and brings them together, is meant for arrays as they are.
    if not callable(kernel) or isinstance(kernel, type):
        return kernel
    if name.startswith("distributed_"):
        return compared(name, lambda *args, **kwargs: followed(name, kernel, args, kwargs))

    elementwise = _is_elementwise(name)
    is_like, is_layout = name in _LIKE, name == "laid_out_like"
    quick: dict[tuple[Any, ...], Quick] = {}

    def computed(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:  # the common case first, written out: calls that are known, of arrays alone, and numbers
            ids: list[Any] = []
            parts: list[Any] = []
            for x in args:
                kind: Any = type(x)
                if kind is DTensor:
                    array: Any = x
                    part = array._local_tensor
                    if type(part) is not torch.Tensor or array.requires_grad:
                        break
                    ids.append(id(array._spec))
                    parts.append(part)
                elif elementwise and kind in NUMBERS:
                    ids.append(kind)
                    parts.append(x)
                else:
                    break
            else:
                if (entry := quick.get(tuple(ids))) is not None and not is_watched():
                    known, part = entry.known, kernel(*parts)
                    if type(part) is torch.Tensor and part.dtype is known.dtype and part.shape == known.shape:
                        made = with_spec(part, known.spec)
                        if known.is_whole:
                            return made
                        if known.is_left and _DISPATCHER._allow_implicit_replication:
                            return with_terms(name, made, args)
                        return followed(name, partial(_last, made), args, kwargs)
        return followed(name, otherwise, args, kwargs)

    def otherwise(*args: Any, **kwargs: Any) -> Any:
        if is_layout and type(args[0]) is type(args[1]) is DTensor:
            return kernel(*args)
        if is_like and args and type(args[0]) is DTensor:
            args = (_unread(args[0]), *args[1:])
        key = _key(elementwise, kernel, args, kwargs)
        found = _known(key, kernel, args, kwargs)
        if found is not None:
            if not (kwargs or is_like) and (new := quick_of(key, args)) is not None:
                if len(quick) >= _QUICK_MOST:
                    quick.clear()
                quick[new[0]] = new[1]
            return found
        mesh = _mesh_of(args, kwargs)
        if mesh is None:
            return kernel(*args, **kwargs)
        return _call(name, kernel, mesh, args, kwargs)

    called: Any = compared(name, computed)

    def chosen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        inner = getattr(kernel, "chosen", None)
        if _mesh_of(args, kwargs) is not None:
            return called  # type: ignore[no-any-return]
        found: Callable[..., Any] = kernel if inner is None else inner(args, kwargs)
        return found

    called.__name__ = name
    called.__wrapped__ = kernel
    called.unguarded = getattr(kernel, "unguarded", kernel)
    called.chosen = chosen
    return called


def _key(elementwise: bool, kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return by what calls of a kernel are known; None for those that are not to be."""
    if not elementwise:
        return key_with_values(kernel, args, kwargs)
    return None if kwargs else key_of(kernel, args)


def _known(key: Any, kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call of a kind that is known, of which what must be is added up; None for other calls."""
    found = on_known_parts(key, kernel, args, kwargs)
    if found is None:
        return None
    array, is_whole = found
    return array if is_whole else _finished(array)


def _is_elementwise(name: str) -> bool:
    """Return whether a kernel is that of an elementwise op."""
    op = registry.get(name)
    return op is not None and op.elementwise


def _last(made: Any, *_: Any, **__: Any) -> Any:
    return _finished(made)


def _finished(found: Any) -> Any:
    """Return a result of which what must be is added up: in a backward sweep less, see `_call`."""
    return _settled(found) if _DISPATCHER._allow_implicit_replication else number_later(found)


def _unread(x: Any) -> Any:
    """Return an array whose values nobody asks for, so that they need not be there yet: those of a loss, say."""
    part = x._local_tensor
    return with_spec(part.elem, x._spec) if type(part) is AsyncCollectiveTensor else x


def guarded_if_mixed(function: Callable[..., Any], arrays: tuple[Any, ...]) -> Callable[..., Any]:
    """Return what is called in place of a function of a rule, if plain tensors are beside divided ones."""
    kinds = {type(leaf) for leaf in tree_leaves(arrays) if isinstance(leaf, torch.Tensor)}
    return _guarded_function(function) if DTensor in kinds and len(kinds) > 1 else function


@lru_cache(maxsize=1024)
def _guarded_function(function: Callable[..., Any]) -> Callable[..., Any]:
    # For each the same, so that CSE finds equal calls.
    found: Callable[..., Any] = guard(getattr(function, "__name__", "a derivative"), function)
    return found


def _mesh_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> DeviceMesh | None:
    for value in args:
        kind = type(value)
        if kind is DTensor:
            mesh: DeviceMesh = value.device_mesh
            return mesh
        if kind is TracedArray and type(value.value) is DTensor:  # in a trace
            return _mesh_of((value.value,), {})
        if kind in (list, tuple) and (found := _mesh_of(tuple(value), {})) is not None:
            return found
    return _mesh_of(tuple(kwargs.values()), {}) if kwargs else None


def _call(name: str, kernel: Callable[..., Any], mesh: DeviceMesh, args: Any, kwargs: Any) -> Any:
    keeps_residuals, name = name.endswith("_with_residuals"), name.removesuffix("_with_residuals")
    if has_another_mesh((*args, *kwargs.values()), mesh):
        (args, kwargs), mesh = on_one_mesh((args, kwargs), name)
    if (prepared := _prepared(name, args)) is not args:
        args = prepared
        key = _key(_is_elementwise(name), kernel, args, kwargs)
        if (known := _known(key, kernel, args, kwargs)) is not None:
            return known
    summed = name not in _LINEAR
    # What kernels and rules make is made of shapes and numbers: it is the same in each process.
    made_here = bool(_DISPATCHER._allow_implicit_replication)
    arrays: list[DTensor] = []

    # No function that calls itself: it would be a cycle, in which the arrays stay until the garbage is collected.
    def leaf(value: Any) -> Any:
        if type(value) is DTensor:
            found = added_up(value) if summed else value
        elif isinstance(value, torch.Tensor):
            found = as_copy(value, mesh) if made_here else copy_on(mesh, value, _WHERE.get(name, f"in {name}"))
        else:
            return value
        arrays.append(found)
        return found

    args = tuple([tree_map(leaf, value) if type(value) in _NESTED else leaf(value) for value in args])
    kwargs = {key: tree_map(leaf, x) if type(x) in _NESTED else leaf(x) for key, x in kwargs.items()}
    if name == "arange_beside":  # of which nothing but the device is asked
        return as_copy(kernel(*args, **kwargs), mesh)
    if name in _ALONG and (found := _by_lines(kernel, mesh, arrays, arrays[_ALONG[name]], args, kwargs)) is not None:
        return found
    if (rows := on_rows(name, kernel, mesh, args, kwargs)) is not None:
        return _settled(rows) if made_here else added_up(rows)
    if (classes := on_classes(name, mesh, args, kwargs)) is not None:
        return (classes, ()) if keeps_residuals else classes
    if (why := _why_whole(name, arrays)) is not None:
        return _on_whole_arrays(name, kernel, mesh, args, kwargs, why)
    if name in _BY_EXAMPLE:
        return _by_examples(name, kernel, mesh, args, kwargs)
    elementwise = _is_elementwise(name)
    key = _key(elementwise, kernel, args, kwargs)  # of sums that were taken meanwhile, say
    if (known := _known(key, kernel, args, kwargs)) is not None:
        return known
    if not elementwise:
        return _by_pytorch(name, kernel, mesh, arrays, args, kwargs, key)
    if name in KERNELS:
        found = _by_pytorch(name, kernel, mesh, arrays, args, kwargs)
    else:  # kernels of many calls, which on parts are calls without DTensors, and SciPy's, which get NumPy's arrays
        found = on_parts(kernel, mesh, arrays, args, kwargs)
    note(key, args, found)
    return found


def _by_pytorch(
    name: str,
    kernel: Callable[..., Any],
    mesh: DeviceMesh,
    arrays: list[DTensor],
    args: Any,
    kwargs: Any,
    key: Any = None,
) -> Any:
    """Call a kernel with DTensors, which PyTorch divides and computes with; otherwise where it cannot.

    Args:
        key: by which the call is known; None if it is not to be noted.
    """
    made_here = bool(_DISPATCHER._allow_implicit_replication)
    try:
        with replicating():
            found = noted(key, partial(WAYS[name], kernel) if name in WAYS else kernel, kernel, args, kwargs)
        if type(found) is DTensor:  # as nearly always
            return _finished(found)
        if all([isinstance(x, DTensor) or not isinstance(x, torch.Tensor) for x in tree_leaves(found)]):
            # Rules look at what ops were given, and PyTorch's functions would be applied to each term of a sum. In a
            # sweep sums are left: where one ends, it is taken in the layout of the source.
            return tree_map_only(DTensor, _settled if made_here else added_up, found)
        cause = "it is not computed by PyTorch alone"  # of what NumPy computed, say, only a part may have come
    except Exception as error:
        reason = _lacking(error)
        if reason is None:
            raise
        cause = reason
    if _is_elementwise(name):
        return on_parts(kernel, mesh, arrays, args, kwargs)
    return _on_whole_arrays(name, kernel, mesh, args, kwargs, cause)


def _prepared(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments among which each process has all of a weight of which it needs all; the given ones if it has."""
    if len(args) != 2:
        return args
    if name == "matmul":
        x2 = beside_rows(*args)
        return args if x2 is args[1] else (args[0], x2)
    return beside(args) if name in KERNELS and _is_elementwise(name) else args


def _why_whole(name: str, arrays: list[DTensor]) -> str | None:
    """Return why PyTorch is not asked to divide an op; None if it is."""
    if name in _WHOLE_IF_COMPLEX and arrays[0].is_complex():
        return _WHOLE_IF_COMPLEX[name]
    if not all([x.numel() for x in arrays]):
        # PyTorch's strategy for reshape searches without end, others divide by zero. There is nothing to gain here.
        return "an array without elements"
    op = registry.get(name)
    if op is None or op.elementwise:
        return None
    least = 1 if name in _LINEAR else min([_least_part(x) for x in arrays])
    if least <= 0:
        return "a process has no part of an array: of nothing there is no greatest element, say"
    if name in _WHOLE_IF_UNEVEN and least < 1:
        return _WHOLE_IF_UNEVEN[name]
    return None if name in DIVIDED or name in _BY_EXAMPLE else "its way to do so is not known to be right"


def _least_part(x: DTensor) -> float:
    """Return how many times smaller than the largest the smallest part of an array is, along the axis of the worst.

    It is 1 where all parts are alike, and 0 or less where a process has no element: parts are rounded up.
    """
    lengths, least = list(x.shape), 1.0
    for k, placement in enumerate(x.placements):
        if isinstance(placement, Shard):
            parts, length = x.device_mesh.size(k), lengths[placement.dim]
            largest = -(-length // parts)
            lengths[placement.dim] = length - (parts - 1) * largest
            if lengths[placement.dim] <= 0:
                return 0.0
            least = min(least, lengths[placement.dim] / largest)
    return least


@contextmanager
def replicating(on: bool = True) -> Iterator[None]:
    """Context in which PyTorch takes a plain tensor beside a DTensor for a copy that every process has, or does not.

    Rules and kernels make such tensors, of shapes and numbers alone. What users give is another matter.
    """
    before = _DISPATCHER._allow_implicit_replication
    _DISPATCHER._allow_implicit_replication = on
    try:
        yield
    finally:
        _DISPATCHER._allow_implicit_replication = before


def sweeping() -> AbstractContextManager[None]:
    """Return the context around a backward sweep, in which a new program has compared what it sends."""
    compared = compared_sweep()
    return replicating() if compared is None else _comparing(compared)


@contextmanager
def _comparing(compared: AbstractContextManager[Any]) -> Iterator[None]:
    with replicating(), compared:
        yield


def _lacking(error: Exception) -> str | None:
    """Return what PyTorch lacks, if that is why it raised an error; None for errors of other kinds.

    Such an error is raised from layouts alone, before any process computes or communicates: so by all of them.
    """
    while isinstance(error.__context__, NotImplementedError):  # a kernel has tried another way in vain
        error = error.__context__
    text = str(error).partition("\n")[0]
    if any([words in str(error) for words in _LACKS]):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    where = frames[-1].filename.replace("\\", "/") if frames else ""
    if "/torch/distributed/tensor/" in where:
        return text or f"{type(error).__name__} in {where.rpartition('/')[2]}"
    return None


def _on_whole_arrays(
    name: str, kernel: Callable[..., Any], mesh: DeviceMesh, args: Any, kwargs: Any, cause: str
) -> Any:
    """Compute in each process on the whole arrays, of which each result is a copy there."""
    parts = [x for x in tree_leaves((args, kwargs)) if isinstance(x, DTensor) and not is_here(x) and x.numel()]
    if parts and name not in gathered:
        gathered[name] = cause
        nbytes = sum([x.numel() * x.element_size() for x in parts])
        warn_user(
            f"PyTorch cannot divide {name} among processes: it is computed in each on the whole arrays, here of "
            f"{nbytes:,} bytes, which are brought together first ({cause}). This is said once for each op"
        )
    args, kwargs = tree_map_only(DTensor, _whole, (args, kwargs))
    return tree_map_only(torch.Tensor, lambda x: as_copy(x, mesh), kernel(*args, **kwargs))


def _whole(x: Any) -> torch.Tensor:
    whole = x.full_tensor()
    return whole.wait() if isinstance(whole, AsyncCollectiveTensor) else whole


def _settled(x: Any) -> Any:
    """Return a result without means, products or extremes that are still to be taken; of one number, nor a sum."""
    return x if is_left(x._spec) else added_up(x)


def on_parts_alike(
    function: Callable[..., tuple[torch.Tensor, ...]], arrays: tuple[Any, ...], large: list[bool]
) -> tuple[Any, ...]:
    """Call an elementwise function of arrays of one shape, and of numbers, on the parts that this process has.

    Args:
        function: gets the parts, and returns arrays of their shape.
        arrays: DTensors, plain tensors and numbers.
        large: for each whether it has the shape; the others are numbers.
    """
    first = added_up(next(x for x, is_large in zip(arrays, large, strict=True) if is_large and type(x) is DTensor))
    mesh, placements = first.device_mesh, first.placements
    here = (Replicate(),) * mesh.ndim
    parts = []
    with torch.no_grad():  # in which PyTorch hands out a part as it is
        for x, is_large in zip(arrays, large, strict=True):
            if isinstance(x, torch.Tensor):
                if type(x) is not DTensor:
                    x = copy_on(mesh, x, "in a compiled function")
                places = placements if is_large else here
                x = part_of(x if x.placements == places else x.redistribute(mesh, places))
            parts.append(x)
    stride, spec = first.stride(), first._spec
    return tuple([
        # `from_local` makes a view, which keeps the part itself alive: nobody could write over that.
        with_spec(x, spec) if x.dtype is first.dtype and not x.requires_grad else
        DTensor.from_local(x, mesh, placements, run_check=False, shape=first.shape, stride=stride)
        for x in function(*parts)
    ])  # fmt: skip


def _by_examples(name: str, kernel: Callable[..., Any], mesh: DeviceMesh, args: Any, kwargs: Any) -> Any:
    """Call the kernel of a convolution on this process's examples; on the whole arrays if it has not a part of them."""
    given = [x for x in args if isinstance(x, DTensor)]
    parts = [x for k, x in enumerate(given) if k not in _BY_EXAMPLE[name]]
    others = [x for k, x in enumerate(given) if k in _BY_EXAMPLE[name]]
    placements = parts[0].placements
    count = math.prod([mesh.size(k) for k, p in enumerate(placements) if p.is_shard()])
    if (
        count == 1
        or any([p.is_shard() and not p.is_shard(0) for p in placements])
        or any([x.placements != placements or x.shape[0] % count for x in parts])
    ):
        cause = "of a convolution each process computes whole examples, of which all have the same number"
        return _on_whole_arrays(name, kernel, mesh, args, kwargs, cause)
    whole = {id(x): whole_weight(x) for x in others}  # gathered, and not the batch, as FSDP does
    args, kwargs = tree_map_only(DTensor, lambda x: part_of(whole.get(id(x), x)), (args, kwargs))
    if not others:  # a sum over all examples
        placements = tuple([Partial() if p.is_shard() else p for p in placements])
    return DTensor.from_local(kernel(*args, **kwargs), mesh, placements, run_check=False)


def _by_lines(
    kernel: Callable[..., Any], mesh: DeviceMesh, arrays: list[DTensor], like: DTensor, args: Any, kwargs: Any
) -> DTensor | None:
    """Call a kernel on this process's lines along an axis; return None if the lines themselves are divided.

    Args:
        arrays: the arguments that are arrays, of the shape of `like`, which may be longer along the axis, or of that
            without the axis.
        like: has the lines.
    """
    axis = kwargs.get("axis", -1)
    if type(axis) is not int or not -like.ndim <= axis < like.ndim or not like.numel():
        return None
    axis %= like.ndim
    if any([p.is_partial() or p.is_shard(axis) for p in like.placements]):
        return None
    outside = [n for k, n in enumerate(like.shape) if k != axis]
    laid_out: dict[int, torch.Tensor] = {}
    for x in arrays:
        is_shorter = x.ndim < like.ndim
        if [n for k, n in enumerate(x.shape) if is_shorter or k != axis] != outside:
            return None
        own = [Shard(p.dim - 1) if isinstance(p, Shard) and is_shorter and p.dim > axis else p for p in like.placements]
        laid_out[id(x)] = part_of(x if x.placements == tuple(own) else x.redistribute(mesh, own))
    args, kwargs = tree_map_only(DTensor, lambda x: laid_out[id(x)], (args, kwargs))
    part = kernel(*args, **kwargs)
    shape = torch.Size([part.shape[k] if k == axis else n for k, n in enumerate(like.shape)])
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(part, mesh, like.placements, run_check=False, shape=shape, stride=stride)


def settled(array: Any, former: Any) -> Any:
    """Return a new value of a Variable in the layout of the former one, if that is divided.

    Which layout PyTorch gives to a result depends on what the result is computed of: a mean is left as summands, say.
    """
    if is_divided(former):
        forget(former)
        names_change()
        if type(array) is DTensor and array._spec is former._spec:
            return array
    else:
        return added_up(array) if is_divided(array) else array
    if not is_divided(array):
        if not isinstance(array, torch.Tensor):
            return array
        array = copy_on(former.device_mesh, array, "the new value of a Variable")
    if array.device_mesh == former.device_mesh and tuple(array.placements) == tuple(former.placements):
        return array
    return array.redistribute(former.device_mesh, former.placements)
