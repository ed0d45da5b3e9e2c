"""Thinking budget: reasoning that is open at its end is closed by forced tokens, by each API."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.scripts.completions import Completions
from engine.integrations.scripts.gateway import SharedRecording
from engine.integrations.scripts.trajectories import branches_of
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import ModelError
from engine.protocol.records.conversations import Branch
from engine.rollout.gateway.budget import ThinkingBudget
from engine.rollout.rendering.chat import ChatFormat
from tests.engine.rollout.conftest import ASK, TOOL, GatewayHarness
from tests.support.families import FAMILIES, make_family

LONG = "<think>\nShe likes roses, so she may be outside."
SHOWN = "She li"
"""Reasoning within 8 tokens of LONG: its mark, a line break and these bytes."""
ANSWER = "In the garden."
CLOSING = "\n</think>\n\n"
FORCED = 4
"""Tokens of CLOSING in a vocabulary of bytes and marks."""
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}


@pytest.fixture
def closing(budgeted: GatewayHarness) -> GatewayHarness:
    """Gateway whose policy reasons beyond the budget, and answers behind the closed reasoning."""
    budgeted.policy.says, budgeted.policy.says_behind = LONG, ANSWER
    return budgeted


def branches(harness: GatewayHarness) -> list[Branch]:
    return harness.session.recording.branches()


def texts(harness: GatewayHarness, branch: Branch, ranges: list[tuple[int, int]]) -> list[str]:
    return [harness.policy.chat.decode(branch.tokens[a:b]) for a, b in ranges]


@pytest.mark.parametrize("at_once", [1, 3, 50])
def test_open_reasoning_is_closed_and_the_answer_follows(
    closing: GatewayHarness, at_once: int
) -> None:
    closing.policy.at_once = at_once
    answer = closing.ask(logprobs=True)
    message, (branch,) = answer.choices[0].message, branches(closing)
    assert (message.reasoning_content, message.content) == (SHOWN, ANSWER)
    assert answer.choices[0].finish_reason == "stop"
    first, second = closing.policy.asked
    assert texts(closing, branch, branch.spans) == [f"<think>\n{SHOWN}", f"{ANSWER}<|im_end|>"]
    assert texts(closing, branch, branch.forced) == [CLOSING]
    assert texts(closing, branch, branch.turns) == [f"<think>\n{SHOWN}{CLOSING}{ANSWER}<|im_end|>"]
    assert len(branch.logprobs) == branch.sampled == 8 + len(ANSWER) + 1
    assert branch.turn_sizes == [branch.sampled]
    assert len(answer.choices[0].logprobs.content) == branch.sampled
    (start, end), (begin, _) = branch.turns[0], branch.forced[0]
    assert answer.usage.completion_tokens == end - start == branch.sampled + FORCED
    assert second.tokens == branch.tokens[: branch.spans[1][0]]
    assert begin == branch.spans[0][1]
    assert second.seed != first.seed
    assert second.max_tokens == first.max_tokens - 8 - FORCED
    assert second.stop_tokens == first.stop_tokens
    assert closing.session.recording.reasoning_closed == 1
    assert not closing.session.recording.truncated


def test_reasoning_that_ends_in_time_is_not_changed(budgeted: GatewayHarness) -> None:
    """Also if its closing mark is the last token of the budget."""
    for says in (f"<think>\nOK{CLOSING}{ANSWER}", f"<think>\nRoses</think>{ANSWER}", ANSWER):
        budgeted.policy.says = says
        before = len(budgeted.policy.asked)
        budgeted.ask()
        assert len(budgeted.policy.asked) == before + 1
        branch = branches(budgeted)[-1]
        assert branch.forced == []
        assert texts(budgeted, branch, branch.spans) == [f"{says}<|im_end|>"]
    assert budgeted.session.recording.reasoning_closed == 0


def test_seeds_are_those_of_the_rollout(closing: GatewayHarness) -> None:
    closing.ask(seed=5)
    closing.ask(seed=5)
    closing.ask(n=2)
    seeds = [request.seed for request in closing.policy.asked]
    assert seeds[:2] == seeds[2:4]
    assert len(set(seeds)) == 6


def test_limits_are_never_exceeded(closing: GatewayHarness) -> None:
    """Without room for an answer behind the closed reasoning, the limit comes first."""
    for limit, closed in ((40, True), (13, True), (12, False), (8, False), (3, False)):
        before = closing.session.recording.reasoning_closed
        answer = closing.ask(max_completion_tokens=limit)
        assert answer.usage.completion_tokens <= limit
        assert closing.session.recording.reasoning_closed - before == closed
        whole = limit >= 8 + FORCED + len(ANSWER) + 1
        assert answer.choices[0].finish_reason == ("stop" if whole else "length")


def test_streams_go_from_reasoning_to_the_answer(closing: GatewayHarness) -> None:
    deltas = [chunk.choices[0].delta for chunk in closing.ask(stream=True)]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    words = [delta.content or "" for delta in deltas]
    assert ("".join(thoughts), "".join(words)) == (SHOWN, ANSWER)
    assert max(n for n, text in enumerate(thoughts) if text) < words.index("I")

    response = closing.respond()
    assert [item.type for item in response.output] == ["reasoning", "message"]
    events = list(closing.respond(stream=True))
    assert events[-1].response.output_text == ANSWER


def test_stop_strings_are_not_searched_in_forced_tokens(closing: GatewayHarness) -> None:
    for options in ({}, {"stream": True}):
        found = closing.ask(stop=["\n\n", "zz"], **options)
        if options:
            assert "".join(chunk.choices[0].delta.content or "" for chunk in found) == ANSWER
        else:
            assert found.choices[0].message.content == ANSWER
    assert closing.ask(stop=[" gar"]).choices[0].message.content == "In the"
    assert closing.ask(stop=["li"]).choices[0].message.reasoning_content == "She "
    assert branches(closing)[-1].forced == []


@pytest.mark.parametrize("keep", ["always", "template"])
def test_three_turns_continue_the_exact_tokens(qwen_folder: Path, keep: Any) -> None:
    """With tool results, the template keeps the reasoning; after a user message it does not, and
    the prompt starts a new branch unless all reasoning is kept."""
    model = ModelConfig(thinking_budget=8, keep_reasoning=keep)
    call = '<tool_call>\n{"name": "find", "arguments": {"q": "Ada"}}\n</tool_call>'
    with ChatFormat(qwen_folder, model) as chat:
        harness = GatewayHarness(chat, max_context=3000)
        try:
            harness.policy.says, harness.policy.says_behind = LONG, call
            messages: list[Any] = [*ASK]
            for turn in range(3):
                answer = harness.ask(messages=messages, tools=[TOOL]).choices[0].message
                messages.append(answer.model_dump(exclude_none=True))
                if turn < 2:
                    ids = {"tool_call_id": answer.tool_calls[0].id}
                    messages.append({"role": "tool", **ids, "content": "roses"})
            (branch,) = branches(harness)
            assert len(branch.turns) == len(branch.forced) == 3
            assert len(branch.spans) == 6
            assert texts(harness, branch, branch.forced) == [CLOSING] * 3
            asked = [request.tokens for request in harness.policy.asked]
            assert all(branch.tokens[: len(tokens)] == tokens for tokens in asked)
            assert len(branch.times) == 3

            harness.policy.says_behind = ANSWER
            ids = {"tool_call_id": answer.tool_calls[0].id}
            result = {"role": "tool", **ids, "content": "roses"}
            harness.ask(messages=[*messages, result, *ASK], tools=[TOOL])
            found = branches(harness)
            assert len(found) == (1 if keep == "always" else 2)
            assert harness.session.recording.places() == (
                [[0, 1, 2, 3]] if keep == "always" else [[0, 1, 2], [3]]
            )
        finally:
            harness.close()


def test_answer_keeps_its_structure(closing: GatewayHarness) -> None:
    """Each span has its own grammar: the first with the reasoning, the second without."""
    closing.policy.says_behind = '{"place": "garden"}'
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    closing.ask(response_format=form)
    first, second = (request.grammar or "" for request in closing.policy.asked)
    (branch,) = branches(closing)
    assert branch.grammars == [(0, first), (1, second)]
    assert json.dumps(SCHEMA) in first
    formats = [json.loads(one)["format"] for one in (first, second)]
    assert formats[0]["type"] == "sequence"
    assert formats[1] == {"type": "json_schema", "json_schema": SCHEMA, "style": "json"}


def test_budget_of_an_anthropic_request(closing: GatewayHarness) -> None:
    """The smaller of the request's and the run's; only reasoning that is enabled has a budget."""
    for budget, length in ((1, 1), (4, 4), (100, 8)):
        answer = closing.message(thinking={"type": "enabled", "budget_tokens": budget})
        assert answer.content[-1].text == ANSWER
        (start, end), _ = branches(closing)[-1].spans
        assert end - start == length
        assert answer.usage.output_tokens == length + FORCED + len(ANSWER) + 1
    thinking: Any = {"type": "enabled", "budget_tokens": 4}
    with closing.anthropic.messages.stream(
        model="policy", max_tokens=500, messages=ASK, thinking=thinking
    ) as opened:
        kinds = [e.content_block.type for e in opened if e.type == "content_block_start"]
        final = opened.get_final_message()
    assert kinds == ["thinking", "text"]
    assert (final.content[0].thinking, final.content[1].text) == ("Sh", ANSWER)
    closing.message(thinking={"type": "adaptive"})
    assert branches(closing)[-1].spans[0][1] - branches(closing)[-1].spans[0][0] == 8


def test_budget_of_a_request_counts_without_one_of_the_run(qwen: GatewayHarness) -> None:
    qwen.policy.says, qwen.policy.says_behind = LONG, ANSWER
    qwen.message(thinking={"type": "enabled", "budget_tokens": 12})
    assert branches(qwen)[-1].turn_sizes == [12 + len(ANSWER) + 1]
    qwen.message(thinking={"type": "disabled"})
    assert branches(qwen)[-1].forced == []


def test_completion_of_a_script_keeps_its_parts(closing: GatewayHarness, tmp_path: Path) -> None:
    store = Completions(tmp_path / "known.jsonl")
    chat = closing.policy.chat
    closing.session.recording = SharedRecording(chat, None, store, 0, 1.0, 1.0)
    whole = closing.ask(logprobs=True, extra_body={"return_tokens_as_token_ids": True})
    logprobs = whole.choices[0].logprobs.content
    known = Completions(tmp_path / "known.jsonl").held
    names, values = [one.token for one in logprobs], [one.logprob for one in logprobs]
    completion = known.sampled_as(names, values)
    assert completion is not None
    (branch,), _ = branches_of([[completion]], known, chat)
    (recorded,) = branches(closing)
    assert branch == recorded.model_copy(update={"times": []})


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[ChatFormat]:
    """Chat format of R1, whose prompt opens the reasoning."""
    folder = make_family(FAMILIES["DeepSeek R1 distilled"], tmp_path / "r1")
    with ChatFormat(folder, ModelConfig(thinking_budget=8)) as chat:
        yield chat


def test_reasoning_that_the_prompt_opens_is_closed(plain: ChatFormat) -> None:
    harness = GatewayHarness(plain, max_context=3000)
    try:
        harness.policy.says, harness.policy.says_behind = LONG.removeprefix("<think>\n"), ANSWER
        message = harness.ask().choices[0].message
        assert (message.reasoning_content, message.content) == ("She like", ANSWER)
        assert texts(harness, branches(harness)[0], branches(harness)[0].forced) == [CLOSING]
    finally:
        harness.close()


@pytest.mark.parametrize(
    ("pieces", "opened", "spent"),
    [
        (["<think>", "a", "b", "c"], False, 2),
        (["<th", "ink", ">", "a", "b"], False, 2),
        ([" ", "\n", "\n", "<think>", "a"], False, 3),
        (["<", "a", "b", "c"], False, 2),
        (["a", "b", "c"], True, 2),
    ],
)
def test_budget_waits_for_the_opening_mark(
    qwen: GatewayHarness, pieces: list[str], opened: bool, spent: int
) -> None:
    """A mark of several tokens may be longer than the budget; blanks may come before it."""
    budget = ThinkingBudget(3, qwen.policy.chat.findings, opened)
    found = [budget.is_spent(piece) for piece in pieces]
    assert [place for place, is_spent in enumerate(found) if is_spent] == [spent]


def test_format_whose_reasoning_cannot_be_closed_is_refused(tmp_path: Path) -> None:
    folder = make_family(FAMILIES["gpt-oss"], tmp_path / "gpt-oss")
    with (
        ChatFormat(folder, ModelConfig(thinking_budget=8)) as chat,
        pytest.raises(ModelError, match=r"model\.thinking_budget: Atelier cannot close"),
    ):
        chat.check()


@pytest.mark.parametrize(
    ("family", "closing"),
    [
        ("Qwen3", CLOSING), ("GLM-4.5", "</think>\n"), ("DeepSeek V3", CLOSING),
        ("Gemma 4", "\n<channel|>"), ("Nemotron 3", "\n</think>\n"), ("gpt-oss", ""),
        ("Qwen2.5", ""),
    ],
)  # fmt: skip
def test_closing_is_that_of_the_template(tmp_path: Path, family: str, closing: str) -> None:
    with ChatFormat(make_family(FAMILIES[family], tmp_path / "model")) as chat:
        assert chat.decode(chat.findings.closing) == closing


def test_answer_is_parsed_once_at_the_end_of_the_budget(
    closing: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time stays linear in the length of the answer."""
    parsed: list[int] = []
    chat = closing.policy.chat
    parse = chat.parse

    async def counted(sampled: list[int], prompt: list[int], tools: list[Any]) -> Any:
        parsed.append(len(sampled))
        return await parse(sampled, prompt, tools)

    monkeypatch.setattr(chat, "parse", counted)
    closing.policy.says_behind = ANSWER * 10
    closing.ask()
    assert parsed == [8, 8 + FORCED + 10 * len(ANSWER) + 1]
