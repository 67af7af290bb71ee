"""Answers that lie, break or never come: each fault is named, every other query is answered.

All faults meet one run of each setting, in turn: a cell of the matrix is one query in it.
"""

from collections import Counter

import pytest

from tests.faults.matrix import (
    ANSWERS,
    CUMULATIVE_RUNS,
    DEADLINE_S,
    INCREMENTAL,
    INCREMENTAL_RUNS,
    OPENAI_RUNS,
    TRTLLM_RUNS,
    WHOLE_OPENAI_RUNS,
    WHOLE_RUNS,
    WHOLE_TRTLLM_RUNS,
)
from tests.runs import run_mlperf, small_dataset
from tests.stub import CUMULATIVE_ONLY, ONLY_STREAMS, Fault, StubServer, expected_ids

WHOLE = [row for row in ANSWERS if row.whole != ONLY_STREAMS]
TOKENS, ASKED = 4, 8  # an id too many is not yet more than was asked for


def in_runs(settings, quick=1):
    return pytest.mark.parametrize(
        "setting",
        [
            pytest.param(setting, id=str(setting), marks=pytest.mark.engine if i >= quick else ())
            for i, setting in enumerate(settings)
        ],
    )


@in_runs(CUMULATIVE_RUNS)
def test_cumulative_streams(setting, tmp_path):
    meet_in_turn(tmp_path, setting, ANSWERS)


@in_runs(INCREMENTAL_RUNS, quick=0)
def test_incremental_streams(setting, tmp_path):
    faults = [row for row in ANSWERS if row not in CUMULATIVE_ONLY]
    meet_in_turn(tmp_path, setting, [*faults, *INCREMENTAL], cumulative=False)


@in_runs(OPENAI_RUNS, quick=0)
def test_openai_protocol(setting, tmp_path):
    faults = [row for row in ANSWERS if row not in CUMULATIVE_ONLY]
    meet_in_turn(tmp_path, setting, [*faults, *INCREMENTAL], "--backend", "openai")


@in_runs(TRTLLM_RUNS, quick=0)
def test_tensorrt_llms_protocol(setting, tmp_path):
    faults = [row for row in ANSWERS if row not in CUMULATIVE_ONLY]
    meet_in_turn(tmp_path, setting, [*faults, *INCREMENTAL], "--backend", "trtllm")


@in_runs(WHOLE_RUNS)
def test_answers_that_are_not_streamed(setting, tmp_path):
    meet_in_turn(tmp_path, setting, WHOLE, streams=False)


@in_runs(WHOLE_OPENAI_RUNS, quick=0)
def test_openai_answers_that_are_not_streamed(setting, tmp_path):
    meet_in_turn(tmp_path, setting, WHOLE, "--backend", "openai", streams=False)


@in_runs(WHOLE_TRTLLM_RUNS, quick=0)
def test_tensorrt_llms_answers_that_are_not_streamed(setting, tmp_path):
    meet_in_turn(tmp_path, setting, WHOLE, "--backend", "trtllm", streams=False)


def meet_in_turn(tmp_path, setting, rows, *arguments, streams=True, **knobs):
    """The preflight's trial request comes first and is answered well, then one request for each fault."""
    if streams != (setting.scenario != "offline"):
        arguments = (*arguments, "--stream", "on" if streams else "off")
    dataset, prompts = small_dataset(tmp_path, rows=len(rows) + 9)
    with StubServer(tokens=TOKENS, event_delay_s=0.002, drip_s=1.0, faults=[None, *rows], **knobs) as stub:
        run = run_mlperf(
            tmp_path,
            *("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", ASKED),
            *(
                "--timeout",
                DEADLINE_S,
                "--no-fail-fast",
                *arguments,
                *(["--accuracy"] if setting.accuracy else []),
            ),
            scenario=setting.scenario,
        )
        met = {prompts.index(r.prompt_ids): row for r, row in zip(stub.requests[1:], rows, strict=False)}
    assert len(met) == len(rows)
    names = {sample: row.failure if streams else row.whole for sample, row in met.items()}
    victims = {sample: name for sample, name in names.items() if name}
    check_verdict(run, victims)
    if setting.accuracy:
        answered = {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts)}
        assert run.accuracy_log == answered | {index: [] for index in victims}


def check_verdict(run, victims):
    assert "Traceback" not in run.stderr
    assert (run.code, run.result) == (4, "INVALID"), run.stdout + run.stderr
    failed = {row["sample_index"]: row["failure"] for row in run.requests if row["failure"]}
    assert failed == victims
    assert run.failures == Counter(victims.values())
    assert all(row["failure_detail"].isprintable() for row in run.requests if row["failure"])
    assert f"{len(victims)} ERRORS encountered" in run.loadgen_summary


@pytest.mark.parametrize(
    ("scenario", "fault", "timeout", "kind", "least"),
    [
        ("single-stream", Fault.SILENT, 0.5, "timeout", 3),
        pytest.param("server", Fault.NO_FINISH, 60, "unfinished", 10, marks=pytest.mark.engine),
    ],
)
def test_a_server_that_fails_every_query_ends_the_run(tmp_path, scenario, fault, timeout, kind, least):
    """Not one answer completes, although some have tokens: the run ends early and names the reason."""
    dataset, _ = small_dataset(tmp_path, rows=80)
    with StubServer(faults=lambda request: fault if request.index else None, event_delay_s=0.01) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", 5)
        limits = {"scenario": scenario, "qps": 10, "duration_ms": 3_600_000}
        run = run_mlperf(tmp_path, *where, "--timeout", timeout, **limits)
    assert (run.code, run.result) == (4, "INVALID"), run.stdout + run.stderr
    assert least <= run.failures[kind] < 80
    assert f"all failed: {kind} " in run.record["verdict"]["reasons"][0]
