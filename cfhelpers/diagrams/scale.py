"""Drawings of counting: files as tables of counts, and the bins that can hold λ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cfhelpers.plots import Figure, plt

COVERED = "C0"
OTHERS = "0.75"
DECIDES = "C1"
RULED_OUT = "0.8"


def counts_add_up(
    files: Sequence[ArrayLike], edges: ArrayLike, threshold: float
) -> Figure:
    """People as dots in bins of the score, file by file; below them the counts' sum.

    Parameters
    ----------
    files : arrays of numbers
        The scores of the people in each file, between the first and the last edge.
    edges : numbers, ascending
        Where bins begin and end.
    threshold : float
        One of the edges; people in the bins up to it are covered, and coloured.

    Returns
    -------
    Figure
        A panel for each file, and one for all of them, with numbers instead of people.

    Examples
    --------
    >>> fig = counts_add_up([[0.1, 0.7], [0.2]], [0, 0.5, 1], 0.5)
    >>> [text.get_text() for text in fig.axes[-1].texts]
    ['2', '1']
    >>> plt.close(fig)
    """
    ends = np.asarray(edges, dtype=float)
    tables = [np.histogram(scores, ends)[0] for scores in files]
    is_covered = ends[1:] <= threshold
    colours = np.where(is_covered, COVERED, OTHERS)
    height = max(2, max(table.max() for table in tables))
    fig, axes = plt.subplots(1, len(files) + 1, figsize=(9.2, 2.8))
    for number, (ax, table) in enumerate(zip(axes, tables, strict=False), 1):
        for place, n in enumerate(table):
            rows = np.arange(n) + 0.5
            ax.scatter(np.full(n, place), rows, color=colours[place], s=26)
        sign = "" if number == 1 else "+   "
        ax.set_title(f"{sign}file {number}")
        _write_counts(ax, table, -0.9, "normal")
        _frame(ax, len(table), threshold, ends, height)
    total = np.sum(tables, axis=0)
    axes[-1].set_title("=   all files")
    _write_counts(axes[-1], total, -0.9, "bold")
    _frame(axes[-1], len(total), threshold, ends, height)
    axes[-1].set_facecolor("0.97")
    fig.supxlabel("bin of the score, and the people in it")
    return fig


def _write_counts(ax: plt.Axes, table: np.ndarray, height: float, weight: str) -> None:
    """The counts below their bins."""
    for place, n in enumerate(table):
        ax.text(place, height, str(n), ha="center", va="center", fontweight=weight)


def _frame(
    ax: plt.Axes, n_bins: int, threshold: float, ends: np.ndarray, height: int
) -> None:
    """Bins between thin lines, and the threshold."""
    for place in range(n_bins + 1):
        ax.axvline(place - 0.5, color="0.9", linewidth=0.8, zorder=0)
    last = int(np.searchsorted(ends, threshold))
    ax.axvline(last - 0.5, color="black", linestyle="--", linewidth=1.2)
    ax.axhline(0, color="black", linewidth=1)
    ax.set(xlim=(-0.6, n_bins - 0.4), ylim=(-1.8, height + 0.6), xticks=[], yticks=[])


def bins_that_decide(
    edges: ArrayLike, least: ArrayLike, at_end: ArrayLike, limit: float
) -> Figure:
    """The gap at the ends of bins, and the least it can be inside each of them.

    Parameters
    ----------
    edges : numbers (m + 1,), ascending
        Where the m bins begin and end.
    least : numbers (m,)
        No threshold inside the bin has a smaller gap.
    at_end : numbers (m,)
        The gap at the end of the bin.
    limit : float
        The gap that is allowed.

    Returns
    -------
    Figure
        Bins that can hold the first threshold that passes are coloured.

    Examples
    --------
    >>> fig = bins_that_decide([0.8, 0.9, 1], [0.3, 0.1], [0.4, 0.2], 0.25)
    >>> fig.axes[0].get_title()
    '1 of 2 bins can hold the answer'
    >>> plt.close(fig)
    """
    ends = np.asarray(edges, dtype=float)
    lows = np.maximum(np.asarray(least, dtype=float), 0)
    heights = np.asarray(at_end, dtype=float)
    passes = np.flatnonzero(heights <= limit)
    last = passes[0] if len(passes) else len(heights) - 1
    decides = (np.arange(len(heights)) <= last) & (lows <= limit)
    tops = np.maximum(np.append(heights[:1], heights[:-1]), heights)
    fig, ax = plt.subplots(figsize=(8.6, 3.4))
    for chosen, colour, label in (
        (~decides, RULED_OUT, "cannot hold the answer"),
        (decides, DECIDES, "scores are noted one by one"),
    ):
        ax.bar(
            ends[:-1][chosen],
            (tops - lows)[chosen],
            np.diff(ends)[chosen],
            lows[chosen],
            align="edge",
            color=colour,
            edgecolor="white",
            linewidth=0.5,
            label=label,
        )
    ax.plot(ends[1:], heights, "k.", markersize=4, label="gap at the bin's end")
    ax.axhline(limit, color="black", linestyle=":", label=f"allowed: {limit:g}")
    ax.set(xlabel="threshold λ", ylabel="gap", xlim=(ends[0], ends[-1]))
    n_decides = int(decides.sum())
    ax.set_title(f"{n_decides} of {len(heights)} bins can hold the answer")
    ax.legend(loc="upper right", fontsize="small")
    return fig
