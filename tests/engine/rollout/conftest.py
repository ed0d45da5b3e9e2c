"""Fixtures: a gateway on a loopback port and a scripted policy."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import uvicorn
from starlette.applications import Starlette

from engine.models.file_checks import check_folder
from engine.policy.base import SampledToken, SampleRequest
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.gateway.sessions import Session
from engine.rollout.rendering.chat import ChatFormat

END = 2
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
ASK: Any = [{"role": "user", "content": "Where is Ada?"}]


class ScriptedPolicy:
    """Policy that samples a fixed reply token by token and records the requests."""

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self.says = "In the garden."
        self.asked: list[SampleRequest] = []
        self.version = 0

    async def sample(self, request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        self.asked.append(request)
        for token in [*self.chat.encode(self.says), END][: request.max_tokens]:
            await asyncio.sleep(0)
            yield [SampledToken(token, -0.25, [(token, -0.25)] * request.top_logprobs)]


class GatewayHarness:
    """Gateway on a loopback port with one open session and an openai client."""

    def __init__(self, chat: ChatFormat) -> None:
        self.policy = ScriptedPolicy(chat)
        self.gateway = Gateway()
        self.session = self.open()
        self.key = self.gateway.open(self.session)
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self._serve()}/v1", api_key=self.key, max_retries=0
        )

    def open(self, **changes: Any) -> Session:
        settings: dict[str, Any] = {
            "chat": self.policy.chat, "policy": self.policy, "seed": 7, "temperature": 1.0,
            "free": False, "max_tokens": 200, "max_context": 400, "max_turns": 8,
        }  # fmt: skip
        return Session(**{**settings, **changes})

    def ask(self, **options: Any) -> Any:
        return self.client.chat.completions.create(model="policy", **{"messages": ASK, **options})

    def close(self) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join()

    def _serve(self) -> int:
        listening = socket.create_server(("127.0.0.1", 0))
        app = Starlette(routes=self.gateway.routes())
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()
        return int(listening.getsockname()[1])


@pytest.fixture
def harness(tiny_model: Path) -> Iterator[GatewayHarness]:
    with ChatFormat(check_folder(tiny_model, "tiny")) as chat:
        harness = GatewayHarness(chat)
        yield harness
        harness.close()
