"""API keys passed to the engine, in memory: from the keyring, or else from the environment."""

import os
from collections.abc import Sequence

from engine.client import EngineClient
from engine.protocol.addresses import is_loopback
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.tracking import VARIABLES, switched_on, tracker_keys_in
from engine.protocol.problems import Problem
from engine.protocol.records.judging import keys_in, provider_of
from engine.protocol.requests.clusters import KEY_VARIABLE, ClusterSpec, ClusterView
from studio.services import api_keys


def tracker_slot(name: str) -> str:
    """Return the keyring entry of a tracker's key, distinct from those of judge providers."""
    return f"tracker {name}"


def cluster_slot(name: str) -> str:
    """Return the keyring entry of a cluster's key."""
    return f"cluster:{name}"


def slot_content(spec: ClusterSpec, key: str) -> str:
    """Return what is stored for a cluster: its address and its key, so that a key is never sent to
    an address that it was not entered for."""
    return f"{_target(spec)} {key}"


def _target(spec: ClusterSpec) -> str:
    """Return the address of a cluster and the server through which it is reached."""
    return f"{spec.address}@{spec.host}" if spec.host else spec.address


async def cluster_key(spec: ClusterSpec) -> str:
    """Return the stored key for a cluster and its address; empty if there is none. Raises
    KeyringError."""
    address, _, key = (await api_keys.get(cluster_slot(spec.name)) or "").partition(" ")
    return key if address == _target(spec) else ""


async def lend_to_cluster(client: EngineClient, view: ClusterView) -> None:
    """Pass a cluster's key, from the keyring or else from the environment, to the engine. Raises
    KeyringError if there is no key and the cluster is on another machine. SkyRL as Atelier starts
    it needs no key."""
    if view.spec.skyrl is not None:
        return
    key = os.environ.get(KEY_VARIABLE, "")
    try:
        key = await cluster_key(view.spec) or key
    except api_keys.KeyringError:
        if not (key or view.has_key or (is_loopback(view.spec.address) and not view.spec.host)):
            raise
    if key:
        await client.lend_cluster_key(view.spec.name, key)


async def lend(
    client: EngineClient, config: ProjectConfig | None, others: Sequence[str]
) -> Problem | None:
    """Pass the keys of a project's judges and trackers (`config` None: no project), and of `others`
    (LiteLLM model names), to the engine. Returns the problem of a failed keyring if a judge key is
    needed and not in the environment, else None."""
    await lend_to_trackers(client, config)
    judge = config.judge if config else None
    models = (*(judge.models if judge and judge.enabled else ()), *others)
    from_environment = keys_in(os.environ, models)
    from_keyring, problem = await _stored_keys(
        {provider: provider for provider in map(provider_of, models)}
    )
    if from_environment | from_keyring:
        await client.lend_keys(from_environment | from_keyring)
    needed = models and not (from_environment or (judge and judge.base_url))
    return problem if needed else None


async def lend_to_trackers(client: EngineClient, config: ProjectConfig | None) -> None:
    """Pass the keys of the enabled trackers to the engine. A missing key is no error here; the
    tracker reports it."""
    names = switched_on(config.track) if config else []
    enabled = [name for name in names if name in VARIABLES]
    environment_keys = tracker_keys_in(os.environ)
    from_environment = {
        str(name): environment_keys[name] for name in enabled if name in environment_keys
    }
    from_keyring, _ = await _stored_keys({str(name): tracker_slot(name) for name in enabled})
    if from_environment | from_keyring:
        await client.lend_tracker_keys(from_environment | from_keyring)


async def _stored_keys(slots: dict[str, str]) -> tuple[dict[str, str], Problem | None]:
    """Read keys from the keyring. `slots`: name → keyring entry. Returns name → stored key, and
    the problem if the keyring fails."""
    try:
        from_keyring = {name: await api_keys.get(slot) for name, slot in slots.items()}
    except api_keys.KeyringError as error:
        return {}, error.problem
    return {name: key for name, key in from_keyring.items() if key}, None
