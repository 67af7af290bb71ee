"""Published conf files: rows that LoadGen skips are warnings, unless they were meant for this run.

Every text is also given to LoadGen 6.0.17 itself, in a process of its own.
"""

import pytest

from harness.config.loadgen_conf import Conf, Target, read_conf
from harness.errors import ConfigError
from tests.harness.config.loadgen import loadgen_reads
from tests.harness.config.test_loadgen_conf import MODEL, SERVER, write

INTERACTIVE = Target("gpt-oss-120b-interactive", "Server", interactive=True)

# Skipped: rows of published files that LoadGen reads for no run or not for this one
SKIPPED = [
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
    "*.Offline.batch_size = 5\n",
    "*.*.mode_of_transport = 5\n",
    "TODO\n",
]


@pytest.mark.parametrize("text", SKIPPED)
def test_a_row_that_loadgen_skips_is_a_warning(tmp_path, text):
    path, empty = write(tmp_path, "user.conf", text), write(tmp_path, "empty.conf", "")
    conf = read_conf(path, SERVER)
    assert conf.rows == ()
    (warning,) = conf.warnings
    assert warning.startswith(f"{path}:1: ")
    with_row, without = loadgen_reads([(path, MODEL, "Server"), (empty, MODEL, "Server")])
    assert with_row == without
    assert with_row[0] == 0


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
        ("llama3.1-8b.Offline.min_duration = 5\n", Target("llama3_1-8b", "Offline")),
    ],
)
def test_a_skipped_row_that_was_meant_for_this_run_is_an_error(tmp_path, text, target):
    path = write(tmp_path, "user.conf", text)
    key = text.split()[0].rsplit(".", 1)[1]
    with pytest.raises(ConfigError, match=rf"did you mean '\S*{target.scenario}\.{key} = 5'"):
        read_conf(path, target)
    # ... unless another row sets the same key for it
    path.write_text(f"{text}*.{target.scenario}.{key} = 7\n")
    conf = read_conf(path, target)
    assert (conf.settings, len(conf.warnings)) == ({key: 7}, 1)


def test_a_published_conf(tmp_path):
    """One of the TensorRT generator for Interactive in v6.0: LoadGen skips the first row."""
    text = """*.Server.performance_sample_count = 4395
*.Server.performance_sample_count_override = 4395
*.Server.min_query_count = 4395
*.Server.min_duration = 600000
*.Server.target_qps = 20.0
"""
    path = write(tmp_path, "user.conf", text)
    counts = dict.fromkeys(("performance_sample_count_override", "min_query_count"), 4395)
    conf = read_conf(path, INTERACTIVE)
    assert conf.settings == counts | {"min_duration": 600_000, "target_qps": 20.0}
    assert len(conf.warnings) == 1
    ((code, in_force),) = loadgen_reads([(path, INTERACTIVE.model_key, INTERACTIVE.scenario)])
    assert (code, in_force["server_target_qps"]) == (0, 20.0)
