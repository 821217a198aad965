"""Tables from OpenML: what a table is, where its ARFF file lies, and its checksum."""

import hashlib
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from cfhelpers import paths
from cfhelpers.datasets._files import (
    DownloadError,
    fetch,
    fetch_text,
    is_kept,
    raised_as_download_error,
)

SERVER = "https://www.openml.org"
VARIABLE = "CFHELPERS_OPENML"  # an environment variable that names another server
STATED = ("id", "name", "url", "md5_checksum")  # what a description must state


def server_address() -> str:
    """The address of OpenML, or of the server that CFHELPERS_OPENML names."""
    return os.environ.get(VARIABLE, SERVER).rstrip("/")


def fetch_table(
    data_id: int, path: Path, check: Callable[[pd.DataFrame], object]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table and its description, from the cache or from OpenML into the cache.

    The table is kept as Parquet when the file had the checksum that its description
    states, and passed `check`. The description is kept beside it.

    Parameters
    ----------
    data_id : int
    path : Path
        Where the table is kept.
    check : callable (table)
        Raises ValueError for a table that is not the one expected.

    Returns
    -------
    table : DataFrame
    description : dict
        As OpenML states it, such as "licence".
    """
    note = path.with_suffix(".json")
    if not is_kept(path) or not note.exists():
        _download_table(data_id, path, note, check)
    try:
        description = parse_description(note.read_text(encoding="utf-8"), data_id)
        table = pd.read_parquet(path)
        check(table)
    except (OSError, ValueError) as error:
        raise DownloadError(
            f"{path}: damaged, or {note.name} beside it ({error}); "
            "delete both to download them anew"
        ) from error
    return table, description


def _download_table(
    data_id: int, path: Path, note: Path, check: Callable[[pd.DataFrame], object]
) -> None:
    """Keep a table, and then what OpenML states about it."""
    url = f"{server_address()}/api/v1/json/data/{data_id}"
    text = fetch_text(url)
    with raised_as_download_error(url):
        stated = parse_description(text, data_id)

    def unpack(download: Path, target: Path) -> None:
        """Turn ARFF into Parquet, if it is the file that was described."""
        check_md5(download, stated["md5_checksum"])
        read_arff(download).to_parquet(target, index=False)

    def check_kept(kept: Path) -> None:
        check(pd.read_parquet(kept))

    fetch(str(stated["url"]), path, check_kept, unpack)
    with paths.atomic_write(note) as partial:
        partial.write_text(text, encoding="utf-8")


def parse_description(text: str, data_id: int) -> dict[str, Any]:
    """What OpenML states about a table.

    Parameters
    ----------
    text : str
        The answer of /api/v1/json/data/<id>.
    data_id : int
        The table that was asked for.

    Returns
    -------
    dict

    Examples
    --------
    >>> stated = {"id": "61", "name": "iris", "url": "https://…", "md5_checksum": "ad48…"}
    >>> answer = json.dumps({"data_set_description": stated})
    >>> parse_description(answer, 61)["name"]
    'iris'
    """
    try:
        stated = json.loads(text)["data_set_description"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError("the answer is no description of a table") from error
    if not isinstance(stated, dict):
        raise ValueError("the answer is no description of a table")
    absent = []
    for name in STATED:
        value = stated.get(name)
        if not value or not isinstance(value, str | int):
            absent.append(name)
    if absent:
        raise ValueError(f"the description states no {', '.join(absent)}")
    if str(stated["id"]) != str(data_id):
        raise ValueError(f"the description is of table {stated['id']}, not {data_id}")
    return stated


def check_md5(path: Path, expected: str) -> None:
    """A ValueError for a file whose MD5 is not the expected one."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != str(expected).lower():
        raise ValueError(f"its MD5 is {found}; the description states {expected}")


def read_arff(path: Path) -> pd.DataFrame:
    """A table of numbers in ARFF.

    Parameters
    ----------
    path : Path

    Returns
    -------
    DataFrame of float64
        Columns as the header names them; "?" is a blank.
    """
    with open(path, encoding="utf-8") as file:
        columns = _columns_of_header(file)
        _check_fields(file, columns)
        table = pd.read_csv(
            file,
            header=None,
            names=columns,
            index_col=False,
            na_values="?",
            comment="%",
            skipinitialspace=True,
        )
    return table.apply(pd.to_numeric).astype("float64")


def _check_fields(file: TextIO, columns: list[str]) -> None:
    """The first row must have a field for every column; the file stays where it is."""
    here = file.tell()
    fields = file.readline().strip().split(",")
    file.seek(here)
    if fields != [""] and len(fields) != len(columns):
        raise ValueError(
            f"rows of {len(fields)} fields, and {len(columns)} columns in the header"
        )


def _columns_of_header(file: TextIO) -> list[str]:
    """The names of the columns; the file is then at its first row."""
    columns: list[str] = []
    for line in iter(file.readline, ""):
        words = shlex.split(line) if line.startswith("@") else []
        keyword = words[0].upper() if words else ""
        if keyword == "@DATA":
            return columns
        if keyword == "@ATTRIBUTE":
            if len(words) < 2:
                raise ValueError("an @ATTRIBUTE without a name in the ARFF file")
            columns.append(words[1])
    raise ValueError("no @DATA in the ARFF file")
