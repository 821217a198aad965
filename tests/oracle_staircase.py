"""The staircase test by definition: slow, plain, and written from the theorem alone.

Two groups a and b cover their points with unknown chances p_a and p_b. The test says
whether p_a - p_b can be more than c. A staircase is a list of steps (alpha, beta): the
level of the upper bound for p_a and the level of the lower bound for p_b that stands
against it. Its mass is the chance to accept wrongly that it allows.
"""

import math
from bisect import bisect_left
from functools import cache
from itertools import pairwise, permutations

from scipy.special import betaincinv, ndtr, ndtri

SAME = 1e-9  # two margins closer than this are one: they differ by rounding alone


@cache
def z(level):
    """The point that a standard normal variable exceeds with this probability."""
    return -float(ndtri(level))


def listed_levels(delta):
    """The values of z that a step may use, ascending."""
    coarse = [-1.4 + 0.3 * i for i in range(9)]
    fine = [1.2 + 0.2 * i for i in range(10)]
    own = [z(delta), z(0.98 * delta), z(delta / 2)]
    distinct = []
    for value in sorted(coarse + fine + [3.4] + own):
        if not distinct or value - distinct[-1] > SAME:
            distinct.append(value)
    return distinct


def interval_edges(n_a):
    """Where [0, 1] is cut for p_a: 0, every 1 - 2^j / n_a above 0, and 1."""
    edges = [1.0]
    j = 0
    while 1 - 2**j / n_a > 0:
        edges.append(1 - 2**j / n_a)
        j += 1
    edges.append(0.0)
    return edges[::-1]


def mass(steps):
    """The sum of (alpha_i - alpha_{i-1}) * beta_i, with beta_1 = 1 and alpha_m = 1."""
    total = 0.0
    alpha_before = 0.0
    beta = 1.0
    for alpha, next_beta in steps:
        total += (alpha - alpha_before) * beta
        alpha_before = alpha
        beta = next_beta
    return total + (1 - alpha_before) * beta


def steps_of_margin(margin, rho, cap, levels):
    """The steps with rho * z(alpha) + z(beta) <= margin and z(beta) <= cap."""
    steps = []
    z_before = None
    for z_alpha in reversed(levels):
        most = min(margin - rho * z_alpha, cap)
        possible = [z_beta for z_beta in levels if z_beta <= most + SAME]
        if possible and possible[-1] != z_before:
            z_before = possible[-1]
            steps.append((float(ndtr(-z_alpha)), float(ndtr(-z_before))))
    return steps


@cache
def narrowest_steps(rho, cap, delta):
    """The steps of the least margin whose mass is within delta.

    Steps change only where the margin is rho * z(alpha) + z(beta), so these are tried.
    """
    levels = listed_levels(delta)
    margins = set()
    for z_alpha in levels:
        for z_beta in levels:
            margins.add(rho * z_alpha + z_beta)
    margins = sorted(margins)
    while mass(steps_of_margin(margins[-1], rho, cap, levels)) > delta:
        cap += 0.25

    def is_enough(margin):
        return mass(steps_of_margin(margin, rho, cap, levels)) <= delta

    first = bisect_left(margins, True, key=is_enough)  # a wider margin has less mass
    return steps_of_margin(margins[first], rho, cap, levels)


def quarter_octave(n):
    """The size, rounded to a power of 2^(1/4); it serves to choose, never to bound."""
    return 2 ** (round(4 * math.log2(n)) / 4)


@cache
def staircases(n_a, n_b, delta, rounded=True):
    """For every interval of p_a: its ends and its steps, as (low, high, steps)."""
    if rounded:
        n_a = quarter_octave(n_a)
        n_b = quarter_octave(n_b)
    found = []
    for low, high in pairwise(interval_edges(n_a)):
        p_a = min(0.8 * high + 0.2 * low, 1 - 0.001 / n_a)
        p_b = min(max(p_a - 0.1, 0.02), 1 - 0.5 / n_b)
        sigma_a = math.sqrt(p_a * (1 - p_a) / n_a)
        sigma_b = math.sqrt(p_b * (1 - p_b) / n_b)
        half_octaves = round(2 * math.log2(sigma_a / sigma_b))
        rho = 2 ** (min(max(half_octaves, -16), 12) / 2)
        cap = z(0.98 * delta) + 0.7 * (1 - high) / sigma_b
        cap = math.ceil(cap * 4) / 4
        found.append((low, high, narrowest_steps(rho, cap, delta)))
    return found


@cache
def upper(k, n, level):
    """One-sided Clopper-Pearson bound from above."""
    if k == n:
        return 1.0
    return float(betaincinv(k + 1, n - k, 1 - level))


@cache
def lower(k, n, level):
    """One-sided Clopper-Pearson bound from below."""
    if k == 0:
        return 0.0
    return float(betaincinv(k, n - k + 1, level))


@cache
def pair_loss(k_a, n_a, k_b, n_b, delta, is_ratio, rounded=True):
    """The loss of one ordered pair: how far p_a may be above p_b."""
    if n_a == 0 or n_b == 0:
        return 0.0 if is_ratio else 1.0
    worst = -math.inf
    for low, high, steps in staircases(n_a, n_b, delta, rounded):
        for alpha, beta in steps:
            most = upper(k_a, n_a, alpha)
            if most < low:
                continue
            most = min(most, high)
            least = lower(k_b, n_b, beta)
            loss = -least / most if is_ratio else most - least
            worst = max(worst, loss)
    return worst


def loss(hits, sizes, delta, is_ratio, rounded=True):
    """The largest loss over all ordered pairs of groups."""
    worst = -math.inf
    for a, b in permutations(range(len(sizes)), 2):
        found = pair_loss(hits[a], sizes[a], hits[b], sizes[b], delta, is_ratio, rounded)
        worst = max(worst, found)
    return worst
