"""Where things are read and written, the same from a notebook, papermill, nbval or a shell."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _root() -> Path:
    """The folder CFHELPERS_HOME; else the repository this package is edited in; else the current folder."""
    if home := os.environ.get("CFHELPERS_HOME"):
        return Path(home).expanduser().resolve()
    repository = Path(__file__).resolve().parents[1]
    return repository if (repository / "pyproject.toml").is_file() else Path.cwd()


ROOT = _root()
NOTEBOOKS = ROOT / "notebooks"
FIGURES = ROOT / "figures"
RESULTS = ROOT / "results"
DATA = ROOT / "data"
ARTIFACTS = ROOT / "artifacts"
PROFILES = ("quick", "paper")  # what `make` and `make paper` run


def runs(profile: str = "quick") -> Path:
    """Where a profile's tidy rows are kept."""
    return RESULTS / "runs" / _known(profile)


def tables(profile: str = "quick") -> Path:
    """Where a profile's tables are written: the quick ones, which anyone can make, lie on top."""
    return RESULTS / "tables" / ("" if _known(profile) == "quick" else profile)


def figures(profile: str = "quick") -> Path:
    """Where a profile's figures are written."""
    return FIGURES / ("" if _known(profile) == "quick" else profile)


def _known(profile: str) -> str:
    if profile not in PROFILES:
        raise ValueError(
            f"profile: found {profile!r}; wanted one of {', '.join(map(repr, PROFILES))}"
        )
    return profile


@contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary path, with the same suffix and folder, that becomes `path` on success and is removed on failure."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
