"""What each bug of the release moves on Credit, beside the numbers of the authors.

Tables, the files that hold them, and one figure, from the rows of `errata_runs`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfhelpers import paths
from cfhelpers._checks import one_of
from cfhelpers.study import authors, batch_gcp
from cfhelpers.study.errata_runs import (
    NUMBER,
    QUANTITIES,
    TOUCHED,
    baseline,
    is_baseline,
)
from cfhelpers.study.judging import prediction_interval
from cfhelpers.study.names import Arm

FILE = "errata.csv"
KINDS = {False: "single", True: "classwise"}
GCP_QUANTITIES = {  # the column, and on which label's coverage it is scored
    "efficiency": ("efficiency", "fixed label"),
    "disparity": ("disparity", "fixed label"),
    "disparity_true_label": ("disparity", "true label"),
}
# Of the figure: as short as an axis wants them, in the order in which they are drawn.
METRIC_NAMES = {
    "demographic_parity": "DP",
    "equal_opportunity": "EO",
    "equalized_odds": "EOdds",
    "predictive_equality": "PE",
    "predictive_parity_proxy": "PP proxy",
    "disparate_impact": "DI",
}
PANELS = {
    "efficiency": "labels in a set",
    "disparity": "gap, or ratio for DI",
}
SECTIONS = {  # by arm and classwise
    ("base", False): "base",
    ("cf", False): "CF, single λ",
    ("cf", True): "CF, classwise",
}
# By score, the arrows of a figure: what the legend calls each, and its colour.
ARROWS = {
    "daps": {
        "quantile": ("quantile one rank up", "C2"),
        "self_loops": ("self-loops", "C0"),
        "halves_by_index": ("halves by index", "C4"),
        "composed_tuning": ("composed tuning", "C1"),
        "together": ("all together", "black"),
    },
    "cfgnn": {
        "shortcut": ("with the shortcut", "C0"),
        "last_epoch": ("last epoch", "C1"),
        "longer_training": ("longer training", "C2"),
        "shorter_training": ("shorter training", "C4"),
        "trained_once": ("trained once", "C5"),
        "block_degrees": ("block degrees", "black"),
    },
}
SHORT = 0.003  # a move that is drawn as a dot


def paper_values() -> pd.DataFrame:
    """The authors' numbers on Credit, of the scores that the bugs can touch.

    Their stored means, and for disparate impact, of which there are none, what the paper
    prints in Tab E3.

    Returns
    -------
    DataFrame
        The columns of NUMBER, and paper.

    Examples
    --------
    >>> len(paper_values())
    672
    """
    stored = authors.runs().query("dataset == 'credit'")
    parts = []
    for arm, prefix in ((Arm.BASE, "base_"), (Arm.CF, "")):
        for quantity in QUANTITIES:
            value = stored[prefix + quantity]
            parts.append(stored.assign(arm=str(arm), quantity=quantity, paper=value))
    printed = authors.reported_values().query("table == 'tab:credit_di_all'")
    printed = printed.assign(c=printed["c"].astype(float), paper=printed["value"])
    both = pd.concat([*parts, printed], ignore_index=True)
    both = both[both["score"].isin(set().union(*TOUCHED.values()))]
    return both[[*NUMBER, "paper"]].reset_index(drop=True)


def moves(rows: pd.DataFrame) -> pd.DataFrame:
    """How far each bug moves each number, in the mean over re-splits.

    Parameters
    ----------
    rows : DataFrame
        Of `errata_runs.run` or `errata_runs.run_cfgnn`.

    Returns
    -------
    DataFrame
        erratum, the columns of NUMBER, before, after, paper, splits; `distinct` is False
        where the same measurement stands further up (the base predictor's sets are the
        same for every metric and both kinds of λ); `row` is a name that stays.
    """
    table = _before_and_after(rows, NUMBER)
    table = table.merge(paper_values(), on=NUMBER, how="left", validate="many_to_one")
    return _finished(table, rows)


def gcp_moves(rows: pd.DataFrame) -> pd.DataFrame:
    """How far a solver that stops early moves BatchGCP, in the mean over re-splits.

    Parameters
    ----------
    rows : DataFrame
        Of `errata_runs.run_gcp`.

    Returns
    -------
    DataFrame
        As `moves` has it. There is no c and no kind of λ, and the paper has no such
        numbers on Credit. A third quantity is the gap as the authors scored it,
        "disparity_true_label".
    """
    parts = []
    for quantity, (column, scored_on) in GCP_QUANTITIES.items():
        part = rows[rows["scored_on"] == scored_on]
        part = part[part["metric"].isin(batch_gcp.COMPARED)]
        parts.append(part.assign(quantity=quantity, value=part[column]))
    long = pd.concat(parts).assign(score=batch_gcp.SCORE)
    table = _before_and_after(long, ["score", "arm", "metric", "quantity"])
    table = table.assign(c=np.nan, classwise=None, paper=np.nan)
    return _finished(table, rows)


def _before_and_after(rows: pd.DataFrame, number: list[str]) -> pd.DataFrame:
    """The means over re-splits of each number without a bug and with each."""
    means = rows.groupby(["erratum", *number], sort=False)["value"].mean().reset_index()
    is_before = means["erratum"].map(is_baseline)
    before = means[is_before].rename(columns={"erratum": "without", "value": "before"})
    after = means[~is_before].rename(columns={"value": "after"})
    after["without"] = after["erratum"].map(baseline)
    both = after.merge(before, on=["without", *number], validate="many_to_one")
    return both.drop(columns="without")


def _finished(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The columns of `moves`, in their order."""
    table = table.assign(
        splits=_n_splits(rows),
        distinct=_is_distinct(table),
        row=[row_name(row) for row in table.to_dict("records")],
    )
    columns = [
        "erratum",
        *NUMBER,
        "before",
        "after",
        "paper",
        "splits",
        "distinct",
        "row",
    ]
    return table[columns]


def _n_splits(rows: pd.DataFrame) -> int:
    """How many re-splits there are, or are in the means."""
    if "splits" in rows:
        return int(rows["splits"].max())
    return rows["split"].nunique()


def _is_distinct(table: pd.DataFrame) -> pd.Series:
    """Whether no row further up has the same measurement.

    That is one with the same mean before and after, and the same number of the paper to
    three digits: disparate impact is printed with three.
    """
    paper = table["paper"].round(3)
    same = ["erratum", "score", "quantity", "before", "after", "paper"]
    return ~table.assign(paper=paper).duplicated(same)


def row_name(row: Mapping[Any, Any]) -> str:
    """The name of a row of results/errata.csv.

    Parameters
    ----------
    row : mapping
        With erratum and the columns of NUMBER. Where there is no c or no kind of λ, the
        name has a dash.

    Returns
    -------
    str

    Examples
    --------
    >>> number = {"erratum": "self_loops", "score": "daps", "arm": "cf", "c": 0.8}
    >>> number |= {"metric": "disparate_impact", "classwise": True}
    >>> row_name(number | {"quantity": "efficiency"})
    'self_loops/daps/cf/disparate_impact/0.8/classwise/efficiency'
    """
    c = "-" if np.isnan(row["c"]) else f"{row['c']:g}"
    kind = KINDS.get(row["classwise"], "-")
    places = [row["erratum"], row["score"], row["arm"], row["metric"], c, kind]
    return "/".join([*places, row["quantity"]])


def summary(moved: pd.DataFrame) -> pd.DataFrame:
    """How many numbers each bug moves towards the paper's, and how far from it they are.

    Parameters
    ----------
    moved : DataFrame
        Of `moves`; the distinct numbers count.

    Returns
    -------
    DataFrame
        By erratum, score, arm and quantity: numbers, towards, away, unmoved; median and
        largest distance from the paper's number, before and after.

    Examples
    --------
    >>> one = {"erratum": "quantile", "score": "tps", "arm": "cf", "distinct": True}
    >>> one |= {"quantity": "efficiency", "before": 2.0, "after": 2.1, "paper": 2.2}
    >>> summary(pd.DataFrame([one]))[["numbers", "towards", "away"]].values.tolist()
    [[1, 1, 0]]
    """
    own = moved[moved["distinct"] & moved["paper"].notna()]
    before = (own["before"] - own["paper"]).abs()
    after = (own["after"] - own["paper"]).abs()
    table = own.assign(
        towards=after < before,
        away=after > before,
        unmoved=own["after"] == own["before"],
        distance_before=before,
        distance_after=after,
    )
    by_bug = table.groupby(["erratum", "score", "arm", "quantity"], sort=False)
    return by_bug.agg(
        numbers=("towards", "size"),
        towards=("towards", "sum"),
        away=("away", "sum"),
        unmoved=("unmoved", "sum"),
        median_before=("distance_before", "median"),
        median_after=("distance_after", "median"),
        largest_before=("distance_before", "max"),
        largest_after=("distance_after", "max"),
    )


def save(moved: pd.DataFrame) -> Path:
    """Write the table to results/errata.csv, whole or not at all.

    Parameters
    ----------
    moved : DataFrame
        Of `moves`.

    Returns
    -------
    Path
    """
    path = paths.RESULTS / FILE
    with paths.atomic_write(path) as unfinished:
        moved.round(6).to_csv(unfinished, index=False)
    return path


def intervals(training: pd.DataFrame) -> pd.DataFrame:
    """Whether the paper's number is inside the yardstick of each tuning.

    Parameters
    ----------
    training : DataFrame
        Of `errata_runs.run_training_splits`.

    Returns
    -------
    DataFrame
        tuning, the columns of NUMBER, mean over training splits, low, high, paper and
        inside.
    """
    keys = ["tuning", *NUMBER]
    rows = []
    for setting, means in training.groupby(keys, sort=False)["value"]:
        low, high = prediction_interval(means)
        own = {"mean": means.mean(), "low": low, "high": high}
        rows.append(dict(zip(keys, setting, strict=True)) | own)
    table = pd.DataFrame(rows).merge(paper_values(), on=NUMBER, validate="many_to_one")
    return table.assign(inside=table["paper"].between(table["low"], table["high"]))


def arrows(moved: pd.DataFrame, score: str = "daps", c: float = 0.1) -> Figure:
    """Where each bug moves the numbers of a score, as arrows; the paper's are at 0.

    Parameters
    ----------
    moved : DataFrame
        Of `moves`, with each switch of the score.
    score : {"daps", "cfgnn"}
    c : float
        Of the metrics that compare by a difference.

    Returns
    -------
    Figure
        Efficiencies left, disparities right; a line per number, on it an arrow per bug.
        At the right edge stands the paper's number.
    """
    looks = ARROWS[one_of(score, "score", tuple(ARROWS))]
    is_ratio = moved["metric"] == "disparate_impact"
    own = moved[(moved["score"] == score) & (is_ratio | (moved["c"] == c))]
    fig, axes = plt.subplots(1, len(PANELS), figsize=(10, 9.5))
    for ax, quantity in zip(axes, PANELS, strict=True):
        part = own[own["quantity"] == quantity]
        _draw_arrows(ax, _drawn_numbers(quantity), part, looks)
        ax.set(title=PANELS[quantity], xlabel="ours − the paper's")
    others = [("ours without it", "0.55"), ("the paper's", "crimson")]
    handles = []
    for name, colour in [*looks.values(), *others]:
        handles.append(Line2D([], [], color=colour, lw=2, label=name))
    fig.legend(handles=handles, loc="outside lower center", ncols=4)
    n_splits = own["splits"].max()
    what = "each switch alone"
    if "together" in looks:
        what = "each bug alone, and all together"
    fig.suptitle(
        f"{score.upper()} on Credit by age: {what} · "
        f"c = {c:g}, DI 0.8 · {n_splits} re-splits"
    )
    return fig


def _drawn_numbers(quantity: str) -> list[tuple[str, str, bool]]:
    """Metric, arm and classwise of the numbers that a panel has, from above.

    The efficiency of the base predictor is the same for all metrics. The gaps with one λ
    are left out: they are at c, as those with several are.
    """
    numbers = []
    for arm, classwise in SECTIONS:
        for metric in METRIC_NAMES:
            is_base_size = quantity == "efficiency" and arm == "base"
            is_repeated = is_base_size and metric != "demographic_parity"
            is_left_out = quantity == "disparity" and (arm, classwise) == ("cf", False)
            if not is_repeated and not is_left_out:
                numbers.append((metric, arm, classwise))
    return numbers


def _draw_arrows(
    ax: Axes,
    numbers: list[tuple[str, str, bool]],
    part: pd.DataFrame,
    looks: Mapping[str, tuple[str, str]],
) -> None:
    """A line per number, and on it an arrow per bug."""
    by_number = part.set_index(["metric", "arm", "classwise", "erratum"])
    values = by_number[["before", "after", "paper"]].to_dict("index")
    labels = []
    for place, number in enumerate(numbers):
        labels.append(_number_name(number, numbers))
        if place % 2:
            ax.axhspan(place - 0.5, place + 0.5, color="0.95", lw=0)
        lane = 0.8 / len(looks)
        for at, (name, (_, colour)) in enumerate(looks.items()):
            found = values[*number, name]
            y = place + lane * (at + 0.5) - 0.4
            begin = found["before"] - found["paper"]
            end = found["after"] - found["paper"]
            ax.plot([begin, end], [y, y], color=colour, lw=1.6)
            ax.plot(end, y, marker=_head(end - begin), color=colour, ms=4.5)
            ax.vlines(begin, y - lane / 2, y + lane / 2, color="0.55", lw=1.2)
        _write_beside(ax, place, f"{found['paper']:.3f}")
    _write_beside(ax, -0.75, "paper's")
    ax.axvline(0, color="crimson", lw=1.5, zorder=1)
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")


def _number_name(
    number: tuple[str, str, bool], numbers: list[tuple[str, str, bool]]
) -> str:
    """What the axis says of a number; the metric only where there are several."""
    metric, arm, classwise = number
    section = SECTIONS[arm, classwise]
    n_metrics = [other[1:] for other in numbers].count((arm, classwise))
    if n_metrics == 1:
        return section
    return f"{section} · {METRIC_NAMES[metric]}"


def _head(move: float) -> str:
    """The marker at the end of an arrow; a dot where it is too short to point."""
    if abs(move) < SHORT:
        return "o"
    return ">" if move > 0 else "<"


def _write_beside(ax: Axes, y: float, text: str) -> None:
    """Text right of the axes, at the height y."""
    place = ax.get_yaxis_transform()
    ax.text(1.01, y, text, transform=place, va="center", fontsize=9)
