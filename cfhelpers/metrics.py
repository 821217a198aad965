"""Fairness metrics: which points form a cell, and how cells are compared."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from cfhelpers._checks import as_fraction, one_of

LOW_RATIO = 0.5  # a ratio this small is hardly what anyone allows

Filter = Callable[[np.ndarray, Any, Any, int], Any]


class Condition(StrEnum):
    """A condition on the true label y, for a label ỹ."""

    ANY = "any"
    EQUAL = "equal"
    DIFFERENT = "different"


class Compare(StrEnum):
    """How the shares of two groups are compared."""

    DIFFERENCE = "difference"
    RATIO = "ratio"


class Quantity(StrEnum):
    """What is compared between groups."""

    COVERAGE = "coverage"
    TRUE_LABEL_COVERAGE = "true_label_coverage"
    PPV = "ppv"
    PPV_MINUS_PRIOR = "ppv_minus_prior"
    SET_SIZE = "set_size"
    SINGLETON = "singleton"


@dataclass(frozen=True)
class GroupFilter:
    """The points of group a whose true label is any, equal to ỹ, or different from it."""

    condition: Condition

    def __call__(self, y: np.ndarray, g: Any, a: Any, label: int) -> np.ndarray:
        if self.condition == Condition.ANY:
            return np.asarray(g == a)
        if self.condition == Condition.EQUAL:
            return np.asarray((g == a) & (y == label))
        return np.asarray((g == a) & (y != label))


@dataclass(frozen=True)
class FairnessMetric:
    """A filter that says which points form a cell, and how the cells of groups compare.

    Parameters
    ----------
    name : str
    filter : callable (y, g, a, label) -> mask, or several of them
        Which points form the cell of group `a` and `label`: a boolean mask from the true
        labels `y` and the groups `g` of all points. Several filters must all hold at the
        same threshold.
    compare : "difference" or "ratio"
        The largest difference between groups, or the smallest ratio.
    quantity : str
        What is compared. The user's own metrics compare "coverage": the share of the
        cell whose set holds `label`. Built-in metrics also use the coverage of the true
        label, the predictive value Pr[Y = ỹ | ỹ in the set] ("ppv"), that value less
        the prior Pr[Y = ỹ] ("ppv_minus_prior"), the mean size of a set as a share of all
        labels ("set_size"), or how many sets hold just one label ("singleton").

    Examples
    --------
    Coverage of a label among the young alone:

    >>> def young(y, g, a, label):
    ...     return (g == a) & (y == label)
    >>> FairnessMetric("young", young).compare
    'difference'
    """

    name: str
    filter: Filter | tuple[Filter, ...]
    compare: str = "difference"
    quantity: str = "coverage"

    def __post_init__(self) -> None:
        one_of(self.compare, "compare", tuple(Compare))
        one_of(self.quantity, "quantity", tuple(Quantity))
        for filter_ in self.filters:
            if not callable(filter_):
                raise ValueError(
                    f"filter: found {filter_!r}; "
                    "wanted a callable (y, g, a, label) -> mask"
                )
        both = (Condition.EQUAL, Condition.DIFFERENT)
        needed: dict[str, tuple[str | None, ...]] = {
            Quantity.TRUE_LABEL_COVERAGE: (Condition.ANY,),
            Quantity.SET_SIZE: (Condition.ANY,),
            Quantity.SINGLETON: (Condition.ANY,),
            Quantity.PPV: both,
            Quantity.PPV_MINUS_PRIOR: both,
        }
        if self.quantity in needed and self.conditions != needed[self.quantity]:
            raise ValueError(
                f"quantity: {self.quantity!r} goes with the filters of the built-in "
                "metrics; use 'coverage'"
            )

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters, one or several."""
        if isinstance(self.filter, tuple):
            return self.filter
        return (self.filter,)

    @property
    def conditions(self) -> tuple[str | None, ...]:
        """The condition on the true label, per filter; None for the user's own."""
        return tuple(getattr(filter_, "condition", None) for filter_ in self.filters)

    @property
    def is_built_in(self) -> bool:
        """Whether every filter is a group and a condition on the true label."""
        return all(isinstance(filter_, GroupFilter) for filter_ in self.filters)

    @property
    def is_ratio(self) -> bool:
        return self.compare == Compare.RATIO

    @property
    def is_proxy(self) -> bool:
        """Whether the prior is subtracted from the predictive value."""
        return self.quantity == Quantity.PPV_MINUS_PRIOR

    @property
    def is_predictive(self) -> bool:
        """Whether it compares predictive values rather than coverages."""
        return self.quantity in (Quantity.PPV, Quantity.PPV_MINUS_PRIOR)

    @property
    def per_label(self) -> bool:
        """False where a whole set is looked at, or the true label alone."""
        return self.quantity != Quantity.TRUE_LABEL_COVERAGE and not self.is_size

    @property
    def is_size(self) -> bool:
        """Whether it compares sizes of sets: how many labels a set holds."""
        return self.quantity in (Quantity.SET_SIZE, Quantity.SINGLETON)

    @property
    def is_mean(self) -> bool:
        """Whether it compares means of numbers, not shares of points."""
        return self.quantity == Quantity.SET_SIZE

    @property
    def needs_labels(self) -> bool:
        """Whether it looks at true labels; demographic parity, for one, does not."""
        is_any = set(self.conditions) == {Condition.ANY}
        is_of_true_label = self.quantity == Quantity.TRUE_LABEL_COVERAGE
        return self.is_predictive or is_of_true_label or not is_any

    @property
    def default_closeness(self) -> float:
        """The four-fifths rule for ratios; a tenth for differences."""
        if self.is_ratio:
            return 0.8
        return 0.1

    def allowed(self, closeness: float | None, stacklevel: int = 3) -> float:
        """The closeness that is asked for, checked; None: the default.

        A ratio far below the four-fifths rule is warned about.
        """
        if closeness is None:
            return self.default_closeness
        value = as_fraction(closeness, "closeness", include_one=True)
        if self.is_ratio and value < LOW_RATIO:
            warnings.warn(
                f"closeness: found {value:g} for {self.name}, a ratio: one group's share "
                f"may then be {value:g} of another's; the four-fifths rule asks for 0.8",
                UserWarning,
                stacklevel=stacklevel,
            )
        return value

    @property
    def no_loss(self) -> float:
        """The loss of groups that do not differ at all; see `loss`."""
        if self.is_ratio:
            return -1.0
        return 0.0

    def loss(self, highest: Any, lowest: Any) -> Any:
        """The difference of two shares, or their ratio with its sign turned.

        Smaller is always fairer. Two shares of zero have a ratio of one.
        """
        if not self.is_ratio:
            return highest - lowest
        safe = np.where(highest == 0, 1.0, highest)
        return np.where(highest == 0, -1.0, -lowest / safe)

    def closeness(self, loss: Any) -> Any:
        """A loss as a closeness, or a closeness as a loss."""
        if self.is_ratio:
            return -loss
        return loss


_ANY = GroupFilter(Condition.ANY)
_EQUAL = GroupFilter(Condition.EQUAL)
_DIFFERENT = GroupFilter(Condition.DIFFERENT)

METRICS: dict[str, FairnessMetric] = {
    metric.name: metric
    for metric in (
        FairnessMetric("demographic_parity", _ANY),
        FairnessMetric("equal_opportunity", _EQUAL),
        FairnessMetric("predictive_equality", _DIFFERENT),
        FairnessMetric("equalized_odds", (_EQUAL, _DIFFERENT)),
        FairnessMetric("disparate_impact", _ANY, compare="ratio"),
        FairnessMetric("predictive_parity", (_EQUAL, _DIFFERENT), quantity="ppv"),
        FairnessMetric(
            "predictive_parity_proxy", (_EQUAL, _DIFFERENT), quantity="ppv_minus_prior"
        ),
        FairnessMetric("overall_accuracy_equality", _ANY, quantity="true_label_coverage"),
        FairnessMetric("set_size", _ANY, quantity="set_size"),
        FairnessMetric("singletons", _ANY, quantity="singleton"),
    )
}
# Those of the paper, which look at labels; the others look at the sizes of sets.
LABEL_METRICS = tuple(name for name, metric in METRICS.items() if not metric.is_size)


def get_metric(metric: str | FairnessMetric) -> FairnessMetric:
    """A metric by name, or the user's own."""
    if isinstance(metric, FairnessMetric):
        return metric
    if not isinstance(metric, str) or metric not in METRICS:
        known = ", ".join(map(repr, METRICS))
        raise ValueError(
            f"metric: found {metric!r}; wanted a FairnessMetric or one of {known}"
        )
    return METRICS[metric]
