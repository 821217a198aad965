"""Files of predictions for the tests of the audit's document and page."""

import numpy as np
import pandas as pd

ALL_METRICS = (
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "equalized_odds",
    "disparate_impact",
    "predictive_parity",
    "predictive_parity_proxy",
    "overall_accuracy_equality",
)
# A group named as markup, a formula, a shell command, and Markdown.
ATTACKS = (
    "<script>alert(1)</script>",
    '=HYPERLINK("http://example.org","x")',
    "$(rm -rf /); `id`",
    "[a](javascript:alert(1)) | <img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
)


def incomes(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    """Two labels; women with a high income are missed more often; some have no age."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["women", "men"], n, p=[0.4, 0.6])
    age = rng.choice(["young", "old", None], n, p=[0.5, 0.48, 0.02])
    merit = rng.normal(size=n)
    is_high = merit + 0.8 * rng.normal(size=n) > 0.6
    logit = 1.8 * merit - 0.9 - 2.2 * (sex == "women")
    high = (1 / (1 + np.exp(-logit))).round(4)
    return pd.DataFrame(
        {
            "p_<=50K": 1 - high,
            "p_>50K": high,
            "income": np.where(is_high, ">50K", "<=50K"),
            "sex": sex,
            "age": age,
        }
    )


def education(n: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Five labels, four regions; the sets of the smallest are worse."""
    rng = np.random.default_rng(seed)
    names = np.array(["none", "primary", "secondary", "college", "university"])
    region = rng.choice(list("abcd"), n, p=[0.4, 0.3, 0.2, 0.1])
    truth = rng.choice(5, n)
    sets = rng.random((n, 5)) < 0.3
    is_held = rng.random(n) < np.where(region == "d", 0.5, 0.95)
    sets[np.arange(n), truth] = is_held
    frame = pd.DataFrame(sets.astype(int), columns=[f"set_{name}" for name in names])
    return frame.assign(y=names[truth], region=region)


def many_groups(
    n_groups: int, n: int = 6000, letters: int = 100, seed: int = 0
) -> pd.DataFrame:
    """Sets of two labels, and groups with long names; the first six are worse off."""
    rng = np.random.default_rng(seed)
    names = []
    for place in range(n_groups):
        start = f"Department no. {place} of the "
        filling = "long_administrative_name_of_a_place_" * 4
        names.append(f"{start}{filling}"[: letters - 4] + f"{place:04d}")
    group = rng.choice(n_groups, n)
    truth = rng.choice(2, n)
    sets = rng.random((n, 2)) < 0.4
    sets[np.arange(n), truth] = rng.random(n) < np.where(group < 6, 0.5, 0.95)
    frame = pd.DataFrame(sets.astype(int), columns=["set_no", "set_yes"])
    return frame.assign(
        y=np.array(["no", "yes"])[truth], department=np.array(names)[group]
    )


def attacks(n: int = 1500, seed: int = 0) -> pd.DataFrame:
    """Sets of two labels, one of them markup; groups whose names are attacks."""
    rng = np.random.default_rng(seed)
    group = rng.choice(len(ATTACKS), n)
    truth = rng.choice(2, n)
    sets = rng.random((n, 2)) < 0.4
    sets[np.arange(n), truth] = rng.random(n) < np.where(group == 0, 0.3, 0.95)
    frame = pd.DataFrame(sets.astype(int), columns=["set_no", "set_<b>yes</b>"])
    return frame.assign(
        y=np.array(["no", "<b>yes</b>"])[truth], group=np.array(ATTACKS)[group]
    )


def fair(n: int = 8000, seed: int = 0) -> pd.DataFrame:
    """Sets of two labels that cover two groups alike."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(2, n)
    sets = rng.random((n, 2)) < 0.4
    sets[np.arange(n), truth] = rng.random(n) < 0.9
    frame = pd.DataFrame(sets.astype(int), columns=["set_no", "set_yes"])
    return frame.assign(y=np.array(["no", "yes"])[truth], group=rng.choice(["a", "b"], n))
