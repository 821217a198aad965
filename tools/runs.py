"""The runs of the notebooks: their parameters, their order, and what each must write.

profiles/<profile>.yaml says what is run, results/catalogue.csv which notebook makes which
figure and table. Both are checked before anything runs, and the Snakefile makes a job of
each run. `python tools/runs.py quick` is what `make` does; further options are
Snakemake's.
"""

import csv
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import yaml

import notebooks as tool
from cfhelpers.paths import PROFILES, writer_mark

ROOT = Path(__file__).resolve().parents[1]
BY_DATASET = "09_fairness_by_dataset"
LAST = "14_scorecard"
# In the paper profile these store settings of models on graphs; such runs wait for them.
STORE_SETTINGS = ("07_train_base_models", "08_graph_scores")
ON_GRAPHS = ("credit", "pokec_n", "pokec_z")
FOLDERS = {"figure": "figures", "table": "results/tables"}
SUFFIXES = {"figure": ("png", "pdf"), "table": ("csv", "md", "tex")}
ALSO_WRITES = {  # beside what the catalogue says
    "12_batch_gcp": [
        "results/runs/{}/batch_gcp_acs_income.parquet",
        "results/runs/{}/batch_gcp_acs_education.parquet",
    ],
    LAST: ["results/scorecard.csv", "results/bars.csv", "results/claims.csv"],
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
    """Every run of a profile by its name, its place below results/notebooks."""
    catalogue = read_catalogue(root)
    runs = {}
    for stem, parameters in read_profile(profile, root):
        entries = [row for row in catalogue if row["notebook"] == stem]
        if parameters is None:
            runs[stem] = Run(stem, {}, _files_of(entries, "quick"), [])
        elif stem == BY_DATASET:
            name = _rows(parameters)
            given = {**parameters, "profile": profile}
            runs[_name(profile, name)] = _dataset_run(profile, name, given, entries)
        else:
            given = {**parameters, "profile": profile}
            runs[f"{profile}/{stem}"] = _run(profile, stem, given, entries)
    for name, run in runs.items():
        if run.notebook == LAST:
            run.needs = [other for other in runs if other != name]
        else:
            run.needs = [other for other in runs if other in run.needs]
    return runs


def _run(profile: str, stem: str, parameters: dict, entries: list[dict]) -> Run:
    """One run of a notebook that shows the rows of others."""
    writes = [file.format(profile) for file in ALSO_WRITES.get(stem, [])]
    needs = [_name(profile, rows) for rows in _shown(entries)]
    if stem == STORE_SETTINGS[1]:
        needs.append(f"{profile}/{STORE_SETTINGS[0]}")
    return Run(stem, parameters, writes + _files_of(entries, profile), needs)


def _dataset_run(profile: str, name: str, parameters: dict, entries: list[dict]) -> Run:
    """One run of the notebook that computes the rows of a dataset and an attribute."""
    known = _shown(entries)
    if name not in known:
        raise ValueError(
            f"profiles/{profile}.yaml: {BY_DATASET} has no run {name}; "
            f"it has {', '.join(known)}"
        )
    own = [row for row in entries if name in row["runs"].split()]
    rows_file = f"results/runs/{profile}/{name}.parquet"
    needs = []
    if parameters["dataset"] in ON_GRAPHS:
        needs = [f"{profile}/{stem}" for stem in STORE_SETTINGS]
    return Run(BY_DATASET, parameters, [rows_file, *_files_of(own, profile)], needs)


def is_awaited(runs: dict[str, Run], name: str) -> bool:
    """Whether another run than the last one comes after this one."""
    return any(name in run.needs for run in runs.values() if run.notebook != LAST)


def _name(profile: str, rows: str) -> str:
    """The name of the run that computes these rows."""
    return f"{profile}/{BY_DATASET[:2]}_{rows}"


def _rows(parameters: dict) -> str:
    """The name of the rows of a dataset and an attribute."""
    return f"{parameters.get('dataset')}_{parameters.get('attribute')}".replace("+", "_")


def _shown(entries: list[dict]) -> list[str]:
    """The names of all rows that some entries of the catalogue show."""
    names: set[str] = set()
    for row in entries:
        names.update(row["runs"].split())
    return sorted(names)


def _files_of(entries: list[dict], profile: str) -> list[str]:
    """The files of some entries of the catalogue."""
    found = []
    for row in entries:
        found += files(row, profile)
    return found


def read_profile(profile: str, root: Path = ROOT) -> list[tuple[str, dict | None]]:
    """The notebooks that a profile runs, and their parameters, checked.

    The parameters are None for a notebook that runs as it is.
    """
    folder = root / "profiles"
    profiles = [name for name in PROFILES if (folder / f"{name}.yaml").exists()]
    if profile not in profiles:
        raise ValueError(f"profile: found {profile!r}; wanted {' or '.join(profiles)}")
    path = folder / f"{profile}.yaml"
    stems = [file.stem for file in _sources(root)]
    settings = _settings_in(path)
    others = settings.pop("others", False)
    entries = []
    for stem, given in settings.items():
        if stem not in stems:
            raise ValueError(
                f"profiles/{path.name}: there is no notebook {stem}; "
                f"there are {', '.join(stems)}"
            )
        notebook = nbformat.read(root / "notebooks" / f"{stem}.ipynb", as_version=4)
        if not isinstance(given, list):
            given = [given or {}]
        for parameters in given:
            if not isinstance(parameters, dict):
                raise ValueError(
                    f"profiles/{path.name}: {stem} has {parameters!r}; wanted "
                    "parameters, such as {dataset: credit}"
                )
            tool.check_parameters(
                notebook, [*parameters, "profile"], f"profiles/{path.name}: {stem}"
            )
            entries.append((stem, parameters))
    _check_data(path.name, [parameters for _, parameters in entries])
    if not others:
        return entries
    return [(stem, None) for stem in stems if stem not in settings] + entries


class _EachOnce(yaml.SafeLoader):
    """Reads YAML, and refuses a name that stands twice: its first entry would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        names = [key.value for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"found {name} twice; wanted each once")
        return super().construct_mapping(node, deep)


def _settings_in(path: Path) -> dict:
    """What a profile says, by notebook."""
    try:
        settings = _EachOnce(path.read_text(encoding="utf-8")).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"profiles/{path.name}: cannot be read: {reason}") from None
    if not isinstance(settings, dict):
        raise ValueError(
            f"profiles/{path.name}: found {type(settings).__name__}; wanted notebooks "
            "and their parameters"
        )
    return settings


def _sources(root: Path) -> list[Path]:
    """The numbered notebooks."""
    return sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def _check_data(name: str, entries: list[dict]) -> None:
    """Local data must be where the environment says, before a long run finds out."""
    if all(parameters.get("source") != "local" for parameters in entries):
        return
    folder = os.environ.get("CFHELPERS_DATA", "")
    if folder and Path(folder).is_dir() and any(Path(folder).iterdir()):
        return
    raise ValueError(
        f"CFHELPERS_DATA: found {folder!r}; profiles/{name} reads real data there. "
        "Wanted: CFHELPERS_DATA=/path/to/data make paper; docs/data/README.md lists the "
        "files"
    )


def read_catalogue(root: Path = ROOT) -> list[dict[str, str]]:
    """The rows of results/catalogue.csv, a figure or table each."""
    with open(root / "results" / "catalogue.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def files(row: dict[str, str], profile: str = "quick") -> list[str]:
    """The files of one row of the catalogue."""
    folder = FOLDERS[row["kind"]]
    if profile != "quick":
        folder += f"/{profile}"
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
            if found is None:
                continue
            process = int(found[1])
            is_ours = writer_mark(process) in path.name
            if is_ours and not psutil.pid_exists(process):
                path.unlink(missing_ok=True)


def main(arguments: list[str]) -> None:
    """Run a profile by Snakemake, which ends this process.

    A second run in the same folder waits for the first.
    """
    from filelock import FileLock, Timeout
    from snakemake.cli import main as snakemake
    from snakemake.logging import logger

    logger.addFilter(lambda record: not record.getMessage().startswith(NOISE))
    profile, *options = arguments or [""]
    os.chdir(ROOT)
    try:
        runs = plan(profile)
    except ValueError as error:
        sys.exit(str(error))
    Path(".snakemake").mkdir(exist_ok=True)
    # The system releases the lock when this process ends, however it ends.
    lock = FileLock(".snakemake/at_work")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        print(
            "Another run is at work in this folder; waiting for it.",
            file=sys.stderr,
            flush=True,
        )
        lock.acquire()
    with lock:
        clear()
        renew(runs)
        try:
            snakemake([*OPTIONS, *options, "--config", f"profile={profile}"])
        finally:
            clear()


if __name__ == "__main__":
    main(sys.argv[1:])
