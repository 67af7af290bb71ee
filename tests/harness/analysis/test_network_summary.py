"""The network's line of the summary and its warning."""

import re

import pytest
from msgspec import structs

from harness.analysis.network_summary import clump_text, first_token_line, held_back_warnings, network_line
from harness.analysis.run_warnings import network_warnings
from harness.record.run_record import Distribution, EncodedAnswers, ServerLoad
from tests.records import ENDED, NEAR, rows

FAR = structs.replace(
    NEAR, connect_mean_ns=40.3e6, connect_max_ns=1_043_000_000, waited=7, rtt_min_ns=40_000_000
)
NONE = structs.replace(
    NEAR, sent=0, received=0, connects=0, connect_mean_ns=None, connect_max_ns=None, rtt_min_ns=None
)


def test_line():
    assert network_line({}) == network_line({"a": NONE}) == ""
    assert network_line({"a": structs.replace(NONE, rtt_min_ns=40_000)}) == ""  # no connection was made
    assert network_line({"a": FAR, "b": NONE}) == (
        "round trip 40.00 ms, connecting 40.30 ms (at most 1043), 7 queries waited for it, "
        "0 of 5,000 segments sent again, 0 of 90,000 received after a gap"
    )
    assert "round trip 0.200 to 40.00 ms, connecting 20.30 ms" in network_line({"a": FAR, "b": NEAR})


@pytest.mark.parametrize(
    ("again", "gaps", "numbers"),
    [
        (0, 0, ()),
        (5, 90, ()),  # one in a thousand: not seen in a p99
        (6, 0, ("6 retransmissions in 5000",)),
        (0, 91, ("91 of 90000",)),
        (50, 900, ("50 retransmissions in 5000", "900 of 90000")),
    ],
)
def test_warning(again, gaps, numbers):
    texts = list(network_warnings({"http://a": structs.replace(NEAR, retransmitted=again, gaps=gaps)}))
    assert len(texts) == bool(numbers)
    assert all(number in texts[0] and "servers, most at" not in texts[0] for number in numbers)


def test_where_the_first_token_was():
    def of(mean_ms, count=80):
        return Distribution(count=count, mean=mean_ms * 1e6, min=0, max=0, percentiles={})

    stats = structs.replace(
        ENDED.statistics, queries=80, ttft=of(43.0), issue_delay=of(1.5), latency=of(200.0)
    )
    network = {"a": structs.replace(FAR, waited_mean_ns=8_000_000.0), "b": NONE}
    text = first_token_line(structs.replace(ENDED, statistics=stats, network=network))
    # 7 of 80 queries waited 8 ms: 0.7 ms each; a round trip is 40 ms at a, and nothing went to b.
    assert [float(number) for number in re.findall(r"([\d.]+) ms", text)] == [43.0, 1.5, 0.7, 40.0, 1.5]
    assert first_token_line(structs.replace(ENDED, statistics=structs.replace(stats, ttft=None))) == ""


@pytest.mark.parametrize(
    ("here_ms", "there_s", "count", "warned"),
    [
        # Measured with vLLM 0.33.0: behind a proxy that passes streams on in pieces of 4 KiB, without it, and
        # without it where requests waited in the server's queue.
        (13943.77, 9.5745, 25, True),
        (106.85, 2.3763, 25, False),
        (5149.30, 127.925, 25, False),
        (13943.77, 9.5745, 15, False),  # of other requests than the run's
        (13943.77, 0.0, 0, False),
    ],
)
def test_first_tokens_that_something_holds_back(here_ms, there_s, count, warned):
    def of(mean_ms):
        return Distribution(count=25, mean=mean_ms * 1e6, min=0, max=0, percentiles={})

    stats = structs.replace(ENDED.statistics, completed=25, ttft=of(here_ms + 1.2), issue_delay=of(1.2))
    load = ServerLoad(rounds=5, servers=1, counts={"ttft_seconds": there_s, "ttft_count": float(count)})
    record = structs.replace(ENDED, statistics=stats, server_load=load)
    texts = list(held_back_warnings(record))
    assert len(texts) == warned
    assert all(re.search("383.0 ms .* came after 13944 ms: a proxy", text) for text in texts)
    as_text = EncodedAnswers(tokenizer="o200k_harmony", tokenizer_sha256="")
    for changes in ({"ttft": None}, {"issue_delay": None}, {"completed": 0}):
        other = structs.replace(record, statistics=structs.replace(stats, **changes))
        assert not list(held_back_warnings(other))
    assert not list(held_back_warnings(structs.replace(record, encoded=as_text)))


@pytest.mark.parametrize(
    ("osl", "first", "pace_ms", "said"),
    [
        # Answers with 20 ms between tokens, through proxies: tokens of the first event, and the mean time of
        # those that follow. TTFT was 102 ms, and through the first two 309 and 575 ms.
        (40, [10, 11], 21.2, "20 of 20 answers came in pieces, the first one with 10 tokens"),  # HAProxy 2.8
        (120, [22, 22], 21.2, "20 of 20 answers came in pieces, the first one with 22 tokens"),  # nginx 1.22
        (40, [40, 40], 0.0, "20 of 20 answers came in one event"),
        (40, [40, 1], 20.0, ""),  # half of them
        (40, [1, 2], 21.0, ""),  # nginx 1.22 before servers that send chunks
        (60, [1, 1], 26.7, ""),  # llama.cpp itself
        (40, [12, 12], 0.4, ""),  # so fast that a read finds many
        (1, [1, 1], 0.0, ""),
    ],
)
def test_answers_that_come_in_pieces(osl, first, pace_ms, said):
    made = rows(20)
    made["osl"], made["first_event_tokens"] = osl, first * 10
    made["last_byte_ns"] = made["first_token_ns"] + (
        (osl - made["first_event_tokens"]) * pace_ms * 1e6
    ).astype(int)
    text = clump_text(made)
    assert text.startswith(said) if said else not text
    assert ("proxy_buffering off" in text) == bool(said)
    assert clump_text(made[:0]) == ""


def test_the_worst_server_is_named():
    lossy = structs.replace(NEAR, retransmitted=500, gaps=500)
    (text,) = network_warnings({"http://a": NEAR, "http://b": lossy, "http://c": NEAR})
    assert "1 of 3 servers, most at http://b" in text
