"""Files of traces in every format become the same trajectory."""

import json
from pathlib import Path

import pytest

from engine.integrations.importers.storage import open_source
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Trajectory
from tests.engine.integrations.importers.conftest import import_source
from tests.engine.integrations.importers.traces.files import (
    CONVERSATION,
    FINAL,
    FORMATS,
    QUESTION,
    SYSTEM,
    TOOL,
    TRACE,
    by_time,
    genai_calls,
    langfuse_calls,
    observation,
    openinference_calls,
    otlp,
    otlp_span,
    phoenix_span,
    responses_calls,
    write_lines,
)


def read(file: Path) -> list[list[Trajectory]]:
    (batch,) = open_source(file).lots()
    return batch.groups


@pytest.mark.parametrize("layout", ["lines", "indented"])
@pytest.mark.parametrize("name", FORMATS)
def test_calls_become_one_trajectory(tmp_path: Path, name: str, layout: str) -> None:
    file = tmp_path / "export.json"
    indent = None if layout == "lines" else 2
    file.write_text("\n".join(json.dumps(one, indent=indent) for one in FORMATS[name]) + "\n")
    ((one,),) = read(file)
    assert [m.role for m in one.messages] == [message["role"] for message in CONVERSATION]
    assert [m.content for m in one.messages] == [message["content"] for message in CONVERSATION]
    (call,) = one.messages[2].tool_calls
    assert (call["id"], call["function"]["name"]) == ("c1", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    assert one.messages[3].tool_call_id == "c1"
    assert one.tools == [{"type": "function", "function": TOOL}]
    assert (one.reward, one.turns, one.group) == (None, 2, 0)
    assert one.problem is not None
    assert one.problem.code == "judge.unrewarded"
    assert one.started_at > 1_600_000_000
    assert "Trace: t1" in one.output


def test_reasoning_and_truncation_of_a_call_are_kept(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.json", *FORMATS["genai"])
    ((one,),) = read(file)
    assert one.messages[2].reasoning == "Look it up."
    assert one.truncated


def test_side_calls_are_conversations_and_equal_starts_form_a_group(
    project: Path, tmp_path: Path
) -> None:
    other = {"role": "assistant", "content": "It snows."}
    side = {"role": "user", "content": "Summarise"}
    file = write_lines(
        tmp_path / "a.jsonl",
        observation(1, [SYSTEM, QUESTION], FINAL),
        observation(2, [side], "Short"),
        observation(3, [SYSTEM, QUESTION, FINAL, side], "Longer"),
        observation(4, [SYSTEM, QUESTION], other, trace="t2"),
        observation(5, [SYSTEM, QUESTION], other, trace="t3"),
        observation(6, None, None, trace="t3"),
        {"id": "x", "traceId": "t3", "type": "SPAN", "input": "q", "output": "a"},
    )
    groups = read(file)
    answers = [[one.messages[-1].content for one in group] for group in groups]
    assert answers == [["Short"], ["Longer", "It snows."]]
    reader = import_source(project, file)
    (event, repeated) = sorted(one.text for one in reader.events_of("log.written"))
    assert (event, repeated) == (
        "Conversations equal to another one, kept once: 1.",
        f"Model calls without recorded messages, omitted: 1 (the first: {file}:6).",
    )
    assert len(reader.stored("train", 1)) == 3
    reader.close()


def test_conversation_id_joins_calls_of_several_traces(tmp_path: Path) -> None:
    first, second = genai_calls()
    shared = {"gen_ai.conversation.id": "talk"}
    spans = [otlp_span(1, {**first, **shared}, "t1"), otlp_span(2, {**second, **shared}, "t2")]
    assert [len(group) for group in read(write_lines(tmp_path / "a.json", otlp(*spans)))] == [1]
    spans = [otlp_span(1, first, "t1"), otlp_span(2, second, "t2")]
    assert [len(group) for group in read(write_lines(tmp_path / "b.json", otlp(*spans)))] == [2]


def test_agent_spans_do_not_repeat_their_calls(tmp_path: Path) -> None:
    calls = genai_calls()
    agent = {**calls[1], "gen_ai.operation.name": "invoke_agent"}
    file = write_lines(tmp_path / "a.json", otlp(*by_time([*calls, agent])))
    assert [len(group) for group in read(file)] == [1]


def test_span_kinds_of_opentelemetry_say_nothing(tmp_path: Path) -> None:
    plain = [
        {key: value for key, value in one.items() if key != "openinference.span.kind"}
        for one in openinference_calls()
    ]
    kinds = ("SPAN_KIND_INTERNAL", "UNKNOWN")
    pairs = zip(plain, kinds, strict=True)
    spans = [{**phoenix_span(n, one), "span_kind": kind} for n, (one, kind) in enumerate(pairs)]
    ((one,),) = read(write_lines(tmp_path / "a.jsonl", *spans))
    assert one.turns == 2
    chain = {**spans[0], "span_kind": "CHAIN"}
    with pytest.raises(ConfigError, match="is a model call"):
        read(write_lines(tmp_path / "b.jsonl", chain))


def test_scores_become_reward_and_metrics(tmp_path: Path) -> None:
    scores = [
        {"name": "reward", "value": 0.75, "dataType": "NUMERIC"},
        {"name": "polite", "value": 1, "dataType": "BOOLEAN"},
        {"name": "tone", "value": "warm", "dataType": "CATEGORICAL"},
        {"name": "short", "value": 0.5, "observationId": "o3"},
    ]
    side = observation(3, [{"role": "user", "content": "Summarise"}], "Short")
    trace = {**TRACE, "scores": scores, "observations": [*langfuse_calls(), side]}
    (one,), (other,) = read(write_lines(tmp_path / "a.json", trace))
    assert (one.reward, one.parts, one.metrics) == (0.75, {"reward": 0.75}, {"polite": 1.0})
    assert (other.reward, other.metrics) == (None, {"short": 0.5})


def test_choices_are_siblings(tmp_path: Path) -> None:
    choices = {"choices": [{"message": FINAL}, {"message": {**FINAL, "content": "Dry."}}]}
    ((one, other),) = read(write_lines(tmp_path / "a.jsonl", observation(1, "Rain?", choices)))
    assert [one.messages[-1].content, other.messages[-1].content] == ["It rains.", "Dry."]
    assert one.messages[0].content == "Rain?"


@pytest.mark.parametrize(
    "damage", ['{"resourceSpans": [{"sc', "[]x", '{"resourceSpans": [3]}', "7"]
)
def test_damaged_line_is_named_and_nothing_imported(
    project: Path, tmp_path: Path, damage: str
) -> None:
    file = write_lines(tmp_path / "a.jsonl", *FORMATS["genai"])
    file.write_text(file.read_text() + damage + "\n")
    with pytest.raises(ConfigError) as error:
        import_source(project, file)
    assert error.value.problem.where == f"{file}:2"
    assert not (project / "runs").exists()


def test_damaged_document_of_several_lines_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    text = json.dumps(FORMATS["genai"][0], indent=2)
    file.write_text(text[: len(text) // 2])
    with pytest.raises(ConfigError) as error:
        read(file)
    assert error.value.problem.where.startswith(f"{file}:")
    assert error.value.problem.code == "traces.damaged"


def test_file_without_model_calls_is_refused(tmp_path: Path) -> None:
    tool = otlp_span(1, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"})
    with pytest.raises(ConfigError, match="No span of this file is a model call"):
        read(write_lines(tmp_path / "a.json", otlp(tool)))
    silent = otlp_span(1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"})
    with pytest.raises(ConfigError, match="recorded messages"):
        read(write_lines(tmp_path / "b.json", otlp(silent)))


def test_truncated_attribute_is_counted(tmp_path: Path) -> None:
    cut, whole = genai_calls()
    cut["gen_ai.input.messages"] = cut["gen_ai.input.messages"][:30]
    file = write_lines(tmp_path / "a.json", otlp(otlp_span(1, cut)), otlp(otlp_span(2, whole)))
    source = open_source(file)
    (note,) = source.notes
    assert f"omitted: 1 (the first: {file}:1)." in note
    assert [len(group) for lot in source.lots() for group in lot.groups] == [1]


def test_chat_messages_are_not_traces(tmp_path: Path) -> None:
    line = {"messages": [QUESTION, FINAL], "traceId": "t", "type": "SPAN"}
    ((one,),) = read(write_lines(tmp_path / "a.jsonl", line))
    assert one.output == ""


def test_roles_of_langchain_and_blocks_of_anthropic_are_read(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}
    thinking = {"type": "thinking", "thinking": "Look it up."}
    image = {"type": "image", "source": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [text("rain")]}
    given = [
        {"role": "Human", "content": [text("Weather?"), image]},
        {"role": "AI", "content": [thinking, use]},
        {"role": "user", "content": [result, text("Well?")]},
    ]
    file = write_lines(tmp_path / "a.jsonl", observation(1, given, "It rains."))
    ((one,),) = read(file)
    assert [(m.role, m.content, m.reasoning) for m in one.messages] == [
        ("user", "Weather?[image]", ""),
        ("assistant", "", "Look it up."),
        ("tool", "rain", ""),
        ("user", "Well?", ""),
        ("assistant", "It rains.", ""),
    ]
    assert one.messages[1].tool_calls[0]["function"]["arguments"] == '{"city": "Paris"}'


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_reasoning_and_limit_of_a_response_are_kept(tmp_path: Path) -> None:
    first, second = responses_calls()
    cut = {**second["output"], "incomplete_details": {"reason": "max_output_tokens"}}
    file = write_lines(tmp_path / "a.jsonl", first, {**second, "output": cut})
    ((one,),) = read(file)
    assert one.messages[2].reasoning == "I look."
    assert one.truncated
