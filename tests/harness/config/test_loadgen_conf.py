"""LoadGen conf files: what LoadGen refuses or misreads, and a row meant for this run that it skips, is an
error with its line; other rows that it skips are warnings; the rest applies.

Every row of these tables is also given to LoadGen 6.0.17 itself, in a process of its own.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.config.loadgen_conf import MODELS, USER_KEYS, ConfRow, Target, read_conf
from harness.config.scenario import LOADGEN_SCENARIOS
from harness.errors import ConfigError
from tests.harness.config.loadgen import loadgen_reads

MODEL, SEED = "gpt-oss-120b", 720381539243781796
SERVER = Target(MODEL, "Server")


def write(directory, name, text):
    path = directory / name
    path.write_bytes(text.encode())
    return path


@pytest.fixture(scope="module")
def plain_settings(tmp_path_factory):
    """Settings without any row, by scenario."""
    path = write(tmp_path_factory.mktemp("conf"), "empty.conf", "")
    answers = loadgen_reads([(path, MODEL, scenario) for scenario in LOADGEN_SCENARIOS])
    return {scenario: settings for scenario, (_, settings) in zip(LOADGEN_SCENARIOS, answers, strict=True)}


@pytest.fixture(scope="module")
def loadgen(tmp_path_factory):
    """LoadGen's answer for every text of the tables, by text and scenario."""
    directory = tmp_path_factory.mktemp("loadgen")
    asked = [(case[0], "Server") for case in (*REFUSED, *ACCEPTED)]
    asked += [(f"{MODEL}.{scenario}.{key} = {value}\n", scenario) for key, scenario, value, *_ in KEYS]
    asked += [(f"*.Server.{key} = 5\n", "Server") for key in UNREAD_KEYS]
    asked += [(f"*.{scenario}.{key} = 7\n", scenario) for scenario, key in WRONG_SCENARIO]
    texts = enumerate(asked)
    cases = [(write(directory, f"{n}.conf", text), MODEL, scenario) for n, (text, scenario) in texts]
    return dict(zip(asked, loadgen_reads(cases), strict=True))


# Refused: text, line of the error, fragment of the message, what LoadGen does with it
REFUSED = [
    # typos that LoadGen skips without a word
    ("*.Server.min_durations = 1000\n", 1, "min_durations", "ignores"),
    ("*.Server.Min_duration = 1000\n", 1, "Min_duration", "ignores"),
    ("gpt-oss.Server.min_duration = 1000\n", 1, "'gpt-oss-120b.Server.min_duration = 1000'", "ignores"),
    ("GPT-OSS-120B.Server.min_duration = 1000\n", 1, "GPT-OSS-120B", "ignores"),
    ("*.server.min_duration = 1000\n", 1, "'server'", "ignores"),
    ("Server.min_duration = 1000\n", 1, "'*.Server.min_duration = 1000'", "ignores"),
    ("min_duration = 1000\n", 1, "'*.*.min_duration = 1000'", "ignores"),
    ("*.Server.min_duration=1000\n", 1, "'*.Server.min_duration = 1000'", "ignores"),
    ("*.Server.min_duration\n", 1, "spaces", "ignores"),
    ("*.Server.min_duration =\n", 1, "spaces", "ignores"),
    ("\ufeff*.Server.min_duration = 1000\n", 1, "model", "ignores"),
    ("# fine\n\n*.Server.target_qps = 5\n*.Server.min_durations = 5\n", 4, "durations", "applies others"),
    # what makes LoadGen refuse the whole file with -22 and no line number
    ("*.Server.min_duration =1000\n", 1, "spaces", "refuses"),
    ("*.Server.min_duration == 1000\n", 1, "'='", "refuses"),
    ("*.Server.min_duration : 1000\n", 1, "'='", "refuses"),
    ("*.Server.min_duration = ten\n", 1, "not a number", "refuses"),
    ("*.Server.min_duration = 10s\n", 1, "not a number", "refuses"),
    ("*.Server.min_duration = 1,000\n", 1, "not a number", "refuses"),
    ("*.Server.min_duration = 1_000\n", 1, "1_000", "refuses"),
    ("*.Server.min_duration = \u0663\n", 1, "\u0663", "refuses"),
    ("*.Server.min_duration\u00a0= 1000\n", 1, "min_duration", "refuses"),
    ("*.Server.target_qps = 5\n*.Server.min_duration = 1000 # ms\n", 2, "#", "refuses"),
    ("*.Offline.target_qps = 100 # 50 #5.0\n", 1, "#", "refuses"),
    ("#comment of several words\n", 1, "#comment", "refuses"),
    ("*.Server.min_duration = 1000\x0b*.Server.target_qps = 3\n", 1, "target_qps", "refuses"),
    # what LoadGen takes for another number
    ("*.Server.min_duration = 3 4\n", 1, "takes 4", "misreads"),
    ("*.Server.min_duration = 6e5\n", 1, "6e5", "misreads"),
    ("*.Server.min_query_count = 1e3\n", 1, "1e3", "misreads"),
    ("*.Server.min_duration = 0.5\n", 1, "0.5", "misreads"),
    ("*.Server.min_duration = 010\n", 1, "010", "misreads"),
    ("*.Server.min_duration = -1\n", 1, "-1", "misreads"),
    ("*.Server.min_duration = inf\n", 1, "inf", "misreads"),
    ("*.Server.min_query_count = 99999999999999999999999\n", 1, "99999", "misreads"),
    # rates that no schedule can have
    ("*.Server.target_qps = nan\n", 1, "nan", "takes"),
    ("*.Server.target_qps = -.5\n", 1, "more than 0", "takes"),
    ("*.Server.target_qps = inf\n", 1, "inf", "takes"),
    ("*.Server.target_qps = 0\n", 1, "target_qps", "takes"),
    ("*.Server.target_qps = -1\n", 1, "more than 0", "takes"),
    # to Python a line of its own, to LoadGen the rest of the comment
    ("# old\u2028*.Server.min_duration = 1000\n*.server.target_qps = 1\n", 2, "'server'", "ignores"),
]


@pytest.mark.parametrize(("text", "line", "fragment", "loadgen_does"), REFUSED)
def test_refused_with_the_line(tmp_path, text, line, fragment, loadgen_does):
    path = write(tmp_path, "user.conf", text)
    with pytest.raises(ConfigError) as caught:
        read_conf(path, SERVER)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: ")
    assert fragment in message
    assert "\n" not in message


@pytest.mark.parametrize(("text", "line", "fragment", "loadgen_does"), REFUSED)
def test_what_is_refused_is_no_use_to_loadgen(loadgen, plain_settings, text, line, fragment, loadgen_does):
    code, settings = loadgen[text, "Server"]
    changed = {name for name, value in settings.items() if value != plain_settings["Server"][name]}
    if loadgen_does == "refuses":
        assert code == -22
        return
    assert code == 0
    assert changed == set() if loadgen_does == "ignores" else changed


# What a "misread" row gives: none of these numbers is what its author wrote.
@pytest.mark.parametrize(
    ("text", "setting", "value"),
    [
        ("*.Server.min_duration = 6e5\n", "min_duration_ms", 6),
        ("*.Server.min_query_count = 1e3\n", "min_query_count", 1),
        ("*.Server.min_duration = 010\n", "min_duration_ms", 8),
        ("*.Server.min_duration = -1\n", "min_duration_ms", 2**64 - 1),
        ("*.Server.min_duration = inf\n", "min_duration_ms", 0),
        ("*.Server.min_duration = 3 4\n", "min_duration_ms", 4),
    ],
)
def test_loadgen_misreads(loadgen, text, setting, value):
    assert loadgen[text, "Server"][1][setting] == value


# Accepted: text, setting and value that LoadGen then has
ACCEPTED = [
    ("*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    ("*.*.min_duration = 1000\n", "min_duration_ms", 1000),
    ("gpt-oss-120b.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    ("gpt-oss-120b.*.min_duration = 1000\n", "min_duration_ms", 1000),
    (" \t*.Server.min_duration\t=  1000  \n", "min_duration_ms", 1000),
    ("*.Server.min_duration = 1000\r\n", "min_duration_ms", 1000),
    ("*.Server.min_duration = 1000", "min_duration_ms", 1000),
    ("*.Server.min_duration = 0x3e8\n", "min_duration_ms", 1000),
    ("# a comment = with anything\n\n   \n#\n*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    ("#*.Server.min_duration = 5\n*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    ("*.Server.target_qps = 0.25\n", "server_target_qps", 0.25),
    ("*.Server.target_qps = 1e1\n", "server_target_qps", 10.0),
    ("*.Server.target_qps = .65000\n", "server_target_qps", 0.65),
    ("*.Server.min_duration = 1000.0\n", "min_duration_ms", 1000),
    ("*.Server.target_qps = 3956\n", "server_target_qps", 3956.0),
    ("llama2-70b.Server.min_duration = 5\n*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    ("*.Offline.min_duration = 5\n*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    (f"*.Server.accuracy_log_rng_seed = {SEED}\n", "accuracy_log_rng_seed", SEED),
]


@pytest.mark.parametrize(("text", "setting", "value"), ACCEPTED)
def test_what_is_accepted_loadgen_applies(tmp_path, loadgen, text, setting, value):
    (row,) = read_conf(write(tmp_path, "user.conf", text), SERVER).rows
    assert row.value == (int if isinstance(value, int) else float)(value)
    code, settings = loadgen[text, "Server"]
    assert (code, settings[setting]) == (0, value)


def test_rows_know_their_line(tmp_path):
    text = "# head\n*.Server.target_qps = 2.5\n\nllama3_1-8b.Offline.min_query_count = 13368\n"
    assert read_conf(write(tmp_path, "user.conf", text), SERVER).rows == (
        ConfRow(2, "*", "Server", "target_qps", 2.5),
    )
    assert read_conf(write(tmp_path, "user.conf", text), Target("llama3_1-8b", "Offline")).rows == (
        ConfRow(4, "llama3_1-8b", "Offline", "min_query_count", 13368),
    )


def test_a_model_may_hold_dots(tmp_path):
    path = write(tmp_path, "user.conf", "wan-2.2-t2v-a14b.Offline.min_query_count = 248\n")
    (row,) = read_conf(path, Target("wan-2.2-t2v-a14b", "Offline")).rows
    assert (row.model, row.scenario, row.key) == ("wan-2.2-t2v-a14b", "Offline", "min_query_count")


# Keys: in which scenario, with which value, and the setting that LoadGen then changes
KEYS = [
    ("accuracy_log_rng_seed", "Offline", "7", "accuracy_log_rng_seed", 7),
    ("accuracy_log_sampling_target", "Offline", "7", "accuracy_log_sampling_target", 7),
    ("accuracy_sample_count_override", "Offline", "7", "accuracy_sample_count_override", 7),
    ("coalesce_queries", "Server", "1", "server_coalesce_queries", True),
    ("infer_token_latencies", "Server", "1", "infer_token_latencies", True),
    ("max_async_queries", "Server", "7", "server_max_async_queries", 7),
    ("max_duration", "Server", "7", "max_duration_ms", 7),
    ("max_query_count", "Server", "7", "max_query_count", 7),
    ("min_duration", "SingleStream", "7", "min_duration_ms", 7),
    ("min_query_count", "Offline", "7", "min_query_count", 7),
    ("performance_issue_same", "Offline", "1", "performance_issue_same", True),
    ("performance_issue_same_index", "Offline", "7", "performance_issue_same_index", 7),
    ("performance_issue_unique", "Offline", "1", "performance_issue_unique", True),
    ("performance_sample_count_override", "Server", "7", "performance_sample_count_override", 7),
    ("print_timestamps", "Server", "1", "print_timestamps", True),
    ("sample_concatenate_permutation", "Server", "0", "sample_concatenate_permutation", False),
    ("samples_per_query", "MultiStream", "7", "multi_stream_samples_per_query", 7),
    ("target_latency", "SingleStream", "7", "single_stream_expected_latency_ns", 7e6),
    ("target_latency_percentile", "Server", "97", "server_target_latency_percentile", 0.97),
    ("target_qps", "Offline", "7.5", "offline_expected_qps", 7.5),
    ("tpot_latency", "Server", "7", "tpot_latency", 7_000_000),
    ("ttft_latency", "Server", "7", "ttft_latency", 7_000_000),
    ("use_token_latencies", "Server", "0", "use_token_latencies", False),
]

# Keys of mlperf.conf, of TestSettings and of audit configs that FromConfig does not take from a user.conf.
UNREAD_KEYS = (
    "qsl_rng_seed",
    "sample_index_rng_seed",
    "schedule_rng_seed",
    "accuracy_log_probability",
    "test05",
    "test05_qsl_rng_seed",
    "target_duration",
    "min_duration_ms",
    "server_target_qps",
    "offline_expected_qps",
    "server_coalesce_queries",
)

# Rows that name a scenario which has no such setting.
WRONG_SCENARIO = [
    ("Offline", "ttft_latency"),
    ("Offline", "tpot_latency"),
    ("Offline", "max_async_queries"),
    ("Offline", "coalesce_queries"),
    ("SingleStream", "target_qps"),
    ("SingleStream", "ttft_latency"),
    ("Server", "samples_per_query"),
]


def test_the_table_holds_every_key():
    # token_latency_scaling_factor counts together with infer_token_latencies only
    assert {key for key, *_ in KEYS} | {"token_latency_scaling_factor"} == USER_KEYS


@pytest.mark.parametrize(("key", "scenario", "value", "setting", "expected"), KEYS)
def test_every_key_is_read_by_loadgen(
    tmp_path, loadgen, plain_settings, key, scenario, value, setting, expected
):
    text = f"{MODEL}.{scenario}.{key} = {value}\n"
    (row,) = read_conf(write(tmp_path, "user.conf", text), Target(MODEL, scenario)).rows
    assert row.key == key
    code, settings = loadgen[text, scenario]
    assert code == 0
    assert plain_settings[scenario][setting] != expected
    assert settings[setting] == expected


@pytest.mark.parametrize("key", UNREAD_KEYS)
def test_other_keys_are_a_warning_as_loadgen_drops_them(tmp_path, loadgen, plain_settings, key):
    text = f"*.Server.{key} = 5\n"
    path = write(tmp_path, "user.conf", f"{text}*.Server.min_duration = 1\n*.Server.target_qps = 1\n")
    conf = read_conf(path, SERVER)
    assert "performance" in key or conf.settings.keys() == {"min_duration", "target_qps"}
    assert [key in warning for warning in conf.warnings] == [True]
    assert loadgen[text, "Server"] == [0, plain_settings["Server"]]


@pytest.mark.parametrize(("scenario", "key"), WRONG_SCENARIO)
def test_a_key_of_another_scenario_is_a_warning_as_loadgen_drops_it(
    tmp_path, loadgen, plain_settings, scenario, key
):
    text = f"*.{scenario}.{key} = 7\n"
    assert loadgen[text, scenario] == [0, plain_settings[scenario]]
    conf = read_conf(write(tmp_path, "user.conf", text), Target(MODEL, scenario))
    assert (conf.rows, [key in warning for warning in conf.warnings]) == ((), [True])


def embedded_conf():
    spec = find_spec("mlperf_loadgen")
    assert spec is not None
    assert spec.origin is not None
    binary = Path(spec.origin).read_bytes()
    rows = re.findall(rb"^[\w.*-]+\.(?:\*|\w+)\.\w+ = [\d.]+$", binary, re.MULTILINE)
    return [row.decode() for row in rows]


def test_models_are_those_of_loadgens_own_conf():
    models = {row.split(" ")[0].rsplit(".", 2)[0] for row in embedded_conf()}
    assert models - {"*"} == MODELS


def test_loadgens_own_conf_is_accepted_as_mlperf_conf(tmp_path):
    rows = embedded_conf()
    assert len(rows) > 100
    path = write(tmp_path, "mlperf.conf", "\n".join(rows) + "\n")
    read = read_conf(path, SERVER, "mlperf")
    assert read.warnings == ()
    limits = {row.key: row.value for row in read.rows if (row.model, row.scenario) == (MODEL, "Server")}
    assert limits == {"target_latency": 0, "ttft_latency": 3000, "tpot_latency": 80}


def test_an_mlperf_conf_may_hold_seeds_and_models_of_other_years(tmp_path):
    text = "*.*.qsl_rng_seed = 2085463073848966840\nwan2.2-t2v-a14b.Offline.min_query_count = 248\n"
    conf = read_conf(write(tmp_path, "mlperf.conf", text), SERVER, "mlperf")
    assert conf.settings == {"qsl_rng_seed": 2085463073848966840}
    assert len(conf.warnings) == 1


def test_a_file_that_is_no_text(tmp_path):
    binary = tmp_path / "binary.conf"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.conf"):
        read_conf(binary, SERVER)


@pytest.mark.parametrize(
    ("model", "scenario", "lines", "in_force"),
    [
        ("gpt-oss-120b", "Server", [1, 2, 3, 4], 4),
        ("gpt-oss-120b", "Offline", [1, 3, 5], 5),
        ("gpt-oss-120b-interactive", "Server", [1, 2, 6], 6),
        ("deepseek-r1", "Server", [1, 2], 2),
        ("llama3_1-8b", "SingleStream", [1], 1),
        ("gpt-oss-120b", "SingleStream", [1, 3], 3),
    ],
)
def test_which_rows_apply_and_which_is_in_force(tmp_path, model, scenario, lines, in_force):
    text = """*.*.min_duration = 1
*.Server.min_duration = 2
gpt-oss-120b.*.min_duration = 3
gpt-oss-120b.Server.min_duration = 4
*.Offline.min_duration = 5
gpt-oss-120b-interactive.Server.min_duration = 6
"""
    path = write(tmp_path, "user.conf", text)
    conf = read_conf(path, Target(model, scenario))
    assert [row.line for row in conf.rows] == lines
    assert conf.settings == {"min_duration": in_force}
    ((_, settings),) = loadgen_reads([(path, model, scenario)])
    assert settings["min_duration_ms"] == in_force


# audit.config: rows for every model, the mode and thresholds
# line, whether it is fine, a warning or an error
AUDIT = [
    ("*.*.mode = 2", "fine"),
    ("# a comment", "fine"),
    ("", "fine"),
    ("*.*.test07_accuracy_threshold = 60.698", "fine"),
    ("*.Offline.performance_issue_same = 1", "fine"),
    ("stable-diffusion-xl.Offline.min_query_count = 500", "warning"),
    ("*.*.qsl_rng_seed = 5", "warning"),
    ("*.*.mode = 2 # performance", "error"),
    ("*.*.mode=2", "error"),
    ("*.*.mode 2", "error"),
    ("gpt-oss-120b.Server.target_qps = 2", "error"),
]


@pytest.mark.parametrize(("line", "expected"), AUDIT)
def test_an_audit_config(tmp_path, line, expected):
    path = tmp_path / "audit.config"
    path.write_text(f"*.*.min_duration = 0\n{line}\n")
    if expected == "error":
        with pytest.raises(ConfigError, match=r"audit\.config:2: "):
            read_conf(path, SERVER, "audit")
        return
    conf = read_conf(path, SERVER, "audit")
    assert conf.settings["min_duration"] == 0
    assert bool(conf.warnings) == (expected == "warning")
