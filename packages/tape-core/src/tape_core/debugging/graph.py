"""The recorded graph, from the journal of a debugging tape or else from the records alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tape_core.debugging.notes import Generation, Place, Scope, arrays_in
from tape_core.engine import record
from tape_core.engine.plan import Part
from tape_core.engine.record import PLAN, SPECS
from tape_core.typing import RawDType

if TYPE_CHECKING:
    from tape_core.engine.tape import GradientTape
    from tape_core.engine.variable import Variable

Spec = tuple[tuple[int, ...], str]


@dataclass(slots=True)
class Node:
    """The value at a slot: the result of an op, or a leaf.

    Attributes:
        kind: `"op"`, `"variable"`, or `"watched"` for any other leaf.
        part_of: for one of several results, the slot of the op.
        spec: shape and dtype, where they are known.
        layout: how the value is divided among devices or processes, where that is known.
        bytes: the bytes of the result; `kept`: the bytes that the record keeps alive.
    """

    slot: int
    name: str
    kind: str
    inputs: tuple[int, ...] = ()
    part_of: int | None = None
    spec: Spec | None = None
    layout: str = ""
    place: Place | None = None
    scope: Scope | None = None
    seconds: float = 0.0
    backward: float = 0.0
    bytes: int = 0
    kept: int = 0


@dataclass(slots=True)
class Graph:
    """All nodes, by slot.

    Attributes:
        debug: True if lines, times and all shapes are known.
        used: True if a gradient has used up the records.
    """

    nodes: list[Node] = field(default_factory=list)
    debug: bool = False
    used: bool = False

    def reached_from(self, slots: Iterable[int]) -> set[int]:
        """Return the slots that depend on these, themselves included."""
        found = set(slots)
        for node in self.nodes:
            if not found.isdisjoint(node.inputs):
                found.add(node.slot)
        return found

    def leading_to(self, slots: Iterable[int]) -> set[int]:
        """Return the slots that these depend on, themselves included."""
        found = set(slots)
        for node in reversed(self.nodes):
            if node.slot in found:
                found.update(node.inputs)
        return found

    def path(self, sources: Iterable[int], target: int) -> list[Node]:
        """Return the ops of a shortest path from one of the sources to the target, by breadth-first search."""
        goal = set(sources)
        came: dict[int, int] = {target: -1}
        queue = [target]
        for slot in queue:
            if slot in goal:
                steps = []
                at = came[slot]
                while at != -1:
                    if self.nodes[at].part_of is None:
                        steps.append(self.nodes[at])
                    at = came[at]
                return steps
            for i in self.nodes[slot].inputs:
                if i not in came:
                    came[i] = slot
                    queue.append(i)
        return []


@dataclass(slots=True)
class View:
    """A view of a tape's records, or of those that its gradient used up.

    Attributes:
        key: the tape's key in the slots of Tensors.
        variables: by id, the Variables and their slots.
        generation: the notes of a debugging tape, or None.
    """

    key: int
    variables: dict[int, tuple[Variable, tuple[int, ...]]]
    generation: Generation | None
    used: bool


def view(tape: GradientTape) -> View:
    """Return the view of a tape as it is now."""
    journal = tape._journal
    used = tape._used and not tape._persistent and not tape._records
    if used:
        return View(tape._old_key, tape._past, None if journal is None else journal.past, True)
    return View(tape._key, tape._variables, None if journal is None else journal.now, False)


def graph_of(tape: GradientTape) -> Graph:
    """Return the recorded graph; it is empty if the records are used up and the tape has no journal."""
    at = view(tape)
    graph = Graph(debug=at.generation is not None, used=at.used)
    if at.generation is not None:
        _from_notes(graph.nodes, at.generation)
    elif not at.used:
        _from_records(graph.nodes, tape._records)
    for variable, slots in at.variables.values():
        for slot in slots:
            if slot < len(graph.nodes):
                node = graph.nodes[slot]
                node.kind, node.name = "variable", variable.name or "Variable"
                node.spec = node.spec or (variable.shape, variable.dtype.name)
    return graph


def _from_notes(nodes: list[Node], generation: Generation) -> None:
    for slot, entry in enumerate(generation.entries):
        call = entry.call
        if call is None:
            nodes.append(Node(slot, "watched", "watched", place=entry.place))
            continue
        node = Node(slot, call.name, "op", entry.inputs, spec=call.specs[entry.part or 0], place=call.place)
        node.scope, node.backward, node.kept = call.scope, entry.backward, entry.kept
        node.layout = call.layouts[entry.part or 0]
        if entry.part is None:
            node.seconds, node.bytes = call.seconds, call.bytes
        else:
            node.part_of = entry.inputs[0]
        nodes.append(node)
    for entry in generation.entries:
        call = entry.call
        if call is not None and entry.part is None:
            for number, leaf in zip(call.inputs, entry.slots, strict=False):
                if number is not None and leaf is not None:
                    # A leaf has no call of its own; its shape is known where it is used.
                    nodes[leaf].spec = nodes[leaf].spec or generation.specs[number]


def _from_records(nodes: list[Node], records: list[Any]) -> None:
    owners: set[Any] = set()
    for slot, rec in enumerate(records):
        if rec is None:
            nodes.append(Node(slot, "watched", "watched"))
            continue
        plan = rec[PLAN]
        if type(plan) is Part:
            shape, dtype = plan.specs[plan.k]
            spec = (tuple(shape), _name(dtype))
            base = record.slot(rec, 0)
            nodes.append(Node(slot, nodes[base].name, "op", (base,), part_of=base, spec=spec))
            continue
        inputs = tuple(record.each_slot(rec))
        node = Node(slot, _name_of(plan, rec), "op", inputs)
        for array in arrays_in(rec, plan):
            owner, size = plan.backend.memory(array)
            node.kept += 0 if owner in owners else size
            owners.add(owner)
        out = record.out(rec)
        if hasattr(out, "shape"):
            node.spec, node.layout = (tuple(out.shape), _name(out.dtype)), plan.backend.place(out)
        elif plan.op.elementwise and rec[SPECS] is None:
            node.spec = next((nodes[i].spec for i in inputs if nodes[i].spec is not None), None)
        nodes.append(node)
        _note_inputs(nodes, rec, plan, node)


def _note_inputs(nodes: list[Node], rec: tuple[Any, ...], plan: Any, made: Node) -> None:
    """Note the shapes of earlier results that a record tells: those of its inputs.

    An elementwise op says nothing of an input of the shape and dtype of its result.
    """
    for k in range(plan.n):
        slots, arrays = record.slot(rec, k), record.array(rec, k)
        specs = None if rec[SPECS] is None else rec[SPECS][k]
        if type(slots) is not tuple:
            slots, arrays, specs = (slots,), (arrays,), (specs,)
        for j, slot in enumerate(slots):
            if slot is None or nodes[slot].spec is not None:
                continue
            array: Any = None if arrays is None else arrays[j]
            spec: Any = None if specs is None else specs[j]
            if hasattr(array, "shape"):
                nodes[slot].spec = tuple(array.shape), _name(array.dtype)
            elif spec is not None and spec[1] is not None:
                nodes[slot].spec = tuple(spec[0]), _name(spec[1])
            elif spec is None and plan.op.elementwise:
                nodes[slot].spec = made.spec


def _name_of(plan: Any, rec: tuple[Any, ...]) -> str:
    return str(getattr(record.kwargs(rec).get("call"), "name", plan.op.name))


def _name(dtype: RawDType) -> str:
    return str(getattr(dtype, "__name__", None) or dtype).rpartition(".")[2]
