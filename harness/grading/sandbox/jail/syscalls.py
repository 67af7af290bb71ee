"""Numbers of system calls on the architectures whose programs can be filtered.

x86_64: Linux arch/x86/entry/syscalls/syscall_64.tbl. aarch64: include/uapi/asm-generic/unistd.h, without the
calls that have a newer form.
"""

from typing import NamedTuple


class Architecture(NamedTuple):
    """The numbers of system calls on one architecture."""

    audit: int
    """AUDIT_ARCH_*"""
    above: int
    """The first number of another calling convention; 0: there is none."""
    denied: dict[str, int]
    """Calls that are refused, by name."""
    checked: dict[str, int]
    """Calls whose arguments are checked, by name."""


# Model-written code never needs these: (x86_64, aarch64), None where an architecture has no such call.
_DENIED: dict[str, tuple[int, int | None]] = {
    "socket": (41, 198), "fork": (57, None), "vfork": (58, None), "execve": (59, 221),
    "execveat": (322, 281),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272),
    "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41),
    "personality": (135, 92),
    "mount": (165, 40), "umount2": (166, 39), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "truncate": (76, 45),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280), "perf_event_open": (298, 241), "fanotify_init": (300, 262),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "init_module": (175, 105), "delete_module": (176, 106), "finit_module": (313, 273),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "iopl": (172, None), "ioperm": (173, None),
}  # fmt: skip
_CHECKED: dict[str, tuple[int, int | None]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prctl": (157, 167),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
}


def _of(index: int, table: dict[str, tuple[int, int | None]]) -> dict[str, int]:
    return {name: number for name, numbers in table.items() if (number := numbers[index]) is not None}


# By the name that uname gives the machine. 0x40000000: the x32 convention.
ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, 0x40000000, _of(0, _DENIED), _of(0, _CHECKED)),
    "aarch64": Architecture(0xC00000B7, 0, _of(1, _DENIED), _of(1, _CHECKED)),
}
