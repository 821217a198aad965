"""The settings of the base models: the authors' for XGBoost, and what `tuning` found for the others."""

import os
from pathlib import Path
from typing import Any

import yaml

from cfhelpers import paths
from cfhelpers._checks import one_of
from cfhelpers.datasets import Dataset

MODELS = ("xgboost", "gcn", "sage", "gat")
TUNED = (*MODELS, "cfgnn")
PROFILES = paths.PROFILES
NAMES = ("learning_rate", "n_estimators", "max_depth", "gamma")
NAMES += ("colsample_bytree", "colsample_bylevel", "colsample_bynode", "subsample")
# "paper": what the authors stored; "quick": as good on the validation rows within .005, in a fraction of the time
XGBOOST = {
    "paper": {
        "credit": (
            0.054671586,
            392,
            4,
            0.885100441,
            0.359634056,
            0.841072710,
            0.883515525,
            0.907572802,
        ),
        "acs_income": (
            0.031467304,
            117,
            18,
            0.778156751,
            0.902509111,
            0.983963757,
            0.849368923,
            0.730739681,
        ),
        "acs_education": (
            0.001542747,
            330,
            21,
            0.896038388,
            0.729190807,
            0.918665828,
            0.760041677,
            0.724598869,
        ),
    },
    "quick": {
        "credit": (
            0.054671586,
            392,
            4,
            0.885100441,
            0.359634056,
            0.841072710,
            0.883515525,
            0.907572802,
        ),
        "acs_income": (0.1, 120, 8, 0.8, 0.9, 1.0, 1.0, 0.8),
        "acs_education": (0.1, 120, 8, 0.8, 0.9, 1.0, 1.0, 0.8),
    },
}
SETTINGS = paths.ROOT / "profiles" / "settings.yaml"
HEADER = "# The best settings by profile and dataset/source/model, as cfhelpers.study.tuning found them.\n"


def preset(
    dataset: Dataset, model: str = "xgboost", profile: str = "quick"
) -> dict[str, Any]:
    """The parameters of a model for a dataset: for XGBoost the authors' own (paper) or quicker ones (quick).

    For the graph models and "cfgnn", whose settings were never published: the best that `tuning` found for this dataset
    and source, as profiles/settings.yaml has it; none, which means the model's defaults, where it has no such entry.
    """
    one_of(profile, "profile", PROFILES), one_of(model, "model", TUNED)
    if model == "xgboost":
        one_of(dataset.name, "dataset", tuple(XGBOOST[profile]))
        return dict(zip(NAMES, XGBOOST[profile][dataset.name], strict=True))
    record = load_settings(profile).get((dataset.name, dataset.source, model))
    return record["parameters"] if record else {}


def load_settings(
    profile: str = "quick", path: str | os.PathLike | None = None
) -> dict[tuple[str, str, str], dict]:
    """The best settings of a profile: (dataset, source, model) → a record whose "parameters" `models.train` takes."""
    stored = _read(Path(path or SETTINGS)).get(one_of(profile, "profile", PROFILES), {})
    return {tuple(place.split("/")): record for place, record in stored.items()}


def save_best(
    profile: str,
    dataset: Dataset,
    model: str,
    record: dict,
    path: str | os.PathLike | None = None,
) -> Path:
    """Store a record of `tune` for this profile, dataset, source and model; the file keeps all its others."""
    path, place = (
        Path(path or SETTINGS),
        f"{dataset.name}/{dataset.source}/{one_of(model, 'model', TUNED)}",
    )
    stored = _read(path)
    stored.setdefault(one_of(profile, "profile", PROFILES), {})[place] = record
    with paths.atomic_write(path) as partial:
        partial.write_text(
            HEADER + yaml.safe_dump(stored, sort_keys=True), encoding="utf-8"
        )
    return path


def _read(path: Path) -> dict:
    return (
        (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}
    )
