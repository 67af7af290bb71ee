"""GPUs of this machine, from nvidia-ml-py and amdsmi, as a page of metrics with the DCGM exporter's names."""

import importlib
import io
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from typing import Any, Protocol

_POWER, _ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # W, mJ
_CLOCK, _TEMPERATURE = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP"  # MHz, degrees C
_USE, _MEMORY = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"  # %, MiB
_SLOWED, _POWER_LIMITED = "gpu_slowed", "gpu_power_limited"

# nvml.h, nvmlClocksEventReasons: heat, a failing power supply and the board's own slowdown; the power limit.
_NVML_SLOWED, _NVML_POWER_LIMIT = 0x8 | 0x20 | 0x40 | 0x80, 0x4

# amdsmi.h, amdsmi_gpu_metrics_t of MI300 and later: samples of the firmware, and those in which it throttled.
_AMD_SAMPLES = "accumulation_counter"
_AMD_SLOWED = tuple(f"{part}_residency_acc" for part in ("prochot", "socket_thm", "vr_thm", "hbm_thm"))
_AMD_POWER_LIMIT = ("ppt_residency_acc",)
_AMD_UNSUPPORTED = (0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)  # later versions report "N/A"

_START_S = 20.0

_Questions = Mapping[str, Callable[[], float | None]]
_Asked = Mapping[Any, Callable[[], Any]]


class _Library(Protocol):
    """A vendor's library; it raises ``errors`` for values that a GPU does not have."""

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    @property
    def handles(self) -> Sequence[Any]: ...

    def questions(self, number: int) -> _Questions:
        """A question for each metric of the GPU; its answer is None where there is no value now."""

    def facts(self) -> dict[str, Any]:
        """As LocalGpus.facts."""


class LocalGpus:
    """The GPUs that the installed libraries list; ``failures`` say which libraries do not start, and why."""

    def __init__(self) -> None:
        self._libraries: list[_Library] = []
        failures = []
        for library in (_Nvml, _AmdSmi):
            try:
                self._libraries.append(library())
            except ModuleNotFoundError:
                continue
            except OSError as error:
                failures.append(str(error))
        self.failures = tuple(failures)

    def __len__(self) -> int:
        return sum(len(library.handles) for library in self._libraries)

    def facts(self) -> list[dict[str, Any]]:
        """Of each library with GPUs: ``driver``, ``cuda`` (the newest that it runs), ``ecc`` and its errors.

        ``ecc``: by GPU, whether its memory has ECC now; ``ecc_uncorrected``: the number of errors. A fact
        that a library does not have is left out.
        """
        return [library.facts() for library in self._libraries if library.handles]

    def values(self) -> list[dict[str, float]]:
        """The present values of each GPU by metric; what it does not report is left out."""
        gpus = ((library, number) for library in self._libraries for number in range(len(library.handles)))
        found = (_answered(library.errors, library.questions(number)) for library, number in gpus)
        return [{name: value for name, value in of.items() if value is not None} for of in found]

    def page(self) -> bytes:
        """The same as a page of metrics."""
        lines = (
            f'{name}{{gpu="{place}"}} {value}'
            for place, values in enumerate(self.values())
            for name, value in values.items()
        )
        return "\n".join(lines).encode() + b"\n"


class _Nvml:
    """NVIDIA GPUs. Raises ModuleNotFoundError without nvidia-ml-py, OSError where NVML does not start."""

    def __init__(self) -> None:
        self._nvml = _imported("pynvml", lambda: importlib.import_module("pynvml"))
        self.errors = (self._nvml.NVMLError,)
        self.handles = _started("NVML", self._start, self.errors)

    def _start(self) -> list[Any]:
        self._nvml.nvmlInit()
        count = self._nvml.nvmlDeviceGetCount()
        return [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]

    def questions(self, number: int) -> _Questions:
        """Questions about the GPU; 1 while NVML names a reason for a lower clock, else 0."""
        nvml, handle = self._nvml, self.handles[number]
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)  # since 12.535; before:
        reasons = reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return {
            _POWER: lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            _ENERGY: lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
            _CLOCK: lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            _TEMPERATURE: lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            _USE: lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            _MEMORY: lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / (1 << 20),
            _SLOWED: lambda: float(bool(reasons(handle) & _NVML_SLOWED)),
            _POWER_LIMITED: lambda: float(bool(reasons(handle) & _NVML_POWER_LIMIT)),
        }

    def facts(self) -> dict[str, Any]:
        """Of the driver, and of the GPUs' memory."""
        nvml = self._nvml
        asked: _Asked = {
            "driver": lambda: _as_text(nvml.nvmlSystemGetDriverVersion()),
            "cuda": lambda: divmod(int(nvml.nvmlSystemGetCudaDriverVersion()) // 10, 100),  # 13000 is 13.0
        }
        return _facts(self, asked, ecc=self._has_ecc, ecc_uncorrected=self._uncorrected)

    def _has_ecc(self, handle: Any) -> bool:
        """Not after the next restart, which may be otherwise. GPUs that never have ECC do not answer."""
        now, _ = self._nvml.nvmlDeviceGetEccMode(handle)
        return bool(now == self._nvml.NVML_FEATURE_ENABLED)

    def _uncorrected(self, handle: Any) -> int:
        nvml = self._nvml
        return int(
            nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )


class _AmdSmi:
    """AMD GPUs. Raises ModuleNotFoundError without amdsmi, OSError where it does not start."""

    def __init__(self) -> None:
        self._smi = _imported("amdsmi", lambda: importlib.import_module("amdsmi"))
        # Versions differ in functions, and in whether they return dictionaries.
        self.errors = (self._smi.AmdSmiException, AttributeError)
        self.handles = _started("amdsmi", self._start, self.errors)
        self._counters: dict[tuple[int, tuple[str, ...]], list[float | None]] = {}

    def _start(self) -> list[Any]:
        self._smi.amdsmi_init()
        return list(self._smi.amdsmi_get_processor_handles())

    def questions(self, number: int) -> _Questions:
        """Questions about the GPU; throttling is a part of the time since the previous page."""
        smi, handle = self._smi, self.handles[number]
        return {
            # MI300 and later report the current power, earlier GPUs an average.
            _POWER: lambda: _first(
                smi.amdsmi_get_power_info(handle), "current_socket_power", "average_socket_power"
            ),
            _ENERGY: lambda: _millijoules(smi.amdsmi_get_energy_count(handle)),
            _CLOCK: lambda: _first(
                smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX),
                "clk",
                "cur_clk",  # until ROCm 6.1
            ),
            # MI300 reports no edge temperature, but that of the hot spot.
            _TEMPERATURE: lambda: smi.amdsmi_get_temp_metric(
                handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            ),
            _USE: lambda: _first(smi.amdsmi_get_gpu_activity(handle), "gfx_activity"),
            _MEMORY: lambda: _first(smi.amdsmi_get_gpu_vram_usage(handle), "vram_used"),
            _SLOWED: lambda: self._part_of_time(number, _AMD_SLOWED),
            _POWER_LIMITED: lambda: self._part_of_time(number, _AMD_POWER_LIMIT),
        }

    def facts(self) -> dict[str, Any]:
        """Of the driver, and of the GPUs' memory."""
        smi, first = self._smi, self.handles[0]
        asked: _Asked = {"driver": lambda: smi.amdsmi_get_gpu_driver_info(first)["driver_version"]}
        return _facts(self, asked, ecc_uncorrected=self._uncorrected)

    def _uncorrected(self, handle: Any) -> int:
        return int(self._smi.amdsmi_get_gpu_total_ecc_count(handle)["uncorrectable_count"])

    def _part_of_time(self, number: int, reasons: tuple[str, ...]) -> float | None:
        """The part of the time that the GPU throttled for the reason that lasted longest.

        amdsmi_get_violation_status is not used: it waits 0.1 s for each GPU.
        """
        answer = self._smi.amdsmi_get_gpu_metrics_info(self.handles[number])
        now = [_first(answer, name) for name in (_AMD_SAMPLES, *reasons)]
        before = self._counters.get((number, reasons), [None] * len(now))
        self._counters[number, reasons] = now
        samples, *held = (
            None if new is None or old is None else new - old for new, old in zip(now, before, strict=True)
        )
        if not samples:
            return None
        parts = (part / samples for part in held if part is not None and 0 <= part <= samples)
        return max(parts, default=None)


def _facts(library: _Library, asked: _Asked, **of_gpus: Callable[[Any], Any]) -> dict[str, Any]:
    """Those that it has an answer to, and ``of_gpus`` by the GPUs that have one."""
    found = _answered(library.errors, asked)
    for name, ask in of_gpus.items():
        each = {number: partial(ask, handle) for number, handle in enumerate(library.handles)}
        found[name] = _answered(library.errors, each)
    return found


def _answered(errors: tuple[type[Exception], ...], asked: _Asked) -> dict[Any, Any]:
    found = {}
    for name, ask in asked.items():
        with suppress(*errors, LookupError, TypeError, ValueError):  # such as "N/A"
            found[name] = ask()
    return found


def _as_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _first(answer: Mapping[str, Any], *names: str) -> float | None:
    """The first of the fields with a number."""
    for name in names:
        value = answer.get(name)
        if isinstance(value, int | float) and value not in _AMD_UNSUPPORTED:
            return value
    return None


def _millijoules(answer: Mapping[str, Any]) -> float | None:
    """Energy in mJ, from a counter and its resolution in uJ."""
    count = _first(answer, "energy_accumulator", "power")  # the second until ROCm 6.1
    resolution = _first(answer, "counter_resolution")
    return None if count is None or resolution is None else count * resolution / 1000


def _imported(name: str, load: Callable[[], Any]) -> Any:
    """The module. Raises ModuleNotFoundError without it, OSError where its library does not load."""
    try:
        with redirect_stdout(io.StringIO()):  # amdsmi prints there that it found no library
            return load()
    except (ImportError, OSError, KeyError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise
        raise OSError(f"{name} does not load: {type(error).__name__}: {error}") from None


def _started(
    name: str, start: Callable[[], Sequence[Any]], errors: tuple[type[Exception], ...]
) -> Sequence[Any]:
    """The handles that ``start`` returns. Raises OSError for an error, and for a driver that hangs."""
    outcome: queue.SimpleQueue[Sequence[Any] | OSError] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put(start())
        except errors as error:
            outcome.put(OSError(f"{name}: {' '.join(str(error).split())}"))

    # amdsmi_init has no time limit and can hang (ROCm/rocm-systems, pull request 6462).
    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        found = outcome.get(timeout=_START_S)
    except queue.Empty:
        raise OSError(f"{name} did not start within {_START_S:g} s") from None
    if isinstance(found, OSError):
        raise found
    return found
