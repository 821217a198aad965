"""Two audits compared: what changed, and what of it is beyond noise."""

import copy

import numpy as np
import pytest

from cfhelpers.auditing import compare
from cfhelpers.bounds import clopper_pearson

GROUPS = ("a", "b", "c")


def document(covered, n=1000, verdict="within", sha256="1", confidence=0.95):
    """An audit of one metric and one label, with so many covered in each group."""
    cells = []
    for group, hits in zip(GROUPS, covered, strict=True):
        cells.append(
            {
                "grouping": "g",
                "metric": "equal_opportunity",
                "label": "yes",
                "condition": "equal",
                "group": group,
                "n": n,
                "covered": int(hits),
                "share": hits / n,
                "effective": float(n),
            }
        )
    shares = np.array(covered) / n
    gap = float(np.ptp(shares))
    entry = {
        "grouping": "g",
        "metric": "equal_opportunity",
        "verdict": verdict,
        "closeness": 0.1,
        "estimate": gap,
        "lower": max(gap - 0.03, 0),
        "upper": gap + 0.03,
    }
    return {
        "date": "2026-03-01T00:00:00+00:00",
        "version": "1",
        "file": {"name": "my.csv", "sha256": sha256},
        "confidence": confidence,
        "labels": ["no", "yes"],
        "labels_compared": ["yes"],
        "kind": "sets",
        "verdicts": [entry],
        "cells": cells,
    }


def test_an_audit_compared_with_itself_has_not_changed():
    same = document([900, 890, 880])
    found = compare.compared_documents(same, copy.deepcopy(same))
    assert found["cells"] == [] and found["n_cells"] == 3
    assert not any(entry["is_new_verdict"] for entry in found["verdicts"])
    assert not any(entry["is_beyond_noise"] for entry in found["verdicts"])
    text = "\n".join(compare.change_lines(found))
    assert "same, byte for byte" in text
    assert "1 verdict in both: 0 changed, 1 the same; 0 disparities" in text


def test_a_change_beyond_noise_is_named_with_its_cell():
    now = document([900, 890, 700], verdict="beyond", sha256="2")
    found = compare.compared_documents(now, document([900, 890, 880]))
    assert [cell["group"] for cell in found["cells"]] == ["c"]
    text = "\n".join(compare.change_lines(found))
    assert "within → beyond; 0.020 → 0.200, a change beyond noise." in text
    assert "c, yes: 88% → 70%, beyond noise." in text


def test_a_new_verdict_may_be_noise():
    now = document([900, 890, 860], verdict="cannot tell", sha256="2")
    found = compare.compared_documents(now, document([900, 890, 880]))
    assert found["cells"] == []
    text = "\n".join(compare.change_lines(found))
    assert "within → cannot tell; 0.020 → 0.040, a change within noise." in text


def test_cells_are_apart_as_their_exact_intervals_are():
    """Level γ / (4 · cells) for each of the four bounds of a cell."""
    then = 900
    for now in range(800, 900):
        made = compare.compared_documents(document([now] * 3), document([then] * 3))
        _, upper = clopper_pearson(now, 1000, 0.05 / 12)
        lower, _ = clopper_pearson(then, 1000, 0.05 / 12)
        assert bool(made["cells"]) == bool(upper < lower)


def test_where_nothing_changed_cells_are_hardly_ever_named():
    """At most 5% of comparisons by the proof; exact bounds are far from it."""
    rng = np.random.default_rng(0)
    named = 0
    for _ in range(200):
        first = document(rng.binomial(300, [0.9, 0.8, 0.5]), n=300)
        second = document(rng.binomial(300, [0.9, 0.8, 0.5]), n=300)
        named += bool(compare.compared_documents(first, second)["cells"])
    assert named <= 10


def test_what_only_one_audit_has_is_named():
    now = document([900, 890, 880])
    then = document([900, 890, 880])
    then["verdicts"][0]["grouping"] = "old"
    text = "\n".join(compare.change_lines(compare.compared_documents(now, then)))
    assert "No verdict is in both audits." in text
    assert "Only in this audit: equal_opportunity by g." in text
    assert "Only in the earlier audit: equal_opportunity by old." in text


@pytest.mark.parametrize("field, value", [("labels", ["a"]), ("kind", "scores")])
def test_what_makes_two_audits_hard_to_compare_is_said(field, value):
    then = document([900, 890, 880]) | {field: value}
    found = compare.compared_documents(document([900, 890, 880]), then)
    assert any("differ" in note and str(value) in note for note in found["notes"])


def test_groups_that_only_one_audit_has_are_named():
    now = document([900, 890, 880])
    then = copy.deepcopy(now)
    for cell in then["cells"]:
        cell["group"] = {"c": "d"}.get(cell["group"], cell["group"])
    found = compare.compared_documents(now, then)
    assert found["notes"][-1] == "The groups by g differ: c only now; d only then."
    assert found["n_cells"] == 2
    del then["cells"][1:]
    assert "b, c only now." in compare.compared_documents(now, then)["notes"][-1]


def test_another_closeness_is_said():
    now = document([900, 890, 880], verdict="beyond")
    now["verdicts"][0]["closeness"] = 0.01
    found = compare.compared_documents(now, document([900, 890, 880]))
    text = "\n".join(compare.change_lines(found))
    assert "Allowed was 0.1, and is 0.01." in text


def test_hundreds_of_changed_cells_are_counted_rather_than_listed():
    cells = []
    for place in range(9):
        cells.append(
            {
                "metric": "m",
                "grouping": "g",
                "group": str(place),
                "label": "yes",
                "share_now": 0.1,
                "share_then": 0.5,
            }
        )
    base = compare.compared_documents(document([9, 9, 9]), document([9, 9, 9]))
    lines = compare.change_lines(base | {"cells": cells})
    assert "4 other cells changed beyond noise too." in lines
