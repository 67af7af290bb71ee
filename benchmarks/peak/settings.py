"""Servers with a known peak to try searches on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.peak.server_model import Server
from benchmarks.peak.workload import Workload, lengths


@dataclass(frozen=True, slots=True)
class Setting:
    """A server, and the benchmark that runs on it: ``kind`` is what makes it hard."""

    name: str
    kind: str
    server: Server
    benchmark: str = "gpt-oss-120b"

    def workload(self) -> Workload:
        """The benchmark's runs."""
        return _BENCHMARKS[self.benchmark]()


_BENCHMARKS: dict[str, Callable[[], Workload]] = {
    "gpt-oss-120b": lambda: Workload(lengths(6396)),
    "interactive": lambda: Workload(lengths(6396), ttft_s=2.0, tpot_s=0.015),
    "deepseek-r1": lambda: Workload(lengths(4388, mean=3886.0), ttft_s=2.0),
    "llama3.1-8b": lambda: Workload(lengths(13368, mean=110.0, spread=0.15), ttft_s=2.0, tpot_s=0.100),
    # A tenth of everything, for tests.
    "small": lambda: Workload(lengths(640, mean=130.0), min_duration_s=60.0),
}


def _gpu(**changes: float) -> Server:
    """About one of eight GPUs of a published run: 80 ms with a thousand requests, 10.5 queries/s."""
    values = {"step_s": 0.015, "stream_s": 60e-6, "slots": 1200, "prefill_s": 0.003, **changes}
    return Server(**values)  # type: ignore[arg-type]


def _quick(**changes: float) -> Server:
    """A replica for Interactive: 15 ms with some seventy requests."""
    return _gpu(**{"step_s": 0.006, "stream_s": 120e-6, "slots": 256, "prefill_s": 0.0005, **changes})


def _cpu(**changes: float) -> Server:
    """A slow replica: 80 ms with thirty requests, a quarter of a query per second."""
    return _gpu(**{"step_s": 0.050, "stream_s": 1e-3, "slots": 64, "prefill_s": 0.030, **changes})


FULL_SIZE: tuple[Setting, ...] = (
    Setting("1 GPU", "smooth", _gpu()),
    Setting("1 faster GPU", "smooth", _gpu(step_s=0.010, stream_s=40e-6, slots=4096)),
    Setting("2 GPUs", "smooth", _gpu(replicas=2)),
    Setting("8 GPUs", "smooth", _gpu(replicas=8)),
    Setting("8 GPUs, bent curve", "smooth", _gpu(replicas=8, step_s=0.030, stream_s=0.0, square_s=40e-9)),
    Setting("8 GPUs, Interactive", "smooth", _quick(replicas=8), "interactive"),
    Setting("64 small replicas", "smooth", _gpu(replicas=64, stream_s=600e-6, slots=256)),
    Setting("64 GPUs", "smooth", _gpu(replicas=64)),
    Setting("4 CPU replicas", "smooth", _cpu(replicas=4)),
    Setting("8 GPUs, deepseek-r1", "smooth", _gpu(replicas=8), "deepseek-r1"),
    Setting("8 GPUs, llama3.1-8b", "smooth", _gpu(replicas=8, prefill_s=0.002), "llama3.1-8b"),
    Setting("1 GPU, 600 slots", "cliff", _gpu(slots=600)),
    Setting("8 GPUs, 700 slots", "cliff", _gpu(replicas=8, slots=700)),
    Setting("8 GPUs, flat curve", "cliff", _gpu(replicas=8, step_s=0.035, stream_s=10e-6, slots=1500)),
    Setting("8 GPUs, long prefills", "cliff",
            _gpu(replicas=8, step_s=0.010, stream_s=25e-6, prefill_s=0.040)),
    Setting("64 small replicas, 64 slots", "cliff", _gpu(replicas=64, stream_s=600e-6, slots=64)),
    Setting("8 GPUs, Interactive, 48 slots", "cliff", _quick(replicas=8, slots=48), "interactive"),
    Setting("1 GPU, noise 3 %", "noisy", _gpu(noise=0.03)),
    Setting("8 GPUs, noise 3 %", "noisy", _gpu(replicas=8, noise=0.03)),
    Setting("8 GPUs, noise 6 %", "noisy", _gpu(replicas=8, noise=0.06, noise_s=120.0)),
    Setting("8 GPUs, 700 slots, noise 3 %", "noisy", _gpu(replicas=8, slots=700, noise=0.03)),
    Setting("64 small replicas, noise 3 %", "noisy",
            _gpu(replicas=64, stream_s=600e-6, slots=256, noise=0.03)),
    Setting("1 GPU, 5 % slower when warm", "drifting", _gpu(drift=0.05)),
    Setting("8 GPUs, 3 % slower when warm", "drifting", _gpu(replicas=8, drift=0.03)),
    Setting("8 GPUs, 700 slots, 4 % slower", "drifting", _gpu(replicas=8, slots=700, drift=0.04)),
    Setting("8 GPUs, one 15 % slower", "slow replica", _gpu(replicas=8, slow=1.15)),
    Setting("64 small replicas, one 30 % slower", "slow replica",
            _gpu(replicas=64, stream_s=600e-6, slots=256, slow=1.3)),
    Setting("8 GPUs, 700 slots, one 15 % slower", "slow replica", _gpu(replicas=8, slots=700, slow=1.15)),
)  # fmt: skip


def _tenth(**changes: float) -> Server:
    return _gpu(**{"step_s": 0.015, "stream_s": 600e-6, "slots": 160, "prefill_s": 0.001, **changes})


SMALL: tuple[Setting, ...] = (
    Setting("smooth", "smooth", _tenth(), "small"),
    Setting("4 replicas", "smooth", _tenth(replicas=4), "small"),
    Setting("cliff", "cliff", _tenth(replicas=2, slots=60), "small"),
    Setting("one slow replica", "slow replica", _tenth(replicas=4, slow=1.2), "small"),
    Setting("drift", "drifting", _tenth(drift=0.05, drift_s=300.0), "small"),
    Setting("noise", "noisy", _tenth(replicas=4, noise=0.02, noise_s=20.0), "small"),
)
