"""Authentication of requests: exact Host header, no browser, the right token; default deny.

Control routes need the engine's token; `/v1/…` needs the key of an active rollout. `/proof` needs
neither: there the engine proves that it has the token before a client sends it.
"""

import hmac
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from engine.launcher.local import PROOF_PATH
from engine.server.limits import refuse

MISDIRECTED, FORBIDDEN, UNAUTHORIZED = 421, 403, 401


class Guard:
    """Authentication middleware; a refused request never reaches the routes."""

    def __init__(
        self,
        app: ASGIApp,
        port: int,
        token: str,
        knows_key: Callable[[str], bool],
        on_known: Callable[[Scope], None] = lambda scope: None,
    ) -> None:
        """`on_known` is called with the scope of each authenticated request."""
        self._app = app
        self._on_known = on_known
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")}
        self._token = token.encode()
        self._knows_key = knows_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif status := self._refusal(scope):
            await _refuse(scope, receive, send, status)
        else:
            if scope["path"] != PROOF_PATH:
                self._on_known(scope)
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> int | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope.get("headers", []):
            headers.setdefault(name.lower(), []).append(value)
        hosts = headers.get(b"host", [])
        if scope["type"] != "http":
            return FORBIDDEN
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return MISDIRECTED
        if b"origin" in headers or headers.get(b"sec-fetch-site", [b"none"]) != [b"none"]:
            return FORBIDDEN
        if scope["path"] == PROOF_PATH and scope["method"] == "GET":
            return None
        return None if self._is_known(scope["path"], headers) else UNAUTHORIZED

    def _is_known(self, path: str, headers: dict[bytes, list[bytes]]) -> bool:
        key = sent_key(path, headers)
        if key is None:
            return False
        if path.startswith("/v1/"):
            return self._knows_key(key.decode("latin-1"))
        return hmac.compare_digest(key, self._token)


def sent_key(path: str, headers: dict[bytes, list[bytes]]) -> bytes | None:
    """Key of a request: one bearer token or, at the gateway and without an Authorization header,
    one `x-api-key`, which Anthropic's clients send. None if there is no such header."""
    values, others = headers.get(b"authorization", []), headers.get(b"x-api-key", [])
    if not values and path.startswith("/v1/") and len(others) == 1:
        return others[0]
    if len(values) != 1 or not values[0].startswith(b"Bearer "):
        return None
    return values[0].removeprefix(b"Bearer ")


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await refuse(scope, receive, send, status, None)
