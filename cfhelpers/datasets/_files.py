"""Raw files in a user's folder, and downloads that are whole and checked or not there at all."""

import errno
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from cfhelpers import paths


class DownloadError(RuntimeError):
    """A file could not be had; the message says which and why, and the cache is as it was."""


def local_folders() -> list[Path]:
    """Where raw files are looked for: the folder CFHELPERS_DATA, then the project's data folder."""
    named = os.environ.get("CFHELPERS_DATA")
    return [Path(named).expanduser(), paths.DATA] if named else [paths.DATA]


def not_found(what: str, tried: list[Path]) -> FileNotFoundError:
    """The error for missing local files, with every place that was looked at."""
    advice = "set CFHELPERS_DATA to the folder that holds it, or take another source"
    return FileNotFoundError(
        "\n  ".join([f"{what}: not found; {advice}. Looked for", *map(str, tried)])
    )


def fetch(
    url: str, path: Path, check: Callable[[Path], object], unpack: Callable = os.replace
) -> Path:
    """`path`, from the cache or from `url`; it appears only when it is complete and `check(path)` has passed.

    `unpack(download, target)` turns what was downloaded into what is kept. The checksum of what is kept stands beside
    it, and a cached file that no longer has it is refused.
    """
    note = path.with_name(f"{path.name}.sha256")
    if path.exists():
        if note.exists() and note.read_text().split()[0] != _sha256(path):
            raise DownloadError(
                f"{path}: changed since it was downloaded; delete it to download it anew"
            )
        return path
    with paths.atomic_write(path) as partial:
        download = partial.with_name(f"{partial.name}.download")
        try:
            _receive(url, download)
            unpack(download, partial)
            check(partial)
            with paths.atomic_write(note) as text:
                text.write_text(f"{_sha256(partial)}  {path.name}\n")
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise DownloadError(f"{url}: {_reason(error)}; nothing was kept") from error
        finally:
            download.unlink(missing_ok=True)
    return path


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _receive(url: str, target: Path) -> None:
    """Stream `url` to `target`; a web page in place of a file and a short answer are errors."""
    request = urllib.request.Request(_secure(url), headers={"User-Agent": "cfhelpers"})
    with (
        urllib.request.urlopen(request, timeout=60) as answer,
        open(target, "wb") as file,
    ):
        _secure(answer.url)
        if answer.headers.get_content_type() == "text/html":
            raise ValueError("the server sent a web page")
        while block := answer.read(1 << 20):
            file.write(block)
    expected, received = answer.headers.get("Content-Length"), target.stat().st_size
    if expected is not None and received != int(expected):
        raise ConnectionError(f"{received:,} of {int(expected):,} bytes arrived")


def _secure(url: str) -> str:
    if not url.startswith(("https://", "http://127.0.0.1:")):
        raise ValueError("the address is not https")
    return url


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk"
    return (
        f"not the file that was expected: {error}"
        if isinstance(error, ValueError)
        else f"broke off, try again: {error}"
    )
