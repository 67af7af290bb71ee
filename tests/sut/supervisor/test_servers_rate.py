"""Tokens a second of recorded pages of SGLang and vLLM, counted by hand."""

import pytest

from harness.progress.progress_line import ProgressSnapshot, plain_progress
from sut.supervisor.servers_rate import ServersRate
from tests.kit import DATA


def page(name):
    return (DATA / "metrics" / f"{name}.txt").read_bytes()


def rate(*names, url="a"):
    made = ServersRate(lambda: 5.0)
    for number, name in enumerate(names):
        made.page(url, page(name), 5.0 * number)
    return made()


@pytest.mark.parametrize(
    ("names", "tokens"),
    [
        (("sglang_dp2_busy1", "sglang_dp2_busy2"), 1212 + 1123 - 984 - 895),
        (("sglang_dp2_dead1", "sglang_dp2_dead2"), 0),  # gen_throughput stays at 44 there
        (("vllm_busy1", "vllm_after"), 10800 - 5115),
        (("vllm_after", "vllm_busy1"), 0),  # restarted
        (("sglang_dp2_busy1",), 0),
    ],
)
def test_the_rate_between_two_pages(names, tokens):
    assert rate(*names) == tokens / 5


def test_all_servers_together():
    made = ServersRate(lambda: 4.0)
    for moment, name in enumerate(("sglang_dp2_busy1", "sglang_dp2_busy2")):
        for url in ("a", "b"):
            made.page(url, page(name), 4.0 * moment)
    assert made() == 2 * 456 / 4


@pytest.mark.parametrize(
    ("between_s", "after_s", "known"), [(5.0, 14.9, True), (5.0, 15.0, False), (9.0, 26.0, True)]
)
def test_a_server_whose_page_is_not_read_any_more_makes_nothing_that_is_known(between_s, after_s, known):
    """The line of a stopped server said for ever what it had made before."""
    made = ServersRate(lambda: between_s + after_s)
    for moment, name in enumerate(("sglang_dp2_busy1", "sglang_dp2_busy2")):
        made.page("a", page(name), between_s * moment)
    assert (made() is not None) is known


def test_pages_without_the_count():
    made = ServersRate()
    made.page("a", b"llamacpp:tokens_predicted_total 5\n", 1.0)
    assert made() is None


@pytest.mark.parametrize(
    ("received", "made", "shown"),
    [
        (0.0, 18270.9, "0 tok/s received, the servers make 18271"),
        (0.0, 0.0, "0 tok/s"),
        (0.0, None, "0 tok/s"),
        (250.0, 18270.9, "250 tok/s"),
    ],
)
def test_the_progress_says_what_the_servers_make_while_nothing_arrives(received, made, shown):
    seen = ProgressSnapshot(10.0, 512, 0, 0, tokens_per_s=received, servers_tokens_per_s=made)
    assert plain_progress(seen).endswith(f"512 in flight, {shown}")
