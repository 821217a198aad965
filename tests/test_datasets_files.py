"""Downloads against a local server: what fails says why and leaves the cache alone."""

import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfhelpers import paths
from cfhelpers.datasets import _files, acs, load_dataset, pokec, simulated
from cfhelpers.datasets._files import DownloadError, fetch


class Server(http.server.ThreadingHTTPServer):
    """Answers /name from `pages`: bytes, or a callable that answers by itself."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages, self.asked = {}, []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path.rsplit("/", 1)[-1])
        if page is None:
            self.send_error(404)
        elif callable(page):
            page(self)
        else:
            self.answer(page)

    def answer(
        self, body, code=200, kind="application/octet-stream", length=None, **headers
    ):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")
    return tmp_path / "data"


def held(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def accept(path):
    assert path.stat().st_size > 0


def chunked_then_gone(handler):
    """Half of a chunked answer, then the line goes dead."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"400\r\n" + b"x" * 100)
    handler.close_connection = True


FAILURES = {
    "a 403 page": (
        lambda h: h.answer(b"<html>no</html>", 403, "text/html"),
        "answered 403 Forbidden",
    ),
    "a server error": (lambda h: h.answer(b"", 503), "answered 503"),
    "an error page sent as a file": (
        lambda h: h.answer(b"<html>sorry</html>", kind="text/html"),
        "sent a web page",
    ),
    "a truncated file": (
        lambda h: h.answer(b"x" * 1_000, length=5_000),
        "1,000 of 5,000 bytes arrived",
    ),
    "an interrupted download": (chunked_then_gone, "broke off, try again"),
    "a way out of TLS": (
        lambda h: h.answer(b"", 302, Location="http://example.org/file"),
        "not https|broke off",
    ),
}


@pytest.mark.parametrize("page, message", FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_download_says_why_and_leaves_nothing(server, cache, page, message):
    server.pages["file.csv"] = page
    with pytest.raises(DownloadError, match=message) as caught:
        fetch(f"{server.url}/file.csv", cache / "file.csv", accept)
    assert f"{server.url}/file.csv" in str(caught.value) and "nothing was kept" in str(
        caught.value
    )
    assert held(cache) == []
    server.pages["file.csv"] = b"a,b\n1,2\n"  # the next attempt finds a clean cache
    assert (
        fetch(f"{server.url}/file.csv", cache / "file.csv", accept).read_bytes()
        == b"a,b\n1,2\n"
    )


def test_an_address_without_tls_is_refused(cache):
    with pytest.raises(DownloadError, match="not https"):
        fetch("http://example.org/file.csv", cache / "file.csv", accept)


def test_a_server_that_is_not_there_is_named(cache):
    with pytest.raises(DownloadError, match="broke off"):
        fetch("http://127.0.0.1:9/file.csv", cache / "file.csv", accept)


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs a device that is always full"
)
def test_a_full_disk_is_named_and_leaves_nothing(server, cache, monkeypatch):
    server.pages["file.csv"] = b"x" * 100_000

    def onto_full_disk(path, mode="r", **options):
        return open("/dev/full" if mode == "wb" else path, mode, **options)

    monkeypatch.setattr(_files, "open", onto_full_disk, raising=False)
    with pytest.raises(DownloadError, match="no space left on the disk"):
        fetch(f"{server.url}/file.csv", cache / "file.csv", accept)
    assert held(cache) == []


def test_an_interrupt_leaves_nothing(server, cache):
    server.pages["file.csv"] = b"x"

    def interrupted(path):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(f"{server.url}/file.csv", cache / "file.csv", interrupted)
    assert held(cache) == []


def test_what_is_kept_is_asked_for_once_and_its_checksum_is_compared(server, cache):
    server.pages["file.csv"] = b"a,b\n1,2\n"
    path = fetch(f"{server.url}/file.csv", cache / "file.csv", accept)
    assert (
        fetch(f"{server.url}/file.csv", path, accept) == path and len(server.asked) == 1
    )
    assert held(cache) == ["file.csv", "file.csv.sha256"]
    path.write_bytes(b"a,b\n1,3\n")
    with pytest.raises(DownloadError, match="changed since it was downloaded"):
        fetch(f"{server.url}/file.csv", path, accept)


SCRIPT = """
import sys
from pathlib import Path
from cfhelpers.datasets._files import fetch
path = fetch(sys.argv[1], Path(sys.argv[2]), lambda path: None)
print(len(path.read_bytes()))
"""


def start(url, path):
    command = [sys.executable, "-c", SCRIPT, url, str(path)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, env=os.environ, cwd=paths.ROOT, text=True
    )


@pytest.mark.slow
def test_two_processes_at_once_do_not_spoil_the_cache(server, cache):
    body, both = os.urandom(3_000_000), threading.Barrier(2, timeout=60)

    def slowly(handler):
        both.wait()  # the two downloads overlap
        handler.answer(body)

    server.pages["file.bin"] = slowly
    runs = [start(f"{server.url}/file.bin", cache / "file.bin") for _ in range(2)]
    assert [run.communicate(timeout=60)[0].strip() for run in runs] == ["3000000"] * 2
    assert (cache / "file.bin").read_bytes() == body and held(cache) == [
        "file.bin",
        "file.bin.sha256",
    ]


def test_a_killed_download_is_not_taken_for_a_file(server, cache):
    begun = threading.Event()

    def never_ends(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        handler.wfile.write(b"x" * 500_000)
        handler.wfile.flush()
        begun.set()
        time.sleep(5)

    server.pages["file.bin"] = never_ends
    run = start(f"{server.url}/file.bin", cache / "file.bin")
    assert begun.wait(60)
    run.kill()
    run.wait()
    assert not (cache / "file.bin").exists()
    server.pages["file.bin"] = b"whole"
    assert (
        fetch(f"{server.url}/file.bin", cache / "file.bin", accept).read_bytes()
        == b"whole"
    )


def zipped(name, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return buffer.getvalue()


def test_acs_is_downloaded_into_folktables_layout(server, cache, monkeypatch):
    monkeypatch.setattr(acs, "URL", server.url)
    raw = simulated.acs_files(2_000, 0)["CO"].read_bytes()
    server.pages["csv_pco.zip"] = zipped("psam_p08.csv", raw)
    data = load_dataset("acs_income", "download", states=["CO"])
    assert server.asked == ["/2018/1-Year/csv_pco.zip"]
    assert (cache / "acs/2018/1-Year/psam_p08.csv").read_bytes() == raw
    assert data.source == "download" and "2018" in data.citation
    again = load_dataset(
        "acs_income", "local", states=["CO"]
    )  # the cache is a local folder too
    pd.testing.assert_frame_equal(data.X, again.X)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "page, message",
    [
        (b"PK\x03\x04 not really", "no zip that holds psam_p08.csv"),
        (zipped("psam_p09.csv", "AGEP\n1\n"), "no zip that holds psam_p08.csv"),
        (
            zipped("psam_p08.csv", "AGEP,SEX\n1,2\n"),
            "no column PINCP, WKHP, PWGTP, SCHL, RAC1P, ST",
        ),
        (zipped("psam_p08.csv", "AGEP,SEX\n1,2\n")[:-30], "no zip that holds"),
    ],
    ids=["not a zip", "another state", "other columns", "a cut zip"],
)
def test_a_wrong_acs_file_is_not_kept(server, cache, monkeypatch, page, message):
    monkeypatch.setattr(acs, "URL", server.url)
    server.pages["csv_pco.zip"] = page
    with pytest.raises(DownloadError, match=message):
        load_dataset("acs_income", "download", states=["CO"])
    assert held(cache) == []


def test_pokec_is_downloaded_and_checked(server, cache, monkeypatch):
    monkeypatch.setattr(pokec, "URL", server.url)
    files = simulated.pokec_files("pokec_n", 500, 0)
    server.pages |= {path.name: path.read_bytes() for path in files}
    with pytest.raises(DownloadError, match=r"500 rows, 500 users; wanted 66569"):
        load_dataset("pokec_n", "download")
    assert not (cache / "pokec" / files[0].name).exists()
    monkeypatch.setitem(
        pokec.SIZES, "pokec_n", (500, len(files[1].read_text().splitlines()))
    )
    assert len(load_dataset("pokec_n", "download")) == 500
    monkeypatch.setitem(pokec.SIZES, "pokec_n", (500, 7))
    (cache / "pokec" / files[1].name).unlink()
    with pytest.raises(DownloadError, match="lines of 2; wanted 7 of 2"):
        load_dataset("pokec_n", "download")


OPENML_COLUMNS = [*acs.FEATURES["acs_income"], "ST", "PINCP"]


def people_of_openml():
    """Simulated persons of all states who pass the filter, in the order of the files."""
    files = simulated.acs_files(2_000, 0)
    raw = pd.concat([pd.read_csv(path) for path in files.values()])
    passes = (raw["AGEP"] > 16) & (raw["PINCP"] > 100) & (raw["WKHP"] > 0)
    return raw.loc[passes, OPENML_COLUMNS].astype(float)


def arff(table):
    """A table as OpenML serves it."""
    header = ["% ACSIncome, made up", "@RELATION ACSIncome", ""]
    header += [f"@ATTRIBUTE {name} REAL" for name in table]
    rows = table.to_csv(header=False, index=False, na_rep="?")
    return "\n".join([*header, "", "@DATA", rows]).encode()


def serve_openml(server, body, **changes):
    """Put a file on the server, and the description that OpenML gives of it."""
    stated = {
        "id": "43141",
        "name": "ACSIncome",
        "version": "1",
        "format": "ARFF",
        "licence": "Public",
        "url": f"{server.url}/data/v1/download/22101666/ACSIncome.arff",
        "file_id": "22101666",
        "default_target_attribute": "PINCP",
        "status": "active",
        "md5_checksum": hashlib.md5(body).hexdigest(),
    }
    described = json.dumps({"data_set_description": stated | changes})

    def describe(handler):
        handler.answer(described.encode(), kind="application/json")

    server.pages |= {"43141": describe, "ACSIncome.arff": body}


@pytest.fixture
def openml(server, cache, monkeypatch):
    """A local server in place of OpenML, which expects as many rows as are simulated."""
    monkeypatch.setenv("CFHELPERS_OPENML", f"{server.url}/")
    table = people_of_openml()
    monkeypatch.setattr(acs, "PAPER_ROWS", len(table))
    return table


@pytest.mark.parametrize("states", [None, ["TX", "CO"]])
@pytest.mark.parametrize("attribute", ["race", ("race", "sex")])
@pytest.mark.parametrize("brackets", ["state", "national"])
def test_openml_gives_what_the_raw_files_give(
    server, openml, states, attribute, brackets
):
    serve_openml(server, arff(openml))
    options = {"states": states, "attribute": attribute, "brackets": brackets}
    data = load_dataset("acs_income", "openml", **options)
    same = load_dataset("acs_income", n=2_000, **options)
    pd.testing.assert_frame_equal(data.X, same.X)
    assert data.y.tolist() == same.y.tolist()
    assert data.groups.tolist() == same.groups.tolist()
    assert data.group_names == same.group_names
    assert data.label_names == same.label_names
    pd.testing.assert_frame_equal(data.cuts, same.cuts)
    assert data.missing == () and data.dropped == {} and data.year == 2018
    assert data.source == "openml" and "OpenML states: Public" in data.licence


def test_openml_is_asked_once_by_its_own_paths(server, cache, openml):
    serve_openml(server, arff(openml))
    first = load_dataset("acs_income", "openml")
    asked = ["/api/v1/json/data/43141", "/data/v1/download/22101666/ACSIncome.arff"]
    assert server.asked == asked
    assert held(cache / "openml") == [
        "43141.json",
        "43141.parquet",
        "43141.parquet.sha256",
    ]
    server.pages.clear()
    pd.testing.assert_frame_equal(load_dataset("acs_income", "openml").X, first.X)
    assert server.asked == asked
    with open(cache / "openml/43141.parquet", "ab") as file:
        file.write(b"more")
    with pytest.raises(DownloadError, match="changed since it was downloaded"):
        load_dataset("acs_income", "openml")


def test_a_stop_between_table_and_description_is_made_good(server, cache, openml):
    serve_openml(server, arff(openml))
    first = load_dataset("acs_income", "openml")
    (cache / "openml/43141.json").unlink()
    again = load_dataset("acs_income", "openml")
    assert again.licence == first.licence
    assert server.asked.count("/data/v1/download/22101666/ACSIncome.arff") == 1


def test_what_is_damaged_in_the_cache_is_named(server, cache, openml):
    serve_openml(server, arff(openml))
    load_dataset("acs_income", "openml")
    (cache / "openml/43141.json").write_text("{")
    with pytest.raises(DownloadError, match=r"43141\.parquet: damaged, or 43141\.json"):
        load_dataset("acs_income", "openml")


def test_a_table_without_its_checksum_is_checked_when_it_is_read(server, cache, openml):
    serve_openml(server, arff(openml))
    load_dataset("acs_income", "openml")
    (cache / "openml/43141.parquet.sha256").unlink()
    openml.iloc[:5].to_parquet(cache / "openml/43141.parquet")
    with pytest.raises(DownloadError, match="5 rows; wanted 2,000"):
        load_dataset("acs_income", "openml")


def test_blanks_are_read_and_quoted_names_are_understood(server, openml):
    openml.iloc[3, openml.columns.get_loc("COW")] = np.nan
    body = arff(openml).replace(b"@ATTRIBUTE COW REAL", b"@attribute 'COW' NUMERIC")
    serve_openml(server, body)
    data = load_dataset("acs_income", "openml")
    assert data.X["COW"].iloc[3] == 0
    assert "1 blanks in COW set to 0, as folktables does" in data.notes


def with_age_of_140(table):
    return table.assign(AGEP=[*table["AGEP"].iloc[:-1], 140])


def with_text(table):
    return arff(table).replace(b"@DATA\n", b"@DATA\nx" + b",1" * 11 + b"\n")


# Files that must not be kept, each with what is said of it.
DAMAGED = {
    "a column is missing": (lambda t: arff(t.drop(columns="ST")), "no column ST"),
    "rows are missing": (lambda t: arff(t.iloc[:-1]), "1,999 rows; wanted 2,000"),
    "no rows": (lambda t: arff(t.iloc[:0]), "0 rows; wanted 2,000"),
    "an age of 140": (
        lambda t: arff(with_age_of_140(t)),
        "AGEP is 140.0 in row 1999; wanted 17 to 99",
    ),
    "no race": (lambda t: arff(t.assign(RAC1P=np.nan)), "RAC1P is nan in row 0"),
    "text among numbers": (with_text, "not the file that was expected"),
    "a field too many": (
        lambda t: arff(t.assign(more=1)).replace(b"@ATTRIBUTE more REAL\n", b""),
        "rows of 13 fields, and 12 columns in the header",
    ),
    "a column without a name": (
        lambda t: arff(t).replace(b"@ATTRIBUTE COW REAL", b"@ATTRIBUTE"),
        "an @ATTRIBUTE without a name",
    ),
    "the header alone": (lambda t: arff(t).partition(b"@DATA")[0], "no @DATA"),
}


@pytest.mark.parametrize("damage, message", DAMAGED.values(), ids=DAMAGED)
def test_a_wrong_openml_file_is_not_kept(server, cache, openml, damage, message):
    serve_openml(server, damage(openml))
    with pytest.raises(DownloadError, match=message) as caught:
        load_dataset("acs_income", "openml")
    assert "ACSIncome.arff" in str(caught.value)
    assert "nothing was kept" in str(caught.value)
    assert held(cache / "openml") == []
    serve_openml(server, arff(openml))  # the next attempt finds a clean cache
    assert len(load_dataset("acs_income", "openml")) == len(openml)


def test_a_file_that_changed_on_its_way_is_not_kept(server, cache, openml):
    body = arff(openml)
    serve_openml(server, body)
    whole = server.pages["ACSIncome.arff"]
    server.pages["ACSIncome.arff"] = body.replace(b"1.0", b"2.0", 1)
    with pytest.raises(DownloadError, match=r"its MD5 is \w{32}; the description states"):
        load_dataset("acs_income", "openml")
    server.pages["ACSIncome.arff"] = lambda handler: handler.answer(
        body[:5_000], length=len(body)
    )
    with pytest.raises(DownloadError, match=r"5,000 of .* bytes arrived"):
        load_dataset("acs_income", "openml")
    server.pages["ACSIncome.arff"] = body[:5_000]  # cut, and the length is of the cut
    with pytest.raises(DownloadError, match="its MD5 is"):
        load_dataset("acs_income", "openml")
    assert held(cache / "openml") == []
    server.pages["ACSIncome.arff"] = whole
    assert len(load_dataset("acs_income", "openml")) == len(openml)


DESCRIPTIONS = {
    "another table": ({"id": "61"}, "the description is of table 61, not 43141"),
    "no checksum": ({"md5_checksum": ""}, "the description states no md5_checksum"),
    "a way out of TLS": ({"url": "http://example.org/a.arff"}, "not https"),
}


@pytest.mark.parametrize("change, message", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_a_wrong_description_is_refused(server, cache, openml, change, message):
    serve_openml(server, arff(openml), **change)
    with pytest.raises(DownloadError, match=message):
        load_dataset("acs_income", "openml")
    assert held(cache / "openml") == []


NO_DESCRIPTIONS = [
    b"not json",
    b"[]",
    b'{"error": {"code": "111"}}',
    b'{"data_set_description": null}',
    b'{"data_set_description": "text"}',
]


@pytest.mark.parametrize("answer", NO_DESCRIPTIONS)
def test_an_answer_that_is_no_description_is_refused(server, cache, openml, answer):
    server.pages["43141"] = answer
    with pytest.raises(DownloadError, match="no description of a table"):
        load_dataset("acs_income", "openml")


def test_openml_out_of_reach_is_named(server, cache, openml, monkeypatch):
    with pytest.raises(DownloadError, match="43141: the server answered 404"):
        load_dataset("acs_income", "openml")
    monkeypatch.setenv("CFHELPERS_OPENML", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"127.0.0.1:9/api/v1/json/data/43141: broke"):
        load_dataset("acs_income", "openml")


def test_the_real_table_has_to_have_the_papers_rows(server, cache, monkeypatch):
    monkeypatch.setenv("CFHELPERS_OPENML", server.url)
    serve_openml(server, arff(people_of_openml()))
    with pytest.raises(DownloadError, match="2,000 rows; wanted 1,664,500"):
        load_dataset("acs_income", "openml")


def test_openml_has_one_survey_and_one_task(cache):
    with pytest.raises(ValueError, match="year and horizon: found 2019, '1-Year'"):
        load_dataset("acs_income", "openml", year=2019)
    with pytest.raises(ValueError, match="acs_education has 'simulated'"):
        load_dataset("acs_education", "openml")
