"""Every number of the paper's tables beside ours, with one honest word.

Nothing is computed but means over splits.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from cfhelpers import paths
from cfhelpers.control import Guarantee
from cfhelpers.study import authors, experiments
from cfhelpers.study.names import Arm, DataKind

EFFICIENCY_TOLERANCE = 0.05  # relative to the paper's number
DISPARITY_TOLERANCE = 0.05  # absolute, of a difference or a ratio
TIE = 0.005  # two numbers that are no farther apart count as equal
ROUNDING = 1e-9  # a number at the very edge of a tolerance is within it
STATUSES = ("match", "close", "differs", "other year", "simulated", "not run here")
TABLES = {  # label in the paper's text -> id, and the notebook that makes it
    "tab:disparate_impact": ("Tab 3", 10),
    "tab:acs_educ_pred_par": ("Tab 4", 11),
    "tab:acseducation_di_all": ("Tab E1", 10),
    "tab:acsincome_di_all": ("Tab E2", 10),
    "tab:credit_di_all": ("Tab E3", 10),
    "tab:pokec_n_di_all": ("Tab E4", 10),
    "tab:pokec_z_di_all": ("Tab E5", 10),
    "tab:disparate_gcp": ("Tab E6", 12),
}
SETTING = ["dataset", "attribute", "classwise", "score", "arm", "metric", "c", "quantity"]
MADE_BY = ["source", "data", "records", "profile", "model"]
QUANTITIES = ("efficiency", "disparity")
TRUE_LABEL = "true label"  # a third quantity: BatchGCP's disparity on the true label
AVERAGE = 0.125  # Tab 4's base is an average over c = .05, .10, .15, .20; so is this
BASE_DISPARITY = (
    "base disparity depends strongly on the base model "
    "(Credit, four models: DP .06–.11 for APS, .14–.33 for TPS)"
)
BATCH_GCP = (
    "the paper scored BatchGCP on the true label (erratum 8); "
    "ours is on fixed labels, as CF"
)
PROXY_MIX = (
    "disparities of a single λ beside classwise efficiencies; ours likewise (erratum 4)"
)


def load() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The stored rows of every profile, as far as they were made.

    Returns
    -------
    rows, batch_rows : DataFrame
        Of `experiments` and of `batch_gcp`; either may be empty.
    """
    try:
        rows = experiments.load_rows()
    except FileNotFoundError:
        rows = pd.DataFrame()
    files = sorted((paths.RESULTS / "runs").glob("*/batch_gcp_*.parquet"))
    if not files:
        return rows, pd.DataFrame()
    batch_rows = pd.concat(map(pd.read_parquet, files), ignore_index=True)
    return rows, batch_rows


def scorecard(
    reported: pd.DataFrame, rows: pd.DataFrame, batch_rows: pd.DataFrame
) -> pd.DataFrame:
    """The paper's numbers beside ours.

    Parameters
    ----------
    reported : DataFrame
        The paper's numbers, results/reported_values.csv.
    rows : DataFrame
        Tidy rows of `experiments`; may be empty.
    batch_rows : DataFrame
        Rows of `batch_gcp`; may be empty.

    Returns
    -------
    DataFrame
        One row per reported number, in their order: paper, ours, sd over splits,
        difference, tolerance, status and reason.

    Examples
    --------
    >>> card = scorecard(authors.reported_values(), pd.DataFrame(), pd.DataFrame())
    >>> card["status"].value_counts().to_dict()
    {'not run here': 402}
    """
    unknown = sorted(set(reported["table"]) - set(TABLES))
    if unknown:
        raise ValueError(
            f"reported: found the table {unknown[0]!r}; "
            f"wanted some of {', '.join(TABLES)}"
        )
    card = reported.rename(columns={"value": "paper"}).reset_index(drop=True)
    ids = card["table"].map({table: name for table, (name, _) in TABLES.items()})
    card.insert(list(card.columns).index("paper"), "id", ids)
    wanted = _wanted_settings(card)
    summary = _summarise(rows, batch_rows)
    ours = wanted.merge(summary, how="left", on=SETTING, validate="many_to_one")
    on_true_label = wanted.assign(quantity=TRUE_LABEL)
    true_label = on_true_label.merge(summary, how="left", on=SETTING)["ours"]
    difference = ours["ours"] - card["paper"]
    tolerance = _tolerance(card)
    data = ours["data"]
    card = card.join(ours[["ours", "sd"]]).assign(
        splits=ours["splits"].fillna(0).astype(int),
        difference=difference.where(data.isin([DataKind.PAPERS, DataKind.OTHER])),
        tolerance=tolerance.where(data == DataKind.PAPERS),
        source=ours["source"],
        data=data,
        records=ours["records"],
        profile=ours["profile"],
        notebook=card["table"].map({table: n for table, (_, n) in TABLES.items()}),
    )
    card["status"] = _statuses(card, difference.abs() <= tolerance + ROUNDING)
    card["reason"] = _reasons(card, true_label)
    return card.round(dict.fromkeys(["ours", "sd", "difference", "tolerance"], 6))


def _wanted_settings(card: pd.DataFrame) -> pd.DataFrame:
    """Which of our numbers stands beside each of the paper's.

    Tab 4 prints disparities of a single λ beside efficiencies of classwise λ (erratum 4).
    """
    is_efficiency = card["quantity"] == "efficiency"
    classwise = card["classwise"].mask(card["id"] == "Tab 4", is_efficiency)
    return card[SETTING].assign(c=_closeness(card), classwise=classwise)


def _closeness(card: pd.DataFrame) -> pd.Series:
    """c as a number; an average over the values of c is theirs."""
    return pd.to_numeric(card["c"].replace("avg", AVERAGE)).astype(float).round(6)


def _tolerance(card: pd.DataFrame) -> pd.Series:
    """How far our number may be from the paper's."""
    relative = EFFICIENCY_TOLERANCE * card["paper"]
    return relative.where(card["quantity"] == "efficiency", DISPARITY_TOLERANCE)


def _statuses(card: pd.DataFrame, is_within: pd.Series) -> np.ndarray:
    """The word of every number: the first that applies."""
    same_conclusions = _conclusions(card, "paper") == _conclusions(card, "ours")
    words = {
        "not run here": card["data"].isna(),
        "simulated": card["data"] == DataKind.SIMULATED,
        "other year": card["data"] == DataKind.OTHER,
        "match": is_within,
        "close": same_conclusions.all(axis=1) & card["ours"].notna(),
    }
    return np.select(list(words.values()), list(words), "differs")


def _summarise(rows: pd.DataFrame, batch_rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, sd and number of splits of every setting.

    Of several runs the paper's data go first, then more splits, then the quick profile.
    """
    columns = [*SETTING, *MADE_BY, "split", "value"]
    parts = [pd.DataFrame(columns=columns)]
    if len(rows):
        parts += _measured_values(rows, columns)
    if len(batch_rows):
        parts += _batch_gcp_values(batch_rows)
    long = pd.concat([part[columns] for part in parts])
    unknown = sorted(map(str, set(long["data"]) - set(DataKind)))
    if unknown:
        raise ValueError(
            f"rows: found the data {unknown[0]!r}; wanted one of {', '.join(DataKind)}"
        )
    long = long.assign(
        c=long["c"].astype(float).round(6), value=long["value"].astype(float)
    )
    values = long.groupby([*SETTING, *MADE_BY])["value"]
    found = values.agg(ours="mean", sd="std", splits="count").reset_index()
    preferred = list(DataKind)
    order = {
        "kind": found["data"].map(preferred.index),
        "fewer": -found["splits"],
        "slower": found["profile"] != "quick",
    }
    found = found.assign(**order).sort_values([*order, *MADE_BY])
    return found.drop_duplicates(SETTING)


def _measured_values(rows: pd.DataFrame, columns: list[str]) -> list[pd.DataFrame]:
    """What was measured by the paper's rule, of CF and of the base predictor.

    Tab 4 prints one number of the base predictor, the mean over the values of c.
    """
    rows = rows[rows["guarantee"] == Guarantee.NONE]
    parts = []
    for quantity in QUANTITIES:
        values = rows[quantity]
        parts.append(rows.assign(arm=str(Arm.CF), quantity=quantity, value=values))
    base_parts = []
    for quantity in QUANTITIES:
        values = rows[f"base_{quantity}"]
        base_parts.append(rows.assign(arm=str(Arm.BASE), quantity=quantity, value=values))
    base = pd.concat(base_parts)
    proxy = base[base["metric"] == "predictive_parity_proxy"]
    same_split = [name for name in columns if name not in ("c", "value")]
    average = proxy.groupby(same_split, as_index=False)[["c", "value"]].mean()
    return [*parts, *base_parts, average]


def _batch_gcp_values(batch_rows: pd.DataFrame) -> list[pd.DataFrame]:
    """What was measured of BatchGCP, scored on fixed labels and on the true label."""
    is_batch_gcp = batch_rows["arm"] == Arm.BATCH_GCP
    batch_rows = batch_rows[is_batch_gcp].assign(classwise=True, c=0.8)
    fixed = batch_rows[batch_rows["scored_on"] == "fixed label"]
    parts = []
    for quantity in QUANTITIES:
        parts.append(fixed.assign(quantity=quantity, value=fixed[quantity]))
    true = batch_rows[batch_rows["scored_on"] == "true label"]
    parts.append(true.assign(quantity=TRUE_LABEL, value=true["disparity"]))
    return parts


def _conclusions(card: pd.DataFrame, which: str) -> pd.DataFrame:
    """What a reader would conclude from each number, by the paper's or by ours.

    Whether the number's arm is beyond c; and the order of the number and the base's
    (for the base's: of the number and CF's).
    """
    value = card[which]
    arm = card["arm"]
    c = _closeness(card)
    names = ("table", "dataset", "attribute", "classwise", "score", "metric")
    setting = [card[name] for name in names]
    disparities = value.where(card["quantity"] == "disparity")
    disparity = disparities.groupby([*setting, c, arm]).transform("max")
    is_ratio = card["metric"] == "disparate_impact"
    excess = (c - disparity).where(is_ratio, disparity - c)
    means = {}
    for other in (Arm.BASE, Arm.CF):
        values = value.where(arm == other)
        means[other] = values.groupby([*setting, card["quantity"]]).transform("mean")
    compared_with = means[Arm.BASE].where(arm != Arm.BASE, means[Arm.CF])
    apart = value - compared_with
    signs = pd.Series(np.sign(apart), apart.index)
    order = signs.where(apart.abs() > TIE + ROUNDING, 0)
    return pd.DataFrame({"beyond": excess > TIE + ROUNDING, "order": order})


def _reasons(card: pd.DataFrame, true_label: pd.Series) -> pd.Series:
    """What is known about each number: errata of the paper, and why ours may differ."""
    score = card["score"]
    arm = card["arm"]
    status = card["status"]
    is_disparity = card["quantity"] == "disparity"
    is_off = status.isin(["close", "differs"])
    is_proxy = card["id"] == "Tab 4"
    is_pokec_z_gender = (card["dataset"] == "pokec_z") & (card["attribute"] == "gender")
    stored = score.map(authors.POKEC_Z_GENDER)
    authors_give = "the authors' runs give " + stored.fillna("") + " (erratum 5)"
    batch_gcp = BATCH_GCP + _true_label_words(true_label).where(is_disparity, "")
    undefined = (status == "differs") & card["ours"].isna()
    odd_gender = is_pokec_z_gender & is_disparity
    notes: list[tuple[str | pd.Series, pd.Series]] = [
        ("no rows: make or make paper makes them", status == "not run here"),
        ("ours is undefined on every split", undefined),
        (BASE_DISPARITY, is_off & is_disparity & (arm == Arm.BASE)),
        ("the paper's RAPS cannot be traced (erratum 7)", score == "raps"),
        (
            "the paper's CFGNN was trained once, on split 0, and reused (erratum 9)",
            score == "cfgnn",
        ),
        ("the paper's DAPS tuning composes diffusions (erratum 9)", score == "daps"),
        (batch_gcp, arm == Arm.BATCH_GCP),
        (PROXY_MIX, is_proxy & (arm == Arm.CF)),
        (
            "the authors take |PPV − prior| in each group, which hides its sign",
            is_proxy & is_disparity,
        ),
        ("the paper repeats Pokec-n's number (erratum 5)", odd_gender & repeats(card)),
        (authors_give, odd_gender & stored.notna()),
    ]
    texts = []
    for text, applies in notes:
        texts.append(pd.Series(text, card.index, dtype=object).where(applies, ""))
    joined = ["; ".join(filter(None, row)) for row in zip(*texts, strict=True)]
    known = pd.Series(joined, card.index, dtype=object)
    return known.mask((status == "differs") & (known == ""), "unexplained")


def _true_label_words(true_label: pd.Series) -> pd.Series:
    """BatchGCP's disparity on the true label in words; empty where there is none."""
    words = [f" (on the true label {value:.3f})" for value in true_label]
    return pd.Series(words, true_label.index).where(true_label.notna(), "")


def repeats(card: pd.DataFrame) -> pd.Series:
    """Whether a number of one Pokec is printed, to the last digit, for the other too.

    Parameters
    ----------
    card : DataFrame
        Of `scorecard`.

    Returns
    -------
    boolean Series
        True where Pokec-n and Pokec-z have the same number in the same place.

    Examples
    --------
    >>> card = pd.DataFrame({"dataset": ["pokec_n", "pokec_z"], "paper": [0.71, 0.71]})
    >>> place = ["attribute", "classwise", "score", "arm", "metric", "c", "quantity"]
    >>> repeats(card.assign(**dict.fromkeys(place, "same"))).tolist()
    [True, True]
    """
    both = card[card["dataset"].isin(["pokec_n", "pokec_z"])]
    place = ["attribute", "classwise", "score", "arm", "metric", "c", "quantity", "paper"]
    return both.duplicated(place, keep=False).reindex(card.index, fill_value=False)


def summary(card: pd.DataFrame) -> pd.DataFrame:
    """How many numbers of each table have each status word.

    Parameters
    ----------
    card : DataFrame
        Of `scorecard`.

    Returns
    -------
    DataFrame
        A row per table, a column per word.

    Examples
    --------
    >>> card = pd.DataFrame({"id": ["Tab 3", "Tab 3"], "status": ["match", "close"]})
    >>> summary(card).loc["Tab 3", ["match", "differs"]].tolist()
    [1, 0]
    """
    counts = pd.crosstab(card["id"], card["status"])
    return counts.reindex(columns=list(STATUSES), fill_value=0)


def write(card: pd.DataFrame, path: str | os.PathLike[str] | None = None) -> Path:
    """Write the card as CSV, whole or not at all.

    Parameters
    ----------
    card : DataFrame
        Of `scorecard`.
    path : optional
        By default results/scorecard.csv.

    Returns
    -------
    Path
        Where it was written.
    """
    if path is None:
        path = paths.RESULTS / "scorecard.csv"
    target = Path(path)
    with paths.atomic_write(target) as partial:
        card.to_csv(partial, index=False)
    return target
