"""Parsing of sampled tokens into reasoning, text and tool calls, one syntax a model family.

Families whose tool calls stand between tokens of their own are parsed by the library `renderers`
(Prime Intellect). Two syntaxes made of plain text are parsed here: Hermes (a JSON object between
<tool_call> and </tool_call>, without such tokens) and Mistral ([TOOL_CALLS]).

Used in the renderer process alone.
"""

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

from tokenizers import Tokenizer

from engine.runtime.text import parse_shallow

THINK, END_THINK = "<think>", "</think>"
HERMES, MISTRAL, HARMONY, PLAIN = "hermes", "mistral", "gpt-oss", ""
"""Names of the syntaxes that are not classes of the library; `PLAIN` has no tool calls."""
LIBRARY = (
    "qwen3", "qwen3.5", "glm-4.5", "glm-5", "llama-3", "deepseek-v3", "deepseek-r1", "kimi-k2",
    "kimi-k2.5", "minimax-m2", "nemotron-3", "gemma4", "laguna-xs.2", "hy3", "inkling",
    "deepseek-v4",
)  # fmt: skip
"""Names of the library's renderers whose parsers are tried, in this order."""
HARMONY_TOKENS = {
    "return_id": "<|return|>", "call_id": "<|call|>", "start_id": "<|start|>", "end_id": "<|end|>",
    "channel_id": "<|channel|>", "message_id": "<|message|>", "constrain_id": "<|constrain|>",
}  # fmt: skip
CALLS = "[TOOL_CALLS]"


class Call(NamedTuple):
    """Tool call of a model."""

    name: str
    arguments: str
    """JSON text; if the model wrote no object, its text as it is."""
    id: str | None = None
    """Id, where the syntax has one."""


class Reply(NamedTuple):
    """Sampled tokens, parsed."""

    content: str
    reasoning: str | None
    """Text of the reasoning; None if there was none."""
    calls: list[Call]
    reasoning_open: bool
    """Whether the tokens end inside the reasoning."""
    malformed: int = 0
    """Number of tool calls that could not be parsed; their text stays in the content."""
    reasoning_tokens: int = 0


class Parser(Protocol):
    def __call__(self, tokens: list[int], prompt: list[int], tools: list[Any]) -> Reply:
        """Parse sampled tokens, with the stop token if it was sampled. `prompt` are the last tokens
        before them, which may open the reasoning; `tools` are the tools that were offered."""
        ...


class Vocabulary:
    """Tokenizer with the methods that `renderers` calls."""

    unk_token_id = None
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, stops: list[int], template: str) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = stops[0] if stops else None
        self.eos_token = tokenizer.id_to_token(stops[0]) if stops else None
        self.name_or_path = ""
        self.chat_template = template

    def encode(self, text: str, add_special_tokens: bool = False, **_: Any) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, tokens: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        ids = [tokens] if isinstance(tokens, int) else list(tokens)
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        if isinstance(tokens, str):
            return self._tokenizer.token_to_id(tokens)
        return [self._tokenizer.token_to_id(token) for token in tokens]


class Syntaxes:
    """Parsers of one model's vocabulary, made when they are first used."""

    def __init__(self, tokenizer: Tokenizer, stops: list[int], template: str) -> None:
        self._tokenizer = tokenizer
        self._stops = frozenset(stops)
        self._vocabulary = Vocabulary(tokenizer, stops, template)
        self._parsers: dict[tuple[str, bool], Parser] = {}

    def parser(self, name: str, reasons: bool) -> Parser:
        """Parser of the syntax `name`; `reasons` is whether text between <think> and </think> is
        reasoning, in the syntaxes that are parsed here. Raises any exception if the vocabulary
        lacks tokens of the syntax."""
        if (name, reasons) not in self._parsers:
            self._parsers[name, reasons] = self._made(name, reasons)
        return self._parsers[name, reasons]

    def candidates(self) -> Iterator[str]:
        """Names of the syntaxes with tool calls for which the vocabulary has the tokens."""
        known = self._tokenizer.token_to_id
        if known("<tool_call>") is None:
            yield HERMES
        if known(CALLS) is not None:
            yield MISTRAL
        if all(known(token) is not None for token in HARMONY_TOKENS.values()):
            yield HARMONY
        for name in LIBRARY:
            try:
                self.parser(name, False)
            except Exception:  # noqa: BLE001 - the vocabulary lacks its tokens
                continue
            yield name
        if known("<tool_call>") is not None:
            yield HERMES

    def _made(self, name: str, reasons: bool) -> Parser:
        if name in (PLAIN, HERMES, MISTRAL):
            return partial(self._by_text, name, reasons)
        if name == HARMONY:
            ids = {k: self._tokenizer.token_to_id(v) or 0 for k, v in HARMONY_TOKENS.items()}
            return partial(self._harmony, ids)
        _open_library()
        from renderers.base import create_renderer
        from renderers.configs import config_from_name

        if name.startswith("glm"):  # its parser takes an answer without tags for reasoning
            config = config_from_name(name)
            modes = [config.model_copy(update={"enable_thinking": on}) for on in (False, True)]
            return partial(self._glm, [create_renderer(self._vocabulary, m) for m in modes])
        return partial(self._by_library, create_renderer(self._vocabulary, config_from_name(name)))

    def _by_library(
        self, renderer: Any, tokens: list[int], prompt: list[int], tools: list[Any]
    ) -> Reply:
        parsed = renderer.parse_response(tokens, tools=tools or None, prompt_ids=prompt)
        return self._reply(parsed, bool(tools))

    def _glm(
        self, renderers: list[Any], tokens: list[int], prompt: list[int], tools: list[Any]
    ) -> Reply:
        beginning = self._tokenizer.decode(tokens[:8], skip_special_tokens=False).lstrip()
        opened = self._tokenizer.decode(prompt, skip_special_tokens=False).rstrip()
        thinks = beginning.startswith(THINK) or opened.endswith(THINK)
        return self._by_library(renderers[thinks], tokens, prompt, tools)

    def _harmony(
        self, ids: dict[str, int], tokens: list[int], prompt: list[int], tools: list[Any]
    ) -> Reply:
        _open_library()
        from renderers.parsing import parse_gpt_oss

        start = next((n for n in reversed(range(len(prompt))) if prompt[n] == ids["start_id"]), 0)
        if tokens and tokens[-1] in self._stops - {ids["return_id"], ids["call_id"]}:
            tokens = tokens[:-1]
        parsed = parse_gpt_oss(self._vocabulary, [*prompt[start:], *tokens], **ids)
        return self._reply(parsed, bool(tools))

    @staticmethod
    def _reply(parsed: Any, offered: bool) -> Reply:
        """Reply of the library's result. Calls that could not be parsed, and all of them if no
        tools were offered, stay text."""
        reasoning, open_ = parsed.reasoning_content, parsed.reasoning_complete is False
        reasoning = None if reasoning is None else reasoning.strip()
        good = [call for call in parsed.tool_calls if offered and _usable(call)]
        kept = [call.raw for call in parsed.tool_calls if call not in good]
        content = "\n".join([part for part in (parsed.content.strip(), *kept) if part])
        calls = [Call(call.name, _as_json(call.arguments), call.id) for call in good]
        return Reply(content, reasoning, calls, open_, len(kept) if offered else 0)

    def _by_text(
        self, name: str, reasons: bool, tokens: list[int], prompt: list[int], tools: list[Any]
    ) -> Reply:
        text = self._text(tokens)
        reasoning: str | None = None
        if reasons:
            before = self._tokenizer.decode(prompt, skip_special_tokens=False)
            opened = before.rstrip().endswith(THINK)
            reasoning, text, open_ = split_reasoning(text, opened)
            if open_:
                return Reply("", reasoning, [], True)
        read = READERS.get(name)
        if read is None or not tools:
            return Reply(text, reasoning, [], False)
        return Reply(*_joined(read(text), reasoning))

    def _text(self, tokens: list[int]) -> str:
        ended = tokens and tokens[-1] in self._stops
        spoken = tokens[:-1] if ended else tokens
        return self._tokenizer.decode(spoken, skip_special_tokens=False)


def _usable(call: Any) -> bool:
    """Whether a call of the library's result has a name and arguments. Values that are no JSON in
    a syntax of tags (True for true) are strings in them; a call without its end counts if its
    arguments are whole."""
    whole = call.status in ("invalid_json", "unclosed_block") and isinstance(call.arguments, dict)
    return bool(call.name) and (call.status == "ok" or whole)


def split_reasoning(text: str, opened: bool) -> tuple[str | None, str, bool]:
    """Reasoning at the beginning of a text, the rest, and whether it ends inside the reasoning.
    `opened`: whether the prompt has opened it."""
    stripped = text.lstrip()
    if stripped.startswith(THINK):
        text = stripped[len(THINK) :]
    elif not opened:
        return None, text, False
    reasoning, closed, rest = text.partition(END_THINK)
    return reasoning.strip(), rest.lstrip(), not closed


Piece = str | Call | None
"""Part of a text: words, a tool call, or None for a call that could not be parsed (its words are
the piece before)."""


def _joined(pieces: list[Piece], reasoning: str | None) -> tuple[Any, ...]:
    calls = [piece for piece in pieces if isinstance(piece, Call)]
    words = "".join(piece for piece in pieces if isinstance(piece, str))
    malformed = sum(piece is None for piece in pieces)
    return (words.rstrip() if calls else words), reasoning, calls, False, malformed


def read_hermes(text: str) -> list[Piece]:
    """Split a text at its <tool_call> objects, in time linear in its length. A last call whose
    </tool_call> is missing counts if its JSON is whole."""
    opening, closing = "<tool_call>", "</tool_call>"
    pieces: list[Piece] = []
    done, place = 0, text.find(opening)
    while place >= 0 and pieces.count(None) < MOST_MALFORMED:
        start = place + len(opening)
        brace = BRACE.match(text, start)
        found, end = _object(text, brace.end() - 1) if brace else ("", start)
        rest = BLANKS.match(text, end)
        after = rest.end() if rest else end
        closed = text.startswith(closing, after)
        if (call := json_call(found)) and (closed or after == len(text)):
            after += len(closing) if closed else 0
            pieces += [text[done:place], call]
            done = after
        elif not call:
            pieces.append(None)
            after = start
        place = text.find(opening, max(after, start))
    return [*pieces, text[done:]]


MOST_MALFORMED = 100
"""Calls of one answer that may fail to parse; after them the rest is text."""
BRACE, BLANKS = re.compile(r"\s*+\{"), re.compile(r"\s*+")
NAMED = re.compile(r"\s*+([\w.:/-]++)(?:\[CALL_ID\](\w++))?(?:\[ARGS\])?\s*+(?=\{)")


def read_mistral(text: str) -> list[Piece]:
    """Split a text at its [TOOL_CALLS], which a JSON list of calls follows, or a name and the
    arguments of one call."""
    before, *bodies = text.split(CALLS)
    pieces: list[Piece] = [before]
    for body in bodies:
        calls = _mistral_calls(body)
        pieces += calls or [CALLS + body, None]
    return pieces


def _mistral_calls(body: str) -> list[Call]:
    if named := NAMED.match(body):
        arguments, end = _object(body, named.end())
        call = Call(named[1], arguments, named[2])
        return [call] if arguments and not body[end:].strip() else []
    try:
        found = parse_shallow(body)
    except ValueError:
        return []
    calls = [_call(one) for one in found] if isinstance(found, list) else []
    return [call for call in calls if call] if all(calls) else []


def _object(text: str, start: int) -> tuple[str, int]:
    """JSON object that begins at `start`, and where it ends; empty if there is none."""
    try:
        _, end = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return "", start
    return text[start:end], end


DECODER = json.JSONDecoder()
READERS: dict[str, Callable[[str], list[Piece]]] = {HERMES: read_hermes, MISTRAL: read_mistral}


def json_call(text: str) -> Call | None:
    """Tool call of a JSON object with `name` and `arguments` (or `parameters`); None if it is not
    such an object."""
    try:
        return _call(parse_shallow(text))
    except ValueError:
        return None


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    given = value.get("arguments", value.get("parameters", {}))
    name = value.get("id")
    return Call(value["name"], _as_json(given), name if isinstance(name, str) else None)


def _as_json(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)


def _open_library() -> None:
    """Make the modules of `renderers` importable without its `__init__`, which imports the openai
    client: most of a second of CPU time for every renderer process."""
    if "renderers" not in sys.modules:
        found = importlib.util.find_spec("renderers")
        if found is None:
            raise ModuleNotFoundError("No module named 'renderers'", name="renderers")
        found.loader = None  # a package of its folder alone
        sys.modules["renderers"] = importlib.util.module_from_spec(found)
