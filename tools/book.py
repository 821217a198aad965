"""Build the book, a static site: notebooks, exercises, gallery, data cards and API.

The sources are copied into one folder, with the repository's layout, and Sphinx makes the
site from it. The notebooks have their stored outputs. Nothing is executed, and nothing is
fetched, neither when the book is built nor when it is read.
"""

import argparse
import importlib.util
import itertools
import pkgutil
import re
import shutil
import sys
from pathlib import Path

import nbformat
from badges import repository
from gallery import gallery

import notebooks as tool

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(
    r"(?P<text>(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\])"
    r"\((?P<file>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)"
)
# A picture from the network, inside a link.
BADGE = re.compile(r"\[!\[([^\]]*)\]\([^)]*\)\]")
API_TITLE = """API
===

The module ``cfhelpers``, from its docstrings. Arrays in, arrays or small frozen
dataclasses out; lists, pandas objects and torch CPU tensors are accepted wherever an
array is. Sections follow the task: what one deploys comes first.
"""
# What people come for, in the order in which they do; modules that are not named follow.
API_TASKS = {
    "Serve fair prediction sets": ["cfhelpers.predictor"],
    "Audit predictions": [
        "cfhelpers.auditing.statistics",
        "cfhelpers.auditing.files",
        "cfhelpers.auditing.report",
    ],
    "Search for a threshold": ["cfhelpers.control", "cfhelpers.bounds"],
    "Measure fairness": ["cfhelpers.fairness", "cfhelpers.metrics", "cfhelpers.cells"],
    "Build prediction sets": [
        "cfhelpers.conformal",
        "cfhelpers.scores",
        "cfhelpers.groups",
    ],
    "Draw": ["cfhelpers.plots"],
}
API_OTHERS = "Everything else"
API_TASK = """
{name}
{line}
"""
API_SECTION = """
{name}
{line}

.. automodule:: {name}
   :members:
   :ignore-module-all:
   :member-order: bysource
"""


def stage(source: Path, root: Path = ROOT) -> None:
    """Copy and generate every page below `source`."""
    shutil.rmtree(source, ignore_errors=True)
    lessons = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    exercises = sorted((root / "notebooks" / "exercises").glob("*.ipynb"))
    texts = sorted((root / "docs").rglob("*.md"))
    pictures = sorted((root / "figures").rglob("*.p[nd][gf]"))
    for path in [*lessons, *exercises, *texts, *pictures]:
        copy = source / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    generated = {
        "docs/gallery.md": gallery(root, root / "docs"),
        "docs/api.rst": api(),
        "index.md": index(root, lessons, exercises),
    }
    for name, text in generated.items():
        (source / name).write_text(text, encoding="utf-8")
    for path in source.rglob("*.md"):
        text = reachable(path.read_text(encoding="utf-8"), path, source, root)
        path.write_text(text, encoding="utf-8")
    for path in source.rglob("*.ipynb"):
        notebook = still(nbformat.read(path, as_version=4), path, source, root)
        nbformat.write(notebook, path)


def still(notebook, path: Path, source: Path, root: Path):
    """A notebook for readers without a kernel.

    It has no widgets, links that lead somewhere, and figures with their alt text.
    """
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = reachable(cell.source, path, source, root)
        if cell.cell_type == "code":
            cell.outputs = [
                output
                for output in cell.outputs
                if tool.WIDGET_VIEW not in output.get("data", {})
            ]
            for output in tool.figures(cell):
                alt = output.metadata.get("image/png", {}).get("alt")
                cell.metadata["mystnb"] = {"image": {"alt": alt}} if alt else {}
    return notebook


def reachable(text: str, path: Path, source: Path, root: Path) -> str:
    """A text whose links to files that the book has are kept.

    Those to others lead to the repository, or become plain text.
    """
    address = repository(root)

    def link(match: re.Match) -> str:
        file = match["file"]
        if "://" in file or file.startswith("mailto:"):
            return match[0]
        # Jupyter's anchors keep capitals, Sphinx's do not.
        anchor = re.sub(r"[^\w\-#]", "", (match["anchor"] or "").lower())
        target = (path.parent / file).resolve()
        if not file or target.is_file():
            return f"{match['text']}({file}{anchor})"
        if not address:
            return match["text"][1:-1]
        name = target.relative_to(source.resolve()).as_posix()
        return f"{match['text']}({address}/blob/HEAD/{name})"

    return LINK.sub(link, BADGE.sub(r"[\1]", text))


def index(root: Path, lessons: list[Path], exercises: list[Path]) -> str:
    """The README as the first page, and the order of the others."""

    def page_names(paths: list[Path]) -> list[str]:
        return [path.relative_to(root).with_suffix("").as_posix() for path in paths]

    docs = root / "docs"
    cards = sorted(set((docs / "data").glob("*.md")) - {docs / "data" / "README.md"})
    guides = sorted(set(docs.glob("*.md")) - {docs / "teaching.md"})
    toctrees = {
        "Notebooks": page_names(lessons),
        "Exercises": ["docs/teaching", *page_names(exercises)],
        "Reference": [
            "docs/gallery",
            "docs/data/README",
            *page_names(cards),
            *page_names(guides),
            "docs/api",
        ],
    }
    text = (root / "README.md").read_text(encoding="utf-8")
    for caption, pages in toctrees.items():
        listed = "\n".join(pages)
        text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"
    return text


def api() -> str:
    """A page with every public module, from its docstrings, by task."""
    spec = importlib.util.find_spec("cfhelpers")
    found = pkgutil.walk_packages(spec.submodule_search_locations, "cfhelpers.")
    names = [module.name for module in found if not re.search(r"\._", module.name)]
    named = list(itertools.chain.from_iterable(API_TASKS.values()))
    others = [name for name in names if name not in named]
    text = API_TITLE
    for task, modules in (API_TASKS | {API_OTHERS: others}).items():
        text += API_TASK.format(name=task, line="-" * len(task))
        for name in modules:
            text += API_SECTION.format(name=name, line="~" * len(name))
    return text


def build(target: Path, root: Path = ROOT) -> int:
    """Make the site in `target`; a warning, such as a link to nowhere, is an error."""
    from sphinx.cmd.build import main as sphinx

    source = target.parent / "source"
    stage(source, root)
    shutil.rmtree(target, ignore_errors=True)
    options = ["-q", "-W", "--keep-going"]
    options += ["-c", str(root / "docs")]
    options += ["-d", str(target.parent / "doctrees")]
    return sphinx([*options, str(source), str(target)])


def main(arguments=None) -> int:
    """Command line: `book.py [folder]`, by default build/book/html."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "target", type=Path, nargs="?", default=ROOT / "build" / "book" / "html"
    )
    target = parser.parse_args(arguments).target
    status = build(target)
    if status == 0:
        print(f"The book: {target / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
