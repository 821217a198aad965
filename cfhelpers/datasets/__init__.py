"""The datasets of the paper; `load_dataset` gives a `Dataset` that says what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from cfhelpers.datasets._dataset import (
    PARTS,
    Dataset,
    Source,
    resplit,
    split,
    tune_halves,
)

__all__ = [
    "NAMES",
    "PARTS",
    "Dataset",
    "Source",
    "credit_probabilities",
    "load_dataset",
    "resplit",
    "split",
    "tune_halves",
]

_MODULE_OF = {
    "credit": "credit",
    "acs_income": "acs",
    "acs_education": "acs",
    "pokec_n": "pokec",
    "pokec_z": "pokec",
}
NAMES = tuple(_MODULE_OF)


def load_dataset(
    name: str,
    source: str | None = None,
    *,
    attribute: str | Sequence[str] | None = None,
    **options: Any,
) -> Dataset:
    """One of the paper's datasets.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    source : str, optional
        One of `Source`; by default "bundled" for Credit and "simulated" for the others.
    attribute : str or several, optional
        What the groups are by; several are crossed.
    **options
        Those of the dataset's own module: graph (Credit); year, states, horizon, brackets
        (ACS); n and seed (simulated records).

    Returns
    -------
    Dataset

    Examples
    --------
    >>> credit = load_dataset("credit", attribute="sex")
    >>> credit.counts().sum(axis=1).to_dict()
    {'women': 18112, 'men': 11888}
    """
    if name not in _MODULE_OF:
        raise ValueError(f"name: found {name!r}; wanted one of {', '.join(NAMES)}")
    module = import_module(f"{__name__}.{_MODULE_OF[name]}")
    return module.load(name, source, attribute=attribute, **options)


def credit_probabilities() -> tuple[np.ndarray, np.ndarray]:
    """A plain model's probabilities for Credit, kept so that lessons need no training.

    Returns
    -------
    probabilities : float32 (30000, 4)
    parts : str (30000,)
        The part of every row: `split` of Credit with seed 0. The model saw "train".

    Examples
    --------
    >>> probabilities, parts = credit_probabilities()
    >>> probabilities.shape
    (30000, 4)
    """
    return import_module(f"{__name__}.credit").credit_probabilities()
