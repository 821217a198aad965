"""The decks: built from the notebooks, read without a network, told in their minutes."""

import re

import browser
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

import slides

MINUTES = {"lecture": 90, "talk": 20}


@pytest.fixture(scope="module")
def decks(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("slides")
    slides.build(folder, root)
    return folder


@pytest.mark.parametrize("name", MINUTES)
def test_the_minutes_add_up_and_every_frame_is_short(root, name):
    frames = slides.read_deck(root / "slides" / f"{name}.md")
    assert sum(frame.minutes for frame in frames) == MINUTES[name]
    for frame in frames:
        words = re.findall(r"\w+", slides.COMMAND.sub("", frame.text))
        assert len(words) <= 50, frame.text
        assert len(frame.notes.split()) >= 5, frame.text


def test_the_lecture_has_about_25_frames(root):
    frames = slides.read_deck(root / "slides" / "lecture.md")
    assert 22 <= len(frames) <= 28


@pytest.mark.slow
def test_a_deck_is_one_file_with_every_frame_inside_its_page(root, decks):
    with browser.chromium() as chromium:
        for name in MINUTES:
            page, refused, errors = browser.page_without_network(
                chromium, "file:", width=1280, height=720
            )
            page.goto((decks / f"{name}.html").as_uri())
            page.wait_for_function("Reveal.isReady()")
            count = page.evaluate("Reveal.getTotalSlides()")
            assert count == len(slides.read_deck(root / "slides" / f"{name}.md"))
            for number in range(count):
                page.evaluate(f"Reveal.slide({number})")
                low, wide = page.evaluate(
                    """(() => {
                    const slide = Reveal.getCurrentSlide();
                    const parts = [...slide.querySelectorAll(":scope > :not(aside)")];
                    const boxes = parts.map(part => part.getBoundingClientRect());
                    const wide = parts.map(part => part.scrollWidth - part.clientWidth);
                    return [Math.max(...boxes.map(b => Math.max(b.bottom,
                        b.right - 560))),
                        Math.max(...wide)];
                    })()"""
                )
                assert low <= 722, f"{name}, frame {number + 1} leaves the page: {low}"
                assert wide <= 2, f"{name}, frame {number + 1} is too wide: {wide}"
            assert (refused, errors) == ([], [])
            page.close()


@pytest.mark.slow
def test_the_pdf_has_a_page_for_each_frame(root, decks):
    if slides.browser() is None:
        pytest.skip("no Chromium here, so no PDF")
    pytest.importorskip("playwright")
    for name in MINUTES:
        pdf = (decks / f"{name}.pdf").read_bytes()
        pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
        assert pages == len(slides.read_deck(root / "slides" / f"{name}.md"))


@pytest.mark.slow
def test_no_picture_is_lost_between_two_pages_of_the_pdf(root, decks):
    """Print styles of the framework are stronger than ours where they may be."""
    with browser.chromium() as chromium:
        for name in MINUTES:
            sheet = chromium.new_page()
            sheet.goto(f"{(decks / f'{name}.html').as_uri()}?print-pdf")
            sheet.wait_for_selector(".pdf-page", timeout=180_000)
            sheet.emulate_media(media="print")
            room = sheet.evaluate(
                """[...document.querySelectorAll(".pdf-page")].map(page => {
                const low = page.getBoundingClientRect().bottom;
                const pictures = [...page.querySelectorAll("img")];
                return pictures.map(picture =>
                    low - picture.getBoundingClientRect().bottom);
                })"""
            )
            frames = slides.read_deck(root / "slides" / f"{name}.md")
            for number, (frame, pictures) in enumerate(zip(frames, room, strict=True), 1):
                assert len(pictures) == len(re.findall("{{(?:figure|draw)", frame.text))
                assert all(left >= 0 for left in pictures), f"{name}, frame {number}"
            sheet.close()


def test_without_a_browser_the_reason_is_said(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(slides, "browser", lambda: None)
    pytest.importorskip("playwright")
    assert slides.print_pdfs([tmp_path / "deck.html"]) == []
    assert capsys.readouterr().out.startswith("no PDF: none of chromium")


def test_what_a_frame_names_is_taken_or_missed(tmp_path):
    (tmp_path / "notebooks").mkdir()
    figure = new_output("display_data", data={"image/png": "AA=="})
    figure.metadata["image/png"] = {"alt": "a <line>"}
    table = new_output("execute_result", data={"text/html": '<table class="x"></table>'})
    cells = [
        new_code_cell("def draw():\n    pass"),
        new_code_cell("draw()", outputs=[figure]),
        new_code_cell("show()", outputs=[table]),
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "notebooks" / "07_a.ipynb")
    filled = slides.fill("{{figure 07 gone | draw}} {{output 07 show}}", tmp_path)
    assert 'alt="a &lt;line&gt;"' in filled and "base64,AA==" in filled
    assert "<table></table>" in filled
    with pytest.raises(LookupError, match="no cell of 07_a"):
        slides.fill("{{code 07 gone}}", tmp_path)
    with pytest.raises(LookupError, match="show no figure"):
        slides.fill("{{figure 07 show}}", tmp_path)
    with pytest.raises(LookupError, match="no notebook 08"):
        slides.fill("{{code 08 gone}}", tmp_path)


def test_a_frame_without_minutes_is_refused(tmp_path):
    (tmp_path / "deck.md").write_text("# One\n\nNotes (1 min): a\n\n---\n\n## Two\n")
    with pytest.raises(ValueError, match="frame 2 needs"):
        slides.read_deck(tmp_path / "deck.md")


def test_make_slides_calls_the_tool_and_reveal_has_its_licence(root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^slides: .*\n\t\$\(BIN\)/python tools/slides.py$", makefile, re.M)
    licence = (root / "slides" / "reveal" / "LICENSE").read_text(encoding="utf-8")
    assert "Permission is hereby granted" in licence
