"""Group for testing a judge: a rollout of the project's agent from the arena, if there is one,
beside a made-up one."""

import json
from datetime import UTC, datetime
from typing import Any

from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Scenario, Trajectory
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.run_db.reader import RunReader

MADE_UP, UNHELPFUL = "made-up", "unhelpful"
"""Ids of made-up trajectories."""
NEWEST = 50
"""Number of latest arena trajectories among which to look for one of the agent."""


def check_group(scenario: Scenario, attempt: Trajectory | None, at: float) -> list[Trajectory]:
    """Return two trajectories of a scenario to test a judge: `attempt` (None: a made-up one) and a
    bad one. The text contains the time `at` (Unix seconds), so that no stored answer of the judge
    is reused."""
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    words = f"This answer was made up at {when} to test the judge. It does not solve the task."
    if attempt is None:
        task = Message(role="user", content=json.dumps(scenario.data, ensure_ascii=False))
        attempt = _made(scenario, MADE_UP, 0, [task, _says("I do not know.")])
    start = []
    for message in attempt.messages:
        if message.role == "assistant":
            break
        start.append(message)
    return [attempt, _made(scenario, UNHELPFUL, 1, [*start, _says(words)])]


def newest_attempt(
    reader: RunReader, scenarios: list[Scenario]
) -> tuple[Scenario, Trajectory] | None:
    """Return the newest trajectory of the project's side-by-side chat that its agent made on one of
    these scenarios, with the scenario; None without one. Failed rollouts, which no judge can
    compare, are skipped."""
    by_id: dict[str, Scenario] = {one.id: one for one in scenarios}
    page = reader.trajectories(TrajectoryQuery(sort="recent", limit=NEWEST))
    for row in page.items:
        good = row.problem is None or row.problem.code.startswith(("judge.", "reward."))
        if good and row.turns and row.scenario_id in by_id:
            return by_id[row.scenario_id], reader.trajectory(row.id)
    return None


def last_words(attempt: Trajectory, most: int) -> str:
    """Last non-empty message of the model, cut to `most` characters; empty without one."""
    texts = [m.content for m in attempt.messages if m.role == "assistant" and m.content.strip()]
    return texts[-1].strip()[:most] if texts else ""


def _made(scenario: Scenario, name: str, index: int, messages: list[Message]) -> Trajectory:
    known: dict[str, Any] = {"scenario_id": scenario.id, "title": scenario.title, "reward": None}
    return Trajectory(
        id=name, split="validation", step=0, group=0, index=index, messages=messages, **known
    )


def _says(words: str) -> Message:
    return Message(role="assistant", content=words)
