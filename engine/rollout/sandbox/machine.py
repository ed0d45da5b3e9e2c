"""The sandbox that this machine offers, found by a trial."""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import ConfigError
from engine.protocol.records.machine.hardware import Check
from engine.rollout.sandbox.images import find_image, image_names
from engine.rollout.sandbox.view import CODE, LAUNCHER, SCRATCH, view_of

NAME = "Sandbox"
TRIAL_S = 20.0
RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
HINTS = {
    "apparmor": "Ubuntu restricts them: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    "limit": "Allow user namespaces: sudo sysctl user.max_user_namespaces=10000",
    "container": "In a container, allow user namespaces, or run Atelier outside of it.",
}


def sandbox_check() -> Check:
    """Check whether agents can be sandboxed here."""
    if problem := trial_problem():
        words = f"Agents cannot be sandboxed here: {problem}."
        return Check(name=NAME, state="warn", words=words, hint=_hint())
    words = "Agents can run in a sandbox of namespaces, one for each rollout."
    return Check(name=NAME, state="good", words=words)


def agent_checks(config: AgentConfig) -> list[Check]:
    """Describe what an agent with these settings may do on this machine."""
    if config.source == "outside":
        return []
    if config.sandbox == "none":
        words = "None: the agent runs with your rights."
        return [Check(name=NAME, state="good", words=words)]
    if problem := trial_problem():
        words = f"agent.sandbox is {config.sandbox}, and this machine offers no sandbox: {problem}."
        return [Check(name=NAME, state="bad", words=words, hint=_hint())]
    unpacked = ""
    if config.sandbox == "container":
        try:
            images = [find_image(name) for name in image_names(config)]
        except ConfigError as error:
            found = error.problem
            return [Check(name=NAME, state="bad", words=found.message, hint=found.hint)]
        if late := [one.name for one in images if not one.is_unpacked]:
            unpacked = f" The first run unpacks {' and '.join(late)}."
    hosts = ", ".join(config.allowed_hosts[:3]) + (" …" if len(config.allowed_hosts) > 3 else "")
    reach = f"reaches the model and {hosts}" if hosts else "reaches the model alone"
    words = (
        f"Each rollout runs in its own{_of_image(config)}: it {reach}, with "
        f"{config.memory_mb:,} MB of memory and {config.disk_mb:,} MB of files.{unpacked}"
    )
    return [Check(name=NAME, state="good", words=words)]


def _of_image(config: AgentConfig) -> str:
    return f", with the files of {config.image}" if config.sandbox == "container" else ""


def require_sandbox(config: AgentConfig) -> None:
    """Raise ConfigError if this machine cannot sandbox an agent with these settings."""
    if config.sandbox == "none":
        return
    if problem := trial_problem():
        raise ConfigError.of(
            "sandbox.not_offered",
            f"agent.sandbox is set, and this machine offers no sandbox: {problem}.",
            _hint(),
            where="agent.sandbox",
        )
    if config.sandbox == "container":
        for name in image_names(config):
            find_image(name)


@lru_cache(maxsize=1)
def trial_problem() -> str:
    """Reason why no sandbox can be made here; empty if a rollout in one has worked. Takes a second
    the first time."""
    if sys.platform != "linux":
        return "it needs Linux"
    with tempfile.TemporaryDirectory() as folder:
        view = view_of(Path(folder), AgentConfig(), sys.executable, [], verifies=False)
        options = {"scratch": SCRATCH, "disk_mb": 16, "below_tmp": []}
        view["program"] = [sys.executable, f"{CODE}/sandboxed_trial.py", json.dumps(options)]
        with contextlib.ExitStack() as stack:
            ends = [end for _ in range(3) for end in socket.socketpair()]
            for end in ends:
                stack.enter_context(end)
            numbers = [end.fileno() for end in ends[::2]]
            try:
                tried = subprocess.run(
                    [sys.executable, "-I", str(LAUNCHER), json.dumps(view), *map(str, numbers)],
                    pass_fds=numbers,
                    capture_output=True,
                    text=True,
                    timeout=TRIAL_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"a trial took more than {TRIAL_S:g} s"
    if tried.returncode == 0:
        return ""
    lines = tried.stderr.strip().splitlines() or [f"exit {tried.returncode}"]
    return lines[-1].removeprefix("sandbox: ")


def _hint() -> str:
    if RESTRICTED.is_file() and RESTRICTED.read_text().strip() == "1":
        return HINTS["apparmor"]
    limit = Path("/proc/sys/user/max_user_namespaces")
    if limit.is_file() and limit.read_text().strip() == "0":
        return HINTS["limit"]
    return HINTS["container"]
