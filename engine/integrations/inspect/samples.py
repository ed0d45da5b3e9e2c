"""Trajectories of an evaluation as samples of an Inspect log: messages, output, scores and usage.

The form is that of `EvalSample` in inspect_ai 0.3 (log format version 2).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from engine.protocol.records.conversations import Message, in_text
from engine.protocol.records.judging import PART, Verdict, chief_verdict
from engine.protocol.records.runs import Scenario, Trajectory

Json = dict[str, Any]
REWARD = "reward"
TARGETS = ("target", "answer", "expected")
"""Keys of a scenario whose value is its target, if it is text."""
ROLES = ("system", "user", "assistant", "tool")
MOST_SUMMARY = 1000
"""Maximum number of characters of a text in the summary of a sample, as in Inspect's own."""


def sample_of(
    one: Trajectory,
    scenario: Scenario,
    name: str,
    epoch: int,
    model: str,
    verdicts: Sequence[Verdict] = (),
) -> Json:
    """Sample of a trajectory. `name`: id of the sample; `epoch`: number of the attempt, from 1;
    `verdicts`: of the judges on the trajectory. An unscored trajectory has an error and no
    scores."""
    messages = [
        _message(message, f"{one.id}-{place}", model)
        for place, message in enumerate(in_text(one.messages))
    ]
    start = next((n for n, m in enumerate(messages) if m["role"] == "assistant"), len(messages))
    first = messages[:start]
    is_text = len(first) == 1 and first[0]["role"] == "user"
    usage = {model: usage_of([one])} if one.model_calls else {}
    found: Json = {
        "id": name,
        "epoch": epoch,
        "input": (first[0]["content"] if is_text else first) or scenario.title,
        "target": _target(scenario.data),
        "messages": messages,
        "output": _output(one, messages, model),
        "scores": _scores(one, verdicts) if one.reward is not None else {},
        "metadata": {"scenario": scenario.data, **one.metrics}
        | ({"printed": one.output} if one.output else {}),
        "store": {},
        "events": [],
        "model_usage": usage,
        "role_usage": {},
        "total_time": one.duration_s,
        "working_time": one.duration_s,
        "uuid": one.id,
        "error_retries": [],
        "attachments": {},
    }
    if one.started_at:
        found["started_at"] = iso_time(one.started_at)
        found["completed_at"] = iso_time(one.started_at + one.duration_s)
    if one.reward is None:
        words = one.problem.message if one.problem else "The trajectory has no reward."
        detail = one.problem.detail if one.problem else ""
        found["error"] = {"message": words, "traceback": detail, "traceback_ansi": detail}
    return found


def summary_of(sample: Json) -> Json:
    """Summary of a sample for the list of samples, with long texts shortened."""
    messages = sample["messages"]
    keys = ("id", "epoch", "target", "scores", "model_usage", "role_usage", "total_time", "uuid")
    times = ("started_at", "completed_at", "working_time")
    found = {key: sample[key] for key in (*keys, *times) if key in sample}
    text = sample["input"]
    found["input"] = (
        _shortened(text)
        if isinstance(text, str)
        else [one | {"content": _shortened(_text(one))} for one in text]
    )
    found["metadata"] = {
        key: value for key, value in sample["metadata"].items() if isinstance(value, int | float)
    }
    found["scores"] = {
        key: value | {"explanation": _shortened(value.get("explanation") or "")}
        for key, value in sample["scores"].items()
    }
    if "error" in sample:
        found["error"] = sample["error"]["message"]
    turns = sum(one["role"] == "assistant" for one in messages)
    return found | {
        "completed": True,
        "retries": 0,
        "message_count": len(messages),
        "turn_count": turns,
    }


def usage_of(trajectories: Iterable[Trajectory]) -> dict[str, int]:
    """Sums of the tokens of all model calls whose sizes are known."""
    calls = [call for one in trajectories for call in one.model_calls]
    read = sum(call.prompt_tokens or 0 for call in calls)
    written = sum(call.completion_tokens or 0 for call in calls)
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}


def iso_time(seconds: float) -> str:
    """Unix time in seconds → ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _target(data: Mapping[str, Any]) -> str | list[str]:
    """Target of a scenario, or of the row of a data set in it; empty if it has none."""
    row = data.get("row")
    for place in (row if isinstance(row, dict) else {}, data):
        for key in TARGETS:
            value = place.get(key)
            if isinstance(value, str):
                return value
            if isinstance(value, list) and all(isinstance(one, str) for one in value):
                return value
    return ""


def _message(message: Message, name: str, model: str) -> Json:
    role = message.role if message.role in ROLES else "user"
    found: Json = {"id": name, "role": role, "content": message.content}
    if message.reasoning:
        reasoning = {"type": "reasoning", "reasoning": message.reasoning}
        found["content"] = [reasoning, {"type": "text", "text": message.content}]
    if role == "assistant":
        found |= {"source": "generate", "model": model}
        if message.tool_calls:
            found["tool_calls"] = [_tool_call(call, n) for n, call in enumerate(message.tool_calls)]
    if role == "tool":
        found["tool_call_id"] = message.tool_call_id
        found["function"] = message.name
    return {key: value for key, value in found.items() if value is not None}


def _tool_call(call: Json, number: int) -> Json:
    """OpenAI's tool call in Inspect's form; arguments that are no JSON object become its error."""
    function = call.get("function") or {}
    text = function.get("arguments") or "{}"
    found: Json = {
        "id": str(call.get("id") or f"call_{number}"),
        "function": str(function.get("name") or ""),
        "arguments": {},
        "type": "function",
    }
    try:
        arguments = json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        return found | {"parse_error": f"{error}: {text}"}
    if not isinstance(arguments, dict):
        return found | {"parse_error": f"The arguments are no JSON object: {text}"}
    return found | {"arguments": arguments}


def _output(one: Trajectory, messages: Sequence[Json], model: str) -> Json:
    """Last answer of the model, with the tokens of all its calls."""
    answers = [message for message in messages if message["role"] == "assistant"]
    if not answers:
        return {"model": model, "choices": [], "completion": ""}
    last = answers[-1]
    stop = {"context": "model_length"}.get(one.cut_by, "max_tokens") if one.truncated else "stop"
    if "tool_calls" in last and not one.truncated:
        stop = "tool_calls"
    choice = {"message": last, "stop_reason": stop}
    output = {"model": model, "choices": [choice], "completion": _text(last)}
    return output | ({"usage": usage_of([one])} if one.model_calls else {})


def _text(message: Json) -> str:
    content = message["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])


def _scores(one: Trajectory, verdicts: Sequence[Verdict]) -> dict[str, Json]:
    """Reward and reward parts, each a number; the judge's reason explains its part."""
    parts = {name: value for name, value in one.parts.items() if name != REWARD}
    scores: dict[str, Json] = {
        name: {"value": value, "history": []}
        for name, value in {REWARD: one.reward, **parts}.items()
    }
    verdict = chief_verdict(one, verdicts)
    if verdict is not None and verdict.reason and PART in scores:
        scores[PART]["explanation"] = verdict.reason
    return scores


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_SUMMARY else f"{text[:MOST_SUMMARY]}…"
