"""The audit of a file as one plain dict: the JSON document, from which all else is made.

The page, the tables, the card and the comparison of two audits read nothing but this
document. docs/audit_json.md says what every field holds.
"""

from __future__ import annotations

import json
import math
import os
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers.auditing.files import FileAudit
from cfhelpers.auditing.sentences import (
    next_steps,
    question_of,
    title_of,
    told,
    who_is_worst_off,
)
from cfhelpers.auditing.verdicts import BEYOND, WITHIN, Judge, sure_bounds
from cfhelpers.cells import Shares
from cfhelpers.metrics import FairnessMetric

SCHEMA = "cfhelpers.audit"
SCHEMA_VERSION = 1
MOST_POINTS = 100_000  # a cell that needs more than this is not called small
CELL_FIELDS = {
    "metric": "metric",
    "label": "label",
    "condition": "condition",
    "group": "group",
    "count": "n",
    "covered": "covered",
    "coverage": "share",
    "lower": "lower",
    "upper": "upper",
    "effective": "effective",
}
SHARE_FIELDS = ("group", "n", "covered", "share", "lower", "upper", "effective")
SIZE_FIELDS = {
    "group": "group",
    "count": "n",
    "mean set size": "mean_set_size",
    "coverage": "coverage",
    "lower": "lower",
    "upper": "upper",
}


def audit_document(found: FileAudit) -> dict[str, Any]:
    """The audit of a file as a dict that JSON can hold.

    Parameters
    ----------
    found : FileAudit
        What `audit_file` gives.

    Returns
    -------
    dict
        Of text, numbers, lists, dicts and None; see docs/audit_json.md.

    Examples
    --------
    >>> import tempfile
    >>> from cfhelpers.auditing import audit_file
    >>> rows = "set_no,set_yes,y,group\\n" + "1,0,no,a\\n0,1,yes,b\\n" * 40
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "mine.csv"
    ...     _ = file.write_text(rows)
    ...     made = audit_document(audit_file(file, metrics="equal_opportunity"))
    >>> made["schema"], made["schema_version"], made["file"]["rows"]
    ('cfhelpers.audit', 1, 80)
    >>> [entry["verdict"] for entry in made["verdicts"]]
    ['cannot tell']
    """
    is_decision = found.kind == "decisions"
    is_weighted = found.weights is not None
    verdicts = []
    for verdict in found.verdicts:
        entry = _verdict_entry(found, verdict)
        entry["sentence"] = ""
        if entry["verdict"] == BEYOND:
            entry["sentence"] = who_is_worst_off(told(entry), is_decision, is_weighted)
        entry["next_steps"] = next_steps(entry)
        verdicts.append(entry)
    first = next(iter(found.audits.values()))
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        **_stamp(found),
        "confidence": first.confidence,
        "alpha": found.alpha,
        "delta": found.delta,
        "is_joint": bool(found.joint),
        "joint_sentence": found.joint_sentence,
        "labels": [str(name) for name in found.label_names],
        "labels_compared": [str(name) for name in found.positive_labels],
        "thresholds": _thresholds(found),
        "weights": _weights(found),
        "groupings": [_grouping(found, by) for by in found.audits],
        "verdicts": verdicts,
        "cells": _cells(found),
        "compared": None,
    }


def _stamp(found: FileAudit) -> dict[str, Any]:
    """When and how the audit was made, of which file, and how the file was read."""
    source = found.source
    return {
        "date": source.date,
        "version": source.version,
        "command": source.command,
        "file": {
            "name": found.name,
            "sha256": source.sha256,
            "rows": int(source.rows),
            "rows_audited": int(source.audited),
            "rows_calibration": int((found.calibration & ~found.audited).sum()),
        },
        "options": {name: plain_value(value) for name, value in source.options.items()},
        "kind": found.kind,
        "rule": found.rule,
        "reading": list(found.reading),
    }


def _thresholds(found: FileAudit) -> list[dict[str, Any]] | None:
    """The threshold of every label, as a score and as a probability."""
    if found.threshold is None:
        return None
    scores = np.broadcast_to(found.threshold, len(found.label_names))
    cutoffs = None
    if found.cutoffs is not None:
        cutoffs = [found.cutoffs.get(name) for name in found.label_names]
    return threshold_list(found.label_names, scores, cutoffs)


def threshold_list(names: Any, scores: Any, cutoffs: Any) -> list[dict[str, Any]]:
    """One entry per label; an infinite threshold, which every set passes, is None."""
    entries = []
    for place, name in enumerate(names):
        score = float(scores[place])
        entry = {
            "label": str(name),
            "score": number_or_none(score),
            "probability": None,
            "is_always_in_set": math.isinf(score) and score > 0,
        }
        if cutoffs is not None and cutoffs[place] is not None:
            entry["probability"] = number_or_none(float(cutoffs[place]))
        entries.append(entry)
    return entries


def _weights(found: FileAudit) -> dict[str, Any] | None:
    """The column of weights, and what it does to the number of people."""
    if found.weights is None:
        return None
    return {
        "column": found.weights.column,
        "replicates": int(found.weights.replicates),
        "effective_people": number_or_none(found.weights.effective),
        "sentence": found.weights.sentence,
    }


def _grouping(found: FileAudit, by: str) -> dict[str, Any]:
    """One way to group people: its groups, with their sizes."""
    sizes = found.audits[by].sizes.reset_index(names="group")
    groups = plain_records(sizes, SIZE_FIELDS)
    return {
        "by": by,
        "n_without_group": int(found.missing.get(by, 0)),
        "groups": groups,
    }


def _cells(found: FileAudit) -> list[dict[str, Any]]:
    """Every cell of every metric and grouping."""
    cells = []
    for by, audited in found.audits.items():
        for record in _cell_records(audited.cells):
            cells.append({"grouping": by, **record})
    return cells


def _cell_records(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Cells as dicts; people are whole, and a size of sets counts labels, not people."""
    records = plain_records(cells, CELL_FIELDS)
    for record in records:
        counts_people = record["metric"] != "set_size"
        record["covered"] = int(record["covered"]) if counts_people else None
    return records


def _verdict_entry(found: FileAudit, verdict: Any) -> dict[str, Any]:
    """One verdict with everything that is said about it, but for the sentences."""
    return {
        "grouping": verdict.grouping,
        "metric": verdict.metric,
        "title": title_of(verdict.metric),
        "question": question_of(verdict.metric),
        "compare": "ratio" if verdict.is_ratio else "difference",
        "closeness": float(verdict.closeness),
        "estimate": number_or_none(verdict.estimate),
        "lower": number_or_none(verdict.low),
        "upper": number_or_none(verdict.high),
        "verdict": verdict.verdict,
        "kind": verdict.kind,
        "joint_verdict": verdict.joint,
        "vacuous": verdict.vacuous,
        "label": str(verdict.label),
        "condition": str(verdict.condition),
        "lowest": _share(verdict.worst, verdict.metric),
        "highest": _share(verdict.best, verdict.metric),
        "shown_by": _shown_by(found, verdict),
        "empty": _empty_cells(verdict),
        "people": int(verdict.people),
        "people_needed": plain_value(verdict.people_needed),
        "power": float(verdict.power),
        "small_groups": _small_groups(found, verdict),
        "fixes": _fixes(found, verdict),
    }


def _share(cell: Any, metric: str) -> dict[str, Any] | None:
    """One group's share of the cell that attains the disparity."""
    if cell is None:
        return None
    return {
        "group": str(cell.group),
        "n": int(cell.n),
        "covered": int(cell.covered) if metric != "set_size" else None,
        "share": number_or_none(cell.share),
        "lower": number_or_none(cell.low),
        "upper": number_or_none(cell.high),
        "effective": number_or_none(cell.effective),
    }


def _shown_by(found: FileAudit, verdict: Any) -> dict[str, Any] | None:
    """Two groups that are shown to differ by more than is allowed; None unless beyond.

    Those that attain the disparity, where they show it themselves. A disparity can also
    be attained by a few people, who show nothing; then the two groups that show most.
    """
    if verdict.verdict != BEYOND:
        return None
    audited = found.audits[verdict.grouping]
    shares = audited.shares[verdict.metric]
    judge = audited.judges[verdict.metric]
    lower, upper = sure_bounds(shares, judge.gamma / 2)
    values = np.where(np.isnan(shares.values), -np.inf, shares.values)
    place = np.unravel_index(shares.losses.argmax(), shares.losses.shape)
    high = int(values[place].argmax())
    low = int(np.where(np.isinf(values[place]), np.inf, values[place]).argmin())
    sure = shares.metric.loss(lower[place][high], upper[place][low])
    if sure <= judge.limit(shares.metric):
        near = shares.metric.loss(lower.max(axis=-1), upper.min(axis=-1))
        place = np.unravel_index(np.argmax(near), near.shape)
        high = int(lower[place].argmax())
        low = int(upper[place].argmin())
    cells = audited.cells[audited.cells["metric"] == verdict.metric]
    records = _cell_records(cells)
    at_low = records[int(np.ravel_multi_index((*place, low), shares.trials.shape))]
    at_high = records[int(np.ravel_multi_index((*place, high), shares.trials.shape))]
    return {
        "label": at_low["label"],
        "condition": at_low["condition"],
        "lowest": {field: at_low[field] for field in SHARE_FIELDS},
        "highest": {field: at_high[field] for field in SHARE_FIELDS},
    }


def _empty_cells(verdict: Any) -> list[dict[str, str]]:
    """The cells that hold no people."""
    cells = []
    for group, label, condition in verdict.empty:
        cells.append(
            {"group": str(group), "label": str(label), "condition": str(condition)}
        )
    return cells


def _small_groups(found: FileAudit, verdict: Any) -> dict[str, int] | None:
    """How many groups have a cell too small for any verdict "within"; None if none has.

    `least` is the smallest number of people at which two groups pass, if all of both are
    covered. Where pooling would leave fewer than two groups there is nothing to pool.
    """
    audited = found.audits[verdict.grouping]
    shares = audited.shares[verdict.metric]
    least = least_people(shares.metric, audited.judges[verdict.metric])
    if least is None or len(audited.sizes) <= 2:
        return None
    smallest = np.asarray(shares.trials).reshape(-1, shares.trials.shape[-1]).min(axis=0)
    n_small = int((smallest < least).sum())
    if n_small < 2:
        return None
    return {"groups": n_small, "least": least}


@lru_cache(maxsize=64)
def least_people(metric: FairnessMetric, judge: Judge) -> int | None:
    """The fewest people in each of two cells at which they could be shown to be within.

    Examples
    --------
    >>> from cfhelpers.metrics import METRICS
    >>> least_people(METRICS["equal_opportunity"], Judge(0.1, 0.05))
    31
    """
    if metric.is_proxy or not metric.is_built_in:
        return None

    def may_pass(n: int) -> bool:
        counts = np.full((1, 1, 2), n)
        shares = Shares(metric, counts, counts, [0], ["a", "b"])
        return bool(judge.passes(shares).all())

    least = bisect_left(range(MOST_POINTS), True, lo=1, key=may_pass)
    if least == MOST_POINTS:
        return None
    return least


def _fixes(found: FileAudit, verdict: Any) -> list[dict[str, Any]]:
    """The sets as they are and thresholds that would mend them; none where within."""
    if found.scores is None or verdict.verdict == WITHIN:
        return []
    table = found.fixes(verdict.grouping, verdict.metric)
    fixes = []
    for (thresholds, rule), (_, row) in zip(table.index, table.iterrows(), strict=True):
        fixes.append(
            {
                "thresholds": thresholds,
                "rule": rule,
                "delta": found.delta,
                "rows": int(row["rows"]),
                "mean_set_size": float(row["mean set size"]),
                "coverage": float(row["coverage"]),
                "estimate": number_or_none(row["disparity"]),
                "lower": number_or_none(row["lower"]),
                "upper": number_or_none(row["upper"]),
                "closeness": float(row["closeness"]),
                "verdict": row["verdict"],
                "vacuous": row["vacuous"],
                "by_label": threshold_list(
                    found.label_names, row["threshold"], row["cutoff"]
                ),
                "note": row["note"],
            }
        )
    return fixes


def plain_records(table: pd.DataFrame, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of a table as dicts of plain values, with other names for the columns.

    Examples
    --------
    >>> table = pd.DataFrame({"count": [3], "coverage": [np.nan]})
    >>> plain_records(table, {"count": "n", "coverage": "share"})
    [{'n': 3, 'share': None}]
    """
    columns: list[list[Any]] = []
    for column in fields:
        values = table[column]
        if values.dtype.kind == "f":
            columns.append([number_or_none(value) for value in values.tolist()])
        elif values.dtype.kind in "iu":
            columns.append(values.tolist())
        else:
            columns.append([str(value) for value in values])
    names = list(fields.values())
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def number_or_none(value: Any) -> float | None:
    """A number that JSON can hold; None for NaN and infinities.

    Examples
    --------
    >>> number_or_none(np.float64(0.5)), number_or_none(np.nan)
    (0.5, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(value)


def plain_value(value: Any) -> Any:
    """Text, numbers and lists as they are, all else as text.

    Examples
    --------
    >>> plain_value(np.int64(3)), plain_value(("a", 0.5)), plain_value(Path("a"))
    (3, ['a', 0.5], 'a')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return number_or_none(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain_value(item) for item in value]
    return str(value)


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON document of an earlier audit.

    Parameters
    ----------
    path : path
        A file that `--json` wrote.

    Returns
    -------
    dict

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "last.json"
    ...     _ = file.write_text('{"schema": "another"}')
    ...     read_document(file)
    Traceback (most recent call last):
        ...
    ValueError: compare: last.json is not the JSON document of an audit
    """
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"compare: {file} is a folder; wanted a file")
    if not file.is_file():
        raise ValueError(f"compare: {file}: there is no such file")
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        raise ValueError(f"compare: {file.name} is not a JSON file") from None
    if not isinstance(read, dict) or read.get("schema") != SCHEMA:
        raise ValueError(f"compare: {file.name} is not the JSON document of an audit")
    version = read.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"compare: {file.name} has version {version} of the document; "
            f"this program reads version {SCHEMA_VERSION}"
        )
    missing = [name for name in ("verdicts", "cells", "file") if name not in read]
    if missing:
        raise ValueError(f"compare: {file.name} lacks {', '.join(missing)}")
    if not is_comparable(read):
        raise ValueError(f"compare: {file.name} is damaged: an entry is not as it was")
    return read


def is_comparable(read: Mapping[str, Any]) -> bool:
    """Whether what a comparison needs is there and of its kind.

    Examples
    --------
    >>> is_comparable({"file": {}, "date": "2026-01-31", "verdicts": [], "cells": []})
    True
    >>> is_comparable({"file": {}, "verdicts": [{"metric": 3}], "cells": []})
    False
    """
    for name, kind in (("file", dict), ("verdicts", list), ("cells", list)):
        if not isinstance(read[name], kind):
            return False
    texts = [read.get("date", ""), *(read["file"].get(k, "") for k in ("name", "sha256"))]
    for entry in (*read["verdicts"], *read["cells"]):
        if not isinstance(entry, dict):
            return False
    for verdict in read["verdicts"]:
        texts += [verdict.get(key) for key in ("metric", "grouping", "verdict")]
        if not _are_numbers([verdict.get("closeness")]):
            return False
        ends = [verdict.get(key, "") for key in ("estimate", "lower", "upper")]
        if not _are_numbers([end for end in ends if end is not None]):
            return False
    for cell in read["cells"]:
        texts += [cell.get(key) for key in ("metric", "grouping", "group", "label")]
        if not isinstance(cell.get("condition", 0), str | None):
            return False
        share = cell.get("share", "")
        counts = [cell.get("n"), cell.get("effective")]
        if share is not None and not (_are_numbers([share, *counts]) and 0 <= share <= 1):
            return False
        if share is not None and min(counts) < 0:
            return False
    return all(isinstance(text, str) for text in texts)


def _are_numbers(values: list[Any]) -> bool:
    """Whether all are finite numbers, and none of them true or false."""
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not abs(value) < math.inf:
            return False
    return True
