"""The fields of a system description that a machine can tell. What it cannot is left out, never guessed."""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.compliance.submission.accelerators import accelerator_fields

Ask = Callable[..., str]

_GIB = 1 << 30
_TIMEOUT_S = 20


def ask(*command: str) -> str:
    """A program's output in English; empty when it is not there, fails or does not end."""
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


def machine_fields(root: Path = Path("/"), ask: Ask = ask) -> dict[str, str]:
    """Fields of systems/<system>.json for this machine; ``root`` holds /etc, /proc and /sys."""
    fields = {
        **processor_fields(ask("lscpu")),
        **memory_fields(_text(root / "proc/meminfo")),
        **storage_fields(ask("lsblk", "-b", "-d", "-n", "-P", "-o", "NAME,SIZE,ROTA,TYPE,TRAN")),
        **network_fields(root / "sys/class"),
        **accelerator_fields(ask),
        "operating_system": operating_system(_text(root / "etc/os-release")),
    }
    return {name: value for name, value in fields.items() if value}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def operating_system(release: str) -> str:
    """PRETTY_NAME of os-release."""
    found = re.search(r'^PRETTY_NAME="?(.*?)"?$', release, re.MULTILINE)
    return found[1] if found else ""


def processor_fields(lscpu: str) -> dict[str, str]:
    """From ``lscpu``; the core count is that of one processor, as the published descriptions have it."""
    pairs = (line.partition(":") for line in lscpu.splitlines())
    rows = {name.strip(): value.strip() for name, _, value in pairs}
    fields = {
        "host_processor_model_name": rows.get("Model name", ""),
        "host_processors_per_node": rows.get("Socket(s)", ""),
        "host_processor_core_count": rows.get("Core(s) per socket", ""),
    }
    if most := rows.get("CPU max MHz"):
        fields["host_processor_frequency"] = f"{float(most) / 1000:.2f} GHz max"
    caches = [
        f"{name}: {rows[f'{name} cache']}" for name in ("L1d", "L1i", "L2", "L3") if f"{name} cache" in rows
    ]
    fields["host_processor_caches"] = ", ".join(caches)
    return fields


def memory_fields(meminfo: str) -> dict[str, str]:
    """MemTotal, which the kernel gives in KiB."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return {"host_memory_capacity": f"{int(found[1]) * 1024 / _GIB:.0f} GiB"} if found else {}


def storage_fields(lsblk: str) -> dict[str, str]:
    """From ``lsblk -P``: whole disks, summed, with their kinds."""
    disks = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in lsblk.splitlines()]
    disks = [disk for disk in disks if disk.get("TYPE") == "disk" and int(disk.get("SIZE") or 0)]
    if not disks:
        return {}
    kinds = Counter(_disk_kind(disk) for disk in disks)
    return {
        "host_storage_capacity": f"{sum(int(disk['SIZE']) for disk in disks) / 1e12:.2f} TB",
        "host_storage_type": ", ".join(sorted(kinds)),
    }


def _disk_kind(disk: Mapping[str, str]) -> str:
    if disk.get("TRAN") == "nvme" or disk.get("NAME", "").startswith("nvme"):
        return "NVMe SSD"
    return "HDD" if disk.get("ROTA") == "1" else "SSD"


def network_fields(classes: Path) -> dict[str, str]:
    """Cards of /sys/class: InfiniBand devices where there are any, else Ethernet with a device behind it."""
    cards = _infiniband(classes / "infiniband") or _ethernet(classes / "net")
    if not cards:
        return {}
    counts = ", ".join(f"{count}x {name}" for name, count in sorted(Counter(cards).items()))
    kind = "InfiniBand/RoCE" if (classes / "infiniband").is_dir() and "Gb/sec" in counts else "Ethernet"
    return {"host_networking": kind, "host_network_card_count": counts}


def _infiniband(folder: Path) -> list[str]:
    rates = [_text(card / "ports/1/rate") for card in sorted(folder.glob("*"))]
    return [rate for rate in rates if rate]


def _ethernet(folder: Path) -> list[str]:
    speeds = [_text(card / "speed") for card in sorted(folder.glob("*")) if (card / "device").exists()]
    return [f"{int(speed) / 1000:g} GbE" for speed in speeds if speed.isdigit() and int(speed)]
