"""Sentences of an audit: who is worst off, how many people, and what to do next."""

import re

import pytest

from cfhelpers.auditing import sentences


def cell(group, covered, n):
    return {"group": group, "covered": covered, "n": n, "share": covered / n}


def entry(metric="equal_opportunity", condition="equal", **changes):
    made = {
        "metric": metric,
        "condition": condition,
        "label": ">50K",
        "grouping": "sex",
        "compare": "difference",
        "closeness": 0.1,
        "estimate": 0.11,
        "lower": 0.05,
        "upper": 0.17,
        "verdict": "beyond",
        "kind": "",
        "vacuous": "",
        "lowest": cell("women", 262, 418),
        "highest": cell("men", 666, 900),
        "empty": [],
        "people": 1318,
        "people_needed": None,
        "power": 0.8,
        "small_groups": None,
        "fixes": [],
    }
    return made | changes


# The metric, its condition, and the numbers that the sentence must tell: people counted,
# those it happens to, their share, the other group's share, and the change in people.
FORMS = {
    "equal opportunity": ("equal_opportunity", "equal", "418 156 37% 26% 47 fewer"),
    "demographic parity": ("demographic_parity", "any", "418 262 63% 74% 47 more"),
    "disparate impact": ("disparate_impact", "any", "418 262 63% 74% 47 more"),
    "wrongly given": ("predictive_equality", "different", "900 666 74% 63% 102 fewer"),
    "odds, true": ("equalized_odds", "equal", "418 156 37% 26% 47 fewer"),
    "odds, not true": ("equalized_odds", "different", "900 666 74% 63% 102 fewer"),
    "predictive parity": ("predictive_parity", "held", "418 156 37% 26% 47 fewer"),
    "accuracy": ("overall_accuracy_equality", "any", "418 156 37% 26% 47 fewer"),
    "singletons": ("singletons", "any", "418 262 63% 74% 47 more"),
    "the user's own": ("mine", "own", "418 262 63% 74% 47 more"),
}


@pytest.mark.parametrize("metric, condition, numbers", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("is_decision", [False, True])
def test_every_metric_has_its_own_sentence_with_the_right_people(
    metric, condition, numbers, is_decision
):
    text = sentences.who_is_worst_off(entry(metric, condition), is_decision)
    found = re.findall(r"(?<![>\w])\d[\d,]*%?", text)
    *wanted, change, direction = numbers.split()
    assert found == [*wanted, change]
    assert f"{change} {direction} people" in text
    worst = "men" if condition == "different" else "women"
    assert text.index(f"“{worst}”") < len(text) // 2


def test_the_sentence_of_each_metric_differs_where_its_cell_does():
    said = set()
    for metric, condition, _ in FORMS.values():
        said.add(sentences.who_is_worst_off(entry(metric, condition)))
    assert len(said) == 6  # any, true, not true, held, the true label, one label


def test_predictive_parity_less_the_prior_tells_both_values():
    lowest = cell("a", 5, 10) | {"share": -0.05}
    highest = cell("b", 5, 10) | {"share": 0.2}
    changes = {"lowest": lowest, "highest": highest}
    text = sentences.who_is_worst_off(entry("predictive_parity_proxy", "held", **changes))
    assert text == (
        "In “a”, “>50K” is true 5.0 points less often among the 10 people whose set "
        "holds it than in the whole group; in “b” it is 20.0 points more often."
    )


def test_small_groups_are_named_as_what_leaves_it_open():
    close = {"verdict": "cannot tell", "kind": "too close to call"}
    small = {"groups": 2, "least": 104}
    assert "stand in the way" in steps_of(**close, small_groups=small)["collect"]
    assert "stand in the way" not in steps_of(**close)["collect"]


def test_sizes_that_round_to_a_whole_are_told_apart_from_it():
    nearest = [BEFORE, fix("fixed-sequence", 1.998, verdict="beyond", estimate=0.105)]
    text = sentences.thresholds_text(entry(fixes=nearest))
    assert "with sets of 1.998 instead of" in text


def test_one_person_is_singular():
    changes = {"lowest": cell("a", 0, 1), "highest": cell("b", 9, 9)}
    text = sentences.who_is_worst_off(entry(**changes))
    assert text.startswith("Of 1 person in “a” whose true label is “>50K”, 1 (100%) is m")
    assert text.endswith("at that rate it would be 1 fewer person.")


def test_shares_that_round_alike_are_told_apart():
    assert sentences.percents(0.9512, 0.9534) == ["95.1%", "95.3%"]
    assert sentences.percents(0.5, 0.5) == ["50%", "50%"]


def test_weighted_shares_are_not_told_as_people():
    text = sentences.who_is_worst_off(entry(), is_weighted=True)
    assert "(weighted)" in text and "156" not in text and "47" not in text


def test_nothing_is_said_where_nobody_can_be_compared():
    changes = {"lowest": None, "highest": None}
    assert sentences.who_is_worst_off(entry(**changes)) == ""


def test_markup_in_a_name_is_left_to_the_page():
    """A sentence is plain text; braces of a name are not a format."""
    changes = {"lowest": cell("{group}{0}", 1, 2), "label": "{label}"}
    text = sentences.who_is_worst_off(entry(**changes))
    assert "“{group}{0}”" in text and "“{label}”" in text


def steps_of(**changes):
    return {step["step"]: step["text"] for step in sentences.next_steps(entry(**changes))}


def test_within_needs_nothing():
    assert list(steps_of(verdict="within")) == ["nothing"]


def test_too_few_people_says_how_many_more():
    steps = steps_of(verdict="cannot tell", people_needed=5318)
    assert list(steps) == ["collect", "thresholds", "accept"]
    assert "about 4,000 more people" in steps["collect"] and "80%" in steps["collect"]


def test_too_close_to_call_does_not_ask_for_more_people():
    text = steps_of(verdict="cannot tell", kind="too close to call")["collect"]
    assert text.startswith("Too close to call") and "Collect" not in text


def test_cells_without_people_are_named():
    empty = [{"group": "x", "label": "no", "condition": "equal"}] * 5
    text = steps_of(verdict="cannot tell", empty=empty)["collect"]
    assert "x, no" in text and "and 2 other cells" in text


def test_small_groups_are_offered_to_be_pooled():
    small = {"groups": 3, "least": 35}
    steps = steps_of(verdict="cannot tell", people_needed=2000, small_groups=small)
    assert "3 groups have fewer than 35 people" in steps["pool"]
    assert "--min-group" in steps["pool"]
    assert "pool" not in steps_of(small_groups=small)  # beyond is decided


def test_sets_that_say_nothing_come_first():
    steps = steps_of(verdict="cannot tell", kind="vacuous", vacuous="Every set is full.")
    assert next(iter(steps)) == "look" and "Every set is full." in steps["look"]


def fix(rule="none", size=1.5, estimate=0.02, verdict="within", vacuous=""):
    return {
        "thresholds": "one per label",
        "rule": rule,
        "delta": 0.1,
        "rows": 500,
        "mean_set_size": size,
        "coverage": 0.95,
        "estimate": estimate,
        "lower": 0.0,
        "upper": 0.07,
        "closeness": 0.1,
        "verdict": verdict,
        "vacuous": vacuous,
        "by_label": [],
        "note": "",
    }


BEFORE = fix("", 1.2, 0.2, "beyond")


def test_the_cheapest_fix_with_a_guarantee_is_recommended_with_its_price():
    fixes = [
        BEFORE,
        fix("none", 1.3),
        fix("fixed-sequence", 1.7),
        fix("fixed-sequence", 1.6),
        fix("fixed-sequence", 2.0, vacuous="every set holds it"),
    ]
    text = steps_of(fixes=fixes)["thresholds"]
    assert "sets grow from 1.20 to 1.60 labels" in text and "guarantee that fails" in text
    assert sentences.best_fix(entry(fixes=fixes)) is fixes[3]
    text = steps_of(fixes=fixes[:2])["thresholds"]
    assert "to 1.30 labels" in text and "without a guarantee" in text


def test_a_fix_that_says_nothing_is_not_recommended():
    fixes = [BEFORE, fix("fixed-sequence", 2.0, vacuous="every set holds it")]
    text = steps_of(fixes=fixes)["thresholds"]
    assert "none is shown to be within" in text and "2.00" not in text


def test_where_no_fix_is_within_the_nearest_is_told():
    fixes = [BEFORE, fix("none", 1.4, 0.12, "cannot tell")]
    assert "The nearest: 0.120" in steps_of(fixes=fixes)["thresholds"]
    fixes = [BEFORE, fix("none", 1.4, 0.3, "beyond")]
    assert "None comes closer" in steps_of(fixes=fixes)["thresholds"]


def test_a_file_of_sets_says_what_would_be_needed_for_a_fix():
    assert "no probabilities or scores" in steps_of()["thresholds"]


def test_what_is_known_has_the_interval_and_what_is_allowed():
    text = sentences.known(entry(), 0.95)
    assert "0.110, between 0.050 and 0.170 with 95% confidence" in text
    assert text.endswith("allowed is at most 0.1.")
    ratio = entry("disparate_impact", "any", compare="ratio", closeness=0.8)
    assert sentences.known(ratio, 0.95).endswith("allowed is at least 0.8.")
    assert "no people" in sentences.known(entry(estimate=None), 0.95)
