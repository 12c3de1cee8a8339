"""A group of elementwise calls as the source of a function of one block."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tape_compile.extend import Argument, Instruction, Ref, Role
from tape_core.support import identifier

from tape_numpy.compiler_support.calls import Step, step_of
from tape_numpy.compiler_support.tiles import Tiling
from tape_numpy.kernels import KERNELS, has_line_sums, line_sums

if TYPE_CHECKING:
    from tape_compile.extend import Group

_RESERVED_NAMES = re.compile(
    r"[tw]*[xobrk]\d+|[ijk]|places|inputs|outputs|buffers|line|block|dtype\d+"
)  # names in the source
_SUM, _MAX, _MIN = (KERNELS[name] for name in ("sum", "max", "min"))


class BlockCode:
    """The source of `block(places, i, j, k, inputs, outputs, buffers)`, which computes block k.

    The block is from i to j on the axis that is cut, at these `places` on the axes before it. In the source x5 is input
    5, o5 result 5 that is needed outside, b0 a buffer, r5 one number or element for each line, t5 and w* what several
    lines are taken together in.

    Args:
        group: the calls.
        tiling: the axes of their arrays.
        dead, spare: the numbers of inputs that results may be written over; temporaries take the memory of spare ones.

    Attributes:
        buffers: the dtypes of temporaries.
        names: the objects that the source refers to, by name.
        over: by the number of a result the input over which it is written.
        repeated: the numbers of inputs that are passed a second time, at the end, as `Tiling.repeat_line` makes them.
    """

    def __init__(self, group: Group, tiling: Tiling, dead: Sequence[int], spare: Sequence[int]) -> None:
        self.group = group
        self.tiling = tiling
        self.repeated: list[int] = []
        self._long_line_names: dict[str, None] = {}  # blocks that are used with several lines taken as one
        self.buffers: list[Any] = []
        self.names: dict[str, Any] = {
            "__name__": __name__, "copyto": np.copyto, "where": np.where, "line_sums": line_sums,
            "add_reduce": np.add.reduce, "maximum_reduce": np.maximum.reduce, "minimum_reduce": np.minimum.reduce,
        }  # fmt: skip
        self._output_places = {number: n for n, number in enumerate(group.outputs)}
        # Results of the group's shape, which are written block by block; the others have one number for each line or
        # block.
        self._large = [k for k in group.outputs if k not in group.sums and k not in group.lines]
        self._variable: dict[int, str] = {k: f"x{k}" for k in group.inputs}
        self._body: list[str] = []
        self._last = {k: at for at, instruction in enumerate(group.instructions) for k in instruction.inputs}
        self.over: dict[int, int] = self._choose_overwritten_inputs([*dead, *spare])
        self._spare = {k for k in spare if k not in self.over.values() and group.specs[k].shape == group.shape}
        self._generate()

    def _choose_overwritten_inputs(self, free: list[int]) -> dict[int, int]:
        """Map each result to an input of its shape and dtype that nothing needs by the time that it is computed."""
        specs, found = self.group.specs, {}
        for at, instruction in enumerate(self.group.instructions):
            step = step_of(instruction)
            if instruction.out in self._large and step is not None and not _writes_before_reading(instruction):
                # A `where` is two masked copies, and the first would overwrite what the second reads. A ufunc may write
                # over its own operand: NumPy handles arrays that are the same memory element by element.
                alike = [k for k in free if specs[k] == specs[instruction.out] and self._last[k] <= at]
                if alike:
                    found[instruction.out] = alike[0]
                    free.remove(alike[0])
        return found

    def _generate(self) -> None:
        group, specs = self.group, self.group.specs
        last = self._last
        # The block of a result serves temporaries until the result is computed: the last may be its own operands.
        until = {
            f"o{i.out}": at - _writes_before_reading(i)
            for at, i in enumerate(group.instructions)
            if i.out in self._large
        }
        # By dtype the variables, of results and of buffers, whose blocks hold nothing that is needed: they are written
        # over before another buffer is made, so that all of a block stays in the cache.
        free: dict[Any, list[str]] = {}
        for number in [k for k in self._large if k not in self.over]:
            free.setdefault(specs[number].dtype, []).append(f"o{number}")
        for at, instruction in enumerate(group.instructions):
            number, role = instruction.out, group.roles[instruction.out]
            # Operands that this call is the last to read. Inputs (x5) are not ours to write to, but for the spare ones;
            # the variable of a broadcast is that of the smaller array.
            done = [
                k
                for k in dict.fromkeys(instruction.inputs)
                if last[k] == at and k in group.made and k not in self._output_places and self._variable[k][0] in "bo"
                if k not in group.spread and k not in group.lines
            ]
            done += [k for k in dict.fromkeys(instruction.inputs) if last[k] == at and k in self._spare]
            step = step_of(instruction)
            at_once = not _writes_before_reading(instruction)
            done += [k for k, given in self.over.items() if last[given] == at and k != number]
            if at_once:
                self._release(done, free)
            if role in ("sum", "line", "short", "view"):
                self._write_short_call(instruction, role, step)
            elif step is None:  # broadcast_to
                self._variable[number] = self._source_of(instruction.args[0])
                if number in self._output_places:
                    self._body.append(f"o{number}[...] = {self._variable[number]}")
            else:
                slots = free.setdefault(specs[number].dtype, [])
                if number in self._output_places:
                    target = f"o{number}"
                else:
                    lasts = last.get(number, at)
                    target = next((s for s in reversed(slots) if until.get(s, lasts) >= lasts), "")
                    if not target:
                        target = f"b{len(self.buffers)}"
                        self.buffers.append(specs[number].dtype)
                if target in slots:
                    slots.remove(target)
                # NumPy runs one inner loop a line: over short lines, to which a bias, say, is broadcast, the loops' own
                # costs prevail.
                given = self._args_as_long_lines(step.args) if role == "mixed" else None
                if given is not None:
                    self._write_elementwise_call(step, given, self._as_long_lines(target))
                else:
                    self._write_elementwise_call(step, [self._source_of(arg) for arg in step.args], target)
                self._variable[number] = target
            if not at_once:
                self._release(done, free)

    def _release(self, done: list[int], free: dict[Any, list[str]]) -> None:
        """Free the blocks of results that nothing needs any more, or that later steps compute."""
        for k in done:
            free.setdefault(self.group.specs[k].dtype, []).append(self._variable.get(k, f"o{k}"))

    def _args_as_long_lines(self, args: list[Any]) -> list[str] | None:
        """Arguments with several lines taken as one; None where they cannot be.

        They can where the smaller ones are short lines that are broadcast to several.
        """
        numbers = [arg.id for arg in args if type(arg) is Ref and self.group.specs[arg.id].shape != ()]
        small = [k for k in numbers if self.group.specs[k].shape != self.group.shape]
        if any([k in self.group.made or not self.tiling.needs_repeating(self._joined_shape(k)) for k in small]):
            return None
        if not self.group.spread.isdisjoint(numbers):
            return None
        self.repeated += [k for k in dict.fromkeys(small) if k not in self.repeated]
        return [
            f"t{arg.id}"
            if type(arg) is Ref and arg.id in small
            else self._as_long_lines(self._variable[arg.id])
            if type(arg) is Ref and arg.id in numbers
            else self._source_of(arg)
            for arg in args
        ]

    def _joined_shape(self, k: int) -> tuple[int, ...]:
        return self.tiling.joined_shape(self.group.seen[k])

    def _as_long_lines(self, name: str) -> str:
        self._long_line_names[name] = None
        return f"w{name}"

    def _write_elementwise_call(self, step: Step, given: list[str], target: str) -> None:
        kind, function = step.kind, step.function
        if kind == "copy":
            # As `astype` does, which takes no `out=`; nor does np.where, whose result is put together by a mask.
            self._body.append(f'copyto({target}, {given[0]}, casting="unsafe")')
        elif kind == "where":
            self._body.append(f"copyto({target}, {given[2]})")
            self._body.append(f"copyto({target}, {given[1]}, where={given[0]})")
        else:
            self._body.append(f"{self._named(function)}({', '.join(given)}, out={target})")

    def _named(self, function: np.ufunc) -> str:
        """A name for a function in the source: NumPy and SciPy have several of one name."""
        wanted = identifier(function.__name__, "f")
        name, n = f"{wanted}_" if _RESERVED_NAMES.fullmatch(wanted) else wanted, 2
        while self.names.setdefault(name, function) is not function:
            name, n = f"{wanted}_{n}", n + 1
        return name

    def _write_short_call(self, instruction: Instruction, role: Role, step: Step | None) -> None:
        """Write a call whose result has one element for each line, or is one number."""
        number = instruction.out
        if role == "sum":
            self._body.append(
                f"outputs[{self._output_places[number]}][k] = add_reduce({self._source_of(instruction.args[0])})"
            )
            return
        self._variable[number] = name = f"r{number}"
        if role == "view":
            (k,) = set(instruction.inputs)
            call = self._variable[k]
        elif role == "line":
            x = self._source_of(instruction.args[0])
            if instruction.fn is _SUM and has_line_sums(self.group.shape):
                call = f"line_sums({x}.reshape(-1, {self.group.shape[-1]})).reshape(line)"
            else:
                function = {_SUM: "add", _MAX: "maximum", _MIN: "minimum"}[instruction.fn]
                call = f"{function}_reduce({x}, axis=-1, keepdims=True)"
        else:
            assert step is not None  # as `role` has seen
            given = [self._source_of(arg) for arg in step.args]
            if step.kind == "copy":
                dtype = f"dtype{len(self.names)}"
                self.names[dtype] = self.group.specs[number].dtype
                call = f"{given[0]}.astype({dtype})"
            else:
                call = f"{self._named(step.function)}({', '.join(given)})"
        self._body.append(f"{name} = {call}")
        if number in self._output_places:
            self._body.append(f"o{number}[...] = {name}")

    def _source_of(self, arg: Argument) -> str:
        if type(arg) is Ref:
            return self._variable[arg.id]
        # Infinities, NaN and NumPy scalars have no literal: they get a name.
        if isinstance(arg, bool | int) or (type(arg) is float and math.isfinite(arg)):
            return repr(arg)
        name = f"k{len(self.names)}"
        self.names[name] = arg
        return name

    def text(self) -> str:
        """The source, for the blocks of the tiling."""
        group, specs, tiling = self.group, self.group.specs, self.tiling
        lines = ["def block(places, i, j, k, inputs, outputs, buffers):"]
        for n, number in enumerate(group.inputs):
            shape = specs[number].shape
            cut = f"inputs[{n}]"
            if shape == group.shape:  # an array of one number everywhere is passed as that number
                cut = f"{cut}{_key(tiling, tiling.lengths)} if {cut}.shape else {cut}"
            elif shape:
                cut += _key(tiling, self._joined_shape(number))
            lines.append(f"x{number} = {cut}")
        for number, n in self._output_places.items():
            if number not in group.sums:
                seen = (*tiling.lengths[:-1], 1) if number in group.lines else tiling.lengths
                lines.append(f"o{number} = outputs[{n}]{_key(tiling, seen)}")
        after = tiling.lengths[tiling.axis + 1 :]
        block_shape = ", ".join(["j - i", *map(str, after)])
        for n in range(len(self.buffers)):
            cut = f"buffers[{n}][: j - i]"
            if after:
                cut = f"buffers[{n}][: (j - i) * {tiling.inner}].reshape({block_shape})"
            lines.append(f"b{n} = {cut}")
        for n, number in enumerate(self.repeated):
            lines.append(f"t{number} = inputs[{len(group.inputs) + n}]{_key(tiling, self._joined_shape(number))}")
        lines += [
            f"w{name} = {name}.reshape({tiling.long_line_shape}) if {name}.shape else {name}"
            for name in self._long_line_names
        ]
        if group.lines:
            lines.append(f"line = ({', '.join(['j - i', *map(str, after[:-1])])}, 1)")
        return "\n    ".join([*lines, *self._body]) + "\n"


def _writes_before_reading(instruction: Instruction) -> bool:
    """Return whether the result is written before all operands are read."""
    step = step_of(instruction)
    return step is not None and step.kind == "where"


def _key(tiling: Tiling, seen: tuple[int, ...]) -> str:
    """The key of a block in an array with these lengths, or 1 where it is broadcast, as source."""
    axis = tiling.axis
    parts = [f"places[{k}]" if seen[k] == tiling.lengths[k] else "0" for k in range(axis)]
    parts.append("i:j" if seen[axis] == tiling.lengths[axis] else ":")
    return f"[{', '.join(parts)}]"
