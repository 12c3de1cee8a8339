"""Files that are written whole or not at all: aside, as drafts, which then take their places.

A program that is killed meanwhile leaves what was there before, and perhaps such a draft.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Sequence


def write_whole(what: str, contents: Sequence[tuple[str, Iterable[bytes | memoryview]]]) -> None:
    """Write files, all of them or none.

    Args:
        what: who writes them, for errors.
        contents: for each file its path, which is no link, and the pieces of its content. The last one is the file that
            the user has named.

    Raises:
        OSError: one cannot be written; those that were there are as they were.
    """
    drafts: list[tuple[str, str]] = []
    try:
        for target, pieces in contents:
            folder, file = os.path.split(target)
            drafts.append((os.path.join(folder, f".{file}.{secrets.token_hex(8)}"), target))
            with open(drafts[-1][0], "xb") as stream:
                stream.writelines(pieces)
                stream.flush()
                os.fsync(stream.fileno())
        for draft, target in drafts:
            os.replace(draft, target)
    except OSError as error:
        if error.filename is None:  # of a write
            raise OSError(error.errno, f"{what}: {error.strerror or error}", contents[-1][0]) from error
        raise
    finally:
        for draft, _ in drafts:
            if os.path.exists(draft):
                os.remove(draft)
    if os.name == "posix":  # the new names, too; elsewhere folders cannot be opened
        for folder in {os.path.dirname(target) for target, _ in contents}:
            _sync(folder)


def is_draft_of(file: str, name: str) -> bool:
    """Whether a file's name is that of a draft of another one in its folder."""
    return re.fullmatch(rf"\.{re.escape(file)}\.[0-9a-f]{{16}}", name) is not None


def _sync(folder: str) -> None:
    """Have the system write out which files a folder has."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
