"""Limits for pip, and the tests that need the method alone: for the matrix of the CI.

`python tools/versions.py lowest` prints the lowest versions that pyproject.toml allows,
as limits for pip; `newest` prints none. `python tools/versions.py method-tests --run`
runs the tests of what `pip install .` gives, without torch, Ray or notebooks.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("plots", "data")  # what the tests of the method draw and read with
METHOD_TESTS = (
    "tests/test_conformal.py",
    "tests/test_scores.py",
    "tests/test_groups.py",
    "tests/test_fairness.py",
    "tests/test_control.py",
    "tests/test_guarantee.py",
    "tests/test_staircase.py",
    "tests/test_predictor.py",
    "tests/test_serving.py",
    "tests/test_bad_input.py",
    "tests/test_checks.py",
    "tests/test_theory.py",
)


def lowest(root: Path = ROOT) -> list[str]:
    """The lowest version of each package that the method and EXTRAS name, as limits."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    requirements = list(project["dependencies"])
    for extra in EXTRAS:
        requirements += project["optional-dependencies"][extra]
    limits = []
    for requirement in requirements:
        found = re.match(r"([\w.-]+)>=([\w.]+)", requirement)
        if found:
            limits.append(f"{found[1]}=={found[2]}")
    return sorted(limits)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("lowest", "newest", "method-tests"))
    parser.add_argument("--output", type=Path, help="a file instead of the terminal")
    parser.add_argument("--run", action="store_true", help="run the tests")
    options = parser.parse_args(arguments)
    if options.what == "method-tests":
        lines = list(METHOD_TESTS)
    elif options.what == "lowest":
        lines = lowest()
    else:
        lines = []
    if options.run and options.what == "method-tests":
        chosen = ["-m", "not slow and not stress", *lines]
        command = [sys.executable, "-m", "pytest", "-q", *chosen]
        return subprocess.run(command, cwd=ROOT).returncode
    text = "".join(f"{line}\n" for line in lines)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
