"""A card: the audit in a page of Markdown, for a model card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cfhelpers.auditing.sentences import allowed, number
from cfhelpers.auditing.words import counted

MOST_SENTENCES = 5
# What Markdown, or the HTML in it, would read as more than text.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&])")


def escaped(text: Any) -> str:
    """Text that Markdown shows as it is, on one line.

    Examples
    --------
    >>> print(escaped("<b>*|a"))
    \\<b\\>\\*\\|a
    """
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def markdown_card(document: Mapping[str, Any]) -> str:
    """The audit as Markdown: verdicts, who is worst off, and what was audited.

    Parameters
    ----------
    document : dict
        What `audit_document` gives.

    Returns
    -------
    str
    """
    file = document["file"]
    lines = [
        f"## Fairness audit of {escaped(file['name'])}",
        "",
        f"{file['rows_audited']:,} of {counted(file['rows'], 'row')} audited on "
        f"{document['date'][:10]}, at a confidence of "
        f"{100 * document['confidence']:.4g}% for each verdict. "
        f"{escaped(document['rule'])}",
        "",
        "| metric | by | verdict | disparity | interval | allowed |",
        "|---|---|---|---|---|---|",
    ]
    for entry in document["verdicts"]:
        word = entry["verdict"]
        if entry["kind"]:
            word = f"{word} ({entry['kind']})"
        lines.append(
            f"| {escaped(entry['title'])} | {escaped(entry['grouping'])} | {word} | "
            f"{number(entry['estimate'])} | {number(entry['lower'])} to "
            f"{number(entry['upper'])} | {allowed(entry)} |"
        )
    lines += ["", *_sentences(document), *_limits(document)]
    return "\n".join(lines) + "\n"


def _sentences(document: Mapping[str, Any]) -> list[str]:
    """Who is worst off, for verdicts that are beyond."""
    said = []
    for entry in document["verdicts"]:
        if entry["sentence"]:
            said.append(f"- {escaped(entry['title'])}: {escaped(entry['sentence'])}")
    if not said:
        return []
    more = len(said) - MOST_SENTENCES
    lines = ["Who is worst off:", "", *said[:MOST_SENTENCES]]
    if more > 0:
        lines.append(f"- and {counted(more, 'other verdict')} beyond what is allowed")
    return [*lines, ""]


def _limits(document: Mapping[str, Any]) -> list[str]:
    """What the card rests on and does not say, and its stamp."""
    compared = ", ".join(document["labels_compared"])
    groupings = ", ".join(grouping["by"] for grouping in document["groupings"])
    joint = []
    if document["is_joint"]:
        joint = [escaped(document["joint_sentence"]), ""]
    return [
        *joint,
        f"Labels compared: {escaped(compared)}. Groups by: {escaped(groupings)}.",
        "",
        "The verdicts are about people like those in the file, drawn at random. They do "
        "not say whether the labels themselves are fair, or whether a difference has a "
        "reason.",
        "",
        f"File: SHA-256 `{document['file']['sha256']}`; cfhelpers {document['version']}.",
    ]
