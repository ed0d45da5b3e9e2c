"""List of remote servers and the id of this machine for them: one small file of the user."""

import hashlib
import uuid
from pathlib import Path

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.protocol.problems import Refused
from engine.protocol.requests.remote import HostSpec
from engine.runtime.files import replace_file


class ServerList(BaseModel):
    model_config = ConfigDict(extra="ignore")

    schema_version: int = 1
    machine: str = Field(default_factory=lambda: uuid.uuid4().hex)
    """Random id of this machine, from which the ids that servers see are derived."""
    hosts: list[HostSpec] = Field(default_factory=list)


def server_list_file() -> Path:
    return Path(platformdirs.user_data_dir("atelier")) / "hosts.json"


def read_server_list() -> ServerList:
    """Read the server list, created if missing. Raises Refused if it is unreadable."""
    file = server_list_file()
    try:
        return ServerList.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return write_server_list(ServerList())
    except (OSError, ValidationError) as error:
        raise Refused.of(
            "host.book_unreadable",
            "The list of servers cannot be read.",
            "Fix the file, or move it away and add the servers again.",
            where=str(file),
            detail=str(error),
        ) from error


def write_server_list(servers: ServerList) -> ServerList:
    file = server_list_file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(file, servers.model_dump_json(indent=1) + "\n")
    return servers


def home_id(servers: ServerList, workspace: Path) -> str:
    """Id by which remote engines recognise this machine's workspace, derived from its path and the
    machine id in `servers`."""
    return hashlib.sha256(f"{servers.machine} {workspace.resolve()}".encode()).hexdigest()[:32]
