"""Modules as functions of their parameters: `module.using(params)` and `functional_call`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tape_core import Generator, Tensor, Variable
from tape_core.random import standing_in
from tape_core.support import binding, contextmanager, meant, read_array
from tape_core.typing import ArrayLike

from tape_nn.generators import checked_state, current_state, named_generators
from tape_nn.hints import missing
from tape_nn.module_tree import flatten_module, holds_leaves, named_state

if TYPE_CHECKING:
    from tape_nn.module import Module

Parameters: TypeAlias = "Mapping[str, ArrayLike] | Sequence[ArrayLike] | Module"
"""Values by the names of `state_dict`, or those of all trainable Variables in their order, or a Module with them."""


class BoundValues(Mapping[str, Tensor]):
    """The values that Variables have in a `with module.using(...)` block, by name: those given, or assigned since.

    Where the state of a generator was given, it is the state after the draws so far.
    """

    def __init__(
        self, names: Sequence[str], bounds: Sequence[binding.Bound], generators: Mapping[str, Generator]
    ) -> None:
        self._bounds = dict(zip(names, bounds, strict=True))
        self._generators = generators

    def __getitem__(self, name: str) -> Tensor:
        if name in self._generators:
            return current_state(self._generators[name])
        return self._bounds[name].value

    def __iter__(self) -> Iterator[str]:
        return iter((*self._bounds, *self._generators))

    def __len__(self) -> int:
        return len(self._bounds) + len(self._generators)

    def __repr__(self) -> str:
        return f"<values of {', '.join(self)}>"


@contextmanager
def using(module: Module, params: Parameters, method: str = "using") -> Iterator[BoundValues]:
    """Give Variables of a Module other values in a context; see :meth:`tape_nn.Module.using`.

    `method` is the name of the public function, for messages.
    """
    known = named_state(module, method)
    for name, found in known.items():
        if not isinstance(found, Variable):
            raise TypeError(
                f"{method}: {name!r} of {type(module).__name__} is no Variable but a value, since this Module was made "
                "by a transformation; call it as it is, or use tape_nn.functional_call"
            )
    given = _by_name(module, params, known, method)
    states = _take_states(module, given)
    values = [_checked(name, value, known[name], method) for name, value in given.items()]
    with (
        standing_in(list(states.values())) as generators,
        binding.bind([known[name] for name in given], values) as bounds,
    ):
        yield BoundValues(list(given), bounds, dict(zip(states, generators, strict=True)))


def _take_states(module: Module, given: dict[str, Any]) -> dict[str, tuple[Generator, Tensor]]:
    """Take the states of random generators out of given values; return them with the generators, by name."""
    generators = {name: generator for name, generator in named_generators(module).items() if name in given}
    return {name: (generator, checked_state(name, given.pop(name))) for name, generator in generators.items()}


def functional_call(module: Module, params: Parameters, *args: Any, **kwargs: Any) -> Any:
    """Call a Module with other values in place of its Variables; the Module stays as it is.

    It is `with module.using(params): module(*args, **kwargs)`, and works under every transformation:

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.Dense(1)
    >>> layer.build((None, 2))
    >>> params = {"kernel": tc.asarray([[1.0], [2.0]]), "bias": tc.asarray([0.5])}
    >>> x = tc.asarray([[1.0, 1.0]])
    >>> nn.functional_call(layer, params, x).tolist()
    [[3.5]]
    >>> found = tc.grad(lambda p: tc.sum(nn.functional_call(layer, p, x) ** 2))(params)
    >>> found["kernel"].tolist(), found["bias"].tolist()
    ([[7.0], [7.0]], [7.0])

    What the call assigns, such as the moving statistics of :class:`BatchNorm`, goes to the values if they are among
    `params`, and is lost then; use :meth:`Module.using` to get it. The same holds for the states of random generators
    that `state_dict()` has: a call with such a state draws from there, and the Module's generator stays where it is.

    Args:
        module: a built Module.
        params: see :meth:`Module.using`.
        args, kwargs: those of the call.
    """
    if not holds_leaves(module):
        with using(module, params, "functional_call"):
            return module(*args, **kwargs)  # type: ignore[operator]
    # A functional copy has no Variables to bind, so another copy is made, with the values in it.
    known = named_state(module, "functional_call")
    given = _by_name(module, params, known, "functional_call")
    states = _take_states(module, given)
    values = {name: _checked(name, value, known[name], "functional_call") for name, value in given.items()}
    leaves, skeleton = flatten_module(module)
    copied = skeleton.unflatten([values.pop(name, leaf) for name, leaf in zip(skeleton.names, leaves, strict=True)])
    with standing_in(list(states.values())), binding.bind([known[name] for name in values], list(values.values())):
        return copied(*args, **kwargs)


def _by_name(module: Module, params: Parameters, known: Mapping[str, Tensor], method: str) -> dict[str, Any]:
    """Return parameters in any of their forms as a dict of values by name.

    Raises:
        ValueError: a name is no Variable's, or the number of values is not that of the trainable Variables.
        TypeError: `params` is of none of the forms.
    """
    if isinstance(params, Mapping):
        for name in params:
            if name not in known and name not in named_generators(module):
                raise ValueError(
                    f"{method}: {type(module).__name__} has no Variable {name!r}{meant(str(name), known)}; the names "
                    f"are {', '.join(known)}"
                )
        return dict(params)
    names = [name for name, found in known.items() if getattr(found, "trainable", True)]
    if hasattr(type(params), "__tape_node__"):
        values, skeleton = flatten_module(params)  # type: ignore[arg-type]
        if skeleton.names != names:
            raise ValueError(
                f"{method}: the given {type(params).__name__} has the leaves {', '.join(skeleton.names)}; the "
                f"trainable Variables of {type(module).__name__} are {', '.join(names)}"
            )
    elif isinstance(params, Sequence) and not isinstance(params, str):
        values = list(params)
    else:
        raise TypeError(
            f"{method}: params must be a mapping by the names of state_dict(), a sequence in the order of "
            f"trainable_variables, or a Module; got {type(params).__name__!r}"
        )
    if len(values) != len(names):
        raise ValueError(
            f"{method}: {len(values)} values are given; {type(module).__name__} has {len(names)} trainable Variables: "
            f"{', '.join(names)}"
        )
    return dict(zip(names, values, strict=True))


def _checked(name: str, value: ArrayLike, variable: Tensor, method: str) -> Tensor:
    """Return a value as a Tensor that a Variable may have.

    Raises:
        ValueError: it has another shape.
        TypeError: it is no array, or its dtype is of another kind: it is floating and the Variable is not, for example.
    """
    found: Tensor = read_array(value, lambda: f"{method}: the value of {name!r}", variable)
    if found.shape != variable.shape:
        raise ValueError(f"{method}: the value of {name!r} has shape {found.shape}, the Variable {variable.shape}")
    if found.dtype.kind != variable.dtype.kind and not (found.dtype.inexact and variable.dtype.inexact):
        raise TypeError(f"{method}: the value of {name!r} has dtype {found.dtype}, the Variable {variable.dtype}")
    return found


if not TYPE_CHECKING:
    __getattr__ = missing(__name__, lambda: ("functional_call",))
