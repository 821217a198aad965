"""The paper's grid: every setting of a dataset as a tidy row.

A setting is a score, a metric, a closeness c, one λ for all labels or one for each, a
guarantee and a split. Settings of the same split share their scores and their sorts.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from cfhelpers._cache import cached_frame, fingerprint
from cfhelpers._checks import as_positive_labels
from cfhelpers.cells import CellCounts, Shares, SortedCells
from cfhelpers.control import (
    GUARANTEES,
    TOLERANCE,
    Calibration,
    FairThreshold,
    Guarantee,
    PairTest,
    default_grid,
)
from cfhelpers.datasets import Dataset, acs, load_dataset, pokec
from cfhelpers.datasets import split as split_rows
from cfhelpers.groups import as_groups
from cfhelpers.metrics import get_metric
from cfhelpers.scores import raps_maximum
from cfhelpers.study import models, presets, scoring
from cfhelpers.study.names import DATASETS, RECORDS_OF, RUNS, DataKind
from cfhelpers.study.stored_rows import (
    load_rows,
    load_training_rows,
    read_stored,
    rows_path,
    save_rows,
)

__all__ = ["RUNS", "load_rows", "load_training_rows", "save_rows"]

PAPER_ROWS = {
    "credit": 30_000,
    "acs_income": acs.PAPER_ROWS,
    "acs_education": acs.PAPER_ROWS,
    "pokec_n": pokec.SIZES["pokec_n"][0],
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
SLOW_SCORES = ("cfgnn",)  # stored rows of these are used in a fresh run, too
CFGNN_VARIANT = "published"  # of graph_scores.VARIANTS
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
CONDITION_WORDS = {"any": "", "equal": ", y = {0}", "different": ", y ≠ {0}"}
ROWS_VERSION = 1  # to be raised when a change of the code changes stored rows


def load(
    name: str, attribute: str, source: str = "", rows: int = 0, seed: int = 0
) -> Dataset:
    """A dataset as the paper used it; Credit comes with its graph.

    Parameters
    ----------
    name, attribute : str
        One of RUNS; "region+gender" for both. "pokec_z" gives Pokec-n, whose records
        the paper's runs of that name had (erratum 10).
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
    own_name = RECORDS_OF.get(name, name)
    return load_dataset(
        own_name, source or None, attribute=attribute.split("+"), **options
    )


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


def run_facts(
    dataset: Dataset, base: models.BaseModel, profile: str, reported_as: str = ""
) -> dict[str, str]:
    """What every row tells about the run that made it.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    profile : str
    reported_as : str
        The paper's name for it, where that is another than the records' own.

    Returns
    -------
    dict
        The columns from `dataset` to `model`, as plain text.
    """
    records = records_words(dataset)
    if reported_as not in ("", dataset.name):
        records = f"{DATASETS.get(dataset.name, dataset.name)}'s: {records}"
    return {
        "dataset": reported_as or dataset.name,
        "attribute": "+".join(dataset.attributes),
        "source": str(dataset.source),
        "data": str(whose_data(dataset)),
        "records": records,
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
        `left_out` names the cells without points, which the disparity leaves out;
        `widest` names the two between which it is, and `widest_n` is the number of
        points of the smaller.

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
    } | widest_gap(shares)


def widest_gap(shares: Shares) -> dict[str, Any]:
    """Between which two cells the disparity is.

    Parameters
    ----------
    shares : Shares
        What a metric compares, at one threshold.

    Returns
    -------
    dict
        `widest`: the label, and the groups with the lowest and the highest share, each
        with its points; `widest_n`: the points of the smaller cell. Empty and 0 where no
        two groups differ.

    Examples
    --------
    >>> counts = pd.DataFrame({
    ...     "label": [1, 1],
    ...     "true_label": [True, True],
    ...     "group": ["a", "b"],
    ...     "n": [40, 2000],
    ...     "covered": [10, 1500],
    ... })
    >>> from cfhelpers.cells import CellCounts
    >>> cells = CellCounts.from_table(counts, [0, 1])
    >>> widest_gap(cells.shares(get_metric("equal_opportunity"), [1]))["widest"]
    'label 1, y = 1: a (40) < b (2,000)'
    """
    losses = shares.losses
    label, part = np.unravel_index(losses.argmax(), losses.shape)
    if np.isneginf(losses[label, part]):
        return {"widest": "", "widest_n": 0}
    values = shares.values[label, part]
    trials = np.broadcast_to(shares.trials, shares.values.shape)[label, part]
    low = int(np.nanargmin(values))
    high = int(np.nanargmax(values))
    if low == high:
        return {"widest": "", "widest_n": 0}
    texts = []
    for group in (low, high):
        texts.append(f"{shares.group_names[group]} ({trials[group]:,})")
    cell = "the true label"
    if shares.metric.per_label:
        name = shares.labels[label]
        condition = CONDITION_WORDS[str(shares.metric.conditions[part])]
        if shares.metric.is_predictive:
            condition = ", in the set"
        cell = f"label {name}{condition.format(name)}"
    return {
        "widest": f"{cell}: {' < '.join(texts)}",
        "widest_n": int(min(trials[low], trials[high])),
    }


def smallest_cell(counts: CellCounts, metric: str) -> dict[str, Any]:
    """The cell with the fewest points among those that a metric compares.

    Parameters
    ----------
    counts : CellCounts
        Of the calibration rows.
    metric : str
        For predictive values a group's points with the label are taken.

    Returns
    -------
    dict
        `smallest_cell` as "group / label", and its points as `smallest_n`.

    Examples
    --------
    >>> people = as_groups(["a", "a", "b"], 3)
    >>> sets = np.ones((3, 2), bool)
    >>> counts = CellCounts.from_sets(sets, np.array([1, 1, 1]), people)
    >>> smallest_cell(counts, "equal_opportunity")
    {'smallest_cell': 'b / 1', 'smallest_n': 1}
    """
    own = get_metric(metric)
    if own.is_predictive:
        own = get_metric("equal_opportunity")
    labels = as_positive_labels(None, len(counts.sizes))
    shares = counts.shares(own, labels)
    trials = shares.trials
    label, _, group = np.unravel_index(trials.argmin(), trials.shape)
    name = shares.group_names[group]
    return {
        "smallest_cell": f"{name} / {shares.labels[label]}",
        "smallest_n": int(trials.min()),
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
    all_labels = np.ones(calibration.scores.shape, bool)
    counts = CellCounts.from_sets(all_labels, calibration.y, calibration.groups)
    grid = threshold_grid(scored)
    rows = []
    for metric in metrics:
        at_base = measured(test, metric, calibration.base)
        smallest = smallest_cell(counts, metric)
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
                    outcome = _outcome(test, metric, found, at_base, c)
                    rows.append(setting | outcome | smallest)
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
    row["base_widest"] = at_base["widest"]
    row["base_widest_n"] = at_base["widest_n"]
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
    reported_as: str = "",
    splits: int = 10,
    scores: Sequence[str] | None = None,
    fresh: bool = False,
    progress: bool = True,
    **options: Any,
) -> pd.DataFrame:
    """The tidy rows of a dataset: every score on every split.

    Rows that are stored in results/runs for the same records, model and settings are
    read, if the model is as good on the test rows as theirs was. What is computed is kept
    in artifacts/ at once, so that a run that was stopped goes on where it was.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    profile : "quick" or "paper"
    reported_as : str
        The paper's name for the dataset, where that is another than the records' own.
    splits : int
    scores : list of str, optional
        By default those that the paper reports.
    fresh : bool
        Compute them, whatever is stored in results/runs; but for CFGNN on real records,
        whose training takes longest.
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
    settings = run_settings(dataset, profile, splits, scores, options)
    facts = run_facts(dataset, base, profile, reported_as)
    key = rows_key(dataset, base.parts, base.model, base.parameters, base.seed, settings)
    path = rows_path(profile, facts["dataset"], facts["attribute"], base.seed)
    log_loss = log_loss_of(dataset, base)
    stored = read_stored(path, key, count_rows(settings))
    if stored is not None and not np.allclose(
        stored["test_log_loss"], log_loss, rtol=1e-3
    ):
        stored = None
    if stored is not None and not fresh:
        return stored.assign(**facts)
    kept = pd.DataFrame(columns=["score", "split"])
    if stored is not None and facts["data"] != DataKind.SIMULATED:
        kept = stored[stored["score"].isin(SLOW_SCORES)]
    pairs = list(product(range(splits), scores))
    parts = []
    for split, score in tqdm(
        pairs, "scores and splits", disable=not progress, leave=False
    ):
        own_rows = kept[(kept["score"] == score) & (kept["split"] == split)]
        if len(own_rows):
            parts.append(own_rows)
            continue
        own_options = dict(options)
        if score == "cfgnn":
            own_options |= {"parameters": settings["cfgnn"], "variant": CFGNN_VARIANT}
            own_options["progress"] = False
        compute = partial(run_split, dataset, base, score, split, **own_options)
        own_key = {
            "content": _content(dataset, base),
            "options": options,
            "score": score,
            "split": split,
            "own": own_options,
        }
        name = f"runs/{dataset.name}-{score}"
        with warnings.catch_warnings():
            # Said once, when the rows were split; here the rows name empty cells.
            warnings.filterwarnings("ignore", "too few rows to reach every part")
            parts.append(cached_frame(name, own_key, compute, code=__name__))
    rows = pd.concat(parts, ignore_index=True).assign(
        **facts,
        parameters=json.dumps(base.parameters, sort_keys=True),
        training_split=base.seed,
        n_labelled=int((dataset.y >= 0).sum()),
        test_accuracy=base.accuracy["test"],
        test_log_loss=log_loss,
        key=key,
    )
    return rows[[*KEYS, *rows.columns.difference(KEYS, sort=False)]]


def run_training_splits(
    dataset: Dataset,
    base: models.BaseModel,
    training_splits: int,
    *,
    profile: str = "quick",
    reported_as: str = "",
    splits: int = 10,
    progress: bool = True,
) -> pd.DataFrame:
    """The rows of other training splits, each with its own model, stored as they come.

    The paper has one trained model. Another division into training and other rows gives
    another model, and other numbers; the rows show how far apart they are. They are by
    the paper's rule alone. Training splits whose rows are stored are not run again.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
        Of training split 0: the others have its kind and its settings.
    training_splits : int
        How many there are in all, that of `base` among them.
    profile, reported_as, splits, progress
        As in `run`.

    Returns
    -------
    DataFrame
        Of training splits 1, 2, …; empty if there is none.
    """
    options: dict[str, Any] = {"guarantees": [str(Guarantee.NONE)]}
    settings = run_settings(dataset, profile, splits, scores_of(dataset), options)
    attribute = "+".join(dataset.attributes)
    found = [pd.DataFrame()]
    seeds = range(1, training_splits)
    for seed in tqdm(seeds, "training splits", disable=not progress, leave=False):
        parts = split_rows(dataset, seed)
        key = rows_key(dataset, parts, base.model, base.parameters, seed, settings)
        path = rows_path(profile, reported_as or dataset.name, attribute, seed)
        rows = read_stored(path, key, count_rows(settings))
        if rows is None:
            model = models.base_model(
                dataset,
                parts,
                base.model,
                parameters=base.parameters,
                seed=seed,
                progress=progress,
            )
            rows = run(
                dataset,
                model,
                profile=profile,
                reported_as=reported_as,
                splits=splits,
                progress=progress,
                **options,
            )
            save_rows(rows)
        found.append(rows)
    return pd.concat(found, ignore_index=True)


def rows_key(
    dataset: Dataset,
    parts: np.ndarray,
    model: str,
    parameters: Mapping[str, Any],
    seed: int,
    settings: Mapping[str, Any],
) -> str:
    """A short text that changes with whatever rows depend on, except the code.

    A change of the code that changes rows raises ROWS_VERSION.

    Parameters
    ----------
    dataset : Dataset
    parts : array of str, shape (n,)
    model : str
    parameters : mapping
        Of the model.
    seed : int
        Of the model.
    settings : mapping
        Whatever else there is.

    Returns
    -------
    str
        Twenty hexadecimal digits.
    """
    codes = as_groups(dataset.groups, len(dataset)).codes
    arrays = [dataset.X, dataset.y, codes, parts]
    if dataset.edge_index is not None:
        arrays.append(dataset.edge_index)
    whole = {
        "version": ROWS_VERSION,
        "content": fingerprint(*arrays),
        "model": model,
        "parameters": dict(parameters),
        "seed": seed,
        "settings": dict(settings),
    }
    return fingerprint(json.dumps(whole, sort_keys=True, default=np.ndarray.tolist))


def run_settings(
    dataset: Dataset,
    profile: str,
    splits: int,
    scores: Sequence[str],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """What rows depend on beside records and model; CFGNN's settings are among it.

    Parameters
    ----------
    dataset : Dataset
    profile : "quick" or "paper"
        Its settings of CFGNN, or else those of the quick one.
    splits : int
    scores : list of str
    options : mapping
        Of `run_split`.

    Returns
    -------
    dict
    """
    tuned = presets.preset(dataset, "cfgnn", profile)
    settings = {
        "splits": splits,
        "scores": list(scores),
        "cfgnn": tuned or presets.preset(dataset, "cfgnn"),
        "options": dict(options),
    }
    if "cfgnn" in scores:
        settings["cfgnn_variant"] = CFGNN_VARIANT
    return settings


def count_rows(settings: Mapping[str, Any]) -> int:
    """How many rows a run with these settings has.

    Parameters
    ----------
    settings : mapping
        Of `run_settings`.

    Returns
    -------
    int

    Examples
    --------
    >>> count_rows({"splits": 10, "scores": ["aps"], "options": {}})
    840
    """
    options = settings["options"]
    n_closeness = 0
    for metric in options.get("metrics", GRID_METRICS):
        n_closeness += len(asked_closeness(metric, options.get("closeness", CLOSENESS)))
    n_kinds = len(options.get("classwise", (False, True)))
    n_guarantees = len(options.get("guarantees", GUARANTEES))
    n_units = settings["splits"] * len(settings["scores"])
    return n_units * n_closeness * n_kinds * n_guarantees


def log_loss_of(dataset: Dataset, base: models.BaseModel, part: str = "test") -> float:
    """Mean −log of the probability that the base model gives to the true label.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    part : str
        Over which rows.

    Returns
    -------
    float
    """
    rows = np.flatnonzero(base.parts == part)
    probs = base.probs[rows, dataset.y[rows]].astype(float)
    return float(-np.log(np.maximum(probs, np.finfo(float).tiny)).mean())


def _content(dataset: Dataset, base: models.BaseModel) -> str:
    """A short text that changes with whatever rows are computed from."""
    codes = as_groups(dataset.groups, len(dataset)).codes
    arrays = [base.probs, base.parts, dataset.y, codes]
    if dataset.edge_index is not None:
        arrays.append(dataset.edge_index)
    return fingerprint(*arrays)


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
