"""What pages of metrics say of a run: recorded ones of SGLang and vLLM, and made-up ones for sums."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.analysis.server_load import cache_warnings, read_samples, server_load
from harness.config.scenario import Scenario
from harness.errors import DatasetError
from harness.record import server_metrics
from harness.record.server_metrics import MetricsWriter, values_of
from tests.kit import DATA

REPLICAS = ["http://a:1", "http://b:2"]
SECOND = 10**9


def load_of(folder, *rounds, scenario=Scenario.SERVER, waiting=1.0, output_tokens=0):
    """The load of rounds of pages, each a page of the first server or one of each server."""
    path = folder / "server_metrics.parquet"
    with path.open("wb") as file:
        writer = MetricsWriter(file, REPLICAS)
        for number, pages in enumerate(rounds):
            for replica, page in enumerate([pages] if isinstance(pages, str) else pages):
                writer.add((900 + number * 5) * SECOND, replica, page.encode())
        writer.close()
    samples = read_samples(path)
    return server_load(samples, {}, scenario, output_tokens, waiting=waiting), samples


def recorded(engine):
    busy, after = ((DATA / f"metrics/{engine}_{moment}.txt").read_text() for moment in ("busy1", "after"))
    return busy, busy, busy, busy, busy, after


def steps(**counts):
    """Decoding steps with and without a graph, as SGLang counts them, and a prefill."""
    modes = {"graph": "decode_cuda_graph", "plain": "decode_none"}
    name = 'sglang:cuda_graph_passes_total{dp_rank="0",engine_type="unified",mode="%s",tp_rank="0"} %s'
    return "\n".join(name % one for one in [("prefill_none", 9), *((modes[k], n) for k, n in counts.items())])


# Counted in the recorded pages by hand.
RECORDED = {
    "sglang": {
        "running": (89 * 5 / 6, 89, 5 / 6),
        "queued": (32 * 5 / 6, 32, 5 / 6),
        "kv_use": (0.04 * 5 / 6, 0.04, 0),
        "kv_tokens": (65536, 65536, 1),
    },
    "vllm": {
        "running": (16 * 5 / 6, 16, 5 / 6),
        "queued": (42 * 5 / 6, 42, 5 / 6),
        "kv_use": (0.0004882961516159412 * 5 / 6, 0.0004882961516159412, 0),
    },
}
COUNTED = {
    "sglang": {
        "prompt_tokens": 6406 - 6,
        "output_tokens": 9608 - 8,
        "cached_tokens": 39,
        "plain_steps": 125 - 9,
    },
    "vllm": {"prompt_tokens": 3600 - 1920, "output_tokens": 10800 - 5115, "cached_tokens": 0},
}


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_recorded_pages(tmp_path, engine):
    load, samples = load_of(tmp_path, *recorded(engine))
    assert (load.rounds, load.servers) == (6, 1)
    for key, figures in RECORDED[engine].items():
        level = load.levels[key]
        assert (level.mean, level.max, level.share) == pytest.approx(figures)
    assert COUNTED[engine].items() <= load.counts.items()
    assert samples.times_ns.tolist() == [(900 + number * 5) * SECOND for number in range(6)]
    assert bool(cache_warnings(load)) is (engine == "sglang")
    assert len(load.notes) == 1  # requests waited


TWO_CACHES = "sglang:full_token_usage %s\nsglang:swa_token_usage 0.1"
KV, PREEMPTED, WAITING = "vllm:kv_cache_usage_perc", "vllm:num_preemptions_total", "vllm:num_requests_waiting"


def preempted(*engines):
    return "\n".join(f'{PREEMPTED}{{engine="{number}"}} {count}' for number, count in enumerate(engines))


@pytest.mark.parametrize(
    ("rounds", "key", "increase"),
    [
        ([f"{PREEMPTED} 5", f"{PREEMPTED} 9"], "retractions", 4),
        (["other 1", "sglang:cached_tokens_total 7"], "cached_tokens", 7),  # no value before its first event
        ([(f"{PREEMPTED} 1",) * 2, (f"{PREEMPTED} 4",) * 2], "retractions", 6),
        ([preempted(1, 1), preempted(2, 3)], "retractions", 3),
    ],
)
def test_counts(tmp_path, rounds, key, increase):
    load, _ = load_of(tmp_path, *rounds)
    assert load.counts[key] == increase


def test_counts_over_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(server_metrics, "_BATCH_ROWS", 3)
    monkeypatch.setattr(server_metrics, "_GROUP_ROWS", 4)
    pages = (f"{PREEMPTED} {n}\nvllm:num_requests_running {n}\nx 1" for n in range(20))
    load, samples = load_of(tmp_path, *((page, page) for page in pages))
    assert load.counts == {"retractions": 38}
    assert samples.levels["running"].total.tolist() == [2 * n for n in range(20)]
    assert samples.levels["running"].highest.tolist() == list(range(20))
    assert samples.levels["running"].mean.tolist() == list(range(20))


@pytest.mark.parametrize(
    ("page", "total"),
    [
        # Ranks of one replica say the same; data-parallel ranks add up.
        ("\n".join(f'sglang:num_queue_reqs{{tp_rank="{rank}"}} 3' for rank in range(4)), 3),
        ("\n".join(f'sglang:num_queue_reqs{{dp_rank="{rank}",tp_rank="{rank}"}} 3' for rank in range(4)), 12),
    ],
)
def test_ranks(tmp_path, page, total):
    _, samples = load_of(tmp_path, page)
    assert samples.levels["queued"].total.tolist() == [total]


def test_the_first_name_counts(tmp_path):
    load, _ = load_of(tmp_path, "sglang:full_token_usage 0.2\nsglang:token_usage 0.5")
    assert load.levels["kv_use"].max == 0.5


DRAFTED = "vllm:spec_decode_num_draft_tokens_total %d\nvllm:spec_decode_num_accepted_tokens_total %d"


@pytest.mark.parametrize(
    ("rounds", "scenario", "words"),
    [
        (
            [f"{KV} 0.99"] * 5 + [f"{KV} 0.5"] * 5,
            Scenario.SERVER,
            ["KV cache at least 95% full for 50% of the run: lower --max-running-requests"],
        ),
        ([f"{TWO_CACHES % 0.99}"] * 10, Scenario.SERVER, ["95% full for 100% of the run: "]),
        (
            [f"{TWO_CACHES % 0.8}\nsglang:num_retracted_reqs 3"] * 10,
            Scenario.SERVER,
            ["--mem-fraction-static"],
        ),
        ([f"{KV} 0.99\n{PREEMPTED} {n}" for n in range(11)], Scenario.SERVER, ["100%", "10 requests"]),
        (["sglang:num_retracted_reqs 3"] * 10, Scenario.SERVER, ["--mem-fraction-static"]),
        ([f"{KV} 0.8\n{PREEMPTED} {n}" for n in range(11)], Scenario.SERVER, ["10", "--max-num-seqs"]),
        # vLLM 0.33 after POST /pause?mode=keep, as its page had it.
        (
            [f"{KV} 0.0025940733054597986\n{PREEMPTED} {16 * (n > 3)}" for n in range(11)],
            Scenario.SERVER,
            ["16 requests", "not for lack of it, at most 0.3% was in use", "/pause"],
        ),
        ([f"{WAITING} 4"] * 10, Scenario.SERVER, ["100%", "4.0"]),
        ([f"{WAITING} 4"] * 10, Scenario.OFFLINE, None),
        ([f"{WAITING} 0"] * 8 + [f"{WAITING} 4"] * 2, Scenario.OFFLINE, [" 80%", "--max-concurrency"]),
        ([f"{WAITING} 0"] * 10, Scenario.SERVER, None),
        ([f"{WAITING} 4"] * 5, Scenario.SERVER, None),  # too short
        ([steps(plain=n) for n in range(10)], Scenario.SERVER, None),  # has none at all
        ([steps(graph=3 * n, plain=n) for n in range(10)], Scenario.SERVER, ["25%", "-max-bs-decode"]),
        ([steps(graph=99 * n, plain=n) for n in range(10)], Scenario.SERVER, None),
        (["sglang:spec_accept_length 2.5"] * 10, Scenario.SERVER, ["2.50"]),
        (['gpu_slowed{gpu="0"} 1\ngpu_slowed{gpu="1"} 0'] * 10, Scenario.SERVER, ["50%"]),
        (["gpu_slowed 0\ngpu_power_limited 1"] * 10, Scenario.SERVER, ["100%", "power limit"]),
        (["gpu_slowed 0\ngpu_power_limited 0.01"] * 10, Scenario.SERVER, None),
        ([DRAFTED % (704 * n, 420 * n) for n in range(10)], Scenario.INTERACTIVE, ["60% of the drafted"]),
    ],
)
def test_notes(tmp_path, rounds, scenario, words):
    load, _ = load_of(tmp_path, *rounds, scenario=scenario)
    assert len(load.notes) == (words is not None)
    for word in words or ():
        assert word in load.notes[0]


@pytest.mark.parametrize(
    ("engine", "renamed", "lacking"),
    [
        ("sglang", "num_retracted_reqs", " of requests retracted at once"),
        ("vllm", "num_preemptions_total", " of requests that lost their KV cache and were computed again"),
        ("vllm", "prefix_cache_hits_total", " of prompt tokens taken from the prefix cache"),
        ("sglang", "sglang:", None),  # the other server has all names: this one had no request
    ],
)
def test_renamed_metrics_are_noted(tmp_path, engine, renamed, lacking):
    """Also in a short run; the second server is of the known version."""
    page = recorded(engine)[-1]
    load, _ = load_of(tmp_path, (page.replace(renamed, "new_name"), page), output_tokens=9)
    said = [note.partition(": ")[0] for note in load.notes]
    assert said == ([f"the metrics of http://a:1 have no known name{lacking}"] if lacking else [])
    load, _ = load_of(tmp_path, (f"{PREEMPTED} 0", page), output_tokens=9)
    assert load.notes == ()  # the first one had no request


@pytest.mark.parametrize("output_tokens", [0, 9])
def test_pages_without_a_known_name_are_noted_after_an_answer(tmp_path, output_tokens):
    load, _ = load_of(tmp_path, ("other:a 1", "other:b 1"), output_tokens=output_tokens)
    said = [note.partition(": ")[0] for note in load.notes]
    assert said == (["the metrics of http://a:1 and 1 more have no known name"] if output_tokens else [])


def test_servers_without_metrics_are_named(tmp_path):
    without = {"http://b:1": "HTTP 404"}
    _, samples = load_of(tmp_path, f"{WAITING} 0")
    assert server_load(samples, without, Scenario.SERVER, 9).without == without


def test_a_higher_concurrency_is_advised_only_where_queries_wait_for_it(tmp_path):
    rounds = [f"{WAITING} 0"] * 10
    for waiting, noted in ((0.9, 1), (0.2, 0), (0.0, 0)):
        load, _ = load_of(tmp_path, *rounds, scenario=Scenario.OFFLINE, waiting=waiting)
        assert len(load.notes) == noted


@pytest.mark.parametrize(
    ("rounds", "taken"),
    [
        (["sglang:cache_hit_rate 0.1"] * 2, "prompt tokens"),
        (["sglang:cache_hit_rate 0.0"] * 2, ""),
        (["sglang:cached_tokens_total 9\nsglang:cache_hit_rate 0.1"] * 2, ""),  # hits of before the run
        (["vllm:prefix_cache_hits_total 0", "vllm:prefix_cache_hits_total 5"], "5 prompt tokens,"),
        (["vllm:num_requests_running 1"] * 2, ""),
    ],
)
def test_prefix_caches(tmp_path, rounds, taken):
    load, _ = load_of(tmp_path, *rounds)
    said = [warning.partition(" from their prefix caches: ")[0] for warning in cache_warnings(load)]
    assert said == ([f"the servers took {taken}"] if taken else [])


def test_energy_is_of_no_token_where_none_came(tmp_path):
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION %d"
    for output_tokens, found in ((0, None), (8, 0.5)):
        load, _ = load_of(tmp_path, energy % 1000, energy % 5000, output_tokens=output_tokens)
        assert load.gpus_j_per_token == found


def test_a_cache_outside_of_the_engine(tmp_path):
    """The page of vLLM 0.33.0 with a KV connector and --no-enable-prefix-caching, asked twice the same."""
    page = """vllm:prefix_cache_hits_total{{engine="0"}} 0.0
vllm:external_prefix_cache_hits_total{{engine="0"}} {}
vllm:prompt_tokens_total{{engine="0"}} {}"""
    load, _ = load_of(tmp_path, page.format("0.0", "0.0"), page.format("11904.0", "23430.0"))
    (warning,) = cache_warnings(load)
    assert "a KV connector brought the servers the KV cache of 11,904 prompt tokens, 50.8% of all" in warning


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"a 1", [(b"a", 1.0)]),
        (b'a{b="}"} 1e3', [(b'a{b="}"}', 1000.0)]),
        (b"a 2 1700000000000", [(b"a", 2.0)]),
        (b"# HELP a b", []),
        (b"a", []),
        (b"a x", []),
        (b"", []),
        (b"a" * 2000 + b" 1", []),
    ],
)
def test_lines(line, found):
    assert list(values_of(b"\n" + line + b"\n")) == found


def test_the_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(server_metrics, "_MOST_OTHER_ROWS", 3)
    monkeypatch.setattr(server_metrics, "_MOST_ROWS", 8)
    path = tmp_path / "m.parquet"
    with path.open("wb") as file:
        writer = MetricsWriter(file, REPLICAS)
        for number in range(10):
            writer.add(number, 0, b"other 1\nvllm:num_requests_running 2\n")
        writer.close()
    assert writer.full
    assert read_samples(path).levels["running"].total.tolist() == [2.0] * 5


def test_damaged_files(tmp_path):
    path = tmp_path / "m.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(DatasetError):
        read_samples(path)
    with pytest.raises(FileNotFoundError):
        read_samples(tmp_path / "none")
    load_of(tmp_path, recorded("vllm")[0])
    whole = pq.read_table(path := tmp_path / "server_metrics.parquet")
    pq.write_table(whole.set_column(1, "replica", pa.nulls(len(whole))), path)  # as another tool may write it
    with pytest.raises(DatasetError, match="other names or types"):
        read_samples(path)


def test_pages_of_several_servers_at_one_address_count_nothing(tmp_path):
    """Behind a balancer: a page of one server, then of another. Neither is a count of the run."""
    busy, *_, after = recorded("vllm")
    load, _ = load_of(tmp_path, after, busy, after, busy, after)
    assert load.counts == {}
    assert load.levels["running"].max == 16
    for pages, named in (
        ((after, busy), "http://a:1"),
        (((after, after), (busy, busy)), "http://a:1 and 1 more"),
    ):
        (warning,) = cache_warnings(load_of(tmp_path, *pages)[0])
        assert warning.startswith(f"counts in the metrics of {named} fell: it was restarted, or several ")
    once, _ = load_of(tmp_path, after, busy, busy)  # or after a restart
    assert (once.counts, once.fell) == ({}, load.fell)
    rises, _ = load_of(tmp_path, busy, after, after)
    assert rises.counts["output_tokens"] > 0 and not (rises.fell or cache_warnings(rises))
