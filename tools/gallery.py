"""The gallery: every figure of the catalogue, with its caption and its notebook.

`python tools/gallery.py` writes figures/README.md, which the book has too, and the
results' table of README.md. Each figure says where its data are from.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import nbformat
import pandas as pd
from runs import ROOT, files, read_catalogue

import notebooks as tool
from cfhelpers.control import Guarantee
from cfhelpers.paths import PROFILES, atomic_write
from cfhelpers.study import experiments
from cfhelpers.study.names import DataKind
from cfhelpers.study.scorecard import STATUSES
from cfhelpers.study.stored_rows import told_if_former
from cfhelpers.study.tables import DATASETS

HEAD = (
    "# Gallery\n\n"
    "Every figure that the notebooks draw, in the order of the paper; "
    "each links to its PDF. `make` draws those of the\n"
    "quick profile, `make paper` those of the full one. "
    "Made by `python tools/gallery.py` from [the catalogue](%s).\n"
)
MARKS = ("<!-- results: made by tools/gallery.py -->", "<!-- end of results -->")
C = 0.1
SAVE = re.compile(r"""plots\.save\([^,]+,\s*["']([\w-]+)["']""")
RECORDS = {
    DataKind.PAPERS: "real records, the paper's",
    DataKind.OTHER: "real records, not the paper's",
    DataKind.FORMER: "real records, a former model",
    DataKind.SIMULATED: "simulated records",
}
COLUMNS = [
    "real records",
    "base",
    f"the paper's rule, c = {C:g}",
    "beyond c",
    "with the guarantee",
    "beyond c",
]


def gallery(root: Path, folder: Path) -> str:
    """The page, with links as they lead from `folder`."""
    notebooks = {}
    for path in (root / "notebooks").glob("[0-9]*.ipynb"):
        notebooks[path.stem] = nbformat.read(path, as_version=4)
    captions = figure_captions(notebooks.values())
    catalogue = link("results/catalogue.csv", root, folder)
    text = HEAD % catalogue
    for row in read_catalogue(root):
        if row["kind"] != "figure":
            continue
        told = f"{capitalised(row['shows'])}. {captions.get(row['file'], '')}".rstrip()
        text += f"\n## {figure_title(row)}\n\n{told}\n"
        for profile in reversed(PROFILES):
            text += picture(row, profile, root, folder)
        if row["notebook"] in notebooks:
            name = tool.title(notebooks[row["notebook"]])
            source = link(f"notebooks/{row['notebook']}.ipynb", root, folder)
            text += f"\nDrawn by [{name}]({source}).\n"
    return text


def link(file: str, root: Path, folder: Path) -> str:
    """A file of the repository as seen from `folder`."""
    return Path(os.path.relpath(root / file, folder)).as_posix()


def capitalised(text: str) -> str:
    """Text with a capital letter first; `str.capitalize` would make the others small."""
    return text[0].upper() + text[1:]


def figure_title(row: dict[str, str]) -> str:
    """What a figure shows, in short, after its id in the paper if it has one."""
    shows = row["shows"].split(":")[0]
    if row["id"] == "ours":
        return capitalised(shows)
    return f"{row['id']} · {shows}"


def picture(row: dict[str, str], profile: str, root: Path, folder: Path) -> str:
    """One profile's picture with its facts; empty where it was not drawn."""
    png, pdf = files(row, profile)
    if not (root / png).exists():
        return ""
    facts = [*records(row, profile, root), f"[PDF]({link(pdf, root, folder)})"]
    image = f"![{row['shows']}]({link(png, root, folder)})"
    return f"\n{image}\n\n*{' · '.join(facts)}*\n"


def figure_captions(notebooks: Iterable[nbformat.NotebookNode]) -> dict[str, str]:
    """The text below each figure that a notebook saves, by the figure's name."""
    captions = {}
    for notebook in notebooks:
        for cell, below in zip(notebook.cells, notebook.cells[1:], strict=False):
            if below.cell_type != "markdown":
                continue
            for name in SAVE.findall(cell.source):
                captions[name] = tool.caption(below.source)
    return captions


def records(row: dict[str, str], profile: str, root: Path) -> list[str]:
    """The profile, and whose records a figure shows, where it shows the rows of a run."""
    runs = row["runs"].split()
    if not runs:
        return []
    found = set()
    for run in runs:
        path = root / "results" / "runs" / profile / f"{run}.parquet"
        if path.exists():
            found |= set(told_if_former(pd.read_parquet(path))["data"])
    return [f"{profile} profile", *sorted(RECORDS[DataKind(data)] for data in found)]


def results(rows: pd.DataFrame, card: pd.DataFrame) -> str:
    """The results' table of the README, and the count of the scorecard's words.

    The table is of the tidy rows of real records: classwise APS by demographic parity.
    """
    is_shown = (
        (rows["metric"] == "demographic_parity")
        & (rows["c"] == C)
        & (rows["score"] == "aps")
        & rows["classwise"]
        & (rows["data"] != DataKind.SIMULATED)
    )
    table = experiments.summary(rows[is_shown])
    # Of several runs of a setting the one with the most splits comes first.
    table = table.sort_values("splits", ascending=False, kind="stable")
    table = table.drop_duplicates(["dataset", "attribute", "guarantee"])
    table = table.set_index(["dataset", "attribute", "guarantee"]).sort_index()
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    for dataset, attribute in experiments.RUNS:
        if (dataset, attribute, Guarantee.NONE) in table.index:
            lines.append(
                results_line(table.loc[(dataset, attribute)], dataset, attribute)
            )
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    counts = card["status"].value_counts()
    words = [f"{counts[word]} `{word}`" for word in STATUSES if word in counts]
    told = (
        f"Of the {len(card)} numbers in the paper's tables, ours are: {', '.join(words)}."
    )
    return f"{text}\n{told}\n"


def results_line(by_guarantee: pd.DataFrame, dataset: str, attribute: str) -> list[str]:
    """The cells of one line: gap and set size of the base and of both rules."""
    base = by_guarantee.loc[Guarantee.NONE]
    of_records = base["records"].replace("real, ", "")
    cells = [
        f"{DATASETS[dataset]} by {attribute} ({of_records})",
        f"{base['base_disparity']:.3f}, {base['base_efficiency']:.2f}",
    ]
    for guarantee in Guarantee:
        row = by_guarantee.loc[guarantee]
        n_beyond = row["beyond"] * row["splits"]
        cells.append(f"{row['disparity']:.3f}, {row['efficiency']:.2f}")
        cells.append(f"{n_beyond:.0f} of {row['splits']}")
    return cells


def with_results(readme: str, text: str) -> str:
    """The README with `text` between its two marks."""
    start, end = MARKS
    before, rest = readme.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n{text}{end}{after}"


def main() -> None:
    """Write both, each whole or not at all."""
    rows = experiments.load_rows()
    card = pd.read_csv(ROOT / "results" / "scorecard.csv")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {
        "figures/README.md": gallery(ROOT, ROOT / "figures"),
        "README.md": with_results(readme, results(rows, card)),
    }
    for name, text in pages.items():
        with atomic_write(ROOT / name) as partial:
            partial.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
