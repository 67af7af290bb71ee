"""The command line of each client for one workload, and the reader of the TTFT that it reports."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from benchmarks.bench import OFFLINE, SERVER
from benchmarks.peers.workloads import Workload
from harness.files import REQUESTS, ROOT, RUN_RECORD
from harness.record.run_record import RunRecord

Figures = dict[str, float]  # "mean" and "p99" in ns
_SUMMARY = {"mean": "Mean First Token latency (ns)", "p99": "99.00 percentile first token latency (ns)"}


@dataclass(frozen=True)
class Claims:
    """What a client reports of its run; None for what it does not."""

    ttft: Figures | None = None
    failures: int | None = None
    in_order: npt.NDArray[np.float64] | None = None
    """the TTFT in ns of each request, in the order of sending"""
    requests: int | None = None
    """its number of requests, if not the workload's: LoadGen issues queries until the least time is over"""
    from_send: Figures | None = None
    """the TTFT from its own send, where ``ttft`` is not that"""


@dataclass(frozen=True)
class Job:
    """A workload with its files, against one server. ``parquet`` and ``prompts`` hold the same prompts."""

    workload: Workload
    url: str
    folder: Path
    parquet: Path
    prompts: Path
    tokenizer: Path
    """a folder"""


@dataclass(frozen=True)
class Tool:
    """``command`` returns the words to run and the folder to run in, None for an unsupported workload.

    ``claims`` reads, after the run, what the client reports.
    """

    name: str
    command: Callable[[Job], tuple[list[str], Path] | None]
    claims: Callable[[Job, str], Claims]


def harness() -> Tool:
    """This harness: with LoadGen, or its ladder where the workload says so."""

    def command(job: Job) -> tuple[list[str], Path]:
        load = job.workload
        words = [sys.executable]
        if load.ladder_s:
            words += [str(ROOT / "find_peak.py"), "ladder", "--seconds", f"{load.ladder_s}s"]
            words += ["--concurrency", str(load.concurrency)]
        else:
            words += [str(ROOT / "run_mlperf.py"), "--scenario", _scenario(load)]
            words += ["--user-conf", str(_conf(job)), "--stream", "on" if load.stream else "off"]
            words += [] if load.qps else ["--max-concurrency", str(load.concurrency)]
        words += ["--input-file", str(job.parquet), "--max-new-tokens", str(load.tokens)]
        words += ["--server-url", job.url, "--output-dir", str(job.folder), "--log-level", "warning"]
        return words, job.folder

    return Tool("ours", command, _harness_claims)


def _harness_claims(job: Job, output: str) -> Claims:
    if job.workload.ladder_s:
        ttft = _ttft_since("issued_ns", job.folder / "peak/server/ladder")
        return Claims(figures(ttft), None, ttft)
    log_dir = job.folder / _scenario(job.workload) / "performance"
    record = RunRecord.read(log_dir / RUN_RECORD)
    assert record.statistics is not None
    failures = record.statistics.failed + (record.unanswered or 0)
    requests = record.statistics.completed + failures
    if not job.workload.qps:
        return Claims(None, failures, requests=requests)
    from_send = figures(_ttft_since("sent_ns", log_dir))
    return Claims(_loadgen_figures(log_dir), failures, requests=requests, from_send=from_send)


def _ttft_since(start: str, log_dir: Path) -> npt.NDArray[np.float64]:
    """Our TTFT in ns from this stamp of requests.parquet, in the order of issue."""
    rows = pq.read_table(log_dir / REQUESTS).to_pandas().sort_values("issued_ns")
    ttft: npt.NDArray[np.float64] = (rows["first_token_ns"] - rows[start]).dropna().to_numpy(dtype=float)
    return ttft


def vllm_rs(binary: Path) -> Tool:
    """vLLM's client in Rust."""

    def command(job: Job) -> tuple[list[str], Path]:
        load = job.workload
        words = [str(binary), "bench", "serve", "--backend", "openai", "--base-url", job.url]
        words += ["--tokenizer", str(job.tokenizer), "--prompt-token-ids", "--ignore-eos", "--disable-tqdm"]
        words += ["--random-input-len", str(load.prompt_tokens), "--random-output-len", str(load.tokens)]
        words += ["--num-prompts", str(load.count), "--save-result", "--save-detailed"]
        words += ["--result-dir", str(job.folder), "--result-filename", "vllm.json"]
        return [*words, *_pace(load)], job.folder

    def claims(job: Job, output: str) -> Claims:
        reported = json.loads((job.folder / "vllm.json").read_text())
        order = np.argsort(reported["start_times"])
        ttft = np.array(reported["ttfts"])[order] * 1e9
        return Claims(figures(ttft), reported["failed"], ttft)

    return Tool("vllm-rs", command, claims)


def reference(python: str, checkout: Path) -> Tool:
    """The MLCommons reference harness for gpt-oss-120b, from the user's checkout of mlcommons/inference."""
    home = checkout / "language/gpt-oss-120b"

    def command(job: Job) -> tuple[list[str], Path] | None:
        load = job.workload
        if load.stream and not load.qps:
            return None  # the reference's Offline does not stream
        words = [python, "run_mlperf.py", "--scenario", _scenario(load), "--user-conf", str(_conf(job))]
        words += ["--input-file", str(job.parquet), "--server-url", job.url, "--output-dir", str(job.folder)]
        words += ["--max-new-tokens", str(load.tokens), "--max-concurrency", str(load.concurrency)]
        return words, home

    def claims(job: Job, output: str) -> Claims:
        log_dir = job.folder / _scenario(job.workload) / "performance"
        found = re.findall(r"(\d+) ERRORS? encountered", (log_dir / "mlperf_log_summary.txt").read_text())
        failures = int(found[0]) if found else 0
        return Claims(_loadgen_figures(log_dir) if job.workload.qps else None, failures)

    return Tool("MLCommons reference", command, claims)


def plain(library: str, python: str) -> Tool:
    """plain_client.py on one library."""

    def command(job: Job) -> tuple[list[str], Path]:
        load = job.workload
        words = [python, str(Path(__file__).with_name("plain_client.py")), library, "--url", job.url]
        words += ["--prompts", str(job.prompts), "--tokens", str(load.tokens), "--count", str(load.count)]
        words += ["--concurrency", str(load.concurrency), "--stream", str(int(load.stream))]
        return words + (["--qps", str(load.qps)] if load.qps else []), job.folder

    def claims(job: Job, output: str) -> Claims:
        reported = json.loads(output.splitlines()[-1])
        return Claims(figures(reported["ttft_ns"]) if reported["ttft_ns"] else None, reported["failures"])

    return Tool(f"plain {library} loop", command, claims)


def sglang(module: str, python: str) -> Tool:
    """SGLang's bench_serving or its Rust client; both need a tokenizer, which is a folder on disk."""

    def command(job: Job) -> tuple[list[str], Path]:
        load = job.workload
        words = [python, "-m", module, "--backend", "sglang", "--base-url", job.url, "--disable-tqdm"]
        words += ["--dataset-name", "random-ids"]
        words += ["--model", str(job.tokenizer), "--tokenizer", str(job.tokenizer)]
        words += ["--random-input-len", str(load.prompt_tokens), "--random-output-len", str(load.tokens)]
        words += ["--random-range-ratio", "1", "--num-prompts", str(load.count), "--tokenize-prompt"]
        words += ["--output-file", str(job.folder / "sglang.jsonl"), "--output-details"]
        return [*words, *_pace(load), *([] if load.stream else ["--disable-stream"])], job.folder

    def claims(job: Job, output: str) -> Claims:
        reported: dict[str, Any] = json.loads((job.folder / "sglang.jsonl").read_text().splitlines()[-1])
        ttfts = np.array([seconds for seconds in reported["ttfts"] if seconds]) * 1e9
        return Claims(figures(ttfts) if len(ttfts) else None, job.workload.count - reported["completed"])

    return Tool(module, command, claims)


def aiperf(program: Path) -> Tool:
    """NVIDIA's aiperf; it sends its prompts as text."""

    def command(job: Job) -> tuple[list[str], Path]:
        load = job.workload
        words = [str(program), "profile", "--model", "stub", "--url", job.url]
        words += ["--tokenizer", str(job.tokenizer)]
        words += ["--endpoint-type", "completions", "--isl", str(load.prompt_tokens)]
        words += ["--osl", str(load.tokens), "--use-legacy-max-tokens", "--extra-inputs", "ignore_eos:true"]
        words += ["--request-count", str(load.count), "--artifact-dir", str(job.folder / "aiperf")]
        words += ["--ui", "none", "--no-server-metrics", "--no-gpu-telemetry"]
        words += ["--streaming"] if load.stream else []
        if load.qps:
            return [*words, "--request-rate", str(load.qps), "--request-rate-mode", "poisson"], job.folder
        return [*words, "--concurrency", str(load.concurrency)], job.folder

    def claims(job: Job, output: str) -> Claims:
        reported = json.loads((job.folder / "aiperf/profile_export_aiperf.json").read_text())
        ttft = reported["time_to_first_token"]
        failed = reported.get("error_request_count", {"avg": 0})["avg"]
        return Claims({"mean": ttft["avg"] * 1e6, "p99": ttft["p99"] * 1e6}, int(failed))

    return Tool("aiperf", command, claims)


def endpoints_client(program: Path) -> Tool:
    """MLCommons' client of MLPerf Endpoints, ``inference-endpoint``; it sends the ids of the prompts.

    One worker and no pinning of its own, as all its processes share one core. Without a tokenizer: it reports
    neither TPOT nor lengths then, and is spared their cost. HF_HUB_OFFLINE keeps it from looking for one.
    """

    def command(job: Job) -> tuple[list[str], Path]:
        load = job.workload
        words = ["env", "HF_HUB_OFFLINE=1", str(program), "benchmark", "online", "--endpoints", job.url]
        words += ["--api-type", "openai_completions", "--model", "stub", "--dataset", str(job.parquet)]
        words += ["--num-samples", str(load.count), "--duration", "0"]
        words += ["--max-output-tokens", str(load.tokens), "--streaming", "on" if load.stream else "off"]
        words += ["--workers", "1", "--no-cpu-affinity", "--max-connections", str(load.concurrency)]
        words += ["--report-dir", str(_endpoints_report(job))]
        if load.qps:
            return [*words, "--load-pattern", "poisson", "--target-qps", str(load.qps)], job.folder
        return [*words, "--load-pattern", "concurrency", "--concurrency", str(load.concurrency)], job.folder

    def claims(job: Job, output: str) -> Claims:
        report, load = _endpoints_report(job), job.workload
        reported = json.loads((report / "performance/result_summary.json").read_text())
        failures, ttft = reported["n_samples_failed"], reported["ttft"]
        if not load.stream:
            return Claims(failures=failures)
        claimed = {"mean": ttft["avg"], "p99": ttft["percentiles"]["99.0"]}
        return Claims(claimed, failures, _endpoints_ttft(report) if load.ladder_s else None)

    return Tool("inference-endpoint", command, claims)


def _endpoints_report(job: Job) -> Path:
    return job.folder / "endpoints"


def _endpoints_ttft(report: Path) -> npt.NDArray[np.float64]:
    """From its log of events, in the order of sending."""
    moments: dict[str, dict[str, int]] = {"sample.issued": {}, "sample.recv_first": {}}
    with (report / "events.jsonl").open() as lines:
        for event in map(json.loads, lines):
            moments.get(event["event_type"], {})[event["sample_uuid"]] = event["timestamp_ns"]
    issued, first = moments.values()
    order = sorted(first, key=lambda sample: issued[sample])
    return np.array([first[sample] - issued[sample] for sample in order], dtype=float)


def guidellm(program: Path) -> Tool:
    """guidellm; it sends the prompts as text, a word an id.

    One worker, as all its processes share one core. The prompts are in a file, a row for each request, since
    it reads the file once. It never finishes making synthetic text with a tokenizer to which any text is one
    token, such as that of ``job``; with a file it needs none.
    """

    def command(job: Job) -> tuple[list[str], Path]:
        load = job.workload
        backend = f"kind=openai_http,target={job.url},model=stub,request_format=/v1/completions"
        profile = f"poisson,rate={load.qps}" if load.qps else f"concurrent,streams={load.concurrency}"
        words = ["env", "HF_HUB_OFFLINE=1", f"HF_HOME={job.folder}", "GUIDELLM__MAX_WORKER_PROCESSES=1"]
        words += [str(program), "run", "--backend", f"{backend},stream={str(load.stream).lower()}"]
        words += ["--profile", f"kind={profile}", "--constraint", f"kind=max_requests,count={load.count}"]
        words += ["--data", f"kind=json_file,path={_guidellm_rows(job)}", "--disable-console"]
        return [*words, "--output", f"kind=json,path={job.folder / 'guidellm.json'}"], job.folder

    def claims(job: Job, output: str) -> Claims:
        reported = json.loads((job.folder / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
        failures = job.workload.count - reported["request_totals"]["successful"]
        if not job.workload.stream:
            return Claims(failures=failures)
        ttft = reported["time_to_first_token_ms"]["successful"]
        return Claims({"mean": ttft["mean"] * 1e6, "p99": ttft["percentiles"]["p99"] * 1e6}, failures)

    return Tool("guidellm", command, claims)


def _guidellm_rows(job: Job) -> Path:
    path, load = job.folder / "guidellm.jsonl", job.workload
    prompts = [" ".join(map(str, ids)) for ids in json.loads(job.prompts.read_text())]
    with path.open("w") as file:
        for prompt in itertools.islice(itertools.cycle(prompts), load.count):
            file.write(json.dumps({"prompt": prompt, "output_tokens_count": load.tokens}) + "\n")
    return path


def foreign(name: str, line: str) -> Tool:
    """Any command: {url}, {prompts}, {tokens}, {count}, {concurrency} and {qps} are filled in.

    Its reported figures are unknown; rate, CPU time and lost requests come from the stub and /proc.
    """

    def command(job: Job) -> tuple[list[str], Path]:
        load = job.workload
        filled = line.format(
            url=job.url,
            prompts=job.prompts,
            tokens=load.tokens,
            count=load.count,
            concurrency=load.concurrency,
            qps=load.qps or 0,
        )
        return ["sh", "-c", filled], job.folder

    return Tool(name, command, lambda job, output: Claims())


def absent(python: str, *modules: str) -> str:
    """The reason why a client cannot run under ``python``: the last line of the failed import, or ""."""
    words = [python, "-c", "import " + ", ".join(modules)]
    away = Path(__file__).parent  # from our folder "datasets", which Python would take for the package
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=away)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no import"])[-1]


def figures(ttft_ns: Any) -> Figures:
    """Mean and p99."""
    values = np.asarray(ttft_ns, dtype=float)
    return {"mean": float(np.mean(values)), "p99": float(np.percentile(values, 99))}


def _pace(load: Workload) -> list[str]:
    """Flags of vllm-rs and of SGLang's clients."""
    return ["--request-rate", str(load.qps)] if load.qps else ["--max-concurrency", str(load.concurrency)]


def _scenario(load: Workload) -> str:
    return "server" if load.qps else "offline"


def _conf(job: Job) -> Path:
    load, path = job.workload, job.folder / "user.conf"
    if load.qps:
        path.write_text(SERVER.format(load.qps, int(load.count / load.qps * 1000)))
    else:  # LoadGen can compute no TPOT of a single token
        no_tpot = "*.Offline.use_token_latencies = 0\n" if load.tokens == 1 else ""
        path.write_text(OFFLINE.format(load.count) + no_tpot)
    return path


def _loadgen_figures(log_dir: Path) -> Figures:
    text = (log_dir / "mlperf_log_summary.txt").read_text()
    return {
        name: float(re.findall(re.escape(key) + r"\s*: (\d+)", text)[0]) for name, key in _SUMMARY.items()
    }
