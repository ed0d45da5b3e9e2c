"""Processes of other programs, as a test sees them."""

import os
from pathlib import Path

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs: one that has ended stays a zombie until its parent waits for it,
    which the init process of a container may never do."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def process_properties(pid: int) -> dict[str, object]:
    """Properties of a process that determine its behaviour and permissions."""
    process, own = psutil.Process(pid), f"/proc/{pid}"
    status = Path(f"{own}/status").read_text().splitlines()
    names = [os.readlink(f"{own}/fd/{number}") for number in os.listdir(f"{own}/fd")]
    return {
        "parent": process.ppid(),
        "command": [word for word in process.cmdline() if word and not word.isdecimal()],
        "folder": process.cwd(),
        "descriptors": sorted(name.partition(":")[0] for name in names),
        "limits": Path(f"{own}/limits").read_text(),
        "session": os.getsid(pid) == pid,
        "signals": [line for line in status if line.startswith(("SigBlk", "SigIgn", "Umask"))],
    }
