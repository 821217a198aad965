"""What `to_dict` writes for JSON, and what `from_dict` takes back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cfhelpers._checks import plain

# What some values must be: their types, and words for them.
NUMBER = (int, float, str)
WRITTEN_AS: dict[str, tuple[tuple[type, ...], str]] = {
    "conformity_score": ((dict,), "a score's name and options"),
    "randomized": ((bool,), "true or false"),
    "ids": ((bool,), "true or false"),
    "feasible": ((bool,), "true or false"),
    "satisfied": ((bool,), "true or false"),
    "is_ratio": ((bool,), "true or false"),
    "classwise": ((bool,), "true or false"),
    "per_group": ((bool,), "true or false"),
    "quantiles": ((bool,), "true or false"),
    "seed": ((int,), "an integer from 0"),
    "n_features": ((int, type(None)), "an integer from 0, or null"),
    "classes": ((list,), "a list of labels"),
    "columns": ((list,), "a list of names"),
    "prediction_columns": ((list, type(None)), "a list of names, or null"),
    "groups": ((list,), "a list of names"),
    "feature_names": ((list, type(None)), "a list of names, or null"),
    "threshold": ((list,), "a list of numbers"),
    "base_threshold": (NUMBER, "a number"),
    "hair": ((int, float), "a number from 0"),
    "promise": ((dict,), "what is promised"),
    "bound": ((list,), "a list of numbers"),
    "bounds": ((dict,), "a list of numbers for each metric"),
    "smallest_closeness": ((int, float, type(None)), "a number, or null"),
    "closeness": ((int, float), "a number"),
    "points_needed": ((int,), "an integer from 0"),
    "blocking_cells": ((list,), "a list of group, label and count"),
    "weighting": ((dict, type(None)), "what became of the weights, or null"),
    "metric": ((str,), "a name"),
    "guarantee": ((str,), "a name"),
}
NOT_NEGATIVE = ("seed", "n_features", "hair", "points_needed")


def json_thresholds(thresholds: np.ndarray) -> list[Any]:
    """Thresholds (K,) or (G, K) as JSON has them."""
    if thresholds.ndim == 2:
        return [json_thresholds(row) for row in thresholds]
    return [json_number(value) for value in thresholds]


def json_number(value: float) -> float | str:
    """A threshold as JSON has it: infinity is a text."""
    if math.isinf(value):
        return "inf"
    return float(value)


def json_values(value: Any) -> Any:
    """Plain JSON: tuples as lists, and what JSON has no type for as text."""
    if isinstance(value, dict):
        return {key: json_values(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(entry) for entry in value]
    value = plain(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def check_written(fitted: Any, name: str, needed: Sequence[str]) -> None:
    """Refuse what `to_dict` of the class of this name did not write.

    Examples
    --------
    >>> check_written({"class": "FairConformalRegressor"}, "FairConformalClassifier", ())
    Traceback (most recent call last):
        ...
    ValueError: fitted: found class 'FairConformalRegressor'; wanted what \
    FairConformalClassifier.to_dict gives
    """
    if not isinstance(fitted, dict):
        raise ValueError(f"fitted: found {type(fitted).__name__}; wanted a dict")
    if fitted.get("class") != name:
        raise ValueError(
            f"fitted: found class {fitted.get('class')!r}; wanted what "
            f"{name}.to_dict gives"
        )
    absent = [each for each in needed if each not in fitted]
    if absent:
        raise ValueError(f"fitted: found no {absent[0]!r}; wanted all that to_dict gives")
    for each, (kinds, words) in WRITTEN_AS.items():
        if each not in fitted:
            continue
        value = fitted[each]
        is_right = isinstance(value, kinds)
        if isinstance(value, bool):  # which Python takes for an integer
            is_right = bool in kinds
        elif is_right and isinstance(value, int | float):
            is_right = value >= 0 or (each not in NOT_NEGATIVE and not math.isnan(value))
        if not is_right:
            raise ValueError(f"fitted: found {value!r} for {each!r}; wanted {words}")


def thresholds_from_json(written: Any) -> np.ndarray:
    """What `json_thresholds` wrote: numbers, of which some may be infinite.

    Examples
    --------
    >>> thresholds_from_json([0.5, "inf"]).tolist()
    [0.5, inf]
    """
    try:
        found = np.array(written, dtype=object).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"fitted: found thresholds {written!r}; wanted numbers"
        ) from None
    if np.isnan(found).any():
        raise ValueError("fitted: found a threshold that is no number")
    return found


def numbers_from_json(written: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of which some may be undefined, null in JSON.

    Examples
    --------
    >>> numbers_from_json([None, 0.5], (2,)).tolist()
    [nan, 0.5]
    """
    try:
        found = np.array(written, dtype=object).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"fitted: found {written!r}; wanted numbers, or null") from None
    if found.shape != shape:
        raise ValueError(
            f"fitted: found {written!r}; wanted a number, or null, for each threshold"
        )
    return found


def names_from_json(names: list[Any]) -> list[Any]:
    """Names that were tuples are tuples again.

    Examples
    --------
    >>> names_from_json(["a", ["b", ["c", 1]]])
    ['a', ('b', ('c', 1))]
    """
    found = []
    for name in names:
        found.append(tuple(names_from_json(name)) if isinstance(name, list) else name)
    return found


def written_name(name: Any) -> Any:
    """A name as it comes back from JSON, which has no type for a date, for one.

    Examples
    --------
    >>> written_name(("a", 1)), written_name(1), written_name(complex(0, 1))
    (('a', 1), 1, '1j')
    """
    [found] = names_from_json(json_values([name]))
    return found


def json_labels(labels: Iterable[Any]) -> list[Any]:
    """Labels, of which JSON must have the types: they are served as they were."""
    found = [plain(label) for label in labels]
    for label in found:
        if not isinstance(label, bool | int | float | str):
            raise ValueError(
                f"classes: found {label!r}, a {type(label).__name__}; JSON holds text "
                "and numbers, so wanted labels that are either"
            )
    return found
