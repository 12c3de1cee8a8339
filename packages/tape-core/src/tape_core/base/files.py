"""Files that are written whole or not at all: aside, as drafts, which then take their places.

A program that is killed meanwhile leaves what was there before, and perhaps such a draft.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Sequence


def write_whole(what: str, contents: Sequence[tuple[str, Iterable[bytes | memoryview]]]) -> None:
    """Write files, all of them or none.

    Args:
        what: who writes them, for errors.
        contents: for each file its path, which is no link, and the pieces of its content. The last one is the file that
            the user has named.

    A file that is replaced keeps who may read it.

    Raises:
        OSError: one cannot be written, or a path is that of something else than a file, such as a folder or a device;
            what was there is as it was.
    """
    modes = [permissions(what, target) for target, _ in contents]
    drafts: list[tuple[str, str]] = []
    try:
        for (target, pieces), mode in zip(contents, modes, strict=True):
            folder, file = os.path.split(target)
            drafts.append((os.path.join(folder, f".{file}.{secrets.token_hex(8)}"), target))
            # In the same folder, since a file can be renamed in one step only within a file system. The data are on the
            # disk before the name is: else a loss of power could leave an empty file under it.
            with open(drafts[-1][0], "xb") as stream:
                stream.writelines(pieces)
                stream.flush()
                os.fsync(stream.fileno())
            if mode is not None:
                os.chmod(drafts[-1][0], mode)
        # All drafts are complete; from here on only renaming can fail. The file that the user has named comes last, so
        # that it never refers to files that do not exist.
        for draft, target in drafts:
            os.replace(draft, target)
    except OSError as error:
        if error.filename is None:  # writing, unlike opening, raises without a path
            raise OSError(error.errno, f"{what}: {error.strerror or error}", contents[-1][0]) from error
        raise
    finally:
        for draft, _ in drafts:
            if os.path.exists(draft):
                os.remove(draft)
    if os.name == "posix":  # the new names, too; elsewhere folders cannot be opened
        for folder in {os.path.dirname(target) for target, _ in contents}:
            sync(folder)


def permissions(what: str, target: str) -> int | None:
    """Return the permissions of a file that is to be replaced; None where there is none yet.

    Args:
        what: who replaces it, for errors.
        target: its path, which is no link.

    Raises:
        OSError: it is no file, or its folder is not there. A file would take the place of a device or a pipe for all
            programs of the system.
    """
    try:
        found = os.stat(target, follow_symlinks=False)
    except FileNotFoundError:
        folder = os.path.dirname(target)
        if not os.path.isdir(folder):
            raise FileNotFoundError(
                errno.ENOENT, f"{what}: there is no folder {folder!r} for this file", target
            ) from None
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, f"{what}: this is a folder; give the path of a file", target)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{what}: only a file can be replaced, and this is none", target)
    return stat.S_IMODE(found.st_mode)


def is_draft_of(file: str, name: str) -> bool:
    """Return whether a file's name is that of a draft of another file in its folder."""
    return re.fullmatch(rf"\.{re.escape(file)}\.[0-9a-f]{{16}}", name) is not None


def sync(path: str) -> None:
    """Have the system write out a file, or which files a folder has."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
