"""/metrics pages of servers, asked for during a run: what is kept of them, and servers that have none."""

import itertools
import threading

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from harness.files import SERVER_METRICS
from sut.servers.scrape import MetricsScraper
from tests.kit import DATA, listening, read_request, wait_until
from tests.records import ENDED
from tests.stub import StubServer, refused_url

PAGES = (
    DATA / "metrics"
)  # of SGLang 0.5.23 and vLLM 0.32 on a CPU, some without comments, most without buckets
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("sut.servers.scrape.EVERY_S", 0.01)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Only servers that never answer are meant to be late."""
    monkeypatch.setattr("sut.servers.scrape._ANSWER_S", 20.0)


def scraper_of(folder, *urls, wire="sglang"):
    return MetricsScraper([replace(ENDED.servers[0], url=url, wire=wire) for url in urls], folder, None)


def rows(folder):
    return pq.read_table(folder / SERVER_METRICS).to_pylist()


@pytest.mark.parametrize(
    ("page", "name", "labels", "value"),
    [
        ("sglang_busy1.txt", "sglang:num_queue_reqs", 'engine_type="unified"', 32.0),
        ("sglang_after.txt", "sglang:cached_tokens_total", 'cache_source="', 39.0),
        ("vllm_busy1.txt", "vllm:num_requests_running", 'engine="0"', 16.0),
        ("vllm_after.txt", "vllm:generation_tokens_total", 'engine="0"', 10800.0),
    ],
)
def test_recorded_pages_are_kept(tmp_path, page, name, labels, value):
    text = (PAGES / page).read_bytes()
    with StubServer(metrics=lambda: text) as stub:
        scraper = scraper_of(tmp_path, stub.url)
        scraper.start()
        found = scraper.stop()
    assert found.without == {}
    assert found.warnings == ()
    kept = [row for row in rows(tmp_path) if row["name"] == name]
    assert len(kept) == 2  # at the beginning and at the end
    assert {row["value"] for row in kept} == {value}
    assert {row["replica"] for row in kept} == {stub.url}
    assert labels in kept[0]["labels"]
    assert kept[0]["time_ns"] < kept[1]["time_ns"]
    assert not [row for row in rows(tmp_path) if row["name"].endswith(("_bucket", "_created"))]


def test_rounds_follow_each_other(tmp_path, quick):
    numbers = itertools.count()
    with StubServer(metrics=lambda: b"a_total %d\n" % next(numbers)) as stub:
        scraper = scraper_of(tmp_path, stub.url)
        scraper.start()
        wait_until(lambda: next(numbers) > 20)
        scraper.stop()
    values = [row["value"] for row in rows(tmp_path)]
    assert len(values) >= 3
    assert values == sorted(values)


def endless(connection):
    """More than any page."""
    read_request(connection)
    connection.sendall(OK % (100 << 20))
    for _ in range(100):
        connection.sendall(b"a 1\n" * (1 << 18))


def garbage(connection):
    read_request(connection)
    connection.sendall(OK % 9 + b"\x00\xff\x1b[2J\n{}")


def no_http(connection):
    read_request(connection)
    connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")


@pytest.mark.parametrize(
    ("serve", "reason"),
    [(endless, "more than 4 MiB"), (garbage, "no page of Prometheus"), (no_http, "/metrics")],
)
def test_bad_pages_leave_the_others(tmp_path, serve, reason):
    with listening(serve) as bad, StubServer(metrics=lambda: b"good 1\n") as good, StubServer() as none:
        scraper = scraper_of(tmp_path, bad, good.url, none.url)
        scraper.start()
        found = scraper.stop()
    assert found.without.keys() == {bad, none.url}
    assert reason in found.without[bad]
    assert found.without[bad].isprintable()
    assert "404" in found.without[none.url]
    assert {(row["replica"], row["value"]) for row in rows(tmp_path)} == {(good.url, 1.0)}


def test_a_server_that_hangs_holds_up_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sut.servers.scrape._ANSWER_S", 0.3)
    over = threading.Event()
    with listening(lambda connection: over.wait(60)) as hung, refused_url() as refused:
        scraper = scraper_of(tmp_path, hung, refused)
        scraper.start()
        found = scraper.stop()
        over.set()
    assert "no answer" in found.without[hung]
    assert found.without.keys() == {hung, refused}
    assert not (tmp_path / SERVER_METRICS).exists()


def test_a_server_that_fails_later_is_no_server_without(tmp_path, quick):
    pages = iter([b"a 1\n"] * 3)
    with StubServer(metrics=lambda: next(pages, b"")) as stub:
        scraper = scraper_of(tmp_path, stub.url)
        scraper.start()
        wait_until(lambda: scraper._servers[0].failures)
        found = scraper.stop()
    assert found.without == {}
    assert len(rows(tmp_path)) == 3


def test_tensorrt_llm_is_not_asked(tmp_path):
    """Its page takes away the statistics that it shows."""
    with StubServer(metrics=lambda: b"a 1\n") as stub:
        scraper = scraper_of(tmp_path, stub.url, wire="trtllm")
        scraper.start()
        assert scraper.stop().without == {stub.url: "not asked"}
        assert stub.connections == 0


def test_a_folder_that_is_gone_is_a_warning(tmp_path):
    with StubServer(metrics=lambda: b"a 1\n") as stub:
        scraper = scraper_of(tmp_path / "gone", stub.url)
        scraper.start()
        (warning,) = scraper.stop().warnings
    assert SERVER_METRICS in warning


def test_what_was_never_started_can_be_stopped(tmp_path):
    assert scraper_of(tmp_path, "http://127.0.0.1:1").stop().warnings == ()
