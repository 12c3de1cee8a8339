"""What is registered with other libraries when they are imported, before or after tape_core."""

from __future__ import annotations

from types import ModuleType

from tape_core.interop.imports import when_imported


def _einops(backends: ModuleType) -> None:
    from tape_core.interop.einops_backend import declare

    declare(backends)


def _scipy_fft(backends: ModuleType) -> None:
    from tape_core.interop.scipy_fft import register

    register(backends)


def register() -> None:
    """Register with the libraries that have been imported, and have the others wait."""
    when_imported("einops._backends", _einops)
    when_imported("scipy.fft._backend", _scipy_fft)
