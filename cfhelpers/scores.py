"""Non-conformity scores: probabilities (n, K) in, scores (n, K) out.

A larger score is a stranger label. `person_u` draws the random number that APS and RAPS
take for every person.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._blocks import MANY_RANKED_VALUES, in_blocks
from cfhelpers._checks import (
    as_probabilities,
    as_probability_table,
    as_uniforms,
    check_probabilities,
)
from cfhelpers._content import as_table, row_bits
from cfhelpers._ranking import SCORES_AT_ONCE, fill_scores

PENALTY = 0.01  # of RAPS, where nothing is said
K_REG = 1
VALUES_AT_ONCE = 2_000_000  # whose content is in memory beside the rows


def tps(probs: ArrayLike) -> np.ndarray:
    """Threshold prediction sets: one minus the label's probability.

    Parameters
    ----------
    probs : numbers (n, K)
        Probabilities; every row sums to 1.

    Returns
    -------
    numbers (n, K)

    Examples
    --------
    >>> tps([[0.75, 0.25]]).tolist()
    [[0.25, 0.75]]
    """
    table = as_probability_table(probs)
    scores = np.empty_like(table)

    def fill(some: slice) -> None:
        check_probabilities(table, some)
        np.subtract(1, table[some], out=scores[some])

    in_blocks(fill, table.shape)
    return scores


def aps(probs: ArrayLike, u: ArrayLike | None = None) -> np.ndarray:
    """Adaptive prediction sets: the probability of the labels ranked no lower than y.

    From it u times the label's own probability is subtracted. Of equal probabilities the
    lower label is ranked first.

    Parameters
    ----------
    probs : numbers (n, K)
        Probabilities; every row sums to 1.
    u : numbers in [0, 1] (n,), optional
        One per point, shared by its labels. By default scores are not randomised.

    Returns
    -------
    numbers in [0, 1] (n, K)

    Examples
    --------
    >>> aps([[0.25, 0.5, 0.25]]).tolist()
    [[0.75, 0.5, 1.0]]
    >>> aps([[0.25, 0.5, 0.25]], u=[0.5]).tolist()
    [[0.625, 0.25, 0.875]]
    """
    return raps(probs, u, penalty=0.0)


def raps(
    probs: ArrayLike,
    u: ArrayLike | None = None,
    penalty: float = PENALTY,
    k_reg: int = K_REG,
) -> np.ndarray:
    """Regularised adaptive prediction sets: APS plus a penalty for low ranks.

    The penalty is penalty·max(rank - k_reg, 0); the most likely label has rank 1.

    Parameters
    ----------
    probs : numbers (n, K)
        Probabilities; every row sums to 1.
    u : numbers in [0, 1] (n,), optional
        One per point, shared by its labels. By default scores are not randomised.
    penalty : float
        What every rank beyond `k_reg` adds.
    k_reg : int
        How many ranks are free of it.

    Returns
    -------
    numbers (n, K)
        Between 0 and `raps_maximum`.

    Examples
    --------
    >>> raps([[0.25, 0.5, 0.25]], penalty=0.5, k_reg=1).tolist()
    [[1.25, 0.5, 2.0]]
    """
    table = as_probabilities(probs)
    if not penalty >= 0:
        raise ValueError(
            f"penalty: found {penalty!r}; wanted a number that is not below 0"
        )
    if not k_reg >= 0:
        raise ValueError(f"k_reg: found {k_reg!r}; wanted a number that is not below 0")
    number = table.dtype.type
    if u is None:
        own_u = np.zeros(len(table), number)
    else:
        own_u = np.ascontiguousarray(as_uniforms(u, len(table)), number)
    scores = np.empty_like(table)

    def fill(some: slice) -> None:
        fill_scores(
            table[some], own_u[some], number(penalty), number(k_reg), scores[some]
        )

    in_blocks(fill, table.shape, SCORES_AT_ONCE, MANY_RANKED_VALUES)
    return scores


def raps_maximum(n_classes: int, penalty: float = PENALTY, k_reg: int = K_REG) -> float:
    """The largest value that a RAPS score can take.

    Parameters
    ----------
    n_classes : int
        The number of labels.
    penalty, k_reg
        As in `raps`.

    Returns
    -------
    float

    Examples
    --------
    >>> raps_maximum(3, penalty=0.5, k_reg=1)
    2.0
    """
    return 1 + penalty * max(n_classes - k_reg, 0)


def person_u(rows_or_ids: Any, seed: int, purpose: str = "u") -> np.ndarray:
    """A number in [0, 1) for every person, always the same for the same person.

    It is the SipHash of the person's id, or of the row's content, keyed by the seed. So
    it depends neither on the other people in the batch nor on their order, and it is the
    same in every process. Between people and between seeds it looks independent.

    Parameters
    ----------
    rows_or_ids : (n,) ids, or (n, d) rows
        Numbers, text, dates, or a mix: arrays, data frames, lists. Numbers count as
        float64: 7 and 7.0 are one id, 7 and "7" are two. Equal rows share their number.
    seed : int
        From 0.
    purpose : str
        Numbers for different purposes have nothing to do with each other.

    Returns
    -------
    numbers in [0, 1) (n,)

    Examples
    --------
    >>> person_u([7, "7", 7.0], seed=0).round(4).tolist()
    [0.8186, 0.5978, 0.8186]
    >>> person_u([[1.5, 0.0], [1.5, -0.0]], seed=0).round(4).tolist()
    [0.4216, 0.4216]
    """
    key = _hash_key(seed, purpose)
    table = as_table(rows_or_ids)
    n = table.shape[0]
    u = np.empty(n)
    n_columns = table.shape[1] if table.ndim == 2 else 1
    rows_at_once = max(1, VALUES_AT_ONCE // max(n_columns, 1))
    for first in range(0, n, rows_at_once):
        some = slice(first, first + rows_at_once)
        if isinstance(table, pd.DataFrame | pd.Series):
            bits = row_bits(table.iloc[some])
        else:
            bits = row_bits(table[some])
        if bits.shape[1] == 0:
            raise ValueError("rows: found no columns; wanted at least one")
        row_type = f"V{8 * bits.shape[1]}"
        contents = np.ascontiguousarray(bits).view(row_type).ravel().astype(object)
        hashes = pd.util.hash_array(contents, hash_key=key, categorize=False)
        u[some] = (hashes >> np.uint64(11)) * 2.0**-53  # 53 bits fill a float64
    return u


def _hash_key(seed: int, purpose: str) -> str:
    """The 16 characters that key the hash."""
    is_integer = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not is_integer or seed < 0:
        raise ValueError(f"seed: found {seed!r}; wanted an integer from 0")
    return hashlib.sha256(f"{purpose}:{seed}".encode()).hexdigest()[:16]
