"""Fixtures: a gateway on a loopback port and a scripted policy."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import uvicorn
from starlette.applications import Starlette

from engine.models.file_checks import check_folder
from engine.policy.base import SampledToken, SampleRequest
from engine.protocol.config.agent import ConversationsConfig
from engine.protocol.config.project import ModelConfig
from engine.rollout.conversations import Conversation
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.gateway.sessions import ProviderRecording, Session
from engine.rollout.recording import Recording
from engine.rollout.rendering.chat import ChatFormat
from tests.support.families import FAMILIES, make_family

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
        self.says_behind = ""
        """Reply to a prompt that ends with closed reasoning; `says` if empty."""
        self.at_once = 1
        """Tokens that arrive together."""
        self.delay_s = 0.0
        """Time before they do, in seconds."""

    async def sample(self, request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        self.asked.append(request)
        closed = self.chat.decode(request.tokens[-16:]).endswith("</think>\n\n")
        says = self.says_behind if closed and self.says_behind else self.says
        tokens = [*self.chat.encode(says), self.chat.stops[0]][: request.max_tokens]
        for start in range(0, len(tokens), self.at_once):
            await asyncio.sleep(self.delay_s)
            yield [
                SampledToken(token, -0.25, [(token, -0.25)] * request.top_logprobs)
                for token in tokens[start : start + self.at_once]
            ]


class GatewayHarness:
    """Gateway on a loopback port with one open session, and the official clients."""

    def __init__(self, chat: ChatFormat, **changes: Any) -> None:
        self.policy = ScriptedPolicy(chat)
        self.gateway = Gateway()
        self.session = self.open(**changes)
        self.key = self.gateway.open(self.session)
        url = f"http://127.0.0.1:{self._serve()}"
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=self.key, max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=url, api_key=self.key, max_retries=0)

    @property
    def prompt(self) -> str:
        """Text of the last prompt."""
        return self.policy.chat.decode(self.policy.asked[-1].tokens)

    def open(self, **changes: Any) -> Session:
        settings: dict[str, Any] = {
            "chat": self.policy.chat, "policy": self.policy, "seed": 7, "temperature": 1.0,
            "free": False, "max_tokens": 200, "max_context": 400, "max_turns": 8,
        }  # fmt: skip
        return Session(**{**settings, **changes})

    def ask(self, **options: Any) -> Any:
        return self.client.chat.completions.create(model="policy", **{"messages": ASK, **options})

    def respond(self, **options: Any) -> Any:
        options = {"model": "policy", "input": "Where is Ada?", **options}
        return self.client.responses.create(**options)

    def message(self, **options: Any) -> Any:
        options = {"model": "policy", "max_tokens": 500, "messages": ASK, **options}
        return self.anthropic.messages.create(**options)

    def close(self) -> None:
        self.client.close()
        self.anthropic.close()
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


@pytest.fixture(scope="package")
def qwen_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family(FAMILIES["Qwen3"], tmp_path_factory.mktemp("families") / "qwen3")


@pytest.fixture
def budgeted(qwen_folder: Path) -> Iterator[GatewayHarness]:
    """Gateway with the chat format of Qwen3 and a thinking budget of 8 tokens, in training."""
    model = ModelConfig(thinking_budget=8, keep_reasoning="always")
    with ChatFormat(qwen_folder, model) as chat:
        harness = GatewayHarness(chat, max_context=3000, max_turns=100)
        yield harness
        harness.close()


@pytest.fixture
def qwen(qwen_folder: Path) -> Iterator[GatewayHarness]:
    """Gateway with the chat format of Qwen3, which reasons and calls tools, in validation."""
    with ChatFormat(qwen_folder) as chat:
        settings = {"free": True, "max_tokens": 10_000, "max_context": 30_000, "max_turns": 100}
        harness = GatewayHarness(chat, **settings)
        yield harness
        harness.close()


def main_conversation(record: Recording | ProviderRecording) -> Conversation:
    """Main conversation of a rollout, without rules."""
    return record.conversations.named(ConversationsConfig())[0].conversation
