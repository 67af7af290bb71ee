"""Prompts as the requests of a run carry them."""

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.config.client_plan import MOST_CONCURRENCY
from harness.config.protocol import Protocol
from harness.config.run_options import parse_options
from harness.config.run_plan import resolve_plan
from harness.dataset.model_tokenizer import load_tokenizer
from harness.dataset.prompt_texts import PromptTexts
from harness.dataset.samples import load_samples
from harness.errors import ConfigError, DatasetError
from harness.files import sha256_of
from harness.record.settled import ServerInfo
from sut.prepare import as_sent, place_workers, prepare_client
from sut.run import run
from sut.servers.discovery import Servers
from sut.supervisor.placement import Load
from sut.wire import make_wire
from tests.runs import PERFORMANCE, SAMPLES, run_here, without_waits, write_dataset
from tests.stub import StubServer, refused_url

R1 = SAMPLES / "r1_sample_tokenizer.json"
LOAD = Load(open_at_most=4)


def client_of(dataset, api, benchmark="gpt-oss-120b", *flags):
    words = ("--benchmark", benchmark, "--input-file", dataset, "--backend", "vllm", "--api", api, *flags)
    return resolve_plan(parse_options(list(map(str, words)))).client


def samples_of(client):
    return load_samples(client.input_file, vocabulary_size=client.benchmark.vocabulary_size)


def test_workers_of_its_own_number_need_open_files_too(monkeypatch):
    """125 workers for 4,000 connections: the run ended with "Too many open files"."""
    for module in ("supervisor.placement", "processes.machine_limits"):
        monkeypatch.setattr(f"sut.{module}.hard_descriptor_limit", lambda: 96)
    client = client_of(PERFORMANCE, "completions")
    with pytest.raises(
        ConfigError,
        match=r"689 open files for 125 workers \(with 96 open files each\), the limit is 96; raise .*less",
    ):
        place_workers(client, Load(open_at_most=4000))


@pytest.mark.parametrize("api", ["completions", "chat-ids"])
def test_apis_of_ids_get_ids(api):
    client = client_of(PERFORMANCE, api)
    samples = samples_of(client)
    assert as_sent(client, samples) is samples
    with pytest.raises(ConfigError, match="--tokenizer nowhere: no such file or folder"):  # though unused
        as_sent(client_of(PERFORMANCE, api, "gpt-oss-120b", "--tokenizer", "nowhere"), samples)


@pytest.mark.parametrize(
    ("benchmark", "file", "api"),
    [("llama3.1-8b", "cnn_sample.json", "completions-text"), ("deepseek-r1", "r1_sample.parquet", "chat")],
)
def test_the_tokenizer_beside_the_dataset(benchmark, file, api):
    client = client_of(SAMPLES / file, api, benchmark)
    sent = as_sent(client, samples_of(client))
    beside = SAMPLES / f"{file.partition('.')[0]}_tokenizer.json"
    assert (sent.as_text.tokenizer, sent.as_text.tokenizer_sha256) == (str(beside), sha256_of(beside))
    assert len(sent.texts) == len(sent) == sent.as_text.prompts


def with_fields(client):
    """Samples whose messages need a field of the request."""
    facts = PromptTexts(prompts=64, messages=True, fields={"reasoning_effort": "low"}, today="2026-01-01")
    return replace(samples_of(client), texts=[b"[]"] * 64, as_text=facts)


def prepared(client, dialect, load=LOAD):
    server = ServerInfo(url="http://127.0.0.1:9", wire=dialect, engine="any")
    placement = place_workers(client, load)
    return prepare_client(client, with_fields(client), load, placement, Servers((server,)))


@pytest.mark.parametrize(
    ("load", "expected"),
    [(Load(open_at_most=1), 1), (Load(all_at_once=True), None)],
)
def test_a_limit_that_the_scenario_lowers_is_checked_and_shown_so(load, expected):
    """SingleStream's plan had "1048576 at once", or it was refused for that many local ports."""
    client = client_of(PERFORMANCE, "chat", "gpt-oss-120b", "--max-concurrency", MOST_CONCURRENCY)
    if expected is None:
        with pytest.raises(ConfigError, match="1048576"):
            prepared(client, "openai", load)
    else:
        assert prepared(client, "openai", load).concurrency == expected


def test_fields_that_messages_need_are_in_every_request(tmp_path):
    client = client_of(PERFORMANCE, "chat")
    for dialect in ("openai", "sglang", "trtllm"):
        assert prepared(client, dialect).plan.parameters.extra == {"reasoning_effort": "low"}
    of_llamacpp = prepared(client, "llamacpp").plan.parameters.extra
    assert of_llamacpp == {"chat_template_kwargs": {"reasoning_effort": "low"}}
    given = tmp_path / "generation.json"
    given.write_bytes(b'{"chat_template_kwargs": {"reasoning_effort": "high"}}')
    other = client_of(PERFORMANCE, "chat", "gpt-oss-120b", "--generation-config", given)
    with pytest.raises(ConfigError, match=r"chat_template_kwargs is .*'high'.*need .*'low'"):
        prepared(other, "llamacpp")


@pytest.mark.parametrize(
    ("benchmark", "file"), [("llama3.1-8b", "cnn_sample.json"), ("deepseek-r1", "r1_sample.parquet")]
)
@pytest.mark.parametrize("dialect", ["openai", "trtllm", "sglang"])
def test_servers_put_before_a_text_what_it_is_sent_without(benchmark, file, dialect):
    """vLLM 0.33 with a Llama counted 161 tokens of the first text so, as the row has, and 160 with false."""
    client = client_of(SAMPLES / file, "completions-text", benchmark)
    server = ServerInfo(url="http://127.0.0.1:9", wire=dialect, engine="any")
    load = Load(open_at_most=4)
    samples = as_sent(client, samples_of(client))
    found = prepare_client(client, samples, load, place_workers(client, load), Servers((server,)))
    wire = make_wire(
        Protocol(dialect, "completions-text", "text"),
        found.plan.parameters,
        client.benchmark.vocabulary_size,
        "m",
    )
    body = json.loads(wire.render(found.samples.prompt(0)))
    assert not body["prompt"].startswith(found.samples.as_text.put_before)
    assert body.get("add_special_tokens", True) is True


def test_another_date_than_the_servers_is_a_deviation():
    *_, deviation = prepared(client_of(PERFORMANCE, "chat"), "openai").deviations
    assert "has 2026-01-01 (vLLM" in deviation


def test_what_a_run_keeps_of_its_texts(tmp_path):
    """Also its dry run: a search is continued only with the same tokenizer."""
    first = load_samples(SAMPLES / "r1_sample.parquet", vocabulary_size=129280).tokens(0).tolist()
    with StubServer(template=lambda messages: first, returns_ids=False) as stub:  # as the model's own
        words = ["--benchmark", "deepseek-r1", "--input-file", SAMPLES / "r1_sample.parquet", "--api", "chat"]
        words += ["--backend", "vllm", "--dry-run", "--server-url", stub.url, "--output-dir", tmp_path]
        record = run(resolve_plan(parse_options(list(map(str, words)))))
    kept = record.settled.prompts
    assert (kept.prompts, kept.messages, kept.own_template) == (32, True, False)
    assert Path(kept.tokenizer) == SAMPLES / "r1_sample_tokenizer.json"
    assert (record.encoded.tokenizer, record.encoded.tokenizer_sha256) == (
        kept.tokenizer,
        record.tokenizer_sha256,
    )


def odd_prompts(folder):
    """A dataset whose rows 5, 6 and 9 are no text, with a tokenizer beside it."""
    word, half = (load_tokenizer(R1).encode(text, add_special_tokens=False).ids for text in ("two", "漢"))
    prompts = [[0, 128803, *(half[:1] if row in (5, 6, 9) else word), 128804] for row in range(12)]
    shutil.copy(R1, folder / "odd_tokenizer.json")
    return write_dataset(folder / "odd.parquet", prompts)


@pytest.mark.parametrize("api", ["completions-text", "chat"])
def test_prompts_that_text_cannot_carry_are_refused_before_a_server_is_asked(tmp_path, capfd, api):
    dataset = odd_prompts(tmp_path)
    with refused_url() as url:
        words = ("--benchmark", "deepseek-r1", "--input-file", dataset, "--backend", "vllm", "--api", api)
        done = run_here(capfd, tmp_path, *words, "--server-url", url)
    assert (done.code, done.stdout) == (2, "")
    (line,) = without_waits(done.stderr)
    assert "3 of 12 prompts cannot be sent as text (rows 5, 6, 9)" in line
    assert "omit --api" in line


def test_rows_are_named_as_in_the_file(tmp_path):
    client = client_of(odd_prompts(tmp_path), "completions-text", "deepseek-r1")
    with pytest.raises(DatasetError, match=r"\(rows 6, 9\)"):
        as_sent(client, samples_of(client).part(6, 4), 6)


@pytest.mark.parametrize("as_measured", [False, True])
def test_streams_that_cost_the_server_are_named_where_nothing_asks_for_them(as_measured):
    """The accuracy run of a point streams as the point did; a larger interval would spoil its TPOT."""
    client = client_of(PERFORMANCE, "completions", "gpt-oss-120b", "--stream", "on")
    server = ServerInfo(url="http://127.0.0.1:9", wire="openai", engine="any", stream_interval=1)
    load = Load(open_at_most=4, all_at_once=True, as_measured=as_measured)
    samples = samples_of(client)
    found = prepare_client(client, samples, load, place_workers(client, load), Servers((server,)))
    assert any("no times are judged" in text for text in found.warnings) is not as_measured
