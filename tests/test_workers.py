"""Pieces of long work: one after the other, or beside each other by a real Ray."""

import json
import subprocess
import sys

import pytest

from cfhelpers.study.workers import results


def share(whole, part):
    return whole / part


UNITS = [{"part": 1}, {"part": 2}, {"part": 4}]


def test_by_default_units_run_here_in_their_order():
    assert list(results(share, UNITS, {"whole": 8})) == [(0, 8), (1, 4), (2, 2)]
    assert list(results(share, [], {"whole": 8}, jobs=2)) == []


def test_what_came_before_a_failure_has_been_given():
    found = results(share, [{"part": 1}, {"part": 0}, {"part": 2}], {"whole": 8})
    assert next(found) == (0, 8)
    with pytest.raises(ZeroDivisionError):
        next(found)


BESIDE = """
import json, os
from cfhelpers.study.workers import results
from test_workers import UNITS, share

def whose(whole, part):
    return [share(whole, part), os.getpid()]

found = sorted(results(whose, UNITS, {"whole": 8}, jobs=2))
try:
    list(results(share, [*UNITS, {"part": 0}], {"whole": 8}, jobs=2))
    told = ""
except Exception as error:
    told = str(error)
import ray
print(json.dumps([found, os.getpid(), told, ray.is_initialized()]))
"""


@pytest.mark.slow
def test_ray_gives_the_same_from_other_processes(real_ray):
    command = [sys.executable, "-c", BESIDE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, own, told, is_running = json.loads(done.stdout.splitlines()[-1])
    assert [[place, value] for place, (value, _) in found] == [[0, 8], [1, 4], [2, 2]]
    assert own not in [process for _, (_, process) in found]
    assert "ZeroDivisionError" in told
    assert not is_running
