"""`python -m tape_conformance new`: write a project for a backend, a compiler or an op."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from tape_conformance.new import KINDS, NewError, note, project, write

DESCRIPTION = """\
The conformance suite of Tape. It is run by pytest:

  pytest --pyargs tape_conformance --tape-backend=NAME

This command writes new projects: a package with an entry point, tests, a workflow and a README, which passes its tests
as it is. docs/plugins.md tells more.
"""


def main(argv: list[str] | None = None) -> int:
    """Write a project; 2 if it cannot be written as asked."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tape_conformance", description=DESCRIPTION, formatter_class=plain)
    commands = parser.add_subparsers(metavar="new", required=True)
    new = commands.add_parser("new", help="write a project for a backend, a compiler or an op")
    new.add_argument("kind", choices=KINDS, help="what it is")
    new.add_argument("name", metavar="NAME", help="of the backend, the compiler or the op; the project is tape-NAME")
    new.add_argument("--out", metavar="DIR", type=Path, help="the folder; by default tape-NAME")
    new.add_argument(
        "--library",
        metavar="MODULE",
        help="for a backend: the module with the functions of the Array API standard; by default array_api_strict",
    )
    new.add_argument(
        "--array-class",
        metavar="MODULE:CLASS",
        help="for a backend: the class of its arrays; by default that of an array which the library makes",
    )
    new.add_argument("--owner", metavar="ACCOUNT", default="OWNER", help="your account on GitHub, for the badge")
    arguments = parser.parse_args(argv)
    try:
        options = {key: value for key in ("library", "array_class") if (value := getattr(arguments, key)) is not None}
        if options and arguments.kind != "backend":
            raise NewError("--library and --array-class are for backends alone; leave them out")
        files = project(arguments.kind, arguments.name, owner=arguments.owner, **options)
        folder = arguments.out or Path(f"tape-{arguments.name.replace('_', '-')}")
        write(files, folder)
    except NewError as error:
        print(f"python -m tape_conformance new: {error}", file=sys.stderr)
        return 2
    print(f"{folder} has {len(files)} files. Try it:\n")
    print(f'    cd {shlex.quote(str(folder))}\n    python -m pip install -e ".[test]"\n    pytest --tape-quick\n')
    if arguments.kind == "backend" and "library" not in options:
        print("It begins with the arrays of array_api_strict: --library MODULE begins with those of your library.")
    if arguments.kind == "backend" and (told := note(**options)):
        print(told)
    if arguments.owner == "OWNER":
        print("README.md has a badge of GitHub's account OWNER: write yours there, or name it by --owner.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
