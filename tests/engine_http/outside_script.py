"""Script with rollouts of its own over plain HTTP, as any library could send them."""

import os
import secrets
from pathlib import Path
from typing import Any

import httpx

from engine.protocol.config.algorithm import Algorithm
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.scripts import (
    CloseOutside,
    OpenOutside,
    OutsideRun,
    SentAttempt,
    SentError,
    SentGroup,
    Trained,
    TrainGroups,
)
from tests.engine_http.conftest import Engine

SETTINGS = {"model.dtype": "float32", "model.max_context": 256, "model.rank": 4}


class Script:
    """External script that samples, submits groups and closes its run."""

    def __init__(self, engine: Engine, model: Path, name: str = "agent-001") -> None:
        self.engine, self.name = engine, name
        self.key = secrets.token_hex(20)
        self.asked = OpenOutside(
            project="2048",
            model=name,
            base_model=str(model),
            source="a test 1.0",
            settings=SETTINGS,
            pid=os.getpid(),
            key=self.key,
        )

    def open(self, **changes: Any) -> OutsideRun:
        body = self.asked.model_copy(update=changes)
        self.found = self.engine.call(lambda client: client.open_outside(body))
        return self.found

    def ask(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        """Request a chat completion and return its choice."""
        answer = self.post(messages, **options)
        assert answer.status_code == 200, answer.text
        choice: dict[str, Any] = answer.json()["choices"][0]
        return choice

    def post(self, messages: list[dict[str, Any]], **options: Any) -> httpx.Response:
        body = {"model": self.name, "messages": messages, "max_tokens": 6, **options}
        return httpx.post(
            f"http://127.0.0.1:{self.engine.port}/v1/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=60,
            verify=False,
        )

    def play(self, task: str, turns: int = 2, **options: Any) -> list[dict[str, Any]]:
        """Run a conversation; return its messages and choices."""
        history: list[dict[str, Any]] = [{"role": "user", "content": task}]
        for turn in range(turns):
            messages = [one.get("message", one) for one in history]
            history.append(self.ask(messages, **options))
            if turn + 1 < turns:
                history.append({"role": "user", "content": f"and {turn}"})
        return history

    def groups(self, count: int = 2) -> list[SentGroup]:
        return [
            SentGroup(
                trajectories=[
                    SentAttempt(
                        messages_and_choices=self.play(f"task {number}"),
                        reward=float(index),
                        metrics={"moves": index + 1},
                        metadata={"scenario_id": f"s{number}"},
                        logs=["RULER explanation: fine"],
                    )
                    for index in range(3)
                ],
                exceptions=[SentError(type="<class 'ValueError'>", message="broke")],
            )
            for number in range(count)
        ]

    def train(self, groups: list[SentGroup], key: str = "", **changes: Any) -> Trained:
        body = TrainGroups(
            groups=groups,
            lr=1e-3,
            algorithm=Algorithm(preset="art"),
            key=key or secrets.token_hex(8),
        ).model_copy(update=changes)
        run = self.found.run.id
        return self.engine.call(lambda client: client.train_outside(run, body))

    def close(self) -> RunSummary:
        closing, run = CloseOutside(key=self.key), self.found.run.id
        return self.engine.call(lambda client: client.close_outside(run, closing))

    @property
    def summary(self) -> RunSummary:
        return self.engine.call(lambda client: client.run(self.found.run.id))
