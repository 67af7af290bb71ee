"""A campaign as it is typed: it does what is missing, stops on what is lost, and continues when repeated."""

import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.campaign import digests, guard
from harness.campaign.campaign_file import read_campaign
from harness.campaign.journal import history
from harness.campaign.origins import other_origins
from harness.campaign.standing import Standing, newest_run, standings
from harness.campaign.steps import other_files, steps_of
from harness.errors import EXIT_THRESHOLD
from tests.harness.submission.building import write_info
from tests.kit import free_ports, wait_until
from tests.runs import ACCURACY, PERFORMANCE, ROOT, SAMPLES
from tests.stub import StubServer

POINTS = int(os.environ.get("HARNESS_KILL_POINTS", "4"))
BENCHMARK = "gpt-oss-120b"
CONF = (ROOT / "configs/rehearsal.conf").read_text().replace("min_duration = 1000", "min_duration = 1")
BENCHMARK_TABLE = f"""\
[benchmarks.{BENCHMARK}]
performance = "{PERFORMANCE}"
accuracy = "{ACCURACY}"
compliance = "{SAMPLES / "compliance_sample.parquet"}"
lcb_data = "{SAMPLES / "code_sample.jsonl"}"
user_conf = "my.conf"
flags = ["--max-new-tokens", "16", "--no-report", "--num-workers", "1"]
"""
OFFLINE = f"[benchmarks.{BENCHMARK}.offline]\n"


def write(folder: Path, servers: str, scenarios: str = OFFLINE, top: str = "") -> Path:
    """The file of a campaign in the open division, in which small data and short runs count."""
    (folder / "my.conf").write_text(CONF)
    path = folder / "my.toml"
    facts = write_info(folder).read_text()
    path.write_text(f'division = "open"\n{top}\n{facts}\n[servers]\n{servers}\n{BENCHMARK_TABLE}{scenarios}')
    return path


def words(*given: object) -> list[str]:
    return [str(ROOT / "mlperf"), "campaign", *map(str, given)]


def run(*given: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(*given), capture_output=True, text=True, timeout=600, cwd="/")


def prompts(stub: StubServer) -> int:
    """Requests of runs: a trial answer of the preflight counts, too."""
    return len(stub.requests)


@dataclass(frozen=True)
class Walked:
    """A campaign that has ended and was called again; its servers are gone."""

    folder: Path
    again: subprocess.CompletedProcess[str]
    sent: tuple[int, int]
    """requests of both calls, and of the first"""


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    with StubServer() as stub:
        file = write(folder, f"url = '{stub.url}'", f"{OFFLINE}target_qps = 1.5\n", 'round = "v6.1"\n')
        done = run(file)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        sent = prompts(stub)
        again = run(file)
        return Walked(folder, again, (prompts(stub), sent))


@pytest.mark.engine
def test_it_walks_to_the_end_and_then_has_nothing_to_do(made_once):
    folder, again = made_once.folder, made_once.again
    in_all, sent = made_once.sent
    assert (again.returncode, in_all) == (0, sent)
    # Small data and short runs count here, and neither check would pass the folder.
    line = next(line for line in again.stdout.splitlines() if line.startswith("Everything is done"))
    assert "is built, and its check has issues" in line and line.endswith(" --round v6.1")
    check = subprocess.run(shlex.split(line.rpartition(": ")[2]), capture_output=True, cwd="/")
    assert check.returncode == EXIT_THRESHOLD
    assert re.search(r"(?m)^check +done +with issues", again.stdout)
    assert (folder / "submission/open/MyOrg/results/made_up" / BENCHMARK / "Offline").is_dir()
    steps = [event["step"].rpartition("/")[2] for event in events(folder) if event["event"] == "ended"]
    assert steps == ["trial", "performance", "accuracy", "score", "build", "check"]
    assert "SCORE" in (folder / "mlperf_results/campaign.html").read_text()


@pytest.fixture
def ended(made_once, tmp_path):
    """A copy of it: results may be moved."""
    return shutil.copytree(made_once.folder, tmp_path / "copy")


def states(folder: Path) -> list[str]:
    """The second column of ``status``."""
    shown = run("status", folder / "my.toml")
    assert shown.returncode == 0, shown.stderr
    return [line.split()[1] for line in shown.stdout.partition("\n\n")[0].splitlines()[1:]]


@pytest.mark.engine
def test_results_may_be_moved(ended):
    assert states(ended) == ["done"] * 6
    again = run(ended / "my.toml")  # its servers do not live any more
    assert again.returncode == 0, again.stderr


@pytest.mark.engine
def test_printed_commands_work_where_the_campaign_was_started(tmp_path):
    """The steps run in the folder of the TOML."""
    (inner := tmp_path / "inner").mkdir()
    with StubServer() as stub:
        write(inner, f"url = '{stub.url}'", f"{OFFLINE}target_qps = 1.5\n")
        done = subprocess.run(words("inner/my.toml"), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (command,) = (line for line in done.stdout.splitlines() if line.startswith("Score it with: "))
    scored = subprocess.run(
        command.removeprefix("Score it with: "), shell=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert scored.returncode == 5, scored.stderr  # the stub's answers miss the target


@pytest.mark.engine
def test_status_reads_no_dataset_and_no_accuracy_log_again(ended, monkeypatch):
    """They have gigabytes, and people look at it every minute."""
    file = ended / "my.toml"
    assert run(file).returncode == 0  # the copies are other files

    def refused(path: Path, kind: str) -> str:
        raise AssertionError(f"{path} is read again for its {kind}")

    monkeypatch.setattr(digests, "digest_of", refused)
    campaign = read_campaign(file)
    assert list(other_files(campaign))  # sample data
    found = standings(campaign, steps_of(campaign))
    assert [one.state for one in found.values()] == ["done"] * 6


@pytest.mark.engine
def test_status_needs_no_dataset(ended):
    """As where the results were copied to look at them."""
    file = ended / "my.toml"
    file.write_text(file.read_text().replace(str(SAMPLES), "/nowhere"))
    assert states(ended) == ["done"] * 4 + ["next", "next"]  # of an edited file
    assert "/nowhere/acc_sample.parquet" in run("status", file).stdout
    refused = run(file)
    assert refused.returncode == 2 and "/nowhere/acc_sample.parquet" in refused.stderr


@pytest.mark.engine
@pytest.mark.parametrize("more", [("status",), ("--dry-run",)])
def test_the_table_writes_nothing(tmp_path, more):
    file = write(tmp_path, "url = 'http://127.0.0.1:9'", f"{OFFLINE}target_qps = 12.123456789\n")
    before = sorted(tmp_path.rglob("*"))
    shown = run(*sorted((*more, str(file)), key=lambda word: word.startswith("--")))
    assert shown.returncode == 0, shown.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\0{", b"[]", b"3\n{}\n"])
@pytest.mark.engine
def test_the_campaigns_own_files_may_be_damaged(ended, content):
    own = ended / "mlperf_results/campaign"
    names = ("campaign.jsonl", ".lock", "variables.json", "digests.json", "conf/gpt-oss-120b/offline.conf")
    for name in names:
        (own / name).write_bytes(content)
    assert states(ended) == ["done"] * 6
    assert run(ended / "my.toml").returncode == 0
    (own / "made.json").write_bytes(content)
    assert states(ended) == ["done"] * 3 + ["again", "next", "next"]


RUNS = f"mlperf_results/{BENCHMARK}/offline"
TRIAL = f"mlperf_results/campaign/trial/{BENCHMARK}/offline"


@pytest.mark.parametrize(
    ("path", "row", "state"),
    [
        (f"{TRIAL}/offline/performance/run.json", 0, "failed"),
        (f"{RUNS}/performance/run.json", 1, "LOST"),
        (f"{RUNS}/performance/user.conf", 1, "LOST"),
        (f"{RUNS}/accuracy/run.json", 2, "LOST"),
        (f"{RUNS}/accuracy/accuracy_result.json", 3, "failed"),
    ],
)
@pytest.mark.engine
def test_a_damaged_result_costs_no_hours_by_itself(ended, path, row, state):
    """A run is only made again when that is asked for; what takes minutes is made again."""
    (ended / path).write_bytes(b"\xff{")
    assert states(ended)[row] == state
    if state == "LOST":
        done = run(ended / "my.toml")
        assert done.returncode == 4
        assert Path(path).name in done.stderr and "--restart" in done.stderr


@pytest.mark.engine
def test_a_score_or_a_folder_that_was_edited_does_not_count(ended):
    (page,) = (ended / "submission").rglob("accuracy/mlperf_log_summary.txt")
    page.write_text(page.read_text() + "\n")
    assert states(ended) == ["done"] * 5 + ["next"]
    text = ended / RUNS / "accuracy/accuracy.txt"
    text.write_text(text.read_text().replace("0.000", "83.13"))
    assert states(ended) == ["done"] * 3 + ["again", "next", "next"]


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        (("provenance", "git"), {"commit": "0" * 40, "dirty": False}, f"git checkout {'0' * 40}"),
        (("plan", "server_urls"), ["http://127.0.0.1:9"], "http://127.0.0.1:9"),
    ],
)
@pytest.mark.engine
def test_a_run_of_another_origin_is_refused_before_it_costs_anything(ended, where, value, named):
    """The build takes the runs of a scenario from one commit and one server only."""
    edit_record(ended / RUNS / "performance", where, value)
    done = run(ended / "my.toml", "--restart", f"{BENCHMARK}/offline/accuracy")
    assert done.returncode == 2, done.stdout[-2000:] + done.stderr[-2000:]
    for word in (named, f"--restart {BENCHMARK}/offline"):
        assert word in done.stderr
    assert (ended / RUNS / "accuracy/run.json").is_file()


@pytest.mark.engine
def test_runs_of_other_servers_are_seen_before_the_next(ended):
    file = ended / "my.toml"
    file.write_text(file.read_text().replace('division = "open"', ""))
    edit_record(ended / RUNS / "accuracy", ("servers", 0, "version"), "0.0.1")
    campaign = read_campaign(file)
    steps = steps_of(campaign)

    def made(step):
        return Standing("missing" if step.test else "done", record=newest_run(step.folder))

    test = next(step for step in steps if step.kind == "test")
    assert any("engine" in text and "0.0.1" in text for text in other_origins(campaign, test, steps, made))


@pytest.mark.engine
def test_a_file_of_the_folder_that_was_edited_is_replaced_by_force_only(ended):
    """As after completing the server's command in a README.md, which the guide asks for."""
    page = next((ended / "submission").rglob("README.md"))
    page.write_text(f"{page.read_text()}edited\n")
    file = ended / "my.toml"
    file.write_text(file.read_text().replace("mxfp4", "fp8"))
    done = run(file)
    assert done.returncode == 2
    assert "Where --force is meant, call the command of this step" in done.stderr
    assert page.read_text().endswith("edited\n")
    command = next(line for line in done.stdout.splitlines() if " submit build " in line)
    forced = subprocess.run(
        [*shlex.split(command), "--force"], capture_output=True, text=True, timeout=600, check=False
    )
    assert forced.returncode in (0, 5), forced.stderr  # 5: the runs are not official
    assert run(file).returncode == 0
    assert "edited" not in page.read_text()


def edit_record(folder: Path, where: tuple, value: object) -> None:
    """Another value in a run.json."""
    record = json.loads((folder / "run.json").read_text())
    place = record
    for name in where[:-1]:
        place = place[name]
    place[where[-1]] = value
    (folder / "run.json").write_text(json.dumps(record))


def events(folder: Path) -> list[dict]:
    return history(folder / "mlperf_results/campaign")


@pytest.mark.engine
def test_other_settings_are_named_and_only_their_steps_are_made_again(tmp_path):
    with StubServer() as stub:
        file = write(tmp_path, f"url = '{stub.url}'")
        assert run(file).returncode == 0
        before = len(events(tmp_path))
        file.write_text(file.read_text().replace(".offline]\n", ".offline]\ntarget_qps = 2.5\n"))
        again = run(file)
    assert again.returncode == 0, again.stderr[-2000:]
    assert "target_qps 1.0, now 2.5" in again.stdout
    made = [event["step"] for event in events(tmp_path)[before:] if event["event"] == "ended"]
    assert made == [f"{BENCHMARK}/offline/performance", "build", "check"]
    assert len(list((tmp_path / "mlperf_results" / BENCHMARK / "offline").glob("performance.*"))) == 1


@pytest.mark.engine
@pytest.mark.parametrize(
    ("was", "now", "made_anew"),
    [
        ('"--no-report"', '"--max-concurrency", "7"', []),
        ("[servers]", "[servers]\nbackend = 'vllm'", ["accuracy", "score"]),
    ],
)
def test_an_accuracy_run_is_made_again_where_its_answers_may_be_others(ended, was, now, made_anew):
    """Its program takes a complete run for what it is asked for, and each call stopped there."""
    file, before = ended / "my.toml", len(events(ended))
    text = file.read_text()
    file.write_text(text.replace(was, now))
    url = re.search(r"(?m)^url = .*:(\d+)'$", text)
    with StubServer(port=int(url[1])):
        done = run(file)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    made = [event["step"].rpartition("/")[2] for event in events(ended)[before:] if event["event"] == "ended"]
    assert made == ["trial", "performance", *made_anew, "build", "check"]
    assert len(list((ended / "mlperf_results" / BENCHMARK / "offline").glob("accuracy.*"))) == bool(made_anew)


@pytest.mark.engine
def test_a_lost_run_stops_it_until_something_changes(tmp_path):
    slow = CONF.replace("ttft_latency = 60000", "ttft_latency = 1")
    with StubServer(first_delay_s=0.1) as stub:
        file = write(tmp_path, f"url = '{stub.url}'", "[benchmarks.gpt-oss-120b.server]\ntarget_qps = 50\n")
        (tmp_path / "my.conf").write_text(slow)
        done = run(file)
        assert done.returncode == 4, done.stdout[-3000:] + done.stderr[-3000:]
        sent = prompts(stub)
        again = run(file)
        assert (again.returncode, prompts(stub)) == (4, sent)
    for one in (done, again):
        assert f"{BENCHMARK}/server/performance is lost" in one.stderr
        assert "target_qps" in one.stderr
    page = (tmp_path / "mlperf_results/campaign.html").read_text()
    assert "STOPPED" in page


@pytest.mark.engine
def test_an_offline_rate_that_was_found_too_low_is_corrected_once(tmp_path):
    """The servers were slow in the search's short run: the run at its rate was lost, the night with it."""
    found = tmp_path / "mlperf_results" / BENCHMARK / "peak/offline/offline_rate.json"

    def gate(request):
        return found.is_file() or time.monotonic_ns() - request.received_ns > 2e9

    with StubServer(first_delay_s=0.5, gate=gate) as stub:
        file = write(tmp_path, f"url = '{stub.url}'", f"{OFFLINE}target_qps = 'search'\n")
        file.write_text(file.read_text().replace('"--no-report"', '"--max-concurrency", "8"'))
        conf = CONF.replace("Offline.min_duration = 1", "Offline.min_duration = 8000")
        (tmp_path / "my.conf").write_text(conf)
        done = run(file)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{BENCHMARK}/offline/performance was too short for its rate, and is made again" in done.stdout
    made = [one["state"] for one in events(tmp_path) if one["event"] == "ended" and "perf" in one["step"]]
    assert made == ["lost", "done"]
    assert (found.parent / "short/offline_rate.json").is_file()


@pytest.mark.engine
def test_a_run_in_which_the_server_stood_is_made_again_by_itself(tmp_path):
    """It is silent from the 200th query of the performance run to the end of that run."""
    name, waits, number = f"{BENCHMARK}/server/performance", {}, itertools.count()

    def gate(request):
        if request.index not in waits:
            begun = [one["step"] for one in events(tmp_path) if one["event"] == "started"].count(name)
            waits[request.index] = begun == 1 and next(number) >= 200
        return not waits[request.index]

    with StubServer(gate=gate) as stub:
        file = write(tmp_path, f"url = '{stub.url}'", "[benchmarks.gpt-oss-120b.server]\ntarget_qps = 80\n")
        conf = CONF.replace("Server.min_duration = 1", "Server.min_duration = 6000")
        conf = conf.replace(
            "percentile = 50\n*.Server.ttft_latency = 60000", "percentile = 99\n*.Server.ttft_latency = 20000"
        )
        (tmp_path / "my.conf").write_text(
            conf.replace("Server.min_query_count = 64", "Server.min_query_count = 480")
        )
        done = run(file)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{name} is tried once more" in done.stdout
    made = [one["state"] for one in events(tmp_path) if (one["event"], one["step"]) == ("ended", name)]
    assert made == ["failed", "done"]


@pytest.mark.engine
def test_servers_that_die_in_a_run_are_started_again_once(tmp_path):
    port, die = free_ports(1), tmp_path / "die"
    serve = f"exec {sys.executable} -m tests.harness.campaign.serve {port} {die}"
    file = write(tmp_path, f"url = 'http://127.0.0.1:{port}'\ncommand = 'cd {ROOT} && {serve}'")
    name = f"{BENCHMARK}/offline/accuracy"

    def begun():
        return sum((one["event"], one["step"]) == ("started", name) for one in events(tmp_path))

    def end_in_run(campaign, number):
        wait_until(lambda: begun() == number or campaign.poll() is not None)
        die.touch()

    campaign = start(file)
    end_in_run(campaign, 1)
    end_in_run(campaign, 2)
    out, err = campaign.communicate(timeout=300)
    assert campaign.returncode == 3, out[-3000:] + err[-3000:]
    assert f"{name} is tried once more" in out
    assert "exit code 9" in err
    for shown in (out, err):
        assert "| CUDA error: an illegal memory access" in shown
    die.unlink(missing_ok=True)
    campaign = start(file)
    end_in_run(campaign, 3)
    out, err = campaign.communicate(timeout=300)
    assert campaign.returncode == 0, out[-3000:] + err[-3000:]
    assert not guard.processes(str(tmp_path / "mlperf_results/campaign"))


@pytest.mark.engine
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_its_run_in_order_and_the_command_continues(tmp_path, signum):
    with StubServer(event_delay_s=0.05) as stub:
        file = write(tmp_path, f"url = '{stub.url}'")
        campaign = start(file)
        wait_until(lambda: answered(tmp_path) or campaign.poll() is not None)
        campaign.send_signal(signum)
        _, err = campaign.communicate(timeout=300)
        assert campaign.returncode == 128 + signum, err[-3000:]
        assert err.splitlines()[-1].endswith(f"; continue with {shlex.join(words(file))}")
        done = run(file)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.engine
def test_two_campaigns_at_once_are_one_too_many(tmp_path):
    go_on = threading.Event()
    with StubServer(gate=lambda request: request.index < 20 or go_on.is_set()) as stub:
        file = write(tmp_path, f"url = '{stub.url}'")
        campaign = start(file)
        wait_until(lambda: any(one["event"] == "started" for one in events(tmp_path)))
        second, status = run(file), run("status", file)
        campaign.send_signal(signal.SIGTERM)
        go_on.set()
        campaign.communicate(timeout=300)
    assert second.returncode == 2
    assert str(campaign.pid) in second.stderr and "status" in second.stderr
    assert status.returncode == 0
    assert "RUNNING" in status.stdout


@pytest.mark.engine
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    file = write(tmp_path, "url = 'http://127.0.0.1:9'", top="results = 'my.conf'")
    done = run(file)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.engine
@pytest.mark.timeout(60 * POINTS + 600)
def test_killed_at_random_moments_it_builds_the_same_folder(tmp_path):
    """Nothing is answered twice that was kept, and the folder holds the same files and samples."""
    dice = random.Random(f"campaign {POINTS}")
    scenarios = "".join(
        f"[benchmarks.{BENCHMARK}.{name}]\ntarget_qps = 40\n" for name in ("offline", "server")
    )
    trees = []
    for name, kills in (("whole", 0), ("killed", POINTS)):
        folder = tmp_path / name
        folder.mkdir()
        with StubServer(event_delay_s=0.02) as stub:
            file = write(folder, f"url = '{stub.url}'", scenarios)
            for _ in range(kills):
                kill_somewhere(file, dice)
            done = run(file)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        trees.append(content(folder / "submission"))
        finished = [one["step"] for one in events(folder) if one.get("state") == "done"]
        assert len(finished) == len(set(finished)), "a step was made twice"
    assert trees[0] == trees[1]


def start(file: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        words(file),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        start_new_session=True,
    )


def kill_somewhere(file: Path, dice: random.Random) -> None:
    """SIGKILL of the campaign's own process; its run ends in order by itself."""
    campaign = subprocess.Popen(words(file), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    time.sleep(dice.uniform(0.2, 8))
    campaign.kill()
    campaign.wait()


def answered(folder: Path) -> bool:
    """Whether the accuracy run has answers in its journal."""
    journal = folder / "mlperf_results" / BENCHMARK / "offline/accuracy/journal"
    return any(path.stat().st_size > 1000 for path in journal.glob("*"))


def content(tree: Path) -> dict[str, object]:
    """The files, and of the accuracy logs the samples: times and figures differ."""
    found: dict[str, object] = {
        str(path.relative_to(tree)): None for path in tree.rglob("*") if path.is_file()
    }
    for path in tree.with_name(f"{tree.name}.kept").rglob("mlperf_log_accuracy.json"):
        entries = json.loads(path.read_text())
        assert len({one["qsl_idx"] for one in entries}) == len(entries)
        found[f"kept {path.relative_to(tree.parent)}"] = sorted(
            (one["qsl_idx"], one["data"]) for one in entries
        )
    return found
