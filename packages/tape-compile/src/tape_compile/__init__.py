"""The compiler of Tape: a function is traced once, simplified, and runs as generated Python source from then on.

A tour, in the order in which a call of a compiled function goes through it:

1. `function.py` is `tape_core.function`: it looks for a trace that fits the arguments (`cache_key.py`, `cache.py`) and,
   where there is none, traces the function. `methods.py` is about decorated methods, `turns.py` about threads. 2.
   `tracer/`: the function runs once on real values, in Tensors whose arrays are `TracedArray`s. Each kernel and
   operator that is called underneath becomes an instruction of a `Trace`. `effects.py` has what must not be recorded
   that way: random numbers, printing, metrics. 3. `program.py`: the trace becomes a `Program`, a straight line of calls
   in which each value is assigned once. It prints as a jaxpr does (`printing.py`). In-place updates are functional in
   it: `w -= step` is a subtraction with a result of its own, and the new values of Variables are further outputs. 4.
   `passes/` simplify the program, one file each; `passes/registry.py` has their order, `rewrite.py` the driver of those
   that are tables of rules, `thresholds.py` all sizes, and `library.py` what a backend's array library contributes. 5.
   `codegen/source.py` writes the program as the source of one Python function, with repeated stretches as functions of
   their own (`outlining.py`). `codegen/executable.py` is the result, `Compiled`: it takes arrays out of arguments and
   Variables, runs the function, and makes Tensors of what it returns. Another compiler may run the program instead
   (`compilers.py`). 6. `failures.py` raises errors of a run as the op would have raised them, with the user's line.

Beside that way:

- `control_flow.py`: `tape_core.cond`, `while_loop` and `scan` inside a compiled function are one instruction each,
  whose branches and steps are programs of their own. Their derivatives are made of branches and loops, in
  `tape_core.transforms.loops`.
- `under_tape/`: a call inside a tape's block is one record. The function is traced with a tape and its backward sweep,
  and the program split into one for the call and one for the derivative.
- `export/`: files that need the array library, and nothing of Tape.

docs/compiled.md is for users, docs/write-a-pass.md for those who want to change programs.
"""

from tape_core.backends import require_core as _require_core

_require_core("tape-compile", "tape-core>=0.1,<0.2")
