"""A matrix of files as people have them: what each holds, and what is expected of it.

Every accepted file holds the same 40 people, unless it says otherwise: of the 20 in group
a, 16 have the label 1 in their set, of the 20 in group b 8. The cut-off is .5 throughout.
"""

import bz2
import gzip
import importlib
import io
import json
import lzma
import unicodedata
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest

from cfhelpers.auditing import audit_file, command
from cfhelpers.auditing.words import harmless

SHARES = {"a": 0.8, "b": 0.4}
PEOPLE = pd.DataFrame(
    {
        "p_1": [0.9] * 16 + [0.1] * 4 + [0.8] * 8 + [0.2] * 12,
        "y": [1, 0] * 20,
        "group": ["a"] * 20 + ["b"] * 20,
    }
)
BOTH = PEOPLE.assign(p_0=(1 - PEOPLE["p_1"]).round(6))
DECIDED = (PEOPLE["p_1"] > 0.5).astype(int)
NAMED = BOTH.rename(columns={"p_0": "p_no", "p_1": "p_yes"}).assign(y=["yes", "no"] * 20)
HALF = {"cutoff": "0.5", "metrics": "demographic_parity"}
PLAIN = {"metrics": "demographic_parity"}
YES = HALF | {"positive_labels": "yes"}


def csv(frame, **options):
    return frame.to_csv(index=False, **options).encode()


def written(frame, how, **options):
    file = io.BytesIO()
    getattr(frame, how)(file, **options)
    return file.getvalue()


def zipped(*contents):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for place, content in enumerate(contents):
            archive.writestr(f"file{place}.csv", content)
    return file.getvalue()


def people(**columns):
    return csv(BOTH.assign(**columns))


def decimal_commas(separator):
    return csv(BOTH, sep=separator, decimal=",")


PLAIN_CSV = csv(BOTH)
LINES = PLAIN_CSV.decode().splitlines()
SETS = PEOPLE.assign(set_0=1 - DECIDED, set_1=DECIDED).drop(columns="p_1")

# name of the file, its bytes, options, and words that the reading must say (or None)
ACCEPTED = {
    "commas": ("a.csv", PLAIN_CSV, HALF, None),
    "semicolons": ("a.csv", csv(BOTH, sep=";"), HALF, "separated by semicolons"),
    "tabs": ("a.tsv", csv(BOTH, sep="\t"), HALF, "separated by tabs"),
    "bars": ("a.txt", csv(BOTH, sep="|"), HALF, "separated by bars"),
    "spaces": ("a.txt", csv(BOTH, sep=" "), HALF, "separated by spaces"),
    "capital suffix": ("A.CSV", PLAIN_CSV, HALF, None),
    "no suffix": ("predictions", PLAIN_CSV, HALF, None),
    "decimal commas": ("a.csv", decimal_commas(";"), HALF, "Decimal commas"),
    "decimal commas, tabs": ("a.csv", decimal_commas("\t"), HALF, "Decimal commas"),
    "decimal commas in quotes": ("a.csv", decimal_commas(","), HALF, "Decimal commas"),
    "Windows lines": ("a.csv", csv(BOTH, lineterminator="\r\n"), HALF, None),
    "a byte order mark": ("a.csv", b"\xef\xbb\xbf" + PLAIN_CSV, HALF, None),
    "UTF-16": ("a.csv", PLAIN_CSV.decode().encode("utf-16"), HALF, "UTF-16"),
    "a comment": ("a.csv", b"# by model 7\n" + PLAIN_CSV, HALF, "Line 1 is a comment"),
    "two comments": ("a.csv", b"# by\n% x\n" + PLAIN_CSV, HALF, "Line 2 is a comment"),
    "a title": ("a.csv", b"Export of May\n" + PLAIN_CSV, HALF, "taken for a title"),
    "a title with letters beyond ASCII": (
        "a.csv",
        "März in Zürich\n".encode() + PLAIN_CSV,
        HALF,
        "'März in Zürich', has one entry",
    ),
    "sixty comments": (
        "a.csv",
        b"# by model 7\n" * 60 + PLAIN_CSV,
        HALF,
        "60 lines are comments and were left out",
    ),
    "a line break in the header after a blank": (
        "a.csv",
        PLAIN_CSV.replace(b"y,group", b' "y\n", group'),
        HALF,
        None,
    ),
    "the index of a data frame": ("a.csv", BOTH.to_csv().encode(), HALF, None),
    "the index in a workbook": ("a.xlsx", written(BOTH, "to_excel"), HALF, None),
    "three decimals after commas": (
        "a.csv",
        csv(BOTH, sep=";", decimal=",", float_format="%.3f"),
        HALF,
        "Decimal commas",
    ),
    "empty rows at the end": (
        "a.csv",
        PLAIN_CSV + b",,,\n" * 3,
        HALF,
        "3 empty rows at the end left out",
    ),
    "a column in the other writing of Unicode": (
        "a.csv",
        csv(BOTH.rename(columns={"group": unicodedata.normalize("NFD", "Größe")})),
        HALF | {"groups": unicodedata.normalize("NFC", "Größe")},
        None,
    ),
    "labels in the other writing of Unicode": (
        "a.csv",
        csv(
            NAMED.rename(columns={"p_yes": unicodedata.normalize("NFD", "p_fällig")})
        ).replace(b",yes,", ",fällig,".encode()),
        HALF | {"positive_labels": unicodedata.normalize("NFD", "fällig")},
        None,
    ),
    "groups as bytes": (
        "a.parquet",
        written(BOTH.assign(group=BOTH["group"].str.encode("utf-8")), "to_parquet"),
        HALF,
        None,
    ),
    "Excel's sep=": ("a.csv", b"sep=;\n" + csv(BOTH, sep=";"), HALF, "names the sep"),
    "an empty line first": ("a.csv", b"\n" + PLAIN_CSV, HALF, None),
    "a line break in the header": (
        "a.csv",
        PLAIN_CSV.replace(b"y,group", b'"y\n",group'),
        HALF,
        None,
    ),
    "a quotation mark in a comment": (
        "a.csv",
        b'# screens of 15" and less\n' + PLAIN_CSV,
        HALF,
        "Line 1 is a comment",
    ),
    "spaces in the header": (
        "a.csv",
        PLAIN_CSV.replace(b"p_1,y,group", b" p_1 , y, group "),
        HALF,
        None,
    ),
    "spaces after commas": ("a.csv", PLAIN_CSV.replace(b",", b", "), HALF, None),
    "all in quotes": ("a.csv", csv(BOTH, quoting=1), HALF, None),
    "an empty last column": (
        "a.csv",
        "\n".join(f"{line}," for line in LINES).encode(),
        HALF,
        None,
    ),
    "gzip": ("a.csv.gz", gzip.compress(PLAIN_CSV), HALF, "compressed (gzip)"),
    "bzip2": ("a.csv.bz2", bz2.compress(PLAIN_CSV), HALF, "compressed (bzip2)"),
    "xz": ("a.csv.xz", lzma.compress(PLAIN_CSV), HALF, "compressed (xz)"),
    "zip": ("a.zip", zipped(PLAIN_CSV), HALF, "in an archive (zip)"),
    "gzip by another name": ("a.csv", gzip.compress(PLAIN_CSV), HALF, "gzip"),
    "parquet": ("a.parquet", written(BOTH, "to_parquet"), HALF, None),
    "parquet by another name": ("a.csv", written(BOTH, "to_parquet"), HALF, None),
    "a parquet index": (
        "a.pq",
        written(BOTH.set_index("group"), "to_parquet"),
        HALF,
        None,
    ),
    "feather": ("a.feather", written(BOTH, "to_feather"), HALF, None),
    "one probability, of 1": ("a.csv", csv(PEOPLE), HALF, "probability of '1'"),
    "one probability, called p": (
        "a.csv",
        csv(PEOPLE.rename(columns={"p_1": "p"})),
        HALF,
        "Column 'p' was taken for the probability of '1'",
    ),
    "one probability by name": (
        "a.csv",
        csv(PEOPLE.rename(columns={"p_1": "risk"})),
        HALF | {"columns": "risk"},
        "probability of '1'",
    ),
    "one probability, of true": (
        "a.csv",
        csv(PEOPLE.rename(columns={"p_1": "prob"}).assign(y=[True, False] * 20)),
        HALF | {"label": "y"},
        "probability of 'True'",
    ),
    "one probability, label named": (
        "a.csv",
        csv(NAMED.drop(columns="p_no")),
        YES,
        "probability of 'yes'",
    ),
    "only label 1 occurs": ("a.csv", csv(PEOPLE.assign(y=1)), HALF, "probability of '1'"),
    "decisions": (
        "a.csv",
        csv(PEOPLE.assign(p_1=DECIDED).rename(columns={"p_1": "decision"})),
        PLAIN,
        "hard decisions",
    ),
    "decisions as true and false": (
        "a.csv",
        csv(PEOPLE.assign(p_1=DECIDED == 1).rename(columns={"p_1": "y_pred"})),
        PLAIN,
        "hard decisions",
    ),
    "decisions by label": (
        "a.csv",
        csv(NAMED[["y", "group"]].assign(prediction=np.where(DECIDED == 1, "yes", "no"))),
        PLAIN | {"positive_labels": "yes"},
        "hard decisions",
    ),
    "decisions in a named column": (
        "a.csv",
        csv(PEOPLE.assign(p_1=DECIDED).rename(columns={"p_1": "loan"})),
        PLAIN | {"columns": "loan", "kind": "decisions"},
        "hard decisions",
    ),
    "sets": ("a.csv", csv(SETS), PLAIN, None),
    "sets as true and false": (
        "a.csv",
        csv(SETS.astype({"set_0": bool, "set_1": bool})),
        PLAIN,
        None,
    ),
    "sets of a parquet file": (
        "a.parquet",
        written(SETS.astype({"set_0": bool, "set_1": bool}), "to_parquet"),
        PLAIN,
        None,
    ),
    "scores": (
        "a.csv",
        csv(BOTH.rename(columns={"p_0": "score_1", "p_1": "score_0"})),
        PLAIN | {"threshold": "0.5"},
        None,
    ),
    "a threshold of 1 - p": ("a.csv", PLAIN_CSV, PLAIN | {"threshold": "0.5"}, None),
    "one cut-off per label": (
        "a.csv",
        PLAIN_CSV,
        HALF | {"cutoff": "0.5,0.1", "positive_labels": "1"},
        None,
    ),
    "probabilities and sets": (
        "a.csv",
        csv(SETS.assign(p_0=0.5, p_1=0.5)),
        PLAIN,
        "The sets are used",
    ),
    "probabilities and a decision": (
        "a.csv",
        people(prediction=0),
        HALF,
        "The probabilities are used",
    ),
    "labels as 1.0": ("a.csv", people(y=[1.0, 0.0] * 20), HALF, None),
    "labels in a parquet as floats": (
        "a.parquet",
        written(BOTH.astype({"y": float}), "to_parquet"),
        HALF,
        None,
    ),
    "labels with spaces": ("a.csv", people(y=["1 ", " 0"] * 20), HALF, None),
    "columns with commas": (
        "a.csv",
        csv(BOTH.rename(columns={"group": "sex, at birth"})),
        HALF | {"groups": "sex, at birth"},
        None,
    ),
    "several columns, one with commas": (
        "a.csv",
        csv(BOTH.rename(columns={"group": "sex, at birth"})),
        HALF | {"groups": '"sex, at birth"'},
        None,
    ),
    "value columns with commas": (
        "a.csv",
        csv(NAMED.rename(columns={"p_no": "no, or other", "p_yes": "yes"})).replace(
            b",no,", b',"no, or other",'
        ),
        YES | {"columns": '"no, or other",yes'},
        None,
    ),
    "categories": (
        "a.parquet",
        written(BOTH.astype({"group": "category"}), "to_parquet"),
        HALF,
        None,
    ),
    "ids": ("a.csv", people(person=range(40)), HALF | {"id": "person"}, None),
    "ids that repeat": (
        "a.csv",
        people(person=[7] * 40),
        HALF | {"id": "person"},
        "39 rows with an id that occurred before",
    ),
    "lines of more characters than an entry may have": (
        "a.csv",
        PLAIN_CSV.replace(b"\n", (b";" + b"1" * 70) * 2000 + b"\n").replace(b",", b";"),
        HALF,
        "Columns are separated by semicolons.",
    ),
    "a title of more characters than an entry may have": (
        "a.csv",
        b"x" * 140_000 + b"\n" + PLAIN_CSV,
        HALF,
        "it was taken for a title and left out",
    ),
    "weights that are all alike": (
        "a.csv",
        people(w=2.5),
        HALF | {"weights": "w"},
        None,
    ),
    "a column twice that is not used": (
        "a.csv",
        PLAIN_CSV.replace(b"p_1,y,group,p_0", b"p_1,y,group,p_0")
        .replace(b"\n", b",x,x\n")
        .replace(b"p_0,x,x", b"p_0,note,note"),
        HALF,
        None,
    ),
}


@pytest.mark.parametrize(
    "name, content, options, words", ACCEPTED.values(), ids=ACCEPTED.keys()
)
def test_a_file_is_read_as_what_it_is(tmp_path, name, content, options, words):
    path = tmp_path / name
    path.write_bytes(content)
    found = audit_file(path, **options)
    [one] = found.audits.values()
    label = found.positive_labels[-1]
    cells = one.table[one.table["label"].astype(str) == str(label)]
    assert dict(zip(cells["group"], cells["coverage"], strict=True)) == SHARES
    assert cells["count"].tolist() == [20, 20]
    assert found.source.rows == 40 and len(found.source.sha256) == 64
    if words is not None:
        assert words in " ".join([*found.reading, found.rule])


DOUBLE = PLAIN_CSV.replace(b"p_1,y,group,p_0", b"p_1,group,group,p_0")
COPY = people(group=PEOPLE["y"])
LISTS = BOTH.assign(group=[["a", "b"]] * 40)

# name of the file, its bytes, options, and what the message must say
REFUSED = {
    "empty": ("a.csv", b"", {}, r"^a.csv is empty$"),
    "an empty gzip": ("a.csv.gz", gzip.compress(b""), {}, "a.csv.gz is empty"),
    "a header alone": ("a.csv", b"p_0,p_1,y,group\n", {}, "holds no rows"),
    "an entry without end in the first row": (
        "a.csv",
        PLAIN_CSV.replace(b",a", b',"' + b"x" * 200_000 + b'"', 1),
        {},
        "column 'group', row 1: found an entry of 200,000 characters; wanted at most",
    ),
    "an entry without end in the last row": (
        "a.csv",
        PLAIN_CSV.replace(b"\n", b",\n") + b"0.1,0.9,1,a," + b"x" * 140_000 + b"\n",
        {},
        "column '', row 41: found an entry of 140,000 characters; wanted at most 131,072",
    ),
    "an entry of many rows": (
        "a.csv",
        PLAIN_CSV
        + b'0.1,0.9,1,"a\n'
        + PLAIN_CSV.split(b"\n", 1)[1] * 400
        + b'0.1,0.9,1,a"\n',
        {},
        "column 'p_0', row 41: found an entry of 192,013 characters; .* of many rows",
    ),
    "a name of a column without end": (
        "a.csv",
        PLAIN_CSV.replace(b"group", b"x" * 200_000, 1),
        {},
        "the header of a.csv: found an entry of more than 131,072 characters; wanted the",
    ),
    "one line and nothing else": (
        "a.csv",
        b"x" * 300_000,
        {},
        "the header of a.csv: found an entry of more than 131,072 characters; wanted the",
    ),
    "a row that is too long": (
        "a.csv",
        b"# by hand\n" + PLAIN_CSV + b"1,2,3,4,5,6\n",
        {},
        f"wanted 4 entries in line {len(LINES) + 2}, saw 6",
    ),
    "a line of odd blanks": (
        "a.csv",
        csv(BOTH[["p_0", "p_1", "y", "group"]]) + b"\x0b\n",
        {},
        r"column 'p_0', row 41: found '\\x0b'; wanted a number",
    ),
    "no UTF-8 in a row that is too long": (
        "a.csv",
        PLAIN_CSV.replace(b",a,", b",a,,,,,,\xff", 1),
        {},
        "found the byte 0xff, which is not UTF-8|wanted 4 entries in line",
    ),
    "two files in an archive": (
        "a.zip",
        zipped(PLAIN_CSV, PLAIN_CSV),
        {},
        "found 2 files in the archive; wanted one",
    ),
    "a damaged gzip": ("a.gz", gzip.compress(PLAIN_CSV)[:60], {}, "damaged"),
    "a damaged parquet": ("a.parquet", b"PAR1 and no more", {}, "cannot be read"),
    "a PDF": ("a.csv", b"%PDF-1.4\n1 0 obj\n", {}, "looks like a PDF file"),
    "an old workbook": ("a.xls", b"\xd0\xcf\x11\xe0" + b"\0" * 99, {}, "a.xls is an Ex"),
    "a pickle": ("a.pkl", b"\x80\x04", {}, "a pickle file; CSV, parquet, feather and"),
    "an SPSS file": ("a.sav", b"$FL2", {}, "an SPSS file; CSV"),
    "JSON": ("a.txt", json.dumps({"a": 1}).encode(), {}, "looks like a JSON file"),
    "HTML": ("a.csv", b"<html></html>", {}, "looks like an HTML or XML file"),
    "bytes": ("a.bin", b"\0\1\2" * 99, {}, "is not a text file"),
    "a quotation mark that stays open": (
        "a.csv",
        PLAIN_CSV.replace(b",a,", b',"a,', 1),
        {},
        "a.csv cannot be read",
    ),
    "a group column twice": ("a.csv", DOUBLE, {"label": "y"}, "there is no column 'y'"),
    "a group column twice, used": (
        "a.csv",
        PLAIN_CSV.replace(b"\n", b",b\n").replace(b"p_0,b", b"p_0,group"),
        HALF,
        "found the column 'group' twice",
    ),
    "a group column named twice": (
        "a.csv",
        PLAIN_CSV,
        {"groups": "group,group"},
        "groups: found 'group' twice",
    ),
    "groups that are the label column": (
        "a.csv",
        PLAIN_CSV,
        {"groups": "y"},
        "groups: found 'y', the column of the labels",
    ),
    "groups with the labels' entries": (
        "a.csv",
        COPY,
        {},
        "groups: column 'group' has the same entries as the labels in 'y'",
    ),
    "lists as groups": (
        "a.parquet",
        written(LISTS, "to_parquet"),
        {},
        r"column 'group', row 1: found a \w+; wanted one group",
    ),
    "lists as groups, as text": (
        "a.csv",
        csv(LISTS),
        {},
        r"column 'group', row 1: found the list \['a', 'b'\]; wanted one group",
    ),
    "lists as probabilities": (
        "a.parquet",
        written(BOTH.assign(p_1=[[0.1, 0.9]] * 40), "to_parquet"),
        {},
        r"column 'p_1', row 1: found a \w+; wanted a number, in a column of its own",
    ),
    "empty rows alone": ("a.csv", b"p_0,p_1,y,group\n,,,\n,,,\n", {}, "holds no rows"),
    "one probability of named labels": (
        "a.csv",
        csv(NAMED.drop(columns="p_no")),
        {},
        r"columns: found probabilities \(p_yes\); .*--positive-labels \(no, yes\)",
    ),
    "one probability of three labels": (
        "a.csv",
        csv(PEOPLE.assign(y=[0, 1, 2, 1] * 10)),
        {},
        "columns: found probabilities .*a column per label",
    ),
    "one score": (
        "a.csv",
        csv(PEOPLE.rename(columns={"p_1": "score_1"})),
        {},
        r"columns: found scores \(score_1\)",
    ),
    "decisions by other names": (
        "a.csv",
        csv(NAMED[["y", "group"]].assign(decision=DECIDED)),
        {},
        "column 'decision': found 0, 1; the labels are no, yes",
    ),
    "a decision that is missing": (
        "a.csv",
        csv(NAMED[["y", "group"]].assign(decision=["yes"] * 39 + [None])),
        {},
        "column 'decision', row 40: found nothing; wanted a label",
    ),
    "two columns of decisions": (
        "a.csv",
        csv(PEOPLE[["y", "group"]].assign(decision=1, prediction=1)),
        {},
        "columns: found decision, prediction for decisions; wanted one",
    ),
    "a percent sign": (
        "a.csv",
        people(p_1="90%"),
        {},
        "column 'p_1', row 1: found '90%'; wanted a number",
    ),
    "a cut-off of 30": ("a.csv", PLAIN_CSV, {"cutoff": 30}, "cutoff: found 30; wanted a"),
    "a cut-off for sets": (
        "a.csv",
        csv(SETS),
        {"cutoff": 0.5},
        "cutoff: found 0.5 for s",
    ),
    "a cut-off for APS": (
        "a.csv",
        PLAIN_CSV,
        {"cutoff": 0.5, "score": "aps"},
        "a cut-off goes with probabilities and the score 'tps'",
    ),
    "a cut-off and a threshold": (
        "a.csv",
        PLAIN_CSV,
        {"cutoff": 0.5, "threshold": 0.5},
        "either a cut-off or a threshold",
    ),
    "a negative weight": (
        "a.csv",
        people(w=[-1.0] + [1.0] * 39),
        {"weights": "w"},
        "column 'w', row 1: found -1.0; wanted a weight from 0 on",
    ),
    "a weight that is missing": (
        "a.csv",
        people(w=[1.0] * 39 + [None]),
        {"weights": "w"},
        "column 'w', row 40: found nothing; wanted a number",
    ),
    "weights of 0": ("a.csv", people(w=0), {"weights": "w"}, "every weight is 0"),
    "no such weights": ("a.csv", PLAIN_CSV, {"weights": "w"}, "there is no column 'w'"),
    "thousands in weights": (
        "a.csv",
        people(w="1,234"),
        {"weights": "w"},
        "column 'w', row 1: found '1,234'; wanted a number",
    ),
    "replicates without weights": (
        "a.csv",
        PLAIN_CSV,
        {"replicates": "brr"},
        "replicates: wanted a column of weights too",
    ),
    "missing by another rule": (
        "a.csv",
        PLAIN_CSV,
        {"missing": "drop"},
        "missing: found 'drop'; wanted one of 'separate', 'exclude'",
    ),
    "no groups at all, excluded": (
        "a.csv",
        people(group=None),
        {"missing": "exclude"},
        "missing: found no row that has group",
    ),
    "every group small": (
        "a.csv",
        people(group=["a", "b", "c", "d"] * 10),
        {"min_group": 11},
        "min_group: found no group by group with 11 rows; the largest has 10",
    ),
    "an order of other groups": (
        "a.csv",
        PLAIN_CSV,
        {"group_order": "z,a"},
        "group_order: found 'z', which is no group",
    ),
    "a label twice": (
        "a.csv",
        csv(BOTH.rename(columns={"p_0": "prob_1"})),
        {},
        "columns: found the label '1' twice",
    ),
}


@pytest.mark.parametrize(
    "name, content, options, message", REFUSED.values(), ids=REFUSED.keys()
)
def test_a_file_is_refused_in_one_sentence(tmp_path, name, content, options, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        audit_file(path, **options)
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


def workbook(path, **sheets):
    """A real Excel file; a sheet is a table, or a list of rows."""
    with pd.ExcelWriter(path, engine="openpyxl") as writer:
        for name, content in sheets.items():
            is_table = isinstance(content, pd.DataFrame)
            table = content if is_table else pd.DataFrame(content, dtype=object)
            table.to_excel(writer, sheet_name=name, index=False, header=is_table)
    return path


def shares_of(path, **options):
    """The two shares of the usual people, and how the file was read."""
    found = audit_file(path, **HALF, **options)
    [one] = found.audits.values()
    assert one.table["coverage"].tolist() == [0.8, 0.4]
    return found


def test_a_workbook_is_read(tmp_path):
    shares_of(workbook(tmp_path / "a.xlsx", Data=BOTH))
    as_text = BOTH.assign(y=BOTH["y"].astype(str), p_1=BOTH["p_1"].astype(str))
    as_text["p_1"] = as_text["p_1"].str.replace(".", ",")
    found = shares_of(workbook(tmp_path / "text.xlsx", Data=as_text))
    assert "Decimal commas are read as points." in found.reading


def test_a_workbook_with_several_sheets_says_which_was_read(tmp_path):
    about = pd.DataFrame({"about": ["predictions of May"]})
    path = workbook(tmp_path / "a.xlsx", Notes=about, May=BOTH)
    assert "The sheet 'May' was read; 'Notes' was not." in shares_of(path).reading
    path = workbook(tmp_path / "b.xlsx", May=BOTH, June=BOTH.head(9))
    [sentence] = [text for text in shares_of(path).reading if "sheet" in text]
    assert sentence == (
        "The sheet 'May' was read; 'June' was not. "
        "To audit another, save it as a file of its own."
    )


def test_a_title_and_empty_rows_of_a_sheet_are_left_out(tmp_path):
    people_of_it = [list(row) for row in BOTH.itertuples(index=False)]
    table = [list(BOTH.columns), *people_of_it[:4], [], *people_of_it[4:], [" "]]
    rows = [["Predictions"], [], *table]
    wide = [row + [None] * (len(BOTH.columns) - len(row)) for row in rows]
    path = workbook(tmp_path / "a.xlsx", Data=wide)
    reading = shares_of(path).reading
    assert "The line 'Predictions' above the names was left out." in reading
    assert "1 empty row of the sheet left out." in reading


def test_days_and_numbers_of_a_workbook_are_groups_as_they_are_shown(tmp_path):
    days = {"a": pd.Timestamp(2024, 1, 1), "b": pd.Timestamp(2025, 1, 1)}
    dated = BOTH.assign(group=BOTH["group"].map(days))
    found = shares_of(workbook(tmp_path / "a.xlsx", Data=dated))
    assert found.groups["group"].names == ["2024-01-01", "2025-01-01"]
    for codes in (["007", "7"], [7, 8]):
        coded = BOTH.assign(group=BOTH["group"].map(dict(zip("ab", codes, strict=True))))
        found = shares_of(workbook(tmp_path / "b.xlsx", Data=coded))
        assert found.groups["group"].names == [str(code) for code in codes]


def test_a_workbook_without_predictions_is_refused(tmp_path):
    path = workbook(tmp_path / "a.xlsx", Empty=[[]])
    with pytest.raises(ValueError, match=r"^a\.xlsx cannot be read: no sheet holds a he"):
        audit_file(path, **HALF)


def test_a_workbook_names_what_it_needs(tmp_path, monkeypatch):
    path = workbook(tmp_path / "a.xlsx", Data=BOTH)

    def is_absent(file, **options):
        raise ImportError("Missing optional dependency 'openpyxl'")

    monkeypatch.setattr(pd, "read_excel", is_absent)
    with pytest.raises(ValueError, match=r"needs openpyxl: .*, or save it as CSV$"):
        audit_file(path, **HALF)


def test_a_letter_whose_bytes_hold_a_line_break_of_latin_1_is_a_letter(file):
    path = file(csv(BOTH.rename(columns={"group": "Ålder"})))
    assert audit_file(path, groups="Ålder", **HALF).audits["Ålder"]


def test_a_line_that_is_too_short_is_said(file):
    lines = csv(BOTH[["p_0", "p_1", "y", "group"]]).splitlines()
    lines[-1] = lines[-1].rpartition(b",")[0]
    found = audit_file(file(b"\n".join(lines)), **HALF)
    assert found.reading[0] == (
        f"Line {len(lines)} has 3 entries where the header has 4: those that are "
        "absent count as empty."
    )
    lines[-2] = lines[-2].rpartition(b",")[0]
    found = audit_file(file(b"# made by hand, in May\n" + b"\n".join(lines)), **HALF)
    sentence = found.reading[1]
    assert sentence.startswith(f"Line {len(lines)} has") and "1 other line" in sentence


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_the_scale_of_weights_does_not_matter(file, scale):
    weighted = BOTH.assign(w=np.where(np.arange(len(BOTH)) % 2 == 0, scale, 2 * scale))
    with warnings.catch_warnings(action="error"):
        found = audit_file(file(csv(weighted)), weights="w", **HALF)
    assert found.weights.effective == pytest.approx(36)
    assert found.audits["group"].table["coverage"].tolist() == pytest.approx([0.8, 0.4])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"cutoff": "abc"}, "cutoff: found 'abc'; wanted a number"),
        ({"cutoff": "0.1,0.2,0.3"}, "cutoff: found 3 numbers; wanted one, or one for"),
        ({"threshold": "nan"}, "threshold: found 'nan'; wanted a number"),
        ({"seed": -1}, "seed: found -1; wanted a number from 0 on"),
        ({"min_group": -4}, "min_group: found -4; wanted a number from 0 on"),
    ],
)
def test_an_option_is_refused_by_its_name(file, options, message):
    with pytest.raises(ValueError, match=message):
        audit_file(file(csv(BOTH)), **options)


def test_a_threshold_below_every_score_is_told_as_what_it_is(file):
    found = audit_file(file(csv(BOTH)), threshold=-3)
    assert found.rule == "No label is in any set: the threshold is below every score."


def test_the_matrix_has_more_than_eighty_files():
    assert len(ACCEPTED) + len(REFUSED) >= 80


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "a.csv"
        path.write_bytes(content)
        return path

    return write


def test_words_for_missing_are_one_group_and_said(file):
    groups = ["a"] * 16 + ["NA", "nan", None, ""] + ["b"] * 16 + ["n/a", "NaN", "", None]
    found = audit_file(file(people(group=groups)), **HALF)
    assert found.groups["group"].names == ["a", "b", "missing"]
    assert found.missing == {"group": 8}
    assert "4 rows with 'NA', 'nan', 'n/a', 'NaN' count as missing." in found.reading[0]
    left = audit_file(file(people(group=groups)), **HALF, missing="exclude")
    assert left.groups["group"].names == ["a", "b"] and left.people == 32
    assert left.source.rows == 40 and left.missing == {"group": 0}
    assert "8 rows without group left out." in left.reading


def test_a_label_may_be_called_none(file):
    named = NAMED.rename(columns={"p_no": "p_none"}).replace({"y": {"no": "none"}})
    found = audit_file(file(csv(named)), **YES)
    assert found.label_names == ["yes", "none"] and (found.y == 1).sum() == 20


def test_groups_stay_as_they_are_written(file):
    codes = ["01067", "1067", "007", "7"] * 10
    assert audit_file(file(people(group=codes)), **HALF).groups["group"].names == [
        "007",
        "7",
        "01067",
        "1067",
    ]
    numbers = audit_file(file(people(group=[1.0, 2.0, None, 10.0] * 10)), **HALF)
    assert numbers.groups["group"].names == ["1", "2", "10", "missing"]


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_long_integers_are_groups_of_their_own_beside_missing_ones(tmp_path, form):
    """As floats the last two would be one group. Other programs than pandas write so."""
    arrow = pytest.importorskip("pyarrow")
    module = importlib.import_module(f"pyarrow.{form}")
    groups = pd.array([7, None, 2**53, 2**53 + 1] * 10, "Int64")
    table = arrow.Table.from_pandas(BOTH.assign(group=groups))
    file = tmp_path / "a.data"
    write = module.write_table if form == "parquet" else module.write_feather
    write(table.replace_schema_metadata(None), str(file))
    names = audit_file(file, **HALF).groups["group"].names
    assert names == ["7", "9007199254740992", "9007199254740993", "missing"]
    assert audit_file(file, **HALF).groups["group"].counts.tolist() == [10] * 4


@pytest.mark.parametrize(
    "name, options", [("p_code", {}), ("ward", {"weights": "w"}), ("p", {})]
)
def test_groups_are_text_whatever_their_column_is_called(file, name, options):
    """Also where columns of probabilities or of weights begin in the same way."""
    codes = ["007", "7"] * 20
    path = file(csv(BOTH.drop(columns="group").assign(**{name: codes}, w=1.0)))
    options = options | {"groups": name, "columns": "p_0,p_1"}
    [found] = audit_file(path, **HALF, **options).audits.values()
    assert found.table["group"].tolist() == ["007", "7"]


def test_one_text_in_two_writings_of_unicode_is_one_group(file):
    writings = [unicodedata.normalize(form, "Zoë") for form in ("NFC", "NFD")]
    path = file(people(group=["a", *writings, "a"] * 10))
    [found] = audit_file(path, **HALF).audits.values()
    assert found.table["group"].tolist() == ["Zoë", "a"]


def test_groups_come_in_the_order_that_is_asked_for(file):
    content = people(group=["low", "middle", "high", "top"] * 10)
    found = audit_file(file(content), **HALF, group_order="low,middle,high")
    assert found.groups["group"].names == ["low", "middle", "high", "top"]
    assert list(found.audits["group"].sizes.index) == ["low", "middle", "high", "top"]


def test_small_groups_become_one_and_are_named(file):
    groups = ["a"] * 15 + ["b"] * 15 + ["c"] * 5 + ["d"] * 3 + ["e"] + ["f"]
    found = audit_file(file(people(group=groups)), **HALF, min_group=6)
    names = found.groups["group"].names
    assert names == ["a", "b", "pooled: 4 groups"]
    assert "Groups by group with fewer than 6 rows are one group: c, d, e, f." in (
        found.reading
    )
    one = audit_file(file(people(group=["a"] * 20 + ["b"] * 18 + ["c"] * 2)), min_group=3)
    assert one.groups["group"].names == ["a", "b", "c"]
    assert "'c' alone has fewer than 3 rows" in " ".join(one.reading)


@pytest.mark.parametrize(
    "sets, words",
    [
        ((0, 0), "every set is empty"),
        ((1, 1), "every set holds every label"),
        ((1, 0), "every set is the same, 0"),
    ],
)
def test_sets_that_are_all_the_same_are_vacuous_and_never_within(file, sets, words):
    content = csv(
        pd.concat([PEOPLE] * 50).drop(columns="p_1").assign(set_0=sets[0], set_1=sets[1])
    )
    found = audit_file(file(content))
    assert "within" not in {record.verdict for record in found.verdicts}
    assert words in found.verdicts[0].vacuous and words in str(found)
    assert {record.kind for record in found.verdicts} == {"vacuous"}
    assert {record.joint for record in found.verdicts} == {"cannot tell"}


def test_a_cutoff_is_a_probability_to_the_last_digit(file):
    tenths = np.tile(np.arange(11) / 10, 4)[:40]
    content = csv(PEOPLE.assign(p_1=tenths))
    for cutoff in np.arange(1, 10) / 10:
        found = audit_file(file(content), cutoff=cutoff)
        in_set = np.rint(10 * tenths) >= round(10 * cutoff)
        assert (found.sets[:, 1] == in_set).all()
        assert found.cutoffs == {"0": cutoff, "1": cutoff}
        assert f"its probability is at least {cutoff:g}." in found.rule


def test_control_characters_in_names_are_harmless(file, capsys):
    names = ["a\x1b[31mred", "b\u202eevil", "c\x07", "d\u2066x"]
    path = file(people(group=names * 10))
    found = audit_file(path, **HALF)
    for name in found.groups["group"].names:
        assert name.isprintable()
    assert command.main(["audit", str(path), "--cutoff", "0.5"]) == 0
    printed = capsys.readouterr().out
    assert "\\x1b[31mred" in printed and "\\u202eevil" in printed
    for sign in "\x1b\x07\u202e\u2066":
        assert sign not in printed
    assert harmless("می‌خواهم") == "می‌خواهم"


def test_weights_weigh(file):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 3, 40).round(3)
    found = audit_file(file(people(w=weights)), **HALF, weights="w")
    one = found.audits["group"]
    cells = one.cells.set_index("group")
    for name in "ab":
        own = (PEOPLE["group"] == name).to_numpy()
        share = np.average(PEOPLE["p_1"][own] > 0.5, weights=weights[own])
        assert cells.loc[name, "coverage"] == pytest.approx(share)
        size = weights[own].sum() ** 2 / (weights[own] ** 2).sum()
        assert cells.loc[name, "effective"] == pytest.approx(size)
        assert cells.loc[name, "count"] == 20
    assert found.weights.column == "w" and found.weights.replicates == 0
    assert "approximate" in found.weights.sentence and "approximate" in str(found)
    assert found.verdicts[0].worst.share != found.verdicts[0].worst.covered / 20


def test_replicate_weights_give_the_effective_size(file):
    rng = np.random.default_rng(1)
    weights = rng.uniform(1, 2, 40)
    replicates = {f"w{r}": weights * rng.uniform(0.7, 1.3, 40) for r in range(1, 21)}
    content = people(w=weights, **replicates)
    found = audit_file(file(content), **HALF, weights="w", replicates="brr")
    assert found.weights.replicates == 20 and found.weights.rule == "brr"
    is_a = (PEOPLE["group"] == "a").to_numpy()
    in_set = (PEOPLE["p_1"] > 0.5)[is_a]
    share = np.average(in_set, weights=weights[is_a])
    others = [np.average(in_set, weights=own[is_a]) for own in replicates.values()]
    variance = np.mean((np.array(others) - share) ** 2)
    cells = found.audits["group"].cells.set_index("group")
    wanted = min(share * (1 - share) / variance, 20)
    assert cells.loc["a", "effective"] == pytest.approx(wanted)
    without = audit_file(file(content), **HALF, weights="w", replicates="none")
    assert without.weights.replicates == 0
