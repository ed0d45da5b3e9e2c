"""Probes of a chat template: conversations that are rendered and parsed again.

A template says nowhere how its model writes tool calls or whether it keeps earlier reasoning. So
each way to pass a value is tried, and each syntax parses what the template renders: the one that
gives back the same calls is the model's.

Used in the renderer process alone.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from engine.rollout.rendering.syntaxes import END_THINK, HARMONY, PLAIN, THINK, Reply, Syntaxes
from engine.rollout.rendering.template import Messages, Template
from engine.runtime.text import parse_shallow

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
SWITCHES = ("enable_thinking", "thinking")
ARGUMENTS: list[dict[str, Any]] = [
    {"city": "Zürich", "days": 3, "now": True, "place": {"lat": 1.5}},
    {"city": "3", "days": 4, "now": False, "place": {"lat": -2.5}},
]
PROPERTIES = {
    "city": {"type": "string", "description": "City"},
    "days": {"type": "integer", "description": "Days"},
    "now": {"type": "boolean", "description": "Now"},
    "place": {"type": "object", "description": "Place", "properties": {"lat": {"type": "number"}}},
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Forecast",
        "parameters": {"type": "object", "properties": PROPERTIES, "required": [*PROPERTIES]},
    },
}
USER = {"role": "user", "content": "qwords"}
PICTURE = [{"type": "image"}, {"type": "text", "text": "qwords"}]
WHY, WORDS = "rwhy", "awords"
OPENING, CLOSING = f"{THINK}\n", f"\n{END_THINK}\n\n"
"""Texts around the reasoning in models that write it between tags."""


class Findings(NamedTuple):
    """Behaviour of a chat template."""

    syntax: str
    """Name of the tool-call syntax (`syntaxes.py`); empty if none parses what it renders."""
    shows_tools: bool
    """Whether the tools that a request offers appear in its prompt."""
    parallel: bool
    """Whether several tool calls of one message are rendered and parsed."""
    reasoning_field: str
    """Name of the message field whose text it shows as reasoning; empty if none."""
    reasons: bool
    """Whether answers begin with reasoning that can be parsed."""
    keeps_reasoning: str
    """Earlier reasoning in a prompt: `never`, `tool_cycle` (until the next user message) or
    `always`."""
    switch: str
    """Name of the variable that turns reasoning on and off; empty if none does."""
    text_arguments: bool
    """Whether it takes arguments of tool calls as JSON text, not as objects."""
    wants_description: bool
    """Whether it refuses tools without a description."""
    developer: bool
    """Whether it shows messages of the role `developer`."""
    variables: list[str]
    """Names of further variables that it reads."""
    images: bool
    """Whether it shows images in messages of the user, to a model that reads them."""
    tool_images: bool
    """Whether it shows images in tool results, too."""
    closing: list[int]
    """Token ids that close the reasoning before the answer; empty if Atelier cannot close it."""


class Answered(NamedTuple):
    """Token ids of a prompt and of the answer to it."""

    prompt: list[int]
    tokens: list[int]


class Probe:
    """Probes of one template; `describe` runs them all."""

    def __init__(
        self,
        template: Template,
        syntaxes: Syntaxes,
        encode: Callable[[str], list[int]],
        stops: list[int],
        placeholder: str,
    ) -> None:
        """`placeholder`: text that stands for an image; empty if the model reads text only."""
        self._template, self._syntaxes = template, syntaxes
        self._placeholder = placeholder
        self._encode, self._stops = encode, frozenset(stops)

    def describe(self) -> Findings:
        """Describe the template. Raises nothing but exceeded limits: what it refuses it does not
        do."""
        field = next((f for f in REASONING_FIELDS if self._shows(WHY, [USER, _why(f)])), "")
        text_arguments = not self._calls_shown(text=False) and self._calls_shown(text=True)
        switch = self._switch()
        tagged = "</think>" in self._template.source
        syntax, parallel, reasons = self._syntax(field, text_arguments, tagged)
        return Findings(
            syntax=syntax,
            shows_tools="get_weather" in self._rendered([USER], [TOOL], True),
            parallel=parallel,
            reasoning_field=field,
            reasons=reasons,
            keeps_reasoning=self._kept(field, text_arguments),
            switch=switch,
            text_arguments=text_arguments,
            wants_description=self._wants_description(),
            developer=self._shows("dwords", [{"role": "developer", "content": "dwords"}, USER]),
            variables=self._template.variables,
            images=self._shows_image([{**USER, "content": PICTURE}]),
            tool_images=self._shows_image(
                [USER, _calling(1, text_arguments), {**_results(1)[0], "content": PICTURE}]
            ),
            closing=self._closing(syntax, tagged, field) if reasons else [],
        )

    def _rendered(self, messages: Messages, tools: Messages, answer: bool, **values: Any) -> str:
        try:
            return self._template.render(messages, tools, answer, values).text
        except Exception:  # noqa: BLE001 - foreign code may raise anything: it renders nothing
            return ""

    def _shows(self, words: str, messages: Messages) -> bool:
        return words in self._rendered(messages, [], False)

    def _shows_image(self, messages: Messages) -> bool:
        shown = self._rendered(messages, [TOOL], True)
        return bool(self._placeholder) and shown.count(self._placeholder) == 1 and "qwords" in shown

    def _calls_shown(self, text: bool) -> bool:
        shown = self._rendered([USER, _calling(1, text)], [TOOL], False)
        return "get_weather" in shown and "Zürich" in shown

    def _switch(self) -> str:
        for name in SWITCHES:
            on, off = (self._rendered([USER], [], True, **{name: v}) for v in (True, False))
            if on != off:
                return name
        return ""

    def _wants_description(self) -> bool:
        bare = {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}
        tools = [
            {"type": "function", "function": one} for one in (bare, {**bare, "description": ""})
        ]
        without, with_one = (self._rendered([USER], [tool], True) for tool in tools)
        return not without and bool(with_one)

    def _kept(self, field: str, text: bool) -> str:
        if not field:
            return "never"
        user = {"role": "user", "content": "uwords"}
        if self._shows(WHY, [USER, _why(field), user]):
            return "always"
        thought = {**_calling(1, text), field: WHY}
        after = self._rendered([USER, thought, *_results(1)], [TOOL], True)
        return "tool_cycle" if WHY in after else "never"

    def _syntax(self, field: str, text: bool, tagged: bool) -> tuple[str, bool, bool]:
        """Syntax, whether it takes several calls, and whether answers have reasoning: those of the
        syntax that gives back the most of what the template renders."""
        one, two = (self._answer(_calling(count, text), [TOOL]) for count in (1, 2))
        thought = self._answer(_why(field), []) if field else None
        both = self._answer({**_calling(1, text), field: WHY}, [TOOL]) if field else None
        best, found = (0, 0, False), PLAIN
        shown = [answer is not None for answer in (both, thought)]
        perfect = (2 * len(PROPERTIES), sum(shown), shown[1])
        calls = self._calls_shown(text)
        for name in self._syntaxes.candidates() if calls else ():
            alone = _same_values(self._parsed(name, tagged, one, [TOOL]), 1)
            if not alone:
                continue
            several = _same_values(self._parsed(name, tagged, two, [TOOL]), 2)
            mixed = self._reads(name, tagged, both, [TOOL])
            reads = self._reads(name, tagged, thought, [])
            score = (alone + several, int(mixed) + int(reads), reads)
            if score > best:
                best, found = score, name
            if score == perfect:  # the others may import the library, which takes 0.2 s
                break
        if found == PLAIN:
            return PLAIN, False, tagged or self._reads(PLAIN, tagged, thought, [])
        several = _same_values(self._parsed(found, tagged, two, [TOOL]), 2)
        return found, several > 0, best[2] or tagged

    def _closing(self, syntax: str, tagged: bool, field: str) -> list[int]:
        """Tokens between reasoning and answer as the template writes them, if the parser reads them
        as the end of the reasoning. A template that shows no reasoning closes it with the tag that
        it splits answers at. Harmony's mark names the channel of what follows, an answer or a call,
        which is the model's choice."""
        if syntax == HARMONY:
            return []
        shown = self._rendered([USER, _why(field)], [], False) if field else ""
        before, _, rest = shown.partition(WHY)
        prompt = self._rendered([USER], [], True)
        opening = before.removeprefix(prompt)
        between = rest.partition(WORDS)[0] if WORDS in rest else ""
        for text in (between, CLOSING):
            for opened in ("", opening, OPENING):
                answer = Answered(self._encode(prompt), self._encode(opened + WHY + text + WORDS))
                reply = self._parsed(syntax, tagged, answer, []) if text.strip() else None
                if reply and ((reply.reasoning or "").strip(), reply.content) == (WHY, WORDS):
                    return self._encode(text)
        return []

    def _reads(self, name: str, tagged: bool, answer: Answered | None, tools: list[Any]) -> bool:
        """Whether a syntax finds the reasoning in a rendered answer that has some."""
        if answer is None:
            return False
        reply = self._parsed(name, tagged, answer, tools)
        return reply is not None and (reply.reasoning or "").strip() == WHY

    def _answer(self, message: dict[str, Any], tools: list[Any]) -> Answered | None:
        """Tokens of prompt and answer as the template renders them; None if it refuses them."""
        before = self._encode(self._rendered([USER], tools, True))
        whole = self._encode(self._rendered([USER, message], tools, False))
        pairs = zip(before, whole, strict=False)
        start = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(before), len(whole)))
        ends = [n + 1 for n in range(start, len(whole)) if whole[n] in self._stops]
        answer = whole[start : max(ends, default=len(whole))]
        return Answered(whole[:start], answer) if answer else None

    def _parsed(
        self, name: str, tagged: bool, answer: Answered | None, tools: list[Any]
    ) -> Reply | None:
        if answer is None:
            return None
        try:
            return self._syntaxes.parser(name, tagged)(answer.tokens, answer.prompt, tools)
        except Exception:  # noqa: BLE001 - a syntax that fails is not the model's
            return None


def _same_values(reply: Reply | None, count: int) -> int:
    """Number of arguments that have their value in each of `count` parsed calls; 0 if a call is
    missing. Some templates write True for true, which no syntax can read as a boolean."""
    if reply is None or [call.name for call in reply.calls] != ["get_weather"] * count:
        return 0
    try:
        found = [parse_shallow(call.arguments) for call in reply.calls]
    except ValueError:
        return 0
    pairs = [(one, wanted) for one, wanted in zip(found, ARGUMENTS, strict=False)]
    if not all(isinstance(one, dict) and one.get("city") == w["city"] for one, w in pairs):
        return 0
    return sum(all(one.get(name) == wanted[name] for one, wanted in pairs) for name in PROPERTIES)


def _why(field: str) -> dict[str, Any]:
    return {"role": "assistant", "content": WORDS, field: WHY}


def _calling(count: int, text: bool) -> dict[str, Any]:
    """Assistant message with tool calls, whose arguments are JSON text or objects."""
    calls = [
        {
            "id": f"call{number:05d}",
            "type": "function",
            "function": {
                "name": "get_weather",
                "arguments": json.dumps(given, ensure_ascii=False) if text else given,
            },
        }
        for number, given in enumerate(ARGUMENTS[:count])
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _results(count: int) -> Messages:
    return [
        {"role": "tool", "content": "twords", "tool_call_id": f"call{n:05d}", "name": "get_weather"}
        for n in range(count)
    ]
