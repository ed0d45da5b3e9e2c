"""Questions to the person during a connection attempt, which pause its timeout."""

import asyncio
import secrets
from dataclasses import dataclass
from typing import Any, Self

from engine.protocol.requests.remote import Question, QuestionKind
from engine.remote.ssh.base import Asker
from engine.remote.ssh.problems import Place, printable


class Clock:
    """Timeout as `async with clock`: raises TimeoutError after the allowed seconds, excluding time
    while it is stopped."""

    def __init__(self, seconds: float) -> None:
        self.allowed_s = seconds
        self._timeout = asyncio.timeout(seconds)
        self._left_s = seconds
        self._stopped = 0
        self._over = False

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._over = True
        await self._timeout.__aexit__(*error)

    def allow(self, seconds: float) -> None:
        """Restart the timeout with `seconds` for the next step."""
        self.allowed_s = self._left_s = seconds
        self._set()

    def stop(self) -> None:
        if not self._stopped:
            self._left_s = (self._timeout.when() or 0.0) - asyncio.get_running_loop().time()
        self._stopped += 1
        self._set()

    def go_on(self) -> None:
        self._stopped -= 1
        self._set()

    def _set(self) -> None:
        if not self._over and not self._timeout.expired():
            now = asyncio.get_running_loop().time()
            self._timeout.reschedule(None if self._stopped else now + self._left_s)


@dataclass
class QuestionService:
    """Questions of one server to the person."""

    asker: Asker
    place: Place
    clock: Clock | None = None
    question_count: int = 0

    async def ask(
        self, kind: QuestionKind, prompt: str, detail: str = "", echo: bool = False
    ) -> str | None:
        """Ask the person and return the reply; None if they cancel. `detail` is shown below the
        prompt, `echo`: whether the reply is visible while typed."""
        question = Question(
            id=secrets.token_hex(8),
            kind=kind,
            host=self.place.server,
            via=self.place.via,
            prompt=printable(prompt),
            detail=detail,
            echo=echo,
        )
        self.question_count += 1
        if self.clock:
            self.clock.stop()
        try:
            return await self.asker.ask(question)
        finally:
            if self.clock:
                self.clock.go_on()


def kind_of_secret(prompt: str, echo: bool) -> QuestionKind:
    """Guess from a server's prompt whether it wants a password or a code. `echo`: the server lets
    the reply be visible."""
    words = prompt.lower()
    one_time = any(word in words for word in ("one-time", "one time", "otp", "verification"))
    return "password" if "password" in words and not echo and not one_time else "code"
