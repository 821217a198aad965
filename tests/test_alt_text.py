"""Every figure has its caption as alternative text, where nbconvert and the book look."""

import base64
import io
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

import notebooks as tool

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
FILES = sorted([*FOLDER.glob("[0-9][0-9]_*.ipynb"), *FOLDER.glob("solutions/*.ipynb")])
WORDS = 12  # fewer do not describe a figure


def check_figures(notebook):
    """Complaints about figures whose alternative text is missing or not their caption."""
    complaints = []
    for number, cell in enumerate(notebook.cells):
        below = (
            notebook.cells[number + 1].source if number + 1 < len(notebook.cells) else ""
        )
        for output in tool.figures(cell):
            alt = output.metadata.get("image/png", {}).get("alt", "")
            if alt != tool.caption(below):
                complaints.append(
                    f"cell {number}: alt text {alt[:40]!r}, "
                    f"caption {tool.caption(below)[:40]!r}"
                )
            elif len(alt.split()) < WORDS:
                complaints.append(
                    f"cell {number}: a caption of {len(alt.split())} words; "
                    f"wanted at least {WORDS}"
                )
    return complaints


@pytest.mark.parametrize(
    "path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_figure_has_its_caption_as_alternative_text(path):
    """If this fails, write a caption below the figure.

    Then run `python tools/notebooks.py describe notebooks/*.ipynb`.
    """
    assert check_figures(nbformat.read(path, as_version=4)) == []


def drawn(caption, cell_type=new_markdown_cell):
    figure = new_output(
        "display_data", data={"image/png": "AA", "text/plain": "<Figure>"}
    )
    return new_notebook(
        cells=[new_code_cell("draw()", outputs=[figure]), cell_type(caption)]
    )


LONG = (
    "*The gap between two groups against the threshold, "
    "for the real Credit data, at every score.*"
)


def test_the_caption_becomes_the_alternative_text(tmp_path):
    path = tmp_path / "00_a.ipynb"
    nbformat.write(drawn(LONG), path)
    assert check_figures(drawn(LONG)) != []
    tool.main(["describe", str(path)])
    described = nbformat.read(path, as_version=4)
    assert check_figures(described) == []
    assert described.cells[0].outputs[0].metadata["image/png"]["alt"] == LONG.strip("*")
    described.cells[1].source = LONG.replace("every", "each")
    assert check_figures(described) != []  # a caption that was changed afterwards


@pytest.mark.parametrize(
    "below",
    [drawn("*A gap.*"), drawn("", new_markdown_cell), drawn("x = 1", new_code_cell)],
)
def test_a_figure_without_a_caption_is_caught(below):
    assert check_figures(tool.describe_figures(below)) != []


@pytest.mark.parametrize(
    "source, plain",
    [
        ("*Gap* at $\\hat q$.\n\nMore.", "Gap at q̂."),
        (
            "**Groups.** A *bar* is `n` of $\\Lambda_M$; [05](05_a.ipynb).",
            "Groups. A bar is n of Λ_M; 05.",
        ),
        (
            "*The law\nis $\\text{Beta}(k, n+1-k)$.* A check:",
            "The law is Beta(k, n+1-k).",
        ),
        ("*Share with $s(x, \\tilde y) \\le \\lambda$.*", "Share with s(x, ỹ) ≤ λ."),
    ],
)
def test_a_caption_is_read_as_plain_text(source, plain):
    assert tool.caption(source) == plain


def test_nbconvert_reads_it():
    html = pytest.importorskip("nbconvert").HTMLExporter(template_name="classic")
    page, _ = html.from_notebook_node(tool.describe_figures(drawn(LONG)))
    assert f'alt="{LONG.strip("*")}"' in page


def test_large_pictures_get_a_palette_and_keep_their_looks():
    """Twenty colours, each of which stays what it was."""
    figure = np.full((1200, 900, 3), 255, np.uint8)
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 255, (20, 3), dtype=np.uint8)
    figure[:, ::2] = colours[rng.integers(0, 20, (1200, 450))]
    written = io.BytesIO()
    Image.fromarray(figure).save(written, "PNG")
    assert len(written.getvalue()) > tool.LARGE
    text = base64.b64encode(written.getvalue()).decode()
    output = new_output("display_data", data={"image/png": text})
    notebook = new_notebook(cells=[new_code_cell("draw()", outputs=[output])])
    (light,) = tool.figures(tool.lighten_figures(notebook).cells[0])
    content = base64.b64decode(light.data["image/png"])
    assert len(content) < len(written.getvalue())
    again = np.array(Image.open(io.BytesIO(content)).convert("RGB"), int)
    assert np.abs(again - figure).mean() < 3
