"""Prompts of `ssh` (askpass) as questions to the person.

Prompts are text for terminals. They are recognised by OpenSSH's wording (readconf.c, sshconnect.c,
sshconnect2.c); an unknown prompt is shown as it is.
"""

import asyncio
import contextlib
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from engine.protocol.problems import LaunchError
from engine.remote.ssh.base import TRIES, Asker
from engine.remote.ssh.openssh import askpass
from engine.remote.ssh.problems import Place, cancelled_by_user, host_key_refused, passphrase_wrong
from engine.remote.ssh.questions import Clock, QuestionService, kind_of_secret
from engine.runtime.closing import cancel

UNKNOWN_KEY = re.compile(
    r"^(?P<kind>[\w-]+) key fingerprint is (?:SHA256:)?(?P<print>\S+?)\.?$", re.M
)
OTHER_KINDS = "keys of different type are already known"
PASSPHRASE = re.compile(r"^Enter (?:passphrase|PIN) for (?:key )?(?P<key>.*?):? *$", re.S)
PREFIX = re.compile(r"^\([^()\s]*@[^()\s]*\) ")
"""Prefix of a server's prompt, which the question shows already."""


class Prompts:
    """Prompts of one connection attempt; `failure` receives a problem that ends the attempt."""

    def __init__(
        self,
        folder: Path,
        asker: Asker,
        clock: Clock,
        place_of: Callable[[int], Awaitable[Place]],
        changed: Callable[[Place, str], LaunchError],
    ) -> None:
        self._folder = folder
        self._asker = asker
        self._clock = clock
        self._place_of = place_of
        self._changed = changed
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()
        self._passphrases: Counter[str] = Counter()
        self.failure: asyncio.Future[LaunchError] = asyncio.get_running_loop().create_future()
        self.typed: set[str] = set()
        """Servers for which the person typed something."""
        self.confirmed = 0
        """Number of confirmed host keys."""

    async def start(self) -> dict[str, str]:
        """Begin to listen for prompts of `ssh`, and return the environment variables that make an
        `ssh` process send its prompts to this object."""
        socket, script = self._folder / "ask", self._folder / "askpass"
        self._server = await asyncio.start_unix_server(self._talk, socket)
        command = shlex.join([sys.executable, "-I", "-S", askpass.__file__])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o700)
        return {
            askpass.SOCKET: str(socket),
            "SSH_ASKPASS": str(script),
            "SSH_ASKPASS_REQUIRE": "force",
        }

    async def close(self) -> None:
        if self._server:
            self._server.close()
        await cancel(*self._talks)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one prompt; ends early if `ssh` closes the socket."""
        talk = asyncio.current_task()
        assert talk
        self._talks.add(talk)
        asking = asyncio.create_task(self._answer(json.loads(await reader.readline())))
        gone = asyncio.create_task(reader.read())
        try:
            await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                writer.write(json.dumps(asking.result()).encode() + b"\n")
                await writer.drain()
        except (LaunchError, ConnectionError) as error:
            if isinstance(error, LaunchError) and not self.failure.done():
                self.failure.set_result(error)
        finally:
            self._talks.discard(talk)
            await cancel(asking, gone)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, question: dict[str, str | int]) -> str | None:
        prompt, hint = str(question["prompt"]), question["hint"]
        place = await self._place_of(int(question["process"]))
        person = QuestionService(self._asker, place, self._clock)
        if found := UNKNOWN_KEY.search(prompt):
            return await self._host_key(person, prompt, f"{found['kind']} SHA256:{found['print']}")
        if hint == "none":  # a touch of a hardware key; ssh ends the question by itself
            await person.ask("code", prompt, echo=True)
            await asyncio.Event().wait()
        if found := PASSPHRASE.match(prompt):
            return await self._passphrase(person, found["key"])
        theirs = PREFIX.sub("", prompt)
        kind = kind_of_secret(theirs, echo=False)
        own = theirs == prompt and kind == "password"
        self.typed.add(place.server)
        typed = await person.ask(kind, f"The password for {place.server}" if own else theirs)
        if typed is None:
            raise cancelled_by_user(place, kind, f"the requested {kind}")
        return typed

    async def _host_key(self, person: QuestionService, prompt: str, shown: str) -> str:
        place = person.place
        if OTHER_KINDS in prompt:
            raise self._changed(place, shown)
        answer = await person.ask(
            "host_key", f"The host key of {place.server} is unknown. Is it the right one?", shown
        )
        if (answer or "").strip().lower() != "yes":
            raise host_key_refused(place, shown)
        self.confirmed += 1
        return "yes"

    async def _passphrase(self, person: QuestionService, key: str) -> str:
        name = key.strip("'\"")
        if self._passphrases[name] == TRIES:
            raise passphrase_wrong(person.place, name, TRIES)
        self._passphrases[name] += 1
        typed = await person.ask("passphrase", f"The passphrase of {name}")
        if typed is None:
            raise cancelled_by_user(person.place, "passphrase", f"the passphrase of {name}")
        return typed

    def passphrase_failed(self) -> str:
        """File of the first key whose passphrase was requested `TRIES` times without success; empty
        if there is none."""
        return next((key for key, times in self._passphrases.items() if times >= TRIES), "")
