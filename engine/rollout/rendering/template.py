"""A model's chat template, rendered in Jinja's immutable sandbox; in the renderer process only.

The sandbox keeps a template from reaching Python; it does not keep one from using time or memory.
That is why this module is imported by `render_worker` alone, which works under limits.
"""

import datetime
import json
import secrets
from typing import Any, NamedTuple

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_CHARS = 32_000_000
"""Length of a rendered text at most."""
VOLATILE = ("strftime_now", "random")
"""Names that let a template render the same messages differently."""
Messages = list[dict[str, Any]]


class TooLong(Exception):
    """The rendered text is longer than `MOST_CHARS`."""


class Generation(Extension):
    """`{% generation %} … {% endgeneration %}`: how templates of Hugging Face mark what the
    assistant says (transformers, `apply_chat_template(return_assistant_tokens_mask=True)`)."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        end = nodes.TemplateData(self.environment.globals["answer_ends"])
        return [*body, nodes.Output([end], lineno=line)]


class Rendered(NamedTuple):
    text: str
    answer_end: int | None
    """Offset in the text at which the last answer ends, if the template marks answers."""


class Template:
    """A compiled chat template. Raises jinja2.TemplateSyntaxError where the source is not one."""

    def __init__(self, source: str, special: dict[str, str]) -> None:
        self._special = special
        self._mark = f"\ue0fe{secrets.token_hex(8)}\ue0ff"  # unknown to whoever writes messages
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols],
            optimized=False,  # else constants are computed while it loads
        )
        environment.globals["answer_ends"] = self._mark
        environment.add_extension(Generation)
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        self._template = environment.from_string(source)
        del environment.globals["answer_ends"]
        self.volatile = any(name in source for name in VOLATILE)

    def render(self, messages: Messages, tools: Messages, answer: bool) -> Rendered:
        """Raises TooLong, and whatever the template raises."""
        parts, length = [], 0
        for part in self._template.generate(
            messages=messages, tools=tools or None, add_generation_prompt=answer, **self._special
        ):
            length += len(part)
            if length > MOST_CHARS:
                raise TooLong
            parts.append(part)
        marked = "".join(parts)
        if self._mark not in marked:
            return Rendered(marked, None)
        before, _, after = marked.rpartition(self._mark)
        before = before.replace(self._mark, "")
        return Rendered(before + after, len(before))

    def fill(self, messages: Messages, answers: dict[int, str], tools: Messages) -> str:
        """Render the prompt, with the messages at these positions replaced by raw texts exactly as
        given.

        A template may change what it is given (strip it, take thoughts out), so it gets a fresh
        placeholder for each, which the raw text takes the place of.
        """
        nonce = secrets.token_hex(8)
        shown, marks = list(messages), []
        for number, place in enumerate(answers):
            marks.append(f"\u2402{nonce}-{number}\u2403")
            shown[place] = {"role": "assistant", "content": marks[-1]}
        text = self.render(shown, tools, answer=True).text
        for mark, raw in zip(marks, answers.values(), strict=True):
            text = text.replace(mark, raw, 1)
        return text


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
