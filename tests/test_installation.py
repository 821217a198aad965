"""`cfhelpers check`: versions, and whether each extra works."""

import sys

import pytest

from cfhelpers import installation
from cfhelpers.auditing.command import main


def test_the_check_prints_versions_and_ends_well(capsys):
    assert main(["check", "plots", "data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cfhelpers ") and lines[1].startswith("Python ")
    assert any(line.startswith("  numpy ") for line in lines)
    assert lines[-2:] == ["plots: works", "data: works"]


def test_an_unknown_extra_is_named(capsys):
    assert main(["check", "pictures"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("cfhelpers check: extras: found pictures; wanted some of")


def test_a_package_that_is_missing_too_old_or_broken_is_told(monkeypatch):
    assert installation.look_at("no-such-package").fault == "missing"
    assert installation.look_at("numpy", "999.0").fault == "too old"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "cannot be imported" in installation.look_at("matplotlib").fault
    text, works = installation.report(["plots"])
    assert works
    assert 'pip install "cfhelpers[plots]"' in text.splitlines()[-1]


def test_an_extra_holds_what_the_extras_in_it_hold():
    by_extra = installation.wanted()
    assert set(by_extra["plots"]) <= set(by_extra["notebooks"]) <= set(by_extra["study"])


@pytest.mark.parametrize(
    ("version", "lowest", "fault"), [("2.10.0", "2.9", ""), ("2.8.9", "2.9", "too old")]
)
def test_versions_are_compared_as_numbers(monkeypatch, version, lowest, fault):
    monkeypatch.setattr(installation.metadata, "version", lambda name: version)
    assert installation.look_at("numpy", lowest).fault == fault
