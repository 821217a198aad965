"""Processes that die, full disks, clocks that lie: the same results, or words."""

import ast
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
import time

import nbformat
import numpy as np
import pandas as pd
import pytest
from killing import kill_at_random_moments, seconds_of
from nbformat.v4 import new_code_cell, new_notebook
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from stress_counts import cases as count
from test_audit_files import BOTH
from test_datasets_files import Server
from test_runs import check_that_a_killed_run_gives_the_same_rows
from test_scale import people, write

import notebooks as tool
from cfhelpers import Monitor, _cache, paths, scale

HEAD = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
os.environ["CFHELPERS_HOME"] = str(folder)
from cfhelpers.paths import atomic_write

def answer(text):
    with atomic_write(folder / "answer") as partial:
        partial.write_text(text)
"""
# How many of the kills each kind of work gets.
KILLS = {
    "download": 4,
    "streaming": 4,
    "report": 3,
    "tuning": 3,
    "training": 2,
    "book": 2,
    "batch": 2,
}
WORK = {
    "download": """
        from cfhelpers.datasets._files import fetch
        found = []
        for place in range(4):
            name = f"file{place}"
            file = fetch(f"{sys.argv[2]}/{name}", folder / "data" / name, lambda p: None)
            found.append(file.read_text())
        answer("".join(found))
    """,
    "streaming": """
        from cfhelpers import scale
        found = scale.find_threshold_at_scale(
            sorted(Path(sys.argv[2]).glob("*.parquet")), metric="equal_opportunity",
            closeness=0.5, folder=folder / "kept", progress=False,
        )
        answer(repr(found.threshold.tolist()) + repr(found.smallest_closeness))
    """,
    "report": """
        import json
        from cfhelpers.auditing.command import main
        page = str(folder / "out" / "page.html")
        options = ["--cutoff", "0.5", "--output", page, "--card", str(folder / "card.md")]
        assert main(["audit", sys.argv[2], *options]) == 0
        document = json.loads((folder / "out" / "page.json").read_text())
        names = sorted(path.name for path in folder.rglob("[!.]*"))  # but for leavings
        names = [name for name in names if name != "answer"]
        answer(json.dumps([document["verdicts"], document["cells"], names]))
    """,
    "tuning": """
        import test_tuning

        class Slow(test_tuning.PretendedWorkers):
            def results(self, units):
                for result in super().results(units):
                    time.sleep(0.02)
                    yield result

        search = test_tuning.finished_search(folder / "trials.csv", Slow())
        answer(search.table().to_csv() + str(search.best()))
    """,
    "training": """
        from toy import toy
        from cfhelpers.datasets import split
        from cfhelpers.study.models import base_model
        dataset = toy()
        few = {"n_estimators": 40}
        found = base_model(
            dataset, split(dataset, 0), "xgboost", parameters=few, progress=False
        )
        answer(repr(found.probs.tolist()))
    """,
    "book": """
        import book
        assert book.build(folder / "html") == 0
        pages = sorted((folder / "html").rglob("*.html"))
        answer(repr([(page.name, page.stat().st_size > 0) for page in pages]))
    """,
}


def begin(work, folder, root, *arguments):
    """A process at work, in a session of its own."""
    places = [root, root / "tests", root / "tools", os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(WORK[work]), folder, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )


def finish(work, folder, root, *arguments):
    """What the work gives when it is let alone."""
    folder.mkdir(exist_ok=True)
    assert begin(work, folder, root, *arguments).wait() == 0
    return (folder / "answer").read_text()


def check_killed_work(work, tmp_path, root, *arguments):
    """Undisturbed, and killed at random moments and resumed: the answers are equal."""
    kills = max(1, round(count(1) * KILLS[work] / sum(KILLS.values())))
    wanted = []
    seconds = seconds_of(
        lambda: wanted.append(finish(work, tmp_path / "whole", root, *arguments))
    )
    killed = tmp_path / "killed"
    killed.mkdir()

    def again():
        shutil.rmtree(killed)
        killed.mkdir()

    kill_at_random_moments(
        lambda: begin(work, killed, root, *arguments),
        seconds,
        kills,
        random.Random(len(work)),
        again,
    )
    assert finish(work, killed, root, *arguments) == wanted[0]
    return kills


def test_killed_downloads_go_on(tmp_path, root, ran):
    server = Server()

    def slowly(handler):
        time.sleep(0.05)
        handler.answer(handler.path.encode() * 5000)

    server.pages |= {f"file{place}": slowly for place in range(4)}
    try:
        ran(check_killed_work("download", tmp_path, root, server.url), "kills")
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.stress
def test_killed_streams_go_on(tmp_path, root, ran):
    write(tmp_path / "data", people(0, n=3000), n_files=12)
    ran(check_killed_work("streaming", tmp_path, root, tmp_path / "data"), "kills")


@pytest.mark.stress
def test_killed_reports_are_whole_or_absent(tmp_path, root, ran):
    file = tmp_path / "p.csv"
    BOTH.to_csv(file, index=False)
    kills = check_killed_work("report", tmp_path, root, file)
    for page in (tmp_path / "killed").rglob("page.html"):
        assert page.read_text("utf-8").rstrip().endswith("</html>")
    ran(kills, "kills")


@pytest.mark.stress
def test_a_killed_search_for_settings_goes_on(tmp_path, root, ran):
    ran(check_killed_work("tuning", tmp_path, root), "kills")


@pytest.mark.stress
def test_killed_training_gives_the_same_model(tmp_path, root, ran):
    pytest.importorskip("xgboost")
    ran(check_killed_work("training", tmp_path, root), "kills")


@pytest.mark.stress
def test_a_killed_book_is_built_again(tmp_path, root, ran):
    pytest.importorskip("sphinx")
    ran(check_killed_work("book", tmp_path, root), "kills")


@pytest.mark.stress
def test_a_killed_batch_gives_the_same_rows(tmp_path, root, ran):
    kills = max(1, round(count(1) * KILLS["batch"] / sum(KILLS.values())))
    check_that_a_killed_run_gives_the_same_rows(root, tmp_path, kills)
    ran(kills, "kills")


# No room, no permission.


def in_child(folder, body, *arguments, head=""):
    """The finished process of a few lines, with what it wrote to both streams."""
    code = HEAD + textwrap.dedent(head) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", code, folder, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


FULL = """
import resource
import pandas, numpy, cfhelpers.auditing.command, cfhelpers.study.stored_rows
import cfhelpers._cache, cfhelpers.monitoring
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
"""
STORED = {
    "an artifact": """
        from cfhelpers import _cache, paths
        try:
            large = {"x": numpy.zeros(9999)}
            _cache.cached("toy", {}, lambda: large, code="cfhelpers.scores")
        except OSError as error:
            print("refused", error)
    """,
    "rows": """
        from cfhelpers.study import stored_rows
        rows = pandas.DataFrame({"gap": numpy.random.random(5000)})
        rows = rows.assign(
            profile="quick", dataset="credit", attribute="age", training_split=0
        )
        try:
            stored_rows.save_rows(rows)
        except OSError as error:
            print("refused", error)
    """,
    "a monitor": """
        from test_monitoring import watched
        try:
            watched(weeks=40).save(folder / "state.json")
        except OSError as error:
            print("refused", error)
    """,
    "a report": """
        from cfhelpers.auditing.command import main
        status = main(["audit", sys.argv[2], "--cutoff", "0.5",
                       "--output", str(folder / "page.html")])
        assert status == 2
        print("refused")
    """,
}


@pytest.mark.parametrize("what", STORED)
def test_where_there_is_no_room_it_is_said_and_nothing_half_is_left(tmp_path, what, ran):
    pytest.importorskip("resource")
    file = tmp_path / "p.csv"
    BOTH.to_csv(file, index=False)
    folder = tmp_path / "home"
    folder.mkdir()
    done = in_child(folder, STORED[what], file, head=FULL)
    assert "refused" in done.stdout and "Traceback" not in done.stderr, done.stderr
    assert not list(folder.rglob(".*partial*"))
    for path in folder.rglob("*.html"):
        raise AssertionError(f"half of a page was left: {path}")
    ran(1, "disks that are full")


@contextlib.contextmanager
def read_only(folder):
    """A folder that cannot be written, for root neither."""
    folder.mkdir()
    if os.geteuid():
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    if not is_mounted:
        pytest.skip("root writes everywhere, and nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys, ran):
    from cfhelpers.auditing import command

    file = tmp_path / "p.csv"
    BOTH.to_csv(file, index=False)
    data = write(tmp_path / "data", people(0, n=60), n_files=1)
    with read_only(tmp_path / "locked") as locked:
        asked = ["audit", str(file), "--cutoff", "0.5"]
        for option in ("--output", "--json", "--card"):
            place = str(locked / "a.html")
            assert command.main([*asked, option, place]) == 2
            assert str(locked) in capsys.readouterr().err
        monkeypatch.setattr(paths, "ARTIFACTS", locked)
        with pytest.raises(OSError, match="locked"):
            _cache.cached("toy", {}, lambda: {"x": np.zeros(3)}, code="cfhelpers.scores")
        with pytest.raises(OSError, match="locked"):
            Monitor("demographic_parity").save(locked / "state.json")
        with pytest.raises((OSError, ValueError), match="locked"):
            scale.audit_at_scale(
                data, threshold=0.5, folder=locked / "kept", progress=False
            )
        assert not list(locked.iterdir())
    ran(6, "writes")


# Two at once, dead kernels, clocks.


def test_two_runs_at_once_give_what_one_gives(tmp_path, root, ran):
    write(tmp_path / "data", people(0, n=600), n_files=6)
    wanted = finish("streaming", tmp_path / "one", root, tmp_path / "data")
    shared = tmp_path / "shared"
    shared.mkdir()
    both = [begin("streaming", shared, root, tmp_path / "data") for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert (shared / "answer").read_text() == wanted
    assert not list(shared.rglob(".*partial*"))
    ran(2, "runs at once")


def test_a_kernel_that_dies_is_told_and_leaves_nothing(tmp_path, ran):
    from nbclient.exceptions import DeadKernelError

    source = tmp_path / "00_a.ipynb"
    cells = ["n: int = 1", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"]
    cells = [new_code_cell(each) for each in cells]
    cells[0].metadata["tags"] = ["parameters"]
    metadata = {"kernelspec": tool.KERNELSPEC}
    nbformat.write(new_notebook(cells=cells, metadata=metadata), source)
    target = tmp_path / "out" / "00_a.ipynb"
    with pytest.raises(DeadKernelError):
        tool.run(source, target, {})
    assert not target.exists() and not list(tmp_path.rglob(".*partial*"))
    ran(1, "dead kernels")


def set_clock(folder, seconds):
    """Every file below is so many seconds older; below 0: of the future."""
    for path in folder.rglob("*"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


@pytest.mark.parametrize("seconds", [-(10**8), 10**9], ids=["future", "past"])
def test_a_clock_that_was_set_changes_no_answer(tmp_path, monkeypatch, seconds, ran):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    calls = []

    def compute():
        calls.append(1)
        return {"x": np.arange(3.0)}

    asked = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    files = write(tmp_path / "data", people(0, n=60), n_files=2)
    for _ in range(2):
        _cache.cached("toy", {}, compute, code="cfhelpers.scores")
        first = scale.audit_at_scale(files, **asked)
        set_clock(tmp_path, seconds)
    assert len(calls) == 1
    # Other people in a file of the same size, and older than the counts of the former.
    other = people(1, n=60)
    write(tmp_path / "data", other, n_files=2)
    set_clock(tmp_path / "data", 10**9)
    found = scale.audit_at_scale(files, **asked)
    wanted = scale.audit_at_scale(files, **asked | {"folder": tmp_path / "anew"})
    pd.testing.assert_frame_equal(found.table, wanted.table)
    assert not found.table.equals(first.table)
    ran(2, "clocks")


# They end with the process that began them, also where it is killed.
BUSY = "import os; mine = os.getppid()\nwhile os.getppid() == mine: sum(range(10**6))"
UNDER_LOAD = ["test_cache.py", "test_monitoring.py", "test_datasets_files.py"]


@pytest.mark.stress
def test_no_test_fails_beside_four_busy_processes(root, ran):
    """Those that have threads, servers or processes of their own."""
    files = [str(root / "tests" / name) for name in UNDER_LOAD]
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(4)]
    try:
        options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow"]
        clean = {k: v for k, v in os.environ.items() if k != "CFHELPERS_CASES"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=root,
            env=clean,
            capture_output=True,
            text=True,
        )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert done.returncode == 0, done.stdout[-3000:]
    ran(int(re.search(r"(\d+) passed", done.stdout)[1]), "tests under load")


# Again and again.

BATCHES = """
import gc, json, warnings
import numpy as np, pandas as pd, psutil
from cfhelpers import FairConformalClassifier, Monitor, _cache, paths, scale
from cfhelpers.auditing import audit, audit_file
from cfhelpers.auditing import report
warnings.simplefilter("ignore")
paths.ARTIFACTS = folder / "artifacts"
rng = np.random.default_rng(0)

def batch(number):
    n = 200
    probs = rng.dirichlet([2, 1], n)
    y = rng.integers(0, 2, n)
    groups = rng.choice(["a", "b"], n)
    fair = FairConformalClassifier(guarantee="none", metric="demographic_parity")
    sets = fair.fit(probs, y, groups).predict_set(probs)
    audit(sets, y, groups, "demographic_parity")
    monitor = Monitor("demographic_parity", groups=["a", "b"])
    monitor.update(sets, None, groups).save(folder / "state.json")
    frame = pd.DataFrame(probs, columns=["p_0", "p_1"]).assign(y=y, group=groups)
    frame.to_csv(folder / "p.csv", index=False)
    found = audit_file(folder / "p.csv", cutoff="0.5", metrics="demographic_parity")
    report.page(report.document(found))
    (folder / "data").mkdir(exist_ok=True)
    frame.rename(columns={"y": "label"}).to_parquet(folder / "data" / "a.parquet")
    scale.audit_at_scale(
        [folder / "data" / "a.parquet"], threshold=0.5, folder=folder / "kept",
        progress=False,
    )
    _cache.cached("toy", {"n": number}, lambda: {"x": probs}, code="cfhelpers.scores")

process = psutil.Process()
used = []
for number in range(int(sys.argv[2]) + 8):
    batch(number)
    gc.collect()
    used.append([process.memory_info().rss, process.num_fds(), process.num_threads()])
answer(json.dumps(used[7:]))
"""


def test_memory_and_open_files_do_not_grow_with_tiny_batches(tmp_path, ran):
    """After eight batches to warm up; 24 more in `make stress`."""
    n = 24 if count(0) else 4
    done = in_child(tmp_path, BATCHES, n)
    assert done.returncode == 0, done.stderr[-3000:]
    used = np.array(json.loads((tmp_path / "answer").read_text()))
    growth = used[-1] / used[0] - 1
    assert (growth < 0.05).all(), used.tolist()
    ran(n, "batches")


# What is delivered.

PICKLES = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}
CALLS = {"eval", "exec", "os.system", "os.popen", "pickle.load", "pickle.loads"}


def sources(root):
    """Every module, tool and notebook, as a name and Python text."""
    for folder in ("cfhelpers", "tools", "benchmarks"):
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path.read_text("utf-8")
    for path in sorted((root / "notebooks").rglob("*.ipynb")):
        for place, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if cell.cell_type == "code":
                yield f"{path.name}, cell {place}", cell.source


def faults_in(text, is_cell=True):
    """Pickles, shells, and texts that are run as code."""
    shell = re.search(r"^\s*(!|%%?(bash|sh|sx|system|script)\b)", text, re.MULTILINE)
    if shell and is_cell:
        return [f"a shell: {shell[0]}"]
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("%")]
    found = []
    for node in ast.walk(ast.parse("\n".join(lines))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [f"imports {n}" for n in names if n.split(".")[0] in PICKLES]
        if isinstance(node, ast.Call):
            found += fault_of_call(ast.unparse(node.func), node)
    return found


def fault_of_call(name, node):
    """What is wrong with one call."""
    given = {key.arg: ast.unparse(key.value) for key in node.keywords}
    if name in CALLS:
        return [f"calls {name}"]
    if given.get("allow_pickle", "False") != "False":
        return [f"{name} with allow_pickle"]
    if given.get("shell", "False") != "False":
        return [f"{name} with a shell"]
    if name == "torch.load" and given.get("weights_only") != "True":
        return ["torch.load without weights_only"]
    if name == "yaml.load" or name.endswith(("read_pickle", "to_pickle")):
        return [f"calls {name}"]
    return []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import dump",
        "np.load(f, allow_pickle=True)",
        "torch.load(f)",
        "subprocess.run('x', shell=True)",
        "os.system('x')",
        "!ls",
        "%%bash\nls",
        "pd.read_pickle(f)",
        "eval('1')",
    ],
)
def test_the_check_of_sources_sees(text):
    assert faults_in(text)


def test_no_pickle_no_shell_and_no_text_that_is_run(root, ran):
    found = []
    n = 0
    for name, text in sources(root):
        n += 1
        found += [f"{name}: {fault}" for fault in faults_in(text, ", cell " in name)]
    # trying a wheel as the README says is running the README's lines
    assert [
        fault for fault in found if fault != "tools/try_installed.py: calls exec"
    ] == []
    ran(n, "modules and cells")


def packages_reached(names):
    """All installed packages that these need, directly or not; an extra is a [name]."""
    found = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        key = (name, *sorted(asked.extras))
        if key in found:
            continue
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system, or an extra that nobody asked for
        found.add(key)
        for requirement in map(Requirement, needed):
            marker = requirement.marker
            extras = ["", *asked.extras]
            if marker is None or any(marker.evaluate({"extra": e}) for e in extras):
                waiting.append(requirement)
    return {name for name, *_ in found}


def test_every_package_that_is_needed_is_in_the_constraints(root, ran):
    lines = (root / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line}
    reached = packages_reached(["cfhelpers[study,test,book,course,browser]"])
    assert len(reached) > 150
    assert not reached - pinned - {"cfhelpers", "pip"}
    ran(len(reached), "packages")


OUTPUTS = ("results", "docs", "notebooks", "figures", "slides", "README.md")
PLACES = r"/(home|root|Users|work|tmp|private|mnt)/\w[\w.-]*/|[A-Z]:\\\\Users"


@pytest.mark.stress
def test_outputs_name_no_person_and_no_place(root, ran):
    listed = subprocess.run(
        ["git", "ls-files", *OUTPUTS], cwd=root, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a clone: git does not say what is stored")
    n = 0
    found = []
    for name in listed.stdout.splitlines():
        path = root / name
        if path.suffix in (".png", ".pdf", ".npz", ".ico", ".woff2") or not path.exists():
            continue
        n += 1
        if path.suffix == ".parquet":
            text = pd.read_parquet(path).astype(str).to_csv()
        else:
            text = path.read_text("utf-8", "replace")
        text = re.sub(r'"image/png": "[^"]*"', "", text)
        place = re.search(PLACES, text)
        if place:
            found.append(f"{name}: {place[0]}")
    assert not found
    ran(n, "files")


def test_known_weaknesses_of_packages_are_looked_up():
    """Needs pip-audit and its database on the network."""
    if importlib.util.find_spec("pip_audit") is None:
        pytest.skip("pip-audit is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--local", "--progress-spinner=off"],
        capture_output=True,
        text=True,
    )
    if "ConnectionError" in done.stderr or "Max retries" in done.stderr:
        pytest.skip("pip-audit cannot reach its database")
    assert done.returncode == 0, done.stdout
