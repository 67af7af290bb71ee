"""Accelerators as nvidia-smi and rocm-smi tell of them."""

import csv
import json
from collections.abc import Callable
from typing import Any

Ask = Callable[..., str]

_NVIDIA = (
    "name",
    "memory.total",
    "clocks.max.sm",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "driver_version",
)


def accelerator_fields(ask: Ask) -> dict[str, str]:
    """Fields of the description; empty where there is neither program nor accelerator."""
    return nvidia_fields(ask) or rocm_fields(ask)


def nvidia_fields(ask: Ask) -> dict[str, str]:
    """From ``nvidia-smi``: all cards are described by the first, which must be alike."""
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


def rocm_fields(ask: Ask) -> dict[str, str]:
    """From ``rocm-smi --json``: its keys are "card0", "card1", ...; names of rows differ between releases."""
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
        "accelerator_memory_capacity": f"{int(size) / (1 << 30):.0f} GiB" if size.isdigit() else "",
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
