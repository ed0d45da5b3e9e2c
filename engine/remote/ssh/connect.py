"""Connection to a server by one of the two SSH transports, imported when it is used first."""

from pathlib import Path

from engine.protocol.requests.remote import HostSpec
from engine.remote.ssh.base import Asker, Connection


async def connect(
    spec: HostSpec, asker: Asker, *, config: Path | None = None, known_hosts: Path | None = None
) -> Connection:
    """Connect and authenticate to a server whose host key is verified or confirmed. `asker` puts
    questions such as for passwords to the person. `config` replaces ~/.ssh/config and the system's
    configuration. `known_hosts` is used if the configuration names no such file. Raises
    LaunchError; `problems.may_pass` says whether a retry can help. Cancelling closes everything."""
    if spec.transport == "system":
        from engine.remote.ssh.openssh.connection import connect_by_openssh

        return await connect_by_openssh(spec.address, asker, config, known_hosts)
    from engine.remote.ssh.asyncssh.connection import connect_by_asyncssh

    return await connect_by_asyncssh(spec.address, asker, config, known_hosts)
