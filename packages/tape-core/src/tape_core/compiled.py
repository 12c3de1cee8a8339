"""`tape_core.function`: it loads tape-compile, the package that traces and compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from tape_core.base.installing import install_command
from tape_core.base.mistakes import explaining
from tape_core.typing import Fallback, Retrace

if TYPE_CHECKING:
    from tape_compile.compilers import Compiler
    from tape_compile.function import Function

P = ParamSpec("P")
R = TypeVar("R")


def _function_class() -> type[Function[..., Any]]:
    """The class of compiled functions.

    Raises:
        ImportError: tape-compile is not installed.
    """
    try:
        # The only place where core names the package; all else in core talks to a trace through `staging`.
        from tape_compile.function import Function
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "tape_compile":
            raise
        raise ImportError(
            "tape_core.function needs the package that traces and compiles\n"
            f"  To install it: {install_command('tape-compile')}"
        ) from error
    return Function


@overload
def function(python: Callable[P, R], /) -> Function[P, R]: ...
@overload
def function(
    *,
    static_argnames: str | Iterable[str] = (),
    donate: str | Iterable[str] = (),
    donate_variables: bool = False,
    fallback: Fallback = False,
    retrace: Retrace = "warn",
    compile: str | Compiler | Literal[False] | None = None,
    passes: dict[str, bool] | None = None,
    max_traces: int | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
@explaining
def function(
    python: Callable[..., Any] | None = None,
    /,
    *,
    static_argnames: str | Iterable[str] = (),
    donate: str | Iterable[str] = (),
    donate_variables: bool = False,
    fallback: Fallback = False,
    retrace: Retrace = "warn",
    compile: str | Compiler | Literal[False] | None = None,
    passes: dict[str, bool] | None = None,
    max_traces: int | None = None,
) -> Any:
    """Compile a function: trace it once for each cache key, then run straight-line code on raw arrays.

    The first call runs `python` and records every call of a kernel, including those of gradients, Jacobians and vmap.
    From this trace Tape generates the source of one Python function, which later calls run. Its results have the same
    bits as those of `python`.

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

    The cache key of a trace consists of the structure of the arguments; the shapes, dtypes and devices of Tensors among
    them; the values of all other arguments; and the selected backend. A call with another key is traced anew. Variables
    are read and assigned in each call. Tensors and Python values from around the function are constants of the trace.
    Random numbers are drawn anew in each call.

    Inside the block of one tape, the call is a single record with a compiled derivative, from the second call of a
    key on. Inside several tapes, a forward accumulator or a vmap, `python` itself runs.

    Args:
        python: the function. Its side effects, such as printing, happen only while it is traced.
        static_argnames: names of parameters whose values are constants of a trace; they must be hashable. Arguments
            without arrays, such as Python scalars and strings, are constants anyway.
        donate: names of parameters whose Tensors the function may overwrite with results of the same shape and dtype.
            After a call they hold nothing, and any use of them raises a RuntimeError. Donate arguments that the call
            replaces, such as parameters that are not Variables; those are updated in place anyway. Memory that is also
            referenced elsewhere, for instance by a NumPy array of the caller, is not overwritten. Nothing is donated
            in calls that run `python` itself.
        donate_variables: True to give away the memory of the old values of Variables to their new ones, too, which
            saves large models the memory of one more copy. `compile="xla"` takes that of JAX's arrays, unless anybody
            else has them; other compilers do without. While a call runs, nothing else may read these Variables: no
            other thread, and no signal handler. If XLA fails in the middle, as for lack of memory, their values are
            lost, and a RuntimeError says so.
        fallback: True to run `python` itself, with one warning, where the function cannot be traced because Python
            depends on the value of a Tensor; `"silent"` for no warning. False raises a TracingError.
        retrace: what happens to many traces: a warning at the sixth (`"warn"`), nothing (`"allow"`), or an error at the
            second (`"error"`).
        compile: a compiler by its name, of which `python -m tape_core` lists the installed ones, or a
            `tape_compile.extend.Compiler`. `"python"` is Python code that calls one kernel after the other; so is
            False. tape-torch brings `"torch"`, PyTorch's Inductor, which rounds in its own ways, and `"cudagraph"`. By
            default it is the one that the environment variable `TAPE_COMPILER` names, or else Python code, and on CUDA
            a graph for many kernels of small arrays. A name that no package provides is an error of the first call.
        passes: compiler passes to skip, as in `{"cse": False}`; `Function.stats` has their names. And
            `{"reassociate": True}` adds rewrites that round differently: results may then differ from those of `python`
            by a few units in the last place.
        max_traces: the number of traces that are kept, 256 by default, and as many again for calls in tapes' blocks.
            The least recently used one is dropped first. A trace for a Variable or another object among the arguments
            is dropped when that object ends.

    Raises:
        TracingError: (a TypeError) in a call: Python needs the value of a traced Tensor, for instance for `if` or
            `item()`; or a Tensor from inside the function is used after it has returned.
        TypeError: in a call: an argument is neither an array nor hashable.
        ValueError: an argument of this function is invalid; in a call: a Variable is made each time, or a donated
            Tensor is passed twice.
        RuntimeError: in a call: an argument was donated before.
    """

    def decorate(python: Callable[P, R]) -> Function[P, R]:
        if not callable(python):
            raise TypeError(f"function: a function is compiled, got {python!r}")
        return _function_class()(  # type: ignore[return-value]  # the class of Any is that of these parameters, too
            python,
            static_argnames=static_argnames,
            donate=donate,
            donate_variables=donate_variables,
            fallback=fallback,
            retrace=retrace,
            compile=compile,
            passes=passes,
            max_traces=max_traces,
        )

    return decorate if python is None else decorate(python)
