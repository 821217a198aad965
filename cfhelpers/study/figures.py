"""The figures of the paper's results, from rows of `experiments` and `batch_gcp`.

They are drawn twice as wide as a page, with letters of twice the size.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.stats import betabinom

from cfhelpers._checks import one_of
from cfhelpers.control import TOLERANCE
from cfhelpers.plots import RULES
from cfhelpers.study.bars import (
    AUTHORS,
    AUTHORS_BASE,
    DASHES,
    DIAMOND,
    DOT,
    DOTTED,
    LARGE,
    N_LINES,
    RED,
    SMALL,
    authors_means,
    draw_authors,
    draw_bars,
    draw_counts,
    draw_deviations,
    fit_gaps,
    fit_sizes,
    mark_simulated,
)
from cfhelpers.study.figure_texts import (
    METRIC_NAMES,
    THRESHOLD_NAMES,
    dataset_title,
    deviation_words,
    records_and_model,
    smallest_cells_line,
    subject,
    widest_lines,
    wrapped,
)
from cfhelpers.study.names import Arm

QUANTITY_NAMES = {"efficiency": "labels in a set", "disparity": "gap between groups"}
COUNTED = {"efficiency": "infinite", "disparity": "beyond"}  # below each quantity
BASE_HEAD = "Widest gap, base predictor"
# Inches.
WIDTH = 13.0
LEFT = 1.3  # of each panel: room for the names of its lines of numbers
BARS = 1.75
LINE = 0.24
NAMES = 0.36  # of clusters, below the numbers
GAP = 0.22
TITLE = 0.34
# Letters in a line of text.
FULL_LINE = 112
HALF_LINE = 62


@dataclass(frozen=True)
class Panel:
    """Some rows, the quantity to draw of them, and a title."""

    rows: pd.DataFrame
    quantity: str
    title: str


@dataclass(frozen=True)
class Block:
    """Panels side by side, and lines of text below them: in halves, then full."""

    panels: list[Panel]
    halves: list[tuple[list[str], list[str]]] = field(default_factory=list)
    full: list[str] = field(default_factory=list)

    @property
    def n_lines(self) -> int:
        """Lines of text."""
        n_halves = sum(max(len(left), len(right)) for left, right in self.halves)
        return n_halves + len(self.full)

    @property
    def height(self) -> float:
        """Height in inches."""
        return TITLE + BARS + (N_LINES + self.n_lines) * LINE + NAMES + GAP


def fairness_bars(
    rows: pd.DataFrame, classwise: bool, title: str = "", granular: bool = False
) -> Figure:
    """Set sizes at the left, gaps at the right, numbers of splits below them.

    There is a line of panels per score, in each panel a cluster per metric, and in that a
    bar per c. Lines of text name the cells between which the gap is.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments.run`.
    classwise : bool
        Whether to draw the rows with one λ for each label, or those with a single λ.
    title : str
        How the title begins; data, model and splits follow.
    granular : bool
        Have a bar of the base predictor beside every other.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = fairness_bars(_example_rows(), classwise=True, title="Fig 1")
    >>> print(fig.get_suptitle())
    Fig 1 · Credit by age · classwise λ
    real · XGBoost
    >>> plt.close(fig)
    """
    blocks = []
    for score, part in _rows_by_score(rows, classwise):
        blocks.append(_sizes_and_gaps(part, score))
    return _draw_blocks(blocks, title, granular)


def single_and_classwise(rows: pd.DataFrame, quantity: str, title: str = "") -> Figure:
    """One quantity with a single λ for all labels at the left, with one for each right.

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
    blocks = []
    kinds = [_rows_by_score(rows, classwise) for classwise in THRESHOLD_NAMES]
    for (score, single), (_, by_label) in zip(*kinds, strict=True):
        panels = []
        for part, kind in zip((single, by_label), THRESHOLD_NAMES.values(), strict=True):
            name = f"{score.upper()}, {kind}: {QUANTITY_NAMES[quantity]}"
            panels.append(Panel(part, quantity, name))
        halves = []
        if quantity == "disparity":
            halves = [_base_in_halves(single), (_cf_lines(single), _cf_lines(by_label))]
        full = _smallest_lines(pd.concat([single, by_label]))
        blocks.append(Block(panels, halves, full))
    return _draw_blocks(blocks, title)


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
    4
    >>> plt.close(fig)
    """
    rows = _rows_of(rows, ["predictive_parity_proxy"], classwise)
    sizes, gaps = (Panel(rows, *quantity) for quantity in QUANTITY_NAMES.items())
    halves = (_base_lines(rows), _cf_lines(rows))
    blocks = [Block([sizes]), Block([gaps], [halves], _smallest_lines(rows))]
    return _draw_blocks(blocks, title)


def _sizes_and_gaps(rows: pd.DataFrame, score: str) -> Block:
    """The block of one score."""
    panels = []
    for quantity, name in QUANTITY_NAMES.items():
        panels.append(Panel(rows, quantity, f"{score.upper()}: {name}"))
    halves = (_base_lines(rows), _cf_lines(rows))
    return Block(panels, [halves], _smallest_lines(rows))


def _base_lines(rows: pd.DataFrame) -> list[str]:
    """Between which cells the base predictor's gap is."""
    return _headed(BASE_HEAD, widest_lines(rows, "base_widest"))


def _base_in_halves(rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The same in two columns, below one headline."""
    lines = widest_lines(rows, "base_widest")
    n_left = (len(lines) + 1) // 2
    left = _headed(BASE_HEAD, lines[:n_left])
    right = wrapped(lines[n_left:], HALF_LINE)
    if right:
        right = ["", *right]
    return left, right


def _cf_lines(rows: pd.DataFrame) -> list[str]:
    """Between which cells the gap is by the paper's rule."""
    head = f"Widest gap, paper's rule, c = {rows['c'].min():.2f}"
    return _headed(head, widest_lines(rows, "widest"))


def _headed(head: str, lines: list[str]) -> list[str]:
    """Lines below their headline, none if there are none."""
    if not lines:
        return []
    return [f"{head} (points; splits):", *wrapped(lines, HALF_LINE)]


def _smallest_lines(rows: pd.DataFrame) -> list[str]:
    """Why λ is infinite: the smallest calibration cells."""
    return wrapped([smallest_cells_line(rows)], FULL_LINE)


def _example_rows() -> pd.DataFrame:
    """Rows of two splits with the columns that the figures need, for the examples."""
    settings = pd.MultiIndex.from_product(
        [[False, True], list(RULES), [0.1, 0.2], [0, 1]],
        names=["classwise", "guarantee", "c", "split"],
    )
    return settings.to_frame(index=False).assign(
        dataset="credit",
        attribute="age",
        data="the paper's",
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
        threshold=pd.Series([[0.9, 0.9, 0.9, 0.9]] * len(settings)),
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


def _draw_blocks(blocks: list[Block], title: str, granular: bool = False) -> Figure:
    """Blocks from top to bottom, below a title and above the legend."""
    rows = pd.concat([panel.rows for block in blocks for panel in block.panels])
    quantities = {panel.quantity for block in blocks for panel in block.panels}
    marks = _legend_marks(rows, quantities, granular)
    title_lines = _title_lines(rows, title)
    head = 0.3 * len(title_lines) + 0.15
    foot = 0.28 * math.ceil((len(marks) + 1) / 3) + 0.4
    height = head + sum(block.height for block in blocks) + foot
    by_hand = PlaceHolderLayoutEngine(adjust_compatible=True, colorbar_gridspec=True)
    fig = plt.figure(figsize=(WIDTH, height), layout=by_hand)
    fig.suptitle("\n".join(title_lines), fontsize=LARGE, y=1 - 0.1 / height, va="top")
    top = head
    axes: dict[str, list[Axes]] = {quantity: [] for quantity in QUANTITY_NAMES}
    for block in blocks:
        share = (WIDTH - 0.15) / len(block.panels)
        for place, panel in enumerate(block.panels):
            left = place * share + LEFT
            ax = _draw_panel(fig, panel, left, top, share - LEFT, granular)
            axes[panel.quantity].append(ax)
        _write_lines(fig, block, top + block.height - GAP - block.n_lines * LINE)
        top += block.height
    if axes["efficiency"]:
        n_labels = len(rows["threshold"].iloc[0])
        if fit_sizes(axes["efficiency"], n_labels, granular):
            marks[f"all {n_labels} labels"] = Line2D([], [], **DOTTED)
        _tell_where_axes_begin(axes["efficiency"])
    if axes["disparity"]:
        fit_gaps(axes["disparity"])
    _add_legend(fig, marks, n_columns=3, rows=rows)
    return fig


def _title_lines(rows: pd.DataFrame, title: str) -> list[str]:
    """What is drawn, then records and model."""
    first = subject(rows)
    if title:
        first = f"{title} · {first}"
    second = records_and_model(rows)
    lines = [first, second]
    if len(second) > FULL_LINE - 12:
        lines = [first, *second.split(" · ")]
    return wrapped(lines, FULL_LINE - 12)


def _add_axes(fig: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches, from the left and from the top."""
    page_width, page_height = fig.get_size_inches()
    bottom = page_height - top - height
    return fig.add_axes(
        (
            left / page_width,
            bottom / page_height,
            width / page_width,
            height / page_height,
        )
    )


def _draw_panel(
    fig: Figure, panel: Panel, left: float, top: float, width: float, granular: bool
) -> Axes:
    """Bars below a title, and below them numbers of splits; the axes of the bars."""
    ax = _add_axes(fig, left, top + TITLE, width, BARS)
    draw_bars(ax, panel.rows, panel.quantity, granular)
    mark_simulated(ax, panel.rows)
    ax.set_title(panel.title, fontsize=LARGE, pad=4)
    ax.tick_params(labelbottom=False, labelsize=SMALL, pad=2)
    strip_top = top + TITLE + BARS + 0.06
    strip = _add_axes(fig, left, strip_top, width, N_LINES * LINE)
    draw_counts(strip, panel.rows, COUNTED[panel.quantity])
    return ax


def _write_lines(fig: Figure, block: Block, top: float) -> None:
    """The lines of text of a block, in halves of the page and then in full."""
    page_width, page_height = fig.get_size_inches()

    def write(lines: list[str], left: float, above: float) -> None:
        fig.text(
            left / page_width,
            1 - above / page_height,
            "\n".join(lines),
            fontsize=SMALL,
            va="top",
            linespacing=1.2,
            color="0.2",
        )

    for left_lines, right_lines in block.halves:
        write(left_lines, 0.15, top)
        write(right_lines, WIDTH / 2 + 0.15, top)
        top += max(len(left_lines), len(right_lines)) * LINE
    write(block.full, 0.15, top)


def _tell_where_axes_begin(axes: list[Axes]) -> None:
    """Say it in the titles of the panels: bars of sizes do not begin at 0."""
    for ax in axes:
        low, _ = ax.get_ylim()
        ax.set_title(f"{ax.get_title()} (axis from {low:.1f})", fontsize=LARGE, pad=4)


def _add_legend(
    fig: Figure,
    marks: dict[str, Any],
    n_columns: int,
    rows: pd.DataFrame,
    deviations: str = "error bars and bands",
) -> None:
    """The legend, below the panels; its title says what deviations are over."""
    is_by_hand = isinstance(fig.get_layout_engine(), PlaceHolderLayoutEngine)
    loc: Any = "lower center" if is_by_hand else "outside lower center"
    fig.legend(
        list(marks.values()),
        list(marks),
        loc=loc,
        ncols=n_columns,
        fontsize=SMALL,
        title=f"Means; {deviations}: {deviation_words(rows)}",
        title_fontsize=SMALL,
        columnspacing=1.2,
        labelspacing=0.3,
        borderaxespad=0.2,
    )


def _legend_marks(
    rows: pd.DataFrame, quantities: set[str], granular: bool
) -> dict[str, Any]:
    """What each mark says, of those that panels of these quantities have."""
    marks: dict[str, Any] = {}
    for place, c in enumerate(sorted(set(rows["c"].round(6)))):
        marks[f"c = {c:.2f}, by the paper's rule"] = Patch(color=f"C{place}")
    marks["base predictor"] = Patch(color="0.75") if granular else _band_mark(DASHES)
    marks["with a guarantee"] = Line2D([], [], **DIAMOND | {"ls": "-"})
    if "disparity" in quantities:
        marks["c, the gap asked for"] = Line2D([], [], **DOT)
    if not authors_means(rows).empty:
        marks |= _authors_marks(rows)
    names = [name for name in ("training_split", "split") if name in rows]
    n_splits = len(rows[names].drop_duplicates())
    if "disparity" in quantities:
        red = mpl.colormaps["Reds"](0.6)
        marks[f"splits of {n_splits} with a gap beyond c"] = Patch(color=red)
    if "efficiency" in quantities:
        grey = mpl.colormaps["Greys"](0.6)
        marks[f"splits of {n_splits} without a finite λ: pale bars"] = Patch(color=grey)
    else:
        pale = Patch(color=("C0", 0.35))
        marks["pale: no finite λ in some splits"] = pale
    return marks


def _authors_marks(rows: pd.DataFrame) -> dict[str, Any]:
    """The marks of the authors' means; of RAPS they stored none."""
    name = "the authors' run"
    if "raps" in set(rows["score"]):
        name += " (RAPS: none stored)"
    return {
        name: Line2D([], [], **AUTHORS),
        "the authors' base predictor": Line2D([], [], **AUTHORS_BASE),
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
    fig, (sizes, fixed_gaps, true_gaps) = plt.subplots(1, 3, figsize=(WIDTH, 6.6))
    _draw_arms(sizes, on_fixed, "efficiency")
    _draw_arms(fixed_gaps, on_fixed, "disparity")
    _draw_arms(true_gaps, on_true, "disparity")
    by_rule = on_fixed[on_fixed["arm"] == Arm.CF]
    closeness = _asked_closeness(rows)
    x = pd.Series(range(len(closeness)), pd.MultiIndex.from_product([["aps"], closeness]))
    draw_authors(sizes, by_rule, "efficiency", x)
    draw_authors(fixed_gaps, by_rule, "disparity", x)
    fixed_gaps.plot(range(len(closeness)), closeness, **DOT, zorder=5)
    _tell_splits_beyond(fixed_gaps, on_fixed)
    _name_gcp_panels(sizes, fixed_gaps, true_gaps)
    fit_sizes([sizes], math.inf, granular=False)
    _tell_where_axes_begin([sizes])
    fit_gaps([fixed_gaps, true_gaps])
    fig.suptitle("\n".join(_title_lines(rows, title)), fontsize=LARGE)
    marks: dict[str, Any] = {"base APS": _band_mark(DASHES)}
    marks["BatchGCP"] = _band_mark(RED)
    marks["the paper's rule"] = Patch(color="0.7")
    marks["with a guarantee"] = Line2D([], [], **DIAMOND | {"ls": "-"})
    marks["c, the gap asked for"] = Line2D([], [], **DOT)
    if not authors_means(by_rule).empty:
        marks |= _authors_marks(rows)
    _add_legend(fig, marks, n_columns=4, rows=rows)
    return fig


def _name_gcp_panels(sizes: Axes, fixed_gaps: Axes, true_gaps: Axes) -> None:
    """The titles of the three panels, and what is below them."""
    gap_name = QUANTITY_NAMES["disparity"]
    sizes.set_title(QUANTITY_NAMES["efficiency"])
    fixed_gaps.set_title(f"{gap_name}, fixed label", fontsize=LARGE)
    true_gaps.set_title(f"{gap_name}, true label", fontsize=LARGE)
    sizes.set_xlabel("c", fontsize=SMALL)
    true_gaps.set_xlabel("c, asked of the fixed label", fontsize=SMALL)


def _asked_closeness(rows: pd.DataFrame) -> list[float]:
    """The values of c that conformal fairness was asked for, ascending."""
    return sorted(set(rows.loc[rows["arm"] == Arm.CF, "c"].round(6)))


def _draw_arms(ax: Axes, rows: pd.DataFrame, quantity: str) -> None:
    """One quantity of every arm of BatchGCP's rows, means and deviations over splits."""
    by_arm = rows.groupby(["arm", "c"], dropna=False)[quantity]
    table = by_arm.agg(["mean", "std"]).fillna(0)
    by_rule = table.loc[Arm.CF]
    promised = table.loc[Arm.CF_GUARANTEE]
    closeness = by_rule.index
    x = np.arange(len(closeness))
    floor = 0.0
    if quantity == "efficiency":
        floor = rows.loc[rows["arm"] == Arm.BASE, quantity].mean()
    colors = [f"C{place}" for place in x]
    ax.bar(x, by_rule["mean"] - floor, 0.85, floor, color=colors)
    for arm, look in ((Arm.BATCH_GCP, RED), (Arm.BASE, DASHES)):
        mean, sd = table.loc[arm].iloc[0]
        color = look["color"]
        ax.axhspan(mean - sd, mean + sd, color=color, alpha=0.15, lw=0, zorder=0.5)
        ax.axhline(mean, **look)
    draw_deviations(ax, x - 0.2, by_rule["mean"], by_rule["std"])
    at = x + 0.2
    ax.errorbar(
        at, promised["mean"], promised["std"], **DIAMOND, elinewidth=1.2, zorder=4
    )
    mark_simulated(ax, rows)
    ax.set_xticks(x, [f"{c:.2f}" for c in closeness])
    ax.tick_params(labelsize=SMALL, pad=2)
    ax.grid(visible=False, axis="x")


def _tell_splits_beyond(ax: Axes, rows: pd.DataFrame) -> None:
    """Write below each c in how many splits the gap is beyond it, by both rules."""
    n_splits = rows["split"].nunique()
    is_beyond = rows["disparity"] > rows["c"] + TOLERANCE
    counts = is_beyond.groupby([rows["arm"], rows["c"].round(6)]).sum()
    names = []
    for c in _asked_closeness(rows):
        ruled = counts[Arm.CF, c]
        promised = counts[Arm.CF_GUARANTEE, c]
        names.append(f"{c:.2f}\n{ruled} of {n_splits}\n{promised} of {n_splits}")
    words = "c; splits beyond it by the paper's rule;\nand with a guarantee"
    ax.set_xlabel(words, fontsize=SMALL)
    ax.set_xticks(range(len(names)), names, fontsize=SMALL)


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
    rows = rows[rows["metric"] == "group_coverage"]
    by_dataset = rows.groupby("dataset", sort=False)
    n_panels = by_dataset.ngroups
    fig, axes = plt.subplots(
        1, n_panels, figsize=(WIDTH / 2 * n_panels, 7.0), sharey=True, squeeze=False
    )
    for ax, (dataset, part) in zip(axes[0], by_dataset, strict=True):
        _draw_group_dots(ax, part, alpha)
        mark_simulated(ax, part)
        words = wrapped([records_and_model(part)], HALF_LINE - 6)
        name = dataset_title(str(dataset))
        ax.set_title("\n".join([name, *words]), fontsize=SMALL)
        ax.grid(visible=False, axis="x")
    axes[0, 0].set_ylabel("coverage of the true label", fontsize=SMALL)
    handles, names = axes[0, 0].get_legend_handles_labels()
    marks = dict(zip(names, handles, strict=True))
    marks["nine splits of ten, by the group's own quantile"] = Patch(color="0.88")
    _add_legend(fig, marks, n_columns=3, rows=rows, deviations="error bars")
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
    for shift, (arm, look) in zip((-0.16, 0.16), looks.items(), strict=True):
        by_group = rows[rows["arm"] == arm].groupby("group")["coverage"]
        table = by_group.agg(["mean", "std"]).fillna(0).loc[n.index]
        ax.errorbar(x + shift, table["mean"], table["std"], ms=7, elinewidth=1.8, **look)
    names = [f"{group} ({size:,.0f})" for group, size in n.items()]
    ax.set_xticks(x, names, rotation=40, ha="right", rotation_mode="anchor")
    ax.tick_params(labelsize=SMALL, pad=2)
