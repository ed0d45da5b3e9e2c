"""Life pipe of a child process: when the engine exits, the child and its own children end.

Standard library only, Python 3.9: importable in any environment. As a script it runs a program
under a guardian: `life_pipe.py LIFE PROGRAM ARGUMENTS …`.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE = 1, 36, 4
LEAST_S = 5.0


def exit_with_engine(descriptor: int) -> None:
    """Start a thread that waits for the engine's exit (end of file on the pipe `descriptor`), then
    kills all descendants of this process and exits."""
    adopt_orphans()
    threading.Thread(target=_wait, args=(descriptor,), daemon=True).start()


def fork_under_guardian(life: int) -> None:
    """Fork, and continue in the child; this process becomes its guardian. The guardian exits when
    the child ends, with the same status, or when the engine exits. In both cases it kills all
    descendants, in any session. Call it before any thread is started."""
    adopt_orphans()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    before = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, before)
        os.close(wake_read)
        os.close(wake_write)
        end_with_parent()
        return
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    _close_all_but(life, wake_read, wake_write)
    _guard(child, life, wake_read)


def end_with_parent() -> None:
    """Make the kernel kill this process when the parent thread that started it ends (Linux)."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants (child subreaper; Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def hide_from_peers() -> None:
    """Prevent other processes of the same user from reading this one's memory, environment and
    descriptors (Linux), and disable core dumps. Programs that it starts are not affected."""
    _prctl(PR_SET_DUMPABLE, 0)


def end_descendants() -> None:
    """Kill all descendants of this process repeatedly until none is left."""
    end = time.monotonic() + LEAST_S
    while found := _descendants():
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        if time.monotonic() > end:
            return
        time.sleep(0.01)


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)
    end_descendants()
    os._exit(0)


def _guard(child: int, life: int, wake: int) -> None:
    while True:
        ready, _, _ = select.select([life, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
        status = _reap().get(child)
        if status is not None:
            end_descendants()
            _end_like(status)
        if life in ready:
            end_descendants()
            os._exit(0)


def _reap() -> "dict[int, int]":
    """Reap ended children; returns wait statuses by PID."""
    found: dict[int, int] = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return found
            found[pid] = status
    except ChildProcessError:
        return found


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def _descendants() -> "list[int]":
    """PIDs of running descendants, from /proc. Grandchildren are found while their parent runs or
    after they were reparented to this process."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state != b"Z":
                parents[int(name)] = int(parent)
    found: list[int] = []
    level = [os.getpid()]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found


def _close_all_but(*kept: int) -> None:
    """Close all other descriptors, so that the guardian does not keep them open."""
    most = os.sysconf("SC_OPEN_MAX")
    if os.path.isdir("/proc/self/fd"):
        most = max(map(int, os.listdir("/proc/self/fd"))) + 1
    low = 3
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, most)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
    life, program = int(sys.argv[1]), sys.argv[2:]
    fork_under_guardian(life)
    os.close(life)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main()
