"""Two floors, no import cycles, and a page about them that names only what exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "cfhelpers"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED_FUNCTIONS = sorted(set(re.findall(r"`([\w./]+\.py):([\w.]+)`", PAGE)))
NAMED_PLACES = sorted(set(re.findall(r"`((?:\w+/)+[\w.]*)(?::[\w.]+)?`", PAGE)))


def module_name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def module_files(package: Path) -> dict[str, Path]:
    """Every module of a package by its full name."""
    files = sorted(package.rglob("*.py"))
    return {module_name(file, package.parent): file for file in files}


def imported(name: str, file: Path, modules: set[str]) -> set[str]:
    """The modules that a module imports: anywhere, relative ones and by name too."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parents = package.split(".")
                above = parents[: len(parents) - node.level + 1]
                origin = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                found.add(inner if inner in modules else origin)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # what import_module is given
    found.discard("cfhelpers")  # loads no module by itself, and is a word in messages
    return (found & modules) - {name}


def import_graph(package: Path) -> dict[str, set[str]]:
    files = module_files(package)
    modules = set(files)
    return {name: imported(name, file, modules) for name, file in files.items()}


def a_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; empty if there are none."""
    done = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            found = walk(other, [*path, name])
            if found:
                return found
        done.add(name)
        return []

    for name in sorted(graph):
        found = walk(name, [])
        if found:
            return found
    return []


def is_study(name: str) -> bool:
    return name.startswith("cfhelpers.study")


def upward_imports(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """(module of the method, module of the study that it imports)."""
    found = []
    for name, others in graph.items():
        if not is_study(name):
            found += [(name, other) for other in others if is_study(other)]
    return found


def test_the_method_never_imports_the_study():
    assert upward_imports(import_graph(PACKAGE)) == []


def test_no_module_imports_another_that_imports_it_back():
    assert a_cycle(import_graph(PACKAGE)) == []


@pytest.fixture
def small(tmp_path):
    """A function that writes a package of modules a, b and study.c, and its graph."""

    def graph_of(a="", b="", c=""):
        package = tmp_path / "cfhelpers"
        (package / "study").mkdir(parents=True, exist_ok=True)
        for name, text in (("a", a), ("b", b), ("study/c", c)):
            (package / f"{name}.py").write_text(text)
        for folder in (package, package / "study"):
            (folder / "__init__.py").touch()
        return import_graph(package)

    return graph_of


@pytest.mark.parametrize(
    "text",
    [
        "import cfhelpers.a",
        "from cfhelpers import a",
        "from cfhelpers.a import x",
        "from . import a",
        "from .a import x",
        "def f():\n    from cfhelpers import a",
        "def f():\n    import_module('cfhelpers.a')",
    ],
)
def test_a_cycle_is_noticed_wherever_the_import_stands(small, text):
    assert a_cycle(small(b=text)) == []
    cycle = a_cycle(small(a="from cfhelpers import b", b=text))
    assert cycle == ["cfhelpers.a", "cfhelpers.b", "cfhelpers.a"]


def test_an_import_of_the_study_is_noticed(small):
    assert upward_imports(small(c="from cfhelpers import a")) == []
    graph = small(a="def f():\n    from cfhelpers.study import c")
    assert upward_imports(graph) == [("cfhelpers.a", "cfhelpers.study.c")]


def defined(body: list[ast.stmt], name: str) -> bool:
    """Whether a function or class is defined here; "A.b" is the method b of class A."""
    first, _, rest = name.partition(".")
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == first:
            return not rest or defined(node.body, rest)
    return False


@pytest.mark.parametrize("file, name", NAMED_FUNCTIONS)
def test_every_function_that_the_page_names_exists(file, name):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert defined(tree.body, name)


@pytest.mark.parametrize("place", NAMED_PLACES)
def test_every_file_that_the_page_names_exists(place):
    assert (ROOT / place).exists()


def test_the_page_names_functions_and_every_module():
    assert len(NAMED_FUNCTIONS) > 30
    rows = set(re.findall(r"^\| `([\w./]+)` \|", PAGE, re.MULTILINE))
    files = {file.relative_to(ROOT).as_posix() for file in PACKAGE.rglob("*.py")}
    packages = {file for file in files if file.endswith(("__init__.py", "__main__.py"))}
    assert rows == files - packages


def test_a_function_that_is_gone_is_noticed():
    tree = ast.parse("class A:\n    def b(self): ...\n\ndef c(): ...")
    assert defined(tree.body, "A.b") and defined(tree.body, "c")
    assert not defined(tree.body, "b") and not defined(tree.body, "A.c")
