"""Whether a server is the one it was: decided before anything that is a person's is sent to it.

AsyncSSH asks for what is on record, and offers only algorithms of kinds on record where there are
any, so that a server with several keys shows one that we know. What it then cannot accept comes
here: unknown goes to the person, while nothing is connected; changed and revoked stop.
"""

import shlex
from collections.abc import Sequence

import asyncssh
from asyncssh.connection import _select_host_key_algs
from asyncssh.public_key import get_default_public_key_algs

from engine.launch.ssh.known_hosts import Entry, append_key, names_host, read_entries
from engine.launch.ssh.person import Person
from engine.launch.ssh.problems import (
    Place,
    host_certificate,
    host_key_changed,
    host_key_refused,
    host_key_revoked,
    host_key_unknown,
    no_common_algorithm,
)
from engine.launch.ssh.settings import Settings
from engine.protocol.problems import LaunchError

Record = tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]
"""Keys, certificate authorities, revoked keys."""


class Trust:
    """In one server, over all attempts to open one connection."""

    def __init__(self, settings: Settings, place: Place, person: Person) -> None:
        self._settings = settings
        self._place = place
        self._person = person
        self._confirmed: list[asyncssh.SSHKey] = []
        self._any_kind = False
        """Of host key is asked for; what is on record did not lead to an answer."""
        self._entries: list[Entry] = []
        self._name = self._bare = ""
        self.shown: asyncssh.SSHKey | None = None
        """A key that is not on record, from the attempt that just failed."""
        self.signed_by: asyncssh.SSHKey | None = None
        """The same of a certificate's authority."""

    def on_record(self, host: str, address: str, port: int | None) -> Record:
        """What AsyncSSH is told before it asks the server. An entry without the port counts
        where there is none with it, as in OpenSSH; revoked is revoked with and without."""
        settings = self._settings
        self.shown = self.signed_by = None
        self._name = settings.known_as(host)
        self._bare = self._name if settings.host_key_alias else host.lower()
        self._entries = read_entries([*settings.user_files, *settings.global_files])
        keys = [entry.key for entry in self._exact or self._of("", self._bare)]
        authorities = [entry.key for entry in self._marked("cert-authority")]
        revoked = [entry.key for entry in self._marked("revoked")]
        if self._any_kind:
            return [], [], revoked
        return [*keys, *self._confirmed], authorities, revoked

    @property
    def algorithms(self) -> Sequence[str]:
        """To offer; empty: AsyncSSH chooses by what is on record. Once that has led nowhere, plain
        keys of all kinds that the configuration allows."""
        if not self._any_kind:
            return ()
        allowed = self._settings.algorithms or ()
        chosen = _select_host_key_algs((), allowed, get_default_public_key_algs())
        return [name for one in chosen if "-cert-" not in (name := one.decode())]

    def accepts(self, key: asyncssh.SSHKey) -> bool:
        """Asked of a key that was not in the record given last."""
        self.shown = key
        known = self._exact or self._of("", self._bare)
        return key in self._confirmed or any(entry.key == key for entry in known)

    def accepts_authority(self, key: asyncssh.SSHKey) -> bool:
        self.signed_by = key
        return False

    async def settle(self, error: asyncssh.DisconnectError) -> None:
        """After an attempt that failed over the host key. Returns where another one may succeed;
        else raises LaunchError."""
        if "revoked" in error.reason:
            marked = self._marked("revoked")
            raise host_key_revoked(self._place, marked[0].where if marked else "")
        if self.shown is not None:
            return await self._settle_key(self.shown)
        if isinstance(error, asyncssh.HostKeyNotVerifiable) and self.signed_by is None:
            raise host_certificate(self._place, error.reason)
        if self._any_kind:
            raise no_common_algorithm(self._place, error.reason)
        if self._exact and not self._marked("cert-authority"):
            raise self._changed(self._exact[0], "none of the kinds of key on record")
        self._any_kind = True

    async def _settle_key(self, key: asyncssh.SSHKey) -> None:
        shown = describe(key)
        same_kind = [one for one in self._exact if one.key.algorithm == key.algorithm]
        if same_kind or (self._exact and not self._settings.algorithms):
            raise self._changed((same_kind or self._exact)[0], shown)
        if self._settings.never_ask:
            raise host_key_unknown(self._place, shown)
        answer = await self._person.ask(
            "host_key",
            f"The key of {self._place.server} is not on record yet. Is it the right one?",
            shown,
        )
        if (answer or "").strip().lower() != "yes":
            raise host_key_refused(self._place, shown)
        self._confirmed.append(key)
        if self._settings.user_files:
            append_key(self._settings.user_files[0], self._name, key, self._settings.hashed)

    def _changed(self, entry: Entry, now: str) -> LaunchError:
        remove = shlex.join(["ssh-keygen", "-R", self._name, "-f", str(entry.file)])
        return host_key_changed(self._place, describe(entry.key), now, entry.where, remove)

    @property
    def _exact(self) -> list[Entry]:
        return self._of("", self._name)

    def _marked(self, marker: str) -> list[Entry]:
        return list(dict.fromkeys([*self._of(marker, self._name), *self._of(marker, self._bare)]))

    def _of(self, marker: str, name: str) -> list[Entry]:
        return [
            one for one in self._entries if one.marker == marker and names_host(one.names, name)
        ]


def describe(key: asyncssh.SSHKey) -> str:
    """Kind and fingerprint, as `ssh-keygen -l` says them."""
    return f"{kind_of(key.get_algorithm())} {key.get_fingerprint()}"


def kind_of(algorithm: str) -> str:
    plain = algorithm.removeprefix("sk-").removesuffix("@openssh.com").removesuffix("-cert-v01")
    kind = plain.removeprefix("ssh-").partition("-sha2")[0].upper()
    return f"{kind}-SK" if algorithm.startswith("sk-") else kind
