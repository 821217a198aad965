"""What is built: an sdist and the wheel that comes of it, tried in a clean place."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_string

import pytest
import yaml
from packaging.version import Version

BUILD = """
import sys
from setuptools import build_meta
getattr(build_meta, f"build_{sys.argv[1]}")(sys.argv[2])
"""
LIST_EXTRAS = """
from cfhelpers import installation
print(*sorted(set(installation.wanted()) - {installation.METHOD}))
"""
LEFT_OUT = (".*", "artifacts", "build", "data", "dist", "figures", "notebooks", "results")


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """The sdist, and the wheel that is built from the unpacked sdist."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    ignored = shutil.ignore_patterns(*LEFT_OUT, "*.egg-info", "__pycache__")
    source.mkdir()
    for path in root.iterdir():
        if path.name == "cfhelpers":  # with its own data
            shutil.copytree(path, source / path.name, ignore=ignored_caches)
        elif path.is_dir() and path.name not in ignored(str(root), [path.name]):
            shutil.copytree(path, source / path.name, ignore=ignored)
        elif path.is_file():
            shutil.copy(path, source / path.name)
    build(source, "sdist", folder)
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    build(unpacked, "wheel", folder)
    [wheel] = folder.glob("*.whl")
    return sdist, wheel


def ignored_caches(folder, names):
    return [name for name in names if name == "__pycache__"]


def build(source, kind, folder):
    """Build by the backend that pyproject.toml names, as pip and build do."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(folder)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def described(built):
    """The metadata of the wheel."""
    with zipfile.ZipFile(built[1]) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        return message_from_string(archive.read(name).decode())


def test_the_wheel_holds_the_package_its_data_and_nothing_else(root, built):
    with zipfile.ZipFile(built[1]) as archive:
        names = archive.namelist()
    packed = {name for name in names if ".dist-info/" not in name}
    wanted = set()
    for path in (root / "cfhelpers").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            wanted.add(path.relative_to(root).as_posix())
    assert packed == wanted
    assert {"cfhelpers/py.typed", "cfhelpers/datasets/uci_credit.npz"} <= packed


def test_the_sdist_has_the_citation_and_no_test_that_could_not_run(built):
    with tarfile.open(built[0]) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"CITATION.cff", "CHANGELOG.md", "LICENSE", "pyproject.toml"} <= set(names)
    assert not [name for name in names if name.startswith("tests")]


def test_authors_licence_and_version_are_those_of_the_citation_file(root, described):
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    names = [author["name"] for author in citation["authors"]]
    assert described["Author"] == ", ".join(names)
    assert described["Author-email"] is None and described["Maintainer"] is None
    assert described["License-Expression"] == citation["license"]
    assert Version(described["Version"]) == Version(citation["version"])
    assert set(described["Keywords"].split(",")) == set(citation["keywords"])


def test_addresses_come_from_the_one_setting(root, described):
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    address = tomllib.loads(text)["tool"]["cfhelpers"]["repository"]
    listed = described.get_all("Project-URL") or []
    if address:
        assert listed and all(address in line for line in listed)
    else:
        assert listed == []


def test_classifiers_name_the_versions_that_the_workflow_tests(root, described):
    workflow = (root / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    start = "Programming Language :: Python :: 3."
    named = {
        line.removeprefix(start)
        for line in described.get_all("Classifier")
        if line.startswith(start)
    }
    tested = set()
    jobs = yaml.safe_load(workflow)["jobs"]
    for job in jobs.values():
        matrix = job.get("strategy", {}).get("matrix", {})
        versions = [*matrix.get("python", [])]
        versions += [entry["python"] for entry in matrix.get("include", [])]
        tested |= {version.removeprefix("3.") for version in versions}
    assert named == tested
    lowest = min(named, key=int)
    assert described["Requires-Python"] == f">=3.{lowest}"


@pytest.mark.slow
def test_the_installed_wheel_does_what_the_readme_says(root, built, tmp_path):
    """The five lines, an audit with its report, the monitor.

    Dependencies come from this environment; nothing is downloaded.
    """
    clean = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clean], check=True)
    python = clean / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    install = [*pip, "--python", python, "install", "--no-deps", "--no-index"]
    # A checkout on the path would count as the package that is installed already.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*install, built[1]], check=True, capture_output=True, env=own)
    site = next(clean.glob("lib/python*/site-packages"))
    (site / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    for file in (root / "tools" / "try_installed.py", root / "README.md"):
        shutil.copy(file, tmp_path)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    words = ["try_installed.py", "work", "--readme", "README.md"]
    done = subprocess.run(
        [python, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "the method: works" in lines and "report: works" in lines
    assert lines[-2].startswith("five lines: ")
    asked = [python, "-c", LIST_EXTRAS]
    told = subprocess.run(
        asked, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    assert told.stdout.split() == sorted(extras)
    gone = subprocess.run(
        [python, "-m", "cfhelpers", "audit", "gone.csv"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert gone.returncode == 2
    assert gone.stderr == "cfhelpers audit: gone.csv: there is no such file\n"
    rows = [f"{0.9 if sex == 'men' else 0.1},1,{sex}" for sex in ("men", "women")]
    text = "\n".join(["p_1,outcome,sex", *rows * 200, "0.2,0,men", "0.2,0,women"])
    (tmp_path / "gate.csv").write_text(text)
    words = ["--label", "outcome", "--groups", "sex", "--cutoff", "0.5"]
    gate = subprocess.run(
        [clean / "bin" / "cfhelpers", "audit", "gate.csv", *words, "--fail-on", "beyond"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert gate.returncode == 1, gate.stderr
