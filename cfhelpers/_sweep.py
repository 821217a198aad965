"""The exact search: one plain loop over the sorted scores, and the intervals it follows.

Numba compiles the loop at its first use and keeps the result on disk. Where Numba is
absent the very same function runs as it stands here. Nothing in this file imports anything
of the package, so that Numba's cache, which watches this file alone, is never out of date.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

FIRST_ROOM = 256  # records to make room for; it doubles when it is used up


def rank_interval(covered: Any, size: Any) -> tuple[Any, Any]:
    """The interval of a cell's coverage at one threshold: k/(n + 1) and (k + 1)/(n + 1)."""
    return covered / (size + 1), (covered + 1) / (size + 1)


def predictive_rank_interval(
    equal: Any, covered: Any, n_equal: Any, n: Any, is_proxy: bool
) -> tuple[Any, Any]:
    """The interval of Pr[Y = ỹ | ỹ in the set], less the prior for the proxy.

    Of n points, n_equal have Y = ỹ; of the `covered` ones, whose set holds ỹ, `equal` have
    Y = ỹ. It is the product of three intervals: equal opportunity · prior / demographic
    parity. Where no set holds ỹ the upper end is infinite, and no closeness accepts it.
    """
    prior_lower = n_equal / (n + 1)
    prior_upper = (n_equal + 1) / (n + 1)
    lower = equal / (n_equal + 1) * prior_lower / ((covered + 1) / (n + 1))
    upper = (equal + 1) / (n_equal + 1) * prior_upper / (covered / (n + 1))
    if is_proxy:
        return lower - prior_upper, upper - prior_lower
    return lower, upper


def cell_interval(
    covered: np.ndarray,
    sizes: np.ndarray,
    family: int,
    group: int,
    is_predictive: bool,
    is_proxy: bool,
) -> tuple[float, float]:
    """The interval of one group in one family."""
    if not is_predictive:
        return rank_interval(covered[family, 0, group], sizes[family, 0, group])
    equal = covered[family, 0, group]
    n_equal = sizes[family, 0, group]
    return predictive_rank_interval(
        equal,
        equal + covered[family, 1, group],
        n_equal,
        n_equal + sizes[family, 1, group],
        is_proxy,
    )


def pair_loss(highest: float, lowest: float, is_ratio: bool) -> float:
    """The gap between two bounds, or their ratio with its sign turned: smaller is fairer."""
    if is_ratio:
        return -lowest / highest
    return highest - lowest


def sweep(
    values: np.ndarray,
    kinds: np.ndarray,
    is_true: np.ndarray,
    first_move: np.ndarray,
    moves: np.ndarray,
    covered: np.ndarray,
    sizes: np.ndarray,
    is_ratio: bool,
    is_predictive: bool,
    is_proxy: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raise the threshold past each score, update the cells it moves, note each new low.

    A family is what is compared between groups at one threshold: a label and a filter. Its
    loss is that of the largest upper bound against the smallest lower bound; the loss at a
    threshold is the worst family's.

    Parameters
    ----------
    values : (m,) ascending
        The scores above q̂.
    kinds : integers (m,)
        What each score is. Scores of one kind move the same cells.
    is_true : integers (kinds,)
        1 for the scores of true labels, else 0.
    first_move : integers (kinds + 1,)
        The cells that kind k moves are moves[first_move[k] : first_move[k + 1]].
    moves : integers (…, 3)
        Family, part and group of a cell.
    covered : integers (families, parts, groups)
        Points that q̂ covers. It is changed in place. Predictive values have two parts,
        Y = ỹ and Y ≠ ỹ; coverages one.
    sizes : integers (families, parts, groups)

    Returns
    -------
    passed : integers (records,)
        How many scores the threshold has passed at each new low; 0 is q̂ itself.
    lows : (records,)
        The loss there, falling.
    hits : integers (records,)
        How many of the passed scores are those of true labels.
    """
    n_families, _, n_groups = covered.shape
    lower = np.empty((n_families, n_groups))
    upper = np.empty((n_families, n_groups))
    losses = np.empty(n_families)
    lowest = np.empty(n_families, np.int64)  # the groups that make each family's loss
    highest = np.empty(n_families, np.int64)
    for family in range(n_families):
        for group in range(n_groups):
            low, high = cell_interval(
                covered, sizes, family, group, is_predictive, is_proxy
            )
            lower[family, group] = low
            upper[family, group] = high
        lowest[family] = lower[family].argmin()
        highest[family] = upper[family].argmax()
        losses[family] = pair_loss(
            upper[family, highest[family]], lower[family, lowest[family]], is_ratio
        )
    worst = losses.argmax()

    passed = np.empty(FIRST_ROOM, np.int64)
    lows = np.empty(FIRST_ROOM, np.float64)
    hits = np.empty(FIRST_ROOM, np.int64)
    n_records = 0
    best = np.inf
    if losses[worst] < best:
        best = losses[worst]
        passed[0] = 0
        lows[0] = best
        hits[0] = 0
        n_records = 1

    n_hits = 0
    changed = False
    for e in range(len(values)):
        kind = kinds[e]
        n_hits += is_true[kind]
        for move in range(first_move[kind], first_move[kind + 1]):
            family = moves[move, 0]
            group = moves[move, 2]
            covered[family, moves[move, 1], group] += 1
            low, high = cell_interval(
                covered, sizes, family, group, is_predictive, is_proxy
            )
            lower[family, group] = low
            upper[family, group] = high
            a = lowest[family]
            b = highest[family]
            if not (
                group == a
                or group == b
                or low < lower[family, a]
                or high > upper[family, b]
            ):
                continue
            # This group made the loss, or makes it now.
            a = lower[family].argmin()
            b = upper[family].argmax()
            lowest[family] = a
            highest[family] = b
            losses[family] = pair_loss(upper[family, b], lower[family, a], is_ratio)
            if losses[family] >= losses[worst]:
                worst = family
            elif family == worst:
                worst = losses.argmax()
            changed = True
        is_in_a_tie = e + 1 < len(values) and values[e + 1] == values[e]
        if changed and not is_in_a_tie:
            changed = False
            if losses[worst] < best:
                best = losses[worst]
                if n_records == len(passed):
                    passed = np.append(passed, np.empty_like(passed))
                    lows = np.append(lows, np.empty_like(lows))
                    hits = np.append(hits, np.empty_like(hits))
                passed[n_records] = e + 1
                lows[n_records] = best
                hits[n_records] = n_hits
                n_records += 1
    return passed[:n_records], lows[:n_records], hits[:n_records]


@functools.cache
def compiled() -> Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """`sweep`, compiled where Numba is installed."""
    try:
        from numba import njit
        from numba.extending import register_jitable
    except ImportError:
        return sweep
    for function in (rank_interval, predictive_rank_interval, cell_interval, pair_loss):
        register_jitable(error_model="numpy")(function)
    return njit(cache=True, error_model="numpy")(sweep)
