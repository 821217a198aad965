"""Badges that open notebooks 00 to 05 on Binder and Colab.

The repository's public address is one setting, `repository` under [tool.cfhelpers] in
pyproject.toml. Run this after changing it: badges appear in the README and the notebooks,
with a cell that fetches the project on Colab, and the package's addresses in
pyproject.toml and CITATION.cff; an empty address removes them.
"""

import os
import re
import tomllib
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
BRANCH = "main"
WITHOUT_TORCH = "0[0-5]_*.ipynb"
BINDER = "[![Binder](https://mybinder.org/badge_logo.svg)]"
COLAB = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
TAG = "colab"
SETUP = """import sys

if "google.colab" in sys.modules:  # Colab has the libraries; it lacks only this project
    !git clone --quiet --depth 1 {address} project
    sys.path.insert(0, "project")"""


def repository(root: Path = ROOT) -> str:
    """The repository's public address, or ''."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    address = settings["tool"]["cfhelpers"]["repository"]
    if address and not re.fullmatch(r"https://[\w.-]+/[\w./-]*\w", address):
        raise ValueError(
            f"repository: found {address!r}; "
            "wanted an address such as https://github.com/owner/name, or ''"
        )
    return address


def badges(address: str, file: str) -> str:
    """A line of badges for one file of the repository; '' without an address.

    Colab reads from GitHub only.
    """
    if not address:
        return ""
    name = address.removeprefix("https://github.com/")
    is_on_github = name != address
    if is_on_github:
        where = f"gh/{name}"
    else:
        where = f"git/{quote(address, safe='')}"
    line = f"{BINDER}(https://mybinder.org/v2/{where}/{BRANCH}?urlpath=lab/tree/{file})"
    if is_on_github:
        colab = f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{file}"
        line += f" {COLAB}({colab})"
    return line


def with_badges(text: str, line: str) -> str:
    """A text with this line of badges below its title, instead of the one it may have."""
    title, _, rest = text.partition("\n")
    rest = re.sub(rf"\A\n{re.escape(BINDER)}.*\n", "", rest)
    if line:
        return f"{title}\n\n{line}\n{rest}"
    return f"{title}\n{rest}"


def with_urls(pyproject: str, address: str) -> str:
    """The text of pyproject.toml with the package's addresses, or without any."""
    kept = re.sub(r"\[project\.urls\]\n(.+\n)*\n", "", pyproject)
    if not address:
        return kept
    urls = {"Repository": address}
    if address.startswith("https://github.com/"):
        urls["Issues"] = f"{address}/issues"
        urls["Changelog"] = f"{address}/blob/{BRANCH}/CHANGELOG.md"
    lines = [f'{name} = "{url}"\n' for name, url in urls.items()]
    section = f"[project.urls]\n{''.join(lines)}\n"
    return kept.replace("[project.scripts]\n", section + "[project.scripts]\n")


def with_repository_code(citation: str, address: str) -> str:
    """The text of CITATION.cff with the repository's address, or without one."""
    kept = re.sub(r"^repository-code: .*\n", "", citation, flags=re.MULTILINE)
    if not address:
        return kept
    line = f"repository-code: {address}\n"
    return re.sub(r"^license: .*\n", rf"\g<0>{line}", kept, flags=re.MULTILINE)


def with_setup(notebook, address: str):
    """A notebook with a cell that fetches the project on Colab, after its parameters.

    Without an address it has none.
    """
    from nbformat.v4 import new_code_cell

    cells = [cell for cell in notebook.cells if TAG not in cell.metadata.get("tags", [])]
    if address:
        is_parameters = ["parameters" in cell.metadata.get("tags", []) for cell in cells]
        setup = new_code_cell(
            SETUP.format(address=address), metadata={"tags": [TAG]}, id="on-colab"
        )
        cells.insert(is_parameters.index(True) + 1, setup)
    code = [cell for cell in cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    notebook.cells = cells
    return notebook


def update(root: Path = ROOT) -> None:
    """Write or remove badges and the package's addresses, as the setting says."""
    import nbformat

    address = repository(root)
    notebooks = sorted((root / "notebooks").glob(WITHOUT_TORCH))
    readme = root / "README.md"
    line = badges(address, f"notebooks/{notebooks[0].name}")
    _replace(readme, with_badges(readme.read_text(encoding="utf-8"), line))
    for name, change in (
        ("pyproject.toml", with_urls),
        ("CITATION.cff", with_repository_code),
    ):
        text = (root / name).read_text(encoding="utf-8")
        _replace(root / name, change(text, address))
    for path in notebooks:
        notebook = with_setup(nbformat.read(path, as_version=4), address)
        first = notebook.cells[0]
        line = badges(address, f"notebooks/{path.name}")
        first.source = with_badges(first.source, line)
        _replace(path, nbformat.writes(notebook) + "\n")


def _replace(path: Path, text: str) -> None:
    """Write a file in one step."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


if __name__ == "__main__":
    update()
