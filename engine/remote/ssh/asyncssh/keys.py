"""Client keys that are offered to a server, in OpenSSH's order: certificates, agent keys named in
the configuration, other agent keys, files.

Only public keys are offered first. The passphrase of a file is requested only after the server has
accepted its public key.
"""

import asyncio
import copy
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.public_key import SSHOpenSSHCertificate

from engine.remote.ssh.base import TRIES
from engine.remote.ssh.host_keys import kind_of
from engine.remote.ssh.problems import cancelled_by_user, passphrase_wrong
from engine.remote.ssh.questions import QuestionService
from engine.remote.ssh.settings import Settings

Unlock = Callable[[], Coroutine[Any, Any, asyncssh.SSHKey]]


@dataclass
class KeyFile:
    """Key that an IdentityFile line names."""

    path: Path
    public: asyncssh.SSHKey | None = None
    """Public key; None if it cannot be read without the passphrase."""
    private: bytes | None = None
    certificate: asyncssh.SSHCertificate | None = None

    @property
    def name(self) -> str:
        with suppress(ValueError, RuntimeError):
            return f"~/{self.path.relative_to(Path.home())}"
        return str(self.path)


@dataclass
class Tried:
    """Keys that were offered, and descriptions of keys that could not be used."""

    shown: list[str] = field(default_factory=list)
    expired: bool = False

    def note(self, label: str) -> None:
        if label not in self.shown:
            self.shown.append(label)


class FilePair(asyncssh.SSHKeyPair):
    """Key pair whose private key is loaded when a signature is needed."""

    _key_type = "local"

    def __init__(
        self, public: asyncssh.SSHKey, certificate: asyncssh.SSHCertificate | None, unlock: Unlock
    ) -> None:
        algorithms = public.sig_algorithms
        super().__init__(
            public.algorithm, public.algorithm, algorithms, algorithms, public.public_data, None,
            certificate,
        )  # fmt: skip
        self._unlock = unlock

    async def sign_async(self, data: bytes) -> bytes:
        """Sign data with the private key, asking for its passphrase if necessary. Raises ValueError
        if the key is to be skipped, so that AsyncSSH tries the next one, and LaunchError if the
        person cancels."""
        key = await self._unlock()
        return await asyncio.to_thread(key.sign, data, self.sig_algorithm)


class Keys:
    """Client keys for one server; `tried` records the keys that were offered."""

    def __init__(self, settings: Settings, person: QuestionService) -> None:
        self._settings = settings
        self._person = person
        self._agent: asyncssh.SSHAgentClient | None = None
        self._unlocked: dict[Path, asyncssh.SSHKey] = {}
        self.tried = Tried()

    async def pairs(self) -> AsyncIterator[asyncssh.SSHKeyPair]:
        files = [one for path in self._settings.keys if (one := await self._read(path))]
        agent = {pair.public_data: pair for pair in await self._agent_pairs()}
        for pair in self._certified(files, agent):
            yield pair
        named = [one.public.public_data for one in files if one.public]
        others = [] if self._settings.only_these else list(agent)
        for data in dict.fromkeys([*named, *others]):
            if data in agent:
                yield self._from_agent(agent[data])
        for one in files:
            public = one.public
            if one.private is None or (public and public.public_data in agent):
                continue
            if public is None:
                public = (await self._unlock(one)).convert_to_public()
            yield self._from_file(one, public, None)

    async def close(self) -> None:
        """Drop unlocked keys and close the connection to the SSH agent."""
        self._unlocked.clear()
        if self._agent:
            self._agent.close()
            with suppress(OSError):
                await self._agent.wait_closed()

    def _certified(
        self, files: list[KeyFile], agent: dict[bytes, asyncssh.SSHKeyPair]
    ) -> list[asyncssh.SSHKeyPair]:
        """Key pairs of certificates whose private key is in the agent or a file."""
        given = [read_certificate(path) for path in self._settings.certificates]
        found = dict.fromkeys([*given, *(one.certificate for one in files)])
        pairs: list[asyncssh.SSHKeyPair] = []
        for certificate in found:
            if certificate is None:
                continue
            data = certificate.key.public_data
            holder = [one for one in files if one.public and one.public.public_data == data]
            if data in agent:
                pair = copy.copy(agent[data])
                pair.set_certificate(certificate)
                pairs.append(pair)
            elif holder and holder[0].private is not None:
                pairs.append(self._from_file(holder[0], certificate.key, certificate))
            else:
                continue
            self._note_certificate(certificate)
        return pairs

    def _note_certificate(self, certificate: asyncssh.SSHCertificate) -> None:
        self.tried.note(describe_certificate(certificate))
        self.tried.expired |= has_expired(certificate)

    async def _agent_pairs(self) -> list[asyncssh.SSHKeyPair]:
        if self._settings.agent is None:
            return []
        try:
            self._agent = await asyncssh.connect_agent(str(self._settings.agent))
            return list(await self._agent.get_keys())
        except (OSError, ValueError):
            self.tried.note(f"ssh-agent ({self._settings.agent} does not answer)")
            return []

    def _from_agent(self, pair: asyncssh.SSHKeyPair) -> asyncssh.SSHKeyPair:
        name = pair.get_comment(errors="replace") or "a key"
        self.tried.note(f"{name} ({kind_of(pair.get_algorithm())}, ssh-agent)")
        return pair

    def _from_file(
        self, one: KeyFile, public: asyncssh.SSHKey, certificate: asyncssh.SSHCertificate | None
    ) -> FilePair:
        if certificate is None:
            self.tried.note(f"{one.name} ({kind_of(public.get_algorithm())})")
        return FilePair(public, certificate, lambda: self._unlock(one))

    async def _read(self, path: Path) -> KeyFile | None:
        """Read a key file; None if it has no usable key, for a reason that `tried` may record."""
        one = KeyFile(path, certificate=read_certificate(Path(f"{path}-cert.pub")))
        try:
            data = await asyncio.to_thread(path.read_bytes)
            private = path.stat()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            self.tried.note(f"{one.name} (unreadable: {error.strerror})")
            return None
        if b"PRIVATE KEY" in data:
            if private.st_uid == os.getuid() and private.st_mode & 0o077:
                self.tried.note(f"{one.name} (not used: readable by others; fix with chmod 600)")
                return None
            one.private = data
        one.public = _public_half(path, data)
        if one.public is not None and one.public.algorithm.startswith(b"sk-"):
            one.private = None  # in hardware; the agent may hold it
            self.tried.note(f"{one.name} (hardware key: needs the transport `system`)")
        if one.private and one.public is None:
            try:
                _decrypt(one.private, None)
            except ValueError as error:
                self.tried.note(f"{one.name} (unreadable: {error})")
                return None
        return one if one.public or one.private else None

    async def _unlock(self, one: KeyFile) -> asyncssh.SSHKey:
        """Return the decrypted private key. Raises LaunchError if the person cancels the
        passphrase, ValueError if the key is to be skipped."""
        if one.path in self._unlocked:
            return self._unlocked[one.path]
        assert one.private is not None
        key = await asyncio.to_thread(_decrypt, one.private, None)
        for _ in range(TRIES):
            if key is not None:
                break
            typed = await self._person.ask("passphrase", f"The passphrase of {one.name}")
            if typed is None:
                raise cancelled_by_user(
                    self._person.place, "passphrase", f"the passphrase of {one.name}"
                )
            if not typed:
                raise ValueError("the person leaves this key out")
            key = await asyncio.to_thread(_decrypt, one.private, typed)
        if key is None:
            raise passphrase_wrong(self._person.place, one.name, TRIES)
        self._unlocked[one.path] = key
        return key


def has_expired(certificate: asyncssh.SSHCertificate) -> bool:
    if not isinstance(certificate, SSHOpenSSHCertificate):
        return False
    return time.time() >= certificate._valid_before


def describe_certificate(certificate: asyncssh.SSHCertificate) -> str:
    name = getattr(certificate, "_key_id", "")
    kind = kind_of(certificate.get_algorithm())
    over = ", expired" if has_expired(certificate) else ""
    return f"certificate {kind}" + (f" “{name}”" if name else "") + over


def _decrypt(data: bytes, passphrase: str | None) -> asyncssh.SSHKey | None:
    """Decrypt a private key; None if the passphrase is wrong. Raises ValueError for bad data."""
    try:
        return asyncssh.import_private_key(data, passphrase)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        if passphrase is None and not str(error).startswith("Passphrase"):
            raise
        return None


def _public_half(path: Path, data: bytes) -> asyncssh.SSHKey | None:
    """Public key of a file: from its `.pub` file, or from a private key in OpenSSH's format."""
    for source in (f"{path}.pub", path):
        with suppress(OSError, asyncssh.KeyImportError):
            return asyncssh.read_public_key(source)
    with suppress(asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return asyncssh.import_private_key(data).convert_to_public()
    return None


def read_certificate(path: Path) -> asyncssh.SSHCertificate | None:
    try:
        return asyncssh.read_certificate(path)
    except (OSError, asyncssh.KeyImportError):
        return None
