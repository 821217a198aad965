"""Processes that die and disks that are full: nothing that was counted is lost."""

import builtins
import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from test_scale import people, write

from cfhelpers import _counting, scale

pa = pytest.importorskip("pyarrow")
PATIENCE = 600  # seconds, on a machine that does much else
DRIVER = """
import sys
import held_counting
from cfhelpers import scale
held_counting.hold()
files, kept, answer = sys.argv[1:]
found = scale.audit_at_scale(
    files, threshold=0.5, folder=kept, executor="ray", progress=False
)
found.table.to_csv(answer)
"""


def wait_for(folder, pattern, n=1):
    """The files that match, as soon as there are so many."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = sorted(folder.glob(pattern))
        if len(found) >= n:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"no {pattern} in {folder}")


def process_of(note) -> int:
    """The worker that began to count."""
    return int(note.name.rpartition("-")[2])


@pytest.mark.slow
def test_a_worker_and_then_the_driver_are_killed_and_nothing_is_counted_again(
    tmp_path, monkeypatch, real_ray
):
    files = write(tmp_path / "data", people(0), 5)
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("HELD_COUNTING", str(notes))
    for name in ("part2", "part4"):
        (notes / f"hold-{name}").touch()
    places = [tmp_path / "data", tmp_path / "kept", tmp_path / "answer.csv"]
    command = [sys.executable, "-c", DRIVER, *map(str, places)]
    with subprocess.Popen(command) as driver:
        (first,) = wait_for(notes, "begin-part2-*")
        os.kill(process_of(first), signal.SIGKILL)
        wait_for(notes, "begin-part2-*", 2)
        (notes / "hold-part2").unlink()
        wait_for(notes, "end-part2-*")
        (last,) = wait_for(notes, "begin-part4-*")
        for name in ("part0", "part1", "part3"):
            wait_for(notes, f"end-{name}-*")
        driver.kill()
    with contextlib.suppress(ProcessLookupError):  # Ray ends it too, some time later
        os.kill(process_of(last), signal.SIGKILL)
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 4
    assert not places[2].exists()
    (notes / "hold-part4").rename(notes / "go-on")
    begun = set(notes.glob("begin-*"))
    subprocess.run(command, check=True, timeout=PATIENCE)
    (resumed,) = set(notes.glob("begin-*")) - begun
    assert resumed.name.startswith("begin-part4-")
    for i in range(5):
        assert len(list(notes.glob(f"end-part{i}-*"))) == 1
    wanted = scale.audit_at_scale(
        files, threshold=0.5, folder=tmp_path / "other", progress=False
    )
    assert places[2].read_text() == wanted.table.to_csv()


def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(tmp_path):
    files = write(tmp_path / "data", people(0))
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)]
    try:
        is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    if not is_mounted:
        pytest.skip("only root can make a small disk")
    options = {"metric": "equal_opportunity", "folder": small, "progress": False}
    try:
        with pytest.raises(ValueError, match=r"no space left in .* to keep the counts"):
            scale.find_threshold_at_scale(files, **options)
        assert not list(small.glob("*partial*"))
        larger = ["mount", "-o", "remount,size=16m", str(small)]
        subprocess.run(larger, check=True)
        found = scale.find_threshold_at_scale(files, **options)
    finally:
        subprocess.run(["umount", str(small)], check=True)
    wanted = scale.find_threshold_at_scale(files, **options | {"folder": tmp_path / "k"})
    assert found.threshold.tolist() == wanted.threshold.tolist()


@pytest.mark.parametrize(
    "name, told",
    [
        ("pyarrow", r"need pyarrow: pip install 'cfhelpers\[data\]'"),
        ("ray", r"Ray is not installed; pip install 'cfhelpers\[scale\]'"),
    ],
)
def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch, name, told):
    files = write(tmp_path / "data", people(0))
    plain_import = builtins.__import__

    def without(module, *rest):
        if module.partition(".")[0] == name:
            raise ImportError(module)
        return plain_import(module, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "executor": "ray"}
    with pytest.raises(ImportError, match=told):
        scale.audit_at_scale(files, progress=False, **options)


def test_without_tqdm_there_is_no_bar_but_a_sentence(tmp_path, monkeypatch):
    files = write(tmp_path / "data", people(0))
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.warns(UserWarning, match="a bar needs tqdm"):
        found = scale.audit_at_scale(files, threshold=0.5, folder=tmp_path / "kept")
    assert found.sizes["count"].sum() == 300


def test_an_executor_that_is_none_is_refused_and_one_that_loses_files_is_told(tmp_path):
    files = write(tmp_path / "data", people(0))
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    with pytest.raises(ValueError, match=r"executor: found 'spark'; wanted None"):
        scale.audit_at_scale(files, executor="spark", **options)

    def loses_one(function, items):
        return map(function, list(items)[1:])

    with pytest.raises(ValueError, match=r"gave no result for '.*part0.parquet'"):
        scale.audit_at_scale(files, executor=loses_one, **options)


def test_every_damaged_file_is_named(tmp_path):
    files = write(tmp_path / "data", people(0))
    for file in files[:2]:
        file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError) as told:
        scale.audit_at_scale(files, threshold=0.5, folder=tmp_path / "kept")
    for file in files[:2]:
        assert f"'{file}' is damaged or is no Parquet file" in str(told.value)


def test_a_file_that_changes_while_it_is_counted_is_named_and_not_kept(
    tmp_path, monkeypatch
):
    files = write(tmp_path / "data", people(0))
    count = _counting.count_file

    def with_a_writer_beside(path, *rest):
        found = count(path, *rest)
        if path == files[1]:
            people(7, n=50).to_parquet(path)
        return found

    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    with monkeypatch.context() as patch:
        patch.setattr(_counting, "count_file", with_a_writer_beside)
        with pytest.raises(ValueError, match=r"part1.parquet' changed while it was"):
            scale.audit_at_scale(files, **options)
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 2
    again = scale.audit_at_scale(files, **options)
    fresh = scale.audit_at_scale(files, **options | {"folder": tmp_path / "other"})
    pd.testing.assert_frame_equal(again.table, fresh.table)


def test_folders_in_a_folder_are_told_and_found_by_a_pattern(tmp_path):
    frame = people(0)
    for day, part in ((1, frame[:100]), (2, frame[100:])):
        folder = tmp_path / "data" / f"day={day}"
        folder.mkdir(parents=True)
        part.to_parquet(folder / "a b [ü].parquet")
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    with pytest.raises(ValueError, match=r"2 in folders below it.*must be a column"):
        scale.audit_at_scale(tmp_path / "data", **options)
    found = scale.audit_at_scale(f"{tmp_path}/data/**/*.parquet", **options)
    assert found.sizes["count"].sum() == 300
    one = tmp_path / "data" / "day=1" / "a b [ü].parquet"
    assert scale.audit_at_scale(str(one), **options).sizes["count"].sum() == 100


def test_a_folder_that_cannot_keep_counts_is_told_before_anything_is_counted(
    tmp_path, monkeypatch
):
    files = write(tmp_path / "data", people(0))
    no_folder = tmp_path / "a file"
    no_folder.touch()
    monkeypatch.setattr(_counting, "count_file", None)  # is not called
    for folder in (no_folder, no_folder / "below"):
        with pytest.raises(ValueError, match=r"folder: .* cannot keep counts"):
            scale.audit_at_scale(files, threshold=0.5, folder=folder, progress=False)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"files": None}, r"files: found None; wanted paths"),
        ({"files": [3]}, r"files: found \[3\]; wanted paths"),
        ({"groups": []}, r"groups: found no column"),
        ({"columns": "p_0"}, r"columns: found 'p_0'; wanted the names of several"),
        ({"columns": ["p_0"]}, r"columns: found \['p_0'\]; wanted"),
        ({"sample_weight": [1]}, r"sample_weight: .* counts have no weights"),
        ({"groups": "lists"}, r"lists: found list<.*>; wanted one name"),
        ({"columns": ["p_0", "p_1"]}, r"label: found 2"),
        ({"columns": ["p_0", "p_1", "p_1"]}, r"columns: found the label 1 twice in p_0"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, told):
    frame = people(0).assign(lists=[["a"]] * 300)
    given = {"files": write(tmp_path / "data", frame, 1), "folder": tmp_path / "kept"}
    given |= {"progress": False} | options
    with pytest.raises(ValueError, match=told):
        scale.audit_at_scale(threshold=0.5, **given)
    with pytest.raises(ValueError, match=told):
        scale.find_threshold_at_scale(metric="equal_opportunity", **given)


def test_columns_of_one_name_are_told(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    half = pa.array([0.5, 0.5])
    columns = [half, half, half, pa.array([0, 1]), pa.array(["a", "b"])]
    names = ["p_0", "p_1", "p_1", "label", "group"]
    pq.write_table(pa.table(columns, names), tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match=r"has several columns 'p_1'"):
        scale.audit_at_scale(tmp_path, threshold=0.5, folder=tmp_path / "kept")


def test_two_runs_at_once_keep_their_counts_in_one_folder(tmp_path):
    files = write(tmp_path / "data", people(0), 6)
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(scale.audit_at_scale, files, **options) for _ in range(4)]
        tables = [run.result().table for run in runs]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 6
    assert not list((tmp_path / "kept").glob("*partial*"))


def test_an_unknown_option_is_named(tmp_path):
    files = write(tmp_path / "data", people(0))
    with pytest.raises(TypeError, match=r"found an option 'gurantee'; wanted one of"):
        scale.find_threshold_at_scale(
            files, metric="equal_opportunity", gurantee="fixed-sequence"
        )


CUT_OFF = """
import os
import sys
from cfhelpers import _parquet, scale
_parquet.ROWS_AT_ONCE = _parquet.MOST_ROWS_AT_ONCE = 1000
add = _parquet.Counter.add
def cut_off_and_add(self, batch, first_row):
    add(self, batch, first_row)
    if first_row == 2000:
        os.truncate(sys.argv[1], 100_000)
_parquet.Counter.add = cut_off_and_add
scale.audit_at_scale(sys.argv[1], threshold=0.5, folder=sys.argv[2], progress=False)
"""


def test_a_file_that_is_cut_off_while_it_is_counted_is_named(tmp_path):
    (file,) = write(tmp_path / "data", people(0, n=20_000), 1)
    command = [sys.executable, "-c", CUT_OFF, str(file), str(tmp_path / "kept")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert told.returncode == 1, told.stderr  # not ended by a signal
    assert f"files: '{file}' changed while it was counted" in told.stderr


def test_columns_that_are_gone_when_a_file_is_counted_are_told(tmp_path, monkeypatch):
    files = write(tmp_path / "data", people(0))
    look = _counting.look

    def and_then_the_columns_change(*given):
        layout = look(*given)
        people(0).drop(columns="p_1").to_parquet(files[1])
        return layout

    monkeypatch.setattr(scale, "look", and_then_the_columns_change)
    with pytest.raises(ValueError, match=r"^files: .*part1.parquet' has no column 'p_1'"):
        scale.audit_at_scale(files, threshold=0.5, folder=tmp_path / "kept")


def test_an_executor_that_does_a_task_twice_counts_nobody_twice(tmp_path):
    files = write(tmp_path / "data", people(0))
    options = {"threshold": 0.5, "progress": False}

    def does_all_twice(function, items):
        return map(function, [*items, *items[::-1]])

    found = scale.audit_at_scale(
        files, executor=does_all_twice, folder=tmp_path / "a", **options
    )
    wanted = scale.audit_at_scale(files, folder=tmp_path / "b", **options)
    assert found.sizes["count"].sum() == 300
    pd.testing.assert_frame_equal(found.table, wanted.table)


def test_an_executor_that_gives_no_results_is_told(tmp_path):
    files = write(tmp_path / "data", people(0))
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    with pytest.raises(ValueError, match=r"executor: it gave None; wanted what"):
        scale.audit_at_scale(files, executor=lambda function, items: None, **options)
    with ThreadPoolExecutor(1) as pool:

        def gives_futures(function, items):
            return [pool.submit(function, item) for item in items]

        with pytest.raises(ValueError, match=r"executor: it gave a Future; wanted what"):
            scale.audit_at_scale(files, executor=gives_futures, **options)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"random_state": -1}, r"^random_state: found -1; wanted an integer from 0"),
        ({"random_state": "x"}, r"^random_state: found 'x'; wanted"),
        ({"random_state": True}, r"^random_state: found True; wanted"),
        ({"penalty": "x"}, r"^penalty: found 'x'; wanted a number that is not below 0"),
        ({"penalty": float("nan")}, r"^penalty: found nan; wanted"),
        ({"k_reg": -2}, r"^k_reg: found -2; wanted an integer from 0"),
        ({"k_reg": 1.5}, r"^k_reg: found 1.5; wanted"),
        ({"k_reg": None}, r"^k_reg: found None; wanted"),
    ],
)
def test_options_of_scores_are_told_once_and_before_anything_is_counted(
    tmp_path, monkeypatch, options, told
):
    files = write(tmp_path / "data", people(0))
    monkeypatch.setattr(_counting, "count_file", None)  # is not called
    options = {"score": "raps", "folder": tmp_path / "kept"} | options
    with pytest.raises(ValueError, match=told) as error:
        scale.audit_at_scale(files, threshold=0.5, **options)
    assert len(str(error.value).splitlines()) == 1


def test_a_row_that_would_count_twice_is_told(tmp_path):
    files = write(tmp_path / "data", people(0))
    options = {"unlabelled": files[1:2], "folder": tmp_path / "kept"}
    told = r"unlabelled: found .*part1.parquet', which is among `files` too"
    with pytest.raises(ValueError, match=told):
        scale.find_threshold_at_scale(files, metric="demographic_parity", **options)
    with pytest.raises(ValueError, match=told):
        scale.audit_at_scale(files, threshold=0.5, **options)
