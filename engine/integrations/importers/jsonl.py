"""Import of JSON Lines with chat messages in the OpenAI format.

A line is `{"messages": [...]}` with, optionally, `group` (trajectories of one task share it),
`reward`, `metrics`, `tools` and `title`, or just a list of messages. Without `group`, lines that
begin with the same messages up to the first answer form a group.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.integrations.importers.chat_messages import (
    WRONG,
    Source,
    TrajectoryBatch,
    as_scored,
    beginning_of,
    empty_source,
    figures_of,
    id_of,
    load_json,
    message_of,
    title_of,
    tools_of,
)
from engine.protocol.problems import ConfigError
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Trajectory
from engine.trust.files import open_regular

MOST_LINE_BYTES = 16 * 2**20
MOST_FILE_BYTES = 4 * 2**30
FORM = 'Write one {"messages": [...]} per line.'


def open_jsonl(file: Path) -> Source:
    """Return a source for one file, whose groups become one training step. Invalid lines raise
    ConfigError when they are read."""

    def lots() -> Iterator[TrajectoryBatch]:
        groups = [[_of_a_run(one) for one in group] for group in read_attempts(file)]
        yield TrajectoryBatch("train", 1, groups)

    return Source(file.stem, 1, lots)


def read_attempts(file: Path) -> list[list[Trajectory]]:
    """Read a file's trajectories as groups, in the order of each group's first line. Raises
    ConfigError with the first invalid line."""
    groups: dict[str, list[Trajectory]] = {}
    numbers: dict[str, int] = {}
    for number, line in read_lines(file):
        entry = _entry(line, f"{file}:{number}")
        messages = entry["messages"]
        group = _group(entry, messages)
        siblings = groups.setdefault(group, [])
        place = numbers.setdefault(group, len(numbers))
        siblings.append(_trajectory(entry, messages, place, len(siblings)))
    if not groups:
        raise empty_source(file, FORM)
    return list(groups.values())


def read_lines(file: Path, most_bytes: int = MOST_LINE_BYTES) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 and non-empty lines, one in memory at a time, without a byte order
    mark. Raises ConfigError for a line of more than `most_bytes` bytes or not UTF-8."""
    try:
        with open_regular(file) as source:
            if os.fstat(source.fileno()).st_size > MOST_FILE_BYTES:
                raise ValueError(f"it is larger than {MOST_FILE_BYTES >> 30} GB")
            number = 0
            while line := source.readline(most_bytes + 1):
                number += 1
                if len(line) > most_bytes:
                    raise ValueError(f"line {number} is longer than {most_bytes >> 20} MB")
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    raise ValueError(f"line {number} is not UTF-8") from None
                if text.strip():
                    yield number, text.removesuffix("\n")
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "attempts.unreadable",
            f"The file cannot be read: {getattr(error, 'strerror', None) or error}.",
            "Choose a JSON Lines file encoded in UTF-8.",
            where=str(file),
        ) from error


def _entry(line: str, where: str) -> dict[str, Any]:
    try:
        data = load_json(line)
        entry: dict[str, Any] = {"messages": data} if isinstance(data, list) else dict(data)
        messages = [message_of(message) for message in entry["messages"]]
        reward = entry.get("reward")
        if reward is not None and not math.isfinite(reward):
            raise ValueError(f"the reward {reward} is not finite")
        tools = tools_of(entry.get("tools"))
        metrics, unfit = figures_of(entry.get("metrics") or {})
        if unfit:
            raise ValueError("a metric is not finite")
    except WRONG as error:
        raise ConfigError.of(
            "attempts.wrong_line",
            "This line is not a trajectory.",
            'Write {"messages": [{"role": "user", "content": "…"}, …]}.',
            where=where,
            detail=str(error)[:500],
        ) from error
    return {**entry, "messages": messages, "metrics": metrics, "tools": tools}


def _group(entry: dict[str, Any], messages: list[Message]) -> str:
    if (group := entry.get("group")) is not None:
        return f"group {group}"
    return "\n".join(message.model_dump_json() for message in beginning_of(messages))


def _trajectory(
    entry: dict[str, Any], messages: list[Message], group: int, index: int
) -> Trajectory:
    reward = entry.get("reward")
    return Trajectory(
        id=f"i00000-{group:03d}-{index:03d}",
        split="train",
        step=0,
        group=group,
        index=index,
        scenario_id=f"group-{group + 1}",
        title=str(entry.get("title") or title_of(messages, f"group {group + 1}")),
        reward=reward,
        parts={} if reward is None else {"reward": reward},
        awaits_judge=reward is None,
        turns=sum(message.role == "assistant" for message in messages),
        messages=messages,
        metrics=entry["metrics"],
        tools=entry["tools"],
    )


def _of_a_run(one: Trajectory) -> Trajectory:
    """Return a trajectory that was read for judging as part of step 1."""
    place = {"id": id_of("train", 1, one.group, one.index), "step": 1}
    return as_scored(one.model_copy(update=place))
