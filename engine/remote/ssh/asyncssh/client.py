"""AsyncSSH client callbacks: host key, authentication and prompts of one connection attempt."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import asyncssh

from engine.remote.ssh.asyncssh.keys import Keys
from engine.remote.ssh.base import AUTHENTICATE_S, GREET_S, TRIES
from engine.remote.ssh.host_keys import Trust
from engine.remote.ssh.problems import account_expired, cancelled_by_user
from engine.remote.ssh.questions import Clock, QuestionService, kind_of_secret

Stage = Literal["reach", "greet", "authenticate", "open"]

MOST_BANNER_CHARS = 20_000


class Client(asyncssh.SSHClient):
    """AsyncSSH callbacks of one connection attempt."""

    def __init__(self, trust: Trust, keys: Keys, person: QuestionService, clock: Clock) -> None:
        self._trust = trust
        self._keys = keys
        self._pairs: AsyncIterator[asyncssh.SSHKeyPair] | None = None
        self._person = person
        self._clock = clock
        self._passwords = self._rounds = 0
        self.stage: Stage = "reach"
        self.banner = ""
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    @property
    def typed(self) -> bool:
        """Whether the person typed a password or a code for the server."""
        return bool(self._passwords or self._rounds)

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.stage = "greet"
        self._clock.allow(GREET_S)

    def begin_auth(self, username: str) -> None:
        self.stage = "authenticate"
        self._clock.allow(AUTHENTICATE_S)

    def auth_completed(self) -> None:
        self.stage = "open"

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner = (self.banner + msg)[:MOST_BANNER_CHARS]

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        return self._trust.accepts(key)

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._trust.accepts_authority(key)

    async def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        if self._pairs is None:
            self._pairs = self._keys.pairs()
        return await anext(self._pairs, None)

    async def password_auth_requested(self) -> str | None:
        if self._passwords == TRIES:
            return None
        again = "The password was not accepted. " if self._passwords else ""
        self._passwords += 1
        return await self._secret(f"{again}The password for {self._person.place.server}", False)

    async def password_change_requested(self, prompt: str, lang: str) -> tuple[str, str]:
        raise account_expired(self._person.place, prompt)

    def kbdint_auth_requested(self) -> str | None:
        return "" if self._rounds < TRIES else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str]:
        """Return the person's answers to a keyboard-interactive challenge, one per prompt; a
        challenge without prompts only displays text."""
        self._rounds += bool(prompts)
        texts = [text for text in (name, instructions) if text.strip()]
        return [
            await self._secret("\n".join([*texts, prompt]), echo, theirs=prompt)
            for prompt, echo in prompts
        ]

    async def _secret(self, prompt: str, echo: bool, theirs: str = "password") -> str:
        kind = kind_of_secret(theirs, echo)
        typed = await self._person.ask(kind, prompt, echo=echo)
        if typed is None:
            raise cancelled_by_user(self._person.place, kind, f"the requested {kind}")
        return typed
