"""Run the notebooks: `run` writes an executed copy, with parameters; `refresh` renews a notebook's stored outputs."""

import argparse
import ast
import json
import os
import re
import sys
from pathlib import Path

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
QUIET = ["--IPKernelApp.log_level=40"]  # a kernel on this machine need not warn that its sockets are not encrypted
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"


def parameter_names(notebook) -> list[str]:
    """Names that the cells tagged `parameters` assign, in order."""
    names = []
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            for node in ast.parse(cell.source).body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def check_parameters(notebook, given, name: str = "notebook") -> None:
    """Raise a ValueError for each given parameter that the notebook does not have (papermill only warns)."""
    known = parameter_names(notebook)
    if unknown := [key for key in given if key not in known]:
        raise ValueError(f"parameters: {name} has no {', '.join(unknown)}; it has {', '.join(known) or 'none'}")


def run(source: Path, target: Path, parameters: dict) -> None:
    """Run `source` by papermill with `parameters`; `target` appears only when every cell has succeeded."""
    import nbformat
    import papermill

    check_parameters(nbformat.read(source, as_version=4), parameters, source.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.stem}.partial.ipynb")
    options = {"kernel_name": "python3", "cwd": str(source.parent), "extra_arguments": QUIET}
    papermill.execute_notebook(str(source), str(partial), parameters, **options)
    os.replace(partial, target)


def refresh(path: Path) -> None:
    """Execute a notebook and store its outputs in place, without anything that differs from run to run by itself."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {})
    options = {"kernel_name": "python3", "extra_arguments": QUIET, "timeout": None, "record_timing": False}
    options["coalesce_streams"] = True  # what is printed in pieces is one text
    NotebookClient(notebook, resources={"metadata": {"path": path.parent}}, **options).execute()
    notebook.metadata["language_info"] = nbformat.from_dict({"file_extension": ".py", "name": "python"})
    notebook = _stable_widgets(_without_progress_bars(notebook))
    nbformat.validate(notebook)
    partial = path.with_name(f".{path.stem}.partial.ipynb")
    nbformat.write(notebook, partial)
    os.replace(partial, path)


def _without_progress_bars(notebook):
    """Drop finished progress bars: they told a reader who waited, not one who reads."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_progress_bar(output.get("data", {}))]
    return notebook


def _is_progress_bar(data) -> bool:
    return WIDGET_VIEW in data and re.search(r"\d+(%\||it \[)", data.get("text/plain", "")) is not None


def _stable_widgets(notebook):
    """Keep the state of the widgets that are shown, under ids that count from 1 instead of random ones."""
    import nbformat

    state = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    wanted = {key for key in state if key in shown}
    while more := {key for key in state if key not in wanted and key in json.dumps([state[w] for w in wanted])}:
        wanted |= more
    if not wanted:
        notebook.metadata.pop("widgets", None)
        return notebook
    notebook.metadata.widgets[WIDGET_STATE]["state"] = {key: state[key] for key in state if key in wanted}
    text = json.dumps(notebook)
    for number, key in enumerate((key for key in state if key in wanted), start=1):
        text = text.replace(key, f"{number:032x}")
    return nbformat.from_dict(json.loads(text))


def main(arguments=None) -> None:
    """Command line: `run SOURCE TARGET [name=value …]` or `refresh NOTEBOOK …`; values are read as Python literals."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("source", type=Path)
    one.add_argument("target", type=Path)
    one.add_argument("parameters", nargs="*", metavar="name=value")
    commands.add_parser("refresh").add_argument("paths", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    if options.command == "run":
        run(options.source, options.target, dict(map(_parameter, options.parameters)))
    else:
        for path in options.paths:
            print(f"refresh {path}", file=sys.stderr, flush=True)
            refresh(path)


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
