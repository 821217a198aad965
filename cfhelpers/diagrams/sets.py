"""Drawings of conformal prediction: a set, the n + 1 slots, APS, the Beta law."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import ArrayLike
from scipy import stats

from cfhelpers.plots import Axes, Figure, plt

INSIDE = "C0"  # what is in a set, or covered
OUTSIDE = "0.8"
MISSED = "C1"


def client_bars(
    probabilities: ArrayLike,
    label_names: Sequence[str],
    titles: Sequence[str],
    truths: Sequence[int] | None = None,
    cut: float | None = None,
) -> Figure:
    """One panel of bars per person: how likely the model finds each label.

    Parameters
    ----------
    probabilities : numbers (n, K)
        One row per person.
    label_names : list of str
    titles : list of str
        What stands above each panel.
    truths : list of int, optional
        The true label of each person, marked by a star.
    cut : float, optional
        Labels with at least this probability are in the set: their bars are coloured.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = client_bars([[0.2, 0.8]], ["no", "yes"], ["a person"], [1], cut=0.5)
    >>> [text.get_text() for text in fig.axes[0].get_yticklabels()]
    ['no', 'yes ★']
    >>> plt.close(fig)
    """
    rows = np.asarray(probabilities, dtype=float)
    fig, axes = plt.subplots(
        1, len(rows), figsize=(2.9 * len(rows), 2.5), sharex=True, squeeze=False
    )
    for place, row in enumerate(rows):
        ax = axes[0, place]
        names = list(label_names)
        if truths is not None:
            names[truths[place]] += " ★"
        _draw_bars(ax, row, names, cut)
        ax.set_title(titles[place])
    meanings = []
    if cut is not None:
        meanings += ["blue: in the set", "dashed: the threshold"]
    if truths is not None:
        meanings.append("★ the true label")
    below = "\n".join(["probability that the model gives", " · ".join(meanings)])
    fig.supxlabel(below.rstrip(), fontsize=12)
    return fig


def _draw_bars(ax: Axes, row: np.ndarray, names: list[str], cut: float | None) -> None:
    """The bars of one person, with the cut where there is one."""
    colours = [OUTSIDE] * len(row)
    if cut is not None:
        colours = np.where(row >= cut, INSIDE, OUTSIDE).tolist()
        ax.axvline(cut, color="black", linestyle="--")
    bars = ax.barh(range(len(row)), row, color=colours)
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    # The cut may run below a number.
    ax.bar_label(bars, fmt="%.2f", padding=4, bbox=paper)
    ax.set_yticks(range(len(row)), names)
    ax.set_xlim(0, 1.2)
    ax.set_xticks([0, 0.5, 1])
    ax.grid(visible=False, axis="y")


def from_probabilities_to_a_set(
    row: ArrayLike, label_names: Sequence[str], threshold: float
) -> Figure:
    """Three steps from left to right: probabilities, scores with a threshold, the set.

    Parameters
    ----------
    row : numbers (K,)
        Probabilities of one person.
    label_names : list of str
    threshold : float
        Labels with a score 1 - probability of at most this are in the set.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = from_probabilities_to_a_set([0.1, 0.9], ["no", "yes"], 0.5)
    >>> [text.get_text() for text in fig.axes[2].texts]
    ['✗ no', '✓ yes']
    >>> plt.close(fig)
    """
    probabilities = np.asarray(row, dtype=float)
    scores = 1 - probabilities
    fig, (first, second, third) = plt.subplots(
        1, 3, figsize=(8.6, 2.7), width_ratios=[1, 1, 0.6]
    )
    _draw_bars(first, probabilities, list(label_names), None)
    first.set_title("1. probability π")
    places = range(len(scores))
    colours = np.where(scores <= threshold, INSIDE, MISSED)
    second.scatter(scores, places, s=90, c=colours, zorder=3)
    second.axvline(threshold, color="black", linestyle="--")
    second.axvspan(0, threshold, color=INSIDE, alpha=0.12, linewidth=0)
    second.set_title("2. score 1 − π, threshold")
    second.set_yticks(places, [""] * len(scores))
    second.set(xlim=(0, 1.05), ylim=first.get_ylim(), xlabel="ordinary → strange")
    third.set_title("3. the set")
    third.set(xlim=(0, 1), ylim=first.get_ylim())
    third.axis("off")
    for place, name in enumerate(label_names):
        inside = scores[place] <= threshold
        mark = "✓" if inside else "✗"
        text = third.text(0.05, place, f"{mark} {name}", va="center", fontsize=12)
        text.set_color(INSIDE if inside else "0.6")
    return fig


def slots(n: int, alpha: float) -> Figure:
    """Where a new score can fall among n old ones: n + 1 slots, each as likely.

    Parameters
    ----------
    n : int
        Number of calibration scores.
    alpha : float in (0, 1)
        The slots below the conformal quantile are coloured.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = slots(9, alpha=0.2)
    >>> fig.axes[0].get_title()
    '9 old scores make 10 slots for the new one; 8 of them are covered'
    >>> plt.close(fig)
    """
    rank = math.ceil((n + 1) * (1 - alpha) - 1e-9)
    fig, ax = plt.subplots(figsize=(8.6, 2.3))
    for slot in range(n + 1):
        colour = INSIDE if slot < rank else MISSED
        ax.barh(0, 0.9, left=slot + 0.05, height=0.5, color=colour, alpha=0.35)
        ax.text(slot + 0.5, 0, f"1/{n + 1}", ha="center", va="center", fontsize=10)
    old = np.arange(1, n + 1)
    ax.plot(old, np.zeros(n), "|", color="black", markersize=34, markeredgewidth=2)
    for place in range(1, n + 1):
        ax.text(place, -0.42, f"$s_{{({place})}}$", ha="center", va="top")
    name = rf"$\hat q = s_{{({rank})}}$" if rank <= n else r"$\hat q = \infty$"
    ax.annotate(name, (rank, 0.28), (rank, 0.62), ha="center", arrowprops=_ARROW)
    ax.set(xlim=(-0.1, n + 1.1), ylim=(-0.85, 0.85))
    covered = f"{rank} of them are covered"
    ax.set_title(f"{n} old scores make {n + 1} slots for the new one; {covered}")
    ax.axis("off")
    return fig


_ARROW = {"arrowstyle": "->", "color": "black"}


def aps_stairs(
    row: ArrayLike,
    u: float,
    label_names: Sequence[str] | None = None,
    threshold: float | None = None,
) -> Figure:
    """How APS scores a row: probabilities stacked from the top, a mark within each.

    Parameters
    ----------
    row : numbers (K,)
    u : float in [0, 1)
        The score lies this share of a step below the step's top.
    label_names : list of str, optional
    threshold : float, optional
        Drawn as a horizontal line. Labels with their mark above it are grey: they are
        not in the set.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = aps_stairs([0.2, 0.8], u=0.5)
    >>> fig.axes[0].lines[0].get_ydata().round(2).tolist()
    [0.4, 0.9]
    >>> plt.close(fig)
    """
    probabilities = np.asarray(row, dtype=float)
    order = np.argsort(-probabilities, kind="stable")
    steps = probabilities[order]
    tops = np.cumsum(steps)
    marks = tops - u * steps
    places = range(len(steps))
    fig, ax = plt.subplots(figsize=(6.0, 3.2))
    cut = np.inf if threshold is None else threshold
    colours = np.where(marks <= cut, INSIDE, OUTSIDE).tolist()
    ax.bar(places, steps, bottom=tops - steps, color=colours, alpha=0.5)
    handles: list[Line2D | Patch] = []
    handles += ax.plot(places, marks, "kD", label=f"APS score, u = {u:g}")
    if threshold is not None:
        line = ax.axhline(threshold, color="black", linestyle="--", label="threshold")
        handles.append(line)
        handles.append(Patch(color=INSIDE, alpha=0.5, label="in the set"))
    if label_names is None:
        label_names = [f"label {label}" for label in range(len(steps))]
    ax.set_xticks(places, [label_names[label] for label in order])
    ax.set(ylabel="probability gathered", ylim=(0, 1.05))
    ax.grid(visible=False, axis="x")
    ax.legend(handles=handles, loc="lower right")
    return fig


def beta_laws(alpha: float, coverages: Mapping[int, ArrayLike]) -> Figure:
    """How far the coverage of one calibration set may lie from the target.

    Parameters
    ----------
    alpha : float in (0, 1)
    coverages : dict of arrays
        By the number n of calibration points: the true coverage of several calibration
        sets of that size. They are drawn as a histogram below the law's curve.

    Returns
    -------
    Figure
        One row per n, all on the same axis.

    Examples
    --------
    >>> fig = beta_laws(0.1, {100: [0.88, 0.92], 1000: [0.9, 0.91]})
    >>> [ax.get_ylabel() for ax in fig.axes]
    ['n = 100', 'n = 1,000']
    >>> plt.close(fig)
    """
    fig, axes = plt.subplots(
        len(coverages),
        1,
        figsize=(7.4, 0.95 * len(coverages) + 1.0),
        sharex=True,
        squeeze=False,
    )
    grid = np.linspace(1 - 2.2 * alpha, 1, 1500)
    for ax, (n, observed) in zip(axes[:, 0], coverages.items(), strict=True):
        rank = math.ceil((n + 1) * (1 - alpha) - 1e-9)
        law = stats.beta(rank, n + 1 - rank)
        low, high = law.ppf([0.05, 0.95])
        ax.hist(
            observed,
            bins=25,
            density=True,
            color=INSIDE,
            alpha=0.4,
            label="calibration sets",
        )
        ax.plot(grid, law.pdf(grid), color=MISSED, linewidth=2, label="the Beta law")
        ax.axvline(1 - alpha, color="black", linestyle=":", label="the target")
        ax.text(
            0.02,
            0.9,
            f"9 in 10 lie from {low:.3f} to {high:.3f}",
            transform=ax.transAxes,
            va="top",
            fontsize=11,
        )
        ax.set_ylabel(f"n = {n:,}", rotation=0, ha="right", va="center")
        ax.set_yticks([])
        ax.grid(visible=False)
    axes[-1, 0].set(xlabel="true coverage of one calibration set", xlim=(grid[0], 1))
    fig.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3
    )
    return fig
