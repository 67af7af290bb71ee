"""GPUs of this machine: there, healthy, not slowed, and with a driver that SGLang's image can use."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.files import ROOT
from sut.doctor.finding import Finding, ok
from sut.servers.gpus import LocalGpus

# SGLang 0.5.23's packages are built for CUDA 13 (Requires-Dist of its wheel), which drivers from 580 on have.
CUDA_OF_SGLANG = (13, 0)
_HOT_C = 85.0

_Values = Sequence[Mapping[str, float]]  # by metric, of each GPU


def gpu_findings(gpus: LocalGpus) -> Iterator[Finding]:
    """One line for what all have in common, and one for each that differs."""
    for failure in gpus.failures:
        yield Finding("error", "GPUs", failure, "see nvidia-smi or amd-smi: the driver may need a restart")
    if not len(gpus):
        if not gpus.failures:
            yield ok("GPUs", "none seen here (servers may be elsewhere; nvidia-ml-py or amdsmi shows them)")
        return
    values = gpus.values()
    ranges = (
        _range(values, "DCGM_FI_DEV_SM_CLOCK", "MHz"),
        _range(values, "DCGM_FI_DEV_GPU_TEMP", "degrees C"),
        _range(values, "DCGM_FI_DEV_POWER_USAGE", "W"),
    )
    yield ok("GPUs", ", ".join(filter(None, [f"{len(gpus)} seen", *ranges])))
    yield from _slowed(values)
    yield from _in_use(values)
    for facts in gpus.facts():
        yield from _driver(facts)
        yield from _memory_errors(facts)


def _slowed(values: _Values) -> Iterator[Finding]:
    slow = [number for number, of in enumerate(values) if of.get("gpu_slowed")]
    hot = [number for number, of in enumerate(values) if of.get("DCGM_FI_DEV_GPU_TEMP", 0) >= _HOT_C]
    if slow:
        text = f"GPU {_listed(slow)}: slowed by heat or by the power supply without a run"
        yield Finding("error", "GPU clocks", text, "look at cooling and power, nvidia-smi -q -d PERFORMANCE")
    elif hot:
        yield Finding(
            "warning", "GPU clocks", f"GPU {_listed(hot)}: {_HOT_C:g} degrees C and more", "look at cooling"
        )


def _in_use(values: _Values) -> Iterator[Finding]:
    busy = [number for number, of in enumerate(values) if of.get("DCGM_FI_DEV_GPU_UTIL", 0) >= 10]
    if busy:
        yield Finding(
            "warning", "GPU load", f"GPU {_listed(busy)}: at work now", "end other programs before a run"
        )


def _driver(facts: Mapping[str, Any]) -> Iterator[Finding]:
    driver, cuda = facts.get("driver"), facts.get("cuda")
    if not driver:
        return
    image = f"lmsysorg/sglang:v{(ROOT / 'sglang/VERSION').read_text(encoding='utf-8').strip()}"
    if cuda is None:
        yield ok("GPU driver", str(driver))
    elif cuda >= CUDA_OF_SGLANG:
        yield ok("GPU driver", f"{driver}, up to CUDA {_dotted(cuda)}: enough for {image}")
    else:
        text = f"{driver} runs up to CUDA {_dotted(cuda)}, {image} has {_dotted(CUDA_OF_SGLANG)}"
        yield Finding("error", "GPU driver", text, "install driver 580 or later, or an image of this CUDA")


def _memory_errors(facts: Mapping[str, Any]) -> Iterator[Finding]:
    wrong = {number: count for number, count in facts.get("ecc_uncorrected", {}).items() if count}
    if wrong:
        text = ", ".join(f"GPU {number}: {count}" for number, count in wrong.items())
        yield Finding(
            "error",
            "GPU memory",
            f"uncorrected ECC errors since the driver's start: {text}",
            "reset or replace it",
        )
    off = [number for number, has_ecc in facts.get("ecc", {}).items() if not has_ecc]
    if off:
        text = f"GPU {_listed(off)}: ECC is off, and the rules want it on in every datacenter run"
        yield Finding("warning", "GPU memory", text, "nvidia-smi -e 1, then restart the node")
    if wrong or off:
        return
    if facts.get("ecc_uncorrected"):
        yield ok("GPU memory", "no uncorrected ECC error")
    elif facts.get("driver"):
        yield ok("GPU memory", "ECC is off, or not reported")


def _range(values: _Values, name: str, unit: str) -> str:
    """``1410 to 1980 MHz``; "" where none is reported."""
    numbers = [of[name] for of in values if name in of]
    if not numbers:
        return ""
    least, most = min(numbers), max(numbers)
    return f"{least:.0f} {unit}" if least == most else f"{least:.0f} to {most:.0f} {unit}"


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
