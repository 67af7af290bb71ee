"""run_mlperf.py --audit-config: LoadGen puts the file on top of all other settings, and the run says so."""

import pytest

from tests.runs import quick_conf, run_here, run_mlperf, small_dataset, without_waits
from tests.stub import StubServer

TOKENS = 3


@pytest.fixture
def stub():
    with StubServer(tokens=TOKENS) as server:
        yield server


CHEAT = """
*.*.mode = 2
*.*.min_duration = 1000
*.*.min_query_count = 1
*.*.target_qps = 40
*.*.ttft_latency = 99999999
"""
SEED = "accuracy_log_rng_seed = 720381539243781796"
ONCE = "performance_issue_unique = 1, sample_concatenate_permutation = 0"
# The rows of the official files, by test, and how many of LoadGen's settings then differ from the rules
# (min_duration always does: the conf file of these runs sets it).
OFFICIAL_AUDITS = {
    "TEST01": (f"{SEED}, accuracy_log_sampling_target = 64", 1),
    "TEST04": (
        "performance_issue_unique = 0, performance_issue_same = 1, performance_issue_same_index = 3",
        2,
    ),
    "TEST06": (
        f"{SEED}, accuracy_log_sampling_target = 100, min_query_count = 100, min_duration = 0, "
        "sample_concatenate_permutation = 0",
        2,
    ),
    "TEST07": (
        f"{SEED}, accuracy_log_sampling_target = 990, min_query_count = 990, min_duration = 0, {ONCE}, "
        "test07_accuracy_threshold = 60.698",
        3,
    ),
    "TEST09": (
        f"{SEED}, accuracy_log_sampling_target = 10000, min_query_count = 6396, min_duration = 0, {ONCE}, "
        "test09_min_output_tokens = 1150.38, test09_max_output_tokens = 1406.02",
        3,
    ),
}


def audited(stub, folder, text):
    """The flags of a run under an audit.config with this text."""
    (folder / "audit.config").write_text(text)
    file, _ = small_dataset(folder)
    return "--server-url", stub.url, "--input-file", file, "--audit-config", folder / "audit.config"


def test_an_audit_config_is_in_force_named_and_kept(stub, tmp_path, capfd):
    words = (*audited(stub, tmp_path, CHEAT), "--max-new-tokens", TOKENS + 1)
    run = run_mlperf(tmp_path, *words, scenario="server", duration_ms=600_000, here=capfd)
    record = run.record
    assert record["plan"]["loadgen_settings"]["min_duration_ms"] == 1000
    assert record["plan"]["loadgen_settings"]["server_target_qps"] == 40
    assert record["settings_in_force"]["min_duration_ms"] == 1000
    assert record["settings_in_force"]["target_qps"] == 40
    assert record["settings_in_force"]["test_mode"] == "PerformanceOnly"
    found = " ".join(record["deviations"])
    for words in ("audit settings are in force", "min_duration_ms is 1000", "ttft_latency is 1e+08 ms"):
        assert words in found
    assert "NOT OFFICIAL" in run.stdout
    assert (run.log_dir / "audit.config").read_text() == CHEAT


def test_rows_that_loadgen_would_not_read_are_rewritten_for_it(stub, tmp_path, capfd):
    """LoadGen refuses the complete file for a comment behind a value."""
    text = "*.*.mode = 2\n*.*.min_duration = 0 # ms\n*.*.min_query_count=9\n"
    run = run_here(capfd, tmp_path, *audited(stub, tmp_path, text), "--dry-run")
    assert run.code == 0, run.stderr
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("audit ")]
    assert "mode 2, min_duration 0, min_query_count 9" in line
    assert f"WARNING   --audit-config {tmp_path}/audit.config:2: " in run.stdout


@pytest.mark.parametrize(
    ("test", "scenario"), [*((test, "Offline") for test in OFFICIAL_AUDITS), ("TEST07", "*")]
)
def test_an_official_audit_config_names_its_test(stub, tmp_path, capfd, test, scenario):
    named, changed = OFFICIAL_AUDITS[test]
    rows = ["mode = 2", *named.split(", ")]
    text = "# official\n" + "".join(f"*.{scenario}.{row}\n" for row in rows)
    words = (*audited(stub, tmp_path, text), "--user-conf", quick_conf(tmp_path, duration_ms=600_000))
    run = run_here(capfd, tmp_path, *words, "--dry-run")
    assert run.code == 0, run.stderr
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("audit ")]
    assert test in line
    for key in ("mode 2", *("min_duration 0" for row in rows if "min_duration" in row)):
        assert key in line
    deviations = [line for line in run.stdout.splitlines() if line.startswith("DEVIATION ")]
    assert sum(test in line for line in deviations) == 1
    assert sum("DEVIATION LoadGen" in line for line in deviations) == changed


@pytest.mark.parametrize(
    ("mode", "words", "remedy"),
    [
        (2, ["--accuracy"], "omit --accuracy"),
        (1, [], "add --accuracy"),
        (0, [], "remove the row"),
        (3, ["--accuracy"], "remove the row"),
        (9, [], "remove the row"),
    ],
)
def test_a_mode_that_was_not_asked_for_is_refused(stub, tmp_path, capfd, mode, words, remedy):
    run = run_here(capfd, tmp_path, *audited(stub, tmp_path, f"*.*.mode = {mode}\n"), *words)
    assert run.code == 2, run.stdout
    assert f"mode = {mode}" in run.stderr
    assert remedy in run.stderr
    assert len(without_waits(run.stderr)) == 1
    assert not (tmp_path / "offline").exists()


def test_more_samples_than_there_are_would_crash_loadgen(stub, tmp_path, capfd):
    words = audited(stub, tmp_path, "*.*.performance_sample_count_override = 13\n")
    run = run_here(capfd, tmp_path, *words, "--dry-run")
    assert run.code == 2, run.stdout
    assert "performance_sample_count_override = 13, the dataset has 12 rows" in run.stderr
