"""Findings about a model's chat format, and the sentences that people read about them."""

from typing import Literal

from engine.protocol.base import Value
from engine.protocol.config.project import ModelConfig
from engine.protocol.config.tool_syntaxes import TITLES
from engine.protocol.records.machine.hardware import Check

NAME = "Chat format"
KEPT = {
    "always": "reasoning kept in later prompts",
    "tool_cycle": "reasoning kept until the next user message",
    "never": "reasoning left out of later prompts",
}
CANNOT_CLOSE = (
    "model.thinking_budget: Atelier cannot close the reasoning of this model's chat format."
)
CLOSE_HINT = (
    "Leave it empty. If the template reads reasoning_effort, set that in model.template_variables."
)


class ChatFormatFacts(Value):
    """Behaviour of a model's chat template, as found by rendering short conversations and parsing
    them again."""

    syntax: str = ""
    """Name of the format of tool calls; empty if they cannot be read."""
    shows_tools: bool = False
    """Whether the tools that a request offers appear in its prompt."""
    parallel: bool = False
    """Whether one message can have several tool calls."""
    reasons: bool = False
    """Whether answers begin with reasoning that can be read."""
    keeps_reasoning: Literal["never", "tool_cycle", "always"] = "never"
    """Earlier reasoning in later prompts; `tool_cycle`: until the next user message."""
    switch: str = ""
    """Variable that turns reasoning on and off; empty if none does."""
    variables: tuple[str, ...] = ()
    """All variables that the template reads."""
    images: bool = False
    """Whether the model reads images in messages of the user."""
    tool_images: bool = False
    """Whether it reads images in tool results, too."""
    closing: tuple[int, ...] = ()
    """Token ids that close the reasoning before the answer; empty if Atelier cannot close it."""


def chat_format_checks(facts: ChatFormatFacts, model: ModelConfig, uses_tools: bool) -> list[Check]:
    """Describe a chat format under the settings `model`: one line, then warnings. `uses_tools`:
    whether the agent offers tools to the model."""
    reasons = facts.reasons and model.thinking != "off"
    parts = [
        _tools(facts, model),
        _reasoning(facts, model) if facts.reasons else "",
        _images(facts),
    ]
    words = "; ".join(part for part in parts if part) or "no tool calls, no reasoning"
    checks = [_check("good", f"{words[0].upper()}{words[1:]}.")]
    if uses_tools and not _syntax(facts, model):
        more = checks if facts.reasons or facts.images else []
        checks = [_no_tools(facts), *more]
    if reasons and facts.keeps_reasoning == "never" and model.keep_reasoning == "template":
        checks.append(
            _check(
                "warn",
                "The chat template leaves earlier reasoning out: later turns start new branches.",
                "To keep a rollout one sequence, set model.keep_reasoning to always.",
            )
        )
    if model.thinking != "default" and not facts.switch:
        checks.append(
            _check(
                "warn",
                f"model.thinking = {model.thinking} has no effect: the chat template cannot turn "
                "reasoning on and off.",
                "Set it to default.",
            )
        )
    if model.thinking_budget is not None and not facts.closing:
        checks.append(_no_budget(facts))
    if unread := [name for name in model.template_variables if name not in facts.variables]:
        known = ", ".join(facts.variables) or "no variables"
        checks.append(
            _check(
                "warn",
                f"The chat template does not read {', '.join(unread)} of model.template_variables.",
                f"It reads {known}.",
            )
        )
    return checks


def _syntax(facts: ChatFormatFacts, model: ModelConfig) -> str:
    return facts.syntax if model.tool_syntax == "auto" else model.tool_syntax


def _tools(facts: ChatFormatFacts, model: ModelConfig) -> str:
    syntax = _syntax(facts, model)
    if not syntax:
        return ""
    title = TITLES.get(syntax, syntax)
    if model.tool_syntax != "auto":
        return f"{title} tool calls, as set"
    return f"{title} tool calls" if facts.parallel else f"{title} tool calls, one a message"


def _reasoning(facts: ChatFormatFacts, model: ModelConfig) -> str:
    if model.thinking == "off" and facts.switch:
        return "reasoning off"
    kept = KEPT["always"] if model.keep_reasoning == "always" else KEPT[facts.keeps_reasoning]
    budget = model.thinking_budget
    return f"{kept}, closed after {budget:,} tokens" if budget and facts.closing else kept


def _no_budget(facts: ChatFormatFacts) -> Check:
    if facts.reasons:
        return _check("bad", CANNOT_CLOSE, CLOSE_HINT)
    return _check(
        "warn",
        "model.thinking_budget has no effect: the model's answers have no reasoning.",
        "Leave it empty.",
    )


def _images(facts: ChatFormatFacts) -> str:
    if not facts.images:
        return ""
    return "reads images" if facts.tool_images else "reads images, but not in tool results"


def _no_tools(facts: ChatFormatFacts) -> Check:
    if facts.shows_tools:
        return _check(
            "warn",
            "No tool calls: Atelier cannot read them in this model's chat template.",
            "Set model.tool_syntax to the format of the model's calls, or use another model.",
        )
    return _check(
        "warn",
        "No tool calls: the model's chat template leaves the agent's tools out.",
        "Use a model whose template shows tools, or put them into the prompt as text.",
    )


def _check(state: Literal["good", "warn", "bad"], words: str, hint: str = "") -> Check:
    return Check(name=NAME, state=state, words=words, hint=hint)
