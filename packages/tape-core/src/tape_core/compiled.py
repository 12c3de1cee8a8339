"""`tape_core.function`: the door to the package that traces and compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from tape_core.typing import Fallback, Retrace

if TYPE_CHECKING:
    from tape_compile.compilers import Compiler
    from tape_compile.function import Function


def _function_class() -> type[Function]:
    """The class of compiled functions.

    Raises:
        ImportError: tape-compile is not installed.
    """
    try:
        # The only place where core names the package: everything else is told through `staging`.
        from tape_compile.function import Function
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "tape_compile":
            raise
        raise ImportError(
            "tape_core.function needs the package that traces and compiles\n  To install it: pip install tape-compile"
        ) from error
    return Function


@overload
def function(python: Callable[..., Any], /) -> Function: ...
@overload
def function(
    *,
    static_argnames: str | Iterable[str] = (),
    donate: str | Iterable[str] = (),
    fallback: Fallback = False,
    retrace: Retrace = "warn",
    compile: str | Compiler | Literal[False] | None = None,
    passes: dict[str, bool] | None = None,
    max_traces: int | None = None,
) -> Callable[[Callable[..., Any]], Function]: ...
def function(
    python: Any = None,
    /,
    *,
    static_argnames: Any = (),
    donate: Any = (),
    fallback: Fallback = False,
    retrace: Retrace = "warn",
    compile: str | Compiler | Literal[False] | None = None,
    passes: dict[str, bool] | None = None,
    max_traces: int | None = None,
) -> Any:
    """A function that is traced once for arguments of one kind, and then runs without Tensors, tapes and rules.

    The first call runs `python` and notes the calls of kernels, those of gradients, Jacobians and vmap among them. They
    become the source of one Python function, which runs from then on. Its results are those of `python`, to the
    last bit.

    >>> import tape_core as tc
    >>> w = tc.Variable(2.0)
    >>> @tc.function
    ... def step(x):
    ...     with tc.GradientTape() as tape:
    ...         loss = (w * x - 1.0) ** 2
    ...     w.assign_sub(0.1 * tape.gradient(loss, w))
    ...     return loss
    >>> [round(step(tc.asarray(1.0)).item(), 4) for _ in range(3)]
    [1.0, 0.64, 0.4096]
    >>> step.traces
    1

    A trace is for one structure of arguments, for the shapes, dtypes and devices of the Tensors in it, for the values
    of everything else in it, and for the backend that is selected. Variables may have any value: they are read and
    assigned in each call. Other Tensors and Python values that the function finds around it stay what they were. Random
    numbers are drawn anew.

    Inside a tape's block the call is one record, of which both directions are compiled, from the second call of a kind
    on. Where several tapes, an accumulator or vmap around the call are at work, `python` runs as it is.

    Args:
        python: the function. What it does besides computing, such as printing, it does while it is traced.
        static_argnames: names of parameters whose values are constants of a trace. They must be hashable. Python
            scalars, strings and other objects that are no arrays are so anyway.
        donate: names of parameters whose Tensors the function may overwrite with results of the same shape and dtype.
            After a call they hold nothing, and any use of them raises a RuntimeError. It is for what a call replaces,
            such as parameters that are no Variables. Memory that somebody else holds, as a caller's NumPy array, is
            left alone; Variables are updated in place anyway. Where `python` runs as it is nothing is donated.
        fallback: where the function decides by a value, warn once and run it as it is from then on; with `"silent"`
            without the warning.
        retrace: what to do about many traces: `"warn"` at the sixth, `"allow"` them, or `"error"` at the second.
        compile: a compiler by its name, of which `python -m tape_core` lists the installed ones, or a
            `tape_compile.extend.Compiler`. `"python"` is Python code that calls one kernel after the other; so is
            False. tape-torch brings `"torch"`, PyTorch's Inductor, which rounds in its own ways, and `"cudagraph"`. By
            default it is the one that the environment variable `TAPE_COMPILER` names, or else Python code, and on CUDA
            a graph for many kernels of small arrays. A name that no package provides is an error of the first call.
        passes: passes that are to be left out, as `{"cse": False}`; see `Function.stats`. And
            `{"reassociate": True}` asks for rewrites that round differently: results are then a few units in the last
            place from those of `python`.
        max_traces: how many traces are kept, by default 256, and as many for calls in tapes' blocks; the one that was
            not used for longest goes. A trace for a Variable or another object that was an argument goes with it.

    Raises:
        TracingError: a TypeError, in a call: the function decides by a value, as by `if` or `item()`, or a Tensor from
            inside is used after it has returned.
        TypeError: in a call: an argument is neither an array nor hashable.
        ValueError: an argument of this function is not what it must be; in a call: a Variable is made each time, or
            what is donated is given twice.
        RuntimeError: in a call: an argument was donated before.
    """

    def decorate(python: Any) -> Any:
        if not callable(python):
            raise TypeError(f"function: a function is compiled, got {python!r}")
        return _function_class()(
            python,
            static_argnames=static_argnames,
            donate=donate,
            fallback=fallback,
            retrace=retrace,
            compile=compile,
            passes=passes,
            max_traces=max_traces,
        )

    return decorate if python is None else decorate(python)
