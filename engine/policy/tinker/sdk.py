"""SDK of clusters as the client process uses it: without telemetry, redirects and retries.

Imported by `client` alone, in the environment of the SDK.
"""

import asyncio
import os
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from engine.protocol.problems import PolicyError

VARIABLES = {"TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1"}
"""Settings of the SDK and of transformers, which it imports."""
os.environ |= VARIABLES

import httpx  # noqa: E402
import tinker  # noqa: E402
from httpcore._backends.auto import AutoBackend  # noqa: E402
from tinker import types  # noqa: E402
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType  # noqa: E402
from tinker.lib.internal_client_holder import InternalClientHolder  # noqa: E402
from tinker.resources.models import AsyncModelsResource  # noqa: E402

__all__ = ["ClientConnectionPoolType", "httpx", "tinker", "types"]
T = TypeVar("T")
NO_KEY = "tml-none"
"""Placeholder for clusters without keys: the SDK requires the prefix."""
LOST = re.compile(
    r"\b(?P<what>model|session|sampler|future|checkpoint)\b.* not (loaded|found)", re.IGNORECASE
)
"""Messages of servers that miss something that they had."""
MOST_WAIT_S = 30.0
SUBMITTED_ONCE = (429,)
"""Status codes of a request that the server has not accepted, so that it may be sent again."""


async def sent_once(call: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
    """Replacement of the SDK's retries: sends again only what the server has not accepted."""
    wait_s = 1.0
    while True:
        try:
            return await call(*args, **kwargs)
        except tinker.APIStatusError as error:
            if error.status_code not in SUBMITTED_ONCE or wait_s > MOST_WAIT_S:
                raise
        await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
        wait_s *= 2


def problem_of(error: Exception, key: str) -> PolicyError:
    """Problem of a failed request, without the API key."""
    detail = f"{type(error).__name__}: {error}"[:2000]
    if key:
        detail = detail.replace(key, "…")
    status = getattr(error, "status_code", None)
    lost = LOST.search(detail)
    if isinstance(error, tinker.AuthenticationError | tinker.PermissionDeniedError):
        words = ("cluster.key", "The cluster rejected the API key.", "Set a valid key.")
    elif isinstance(
        error, tinker.APIConnectionError | tinker.APITimeoutError | httpx.TransportError
    ):
        words = (
            "cluster.unreachable",
            "The cluster cannot be reached.",
            "Check its address, and that it is running.",
        )
    elif lost and lost["what"].lower() == "checkpoint":
        words = (
            "cluster.checkpoint_gone",
            "The cluster no longer has the state of this checkpoint.",
            "Resume from another checkpoint.",
        )
    elif lost:
        words = (
            "cluster.restarted",
            f"The cluster no longer knows the {lost['what'].lower()} of this run, as after a "
            "restart.",
            "See its log.",
        )
    elif isinstance(error, tinker.APIResponseValidationError) or status in (404, 422):
        words = (
            "cluster.protocol",
            "The cluster's answer does not fit the protocol of this SDK.",
            "Choose the SDK that fits the server: tinker-json for SkyRL 0.3.",
        )
    else:
        text = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        words = (
            "cluster.refused",
            f"The cluster refused a request: {text.replace(key, '…') if key else text}",
            "See its log.",
        )
    code, message, hint = words
    return PolicyError.of(code, message, hint, detail=detail)


def refuse_redirects() -> None:
    """Disable redirects for all connections of this process. Following one would send a request
    with a key in its headers to another address. The SDK's other transport (pyqwest) follows them
    by itself, so it is not used, whatever a server's settings for the SDK say."""
    fetch_settings = InternalClientHolder._fetch_client_config

    async def without_pyqwest(holder: Any, auth: Any) -> Any:
        settings = await fetch_settings(holder, auth)
        return settings.model_copy(update={"use_pyqwest_transport": False})

    InternalClientHolder._fetch_client_config = without_pyqwest  # type: ignore[method-assign]
    httpx.Response.has_redirect_location = property(lambda response: False)  # type: ignore[assignment, method-assign]


def connect_through(socket: str, address: str) -> None:
    """Lead every connection of this process to the host and port of `address` through a local Unix
    socket, the end of an SSH tunnel."""
    there = urlsplit(address)
    own = (there.hostname, there.port or {"http": 80, "https": 443}[there.scheme])
    connect_tcp = AutoBackend.connect_tcp

    async def connect(
        backend: Any, host: str, port: int, timeout: float | None = None, **options: Any
    ) -> Any:
        if (host, port) == own:
            return await backend.connect_unix_socket(socket, timeout=timeout)
        return await connect_tcp(backend, host, port, timeout=timeout, **options)

    AutoBackend.connect_tcp = connect  # type: ignore[method-assign, assignment]


def announce_models(announce: Callable[[str], None]) -> None:
    """Call `announce` in this thread's loop with the id of each model that the SDK creates."""
    loop, create = asyncio.get_running_loop(), AsyncModelsResource.create

    async def announced(resource: Any, **fields: Any) -> Any:
        made = await create(resource, **fields)
        if made.model_id:
            loop.call_soon_threadsafe(announce, made.model_id)
        return made

    AsyncModelsResource.create = announced  # type: ignore[method-assign]
