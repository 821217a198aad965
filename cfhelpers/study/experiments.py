"""The paper's grid: every setting of a dataset as a tidy row.

A setting is a score, a metric, a closeness c, one λ for all labels or one for each, a
guarantee and a split. Settings of the same split share their scores and their sorts.
"""

import json
import warnings
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from cfhelpers import paths
from cfhelpers._cache import cached_frame, fingerprint
from cfhelpers._checks import as_positive_labels
from cfhelpers.cells import SortedCells
from cfhelpers.control import (
    GUARANTEES,
    TOLERANCE,
    Calibration,
    FairThreshold,
    PairTest,
    default_grid,
)
from cfhelpers.datasets import Dataset, acs, load_dataset, pokec
from cfhelpers.groups import as_groups
from cfhelpers.metrics import get_metric
from cfhelpers.scores import raps_maximum
from cfhelpers.study import models, presets, scoring
from cfhelpers.study.names import DataKind

RUNS = (
    ("credit", "age"),
    ("acs_income", "race"),
    ("acs_education", "race"),
    ("pokec_n", "region"),
    ("pokec_n", "gender"),
    ("pokec_n", "region+gender"),
    ("pokec_z", "region"),
    ("pokec_z", "gender"),
    ("pokec_z", "region+gender"),
)
PAPER_ROWS = {
    "credit": 30_000,
    "acs_income": acs.PAPER_ROWS,
    "acs_education": acs.PAPER_ROWS,
    "pokec_n": pokec.SIZES["pokec_n"][0],
    "pokec_z": pokec.SIZES["pokec_z"][0],
}
CLOSENESS = (0.05, 0.10, 0.15, 0.20)
FOUR_FIFTHS = 0.8
GRID_METRICS = (
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "equalized_odds",
    "predictive_parity_proxy",
    "disparate_impact",
)
GRAPH_MODELS = ("gcn", "sage", "gat")
GRAPH_SCORES = ("daps", "cfgnn")
KEYS = [
    "dataset",
    "attribute",
    "source",
    "data",
    "records",
    "profile",
    "model",
    "score",
    "metric",
    "classwise",
    "guarantee",
    "c",
    "split",
]
MEASURED = ["coverage", "efficiency", "disparity"]


def load(
    name: str, attribute: str, source: str = "", rows: int = 0, seed: int = 0
) -> Dataset:
    """A dataset as the paper uses it; Credit comes with its graph.

    Parameters
    ----------
    name, attribute : str
        One of RUNS; "region+gender" for both.
    source : str
        By default the dataset's own.
    rows : int
        Of simulated records; by default as many as the dataset simulates.
    seed : int
        Of simulated records, where `rows` are given.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load("acs_income", "race", "simulated", rows=200).attribute
    'race'
    """
    if (name, attribute) not in RUNS:
        raise ValueError(
            f"dataset and attribute: found {(name, attribute)!r}; "
            f"wanted one of {', '.join(map(repr, RUNS))}"
        )
    options: dict[str, Any] = {}
    if name == "credit":
        options["graph"] = "published"
    if rows:
        options["n"] = rows
        options["seed"] = seed
    return load_dataset(name, source or None, attribute=attribute.split("+"), **options)


def scores_of(dataset: Dataset) -> tuple[str, ...]:
    """The scores that the paper reports for a dataset.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    tuple of str
        DAPS and CFGNN only where there is a graph.
    """
    if dataset.edge_index is None:
        return ("aps", "raps", "tps")
    return ("aps", "cfgnn", "daps", "raps", "tps")


def whose_data(dataset: Dataset) -> DataKind:
    """Whether records are the paper's, other real ones, or simulated.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    DataKind
        `OTHER` are real records of another year or with fewer features.

    Examples
    --------
    >>> print(whose_data(load_dataset("credit")))
    the paper's
    """
    if dataset.source == "simulated":
        return DataKind.SIMULATED
    if dataset.missing or len(dataset) != PAPER_ROWS.get(dataset.name):
        return DataKind.OTHER
    return DataKind.PAPERS


def records_words(dataset: Dataset) -> str:
    """What the records of a dataset are, in a few words for a title.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    str

    Examples
    --------
    >>> records_words(load_dataset("credit"))
    'real, UCI table, 30,000 rows'
    """
    words = ["real"]
    if dataset.source == "simulated":
        words = ["simulated"]
    elif dataset.name == "credit":
        words.append("UCI table")
    elif dataset.year is not None:
        words.append(f"ACS {dataset.year}")
    words.append(f"{len(dataset):,} rows")
    if dataset.missing and dataset.source != "simulated":
        words.append("some features missing")
    return ", ".join(words)


def run_facts(dataset: Dataset, base: models.BaseModel, profile: str) -> dict[str, str]:
    """What every row tells about the run that made it.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    profile : str

    Returns
    -------
    dict
        The columns from `dataset` to `model`, as plain text.
    """
    return {
        "dataset": dataset.name,
        "attribute": "+".join(dataset.attributes),
        "source": str(dataset.source),
        "data": str(whose_data(dataset)),
        "records": records_words(dataset),
        "profile": profile,
        "model": base.model,
    }


def asked_closeness(metric: str, closeness: Sequence[float]) -> Sequence[float]:
    """The values of c that a metric is asked for: of a ratio four fifths alone.

    Parameters
    ----------
    metric : str
    closeness : list of float
        For metrics that compare by a difference.

    Returns
    -------
    list of float

    Examples
    --------
    >>> asked_closeness("disparate_impact", (0.05, 0.1))
    (0.8,)
    """
    if get_metric(metric).is_ratio:
        return (FOUR_FIFTHS,)
    return closeness


def threshold_grid(scored: scoring.ScoredSplit) -> np.ndarray:
    """The grid of thresholds for the guarantee, up to the score's largest value.

    Parameters
    ----------
    scored : ScoredSplit

    Returns
    -------
    float64 (m,)
    """
    largest = 1.0
    if scored.score == "raps":
        largest = raps_maximum(scored.scores.shape[1], **scored.chosen)
    return default_grid(largest)


def test_of(model: str, score: str) -> PairTest:
    """How the guarantee compares groups: by bounds where a graph ties nodes together.

    Parameters
    ----------
    model, score : str

    Returns
    -------
    PairTest

    Examples
    --------
    >>> print(test_of("xgboost", "aps"), test_of("xgboost", "daps"))
    staircase bounds
    """
    if model in GRAPH_MODELS or score in GRAPH_SCORES:
        return PairTest.BOUNDS
    return PairTest.STAIRCASE


def is_beyond(metric: str, disparity: float, c: float) -> bool:
    """Whether a disparity is larger than c allows; for a ratio, smaller.

    Parameters
    ----------
    metric : str
    disparity : float
    c : float

    Returns
    -------
    bool

    Examples
    --------
    >>> is_beyond("demographic_parity", 0.2, c=0.1)
    True
    >>> is_beyond("disparate_impact", 0.9, c=0.8)
    False
    """
    if get_metric(metric).is_ratio:
        return bool(disparity < c - TOLERANCE)
    return bool(disparity > c + TOLERANCE)


def measured(test: SortedCells, metric: str, threshold: ArrayLike) -> dict[str, Any]:
    """Coverage of the true label, efficiency and disparity of a threshold's sets.

    Parameters
    ----------
    test : SortedCells
        The test split.
    metric : str
    threshold : float, or (K,)

    Returns
    -------
    dict
        `left_out` names the cells without points, which the disparity leaves out.

    Examples
    --------
    >>> people = as_groups(["a", "b", "b"], 3)
    >>> scores = [[0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]
    >>> test = SortedCells(scores, np.array([0, 1, 1]), people)
    >>> found = measured(test, "equal_opportunity", 0.5)
    >>> found["efficiency"] == 1 and found["left_out"] == "a / 1"
    True
    """
    counts = test.counts_at(threshold)
    n_points = counts.n_points.sum()
    positive_labels = as_positive_labels(None, len(counts.sizes))
    shares = counts.shares(get_metric(metric), positive_labels)
    left_out = [f"{group} / {label}" for group, label in shares.empty]
    return {
        "coverage": counts.hits.sum() / n_points,
        "efficiency": counts.set_sizes.sum() / n_points,
        "disparity": shares.disparity,
        "left_out": "; ".join(left_out),
    }


def run_split(
    dataset: Dataset,
    base: models.BaseModel,
    score: str,
    split: int,
    *,
    metrics: Sequence[str] = GRID_METRICS,
    closeness: Sequence[float] = CLOSENESS,
    classwise: Sequence[bool] = (False, True),
    guarantees: Sequence[str] = GUARANTEES,
    alpha: float = 0.1,
    delta: float = 0.1,
    **options: Any,
) -> pd.DataFrame:
    """The rows of one score on one split: scored once and sorted once for all settings.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
        Its probabilities, and its parts of the rows.
    score : str
    split : int
        The seed by which calibration and test rows are divided anew.
    metrics, closeness, classwise, guarantees : lists
        The settings. A ratio is asked for four fifths whatever `closeness` says.
    alpha, delta : float
    **options
        Of CFGNN.

    Returns
    -------
    DataFrame
    """
    scored = scoring.score_split(
        dataset, base.probs, base.parts, score, split, alpha=alpha, **options
    )
    calibration = calibrate(dataset, scored, alpha)
    test_groups = as_groups(dataset.groups[scored.test], len(scored.test))
    test = SortedCells(scored.scores[scored.test], dataset.y[scored.test], test_groups)
    grid = threshold_grid(scored)
    rows = []
    for metric in metrics:
        at_base = measured(test, metric, calibration.base)
        for is_classwise in classwise:
            for guarantee in guarantees:
                search = calibration.search(
                    metric,
                    classwise=is_classwise,
                    guarantee=guarantee,
                    delta=delta,
                    grid=grid,
                    test=test_of(base.model, score),
                )
                for c in asked_closeness(metric, closeness):
                    setting = {
                        "metric": metric,
                        "classwise": is_classwise,
                        "guarantee": str(guarantee),
                        "c": c,
                    }
                    found = search.find(c)
                    rows.append(setting | _outcome(test, metric, found, at_base, c))
    return pd.DataFrame(rows).assign(
        score=score,
        split=split,
        n_calibration=len(scored.calibration),
        n_test=len(scored.test),
        chosen=str(scored.chosen or ""),
    )


def calibrate(
    dataset: Dataset, scored: scoring.ScoredSplit, alpha: float = 0.1
) -> Calibration:
    """The calibration rows of a scored split, ready to be searched.

    Parameters
    ----------
    dataset : Dataset
    scored : ScoredSplit
    alpha : float

    Returns
    -------
    Calibration
    """
    rows = scored.calibration
    return Calibration(
        scored.scores[rows], dataset.y[rows], dataset.groups[rows], alpha=alpha
    )


def _outcome(
    test: SortedCells,
    metric: str,
    found: FairThreshold,
    at_base: dict[str, Any],
    c: float,
) -> dict[str, Any]:
    """What one threshold gives on the test split, beside the base predictor's."""
    row = measured(test, metric, found.threshold)
    row["beyond"] = is_beyond(metric, row["disparity"], c)
    for name in MEASURED:
        row[f"base_{name}"] = at_base[name]
    row["base_beyond"] = is_beyond(metric, at_base["disparity"], c)
    row["threshold"] = found.threshold.tolist()
    row["base_threshold"] = found.base_threshold
    row["feasible"] = found.feasible
    row["satisfied"] = found.satisfied
    return row


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
    """The tidy rows of a dataset: every score on every split.

    What is done is kept in artifacts/ at once, so that a run that was stopped goes on
    where it was.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    profile : "quick" or "paper"
    splits : int
    scores : list of str, optional
        By default those that the paper reports.
    progress : bool
        Whether to show a bar.
    **options
        Of `run_split`.

    Returns
    -------
    DataFrame
        The columns of KEYS, then what was measured, and the base model's settings.
    """
    if scores is None:
        scores = scores_of(dataset)
    tuned = presets.preset(dataset, "cfgnn", profile) or presets.preset(dataset, "cfgnn")
    key = {"content": _content(dataset, base), "options": options}
    pairs = list(product(range(splits), scores))
    parts = []
    for split, score in tqdm(
        pairs, "scores and splits", disable=not progress, leave=False
    ):
        own_options = dict(options)
        if score == "cfgnn":
            own_options |= {"parameters": tuned, "progress": False}
        own_key = key | {"score": score, "split": split, "own": own_options}
        compute = partial(run_split, dataset, base, score, split, **own_options)
        name = f"runs/{dataset.name}-{score}"
        with warnings.catch_warnings():
            # Said once, when the rows were split; here the rows name empty cells.
            warnings.filterwarnings("ignore", "too few rows to reach every part")
            parts.append(cached_frame(name, own_key, compute, code=__name__))
    rows = pd.concat(parts, ignore_index=True).assign(
        **run_facts(dataset, base, profile),
        parameters=json.dumps(base.parameters, sort_keys=True),
        seed=base.seed,
    )
    return rows[[*KEYS, *rows.columns.difference(KEYS, sort=False)]]


def _content(dataset: Dataset, base: models.BaseModel) -> str:
    """A short text that changes with whatever rows are computed from."""
    codes = as_groups(dataset.groups, len(dataset)).codes
    arrays = [base.probs, base.parts, dataset.y, codes]
    if dataset.edge_index is not None:
        arrays.append(dataset.edge_index)
    return fingerprint(*arrays)


def save_rows(rows: pd.DataFrame) -> Path:
    """Write the rows of one run where the profile's rows are, whole or not at all.

    Parameters
    ----------
    rows : DataFrame
        Of `run`.

    Returns
    -------
    Path
        results/runs/<profile>/<dataset>_<attribute>.parquet
    """
    runs = rows[["profile", "dataset", "attribute"]].drop_duplicates()
    ((profile, dataset, attribute),) = runs.to_numpy()
    path = _rows_path(profile, dataset, attribute)
    with paths.atomic_write(path) as unfinished:
        rows.to_parquet(unfinished, index=False, compression="zstd")
    return path


def load_rows(
    profile: str | None = None, dataset: str | None = None, attribute: str | None = None
) -> pd.DataFrame:
    """The stored rows of all runs, or of one profile, dataset or attribute.

    Parameters
    ----------
    profile, dataset, attribute : str, optional

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> load_rows("quick", "credit")["split"].nunique()
    10
    """
    profiles = [profile] if profile else paths.PROFILES
    parts = []
    for one_profile in profiles:
        for name, by in RUNS:
            path = _rows_path(one_profile, name, by)
            is_wanted = dataset in (None, name) and attribute in (None, by)
            if is_wanted and path.exists():
                parts.append(pd.read_parquet(path))
    if not parts:
        command = "make paper" if profile == "paper" else "make"
        raise FileNotFoundError(
            f"no rows of {dataset or 'any dataset'} in results/runs; "
            f"`{command}` makes them"
        )
    return pd.concat(parts, ignore_index=True)


def _rows_path(profile: str, dataset: str, attribute: str) -> Path:
    """Where the rows of one run are."""
    return paths.runs(profile) / f"{dataset}_{attribute.replace('+', '_')}.parquet"


def summary(rows: pd.DataFrame, by: Sequence[str] | None = None) -> pd.DataFrame:
    """Means and deviations over splits of what was measured.

    Parameters
    ----------
    rows : DataFrame
        Of `run`.
    by : list of str, optional
        Columns that name a line of the summary; by default KEYS without the split.

    Returns
    -------
    DataFrame
        Deviations have the suffix _sd. `beyond`, `base_beyond` and `feasible` are shares
        of splits, `splits` is their number.

    Examples
    --------
    >>> table = summary(load_rows("quick", "credit"), by=["guarantee"])
    >>> table["guarantee"].tolist()
    ['none', 'fixed-sequence']
    """
    if by is None:
        by = KEYS[:-1]
    grouped = rows.groupby(list(by), sort=False, dropna=False)
    names = [*MEASURED, *(f"base_{name}" for name in MEASURED)]
    table = grouped[names].mean()
    deviations = grouped[names].std()
    for place, name in enumerate(names):
        table.insert(2 * place + 1, f"{name}_sd", deviations[name])
    shares = grouped[["beyond", "base_beyond", "feasible"]].mean()
    n_splits = grouped["split"].nunique().rename("splits")
    return table.join(shares).join(n_splits).reset_index()
