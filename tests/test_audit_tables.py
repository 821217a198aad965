"""The tables of an audit as CSV, its card as Markdown, and names that are attacks."""

import csv
import io

import pytest

from cfhelpers.auditing import card, tables

ATTACKS = [
    '=HYPERLINK("http://example.org","x")',
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "  =1",
    "＝1+1",
]


@pytest.mark.parametrize("name", ATTACKS)
def test_text_that_a_spreadsheet_would_run_has_an_apostrophe(name):
    text = tables.csv_text(["group"], [[name]])
    ((_,), (found,)) = csv.reader(io.StringIO(text))
    assert found == f"'{name}"


@pytest.mark.parametrize("value", ["women", "a-b", "007", "1,5", 'a "b"', "a;b", "日本"])
def test_other_text_is_as_it_is(value):
    text = tables.csv_text(["group"], [[value]])
    assert list(csv.reader(io.StringIO(text))) == [["group"], [value]]


def test_numbers_keep_their_sign_and_nothing_is_empty():
    assert tables.csv_text(["a", "b", "c"], [[-0.5, None, 3]]) == "a,b,c\n-0.5,,3\n"


def test_a_column_named_as_a_formula_is_quoted_too():
    assert tables.csv_text(["=1"], []) == "'=1\n"


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "[a](http://x)", "a|b", "**a**", "`rm -rf`"]
)
def test_the_card_shows_names_as_text(name):
    found = card.escaped(name)
    assert found.replace("\\", "") == name
    for place, character in enumerate(found):
        if character in "<[|*`":
            assert found[place - 1] == "\\"


def test_a_line_break_in_a_name_does_not_begin_a_new_block():
    assert "\n" not in card.escaped("a\n# b")
