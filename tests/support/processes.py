"""Processes of other programs, as a test sees them."""

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs: one that has ended stays a zombie until its parent waits for it,
    which the init process of a container may never do."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
