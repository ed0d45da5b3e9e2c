"""Linux system calls of the sandbox: namespaces, mounts, capabilities, seccomp, the loopback device.

Standard library only, Python 3.9. Sources: the manual pages unshare(2), mount(2), pivot_root(2),
capabilities(7), seccomp(2), netdevice(7) and user_namespaces(7).
"""

import ctypes
import fcntl
import os
import platform
import socket
import struct

FAILED = 78
"""Exit status of a sandbox that could not be made."""

NEW_MOUNTS, NEW_HOST_NAME, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
NEW_CGROUP = 0x02000000
ALL_NAMESPACES = (
    NEW_MOUNTS | NEW_HOST_NAME | NEW_IPC | NEW_USER | NEW_PIDS | NEW_NETWORK | NEW_CGROUP
)
"""Flags of unshare(2)."""

READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC = 1, 2, 4, 8
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18
SET_ATTRIBUTES, CURRENT_FOLDER, RECURSE = 442, -100, 0x8000
DETACH = 2
SET_DEATH_SIGNAL, SET_SUBREAPER, DROP_BOUNDING, SET_NO_NEW_PRIVILEGES, SET_SECCOMP = (
    1,
    36,
    24,
    38,
    22,
)
JOIN_SESSION_KEYRING = 1
CAPABILITIES = 64
CAPABILITY_VERSION = 0x20080522
FILTER = 2
FLAGS_REQUEST, UP_AND_RUNNING = 0x8914, 0x41

NUMBERS = {
    "x86_64": {"audit": 0xC000003E, "clone": 56, "clone3": 435, "pivot_root": 155, "keyctl": 250},
    "aarch64": {"audit": 0xC00000B7, "clone": 220, "clone3": 435, "pivot_root": 41, "keyctl": 219},
}
"""Numbers of system calls by machine, and its number in seccomp's data."""
REFUSED = {
    "x86_64": (
        *(165, 166, 155, 308, 272, 321, 248, 249, 250, 298, 323, 246, 175, 313, 176, 161, 163),
        *(167, 168, 169, 425, 426, 427, 428, 429, 430, 431, 432, 433, 442),
    ),
    "aarch64": (
        *(40, 39, 41, 268, 97, 280, 217, 218, 219, 241, 282, 104, 105, 273, 106, 51, 89),
        *(224, 225, 142, 425, 426, 427, 428, 429, 430, 431, 432, 433, 442),
    ),
}
"""System calls that no agent needs: mount, umount2, pivot_root, setns, unshare, bpf, add_key,
request_key, keyctl, perf_event_open, userfaultfd, kexec_load, init_module, finit_module,
delete_module, chroot, acct, swapon, swapoff, reboot, io_uring, and the new interface for mounts."""

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """Call a function of libc. Raises OSError with its name."""
    result = getattr(libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (name, os.strerror(number)))
    return result


def unshare(flags):
    call("unshare", ctypes.c_int(flags))


def mount(source, target, kind="", flags=0, options=""):
    def text(value):
        return value.encode() if value else None

    call("mount", text(source), text(target), text(kind), ctypes.c_ulong(flags), text(options))


def bind(source, target, read_only=True, devices=False):
    """Show `source` (a folder or file) at `target`, with what is mounted below it."""
    mount(source, target, "", BIND | RECURSIVE)
    protect(target, read_only, devices)


def protect(target, read_only=True, devices=False, below=True):
    """Take rights from the mount `target` (and with `below` from those below it): to write,
    set-user-ID programs, and device files unless `devices`. Raises OSError before Linux 5.12."""
    flags = NO_SUID | (0 if devices else NO_DEVICES) | (READ_ONLY if read_only else 0)
    attributes = struct.pack("4Q", flags, 0, 0, 0)  # the flags have the values of MOUNT_ATTR_*
    call(
        "syscall", ctypes.c_long(SET_ATTRIBUTES), ctypes.c_int(CURRENT_FOLDER), target.encode(),
        ctypes.c_uint(RECURSE if below else 0), attributes, ctypes.c_size_t(len(attributes)),
    )  # fmt: skip


def change_root(root):
    """Make the folder `root` (a mount) the root of this process and of its children."""
    os.chdir(root)
    call("syscall", ctypes.c_long(number("pivot_root")), b".", b".")
    call("umount2", b".", ctypes.c_int(DETACH))
    os.chdir("/")


def number(name):
    """Number of a system call on this machine. Raises OSError for another kind of machine."""
    machine = platform.machine()
    if machine not in NUMBERS:
        raise OSError(38, "the sandbox does not know %s machines" % machine)
    return NUMBERS[machine][name]


def control(option, value=0):
    call("prctl", ctypes.c_int(option), ctypes.c_ulong(value), 0, 0, 0)


def map_user(pid, uid, gid):
    """Give the user namespace of process `pid` this one user and group."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", "%d %d 1" % (uid, uid)),
        ("gid_map", "%d %d 1" % (gid, gid)),
    ):
        with open("/proc/%s/%s" % (pid, name), "w") as file:
            file.write(text)


def drop_privileges():
    """Give up all capabilities for good, new privileges by programs, and the session's keys."""
    libc.syscall(ctypes.c_long(number("keyctl")), ctypes.c_int(JOIN_SESSION_KEYRING), None)
    for capability in range(CAPABILITIES):
        if libc.prctl(DROP_BOUNDING, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # the kernel knows no more
    control(SET_NO_NEW_PRIVILEGES, 1)
    header = struct.pack("Ii", CAPABILITY_VERSION, 0)
    call("capset", header, struct.pack("6I", *[0] * 6))


def refuse_system_calls():
    """Answer the calls in `REFUSED`, and clones into new namespaces, with an error."""
    machine = platform.machine()
    refused, (clone, clone3) = REFUSED[machine], (number("clone"), number("clone3"))
    load, equal, any_bit, answer = 0x20, 0x15, 0x45, 0x06
    allow, no_permission, unknown = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38
    program = [
        (load, 0, 0, 4),  # architecture
        (equal, 1, 0, NUMBERS[machine]["audit"]),
        (answer, 0, 0, no_permission),
        (load, 0, 0, 0),  # number of the call
    ]
    if machine == "x86_64":
        program += [(0x35, 0, 1, 0x40000000), (answer, 0, 0, no_permission)]  # x32
    for one in refused:
        program += [(equal, 0, 1, one), (answer, 0, 0, no_permission)]
    program += [(equal, 0, 1, clone3), (answer, 0, 0, unknown)]  # libc then calls clone
    namespaces = ALL_NAMESPACES | 0x80
    program += [
        (equal, 0, 3, clone),
        (load, 0, 0, 16),  # its flags, low half
        (any_bit, 0, 1, namespaces),
        (answer, 0, 0, no_permission),
        (answer, 0, 0, allow),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code)
    filter_program = struct.pack("HP", len(program), ctypes.addressof(buffer))
    call("prctl", SET_SECCOMP, ctypes.c_ulong(FILTER), filter_program, 0, 0)


def raise_loopback():
    """Switch on the loopback device of this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", UP_AND_RUNNING)
        fcntl.ioctl(any_socket, FLAGS_REQUEST, request)
