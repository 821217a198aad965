"""Watch a deployed predictor: verdicts that hold at every look.

An audit is valid for one look. A `Monitor` adds up covered and all points per cell as
people arrive, bounds every cell by a confidence sequence, and says at each look whether
the groups are within the closeness, beyond it, or that it cannot tell. The probability
that any look is ever wrong is at most one less the confidence.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._checks import (
    as_array,
    as_fraction,
    as_labels,
    as_pandas,
    as_sets,
    plain,
)
from cfhelpers._written import names_from_json
from cfhelpers.auditing.verdicts import BEYOND, UNDECIDED, WITHIN
from cfhelpers.bounds import confidence_sequence
from cfhelpers.cells import CellCounts, Shares
from cfhelpers.control import TOLERANCE
from cfhelpers.fairness import column_names, label_codes, positive_codes
from cfhelpers.groups import Groups, as_groups
from cfhelpers.metrics import FairnessMetric, get_metric
from cfhelpers.paths import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1  # of the state that `to_dict` gives
MOST_LOOKS = 1_000  # looks that are kept for the picture; older ones are thinned
COUNTS = ("hits", "trials", "prior_hits", "prior_trials")
LOOK_COLUMNS = ["date", "people", "disparity", "lower", "upper", "verdict"]
# What two monitors must share before their counts may be added.
OPTIONS = ("metric", "closeness", "confidence", "declared", "windows")
LABEL_OPTIONS = ("label_names", "positive_labels")


def sequence_bounds(shares: Shares, level: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of every cell, right at all looks at once but for a chance of `level`.

    The proxy's bounds rest on two sequences each, which share the level.
    """
    if not shares.metric.is_proxy:
        return confidence_sequence(shares.hits, shares.trials, level)
    half = np.asarray(level) / 2
    lower, upper = confidence_sequence(shares.hits, shares.trials, half)
    prior_lower, prior_upper = confidence_sequence(
        shares.prior_hits, shares.prior_trials, half
    )
    return lower - prior_upper, upper - prior_lower


def sequence_losses(
    shares: Shares, gamma: float, cell_levels: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Between which losses the true one lies, at this look and at all others.

    Parameters
    ----------
    shares : Shares
        Counts (…, labels, filters, groups); leading axes run over looks or streams.
    gamma : float
        One less the confidence.
    cell_levels : levels that broadcast with the cells, optional
        How γ is shared among cells; by default equally.

    Returns
    -------
    near, far : (…,)
        "Beyond" if near is more than allowed, "within" if far is not. Where a cell has no
        points far is infinite. Either holds at all looks but for a chance of γ: the
        truth is on one side of what is allowed, so only one of the two can be wrong.
    """
    metric = shares.metric
    n_cells = math.prod(shares.trials.shape[-3:])
    if cell_levels is None:
        cell_levels = gamma / n_cells
    far = shares.pair_losses(*sequence_bounds(shares, gamma / 2)).max(axis=(-2, -1))
    is_empty = (shares.trials == 0).any(axis=(-3, -2, -1))
    far = np.where(is_empty, np.inf, far)
    lower, upper = sequence_bounds(shares, cell_levels)
    near = metric.loss(lower.max(axis=-1), upper.min(axis=-1)).max(axis=(-2, -1))
    return np.maximum(near, metric.no_loss), far


@dataclass(frozen=True)
class Look:
    """What was known at one look: the disparity, between which values, the verdict."""

    date: str | None
    people: int
    disparity: float
    lower: float
    upper: float
    verdict: str

    @property
    def row(self) -> list[Any]:
        """As a row of JSON, which has no NaN."""
        disparity = None if math.isnan(self.disparity) else self.disparity
        return [self.date, self.people, disparity, self.lower, self.upper, self.verdict]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Look:
        if not isinstance(row, list | tuple) or len(row) != 6:
            raise ValueError(f"looks: found {row!r}; wanted six entries")
        date, people, disparity, lower, upper, verdict = row
        disparity = math.nan if disparity is None else disparity
        for value in (people, 0 if row[2] is None else disparity, lower, upper):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value):
                raise ValueError(f"looks: found {value!r}; wanted a number")
        for text in (verdict, "" if date is None else date):
            if not isinstance(text, str):
                raise ValueError(f"looks: found {text!r}; wanted text")
        return cls(date, people, disparity, lower, upper, verdict)


class Monitor:
    """Watches the gap between groups as people arrive, with verdicts valid at every look.

    The promise is for a predictor that does not change and people who are drawn alike:
    the probability that any of the verdicts is ever wrong is at most 1 - confidence,
    however often one looks. Give each person once, with the set as it was served. Where
    a metric needs the label, wait until it is known: the promise then needs that the
    delay depends neither on the outcome nor on the set. If it may, count whole cohorts
    by the date of prediction, each when a fixed time has passed.

    Parameters
    ----------
    metric : str or FairnessMetric
        What is compared: one of `METRICS` but set_size, or your own.
    closeness : float, optional
        What is allowed: the largest difference, or the smallest ratio; by default .1,
        for ratios .8.
    groups : names, optional
        The groups that are watched, declared before the first look; another one that
        turns up is refused. Without them groups count as they turn up, and "beyond" takes
        longer for those that come late.
    confidence : float
        That no verdict is ever wrong.
    positive_labels : labels, optional
        Those that are compared. By default all but the first where labels are 0 to
        K - 1, and all of them where they have names.
    label_names : (K,), optional
        What the labels are called; by default as the columns of a data frame, or 0 to
        K - 1.
    windows : dates, optional
        Where a new window begins, fixed beforehand. Counts begin at 0 in each window, so
        that drift shows; the windows have half of 1 - confidence, and so has the verdict
        on all people.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> monitor = Monitor("demographic_parity", 0.1, groups=["men", "women"])
    >>> for week in range(10):
    ...     people = np.repeat(["men", "women"], 500)
    ...     sets = rng.random((1000, 2)) < np.where(people == "men", 0.9, 0.7)[:, None]
    ...     _ = monitor.update(sets, None, people)
    >>> print(monitor.verdict)
    beyond: men and women differ by at least 0.159 at label 1; allowed at most 0.1
    """

    def __init__(
        self,
        metric: str | FairnessMetric,
        closeness: float | None = None,
        groups: Iterable[Any] | None = None,
        confidence: float = 0.95,
        *,
        positive_labels: ArrayLike | None = None,
        label_names: Sequence[Any] | None = None,
        windows: Sequence[Any] | None = None,
    ) -> None:
        self.metric = _as_binomial(get_metric(metric))
        self.closeness = self.metric.allowed(closeness)
        self.confidence = as_fraction(confidence, "confidence")
        self.declared = None if groups is None else _declared_names(groups)
        self.windows = None if windows is None else _window_starts(windows)
        self.label_names = None if label_names is None else _plain_names(label_names)
        self.positive_labels: list[Any] | None = None
        self._asked_labels = positive_labels
        if self.label_names is not None:
            self.positive_labels = self._positive_names(self.label_names)
        self.batches: list[str] = []
        self.looks: list[Look] = []
        self._tallies: dict[int, Shares] = {}  # counts of every window that has some
        self._names: list[Any] = list(self.declared or [])
        self._people = 0

    # What comes in.

    def update(
        self,
        sets: ArrayLike,
        y: ArrayLike | None,
        groups: Any,
        *,
        date: Any = None,
        batch: str | None = None,
    ) -> Monitor:
        """Count more people: all of them, or none if something is wrong.

        Parameters
        ----------
        sets : bool (n, K)
            Prediction sets as they were served. The columns of a data frame name the
            labels.
        y : (n,), or None
            True labels. None for metrics that do not look at them.
        groups : (n,), or several columns
            Several that are all boolean are groups that may overlap, one per column.
        date : a date, or one per person, optional
            When the prediction was made. With windows it says which window counts; in the
            picture it stands below the look.
        batch : str, optional
            A name for these people. A name that was counted before is refused, so that
            nobody counts twice.

        Returns
        -------
        Monitor
            Itself.
        """
        if batch is not None and batch in self.batches:
            raise ValueError(f"batch: found {batch!r} again; these people are counted")
        served, names = self._checked_sets(sets)
        n = len(served)
        true_labels = self._true_labels(y, names, n)
        people = as_groups(groups, n)
        self._check_groups(people)
        people = self._in_own_order(people)
        places, last_date = self._places(date, n)
        positive = self._positive_names(names)
        labels = [names.index(label) for label in positive]
        found = {}
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            counts = CellCounts.from_sets(
                served[rows], true_labels[rows], people.take(rows), self.metric, labels
            )
            found[place] = counts.shares(self.metric, labels)
        # Nothing can fail from here on: the people count all, or not at all.
        self.label_names = names
        self.positive_labels = positive
        self._names = people.names
        self._people += n
        for place, shares in found.items():
            self._add(place, shares)
        if batch is not None:
            self.batches.append(batch)
        self._note_look(last_date)
        return self

    def _checked_sets(self, sets: ArrayLike) -> tuple[np.ndarray, list[Any]]:
        """Sets with columns in the order of the labels, and the labels' names."""
        names = self.label_names
        own_names = column_names(sets)
        if names is not None and own_names is not None and own_names != names:
            sets = _in_order(sets, own_names, names)
        served = as_sets(sets)
        n_classes = served.shape[1]
        if names is None:
            names = _plain_names(own_names or range(n_classes))
        if len(names) != n_classes:
            raise ValueError(f"sets: found {n_classes} columns; wanted one per {names}")
        return served, names

    def _positive_names(self, names: list[Any]) -> list[Any]:
        """The labels that are compared: fixed already, or as they were asked for."""
        if self.positive_labels is not None:
            return self.positive_labels
        return [names[place] for place in positive_codes(self._asked_labels, names)]

    def _true_labels(self, y: ArrayLike | None, names: list[Any], n: int) -> np.ndarray:
        """True labels as places; zeros where the metric does not look at them."""
        if not self.metric.needs_labels:
            return np.zeros(n, np.int64)
        if y is None:
            raise ValueError(
                f"y: found None; {self.metric.name} looks at true labels: wanted one for "
                f"each of the {n} points, when it is known"
            )
        return as_labels(label_codes(y, names, "y"), n, len(names))

    def _check_groups(self, people: Groups) -> None:
        """Refuse groups that were not declared."""
        if self.declared is None:
            return
        for name, count in zip(people.names, people.counts, strict=True):
            if count and plain(name) not in self.declared:
                raise ValueError(
                    f"groups: found {plain(name)!r}, which was not declared; "
                    f"wanted one of {self.declared}"
                )

    def _in_own_order(self, people: Groups) -> Groups:
        """The same people, by the groups' order in this monitor; new ones come last."""
        members = people.members_of_codes()
        first_rows = {}
        for place, name in enumerate(people.names):
            is_member = members[people.codes, place] > 0
            if is_member.any():
                first_rows[plain(name)] = int(is_member.argmax())
        names = list(self._names)
        for name in sorted(first_rows, key=first_rows.__getitem__):
            if name not in names:
                names.append(name)
        wanted = np.zeros((people.n_codes, len(names)), np.int64)
        for place, name in enumerate(people.names):
            if plain(name) in names:
                wanted[:, names.index(plain(name))] = members[:, place]
        if people.memberships is not None:
            return Groups(people.codes, names, wanted)
        return Groups(wanted.argmax(axis=1)[people.codes], names)

    def _places(self, date: Any, n: int) -> tuple[np.ndarray, str | None]:
        """The window of every person, and the last date."""
        if date is None:
            if self.windows is not None:
                raise ValueError("date: found None; with windows wanted a date")
            return np.zeros(n, np.int64), None
        dates = _as_dates(date, "date")
        if len(dates) not in (1, n):
            raise ValueError(
                f"date: found {len(dates)} for {n} points; wanted one, or one per point"
            )
        last = _date_text(dates.max())
        if self.windows is None:
            return np.zeros(n, np.int64), last
        starts = _as_dates(self.windows, "windows")
        places = np.searchsorted(starts.to_numpy(), dates.to_numpy(), side="right")
        return np.broadcast_to(places, n), last

    def _add(self, window: int, shares: Shares) -> None:
        """Add counts to those of a window."""
        if window in self._tallies:
            shares = _sum_of_shares(self._tallies[window], shares)
        self._tallies[window] = shares

    # What comes out.

    @property
    def groups(self) -> list[Any]:
        """The groups that are compared: those declared, or those that turned up."""
        return list(self._names)

    @property
    def people(self) -> int:
        """How many people were counted, over all windows."""
        return self._people

    @property
    def shares(self) -> Shares | None:
        """Counts of all windows together; None before the first update."""
        total = None
        for shares in self._tallies.values():
            total = shares if total is None else _sum_of_shares(total, shares)
        if total is None:
            return None
        return _with_groups(total, self._names)

    @property
    def word(self) -> str:
        """Within, beyond or cannot tell, of all people."""
        return self._judge(self.shares, self._gamma_of_all)[0].verdict

    @property
    def verdict(self) -> str:
        """The verdict in words; it begins with within, beyond or cannot tell."""
        look, why = self._judge(self.shares, self._gamma_of_all)
        text = f"{look.verdict}: {why}"
        if self.windows is None or not self._tallies:
            return text
        row = self.window_table.iloc[-1]
        return f"{text}; since {row['from']}: {row['verdict']}"

    @property
    def window_table(self) -> pd.DataFrame:
        """Every window that has people: from, disparity, lower, upper, verdict."""
        rows = []
        for window in sorted(self._tallies):
            shares = _with_groups(self._tallies[window], self._names)
            look, _ = self._judge(shares, self._gamma_of_window(window))
            begins = "the beginning"
            if self.windows is not None and window > 0:
                begins = self.windows[window - 1]
            rows.append([begins, look.disparity, look.lower, look.upper, look.verdict])
        columns = ["from", "disparity", "lower", "upper", "verdict"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def history(self) -> pd.DataFrame:
        """The looks so far: date, people, disparity, lower, upper, verdict."""
        rows = [[getattr(look, name) for name in LOOK_COLUMNS] for look in self.looks]
        found = pd.DataFrame(rows, columns=LOOK_COLUMNS)
        return found.astype({"disparity": float, "lower": float, "upper": float})

    def plot(self) -> Figure:
        """The disparity over time, between which values it lies, and what is allowed."""
        from cfhelpers import plots

        return plots.looks(
            self.history, self.closeness, self.metric.name, self.metric.is_ratio
        )

    def __repr__(self) -> str:
        return f"Monitor({self.metric.name!r}, {self.closeness:g}): {self.verdict}"

    @property
    def _gamma_of_all(self) -> float:
        gamma = 1 - self.confidence
        if self.windows is None:
            return gamma
        return gamma / 2

    def _gamma_of_window(self, window: int) -> float:
        """The windows' shares of γ sum to half of it, however many there will be."""
        if self.windows is None:
            return 1 - self.confidence
        return _share_of(window + 1) * (1 - self.confidence) / 2

    def _cell_levels(self, shares: Shares, gamma: float) -> np.ndarray:
        """How γ is shared among cells, (labels, filters, groups).

        Equally where groups were declared. Otherwise the i-th cell has 6γ/(π²i²), from
        its first point on: however many cells turn up, the shares sum to less than γ.
        """
        n_labels, n_filters, n_groups = shares.trials.shape
        if self.declared is not None:
            return np.full(shares.trials.shape, gamma / shares.trials.size)
        order = np.arange(1, shares.trials.size + 1)
        by_group = order.reshape(n_groups, n_labels, n_filters)
        return gamma * _share_of(np.moveaxis(by_group, 0, -1))

    def _judge(self, shares: Shares | None, gamma: float) -> tuple[Look, str]:
        """A look at some counts, and why it says what it says."""
        whole = (0.0, 1.0)
        if shares is None or len(self._names) < 2:
            why = "nobody was counted yet"
            if shares is not None:
                why = (
                    f"everyone so far is in {self._names[0]}; there is nobody to compare"
                )
            return Look(None, self.people, math.nan, *whole, UNDECIDED), why
        metric = shares.metric
        levels = self._cell_levels(shares, gamma)
        near, far = sequence_losses(shares, gamma, levels)
        limit = metric.closeness(self.closeness) + TOLERANCE
        verdict = UNDECIDED
        if near > limit:
            verdict = BEYOND
        elif far <= limit:
            verdict = WITHIN
        ends = sorted([float(metric.closeness(near)), float(metric.closeness(far))])
        lower, upper = np.clip(ends, *whole).tolist()
        look = Look(None, self.people, shares.disparity, lower, upper, verdict)
        return look, self._why(look, shares, levels)

    def _why(self, look: Look, shares: Shares, levels: np.ndarray) -> str:
        """The reason for a verdict, in one sentence."""
        allowed = f"allowed at most {self.closeness:g}"
        told = "differ by at least"
        known = f"no two groups differ by more than {look.upper:.3f}"
        value = look.lower
        if shares.metric.is_ratio:
            allowed = f"allowed at least {self.closeness:g}"
            told = "have a ratio of at most"
            known = f"every two groups have a ratio of at least {look.lower:.3f}"
            value = look.upper
        if look.verdict == WITHIN:
            return f"{known}; {allowed}"
        if look.verdict == BEYOND:
            lower, upper = sequence_bounds(shares, levels)
            losses = shares.metric.loss(lower.max(axis=-1), upper.min(axis=-1))
            at = np.unravel_index(losses.argmax(), losses.shape)
            high = shares.group_names[lower[at].argmax()]
            low = shares.group_names[upper[at].argmin()]
            where = ""
            if shares.metric.per_label:
                where = f" at label {(self.positive_labels or [])[int(at[0])]}"
            return f"{high} and {low} {told} {value:.3f}{where}; {allowed}"
        empty = np.argwhere(shares.trials == 0)
        if len(empty):
            named = {str(shares.group_names[cell[-1]]): None for cell in empty}
            return f"no points yet in some cells of {', '.join(named)}; {allowed}"
        return (
            f"the disparity is between {look.lower:.3f} and {look.upper:.3f}; {allowed}"
        )

    def _note_look(self, date: str | None) -> None:
        """Keep what this look says, for the picture."""
        look, _ = self._judge(self.shares, self._gamma_of_all)
        self.looks.append(replace(look, date=date))
        if len(self.looks) > MOST_LOOKS:
            self.looks = self.looks[-1::-2][::-1]

    # The state.

    def merge(self, other: Monitor) -> Monitor:
        """A monitor with the counts of both, whose people must be different.

        The two must have been made with the same options. The looks of the first are
        kept, and one at the sum is added.
        """
        if not isinstance(other, Monitor):
            raise ValueError(f"other: found {type(other).__name__}; wanted a Monitor")
        mine = self.to_dict()
        theirs = other.to_dict()
        for name in (*OPTIONS, *LABEL_OPTIONS):
            is_open = name in LABEL_OPTIONS and None in (mine[name], theirs[name])
            if mine[name] != theirs[name] and not is_open:
                raise ValueError(
                    f"{name}: found {mine[name]!r} in one monitor and {theirs[name]!r} "
                    "in the other; wanted the same"
                )
        for batch in other.batches:
            if batch in self.batches:
                raise ValueError(
                    f"batch: found {batch!r} in both; nobody may count twice"
                )
        first = self if self._tallies else other
        merged = Monitor.from_dict(first.to_dict(), metric=self.metric)
        merged.looks = list(self.looks)
        if first is self and other._tallies:
            merged._add_counts_of(other)
        merged.batches = [*self.batches, *other.batches]
        merged._note_look(_later(self.looks, other.looks))
        return merged

    def _add_counts_of(self, other: Monitor) -> None:
        """Add the counts of a monitor with the same options."""
        for name in other._names:
            if name not in self._names:
                self._names.append(name)
        for window, shares in other._tallies.items():
            order = [self._names.index(name) for name in shares.group_names]
            self._add(window, _with_groups(shares, self._names, order))
        self._people += other.people

    def to_dict(self) -> dict[str, Any]:
        """The whole state, for JSON: options, two integers per cell, and the looks."""
        positive = self.positive_labels
        if positive is None and self._asked_labels is not None:
            positive = _plain_names(as_array(self._asked_labels).tolist())
        tallies = {}
        for window, shares in sorted(self._tallies.items()):
            whole = _with_groups(shares, self._names)
            tallies[str(window)] = {
                name: getattr(whole, name).tolist() for name in COUNTS
            }
        return {
            "format": FORMAT,
            "metric": self.metric.name,
            "closeness": self.closeness,
            "confidence": self.confidence,
            "declared": _names_for_json(self.declared),
            "windows": self.windows,
            "label_names": _names_for_json(self.label_names),
            "positive_labels": _names_for_json(positive),
            "groups": _names_for_json(self._names),
            "people": self._people,
            "counts": tallies,
            "batches": list(self.batches),
            "looks": [look.row for look in self.looks],
        }

    @classmethod
    def from_dict(
        cls, state: Mapping[str, Any], metric: FairnessMetric | None = None
    ) -> Monitor:
        """The monitor that `to_dict` described.

        `metric` where it is one of your own, whose filters a state cannot hold.
        """
        _check_state(state)
        try:
            return cls._restored(state, metric)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"state: it is not whole: {error}") from None

    @classmethod
    def _restored(
        cls, state: Mapping[str, Any], metric: FairnessMetric | None
    ) -> Monitor:
        """From a state that has every entry."""
        found = state["metric"] if metric is None else metric
        if metric is not None and metric.name != state["metric"]:
            raise ValueError(
                f"metric: found {metric.name!r}; wanted {state['metric']!r}, as the state"
            )
        monitor = cls(
            found,
            state["closeness"],
            _names_from_json(state["declared"]),
            state["confidence"],
            positive_labels=_names_from_json(state["positive_labels"]),
            label_names=_names_from_json(state["label_names"]),
            windows=state["windows"],
        )
        monitor._names = _names_from_json(state["groups"]) or []
        for name in monitor._names:
            if isinstance(name, float) and not math.isfinite(name):
                raise ValueError(f"groups: found {name!r}; wanted a name")
        people = state["people"]
        if isinstance(people, bool) or not isinstance(people, int) or people < 0:
            raise ValueError(f"people: found {people!r}; wanted how many were counted")
        monitor._people = people
        monitor.batches = list(state["batches"])
        for row in state["looks"]:
            if len(row) != len(LOOK_COLUMNS):
                raise ValueError(f"looks: found {row!r}; wanted {LOOK_COLUMNS}")
            monitor.looks.append(Look.from_row(row))
        for window, counts in state["counts"].items():
            monitor._tallies[int(window)] = monitor._shares_from(counts)
        return monitor

    def _shares_from(self, counts: Mapping[str, Any]) -> Shares:
        """Counts of one window from the state, checked."""
        arrays: dict[str, Any] = {}
        for name in COUNTS:
            found = np.asarray(counts[name])
            if found.dtype.kind != "i":
                raise ValueError(f"counts: found {name} that are no integers")
            arrays[name] = found.astype(np.int64)
        wanted = (len(self._names),)
        trials = arrays["trials"]
        hits = arrays["hits"]
        is_right = trials.ndim == 3 and trials.shape == hits.shape
        if not is_right or trials.shape[-1:] != wanted:
            raise ValueError(
                f"counts: found shapes {hits.shape} and {trials.shape}; wanted labels, "
                f"filters and {wanted[0]} groups"
            )
        if (hits < 0).any() or (hits > trials).any():
            raise ValueError("counts: found hits below 0 or above trials")
        labels: list[Any] = list(self.positive_labels or [])
        if not self.metric.per_label:
            labels = [None]
        return Shares(self.metric, labels=labels, group_names=list(self._names), **arrays)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state as JSON, whole or not at all."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        with atomic_write(path) as partial:
            partial.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], metric: FairnessMetric | None = None
    ) -> Monitor:
        """Read what `save` wrote."""
        name = Path(path).name
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"{path}: there is no such file") from None
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} cannot be read: {error}") from None
        try:
            return cls.from_dict(state, metric)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def _as_binomial(metric: FairnessMetric) -> FairnessMetric:
    """Metrics whose cells are shares of points; a mean size is none."""
    if metric.name == "set_size":
        raise ValueError(
            "metric: found 'set_size', which is no share of people; wanted another, such "
            "as 'singletons'"
        )
    return metric


def _share_of(order: Any) -> Any:
    """6/(π²i²): the share of the i-th; all of them sum to 1."""
    return 6 / (math.pi**2 * order**2)


def _plain_names(names: Iterable[Any]) -> list[Any]:
    """Names as plain Python values, no two alike."""
    found = [plain(name) for name in names]
    for place, name in enumerate(found):
        if name in found[:place]:
            raise ValueError(f"names: found {name!r} twice; wanted each once")
    return found


def _declared_names(groups: Iterable[Any]) -> list[Any]:
    """The groups declared at the start: at least two different names."""
    if isinstance(groups, str | bytes | Mapping) or not isinstance(groups, Iterable):
        raise ValueError(
            f"groups: found {groups!r}; wanted a list of the groups' names, or None"
        )
    values = as_pandas(groups)
    if isinstance(values, pd.Categorical):
        values = values.categories
    try:
        names = _plain_names(_names_from_json(list(values)) or [])
    except ValueError as error:
        raise ValueError(f"groups: {error}") from None
    if len(names) < 2:
        raise ValueError(
            f"groups: found {names}; wanted at least two groups to compare, or None"
        )
    if any(name is None or name != name for name in names):
        raise ValueError("groups: found a missing name; every group needs one")
    return names


def _as_dates(values: Any, name: str) -> pd.DatetimeIndex:
    """One date or several, in universal time; numbers are no dates."""
    array = np.atleast_1d(as_array(as_pandas(values)))
    wanted = "wanted a date such as '2026-01-31'"
    if array.ndim != 1 or array.dtype.kind in "iufb" or len(array) == 0:
        raise ValueError(f"{name}: found {values!r}; {wanted}")
    try:
        dates = pd.DatetimeIndex(
            pd.to_datetime(pd.Index(array), utc=True, format="ISO8601", errors="coerce")
        )
    except (ValueError, TypeError):
        raise ValueError(f"{name}: found {values!r}; {wanted}") from None
    if dates.hasnans:
        entry = plain(array[int(dates.isna().argmax())])
        found = "a missing date" if pd.isna(entry) else repr(entry)
        raise ValueError(f"{name}: found {found}; {wanted}")
    return dates.tz_localize(None)


def _date_text(date: pd.Timestamp) -> str:
    """A date as text, with the time only where there is one."""
    if date == date.normalize():
        return date.strftime("%Y-%m-%d")
    return date.isoformat()


def _window_starts(windows: Sequence[Any]) -> list[str]:
    """Where windows begin, ascending."""
    starts = _as_dates(windows, "windows")
    if not starts.is_monotonic_increasing or not starts.is_unique:
        raise ValueError(f"windows: found {windows!r}; wanted dates that ascend")
    return [_date_text(start) for start in starts]


def _in_order(sets: Any, found: list[Any], names: list[Any]) -> Any:
    """The columns of a table in the order of the labels."""
    if sorted(map(repr, found)) != sorted(map(repr, names)):
        raise ValueError(f"sets: found columns {found}; wanted one per label, {names}")
    table = as_pandas(sets)
    return table.iloc[:, [found.index(name) for name in names]]


def _sum_of_shares(first: Shares, second: Shares) -> Shares:
    """Counts of both; the second may have groups that turned up later."""
    first = _with_groups(first, second.group_names)
    second = _with_groups(second, first.group_names)
    sums = {}
    for name in COUNTS:
        sums[name] = getattr(first, name) + getattr(second, name)
    if not first.metric.is_predictive:
        sums["prior_hits"] = first.prior_hits
        sums["prior_trials"] = first.prior_trials
    return replace(first, **sums)


def _with_groups(
    shares: Shares, names: list[Any], order: list[int] | None = None
) -> Shares:
    """The same counts among more groups, where each is at its place in `order`."""
    old = len(shares.group_names)
    if order is None:
        order = list(range(old))
    if len(names) <= old and order == list(range(old)):
        return shares
    changed: dict[str, Any] = {}
    for name in COUNTS:
        counts = getattr(shares, name)
        if counts.shape[-1] != old or counts.ndim < 3:
            continue  # a metric without priors
        wider = np.zeros((*counts.shape[:-1], len(names)), np.int64)
        wider[..., order] = counts
        changed[name] = wider
    return replace(shares, group_names=list(names), **changed)


def _later(looks: list[Look], others: list[Look]) -> str | None:
    """The later of the last dates of two monitors."""
    dates = [each[-1].date for each in (looks, others) if each]
    return max((date for date in dates if date is not None), default=None)


def _names_for_json(names: list[Any] | None) -> list[Any] | None:
    """Names that JSON can hold; tuples become lists."""
    if names is None:
        return None
    found: list[Any] = []
    for name in names:
        if isinstance(name, tuple):
            found.append(_names_for_json(list(name)))
            continue
        if not isinstance(name, str | int | float):
            raise ValueError(
                f"names: found {name!r}, a {type(name).__name__}; a state holds text and "
                "numbers"
            )
        found.append(name)
    return found


def _names_from_json(names: list[Any] | None) -> list[Any] | None:
    """Names as they were: lists become tuples again."""
    if names is None:
        return None
    return names_from_json(names)


def _check_state(state: Any) -> None:
    """Refuse what no monitor wrote."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        found = type(state).__name__
        if isinstance(state, Mapping):
            found = f"format {state.get('format')!r}"
        raise ValueError(f"state: found {found}; wanted a monitor's, format {FORMAT}")
    others = ("groups", "people", "counts", "batches", "looks")
    for name in (*OPTIONS, *LABEL_OPTIONS, *others):
        if name not in state:
            raise ValueError(f"state: found no {name!r}; it is not whole")
