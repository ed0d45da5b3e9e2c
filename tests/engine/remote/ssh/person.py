"""A person who answers as a test says, and a place to write configurations."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.problems import LaunchError, Problem
from engine.protocol.requests.remote import HostSpec, Question
from engine.remote.ssh.base import Connection, connect

Answers = dict[str, list[str | None]]


@dataclass
class Scripted:
    """Answers by kind of question, one after the other; a question too many fails the test."""

    answers: Answers = field(default_factory=dict)
    asked: list[Question] = field(default_factory=list)
    delay_s: float = 0.0

    async def ask(self, question: Question) -> str | None:
        self.asked.append(question)
        await asyncio.sleep(self.delay_s)
        left = self.answers.get(question.kind)
        assert left, f"nobody expected {question!r}"
        return left.pop(0)


@dataclass
class Desk:
    """Where a person sits: a configuration and known hosts of their own."""

    folder: Path
    transport: Any = "asyncssh"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def configure(self, *lines: str) -> None:
        """Ours come last, so that the test's win."""
        own = (f"UserKnownHostsFile {self.known_hosts}", "IdentityAgent none", "IdentitiesOnly yes")
        text = "\n".join([*lines, "Match all", *own, "GlobalKnownHostsFile /dev/null"])
        self.config.write_text(text + "\n")

    async def connect(self, address: str, person: Scripted | None = None) -> Connection:
        spec = HostSpec(name="far", address=address, transport=self.transport)
        return await connect(spec, person or Scripted(), config=self.config)

    def problem(self, address: str, person: Scripted | None = None) -> Problem:
        """Why a connection cannot be made."""

        async def work() -> None:
            connection = await self.connect(address, person)
            await connection.close()

        with pytest.raises(LaunchError) as raised:
            asyncio.run(work())
        return raised.value.problem

    def with_connection(
        self,
        address: str,
        work: Callable[[Connection], Coroutine[Any, Any, Any]],
        person: Scripted | None = None,
    ) -> Any:
        """What `work` makes of a connection, which is closed afterwards."""

        async def whole() -> Any:
            connection = await self.connect(address, person)
            try:
                return await work(connection)
            finally:
                await connection.close()

        return asyncio.run(whole())

    def say(self, address: str, command: str = "echo hello", person: Scripted | None = None) -> str:
        async def work(connection: Connection) -> str:
            return (await connection.run(command)).out.decode()

        return str(self.with_connection(address, work, person))


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
