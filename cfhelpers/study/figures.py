"""The figures of the paper's results, from rows of `experiments` and `batch_gcp`."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.stats import betabinom

from cfhelpers._checks import one_of
from cfhelpers.control import TOLERANCE, Guarantee
from cfhelpers.plots import RULES
from cfhelpers.study.names import Arm
from cfhelpers.study.tables import DATASETS

# As short as an axis wants them, in the order in which they are drawn.
METRIC_NAMES = {
    "demographic_parity": "DP",
    "equal_opportunity": "EO",
    "predictive_equality": "PE",
    "equalized_odds": "EOdds",
}
QUANTITY_NAMES = {
    "efficiency": "labels in a set (mean)",
    "disparity": "gap between groups",
}
THRESHOLD_NAMES = {False: "single λ", True: "classwise λ"}
COUNTS = "splits"  # a panel that has all lines of COUNT_LINES
DOT: dict[str, Any] = {"color": "black", "marker": "o", "ls": "", "ms": 3.5}
DIAMOND: dict[str, Any] = {
    "color": "0.1",
    "marker": "D",
    "ls": "",
    "mfc": "white",
    "ms": 4,
    "mew": 0.9,
}
DASHES: dict[str, Any] = {"color": "black", "ls": (0, (2, 1)), "lw": 1.3}
RED: dict[str, Any] = {"color": "crimson", "ls": "-", "lw": 1.5}  # BatchGCP
DOTTED: dict[str, Any] = {"color": "0.4", "ls": ":", "lw": 1}


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


COUNT_LINES: tuple[CountLine, ...] = (
    CountLine("beyond c: base", Guarantee.NONE, "base_beyond"),
    CountLine("the paper's rule", Guarantee.NONE, "beyond"),
    CountLine("with a guarantee", Guarantee.FIXED_SEQUENCE, "beyond"),
    CountLine("λ = ∞: the paper's rule", Guarantee.NONE, "infinite"),
    CountLine("with a guarantee", Guarantee.FIXED_SEQUENCE, "infinite"),
)


@dataclass(frozen=True)
class Panel:
    """Some rows, and what to draw of them.

    `content` is a quantity, for bars; or for numbers of splits COUNTS, "beyond" or
    "infinite".
    """

    rows: pd.DataFrame
    content: str
    score: str = ""

    @property
    def has_bars(self) -> bool:
        return self.content in QUANTITY_NAMES


def fairness_bars(
    rows: pd.DataFrame, classwise: bool, title: str = "", granular: bool = False
) -> Figure:
    """Set sizes above, gaps below them, then numbers of splits.

    There is a column per score, in it a cluster per metric and in that a bar per c.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments.run`.
    classwise : bool
        Whether to draw the rows with one λ for each label, or those with a single λ.
    title : str
        How the title begins; data, model and splits follow.
    granular : bool
        Go score by score, with a bar of the base predictor beside every other.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = fairness_bars(_example_rows(), classwise=True, title="Fig 1")
    >>> fig.get_suptitle()
    'Fig 1 · Credit by age (real) · xgboost · classwise λ · 2 splits'
    >>> plt.close(fig)
    """
    by_score = _rows_by_score(rows, classwise)
    lines = []
    if granular:
        for score, part in by_score:
            lines.append([Panel(part, quantity, score) for quantity in QUANTITY_NAMES])
            counts = ("infinite", "beyond")
            lines.append([Panel(part, content, score) for content in counts])
    else:
        for content in (*QUANTITY_NAMES, COUNTS):
            lines.append([Panel(part, content, score) for score, part in by_score])
    return _draw_panels(lines, title, granular)


def single_and_classwise(rows: pd.DataFrame, quantity: str, title: str = "") -> Figure:
    """One quantity with a single λ for all labels above, and with one for each below.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments.run`.
    quantity : "efficiency" or "disparity"
    title : str

    Returns
    -------
    Figure
        As `fairness_bars` draws it.

    Examples
    --------
    >>> fig = single_and_classwise(_example_rows(), "disparity")
    >>> len(fig.axes)
    4
    >>> plt.close(fig)
    """
    one_of(quantity, "quantity", tuple(QUANTITY_NAMES))
    lines = []
    for classwise in THRESHOLD_NAMES:
        by_score = _rows_by_score(rows, classwise)
        for content in (quantity, COUNTS):
            lines.append([Panel(part, content, score) for score, part in by_score])
    return _draw_panels(lines, title)


def proxy_bars(rows: pd.DataFrame, classwise: bool, title: str = "") -> Figure:
    """The predictive parity proxy alone, with a cluster per score.

    Parameters
    ----------
    rows, classwise, title
        As in `fairness_bars`.

    Returns
    -------
    Figure

    Examples
    --------
    >>> rows = _example_rows().assign(metric="predictive_parity_proxy")
    >>> fig = proxy_bars(rows, classwise=True)
    >>> len(fig.axes)
    3
    >>> plt.close(fig)
    """
    rows = _rows_of(rows, ["predictive_parity_proxy"], classwise)
    lines = [[Panel(rows, content)] for content in (*QUANTITY_NAMES, COUNTS)]
    return _draw_panels(lines, title)


def _example_rows() -> pd.DataFrame:
    """Rows of two splits with the columns that the figures need, for the examples."""
    settings = pd.MultiIndex.from_product(
        [[False, True], list(RULES), [0.1, 0.2], [0, 1]],
        names=["classwise", "guarantee", "c", "split"],
    )
    return settings.to_frame(index=False).assign(
        dataset="credit",
        attribute="age",
        records="real",
        model="xgboost",
        score="aps",
        metric="demographic_parity",
        efficiency=2.5,
        disparity=0.09,
        beyond=False,
        base_efficiency=2.0,
        base_disparity=0.3,
        base_beyond=True,
        feasible=True,
        threshold=pd.Series([[0.9, 0.9]] * len(settings)),
    )


def _rows_of(
    rows: pd.DataFrame, metrics: Collection[str], classwise: bool
) -> pd.DataFrame:
    """The rows of these metrics and of one kind of λ; an error if there are none."""
    found = rows[rows["metric"].isin(metrics) & rows["classwise"].eq(classwise)]
    if found.empty:
        raise ValueError(
            f"rows: found none with {THRESHOLD_NAMES[classwise]} for "
            f"{', '.join(metrics)}; wanted some"
        )
    return found


def _rows_by_score(rows: pd.DataFrame, classwise: bool) -> list[tuple[str, pd.DataFrame]]:
    """The rows of the four metrics and of one kind of λ, score by score."""
    by_score = _rows_of(rows, METRIC_NAMES, classwise).groupby("score")
    return [(str(score), part) for score, part in by_score]


def _draw_panels(lines: list[list[Panel]], title: str, granular: bool = False) -> Figure:
    """A grid of panels; the title says whose rows they are."""
    heights = [_panel_height(line[0], granular) for line in lines]
    if len(lines[0]) > 1:
        width = 13.75
        n_legend_lines = 2
    else:
        width = 9.0
        n_legend_lines = 3
    fig, axes = plt.subplots(
        len(lines),
        len(lines[0]),
        figsize=(width, sum(heights) + 1.7),
        height_ratios=heights,
        sharex=True,
        squeeze=False,
    )
    panels = list(chain.from_iterable(lines))
    first_with: dict[str, Axes] = {}
    for ax, panel in zip(axes.flat, panels, strict=True):
        if panel.content in first_with:
            ax.sharey(first_with[panel.content])
        else:
            first_with[panel.content] = ax
        if panel.has_bars:
            _draw_bars(ax, panel.rows, panel.content, granular)
        else:
            _draw_counts(ax, panel.rows, panel.content)
    for line, line_of_axes in zip(lines, axes, strict=True):
        for panel, ax in zip(line, line_of_axes, strict=True):
            _title_panel(ax, panel, granular, is_top=ax in axes[0])
            at_left = ax is line_of_axes[0]
            if at_left and panel.has_bars and not granular:
                ax.set_ylabel(_axis_label(panel, has_both_kinds=len(lines) == 4))
            ax.tick_params(labelleft=granular or at_left, labelbottom=not panel.has_bars)
    if "disparity" in first_with:
        _begin_at_zero(first_with["disparity"])
    rows = pd.concat([panel.rows for panel in panels])
    subject = _subject(rows)
    fig.suptitle(f"{title} · {subject}" if title else subject, fontsize=12)
    marks = _legend_marks(sorted(set(rows["c"])), granular)
    n_columns = -(-len(marks) // n_legend_lines)
    _add_legend(fig, marks, n_columns)
    return fig


def _panel_height(panel: Panel, granular: bool) -> float:
    """Height in inches."""
    if panel.has_bars:
        return 2.4
    if granular:
        return 0.65
    return 1.0


def _title_panel(ax: Axes, panel: Panel, granular: bool, is_top: bool) -> None:
    """The score above its column; score by score, above every panel with bars."""
    if granular and panel.has_bars:
        ax.set_title(f"{panel.score.upper()}: {QUANTITY_NAMES[panel.content]}")
    elif is_top:
        ax.set_title(panel.score.upper())


def _axis_label(panel: Panel, has_both_kinds: bool) -> str:
    """The quantity, and the kind of λ where a figure has both."""
    quantity = QUANTITY_NAMES[panel.content]
    if not has_both_kinds:
        return quantity
    return f"{THRESHOLD_NAMES[panel.rows['classwise'].iloc[0]]}\n{quantity}"


def _begin_at_zero(ax: Axes) -> None:
    """Gaps end at 0, though bars of deviation may reach below it."""
    ax.set_ylim(bottom=-0.04 * ax.get_ylim()[1])


def _add_legend(fig: Figure, marks: dict[str, Any], n_columns: int) -> None:
    """The legend, below the panels."""
    fig.legend(
        list(marks.values()),
        list(marks),
        loc="outside lower center",
        ncols=n_columns,
        fontsize=9,
    )


def _subject(rows: pd.DataFrame) -> str:
    """What every title tells: dataset, attribute, source, model, kind of λ, splits."""
    row = rows.iloc[0]
    name = DATASETS.get(row["dataset"], row["dataset"])
    kinds = [THRESHOLD_NAMES[kind] for kind in sorted(set(rows["classwise"]))]
    facts = [
        f"{name} by {row['attribute']} ({row['records']})",
        row["model"],
        " and ".join(kinds),
        f"{rows['split'].nunique()} splits",
    ]
    return " · ".join(facts)


def _cluster_column(rows: pd.DataFrame) -> str:
    """What clusters of bars are by: the metric, or the score if there is one metric."""
    if rows["metric"].nunique() > 1:
        return "metric"
    return "score"


def _bar_places(rows: pd.DataFrame) -> pd.Series:
    """Where the bars stand, by cluster and c."""
    found = set(rows[_cluster_column(rows)])
    clusters = [name for name in METRIC_NAMES if name in found] or sorted(found)
    closeness = sorted(set(rows["c"]))
    index = pd.MultiIndex.from_product([clusters, closeness])
    places = np.arange(len(index))
    return pd.Series(places + 0.9 * (places // len(closeness)), index)


def _draw_bars(ax: Axes, rows: pd.DataFrame, quantity: str, granular: bool) -> None:
    """Means and deviations over the splits.

    Bars by the paper's rule, diamonds with a guarantee, and the base predictor.
    """
    x = _bar_places(rows)
    base = f"base_{quantity}"
    keys = ["guarantee", _cluster_column(rows), "c"]
    columns = [quantity, base, "feasible"]
    table = rows.groupby(keys)[columns].agg(["mean", "std"]).fillna(0)
    by_rule = table.loc[Guarantee.NONE].reindex(x.index)
    promised = table.loc[Guarantee.FIXED_SEQUENCE].reindex(x.index)
    if granular:
        middle = x + 0.24
        width = 0.45
        shift = 0.12
    else:
        middle = x
        width = 0.9
        shift = 0.2
    closeness = x.index.get_level_values(1)
    shares_feasible = by_rule["feasible", "mean"]
    colors = _bar_colors(closeness, shares_feasible)
    ax.bar(middle, by_rule[quantity, "mean"], width, color=colors)
    _draw_base(ax, x, by_rule[base, "mean"], by_rule[base, "std"], granular)
    ax.errorbar(
        middle - shift,
        by_rule[quantity, "mean"],
        by_rule[quantity, "std"],
        fmt="none",
        ecolor="0.2",
        elinewidth=1,
    )
    ax.errorbar(
        middle + shift,
        promised[quantity, "mean"],
        promised[quantity, "std"],
        **DIAMOND,
        elinewidth=0.9,
    )
    if quantity == "disparity":
        ax.plot(middle, closeness, **DOT)
    else:
        n_classes = len(rows["threshold"].iloc[0])
        ax.axhline(n_classes, **DOTTED)
    ax.grid(visible=False, axis="x")


def _bar_colors(
    closeness: pd.Index, shares_feasible: pd.Series
) -> list[tuple[str, float]]:
    """A colour per c, the paler the more splits have no finite λ."""
    places, _ = closeness.factorize(sort=True)
    colors = []
    for place, share in zip(places, shares_feasible, strict=True):
        colors.append((f"C{place}", 0.35 + 0.65 * share))
    return colors


def _draw_base(
    ax: Axes, x: pd.Series, mean: pd.Series, sd: pd.Series, granular: bool
) -> None:
    """The base predictor: bars of its own, or a dashed line and a band on each bar."""
    if granular:
        error_look = {"ecolor": "0.35", "elinewidth": 1}
        ax.bar(x - 0.24, mean, 0.45, color="0.75", lw=0, yerr=sd, error_kw=error_look)
    else:
        ax.bar(x, 2 * sd, 1, mean - sd, color="0.5", alpha=0.3, lw=0)
        ax.hlines(mean, x - 0.5, x + 0.5, **DASHES)


def _draw_counts(ax: Axes, rows: pd.DataFrame, content: str) -> None:
    """In how many splits the gap is beyond c, and in how many no finite λ was left.

    Larger numbers stand on darker ground.
    """
    x = _bar_places(rows)
    keys = ["guarantee", _cluster_column(rows), "c"]
    grouped = rows.assign(infinite=~rows["feasible"]).groupby(keys)
    lines = COUNT_LINES
    if content != COUNTS:
        lines = tuple(line for line in COUNT_LINES if content in line.column)
    for y, line in enumerate(lines):
        table = grouped[line.column].agg(["sum", "mean"])
        found = table.loc[line.guarantee].reindex(x.index)
        ground = mpl.colormaps[line.color_map](0.75 * found["mean"])
        ax.bar(x, 0.92, 0.92, y + 0.04, color=ground, lw=0)
        for place, number, share in zip(x, found["sum"], found["mean"], strict=True):
            _write_count(ax, place, y + 0.53, number, share)
    ax.set_ylim(max(len(lines), 3), 0)
    middles = [y + 0.5 for y in range(len(lines))]
    ax.set_yticks(middles, [line.name for line in lines], fontsize=8)
    middle = x.groupby(level=0, sort=False).mean()
    names = [METRIC_NAMES.get(name, name.upper()) for name in middle.index]
    ax.set_xticks(middle, names, fontsize=9)
    ax.grid(visible=False)
    sns.despine(ax=ax, left=True, bottom=True)


def _write_count(ax: Axes, x: float, y: float, number: float, share: float) -> None:
    """A number of splits, readable on its ground; pale where it is 0."""
    if share > 0.6:
        color = "white"
    elif number:
        color = "0.15"
    else:
        color = "0.75"
    ax.text(
        x,
        y,
        f"{number:.0f}",
        fontsize=6.5 if number < 10 else 6,
        color=color,
        ha="center",
        va="center",
        in_layout=False,
    )


def _legend_marks(closeness: list[float], granular: bool) -> dict[str, Any]:
    """What each mark says."""
    marks: dict[str, Any] = {}
    for place, c in enumerate(closeness):
        marks[f"c = {c:.2f}"] = Patch(color=f"C{place}")
    if granular:
        marks["base predictor, ± sd"] = Patch(color="0.75")
    else:
        band = Patch(color="0.5", alpha=0.3)
        marks["base predictor, ± sd"] = (band, Line2D([], [], **DASHES))
    marks |= _rule_marks()
    reds = mpl.colormaps["Reds"]
    greys = mpl.colormaps["Greys"]
    marks["number of splits with a gap beyond c"] = Patch(color=reds(0.6))
    marks["… in which no finite λ does (pale bars)"] = Patch(color=greys(0.6))
    marks["all labels"] = Line2D([], [], **DOTTED)
    return marks


def _rule_marks() -> dict[str, Any]:
    """The marks of c and of both rules."""
    bar = Patch(color="0.7")
    return {
        "c, the gap asked for": Line2D([], [], **DOT),
        "the paper's rule, ± sd over splits": (bar, Line2D([], [], color="0.2")),
        "with a guarantee, ± sd": Line2D([], [], **DIAMOND | {"ls": "-"}),
    }


def batch_gcp_bars(rows: pd.DataFrame, title: str = "") -> Figure:
    """BatchGCP beside conformal fairness: set sizes, and gaps scored in both ways.

    Gaps are those of demographic parity, of a fixed label and of the true label. Bars are
    by the paper's rule, diamonds with a guarantee; lines are the base predictor and
    BatchGCP, which know no c.

    Parameters
    ----------
    rows : DataFrame
        Of `batch_gcp.run`.
    title : str

    Returns
    -------
    Figure
    """
    rows = rows[rows["metric"] == "demographic_parity"].assign(classwise=True)
    on_fixed = rows[rows["scored_on"] == "fixed label"]
    on_true = rows[rows["scored_on"] == "true label"]
    fig, (sizes, fixed_gaps, true_gaps) = plt.subplots(1, 3, figsize=(11.5, 4.6))
    true_gaps.sharey(fixed_gaps)
    _draw_arms(sizes, on_fixed, "efficiency")
    _draw_arms(fixed_gaps, on_fixed, "disparity")
    _draw_arms(true_gaps, on_true, "disparity")
    for ax in (fixed_gaps, true_gaps):
        closeness = _asked_closeness(rows)
        ax.plot(range(len(closeness)), closeness, **DOT)
    _tell_splits_beyond(fixed_gaps, on_fixed)
    gap_name = QUANTITY_NAMES["disparity"]
    sizes.set_title(QUANTITY_NAMES["efficiency"], fontsize=11)
    fixed_gaps.set_title(f"{gap_name}, fixed label", fontsize=11)
    true_gaps.set_title(f"{gap_name}, true label", fontsize=11)
    _begin_at_zero(fixed_gaps)
    fig.suptitle(f"{title}\n{_subject(rows)}".strip(), fontsize=12)
    marks = {"base APS, ± sd": _band_mark(DASHES), "BatchGCP, ± sd": _band_mark(RED)}
    _add_legend(fig, marks | _rule_marks(), n_columns=5)
    return fig


def _asked_closeness(rows: pd.DataFrame) -> list[float]:
    """The values of c that conformal fairness was asked for, ascending."""
    return sorted(set(rows.loc[rows["arm"] == Arm.CF, "c"]))


def _draw_arms(ax: Axes, rows: pd.DataFrame, quantity: str) -> None:
    """One quantity of every arm of BatchGCP's rows, means and deviations over splits."""
    by_arm = rows.groupby(["arm", "c"], dropna=False)[quantity]
    table = by_arm.agg(["mean", "std"]).fillna(0)
    by_rule = table.loc[Arm.CF]
    promised = table.loc[Arm.CF_GUARANTEE]
    closeness = by_rule.index
    x = np.arange(len(closeness))
    ax.bar(x, by_rule["mean"], 0.85, color=[f"C{place}" for place in x])
    for arm, look in ((Arm.BATCH_GCP, RED), (Arm.BASE, DASHES)):
        mean, sd = table.loc[arm].iloc[0]
        color = look["color"]
        ax.axhspan(mean - sd, mean + sd, color=color, alpha=0.15, lw=0, zorder=0.5)
        ax.axhline(mean, **look)
    ax.errorbar(
        x - 0.15,
        by_rule["mean"],
        by_rule["std"],
        fmt="none",
        ecolor="0.2",
        elinewidth=1,
    )
    ax.errorbar(x + 0.15, promised["mean"], promised["std"], **DIAMOND, elinewidth=0.9)
    ax.set_xticks(x, [f"c = {c:.2f}" for c in closeness], fontsize=9)
    ax.grid(visible=False, axis="x")


def _tell_splits_beyond(ax: Axes, rows: pd.DataFrame) -> None:
    """Write below each c in how many splits the gap is beyond it, by both rules."""
    n_splits = rows["split"].nunique()
    is_beyond = rows["disparity"] > rows["c"] + TOLERANCE
    counts = is_beyond.groupby([rows["arm"], rows["c"]]).sum()
    names = []
    for c in _asked_closeness(rows):
        ruled = counts[Arm.CF, c]
        promised = counts[Arm.CF_GUARANTEE, c]
        names.append(f"c = {c:.2f}\n{ruled} of {n_splits}\n{promised} of {n_splits}")
    ax.set_xlabel(
        "splits beyond c: by the paper's rule,\nand below it with a guarantee", fontsize=9
    )
    ax.set_xticks(range(len(names)), names, fontsize=9)


def _band_mark(look: dict[str, Any]) -> tuple[Patch, Line2D]:
    """The legend's mark of a line with its band."""
    return Patch(color=look["color"], alpha=0.15), Line2D([], [], **look)


def group_coverage_dots(rows: pd.DataFrame, alpha: float = 0.1) -> Figure:
    """True-label coverage by group, of the base predictor and of BatchGCP.

    Parameters
    ----------
    rows : DataFrame
        Of `batch_gcp.run`, of one dataset or several.
    alpha : float
        The allowed miscoverage.

    Returns
    -------
    Figure
        A panel per dataset, large groups first. Grey: where nine splits of ten lie if the
        threshold is the group's own conformal quantile of as many calibration points as
        there are test points.
    """
    by_dataset = rows[rows["metric"] == "group_coverage"].groupby("dataset", sort=False)
    n_panels = by_dataset.ngroups
    fig, axes = plt.subplots(
        1, n_panels, figsize=(5.75 * n_panels, 4.8), sharey=True, squeeze=False
    )
    for ax, (dataset, part) in zip(axes[0], by_dataset, strict=True):
        _draw_group_dots(ax, part, alpha)
        name = DATASETS.get(str(dataset), str(dataset))
        n_splits = part["split"].nunique()
        records = part["records"].iloc[0]
        ax.set_title(f"{name} · {n_splits} splits\n{records}", fontsize=11)
        ax.grid(visible=False, axis="x")
    axes[0, 0].set_ylabel("coverage of the true label")
    handles, names = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=2)
    return fig


def _draw_group_dots(ax: Axes, rows: pd.DataFrame, alpha: float) -> None:
    """Mean coverage of every group by both predictors, over the range of its law."""
    n = rows.groupby("group")["n"].mean().round().sort_values(ascending=False)
    rank = np.ceil((n + 1) * (1 - alpha) - 1e-9)
    x = np.arange(len(n))
    low = betabinom.ppf(0.05, n, rank, n + 1 - rank) / n
    high = betabinom.ppf(0.95, n, rank, n + 1 - rank) / n
    ax.use_sticky_edges = False
    ax.bar(x, high - low, 0.7, low, color="0.88", lw=0)
    ax.axhline(1 - alpha, **DOTTED)
    looks: dict[Arm, dict[str, Any]] = {
        Arm.BASE: {"fmt": "ko", "label": "base APS"},
        Arm.BATCH_GCP: {"fmt": "s", "label": "BatchGCP", "color": RED["color"]},
    }
    for shift, (arm, look) in zip((-0.12, 0.12), looks.items(), strict=True):
        by_group = rows[rows["arm"] == arm].groupby("group")["coverage"]
        table = by_group.agg(["mean", "std"]).fillna(0).loc[n.index]
        ax.errorbar(x + shift, table["mean"], table["std"], ms=5, elinewidth=1.2, **look)
    names = [f"{group} ({size:,.0f})" for group, size in n.items()]
    ax.set_xticks(x, names, rotation=35, ha="right", fontsize=9)
