"""The runs of the notebooks: with which parameters, after which others, and what each of them must write.

profiles/<profile>.yaml says what is run, results/catalogue.csv which notebook makes which figure and table; both are
checked before anything runs, and the Snakefile makes a job of each run. `python tools/runs.py quick` is what `make`
does; further options are Snakemake's.
"""

import csv
import fcntl
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import yaml

import notebooks as tool
from cfhelpers.paths import writer_mark

ROOT = Path(__file__).resolve().parents[1]
BY_DATASET, LAST = "09_fairness_by_dataset", "14_scorecard"
FOLDERS = {"figure": "figures", "table": "results/tables"}
SUFFIXES = {"figure": ("png", "pdf"), "table": ("csv", "md", "tex")}
ALSO_WRITES = {  # beside what the catalogue says
    "12_batch_gcp": [
        "results/runs/{}/batch_gcp_acs_income.parquet",
        "results/runs/{}/batch_gcp_acs_education.parquet",
    ],
    LAST: ["results/scorecard.csv"],
}
OPTIONS = ["--quiet", "rules", "host", "reason", "--cores=2", "--scheduler=greedy"]
OPTIONS += ["--keep-going", "--rerun-incomplete", "--nolock"]
NOISE = (
    "Assuming",
    "Execute",
    "Finished",
    "Provided cores",
    "Rules claiming",
    "Select jobs",
    "Using shell",
    "host:",
)


@dataclass
class Run:
    """One execution of a notebook; `needs` names the runs that come before it."""

    notebook: str
    parameters: dict
    writes: list[str]
    needs: list[str]


def plan(profile: str = "quick", root: Path = ROOT) -> dict[str, Run]:
    """Every run of a profile by its name, which is also its place below results/notebooks."""
    catalogue, runs = read_catalogue(root), {}
    for stem, parameters in read_profile(profile, root):
        made = [row for row in catalogue if row["notebook"] == stem]
        shown = sorted({rows for row in made for rows in row["runs"].split()})
        if parameters is None:  # a lesson, as it is
            runs[stem] = Run(stem, {}, [file for row in made for file in files(row)], [])
            continue
        parameters = {**parameters, "profile": profile}
        if stem == BY_DATASET:
            name = _rows(parameters)
            if name not in shown:
                raise ValueError(
                    f"profiles/{profile}.yaml: {stem} has no run {name}; it has {', '.join(shown)}"
                )
            made, shown = [row for row in made if name in row["runs"].split()], []
            name, writes = (
                f"{profile}/{stem[:2]}_{name}",
                [f"results/runs/{profile}/{name}.parquet"],
            )
        else:
            name, writes = (
                f"{profile}/{stem}",
                [file.format(profile) for file in ALSO_WRITES.get(stem, [])],
            )
        writes += [file for row in made for file in files(row, profile)]
        runs[name] = Run(
            stem,
            parameters,
            writes,
            [f"{profile}/{BY_DATASET[:2]}_{rows}" for rows in shown],
        )
    for name, run in runs.items():
        run.needs = [
            other
            for other in runs
            if other in run.needs or (run.notebook == LAST and other != name)
        ]
    return runs


def _rows(parameters: dict) -> str:
    return f"{parameters.get('dataset')}_{parameters.get('attribute')}".replace("+", "_")


def read_profile(profile: str, root: Path = ROOT) -> list[tuple[str, dict | None]]:
    """The notebooks that a profile runs and their parameters, checked; None for one that runs as it is."""
    path, stems = (
        root / "profiles" / f"{profile}.yaml",
        [file.stem for file in _sources(root)],
    )
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    others = settings.pop("others", False)
    entries = []
    for stem, given in settings.items():
        if stem not in stems:
            raise ValueError(
                f"profiles/{path.name}: there is no notebook {stem}; there are {', '.join(stems)}"
            )
        notebook = nbformat.read(root / "notebooks" / f"{stem}.ipynb", as_version=4)
        for parameters in given if isinstance(given, list) else [given or {}]:
            tool.check_parameters(
                notebook, [*parameters, "profile"], f"profiles/{path.name}: {stem}"
            )
            entries.append((stem, parameters))
    _check_data(path.name, [parameters for _, parameters in entries])
    return [(stem, None) for stem in stems if others and stem not in settings] + entries


def _sources(root: Path) -> list[Path]:
    return sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def _check_data(name: str, entries: list[dict]) -> None:
    """Local data must be where the environment says, before a long run finds out."""
    folder = os.environ.get("CFHELPERS_DATA", "")
    found = folder and Path(folder).is_dir() and any(Path(folder).iterdir())
    if not found and any(parameters.get("source") == "local" for parameters in entries):
        wanted = (
            "CFHELPERS_DATA=/path/to/data make paper; docs/data/README.md lists the files"
        )
        raise ValueError(
            f"CFHELPERS_DATA: found {folder!r}; profiles/{name} reads real data there. Wanted: {wanted}"
        )


def read_catalogue(root: Path = ROOT) -> list[dict[str, str]]:
    """The rows of results/catalogue.csv, a figure or table each."""
    with open(root / "results" / "catalogue.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def files(row: dict[str, str], profile: str = "quick") -> list[str]:
    """The files of one row of the catalogue."""
    folder = FOLDERS[row["kind"]] + ("" if profile == "quick" else f"/{profile}")
    return [f"{folder}/{row['file']}.{suffix}" for suffix in SUFFIXES[row["kind"]]]


def renew(runs: dict[str, Run], root: Path = ROOT) -> None:
    """A run whose figures, tables or rows are gone is no longer up to date."""
    for name, run in runs.items():
        if not all((root / file).exists() for file in run.writes):
            (root / "results" / "notebooks" / f"{name}.ipynb").unlink(missing_ok=True)


def clear(root: Path = ROOT) -> None:
    """Remove what processes of this machine that have been killed were writing."""
    for folder in ("artifacts", "data", "figures", "results"):
        for path in (root / folder).rglob(".*.partial*"):
            found = re.search(r"\.(\d+)\.partial", path.name)
            process = int(found[1]) if found else os.getpid()
            ours = writer_mark(process) in path.name
            if ours and not psutil.pid_exists(process):
                path.unlink(missing_ok=True)


def main(arguments: list[str]) -> None:
    """Run a profile by Snakemake, which ends this process; a second run in the same folder waits for the first."""
    from snakemake.cli import main as snakemake
    from snakemake.logging import logger

    logger.addFilter(lambda record: not record.getMessage().startswith(NOISE))
    profile, *options = arguments
    os.chdir(ROOT)
    try:
        runs = plan(profile)
    except ValueError as error:
        sys.exit(str(error))
    Path(".snakemake").mkdir(exist_ok=True)
    with open(
        ".snakemake/at_work", "w"
    ) as lock:  # held until this process ends, however it ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                "Another run is at work in this folder; waiting for it.",
                file=sys.stderr,
                flush=True,
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        clear()
        renew(runs)
        try:
            snakemake([*OPTIONS, *options, "--config", f"profile={profile}"])
        finally:
            clear()


if __name__ == "__main__":
    main(sys.argv[1:])
