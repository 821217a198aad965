"""Two audits compared: what changed between them, and what of it is beyond noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cfhelpers.auditing.sentences import number, percents, quoted
from cfhelpers.auditing.words import counted
from cfhelpers.bounds import clopper_pearson

MOST_CELLS = 5  # as many changed cells are named
CELL_KEY = ("grouping", "metric", "label", "condition", "group")


def compared_documents(
    document: Mapping[str, Any], earlier: Mapping[str, Any]
) -> dict[str, Any]:
    """What changed since an earlier audit.

    A disparity has changed beyond noise if its two intervals have no point in common. A
    cell has if its two exact intervals, wide enough to hold for all cells together, have
    none. Neither needs the two audits to be of different people.

    Parameters
    ----------
    document, earlier : dict
        The documents of both audits.

    Returns
    -------
    dict
        `earlier` (date and file of the other audit), `verdicts` (one entry per verdict
        that both have), `cells` (those that changed beyond noise), `n_cells` compared,
        `only_now` and `only_earlier` (verdicts that one of them lacks), `notes`.
    """
    now_by_key = _by_key(document["verdicts"])
    then_by_key = _by_key(earlier["verdicts"])
    verdicts = []
    for key, now in now_by_key.items():
        if key in then_by_key:
            verdicts.append(_changed_verdict(now, then_by_key[key]))
    cells, n_cells = _changed_cells(document, earlier)
    return {
        "earlier": {
            "date": earlier.get("date", ""),
            "file": earlier["file"].get("name", ""),
            "sha256": earlier["file"].get("sha256", ""),
            "version": earlier.get("version", ""),
        },
        "verdicts": verdicts,
        "cells": cells,
        "n_cells": n_cells,
        "only_now": _names(now_by_key, then_by_key),
        "only_earlier": _names(then_by_key, now_by_key),
        "notes": _notes(document, earlier),
    }


def change_lines(compared: Mapping[str, Any]) -> list[str]:
    """What changed, as lines for a terminal or a page.

    Examples
    --------
    >>> earlier = {"date": "2026-01-31", "file": "old.csv"}
    >>> none = {"cells": [], "only_now": [], "only_earlier": [], "notes": []}
    >>> print(*change_lines({"earlier": earlier, "verdicts": [], "n_cells": 0, **none}))
    Compared with the audit of “old.csv” of 2026-01-31. No verdict is in both audits.
    """
    earlier = compared["earlier"]
    day = earlier["date"][:10]
    lines = [f"Compared with the audit of {quoted(earlier['file'])} of {day}."]
    lines += compared["notes"]
    verdicts = compared["verdicts"]
    turned = [entry for entry in verdicts if entry["is_new_verdict"]]
    moved = [entry for entry in verdicts if entry["is_beyond_noise"]]
    if not verdicts:
        lines.append("No verdict is in both audits.")
    else:
        same = len(verdicts) - len(turned)
        lines.append(
            f"{counted(len(verdicts), 'verdict')} in both: {len(turned)} changed, "
            f"{same} the same; {counted(len(moved), 'disparity', 'disparities')} changed "
            "beyond noise."
        )
    for entry in verdicts:
        if entry["is_new_verdict"] or entry["is_beyond_noise"]:
            lines.append(_verdict_line(entry))
    for cell in compared["cells"][:MOST_CELLS]:
        lines.append(_cell_line(cell))
    more = len(compared["cells"]) - MOST_CELLS
    if more > 0:
        lines.append(f"{counted(more, 'other cell')} changed beyond noise too.")
    for title, names in (
        ("Only in this audit", compared["only_now"]),
        ("Only in the earlier audit", compared["only_earlier"]),
    ):
        if names:
            lines.append(f"{title}: {', '.join(names)}.")
    return lines


def _by_key(verdicts: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Verdicts by their metric and grouping."""
    return {(entry["metric"], entry["grouping"]): entry for entry in verdicts}


def _names(these: Mapping[Any, Any], others: Mapping[Any, Any]) -> list[str]:
    """Verdicts that the others lack."""
    return [f"{metric} by {by}" for metric, by in these if (metric, by) not in others]


def _changed_verdict(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """One verdict now and then."""
    ends = (now["lower"], now["upper"], then["lower"], then["upper"])
    is_apart = False
    if None not in ends:
        is_apart = now["lower"] > then["upper"] or now["upper"] < then["lower"]
    entry: dict[str, Any] = {
        "grouping": now["grouping"],
        "metric": now["metric"],
        "is_new_verdict": now["verdict"] != then["verdict"],
        "is_beyond_noise": is_apart,
        "is_same_closeness": now["closeness"] == then["closeness"],
    }
    for when, side in (("now", now), ("then", then)):
        for field in ("verdict", "estimate", "lower", "upper", "closeness"):
            entry[f"{field}_{when}"] = side[field]
    return entry


def _changed_cells(
    document: Mapping[str, Any], earlier: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], int]:
    """The cells whose share changed beyond noise, and how many were compared.

    If a share is the same in both audits, its two intervals are apart only if one of four
    bounds is wrong; each is at the level γ / (4 · cells), so that all of this is wrong
    with probability at most γ.
    """
    then_by_key = {}
    for cell in earlier["cells"]:
        then_by_key[tuple(cell[field] for field in CELL_KEY)] = cell
    pairs = []
    for cell in document["cells"]:
        then = then_by_key.get(tuple(cell[field] for field in CELL_KEY))
        if then is None or "proxy" in cell["metric"] or cell["metric"] == "set_size":
            continue
        if cell["share"] is not None and then["share"] is not None:
            pairs.append((cell, then))
    if not pairs:
        return [], 0
    gamma = 1 - document["confidence"]
    level = gamma / (4 * len(pairs))
    now_lower, now_upper = _bounds([now for now, _ in pairs], level)
    then_lower, then_upper = _bounds([then for _, then in pairs], level)
    is_apart = (now_lower > then_upper) | (now_upper < then_lower)
    cells = []
    for place in np.flatnonzero(is_apart):
        now, then = pairs[place]
        cells.append(
            {
                **{field: now[field] for field in CELL_KEY},
                "share_now": now["share"],
                "n_now": now["n"],
                "share_then": then["share"],
                "n_then": then["n"],
            }
        )
    cells.sort(key=lambda cell: -abs(cell["share_now"] - cell["share_then"]))
    return cells, len(pairs)


def _bounds(
    cells: list[Mapping[str, Any]], level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the cells' shares; with weights, by their effective sizes."""
    sizes = np.floor([cell["effective"] for cell in cells])
    hits = np.rint(sizes * [cell["share"] for cell in cells])
    return clopper_pearson(hits, sizes, level)


def _notes(document: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    """What else differs between the two, so that they may not be comparable."""
    notes = []
    if document["file"]["sha256"] == earlier["file"].get("sha256"):
        notes.append("The file is the same, byte for byte.")
    for field, words in (
        ("confidence", "confidence differs"),
        ("labels", "labels differ"),
        ("labels_compared", "labels compared differ"),
        ("kind", "kind of predictions differs"),
    ):
        if document[field] != earlier.get(field):
            notes.append(
                f"The {words}: {document[field]} now, {earlier.get(field)} then."
            )
    groups_then = _groups(earlier)
    for grouping, groups in _groups(document).items():
        before = groups_then.get(grouping, groups)
        sides = {
            "now": [name for name in groups if name not in before],
            "then": [name for name in before if name not in groups],
        }
        parts = [
            f"{_first_few(names)} only {when}" for when, names in sides.items() if names
        ]
        if parts:
            notes.append(f"The groups by {grouping} differ: {'; '.join(parts)}.")
    return notes


def _groups(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """The groups of every grouping, each once."""
    found: dict[str, dict[str, None]] = {}
    for cell in document["cells"]:
        found.setdefault(cell["grouping"], {})[str(cell["group"])] = None
    return {grouping: list(groups) for grouping, groups in found.items()}


def _first_few(names: list[str]) -> str:
    """Some names, and how many more there are."""
    listed = ", ".join(names[:MOST_CELLS])
    more = len(names) - MOST_CELLS
    return f"{listed} and {counted(more, 'other')}" if more > 0 else listed


def _verdict_line(entry: Mapping[str, Any]) -> str:
    """One changed verdict as a sentence."""
    change = f"{entry['verdict_then']} → {entry['verdict_now']}"
    if not entry["is_new_verdict"]:
        change = f"still {entry['verdict_now']}"
    noise = "within noise"
    if entry["is_beyond_noise"]:
        noise = "beyond noise"
    limit = ""
    if not entry["is_same_closeness"]:
        then = f"{entry['closeness_then']:g}"
        limit = f" Allowed was {then}, and is {entry['closeness_now']:g}."
    return (
        f"{entry['metric']} by {entry['grouping']}: {change}; "
        f"{number(entry['estimate_then'])} → {number(entry['estimate_now'])}, a change "
        f"{noise}.{limit}"
    )


def _cell_line(cell: Mapping[str, Any]) -> str:
    """One changed cell as a sentence."""
    then, now = percents(cell["share_then"], cell["share_now"])
    return (
        f"{cell['metric']} by {cell['grouping']}, {cell['group']}, {cell['label']}: "
        f"{then} → {now}, beyond noise."
    )
