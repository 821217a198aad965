"""What the page shows, in the order in which it shows it: the document made ready.

The template only puts these values into place; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfhelpers.auditing.compare import change_lines
from cfhelpers.auditing.pictures import (
    MOST_ROWS,
    Names,
    cell_picture,
    fix_picture,
    value_texts,
)
from cfhelpers.auditing.sentences import (
    allowed,
    best_fix,
    known,
    number,
    title_of,
    told,
    two_digits,
    who_is_worst_off,
)
from cfhelpers.auditing.words import counted

SIGNS = {"beyond": "✗", "cannot tell": "?", "within": "✓"}
FIX_SIGNS = {**SIGNS, "says nothing": "∅"}
ORDER = ("beyond", "cannot tell", "within")
CLASSES = {"beyond": "beyond", "cannot tell": "undecided", "within": "within"}
MOST_STEPS = 5  # what to do next, on the first screen
MOST_TABLE_ROWS = 40  # groups in one table of the appendix
MOST_COLUMNS = 8  # labels in one table of the appendix
CONDITIONS = {"equal": "who have it", "different": "who do not have it"}
RULES = {"": "", "none": "the paper's rule", "fixed-sequence": "with a guarantee"}


def page_view(document: Mapping[str, Any], beside: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that the template needs.

    Parameters
    ----------
    document : dict
        What `audit_document` gives.
    beside : names of files
        Those written beside the page, which it links.

    Returns
    -------
    dict
    """
    shown = Names(_all_names(document))
    cells = _cells_by_verdict(document)
    sections = []
    for place, grouping in enumerate(document["groupings"], start=1):
        sections.append(_section(document, grouping, place, cells, shown))
    changes = []
    if document["compared"] is not None:
        changes = change_lines(document["compared"])
    return {
        "document": document,
        "headline": headline(document, shown),
        "counts": verdict_counts(document["verdicts"]),
        "matrix": _matrix(document, shown),
        "steps": _first_steps(document, shown),
        "sections": sections,
        "fixes": _fix_sections(document, shown),
        "appendix": _appendix(document, cells, shown),
        "changes": changes,
        "thresholds": _threshold_rows(document["thresholds"]),
        "facts": _facts(document),
        "key": shown.key,
        "beside": list(beside),
        "signs": SIGNS,
        "chance": f"{100 * (1 - document['confidence']):.3g}%",
    }


def _all_names(document: Mapping[str, Any]) -> list[str]:
    """Names of groupings and groups, those of the file first."""
    names = []
    for grouping in document["groupings"]:
        names.append(grouping["by"])
        names += [group["group"] for group in grouping["groups"]]
    return names


def _cells_by_verdict(
    document: Mapping[str, Any],
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The cells of each grouping and metric."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in document["cells"]:
        found.setdefault((cell["grouping"], cell["metric"]), []).append(cell)
    return found


def verdict_counts(verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many verdicts there are of each word.

    Examples
    --------
    >>> [entry["n"] for entry in verdict_counts([{"verdict": "within"}])]
    [0, 0, 1]
    """
    found = []
    for word in ORDER:
        n = sum(entry["verdict"] == word for entry in verdicts)
        found.append({"word": word, "n": n, "sign": SIGNS[word], "class": CLASSES[word]})
    return found


def headline(document: Mapping[str, Any], shown: Names) -> dict[str, str]:
    """The sentence on who is worst off: by the first metric that is beyond.

    Metrics come in the order in which they were asked for; of the groupings, the one in
    which the difference touches most people. Empty where nothing is beyond.
    """
    beyond = []
    for entry in document["verdicts"]:
        if entry["verdict"] == "beyond" and entry["lowest"] is not None:
            beyond.append(entry)
    metrics = list(dict.fromkeys(entry["metric"] for entry in document["verdicts"]))
    worst = min(
        beyond,
        key=lambda entry: (metrics.index(entry["metric"]), -_people_touched(entry)),
        default=None,
    )
    if worst is None:
        return {"text": "", "where": "", "href": ""}
    return {
        "text": _worst_off(document, worst, shown),
        "where": f"{worst['title']} by {shown(worst['grouping'])}",
        "href": anchor(document, worst),
    }


def _people_touched(entry: Mapping[str, Any]) -> float:
    """How many people of the worst group the difference stands for."""
    cell = told(entry)
    apart = abs(cell["highest"]["share"] - cell["lowest"]["share"])
    worst = cell["highest"] if cell["condition"] == "different" else cell["lowest"]
    return apart * worst["n"]


def _worst_off(
    document: Mapping[str, Any], entry: Mapping[str, Any], shown: Names
) -> str:
    """The sentence of one verdict, with names as they are shown."""
    return who_is_worst_off(
        told(entry),
        is_decision=document["kind"] == "decisions",
        is_weighted=document["weights"] is not None,
        shown=shown,
    )


def anchor(document: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """The place of a verdict on the page, which does not depend on any name."""
    for place, other in enumerate(document["verdicts"], start=1):
        if other is entry:
            return f"verdict-{place}"
    return "verdicts"


def _matrix(document: Mapping[str, Any], shown: Names) -> dict[str, Any]:
    """Metric × grouping, with the verdict's word and sign in each cell."""
    groupings = [grouping["by"] for grouping in document["groupings"]]
    by_metric: dict[str, dict[str, Mapping[str, Any]]] = {}
    for entry in document["verdicts"]:
        by_metric.setdefault(entry["metric"], {})[entry["grouping"]] = entry
    rows = []
    for metric, entries in by_metric.items():
        row: dict[str, Any] = {"title": title_of(metric), "cells": []}
        for by in groupings:
            entry = entries[by]
            row["question"] = entry["question"]
            row["allowed"] = allowed(entry)
            row["cells"].append(_matrix_cell(document, entry))
        rows.append(row)
    return {"columns": [shown(by) for by in groupings], "rows": rows}


def _matrix_cell(document: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """One verdict, as short as it can be."""
    word = entry["verdict"]
    return {
        "sign": SIGNS[word],
        "word": word,
        "class": CLASSES[word],
        "kind": entry["kind"],
        "number": number(entry["estimate"]),
        "href": anchor(document, entry),
    }


def _first_steps(document: Mapping[str, Any], shown: Names) -> dict[str, Any]:
    """What to do next about the most serious verdicts, and how many others there are.

    Where they are many, those that cannot tell share a line by grouping.
    """
    beyond = [entry for entry in document["verdicts"] if entry["verdict"] == "beyond"]
    undecided = []
    for entry in document["verdicts"]:
        if entry["verdict"] == "cannot tell":
            undecided.append(entry)
    steps = [_first_step(document, entry, shown) for entry in beyond[:MOST_STEPS]]
    if len(beyond) + len(undecided) <= MOST_STEPS:
        steps += [_first_step(document, entry, shown) for entry in undecided]
    else:
        for place, grouping in enumerate(document["groupings"], start=1):
            own = [e for e in undecided if e["grouping"] == grouping["by"]]
            if own:
                steps.append(_shared_step(own, f"grouping-{place}", shown))
    more = ""
    if len(beyond) > MOST_STEPS:
        others = counted(len(beyond) - MOST_STEPS, "other verdict")
        more = f"{others} beyond what is allowed: see the sections below."
    return {
        "listed": steps,
        "more": more,
        "is_all_within": not beyond and not undecided,
    }


def _first_step(
    document: Mapping[str, Any], entry: Mapping[str, Any], shown: Names
) -> dict[str, str]:
    """The most useful thing to do about one verdict."""
    return {
        "title": f"{entry['title']} by {shown(entry['grouping'])}",
        "sign": SIGNS[entry["verdict"]],
        "word": entry["verdict"],
        "class": CLASSES[entry["verdict"]],
        "href": anchor(document, entry),
        "text": _shown_text(entry["next_steps"][0]["text"], shown),
    }


def _shared_step(
    entries: list[Mapping[str, Any]], href: str, shown: Names
) -> dict[str, str]:
    """What would settle the open verdicts of one grouping."""
    needs = []
    for entry in entries:
        if entry["people_needed"] is not None:
            needs.append(max(entry["people_needed"] - entry["people"], 0))
    others = len(entries) - len(needs)
    parts = []
    if needs:
        fewest = two_digits(min(needs))
        most = two_digits(max(needs))
        which = f"{len(needs)} of them" if others else "all of them"
        if len(entries) == 1:
            which = "it"
        amount = f"{fewest:,} to {most:,}"
        if fewest == most:
            amount = f"{most:,}"
        parts.append(f"Collect about {amount} more people like these to settle {which}.")
    if others:
        them = counted(others, "verdict")
        parts.append(
            f"{them} would hardly be settled by more people: too close to what is "
            "allowed, sets that say nothing, or no people in a cell."
        )
    metrics = counted(len(entries), "metric")
    return {
        "title": f"{metrics} by {shown(entries[0]['grouping'])}",
        "sign": SIGNS["cannot tell"],
        "word": "cannot tell",
        "class": CLASSES["cannot tell"],
        "href": href,
        "text": " ".join(parts),
    }


def _shown_text(text: str, shown: Names) -> str:
    """A sentence with long names as they are shown."""
    for _, name in shown.key:
        text = text.replace(name, shown(name))
    return text


def _section(
    document: Mapping[str, Any],
    grouping: Mapping[str, Any],
    place: int,
    cells: Mapping[tuple[str, str], list[Mapping[str, Any]]],
    shown: Names,
) -> dict[str, Any]:
    """One way to group people: its verdicts with pictures, and the sizes of sets."""
    by = grouping["by"]
    verdicts = []
    for entry in document["verdicts"]:
        if entry["grouping"] != by:
            continue
        verdicts.append(_verdict(document, entry, cells[by, entry["metric"]], shown))
    verdicts.sort(key=lambda verdict: ORDER.index(verdict["word"]))
    groups = grouping["groups"]
    return {
        "id": f"grouping-{place}",
        "by": shown(by),
        "n_groups": counted(len(groups), "group"),
        "n_without_group": grouping["n_without_group"],
        "counts": verdict_counts([{"verdict": entry["word"]} for entry in verdicts]),
        "verdicts": verdicts,
        "sizes": _size_rows(groups, shown),
        "n_sizes_left_out": max(0, len(groups) - MOST_ROWS),
        "n_labels": len(document["labels"]),
    }


def _verdict(
    document: Mapping[str, Any],
    entry: Mapping[str, Any],
    cells: list[Mapping[str, Any]],
    shown: Names,
) -> dict[str, Any]:
    """One verdict with its sentence, its picture and what to do."""
    sentence = ""
    if entry["verdict"] == "beyond":
        sentence = _worst_off(document, entry, shown)
    steps = []
    for step in entry["next_steps"]:
        steps.append({**step, "text": _shown_text(step["text"], shown)})
    joint = ""
    if not document["is_joint"] and entry["joint_verdict"] != entry["verdict"]:
        joint = (
            "If all verdicts of this page are to hold at the same time, it is: "
            f"{entry['joint_verdict']}."
        )
    return {
        "id": anchor(document, entry),
        "title": entry["title"],
        "question": entry["question"],
        "word": entry["verdict"],
        "sign": SIGNS[entry["verdict"]],
        "class": CLASSES[entry["verdict"]],
        "kind": entry["kind"],
        "vacuous": entry["vacuous"],
        "sentence": sentence,
        "known": known(entry, document["confidence"]),
        "elsewhere": _elsewhere(entry, shown),
        "joint": joint,
        "who": _who(told(entry)),
        "picture": cell_picture(told(entry), cells, shown),
        "steps": steps,
        "has_fixes": bool(entry["fixes"]),
    }


def _elsewhere(entry: Mapping[str, Any], shown: Names) -> str:
    """Where the disparity is attained, if it is not what shows it to be beyond."""
    cell = told(entry)
    places = []
    for one in (entry, cell):
        groups = tuple(one[end] and one[end]["group"] for end in ("lowest", "highest"))
        places.append((one["label"], one["condition"], groups))
    if places[0] == places[1] or entry["lowest"] is None:
        return ""
    lowest = entry["lowest"]
    return (
        f"It is widest for “{entry['label']}”, where “{shown(lowest['group'])}” has "
        f"{lowest['share']:.1%} of {counted(lowest['n'], 'person', 'people')}; that is "
        "too uncertain to show it. The sentence and the picture are about groups that do."
    )


def _who(entry: Mapping[str, Any]) -> str:
    """What the picture's shares are shares of."""
    label = f"“{entry['label']}”"
    texts = {
        "equal": f"people whose true label is {label}: share whose set holds it",
        "different": f"people whose true label is not {label}: share whose set holds it",
        "any": f"everyone: share whose set holds {label}",
        "held": f"people whose set holds {label}: share for whom it is true",
    }
    if entry["metric"] == "overall_accuracy_equality":
        return "everyone: share whose set holds the true label"
    if entry["metric"] == "predictive_parity_proxy":
        return (
            f"people whose set holds {label}: share for whom it is true, less the share "
            "of the whole group for whom it is"
        )
    if entry["metric"] == "singletons":
        return "everyone: share whose set holds one label"
    if entry["metric"] == "set_size":
        return "everyone: mean share of all labels that a set holds"
    return texts.get(entry["condition"], f"share whose set holds {label}")


def _size_rows(groups: list[Mapping[str, Any]], shown: Names) -> list[dict[str, Any]]:
    """People, size of sets and coverage by group; the largest groups where many."""
    chosen = list(groups)
    if len(groups) > MOST_ROWS:
        chosen = sorted(groups, key=lambda group: -group["n"])[:MOST_ROWS]
    rows = []
    for group in chosen:
        row = {"name": shown(group["group"]), "n": f"{group['n']:,}"}
        row["size"] = "–"
        row["coverage"] = "no people"
        if group["mean_set_size"] is not None:
            row["size"] = f"{group['mean_set_size']:.2f}"
            row["coverage"] = cell_text(
                group["coverage"], group["lower"], group["upper"], True
            )
        rows.append(row)
    return rows


def cell_text(
    share: float | None, lower: float, upper: float, is_share: bool = True
) -> str:
    """A share with its interval, as it stands in a table.

    Examples
    --------
    >>> cell_text(0.7, 0.61, 0.78)
    '70% (61% to 78%)'
    """
    if share is None:
        return "no people"
    own, low, high = value_texts(share, lower, upper, is_share)
    return f"{own} ({low} to {high})"


def _fix_sections(document: Mapping[str, Any], shown: Names) -> list[dict[str, Any]]:
    """The thresholds that were searched, for each verdict that is not within."""
    sections = []
    for entry in document["verdicts"]:
        picture = fix_picture(entry)
        if picture is None:
            continue
        rows = []
        for row in picture["rows"]:
            rows.append(_fix_row(row, entry))
        sections.append(
            {
                "title": f"{entry['title']} by {shown(entry['grouping'])}",
                "href": anchor(document, entry),
                "rows": rows,
                "ticks": picture["ticks"],
                "limit": picture["limit"],
                "allowed": allowed(entry),
                "measured": counted(entry["fixes"][0]["rows"], "row"),
                "labels": document["labels"],
                "limit_of": _limit_of(entry["fixes"]),
                "notes": _notes(entry["fixes"], shown),
            }
        )
    return sections


def _fix_row(row: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """One kind of thresholds, in words and places."""
    fix = row["fix"]
    word = fix["verdict"]
    if fix["vacuous"] and word != "beyond":
        word = "says nothing"
    return {
        "name": _fix_name(fix),
        "is_best": fix is best_fix(entry),
        "word": word,
        "sign": FIX_SIGNS[word],
        "class": CLASSES.get(word, "undecided"),
        "vacuous": fix["vacuous"],
        "estimate": number(fix["estimate"]),
        "interval": f"{number(fix['lower'])} to {number(fix['upper'])}",
        "size": f"{fix['mean_set_size']:.3f}",
        "price": _price(fix, entry["fixes"][0]),
        "coverage": f"{fix['coverage']:.1%}",
        "thresholds": [_limit_text(threshold) for threshold in fix["by_label"]],
        "x": row["x"],
        "x1": row["x1"],
        "x2": row["x2"],
    }


def _price(fix: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """How many labels a set holds more than before."""
    if fix is before:
        return "–"
    return f"{fix['mean_set_size'] - before['mean_set_size']:+.3f}"


def threshold_text(threshold: Mapping[str, Any]) -> str:
    """When a label is in the set, in probability where that is known.

    Examples
    --------
    >>> label = {"score": 0.7, "probability": 0.3, "is_always_in_set": False}
    >>> threshold_text(label)
    'probability ≥ 0.3000'
    """
    if threshold["is_always_in_set"]:
        return "always"
    if threshold["probability"] is not None:
        return f"probability ≥ {threshold['probability']:.4f}"
    if threshold["score"] is None:
        return "never"
    return f"score ≤ {threshold['score']:.4f}"


def _limit_text(threshold: Mapping[str, Any]) -> str:
    """The same, below a heading that says what it is a limit of."""
    return threshold_text(threshold).removeprefix("probability ").removeprefix("score ")


def _limit_of(fixes: Sequence[Mapping[str, Any]]) -> str:
    """What the thresholds are: limits of a probability, or of a score."""
    for fix in fixes:
        for threshold in fix["by_label"]:
            if threshold["probability"] is not None:
                return "Probability from which a label is in the set"
    return "Score up to which a label is in the set"


def _notes(fixes: list[Mapping[str, Any]], shown: Names) -> list[str]:
    """Why no finite threshold was found, each reason once, with the lines it is of."""
    lines: dict[str, list[str]] = {}
    for fix in fixes:
        if fix["note"]:
            lines.setdefault(fix["note"], []).append(_fix_name(fix))
    texts = []
    for note, names in lines.items():
        text = f"{'; '.join(names)}: {note.rstrip('.')}."
        texts.append(_shown_text(f"{text[0].upper()}{text[1:]}", shown))
    return texts


def _fix_name(fix: Mapping[str, Any]) -> str:
    """One kind of thresholds, in words."""
    rule = RULES.get(fix["rule"], fix["rule"])
    return f"{fix['thresholds']}, {rule}" if rule else str(fix["thresholds"])


def _threshold_rows(thresholds: list[Mapping[str, Any]] | None) -> list[dict[str, str]]:
    """The thresholds of the sets as they are, a row per label."""
    rows = []
    for threshold in thresholds or []:
        rows.append({"label": threshold["label"], "rule": threshold_text(threshold)})
    return rows


def _appendix(
    document: Mapping[str, Any],
    cells: Mapping[tuple[str, str], list[Mapping[str, Any]]],
    shown: Names,
) -> list[dict[str, Any]]:
    """A table per verdict: a row per group, a column per label and condition."""
    tables = []
    for entry in document["verdicts"]:
        own = cells[entry["grouping"], entry["metric"]]
        columns: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
        for cell in own:
            key = (cell["label"], cell["condition"])
            columns.setdefault(key, {})[cell["group"]] = cell
        several = len({condition for _, condition in columns}) > 1
        groups = list(next(iter(columns.values())))
        chosen = list(columns)[:MOST_COLUMNS]
        rows = []
        for group in groups[:MOST_TABLE_ROWS]:
            texts = [_appendix_cell(columns[key][group]) for key in chosen]
            rows.append({"name": shown(group), "cells": texts})
        tables.append(
            {
                "title": f"{entry['title']} by {shown(entry['grouping'])}",
                "heads": [_column_head(key, several) for key in chosen],
                "rows": rows,
                "left_out": _left_out(len(groups), len(columns)),
            }
        )
    return tables


def _appendix_cell(cell: Mapping[str, Any]) -> str:
    """A share, its interval and the people that it rests on."""
    is_share = cell["metric"] != "predictive_parity_proxy"
    text = cell_text(cell["share"], cell["lower"], cell["upper"], is_share)
    if cell["share"] is None:
        return text
    return f"{text} of {cell['n']:,}"


def _column_head(key: tuple[str, str], has_conditions: bool) -> str:
    """The label, and the condition where a metric has two."""
    label, condition = key
    if has_conditions:
        return f"{label}, {CONDITIONS.get(condition, condition)}"
    return label


def _left_out(n_groups: int, n_columns: int) -> str:
    """What the table does not show."""
    parts = []
    if n_groups > MOST_TABLE_ROWS:
        parts.append(counted(n_groups - MOST_TABLE_ROWS, "other group"))
    if n_columns > MOST_COLUMNS:
        parts.append(counted(n_columns - MOST_COLUMNS, "other column"))
    return " and ".join(parts)


def _facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The stamp: when, of what, how and with what."""
    file = document["file"]
    facts = [
        ("Date", document["date"]),
        ("File", file["name"]),
        ("SHA-256 of the file", file["sha256"]),
        ("Rows", f"{file['rows']:,} in the file, {file['rows_audited']:,} audited"),
        ("Program", f"cfhelpers {document['version']}"),
        ("Command", document["command"] or "called from Python"),
    ]
    for name, value in document["options"].items():
        facts.append((f"Option {name}", option_text(value)))
    return facts


def option_text(value: Any) -> str:
    """The value of an option, or that none was given.

    Examples
    --------
    >>> option_text(["sex", "age"]), option_text(0.1), option_text("")
    ('sex, age', '0.1', 'not given')
    """
    if value in ("", None) or value == []:
        return "not given"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return str(value)
