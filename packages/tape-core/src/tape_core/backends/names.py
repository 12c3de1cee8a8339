"""Checks of the names under which a backend has kernels and rules: a misspelled one would never be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tape_core.base.lookup import OPS
from tape_core.base.mistakes import meant
from tape_core.base.user_code import warn_user

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend


def unknown_names(backend: Backend) -> dict[str, str]:
    """Return a message for each name in a backend's kernels and rules that no op has."""
    # `x_keeping` is a kernel of op x that returns residuals for its derivative as well. A name that the library has is
    # accepted, too: such a kernel takes the place of the library's function in rules and default kernels.
    known = {*OPS, *[f"{name}_keeping" for name in OPS]}
    kernels = [name for name in backend.kernels if name not in known and not hasattr(backend.namespace, name)]
    return {
        name: f"backend {backend.name!r} has {what} for {name!r}, and there is no such op"
        + meant(name, known, cutoff=0.8)
        for what, names in (("a kernel", kernels), ("rules", [name for name in backend.rules if name not in OPS]))
        for name in names
    }


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
