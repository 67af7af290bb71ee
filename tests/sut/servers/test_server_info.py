"""Whether the run fits what servers report: model, revision, equal replicas, context, vocabulary."""

import re

import pytest
from msgspec import structs

from harness.config.benchmark import load_benchmark
from harness.errors import ServerError
from harness.report.console import render_plan
from sut.servers.server_info import (
    check_capacity,
    model_deviations,
    model_warnings,
    parameter_warnings,
    stream_warnings,
)
from tests.kit import VOCABULARY, parameters
from tests.records import started
from tests.sut.pages import facts

# -- another model, or another form of it


def told(**more):
    return [facts("http://a", **more)]


GPT_OSS = load_benchmark("gpt-oss-120b")
REVISION = GPT_OSS.model_revision


@pytest.mark.parametrize(
    ("said", "deviates", "warns"),
    [
        ({"model": "openai/gpt-oss-120b"}, False, False),
        ({"model": "openai/gpt-oss-120b", "model_path": "/model"}, False, True),
        ({"model": "openai/gpt-oss-120b", "revision": REVISION}, False, False),
        ({"model": "openai/gpt-oss-120b", "revision": "main"}, False, False),
        ({"model": "openai/gpt-oss-120b", "revision": "0" * 40}, True, False),
        ({"model": "gpt-oss-120b", "model_path": "/models/gpt-oss-120b-eagle"}, True, False),
        ({"model": "amd/gpt-oss-120b-w-mxfp4-a-fp8-Mlperf"}, False, True),
        ({"model": "openai/gpt-oss-20b"}, True, False),
        ({}, True, False),
    ],
)
def test_served_model(said, deviates, warns):
    deviations = list(model_deviations(told(**said), GPT_OSS))
    assert bool(deviations) is deviates
    assert bool(list(model_warnings(told(**said), GPT_OSS))) is warns
    plan = render_plan(structs.replace(started(), servers=tuple(told(**said))))
    (line,) = [line for line in plan.splitlines() if line.startswith("server ")]
    if "model_path" in said:
        assert f"serves {said['model_path']} as {said['model']} (" in line
    assert "None" not in "".join(deviations) + line
    assert ("revision not reported" in line) is ("revision" not in said)


def test_a_model_without_rules_is_expected_by_name_alone():
    model = structs.replace(GPT_OSS, official=False)
    (text,) = model_deviations(told(model="openai/gpt-oss-20b"), model)
    assert text.endswith(", expected openai/gpt-oss-120b")
    (text,) = model_warnings(told(model="unsloth/gpt-oss-120b-GGUF"), model)
    assert "measurements.json" not in text


@pytest.mark.parametrize(
    ("interval", "warns"), [(1, True), (49, True), (50, False), (500, False), (None, False)]
)
def test_a_small_stream_interval_is_named_where_offline_streams(interval, warns):
    assert bool(list(stream_warnings(told(stream_interval=interval)))) is warns


# -- capacity


@pytest.mark.parametrize(
    ("context", "prompt", "ok"),
    [(10340, 100, True), (10339, 100, False), (None, 10**6, True), (100, 1, False)],
)
def test_context_length(context, prompt, ok):
    said = [facts("http://a", context_length=10**9), facts("http://b", context_length=context)]
    if ok:
        check_capacity(said, prompt, 10240, VOCABULARY)
        return
    expected = (
        f"http://b: context of {context} tokens, expected {prompt + 10240} (longest prompt {prompt} + max_new"
    )
    with pytest.raises(ServerError, match=re.escape(expected)):
        check_capacity(said, prompt, 10240, VOCABULARY)


@pytest.mark.parametrize(
    ("vocabulary", "ok"), [(201088, True), (None, True), (201087, False), (49152, False)]
)
def test_vocabulary(vocabulary, ok):
    said = [facts("http://a", vocabulary_size=vocabulary)]
    if ok:
        check_capacity(said, 10, 10, VOCABULARY)
        return
    with pytest.raises(ServerError, match=f"model with {vocabulary} token ids, the dataset needs 201088"):
        check_capacity(said, 10, 10, VOCABULARY)


@pytest.mark.parametrize(
    ("wire", "least", "warns"),
    [("llamacpp", 1, 1), ("llamacpp", None, 0), ("openai", 1, 0), ("sglang", 1, 0)],
)
def test_a_least_length_that_cannot_be_sent_is_a_warning(wire, least, warns):
    assert len(list(parameter_warnings(told(wire=wire), parameters(min_new_tokens=least)))) == warns
