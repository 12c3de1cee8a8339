"""What compiled functions tell the logger `tape_compile`: each trace, its arguments, and how long it took."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from tape_core import Tensor
from tape_core.support import log

from tape_compile.donation import Donated

if TYPE_CHECKING:
    from tape_compile.cache_key import Signature
    from tape_compile.codegen.executable import Compiled

LOGGER: Final = "tape_compile"
_DEBUG, _INFO = 10, 20
_SHOWN: Final = 8  # arguments


def traced(name: str, compiled: Compiled, signature: Signature, known: int, began: float) -> None:
    """Tell of a trace: at DEBUG of the first one of a function, at INFO of further ones.

    Args:
        name: the function's.
        compiled, signature: the code, and the arguments that it is for.
        known: the number of traces before.
        began: when the call began, by `perf_counter`.
    """

    def line() -> str:
        again = f" again, trace {known + 1}," if known else ""
        before, after = len(compiled.traced.instructions), len(compiled.program.instructions)
        return (
            f"{name} is traced{again} for ({_arguments(signature)}): {before} instructions, {after} after the passes, "
            f"in {perf_counter() - began:.2f} s"
        )

    log(LOGGER, _INFO if known else _DEBUG, line)


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
