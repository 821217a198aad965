"""CFGNN with many settings: what the base predictor and the CF algorithm then give.

The authors' setting was never published. So settings are drawn from Tab D3 beforehand,
and results/cfgnn_settings.csv has a row per setting: the whole distribution of what could
have been printed.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from cfhelpers import graph_scores, paths
from cfhelpers.cells import SortedCells
from cfhelpers.datasets import Dataset, resplit
from cfhelpers.groups import as_groups
from cfhelpers.scores import aps
from cfhelpers.study import experiments, models, spaces
from cfhelpers.study.scoring import ScoredSplit
from cfhelpers.study.stored_rows import add_rows, own_rows
from cfhelpers.study.workers import results

FILE = "cfgnn_settings.csv"
METRIC = "disparate_impact"
C = 0.8
NUMBERS = [
    "base_efficiency",
    "base_ratio",
    "cf_efficiency",
    "cf_ratio",
    "classwise_efficiency",
    "classwise_ratio",
    "unchanged",
]
COLUMNS = [
    "dataset",
    "setting",
    "variant",
    "kind",
    "layers",
    "hidden_channels",
    "lr",
    "dropout",
    "temperature",
    "heads",
    "aggr",
    "seed",
    "epochs",
    "reached",
    "epoch",
    "held_out_size",
    *NUMBERS,
    "splits",
    "key",
]
IDENTITY = ["dataset", "setting", "variant", "seed", "epochs"]
DEFAULTS = inspect.signature(graph_scores.cfgnn).parameters


def path() -> Path:
    """The file of all rows.

    Returns
    -------
    Path
    """
    return paths.RESULTS / FILE


def run(
    dataset: Dataset,
    base: models.BaseModel,
    n: int = 20,
    *,
    settings_seed: int = 0,
    seed: int = 0,
    splits: int = 10,
    only: Sequence[int] | None = None,
    jobs: int = 1,
    progress: bool = True,
    **options: Any,
) -> pd.DataFrame:
    """CFGNN as published with n settings of Tab D3, and what comes of each.

    The network learns from the validation rows. They neither calibrate nor test, so that
    one network serves all re-splits. Rows that are in results/cfgnn_settings.csv are
    read; the others are computed and added at once.

    Parameters
    ----------
    dataset : Dataset
        With its graph.
    base : BaseModel
    n : int
        How many settings.
    settings_seed : int
        Draws them.
    seed : int
        Of the network's weights.
    splits : int
        Re-splits, over which the numbers are means.
    only : integers, optional
        Which of the n settings; None: all. Some take a second, some a quarter of an hour.
    jobs : int
        More than 1: settings are run beside each other, by Ray.
    progress : bool
        Whether a bar shows how far it is.
    **options
        Of `graph_scores.cfgnn`, as epochs and variant.

    Returns
    -------
    DataFrame
        The columns of COLUMNS.
    """
    settings = spaces.draw(spaces.space("cfgnn", dataset), n, settings_seed)
    places = list(range(n) if only is None else only)
    if not places or min(places) < 0 or max(places) >= n:
        raise ValueError(f"only: found {places}; wanted some of 0 to {n - 1}")
    units = []
    keys = []
    for place in places:
        setting = settings[place]
        asked = {"setting": setting, "seed": seed, "splits": splits, **options}
        keys.append(
            experiments.rows_key(
                dataset, base.parts, base.model, base.parameters, base.seed, asked
            )
        )
        units.append({"setting": setting})
    missing = [i for i, key in enumerate(keys) if own_rows(path(), COLUMNS, key).empty]
    pending = [units[i] for i in missing]
    shared = {"dataset": dataset, "base": base, "seed": seed}
    shared |= {"splits": splits, "options": options}
    found = results(measure, pending, shared, jobs)
    for i, row in tqdm(
        found, "settings of CFGNN", len(pending), disable=not progress, leave=False
    ):
        place = missing[i]
        row |= {"dataset": dataset.name, "setting": places[place], "key": keys[place]}
        add_rows(path(), pd.DataFrame([row], columns=COLUMNS), IDENTITY)
    return pd.concat([own_rows(path(), COLUMNS, key) for key in keys], ignore_index=True)


def measure(
    dataset: Dataset,
    base: models.BaseModel,
    setting: Mapping[str, Any],
    seed: int,
    splits: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """What one setting gives: means over re-splits of efficiency and ratio.

    Parameters
    ----------
    dataset : Dataset
    base : BaseModel
    setting : mapping
        Of the second network.
    seed : int
    splits : int
    options : mapping
        Of `graph_scores.cfgnn`.

    Returns
    -------
    dict
        The setting, how the training went, and NUMBERS; "unchanged" is the share of the
        re-splits in which the base predictor already meets four fifths on the calibration
        rows, so that the CF algorithm leaves it as it is.
    """
    learnt_from = np.flatnonzero(base.parts == "valid")
    adjusted, how = graph_scores.cfgnn(
        base.probs,
        dataset.y,
        spaces.edges_of("cfgnn", dataset),
        learnt_from,
        parameters=setting,
        seed=seed,
        progress=False,
        **options,
    )
    by_split = []
    for split in range(splits):
        by_split.append(_numbers(dataset, base, adjusted, split))
    means = pd.DataFrame(by_split).mean().round(6)
    row = {name: DEFAULTS[name].default for name in ("variant", "epochs")}
    row |= dict(options) | dict(setting)
    numbers = {name: float(means[name]) for name in NUMBERS}
    return row | how | {"seed": seed, "splits": splits} | numbers


def _numbers(
    dataset: Dataset, base: models.BaseModel, adjusted: np.ndarray, split: int
) -> dict[str, float]:
    """NUMBERS on one re-split."""
    parts = resplit(dataset, base.parts, split)
    u = np.random.default_rng([split, graph_scores.STREAM]).random(len(dataset))
    scored = ScoredSplit(
        score="cfgnn",
        scores=aps(adjusted, u),
        calibration=np.flatnonzero(parts == "calibration"),
        test=np.flatnonzero(parts == "test"),
        chosen={},
    )
    calibration = experiments.calibrate(dataset, scored, 0.1)
    groups = as_groups(dataset.groups[scored.test], len(scored.test))
    test = SortedCells(scored.scores[scored.test], dataset.y[scored.test], groups)
    at_base = experiments.measured(test, METRIC, calibration.base)
    numbers = {
        "base_efficiency": at_base["efficiency"],
        "base_ratio": at_base["disparity"],
    }
    for name, is_classwise in (("cf", False), ("classwise", True)):
        found = calibration.search(METRIC, classwise=is_classwise).find(C)
        by_rule = experiments.measured(test, METRIC, found.threshold)
        numbers[f"{name}_efficiency"] = by_rule["efficiency"]
        numbers[f"{name}_ratio"] = by_rule["disparity"]
        if not is_classwise:
            is_unchanged = np.all(np.asarray(found.threshold) <= calibration.base)
            numbers["unchanged"] = float(is_unchanged)
    return numbers


def load(dataset: str = "credit") -> pd.DataFrame:
    """The stored rows of a dataset.

    Parameters
    ----------
    dataset : str

    Returns
    -------
    DataFrame
        No rows where nothing was run.
    """
    if not path().exists():
        return pd.DataFrame(columns=COLUMNS)
    stored = pd.read_csv(path(), dtype={"key": str})
    return stored[stored["dataset"] == dataset].reset_index(drop=True)


def best(dataset: Dataset, rows: pd.DataFrame, settings_seed: int = 0) -> dict[str, Any]:
    """The setting with the smallest sets on the rows that chose its epoch.

    Parameters
    ----------
    dataset : Dataset
        With its graph.
    rows : DataFrame
        Of `run` on this dataset.
    settings_seed : int
        As in `run`.

    Returns
    -------
    dict
        Parameters of `graph_scores.cfgnn`.
    """
    place = int(rows["setting"].to_numpy()[rows["held_out_size"].to_numpy().argmin()])
    return spaces.draw(spaces.space("cfgnn", dataset), place + 1, settings_seed)[place]
