"""Inputs that atheris finds by watching which lines they reach, for one reader.

    python tests/stress/guided.py READER COUNT FOLDER [ATHERIS]

Ends with status 0 after COUNT inputs of which none made the reader raise anything but a
ValueError or an OSError. ATHERIS is the folder in which atheris is installed.
"""

import contextlib
import io
import json
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if len(sys.argv) > 4:
    sys.path.insert(0, sys.argv[4])
sys.path[:0] = [str(ROOT / each) for each in ("tools", "tests", "tests/stress", ".")]

import atheris  # noqa: E402

# What numba compiles must stay as it is.
COMPILED = ["cfhelpers._sweep"]
with atheris.instrument_imports(include=["cfhelpers", "runs"], exclude=COMPILED):
    import runs

    from cfhelpers import FairConformalClassifier, Monitor
    from cfhelpers.auditing import document, reading
    from cfhelpers.datasets import _openml
    from cfhelpers.datasets._files import DownloadError, raised_as_download_error

from test_audit_files import ACCEPTED  # noqa: E402

REFUSALS = (ValueError, OSError, DownloadError)


def as_json(data):
    """What the bytes say as JSON; a ValueError where they say nothing."""
    return json.loads(data.decode("utf-8", "ignore"))


def written(folder, name, data):
    file = Path(folder) / name
    file.write_bytes(data)
    return file


def read_predictions(data, folder):
    reading.load_predictions(written(folder, "a.csv", data))


def read_arff(data, folder):
    with raised_as_download_error("https://example.org"):
        _openml.read_arff(written(folder, "a.arff", data))


def read_monitor(data, folder):
    Monitor.load(written(folder, "state.json", data))


def read_classifier(data, folder):
    FairConformalClassifier.from_dict(as_json(data))


def read_earlier(data, folder):
    document.read_document(written(folder, "earlier.json", data))


def read_profile(data, folder):
    (Path(folder) / "profiles").mkdir(exist_ok=True)
    written(Path(folder) / "profiles", "quick.yaml", data)
    runs._settings_in(Path(folder) / "profiles" / "quick.yaml")


READERS = {
    "open_table": (read_predictions, [ACCEPTED[k][1] for k in ("commas", "gzip", "zip")]),
    "arff": (read_arff, [b"@RELATION a\n@ATTRIBUTE AGEP REAL\n@DATA\n1\n?\n"]),
    "profile": (read_profile, [b"others: true\n09_a:\n  - {dataset: credit}\n"]),
}


def seeds_of(reader):
    """The reader and good inputs to begin with."""
    if reader in READERS:
        return READERS[reader]
    if reader == "monitor":
        from test_monitoring import watched

        return read_monitor, [json.dumps(watched().to_dict()).encode()]
    from test_stress_fuzz import BOTH, audit_file, classifiers, reports

    if reader == "classifier":
        return read_classifier, [json.dumps(each).encode() for each in classifiers()]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.csv"
        BOTH.to_csv(file, index=False)
        found = audit_file(file, cutoff="0.5", metrics="demographic_parity")
        return read_earlier, [json.dumps(reports.document(found)).encode()]


def main():
    reader, count, folder = sys.argv[1:4]
    read, seeds = seeds_of(reader)
    corpus = Path(folder) / "corpus"
    corpus.mkdir(exist_ok=True)
    for place, seed in enumerate(seeds):
        (corpus / f"seed{place}").write_bytes(seed)
    warnings.simplefilter("ignore")
    sys.stdout = io.StringIO()

    def test_one(data):
        with contextlib.suppress(REFUSALS):
            read(data, folder)

    options = [sys.argv[0], f"-runs={count}", "-seed=1", "-max_len=8192", str(corpus)]
    atheris.Setup([*options, f"-artifact_prefix={folder}/"], test_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
