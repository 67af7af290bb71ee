"""Data-parallel ranks that listen at a port each: one URL stands for all of a machine.

SGLang 0.5.23's do so with its Rust server and data-parallel attention.
"""

from contextlib import ExitStack

import pytest

from harness.config.server_urls import at_port
from harness.errors import ServerError
from harness.record.settled import RankListener, ServerInfo, running_limit
from sut.client.endpoint import Access
from sut.servers import discovery
from sut.servers.info_pages import ask_server
from sut.servers.rank_listeners import missing_rank_warnings, unnamed_ranks
from sut.servers.scrape import MetricsScraper
from tests.kit import free_ports
from tests.stub import Facts, StubServer
from tests.sut.pages import fact_of, find

# Recorded of SGLang 0.5.23 with --tp 2 --attn-dp-size 2 --max-running-requests 128, rank 1.
RANK_1 = {
    "version": "0.5.23",
    "frontend": "rust",
    "dp_size": 1,
    "attn_dp_size": 2,
    "enable_dp_attention": True,
    "max_running_requests": 128,
    "internal_states": [{"effective_max_running_requests_per_dp": 64}],
    "deployment_info": {"node_rank": 0, "nnodes": 1, "dp_size": 2, "dp_rank": 1, "dist_init_addr": None},
}


@pytest.mark.parametrize(
    ("info", "listener", "at_once"),
    [
        (RANK_1, RankListener(1, 2, 2), 64),
        (RANK_1 | {"internal_states": []}, RankListener(1, 2, 2), 64),
        # 16 ranks on two machines: each has eight.
        ({"deployment_info": {"nnodes": 2, "dp_size": 16, "dp_rank": 9}}, RankListener(9, 16, 8), None),
        ({"deployment_info": {"dp_size": 4, "dp_rank": 3}}, RankListener(3, 4, 4), None),
        # Without data-parallel attention there is one.
        ({"dp_size": 1, "deployment_info": {"nnodes": 1, "dp_size": 1, "dp_rank": 0}}, None, None),
        ({"dp_size": 2, "deployment_info": None}, None, None),
        ({"deployment_info": {"dp_size": 2, "dp_rank": 2}}, None, None),
        ({"deployment_info": {"dp_rank": 0}}, None, None),
        ({"deployment_info": {"dp_size": 2, "dp_rank": None}}, None, None),
        ({"deployment_info": {"dp_size": 2**31 - 1, "dp_rank": 0}}, None, None),
    ],
)
def test_the_place_of_a_rank(info, listener, at_once):
    fact = fact_of({"/model_info": {"model_path": "m"}, "/server_info": info})
    assert (fact.listener, fact.max_running_requests) == (listener, at_once)
    assert listener is None or fact.dp_size == 1
    assert fact.version == ("0.5.23 (Rust server)" if "frontend" in info else None)


@pytest.mark.parametrize(("workers", "listener"), [(1, RankListener(1, 2, 2)), (2, None)])
def test_a_gateway_to_several_ranks_is_no_rank(workers, listener):
    table = {
        "/model_info": {"model_path": "m"},
        "/server_info": RANK_1,
        "/workers": {"workers": [{}] * workers},
    }
    assert fact_of(table).listener == listener


def rank_of(rank, of):
    """The facts of a rank's listener."""
    place = {"node_rank": 0, "nnodes": 1, "dp_size": of, "dp_rank": rank}
    return Facts(info={"attn_dp_size": of, "enable_dp_attention": True, "deployment_info": place})


@pytest.fixture
def ranks():
    """Starts ranks of one machine, those of ``numbers`` out of ``of``; the URL of the first port."""
    with ExitStack() as stack:

        def start(of, *numbers):
            port = free_ports(of)
            for number in numbers:
                stack.enter_context(StubServer(port=port + number, facts=rank_of(number, of)))
            return f"http://127.0.0.1:{port}"

        yield start


def beside(url, offset):
    return at_port(url, int(url.rpartition(":")[2]) + offset)


def test_the_first_rank_stands_for_those_beside_it(ranks, caplog):
    caplog.set_level("INFO", logger="mlperf")
    first = ranks(3, 0, 1, 2)
    servers = find([first])
    assert [one.url for one in servers.found] == [first, beside(first, 1), beside(first, 2)]
    assert [one.listener.rank for one in servers.found] == [0, 1, 2]
    assert servers.warnings == ()
    assert running_limit(servers.found) == 3 * (512 // 3)
    (line,) = [record.message for record in caplog.records if record.name == "mlperf"]
    port = int(first[-5:])
    assert line == (
        "data-parallel ranks listen at a port each: "
        f"beside {first}, the first of its machine, also http://127.0.0.1:{port + 1}-{port + 2}"
    )


def test_two_servers_that_are_named_by_their_first_ranks(ranks):
    one, other = ranks(2, 0, 1), ranks(2, 0, 1)
    found = find([one, other]).found
    assert [server.url for server in found] == [one, beside(one, 1), other, beside(other, 1)]


def test_named_ranks_are_those_that_are_used(ranks):
    """Whoever names several, or another than the first, knows of them; those that get nothing are told."""
    first = ranks(3, 0, 1, 2)
    for named, missing in (([0, 1], "2"), ([1], "0, 2"), ([0, 1, 2], "")):
        servers = find([beside(first, offset) for offset in named])
        assert len(servers.found) == len(named)
        assert len(servers.warnings) == bool(missing)
        assert all(f"and no URL leads to {missing}: " in line for line in servers.warnings)


def test_the_first_rank_under_another_name_is_not_asked_twice(ranks):
    first = ranks(2, 0, 1)
    other_name = first.replace("127.0.0.1", "localhost")
    found = find([other_name, beside(first, 1)]).found
    assert [one.listener.rank for one in found] == [0, 1]


@pytest.mark.parametrize(
    "other",
    [None, Facts(), rank_of(0, 2), rank_of(1, 3)],
    ids=["nothing listens", "another server", "another first rank", "a rank of another"],
)
def test_what_listens_at_the_next_port_need_not_be_a_rank(other):
    port = free_ports(2)
    first = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(StubServer(port=port, facts=rank_of(0, 2)))
        if other is not None:
            stack.enter_context(StubServer(port=port + 1, facts=other))
        servers = find([first])
    assert [one.url for one in servers.found] == [first]
    (warning,) = servers.warnings
    reason = "another server answers" if other else "not reachable ([Errno 111] Connection refused)"
    assert warning == (
        f"{beside(first, 1)}: 1 further data-parallel rank expected here, {reason}: unless the server hands "
        "requests on, they stand idle; publish these ports, or name with --server-url where they listen"
    )


def test_closed_ports_of_a_machine_are_one_warning(ranks):
    first = ranks(4, 0)
    (warning,) = find([first]).warnings
    port = int(first[-5:])
    assert warning.startswith(
        f"http://127.0.0.1:{port + 1}-{port + 3}: 3 further data-parallel ranks expected here, not reachable"
    )


class Questions(discovery._Asking):
    """Those to the named servers, then those to the ranks beside."""

    def __init__(self, urls, until, **more):
        self.until = until
        everything.append(self)
        super().__init__(urls, until=until, **more)


everything: list[Questions] = []


@pytest.fixture
def questions(monkeypatch):
    everything.clear()
    monkeypatch.setattr(discovery, "_Asking", Questions)
    return everything


def test_a_rank_is_not_waited_for_as_long_as_a_server(ranks, questions):
    find([ranks(2, 0)], wait=60, seconds=1)
    servers, beside = questions
    assert beside.until < servers.until


def test_another_service_beside_a_rank_ends_no_question(ranks, questions, monkeypatch):
    """The rank of the other machine answers last, unless all questions are ended before."""
    one, other = ranks(2, 0), ranks(2, 0, 1)

    def asked(client, backend, model):
        if client.url == beside(one, 1):
            raise ServerError("no SGLang server")
        if client.url == beside(other, 1) and questions[-1]._ended.wait(1):
            raise ServerError("the questions have ended")
        return ask_server(client, backend)

    monkeypatch.setattr(discovery, "ask_server", asked)
    found = find([one, other], wait=30).found
    assert [server.url for server in found] == [one, other, beside(other, 1)]


def listening(url, rank, of, here):
    return ServerInfo(url=url, wire="sglang", engine="SGLang", listener=RankListener(rank, of, here))


def test_ranks_of_two_machines():
    """Each machine's first rank has its server's port; the second machine must be named."""
    one, other = listening("http://a:30000", 0, 4, 2), listening("http://b:30000", 2, 4, 2)
    assert unnamed_ranks([one, other]) == {
        "http://a:30000": ("http://a:30001",),
        "http://b:30000": ("http://b:30001",),
    }
    another = [listening(f"http://c:{rank + 1}", rank, 3, 3) for rank in range(3)]
    (warning,) = missing_rank_warnings([one, *another])
    assert warning.startswith(
        "http://a:30000: each is one of 4 data-parallel ranks of its server, and no URL leads to 2, 3: "
    )  # 1 is asked for


def test_ranks_of_two_servers_are_counted():
    servers = [
        listening("http://a:1", 0, 2, 2),
        listening("http://a:2", 1, 2, 2),
        listening("http://b:1", 0, 2, 2),
    ]
    assert unnamed_ranks(servers) == {"http://b:1": ("http://b:2",)}
    assert not [*missing_rank_warnings(servers)]  # it is asked for
    (warning,) = missing_rank_warnings([*servers[:2], listening("http://b:2", 1, 2, 2)])
    assert "and fewer URLs lead to 0 than to others: " in warning


def test_ranks_named_by_two_hosts_of_a_machine_are_used_once():
    servers = [listening("http://node:1", 0, 3, 3), listening("http://node-ib:2", 1, 3, 3)]
    assert unnamed_ranks(servers) == {"http://node:1": ("http://node:3",)}
    assert unnamed_ranks([*servers, listening("http://node-ib:3", 2, 3, 3)]) == {}


def test_ports_end():
    assert unnamed_ranks([listening("http://a:65534", 0, 4, 4)]) == {"http://a:65534": ("http://a:65535",)}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a:1", "http://a:7"),
        ("http://a", "http://a:7"),
        ("http://a:", "http://a:7"),
        ("http://a:030000", "http://a:7"),
        ("https://[::1]:1/path", "https://[::1]:7/path"),
        ("http://a:1#10.0.0.1", "http://a:7#10.0.0.1"),
    ],
)
def test_the_url_of_another_port(url, expected):
    assert at_port(url, 7) == expected


def test_one_rank_of_a_machine_tells_the_metrics_of_all(ranks, tmp_path):
    """Each of its ranks has a page with those of all."""
    first = ranks(2, 0, 1)
    servers = find([first]).found
    scraper = MetricsScraper(servers, tmp_path, Access())
    scraper.start()
    assert list(scraper.stop().without) == [first]  # the stub has no metrics
