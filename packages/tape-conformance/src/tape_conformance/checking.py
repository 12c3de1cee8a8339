"""Checks, groups of checks, and the assertions by which they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tape_core.backends import Backend, Selection
from tape_core.testing import assert_close

from tape_conformance.distributions import distribution_of


class Skipped(Exception):
    """Raised by a check that does not apply, with the reason."""


@dataclass(frozen=True)
class Check:
    """One thing that a backend must do. Ids do not change from release to release: `expectations.toml` names them.

    Attributes:
        id: the name.
        function: raises an error if the backend does not do it.
        traits: what is special about the sample that is checked, see `samples.Case.traits`; None without a sample.
        quick: whether it is one of the checks that find most mistakes in little time.
    """

    id: str
    function: Callable[[], None]
    traits: Callable[[], Mapping[str, str]] | None = None
    quick: bool = False


@dataclass(frozen=True)
class Target:
    """The backend under test.

    Attributes:
        spec: a name, perhaps with a device, or a Backend: as the caller gave it.
        selection: the backend and the device that `spec` selects.
        compilers: the names of compilers whose code is compared with eager calls, beside Tape's own.
    """

    spec: str | Backend
    selection: Selection
    compilers: tuple[str, ...] = ()

    @property
    def backend(self) -> Backend:
        """The backend."""
        return self.selection.backend

    @property
    def device(self) -> str:
        """The device on which the checks make their arrays."""
        return self.selection.device or self.backend.default_device

    @property
    def name(self) -> str:
        """The name for reports: the backend's, or what was asked for where several processes hold its arrays."""
        several = isinstance(self.spec, str) and distribution_of(self.spec) is not None
        return str(self.spec) if several else self.backend.name

    @property
    def plugin(self) -> str | None:
        """The name of the backend's plugin; None if a Backend object was given."""
        return self.spec.partition(":")[0] if isinstance(self.spec, str) else None


class Group:
    """Checks that are functions of the target, registered by the decorator `@group("creation/zeros")`.

    A check that goes through all ops or through all pairs of dtypes is `exhaustive`, and not one of the quick ones.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._functions: dict[str, tuple[Callable[[Target], None], bool]] = {}

    def __call__(
        self, name: str, *, exhaustive: bool = False
    ) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
        def add(function: Callable[[Target], None]) -> Callable[[Target], None]:
            self._functions[f"{self.prefix}/{name}"] = function, not exhaustive
            return function

        return add

    def checks(self, target: Target) -> Iterator[Check]:
        """Yield the group's checks of one target."""
        for name, (function, quick) in self._functions.items():
            # As a default argument, since a closure would see the loop's last function.
            yield Check(name, lambda function=function: function(target), quick=quick)  # type: ignore[misc]


def expect(condition: bool, message: str) -> None:
    """Fail with a message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def expect_equal(found: object, expected: object, what: str) -> None:
    """Fail unless two plain values are equal."""
    if found != expected:
        raise AssertionError(f"{what} is {found!r}, expected {expected!r}")


def expect_same_bits(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Fail with both arrays unless they have the same bytes."""
    if found.tobytes() != expected.tobytes():  # to print arrays takes longer than most checks
        raise AssertionError(f"{what}: {found} and {expected}")


def expect_close(found: ArrayLike, expected: ArrayLike, what: str, rtol: float, atol: float | None = None) -> None:
    """Fail unless two arrays have the same shape and close values. NaN is close to NaN.

    `atol`, by default `rtol`, is relative to the largest finite element of `expected` (at least 1), since an element
    near 0 is often a difference of large ones. `atol=0` compares each element by itself.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    expect_equal(found.shape, expected.shape, f"the shape of {what}")
    try:
        assert_close(found, expected, rtol=1.0, magnitude=_bound(expected, rtol, rtol if atol is None else atol))
    except AssertionError as error:
        raise AssertionError(f"{what} is wrong: {error}") from None


def is_close(found: float, expected: float, rtol: float) -> bool:
    """Return whether `expect_close` would take two numbers for close."""
    return found == expected or bool(abs(found - expected) <= _bound(np.asarray(expected), rtol, rtol))


def _bound(expected: NDArray[Any], rtol: float, atol: float) -> NDArray[Any]:
    """Return how far each element may be off."""
    # Sizes as those of complex numbers, since abs(-128) in int8 is -128.
    sizes = np.abs(expected.astype(complex))
    # Infinities and NaN must be in the same places.
    sizes = np.where(np.isfinite(sizes), sizes, 0.0)
    return rtol * sizes + atol * max(1.0, float(sizes.max(initial=0.0)))
