"""`python -m tape_core`: the installed backends and compilers, which ones are selected, and why."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping

from tape_core._version import __version__
from tape_core.backends import compilers, discovery
from tape_core.backends.errors import BackendError, CompilerError, PluginLoadError
from tape_core.backends.plugins import Installed
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


def backend_cells(name: str) -> tuple[str, str]:
    """Return the array library and the devices of a backend, which is loaded and has made an array.

    Raises:
        TypeError: Tape would not know its arrays as those of this backend.
    """
    backend = discovery.load(name)
    array = type(backend.public(backend.asarray([1.0])))
    if discovery.backend_of_type(array) is not backend:
        raise TypeError(
            f"it makes arrays of type '{array.__module__}:{array.__qualname__}', which its array_types, "
            f"{', '.join(discovery.info(name).array_types)}, do not name"
        )
    package = discovery.info(name).array_types[0].partition(":")[0].partition(".")[0]
    return f"{package} {backend.version}", ", ".join(backend.devices())


def compiler_cells(name: str) -> tuple[str, str]:
    """Return the backends of a compiler and what it makes. Nothing large is imported."""
    info = compilers.info(name)
    return ", ".join(info.backends) or "all", info.summary or "-"


def rows(
    installed: Mapping[str, Installed], header: tuple[str, str, str], cells: Callable[[str], tuple[str, str]]
) -> Iterator[tuple[str, ...]]:
    """Yield a header and, for each installed plugin: name, package, two cells of its kind, status."""
    yield header[0], "package", *header[1:], "status"
    for name, plugin in installed.items():
        two = "-", "-"
        if plugin.disabled:
            status = "disabled"
        else:
            try:
                two, status = cells(name), "ok"
            except PluginLoadError as error:
                status = f"broken: {error.problem}"
            except Exception as error:  # noqa: BLE001 (whatever a plugin raises, the others are shown)
                status = f"broken: {' '.join(f'{type(error).__name__}: {error}'.split())}"
        yield name, plugin.distribution, *two, status


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
    print_table(list(rows(discovery.installed(), ("backend", "array library", "devices"), backend_cells)))
    print_table(list(rows(compilers.installed(), ("compiler", "for arrays of", "what it makes"), compiler_cells)))
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
