"""The paper's grid: one setting to a tidy row, and every setting of a dataset with scores and sorts shared."""

import json
import re
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from cfhelpers import paths
from cfhelpers._cache import cached_frame, fingerprint
from cfhelpers._checks import as_positive_labels, one_of
from cfhelpers.conformal import round_down
from cfhelpers.control import GUARANTEES, TOLERANCE, Calibration
from cfhelpers.datasets import Dataset, acs, load_dataset, pokec
from cfhelpers.fairness import CellValues, get_metric
from cfhelpers.groups import as_groups
from cfhelpers.scores import raps_maximum
from cfhelpers.study import models, presets, scoring

RUNS = (("credit", "age"), ("acs_income", "race"), ("acs_education", "race"))
RUNS += tuple(
    (name, by)
    for name in ("pokec_n", "pokec_z")
    for by in ("region", "gender", "region+gender")
)
CLOSENESS = (0.05, 0.10, 0.15, 0.20)
FOUR_FIFTHS = 0.8
GRID_METRICS = (
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "equalized_odds",
)
GRID_METRICS += ("predictive_parity_proxy", "disparate_impact")
KEYS = ["dataset", "attribute", "source", "data", "records", "profile", "model"]
KEYS += ["score", "metric", "classwise", "guarantee", "c", "split"]
MEASURED = ["coverage", "efficiency", "disparity"]
SAME, OTHER, SIMULATED = (
    "the paper's",
    "other",
    "simulated",
)  # whose data the rows come from


def load(
    name: str, attribute: str, source: str = "", rows: int = 0, seed: int = 0
) -> Dataset:
    """A dataset as the paper uses it, "region+gender" for both, Credit with its graph; `rows` of simulated data."""
    one_of((name, attribute), "dataset and attribute", RUNS)
    options = {"graph": "published"} if name == "credit" else {}
    if rows:
        options |= {"n": rows, "seed": seed}
    return load_dataset(name, source or None, attribute=attribute.split("+"), **options)


def _records(dataset: Dataset) -> str:
    """What the rows of a dataset are, in a few words for a title."""
    if dataset.source == "simulated":
        return f"simulated, {len(dataset):,} rows"
    year = re.search(r"PUMS (\d{4})", dataset.citation)
    real = {"credit": "real, UCI table"}.get(
        dataset.name, f"real, ACS {year[1]}" if year else "real"
    )
    return f"{real}, {len(dataset):,} rows" + (
        ", some features missing" if dataset.missing else ""
    )


def scores_of(dataset: Dataset) -> tuple[str, ...]:
    """The scores that the paper reports for a dataset: DAPS and CFGNN need a graph."""
    return (
        ("aps", "raps", "tps")
        if dataset.edge_index is None
        else ("aps", "cfgnn", "daps", "raps", "tps")
    )


def whose_data(dataset: Dataset) -> str:
    """ "the paper's", "other" (real records, of another year or with fewer features), or "simulated"."""
    if dataset.source == "simulated":
        return SIMULATED
    sizes = {
        "acs_income": acs.PAPER_ROWS,
        "acs_education": acs.PAPER_ROWS,
        "credit": 30_000,
    }
    sizes |= {name: users for name, (users, _) in pokec.SIZES.items()}
    return (
        SAME if not dataset.missing and len(dataset) == sizes.get(dataset.name) else OTHER
    )


class Measure:
    """Test scores, sorted once within each cell (label, Y = ỹ or not, group): any threshold is then quick to judge."""

    def __init__(
        self, scores: np.ndarray, y: np.ndarray, groups: Any, positive_labels: Any = None
    ):
        self.groups, self.shape, self.dtype = (
            as_groups(groups, len(y)),
            scores.shape,
            scores.dtype,
        )
        self.labels = as_positive_labels(positive_labels, scores.shape[1])
        n_groups = len(self.groups)
        self.sizes = np.empty((scores.shape[1], 2, n_groups), np.int64)
        self.sorted = []
        for label, column in enumerate(scores.T):
            cell = (self.groups.codes + n_groups * (y != label)).astype(
                np.min_scalar_type(2 * n_groups)
            )
            self.sizes[label] = np.bincount(cell, minlength=2 * n_groups).reshape(
                2, n_groups
            )
            parts = np.split(
                column[np.argsort(cell, kind="stable")], np.cumsum(self.sizes[label])[:-1]
            )
            self.sorted.append([np.sort(part) for part in parts])

    def covered(self, threshold: Any) -> np.ndarray:
        """Points per cell (K, 2, groups) whose score is at most the threshold, one for all labels or one each."""
        limits = round_down(np.broadcast_to(threshold, self.shape[1]), self.dtype)
        pairs = zip(self.sorted, limits, strict=True)
        counts = [
            [np.searchsorted(part, limit, "right") for part in parts]
            for parts, limit in pairs
        ]
        return np.array(counts).reshape(self.sizes.shape)

    def cells(self, metric: Any, covered: np.ndarray) -> CellValues:
        """What a metric compares, from `covered`."""
        metric, labels = (
            get_metric(metric),
            self.labels if get_metric(metric).per_label else slice(None),
        )

        def of_filters(points: np.ndarray) -> np.ndarray:
            parts = {
                "any": points.sum(axis=1),
                "equal": points[:, 0],
                "different": points[:, 1],
            }
            if not metric.per_label:
                return points[:, 0].sum(axis=0)[None, None]
            return np.stack([parts[part.condition] for part in metric.filters], axis=1)

        counts, sizes = of_filters(covered[labels]), of_filters(self.sizes[labels])
        return CellValues.of(metric, counts, sizes, self.labels, self.groups.names)

    def row(self, metric: Any, threshold: Any) -> dict[str, Any]:
        """Coverage of the true label, efficiency and disparity of the sets that the threshold gives."""
        covered = self.covered(threshold)
        cells = self.cells(metric, covered)
        return {
            "coverage": covered[:, 0].sum() / self.shape[0],
            "efficiency": covered.sum() / self.shape[0],
            "disparity": cells.disparity,
            "left_out": "; ".join(f"{group} / {label}" for group, label in cells.empty),
        }


def is_beyond(metric: Any, disparity: float, c: float) -> bool:
    """Whether a disparity is larger than c allows; for a ratio, smaller."""
    return bool(
        disparity < c - TOLERANCE
        if get_metric(metric).is_ratio
        else disparity > c + TOLERANCE
    )


def run_split(
    dataset: Dataset,
    base: models.BaseModel,
    score: str,
    split: int,
    *,
    metrics: Sequence[str] = GRID_METRICS,
    closeness: Sequence[float] = CLOSENESS,
    classwise: Iterable[bool] = (False, True),
    guarantees: Sequence[str] = GUARANTEES,
    alpha: float = 0.1,
    delta: float = 0.1,
    **options: Any,
) -> pd.DataFrame:
    """The rows of one score on one split: scored once, sorted once, for all metrics and all c; `options` of CFGNN."""
    scored = scoring.score_split(
        dataset, base.probs, base.parts, score, split, alpha=alpha, **options
    )
    parts = [
        (scored.scores[at], dataset.y[at], dataset.groups[at])
        for at in (scored.calibration, scored.test)
    ]
    calibration, measure = Calibration(*parts[0], alpha=alpha), Measure(*parts[1])
    top = raps_maximum(dataset.n_classes, **scored.chosen) if score == "raps" else 1.0
    grid, rows = np.linspace(0, top, 10_001), []
    for metric in metrics:
        asked = (FOUR_FIFTHS,) if get_metric(metric).is_ratio else closeness
        at_base = measure.row(metric, calibration.base)
        for each in classwise:
            for guarantee in guarantees:
                found = calibration.search(
                    metric, classwise=each, guarantee=guarantee, delta=delta, grid=grid
                )
                setting = {"metric": metric, "classwise": each, "guarantee": guarantee}
                rows += [
                    setting
                    | {"c": c}
                    | _outcome(measure, metric, found.find(c), at_base, c)
                    for c in asked
                ]
    facts = {
        "score": score,
        "split": split,
        "n_calibration": len(scored.calibration),
        "n_test": len(scored.test),
    }
    return pd.DataFrame(rows).assign(**facts, chosen=str(scored.chosen or ""))


def _outcome(
    measure: Measure, metric: str, found: Any, at_base: dict, c: float
) -> dict[str, Any]:
    """What one threshold gives on the test split, beside the base predictor's."""
    row = measure.row(metric, found.threshold)
    return row | {
        "beyond": is_beyond(metric, row["disparity"], c),
        **{f"base_{name}": at_base[name] for name in MEASURED},
        "base_beyond": is_beyond(metric, at_base["disparity"], c),
        "threshold": found.threshold.tolist(),
        "base_threshold": found.base_threshold,
        "feasible": found.feasible,
        "satisfied": found.satisfied,
    }


def run(
    dataset: Dataset,
    base: models.BaseModel,
    *,
    profile: str = "quick",
    splits: int = 10,
    scores: Sequence[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> pd.DataFrame:
    """The tidy rows of a dataset: every score on every split by `run_split`, whose options these are.

    What is done is kept in artifacts/ at once, so that a run that was stopped goes on where it was.
    """
    scores = scores_of(dataset) if scores is None else scores
    tuned = presets.preset(dataset, "cfgnn", profile) or presets.preset(dataset, "cfgnn")
    codes = as_groups(dataset.groups, len(dataset)).codes
    edges = [] if dataset.edge_index is None else [dataset.edge_index]
    key = {
        "content": fingerprint(base.probs, base.parts, dataset.y, codes, *edges),
        "options": options,
    }
    pairs, parts = [(split, score) for split in range(splits) for score in scores], []
    for split, score in tqdm(
        pairs, "scores and splits", disable=not progress, leave=False
    ):
        own = options | (
            {"parameters": tuned, "progress": False} if score == "cfgnn" else {}
        )
        compute = partial(run_split, dataset, base, score, split, **own)
        with (
            warnings.catch_warnings()
        ):  # said once, when the rows were split; the rows say which cells were left out
            warnings.filterwarnings("ignore", "too few rows to reach every part")
            own_key = key | {"score": score, "split": split, "own": own}
            name = f"runs/{dataset.name}-{score}"
            parts.append(cached_frame(name, own_key, compute, code=__name__))
    setting = {
        "dataset": dataset.name,
        "attribute": dataset.attribute.replace(" × ", "+"),
        "source": dataset.source,
    }
    setting |= {
        "data": whose_data(dataset),
        "records": _records(dataset),
        "profile": profile,
        "model": base.model,
    }
    setting |= {
        "parameters": json.dumps(base.parameters, sort_keys=True),
        "seed": base.seed,
    }  # of the base model
    rows = pd.concat(parts, ignore_index=True).assign(**setting)
    return rows[[*KEYS, *rows.columns.difference(KEYS, sort=False)]]


def save_rows(rows: pd.DataFrame) -> Path:
    """Write the rows of one run to results/runs/<profile>/<dataset>_<attribute>.parquet, whole or not at all."""
    ((profile, dataset, attribute),) = (
        rows[["profile", "dataset", "attribute"]].drop_duplicates().to_numpy()
    )
    path = _path(profile, dataset, attribute)
    with paths.atomic_write(path) as unfinished:
        rows.to_parquet(unfinished, index=False, compression="zstd")
    return path


def load_rows(
    profile: str | None = None, dataset: str | None = None, attribute: str | None = None
) -> pd.DataFrame:
    """The stored rows of all runs, or of one profile, dataset or attribute."""
    wanted = [
        run for run in RUNS if dataset in (None, run[0]) and attribute in (None, run[1])
    ]
    files = [
        _path(each, *run)
        for each in ([profile] if profile else paths.PROFILES)
        for run in wanted
    ]
    if not (found := [path for path in files if path.exists()]):
        command = "make paper" if profile == "paper" else "make"
        raise FileNotFoundError(
            f"no rows of {dataset or 'any dataset'} in results/runs; `{command}` makes them"
        )
    return pd.concat([pd.read_parquet(path) for path in found], ignore_index=True)


def _path(profile: str, dataset: str, attribute: str) -> Path:
    return paths.runs(profile) / f"{dataset}_{attribute.replace('+', '_')}.parquet"


def summary(rows: pd.DataFrame, by: Sequence[str] | None = None) -> pd.DataFrame:
    """Mean and standard deviation over splits of what was measured, and the shares of splits beyond c and feasible."""
    names = [*MEASURED, *(f"base_{name}" for name in MEASURED)]
    grouped = rows.groupby(list(by or KEYS[:-1]), sort=False, dropna=False)
    table = grouped[names].agg(["mean", "std"])
    table.columns = [name if of == "mean" else f"{name}_sd" for name, of in table.columns]
    shares = grouped[["beyond", "base_beyond", "feasible"]].mean()
    return (
        table.join(shares).join(grouped["split"].nunique().rename("splits")).reset_index()
    )
