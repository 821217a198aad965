"""Run the notebooks.

`run` writes an executed copy, with parameters. `refresh` renews a notebook's stored
outputs. `describe` renews nothing but the figures' alternative text, which is the caption
below each of them.
"""

import argparse
import ast
import base64
import io
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cfhelpers.paths import atomic_write

LARGE = 200_000  # bytes of a picture, from which it gets a palette
COLOURS = 64

KERNELSPEC = {
    "display_name": "Python 3 (ipykernel)",
    "language": "python",
    "name": "python3",
}
# No word on sockets without encryption, nor on the interrupt before it ends.
QUIET = ["--IPKernelApp.log_level=50"]
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
# "jupyter" says that JupyterLab shows a cell folded.
KEPT_METADATA = ("tags", "nbgrader", "jupyter")
TEX = {
    r"\hat q": "q̂",
    r"\tilde y": "ỹ",
    r"\alpha": "α",
    r"\delta": "δ",
    r"\lambda": "λ",
    r"\Lambda": "Λ",
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
        if "parameters" not in cell.metadata.get("tags", []):
            continue
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.Assign):
                targets = node.targets
            else:
                targets = [getattr(node, "target", None)]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def title(notebook) -> str:
    """The first line of a notebook, such as "04 · Control the gap"."""
    return notebook.cells[0].source.splitlines()[0].removeprefix("# ")


def check_parameters(notebook, given, name: str = "notebook") -> None:
    """Raise a ValueError for parameters that the notebook does not have.

    papermill only warns.
    """
    known = parameter_names(notebook)
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ValueError(
            f"parameters: {name} has no {', '.join(unknown)}; "
            f"it has {', '.join(known) or 'none'}"
        )


def run(
    source: Path, target: Path, parameters: dict, writes: Sequence[Path] = ()
) -> None:
    """Run `source` by papermill.

    `target` appears last, when every cell has succeeded and `writes` are written anew.
    """
    import nbformat
    import papermill

    notebook = nbformat.read(source, as_version=4)
    check_parameters(notebook, parameters, source.name)
    if "widgets" in parameter_names(notebook):
        # Nobody moves them, and their messages can keep a kernel waiting.
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
        missing = [str(path) for path in writes if _version(path) in (None, before[path])]
        if missing:
            raise ValueError(
                f"writes: {source.name} has not written {', '.join(missing)}"
            )


def _version(path: Path) -> tuple[int, int] | None:
    """Differs whenever a file has been replaced; None if there is none."""
    if not path.exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def refresh(path: Path) -> None:
    """Execute a notebook and store its outputs in place.

    Nothing is stored that differs from run to run by itself.
    """
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
        "coalesce_streams": True,  # what is printed in pieces is one text
    }
    resources = {"metadata": {"path": path.parent}}
    NotebookClient(notebook, resources=resources, **options).execute()
    notebook.metadata["language_info"] = nbformat.from_dict(
        {"file_extension": ".py", "name": "python"}
    )
    notebook = _without_progress_bars(notebook)
    notebook = _stable_widgets(notebook)
    _write(describe_figures(lighten_figures(notebook)), path)


def describe(path: Path) -> None:
    """Give a notebook's stored figures their alternative text, without running it."""
    import nbformat

    _write(describe_figures(nbformat.read(path, as_version=4)), path)


def _write(notebook, path: Path) -> None:
    """Store a valid notebook in one step."""
    import nbformat

    nbformat.validate(notebook)
    with atomic_write(path) as partial:
        nbformat.write(notebook, partial)


def describe_figures(notebook):
    """Make each figure's caption, the first paragraph below it, its alternative text.

    It is put where nbconvert and the book look for it.
    """
    for cell, below in zip(notebook.cells, notebook.cells[1:], strict=False):
        for output in figures(cell):
            if below.cell_type == "markdown":
                output.metadata["image/png"] = {
                    **output.metadata.get("image/png", {}),
                    "alt": caption(below.source),
                }
    return notebook


def lighten_figures(notebook):
    """Give large pictures a palette: bars and letters have few colours."""
    from PIL import Image

    for cell in notebook.cells:
        for output in figures(cell):
            content = base64.b64decode(output.data["image/png"])
            if len(content) < LARGE:
                continue
            picture = Image.open(io.BytesIO(content)).convert("RGB")
            few = picture.quantize(COLOURS, dither=Image.Dither.NONE)
            lighter = io.BytesIO()
            few.save(lighter, "PNG", optimize=True)
            text = base64.b64encode(lighter.getvalue()).decode()
            output.data["image/png"] = text
    return notebook


def figures(cell) -> list:
    """The outputs of a cell that are pictures."""
    return [
        output
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def caption(source: str) -> str:
    """The first paragraph of a text cell as plain text.

    A last sentence that announces the next cell is left out.
    """
    text = " ".join(source.strip().split("\n\n")[0].split())
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links
    text = re.sub(r"\$([^$]*)\$", lambda formula: _plain_formula(formula[1]), text)
    text = re.sub(r"(\*\*?)(?=\S)(.*?)\1", r"\2", text).replace("`", "")
    return re.sub(r"(?<=[.!?]) [^.!?]*:$", "", text)


def _plain_formula(tex: str) -> str:
    """A formula in letters."""
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
    """Whether an output's data are a bar of tqdm's."""
    if WIDGET_VIEW not in data:
        return False
    return re.search(r"\d+(%\||it \[)", data.get("text/plain", "")) is not None


def _stable_widgets(notebook):
    """Keep the state of the widgets that are shown, under ids that count from 1."""
    import nbformat

    state = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    wanted = _shown_widgets(notebook, state)
    if not wanted:
        notebook.metadata.pop("widgets", None)
        return notebook
    notebook.metadata.widgets[WIDGET_STATE]["state"] = {key: state[key] for key in wanted}
    text = json.dumps(notebook)
    for number, key in enumerate(wanted, start=1):
        text = text.replace(key, f"{number:032x}")
    return nbformat.from_dict(json.loads(text))


def _shown_widgets(notebook, state) -> list[str]:
    """Ids of the widgets that are shown, and of those that they refer to, in order."""
    text = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    shown: set[str] = set()
    while True:
        found = {key for key in state if key in text} - shown
        if not found:
            return [key for key in state if key in shown]
        shown |= found
        text = json.dumps([state[key] for key in found])


def main(arguments=None) -> None:
    """Command line.

    `run SOURCE TARGET [name=value …] [--writes FILE …]`, `refresh NOTEBOOK …`, or
    `describe NOTEBOOK …`. Values are read as Python literals.
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
        parameters = dict(map(_parameter, options.parameters))
        _timed_run(options.source, options.target, parameters, options.writes)
        return
    for path in options.paths:
        _tell(f"{options.command} {path}")
        if options.command == "refresh":
            refresh(path)
        else:
            describe(path)


def _timed_run(
    source: Path, target: Path, parameters: dict, writes: Sequence[Path]
) -> None:
    """`run`, with a word on how long it took."""
    begin = time.perf_counter()
    outcome = "failed after"
    _tell(f"{target.stem} begins")
    try:
        run(source, target, parameters, writes)
        outcome = "took"
    finally:
        seconds = time.perf_counter() - begin
        _tell(f"{target.stem} {outcome} {seconds:.0f} s")


def _tell(text: str) -> None:
    """A line for whoever watches."""
    print(text, file=sys.stderr, flush=True)


def _parameter(text: str) -> tuple[str, object]:
    """Name and value of `name=value`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"parameters: found {text!r}; wanted name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


if __name__ == "__main__":
    main()
