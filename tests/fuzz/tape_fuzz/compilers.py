"""Compilers as objects, with which random programs are compiled besides those that have names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tape_compile.extend import BRANCHES, EFFECTS, NUMBERS, Compiler, Program, Ref, Run


class CallByCall(Compiler):
    """Runs a program call by call, as the compiler of docs/write-a-compiler.md does.

    Attributes:
        fuses: whether Tape leaves out fusion and in-place results.
    """

    supports = frozenset({BRANCHES, EFFECTS, NUMBERS})
    exact = True

    def __init__(self, fuses: bool = True) -> None:
        self.fuses = fuses

    def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
        """Return a loop over the instructions."""

        def interpreted(arrays: list[Any]) -> tuple[Any, ...]:
            values = {**program.constants, **dict(zip(program.inputs, arrays, strict=True))}
            arrays.clear()
            for call in program.instructions:
                kwargs = {name: _filled(value, values) for name, value in call.kwargs.items()}
                _store(call.out, call.fn(*_filled(call.args, values), **kwargs), values)
            return tuple([values[k] for k in program.outputs])

        return interpreted


def _filled(argument: Any, values: dict[int, Any]) -> Any:
    if isinstance(argument, Ref):
        return values[argument.id]
    if type(argument) in (tuple, list):
        return type(argument)([_filled(part, values) for part in argument])
    return argument


def _store(numbers: Any, out: Any, values: dict[int, Any]) -> None:
    if isinstance(numbers, tuple):
        for number, part in zip(numbers, out, strict=True):
            _store(number, part, values)
    elif numbers is not None:
        values[numbers] = out


class TorchGraph(Compiler):
    """The graph of PyTorch's tracer, which Inductor gets, run as it is: without the seconds that Inductor takes."""

    def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
        """Return the graph.

        Raises:
            ValueError: a kernel asks for a value.
        """
        from tape_torch.compiled import trace_graph

        graph = trace_graph(run, examples)

        def traced(arrays: list[Any]) -> tuple[Any, ...]:
            given = tuple(arrays)
            arrays.clear()
            return tuple(graph(*given))

        return traced
