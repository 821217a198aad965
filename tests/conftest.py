"""What all tests share: where the repository and the reference data are."""

from pathlib import Path

import pytest

from cfhelpers import paths

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference texts and real data beside the repository.

    Tests that need them are skipped elsewhere.
    """
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference folder ../shared is not here")
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A data folder for the test alone, with no data but what the test puts there."""
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")
    monkeypatch.delenv("CFHELPERS_DATA", raising=False)
    return tmp_path / "data"


def flat(card) -> str:
    """A printed card on one line."""
    return " ".join(str(card).split())
