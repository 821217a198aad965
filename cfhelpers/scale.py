"""The search and the audit over data larger than memory.

Everything is computed from points per (label, true label or not, group, bin of the
score). One task counts one Parquet file; counts are kept on disk, and added up. Bins end
at the grid's points, so the guarantee needs one pass. The paper's rule and q̂ need the
scores in a few bins one by one, and those come from a second pass.
"""

import errno
import functools
import glob
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers import _cache, paths
from cfhelpers._binned import (
    BinLosses,
    CountedScores,
    ScoreCounts,
    add_counts,
    counted_curve,
    exact_curve,
)
from cfhelpers._checks import as_array, as_flag, as_float_column, as_fraction, one_of
from cfhelpers._ordering import CellMap
from cfhelpers._parquet import (
    Layout,
    columns_of,
    count_file,
    float_type,
    identity,
    label_name,
    open_parquet,
    value_columns,
)
from cfhelpers.auditing.missing import groups_with_missing
from cfhelpers.auditing.statistics import Audit, audit_counts
from cfhelpers.conformal import conformal_quantile, quantile_rank
from cfhelpers.control import (
    GUARANTEES,
    ROUNDING,
    Curve,
    FairThreshold,
    Guarantee,
    PairTest,
    Search,
    _as_start,
    as_base_scores,
    default_grid,
    fixed_sequence,
)
from cfhelpers.fairness import positive_codes
from cfhelpers.groups import Groups, as_groups, as_pools
from cfhelpers.metrics import METRICS, FairnessMetric, Quantity, get_metric
from cfhelpers.scores import K_REG, PENALTY

SCORES = ("tps", "aps", "raps")
LOOK_AT = 64  # files whose first rows say roughly where q̂ lies
LOOK_ROWS = 1 << 14
COUNTED = tuple(Quantity)[:4]  # what counts per cell are enough for
Executor = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def counts(
    file: str | os.PathLike[str],
    *,
    edges: ArrayLike | None = None,
    score: str = "tps",
    random_state: int | None = 0,
    penalty: float = PENALTY,
    k_reg: int = K_REG,
    label: str | None = "label",
    groups: str | Sequence[str] = "group",
    columns: Sequence[str] | None = None,
    id: str | None = None,
) -> ScoreCounts:
    """Points of one Parquet file per label, true label or not, group and bin of score.

    Parameters
    ----------
    file : path
        A row per point.
    edges : numbers, optional
        Where bins end; by default the points of `control.default_grid()`.
    score : "tps", "aps" or "raps"
        How probabilities become scores.
    random_state : int or None
        The seed of a person's number u (`scores.person_u`); None: not randomised.
    penalty, k_reg
        Of RAPS.
    label : str or None
        The column of the true labels; None where points have none.
    groups : str, or several
        The column of the groups; several give a group per combination.
    columns : names, optional
        The columns of probabilities or scores, one per label; by default all that begin
        with p_, or with score_.
    id : str, optional
        The column that says who each row is, for u; by default the row's probabilities
        do.

    Returns
    -------
    ScoreCounts
        Counts of two files are added with +.

    Examples
    --------
    >>> import tempfile
    >>> rows = pd.DataFrame({
    ...     "p_0": [0.9, 0.2], "p_1": [0.1, 0.8], "label": [0, 1], "group": ["a", "b"]
    ... })
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows.to_parquet(f"{folder}/one.parquet")
    ...     found = counts(f"{folder}/one.parquet", edges=[0.5])
    >>> found.counts[0].tolist()
    [[[1, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 0]]]
    """
    layout = look(
        [Path(file)], score, random_state, penalty, k_reg, label, groups, columns, id
    )
    chosen = as_edges(edges)
    no_notes = np.zeros((len(layout.columns), len(chosen) + 2), bool)
    return count_file(file, layout, chosen, no_notes)


def as_edges(edges: ArrayLike | None) -> np.ndarray:
    """Where bins end: finite numbers, ascending."""
    if edges is None:
        return default_grid()
    points = np.unique(as_float_column(edges, "edges").astype(np.float64))
    points = points[np.isfinite(points)]
    if len(points) == 0:
        raise ValueError("edges: found no finite number; wanted at least one")
    return points


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
    group_columns = (groups,) if isinstance(groups, str) else tuple(groups)
    layout: Layout | None = None
    types: list[Any] = []
    for file in files:
        with open_parquet(file) as parquet:
            found = columns_of(parquet.schema_arrow)
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
                seed=random_state,
                penalty=float(penalty),
                k_reg=int(k_reg),
                dtype="float64",
            )
        missing = [name for name in layout.needed if name not in found]
        if missing:
            raise ValueError(
                f"files: {str(file)!r} has no column {', '.join(map(repr, missing))}; "
                f"it has {', '.join(found)}"
            )
        types.extend(found[name] for name in layout.columns)
    assert layout is not None
    return replace(layout, dtype=float_type(types).name)


def as_files(files: Files) -> list[Path]:
    """The files, each once: given one by one, as a folder, or by a pattern."""
    if isinstance(files, str | os.PathLike):
        path = Path(files)
        if path.is_dir():
            found = sorted(path.glob("*.parquet"))
        elif any(mark in str(files) for mark in "*?["):
            found = [Path(name) for name in sorted(glob.glob(str(files)))]
        else:
            found = [path]
    else:
        found = [Path(file) for file in files]
    if not found:
        raise ValueError(f"files: found none in {str(files)!r}; wanted Parquet files")
    seen: set[Path] = set()
    for path in found:
        resolved = path.resolve()
        if resolved in seen:
            raise ValueError(f"files: found {str(path)!r} twice; wanted each file once")
        seen.add(resolved)
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

    def count(self, edges: np.ndarray, is_noted: np.ndarray) -> ScoreCounts:
        """The counts of all files; those that were kept are not counted again."""
        task = functools.partial(
            count_and_keep,
            layout=self.layout,
            edges=edges,
            is_noted=is_noted,
            folder=self.folder,
        )
        kept: dict[Path, ScoreCounts] = {}
        for file in self.files:
            found = read_kept(file, self.layout, edges, is_noted, self.folder)
            if found is not None:
                kept[file] = found
        missing = [file for file in self.files if file not in kept]
        wrong = []
        bar = _progress_bar(len(self.files), len(kept), self.progress)
        for file, found, message in self._map(task, missing):
            bar.update()
            if message:
                wrong.append(message)
            else:
                kept[Path(file)] = found
        bar.close()
        if wrong:
            raise ValueError(_told(wrong))
        return add_counts([kept[file] for file in self.files])

    def _map(self, task: Callable[[Any], Any], files: list[Path]) -> Iterator[Any]:
        """Results as they come."""
        if self.executor is None:
            n_threads = max(1, min(len(files), os.cpu_count() or 1))
            with ThreadPoolExecutor(n_threads) as pool:
                yield from pool.map(task, files)
        elif self.executor == "ray":
            yield from ray_map(task, files, self.address)
        elif callable(self.executor):
            yield from self.executor(task, files)
        else:
            raise ValueError(
                f"executor: found {self.executor!r}; wanted None for threads, 'ray', or "
                "a function like map"
            )


def _told(wrong: list[str]) -> str:
    """What is wrong with the files, the first few of them."""
    if len(wrong) <= 3:
        return "\n".join(wrong)
    return "\n".join([*wrong[:3], f"and {len(wrong) - 3} more files"])


def _progress_bar(n: int, done: int, progress: bool) -> Any:
    """A bar that counts files."""
    from tqdm.auto import tqdm

    return tqdm(total=n, initial=done, desc="files", disable=not progress, leave=False)


def ray_map(
    task: Callable[[Any], Any], files: list[Path], address: str | None
) -> Iterator[Any]:
    """One Ray task per file, tried again when its worker dies."""
    try:
        import ray
    except ImportError:
        raise ValueError(
            "executor: found 'ray', which is not installed; "
            "pip install 'cfhelpers[scale]'"
        ) from None
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    remote = ray.remote(num_cpus=1, max_retries=5)(lambda file: task(file))
    waiting = list(files)
    running: list[Any] = []
    limit = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
    while waiting or running:
        while waiting and len(running) < limit:
            running.append(remote.remote(waiting.pop(0)))
        done, running = ray.wait(running)
        for reference in done:
            yield ray.get(reference)


def count_and_keep(
    file: Path, layout: Layout, edges: np.ndarray, is_noted: np.ndarray, folder: Path
) -> tuple[str, ScoreCounts | None, str]:
    """The file, its counts, and what is wrong with it; counts are kept in the folder."""
    try:
        who = identity(file)
        found = count_file(file, layout, edges, is_noted)
        keep(found, who, layout, edges, is_noted, folder)
    except FileNotFoundError:
        return str(file), None, f"files: there is no file {str(file)!r}"
    except ValueError as error:
        return str(file), None, str(error)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return (
            str(file),
            None,
            f"{str(folder)!r}: no space left to keep the counts of {str(file)!r}; free "
            "some and call again: what was counted so far is kept",
        )
    return str(file), found, ""


def _key(
    who: Mapping[str, Any], layout: Layout, edges: np.ndarray, is_noted: np.ndarray
) -> str:
    """All that the counts of a file depend on."""
    key = {
        "file": who,
        "layout": repr(layout),
        "edges": edges.tolist(),
        "noted": np.argwhere(is_noted).tolist(),
    }
    return _cache.key_text("scale", key, "cfhelpers._parquet")


def _kept_path(folder: Path, text: str) -> Path:
    return folder / _cache.cache_path("counts", text).name


def keep(
    found: ScoreCounts,
    who: Mapping[str, Any],
    layout: Layout,
    edges: np.ndarray,
    is_noted: np.ndarray,
    folder: Path,
) -> None:
    """Write the counts of a file, whole or not at all."""
    text = _key(who, layout, edges, is_noted)
    arrays = {
        "counts": found.counts,
        "values": found.values,
        "kinds": found.kinds,
        "groups": _names_as_bytes(found.group_names, len(layout.groups)),
    }
    _cache.store(_kept_path(folder, text), text, arrays)


def read_kept(
    file: Path, layout: Layout, edges: np.ndarray, is_noted: np.ndarray, folder: Path
) -> ScoreCounts | None:
    """The counts that are kept of this very file; None where there are none."""
    try:
        text = _key(identity(file), layout, edges, is_noted)
    except OSError:
        return None
    arrays = _cache.read(_kept_path(folder, text), text)
    if arrays is None:
        return None
    return ScoreCounts(
        counts=arrays["counts"],
        edges=edges,
        label_names=list(layout.label_names),
        group_names=_names_from_bytes(arrays["groups"]),
        is_noted=is_noted,
        values=arrays["values"],
        kinds=arrays["kinds"],
    )


def _names_as_bytes(names: list[Any], n_columns: int) -> np.ndarray:
    """Names of groups with their types: an Arrow table as bytes."""
    import pyarrow as pa

    columns = {}
    for place in range(n_columns):
        values = [name if n_columns == 1 else name[place] for name in names]
        columns[str(place)] = pa.array(values)
    table = pa.table(columns)
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(stream.getvalue(), np.uint8)


def _names_from_bytes(data: np.ndarray) -> list[Any]:
    """The names that `_names_as_bytes` wrote."""
    import pyarrow as pa

    table = pa.ipc.open_stream(data.tobytes()).read_all()
    columns = [column.to_pylist() for column in table.columns]
    if len(columns) == 1:
        return columns[0]
    return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class Question:
    """What is asked of counts: the options of `find_threshold`, checked."""

    metric: FairnessMetric
    labels: list[int]
    alpha: float
    classwise: bool
    guarantee: str
    delta: float
    start: float | None
    is_dependent: bool

    @property
    def level(self) -> float | None:
        """Of the test; None: the paper's rule."""
        if self.guarantee == Guarantee.NONE:
            return None
        return self.delta / max(len(self.labels), 1) if self.classwise else self.delta


def as_question(
    metric: str | FairnessMetric,
    label_names: Sequence[Any],
    *,
    alpha: float = 0.1,
    classwise: bool = False,
    positive_labels: ArrayLike | None = None,
    guarantee: str = "none",
    delta: float = 0.1,
    start: float | None = None,
    test: str = "staircase",
) -> Question:
    """The options of `find_threshold`, checked."""
    metric = get_metric(metric)
    if not metric.is_built_in or metric.quantity not in COUNTED:
        known = ", ".join(name for name, own in METRICS.items() if _is_counted(own))
        raise ValueError(
            f"metric: found {metric.name!r}, which counts per cell are not enough for; "
            f"wanted one of {known}"
        )
    return Question(
        metric=metric,
        labels=positive_codes(positive_labels, list(label_names)),
        alpha=as_fraction(alpha, "alpha"),
        classwise=as_flag(classwise, "classwise") and metric.per_label,
        guarantee=one_of(guarantee, "guarantee", GUARANTEES),
        delta=as_fraction(delta, "delta"),
        start=_as_start(start),
        is_dependent=one_of(test, "test", tuple(PairTest)) == PairTest.BOUNDS,
    )


def _is_counted(metric: FairnessMetric) -> bool:
    return metric.is_built_in and metric.quantity in COUNTED


def _cells(
    question: Question,
    labels: list[int],
    columns: list[int],
    names: list[Any],
    pools: np.ndarray | None,
) -> CellMap:
    """What one threshold is judged by; of the points only the groups' names matter."""
    nobody = np.zeros(1, np.int64)
    groups = Groups(nobody, names)
    return CellMap.build(
        question.metric, labels, columns, nobody, groups, pools, question.is_dependent
    )


def _cell_maps(
    question: Question, counted: ScoreCounts, pools: np.ndarray | None
) -> list[CellMap]:
    """One per threshold that is looked for."""
    names = counted.group_names
    if question.classwise:
        maps = []
        for label in question.labels:
            maps.append(_cells(question, [label], [label], names, pools))
        return maps
    every_label = list(range(len(counted.label_names)))
    return [_cells(question, question.labels, every_label, names, pools)]


def _search(
    counted: ScoreCounts,
    n_labelled: int,
    question: Question,
    base: float,
    curves: list[Curve],
) -> Search:
    """The finished pass, which `control.Search` answers from."""
    n_classes = len(counted.label_names)
    others = []
    if question.classwise:
        others = [label for label in range(n_classes) if label not in question.labels]
    in_sets = 0
    hits = 0
    for label in others:
        below = CountedScores.build(counted, [label], base).below
        in_sets += int(below.sum())
        hits += int(below[: len(counted.group_names)].sum())
    return Search(
        curves=curves,
        metric=question.metric,
        guarantee=question.guarantee,
        group_names=counted.group_names,
        base=base,
        n_points=counted.n_points,
        n_labelled=n_labelled,
        n_classes=n_classes,
        classwise=question.classwise,
        others_in_sets=in_sets,
        others_hits=hits,
    )


def _with_known_groups(
    counted: ScoreCounts, declared: Sequence[Any], argument: str
) -> ScoreCounts:
    """Groups in the order of their names, declared ones among them, none missing."""
    names = counted.group_names
    sizes = dict(zip(names, counted.group_sizes.tolist(), strict=True))
    for name in names:
        parts = name if isinstance(name, tuple) else (name,)
        if any(part is None for part in parts):
            if sizes[name] == 0:
                continue
            raise ValueError(
                f"{argument}: {sizes[name]:,} rows have none; every point needs a group"
            )
    every = list(dict.fromkeys([*names, *declared]))
    every = [name for name in every if name is not None]
    return counted.with_groups(_with_all(every, names)).renamed(_sorted_groups(every))


def _with_all(every: list[Any], names: list[Any]) -> list[Any]:
    """The names, and those of ours that are not among them."""
    return [*every, *[name for name in names if name not in every]]


def _sorted_groups(names: list[Any]) -> Groups:
    """Names in the order that they have in memory."""
    if names and isinstance(names[0], tuple):
        return as_groups(pd.DataFrame(names, dtype=object), len(names))
    return as_groups(pd.Series(names, dtype=object), len(names))


@dataclass(frozen=True)
class AtScale:
    """Files, their layout and a question: passes over the data, and a search."""

    run: Run
    more: Run | None  # points without labels
    question: Question
    declared: tuple[Any, ...]
    grid: np.ndarray | None
    needs_range: bool  # scores above 1 need a grid
    pool_sizes: Mapping[Any, int] | None
    base_scores: np.ndarray | None

    def search(self, limits: Sequence[float] | None) -> Search:
        """The answers for some losses; None: for every one."""
        edges, is_noted = self._first_bins()
        labelled, everyone = self._count(edges, is_noted)
        self._check_range(labelled, everyone)
        base_bin, base = self._base(labelled)
        wanted = is_noted.copy()
        if base_bin is not None:
            wanted[:, base_bin] = True
        if self.question.level is None and base_bin is not None:
            wanted |= self._candidates(everyone, base_bin, limits)
        if (wanted & ~is_noted).any():
            labelled, everyone = self._count(edges, wanted)
            base_bin, base = self._base(labelled)
        pools = self._pools(everyone)
        curves = []
        for cells in _cell_maps(self.question, everyone, pools):
            curves.append(self._curve(everyone, cells, base, base_bin, limits))
        return _search(everyone, labelled.n_labelled, self.question, base, curves)

    def _count(
        self, edges: np.ndarray, is_noted: np.ndarray
    ) -> tuple[ScoreCounts, ScoreCounts]:
        """The points with labels, and all points, by the same groups."""
        labelled = self.run.count(edges, is_noted)
        if labelled.n_points == 0:
            raise ValueError("files: found no rows; wanted at least one point")
        everyone = labelled
        if self.more is not None:
            others = self.more.count(edges, is_noted)
            everyone = add_counts([labelled, others])
        declared = list(self.declared)
        if self.pool_sizes is not None:
            declared += [name for name, size in self.pool_sizes.items() if size != 0]
        column = " × ".join(self.run.layout.groups)
        everyone = _with_known_groups(everyone, declared, column)
        labelled = _with_known_groups(labelled, everyone.group_names, column)
        return labelled, everyone

    def _pools(self, everyone: ScoreCounts) -> np.ndarray | None:
        if self.pool_sizes is None:
            return None
        codes = np.repeat(np.arange(len(everyone.group_names)), everyone.group_sizes)
        return as_pools(self.pool_sizes, Groups(codes, everyone.group_names))

    def _first_bins(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges, and the bins in which q̂ is likely to lie: their scores are noted."""
        edges = default_grid() if self.grid is None else self.grid
        edges = np.append(edges, 1 + ROUNDING)
        n_labels = len(self.run.layout.columns)
        if self.base_scores is not None:
            base = conformal_quantile(self.base_scores, self.question.alpha)
            if math.isfinite(base):
                edges = np.append(edges, base)
            edges = np.unique(edges)
            return edges, np.zeros((n_labels, len(edges) + 2), bool)
        around = self._likely_base()
        edges = np.unique(np.concatenate([edges, around]))
        is_noted = np.zeros((n_labels, len(edges) + 2), bool)
        if len(around):
            first, last = np.searchsorted(edges, around)
            is_noted[:, first + 1 : last + 1] = True
        return edges, is_noted

    def _likely_base(self) -> np.ndarray:
        """Two numbers with q̂ between them, as the first rows of some files have it.

        If it lies elsewhere a second pass finds it: only time depends on this.
        """
        files = self.run.files[:: max(1, len(self.run.files) // LOOK_AT)]
        layout = self.run.layout
        all_bins = np.ones((len(layout.columns), 3), bool)
        values = []
        for file in files:
            own = count_file(file, layout, np.zeros(1), all_bins, rows=LOOK_ROWS)
            is_true = own.kinds // max(len(own.group_names), 1) % 2 == 0
            values.append(own.values[is_true])
        seen = np.sort(np.concatenate(values))
        seen = seen[np.isfinite(seen)]
        n = len(seen)
        alpha = self.question.alpha
        margin = 5 * math.sqrt(n * alpha * (1 - alpha)) + 2
        low = math.floor(n * (1 - alpha) - margin)
        high = math.ceil(n * (1 - alpha) + margin)
        if low < 0 or high >= n or seen[low] == seen[high]:
            return np.empty(0)
        return seen[[low, high]]

    def _check_range(self, labelled: ScoreCounts, everyone: ScoreCounts) -> None:
        """Scores above 1 with a guarantee need a grid of their own."""
        if not self.needs_range:
            return
        above = everyone.counts[..., np.searchsorted(everyone.edges, 1 + ROUNDING) + 1 :]
        if above.any():
            raise ValueError(
                "grid: found None while scores reach beyond 1; scores above 1 with a "
                "guarantee need a grid of thresholds that is fixed without the "
                "calibration data"
            )

    def _base(self, labelled: ScoreCounts) -> tuple[int | None, float]:
        """q̂'s bin, and q̂: infinite, and no bin, if there are too few points.

        Where the bin's scores were not noted, its end stands for q̂.
        """
        if self.base_scores is not None:
            base = conformal_quantile(self.base_scores, self.question.alpha)
            if math.isinf(base):
                return None, base
            return int(np.searchsorted(labelled.edges, base)), base
        rank = quantile_rank(labelled.n_labelled, self.question.alpha)
        if rank > labelled.n_labelled:
            return None, math.inf
        place = labelled.rank_bin(rank)
        if place > len(labelled.edges):
            return None, math.inf
        if not labelled.is_noted[:, place].all():
            return place, math.nan
        per_bin = labelled.counts[:, 0].sum(axis=(0, 1))
        n_groups = len(labelled.group_names)
        is_true = labelled.kinds // n_groups % 2 == 0
        ends = np.concatenate([[-np.inf], labelled.edges, [np.inf]])
        values = labelled.values
        is_inside = is_true & (values > ends[place]) & (values <= ends[place + 1])
        inside = np.sort(values[is_inside & np.isfinite(values)])
        return place, float(inside[rank - 1 - per_bin[:place].sum()])

    def _candidates(
        self, everyone: ScoreCounts, base_bin: int, limits: Sequence[float] | None
    ) -> np.ndarray:
        """The bins whose scores decide, bool (K, bins)."""
        wanted = np.zeros((len(everyone.label_names), len(everyone.edges) + 2), bool)
        for cells in _cell_maps(self.question, everyone, None):
            if cells.shape[0] == 0:
                continue
            places = self._places(everyone, cells, base_bin, limits)
            wanted[np.asarray(cells.columns)[:, None], places] = True
        return wanted

    def _places(
        self,
        everyone: ScoreCounts,
        cells: CellMap,
        base_bin: int,
        limits: Sequence[float] | None,
    ) -> np.ndarray:
        """The bins that can hold an answer, q̂'s first."""
        scores = CountedScores.build(everyone, cells.columns, math.inf)
        losses = BinLosses.build(scores, cells, base_bin)
        if limits is None:
            places = losses.that_can_be_lows()
        else:
            places = losses.that_can_pass(limits)
        return np.unique(np.append(places, base_bin))

    def _curve(
        self,
        everyone: ScoreCounts,
        cells: CellMap,
        base: float,
        base_bin: int | None,
        limits: Sequence[float] | None,
    ) -> Curve:
        """The answers of one threshold."""
        scores = CountedScores.build(everyone, cells.columns, base)
        level = self.question.level
        if level is None:
            if base_bin is None or cells.shape[0] == 0:
                return counted_curve(scores, cells)
            places = self._places(everyone, cells, base_bin, limits)
            return exact_curve(scores, cells, places)
        grid = default_grid() if self.grid is None else self.grid
        points = grid[grid >= base]
        start = self.question.start
        return fixed_sequence(scores, cells, points, level, from_infinity=start is None)


def _prepared(
    files: Files,
    *,
    metric: str | FairnessMetric,
    score: str = "tps",
    random_state: int | None = 0,
    penalty: float = PENALTY,
    k_reg: int = K_REG,
    label: str = "label",
    groups: str | Sequence[str] = "group",
    columns: Sequence[str] | None = None,
    id: str | None = None,
    group_names: Sequence[Any] = (),
    grid: ArrayLike | None = None,
    unlabelled: Files | None = None,
    pool_sizes: Mapping[Any, int] | None = None,
    base_scores: ArrayLike | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> AtScale:
    """Options checked and files looked at, before anything is counted."""
    found = as_files(files)
    layout = look(found, score, random_state, penalty, k_reg, label, groups, columns, id)
    question = as_question(metric, layout.label_names, **options)
    kept = paths.ARTIFACTS / "scale" if folder is None else Path(folder)
    run = Run(found, layout, executor, address, kept, progress)
    more = None
    for name, given in (("unlabelled", unlabelled), ("pool_sizes", pool_sizes)):
        if given is not None and question.metric.needs_labels:
            raise ValueError(
                f"{name}: found some for {question.metric.name}; they are for "
                "demographic_parity and disparate_impact, which do not look at the "
                "true label"
            )
    if unlabelled is not None:
        more_files = as_files(unlabelled)
        own = look(
            more_files, score, random_state, penalty, k_reg, None, groups, columns, id
        )
        wide = np.result_type(layout.dtype, own.dtype).name
        layout = replace(layout, dtype=wide)
        run = replace(run, layout=layout)
        more = replace(run, files=more_files, layout=replace(layout, label=None))
    has_guarantee = question.guarantee != Guarantee.NONE
    points = None
    if has_guarantee and (grid is not None or question.start is not None):
        points = as_edges(grid)
        if question.start is not None:
            points = np.append(points[points < question.start], question.start)
    return AtScale(
        run=run,
        more=more,
        question=question,
        declared=tuple(group_names),
        grid=points,
        needs_range=has_guarantee and grid is None,
        pool_sizes=pool_sizes,
        base_scores=None if base_scores is None else as_base_scores(base_scores),
    )


def find_threshold_at_scale(
    files: Files,
    *,
    metric: str | FairnessMetric,
    closeness: float | Sequence[float] | None = None,
    delta: float = 0.1,
    **options: Any,
) -> Any:
    """What `find_threshold` finds on the rows of all files, in little memory.

    Parameters
    ----------
    files : paths, a folder, or a pattern
        Parquet files with the same columns, a row per point.
    metric : str
        One of `METRICS`; those with filters of your own need the points themselves.
    closeness, delta
        As in `find_threshold`.
    **options
        score, random_state, penalty, k_reg, label, groups, columns and id: as in
        `counts`. alpha, classwise, positive_labels, guarantee, grid, start, test,
        pool_sizes and base_scores: as in `find_threshold`; labels go by the names of
        their columns. unlabelled: more files, whose points have no labels.
        group_names: groups that count even if no point has them. executor: None for
        threads, "ray", or a function like map; address: of a Ray cluster. folder: where
        the counts of every file are kept; by default in the cache. progress: show a bar.

    Returns
    -------
    FairThreshold, or a list of them for several values of closeness

    Notes
    -----
    The guarantee takes one pass. The paper's rule takes a second one, over the few bins
    that can hold its answer. What was counted is kept: call again after a stop, and
    only the files that are not done, or that changed, are counted.
    """
    metric = get_metric(metric)
    is_several = closeness is not None and np.ndim(closeness) > 0
    given: list[Any] = [closeness]
    if is_several:
        given = np.asarray(closeness).tolist()
    values = [metric.allowed(value) for value in given]
    if not values:
        raise ValueError("closeness: found none; wanted at least one value")
    share = as_fraction(delta, "delta") / len(values)
    prepared = _prepared(files, metric=metric, delta=share, **options)
    limits = [metric.closeness(value) + 1e-9 for value in values]
    finished = prepared.search(limits)
    results = [finished.find(value) for value in values]
    if is_several:
        return results
    return results[0]


def frontier_at_scale(
    files: Files, *, metric: str | FairnessMetric, **options: Any
) -> pd.DataFrame:
    """What `frontier` finds on the rows of all files.

    With the paper's rule the scores that can lie on the frontier must fit in memory;
    with the guarantee it is one pass in little memory.

    Parameters
    ----------
    files, metric, **options
        As in `find_threshold_at_scale`.

    Returns
    -------
    DataFrame
        closeness, threshold, mean_set_size and coverage, as `frontier` gives.
    """
    return _prepared(files, metric=metric, **options).search(None).frontier()


def audit_at_scale(
    files: Files,
    *,
    threshold: ArrayLike,
    metrics: Any = None,
    closeness: float | Mapping[str, float] | None = None,
    confidence: float = 0.95,
    positive_labels: ArrayLike | None = None,
    score: str = "tps",
    random_state: int | None = 0,
    penalty: float = PENALTY,
    k_reg: int = K_REG,
    label: str = "label",
    groups: str | Sequence[str] = "group",
    columns: Sequence[str] | None = None,
    id: str | None = None,
    group_names: Sequence[Any] = (),
    unlabelled: Files | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Audit:
    """What `audit` finds on the rows of all files, at a threshold, in one pass.

    Parameters
    ----------
    files : paths, a folder, or a pattern
    threshold : float or (K,)
        The scores at most this large are in the sets.
    metrics, closeness, confidence, positive_labels
        As in `audit`.
    score, random_state, penalty, k_reg, label, groups, columns, id
        As in `counts`. Points without a group form the group "missing".
    group_names, unlabelled, executor, address, folder, progress
        As in `find_threshold_at_scale`.

    Returns
    -------
    Audit
    """
    found = as_files(files)
    layout = look(found, score, random_state, penalty, k_reg, label, groups, columns, id)
    kept = paths.ARTIFACTS / "scale" if folder is None else Path(folder)
    run = Run(found, layout, executor, address, kept, progress)
    limits = _limits(threshold, len(layout.columns))
    finite = np.unique(limits[np.isfinite(limits)])
    edges = finite if len(finite) else np.zeros(1)
    no_notes = np.zeros((len(layout.columns), len(edges) + 2), bool)
    labelled = run.count(edges, no_notes)
    if labelled.n_points == 0:
        raise ValueError("files: found no rows; wanted at least one point")
    everyone = labelled
    if unlabelled is not None:
        other_layout = replace(layout, label=None)
        others = replace(run, files=as_files(unlabelled), layout=other_layout)
        everyone = add_counts([labelled, others.count(edges, no_notes)])
    return _audit(
        labelled,
        everyone,
        limits,
        metrics,
        closeness,
        confidence,
        positive_labels,
        group_names,
    )


def _limits(threshold: ArrayLike, n_classes: int) -> np.ndarray:
    """One threshold per label."""
    limits = as_array(threshold).astype(np.float64)
    if limits.shape not in ((), (n_classes,)):
        raise ValueError(
            f"threshold: found shape {limits.shape}; "
            f"wanted one number, or one per label ({n_classes},)"
        )
    if np.isnan(limits).any():
        raise ValueError("threshold: found NaN; wanted numbers, infinity allowed")
    return np.broadcast_to(limits, (n_classes,))


def _audit(
    labelled: ScoreCounts,
    everyone: ScoreCounts,
    limits: np.ndarray,
    metrics: Any,
    closeness: float | Mapping[str, float] | None,
    confidence: float,
    positive_labels: ArrayLike | None,
    declared: Sequence[Any],
) -> Audit:
    """The audit of counts whose bins end at the thresholds."""
    if metrics is None:
        metrics = [name for name, metric in METRICS.items() if _is_counted(metric)]
    names = list(dict.fromkeys([*everyone.group_names, *declared]))
    sizes = dict(zip(everyone.group_names, everyone.group_sizes, strict=True))
    if None in names and sizes[None] == 0:
        names.remove(None)
    people: Any = pd.Series(names, dtype=object)
    if names and isinstance(names[0], tuple):
        people = pd.DataFrame(names, dtype=object)
    groups = groups_with_missing(people, len(names))
    every = _with_all(names, everyone.group_names)
    parts = []
    for own in (labelled, everyone):
        known = own.with_groups(every)
        kept = known.counts[:, :, : len(names)]
        known = replace(known, counts=kept, group_names=names)
        parts.append(known.renamed(groups).at_thresholds(limits))
    labels = positive_codes(positive_labels, everyone.label_names)
    return audit_counts(
        parts[0],
        parts[1],
        metrics,
        closeness,
        confidence,
        labels,
        everyone.label_names,
        everyone.n_points - labelled.n_points,
    )


@dataclass(frozen=True)
class FromCounts:
    """Threshold, frontier and audit from counts alone, without the points.

    Every score counts as the end of its bin. Bins that were fixed beforehand make that
    exact for the guarantee, whose grid are the bins' ends; q̂ is the end of its bin.
    """

    counted: ScoreCounts
    is_fixed: bool  # whether the bins were named, and not only found in the table

    def find_threshold(
        self,
        metric: str | FairnessMetric,
        closeness: float | None = None,
        **options: Any,
    ) -> FairThreshold:
        """As `control.find_threshold`; the grid of a guarantee are the bins' ends."""
        asked = get_metric(metric)
        return self._search(asked, options).find(asked.allowed(closeness))

    def frontier(self, metric: str | FairnessMetric, **options: Any) -> pd.DataFrame:
        """As `control.frontier`."""
        return self._search(get_metric(metric), options).frontier()

    def audit(
        self,
        threshold: ArrayLike,
        metrics: Any = None,
        closeness: float | Mapping[str, float] | None = None,
        confidence: float = 0.95,
        positive_labels: ArrayLike | None = None,
    ) -> Audit:
        """As `audit`, at thresholds that are ends of bins."""
        limits = _limits(threshold, len(self.counted.label_names))
        for limit in limits[np.isfinite(limits)]:
            if limit not in self.counted.edges:
                raise ValueError(
                    f"threshold: found {limit:g}, where no bin ends; wanted one of the "
                    "bins' ends"
                )
        counted = self.counted
        return _audit(
            counted, counted, limits, metrics, closeness, confidence, positive_labels, ()
        )

    def _search(self, metric: FairnessMetric, options: Mapping[str, Any]) -> Search:
        counted = self.counted
        question = as_question(metric, counted.label_names, **options)
        if question.guarantee != Guarantee.NONE and not self.is_fixed:
            raise ValueError(
                "edges: found none; a guarantee needs bins that were fixed without the "
                "calibration data: name their ends"
            )
        rank = quantile_rank(counted.n_labelled, question.alpha)
        base = math.inf
        if rank <= counted.n_labelled:
            place = counted.rank_bin(rank)
            if place < len(counted.edges):
                base = float(counted.edges[place])
        curves = []
        for cells in _cell_maps(question, counted, None):
            scores = CountedScores.build(counted, cells.columns, base)
            if question.level is None:
                curves.append(counted_curve(scores, cells))
                continue
            grid = counted.edges[counted.edges >= base]
            if question.start is not None:
                grid = grid[grid <= question.start]
            from_infinity = question.start is None
            curves.append(
                fixed_sequence(scores, cells, grid, question.level, from_infinity)
            )
        return _search(counted, counted.n_labelled, question, base, curves)


def from_counts(
    table: pd.DataFrame,
    *,
    edges: ArrayLike | None = None,
    group_names: Sequence[Any] = (),
) -> FromCounts:
    """Threshold, frontier and audit from a table of counts, as a query gives it.

    Parameters
    ----------
    table : DataFrame
        label, true_label (whether the point's true label is this one), group, score (the
        end of the bin, which belongs to it; infinite above the last) and n. Rows of the
        same cell are added up, so tables of several sites are simply concatenated.
    edges : numbers, optional
        Where bins end, if that was fixed beforehand: a guarantee needs it.
    group_names : names
        Groups that count even if no point has them.

    Returns
    -------
    FromCounts

    Examples
    --------
    >>> table = pd.DataFrame({
    ...     "label": [0, 1, 0, 1],
    ...     "true_label": [True, False, False, True],
    ...     "group": ["a", "a", "b", "b"],
    ...     "score": [0.25, 1.0, 1.0, 0.25],
    ...     "n": [50, 50, 40, 40],
    ... })
    >>> from_counts(table).find_threshold("overall_accuracy_equality").base_threshold
    0.25
    """
    needed = ["label", "true_label", "group", "score", "n"]
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise ValueError(
            f"table: found no column {', '.join(missing)}; wanted {', '.join(needed)}"
        )
    ends = table["score"].to_numpy(np.float64)
    if np.isnan(ends).any():
        raise ValueError(f"table: row {int(np.isnan(ends).argmax())} has no score")
    points = as_edges(ends if edges is None else edges)
    is_known = np.isin(ends, points) | np.isposinf(ends)
    if not is_known.all():
        raise ValueError(
            f"table: found a bin that ends at {ends[~is_known][0]:g}; wanted the ends "
            "that `edges` names"
        )
    n = table["n"].to_numpy()
    if (n < 0).any() or (n != np.floor(n)).any():
        raise ValueError("table: found a count that is no whole number in column n")
    labels = _label_order(table["label"])
    label = pd.Index(labels, dtype=object).get_indexer(
        pd.Index(table["label"].tolist(), dtype=object)
    )
    groups = as_groups(table["group"], len(table)).declare(group_names)
    shape = (len(labels), 2, len(groups), len(points) + 2)
    counted = np.zeros(shape, np.int64)
    place = np.searchsorted(points, ends)
    is_other = ~table["true_label"].to_numpy(bool)
    np.add.at(counted, (label, is_other.astype(int), groups.codes, place), n)
    per_label = counted.sum(axis=(1, 2, 3))
    if (per_label != per_label[0]).any():
        told = ", ".join(
            f"{name}: {k:,}" for name, k in zip(labels, per_label, strict=True)
        )
        raise ValueError(
            f"table: found different numbers of points by label ({told}); wanted every "
            "point once for each label"
        )
    return FromCounts(
        ScoreCounts(
            counts=counted,
            edges=points,
            label_names=labels,
            group_names=groups.names,
            is_noted=np.zeros((len(labels), len(points) + 2), bool),
            values=np.empty(0),
            kinds=np.empty(0, np.int32),
        ),
        is_fixed=edges is not None,
    )


def _label_order(column: pd.Series) -> list[Any]:
    """The labels, in the order of their names where they have one."""
    return as_groups(pd.Series(column.tolist(), dtype=object), len(column)).names
