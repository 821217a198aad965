"""The datasets of the paper: `load_dataset(name, source=None)` gives a `Dataset` that says what it holds."""

from importlib import import_module

from cfhelpers.datasets._dataset import PARTS, Dataset, resplit, split, tune_halves

__all__ = [
    "NAMES",
    "PARTS",
    "Dataset",
    "credit_probabilities",
    "load_dataset",
    "resplit",
    "split",
    "tune_halves",
]

_LOADERS = {
    "credit": "credit",
    "acs_income": "acs",
    "acs_education": "acs",
    "pokec_n": "pokec",
    "pokec_z": "pokec",
}
NAMES = tuple(_LOADERS)


def load_dataset(
    name: str, source: str | None = None, *, attribute=None, **options
) -> Dataset:
    """The dataset `name` from `source` (None: its default), with groups by `attribute`, one name or several.

    `options` are those of the dataset's own module: graph (credit); year, states, horizon, brackets (acs); n, seed
    (simulated sources).
    """
    if name not in _LOADERS:
        raise ValueError(f"name: found {name!r}; wanted one of {', '.join(NAMES)}")
    return import_module(f"{__name__}.{_LOADERS[name]}").load(
        name, source, attribute=attribute, **options
    )


def credit_probabilities():
    """A plain model's probabilities, float32 (30000, 4), and the part of every row: `split` of Credit with seed 0."""
    return import_module(f"{__name__}.credit").credit_probabilities()
