"""What the authors printed and what they stored: the numbers to stand beside ours.

The files are in results/; results/authors/README.md says where they come from.
"""

import pandas as pd

from cfhelpers import paths

# Means over the authors' runs of disparate impact on "Pokec-z" by gender, base → CF. No
# file gives them: they are quoted from an examination of the stored runs.
POKEC_Z_GENDER = {
    "aps": ".751 → .790",
    "tps": ".716 → .790",
    "cfgnn": ".682 → .800",
    "daps": ".754 → .797",
}


def reported_values() -> pd.DataFrame:
    """The 402 numbers of the paper's result tables.

    Returns
    -------
    DataFrame
        table, dataset, attribute, classwise, score, arm, metric, c, quantity, value.

    Examples
    --------
    >>> len(reported_values())
    402
    """
    return pd.read_csv(paths.RESULTS / "reported_values.csv")


def runs() -> pd.DataFrame:
    """The means over the authors' runs: the heights of the bars in their figures.

    Returns
    -------
    DataFrame
        One row per setting, without RAPS and disparate impact.

    Examples
    --------
    >>> sorted(set(runs()["score"]))
    ['aps', 'cfgnn', 'daps', 'tps']
    """
    return pd.read_csv(paths.RESULTS / "authors" / "authors_runs_summary.csv")


def pokec_coverages() -> pd.DataFrame:
    """Every distinct coverage that the authors stored for a run on Pokec.

    Returns
    -------
    DataFrame
        run and coverage, to four digits.

    Examples
    --------
    >>> pokec_coverages()["run"].nunique()
    6
    """
    return pd.read_csv(paths.RESULTS / "authors" / "authors_pokec_coverages.csv")
