"""Scripted answers to SSH prompts, and an SSH client with its own configuration."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.problems import LaunchError, Problem
from engine.protocol.requests.remote import HostSpec, Question
from engine.remote.ssh.base import Connection
from engine.remote.ssh.connect import connect

Answers = dict[str, list[str | None]]


@dataclass
class ScriptedPrompter:
    """Prompter with answers by kind of question; an unexpected question fails the test."""

    answers: Answers = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    delay_s: float = 0.0

    async def ask(self, question: Question) -> str | None:
        self.questions.append(question)
        await asyncio.sleep(self.delay_s)
        remaining = self.answers.get(question.kind)
        assert remaining, f"unexpected question {question!r}"
        return remaining.pop(0)


@dataclass
class SshClient:
    """SSH client with a configuration and known_hosts of its own."""

    folder: Path
    transport: Any = "asyncssh"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def configure(self, *lines: str) -> None:
        """Write the configuration; the test's lines come first and take precedence."""
        defaults = (
            f"UserKnownHostsFile {self.known_hosts}",
            "IdentityAgent none",
            "IdentitiesOnly yes",
        )
        text = "\n".join([*lines, "Match all", *defaults, "GlobalKnownHostsFile /dev/null"])
        self.config.write_text(text + "\n")

    async def connect(self, address: str, prompter: ScriptedPrompter | None = None) -> Connection:
        spec = HostSpec(name="far", address=address, transport=self.transport)
        return await connect(spec, prompter or ScriptedPrompter(), config=self.config)

    def problem(self, address: str, prompter: ScriptedPrompter | None = None) -> Problem:
        """Problem of a connection attempt that must fail."""

        async def work() -> None:
            connection = await self.connect(address, prompter)
            await connection.close()

        with pytest.raises(LaunchError) as raised:
            asyncio.run(work())
        return raised.value.problem

    def with_connection(
        self,
        address: str,
        work: Callable[[Connection], Coroutine[Any, Any, Any]],
        prompter: ScriptedPrompter | None = None,
    ) -> Any:
        """Result of `work` over a connection, which is closed afterwards."""

        async def connect_and_work() -> Any:
            connection = await self.connect(address, prompter)
            try:
                return await work(connection)
            finally:
                await connection.close()

        return asyncio.run(connect_and_work())

    def run_command(
        self, address: str, command: str = "echo hello", prompter: ScriptedPrompter | None = None
    ) -> str:
        async def work(connection: Connection) -> str:
            return (await connection.run(command)).out.decode()

        return str(self.with_connection(address, work, prompter))


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
