"""How much is run: the one parameter of `make stress`, and limits for what is random."""

import os

from scipy.stats import binom

RARELY = 1e-6  # how often a whole run may fail by chance, with every promise kept


def cases(quick, share=1.0):
    """The count that is asked for, or a share of it, and the quick count at least."""
    asked = os.environ.get("CFHELPERS_CASES")
    if asked is None:
        return quick
    return max(quick, round(int(asked) * share))


def most_by_chance(trials, chance, level):
    """The least m with Pr[Bin(trials, chance) > m] ≤ level, exactly."""
    most = int(binom.isf(level, trials, chance))
    while binom.sf(most, trials, chance) > level:
        most += 1
    while most > 0 and binom.sf(most - 1, trials, chance) <= level:
        most -= 1
    return most
