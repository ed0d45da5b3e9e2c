"""Attempts from elsewhere → trajectories: JSON Lines of chat messages in the OpenAI form.

A line is `{"messages": [...]}` with, if it has them, `group` (attempts of one task share it),
`reward`, `tools` and `title`, or just a list of messages. Without `group`, attempts that begin with
the same messages up to the first answer belong together.
"""

import json
import math
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.protocol.problems import ConfigError
from engine.protocol.records import Message, Trajectory


def read_attempts(file: Path) -> list[list[Trajectory]]:
    """Groups in the order of their first attempt. Raises ConfigError with the wrong line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.of(
            "attempts.unreadable", "The file cannot be read.", where=str(file), detail=str(error)
        ) from error
    groups: dict[str, list[Trajectory]] = {}
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            entry = _entry(line, f"{file}:{number}")
            messages = entry["messages"]
            group = _group(entry, messages)
            siblings = groups.setdefault(group, [])
            place = numbers.setdefault(group, len(numbers))
            siblings.append(_trajectory(entry, messages, place, len(siblings)))
    if not groups:
        raise ConfigError.of(
            "attempts.none",
            "The file holds no attempts.",
            'Write one {"messages": [...]} a line.',
            where=str(file),
        )
    return list(groups.values())


def _entry(line: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
        entry: dict[str, Any] = {"messages": data} if isinstance(data, list) else dict(data)
        messages = [Message.model_validate(_plain(message)) for message in entry["messages"]]
        reward = entry.get("reward")
        if reward is not None and not math.isfinite(reward):
            raise ValueError(f"the reward {reward} is no number")
    except (ValueError, TypeError, KeyError, AttributeError, ValidationError) as error:
        raise ConfigError.of(
            "attempts.wrong_line",
            "This line is not an attempt.",
            'Write {"messages": [{"role": "user", "content": "…"}, …]}.',
            where=where,
            detail=str(error)[:500],
        ) from error
    return {**entry, "messages": messages}


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """Absent content is empty; content in parts is its text."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    return {**message, "content": content, "tool_calls": message.get("tool_calls") or []}


def _group(entry: dict[str, Any], messages: list[Message]) -> str:
    if (group := entry.get("group")) is not None:
        return f"group {group}"
    start = []
    for message in messages:
        if message.role == "assistant":
            break
        start.append(message.model_dump_json())
    return "\n".join(start)


def _trajectory(
    entry: dict[str, Any], messages: list[Message], group: int, index: int
) -> Trajectory:
    reward = entry.get("reward")
    asked = next((m.content for m in messages if m.role == "user"), "")
    title = str(entry.get("title") or " ".join(asked.split())[:80] or f"group {group + 1}")
    return Trajectory(
        id=f"i00000-{group:03d}-{index:03d}",
        split="train",
        step=0,
        group=group,
        index=index,
        scenario_id=f"group-{group + 1}",
        title=title,
        reward=reward,
        parts={} if reward is None else {"reward": reward},
        awaits_judge=reward is None,
        turns=sum(message.role == "assistant" for message in messages),
        messages=messages,
        tools=entry.get("tools") or [],
    )
