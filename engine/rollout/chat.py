"""Between chat messages and tokens: the model's own template and tokenizer, and tool calls.

Tool calls are in the Hermes form that Qwen and most open models use: a JSON object between
<tool_call> and </tool_call>. Templates are foreign code: they render in Jinja's sandbox.
"""

import contextlib
import datetime
import json
import re
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from engine.models import chat_template
from engine.protocol.problems import ModelError, RolloutError

ANSWER_ENDS = "\ue0fe answer ends \ue0ff"
"""Stands in a rendered text where the template ends an answer, until it is taken out."""
TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class Completion(NamedTuple):
    """A sampled text read as an assistant message."""

    content: str
    tool_calls: list[dict[str, Any]]


class Generation(Extension):
    """`{% generation %} … {% endgeneration %}`: how templates of Hugging Face mark what the
    assistant says (transformers, `apply_chat_template(return_assistant_tokens_mask=True)`)."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        mark = nodes.Output([nodes.TemplateData(ANSWER_ENDS)], lineno=line)
        return [*body, mark]


class ChatFormat:
    """One model's template and tokenizer."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        added = self._tokenizer.get_added_tokens_decoder()
        self._signs = frozenset(token for token, it in added.items() if it.special)
        self._special = _special_tokens(folder)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        try:
            self._template = environment.from_string(chat_template(folder))
        except jinja2.TemplateSyntaxError as error:
            raise ModelError.of(
                "model.bad_chat_template",
                f"The chat template does not parse: {error.message}.",
                where=f"{folder}, line {error.lineno}",
            ) from error

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], answer: bool = True
    ) -> str:
        """The prompt as text; with `answer` it ends where the assistant begins.

        Raises RolloutError where the template refuses the messages.
        """
        return self._marked(messages, tools, answer).replace(ANSWER_ENDS, "")

    def render_answered(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]
    ) -> tuple[str, int]:
        """A conversation that ends with an answer as text, and where that answer ends in it: its
        end token is the last thing the model says. Templates that mark answers say where; of others
        all but the line break behind it is the answer.

        Raises RolloutError where the template refuses the messages.
        """
        marked = self._marked(messages, tools, answer=False)
        text = marked.replace(ANSWER_ENDS, "")
        if ANSWER_ENDS in marked:
            return text, len(marked[: marked.rindex(ANSWER_ENDS)].replace(ANSWER_ENDS, ""))
        return text, len(text.removesuffix("\n"))

    def _marked(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], answer: bool
    ) -> str:
        try:
            return self._template.render(
                messages=[_for_template(message) for message in messages],
                tools=tools or None,
                add_generation_prompt=answer,
                **self._special,
            )
        except (jinja2.TemplateError, TypeError, KeyError, ValueError) as error:
            raise RolloutError.of(
                "gateway.template_refused",
                f"The model's chat template refuses these messages: {error}",
                "Check the roles and their order.",
            ) from error

    @property
    def end(self) -> str:
        """The token that ends a text; empty where the tokenizer names none."""
        return self._special["eos_token"]

    def encode(self, text: str, special: bool = False) -> list[int]:
        """With `special` also the tokens that the tokenizer puts around a text without template."""
        return self._tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, tokens: list[int]) -> str:
        """Text with special tokens visible."""
        return self._tokenizer.decode(tokens, skip_special_tokens=False)

    def pieces(self, tokens: list[int]) -> list[str]:
        """The text of each token; their concatenation is the text of all.

        A character whose bytes are spread over several tokens belongs to the last of them.
        """
        pieces, held = [], []
        for token in tokens:
            held.append(token)
            text = self.decode(held)
            if text.endswith("\ufffd") and len(held) < 8:
                pieces.append("")
            else:
                pieces.append(text)
                held = []
        if held:
            pieces[-1] = self.decode(held)
        return pieces

    def is_special(self, token: int) -> bool:
        """Whether it is a sign of the format, not a word; asked for every token that is sampled."""
        return token in self._signs


def read_completion(text: str, tools_offered: bool) -> Completion:
    """Split a completion into words and tool calls; what does not parse stays words."""
    if not tools_offered:
        return Completion(text, [])
    calls = []
    for match in TOOL_CALL.finditer(text):
        if call := _tool_call(match.group(1)):
            calls.append(call)
    content = TOOL_CALL.sub("", text).strip() if calls else text
    return Completion(content, calls)


def _tool_call(text: str) -> dict[str, Any] | None:
    try:
        call = json.loads(text)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return {
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {
            "name": call["name"],
            "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
        },
    }


def _for_template(message: dict[str, Any]) -> dict[str, Any]:
    """Content as text, arguments of tool calls as objects: what templates expect."""
    message = {**message, "content": text_of(message.get("content"))}
    calls = message.get("tool_calls")
    if calls:
        message["tool_calls"] = [_with_object(call) for call in calls]
    else:
        message.pop("tool_calls", None)
    return message


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    with contextlib.suppress(TypeError, ValueError):  # no JSON: the template shows it as it is
        function["arguments"] = json.loads(function.get("arguments") or "{}")
    return {**call, "function": function}


def text_of(content: Any) -> str:
    """The text of an OpenAI content field: a string, None, or a list of text parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) for p in content):
        if any(part.get("type") != "text" for part in content):
            raise RolloutError.of(
                "gateway.not_text",
                "The model reads text only; a message holds an image, audio or file.",
            )
        return "".join(str(part.get("text", "")) for part in content)
    raise RolloutError.of("gateway.bad_message", "A message's content is neither text nor parts.")


def _special_tokens(folder: Path) -> dict[str, str]:
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text()) if file.is_file() else {}
    tokens = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        tokens[name] = (value.get("content") if isinstance(value, dict) else value) or ""
    return tokens


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
