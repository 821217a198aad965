"""Statistics that decide the paper's claims: means of settings in, one number out.

A line of the frame is one setting, that is, one bar of a figure: the means over re-splits
of `efficiency`, `disparity`, `base_efficiency` and `base_disparity`. A statistic that
cannot be computed, because its lines are missing, is NaN.
"""

import numpy as np
import pandas as pd
from scipy import stats

from cfhelpers.study.judging import ROUNDING, TIE
from cfhelpers.study.pokec_evidence import split_sizes

SETTING = ["dataset", "attribute", "score", "metric", "c"]
CLUSTER = ["dataset", "attribute", "classwise", "score", "metric"]
GRAPH_SCORES = ("cfgnn", "daps")
GRAPH_MODELS = ("gcn", "sage", "gat")


def share_within_c(settings: pd.DataFrame) -> float:
    """The share of bars that are at c or below it.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
        A bar that is above by no more than TIE counts as being at c.

    Examples
    --------
    >>> share_within_c(pd.DataFrame({"disparity": [0.10, 0.12], "c": 0.1}))
    0.5
    """
    is_within = settings["disparity"] <= settings["c"] + TIE + ROUNDING
    return float(is_within.mean())


def share_not_worse(settings: pd.DataFrame) -> float:
    """The share of bars whose gap is no larger than the base predictor's at the same c.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
        A difference of no more than TIE counts as none.

    Examples
    --------
    >>> bars = {"disparity": [0.10, 0.12], "base_disparity": [0.2, 0.1]}
    >>> share_not_worse(pd.DataFrame(bars))
    0.5
    """
    limit = settings["base_disparity"] + TIE + ROUNDING
    return float((settings["disparity"] <= limit).mean())


def share_not_worse_than_average(settings: pd.DataFrame) -> float:
    """As `share_not_worse`, beside the base predictor's mean over the values of c.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    average = settings.groupby(CLUSTER)["base_disparity"].transform("mean")
    return share_not_worse(settings.assign(base_disparity=average))


def share_not_farther_beyond(settings: pd.DataFrame) -> float:
    """The share of bars that are no farther above c than the base predictor's.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
        A gap at c or below is not above it, however small. A difference of no more than
        TIE counts as none.

    Examples
    --------
    >>> bars = {"disparity": [0.10, 0.12], "base_disparity": [0.2, 0.1], "c": 0.1}
    >>> share_not_farther_beyond(pd.DataFrame(bars))
    0.5
    """
    above = (settings["disparity"] - settings["c"]).clip(lower=0)
    base_above = (settings["base_disparity"] - settings["c"]).clip(lower=0)
    return float((above <= base_above + TIE + ROUNDING).mean())


def share_of_steps_up(settings: pd.DataFrame) -> float:
    """The share of steps from one c to the next in which the gap rises with c.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
        A step counts where the base's gap is above the smaller c, so that CF has to act.
        A fall of no more than TIE is no fall.

    Examples
    --------
    >>> one = dict.fromkeys(["dataset", "attribute", "classwise", "score", "metric"], 0)
    >>> bars = pd.DataFrame({"c": [0.1, 0.2, 0.3], "disparity": [0.1, 0.2, 0.15]})
    >>> share_of_steps_up(bars.assign(base_disparity=0.4, **one))
    0.5
    """
    ordered = settings.sort_values([*CLUSTER, "c"])
    clusters = ordered.groupby(CLUSTER)
    rise = clusters["disparity"].diff()
    smaller_c = clusters["c"].shift()
    is_step = smaller_c.notna() & (ordered["base_disparity"] > smaller_c)
    return float((rise[is_step] >= -TIE - ROUNDING).mean())


def largest_growth(settings: pd.DataFrame) -> float:
    """How much larger the sets become, relative to the base's, in the worst setting.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float

    Examples
    --------
    >>> bars = {"efficiency": [2.2, 3.0], "base_efficiency": [2.0, 2.0]}
    >>> largest_growth(pd.DataFrame(bars))
    0.5
    """
    growth = settings["efficiency"] / settings["base_efficiency"] - 1
    return float(growth.max())


def smallest_ratio(settings: pd.DataFrame) -> float:
    """The smallest disparate impact that CF reaches in any setting.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    return float(settings["disparity"].min())


def smallest_base_ratio(settings: pd.DataFrame) -> float:
    """The smallest disparate impact of the base predictor in any setting.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    return float(settings["base_disparity"].min())


def largest_excess(settings: pd.DataFrame) -> float:
    """How far the worst gap is above c; negative where every gap is below.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float

    Examples
    --------
    >>> bars = {"disparity": [0.1, 0.22], "c": [0.15, 0.2]}
    >>> round(largest_excess(pd.DataFrame(bars)), 3)
    0.02
    """
    return float((settings["disparity"] - settings["c"]).max())


def largest_base_gap(settings: pd.DataFrame) -> float:
    """The largest gap of the base predictor in any setting.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    return float(settings["base_disparity"].max())


def mean_coverage(settings: pd.DataFrame) -> float:
    """The mean coverage of the true label over all settings.

    Coverage is promised on average over people; the smallest of many noisy means is below
    the promise even where that is kept.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    return float(settings["coverage"].mean())


def share_of_runs_beyond(settings: pd.DataFrame) -> float:
    """The share of runs beyond c, of those that were changed.

    Parameters
    ----------
    settings : DataFrame
        `changed_runs`, and of these `changed_beyond` were beyond c.

    Returns
    -------
    float

    Examples
    --------
    >>> bars = {"changed_runs": [10, 0], "changed_beyond": [4, 0]}
    >>> share_of_runs_beyond(pd.DataFrame(bars))
    0.4
    """
    n_runs = settings["changed_runs"].sum()
    if n_runs == 0:
        return np.nan
    return float(settings["changed_beyond"].sum() / n_runs)


def share_smaller_classwise(settings: pd.DataFrame) -> float:
    """The share of settings whose sets are no larger with a λ per class than with one.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    sizes = _single_and_classwise(settings, "efficiency")
    return float((sizes[True] <= sizes[False] + TIE + ROUNDING).mean())


def smallest_saving_classwise(settings: pd.DataFrame) -> float:
    """By how many labels sets are smaller with a λ per class, where it is least.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    sizes = _single_and_classwise(settings, "efficiency")
    return float((sizes[False] - sizes[True]).min())


def excess_gap_classwise(settings: pd.DataFrame) -> float:
    """How much larger gaps are with a λ per class than with one, on average.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    gaps = _single_and_classwise(settings, "disparity")
    return float((gaps[True] - gaps[False]).mean())


def _single_and_classwise(settings: pd.DataFrame, column: str) -> pd.DataFrame:
    """A quantity of every setting, with one λ (False) and with one per class (True)."""
    wide = settings.pivot_table(column, SETTING, "classwise")
    return wide.reindex(columns=[False, True]).dropna()


def graph_scores_closer(settings: pd.DataFrame) -> float:
    """How much nearer to c the gaps beyond it are with CFGNN and DAPS than otherwise.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
        Mean excess over c of the other scores minus that of the graph's scores.
    """
    excess = (settings["disparity"] - settings["c"]).clip(lower=0)
    return -_graph_minus_others(settings, excess)


def graph_scores_improve_more(settings: pd.DataFrame) -> float:
    """How much more CF reduces the gap with CFGNN and DAPS than with other scores.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    improvement = settings["base_disparity"] - settings["disparity"]
    return _graph_minus_others(settings, improvement)


def _graph_minus_others(settings: pd.DataFrame, values: pd.Series) -> float:
    """The mean of the graph's scores minus the mean of the others."""
    is_graph = settings["score"].isin(GRAPH_SCORES)
    return float(values[is_graph].mean() - values[~is_graph].mean())


def cfgnn_behind_the_best(settings: pd.DataFrame) -> float:
    """How far CFGNN's base is behind the best other score: in size or in ratio.

    Parameters
    ----------
    settings : DataFrame
        Of disparate impact.

    Returns
    -------
    float
        The larger of two amounts: by which another score's sets are smaller, and by which
        another score's ratio is higher. Negative where CFGNN is the best in both.

    Examples
    --------
    >>> bars = {"score": ["cfgnn", "aps"], "base_efficiency": [2.0, 2.2]}
    >>> bars = pd.DataFrame(bars | {"base_disparity": [0.6, 0.7]})
    >>> round(cfgnn_behind_the_best(bars), 3)
    0.1
    """
    means = settings.groupby("score")[["base_efficiency", "base_disparity"]].mean()
    if "cfgnn" not in means.index:
        return np.nan
    own = means.loc["cfgnn"]
    others = means.drop("cfgnn")
    in_size = own["base_efficiency"] - others["base_efficiency"].min()
    in_ratio = others["base_disparity"].max() - own["base_disparity"]
    return float(max(in_size, in_ratio))


def graph_models_behind(settings: pd.DataFrame) -> float:
    """How much larger base sets are with the best graph network than with XGBoost.

    Parameters
    ----------
    settings : DataFrame
        With the columns `model` and `settings`; sizes are means over its scores.

    Returns
    -------
    float
        NaN where one of the two was not run.
    """
    sizes = settings.groupby(["model", "settings"])["base_efficiency"].mean()
    of_models = sizes.groupby("model").min()
    of_graphs = of_models[of_models.index.isin(GRAPH_MODELS)]
    if "xgboost" not in of_models:
        return np.nan
    return float(of_graphs.min() - of_models["xgboost"])


def largest_full_set_gap(settings: pd.DataFrame) -> float:
    """The largest gap of settings in which every set is full.

    Parameters
    ----------
    settings : DataFrame

    Returns
    -------
    float
    """
    is_full = (settings["coverage"] > 1 - ROUNDING) & (settings["efficiency"] % 1 == 0)
    return float(settings.loc[is_full, "disparity"].max())


def batch_gcp_farther(settings: pd.DataFrame) -> float:
    """How much farther BatchGCP's ratio is from c than CF's, where it is nearest.

    Parameters
    ----------
    settings : DataFrame
        With `batch_gcp_disparity`.

    Returns
    -------
    float
    """
    of_batch_gcp = (settings["batch_gcp_disparity"] - settings["c"]).abs()
    of_cf = (settings["disparity"] - settings["c"]).abs()
    return float((of_batch_gcp - of_cf).min())


def batch_gcp_wider(settings: pd.DataFrame) -> float:
    """How much larger than CF's gap the smaller of base's and BatchGCP's is, at least.

    Parameters
    ----------
    settings : DataFrame
        With `batch_gcp_disparity`.

    Returns
    -------
    float
    """
    others = settings[["batch_gcp_disparity", "base_disparity"]].min(axis=1)
    return float((others - settings["disparity"]).min())


def others_above_c(settings: pd.DataFrame) -> float:
    """How far the smaller of base's and BatchGCP's gap is above c, at least.

    Parameters
    ----------
    settings : DataFrame
        With `batch_gcp_disparity`.

    Returns
    -------
    float
        Negative where one of the two is below c.

    Examples
    --------
    >>> bars = {"batch_gcp_disparity": [0.3], "base_disparity": [0.25], "c": [0.2]}
    >>> round(others_above_c(pd.DataFrame(bars)), 3)
    0.05
    """
    others = settings[["batch_gcp_disparity", "base_disparity"]].min(axis=1)
    return float((others - settings["c"]).min())


def pooled_coverage(settings: pd.DataFrame) -> float:
    """The coverage of several groups taken together.

    Parameters
    ----------
    settings : DataFrame
        coverage and n, a line per group.

    Returns
    -------
    float
    """
    n_points = settings["n"].sum()
    if n_points == 0:
        return np.nan
    return float((settings["coverage"] * settings["n"]).sum() / n_points)


def different_test_sizes(settings: pd.DataFrame) -> float:
    """By how many points the test splits of the two networks differ.

    Parameters
    ----------
    settings : DataFrame
        run and coverage, of `authors.pokec_coverages`.

    Returns
    -------
    float
        Of the attribute for which they differ the most; NaN where runs are missing.

    Examples
    --------
    >>> runs = {"run": ["Pokec_n_a", "Pokec_z_a"], "coverage": [0.3333, 0.25]}
    >>> different_test_sizes(pd.DataFrame(runs))
    1.0
    """
    sizes = split_sizes(settings)["smallest n that fits"].astype(float)
    network = sizes.index.str.slice(0, len("Pokec_n"))
    attribute = sizes.index.str.slice(len("Pokec_n_"))
    table = sizes.groupby([attribute, network]).first().unstack()
    table = table.reindex(columns=["Pokec_n", "Pokec_z"])
    return float((table["Pokec_n"] - table["Pokec_z"]).abs().max())


def chance_inside(settings: pd.DataFrame) -> float:
    """How often Lemma 3.2's interval holds the true probability, in the worst case.

    k of n scores are at most λ, k being binomial; the interval is [k, k + 1] / (n + 1).

    Parameters
    ----------
    settings : DataFrame
        n and p, the true probability.

    Returns
    -------
    float

    Examples
    --------
    >>> round(chance_inside(pd.DataFrame({"n": [1000], "p": [0.5]})), 3)
    0.025
    """
    chances = []
    for n, p in zip(settings["n"], settings["p"], strict=True):
        k = np.arange(n + 1)
        is_inside = (k <= p * (n + 1)) & (p * (n + 1) <= k + 1)
        chances.append(stats.binom.pmf(k[is_inside], n, p).sum())
    if not chances:
        return np.nan
    return float(min(chances))
