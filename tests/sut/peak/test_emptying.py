"""Servers without work between two runs, by what real servers' metrics say."""

import pytest

from harness.record.settled import ServerInfo
from sut.client.endpoint import Access
from sut.peak import emptying
from sut.peak.emptying import empty_servers, requests_in
from tests.runs import ROOT
from tests.stub import StubServer

PAGES = ROOT / "tests/data/metrics"


@pytest.mark.parametrize(
    ("page", "requests"),
    [("sglang_busy1.txt", 121), ("sglang_after.txt", 0), ("vllm_busy1.txt", 58), ("vllm_after.txt", 0)],
)
def test_requests_of_recorded_pages(page, requests):
    assert requests_in((PAGES / page).read_bytes()) == requests


def test_a_page_without_them():
    assert requests_in(b"process_cpu_seconds_total 5\n") is None


def test_it_waits_for_the_end_of_the_work(monkeypatch):
    """Two busy pages, different from each other, then idle ones."""
    monkeypatch.setattr(emptying, "_QUIET_S", 0.06)
    monkeypatch.setattr(emptying, "_UNKNOWN_S", 0.0)
    busy, idle = (PAGES / f"sglang_{name}.txt" for name in ("busy1", "after"))
    pages = [busy.read_bytes(), busy.read_bytes() + b"sglang:more 1\n", idle.read_bytes()]
    with StubServer(metrics=lambda: pages.pop(0) if len(pages) > 1 else pages[0]) as stub:
        server = ServerInfo(url=stub.url, wire="sglang", engine="SGLang")
        assert empty_servers([server], Access()) == ()
        assert len(pages) == 1
    assert "not reachable" in empty_servers([server], Access())[0]
