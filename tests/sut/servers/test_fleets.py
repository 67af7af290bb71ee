"""Many servers: which are used, which are waited for, and every difference between them."""

import io
import logging
import re
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.errors import ServerError
from sut.servers import discovery, info_client
from sut.servers.discovery import fault_table
from sut.servers.info_client import InfoClient, NotReadyError
from sut.servers.naming import DuplicateError
from sut.servers.server_checks import check_alike, replica_warnings, with_differences
from tests.kit import PATIENCE_S, listening, wait_until
from tests.stub import Facts, StubServer, refused_url
from tests.sut.pages import facts, find, pages


@contextmanager
def fleet(**kinds):
    """Servers by kind: how many of each. The URLs, in the order of the kinds, and the stubs by kind."""
    with ExitStack() as stack:
        stubs = {
            kind: [stack.enter_context(FLEET[kind]()) for _ in range(count)] for kind, count in kinds.items()
        }
        yield [getattr(stub, "url", stub) for of_kind in stubs.values() for stub in of_kind], stubs


FLEET = {
    "good": StubServer,
    "refused": refused_url,
    "silent": lambda: listening(lambda connection: connection.recv(1 << 20) and time.sleep(20)),
    "starting": lambda: StubServer(healthy=False),
    "llama": lambda: StubServer(facts=Facts(served_name="llama")),
    "locked": lambda: StubServer(api_key="right"),
}

# Servers by kind, seconds of --wait-for-servers, --min-replicas; how many are used or the error, and lines of
# the table.
FLEETS = [
    ({"good": 3}, 0, None, 3, 0),
    ({"good": 3}, 0, 3, 3, 0),
    ({"good": 3, "refused": 1}, 0, None, NotReadyError, 0),
    ({"good": 3, "refused": 1}, 0, 4, "--min-replicas 4", 0),
    ({"good": 3, "refused": 1}, 0, 3, 3, 0),
    ({"good": 2, "refused": 2, "silent": 2, "starting": 1}, 0, None, "5 of 7", 4),
    ({"good": 2, "refused": 2, "silent": 2, "starting": 1}, 0, 2, 2, 4),
    ({"good": 2, "refused": 2, "silent": 2, "starting": 1}, 0, 3, "--min-replicas 3", 4),
    ({"good": 2, "locked": 2}, 0, None, "401", 2),
    ({"good": 2, "locked": 2}, 60, None, "401", 2),  # not an error of a server that starts
    ({"good": 2, "locked": 1, "starting": 1}, 60, None, "401", 3),
    ({"silent": 2, "locked": 2}, 60, None, "401", 2),  # silent so far: nothing is said about them
    ({"good": 2, "starting": 2}, 0.1, None, "503", 2),
    ({"good": 2, "starting": 2}, 0.1, 2, 2, 2),
    ({"good": 2, "llama": 1}, 0, 2, "llama", 0),
]


@pytest.mark.parametrize(("kinds", "wait", "least", "expected", "lines"), FLEETS)
def test_fleets(kinds, wait, least, expected, lines, caplog, monkeypatch):
    def client(url, access, within_s, *rest):
        """Only servers that never answer are meant to be late, and only where nobody waits for them."""
        return InfoClient(
            url, access, 0.3 if url in stubs.get("silent", ()) and not wait else within_s, *rest
        )

    monkeypatch.setattr(discovery, "InfoClient", client)
    with fleet(**kinds) as (urls, stubs), caplog.at_level("WARNING", "mlperf"):
        if not isinstance(expected, int):
            kind, words = (ServerError, expected) if isinstance(expected, str) else (expected, None)
            with pytest.raises(kind, match=words) as caught:
                find(urls, wait, least)
            assert "\n" not in str(caught.value)
        else:
            found = find(urls, wait, least)
            assert [fact.url for fact in found.found] == urls[:expected]
            assert list(found.left_out) == urls[expected:]
            assert len(found.warnings) == bool(found.left_out)
    # Where waiting cannot help, not all who would be in the table need have answered.
    assert len(caplog.messages) == lines or (wait > 1 and len(caplog.messages) < lines)


def test_a_server_named_twice_is_in_the_table_with_those_that_do_not_answer(caplog):
    with fleet(good=1, refused=2) as (urls, _), caplog.at_level("WARNING", "mlperf"):
        with pytest.raises(ServerError, match=r"^2 of 5\b.*\b2 "):
            find([*urls, urls[0], urls[0].replace("127.0.0.1", "localhost")], least=1)
        assert len(caplog.messages) == 3
        with pytest.raises(DuplicateError, match=f"^{urls[0]}: named twice by --server-url, as {urls[0]}"):
            find([urls[0]] * 2)
        with pytest.raises(DuplicateError, match=r"^1 server of 2 named twice; the first: http"):
            find([urls[0]] * 2, least=1)
        with pytest.raises(DuplicateError, match=r"^2 servers of 3 named twice; the first: http"):
            find([urls[0]] * 3)


def test_the_table_is_bounded():
    urls = [f"http://h{number}:1" for number in range(512)]
    faults = [(url, ServerError(f"{url}: reason {url}")) for url in urls]
    lines = fault_table(faults, 600)
    assert len(lines) == 22
    assert lines[0].startswith("512 of 600 servers")
    assert lines[-1].split() == ["and", "492", "more"]
    assert fault_table([*faults, faults[7]], 600)[1].split()[0] == "2"  # the most frequent first
    (_, row) = fault_table([(url, ServerError(f"{url}: refused; start it")) for url in urls], 600)
    assert row.split() == ["512", "http://h[0-511]:1", "refused"]


def test_servers_that_become_ready_are_waited_for(caplog, monkeypatch, notices_at_once):
    monkeypatch.setattr(discovery, "_PAUSE_S", 0.1)

    def notices():
        return [text for text in caplog.messages if text.startswith("waiting for")]

    with fleet(good=1, starting=2) as (urls, stubs), caplog.at_level("INFO", "mlperf"):

        def begin():
            wait_until(lambda: any("503" in text for text in notices()))
            for stub in stubs["starting"]:
                stub.options = replace(stub.options, healthy=True)

        threading.Thread(target=begin, daemon=True).start()
        found = find(urls, wait=PATIENCE_S)
    assert len(found.found) == 3
    assert any(re.match(r"waiting for [23] of 3 servers.*/health answered 503", one) for one in notices())


def test_a_wait_that_lasts_is_said_where_only_warnings_are(caplog, monkeypatch):
    """As in the checks of a campaign, before which its servers load a model for minutes."""
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(info_client, "time", SimpleNamespace(monotonic=lambda: now.s))
    with caplog.at_level("WARNING", "mlperf"), info_client.WaitNotices() as notices:
        for second in range(301):
            now.s = float(second)
            notices.tick("1 of 1 servers")
    waits = [int(re.search(r"\((\d+) s so far\)", text)[1]) for text in caplog.messages]
    assert waits == [12, 22, 32, 42, 52, 62, 122, 182, 242]


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
def test_a_wait_is_a_line_of_a_terminal_that_is_cleared(monkeypatch, level):
    """With ``--log-level error`` there is none, though other readers take warnings then, too."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setLevel(level)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    now, terminal = SimpleNamespace(s=0.0), io.StringIO()
    monkeypatch.setattr(info_client, "time", SimpleNamespace(monotonic=lambda: now.s))
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    with info_client.WaitNotices() as notices:
        for now.s in (1.75, 2.0, 2.25, 2.5, 2.75):
            notices.tick("one of two servers")
    drawn = ["waiting 2 s for one of two se", "waiting 2 s for one of two se", " " * 29, ""]
    assert terminal.getvalue() == ("".join(f"\r{line}" for line in drawn) if level == logging.WARNING else "")


def test_every_difference_between_replicas_is_named():
    def pages_of(**changed):
        info = {"version": "1", "schedule_policy": "fcfs", "cuda_graph_max_bs": 256, "random_seed": 1}
        info |= {"quantization": None}
        return {"/health": b"", "/model_info": {"model_path": "m"}, "/server_info": info | changed}

    secrets = ("api_key", "admin_api_key", "watermark_key_b", "ssl_keyfile_password", "launch_command")
    secret = dict.fromkeys(secrets, "sglang --api-key sk-secret") | {"startup_time": 1.5, "base_gpu_id": 3}
    secret |= {"random_seed": 5, "host": "h", "nccl_port": 7, "node_rank": 2}
    tables = [
        pages_of(),
        pages_of(**secret, max_total_num_tokens=7),
        pages_of(cuda_graph_max_bs=128, schedule_policy="lpm", max_total_num_tokens=7),
        pages_of(context_length=4096, max_total_num_tokens=7, quantization="fp8"),  # the others have none
    ]
    with ExitStack() as stack:
        urls = [stack.enter_context(pages(table)) for table in tables]
        found = find(urls).found
    texts = list(replica_warnings(found))
    assert "sk-secret" not in str(found) + str(texts)
    assert [text.split(":")[0] for text in texts] == [
        "replicas differ in context length",
        "replicas differ in schedule policy",
        "replicas differ in quantization",
        "replicas differ in cuda graph max bs",
        "replicas differ in max total num tokens",
    ]
    assert f"128 at {urls[2]}" in texts[3] and "256 at " in texts[3]
    assert found[0].differs == {"cuda_graph_max_bs": 256}
    assert found[2].differs == {"cuda_graph_max_bs": 128, "max_total_num_tokens": 7}
    assert found[3].differs == {"cuda_graph_max_bs": 256, "max_total_num_tokens": 7}  # its context is a fact


@pytest.mark.parametrize(
    ("values", "is_named"),
    [
        (["a", "b"], True),
        (["a", "b", "c"], False),  # the name of each
        ([None, "b", "c"], False),
        (["a", "a", "c"], True),
        ([1, 2, 3], True),
    ],
)
def test_names_of_replicas_are_no_difference(values, is_named):
    answers = [(facts(f"http://n{n}:1"), {"x": value}) for n, value in enumerate(values)]
    assert [one.differs for one in with_differences(answers)] == [
        {"x": value} if is_named else {} for value in values
    ]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (
            {"model": "b"},
            "http://n[0,2]:1 serves a (x without a version), http://n1:1 b (x without a version)",
        ),
        (
            {"model": None, "version": "2"},
            "http://n[0,2]:1 serves a (x without a version), http://n1:1 a model without a name (x 2)",
        ),
        ({"revision": "0" * 40}, ""),
        ({"revision": "main"}, ""),
    ],
)
def test_what_replicas_must_have_alike(others, said):
    """A branch may be any revision. The most frequent model is named first."""
    of = {"model": "a", "revision": "0" * 40}
    replicas = [facts("http://n1:1", **of | others), facts("http://n0:1", **of), facts("http://n2:1", **of)]
    with pytest.raises(ServerError) if said else nullcontext() as caught:
        check_alike(replicas)
    if caught:
        assert str(caught.value).startswith(f"replicas differ: {said}; one run needs equal replicas: ")


def test_a_difference_in_a_fact_that_is_also_an_option_is_told_once():
    ranks = [facts(f"http://a:{size}", dp_size=size, settings={"dp_size": size}) for size in (1, 8)]
    assert list(replica_warnings(ranks)) == ["replicas differ in dp size: 1 at http://a:1, 8 at http://a:8"]


def test_measured_values_of_many_replicas_are_a_range():
    many = [facts(f"http://n{n}:1", differs={"max_total_num_tokens": 1000 + n}) for n in range(64)]
    (text,) = replica_warnings(many)
    assert "64 values from 1000 at http://n0:1 to 1063 at http://n63:1" in text
    (text,) = replica_warnings([facts("http://a:1", differs={"max_total_num_tokens": "auto"}), *many])
    assert "auto at http://a:1, 1000 at http://n0:1, " in text and " other values" in text
