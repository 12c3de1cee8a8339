"""Fusion of elementwise calls in compiled functions: on the CPU block by block, so that temporaries stay in the cache.

Only functions that round correctly, or not at all, are fused, and the formulas of updates, whose multiplications and
additions PyTorch rounds alike in all places: the results of others may depend on where in memory an element lies, since
PyTorch computes the ends of an array by other code than its middle. Tensors of one block, on an accelerator, or not
contiguous are computed whole.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import torch
from tape_compile.extend import Argument, Instruction, LibrarySupport, Overwrites, Raw, Ref, Role, Specs
from tape_core.support import Call, generated, identifier

from tape_torch.divided import is_divided_kind
from tape_torch.kernels import KERNELS
from tape_torch.overwriting import formulas
from tape_torch.thresholds import BLOCK_ELEMENTS_PER_THREAD
from tape_torch.updates import FORMULAS

if TYPE_CHECKING:
    from tape_compile.extend import Group
    from tape_compile.program import Spec


_FLOATS = frozenset({torch.float32, torch.float64})
# Functions that are fused -> PyTorch's function with `out=`.
_OUT_VARIANTS: dict[Any, Any] = {
    operator.add: torch.add, operator.sub: torch.sub, operator.mul: torch.mul, operator.truediv: torch.div,
    operator.neg: torch.neg, operator.abs: torch.abs,
    **{KERNELS[name]: getattr(torch, name) for name in ("abs", "add", "divide", "maximum", "minimum", "multiply")},
    **{KERNELS[name]: getattr(torch, name) for name in ("negative", "sqrt", "square", "subtract")},
    **{formula: formula for formula in FORMULAS.values()},
}  # fmt: skip
_WITHOUT_OUT = frozenset({KERNELS["sign"]})  # fused, but it has no `out=`
# torch.maximum and torch.minimum take no number: with one, the kernels call clamp.
_TENSORS_ONLY = frozenset({KERNELS["maximum"], KERNELS["minimum"]})
_IN_PLACE = ("wait_tensor", "all_reduce_")  # collectives that return their argument
_PRODUCTS = (operator.matmul, KERNELS["matmul"])

_files = count()


def _function(instruction: Instruction) -> Any:
    """Return what an instruction calls; of one on arrays that are divided among processes, what it calls on parts."""
    return getattr(instruction.fn, "unguarded", instruction.fn)


def _is_known(instruction: Instruction) -> bool:
    fn, args = _function(instruction), instruction.args
    if instruction.kwargs or not args or type(args[0]) is not Ref:
        return False
    try:
        known = fn in _OUT_VARIANTS or fn in _WITHOUT_OUT
    except TypeError:
        return False
    if fn in _TENSORS_ONLY and type(args[1]) is not Ref:
        return False
    return known and all([type(arg) in (Ref, int, float) for arg in args])


def _can_fuse(instruction: Instruction, specs: Specs) -> bool:
    spec = specs[instruction.out]
    if spec.kind is not torch.Tensor and not is_divided_kind(spec.kind):
        return False
    if spec.dtype not in _FLOATS or not _is_known(instruction):
        return False
    first, *others = [specs[k] for k in instruction.inputs]
    if first != spec:
        return False
    return all([s == spec or (s.kind is float or (s.shape == () and s.dtype is spec.dtype)) for s in others])


def _is_product(instruction: Instruction, specs: Specs) -> bool:
    """Return whether a call is a product of two matrices, whose result is new, and lies row by row."""
    if instruction.kwargs or _function(instruction) not in _PRODUCTS:
        return False
    args = instruction.args
    if type(instruction.out) is not int or len(args) != 2 or not all([type(arg) is Ref for arg in args]):
        return False
    found = [specs[k] for k in (instruction.out, *instruction.inputs)]
    return all([s.kind is torch.Tensor and s.dtype is found[0].dtype and len(s.shape) == 2 for s in found])


class _Blocks:
    """The instructions of a group as one generated function, which runs block by block.

    Attributes:
        own: the ids of results that have memory of their own.
        targets: id of a result -> id of an input whose memory it may overwrite.
    """

    def __init__(self, group: Group, targets: dict[int, int]) -> None:
        self.__name__ = "fused"
        self.group = group
        self.own = list(group.outputs)
        self.targets = targets
        self.cut = [group.specs[k].shape == group.shape for k in group.inputs]
        self.names: dict[str, Any] = {"__name__": __name__}
        self.text = self._source()
        self.on_block = generated(self.text, "block", f"<tape_torch: fused, {next(_files)}>", self.names)

    def over(self, dead: Sequence[int], spare: Sequence[int]) -> _Blocks:
        """Return this function with results written into the memory of inputs that are dead by then."""
        # A result may take the memory of an input of its shape and dtype that no later instruction reads.
        specs, found = self.group.specs, {}
        last = {k: at for at, instruction in enumerate(self.group.instructions) for k in instruction.inputs}
        free = [*dead, *spare]
        for at, instruction in enumerate(self.group.instructions):
            alike = [k for k in free if specs[k] == specs[instruction.out] and last[k] <= at]
            if instruction.out in self.group.outputs and alike:
                found[instruction.out] = alike[0]
                free.remove(alike[0])
        return _Blocks(self.group, found)

    def __call__(self, *arrays: Any, out: Sequence[torch.Tensor | None] | None = None) -> tuple[Any, ...]:
        # Views of parts: one block of each array at a time, so that the temporaries of a block stay in the cache.
        given = out or [None] * len(self.group.outputs)
        like = arrays[self.cut.index(True)]
        size = BLOCK_ELEMENTS_PER_THREAD * torch.get_num_threads()
        cut = [array for array, is_cut in zip(arrays, self.cut, strict=True) if is_cut]
        in_rows = all([array.is_contiguous() for array in cut])
        if like.device.type != "cpu" or like.numel() <= size or not in_rows:
            if not in_rows:
                # Results lie as these do, and not as memory of former values, which is no argument.
                given = [x if x is None or any([x is array for array in arrays]) else None for x in given]
            return self.on_block(*arrays, *given)  # type: ignore[no-any-return]
        whole: list[Any] = [torch.empty_like(like) if target is None else target for target in given]
        # split() makes views: results are written into their places in `whole`.
        columns = [
            array.view(-1).split(size) if is_cut else None for array, is_cut in zip(arrays, self.cut, strict=True)
        ]
        results = [array.view(-1).split(size) for array in whole]
        for k in range(len(results[0])):
            parts = [array if c is None else c[k] for array, c in zip(arrays, columns, strict=True)]
            self.on_block(*parts, *[column[k] for column in results])
        return tuple(whole)

    def _literal(self, number: float) -> str:
        if math.isfinite(number):
            return repr(number)
        name = f"number{len(self.names)}"
        self.names[name] = number
        return name

    def _source(self) -> str:
        """Return the source of `block(inputs..., outputs...)`; an output that is None is allocated."""
        group = self.group
        # Names: x for inputs, o for outputs, t for temporaries, each with the value's id. A temporary is reused as the
        # target of the call that reads it last, and deleted otherwise.
        outs = {number: f"o{number}" for number in group.outputs}
        place = {number: f"x{number}" for number in group.inputs}
        last = {k: at for at, instruction in enumerate(group.instructions) for k in instruction.inputs}
        lines = [f"def block({', '.join([*place.values(), *outs.values()])}):"]
        for at, instruction in enumerate(group.instructions):
            number, fn = instruction.out, _function(instruction)
            args = ", ".join([place[arg.id] if type(arg) is Ref else self._literal(arg) for arg in instruction.args])
            dying = [place[k] for k in instruction.inputs if last[k] == at and place[k][0] == "t"]
            target = outs.get(number) or (dying[0] if dying else None)
            place[number] = outs.get(number, f"t{number}")
            name = f"{identifier(instruction.name, 'f')}_{'into' if fn in _OUT_VARIANTS else 'of'}"
            while self.names.setdefault(name, _OUT_VARIANTS.get(fn, fn)) is not _OUT_VARIANTS.get(fn, fn):
                name = f"{name}_2"  # another function by this name
            call = f"{name}({args}, out={target})" if fn in _OUT_VARIANTS and target else f"{name}({args})"
            lines.append(f"    {place[number]} = {call}")
            if fn not in _OUT_VARIANTS and number in outs:
                lines[-1] = f"    {place[number]} = {call} if {target} is None else {target}.copy_({call})"
            # Deleted as soon as it is read for the last time: else all temporaries of a block would live until its end.
            if done := sorted({place[k] for k in instruction.inputs if last[k] == at and place[k][0] == "t"}):
                lines.append(f"    del {', '.join(done)}")
        lines.append(f"    return ({', '.join(outs.values())},)")
        return "\n".join(lines) + "\n"


def calls_over(group: Group, over: Mapping[int, int]) -> Overwrites | None:
    """Return what makes the calls of a group that write its results over inputs, block by block as `_Blocks` does.

    Args:
        over: by the number of each result that of an input; nothing reads that after the result is there.
    """
    last = {k: at for at, line in enumerate(group.instructions) for k in line.inputs}
    made = {line.out: at for at, line in enumerate(group.instructions)}
    if any([last[own] > made[k] for k, own in over.items()]) or set(over) != set(group.outputs):
        return None
    if any([_function(line) in _WITHOUT_OUT for line in group.instructions]):
        return None
    cut = [group.specs[k].shape == group.shape for k in group.inputs]

    def overwrites(arrays: Sequence[Any]) -> tuple[list[Call], int] | None:
        size = BLOCK_ELEMENTS_PER_THREAD * torch.get_num_threads()
        whole = [array for array, is_cut in zip(arrays, cut, strict=True) if is_cut]
        if not all([array.is_contiguous() for array in whole]):
            return None  # results lie otherwise
        blocks = [array.view(-1).split(size) if is_cut else None for array, is_cut in zip(arrays, cut, strict=True)]
        pieces = -(-whole[0].numel() // size)
        calls: list[Call] = []
        room: list[Any] = []  # what is in between, in each block the same memory
        example = whole[0].view(-1)[:size]
        by_name = formulas(example, calls)
        for n in range(pieces):
            values: dict[int, Any] = {
                k: array if block is None else block[n]
                for k, array, block in zip(group.inputs, arrays, blocks, strict=True)
            }
            free, lent, length = [*room], dict[int, Any](), min(size, whole[0].numel() - n * size)
            for at, line in enumerate(group.instructions):
                args = [values[arg.id] if type(arg) is Ref else arg for arg in line.args]
                ended = [k for k in dict.fromkeys(line.inputs) if k in lent and last[k] == at]
                if line.out in over:
                    out = values[over[line.out]]
                else:
                    if not free:
                        free.append(torch.empty_like(example))
                        room += free
                    lent[line.out] = free.pop()
                    out = lent[line.out][:length]
                fn = cast(Any, _OUT_VARIANTS[_function(line)])
                name = fn.__name__
                if FORMULAS.get(name) is fn:
                    by_name[name](*args, out=out)
                else:
                    calls.append(partial(fn, *args, out=out))
                values[line.out] = out
                free += [lent.pop(k) for k in ended]
        return calls, pieces

    return overwrites


class OnParts(_Blocks):
    """The instructions of a group on arrays that are divided among processes, on the parts that this one has.

    PyTorch looks up for each op how its arrays are divided, which takes longer than the op on small arrays; here it is
    looked up once.
    """

    def over(self, dead: Sequence[int], spare: Sequence[int]) -> _Blocks:
        """Return this function: its results have memory of their own."""
        return self

    def __call__(self, *arrays: Any, out: Sequence[torch.Tensor | None] | None = None) -> tuple[Any, ...]:
        from tape_torch.divided_kernels import on_parts_alike
        from tape_torch.divided_sends import followed

        call = partial(on_parts_alike, self.on_parts, large=self.cut)
        return followed(self.__name__, call, (arrays,), {})  # type: ignore[no-any-return]

    def into(self, dead: Sequence[int]) -> _Blocks:
        """Return the function of parts, with results written into the memory of inputs that are dead by then."""
        return super().over(dead, ())

    def on_parts(self, *parts: Any) -> tuple[Any, ...]:
        """Call the instructions on tensors of this process."""
        return super().__call__(*parts)


# -- sums of scattered parts


def joined(axis: int, *parts: Any) -> Any:
    """Concatenate parts; -0 becomes 0, as in the sum with zeros that this replaces."""
    return torch.cat(parts, axis).add_(0)


def placed(shape: tuple[int, ...], keys: list[Any], *parts: Any) -> Any:
    """Return zeros with each part added at its key."""
    out = torch.zeros(shape, dtype=parts[0].dtype, device=parts[0].device)
    for key, part in zip(keys, parts, strict=True):
        # Keys are boxes of slices and integers, so none names an element twice (see the pass merge_scatters).
        out[key] += part
    return out


def product(a: Any, b: Any, *, out: torch.Tensor | None = None) -> Any:
    """Return the product of two matrices, in memory that is given."""
    if out is None or a.requires_grad or b.requires_grad:
        return torch.mm(a, b)
    return torch.mm(a, b, out=out)


class TorchSupport(LibrarySupport):
    """Calls with `out=`, and functions that take large tensors block by block."""

    joined = staticmethod(joined)
    placed = staticmethod(placed)

    def can_place(self, spec: Spec) -> bool:
        # What PyTorch writes into a part of a DTensor is lost. Scatters of such are computed line by line.
        return not is_divided_kind(spec.kind)

    def role(self, instruction: Instruction, specs: Specs, group: Group | None) -> Role | None:
        if group is not None:
            out, first = specs[instruction.out], specs[group.instructions[0].out]
            # Beside divided arrays plain ones would come out as copies of them, which are divided arrays, too.
            if out.shape != group.shape or is_divided_kind(out.kind) is not is_divided_kind(first.kind):
                return None
        return "each" if _can_fuse(instruction, specs) else None

    def fused(self, group: Group) -> _Blocks:
        divided = is_divided_kind(group.specs[group.instructions[0].out].kind)
        return OnParts(group, {}) if divided else _Blocks(group, {})

    def can_be_divided(self, spec: Spec) -> bool:
        return is_divided_kind(spec.kind)

    def is_slow(self, spec: Spec) -> bool:
        return is_divided_kind(spec.kind)

    def gives_new(self, instruction: Instruction, specs: Specs) -> bool:
        if _is_product(instruction, specs):
            return True
        alone = type(instruction.out) is int and not instruction.effect and _can_fuse(instruction, specs)
        return alone and not is_divided_kind(specs[instruction.outputs[0]].kind)

    def is_in_rows(self, instruction: Instruction, specs: Specs) -> bool:
        return _is_product(instruction, specs)

    def into(self, instruction: Instruction) -> tuple[Callable[..., Raw], list[Argument]] | None:
        if not _is_known(instruction) or instruction.fn not in _OUT_VARIANTS:
            return None
        return _OUT_VARIANTS[instruction.fn], list(instruction.args)

    def takes_memory(self, instruction: Instruction, specs: Specs) -> Callable[..., Raw] | None:
        fn: Any = instruction.fn
        if type(fn) is _Blocks:
            return fn
        owner = getattr(fn, "__self__", None)
        if type(owner) is OnParts:
            return owner.into(())
        is_product = fn is torch.ops.aten.mm.default or _is_product(instruction, specs)
        return product if is_product and not instruction.kwargs else None

    def overwrites(self, instruction: Instruction, over: Mapping[int, int]) -> Overwrites | None:
        fn: Any = instruction.fn
        fused = fn if isinstance(fn, _Blocks) else getattr(fn, "__self__", None)  # of parts: `OnParts.on_parts`
        if not isinstance(fused, _Blocks):
            return None
        given = {arg.id: k for arg, k in zip(instruction.args, fused.group.inputs, strict=True) if type(arg) is Ref}
        results = dict(zip(instruction.out, fused.group.outputs, strict=True))
        return calls_over(fused.group, {results[k]: given[own] for k, own in over.items()})

    def lies_in(self, instruction: Instruction, value: int) -> int | None:
        fn: Any = instruction.fn
        if "c10d" in getattr(fn, "namespace", "") and fn._schema.name.partition("::")[2] in _IN_PLACE:
            return instruction.inputs[0]
        return None


SUPPORT = TorchSupport()
