"""Where things are read and written: the same from a notebook, papermill or a shell."""

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _root() -> Path:
    """CFHELPERS_HOME; else the repository this is edited in; else the user's cache."""
    home = os.environ.get("CFHELPERS_HOME")
    if home:
        return Path(home).expanduser().resolve()
    repository = Path(__file__).resolve().parents[1]
    if (repository / "pyproject.toml").is_file():
        return repository
    return _user_cache() / "cfhelpers"


def _user_cache() -> Path:
    """The folder in which this system keeps a user's caches."""
    try:
        home = Path.home()
    except RuntimeError:  # a container's user may be a number alone, without a home
        user = "" if sys.platform == "win32" else f"-{os.getuid()}"
        home = Path(tempfile.gettempdir()) / f"home{user}"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


def _usual_permissions() -> int:
    """The permissions that this process gives to new files."""
    umask = os.umask(0o022)
    os.umask(umask)
    return 0o666 & ~umask


ROOT = _root()
NOTEBOOKS = ROOT / "notebooks"
FIGURES = ROOT / "figures"
RESULTS = ROOT / "results"
DATA = ROOT / "data"
ARTIFACTS = ROOT / "artifacts"
PROFILES = ("quick", "paper")  # what `make` and `make paper` run
LONGEST_STEM = 30  # of a name in a temporary one, which a system may not let be longer
PERMISSIONS = _usual_permissions()  # asked once: asking sets the umask for a moment


def runs(profile: str = "quick") -> Path:
    """Where a profile's tidy rows are kept.

    Parameters
    ----------
    profile : str
        "quick" or "paper".

    Returns
    -------
    Path
        A folder, which need not exist yet.

    Examples
    --------
    >>> runs("paper").relative_to(ROOT).as_posix()
    'results/runs/paper'
    """
    _check_profile(profile)
    return RESULTS / "runs" / profile


def tables(profile: str = "quick") -> Path:
    """Where a profile's tables are written: the quick ones lie on top.

    Parameters
    ----------
    profile : str
        "quick" or "paper".

    Returns
    -------
    Path
        A folder, which need not exist yet.

    Examples
    --------
    >>> tables().relative_to(ROOT).as_posix()
    'results/tables'
    >>> tables("paper").relative_to(ROOT).as_posix()
    'results/tables/paper'
    """
    return _profile_folder(RESULTS / "tables", profile)


def figures(profile: str = "quick") -> Path:
    """Where a profile's figures are written.

    Parameters
    ----------
    profile : str
        "quick" or "paper".

    Returns
    -------
    Path
        A folder, which need not exist yet.

    Examples
    --------
    >>> figures("paper").relative_to(ROOT).as_posix()
    'figures/paper'
    """
    return _profile_folder(FIGURES, profile)


def _profile_folder(folder: Path, profile: str) -> Path:
    """The folder itself for the quick profile, a folder inside it for another."""
    _check_profile(profile)
    if profile == "quick":
        return folder
    return folder / profile


def _check_profile(profile: str) -> None:
    """Refuse a profile that there is not."""
    if profile not in PROFILES:
        known = ", ".join(map(repr, PROFILES))
        raise ValueError(f"profile: found {profile!r}; wanted one of {known}")


@contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[Path]:
    """Write a file whole or not at all.

    Gives a temporary path with the same suffix in the same folder. It becomes `path` when
    the block ends, and is removed when the block fails. The name is unique among threads,
    processes and machines that share the folder; it tells the machine and the process, so
    that what a killed process left can be recognised. Where `path` is a symbolic link,
    the file that it names is written, and the link stays.

    Parameters
    ----------
    path : str or path-like
        The file to write; its folder is made if need be.

    Yields
    ------
    Path
        An empty file to write to.

    Raises
    ------
    ValueError
        If `path` is a folder, or a device or a pipe, whose place a file would take.
    OSError
        If it cannot be written. The error names `path`, not the temporary one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(f"{folder}/table.csv") as partial:
    ...         _ = partial.write_text("a,b")
    ...     print(*os.listdir(folder))
    table.csv
    """
    path = Path(path)
    check_replaceable(path)
    if path.is_symlink():
        path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{path.stem[:LONGEST_STEM]}.",
            suffix=f"{writer_mark(os.getpid())}{path.suffix}",
            dir=path.parent,
        )
    except OSError as error:
        error.filename = str(path)
        raise
    os.close(handle)
    partial = Path(name)
    try:
        partial.chmod(PERMISSIONS)
        yield partial
        os.replace(partial, path)
    except OSError as error:
        if error.filename == str(partial):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        partial.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """A ValueError if a folder, a device or a pipe stands where a file is to be written.

    Examples
    --------
    >>> check_replaceable(Path("table.csv"))
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; wanted a file")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a device or a pipe; wanted a file")


def writer_mark(process: int) -> str:
    """What the temporary names of a process of this machine have in common.

    Examples
    --------
    >>> writer_mark(17).endswith(".17.partial")
    True
    """
    return f".{platform.node()}.{process}.partial"
