"""Whether the run fits what servers report: model names, revision, equal replicas, context, vocabulary."""

import re
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec import structs

from harness.config.benchmark import load_benchmark
from harness.errors import ServerError
from harness.report.run_console import render_plan, render_summary
from sut.servers.server_checks import (
    Match,
    check_capacity,
    match_names,
    model_deviations,
    model_warnings,
    parameter_warnings,
    stream_warnings,
)
from tests.kit import VOCABULARY, parameters
from tests.records import ENDED, started
from tests.sut.pages import facts

NAME = "openai/gpt-oss-120b"
MODELS = tomllib.loads((Path(__file__).parent / "model_names.toml").read_text())
NAMES = [
    (wanted, name, Match[kind.upper()])
    for wanted, kinds in MODELS.items()
    for kind, names in kinds.items()
    for name in names
]


@pytest.mark.parametrize(("wanted", "name", "expected"), NAMES, ids=lambda value: str(value))
def test_one_name(wanted, name, expected):
    assert match_names([name], wanted) is expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["/model", "openai/gpt-oss-120b"], Match.SAME),
        (["/models/gpt-oss-120b", "my-server"], Match.SAME),
        (["amd/gpt-oss-120b-w-mxfp4-a-fp8-Mlperf", "openai/gpt-oss-120b"], Match.VARIANT),
        (["nvidia/gpt-oss-120b-Eagle3-v2", "openai/gpt-oss-120b"], Match.OTHER),
        (["/model", "default"], Match.OTHER),
        ([], Match.OTHER),
    ],
)
def test_path_and_served_name_together(names, expected):
    assert match_names(names, NAME) is expected


# -- the run against its servers


def told(**more):
    return [facts("http://a", **more)]


GPT_OSS = load_benchmark("gpt-oss-120b")
REVISION = GPT_OSS.model_revision


OF_OTHER = f"serves revision {'0' * 40}, the rules say {REVISION}"
OF_ANOTHER = f"serves revision 1f4b2c7, the rules say {REVISION}"
RULES = f"the rules say {NAME}"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
DRAFT = "/models/gpt-oss-120b-eagle"


@pytest.mark.parametrize(
    ("said", "deviation", "warns"),
    [
        ({"model": NAME}, "", False),
        ({"model": NAME, "model_path": "/model"}, "", True),
        (
            {"model": NAME, "model_path": "openai/gpt-oss-20b"},
            f"serves openai/gpt-oss-20b as {NAME}: the path is of openai/gpt-oss-20b, {RULES}",
            False,
        ),
        (
            {"model": NAME, "model_path": "/models/Llama-3.1-8B-Instruct"},
            f"serves /models/Llama-3.1-8B-Instruct as {NAME}: the path is of {LLAMA}, {RULES}",
            False,
        ),
        ({"model": NAME, "revision": REVISION}, "", False),
        ({"model": NAME, "revision": "main"}, "", False),
        ({"model": NAME, "revision": "0" * 40}, OF_OTHER, False),
        ({"model": "gpt-oss-120b", "model_path": DRAFT}, f"serves {DRAFT} as gpt-oss-120b, {RULES}", False),
        ({"model": "/models/gpt-oss-120b-b5c939d"}, "", False),
        ({"model": "/models/gpt-oss-120b-1f4b2c7"}, OF_ANOTHER, False),
        ({"model": "gpt-oss-120b", "model_path": "/models/gpt-oss-120b-1f4b2c7/"}, OF_ANOTHER, False),
        ({"model": "amd/gpt-oss-120b-w-mxfp4-a-fp8-Mlperf"}, "", True),
        ({"model": "amd/gpt-oss-120b-w-mxfp4-a-fp8-Mlperf", "revision": "0" * 40}, "", True),
        ({"model": NAME, "weights_gb": 61.2}, "", False),
        (
            {"model": NAME, "weights_gb": 0.03},
            f"serves {NAME} with weights of 0.03 GB, which are not those of {NAME} (at least 30 GB)",
            False,
        ),
        ({"model": "openai/gpt-oss-20b"}, f"serves openai/gpt-oss-20b, {RULES}", False),
        ({}, f"does not name its model, {RULES}", False),
    ],
)
def test_served_model(said, deviation, warns):
    deviations = list(model_deviations(told(**said), GPT_OSS))
    assert deviations == ([f"http://a {deviation}"] if deviation else [])
    assert bool(list(model_warnings(told(**said), GPT_OSS))) is warns
    plan = render_plan(structs.replace(started(), servers=tuple(told(**said))))
    (line,) = [line for line in plan.splitlines() if line.startswith("server ")]
    if "model_path" in said:
        assert f"serves {said['model_path']} as {said['model']} (" in line
    assert "None" not in line
    assert ("revision not reported" in line) is ("revision" not in said)


@pytest.mark.parametrize(
    ("model", "benchmarks"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b or llama3.1-8b-edge"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
        ("openai/gpt-oss-20b", None),
    ],
)
def test_the_benchmark_of_a_served_model_is_named(model, benchmarks):
    (text,) = model_deviations(told(model=model), GPT_OSS)
    assert f", the rules say {GPT_OSS.model}" in text
    assert text.partition(" is --benchmark ")[2] == (benchmarks or "")


@pytest.mark.parametrize(
    "said",
    [
        {"model": GPT_OSS.model, "settings": {"load_format": "dummy"}},
        {"model": "/c/gpt-oss-120b-dummy-weights-2-layers", "wire": "openai"},
    ],
)
def test_random_weights_are_the_first_deviation_of_a_run(said):
    (text,) = model_deviations(told(**said), GPT_OSS)
    what = f" has random weights ({said['model']}): its answers mean nothing, {RULES}"
    assert text == f"http://a{what}"
    record = structs.replace(ENDED, servers=tuple(told(**said)), deviations=(text, "another"))
    (line,) = [line for line in render_summary(record).splitlines() if line.startswith("Result: ")]
    assert "NOT OFFICIAL: random weights, one of 2 deviations" in line


def test_a_model_without_rules_is_expected_by_name_alone():
    model = structs.replace(GPT_OSS, official=False)
    (text,) = model_deviations(told(model="openai/gpt-oss-20b"), model)
    assert text.endswith(", expected openai/gpt-oss-120b")
    (text,) = model_deviations(told(model=LLAMA), model)
    assert text == f"http://a serves {LLAMA}, expected {NAME}"
    (text,) = model_warnings(told(model="unsloth/gpt-oss-120b-GGUF"), model)
    assert text == f"http://a serves unsloth/gpt-oss-120b-GGUF, a quantised or converted form of {NAME}"
    unknown = structs.replace(model, model_revision=None, least_weights_gb=None)
    assert not list(model_deviations(told(model=NAME, revision="0" * 40, weights_gb=1.0), unknown))
    (text,) = model_warnings(told(model="unsloth/gpt-oss-120b-GGUF"), GPT_OSS)
    assert "measurements.json must say so" in text


@pytest.mark.parametrize(
    ("interval", "warns"), [(1, True), (49, True), (50, False), (500, False), (None, False)]
)
def test_a_small_stream_interval_is_named_where_offline_streams(interval, warns):
    found = list(stream_warnings(told(stream_interval=interval)))
    said = f"answers are streamed and no times are judged, and http://a has stream interval {interval}: "
    assert [line.startswith(said) and "--stream-interval 50 or more" in line for line in found] == [
        True
    ] * warns


@pytest.mark.parametrize(
    ("said", "needed", "refused"),
    [
        ({"context_length": 10340}, 10340, ""),
        ({"context_length": 10339}, 10340, "10339 10340"),
        ({}, 10**6, ""),
        ({"vocabulary_size": 201088}, 10, ""),
        ({"vocabulary_size": 201087}, 10, "201087 201088"),
    ],
)
def test_capacity(said, needed, refused):
    servers = [facts("http://a", context_length=10**9), facts("http://b", **said)]
    with pytest.raises(ServerError, match=r"^http://b: ") if refused else nullcontext() as caught:
        check_capacity(servers, needed, VOCABULARY, GPT_OSS)
    if caught:
        assert re.findall(r"\d+", str(caught.value)) == refused.split()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "--benchmark llama3.1-8b or llama3.1-8b-edge"),
        ("openai/gpt-oss-120b", "raise the server's context length"),
        ("tiny", "raise the server's context length"),
    ],
)
def test_a_server_too_small_for_another_benchmark_names_its_own(name, remedy):
    """It was asked for a longer context, where --benchmark had been forgotten."""
    with pytest.raises(ServerError, match=f"{re.escape(remedy)}$"):
        check_capacity(told(model=name, context_length=2668), 10340, VOCABULARY, GPT_OSS)


@pytest.mark.parametrize(
    ("wire", "least", "warns"),
    [("llamacpp", 1, 1), ("llamacpp", None, 0), ("openai", 1, 0), ("sglang", 1, 0)],
)
def test_a_least_length_that_cannot_be_sent_is_a_warning(wire, least, warns):
    found = list(parameter_warnings(told(wire=wire), parameters(min_new_tokens=least)))
    named = [line.startswith("http://a: x takes no min_new_tokens, here 1: ") for line in found]
    assert named == [True] * warns
