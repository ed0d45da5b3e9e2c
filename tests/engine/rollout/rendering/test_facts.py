"""Checks of a project's model: sentences about its chat format, the cache, the adapter."""

import json
import os
from pathlib import Path
from typing import get_args

import pytest

from engine.protocol.config.project import ModelConfig, ProjectConfig
from engine.protocol.config.tool_syntaxes import TITLES, ToolSyntax
from engine.protocol.records.chat_format import chat_format_checks
from engine.rollout.rendering import facts as module
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rendering.facts import describe_chat_format, model_checks, uses_tools
from engine.rollout.rendering.syntaxes import HARMONY, HERMES, LIBRARY, MISTRAL
from tests.support.families import FAMILIES, make_family

SENTENCES = {
    "Qwen2.5": ["Qwen3 tool calls."],
    "Qwen3": ["Qwen3 tool calls; reasoning kept until the next user message."],
    "Llama 3.2": ["Llama 3 tool calls, one a message."],
    "DeepSeek V3": [
        "DeepSeek V3 tool calls; reasoning left out of later prompts.",
        "The chat template leaves earlier reasoning out: later turns start new branches.",
    ],
    "Qwen3-VL": ["Qwen3 tool calls; reads images."],
    "Qwen3.5": ["Qwen3.5 tool calls; reasoning kept until the next user message; reads images."],
    "Qwen2.5-VL": [
        "No tool calls: the model's chat template leaves the agent's tools out.",
        "Reads images.",
    ],
    "Gemma 3": ["No tool calls: the model's chat template leaves the agent's tools out."],
}


@pytest.mark.parametrize("family", SENTENCES)
def test_chat_format_is_described_in_sentences(family: str, tmp_path: Path) -> None:
    facts = describe_chat_format(make_family(FAMILIES[family], tmp_path / "model"))
    checks = chat_format_checks(facts, ModelConfig(), uses_tools=True)
    assert [check.words for check in checks] == SENTENCES[family]
    assert all(check.state == "warn" for check in checks[1:] if check.words != "Reads images.")


def test_settings_change_the_sentences(tmp_path: Path) -> None:
    facts = describe_chat_format(make_family(FAMILIES["Qwen3"], tmp_path / "model"))

    def words(**settings: object) -> list[str]:
        model = ModelConfig.model_validate(settings)
        return [check.words for check in chat_format_checks(facts, model, uses_tools=False)]

    assert words(thinking="off") == ["Qwen3 tool calls; reasoning off."]
    assert words(keep_reasoning="always") == ["Qwen3 tool calls; reasoning kept in later prompts."]
    assert words(tool_syntax="hermes")[0].startswith("Hermes tool calls, as set; ")
    (_, unread) = words(template_variables={"effort": "high"})
    assert unread == "The chat template does not read effort of model.template_variables."


def test_thinking_without_a_switch_is_reported(tmp_path: Path) -> None:
    facts = describe_chat_format(make_family(FAMILIES["Qwen2.5"], tmp_path / "model"))
    (_, check) = chat_format_checks(facts, ModelConfig(thinking="on"), uses_tools=False)
    assert (check.state, check.hint) == ("warn", "Set it to default.")
    assert "model.thinking = on has no effect" in check.words


@pytest.mark.parametrize(
    ("family", "state", "words"),
    [
        ("Qwen3", "good", "until the next user message, closed after 100 tokens."),
        ("Qwen2.5", "warn", "has no effect: the model's answers have no reasoning"),
        ("gpt-oss", "bad", "cannot close the reasoning of this model"),
    ],
)
def test_budget_is_checked_against_the_format(
    family: str, state: str, words: str, tmp_path: Path
) -> None:
    facts = describe_chat_format(make_family(FAMILIES[family], tmp_path / "model"))
    model = ModelConfig(thinking_budget=100)
    check = chat_format_checks(facts, model, uses_tools=False)[-1]
    assert check.state == state
    assert words in check.words


def test_description_is_cached_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []

    class Counted(ChatFormat):
        def __init__(self, folder: Path) -> None:
            loads.append(folder)
            super().__init__(folder)

    monkeypatch.setattr(module, "ChatFormat", Counted)
    folder = make_family(FAMILIES["Qwen3"], tmp_path / "model")
    first = describe_chat_format(folder)
    assert describe_chat_format(folder) is first
    assert len(loads) == 1
    config = folder / "tokenizer_config.json"
    os.utime(config, ns=(1, config.stat().st_mtime_ns + 1))
    assert describe_chat_format(folder) == first
    assert len(loads) == 2


def test_tools_of_the_agent_are_found_in_its_file_or_mcp_servers(tmp_path: Path) -> None:
    config = ProjectConfig()
    assert not uses_tools(tmp_path, config)
    (tmp_path / "agent.py").write_text("async def rollout(scenario, model): ...\n")
    assert not uses_tools(tmp_path, config)
    (tmp_path / "agent.py").write_text("create(messages=messages, tools=TOOLS)\n")
    assert uses_tools(tmp_path, config)
    (tmp_path / "agent.py").unlink()
    (tmp_path / "mcp.json").write_text("{}")
    assert uses_tools(tmp_path, config)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Model folder with the files of a chat format alone."""
    folder = make_family(FAMILIES["Qwen3"], tmp_path / "model")
    monkeypatch.setattr(module, "find_model", lambda name, weights=True: folder)
    return folder


def test_checks_of_a_mixture_of_experts_name_what_is_trained(folder: Path, tmp_path: Path) -> None:
    config = ProjectConfig()
    assert [check.name for check in model_checks(tmp_path, config)] == ["Chat format"]
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "num_experts": 128}))
    (_, adapter) = model_checks(tmp_path, config)
    assert (adapter.name, adapter.state) == ("Adapter", "good")
    assert "attention layers; routers and experts are not trained" in adapter.words
    experts = ProjectConfig(model=ModelConfig(name="m", adapt_experts=True))
    (_, adapter) = model_checks(tmp_path, experts)
    assert adapter.state == "good"
    assert "the attention layers and the routed experts" in adapter.words
    (folder / "config.json").write_text(json.dumps({**settings, "model_type": "qwen3"}))
    (_, adapter) = model_checks(tmp_path, experts)
    assert (adapter.name, adapter.state) == ("Adapter", "bad")
    assert adapter.words == "model.adapt_experts is on, but m is not a mixture of experts."


def test_unreadable_tokenizer_is_reported(folder: Path, tmp_path: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% for %}")
    (check,) = model_checks(tmp_path, ProjectConfig())
    assert check.state == "bad"
    (folder / "tokenizer.json").write_text("{}")
    (check,) = model_checks(tmp_path, ProjectConfig())
    assert (check.name, check.state) == ("Chat format", "bad")


def test_missing_model_has_no_checks(tmp_path: Path) -> None:
    config = ProjectConfig(model=ModelConfig(name=str(tmp_path / "missing")))
    assert model_checks(tmp_path, config) == []


def test_names_of_tool_syntaxes_are_those_of_the_parsers() -> None:
    names = set(get_args(ToolSyntax))
    assert names == {"auto", HERMES, MISTRAL, HARMONY, *LIBRARY}
    assert set(TITLES) == names - {"auto"}
