"""Drawings of the guarantee: brackets and bounds, the walk down, the staircase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from scipy import stats

from cfhelpers.bounds import clopper_pearson, staircase
from cfhelpers.plots import Axes, Figure, plt

GOOD = "C0"  # accepted, within c, or holding the truth
BAD = "C1"
UNSEEN = "0.75"


def brackets(counts: ArrayLike, n: int, p: float, level: float) -> Figure:
    """For several calibration sets: Lemma 3.2's bracket beside a confidence interval.

    Parameters
    ----------
    counts : integers (m,)
        How many of n points each calibration set covers.
    n : int
    p : float in (0, 1)
        The true coverage, the same for all of them.
    level : float in (0, 1)
        Each end of a confidence interval is wrong with at most this probability.

    Returns
    -------
    Figure
        Left the brackets [k, k + 1] / (n + 1), right the Clopper–Pearson intervals.

    Examples
    --------
    >>> fig = brackets([90, 88], n=100, p=0.9, level=0.05)
    >>> [ax.get_title() for ax in fig.axes]
    ['bracket of Lemma 3.2: 1 of 2 hold p', 'confidence interval: 2 of 2 hold p']
    >>> plt.close(fig)
    """
    k = np.asarray(counts)
    places = np.arange(len(k))
    fig, axes = plt.subplots(1, 2, figsize=(8.6, 3.8), sharex=True, sharey=True)
    ends = {
        "bracket of Lemma 3.2": (k / (n + 1), (k + 1) / (n + 1)),
        "confidence interval": clopper_pearson(k, np.full(len(k), n), level),
    }
    for ax, (name, (low, high)) in zip(axes, ends.items(), strict=True):
        holds = (low <= p) & (p <= high)
        colours = np.where(holds, GOOD, BAD)
        ax.hlines(places, low, high, colors=colours.tolist(), linewidth=5)
        ax.scatter(low[~holds], places[~holds], marker="x", s=45, color=BAD, zorder=3)
        ax.axvline(p, color="black", linestyle="--")
        ax.text(p, len(k) + 0.1, " the true p", va="center")
        ax.set_title(f"{name}: {holds.sum()} of {len(k)} hold p")
        ax.set(xlabel="coverage", ylim=(-0.8, len(k) + 0.7))
        ax.grid(visible=False, axis="y")
    axes[0].set_ylabel("calibration set")
    axes[0].yaxis.set_major_locator(MaxNLocator(integer=True))
    return fig


def again_and_again(true_gaps: ArrayLike, c: float) -> Figure:
    """The true gaps of one rule over many calibration sets, on both sides of c.

    Parameters
    ----------
    true_gaps : numbers (m,)
    c : float
        The gap that was allowed.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = again_and_again([0.08, 0.11, 0.12, 0.09], c=0.1)
    >>> [text.get_text() for text in fig.axes[0].texts]
    ['50%\\nwithin c', '50%\\nbeyond c']
    >>> plt.close(fig)
    """
    gaps = np.asarray(true_gaps, dtype=float)
    beyond = gaps > c
    reach = 1.1 * max(abs(gaps - c).max(), 0.1 * c)
    bins = np.linspace(c - reach, c + reach, 41).tolist()
    fig, ax = plt.subplots(figsize=(7.0, 3.2))
    ax.hist(gaps[~beyond], bins, color=GOOD)
    ax.hist(gaps[beyond], bins, color=BAD, hatch="//", edgecolor="white")
    ax.axvline(c, color="black", linestyle="--", linewidth=2)
    top = 1.55 * ax.get_ylim()[1]
    for side, share, word in (
        (-1, 1 - beyond.mean(), "within"),
        (1, beyond.mean(), "beyond"),
    ):
        text = f"{share:.0%}\n{word} c"
        ax.text(
            c + side * reach / 2, 0.95 * top, text, ha="center", va="top", fontsize=14
        )
    ax.set(xlabel="true gap", ylabel="calibration sets", ylim=(0, top))
    ax.set_title(f"The same search on {len(gaps)} calibration sets, c = {c:g}")
    ax.grid(visible=False, axis="x")
    return fig


def clopper_pearson_tail(k: int, n: int, level: float) -> Figure:
    """Why the upper bound is where it is: under which p would so few be absurd?

    Parameters
    ----------
    k, n : int
        k of n points are covered, k < n.
    level : float in (0, 1)
        A tail below this is called absurd.

    Returns
    -------
    Figure
        The law of the count for p = k/n, for the upper bound, and for a p beyond it.

    Examples
    --------
    >>> fig = clopper_pearson_tail(45, 60, level=0.05)
    >>> print(fig.axes[1].get_title())
    p = .84, the bound: so few in 5.0% of draws
    >>> plt.close(fig)
    """
    upper = float(clopper_pearson(k, n, level)[1])
    shown = {
        (k / n): "as seen",
        upper: "the bound",
        upper + 0.35 * (1 - upper): "too large: absurd",
    }
    fig, axes = plt.subplots(3, 1, figsize=(7.2, 3.8), sharex=True, sharey=True)
    counts = np.arange(n + 1)
    for ax, (p, words) in zip(axes, shown.items(), strict=True):
        law = stats.binom(n, p)
        few = counts <= k
        ax.bar(counts[~few], law.pmf(counts[~few]), color=UNSEEN, width=0.8)
        ax.bar(counts[few], law.pmf(counts[few]), color=BAD, hatch="//", width=0.8)
        name = f"{p:.2f}".removeprefix("0")
        ax.set_title(f"p = {name}, {words}: so few in {law.cdf(k):.1%} of draws")
        ax.axvline(k + 0.5, color="black", linestyle=":")
        ax.set_yticks([])
        ax.grid(visible=False)
    first = stats.binom(n, k / n).ppf(1e-3)
    axes[-1].set(xlim=(first - 0.5, n + 0.5))
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel(f"how many of {n} would be covered (hatched: {k} or fewer)")
    return fig


def walk_down(
    thresholds: ArrayLike, losses: ArrayLike, c: float, base: float, seen: ArrayLike
) -> Figure:
    """A walk from ∞ down a list of thresholds, up to the first rejection.

    Parameters
    ----------
    thresholds : numbers (m,)
        Finite ones, in any order; ∞ is added at the right and is always accepted.
    losses : numbers (m,)
        The worst case of the gap at each of them.
    c : float
        Thresholds with a loss of at most c are accepted.
    base : float
        The conformal quantile; the walk ends there.
    seen : numbers (m,)
        The gap on the calibration data, drawn as a thin line.

    Returns
    -------
    Figure

    Examples
    --------
    >>> fig = walk_down([0.7, 0.8, 0.9], [0.05, 0.2, 0.08], 0.1, 0.6, [0.1, 0.1, 0.0])
    >>> print(fig.axes[0].get_title())
    Accepted: ∞ and 1 more; rejected: 0.8; never looked at: 1
    >>> plt.close(fig)
    """
    order = np.argsort(-np.asarray(thresholds, dtype=float))
    values = np.asarray(thresholds, dtype=float)[order]
    worst = np.asarray(losses, dtype=float)[order]
    gaps = np.asarray(seen, dtype=float)[order]
    is_reached = values >= base
    rejections = np.flatnonzero(is_reached & (worst > c + 1e-12))
    end = rejections[0] if len(rejections) else np.count_nonzero(is_reached)
    step = np.ptp(values) / max(len(values) - 1, 1)
    infinity = values[0] + max(3 * step, 0.06 * np.ptp(values))
    fig, ax = plt.subplots(figsize=(7.6, 3.8))
    ax.axhspan(0, c, color=GOOD, alpha=0.08, linewidth=0)
    ax.axhline(c, color="black", linestyle="--")
    ax.text(infinity, c, "c", va="bottom", ha="right")
    ax.axvline(base, color="0.4", linestyle=":")
    foot = ax.get_xaxis_transform()
    ax.text(base, 0.02, " q̂: never below", transform=foot, va="bottom", color="0.3")
    ax.plot(values, gaps, color="0.45", linewidth=1, label="gap on the calibration data")
    accepted_x = np.append(infinity, values[:end])
    accepted_y = np.append(0, worst[:end])
    ax.plot(accepted_x, accepted_y, "o-", color=GOOD, markersize=6, label="accepted")
    title = f"Accepted: ∞ and {end} more"
    if len(rejections):
        ax.plot(values[end], worst[end], "X", color=BAD, markersize=13, label="rejected")
        title += f"; rejected: {values[end]:.3g}"
    unseen = slice(end + len(rejections[:1]), None)
    ax.plot(values[unseen], worst[unseen], "o", color=UNSEEN, markersize=4)
    ax.plot([], [], "o", color=UNSEEN, markersize=4, label="never looked at")
    ax.set_title(f"{title}; never looked at: {len(values[unseen])}")
    ticks = [tick for tick in ax.get_xticks() if values[-1] <= tick <= values[0]]
    labels = [f"{tick:.3g}" for tick in ticks]
    ax.set_xticks([*ticks, infinity], [*labels, "∞"])
    ax.set(xlabel="threshold λ   (the walk goes from right to left)")
    ax.set(ylabel="largest gap that is not absurd", ylim=(0, None))
    ax.legend(loc="upper right", bbox_to_anchor=(0.98, 0.98))
    return fig


def staircase_steps(n_a: int, n_b: int, delta: float, p_a: float) -> Figure:
    """Where two tests may accept wrongly, in the square of the two p-values.

    Parameters
    ----------
    n_a, n_b : int
        Points of the two groups.
    delta : float in (0, 0.5]
    p_a : float in [0, 1]
        The staircase of the interval that holds this coverage of group a is drawn.

    Returns
    -------
    Figure
        Left two bounds at δ/2, right the staircase; both have an area of at most δ.

    Examples
    --------
    >>> fig = staircase_steps(150, 150, 0.1, p_a=0.9)
    >>> [ax.get_title() for ax in fig.axes]
    ['two bounds at δ/2: area 0.0975', 'staircase: area 0.0999']
    >>> plt.close(fig)
    """
    for steps in staircase(n_a, n_b, delta):
        if steps.low <= p_a <= steps.high:
            break
    fig, (left, right) = plt.subplots(1, 2, figsize=(8.6, 4.2), sharey=True)
    half = delta / 2
    area = half + (1 - half) * half
    _draw_steps(left, [half], [half], f"two bounds at δ/2: area {area:.4f}")
    _draw_steps(right, steps.alphas, steps.betas, f"staircase: area {steps.mass:.4f}")
    left.set_ylabel("$P_b$   (small: b came out high)")
    return fig


def _draw_steps(
    ax: Axes, alphas: Sequence[float], betas: Sequence[float], title: str
) -> None:
    """One staircase; what lies below it is hatched."""
    edges = [0, *alphas, 1]
    heights = [1, *betas]
    ax.stairs(heights, edges, fill=True, color=BAD, alpha=0.3, hatch="//")
    ax.stairs(heights, edges, color=BAD, linewidth=2)
    ax.plot([0, 1], [0, 1], color="0.6", linestyle=":")
    ax.text(0.62, 0.68, "both equally\nunlucky", ha="right", color="0.4")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=title)
    ax.set_xlabel("$P_a$   (small: a came out low)")


def sizes_by_group(sizes: pd.DataFrame, constant: float, title: str = "") -> Figure:
    """How many labels the sets of each group hold, before and after.

    Parameters
    ----------
    sizes : DataFrame
        Columns base and fair: mean set size; one row per group.
    constant : float
        The size of the constant answer, drawn as a line.
    title : str

    Returns
    -------
    Figure

    Examples
    --------
    >>> sizes = pd.DataFrame({"base": [2.1, 2.3], "fair": [2.8, 2.6]}, index=["a", "b"])
    >>> fig = sizes_by_group(sizes, constant=3.0)
    >>> [text.get_text() for text in fig.axes[0].texts]
    ['', '2.10', '2.80', '', '2.30', '2.60', ' constant answer: 3']
    >>> plt.close(fig)
    """
    fig, ax = plt.subplots(figsize=(7.2, 1.3 + 0.42 * len(sizes)))
    arrow = {"arrowstyle": "-|>", "color": "0.5", "shrinkA": 6, "shrinkB": 6}
    for place, (base, fair) in enumerate(zip(sizes["base"], sizes["fair"], strict=True)):
        ax.annotate("", (fair, place), (base, place), arrowprops=arrow)
        ax.text(base, place, f"{base:.2f}", ha="right", va="center").set_x(base - 0.04)
        ax.text(fair, place, f"{fair:.2f}", ha="left", va="center").set_x(fair + 0.04)
    places = range(len(sizes))
    ax.plot(sizes["base"], places, "o", color=BAD, markersize=8, label="base")
    ax.plot(sizes["fair"], places, "s", color=GOOD, markersize=8, label="fair")
    ax.axvline(constant, color="black", linestyle="--")
    said = f" constant answer: {constant:g}"
    ax.text(constant, len(sizes) - 0.4, said, ha="left")
    ax.set_yticks(places, sizes.index.astype(str).tolist())
    ax.set(ylim=(len(sizes) - 0.2, -0.7), xlabel="labels in a set, on average")
    widest = max(constant, sizes.to_numpy().max())
    ax.set(title=title, xlim=(sizes.to_numpy().min() - 0.35, widest + 0.6))
    ax.grid(visible=False, axis="y")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return fig
