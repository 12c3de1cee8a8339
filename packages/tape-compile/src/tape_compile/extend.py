"""The names for authors of compilers and passes, and for packages that hold compiled functions.

See `docs/write-a-compiler.md` and `docs/write-a-pass.md`. Each name is imported at its first use: most programs of a
package that extends the compiler compile nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape_compile import passes
    from tape_compile.codegen.source import Source
    from tape_compile.compilers import BRANCHES, EFFECTS, NUMBERS, Compiler, Run
    from tape_compile.function import Function
    from tape_compile.methods import Bound, Methods, WeakMethod, found_by_name
    from tape_compile.passes.fusion import Group
    from tape_compile.passes.inline_kernels import LARGE
    from tape_compile.program import Instruction, Program, Ref, Spec
    from tape_compile.tracer.traced_array import Method, TracedArray

_FROM = {
    "BRANCHES": "tape_compile.compilers",
    "Bound": "tape_compile.methods",
    "Compiler": "tape_compile.compilers",
    "EFFECTS": "tape_compile.compilers",
    "Function": "tape_compile.function",
    "Group": "tape_compile.passes.fusion",
    "Instruction": "tape_compile.program",
    "LARGE": "tape_compile.passes.inline_kernels",
    "Method": "tape_compile.tracer.traced_array",
    "Methods": "tape_compile.methods",
    "NUMBERS": "tape_compile.compilers",
    "Program": "tape_compile.program",
    "Ref": "tape_compile.program",
    "Run": "tape_compile.compilers",
    "Source": "tape_compile.codegen.source",
    "Spec": "tape_compile.program",
    "TracedArray": "tape_compile.tracer.traced_array",
    "WeakMethod": "tape_compile.methods",
    "found_by_name": "tape_compile.methods",
    "passes": "tape_compile",
}

__all__ = [
    "BRANCHES",
    "EFFECTS",
    "LARGE",
    "NUMBERS",
    "Bound",
    "Compiler",
    "Function",
    "Group",
    "Instruction",
    "Method",
    "Methods",
    "Program",
    "Ref",
    "Run",
    "Source",
    "Spec",
    "TracedArray",
    "WeakMethod",
    "found_by_name",
    "passes",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_FROM[name]), name)
    return value
