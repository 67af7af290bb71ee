"""The command of each section of a first run, and how large everything is."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gpu import section_figures as figures
from harness.campaign.rehearsal import CONF, sample_file
from harness.files import ROOT

Words = list[object]

BENCHMARK = "gpt-oss-120b"  # its data and forms; the model that answers is another
PYTHON, DOOR = sys.executable, ROOT / "mlperf.py"
_START_QPS = 1.0  # where no Offline run shows what the server does
_SERVER_PART = 0.7  # of Offline's rate
_MOST_CORES = 8  # of a record load's client, and as many for its stubs


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    model: str
    """of configs/architectures"""
    rows: int
    """requests that the server runs at once"""
    tokens: int
    """of an answer, at most"""
    samples: int
    """of an Offline run, at least"""
    server_s: int
    """length of the Server run's schedule"""
    peak_tokens: int
    """of an answer in the search, whose runs have hundreds of queries for a 99th percentile"""
    peak_budget: str
    ladder: str
    """time of each step of the search's ladder"""
    truth: tuple[str, ...]
    """flags of timing_truth"""
    load: tuple[str, ...]
    """flags of record_load"""


FULL = Sizes(
    model="gpt-oss-20b",
    rows=32,
    tokens=128,
    samples=256,
    server_s=60,
    peak_tokens=16,
    peak_budget="200s",
    ladder="8s",
    truth=("--seconds", "10"),
    load=("--hold-s", "60"),
)
# SGLang's: the model of the benchmark, whose server answers many times faster.
SGLANG = replace(FULL, rows=512, tokens=512, samples=1024, peak_tokens=128)
REHEARSAL = Sizes(
    model="tiny-gpt-oss",
    rows=8,
    tokens=8,
    samples=64,
    server_s=10,
    peak_tokens=4,
    peak_budget="100s",
    ladder="3s",
    truth=("--seconds", "5", "--streams", "16", "256"),
    load=("--hold-s", "10", "--scale", "0.3"),
)


@dataclass(frozen=True)
class Site:
    """Where a first run is, and how large."""

    folder: Path
    sizes: Sizes
    port: int
    """of its server"""
    cores: int
    """that this process may use"""
    backend: str = "pytorch"
    """that serves"""
    server_flags: tuple[str, ...] = ()
    """of its own"""

    @property
    def url(self) -> str:
        """The server's."""
        return f"http://127.0.0.1:{self.port}"

    def of(self, section: str) -> Path:
        """The folder of a section."""
        return self.folder / section


def server(site: Site) -> list[str]:
    """The server, in the foreground."""
    rows, model = ("--max-batch-size", site.sizes.model)
    if site.backend == "sglang":
        rows, model = ("--max-running-requests", BENCHMARK)
    words = [f"{site.backend}/run_server.sh", "--benchmark", model, "--dummy-weights"]
    return [*words, "--port", str(site.port), rows, str(site.sizes.rows), *site.server_flags]


def doctor(site: Site) -> Words:
    """All of it but the checksums of a download that is not needed."""
    return _mlperf("doctor", "--benchmark", BENCHMARK, "--no-datasets", "--results", site.folder, "--json")


def offline(site: Site) -> Words:
    """At least as many samples as take a while."""
    return _asked(site, "run", "offline", "offline", _offline_row(site))


def server_run(site: Site) -> Words:
    """At a rate that the server holds."""
    rate, seconds = _SERVER_PART * offline_rate(site), site.sizes.server_s
    rows = (f"*.Server.target_qps = {rate:.3f}", f"*.Server.min_duration = {seconds * 1000}")
    return _asked(site, "run", "server", "server", *rows)


def accuracy(site: Site) -> Words:
    """All sample questions."""
    return [*_asked(site, "run", "accuracy", "offline", role="accuracy"), "--accuracy"]


def score(site: Site) -> Words:
    """The grades of the accuracy run."""
    log = site.of("accuracy") / "offline/accuracy/mlperf_log_accuracy.json"
    words = ("--mlperf-log", log, "--reference-data", sample_file(BENCHMARK, "accuracy"))
    return _mlperf("score", *words, "--output", site.of("score") / figures.SCORE)


def test09(site: Site) -> Words:
    """The length of outputs, with the run that it is read from."""
    words = _asked(site, "comply", "test09", "offline", _offline_row(site))
    return [*words, "--test", "TEST09", "--rehearsal"]


def peak(site: Site) -> Words:
    """The shortest search that LoadGen's 99th percentile allows, of limits that a slow server holds."""
    values = {"target_latency_percentile": 99, "min_query_count": 512, "min_duration": 10000}
    values |= {"ttft_latency": 10000, "tpot_latency": 2000}
    rows = (f"*.Server.{key} = {value}" for key, value in values.items())
    words = _asked(site, "peak", "peak", "server", *rows, tokens=site.sizes.peak_tokens)
    times = ("--budget", site.sizes.peak_budget, "--ladder-seconds", site.sizes.ladder)
    return [*words, "--tolerance", "20%", *times]


def pages(site: Site) -> Words:
    """A page of all runs that links each one's report.html."""
    page, table = (site.of("pages") / name for name in (figures.INDEX, figures.RUNS))
    return _mlperf("report", "list", site.folder, "--output", page, "--json", table)


def client_capacity(site: Site) -> Words:
    """Each workload once."""
    return [PYTHON, "benchmarks/client_capacity.py", "--repeats", 1]


def client_workers(site: Site) -> Words:
    """Up to four, as far as there are cores for them and their stubs."""
    workers = max(1, min(4, site.cores // 2))
    return [PYTHON, "benchmarks/client_capacity.py", "--repeats", 1, "--workers", workers]


def timing_truth(site: Site) -> Words:
    """Answers with ids."""
    return [PYTHON, "benchmarks/timing_truth.py", *site.sizes.truth]


def record_load(site: Site, load: str) -> Words:
    """On half of the cores, with the stubs on the others."""
    cores = max(1, min(_MOST_CORES, site.cores // 2))
    return [PYTHON, "benchmarks/record_load.py", "--load", load, "--cores", cores, *site.sizes.load]


def offline_rate(site: Site) -> float:
    """Samples a second of this folder's Offline run, else a rate that most servers hold."""
    try:
        rate = figures.run(site.of("offline"))[0].get("samples/s")
    except figures.UNREADABLE:
        rate = None
    return float(rate) if isinstance(rate, int | float) and rate > 0 else _START_QPS


def _offline_row(site: Site) -> str:
    return f"*.Offline.min_query_count = {site.sizes.samples}"


def _asked(
    site: Site,
    verb: str,
    section: str,
    scenario: str,
    *rows: str,
    role: str = "performance",
    tokens: int | None = None,
) -> Words:
    """A verb that asks the server, with conf rows of its own behind those of a rehearsal."""
    folder = site.of(section)
    conf = folder / "user.conf"
    conf.write_text("\n".join([CONF.read_text(), *rows, ""]))
    return _mlperf(
        verb,
        *("--benchmark", BENCHMARK, "--scenario", scenario),
        *("--backend", site.backend, "--server-url", site.url),
        *("--input-file", sample_file(BENCHMARK, role), "--user-conf", conf, "--results", folder),
        *("--max-new-tokens", tokens or site.sizes.tokens),
    )


def _mlperf(verb: str, *flags: object) -> Words:
    return [PYTHON, DOOR, verb, *flags]
