"""The true coverage of a predictor on simulated ACS and Pokec, where it is known."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers.datasets import acs
from cfhelpers.datasets._dataset import Dataset, Source
from cfhelpers.datasets.populations import Truth
from cfhelpers.datasets.simulated import RACE_SHARES, hidden_labels, people


def acs_truth(
    dataset: Dataset,
    score: Callable[[pd.DataFrame], ArrayLike],
    n: int = 1_000_000,
    seed: int = 1,
) -> Truth:
    """True coverage in the population that a simulated ACS was drawn from.

    Parameters
    ----------
    dataset : Dataset
        Simulated ACSIncome or ACSEducation.
    score : callable
        Features to scores (n, K).
    n : int
        Fresh persons that stand for the population. Where groups are by race, every race
        gets as many of them.
    seed : int

    Returns
    -------
    Truth
    """
    shares = RACE_SHARES
    if "race" in dataset.attributes:
        shares = np.full(len(RACE_SHARES), 1 / len(RACE_SHARES))
    raw = people(n, np.random.default_rng(seed), shares)
    brackets: str | pd.DataFrame = "state"
    if dataset.cuts is None:
        states = dataset.X["ST"].unique()
    else:
        states = dataset.cuts.index.to_numpy()
        brackets = dataset.cuts
    raw = raw[raw["ST"].isin(states)]
    columns = dict(zip(acs.FEATURES[dataset.name], dataset.X.columns, strict=True))
    fresh = acs.prepare(
        dataset.name, raw, columns, Source.SIMULATED, dataset.attributes, brackets
    )
    return _truth_of(score(fresh.X), fresh.y, fresh.groups, dataset.group_names)


def pokec_truth(dataset: Dataset, scores: ArrayLike, seed: int = 0) -> Truth:
    """Coverage over all users of a simulated Pokec, the unlabelled among them.

    Parameters
    ----------
    dataset : Dataset
        Simulated Pokec-n or Pokec-z.
    scores : (n, K)
        What a model gave the users.
    seed : int
        The seed of the dataset.

    Returns
    -------
    Truth
    """
    y = hidden_labels(dataset.name, len(dataset), seed)
    return _truth_of(scores, y, dataset.groups, dataset.group_names)


def _truth_of(
    scores: ArrayLike, y: np.ndarray, groups: np.ndarray, names: tuple[str, ...]
) -> Truth:
    """The truth of scores, with groups in the order of their names."""
    codes = pd.Index(names).get_indexer(pd.Index(groups))
    return Truth.of(scores, y, codes, names)
