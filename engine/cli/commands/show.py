"""`show RUN ID`: one trajectory as text: reward, reason, messages, verdicts. No engine needed."""

import argparse
from collections.abc import Iterator

from engine.cli.run_lookup import reading
from engine.cli.terminal import duration, figure, say, say_json
from engine.protocol.problems import Refused
from engine.protocol.records.conversations import Message, in_text
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.run_db.reader import RunReader

INDENT = "    "
MOST_CALLS = 50


def run(arguments: argparse.Namespace) -> int:
    with reading(arguments.run) as reader:
        trajectory = _find(reader, arguments.trajectory)
        verdicts = reader.verdicts([trajectory.id])
    if arguments.json:
        say_json(trajectory)
        for verdict in verdicts:
            say_json(verdict)
        return 0
    say("\n".join(lines_of(trajectory, verdicts)))
    return 0


def _find(reader: RunReader, name: str) -> Trajectory:
    """Trajectory with this id, or the only one whose id ends with it. Raises Refused."""
    try:
        return reader.trajectory(name)
    except Refused as error:
        page = reader.trajectories(TrajectoryQuery(limit=1000))
        found = [row.id for row in page.items if row.id.lower().endswith(name.lower())]
        if len(found) != 1:
            raise Refused.of(
                "run.no_trajectory",
                f"{len(found) or 'No'} trajectories of this run have an id that ends with {name}.",
                "`atelier trajectories RUN` lists their ids.",
            ) from error
        return reader.trajectory(found[0])


def lines_of(one: Trajectory, verdicts: list[Verdict]) -> Iterator[str]:
    """Readable lines of a trajectory and its verdicts."""
    yield f"{one.id} · {one.split} step {one.step}, group {one.group + 1}, rollout {one.index + 1}"
    yield f"scenario   {one.scenario_id}: {one.title}"
    yield f"reward     {_reward(one)}"
    if one.problem:
        yield f"unscored   {one.problem}"
    yield f"advantage  {figure(one.advantage)}"
    tokens = f"{one.sampled_tokens} sampled tokens"
    yield f"rollout    {one.turns} turns · {tokens} · {duration(one.duration_s)}{_cut(one)}"
    if any(call.end_s for call in one.model_calls):
        yield f"calls      {_calls(one)}"
    if one.labels:
        yield f"labels     {', '.join(one.labels)}"
    for name, value in sorted(one.metrics.items()):
        yield f"metric     {name} {value:g}"
    for message in in_text(one.messages):
        yield ""
        yield from _message_lines(message)
    for number, other in enumerate(one.conversations[1:], 2):
        ignored = "" if other.trained else ", not trained"
        yield ""
        yield f"[conversation {number} of {len(one.conversations)}: {other.name}{ignored}]"
        for message in in_text(other.messages):
            yield ""
            yield from _message_lines(message)
    for verdict in verdicts:
        yield ""
        yield f"[judge {verdict.judge}] {figure(verdict.score)}"
        yield from _indented(str(verdict.problem) if verdict.problem else verdict.reason)
    if one.output:
        yield ""
        yield "[output of the agent]"
        yield from _indented(one.output)


def _reward(one: Trajectory) -> str:
    if one.reward is None:
        return "waiting for the judge" if one.awaits_judge else "none"
    parts = " + ".join(f"{name} {value:.2f}" for name, value in one.parts.items())
    return f"{figure(one.reward)}{f'  ({parts})' if parts else ''}"


def _calls(one: Trajectory) -> str:
    """Describe the time and size of each model call: "0.0–1.2 s, 840 → 56 tokens"."""
    return " · ".join(
        f"{call.start_s:.1f}–{call.end_s:.1f} s, "
        f"{call.prompt_tokens} → {call.completion_tokens} tokens"
        for call in one.model_calls[:MOST_CALLS]
    )


def _cut(one: Trajectory) -> str:
    return f" · truncated by {one.cut_by or 'a token limit'}" if one.truncated else ""


def _message_lines(message: Message) -> Iterator[str]:
    yield f"[{message.role}]"
    yield from _indented(message.content)
    for call in message.tool_calls:
        function = call.get("function", {})
        yield f"{INDENT}→ {function.get('name', '')}({function.get('arguments', '')})"


def _indented(text: str) -> Iterator[str]:
    return (INDENT + line for line in text.splitlines())
