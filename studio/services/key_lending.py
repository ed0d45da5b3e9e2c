"""Keys that the engine is lent, in memory: out of the keyring, else of the environment."""

import os
from collections.abc import Sequence

from engine.client import EngineClient
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.tracking import VARIABLES, switched_on, tracker_keys_in
from engine.protocol.problems import Problem
from engine.protocol.records.judging import keys_in, provider_of
from studio.services import api_keys


def tracker_slot(name: str) -> str:
    """What a tracker's key is kept under: a judge's provider may have the same name."""
    return f"tracker {name}"


async def lend(
    client: EngineClient, config: ProjectConfig | None, others: Sequence[str]
) -> Problem | None:
    """Of a project's judges and trackers, and of `others`, as litellm names models; why the keyring
    gives none, where one is needed."""
    await lend_to_trackers(client, config)
    judge = config.judge if config else None
    models = (*(judge.models if judge and judge.enabled else ()), *others)
    found = keys_in(os.environ, models)
    kept, problem = await _kept({provider: provider for provider in map(provider_of, models)})
    if found | kept:
        await client.lend_keys(found | kept)
    needed = models and not (found or (judge and judge.base_url))
    return problem if needed else None


async def lend_to_trackers(client: EngineClient, config: ProjectConfig | None) -> None:
    """Of those that a project has on; a tracker that lacks its key says so itself."""
    names = switched_on(config.track) if config else []
    wanted = [name for name in names if name in VARIABLES]
    known = tracker_keys_in(os.environ)
    found = {str(name): known[name] for name in wanted if name in known}
    kept, _ = await _kept({str(name): tracker_slot(name) for name in wanted})
    if found | kept:
        await client.lend_tracker_keys(found | kept)


async def _kept(slots: dict[str, str]) -> tuple[dict[str, str], Problem | None]:
    """Out of the keyring, and why it gave none."""
    try:
        kept = {name: await api_keys.get(slot) for name, slot in slots.items()}
    except api_keys.KeyringError as error:
        return {}, error.problem
    return {name: key for name, key in kept.items() if key}, None
