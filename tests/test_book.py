"""The book: built without a network, read without one, on a desk and on a phone.

Every link leads somewhere.
"""

import importlib.util
import os
import re
import subprocess
import sys
import time
import tomllib
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import book
import browser
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import notebooks as tool


@pytest.fixture(scope="session")
def site(root, tmp_path_factory):
    """The book, built once for all workers of a test run."""
    for name in ("sphinx", "myst_nb", "sphinx_book_theme", "sphinx-mathjax-offline"):
        pytest.importorskip(name)
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "book"
    try:
        folder.mkdir()
    except FileExistsError:  # another worker builds it
        while not (folder / "status").exists():
            time.sleep(0.2)
    else:
        status = 1
        try:
            command = [
                sys.executable,
                str(root / "tools" / "book.py"),
                str(folder / "html"),
            ]
            nowhere = dict.fromkeys(
                ("http_proxy", "https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9"
            )  # no network
            status = subprocess.run(
                command, env=os.environ | nowhere | {"PYTHONPATH": str(root)}
            ).returncode
        finally:
            (folder / "partial").write_text(str(status))
            (folder / "partial").rename(folder / "status")
    assert (folder / "status").read_text() == "0"
    return folder / "html"


class Page(HTMLParser):
    """What a page links to and loads, and the anchors it has."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors, self.images = [], [], {""}, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {
            attributes.get("id", ""),
            attributes.get("name", "") if tag == "a" else "",
        }
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if tag in ("img", "script", "iframe", "source") and "src" in attributes:
            self.loads.append(attributes["src"])
        if tag == "link" and attributes.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(attributes.get("href", ""))
        if tag == "img":
            self.images.append(attributes)


@pytest.fixture(scope="session")
def pages(site):
    skipped = {path for path in site.rglob("*.html") if "_static" in path.parts}
    return {path: Page(path) for path in site.rglob("*.html") if path not in skipped}


def leads_nowhere(pages, path, link):
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return True
    return (
        bool(parts.fragment)
        and target in pages
        and unquote(parts.fragment) not in pages[target].anchors
    )


@pytest.mark.slow
def test_every_link_leads_to_a_file_and_an_anchor(pages):
    broken = [
        f"{path.name}: {link}"
        for path, page in pages.items()
        for link in [*page.links, *page.loads]
        if not urlsplit(link).scheme and leads_nowhere(pages, path, link)
    ]
    assert broken == [] and sum(len(page.links) for page in pages.values()) > 500


def test_a_link_to_nowhere_is_noticed(tmp_path):
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html">b</a>')
    pages = {tmp_path / "a.html": Page(tmp_path / "a.html")}
    links = ("b.html", "#there", "#here", "a.html")
    assert [leads_nowhere(pages, tmp_path / "a.html", link) for link in links] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert [
        load
        for page in pages.values()
        for load in page.loads
        if urlsplit(load).scheme not in ("", "data")
    ] == []
    elsewhere = re.compile(r"(?:@import|url\()[\s\"'(]*https?:")
    styles = [
        style
        for style in site.rglob("*.css")
        if elsewhere.search(style.read_text("utf-8"))
    ]
    assert styles == []


@pytest.mark.slow
def test_the_book_has_every_notebook_exercise_card_and_figure_and_no_solution(root, site):
    for pattern in (
        "notebooks/[0-9]*.ipynb",
        "notebooks/exercises/*.ipynb",
        "docs/data/*.md",
    ):
        pages = [
            (site / path.relative_to(root)).with_suffix(".html")
            for path in root.glob(pattern)
        ]
        assert len(pages) >= 5 and all(page.is_file() for page in pages)
    names = {path.name for path in root.glob("figures/*.png")}
    assert names and names <= {
        image["src"].rsplit("/")[-1]
        for image in Page(site / "docs" / "gallery.html").images
    }
    assert (
        not any("solution" in path.name for path in site.rglob("*"))
        and (site / "docs" / "teaching.html").is_file()
    )
    front = (site / "index.html").read_text("utf-8")
    lessons = [
        nbformat.read(path, as_version=4) for path in root.glob("notebooks/[0-9]*.ipynb")
    ]
    titles = [
        lesson.cells[0].source.splitlines()[0].removeprefix("# ") for lesson in lessons
    ]
    assert [title for title in titles if title not in front] == []


@pytest.mark.slow
def test_the_api_page_has_the_public_names(site):
    anchors = Page(site / "docs" / "api.html").anchors
    wanted = (
        "predictor.FairConformalClassifier conformal.conformal_quantile "
        "control.find_threshold fairness.disparity"
    )
    assert {f"cfhelpers.{name}" for name in wanted.split()} <= anchors
    assert not any("._checks" in anchor for anchor in anchors)


def test_the_api_page_names_every_public_module_once_and_the_classifier_first():
    modules = re.findall(r"automodule:: (\S+)", book.api())
    assert modules[0] == "cfhelpers.predictor"
    assert len(modules) == len(set(modules))
    assert {"cfhelpers.scores", "cfhelpers.datasets.credit"} <= set(modules)
    for name in modules:
        assert importlib.util.find_spec(name), name


@pytest.mark.slow
def test_pictures_have_alternative_text(pages):
    bare = [
        image["src"]
        for page in pages.values()
        for image in page.images
        if len(image.get("alt", "").split()) < 3
    ]
    assert bare == []


LONG = "notebooks/04_conformal_fairness.html"
READ = [
    "index.html",
    LONG,
    "notebooks/02_fairness_as_coverage.html",
    "docs/gallery.html",
    "docs/api.html",
]
READ += ["notebooks/exercises/ex05_a_guarantee_that_holds.html"]


@pytest.mark.slow
def test_it_reads_well_without_a_network_on_a_phone_and_on_a_desk(site):
    with browser.chromium() as chromium:
        for name in READ:
            page, refused, errors = browser.page_without_network(
                chromium, "file:", width=390
            )
            page.goto((site / name).as_uri())
            formulas = page.locator(".math").count()
            page.wait_for_function(
                "n => document.querySelectorAll('mjx-container').length >= n",
                arg=formulas,
            )
            assert page.locator("mjx-merror").count() == 0 and (
                formulas > 20 or name not in READ[1:3]
            )
            assert page.evaluate(
                "document.fonts.ready.then(f => [...f].every(x => x.status !== 'error'))"
            )
            pictures = (
                "[...document.images]"
                ".every(image => image.complete && image.naturalWidth > 0)"
            )
            assert page.evaluate(pictures), f"{name}: a picture is missing"
            for width in (390, 1280):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (
                    f"{name} is wider than {width}"
                )
            assert (refused, errors) == ([], []), name
            page.close()


@pytest.mark.slow
def test_the_search_box_finds_a_word_without_a_network(site):
    with browser.chromium() as chromium:
        page, refused, _ = browser.page_without_network(chromium, "file:")
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("Control+k")
        page.keyboard.type("Clopper")
        page.keyboard.press("Enter")
        page.wait_for_selector("#search-results li a")
        found = [
            link.get_attribute("href")
            for link in page.locator("#search-results li a").all()
        ]
        assert any("05_a_guarantee" in link for link in found) and refused == []


# The pages before Sphinx sees them.


@pytest.fixture
def small(tmp_path):
    """A repository with little in it."""
    for name in ("notebooks", "docs/data", "figures", "results"):
        (tmp_path / "root" / name).mkdir(parents=True)
    root = tmp_path / "root"
    (root / "pyproject.toml").write_text('[tool.cfhelpers]\nrepository = ""\n')
    links = (
        "[one](notebooks/00_a.ipynb#The-End) [gone](LICENSE) "
        "[far](https://a.b) [cite](#cite)"
    )
    (root / "README.md").write_text(f"# Title\n\n{links}\n")
    (root / "docs" / "teaching.md").write_text("# Teaching")
    figure = new_output(
        "display_data",
        data={"image/png": "AA"},
        metadata={"image/png": {"alt": "a line that falls"}},
    )
    slider = new_output(
        "display_data", data={tool.WIDGET_VIEW: {}, "text/plain": "interactive(...)"}
    )
    cells = [
        new_markdown_cell("# 00 · A"),
        new_code_cell('plots.save(fig, "line")', outputs=[figure, slider]),
        new_markdown_cell("*A line [falls](01_b.ipynb).*"),
    ]
    nbformat.write(
        new_notebook(cells=cells, metadata={"widgets": {}}),
        root / "notebooks" / "00_a.ipynb",
    )
    (root / "figures" / "line.png").touch()
    catalogue = (
        "id,kind,file,notebook,runs,shows\nFig 1,figure,line,00_a,,a line: it falls\n"
    )
    (root / "results" / "catalogue.csv").write_text(catalogue)
    return root


def test_a_staged_notebook_has_no_widgets_and_its_alt_text(small, tmp_path):
    book.stage(tmp_path / "source", small)
    notebook = nbformat.read(
        tmp_path / "source" / "notebooks" / "00_a.ipynb", as_version=4
    )
    assert "widgets" not in notebook.metadata and len(notebook.cells[1].outputs) == 1
    assert notebook.cells[1].metadata["mystnb"] == {"image": {"alt": "a line that falls"}}
    assert notebook.cells[2].source == "*A line falls.*"  # there is no 01
    shown = (tmp_path / "source" / "docs" / "gallery.md").read_text()
    assert (
        "## Fig 1 · a line\n\nA line: it falls. A line falls.\n\n"
        "![a line: it falls](../figures/line.png)" in shown
    )
    assert "Drawn by [00 · A](../notebooks/00_a.ipynb)" in shown


def test_links_out_of_the_book_become_text_or_lead_to_the_repository(small, tmp_path):
    book.stage(tmp_path / "source", small)
    first = (tmp_path / "source" / "index.md").read_text().splitlines()[2]
    assert (
        first
        == "[one](notebooks/00_a.ipynb#the-end) gone [far](https://a.b) [cite](#cite)"
    )
    (small / "pyproject.toml").write_text(
        '[tool.cfhelpers]\nrepository = "https://github.com/owner/name"\n'
    )
    (small / "README.md").write_text(
        "# Title\n\n[![Binder](https://c.d/e.svg)](https://f.g/h) [gone](LICENSE)\n"
    )
    book.stage(tmp_path / "source", small)
    first = (tmp_path / "source" / "index.md").read_text().splitlines()[2]
    assert (
        first == "[Binder](https://f.g/h) "
        "[gone](https://github.com/owner/name/blob/HEAD/LICENSE)"
    )


def test_constraints_pin_what_the_book_the_course_and_the_browser_need(root):
    extras = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    pins = re.findall(
        r"^([\w.-]+)==(\S+)$", (root / "constraints.txt").read_text("utf-8"), re.MULTILINE
    )
    pinned = {canonicalize_name(name): version for name, version in pins}
    for requirement in map(
        Requirement, [*extras["book"], *extras["course"], *extras["browser"]]
    ):
        assert requirement.specifier.contains(
            pinned[canonicalize_name(requirement.name)]
        ), requirement
    assert "book,course,browser]" in (root / "Makefile").read_text("utf-8")
