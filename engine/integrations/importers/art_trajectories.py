"""Conversion of ART's groups into trajectories.

Rewards, metrics, tools and messages are kept as they are. Data without a field here (metadata,
logs, further histories) is stored as the rollout's output; a trajectory with an exception is
unscored.
"""

import hashlib
import math
import re
from typing import Any

from engine.integrations.importers.art_groups import ArtAttempt, ArtGroup, bad_row
from engine.integrations.importers.chat_messages import (
    WRONG,
    Conversation,
    as_scored,
    as_text,
    conversation,
    conversations_of_calls,
    figures_of,
    id_of,
    title_of,
    tools_of,
)
from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Split, Trajectory

SCENARIO = "scenario_id"
DURATION = "duration"
"""Metric in which ART's Trajectory.finish() stores seconds."""


def attempts_of(
    found: ArtGroup, split: Split, step: int, number: int, prefix: str = ""
) -> tuple[list[Trajectory], int]:
    """Return the trajectories of an ART group as group `number` of a step (those that raised come
    last), and the number of metrics that were not finite. `prefix` precedes the scenario ids.
    Raises ConfigError with the invalid line or row."""
    what = "row" if ", row " in found.where else "line"
    made, dropped = [], 0
    for attempt in found.attempts:
        try:
            one, lost = _attempt(found, attempt)
        except WRONG as error:
            raise bad_row(what, attempt.where, error) from error
        made.append(one)
        dropped += lost
    try:
        made += [_raised(found, one) for one in found.data.get("exceptions") or []]
    except WRONG as error:
        raise bad_row(what, found.where, error) from error
    scenario, title = _task(made, number)
    placed = [
        one.model_copy(
            update={
                "id": id_of(split, step, number, index),
                "split": split,
                "step": step,
                "group": number,
                "index": index,
                "scenario_id": prefix + (one.scenario_id or scenario),
                "title": one.title or title,
            }
        )
        for index, one in enumerate(made)
    ]
    return placed, dropped


def _attempt(group: ArtGroup, attempt: ArtAttempt) -> tuple[Trajectory, int]:
    data = attempt.data
    conversations, tools = _conversations(data)
    main, others = conversations[-1], conversations[:-1]
    for history in data.get("additional_histories") or []:
        others.append(conversation(history["messages_and_choices"]))
    reward = data["reward"]
    known = reward is not None and math.isfinite(reward)
    own = data.get("metrics") or {}
    shared = {f"group_{name}": value for name, value in (group.data.get("metrics") or {}).items()}
    metrics, dropped = figures_of({**shared, **own})
    one = Trajectory(
        id="",
        split="train",
        step=0,
        group=0,
        index=0,
        scenario_id=_scenario(group.data, data, main.messages),
        title=title_of(main.messages, ""),
        reward=reward if known else None,
        parts={"reward": reward} if known else {},
        turns=sum(message.role == "assistant" for message in main.messages),
        sampled_tokens=sum(each.tokens for each in conversations),
        truncated=any(each.truncated for each in conversations),
        duration_s=metrics.get(DURATION, 0.0),
        messages=main.messages,
        metrics=metrics,
        tools=tools,
        output=_output(group.data, data, others),
        policy_version=data.get("initial_policy_version") or 0,
    )
    return as_scored(one), dropped


def _conversations(data: dict[str, Any]) -> tuple[list[Conversation], list[dict[str, Any]]]:
    """Return conversations, the main one last, and tool definitions."""
    written = conversation(data.get("messages_and_choices") or [])
    if written.messages or not data.get("exchanges"):
        return [written], tools_of(data.get("tools"))
    conversations, tools = conversations_of_calls(data["exchanges"])
    return conversations or [written], tools_of(data.get("tools")) or tools


def _raised(group: ArtGroup, error: dict[str, str]) -> Trajectory:
    name = re.sub(r"^<class '(?:.*\.)?(\w+)'>$", r"\1", error["type"])
    problem = Problem(
        code="import.exception",
        message=f"The agent raised {name}: {error['message']}"[:500],
        detail=str(error.get("traceback") or ""),
    )
    return Trajectory(
        id="",
        split="train",
        step=0,
        group=0,
        index=0,
        scenario_id="",
        title="",
        reward=None,
        problem=problem,
        output=_output(group.data, {}, []),
    )


def _scenario(group: dict[str, Any], own: dict[str, Any], messages: list[Message]) -> str:
    """Return the scenario id of ART's metadata, or a hash of the messages before the first answer,
    which are the same for trajectories of one task."""
    for metadata in (group.get("metadata") or {}, own.get("metadata") or {}):
        if (name := metadata.get(SCENARIO)) is not None:
            return str(name)
    digest = hashlib.sha256()
    for message in messages:
        if message.role == "assistant":
            break
        digest.update(message.model_dump_json().encode())
    return digest.hexdigest()[:12] if messages else ""


def _task(siblings: list[Trajectory], number: int) -> tuple[str, str]:
    """Return scenario id and title for trajectories without them."""
    scenario = next((one.scenario_id for one in siblings if one.scenario_id), f"group-{number + 1}")
    return scenario, next((one.title for one in siblings if one.title), f"group {number + 1}")


def _output(group: dict[str, Any], own: dict[str, Any], others: list[Conversation]) -> str:
    lines = [f"{name}: {value}" for name, value in (own.get("metadata") or {}).items()]
    lines += [f"group {name}: {value}" for name, value in (group.get("metadata") or {}).items()]
    lines += [str(line) for line in own.get("logs") or []]
    lines += [f"group: {line}" for line in group.get("logs") or []]
    for number, other in enumerate(others, 2):
        lines += ["", f"Conversation {number} of this rollout:", as_text(other.messages)]
    return "\n".join(lines).strip()
