"""Figures of data-parallel ranks: made-up pages for sums, and the labels of recorded ones."""

import pytest

from harness.analysis.ranks import rank_lines
from harness.analysis.server_load import read_samples
from harness.record.server_metrics import MetricsWriter
from tests.kit import DATA

SERVERS = ["http://a:1", "http://b:2"]
SECOND = 10**9


def ranks_of(folder, *rounds):
    """Of a server_metrics.parquet of rounds five seconds apart, each a page of each server."""
    path = folder / "server_metrics.parquet"
    with path.open("wb") as file:
        writer = MetricsWriter(file, SERVERS)
        for number, pages in enumerate(rounds):
            for server, page in enumerate(pages):
                writer.add((900 + number * 5) * SECOND, server, page.encode())
        writer.close()
    return read_samples(path).ranks


def page(*ranks, tokens="sglang:realtime_tokens_total", others=""):
    """A page of SGLang's; each rank: requests running, queued, and output tokens so far."""
    lines = []
    for number, (running, queued, count) in enumerate(ranks):
        labels = f'dp_rank="{number}",engine_type="unified",tp_rank="0"'
        lines += [
            f"sglang:num_running_reqs{{{labels}}} {running}",
            f"sglang:num_queue_reqs{{{labels}}} {queued}",
            f'{tokens}{{{labels},mode="decode"}} {count}',
            f'{tokens}{{{labels},mode="prefill_compute"}} 77777',
        ]
    return "\n".join([*lines, others])


def test_the_figures_of_each_rank(tmp_path):
    rounds = [(page((4, 0, 100), (8, 2, 50)), page((1, 0, 0), (1, 0, 0)))]
    rounds += [(page((6, 2, 1100), (8, 4, 550)), page((1, 0, 250), (3, 0, 250)))]
    found = ranks_of(tmp_path, *rounds)
    assert [(one.server, one.rank) for one in found] == [(url, rank) for url in SERVERS for rank in (0, 1)]
    assert [one.running for one in found] == [5, 8, 1, 2]
    assert [one.queued for one in found] == [1, 3, 0, 0]
    assert [one.tokens_per_s for one in found] == [200, 100, 50, 50]
    assert [one.share for one in found] == [0.5, 0.25, 0.125, 0.125]
    assert found[1].name == "dp_rank 1 of http://a:1"


def test_a_rank_that_began_again_counts_from_nothing(tmp_path):
    pages = [page((1, 0, 0), (1, 0, count)) for count in (900, 1000, 400)]
    found = ranks_of(tmp_path, *((one,) for one in pages))
    assert [one.tokens_per_s for one in found] == [0, 50]


def test_processes_of_one_rank_report_the_same(tmp_path):
    others = "\n".join(f'sglang:num_running_reqs{{dp_rank="0",tp_rank="{n}"}} 4' for n in range(1, 4))
    found = ranks_of(tmp_path, (page((4, 0, 0), (2, 0, 0), others=others),))
    assert [one.running for one in found] == [4, 2]


def test_the_first_name_of_a_quantity_counts(tmp_path):
    """As for the figures of the servers, in whatever order a page has the names."""
    names = ("full_token_usage", 0.25), ("token_usage", 0.5)
    lines = [f'sglang:{name}{{dp_rank="{rank}"}} {value}' for name, value in names for rank in range(2)]
    assert [one.kv_use for one in ranks_of(tmp_path, ("\n".join(lines),))] == [0.5, 0.5]


def test_a_reported_rate_where_tokens_are_not_counted_by_rank(tmp_path):
    lines = "\n".join(f'sglang:gen_throughput{{dp_rank="{rank}"}} {10 + rank}' for rank in range(2))
    assert [one.tokens_per_s for one in ranks_of(tmp_path, (lines,), (lines,))] == [10, 11]


def test_the_engines_of_vllm_are_ranks(tmp_path):
    recorded = (DATA / "metrics/vllm_busy1.txt").read_text()
    two = "\n".join([recorded, recorded.replace('engine="0"', 'engine="1"')])
    found = ranks_of(tmp_path, (two,))
    assert [(one.rank, one.running, one.queued) for one in found] == [(0, 16, 42), (1, 16, 42)]


@pytest.mark.parametrize(
    ("earlier", "later", "rates", "shares"),
    [
        ("sglang_dp2_busy1", "sglang_dp2_busy2", [45.6, 45.6], [0.5, 0.5]),  # 228 tokens of each in 5 s
        ("sglang_dp2_idle1", "sglang_dp2_idle2", [0, 0], [None, None]),
        ("vllm_dp2_stopped1", "vllm_dp2_stopped2", [614.2, 0], [1, 0]),  # 3 071 tokens of the first
    ],
)
def test_the_tokens_of_recorded_ranks(tmp_path, earlier, later, rates, shares):
    """As SGLang's ``mode="decode"`` and vLLM's count of generated tokens have them."""
    found = ranks_of(tmp_path, *(((DATA / f"metrics/{name}.txt").read_text(),) for name in (earlier, later)))
    assert [one.tokens_per_s for one in found] == rates
    assert [one.share for one in found] == shares


def test_the_sixteen_ranks_with_the_fewest_tokens_are_lines(tmp_path):
    """Of ranks that report their rate alone, but for the first, which has not computed yet."""
    lines = ['sglang:num_queue_reqs{dp_rank="0"} 3']
    lines += [f'sglang:gen_throughput{{dp_rank="{rank}"}} {18 - rank}' for rank in range(1, 18)]
    shown = [*rank_lines(ranks_of(tmp_path, ("\n".join(lines),)))]
    assert len(shown) == 16
    assert shown[0] == "dp_rank 0 of http://a:1: 3.0 queued"
    assert shown[1] == "dp_rank 17 of http://a:1: 1 tokens/s, 1% of all"
    assert shown[15] == "dp_rank 3 of http://a:1: 15 tokens/s, 10% of all"


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_server_of_one_rank_is_not_listed(tmp_path, engine):
    assert ranks_of(tmp_path, ((DATA / f"metrics/{engine}_busy1.txt").read_text(),)) == ()
