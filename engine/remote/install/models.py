"""Base model of a remote run: found on the server, downloaded there, or uploaded from here."""

from engine.client import EngineClient
from engine.models.registry import find_model, folder_for
from engine.protocol.problems import LaunchError, ModelError, Refused
from engine.protocol.requests.sync import SyncFolder
from engine.remote.sync.manifest import manifest
from engine.remote.sync.upload import Progress, push
from engine.remote.tunnel.shell import Shell
from engine.remote.tunnel.tunnel import ENVIRONMENT

PULL = ENVIRONMENT + '.venv/bin/python -m engine models pull "$name" < /dev/null'


async def ensure_model(client: EngineClient, shell: Shell, name: str, progress: Progress) -> None:
    """Make a model available on the server unless `name` is a folder: upload it if it is on this
    machine (`progress` receives the bytes sent and in total), else download it there. Raises
    Refused if neither is possible."""
    if name.startswith((".", "/", "~")):
        return
    known = await client.models()
    if any(model.name == name.lower() or model.name == name for model in known if model.path):
        return
    try:
        folder = find_model(name)
    except ModelError as missing:
        await _pull(shell, name, missing)
        return
    request = SyncFolder(folder=folder_for(name).name, place="models", manifest=manifest(folder))
    await push(client, folder, request, progress)


async def _pull(shell: Shell, name: str, missing: ModelError) -> None:
    try:
        await shell.run(PULL, what=f"download {name}", name=name)
    except LaunchError as error:
        raise Refused.of(
            "model.not_there",
            f"{name} is neither on {shell.connection.server} nor on this machine, and the server "
            "cannot download it.",
            missing.problem.hint,
            detail=error.problem.detail,
        ) from error
