"""The catalogue: every table and figure has its files, and no file is unknown to it."""

import shutil
from collections import Counter

import gallery
import pandas as pd
import pytest
import runs

from cfhelpers.study import experiments

PAPER = [
    f"Tab {name}"
    for name in (
        "1",
        "A1",
        "2",
        "3",
        "4",
        "D1",
        "D2",
        "D3",
        "E1",
        "E2",
        "E3",
        "E4",
        "E5",
        "E6",
    )
]
PAPER += [
    f"Fig {name}" for name in ("1", "2", "3", *(f"E{number}" for number in range(1, 15)))
]
PER_PROFILE = (
    "06",
    "07",
    "09",
    "10",
    "11",
    "12",
)  # notebooks whose files `make paper` makes in folders of its own


def check_ids(root):
    """Every id of the paper once, "ours" for our own; no file twice."""
    rows = runs.read_catalogue(root)
    counts, wanted = (
        Counter(row["id"] for row in rows if row["id"] != "ours"),
        Counter(PAPER),
    )
    odd = (counts - wanted) + (wanted - counts)
    complaints = [f"{name}: {counts[name]} rows, wanted {wanted[name]}" for name in odd]
    stems = Counter(row["file"] for row in rows)
    return complaints + [
        f"{stem}: in {count} rows" for stem, count in stems.items() if count > 1
    ]


def check_names(root):
    """Files start with their id; kinds, runs, notebooks are known; all show something."""
    known = {
        f"{dataset}_{attribute}".replace("+", "_")
        for dataset, attribute in experiments.RUNS
    }
    complaints = []
    for row in runs.read_catalogue(root):
        if row["id"] != "ours" and not row["file"].startswith(
            row["id"].lower().replace(" ", "") + "_"
        ):
            complaints.append(f"{row['file']}: does not start with its id, {row['id']}")
        if (
            row["kind"] not in runs.SUFFIXES
            or {*row["runs"].split()} - known
            or not row["shows"]
        ):
            facts = [f"{name} {row[name]!r}" for name in ("kind", "runs", "shows")]
            complaints.append(f"{row['file']}: {', '.join(facts)}")
        if not (root / "notebooks" / f"{row['notebook']}.ipynb").exists():
            complaints.append(f"{row['file']}: there is no notebook {row['notebook']}")
    return complaints


def wanted_files(root):
    """Every file of the catalogue; those of the paper profile once there are any."""
    rows = runs.read_catalogue(root)
    files = [file for row in rows for file in runs.files(row)]
    later = [
        file
        for row in rows
        if row["notebook"][:2] in PER_PROFILE
        for file in runs.files(row, "paper")
    ]
    return files + (later if any((root / file).exists() for file in later) else [])


def check_missing(root):
    return [
        f"{file} is missing" for file in wanted_files(root) if not (root / file).exists()
    ]


def check_strays(root):
    """No file in figures/ or results/tables/ that the catalogue does not know.

    The README's first picture is made by a tool, held by test_first_picture.py.
    """
    found = [
        path
        for folder in runs.FOLDERS.values()
        for path in (root / folder).rglob("*")
        if path.is_file()
    ]
    names = {
        path.relative_to(root).as_posix()
        for path in found
        if not path.name.startswith(".")
    }
    names.discard("figures/readme/who_is_left_out.png")
    return [
        f"{name} is not in the catalogue"
        for name in sorted(names - {*wanted_files(root), "figures/README.md"})
    ]


CHECKS = [check_ids, check_names, check_missing, check_strays]


@pytest.mark.parametrize(
    "check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_")
)
def test_the_catalogue_is_complete(root, check):
    assert check(root) == []


def test_the_gallery_is_made_from_what_is_there(root):
    """Otherwise: python tools/gallery.py."""
    assert (root / "figures" / "README.md").read_text("utf-8") == gallery.gallery(
        root, root / "figures"
    )


def test_the_readme_has_the_results_of_the_rows_and_of_the_scorecard(root):
    """Otherwise: python tools/gallery.py."""
    card, readme = (
        pd.read_csv(root / "results" / "scorecard.csv"),
        (root / "README.md").read_text("utf-8"),
    )
    text = gallery.results(experiments.load_rows(), card)
    assert (
        readme == gallery.with_results(readme, text)
        and f"Of the {len(card)} numbers" in readme
    )
    assert gallery.with_results(readme, "other\n") != readme


# A folder that has everything, and one way to break it for every sentence above.


@pytest.fixture
def good(root, tmp_path):
    """A repository with the real catalogue, and all files of both profiles, empty."""
    (tmp_path / "results").mkdir()
    shutil.copy(root / "results" / "catalogue.csv", tmp_path / "results")
    (tmp_path / "figures" / "paper").mkdir(parents=True)
    (tmp_path / "figures" / "paper" / "fig2_credit.png").touch()
    sources = [f"notebooks/{row['notebook']}.ipynb" for row in runs.read_catalogue(root)]
    for file in [*wanted_files(tmp_path), *sources, "figures/README.md"]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    return tmp_path


def edit(old, new):
    def breaks(root):
        path = root / "results" / "catalogue.csv"
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")

    return breaks


def gone(name):
    return lambda root: (root / name).unlink()


def new(name):
    return lambda root: (root / name).touch()


BROKEN = {
    "a figure of the paper left out": (check_ids, edit("Fig E4,", "ours,")),
    "a table of the paper left out": (check_ids, edit("Tab A1,", "ours,")),
    "an id that the paper does not have": (check_ids, edit("ours,", "Fig 4,")),
    "an id twice": (check_ids, edit("ours,", "Fig 3,")),
    "a file twice": (check_ids, edit("price_of_fairness,", "fig2_credit,")),
    "a file under another id": (check_names, edit("fig2_credit,", "fig1_credit,")),
    "a kind without a folder": (check_names, edit("Fig 2,figure", "Fig 2,movie")),
    "rows that no run makes": (check_names, edit("credit_age", "credit_sex")),
    "a notebook that is not there": (
        check_names,
        edit("02_fairness_as_coverage", "02_fairness"),
    ),
    "a figure without its PDF": (check_missing, gone("figures/fig1_acs_income.pdf")),
    "a table without its LaTeX": (
        check_missing,
        gone("results/tables/tab3_four_fifths.tex"),
    ),
    "a lesson's table": (check_missing, gone("results/tables/tab2_datasets.csv")),
    "a figure of the paper profile": (
        check_missing,
        gone("figures/paper/fig2_credit.png"),
    ),
    "a figure without id": (check_strays, new("figures/fig4_unknown.png")),
    "a table without id": (check_strays, new("results/tables/tabe7_unknown.md")),
    "a figure of the paper profile without id": (
        check_strays,
        new("figures/paper/price_of_fairness.png"),
    ),
    "the first picture elsewhere": (check_strays, new("figures/who_is_left_out.png")),
    "a file of another type": (check_strays, new("figures/fig1_acs_income.svg")),
}


def test_a_full_folder_passes_every_check(good):
    assert [complaint for check in CHECKS for complaint in check(good)] == []


@pytest.mark.parametrize("check, breaks", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_folder_is_caught(good, check, breaks):
    breaks(good)
    assert check(good) != []


def test_every_check_is_shown_to_fail():
    assert {check for check, _ in BROKEN.values()} == set(CHECKS)


def test_a_folder_without_the_paper_profile_is_complete(good):
    shutil.rmtree(good / "figures" / "paper")
    shutil.rmtree(good / "results" / "tables" / "paper")
    assert check_missing(good) == [] and check_strays(good) == []
