"""Run a part of `make stress`, and write what was run to docs/reliability.md.

The parts are pytest files in tests/stress. Their quick counts are part of `make test`;
here they run with the counts below, or with the one that is asked for. What every test
noted is kept in docs/reliability.json, and the page is written from it anew, so that a
part, or some of its tests, can be run alone.

    python tools/stress.py properties
    python tools/stress.py faults --count 5 -k kill
    python tools/stress.py bugs
    python tools/stress.py bugs alpha-is-taken-twice
"""

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mutations
import pytest
from filelock import FileLock

from cfhelpers.paths import atomic_write

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "stress"
KEPT = ROOT / "docs" / "reliability.json"
LOCK = ROOT / "build" / "stress.lock"
PAGE = ROOT / "docs" / "reliability.md"
DEFECTS = FOLDER / "defects.toml"
# The default count of every part, and what it counts.
PARTS = {
    "properties": (10_000, "calibration sets for each metric"),
    "statistics": (2_000, "calibrations, audits or years"),
    "fuzz": (1_000, "damaged files for each kind of file"),
    "faults": (20, "kills in all"),
}
PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "numba", "pyarrow", "pytest")
HEAD = """# What was tried, and how hard

`make stress` tries the project harder than `make test` does. This page is written by it:
it says what was run, when, and how often, and not what could be run. Counts are set by
`COUNT`: `make stress-properties COUNT=10000`. A part that is run again replaces its own
rows alone.

"Seconds" are of the processor, with all processes that a test started. "By chance" is the
probability that the check fails although every promise is kept; where it is empty the
outcome does not depend on chance.
"""


class Recorder:
    """Collects what pytest reports of every test, and keeps it when the test is over.

    So a run that is stopped loses only the test that it was in.
    """

    def __init__(self, part: str, count: int) -> None:
        self.about = {"part": part, "date": today(), "asked": count}
        self.found: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = self.found.setdefault(report.nodeid, {"outcome": "passed"})
        for name, value in report.user_properties:
            if name == "by_chance" and report.when == "teardown":
                entry[name] = entry.get(name, 0.0) + value
            elif name != "by_chance":
                entry[name] = value
        if report.failed:
            entry["outcome"] = "failed"
        if report.skipped:
            entry["outcome"] = "skipped"
            entry["reason"] = str(report.longrepr[2]).removeprefix("Skipped: ")
        if report.when == "teardown":
            with FileLock(LOCK):
                kept = read_kept()
                kept["tests"][report.nodeid] = entry | self.about
                write_kept(kept)


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def versions() -> str:
    """The versions that a result depends on most."""
    named = [f"{name} {version(name)}" for name in PACKAGES]
    return ", ".join([f"Python {platform.python_version()}", *named])


def read_kept(path: Path = KEPT) -> dict[str, Any]:
    """What was noted before; nothing where there is no file."""
    if not path.exists():
        return {"tests": {}, "bugs": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def write_kept(kept: Mapping[str, Any]) -> None:
    """Keep the notes, and write the page from them."""
    text = json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    as_read = json.loads(text)  # in the order in which the next run will find it
    for path, content in ((KEPT, text), (PAGE, page(as_read))):
        with atomic_write(path) as partial:
            partial.write_text(content, encoding="utf-8")


def test_file(part: str) -> Path:
    return FOLDER / f"test_stress_{part}.py"


def run_part(part: str, count: int, options: list[str]) -> int:
    """Run the tests of one part, and note each of them."""
    os.environ["CFHELPERS_CASES"] = str(count)
    recorder = Recorder(part, count)
    arguments = ["-q", "-p", "no:cacheprovider", str(test_file(part)), *options]
    status = int(pytest.main(arguments, plugins=[recorder]))
    with FileLock(LOCK):
        kept = read_kept()
        kept["versions"] = kept.get("versions", {}) | {part: versions()}
        write_kept(kept)
    return status


def stress_bugs() -> list[mutations.Mutation]:
    """The bugs of tools/mutations.toml that a test of `make stress` must notice."""
    found = []
    for bug in mutations.read_mutations():
        if any(test.startswith("tests/stress/") for test in bug.tests):
            found.append(bug)
    return found


def run_bugs(names: list[str]) -> int:
    """Break the code on purpose, by all bugs or some, and note which test noticed."""
    bugs = [bug for bug in stress_bugs() if not names or bug.name in names]
    is_noticed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = mutations.copy_of(ROOT, Path(folder))
        for bug in bugs:
            test = mutations.who_notices(copy, bug)
            print(f"{bug.name:36} {test or 'NOBODY'}", flush=True)
            is_noticed.append(bool(test))
            with FileLock(LOCK):
                kept = read_kept()
                kept["bugs"][bug.name] = {"date": today(), "noticed": bool(test)}
                write_kept(kept)
    return int(not all(is_noticed))


def function_of(nodeid: str) -> str:
    """The name of a test without its parameters."""
    return nodeid.rpartition("::")[2].partition("[")[0]


def row(tests: list[Mapping[str, Any]], name: str) -> str:
    """One row of a table: a test with all its parameters."""
    ran = [test for test in tests if "count" in test]
    counts = sorted({test["count"] for test in ran})
    outcomes = [test["outcome"] for test in tests]
    failed = outcomes.count("failed")
    result = "failed" if failed else "passed"
    if outcomes.count("passed") == 0 and not failed:
        result = f"not run: {tests[0].get('reason', 'skipped')}"
    unit = ran[0]["unit"] if ran else ""
    each = ""
    if counts:
        each = " to ".join(f"{number:,}" for number in {counts[0]: 0, counts[-1]: 0})
        if len(ran) > 1:
            each = f"{len(ran)} × {each}"
    seconds = sum(test.get("seconds", 0) for test in tests)
    chance = sum(test.get("by_chance", 0) for test in tests)
    told = f"{chance:.0e}" if chance else ""
    dates = sorted({test["date"] for test in tests})
    words = name.removeprefix("test_").replace("_", " ")
    cells = [words, f"{each} {unit}".strip(), result, f"{seconds:,.0f}", told, dates[-1]]
    return "| " + " | ".join(cells) + " |"


def table(part: str, tests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What was run of one part."""
    default, unit = PARTS[part]
    lines = [f"## {part.capitalize()}", ""]
    own = {name: test for name, test in tests.items() if test["part"] == part}
    if not own:
        return [*lines, "Not run yet.", ""]
    asked = sorted({test["asked"] for test in own.values()})
    told = ", ".join(f"{count:,}" for count in asked)
    lines += [
        f"Asked for: {told} {unit}. The default of `make stress-{part}` is {default:,}.",
        "",
        "| what must hold | how often | result | seconds | by chance | on |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    functions = list(dict.fromkeys(function_of(name) for name in own))
    for function in functions:
        mine = [test for name, test in own.items() if function_of(name) == function]
        lines.append(row(mine, function))
    seconds = sum(test.get("seconds", 0) for test in own.values())
    lines += ["", f"In all {seconds:,.0f} seconds of the processor."]
    chance = sum(test.get("by_chance", 0) for test in own.values())
    if chance:
        lines[-1] += (
            " With every promise kept, some check fails with probability "
            f"{chance:.0e} at most."
        )
    return [*lines, ""]


def bug_lines(noticed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The bugs that were put in on purpose."""
    lines = [
        "## Seen to fail",
        "",
        "A check that never failed is no check. `python tools/stress.py bugs` puts these "
        "bugs into a copy of the project, one at a time:",
        "",
        "| the code broken on purpose | in | the test that must fail | noticed |",
        "| --- | --- | --- | --- |",
    ]
    for bug in stress_bugs():
        entry = noticed.get(bug.name)
        told = "not tried yet"
        if entry is not None:
            told = f"{'yes' if entry['noticed'] else 'NO'}, {entry['date']}"
        tests = ", ".join(f"`{test.rpartition('::')[2]}`" for test in bug.tests)
        words = bug.name.replace("-", " ")
        lines.append(f"| {words} | `{bug.file}` | {tests} | {told} |")
    return [*lines, ""]


def read_defects() -> list[dict[str, str]]:
    """What these tests found in the project, and is mended."""
    return tomllib.loads(DEFECTS.read_text(encoding="utf-8"))["defect"]


def defect_lines(defects: Iterable[Mapping[str, str]]) -> list[str]:
    lines = ["## Defects that were found, all mended", ""]
    lines += ["| in | defect | test |", "| --- | --- | --- |"]
    for defect in defects:
        test = defect["test"].rpartition("::")[2]
        lines.append(f"| `{defect['file']}` | {defect['what']} | `{test}` |")
    return lines


def page(kept: Mapping[str, Any]) -> str:
    """The whole page."""
    lines = [HEAD]
    for part in PARTS:
        lines += table(part, kept["tests"])
    lines += bug_lines(kept["bugs"])
    lines += defect_lines(read_defects())
    told = sorted(set(kept.get("versions", {}).values()))
    lines += ["", "## With", "", *told]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=[*PARTS, "bugs", "page"])
    parser.add_argument("--count", type=int, help="by default that of the part")
    options, rest = parser.parse_known_args(arguments)
    LOCK.parent.mkdir(exist_ok=True)
    if options.part == "page":
        write_kept(read_kept())
        return 0
    if options.part == "bugs":
        return run_bugs(rest)
    count = options.count or PARTS[options.part][0]
    if count < 1:
        parser.error(f"--count: found {count}; wanted at least 1")
    return run_part(options.part, count, rest)


if __name__ == "__main__":
    sys.exit(main())
