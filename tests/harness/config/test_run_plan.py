"""The resolved plan: every flag checked before anything is started."""

import json
import operator
from dataclasses import replace

import msgspec
import pytest

from harness.config.generation import official_parameters
from harness.config.run_options import RunOptions, parse_options
from harness.config.run_plan import resolve_plan
from harness.errors import ConfigError


def plan_of(*flags):
    return resolve_plan(parse_options(["--input-file", "perf.parquet", *flags]))


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ([], "perf/perf_eval_ref.parquet"),
        (["--accuracy"], "acc/acc_eval_ref.parquet"),
        (["--benchmark", "llama3.1-8b"], "cnn_eval.json"),
    ],
)
def test_the_dataset_is_the_one_that_was_downloaded(tmp_path, nothing_downloaded, words, file):
    with pytest.raises(ConfigError, match=rf"no --input-file, .* data/{file} .*download\.sh --benchmark .*"):
        resolve_plan(parse_options(words))
    for folder in (tmp_path / "checkout", tmp_path):  # that of the working folder comes first
        (folder / "data" / file).parent.mkdir(parents=True)
        (folder / "data" / file).touch()
        assert resolve_plan(parse_options(words)).client.input_file == folder / "data" / file
    given = resolve_plan(parse_options([*words, "--input-file", "other.parquet"]))
    assert given.client.input_file == tmp_path / "other.parquet"


def test_a_compliance_test_has_a_dataset_of_its_own(tmp_path, nothing_downloaded):
    (tmp_path / "a.config").write_text("*.*.mode = 2\n")
    with pytest.raises(ConfigError, match=r"--audit-config: .* add --input-file"):
        resolve_plan(parse_options(["--audit-config", "a.config"]))


@pytest.mark.parametrize("flag", ["--max-samples", "--num-workers", "--max-concurrency", "--max-new-tokens"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_counts_below_one(flag, value):
    with pytest.raises(ConfigError, match=f"{flag}.* is {value}"):
        plan_of(flag, value)


@pytest.mark.parametrize(
    ("flag", "value", "field", "expected"),
    [
        ("--max-samples", "1", "max_samples", 1),
        ("--num-workers", "1", "client.num_workers", 1),
        ("--max-concurrency", "1", "client.max_concurrency", 1),
        ("--timeout", "0.5", "client.deadlines.request_s", 0.5),
        ("--progress-timeout", "9", "client.policy.progress_s", 9.0),
        ("--retries", "2", "client.policy.retries", 2),
    ],
)
def test_counts(flag, value, field, expected):
    assert operator.attrgetter(field)(plan_of(flag, value)) == expected


@pytest.mark.parametrize(
    ("scenario", "stream", "config", "streams", "deviates"),
    [
        ("offline", "auto", None, False, False),
        # as published files say, and the reference's Offline does not
        ("offline", "auto", True, False, False),
        ("offline", "on", None, True, False),
        ("offline", "off", True, False, False),
        *((scenario, "auto", None, True, False) for scenario in ("server", "interactive", "single-stream")),
        *((scenario, "off", None, False, True) for scenario in ("server", "interactive", "single-stream")),
        ("server", "auto", False, False, True),
        ("server", "on", False, True, False),
    ],
)
@pytest.mark.parametrize("mode", [(), ("--accuracy",)])
def test_streams(tmp_path, scenario, stream, config, streams, deviates, mode):
    words = ["--scenario", scenario, "--stream", stream, *mode]
    if config is not None:
        (tmp_path / "generation.json").write_text(json.dumps({"streaming": config}))
        words += ["--generation-config", str(tmp_path / "generation.json")]
    plan = plan_of(*words)
    assert plan.client.parameters.stream is streams
    generation = [line for line in plan.client.deviations if line.startswith("generation")]
    assert [line for line in generation if "stream" in line] == generation
    assert bool(generation) is deviates
    assert plan.client.policy.ask_in_silence is not streams


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("--first-token-timeout", "client.deadlines.first_token_s"),
        ("--stall-timeout", "client.deadlines.stall_s"),
    ],
)
def test_deadlines_of_streams(flag, field):
    plan = plan_of(flag, "8", "--scenario", "server")
    assert (operator.attrgetter(field)(plan), plan.client.warnings) == (8, ())
    plan = plan_of(flag, "8")
    assert operator.attrgetter(field)(plan) is None
    assert [line.split()[0] for line in plan.client.warnings] == [flag]


def test_a_missing_mlperf_conf_is_not_needed(tmp_path):
    """The reference's commands name one."""
    with pytest.raises(ConfigError, match=r"mlperf\.conf: no such file; omit the flag"):
        plan_of("--mlperf-conf", str(tmp_path / "mlperf.conf"))


@pytest.mark.parametrize("flag", ["--user-conf", "--mlperf-conf", "--audit-config", "--generation-config"])
def test_missing_files(tmp_path, flag):
    for path, message in ((tmp_path / "missing", "no such file"), (tmp_path, "not a regular file")):
        with pytest.raises(ConfigError, match=f"{flag} {path}: {message}"):
            plan_of(flag, str(path))


def test_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("user.conf", "mlperf.conf", "audit.config", "tokenizer.json"):
        (tmp_path / name).touch()
    words = "--user-conf user.conf --mlperf-conf mlperf.conf --audit-config audit.config --output-dir out"
    words += " --tokenizer tokenizer.json"
    plan = plan_of(*words.split())
    assert plan.client.input_file == tmp_path / "perf.parquet"
    assert (plan.user_conf, plan.mlperf_conf) == (tmp_path / "user.conf", tmp_path / "mlperf.conf")
    assert plan.audit_config == tmp_path / "audit.config"
    assert plan.client.tokenizer == str(tmp_path / "tokenizer.json")
    assert plan_of("--tokenizer", "openai/gpt-oss-120b").client.tokenizer == "openai/gpt-oss-120b"  # a name
    assert plan_of().audit_config is None  # not picked up where no flag names it
    assert plan.client.log_dir == tmp_path / "out" / "offline" / "performance"


# scenario, its model key, LoadGen's scenario
SCENARIOS = [
    ("offline", "gpt-oss-120b", "Offline"),
    ("server", "gpt-oss-120b", "Server"),
    ("interactive", "gpt-oss-120b-interactive", "Server"),
    ("single-stream", "gpt-oss-120b", "SingleStream"),
]


@pytest.mark.parametrize(("scenario", "key", "loadgen"), SCENARIOS)
@pytest.mark.parametrize(("flags", "mode"), [((), "performance"), (("--accuracy",), "accuracy")])
def test_scenario_and_mode(tmp_path, scenario, key, loadgen, flags, mode):
    plan = plan_of("--output-dir", str(tmp_path), "--scenario", scenario, *flags)
    assert (plan.scenario, plan.model_key, plan.scenario.loadgen) == (scenario, key, loadgen)
    assert plan.client.log_dir == tmp_path / scenario / mode
    assert plan.accuracy is bool(flags)


@pytest.mark.parametrize(("scenario", "unused"), [("offline", False), ("single-stream", True)])
def test_one_query_at_a_time_needs_no_limit(scenario, unused):
    warnings = plan_of("--max-concurrency", "7", "--scenario", scenario).client.warnings
    assert ("--max-concurrency 7 has no effect" in " ".join(warnings)) is unused


@pytest.mark.parametrize(("flags", "unused"), [((), False), (("--accuracy",), True)])
def test_an_accuracy_run_is_not_lost(flags, unused):
    warnings = plan_of("--stop-when-lost", *flags).client.warnings
    assert ("--stop-when-lost has no effect" in " ".join(warnings)) is unused


@pytest.mark.parametrize(("flags", "tokens"), [((), 10240), (("--accuracy",), 32768)])
def test_parameters_follow_the_mode(flags, tokens):
    plan = plan_of(*flags)
    assert (plan.client.parameters.max_new_tokens, plan.client.deviations, plan.client.warnings) == (
        tokens,
        (),
        (),
    )
    assert (plan.max_samples, plan.client.num_workers, plan.client.max_concurrency) == (None, None, None)
    official = official_parameters(plan.client.benchmark, accuracy=bool(flags))
    assert plan.client.parameters == msgspec.structs.replace(official, stream=False)


def test_a_generation_deviation_is_in_the_plan():
    (line,) = plan_of("--max-new-tokens", "16").client.deviations
    assert "max_new_tokens is 16" in line


@pytest.mark.parametrize("backend", ["sglang", "openai"])
def test_a_backend_needs_urls_and_the_embedded_one_starts_its_own_server(backend):
    assert plan_of("--backend", backend).client.server_urls == ("http://localhost:30000",)
    plan = plan_of("--backend", backend, "--server-url", "http://a:1,http://b:2")
    assert plan.client.server_urls == ("http://a:1", "http://b:2")
    plan = plan_of("--backend", "embedded")
    assert (plan.client.backend, plan.client.server_urls) == ("embedded", ())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            "--backend embedded --server-url http://a:1",
            "http://a:1: --backend embedded starts its own server",
        ),
        ("--backend pytorch --api chat", "--api chat: --backend pytorch has no such API; expected generate"),
    ],
)
def test_flags_that_no_server_can_follow(flags, said):
    with pytest.raises(ConfigError, match=said):
        plan_of(*flags.split())


def test_a_plan_is_plain_data(monkeypatch):
    """It is written to run.json completely, and no key of the environment is in it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    monkeypatch.setenv("SGLANG_API_KEY", "sk-hidden")
    text = msgspec.json.encode(plan_of("--scenario", "server"), enc_hook=str).decode()
    assert '"scenario":"server"' in text
    assert "sk-hidden" not in text


def test_options_from_python_make_the_plan_of_the_same_flags():
    options = RunOptions(input_file="perf.parquet", scenario="server", server_url="http://a:1")
    assert resolve_plan(options) == plan_of("--scenario", "server", "--server-url", "http://a:1")
    again = replace(options, scenario="offline", backend="embedded", server_url=())
    assert resolve_plan(again) == plan_of("--backend", "embedded")


@pytest.mark.parametrize(
    ("field", "value"), [("scenario", "multi-stream"), ("backend", "tgi"), ("stream", "yes")]
)
def test_options_from_python_are_checked_like_flags(field, value):
    with pytest.raises(ConfigError, match=f"{field} is '{value}', expected"):
        resolve_plan(RunOptions(input_file="perf.parquet", **{field: value}))


def test_options_are_frozen():
    with pytest.raises(AttributeError):
        RunOptions(input_file="perf.parquet").scenario = "server"


def test_an_audit_config_that_loadgen_would_not_read_is_rewritten_with_a_warning(tmp_path):
    path = tmp_path / "audit.config"
    plain = "# of a test\n*.*.mode = 2\n\n*.*.min_duration = 0\n"
    for text, warnings in ((plain, 0), (plain.replace("= 2", "= 2 # performance").replace(" = 0", "=0"), 1)):
        path.write_text(text)
        plan = plan_of("--audit-config", str(path))
        assert plan.audit_text == plain
        assert len(plan.client.warnings) == warnings
    assert f"{path}:2: rewritten for LoadGen" in plan.client.warnings[0]
    assert plan.client.warnings[0].endswith(" (and 1 more such row)")
