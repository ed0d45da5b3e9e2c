"""A connection to a server, by the transport that the person chose for it."""

from pathlib import Path

from engine.protocol.requests.remote import HostSpec
from engine.remote.ssh.base import Asker, Connection


async def connect(
    spec: HostSpec, asker: Asker, *, config: Path | None = None, known_hosts: Path | None = None
) -> Connection:
    """Authenticated, and with a host key that is on record.

    `config` is read in place of ~/.ssh/config and the machine's; `known_hosts` is the person's
    where the configuration names none. Raises LaunchError; `problems.may_pass` says whether trying
    again can help. Cancelled, nothing stays open.
    """
    if spec.transport == "system":
        from engine.remote.ssh.openssh.connection import connect_by_openssh

        return await connect_by_openssh(spec.address, asker, config, known_hosts)
    from engine.remote.ssh.asyncssh.connection import connect_by_asyncssh

    return await connect_by_asyncssh(spec.address, asker, config, known_hosts)
