"""Downloads against a local server: what fails says why and leaves the cache alone."""

import http.server
import io
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

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
