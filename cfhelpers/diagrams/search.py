"""Drawings of the search: a table by hand, the gap, one λ or several, the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers.plots import Figure, plt

PASSES = "C2"
FAILS = "C1"
BASE = "0.35"
OWN = "C0"
SHARED = "0.8"
LINES = ("-", "--", "-.", ":")


def passing_table(table: pd.DataFrame, passes: ArrayLike) -> Figure:
    """A table with one row per threshold; the rows that pass are coloured.

    Parameters
    ----------
    table : DataFrame
        What stands in the cells. Numbers that are not whole get two digits.
    passes : bool (n,)
        Whether the row's threshold passes. The last column says it in words.

    Returns
    -------
    Figure

    Examples
    --------
    >>> table = pd.DataFrame({"λ": [0.4, 0.5], "gap": [0.5, 0.25]})
    >>> fig = passing_table(table, [False, True])
    >>> [text.get_text() for text in fig.axes[0].texts]
    ['λ', 'gap', 'passes?', '0.40', '0.50', 'no', '0.50', '0.25', 'yes']
    >>> plt.close(fig)
    """
    columns = [*table.columns, "passes?"]
    is_passing = np.asarray(passes, dtype=bool)
    fig, ax = plt.subplots(figsize=(8.6, 0.42 * (len(table) + 1)))
    for place, name in enumerate(columns):
        ax.text(place, 0, name, ha="center", va="center", fontweight="bold")
    for line, row in enumerate(table.itertuples(index=False), 1):
        passing = is_passing[line - 1]
        if passing:
            ax.axhspan(line - 0.5, line + 0.5, color=PASSES, alpha=0.2, linewidth=0)
        words = [_told(value) for value in row]
        words.append("yes" if passing else "no")
        for place, word in enumerate(words):
            ax.text(place, line, word, ha="center", va="center")
    ax.axhline(0.5, color="black", linewidth=1)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(table) + 0.5, -0.5))
    ax.axis("off")
    return fig


def _told(value: object) -> str:
    """A cell's text: two digits for a number that is not whole."""
    if value == np.inf:
        return "∞"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)


def gap_steps(
    thresholds: ArrayLike,
    gaps: ArrayLike,
    closeness: float,
    found: float,
    probes: Sequence[float] = (),
) -> Figure:
    """The gap against the threshold, where it passes, and where a search looked.

    Parameters
    ----------
    thresholds : numbers (m,), ascending
        From the conformal quantile on; the gap is constant up to the next one, and
        beyond the last.
    gaps : numbers (m,)
    closeness : float
        A threshold passes if its gap is at most this.
    found : float
        The smallest threshold that passes, marked by a line.
    probes : list of float
        Thresholds that another search looked at, numbered in this order.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = gap_steps([0.8, 0.9, 0.95], [0.3, 0.1, 0.2], 0.15, 0.9, [0.95])
    >>> fig.axes[0].get_title()
    'the thresholds that pass form 1 piece'
    >>> plt.close(fig)
    """
    places = np.asarray(thresholds, dtype=float)
    heights = np.asarray(gaps, dtype=float)
    passing = heights <= closeness + 1e-12
    begins = passing & ~np.append(False, passing[:-1])
    pieces = int(begins.sum())
    last = places[-1] + 0.1 * (places[-1] - places[0])  # how far the last step is drawn
    ends = np.append(places[1:], last)
    fig, ax = plt.subplots(figsize=(8.6, 3.7))
    drawn = [np.append(places, last), np.append(heights, heights[-1])]
    ax.step(*drawn, where="post", color="black", linewidth=1.3)
    ax.bar(
        places[passing],
        heights[passing],
        width=(ends - places)[passing],
        align="edge",
        linewidth=0,
        color=PASSES,
        alpha=0.5,
        label=f"passes: gap at most c = {closeness:g}",
    )
    ax.axhline(closeness, color=BASE, linestyle=":")
    ax.axvline(found, color=PASSES, linewidth=2.5, label="smallest that passes")
    for number, probe in enumerate(probes, 1):
        height = heights[np.searchsorted(places, probe, side="right") - 1]
        name = "looked at, in this order" if number == 1 else None
        ax.plot(probe, height, "o", color=FAILS, markersize=7, zorder=4, label=name)
        ax.annotate(
            str(number),
            (probe, height),
            (9, 5),
            textcoords="offset points",
            color=FAILS,
            fontweight="bold",
        )
    ax.set(xlabel="threshold λ", ylabel="gap", ylim=(0, 1.2 * heights.max()))
    ax.set_xlim(places[0], last)
    word = "piece" if pieces == 1 else "pieces"
    ax.set_title(f"the thresholds that pass form {pieces} {word}")
    fig.legend(loc="outside lower center", ncols=3)
    return fig


def single_against_classwise(
    label_names: Sequence[str], base: float, classwise: ArrayLike, single: float
) -> Figure:
    """How far each label's threshold is raised: for its own sake, and for the others'.

    Parameters
    ----------
    label_names : list of str
    base : float
        The threshold of the base predictor.
    classwise : numbers (K,)
        The threshold of every label on its own.
    single : float
        One threshold that serves all labels.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = single_against_classwise(["no", "yes"], 0.8, [0.8, 0.9], 0.9)
    >>> [text.get_text() for text in fig.axes[0].get_yticklabels()]
    ['no', 'yes']
    >>> plt.close(fig)
    """
    needed = np.asarray(classwise, dtype=float)
    places = np.arange(len(needed))
    fig, ax = plt.subplots(figsize=(8.6, 0.55 * len(needed) + 1.3))
    ax.barh(
        places,
        single - needed,
        left=needed,
        height=0.5,
        color=SHARED,
        hatch="///",
        edgecolor="white",
        label="raised only because λ is shared",
    )
    ax.barh(
        places,
        needed - base,
        left=base,
        height=0.5,
        color=OWN,
        label="raised because the label needs it",
    )
    ax.axvline(base, color=BASE, linestyle="--")
    ax.axvline(single, color="black")
    ax.text(base, -0.75, "base: q̂", ha="center", va="bottom", color=BASE)
    ax.text(single, -0.75, "single λ", ha="center", va="bottom")
    span = single - base
    ax.set(xlim=(base - 0.1 * span, single + 0.1 * span), xlabel="threshold")
    ax.set_ylim(len(needed) - 0.5, -0.7)
    ax.set_yticks(places, list(label_names))
    ax.grid(visible=False, axis="y")
    fig.legend(loc="outside lower center", ncols=2)
    return fig


def price(
    tables: Mapping[str, pd.DataFrame], base: float, constant: float, widest: float
) -> Figure:
    """Mean set size against the largest gap allowed, between the base and "everything".

    Parameters
    ----------
    tables : dict of DataFrame
        Tables of `control.frontier`, by what the legend says.
    base : float
        Mean set size of the base predictor.
    constant : float
        Set size of the constant answer.
    widest : float
        Largest closeness that is drawn.

    Returns
    -------
    Figure

    Examples
    --------
    >>> table = pd.DataFrame({"closeness": [0.3, 0.1], "mean_set_size": [1.5, 2.0]})
    >>> fig = price({"one λ": table}, base=1.5, constant=3.0, widest=0.4)
    >>> [text.get_text() for text in fig.axes[0].texts]
    ['3.0 = everything: the constant answer', '1.50: the base predictor']
    >>> plt.close(fig)
    """
    fig, ax = plt.subplots(figsize=(8.6, 3.6))
    for (name, table), line in zip(tables.items(), LINES, strict=False):
        by_closeness = table.groupby("closeness")["mean_set_size"].max().sort_index()
        ax.step(
            [*by_closeness.index, widest],
            [*by_closeness, by_closeness.iloc[-1]],
            line,
            where="post",
            label=name,
        )
    ax.axhline(constant, color="black", linestyle=(0, (6, 1)))
    ax.axhline(base, color=BASE, linestyle=":")
    everything = f"{constant:.1f} = everything: the constant answer"
    ax.text(widest, constant, everything, ha="right", va="bottom")
    ax.text(0.01 * widest, base, f"{base:.2f}: the base predictor", va="bottom")
    ax.set(xlabel="largest gap allowed, c     (stricter: to the left)")
    ax.set(ylabel="labels in a set, on average", xlim=(0, widest))
    height = constant - base
    ax.set_ylim(base - 0.1 * height, constant + 0.2 * height)
    ax.legend(loc="center right")
    return fig
