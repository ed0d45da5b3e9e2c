"""Trajectories as OpenTelemetry spans: timed model calls, figures, text only if enabled."""

import json

from engine.integrations.trackers.traces import TraceContext
from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import Trajectory
from tests.engine.integrations.trackers.test_metrics import spec

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TWO_TURNS = Trajectory(
    id="t00001-000-000", split="train", step=1, group=0, index=0, scenario_id="s1", title="One",
    reward=0.5, advantage=-0.25, parts={"rules": 0.5}, turns=2, sampled_tokens=5, duration_s=3.0,
    started_at=100.0, metrics={"moves": 2.0},
    messages=[
        Message(role="user", content="Find it."),
        Message(role="assistant", tool_calls=[CALL]),
        Message(role="tool", content="Here.", tool_call_id="c1"),
        Message(role="assistant", content="Found."),
    ],
    branches=[Branch(
        tokens=list(range(12)), spans=[(4, 6), (9, 12)], logprobs=[-1.0] * 5,
        pieces=[f"p{n} " for n in range(12)], times=[(0.5, 1.0), (2.0, 2.75)],
    )],
)  # fmt: skip
VERDICT = Verdict(
    trajectory_id=TWO_TURNS.id, judge="openai/x", rubric="r", score=0.75, reason="Good work."
)


def test_model_call_spans_are_children_of_the_rollout() -> None:
    root, first, second = TraceContext(spec(), content=False).spans(TWO_TURNS, [VERDICT], 110.0)
    assert (root["name"], root["kind"], root["parent_id"]) == ("invoke_agent inbox", "internal", "")
    assert (root["start_ns"], root["end_ns"]) == (100 * 10**9, 103 * 10**9)
    assert (first["start_ns"], first["end_ns"]) == (int(100.5e9), 101 * 10**9)
    assert (second["start_ns"], second["end_ns"]) == (102 * 10**9, int(102.75e9))
    for call, input_tokens, sampled in ((first, 4, 2), (second, 9, 3)):
        assert call["parent_id"] == root["span_id"]
        assert call["trace_id"] == root["trace_id"]
        assert call["kind"] == "client"
        attributes = call["attributes"]
        assert attributes["gen_ai.operation.name"] == "chat"
        assert attributes["gen_ai.usage.input_tokens"] == input_tokens
        assert attributes["gen_ai.usage.output_tokens"] == sampled
    attributes = root["attributes"]
    assert (attributes["atelier.reward"], attributes["atelier.advantage"]) == (0.5, -0.25)
    assert attributes["gen_ai.usage.output_tokens"] == 5
    assert (attributes["atelier.reward.part.rules"], attributes["atelier.metric.moves"]) == (
        0.5,
        2.0,
    )
    [event] = root["events"]
    assert event["name"] == "gen_ai.evaluation.result"
    assert event["attributes"]["gen_ai.evaluation.score.value"] == 0.75


def test_text_is_not_sent_by_default() -> None:
    spans = json.dumps(TraceContext(spec(), content=False).spans(TWO_TURNS, [VERDICT], 110.0))
    for word in ("Find it", "Found", "Here", "Good work", "look", "p4", "One"):
        assert word not in spans


def test_text_follows_the_semantic_conventions_if_enabled() -> None:
    root, first, _ = TraceContext(spec(), content=True).spans(TWO_TURNS, [VERDICT], 110.0)
    inputs = json.loads(root["attributes"]["gen_ai.input.messages"])
    assert [message["role"] for message in inputs] == ["user", "assistant", "tool"]
    assert inputs[1]["parts"] == [
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": "{}"}
    ]
    assert inputs[2]["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "Here."}]
    assert json.loads(root["attributes"]["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "Found."}],
            "finish_reason": "stop",
        }
    ]
    output = json.loads(first["attributes"]["gen_ai.output.messages"])
    assert output[0]["finish_reason"] == "tool_call"
    assert root["events"][0]["attributes"]["gen_ai.evaluation.explanation"] == "Good work."


def test_unscored_rollout_has_an_error_and_no_reward() -> None:
    problem = Problem(code="agent.timeout", message="It took too long.")
    failed = TWO_TURNS.model_copy(update={"reward": None, "advantage": None, "problem": problem})
    root = TraceContext(spec(), content=False).spans(failed, [], 110.0)[0]
    assert root["attributes"]["error.type"] == "agent.timeout"
    assert root["error"] == "agent.timeout"
    assert not [key for key in root["attributes"] if key in ("atelier.reward", "atelier.advantage")]


def test_error_text_is_sent_only_if_content_is_enabled() -> None:
    words = "The agent raised ValueError: bad answer: 'Found.'"
    problem = Problem(code="agent.raised", message=words, detail=words)
    failed = TWO_TURNS.model_copy(update={"reward": None, "problem": problem})
    without_content = TraceContext(spec(), content=False, langfuse=True).spans(failed, [], 110.0)
    assert "Found" not in json.dumps(without_content)
    assert TraceContext(spec(), content=True).spans(failed, [], 110.0)[0]["error"] == words


def test_span_ids_are_deterministic() -> None:
    def ids() -> list[tuple[str, str]]:
        spans = TraceContext(spec(), content=False).spans(TWO_TURNS, [], 110.0)
        return [(span["trace_id"], span["span_id"]) for span in spans]

    assert ids() == ids()
    assert len(set(ids())) == 3
    assert {(len(trace), len(span)) for trace, span in ids()} == {(32, 16)}


def test_branch_spans_contain_the_sampled_text() -> None:
    forked = TWO_TURNS.model_copy(update={"branches": [*TWO_TURNS.branches] * 2})
    spans = TraceContext(spec(), content=True).spans(forked, [], 110.0)
    assert len(spans) == 5
    output = json.loads(spans[1]["attributes"]["gen_ai.output.messages"])
    assert output[0]["parts"][0]["content"] == "p4 p5 "
