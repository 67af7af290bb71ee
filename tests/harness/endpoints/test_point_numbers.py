"""A point's own numbers from rows whose times are known."""

import numpy as np
import pytest

from harness.endpoints.point_numbers import PointRows, client_bound, own_numbers, warm_up_of
from harness.endpoints.point_run import WARM_UP
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind
from tests.sut.endpoints.rehearsing import point_of

S = 1_000_000_000
START = 50 * S
NO_CPU = np.empty((0, 3), np.int64)


def rows(count=100, gap=S // 100, first=0.1, latency=1.0, osl=11, begin=0, sent=0.0):
    """Queries issued one after the other."""
    made = np.zeros(count, QUERY_ROW)
    made["query_id"] = begin + np.arange(count)
    made["issued_ns"] = START + np.arange(count) * gap
    made["sent_ns"] = made["issued_ns"] + int(sent * S)
    made["first_token_ns"] = made["issued_ns"] + int(first * S)
    made["last_byte_ns"] = made["issued_ns"] + int(latency * S)
    made["osl"] = osl
    return made


def test_rates_count_from_the_first_issue_to_the_last_completion():
    found = own_numbers(PointRows.of(rows()))
    assert (found.queries, found.tokens) == (100, 1100)
    assert found.seconds == pytest.approx(0.99 + 1.0)
    assert found.tokens_per_s == pytest.approx(1100 / 1.99)
    assert (found.ttft.p50_ns, found.tpot.p99_ns, found.latency.p90_ns) == (S // 10, 9 * S // 100, S)


def test_the_warm_up_counts_for_nothing_but_itself():
    early = rows(20, begin=WARM_UP, latency=3.0)
    early["issued_ns"] -= 5 * S
    early["failure"][3] = FailureKind.TIMEOUT
    found = PointRows.of(np.concatenate([rows(), early]))
    assert own_numbers(found) == own_numbers(PointRows.of(rows()))
    warm_up = warm_up_of(found, 21, 10, "data", ("a step",))
    assert (warm_up.requests_issued, warm_up.requests_completed, warm_up.concurrency) == (21, 19, 10)
    assert warm_up.duration_s == pytest.approx(5.0)  # to the first counted request


def test_a_point_that_ended_in_its_warm_up_has_no_numbers():
    found = PointRows.of(rows(3, begin=WARM_UP))
    assert own_numbers(found) is None
    assert warm_up_of(found, 4, 2, "data", ()).duration_s == pytest.approx(1.02)
    assert warm_up_of(PointRows.of(rows(0)), 4, 2, "data", ()).duration_s == 0
    assert not list(client_bound(point_of(2), found, NO_CPU))


def test_failures_and_lost_requests_are_no_completions():
    made = rows()
    made["failure"][:10] = FailureKind.TIMEOUT
    made["failure"][10] = FailureKind.WORKER_LOST
    made[["issued_ns", "sent_ns", "first_token_ns", "last_byte_ns"]][10] = (0, 0, 0, 0)
    made["issued_ns"][10] = made["last_byte_ns"][10] = 0
    found = own_numbers(PointRows.of(made))
    assert (found.queries, found.tokens) == (89, 89 * 11)
    assert found.seconds == pytest.approx(1.99)


def held_at(sent):
    """Signs at a point that keeps 100 in flight: one ends every 10 ms after a second."""
    return list(client_bound(point_of(100), PointRows.of(steady(sent)), NO_CPU))


def steady(sent):
    before = rows(100, begin=WARM_UP, sent=sent)
    counted = rows(1000, sent=sent)
    counted["issued_ns"] += S
    counted["sent_ns"] += S
    counted["first_token_ns"] += S
    counted["last_byte_ns"] += S
    return np.concatenate([before, counted])


def test_a_client_that_keeps_its_number_is_no_bottleneck():
    assert held_at(0.0) == []


def test_a_client_that_sends_late_holds_less_and_is_named():
    held, late = held_at(0.08)
    assert "held 92.0 requests in flight, not 100" in held
    assert "80.00 ms late at p99" in late


def test_a_request_without_an_end_is_held_to_the_last_issue():
    lost = rows(101)
    lost["failure"], lost["last_byte_ns"], lost["sent_ns"][0] = FailureKind.WORKER_LOST, 0, 0
    found = PointRows.of(lost)
    assert list(client_bound(point_of(200), found, NO_CPU)) == [
        "the client held 49.5 requests in flight, not 200"  # the sum of 0.99, 0.98, ... 0 s, in 1 s
    ]
    assert own_numbers(found) is None


def test_a_process_that_is_busy_is_named_and_offline_has_no_number_to_hold():
    seconds = START + np.arange(12) * S
    cpu = np.column_stack([seconds, np.arange(12) * S, np.zeros(12, np.int64)])
    point = point_of(1000, offline="dedicated")
    (line,) = client_bound(point, PointRows.of(steady(0.5)), cpu)
    assert "the issuing process used 100% of a core" in line
