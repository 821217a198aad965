"""What an audit writes: the JSON document, the page, tables, a card, a comparison.

All of them are made from the document, which is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from cfhelpers.auditing.card import markdown_card
from cfhelpers.auditing.compare import change_lines, compared_documents
from cfhelpers.auditing.document import audit_document, read_document
from cfhelpers.auditing.files import FileAudit
from cfhelpers.auditing.tables import csv_tables
from cfhelpers.auditing.view import page_view

__all__ = [
    "absent_packages",
    "card",
    "compared",
    "document",
    "page",
    "read_document",
    "tables",
]

PACKAGES = ("jinja2",)
TEMPLATE = "report.html.j2"

Document = dict[str, Any]


def absent_packages() -> list[str]:
    """Packages of the extra `report` that the page needs and that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def document(found: FileAudit, earlier: Mapping[str, Any] | None = None) -> Document:
    """The audit of a file as a dict that JSON can hold; see docs/audit_json.md.

    Parameters
    ----------
    found : FileAudit
        What `audit_file` gives.
    earlier : dict, optional
        The document of an earlier audit, to compare with.

    Returns
    -------
    dict
    """
    made = audit_document(found)
    if earlier is not None:
        made["compared"] = compared_documents(made, earlier)
    return made


def page(found: FileAudit | Mapping[str, Any], beside: Sequence[str] = ()) -> str:
    """The audit as one HTML page, which needs no network and no JavaScript.

    Parameters
    ----------
    found : FileAudit or dict
        The audit, or its document.
    beside : names of files
        Those written beside the page, which it links.

    Returns
    -------
    str
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cfhelpers.auditing", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    view = page_view(_as_document(found), beside)
    return environment.get_template(TEMPLATE).render(view)


def tables(found: FileAudit | Mapping[str, Any]) -> dict[str, str]:
    """The tables of the audit as CSV, by the name of their file."""
    return csv_tables(_as_document(found))


def card(found: FileAudit | Mapping[str, Any]) -> str:
    """The audit in a page of Markdown, for a model card."""
    return markdown_card(_as_document(found))


def compared(now: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    """What changed since an earlier audit, line by line."""
    return change_lines(compared_documents(now, earlier))


def _as_document(found: FileAudit | Mapping[str, Any]) -> Mapping[str, Any]:
    """The document, as given or made."""
    if isinstance(found, FileAudit):
        return audit_document(found)
    return found
