"""A short deterministic part of the fuzzing; the long run is ``python -m tests.fuzz --seconds 600``."""

import resource
from random import Random

import pytest

from harness.record.outcome import Completion, TextCompletion
from sut.client.response import ResponseReader
from sut.wire import answer_checks, chunk_answer, llamacpp, sglang
from tests.fuzz import answers, session
from tests.fuzz.session import TARGETS, HangError, run_one


def inputs(quick, all_of_them):
    """A part of the inputs in the quick loop, the others beside the engines."""
    others = pytest.param(range(quick, all_of_them), marks=pytest.mark.engine)
    return pytest.mark.parametrize("inputs", [range(quick), others], ids=["some", "others"])


@pytest.mark.engine
@inputs(30, 120)
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs(name, inputs, tmp_path):
    for number in inputs:
        run_one(name, number, tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # KiB


@inputs(3, 10)
@pytest.mark.parametrize("name", [*answers.STREAMS, *answers.WHOLE])
def test_the_undamaged_input_completes_in_any_pieces(name, inputs):
    streams = name in answers.STREAMS
    wire, content, asked = answers.STREAMS.get(name) or answers.WHOLE[name]
    response = answers.chunked(content if streams else [content])
    for number in inputs:
        outcome = answers.check(wire, response, asked, Random(number), streams=streams)
        assert isinstance(outcome, Completion | TextCompletion)


def believe_any_count(monkeypatch):
    monkeypatch.setattr(answer_checks, "wrong_count", lambda *_: None)
    true = answer_checks.whole_answer
    for module in (sglang, chunk_answer, llamacpp):
        monkeypatch.setattr(module, "whole_answer", lambda ids, claimed, *rest: true(ids, None, *rest))
    for module in (sglang, llamacpp):
        monkeypatch.setattr(module, "wrong_count", lambda *_: None)


def show_what_the_server_said(monkeypatch):
    for module in (sglang, chunk_answer, llamacpp):
        monkeypatch.setattr(module, "excerpt", lambda data: data.decode("latin-1"))


def read_for_ever(monkeypatch):
    def feed(self, data, arrived_ns):
        while True:
            continue

    monkeypatch.setattr(ResponseReader, "feed", feed)
    monkeypatch.setattr(session, "CPU_LIMIT_S", 0.05)


@pytest.mark.parametrize(
    ("fault", "found"),
    {
        believe_any_count: AssertionError,
        show_what_the_server_said: AssertionError,
        read_for_ever: HangError,
    }.items(),
)
def test_a_worse_reader_would_be_found(fault, found, monkeypatch, tmp_path):
    """Otherwise the tests above would prove nothing."""
    fault(monkeypatch)
    with pytest.raises(found):
        for number in range(400):
            for name in ("sglang-incremental", "openai", "llamacpp"):
                run_one(name, number, tmp_path)
