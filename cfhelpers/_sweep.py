"""The exact search: one plain loop over the sorted scores, and the intervals it follows.

`collect` gathers the scores above q̂, `sort_by_digits` sorts them, `sweep` walks over
them. Numba compiles the loops at their first use and keeps the result on disk; where
Numba is absent the very same functions run as they stand here, and NumPy sorts. The loops
call nothing of another file: Numba's cache, which watches this file alone, is then never
out of date.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from cfhelpers._compiling import compile_loop

PAGE = 4096  # records that fit on a page; few searches need a second one
DIGIT_BITS = 11  # at most, of a digit: the nearest cache has room for their counts
FEW_NUMBERS = 1000  # up to here comparing them is as quick


def rank_interval(covered: Any, size: Any) -> tuple[Any, Any]:
    """The interval of a cell's coverage: k/(n + 1) and (k + 1)/(n + 1)."""
    return covered / (size + 1), (covered + 1) / (size + 1)


def predictive_rank_interval(
    equal: Any, covered: Any, n_equal: Any, n: Any, is_proxy: bool
) -> tuple[Any, Any]:
    """The interval of Pr[Y = ỹ | ỹ in the set], less the prior for the proxy.

    Of n points, n_equal have Y = ỹ; of the `covered` ones, whose set holds ỹ, `equal`
    have Y = ỹ. It is the product of three intervals: equal opportunity · prior /
    demographic parity. Where no set holds ỹ the upper end is infinite, and no closeness
    accepts it.
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
    """The gap between two bounds, or minus their ratio: smaller is fairer."""
    if is_ratio:
        return -lowest / highest
    return highest - lowest


def collect(
    places: np.ndarray,
    columns: np.ndarray,
    rows: np.ndarray,
    codes: np.ndarray,
    first_kind: np.ndarray,
    base: int,
    top: int,
    shift: int,
    order: np.ndarray,
    below: np.ndarray,
) -> int:
    """Every score above q̂ with its kind, packed into one integer each; the others are
    counted by kind.

    Parameters
    ----------
    places : unsigned integers (n, K)
        The scores, as integers in the same order.
    columns : integers
        The labels that the threshold decides on.
    rows, codes : integers (n,)
        The kind of point i at the c-th column is first_kind[c, rows[i]] + codes[i].
    base, top : integers
        The places of q̂ and of infinity.
    shift : integer
        Bits that a kind needs.
    order : unsigned integers
        Filled with (place - base) · 2^shift + kind, unsorted.
    below : integers (kinds,)
        To it the number of scores of each kind up to q̂ is added.

    Returns
    -------
    int
        How many scores are above q̂ and finite.
    """
    whole = order.dtype.type
    at = 0
    for i in range(len(places)):
        row = rows[i]
        code = codes[i]
        for c in range(len(columns)):
            place = max(places[i, columns[c]], base)
            kind = first_kind[c, row] + code
            below[kind] += place == base
            # Written in any case, and kept only if it counts: a branch that cannot be
            # foreseen takes longer.
            order[at] = (whole(place - base) << shift) | whole(kind)
            at += (place > base) & (place < top)
    return at


def sort_by_digits(
    order: np.ndarray, spare: np.ndarray, low: int, digit_bits: int, n_digits: int
) -> np.ndarray:
    """The numbers in ascending order of their bits from `low` on, a digit in each round.

    The last digit comes first. A round keeps the order of the rounds before among numbers
    whose digit is the same, so after the round of the first digit all are in order.

    Parameters
    ----------
    order, spare : unsigned integers (m,)
        The numbers, and as much room. Both are changed.
    low : integer
        Bits below are not looked at.
    digit_bits, n_digits : integers
        Bits of a digit, and how many digits there are.

    Returns
    -------
    unsigned integers (m,)
        Either `order` or `spare`, whichever the last round has filled.
    """
    whole = order.dtype.type
    mask = (whole(1) << whole(digit_bits)) - whole(1)
    place = np.empty(1 << digit_bits, np.int64)  # where the next number of a digit goes
    for digit in range(n_digits):
        first_bit = whole(low + digit * digit_bits)
        place[:] = 0
        for e in range(len(order)):
            place[np.int64((order[e] >> first_bit) & mask)] += 1
        total = 0
        for value in range(len(place)):
            n_numbers = place[value]
            place[value] = total
            total += n_numbers
        for e in range(len(order)):
            own = np.int64((order[e] >> first_bit) & mask)
            spare[place[own]] = order[e]
            place[own] += 1
        order, spare = spare, order
    return order


def sort_by_comparing(
    order: np.ndarray, spare: np.ndarray, low: int, digit_bits: int, n_digits: int
) -> np.ndarray:
    """What `sort_by_digits` gives, by NumPy."""
    order.sort()
    return order


def sorted_numbers(order: np.ndarray, low: int, high: int) -> np.ndarray:
    """Unsigned integers in ascending order of their bits from `low` up to `high`.

    Ties are in any order. `order` is changed.
    """
    sort = sort_by_comparing
    n_digits = -(-(high - low) // DIGIT_BITS)
    digit_bits = -(-(high - low) // max(n_digits, 1))
    if len(order) > FEW_NUMBERS:
        _, sort, _ = compiled()
    return sort(order, np.empty_like(order), low, digit_bits, n_digits)


def sweep(
    order: np.ndarray,
    shift: int,
    is_true: np.ndarray,
    first_move: np.ndarray,
    moves: np.ndarray,
    covered: np.ndarray,
    sizes: np.ndarray,
    is_ratio: bool,
    is_predictive: bool,
    is_proxy: bool,
    best: float,
    passed: np.ndarray,
    lows: np.ndarray,
    hits: np.ndarray,
) -> int:
    """Raise the threshold past each score, update the cells it moves, note each new low.

    A family is what is compared between groups at one threshold: a label and a filter.
    Its loss is that of the largest upper bound against the smallest lower bound; the loss
    at a threshold is the worst family's.

    Parameters
    ----------
    order : unsigned integers (m,), ascending
        The scores above q̂: place · 2^shift + kind. Equal places are ties.
    is_true : integers (kinds,)
        1 for the scores of true labels, else 0.
    first_move, moves : integers (kinds + 1,) and (…, 3)
        The cells that kind k moves are moves[first_move[k] : first_move[k + 1]], each by
        family, part and group.
    covered, sizes : integers (families, parts, groups)
        Covered points, at first those that q̂ covers, and all points. Predictive values
        have two parts, Y = ỹ and Y ≠ ỹ; coverages one. `covered` is changed in place.
    best : float
        The lowest loss so far; only lower ones are noted.
    passed, lows, hits : (page,)
        Filled at each new low with the number of scores that the threshold has passed,
        the loss there, and how many of the passed scores are those of true labels.

    Returns
    -------
    int
        The number of new lows. If it is the size of the page, the walk stopped there,
        after a whole tie: turn the page and go on with order[passed[-1]:].
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
        a, b = extreme_groups(lower, upper, family)
        lowest[family] = a
        highest[family] = b
        losses[family] = pair_loss(upper[family, b], lower[family, a], is_ratio)
    worst = losses.argmax()

    n_lows = 0
    if losses[worst] < best:
        best = losses[worst]
        passed[0] = 0
        lows[0] = best
        hits[0] = 0
        n_lows = 1
        if n_lows == len(passed):
            return n_lows

    one = order.dtype.type(1)
    kind_bits = (one << shift) - one
    n_hits = 0
    changed = False
    for e in range(len(order)):
        kind = np.int64(order[e] & kind_bits)
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
            made_the_loss = group in (a, b)
            if made_the_loss or low < lower[family, a] or high > upper[family, b]:
                a, b = extreme_groups(lower, upper, family)
                lowest[family] = a
                highest[family] = b
                losses[family] = pair_loss(upper[family, b], lower[family, a], is_ratio)
                if family == worst:
                    worst = losses.argmax()
                elif losses[family] > losses[worst]:
                    worst = family
                changed = True
        is_in_a_tie = e + 1 < len(order) and order[e + 1] >> shift == order[e] >> shift
        if changed and not is_in_a_tie:
            changed = False
            if losses[worst] < best:
                best = losses[worst]
                passed[n_lows] = e + 1
                lows[n_lows] = best
                hits[n_lows] = n_hits
                n_lows += 1
                if n_lows == len(passed):
                    break
    return n_lows


def extreme_groups(lower: np.ndarray, upper: np.ndarray, family: int) -> tuple[int, int]:
    """The groups with the smallest lower and the largest upper bound."""
    a = 0
    b = 0
    for group in range(1, lower.shape[1]):
        if lower[family, group] < lower[family, a]:
            a = group
        if upper[family, group] > upper[family, b]:
            b = group
    return a, b


@functools.cache
def compiled() -> tuple[
    Callable[..., int], Callable[..., np.ndarray], Callable[..., int]
]:
    """`collect`, a sort and `sweep`, compiled where Numba is installed."""
    try:
        from numba import types
        from numba.extending import register_jitable
    except ImportError:
        return collect, sort_by_comparing, sweep
    called = (
        rank_interval,
        predictive_rank_interval,
        cell_interval,
        pair_loss,
        extreme_groups,
    )
    for function in called:
        register_jitable(error_model="numpy")(function)

    def read(kind: Any, dimensions: int) -> Any:
        """An array that is only read: writable ones are accepted too."""
        return types.Array(kind, dimensions, "C", readonly=True)

    narrow = types.uint32
    wide = types.uint64
    whole = types.int64
    collects = []
    for place, packed in ((narrow, narrow), (narrow, wide), (wide, wide)):
        points = (read(whole, 1), read(whole, 1), read(whole, 1), read(whole, 2))
        filled = (packed[::1], whole[::1])
        collects.append(whole(read(place, 2), *points, place, place, packed, *filled))
    sorts = []
    sweeps = []
    for packed in (narrow, wide):
        sorts.append(packed[::1](packed[::1], packed[::1], whole, whole, whole))
        kinds = (read(whole, 1), read(whole, 1), read(whole, 2))
        counts = (whole[:, :, ::1], read(whole, 3))
        flags = (types.boolean, types.boolean, types.boolean, types.float64)
        found = (whole[::1], types.float64[::1], whole[::1])
        sweeps.append(whole(read(packed, 1), packed, *kinds, *counts, *flags, *found))
    options = {"error_model": "numpy"}
    return (
        compile_loop(collect, collects, **options),
        compile_loop(sort_by_digits, sorts, **options),
        compile_loop(sweep, sweeps, **options),
    )


def warm_up() -> None:
    """Compile the loops now, if that was not done on this machine before."""
    compiled()
