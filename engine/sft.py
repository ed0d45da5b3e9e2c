"""Supervised examples from demonstrations: OpenAI chat messages, one object a line."""

import json
from pathlib import Path
from typing import Any

from engine.gold import FILE as GOLD
from engine.policy.base import TrainItem
from engine.protocol.config import WarmupConfig
from engine.protocol.problems import AtelierError, ConfigError
from engine.rollout.chat import ChatFormat


def demonstration_files(project: Path, warmup: WarmupConfig) -> list[Path]:
    """The project's own, and the attempts pinned as gold where there are some."""
    files = [project / warmup.file]
    gold = project / GOLD
    return files + ([gold] if warmup.gold and gold.is_file() and gold not in files else [])


def load_demonstrations(file: Path, chat: ChatFormat, max_context: int) -> list[TrainItem]:
    """Token sequences in which the assistant's words are trained.

    Raises ConfigError with the line that does not read, or that is longer than the context.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.of(
            "warmup.unreadable",
            f"The demonstrations cannot be read: {error}.",
            "Check train.warmup.file.",
            where=str(file),
        ) from error
    items = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            items.append(_item(line, chat, max_context, f"{file.name}, line {number}"))
    if not items:
        raise ConfigError.of("warmup.empty", "There are no demonstrations.", where=str(file))
    return items


def demonstration(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], chat: ChatFormat
) -> TrainItem:
    """Render a conversation; each assistant message, with its end token, is a trained span."""
    tokens: list[int] = []
    spans: list[tuple[int, int]] = []
    text = ""
    for place, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        before = chat.render(messages[:place], tools, answer=True)
        after = chat.render(messages[: place + 1], tools, answer=False).rstrip("\n")
        if not (before.startswith(text) and after.startswith(before)):
            raise ConfigError.of(
                "warmup.template_rewrites",
                "The chat template rewrites earlier turns, so this demonstration has no one text.",
                "Split it into one demonstration per assistant message.",
            )
        tokens += chat.encode(before[len(text) :])
        start = len(tokens)
        tokens += chat.encode(after[len(before) :])
        spans.append((start, len(tokens)))
        text = after
    return TrainItem(tokens=tokens, spans=spans)


def _item(line: str, chat: ChatFormat, max_context: int, where: str) -> TrainItem:
    try:
        value = json.loads(line)
        item = demonstration(value["messages"], value.get("tools") or [], chat)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError.of(
            "warmup.bad_line",
            f"The line is no demonstration: {type(error).__name__} {error}.",
            'Write {"messages": [{"role": "user", "content": "…"}, …]}.',
            where=where,
        ) from error
    except AtelierError as error:
        raise ConfigError(error.problem.model_copy(update={"where": where})) from error
    if not item.spans:
        raise ConfigError.of("warmup.no_answer", "No assistant message to learn from.", where=where)
    if len(item.tokens) > max_context:
        raise ConfigError.of(
            "warmup.too_long",
            f"It has {len(item.tokens)} tokens; model.max_context is {max_context}.",
            where=where,
        )
    return item
