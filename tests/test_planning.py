"""A plan: the test itself is asked, and simulated people agree with the answer."""

import check_plan
import numpy as np
import pytest

from cfhelpers import plan
from cfhelpers.auditing.command import main
from cfhelpers.metrics import METRICS
from cfhelpers.planning import _Question

TWO = {"men": 0.6, "women": 0.4}


@pytest.fixture(scope="module")
def parity():
    return plan(0.2, TWO, "demographic_parity")


def test_simulated_calibration_sets_pass_as_often_as_planned(parity):
    share = check_plan.passing_share(parity, 2000, np.random.default_rng(0))
    # .75 to .85, and five standard deviations for a false alarm below 1e-6
    assert 0.75 - 0.045 <= share <= 0.85 + 0.045


def test_small_cells_are_planned_with_sizes_as_random_as_people():
    # With 12 points in each of two cells every sample would pass, and with 24 people
    # only one sample in six has 12 in both.
    found = plan(0.2, ["men", "women"], gap=0.0, coverage=1.0)
    share = check_plan.passing_share(found, 2000, np.random.default_rng(1))
    assert share >= 0.75 - 0.045


def test_from_the_answer_on_the_power_is_reached_and_just_below_it_is_not(parity):
    question = _Question(
        METRICS["demographic_parity"], 0.2 + 1e-12, 0.1, (0.9, 0.8), ((0.6, 0.4),)
    )
    assert question.power(parity.people - 1) < 0.8
    for people in np.geomspace(parity.people, 4 * parity.people, 12).astype(int):
        assert question.power(int(people)) >= 0.8


def test_the_table_has_the_points_of_every_cell(parity):
    assert parity.cells["group"].tolist() == ["men", "women"]
    assert parity.cells["coverage"].tolist() == pytest.approx([0.9, 0.8])
    assert abs(parity.cells["points"].sum() - parity.people) <= 2


def test_the_curve_passes_through_the_answer(parity):
    at = parity.curve.set_index("people")
    assert at.loc[parity.people, "power"] >= 0.8
    assert at["power"].iloc[0] < 0.5 < at["power"].iloc[-1]


def test_the_sentence_says_the_number(parity):
    assert f"{parity.people:,} people" in str(parity)


def test_a_plot_is_drawn(parity):
    assert parity.plot().axes[0].get_xlabel() == "people in the calibration set"


def test_labels_multiply_the_people():
    one = plan(0.2, TWO)
    two = plan(0.2, TWO, labels={"yes": 0.5, "no": 0.5})
    each = plan(0.2, TWO, labels={"yes": 0.5, "no": 0.5}, classwise=True)
    assert 2 * one.people < two.people < each.people


def test_a_smaller_gap_needs_fewer_people(parity):
    assert plan(0.2, TWO, "demographic_parity", gap=0.0).people < parity.people


def test_more_groups_are_simulated():
    found = plan(0.3, ["a", "b", "c"], "overall_accuracy_equality", gap=0.1)
    share = check_plan.passing_share(found, 2000, np.random.default_rng(1))
    assert 0.75 - 0.045 <= share <= 0.85 + 0.045


def test_ratios_are_planned():
    found = plan(groups=TWO, metric="disparate_impact")
    assert (found.closeness, found.gap) == (0.8, 0.9)
    assert found.cells["coverage"].tolist() == pytest.approx([0.9, 0.81])


@pytest.mark.parametrize(
    "options, word",
    [
        ({"groups": None}, "groups: found None"),
        ({"groups": {"men": 1.0}}, "groups"),
        ({"groups": {"men": 0.6, "women": 0.6}}, "sum to 1.2"),
        ({"groups": {"men": 60, "women": 40}}, "'men'"),
        ({"groups": {"men": 1.5, "women": -0.5}}, "'men'"),
        ({"groups": ["men", "men"]}, "groups"),
        ({"groups": [["men"], ["women"]]}, "groups"),
        ({"groups": 2}, "groups: found 2"),
        ({"groups": {"men": 1 - 1e-7, "women": 1e-7}}, "so rare"),
        ({"labels": 0.5}, "labels: found 0.5"),
        ({"labels": {"yes": 0.8, "no": 0.8}}, "labels"),
        ({"labels": "yes"}, "labels"),
        ({"closeness": 2}, "closeness"),
        ({"gap": 0.2}, "gap"),
        ({"gap": -0.1}, "gap"),
        ({"gap": "small"}, "gap"),
        ({"gap": 0.0999999}, "gap"),
        ({"coverage": 0.05, "gap": 0.09}, "gap"),
        ({"power": 1}, "power"),
        ({"delta": 0}, "delta"),
        ({"coverage": 90}, "coverage"),
        ({"metric": "predictive_parity"}, "metric"),
        ({"metric": "set_size"}, "metric"),
        ({"classwise": "yes"}, "classwise"),
    ],
)
def test_nonsense_is_refused_by_name(options, word):
    arguments = {"closeness": 0.1, "groups": TWO} | options
    with pytest.raises(ValueError, match=word):
        plan(**arguments)


def test_the_command_prints_the_plan(tmp_path, capsys):
    curve = tmp_path / "curve.csv"
    arguments = ["plan", "--groups", "men=0.6,women=0.4", "--closeness", "0.2"]
    assert main([*arguments, "--gap", "0", "--curve", str(curve)]) == 0
    printed = capsys.readouterr().out
    assert "people" in printed and "women" in printed
    assert curve.read_text().startswith("people,smallest_cell,power")


@pytest.mark.parametrize("groups", ["men=0.6,women=0.6", "men=x,women=0.5", "men"])
def test_the_command_names_a_wrong_option(groups, capsys):
    assert main(["plan", "--groups", groups]) == 2
    assert "groups" in capsys.readouterr().err
