"""The number of queries of a run: compared with runs of LoadGen 6.0.17 itself and against published ones."""

import pytest

from harness.config.benchmark import load_benchmark
from harness.config.expected_queries import expected_issue
from harness.files import CONFIG_DIR
from tests.harness.config.loadgen import loadgen_issues, loadgen_reads

ONCE = "*.*.sample_concatenate_permutation = 0\n"
UNIQUE = "*.*.performance_issue_unique = 1\n"


def server(samples, qps, duration_ms, least, more=""):
    rows = f"*.Server.target_qps = {qps}\n*.Server.min_duration = {duration_ms}\n"
    return "Server", samples, f"{rows}*.Server.min_query_count = {least}\n{more}", False


def offline(samples, qps, duration_ms, least, more=""):
    rows = f"*.Offline.target_qps = {qps}\n*.Offline.min_duration = {duration_ms}\n"
    return "Offline", samples, f"{rows}*.Offline.min_query_count = {least}\n{more}", False


def single_stream(samples, latency_ms, duration_ms, least, more=""):
    rows = f"*.SingleStream.target_latency = {latency_ms}\n*.SingleStream.min_duration = {duration_ms}\n"
    return "SingleStream", samples, f"{rows}*.SingleStream.min_query_count = {least}\n{more}", False


# what is run, and what LoadGen issues
CASES = [
    (server(12, 2000, 100, 1), 204),
    (server(12, 2000, 0, 1), 12),
    (server(64, 1000, 300, 100), 320),
    (server(64, 1000, 300, 100, ONCE), 298),
    (server(1000, 3000, 500, 1, ONCE), 1574),
    (server(500, 2000, 255, 1), 500),
    (server(7, 300, 333, 1), 98),
    (server(100, 1000, 0, 350), 400),
    (server(100, 1000, 0, 300), 300),
    (server(100, 1000, 100, 5, UNIQUE + ONCE), 100),
    (server(100, 1000, 100, 5, "*.*.performance_sample_count_override = 30\n"), 120),
    (server(100, 1000, 100, 300, "*.Server.max_query_count = 250\n"), 250),
    (offline(12, 1, 0, 1), 12),
    (offline(64, 10, 60000, 1), 704),
    (offline(64, 10, 60000, 1, ONCE), 660),
    (offline(64, 9.7, 6000, 64), 64),
    (offline(64, 1, 0, 129), 192),
    (offline(64, 1, 0, 1, UNIQUE + ONCE), 64),
    (single_stream(12, 10, 0, 1), 12),
    (single_stream(12, 10, 0, 24), 36),
    (single_stream(12, 10, 100, 100), 108),
    (single_stream(12, 10, 0, 5, ONCE), 5),
    (("Offline", 20, "", True), 20),
    (("Offline", 20, "*.*.accuracy_sample_count_override = 7\n", True), 7),
    (("Offline", 20, "*.*.performance_sample_count_override = 7\n", True), 20),
    (("Server", 20, "*.Server.target_qps = 500\n", True), 20),
    (("SingleStream", 20, "", True), 20),
]


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    cases = [case for case, _ in CASES]
    return dict(zip(cases, loadgen_issues(tmp_path_factory.mktemp("issue"), cases), strict=True))


@pytest.mark.parametrize(("case", "count"), CASES)
def test_loadgen_issues_as_many(issued, case, count):
    scenario, samples, _, accuracy = case
    by_loadgen, settings = issued[case]
    assert by_loadgen == count
    assert expected_issue(settings, scenario, samples, accuracy=accuracy).samples == count


def test_single_stream_goes_on_while_answers_are_faster_than_expected(tmp_path):
    """100 ms of queries that take no time: more than the minimum, which is known, are issued."""
    case = single_stream(12, 10, 100, 5, ONCE)
    ((by_loadgen, settings),) = loadgen_issues(tmp_path, [case])
    issue = expected_issue(settings, "SingleStream", 12, accuracy=False)
    assert (issue.samples, issue.exact, issue.least_s) == (5, False, 0.1)
    assert by_loadgen >= 5


# Server, 6396 samples and the official seeds: target_qps, LoadGen's generated_query_count and
# generated_query_duration, which ends one query after the last.
SCHEDULES = [(1.0, 6396, 6394.059657838), (10.0, 6396, 639.405962926), (20.0, 12792, 633.828870382)]


@pytest.mark.parametrize(("qps", "queries", "seconds"), SCHEDULES)
def test_server_of_the_official_dataset(tmp_path, qps, queries, seconds):
    path = tmp_path / "user.conf"
    path.write_text(f"*.Server.target_qps = {qps}\n")
    ((_, settings),) = loadgen_reads([(path, "gpt-oss-120b", "Server")])
    issue = expected_issue(settings, "Server", 6396, accuracy=False)
    assert (issue.samples, issue.exact, issue.scheduled) == (queries, True, True)
    assert issue.seconds == pytest.approx(seconds, rel=1e-4)


@pytest.mark.parametrize("count", [10**10, 2**63])
def test_a_schedule_that_no_machine_could_draw_is_estimated(tmp_path, count):
    path = tmp_path / "user.conf"
    path.write_text(f"*.Server.target_qps = 100\n*.Server.min_query_count = {count}\n")
    ((_, settings),) = loadgen_reads([(path, "gpt-oss-120b", "Server")])
    issue = expected_issue(settings, "Server", 6396, accuracy=False)
    assert issue.samples >= count
    assert issue.seconds == pytest.approx(issue.samples / 100)


# conf, scenario, queries with the official dataset of gpt-oss-120b, most seconds at the rate asked for
SHIPPED = [
    ("user.conf", "Offline", 6396, 720),
    ("user.conf", "Server", 6396, 660),
    ("user.conf", "SingleStream", 6396, 64_000),
    ("quick.conf", "Offline", 64, 64),
    ("quick.conf", "Server", 484, 30),
    ("quick.conf", "SingleStream", 64, 10),
]


@pytest.mark.parametrize(("conf", "scenario", "queries", "seconds"), SHIPPED)
def test_shipped_confs(conf, scenario, queries, seconds):
    samples = load_benchmark("gpt-oss-120b").datasets["performance"].samples
    ((_, settings),) = loadgen_reads([(CONFIG_DIR / conf, "gpt-oss-120b", scenario)])
    issue = expected_issue(settings, scenario, samples, accuracy=False)
    assert issue.samples == queries
    assert issue.seconds <= seconds
