"""Warnings of a run that follow from what its servers did."""

import numpy as np
import pytest
from msgspec.structs import replace

from harness.analysis.equal_lengths import equally_long
from harness.analysis.replicas import replica_balance
from harness.analysis.run_warnings import (
    length_warning,
    names_same_answers,
    rule_warnings,
    run_warnings,
)
from harness.config.benchmark import load_benchmark
from harness.config.scenario import Scenario
from harness.record.journal import FINISH_REASONS
from harness.record.replica_figures import Straggler
from harness.record.run_events import RunEvent
from harness.record.run_record import Distribution, EncodedAnswers, ServerLoad
from harness.record.settled import Router
from tests.records import ENDED, NEAR, REPLICAS, rows, with_plan

LENGTHS = "answers of other lengths"
ENCODED = EncodedAnswers(tokenizer="o200k_harmony", tokenizer_sha256="0" * 64)

# What vLLM 0.33.0's front end in Rust counted in 64 greedy queries by ngram. Before the first draft its page
# is that of a server without speculative decoding.
COUNTS = {"draft_tokens": 704.0, "accepted_tokens": 420.0}


@pytest.mark.parametrize(
    ("scenario", "counts", "settings", "warned"),
    [
        (Scenario.OFFLINE, COUNTS, {}, True),
        (Scenario.OFFLINE, COUNTS, {"speculative_algorithm": "EAGLE3"}, False),  # a deviation before the run
        (Scenario.INTERACTIVE, COUNTS, {}, False),  # allowed
        (Scenario.OFFLINE, COUNTS | {"draft_tokens": 0.0}, {}, False),
    ],
)
def test_drafted_tokens_of_a_server_that_does_not_report_its_options(scenario, counts, settings, warned):
    load = ServerLoad(rounds=13, servers=1, counts=counts)
    record = replace(
        with_plan(ENDED, scenario=scenario, benchmark=load_benchmark("gpt-oss-120b")),
        servers=tuple(replace(server, settings=settings) for server in ENDED.servers),
        server_load=load,
    )
    found = list(rule_warnings(record))
    assert len(found) == warned
    assert all("drafted 704 tokens" in line and "gpt-oss-120b in interactive" in line for line in found)


# A run of 16 answers of 64 tokens from SGLang 0.5.23, with and without another client of 16 answers of 16.
ALONE, BESIDE = 1024.0, 1280.0


@pytest.mark.parametrize(
    ("counted", "changes", "router", "warned"),
    [
        (BESIDE, {}, None, True),
        (ALONE, {}, None, False),
        (ALONE + 16, {}, None, False),  # a trial request that was counted late
        (BESIDE, {"retries": 1}, None, False),  # the failed attempt had tokens
        (BESIDE, {"queries": 17}, None, False),  # so had the query that failed
        (BESIDE, {"unanswered": 1}, None, False),  # and the one without an outcome
        (BESIDE, {"encoded": ENCODED}, None, False),  # ids of encoded text are not the servers' tokens
        (BESIDE, {}, Router("nginx"), False),  # two names may lead to one page
    ],
)
def test_servers_that_another_client_asked(counted, changes, router, warned):
    figures = {"queries": 16, "completed": 16, "retries": 0, "output_tokens": 1024} | changes
    unanswered, encoded = figures.pop("unanswered", 0), figures.pop("encoded", None)
    record = replace(
        ENDED,
        statistics=replace(ENDED.statistics, **figures),
        unanswered=unanswered,
        encoded=encoded,
        servers=tuple(replace(server, router=router) for server in ENDED.servers),
        server_load=ServerLoad(rounds=13, servers=1, counts={"output_tokens": counted}),
    )
    found = [line for line in run_warnings(record, rows()) if "another client" in line]
    assert len(found) == warned
    assert all("256 output tokens more than the 1,024" in line for line in found)
    # Through HAProxy the first reading was 0 of one server, the second 3348 of the other.
    assert all("name the servers themselves" in line for line in found)


@pytest.mark.parametrize(
    ("mean", "completed", "changes", "warned"),
    [
        (1150.37, 6396, {}, True),
        (1406.03, 6396, {}, True),
        (1278.2, 6396, {}, False),
        (600.0, 6395, {}, False),  # fewer than the dataset: chance
        (600.0, 6396, {"deviations": ("made up",)}, False),
        (9999.0, 6396, {"mode": "accuracy"}, False),  # other prompts
    ],
)
def test_answers_of_a_length_that_test09_refuses(mean, completed, changes, warned):
    """Both bounds are those of the official audit.config, 1150.38 and 1406.02."""
    deviations = changes.pop("deviations", ())
    record = with_plan(ENDED, benchmark=load_benchmark("gpt-oss-120b"), **changes)
    statistics = replace(ENDED.statistics, osl_mean=mean, completed=completed)
    record = replace(record, statistics=statistics, deviations=deviations)
    assert bool(length_warning(record)) == warned
    assert [line for line in run_warnings(record, rows()) if "TEST09" in line] == (
        [length_warning(record)] if warned else []
    )
    if warned:
        assert f"{mean:.2f} tokens" in length_warning(record) and "1150.38 to 1406.02" in length_warning(
            record
        )


@pytest.mark.parametrize(
    ("lengths", "finish", "changes", "warned"),
    [
        ("of the sample", "stop", {}, True),
        ("random", "stop", {}, False),
        ("of the sample", "length", {}, False),  # the limit ended them all
        ("of the sample", "stop", {"temperature": 0.0}, False),
        ("of the sample", "stop", {"seed": 42}, False),
    ],
)
def test_answers_that_are_the_same_each_time(lengths, finish, changes, warned):
    """Three passes over 300 samples, by a server that draws its answers, a greedy one or a cache."""
    made = rows()
    made["sample_index"] = np.random.default_rng(3).permutation(900) % 300
    if lengths == "of the sample":
        made["osl"] = 2 + made["sample_index"]
    made["finish"] = FINISH_REASONS.index(finish)
    parameters = replace(ENDED.plan.client.parameters, **{"temperature": 1.0, "seed": None} | changes)
    found = [*filter(names_same_answers, run_warnings(with_plan(ENDED, parameters=parameters), made))]
    assert len(found) == warned
    assert all(line.startswith("600 of 600 answers to samples that were asked again") for line in found)


@pytest.mark.parametrize(
    ("answers", "equal", "found"), [(99, 99, None), (100, 51, (51, 100)), (100, 50, None)]
)
def test_how_many_answers_say_that_they_are_the_same(answers, equal, found):
    prompts, lengths = np.repeat(np.arange(answers), 2), np.arange(2 * answers)
    lengths[1 : 2 * equal : 2] -= 1  # as long as the one before
    assert equally_long(prompts, lengths) == found


# Half of the replicas waited for the other's last answer, and all first tokens came late through a proxy.
IDLE, HELD_BACK = "had nothing to do", "a proxy between holds tokens back"


@pytest.mark.parametrize(
    ("scenario", "mode", "said"),
    [
        (Scenario.OFFLINE, "performance", {IDLE, HELD_BACK, LENGTHS}),
        (Scenario.SERVER, "performance", {HELD_BACK, LENGTHS}),
        (Scenario.OFFLINE, "accuracy", set()),
    ],
)
def test_what_is_a_warning_where_times_matter(scenario, mode, said):
    made = rows()
    made["last_byte_ns"][0] += 10**12
    made["osl"][made["replica"] == 1] *= 3
    load = ServerLoad(
        rounds=13, servers=2, counts={"ttft_count": ENDED.statistics.completed, "ttft_seconds": 0.1}
    )
    record = replace(
        with_plan(ENDED, scenario=scenario, mode=mode),
        balance=replica_balance(made, REPLICAS, None),
        server_load=load,
    )
    text = "\n".join(run_warnings(record, made))
    assert {words for words in (IDLE, HELD_BACK, LENGTHS) if words in text} == said


URL = "http://replica0:30000"
STOOD = RunEvent(at_s=38.0, kind="rank_stands", server=URL, rank=1, text="stands")
SILENCE = RunEvent(at_s=6.0, kind="silence", server=URL, text="nothing arrives")
DRAFTED = ServerLoad(rounds=13, servers=1, counts=COUNTS)
SLOW = Straggler(url=URL, ratio=1.3, from_s=5.0, to_s=80.0)
# What a run was, and how its own warning begins; the sentences are tested with their functions.
OF_A_RUN = {
    "retried requests": ({"statistics": replace(ENDED.statistics, retries=3)}, "3 requests were retried"),
    "an earlier attempt": ({"statistics": replace(ENDED.statistics, resumed=5)}, "resumed: 5 of "),
    "answers of text": ({"encoded": ENCODED}, "answers came as text"),
    "a late issue": ({"schedule_lag_mean_ns": 1e9}, "LoadGen issued its queries 1000 ms behind"),
    "a rank that stood": ({"events": (STOOD,)}, f"dp_rank 1 of {URL} showed no sign of life"),
    "silence": ({"events": (SILENCE,)}, "from 0:06 on"),
    "a slow replica": (
        {"balance": replica_balance(rows(), REPLICAS, (SLOW,))},
        "1 of 3 replicas had a median TPOT above 1.1 x",
    ),
    "lost packets": ({"network": {URL: replace(NEAR, gaps=9000)}}, "the network loses packets"),
    "drafted tokens": ({"server_load": DRAFTED}, "the servers drafted"),
}


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_run_has_the_warning(name):
    changes, begin = OF_A_RUN[name]

    def warned(record):
        return [line for line in run_warnings(record, rows()) if line.startswith(begin)]

    assert len(warned(replace(ENDED, **changes))) == 1
    assert warned(ENDED) == []


def test_a_rank_that_a_reason_names_is_no_warning():
    named = replace(ENDED.verdict, reasons=(f"ended early: dp_rank 1 of {URL} stands since 0:38",))
    for verdict, warned in ((ENDED.verdict, True), (named, False)):
        found = run_warnings(replace(ENDED, events=(STOOD,), verdict=verdict), rows())
        assert any("no sign of life" in line for line in found) is warned


def test_no_core_mends_what_a_suspended_client_was_late():
    """Of a laptop that slept for 20 s: "give it more cores or workers" was said."""
    share = Distribution(count=549, min=0, mean=3e8, max=2e10, percentiles={"99": 19 * 10**9})
    late = replace(ENDED, client_share=share, schedule_lag_mean_ns=2882e6)
    slept = RunEvent(at_s=20.1, kind="suspended", server="", text="the machine was suspended for 19.9 s")
    for record, remedy in ((late, "core"), (replace(late, events=(slept,)), "it was suspended meanwhile")):
        found = [line for line in run_warnings(record, rows()) if "of the TTFT limit)" in line]
        assert [remedy in line.rpartition(": ")[2] for line in found] == [True, True]


def test_a_lag_by_a_clock_that_was_set_is_no_lag():
    stepped = RunEvent(at_s=11.0, kind="clock_set", text="the wall clock was stepped, by 3600000 ms in all")
    for events, warned in (((), True), ((stepped,), False)):
        found = run_warnings(replace(ENDED, schedule_lag_mean_ns=1.27e12, events=events), rows())
        assert any("behind its schedule" in line for line in found) is warned
