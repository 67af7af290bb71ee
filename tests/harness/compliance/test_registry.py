"""A compliance test is one class and its section of a benchmark's definition."""

from typing import ClassVar

import pytest
from msgspec.structs import replace

from harness.compliance import compliance_options
from harness.compliance.base import ComplianceTest, TestResult
from harness.compliance.compliance_command import verify_logs
from harness.compliance.compliance_options import build_run_parser, parse_options
from harness.compliance.compliance_plan import resolve_runs
from harness.compliance.length_check import measure
from harness.compliance.registry import TESTS, find_test, needed_tests
from harness.config import choices
from harness.config.benchmark import load_benchmark
from harness.errors import ConfigError, DatasetError
from harness.files import CONFIG_DIR
from tests.harness.compliance import cases
from tests.runs import SAMPLES

DEFINITION = """
[compliance.TEST99]
dataset = "performance"
longest = 1300

[compliance.TEST99.audit]
mode = 2
min_query_count = 3
performance_issue_unique = 1
"""


class LongestTest(ComplianceTest, frozen=True, kw_only=True):
    """No output is longer than ``longest`` tokens, or than the threshold of a user's audit.config."""

    name: ClassVar[str] = "TEST99"
    verify_file: ClassVar[str] = "verify_longest.txt"
    threshold_keys: ClassVar[tuple[str, ...]] = ("test99_longest",)

    longest: int

    @property
    def thresholds(self):
        return {"test99_longest": float(self.longest)}

    def judge(self, log, run):
        found = measure(log, ()).longest
        passed = found <= run.thresholds["test99_longest"]
        return TestResult(passed, f"longest {found}", f"TEST {'PASS' if passed else 'FAIL'}\n")


@pytest.fixture
def registered(tmp_path, monkeypatch):
    configs = tmp_path / "configs"
    configs.mkdir()
    text = (CONFIG_DIR / "gpt-oss-120b.toml").read_text()
    (configs / "gpt-oss-120b.toml").write_text(text + DEFINITION)
    monkeypatch.setattr(choices, "CONFIG_DIR", configs)
    monkeypatch.setattr(compliance_options, "build_run_parser", build_run_parser.__wrapped__)
    monkeypatch.setitem(TESTS, LongestTest.name, LongestTest)
    return load_benchmark("gpt-oss-120b")


def test_it_is_planned_with_its_audit_settings(registered, tmp_path):
    assert needed_tests(registered) == ("TEST07", "TEST09", "TEST99")
    words = ("--test", "test99", "--input-file", SAMPLES / "perf_sample.parquet", "--non-official")
    (item,) = resolve_runs(parse_options([*map(str, words), "--output-dir", str(tmp_path / "out")]))
    assert (item.test, item.folder) == ("TEST99", tmp_path / "out" / "offline" / "TEST99")
    assert item.plan.client.log_dir == item.folder / "run"
    assert item.plan.audit.settings == {"mode": 2, "min_query_count": 64, "performance_issue_unique": 1}
    assert item.plan.audit.deviations == ("TEST99 min_query_count is 64, not 3 of the official settings",)
    assert "*.*.test99_longest = 1300.0" in item.plan.audit.text


def test_another_dataset_is_refused_with_the_command_that_fetches_the_right_one():
    words = ["--test", "TEST07", "--input-file", str(SAMPLES / "compliance_sample.parquet")]
    with pytest.raises(
        DatasetError, match=r"; pass (\S*/)?data/acc/\S+_gpqa.parquet \(datasets/download.sh --benchmark "
    ):
        resolve_runs(parse_options(words))


def test_settings_of_a_user_are_named_with_their_file_and_differences(registered, tmp_path):
    file = tmp_path / "mine.config"
    file.write_text("*.*.mode = 2\n*.*.min_query_count = 7\n*.*.test99_longest = 1400\n")
    words = ["--test", "TEST99", "--input-file", SAMPLES / "perf_sample.parquet", "--rehearsal"]
    words += ["--audit-config", file, "--reference-data", "nowhere"]
    (item,) = resolve_runs(parse_options([*map(str, words)]))
    assert item.plan.audit.file == file
    assert item.plan.client.warnings == (
        "--reference-data nowhere has no effect: TEST99 scores no answers",
        f"min_query_count is 7 in {file}, 3 in the official settings",
        f"performance_issue_unique is not set in {file}, 1 in the official settings",
        f"test99_longest is 1400.0 in {file}, 1300.0 in the official settings",
    )


@pytest.mark.parametrize(
    ("audit", "code", "text"), [("", 5, "TEST FAIL"), ("*.*.test99_longest = 1400  # tokens\n", 0, "PASS")]
)
def test_it_is_verified_into_its_folder(registered, tmp_path, capsys, audit, code, text):
    logs = cases.write_logs(tmp_path / "logs", cases.lengths_log("within"))
    words = ["verify", "TEST99", "--log-dir", logs, "--non-official", "--output-dir", tmp_path / "out"]
    if audit:
        (tmp_path / "mine.config").write_text(audit)
        words += ["--audit-config", tmp_path / "mine.config"]
    assert verify_logs(parse_options([str(word) for word in words])) == code
    assert "longest 1400" in capsys.readouterr().out
    folder = tmp_path / "out" / "TEST99"
    assert (folder / "accuracy" / "mlperf_log_accuracy.json").exists()
    written = (folder / "verify_longest.NOT_OFFICIAL.txt").read_text()
    assert text in written and "TEST PASS" not in written


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"dataset": "performance", "audit": {}}, "longest"),
        ({"dataset": "no", "audit": {}, "longest": 1}, "no dataset 'no' is defined"),
        ({"audit": {}, "longest": 1}, "no dataset is named"),
        ({"dataset": "performance", "audit": {}, "longest": 1, "shortest": 1}, "shortest"),
    ],
)
def test_a_wrong_definition_is_one_line(registered, section, named):
    registered.compliance["TEST99"] = section
    with pytest.raises(ConfigError, match=rf"compliance\.TEST99: .*{named}"):
        find_test(registered, "TEST99")


def test_another_metric_is_no_metric_of_test07():
    benchmark = load_benchmark("gpt-oss-120b")
    section = {"TEST07": benchmark.compliance["TEST07"] | {"metric": "rouge1"}}
    with pytest.raises(ConfigError, match=r"compliance\.TEST07: Invalid enum value 'rouge1'"):
        find_test(replace(benchmark, compliance=section), "TEST07")
