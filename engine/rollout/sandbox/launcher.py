"""Start a program in a sandbox: the engine's Python builds the sandbox, then runs the program.

usage: launcher.py VIEW RIGHTS LINE LIFE   (VIEW is JSON, the others are numbers of descriptors)

This process waits outside until the engine exits (LIFE) or the sandbox ends. Its child is process 1
of the sandbox: it mounts what VIEW lists, starts the program without any privilege, and maps users
of the namespaces that the program makes for rollouts.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import sandboxed_kernel as kernel

ROOT = "/sys"
"""Place of the new root: a folder of every Linux machine below which nobody keeps files."""
CREDENTIALS = 12
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu")
SETTINGS = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "pki", "protocols", "services"),
    *("ssl", "terminfo", "python3", "python3.11", "bash.bashrc", "profile"),
)
"""Files and folders of /etc that programs need and that have no secrets."""
OURS = ("dev", "etc", "proc", "project", "run", "scratch", "sys", "tmp")
OUR_SETTINGS = ("group", "hosts", "mtab", "passwd", "resolv.conf")
"""Names at the top of an image, and in its etc, of which a sandbox has its own."""


def main() -> None:
    view = json.loads(sys.argv[1])
    rights, line, life = (int(one) for one in sys.argv[2:5])
    try:
        kernel.unshare(kernel.ALL_NAMESPACES)
        kernel.map_user("self", view["uid"], view["gid"])
        first = os.fork()
    except OSError as error:
        leave(error)
    if first:
        os.close(line)
        os.close(rights)
        wait_outside(first, life)
    os.close(life)
    kernel.control(kernel.SET_DEATH_SIGNAL, signal.SIGKILL)
    try:
        build(view)
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        program = os.fork()
        if program == 0:
            ours.close()
            become(view, [rights, line, theirs.fileno()])
    except OSError as error:
        leave(error)
    os.close(line)
    os.close(rights)
    theirs.close()
    serve(program, ours, view)


def leave(error: OSError) -> None:
    sys.stderr.write(f"sandbox: {error.strerror or error}\n")
    sys.stderr.flush()
    os._exit(kernel.FAILED)


def wait_outside(first: int, life: int) -> None:
    """Wait until the sandbox ends, and exit with its status; kill it when the engine exits."""
    ended = os.pidfd_open(first)
    ready, _, _ = select.select([life, ended], [], [])
    if life in ready:
        os.kill(first, signal.SIGKILL)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)


def build(view: dict[str, Any]) -> None:
    """Make a new root with what `view` lists, and change to it."""
    kernel.mount("", "/", "", kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount("tmpfs", ROOT, "tmpfs", kernel.NO_SUID | kernel.NO_DEVICES, "mode=755,size=16m")
    if view["root"]:
        show_image(view["root"])
    else:
        show_system()
    _write("etc/passwd", f"agent:x:{view['uid']}:{view['gid']}::{view['scratch']}:/bin/sh\n")
    _write("etc/group", f"agent:x:{view['gid']}:\n")
    _write("etc/hosts", "127.0.0.1 localhost\n")
    _devices()
    for name in ("tmp", view["scratch"].lstrip("/")):
        os.mkdir(f"{ROOT}/{name}")
        kernel.mount("tmpfs", f"{ROOT}/{name}", "tmpfs", kernel.NO_SUID | kernel.NO_DEVICES,
                     "mode=700,size=64m")  # fmt: skip
    for source, target in view["visible"]:
        show(source, target)
    for target in view["hidden"]:
        hide(ROOT + target)
    os.mkdir(f"{ROOT}/proc")
    kernel.mount("proc", f"{ROOT}/proc", "proc", kernel.NO_SUID | kernel.NO_DEVICES)
    kernel.change_root(ROOT)


def show_system() -> None:
    """Show this machine's system folders, and the settings that have no secrets."""
    for name in SYSTEM:
        place = Path("/", name)
        if place.is_symlink():
            Path(ROOT, name).symlink_to(os.readlink(place))
        elif place.is_dir():
            show(str(place))
    for name in SETTINGS:
        place = Path("/etc", name)
        if place.is_symlink() and not place.resolve().is_relative_to("/etc"):
            below = Path(ROOT, "etc", name)
            below.parent.mkdir(exist_ok=True)
            below.symlink_to(place.resolve())
        elif place.exists():
            show(str(place))


def show_image(folder: str) -> None:
    """Show the files of a container image, but for the folders and settings that are ours."""
    for prefix, ours in (("", OURS), ("etc", OUR_SETTINGS)):
        os.makedirs(os.path.join(ROOT, prefix), exist_ok=True)
        if os.path.islink(os.path.join(folder, prefix)):
            continue  # it would lead to this machine's files
        with os.scandir(os.path.join(folder, prefix)) as entries:
            for entry in entries:
                target = os.path.join("/", prefix, entry.name)
                if entry.name in ours:
                    continue
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), ROOT + target)
                elif entry.is_dir() or entry.is_file():
                    show(entry.path, target)


def _write(name: str, text: str) -> None:
    path = Path(ROOT, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _devices() -> None:
    os.mkdir(f"{ROOT}/dev")
    for name in DEVICES:
        Path(ROOT, "dev", name).touch()
        kernel.bind(f"/dev/{name}", f"{ROOT}/dev/{name}", read_only=False, devices=True)
    for name, target in (LINKS | {"ptmx": "pts/ptmx"}).items():
        os.symlink(target, f"{ROOT}/dev/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{ROOT}/dev/{name}")


def show(source: str, target: str = "") -> None:
    """Show a file or folder of the machine, read-only, at the same path or at `target`."""
    place = ROOT + (target or source)
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        Path(place).touch()
    kernel.bind(source, place)


def hide(place: str) -> None:
    """Cover a folder by an empty one, or a file by an empty file; no effect if it is missing."""
    if os.path.isdir(place):
        kernel.mount("tmpfs", place, "tmpfs", kernel.READ_ONLY, "mode=755,size=0")
    elif os.path.exists(place):
        kernel.bind(f"{ROOT}/dev/null", place, read_only=True)


def become(view: dict[str, Any], descriptors: list[int]) -> None:
    """Run the program of `view` without privileges, in a view of its own in which /proc is
    read-only; its last arguments are the numbers of `descriptors`."""
    try:
        kernel.unshare(kernel.NEW_MOUNTS)
        kernel.protect("/", below=False)
        kernel.protect("/proc")
        kernel.drop_privileges()
        for one in descriptors:
            os.set_inheritable(one, True)
        os.chdir(view["cwd"])
        program = [*view["program"], *(str(one) for one in descriptors)]
        os.execve(program[0], program, view["environment"])
    except OSError as error:
        leave(error)


def serve(program: int, maps: socket.socket, view: dict[str, Any]) -> None:
    """Map the users of new namespaces, one per message, and wait for orphans, until `program` ends;
    exit with its status. The kernel then kills whatever is left in the sandbox."""
    wake, wake_write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    while True:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == program:
                    os._exit(os.waitstatus_to_exitcode(found[1]) & 0xFF)
        ready, _, _ = select.select([wake, maps], [], [])
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        if maps in ready:
            _map_one(maps, view)


def _map_one(maps: socket.socket, view: dict[str, Any]) -> None:
    """Map the user of the namespace of the process that sent a message; answer with an error text
    or nothing."""
    text, messages, _, _ = maps.recvmsg(64, socket.CMSG_SPACE(CREDENTIALS))
    if not text:
        return
    pid = int.from_bytes(messages[0][2][:4], sys.byteorder)
    try:
        kernel.map_user(str(pid), view["uid"], view["gid"])
        maps.send(b"ok")
    except OSError as error:
        maps.send(f"{error.strerror}: {error.filename}".encode()[:200])


if __name__ == "__main__":
    main()
