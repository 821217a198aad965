"""One panel of bars, and the numbers of splits below it."""

import math
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from cfhelpers.control import Guarantee
from cfhelpers.study import authors
from cfhelpers.study.figure_texts import (
    cluster_column,
    cluster_name,
    clusters_in_order,
)
from cfhelpers.study.names import DataKind

SMALL = 14  # points; figures are twice as wide as a page, so this is 7 on the page
LARGE = 16
QUANTITIES = ("efficiency", "disparity")
LEAST_SIZE = 1.0  # the least that a set should hold, where bars of sizes begin
DOT: dict[str, Any] = {"color": "black", "marker": "o", "ls": "", "ms": 5.5}
DIAMOND: dict[str, Any] = {
    "color": "0.1",
    "marker": "D",
    "ls": "",
    "mfc": "white",
    "ms": 6,
    "mew": 1.2,
}
DASHES: dict[str, Any] = {"color": "black", "ls": (0, (2, 1)), "lw": 1.8}
RED: dict[str, Any] = {"color": "crimson", "ls": "-", "lw": 2}  # BatchGCP
DOTTED: dict[str, Any] = {"color": "0.4", "ls": ":", "lw": 1.5}
OUTLINE = [withStroke(linewidth=4.5, foreground="white")]
AUTHORS: dict[str, Any] = {"color": "#c2009a", "ls": "-", "lw": 3}
AUTHORS_BASE: dict[str, Any] = {"color": "#c2009a", "ls": (0, (2, 1)), "lw": 1.8}


@dataclass(frozen=True)
class CountLine:
    """A line of numbers of splits: its name, whose rows, and the column to count."""

    name: str
    guarantee: Guarantee
    column: str

    @property
    def color_map(self) -> str:
        if self.column == "infinite":
            return "Greys"
        return "Reds"


COUNT_LINES = {
    "beyond": (
        CountLine("base", Guarantee.NONE, "base_beyond"),
        CountLine("paper's rule", Guarantee.NONE, "beyond"),
        CountLine("guarantee", Guarantee.FIXED_SEQUENCE, "beyond"),
    ),
    "infinite": (
        CountLine("paper's rule", Guarantee.NONE, "infinite"),
        CountLine("guarantee", Guarantee.FIXED_SEQUENCE, "infinite"),
    ),
}
N_LINES = max(map(len, COUNT_LINES.values()))
MARKED = (DataKind.SIMULATED, DataKind.FORMER)  # told across a panel


def is_simulated(rows: pd.DataFrame) -> bool:
    """Whether any of the rows comes from simulated records.

    Parameters
    ----------
    rows : DataFrame

    Returns
    -------
    bool
    """
    return bool(rows["data"].eq(DataKind.SIMULATED).any())


def authors_means(rows: pd.DataFrame, column: str = "metric") -> pd.DataFrame:
    """The authors' means for the settings of some rows.

    Parameters
    ----------
    rows : DataFrame
        Of one dataset and attribute.
    column : "metric" or "score"
        What clusters of bars are by.

    Returns
    -------
    DataFrame
        By cluster and c: efficiency, disparity, base_efficiency and base_disparity. Empty
        for simulated records and former models: nothing is compared with theirs.

    Examples
    --------
    >>> rows = pd.DataFrame({
    ...     "dataset": ["credit"],
    ...     "attribute": ["age"],
    ...     "data": ["the paper's"],
    ...     "classwise": [True],
    ...     "score": ["tps"],
    ...     "metric": ["demographic_parity"],
    ...     "c": [0.05],
    ... })
    >>> authors_means(rows)["base_efficiency"].round(3).tolist()
    [2.268]
    """
    keys = ["dataset", "attribute", "classwise", "score", "metric", "c"]
    stored = authors.runs().round({"c": 6})
    if rows["data"].isin(MARKED).any():
        stored = stored.head(0)
    asked = rows[keys].round({"c": 6}).drop_duplicates()
    names = [*QUANTITIES, *(f"base_{quantity}" for quantity in QUANTITIES)]
    return asked.merge(stored, on=keys).set_index([column, "c"])[names]


def bar_places(rows: pd.DataFrame) -> pd.Series:
    """Where the bars stand, by cluster and c.

    Parameters
    ----------
    rows : DataFrame

    Returns
    -------
    Series
    """
    closeness = sorted(set(rows["c"].round(6)))
    index = pd.MultiIndex.from_product([clusters_in_order(rows), closeness])
    places = np.arange(len(index))
    return pd.Series(places + 0.6 * (places // len(closeness)), index)


def draw_bars(ax: Axes, rows: pd.DataFrame, quantity: str, granular: bool) -> None:
    """Means and deviations over the splits, and the authors' means.

    Bars are by the paper's rule, diamonds with a guarantee. Bars of sizes stand on the
    base predictor's: their length is what fairness costs.

    Parameters
    ----------
    ax : Axes
    rows : DataFrame
    quantity : "efficiency" or "disparity"
    granular : bool
        Whether the base predictor has bars of its own.
    """
    x = bar_places(rows)
    base = f"base_{quantity}"
    keys = [rows["guarantee"], rows[cluster_column(rows)], rows["c"].round(6)]
    columns = [quantity, base, "feasible"]
    table = rows.groupby(keys)[columns].agg(["mean", "std"])
    by_rule = table.loc[Guarantee.NONE].reindex(x.index)
    promised = table.loc[Guarantee.FIXED_SEQUENCE].reindex(x.index)
    middle = x + 0.24 if granular else x
    width = 0.45 if granular else 0.9
    mean = by_rule[quantity, "mean"]
    floor: Any = 0.0
    if quantity == "efficiency":
        floor = LEAST_SIZE if granular else by_rule[base, "mean"]
    colors = _bar_colors(x.index.get_level_values(1), by_rule["feasible", "mean"])
    ax.bar(middle, mean - floor, width, floor, color=colors, edgecolor=colors, lw=1.5)
    _draw_base(ax, x, by_rule[base, "mean"], by_rule[base, "std"], floor, granular)
    draw_authors(ax, rows, quantity, x, granular)
    draw_deviations(ax, middle - width / 4, mean, by_rule[quantity, "std"])
    sd = promised[quantity, "std"].fillna(0)
    at = middle + width / 4
    ax.errorbar(at, promised[quantity, "mean"], sd, **DIAMOND, elinewidth=1.2, zorder=4)
    if quantity == "disparity":
        is_asked = mean.notna()
        closeness = x.index.get_level_values(1)[is_asked]
        ax.plot(middle[is_asked], closeness, **DOT, zorder=5)
    ax.grid(visible=False, axis="x")
    ax.set_xlim(x.iloc[0] - 0.6, x.iloc[-1] + 0.6)


def draw_deviations(ax: Axes, x: Any, mean: pd.Series, sd: pd.Series) -> None:
    """Error bars; of one split alone, which has no deviation, none is seen.

    Parameters
    ----------
    ax : Axes
    x : positions
    mean, sd : Series
    """
    ax.errorbar(x, mean, sd.fillna(0), fmt="none", ecolor="0.2", elinewidth=1.5, zorder=3)


def _bar_colors(
    closeness: pd.Index, shares_feasible: pd.Series
) -> list[tuple[str, float]]:
    """A colour per c, the paler the more splits have no finite λ."""
    places, _ = closeness.factorize(sort=True)
    colors = []
    for place, share in zip(places, shares_feasible.fillna(1), strict=True):
        colors.append((f"C{place}", 0.35 + 0.65 * share))
    return colors


def _draw_base(
    ax: Axes, x: pd.Series, mean: pd.Series, sd: pd.Series, floor: Any, granular: bool
) -> None:
    """The base predictor: bars of its own, or a dashed line and a band on each bar."""
    sd = sd.fillna(0)
    if granular:
        ax.bar(x - 0.24, mean - floor, 0.45, floor, color="0.75", lw=0)
        draw_deviations(ax, x - 0.24, mean, sd)
    else:
        ax.bar(x, 2 * sd, 1, mean - sd, color="0.5", alpha=0.3, lw=0)
        ax.hlines(mean, x - 0.5, x + 0.5, **DASHES)


def draw_authors(
    ax: Axes, rows: pd.DataFrame, quantity: str, x: pd.Series, granular: bool = False
) -> None:
    """The authors' means: a line on each bar, dashes for their base predictor.

    Parameters
    ----------
    ax : Axes
    rows : DataFrame
    quantity : "efficiency" or "disparity"
    x : Series
        Where the bars stand, by cluster and c.
    granular : bool
    """
    means = authors_means(rows, cluster_column(rows)).reindex(x.index).dropna()
    at = x.loc[means.index]
    half = 0.22 if granular else 0.42
    middle = at + 0.24 if granular else at
    ax.hlines(
        means[quantity],
        middle - half,
        middle + half,
        **AUTHORS,
        path_effects=OUTLINE,
        zorder=3.5,
    )
    if granular:
        left = at - 0.46
        right = at - 0.02
    else:
        left = at - 0.5
        right = at + 0.5
    ax.hlines(means[f"base_{quantity}"], left, right, **AUTHORS_BASE, zorder=2.8)


def draw_counts(ax: Axes, rows: pd.DataFrame, counted: str) -> None:
    """In how many splits the gap is beyond c, or no finite λ was left.

    Larger numbers stand on darker ground.

    Parameters
    ----------
    ax : Axes
    rows : DataFrame
    counted : "beyond" or "infinite"
    """
    x = bar_places(rows)
    keys = [rows["guarantee"], rows[cluster_column(rows)], rows["c"].round(6)]
    grouped = rows.assign(infinite=~rows["feasible"]).groupby(keys)
    lines = COUNT_LINES[counted]
    for y, line in enumerate(lines):
        table = grouped[line.column].agg(["sum", "mean"])
        found = table.loc[line.guarantee].reindex(x.index).dropna()
        ground = mpl.colormaps[line.color_map](0.75 * found["mean"])
        at = x.loc[found.index]
        ax.bar(at, 0.92, 0.94, y + 0.04, color=ground, lw=0)
        for place, number, share in zip(at, found["sum"], found["mean"], strict=True):
            _write_count(ax, place, y + 0.53, number, share)
    middles = [y + 0.5 for y in range(len(lines))]
    ax.set_yticks(middles, [line.name for line in lines], fontsize=SMALL)
    middle = x.groupby(level=0, sort=False).mean()
    names = [cluster_name(str(name)) for name in middle.index]
    ax.set_xticks(middle, names, fontsize=LARGE)
    ax.tick_params(length=0, pad=2)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_xlim(x.iloc[0] - 0.6, x.iloc[-1] + 0.6)
    ax.set_ylim(N_LINES, 0)


def _write_count(ax: Axes, x: float, y: float, number: float, share: float) -> None:
    """A number of splits, readable on its ground; pale where it is 0."""
    if share > 0.6:
        color = "white"
    elif number:
        color = "0.15"
    else:
        color = "0.75"
    ax.text(x, y, f"{number:.0f}", fontsize=SMALL, color=color, ha="center", va="center")


def fit_sizes(axes: list[Axes], n_labels: float, granular: bool) -> bool:
    """One axis of set sizes for several panels, from just below the smallest.

    Parameters
    ----------
    axes : list of Axes
    n_labels : float
        Infinite where the rows do not say it.
    granular : bool
        Bars then begin at LEAST_SIZE, and so does the axis.

    Returns
    -------
    bool
        Whether all labels are in sight; then a dotted line is drawn there.
    """
    limits = [ax.dataLim.intervaly for ax in axes]
    low = min(low for low, _ in limits)
    high = max(high for _, high in limits)
    low = LEAST_SIZE if granular else math.floor(10 * low - 0.3) / 10
    sees_all = high > n_labels - 0.15 * (high - low)
    top = max(n_labels, high) if sees_all else high
    for ax in axes:
        ax.set_ylim(low, top + 0.06 * (top - low))
        if sees_all:
            ax.axhline(n_labels, **DOTTED)
    return sees_all


def fit_gaps(axes: list[Axes]) -> None:
    """One axis of gaps for several panels; it ends at 0, though deviations may not.

    Parameters
    ----------
    axes : list of Axes
    """
    top = 1.06 * max(ax.dataLim.intervaly[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(-0.03 * top, top)


def mark_simulated(ax: Axes, rows: pd.DataFrame) -> None:
    """The word "simulated" across a panel, if its records are; or "former model".

    Parameters
    ----------
    ax : Axes
    rows : DataFrame
    """
    marked = [kind for kind in MARKED if rows["data"].eq(kind).any()]
    if marked:
        figure = ax.get_figure(root=True)
        assert figure is not None
        inches = ax.get_position().width * figure.get_size_inches()[0]
        word = str(marked[0])
        ax.text(
            0.5,
            0.5,
            word,
            transform=ax.transAxes,
            rotation=10,
            fontsize=min(58, 117 * inches / len(word)),
            color="0.5",
            alpha=0.25,
            ha="center",
            va="center",
            zorder=6,
        )
