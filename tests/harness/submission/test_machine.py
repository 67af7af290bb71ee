"""Fields from the output of system programs. The texts follow the documented formats; they were not recorded,
for lack of such a machine."""

import json

import pytest

from harness.submission.building.machine import accelerator_fields, machine_fields, network_fields

LSCPU = """\
Architecture:                         x86_64
CPU(s):                               128
Model name:                           AMD EPYC 9575F 64-Core Processor
Thread(s) per core:                   1
Core(s) per socket:                   64
Socket(s):                            2
CPU max MHz:                          5008.0068
L1d cache:                            6 MiB (128 instances)
L3 cache:                             512 MiB (16 instances)
"""
LSBLK = """\
NAME="nvme0n1" SIZE="3840755982336" ROTA="0" TYPE="disk" TRAN="nvme"
NAME="nvme1n1" SIZE="3840755982336" ROTA="0" TYPE="disk" TRAN="nvme"
NAME="sda" SIZE="480103981056" ROTA="0" TYPE="disk" TRAN="sata"
NAME="loop0" SIZE="67108864" ROTA="0" TYPE="loop" TRAN=""
NAME="sdb" SIZE="0" ROTA="1" TYPE="disk" TRAN="usb"
"""
NVIDIA = "NVIDIA H200, 143771, 1980, 5, 16, 570.124.06\n" * 8
ROCM = {f"card{n}": {"Card Series": "AMD Instinct MI355X", "Card Model": "0x75a3"} for n in range(8)}
VRAM = {f"card{n}": {"VRAM Total Memory (B)": str(288 << 30)} for n in range(8)}


PORT, RATE = "infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)"
INFINIBAND = {"host_networking": "InfiniBand/RoCE", "host_network_card_count": f"1x {RATE}"}


def programs(**answers):
    """Stand-in for the programs of a machine, by a part of their command."""

    def ask(*command):
        return next((text for name, text in answers.items() if name in "_".join(command)), "")

    return ask


def write(folder, files):
    """Files by name; None makes a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if content is None else path.write_text(content + "\n")


def test_all_fields_of_a_machine(tmp_path):
    release = 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"'
    memory = "MemTotal:       2376448372 kB\nMemFree: 1 kB"
    write(tmp_path, {"etc/os-release": release, "proc/meminfo": memory, f"sys/class/{PORT}": RATE})
    listed = {"query-gpu": NVIDIA, "nvlink": "GPU 0: NVIDIA H200\n\t Link 0: 26.562 GB/s\n"}
    assert machine_fields(tmp_path, programs(lscpu=LSCPU, lsblk=LSBLK, **listed)) == {
        "host_processor_model_name": "AMD EPYC 9575F 64-Core Processor",
        "host_processors_per_node": "2",
        "host_processor_core_count": "64",
        "host_processor_frequency": "5.01 GHz max",
        "host_processor_caches": "L1d: 6 MiB (128 instances), L3: 512 MiB (16 instances)",
        "host_memory_capacity": "2266 GiB",
        "host_storage_capacity": "8.16 TB",
        "host_storage_type": "NVMe SSD, SSD",
        **INFINIBAND,
        "accelerators_per_node": "8",
        "accelerator_model_name": "NVIDIA H200",
        "accelerator_memory_capacity": "140 GiB",
        "accelerator_frequency": "1980 MHz max",
        "accelerator_host_interconnect": "PCIe Gen5 x16",
        "accelerator_interconnect": "NVLink",
        "other_software_stack": "NVIDIA driver 570.124.06",
        "operating_system": "Ubuntu 24.04.2 LTS",
    }


CARD = {"speed": "100000", "device": None}


@pytest.mark.parametrize(
    ("cards", "fields"),
    [
        ({}, {}),
        ({PORT: RATE, "net/eth0/speed": "10000"}, INFINIBAND),
        ({PORT: RATE, "infiniband/mlx5_1/ports/2/rate": RATE}, INFINIBAND),  # without a first port
        (
            {f"net/eth{n}/{name}": value for n in (0, 1) for name, value in CARD.items()},
            {"host_networking": "Ethernet", "host_network_card_count": "2x 100 GbE"},
        ),
        ({"net/lo/speed": "10000"}, {}),  # nothing behind it
        ({"net/eth0/speed": "-1", "net/eth0/device": None}, {}),  # no cable
    ],
)
def test_network_cards(tmp_path, cards, fields):
    write(tmp_path, cards)
    assert network_fields(tmp_path) == fields


def test_rocm():
    driver = json.dumps({"system": {"Driver version": "6.14.14"}})
    ask = programs(showproductname=json.dumps(ROCM), showmeminfo=json.dumps(VRAM), showdriverversion=driver)
    assert accelerator_fields(ask) == {
        "accelerators_per_node": "8",
        "accelerator_model_name": "AMD Instinct MI355X",
        "accelerator_memory_capacity": "288 GiB",
        "other_software_stack": "amdgpu driver 6.14.14",
    }


@pytest.mark.parametrize("answer", ["", "No devices were found\n", "{}", "[1]", "card0"])
def test_no_accelerator_is_no_field(answer):
    assert accelerator_fields(lambda *_: answer) == {}


def test_nothing_is_guessed(tmp_path):
    assert machine_fields(tmp_path, ask=lambda *_: "") == {}
