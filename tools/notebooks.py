"""Run the notebooks: `run` writes an executed copy, with parameters; `refresh` renews a notebook's stored outputs.

`describe` renews nothing but the figures' alternative text, which is the caption below each of them.
"""

import argparse
import ast
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cfhelpers.paths import atomic_write

KERNELSPEC = {
    "display_name": "Python 3 (ipykernel)",
    "language": "python",
    "name": "python3",
}
QUIET = [
    "--IPKernelApp.log_level=50"
]  # no word on sockets without encryption, nor on the interrupt before it ends
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
KEPT_METADATA = ("tags", "nbgrader")
TEX = {
    r"\hat q": "q̂",
    r"\tilde y": "ỹ",
    r"\alpha": "α",
    r"\delta": "δ",
    r"\lambda": "λ",
    r"\Lambda": "Λ",
}
TEX |= {
    r"\le ": "≤ ",
    r"\ge ": "≥ ",
    r"\in ": "∈ ",
    r"\infty": "∞",
    r"\pi": "π",
    r"\nu": "ν",
}


def parameter_names(notebook) -> list[str]:
    """Names that the cells tagged `parameters` assign, in order."""
    names = []
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            for node in ast.parse(cell.source).body:
                targets = (
                    node.targets
                    if isinstance(node, ast.Assign)
                    else [getattr(node, "target", None)]
                )
                names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def title(notebook) -> str:
    """The first line of a notebook, such as "04 · Control the gap"."""
    return notebook.cells[0].source.splitlines()[0].removeprefix("# ")


def check_parameters(notebook, given, name: str = "notebook") -> None:
    """Raise a ValueError for each given parameter that the notebook does not have (papermill only warns)."""
    known = parameter_names(notebook)
    if unknown := [key for key in given if key not in known]:
        raise ValueError(
            f"parameters: {name} has no {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
        )


def run(
    source: Path, target: Path, parameters: dict, writes: Sequence[Path] = ()
) -> None:
    """Run `source` by papermill; `target` appears last, when every cell has succeeded and `writes` are written anew."""
    import nbformat
    import papermill

    notebook = nbformat.read(source, as_version=4)
    check_parameters(notebook, parameters, source.name)
    if "widgets" in parameter_names(
        notebook
    ):  # nobody moves them, and their messages can keep a kernel waiting
        parameters = {"widgets": False} | parameters
    before = {path: _version(path) for path in writes}
    options = {
        "kernel_name": "python3",
        "cwd": str(source.parent),
        "extra_arguments": QUIET,
        "progress_bar": False,
    }
    with atomic_write(target) as partial:
        papermill.execute_notebook(str(source), str(partial), parameters, **options)
        if kept := [
            str(path) for path in writes if _version(path) in (None, before[path])
        ]:
            raise ValueError(f"writes: {source.name} has not written {', '.join(kept)}")


def _version(path: Path) -> tuple[int, int] | None:
    """Differs whenever a file has been replaced; None if there is none."""
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None


def refresh(path: Path) -> None:
    """Execute a notebook and store its outputs in place, without anything that differs from run to run by itself."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {key: cell.metadata[key] for key in KEPT_METADATA if cell.metadata.get(key)}
        )
    options = {
        "kernel_name": "python3",
        "extra_arguments": QUIET,
        "timeout": None,
        "record_timing": False,
    }
    options["coalesce_streams"] = True  # what is printed in pieces is one text
    NotebookClient(
        notebook, resources={"metadata": {"path": path.parent}}, **options
    ).execute()
    notebook.metadata["language_info"] = nbformat.from_dict(
        {"file_extension": ".py", "name": "python"}
    )
    _write(describe_figures(_stable_widgets(_without_progress_bars(notebook))), path)


def describe(path: Path) -> None:
    """Give a notebook's stored figures their alternative text, without running it."""
    import nbformat

    _write(describe_figures(nbformat.read(path, as_version=4)), path)


def _write(notebook, path: Path) -> None:
    import nbformat

    nbformat.validate(notebook)
    with atomic_write(path) as partial:
        nbformat.write(notebook, partial)


def describe_figures(notebook):
    """Put each figure's caption, the first paragraph below it, where nbconvert and the book look for its alt text."""
    for cell, below in zip(notebook.cells, notebook.cells[1:], strict=False):
        for output in figures(cell):
            if below.cell_type == "markdown":
                output.metadata["image/png"] = {
                    **output.metadata.get("image/png", {}),
                    "alt": caption(below.source),
                }
    return notebook


def figures(cell) -> list:
    """The outputs of a cell that are pictures."""
    return [
        output
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def caption(source: str) -> str:
    """The first paragraph of a text cell as plain text, without a last sentence that announces the next cell."""
    text = " ".join(source.strip().split("\n\n")[0].split())
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links
    text = re.sub(r"\$([^$]*)\$", lambda formula: _plain_formula(formula[1]), text)
    text = re.sub(r"(\*\*?)(?=\S)(.*?)\1", r"\2", text).replace("`", "")
    return re.sub(r"(?<=[.!?]) [^.!?]*:$", "", text)


def _plain_formula(tex: str) -> str:
    for command, sign in TEX.items():
        tex = tex.replace(command, sign)
    return re.sub(r"\\[a-z]*\s?|[{}]", "", tex)


def _without_progress_bars(notebook):
    """Drop finished progress bars: they told a reader who waited, not one who reads."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                output
                for output in cell.outputs
                if not _is_progress_bar(output.get("data", {}))
            ]
    return notebook


def _is_progress_bar(data) -> bool:
    return (
        WIDGET_VIEW in data
        and re.search(r"\d+(%\||it \[)", data.get("text/plain", "")) is not None
    )


def _stable_widgets(notebook):
    """Keep the state of the widgets that are shown, under ids that count from 1 instead of random ones."""
    import nbformat

    state = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    wanted = {key for key in state if key in shown}
    while more := {
        key
        for key in state
        if key not in wanted and key in json.dumps([state[w] for w in wanted])
    }:
        wanted |= more
    if not wanted:
        notebook.metadata.pop("widgets", None)
        return notebook
    notebook.metadata.widgets[WIDGET_STATE]["state"] = {
        key: state[key] for key in state if key in wanted
    }
    text = json.dumps(notebook)
    for number, key in enumerate((key for key in state if key in wanted), start=1):
        text = text.replace(key, f"{number:032x}")
    return nbformat.from_dict(json.loads(text))


def main(arguments=None) -> None:
    """Command line: `run SOURCE TARGET [name=value …] [--writes FILE …]`, `refresh NOTEBOOK …`, `describe NOTEBOOK …`.

    Values are read as Python literals.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("source", type=Path)
    one.add_argument("target", type=Path)
    one.add_argument("parameters", nargs="*", metavar="name=value")
    one.add_argument(
        "--writes",
        type=Path,
        nargs="*",
        default=[],
        help="files that the notebook must write",
    )
    for name in ("refresh", "describe"):
        commands.add_parser(name).add_argument("paths", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    if options.command == "run":
        begin, outcome = time.perf_counter(), "failed after"
        print(f"{options.target.stem} begins", file=sys.stderr, flush=True)
        try:
            run(
                options.source,
                options.target,
                dict(map(_parameter, options.parameters)),
                options.writes,
            )
            outcome = "took"
        finally:
            seconds = time.perf_counter() - begin
            print(
                f"{options.target.stem} {outcome} {seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    else:
        for path in options.paths:
            print(f"{options.command} {path}", file=sys.stderr, flush=True)
            (refresh if options.command == "refresh" else describe)(path)


def _parameter(text: str):
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"parameters: found {text!r}; wanted name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


if __name__ == "__main__":
    main()
