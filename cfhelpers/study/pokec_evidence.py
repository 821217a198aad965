"""Evidence about which records the authors' runs on "Pokec-z" were made with.

A coverage is a number of covered points over the number of test points, so that many
coverages together give the size of the test split away. A set cannot be larger than the
number of classes. And where every set is full, the gap in predictive parity is a property
of the labels alone.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

DIGITS = 4  # to which the authors' coverages are stored
LARGEST = 10_000  # from here on every number of four digits is a fraction k / n
FULL = 1e-3  # a mean set size this close to the number of classes: every set is full


def fits(coverages: ArrayLike, n: int, digits: int = DIGITS) -> bool:
    """Whether every coverage is k / n for a whole k, as far as its digits tell.

    A fraction that lies half-way between two rounded numbers may be either of them.

    Parameters
    ----------
    coverages : (m,)
        Rounded to `digits`.
    n : int
        A number of test points.
    digits : int

    Returns
    -------
    bool

    Examples
    --------
    >>> fits([0.3333, 0.6667], 3)
    True
    >>> fits([0.3333, 0.25], 3)
    False
    """
    rounded = np.asarray(coverages, float)
    nearest = np.round(rounded * n) / n
    half_a_digit = 0.5 * 10.0**-digits
    return bool(np.all(np.abs(nearest - rounded) <= half_a_digit + 1e-12))


def fitting_sizes(
    coverages: ArrayLike, up_to: int = LARGEST, digits: int = DIGITS
) -> list[int]:
    """The numbers of test points that fit every coverage, smallest first.

    Parameters
    ----------
    coverages : (m,)
        Rounded to `digits`.
    up_to : int
        The largest size that is tried.
    digits : int

    Returns
    -------
    list of int

    Examples
    --------
    >>> fitting_sizes([0.3333, 0.25], up_to=24)
    [12, 24]
    """
    return [n for n in range(1, up_to + 1) if fits(coverages, n, digits)]


def split_sizes(coverages: pd.DataFrame, up_to: int = LARGEST) -> pd.DataFrame:
    """What the coverages of each run say about its number of test points.

    Parameters
    ----------
    coverages : DataFrame
        run and coverage, as `authors.pokec_coverages` gives them.
    up_to : int
        The largest size that is tried.

    Returns
    -------
    DataFrame
        A row per run: how many coverages there are, the smallest size that fits all of
        them, and the next one (missing where there is none).

    Examples
    --------
    >>> some = pd.DataFrame({"run": "a", "coverage": [0.3333, 0.25]})
    >>> split_sizes(some, up_to=30).loc["a"].tolist()
    [2, 12, 24]
    """
    rows = {}
    for run, values in coverages.groupby("run")["coverage"]:
        sizes = fitting_sizes(values, up_to)
        padded = [*sizes, pd.NA, pd.NA]
        rows[run] = {
            "coverages": len(values),
            "smallest n that fits": padded[0],
            "next n that fits": padded[1],
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")
    return table.astype("Int64")


def largest_sets(runs: pd.DataFrame) -> pd.Series:
    """The largest mean set size of each dataset and attribute.

    Parameters
    ----------
    runs : DataFrame
        dataset, attribute and efficiency, as `authors.runs` gives them.

    Returns
    -------
    Series

    Examples
    --------
    >>> some = {"dataset": "a", "attribute": "b", "efficiency": [2.5, 4.0]}
    >>> largest_sets(pd.DataFrame(some)).tolist()
    [4.0]
    """
    return runs.groupby(["dataset", "attribute"])["efficiency"].max()


def full_set_gaps(runs: pd.DataFrame, n_classes: int) -> pd.DataFrame:
    """The stored predictive-parity gaps of settings in which every set was full.

    Parameters
    ----------
    runs : DataFrame
        As `authors.runs` gives them.
    n_classes : int
        The number of labels in a full set.

    Returns
    -------
    DataFrame
        dataset, attribute, classwise, score, c, efficiency, disparity, disparity_sd.

    Examples
    --------
    >>> from cfhelpers.study import authors
    >>> gaps = full_set_gaps(authors.runs(), n_classes=4)
    >>> sorted(set(gaps["disparity"]))
    [0.0507, 0.0861]
    """
    is_proxy = runs["metric"] == "predictive_parity_proxy"
    is_full = (runs["efficiency"] - n_classes).abs() < FULL
    columns = ["dataset", "attribute", "classwise", "score", "c"]
    columns += ["efficiency", "disparity", "disparity_sd"]
    return runs.loc[is_proxy & is_full, columns].reset_index(drop=True)
