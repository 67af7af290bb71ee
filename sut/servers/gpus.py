"""NVIDIA GPUs of this machine by nvidia-ml-py, as a page of metrics with the names of the DCGM exporter."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# nvml.h: nvmlClocksEventReasons. Heat, a failing power supply and the board's own slowdown; the power limit.
_SLOWED, _POWER_LIMIT = 0x8 | 0x20 | 0x40 | 0x80, 0x4
_ENERGY, _TEMPERATURE = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_TEMP"


class LocalGpus:
    """The GPUs that NVML lists. Raises OSError where there is no NVML, or no GPU."""

    def __init__(self) -> None:
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            raise OSError("nvidia-ml-py is not installed") from None
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        except self._nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from None
        if not self._handles:
            raise OSError("NVML lists no GPU")

    def __len__(self) -> int:
        return len(self._handles)

    def page(self) -> bytes:
        """What all GPUs report now; a value that one does not have is left out."""
        lines = (
            f'{name}{{gpu="{number}"}} {value}'
            for number, handle in enumerate(self._handles)
            for name, value in self._values(handle)
        )
        return "\n".join(lines).encode() + b"\n"

    def _values(self, handle: Any) -> Iterator[tuple[str, float]]:
        nvml = self._nvml
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)  # 12.535; its earlier name:
        reasons = reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        asked: Mapping[str, Callable[[], float]] = {
            "DCGM_FI_DEV_POWER_USAGE": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            _ENERGY: lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
            "DCGM_FI_DEV_SM_CLOCK": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            _TEMPERATURE: lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "DCGM_FI_DEV_GPU_UTIL": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "gpu_slowed": lambda: float(bool(reasons(handle) & _SLOWED)),
            "gpu_power_limited": lambda: float(bool(reasons(handle) & _POWER_LIMIT)),
        }
        for name, ask in asked.items():
            try:
                yield name, ask()
            except nvml.NVMLError:
                continue
