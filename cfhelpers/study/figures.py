"""The figures of the paper's results, from the tidy rows of `experiments` and `batch_gcp`."""

from collections.abc import Collection
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
from cfhelpers.plots import RULES
from cfhelpers.study.tables import DATASETS

METRICS = {
    "demographic_parity": "DP",
    "equal_opportunity": "EO",
    "predictive_equality": "PE",
}
METRICS |= {
    "equalized_odds": "EOdds"
}  # as short as an axis wants them, in the order in which they are drawn
QUANTITIES = {"efficiency": "labels in a set (mean)", "disparity": "gap between groups"}
KINDS = {False: "single λ", True: "classwise λ"}
NUMBERS = (  # of splits: a line's name, the rule, the column that is counted
    ("beyond c: base", "none", "base_beyond"),
    ("the paper's rule", "none", "beyond"),
    ("with a guarantee", "fixed-sequence", "beyond"),
    ("λ = ∞: the paper's rule", "none", "infinite"),
    ("with a guarantee", "fixed-sequence", "infinite"),
)
SHADES = {"base_beyond": "Reds", "beyond": "Reds", "infinite": "Greys"}
DOT = {"color": "black", "marker": "o", "ls": "", "ms": 3.5}
DIAMOND = {"color": "0.1", "marker": "D", "ls": "", "mfc": "white", "ms": 4, "mew": 0.9}
DASHES = {"color": "black", "ls": (0, (2, 1)), "lw": 1.3}
RED = {"color": "crimson", "ls": "-", "lw": 1.5}  # BatchGCP


def fairness_bars(
    rows: pd.DataFrame, classwise: bool, title: str = "", granular: bool = False
) -> Figure:
    """Set sizes above, gaps below, then numbers of splits; a column per score, a cluster per metric, a bar per c.

    `rows` are those of `experiments.run`. `granular` goes score by score, with a bar of the base predictor beside every
    other.
    """
    scores = list(_of(rows, METRICS, classwise).groupby("score"))
    if granular:
        pairs = (tuple(QUANTITIES), ("infinite", "beyond"))
        return _figure(
            [
                [(part, what, name) for what in pair]
                for name, part in scores
                for pair in pairs
            ],
            title,
            True,
        )
    return _figure(
        [
            [(part, what, name) for name, part in scores]
            for what in (*QUANTITIES, "splits")
        ],
        title,
    )


def single_and_classwise(rows: pd.DataFrame, quantity: str, title: str = "") -> Figure:
    """Efficiency or disparity, with one λ for all labels above and one for each below; else as `fairness_bars`."""
    one_of(quantity, "quantity", tuple(QUANTITIES))
    kinds = [list(_of(rows, METRICS, kind).groupby("score")) for kind in KINDS]
    return _figure(
        [
            [(part, what, n) for n, part in kind]
            for kind in kinds
            for what in (quantity, "splits")
        ],
        title,
    )


def proxy_bars(rows: pd.DataFrame, classwise: bool, title: str = "") -> Figure:
    """The predictive parity proxy alone, a cluster per score; else as `fairness_bars`."""
    rows = _of(rows, ["predictive_parity_proxy"], classwise)
    return _figure([[(rows, what, "")] for what in (*QUANTITIES, "splits")], title)


def _of(rows: pd.DataFrame, metrics: Collection[str], classwise: bool) -> pd.DataFrame:
    found = rows[rows["metric"].isin(metrics) & rows["classwise"].eq(classwise)]
    if found.empty:
        raise ValueError(
            f"rows: found none with {KINDS[classwise]} for {', '.join(metrics)}; wanted some"
        )
    return found


def _figure(cells: list[list[tuple]], title: str, granular: bool = False) -> Figure:
    """A grid of panels, each of some rows, what to draw of them, and a score; the title says whose rows they are."""
    heights = [
        2.4 if line[0][1] in QUANTITIES else 0.65 if granular else 1.0 for line in cells
    ]
    width, legend_lines = (13.75, 2) if len(cells[0]) > 1 else (9.0, 3)
    options = {
        "figsize": (width, sum(heights) + 1.7),
        "height_ratios": heights,
        "sharex": True,
        "squeeze": False,
    }
    fig, axes = plt.subplots(len(cells), len(cells[0]), **options)
    first: dict[str, Axes] = {}
    for ax, (rows, what, score) in zip(
        axes.flat, (cell for line in cells for cell in line), strict=True
    ):
        at_left, is_bars = ax in axes[:, 0], what in QUANTITIES
        if what in first:
            ax.sharey(first[what])
        first.setdefault(what, ax)
        (_bars if is_bars else _numbers)(ax, rows, what, granular)
        if granular and is_bars:
            ax.set_title(f"{score.upper()}: {QUANTITIES[what]}")
        elif ax in axes[0]:
            ax.set_title(score.upper())
        if at_left and is_bars and not granular:
            kind = KINDS[rows["classwise"].iloc[0]] + "\n" if len(cells) == 4 else ""
            ax.set_ylabel(kind + QUANTITIES[what])
        ax.tick_params(labelleft=granular or at_left, labelbottom=not is_bars)
    if (
        "disparity" in first
    ):  # deviations may reach below a gap of 0, which is where gaps end
        first["disparity"].set_ylim(bottom=-0.04 * first["disparity"].get_ylim()[1])
    rows = pd.concat([rows for line in cells for rows, _, _ in line])
    fig.suptitle(f"{title} · {_subject(rows)}".removeprefix(" · "), fontsize=12)
    marks = _marks(sorted(set(rows["c"])), granular)
    columns = -(-len(marks) // legend_lines)
    fig.legend(
        marks.values(), marks, loc="outside lower center", ncols=columns, fontsize=9
    )
    return fig


def _subject(rows: pd.DataFrame) -> str:
    """Dataset, attribute, source, model, kind of λ and splits, as every title has them."""
    dataset, attribute, records, model = rows[
        ["dataset", "attribute", "records", "model"]
    ].iloc[0]
    kinds = " and ".join(KINDS[kind] for kind in sorted(set(rows["classwise"])))
    name, splits = DATASETS.get(dataset, dataset), rows["split"].nunique()
    return f"{name} by {attribute} ({records}) · {model} · {kinds} · {splits} splits"


def _places(rows: pd.DataFrame) -> tuple[pd.Series, list[str]]:
    """Where the bars stand, by cluster (metric, or score for a single metric) and c; and what groups rows so."""
    by = "metric" if rows["metric"].nunique() > 1 else "score"
    names = [name for name in METRICS if name in set(rows[by])] or sorted(set(rows[by]))
    closeness = sorted(set(rows["c"]))
    index = pd.MultiIndex.from_product([names, closeness])
    return pd.Series(
        [n + 0.9 * (n // len(closeness)) for n in range(len(index))], index
    ), ["guarantee", by, "c"]


def _bars(ax: Axes, rows: pd.DataFrame, quantity: str, granular: bool) -> None:
    """Means and deviations over the splits: bars by the paper's rule, diamonds with a guarantee, the base predictor."""
    x, keys = _places(rows)
    c, base = x.index.get_level_values(1), f"base_{quantity}"
    table = (
        rows.groupby(keys)[[quantity, base, "feasible"]].agg(["mean", "std"]).fillna(0)
    )
    ruled, promised = (table.loc[guarantee].reindex(x.index) for guarantee in RULES)
    level, sd = ruled[base, "mean"], ruled[base, "std"]
    middle, width, shift = (x + 0.24, 0.45, 0.12) if granular else (x, 0.9, 0.2)
    solid = zip(
        c.factorize(sort=True)[0], 0.35 + 0.65 * ruled["feasible", "mean"], strict=True
    )
    ax.bar(
        middle,
        ruled[quantity, "mean"],
        width,
        color=[(f"C{place}", alpha) for place, alpha in solid],
    )
    if granular:
        ax.bar(
            x - 0.24,
            level,
            0.45,
            color="0.75",
            lw=0,
            yerr=sd,
            error_kw={"ecolor": "0.35", "elinewidth": 1},
        )
    else:
        ax.bar(x, 2 * sd, 1, level - sd, color="0.5", alpha=0.3, lw=0)
        ax.hlines(level, x - 0.5, x + 0.5, **DASHES)
    ax.errorbar(
        middle - shift,
        *ruled[quantity].T.to_numpy(),
        fmt="none",
        ecolor="0.2",
        elinewidth=1,
    )
    ax.errorbar(
        middle + shift, *promised[quantity].T.to_numpy(), **DIAMOND, elinewidth=0.9
    )
    if quantity == "disparity":
        ax.plot(middle, c, **DOT)
    else:
        ax.axhline(len(rows["threshold"].iloc[0]), color="0.4", ls=":", lw=1)
    ax.grid(visible=False, axis="x")


def _numbers(ax: Axes, rows: pd.DataFrame, what: str, granular: bool) -> None:
    """In how many splits the gap is beyond c, and in how many no finite λ was left; more of them on darker ground."""
    x, keys = _places(rows)
    table = rows.assign(infinite=~rows["feasible"]).groupby(keys)
    lines = [line for line in NUMBERS if what == "splits" or what in line[2]]
    for y, (_, guarantee, column) in enumerate(lines):
        found = table[column].agg(["sum", "mean"]).loc[guarantee].reindex(x.index)
        ax.bar(
            x,
            0.92,
            0.92,
            y + 0.04,
            color=mpl.colormaps[SHADES[column]](0.75 * found["mean"]),
            lw=0,
        )
        for place, number, share in zip(x, found["sum"], found["mean"], strict=True):
            color = "white" if share > 0.6 else "0.15" if number else "0.75"
            middle = {"ha": "center", "va": "center", "in_layout": False}
            ax.text(
                place,
                y + 0.53,
                f"{number:.0f}",
                fontsize=6.5 if number < 10 else 6,
                color=color,
                **middle,
            )
    ax.set_ylim(max(len(lines), 3), 0)
    ax.set_yticks(
        [y + 0.5 for y in range(len(lines))], [name for name, _, _ in lines], fontsize=8
    )
    middle = x.groupby(level=0, sort=False).mean()
    ax.set_xticks(
        middle, [METRICS.get(name, name.upper()) for name in middle.index], fontsize=9
    )
    ax.grid(visible=False)
    sns.despine(ax=ax, left=True, bottom=True)


def _marks(closeness: list[float], granular: bool) -> dict[str, Any]:
    """The legend: what each mark says."""
    base = (
        Patch(color="0.75")
        if granular
        else (Patch(color="0.5", alpha=0.3), Line2D([], [], **DASHES))
    )
    return {
        f"c = {c:.2f}": Patch(color=f"C{place}") for place, c in enumerate(closeness)
    } | {
        "base predictor, ± sd": base,
        "c, the gap asked for": Line2D([], [], **DOT),
        "the paper's rule, ± sd over splits": (
            Patch(color="0.7"),
            Line2D([], [], color="0.2"),
        ),
        "with a guarantee, ± sd": Line2D([], [], **DIAMOND | {"ls": "-"}),
        "number of splits with a gap beyond c": Patch(color=mpl.colormaps["Reds"](0.6)),
        "… in which no finite λ does (pale bars)": Patch(
            color=mpl.colormaps["Greys"](0.6)
        ),
        "all labels": Line2D([], [], color="0.4", ls=":", lw=1),
    }


def batch_gcp_bars(rows: pd.DataFrame, title: str = "") -> Figure:
    """Set sizes, and gaps by demographic parity of a fixed and of the true label, from rows of `batch_gcp.run`.

    Bars by the paper's rule, diamonds with a guarantee, lines for the base predictor and BatchGCP, which know no c.
    """
    rows = rows[rows["metric"] == "demographic_parity"].assign(classwise=True)
    fig, axes = plt.subplots(1, 3, figsize=(11.5, 4.6))
    axes[2].sharey(axes[1])
    for ax, scored_on in zip(axes, ("", "fixed label", "true label"), strict=True):
        part, quantity = (
            rows[rows["scored_on"] == (scored_on or "fixed label")],
            "disparity" if scored_on else "efficiency",
        )
        table = (
            part.groupby(["arm", "c"], dropna=False)[quantity]
            .agg(["mean", "std"])
            .fillna(0)
        )
        c = table.loc["cf"].index
        x = pd.Series(range(len(c)), c)
        ax.bar(x, table.loc["cf", "mean"], 0.85, color=[f"C{place}" for place in x])
        for arm, look in (("batch_gcp", RED), ("base", DASHES)):
            ((mean, sd),) = table.loc[arm].to_numpy()
            ax.axhspan(
                mean - sd, mean + sd, color=look["color"], alpha=0.15, lw=0, zorder=0.5
            )
            ax.axhline(mean, **look)
        ax.errorbar(
            x - 0.15,
            *table.loc["cf"].T.to_numpy(),
            fmt="none",
            ecolor="0.2",
            elinewidth=1,
        )
        ax.errorbar(
            x + 0.15, *table.loc["cf_guarantee"].T.to_numpy(), **DIAMOND, elinewidth=0.9
        )
        names, splits = [f"c = {value:.2f}" for value in c], part["split"].nunique()
        if scored_on:
            ax.plot(x, c, **DOT)
        if scored_on == "fixed label":
            beyond = (
                (part["disparity"] > part["c"] + 1e-12)
                .groupby([part["arm"], part["c"]])
                .sum()
            )
            for arm in ("cf", "cf_guarantee"):
                names = [
                    f"{name}\n{n} of {splits}"
                    for name, n in zip(names, beyond[arm], strict=True)
                ]
            ax.set_xlabel(
                "splits beyond c: by the paper's rule,\nand below it with a guarantee",
                fontsize=9,
            )
        ax.set_xticks(x, names, fontsize=9)
        ax.set_title(
            QUANTITIES[quantity] + (f", {scored_on}" if scored_on else ""), fontsize=11
        )
        ax.grid(visible=False, axis="x")
    axes[1].set_ylim(bottom=-0.04 * axes[1].get_ylim()[1])
    fig.suptitle(f"{title}\n{_subject(rows)}".strip(), fontsize=12)
    bands = [
        (Patch(color=look["color"], alpha=0.15), Line2D([], [], **look))
        for look in (DASHES, RED)
    ]
    marks = {"base APS, ± sd": bands[0], "BatchGCP, ± sd": bands[1]}
    marks |= {
        name: mark
        for name, mark in _marks([], granular=False).items()
        if name.startswith(("c,", "the ", "with"))
    }
    fig.legend(marks.values(), marks, loc="outside lower center", ncols=5, fontsize=9)
    return fig


def group_coverage_dots(rows: pd.DataFrame, alpha: float = 0.1) -> Figure:
    """True-label coverage by group, of the base predictor and of BatchGCP; a panel per dataset, large groups first.

    `rows` of `batch_gcp.run`. Grey: where nine splits of ten lie if the threshold is the group's own conformal quantile
    of as many calibration points as there are test points.
    """
    panels = list(rows[rows["metric"] == "group_coverage"].groupby("dataset", sort=False))
    fig, axes = plt.subplots(
        1, len(panels), figsize=(5.75 * len(panels), 4.8), sharey=True, squeeze=False
    )
    for ax, (dataset, part) in zip(axes[0], panels, strict=True):
        n = part.groupby("group")["n"].mean().round().sort_values(ascending=False)
        rank, x = np.ceil((n + 1) * (1 - alpha) - 1e-9), np.arange(len(n))
        low, high = (
            betabinom.ppf(level, n, rank, n + 1 - rank) / n for level in (0.05, 0.95)
        )
        ax.use_sticky_edges = False
        ax.bar(x, high - low, 0.7, low, color="0.88", lw=0)
        ax.axhline(1 - alpha, color="0.4", ls=":", lw=1)
        for shift, arm, name, look in (
            (-0.12, "base", "base APS", "ko"),
            (0.12, "batch_gcp", "BatchGCP", "s"),
        ):
            table = (
                part[part["arm"] == arm]
                .groupby("group")["coverage"]
                .agg(["mean", "std"])
                .fillna(0)
                .loc[n.index]
            )
            color = {} if arm == "base" else {"color": RED["color"]}
            ax.errorbar(
                x + shift,
                table["mean"],
                table["std"],
                fmt=look,
                ms=5,
                elinewidth=1.2,
                label=name,
                **color,
            )
        ax.set_xticks(
            x,
            [f"{group} ({size:,.0f})" for group, size in n.items()],
            rotation=35,
            ha="right",
            fontsize=9,
        )
        records, splits = part["records"].iloc[0], part["split"].nunique()
        ax.set_title(
            f"{DATASETS.get(dataset, dataset)} · {splits} splits\n{records}", fontsize=11
        )
        ax.grid(visible=False, axis="x")
    axes[0, 0].set_ylabel("coverage of the true label")
    fig.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2
    )
    return fig
