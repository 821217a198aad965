"""How many people would tell: the number that an audit names does settle it."""

import check_projection
import numpy as np
import pytest

from cfhelpers import audit
from cfhelpers.auditing import UNDECIDED
from cfhelpers.auditing.projection import People, people_needed
from cfhelpers.groups import as_groups

AUDITS = 150


@pytest.mark.parametrize(
    "name", ["demographic parity of decisions", "a gap beyond what is allowed"]
)
def test_the_number_of_people_that_is_named_settles_it_in_four_of_five_audits(name):
    """At 80%, fewer than 60% or more than 95% of 150 has a chance below one in 10⁸."""
    now, wanted, share = check_projection.share_decided(name, AUDITS, seed=1)
    assert now < wanted <= 10 * now
    assert 0.6 < share < 0.95


def test_a_seed_gives_the_same_number_and_another_one_nearly_so():
    file = check_projection.decisions(700)
    found = file.audit("demographic_parity")
    shares = found.shares["demographic_parity"]
    judge = found.judges["demographic_parity"]
    people = found.people["demographic_parity"]
    first = people_needed(shares, judge, people, 700, seed=1)
    assert first == people_needed(shares, judge, people, 700, seed=1)
    other = people_needed(shares, judge, people, 700, seed=2)
    assert abs(np.log(first / other)) < 0.3


def test_labels_that_exclude_each_other_are_not_drawn_as_if_they_did_not():
    """The sets of two labels hold one or the other: one gap, not two."""
    file = check_projection.decisions(700)
    found = file.audit("demographic_parity")
    shares = found.shares["demographic_parity"]
    judge = found.judges["demographic_parity"]
    together = people_needed(shares, judge, found.people["demographic_parity"], 700)
    apart = people_needed(shares, judge, None, 700)
    assert together < apart


def test_a_gap_at_what_is_allowed_is_too_close_to_call():
    sets = np.zeros((400, 2), bool)
    sets[:150, 1] = True  # 150 of 200, and 130 of 200
    sets[200:330, 1] = True
    groups = ["a"] * 200 + ["b"] * 200
    found = audit(sets, np.ones(400, int), groups, "equal_opportunity")
    [record] = found.records
    assert record.verdict == UNDECIDED and record.kind == "too close to call"
    assert record.people_needed is None and "too close to call" in str(found)
    assert (record.worst.covered, record.worst.n) == (130, 200)
    assert (record.best.group, record.best.covered) == ("a", 150)


def test_a_group_without_people_is_named_as_the_reason():
    sets = np.ones((400, 2), bool)
    sets[::2, 0] = False
    y = np.array([1] * 350 + [0] * 50)
    groups = ["a", "b"] * 175 + ["c"] * 50  # nobody in c has the label 1
    [record] = audit(sets, y, groups, "equal_opportunity").records
    assert record.kind == "no people in a cell"
    assert record.empty == [("c", 1, "equal")]


def test_kinds_of_people_are_those_that_occur():
    rng = np.random.default_rng(0)
    sets = rng.random((500, 45)) < 0.01  # more labels than a whole number has bits
    y = rng.integers(45, size=500)
    groups = as_groups(rng.integers(3, size=500), 500)
    kinds, frequencies = People(sets, y, groups).kinds
    rows = np.column_stack([sets, y, groups.codes])
    assert len(kinds) == len(np.unique(rows, axis=0))
    assert frequencies.sum() == pytest.approx(1)


def test_an_audit_draws_itself_and_shows_itself_as_a_table():
    rng = np.random.default_rng(0)
    sets = rng.random((600, 2)) < 0.8
    groups = np.where(rng.random(600) < 0.5, "<b>", "$x$")
    found = audit(
        sets, rng.integers(2, size=600), groups, ["equal_opportunity", "equalized_odds"]
    )
    table = found._repr_html_()
    assert "<table" in table and "&lt;b&gt;" in table and "<b>" not in table
    ax = found.plot("equalized_odds")
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert len(names) == 4 and names[0].startswith(r"\$x\$ · 1 (equal")
    with pytest.raises(ValueError, match="metric: found 'size'; wanted one of equal_opp"):
        found.plot("size")


def test_weights_that_are_all_alike_change_nothing_but_the_words():
    rng = np.random.default_rng(1)
    sets = rng.random((300, 3)) < 0.7
    y = rng.integers(3, size=300)
    groups = rng.choice(["a", "b"], 300)
    plain = audit(sets, y, groups)
    weighted = audit(sets, y, groups, sample_weight=np.full(300, 2.5))
    columns = ["disparity", "lower", "upper"]
    assert weighted.disparities[columns].to_numpy(float) == pytest.approx(
        plain.disparities[columns].to_numpy(float)
    )
    assert weighted.verdicts == plain.verdicts
    assert weighted.sizes.to_numpy(float) == pytest.approx(plain.sizes.to_numpy(float))
    assert "approximate" in str(weighted) and "approximate" not in str(plain)


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1.0] * 11, "sample_weight: found 11 weights for 12 points"),
        ([-1.0] + [1.0] * 11, "sample_weight: entry 0 is -1; wanted no negative weight"),
        ([np.inf] + [1.0] * 11, "sample_weight: entry 0 is inf; wanted a finite"),
        ([0.0] * 12, "sample_weight: every weight is 0"),
    ],
)
def test_bad_weights_are_named(weights, message):
    sets = np.eye(2, dtype=bool)[[0, 1] * 6]
    with pytest.raises(ValueError, match=message):
        audit(sets, [0, 1] * 6, ["a", "a", "b", "b"] * 3, sample_weight=weights)
