"""What all tests share: where the repository and the reference data are."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference texts and real data beside the repository; tests that need them are skipped elsewhere."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference folder ../shared is not here")
    return folder
