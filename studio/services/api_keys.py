"""API keys in the operating system's keyring, which may be slow, locked or missing. Every call runs
in a thread with a timeout. Keys are stored nowhere else."""

import asyncio
from collections.abc import Callable
from typing import Any

from engine.protocol.problems import AtelierError

SERVICE = "atelier"
TIMEOUT_S = 20.0
NO_KEYRING = "keyring.none"
"""Code of the problem that this machine has no keyring."""


class KeyringError(AtelierError):
    """The keyring is missing, locked or does not respond."""


async def available() -> str:
    """Return the keyring's name. Raises KeyringError if this machine has none."""
    return str(await _ask(_name))


async def get(name: str) -> str | None:
    """Return the key stored under a name, or None. Raises KeyringError if the keyring fails."""
    return await _ask(lambda ring: ring.get_password(SERVICE, name))


async def put(name: str, key: str) -> None:
    """Store a key under a name. Raises KeyringError if the keyring fails."""
    await _ask(lambda ring: ring.set_password(SERVICE, name, key))


async def delete(name: str) -> None:
    """Delete a key; a missing one is not an error."""
    if await get(name) is not None:
        await _ask(lambda ring: ring.delete_password(SERVICE, name))


def _name(ring: Any) -> str:
    return str(getattr(ring, "name", type(ring).__name__))


async def _ask(question: Callable[[Any], Any]) -> Any:
    try:
        return await asyncio.wait_for(asyncio.to_thread(_answer, question), TIMEOUT_S)
    except TimeoutError:
        raise KeyringError.of(
            "keyring.silent",
            "The keyring does not respond.",
            "Check whether the keyring asks for its password in another window.",
        ) from None


def _answer(question: Callable[[Any], Any]) -> Any:
    import keyring  # slow, and not needed before the first key
    import keyring.backends.fail
    import keyring.errors

    ring = keyring.get_keyring()
    if isinstance(ring, keyring.backends.fail.Keyring):
        raise KeyringError.of(
            NO_KEYRING,
            "This machine has no keyring, so keys cannot be stored.",
            "Install a keyring (GNOME Keyring, KWallet), or pass the key to Atelier in an "
            "environment variable.",
        )
    try:
        return question(ring)
    except keyring.errors.KeyringError as error:
        raise KeyringError.of(
            "keyring.failed",
            f"The keyring refused access: {error}",
            "Unlock the keyring and try again.",
        ) from error
