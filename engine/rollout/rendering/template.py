"""Chat templates (Jinja), compiled in a sandbox. Used in the renderer process alone."""

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
"""Largest length of a rendered text in characters."""
VOLATILE = ("strftime_now", "random")
"""Names by which a template can render equal messages differently."""
GIVEN = frozenset(
    {"messages", "tools", "add_generation_prompt", "raise_exception", "strftime_now", "content",
     "loop", "self", "caller", "varargs", "kwargs"}
)  # fmt: skip
"""Variables that every rendering defines, besides the special tokens."""
Messages = list[dict[str, Any]]


class TooLong(Exception):
    """Error for a rendered text that is longer than `MOST_CHARS`."""


class Generation(Extension):
    """`{% generation %} … {% endgeneration %}`: mark of the assistant's text in Hugging Face
    templates (transformers, `apply_chat_template(return_assistant_tokens_mask=True)`)."""

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
    """Compiled chat template. Raises jinja2.TemplateSyntaxError for invalid source."""

    def __init__(self, source: str, special: dict[str, str]) -> None:
        self.source = source
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
        given = GIVEN | set(special) | set(environment.globals)
        self.variables = sorted(_read_names(environment.parse(source)) - given)
        """Names that the template reads besides the usual ones, such as `enable_thinking`."""
        del environment.globals["answer_ends"]
        self.volatile = any(name in source for name in VOLATILE)

    def render(
        self,
        messages: Messages,
        tools: Messages,
        answer: bool,
        variables: dict[str, Any] | None = None,
    ) -> Rendered:
        """Render messages as text; with `answer`, the text ends where the next assistant text
        begins. `variables` are further values that the template reads. Raises TooLong, and any
        exception of the template."""
        parts, length = [], 0
        given = {
            **(variables or {}),
            "messages": messages,
            "tools": tools or None,
            "add_generation_prompt": answer,
            **self._special,
        }
        for part in self._template.generate(given):
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


def _read_names(parsed: nodes.Template) -> set[str]:
    """Names that a template takes from outside: those that it reads and never sets, and those that
    it sets only if they are undefined. Jinja's own answer would compute constants."""
    tested = {
        test.node.name
        for test in parsed.find_all(nodes.Test)
        if test.name in ("defined", "undefined") and isinstance(test.node, nodes.Name)
    }
    names = list(parsed.find_all(nodes.Name))
    made = {name.name for name in names if name.ctx == "store"} - tested
    made |= {name.name for name in names if name.ctx == "param"}
    made |= {macro.name for macro in parsed.find_all(nodes.Macro)}
    return {name.name for name in names if name.ctx == "load"} - made


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
