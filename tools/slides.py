"""Build the decks in slides/ as offline HTML, and as PDF where there is a Chromium.

A deck is Markdown: frames between lines `---`, a speaker's text after `Notes (3 min):`.
Figures, outputs and code come from the executed notebooks and from the drawing functions
of cfhelpers.diagrams; slides/README.md lists the commands. What is not found is an error.
"""

import argparse
import ast
import base64
import html
import importlib
import io
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
COMMAND = re.compile(r"\{\{(figure|output|code|draw) (.+?)\}\}")
NOTES = re.compile(r"^Notes \((\d+) min\):\s*", re.MULTILINE)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STYLE = """
.reveal { font: 48px/1.3 "Helvetica Neue", Helvetica, Arial, sans-serif; color: #1a1a1a; }
body { background: #fff; }
.reveal .slides section { text-align: left; height: 100%; box-sizing: border-box; }
.reveal h1 { font-size: 1.9em; margin: 0.6em 0 0.4em; line-height: 1.1; }
.reveal h2 { font-size: 1.15em; margin: 0 0 0.5em; line-height: 1.15; color: #0b4f8a; }
.reveal p { margin: 0.35em 0; }
.reveal ul, .reveal ol { margin: 0.35em 0; padding-left: 1.1em; }
.reveal li { margin: 0.25em 0; }
.reveal .slides section img { display: block; margin: 0 auto; width: 100%;
  max-height: 600px; object-fit: contain; }
.reveal .slides section:has(> p) img { max-height: 430px; }
.reveal pre { font: 28px/1.3 monospace; background: #f4f4f4; padding: 16px;
  margin: 12px 0; white-space: pre-wrap; }
.reveal table { font-size: 38px; border-collapse: collapse; margin: 16px auto; }
.reveal th, .reveal td { padding: 4px 18px; border-bottom: 1px solid #bbb;
  text-align: right; }
.reveal em { color: #555; font-size: 0.8em; }
.reveal th { font-weight: normal; }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{reveal_css}</style><style>{style}</style></head>
<body><div class="reveal"><div class="slides">
{frames}
</div></div>
<script>{reveal_js}</script><script>{notes_js}</script>
<script>Reveal.initialize({{width: 1280, height: 720, margin: 0.04, hash: true,
controls: false, center: false, slideNumber: true, transition: "none",
pdfSeparateFragments: false, pdfMaxPagesPerSlide: 1, plugins: [RevealNotes]}});
</script></body></html>
"""


@dataclass(frozen=True)
class Frame:
    """A frame's Markdown, the speaker's text and the minutes planned for it."""

    text: str
    notes: str
    minutes: int


def read_deck(path: Path) -> list[Frame]:
    """The frames of a deck; one without notes and minutes is an error."""
    frames = []
    parts = re.split(r"^---$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for number, part in enumerate(parts, start=1):
        pieces = NOTES.split(part)
        if len(pieces) != 3:
            raise ValueError(
                f"{path.name}: frame {number} needs one line 'Notes (3 min): …'"
            )
        text, minutes, notes = pieces
        frames.append(Frame(text.strip(), notes.strip(), int(minutes)))
    return frames


def find_cells(number: str, words: str, root: Path = ROOT) -> list:
    """The code cells of a notebook whose source has one of the words, in that order."""
    paths = sorted((root / "notebooks").glob(f"{number}_*.ipynb"))
    if not paths:
        raise LookupError(f"slides: there is no notebook {number}")
    cells = nbformat.read(paths[0], as_version=4).cells
    found = []
    for word in words.split(" | "):
        for cell in cells:
            if cell.cell_type == "code" and word.strip() in cell.source:
                found.append(cell)
    if not found:
        raise LookupError(f"slides: no cell of {paths[0].name} has {words!r}")
    return found


def shown(number: str, words: str, root: Path = ROOT) -> list:
    """What the cells with one of the words show, one after the other."""
    outputs = []
    for cell in find_cells(number, words, root):
        outputs += cell.outputs
    return outputs


def picture(png: str, alt: str) -> str:
    """An image as HTML, with its data inside."""
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{png}">'


def figure(number: str, words: str, root: Path = ROOT) -> str:
    """The first figure that such cells show."""
    for item in shown(number, words, root):
        png = item.get("data", {}).get("image/png")
        if png:
            alt = item.metadata.get("image/png", {}).get("alt", f"figure of {number}")
            return picture("".join(png.split()), alt)
    raise LookupError(f"slides: the cells with {words!r} in {number} show no figure")


def output(number: str, words: str, root: Path = ROOT) -> str:
    """The first table or text that such cells show."""
    for item in shown(number, words, root):
        data = item.get("data", {})
        if "text/html" in data:
            table = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.DOTALL)
            return re.sub(r' (?:border|class|style)="[^"]*"', "", table)
        text = item.get("text") or data.get("text/plain")
        if text:
            return f"<pre>{html.escape(text)}</pre>"
    raise LookupError(f"slides: the cells with {words!r} in {number} show nothing")


def code(number: str, words: str, root: Path = ROOT) -> str:
    """The source of a cell."""
    return f"<pre>{html.escape(find_cells(number, words, root)[0].source)}</pre>"


def draw(name: str, arguments: str) -> str:
    """A picture by a drawing function of cfhelpers.diagrams, with literal arguments."""
    import matplotlib

    matplotlib.use("Agg")
    from cfhelpers import plots

    plots.use_style()
    module, function = name.split(".")
    call = ast.parse(f"f({arguments})", mode="eval").body
    values = {item.arg: ast.literal_eval(item.value) for item in call.keywords}
    drawn = getattr(importlib.import_module(f"cfhelpers.diagrams.{module}"), function)
    file = io.BytesIO()
    drawn(**values).savefig(file, format="png", dpi=150, metadata={"Software": None})
    alt = (drawn.__doc__ or name).strip().splitlines()[0]
    return picture(base64.b64encode(file.getvalue()).decode(), alt)


def fill(text: str, root: Path = ROOT) -> str:
    """A frame's Markdown with its commands replaced by what they name."""
    makers = {"figure": figure, "output": output, "code": code}

    def made(match: re.Match) -> str:
        first, _, rest = match[2].partition(" ")
        if match[1] == "draw":
            return draw(first, rest)
        return makers[match[1]](first, rest, root)

    return COMMAND.sub(made, text)


def page(frames: list[Frame], title: str, root: Path = ROOT) -> str:
    """A deck as one HTML page without links to elsewhere."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    sections = []
    clock = 0
    for frame in frames:
        body = markdown.render(fill(frame.text, root))
        when = f"minutes {clock} to {clock + frame.minutes}"
        notes = markdown.render(f"**{when}**\n\n{frame.notes}")
        sections.append(f'<section>{body}<aside class="notes">{notes}</aside></section>')
        clock += frame.minutes
    folder = root / "slides" / "reveal"
    return PAGE.format(
        title=html.escape(title),
        style=STYLE,
        frames="\n".join(sections),
        reveal_css=(folder / "reveal.css").read_text(encoding="utf-8"),
        reveal_js=(folder / "reveal.js").read_text(encoding="utf-8"),
        notes_js=(folder / "notes.js").read_text(encoding="utf-8"),
    )


def browser() -> str | None:
    """A Chromium: what CHROME names, or the first on the PATH."""
    if os.environ.get("CHROME"):
        return os.environ["CHROME"]
    for name in BROWSERS:
        if shutil.which(name):
            return shutil.which(name)
    return None


def print_pdfs(decks: list[Path]) -> list[Path]:
    """The decks as PDF, a page for each frame; none, with a reason, without a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("no PDF: playwright is not installed")
        return []
    chromium = browser()
    if chromium is None:
        print(
            f"no PDF: none of {', '.join(BROWSERS)} is on the PATH, and no CHROME is set"
        )
        return []
    written = []
    options = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=options)
        for deck in decks:
            sheet = running.new_page()
            sheet.goto(f"{deck.resolve().as_uri()}?print-pdf")
            sheet.wait_for_selector(".pdf-page", timeout=180_000)
            sheet.wait_for_function("Reveal.isReady()")
            written.append(deck.with_suffix(".pdf"))
            sheet.pdf(path=written[-1], prefer_css_page_size=True, print_background=True)
        running.close()
    return written


def build(target: Path, root: Path = ROOT) -> list[Path]:
    """Write every deck below `target`; the files written."""
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted((root / "slides").glob("*.md")):
        if path.name == "README.md":
            continue
        frames = read_deck(path)
        title = frames[0].text.splitlines()[0].lstrip("# ")
        deck = target / f"{path.stem}.html"
        deck.write_text(page(frames, title, root), encoding="utf-8")
        written.append(deck)
        minutes = sum(frame.minutes for frame in frames)
        print(f"{deck}: {len(frames)} frames, {minutes} minutes")
    return written + print_pdfs(written)


def main(arguments: list[str] | None = None) -> None:
    """Command line: `slides.py [folder]`, by default build/slides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, nargs="?", default=ROOT / "build" / "slides")
    build(parser.parse_args(arguments).target)


if __name__ == "__main__":
    sys.exit(main())
