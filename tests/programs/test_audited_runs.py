"""run_mlperf.py --audit-config: LoadGen puts the file on top of all other settings, and the run says so."""

import pytest

from harness.config.audit_config import test_named as name_of_test
from harness.config.loadgen_conf import ConfKey, parse_conf
from tests.runs import run_here, run_mlperf, small_dataset, without_waits
from tests.stub import StubServer

TOKENS = 3


@pytest.fixture
def stub():
    with StubServer(tokens=TOKENS) as server:
        yield server


# LoadGen itself refuses the complete file for a comment behind a value.
COMMENTED = """
*.*.mode = 2
*.*.min_duration = 1000 # ms
*.*.min_query_count=1
*.*.target_qps = 40
*.*.ttft_latency = 99999999
*.Server.test07_accuracy_threshold = 60.698
"""
PLAIN = COMMENTED.replace(" # ms", "").replace("=1\n", " = 1\n")
SEED = "accuracy_log_rng_seed = 720381539243781796"
ONCE = "performance_issue_unique = 1, sample_concatenate_permutation = 0"
# The rows of the official files, by test.
OFFICIAL_AUDITS = {
    "TEST01": f"{SEED}, accuracy_log_sampling_target = 64",
    "TEST04": "performance_issue_unique = 0, performance_issue_same = 1, performance_issue_same_index = 3",
    "TEST06": f"{SEED}, accuracy_log_sampling_target = 100, min_query_count = 100, min_duration = 0, "
    "sample_concatenate_permutation = 0",
    "TEST07": f"{SEED}, accuracy_log_sampling_target = 990, min_query_count = 990, min_duration = 0, {ONCE}, "
    "test07_accuracy_threshold = 60.698",
    "TEST09": f"{SEED}, accuracy_log_sampling_target = 10000, min_query_count = 6396, min_duration = 0, "
    f"{ONCE}, test09_min_output_tokens = 1150.38, test09_max_output_tokens = 1406.02",
}


def audited(stub, folder, text):
    """The flags of a run under an audit.config with this text."""
    (folder / "mine.config").write_text(text)
    file, _ = small_dataset(folder)
    return "--server-url", stub.url, "--input-file", file, "--audit-config", folder / "mine.config"


@pytest.mark.engine
def test_an_audit_config_is_in_force_named_and_kept(stub, tmp_path, capfd):
    words = (*audited(stub, tmp_path, COMMENTED), "--max-new-tokens", TOKENS + 1)
    run = run_mlperf(tmp_path, *words, scenario="server", duration_ms=600_000, here=capfd)
    record = run.record
    assert record["plan"]["loadgen_settings"]["min_duration_ms"] == 1000
    assert record["plan"]["loadgen_settings"]["server_target_qps"] == 40
    assert record["settings_in_force"]["min_duration_ms"] == 1000
    assert record["settings_in_force"]["target_qps"] == 40
    assert record["settings_in_force"]["test_mode"] == "PerformanceOnly"
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("audit ")]
    assert "(TEST07): mode 2, min_duration 1000, min_query_count 1" in line
    assert f"WARNING   --audit-config {tmp_path}/mine.config:3: " in run.stdout
    found = record["deviations"]
    assert sum("audit settings are in force (TEST07)" in deviation for deviation in found) == 1
    for words in ("min_duration_ms is 1000", "ttft_latency is 1e+08 ms"):
        assert words in " ".join(found)
    assert "NOT OFFICIAL" in run.stdout
    assert (run.log_dir / "audit.config").read_text() == PLAIN


@pytest.mark.parametrize("test", OFFICIAL_AUDITS)
@pytest.mark.parametrize("scenario", ["Offline", "*"])
def test_the_test_of_an_official_audit_config_is_recognised(scenario, test):
    rows = ["mode = 2", *OFFICIAL_AUDITS[test].split(", ")]
    text = "# official\n" + "".join(f"*.{scenario}.{row}\n" for row in rows)
    assert name_of_test(parse_conf(text, test, ConfKey("m", "Offline"), "audit").settings) == test


@pytest.mark.parametrize(
    ("row", "words", "remedy"),
    [
        ("mode = 2", ["--accuracy"], "omit --accuracy"),
        ("mode = 1", [], "add --accuracy"),
        ("mode = 0", [], "remove the row"),
        ("performance_sample_count_override = 13", [], "the dataset has 12 rows"),  # LoadGen would crash
    ],
)
def test_rows_that_cannot_be_meant_are_refused(stub, tmp_path, capfd, row, words, remedy):
    run = run_here(capfd, tmp_path, *audited(stub, tmp_path, f"*.*.{row}\n"), *words)
    assert run.code == 2, run.stdout
    assert row in run.stderr
    assert remedy in run.stderr
    assert len(without_waits(run.stderr)) == 1
    assert not (tmp_path / "offline").exists()
