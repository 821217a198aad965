"""Excel files: which sheet, and which of its rows and columns are the table."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pandas as pd

from cfhelpers.auditing.words import counted, harmless

LEAST_COLUMNS = 2  # of a sheet with predictions; notes have one
MOST_SHEETS = 5  # that are named


def workbook_frame(data: bytes, notes: list[str]) -> pd.DataFrame:
    """The first sheet that holds a table, with its entries as they are.

    Parameters
    ----------
    data : bytes
    notes : list of str
        Gets a sentence on every sheet, line and row that is left out.

    Returns
    -------
    DataFrame
    """
    sheets = pd.read_excel(
        io.BytesIO(data),
        sheet_name=None,
        header=None,
        dtype=object,
        keep_default_na=False,
        na_values=[""],
    )
    tables = {}
    for sheet, entries in sheets.items():
        filled = _filled(entries)
        if len(filled) > 1 and filled.shape[1] >= LEAST_COLUMNS:
            tables[str(sheet)] = filled
    if not tables:
        raise ValueError("no sheet holds a header with rows below")
    chosen = next(iter(tables))
    if len(sheets) > 1:
        others = [harmless(str(sheet)) for sheet in sheets if str(sheet) != chosen]
        notes.append(_sheet_sentence(harmless(chosen), others, len(tables)))
    return _below_header(tables[chosen], notes)


def _filled(entries: pd.DataFrame) -> pd.DataFrame:
    """The sheet without rows and columns that have nothing but spaces in them."""
    blank = entries.map(lambda entry: isinstance(entry, str) and not entry.strip())
    entries = entries.mask(blank)
    return entries.dropna(how="all").dropna(how="all", axis=1)


def _sheet_sentence(chosen: str, others: list[str], n_tables: int) -> str:
    """Which sheet was read, and which were not."""
    listed = ", ".join(repr(other) for other in others[:MOST_SHEETS])
    if len(others) > MOST_SHEETS:
        listed = f"{listed} and {counted(len(others) - MOST_SHEETS, 'other')}"
    verb = "was" if len(others) == 1 else "were"
    text = f"The sheet {chosen!r} was read; {listed} {verb} not."
    if n_tables > 1:
        return f"{text} To audit another, save it as a file of its own."
    return text


def _below_header(entries: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The rows below the first one, which names the columns; a title is left out."""
    widths = entries.head(2).notna().sum(axis=1).tolist()
    if widths[0] == 1 and widths[1] > 1 and len(entries) > 2:
        title = harmless(str(entries.iloc[0].dropna().iloc[0]).strip()[:60])
        notes.append(f"The line {title!r} above the names was left out.")
        entries = entries.iloc[1:]
    header = entries.iloc[0]
    rows = entries.iloc[1:]
    is_used = (header.notna() | rows.notna().any()).to_numpy()
    rows = rows.loc[:, is_used]
    first, last = rows.index[0], rows.index[-1]
    n_empty = int(last - first + 1 - len(rows))
    if n_empty:
        notes.append(f"{counted(n_empty, 'empty row')} of the sheet left out.")
    names = ["" if pd.isna(each) else str(each).strip() for each in header[is_used]]
    texts = {place: _without_midnight(rows[place]) for place in rows}
    frame = pd.DataFrame(texts).reset_index(drop=True)
    frame.columns = names
    return frame


def _without_midnight(column: pd.Series) -> pd.Series:
    """A column of days as days: Excel keeps a day as its first instant."""
    entries = column.dropna()
    for entry in entries:
        if not isinstance(entry, datetime.datetime) or entry.time() != datetime.time():
            return column
    return column.map(_as_day)


def _as_day(entry: Any) -> Any:
    """The day of an instant as text; nothing stays nothing."""
    return None if pd.isna(entry) else entry.date().isoformat()
