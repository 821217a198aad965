"""A stream of files and memory agree, faults are named, and counts are kept."""

import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from cfhelpers import (
    _binning,
    _counting,
    _kept_counts,
    _parquet,
    bounds,
    control,
    paths,
    scale,
)
from cfhelpers import scores as score_functions
from cfhelpers.auditing import audit
from cfhelpers.metrics import LABEL_METRICS as METRICS

pq = pytest.importorskip("pyarrow.parquet")


def people(seed, n=300, n_classes=3, n_groups=3, ties=False, dtype=np.float64):
    """Simulated predictions, with ties if wanted; the last group is rare."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(n_classes), n)
    if ties:
        probs = np.round(probs * 8) + 1
        probs /= probs.sum(axis=1, keepdims=True)
    frame = pd.DataFrame(probs.astype(dtype)).add_prefix("p_")
    frame["label"] = (rng.random((n, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    frame["label"] = frame["label"].clip(upper=n_classes - 1)
    names = [f"g{i}" for i in range(n_groups)]
    shares = np.append(np.ones(n_groups - 1), 0.1)
    frame["group"] = rng.choice(names, n, p=shares / shares.sum())
    frame["id"] = [f"person {i}" for i in range(n)]
    return frame


def write(folder, frame, n_files=3):
    """The frame in several files of different sizes."""
    folder.mkdir(exist_ok=True)
    cuts = np.linspace(0, 1, n_files + 1)[1:-1] ** 2 * len(frame)
    files = []
    for i, part in enumerate(np.split(np.arange(len(frame)), cuts.astype(int))):
        files.append(folder / f"part{i}.parquet")
        frame.iloc[part].to_parquet(files[-1], row_group_size=50 + 30 * i)
    return files


def memory_scores(frame, score, id=None):
    """Scores of all rows at once."""
    probs = frame[[name for name in frame if name.startswith("p_")]].to_numpy()
    if score == "tps":
        return score_functions.tps(probs)
    who = np.round(probs.astype(np.float64), 6) if id is None else frame[id]
    u = score_functions.person_u(who, 0)
    return getattr(score_functions, score)(probs, u)


def assert_same(found, wanted):
    np.testing.assert_array_equal(found.threshold, wanted.threshold)
    np.testing.assert_array_equal(found.bound, wanted.bound)
    np.testing.assert_array_equal(found.smallest_closeness, wanted.smallest_closeness)
    for name in ("base_threshold", "feasible", "satisfied", "blocking_cells"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.points_needed == wanted.points_needed


CASES = [(0, "tps", False, np.float64), (1, "aps", True, np.float32)]
CASES += [(2, "raps", False, np.float32), (3, "tps", True, np.float32)]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed, score, ties, dtype", CASES)
def test_a_stream_and_memory_find_the_same(tmp_path, metric, seed, score, ties, dtype):
    frame = people(seed, ties=ties, dtype=dtype)
    files = write(tmp_path / "data", frame)
    names = sorted(frame["group"].unique())
    declared = ["nobody"] if seed == 3 else []
    groups = pd.Categorical(frame["group"], categories=[*names, *declared])
    table = memory_scores(frame, score)
    closeness = 0.6 if metric == "disparate_impact" else 0.3
    common = {"score": score, "group_names": declared, "progress": False}
    common["folder"] = tmp_path / "kept"
    for guarantee in control.GUARANTEES:
        options = {"alpha": 0.2, "delta": 0.3, "guarantee": str(guarantee)}
        if score == "raps" and guarantee != "none":
            options["grid"] = np.arange(160) / 150
        for classwise in (False, True):
            options["classwise"] = classwise
            wanted = control.find_threshold(
                table, frame["label"], groups, metric, closeness, **options
            )
            found = scale.find_threshold_at_scale(
                files, metric=metric, closeness=closeness, **options, **common
            )
            assert_same(found, wanted)
            points = control.frontier(table, frame["label"], groups, metric, **options)
            streamed = scale.frontier_at_scale(files, metric=metric, **options, **common)
            pd.testing.assert_frame_equal(streamed, points, check_exact=True)


def test_exact_bounds_are_computed_only_where_the_answer_may_depend_on_them(
    tmp_path, monkeypatch
):
    frame = people(3, n=4_000)
    files = write(tmp_path / "data", frame)
    asked = {"metric": "equal_opportunity", "guarantee": "fixed-sequence"}
    options = asked | {"folder": tmp_path / "kept", "progress": False}
    n_bounds = 0
    exact = bounds._beta_lower

    def counting(k, n, levels):
        nonlocal n_bounds
        found = exact(k, n, levels)
        n_bounds += found.size
        return found

    monkeypatch.setattr(bounds, "_beta_lower", counting)
    scale.frontier_at_scale(files, **options)
    n_of_frontier = n_bounds
    for closeness in (0.15, [0.5, 0.15]):
        n_bounds = 0
        found = scale.find_threshold_at_scale(files, closeness=closeness, **options)
        assert 0 < n_bounds < n_of_frontier / 2
        wanted = control.find_threshold(
            memory_scores(frame, "tps"),
            frame["label"],
            frame["group"],
            closeness=closeness,
            **asked,
        )
        for own, other in zip(np.atleast_1d(found), np.atleast_1d(wanted), strict=True):
            assert_same(own, other)


@pytest.mark.parametrize("seed, score, ties, dtype", CASES)
def test_the_audit_of_a_stream_is_that_of_memory(tmp_path, seed, score, ties, dtype):
    frame = people(seed, ties=ties, dtype=dtype)
    frame.loc[frame.index % 37 == 0, "group"] = None
    files = write(tmp_path / "data", frame)
    table = memory_scores(frame, score, id="id")
    for threshold in (float(np.quantile(table, 0.6)), [0.3, 0.6, np.inf]):
        wanted = audit(table, frame["label"], frame["group"], threshold=threshold)
        found = scale.audit_at_scale(
            files, threshold=threshold, score=score, id="id", folder=tmp_path / "kept"
        )
        pd.testing.assert_frame_equal(found.table, wanted.table)
        pd.testing.assert_frame_equal(found.disparities, wanted.disparities)
        pd.testing.assert_frame_equal(found.sizes, wanted.sizes)


def test_unlabelled_files_count_for_demographic_parity(tmp_path):
    frame = people(5)
    more = people(6).drop(columns="label")
    more.loc[:3, "group"] = "only here"
    files = write(tmp_path / "data", frame)
    others = write(tmp_path / "more", more, 2)
    scores = memory_scores(frame, "tps")
    unlabelled = (memory_scores(more, "tps"), more["group"])
    for metric in ("demographic_parity", "disparate_impact"):
        wanted = control.find_threshold(
            scores, frame["label"], frame["group"], metric, 0.6, unlabelled=unlabelled
        )
        found = scale.find_threshold_at_scale(
            files, metric=metric, closeness=0.6, unlabelled=others, folder=tmp_path / "k"
        )
        assert_same(found, wanted)


def test_thresholds_and_grids_out_of_reach_are_answered_as_in_memory(tmp_path):
    frame = people(0)
    files = write(tmp_path / "data", frame)
    table = memory_scores(frame, "tps")
    options = {"folder": tmp_path / "kept", "progress": False}
    nobody = scale.audit_at_scale(files, threshold=-np.inf, **options)
    wanted = audit(table, frame["label"], frame["group"], threshold=-np.inf)
    pd.testing.assert_frame_equal(nobody.table, wanted.table)
    who = (table, frame["label"], frame["group"], "equal_opportunity")
    for given in ({"grid": [np.inf]}, {"start": -np.inf}, {"grid": [0.9, 0.9]}):
        given = given | {"guarantee": "fixed-sequence", "closeness": 0.3}
        found = scale.find_threshold_at_scale(files, metric=who[-1], **given, **options)
        assert_same(found, control.find_threshold(*who, **given))
    for wrong in ([np.nan], []):
        with pytest.raises(ValueError, match=r"^grid: "):
            scale.find_threshold_at_scale(
                files, metric=who[-1], guarantee="fixed-sequence", grid=wrong, **options
            )


def test_scores_below_0_with_a_guarantee_need_a_grid_as_in_memory(tmp_path):
    frame = people(0).rename(columns=lambda name: name.replace("p_", "score_"))
    columns = ["score_0", "score_1", "score_2"]
    frame[columns] -= 2
    files = write(tmp_path / "data", frame)
    who = (frame[columns], frame["label"], frame["group"], "equal_opportunity")
    with pytest.raises(ValueError, match=r"grid: found None while q̂ is -") as memory:
        control.find_threshold(*who, guarantee="fixed-sequence")
    with pytest.raises(ValueError) as streamed:
        scale.find_threshold_at_scale(
            files, metric=who[-1], guarantee="fixed-sequence", folder=tmp_path / "kept"
        )
    assert str(streamed.value) == str(memory.value)


def test_unlabelled_files_of_another_precision_are_audited_as_in_memory(tmp_path):
    frame = people(5, dtype=np.float32)
    more = people(6).drop(columns="label")
    files = write(tmp_path / "data", frame)
    others = write(tmp_path / "more", more, 2)
    scores = memory_scores(more, "tps")[:, 1]
    is_rounded_up = scores.astype(np.float32) > scores
    threshold = float(scores[is_rounded_up][0])
    found = scale.audit_at_scale(
        files, threshold=threshold, unlabelled=others, folder=tmp_path / "kept"
    )
    wanted = audit(
        memory_scores(frame, "tps"),
        frame["label"],
        frame["group"],
        threshold=threshold,
        unlabelled=(memory_scores(more, "tps"), more["group"]),
    )
    pd.testing.assert_frame_equal(found.table, wanted.table)


@pytest.fixture
def counted_files(monkeypatch):
    """The names of the files that are counted, in order."""
    names = []
    count = _counting.count_file

    def noting(path, layout, edges, is_noted, rows=None):
        if rows is None:
            names.append(path.name)
        return count(path, layout, edges, is_noted, rows)

    monkeypatch.setattr(_counting, "count_file", noting)
    return names


def test_kept_counts_are_used_and_a_changed_file_is_counted_again(
    tmp_path, counted_files
):
    files = write(tmp_path / "data", people(0))
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    first = scale.audit_at_scale(files, **options)
    assert sorted(counted_files) == ["part0.parquet", "part1.parquet", "part2.parquet"]
    again = scale.audit_at_scale(files, **options)
    pd.testing.assert_frame_equal(first.table, again.table)
    assert len(counted_files) == 3
    people(9, n=40).to_parquet(files[1])
    scale.audit_at_scale(files, **options)
    assert counted_files[3:] == ["part1.parquet"]


def test_counts_in_other_bins_or_with_other_notes_are_not_taken(tmp_path, counted_files):
    files = write(tmp_path / "data", people(0))
    options = {"folder": tmp_path / "kept", "progress": False}
    for threshold in (0.5, np.nextafter(0.5, 1), [0.5, 0.5, 0.6]):
        scale.audit_at_scale(files, threshold=threshold, **options)
    assert len(counted_files) == 9
    raps = (score_functions.PENALTY, score_functions.K_REG)
    layout = _counting.look(files, "tps", 0, *raps, "label", "group", None, None)
    edges = np.array([0.5, 0.6])
    is_noted = np.zeros((3, 4), bool)
    kept = (layout, edges, is_noted, tmp_path / "kept")
    found = _kept_counts.read_kept(files[0], *kept)
    assert found is not None
    is_noted[2, 1] = True
    assert _kept_counts.read_kept(files[0], *kept) is None


@pytest.mark.parametrize("guarantee", ["none", "fixed-sequence"])
def test_a_file_that_is_mended_is_the_only_one_that_a_search_counts_again(
    tmp_path, counted_files, guarantee
):
    files = write(tmp_path / "data", people(0, n=3_000))
    whole = files[1].read_bytes()
    files[1].write_bytes(b"PAR1" + bytes(len(whole) // 3) + whole[4 + len(whole) // 3 :])
    options = {"metric": "equal_opportunity", "closeness": 0.3, "guarantee": guarantee}
    options |= {"progress": False, "folder": tmp_path / "kept"}
    with pytest.raises(ValueError, match=r"part1.parquet' is damaged"):
        scale.find_threshold_at_scale(files, **options)
    counted_files.clear()
    files[1].write_bytes(whole)
    found = scale.find_threshold_at_scale(files, **options)
    assert counted_files[0] == "part1.parquet"
    if guarantee != "none":
        assert len(counted_files) == 1
        people(9, n=800).to_parquet(files[1])
        scale.find_threshold_at_scale(files, **options)
        assert counted_files == ["part1.parquet"] * 2
        files.append(tmp_path / "data" / "part9.parquet")
        people(10, n=600).to_parquet(files[-1])
        found = scale.find_threshold_at_scale(files, **options)
        assert counted_files[2:] == ["part9.parquet"]
    fresh = options | {"folder": tmp_path / "other"}
    assert_same(found, scale.find_threshold_at_scale(files, **fresh))


def test_where_all_files_are_new_the_look_is_new(tmp_path, counted_files):
    options = {"metric": "equal_opportunity", "guarantee": "fixed-sequence"}
    options |= {"progress": False, "folder": tmp_path / "kept", "alpha": 0.4}
    files = write(tmp_path / "data", people(0, n=3_000))
    scale.find_threshold_at_scale(files, **options)
    sure = people(1, n=3_000)
    sure["label"] = sure[["p_0", "p_1", "p_2"]].to_numpy().argmax(axis=1)
    write(tmp_path / "data", sure)
    scale.find_threshold_at_scale(files, **options)
    assert len(counted_files) == 6  # q̂ lies elsewhere, and one pass still is enough


def test_a_run_that_stopped_goes_on_where_it_was(tmp_path, counted_files):
    files = write(tmp_path / "data", people(0))
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}

    def stops_after_two(function, items):
        for item in items[:2]:
            yield function(item)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scale.audit_at_scale(files, executor=stops_after_two, **options)
    found = scale.audit_at_scale(files, executor=map, **options)
    assert counted_files == ["part0.parquet", "part1.parquet", "part2.parquet"]
    assert found.sizes["count"].sum() == 300


def test_a_damaged_page_is_named_and_the_other_files_are_kept(tmp_path, counted_files):
    files = write(tmp_path / "data", people(0))
    whole = files[1].read_bytes()
    files[1].write_bytes(b"PAR1" + bytes(len(whole) // 3) + whole[4 + len(whole) // 3 :])
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    with pytest.raises(ValueError, match=r"part1.parquet"):
        scale.audit_at_scale(files, **options)
    files[1].write_bytes(whole)
    scale.audit_at_scale(files, **options)
    assert counted_files.count("part1.parquet") == 2
    assert len(counted_files) == 4


def test_faults_are_told_in_a_sentence(tmp_path, monkeypatch):
    files = write(tmp_path / "data", people(0))
    options = {"threshold": 0.5, "folder": tmp_path / "kept", "progress": False}
    with pytest.raises(ValueError, match=r"there is no file .*missing.parquet"):
        scale.audit_at_scale([*files, tmp_path / "missing.parquet"], **options)
    with pytest.raises(ValueError, match=r"part0.parquet' twice"):
        scale.audit_at_scale([*files, files[0]], **options)
    other = tmp_path / "other.parquet"
    people(0).drop(columns="p_1").to_parquet(other)
    with pytest.raises(ValueError, match=r"other.parquet' has no column 'p_1'"):
        scale.audit_at_scale([*files, other], **options)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(files[0].read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cut.parquet' is damaged"):
        scale.audit_at_scale([*files, cut], **options)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_kept_counts._cache, "store", full)
    with pytest.raises(ValueError, match=r"no space left in .* to keep the counts of"):
        scale.audit_at_scale(files, **options)


def test_missing_numbers_and_unknown_labels_are_named_by_file_and_row(tmp_path):
    frame = people(0)
    frame.loc[250, "p_1"] = np.nan
    files = write(tmp_path / "data", frame)
    with pytest.raises(ValueError, match=r"part2.parquet': p_1: row \d+ is missing"):
        scale.audit_at_scale(files, threshold=0.5, folder=tmp_path / "kept")
    frame = people(0)
    frame.loc[3, "label"] = 7
    files = write(tmp_path / "data", frame)
    with pytest.raises(ValueError, match=r"label: found 7 in row 3; wanted one of 0, 1"):
        scale.audit_at_scale(files, threshold=0.5, folder=tmp_path / "kept")


def test_storage_types_and_empty_files_do_not_matter(tmp_path):
    import pyarrow as pa

    frame = people(4)
    frame.loc[290:, "group"] = "None"
    files = write(tmp_path / "data", frame)
    table = pa.Table.from_pandas(pd.read_parquet(files[1]), preserve_index=False)
    place = table.column_names.index
    table = table.set_column(
        place("label"), "label", table["label"].cast(pa.int8())
    ).set_column(place("group"), "group", table["group"].cast(pa.large_string()))
    pq.write_table(table, files[1])
    coded = pa.Table.from_pandas(pd.read_parquet(files[2]), preserve_index=False)
    coded = coded.set_column(place("group"), "group", coded["group"].dictionary_encode())
    pq.write_table(coded, files[2])
    empty = tmp_path / "data" / "empty.parquet"
    frame.iloc[:0].to_parquet(empty)
    wanted = audit(
        memory_scores(frame, "tps"), frame["label"], frame["group"], threshold=0.5
    )
    found = scale.audit_at_scale([empty, *files], threshold=0.5, folder=tmp_path / "k")
    pd.testing.assert_frame_equal(found.table, wanted.table)
    assert "None" in found.sizes.index


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "scale.md").read_text(encoding="utf-8")


def query_of(page):
    """The one SQL query that the page shows."""
    (query,) = re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)
    return query


@pytest.mark.parametrize("metric", METRICS)
def test_the_query_of_a_warehouse_gives_the_same(tmp_path, metric, page):
    duckdb = pytest.importorskip("duckdb")
    frame = people(8, n=2_000)
    files = write(tmp_path / "data", frame)
    edges = np.arange(1025) / 1024
    query = query_of(page).replace("predictions/", f"{tmp_path}/data/")
    table = duckdb.sql(query).df()
    found = scale.from_counts(table, edges=edges)
    by_hand = sum(
        (scale.counts(file, edges=edges) for file in files[1:]),
        scale.counts(files[0], edges=edges),
    )
    np.testing.assert_array_equal(
        found.counted.counts, by_hand.with_groups(found.counted.group_names).counts
    )
    rounded = np.ceil(memory_scores(frame, "tps") * 1024) / 1024
    closeness = 0.6 if metric == "disparate_impact" else 0.2
    for guarantee in control.GUARANTEES:
        for classwise in (False, True):
            options = {"classwise": classwise, "guarantee": str(guarantee)}
            memory = dict(options)
            if guarantee != "none":
                memory["grid"] = edges
            who = (rounded, frame["label"], frame["group"], metric)
            wanted = control.find_threshold(*who, closeness, **memory)
            assert_same(found.find_threshold(metric, closeness, **options), wanted)
            pd.testing.assert_frame_equal(
                found.frontier(metric, **options), control.frontier(*who, **memory)
            )
    wanted = audit(rounded, frame["label"], frame["group"], metric, threshold=0.75)
    pd.testing.assert_frame_equal(found.audit(0.75, metric).table, wanted.table)


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, page, capsys):
    duckdb = pytest.importorskip("duckdb")
    frame = people(8, n=3_000, n_groups=2)
    write(tmp_path / "predictions", frame)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    query = query_of(page)
    halves = {}
    for site, part in (("north", frame[::2]), ("south", frame[1::2])):
        write(tmp_path / site, part, 1)
        own = query.replace("predictions/", f"{site}/")
        halves[f"table_{site}"] = duckdb.sql(own).df()
    names = {"query": query, **halves}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "scale.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "equal opportunity" in printed.replace("_", " ")
    assert names["found"].feasible
    np.testing.assert_array_equal(
        names["together"].counted.counts, names["counted"].counted.counts
    )


def test_a_guarantee_from_counts_needs_bins_fixed_beforehand():
    rows = pd.DataFrame(
        {"label": [0, 1], "true_label": [True, False], "group": "a", "score": 0.5, "n": 9}
    )
    with pytest.raises(ValueError, match=r"fixed without the calibration data"):
        scale.from_counts(rows).find_threshold(
            "equal_opportunity", guarantee="fixed-sequence"
        )


def test_labels_that_want_the_same_bins_share_a_table():
    edges = np.array([0.2, 0.5, 0.9])
    is_wanted = np.zeros((3, 5), bool)
    is_wanted[1, 2] = True
    bins = _binning.Bins.ending_at(edges)
    found = _binning.first_bins_of(edges.tobytes(), is_wanted.tobytes())
    for table, wanted in zip(found, is_wanted, strict=True):
        np.testing.assert_array_equal(table, bins.first_bins(wanted))
    assert found[0] is found[2]


def test_rows_are_many_at_once_only_where_labels_are_few(tmp_path):
    for n_classes, score, wanted in [
        (2, "tps", 1 << 18),
        (8, "tps", 1 << 17),
        (40, "tps", 1 << 16),
        (2, "aps", 1 << 16),
    ]:
        files = write(tmp_path / "data", people(0, n_classes=n_classes), 1)
        options = (score, 0, 0.0, 0, "label", "group", None, None)
        layout = _counting.look(files, *options)
        assert _parquet._rows_at_once(layout) == wanted


def test_layout_reads_labels_by_name():
    assert _parquet.label_name("p_yes") == "yes"
    assert _parquet.label_name("score_3") == 3
    assert _parquet.label_name("p_-1") == -1
    assert [_parquet.label_name(f"p_{name}") for name in ("01", "²", "1.0")] == [
        "01",
        "²",
        "1.0",
    ]


def test_labels_that_are_integers_ascend_whatever_the_order_of_the_columns(tmp_path):
    frame = people(0, n=2_000, n_classes=12)
    files = write(tmp_path / "data", frame[sorted(frame)])  # p_10 before p_2
    options = {"metric": "equal_opportunity", "closeness": 0.3, "classwise": True}
    found = scale.find_threshold_at_scale(files, **options, folder=tmp_path / "kept")
    who = (memory_scores(frame, "tps"), frame["label"], frame["group"])
    assert_same(found, control.find_threshold(*who, **options))
    assert len(np.unique(found.threshold)) > 1
    limits = np.linspace(0.5, 0.95, 12)
    audited = scale.audit_at_scale(files, threshold=limits, folder=tmp_path / "kept")
    wanted = audit(*who, threshold=limits)
    pd.testing.assert_frame_equal(audited.table, wanted.table)


@pytest.mark.parametrize(
    "columns, labels",
    [
        (["p_False", "p_True"], [False, True]),
        (["p_False", "p_True"], ["False", "True"]),
        (["p_-1", "p_1"], [-1, 1]),
        (["p_-1", "p_1"], ["-1", "1"]),
        (["p_1.0", "p_2.0"], [1.0, 2.0]),
        (["p_²", "p_³"], ["²", "³"]),
    ],
)
def test_labels_are_known_as_they_are_written(tmp_path, columns, labels):
    rng = np.random.default_rng(0)
    probs = rng.random(300)
    places = (rng.random(300) > probs).astype(int)
    group = rng.choice(["a", "b"], 300)
    label = pd.Series(labels)[places].to_numpy()
    frame = pd.DataFrame({columns[0]: probs, columns[1]: 1 - probs})
    frame.assign(label=label, group=group).to_parquet(tmp_path / "rows.parquet")
    found = scale.audit_at_scale(tmp_path, threshold=0.6, folder=tmp_path / "kept")
    wanted = audit(score_functions.tps(frame), places, group, threshold=0.6)
    assert found.sizes["coverage"].tolist() == wanted.sizes["coverage"].tolist()


EDGES = np.arange(65) / 64


@pytest.fixture(scope="module")
def counts_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts")
    people(0).to_parquet(folder / "rows.parquet")
    return scale.counts(folder / "rows.parquet", edges=EDGES).table()


@pytest.mark.parametrize(
    "change, told",
    [
        (
            {"true_label": "f"},
            r"found the text 'f' in row 0 of column true_label; wanted True",
        ),
        ({"true_label": 2}, r"found 2 in column true_label; wanted True or False"),
        ({"true_label": None}, r"row 0 has no true_label"),
        ({"true_label": True}, r"found \d+ true labels for \d+ points in group 'g0'"),
        ({"n": "1"}, r"found the text '1' in row 0 of column n; wanted a number"),
        ({"n": np.inf}, r"found a count that is no whole number"),
        ({"n": -1}, r"found a count that is no whole number"),
        ({"score": "x"}, r"found the text 'x' in row 0 of column score"),
        ({"score": None}, r"row 0 has no score"),
        ({"group": None}, r"row 0 has no group"),
        ({"label": None}, r"row 0 has no label"),
    ],
)
def test_a_wrong_table_of_counts_is_told(counts_table, change, told):
    with pytest.raises(ValueError, match=rf"^table: {told}"):
        scale.from_counts(counts_table.assign(**change), edges=EDGES)


def test_a_table_of_counts_needs_every_point_once_for_each_label(counts_table):
    with pytest.raises(ValueError, match=r"different numbers of points by label"):
        scale.from_counts(counts_table[1:], edges=EDGES)
    moved = counts_table.copy()
    of_one_label = (moved["label"] == 0) & (moved["group"] == "g0")
    moved.loc[of_one_label, "group"] = "g1"  # as many points as before, all in all
    with pytest.raises(ValueError, match=r"in group 'g0' \(0: 0, 1: \d+, 2: \d+\)"):
        scale.from_counts(moved, edges=EDGES)
    with pytest.raises(ValueError, match=r"^table: found no rows"):
        scale.from_counts(counts_table[:0], edges=EDGES)
    with pytest.raises(TypeError, match=r"found an option 'grid'; wanted one of alpha"):
        scale.from_counts(counts_table).find_threshold("equal_opportunity", grid=[0.5])
    with pytest.raises(ValueError, match=r"^table: found a list; wanted a data frame"):
        scale.from_counts([1, 2], edges=EDGES)


def test_a_table_of_counts_may_be_of_any_types(counts_table):
    wanted = scale.from_counts(counts_table, edges=EDGES).counted.counts
    pa = pytest.importorskip("pyarrow")
    decimals = counts_table.astype({"n": object})
    decimals["n"] = [Decimal(k) for k in counts_table["n"]]
    forms = [
        counts_table.sample(frac=1, random_state=0),
        counts_table.astype({"true_label": int, "n": "Int64", "group": "category"}),
        counts_table.astype({"true_label": "boolean", "n": np.uint64}),
        decimals,
        pa.Table.from_pandas(counts_table),
    ]
    for form in forms:
        found = scale.from_counts(form, edges=EDGES).counted
        np.testing.assert_array_equal(found.counts, wanted)
