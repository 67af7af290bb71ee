"""What the flags promise, on whole runs against a stub server."""

import itertools
import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack

import pytest
from msgspec import structs

import eval_mlperf_accuracy
from harness.errors import EXIT_SERVER, EXIT_THRESHOLD
from harness.files import ACCURACY_LOG, REPORT, RUN_RECORD
from harness.record.accuracy_result import AccuracyResult
from harness.record.run_record import RunRecord
from harness.submission.tree.origins import BESIDE
from sut import prepare
from sut.processes.machine_limits import MachineLimits
from sut.servers import scrape
from sut.supervisor.disk_room import DiskRoom
from tests.kit import free_ports, wait_until
from tests.made_up.synthetic import make_datasets
from tests.runs import (
    ACCURACY,
    SAMPLES,
    command,
    evaluator,
    main_here,
    quick_conf,
    run_here,
    run_mlperf,
    small_dataset,
    without_waits,
)
from tests.stub import Facts, Fault, StubServer, expected_ids, refused_url

TOKENS = 5
CODE = SAMPLES / "code_sample.jsonl"


def most_in_flight(rows) -> int:
    """The largest number of requests that overlap, from their times."""
    moments = [(row["sent_ns"], 1) for row in rows] + [(row["last_byte_ns"], -1) for row in rows]
    height = most = 0
    for _, step in sorted(moments):
        height += step
        most = max(most, height)
    return most


def after(count, stubs):
    """A gate for the stubs' answers that opens at the ``count``-th query; the trials are answered."""
    return lambda request: request.index == 0 or sum(len(stub.requests[1:]) for stub in stubs) >= count


def test_single_stream_sends_one_at_a_time(tmp_path, monkeypatch, capfd, caplog):
    """Also: LoadGen takes ./audit.config silently; here only --audit-config counts."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO")
    (tmp_path / "audit.config").write_text("*.*.mode = 2\n*.*.accuracy_log_sampling_target = 10000\n")
    dataset, _ = small_dataset(tmp_path)
    with StubServer(event_delay_s=0.01) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", TOKENS)
        run = run_mlperf(tmp_path, *where, scenario="single-stream", here=capfd)
    assert run.failures == {}
    assert most_in_flight(run.requests) == 1
    assert all(request.streams for request in stub.requests)
    share, statistics = run.record["client_share"], run.record["statistics"]
    assert share["count"] == 2 * statistics["queries"]  # LoadGen got a first token and an end of each
    assert 0 <= share["min"] <= share["max"] < statistics["duration_ns"]
    assert run.record["server_load"]["without"].keys() == {stub.url}
    assert caplog.text.count("no metrics of 1 of 1 servers") == 1
    assert run.accuracy_log == {}
    assert "audit.config is not used" in caplog.text


def test_a_rate_of_one_query_is_no_damage(tmp_path, capfd):
    """LoadGen writes -nan, which is no JSON, into both of its logs, and the run is VALID."""
    dataset, _ = small_dataset(tmp_path, rows=1)
    with StubServer() as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", TOKENS)
        run = run_mlperf(tmp_path, *where, scenario="server", percentile=1, duration_ms=0, here=capfd)
    assert '"value": -nan,' in (run.log_dir / "mlperf_log_detail.txt").read_text()
    assert (run.code, run.result) == (0, "VALID"), run.record["verdict"]["reasons"]


def test_a_run_leaves_its_page_and_the_evaluator_adds_the_score(tmp_path, capfd, monkeypatch):
    """On the embedded engine's sample; outputs of a stub are scored as well as any."""
    monkeypatch.setattr(scrape, "_ANSWER_S", 60.0)  # no page is late, however busy the machine
    hits = itertools.count()
    metrics = b"vllm:num_requests_running 3\nvllm:prefix_cache_hits_total %d\n"
    with StubServer(metrics=lambda: metrics % next(hits)) as stub:
        where = ("--server-url", stub.url, "--input-file", ACCURACY, "--max-new-tokens", TOKENS)
        run = run_mlperf(tmp_path, "--accuracy", *where, report=True, here=capfd)
    page = run.log_dir / REPORT
    assert run.stdout.splitlines()[-1] == f"Report: {page}"
    assert "sha256-" in page.read_text()
    assert ">Accuracy</h2>" not in page.read_text()
    assert ">Server</h2>" in page.read_text()
    assert run.record["server_load"]["levels"]["running"]["max"] == 3
    assert [warning for warning in run.record["warnings"] if "prefix cache" in warning]
    score = [*map(str, evaluator(run.log_dir / ACCURACY_LOG, ACCURACY)[2:]), "--lcb-data", str(CODE)]
    code, _, stderr = main_here(capfd, eval_mlperf_accuracy.main, score)
    assert code == EXIT_THRESHOLD, stderr
    assert ">Accuracy</h2>" in page.read_text()
    found = AccuracyResult.read(run.log_dir)
    assert (found.target.met, found.missing) == (False, ())
    assert found.output_tokens.max == found.output_tokens.min == TOKENS
    assert {len(right) for right in found.right.values()} == {run.record["plan"]["samples"]}
    assert found.reasons["official"].keys() == found.modes["official"].per_dataset.keys()


def test_replicas_share_the_requests(tmp_path, capfd):
    """Named by a comma and in a file, with two that cannot be used; the answers are those of one server, to a
    part of the dataset.
    """
    dataset, prompts = small_dataset(tmp_path, rows=70)
    stubs = []
    knobs = {"event_delay_s": 0.01, "gate": after(12, stubs)}
    with (
        StubServer(**knobs) as one,
        StubServer(**knobs) as two,
        StubServer(**knobs) as three,
        StubServer(faults=Fault.HTTP_500) as sick,
        refused_url() as dead,
    ):
        stubs += [one, two, three]
        (tmp_path / "urls.txt").write_text(f"# the other rack\n{three.url}\n{sick.url}\n{dead}\n")
        flags = (
            *("--server-url", f"{one.url},{two.url}", "--server-url", f"@{tmp_path}/urls.txt"),
            *("--accuracy", "--input-file", dataset, "--max-samples", 60),
            *("--max-new-tokens", TOKENS, "--max-concurrency", 12),
        )
        run = run_mlperf(tmp_path, *flags, "--min-replicas", 3, here=capfd)
        counts = [len(stub.requests) - 1 for stub in (one, two, three)]  # but for the trial
        trial, *queries = one.requests
        few = run_here(capfd, tmp_path, *flags, "--min-replicas", 4, "--restart")
    assert few.code == EXIT_SERVER, few.stderr
    assert (run.code, run.result) == (0, "VALID"), run.stdout
    record = run.record
    assert [server["url"] for server in record["servers"]] == [one.url, two.url, three.url]
    assert all(server["trial_s"] > 0 for server in record["servers"])
    assert record["plan"]["preflight"]["min_replicas"] == 3
    assert record["left_out"].keys() == {sick.url, dead}
    assert "HTTP 500" in record["left_out"][sick.url]
    assert "not reachable" in record["left_out"][dead]
    left_out = [text for text in record["warnings"] if "left out" in text]
    assert [url in text for url, text in zip((dead, sick.url), left_out, strict=True)] == [True, True]
    assert "left out" in run.stdout
    assert run.accuracy_log == {i: expected_ids(prompt, TOKENS) for i, prompt in enumerate(prompts[:60])}
    assert any("dataset has 60 samples" in deviation for deviation in record["deviations"])
    assert most_in_flight(run.requests) <= 12  # the gate needs twelve
    assert sum(counts) == 60
    assert min(counts) >= 4  # the first twelve are shared evenly; later one server may be slower
    assert {row["replica"] for row in run.requests} == {one.url, two.url, three.url}
    balance = record["balance"]
    assert {url: figures["queries"] for url, figures in balance["replicas"].items()} == dict(
        zip((one.url, two.url, three.url), counts, strict=True)
    )
    assert balance["stragglers"] is None  # Offline does not stream
    asked = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "skip_special_tokens": False}
    for request, tokens in ((trial, 4), *((query, TOKENS) for query in queries)):
        assert request.streams is False
        assert request.body["sampling_params"] == asked | {"max_new_tokens": tokens}


@pytest.fixture
def large_machine(monkeypatch):
    """A machine where any number of connections fits."""
    monkeypatch.setattr(prepare, "machine_limits", lambda: MachineLimits(1 << 20, None, 4096))


@pytest.mark.usefixtures("large_machine")
def test_the_query_issued_last_need_not_be_answered_last(tmp_path, capfd):
    """LoadGen's rate of Server counts until the answer of that query, its run until the last answer."""
    dataset, prompts = small_dataset(tmp_path)

    def ready(request, event):
        slow = event and request.prompt_ids == prompts[0]
        return not slow or time.monotonic_ns() > request.received_ns + 1.5e9

    with StubServer(event_gate=ready) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--max-new-tokens", TOKENS)
        run = run_mlperf(tmp_path, *where, scenario="server", qps=20, here=capfd)
    assert run.code == 0, run.stderr
    by_issue = sorted(run.requests, key=lambda row: row["issued_ns"])
    assert max(row["last_byte_ns"] for row in by_issue) > by_issue[-1]["last_byte_ns"] + 0.5e9
    assert run.result == "VALID", run.record["verdict"]


@pytest.mark.parametrize(
    ("backend", "arguments", "ranks", "at_once", "guessed"),
    [
        ("sglang", (), (3,), 2 * 512 * 3, False),
        ("sglang", (), (3, 2), 2 * 512 * 5, False),
        ("vllm", (), (3,), 2 * 1024, True),
        ("openai", (), (3,), 2 * 1024, True),
        ("openai", ("--max-concurrency", 7), (3,), 7, False),
    ],
)
def test_offline_keeps_twice_as_much_in_flight_as_all_ranks_run(
    tmp_path, capfd, backend, arguments, ranks, at_once, guessed
):
    """As a dry run says, which sends nothing and leaves nothing."""
    dataset, _ = small_dataset(tmp_path)
    owner = "sglang" if backend == "sglang" else "vllm"
    with ExitStack() as servers:
        stubs = [servers.enter_context(StubServer(facts=Facts(dp_size=size, owner=owner))) for size in ranks]
        urls = ",".join(stub.url for stub in stubs)
        where = ("--server-url", urls, "--input-file", dataset, "--backend", backend)
        run = run_here(capfd, tmp_path, "--dry-run", *where, *arguments)
    assert run.code == 0, run.stderr
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("requests "))
    assert f" {at_once} at once" in line
    assert ("guess" in line) is guessed
    assert ("replicas differ in dp size: 3" in run.stdout) is (len(ranks) > 1)
    assert "dry run: everything is checked, no query was sent" in run.stdout
    assert [stub.requests for stub in stubs] == [[] for _ in ranks]
    assert list(tmp_path.iterdir()) == [dataset]


def test_a_conf_of_loadgen_is_read_and_is_a_deviation(tmp_path, capfd):
    """Which --official refuses."""
    dataset, _ = small_dataset(tmp_path)
    (conf := tmp_path / "mlperf.conf").write_text("*.*.performance_sample_count_override = 3\n")
    with StubServer() as stub:
        words = ("--server-url", stub.url, "--input-file", dataset, "--mlperf-conf", conf, "--dry-run")
        run = run_here(capfd, tmp_path, *words)
        refused = run_here(capfd, tmp_path, *words, "--official")
    assert run.code == 0 and f"--mlperf-conf {conf} is read on top of LoadGen's own; omit" in run.stdout
    assert "DEVIATION LoadGen performance_sample_count_override is 3, " in run.stdout
    assert refused.code == 2 and "--official: the run would be NOT OFFICIAL: " in refused.stderr


def test_a_disk_that_fills_up_is_said_while_the_run_lasts(tmp_path, capfd, caplog, monkeypatch):
    """When is DiskRoom's matter; the run asks it about the disk of its results, and says it."""
    dataset, _ = small_dataset(tmp_path)
    asked = threading.Event()

    def look(room, elapsed_s, remaining_s):
        asked.set()
        return f"{room._folder} fills up"

    monkeypatch.setattr(DiskRoom, "look", look)
    with StubServer(gate=lambda request: request.index < 3 or asked.is_set()) as stub:
        words = ("--server-url", stub.url, "--input-file", dataset, "--user-conf", quick_conf(tmp_path))
        run = run_here(capfd, tmp_path, *words, "--max-new-tokens", TOKENS, "--no-report")
    assert run.code == 0 and f"warning: {run.log_dir} fills up" in caplog.messages


def test_a_dry_run_with_an_api_tries_it(tmp_path, capfd):
    """Whether a server takes it shows in no page."""
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--api", "completions")
        run = run_here(capfd, tmp_path, "--dry-run", *where)
        refused = run_here(capfd, tmp_path, "--dry-run", *where, "--backend", "pytorch")
    assert (run.code, refused.code) == (0, 2), run.stderr
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("api "))
    assert "POST /v1/completions, prompt: ids; ids in" in line
    assert [request.path for request in stub.requests] == ["/v1/completions"]
    assert list(tmp_path.iterdir()) == [dataset]
    assert "--api completions: --backend pytorch" in refused.stderr


def test_a_run_beside_those_of_another_origin_is_refused(tmp_path, capfd, monkeypatch):
    """A campaign ran it for hours, and stopped after it."""
    dataset, _ = small_dataset(tmp_path)
    # Not gpt-oss's tokenizer, which takes 3 s to build. In the sample's " the" is one token, too.
    with StubServer(returns_ids=False, text=lambda ids: " the" * len(ids)) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--user-conf", quick_conf(tmp_path))
        where += ("--backend", "openai", "--api", "chat-ids", "--max-new-tokens", TOKENS)
        where += ("--benchmark", "deepseek-r1", "--tokenizer", SAMPLES / "r1_sample_tokenizer.json")
        before = run_here(capfd, tmp_path, *where)
        assert before.code == 0, before.stderr
        record = RunRecord.read(before.log_dir / RUN_RECORD)
        server = structs.replace(record.servers[0], version="0.0.1")
        of_server = structs.replace(record, servers=(server,))
        # Of answers as text, which only the trial requests show.
        of_tokenizer = structs.replace(record, encoded=structs.replace(record.encoded, tokenizer_sha256="0"))
        monkeypatch.setenv(BESIDE, str(before.log_dir))
        for beside, flags, code in (
            (record, ["--dry-run"], 0),
            (of_server, ["--dry-run"], 2),
            (of_tokenizer, ["--dry-run"], 2),
            (of_tokenizer, [], 2),
        ):
            beside.write(before.log_dir / RUN_RECORD)
            run = run_here(capfd, tmp_path, "--accuracy", *flags, *where)
            remedy = "add --restart deepseek-r1/offline to the campaign"
            assert (run.code, remedy in run.stderr) == (code, bool(code))
    assert not (tmp_path / "offline/accuracy").exists()


def test_settings_of_the_server_are_told_before_the_run(tmp_path, capfd):
    """What makes it another benchmark's, and what the closed division does not allow."""
    dataset, _ = small_dataset(tmp_path)
    info = {"disable_radix_cache": False, "preferred_sampling_params": {"min_p": 0.1}}
    info["json_model_override_args"] = '{"num_experts_per_tok":1}'
    with StubServer(facts=Facts(info=info)) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset)
        run = run_here(capfd, tmp_path, "--dry-run", *where)
    lines = [line for line in run.stdout.splitlines() if stub.url in line]
    for words in (
        "DEVIATION .* adds sampling parameters to each request \\(min_p\\)",
        "WARNING .* changes its model's configuration .*num_experts_per_tok",
        "DEVIATION .* keeps a KV cache across queries",
    ):
        assert [line for line in lines if re.match(words, line)], (words, lines)


@pytest.mark.parametrize(("answered", "later"), [(11, False), (11, True), (0, False)])
def test_a_prefix_cache_of_earlier_answers_stays_a_deviation(tmp_path, capfd, caplog, answered, later):
    """The server is started as its line asks for, and the command repeated. ``later``: not from the start."""
    dataset, _ = small_dataset(tmp_path)
    info = {"disable_radix_cache": later}

    def gate(request):
        info["disable_radix_cache"] &= request.index < 1
        return True

    # The first request is the trial.
    faults = [None] * (1 + answered) + [Fault.HTTP_500] * (12 - answered)
    words = ("--accuracy", "--input-file", dataset, "--user-conf", quick_conf(tmp_path))
    with StubServer(facts=Facts(info=info), faults=faults, gate=gate) as stub:
        before = run_here(capfd, tmp_path, *words, "--server-url", stub.url)
    record = RunRecord.read(before.log_dir.parent / "accuracy" / RUN_RECORD)
    said = "asked again: " * later + stub.url
    assert len([line for line in record.deviations if line.startswith(f"{said} keeps")]) == 1
    assert any(text.startswith(f"DEVIATION {said} keeps") for text in caplog.messages) == later
    with StubServer() as other:
        run = run_here(capfd, tmp_path, *words, "--dry-run", "--server-url", other.url)
    assert (before.code, run.code) == (4, 0), run.stderr
    line = f"DEVIATION earlier answers: {stub.url} keeps a KV cache .*; begin anew with --restart"
    assert len(re.findall(line, run.stdout)) == bool(answered)
    assert f"{other.url} keeps" not in run.stdout


@pytest.mark.parametrize("flags", [("--accuracy", "--scenario", "server"), ()])
def test_no_more_requests_are_in_flight_than_the_run_has(tmp_path, capfd, flags):
    """Whatever the estimates say: in Server by rate and limits, in Offline by what servers run."""
    dataset, _ = small_dataset(tmp_path)
    conf = quick_conf(tmp_path, qps=83)
    info = {"max_queued_requests": 12, "max_running_requests": 100}
    with StubServer(facts=Facts(info=info)) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--user-conf", conf)
        run = run_here(capfd, tmp_path, "--dry-run", *where, *flags)
    assert run.code == 0, run.stderr
    for words in ("open files", "local ports", "max-queued-requests", "somaxconn"):
        assert words not in run.stdout, run.stdout


def test_a_limit_below_the_number_of_workers_holds(tmp_path, capfd):
    """It is known only when the servers are asked, and the workers that it left nothing had none."""
    dataset, _ = small_dataset(tmp_path, rows=13)
    conf = quick_conf(tmp_path)
    with StubServer(facts=Facts(info={"max_running_requests": 1}), event_delay_s=0.01) as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--user-conf", conf)
        run = run_mlperf(
            tmp_path, *where, "--num-workers", 5, "--max-new-tokens", TOKENS, "--stream", "on", here=capfd
        )
    assert run.failures == {}
    assert run.record["plan"]["placement"]["workers"] == 2
    assert most_in_flight(run.requests) == 2


def test_offline_fills_replicas_by_what_they_run_at_once(tmp_path, capfd):
    """An equal part for each left slots of the larger one empty."""
    dataset, _ = small_dataset(tmp_path, rows=16)
    conf = tmp_path / "quick.conf"
    conf.write_text("*.*.target_qps = 100\n*.*.min_duration = 10\n*.*.min_query_count = 16\n")
    with ExitStack() as stack:
        stubs: list[StubServer] = []
        for runs in (6, 2):
            stub = StubServer(gate=after(16, stubs), facts=Facts(info={"max_running_requests": runs}))
            stubs.append(stack.enter_context(stub))
        urls = ",".join(stub.url for stub in stubs)
        where = ("--server-url", urls, "--input-file", dataset, "--user-conf", conf, "--num-workers", 1)
        run = run_mlperf(tmp_path, *where, "--max-new-tokens", TOKENS, here=capfd)
    assert run.failures == {}
    assert [len(stub.requests) - 1 for stub in stubs] == [12, 4]


def test_a_scenario_without_official_results_is_a_deviation(tmp_path, capfd):
    """LoadGen's mlperf.conf has no row for Server of the edge benchmark; its own limit is 10 ms."""
    dataset, _ = small_dataset(tmp_path)
    with StubServer() as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--scenario", "server")
        run = run_here(capfd, tmp_path, "--dry-run", "--benchmark", "llama3.1-8b-edge", *where)
    assert run.code == 0, run.stderr
    assert "DEVIATION scenario is server, the rules of llama3.1-8b-edge name" in run.stdout


@pytest.mark.parametrize(
    ("scenario", "rows", "text"),
    [
        # LoadGen would end by SIGSEGV.
        (
            "offline",
            {"min_query_count": 0, "min_duration": 0},
            "Offline.min_query_count is 0: LoadGen would have",
        ),
        (
            "server",
            {"min_query_count": 0, "min_duration": 100},
            "Server.min_query_count is 0: LoadGen would have no query to issue, and crash; write 7 or more",
        ),
        (
            "server",
            {"performance_issue_same": 1, "performance_issue_same_index": 12},
            "performance_issue_same_index is 12, LoadGen has 12 samples, counted from 0, and would crash",
        ),
        ("server", {"max_query_count": 1}, "max_query_count would end the run early"),
        # LoadGen would plan for minutes without a word, or run out of memory.
        (
            "server",
            {"target_qps": 1e12, "min_duration": 600000},
            "LoadGen would plan 6e+14 samples by",
        ),
        ("server", {"target_qps": 1e300}, "expected a number from 1e-12 to 1e+12"),
        ("offline", {"target_qps": 1e12, "min_duration": 600000}, "LoadGen would plan 6.6e+14 samples"),
        ("offline", {"min_query_count": 10**14}, "LoadGen would plan 1e+14 samples"),
    ],
)
def test_a_run_that_cannot_be_made_is_refused_before_a_server_is_asked(tmp_path, capfd, scenario, rows, text):
    dataset, _ = small_dataset(tmp_path)
    conf = quick_conf(tmp_path)
    rows = (f"*.{scenario.title()}.{key} = {value}\n" for key, value in rows.items())
    conf.write_text(conf.read_text() + "".join(rows))
    with StubServer() as stub:
        where = ("--server-url", stub.url, "--input-file", dataset, "--user-conf", conf)
        run = run_here(capfd, tmp_path, "--scenario", scenario, *where)
    assert (run.code, len(stub.requests)) == (2, 0), run.stderr
    assert text in run.stderr


def test_a_dry_run_refuses_a_folder_that_it_cannot_write(tmp_path, capfd):
    dataset, _ = small_dataset(tmp_path)
    (tmp_path / "offline").write_text("a file where a folder would be")
    with StubServer() as stub:
        run = run_here(capfd, tmp_path, "--dry-run", "--server-url", stub.url, "--input-file", dataset)
    assert run.code == 2
    assert f"--results {tmp_path}/offline/performance: cannot write there" in run.stderr


def test_a_dataset_of_the_official_size_is_compared_with_the_published_file(tmp_path, capfd):
    dataset, _ = small_dataset(tmp_path)
    for file, named in ((make_datasets(tmp_path).performance, True), (dataset, False)):
        with StubServer() as stub:
            run = run_here(capfd, tmp_path, "--dry-run", "--server-url", stub.url, "--input-file", file)
        assert run.code == 0
        assert (f"WARNING   {file} is not the published perf/perf_eval_ref.parquet" in run.stdout) is named


@pytest.mark.engine
def test_ctrl_c_while_servers_are_waited_for(tmp_path):
    dataset, _ = small_dataset(tmp_path)
    with refused_url() as url:
        words = command(tmp_path, "--input-file", dataset, "--server-url", url, "--wait-for-servers", "30m")
        program = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        line = program.stderr.readline()
        program.send_signal(signal.SIGINT)
        _, rest = program.communicate(timeout=120)
    assert line.startswith("waiting for 1 of 1 servers") and url in line
    assert program.returncode == 128 + signal.SIGINT
    assert rest.splitlines()[-1] == "run_mlperf.py: ended by SIGINT"
    assert "Traceback" not in rest
    assert not any(tmp_path.rglob("run.json"))


@pytest.mark.parametrize("flags", [(), ("--dry-run",)], ids=["run", "dry run"])
@pytest.mark.parametrize(
    ("scenario", "row", "needed"),
    [
        ("server", "Server.min_duration = 1000", "gpt-oss-120b.Server.min_query_count = 459"),
        ("single-stream", "SingleStream.min_duration = 0", "gpt-oss-120b.SingleStream.min_query_count = 64"),
        (
            "single-stream",
            "SingleStream.max_query_count = 63",
            "remove the row of max_query_count, which is 63",
        ),
        ("single-stream", "SingleStream.target_latency_percentile = 100", "expected 0.0001 to 99.9999"),
    ],
)
def test_a_run_that_early_stopping_must_make_invalid_is_refused(
    tmp_path, capfd, scenario, row, needed, flags
):
    """Before any server is asked: none is there."""
    dataset, _ = small_dataset(tmp_path)
    conf = tmp_path / "short.conf"
    conf.write_text(f"*.*.sample_concatenate_permutation = 0\n*.*.min_query_count = 63\n*.{row}\n")
    with refused_url() as url:
        words = ("--scenario", scenario, "--user-conf", conf, "--input-file", dataset, "--server-url", url)
        run = run_here(capfd, tmp_path, *words, *flags)
    assert (run.code, run.stdout) == (2, "")
    (line,) = without_waits(run.stderr)
    assert needed in line


@pytest.mark.parametrize(
    ("row", "flags", "code"),
    [
        ("", (), 2),
        ("", ("--accuracy",), 2),
        ("", ("--scenario", "offline"), 2),
        ("*.Server.use_token_latencies = 0\n", (), EXIT_SERVER),
    ],
)
def test_answers_of_one_token_are_refused_where_loadgen_counts_them_as_errors(
    tmp_path, capfd, row, flags, code
):
    """Before any server is asked: none is there. One error for each query, in every mode and scenario."""
    dataset, _ = small_dataset(tmp_path)
    conf = quick_conf(tmp_path)
    conf.write_text(conf.read_text() + row)
    with refused_url() as url:
        words = ("--user-conf", conf, "--input-file", dataset, "--server-url", url, "--max-new-tokens", 1)
        run = run_here(capfd, tmp_path, "--scenario", "server", *words, *flags)
    assert run.code == code
    assert ("max_new_tokens is 1, expected 2 or more" in run.stderr) is (code == 2)


def test_the_fewest_queries_of_single_stream_are_loadgens(tmp_path, capfd):
    """Of the 50th percentile it estimates from 11 queries on, where Server needs 7."""
    with StubServer() as stub:
        words = ("--server-url", stub.url, "--input-file", tmp_path / "dataset.parquet")
        for rows, code in ((11, 0), (10, 2)):
            small_dataset(tmp_path, rows=rows)
            run = run_mlperf(
                tmp_path, *words, "--max-new-tokens", TOKENS, scenario="single-stream", here=capfd
            )
            assert run.code == code, run.stdout + run.stderr
    assert "only 10 queries, and with fewer than 11 no run is VALID" in run.stderr


def test_a_pod_that_is_replaced_is_followed(tmp_path, capfd, monkeypatch):
    """Its name then has another address: that of the start was used, which gave no connection any more."""
    places, known = ["127.0.0.2"], socket.getaddrinfo

    def look_up(host, *others, **named):
        return known(places[0] if host == "pod.test" else host, *others, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    port, (dataset, _) = free_ports(1), small_dataset(tmp_path)
    first = StubServer(host="127.0.0.2", port=port, event_delay_s=0.02)
    second = StubServer(host="127.0.0.3", port=port)

    def replace_pod():
        wait_until(lambda: len(first.requests) >= 5)  # the trial request is one
        first.stop()
        places[:] = ["127.0.0.3"]

    with first, second:
        threading.Thread(target=replace_pod, daemon=True).start()
        where = ("--server-url", f"http://pod.test:{port}", "--input-file", dataset, "--max-new-tokens", 8)
        ended = run_mlperf(
            tmp_path, "--accuracy", *where, "--max-concurrency", 2, "--retries", 12, here=capfd
        )
    assert ended.result == "VALID", ended.stdout + ended.stderr
    assert len(first.requests) + len(second.requests) >= 13
    assert second.requests
    (back,) = [event for event in ended.record["events"] if event["kind"] == "server_back"]
    assert back["text"] == "in use again, at 127.0.0.3"
