"""The names for authors of compilers and passes, and for packages that hold compiled functions.

See `docs/write-a-compiler.md` and `docs/write-a-pass.md`. Each name is imported at its first use: most programs of a
package that extends the compiler compile nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape_compile import passes, thresholds
    from tape_compile.codegen.overwriting import Late
    from tape_compile.codegen.source import Source
    from tape_compile.compilers import BRANCHES, EFFECTS, NUMBERS, Compiler, NeedsValues, Run
    from tape_compile.control_flow import Flow
    from tape_compile.effects import NoteState, NoteStateOfStep, OpaqueCall, RandomBits, SetState, SetStateOfStep
    from tape_compile.function import Function
    from tape_compile.library import FusedFunction, LibrarySupport, Overwrites, Role, Specs
    from tape_compile.methods import Bound, Methods, WeakMethod, importable_name
    from tape_compile.passes import pass_
    from tape_compile.passes.fusion import Group
    from tape_compile.program import (
        VIEWS,
        Argument,
        Instruction,
        Program,
        Raw,
        Ref,
        Spec,
        literal_key,
        results,
        source_line,
    )
    from tape_compile.rewrite import Rewriter, Rules
    from tape_compile.tracer.trace import AsArray
    from tape_compile.tracer.traced_array import Method, TracedArray

_MODULES = ("passes", "thresholds")
_FROM = {
    "Argument": "tape_compile.program",
    "AsArray": "tape_compile.tracer.trace",
    "BRANCHES": "tape_compile.compilers",
    "Bound": "tape_compile.methods",
    "Compiler": "tape_compile.compilers",
    "EFFECTS": "tape_compile.compilers",
    "Flow": "tape_compile.control_flow",
    "Function": "tape_compile.function",
    "FusedFunction": "tape_compile.library",
    "Group": "tape_compile.passes.fusion",
    "Instruction": "tape_compile.program",
    "Late": "tape_compile.codegen.overwriting",
    "LibrarySupport": "tape_compile.library",
    "Method": "tape_compile.tracer.traced_array",
    "Methods": "tape_compile.methods",
    "NUMBERS": "tape_compile.compilers",
    "NeedsValues": "tape_compile.compilers",
    "NoteState": "tape_compile.effects",
    "NoteStateOfStep": "tape_compile.effects",
    "OpaqueCall": "tape_compile.effects",
    "Overwrites": "tape_compile.library",
    "Program": "tape_compile.program",
    "RandomBits": "tape_compile.effects",
    "Raw": "tape_compile.program",
    "Ref": "tape_compile.program",
    "Rewriter": "tape_compile.rewrite",
    "Role": "tape_compile.library",
    "Rules": "tape_compile.rewrite",
    "Run": "tape_compile.compilers",
    "SetState": "tape_compile.effects",
    "SetStateOfStep": "tape_compile.effects",
    "Source": "tape_compile.codegen.source",
    "Spec": "tape_compile.program",
    "Specs": "tape_compile.library",
    "TracedArray": "tape_compile.tracer.traced_array",
    "VIEWS": "tape_compile.program",
    "WeakMethod": "tape_compile.methods",
    "importable_name": "tape_compile.methods",
    "literal_key": "tape_compile.program",
    "pass_": "tape_compile.passes",
    "results": "tape_compile.program",
    "source_line": "tape_compile.program",
}

__all__ = [
    "BRANCHES",
    "EFFECTS",
    "NUMBERS",
    "VIEWS",
    "Argument",
    "AsArray",
    "Bound",
    "Compiler",
    "Flow",
    "Function",
    "FusedFunction",
    "Group",
    "Instruction",
    "Late",
    "LibrarySupport",
    "Method",
    "Methods",
    "NeedsValues",
    "NoteState",
    "NoteStateOfStep",
    "OpaqueCall",
    "Overwrites",
    "Program",
    "RandomBits",
    "Raw",
    "Ref",
    "Rewriter",
    "Role",
    "Rules",
    "Run",
    "SetState",
    "SetStateOfStep",
    "Source",
    "Spec",
    "Specs",
    "TracedArray",
    "WeakMethod",
    "importable_name",
    "literal_key",
    "pass_",
    "passes",
    "results",
    "source_line",
    "thresholds",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found: Any = import_module(f"tape_compile.{name}")
    elif name in _FROM:
        found = getattr(import_module(_FROM[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
