"""Print the texture of the module's code, or of the lessons, beside their models'.

The module, beside scikit-learn's. Per 100 statements: parallel assignments
(`a, b = x, y`), conditional expressions (`a if b else c`), comprehensions. Then line
lengths and functions longer than a screen.

The lessons (`--lessons`), beside three courses. Nothing of a notebook is left out:
cells            all cells, of every kind, folded ones and the last one too;
words            pieces of text between blanks that hold a letter, in all Markdown cells,
                 tables, formulas and folded parts included;
code lines       lines of a code cell that are not blank, comments included: the 50th and
                 the 90th percentile over all code cells;
line length      characters of a code line that is not blank: the same percentiles;
comprehensions   list, set, dict comprehensions and generator expressions per 100 code
                 lines that are not blank;
diagrams         different public functions of cfhelpers.diagrams that are called in a
                 cell below which a figure is stored;
literature       different links in Markdown cells to a host in LITERATURE;
minutes          to read it once: 200 words a minute, 20 code lines a minute, a minute
                 for each figure and half a minute for each table that is stored below a
                 cell. At its top a notebook says them in steps of five.
"""

import argparse
import ast
import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple
from urllib.parse import urlsplit

import nbformat

ROOT = Path(__file__).resolve().parents[1]
SCREEN = 60  # lines
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Texture:
    """What was counted in some files."""

    statements: int = 0
    parallel: int = 0
    conditional: int = 0
    comprehensions: int = 0
    lengths: list[int] = field(default_factory=list)
    long_functions: list[str] = field(default_factory=list)

    def add(self, text: str, name: str = "") -> None:
        """Count one file's text; `name` tells where its long functions are."""
        for line in text.splitlines():
            if line.strip():
                self.lengths.append(len(line))
        for node in ast.walk(ast.parse(text)):
            self.statements += isinstance(node, ast.stmt)
            self.parallel += is_parallel(node)
            self.conditional += isinstance(node, ast.IfExp)
            self.comprehensions += isinstance(node, COMPREHENSIONS)
            if isinstance(node, FUNCTIONS) and code_lines(node) > SCREEN:
                self.long_functions.append(f"{name}:{node.name} ({code_lines(node)})")

    def per_hundred(self, count: int) -> float:
        """A count per 100 statements."""
        return 100 * count / max(1, self.statements)

    def length(self, percent: int) -> int:
        """The line length that this percentage of the lines does not exceed."""
        if len(self.lengths) < 2:
            return sum(self.lengths)
        return round(quantiles(self.lengths, n=100, method="inclusive")[percent - 1])

    def row(self, name: str) -> str:
        """One line of the table."""
        return (
            f"{name:34}{self.statements:11}"
            f"{self.per_hundred(self.parallel):10.1f}"
            f"{self.per_hundred(self.conditional):13.1f}"
            f"{self.per_hundred(self.comprehensions):16.1f}"
            f"{self.length(50):6}{self.length(90):5}{len(self.long_functions):8}"
        )


HEADER = (
    f"{'per 100 statements':34}{'statements':>11}{'parallel':>10}{'conditional':>13}"
    f"{'comprehensions':>16}{'p50':>6}{'p90':>5}{'> ' + str(SCREEN):>8}"
)


def is_parallel(node: ast.AST) -> bool:
    """Whether a statement assigns several values to several names at once."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def texture_of(files: Iterable[Path], base: Path = ROOT) -> Texture:
    """The texture of some files taken together."""
    texture = Texture()
    for file in files:
        if file.is_relative_to(base):
            name = file.relative_to(base).as_posix()
        else:
            name = file.name
        texture.add(file.read_text(encoding="utf-8"), name)
    return texture


def models() -> list[Path]:
    """scikit-learn's modules that ours are compared with, where it is installed."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent
    return [folder / "isotonic.py", folder / "calibration.py"]


LESSONS = ("00", "01", "02", "03", "04", "05")
PATH = ("00", "01", "02", "04", "05")  # what a student reads
LITERATURE = (
    "doi.org",
    "arxiv.org",
    "openreview.net",
    "proceedings.mlr.press",
    "proceedings.neurips.cc",
    "papers.nips.cc",
    "jmlr.org",
    "jstor.org",
    "projecteuclid.org",
    "link.springer.com",
    "alrw.net",
    "iclr.cc",
    "fairmlbook.org",
)
# Cells per notebook, line length p50 and p90, comprehensions per 100 lines, diagrams per
# notebook; the first also has slides.
MODEL_LESSONS = {
    "scikit-learn-mooc": (17, 33, 65, 1, 0.2),
    "LLMs-from-scratch": (135, 37, 71, 1, 19),
    "conformal-prediction": (10, 39, 89, 2, 1),
}
LINK = re.compile(r"https?://[^\s)>\]\"']+")
WORDS_A_MINUTE = 200
CODE_LINES_A_MINUTE = 20
MINUTES_A_FIGURE = 1.0
MINUTES_A_TABLE = 0.5


class LessonTexture(NamedTuple):
    """What was counted in some notebooks; the docstring of this file says how."""

    cells: list[int]
    words: int
    code_lines: list[int]
    lengths: list[int]
    comprehensions: int
    diagrams: set[str]
    literature: set[str]
    figures: int
    tables: int

    def minutes(self) -> float:
        """How long reading takes."""
        return (
            self.words / WORDS_A_MINUTE
            + len(self.lengths) / CODE_LINES_A_MINUTE
            + self.figures * MINUTES_A_FIGURE
            + self.tables * MINUTES_A_TABLE
        )

    def per_hundred(self) -> float:
        """Comprehensions per 100 code lines."""
        return 100 * self.comprehensions / max(1, len(self.lengths))


def percentile(values: list[int], percent: int) -> float:
    """The value that this percentage of the values does not exceed."""
    if len(values) < 2:
        return sum(values)
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def is_literature(link: str) -> bool:
    """Whether a link leads to a host of LITERATURE."""
    host = urlsplit(link).netloc.lower()
    return any(host == name or host.endswith(f".{name}") for name in LITERATURE)


def called_names(tree: ast.AST) -> set[str]:
    """The names of the functions that some code calls."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            names.add(getattr(node.func, "attr", getattr(node.func, "id", "")))
    return names


def drawing_functions(folder: Path = ROOT / "cfhelpers" / "diagrams") -> set[str]:
    """The public functions of cfhelpers.diagrams."""
    names = set()
    for file in sorted(folder.glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, FUNCTIONS) and not node.name.startswith("_"):
                names.add(node.name)
    return names


def shown_kinds(cell) -> set[str]:
    """The kinds of what is stored below a cell, as image/png."""
    return {kind for output in cell.outputs for kind in output.get("data", {})}


def shows_a_figure(cell) -> bool:
    """Whether a figure is stored below a cell."""
    return any(kind.startswith("image/") for kind in shown_kinds(cell))


def shows_a_table(cell) -> bool:
    """Whether a table is stored below a cell, and no figure."""
    return "text/html" in shown_kinds(cell) and not shows_a_figure(cell)


def lesson_texture(files: Iterable[Path]) -> LessonTexture:
    """The texture of some notebooks taken together."""
    cells, code_lines, lengths = [], [], []
    diagrams, literature = set(), set()
    words = comprehensions = figures = tables = 0
    drawing = drawing_functions()
    for file in files:
        notebook = nbformat.read(file, as_version=4)
        cells.append(len(notebook.cells))
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                words += len(re.findall(r"\S*[^\W\d_]\S*", cell.source))
                literature |= set(filter(is_literature, LINK.findall(cell.source)))
            if cell.cell_type == "code":
                lines = [line for line in cell.source.splitlines() if line.strip()]
                code_lines.append(len(lines))
                lengths += map(len, lines)
                tree = ast.parse(re.sub(r"^[%!].*$", "", cell.source, flags=re.M))
                found = [isinstance(node, COMPREHENSIONS) for node in ast.walk(tree)]
                comprehensions += sum(found)
                if shows_a_figure(cell):
                    diagrams |= called_names(tree) & drawing
                figures += shows_a_figure(cell)
                tables += shows_a_table(cell)
    return LessonTexture(
        cells=cells,
        words=words,
        code_lines=code_lines,
        lengths=lengths,
        comprehensions=comprehensions,
        diagrams=diagrams,
        literature=literature,
        figures=figures,
        tables=tables,
    )


def lesson_files(numbers: Iterable[str] = LESSONS, root: Path = ROOT) -> list[Path]:
    """The notebooks with these numbers."""
    return [next((root / "notebooks").glob(f"{number}_*.ipynb")) for number in numbers]


def lesson_row(name: str, texture: LessonTexture) -> str:
    """One line of the lessons' table."""
    mean_cells = sum(texture.cells) / len(texture.cells)
    return (
        f"{name:28}{mean_cells:7.0f}{texture.words:7}"
        f"{percentile(texture.code_lines, 50):7.0f}"
        f"{percentile(texture.code_lines, 90):5.0f}"
        f"{percentile(texture.lengths, 50):8.0f}{percentile(texture.lengths, 90):5.0f}"
        f"{texture.per_hundred():15.1f}{len(texture.diagrams):9}"
        f"{len(texture.literature):11}{texture.minutes():9.0f}"
    )


def print_lessons(root: Path = ROOT) -> None:
    """The lessons' table: each, the path together, the models."""
    print(
        f"{'':28}{'cells':>7}{'words':>7}{'lines':>7}{'p90':>5}{'length':>8}{'p90':>5}"
        f"{'comprehensions':>15}{'diagrams':>9}{'literature':>11}{'minutes':>9}"
    )
    for file in lesson_files(root=root):
        print(lesson_row(file.stem, lesson_texture([file])))
    print(
        lesson_row("the path " + " ".join(PATH), lesson_texture(lesson_files(PATH, root)))
    )
    print(lesson_row("all six", lesson_texture(lesson_files(root=root))))
    for name, (cells, p50, p90, comprehensions, diagrams) in MODEL_LESSONS.items():
        blank = "–"
        print(
            f"{name:28}{cells:7}{blank:>7}{blank:>7}{blank:>5}{p50:8}{p90:5}"
            f"{comprehensions:15}{diagrams:9}{blank:>11}{blank:>9}"
        )


def main(arguments: list[str] | None = None) -> None:
    """Command line: `texture.py [--files] [folder]`, or `texture.py --lessons`."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--lessons", action="store_true", help="the notebooks 00 to 05")
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "cfhelpers")
    parser.add_argument("--files", action="store_true", help="a row for every file too")
    options = parser.parse_args(arguments)
    if options.lessons:
        print_lessons()
        return
    files = sorted(options.folder.resolve().rglob("*.py"))
    print(HEADER)
    if options.files:
        for file in files:
            name = file.relative_to(options.folder.resolve()).as_posix()
            print(texture_of([file]).row(name))
    ours = texture_of(files)
    print(ours.row(options.folder.name))
    theirs = texture_of(models())
    if theirs.statements:
        print(theirs.row("scikit-learn isotonic, calibration"))
    for name in ours.long_functions:
        print(f"longer than {SCREEN} lines: {name}")


if __name__ == "__main__":
    main()
