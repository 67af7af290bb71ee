"""System description fields measured on this machine. Unknown fields are omitted, never guessed."""

import csv
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.machine import memory_bytes, text_of
from harness.record.provenance import cpu_model

CommandOutput = Callable[..., str]
"""The output of a program, given its words; empty if it is missing or fails."""

_GIB = 1 << 30
_TIMEOUT_S = 20
_NVIDIA = (
    "name",
    "memory.total",
    "clocks.max.sm",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "driver_version",
)


def command_output(*command: str) -> str:
    """The output of a program in English; empty if it is missing, fails or does not end."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def machine_fields(root: Path = Path("/"), ask: CommandOutput = command_output) -> dict[str, str]:
    """Fields of systems/<system>.json for this machine; ``root`` holds /etc, /proc and /sys."""
    memory = memory_bytes(text_of(root / "proc/meminfo"))
    release = re.search(r'^PRETTY_NAME="?(.*?)"?$', text_of(root / "etc/os-release"), re.MULTILINE)
    fields = {
        # Where lscpu is missing.
        "host_processor_model_name": cpu_model(text_of(root / "proc/cpuinfo")) or "",
        **processor_fields(ask("lscpu")),
        "host_memory_capacity": "" if memory is None else f"{memory / _GIB:.0f} GiB",
        **storage_fields(ask("lsblk", "-b", "-d", "-n", "-P", "-o", "NAME,SIZE,ROTA,TYPE,TRAN")),
        **network_fields(root / "sys/class"),
        **accelerator_fields(ask),
        "operating_system": release[1] if release else "",
    }
    return {name: value for name, value in fields.items() if value}


def processor_fields(lscpu: str) -> dict[str, str]:
    """From ``lscpu``. The core count is that of one processor, as in the published descriptions."""
    pairs = (line.partition(":") for line in lscpu.splitlines())
    rows = {name.strip(): value.strip() for name, _, value in pairs}
    caches = [(name, rows.get(f"{name} cache")) for name in ("L1d", "L1i", "L2", "L3")]
    most = rows.get("CPU max MHz")
    fields = {
        "host_processor_model_name": rows.get("Model name", ""),
        "host_processors_per_node": rows.get("Socket(s)", ""),
        "host_processor_core_count": rows.get("Core(s) per socket", ""),
        "host_processor_frequency": f"{float(most) / 1000:.2f} GHz max" if most else "",
        "host_processor_caches": ", ".join(f"{name}: {size}" for name, size in caches if size is not None),
    }
    return {name: value for name, value in fields.items() if value}


def storage_fields(lsblk: str) -> dict[str, str]:
    """From ``lsblk -P``: total size and kinds of the disks, partitions excluded."""
    disks = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in lsblk.splitlines()]
    disks = [disk for disk in disks if disk.get("TYPE") == "disk" and int(disk.get("SIZE") or 0)]
    if not disks:
        return {}
    return {
        "host_storage_capacity": f"{sum(int(disk['SIZE']) for disk in disks) / 1e12:.2f} TB",
        "host_storage_type": ", ".join(sorted(set(map(_disk_kind, disks)))),
    }


def _disk_kind(disk: Mapping[str, str]) -> str:
    if disk.get("TRAN") == "nvme" or disk.get("NAME", "").startswith("nvme"):
        return "NVMe SSD"
    return "HDD" if disk.get("ROTA") == "1" else "SSD"


def network_fields(classes: Path) -> dict[str, str]:
    """Network cards from /sys/class: InfiniBand devices if there are any, otherwise Ethernet devices."""
    infiniband = _infiniband(classes / "infiniband")
    cards = Counter(infiniband or _ethernet(classes / "net"))
    if not cards:
        return {}
    counts = ", ".join(f"{count}x {name}" for name, count in sorted(cards.items()))
    kind = "InfiniBand/RoCE" if infiniband else "Ethernet"
    return {"host_networking": kind, "host_network_card_count": counts}


def _infiniband(folder: Path) -> list[str]:
    rates = [text_of(card / "ports/1/rate") for card in sorted(folder.glob("*"))]
    return [rate for rate in rates if rate]


def _ethernet(folder: Path) -> list[str]:
    speeds = [text_of(card / "speed") for card in sorted(folder.glob("*")) if (card / "device").exists()]
    return [f"{int(speed) / 1000:g} GbE" for speed in speeds if speed.isdigit() and int(speed)]


def accelerator_fields(ask: CommandOutput) -> dict[str, str]:
    """Accelerator fields; empty without an accelerator or its program."""
    return _nvidia_fields(ask) or _rocm_fields(ask)


def _nvidia_fields(ask: CommandOutput) -> dict[str, str]:
    """From ``nvidia-smi``. The first card stands for all of them."""
    listing = ask("nvidia-smi", f"--query-gpu={','.join(_NVIDIA)}", "--format=csv,noheader,nounits")
    cards = [[cell.strip() for cell in row] for row in csv.reader(listing.splitlines())]
    cards = [card for card in cards if len(card) == len(_NVIDIA)]
    if not cards:
        return {}
    memory, clock, generation, width, driver = cards[0][1:]
    linked = "Link 0:" in ask("nvidia-smi", "nvlink", "--status")
    return {
        "accelerators_per_node": str(len(cards)),
        "accelerator_model_name": " / ".join(sorted({card[0] for card in cards})),
        "accelerator_memory_capacity": f"{int(memory) / 1024:.0f} GiB" if memory.isdigit() else "",
        "accelerator_frequency": f"{clock} MHz max" if clock.isdigit() else "",
        "accelerator_host_interconnect": f"PCIe Gen{generation} x{width}" if generation.isdigit() else "",
        "accelerator_interconnect": "NVLink" if linked else "",
        "other_software_stack": f"NVIDIA driver {driver}",
    }


def _rocm_fields(ask: CommandOutput) -> dict[str, str]:
    """From ``rocm-smi --json``, whose keys are "card0", "card1", ...; row names differ between releases."""
    names = _cards(ask("rocm-smi", "--showproductname", "--json"))
    if not names:
        return {}
    memory = _cards(ask("rocm-smi", "--showmeminfo", "vram", "--json"))
    models = {_row(card, "card series", "card model") for card in names.values()} - {""}
    size = next((_row(card, "vram total memory (b)") for card in memory.values()), "")
    driver = _json(ask("rocm-smi", "--showdriverversion", "--json")).get("system", {})
    version = _row(driver, "driver version")
    return {
        "accelerators_per_node": str(len(names)),
        "accelerator_model_name": " / ".join(sorted(models)),
        "accelerator_memory_capacity": f"{int(size) / _GIB:.0f} GiB" if size.isdigit() else "",
        "other_software_stack": f"amdgpu driver {version}" if version else "",
    }


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _cards(text: str) -> dict[str, dict[str, Any]]:
    return {name: rows for name, rows in _json(text).items() if name.startswith("card")}


def _row(rows: dict[str, Any], *names: str) -> str:
    lower = {str(name).lower(): str(value) for name, value in rows.items()}
    return next((lower[name] for name in names if name in lower), "")
