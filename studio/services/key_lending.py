"""API keys passed to the engine, in memory: from the keyring, or else from the environment."""

import os
from collections.abc import Sequence

from engine.client import EngineClient
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.tracking import VARIABLES, switched_on, tracker_keys_in
from engine.protocol.problems import Problem
from engine.protocol.records.judging import keys_in, provider_of
from studio.services import api_keys


def tracker_slot(name: str) -> str:
    """Name of a tracker's key in the keyring, distinct from judge providers."""
    return f"tracker {name}"


async def lend(
    client: EngineClient, config: ProjectConfig | None, others: Sequence[str]
) -> Problem | None:
    """Pass the keys of a project's judges and trackers, and of `others` (LiteLLM model names), to
    the engine.

    Returns the problem of the keyring if a key is needed and it gives none.
    """
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
    """Pass the keys of the enabled trackers to the engine; a tracker without a key reports that
    itself."""
    names = switched_on(config.track) if config else []
    wanted = [name for name in names if name in VARIABLES]
    known = tracker_keys_in(os.environ)
    found = {str(name): known[name] for name in wanted if name in known}
    kept, _ = await _kept({str(name): tracker_slot(name) for name in wanted})
    if found | kept:
        await client.lend_tracker_keys(found | kept)


async def _kept(slots: dict[str, str]) -> tuple[dict[str, str], Problem | None]:
    """Read keys from the keyring, with the problem if it gives none."""
    try:
        kept = {name: await api_keys.get(slot) for name, slot in slots.items()}
    except api_keys.KeyringError as error:
        return {}, error.problem
    return {name: key for name, key in kept.items() if key}, None
