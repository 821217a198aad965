"""Damaged and hostile files: told in words, never a wrong result, nothing elsewhere."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import runs
import yaml
from damage import HOSTILE_NAMES, damaged, spoilt
from stress_counts import cases as count
from test_audit_files import ACCEPTED, BOTH
from test_monitoring import watched
from test_scale import people, write

from cfhelpers import FairConformalClassifier, Monitor, _cache, paths, scale
from cfhelpers.auditing import audit_file, command
from cfhelpers.auditing import report as reports
from cfhelpers.datasets import _openml, load_dataset
from cfhelpers.datasets._files import DownloadError, raised_as_download_error
from cfhelpers.regression import FairConformalRegressor
from cfhelpers.study import stored_rows

FORMS = {
    "semicolons": "csv",
    "UTF-16": "UTF-16",
    "gzip": "gzip",
    "zip": "zip",
    "xz": "xz",
    "parquet": "parquet",
    "feather": "feather",
}
PROBS = np.random.default_rng(0).dirichlet([2, 1, 1], 300)
LABELS = np.random.default_rng(1).integers(0, 3, 300)
SEXES = np.random.default_rng(2).choice(["f", "m"], 300)


def refused(call):
    """The words in which a call was refused; empty where it worked.

    Anything but a ValueError or an OSError passes through and fails the test.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except (ValueError, OSError, DownloadError) as error:
            text = str(error)
            in_our_words = type(error) is ValueError or not isinstance(error, ValueError)
            assert text.strip() and in_our_words, repr(error)
            return text
    return ""


def run_command(*arguments):
    """The exit status of the command, what it printed, and what it complained of."""
    out = io.StringIO()
    complaints = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaints):
        try:
            status = command.main(list(map(str, arguments)))
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), complaints.getvalue()


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


# Files of predictions.


@pytest.mark.parametrize("form", FORMS)
def test_damaged_predictions_are_read_or_refused_in_words(tmp_path, form, ran):
    name, data, options, _ = ACCEPTED[form]
    rng = np.random.default_rng(len(form))
    n = count(15)
    n_refused = 0
    for _ in range(n):
        file = tmp_path / name
        file.write_bytes(damaged(data, rng))
        text = refused(lambda file=file: audit_file(file, **options))
        n_refused += bool(text)
        assert "Traceback" not in text
    ran(n, "damaged files")
    assert n_refused > 0


def test_the_command_never_ends_in_a_traceback(tmp_path, ran):
    rng = np.random.default_rng(0)
    name, data, _, _ = ACCEPTED["commas"]
    n = count(6, 0.1)
    seen = set()
    for _ in range(n):
        file = tmp_path / name
        file.write_bytes(damaged(data, rng))
        status, _, complaints = run_command(
            "audit", file, "--cutoff", "0.5", "--json", tmp_path / "out.json"
        )
        seen.add(status)
        assert status in (0, 2) and "Traceback" not in complaints
        if status == 2:
            assert complaints.startswith("cfhelpers audit: ")
    ran(n, "damaged files")
    assert 2 in seen


@pytest.mark.parametrize("place", ["group", "label", "column"])
def test_hostile_names_are_shown_and_nothing_is_written_elsewhere(
    tmp_path, place, ran, monkeypatch
):
    names = [name for name in HOSTILE_NAMES if "\x00" not in name]
    inside = tmp_path / "some" / "where" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    rng = np.random.default_rng(3)
    n = 40 * len(names)
    frame = pd.DataFrame({"set_no": rng.random(n) < 0.5, "set_yes": rng.random(n) < 0.8})
    frame["y"] = rng.choice(["no", "yes"], n)
    frame["group"] = rng.choice(["a", "b"], n)
    options = ["--groups", "group"]
    if place == "group":
        frame["group"] = rng.choice(names, n)
    elif place == "label":
        frame = frame.drop(columns=["set_no", "set_yes", "y"])
        for name in names:
            frame[f"set_{name}"] = rng.random(n) < 0.6
        frame["y"] = rng.choice(names, n)
    else:
        frame = frame.rename(columns={"group": names[0]})
        frame[names[7]] = rng.choice(["c", "d"], n)
        options = ["--groups", names[0]]
    frame.astype({c: int for c in frame if c.startswith("set_")}).to_parquet("p.parquet")
    before = files_in(tmp_path)
    status, out, complaints = run_command(
        "audit", "p.parquet", *options, "--label", "y", "--output", "out/page.html",
        "--card", "out/card.md", "--min-group", "1",
    )  # fmt: skip
    assert status == 0, complaints
    new = files_in(tmp_path) - before
    assert new and all(name.startswith("some/where/deep/out") for name in new)
    for text in (out, complaints, Path("out/card.md").read_text("utf-8")):
        assert not {"\x1b", "\x07", "\x00", "\r", "\u202e"} & set(text)
    ran(len(names), "names")


def test_a_hostile_archive_writes_nothing(tmp_path, ran):
    import zipfile

    for place, name in enumerate(HOSTILE_NAMES):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr(name.replace("\x00", ""), BOTH.to_csv(index=False))
        folder = tmp_path / str(place) / "inside"
        folder.mkdir(parents=True)
        (folder / "a.zip").write_bytes(content.getvalue())
        before = files_in(tmp_path)
        text = refused(
            lambda folder=folder: audit_file(
                folder / "a.zip", cutoff="0.5", metrics="demographic_parity"
            )
        )
        assert files_in(tmp_path) == before and "\x1b" not in text
    ran(len(HOSTILE_NAMES), "archives")


# JSON: thresholds, monitors, earlier audits.


def classifiers():
    """What `to_dict` of the predictors gives, in several forms."""
    options = {"guarantee": "none", "random_state": 0, "metric": "demographic_parity"}
    found = []
    for more in ({}, {"conformity_score": "tps"}, {"per_group": True}):
        fair = FairConformalClassifier(**options | more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(fair.fit(PROBS, LABELS, SEXES).to_dict())
    return [json.loads(json.dumps(each)) for each in found]


def serve(written):
    """Restore a classifier and serve with it."""
    fair = FairConformalClassifier.from_dict(written)
    groups = SEXES[:20] if fair.per_group else None
    sets = (
        fair.predict_set(PROBS[:20], groups=groups)
        if fair.per_group
        else (fair.predict_set(PROBS[:20]))
    )
    assert sets.shape == (20, 3)
    str(fair.promise_)


def test_spoilt_thresholds_are_served_or_refused_in_words(ran):
    rng = np.random.default_rng(4)
    kinds = classifiers()
    for written in kinds:
        serve(written)
    n = count(60)
    n_refused = 0
    for i in range(n):
        n_refused += bool(refused(lambda i=i: serve(spoilt(kinds[i % 3], rng))))
    ran(n, "spoilt documents")
    assert n_refused > n / 20


def test_a_spoilt_regressor_is_served_or_refused_in_words(ran):
    rng = np.random.default_rng(5)
    predictions = rng.normal(size=300)
    outcomes = predictions + rng.normal(size=300)
    fair = FairConformalRegressor(guarantee="none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = fair.fit(predictions, outcomes, SEXES).to_dict()
    written = json.loads(json.dumps(written))

    def serve_intervals(each):
        found = FairConformalRegressor.from_dict(each)
        found.predict_interval(predictions[:20])

    serve_intervals(written)
    n = count(40)
    n_refused = 0
    for _ in range(n):
        n_refused += bool(refused(lambda: serve_intervals(spoilt(written, rng))))
    ran(n, "spoilt documents")
    assert n_refused > n / 20


def test_a_spoilt_monitor_is_continued_or_refused_in_words(tmp_path, ran):
    rng = np.random.default_rng(6)
    state = json.loads(json.dumps(watched().to_dict()))
    week = (np.ones((50, 3), bool), np.zeros(50, int), np.repeat(["men", "women"], 25))

    def go_on(each):
        file = tmp_path / "state.json"
        file.write_text(json.dumps(each), encoding="utf-8")
        monitor = Monitor.load(file)
        monitor.update(*week)
        str(monitor.verdict)
        monitor.save(file)

    go_on(state)
    n = count(40)
    n_refused = 0
    for _ in range(n):
        n_refused += bool(refused(lambda: go_on(spoilt(state, rng))))
    ran(n, "spoilt documents")
    assert n_refused > n / 20


def test_a_spoilt_earlier_audit_is_compared_or_refused_in_words(tmp_path, ran):
    rng = np.random.default_rng(7)
    predictions = tmp_path / "a.csv"
    BOTH.to_csv(predictions, index=False)
    found = audit_file(predictions, cutoff="0.5", metrics="demographic_parity")
    document = reports.document(found)
    earlier = json.loads(json.dumps(document))
    file = tmp_path / "earlier.json"

    def compare(each):
        file.write_text(json.dumps(each), encoding="utf-8")
        read = reports.read_document(file)
        reports.compared(reports.document(found, read), read)

    compare(earlier)
    n = count(40)
    n_refused = 0
    for _ in range(n):
        n_refused += bool(refused(lambda: compare(spoilt(earlier, rng))))
    ran(n, "spoilt documents")
    assert n_refused > 0


# Raw files.


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A folder with the raw files of one state and of a small Pokec."""
    folder = tmp_path_factory.mktemp("raw")
    drawn = tmp_path_factory.mktemp("drawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "DATA", drawn)
        load_dataset("acs_income", source="simulated", n=200)
        load_dataset("pokec_n", source="simulated", n=200)
    state = next(drawn.rglob("psam_p*.csv"))
    (folder / "2018" / "1-Year").mkdir(parents=True)
    shutil.copy(state, folder / "2018" / "1-Year")
    (folder / "pokec").mkdir()
    for name in ("region_job_2.csv", "region_job_2_relationship.txt"):
        shutil.copy(next(drawn.rglob(name)), folder / "pokec")
    return folder


RAW = {
    "ACS": ("acs_income", "psam_p*.csv"),
    "Pokec's users": ("pokec_n", "region_job_2.csv"),
    "Pokec's friendships": ("pokec_n", "region_job_2_relationship.txt"),
}


@pytest.mark.parametrize("which", RAW)
def test_damaged_raw_files_are_loaded_or_refused_in_words(
    raw, tmp_path, which, ran, home, monkeypatch
):
    dataset, pattern = RAW[which]
    folder = shutil.copytree(raw, tmp_path / "raw")
    monkeypatch.setenv("CFHELPERS_DATA", str(folder))
    (file,) = folder.rglob(pattern)
    data = file.read_bytes()
    load_dataset(dataset, source="local")
    rng = np.random.default_rng(8)
    n = count(12, 0.5)
    n_refused = 0
    for _ in range(n):
        file.write_bytes(damaged(data, rng))
        text = refused(lambda: load_dataset(dataset, source="local"))
        n_refused += bool(text)
        assert not text or file.name in text or "file" in text, text
    ran(n, "damaged files")
    assert n_refused > 0


def test_damaged_tables_of_openml_are_read_or_refused_in_words(tmp_path, ran):
    text = "@RELATION acs\n@ATTRIBUTE AGEP REAL\n@ATTRIBUTE 'ST' REAL\n@DATA\n1,2\n3,?\n"
    file = tmp_path / "a.arff"
    rng = np.random.default_rng(9)
    n = count(60)
    n_refused = 0

    def read():
        with raised_as_download_error("https://example.org"):
            _openml.read_arff(file)

    for _ in range(n):
        file.write_bytes(damaged(text.encode(), rng))
        n_refused += bool(refused(read))
        stated = {"id": "61", "name": "iris", "url": "https://x", "md5_checksum": "ad"}
        answer = json.dumps(spoilt({"data_set_description": stated}, rng))
        n_refused += bool(refused(lambda a=answer: _openml.parse_description(a, 61)))
    ran(2 * n, "damaged files")
    assert n_refused > 0


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_of_data_are_refused(home, tmp_path, name):
    asked = [
        lambda: load_dataset(name),
        lambda: load_dataset("acs_income", source="simulated", n=100, states=[name]),
        lambda: load_dataset("acs_income", source="simulated", n=100, horizon=name),
        lambda: load_dataset("acs_income", source=name, n=100),
        lambda: load_dataset("acs_income", source="simulated", n=100, attribute=name),
    ]
    before = {each for each in files_in(tmp_path) if not each.startswith("data")}
    for ask in asked:
        text = refused(ask)
        assert text, ask
    after = {each for each in files_in(tmp_path) if not each.startswith("data")}
    assert after == before


# Profiles.


@pytest.mark.parametrize(
    "text, message",
    [
        ("09_a: [{dataset: credit}]\n09_a: []\n", "found 09_a twice; wanted each once"),
        ("09_a: [{dataset: credit, dataset: acs}]\n", "found dataset twice"),
        ("[" * 20_000, "maximum recursion depth"),
        ("09_a: !!python/object/apply:os.getcwd []\n", "could not determine"),
        ("09_a: !own x\n", "could not determine a constructor for the tag '!own'"),
    ],
    ids=["a notebook twice", "a parameter twice", "too deep", "code", "a tag"],
)
def test_odd_profiles_are_refused_in_words(tmp_path, text, message):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "profiles" / "quick.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"quick\.yaml: cannot be read") as error:
        runs.read_profile("quick", tmp_path)
    assert message in str(error.value)


def test_damaged_profiles_are_planned_or_refused_in_words(root, tmp_path, ran):
    (tmp_path / "results").mkdir()
    (tmp_path / "profiles").mkdir()
    shutil.copy(root / "results" / "catalogue.csv", tmp_path / "results")
    (tmp_path / "notebooks").symlink_to(root / "notebooks")
    good = (root / "profiles" / "quick.yaml").read_text("utf-8")
    file = tmp_path / "profiles" / "quick.yaml"
    rng = np.random.default_rng(10)
    tree = yaml.safe_load(good)
    small = {key: tree[key] for key in list(tree)[:3]}
    n = count(12, 0.25)
    n_refused = 0
    for i in range(n):
        if i % 2:
            file.write_bytes(damaged(yaml.safe_dump(small).encode(), rng))
        else:
            file.write_text(yaml.safe_dump(spoilt(small, rng)), "utf-8")
        text = refused(lambda: runs.plan("quick", tmp_path))
        n_refused += bool(text)
        assert not text or "quick.yaml" in text, text
    ran(n, "damaged files")
    assert n_refused > 0


# Caches: the same result, or computed again.


def test_a_damaged_artifact_is_computed_again(tmp_path, monkeypatch, ran):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    rows = pd.DataFrame({"c": np.arange(50) / 7, "name": ["a", "b"] * 25})
    n_computed = 0

    def compute():
        nonlocal n_computed
        n_computed += 1
        return rows

    def ask():
        return _cache.cached_frame("toy", {"n": 1}, compute, code="cfhelpers.scores")

    ask()
    (file,) = (tmp_path / "artifacts").iterdir()
    good = file.read_bytes()
    rng = np.random.default_rng(11)
    n = count(40)
    for _ in range(n):
        file.write_bytes(damaged(good, rng))
        pd.testing.assert_frame_equal(ask(), rows)
    ran(n, "damaged files")
    assert n_computed > n / 3


def test_damaged_kept_counts_are_counted_again(tmp_path, ran):
    files = write(tmp_path / "data", people(0, n=60), n_files=2)
    kept = tmp_path / "kept"
    asked = {"threshold": 0.5, "folder": kept, "progress": False}
    wanted = scale.audit_at_scale(files, **asked)
    good = {file: file.read_bytes() for file in kept.glob("*.npz")}
    assert len(good) == 2
    rng = np.random.default_rng(12)
    n = count(12, 0.2)
    for _ in range(n):
        for file, data in good.items():
            file.write_bytes(damaged(data, rng))
        found = scale.audit_at_scale(files, **asked)
        pd.testing.assert_frame_equal(found.table, wanted.table)
    ran(2 * n, "damaged files")


def test_damaged_parquet_of_a_stream_is_counted_or_refused_in_words(tmp_path, ran):
    files = write(tmp_path / "data", people(0, n=60), n_files=2)
    good = files[0].read_bytes()
    rng = np.random.default_rng(13)
    n = count(12, 0.2)
    n_refused = 0
    for place in range(n):
        files[0].write_bytes(damaged(good, rng))
        folder = tmp_path / f"kept{place}"
        asked = {"threshold": 0.5, "folder": folder, "progress": False}
        text = refused(lambda a=asked: scale.audit_at_scale(files, **a))
        n_refused += bool(text)
    ran(n, "damaged files")
    assert n_refused > 0


def test_damaged_rows_are_never_taken_for_good_ones(tmp_path, monkeypatch, ran):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    rng = np.random.default_rng(14)
    place = {"profile": "quick", "dataset": "credit", "attribute": "age"}
    rows = pd.DataFrame({"gap": rng.random(40), "split": np.arange(40)})
    rows = rows.assign(**place, training_split=0, key="the key")
    file = stored_rows.save_rows(rows)
    good = file.read_bytes()
    n = count(60)
    n_refused = 0
    for _ in range(n):
        file.write_bytes(damaged(good, rng))
        found = stored_rows.read_stored(file, "the key", 40)
        n_refused += found is None
        if found is not None:
            pd.testing.assert_frame_equal(found, rows)
    ran(n, "damaged files")
    assert n_refused > n / 3


# Guided by coverage.

GUIDED = ("open_table", "monitor", "classifier", "earlier audit", "arff", "profile")


@pytest.mark.stress
@pytest.mark.parametrize("reader", GUIDED)
def test_inputs_that_coverage_finds_are_refused_in_words(root, tmp_path, reader, ran):
    """By atheris, which has a folder of its own: it is not among what tests need."""
    folder = root / ".fuzz"
    has_atheris = subprocess.run(
        [sys.executable, "-c", "import atheris"],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
    )
    if has_atheris.returncode:
        pytest.skip("atheris is not installed: pip install --target .fuzz atheris")
    n = count(1000, 10)
    script = root / "tests" / "stress" / "guided.py"
    done = subprocess.run(
        [sys.executable, script, reader, str(n), tmp_path, folder],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert f"Done {n} runs in" in done.stderr
    assert re.search(r"^#\d+\s+NEW", done.stderr, re.MULTILINE)  # coverage was seen
    ran(n, "inputs")
