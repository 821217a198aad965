"""The runs: checked before they begin and skipped when up to date.

Failures are told, and what was killed goes on where it stopped.
"""

import os
import random
import re
import shutil
import subprocess
import sys

import nbformat
import pandas as pd
import pytest
import runs
import yaml
from filelock import FileLock
from killing import kill_at_random_moments, seconds_of
from nbformat.v4 import new_code_cell, new_notebook

import notebooks as tool
from cfhelpers import paths
from cfhelpers.study import experiments

GRID = {
    f"{dataset}_{attribute}".replace("+", "_") for dataset, attribute in experiments.RUNS
}
SMALL = """
others: true
09_fairness_by_dataset:
  - {dataset: credit, attribute: age, splits: 1}
  - {dataset: acs_income, attribute: race, splits: 1}
10_disparate_impact:
14_scorecard:
"""
WRITE = """
import sys
sys.path.insert(0, "../tools")
import runs
from cfhelpers import paths
for file in runs.plan(profile)[f"{profile}/%s"].writes:
    with paths.atomic_write(paths.ROOT / file) as partial:
        partial.write_text("new")
"""


def repository(root, folder, profile):
    """A copy of what the runs need, with its own profile and no results."""
    for name in (
        "Snakefile",
        "pyproject.toml",
        "profiles/settings.yaml",
        "results/catalogue.csv",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
    for name in ("cfhelpers", "tools"):
        shutil.copytree(
            root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    (folder / "profiles" / "quick.yaml").write_text(profile)
    (folder / "notebooks").mkdir()
    return folder


def command(folder, *options, **environment):
    """How to start the runs in a folder."""
    hidden = ("CFHELPERS_DATA", "CFHELPERS_HOME", "SNAKEMAKE_PROFILE")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    arguments = [sys.executable, str(folder / "tools" / "runs.py"), *options]
    return {
        "args": arguments,
        "env": inherited | {"PYTHONPATH": str(folder)} | environment,
    }


def run(folder, *options, **environment):
    """The finished process, with all that it printed in `stdout`."""
    how = command(folder, *(options or ["quick"]), **environment)
    return subprocess.run(
        **how, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def begun(finished):
    return re.findall(r"^(\S+) begins$", finished.stdout, re.MULTILINE)


def planned(finished):
    """The jobs that a dry run would start."""
    return {*re.findall(r"^(\w+) +1$", finished.stdout, re.MULTILINE)} - {"all"}


def write(folder, stem, parameters, *sources):
    cells = [
        new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        *map(new_code_cell, sources),
    ]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": tool.KERNELSPEC})
    nbformat.write(notebook, folder / "notebooks" / f"{stem}.ipynb")


def small_repository(root, folder):
    """Notebooks that do nothing but write what they must."""
    repository(root, folder, SMALL)
    write(folder, "00_start_here", "n: int = 1", "print(n)")
    names = (
        'dataset: str = ""\nattribute: str = ""\nprofile: str = ""\n'
        'source: str = ""\nsplits: int = 0'
    )
    write(folder, "09_fairness_by_dataset", names, WRITE % "09_{dataset}_{attribute}")
    for stem in ("10_disparate_impact", "14_scorecard"):
        write(folder, stem, 'profile: str = ""', WRITE % stem)
    return folder


@pytest.fixture
def small(root, tmp_path):
    return small_repository(root, tmp_path / "small")


@pytest.fixture(scope="module")
def done(root, tmp_path_factory):
    """The small repository after a run, and what the run printed."""
    folder = small_repository(root, tmp_path_factory.mktemp("done") / "small")
    return folder, run(folder)


@pytest.fixture
def finished(done, tmp_path):
    """A copy of the small repository after a run."""
    return shutil.copytree(done[0], tmp_path / "finished")


# The profiles.


@pytest.fixture
def data(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").touch()
    monkeypatch.setenv("CFHELPERS_DATA", str(tmp_path / "data"))


@pytest.mark.parametrize("profile", paths.PROFILES)
def test_a_profile_runs_every_dataset_and_gives_only_parameters_that_the_notebooks_have(
    root, data, profile
):
    plan = runs.plan(profile)
    assert {
        name.removeprefix(f"{profile}/09_") for name in plan if f"{profile}/09_" in name
    } == GRID
    settings = yaml.safe_load((root / "profiles" / f"{profile}.yaml").read_text("utf-8"))
    settings.pop("others", None)
    for stem, given in settings.items():
        known = tool.parameter_names(
            nbformat.read(root / "notebooks" / f"{stem}.ipynb", as_version=4)
        )
        for parameters in given if isinstance(given, list) else [given or {}]:
            assert {*parameters, "profile"} <= {*known}


@pytest.mark.parametrize("profile", paths.PROFILES)
def test_every_file_of_the_catalogue_is_promised_by_one_run_after_the_rows_it_shows(
    data, profile
):
    plan = runs.plan(profile)
    promised = [file for run in plan.values() for file in run.writes]
    rows = [
        row
        for row in runs.read_catalogue()
        if profile == "quick" or "09" <= row["notebook"][:2] <= "12"
    ]
    wanted = {file for row in rows for file in runs.files(row, profile)}
    assert len(promised) == len({*promised}) and wanted <= {*promised}
    for row in rows:
        (name,) = (
            name
            for name, run in plan.items()
            if runs.files(row, profile)[0] in run.writes
        )
        shown = {f"{profile}/09_{each}" for each in row["runs"].split()}
        assert shown <= {name, *plan[name].needs}
    assert {*plan[f"{profile}/14_scorecard"].needs} == {*plan} - {
        f"{profile}/14_scorecard"
    }


def test_runs_on_real_graphs_wait_for_the_notebooks_that_store_their_settings(data):
    plan = runs.plan("paper")
    first, second = (f"paper/{stem}" for stem in runs.STORE_SETTINGS)
    assert plan[first].needs == []
    assert plan[second].needs == [first]
    assert runs.is_awaited(plan, first) and runs.is_awaited(plan, second)
    for name in GRID:
        waits = not name.startswith("acs")
        assert plan[f"paper/09_{name}"].needs == ([first, second] if waits else [])


def test_runs_of_the_quick_profile_wait_for_no_settings():
    plan = runs.plan("quick")
    assert not any(plan[f"quick/09_{name}"].needs for name in GRID)
    assert not any(runs.is_awaited(plan, stem) for stem in runs.STORE_SETTINGS)
    assert all(runs.is_awaited(plan, f"quick/09_{name}") for name in GRID)


WRONG = {
    "a misspelt parameter": (
        "splits: 1",
        "split: 1",
        "quick.yaml: 09_fairness_by_dataset has no split; it has",
    ),
    "an unknown notebook": (
        "14_scorecard",
        "14_scores",
        "no notebook 14_scores; there are 00_start_here, 09_fair",
    ),
    "an unknown dataset": (
        "dataset: credit",
        "dataset: credits",
        "no run credits_age; it has acs_education_race, ",
    ),
    "an unknown attribute": (
        "attribute: age",
        "attribute: sex",
        "no run credit_sex; it has acs_education_race, ",
    ),
    "a notebook without a profile": (
        "14_scorecard:",
        "00_start_here:",
        "00_start_here has no profile; it has n",
    ),
}


@pytest.mark.parametrize("old, new, message", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_profile_is_refused(small, old, new, message):
    (small / "profiles" / "quick.yaml").write_text(SMALL.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        runs.plan("quick", small)


@pytest.mark.parametrize("given", [[], ["--help"], ["../quick"]])
def test_without_a_profile_it_says_which_there_are(given):
    command = [sys.executable, str(runs.ROOT / "tools" / "runs.py"), *given]
    told = subprocess.run(command, capture_output=True, text=True)
    found = given[0] if given else ""
    assert told.returncode == 1
    assert told.stderr == f"profile: found {found!r}; wanted quick or paper\n"


@pytest.mark.slow
def test_a_misspelt_parameter_stops_the_run_before_any_notebook_runs(small):
    (small / "profiles" / "quick.yaml").write_text(
        SMALL.replace("race, splits", "race, split", 1)
    )
    stopped = run(small)
    assert (
        stopped.returncode == 1
        and "has no split; it has dataset, attribute" in stopped.stdout
    )
    assert (
        "begins" not in stopped.stdout and not (small / "results" / "notebooks").exists()
    )


@pytest.mark.slow
def test_the_paper_profile_says_what_to_set_where_there_is_no_data(small, tmp_path):
    (small / "profiles" / "paper.yaml").write_text(
        SMALL.replace("splits: 1", "source: local", 1)
    )
    (tmp_path / "empty").mkdir()
    for folder in ("", str(tmp_path / "empty"), str(tmp_path / "nowhere")):
        stopped = run(small, "paper", CFHELPERS_DATA=folder)
        assert (
            stopped.returncode == 1
            and "CFHELPERS_DATA=/path/to/data make paper" in stopped.stdout
        )
    assert "begins" not in stopped.stdout


# A run and the next one.


@pytest.mark.slow
def test_a_fresh_folder_runs_everything_in_order_and_shows_how_far_it_is(done):
    folder, first = done
    assert first.returncode == 0 and "6 of 6 steps (100%) done" in first.stdout
    order = re.findall(r"^(\S+) (begins|took)", first.stdout, re.MULTILINE)
    assert {name for name, _ in order} == {
        "00_start_here", "09_credit_age", "09_acs_income_race",
        "10_disparate_impact", "14_scorecard",
    }  # fmt: skip
    assert max(
        order.index((f"09_{name}", "took")) for name in ("credit_age", "acs_income_race")
    ) < order.index(("10_disparate_impact", "begins"))
    assert order[-1] == ("14_scorecard", "took")
    assert len(first.stdout.splitlines()) < 40
    assert (
        folder / "results" / "runs" / "quick" / "credit_age.parquet"
    ).read_text() == "new"


@pytest.mark.slow
def test_what_is_up_to_date_is_skipped(finished):
    again = run(finished)
    assert (
        again.returncode == 0
        and "Nothing to be done" in again.stdout
        and begun(again) == []
    )


def change(name, old, new):
    def changes(folder):
        text = (folder / name).read_text("utf-8")
        (folder / name).write_text(text.replace(old, new, 1), "utf-8")

    return changes


CREDIT = {"quick_09_credit_age", "quick_10_disparate_impact", "quick_14_scorecard"}
EVERYTHING = CREDIT | {"00_start_here", "quick_09_acs_income_race"}
LESSON = {"00_start_here", "quick_14_scorecard"}
CHANGES = {
    "a parameter": (
        change("profiles/quick.yaml", "age, splits: 1", "age, splits: 2"),
        CREDIT,
    ),
    "the module": (change("cfhelpers/scores.py", '"""', '"""Indeed. '), EVERYTHING),
    "a figure that is gone": (
        lambda folder: (folder / "figures" / "fig2_credit.pdf").unlink(),
        CREDIT,
    ),
    "a lesson": (
        change("notebooks/00_start_here.ipynb", "print(n)", "print(2)"),
        {"00_start_here", "quick_14_scorecard"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("changes, wanted", CHANGES.values(), ids=CHANGES.keys())
def test_what_has_changed_runs_again_with_what_depends_on_it(finished, changes, wanted):
    changes(finished)
    assert planned(run(finished, "quick", "--dry-run")) == wanted


@pytest.mark.slow
def test_a_notebook_that_fails_fails_the_run_shows_its_error_and_loses_nothing(finished):
    write(finished, "10_disparate_impact", 'profile: str = ""', "1 / 0")
    failed = run(finished)
    assert (
        failed.returncode == 1 and "ZeroDivisionError: division by zero" in failed.stdout
    )
    assert (
        begun(failed) == ["10_disparate_impact"]
        and "10_disparate_impact failed after" in failed.stdout
    )
    assert (finished / "results" / "tables" / "tab3_four_fifths.csv").read_text() == "new"
    assert (finished / "results" / "notebooks" / "quick" / "14_scorecard.ipynb").exists()
    assert [*finished.rglob(".*.partial*")] == []


def test_a_notebook_that_does_not_write_what_it_must_fails(tmp_path):
    (tmp_path / "notebooks").mkdir()
    kept, written = tmp_path / "kept.csv", tmp_path / "written.csv"
    for path in (kept, written):
        path.write_text("old")
    write(
        tmp_path,
        "00_a",
        "n: int = 1",
        f"import os\nopen('x', 'w').close()\nos.replace('x', {str(written)!r})",
    )
    source, target = tmp_path / "notebooks" / "00_a.ipynb", tmp_path / "out.ipynb"
    with pytest.raises(
        ValueError, match=r"writes: 00_a.ipynb has not written .*kept.csv, .*never.csv$"
    ):
        tool.run(source, target, {}, [written, kept, tmp_path / "never.csv"])
    assert not target.exists() and kept.read_text() == "old"


@pytest.mark.slow
def test_a_second_run_waits_for_the_first(finished):
    with FileLock(finished / ".snakemake" / "at_work"):
        second = subprocess.Popen(
            **command(finished, "quick"), stderr=subprocess.PIPE, text=True
        )
        assert "waiting for it" in second.stderr.readline() and second.poll() is None
    assert "Nothing to be done" in second.communicate()[1] and second.returncode == 0


def test_only_what_dead_processes_left_is_cleared_away(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    (tmp_path / "figures").mkdir()
    names = {
        f".a.x1{paths.writer_mark(process.pid)}.png": False,
        f".a.x1{paths.writer_mark(os.getpid())}.png": True,
        f".a.x1.elsewhere.{process.pid}.partial.png": True,  # of another machine
        "a.png": True,
    }
    for name in names:
        (tmp_path / "figures" / name).touch()
    runs.clear(tmp_path)
    assert {name: (tmp_path / "figures" / name).exists() for name in names} == names


# A cluster.


def test_the_slurm_profile_has_only_options_that_snakemake_has(root):
    from snakemake.cli import get_argument_parser

    options = {
        text
        for action in get_argument_parser()._actions
        for text in action.option_strings
    }
    settings = yaml.safe_load(
        (root / "profiles" / "slurm" / "config.yaml").read_text("utf-8")
    )
    assert (
        settings["executor"] == "slurm"
        and [key for key in settings if f"--{key}" not in options] == []
    )


@pytest.mark.slow
def test_the_slurm_profile_is_accepted(root, small):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    shutil.copytree(root / "profiles" / "slurm", small / "profiles" / "slurm")
    how = command(small) | {
        "args": [
            sys.executable,
            "-m",
            "snakemake",
            "--profile",
            "profiles/slurm",
            "--dry-run",
        ]
    }
    assert subprocess.run(**how, cwd=small).returncode == 0


# A run that is killed.

TINY = """
09_fairness_by_dataset:
  - {dataset: acs_income, attribute: race, source: simulated, rows: 3000, splits: 2}
"""


def tiny_repository(root, folder):
    """Notebook 09 up to its rows, then figures that take no time to draw."""
    repository(root, folder, TINY)
    notebook = nbformat.read(
        root / "notebooks" / "09_fairness_by_dataset.ipynb", as_version=4
    )
    (last,) = (
        place for place, cell in enumerate(notebook.cells) if "save_rows" in cell.source
    )
    figures = WRITE.replace(".writes", ".writes[1:]") % "09_{dataset}_{attribute}"
    notebook.cells = [*notebook.cells[: last + 1], new_code_cell(figures)]
    nbformat.write(notebook, folder / "notebooks" / "09_fairness_by_dataset.ipynb")
    return folder


def all_rows(folder):
    found = [
        path
        for path in sorted(folder.rglob("*.parquet"))
        if not path.name.startswith(".")
    ]
    return {path.relative_to(folder).as_posix(): pd.read_parquet(path) for path in found}


def check_that_a_killed_run_gives_the_same_rows(root, tmp_path, kills):
    """Undisturbed, and killed so often and then resumed: the rows are equal."""
    undisturbed, killed = (
        tiny_repository(root, tmp_path / name) for name in ("undisturbed", "killed")
    )
    seconds = seconds_of(lambda: run(undisturbed).check_returncode())
    how = command(killed, "quick") | {"start_new_session": True}
    kill_at_random_moments(
        lambda: subprocess.Popen(**how, stderr=subprocess.DEVNULL),
        seconds,
        kills,
        random.Random(7),
        # done too early: once more, from what is kept
        again=lambda: shutil.rmtree(killed / "results" / "notebooks"),
        after=lambda: all_rows_are_whole(killed),
    )
    assert run(killed).returncode == 0
    ((name, expected),), ((same, found),) = (
        all_rows(folder / "results").items() for folder in (undisturbed, killed)
    )
    assert name == same == "runs/quick/acs_income_race.parquet"
    pd.testing.assert_frame_equal(expected, found)
    assert [*killed.rglob(".*.partial*")] == []


def all_rows_are_whole(folder):
    assert all(map(len, all_rows(folder).values()))


@pytest.mark.slow
def test_a_run_killed_at_random_moments_and_resumed_gives_the_same_rows(root, tmp_path):
    check_that_a_killed_run_gives_the_same_rows(root, tmp_path, kills=2)
