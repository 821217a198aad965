"""Every number of the paper's tables and bars beside ours, with one honest word.

Nothing is computed but means over splits, and the yardstick of `judging` from them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import paths
from cfhelpers.study import authors, errata_moves, errata_runs, experiments
from cfhelpers.study.judging import (
    JUDGED,
    MADE_BY,
    PRICE,
    QUANTITIES,
    ROUNDING,
    SAME_RUN,
    SETTING,
    STATUSES,
    TIE,
    TRUE_LABEL,
    closeness,
    judge,
    measured_values,
    older_tolerance,
    our_numbers,
    prediction_interval,
    yardsticks,
)
from cfhelpers.study.names import Arm, DataKind

__all__ = ["STATUSES", "prediction_interval"]

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
BARS = "figures"  # stands for a table where the number is the height of a bar
BATCH_GCP = (
    "the paper scored BatchGCP on the true label (erratum 8); "
    "ours is on fixed labels, as CF"
)
PROXY_MIX = (
    "disparities of a single λ beside classwise efficiencies; ours likewise (erratum 4)"
)
UNEXPLAINED = "unexplained"
# The erratum that was shown to move a score's numbers, and notebook 15 runs it.
TESTED_CAUSES = {"daps": "composed_tuning"}
ERRATA_COLUMNS = ["erratum", "before", "after", "row", "with_low", "with_high"]


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


def load_errata() -> pd.DataFrame:
    """What each bug of the release moves, as notebook 15 stored it.

    Returns
    -------
    DataFrame
        Of `errata_moves.moves`, and the interval over training splits with the bug,
        `with_low` and `with_high`, where it was run. Empty where nothing is stored.
    """
    path = paths.RESULTS / errata_moves.FILE
    if not path.exists():
        return pd.DataFrame()
    moved = _with_prices(pd.read_csv(path))
    training = paths.RESULTS / errata_runs.TRAINING_FILE
    if not training.exists():
        return moved.assign(with_low=np.nan, with_high=np.nan)
    found = errata_moves.intervals(pd.read_csv(training))
    names = {"tuning": "erratum", "low": "with_low", "high": "with_high"}
    found = found.rename(columns=names)
    keys = ["erratum", *errata_runs.NUMBER]
    found = found[[*keys, "with_low", "with_high"]]
    # The base predictor's numbers are the same for a single λ and for classwise ones.
    base = found[found["arm"] == Arm.BASE]
    found = pd.concat([found, base.assign(classwise=~base["classwise"].astype(bool))])
    found = found.drop_duplicates(keys)
    return moved.merge(found, how="left", on=keys, validate="many_to_one")


def _with_prices(moved: pd.DataFrame) -> pd.DataFrame:
    """The errata's table with the price too: CF's efficiency − the base predictor's."""
    setting = ["erratum", "score", "metric", "c", "classwise"]
    sizes = moved[moved["quantity"] == "efficiency"]
    cf = sizes[sizes["arm"] == Arm.CF]
    base = sizes[sizes["arm"] == Arm.BASE]
    both = cf.merge(base, on=setting, suffixes=("", "_base"))
    prices = both.assign(quantity=PRICE, row=both["row"] + " − " + both["row_base"])
    for name in ("before", "after", "paper"):
        prices[name] = both[name] - both[f"{name}_base"]
    return pd.concat([moved, prices[moved.columns]], ignore_index=True)


def scorecard(
    reported: pd.DataFrame,
    rows: pd.DataFrame,
    batch_rows: pd.DataFrame,
    training_rows: pd.DataFrame | None = None,
    errata: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The paper's numbers beside ours.

    Parameters
    ----------
    reported : DataFrame
        The paper's numbers, of `authors.reported_values`.
    rows : DataFrame
        Tidy rows of `experiments`; may be empty.
    batch_rows : DataFrame
        Rows of `batch_gcp`; may be empty.
    training_rows : DataFrame, optional
        Rows of every training split, of `experiments.load_training_rows`; without them
        there is no yardstick.
    errata : DataFrame, optional
        Of `load_errata`; reasons cite its rows.

    Returns
    -------
    DataFrame
        One row per reported number, in their order: paper, ours (training split 0), sd
        over re-splits, the interval over training splits, status and reason, see
        `judging.judge`. Cells with the same `measurement` hold the same two numbers of
        the same thing.

    Examples
    --------
    >>> card = scorecard(authors.reported_values(), pd.DataFrame(), pd.DataFrame())
    >>> card["status"].value_counts().to_dict()
    {'not run': 402}
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
    card["notebook"] = card["table"].map({table: n for table, (_, n) in TABLES.items()})
    wanted = _wanted_settings(card)
    values = pd.concat([measured_values(rows), _batch_gcp_values(batch_rows)])
    card = judge(_beside(card, wanted, values, _intervals(training_rows)))
    card["measurement"] = _measurements(card, wanted)
    numbers = our_numbers(values)
    on_true_label = wanted.assign(quantity=TRUE_LABEL)
    true_label = on_true_label.merge(numbers, how="left", on=SETTING)["ours"]
    card["reason"] = _reasons(card, true_label, errata)
    return _rounded(card.drop(columns="former"))


def bars(
    rows: pd.DataFrame,
    training_rows: pd.DataFrame,
    stored: pd.DataFrame | None = None,
    errata: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The bars of the paper's figures beside ours, and the price of fairness.

    Parameters
    ----------
    rows, training_rows, errata : DataFrame
        As in `scorecard`.
    stored : DataFrame, optional
        The heights of the bars; by default `authors.runs`.

    Returns
    -------
    DataFrame
        As of `scorecard`, three rows per setting: efficiency, disparity and price, the
        efficiency of CF minus that of the base predictor, with its sign.
    """
    heights = authors.runs() if stored is None else stored
    parts = []
    for quantity in QUANTITIES:
        own = heights.assign(quantity=quantity, table=BARS)
        parts.append(own.assign(arm=str(Arm.CF), paper=heights[quantity]))
        parts.append(own.assign(arm=str(Arm.BASE), paper=heights[f"base_{quantity}"]))
    price = heights["efficiency"] - heights["base_efficiency"]
    own = heights.assign(quantity=PRICE, table=BARS)
    parts.append(own.assign(arm=str(Arm.CF), paper=price))
    card = pd.concat(parts, ignore_index=True)[["table", *SETTING, "paper"]]
    return _rounded(_judged_cf(card, rows, training_rows, errata))


def prices(
    reported: pd.DataFrame,
    rows: pd.DataFrame,
    training_rows: pd.DataFrame,
    errata: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The price of fairness in the tables: efficiency of CF minus the base predictor's.

    Parameters
    ----------
    reported, rows, training_rows, errata : DataFrame
        As in `scorecard`.

    Returns
    -------
    DataFrame
        As of `scorecard`, a row per number of CF's efficiency.
    """
    sizes = reported[reported["quantity"] == "efficiency"]
    names = ["table", "dataset", "attribute", "classwise", "score", "metric"]
    is_base = sizes["arm"] == Arm.BASE
    base = sizes[is_base].set_index(names)["value"].rename("base")
    card = sizes[sizes["arm"] == Arm.CF].join(base, on=names)
    card = card.assign(paper=card["value"] - card["base"], quantity=PRICE)
    card = card[["table", *SETTING, "paper"]].reset_index(drop=True)
    return _rounded(_judged_cf(card, rows, training_rows, errata))


def _judged_cf(
    card: pd.DataFrame,
    rows: pd.DataFrame,
    training_rows: pd.DataFrame,
    errata: pd.DataFrame | None,
) -> pd.DataFrame:
    """Words and reasons for CF's numbers; the base's are there for the conclusions."""
    wanted = _wanted_settings(card)
    values = measured_values(rows)
    card = judge(_beside(card, wanted, values, _intervals(training_rows)))
    nothing = pd.Series(np.nan, card.index)
    card["reason"] = _reasons(card, nothing, errata)
    card = card.drop(columns="former")
    return card[card["arm"] == Arm.CF].reset_index(drop=True)


def _rounded(card: pd.DataFrame) -> pd.DataFrame:
    """Numbers as they are written."""
    names = ["paper", "ours", "sd", "low", "high", "difference", "tolerance", "effect"]
    return card.round(dict.fromkeys(names, 6))


def _intervals(training_rows: pd.DataFrame | None) -> pd.DataFrame:
    """The yardstick of every setting."""
    if training_rows is None:
        training_rows = pd.DataFrame()
    return yardsticks(measured_values(training_rows))


def _wanted_settings(card: pd.DataFrame) -> pd.DataFrame:
    """Which of our numbers stands beside each of the paper's.

    Tab 4 prints disparities of a single λ beside efficiencies of classwise λ (erratum 4).
    """
    is_disparity = card["quantity"] == "disparity"
    is_mixed = card["table"] == "tab:acs_educ_pred_par"
    classwise = card["classwise"].mask(is_mixed, ~is_disparity)
    return card[SETTING].assign(c=closeness(card), classwise=classwise)


def _beside(
    card: pd.DataFrame,
    wanted: pd.DataFrame,
    values: pd.DataFrame,
    intervals: pd.DataFrame,
) -> pd.DataFrame:
    """The card with our numbers and their intervals; no difference to simulated ones.

    A number of a former model stands apart, in the column `former`.
    """
    ours = wanted.merge(
        our_numbers(values), how="left", on=SETTING, validate="many_to_one"
    )
    of_run = wanted.assign(**ours[SAME_RUN])
    keys = [*SETTING, *SAME_RUN]
    spread = of_run.merge(intervals, how="left", on=keys, validate="many_to_one")
    is_real = ours["data"].isin([DataKind.PAPERS, DataKind.OTHER])
    spread = spread.where(is_real)
    is_former = ours["data"] == DataKind.FORMER
    ours = ours.assign(former=ours["ours"].where(is_former))
    measured = ["ours", "sd", "splits"]
    ours[measured] = ours[measured].mask(is_former)
    return card.join(ours[["ours", "sd", "former", *MADE_BY]]).assign(
        splits=ours["splits"].fillna(0).astype(int),
        training_splits=spread["training_splits"].fillna(0).astype(int),
        low=spread["low"].astype(float),
        high=spread["high"].astype(float),
        difference=(ours["ours"] - card["paper"]).where(is_real),
    )


def _measurements(card: pd.DataFrame, wanted: pd.DataFrame) -> pd.Series:
    """A number per distinct measurement: cells of one thing with the same two numbers."""
    names = [name for name in SETTING if name != "classwise"]
    cells = wanted[names].assign(paper=card["paper"], ours=card["ours"].round(6))
    return cells.groupby([*names, "paper", "ours"], dropna=False, sort=False).ngroup()


def _batch_gcp_values(batch_rows: pd.DataFrame) -> pd.DataFrame:
    """What was measured of BatchGCP, scored on fixed labels and on the true label."""
    if batch_rows.empty:
        return measured_values(batch_rows)
    is_batch_gcp = batch_rows["arm"] == Arm.BATCH_GCP
    own = batch_rows[is_batch_gcp].assign(classwise=True, c=0.8, training_split=0)
    fixed = own[own["scored_on"] == "fixed label"]
    parts = []
    for quantity in QUANTITIES:
        parts.append(fixed.assign(quantity=quantity, value=fixed[quantity]))
    true = own[own["scored_on"] == "true label"]
    parts.append(true.assign(quantity=TRUE_LABEL, value=true["disparity"]))
    columns = [*SETTING, *MADE_BY, "training_split", "split", "value"]
    return pd.concat([part[columns] for part in parts])


def _reasons(
    card: pd.DataFrame, true_label: pd.Series, errata: pd.DataFrame | None
) -> pd.Series:
    """What is known about each number: errata of the paper, and why ours may differ."""
    score = card["score"]
    status = card["status"]
    is_disparity = card["quantity"] == "disparity"
    is_proxy_table = card["table"] == "tab:acs_educ_pred_par"
    is_pokec_z = card["dataset"] == "pokec_z"
    odd_gender = is_pokec_z & (card["attribute"] == "gender") & is_disparity
    odd_gender &= card["table"] != BARS
    stored = score.map(authors.POKEC_Z_GENDER)
    authors_give = "the authors' runs give " + stored.fillna("") + " (erratum 5)"
    batch_gcp = BATCH_GCP + _true_label_words(true_label).where(is_disparity, "")
    is_batch_gcp = card["arm"] == Arm.BATCH_GCP
    is_other = status == "other records"
    has_interval = card["low"].notna()
    is_inside = card["inside"].fillna(False).astype(bool)
    is_open = status.isin(["close", "differs"])
    is_former = card["former"].notna()
    causes = _tested_causes(card, errata)
    notes: list[tuple[str | pd.Series, pd.Series]] = [
        ("no rows: make or make paper makes them", (status == "not run") & ~is_former),
        (_former_words(card["former"]), is_former),
        (UNEXPLAINED, is_open & (causes == "")),
        (causes, is_open),
        ("ours is undefined on every split", is_open & card["ours"].isna()),
        (
            "the interval is wider than the paper's own effect",
            (status == "cannot tell") & has_interval,
        ),
        (
            "too few training splits for an interval",
            (status == "cannot tell") & ~has_interval,
        ),
        ("would be within the interval", is_other & has_interval & is_inside),
        ("would be outside the interval", is_other & has_interval & ~is_inside),
        ("the released code cannot run RAPS (erratum 7)", status == "untraceable"),
        (batch_gcp, is_batch_gcp),
        (PROXY_MIX, is_proxy_table & (card["arm"] == Arm.CF)),
        (
            "the authors take |PPV − prior| in each group, which hides its sign",
            is_proxy_table & is_disparity,
        ),
        ("the paper ran it on Pokec-n's records (erratum 10)", is_pokec_z),
        ("the paper repeats Pokec-n's number (erratum 5)", odd_gender & repeats(card)),
        (authors_give, odd_gender & stored.notna()),
    ]
    texts = []
    for text, applies in notes:
        texts.append(pd.Series(text, card.index, dtype=object).where(applies, ""))
    joined = ["; ".join(filter(None, row)) for row in zip(*texts, strict=True)]
    return pd.Series(joined, card.index, dtype=object)


def _tested_causes(card: pd.DataFrame, errata: pd.DataFrame | None) -> pd.Series:
    """The erratum that moves a number to the paper's, with the row that shows it.

    A cause counts where the number with the erratum is nearer to the paper's than
    without, by more than a tie.
    """
    nothing = pd.Series("", card.index, dtype=object)
    if errata is None or errata.empty:
        return nothing
    names = ["score", "arm", "metric", "c", "classwise", "quantity"]
    tested = []
    for score, erratum in TESTED_CAUSES.items():
        own = errata[(errata["erratum"] == erratum) & (errata["score"] == score)]
        tested.append(own.assign(c=own["c"].astype(float).round(6)))
    shown = (
        card[names]
        .assign(c=closeness(card))
        .merge(
            pd.concat(tested)[[*names, *ERRATA_COLUMNS]],
            how="left",
            on=names,
            validate="many_to_one",
        )
    )
    shown.index = card.index
    lines = shown[ERRATA_COLUMNS].to_dict("records")
    paper = card["paper"]
    nearer = (shown["before"] - paper).abs() - (shown["after"] - paper).abs()
    texts = [_cause(line, number) for line, number in zip(lines, paper, strict=True)]
    is_shown = (card["dataset"] == "credit") & (nearer > TIE)
    return nothing.mask(is_shown, pd.Series(texts, card.index, dtype=object))


def _cause(line: Mapping[Any, Any], paper: float) -> str:
    """What an erratum does to a number, in words."""
    before = line["before"]
    after = line["after"]
    text = f"{line['erratum']} moves it {before:.3f} → {after:.3f}"
    low = line["with_low"]
    high = line["with_high"]
    if pd.notna(low):
        verb = "holds" if low - ROUNDING <= paper <= high + ROUNDING else "lacks"
        text += f", and its interval then, {low:.3f} to {high:.3f}, {verb} the paper's"
    return f"{text} (errata.csv: {line['row']})"


def _former_words(former: pd.Series) -> pd.Series:
    """What a model gave that has been replaced, in words."""
    words = [
        f"the present model was not run; a former one gave {value:.3f}"
        for value in former
    ]
    return pd.Series(words, former.index, dtype=object)


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


def summary(card: pd.DataFrame, distinct: bool = False) -> pd.DataFrame:
    """How many numbers of each table have each status word.

    Parameters
    ----------
    card : DataFrame
        Of `scorecard`.
    distinct : bool
        Count each measurement once, where it is printed first.

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
    if distinct:
        card = card.drop_duplicates("measurement")
    counts = pd.crosstab(card["id"], card["status"])
    return counts.reindex(columns=list(STATUSES), fill_value=0)


def placebo(card: pd.DataFrame, training_rows: pd.DataFrame) -> pd.DataFrame:
    """How often the number of another score would match too: what a match is worth.

    Parameters
    ----------
    card : DataFrame
        Of `scorecard` or `bars`; the judged numbers are taken.
    training_rows : DataFrame
        As in `scorecard`.

    Returns
    -------
    DataFrame
        By arm and quantity: the number of pairs, and the shares of the paper's numbers
        that lie within the interval of their own score and of another, and by the older
        rule within the tolerance of both.
    """
    judged = card[card["status"].isin(JUDGED) & card["low"].notna()]
    if "measurement" in judged:
        judged = judged.drop_duplicates("measurement")
    values = measured_values(training_rows)
    intervals = yardsticks(values).merge(our_numbers(values), on=[*SETTING, *SAME_RUN])
    intervals = intervals.rename(columns={"score": "beside"})
    setting = [name for name in SETTING if name != "score"]
    wanted = _wanted_settings(judged).assign(paper=judged["paper"])
    names = [*setting, "beside", "low", "high", "ours"]
    pairs = wanted.merge(intervals[names], on=setting)
    pairs = pairs[pairs["beside"] != "raps"]
    return _shares_inside(pairs, pairs["beside"] == pairs["score"], "another score")


def simulated_placebo(
    card: pd.DataFrame, rows: pd.DataFrame, training_rows: pd.DataFrame
) -> pd.DataFrame:
    """How often a number from simulated records would be within, as real ones would.

    Parameters
    ----------
    card : DataFrame
        Of `scorecard` or `bars`; numbers on other records are taken.
    rows, training_rows : DataFrame
        As in `scorecard`.

    Returns
    -------
    DataFrame
        As of `placebo`. Simulated records have one training split: their interval is as
        wide as the real one.
    """
    beside = card[(card["status"] == "other records") & card["low"].notna()]
    wanted = _wanted_settings(beside).assign(paper=beside["paper"])
    values = measured_values(training_rows)
    real = yardsticks(values).merge(our_numbers(values), on=[*SETTING, *SAME_RUN])
    real = real[[*SETTING, "low", "high", "ours"]]
    made_up = rows
    if len(rows):
        made_up = rows[rows["data"] == DataKind.SIMULATED]
    made_up = measured_values(made_up)
    simulated = our_numbers(made_up)[[*SETTING, "ours"]]
    moved = real.merge(simulated, on=SETTING, suffixes=("_real", ""))
    shift = moved["ours"] - moved["ours_real"]
    moved = moved.assign(low=moved["low"] + shift, high=moved["high"] + shift)
    parts = [real.assign(is_own=True), moved[real.columns].assign(is_own=False)]
    pairs = wanted.merge(pd.concat(parts), on=SETTING)
    return _shares_inside(pairs, pairs["is_own"], "simulated records")


def _shares_inside(pairs: pd.DataFrame, is_own: pd.Series, other: str) -> pd.DataFrame:
    """Shares of the paper's numbers that lie within, of what is its own and of others."""
    is_low = pairs["paper"] < pairs["low"] - ROUNDING
    is_high = pairs["paper"] > pairs["high"] + ROUNDING
    apart = (pairs["ours"] - pairs["paper"]).abs()
    tolerance = older_tolerance(pairs)
    whose = pd.Series(np.where(is_own, "own", other), pairs.index)
    table = pairs.assign(
        whose=whose,
        interval=~is_low & ~is_high,
        tolerance=(apart <= tolerance + ROUNDING).astype(float).mask(tolerance.isna()),
    )
    by = table.groupby(["arm", "quantity", "whose"])
    shares = by[["interval", "tolerance"]].mean()
    table = shares.assign(pairs=by.size()).reset_index()
    return table.pivot(index=["arm", "quantity"], columns="whose")


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
