"""The examination of a node: every check in turn, its lines as they come, and a result at the end."""

import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from harness.cli.streams import require_stdout
from harness.config.benchmark import load_benchmark
from harness.config.client_plan import MOST_CONCURRENCY
from harness.config.option_checks import optional_count
from harness.config.run_options import BACKEND_NAME, DEFAULT_BACKEND, of_environment
from harness.config.server_urls import parse_server_urls, unused_ca_file
from harness.text import counted, printable, show
from sut.client.endpoint import access_by
from sut.doctor import data_files, this_node
from sut.doctor.doctor_options import DoctorOptions
from sut.doctor.finding import Finding, exit_code, ok
from sut.doctor.gpu_health import gpu_findings
from sut.doctor.server_paths import address_pairs, server_findings
from sut.doctor.software import client_finding, software_findings
from sut.doctor.this_node import ClockReading, Folders
from sut.processes.machine_limits import machine_limits
from sut.servers.gpus import LocalGpus
from sut.servers.naming import any_is_here
from sut.supervisor.placement import this_machine

_QUESTIONS_S = 20.0
_MARKS = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}
_INDENT = 9 + 18


def examine(options: DoctorOptions) -> int:
    """Look at everything and print it; returns the exit code."""
    findings = []
    for finding in findings_of(options):
        findings.append(finding)
        if not options.json:
            show(*_lines(finding))
    code = exit_code(findings)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode({"exit_code": code, "findings": findings})).decode())
        require_stdout()
    else:
        show("", _result(findings))
    return code


def findings_of(options: DoctorOptions) -> Iterator[Finding]:
    """Every check; the clock is watched as long as the others take."""
    began, at, limits = ClockReading.now(), Folders(), machine_limits()
    machine = this_machine()
    urls = parse_server_urls(options.server_url) if options.server_url else ()
    benchmark = load_benchmark(options.benchmark)
    in_flight = optional_count("--max-concurrency", options.max_concurrency, MOST_CONCURRENCY)
    yield from (ok("flags", text) for text in _about_flags(options, urls))
    yield from software_findings()
    yield client_finding(compiled=machine.native)
    yield this_node.memory_finding(at)
    yield this_node.shm_finding(at)
    server_here = options.backend == "embedded" or any_is_here(urls)
    yield this_node.files_finding(machine, in_flight, server_here=server_here)
    yield this_node.ports_finding(limits, in_flight, address_pairs(urls))
    yield from this_node.queue_findings(limits, in_flight, len(urls))
    yield from this_node.cores_findings(machine, at)
    yield from this_node.processor_time_findings(resource.getrlimit(resource.RLIMIT_CPU)[0])
    yield this_node.huge_pages_finding(at)
    yield from this_node.disk_findings(options.results)
    yield from gpu_findings(LocalGpus())
    yield data_files.tokenizer_finding(benchmark)
    yield data_files.sandbox_finding()
    if options.datasets:
        yield from data_files.dataset_findings(options.benchmark)
    if urls:
        yield from server_findings(urls, options.backend, access_by(options.ca_file), _QUESTIONS_S, benchmark)
    yield from this_node.clock_findings(began, ClockReading.now(), this_node.clock_state())


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{_MARKS[finding.level]:<9}{finding.subject:<18}{printable(finding.text, 600)}"
    if finding.remedy:
        yield f"{'':<{_INDENT}}-> {printable(finding.remedy, 600)}"


def _result(findings: Iterable[Finding]) -> str:
    count = Counter(finding.level for finding in findings)
    if count["error"]:
        return f"{counted(count['error'], 'error')}, {counted(count['warning'], 'warning')}: a run would fail"
    if count["warning"]:
        return f"no error, {counted(count['warning'], 'warning')}"
    return "all in order"


def _about_flags(options: DoctorOptions, urls: Sequence[str]) -> Iterator[str]:
    """Also what has no effect on the questions to servers, or since none is asked."""
    unused = not urls and options.backend not in (DEFAULT_BACKEND, "embedded")
    taken = of_environment(options.backend)
    yield from (text for text in options.warnings if text != taken or not unused)
    yield from unused_ca_file(options.ca_file, urls)
    if unused:
        named = BACKEND_NAME if taken in options.warnings else "--backend"
        yield f"{named} {options.backend} has no effect: without --server-url no server is asked"
