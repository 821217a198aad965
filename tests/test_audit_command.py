"""The command: what it writes, its exit status and its manners."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfhelpers import FairConformalClassifier
from cfhelpers.auditing import audit_file, command, files, report


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A file whose disparate impact is beyond, and the frame it was written from."""
    rng = np.random.default_rng(3)
    n = 1200
    group = rng.choice(["a", "b"], n, p=[0.6, 0.4])
    y = rng.random(n) < np.where(group == "a", 0.6, 0.25)
    signal_ = np.where(y, 0.7, 0.3) + np.where(group == "a", 0.08, -0.08)
    yes = np.clip(signal_ + rng.normal(0, 0.15, n), 0.01, 0.99).round(4)
    frame = pd.DataFrame({"p_0": (1 - yes).round(4), "p_1": yes, "y": y.astype(int)})
    frame["group"] = group
    path = tmp_path_factory.mktemp("people") / "people.csv"
    frame.to_csv(path, index=False)
    return path, frame


def test_everything_is_written_and_named(people, tmp_path, capsys):
    path, _ = people
    out = tmp_path / "new folder"
    options = ["--cutoff", "0.5", "--output", out / "r.html", "--card", out / "card.md"]
    options += ["--serve", out / "fix.json"]
    assert command.main(["audit", str(path), *map(str, options)]) == 0
    printed = capsys.readouterr().out
    document = json.loads((out / "r.json").read_text(encoding="utf-8"))
    page = (out / "r.html").read_text(encoding="utf-8")
    assert "r_tables/cells.csv" in page and "r.json" in page
    assert (out / "r_tables" / "cells.csv").is_file()
    assert (out / "card.md").read_text(encoding="utf-8").startswith("#")
    assert "cfhelpers audit" in json.dumps(document) and "--cutoff 0.5" in page
    for name in ("r.html", "r.json", "r_tables", "card.md", "fix.json"):
        assert str(out / name) in printed
    assert not list(out.glob(".*"))


def test_json_on_the_terminal_is_json_alone(people, capsys):
    path, _ = people
    assert command.main(["audit", str(path), "--cutoff", "0.5", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "cfhelpers.audit"


@pytest.mark.parametrize(
    "metrics, fail_on, status",
    [
        ("disparate_impact", "beyond", 1),
        ("disparate_impact", "undecided", 1),
        ("overall_accuracy_equality", "beyond", 0),
        ("overall_accuracy_equality", "undecided", 0),
        ("disparate_impact", "", 0),
    ],
)
def test_the_gate_sets_the_exit_status(people, capsys, metrics, fail_on, status):
    path, _ = people
    words = ["--cutoff", "0.5", "--metrics", metrics, "--closeness"]
    words += ["0.2" if "overall" in metrics else "0.8"]
    if fail_on:
        words += ["--fail-on", fail_on]
    assert command.main(["audit", str(path), *words]) == status
    printed = capsys.readouterr().out
    if fail_on:
        answer = f"gate ({fail_on}): {'no; disparate_impact' if status else 'yes'}"
        assert answer in printed


def test_an_undecided_verdict_stops_only_the_stricter_gate(people, tmp_path):
    _, frame = people
    frame[:60].to_csv(tmp_path / "few.csv", index=False)
    words = ["audit", str(tmp_path / "few.csv"), "--metrics", "equal_opportunity"]
    assert audit_file(words[1], metrics=words[3]).verdicts[0].verdict == "cannot tell"
    assert command.main([*words, "--fail-on", "beyond"]) == 0
    assert command.main([*words, "--fail-on", "undecided"]) == 1


@pytest.mark.parametrize("score", ["tps", "aps"])
def test_the_fix_that_is_written_serves_the_sets_that_were_measured(
    people, tmp_path, score
):
    path, frame = people
    found = audit_file(path, metrics="disparate_impact", score=score, seed=4)
    served = json.loads(json.dumps(found.served("group", "disparate_impact")))
    classifier = FairConformalClassifier.from_dict(served)
    table = found.fixes("group", "disparate_impact")
    row = table.loc[("one per label", "fixed-sequence")]
    assert served == json.loads(json.dumps(row["served"]))
    rows = ~found.calibration
    sets = classifier.predict_set(frame.loc[rows, ["p_0", "p_1"]])
    assert sets.sum(axis=1).mean() == pytest.approx(row["mean set size"], abs=1e-9)
    assert classifier.classes_.tolist() == [0, 1]


def test_a_fix_is_chosen_by_name(people, tmp_path, capsys):
    path, _ = people
    words = ["audit", str(path), "--serve", str(tmp_path / "fix.json"), "--fix"]
    chosen = "equal_opportunity, one for all labels, none"
    assert command.main([*words, chosen]) == 0
    served = json.loads((tmp_path / "fix.json").read_text())
    assert served["promise"]["metric"] == "equal_opportunity"
    assert served["promise"]["guarantee"] == "none" and not served["classwise"]
    assert command.main([*words, "the best"]) == 2
    assert "fix: found 'the best'; wanted some of" in capsys.readouterr().err


def test_fixes_are_measured_on_the_same_rows_and_leave_other_labels_alone(people):
    path, _ = people
    found = audit_file(path, cutoff=0.4, metrics="disparate_impact")
    table = found.fixes("group", "disparate_impact")
    assert table["rows"].nunique() == 1 and table["rows"].iloc[0] == 600
    assert found.people == 1200  # the audit itself is about every row
    for guarantee in ("none", "fixed-sequence"):
        row = table.loc[("one per label", guarantee)]
        assert row["threshold"][0] == found.threshold[0]  # label 0 was not asked about
        assert row["cutoff"][0] == 0.4
    sizes = table["mean set size"]
    assert table["price"].tolist() == pytest.approx((sizes - sizes.iloc[0]).tolist())


def test_the_file_is_read_once(people, monkeypatch, tmp_path):
    path, _ = people
    reads = []
    original = type(path).read_bytes

    def counting(self):
        reads.append(self)
        return original(self)

    monkeypatch.setattr(type(path), "read_bytes", counting)
    page = str(tmp_path / "r.html")
    assert command.main(["audit", str(path), "--cutoff", "0.5", "--output", page]) == 0
    assert reads == [path]


def test_verdicts_that_hold_jointly(people):
    path, _ = people
    each = audit_file(path, cutoff=0.5)
    assert each.n_verdicts == 3 and not each.joint
    together = audit_file(path, cutoff=0.5, joint=True)
    confidence = together.audits["group"].confidence
    assert confidence == pytest.approx(1 - 0.05 / 3)
    assert [record.joint for record in each.verdicts] == [
        record.verdict for record in together.verdicts
    ]
    assert "probability at most 0.05" in str(together)
    assert "(--joint)" in str(each)


def test_equalized_odds_names_the_condition_of_every_cell(people):
    path, _ = people
    found = audit_file(path, cutoff=0.5, metrics="equalized_odds")
    cells = found.audits["group"].cells
    assert set(cells["condition"]) == {"equal", "different"}
    record = found.verdicts[0]
    at_record = cells[cells["condition"] == record.condition].set_index("group")
    assert at_record.loc[record.worst.group, "covered"] == record.worst.covered
    assert record.best.share - record.worst.share == pytest.approx(record.estimate)


def test_errors_of_the_system_end_in_one_line(people, monkeypatch, capsys):
    path, _ = people
    for error, status, words in (
        (OSError(28, "No space left on device", "r.json"), 2, "r.json: No space left"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "too large for the memory"),
    ):

        def fails(*args, error=error, **options):
            raise error

        monkeypatch.setattr(files, "load_predictions", fails)
        assert command.main(["audit", str(path)]) == status
        printed = capsys.readouterr()
        assert words in printed.err and printed.err.count("\n") == 1
        assert printed.out == ""


def test_a_warning_is_one_line_without_a_path(people, capsys):
    path, _ = people
    words = ["--cutoff", "0.5", "--metrics", "disparate_impact", "--closeness", "0.3"]
    assert command.main(["audit", str(path), *words]) == 0
    printed = capsys.readouterr().err
    assert printed.startswith("cfhelpers audit: note: closeness: found 0.3")
    assert printed.count("\n") == 1 and ".py" not in printed


def test_the_file_of_predictions_is_never_written_over(people, tmp_path, capsys):
    """By whatever way it is named; a folder on the way need not be there."""
    file = tmp_path / "people.csv"
    shutil.copy(people[0], file)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    for name in (file, link, tmp_path / "no such folder" / ".." / "people.csv"):
        assert command.main(["audit", str(file), "--json", str(name)]) == 2
        assert "is the file of predictions itself" in capsys.readouterr().err
    assert file.read_bytes() == people[0].read_bytes()
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_no_table_and_no_file_beside_the_report_takes_the_place_of_another(
    people, tmp_path, monkeypatch, capsys
):
    """Files that are named by the command itself are looked at like those of the user."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "groups.csv"
    shutil.copy(people[0], file)
    assert command.main(["audit", str(file), "--csv", "."]) == 2
    assert "groups.csv is the file of predictions itself" in capsys.readouterr().err
    asked = ["audit", str(file), "--output", "r.html"]
    assert command.main([*asked, "--card", "r.json"]) == 2
    assert "card: found r.json, which is that of json" in capsys.readouterr().err
    (tmp_path / "r.json").mkdir()
    assert command.main(asked) == 2
    assert "json: r.json is a folder; wanted a file" in capsys.readouterr().err
    assert command.main(["audit", str(file), "--json", "made/"]) == 2
    assert "json: made/ is a folder; wanted a file" in capsys.readouterr().err
    assert file.read_bytes() == people[0].read_bytes()
    assert sorted(tmp_path.iterdir()) == [file, tmp_path / "r.json"]


def test_the_tables_that_are_looked_at_are_those_that_are_written(people):
    found = audit_file(people[0], cutoff="0.5")
    assert sorted(command.TABLES) == sorted(report.tables(found))


def test_a_fix_that_nothing_serves_is_refused(people, capsys):
    assert command.main(["audit", str(people[0]), "--fix", "none"]) == 2
    assert "fix: found 'none'; it goes with --serve" in capsys.readouterr().err


PRINTING = {
    "plan": ["plan", "--groups", "Größe=0.5,東=0.5"],
    "check": ["check", "plots"],
    "monitor": ["monitor", "state.json", "people.csv"],
}


@pytest.mark.parametrize("name", PRINTING)
@pytest.mark.parametrize("reader", ["closed", "ascii"])
def test_work_that_is_done_ends_well_whoever_reads(tmp_path, monkeypatch, name, reader):
    """A pipe that was closed, or a terminal with few characters, changes no status."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text("set_0,set_1,y,group\n1,0,0,a\n0,1,1,b\n")
    told = io.StringIO()
    encoding = "ascii" if reader == "ascii" else "utf-8"
    read, write = os.pipe()
    if reader == "closed":
        os.close(read)
    with open(write, "w", encoding=encoding) as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", told)
        assert command.main(PRINTING[name]) == 0
    if reader == "closed":
        sentence = "the output was closed before its end"
        assert told.getvalue() == f"cfhelpers {name}: {sentence}\n"
    else:
        assert told.getvalue() == ""
        os.close(read)


def test_every_command_complains_under_its_own_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    asked = {
        "plan": ["plan", "--groups", "a,b", "--curve", "folder"],
        "monitor": ["monitor", "folder", "gone.csv"],
        "check": ["check", "no\x1b[31mextra"],
        "audit": ["audit", "folder"],
    }
    for name, arguments in asked.items():
        assert command.main(arguments) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"cfhelpers {name}: ") and told.count("\n") == 1
        assert ".partial" not in told and "\x1b" not in told and "Errno" not in told


def test_two_outputs_are_not_written_to_one_file(people, tmp_path, capsys):
    place = tmp_path / "one"
    asked = ["audit", str(people[0]), "--json", str(place), "--card", str(place)]
    assert command.main(asked) == 2
    assert "card: found" in capsys.readouterr().err and not place.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_utf8_is_shown_by_its_bytes(people, tmp_path, capsys):
    folder = os.path.join(str(tmp_path), os.fsdecode(b"caf\xe9"))
    os.mkdir(folder)
    file = os.path.join(folder, "people.csv")
    shutil.copy(people[0], file)
    page = os.path.join(folder, "a.html")
    assert command.main(["audit", file, "--cutoff", "0.5", "--output", page]) == 0
    document = json.loads((Path(folder) / "a.json").read_text("utf-8"))
    assert "caf\\udce9/people.csv" in document["command"]
    assert "caf" in Path(page).read_text("utf-8")


@pytest.mark.slow
def test_a_closed_pipe_and_ctrl_c_end_in_one_line(people, tmp_path):
    path, _ = people
    words = f"{sys.executable} -m cfhelpers audit '{path}' --cutoff 0.5"
    shell = f"set -o pipefail; {words} --json '{tmp_path}/a.json' | true"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, timeout=300, check=False
    )
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1
    assert (tmp_path / "a.json").is_file()  # the work is done all the same
    started = subprocess.Popen(
        [sys.executable, "-c", SLOW_AUDIT, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout.readline() == "reading\n"
    time.sleep(0.2)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=120)
    assert started.returncode == 130 and errors == "cfhelpers audit: interrupted\n"


SLOW_AUDIT = """
import signal, sys, time
from cfhelpers.auditing import command, files
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have turned it off
def slowly(*args, **options):
    print("reading", flush=True)
    time.sleep(60)
files.load_predictions = slowly
sys.exit(command.main(["audit", sys.argv[1]]))
"""


def test_without_the_extra_there_are_text_json_and_csv(
    people, monkeypatch, tmp_path, capsys
):
    path, _ = people
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    words = ["audit", str(path), "--cutoff", "0.5"]
    csv = str(tmp_path / "tables")
    assert command.main([*words, "--json", str(tmp_path / "a.json"), "--csv", csv]) == 0
    assert "disparate_impact" in capsys.readouterr().out
    assert (tmp_path / "tables" / "verdicts.csv").is_file()
    assert command.main([*words, "--output", str(tmp_path / "r.html")]) == 2
    told = capsys.readouterr().err
    assert "pip install 'cfhelpers[report]'" in told and told.count("\n") == 1


STRANGE = {
    "markup": "<script>alert(1)</script>",
    "a formula": '=HYPERLINK("http://x","y")',
    "a shell command": "$(touch owned); `touch owned`",
    "a template": "{{ 7 * 7 }}{% raw %}",
}


def test_a_group_named_as_code_is_text_everywhere(people, tmp_path, capsys):
    _, frame = people
    names = [*STRANGE.values()]
    strange = frame.assign(group=[names[place % 4] for place in range(len(frame))])
    path = tmp_path / "strange.csv"
    strange.to_csv(path, index=False)
    page = tmp_path / "r.html"
    words = ["--cutoff", "0.5", "--output", str(page)]
    assert command.main(["audit", str(path), *words]) == 0
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text and "&lt;script&gt;" in text and "{{ 7 * 7 }}" in text
    assert names[2] in capsys.readouterr().out
    assert not list(tmp_path.glob("owned*"))
    for table in (tmp_path / "r_tables").glob("*.csv"):
        raw = table.read_text(encoding="utf-8")
        for line in raw.splitlines():
            assert not line.startswith("=") and ",=" not in line and ',"=' not in line


def test_a_pipe_is_not_replaced_by_a_file(people, tmp_path, capsys):
    path, _ = people
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert command.main(["audit", str(path), "--json", str(pipe)]) == 2
    assert "is a device or a pipe; wanted a file" in capsys.readouterr().err
    assert pipe.is_fifo()
