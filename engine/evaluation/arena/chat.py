"""A person's question as an agent: it asks once, and hands on what is said as it comes."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from engine.protocol.problems import RolloutError
from engine.rollout.agents.processes import AgentResult, Attempt
from engine.runtime.timeouts import Away, never

PATIENCE_S = 600.0


class Chat:
    """Speaks through the gateway like every agent, so that what is said is recorded like all
    else."""

    def __init__(
        self,
        messages: list[dict[str, Any]],
        temperature: float,
        max_tokens: int,
        on_text: Callable[[str], None],
    ) -> None:
        self._asked = {
            "messages": messages,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "stream": True,
        }
        self._on_text = on_text

    async def run(self, attempt: Attempt, away: Away = never) -> AgentResult:
        """Raises RolloutError where there is no answer. Nobody has scored it yet."""
        async with (
            httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client,
            client.stream(
                "POST",
                f"{attempt.base_url}/chat/completions",
                json={"model": attempt.model, **self._asked},
                headers={"Authorization": f"Bearer {attempt.api_key}"},
            ) as answer,
        ):
            if answer.is_error:
                raise _refused(await answer.aread())
            async for line in answer.aiter_lines():
                data = line.removeprefix("data: ")
                if line.startswith("data: ") and data != "[DONE]":
                    self._take(data)
        return AgentResult({}, {}, "")

    def _take(self, data: str) -> None:
        event = json.loads(data)
        if "error" in event:
            raise _refused(data.encode())
        for choice in event["choices"]:
            if text := choice["delta"].get("content"):
                self._on_text(text)


def _refused(body: bytes) -> RolloutError:
    said = json.loads(body)["error"]
    return RolloutError.of(said.get("code") or said["type"], said["message"])
