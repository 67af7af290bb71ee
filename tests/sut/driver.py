"""Drives the request path in tests: requests in, outcomes out, and scripted servers."""

import itertools
import json
import time

from msgspec.structs import replace

from harness.config.deadlines import Deadlines
from harness.record.outcome import Completion, FailureKind
from sut.client.client import HttpClient
from sut.client.connections import ConnectionTimes
from sut.client.endpoint import Access, resolve_endpoint
from tests.kit import PATIENCE_S, make_request, wire_of
from tests.stub import INCREMENTAL_ONLY, OF_CHATS, OF_PROMPTS, OF_TEXT, OF_USAGE, Fault, expected_ids
from tests.sut.wire.judging import cumulative

WIRE = wire_of(max_new_tokens=6)
PROMPT = [200006, 17360]
# No connection grows too old because this process stood still for 2 s.
TIMES = ConnectionTimes(idle_ns=1800 * 10**9)
# What is a failure only beside the answers that the trial requests had.
_BY_THE_TRIAL = (Fault.OTHER_ID, Fault.OTHER_MODEL, Fault.DETAIL_BESIDE, Fault.FLAG_BESIDE)
# What SGLang's answers cannot show, or only beside the query's own count.
_ELSEWHERE = {*OF_USAGE, *OF_CHATS, *OF_TEXT, *OF_PROMPTS}
KINDS = {
    fault: FailureKind[fault.failure.upper()]
    for fault in Fault
    if fault.failure and fault not in {*INCREMENTAL_ONLY, *_BY_THE_TRIAL, *_ELSEWHERE}
} | {
    Fault.DUPLICATED_ID: FailureKind.TOO_MANY_TOKENS  # these answers have all tokens that were asked for
}


class Driver:
    """A client and what it reported, in order."""

    def __init__(self, *urls, timeout_s=600.0, deadlines=None, keep_alive=True, ca_file=None, times=TIMES):
        endpoints = [resolve_endpoint(url, WIRE.path, Access(ca_file=ca_file)) for url in urls]
        endpoints = [replace(endpoint, keep_alive=keep_alive) for endpoint in endpoints]
        self.firsts, self.outcomes, self.requests = [], {}, {}
        self.suspects: list[int] = []
        limits = deadlines or Deadlines(request_s=timeout_s)
        self.client = HttpClient(
            endpoints,
            limits,
            on_first_token=self._first,
            on_done=self._done,
            on_suspect=self.suspects.append,
            times=times,
        )
        self._ids = itertools.count()

    def _first(self, request):
        self.firsts.append(request.query_id)

    def _done(self, request, outcome):
        assert request.query_id not in self.outcomes, "a second outcome"
        self.outcomes[request.query_id] = outcome

    def start(self, prompt=PROMPT):
        request = make_request(prompt, next(self._ids), max_new_tokens=6)
        self.requests[request.query_id] = request
        self.client.start(request)
        return request.query_id

    def poll_until(self, happened):
        until = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < until, "it did not happen"
            self.client.poll(0.02)
            self.client.tick()

    def wait(self, *queries):
        """Poll until all given queries (default: all) have ended."""
        wanted = set(queries or self.requests)
        self.poll_until(lambda: wanted <= self.outcomes.keys())
        return [self.outcomes[query] for query in sorted(wanted)]

    def ask(self, prompt=PROMPT):
        return self.wait(self.start(prompt))[0]


def assert_completed(outcome, prompt=PROMPT, count=6):
    assert isinstance(outcome, Completion), outcome
    assert outcome.output_ids.tolist() == expected_ids(prompt, count)


def with_id_of(request, event):
    """An event with the id of what ``read_request`` has returned, as SGLang answers it."""
    return event.replace(b'"id":"x"', b'"id":"%b"' % json.loads(request[1])["rid"].encode())


def answer(token=7, head=b"HTTP/1.1 200 OK\r\n", to=None):
    """A complete answer; ``to`` a request, or to none that can be told."""
    body = b"data: %b\n\n" % cumulative(1, ids=[token])[0]
    body = body if to is None else with_id_of(to, body)
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
