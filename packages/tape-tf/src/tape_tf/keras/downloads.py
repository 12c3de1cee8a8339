"""`tf.keras.utils.get_file`: files from the network or this machine, kept in a folder, checked and unpacked."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from tape_tf.names import exported
from tape_tf.typing import PathLike

_BLOCK = 1 << 20  # bytes read at once
_TIMEOUT = 60  # seconds without an answer


def keras_home() -> Path:
    """Return the folder for files that are kept: `$KERAS_HOME`, or `~/.keras`."""
    return Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")


@exported("keras.utils.get_file", "local paths are taken, too; an archive with paths outside of its folder is refused")
def get_file(
    fname: PathLike | None = None,
    origin: PathLike | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: Any = "auto",
    cache_dir: PathLike | None = None,
    force_download: bool = False,
) -> str:
    """Return the path of a file, which is downloaded or copied to a folder at the first call.

    >>> import tape_tf as tf, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "words.txt").write_text("one two")
    >>> path = tf.keras.utils.get_file(origin=(folder / "words.txt").as_uri(), cache_dir=folder / "kept")
    >>> pathlib.Path(path).read_text()
    'one two'

    Args:
        fname: the name to keep it under; by default that at the end of `origin`.
        origin: `https://...`, `http://...`, `ftp://...`, `file://...`, or a path on this machine.
        untar, extract: unpack an archive (tar, also compressed, or zip), and return the folder.
        file_hash, md5_hash: the checksum that the file must have.
        cache_subdir, cache_dir: the folder is `cache_dir/cache_subdir`, by default `~/.keras/datasets`.
        hash_algorithm: "sha256", "md5" or "auto", which tells by the length of the checksum.
        archive_format: "tar", "zip", "auto", or None: unpack nothing.
        force_download: fetch it also if it is there.

    Raises:
        ValueError: there is no origin or no name, the checksum is another one, or the archive is none, or has members
            outside of its folder.
        OSError: the file could not be read; the message says where to put it by hand.
    """
    if origin is None:
        raise ValueError('Please specify the "origin" argument (URL of the file to download).')
    source = os.fspath(origin)
    if md5_hash is not None and file_hash is None:
        file_hash, hash_algorithm = md5_hash, "md5"
    name = os.fspath(fname) if fname else os.path.basename(urllib.parse.urlsplit(source).path)
    if not name or name in (os.curdir, os.pardir) or os.path.basename(name) != name:
        raise ValueError(f"get_file: {name!r} is no name of a file; give fname, and folders as cache_dir, cache_subdir")
    folder = Path(cache_dir or keras_home()).expanduser() / cache_subdir
    target, unpacked = folder / name, folder / name
    if extract or untar:
        # Keras 3's names: the archive is kept beside the folder with its content.
        stem = name.partition(".")[0]
        if fname and "." in name:
            unpacked = folder / f"{stem}_extracted"
        else:
            target = folder / f"{name}_archive"
    folder.mkdir(parents=True, exist_ok=True)
    fresh = False
    if force_download or not target.exists() or not _has_hash(target, file_hash, hash_algorithm):
        _fetch(source, target)
        fresh = True
        if not _has_hash(target, file_hash, hash_algorithm):
            target.unlink()
            raise ValueError(f"get_file: the file from {source} does not have the checksum {file_hash}; it was deleted")
    if (extract or untar) and archive_format:
        if fresh or not unpacked.exists():
            _unpack(target, unpacked, archive_format)
        return str(unpacked)
    return str(target)


def _fetch(source: str, target: Path) -> None:
    """Download or copy a file; one that fails halfway leaves nothing behind."""
    scheme = urllib.parse.urlsplit(source).scheme
    if scheme not in ("http", "https", "ftp", "file") and len(scheme) > 1:  # one letter: a drive of Windows
        raise ValueError(f"get_file: origin must be http(s)://, ftp://, file:// or a path; got {source!r}")
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            if len(scheme) <= 1:
                with open(source, "rb") as file:
                    shutil.copyfileobj(file, out, _BLOCK)
            else:
                if scheme != "file":
                    sys.stdout.write(f"Downloading data from {source}\n")
                with urllib.request.urlopen(source, timeout=_TIMEOUT) as answer:
                    shutil.copyfileobj(answer, out, _BLOCK)
        os.replace(temporary, target)
    except (OSError, urllib.error.URLError) as error:
        raise OSError(f"URL fetch failure on {source}: {error}; put the file there by hand: {target}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _has_hash(path: Path, wanted: str | None, algorithm: str) -> bool:
    if wanted is None:
        return True
    if algorithm in ("auto", None):
        algorithm = "sha256" if len(wanted) == 64 else "md5"
    if algorithm not in ("sha256", "md5"):
        raise ValueError(f'get_file: hash_algorithm must be "sha256", "md5" or "auto", got {algorithm!r}')
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest() == wanted.lower()


# -- archives


def _unpack(archive: Path, folder: Path, formats: Any) -> None:
    """Unpack a tar or zip archive into a folder, whole or not at all.

    Raises:
        ValueError: it is no archive, or a member would lie outside of the folder.
    """
    kinds = ("tar", "zip") if formats == "auto" else (formats,) if isinstance(formats, str) else tuple(formats)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        if "tar" in kinds and tarfile.is_tarfile(archive):
            _unpack_tar(archive, temporary)
        elif "zip" in kinds and zipfile.is_zipfile(archive):
            _unpack_zip(archive, temporary)
        else:
            raise ValueError(f"get_file: {archive.name} is no archive of the format {' or '.join(kinds)}")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unpack_tar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as file:
        if not hasattr(tarfile, "data_filter"):  # Python 3.11.0 to 3.11.3
            raise ValueError("get_file: to unpack tar archives safely Python 3.11.4 or newer is needed")
        try:
            # It refuses absolute paths, links and paths that lead outside, and devices.
            file.extractall(folder, filter="data")
        except (tarfile.FilterError, tarfile.TarError) as error:
            raise ValueError(f"get_file: {archive.name} is not unpacked: {error}") from error


def _unpack_zip(archive: Path, folder: Path) -> None:
    root = folder.resolve()
    with zipfile.ZipFile(archive) as file:
        for member in file.namelist():
            if not (folder / member.replace("\\", "/")).resolve().is_relative_to(root):
                raise ValueError(
                    f"get_file: {archive.name} is not unpacked: {member!r} would lie outside of its folder"
                )
        try:
            file.extractall(folder)
        except (zipfile.BadZipFile, RuntimeError) as error:
            raise ValueError(f"get_file: {archive.name} is not unpacked: {error}") from error
