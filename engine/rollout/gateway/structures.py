"""Required form of an answer, as a structural tag of the library xgrammar, which vLLM takes too.

It comes from `response_format`, `tool_choice`, strict tools, `parallel_tool_calls` and vLLM's
`structured_outputs`. The policy samples only tokens that the tag allows, and the trainer applies
the same mask. Reasoning stays free: the tag begins behind it. Pure functions.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.policy.base import MOST_GRAMMAR_CHARS
from engine.protocol.problems import RolloutError
from engine.rollout.gateway.requests import ChatRequest
from engine.rollout.rendering.probes import Findings
from engine.rollout.rendering.syntaxes import END_THINK, HARMONY, HERMES, MISTRAL, THINK

Format = dict[str, Any]
Special = Mapping[str, int]
"""Token ids of the vocabulary's special tokens, by text."""
NOTHING: Format = {"type": "any_text", "max_chars": 0}
"""Stands between two tokens, whose masks xgrammar 0.2.7 would exchange."""
ANYTHING: Format = {"type": "any_text"}


class CallShape(NamedTuple):
    """Form of tool calls in a syntax: `begin`, name, `middle`, arguments, `end`."""

    begin: str
    middle: str
    end: str
    style: str = "json"
    """Form of the arguments, by xgrammar's name."""
    before: str = ""
    """Text before the first call."""
    between: str = "\n"
    """Text between calls."""
    after: str = ""
    """Text behind the last call."""
    single: bool = False
    """Whether a message holds one call only."""


OBJECT = CallShape('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
TAGGED = CallShape("<tool_call>\n<function=", ">\n", "\n</function>\n</tool_call>", "qwen_xml")
SHAPES = {
    HERMES: OBJECT,
    "qwen3": OBJECT,
    "qwen3.5": TAGGED,
    "nemotron-3": TAGGED,
    "glm-4.5": CallShape("<tool_call>", "\n", "</tool_call>", "glm_xml"),
    "glm-5": CallShape("<tool_call>", "", "</tool_call>", "glm_xml", between=""),
    "llama-3": CallShape('{"name": "', '", "parameters": ', "}", single=True),
    MISTRAL: CallShape("[TOOL_CALLS]", "[ARGS]", "", between=""),
    HARMONY: CallShape(
        "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", single=True
    ),
    "deepseek-v3": CallShape(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>",
        before="<｜tool▁calls▁begin｜>", after="<｜tool▁calls▁end｜>",
    ),
    "kimi-k2": CallShape(
        "<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>",
        before="<|tool_calls_section_begin|>", after="<|tool_calls_section_end|>", single=True,
    ),
    "minimax-m2": CallShape(
        '<invoke name="', '">\n', "</invoke>\n", "minimax_xml",
        before="<minimax:tool_call>\n", between="", after="</minimax:tool_call>",
    ),
}  # fmt: skip
SPECIAL = re.compile(r"(<[^<>\s]+>|\[[A-Z_]+\])")
"""Texts that may be special tokens."""
FINAL = "<|channel|>final<|message|>"


def structure_of(
    request: ChatRequest, findings: Findings, special: Special, prompt: str
) -> str | None:
    """Structural tag as JSON for a request; None if the answer is free. `prompt` is the rendered
    prompt, which may open or close the reasoning. Raises RolloutError, naming the field, for a
    structure that this model's chat format cannot write, or that is too large."""
    answer = _answer(request)
    calls = _calls(request, findings, special, answer)
    if calls is None and answer is None:
        return None
    if calls is not None:
        found = calls
    else:
        assert answer is not None
        found = _sequence(_text(FINAL, special), answer) if _is_harmony(findings) else answer
    tag = {"type": "structural_tag", "format": _behind_reasoning(found, findings, special, prompt)}
    text = json.dumps(tag, ensure_ascii=False)
    if len(text) > MOST_GRAMMAR_CHARS:
        raise RolloutError.of(
            "gateway.structure_too_large",
            f"The structure of the answer has {len(text):,} characters; at most "
            f"{MOST_GRAMMAR_CHARS:,} are allowed.",
            "Use a smaller schema or fewer tools.",
        )
    return text


def _answer(request: ChatRequest) -> Format | None:
    """Format of the text, without tool calls."""
    formats = [one for one in (_response_format(request), _outputs(request)) if one]
    if len(formats) > 1:
        raise _refused("structured_outputs", "response_format already says what the answer is")
    return formats[0] if formats else None


def _response_format(request: ChatRequest) -> Format | None:
    given = request.response_format
    kind = (given or {}).get("type", "text")
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return _json({"type": "object"})
    schema = (given.get("json_schema") or {}).get("schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        raise _refused("response_format", "its type is text, json_object or json_schema")
    return _json(schema)


def _outputs(request: ChatRequest) -> Format | None:
    given = {k: v for k, v in (request.structured_outputs or {}).items() if v is not None}
    if not given:
        return None
    if len(given) > 1:
        raise _refused("structured_outputs", "it has more than one of json, regex, choice, grammar")
    match given:
        case {"json": dict(schema)}:
            return _json(schema)
        case {"json": str(text)}:
            return _json(_parsed(text))
        case {"json_object": True}:
            return _json({"type": "object"})
        case {"regex": str(pattern)}:
            return {"type": "regex", "pattern": pattern}
        case {"choice": [*words]} if words and all(isinstance(word, str) for word in words):
            return {"type": "or", "elements": [{"type": "const_string", "value": w} for w in words]}
        case {"grammar": str(grammar)}:
            return {"type": "grammar", "grammar": grammar}
    raise _refused("structured_outputs", "it needs json, json_object, regex, choice or grammar")


def _parsed(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except ValueError:
        schema = None
    if not isinstance(schema, dict):
        raise _refused("structured_outputs.json", "it is not a JSON schema")
    return schema


def _json(schema: dict[str, Any], style: str = "json") -> Format:
    return {"type": "json_schema", "json_schema": schema, "style": style}


def _calls(
    request: ChatRequest, findings: Findings, special: Special, answer: Format | None
) -> Format | None:
    """Format of an answer that has or may have tool calls; None if calls are free."""
    tools, forced = _chosen(request)
    several = request.parallel_tool_calls is not False
    strict = [tool for tool in tools if tool["function"].get("strict")]
    if not forced and several and not strict and (answer is None or not tools):
        return None
    if not tools:
        return None
    shape = SHAPES.get(findings.syntax)
    if shape is None:
        raise _refused(
            "tool_choice" if forced else "tools",
            "the calls of this model's chat format cannot be constrained; send tool_choice auto "
            "without strict tools",
        )
    tags = [_tag(tool, shape, special) for tool in tools]
    one = tags[0] if len(tags) == 1 else {"type": "or", "elements": tags}
    parts = [_text(shape.before, special), one] if shape.before else [one]
    if several and not shape.single:
        repeated = _sequence(_text(shape.between, special), one) if shape.between else one
        parts.append({"type": "star", "content": repeated})
    if shape.after:
        parts.append(_text(shape.after, special))
    calls = _sequence(*parts)
    if forced:
        return calls
    if answer is not None:
        return {"type": "or", "elements": [calls, answer]}
    first = SPECIAL.match(shape.before or shape.begin)
    if first is None or first[0] not in special:
        return {"type": "or", "elements": [calls, ANYTHING]}
    words = {"type": "any_tokens", "exclude_tokens": sorted(special.values())}
    return _sequence(words, {"type": "optional", "content": calls})


def _chosen(request: ChatRequest) -> tuple[list[dict[str, Any]], bool]:
    """Tools that may be called, and whether one must be."""
    tools, choice = request.tools or [], request.tool_choice
    if choice == "none":
        return [], False
    if not isinstance(choice, dict):
        if choice == "required" and not tools:
            raise _refused("tool_choice", "a tool is required, but the request has no tools")
        return tools, choice == "required"
    names, mode = _named(choice)
    found = [tool for tool in tools if tool["function"]["name"] in names]
    if not found:
        raise _refused("tool_choice", f"the request has no tool called {', '.join(names)}")
    return found, mode == "required"


def _named(choice: dict[str, Any]) -> tuple[list[str], str]:
    """Names in a tool choice, and whether one of them is `required` (or `auto`)."""
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return [name], "required"
        case {"type": "allowed_tools", "allowed_tools": {"tools": [*tools], "mode": str(mode)}}:
            functions = [tool.get("function", tool) for tool in tools if isinstance(tool, dict)]
            return [str(function.get("name")) for function in functions], mode
    raise _refused("tool_choice", "it is none of auto, none, required, a function, allowed_tools")


def _tag(tool: dict[str, Any], shape: CallShape, special: Special) -> Format:
    function = tool["function"]
    schema = function.get("parameters") or {"type": "object"}
    arguments = _json(schema, shape.style)
    begin = _text(f"{shape.begin}{function['name']}{shape.middle}", special)
    return _sequence(begin, arguments, *([_text(shape.end, special)] if shape.end else []))


def _behind_reasoning(found: Format, findings: Findings, special: Special, prompt: str) -> Format:
    """A format behind free reasoning, unless the prompt has closed it."""
    if not findings.reasons or prompt.rstrip().endswith(END_THINK):
        return found
    if _is_harmony(findings):
        thought = _until("<|end|>", special)
        opening = _text("<|channel|>analysis<|message|>", special)
        thinking = _sequence(opening, thought, _text("<|start|>assistant", special))
        return _sequence({"type": "optional", "content": thinking}, found)
    if findings.syntax not in (*SHAPES, ""):
        raise _refused("response_format", "the reasoning of this chat format cannot be constrained")
    thought = _until(END_THINK, special)
    blanks = {"type": "regex", "pattern": "\\n{0,2}"}
    if prompt.rstrip().endswith(THINK):
        return _sequence(thought, blanks, found)
    thinking = _sequence(_text(THINK, special), thought, blanks)
    return _sequence({"type": "optional", "content": thinking}, found)


def _until(end: str, special: Special) -> Format:
    """Free text up to and including `end`, without special tokens."""
    if end in special:
        words = {"type": "any_tokens", "exclude_tokens": sorted(special.values())}
        return _sequence(words, {"type": "token", "token": special[end]})
    return {"type": "tag", "begin": "", "content": ANYTHING, "end": end}


def _text(text: str, special: Special) -> Format:
    """Exactly this text, with its special tokens as tokens."""
    parts: list[Format] = []
    for piece in SPECIAL.split(text):
        if piece in special:
            parts.append({"type": "token", "token": special[piece]})
        elif piece and parts and parts[-1]["type"] == "const_string":
            parts[-1]["value"] += piece
        elif piece:
            parts.append({"type": "const_string", "value": piece})
    return _sequence(*parts)


def _sequence(*parts: Format) -> Format:
    """Formats one after another, without sequences in sequences."""
    flat: list[Format] = []
    for part in parts:
        for element in part["elements"] if part["type"] == "sequence" else [part]:
            if flat and flat[-1]["type"] == "token" and element["type"] != "const_string":
                flat.append(NOTHING)
            flat.append(element)
    return flat[0] if len(flat) == 1 else {"type": "sequence", "elements": flat}


def _is_harmony(findings: Findings) -> bool:
    return findings.syntax == HARMONY


def _refused(field: str, why: str) -> RolloutError:
    return RolloutError.of("gateway.bad_structure", f"{field}: {why}.", where=field)
