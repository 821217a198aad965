"""The yardstick, and the word that it gives to a number of the paper's.

The rule was written down before the runs. The paper's number is one mean over ten
re-splits of one trained model. So m training splits, each with a model and a mean of its
own, say where such a mean lies: 95% of the time within mean ± t · sd · √(1 + 1/m).
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from cfhelpers._checks import as_float_column
from cfhelpers.control import Guarantee
from cfhelpers.study.names import Arm, DataKind

CONFIDENCE = 0.95
LEAST_SPLITS = 3  # with fewer training splits there is no interval: t(.975, 1) is 12.7
EFFICIENCY_TOLERANCE = 0.05  # the older rule, beside: relative to the paper's number
DISPARITY_TOLERANCE = 0.05  # absolute, of a difference or a ratio
TIE = 0.005  # two numbers that are no farther apart count as equal
ROUNDING = 1e-9  # a number at the very edge is within
STATUSES = (
    "match",
    "cannot tell",
    "close",
    "differs",
    "other records",
    "untraceable",
    "simulated",
    "not run",
)
JUDGED = STATUSES[:4]
SETTING = ["dataset", "attribute", "classwise", "score", "arm", "metric", "c", "quantity"]
MADE_BY = ["source", "data", "records", "profile", "model"]
SAME_RUN = ["data", "model"]  # an interval belongs to the records and the kind of model
QUANTITIES = ("efficiency", "disparity")
PRICE = "price"  # a third quantity: efficiency of CF − efficiency of the base predictor
TRUE_LABEL = "true label"  # a fourth: BatchGCP's disparity on the true label
# Tab 4 has one number of the base predictor, an average over c = .05, .10, .15, .20.
AVERAGE = 0.125


def prediction_interval(means: ArrayLike) -> tuple[float, float]:
    """Where one more such mean lies, with 95% confidence.

    Parameters
    ----------
    means : numbers (m,)
        A mean over re-splits for each training split.

    Returns
    -------
    low, high : float
        mean ± t(.975, m − 1) · sd · √(1 + 1/m); NaN where m < 3.

    Examples
    --------
    >>> low, high = prediction_interval([2.0, 2.1, 2.2])
    >>> round(low, 3), round(high, 3)
    (1.603, 2.597)
    """
    values = as_float_column(means, "means").astype(float)
    m = len(values)
    if m < LEAST_SPLITS:
        return np.nan, np.nan
    half = _half_width(values.std(ddof=1), m)
    return float(values.mean() - half), float(values.mean() + half)


def _half_width(sd: Any, m: Any) -> Any:
    """t · sd · √(1 + 1/m), for numbers or for columns of them."""
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, np.maximum(m - 1, 1))
    return quantile * sd * np.sqrt(1 + 1 / m)


def measured_values(rows: pd.DataFrame) -> pd.DataFrame:
    """What rows measure by the paper's rule, a number per line.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments`; may be empty.

    Returns
    -------
    DataFrame
        SETTING, MADE_BY, training_split, split and value. Of the base predictor there is
        a number for every c, the same, and one for the mean over c, as in Tab 4.
    """
    columns = [*SETTING, *MADE_BY, "training_split", "split", "value"]
    parts = [pd.DataFrame(columns=columns)]
    if len(rows):
        rows = rows[rows["guarantee"] == Guarantee.NONE]
        if "training_split" not in rows:
            rows = rows.assign(training_split=0)
        rows = rows.assign(training_split=rows["training_split"].fillna(0).astype(int))
        for quantity in QUANTITIES:
            own = rows.assign(quantity=quantity)
            parts.append(own.assign(arm=str(Arm.CF), value=rows[quantity]))
            base = own.assign(arm=str(Arm.BASE), value=rows[f"base_{quantity}"])
            parts.append(base)
            parts.append(_average_over_c(base, columns))
        price = rows["efficiency"] - rows["base_efficiency"]
        parts.append(rows.assign(arm=str(Arm.CF), quantity=PRICE, value=price))
    long = pd.concat([part[columns] for part in parts], ignore_index=True)
    c = long["c"].astype(float).round(6)
    return long.assign(c=c, value=long["value"].astype(float))


def _average_over_c(base: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """One number of the base predictor for the proxy, its mean over the values of c."""
    proxy = base[base["metric"] == "predictive_parity_proxy"]
    same_split = [name for name in columns if name not in ("c", "value")]
    return proxy.groupby(same_split, as_index=False)[["c", "value"]].mean()


def our_numbers(values: pd.DataFrame) -> pd.DataFrame:
    """Mean, deviation and number of re-splits of every setting, of training split 0.

    The paper's records go first, then more splits, then the quick profile.

    Parameters
    ----------
    values : DataFrame
        Of `measured_values`.

    Returns
    -------
    DataFrame
        SETTING, MADE_BY, ours, sd and splits.
    """
    unknown = sorted(map(str, set(values["data"]) - set(DataKind)))
    if unknown:
        raise ValueError(
            f"rows: found the data {unknown[0]!r}; wanted one of {', '.join(DataKind)}"
        )
    first = values[values["training_split"] == 0]
    by_run = first.groupby([*SETTING, *MADE_BY])["value"]
    found = by_run.agg(ours="mean", sd="std", splits="count").reset_index()
    preferred = list(DataKind)
    order = {
        "kind": found["data"].map(preferred.index),
        "fewer": -found["splits"],
        "slower": found["profile"] != "quick",
    }
    found = found.assign(**order).sort_values([*order, *MADE_BY])
    return found.drop_duplicates(SETTING).drop(columns=list(order))


def yardsticks(values: pd.DataFrame) -> pd.DataFrame:
    """The prediction interval of every setting, over training splits.

    Parameters
    ----------
    values : DataFrame
        Of `measured_values`, of the rows of every training split.

    Returns
    -------
    DataFrame
        SETTING and SAME_RUN, `training_splits`, `low` and `high`, and the deviations of a
        number over training splits (`sd_training`) and over re-splits of one model
        (`sd_resplits`).
    """
    by_model = values.groupby([*SETTING, *SAME_RUN, "training_split"])["value"]
    means = by_model.agg(["mean", "std"]).reset_index()
    by_setting = means.groupby([*SETTING, *SAME_RUN])
    found = by_setting["mean"].agg(
        mean="mean", sd_training="std", training_splits="count"
    )
    found["sd_resplits"] = by_setting["std"].mean()
    half = _half_width(found["sd_training"], found["training_splits"])
    half = half.where(found["training_splits"] >= LEAST_SPLITS)
    found = found.assign(low=found["mean"] - half, high=found["mean"] + half)
    measured = ["training_splits", "low", "high", "sd_training", "sd_resplits"]
    return found[measured].reset_index()


def closeness(frame: pd.DataFrame) -> pd.Series:
    """c as a number; an average over the values of c is theirs.

    Parameters
    ----------
    frame : DataFrame
        With the column c.

    Returns
    -------
    Series of float
    """
    return pd.to_numeric(frame["c"].replace("avg", AVERAGE)).astype(float).round(6)


def judge(card: pd.DataFrame) -> pd.DataFrame:
    """Give every number its word.

    Parameters
    ----------
    card : DataFrame
        table and SETTING; paper, ours, low, high, training_splits and data. The numbers
        of the base predictor must be among them, since a conclusion is about both.

    Returns
    -------
    DataFrame
        With new columns: `effect`, the paper's own |CF − base|; `inside`, whether the
        paper's number lies within the interval; `within_tolerance`, by the older rule;
        `status`, the first word that applies:

        - not run: there are no rows, or only those of a former model;
        - simulated: never compared;
        - untraceable: RAPS, which the released code cannot run (erratum 7);
        - other records: real, of another year or with fewer features; not judged;
        - match: inside an interval that is no wider than the paper's effect;
        - cannot tell: inside a wider one, or there is no interval;
        - close: outside, with the same conclusions;
        - differs: outside.
    """
    apart = compared(card, "paper")
    effect = apart.abs()
    has_interval = card["low"].notna()
    is_below = card["paper"] < card["low"] - ROUNDING
    is_above = card["paper"] > card["high"] + ROUNDING
    inside = (has_interval & ~is_below & ~is_above).astype("boolean").mask(~has_interval)
    is_narrow = card["high"] - card["low"] <= effect + ROUNDING
    is_measured = card["ours"].notna()
    tolerance = older_tolerance(card)
    difference = card["ours"] - card["paper"]
    same = (conclusions(card, "paper") == conclusions(card, "ours")).all(axis=1)
    words = {
        "not run": card["data"].isna() | (card["data"] == DataKind.FORMER),
        "simulated": card["data"] == DataKind.SIMULATED,
        "untraceable": card["score"] == "raps",
        "other records": card["data"] == DataKind.OTHER,
        "cannot tell": is_measured
        & (~has_interval | (inside.fillna(False) & ~is_narrow)),
        "match": is_measured & inside.fillna(False),
        "close": is_measured & same,
    }
    conditions = [condition.astype(bool) for condition in words.values()]
    is_within = (difference.abs() <= tolerance + ROUNDING).astype("boolean")
    return card.assign(
        effect=effect,
        inside=inside,
        tolerance=tolerance,
        within_tolerance=is_within.mask(tolerance.isna()),
        status=np.select(conditions, list(words), "differs"),
    )


def older_tolerance(card: pd.DataFrame) -> pd.Series:
    """The rule of the first edition: 5% of an efficiency, .05 of a gap or ratio.

    Parameters
    ----------
    card : DataFrame
        paper and quantity.

    Returns
    -------
    Series of float
        NaN for a price, which that rule did not know.
    """
    relative = EFFICIENCY_TOLERANCE * card["paper"]
    tolerance = relative.where(card["quantity"] == "efficiency", DISPARITY_TOLERANCE)
    return tolerance.mask(card["quantity"] == PRICE)


def compared(card: pd.DataFrame, which: str) -> pd.Series:
    """A number minus the base predictor's; of the base predictor's, minus CF's.

    At the same c; where the other has no number there, as in Tab 4, its mean over c.

    Parameters
    ----------
    card : DataFrame
        table, SETTING, and the numbers.
    which : "paper" or "ours"

    Returns
    -------
    Series of float
        A price is a difference already.
    """
    value = card[which]
    names = ("table", "dataset", "attribute", "classwise", "score", "metric", "quantity")
    setting = [card[name] for name in names]
    at_c = [*setting, closeness(card)]
    others = {}
    for arm in (Arm.BASE, Arm.CF):
        own = value.where(card["arm"] == arm)
        same_c = own.groupby(at_c).transform("mean")
        others[arm] = same_c.fillna(own.groupby(setting).transform("mean"))
    other = others[Arm.BASE].where(card["arm"] != Arm.BASE, others[Arm.CF])
    return value - other.mask(card["quantity"] == PRICE, 0)


def conclusions(card: pd.DataFrame, which: str) -> pd.DataFrame:
    """What a reader would conclude from each number, by the paper's or by ours.

    Parameters
    ----------
    card : DataFrame
        As in `compared`.
    which : "paper" or "ours"

    Returns
    -------
    DataFrame
        `beyond`: whether the number's arm is beyond c; `order`: whether the number is
        above the base predictor's (1), below (−1) or equal (0).
    """
    c = closeness(card)
    names = ("table", "dataset", "attribute", "classwise", "score", "metric", "arm")
    setting = [card[name] for name in names]
    disparities = card[which].where(card["quantity"] == "disparity")
    disparity = disparities.groupby([*setting, c]).transform("max")
    is_ratio = card["metric"] == "disparate_impact"
    excess = (c - disparity).where(is_ratio, disparity - c)
    apart = compared(card, which)
    signs = pd.Series(np.sign(apart), apart.index)
    order = signs.where(apart.abs() > TIE + ROUNDING, 0)
    return pd.DataFrame({"beyond": excess > TIE + ROUNDING, "order": order})
