"""One process at a time: a lock that ends with the process that holds it."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cfhelpers.paths import LONGEST_STEM, check_replaceable

if sys.platform == "win32":
    import msvcrt
elif sys.platform != "emscripten":  # a browser's Python is one process
    import fcntl

PATIENCE = 60.0  # seconds until a process that waits gives up
PAUSE = 0.01  # seconds between two attempts


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process at a time read and write a file; the others wait for their turn.

    The lock is the system's, on an empty file beside `path` that is removed at the end.
    The system takes it back from a process that is killed, so nothing that such a process
    leaves can block another. Where a file system has no locks, nobody waits.
    """
    check_replaceable(path)
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.stem[:LONGEST_STEM]}.lock")
    try:
        handle = _locked(lock)
    except OSError as error:
        error.filename = str(path)
        raise
    if handle is None:
        raise ValueError(
            f"{path}: another run has worked on it for {PATIENCE:g} seconds, and nothing "
            "was done here; run this again"
        )
    try:
        yield
    finally:
        _remove(lock, handle)


def _locked(lock: Path) -> int | None:
    """A handle that holds the lock; None if another process keeps it for too long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        handle = _opened(lock)
        if handle is not None:
            if _is_taken(handle) and _is_still_there(lock, handle):
                return handle
            os.close(handle)
        if time.monotonic() > deadline:
            return None
        time.sleep(PAUSE)


def _opened(lock: Path) -> int | None:
    """The file, made if need be; None where it is just being removed."""
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:
        if not os.access(lock.parent, os.W_OK):
            raise
    try:
        return os.open(lock, os.O_RDONLY)  # another user's, who was killed
    except (FileNotFoundError, PermissionError):  # the latter on Windows
        return None


def _is_taken(handle: int) -> bool:
    """Whether the lock is ours now, or the file system has none."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        elif sys.platform != "emscripten":
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # on Windows the lock is another's
        return sys.platform != "win32"
    return True


def _is_still_there(lock: Path, handle: int) -> bool:
    """Whether it is this file's lock: its last owner may have removed the file."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(lock))
    except FileNotFoundError:
        return False


def _remove(lock: Path, handle: int) -> None:
    """Remove the file and give the lock back, in an order that the system allows."""
    if sys.platform == "win32":  # which removes no file that is open
        os.close(handle)
    with suppress(PermissionError):  # on Windows, where whoever waits has it open
        lock.unlink(missing_ok=True)
    if sys.platform != "win32":
        os.close(handle)
