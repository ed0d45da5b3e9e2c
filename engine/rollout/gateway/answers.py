"""Streams of an answer: sampled tokens become pieces of reasoning and text while they arrive.

Time and memory are linear in the number of tokens. Only what cannot change any more is passed on:
not the beginning of a stop string or of a tool call, not blanks that the parser may strip.
"""

import re
from typing import NamedTuple

from tokenizers.decoders import DecodeStream

from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rendering.probes import Findings
from engine.rollout.rendering.syntaxes import END_THINK, HERMES, MISTRAL, PLAIN, THINK, Reply

SPECIAL = re.compile(r"<[^<>\s]+>")
CALL_MARKS = {
    HERMES: "<tool_call>", MISTRAL: "[TOOL_CALLS]", "qwen3": "<tool_call>",
    "qwen3.5": "<tool_call>", "glm-4.5": "<tool_call>", "glm-5": "<tool_call>",
    "nemotron-3": "<tool_call>", "minimax-m2": "<minimax:tool_call>",
    "deepseek-v3": "<｜tool▁calls▁begin｜>", "deepseek-r1": "<｜tool▁calls▁begin｜>",
    "kimi-k2": "<|tool_calls_section_begin|>", "kimi-k2.5": "<|tool_calls_section_begin|>",
    "gemma4": "<|tool_call>",
}  # fmt: skip
"""Text that begins tool calls, by syntax."""
REASONING_MARKS = {"gemma4": ("<|channel>thought\n", "<channel|>")}
"""Texts around the reasoning, by syntax; of the others in CALL_MARKS, they are the think tags."""
OBJECTS = ("llama-3",)
"""Syntaxes whose calls are an answer that begins with a brace."""
STRIPPED = (PLAIN, HERMES, MISTRAL)
"""Syntaxes whose parser keeps blanks at the beginning of the text."""


class Delta(NamedTuple):
    """New piece of an answer."""

    reasoning: str = ""
    content: str = ""


class StopStrings:
    """Search for stop strings in a text that arrives in pieces."""

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._held = ""
        self._most = max(map(len, stops), default=1) - 1
        self.found: str | None = None
        """The stop string that came first."""

    def add(self, piece: str) -> str:
        """Add a piece; returns the text that no stop string can begin in any more."""
        if not self._stops:
            return piece
        text = self._held + piece
        places = [(text.find(stop), stop) for stop in self._stops if stop in text]
        if places:
            place, self.found = min(places)
            self._held = ""
            return text[:place]
        keep = min(self._most, len(text))
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """Text held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held


class Decoder:
    """Text of tokens that arrive one after another."""

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat
        self._stream = DecodeStream(skip_special_tokens=False)

    def add(self, token: int) -> tuple[str, bool]:
        """Text that a token completes, and whether it is a special token."""
        if self._chat.is_special(token):
            self._stream = DecodeStream(skip_special_tokens=False)
            return self._chat.decode([token]), True
        return self._stream.step(self._chat.tokenizer, token) or "", False


class AnswerStream:
    """Splits an answer into reasoning and text while it arrives."""

    def __init__(self, findings: Findings, opened: bool, tools: bool, stops: list[str]) -> None:
        """`opened`: whether the prompt has opened the reasoning; `tools`: whether tools were
        offered; `stops`: stop strings of the request."""
        syntax = findings.syntax
        mark = CALL_MARKS.get(syntax)
        self._open, self._close = REASONING_MARKS.get(syntax, (THINK, END_THINK))
        self._whole = findings.reasons and mark is None and syntax not in STRIPPED
        """Whether nothing is passed on before the end."""
        self._whole |= bool(tools and syntax and mark is None and syntax not in OBJECTS)
        self._may_be_object = tools and syntax in OBJECTS
        self._mark = mark if tools and mark else ""
        self._seen = (*SPECIAL.findall(self._open), *SPECIAL.findall(self._close), self._mark)
        """Special tokens that matter; others are not shown."""
        self._strips = syntax not in STRIPPED
        self._stops = StopStrings(stops)
        self._state = "content"
        if findings.reasons:
            self._state = "reasoning" if opened else "undecided"
        self._held = ""
        self._parts: dict[str, list[str]] = {"reasoning": [], "content": []}

    @property
    def stopped(self) -> str | None:
        """The stop string that was found."""
        return self._stops.found

    def add(self, text: str, special: bool) -> Delta:
        """Add the text that a token completes; returns what can be passed on."""
        if special and text not in self._seen:
            return Delta()
        shown = self._stops.rest() + text if special else self._stops.add(text)
        if self._may_be_object and (beginning := (self._held + shown).lstrip()):
            self._may_be_object = False
            self._whole |= beginning.startswith("{")
        return Delta() if self._whole else self._split(shown)

    def force(self, text: str, special: bool) -> Delta:
        """Add the text of a forced token, in which stop strings are not searched."""
        if special and text not in self._seen:
            return Delta()
        shown = self._stops.rest() + text
        return Delta() if self._whole else self._split(shown)

    def finish(self, reply: Reply) -> Delta:
        """Rest of the answer at its end, by its parsed form `reply`."""
        return Delta(
            self._rest("reasoning", reply.reasoning or ""), self._rest("content", reply.content)
        )

    def _rest(self, part: str, whole: str) -> str:
        sent = "".join(self._parts[part])
        return whole[len(sent) :] if whole.startswith(sent) else ""

    def _split(self, text: str) -> Delta:
        if self._state == "calls":
            return Delta()
        self._held += text
        reasoning = content = ""
        if self._state == "undecided":
            bare = self._held.lstrip()
            if bare.startswith(self._open):
                self._state, self._held = "reasoning", bare[len(self._open) :]
            elif self._open.startswith(bare):
                return Delta()
            else:
                self._state = "content"
        if self._state == "reasoning":
            reasoning, closed = self._until(self._close)
            if closed:
                self._state = "content"
                reasoning = reasoning.rstrip()
                self._strips = True
        if self._state == "content":
            content = self._content()
        return Delta(self._passed("reasoning", reasoning, True), content)

    def _content(self) -> str:
        if not self._mark:
            content, self._held = _settled(self._held)
        else:
            content, closed = self._until(self._mark)
            if closed:
                self._state, content = "calls", content.rstrip()
        return self._passed("content", content, self._strips)

    def _until(self, mark: str) -> tuple[str, bool]:
        """Held text up to a mark, and whether the mark has come; a possible beginning of it stays
        held, and so do blanks."""
        before, found, after = self._held.partition(mark)
        if found:
            self._held = after
            return before, True
        keep = next(
            (n for n in range(min(len(mark) - 1, len(before)), 0, -1) if mark[:n] == before[-n:]), 0
        )
        settled, blanks = _settled(before[: len(before) - keep])
        self._held = blanks + before[len(before) - keep :]
        return settled, False

    def _passed(self, part: str, text: str, strips: bool) -> str:
        if strips and not self._parts[part]:
            text = text.lstrip()
        if text:
            self._parts[part].append(text)
        return text


def _settled(text: str) -> tuple[str, str]:
    """Text without the blanks at its end, and these."""
    bare = text.rstrip()
    return bare, text[len(bare) :]
