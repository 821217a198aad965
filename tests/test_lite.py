"""The lessons in a browser: what the site holds, and its kernel started in Chromium."""

import hashlib
import json
import subprocess
import urllib.error
import urllib.request
import zipfile

import lite
import lite_run
import nbformat
import pytest
from browser import chromium
from nbformat.v4 import new_code_cell, new_notebook

import cfhelpers

CODE = """
import cfhelpers
from importlib import metadata
from pathlib import Path
from cfhelpers import paths
credit = Path(cfhelpers.__file__).parent / "datasets" / "uci_credit.npz"
print(metadata.version("cfhelpers"), credit.stat().st_size)
print((paths.RESULTS / "reported_values.csv").read_text().splitlines()[0])
"""


def wheel_bytes(name):
    return f"the wheel of {name}".encode()


def entry(name, depends=(), tag="py3-none-any"):
    return {
        "depends": list(depends),
        "file_name": f"{name}-1.0-{tag}.whl",
        "imports": [name],
        "name": name,
        "sha256": hashlib.sha256(wheel_bytes(name)).hexdigest(),
        "version": "1.0",
    }


@pytest.fixture
def bundle(tmp_path):
    """A small distribution: a pure package, and a compiled one that needs another."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    compiled = "cp314-cp314-pyemscripten_2026_0_wasm32"
    entries = [
        entry("pure"),
        entry("fast", ["numbers"], compiled),
        entry("numbers", (), compiled),
        entry("unused"),
    ]
    packages = {each["name"]: each for each in entries}
    lock = {"info": {"python": "3.14.2"}, "packages": packages}
    (folder / lite.LOCK).write_text(json.dumps(lock))
    for each in entries:
        (folder / each["file_name"]).write_bytes(wheel_bytes(each["name"]))
    for name in lite.RUNTIME:
        (folder / name).write_bytes(b"")
    return folder


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def test_a_package_brings_what_it_needs_and_nothing_else(bundle, site):
    packages = lite.Packages(lite.open_bundle(str(bundle), site), site)
    packages.add("fast")
    packages.write_lock()
    lock = json.loads((site / lite.LOCK).read_text())
    assert sorted(lock["packages"]) == ["fast", "numbers"]
    assert packages.missing == []
    for each in lock["packages"].values():
        assert (site / each["file_name"]).read_bytes() == wheel_bytes(each["name"])


def test_a_compiled_package_that_is_not_there_is_missing_and_not_asked_for(bundle, site):
    next(bundle.glob("numbers-*.whl")).unlink()
    packages = lite.Packages(lite.open_bundle(str(bundle), site), site)
    packages.add("fast")
    packages.write_lock()
    lock = json.loads((site / lite.LOCK).read_text())
    assert packages.missing == ["numbers"]
    assert lock["packages"]["fast"]["depends"] == []


def test_a_wheel_that_is_not_what_the_lock_says_is_refused(bundle, site):
    next(bundle.glob("pure-*.whl")).write_bytes(b"something else")
    packages = lite.Packages(lite.open_bundle(str(bundle), site), site)
    with pytest.raises(ValueError, match=r"pure-1\.0-py3-none-any\.whl is not what"):
        packages.add("pure")


def test_a_place_without_a_distribution_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no such file"):
        lite.open_bundle(str(tmp_path / "gone"), tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no pyodide-lock"):
        lite.open_bundle(str(tmp_path / "empty"), tmp_path)


def test_another_core_than_the_pinned_one_is_refused():
    with pytest.raises(ValueError, match="its SHA-512 is"):
        lite.check_sha512(b"something else")


def test_an_absent_bundle_is_told_in_one_line(tmp_path, capsys):
    assert lite.main([str(tmp_path / "gone"), "--output", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("lite: bundle: ") and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_archive_is_told_in_one_line(tmp_path, capsys):
    (tmp_path / "pyodide.tar.bz2").write_bytes(b"no archive")
    assert lite.main([str(tmp_path / "pyodide.tar.bz2"), "--output", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "is no whole archive" in told and told.count("\n") == 1
    assert (tmp_path / "pyodide.tar.bz2").exists()


def test_lessons_get_smaller_parameters_that_they_have_and_keep_the_rest(root, tmp_path):
    lite.write_contents(tmp_path / "files")
    names = sorted(path.name[:2] for path in (tmp_path / "files").glob("notebooks/*"))
    assert names == list(lite.LESSONS)
    for path in (tmp_path / "files" / "notebooks").iterdir():
        theirs = nbformat.read(path, as_version=4)
        ours = nbformat.read(root / "notebooks" / path.name, as_version=4)
        pairs = list(zip(theirs.cells, ours.cells, strict=True))
        changed = [one for one, other in pairs if one.source != other.source]
        assert len(changed) == (path.name[:2] in lite.SMALLER)
        assert theirs.metadata.kernelspec.name == "python"
        for one, other in pairs:
            if path.name[:2] not in lite.SMALLER:
                assert one.get("outputs") == other.get("outputs")


def test_a_parameter_that_a_lesson_does_not_have_is_an_error():
    assert lite.with_values("n: int = 5_000  # people\n", {"n": 10}, "x") == (
        "n: int = 10  # people\n"
    )
    with pytest.raises(ValueError, match="found no m: int"):
        lite.with_values("n: int = 5_000  # people\n", {"m": 10}, "x")


def test_the_data_wheel_holds_what_lessons_read_and_lists_it(root, tmp_path):
    wheel = lite.data_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        record = archive.read(next(name for name in names if name.endswith("RECORD")))
        for name in lite.LESSON_DATA:
            packed = archive.read(f"{lite.DATA_PACKAGE}/{name}")
            assert packed == (root / name).read_bytes()
    assert [line.partition(",")[0] for line in record.decode().splitlines()] == names


def test_faults_are_told(tmp_path):
    error = {"output_type": "error", "ename": "NameError", "evalue": "x"}
    cells = [
        {"source": "x", "execution_count": 1, "outputs": [error]},
        {"source": "1", "execution_count": None, "outputs": []},
        {"source": "", "execution_count": None, "outputs": []},
    ]
    assert lite_run.faults(cells, ["https://elsewhere"]) == [
        "asked for https://elsewhere",
        "code cell 1: NameError: x",
        "code cell 2 did not run",
    ]
    assert lite_run.faults([], []) == ["the notebook has no code cell"]


@pytest.fixture(scope="module")
def core_site(root, tmp_path_factory):
    """A site with the core of Pyodide from npm, built as `make lite` does."""
    python = root / ".venv-lite" / "bin" / "python"
    if not python.exists():
        pytest.skip("no .venv-lite here: make .venv-lite/.ready")
    try:
        urllib.request.urlopen(lite.CORE, timeout=60).close()
    except (urllib.error.URLError, TimeoutError) as error:
        pytest.skip(f"the core of Pyodide cannot be fetched from npm: {error}")
    folder = tmp_path_factory.mktemp("lite") / "site"
    command = [
        python,
        root / "tools" / "lite.py",
        lite.CORE,
        "--core",
        "--output",
        folder,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "lacking, so that lessons do not run: " in done.stdout
    return folder


@pytest.mark.stress
def test_the_kernel_starts_in_chromium_and_finds_our_wheel(core_site, root):
    """The page reaches nothing but the folder that was built."""
    [first] = (core_site / "files" / "notebooks").glob("00_*.ipynb")
    notebook = new_notebook(cells=[new_code_cell(CODE)])
    notebook.metadata.kernelspec = lite.KERNELSPEC
    nbformat.write(notebook, first)
    with lite_run.served(core_site) as address, chromium() as browser:
        cells, refused = lite_run.run_notebook(
            browser, address, f"notebooks/{first.name}"
        )
    assert lite_run.faults(cells, refused) == []
    found, header = lite_run.printed(cells).splitlines()
    credit = root / "cfhelpers" / "datasets" / "uci_credit.npz"
    assert found.split() == [cfhelpers.__version__, str(credit.stat().st_size)]
    reported = root / "results" / "reported_values.csv"
    assert header == reported.read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.stress
def test_every_lesson_is_in_the_site(core_site):
    listed = json.loads(
        (core_site / "api" / "contents" / "notebooks" / "all.json").read_text()
    )
    numbers = sorted(each["name"][:2] for each in listed["content"])
    assert numbers == list(lite.LESSONS)
