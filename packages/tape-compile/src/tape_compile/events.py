"""What compiled functions tell of a trace, its arguments, and how long it takes: as progress, and the logger."""

from __future__ import annotations

from contextlib import AbstractContextManager
from time import perf_counter
from typing import TYPE_CHECKING, Final

from tape_core import Tensor
from tape_core.support import log, progress_of

from tape_compile.donation import Donated

if TYPE_CHECKING:
    from tape_compile.cache_key import Signature
    from tape_compile.codegen.executable import Compiled
    from tape_compile.under_tape.trace import Joint

LOGGER: Final = "tape_compile"
_DEBUG, _INFO = 10, 20
_SHOWN: Final = 8  # arguments
_LONG: Final = 2.0  # seconds from which on a trace is worth knowing


def compiling(name: str, signature: Signature) -> AbstractContextManager[object]:
    """Return a context for the first call of a function with such arguments, whose progress is shown if it is long."""
    # The trace is told below.
    return progress_of(lambda: f"compiling {name} for ({_arguments(signature)})", logger=None, ticking=True)


def traced(
    name: str, compiled: Compiled | Joint, signature: Signature, known: int, began: float, where: str = ""
) -> None:
    """Tell of a trace: at DEBUG of the first one of a function, at INFO of further ones and of those that take long.

    Args:
        name: the function's.
        compiled, signature: the code, and the arguments that it is for.
        known: the number of traces before.
        began: when the call began, by `perf_counter`.
        where: where the function is called, if not by itself.
    """

    def line() -> str:
        again = f" again, trace {known + 1}," if known else ""
        before, after = len(compiled.traced.instructions), len(compiled.source.program.instructions)
        return (
            f"{name} is traced{again}{where} for ({_arguments(signature)}): {before} instructions, "
            f"{after} after the passes, in {perf_counter() - began:.2f} s"
        )

    log(LOGGER, _INFO if known or perf_counter() - began > _LONG else _DEBUG, line)


def not_compiled(name: str, why: str) -> None:
    """Tell, at INFO, why a function runs as plain Python for some arguments."""
    log(LOGGER, _INFO, lambda: f"{name} runs as plain Python for these arguments: {why}")


def _arguments(signature: Signature) -> str:
    from tape_core.tracing import describe  # imported late, since it knows compiled functions

    leaves = ["a donated Tensor" if _is_donated(leaf) else describe(leaf) for leaf in signature.leaves[:_SHOWN]]
    more = len(signature.leaves) - len(leaves)
    return ", ".join(leaves) + (f", and {more} more" if more else "")


def _is_donated(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and type(leaf._array) is Donated
