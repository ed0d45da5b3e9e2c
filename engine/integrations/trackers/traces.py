"""Conversion of a trajectory into the spans of one trace, by OpenTelemetry's GenAI conventions.
Pure.

A root span `invoke_agent`, and one `chat` per model call with operation, model and token counts.
Reward, parts and advantage are attributes of the root, and each verdict is an event
`gen_ai.evaluation.result` (opentelemetry.io/docs/specs/semconv/gen-ai). Ids derive from run and
trajectory, so a repeated upload is the same trace. Message texts are only sent with `content`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Message, in_text
from engine.protocol.records.judging import PART, Verdict
from engine.protocol.records.runs import RunSpec, Trajectory

Span = dict[str, Any]
PROVIDER = "atelier"


@dataclass(frozen=True)
class TraceContext:
    """Data that all traces of a run to one service share."""

    spec: RunSpec
    content: bool
    langfuse: bool = False
    """Whether to add the attributes that Langfuse shows in its lists
    (langfuse.com/integrations/native/opentelemetry)."""

    def spans(self, one: Trajectory, verdicts: Sequence[Verdict], at: float) -> list[Span]:
        """Return the spans of a trajectory, root first, with the verdicts as events. `at` is when
        its group was scored, in Unix seconds."""
        started_at = one.started_at or at - one.duration_s
        calls = _calls(one)
        root: Span = {
            **self._ids(one, "agent"),
            "parent_id": "",
            "name": f"invoke_agent {self.spec.project}",
            "kind": "internal",
            "start_ns": _ns(started_at),
            "end_ns": _ns(started_at + one.duration_s),
            "attributes": self._agent(one, calls) | (self._listed(one) if self.langfuse else {}),
            "events": [self._verdict(verdict, at) for verdict in verdicts],
            "error": self._wrong(one.problem),
        }
        return [root, *(self._chat(one, call, started_at, root["span_id"]) for call in calls)]

    def _wrong(self, problem: Problem | None) -> str:
        """Error message or, without `content`, only its code: messages may quote texts."""
        if problem is None:
            return ""
        return problem.message if self.content else problem.code

    def _agent(self, one: Trajectory, calls: "list[Call]") -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.agent.name": self.spec.project,
            "gen_ai.conversation.id": f"{self.spec.id}/{one.id}",
            "gen_ai.request.model": self.spec.config.model.name,
            "gen_ai.usage.input_tokens": sum(call.prompt_tokens for call in calls),
            "gen_ai.usage.output_tokens": sum(call.completion_tokens for call in calls),
            "session.id": self.spec.id,
            "atelier.run.name": self.spec.name,
            "atelier.split": one.split,
            "atelier.step": one.step,
            "atelier.group": one.group,
            "atelier.index": one.index,
            "atelier.scenario.id": one.scenario_id,
            "atelier.truncated": one.truncated,
            "atelier.policy.version": one.policy_version,
        }
        if one.problem is not None:
            attributes["error.type"] = one.problem.code
        if one.reward is not None:
            attributes["atelier.reward"] = one.reward
        if one.advantage is not None:
            attributes["atelier.advantage"] = one.advantage
        attributes |= {f"atelier.reward.part.{name}": value for name, value in one.parts.items()}
        attributes |= {f"atelier.metric.{name}": value for name, value in one.metrics.items()}
        return attributes | (_conversation(one.messages, len(one.messages)) if self.content else {})

    def _listed(self, one: Trajectory) -> dict[str, Any]:
        name = f"{self.spec.project} · {one.scenario_id}"
        shown = {"step": one.step, "reward": one.reward, "advantage": one.advantage}
        return {
            "langfuse.trace.name": name,
            "langfuse.session.id": self.spec.id,
            "langfuse.trace.tags": [self.spec.project, one.split],
            **{f"langfuse.trace.metadata.{k}": v for k, v in shown.items() if v is not None},
        }

    def _chat(self, one: Trajectory, call: "Call", started_at: float, parent: str) -> Span:
        train, model = self.spec.config.train, self.spec.config.model.name
        first, last = call.times or (0.0, one.duration_s)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": model,
            "gen_ai.request.max_tokens": train.max_tokens,
            "gen_ai.usage.input_tokens": call.prompt_tokens,
            "gen_ai.usage.output_tokens": call.completion_tokens,
            "session.id": self.spec.id,
        }
        if self.content and call.message is not None:
            attributes |= _conversation(one.messages, call.message + 1)
        elif self.content:
            attributes["gen_ai.output.messages"] = json.dumps([_text("assistant", call.text)])
        return {
            **self._ids(one, f"chat {call.branch} {call.number}"),
            "parent_id": parent,
            "name": f"chat {model}",
            "kind": "client",
            "start_ns": _ns(started_at + first),
            "end_ns": _ns(started_at + last),
            "attributes": attributes,
            "events": [],
            "error": "",
        }

    def _verdict(self, verdict: Verdict, at: float) -> dict[str, Any]:
        values: dict[str, Any] = {"gen_ai.evaluation.name": PART, "atelier.judge": verdict.judge}
        if verdict.score is not None:
            values["gen_ai.evaluation.score.value"] = verdict.score
        if verdict.problem is not None:
            values["error.type"] = verdict.problem.code
        if self.content and verdict.reason:
            values["gen_ai.evaluation.explanation"] = verdict.reason
        return {"name": "gen_ai.evaluation.result", "at_ns": _ns(at), "attributes": values}

    def _ids(self, one: Trajectory, what: str) -> dict[str, str]:
        trace = f"{self.spec.id}/{one.id}"
        return {"trace_id": _digest(trace, 32), "span_id": _digest(f"{trace}/{what}", 16)}


@dataclass(frozen=True)
class Call:
    """Model call of a rollout."""

    branch: int
    number: int
    prompt_tokens: int
    """Number of prompt tokens."""
    completion_tokens: int
    times: tuple[float, float] | None
    """Start and end, in seconds since the start of the rollout."""
    text: str
    message: int | None
    """Index of its answer in the messages; None if unknown."""


def _calls(one: Trajectory) -> list[Call]:
    """Model calls of each branch in order; a prompt is all tokens before the answer."""
    answers = [n for n, message in enumerate(one.messages) if message.role == "assistant"]
    alone = len(one.branches) == 1 and len(one.branches[0].turns) == len(answers)
    return [
        Call(
            branch=place,
            number=number,
            prompt_tokens=start,
            completion_tokens=end - start,
            times=branch.times[number] if branch.times else None,
            text="".join(branch.pieces[start:end]),
            message=answers[number] if alone else None,
        )
        for place, branch in enumerate(one.branches)
        for number, (start, end) in enumerate(branch.turns)
    ]


def _conversation(messages: Sequence[Message], until: int) -> dict[str, str]:
    """Return attributes with the first `until` messages, the last as output if by the model."""
    prompt = in_text(messages)[:until]
    answer = prompt.pop() if prompt and prompt[-1].role == "assistant" else None
    values = {"gen_ai.input.messages": json.dumps([_message(one) for one in prompt])}
    if answer is not None:
        finish = "tool_call" if answer.tool_calls else "stop"
        values["gen_ai.output.messages"] = json.dumps(
            [{**_message(answer), "finish_reason": finish}]
        )
    return values


def _message(one: Message) -> dict[str, Any]:
    if one.role == "tool":
        response = {"type": "tool_call_response", "id": one.tool_call_id, "response": one.content}
        return {"role": "tool", "parts": [response]}
    parts = _text(one.role, one.content)["parts"] if one.content else []
    for call in one.tool_calls:
        function = call.get("function", {})
        identity = {"id": call.get("id"), "name": function.get("name")}
        parts.append({"type": "tool_call", **identity, "arguments": function.get("arguments")})
    return {"role": one.role, "parts": parts}


def _text(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
