"""Runs with the bugs of the authors' release, and without, on the same re-splits.

A number is that of one score, arm, metric, c, kind of λ and quantity. What the bugs move
is said in `errata_moves`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from cfhelpers import paths
from cfhelpers._cache import cached_frame
from cfhelpers._checks import one_of
from cfhelpers.cells import CellCounts, SortedCells
from cfhelpers.datasets import Dataset
from cfhelpers.datasets import split as split_rows
from cfhelpers.groups import as_groups
from cfhelpers.study import batch_gcp, experiments, models, presets
from cfhelpers.study.errata import (
    Errata,
    alone,
    cfgnn_options,
    fit_gcp,
    score_split_as_released,
)
from cfhelpers.study.names import Arm
from cfhelpers.study.scoring import ScoredSplit
from cfhelpers.study.stored_rows import add_rows, own_rows

QUANTITIES = ("efficiency", "disparity")
NUMBER = ["score", "arm", "metric", "c", "classwise", "quantity"]
PROXY = "predictive_parity_proxy"
RESPLITS_PER_C = 10
DAPS_BUGS = ("quantile", "self_loops", "composed_tuning", "halves_by_index")
TOGETHER = "together"
CFGNN_SWITCHES = (
    "shortcut",
    "last_epoch",
    "longer_training",
    "shorter_training",
    "trained_once",
    "block_degrees",
)
# The scores that each switch can touch on Credit, all of whose nodes are labelled.
TOUCHED = {
    "quantile": ("tps", "aps", "daps"),
    "self_loops": ("daps",),
    "composed_tuning": ("daps",),
    "halves_by_index": ("daps",),
    TOGETHER: ("daps",),
} | dict.fromkeys(CFGNN_SWITCHES, ("cfgnn",))
# What a switch is compared with, where that is not "none".
BASELINES = {"block_degrees": "batches"}
RELEASE_TUNING = "release_tuning"
TUNINGS = ("none", "composed_tuning", RELEASE_TUNING)
TRAINING_FILE = "errata_training.csv"
TRAINING_COLUMNS = ["training_split", "tuning", *NUMBER, "value", "splits", "key"]
MODEL = "xgboost"
ALPHA = 0.1
CHOSEN = ("diffusion", "epoch", "held_out_size")  # what tuning or training chose
CFGNN_FILE = "errata_cfgnn.csv"
CFGNN_COLUMNS = [
    "erratum",
    *NUMBER,
    "value",
    "sd",
    "unchanged",
    "changed_scores",
    "epoch",
    "held_out_size",
    "splits",
    "key",
]


def switches(name: str) -> Errata:
    """The bugs that a name stands for.

    Parameters
    ----------
    name : str
        "none", the name of one bug, "together" for all that can touch DAPS on Credit, or
        "release_tuning" for those among them that concern its tuning and its graph.

    Returns
    -------
    Errata

    Examples
    --------
    >>> print(switches("release_tuning"))
    self_loops + composed_tuning + halves_by_index
    """
    known = {"none": (), TOGETHER: DAPS_BUGS, RELEASE_TUNING: DAPS_BUGS[1:]}
    for errata in alone():
        known[str(errata)] = tuple(errata.names)
    one_of(name, "name", tuple(known))
    return Errata(**dict.fromkeys(known[name], True))


def baseline(name: str) -> str:
    """The name of what a switch is compared with.

    Parameters
    ----------
    name : str
        As `switches` knows it.

    Returns
    -------
    str
        "none", but for "block_degrees": a GCN in batches with the right degrees. So
        nothing differs but the degrees.

    Examples
    --------
    >>> baseline("self_loops"), baseline("block_degrees")
    ('none', 'batches')
    """
    return BASELINES.get(name, "none")


def is_baseline(name: str) -> bool:
    """Whether other switches are compared with this one.

    Parameters
    ----------
    name : str
        As `switches` knows it.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_baseline("none"), is_baseline("batches"), is_baseline("shortcut")
    (True, True, False)
    """
    return name == "none" or name in BASELINES.values()


def rounds(score: str, errata: Errata) -> dict[int, dict[str, list[float]]]:
    """Which c are asked of the metrics after how many rounds of re-splits.

    The release goes through the same ten re-splits for each c. DAPS's self-loops go on
    accumulating meanwhile, so that with them the scores depend on c: there are as many
    rounds before a c as there are smaller ones, and for the proxy one more. (In the
    authors' stored means the base efficiency of DAPS is the same for the proxy at .05
    and the other metrics at .10, and so on; that of disparate impact is theirs at .05.)

    Parameters
    ----------
    score : str
    errata : Errata
        `self_loops` matters.

    Returns
    -------
    dict
        By the number of rounds before: the values of c, by metric.

    Examples
    --------
    >>> len(rounds("daps", Errata())), len(rounds("daps", Errata(self_loops=True)))
    (1, 5)
    >>> rounds("daps", Errata(self_loops=True))[4]
    {'predictive_parity_proxy': [0.2]}
    """
    has_rounds = score == "daps" and errata.self_loops
    found: dict[int, dict[str, list[float]]] = {}
    for metric in experiments.GRID_METRICS:
        place = 0
        if has_rounds and metric == PROXY:
            place = 1
        for c in experiments.asked_closeness(metric, experiments.CLOSENESS):
            found.setdefault(place, {}).setdefault(metric, []).append(c)
            if has_rounds:
                place += 1
    return dict(sorted(found.items()))


def changes(
    dataset: Dataset, base: models.BaseModel, score: str, name: str, split: int = 0
) -> dict[str, Any]:
    """What a bug changes on one re-split, before anything is measured.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    score : str
    name : str
        As `switches` knows it.
    split : int

    Returns
    -------
    dict
        scores: how many there are; changed: how many of them differ; labels: how many
        labels enter or leave the base predictor's sets of the test rows; quantile and
        diffusion (NaN for scores that have none), and both without the bug, which is as
        `baseline` says.
    """
    without = baseline(name)
    found = {}
    for which in (without, name):
        found[which] = score_split_as_released(
            dataset, base.probs, base.parts, score, split, switches(which)
        )
    before, quantile_before = found[without]
    after, quantile = found[name]
    in_sets_before = before.scores[before.test] <= quantile_before
    in_sets = after.scores[after.test] <= quantile
    return {
        "erratum": name,
        "score": score,
        "scores": before.scores.size,
        "changed": int((before.scores != after.scores).sum()),
        "labels": int((in_sets != in_sets_before).sum()),
        "quantile_before": quantile_before,
        "quantile": quantile,
        "diffusion_before": before.chosen.get("diffusion", np.nan),
        "diffusion": after.chosen.get("diffusion", np.nan),
    }


def run_split(
    dataset: Dataset,
    base: models.BaseModel,
    score: str,
    split: int,
    errata: Errata,
    alpha: float = ALPHA,
) -> pd.DataFrame:
    """Every number of one score on one re-split, with some bugs.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
        Its probabilities, and its parts of the rows.
    score : str
    split : int
        The seed by which calibration and test rows are divided anew.
    errata : Errata
    alpha : float

    Returns
    -------
    DataFrame
        Columns arm ("base" for q̂, "cf" for the paper's rule), metric, c, classwise,
        quantity, value, and those of CHOSEN: the δ of DAPS; the epoch of CFGNN, and its
        sets on the rows that chose it. The base predictor knows no c and no kind of λ;
        its numbers are there for each.
    """
    rows: list[dict[str, Any]] = []
    for n_before, asked in rounds(score, errata).items():
        resplits = RESPLITS_PER_C * n_before + split + 1
        scored, quantile = score_split_as_released(
            dataset,
            base.probs,
            base.parts,
            score,
            split,
            errata,
            alpha,
            resplits=resplits,
        )
        chosen = {name: scored.chosen.get(name, np.nan) for name in CHOSEN}
        for row in _measured_rows(dataset, scored, quantile, asked, alpha):
            rows.append(row | chosen)
    return pd.DataFrame(rows)


def _measured_rows(
    dataset: Dataset,
    scored: ScoredSplit,
    quantile: float,
    asked: Mapping[str, Sequence[float]],
    alpha: float,
) -> list[dict[str, Any]]:
    """What q̂ and the paper's rule give on the test rows, for each metric and c."""
    calibration = experiments.calibrate(dataset, scored, alpha)
    calibration.base = quantile
    groups = as_groups(dataset.groups[scored.test], len(scored.test))
    test = SortedCells(scored.scores[scored.test], dataset.y[scored.test], groups)
    rows = []
    for metric, closeness in asked.items():
        at_base = experiments.measured(test, metric, quantile)
        for is_classwise in (False, True):
            search = calibration.search(metric, classwise=is_classwise)
            for c in closeness:
                by_rule = experiments.measured(test, metric, search.find(c).threshold)
                setting = {"metric": metric, "c": c, "classwise": is_classwise}
                for arm, found in ((Arm.BASE, at_base), (Arm.CF, by_rule)):
                    for quantity in QUANTITIES:
                        number = {"quantity": quantity, "value": found[quantity]}
                        rows.append({"arm": str(arm)} | setting | number)
    return rows


def run(
    dataset: Dataset,
    base: models.BaseModel,
    pairs: Iterable[tuple[str, str]],
    splits: int = 10,
    *,
    alpha: float = ALPHA,
    progress: bool = True,
) -> pd.DataFrame:
    """The rows of some bugs and scores, without the bugs too, on every re-split.

    What is computed is kept in artifacts/ at once, so that a run that was stopped goes on
    where it was.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    pairs : (name, score)
        Names as `switches` knows them; `bugs_and_scores` gives all pairs.
    splits : int
    alpha : float
    progress : bool
        Whether to show a bar.

    Returns
    -------
    DataFrame
        erratum ("none" or another `baseline` among them), score, split, and the columns
        of `run_split`.
    """
    own_pairs = [pair for pair in pairs if pair[0] != "none"]
    without = [(baseline(name), score) for name, score in own_pairs]
    every_pair = list(dict.fromkeys([*without, *own_pairs]))
    return _run_pairs(dataset, base, every_pair, splits, alpha, progress)


def _run_pairs(
    dataset: Dataset,
    base: models.BaseModel,
    pairs: Sequence[tuple[str, str]],
    splits: int,
    alpha: float,
    progress: bool,
) -> pd.DataFrame:
    """The rows of these pairs (name, score) alone, on every re-split."""
    content = experiments.rows_key(
        dataset, base.parts, base.model, base.parameters, base.seed, {"alpha": alpha}
    )
    units = list(product(pairs, range(splits)))
    parts = []
    for (name, score), split in tqdm(
        units, "bugs and re-splits", disable=not progress, leave=False
    ):
        errata = switches(name)
        key = {"content": content, "errata": errata.names, "score": score, "split": split}
        if score == "cfgnn":
            key["options"] = cfgnn_options(dataset, errata)
        compute = partial(run_split, dataset, base, score, split, errata, alpha)
        file = f"runs/errata-{dataset.name}-{score}"
        rows = cached_frame(file, key, compute, code=__name__)
        parts.append(rows.assign(erratum=name, score=score, split=split))
    return pd.concat(parts, ignore_index=True)


def bugs_and_scores() -> list[tuple[str, str]]:
    """Each switch with each score that it can touch on Credit, and DAPS's together.

    Returns
    -------
    list of (name, score)

    Examples
    --------
    >>> bugs_and_scores()[:3]
    [('quantile', 'tps'), ('quantile', 'aps'), ('quantile', 'daps')]
    """
    return [(name, score) for name, scores in TOUCHED.items() for score in scores]


def run_gcp(
    dataset: Dataset, base: models.BaseModel, splits: int = 10, alpha: float = ALPHA
) -> pd.DataFrame:
    """BatchGCP at its optimum and stopped early, on every re-split.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    splits : int
    alpha : float

    Returns
    -------
    DataFrame
        erratum ("none" or "early_gcp"), and the columns of `batch_gcp.outcome_rows`.
    """
    rows: list[dict[str, Any]] = []
    for split in range(splits):
        scored, _ = score_split_as_released(
            dataset, base.probs, base.parts, batch_gcp.SCORE, split, Errata(), alpha
        )
        y = dataset.y[scored.test]
        groups = dataset.groups[scored.test]
        for name in ("none", "early_gcp"):
            gcp = fit_gcp(dataset, scored, switches(name), alpha)
            sets = gcp.sets(scored.scores[scored.test], groups)
            counts = CellCounts.from_sets(sets, y, as_groups(groups, len(y)))
            outcome = batch_gcp.ArmOutcome(
                Arm.BATCH_GCP, batch_gcp.COMPARED, np.nan, counts
            )
            for row in batch_gcp.outcome_rows(outcome, split):
                rows.append({"erratum": name} | row)
    return pd.DataFrame(rows)


def run_training_splits(
    dataset: Dataset, training_splits: int = 10, splits: int = 10, progress: bool = True
) -> pd.DataFrame:
    """DAPS with three ways of tuning, for models of several training splits.

    Each training split has a model of its own. The numbers of a training split that are
    in results/errata_training.csv for the same records, model and settings are read; the
    others are computed and added to the file at once.

    Parameters
    ----------
    dataset : Dataset
    training_splits : int
    splits : int
        Re-splits, over which the numbers are means.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    DataFrame
        training_split, tuning (of TUNINGS), the columns of NUMBER, value, splits, key.
        The proxy is not among the metrics, and the base predictor has one row for both
        kinds of λ.
    """
    path = paths.RESULTS / TRAINING_FILE
    parameters = presets.preset(dataset, MODEL)
    settings = {"tunings": TUNINGS, "splits": splits}
    found = []
    seeds = range(training_splits)
    for seed in tqdm(seeds, "training splits", disable=not progress, leave=False):
        parts = split_rows(dataset, seed)
        key = experiments.rows_key(dataset, parts, MODEL, parameters, seed, settings)
        rows = own_rows(path, TRAINING_COLUMNS, key)
        if rows.empty:
            base = models.base_model(dataset, parts, MODEL, seed=seed, progress=False)
            rows = _training_rows(dataset, base, splits, progress).assign(key=key)
            add_rows(path, rows[TRAINING_COLUMNS], ["training_split"])
        found.append(rows)
    return pd.concat(found, ignore_index=True)


def _training_rows(
    dataset: Dataset, base: models.BaseModel, splits: int, progress: bool
) -> pd.DataFrame:
    """The means over re-splits of one training split."""
    pairs = [(name, "daps") for name in TUNINGS]
    rows = run(dataset, base, pairs, splits, progress=progress)
    is_repeated = (rows["arm"] == Arm.BASE) & rows["classwise"]
    own = rows[(rows["metric"] != PROXY) & ~is_repeated]
    own = own.rename(columns={"erratum": "tuning"})
    means = own.groupby(["tuning", *NUMBER], sort=False)["value"].mean().reset_index()
    means.insert(0, "training_split", base.seed)
    return means.assign(splits=splits).round(6)


def run_cfgnn(
    dataset: Dataset,
    base: models.BaseModel,
    names: Sequence[str] = CFGNN_SWITCHES,
    splits: int = 10,
    progress: bool = True,
) -> pd.DataFrame:
    """CFGNN with each switch alone, and with what they are compared with.

    The numbers of a switch that are in results/errata_cfgnn.csv for the same records,
    model and settings are read; the others are computed, which trains a network per
    re-split, and added to the file at once.

    Parameters
    ----------
    dataset : Dataset
        With its graph.
    base : BaseModel
    names : names of switches
    splits : int
        Re-splits, over which the numbers are means.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    DataFrame
        The columns of CFGNN_COLUMNS: value and sd are mean and standard deviation over
        re-splits; `unchanged` is the share of re-splits in which CF leaves the base
        predictor's number as it is; `changed_scores` is the share of scores, over all
        re-splits, that differ from the baseline's (NaN for a baseline).
    """
    path = paths.RESULTS / CFGNN_FILE
    found = []
    for name in dict.fromkeys([*map(baseline, names), *names]):
        errata = switches(name)
        settings = {"errata": errata.names, "splits": splits}
        settings["options"] = cfgnn_options(dataset, errata)
        key = experiments.rows_key(
            dataset, base.parts, base.model, base.parameters, base.seed, settings
        )
        rows = own_rows(path, CFGNN_COLUMNS, key)
        if rows.empty:
            rows = _cfgnn_rows(dataset, base, name, splits, progress)
            rows = rows.assign(key=key)[CFGNN_COLUMNS]
            add_rows(path, rows, ["erratum"])
        found.append(rows)
    return pd.concat(found, ignore_index=True)


def _cfgnn_rows(
    dataset: Dataset, base: models.BaseModel, name: str, splits: int, progress: bool
) -> pd.DataFrame:
    """The means over re-splits of CFGNN with one switch, or of a baseline."""
    rows = _run_pairs(dataset, base, [(name, "cfgnn")], splits, ALPHA, progress)
    by_number = rows.groupby(["erratum", *NUMBER], sort=False)
    means = by_number.agg(
        value=("value", "mean"),
        sd=("value", "std"),
        epoch=("epoch", "mean"),
        held_out_size=("held_out_size", "mean"),
    ).reset_index()
    places = ["metric", "c", "classwise", "quantity"]
    by_arm = rows.pivot(index=["split", *places], columns="arm", values="value")
    is_same = by_arm[str(Arm.CF)] == by_arm[str(Arm.BASE)]
    shares = is_same.groupby(places).mean().rename("unchanged").reset_index()
    means = means.merge(shares, on=places, validate="many_to_one")
    share = np.nan
    if not is_baseline(name):
        found = [changes(dataset, base, "cfgnn", name, at) for at in range(splits)]
        share = np.mean([one["changed"] / one["scores"] for one in found])
    return means.assign(changed_scores=share, splits=splits).round(6)
