"""LoadGen conf files: what LoadGen refuses or misreads, and a row meant for this run that it skips, is an
error with its line; other rows that it skips, as published files have them, are warnings; the rest applies.

Every row of these tables is also given to LoadGen 6.0.17 itself, in a process of its own.
"""

import re

import pytest

from harness.config.loadgen_conf import MODELS, Conf, ConfKey, ConfRow, parse_conf, read_conf, source_of
from harness.config.scenario import LOADGEN_SCENARIOS
from harness.errors import ConfigError
from tests.harness.config.loadgen import loadgen_binary, loadgen_reads

MODEL, SEED = "gpt-oss-120b", 720381539243781796
SERVER = ConfKey(MODEL, "Server")
INTERACTIVE = ConfKey("gpt-oss-120b-interactive", "Server", interactive=True)


def write(directory, name, text):
    path = directory / name
    path.write_bytes(text.encode())
    return path


@pytest.fixture(scope="module")
def loadgen(tmp_path_factory):
    """LoadGen's answer for every text of the tables, by text, model and scenario."""
    directory = tmp_path_factory.mktemp("loadgen")
    asked = [(text, MODEL, "Server") for text, *_ in (*REFUSED, *ACCEPTED)]
    asked += [(PUBLISHED, INTERACTIVE.model_key, INTERACTIVE.scenario)]
    asked += [(text, MODEL, scenario) for text, scenario in SKIPPED]
    asked += [("", MODEL, scenario) for scenario in LOADGEN_SCENARIOS]
    asked += [(RANKED, model, scenario) for model, scenario, *_ in IN_FORCE]
    cases = [(write(directory, f"{n}.conf", text), *run) for n, (text, *run) in enumerate(asked)]
    return dict(zip(asked, loadgen_reads(cases), strict=True))


# Refused: text, line of the error, fragment of the message, what LoadGen does with it: a number that it takes
REFUSED = [
    # typos that LoadGen skips without a word
    ("*.Server.min_durations = 1000\n", 1, "min_durations", "ignores"),
    ("*.Server.Min_duration = 1000\n", 1, "Min_duration", "ignores"),
    ("*.Server.min_duration_ms = 5\n", 1, "min_duration", "ignores"),
    ("gpt-oss.Server.min_duration = 1000\n", 1, "'gpt-oss-120b.Server.min_duration = 1000'", "ignores"),
    ("GPT-OSS-120B.Server.min_duration = 1000\n", 1, "GPT-OSS-120B", "ignores"),
    ("*.server.min_duration = 1000\n", 1, "'server'", "ignores"),
    ("Server.min_duration = 1000\n", 1, "'*.Server.min_duration = 1000'", "ignores"),
    ("min_duration = 1000\n", 1, "'*.*.min_duration = 1000'", "ignores"),
    ("*.Server.min_duration=1000\n", 1, "'*.Server.min_duration = 1000'", "ignores"),
    ("*.Server.min_duration\n", 1, "spaces", "ignores"),
    ("*.Server.min_duration =\n", 1, "spaces", "ignores"),
    ("*.Server.min_duration # = 1000\n", 1, "LoadGen skips '*.Server.min_duration'", "ignores"),
    ("\ufeff*.Server.min_duration = 1000\n", 1, "byte order mark", "ignores"),
    ("# fine\n\n*.Server.target_qps = 5\n*.Server.min_durations = 5\n", 4, "durations", "applies others"),
    # what makes LoadGen refuse the whole file with -22 and no line number
    ("*.Server.min_duration =1000\n", 1, "spaces", "refuses"),
    ("*.Server.min_duration == 1000\n", 1, "'='", "refuses"),
    ("*.Server.min_duration = ten\n", 1, "not a number", "refuses"),
    ("*.Server.min_duration = 1_000\n", 1, "1_000", "refuses"),
    ("*.Server.min_duration = \u0663\n", 1, "\u0663", "refuses"),
    ("*.Server.min_duration\u00a0= 1000\n", 1, "min_duration", "refuses"),
    (
        "*.Server.target_qps = 5\n*.Server.min_duration = 1000 # ms\n",
        2,
        "file; put the comment on",
        "refuses",
    ),
    ("#comment of several words\n", 1, "#comment", "refuses"),
    ("\ufeff# a comment\n*.Server.min_duration = 1000\n", 1, "byte order mark", "refuses"),
    ("#*.Server.target_qps = TODO\n", 1, "a comment begins with '# '", "refuses"),
    ("*.Server.min_duration = 1000\x0b*.Server.target_qps = 3\n", 1, "target_qps", "refuses"),
    # what LoadGen takes for another number
    ("*.Server.min_duration = 3 4\n", 1, "takes 4", 4),
    ("*.Server.min_duration = 6e5\n", 1, "6e5", 6),
    ("*.Server.min_query_count = 1e3\n", 1, "1e3", 1),
    ("*.Server.min_duration = 0.5\n", 1, "0.5", 0),
    ("*.Server.min_duration = 010\n", 1, "010", 8),
    (f"*.Server.min_query_count = {2**64}\n", 1, "another number", 2**64 - 1),
    ("*.Server.min_duration = -1\n", 1, "-1", 2**64 - 1),
    ("*.Server.min_duration = inf\n", 1, "inf", 0),
    ("*.Server.use_token_latencies = 2\n", 1, "write 0 or 1", 0),
    ("*.Server.sample_concatenate_permutation = 10\n", 1, "write 0 or 1", 0),
    ("*.Server.min_query_count = 99999999999999999999999\n", 1, "99999", 2**64 - 1),
    ("*.Server.min_duration = 0x1.8p4\n", 1, "write plain digits", 1),
    # rates that no schedule can have
    ("*.Server.target_qps = 0x1p3000\n", 1, "0x1p3000, expected a number from", "takes"),
    ("*.Server.target_qps = nan\n", 1, "nan", "takes"),
    ("*.Server.target_qps = -.5\n", 1, "from 1e-12 to 1e+12", "takes"),
    ("*.Server.target_qps = inf\n", 1, "inf", "takes"),
    ("*.Server.target_qps = 0\n", 1, "target_qps", "takes"),
    # to Python a line of its own, to LoadGen the rest of the comment
    ("# old\u2028*.Server.min_duration = 1000\n*.server.target_qps = 1\n", 2, "'server'", "ignores"),
]


@pytest.mark.parametrize(("text", "line", "fragment", "loadgen_does"), REFUSED)
def test_refused_with_the_line_and_of_no_use_to_loadgen(
    tmp_path, loadgen, text, line, fragment, loadgen_does
):
    path = write(tmp_path, "user.conf", text)
    with pytest.raises(ConfigError) as caught:
        read_conf(path, SERVER)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: ")
    assert fragment in message
    assert "\n" not in message
    code, settings = loadgen[text, MODEL, "Server"]
    assert code == (-22 if loadgen_does == "refuses" else 0)
    if code == 0:
        changed = dict(settings.items() - loadgen["", MODEL, "Server"][1].items())
        assert bool(changed) == (loadgen_does != "ignores")
        assert isinstance(loadgen_does, str) or list(changed.values()) == [loadgen_does]


@pytest.mark.parametrize("value", ["0", "1e-13", "1e13", "1e308"])
@pytest.mark.parametrize(("key", "scenario"), [("target_latency", "SingleStream"), ("target_qps", "Server")])
def test_a_rate_that_is_none(tmp_path, key, scenario, value):
    """LoadGen, and the plan, divide by it, and multiply it with a time."""
    path = write(tmp_path, "user.conf", f"*.{scenario}.{key} = {value}\n")
    with pytest.raises(ConfigError, match=rf"{key} = {value}, expected a number from 1e-12 to 1e\+12"):
        read_conf(path, ConfKey(MODEL, scenario))


# Accepted: text, setting and value that LoadGen then has
ACCEPTED = [
    ("*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    (" \t*.Server.min_duration\t=  1000  \n", "min_duration_ms", 1000),
    ("*.Server.min_duration = 1000\r\n", "min_duration_ms", 1000),
    ("*.Server.min_duration = 1000", "min_duration_ms", 1000),
    ("*.Server.min_duration = 0x3e8\n", "min_duration_ms", 1000),
    ("# a comment = with anything\n\n   \n#\n*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    ("#*.Server.min_duration = 5\n*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    ("#word # of a comment\n*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    ("*.Server.target_qps = 0.25\n", "server_target_qps", 0.25),
    ("*.Server.target_qps = 1e1\n", "server_target_qps", 10.0),
    ("*.Server.target_qps = .65000\n", "server_target_qps", 0.65),
    ("*.Server.target_qps = 0x1p3\n", "server_target_qps", 8.0),
    ("*.Server.target_qps = +0X2.8\n", "server_target_qps", 2.5),
    ("*.Server.target_qps = +07.5\n", "server_target_qps", 7.5),
    ("*.Server.min_duration = 1000.0\n", "min_duration_ms", 1000),
    (f"*.Server.min_duration = +1000.{'0' * 40}\n", "min_duration_ms", 1000),
    ("*.Server.min_query_count = 007\n", "min_query_count", 7),
    ("*.Server.use_token_latencies = -0\n", "use_token_latencies", 0),
    (f"*.Server.min_query_count = +{2**64 - 1}\n", "min_query_count", 2**64 - 1),
    ("*.Server.min_query_count = 0xffffffffffffffff\n", "min_query_count", 2**64 - 1),
    ("llama2-70b.Server.min_duration = 5\n*.Server.min_duration = 1000\n", "min_duration_ms", 1000),
    (f"*.Server.accuracy_log_rng_seed = {SEED}\n", "accuracy_log_rng_seed", SEED),
]


@pytest.mark.parametrize(("text", "setting", "value"), ACCEPTED)
def test_what_is_accepted_loadgen_applies(tmp_path, loadgen, text, setting, value):
    (row,) = read_conf(write(tmp_path, "user.conf", text), SERVER).rows
    assert row.value == (int if isinstance(value, int) else float)(value)
    code, settings = loadgen[text, MODEL, "Server"]
    assert (code, settings[setting]) == (0, value)


def test_rows_know_their_line_and_a_model_may_hold_dots(tmp_path):
    rows = "*.Server.target_qps = 2.5\n\nwan-2.2-t2v-a14b.Offline.min_query_count = 248\n"
    path = write(tmp_path, "user.conf", f"# head\n{rows}")
    assert read_conf(path, SERVER).rows == (ConfRow(2, "*", "Server", "target_qps", 2.5),)
    model = "wan-2.2-t2v-a14b"
    expected = ConfRow(4, model, "Offline", "min_query_count", 248)
    assert read_conf(path, ConfKey(model, "Offline")).rows == (expected,)


# Rows that LoadGen reads for no run or not for this one, and the scenario of the run
SKIPPED = [
    *((text, "Server") for text in (
        "*.Server.performance_sample_count = 6396\n",
        "llama3.1-8b.Server.min_duration = 1000\n",
        "wan2.2-t2v-a14b.Server.min_duration = 1000\n",
        "*.R-GAT.Offline.min_duration = 1000\n",
        "*.Interactive.min_duration = 1000\n",
        "gpt-oss-120b-interactive.Interactive.target_qps = 5\n",
        "*.singlestream.min_duration = 1000\n",
        "*.Offline.min_durations = 1000\n",
        "*.Offline.min_duration=1000\n",
        "*.SingleStream.target_qps = 5\n",
        "*.*.mode_of_transport = 5\n",
        "TODO\n",
    )),
    # keys of mlperf.conf, of TestSettings and of audit configs
    *((f"*.Server.{key} = 5\n", "Server") for key in (
        "qsl_rng_seed",
        "accuracy_log_probability",
        "test05",
        "target_duration",
        "server_target_qps",
    )),
    # keys that the scenario of the row does not have
    *((f"*.{scenario}.{key} = 7\n", scenario) for scenario, key in (
        ("Offline", "ttft_latency"),
        ("Offline", "max_async_queries"),
        ("SingleStream", "target_qps"),
        ("SingleStream", "ttft_latency"),
        ("Server", "samples_per_query"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("text", "scenario"), SKIPPED)
def test_a_row_that_loadgen_skips_is_a_warning(tmp_path, loadgen, text, scenario):
    path = write(tmp_path, "user.conf", text)
    conf = read_conf(path, ConfKey(MODEL, scenario))
    (warning,) = conf.warnings
    assert warning.startswith(f"{path}:1: ")
    assert conf.rows == ()
    assert loadgen[text, MODEL, scenario] == loadgen["", MODEL, scenario]
    assert loadgen[text, MODEL, scenario][0] == 0


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("*.Server.performance_sample_count = 6396\n", "performance_sample_count_override"),
        ("*.SingleStream.target_qps = 5\n", "target_latency"),
        ("*.Interactive.min_duration = 5\n", "-interactive"),
        ("*.Server.mode = 2\n", "--accuracy"),
        ("*.Server.target_duration = 5\n", "min_duration"),
    ],
)
def test_a_warning_says_what_to_write_instead(tmp_path, text, fragment):
    (warning,) = read_conf(write(tmp_path, "user.conf", text), SERVER).warnings
    assert fragment in warning


AUDIT_ONLY = "LoadGen reads an audit.config for model '*' only and skips rows for"


@pytest.mark.parametrize(
    ("kind", "row", "reason"),
    [
        ("user", "foo.Server.min_duration = 5", "LoadGen knows no model 'foo' and skips its rows"),
        (
            "user",
            "llama3.1-8b.Server.min_duration = 5",
            "LoadGen knows no model 'llama3.1-8b' and skips its rows; it spells it 'llama3_1-8b'",
        ),
        ("user", "*.Nowhere.min_duration = 5", "LoadGen knows no scenario 'Nowhere' and skips its rows"),
        ("user", "*.Server.nokey = 5", "LoadGen reads no key 'nokey' from a user.conf and skips the row"),
        (
            "audit",
            "*.Server.nokey = 5",
            "LoadGen reads no key 'nokey' from an audit.config and skips the row",
        ),
        ("audit", "llama2-70b.Server.min_duration = 5", f"{AUDIT_ONLY} 'llama2-70b'"),
        (
            "user",
            "*.SingleStream.ttft_latency = 5",
            "LoadGen reads ttft_latency for Server only and skips it for SingleStream; remove the row",
        ),
    ],
)
def test_the_reason_why_a_row_is_skipped(kind, row, reason):
    (warning,) = parse_conf(row, "a.conf", SERVER, kind).warnings
    assert warning == f"a.conf:1: {reason}"


def test_a_row_of_an_audit_config_for_this_model_is_an_error():
    with pytest.raises(ConfigError, match=r"for 'gpt-oss-120b'; did you mean '\*\.Server\.min_duration = 5'"):
        parse_conf(f"{MODEL}.Server.min_duration = 5", "a.conf", SERVER, "audit")


def test_equal_rows_are_one_warning(tmp_path):
    text = "old.Server.min_duration = 1\nold.Offline.min_duration = 2\nolder.Server.min_duration = 3\n"
    warnings = read_conf(write(tmp_path, "user.conf", text), SERVER).warnings
    assert [warning.count("1 more") for warning in warnings] == [1, 0]


def test_rows_of_other_known_models_and_scenarios_are_no_warning(tmp_path):
    text = "llama2-70b.Server.target_qps = 1\n*.Offline.target_qps = 2\n*.MultiStream.samples_per_query = 8\n"
    assert read_conf(write(tmp_path, "user.conf", text), SERVER) == Conf()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("*.Interactive.target_qps = 5\n", INTERACTIVE),
        ("gpt-oss-120b.Interactive.target_qps = 5\n", INTERACTIVE),
        ("*.Server.min_duration_ms = 5\n", SERVER),
        ("llama3.1-8b.Offline.min_duration = 5\n", ConfKey("llama3_1-8b", "Offline")),
    ],
)
def test_a_skipped_row_that_was_meant_for_this_run_is_an_error(tmp_path, text, target):
    """Of an Interactive run under its own model's key: under "*" the row would change Server's, too."""
    path = write(tmp_path, "user.conf", text)
    key = text.split()[0].rsplit(".", 1)[1].removesuffix("_ms")
    model = re.escape("*" if text.startswith("*.Server") else target.model_key)
    with pytest.raises(ConfigError, match=rf"did you mean '{model}\.{target.scenario}\.{key} = 5'"):
        read_conf(path, target)
    # ... unless another row sets the same key for it
    path.write_text(f"{text}*.{target.scenario}.{key} = 7\n")
    conf = read_conf(path, target)
    assert (conf.settings, len(conf.warnings)) == ({key: 7}, 1)


@pytest.mark.parametrize(
    ("row", "meant"),
    [
        ("min_duration = 5", "*.*.min_duration = 5"),
        ("Server.min_duration = 5", "*.Server.min_duration = 5"),
        ("llama2-70b.min_duration = 5", None),
        ("gpt-oss-120b.min_duration = 5", "gpt-oss-120b.*.min_duration = 5"),
        ("*.Server.min_duration=7", "*.Server.min_duration = 7"),
        ("*.Server.min_duration", "*.Server.min_duration = NUMBER"),
        ("*.Server.min_durtion = 5", "*.Server.min_duration = 5"),
        ("*.*.max_query_cont = 5", "*.*.max_query_count = 5"),
        ("*.Offline.min_durtion = 5", None),
        ("*.Server.samples_per_quer = 5", None),  # of MultiStream
        ("gpt-oss-120.Server.min_duration = 5", "gpt-oss-120b.Server.min_duration = 5"),
        ("gpt-oss-120b.Sever.min_duration = 5", "gpt-oss-120b.Server.min_duration = 5"),
        ("*.Interactive.min_duration = 5", None),
    ],
)
def test_the_row_that_was_meant(tmp_path, row, meant):
    """In a Server run, which is not Interactive."""
    path = write(tmp_path, "user.conf", f"{row}\n")
    if meant is None:
        assert len(read_conf(path, SERVER).warnings) == 1
        return
    with pytest.raises(ConfigError) as error:
        read_conf(path, SERVER)
    assert str(error.value).endswith(f"; did you mean {meant!r}?")


# One of the TensorRT generator for Interactive in v6.0: LoadGen skips the first row.
PUBLISHED = """*.Server.performance_sample_count = 4395
*.Server.performance_sample_count_override = 4395
*.Server.min_query_count = 4395
*.Server.min_duration = 600000
*.Server.target_qps = 20.0
"""


def test_a_published_conf(tmp_path, loadgen):
    counts = dict.fromkeys(("performance_sample_count_override", "min_query_count"), 4395)
    conf = read_conf(write(tmp_path, "user.conf", PUBLISHED), INTERACTIVE)
    assert conf.settings == counts | {"min_duration": 600_000, "target_qps": 20.0}
    assert len(conf.warnings) == 1
    code, in_force = loadgen[PUBLISHED, INTERACTIVE.model_key, INTERACTIVE.scenario]
    assert (code, in_force["server_target_qps"]) == (0, 20.0)


def embedded_conf():
    rows = re.findall(rb"^[\w.*-]+\.(?:\*|\w+)\.\w+ = [\d.]+$", loadgen_binary(), re.MULTILINE)
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
    path = tmp_path / "binary.conf"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.conf"):
        read_conf(path, SERVER)


RANKED = """gpt-oss-120b-interactive.Server.min_duration = 1
*.Offline.min_duration = 2
gpt-oss-120b.Server.min_duration = 3
gpt-oss-120b.*.min_duration = 4
*.Server.min_duration = 5
*.*.min_duration = 6
"""
# model, scenario, lines that apply, the line in force
IN_FORCE = [
    ("gpt-oss-120b", "Server", [3, 4, 5, 6], 3),
    ("gpt-oss-120b", "Offline", [2, 4, 6], 2),
    ("gpt-oss-120b-interactive", "Server", [1, 5, 6], 1),
    ("deepseek-r1", "Server", [5, 6], 5),
    ("llama3_1-8b", "SingleStream", [6], 6),
    ("gpt-oss-120b", "SingleStream", [4, 6], 4),
]


@pytest.mark.parametrize(("model", "scenario", "lines", "in_force"), IN_FORCE)
def test_which_rows_apply_and_which_is_in_force(tmp_path, loadgen, model, scenario, lines, in_force):
    conf = read_conf(write(tmp_path, "user.conf", RANKED), ConfKey(model, scenario))
    assert [row.line for row in conf.rows] == lines
    assert conf.settings == {"min_duration": in_force}
    assert loadgen[RANKED, model, scenario][1]["min_duration_ms"] == in_force


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


def test_the_file_that_decides_on_a_setting(tmp_path):
    """The --mlperf-conf has rows that are not in the user.conf, which is before it."""
    user, mlperf = tmp_path / "user.conf", tmp_path / "mlperf.conf"
    user.write_text("*.Server.min_duration = 1\n")
    mlperf.write_text("*.Server.min_duration = 2\n*.Server.max_duration = 3\n")
    assert source_of("max_duration", SERVER, user, mlperf) == f"--mlperf-conf {mlperf}"
    for key in ("min_duration", "max_query_count"):
        assert source_of(key, SERVER, user, mlperf) == str(user)
    assert source_of("max_duration", SERVER, user, None) == str(user)
