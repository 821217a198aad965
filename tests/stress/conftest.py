"""What the four parts of `make stress` share: how much is run, and a note of it.

Without CFHELPERS_CASES every test runs its quick count, as part of `make test`, and tests
marked `stress` are left out. `make stress` sets it, and tools/stress.py writes the notes
to docs/reliability.md.
"""

import os

import pytest

VARIABLE = "CFHELPERS_CASES"
collect_ignore = ["guided.py"]  # a program, for a Python that has atheris


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "stress: only in `make stress`, which CFHELPERS_CASES turns on"
    )


def pytest_collection_modifyitems(config, items):
    """Without a count, what is no part of `make test` is left out."""
    if VARIABLE in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("stress")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def ran(record_property):
    """Call it with what was run: how many, of what, how often it fails by chance."""
    before = os.times()

    def note(count, unit, by_chance=0.0):
        record_property("count", int(count))
        record_property("unit", unit)
        record_property("by_chance", float(by_chance))

    yield note
    after = os.times()
    seconds = sum(after[:4]) - sum(before[:4])
    record_property("seconds", round(seconds, 2))
