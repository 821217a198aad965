"""People per group and label, kept as small files that stay when the records are gone.

results/pokec_n_counts.csv has the test rows of Pokec-n, divided by two rules.
"""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from cfhelpers import fairness, paths
from cfhelpers.datasets import Dataset, load_dataset, split

POKEC_LABELLED = 8_797
POKEC_ATTRIBUTES = ("region", "gender", "region+gender")
SEEDS = range(5)
# How rows are divided into 30, 20, 25 and 25% of every group and label. "rounded cuts" is
# the release's way: scikit-learn cuts off 30%, then 2/7 of the rest, then half of what is
# left. It rounds each time, so that the counts are the same for every seed. "ours" is
# datasets.split, which rounds every cell up or down by chance.
ROUNDED_CUTS = "rounded cuts"
OURS = "ours"
RULES = (ROUNDED_CUTS, OURS)


def rounded_cuts_test(dataset: Dataset, seed: int) -> np.ndarray:
    """The test rows by three of scikit-learn's stratified cuts.

    Parameters
    ----------
    dataset : Dataset
    seed : int

    Returns
    -------
    integers
        Row numbers of labelled rows, a quarter of them.

    Examples
    --------
    >>> len(rounded_cuts_test(load_dataset("credit"), seed=0))
    7500
    """
    cell = (
        pd.Series(dataset.groups).astype(str) + " / " + pd.Series(dataset.y).astype(str)
    )
    rows = np.flatnonzero(dataset.y >= 0)
    for share in (0.3, 0.2 / 0.7, 0.5):
        _, rows = train_test_split(
            rows, train_size=share, stratify=cell[rows], random_state=seed
        )
    return rows


def count_test_rows(dataset: Dataset, rule: str, seed: int) -> pd.DataFrame:
    """Test rows per group and label.

    Parameters
    ----------
    dataset : Dataset
    rule : str
        One of RULES.
    seed : int

    Returns
    -------
    DataFrame
        group, label, n.

    Examples
    --------
    >>> int(count_test_rows(load_dataset("credit"), "rounded cuts", seed=0)["n"].sum())
    7500
    """
    if rule not in RULES:
        raise ValueError(f"rule: found {rule!r}; wanted one of {', '.join(RULES)}")
    if rule == ROUNDED_CUTS:
        rows = rounded_cuts_test(dataset, seed)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of small cells, which the counts show
            rows = np.flatnonzero(split(dataset, seed) == "test")
    table = pd.DataFrame({"group": dataset.groups[rows], "label": dataset.y[rows]})
    return table.groupby(["group", "label"]).size().rename("n").reset_index()


def full_set_gap(counts: pd.DataFrame) -> float:
    """The predictive-parity gap of a predictor that always answers with every label.

    Every set holds every label, so what is compared is the share of the label in each
    group: the gap depends on the counts alone.

    Parameters
    ----------
    counts : DataFrame
        group, label, n.

    Returns
    -------
    float

    Examples
    --------
    >>> cells = {"group": list("aabb"), "label": [0, 1, 0, 1], "n": [8, 2, 5, 5]}
    >>> round(full_set_gap(pd.DataFrame(cells)), 3)
    0.3
    """
    y = np.repeat(counts["label"].to_numpy(), counts["n"].to_numpy())
    groups = np.repeat(counts["group"].to_numpy(), counts["n"].to_numpy())
    sets = np.ones((len(y), y.max() + 1), dtype=bool)
    return fairness.disparity(sets, y, groups, "predictive_parity")


def write_pokec_counts() -> Path:
    """Count Pokec-n's real test rows by both rules, and keep the counts in results/.

    Returns
    -------
    Path
        Of results/pokec_n_counts.csv: attribute, rule, seed, group, label, n.
    """
    frames = []
    for attribute in POKEC_ATTRIBUTES:
        dataset = load_dataset("pokec_n", "local", attribute=attribute.split("+"))
        n_labelled = int((dataset.y >= 0).sum())
        if n_labelled != POKEC_LABELLED:
            raise ValueError(
                f"Pokec-n: found {n_labelled:,} labelled users; "
                f"wanted all {POKEC_LABELLED:,}"
            )
        for rule in RULES:
            for seed in SEEDS:
                table = count_test_rows(dataset, rule, seed)
                table.insert(0, "attribute", attribute)
                table.insert(1, "rule", rule)
                table.insert(2, "seed", seed)
                frames.append(table)
    path = pokec_counts_path()
    with paths.atomic_write(path) as partial:
        pd.concat(frames).to_csv(partial, index=False, lineterminator="\n")
    return path


def pokec_counts_path() -> Path:
    """Where the counts of Pokec-n's test rows are."""
    return paths.RESULTS / "pokec_n_counts.csv"


def pokec_counts() -> pd.DataFrame:
    """The counts of Pokec-n's real test rows, as they were last written.

    Returns
    -------
    DataFrame
        attribute, rule, seed, group, label, n.

    Examples
    --------
    >>> counts = pokec_counts().query("attribute == 'gender' and rule == 'rounded cuts'")
    >>> [round(full_set_gap(table), 4) for _, table in counts.groupby("seed")]
    [0.0507, 0.0507, 0.0507, 0.0507, 0.0507]
    """
    return pd.read_csv(pokec_counts_path())
