"""`python -m tape_core`: the installed backends and compilers, which ones are selected, and why."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator

from tape_core._version import __version__
from tape_core.backends import compilers, discovery
from tape_core.backends.errors import BackendError, BackendLoadError, CompilerError, CompilerLoadError
from tape_core.backends.selection import select

DESCRIPTION = """\
Show the installed backends and compilers, which ones are selected, and why.

environment variables:
  TAPE_BACKEND           the backend of new arrays: torch, torch:cuda:0, or module:attribute
  TAPE_DISABLE_BACKENDS  backends not to use: a comma-separated list, or * for all
  TAPE_COMPILER          the compiler of functions that name none: python, torch, cudagraph
  TAPE_DISABLE_COMPILERS compilers not to use: a comma-separated list, or * for all
  TAPE_TRACE_PLUGINS     1 reports on stderr how each plugin is found and loaded
  TAPE_DEFAULT_DTYPE     the dtype of new floating-point arrays: float32, float64, float16
"""


def rows() -> Iterator[tuple[str, ...]]:
    """For each installed backend: name, package, array library, devices, status."""
    yield "backend", "package", "array library", "devices", "status"
    for name, plugin in discovery.installed().items():
        library, devices = "-", "-"
        if plugin.disabled:
            status = "disabled"
        else:
            try:
                backend = discovery.load(name)
                package = discovery.info(name).array_types[0].partition(":")[0].partition(".")[0]
                library, devices = f"{package} {backend.version}", ", ".join(backend.devices())
                status = "ok"
            except BackendLoadError as error:
                status = f"broken: {error.problem}"
            except Exception as error:  # noqa: BLE001 (whatever a plugin raises, the others are shown)
                status = f"broken: {' '.join(f'{type(error).__name__}: {error}'.split())}"
        yield name, plugin.distribution, library, devices, status


def compiler_rows() -> Iterator[tuple[str, ...]]:
    """For each installed compiler: name, package, backends, what it does, status. Nothing large is imported."""
    yield "compiler", "package", "for arrays of", "what it makes", "status"
    for name, plugin in compilers.installed().items():
        backends, summary = "-", "-"
        if plugin.disabled:
            status = "disabled"
        else:
            try:
                info = compilers.info(name)
                backends, summary, status = ", ".join(info.backends) or "all", info.summary or "-", "ok"
            except CompilerLoadError as error:
                status = f"broken: {error.problem}"
        yield name, plugin.distribution, backends, summary, status


def print_table(table: list[tuple[str, ...]]) -> None:
    """Print rows in columns, if there are any below the header."""
    if len(table) > 1:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print("  ".join(cells).rstrip())
        print()


def main(argv: list[str] | None = None) -> int:
    """Print the report; 1 if no backend, or not the compiler that is asked for, can be selected."""
    argparse.ArgumentParser(
        prog="python -m tape_core",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(argv)

    print(f"tape-core {__version__}, Python {platform.python_version()}\n")
    print_table(list(rows()))
    print_table(list(compiler_rows()))
    variables = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("TAPE_")]
    print(f"environment: {', '.join(variables) or 'no TAPE_ variable is set'}")
    try:
        backend, device, reason = select()
    except BackendError as error:
        print("selected:    none")
        sys.stdout.flush()
        print(f"\n{error}", file=sys.stderr)
        return 1
    print(f"selected:    {backend.name}{f' on {device}' if device else ''} ({reason})")
    try:
        compiler = compilers.default()
    except CompilerError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    if compiler is not None:
        print(f"compiler:    {compiler} (TAPE_COMPILER={compiler})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
