"""Compiled functions: what a Python function computes, noted once, and run again without Tensors, tapes and rules.

`function.py` is what users call. Its first call with arguments of new shapes runs the Python function on real values,
with Tensors of the tracing backend (`tracer/traced_array.py`). What is called underneath, kernels and operators on raw
with Tensors of the tracing backend (`tracer/traced_array.py`). What is called underneath, kernels and operators on raw
arrays, goes through `Trace.call` or, where nothing has to be looked up, `Trace.gave` (`tracer/trace.py`), and becomes
a `Program` (`program.py`); `tracer/contexts.py` has the contexts for that. Later calls run its code
(`codegen/executable.py`):

- Values are numbers, each assigned once. In `args` and `kwargs`, also inside tuples and lists, `Ref(number)` stands for
  a value; all else is itself: Python scalars, axes, shapes, slices, dtypes.
- `Instruction.out` is a number, or nested tuples of numbers and None, as `fn` returns them.
- `Program.inputs` are the arrays of the arguments, then those of Variables; `Program.constants` the arrays that do not
  change; `Program.outputs` the arrays of the result, then the new ones of Variables that are assigned.
- `Program.specs` has what each value was while tracing: the class of its array, shape and dtype.
- In-place updates are functional by then: `w -= step` is a subtraction with a result of its own.
- An instruction with `effect` is called each time, in order, whatever becomes of its result: random numbers are drawn
  so, and what has a state in Python runs as it is.
- A value may be a Python number (`numbers.py`), such as a learning rate; with arrays it is weak. `Program.owned` are
  inputs that nothing needs after the run: donated arguments, which may be overwritten at their last use
  (`donation.py`), and old values of Variables, which may not.

`passes/` has a file for each transformation of a program, from `Program` to `Program`; `passes/__init__.py` their order
and names. While tracing, what depends on constants alone is noted like all else, and its value is known: Python may
decide by it, and the pass `constants` leaves the value in its place. `source.py` writes a program as Python source, and
what comes again in it once (`outlining.py`). `state.py` is what the rest of Tape and tape-nn tell a trace: random
numbers, what runs eagerly in the middle, modes. `signature.py` is what a trace is kept for. `export.py` and `linker.py`
write files that stand alone.

A branch or a loop (`tape_core.cond` and its like) is one instruction, whose `fn` is a `Flow` (`subprograms.py`): the
functions that it is given are traced as programs of their own, with what they find around them as further inputs. Their
derivatives are no matter of this package: `tape_core.transforms.loops` makes them of branches and loops.

A call inside a tape's block is one record (`inside.py`): the function is traced with a tape and its backward sweep
(`joint.py`), the program is taken apart into one for the call and one for the derivative (`partition.py`), and the
record runs them (`joint_call.py`).
"""
