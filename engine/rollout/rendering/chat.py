"""Chat format of a model: messages to tokens and sampled tokens to messages, by its own template
and tokenizer.

Templates and tokenizer patterns are untrusted code, so rendering, tokenising and parsing happen in
a separate process (renderer.py) with limits. What the template does (how tool calls are written,
whether earlier reasoning stays) is found by probes (probes.py).
"""

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from tokenizers import Tokenizer

from engine.models.file_checks import chat_template, stop_tokens
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import ModelError, RolloutError
from engine.protocol.records.chat_format import CANNOT_CLOSE, CLOSE_HINT
from engine.protocol.records.conversations import IMAGE
from engine.rollout.rendering.continuation import Recorded
from engine.rollout.rendering.images import Vision, vision_of
from engine.rollout.rendering.probes import Findings
from engine.rollout.rendering.renderer import RenderClient
from engine.rollout.rendering.syntaxes import HARMONY, Call, Reply
from engine.runtime.text import parse_shallow

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""Token of one byte, in vocabularies with byte fallback."""
GREETING = [{"role": "user", "content": "Hello"}]
PROMPT_TAIL = 128
"""Tokens at the end of a prompt that show whether it opens the reasoning."""


def _byte_signs() -> dict[str, int]:
    """Byte of each sign in a byte-level vocabulary (GPT-2's table, Radford et al. 2019): printable
    bytes are themselves, the others follow from U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    signs = {chr(byte): byte for byte in printable}
    return signs | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTES = _byte_signs()


class PromptTokens(NamedTuple):
    """Rendered and tokenised prompt."""

    text: str
    tokens: list[int]
    extends: bool
    """Whether the prompt continues the recorded tokens; text and tokens are then only the rest."""
    reason: str
    """Why the prompt does not continue the recorded tokens."""


class ChatFormat:
    """Chat template and tokenizer of one model. `close` it, or use it in a `with` block.

    `render`, `render_answered`, `findings` and `encode` block and are for threads; on the event
    loop, await `prompt` and `parse`.
    """

    def __init__(self, folder: Path, model: ModelConfig | None = None) -> None:
        """`model`: settings of the reasoning; the template's own defaults without it."""
        self.folder = folder
        self._model = model or ModelConfig()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        added = self.tokenizer.get_added_tokens_decoder()
        self._signs = frozenset(token for token, it in added.items() if it.special)
        self.special_tokens = {it.content: n for n, it in added.items() if it.special}
        """Token ids of the special tokens, by text."""
        self._special = _special_tokens(folder)
        self._byte_level = type(self.tokenizer.decoder).__name__ == "ByteLevel"
        self.stops = stop_tokens(folder) or self._ids([self._special["eos_token"]])
        """Token ids that end an answer."""
        _refuse_patterns(self.tokenizer, folder)
        self.vision: Vision | None = vision_of(folder, self.special_tokens)
        """Images of the model; None if it reads text only."""
        load = {
            "template": chat_template(folder),
            "special": self._special,
            "stops": self.stops,
            "placeholder": self.vision.placeholder if self.vision else "",
            "tokenizer": str(folder / "tokenizer.json"),
        }
        self._renderer = RenderClient(folder.name, load)
        self._findings: Findings | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the renderer process, and the image process; waits for them."""
        self._renderer.close()
        if self.vision is not None:
            self.vision.close()

    def check(self) -> None:
        """Render one greeting as a test, and find out what the template does. Raises ModelError if
        it exceeds its limits, or if the reasoning has a budget and cannot be closed; a template
        that refuses a single greeting is accepted."""
        try:
            self._renderer.ask("render", messages=GREETING, tools=[], answer=True, variables={})
            findings = self._describe()
        except RolloutError as error:
            if error.problem.code == "model.template_overran":
                raise ModelError(error.problem) from error
            return
        if self._model.thinking_budget is not None and findings.reasons and not findings.closing:
            raise ModelError.of("model.no_thinking_budget", CANNOT_CLOSE, CLOSE_HINT)

    @property
    def thinking_budget(self) -> int | None:
        """Maximum tokens of reasoning in an answer; None for no limit."""
        return self._model.thinking_budget

    @property
    def findings(self) -> Findings:
        """Behaviour of the template. Raises RolloutError if it exceeds a limit."""
        return self._findings or self._describe()

    def _describe(self) -> Findings:
        found = Findings(**self._renderer.ask("describe").head)
        if (chosen := self._model.tool_syntax) != "auto":
            closing = [] if chosen == HARMONY else found.closing
            found = found._replace(syntax=chosen, closing=closing)
        self._findings = found
        return found

    async def described(self) -> Findings:
        """`findings`, without blocking the event loop."""
        known = self._findings
        return known if known is not None else await asyncio.to_thread(self._describe)

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
        shown = [for_template(message, self.findings) for message in messages]
        values = self._variables({})
        return self._renderer.ask(
            "render",
            messages=shown,
            tools=shown_tools(tools, self.findings),
            answer=answer,
            variables=values,
        ).head

    async def prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        most_tokens: int,
        recorded: Recorded | None = None,
        variables: dict[str, Any] | None = None,
    ) -> PromptTokens:
        """Render and tokenise a prompt off the event loop. If the template continues the `recorded`
        tokens, only the rest is returned. `variables` are further values for the template. Raises
        RolloutError if the template refuses the messages or exceeds a limit, if it does not read a
        variable, or if the text cannot fit into `most_tokens`."""
        findings = await self.described()
        shown = [for_template(message, findings) for message in messages]
        if self.vision is not None:
            self.vision.refuse_placeholders([messages, tools])
        answer = await self._renderer.request(
            "prompt",
            cached=recorded is None,
            messages=shown,
            tools=shown_tools(tools, findings),
            variables=self._variables(variables or {}),
            recorded=recorded,
            keep_reasoning=self._model.keep_reasoning == "always",
            most_tokens=most_tokens,
        )
        head = answer.head
        return PromptTokens(head["text"], answer.tokens, head["extends"], head["reason"])

    async def parse(
        self, sampled: list[int], prompt: list[int], tools: list[dict[str, Any]]
    ) -> Reply:
        """Parse sampled tokens, with the stop token if it was sampled, into text, reasoning and
        calls of the offered `tools`. `prompt` are the tokens before them. Raises RolloutError if
        parsing exceeds a limit."""
        findings = await self.described()
        if not findings.reasons and not (tools and findings.syntax):
            return Reply(self.words(sampled), None, [], False)
        head = (
            await self._renderer.request(
                "parse",
                syntax=findings.syntax,
                reasons=findings.reasons,
                tokens=sampled,
                prompt=prompt[-PROMPT_TAIL:],
                tools=tools,
            )
        ).head
        return Reply(**{**head, "calls": [Call(*call) for call in head["calls"]]})

    def _variables(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Values of the template's variables: the run's settings and those that a request wants.
        Raises RolloutError for a variable that the template does not read."""
        model, values = self._model, dict(self._model.template_variables)
        if model.thinking != "default" or wanted:
            findings = self.findings
            if model.thinking != "default" and findings.switch:
                values[findings.switch] = model.thinking == "on"
            for name in wanted:
                if name not in findings.variables:
                    known = ", ".join(findings.variables) or "no variables"
                    raise RolloutError.of(
                        "gateway.unknown_variable",
                        f"chat_template_kwargs.{name}: the model's chat template does not read it.",
                        f"It reads {known}.",
                    )
        return {**values, **wanted}

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
        return self.tokenizer.decode(tokens, skip_special_tokens=False)

    def words(self, tokens: list[int]) -> str:
        """Text of token ids, without special tokens."""
        return self.decode([token for token in tokens if token not in self._signs])

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text, which may be part of a character only."""
        name = self.tokenizer.id_to_token(token) or ""
        if token not in self._signs and self._byte_level:
            return bytes(BYTES[sign] for sign in name if sign in BYTES)
        if hexadecimal := BYTE.fullmatch(name):
            return bytes([int(hexadecimal[1], 16)])
        return self.decode([token]).encode()

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

    def _ids(self, tokens: list[str]) -> list[int]:
        found = (self.tokenizer.token_to_id(token) for token in tokens if token)
        return [token for token in found if token is not None]


def for_template(message: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """Message as a template expects it: content as text, or as parts if it has images; reasoning in
    its field, arguments of tool calls as objects or as text."""
    reasoning = reasoning_of(message)
    left = ("reasoning_content", "reasoning", "thinking")
    message = {name: value for name, value in message.items() if name not in left}
    message["content"] = _shown_content(message.get("content"))
    if reasoning and findings.reasoning_field:
        message[findings.reasoning_field] = reasoning
    if message.get("role") == "developer" and not findings.developer:
        message["role"] = "system"
    calls = message.get("tool_calls")
    if calls:
        message["tool_calls"] = [_shown_call(call, findings.text_arguments) for call in calls]
    else:
        message.pop("tool_calls", None)
    return message


def shown_tools(tools: list[dict[str, Any]], findings: Findings) -> list[dict[str, Any]]:
    """Tools as a template expects them: with an empty description, where it needs one."""
    if not findings.wants_description:
        return tools
    return [
        {**tool, "function": {"description": "", **(tool.get("function") or {})}} for tool in tools
    ]


def reasoning_of(message: dict[str, Any]) -> str:
    """Reasoning of an assistant message, in any of the fields that servers use for it."""
    found = message.get("reasoning_content") or message.get("reasoning") or ""
    return found if isinstance(found, str) else ""


def _shown_call(call: dict[str, Any], as_text: bool) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments") or "{}"
    if as_text and not isinstance(arguments, str):
        function["arguments"] = json.dumps(arguments, ensure_ascii=False)
    elif not as_text and isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # no JSON: the template shows it as it is
            function["arguments"] = parse_shallow(arguments)
    return {**call, "function": function}


def tool_calls_of(reply: Reply) -> list[dict[str, Any]]:
    """Tool calls of a reply in OpenAI's form, with new ids where the model wrote none."""
    return [
        {
            "id": call.id or f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.calls
    ]


def _shown_content(content: Any) -> str | list[dict[str, Any]]:
    """Content as a template expects it: text, or a list of parts if it has images."""
    text = text_of(content)
    if not isinstance(content, list) or all(part.get("type") != "image" for part in content):
        return text
    return [
        {"type": "image"} if part["type"] == "image" else {"type": "text", "text": text_of([part])}
        for part in content
    ]


def text_of(content: Any) -> str:
    """Text of an OpenAI content field: a string, None or parts that are text or stored images, each
    of which is the character `IMAGE`. Raises RolloutError for other content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) for p in content):
        return "".join(_text_of_part(part) for part in content)
    raise RolloutError.of(
        "gateway.bad_message", "A message's content is neither text nor a list of parts."
    )


def _text_of_part(part: dict[str, Any]) -> str:
    match part.get("type"):
        case "text" | "refusal":
            return str(part.get("text") or part.get("refusal") or "")
        case "image" if isinstance(part.get("id"), str):
            return IMAGE
    raise not_text()


def not_text() -> RolloutError:
    """Error for content of a kind that the model cannot read."""
    return RolloutError.of(
        "gateway.not_text", "The model reads text only; a message contains an image, audio or file."
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
async def open_chat(folder: Path, model: ModelConfig | None = None) -> AsyncIterator[ChatFormat]:
    """Load and test the chat format of the model in `folder`, as a context manager; its renderer
    process ends with the block. `model`: settings of the reasoning. Raises ModelError if template
    or tokenizer cannot be used."""
    chat = await asyncio.to_thread(ChatFormat, folder, model)
    try:
        await asyncio.to_thread(chat.check)
        yield chat
    finally:
        await asyncio.shield(asyncio.to_thread(chat.close))
