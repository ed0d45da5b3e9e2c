"""Pool of sandboxed agents: each rollout in namespaces of its own, scored outside of them."""

import asyncio
import json
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import AtelierError, ConfigError, RolloutError
from engine.rollout.agents.processes import LINE_ROOM, AgentPool, AgentResult, Attempt, Worker
from engine.rollout.sandbox.images import Image, find_image, image_names, python_in, unpack
from engine.rollout.sandbox.machine import require_sandbox
from engine.rollout.sandbox.relay import Outlet, Relay, ports
from engine.rollout.sandbox.sandboxed_kernel import FAILED
from engine.rollout.sandbox.view import CODE, LAUNCHER, SCRATCH, view_of, view_of_image
from engine.runtime.child import LINE_LIMIT, Child
from engine.runtime.timeouts import Away, run_with_timeout

REWARDS = "rewards.py"


def agent_pool(project: Path, config: AgentConfig, log: Path) -> AgentPool:
    """Pool for the agent of a project, in a sandbox if the settings ask for one."""
    kind = AgentPool if config.sandbox == "none" else SandboxPool
    return kind(project, config, log)


def check_link(file: Path) -> None:
    """Raise ConfigError if a file of the project is a link that leads elsewhere from the path of
    the project in an image."""
    if file.is_symlink():
        target = os.readlink(file)
        inside = (file.parent / target).resolve().is_relative_to(file.parent.resolve())
        if os.path.isabs(target) or not inside:
            raise ConfigError.of(
                "sandbox.link",
                f"{file.name} is a link to {target}, which a container does not show.",
                "Use a relative link inside the project, or a copy of the file.",
                where=str(file),
            )


class SandboxPool(AgentPool):
    """Pool whose processes are sandboxes that fork every rollout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._relays: dict[int, Relay] = {}
        """By PID of the sandbox process."""
        self._verifier: Worker | None = None
        self._images: dict[str, tuple[Image, Path]] = {}
        """Images in use and their folders, by name."""
        self._scores = (self.project / REWARDS).is_file()

    @property
    def pids(self) -> list[int]:
        return [*super().pids, *([self._verifier.child.pid] if self._verifier else [])]

    async def start(self) -> None:
        """Start the sandboxes. Raises ConfigError if this machine has none, or like AgentPool."""
        await asyncio.to_thread(require_sandbox, self.config)
        if self.config.sandbox == "container":
            await asyncio.to_thread(self._unpack)
        await super().start()
        if self._scores:
            self._verifier = await self._spawn(verifies=True)

    async def close(self) -> None:
        verifier, self._verifier = self._verifier, None
        await super().close()
        if verifier:
            await verifier.child.close()
        relays, self._relays = self._relays, {}
        for relay in relays.values():
            await relay.close()

    def _unpack(self) -> None:
        """Unpack the images of the agent and of rewards.py."""
        for name in image_names(self.config):
            image = find_image(name)
            self._images[name] = (image, unpack(image))

    def _view(self, verifies: bool) -> tuple[dict[str, Any], str]:
        """View for the launcher, and the path of Python in it."""
        config = self.config
        if config.sandbox != "container":
            python = os.path.abspath(config.python or self._python or sys.executable)
            return view_of(self.project, config, python, [], verifies), python
        if verifies:
            check_link(self.project / REWARDS)
        agent, *others = image_names(config)
        name = others[0] if verifies and others else agent
        image, folder = self._images[name]
        wanted = config.python if name == agent else None
        view = view_of_image(self.project, folder, image.environment, verifies)
        return view, python_in(folder, image.environment, wanted)

    async def _launch(self, verifies: bool = False) -> Child:
        config = self.config
        view, python = self._view(verifies)
        options = {
            "project": view["cwd"],
            "file": "-" if config.command else config.file,
            "command": config.command or "-",
            "output_bytes": config.max_output_bytes,
            "memory_mb": config.memory_mb,
            "disk_mb": config.disk_mb,
            "processes": config.processes,
            "cpu_s": config.cpu_s,
            "verifies": verifies,
            "scratch": SCRATCH,
        }
        options["below_tmp"] = [
            target for _, target in view["visible"] if Path(target).is_relative_to("/tmp")
        ]
        view["program"] = [python, f"{CODE}/sandboxed_host.py", json.dumps(options)]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            child = await Child.spawn(
                "agent",
                [sys.executable, "-I", str(LAUNCHER), json.dumps(view), str(theirs.fileno())],
                cwd=self.project,
                log=self.log,
                line_limit=min(LINE_LIMIT, 12 * config.max_output_bytes + LINE_ROOM),
                descriptors=(theirs.fileno(),),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._relays[child.pid] = Relay(ours)
        return child

    async def _answers(self, worker: Worker) -> bool:
        """Whether a process can go on after a timeout: a rollout cannot block the one it is forked
        from, and its end needs no answer."""
        return worker.child.alive

    async def _end(self, child: Child) -> None:
        await super()._end(child)
        if relay := self._relays.pop(child.pid, None):
            await relay.close()

    def _load_problem(self, error: AtelierError, child: Child) -> ConfigError:
        if child.process.returncode == FAILED:
            lines = self.log.read_text(errors="replace").splitlines()
            why = next((one for one in reversed(lines) if one.startswith("sandbox: ")), "")
            return ConfigError.of(
                "sandbox.not_started",
                f"The agent's sandbox could not be started: {why.removeprefix('sandbox: ')}.",
                "See `atelier doctor`, or set agent.sandbox to none.",
                where="agent.sandbox",
            )
        return super()._load_problem(error, child)

    async def _ask(self, worker: Worker, attempt: Attempt, away: Away) -> AgentResult:
        rollout = secrets.token_hex(8)
        port = urlsplit(attempt.base_url).port or 80
        outlet = Outlet(port, self.config.allowed_hosts)
        if self._scores:
            outlet.files = asyncio.get_running_loop().create_future()
        relay = self._relays[worker.child.pid]
        async with relay.opened(rollout, outlet):
            call = worker.child.ask(
                "run",
                rollout=rollout,
                ports=dict(ports(port, self.config.allowed_hosts)),
                keeps_files=self._scores,
                **attempt._asdict(),
            )
            answer = await run_with_timeout(self.config.timeout_s, away, call)
            value = answer.pop("result", None)
            result = self._result(answer)
            if outlet.refused:
                notes = "".join(f"sandbox: refused {one}\n" for one in outlet.refused)
                result = result._replace(output=result.output + notes)
            if outlet.files is None:
                return result
            return await self._scored(result, attempt.scenario, value, rollout, outlet.files)

    async def _scored(
        self,
        result: AgentResult,
        scenario: dict[str, Any],
        value: Any,
        rollout: str,
        files: "asyncio.Future[int]",
    ) -> AgentResult:
        """Add the reward parts of rewards.py, which runs on a copy of the files that the agent
        left, in a sandbox that the agent cannot reach."""
        verifier = await self._verify_worker()
        descriptor = await asyncio.wait_for(files, self.config.timeout_s)
        self._relays[verifier.child.pid].send_files(rollout, descriptor)
        call = verifier.child.ask("score", rollout=rollout, scenario=scenario, result=value)
        try:
            answer = await asyncio.wait_for(call, self.config.timeout_s)
        except TimeoutError:
            raise RolloutError.of(
                "rewards.timeout",
                f"rewards.py timed out after {self.config.timeout_s:g} s.",
                "Raise agent.timeout_s, or look for a call without a timeout.",
            ) from None
        scored = self._result({"metrics": {}, "turns": [], "output": "", **answer})
        return result._replace(parts={**result.parts, **scored.parts})

    async def _verify_worker(self) -> Worker:
        async with self._starting:
            if self._verifier is None or not self._verifier.child.alive:
                if self._verifier:
                    await self._end(self._verifier.child)
                self._verifier = await self._spawn(verifies=True)
            return self._verifier
