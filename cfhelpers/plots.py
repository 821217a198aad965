"""One look for every figure, one way to save it, and pictures of what a search found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cfhelpers import paths
from cfhelpers.control import Guarantee

try:
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    import seaborn as sns
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as missing:
    raise ImportError(
        "plots need matplotlib and seaborn: pip install 'cfhelpers[plots]'"
    ) from missing

RULES = {
    str(Guarantee.NONE): "the paper's rule",
    str(Guarantee.FIXED_SEQUENCE): "with a guarantee",
}
# Color, line and marker of each rule.
RULE_LOOKS = {
    str(Guarantee.NONE): ("C1", "--", "o"),
    str(Guarantee.FIXED_SEQUENCE): ("C0", "-", "s"),
}
MARKERS = "osD^vP*X<>"  # groups differ by shape as well as by colour


def use_style() -> None:
    """Set the look of all figures that follow.

    A white grid, colours that colour-blind readers can tell apart, and inline figures
    that are small enough to commit.

    Examples
    --------
    >>> with mpl.rc_context():
    ...     use_style()
    ...     print(mpl.rcParams["savefig.dpi"])
    160.0
    """
    sns.set_theme(style="whitegrid", palette="colorblind", font_scale=1.0)
    mpl.rcParams.update(
        {
            "figure.figsize": (7.0, 4.0),
            "figure.dpi": 120,
            "figure.constrained_layout.use": True,
            "savefig.dpi": 160,
            "axes.titlesize": 12,
            "axes.labelsize": 11,
            "legend.fontsize": 10,
            "legend.frameon": False,
            "pdf.fonttype": 42,
            "svg.hashsalt": "cfhelpers",
        }
    )


def save(fig: Figure, name: str, profile: str = "quick") -> Path:
    """Write a figure as PNG and as PDF where the profile's figures are.

    Neither file holds a date or a version, so the same figure has the same bytes.

    Parameters
    ----------
    fig : Figure
    name : str
        The files' name without suffix.
    profile : "quick" or "paper"

    Returns
    -------
    Path
        Of the PNG.

    Examples
    --------
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> fig = plt.figure()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with patch.object(paths, "FIGURES", Path(folder)):
    ...         save(fig, "empty").name
    'empty.png'
    >>> plt.close(fig)
    """
    folder = paths.figures(profile)
    png = folder / f"{name}.png"
    with paths.atomic_write(png) as partial:
        fig.savefig(partial, metadata={"Software": None})
    with paths.atomic_write(png.with_suffix(".pdf")) as partial:
        fig.savefig(partial, metadata={"CreationDate": None})
    return png


def coverage_by_group(
    tables: Mapping[str, pd.DataFrame], label_names: Sequence[str], title: str = ""
) -> Figure:
    """Coverage of each label by group; a grey bar spans each gap.

    Parameters
    ----------
    tables : dict of DataFrame
        Tables of `fairness.group_coverages`, by the title of their panel.
    label_names : list of str
        A name for every label.
    title : str

    Returns
    -------
    Figure
        One panel per table.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {"label": [1, 1], "group": ["a", "b"], "n": [9, 9], "coverage": [0.9, 0.7]}
    ... )
    >>> fig = coverage_by_group({"base": table, "fair": table}, ["no", "yes"])
    >>> [panel.get_title() for panel in fig.axes]
    ['base', 'fair']
    >>> plt.close(fig)
    """
    n_panels = len(tables)
    fig, axes = plt.subplots(
        1, n_panels, figsize=(4.4 * n_panels, 3.8), sharey=True, squeeze=False
    )
    for ax, (name, table) in zip(axes[0], tables.items(), strict=True):
        coverages = table.pivot_table(
            index="label", columns="group", values=table.columns[-1], sort=False
        )
        _draw_group_coverages(ax, coverages)
        ax.set_title(name)
        ticks = [label_names[label].replace(" ", "\n") for label in coverages.index]
        ax.set_xticks(range(len(ticks)), ticks)
        ax.grid(visible=False, axis="x")
    first = axes[0, 0]
    first.set_ylabel("coverage of the label")
    handles, names = first.get_legend_handles_labels()
    fig.legend(handles, names, title="group", loc="outside right center")
    fig.suptitle(title)
    return fig


def _draw_group_coverages(ax: Axes, coverages: pd.DataFrame) -> None:
    """A mark per label (row) and group (column), and a grey bar over each label's gap."""
    n_labels, n_groups = coverages.shape
    lowest = coverages.min(axis=1)
    gaps = coverages.max(axis=1) - lowest
    width = min(0.12 * n_groups, 0.7)
    ax.bar(range(n_labels), gaps, width, lowest, color="0.88", edgecolor="none")
    for place, group in enumerate(coverages):
        shift = width * (place / max(n_groups - 1, 1) - 0.5)
        x = [position + shift for position in range(n_labels)]
        marker = MARKERS[place % len(MARKERS)]
        ax.plot(x, coverages[group], marker, markersize=7, label=group)
    ax.set(ylim=(-0.03, 1.03), xlim=(-0.5, n_labels - 0.5))


def price_of_fairness(
    frontiers: Mapping[str, list[pd.DataFrame]],
    outcomes: pd.DataFrame,
    title: str = "",
    constant: float | None = None,
) -> Figure:
    """Left: mean set size against c. Right: the gaps that new people get.

    Parameters
    ----------
    frontiers : dict of lists of DataFrame
        Tables of `control.frontier`, by guarantee. The first of each is drawn bold.
    outcomes : DataFrame
        Columns rule (a guarantee), c and gap. The medians of the gaps are drawn, and the
        range from the 10th to the 90th percentile.
    title : str
    constant : float, optional
        The size of the constant answer: the same labels for everyone. Drawn as a line.

    Returns
    -------
    Figure

    Examples
    --------
    >>> curve = pd.DataFrame({"closeness": [0.3, 0.1], "mean_set_size": [1.5, 2.0]})
    >>> outcomes = pd.DataFrame({"rule": ["none"], "c": [0.1], "gap": [0.2]})
    >>> fig = price_of_fairness({"none": [curve]}, outcomes)
    >>> [panel.get_ylabel() for panel in fig.axes]
    ['labels in a set, on average', 'gap between groups']
    >>> plt.close(fig)
    """
    fig, (cost, gain) = plt.subplots(1, 2, figsize=(8.4, 4.2))
    widest = 1.08 * outcomes["c"].max()
    _draw_costs(cost, frontiers, widest)
    if constant is not None:
        _draw_constant_answer(cost, constant, widest)
    _draw_gains(gain, list(frontiers), outcomes, widest)
    for ax in (cost, gain):
        ax.set_xlabel("largest gap allowed, c     (stricter: to the left)")
        sns.despine(ax=ax)
    cost.legend(loc="upper right")
    gain.legend(loc="lower right")
    fig.suptitle(title, fontsize=13, fontweight="bold")
    return fig


def _draw_costs(
    ax: Axes, frontiers: Mapping[str, list[pd.DataFrame]], widest: float
) -> None:
    """Mean set size against c, a staircase per table."""
    for guarantee, tables in frontiers.items():
        color, line, _ = RULE_LOOKS[guarantee]
        for table in reversed(tables):
            steps = table.sort_values("closeness")
            sizes = steps["mean_set_size"].tolist()
            last_size = sizes[-1]
            (stairs,) = ax.plot(
                [*steps["closeness"], 1],
                [*sizes, last_size],
                line,
                color=color,
                drawstyle="steps-post",
            )
            if table is tables[0]:
                stairs.set(linewidth=2.6, label=RULES[guarantee])
            else:
                stairs.set(linewidth=0.7, alpha=0.25)
    # Every staircase ends where q̂ is fair enough: the last size is the base predictor's.
    ax.axhline(last_size, color="0.35", lw=1.2, ls=":")
    ax.text(
        0.02 * widest,
        last_size,
        "nothing asked of the gap",
        color="0.35",
        va="bottom",
        fontsize=10,
    )
    ax.set(
        title="What it costs (thin: other splits)",
        ylabel="labels in a set, on average",
        xlim=(0, widest),
    )


def _draw_constant_answer(ax: Axes, size: float, widest: float) -> None:
    """A line at the size of the constant answer, and room for its name."""
    ax.axhline(size, color="0.35", lw=1.2, ls="-.")
    name = f"{size:.1f}: the constant answer says as much"
    ax.text(widest, size, name, color="0.35", va="bottom", ha="right", fontsize=10)
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, max(top, size + 0.35 * (size - bottom)))


def _draw_gains(
    ax: Axes, guarantees: list[str], outcomes: pd.DataFrame, widest: float
) -> None:
    """The gaps that new people get against c; above the diagonal they are beyond c."""
    top = 0.0
    for place, guarantee in enumerate(guarantees):
        color, _, marker = RULE_LOOKS[guarantee]
        by_c = outcomes[outcomes["rule"] == guarantee].groupby("c")["gap"]
        gaps = by_c.quantile(np.array([0.1, 0.5, 0.9])).unstack()
        x = gaps.index + (place - 0.5) * 0.016 * widest
        ax.vlines(x, gaps[0.1], gaps[0.9], color=color, lw=2)
        ax.plot(x, gaps[0.5], marker, color=color, ms=6, label=RULES[guarantee])
        top = max(top, 1.05 * gaps[0.9].max())
    diagonal = [0, widest]
    ax.fill_between(
        diagonal, diagonal, [widest, widest + top], color="C3", alpha=0.12, lw=0
    )
    ax.plot(diagonal, diagonal, color="black", lw=1)
    ax.text(
        0.04 * widest,
        0.95 * top,
        "less fair than allowed",
        color="C3",
        va="top",
        fontweight="bold",
    )
    ax.set(
        title="What new people get (over splits)",
        ylabel="gap between groups",
        xlim=(0, widest),
        ylim=(0, top),
    )


# Colour and marker of each verdict of a look.
VERDICT_LOOKS = {"within": ("C2", "o"), "beyond": ("C3", "X"), "cannot tell": ("C7", ".")}


def looks(
    history: pd.DataFrame, closeness: float, metric: str, is_ratio: bool = False
) -> Figure:
    """A watched disparity over time, with the values it may have at every look.

    Parameters
    ----------
    history : DataFrame
        A row per look: date, people, disparity, lower, upper, verdict.
    closeness : float
        What is allowed.
    metric : str
    is_ratio : bool

    Returns
    -------
    Figure

    Examples
    --------
    >>> history = pd.DataFrame({
    ...     "date": [None, None], "people": [9, 18], "disparity": [0.2, 0.1],
    ...     "lower": [0.0, 0.0], "upper": [0.9, 0.7],
    ...     "verdict": ["cannot tell", "cannot tell"],
    ... })
    >>> fig = looks(history, 0.1, "demographic_parity")
    >>> fig.axes[0].get_xlabel()
    'look'
    >>> plt.close(fig)
    """
    fig, ax = plt.subplots(figsize=(7.0, 3.6))
    x = np.arange(1, len(history) + 1)
    has_dates = len(history) > 0 and bool(history["date"].notna().all())
    ax.fill_between(
        x,
        history["lower"],
        history["upper"],
        color="C0",
        alpha=0.2,
        label="values it may have",
    )
    ax.plot(x, history["disparity"], color="C0", label="as counted")
    for verdict, (color, marker) in VERDICT_LOOKS.items():
        is_it = (history["verdict"] == verdict).to_numpy()
        if is_it.any():
            values = history["disparity"].to_numpy()[is_it]
            ax.scatter(
                x[is_it], values, color=color, marker=marker, label=verdict, zorder=3
            )
    word = "at least" if is_ratio else "at most"
    ax.axhline(closeness, color="black", linestyle="--", label=f"allowed: {word}")
    ax.set_ylim(0, 1.02 if is_ratio else _top(history, closeness))
    ax.set_ylabel("ratio" if is_ratio else "gap")
    ax.set_xlabel("look")
    if has_dates:
        shown = np.unique(np.linspace(0, len(x) - 1, min(len(x), 6)).astype(int))
        ax.set_xticks(x[shown], history["date"].iloc[shown])
        ax.set_xlabel("date of the look")
    ax.set_title(metric.replace("_", " "))
    fig.legend(loc="outside right center")
    return fig


def _top(history: pd.DataFrame, closeness: float) -> float:
    """The upper end of the axis: all that is known after the first tenth of the looks."""
    later = history["upper"].iloc[len(history) // 10 :]
    return min(1.02, 1.1 * max(later.max(), 2 * closeness))


def power_curve(curve: pd.DataFrame, points: int, power: float) -> Figure:
    """How the chance that a calibration set is large enough grows with its size.

    Parameters
    ----------
    curve : DataFrame
        people and power.
    points : int
        The number that was found.
    power : float
        The chance that was asked for.

    Returns
    -------
    Figure

    Examples
    --------
    >>> curve = pd.DataFrame({"people": [100, 200], "power": [0.4, 0.9]})
    >>> fig = power_curve(curve, 180, 0.8)
    >>> fig.axes[0].get_ylabel()
    'chance of passing'
    >>> plt.close(fig)
    """
    fig, ax = plt.subplots(figsize=(6.4, 3.6))
    ax.plot(curve["people"], curve["power"], color="C0")
    ax.axhline(power, color="C7", linestyle=":", label=f"{power:.0%} asked for")
    ax.axvline(points, color="black", linestyle="--", label=f"{points:,} people")
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("people in the calibration set")
    ax.set_ylabel("chance of passing")
    ax.legend(loc="lower right")
    return fig
