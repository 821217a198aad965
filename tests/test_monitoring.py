"""A monitor: what it counts, what it says at every look, and its state."""

import hashlib
import json
import math
import subprocess
import sys
from collections import Counter

import check_monitor
import numpy as np
import pandas as pd
import pytest
from scipy.special import betaln

from cfhelpers import Monitor, _locking, monitoring_command
from cfhelpers.auditing.command import main
from cfhelpers.bounds import confidence_sequence
from cfhelpers.fairness import METRICS, FairnessMetric, disparity

NAMES = ["men", "women"]


def week(rng, n=1000, coverages=(0.9, 0.7), names=NAMES, n_classes=3):
    groups = np.array(names)[rng.integers(0, len(names), n)]
    share = np.array([coverages[names.index(name)] for name in groups])
    sets = rng.random((n, n_classes)) < share[:, None]
    return sets, rng.integers(0, n_classes, n), groups


def watched(metric="equal_opportunity", weeks=3, seed=0, **options):
    rng = np.random.default_rng(seed)
    monitor = Monitor(metric, groups=NAMES, **options)
    for _ in range(weeks):
        monitor.update(*week(rng))
    return monitor


# The confidence sequence.


@pytest.mark.parametrize("k, n", [(0, 5), (5, 5), (3, 10), (900, 1000), (1, 10**6)])
@pytest.mark.parametrize("level", [0.001, 0.05, 0.5])
def test_a_sequence_ends_where_the_martingale_reaches_one_over_the_level(k, n, level):
    lower, upper = confidence_sequence(k, n, level)
    assert 0 <= lower <= k / n <= upper <= 1
    for end in (float(lower), float(upper)):
        if end in (0.0, 1.0):
            continue
        log = betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5)
        log -= k * math.log(end) + (n - k) * math.log1p(-end)
        assert log == pytest.approx(-math.log(level), abs=1e-6 * n**0.5)


def test_a_sequence_without_points_is_everything():
    lower, upper = confidence_sequence(0, 0, 0.05)
    assert (float(lower), float(upper)) == (0.0, 1.0)


def test_a_sequence_takes_a_level_per_cell():
    lower, upper = confidence_sequence([50, 50], [100, 100], [0.05, 0.001])
    alone = confidence_sequence(50, 100, 0.001)
    assert (lower[1], upper[1]) == (alone[0], alone[1])
    assert lower[1] < lower[0] and upper[0] < upper[1]


def test_a_sequence_covers_at_all_looks():
    rng = np.random.default_rng(0)
    hits = (rng.random((1000, 400)) < 0.8).cumsum(axis=1)
    lower, upper = confidence_sequence(hits, np.arange(1, 401), 0.2)
    missed = ((lower > 0.8) | (upper < 0.8)).any(axis=1).sum()
    assert missed <= 265  # Pr[Bin(1000, .2) > 265] < 1e-6


# A year of weekly looks. The whole count, 1,500 streams, is `tools/check_monitor.py`.


@pytest.mark.parametrize("is_late", [False, True])
def test_no_look_is_wrong_more_often_than_promised(is_late):
    rng = np.random.default_rng(1)
    beyond_c = check_monitor.counts_by_look((0.8001, 0.7), 60, rng, is_late=is_late)
    at_c = check_monitor.counts_by_look((0.8, 0.7), 60, rng, is_late=is_late)
    # Pr[Bin(60, .05) > 13] < 1e-6
    assert check_monitor.verdicts(beyond_c)[0].any(axis=1).sum() <= 13
    assert check_monitor.verdicts(at_c)[1].any(axis=1).sum() <= 13


def test_a_gap_of_13_is_found_and_no_gap_is_called_within():
    rng = np.random.default_rng(2)
    wide = check_monitor.counts_by_look((0.8, 0.67), 60, rng)
    none = check_monitor.counts_by_look((0.8, 0.8), 60, rng)
    # With a chance of .95 each, fewer than 45 of 60 have a probability below 1e-6.
    assert check_monitor.verdicts(wide)[1].any(axis=1).sum() >= 45
    assert check_monitor.verdicts(none)[0].any(axis=1).sum() >= 45


# What it says.


@pytest.mark.parametrize("metric", sorted(set(METRICS) - {"set_size"}))
def test_every_metric_is_counted_as_the_disparity_is(metric):
    rng = np.random.default_rng(3)
    batches = [week(rng, 300) for _ in range(4)]
    monitor = Monitor(metric, groups=NAMES)
    for sets, y, groups in batches:
        monitor.update(sets, y, groups)
    together = [np.concatenate(part) for part in zip(*batches, strict=True)]
    assert monitor.shares.disparity == pytest.approx(disparity(*together, metric))
    assert monitor.people == 1200
    assert monitor.verdict.startswith(("within", "beyond", "cannot tell"))


@pytest.mark.parametrize(
    "coverages, word", [((0.9, 0.6), "beyond"), ((0.9, 0.9), "within")]
)
@pytest.mark.parametrize("metric", ["demographic_parity", "disparate_impact"])
def test_verdicts_without_labels(metric, coverages, word):
    rng = np.random.default_rng(4)
    monitor = Monitor(metric, groups=NAMES)
    assert monitor.word == "cannot tell"
    for _ in range(10):
        sets, _, groups = week(rng, coverages=coverages)
        monitor.update(sets, None, groups)
    assert monitor.word == word and monitor.verdict.startswith(word)


def test_a_declared_group_without_people_blocks_within_and_never_causes_beyond():
    rng = np.random.default_rng(5)
    monitor = Monitor("demographic_parity", groups=[*NAMES, "others"])
    for _ in range(10):
        monitor.update(*week(rng, coverages=(0.9, 0.9)))
    assert monitor.word == "cannot tell" and "others" in monitor.verdict
    for _ in range(10):
        monitor.update(*week(rng, coverages=(0.95, 0.4)))
    assert monitor.word == "beyond"


def test_with_one_group_there_is_no_verdict():
    rng = np.random.default_rng(6)
    monitor = Monitor("demographic_parity")
    monitor.update(*week(rng, coverages=(0.9,), names=["men"]))
    assert monitor.verdict.startswith("cannot tell") and "men" in monitor.verdict


def test_groups_that_turn_up_have_levels_that_sum_to_less_than_gamma():
    rng = np.random.default_rng(7)
    monitor = Monitor("equal_opportunity")
    monitor.update(*week(rng))
    before = monitor._cell_levels(monitor.shares, 0.05)
    monitor.update(*week(rng, coverages=(0.9,), names=["others"]))
    after = monitor._cell_levels(monitor.shares, 0.05)
    assert monitor.groups[-1] == "others"
    assert np.array_equal(before, after[..., :2])  # from their first point on
    assert after.sum() < 0.05


def test_order_and_batching_do_not_matter():
    rng = np.random.default_rng(8)
    sets, y, groups = week(rng)
    whole = Monitor("equalized_odds", groups=NAMES).update(sets, y, groups)
    parts = Monitor("equalized_odds", groups=NAMES)
    for rows in np.array_split(rng.permutation(len(y)), 7):
        parts.update(sets[rows], y[rows], groups[rows])
    assert parts.to_dict()["counts"] == whole.to_dict()["counts"]
    assert parts.verdict == whole.verdict


def test_labels_by_name_in_any_order_of_columns():
    rng = np.random.default_rng(9)
    sets, y, groups = week(rng)
    table = pd.DataFrame(sets, columns=["no", "perhaps", "yes"])
    names = table.columns.to_numpy(object)[y]
    monitor = Monitor("equal_opportunity", groups=NAMES, positive_labels=["yes"])
    monitor.update(table, names, list(groups))
    monitor.update(table[["yes", "no", "perhaps"]], pd.Series(names), pd.Series(groups))
    assert monitor.positive_labels == ["yes"]
    assert (monitor.shares.hits % 2 == 0).all() and monitor.people == 2000


def test_a_filter_of_ones_own_is_watched():
    own = FairnessMetric("own", lambda y, g, a, label: (g == a) & (y == label))
    rng = np.random.default_rng(10)
    sets, y, groups = week(rng)
    monitor = Monitor(own, groups=NAMES).update(sets, y, groups)
    usual = Monitor("equal_opportunity", groups=NAMES).update(sets, y, groups)
    assert monitor.verdict == usual.verdict
    again = Monitor.from_dict(monitor.to_dict(), metric=own)
    assert again.to_dict() == monitor.to_dict()
    with pytest.raises(ValueError, match="metric"):
        Monitor.from_dict(monitor.to_dict())


@pytest.mark.parametrize("metric", ["equal_opportunity", "disparate_impact"])
@pytest.mark.parametrize("is_exclusive", [True, False])
def test_groups_that_overlap_are_counted_as_the_disparity_is(metric, is_exclusive):
    """Also where everyone is in just one of them, and whichever turns up first."""
    rng = np.random.default_rng(13)
    share = np.array([0.9, 0.5])
    monitor = Monitor(metric)
    kept = []
    for place in (1, 0, 1):
        is_in = rng.random((300, 2)) < 0.5
        is_in[0] = [place == 0, place == 1]
        if is_exclusive:
            is_in[:, 0] = ~is_in[:, 1]
        sets = rng.random((300, 3)) < np.where(is_in, share, 1).min(axis=1)[:, None]
        y = rng.integers(0, 3, 300)
        people = pd.DataFrame(is_in, columns=["woman", "Black"])
        monitor.update(sets, y, people)
        kept.append((sets, y, people))
    sets, y, people = [np.concatenate(part) for part in zip(*kept, strict=True)]
    people = pd.DataFrame(people, columns=["woman", "Black"])
    assert monitor.groups == ["Black", "woman"]
    assert monitor.history["disparity"].iloc[-1] == disparity(sets, y, people, metric)
    for place, name in enumerate(monitor.groups):
        in_cell = people[name] & ((y == 1) | (metric == "disparate_impact"))
        assert monitor.shares.hits[0, 0, place] == sets[in_cell, 1].sum()


# Windows.


def test_windows_show_drift_that_the_whole_does_not():
    rng = np.random.default_rng(11)
    monitor = Monitor("demographic_parity", groups=NAMES, windows=["2026-07-01"])
    for month in range(1, 13):
        coverages = (0.9, 0.9) if month < 7 else (0.9, 0.65)
        sets, _, groups = week(rng, 2000, coverages)
        monitor.update(sets, None, groups, date=f"2026-{month:02d}-15")
    table = monitor.window_table
    assert table["from"].tolist() == ["the beginning", "2026-07-01"]
    assert table["verdict"].tolist() == ["within", "beyond"]
    assert "since 2026-07-01: beyond" in monitor.verdict
    assert monitor.history["date"].iloc[-1] == "2026-12-15"


def test_windows_share_half_of_what_may_go_wrong():
    monitor = Monitor("demographic_parity", groups=NAMES, windows=["2026-07-01"])
    total = sum(monitor._gamma_of_window(window) for window in range(10_000))
    assert total + monitor._gamma_of_all < 0.05
    assert monitor._gamma_of_all == pytest.approx(0.025)


def test_a_date_per_person_decides_on_the_window():
    rng = np.random.default_rng(12)
    sets, _, groups = week(rng, 4)
    monitor = Monitor("demographic_parity", windows=["2026-02-01"])
    dates = ["2026-01-31", "2026-02-01", "2026-02-01T12:00", "2026-03-01"]
    monitor.update(sets, None, groups, date=dates)
    counts = monitor.to_dict()["counts"]
    assert np.sum(counts["0"]["trials"]) == 2 and np.sum(counts["1"]["trials"]) == 6


# The state.


@pytest.mark.parametrize("metric", ["equal_opportunity", "predictive_parity_proxy"])
def test_the_state_survives_a_restart(metric, tmp_path):
    monitor = watched(metric)
    monitor.save(tmp_path / "state.json")
    again = Monitor.load(tmp_path / "state.json")
    assert again.to_dict() == monitor.to_dict() and again.verdict == monitor.verdict
    rng = np.random.default_rng(20)
    more = week(rng)
    assert again.update(*more).to_dict() == monitor.update(*more).to_dict()
    assert (tmp_path / "state.json").stat().st_size < 3000


def test_names_that_are_tuples_numbers_and_truths_survive():
    names = [("f", 1), ("m", 1), ("f", (2, "b"))]
    rng = np.random.default_rng(21)
    sets, y, _ = week(rng)
    groups = [names[place] for place in rng.integers(0, 3, len(y))]
    monitor = Monitor("equal_opportunity", groups=names).update(sets, y, groups)
    again = Monitor.from_dict(json.loads(json.dumps(monitor.to_dict())))
    assert again.groups == names and again.verdict == monitor.verdict


def test_merged_states_have_the_counts_of_both():
    first = watched(seed=1)
    second = watched(seed=2)
    merged = first.merge(second)
    assert merged.people == first.people + second.people
    assert np.array_equal(merged.shares.hits, first.shares.hits + second.shares.hits)
    assert len(merged.looks) == len(first.looks) + 1
    assert first.people == 3000  # neither has changed


def test_merging_groups_that_turned_up_in_another_order():
    rng = np.random.default_rng(22)
    sets, _, groups = week(rng)
    is_man = groups == "men"
    first = Monitor("demographic_parity").update(sets[is_man], None, groups[is_man])
    second = Monitor("demographic_parity").update(sets, None, groups)
    merged = first.merge(second)
    swapped = second.merge(first)
    assert merged.groups[0] == "men" and set(merged.groups) == set(NAMES)
    at = [merged.groups.index(name) for name in swapped.groups]
    assert np.array_equal(merged.shares.trials[..., at], swapped.shares.trials)


def test_merging_counts_nobody_twice_who_came_before_a_group_turned_up():
    """In the first window the other monitor knew of one group alone."""
    sets = np.ones((1, 2), bool)
    first = Monitor("demographic_parity", windows=["2026-02-01"])
    second = Monitor("demographic_parity", windows=["2026-02-01"])
    for monitor in (first, second):
        monitor.update(sets, None, ["men"], date="2026-01-15")
        monitor.update(sets, None, ["women"], date="2026-02-15")
    merged = first.merge(second)
    assert merged.shares.trials[0, 0].tolist() == [2, 2]
    assert merged.to_dict()["counts"]["0"]["trials"] == [[[2, 0]]]


@pytest.mark.parametrize(
    "options",
    [
        {"closeness": 0.2},
        {"confidence": 0.9},
        {"metric": "demographic_parity"},
        {"positive_labels": [1]},
        {"windows": ["2026-01-01"]},
    ],
)
def test_states_with_other_options_do_not_merge(options):
    other = Monitor(**({"metric": "equal_opportunity", "groups": NAMES} | options))
    rng = np.random.default_rng(23)
    other.update(*week(rng), date="2026-01-01")
    [name] = options
    with pytest.raises(ValueError, match=name):
        watched().merge(other)


def test_a_monitor_without_people_merges_with_another():
    other = watched()
    empty = Monitor("equal_opportunity", groups=NAMES)
    for merged in (empty.merge(other), other.merge(empty)):
        assert merged.people == other.people and merged.verdict == other.verdict


@pytest.mark.parametrize("options", [{"positive_labels": [0]}, {"label_names": "xyz"}])
def test_labels_that_were_asked_for_hold_before_anybody_is_counted(options):
    counted = watched()
    empty = Monitor("equal_opportunity", groups=NAMES, **options)
    [name] = options
    for first, second in ((empty, counted), (counted, empty)):
        with pytest.raises(ValueError, match=name):
            first.merge(second)


def test_nobody_counts_twice():
    rng = np.random.default_rng(24)
    people = week(rng)
    monitor = Monitor("equal_opportunity").update(*people, batch="week 1")
    with pytest.raises(ValueError, match="week 1"):
        monitor.update(*people, batch="week 1")
    other = Monitor("equal_opportunity").update(*people, batch="week 1")
    with pytest.raises(ValueError, match="twice"):
        monitor.merge(other)
    assert monitor.people == 1000


def test_looks_are_thinned_so_that_the_state_stays_small(monkeypatch):
    monkeypatch.setattr("cfhelpers.monitoring.MOST_LOOKS", 10)
    monitor = Monitor("demographic_parity", groups=NAMES)
    for place in range(40):
        monitor.update([[True, False]] * 2, None, NAMES, batch=str(place))
    assert len(monitor.looks) <= 10
    assert monitor.looks[-1].people == 80


# What it refuses.


def bad_update(change):
    rng = np.random.default_rng(30)
    sets, y, groups = week(rng, 20)
    monitor = Monitor("equal_opportunity", groups=NAMES)
    monitor.update(sets, y, groups)
    before = monitor.to_dict()
    arguments = {"sets": sets, "y": y, "groups": groups} | change
    with pytest.raises(ValueError) as error:
        monitor.update(**arguments)
    assert monitor.to_dict() == before  # all of the people count, or none
    return str(error.value)


@pytest.mark.parametrize(
    "change, word",
    [
        ({"y": None}, "y: found None"),
        ({"groups": ["martians"] * 20}, "'martians'"),
        ({"groups": [None] * 20}, "groups"),
        ({"groups": ["men"] * 19}, "groups"),
        ({"y": [7] * 20}, "y: found 7"),
        ({"sets": np.ones((20, 4), bool)}, "sets: found 4 columns"),
        ({"sets": np.full((20, 3), 0.5)}, "sets"),
        ({"date": "once"}, "date"),
        ({"date": 20260101}, "date"),
        ({"date": ["2026-01-01"] * 3}, "date: found 3"),
    ],
)
def test_wrong_people_are_refused_whole(change, word):
    assert word in bad_update(change)


@pytest.mark.parametrize(
    "options, word",
    [
        ({"metric": "set_size"}, "set_size"),
        ({"metric": "fair"}, "metric"),
        ({"closeness": 0}, "closeness"),
        ({"confidence": 1}, "confidence"),
        ({"groups": "men"}, "groups"),
        ({"groups": ["men"]}, "groups"),
        ({"groups": ["men", "men"]}, "groups"),
        ({"groups": ["men", None]}, "groups"),
        ({"windows": ["2026-02-01", "2026-01-01"]}, "windows"),
        ({"windows": [1, 2]}, "windows"),
    ],
)
def test_wrong_options_are_refused(options, word):
    with pytest.raises(ValueError, match=word):
        Monitor(**({"metric": "equal_opportunity"} | options))


NO_STATES = ["", "{", "[]", '{"format": 99}', '{"format": 1}', "[" * 10**5]


@pytest.mark.parametrize("text", NO_STATES, ids=range(len(NO_STATES)))
def test_files_that_no_monitor_wrote_are_refused(text, tmp_path):
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ValueError, match="state"):
        Monitor.load(tmp_path / "state.json")


def test_counts_that_cannot_be_are_refused():
    state = watched(weeks=1).to_dict()
    whole = state["counts"]["0"]["hits"][0][0]
    for wrong in (10**6, -1, 0.5):
        state["counts"]["0"]["hits"][0][0] = [wrong, *whole[1:]]
        with pytest.raises(ValueError, match="hits"):
            Monitor.from_dict(state)


@pytest.mark.parametrize(
    "entry, wrong", [("people", -1), ("people", "5"), ("looks", [["2026-01-01"]])]
)
def test_states_with_an_entry_that_cannot_be_are_refused(entry, wrong):
    with pytest.raises(ValueError, match=f"^{entry}"):
        Monitor.from_dict(watched(weeks=1).to_dict() | {entry: wrong})


# The command.


def write_week(path, seed=0, coverages=(0.9, 0.6), with_labels=True):
    sets, y, groups = week(np.random.default_rng(seed), 2000, coverages)
    table = pd.DataFrame(sets.astype(int), columns=["set_0", "set_1", "set_2"])
    table["group"] = groups
    if with_labels:
        table["label"] = y
    table.to_csv(path, index=False)
    return str(path)


def test_the_command_counts_says_and_gates(tmp_path, capsys):
    state = str(tmp_path / "state.json")
    first = write_week(tmp_path / "1.csv")
    assert main(["monitor", state, first, "--fail-on", "beyond"]) == 1
    assert "beyond: men and women" in capsys.readouterr().out
    assert main(["monitor", state, first]) == 2  # nobody counts twice
    assert main(["monitor", state]) == 0
    second = write_week(tmp_path / "2.csv", seed=1)
    assert main(["monitor", state, second]) == 0
    assert Monitor.load(state).people == 4000


def test_the_command_needs_no_labels_where_the_metric_does_not(tmp_path, capsys):
    state = str(tmp_path / "state.json")
    file = write_week(tmp_path / "1.csv", coverages=(0.9, 0.9), with_labels=False)
    arguments = ["monitor", state, file, "--metric", "demographic_parity"]
    assert main([*arguments, "--fail-on", "undecided"]) == 0
    assert "within" in capsys.readouterr().out
    assert main(["monitor", str(tmp_path / "2.json"), file]) == 2
    assert "label" in capsys.readouterr().err


def test_the_command_counts_people_one_at_a_time_and_of_one_group(tmp_path):
    every = pd.read_csv(write_week(tmp_path / "1.csv")).iloc[:6]
    every["id"] = range(6)  # a file with the same content as another counts once
    file = tmp_path / "one.csv"
    one = str(tmp_path / "one.json")
    for row in range(len(every)):
        every.iloc[[row]].to_csv(file, index=False)
        assert main(["monitor", one, str(file), "--positive-labels", "0,1"]) == 0
    every.to_csv(file, index=False)
    together = str(tmp_path / "together.json")
    assert main(["monitor", together, str(file), "--positive-labels", "0,1"]) == 0
    assert Monitor.load(one).people == 6
    assert Monitor.load(one).positive_labels == [0, 1]
    assert Monitor.load(one).verdict == Monitor.load(together).verdict


@pytest.mark.parametrize(
    "column, entry, word",
    [
        ("group", None, "column 'group', row 3: found nothing; wanted a group"),
        ("label", None, "column 'label', row 3: found nothing; wanted one of 0, 1, 2"),
        ("label", 7, "column 'label', row 3: found '7'"),
        ("set_1", 0.5, "column 'set_1', row 3: found 0.5; wanted 0 or 1"),
    ],
)
def test_the_command_names_the_row_of_an_entry_that_is_wrong(
    column, entry, word, tmp_path, capsys
):
    table = pd.read_csv(write_week(tmp_path / "1.csv")).astype(object)
    table.loc[2, column] = entry
    table.to_csv(tmp_path / "wrong.csv", index=False)
    state = tmp_path / "state.json"
    assert main(["monitor", str(state), str(tmp_path / "wrong.csv")]) == 2
    assert word in capsys.readouterr().err
    assert not state.exists()


def test_the_command_takes_scores_with_the_threshold_they_were_served_by(
    tmp_path, capsys
):
    sets = tmp_path / "sets.csv"
    scores = tmp_path / "scores.csv"
    write_week(sets)
    table = pd.read_csv(sets)
    for label in range(3):
        table[f"score_{label}"] = 0.9 - 0.5 * table.pop(f"set_{label}")
    table.to_csv(scores, index=False)
    states = [str(tmp_path / f"{place}.json") for place in range(2)]
    assert main(["monitor", states[0], str(sets)]) == 0
    assert main(["monitor", states[1], str(scores), "--threshold", "0.5"]) == 0
    assert Monitor.load(states[0]).verdict == Monitor.load(states[1]).verdict
    for threshold in ("high", "0.5,0.5"):
        assert main(["monitor", states[1], str(scores), "--threshold", threshold]) == 2
        assert "threshold: found" in capsys.readouterr().err


def test_the_command_knows_a_file_by_the_bytes_that_it_counted(tmp_path, monkeypatch):
    """Also where the file grows between two looks at it."""
    file = tmp_path / "new.csv"
    text = "set_0,set_1,y,group\n1,0,0,a\n0,1,1,b\n"
    file.write_text(text)
    reading = monitoring_command.read_table

    def read_and_grow(path, *options):
        found = reading(path, *options)
        path.write_text(text + "1,1,1,b\n")
        return found

    monkeypatch.setattr(monitoring_command, "read_table", read_and_grow)
    state = tmp_path / "state.json"
    assert main(["monitor", str(state), str(file)]) == 0
    monitor = Monitor.load(state)
    assert monitor.people == 2
    assert list(monitor.batches) == [hashlib.sha256(text.encode()).hexdigest()[:16]]


def test_a_picture_that_cannot_be_drawn_leaves_none_and_counts_nobody(tmp_path):
    file = tmp_path / "new.csv"
    file.write_text("set_0,set_1,y,group\n1,0,0,a\n0,1,1,b\n")
    state = tmp_path / "state.json"
    picture = tmp_path / "a.what"
    asked = ["monitor", str(state), str(file), "--picture", str(picture)]
    assert main(asked) == 2
    assert list(tmp_path.iterdir()) == [file]


def test_the_command_loses_nobody_to_another_run(tmp_path, monkeypatch, capsys):
    """Two runs begin with the same state, on a file system that has no locks.

    The later one is refused, not written over.
    """
    monkeypatch.setattr(_locking, "_is_taken", lambda handle: True)
    state = str(tmp_path / "state.json")
    weeks = [write_week(tmp_path / f"{place}.csv", seed=place) for place in range(3)]
    assert main(["monitor", state, weeks[0]]) == 0
    counting = monitoring_command._count

    def count_while_another_run_ends(*options):
        monkeypatch.setattr(monitoring_command, "_count", counting)
        assert main(["monitor", state, weeks[1]]) == 0
        counting(*options)

    monkeypatch.setattr(monitoring_command, "_count", count_while_another_run_ends)
    assert main(["monitor", state, weeks[2]]) == 2
    assert "another run changed it meanwhile" in capsys.readouterr().err
    assert Monitor.load(state).people == 4000
    assert main(["monitor", state, weeks[2]]) == 0
    assert Monitor.load(state).people == 6000


TWO_AT_ONCE = """
import sys, time
from pathlib import Path
from cfhelpers.auditing.command import main
folder, own, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
(folder / f"{own}.ready").touch()
while len(list(folder.glob("*.ready"))) < 2:
    time.sleep(0.001)
for place in range(count):
    for name in (own, "both"):
        file = folder / f"{name}{place}.csv"
        print("status", name, main(["monitor", str(folder / "state.json"), str(file)]))
"""


@pytest.mark.slow
def test_two_processes_at_once_lose_nobody_and_count_nobody_twice(tmp_path):
    """Each counts files of its own, and both try to count the same files."""
    count = 15
    for place in range(count):
        for offset, name in enumerate(("one", "two", "both")):
            row = f"{place},{offset}\n"
            text = f"set_0,set_1,y,group,w,v\n1,0,0,a,{row}0,1,1,b,{row}"
            (tmp_path / f"{name}{place}.csv").write_text(text)
    command = [sys.executable, "-c", TWO_AT_ONCE, str(tmp_path)]
    runs = []
    for name in ("one", "two"):
        runs.append(
            subprocess.Popen(
                [*command, name, str(count)], stdout=subprocess.PIPE, text=True
            )
        )
    lines = []
    for run in runs:
        lines += run.communicate(timeout=300)[0].splitlines()
        assert run.returncode == 0
    said = Counter(line for line in lines if line.startswith("status"))
    wanted = {"status one 0": count, "status two 0": count}
    assert said == wanted | {"status both 0": count, "status both 2": count}
    monitor = Monitor.load(tmp_path / "state.json")
    assert monitor.people == 3 * count * 2
    assert len(monitor.batches) == 3 * count
    assert not list(tmp_path.glob(".*"))


HOLD = """
import sys, time
from pathlib import Path
from cfhelpers._locking import one_at_a_time
with one_at_a_time(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_run_waits_for_another_and_not_for_one_that_was_killed(
    tmp_path, monkeypatch, capsys
):
    state = tmp_path / "state.json"
    file = write_week(tmp_path / "1.csv")
    command = [sys.executable, "-c", HOLD, str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "held\n"
            monkeypatch.setattr(_locking, "PATIENCE", 0.1)
            assert main(["monitor", str(state), file]) == 2
            assert "another run has worked on it for 0.1 s" in capsys.readouterr().err
            assert not state.exists()
        finally:
            other.kill()
    assert (tmp_path / ".state.lock").exists()
    assert main(["monitor", str(state), file]) == 0
    assert Monitor.load(state).people == 2000
    assert not (tmp_path / ".state.lock").exists()


def test_a_lock_that_was_removed_meanwhile_is_nobodys(tmp_path, monkeypatch):
    """Its next owner would be alone with it, beside the owner of a new file."""
    state = tmp_path / "state.json"
    lock = tmp_path / ".state.lock"
    taking = _locking._is_taken

    def take_what_was_removed(handle):
        monkeypatch.setattr(_locking, "_is_taken", taking)
        lock.unlink()
        return taking(handle)

    monkeypatch.setattr(_locking, "_is_taken", take_what_was_removed)
    with _locking.one_at_a_time(state):
        assert lock.exists()
    assert not lock.exists()


def test_a_state_where_nothing_may_be_written_is_named(tmp_path, monkeypatch, capsys):
    file = write_week(tmp_path / "1.csv")

    def refuse(path, *options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(_locking.os, "open", refuse)
    monkeypatch.setattr(_locking.os, "access", lambda *options: False)
    assert main(["monitor", str(tmp_path / "state.json"), file]) == 2
    message = capsys.readouterr().err
    assert "state.json" in message and ".lock" not in message


def test_the_command_reads_the_index_of_a_data_frame_and_groups_as_text(tmp_path):
    sets = pd.DataFrame({"set_0": [1, 0, 1], "set_1": [0, 1, 1], "y": [0, 1, 1]})
    file = tmp_path / "new.csv"
    sets.assign(set_by=["007", "7", "7"]).to_csv(file)
    state = str(tmp_path / "state.json")
    assert main(["monitor", state, str(file), "--groups", "set_by"]) == 0
    assert Monitor.load(state).to_dict()["groups"] == ["007", "7"]


def test_the_command_compares_the_same_labels_in_any_order_of_the_columns(tmp_path):
    columns = ["set_0", "set_1", "y", "group"]
    people = pd.DataFrame([[1, 0, 0, "a"], [0, 1, 1, "b"]] * 3, columns=columns)
    verdicts = []
    for first in (columns, ["set_1", "set_0", "y", "group"]):
        state = str(tmp_path / f"{first[0]}.json")
        for place, order in enumerate((first, columns[::-1])):
            file = tmp_path / f"{place}.csv"
            people[order][place:].to_csv(file, index=False)
            assert main(["monitor", state, str(file)]) == 0
        assert Monitor.load(state).positive_labels == [1]
        verdicts.append(Monitor.load(state).verdict)
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("twice", ["set_1", "y", "group"])
def test_the_command_refuses_a_column_that_occurs_twice(twice, tmp_path, capsys):
    people = pd.DataFrame({"set_0": [1, 0], "set_1": [0, 1], "y": [0, 1]})
    people = people.assign(group=["a", "b"])
    file = tmp_path / "new.csv"
    pd.concat([people, people[[twice]]], axis=1).to_csv(file, index=False)
    for options in ([], ["--columns", "set_0,set_1"]):
        state = str(tmp_path / "state.json")
        assert main(["monitor", state, str(file), *options]) == 2
        told = capsys.readouterr().err
        assert f"found the column '{twice}' twice; wanted another name" in told


def test_the_first_entry_that_is_no_date_is_named():
    monitor = Monitor("demographic_parity", windows=["2026-02-01"])
    dates = pd.Series(["2026-01-31", "31.01.2026", "01.02.2026"])
    with pytest.raises(ValueError, match=r"date: found '31\.01\.2026'; wanted a date"):
        monitor.update(np.ones((3, 2), bool), None, ["a", "b", "a"], date=dates)


def test_the_command_draws_and_merges(tmp_path):
    states = []
    for place in (1, 2):
        states.append(str(tmp_path / f"{place}.json"))
        file = write_week(tmp_path / f"{place}.csv", seed=place)
        assert main(["monitor", states[-1], file, "--declared", "men,women"]) == 0
    picture = tmp_path / "looks.png"
    arguments = ["monitor", states[0], "--merge", states[1], "--picture", str(picture)]
    assert main(arguments) == 0
    assert picture.stat().st_size > 5000 and Monitor.load(states[0]).people == 4000


def test_the_command_keeps_to_the_first_choice(tmp_path, capsys):
    state = str(tmp_path / "state.json")
    file = write_week(tmp_path / "1.csv")
    main(["monitor", state, file])
    before = (tmp_path / "state.json").read_bytes()
    assert main(["monitor", state, "--closeness", "0.3"]) == 2
    assert "closeness" in capsys.readouterr().err
    assert main(["monitor", state, str(tmp_path / "gone.csv")]) == 2
    assert (tmp_path / "state.json").read_bytes() == before


def test_a_picture_before_the_first_look_is_empty():
    [axes] = Monitor("equal_opportunity").plot().axes
    assert len(axes.lines[0].get_xdata()) == 0


def test_the_picture_shows_every_look():
    figure = watched(weeks=4).plot()
    [axes] = figure.axes
    assert len(axes.lines[0].get_xdata()) == 4
    assert "equal opportunity" in axes.get_title()
