"""The doctor: on this machine as it is, and with each fault that it knows."""

import errno
import itertools
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.config.benchmark import load_benchmark
from harness.files import ROOT
from harness.grading.sandbox.tiers import Sandbox, Tier, refusal
from sut.client.endpoint import Access, AddressPair
from sut.doctor import data_files, gpu_health, server_paths, software, this_node
from sut.doctor.__main__ import main
from sut.doctor.doctor_options import parse_options
from sut.doctor.examination import findings_of
from sut.doctor.finding import Finding, exit_code, ok
from sut.doctor.this_node import ClockReading, Folders
from sut.processes.machine_limits import MachineLimits, descriptors_for
from sut.servers import naming
from sut.supervisor.connection_limits import ConnectionLimits
from sut.supervisor.placement import Load, Machine, choose
from tests.kit import free_ports
from tests.runs import main_here, run_mlperf, small_dataset
from tests.stub import Facts, StubServer
from tests.sut.pages import pages
from tests.sut.servers.test_info_pages import GATEWAY

GIB = 1 << 30


def doctor(*flags, **more):
    words = [sys.executable, "-m", "sut.doctor", "--no-datasets", *map(str, flags)]
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=300, **more)


def levels(findings):
    return [finding.level for finding in findings]


def test_on_this_machine_it_prints_every_check_and_a_result():
    done = doctor()
    assert done.returncode in (0, 2), done.stderr
    subjects = {line[9:27].strip() for line in done.stdout.splitlines() if not line.startswith(" ")}
    expected = {"Python", "packages", "memory", "open files", "cores", "disk", "GPUs", "tokenizer", "sandbox"}
    assert expected <= subjects
    assert done.stdout.splitlines()[-1].startswith(("all in order", "no error", "1 error"))


def test_a_backend_of_the_environment_is_named(monkeypatch):
    monkeypatch.setenv("MLPERF_BACKEND", "vllm")
    first = next(findings_of(parse_options(["--server-url", "http://127.0.0.1:9"])))
    assert first == ok("flags", "--backend vllm is taken from MLPERF_BACKEND in the environment")


@pytest.mark.parametrize(
    ("words", "exported", "named"),
    [
        (
            ["--backend", "vllm", "--ca-file", "nowhere.pem"],
            None,
            ["--ca-file nowhere.pem", "--backend vllm"],
        ),
        ([], "vllm", ["MLPERF_BACKEND vllm"]),
        (["--backend", "trtllm"], "vllm", ["--backend trtllm"]),
    ],
)
def test_flags_of_servers_have_no_effect_without_any(monkeypatch, words, exported, named):
    if exported:
        monkeypatch.setenv("MLPERF_BACKEND", exported)
    found = itertools.takewhile(lambda finding: finding.subject == "flags", findings_of(parse_options(words)))
    assert [one.text.partition(" has no effect")[0] for one in found] == named


@pytest.mark.engine
def test_as_json_with_servers(tmp_path):
    with StubServer() as stub:
        flags = ("--server-url", stub.url, "--server-url", "http://127.0.0.1:9", "--output-dir", tmp_path)
        done = doctor("--json", *flags)
    found = json.loads(done.stdout)
    of_servers = [one for one in found["findings"] if one["subject"] in ("server", "network")]
    assert [(one["level"], one["subject"]) for one in of_servers] == [
        ("ok", "server"),
        ("ok", "network"),
        ("error", "server"),
    ]
    assert "wire sglang" in of_servers[0]["text"]
    assert "round trip" in of_servers[1]["text"]
    assert of_servers[2]["remedy"]
    others = [one for one in found["findings"] if one["level"] == "error" and not one["of_server"]]
    assert done.returncode == found["exit_code"] == (2 if others else 3)


def findings(*urls):
    """Of servers: their errors are no errors of this machine."""
    benchmark = load_benchmark("gpt-oss-120b")
    found = list(server_paths.server_findings(urls, "sglang", Access(), 20, benchmark))
    assert exit_code(found) in (0, 3)
    return [(one.level, one.text, one.remedy) for one in found if one.subject == "server"]


def rank_of(rank, of):
    return Facts(info={"deployment_info": {"dp_size": of, "dp_rank": rank}})


def test_replicas_of_a_name_are_no_ranks(monkeypatch):
    pairs = [AddressPair(socket.AF_INET, (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]
    monkeypatch.setattr(naming, "resolve", lambda *_: pairs)
    port = free_ports(1)
    with StubServer(port=port), StubServer(port=port, host="127.0.0.2"):
        _, (level, text, _) = findings(f"dns+http://a.test:{port}")
    assert (level, text) == ("ok", f"http://a.test:{port}#127.0.0.2: further addresses of its name")


@pytest.mark.parametrize(
    ("other", "level", "words"),
    [
        (Facts(served_name="llama"), "error", "replicas differ: "),
        (Facts(version="0.5.22"), "warning", "replicas differ in version: "),
        (Facts(context_length=4096), "error", "replicas differ in context length: "),
        (Facts(info={"quantization": "fp8"}), "warning", "replicas differ in quantization: "),
    ],
)
def test_replicas_that_differ_are_what_they_are_to_a_run(other, level, words, tmp_path, capfd):
    with StubServer() as a, StubServer(facts=other) as b:
        *each, last = findings(a.url, b.url)
        urls = ("--server-url", f"{a.url},{b.url}", "--max-new-tokens", 4)
        run = run_mlperf(tmp_path, "--input-file", small_dataset(tmp_path)[0], *urls, "--dry-run", here=capfd)
    assert {one[0] for one in each} == {"ok"}
    assert (last[0], last[1].startswith(words)) == (level, True)
    assert (run.code == 3, last[1] in run.stdout + run.stderr) == (level == "error", True)


@pytest.mark.parametrize(
    "other",
    [
        Facts(model="/m/Llama-3.1-8B-Instruct", served_name="llama"),
        Facts(info={"disable_radix_cache": False}),
        Facts(info={"preferred_sampling_params": '{"min_p":0.1}'}),
    ],
)
def test_deviations_of_a_server_are_those_of_a_run(other, tmp_path, capfd):
    with StubServer(facts=other) as stub:
        (_, described, _), (level, text, remedy) = findings(stub.url)
        assert "1 data-parallel rank," in described
        words = ("--input-file", small_dataset(tmp_path)[0], "--server-url", stub.url, "--max-new-tokens", 4)
        plan = run_mlperf(tmp_path, *words, "--dry-run", here=capfd).stdout
    said = text.removeprefix("NOT OFFICIAL: ")
    assert (level, said != text) == ("warning", True)
    assert f"DEVIATION {said}{'; ' if remedy else ''}{remedy}" in plan


def test_options_that_a_router_hides_are_no_ok():
    hidden = {"/get_loads": {"workers": []}, "/get_server_info": {"router_manager": True}}  # of sglang-router
    with pages(GATEWAY | hidden) as url:
        ((level, text, remedy),) = [one for one in findings(url) if "options" in one[1]]
    assert (level, remedy) == ("warning", "ask each server: ./mlperf doctor --server-url SERVER")
    assert "sglang-router does not show" in text


def test_ranks_without_a_url_are_warned_of_once():
    port = free_ports(3)
    first, second = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    with StubServer(port=port, facts=rank_of(0, 3)):
        _, (level, text, remedy) = findings(first)
        assert level == "warning"
        assert "2 further data-parallel ranks expected here, not reachable" in text
        assert remedy.startswith("publish these ports")
        with StubServer(port=port + 1, facts=rank_of(1, 3)), StubServer(port=port + 2, facts=rank_of(2, 3)):
            ((_, text, remedy),) = [one for one in findings(first, second) if one[0] == "warning"]
            assert "no URL leads to 2: unless " in text
            assert remedy == "name their ports with --server-url, too"
            assert {one[0] for one in findings(first, second, f"http://127.0.0.1:{port + 2}")} == {"ok"}


@pytest.mark.engine
def test_few_open_files_are_an_error():
    done = doctor("--max-concurrency", 5000, preexec_fn=few_files)
    assert done.returncode == 2
    assert "ERROR    open files" in done.stdout
    assert "5000 requests in flight need 849 with 157 workers" in done.stdout
    assert "raise it: ulimit -n 849," in done.stdout


def few_files():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([ok("a", "")], 0),
        ([Finding("warning", "a", "")], 0),
        ([Finding("error", "a", "", of_server=True)], 3),
        ([Finding("error", "a", "", of_server=True), Finding("error", "b", "")], 2),
    ],
)
def test_exit_code(findings, code):
    assert exit_code(findings) == code


# -- this node


@pytest.fixture
def kernel(tmp_path):
    """Folders of a kernel, empty but for what ``write`` puts there."""
    at = Folders(tmp_path / "proc", tmp_path / "sys", tmp_path / "shm")

    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return at, write


@pytest.mark.parametrize(("free", "level"), [(16, "ok"), (3, "warning"), (0.5, "error")])
def test_memory(kernel, free, level):
    at, write = kernel
    assert this_node.memory_finding(at).text == "the kernel does not say how much is free"
    write(at.proc / "meminfo", f"MemTotal: 99\nMemAvailable: {int(free * GIB / 1024)} kB\n")
    assert this_node.memory_finding(at).level == level


def test_memory_of_a_container(kernel):
    at, write = kernel
    write(at.proc / "meminfo", f"MemAvailable: {64 * GIB // 1024} kB\n")
    write(at.sys / "fs/cgroup/memory.max", str(6 * GIB))
    write(at.sys / "fs/cgroup/memory.current", str(5 * GIB))
    write(at.sys / "fs/cgroup/memory.stat", f"inactive_file {GIB}\nactive_file 0\n")
    found = this_node.memory_finding(at)
    assert (found.level, "2.0 GiB free in this container" in found.text) == ("warning", True)
    write(at.sys / "fs/cgroup/memory.max", "max")
    assert this_node.memory_finding(at).level == "ok"


def test_without_shared_memory_a_warning_names_the_flag_of_the_container(kernel):
    at, _ = kernel
    found = this_node.shm_finding(at)
    assert (found.level, "--ipc=host" in found.remedy) == ("warning", True)


@pytest.mark.parametrize(("mib", "level"), [(64, "warning"), (1023, "warning"), (1024, "ok")])
def test_docker_s_usual_shared_memory_is_too_little(kernel, monkeypatch, mib, level):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=mib, f_frsize=1 << 20))
    found = this_node.shm_finding(kernel[0])
    assert (found.level, f"{mib / 1024:.1f} GiB free" in found.text) == (level, True)


@pytest.mark.parametrize(
    ("files", "asked", "level"),
    [
        (20_000, None, "ok"),
        (1024, None, "ok"),
        (120, None, "warning"),
        (64, None, "error"),
        (1024, 5000, "ok"),
        (120, 5000, "error"),
    ],
)
def test_open_files(files, asked, level):
    """5000 requests are shared by as many workers as the files need, as in a run."""
    machine = Machine(((0,), (1,)), None, files)
    assert this_node.files_finding(machine, asked, server_here=False).level == level


@pytest.mark.parametrize("asked", [200, 500, 5000])
def test_open_files_are_those_of_a_run(asked):
    machine = Machine(((0,), (1,)), None, 200)
    workers = choose(machine, Load(open_at_most=asked), None, server_here=True).workers
    refused = any(MachineLimits(200, None).shortages(asked, workers, 1)) or descriptors_for(workers) > 200
    finding = this_node.files_finding(machine, asked, server_here=True)
    assert (finding.level == "error") == refused == (asked == 5000)


@pytest.mark.parametrize(
    ("ports", "asked", "pairs", "expected"),
    [
        (14_000, None, 0, "ok"),
        (14_000, 20_000, 0, "warning"),
        (14_000, 20_000, 1, "error"),
        (14_000, 20_000, 2, "ok"),
        (500, None, 1, "warning"),
        (None, 20_000, 1, "warning"),
    ],
)
def test_local_ports(ports, asked, pairs, expected):
    assert this_node.ports_finding(MachineLimits(9999, ports), asked, pairs).level == expected


def test_pairs_of_addresses_are_those_that_a_run_counts():
    """A server on this machine is reached from further addresses of its loopback."""
    urls = ["http://127.0.0.1:9", "http://no-such-host.invalid:9"]
    limits = MachineLimits(1 << 30, 100)
    assert server_paths.address_pairs([]) == 0
    assert 100 * server_paths.address_pairs(urls) == ConnectionLimits(limits, 1, urls[:1]).max_connections


@pytest.mark.parametrize("count", [0, -5, 1 << 21])
def test_a_limit_that_a_run_refuses_is_refused(count, capsys):
    code, printed, said = main_here(capsys, main, ["--max-concurrency", str(count)])
    assert (code, printed) == (2, "")
    assert f"--max-concurrency is {count}, expected 1 to 1048576" in said


def test_a_limit_on_cpu_time_is_a_warning():
    """A login node's: the kernel would end a worker, or the program, in the middle of a long run."""
    command = ["bash", "-c", 'ulimit -t 5400; exec "$@"', "bash", sys.executable, "-m", "sut.doctor"]
    done = subprocess.run([*command, "--no-datasets"], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert re.search("WARNING  CPU time .* ended after 1h30m of it.*\n .* ulimit -t unlimited", done.stdout)
    assert levels(this_node.processor_time_findings(resource.RLIM_INFINITY)) == []


def test_a_short_queue_of_connections_is_named_with_its_sysctl():
    (queue,) = this_node.queue_findings(MachineLimits(9999, 14_000, 1023), None, 1)
    assert (queue.level, "somaxconn" in queue.remedy) == ("warning", True)
    assert levels(this_node.queue_findings(MachineLimits(9999, 14_000, 128), 256, 2)) == ["ok"]
    assert levels(this_node.queue_findings(MachineLimits(9999, 14_000, 128), 257, 2)) == ["warning"]


def test_the_tokenizer_of_a_download_is_found_as_by_the_evaluator(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(data_files, "ROOT", tmp_path)
    r1 = load_benchmark("deepseek-r1")
    missing = data_files.tokenizer_finding(r1)
    fetch = "datasets/download.sh --benchmark deepseek-r1 --what model, or ./mlperf score --tokenizer FOLDER"
    assert (missing.level, missing.remedy) == ("warning", fetch)
    model = tmp_path / "data/models/DeepSeek-R1"
    model.mkdir(parents=True)
    shutil.copy(ROOT / "datasets/samples/r1_sample_tokenizer.json", model / "tokenizer.json")
    assert data_files.tokenizer_finding(r1).level == "ok"


def test_cores_load_and_governor(kernel):
    at, write = kernel
    machine = Machine(((0,), (1,), (2,), (3,)), None, 1024)
    write(at.proc / "loadavg", "not known")
    assert all(one.subject != "load" for one in this_node.cores_findings(machine, at))
    write(at.proc / "loadavg", "1.5 1 1 1/1 1")
    assert levels(this_node.cores_findings(machine, at)) == ["ok"]
    write(at.proc / "loadavg", "3.5 1 1 1/1 1")
    write(at.sys / "devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave")
    cores, load, clock = this_node.cores_findings(machine, at)
    assert (cores.level, load.subject, clock.subject) == ("ok", "load", "CPU clock")
    # There the processor itself raises the clock under load.
    write(at.sys / "devices/system/cpu/intel_pstate/status", "active")
    assert [one.subject for one in this_node.cores_findings(machine, at)] == ["cores", "load"]
    (small,) = this_node.cores_findings(Machine(((0,), (1,)), 1.0, 1024), Folders(at.sys, at.proc))
    assert small.level == "warning"


@pytest.mark.parametrize(
    ("cores", "quota", "why"), [(4, None, ""), (3, None, "below 4"), (16, 8.0, "under a quota")]
)
def test_why_nothing_is_pinned(kernel, cores, quota, why):
    at, _ = kernel
    machine = Machine(tuple((core,) for core in range(cores)), quota, 1024)
    (found,) = this_node.cores_findings(machine, at)
    assert found.text.partition("; nothing is pinned ")[2] == why
    assert bool(choose(machine, Load(), 2, server_here=False).loadgen_cores) == (not why)


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("set_by_ns", "state", "expected"),
    [
        (0, 0, [("ok", "synchronized")]),
        (0, None, [("ok", "not known")]),
        (0, 5, [("warning", "the kernel says that it is not synchronized")]),
        (40_000_000, 0, [("warning", "the wall clock was set by +40.0 ms within 2.0 s")]),
        (
            -3 * SECOND,
            5,
            [("warning", "the wall clock was set by -3000.0 ms"), ("warning", "the kernel says")],
        ),
        (90_000, 0, [("ok", "synchronized")]),  # slewed, not set
    ],
)
def test_a_clock_that_was_set_while_it_was_watched(set_by_ns, state, expected):
    before, after = ClockReading(10 * SECOND, SECOND, 0), ClockReading(12 * SECOND + set_by_ns, 3 * SECOND, 0)
    found = list(this_node.clock_findings(before, after, state))
    assert [one.level for one in found] == [level for level, _ in expected]
    assert all(one.text.startswith(words) for one, (_, words) in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (0.0005, ("ok", "synchronized")),
        (0.083, ("warning", "the clocks ran 166.0 ms fast within 2.0 s")),
        (-0.083, ("warning", "the clocks ran 166.0 ms slow within 2.0 s")),
    ],
)
def test_clocks_that_are_corrected_while_they_are_watched(part, expected):
    before, after = ClockReading(0, 0, 7), ClockReading(2 * SECOND, 2 * SECOND, 7 + int(part * 2 * SECOND))
    (found,) = this_node.clock_findings(before, after, 0)
    assert (found.level, found.text[: len(expected[1])]) == expected


def test_a_reading_of_the_clocks_is_between_two_others():
    before, now, after = (ClockReading.now() for _ in range(3))
    assert before.steady_ns <= now.steady_ns <= after.steady_ns <= time.monotonic_ns()
    assert now.wall_ns > 1_500_000_000 * SECOND  # since 1970, not since the start of the machine


def test_the_state_of_the_clock_is_that_of_the_kernel():
    assert this_node.clock_state() in (None, *range(6))


def test_a_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path):
    (found,) = this_node.disk_findings(tmp_path / "a/b")
    assert str(tmp_path) in found.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("blocks", "level", "words"),
    [
        (4 << 20, "ok", "4.0 GiB free"),
        ((4 << 20) - 1, "warning", "runs of a submission take up to 4"),
        (1 << 19, "warning", "0.5 GiB free"),
        ((1 << 19) - 1, "error", "0.5 GiB free"),
    ],
)
def test_room_for_runs(tmp_path, monkeypatch, blocks, level, words):
    """What a user may use; the disk is as fast as it has to be."""
    disk = SimpleNamespace(f_bavail=blocks, f_bfree=1 << 40, f_frsize=1024, f_bsize=1 << 20)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    monkeypatch.setattr(this_node, "_written_per_s", lambda folder: 20e6)
    (found,) = this_node.disk_findings(tmp_path)
    assert (found.level, words in found.text) == (level, True)


def test_a_slow_disk_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=5 << 20, f_frsize=1024))
    monkeypatch.setattr(this_node, "time", SimpleNamespace(monotonic=iter([10.0, 12.0]).__next__))
    (found,) = this_node.disk_findings(tmp_path)
    assert (found.level, found.text) == (
        "warning",
        f"{tmp_path}: 5.0 GiB free, 17 MB/s: journals may fall behind",
    )


def test_a_limit_on_files_is_lifted_wherever_they_are(tmp_path, monkeypatch):
    def refuse(folder: Path) -> float:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(this_node, "_written_per_s", refuse)
    (found,) = this_node.disk_findings(tmp_path)
    assert (found.level, found.text) == ("error", f"{tmp_path}: File too large")
    assert "ulimit -f" in found.remedy


def test_a_name_that_no_folder_can_have_is_a_finding():
    (found,) = this_node.disk_findings(Path("a" * 300))
    assert (found.level, "File name too long" in found.text) == ("error", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    assert levels(this_node.disk_findings(tmp_path)) == ["error"]


# -- software, files, GPUs


def test_why_there_is_no_sandbox_is_no_remedy(monkeypatch):
    def refuse(*, allow_unsandboxed: bool) -> Sandbox:
        raise refusal({Tier.BUBBLEWRAP: "no namespace; repeat", Tier.LANDLOCK: "not confined"})

    monkeypatch.setattr(data_files, "choose_sandbox", refuse)
    found = data_files.sandbox_finding()
    assert "not confined" in found.text
    assert found.remedy.endswith("--allow-unsandboxed") and "not confined" not in found.remedy


def test_packages():
    pins = software.pinned_versions()
    assert levels(software.software_findings(pins.get, (3, 12, 1))) == ["ok", "ok"]
    assert levels(software.software_findings({**pins, "numpy": "1.0"}.get, (3, 10, 0))) == [
        "error",
        "warning",
    ]
    found = list(software.software_findings({}.get))
    assert "mlcommons-loadgen" in found[-1].text


def test_without_the_clients_library_the_remedy_is_a_compiler():
    assert levels([software.client_finding(compiled=True)]) == ["ok"]
    assert "gcc" in software.client_finding(compiled=False).remedy


SAID = """\
ok        perf/a.parquet (known md5)
MISSING   acc/b.parquet
DIFFERS   acc/c.parquet: md5:1, expected md5:2 (known); delete it and download it again
unknown   d: no checksum known; its sha256 is 3
"""


def test_files_by_their_verification():
    found = {one.level: one for one in data_files.of_verification(SAID, "gpt-oss-120b")}
    assert (found["error"].text[:13], found["error"].remedy) == (
        "acc/c.parquet",
        "delete it and download it again",
    )
    assert found["ok"].text.startswith("1 ")
    assert levels(data_files.of_verification(SAID, "x")) == ["error", "warning", "warning", "ok"]


@pytest.mark.parametrize("script", ["exit 1", "echo 'ok        acc/a (known md5)'; echo no disk >&2; exit 1"])
def test_files_that_were_not_checked_are_no_silence(script, tmp_path, monkeypatch):
    download = tmp_path / "datasets/download.sh"
    download.parent.mkdir()
    download.write_text(f"#!/bin/sh\n{script}\n")
    download.chmod(0o755)
    monkeypatch.setattr(data_files, "ROOT", tmp_path)
    *_, last = data_files.dataset_findings("gpt-oss-120b")
    assert (last.level, last.text.startswith("not all checked: ")) == ("warning", True)
    assert last.text.endswith("no disk" if "no disk" in script else "ended with exit code 1")
    assert last.remedy.endswith("--verify")


@pytest.mark.parametrize(
    ("version", "level"), [((3, 10, 9), "error"), ((3, 11), "ok"), ((3, 13, 1), "ok"), ((3, 14), "warning")]
)
def test_python_is_one_that_setup_installs_for(version, level):
    first, *_ = software.software_findings(python=version)
    assert first.level == level


class Gpus(list):
    """Two GPUs with these values, as LocalGpus shows them."""

    failures = ()

    def __init__(self, facts=None, **values):
        super().__init__([0, 1])
        self._values, self._facts = values, facts

    def values(self):
        return [self._values for _ in self]

    def facts(self):
        return [] if self._facts is None else [self._facts]


HEALTHY = {
    "driver": "580.95.05",
    "cuda": (13, 0),
    "ecc": {0: True, 1: True},
    "ecc_uncorrected": {0: 0, 1: 0},
}


@pytest.mark.parametrize(
    ("facts", "values", "wrong"),
    [
        (HEALTHY, {"DCGM_FI_DEV_SM_CLOCK": 1980, "DCGM_FI_DEV_GPU_TEMP": 31, "DCGM_FI_DEV_GPU_UTIL": 9}, {}),
        (HEALTHY, {"gpu_slowed": 1.0}, {"GPU clocks": "error"}),
        (HEALTHY, {"DCGM_FI_DEV_GPU_TEMP": 90}, {"GPU clocks": "warning"}),
        (HEALTHY, {"DCGM_FI_DEV_GPU_UTIL": 10}, {"GPU load": "warning"}),
        ({**HEALTHY, "driver": "570.1", "cuda": (12, 8)}, {}, {"GPU driver": "error"}),
        ({**HEALTHY, "ecc_uncorrected": {0: 0, 1: 4}}, {}, {"GPU memory": "error"}),
        ({**HEALTHY, "ecc": {0: True, 1: False}, "ecc_uncorrected": {0: 0}}, {}, {"GPU memory": "warning"}),
        ({**HEALTHY, "ecc": {0: False, 1: True}}, {}, {"GPU memory": "warning"}),
        ({"driver": "6.12.12", "ecc_uncorrected": {}}, {}, {}),  # ROCm's
    ],
)
def test_gpus(facts, values, wrong):
    found = list(gpu_health.gpu_findings(Gpus(facts, **values)))
    assert {one.subject: one.level for one in found if one.level != "ok"} == wrong
    assert not {one.subject for one in found if one.level == "ok"} & set(wrong)


def test_what_gpus_show_is_told_once_for_all():
    seen, driver, memory = gpu_health.gpu_findings(Gpus(HEALTHY, DCGM_FI_DEV_SM_CLOCK=1980))
    assert seen.text == "2 seen, 1980 MHz"
    assert driver.text.startswith("580.95.05, up to CUDA 13.0: enough for lmsysorg/sglang:v")
    assert memory.text == "no uncorrected ECC error"
    *_, memory = gpu_health.gpu_findings(Gpus({"driver": "6.12.12", "ecc_uncorrected": {}}))  # ROCm's
    assert memory.text == "ECC is off, or not reported"
    *_, hot, _, _ = gpu_health.gpu_findings(Gpus(HEALTHY, DCGM_FI_DEV_GPU_TEMP=90))
    assert hot.text == "GPU 0, 1: 85 degrees C and more"


# -- servers


@pytest.mark.parametrize(
    ("round_trip", "mss", "level"),
    [(90.0, 1448, "ok"), (4000.0, 1448, "warning"), (90.0, 536, "warning")],
)
def test_the_way_to_a_server(round_trip, mss, level, monkeypatch):
    monkeypatch.setattr(server_paths, "_connect", lambda pair: (round_trip, mss))
    way = server_paths.way_to(SimpleNamespace(pairs=[AddressPair(socket.AF_INET6, ("fd00::1", 30000))]))
    (found,) = server_paths.way_findings("http://a:1", way)
    assert (found.level, found.text.split()[0]) == (level, "[fd00::1]:30000:")


def test_a_server_that_is_gone_between_the_questions():
    (found,) = server_paths.way_findings("http://a:1", None)
    assert (found.level, found.of_server) == ("error", True)
