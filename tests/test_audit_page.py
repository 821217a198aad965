"""The page of an audit: what it says, that it needs nothing, and how it looks."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest
from audit_files import (
    ALL_METRICS,
    ATTACKS,
    attacks,
    education,
    fair,
    incomes,
    many_groups,
)
from browser import chromium, page_without_network

from cfhelpers.auditing import audit_file, report, view

pytest.importorskip("jinja2")

VOID = {"meta", "line", "rect", "circle", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """What a page would load, its tags, ids, links and text."""

    def __init__(self, text):
        super().__init__()
        self.loads = []
        self.tags = []
        self.ids = []
        self.links = []
        self.words = []
        self.open = []
        self.pictures = []
        self.handlers = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        for key in ("src", "srcset", "data", "poster", "action"):
            if attributes.get(key):
                self.loads.append(attributes[key])
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "a":
            self.links.append(attributes["href"])
        if tag == "svg" and attributes.get("role") == "img":
            self.pictures.append(attributes.get("aria-label", ""))
        self.handlers += [key for key in attributes if key.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def checked(html):
    """The page, if it is whole, and asks for nothing and runs nothing."""
    page = Page(html)
    assert page.open == []
    assert page.loads == [] and page.handlers == []
    assert not set(page.tags) & {"script", "link", "iframe", "object", "embed", "img"}
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import", style)
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert not re.match(r"\w+:", link)
    assert page.pictures and all(page.pictures)
    return page


def document_of(frame, folder, **options):
    path = folder / "my.csv"
    frame.to_csv(path, index=False)
    return report.document(audit_file(path, **options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def income_document(folder):
    return document_of(incomes(), folder, label="income", groups="sex,age")


@pytest.fixture(scope="module")
def education_document(folder):
    return document_of(education(), folder, groups="region", metrics=ALL_METRICS)


@pytest.fixture(scope="module")
def long_document(folder):
    return document_of(many_groups(60), folder, groups="department")


@pytest.fixture(scope="module")
def attack_document(folder):
    return document_of(attacks(), folder, groups="group", positive_labels="all")


def test_the_first_screen_says_who_is_worst_off_and_what_to_do(income_document):
    page = checked(report.page(income_document))
    sentence = income_document["verdicts"][0]["sentence"]
    first = page.text.partition("Contents")[0]
    assert sentence in first and "That is Equal opportunity by sex" in first
    for entry in income_document["verdicts"]:
        assert f"{view.SIGNS[entry['verdict']]} {entry['verdict']}" in first
    assert "What to do next" in first and "accepted with a reason" in first


def test_every_part_is_there_and_linked_from_the_contents(income_document):
    page = checked(report.page(income_document))
    contents = page.text.partition("Contents")[2]
    for title in (
        "People by sex",
        "People by sex × age",
        "What new thresholds would cost",
        "What was audited",
        "The words on this page",
        "Methods",
        "What this page does not say",
        "Appendix: tables",
        "How this page was made",
    ):
        assert contents.count(title) >= 2  # the link, and the heading
    assert len(page.pictures) >= 2 * len(income_document["verdicts"])


def test_the_stamp_has_the_file_the_options_and_the_command(income_document):
    text = checked(report.page(income_document)).text
    assert income_document["file"]["sha256"] in text and "3,000 in the file" in text
    assert income_document["date"] in text and income_document["version"] in text
    for name in income_document["options"]:
        assert f"Option {name}" in text


def test_no_path_and_no_warning_is_inside(income_document, folder):
    html = report.page(income_document)
    assert str(folder) not in html and "Warning" not in html and "/work" not in html


def test_words_of_the_trade_are_explained(income_document):
    words = checked(report.page(income_document)).text.partition("The words on this")[2]
    for word in ("λ", "Cell", "tps", "Calibration rows", "δ"):
        assert word in words.partition("Methods")[2] + words


def test_fixes_have_verdict_interval_and_digits_and_vacuous_ones_are_marked(
    income_document,
):
    text = checked(report.page(income_document)).text
    fixes = text.rpartition("What new thresholds would cost")[2]
    for entry in income_document["verdicts"]:
        for fix in entry["fixes"]:
            assert f"{fix['lower']:.3f}" in fixes or f"{fix['lower']:.4f}" in fixes
            assert f"{fix['mean_set_size']:.3f}" in fixes
            assert not fix["vacuous"] or "∅ says nothing" in fixes


def test_all_within_has_no_sentence_on_who_is_worst_off(folder):
    made = document_of(fair(), folder, metrics="equal_opportunity")
    page = checked(report.page(made))
    first = page.text.partition("Contents")[0]
    assert "Nothing here is shown to be beyond" in first
    assert "are missed" not in first and "All groups are within" in first
    assert "1 comparison:" in first


def test_hostile_names_are_text_on_the_page(attack_document):
    html = report.page(attack_document)
    page = checked(html)
    for name in ATTACKS:
        assert name in page.text or view.page_view(attack_document)["key"]
        assert "<script>alert" not in html and "<img" not in html
    assert "“<b>yes</b>”" in page.text and "<b>yes" not in html
    assert "{{ 7 * 7 }}" in page.text


def test_hostile_names_are_quoted_in_the_tables_and_escaped_on_the_card(attack_document):
    cells = csv.DictReader(io.StringIO(report.tables(attack_document)["cells.csv"]))
    groups = {row["group"] for row in cells}
    assert f"'{ATTACKS[1]}" in groups and ATTACKS[1] not in groups
    for text in report.tables(attack_document).values():
        for row in csv.reader(io.StringIO(text)):
            for value in row:
                is_number = re.fullmatch(r"-?\d[\d.e-]*", value)
                assert is_number or not value.startswith(("=", "+", "-", "@", "\t"))
    card = report.card(attack_document)
    assert "\\<script\\>" in card and "<script>" not in card


def test_long_names_are_shortened_with_a_key(long_document):
    page = checked(report.page(long_document))
    before, _, key = page.text.rpartition("Key to long names")
    names = [group["group"] for group in long_document["groupings"][0]["groups"]]
    assert all(len(name) == 100 for name in names)
    assert not any(name in before for name in names)
    assert all(name in key for name in names)
    assert re.search(r"“Department no\. \d+ of the lo…place_\d{4} \[\d+\]”", before)


def test_hundreds_of_groups_are_summarised(folder):
    made = document_of(many_groups(400, 12_000, 30), folder, groups="department")
    page = checked(report.page(made))
    assert "400 groups; the 12 lowest and highest are drawn" in page.text
    assert "Half of the groups lie between" in page.text
    assert page.tags.count("tr") < 70 * len(made["verdicts"])
    assert "360 other groups" in page.text


def test_the_page_takes_a_document_that_went_through_json(income_document):
    again = json.loads(json.dumps(income_document))
    assert report.page(again) == report.page(income_document)


def test_files_beside_the_page_are_linked(income_document):
    html = report.page(income_document, beside=["my report.json", "t/cells.csv"])
    assert "my%20report.json" in Page(html).links and "t/cells.csv" in Page(html).links


def test_a_comparison_is_told_on_the_page(income_document):
    from cfhelpers.auditing.compare import compared_documents

    compared = compared_documents(income_document, income_document)
    page = checked(report.page(income_document | {"compared": compared}))
    assert "Since the earlier audit" in page.text.partition("Contents")[0]
    assert "The file is the same, byte for byte." in page.text


def test_equalized_odds_names_the_condition_of_each_cell(education_document):
    text = checked(report.page(education_document)).text
    assert "none, who have it" in text and "none, who do not have it" in text


def luminance(color):
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_of_text_has_contrast_on_every_ground(income_document):
    html = report.page(income_document)
    inks = dict(re.findall(r"--(\w+): (#\w{6})", html))
    grounds = {"#ffffff", inks.pop("wash"), *re.findall(r"background: (#\w{6})", html)}
    inks.pop("line")
    assert {"ink", "soft", "beyond", "within", "undecided", "link"} == set(inks)
    for ink in inks.values():
        for ground in grounds:
            lighter, darker = sorted([luminance(ink), luminance(ground)], reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_why_no_threshold_was_found_is_told_with_its_line_group_and_rows(income_document):
    notes = {
        fix["note"] for entry in income_document["verdicts"] for fix in entry["fixes"]
    }
    small = [note for note in notes if "too few calibration rows" in note]
    assert small
    for note in small:
        assert re.search(r": “.+” \(\d+\).*; each needs \d+$", note)
    assert any(" with the label “>50K” (" in note for note in small)
    text = report.page(income_document)
    assert "One for all labels, with a guarantee: no finite threshold does" in text


def test_the_card_has_a_row_per_verdict_and_the_stamp(income_document):
    card = report.card(income_document)
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(income_document["verdicts"])
    assert income_document["file"]["sha256"] in card
    assert "Who is worst off:" in card


def test_the_tables_have_a_row_per_entry(income_document):
    found = report.tables(income_document)
    rows = {}
    for name, text in found.items():
        rows[name] = list(csv.DictReader(io.StringIO(text)))
    assert len(rows["verdicts.csv"]) == len(income_document["verdicts"])
    assert len(rows["cells.csv"]) == len(income_document["cells"])
    fixes = sum(len(entry["fixes"]) for entry in income_document["verdicts"])
    assert len(rows["fixes.csv"]) == fixes
    first = rows["cells.csv"][0]
    assert float(first["share"]) == income_document["cells"][0]["share"]


# In a browser: two labels, five labels × 8 metrics, 60 groups with names of 100 letters.


TABLES_FIT = """
[...document.querySelectorAll('.scroll:has(.fixes), .scroll:has(.sizes)')]
    .every(box => box.scrollWidth <= box.clientWidth)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["income_document", "education_document", "long_document", "attack_document"]
)
def test_the_page_fits_any_width_and_has_no_serious_fault(name, request, tmp_path):
    sync_axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    made = request.getfixturevalue(name)
    path = tmp_path / "report.html"
    path.write_text(report.page(made), encoding="utf-8")
    with chromium() as browser:
        for width in (1200, 390):
            page, refused, errors = page_without_network(browser, path.as_uri(), width)
            page.goto(path.as_uri())
            assert refused == [] and errors == []
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.evaluate(TABLES_FIT)
        serious = []
        for fault in sync_axe.Axe().run(page).response["violations"]:
            if fault["impact"] in ("serious", "critical"):
                serious.append((fault["id"], fault["nodes"][0]["html"]))
        assert serious == []


@pytest.mark.slow
def test_the_first_screen_holds_the_verdicts_and_the_printed_page_is_whole(
    income_document, tmp_path
):
    path = tmp_path / "report.html"
    path.write_text(report.page(income_document), encoding="utf-8")
    with chromium() as browser:
        page, _, _ = page_without_network(browser, path.as_uri(), 1200, 900)
        page.goto(path.as_uri())
        assert (
            page.evaluate(
                "document.querySelector('.matrix').getBoundingClientRect().bottom"
            )
            <= 900
        )
        pdf = page.pdf(prefer_css_page_size=True)
        assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
        page.emulate_media(media="print")
        for rule in ("whole", "matrix"):
            kept = page.evaluate(
                f"getComputedStyle(document.querySelector('.{rule}')).breakInside"
            )
            assert kept == "avoid"
        grouping = "getComputedStyle(document.querySelector('.grouping')).breakBefore"
        assert page.evaluate(grouping) == "page"
