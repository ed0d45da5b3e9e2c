"""Checks of a project's model before a run: its chat format, and what the adapter covers.

Describing a chat template takes about a second in a process; the result is cached by the path, size
and time of change of the files it is made from.
"""

import threading
from collections import OrderedDict
from pathlib import Path

from engine.models.architectures import experts_problem, has_experts
from engine.models.file_checks import read_json
from engine.models.registry import find_model, needs_weights
from engine.protocol.config.project import ModelConfig, ProjectConfig
from engine.protocol.problems import AtelierError, in_one_line
from engine.protocol.records.chat_format import NAME, ChatFormatFacts, chat_format_checks
from engine.protocol.records.machine.hardware import Check
from engine.rollout.rendering.chat import ChatFormat
from engine.trust.files import MOST_TEXT_BYTES, project_file, read_regular

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"),
    *("generation_config.json", "preprocessor_config.json", "processor_config.json"),
)
"""Files that decide on a chat format."""
MOST_CACHED = 32
TOOL_WORDS = (b"tools", b"bind_tools", b"create_react_agent", b"mcpServers")
Marks = tuple[tuple[str, int, int], ...]
_cache: OrderedDict[Marks, ChatFormatFacts] = OrderedDict()
_lock = threading.Lock()


def describe_chat_format(folder: Path) -> ChatFormatFacts:
    """Describe the chat format of the model in `folder`; blocks for about a second unless its files
    were described before. Raises ModelError if tokenizer or template cannot be loaded, RolloutError
    if the template exceeds a limit."""
    marks = _marks(folder)
    with _lock:
        if known := _cache.get(marks):
            _cache.move_to_end(marks)
            return known
        with ChatFormat(folder) as chat:
            facts = ChatFormatFacts(**chat.findings._asdict())
        _cache[marks] = facts
        if len(_cache) > MOST_CACHED:
            _cache.popitem(last=False)
        return facts


def model_checks(project: Path, config: ProjectConfig) -> list[Check]:
    """Check what a run with these settings can do with its model; blocking. Empty if the model is
    not on this machine."""
    try:
        folder = find_model(config.model.name, needs_weights(config))
    except AtelierError:  # other checks say what is wrong with the model
        return []
    try:
        facts = describe_chat_format(folder)
    except AtelierError as error:
        problem = error.problem
        return [Check(name=NAME, state="bad", words=problem.message, hint=problem.hint)]
    except Exception as error:  # noqa: BLE001 - the library of tokenizers raises no other type
        words = f"The tokenizer in {folder} cannot be loaded: {in_one_line(error)[:200]}."
        return [Check(name=NAME, state="bad", words=words, hint="Download the model again.")]
    checks = chat_format_checks(facts, config.model, uses_tools(project, config))
    return [*checks, *_adapter(folder, config.model)]


def uses_tools(project: Path, config: ProjectConfig) -> bool:
    """Whether the agent may offer tools to the model: its file mentions them, or the project has
    MCP servers. An agent that cannot be read, such as a command, may use none."""
    if (project / "mcp.json").is_file():
        return True
    try:
        file = project_file(project, config.agent.file, "agent.file")
        text = read_regular(file, MOST_TEXT_BYTES)
    except (AtelierError, OSError, ValueError):
        return False
    return any(word in text for word in TOOL_WORDS)


def _adapter(folder: Path, model: ModelConfig) -> list[Check]:
    """Layers that the adapter of a mixture of experts covers; empty for other models."""
    config = read_json(folder / "config.json")
    if model.adapt_experts and (problem := experts_problem(config, model.name)):
        return [Check(name="Adapter", state="bad", words=problem.message, hint=problem.hint)]
    if not has_experts(config):
        return []
    words = (
        "Mixture of experts: the adapter covers the attention layers; routers and experts are not "
        "trained."
    )
    if model.adapt_experts:
        words = (
            "Mixture of experts: the adapter covers the attention layers and the routed experts; "
            "routers, shared experts and dense feed-forward layers are not trained."
        )
    return [Check(name="Adapter", state="good", words=words)]


def _marks(folder: Path) -> Marks:
    """Path, size in bytes and time of change in nanoseconds of each file of a chat format."""
    found = []
    for name in FILES:
        file = folder / name
        if file.is_file():
            status = file.stat()
            found.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(found)
