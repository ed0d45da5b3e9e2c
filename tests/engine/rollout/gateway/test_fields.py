"""Fields of the three APIs: the official clients' parameters are honoured, without effect, or
refused with their name, and the documentation says which."""

import inspect
import re
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from engine.rollout.gateway.fields import HONOURED, NO_EFFECT, REFUSED, Dialect
from tests.engine.rollout.conftest import GatewayHarness

PAGE = Path(__file__).parents[4] / "resources" / "help" / "reference" / "endpoint.md"
HEADINGS: dict[str, Dialect] = {
    "Chat completions": "chat", "Responses": "responses", "Messages": "messages",
}  # fmt: skip
DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "messages")
OF_THE_CLIENT = {"extra_headers", "extra_query", "extra_body", "timeout"}
"""Parameters that the clients do not send as fields."""
OPENAI = openai.OpenAI(api_key="none")
ANTHROPIC = anthropic.Anthropic(api_key="none")
METHODS: dict[Dialect, list[Any]] = {
    "chat": [OPENAI.chat.completions.create],
    "responses": [OPENAI.responses.create],
    "messages": [
        ANTHROPIC.messages.create,
        ANTHROPIC.messages.stream,
        ANTHROPIC.messages.count_tokens,
        ANTHROPIC.beta.messages.create,
        ANTHROPIC.beta.messages.count_tokens,
    ],
}
SENT: dict[Dialect, dict[str, Any]] = {
    "chat": {
        "frequency_penalty": 0.5, "presence_penalty": 0.5, "logit_bias": {"5": 1}, "top_k": 5,
        "min_p": 0.1, "repetition_penalty": 1.1, "functions": [{"name": "find"}],
        "function_call": {"name": "find"}, "audio": {"voice": "alloy", "format": "wav"},
        "modalities": ["text", "audio"], "prediction": {"type": "content", "content": "In"},
        "moderation": {"model": "omni"}, "verbosity": "low", "web_search_options": {},
    },
    "responses": {
        "background": True, "context_management": [{"type": "compaction"}],
        "conversation": "conv_1", "image": "x", "max_tool_calls": 1, "moderation": {"model": "x"},
        "prompt": {"id": "p"}, "truncation": "auto",
    },
    "messages": {
        "compaction": {"type": "x"}, "container": "c", "thread": {"type": "create"},
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "mcp_servers": [{"type": "url", "url": "x", "name": "x"}], "top_k": 5,
    },
}  # fmt: skip
"""A value of each refused field that would change something."""


def send(harness: GatewayHarness, dialect: Dialect, name: str, value: Any) -> Any:
    ask = {"chat": harness.ask, "responses": harness.respond, "messages": harness.message}
    return ask[dialect](extra_body={name: value})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_parameter_of_the_clients_is_in_one_table(dialect: Dialect) -> None:
    tables = [set(HONOURED[dialect]), set(NO_EFFECT[dialect]), set(REFUSED[dialect])]
    assert sum(map(len, tables)) == len(set().union(*tables))
    for method in METHODS[dialect]:
        names = set(inspect.signature(method).parameters) - OF_THE_CLIENT
        assert names - set().union(*tables) == set(), method.__qualname__
    assert set(SENT[dialect]) == set(REFUSED[dialect])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_refused_fields_are_named_unless_they_are_neutral(
    qwen: GatewayHarness, dialect: Dialect
) -> None:
    error = openai.BadRequestError if dialect != "messages" else anthropic.BadRequestError
    for name, value in SENT[dialect].items():
        with pytest.raises(error, match=rf"\b{name}: "):
            send(qwen, dialect, name, value)
    assert qwen.policy.asked == []
    for name, refused in REFUSED[dialect].items():
        for value in (None, *refused.neutral):
            send(qwen, dialect, name, value)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fields_without_effect_are_accepted(qwen: GatewayHarness, dialect: Dialect) -> None:
    send(qwen, dialect, "model", "policy")
    for name in NO_EFFECT[dialect]:
        send(qwen, dialect, name, {"any": "value"})
    plain, *others = qwen.policy.asked
    assert len(others) == len(NO_EFFECT[dialect])
    assert all(request.tokens == plain.tokens for request in others)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_unknown_field_is_named(qwen: GatewayHarness, dialect: Dialect) -> None:
    error = openai.BadRequestError if dialect != "messages" else anthropic.BadRequestError
    with pytest.raises(error, match="tempurature: "):
        send(qwen, dialect, "tempurature", 1)


@pytest.mark.parametrize("heading", HEADINGS)
def test_documentation_lists_every_field(heading: str) -> None:
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found: dict[str, set[str]] = {"honoured": set(), "no effect": set(), "refused": set()}
    for line in section.splitlines():
        if line.startswith("| `"):
            names, state = line.strip("|").split("|")[:2]
            found[state.strip()] |= set(re.findall(r"`(\w+)`", names))
    dialect = HEADINGS[heading]
    assert found["honoured"] == HONOURED[dialect]
    assert found["no effect"] == NO_EFFECT[dialect]
    assert found["refused"] == set(REFUSED[dialect])
