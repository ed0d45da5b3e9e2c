"""Host key verification, completed before any secret is sent to a server.

Key types on record are requested first, as in OpenSSH, so that a server with several keys shows a
known one. Keys that AsyncSSH rejects are handled here: the person confirms an unknown key while the
connection is closed; a changed or revoked key is an error.
"""

import shlex

import asyncssh
from asyncssh.connection import _select_host_key_algs
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from engine.protocol.problems import LaunchError
from engine.remote.ssh.asyncssh.known_hosts import Entry, append_key, names_host, read_entries
from engine.remote.ssh.problems import (
    Place,
    host_certificate,
    host_key_changed,
    host_key_refused,
    host_key_revoked,
    host_key_unknown,
    no_common_algorithm,
)
from engine.remote.ssh.questions import QuestionService
from engine.remote.ssh.settings import Settings

Record = tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]
"""(known keys, certificate authorities, revoked keys) of a host."""


class Trust:
    """Host key verification of one server, over all attempts to open one connection."""

    def __init__(self, settings: Settings, place: Place, person: QuestionService) -> None:
        self._settings = settings
        self._place = place
        self._person = person
        self._confirmed: list[asyncssh.SSHKey] = []
        self._plain_only = False
        """Whether host certificates are excluded, after one of an unknown authority was shown."""
        self._offered: list[str] = []
        self._offered_to = ""
        self._entries: list[Entry] = []
        self._read(settings.host)
        self.shown: asyncssh.SSHKey | None = None
        """Key that is not on record, shown in the last failed attempt."""
        self.signed_by: asyncssh.SSHKey | None = None
        """Certificate authority that is not on record, shown in the last failed attempt."""

    def on_record(self, host: str, address: str, port: int | None) -> Record:
        """Known keys, authorities and revoked keys of a host, as AsyncSSH requests them. As in
        OpenSSH, an entry without a port counts if there is none with the port; a key revoked with
        or without the port is revoked."""
        self._read(host)
        keys = [entry.key for entry in self._exact or self._of("", self._bare)]
        authorities = [] if self._plain_only else self._authorities
        revoked = [entry.key for entry in self._marked("revoked")]
        return [*keys, *self._confirmed], authorities, revoked

    def algorithms(self) -> list[str]:
        """Host key algorithms to offer: the configured ones, or else the defaults with those of
        known keys first."""
        self.shown = self.signed_by = None
        certificates = get_default_certificate_algs()
        defaults = [*certificates, *get_default_public_key_algs()]
        chosen = _select_host_key_algs((), self._settings.algorithms or (), defaults)
        allowed = [one.decode() for one in chosen]
        if self._plain_only or not self._authorities:
            allowed = [name for name in allowed if "-cert-" not in name] or allowed
        if not self._settings.algorithms:
            known = {name for entry in self._exact for name in _algorithms_of(entry)}
            allowed.sort(key=lambda name: "-cert-" not in name and name not in known)
        self._offered = allowed
        self._offered_to = self._name
        return allowed

    def accepts(self, key: asyncssh.SSHKey) -> bool:
        """Whether a host key that AsyncSSH did not find among the known ones is accepted
        nevertheless: it is known for the host without its port, or the person confirmed it. The key
        is kept in the attribute `shown`."""
        self.shown = key
        known = self._exact or self._of("", self._bare)
        return key in self._confirmed or any(entry.key == key for entry in known)

    def accepts_authority(self, key: asyncssh.SSHKey) -> bool:
        self.signed_by = key
        return False

    async def settle(self, error: asyncssh.DisconnectError) -> None:
        """Handle a connection attempt that failed because of the server's host key; asks the person
        about an unknown key. Returns if another attempt may succeed, else raises LaunchError."""
        if "revoked" in error.reason:
            marked = self._marked("revoked")
            raise host_key_revoked(self._place, marked[0].where if marked else "")
        if self.shown is not None:
            await self._settle_key(self.shown)
        elif isinstance(error, asyncssh.KeyExchangeFailed):
            raise no_common_algorithm(self._place, error.reason)
        elif self.signed_by is None:
            raise host_certificate(self._place, error.reason)
        else:
            self._plain_only = True

    async def _settle_key(self, key: asyncssh.SSHKey) -> None:
        shown = describe(key)
        if self._exact and self._offered_to != self._name:
            return  # a name made canonical on the way; now its kinds of key come first
        same_kind = [one for one in self._exact if one.key.algorithm == key.algorithm]
        usable = [one for one in self._exact if set(_algorithms_of(one)) & set(self._offered)]
        if same_kind or usable:
            raise self._changed((same_kind or usable)[0], shown)
        if self._settings.never_ask:
            raise host_key_unknown(self._place, shown)
        answer = await self._person.ask(
            "host_key",
            f"The host key of {self._place.server} is unknown. Is it the right one?",
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

    def _read(self, host: str) -> None:
        settings = self._settings
        self._name = settings.known_as(host)
        self._bare = self._name if settings.host_key_alias else host.lower()
        files = [*settings.user_files, *settings.global_files]
        self._entries = read_entries(files, self._name, self._bare)

    @property
    def _authorities(self) -> list[asyncssh.SSHKey]:
        return [entry.key for entry in self._marked("cert-authority")]

    @property
    def _exact(self) -> list[Entry]:
        return self._of("", self._name)

    def _marked(self, marker: str) -> list[Entry]:
        return list(dict.fromkeys([*self._of(marker, self._name), *self._of(marker, self._bare)]))

    def _of(self, marker: str, name: str) -> list[Entry]:
        return [
            one for one in self._entries if one.marker == marker and names_host(one.names, name)
        ]


def _algorithms_of(entry: Entry) -> list[str]:
    return [one.decode() for one in entry.key.sig_algorithms]


def describe(key: asyncssh.SSHKey) -> str:
    """Kind and fingerprint of a key, as `ssh-keygen -l` prints them."""
    return f"{kind_of(key.get_algorithm())} {key.get_fingerprint()}"


def kind_of(algorithm: str) -> str:
    plain = algorithm.removeprefix("sk-").removesuffix("@openssh.com").removesuffix("-cert-v01")
    kind = plain.removeprefix("ssh-").partition("-sha2")[0].upper()
    return f"{kind}-SK" if algorithm.startswith("sk-") else kind
