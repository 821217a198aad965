"""Files in, the sum of their counts out: a task per file, on threads, Ray or any map."""

import contextlib
import errno
import functools
import glob
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cfhelpers import _ray, paths
from cfhelpers._binned import GrowingCounts, ScoreCounts
from cfhelpers._checks import one_of
from cfhelpers._kept_counts import is_kept, keep, read_kept
from cfhelpers._parquet import (
    Layout,
    check_has_columns,
    columns_of,
    count_file,
    float_type,
    identity,
    label_name,
    open_parquet,
    value_columns,
)

MAX_RETRIES = 5  # of a file whose worker died
SCORES = ("tps", "aps", "raps")
WANTED_RESULTS = "wanted what the function returns for each file, as map gives it"
Executor = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def look(
    files: list[Path],
    score: str,
    random_state: int | None,
    penalty: float,
    k_reg: int,
    label: str | None,
    groups: str | Sequence[str],
    columns: Sequence[str] | None,
    id: str | None,
) -> Layout:
    """A first look at every file's footer: the same columns in all of them."""
    one_of(score, "score", SCORES)
    seed = None if random_state is None else _as_whole(random_state, "random_state")
    penalty = _as_penalty(penalty)
    k_reg = _as_whole(k_reg, "k_reg")
    group_columns = (groups,) if isinstance(groups, str) else tuple(groups)
    if not group_columns:
        raise ValueError("groups: found no column; wanted at least one")
    layout: Layout | None = None
    types: list[Any] = []
    wrong: list[str] = []
    for file in files:
        try:
            with open_parquet(file) as parquet:
                names = parquet.schema_arrow.names
                found = columns_of(parquet.schema_arrow)
        except ValueError as error:
            wrong.append(str(error))
            continue
        if layout is None:
            values = value_columns(list(found), columns)
            is_scores = all(name.startswith("score_") for name in values)
            layout = Layout(
                columns=values,
                label_names=tuple(label_name(name) for name in values),
                label=label,
                groups=group_columns,
                id=id,
                score="scores" if is_scores else score,
                seed=seed,
                penalty=penalty,
                k_reg=k_reg,
                dtype="float64",
            )
        try:
            check_has_columns(file, layout, names)
        except ValueError as error:
            wrong.append(str(error))
            continue
        types.extend(found[name] for name in layout.columns)
    if wrong or layout is None:
        raise ValueError(_told(wrong))
    return replace(layout, dtype=float_type(types).name)


def _as_whole(value: Any, name: str) -> int:
    """An integer from 0."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < 0:
        raise ValueError(f"{name}: found {value!r}; wanted an integer from 0")
    return int(value)


def _as_penalty(value: Any) -> float:
    """A number that is not below 0."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not value >= 0:
        raise ValueError(f"penalty: found {value!r}; wanted a number that is not below 0")
    return float(value)


def other_files(files: Files, known: Sequence[Path], name: str) -> list[Path]:
    """More files, none of them among those that are known."""
    places = {path.resolve() for path in known}
    found = as_files(files)
    for path in found:
        if path.resolve() in places:
            raise ValueError(
                f"{name}: found {str(path)!r}, which is among `files` too; wanted other "
                "files, since a row counts once"
            )
    return found


def as_files(files: Files) -> list[Path]:
    """The files, each once: given one by one, as a folder, or by a pattern."""
    if isinstance(files, str | os.PathLike):
        path = Path(files)
        if path.is_dir():
            found = _files_of(path)
        elif any(mark in str(files) for mark in "*?[") and not path.exists():
            names = glob.glob(str(files), recursive=True)
            found = [Path(name) for name in sorted(names)]
        else:
            found = [path]
    else:
        try:
            found = [Path(file) for file in files]
        except TypeError:
            raise ValueError(
                f"files: found {files!r}; wanted paths, a folder, or a pattern"
            ) from None
    if not found:
        raise ValueError(f"files: found none in {str(files)!r}; wanted Parquet files")
    seen: set[Path] = set()
    for path in found:
        resolved = path.resolve()
        if resolved in seen:
            raise ValueError(f"files: found {str(path)!r} twice; wanted each file once")
        seen.add(resolved)
    return found


def _files_of(folder: Path) -> list[Path]:
    """The Parquet files of a folder, not of folders in it."""
    found = sorted(folder.glob("*.parquet"))
    if found:
        return found
    deeper = sum(1 for _ in folder.glob("*/**/*.parquet"))
    if deeper:
        raise ValueError(
            f"files: found none in {str(folder)!r}, but {deeper:,} in folders below it; "
            f"if they are meant, give {str(folder / '**' / '*.parquet')!r}. What a "
            "folder's name says, as in group=a, is not read: it must be a column"
        )
    return found


@dataclass(frozen=True)
class Run:
    """Who counts, and where counts are kept."""

    files: list[Path]
    layout: Layout
    executor: str | Executor | None = None
    address: str | None = None
    folder: Path = field(default_factory=lambda: paths.ARTIFACTS / "scale")
    progress: bool = True

    def __post_init__(self) -> None:
        if self.executor not in (None, "ray") and not callable(self.executor):
            raise ValueError(
                f"executor: found {self.executor!r}; wanted None for threads, 'ray', or "
                "a function like map"
            )

    def count(self, edges: np.ndarray, is_noted: np.ndarray) -> ScoreCounts:
        """The counts of all files; those that were kept are not counted again."""
        task = functools.partial(
            count_and_keep,
            layout=self.layout,
            edges=edges,
            is_noted=is_noted,
            folder=self.folder,
        )
        total = GrowingCounts()
        missing = []
        for file in self.files:
            found = read_kept(file, self.layout, edges, is_noted, self.folder)
            if found is None:
                missing.append(file)
            else:
                total.add(found)
        n_kept = len(self.files) - len(missing)
        left = {str(file) for file in missing}
        wrong = []
        if missing:
            self._check_folder()
        with _progress_bar(len(self.files), n_kept, self.progress) as bar:
            for result in self._map(task, missing):
                name, found, message = _as_result(result)
                if name not in left:  # a map may do a task twice; it counts once
                    continue
                left.remove(name)
                if message:
                    wrong.append(message)
                else:
                    total.add(found)
                bar.update()
        wrong += [f"executor: it gave no result for {file!r}" for file in sorted(left)]
        if wrong:
            raise ValueError(_told(wrong))
        return total.counts()

    def has_counts(self, edges: np.ndarray, is_noted: np.ndarray) -> bool:
        """Whether counts of any of the files were kept."""
        for file in self.files:
            if is_kept(file, self.layout, edges, is_noted, self.folder):
                return True
        return False

    def _check_folder(self) -> None:
        """A ValueError, before hours of counting, where counts cannot be kept."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise ValueError(
                f"folder: {str(self.folder)!r} cannot keep counts: {error.strerror}"
            ) from None

    def _map(self, task: Callable[[Any], Any], files: list[Path]) -> Iterable[Any]:
        """Results as they come."""
        if not files:
            return []
        if self.executor is None:
            return thread_map(task, files)
        if callable(self.executor):
            results = self.executor(task, files)
            if not isinstance(results, Iterable):
                raise ValueError(f"executor: it gave {results!r}; {WANTED_RESULTS}")
            return results
        return ray_map(task, files, self.address)


def _as_result(result: Any) -> tuple[str, Any, str]:
    """What `count_and_keep` gave, if the executor hands it on."""
    if not isinstance(result, tuple) or len(result) != 3:
        raise ValueError(f"executor: it gave a {type(result).__name__}; {WANTED_RESULTS}")
    return result


def _told(wrong: list[str]) -> str:
    """What is wrong with the files, the first few of them."""
    if len(wrong) <= 3:
        return "\n".join(wrong)
    return "\n".join([*wrong[:3], f"and {len(wrong) - 3} more files"])


def _progress_bar(n: int, done: int, progress: bool) -> Any:
    """A bar that counts files."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if progress:
            warnings.warn(
                "progress: a bar needs tqdm: pip install 'cfhelpers[scale]'", stacklevel=2
            )
        return _NoBar()
    return tqdm(total=n, initial=done, desc="files", disable=not progress, leave=False)


class _NoBar(contextlib.nullcontext["_NoBar"]):
    """What stands for the bar where tqdm is missing."""

    def __enter__(self) -> "_NoBar":
        return self

    def update(self) -> None:
        """Show nothing."""


def thread_map(task: Callable[[Any], Any], files: list[Path]) -> Iterator[Any]:
    """As many files at a time as there are processors."""
    pool = ThreadPoolExecutor(max(1, min(len(files), os.cpu_count() or 1)))
    try:
        yield from pool.map(task, files)
    finally:
        pool.shutdown(cancel_futures=True)  # a stop does not wait for all other files


def ray_map(
    task: Callable[[Any], Any], files: list[Path], address: str | None
) -> Iterator[Any]:
    """One Ray task per file, tried again when its worker dies."""
    ray = _ray.connected(address, "executor", "scale")
    remote = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(lambda file: task(file))
    waiting = list(files)
    running: dict[Any, Path] = {}
    limit = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
    while waiting or running:
        while waiting and len(running) < limit:
            file = waiting.pop(0)
            running[remote.remote(file)] = file
        (done,), _ = ray.wait(list(running))
        file = running.pop(done)
        try:
            yield ray.get(done)
        except ray.exceptions.WorkerCrashedError:
            yield (
                str(file),
                None,
                f"files: {str(file)!r}: its worker died {MAX_RETRIES + 1} times; the "
                "counts of the other files are kept",
            )


def count_and_keep(
    file: Path, layout: Layout, edges: np.ndarray, is_noted: np.ndarray, folder: Path
) -> tuple[str, ScoreCounts | None, str]:
    """The file, its counts, and what is wrong with it; counts are kept in the folder."""
    message = ""
    try:
        who = identity(file)
        try:
            found = count_file(file, layout, edges, is_noted)
        except ValueError as error:
            message = str(error)
        if identity(file) != who:
            changed = f"files: {str(file)!r} changed while it was counted"
            message = f"{changed}; call again when it is whole"
    except FileNotFoundError:
        message = f"files: there is no file {str(file)!r}"
    except OSError as error:
        message = f"files: {str(file)!r} cannot be read: {error.strerror}"
    if message:
        return str(file), None, message
    try:
        keep(found, who, layout, edges, is_noted, folder)
    except OSError as error:
        return str(file), None, _not_kept(file, folder, error)
    return str(file), found, ""


def _not_kept(file: Path, folder: Path, error: OSError) -> str:
    """Why the counts of a file could not be written, and what to do."""
    counts = f"the counts of {str(file)!r}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"folder: no space left in {str(folder)!r} to keep {counts}; free some and "
            "call again: what was counted so far is kept"
        )
    return f"folder: {str(folder)!r} cannot keep {counts}: {error.strerror}"
