"""Answers that lie, break or never come: each fault is named, every other query is answered.

All faults meet one run of each setting, in turn: a cell of the matrix is one query in it.
"""

from collections import Counter

import pytest

from tests.faults.matrix import ANSWER_RUNS, DEADLINE_S
from tests.runs import run_mlperf, small_dataset
from tests.stub import Facts, Fault, StubServer, expected_ids, expected_words

TOKENS, ASKED = 4, 8  # an id too many is not yet more than was asked for
RUNS = [
    pytest.param(
        kind, setting, id=f"{kind.way}-{setting}", marks=pytest.mark.engine if i >= kind.quick else ()
    )
    for kind in ANSWER_RUNS
    for i, setting in enumerate(kind.settings)
]


@pytest.mark.engine
@pytest.mark.parametrize(("kind", "setting"), RUNS)
def test_faults_in_turn(kind, setting, tmp_path, capfd):
    """The preflight's trial requests come first and are answered well, then one request for each fault."""
    way, arguments = kind.way, kind.arguments
    rows, streams, rule = kind.faults, way.streams, expected_ids
    if streams != (setting.scenario != "offline"):
        arguments = (*arguments, "--stream", "on" if streams else "off")
    knobs = {"tokens": TOKENS, "event_delay_s": 0.002, "drip_s": 1.0, "cumulative": way.cumulative}
    if way.protocol.answers == "text":
        rule, knobs["returns_ids"] = expected_words, False
    if way.protocol.dialect == "trtllm":
        knobs["facts"] = Facts(owner="tensorrt_llm")
    dataset, prompts = small_dataset(tmp_path, rows=len(rows) + 9)
    with StubServer(faults=[*[None] * kind.trials, *rows], **knobs) as stub:
        run = run_mlperf(
            tmp_path,
            *("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", ASKED),
            *("--timeout", DEADLINE_S, "--no-fail-fast", *arguments),
            *(["--accuracy"] if setting.accuracy else []),
            scenario=setting.scenario,
            here=capfd,
        )
        queries = stub.requests[kind.trials :]
        met = {prompts.index(r.prompt_ids): row for r, row in zip(queries, rows, strict=False)}
    assert len(met) == len(rows)
    names = {sample: way.failure(row) for sample, row in met.items()}
    victims = {sample: name for sample, name in names.items() if name}
    assert "Traceback" not in run.stderr
    assert (run.code, run.result) == (4, "INVALID"), run.stdout + run.stderr
    failed = [row for row in run.requests if row["failure"]]
    assert {row["sample_index"]: row["failure"] for row in failed} == victims
    assert run.failures == Counter(victims.values())
    assert all(row["failure_detail"].isprintable() for row in failed)
    assert f"{len(victims)} ERRORS encountered" in run.loadgen_summary
    if setting.accuracy:
        answered = {i: rule(prompt, TOKENS) for i, prompt in enumerate(prompts)}
        expected, logged = answered | {index: [] for index in victims}, run.accuracy_log
        changed = {sample for sample, row in met.items() if way.changes_ids(row)} - victims.keys()
        assert logged.keys() == expected.keys()
        assert {i for i in logged if logged[i] != expected[i]} == changed


@pytest.mark.engine
@pytest.mark.parametrize(
    ("scenario", "fault", "timeout", "kind", "least"),
    [
        ("single-stream", Fault.SILENT, 0.5, "timeout", 3),
        pytest.param("server", Fault.NO_FINISH, 60, "unfinished", 10, marks=pytest.mark.engine),
    ],
)
def test_a_server_that_fails_every_query_ends_the_run(tmp_path, capfd, scenario, fault, timeout, kind, least):
    """Not one answer completes, although some have tokens: the run ends early and names the reason."""
    dataset, _ = small_dataset(tmp_path, rows=80)
    with StubServer(faults=lambda request: fault if request.index else None, event_delay_s=0.01) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", 5)
        limits = {"scenario": scenario, "qps": 10, "duration_ms": 3_600_000}
        run = run_mlperf(tmp_path, *where, "--timeout", timeout, **limits, here=capfd)
    assert (run.code, run.result) == (4, "INVALID"), run.stdout + run.stderr
    assert least <= run.failures[kind] < 80
    assert f"all failed: {kind} " in run.record["verdict"]["reasons"][0]
