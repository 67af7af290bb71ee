"""The seccomp filters of both architectures: numbers of the kernel's headers, and what they decide."""

import errno
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from harness.grading.sandbox import tiers
from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.jail.seccomp import program
from harness.grading.sandbox.jail.syscalls import ARCHITECTURES
from harness.grading.sandbox.sandbox_process import SandboxLostError
from harness.grading.sandbox.tier_probe import choose_sandbox
from harness.grading.sandbox.tiers import Tier
from tests.harness.grading.sandbox.tiers import attempt, process_in

# The tables of the Linux headers; aarch64 has the generic one and asks for memfd_secret besides.
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "<asm/unistd_64.h>"),
    "aarch64": ("/usr/include/asm-generic/unistd.h", "<asm-generic/unistd.h>"),
}
SINCE_LINUX_6 = {"fchmodat2", "setxattrat", "removexattrat"}  # newer than the headers of some machines
ALLOW, KILL, REFUSED = 0x7FFF0000, 0x80000000, 0x00050000
PID = 4242
THREAD, FORK = 0x00010000 | 0x100, 17  # CLONE_THREAD | CLONE_VM; SIGCHLD


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_the_kernels(machine):
    path, include = HEADERS[machine]
    if not Path(path).exists() or not shutil.which("gcc"):
        pytest.skip(f"no {path}, or no compiler to read it")
    defines = ["-D__BITS_PER_LONG=64", "-D__ARCH_WANT_MEMFD_SECRET", "-D__ARCH_WANT_SYS_CLONE3"]
    macros = subprocess.run(
        ["gcc", "-E", "-dM", *defines, "-x", "c", "-"],
        input=f"#include {include}\n",
        text=True,
        capture_output=True,
    ).stdout
    raw = dict(re.findall(r"#define (__NR\w*) (\w+)", macros))

    def number(name):
        value = raw.get(f"__NR_{name}")
        while value is not None and not value.isdigit():
            value = raw.get(value)
        return None if value is None else int(value)

    architecture = ARCHITECTURES[machine]
    for name, ours in {**architecture.denied, **architecture.checked}.items():
        theirs = number(name)
        assert theirs == ours or (theirs is None and name in SINCE_LINUX_6), name
    # What a table leaves out, the architecture does not have.
    every = {name for one in ARCHITECTURES.values() for name in (*one.denied, *one.checked)}
    absent = every - architecture.denied.keys() - architecture.checked.keys()
    assert {name for name in absent if number(name) is not None} == set()


def decide(code, audit, number, *arguments):
    """What the kernel does with a filter's program (classic BPF, of which five operations are used)."""
    data = struct.pack("<IIQ6Q", number, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    steps, at, value = list(struct.iter_unpack("<HBBI", code)), 0, 0
    while True:
        operation, if_true, if_false, operand = steps[at]
        at += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif operation == 0x54:
            value &= operand
        elif operation == 0x06:
            return operand
        else:
            met = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[operation]
            at += if_true if met else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_decisions(machine):
    architecture = ARCHITECTURES[machine]
    code, checked = program(architecture, PID), architecture.checked

    def of(name, *arguments):
        return decide(code, architecture.audit, checked[name], *arguments)

    refused = REFUSED | errno.EPERM
    assert {decide(code, architecture.audit, number) for number in architecture.denied.values()} == {refused}
    assert {of("clone3"), of("openat2")} == {REFUSED | errno.ENOSYS}
    assert (of("clone", THREAD), of("clone", FORK)) == (ALLOW, refused)
    assert [of(name, pid) for name in ("kill", "tgkill") for pid in (PID, 1)] == [ALLOW, refused] * 2
    assert (of("prctl", 1), of("prctl", 15)) == (refused, ALLOW)
    flags = (os.O_RDONLY, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC)
    assert [of("openat", 3, 0, flag) for flag in flags] == [ALLOW, refused, ALLOW]
    if "open" in checked:
        assert [of("open", 0, flag) for flag in flags] == [ALLOW, refused, ALLOW]
    others = set(range(470)) - {*architecture.denied.values(), *checked.values()}
    assert {decide(code, architecture.audit, number) for number in others} == {ALLOW}
    if architecture.above:
        assert decide(code, architecture.audit, architecture.above) == refused
    foreign = {one.audit for one in ARCHITECTURES.values()} - {architecture.audit} | {0x40000003, 0x40000028}
    assert {decide(code, audit, 0) for audit in foreign} == {KILL}


def test_this_machines_processor_decides_which_tiers_are_tried(monkeypatch):
    found = {}
    for machine in ("x86_64", "aarch64", "riscv64"):
        monkeypatch.setattr(tiers.platform, "machine", lambda name=machine: name)
        found[machine] = tiers.candidates()
    both = (Tier.BUBBLEWRAP, Tier.LANDLOCK)
    assert found == {"x86_64": both, "aarch64": both, "riscv64": (Tier.NAMESPACES,)}


SURVIVOR = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('left')"
COUNT = "import os\nprint(sum(name.isdigit() for name in os.listdir('/proc')))"


@pytest.mark.engine
def test_without_a_filter_no_process_outlives_its_program(monkeypatch):
    monkeypatch.setattr(tiers.platform, "machine", lambda: "riscv64")
    with process_in(Tier.NAMESPACES) as process:
        assert choose_sandbox(allow_unsandboxed=False).tier is Tier.NAMESPACES
        assert attempt(process, COUNT).output == b"3\n"  # the warden, its fork server, the program
        assert attempt(process, SURVIVOR).output == b"left\n"
        with pytest.raises(SandboxLostError):
            process.attempt(protocol.TestRun(5.0, ""))
        assert attempt(process, COUNT).output == b"3\n"
