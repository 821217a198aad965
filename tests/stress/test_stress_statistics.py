"""Promises about probabilities, counted where the truth is known exactly.

Every check counts events that have at most a known chance p. It fails if there are more
than m, the least number with Pr[Bin(n, p) > m] ≤ 10⁻⁶ / CHECKS. There are no more than
CHECKS of them, so a run in which every promise is kept fails with probability at most
10⁻⁶, whatever the seed.
"""

import math

import check_audit
import check_monitor
import check_promise
import numpy as np
import pytest
from scipy.stats import binom
from stress_counts import RARELY, most_by_chance
from stress_counts import cases as count

from cfhelpers import Monitor, scores
from cfhelpers.auditing import BEYOND, WITHIN, audit
from cfhelpers.conformal import conformal_quantile
from cfhelpers.fairness import METRICS, disparity

CHECKS = 200
LEVEL = RARELY / CHECKS
made = []


def at_most(events, trials, chance, ran=None, what=""):
    """Fail if events of at most this chance happened more often than luck allows."""
    made.append(what)
    assert len(made) <= CHECKS
    most = most_by_chance(trials, chance, LEVEL)
    assert events <= most, f"{what}: {events} of {trials}, at most {most} by chance"
    if ran is not None:
        ran(trials, what, float(binom.sf(most, trials, chance)))


def test_limits_are_those_of_the_binomial():
    """Just beyond its limit a count is called too many, and at it it is not."""
    for trials, chance in ((100, 0.1), (2000, 0.1), (2000, 0.05), (50, 0.5)):
        most = most_by_chance(trials, chance, LEVEL)
        tails = binom.sf([most, most - 1], trials, chance)
        assert tails[0] <= LEVEL < tails[1]
        at_most(most, trials, chance)
        with pytest.raises(AssertionError, match="at most"):
            at_most(most + 1, trials, chance)


# Marginal coverage.

ALPHA = 0.1
N_CALIBRATION = 39
SCORES = {
    "tps": lambda probs, u: scores.tps(probs),
    "aps": lambda probs, u: scores.aps(probs),
    "aps, randomised": scores.aps,
    "raps": lambda probs, u: scores.raps(probs, None, penalty=0.1, k_reg=1),
    "raps, randomised": lambda probs, u: scores.raps(probs, u, penalty=0.1, k_reg=1),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_new_person_is_covered_as_often_as_promised(name, ran):
    """One new person for each calibration, so that all of them are independent."""
    rng = np.random.default_rng(len(name))
    n = count(1000, 10)
    missed = 0
    for _ in range(0, n, 500):
        many = min(500, n)
        size = many * (N_CALIBRATION + 1)
        probs = rng.dirichlet([2, 1, 1, 0.5], size)
        y = (rng.random((size, 1)) > probs.cumsum(axis=1)).sum(axis=1)
        own = SCORES[name](probs, rng.random(size))[np.arange(size), y.clip(max=3)]
        for row in own.reshape(many, -1):
            missed += row[-1] > conformal_quantile(row[:-1], ALPHA)
    at_most(missed, n, ALPHA, ran, "people missed, one per calibration")
    if "aps" not in name or "randomised" in name:  # no ties: covered exactly so often
        rank = math.ceil((N_CALIBRATION + 1) * (1 - ALPHA) - 1e-9)
        at_most(n - missed, n, rank / (N_CALIBRATION + 1))


# The guarantee.

HARDEST = {setting.name: setting for setting in check_promise.SETTINGS}
SIZES = check_promise.Setting("sizes", 3000, 2, 4, 1.5, 0.3, 0.8)


@pytest.mark.parametrize("classwise", [False, True], ids=["single", "classwise"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("setting", ["a cliff", "small cells"])
def test_the_true_gap_is_beyond_c_no_more_often_than_delta(
    setting, metric, classwise, ran
):
    if METRICS[metric].is_size and (classwise or setting == "small cells"):
        pytest.skip("sizes of sets: one threshold for all labels, and one population")
    n = count(20, 1.0 if setting == "a cliff" else 0.25)
    chosen = SIZES if METRICS[metric].is_size else HARDEST[setting]
    beyond, finite = check_promise.share_beyond(chosen, metric, classwise, n, 1)
    at_most(beyond, n, check_promise.DELTA, ran, "calibrations")
    # Its four bounds share delta: so few people never do.
    assert finite > 0 or metric == "predictive_parity_proxy"


def test_the_papers_rule_breaks_c_where_the_guarantee_does_not(ran):
    """So the count above can fail."""
    n = count(60, 0.1)
    asked = (HARDEST["a cliff"], "demographic_parity", False, n, 1)
    beyond, _ = check_promise.share_beyond(*asked, guarantee="none")
    assert beyond > most_by_chance(n, check_promise.DELTA, LEVEL)
    ran(n, "calibrations")


@pytest.mark.parametrize("metric", METRICS)
def test_the_truth_is_that_of_a_large_draw(metric):
    """The true losses are sums; a large sample comes close to them."""
    people = check_promise.table(3, 12, 0.5, np.random.default_rng(1))
    found, y, groups = people.draw(60_000, np.random.default_rng(2))
    losses = people.losses(metric)
    for place in (3, 8):
        sets = found <= people.values[place]
        drawn = disparity(sets, y, groups, metric, [1, 2])
        truth = METRICS[metric].closeness(losses[1:, place].max())
        assert drawn == pytest.approx(truth, abs=0.03)


# The audit.

GAMMA = 0.05
AUDITED = tuple(METRICS)


def audited_people():
    """A population, a threshold, and what is true of it there."""
    people = check_promise.table(2, 6, 0.8, np.random.default_rng(3))
    place = 3
    truth = {}
    for metric in AUDITED:
        loss = people.losses(metric)[1:, place].max()
        truth[metric] = float(METRICS[metric].closeness(loss))
    return people, place, truth


def true_coverage(people, place, row):
    """The true coverage of a cell of the audit's table."""
    label = 0 if row["metric"] in ("overall_accuracy_equality",) else row["label"]
    name = row["metric"]
    if name == "equalized_odds":
        is_equal = str(row["condition"]) == "equal"
        name = "equal_opportunity" if is_equal else "predictive_equality"
    if METRICS[name].is_size:
        label = 0
    return people.compared(name, int(label))[int(row["group"]), place]


def test_intervals_of_the_audit_hold_the_truth(ran):
    people, place, _ = audited_people()
    rng = np.random.default_rng(4)
    n = count(40)
    missed = {}
    for _ in range(n):
        found, y, groups = people.draw(300, rng)
        names = [name for name in AUDITED if not METRICS[name].is_size]
        table = audit(found <= people.values[place], y, groups, names).table
        for row in table.to_dict("records"):
            truth = true_coverage(people, place, row)
            is_out = not row["lower"] <= truth <= row["upper"]
            key = tuple(str(row[k]) for k in ("metric", "label", "condition", "group"))
            missed[key] = missed.get(key, 0) + is_out
    for key, times in missed.items():
        at_most(times, n, GAMMA, ran, "audits")
        assert key


@pytest.mark.parametrize("metric", AUDITED)
def test_verdicts_of_the_audit_are_wrong_no_more_often_than_promised(metric, ran):
    people, place, truth = audited_people()
    rng = np.random.default_rng(5)
    step = 1e-6 if METRICS[metric].is_ratio else -1e-6
    n = count(20)
    wrong = {WITHIN: 0, BEYOND: 0}
    for _ in range(n):
        found, y, groups = people.draw(300, rng)
        sets = found <= people.values[place]
        tight = audit(sets, y, groups, metric, truth[metric] + step)
        wrong[WITHIN] += tight.verdicts[metric] == WITHIN
        at_truth = audit(sets, y, groups, metric, truth[metric] - step)
        wrong[BEYOND] += at_truth.verdicts[metric] == BEYOND
    for word, times in wrong.items():
        at_most(times, n, GAMMA, ran, f"audits, {word} where it is not")


@pytest.mark.parametrize("other", [0.84, 0.7999, 0.8])
def test_verdicts_of_large_audits(other, ran):
    n = count(40)
    shares = check_audit.verdict_shares(other, n, 6)
    if other == 0.84:
        at_most(round((1 - shares[WITHIN]) * n), n, 0.1, ran, "audits with power")
    if other == 0.7999:
        at_most(round(shares[WITHIN] * n), n, GAMMA, ran, "audits")
    if other == 0.8:
        at_most(round(shares[BEYOND] * n), n, GAMMA, ran, "audits")


# The monitor.


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late labels"])
def test_no_look_of_a_monitor_is_wrong_more_often_than_promised(is_late, ran):
    rng = np.random.default_rng(7)
    n = count(30)
    wrong = np.zeros(2, int)
    for start in range(0, n, 200):
        few = min(200, n - start)
        beyond_c = check_monitor.counts_by_look((0.8001, 0.7), few, rng, is_late=is_late)
        wrong[0] += check_monitor.verdicts(beyond_c)[0].any(axis=1).sum()
        at_c = check_monitor.counts_by_look((0.8, 0.7), few, rng, is_late=is_late)
        wrong[1] += check_monitor.verdicts(at_c)[1].any(axis=1).sum()
    for times in wrong:
        at_most(times, n, check_monitor.GAMMA, ran, "years of 52 weekly looks")


def test_a_monitor_that_is_fed_week_by_week_is_no_more_often_wrong(ran):
    """The class itself, through its state, with a gap just beyond c."""
    rng = np.random.default_rng(8)
    n = count(10, 0.1)
    wrong = 0
    for _ in range(n):
        monitor = Monitor("demographic_parity", 0.1, groups=["a", "b"], confidence=0.8)
        for _ in range(8):
            groups = np.repeat(["a", "b"], 40)
            share = np.where(groups == "a", 0.75, 0.6499)
            monitor.update((rng.random(80) < share)[:, None].repeat(2, 1), None, groups)
            monitor = Monitor.from_dict(monitor.to_dict())
        wrong += any(look.verdict == WITHIN for look in monitor.looks)
    at_most(wrong, n, 0.2, ran, "streams of 8 looks")
