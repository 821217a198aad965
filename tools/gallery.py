"""The gallery: every figure of the catalogue with its caption, the notebook that draws it, and where its data is from.

`python tools/gallery.py` writes figures/README.md; the book has the same page.
"""

import os
import re
from pathlib import Path

import nbformat
import pandas as pd
from runs import ROOT, files, read_catalogue

import notebooks as tool
from cfhelpers.paths import PROFILES, atomic_write

HEAD = """# Gallery

Every figure that the notebooks draw, in the order of the paper; each links to its PDF. `make` draws those of the
quick profile, `make paper` those of the full one. Made by `python tools/gallery.py` from [the catalogue](%s).
"""
SAVE = re.compile(r"""plots\.save\([^,]+,\s*["']([\w-]+)["']""")
RECORDS = {"the paper's": "real records, the paper's", "other": "real records, not the paper's"}
RECORDS["simulated"] = "simulated records"


def gallery(root: Path, folder: Path) -> str:
    """The page, with links as they lead from `folder`."""

    def link(file: str) -> str:
        return Path(os.path.relpath(root / file, folder)).as_posix()

    notebooks = {path.stem: nbformat.read(path, as_version=4) for path in (root / "notebooks").glob("[0-9]*.ipynb")}
    told, text = captions(notebooks.values()), HEAD % link("results/catalogue.csv")
    for row in (row for row in read_catalogue(root) if row["kind"] == "figure"):
        shows = row["shows"][0].upper() + row["shows"][1:] + "."
        title = row["shows"].split(":")[0]
        title = title[0].upper() + title[1:] if row["id"] == "ours" else f"{row['id']} · {title}"
        text += f"\n## {title}\n\n{shows} {told.get(row['file'], '')}".rstrip() + "\n"
        for profile in reversed(PROFILES):
            png, pdf = files(row, profile)
            if (root / png).exists():
                facts = [*records(row, profile, root), f"[PDF]({link(pdf)})"]
                text += f"\n![{row['shows']}]({link(png)})\n\n*{' · '.join(facts)}*\n"
        if row["notebook"] in notebooks:
            source = link(f"notebooks/{row['notebook']}.ipynb")
            text += f"\nDrawn by [{tool.title(notebooks[row['notebook']])}]({source}).\n"
    return text


def captions(notebooks) -> dict[str, str]:
    """The text below each figure that a notebook saves, by the figure's name."""
    told = {}
    for notebook in notebooks:
        for cell, below in zip(notebook.cells, notebook.cells[1:], strict=False):
            for name in SAVE.findall(cell.source) if below.cell_type == "markdown" else []:
                told[name] = tool.caption(below.source)
    return told


def records(row: dict[str, str], profile: str, root: Path) -> list[str]:
    """The profile, and whose records a figure shows, where it shows the rows of a run."""
    paths = [root / "results" / "runs" / profile / f"{run}.parquet" for run in row["runs"].split()]
    found = {data for path in paths if path.exists() for data in pd.read_parquet(path, columns=["data"])["data"]}
    return [f"{profile} profile"] * bool(paths) + sorted(RECORDS[data] for data in found)


if __name__ == "__main__":
    with atomic_write(ROOT / "figures" / "README.md") as partial:
        partial.write_text(gallery(ROOT, ROOT / "figures"), encoding="utf-8")
