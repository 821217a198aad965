"""What all tests share: where the repository and the reference data are."""

import os
import secrets
import tempfile
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


@pytest.fixture
def real_ray(tmp_path, monkeypatch):
    """What processes with a Ray of their own need, one test at a time.

    That is the package, the tests' modules and a password. Ray's processes all import
    jsonschema, and start several times quicker if that does not find the library, one of
    Jupyter's, by which it would check the syntax of links.
    """
    pytest.importorskip("ray")
    from filelock import FileLock

    (tmp_path / "quicker").mkdir()
    (tmp_path / "quicker" / "rfc3987_syntax.py").write_text("raise ImportError")
    folders = [
        tmp_path / "quicker",
        ROOT,
        ROOT / "tests",
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with FileLock(Path(tempfile.gettempdir()) / "cfhelpers-ray.lock"):
        yield
