"""Files that are written aside, as drafts, and then replace what was there: a crash leaves the old file or the new."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tape_core.support import permissions, sync


@contextmanager
def replacing(what: str, path: str | os.PathLike[str]) -> Iterator[Path]:
    """A context with the path of a draft, which replaces the file at its end: a crash leaves the old file or the new.

    Raises:
        OSError: the path is that of something other than a file, or the file cannot be written.
    """
    target = os.path.realpath(path)
    mode = permissions(what, target)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as folder:
        draft = Path(folder) / "draft"
        yield draft
        if mode is not None:
            os.chmod(draft, mode)
        # The content reaches the disk before the name does: otherwise a power failure could leave an empty file under
        # it.
        if os.name == "posix":
            sync(str(draft))
        os.replace(draft, target)
