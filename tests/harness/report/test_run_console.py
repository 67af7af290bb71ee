"""What people see of a run on the terminal: its plan and the closing summary."""

from itertools import takewhile
from pathlib import Path

import pytest
from msgspec import structs

from harness.analysis.statistics import statistics
from harness.config.benchmark import load_benchmark
from harness.config.plans import ComplianceSettings
from harness.config.scenario import Scenario
from harness.dataset.published import other_than_published
from harness.loadgen_logs.summary_and_detail import parse_summary
from harness.record.replica_figures import RankFigures
from harness.record.run_record import Diagnosis, RunVerdict, ServerLoad
from harness.record.settled import Router, ServerInfo
from harness.report.run_console import render_plan, render_summary, served_by
from tests.records import NEAR, rows_with, started

# The evidence that a run kept of a proxy that allowed 4 requests at once in front of a vLLM.
BUSY = 'HTTP 429: {"error":"busy"'
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\nOK \u202etxt\x9b31m\ud800"


def ended(scenario="offline", **changes):
    times = {"issued_ns": 1_000_000, "sent_ns": 1_500_000}
    times |= {"first_token_ns": 21_000_000, "last_byte_ns": 1_001_000_000}
    rows = rows_with(3, isl=100, osl=50, failure=[0, 0, 5], **times)
    record = structs.replace(
        started(scenario=Scenario(scenario)),
        verdict=RunVerdict("INVALID", ("1 of 3 queries failed",)),
        statistics=statistics(rows),
        loadgen=parse_summary(
            "Result is : INVALID\n  Min queries satisfied : NO\nNo warnings encountered\n2 ERRORS encountered"
        ),
        deviations=("min_duration 10000 ms, the rules say 600000",),
        warnings=("client overhead p99 41 ms",),
        files={"run record": "out/run.json"},
    )
    return structs.replace(record, **changes)


@pytest.mark.parametrize(
    ("router", "most", "guessed"),
    [
        (None, None, False),
        (Router("nginx"), None, True),
        (Router("nginx"), 64, False),
        (Router("SMG", servers=2), None, False),
    ],
)
def test_the_number_in_flight_behind_a_router_that_lists_no_servers_is_a_guess(router, most, guessed):
    record = started(scenario=Scenario.OFFLINE)
    client = structs.replace(record.plan.client, max_concurrency=most)
    record = structs.replace(
        record,
        plan=structs.replace(record.plan, client=client),
        servers=tuple(structs.replace(server, router=router) for server in record.servers),
        settled=structs.replace(record.settled, concurrency=32),
    )
    (line,) = [line for line in render_plan(record).splitlines() if line.startswith("requests ")]
    assert ("a guess: it is that of one server" in line) is guessed


@pytest.mark.parametrize(
    ("scenario", "asked", "follows"), [("server", None, True), ("server", 3, False), ("offline", None, False)]
)
def test_the_workers_of_a_search_are_not_those_of_the_conf_files_rate(scenario, asked, follows):
    record = started(scenario=Scenario(scenario), num_workers=asked)
    (line,) = [one for one in render_plan(record, searched=True).splitlines() if one.startswith("client ")]
    assert ("the rate of each run" in line) is follows
    assert (str(record.settled.placement) in line) is not follows


def test_summary():
    assert render_summary(ended()) == (Path(__file__).parent / "summary.txt").read_text()


def test_queries_without_an_answer_are_among_the_queries_of_a_summary():
    """Of 132 queries that were issued until a Ctrl-C it named the 111 with an answer alone."""
    cut = structs.replace(ended(), unanswered=21, statistics=statistics(rows_with(111)))
    (line,) = [one for one in render_summary(cut).splitlines() if one.startswith("queries ")]
    assert line == "queries        132: 111 completed, 0 failed, 21 without an answer"


def test_a_server_without_a_version_is_named_without_a_gap():
    server = ServerInfo(url="http://a:1", wire="llamacpp", engine="llama.cpp", model="m")
    assert served_by(server) == "llama.cpp serves m"


def test_summary_of_nothing():
    verdict, nothing = RunVerdict("INTERRUPTED", ("SIGINT",)), statistics(rows_with(0))
    text = render_summary(structs.replace(started(), verdict=verdict, statistics=nothing))
    assert text.startswith(
        "gpt-oss-120b, offline, performance\n\nqueries        0: 0 completed, 0 failed\n\n"
    )
    assert text.endswith("\n\nResult: INTERRUPTED\n  - SIGINT\n")


def test_a_record_without_a_verdict_has_no_summary():
    with pytest.raises(ValueError):
        render_summary(started())


def test_incomplete_loadgen_summary_is_named():
    assert "LoadGen        its summary is empty" in render_summary(ended(loadgen=parse_summary("")))


def test_server_text_cannot_reach_the_terminal():
    record = ended(
        verdict=RunVerdict("INVALID", (HOSTILE,)),
        deviations=(HOSTILE,),
        warnings=(HOSTILE,),
        files={HOSTILE: HOSTILE},
        servers=(ServerInfo(url=HOSTILE, wire="openai", engine=HOSTILE, model=HOSTILE),),
    )
    texts = render_summary(record, None, (HOSTILE,), HOSTILE), render_plan(record)
    assert {c for text in texts for c in text if not c.isprintable()} == {"\n"}
    assert [text.count("owned") for text in texts] == [6, 5]


def test_the_command_that_follows_is_complete():
    """One that names 512 servers was cut in the middle of a URL."""
    urls = ",".join(f"http://node{number:03}:30000" for number in range(1, 513))
    command = f"Resume it with: ./mlperf run --server-url {urls} --resume"
    assert render_summary(ended(), 80, (), command).endswith(f"\n\n{command}\n")


def test_a_warning_is_complete():
    """Its remedy is the end of it: here the download of a file that is not the published one."""
    rule = load_benchmark("deepseek-r1").dataset(accuracy=True)
    text = other_than_published("deepseek-r1", rule, Path("/data") / rule.file, lambda *_: "0" * 32)
    record = ended(warnings=(text,), deviations=(text,), verdict=RunVerdict("INVALID", (text,)))
    assert text.endswith("in another form")
    assert f"WARNING   {text}\n" in f"{render_plan(record)}\n"
    assert f"DEVIATION {text}\n" in render_plan(record)
    assert render_summary(record).count(f"  - {text}\n") == 2


def table(text):
    """The latency table's cells by label, with its titles."""
    lines = text.split("\n\n")[2].splitlines()
    titles = lines[0].replace("p99 limit", "p99_limit").split()[1:]
    rows = {}
    for line in takewhile(lambda line: ": " not in line, lines[1:]):
        cells = [line[i : i + 10].strip() for i in range(14, 14 + 10 * len(titles), 10)]
        rows[line[:14].strip()] = dict(zip(titles, cells, strict=True))
    return titles, rows


def test_limits_stand_beside_the_figures():
    _, rows = table(render_summary(ended("server")))
    limits = {"TTFT": "3000", "TPOT": "80.00", "latency": "", "issue delay": ""}
    assert {name: row["p99_limit"] for name, row in rows.items()} == limits


def test_what_was_not_measured_is_a_dash():
    """Answers that were not streamed: no first token, so no TTFT and no TPOT."""
    rows = rows_with(3, issued_ns=1, sent_ns=2, last_byte_ns=1_000_001, osl=50)
    _, cells = table(render_summary(ended(statistics=statistics(rows))))
    assert set(cells["TTFT"].values()) == set(cells["TPOT"].values()) == {"-"}
    assert cells["latency"]["p99"] == "1.000"


@pytest.mark.parametrize("scenario", ["offline", "server"])
@pytest.mark.parametrize("width", [40, 60, 80, 100, 104, 150, None])
def test_a_narrow_terminal_loses_columns_and_no_line_wraps(width, scenario):
    lag = {"client_share": ended().statistics.ttft, "schedule_lag_mean_ns": 1e6}
    text = render_summary(ended(scenario, network={"http://a:1": NEAR}, **lag), width)
    titles, rows = table(text)
    blocks = text.split("\n\n")
    assert blocks[3].startswith("network ") and "\nfirst token " in blocks[3]
    assert max(map(len, [*blocks[2].splitlines(), *blocks[3].splitlines()])) <= (width or 110)
    assert "p99" in titles
    assert ("p99_limit" in titles) is (scenario == "server")
    assert len(rows) == 5 + ("mean" in titles), "the schedule lag is a mean"
    if width is None or width >= 104:
        assert len(titles) == 8 + (scenario == "server")


@pytest.mark.parametrize(("concurrency", "is_slot"), [(2, True), (3, False), (None, False)])
def test_the_wait_for_a_slot_is_not_the_clients_own_time(concurrency, is_slot):
    record = ended(client_share=ended().statistics.ttft)
    record = structs.replace(record, settled=structs.replace(record.settled, concurrency=concurrency))
    text = " ".join(render_summary(record).split())
    assert ("issue delay: the wait for a slot of --max-concurrency" in text) is is_slot
    assert ("LoadGen is called, this client's own time" in text) is is_slot
    assert text.count("client share: ") == 1


def test_loadgens_messages_ranks_and_diagnoses_are_shown():
    rank = RankFigures(
        server="http://a:1", rank=1, running=3.0, queued=0.0, kv_use=None, tokens_per_s=19.2, share=0.05
    )
    load = ServerLoad(rounds=9, servers=1, ranks=(rank,))
    text = render_summary(
        ended(loadgen_messages=("2 x too few",), server_load=load, diagnoses=(Diagnosis(28.0, "saturated"),))
    )
    assert "  - 2 x too few\n" in text
    assert "dp_rank 1 of http://a:1: 3.0 running, 0.0 queued, 19 tokens/s, 5% of all" in text
    assert "from 0:28 on saturated" in text


@pytest.mark.parametrize(("file", "named"), [(None, "the rules"), (Path("/mine.config"), "/mine.config")])
def test_the_audit_line_names_the_test_and_whose_settings_these_are(file, named):
    record = started(scenario=Scenario.OFFLINE)
    settings = {"mode": 2, "accuracy_log_sampling_target": 10000}
    dataset = record.plan.client.benchmark.dataset(accuracy=False)
    audit = ComplianceSettings(
        test="TEST07", dataset=dataset, settings=settings, text="", file=file, official=True
    )
    record = structs.replace(
        record,
        plan=structs.replace(record.plan, audit=audit),
        settled=structs.replace(record.settled, audit_settings=settings),
    )
    assert f"audit     settings of {named} (TEST07): mode 2" in render_plan(record)
    own = structs.replace(record.plan, audit=None, audit_config=Path("/my.config"))
    assert "audit     settings of /my.config (" in render_plan(structs.replace(record, plan=own))


def test_failed_queries_have_the_evidence_of_one():
    (kind,) = ended().statistics.failures
    text = render_summary(ended(failure_examples={kind: (BUSY, "HTTP 500: boom")}))
    assert f"Failed queries\n  {kind:<20} 1      {BUSY}\n" in text
    assert f"\n  {kind:<20} 1\n" in render_summary(ended())
