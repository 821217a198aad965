"""Try cfhelpers as it is installed, in an empty folder: what a reader of the README does.

`python tools/try_installed.py FOLDER` takes the README's five lines, audits a file with a
report, and watches a predictor, all by the package of the interpreter that runs it. Copy
the file and README.md out of the repository first, so that nothing else is imported.
"""

import argparse
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent


def five_lines(readme: str) -> str:
    """The code of the README's section "In five lines"."""
    section = readme.partition("## In five lines")[2].partition("\n## ")[0]
    return section.partition("```python\n")[2].partition("```")[0]


def people(n: int = 1500, seed: int = 0) -> pd.DataFrame:
    """People with a score, a true outcome that it tells something of, and a group."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["women", "men"], n)
    outcome = rng.integers(0, 2, n)
    score = outcome + rng.normal(0, 0.8, n) + 0.5 * (group == "men")
    return pd.DataFrame({"score": score, "outcome": outcome, "sex": group})


def try_five_lines(readme: str) -> np.ndarray:
    """Run the five lines on generated people; gives the sets that they find."""
    from sklearn.linear_model import LogisticRegression

    parts = {name: people(seed=seed) for seed, name in enumerate(("train", "old", "new"))}
    model = LogisticRegression().fit(parts["train"][["score"]], parts["train"]["outcome"])
    known = {
        "model": model,
        "X_calibration": parts["old"][["score"]],
        "y_calibration": parts["old"]["outcome"],
        "groups_calibration": parts["old"]["sex"],
        "X_new": parts["new"][["score"]],
    }
    exec(compile(five_lines(readme), "README.md", "exec"), known)
    sets = np.asarray(known["sets"])
    outcomes = parts["new"]["outcome"].to_numpy()
    covered = sets[np.arange(len(sets)), outcomes].mean()
    if sets.shape != (1500, 2) or covered < 0.85:
        raise AssertionError(f"sets of shape {sets.shape} that cover {covered:.3f}")
    return sets


def command(folder: Path, *words: object) -> str:
    """What the installed command prints; an error if it fails."""
    program = Path(sysconfig.get_path("scripts")) / "cfhelpers"
    done = subprocess.run(
        [str(program), *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"{words[0]}: status {done.returncode}: {done.stderr}")
    return done.stdout


def try_audit(folder: Path) -> dict:
    """Audit a file of probabilities with a report; gives the JSON document."""
    table = people(seed=3)
    yes = 1 / (1 + np.exp(1 - 2 * table["score"]))
    table = table.assign(p_0=1 - yes, p_1=yes).drop(columns="score")
    table.to_csv(folder / "predictions.csv", index=False)
    words = ["--label", "outcome", "--groups", "sex", "--output", "report.html"]
    command(folder, "audit", "predictions.csv", *words)
    page = (folder / "report.html").read_text(encoding="utf-8")
    if not page.startswith("<!DOCTYPE html>") or "women" not in page:
        raise AssertionError("report.html is no report")
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def try_monitor(folder: Path, sets: np.ndarray) -> str:
    """Count two batches into a state; gives what is printed for the second."""
    for week in (1, 2):
        rows = slice(750 * (week - 1), 750 * week)
        table = people(seed=2)[rows].drop(columns="score")
        table["set_0"] = sets[rows, 0].astype(int)
        table["set_1"] = sets[rows, 1].astype(int)
        table.to_csv(folder / f"week{week}.csv", index=False)
        words = ["--label", "outcome", "--groups", "sex"]
        printed = command(folder, "monitor", "state.json", f"week{week}.csv", *words)
    json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return printed


def main() -> int:
    """Try everything, and say what was tried and by which package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="an empty folder to write to")
    parser.add_argument(
        "--readme", type=Path, default=HERE.parent / "README.md", help="which five lines"
    )
    options = parser.parse_args()
    import cfhelpers

    place = Path(cfhelpers.__file__).resolve()
    if not place.is_relative_to(Path(sysconfig.get_path("purelib")).resolve()):
        print(f"cfhelpers was imported from {place}, which is not where pip installs")
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    sets = try_five_lines(options.readme.read_text(encoding="utf-8"))
    document = try_audit(options.folder)
    told = try_monitor(options.folder, sets)
    checked = command(options.folder, "check", "report")
    verdict = re.search(r"within|beyond|cannot tell", told)
    if document["schema"] != "cfhelpers.audit" or verdict is None:
        print("the audit or the monitor gave no answer")
        return 1
    print(checked, end="")
    print(f"five lines: {sets.sum(axis=1).mean():.2f} labels in a set")
    print(f"audit: report.html and {len(document)} fields; monitor: {verdict[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
