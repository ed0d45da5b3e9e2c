"""Conversion between chat messages and tokens by the model's template and tokenizer, and tool
calls.

Tool calls are in the Hermes format that Qwen and most open models use: a JSON object between
<tool_call> and </tool_call>. Templates and tokenizer patterns are untrusted code, so rendering and
tokenising happen in a separate process (renderer.py) with limits.
"""

import asyncio
import bisect
import contextlib
import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from tokenizers import Tokenizer

from engine.models.file_checks import chat_template
from engine.protocol.problems import ModelError, RolloutError
from engine.rollout.rendering.renderer import RenderClient
from engine.runtime.text import parse_shallow

OPEN, CLOSE = "<tool_call>", "</tool_call>"
BRACE = re.compile(r"\s*+\{")
GREETING = [{"role": "user", "content": "Hello"}]


class Completion(NamedTuple):
    """Sampled text parsed into an assistant message."""

    content: str
    tool_calls: list[dict[str, Any]]


class PromptTokens(NamedTuple):
    """Rendered and tokenised prompt."""

    text: str
    tokens: list[int]
    extends: bool
    """Whether the prompt begins with the known text; text and tokens then contain only the rest."""


class ChatFormat:
    """Chat template and tokenizer of one model. `close` it, or use it in a `with` block.

    `render`, `render_answered` and `encode` block and are for threads; on the event loop, await
    `prompt`.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        added = self._tokenizer.get_added_tokens_decoder()
        self._signs = frozenset(token for token, it in added.items() if it.special)
        self._special = _special_tokens(folder)
        _refuse_patterns(self._tokenizer, folder)
        load = {
            "template": chat_template(folder),
            "special": self._special,
            "tokenizer": str(folder / "tokenizer.json"),
        }
        self._renderer = RenderClient(folder.name, load)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the renderer process; waits for it."""
        self._renderer.close()

    def check(self) -> None:
        """Render one greeting as a test. Raises ModelError if the template exceeds its limits; a
        template that refuses a single greeting is accepted."""
        try:
            self.render(GREETING, [])
        except RolloutError as error:
            if error.problem.code == "model.template_overran":
                raise ModelError(error.problem) from error

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], answer: bool = True
    ) -> str:
        """Render the messages as text; with `answer` (`add_generation_prompt`) it ends where the
        next assistant text begins. Raises RolloutError if the template refuses the messages or
        exceeds a limit."""
        text: str = self._rendered(messages, tools, answer)["text"]
        return text

    def render_answered(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]
    ) -> tuple[str, int]:
        """Render a conversation that ends with an assistant message; returns the text and the
        offset of that message's end, including its end token. If the template does not mark
        answers, the offset is the end of the text without its last line break. Raises RolloutError
        if the template refuses the messages or exceeds a limit."""
        rendered = self._rendered(messages, tools, answer=False)
        text: str = rendered["text"]
        end: int | None = rendered["answer_end"]
        return text, len(text.removesuffix("\n")) if end is None else end

    def _rendered(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], answer: bool
    ) -> dict[str, Any]:
        shown = [for_template(message) for message in messages]
        return self._renderer.ask("render", messages=shown, tools=tools, answer=answer).head

    async def prompt(
        self,
        messages: list[dict[str, Any]],
        answers: dict[int, str],
        tools: list[dict[str, Any]],
        known: str,
        most_tokens: int,
    ) -> PromptTokens:
        """Render and tokenise a prompt off the event loop. `answers` maps message positions to the
        raw text that the policy sampled; `known` is the text whose tokens are recorded: if the
        prompt begins with it, only the rest is returned. Raises RolloutError if the template
        refuses the messages or exceeds a limit, or if the text cannot fit into `most_tokens`."""
        shown = [for_template(message) for message in messages]
        answer = await self._renderer.prompt(
            cached=not answers,
            messages=shown,
            tools=tools,
            answers=answers,
            known=known,
            most_tokens=most_tokens,
        )
        head = answer.head
        return PromptTokens(head["text"], answer.tokens, head["extends"])

    @property
    def end(self) -> str:
        """End-of-text token; empty if the tokenizer names none."""
        return self._special["eos_token"]

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of a text; with `special` also the special tokens that the tokenizer puts
        around a text."""
        return self._renderer.ask("encode", text=text, special=special).tokens

    def decode(self, tokens: list[int]) -> str:
        """Text of token ids, with special tokens visible."""
        return self._tokenizer.decode(tokens, skip_special_tokens=False)

    def pieces(self, tokens: list[int]) -> list[str]:
        """Text of each token; their concatenation is the text of all. A character whose bytes are
        spread over several tokens belongs to the last of them."""
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
        """Whether a token is a special token of the format, not text."""
        return token in self._signs


def read_completion(text: str, tools_offered: bool) -> Completion:
    """Split a completion into text and tool calls (only if tools were offered); a call that cannot
    be parsed stays text."""
    if not tools_offered:
        return Completion(text, [])
    spans = _call_spans(text)
    calls = [call for _, _, body in spans if (call := _tool_call(body))]
    if not calls:
        return Completion(text, [])
    kept, end = [], 0
    for start, after, _ in spans:
        kept.append(text[end:start])
        end = after
    return Completion("".join([*kept, text[end:]]).strip(), calls)


def _call_spans(text: str) -> list[tuple[int, int, str]]:
    """Start, end and body of each `<tool_call> {…} </tool_call>`, in time linear in the length of
    the text: a model can be made to write thousands of unclosed ones."""
    ends, place = [], text.find(CLOSE)
    while place >= 0:
        if (body_end := _before_blanks(text, place)) > 0 and text[body_end - 1] == "}":
            ends.append((place, body_end))
        place = text.find(CLOSE, place + len(CLOSE))
    found: list[tuple[int, int, str]] = []
    place = text.find(OPEN) if ends else -1
    while place >= 0:
        match = BRACE.match(text, place + len(OPEN))
        after = place + 1
        if match:
            number = bisect.bisect_left(ends, (match.end(), 0))
            if number == len(ends):
                break
            close, body_end = ends[number]
            after = close + len(CLOSE)
            found.append((place, after, text[match.end() - 1 : body_end]))
        place = text.find(OPEN, after)
    return found


def _before_blanks(text: str, place: int) -> int:
    while place > 0 and text[place - 1].isspace():
        place -= 1
    return place


def _tool_call(text: str) -> dict[str, Any] | None:
    try:
        call = parse_shallow(text)
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


def for_template(message: dict[str, Any]) -> dict[str, Any]:
    """Message as templates expect it: content as text, arguments of tool calls as objects."""
    message = {**message, "content": text_of(message.get("content"))}
    calls = message.get("tool_calls")
    if calls:
        message["tool_calls"] = [_with_object(call) for call in calls]
    else:
        message.pop("tool_calls", None)
    return message


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # no JSON: the template shows it as it is
            function["arguments"] = parse_shallow(arguments)
    return {**call, "function": function}


def text_of(content: Any) -> str:
    """Text of an OpenAI content field: a string, None or text parts. Raises RolloutError for other
    content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) for p in content):
        if any(part.get("type") != "text" for part in content):
            raise RolloutError.of(
                "gateway.not_text",
                "The model reads text only; a message contains an image, audio or file.",
            )
        return "".join(str(part.get("text", "")) for part in content)
    raise RolloutError.of(
        "gateway.bad_message", "A message's content is neither text nor a list of parts."
    )


def _refuse_patterns(tokenizer: Tokenizer, folder: Path) -> None:
    """Raises ModelError if the decoder has a regular expression: decoding runs on the event loop
    for every token, and a hostile pattern could block it. No common tokenizer has one."""
    if tokenizer.decoder is not None and b'"Regex"' in tokenizer.decoder.__getstate__():
        raise ModelError.of(
            "model.unsafe_decoder",
            "The tokenizer's decoder contains a regular expression, which is refused for safety.",
            "Use the tokenizer of the original model.",
            where=str(folder / "tokenizer.json"),
        )


def _special_tokens(folder: Path) -> dict[str, str]:
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text()) if file.is_file() else {}
    tokens = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        tokens[name] = (value.get("content") if isinstance(value, dict) else value) or ""
    return tokens


@contextlib.asynccontextmanager
async def open_chat(folder: Path) -> AsyncIterator[ChatFormat]:
    """Load and test the chat format of the model in `folder`, as a context manager; its renderer
    process ends with the block. Raises ModelError if template or tokenizer cannot be used."""
    chat = await asyncio.to_thread(ChatFormat, folder)
    try:
        await asyncio.to_thread(chat.check)
        yield chat
    finally:
        await asyncio.shield(asyncio.to_thread(chat.close))
