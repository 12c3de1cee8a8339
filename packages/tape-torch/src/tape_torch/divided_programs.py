"""Compiled functions of arrays that are divided among processes, as calls on the parts that this one has.

PyTorch looks up for each op on DTensors how its arrays are divided, and what is to be sent. In a compiled function that
is the same in each run. So in the third call the layout of each value is noted, and each instruction is run once
more on tensors that hold no values, which tells what PyTorch computes with parts, and sends. From these calls a program
is made, of tensors of this process alone, which runs from the fourth call on.

In it collectives are not waited for where they begin:

- what waits for summands, and what is computed of them, comes after the collectives that follow: gradients are sent
  while others are made;
- a part that is gathered from the arguments, as a weight of `Sharded` is, is asked for before the one before it is
  used.

An instruction that cannot be run without values, or has an effect, stays as it is, and gets DTensors.

`TAPE_COMPILED_PARTS=0` leaves compiled functions as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from tape_compile.extend import (
    BRANCHES,
    EFFECTS,
    NUMBERS,
    Compiler,
    Instruction,
    Late,
    Program,
    Ref,
    Run,
    Source,
    Spec,
    results,
)
from tape_core.support import Lock, warn_user
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily
from torch.utils._pytree import tree_map_only

from tape_torch.blocks import OnParts
from tape_torch.compiled import without_memory
from tape_torch.divided import failed, is_divided_kind, own_part
from tape_torch.divided_copies import same_everywhere, told_by_all
from tape_torch.divided_kernels import on_parts_alike
from tape_torch.divided_origins import traced_last
from tape_torch.divided_schedule import Schedule
from tape_torch.divided_specs import with_spec
from tape_torch.votes import Standing, compare_now


class DividedPrograms(Compiler):
    """Offers code for compiled functions of divided arrays.

    Small arrays are added up together, which in more than two processes is another order of the sum than one by one.
    """

    supports = frozenset({EFFECTS, NUMBERS, BRANCHES})
    fuses = False

    def offer(self, program: Program, run: Run, examples: Sequence[Any]) -> Run | None:
        """Offer code for a program that has divided arrays, and no memory to overwrite."""
        given = [*program.inputs, *program.constants]
        if not any([is_divided_kind(program.specs[k].kind) for k in given]):
            return None
        if any([_overwrites(instruction) for instruction in program.instructions]):
            return None
        return _Later(program, run, traced_last())


def _overwrites(instruction: Instruction) -> bool:
    """Return whether a result is written into memory, which a group of divided arrays does not."""
    targets = instruction.kwargs.get("out", instruction.kwargs.get("in_place"))
    given = targets if isinstance(targets, tuple) else (targets,)
    return any([target is not None and target is not False for target in given])


Sent = tuple[int, list[str]]
"""A checksum of what a function sends, and the first of it as text."""


class _Layout(NamedTuple):
    """How a value lies that an instruction has made, or that is given.

    Attributes:
        spec: PyTorch's description of a DTensor, with its placements; None for a plain tensor.
        shape, stride, dtype, device: of the tensor that this process has.
        is_view: whether that is the conjugate or the negative of what is in memory.
    """

    spec: Any
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    is_view: bool


def _layout_of(value: Any) -> _Layout | None:
    """Return how a value lies; None for a number."""
    if not isinstance(value, torch.Tensor):
        return None
    array: Any = value
    part, spec = (own_part(array), array._spec) if type(array) is DTensor else (array, None)
    return _Layout(spec, tuple(part.shape), part.stride(), part.dtype, part.device, part.is_conj() or part.is_neg())


class _Later:
    """A program that is run as it is once, is noted in its second run, and has code of its own from the third on.

    The call that traces is no run. All processes count the same runs, so that all change over in the same one.
    """

    __name__ = "on parts"

    def __init__(self, program: Program, run: Run, sends: Sent | None) -> None:
        self._program = program
        self._run = run
        self._sends = sends
        self._runs = 0
        self._lock = Lock()
        self._made: _OnParts | None = None

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        try:
            return self._called(arrays)
        except RuntimeError as error:
            if (found := failed(error, "a compiled function")) is not None:
                raise found from error
            raise

    def _called(self, arrays: list[Any]) -> tuple[Any, ...]:
        if self._made is not None:
            return self._made(arrays)
        with self._lock.now:
            run = self._runs + 1
            if run <= 2 and self._sends is not None:
                compare_now(["a compiled function", *self._sends[1]])
            if run != 2:
                found = self._run(arrays)
            else:
                found, layouts = _noted(self._program, arrays)
                self._make(layouts)
            # Of the runs that fail in all processes, as they differ, none counts: each may have been another function.
            self._runs = run
            return found

    def _make(self, layouts: dict[int, _Layout | None]) -> None:
        """Make code of parts; where one process has none, or another one, all go on op by op, in one order."""
        made, told = None, ""
        try:
            made = _OnParts(self._program, layouts, self._run, self._sends)
            sent = made.sent
        except Exception as error:  # noqa: BLE001 - it is told below, once all know of it
            sent = told = f"{type(error).__name__}: {error}"
        if (mesh := _mesh_of(layouts)) is not None and not same_everywhere(sent, mesh):
            made, failures = None, {rank: one for rank, one in told_by_all(told, mesh).items() if one}
            told = "; ".join([f"{one} (rank {rank})" for rank, one in sorted(failures.items())])
            told = told or "the processes would send in different orders"
        self._made = made
        if told:
            warn_user(
                f"a compiled function of divided arrays is computed op by op, for Tape could not make code of its "
                f"parts, which is a fault of Tape's own: {told}"
            )


def _mesh_of(layouts: dict[int, _Layout | None]) -> DeviceMesh | None:
    """Return the mesh of all divided values; None where there are several."""
    meshes = {layout.spec.mesh for layout in layouts.values() if layout is not None and layout.spec is not None}
    return meshes.pop() if len(meshes) == 1 else None


def _noted(program: Program, arrays: list[Any]) -> tuple[tuple[Any, ...], dict[int, _Layout | None]]:
    """Run a program; return its results, and how each value lies."""
    values: dict[int, Any] = {**program.constants, **dict(zip(program.inputs, arrays, strict=True))}
    arrays.clear()
    layouts = {k: _layout_of(value) for k, value in values.items()}
    if program.spares is not None:
        program = program.spares.planned(program)
    last = {k: at for at, instruction in enumerate(program.instructions) for k in instruction.inputs}
    kept = {*program.outputs, *program.constants}
    for at, instruction in enumerate(program.instructions):
        args, kwargs = instruction.arguments(values)
        for k, value in results(instruction.out, instruction.fn(*args, **kwargs)):
            values[k] = value
            layouts[k] = _layout_of(value.old if type(value) is Late else value)
        del args, kwargs
        for k in {*instruction.inputs, *instruction.outputs} - kept:
            if last.get(k, at) == at:
                del values[k]
    return tuple([values[k] for k in program.outputs]), layouts


class _OnParts:
    """A program of the parts that this process has.

    Arguments in another layout than those of the run that was noted are computed with as they are, by `run`.

    Attributes:
        sent: what it sends, in order, as text: it must be the same in all processes.
    """

    __name__ = "on parts"

    def __init__(self, program: Program, layouts: dict[int, _Layout | None], run: Run, sends: Sent | None) -> None:
        self._run = run
        self._inputs = [layouts[k] for k in program.inputs]
        self._known = [None if layout is None else layout.spec for layout in self._inputs]
        outs = [layouts[k] for k in program.outputs]
        self._outputs = [None if layout is None or layout.spec is None else _Joined(layout) for layout in outs]
        self._spares = program.spares
        own, self._votes, self.sent = _program_of_parts(program, layouts, sends)
        self.source = Source(own if program.spares is None else program.spares.planned(own), "on_parts")

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        parts = []
        known = self._known
        for at, (array, spec, layout) in enumerate(zip(arrays, known, self._inputs, strict=True)):
            if spec is None:
                parts.append(array)
                continue
            if type(array) is not DTensor or (array._spec is not spec and array._spec != spec):
                parts.clear()
                if self._spares is not None:
                    self._spares.release()
                return self._run(arrays)
            known[at] = array._spec  # which is found sooner the next time
            assert layout is not None  # as it has a spec
            parts.append(_laid_down(own_part(array), layout))
        arrays.clear()
        if self._votes is not None:
            self._votes.begin()
        found = self.source.run(parts)
        return tuple(
            [
                value if wrap is None else value.wrapped(wrap) if type(value) is Late else wrap(value)
                for value, wrap in zip(found, self._outputs, strict=True)
            ]
        )


def _laid_down(part: Any, layout: _Layout) -> torch.Tensor:
    """Return a part that lies in memory as the one that was noted."""
    part = part.resolve_conj().resolve_neg()
    if part.stride() != layout.stride:
        part = torch.empty_strided(layout.shape, layout.stride, dtype=part.dtype, device=part.device).copy_(part)
    return part  # type: ignore[no-any-return]


class _Joined:
    """Makes the DTensor of a part, for an instruction that stays as it is, or of a result."""

    __name__ = "divided"

    def __init__(self, layout: _Layout) -> None:
        self._spec = layout.spec

    def __call__(self, part: torch.Tensor) -> Any:
        return with_spec(part, self._spec)

    def keeps(self, old: Any) -> bool:
        """Return whether an array is one that this makes of its part."""
        return type(old) is DTensor and (old._spec is self._spec or old._spec == self._spec)


class _Part:
    """Returns the part of what an instruction has made that stays as it is, in the layout that was noted."""

    __name__ = "part"

    def __init__(self, layout: _Layout) -> None:
        self._layout = layout

    def __call__(self, array: Any) -> torch.Tensor:
        spec = self._layout.spec
        if array._spec != spec:
            array = array.redistribute(spec.mesh, spec.placements)
        return _laid_down(own_part(array), self._layout)


# -- what is called of each instruction


class _NotRecordedError(Exception):
    """What an instruction computes with parts cannot be told without values."""


_AS_THEY_ARE = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})
"""Functions that return their argument, with other bookkeeping of PyTorch's."""

_VIEW = torch.ops.aten.view.default


class _Number:
    """Stands for a Python number, which is another one in each run."""

    def __init__(self, k: int) -> None:
        self.k = k


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the calls of PyTorch's functions of tensors that are not DTensors.

    Attributes:
        instructions: the calls so far.
        numbers: the number of each tensor, by its identity.
        constants: tensors with values, which are the same in each run.
    """

    def __init__(self, first: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.instructions: list[Instruction] = []
        self.numbers: dict[int, int] = {}
        self.constants: dict[int, torch.Tensor] = {}
        self.specs: dict[int, Spec] = {}
        self._next = first
        self._kept: list[Any] = []
        self.of: Any = None  # the instruction whose calls these are

    def number(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor; one with values is a constant."""
        found = self.numbers.get(id(tensor))
        if found is None:
            if getattr(tensor, "fake_mode", None) is not None:
                raise _NotRecordedError("a tensor that no call has made")
            found = self.give(tensor)
            self.constants[found] = tensor
        return found

    def give(self, tensor: torch.Tensor, number: int | None = None) -> int:
        """Give a tensor a number."""
        if number is None:
            number = self.fresh(Spec(torch.Tensor, tuple(tensor.shape), tensor.dtype))
        self.numbers[id(tensor)] = number
        self._kept.append(tensor)  # `numbers` has its identity
        return number

    def fresh(self, spec: Spec) -> int:
        """Return the number of a new value."""
        number, self._next = self._next, self._next + 1
        self.specs[number] = spec
        return number

    def call(self, fn: Any, args: Any, kwargs: Any, found: Any) -> None:
        """Note a call and its results."""
        refer = partial(tree_map_only, torch.Tensor, lambda tensor: Ref(self.number(tensor)))
        args, kwargs = refer(args), refer(kwargs)
        out = self._out(found)
        out = () if out is None else out
        is_effect = "c10d" in getattr(fn, "namespace", "") or getattr(getattr(fn, "_schema", None), "is_mutable", False)
        # The op's name, by which errors are told; a collective's own.
        name = fn._schema.name.rpartition("::")[2] if "c10d" in getattr(fn, "namespace", "") else self.of.name
        self.instructions.append(Instruction(name, fn, tuple(args), dict(kwargs), out, self.of.place, effect=is_effect))

    def _out(self, found: Any) -> Any:
        if isinstance(found, torch.Tensor):
            # What writes into an argument returns it.
            return None if id(found) in self.numbers else self.give(found)
        if isinstance(found, list | tuple):
            return tuple([self._out(part) for part in found])
        if found is None:
            return None
        raise _NotRecordedError(f"a result that is no tensor: {found!r}")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note a call on parts; one on DTensors comes here again as calls on parts."""
        kwargs = kwargs or {}
        if any([kind is DTensor for kind in types]):
            return NotImplemented
        found = func(*args, **kwargs)
        if func.namespace in ("prim", "profiler"):  # a device or a layout, which is the same in each run
            return found
        if func in _AS_THEY_ARE or (func is _VIEW and tuple(args[1]) == tuple(args[0].shape)):
            self.give(found, self.number(args[0]))
            return found
        self.call(func, args, kwargs, found)
        return found


def _program_of_parts(
    program: Program, layouts: dict[int, _Layout | None], sends: Sent | None
) -> tuple[Program, Standing | None, str]:
    """Return the program of parts, its votes, and what it sends in order, as text.

    A divided value's number is that of the part, and new values get new ones.
    """
    first = max([*program.specs, *layouts], default=0) + 1
    recorder = _Recorder(first)
    with without_memory():
        fake = FakeTensorMode(allow_non_fake_inputs=True)
    lines: list[Instruction] = []
    same: dict[int, int] = {}  # values that are others
    joined: dict[int, int] = {}  # by values, their DTensors
    specs = {
        k: program.specs[k] if layout is None or layout.spec is None else Spec(torch.Tensor, layout.shape, layout.dtype)
        for k, layout in layouts.items()
    }
    for instruction in program.instructions:
        is_divided = [k for k in (*instruction.inputs, *instruction.outputs) if _is_divided(layouts[k])]
        if not is_divided:
            lines.append(instruction.substitute(same))
            continue
        recorder.instructions, recorder.of, before = [], instruction, dict(recorder.constants)
        try:
            found = _recorded(instruction, layouts, recorder, fake)
            same |= {k: same.get(number, number) for k, number in found.items()}
            lines += [line.substitute(same) for line in recorder.instructions]
        except Exception:  # noqa: BLE001 - it stays as it is
            recorder.constants = before
            lines += _as_it_is(instruction, layouts, recorder, same, joined)
    specs |= recorder.specs
    constants: dict[int, Any] = {
        k: own_part(value) if type(value) is DTensor else value for k, value in program.constants.items()
    }
    outputs = [same.get(k, k) for k in program.outputs]
    votes, sent = None, ""
    if (mesh := _mesh_of(layouts)) is not None:
        if sends is not None:
            groups = [mesh.get_group(axis).group_name for axis in range(mesh.ndim)]
            votes = Standing(*sends, groups)
        devices = {layout.device for layout in layouts.values() if layout is not None}
        schedule = Schedule(lines, specs, recorder.fresh, outputs, votes, devices.pop() if len(devices) == 1 else None)
        lines, outputs, sent = schedule.lines, [schedule.pieces.get(k, k) for k in outputs], schedule.sent
        constants |= schedule.constants
    specs |= recorder.specs
    made = Program(lines, list(program.inputs), constants | recorder.constants, outputs, specs, program.backend)
    return made, votes, sent


def _is_divided(layout: _Layout | None) -> bool:
    return layout is not None and layout.spec is not None


def _recorded(
    instruction: Instruction, layouts: dict[int, _Layout | None], recorder: _Recorder, fake: FakeTensorMode
) -> dict[int, int]:
    """Note what an instruction calls; return which of its results are values that there are.

    Raises:
        _NotRecordedError: it cannot be told without values.
    """
    if instruction.effect or hasattr(instruction.fn, "parts"):
        raise _NotRecordedError("an effect, a branch or a loop")
    values: dict[int, Any] = {}
    fn: Any = instruction.fn
    is_group = isinstance(fn, OnParts)
    with fake:
        for k in dict.fromkeys(instruction.inputs):
            layout = layouts[k]
            if layout is None:
                if not is_group:
                    raise _NotRecordedError("a number")
                values[k] = _Number(k)
                continue
            if layout.is_view:
                raise _NotRecordedError("a conjugate")
            made = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=layout.device)
            recorder.give(made, k)
            values[k] = made if layout.spec is None else with_spec(made, layout.spec)
    args, kwargs = instruction.arguments(values)
    with torch.no_grad(), fake, recorder:
        found = on_parts_alike(_group_call(fn, recorder), args, fn.cut) if is_group else fn(*args, **kwargs)
    same = {}
    for k, value in results(instruction.out, found):
        layout, own = layouts[k], _layout_of(value)
        if layout is None or own is None or own != layout:
            raise _NotRecordedError(f"{own} where {layout} was noted")
        same[k] = recorder.number(value._local_tensor if type(value) is DTensor else value)
    return same


def _group_call(fn: Any, recorder: _Recorder) -> Callable[..., tuple[Any, ...]]:
    """Return what stands for a fused function of parts: its call is noted as it is."""

    def called(*parts: Any) -> tuple[Any, ...]:
        with _pop_mode_temporarily():  # the recorder's; how results lie does not depend on numbers
            found = fn.on_parts(*[1.0 if type(part) is _Number else part for part in parts])
        args = tuple([Ref(part.k) if type(part) is _Number else part for part in parts])
        recorder.call(fn.on_parts, args, {}, found)
        return found  # type: ignore[no-any-return]

    return called


def _as_it_is(
    instruction: Instruction,
    layouts: dict[int, _Layout | None],
    recorder: _Recorder,
    same: dict[int, int],
    joined: dict[int, int],
) -> list[Instruction]:
    """Return the lines of an instruction that gets DTensors, and returns such."""
    lines: list[Instruction] = []
    replaced: dict[int, int] = {}
    for k in dict.fromkeys(instruction.inputs):
        layout = layouts[k]
        own = same.get(k, k)
        if layout is not None and layout.spec is not None:
            if k not in joined:
                joined[k] = recorder.fresh(Spec(DTensor, tuple(layout.spec.shape), layout.dtype))
                lines.append(Instruction("divided", _Joined(layout), (Ref(own),), {}, joined[k], instruction.place))
            own = joined[k]
        replaced[k] = own
    call = instruction.substitute(replaced)
    parts: list[Instruction] = []

    def renamed(out: Any) -> Any:
        if type(out) is tuple:
            return tuple([renamed(part) for part in out])
        layout = None if out is None else layouts[out]
        if layout is None or layout.spec is None:
            return out
        whole = recorder.fresh(Spec(DTensor, tuple(layout.spec.shape), layout.dtype))
        parts.append(Instruction("part", _Part(layout), (Ref(whole),), {}, out, instruction.place, effect=True))
        return whole

    out = renamed(call.out)
    fn: Any = _Plain(call.fn) if hasattr(call.fn, "take_over") else call.fn
    lines.append(Instruction(call.name, fn, call.args, call.kwargs, out, call.place, effect=True))
    return [*lines, *parts]


class _Plain:
    """A function without the attributes by which its arguments would be handed over."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", "function")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)
