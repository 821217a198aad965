"""Drawings of fairness: a metric as a filter on people, many groups, an average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers.fairness import METRICS
from cfhelpers.plots import Axes, Figure, plt

LOWEST = "C1"
HIGHEST = "C0"
PER_LINE = 4  # people in a line of a box


def filter_on_people(
    has_label: ArrayLike,
    is_label: ArrayLike,
    groups: ArrayLike,
    metric_names: Sequence[str],
) -> Figure:
    """The same people under several metrics: who is looked at, and who is left out.

    A square has the label in truth, a circle has not. A filled mark has the label in the
    set. Whom the metric leaves out is a faint cross.

    Parameters
    ----------
    has_label : bool (n,)
        Whether the label is in the person's set.
    is_label : bool (n,)
        Whether it is the person's true label.
    groups : (n,)
        A group per person; each is a box.
    metric_names : list of str
        Keys of `fairness.METRICS` that have a filter; one panel each.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = filter_on_people(
    ...     [True, False, True], [True, True, False], ["a", "a", "b"],
    ...     ["demographic_parity"],
    ... )
    >>> [text.get_text() for text in fig.axes[0].texts]
    ['a\\n1 of 2 = .50', 'b\\n1 of 1 = 1.00']
    >>> plt.close(fig)
    """
    inside = np.asarray(has_label, dtype=bool)
    truth = np.asarray(is_label, dtype=bool).astype(int)
    names = np.asarray(groups)
    n_panels = len(metric_names)
    lowest = -((pd.Series(names).value_counts().max() - 1) // PER_LINE)
    fig, axes = plt.subplots(1, n_panels, figsize=(3.2 * n_panels, 2.9), squeeze=False)
    for ax, name in zip(axes[0], metric_names, strict=True):
        for place, group in enumerate(pd.unique(names)):
            looked_at = _looked_at(name, truth, names, group)
            mine = names == group
            left = place * (PER_LINE + 1)
            _draw_people(ax, left, truth[mine], inside[mine], looked_at[mine])
            counted = int(looked_at.sum())
            covered = int(inside[looked_at].sum())
            ax.text(
                left + (PER_LINE - 1) / 2,
                0.9,
                f"{group}\n{covered} of {counted} = {_share(covered, counted)}",
                ha="center",
                va="bottom",
            )
        ax.set_title(name.replace("_", " "), fontweight="bold")
        ax.set(xlim=(-0.8, left + PER_LINE), ylim=(lowest - 0.7, 2.2))
        ax.axis("off")
    _explain_marks(fig)
    return fig


def _looked_at(
    name: str, truth: np.ndarray, groups: np.ndarray, group: object
) -> np.ndarray:
    """Whom a metric looks at in a group, for the label 1."""
    chosen = METRICS[name].filter
    if not callable(chosen):
        raise ValueError(f"metric_names: {name} has several filters; wanted one filter")
    return np.asarray(chosen(truth, groups, group, 1), dtype=bool)


def _explain_marks(fig: Figure) -> None:
    """What squares, circles, filled marks and crosses mean."""
    meanings = [
        ("s", HIGHEST, "has the label, and it is in the set"),
        ("s", "white", "has the label, left out of the set"),
        ("o", HIGHEST, "has it not, yet it is in the set"),
        ("o", "white", "has it not, not in the set"),
        ("x", "0.8", "not looked at"),
    ]
    handles = []
    for marker, face, meaning in meanings:
        edge = face if marker == "x" else HIGHEST
        handles += fig.axes[0].plot(
            [], [], marker, markerfacecolor=face, markeredgecolor=edge, label=meaning
        )
    fig.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9)


def _share(covered: int, counted: int) -> str:
    """A share as .50, or a dash where nobody is counted."""
    if counted == 0:
        return "–"
    return f"{covered / counted:.2f}".removeprefix("0")


def _draw_people(
    ax: Axes, left: float, truth: np.ndarray, inside: np.ndarray, looked_at: np.ndarray
) -> None:
    """The people of one group, a few to a line."""
    for person in range(len(truth)):
        x = left + person % PER_LINE
        y = -(person // PER_LINE)
        if not looked_at[person]:
            ax.plot(x, y, "x", color="0.8", markersize=8)
            continue
        marker = "s" if truth[person] else "o"
        face = HIGHEST if inside[person] else "white"
        ax.plot(
            x,
            y,
            marker,
            markersize=12,
            markerfacecolor=face,
            markeredgecolor=HIGHEST,
            markeredgewidth=1.8,
        )


def coverage_by_many_groups(
    table: pd.DataFrame, label_names: Sequence[str], title: str = ""
) -> Figure:
    """Coverage by group, a line for each group and a panel for each label.

    The groups that make the gap are coloured and named; the bar between them is the gap.

    Parameters
    ----------
    table : DataFrame
        Of `fairness.group_coverages`: label, group, n and a share.
    label_names : list of str
        A name for every label.
    title : str

    Returns
    -------
    Figure

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {"label": [1, 1], "group": ["a", "b"], "n": [9, 3], "coverage": [0.9, 0.7]}
    ... )
    >>> fig = coverage_by_many_groups(table, ["no", "yes"])
    >>> fig.axes[0].get_title()
    'yes: gap .20, from b to a'
    >>> plt.close(fig)
    """
    sizes = table.groupby("group", observed=True)["n"].sum()
    order = sizes.sort_values(ascending=False).index.tolist()
    labels = pd.unique(table["label"])
    share = table.columns[-1]
    fig, axes = plt.subplots(
        1,
        len(labels),
        figsize=(3.1 * len(labels), 0.28 * len(order) + 1.6),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for ax, label in zip(axes[0], labels, strict=True):
        mine = table[table["label"] == label].set_index("group").reindex(order)
        _draw_groups(ax, mine[share], mine["n"], label_names[label])
    axes[0, 0].set_yticks(range(len(order)), order)
    axes[0, 0].set_ylabel("group, the largest on top")
    axes[0, 0].invert_yaxis()
    fig.supxlabel(
        "of the people that the metric looks at, share with the label in the set",
        fontsize=11,
    )
    fig.suptitle(title)
    return fig


def _draw_groups(ax: Axes, coverages: pd.Series, counts: pd.Series, name: str) -> None:
    """One label: a dot per group, the lowest and the highest coloured, the gap a bar."""
    values = coverages.to_numpy(dtype=float)
    lowest = int(np.nanargmin(values))
    highest = int(np.nanargmax(values))
    ax.axvspan(values[lowest], values[highest], color="0.92", linewidth=0)
    ax.plot(values, range(len(values)), "o", color="0.55", markersize=9)
    for place, colour in ((lowest, LOWEST), (highest, HIGHEST)):
        ax.plot(values[place], place, "o", color=colour, markersize=9)
        side = "right"
        offset = -9
        if values[place] < 0.5:  # the text would leave the panel
            side = "left"
            offset = 9
        ax.annotate(
            f"{values[place]:.2f}, n = {counts.iloc[place]:,.0f}",
            (values[place], place),
            (offset, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            color=colour,
            fontsize=9.5,
            fontweight="bold",
        )
    gap = f"{values[highest] - values[lowest]:.2f}".removeprefix("0")
    ends = f"from {coverages.index[lowest]} to {coverages.index[highest]}"
    ax.set_title(f"{name}: gap {gap}, {ends}", fontsize=11)
    ax.set(xlim=(0, 1.05))


def hidden_in_the_average(table: pd.DataFrame, label_names: Sequence[str]) -> Figure:
    """A strip per label: as wide as the label is common, filled as far as it is covered.

    The filled area of a panel is the group's coverage of the true label.

    Parameters
    ----------
    table : DataFrame
        Of `fairness.group_coverages` for equal opportunity and all labels.
    label_names : list of str

    Returns
    -------
    Figure
        One panel per group.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {"label": [0, 1], "group": ["a", "a"], "n": [90, 10], "coverage": [1, 0.5]}
    ... )
    >>> fig = hidden_in_the_average(table, ["no", "yes"])
    >>> fig.axes[0].get_title()
    'a: filled area .95'
    >>> plt.close(fig)
    """
    names = pd.unique(table["group"])
    fig, axes = plt.subplots(
        1, len(names), figsize=(4.4 * len(names), 3.2), sharey=True, squeeze=False
    )
    for ax, group in zip(axes[0], names, strict=True):
        mine = table[table["group"] == group]
        widths = mine["n"] / mine["n"].sum()
        lefts = widths.cumsum() - widths
        ax.bar(lefts, 1, widths, align="edge", color="0.93", edgecolor="white")
        ax.bar(
            lefts,
            mine["coverage"],
            widths,
            align="edge",
            color=HIGHEST,
            alpha=0.55,
            edgecolor="white",
        )
        for left, width, label in zip(lefts, widths, mine["label"], strict=True):
            if width < 0.05:
                continue  # no room for a name
            text = label_names[label].replace(" ", "\n")
            rotation = 90 if width < 0.15 else 0
            ax.text(
                left + width / 2,
                0.03,
                text.replace("\n", " ") if rotation else text,
                ha="center",
                va="bottom",
                rotation=rotation,
                fontsize=10,
            )
        area = f"{(widths * mine['coverage']).sum():.2f}".removeprefix("0")
        ax.set_title(f"{group}: filled area {area}")
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="share of the group")
        ax.grid(visible=False)
    axes[0, 0].set_ylabel("covered, of those with it")
    return fig
