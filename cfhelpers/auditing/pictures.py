"""The pictures of the page: a line per group, drawn as SVG beside the group's name.

Positions are per cent of the width, so that a picture fits a desk and a telephone, and
names are text of the page, which wraps and is read aloud. The template draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfhelpers.auditing.sentences import quoted, share_texts

MOST_ROWS = 12  # with more groups, the lowest and the highest are drawn
MOST_DOTS = 400  # groups in the strip that shows all of them at once
ROUND_STEPS = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5)  # between the marks of a scale
MARGIN = 2.0  # per cent of the width, left free on both sides
LONG_NAME = 44  # letters; longer names are shortened, and a key tells them
NAME_START = 26
NAME_END = 10


@dataclass(frozen=True)
class Axis:
    """What a picture's width stands for."""

    low: float
    high: float

    def position(self, value: float) -> str:
        """A value as a place on the width.

        Examples
        --------
        >>> Axis(0, 1).position(0.5)
        '50.00%'
        """
        share = (value - self.low) / (self.high - self.low)
        share = min(max(share, 0.0), 1.0)
        return f"{MARGIN + (100 - 2 * MARGIN) * share:.2f}%"

    def ticks(self, is_share: bool = True, most: int = 5) -> list[dict[str, str]]:
        """A few round values, with their places; the first and last are the ends."""
        width = self.high - self.low
        steps = next(n for n in range(most, 0, -1) if _is_round(width / n) or n == 1)
        ticks = []
        for place in range(steps + 1):
            value = self.low + width * place / steps
            text = f"{value:.0%}" if is_share else f"{value:.3g}"
            anchor = {0: "start", steps: "end"}.get(place, "middle")
            ticks.append({"x": self.position(value), "text": text, "anchor": anchor})
        return ticks


def _is_round(step: float) -> bool:
    """Whether steps of this width have short names."""
    return any(abs(step - round_step) < 1e-9 for round_step in ROUND_STEPS)


def axis_for(values: Sequence[float | None], step: float = 0.2) -> Axis:
    """An axis from 0 to 1, or a part of it in whole steps that holds all values.

    Examples
    --------
    >>> axis_for([0.85, 0.99])
    Axis(low=0.8, high=1.0)
    >>> axis_for([])
    Axis(low=0.0, high=1.0)
    """
    known = [value for value in values if value is not None]
    if not known:
        return Axis(0.0, 1.0)
    low = round(math.floor(min(known) / step + 1e-9) * step, 6)
    high = round(math.ceil(max(known) / step - 1e-9) * step, 6)
    if high <= low:
        high = low + step
    return Axis(low, high)


class Names:
    """Names of groups as the page shows them, and a key to those that are shortened.

    Examples
    --------
    >>> names = Names(["a", "b" * 100])
    >>> names("a"), names("b" * 100)
    ('a', 'bbbbbbbbbbbbbbbbbbbbbbbbbb…bbbbbbbbbb [1]')
    >>> [number for number, name in names.key]
    [1]
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._shown: dict[str, str] = {}
        self.key: list[tuple[int, str]] = []
        for name in names:
            if name in self._shown or len(name) <= LONG_NAME:
                continue
            place = len(self.key) + 1
            start = name[:NAME_START].rstrip()
            self._shown[name] = f"{start}…{name[-NAME_END:].lstrip()} [{place}]"
            self.key.append((place, name))

    def __call__(self, name: str) -> str:
        return self._shown.get(name, name)


def cell_picture(
    entry: Mapping[str, Any],
    cells: Sequence[Mapping[str, Any]],
    shown: Callable[[str], str] = str,
) -> dict[str, Any]:
    """The shares of all groups in the cell that attains a disparity.

    Parameters
    ----------
    entry : dict
        One verdict of the document.
    cells : list of dict
        The cells of its metric and grouping.
    shown : function
        The name of a group as it is shown.

    Returns
    -------
    dict
        Rows to draw, the axis, the band of what is allowed, and a summary where groups
        are left out.
    """
    own = []
    for cell in cells:
        is_there = cell["label"] == entry["label"]
        if is_there and cell["condition"] == entry["condition"]:
            own.append(cell)
    drawn = _chosen(own)
    ends = []
    for cell in own if len(own) <= MOST_ROWS else drawn:
        ends += [cell["lower"], cell["upper"]]
    known = [cell["share"] for cell in own if cell["share"] is not None]
    axis = axis_for([*ends, *known])
    is_share = entry["metric"] != "predictive_parity_proxy"
    rows = []
    for cell in drawn:
        rows.append(_row(cell, axis, shown, is_share))
    return {
        "rows": rows,
        "ticks": axis.ticks(is_share),
        "band": _band(entry, axis),
        "summary": _summary(own, len(drawn)),
        "dots": _dots(own, axis) if len(own) > MOST_ROWS else [],
        "alt": _alt(entry, own, shown),
    }


def _chosen(cells: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """All groups in their order, or the lowest and highest where they are many."""
    if len(cells) <= MOST_ROWS:
        return list(cells)
    known = [cell for cell in cells if cell["share"] is not None]
    known.sort(key=lambda cell: (cell["share"], cell["n"]))
    half = MOST_ROWS // 2
    if len(known) <= MOST_ROWS:
        return known
    return [*known[:half], *known[-half:]]


def _row(
    cell: Mapping[str, Any], axis: Axis, shown: Callable[[str], str], is_share: bool
) -> dict[str, Any]:
    """One group: where its line and dot are, and the same in words."""
    row = {
        "name": shown(cell["group"]),
        "n": cell["n"],
        "x1": axis.position(cell["lower"]),
        "x2": axis.position(cell["upper"]),
        "x": None,
        "value": "–",
        "interval": "no people",
    }
    if cell["share"] is None:
        return row
    row["x"] = axis.position(cell["share"])
    texts = value_texts(cell["share"], cell["lower"], cell["upper"], is_share)
    row["value"] = texts[0]
    row["interval"] = f"{texts[1]} to {texts[2]}"
    return row


def value_texts(share: float, lower: float, upper: float, is_share: bool) -> list[str]:
    """A share and its interval as text, in per cent where it is a share of people."""
    if not is_share:
        return [f"{value:+.3f}" for value in (share, lower, upper)]
    digits = 0
    if upper - lower < 0.02:
        digits = 1
    if upper - lower < 0.002:
        digits = 2
    return [f"{value:.{digits}%}" for value in (share, lower, upper)]


def _band(entry: Mapping[str, Any], axis: Axis) -> dict[str, str] | None:
    """Where shares may lie beside the best one, as it was observed."""
    lowest = entry["lowest"]
    highest = entry["highest"]
    if lowest is None or highest is None:
        return None
    if entry["compare"] == "ratio":
        start = entry["closeness"] * highest["share"]
        end = highest["share"]
    elif entry["condition"] == "different":
        start = lowest["share"]
        end = lowest["share"] + entry["closeness"]
    else:
        start = highest["share"] - entry["closeness"]
        end = highest["share"]
    x1 = float(axis.position(start).rstrip("%"))
    x2 = float(axis.position(end).rstrip("%"))
    return {"x": f"{x1:.2f}%", "width": f"{max(x2 - x1, 0.3):.2f}%"}


def _dots(cells: Sequence[Mapping[str, Any]], axis: Axis) -> list[str]:
    """All groups on one line; every so many-th where they are hundreds."""
    known = sorted(cell["share"] for cell in cells if cell["share"] is not None)
    every = max(1, -(-len(known) // MOST_DOTS))
    return [axis.position(share) for share in known[::every]]


def _summary(cells: Sequence[Mapping[str, Any]], n_drawn: int) -> str:
    """What the groups that are not drawn look like."""
    known = sorted(cell["share"] for cell in cells if cell["share"] is not None)
    if len(cells) <= MOST_ROWS or not known:
        return ""
    quarter = known[len(known) // 4]
    three_quarters = known[(3 * len(known)) // 4]
    low, high = share_texts(cells[0]["metric"], quarter, three_quarters)
    without = len(cells) - len(known)
    empty = ""
    if without:
        empty = f" {without:,} of them have no people here."
    return (
        f"{len(cells):,} groups; the {n_drawn} lowest and highest are drawn. "
        f"Half of the groups lie between {low} and {high}.{empty}"
    )


def _alt(
    entry: Mapping[str, Any],
    cells: Sequence[Mapping[str, Any]],
    shown: Callable[[str], str],
) -> str:
    """The picture in words."""
    lowest = entry["lowest"]
    highest = entry["highest"]
    if lowest is None or highest is None:
        return f"No group has people to compare, for {quoted(entry['label'])}."
    low, high = share_texts(entry["metric"], lowest["share"], highest["share"])
    return (
        f"Shares of {len(cells):,} groups by {entry['grouping']}, with intervals: from "
        f"{low} in {quoted(shown(lowest['group']))} to {high} in "
        f"{quoted(shown(highest['group']))}. The numbers stand beside each line."
    )


def fix_picture(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """The disparity before and after, with its interval and what is allowed."""
    fixes = entry["fixes"]
    if not fixes:
        return None
    ends: list[float | None] = [entry["closeness"]]
    for fix in fixes:
        ends += [fix["lower"], fix["upper"]]
    axis = axis_for(ends, step=0.1)
    rows = []
    for fix in fixes:
        row = {"fix": fix, "x": None, "x1": None, "x2": None}
        if fix["estimate"] is not None:
            row["x"] = axis.position(fix["estimate"])
            row["x1"] = axis.position(fix["lower"])
            row["x2"] = axis.position(fix["upper"])
        rows.append(row)
    return {
        "rows": rows,
        "ticks": axis.ticks(is_share=False, most=3),
        "limit": axis.position(entry["closeness"]),
    }
