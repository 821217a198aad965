"""The gallery: every figure of the catalogue with its caption, the notebook that draws it, and where its data is from.

`python tools/gallery.py` writes figures/README.md, which the book has too, and the results' table of README.md.
"""

import os
import re
from pathlib import Path

import nbformat
import pandas as pd
from runs import ROOT, files, read_catalogue

import notebooks as tool
from cfhelpers.control import GUARANTEES
from cfhelpers.paths import PROFILES, atomic_write
from cfhelpers.study import experiments
from cfhelpers.study.scorecard import STATUSES
from cfhelpers.study.tables import DATASETS

HEAD = """# Gallery

Every figure that the notebooks draw, in the order of the paper; each links to its PDF. `make` draws those of the
quick profile, `make paper` those of the full one. Made by `python tools/gallery.py` from [the catalogue](%s).
"""
MARKS = ("<!-- results: made by tools/gallery.py -->", "<!-- end of results -->")
C = 0.1
SAVE = re.compile(r"""plots\.save\([^,]+,\s*["']([\w-]+)["']""")
RECORDS = {
    "the paper's": "real records, the paper's",
    "other": "real records, not the paper's",
}
RECORDS["simulated"] = "simulated records"


def gallery(root: Path, folder: Path) -> str:
    """The page, with links as they lead from `folder`."""

    def link(file: str) -> str:
        return Path(os.path.relpath(root / file, folder)).as_posix()

    notebooks = {
        path.stem: nbformat.read(path, as_version=4)
        for path in (root / "notebooks").glob("[0-9]*.ipynb")
    }
    told, text = captions(notebooks.values()), HEAD % link("results/catalogue.csv")
    for row in (row for row in read_catalogue(root) if row["kind"] == "figure"):
        shows = row["shows"][0].upper() + row["shows"][1:] + "."
        title = row["shows"].split(":")[0]
        title = (
            title[0].upper() + title[1:]
            if row["id"] == "ours"
            else f"{row['id']} · {title}"
        )
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
            for name in (
                SAVE.findall(cell.source) if below.cell_type == "markdown" else []
            ):
                told[name] = tool.caption(below.source)
    return told


def records(row: dict[str, str], profile: str, root: Path) -> list[str]:
    """The profile, and whose records a figure shows, where it shows the rows of a run."""
    paths = [
        root / "results" / "runs" / profile / f"{run}.parquet"
        for run in row["runs"].split()
    ]
    found = {
        data
        for path in paths
        if path.exists()
        for data in pd.read_parquet(path, columns=["data"])["data"]
    }
    return [f"{profile} profile"] * bool(paths) + sorted(RECORDS[data] for data in found)


def results(rows: pd.DataFrame, card: pd.DataFrame) -> str:
    """The results' table of the README, from tidy rows of real records, and the count of the scorecard's words."""
    asked = (
        (rows["metric"] == "demographic_parity")
        & (rows["c"] == C)
        & (rows["score"] == "aps")
        & rows["classwise"]
    )
    table = experiments.summary(rows[asked & (rows["data"] != experiments.SIMULATED)])
    table = table.sort_values("splits", ascending=False, kind="stable").set_index(
        ["dataset", "attribute", "guarantee"]
    )
    lines = [
        [
            "real records",
            "base",
            f"the paper's rule, c = {C:g}",
            "beyond c",
            "with the guarantee",
            "beyond c",
        ]
    ]
    lines.append(["---"] * 6)
    for run in experiments.RUNS:
        if (*run, GUARANTEES[0]) not in table.index:
            continue
        found = [
            table.loc[[(*run, guarantee)]].iloc[0] for guarantee in GUARANTEES
        ]  # of several, the most splits
        cells = [f"{found[0]['base_disparity']:.3f}, {found[0]['base_efficiency']:.2f}"]
        for row in found:
            share = f"{row['beyond'] * row['splits']:.0f} of {row['splits']}"
            cells += [f"{row['disparity']:.3f}, {row['efficiency']:.2f}", share]
        lines.append(
            [
                f"{DATASETS[run[0]]} by {run[1]} ({found[0]['records'].removeprefix('real, ')})",
                *cells,
            ]
        )
    counts = card["status"].value_counts()
    told = ", ".join(f"{counts[word]} `{word}`" for word in STATUSES if word in counts)
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return (
        f"{text}\nOf the {len(card)} numbers in the paper's tables, ours are: {told}.\n"
    )


def with_results(readme: str, text: str) -> str:
    """The README with `text` between its two marks."""
    before, rest = readme.split(MARKS[0])
    return f"{before}{MARKS[0]}\n{text}{MARKS[1]}{rest.split(MARKS[1])[1]}"


def main() -> None:
    """Write both, each whole or not at all."""
    rows, card = experiments.load_rows(), pd.read_csv(ROOT / "results" / "scorecard.csv")
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
