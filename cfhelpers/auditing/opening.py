"""Files as people have them: text with any separator, compressed, parquet, Excel.

A file is read once, into memory: its bytes give the checksum and the table. What was
taken for what (a separator, a comment line, decimal commas) is kept as sentences.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import itertools
import lzma
import re
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from cfhelpers.auditing.words import composed, counted, harmless
from cfhelpers.auditing.workbook import workbook_frame

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
COMMENT_MARKS = ("#", "%", "//")
FEW_COMMENTS = 3  # of which each is told by itself
FIRST_BYTES = 200_000  # that are looked at for the header; to the end of a line
LONGEST_ENTRY = csv.field_size_limit()  # 131,072 characters
READABLE = "CSV, parquet, feather and Excel files can be read"
MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "feather",
    b"\xd0\xcf\x11\xe0": "old excel",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".xlsx": "excel",
    ".xls": "excel",
    ".xlsm": "excel",
}
REFUSED = {
    ".pkl": "a pickle file",
    ".pickle": "a pickle file",
    ".sav": "an SPSS file",
    ".dta": "a Stata file",
    ".sas7bdat": "a SAS file",
    ".rds": "an R file",
    ".json": "a JSON file",
    ".jsonl": "a JSON file",
}
NEEDS = {
    "parquet": "pyarrow: pip install 'cfhelpers[data]'",
    "feather": "pyarrow: pip install 'cfhelpers[data]'",
    "excel": "openpyxl: pip install 'cfhelpers[report]', or save it as CSV",
    "zstd": "zstandard: pip install zstandard, or unpack the file",
}
LINE_END = re.compile(rb"\r\n|\r|\n")
# What reading a damaged compressed file may raise.
DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
)
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}


@dataclass(frozen=True)
class Table:
    """A file as a table, with its checksum and how it was read."""

    frame: pd.DataFrame
    sha256: str
    notes: list[str] = field(default_factory=list)


def open_table(path: Path, is_number: Callable[[str], bool] | None = None) -> Table:
    """Read a file once.

    Parameters
    ----------
    path : Path
    is_number : callable (name) -> bool, optional
        Columns of a text file that hold numbers; all others stay text, as they are
        written.

    Returns
    -------
    Table
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; wanted a file")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not data:
        raise ValueError(f"{path.name} is empty")
    checksum = hashlib.sha256(data).hexdigest()
    notes: list[str] = []
    try:
        frame = _frame(path.name, data, is_number or (lambda name: False), notes)
    except (ImportError, MemoryError, csv.Error) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    if frame.empty:
        raise ValueError(f"{path.name} holds no rows")
    return Table(frame, checksum, notes)


def _frame(
    name: str, data: bytes, is_number: Callable[[str], bool], notes: list[str]
) -> pd.DataFrame:
    """The table in the bytes of a file, whatever its form."""
    name, data = _unpacked(name, data, notes)
    form = _form_of(name, data)
    if form == "text":
        return _TextFile(name, data, is_number, notes).frame()
    readers: dict[str, Callable[[Any], pd.DataFrame]] = {
        "parquet": _parquet,
        "feather": _checked_feather,
        "excel": lambda file: workbook_frame(file.getvalue(), notes),
    }
    try:
        frame = readers[form](io.BytesIO(data))
    except ImportError:
        raise ValueError(f"{name} needs {NEEDS[form]}") from None
    except Exception as error:  # a reader of a damaged file may raise anything
        reason = " ".join(str(error).split())
        raise ValueError(f"{name} cannot be read: {reason}") from None
    if not isinstance(frame.index, pd.RangeIndex):
        named = [column for column in frame.index.names if column is not None]
        frame = frame.reset_index() if named else frame.reset_index(drop=True)
    frame.columns = [composed(str(column)) for column in frame.columns]
    return frame


def _parquet(file: io.BytesIO) -> pd.DataFrame:
    """A Parquet file, in which integers stay integers beside missing ones."""
    from pyarrow import parquet

    return parquet.read_table(file).to_pandas(integer_object_nulls=True)


def _checked_feather(file: io.BytesIO) -> pd.DataFrame:
    """A feather file, whose columns are checked first: damaged ones end the process."""
    from pyarrow import feather

    table = feather.read_table(file, memory_map=False)
    table.validate(full=True)
    return table.to_pandas(integer_object_nulls=True)


def _magic_of(data: bytes) -> str:
    """The form that the first bytes give away."""
    for beginning, form in MAGIC.items():
        if data.startswith(beginning):
            return form
    return ""


def _unpacked(name: str, data: bytes, notes: list[str]) -> tuple[str, bytes]:
    """The name and the bytes of what a compressed file holds."""
    form = _magic_of(data)
    if form == "zip":
        return _member_of_zip(name, data, notes)
    if form == "zstd":
        data = _zstd(name, data)
    elif form in DECOMPRESS:
        try:
            data = DECOMPRESS[form](data)
        except DAMAGED:
            raise ValueError(f"{name} cannot be read: it is damaged ({form})") from None
    else:
        return name, data
    notes.append(f"The file is compressed ({form}).")
    inner = re.sub(r"\.(gz|gzip|bz2|xz|zst|zstd)$", "", name, flags=re.IGNORECASE)
    if not data:
        raise ValueError(f"{name} is empty")
    return inner, data


def _zstd(name: str, data: bytes) -> bytes:
    """Bytes that were compressed with zstd."""
    try:
        import zstandard
    except ImportError:
        raise ValueError(f"{name} needs {NEEDS['zstd']}") from None
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except zstandard.ZstdError:
        raise ValueError(f"{name} cannot be read: it is damaged (zstd)") from None


def _member_of_zip(name: str, data: bytes, notes: list[str]) -> tuple[str, bytes]:
    """The only file in an archive; a workbook, which is an archive too, stays whole."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except DAMAGED:
        raise ValueError(f"{name} cannot be read: it is damaged (zip)") from None
    members = [each for each in archive.namelist() if not each.endswith("/")]
    if any(each.startswith("xl/") for each in members):
        is_named_so = SUFFIXES.get(Path(name).suffix.lower()) == "excel"
        return (name if is_named_so else f"{name}.xlsx"), data
    if "content.xml" in members:
        raise ValueError(f"{name} is an OpenDocument file; save it as CSV")
    members = [each for each in members if not each.startswith("__MACOSX/")]
    if len(members) != 1:
        raise ValueError(
            f"{name}: found {counted(len(members), 'file')} in the archive; wanted one"
        )
    try:
        inner = archive.read(members[0])
    except DAMAGED:  # before RuntimeError, of which NotImplementedError is one
        raise ValueError(f"{name} cannot be read: it is damaged (zip)") from None
    except RuntimeError:
        raise ValueError(f"{name} cannot be read: the archive has a password") from None
    notes.append(f"The file is {harmless(members[0])!r} in an archive (zip).")
    if not inner:
        raise ValueError(f"{name} is empty")
    return Path(members[0]).name, inner


def _form_of(name: str, data: bytes) -> str:
    """What the bytes hold: text, parquet, feather or excel; else a ValueError."""
    suffix = Path(name).suffix.lower()
    form = _magic_of(data)
    if form in ("parquet", "feather"):
        return form
    if form == "old excel":
        raise ValueError(
            f"{name} is an Excel file of the old kind (.xls), or one with a password; "
            "save it as .xlsx without a password, or as CSV"
        )
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if suffix in REFUSED:
        raise ValueError(f"{name} is {REFUSED[suffix]}; {READABLE}")
    is_utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    if b"\0" in data[:10_000] and not is_utf16:
        raise ValueError(f"{name} is not a text file; {READABLE}")
    if data.startswith(b"%PDF"):
        raise ValueError(f"{name} looks like a PDF file; {READABLE}")
    beginning = data[:200].lstrip(b"\xef\xbb\xbf \r\n\t")[:1]
    if beginning in (b"{", b"<") or data[:200].lstrip()[:2] in (b"[{", b"[["):
        kind = "an HTML or XML" if beginning == b"<" else "a JSON"
        raise ValueError(f"{name} looks like {kind} file; {READABLE}")
    return "text"


class _TextFile:
    """A CSV file: its comment lines, its separator, its header, its rows."""

    def __init__(
        self,
        name: str,
        data: bytes,
        is_number: Callable[[str], bool],
        notes: list[str],
    ) -> None:
        self.name = name
        self.is_number = is_number
        self.notes = notes
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            try:
                data = data.decode("utf-16").encode()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{name} cannot be read: it begins as UTF-16, which byte "
                    f"{error.start} is not"
                ) from None
            notes.append("The text is in UTF-16.")
        self.data = data.removeprefix(b"\xef\xbb\xbf")
        end = LINE_END.search(self.data, FIRST_BYTES)
        self.first_bytes = self.data[: end.start()] if end else self.data
        first_lines = self.first_bytes.splitlines()  # by their bytes: Å ends in \x85
        self.first_lines = [line.decode("utf-8", "replace") for line in first_lines]
        self.separator = ","
        self.n_skipped = self._skip_comments()

    def _skip_comments(self) -> int:
        """How many lines stand before the header; the separator is found too."""
        skipped = 0
        comments = []
        while skipped < len(self.first_lines):
            line = self.first_lines[skipped].strip()
            declared = re.fullmatch(r"sep=(.)", line, flags=re.IGNORECASE)
            if declared:
                self.notes.append(f"Line {skipped + 1} names the separator.")
            elif line.startswith(COMMENT_MARKS):
                comments.append(skipped + 1)
            elif line:
                break
            skipped += 1
        if len(comments) > FEW_COMMENTS:
            self.notes.append(f"{len(comments)} lines are comments and were left out.")
        else:
            for line_number in comments:
                self.notes.append(f"Line {line_number} is a comment and was left out.")
        rest = self.first_lines[skipped:]
        self.separator = _separator(rest)
        if len(rest) > 2 and self._is_title(rest):
            line = harmless(rest[0].strip()[:60])
            self.notes.append(
                f"Line {skipped + 1}, {line!r}, has one entry where the lines below have "
                "several: it was taken for a title and left out."
            )
            skipped += 1
        return skipped

    def _is_title(self, lines: list[str]) -> bool:
        """Whether one entry stands above lines that have several."""
        widths = [len(_entries(line, self.separator)) for line in lines[:3]]
        return widths[0] == 1 and widths[1] == widths[2] and widths[1] > 1

    def header(self) -> list[str]:
        """The names of the columns."""
        reader = csv.reader(
            self._lines(), delimiter=self.separator, skipinitialspace=True
        )
        try:
            row = next(filter(None, reader), None)
        except csv.Error:
            raise ValueError(
                f"the header of {self.name}: found an entry of more than "
                f"{LONGEST_ENTRY:,} characters; wanted the names of columns, with a "
                "separator between them and no quotation mark that stays open"
            ) from None
        if row is None:
            raise ValueError(f"{self.name} holds no rows")
        if any("\ufffd" in name for name in row):
            raise ValueError(self._place_that_is_not_utf8())
        return [composed(name) for name in row]

    def _lines(self) -> list[str]:
        """The first lines after the comments; bytes that are not UTF-8 are marked."""
        text = self.first_bytes.decode("utf-8", "replace")
        return re.split("\r\n|\r|\n", text)[self.n_skipped :]

    def frame(self) -> pd.DataFrame:
        """The rows, with text as it is written; only an empty entry is missing."""
        names = self.header()
        dtypes = {}
        for place, name in enumerate(names):
            if not self.is_number(name):
                dtypes[place] = str
        unique = [f"{place}" for place in range(len(names))]
        n_above = self._rows_to_skip()
        rows = io.BytesIO(self.data)
        rows.seek(self._end_of_line(n_above))
        try:
            # A row that is too long is a warning to pandas, and an error here.
            with warnings.catch_warnings(
                action="error", category=pd.errors.ParserWarning
            ):
                frame = pd.read_csv(
                    rows,
                    sep=r"\s+" if self.separator == " " else self.separator,
                    names=unique,
                    header=None,
                    dtype={str(place): dtype for place, dtype in dtypes.items()},
                    keep_default_na=False,
                    na_values=[""],
                    low_memory=False,
                    index_col=False,
                    skipinitialspace=True,
                )
        except UnicodeDecodeError:
            raise ValueError(self._place_that_is_not_utf8()) from None
        except pd.errors.EmptyDataError:
            raise ValueError(f"{self.name} holds no rows") from None
        except (ValueError, pd.errors.ParserWarning) as error:
            words = _in_words(error, n_above)
            raise ValueError(f"{self.name} cannot be read: {words}") from None
        frame.columns = names
        self._refuse_long_entries(frame)
        self._note_short_lines(len(names), len(frame))
        frame = self._without_empty_end(frame)
        nameless = [place for place, name in enumerate(names) if not name]
        empty = [place for place in nameless if frame.iloc[:, place].isna().all()]
        if empty:
            kept = [place for place in range(len(names)) if place not in empty]
            frame = frame.iloc[:, kept]
        if self.separator != ",":
            between = SEPARATORS.get(self.separator, repr(self.separator))
            self.notes.append(f"Columns are separated by {between}.")
        return frame

    def _refuse_long_entries(self, frame: pd.DataFrame) -> None:
        """A ValueError for an entry that is no name: it may hold the rows of others."""
        if len(self.data) <= LONGEST_ENTRY:
            return
        for place, name in enumerate(frame.columns):
            entries = frame.iloc[:, place]
            if not pd.api.types.is_string_dtype(entries.dropna()):
                continue
            lengths = entries.str.len()
            longest = lengths.max()
            if longest > LONGEST_ENTRY:
                raise ValueError(
                    f"column {harmless(name)!r}, row {lengths.argmax() + 1}: found an "
                    f"entry of {longest:,.0f} characters; wanted at most "
                    f"{LONGEST_ENTRY:,}. A quotation mark that is opened by mistake "
                    "makes one entry of many rows"
                )

    def _without_empty_end(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows without empty ones below them, of which spreadsheets leave some."""
        if frame.empty or not frame.iloc[-1].isna().all():
            return frame
        is_filled = frame.notna().any(axis=1).to_numpy()
        n_empty = int(is_filled[::-1].argmax()) if is_filled.any() else len(frame)
        self.notes.append(f"{counted(n_empty, 'empty row')} at the end left out.")
        return frame.iloc[: len(frame) - n_empty]

    def _note_short_lines(self, n_columns: int, n_rows: int) -> None:
        """Say which line has fewer entries than the header, if one has.

        A file whose end is lost has one. Quoted text and spaces are not looked into.
        """
        if self.separator == " " or b'"' in self.data:
            return
        separator = self.separator.encode()
        n_skipped = self._rows_to_skip()
        n_found = self.data.count(separator)
        for above in self.first_lines[:n_skipped]:
            n_found -= above.count(self.separator)
        if n_found >= n_rows * (n_columns - 1):
            return
        blanks = b" " if self.separator == "\t" else b" \t"
        short = []
        for place, line in enumerate(self.data.splitlines()[n_skipped:], n_skipped + 1):
            n_entries = line.count(separator) + 1
            is_blank = not line.strip(blanks)  # to pandas, which leaves such lines out
            if not is_blank and n_entries < n_columns:
                short.append(f"Line {place} has {counted(n_entries, 'entry', 'entries')}")
        if not short:
            return
        others = ""
        if len(short) > 1:
            others = f", and so have {counted(len(short) - 1, 'other line')} too few"
        self.notes.append(
            f"{short[0]} where the header has {n_columns}{others}: those that are absent "
            "count as empty."
        )

    def _rows_to_skip(self) -> int:
        """Lines up to and with the header."""
        n_lines = self.n_skipped
        lines = self._lines()
        while lines and not lines[0].strip():
            lines = lines[1:]
            n_lines += 1
        reader = csv.reader(lines, delimiter=self.separator, skipinitialspace=True)
        next(reader, None)
        return n_lines + reader.line_num

    def _end_of_line(self, number: int) -> int:
        """How many bytes the first lines have.

        They are cut off, since pandas takes a quotation mark in a line that it skips for
        the beginning of text that goes on in the next.
        """
        ends = itertools.islice(LINE_END.finditer(self.data), number)
        places = [line.end() for line in ends]
        return places[-1] if len(places) == number else len(self.data)

    def _place_that_is_not_utf8(self) -> str:
        """A sentence on where the first byte is that is not UTF-8."""
        place = 0
        try:
            self.data.decode()
        except UnicodeDecodeError as error:
            place = error.start
        lines_before = self.data[:place].decode("latin-1").split("\n")
        where = "the header"
        row = len(lines_before) - 1 - self.n_skipped
        if row > 0:
            line = self.data.decode("latin-1").split("\n")[self.n_skipped]
            header = _entries(line.strip(), self.separator)
            place_in_row = lines_before[-1].count(self.separator)
            where = f"row {row}"
            if place_in_row < len(header):
                where = f"column {header[place_in_row]!r}, row {row}"
        return (
            f"{where}: found the byte 0x{self.data[place]:02x}, which is not UTF-8; "
            "save the file as UTF-8"
        )


def _entries(line: str, separator: str) -> list[str]:
    """The entries of one line, with quotes heeded where none is too long."""
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        return line.split(separator)


def _separator(lines: list[str]) -> str:
    """What stands between columns: what splits most lines into as many entries.

    Of several that do, the one that makes most entries. Spaces only where nothing else
    separates.
    """
    best = ","
    best_key = (0, 1)
    sample = [line for line in lines[:20] if line.strip()]
    for separator in SEPARATORS:
        widths = Counter(len(_entries(line, separator)) for line in sample)
        widths.pop(1, None)
        if not widths or (separator == " " and best_key[1] > 1):
            continue
        width, n_lines = max(widths.items(), key=lambda item: (item[1], item[0]))
        if (n_lines, width) > best_key:
            best = separator
            best_key = (n_lines, width)
    return best


def _in_words(error: Exception, n_above: int) -> str:
    """What went wrong with a text file, whose first lines were cut off, in words."""
    text = " ".join(str(error).split())
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", text)
    if found:
        wanted, line, saw = map(int, found.groups())
        return f"wanted {wanted} entries in line {line + n_above}, saw {saw}"
    if "Length of header" in text:
        return "rows have more entries than the header has names"
    if "EOF inside string" in text:
        return "a quotation mark is opened and never closed"
    return text
