"""Which events of a log are of a performance request, and the times that follow from them."""

import json

import pytest

from harness.endpoints.checks.request_log import read_log

S = 10**9
START, STOP, ENDED = (
    "session.start_performance_tracking",
    "session.stop_performance_tracking",
    "session.ended",
)


def log_of(tmp_path, *events):
    """Each: its time in s, its type, the request's id, the prompt's data."""
    path = tmp_path / "events.jsonl"
    keys = ("timestamp_ns", "event_type", "sample_uuid", "data")
    lines = [dict(zip(keys, (at * S, *rest), strict=False)) for at, *rest in events]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "\n")
    return read_log(path)


def test_requests_of_the_warm_up_and_of_the_accuracy_run_are_none_of_the_performance_run(tmp_path):
    """The official client counts what it issues between the start of tracking and its stop."""
    log = log_of(
        tmp_path,
        (1, "sample.issued", "warm"),
        (2, START),
        (3, "sample.issued", "one"),
        (3, "sample.of_a_later_client", "one"),
        (4, "sample.complete", "warm"),
        (5, STOP),
        (6, "sample.issued", "accuracy"),
        (7, "sample.complete", "one"),
        (9, "sample.complete", "accuracy"),
        (10, ENDED),
    )
    assert log.samples.tolist() == [(3 * S, 0, 7 * S, 0, 0, False)]


def test_the_times_of_requests_that_end_in_another_order(tmp_path):
    log = log_of(
        tmp_path,
        (1, START),
        (2, "sample.issued", "long"),
        (3, "sample.issued", "short"),
        (4, "sample.complete", "short"),
        (5, "sample.issued", "lost"),
        (9, "sample.complete", "long"),
        (10, ENDED),
    )
    assert (log.issue_s, log.elapsed_s) == (3, 7)
    assert log.samples["complete_ns"].tolist() == [9 * S, 4 * S, 0]
    assert (log.issue_s_of(0, 0, 2), log.issue_s_of(1, 1, 1), log.issue_s_of(0, 2, 1)) == (1, 0, 3)


def test_a_first_fragment_that_comes_again_counts_until_the_answer_is_complete(tmp_path):
    """As the official client (metrics_table.py), which says that a repeated attempt gives it again."""
    log = log_of(
        tmp_path,
        (1, START),
        (2, "sample.issued", "a"),
        (3, "sample.recv_first", "a"),
        (4, "sample.recv_first", "a"),
        (5, "sample.complete", "a"),
        (6, "sample.recv_first", "a"),
        (7, "sample.complete", "a"),
        (9, ENDED),
    )
    assert log.samples.tolist() == [(2 * S, 4 * S, 5 * S, 0, 0, False)]


def test_a_run_whose_requests_never_ended_lasts_to_the_last_issue(tmp_path):
    log = log_of(tmp_path, (1, START), (2, "sample.issued", "a"), (5, "sample.issued", "b"), (6, ENDED))
    assert log.elapsed_s == 3


def test_a_run_without_a_request(tmp_path):
    log = log_of(tmp_path, (1, START), (2, STOP), (3, ENDED))
    assert (len(log.samples), log.issue_s, log.elapsed_s, log.prompts) == (0, 0, 0, None)


@pytest.mark.parametrize(
    ("data", "prompts"),
    [
        ((None, None), None),
        ((["PromptData", None, None, None],) * 2, None),
        ((["PromptData", None, [1], None],) * 2, 1),
        ((["PromptData", "a"], ["PromptData", "b"]), 2),
    ],
)
def test_a_log_without_prompts_is_none_of_equal_ones(tmp_path, data, prompts):
    issued = [(2, "sample.issued", str(number), one) for number, one in enumerate(data)]
    assert log_of(tmp_path, (1, START), *issued, (3, ENDED)).prompts == prompts
