"""The parts of the engine that a tracer works with: for tape-compile, and for whoever writes another tracer.

A tracer runs tapes, sweeps and batched values while it records kernels, so it needs to know how these are made. What is
here may change with any version of Tape. A compiler of traced programs needs none: see `docs/write-a-compiler.md`.
"""

from tape_core.base.ambient import BINDINGS, STAGE
from tape_core.engine import binding, call_paths
from tape_core.engine.backward import flows_into, sweep
from tape_core.engine.binding import Bound
from tape_core.engine.call_errors import describe
from tape_core.engine.changes import Moment, on_change
from tape_core.engine.cuts import Cuts
from tape_core.engine.levels import lift, move_to_level
from tape_core.engine.plan import Part, Parts
from tape_core.engine.record import kwargs, slot
from tape_core.engine.tensor import NO_SLOTS, own_slots, twin_slots
from tape_core.modes.function_op import FUNCTION_CALL
from tape_core.modes.layers import Layers, base_of, both_layers, hidden_axes, in_layers, layers_of, widened
from tape_core.modes.replay import is_replaying
from tape_core.transforms.calls import substitute, unrecorded
from tape_core.transforms.closures import (
    Capture,
    Closure,
    RepeatedEffectError,
    is_captured,
    note_uses,
    will_run_again,
)
from tape_core.transforms.custom import with_own_slots

__all__ = [
    "BINDINGS",
    "FUNCTION_CALL",
    "NO_SLOTS",
    "STAGE",
    "Bound",
    "Capture",
    "Closure",
    "Cuts",
    "Layers",
    "Moment",
    "Part",
    "Parts",
    "RepeatedEffectError",
    "base_of",
    "binding",
    "both_layers",
    "call_paths",
    "describe",
    "flows_into",
    "hidden_axes",
    "in_layers",
    "is_captured",
    "is_replaying",
    "kwargs",
    "layers_of",
    "lift",
    "move_to_level",
    "note_uses",
    "on_change",
    "own_slots",
    "slot",
    "substitute",
    "sweep",
    "twin_slots",
    "unrecorded",
    "widened",
    "will_run_again",
    "with_own_slots",
]
