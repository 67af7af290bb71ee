"""What a search says of its measurements: limit, boundary, confirmations, and evidence against it."""

import re
from pathlib import Path

import msgspec
import pytest

from harness.dataset.prompt_texts import PromptTexts
from harness.errors import ConfigError
from harness.peak.peak_options import rate, share
from harness.peak.search.conclusion import Conclusion, Spread, conclude
from harness.peak.search.policy import Ended, History, Policy
from harness.peak.search.search_console import (
    SearchConsole,
    conclusion_facts,
    conclusion_lines,
    outcome_text,
    probe_cells,
    probe_line,
    result_lines,
)
from harness.peak.search.search_page import peak_page
from harness.peak.search.search_state import (
    Identity,
    SearchState,
    earlier_search,
    identity_of,
    other_settings,
    read_state,
)
from harness.record.output_dir import aside_of
from harness.record.run_record import EncodedAnswers
from harness.record.settled import Router
from harness.report.html.page import Cell, render
from tests.harness.peak.search.searches import LIMITS_NS, probe, settings, step
from tests.records import ENDED, with_plan

LADDER = tuple(step(n, 15 + 0.6 * n) for n in (16, 64, 128))
MS = 1e6
PARAMETERS = {"max_new_tokens": 40, "temperature": 1.0}


def concluded(*probes, steps=(), outcome="FOUND"):
    policy, history = Policy(settings()), History(tuple(steps), tuple(probes))
    return conclude(policy, "gpt-oss-120b", history, Ended(outcome, "why"))


LATE = probe(20.0, ttft_p99_ns=2500 * MS)


def cut_by_queue(rate, **changes):
    return probe(rate, "INVALID", over_tpot=0, over_ttft=50, cut_after_s=20.0, **changes)


@pytest.mark.parametrize(
    ("probes", "binding", "boundary"),
    [
        ((probe(20.0, tpot_p99_ns=79 * MS), probe(20.4, "INVALID")), "TPOT", "smooth"),
        ((probe(20.0, tpot_p99_ns=50 * MS), cut_by_queue(20.4)), "TTFT", "cliff"),
        ((probe(20.0, ttft_p99_ns=2500 * MS), cut_by_queue(20.4)), "TTFT", "smooth"),
        ((probe(20.0, tpot_p99_ns=50 * MS, ttft_p99_ns=90 * MS),), "TPOT", None),
        ((cut_by_queue(20.4),), "TTFT", None),
        # by the runs that passed at the rate
        ((LATE, probe(19.0), cut_by_queue(20.4)), "TTFT", "smooth"),
        ((LATE, LATE, probe(20.0, "INVALID", ttft_p99_ns=9e7), cut_by_queue(20.4)), "TTFT", "smooth"),
        # not of a rate below one that passed, nor of a run that missed no limit
        ((cut_by_queue(19.0), probe(20.0), probe(20.4, "INVALID")), "TPOT", "smooth"),
        ((probe(20.0), probe(20.2, "INVALID", over_tpot=0), cut_by_queue(20.4)), "TTFT", "cliff"),
        ((), None, None),
    ],
)
def test_the_limit(probes, binding, boundary):
    found = concluded(*probes)
    assert (found.binding, found.boundary) == (binding, boundary)


def test_the_first_valid_run_is_the_one_to_submit_and_all_count():
    runs = [
        probe(20.0, tokens_per_s=tokens, folder=f"probe-0{number}")
        for number, tokens in enumerate((1000.0, 1100.0, 1050.0), start=1)
    ]
    others = (probe(19.0, folder="probe-00"), probe(20.0, "INVALID", tokens_per_s=9.0, folder="probe-04"))
    found = concluded(*others, *runs, probe(21.0, "INVALID"))
    assert (found.rate, found.valid, found.runs, found.lowest_invalid) == (20.0, 3, 4, 21.0)
    assert found.folder == "probe-01"
    assert found.tokens_per_s == Spread(mean=1050.0, lowest=1000.0, highest=1100.0, runs=3)
    assert found.conf_rows == ("gpt-oss-120b.Server.target_qps = 20",)
    assert any("INVALID in 1 of 4" in remark for remark in found.remarks)


def test_a_higher_rate_passed_only_where_it_did():
    ordered = [probe(rate, "VALID" if rate < 15 else "INVALID") for rate in (10.0, 12.0, 20.0, 25.0)]
    assert not any("although" in one for one in concluded(*ordered).remarks)
    (remark,) = (one for one in concluded(*ordered, probe(22.0)).remarks if "although" in one)
    assert remark.startswith("22 passed although 20 did not")


def test_the_margin_ends_at_a_rate_that_did_not_pass():
    """Whatever the replay says: here the first probe shows servers far from their limits."""
    valid = probe(10.0, tpot_p99_ns=20 * MS)
    free = concluded(valid, steps=LADDER)
    assert free.margin == pytest.approx(free.expected_peak / 10.0 - 1) and free.margin > 0.2
    stalled = probe(11.0, "INVALID", tpot_p99_ns=20 * MS, over_tpot=0, over_ttft=50)
    found = concluded(valid, stalled, steps=LADDER)
    assert found.expected_peak > found.lowest_invalid
    assert found.margin == pytest.approx(0.1)


def test_without_a_limit_there_is_no_margin():
    found = concluded(probe(10.0), probe(10.0), steps=LADDER, outcome="AT_LEAST")
    assert (found.rate, found.margin, found.binding) == (10.0, None, None)


def test_only_without_a_run_over_a_limit_no_limit_was_reached():
    bound = (probe(rate, "INVALID", client_bound=True) for rate in (21.0, 22.0))
    assert "no latency limit" in outcome_text(concluded(probe(20.0), outcome="AT_LEAST"))
    assert outcome_text(concluded(probe(20.0), *bound, outcome="AT_LEAST")) == "at least"


def test_one_valid_run_is_not_confirmed():
    assert not concluded(probe(20.0)).confirmed
    assert concluded(probe(20.0), probe(20.0)).confirmed


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({}, {}),
        (
            {"rate": 20.0, "valid": 1, "runs": 2},
            {"rate": "20 queries/s, VALID in 1 of 2 runs, not confirmed"},
        ),
        ({"rate": 20.0, "valid": 2, "runs": 2}, {"rate": "20 queries/s, VALID in 2 of 2 runs"}),
        ({"lowest_invalid": 20.5}, {"INVALID": "from 20.5 queries/s on"}),
        (
            {"rate": 20.0, "lowest_invalid": 20.5, "expected_peak": 20.25, "margin": 0.0125},
            {
                "INVALID": "from 20.5 queries/s on, 2.50 % above",
                "margin": "1.25 % of the rate: a replay puts the peak at 20.25",
            },
        ),
        (
            {"lowest_invalid": 20.5, "expected_peak": 21.0, "margin": 0.025},
            {"margin": "at most 2.50 % of the rate: a replay puts the peak at 21, where a run did not pass"},
        ),
        ({"expected_peak": 20.0, "margin": 0.0}, {"margin": "none: a replay puts the peak at 20"}),
        ({"margin": 0.1}, {}),
        ({"binding": "TPOT", "boundary": "smooth"}, {"limit": "TPOT: it grows smoothly with the rate"}),
        ({"binding": "TTFT"}, {"limit": "TTFT"}),
        (
            {"tokens_per_s": Spread(1050.0, 1000.0, 1100.0, 3)},
            {"tokens/s": "1050.0 completed in the mean of 3, 1000.0 to 1100.0 (10.0 % apart)"},
        ),
    ],
)
def test_the_facts_about_the_rate(fields, facts):
    found = dict(conclusion_facts(Conclusion(outcome="FOUND", why="why", **fields)))
    assert {name: found[name] for name in facts} == facts
    assert facts or not found


@pytest.mark.parametrize(("deviations", "run"), [(0, "submit    "), (2, "run       ")])
def test_a_run_that_deviates_is_not_named_as_one_to_submit(deviations, run):
    found = Conclusion(outcome="FOUND", why="why", folder="probe-01", deviations=deviations)
    last = list(conclusion_lines(found, Path("search")))[-1]
    why = " (NOT OFFICIAL, 2 deviations from the rules)" if deviations else ""
    assert last == f"{run}search/probe-01{why}"


@pytest.mark.parametrize(
    ("outcome", "resume"),
    [
        ("INTERRUPTED", "resume    what is measured is kept: "),
        ("ERROR", "resume    what is measured is kept: "),
        ("BUDGET", "resume    what is measured is kept; give a larger --budget: "),
        ("FOUND", None),
        ("STOPPED", None),
    ],
)
def test_a_search_that_can_continue_says_how(outcome, resume):
    found = Conclusion(outcome=outcome, why="why")
    state = SearchState(identity=identity_of(ENDED), limits_ns={}, tolerance=0.01, conclusion=found)
    lines = list(
        result_lines(state, Path("search"), ["/there/mlperf", "peak", "--restart", "--user-conf", "c"])
    )
    command = "/there/mlperf peak --user-conf c --resume"
    assert [line for line in lines if line.startswith("resume")] == ([resume + command] if resume else [])
    assert sum(line.startswith("search    ") and line.endswith(": why") for line in lines) == 1


SLOWER = [probe(20.0, tpot_p99_ns=tpot * MS) for tpot in (70, 73, 76)]


@pytest.mark.parametrize(
    ("probes", "steps", "words"),
    [
        ((probe(20.0), probe(19.0, "INVALID")), (), ["20 passed although 19 did not"]),
        (SLOWER, LADDER, ["slower with every complete run"]),
        (SLOWER[::-1], LADDER, []),
        ((probe(20.0), probe(20.0, "INVALID")), (), ["20 was VALID in 1", "VALID first and INVALID later"]),
        ((probe(20.0, "INVALID"), probe(20.0)), (), ["20 was VALID in 1"]),
        ((probe(20.0, client_bound=True),), (), ["client was a bottleneck"]),
        ((probe(20.0), probe(21.0, "INVALID")), LADDER, []),
    ],
)
def test_evidence_against_it(probes, steps, words):
    remarks = concluded(*probes, steps=steps).remarks
    assert len(remarks) == len(words)
    assert all(word in remark for word, remark in zip(words, remarks, strict=True))


PARTS = {"1%": 0.01, "0.02": 0.02, "0.5 %": 0.005}


def test_parts():
    assert {text: share(text) for text in PARTS} == PARTS


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((share, text) for text in ("50%", "1%%", "nan", "")),
        *((rate, text) for text in ("0", "inf", "many")),
    ],
)
def test_other_words_are_refused(read, text):
    with pytest.raises(Exception, match="is not a"):
        read(text)


@pytest.fixture
def state():
    identity = Identity(
        benchmark="gpt-oss-120b",
        scenario="server",
        dataset_sha256="ab",
        samples=640,
        servers=({"url": "http://a:1"},),
        parameters={},
        loadgen_settings={"min_duration_ms": 60000},
    )
    history = History(LADDER, (probe(20.0), cut_by_queue(21.0)))
    return SearchState(identity=identity, limits_ns=LIMITS_NS, tolerance=0.01, history=history)


def test_the_page_lists_every_run(state):
    runs = (probe(20.0, folder="probe-01", deviations=2), cut_by_queue(21.0, folder="probe-02"))
    found = concluded(*runs)
    page = peak_page(msgspec.structs.replace(state, history=History(LADDER, runs), conclusion=found))
    cells = [row for section in page.sections for table in section.tables for row in table.rows]
    texts = [tuple(cell if isinstance(cell, str) else cell.text for cell in row) for row in cells]
    for one in runs:
        (row,) = [row for row in texts if row[-1] == one.folder]
        assert [text.removesuffix(" so far") for text in row] == list(probe_cells(one))
    assert {cell.link for row in cells for cell in row if isinstance(cell, Cell)} >= {
        f"{one.folder}/report.html" for one in runs
    }
    assert [badge.status for badge in page.badges] == ["good", "warn", "warn"]  # not confirmed, not official
    (result,) = (one for one in page.sections if one.id == "result")
    assert result.links == {"the first VALID run at this rate": "probe-01/report.html"}
    clean = concluded(*(probe(20.0, folder="probe-01") for _ in range(2)))
    page_of_clean = peak_page(msgspec.structs.replace(state, conclusion=clean))
    assert [badge.status for badge in page_of_clean.badges] == ["good"]
    (result,) = (one for one in page_of_clean.sections if one.id == "result")
    assert result.links == {"the run that can be submitted": "probe-01/report.html"}
    assert found.conf_rows[0] in render(page)
    (table,) = (table for one in page.sections if one.id == "runs" for table in one.tables)
    assert {"TTFT p99, ms", "TPOT p99, ms"} < set(table.header)
    assert "Runs of at least 1m00s in the order" in render(page)  # as the conf file says


def test_a_run_that_was_ended_early_is_said_so_in_its_line():
    for one, begin in (
        (probe(20.0), "VALID: TTFT p99 "),
        (cut_by_queue(21.0), "INVALID, ended after 20s: "),
    ):
        assert probe_line(one, LIMITS_NS).startswith(begin)


def test_valid_invalid_and_cut_runs_differ_by_colour_and_shape(state):
    """A run that was cut for a limit is never drawn inside of it."""
    invalid = probe(23.0, verdict="INVALID", ttft_p99_ns=2 * LIMITS_NS["TTFT"])
    cut = msgspec.structs.replace(cut_by_queue(21.0), ttft_p99_ns=0.5 * LIMITS_NS["TTFT"], over_ttft=99)
    runs = (probe(20.0, ttft_p99_ns=0.25 * LIMITS_NS["TTFT"]), cut, invalid)
    page = peak_page(msgspec.structs.replace(state, history=History(LADDER, runs)))
    (section,) = [section for section in page.sections if section.id == "runs"]
    ttft, _ = section.charts
    assert ttft.x.tolist() == [20, 21, 23]
    drawn = {one.label: [value for value in one.values.tolist() if value == value] for one in ttft.series}
    assert drawn == {"VALID": [25], "INVALID, cut": [100], "INVALID": [200]}
    assert len({one.style for one in ttft.series}) == 3
    assert "at the limit" in ttft.note


def test_the_state_comes_back(tmp_path, state):
    state.write(tmp_path)
    assert read_state(tmp_path) == state


def client(**flags):
    return msgspec.structs.replace(ENDED.plan.client, **flags)


def test_a_repeated_search_is_continued_until_it_has_found_its_rate(tmp_path, state):
    asked = msgspec.structs.replace(state, history=History())
    assert earlier_search(tmp_path / "none", asked, client()) is None
    state.write(tmp_path)
    found = earlier_search(tmp_path, asked, client())
    assert (found.course, found.state) == ("continue", state)
    assert found.first_line.startswith("continues ") and "2 runs" in found.first_line
    concluded_at = msgspec.structs.replace(concluded(probe(20.0)), outcome="FOUND")
    msgspec.structs.replace(state, conclusion=concluded_at).write(tmp_path)
    assert earlier_search(tmp_path, asked, client()).course == "complete"
    limited = msgspec.structs.replace(concluded_at, outcome="AT_LEAST")  # the limit may be another now
    msgspec.structs.replace(state, conclusion=limited).write(tmp_path)
    assert earlier_search(tmp_path, asked, client()).course == "continue"
    msgspec.structs.replace(state, conclusion=concluded_at).write(tmp_path)
    finer = msgspec.structs.replace(asked, tolerance=0.005)
    assert earlier_search(tmp_path, finer, client()).course == "continue"
    again = earlier_search(tmp_path, asked, client(restart=True))
    assert again.course == "anew" and str(aside_of(tmp_path)) in again.first_line


def test_another_search_is_not_resumed(tmp_path, state):
    changes = {"dataset_sha256": "cd", "samples": 12, "parameters": {**PARAMETERS, "max_new_tokens": 7}}
    identity = msgspec.structs.replace(state.identity, parameters=PARAMETERS)
    before = msgspec.structs.replace(state, identity=identity)
    before.write(tmp_path)
    other = msgspec.structs.replace(before, identity=msgspec.structs.replace(identity, **changes))
    names = r"\(dataset_sha256: ab -> cd; samples: 640 -> 12; parameters\.max_new_tokens: 40 -> 7\)"
    found = earlier_search(tmp_path, other, client(dry_run=True))
    assert found.course == "anew" and re.search(f"would begin anew.*{names}", found.first_line)
    with pytest.raises(ConfigError, match=names):
        earlier_search(tmp_path, other, msgspec.structs.replace(client(), resume=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [("stream_interval", 500), ("api", "completions"), ("weight_version", "2"), ("revision", "ab" * 20)],
)
def test_a_search_is_not_resumed_on_servers_that_are_started_or_asked_otherwise(name, value):
    """Every time of a token follows from the first two."""
    servers = tuple(msgspec.structs.replace(one, **{name: value}) for one in ENDED.servers)
    before, now = (identity_of(one) for one in (ENDED, msgspec.structs.replace(ENDED, servers=servers)))
    assert other_settings(before, now).startswith(f"servers.0.{name}: ")
    more = msgspec.structs.replace(now, servers=now.servers * 2)
    assert other_settings(now, more).startswith("servers.number: 1 -> 2; servers.1: none -> {")


def with_texts(sha256, *, prompts):
    if not prompts:
        encoded = EncodedAnswers(tokenizer="tokenizer.json", tokenizer_sha256=sha256)
        return msgspec.structs.replace(ENDED, encoded=encoded)
    texts = PromptTexts(prompts=4, messages=False, tokenizer_sha256=sha256)
    return msgspec.structs.replace(ENDED, settled=msgspec.structs.replace(ENDED.settled, prompts=texts))


@pytest.mark.parametrize("prompts", [True, False])
def test_a_search_is_not_resumed_with_another_tokenizer_of_texts(prompts):
    """The ids of an answer, and with them its TPOT, are those of its text."""
    before, now = (identity_of(with_texts(sha256, prompts=prompts)) for sha256 in "ab")
    assert other_settings(before, now) == "tokenizer_sha256: a -> b"


OF_ONE = {"version": "0.5.22", "max_running_requests": 500, "settings": {"page_size": 64}}


@pytest.mark.parametrize(
    ("router", "changes", "named"),
    [
        (Router("SMG", servers=8), OF_ONE, ""),  # another of its servers has answered
        (Router("SMG", servers=8), {**OF_ONE, "router": Router("SMG", servers=4)}, "servers_behind: 8 -> 4"),
        (Router("SMG", servers=8), {"model": "other"}, "model: "),
        (None, {"router": Router("nginx")}, "router: none -> nginx"),
        *((None, {name: value}, f"{name}") for name, value in OF_ONE.items()),
    ],
)
def test_servers_of_several_versions_behind_a_router_are_one_search(router, changes, named):
    """Each start of the command read another of them, and began anew."""
    then = tuple(msgspec.structs.replace(one, router=router) for one in ENDED.servers)
    now = tuple(msgspec.structs.replace(one, **changes) for one in then)
    before, after = (identity_of(msgspec.structs.replace(ENDED, servers=one)) for one in (then, now))
    found = other_settings(before, after)
    assert found.startswith(f"servers.0.{named}") if named else found == ""


def test_many_differences_and_other_numbers_of_servers_are_short(state):
    one = {"url": "http://a", "model": "m", "settings": {str(n): n for n in range(30)}}
    many = msgspec.structs.replace(state.identity, servers=({**one, "settings": {}}, one))
    for servers in ((one,), (one, one)):
        text = other_settings(many, msgspec.structs.replace(many, servers=servers))
        assert 0 < len(text) < 600


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": 1', b"\xff", b'{"x":' + b"[" * 99_999])
def test_a_damaged_state_is_an_error(tmp_path, content):
    (tmp_path / "search.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"search\.json.*--restart"):
        read_state(tmp_path)


@pytest.mark.parametrize(("setting", "value"), [("server_target_qps", 7.0), ("min_duration_ms", 1)])
def test_a_search_goes_on_with_another_rate_alone(setting, value):
    """The conf file's rate is not used, its other rows are."""
    settings = ENDED.settled.loadgen_settings | {setting: value}
    assert settings != ENDED.settled.loadgen_settings
    settled = msgspec.structs.replace(ENDED.settled, loadgen_settings=settings)
    other = msgspec.structs.replace(ENDED, settled=settled)
    assert (identity_of(other) == identity_of(ENDED)) is (setting == "server_target_qps")


@pytest.mark.parametrize("option", ["max_concurrency", "num_workers"])
def test_a_search_is_not_resumed_with_another_client(option):
    before, now = (identity_of(with_plan(ENDED, **{option: value})) for value in (6, 7))
    assert other_settings(before, now) == f"{option}: 6 -> 7"


def test_a_run_without_room_for_its_queries_says_so_in_its_line():
    reason = "157 of 2076 queries failed: local_limit 157"
    assert probe_line(probe(500.0, "INVALID", reasons=(reason,)), LIMITS_NS) == f"INVALID: {reason}"


def test_the_warnings_of_each_run_are_printed_once(capsys):
    """A server with a prefix cache was searched for hours, and its rate was found without a word."""
    cached = "the servers took 28,800 prompt tokens, 60.0% of all, from their prefix caches"
    written = []
    console = SearchConsole(written.append)
    runs = [
        msgspec.structs.replace(ENDED, warnings=warnings) for warnings in ((cached,), (cached, "late"), ())
    ]
    for one in runs:
        console.record(one)
    assert capsys.readouterr().out == f"WARNING   {cached}\nWARNING   late\n"
    assert written == runs
