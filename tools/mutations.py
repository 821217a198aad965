"""Put plausible bugs into a copy of the project and see which test notices each of them.

tools/mutations.toml lists the bugs: a file, the text that is replaced, and the tests that
must fail. They are put in one at a time, in a temporary copy of the repository. A bug
that no test notices, or a text that is no longer there, ends this with status 1.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "mutations.toml"
NOT_COPIED = (".git", ".venv", ".venv-bench", "build", "data", "results", "figures")
PASSED = 0  # pytest's exit statuses
FAILED = 1
# pytest's line on a test that failed; an error while a file is collected has no "::".
FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Mutation:
    """One bug: in `file`, `old` becomes `new`, and one of `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def read_mutations(path: Path = LIST) -> list[Mutation]:
    """The bugs of the list."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Mutation(name, **entry) for name, entry in entries.items()]


def mutated(text: str, mutation: Mutation) -> str:
    """A file's text with the bug in it."""
    found = text.count(mutation.old)
    if found != 1:
        raise ValueError(
            f"{mutation.name}: found the text {found} times in {mutation.file}; "
            "wanted once"
        )
    return text.replace(mutation.old, mutation.new)


def copy_of(root: Path, folder: Path) -> Path:
    """A copy of the repository: everything that a test of the code needs."""
    copy = folder / "project"

    def not_copied(directory: str, names: list[str]) -> list[str]:
        if Path(directory) == root:
            return [name for name in names if name in NOT_COPIED]
        return [name for name in names if name == "__pycache__"]

    shutil.copytree(root, copy, ignore=not_copied)
    return copy


def run_tests(copy: Path, tests: list[str]) -> tuple[int, str]:
    """pytest's exit status and output, for some tests of the copy, up to a failure."""
    options = ["-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        # A file that changes within a second at the same size would be taken for the old.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        # The search runs uncompiled: compiling it anew would take longer than the tests.
        "NUMBA_DISABLE_JIT": "1",
    }
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
    )
    return finished.returncode, finished.stdout + finished.stderr


def who_notices(copy: Path, mutation: Mutation) -> str:
    """The test that fails with the bug in place; empty if all pass."""
    path = copy / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutated(text, mutation), encoding="utf-8")
    try:
        status, output = run_tests(copy, mutation.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    found = FAILURE.search(output)
    if status == FAILED and found:
        return found[1]
    if status == PASSED:
        return ""
    raise RuntimeError(f"{mutation.name}: pytest could not run its tests\n{output}")


def check(root: Path, mutations: list[Mutation]) -> list[str]:
    """Put in every bug in turn and tell who noticed; the bugs that nobody noticed."""
    unnoticed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of(root, Path(folder))
        every_test = sorted({test for mutation in mutations for test in mutation.tests})
        status, output = run_tests(copy, every_test)
        if status != PASSED:
            raise RuntimeError(f"tests fail before any bug is put in\n{output}")
        for mutation in mutations:
            begin = time.perf_counter()
            test = who_notices(copy, mutation)
            seconds = time.perf_counter() - begin
            print(f"{mutation.name:32} {test or 'NOBODY'} ({seconds:.0f} s)", flush=True)
            if not test:
                unnoticed.append(mutation.name)
    return unnoticed


def main(arguments: list[str] | None = None) -> int:
    """Command line: `mutations.py [--list] [name …]`, by default every bug."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="bugs to put in; by default all")
    parser.add_argument("--list", action="store_true", help="tell the names only")
    options = parser.parse_args(arguments)
    mutations = read_mutations()
    known = [mutation.name for mutation in mutations]
    if options.list:
        print("\n".join(known))
        return 0
    for name in options.names:
        if name not in known:
            parser.error(f"there is no bug {name!r}; there are {', '.join(known)}")
    if options.names:
        mutations = [each for each in mutations if each.name in options.names]
    unnoticed = check(ROOT, mutations)
    print(f"{len(mutations) - len(unnoticed)} of {len(mutations)} bugs were noticed")
    return int(bool(unnoticed))


if __name__ == "__main__":
    sys.exit(main())
