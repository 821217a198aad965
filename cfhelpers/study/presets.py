"""Settings of the base models: the authors' for XGBoost, tuned ones for the others."""

import os
from pathlib import Path
from typing import Any

import yaml

from cfhelpers import paths
from cfhelpers._checks import one_of
from cfhelpers.datasets import Dataset
from cfhelpers.study.training import MODELS, XGBOOST_PARAMETERS

TUNED = (*MODELS, "cfgnn")
PROFILES = paths.PROFILES
# The values in the order of XGBOOST_PARAMETERS.
_CREDIT = (
    0.054671586,
    392,
    4,
    0.885100441,
    0.359634056,
    0.841072710,
    0.883515525,
    0.907572802,
)
_ACS_INCOME = (
    0.031467304,
    117,
    18,
    0.778156751,
    0.902509111,
    0.983963757,
    0.849368923,
    0.730739681,
)
_ACS_EDUCATION = (
    0.001542747,
    330,
    21,
    0.896038388,
    0.729190807,
    0.918665828,
    0.760041677,
    0.724598869,
)
_QUICK_ACS = (0.1, 120, 8, 0.8, 0.9, 1.0, 1.0, 0.8)
# "paper": what the authors stored; "quick": as good on the validation rows within .005,
# in a fraction of the time.
XGBOOST = {
    "paper": {
        "credit": _CREDIT,
        "acs_income": _ACS_INCOME,
        "acs_education": _ACS_EDUCATION,
    },
    "quick": {
        "credit": _CREDIT,
        "acs_income": _QUICK_ACS,
        "acs_education": _QUICK_ACS,
    },
}
SETTINGS = paths.ROOT / "profiles" / "settings.yaml"
HEADER = (
    "# The best settings by profile and dataset/source/model, "
    "as cfhelpers.study.tuning found them.\n"
)


def preset(
    dataset: Dataset, model: str = "xgboost", profile: str = "quick"
) -> dict[str, Any]:
    """The parameters of a model for a dataset.

    For XGBoost the authors' own (paper) or quicker ones (quick). For the graph models and
    "cfgnn", whose settings were never published, the best that `tuning` found for this
    dataset and source, as profiles/settings.yaml has it; none, which means the model's
    defaults, where it has no such entry.

    Parameters
    ----------
    dataset : Dataset
        Its name and source decide.
    model : {"xgboost", "gcn", "sage", "gat", "cfgnn"}
    profile : {"quick", "paper"}

    Returns
    -------
    dict
        By name, as `training.train` and `graph_scores.cfgnn` take them.

    Examples
    --------
    >>> from cfhelpers import load_dataset
    >>> preset(load_dataset("credit"))["max_depth"]
    4
    """
    one_of(profile, "profile", PROFILES)
    one_of(model, "model", TUNED)
    if model == "xgboost":
        one_of(dataset.name, "dataset", tuple(XGBOOST[profile]))
        values = XGBOOST[profile][dataset.name]
        return dict(zip(XGBOOST_PARAMETERS, values, strict=True))
    record = load_settings(profile).get((dataset.name, dataset.source, model))
    if record is None:
        return {}
    return record["parameters"]


def load_settings(
    profile: str = "quick", path: str | os.PathLike | None = None
) -> dict[tuple[str, ...], dict[str, Any]]:
    """The best settings of a profile, as they were stored.

    Parameters
    ----------
    profile : {"quick", "paper"}
    path : path, optional
        The file; None: profiles/settings.yaml.

    Returns
    -------
    dict
        (dataset, source, model) → a record whose "parameters" `training.train` takes.

    Examples
    --------
    >>> load_settings("quick", "no_such_file.yaml")
    {}
    """
    one_of(profile, "profile", PROFILES)
    stored = _read(Path(path or SETTINGS)).get(profile, {})
    return {tuple(place.split("/")): record for place, record in stored.items()}


def save_best(
    profile: str,
    dataset: Dataset,
    model: str,
    record: dict[str, Any],
    path: str | os.PathLike | None = None,
) -> Path:
    """Store the record of a search; the file keeps all its others.

    Parameters
    ----------
    profile : {"quick", "paper"}
    dataset : Dataset
        Its name and source tell the place.
    model : {"xgboost", "gcn", "sage", "gat", "cfgnn"}
    record : dict
        As `tuning.tune` gives it.
    path : path, optional
        The file; None: profiles/settings.yaml.

    Returns
    -------
    Path
        The file.
    """
    one_of(model, "model", TUNED)
    one_of(profile, "profile", PROFILES)
    path = Path(path or SETTINGS)
    stored = _read(path)
    place = f"{dataset.name}/{dataset.source}/{model}"
    stored.setdefault(profile, {})[place] = record
    text = HEADER + yaml.safe_dump(stored, sort_keys=True)
    with paths.atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """What the file of settings holds, by profile; nothing where there is none."""
    if not path.exists():
        return {}
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}
