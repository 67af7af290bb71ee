"""The number of queries of a run: compared with runs of LoadGen 6.0.17 itself and against published ones."""

import pytest

from harness.config.benchmark import load_benchmark
from harness.config.expected_queries import ended_by, expected_queries
from harness.files import CONFIG_DIR
from harness.peak.search.schedule import Schedule
from tests.harness.config.loadgen import loadgen_issues, loadgen_reads

ONCE = "*.*.sample_concatenate_permutation = 0\n"
UNIQUE = "*.*.performance_issue_unique = 1\n"


RATE = {"Server": "target_qps", "Offline": "target_qps", "SingleStream": "target_latency"}


def run(scenario, samples, rate, duration_ms, least, more=""):
    """A performance run, as ``loadgen_issues`` takes it."""
    rows = {RATE[scenario]: rate, "min_duration": duration_ms, "min_query_count": least}
    text = "".join(f"*.{scenario}.{key} = {value}\n" for key, value in rows.items())
    return scenario, samples, text + more, False


# what is run, and what LoadGen issues
CASES = [
    (run("Server", 12, 2000, 100, 1), 204),
    (run("Server", 12, 2000, 0, 1), 12),
    (run("Server", 64, 1000, 300, 100), 320),
    (run("Server", 64, 1000, 299, 100, ONCE), 297),
    (run("Server", 1000, 3000, 500, 1, ONCE), 1574),
    (run("Server", 500, 2000, 255, 1), 500),
    (run("Server", 7, 300, 333, 1), 98),
    (run("Server", 100, 1000, 0, 350), 400),
    (run("Server", 100, 1000, 0, 300), 300),
    (run("Server", 100, 1000, 100, 5, UNIQUE + ONCE), 100),
    (run("Server", 100, 1000, 100, 5, "*.*.performance_sample_count_override = 30\n"), 120),
    (run("Server", 100, 1000, 100, 300, "*.Server.max_query_count = 250\n"), 250),
    (run("Offline", 12, 1, 0, 1), 12),
    (run("Offline", 64, 10, 60000, 1), 704),
    (run("Offline", 64, 10, 60000, 1, ONCE), 660),
    (run("Offline", 64, 9.7, 6000, 64), 64),
    (run("Offline", 64, 1, 0, 129), 192),
    (run("Offline", 64, 1, 0, 1, UNIQUE + ONCE), 64),
    (run("SingleStream", 12, 10, 0, 1), 12),
    (run("SingleStream", 12, 10, 0, 24), 36),
    (run("SingleStream", 12, 1000, 10_000, 100), 108),
    (run("SingleStream", 12, 10, 0, 5, ONCE), 5),
    (("Offline", 20, "", True), 20),
    (("Offline", 20, "*.*.accuracy_sample_count_override = 7\n", True), 7),
    (("Offline", 20, "*.*.performance_sample_count_override = 7\n", True), 20),
    (("Server", 20, "*.Server.target_qps = 500\n", True), 20),
    (("SingleStream", 20, "", True), 20),
]
# LoadGen reads beyond its queries where it has none to issue, and nearly always crashes.
NONE = [
    run("Server", 12, 2000, 0, 0),
    run("Server", 12, 2000, 0, 0, ONCE),
    run("Server", 12, 2000, 100, 0),
    run("Offline", 12, 1, 0, 0),
    run("Offline", 12, 1, 0, 0, ONCE),
    run("SingleStream", 12, 10, 0, 0, ONCE),
]
# 100 ms of queries that take no time: more than the minimum, which is known, are issued.
FASTER = run("SingleStream", 12, 10, 100, 5, ONCE)


MOST, LONGEST = "*.*.max_query_count = {}\n", "*.*.max_duration = {}\n"
# what is run, and the row by which LoadGen ends it early
EARLY = [
    (run("Server", 100, 1000, 0, 200, MOST.format(200)), "max_query_count"),
    (run("Server", 100, 1000, 0, 200, MOST.format(201)), ""),
    (run("Server", 100, 1000, 0, 200, LONGEST.format(100)), "max_duration"),
    (run("Server", 100, 1000, 0, 200, LONGEST.format(5000)), ""),
    (run("SingleStream", 12, 10, 0, 5, ONCE + MOST.format(5)), ""),
    (run("Offline", 12, 1, 0, 1, MOST.format(1)), ""),
    (run("Offline", 12, 1, 0, 1, LONGEST.format(1)), ""),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("issue")


@pytest.fixture(scope="module")
def issued(folder):
    cases = [*(case for case, _ in EARLY), FASTER, *(case for case, _ in CASES)]
    return dict(zip(cases, loadgen_issues(folder, cases), strict=True))


@pytest.mark.parametrize(("number", "case", "row"), [(n, *case) for n, case in enumerate(EARLY)])
def test_the_row_by_which_loadgen_ends_a_run_with_an_error(issued, folder, number, case, row):
    scenario, samples, _, _ = case
    expected = expected_queries(issued[case][1], scenario, samples, accuracy=False)
    assert ended_by(issued[case][1], scenario, expected) == row
    log = (folder / str(number) / "mlperf_log_detail.txt").read_text()
    text = {"max_query_count": "Max query count reached", "max_duration": "Max test duration reached"}
    assert [key for key, said in text.items() if f"Ending early: {said}" in log] == ([row] if row else [])


@pytest.mark.parametrize(("case", "count"), CASES)
def test_loadgen_issues_as_many(issued, case, count):
    scenario, samples, _, accuracy = case
    by_loadgen, settings = issued[case]
    assert by_loadgen == count
    found = expected_queries(settings, scenario, samples, accuracy=accuracy)
    assert (found.samples, found.exact, found.scheduled) == (count, True, scenario == "Server")
    if accuracy:  # answers come as they come, unless LoadGen's schedule says when: 20 at 500 a second
        assert found.seconds == (0.04 if scenario == "Server" else None)


@pytest.mark.parametrize(("case", "seconds"), [(run("SingleStream", 12, 10, 0, 24), 0.36), (FASTER, 0.1)])
def test_the_time_of_single_stream_is_that_of_its_queries_or_the_least(issued, case, seconds):
    """36 queries of 10 ms; and five of them, which LoadGen issues for 100 ms."""
    found = expected_queries(issued[case][1], "SingleStream", 12, accuracy=False)
    assert found.seconds == pytest.approx(seconds)


@pytest.mark.engine
@pytest.mark.parametrize("case", NONE)
def test_no_query_is_expected_where_loadgen_issues_none(case, tmp_path):
    scenario, samples, _, _ = case
    try:
        ((issued, _),) = loadgen_issues(tmp_path, [case])
    except FileNotFoundError as error:  # of the file that a process writes at its end
        assert error.filename.endswith("0.json")
        issued = 0
    assert issued == 0
    ((_, settings),) = loadgen_reads([(tmp_path / "0/user.conf", "gpt-oss-120b", scenario)])
    issue = expected_queries(settings, scenario, samples, accuracy=False)
    assert (issue.samples, issue.seconds) == (0, 0)


def test_single_stream_goes_on_while_answers_are_faster_than_expected(issued):
    by_loadgen, settings = issued[FASTER]
    issue = expected_queries(settings, "SingleStream", 12, accuracy=False)
    assert (issue.samples, issue.exact, issue.least_s) == (5, False, 0.1)
    assert by_loadgen >= 5


# target_qps over gpt-oss-120b's dataset with the official seeds, LoadGen's generated_query_count and
# generated_query_duration, which ends one query after the last.
SCHEDULES = [(1.0, 6396, 6394.059657838), (10.0, 6396, 639.405962926), (20.0, 12792, 633.828870382)]
UNDRAWN = [10**10, 2**63]  # queries of which no machine could draw a schedule
# conf, scenario, queries with that dataset, most seconds at the rate asked for
SHIPPED = [
    ("user.conf", "Offline", 6396, 720),
    ("user.conf", "Server", 6396, 660),
    ("user.conf", "SingleStream", 6396, 64_000),
    ("quick.conf", "Offline", 64, 64),
    ("quick.conf", "Server", 484, 30),
    ("quick.conf", "SingleStream", 64, 10),
]


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """The issue of each of these confs with the official dataset, by rate, count, or name and scenario."""
    folder = tmp_path_factory.mktemp("conf")
    texts = {rate: f"*.Server.target_qps = {rate}\n" for rate, *_ in SCHEDULES}
    texts |= {n: f"*.Server.target_qps = 100\n*.Server.min_query_count = {n}\n" for n in UNDRAWN}
    cases = {(conf, scenario): (CONFIG_DIR / conf, scenario) for conf, scenario, *_ in SHIPPED}
    for key, text in texts.items():
        cases[key] = (folder / f"{key}.conf", "Server")
        cases[key][0].write_text(text)
    answers = loadgen_reads([(path, "gpt-oss-120b", scenario) for path, scenario in cases.values()])
    samples = load_benchmark("gpt-oss-120b").datasets["performance"].samples
    return {
        key: expected_queries(settings, scenario, samples, accuracy=False)
        for (key, (_, scenario)), (_, settings) in zip(cases.items(), answers, strict=True)
    }


@pytest.mark.parametrize(("qps", "queries", "seconds"), SCHEDULES)
def test_server_of_the_official_dataset(official, qps, queries, seconds):
    issue = official[qps]
    assert (issue.samples, issue.exact, issue.scheduled) == (queries, True, True)
    assert issue.seconds == pytest.approx(seconds, rel=1e-4)


@pytest.mark.parametrize("count", UNDRAWN)
def test_a_schedule_that_no_machine_could_draw_is_estimated(official, count):
    """In complete datasets, as LoadGen would draw it."""
    issue = official[count]
    assert issue.samples % issue.dataset == 0 <= issue.samples - count < issue.dataset
    assert issue.seconds == pytest.approx(issue.samples / 100)


@pytest.mark.parametrize(("conf", "scenario", "queries", "seconds"), SHIPPED)
def test_shipped_confs(official, conf, scenario, queries, seconds):
    assert official[conf, scenario].samples == queries
    assert official[conf, scenario].seconds <= seconds


def test_a_search_with_the_quick_conf_can_be_valid_at_every_rate():
    """An INVALID run prints the command of the search, with the conf that it had."""
    ((_, settings),) = loadgen_reads([(CONFIG_DIR / "quick.conf", "gpt-oss-120b", "Server")])
    assert Schedule(settings, 64).fewest.queries >= 459
