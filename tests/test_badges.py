"""Binder, Colab and the public forge: one address, both states, files without torch."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import badges
import nbformat
import pytest
import test_notebooks
import yaml
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from packaging.requirements import Requirement

ADDRESS = "https://github.com/owner/fair-sets"


@pytest.fixture
def copy(root, tmp_path):
    """A copy of what the badges touch and what the notebooks need."""
    for name in ("notebooks", "cfhelpers", "results", "docs", "figures"):
        ignored = shutil.ignore_patterns("__pycache__", "*.pdf", ".*", "solutions")
        shutil.copytree(root / name, tmp_path / "copy" / name, ignore=ignored)
    for name in ("README.md", "pyproject.toml", "CITATION.cff"):
        shutil.copy(root / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


def set_address(copy, address):
    file = copy / "pyproject.toml"
    text = re.sub(
        r'^repository = "[^"]*"',
        f'repository = "{address}"',
        file.read_text("utf-8"),
        flags=re.MULTILINE,
    )
    file.write_text(text, encoding="utf-8")
    badges.update(copy)


def contents(copy):
    return {
        path.name: path.read_bytes()
        for path in [copy / "README.md", *copy.glob("notebooks/*.ipynb")]
    }


def test_the_repository_is_in_the_state_that_its_setting_says(root, copy):
    badges.update(copy)
    assert contents(copy) == contents(root)
    for name in ("pyproject.toml", "CITATION.cff"):
        assert (copy / name).read_bytes() == (root / name).read_bytes()


def test_badges_appear_with_the_address_and_go_with_it(copy):
    set_address(copy, "")
    before = contents(copy)
    assert not any(b"mybinder" in text or b"colab" in text for text in before.values())
    set_address(copy, ADDRESS)
    after = contents(copy)
    changed = {name for name in before if before[name] != after[name]}
    assert (
        changed == {"README.md", *(name for name in before if re.match("0[0-5]", name))}
        and len(changed) == 7
    )
    line = after["README.md"].decode().splitlines()[2]
    start = "notebooks/00_start_here.ipynb"
    assert (
        f"(https://mybinder.org/v2/gh/owner/fair-sets/main?urlpath=lab/tree/{start})"
        in line
    )
    assert (
        f"(https://colab.research.google.com/github/owner/fair-sets/blob/main/{start})"
        in line
    )
    badges.update(copy)
    assert contents(copy) == after  # doing it again changes nothing
    set_address(copy, "https://gitlab.com/group/sub/name")
    text = contents(copy)["01_conformal_prediction.ipynb"].decode()
    assert (
        "v2/git/https%3A%2F%2Fgitlab.com%2Fgroup%2Fsub%2Fname/main" in text
        and "Open in Colab" not in text
    )
    set_address(copy, "")
    assert contents(copy) == before


def test_the_packages_addresses_come_and_go_with_the_setting(copy):
    files = [copy / "pyproject.toml", copy / "CITATION.cff"]
    set_address(copy, "")
    before = [file.read_text(encoding="utf-8") for file in files]
    assert "urls" not in tomllib.loads(before[0])["project"]
    set_address(copy, ADDRESS)
    set_address(copy, ADDRESS)  # doing it again changes nothing
    project = tomllib.loads(files[0].read_text(encoding="utf-8"))["project"]
    assert project["urls"] == {
        "Repository": ADDRESS,
        "Issues": f"{ADDRESS}/issues",
        "Changelog": f"{ADDRESS}/blob/main/CHANGELOG.md",
    }
    citation = yaml.safe_load(files[1].read_text(encoding="utf-8"))
    assert citation["repository-code"] == ADDRESS
    set_address(copy, "https://gitlab.com/group/sub/name")
    project = tomllib.loads(files[0].read_text(encoding="utf-8"))["project"]
    assert project["urls"] == {"Repository": "https://gitlab.com/group/sub/name"}
    set_address(copy, "")
    assert [file.read_text(encoding="utf-8") for file in files] == before


def test_notebooks_with_badges_keep_the_contract(copy):
    set_address(copy, ADDRESS)
    for path in sorted(copy.glob("notebooks/0[0-5]_*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        assert [
            complaint
            for check in test_notebooks.CHECKS
            for complaint in check(notebook, path)
        ] == []
    for command in (["check"], ["format", "--check"]):
        subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", "notebooks"],
            cwd=copy,
            check=True,
        )


@pytest.mark.parametrize(
    "address",
    ["github.com/owner/name", "https://github.com/owner/name/", "git@github.com:a/b.git"],
)
def test_an_address_that_is_none_is_refused(copy, address):
    with pytest.raises(ValueError, match="repository: found"):
        set_address(copy, address)


def printed(cell) -> str:
    """All that a cell has written; under load a kernel sends its lines in pieces."""
    return "".join(
        output.text for output in cell.outputs if output.get("name") == "stdout"
    )


@pytest.mark.slow
def test_on_colab_the_first_cells_fetch_the_project_and_elsewhere_they_do_nothing(
    copy, tmp_path, monkeypatch
):
    if shutil.which("git") is None:
        pytest.skip("git is not here")
    set_address(copy, ADDRESS)
    for command in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *command], cwd=copy, check=True)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")  # the address leads to the copy
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{copy}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", ADDRESS)
    monkeypatch.delenv("CFHELPERS_HOME", raising=False)
    cells = nbformat.read(copy / "notebooks" / "00_start_here.ipynb", as_version=4).cells
    (setup,) = (
        cell.source for cell in cells if badges.TAG in cell.metadata.get("tags", [])
    )
    look = (
        "from cfhelpers import paths\n"
        "print(paths.__file__, paths.RESULTS, 'torch' in sys.modules, sep='\\n')"
    )
    colab = (
        "import sys, types\n\n"
        "sys.modules['google.colab'] = types.ModuleType('google.colab')"
    )
    for place, first in (("colab", colab), ("elsewhere", "")):
        (tmp_path / place).mkdir()
        notebook = new_notebook(
            cells=[new_code_cell(source) for source in (first, setup, look)]
        )
        NotebookClient(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": tmp_path / place}},
        ).execute()
        module, results, torch = printed(notebook.cells[-1]).split()
        fetched = tmp_path / place / "project"
        assert (
            fetched.exists()
            == (place == "colab")
            == (module == str(fetched / "cfhelpers" / "paths.py"))
        )
        assert torch == "False" and (results == str(fetched / "results")) == (
            place == "colab"
        )
        assert os.path.exists(f"{results}/reported_values.csv")


def test_binder_installs_the_notebooks_extra_with_the_pinned_versions_and_no_torch(root):
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    comment, constraints, install = (
        (root / ".binder" / "requirements.txt").read_text("utf-8").splitlines()
    )
    assert (
        root / ".binder" / constraints.removeprefix("-c ")
    ).resolve() == root / "constraints.txt"
    assert comment.startswith("#") and install == "-e .[notebooks]"
    needed = map(
        Requirement,
        [*project["dependencies"], *project["optional-dependencies"]["notebooks"]],
    )
    assert not {requirement.name for requirement in needed} & {
        "torch",
        "torch-geometric",
        "xgboost",
        "ray",
    }
    version = (
        (root / ".binder" / "runtime.txt")
        .read_text("utf-8")
        .strip()
        .removeprefix("python-")
    )
    assert tuple(map(int, version.split("."))) >= (3, 11)


def test_the_public_forge_runs_make_test_as_continuous_integration_does(root):
    workflow = yaml.safe_load(
        (root / ".github" / "workflows" / "test.yml").read_text("utf-8")
    )
    assert workflow["permissions"] == {"contents": "read"}
    job = workflow["jobs"]["everything"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ["make test"] and (root / ".ci" / "run").read_text(
        "utf-8"
    ).rstrip().endswith("\nmake test")
    assert "3.11" in job["strategy"]["matrix"]["python"]
