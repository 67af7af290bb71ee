"""What a log says of its run, on run folders of the official client with 100 samples."""

import json

import pytest

from harness.endpoints.checks import log_rules
from harness.endpoints.checks.finding import Severity
from harness.endpoints.checks.tree_check import check_tree
from harness.endpoints.run_folder import CONFIG, EVENTS, SUMMARY
from tests.harness.endpoints.checks.passing import SAMPLES as OFFLINE
from tests.harness.endpoints.checks.passing import issue_s, steady_state, write, write_log, write_run

SIZE, PASSES = 100, 4
SPAN_S = issue_s(64)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "r64")


def found(run, severity=Severity.ERROR):
    return [(one.rule, one.got) for one in check_tree(run) if one.severity is severity]


def edit(run, **fields):
    summary = json.loads((run / SUMMARY).read_text())
    write(run / SUMMARY, {name: value for name, value in (summary | fields).items() if value is not None})


def without(run, *marks):
    """The log without the lines that have all these."""
    lines = (run / EVENTS).read_text().splitlines(keepends=True)
    (run / EVENTS).write_text("".join(line for line in lines if not all(mark in line for mark in marks)))


def claim(run, monkeypatch, **window):
    """A steady state in the summary, which a recomputation would confirm."""
    block = steady_state(64)
    block["window"] |= {"super_pass_size": SIZE, "n_samples": PASSES * SIZE} | window
    edit(run, steady_state=block)
    monkeypatch.setattr(log_rules, "recomputed_block", lambda *_: block)
    return block


def test_it_passes(run):
    assert found(run) == []


@pytest.mark.parametrize(
    ("first", "last", "duration_s", "said"),
    [
        (0, 3, SPAN_S, None),
        (0, 3, SPAN_S - 6, None),  # 0.5 %
        (0, 3, SPAN_S + 7, "duration_s is 1231.0"),
        (0, 3, SPAN_S - 7, "duration_s is 1217.0"),
        (1, 3, SPAN_S - 7, "duration_s is 1217.0"),
        (1, 1, SPAN_S, "duration_s is 1224.0"),
        (1, 1, 99 / 399 * SPAN_S, None),
        (0, 4, SPAN_S - 7, None),  # not in the run: a finding of the files
        (-1, 3, SPAN_S - 7, None),
        (3, 2, SPAN_S - 7, None),
        (0, 3, None, None),
        (None, 3, SPAN_S - 7, None),
        (0, None, SPAN_S - 7, None),
    ],
)
def test_a_window_has_the_issue_time_of_its_requests(run, monkeypatch, first, last, duration_s, said):
    claim(run, monkeypatch, super_pass_start=first, super_pass_end=last, duration_s=duration_s)
    as_in_the_log = [one.got for one in check_tree(run) if one.expected.endswith("as in the log")]
    assert as_in_the_log == ([said] if said else [])


@pytest.mark.parametrize(
    ("passes", "said"), [(3, [("super-passes", "the run has 3 complete passes")]), (4, [])]
)
def test_a_window_needs_four_passes(run, passes, said):
    """Section 4.4 of the rules."""
    write_log(run / EVENTS, count=passes * SIZE)
    count = passes * SIZE
    edit(run, n_samples_issued=count, n_samples_completed=count, output_sequence_lengths={"total": count})
    assert found(run) == said


@pytest.mark.parametrize(
    ("states", "verdict", "said"),
    [
        ({"tpot_p90": "Drifting Up"}, "STEADY STATE", "the verdict is STEADY STATE, tpot_p90 drift"),
        ({}, "drifting_up", "the verdict is drifting_up"),
    ],
)
def test_what_drifts_is_named(run, monkeypatch, states, verdict, said):
    """Section 4.4 of the rules: no gating metric drifts in a steady state."""
    block = claim(run, monkeypatch)
    block["state"] |= states
    block["verdict"] = verdict
    edit(run, steady_state=block)
    assert found(run) == [("steady-state", said)]


def test_a_part_of_a_pass_is_said_once(run):
    part = ("whole-passes", "407 samples issued: 4 passes and 7 samples")
    write_log(run / EVENTS, count=407)
    assert found(run) == [part, ("log-differs", "n_samples_issued is 400")]
    edit(run, n_samples_issued=407, n_samples_completed=407)
    assert found(run) == [part]


@pytest.mark.parametrize(
    ("lost", "failed", "said"),
    [
        (False, True, "1 of 400 requests failed"),
        (True, False, "0 of 400 requests failed, 1 never ended"),
        (True, True, "1 of 400 requests failed, 1 never ended"),
    ],
)
def test_requests_that_failed_or_never_ended(run, lost, failed, said):
    if lost:
        without(run, '"sample.complete"', '"sample7"')
    if failed:
        event = {"event_type": "error.generic", "timestamp_ns": 1, "sample_uuid": "sample5", "data": None}
        text = (run / EVENTS).read_text()
        (run / EVENTS).write_text(text.replace('{"timestamp_ns"', json.dumps(event) + '\n{"timestamp_ns"'))
    assert ("failures", said) in found(run)


@pytest.mark.parametrize(("count", "severity"), [(1, Severity.WARNING), (2, Severity.ERROR)])
def test_one_answer_may_have_a_single_fragment(run, count, severity):
    for number in range(count):
        without(run, '"sample.recv_first"', f'"sample{number}"')
    said = [("streaming", f"{count} of 400 answers have no first fragment")]
    assert [one for one in found(run, severity) if one[0] == "streaming"] == said


@pytest.mark.parametrize(
    ("written", "by", "said"),
    [
        ("streaming: 'on'", "streaming: on", []),  # true in YAML 1.1, as the official client reads it
        ("streaming: 'on'", "streaming: off", [("streaming", "model_params.streaming is false")]),
        ("  type: concurrency", "  of: concurrency", [("load-pattern", "the load pattern is not stated")]),
        ("  type: concurrency", "  type: poisson", [("load-pattern", "the load pattern is poisson")]),
    ],
)
def test_a_configuration_without_streamed_answers_at_a_fixed_concurrency(run, written, by, said):
    """Sections 6.1 and 6.5 of the rules."""
    config = (run / CONFIG).read_text()
    assert written in config
    (run / CONFIG).write_text(config.replace(written, by))
    assert found(run) == said


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("duration_ns", [("issue-time", "duration_ns is missing")]),
        ("n_samples_failed", [("failures", "n_samples_failed is missing")]),
        ("n_samples_issued", []),  # the log has it
    ],
)
def test_a_summary_that_lacks_a_count_of_the_log(run, field, said):
    edit(run, **{field: None})
    assert found(run) == said


@pytest.mark.parametrize(
    ("issued", "failed", "said"), [(None, 5, "5 requests failed"), (400, 5, "5 of 400 requests failed")]
)
def test_failures_of_a_summary(run, issued, failed, said):
    (run / EVENTS).unlink()
    edit(run, n_samples_issued=issued, n_samples_failed=failed)
    assert found(run) == [("failures", said)]


@pytest.mark.parametrize(
    ("issued", "got", "remedy"),
    [
        (None, "n_samples_issued is missing", "write the summary again"),
        (0, "the size of the dataset is not known", "state datasets[].samples in config.yaml"),
        (400, "the size of the dataset is not known", "state datasets[].samples in config.yaml"),
    ],
)
def test_passes_that_cannot_be_counted(run, issued, got, remedy):
    (run / EVENTS).unlink()
    edit(run, n_samples_issued=issued)
    (run / CONFIG).write_text((run / CONFIG).read_text().replace("samples:", "count:"))
    said = [(one.got, one.remedy) for one in check_tree(run) if one.rule == "whole-passes"]
    assert said == [(got, remedy)]


def test_of_a_dedicated_offline_run_neither_passes_nor_fragments_are_asked(tmp_path):
    """Sections 5.7 and 6.2 of the rules: one pass, its time to the last completion, throughput only."""
    run = write_run(tmp_path / "offline", OFFLINE)
    write_log(run / EVENTS, count=SIZE, seconds=1199.5)  # and a second for the last answer
    without(run, '"sample.recv_first"')
    edit(run, n_samples_issued=SIZE, n_samples_completed=SIZE, output_sequence_lengths={"total": SIZE})
    assert found(run) == []
    edit(run, output_sequence_lengths={"total": SIZE + 1})
    assert found(run) == [("log-differs", f"output_sequence_lengths.total is {SIZE + 1}")]
    edit(run, output_sequence_lengths={"total": SIZE})
    write_log(run / EVENTS, count=SIZE, seconds=1198.5)
    assert found(run) == [("issue-time", "the run lasts 1199.5 s")]


def test_a_log_that_cannot_be_read_says_nothing_of_the_salt(run):
    (run / EVENTS).write_text((run / EVENTS).read_text()[:-30])
    assert "log" in {rule for rule, _ in found(run)}
    assert ("salt", "no file declares the salt, and no log shows it") in found(run, Severity.UNKNOWN)
