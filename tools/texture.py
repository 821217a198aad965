"""Print the texture of the module's code beside scikit-learn's.

Per 100 statements: parallel assignments (`a, b = x, y`), conditional expressions
(`a if b else c`), comprehensions. Then line lengths and functions longer than a screen.
"""

import argparse
import ast
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

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


def main(arguments: list[str] | None = None) -> None:
    """Command line: `texture.py [--files] [folder]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "cfhelpers")
    parser.add_argument("--files", action="store_true", help="a row for every file too")
    options = parser.parse_args(arguments)
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
