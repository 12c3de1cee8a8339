"""The foundations that Tape shares with libraries built on it, such as tape-nn and tape-tf.

Nested structures, commits of several values at once, contexts that are left whatever happens, locks that survive a
fork, checks of arguments and their messages, files that are written whole, generated code, and the engine's own view of
Tensors: raw arrays, slots, recorders. Authors of ops and rules want `tape_core.extend`, those of backends
`tape_core.backends`, and code that must know whether it is being compiled `tape_core.staging`.

What is here may change with a minor version of Tape; the packages of one version belong together.
"""

from tape_core.base import dtypes
from tape_core.base.ambient import ACTIVE, FORMER, OPEN_AXES, READY
from tape_core.base.attributes import set_attribute
from tape_core.base.contexts import Leaving, contextmanager, setting
from tape_core.base.dtypes import DTYPES, as_dtype, finfo
from tape_core.base.files import is_draft_of, permissions, sync, write_whole
from tape_core.base.forking import Lock, forget_in_children
from tape_core.base.generated import Lines, generated, identifier, one_line
from tape_core.base.heap import give_back, give_back_memory_of_zeros, keep_freed_memory, map_large_blocks
from tape_core.base.logs import log
from tape_core.base.mistakes import NoCounterpartError, flag, integer, meant, real, sequence
from tape_core.base.picking import picking
from tape_core.base.progress import Task, first_process_only, progress_of, report_stage
from tape_core.base.references import COUNTS_REFERENCES
from tape_core.base.reprs import counted, lenient, lenient_html
from tape_core.base.row_updates import rows_added
from tape_core.base.spares import Spare, release_spares, spare_of
from tape_core.base.undoing import keep_former, undone_on_error
from tape_core.base.user_code import deciding_frame, user_frame, warn_user
from tape_core.engine import binding, deferred, layouts, placement, pytree
from tape_core.engine.binding import held_for_a_while
from tape_core.engine.commit import Commit, assign_together, set_all
from tape_core.engine.indexed_slices import dense
from tape_core.engine.layouts import keep_layouts
from tape_core.engine.levels import BatchedArray, innermost, is_watched
from tape_core.engine.op import Binding, Plans
from tape_core.engine.overwriting import Call, Old, Overwriting, may_overwrite, without_arrays
from tape_core.engine.recording import active_recorders, check_assignable, report_assigned, report_leave, special_dtype
from tape_core.engine.tape import WatchError
from tape_core.engine.tensor import SCALARS, alias, is_number, read, read_array, wrap
from tape_core.engine.variable import new_serial
from tape_core.modes.batching import way_of
from tape_core.modes.function_op import record_as_one
from tape_core.ops.creation import asarray_beside
from tape_core.ops.special.tabled import SCIPY_BOUNDS
from tape_core.transforms.calls import forbid_captures

__all__ = [
    "ACTIVE",
    "COUNTS_REFERENCES",
    "DTYPES",
    "FORMER",
    "OPEN_AXES",
    "READY",
    "SCALARS",
    "SCIPY_BOUNDS",
    "BatchedArray",
    "Binding",
    "Call",
    "Commit",
    "Leaving",
    "Lines",
    "Lock",
    "NoCounterpartError",
    "Old",
    "Overwriting",
    "Plans",
    "Spare",
    "Task",
    "WatchError",
    "active_recorders",
    "alias",
    "as_dtype",
    "asarray_beside",
    "assign_together",
    "binding",
    "check_assignable",
    "contextmanager",
    "counted",
    "deciding_frame",
    "deferred",
    "dense",
    "dtypes",
    "finfo",
    "first_process_only",
    "flag",
    "forbid_captures",
    "forget_in_children",
    "generated",
    "give_back",
    "give_back_memory_of_zeros",
    "held_for_a_while",
    "identifier",
    "innermost",
    "integer",
    "is_draft_of",
    "is_number",
    "is_watched",
    "keep_former",
    "keep_freed_memory",
    "keep_layouts",
    "layouts",
    "lenient",
    "lenient_html",
    "log",
    "map_large_blocks",
    "may_overwrite",
    "meant",
    "new_serial",
    "one_line",
    "permissions",
    "picking",
    "placement",
    "progress_of",
    "pytree",
    "read",
    "read_array",
    "real",
    "record_as_one",
    "release_spares",
    "report_assigned",
    "report_leave",
    "report_stage",
    "rows_added",
    "sequence",
    "set_all",
    "set_attribute",
    "setting",
    "spare_of",
    "special_dtype",
    "sync",
    "undone_on_error",
    "user_frame",
    "warn_user",
    "way_of",
    "without_arrays",
    "wrap",
    "write_whole",
]
