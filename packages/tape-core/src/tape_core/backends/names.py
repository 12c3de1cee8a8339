"""Checks of the names under which a backend has kernels and rules: a misspelled one would never be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tape_core.base.lookup import OPS
from tape_core.base.mistakes import meant, most_like, suggest
from tape_core.base.user_code import warn_user

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend


_CUTOFF = 0.8  # of the similarity that difflib finds, from 0 to 1; below, a name may be an op's of another package
_RESIDUALS = "_with_residuals"  # the kernel `x_with_residuals` of an op x returns residuals for its derivative, too
_FORMER = "_keeping"  # the deprecated suffix of the same kernels, which an op renames when it is bound to the backend


def unknown_names(backend: Backend) -> dict[str, str]:
    """Return a message for each name in a backend's kernels and rules that no op has."""
    # A name that the library has is accepted, too: such a kernel takes the place of the library's function in rules and
    # default kernels.
    known = {f"{name}{suffix}" for name in OPS for suffix in ("", _RESIDUALS, _FORMER)}
    # A list, since another thread may bind an op meanwhile and rename its kernel.
    kernels = [name for name in list(backend.kernels) if name not in known and not hasattr(backend.namespace, name)]
    found = [(name, f"a kernel for {name!r}", _kernel_like(name)) for name in kernels]
    rules = [name for name in backend.rules if name not in OPS]
    found += [(name, f"rules for {name!r}", most_like(name, OPS, cutoff=_CUTOFF)) for name in rules]
    return {
        name: f"backend {backend.name!r} has {what}, and there is no such op{suggest(close)}"
        for name, what, close in found
    }


def _kernel_like(name: str) -> str | None:
    """Return the name of a kernel of an op that a name is like, or None."""
    # The suffix is long: two names that share it are alike whatever the ops are called. So the ops are compared alone.
    stem = name.removesuffix(_RESIDUALS).removesuffix(_FORMER)
    if stem != name:
        close = most_like(stem, OPS, cutoff=_CUTOFF)
        return None if close is None else close + _RESIDUALS
    of_op = [f"{op}{_RESIDUALS}" for op in OPS if name.startswith(f"{op}_")]
    return most_like(name, [*OPS, *of_op], cutoff=_CUTOFF)


def refuse_names(backend: Backend) -> None:
    """Refuse kernels and rules under names that look like misspelled names of ops, or of inputs of ops.

    It is called when the backend is made; for that of a plugin, when the plugin has declared its ops. A name that is
    like no op's is left alone: another package may declare the op later. The conformance suite complains of it, too.

    Raises:
        ValueError: there is one.
    """
    for text in unknown_names(backend).values():
        # Only texts that suggest a similar name end so; see `meant`.
        if text.endswith("?"):
            raise ValueError(f"{text} An op of another package must be declared before: import that")
    for name, rules in backend.rules.items():
        inputs = OPS[name].inputs if name in OPS else tuple(rules)
        if unknown := [given for given in rules if given not in inputs]:
            raise ValueError(
                f"backend {backend.name!r} has a rule for the input {unknown[0]!r} of op {name!r}, whose inputs are "
                f"{', '.join(inputs)}{meant(unknown[0], inputs)}"
            )


def check_names(backend: Backend) -> None:
    """Warn, once, of names that :func:`refuse_names` refuses, and that came to the backend in another way.

    It is called when the backend runs its first op.
    """
    backend.is_checked = True
    for text in unknown_names(backend).values():
        if text.endswith("?"):
            warn_user(f"{text} It is not used, unless another package declares such an op: import that before")
