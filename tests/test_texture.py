"""The script that describes the texture of code and lessons counts what it says.

The lessons keep to their targets.
"""

import re

import nbformat
import pytest
import texture
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

PACKED = '''
def f(x):
    """A line."""
    a, b = x, 1
    (c, d), e = x, 2
    g, h = divmod(a, b)
    return [y if y else 0 for y in (a, b)]
'''


def test_statements_assignments_expressions_and_comprehensions_are_counted():
    counted = texture.Texture()
    counted.add(PACKED)
    assert counted.statements == 6  # the docstring and the function are two of them
    assert counted.parallel == 2  # what a function returns may have several names
    assert counted.conditional == 1
    assert counted.comprehensions == 1
    assert counted.per_hundred(counted.parallel) == pytest.approx(100 / 3)
    assert max(counted.lengths) == len("    return [y if y else 0 for y in (a, b)]")


def test_long_functions_are_named_and_docstrings_do_not_make_them_long():
    body = "    x = 1\n" * texture.SCREEN
    documented = '    """' + "\n\n" * texture.SCREEN + '    """\n'
    counted = texture.Texture()
    counted.add(
        f"def long(x):\n{body}\n\ndef short():\n{documented}    return 1\n", "a.py"
    )
    assert counted.long_functions == [f"a.py:long ({texture.SCREEN + 1})"]


def test_the_table_has_a_row_for_the_module_and_one_for_scikit_learn(capsys):
    texture.main(["--files"])
    printed = capsys.readouterr().out
    for name in ("cells.py", "study/tables.py", "cfhelpers ", "scikit-learn"):
        assert f"\n{name}" in printed


# The lessons. The measures are defined in the script's docstring.


def made(tmp_path, cells):
    path = tmp_path / "09_lesson.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return texture.lesson_texture([path])


def test_nothing_of_a_lesson_is_left_out(tmp_path):
    figure = new_output("display_data", data={"image/png": "AA=="})
    table = new_output("display_data", data={"text/html": "<table>", "text/plain": "1"})
    cells = [
        new_markdown_cell("# One title\n\n| a | 12 |\n<details>two words</details>"),
        new_markdown_cell("[a](https://doi.org/1) [b](https://example.org) $x$"),
        new_code_cell("# said\n\nx = [y for y in range(3)]"),
        new_code_cell("sets.slots(3, 0.1)", outputs=[figure]),
        new_code_cell("sets.aps_stairs()"),
        new_code_cell("slots = 3", outputs=[figure]),
        new_code_cell("a, b", outputs=[table, figure]),
        new_code_cell("a", outputs=[table]),
    ]
    counted = made(tmp_path, cells)
    assert counted.cells == [8]
    assert counted.words == 8  # One title a <details>two words… [a](…) [b](…) $x$
    assert counted.code_lines == [2, 1, 1, 1, 1, 1]
    assert max(counted.lengths) == len("x = [y for y in range(3)]")
    assert counted.per_hundred() == pytest.approx(100 / 7)
    assert counted.diagrams == {"slots"}
    assert counted.literature == {"https://doi.org/1"}
    assert (counted.figures, counted.tables) == (3, 1)
    assert counted.minutes() == pytest.approx(8 / 200 + 7 / 20 + 3 + 0.5)


def test_the_lessons_stand_beside_their_models(capsys):
    texture.main(["--lessons"])
    printed = capsys.readouterr().out
    for name in ("00_start_here", "the path", "all six", *texture.MODEL_LESSONS):
        assert f"\n{name}" in printed


PATH_TEXTURE = texture.lesson_texture(texture.lesson_files(texture.PATH))


@pytest.mark.parametrize("number", texture.PATH)
def test_a_lesson_on_the_path_has_at_most_45_cells(number):
    (cells,) = texture.lesson_texture(texture.lesson_files([number])).cells
    assert cells <= 45


def test_the_path_is_read_in_at_most_8000_words():
    assert PATH_TEXTURE.words <= 8000


def test_a_cell_of_code_is_short_and_its_lines_are():
    assert texture.percentile(PATH_TEXTURE.code_lines, 50) <= 5
    assert texture.percentile(PATH_TEXTURE.code_lines, 90) <= 12
    assert texture.percentile(PATH_TEXTURE.lengths, 90) <= 90


def test_loops_come_before_comprehensions():
    assert PATH_TEXTURE.per_hundred() <= 4


def test_ideas_are_drawn():
    drawn = texture.lesson_texture(texture.lesson_files()).diagrams
    assert len(drawn) >= 8, sorted(drawn)


@pytest.mark.parametrize("number", texture.LESSONS)
def test_every_lesson_links_to_the_literature(number):
    assert texture.lesson_texture(texture.lesson_files([number])).literature


NOTEBOOKS = sorted((texture.ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_minutes_at_the_top_are_those_of_reading(path):
    """In steps of five, and at most a quarter off."""
    top = nbformat.read(path, as_version=4).cells[0].source
    (said,) = re.findall(r"^(\d+) minutes · ", top, flags=re.MULTILINE)
    assert int(said) % 5 == 0
    minutes = texture.lesson_texture([path]).minutes()
    assert abs(int(said) - minutes) <= int(said) / 4, f"reading takes {minutes:.0f}"
