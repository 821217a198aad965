"""The frame: the environments are in step and importing is cheap.

Places and saved files are as promised.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import cfhelpers
from cfhelpers import paths, plots

matplotlib.use("agg")
import matplotlib.pyplot as plt

DAILY_EXTRAS = ("study", "test")  # what reading, running and testing takes


def lower_bounds(requirements) -> dict[str, Version]:
    """Lower bound by normalised name."""
    bounds = {}
    for requirement in map(Requirement, requirements):
        (bound,) = (
            Version(s.version) for s in requirement.specifier if s.operator == ">="
        )
        bounds[canonicalize_name(requirement.name)] = bound
    return bounds


def requirements_of(project, *extras) -> list[str]:
    """What the method needs, and what the extras add; an extra may name others."""
    found = list(project["dependencies"])
    waiting = list(extras)
    while waiting:
        for text in project["optional-dependencies"][waiting.pop()]:
            requirement = Requirement(text)
            if requirement.name == project["name"]:
                waiting += requirement.extras
            elif text not in found:
                found.append(text)
    return found


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def constraints(root):
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_environment_yml_lists_the_same_packages_and_lower_bounds_as_pyproject(
    root, project
):
    listed = yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))[
        "dependencies"
    ]
    by_pip = [
        line
        for part in listed
        if isinstance(part, dict)
        for line in part["pip"]
        if line != "-e ."
    ]
    conda = lower_bounds(
        [*(line for line in listed if isinstance(line, str) and line != "pip"), *by_pip]
    )
    assert conda.pop("python") == Version(project["requires-python"].removeprefix(">="))
    assert conda == lower_bounds(requirements_of(project, *DAILY_EXTRAS))


def test_every_line_of_environment_yml_says_who_needs_it(root):
    lines = (root / "environment.yml").read_text(encoding="utf-8").splitlines()
    packages = [line for line in lines if re.match(r"  - \w.*>=", line)]
    assert packages and all("# " in line for line in packages)


def test_constraints_are_exact_and_name_no_place(constraints):
    assert all(
        re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", line) for line in constraints
    )


def test_constraints_satisfy_every_requirement_that_make_installs(project, constraints):
    pinned = {
        canonicalize_name(name): version
        for name, version in (c.split("==") for c in constraints)
    }
    wanted = requirements_of(project, *DAILY_EXTRAS, "report", "cluster", "bench", "lite")
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(
            pinned[canonicalize_name(requirement.name)]
        ), requirement


def in_a_new_python(code):
    """What some code prints, where nothing was imported before."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_importing_cfhelpers_loads_nothing_heavy():
    heavy = "{'torch', 'numpy', 'numba', 'sklearn', 'matplotlib', 'pandas'}"
    done = in_a_new_python(
        f"import sys, cfhelpers; print(sorted({heavy} & set(sys.modules)))"
    )
    assert done.stdout == "[]\n", done.stderr


def test_every_public_name_is_found_on_first_use_and_unknown_ones_are_not():
    for name in cfhelpers.__all__:
        assert getattr(cfhelpers, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_name"):
        cfhelpers.no_such_name  # noqa: B018


def test_the_citation_file_names_the_paper(root):
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == cfhelpers.__version__
    assert (
        citation["preferred-citation"]["title"]
        == "A Generic Framework for Conformal Fairness"
    )


def test_links_of_the_readme_resolve(root):
    links = re.findall(
        r"\]\(([^)#]+?)\)", (root / "README.md").read_text(encoding="utf-8")
    )
    local = [link for link in links if "://" not in link]
    assert local and not [link for link in local if not (root / link).exists()]


def places(folder, package, **environment) -> list[Path]:
    """The root and the figures' folder that the package gives, seen from `folder`."""
    code = "from cfhelpers import paths; print(paths.ROOT, paths.FIGURES, sep='|')"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PYTHONPATH": str(package)} | environment,
    )
    return [Path(place) for place in found.stdout.strip().split("|")]


def test_root_is_the_repository_unless_the_environment_names_another(root, tmp_path):
    assert places(tmp_path, root) == [root, root / "figures"]
    named = places(tmp_path, root, CFHELPERS_HOME=str(tmp_path))
    assert named == [tmp_path, tmp_path / "figures"]


def test_installed_nothing_is_written_to_or_sought_in_the_current_folder(root, tmp_path):
    installed = tmp_path / "site-packages"
    shutil.copytree(
        root / "cfhelpers", installed / "cfhelpers", ignore=lambda *_: ["__pycache__"]
    )
    here = tmp_path / "here"
    here.mkdir()
    (here / "pyproject.toml").touch()  # some project of the user's own
    cache = tmp_path / "caches"
    system = {"HOME": str(tmp_path), "LOCALAPPDATA": str(cache)}
    found = places(here, installed, XDG_CACHE_HOME=str(cache), **system)
    if sys.platform == "darwin":
        cache = tmp_path / "Library" / "Caches"
    assert found == [cache / "cfhelpers", cache / "cfhelpers" / "figures"]
    assert [file.name for file in here.iterdir()] == ["pyproject.toml"]
    named = places(here, installed, CFHELPERS_HOME=str(tmp_path / "named"), **system)
    assert named[0] == tmp_path / "named"


@pytest.mark.parametrize(
    ("platform", "environment", "wanted"),
    [
        ("linux", {}, ".cache"),
        ("linux", {"XDG_CACHE_HOME": "/elsewhere"}, "/elsewhere"),
        ("darwin", {"XDG_CACHE_HOME": "/elsewhere"}, "Library/Caches"),
        ("win32", {}, "AppData/Local"),
        ("win32", {"LOCALAPPDATA": "/elsewhere"}, "/elsewhere"),
    ],
)
def test_caches_lie_where_the_system_keeps_them(
    monkeypatch, tmp_path, platform, environment, wanted
):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", platform)
    assert paths._user_cache() == tmp_path / wanted


@pytest.mark.skipif(os.name == "nt", reason="users are numbers on POSIX")
def test_a_user_who_has_no_home_has_caches(monkeypatch):
    """As in a container whose user is a number alone."""

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    folder = paths._user_cache()
    assert folder.is_absolute() and folder.parent.name == f"home-{os.getuid()}"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert paths._user_cache() == Path("/somewhere")


WITHOUT_CACHE = """
from numba.core import caching
caching.CacheImpl._locator_classes = []  # as where neither package nor home is writable
from cfhelpers import _binning, _ranking, _sweep
for part in (_binning, _ranking, _sweep):
    part.compiled()
from cfhelpers.control import find_threshold
rows = [[0.1, 0.9], [0.9, 0.1]] * 20
found = find_threshold(rows, [0, 1] * 20, ["a", "b", "b", "a"] * 10, "set_size")
print(found.base_threshold)
"""


@pytest.mark.slow
def test_where_no_folder_can_be_written_loops_are_compiled_all_the_same():
    done = in_a_new_python(WITHOUT_CACHE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0.1\n"


def test_networks_on_graphs_name_the_extra_that_they_need():
    done = in_a_new_python(
        "import sys; sys.modules['torch'] = None; from cfhelpers import gnn"
    )
    wanted = "ImportError: networks on graphs need torch: pip install 'cfhelpers[models]'"
    assert done.stderr.splitlines()[-1] == wanted


def test_a_name_as_long_as_the_system_allows_is_written(tmp_path):
    target = tmp_path / f"{'x' * 250}.csv"
    with paths.atomic_write(target) as partial:
        partial.write_text("new")
    assert target.read_text() == "new" and list(tmp_path.iterdir()) == [target]


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    """Not the temporary one; and a folder is not replaced."""
    is_folder = pytest.raises(ValueError, match="is a folder; wanted a file")
    with is_folder, paths.atomic_write(tmp_path):
        pytest.fail("nothing may be written")
    target = tmp_path / f"{'x' * 300}.csv"
    with pytest.raises(OSError) as caught, paths.atomic_write(target):
        pytest.fail("nothing may be written")
    assert caught.value.filename == str(target)
    target = tmp_path / "a.csv"
    with pytest.raises(OSError) as caught, paths.atomic_write(target) as partial:
        raise OSError(28, "No space left on device", str(partial))
    assert caught.value.filename == str(target)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(RuntimeError), paths.atomic_write(target) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
    with paths.atomic_write(target) as partial:
        assert partial.suffix == ".csv"
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new" and list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(os.name == "nt", reason="named pipes are those of POSIX")
def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(os.devnull)
    for target in (pipe, link):
        with (
            pytest.raises(ValueError, match="is a device or a pipe; wanted a file"),
            paths.atomic_write(target),
        ):
            pytest.fail("nothing may be written")
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "link"}


def test_a_link_stays_and_what_it_names_is_written(tmp_path):
    (tmp_path / "shared").mkdir()
    target = tmp_path / "shared" / "report.html"
    target.write_text("old")
    for name, named in (("link", target), ("dangling", tmp_path / "new" / "a.html")):
        link = tmp_path / name
        link.symlink_to(named)
        with paths.atomic_write(link) as partial:
            assert partial.parent == named.parent
            partial.write_text("new")
        assert link.is_symlink() and named.read_text() == "new"


def test_two_threads_that_write_one_file_at_once_do_not_disturb_each_other(tmp_path):
    target = tmp_path / "table.csv"
    both = threading.Barrier(2, timeout=60)
    names = []

    def write(letter: str) -> None:
        with paths.atomic_write(target) as partial:
            names.append(partial.name)
            partial.write_text(letter * 1000)
            both.wait()  # the two are written before either is renamed
            assert partial.read_text() == letter * 1000

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, "ab"))
    assert len(set(names)) == 2
    assert target.read_text() in ("a" * 1000, "b" * 1000)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(os.name == "nt", reason="permissions are those of POSIX")
def test_a_written_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "plain").touch()
    with paths.atomic_write(tmp_path / "whole") as partial:
        partial.write_text("new")
    modes = {file.stat().st_mode for file in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_saved_figure_has_the_same_bytes_each_time_and_no_date(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    stored = []
    with matplotlib.rc_context():
        plots.use_style()
        for _ in range(2):
            fig, ax = plt.subplots()
            ax.plot([0, 1], [1, 0], label="λ")
            ax.legend()
            assert plots.save(fig, "line") == tmp_path / "line.png"
            plt.close(fig)
            stored.append(
                (
                    (tmp_path / "line.png").read_bytes(),
                    (tmp_path / "line.pdf").read_bytes(),
                )
            )
    assert stored[0] == stored[1]
    assert b"CreationDate" not in stored[0][1] and stored[0][1].startswith(b"%PDF")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["line.pdf", "line.png"]


def test_the_notebooks_kernel_is_this_interpreter():
    manager = pytest.importorskip("jupyter_client").KernelManager(kernel_name="python3")
    assert manager.format_kernel_cmd()[0] == sys.executable
