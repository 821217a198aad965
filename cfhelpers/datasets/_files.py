"""Raw files in a user's folder, and downloads that are whole and checked or not there."""

import errno
import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cfhelpers import paths

BLOCK = 1 << 20  # bytes that are read at once
SECONDS = 60  # without an answer, after which a download breaks off


class DownloadError(RuntimeError):
    """A file could not be had; the message says which and why. The cache is as it was."""


def local_folders() -> list[Path]:
    """Where raw files are looked for: the folder CFHELPERS_DATA, then the data folder."""
    folders = []
    named = os.environ.get("CFHELPERS_DATA")
    if named:
        folders.append(Path(named).expanduser())
    folders.append(paths.DATA)
    return folders


def not_found(what: str, tried: Sequence[Path]) -> FileNotFoundError:
    """The error for missing local files, with every place that was looked at."""
    advice = "set CFHELPERS_DATA to the folder that holds it, or take another source"
    lines = [f"{what}: not found; {advice}. Looked for", *map(str, tried)]
    return FileNotFoundError("\n  ".join(lines))


def fetch(
    url: str,
    path: Path,
    check: Callable[[Path], object],
    unpack: Callable[[Path, Path], object] = os.replace,
) -> Path:
    """A file from the cache, or from the web into the cache.

    It appears only when it is complete and checked. Its checksum stands beside it, and a
    cached file that no longer has it is refused.

    Parameters
    ----------
    url : str
    path : Path
        Where the file is kept.
    check : callable (path)
        Raises ValueError for a file that is not the one expected.
    unpack : callable (download, target)
        Turns what was downloaded into what is kept.

    Returns
    -------
    Path
        `path`.
    """
    if is_kept(path):
        return path
    note = _checksum_note(path)
    with paths.atomic_write(path) as partial:
        download = partial.with_name(f"{partial.name}.download")
        try:
            with raised_as_download_error(url):
                _receive(url, download)
                unpack(download, partial)
                check(partial)
                with paths.atomic_write(note) as partial_note:
                    partial_note.write_text(f"{_sha256(partial)}  {path.name}\n")
        finally:
            download.unlink(missing_ok=True)
    return path


def is_kept(path: Path) -> bool:
    """Whether a download is in the cache; one that was changed there is refused."""
    if not path.exists():
        return False
    note = _checksum_note(path)
    if note.exists() and note.read_text().split()[0] != _sha256(path):
        raise DownloadError(
            f"{path}: changed since it was downloaded; delete it to download it anew"
        )
    return True


def _checksum_note(path: Path) -> Path:
    """Where the checksum of a download is kept."""
    return path.with_name(f"{path.name}.sha256")


def fetch_text(url: str) -> str:
    """What an address answers with; it is not kept.

    Parameters
    ----------
    url : str

    Returns
    -------
    str
    """
    with tempfile.TemporaryDirectory() as folder, raised_as_download_error(url):
        answer = Path(folder) / "answer"
        _receive(url, answer)
        return answer.read_text(encoding="utf-8")


@contextmanager
def raised_as_download_error(url: str) -> Iterator[None]:
    """Whatever goes wrong with a download becomes a DownloadError that says why."""
    try:
        yield
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DownloadError(f"{url}: {_reason(error)}; nothing was kept") from error


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Whatever a damaged file makes its reader raise becomes a ValueError that names it.

    Examples
    --------
    >>> with named_in_errors(Path("data/psam_p08.csv")):
    ...     int("x")
    Traceback (most recent call last):
        ...
    ValueError: psam_p08.csv: invalid literal for int() with base 10: 'x'
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path.name}: {reason}") from error


def _sha256(path: Path) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _receive(url: str, target: Path) -> None:
    """Stream `url` to `target`; a web page for a file and a short answer are errors."""
    _check_is_secure(url)
    request = urllib.request.Request(url, headers={"User-Agent": "cfhelpers"})
    with (
        urllib.request.urlopen(request, timeout=SECONDS) as answer,
        open(target, "wb") as file,
    ):
        _check_is_secure(answer.url)  # it may have sent us on to another address
        if answer.headers.get_content_type() == "text/html":
            raise ValueError("the server sent a web page")
        while block := answer.read(BLOCK):
            file.write(block)
    expected = answer.headers.get("Content-Length")
    received = target.stat().st_size
    if expected is not None and received != int(expected):
        raise ConnectionError(f"{received:,} of {int(expected):,} bytes arrived")


def _check_is_secure(url: str) -> None:
    """A ValueError for an address without TLS, except on this very machine."""
    if not url.startswith(("https://", "http://127.0.0.1:")):
        raise ValueError("the address is not https")


def _reason(error: Exception) -> str:
    """Why a download failed, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk"
    if isinstance(error, ValueError):
        return f"not the file that was expected: {error}"
    return f"broke off, try again: {error}"
