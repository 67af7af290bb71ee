"""The embedded engine against the real llama.cpp: the model's vocabulary, its life and its death."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from harness.config.benchmark import load_benchmark
from harness.config.choices import available_benchmarks
from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import load_tokenizer
from harness.errors import ConfigError, ServerError
from sut import drive
from sut.drive import engine_of
from sut.servers.embedded import engine as embedded
from sut.servers.embedded import tiny_models
from sut.servers.embedded.engine import EmbeddedEngine
from sut.servers.embedded.tiny_models import model_for, tiny_model
from sut.wire.llamacpp import NEUTRAL
from tests.faults.going import alive
from tests.kit import wait_until, wire_of
from tests.runs import ROOT, SAMPLES

CACHE = ROOT / ".cache"
URL = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    model = tiny_model("tiny-gpt-oss", CACHE)
    running = EmbeddedEngine(model.path, log_dir=tmp_path_factory.mktemp("engine"), slots=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSAFEPATH", "1")  # as hardened machines have it
        running.start()
    yield running
    running.stop()


def complete(url: str, prompt: list[int], **parameters) -> list[dict]:
    body = {"prompt": prompt, "stream": True, "return_tokens": True, "cache_prompt": False, **parameters}
    text = httpx.post(f"{url}/completion", json=body, timeout=60).text
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line]


@pytest.mark.engine
@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over 13 lazy dogs.",
        "  indented\n\n\tcode_block(x) == 0x1F  # don't",
        "Grüße, Привет, こんにちは, 🇨🇭👩‍🔬 \u2028 end",
    ],
)
def test_llama_cpp_reads_the_vocabulary_as_openai_does(engine, text):
    ids = tokenizer.encode(text)
    assert httpx.post(f"{engine.url}/tokenize", json={"content": text}).json()["tokens"] == ids


# Texts that tokenizers split in different ways.
HARD = [
    "",
    "   \n\n\n  \t\t \r\n\r\n x  y   z    ",
    "a\u00a0\u00a0b\u2003c\u3000d\u200b\u200de\ufefff",
    "1234567890 12 345.678 ١٢٣ ² ½ Ⅷ 1a2b3c 2026-01-01",
    "I'll we've they're can't it's I'D WE'VE you'Re o'clock ''s 's don\u2019t",
    "!!!??? ...--- (a)[b]{c}<d> #$%^&*_+=|\\~`\"';:,./ -->",
    "e\u0301 नमस्ते ไทย العربية עברית 한국어 中文 \U00010348 🇨🇭👩‍🔬 ﬁ \u210c Å ǅ",
    "CamelCaseIDs snake_case kebab-case ALL\x00\x01\x7f\x1b[0m",
    "<|begin_of_text|>a<|eot_id|>b <|end_of_text|>  <|nope|><|unused_2000|> <|python_tag|><|eom_id|>\n",
    "<think>x</think>\n\n<｜User｜>q<｜Assistant｜><｜end▁of▁sentence｜> <｜begin▁of▁sentence｜><|User|>",
]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "sample", "begin"), [("tiny-llama", "cnn_sample", 128000), ("tiny-deepseek", "r1_sample", 0)]
)
def test_a_text_has_the_ids_of_the_samples_tokenizer(name, sample, begin, tmp_path):
    """Those of ``tokenizers`` for the file that the evaluator decodes with."""
    known = load_tokenizer(SAMPLES / f"{sample}_tokenizer.json")
    texts = [*HARD, *texts_of(sample)]
    model = tiny_model(name, CACHE).path
    with EmbeddedEngine(model, log_dir=tmp_path, slots=1) as running, httpx.Client() as client:
        given = [tokenized(client, running.url, text) for text in texts]
    assert given == [[begin, *known.encode(text, add_special_tokens=False).ids] for text in texts]


def texts_of(sample: str) -> list[str]:
    """Every text of a sample's rows."""
    if (file := SAMPLES / f"{sample}.json").exists():
        rows = json.loads(file.read_text())
    else:
        rows = pq.read_table(SAMPLES / f"{sample}.parquet").to_pylist()
    return [value for row in rows for value in row.values() if isinstance(value, str)]


def tokenized(client: httpx.Client, url: str, text: str) -> list[int]:
    """As for the prompt of a completion."""
    body = {"content": text, "add_special": True, "parse_special": True}
    return client.post(f"{url}/tokenize", json=body).json()["tokens"]


@pytest.mark.engine
def test_special_tokens_have_the_harmony_ids(engine):
    names = "<|start|>system<|message|><|end|><|channel|><|return|><|call|><|constrain|>"
    body = {"content": names, "parse_special": True}
    expected = [200006, 17360, 200008, 200007, 200005, 200002, 200012, 200003]
    assert httpx.post(f"{engine.url}/tokenize", json=body).json()["tokens"] == expected


@pytest.mark.engine
@pytest.mark.parametrize("token", [b"\xe2", b"\xf0\x9f", b" \xd8", b"\xf0\x9f\x91", b"ok", b"\xa9"])
def test_the_stream_carries_every_id(engine, token):
    """llama.cpp withholds ids while the text ends inside a UTF-8 character; the token types prevent it."""
    forced = tokenizer.ranks()[token]
    *events, last = complete(engine.url, [200006], n_predict=3, logit_bias=[[forced, 1000]])
    assert [event["tokens"] for event in events] == [[forced]] * 3
    assert last["tokens_predicted"] == 3


@pytest.mark.engine
def test_the_end_of_text_is_a_token_and_stops(engine):
    first, last = complete(engine.url, [200006], n_predict=9, logit_bias=[[200002, 1000]])
    assert (first["tokens"], last["stop_type"], last["tokens_predicted"]) == ([200002], "eos", 1)


@pytest.mark.engine
def test_more_streams_than_slots_are_all_served(engine):
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda i: complete(engine.url, [i], n_predict=4, ignore_eos=True), range(24)))
    assert [len(events) for events in answers] == [5] * 24


@pytest.mark.engine
def test_ctrl_c_is_the_supervisors_business(engine):
    os.kill(engine.pid, signal.SIGINT)
    time.sleep(0.1)
    assert httpx.get(f"{engine.url}/health").status_code == 200


@pytest.mark.engine
def test_stop_ends_the_process_at_once(tmp_path):
    with EmbeddedEngine(tiny_model("tiny-gpt-oss", CACHE).path, log_dir=tmp_path, slots=1) as running:
        process = psutil.Process(running.pid)
    assert not alive([process])
    assert running.pid is None
    running.stop()


@pytest.mark.engine
def test_engines_of_two_runs_have_a_log_each(tmp_path):
    """The second one emptied the log of the first, to which both then wrote."""
    model = tiny_model("tiny-gpt-oss", CACHE).path
    with EmbeddedEngine(model, log_dir=tmp_path, slots=1) as first:
        before = first.log_path.read_bytes()
        with EmbeddedEngine(model, log_dir=tmp_path, slots=1) as second:
            assert [first.log_path.name, second.log_path.name] == [
                "embedded_engine.log",
                "embedded_engine_2.log",
            ]
            assert before and first.log_path.read_bytes().startswith(before)
    with EmbeddedEngine(model, log_dir=tmp_path, slots=1) as third:
        assert third.log_path == first.log_path


STARTER = """
import os, signal, sys, time
from pathlib import Path
from sut.servers.embedded.engine import EmbeddedEngine
engine = EmbeddedEngine(Path(sys.argv[1]), log_dir=Path(sys.argv[2]), slots=1)
engine.start()
if os.fork() == 0:
    time.sleep(600)  # a forked worker that outlives its parent, and the test, and holds the engine's pipe
print(engine.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.engine
@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGTERM])
def test_the_engine_dies_with_its_starter(tmp_path, killer):
    command = [sys.executable, "-c", STARTER, str(tiny_model("tiny-gpt-oss", CACHE).path), str(tmp_path)]
    starter = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert starter.stdout is not None
    try:
        engine = psutil.Process(int(starter.stdout.readline()))
        assert alive([engine])
        starter.send_signal(killer)
        starter.wait(60)
        wait_until(lambda: not alive([engine]))
    finally:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.stdout.close()


def test_a_broken_model_is_a_server_error_with_the_engines_words(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, but not really")
    engine = EmbeddedEngine(broken, log_dir=tmp_path / "logs")
    with pytest.raises(ServerError, match=r"broken\.gguf"):
        engine.start()
    assert engine.pid is None


def test_the_log_of_another_user_is_left_to_that_user(tmp_path, monkeypatch):
    """Of a group that shares a checkout: its users may write into the folder, not into each other's files."""
    (tmp_path / "embedded_engine.log").write_text("another user's")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(ServerError, match=r"embedded_engine_2\.log ends with"):
        EmbeddedEngine(tmp_path / "broken.gguf", log_dir=tmp_path, slots=1).start()
    assert (tmp_path / "embedded_engine.log").read_text() == "another user's"


def test_a_model_that_another_user_wrote_under_a_strict_umask_names_the_remedy(tmp_path, monkeypatch):
    (tmp_path / "tiny-gpt-oss-v2.gguf").write_bytes(b"")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=r"not read it; let the owner run chmod a\+r "):
        tiny_model("tiny-gpt-oss", tmp_path)


def test_a_folder_of_models_that_another_user_closed_names_another_place(tmp_path, monkeypatch):
    def closed(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", closed)
    with pytest.raises(ConfigError, match="denied; let this user write there, or export XDG_CACHE_HOME="):
        tiny_model("tiny-gpt-oss", tmp_path)


def test_an_engine_that_is_not_ready_in_time_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "_START_SECONDS", 0.2)
    engine = EmbeddedEngine(tiny_model("tiny-gpt-oss", CACHE).path, log_dir=tmp_path)
    with pytest.raises(ServerError, match=r"\b0\.2 s"):
        engine.start()
    assert engine.pid is None


def test_without_a_loopback_interface_the_engine_is_not_waited_for(tmp_path):
    """Its own network begins with the interface down; the 60 s of a start passed without a word of it."""
    alone = ["unshare", "-rn"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make a network of his own (unshare -rn)")
    program = (
        "import sys; from pathlib import Path; from sut.servers.embedded.engine import EmbeddedEngine; "
        "EmbeddedEngine(Path(sys.argv[1]), log_dir=Path(sys.argv[2])).start()"
    )
    words = [*alone, sys.executable, "-c", program, tiny_model("tiny-gpt-oss", CACHE).path, tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert "loopback interface is down" in done.stderr.splitlines()[-1]


@pytest.mark.engine
def test_the_seed_arrives_and_a_least_length_is_unknown(engine):
    """llama.cpp answers with the settings that it uses, and drops names that it does not know."""
    *_, last = complete(engine.url, [1, 2], n_predict=2, seed=42, min_tokens=2, min_new_tokens=2, n_min=2)
    settings = last["generation_settings"]
    assert settings["seed"] == 42
    assert {name for name in settings if "min" in name.split("_")} == {"min_p", "min_keep"}


# Settings that do not move which token is drawn: those of a sampler that is off, and of the answer's form.
OF_OTHERS = re.compile(
    r".*_(exponent|threshold|decay|tau|eta|base|length|last_n|breakers|format|content|prompt|probs|token)|"
    r"max_tokens|n_keep|n_discard|min_keep|samplers|speculative\..*|backend_sampling|lora"
)


@pytest.mark.engine
def test_a_request_names_every_setting_that_llama_server_has_a_flag_for(engine):
    """A flag, such as --dynatemp-range, is the default of each request that does not name it."""
    settings = httpx.get(f"{engine.url}/props").json()["default_generation_settings"]["params"]
    named = json.loads(wire_of("llamacpp", seed=1).render(b"[1]"))
    assert {name for name in settings if not OF_OTHERS.fullmatch(name)} <= named.keys()
    *_, last = complete(engine.url, **named)
    assert {name: last["generation_settings"][name] for name in NEUTRAL} == NEUTRAL


WRITER = """
import sys
from pathlib import Path
from sut.servers.embedded.tiny_models import tiny_model
tiny_model(sys.argv[1], Path(sys.argv[2]))
"""


@pytest.mark.engine
@pytest.mark.parametrize("name", ["tiny-gpt-oss", "tiny-llama", "tiny-deepseek"])
def test_the_model_is_written_once_by_two_processes_and_always_the_same(tmp_path, name):
    command = [sys.executable, "-c", WRITER, name, str(tmp_path)]
    writers = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [writer.wait(300) for writer in writers] == [0, 0]
    (written,) = tmp_path.glob("*.gguf*")
    assert not list(tmp_path.glob("*.partial*"))
    assert written.read_bytes() == tiny_model(name, CACHE).path.read_bytes()


@pytest.mark.parametrize("may_be_written", [True, False])
def test_where_the_log_and_the_model_are(tmp_path, monkeypatch, may_be_written):
    """Users of one checkout that only its owner may change have them in their own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sut.drive.os.access", lambda path, mode: may_be_written and path.exists())
    own = structs.replace(load_benchmark("gpt-oss-120b"), embedded_model="own.gguf")
    for cache in (CACHE, tmp_path / "of a new checkout"):
        monkeypatch.setattr(drive, "_CACHE", cache)
        log = engine_of(own, slots=1, context=8).log_path
        assert log.parent == (cache if may_be_written else tmp_path / "mlperf-llm-harness")


@pytest.mark.parametrize(
    ("benchmark", "tokens", "warned"),
    [("gpt-oss-120b", 10_240, True), ("gpt-oss-120b", 128, False), ("deepseek-r1", 20_000, False)],
)
def test_long_answers_are_announced_before_they_cost_minutes(monkeypatch, caplog, benchmark, tokens, warned):
    engine = SimpleNamespace(url=URL, death=lambda: "")
    monkeypatch.setattr(drive, "engine_of", lambda *words: nullcontext(engine))
    parameters = SimpleNamespace(max_new_tokens=tokens)
    plan = SimpleNamespace(backend="embedded", benchmark=load_benchmark(benchmark), parameters=parameters)
    with drive.serving_urls(plan, SimpleNamespace(longest=lambda limit: limit)) as (urls, _):
        assert urls == (URL,)
    assert any("--max-new-tokens 32" in text for text in caplog.messages) == warned


def test_what_fails_at_an_engine_that_has_died_is_its_death(monkeypatch):
    """A refused connection would be said of a server that is up."""
    plan = SimpleNamespace(backend="embedded", benchmark=None, parameters=SimpleNamespace(max_new_tokens=1))
    samples = SimpleNamespace(longest=lambda limit: limit)
    for death, said in (("", "refused"), ("the engine was killed", "killed")):
        engine = SimpleNamespace(url=URL, death=lambda death=death: death)
        monkeypatch.setattr(drive, "engine_of", lambda *words, engine=engine: nullcontext(engine))
        with pytest.raises(ServerError, match=said), drive.serving_urls(plan, samples):
            raise ServerError("connection refused")


def test_an_unusable_cache_directory_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="tiny-gpt-oss"):
        tiny_model("tiny-gpt-oss", tmp_path / "file" / "cache")


@pytest.mark.parametrize(("name", "message"), [(None, "no tiny model for gpt-oss-120b"), ("x", "tiny-llama")])
def test_a_benchmark_without_a_tiny_model(tmp_path, name, message):
    benchmark = structs.replace(load_benchmark("gpt-oss-120b"), embedded_model=name)
    with pytest.raises(ConfigError, match=message):
        model_for(benchmark, tmp_path)


@pytest.mark.parametrize("name", available_benchmarks())
def test_every_tiny_model_has_a_recipe(tmp_path, monkeypatch, name):
    """Without the engine's packages it is the next thing that is missing."""
    monkeypatch.setattr(tiny_models, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"xllamacpp.*gguf.*\./setup\.sh"):
        model_for(load_benchmark(name), tmp_path)
