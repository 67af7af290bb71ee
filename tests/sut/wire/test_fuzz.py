"""Random damage to recorded answers: nothing raises, nothing hangs, and no Completion holds other ids.

The damages keep the digits of ids as they are (a changed id inside valid JSON is a true answer with another
id): cuts, lost, repeated and swapped events or chunks, and foreign bytes.
"""

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config.generation import SamplingParameters
from harness.record.outcome import Completion, Failure
from sut.client.response import ResponseReader
from sut.ipc.messages import ReportReader
from sut.wire import make_wire
from sut.wire.sse import EventReader, EventTooLargeError

DATA = Path(__file__).parents[2] / "data"
PARAMETERS = SamplingParameters(
    max_new_tokens=20, temperature=1.0, top_p=1.0, top_k=0, skip_special_tokens=False, stream=True
)
MAX_EVENT = 1 << 16
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ASKED = {
    "sglang_cumulative_interval1.txt": 20,
    "sglang_cumulative_interval8.txt": 20,
    "sglang_incremental_interval1.txt": 20,
    "sglang_incremental_interval8.txt": 20,
    "sglang_one_token.txt": 1,
    "llamacpp_response_fields.txt": 8,
    "llamacpp_stream.txt": 8,
}
RECORDED = [(name.partition("_")[0], name) for name in ASKED]
quick = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def events(name):
    return [part + b"\n\n" for part in (DATA / name).read_bytes().split(b"\n\n") if part]


def chunked(blocks):
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(block), block) for block in blocks) + b"0\r\n\r\n"


def read(wire, data, cuts=(), streams=True, asked=20):
    """The outcome of ``data`` in pieces, the connection closed after the last."""
    parameters = msgspec.structs.replace(PARAMETERS, stream=streams, max_new_tokens=asked)
    answer = make_wire(wire, parameters, 201088, "m").answer()
    reader = ResponseReader(answer, streams=streams, max_event_bytes=MAX_EVENT)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    outcome = None
    for start, end in itertools.pairwise(places):
        outcome = outcome or reader.feed(data[start:end], start + 1)
    outcome = outcome or reader.closed()
    assert isinstance(outcome, Completion | Failure)
    if isinstance(outcome, Failure):
        assert outcome.detail.isprintable()
        assert len(outcome.detail) < 2000
    assert reader.first_id < 201088
    assert reader.first_event_tokens < 2**32
    return outcome


TRUE_IDS = {
    name: read(wire, chunked(events(name)), asked=ASKED[name]).output_ids.tolist() for wire, name in RECORDED
}


def assert_true_or_failed(outcome, name):
    assert isinstance(outcome, Failure) or outcome.output_ids.tolist() == TRUE_IDS[name]


def test_the_undamaged_answers_complete():
    assert [len(ids) for ids in TRUE_IDS.values()] == [20, 20, 20, 20, 1, 8, 8]


places = st.lists(st.integers(0, 1 << 16), max_size=8)
garbage = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.sampled_from(
        [b"\r\n", b"\n\n", b"data: ", b"0\r\n\r\n", b"data: [DONE]\n\n", b"HTTP/1.1 200 OK\r\n\r\n", b"}"]
    ),
    st.sampled_from(
        [b'"completion_tokens":7,', b"data: {}\n\n", b'data: {"error":null}\n\n', b": ping\n\n", b"\x00"]
    ),
)


@pytest.mark.parametrize(("wire", "name"), RECORDED)
@quick
@given(cuts=places)
def test_any_pieces_give_the_whole_answer(wire, name, cuts):
    outcome = read(wire, chunked(events(name)), cuts, asked=ASKED[name])
    assert isinstance(outcome, Completion)
    assert outcome.output_ids.tolist() == TRUE_IDS[name]


@pytest.mark.parametrize(("wire", "name"), RECORDED)
@quick
@given(data=st.data(), cuts=places)
def test_events_lost_repeated_and_moved(wire, name, data, cuts):
    blocks = events(name)
    chosen = data.draw(st.lists(st.integers(0, len(blocks) - 1), max_size=len(blocks) + 4))
    assert_true_or_failed(read(wire, chunked([blocks[i] for i in chosen]), cuts, asked=ASKED[name]), name)


@pytest.mark.parametrize(("wire", "name"), RECORDED)
@quick
@given(data=st.data(), cuts=places)
def test_one_event_moved_lost_or_repeated(wire, name, data, cuts):
    blocks = events(name)
    index = st.integers(0, len(blocks) - 1)
    moved = blocks.pop(data.draw(index))
    for _ in range(data.draw(st.integers(0, 2))):
        blocks.insert(data.draw(index), moved)
    assert_true_or_failed(read(wire, chunked(blocks), cuts, asked=ASKED[name]), name)


@pytest.mark.parametrize(("wire", "name"), RECORDED)
@quick
@given(at=st.integers(0, 1 << 16), lost=st.integers(1, 3000), cuts=places)
def test_bytes_lost_on_the_way(wire, name, at, lost, cuts):
    """A gap in the chunked response: its framing no longer fits, or the answer is whole all the same."""
    whole = chunked(events(name))
    at %= len(whole)
    outcome = read(wire, whole[:at] + whole[at + lost :], cuts, asked=ASKED[name])
    assert isinstance(outcome, Completion | Failure)
    if at + lost >= len(whole):  # cut at the end: never a Completion without all ids
        assert_true_or_failed(outcome, name)


@pytest.mark.parametrize(("wire", "name"), RECORDED)
@quick
@given(at=st.integers(0, 1 << 16), foreign=garbage, cuts=places)
def test_foreign_bytes_between_events(wire, name, at, foreign, cuts):
    blocks = events(name)
    blocks.insert(at % (len(blocks) + 1), foreign)
    assert_true_or_failed(read(wire, chunked(blocks), cuts, asked=ASKED[name]), name)


@pytest.mark.parametrize(("wire", "name"), RECORDED)
@quick
@given(at=st.integers(0, 1 << 16), foreign=st.binary(min_size=1, max_size=30), cuts=places)
def test_foreign_bytes_anywhere(wire, name, at, foreign, cuts):
    """Digits among them may make another honest answer: here nothing may raise or hang."""
    whole = chunked(events(name))
    at %= len(whole)
    read(wire, whole[:at] + foreign + whole[at:], cuts)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("wire", ["sglang", "openai", "llamacpp"])
@quick
@given(body=st.binary(max_size=300), cuts=places)
def test_noise_is_never_an_answer(wire, streams, body, cuts):
    assert isinstance(read(wire, body, cuts, streams), Failure)
    assert isinstance(read(wire, HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), cuts, streams), Failure)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "output_ids",
                    "meta_info",
                    "completion_tokens",
                    "finish_reason",
                    "type",
                    "error",
                    "choices",
                    "token_ids",
                    "usage",
                    "tokens",
                    "stop",
                    "stop_type",
                    "tokens_predicted",
                    "prompt_tokens",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("wire", ["sglang", "openai", "llamacpp"])
@quick
@given(documents=st.lists(json_values, min_size=1, max_size=3))
def test_any_json_in_events_gives_an_outcome(wire, documents):
    blocks = [b"data: " + msgspec.json.encode(document) + b"\n\n" for document in documents]
    read(wire, chunked(blocks))
    read(wire, chunked([msgspec.json.encode(documents[0])]), streams=False)


@quick
@given(data=st.binary(max_size=400), cuts=places)
def test_event_reader_takes_any_bytes_and_any_cut(data, cuts):
    def payloads(places):
        reader, found = EventReader(MAX_EVENT), []
        for start, end in itertools.pairwise(places):
            found += reader.feed(data[start:end])
        return found, reader.flush()

    whole = payloads([0, len(data)])
    assert payloads(sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})) == whole


@quick
@given(pieces=st.lists(st.binary(max_size=50), max_size=30))
def test_event_reader_keeps_no_more_than_its_bound(pieces):
    reader = EventReader(100)
    try:
        for piece in pieces:
            reader.feed(piece)
    except EventTooLargeError:
        assert sum(map(len, pieces)) > 100
    else:
        assert len(reader.flush()) <= 100


@quick
@given(data=st.binary(max_size=300), cuts=places)
def test_report_reader_takes_any_bytes(data, cuts):
    reader = ReportReader()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        buffer, reports = reader.feed(data[start:end])
        for report in reports:
            assert 0 <= report.offset <= report.offset + report.size <= len(buffer)
