"""Checks, groups of checks, and the assertions by which they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from tape_core.backends import Backend, Selection


class Skipped(Exception):
    """Raised by a check that does not apply, with the reason."""


@dataclass(frozen=True)
class Check:
    """One thing that a backend must do. Ids do not change from release to release: `expectations.toml` names them."""

    id: str
    function: Callable[[], None]


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
    def plugin(self) -> str | None:
        """The name of the backend's plugin; None if a Backend object was given."""
        return self.spec.partition(":")[0] if isinstance(self.spec, str) else None


class Group:
    """Checks that are functions of the target, registered by the decorator `@group("creation/zeros")`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._functions: dict[str, Callable[[Target], None]] = {}

    def __call__(self, name: str) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
        def add(function: Callable[[Target], None]) -> Callable[[Target], None]:
            self._functions[f"{self.prefix}/{name}"] = function
            return function

        return add

    def checks(self, target: Target) -> Iterator[Check]:
        """Yield the group's checks of one target."""
        for name, function in self._functions.items():
            # As a default argument, since a closure would see the loop's last function.
            yield Check(name, lambda function=function: function(target))  # type: ignore[misc]


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
    # Infinities and NaN must be in the same places; assert_allclose sees to that.
    finite = expected[np.isfinite(expected)] if expected.dtype.kind in "fc" else expected
    # Sizes as those of complex numbers, since abs(-128) in int8 is -128.
    scale = max(1.0, float(np.abs(finite.astype(complex)).max())) if finite.size else 1.0
    try:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=(rtol if atol is None else atol) * scale)
    except AssertionError as error:
        raise AssertionError(f"{what} is wrong: {str(error).strip()}") from None
