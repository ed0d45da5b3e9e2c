"""Chat formats of model families, by their real templates: findings, round trips, next turns."""

import asyncio
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.policy.base import SampledToken
from engine.protocol.problems import RolloutError
from engine.rollout.gateway.answers import AnswerStream, Decoder, Delta
from engine.rollout.gateway.requests import ChatRequest
from engine.rollout.gateway.structures import structure_of
from engine.rollout.images import RunImages
from engine.rollout.recording import Part, Recording
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rendering.probes import PROPERTIES
from engine.rollout.rendering.syntaxes import Reply
from tests.support.families import FAMILIES, make_family

ARGUMENTS = {"city": "Zürich", "days": 3, "place": {"lat": 1.5}}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Forecast",
        "parameters": {"type": "object", "properties": PROPERTIES, "required": ["city"]},
    },
}
USER = {"role": "user", "content": "How is the weather?"}
NO_CALLS = {
    "Gemma 3": "its template has no tools",
    "Phi 3.5": "its template has no tools",
    "DeepSeek R1 distilled": "its template has no tools",
    "Qwen2.5-VL": "its template has no tools",
    "LFM2": "its template leaves out calls",
}
CALLING = [f for f in FAMILIES if f not in NO_CALLS]
"""Families whose tool calls can be parsed."""
PARALLEL = [f for f in CALLING if f not in ("Llama 3.1", "Llama 3.2", "gpt-oss")]
"""Families that write several calls in one message."""
PROMPTED = ["DeepSeek V3", "DeepSeek R1 distilled"]
"""Families whose template opens the reasoning and leaves it out of later prompts."""
KEPT = {
    "always": "kept", "never": "left out", "tool_cycle": "kept until the next user message",
}  # fmt: skip
REASONING = ["Qwen3", "Qwen3.5", "Qwen3.6", "Qwen3.8", "gpt-oss", "GLM-4.5", "Gemma 4",
             "Nemotron 3"]  # fmt: skip
"""Families whose template shows the reasoning of a message."""


def call(name: str = "call00001", **arguments: Any) -> dict[str, Any]:
    text = json.dumps(arguments or ARGUMENTS, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": "get_weather", "arguments": text}}


def calling(count: int) -> dict[str, Any]:
    calls = [call(f"call0000{n}", city=f"Town {n}", days=n) for n in range(count)]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def sampled_answer(chat: ChatFormat, message: dict[str, Any], tools: list[Any]) -> list[int]:
    """Tokens that a model would sample for an assistant message, with its stop token."""
    prompt = chat.encode(chat.render([USER], tools))
    whole = chat.encode(chat.render([USER, message], tools, answer=False))
    pairs = enumerate(zip(prompt, whole, strict=False))
    start = next((n for n, (a, b) in pairs if a != b), min(len(prompt), len(whole)))
    ends = [n + 1 for n in range(start, len(whole)) if whole[n] in chat.stops]
    answer = whole[start : max(ends, default=len(whole))]
    opened = chat.decode(prompt).rstrip().endswith("<think>")
    hidden = opened and not chat.findings.reasoning_field
    return chat.encode("I look outside.\n</think>") + answer if hidden else answer


def parsed(
    chat: ChatFormat, message: dict[str, Any], tools: list[Any], share: float = 1.0
) -> Reply:
    """Reply of a model that samples this message, or the first `share` of its tokens."""
    tokens = sampled_answer(chat, message, tools)
    prompt = chat.encode(chat.render([USER], tools))
    return asyncio.run(chat.parse(tokens[: int(share * len(tokens))], prompt, tools))


def record(
    chat: ChatFormat,
    recording: Recording,
    messages: list[dict[str, Any]],
    tokens: list[int],
    tools: list[Any],
) -> dict[str, Any]:
    """Record one turn in which the policy samples `tokens`; returns the assistant message."""

    async def turn() -> dict[str, Any]:
        prompt = await recording.prompt(messages, tools, 100_000)
        reply = await chat.parse(tokens, prompt.tokens, tools)
        sampled = [SampledToken(token, -0.5, []) for token in tokens]
        return recording.record(prompt, messages, [Part(sampled)], reply)

    return asyncio.run(turn())


@pytest.mark.parametrize("title", FAMILIES)
def test_family(tmp_path: Path, title: str) -> None:
    """Each cell of a family's row in the documentation is what this test found."""
    family = FAMILIES[title]
    with ChatFormat(make_family(family, tmp_path / family.template)) as chat:
        row = [title, *(check(chat, title) for check in CHECKS.values())]
    print(" | ".join(row))
    assert row in [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE]


def renders_as_transformers_does(chat: ChatFormat, title: str) -> str:
    from transformers import PreTrainedTokenizerFast

    folder = chat.folder
    reference = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        chat_template=(folder / "chat_template.jinja").read_text(),
        **json.loads((folder / "tokenizer_config.json").read_text()),
    )
    more = {"role": "user", "content": "And tomorrow?"}
    for messages in ([USER], [USER, {"role": "assistant", "content": "Sunny."}, more]):
        for tools in ([], [TOOL]) if title in CALLING else ([],):
            wanted = reference.apply_chat_template(
                messages, tools=tools or None, add_generation_prompt=True, return_dict=False
            )
            assert asyncio.run(chat.prompt(messages, tools, 100_000)).tokens == wanted
    return "yes"


def calls_are_parsed(chat: ChatFormat, title: str) -> str:
    if title not in CALLING:
        assert chat.findings.syntax == ""
        return NO_CALLS[title]
    message = {"role": "assistant", "content": "", "tool_calls": [call()]}
    reply = parsed(chat, message, [TOOL])
    (found,) = reply.calls
    assert (found.name, json.loads(found.arguments)) == ("get_weather", ARGUMENTS)
    assert (reply.content, reply.malformed) == ("", 0)
    return "yes"


def parallel_calls_keep_their_order(chat: ChatFormat, title: str) -> str:
    if title not in CALLING:
        return NO_CALLS[title]
    if title not in PARALLEL:
        assert not chat.findings.parallel
        return "one call a message"
    reply = parsed(chat, calling(3), [TOOL])
    towns = [json.loads(one.arguments)["city"] for one in reply.calls]
    assert towns == ["Town 0", "Town 1", "Town 2"]
    return "yes"


def reasoning_is_apart(chat: ChatFormat, title: str) -> str:
    assert chat.findings.reasons == (title in REASONING or title in PROMPTED)
    if title in PROMPTED:
        text = "I look outside.\n</think>\n\nSunny."
        prompt = chat.encode(chat.render([USER], []))
        reply = asyncio.run(chat.parse([*chat.encode(text), chat.stops[0]], prompt, []))
        assert (reply.reasoning, reply.content) == ("I look outside.", "Sunny.")
        return "parsed, never shown again"
    if title not in REASONING:
        return "none"
    message = {"role": "assistant", "content": "Sunny.", "reasoning_content": "I look outside."}
    reply = parsed(chat, message, [])
    assert (reply.reasoning, reply.content) == ("I look outside.", "Sunny.")
    assert reply.reasoning_tokens > 10
    cut = parsed(chat, message, [], share=0.5)
    assert (cut.reasoning_open, cut.content) == (True, "")
    return KEPT[chat.findings.keeps_reasoning]


def results_extend_the_sampled_tokens(chat: ChatFormat, title: str) -> str:
    """The next prompt begins with prompt and sampled tokens, byte for byte, and goes on as the
    template does; also if the call's blanks are not those of the template."""
    if title not in CALLING:
        return NO_CALLS[title]
    answer: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call()]}
    if title in REASONING:
        answer["reasoning_content"] = "I look outside."
    usual = chat.decode(sampled_answer(chat, answer, [TOOL]))
    unusual = usual.replace('": ', '":  ').replace(">\n3", ">3").replace(":3", ": 3")
    for text in dict.fromkeys((usual, unusual)):
        recording = Recording(chat)
        message = record(chat, recording, [USER], chat.encode(text), [TOOL])
        (made,) = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": made["id"], "name": "get_weather"}
        messages = [USER, message, {**result, "content": "Sunny"}]
        prompt = asyncio.run(recording.prompt(messages, [TOOL], 100_000))
        (branch,) = recording.branches()
        if title in PROMPTED:
            assert prompt.parent is None
            return f"new branch: {prompt.reason}"
        assert prompt.parent is not None, prompt.reason
        count = len(branch.tokens)
        assert prompt.tokens[:count] == branch.tokens
        rendered = chat.encode(chat.render(messages, [TOOL]))
        assert rendered[count - len(prompt.tokens) :] == prompt.tokens[count:]
        assert text != usual or prompt.tokens == rendered
    return "yes"


def user_message_extends_or_says_why_not(chat: ChatFormat, title: str) -> str:
    answer = {"role": "assistant", "content": "Sunny."}
    if title in REASONING:
        answer["reasoning_content"] = "I look outside."
    recording = Recording(chat)
    message = record(chat, recording, [USER], sampled_answer(chat, answer, []), [])
    more = {"role": "user", "content": "And tomorrow?"}
    prompt = asyncio.run(recording.prompt([USER, message, more], [], 100_000))
    if prompt.parent is not None:
        return "yes"
    assert "template" in prompt.reason
    assert prompt.tokens == chat.encode(chat.render([USER, message, more], []))
    return f"new branch: {prompt.reason}"


def cut_answer_is_closed(chat: ChatFormat, title: str) -> str:
    """Without a sampled stop token, the next prompt adds the template's own."""
    tokens = sampled_answer(chat, {"role": "assistant", "content": "Sunny until noon."}, [])
    tokens = tokens[:-1] if tokens[-1] in chat.stops else tokens
    recording = Recording(chat)
    message = record(chat, recording, [USER], tokens, [])
    more = {"role": "user", "content": "And then?"}
    prompt = asyncio.run(recording.prompt([USER, message, more], [], 100_000))
    if prompt.parent is None:
        assert "template" in prompt.reason
        return f"new branch: {prompt.reason}"
    rest = prompt.tokens[len(recording.branches()[0].tokens) :]
    assert chat.encode(chat.render([USER, message, more], []))[-len(rest) :] == rest
    return "yes"


def stream_equals_the_whole(chat: ChatFormat, title: str) -> str:
    """Pieces of a stream, joined, are the message of an answer that is not streamed."""
    answer: dict[str, Any] = {"role": "assistant", "content": "Let me see."}
    tools = [TOOL] if title in CALLING else []
    if title in REASONING:
        answer["reasoning_content"] = "I look outside."
    early = True
    answers = [answer]
    if title in CALLING and title not in ("Llama 3.1", "Llama 3.2"):
        answers.append({**answer, "tool_calls": [call()]})
    if title == "gpt-oss":  # its template takes either words or reasoning beside a call
        answers[1]["content"] = ""
    for message in answers:
        tokens = sampled_answer(chat, message, tools)
        prompt = chat.encode(chat.render([USER], tools))
        opened = chat.decode(prompt).rstrip().endswith("<think>")
        stream = AnswerStream(chat.findings, opened, bool(tools), [])
        decoder = Decoder(chat)
        pieces = [stream.add(*decoder.add(t)) for t in tokens if t not in chat.stops]
        reply = asyncio.run(chat.parse(tokens, prompt, tools))
        early &= any(piece != Delta() for piece in pieces)
        pieces.append(stream.finish(reply))
        assert "".join(piece.reasoning for piece in pieces) == (reply.reasoning or "")
        assert "".join(piece.content for piece in pieces) == reply.content
    return "yes" if early else "whole at the end"


CHOICE_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Paris"]}, "now": {"type": "boolean"}},
            "required": ["city", "now"],
        },
    },
}
UNSTRUCTURED = {"Gemma 4": "refused: its calls are no JSON"}
SCHEMA = {
    "type": "object", "properties": {"mood": {"enum": ["sunny", "grey"]}}, "required": ["mood"],
}  # fmt: skip


def structure_is_kept(chat: ChatFormat, title: str) -> str:
    """Tokens drawn at random under the structure of a request parse as what it demands."""
    forced = ChatRequest(messages=[USER], tools=[CHOICE_TOOL], tool_choice="required")
    formed = {"type": "json_schema", "json_schema": {"name": "mood", "schema": SCHEMA}}
    json_only = ChatRequest(messages=[USER], response_format=formed)
    if title in UNSTRUCTURED:
        prompt = chat.render([USER], [])
        for request in (forced, json_only):
            with pytest.raises(RolloutError, match="cannot be constrained"):
                structure_of(request, chat.findings, chat.special_tokens, prompt)
        return UNSTRUCTURED[title]
    prompt = chat.encode(chat.render([USER], []))
    for seed in range(4):
        reply = asyncio.run(chat.parse(draw(chat, json_only, seed), prompt, []))
        assert json.loads(reply.content)["mood"] in ("sunny", "grey"), reply
    if title not in CALLING:
        return "yes, without tools"
    prompt = chat.encode(chat.render([USER], [TOOL]))
    for seed in range(4):
        reply = asyncio.run(chat.parse(draw(chat, forced, seed), prompt, [TOOL]))
        assert {one.name for one in reply.calls} == {"get_weather"}, reply
        towns = {json.loads(one.arguments)["city"] for one in reply.calls}
        assert towns <= {"Rome", "Paris"}, reply
        assert reply.malformed == 0
    return "yes"


def draw(chat: ChatFormat, request: ChatRequest, seed: int) -> list[int]:
    """Tokens drawn at random from those that the structure of a request allows (by xgrammar's
    masks). Like a trained model, special tokens where some but not all of them are allowed, never
    inside a text; and after a while, what ends texts and numbers."""
    import xgrammar

    prompt = chat.render(request.messages, request.tools or [])
    structure = structure_of(request, chat.findings, chat.special_tokens, prompt)
    assert structure is not None
    size = chat.tokenizer.get_vocab_size()
    names = [chat.token_bytes(token) for token in range(size)]
    info = xgrammar.TokenizerInfo(names, stop_token_ids=chat.stops)
    compiled = xgrammar.GrammarCompiler(info).compile_structural_tag(structure)
    matcher, generator = xgrammar.GrammarMatcher(compiled), random.Random(seed)
    specials, drawn = set(chat.special_tokens.values()), list[int]()
    while not matcher.is_terminated():
        mask = xgrammar.allocate_token_bitmask(1, size)
        matcher.fill_next_token_bitmask(mask)
        allowed = [t for t in range(size) if mask[0][t // 32] >> (t % 32) & 1]
        marks = [t for t in allowed if t in specials]
        words = [t for t in allowed if t not in specials and names[t] in READABLE]
        ends = [t for t in words if names[t] in b'"}],</'] if len(drawn) % 200 > 60 else []
        if len(marks) >= len(specials) - len(chat.stops):
            marks = []
        late = len(drawn) > 20 or len(words) < 20
        token = generator.choice(marks if marks and late else ends or words or allowed)
        assert matcher.accept_token(token)
        drawn.append(token)
        assert len(drawn) < 3000
    return drawn


READABLE = [bytes([byte]) for byte in range(32, 127)] + [b"\n"]


def images_are_read(chat: ChatFormat, title: str) -> str:
    """The template shows a placeholder for each image, repeated for each output of the vision
    model, and the next turn extends the tokens; text with a placeholder is refused."""
    if not FAMILIES[title].sees:
        assert chat.vision is None
        assert not chat.findings.images
        return NO_IMAGES.get(title, "none: reads text")
    assert chat.findings.images
    images = RunImages(chat, chat.folder, 100_000)

    async def talk() -> None:
        small, wide = [await images.add(picture(*size)) for size in ((64, 64), (128, 32))]
        parts = [{"type": "image", "id": small}, {"type": "text", "text": "What is this?"}]
        ask = {"role": "user", "content": parts}
        recording = Recording(chat, images)
        prompt = await recording.prompt([ask], [], 100_000)
        text = "<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>What is this?"
        assert text in chat.decode(prompt.tokens)
        tokens = [*chat.encode("A square."), chat.stops[0]]
        sampled = [SampledToken(token, -0.5, []) for token in tokens]
        reply = await chat.parse(tokens, prompt.tokens, [])
        message = recording.record(prompt, [ask], [Part(sampled)], reply)
        more = {"role": "user", "content": [{"type": "image", "id": wide}, parts[1], parts[0]]}
        after = await recording.prompt([ask, message, more], [], 100_000)
        counts = [(image.id, image.count) for image in after.images]
        assert counts == [(small, 4), (wide, 4), (small, 4)]
        assert chat.vision is not None
        for image in after.images:
            inside = after.tokens[image.start : image.start + image.count]
            assert inside == [chat.vision.token] * image.count
        assert after.tokens.count(chat.vision.token) == 12
        if after.parent is not None:
            (branch,) = recording.branches()
            assert after.tokens[: len(branch.tokens)] == branch.tokens
            assert branch.pieces.count("<|image_pad|>") == 1
            assert len(branch.pieces) == len(branch.tokens)
        with pytest.raises(RolloutError, match="stands for an image"):
            await recording.prompt([{"role": "user", "content": "<|image_pad|>"}], [], 100_000)

    asyncio.run(talk())
    return "yes" if chat.findings.tool_images else "yes, but not in tool results"


def picture(width: int, height: int, form: str = "PNG") -> bytes:
    """Image file with a gradient."""
    file = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(file, form)
    return file.getvalue()


NO_IMAGES = dict.fromkeys(("Gemma 3", "Gemma 4", "Qwen3.8"), "refused: not supported")
"""Families with vision models that Atelier does not run."""
CHECKS = {
    "renders as its template": renders_as_transformers_does,
    "tool calls": calls_are_parsed,
    "parallel calls": parallel_calls_keep_their_order,
    "reasoning in later prompts": reasoning_is_apart,
    "tool result extends": results_extend_the_sampled_tokens,
    "user message extends": user_message_extends_or_says_why_not,
    "cut answer extends": cut_answer_is_closed,
    "structured output": structure_is_kept,
    "streaming": stream_equals_the_whole,
    "images": images_are_read,
}
"""Columns of the table in the documentation."""
PAGE = Path(__file__).parents[4] / "resources" / "help" / "reference" / "chat-formats.md"
TABLE = PAGE.read_text().partition("| Family")[2].splitlines()


def test_table_has_a_row_for_every_family() -> None:
    assert [line.split("|")[1].strip() for line in TABLE[2:]] == list(FAMILIES)
    assert [cell.strip() for cell in TABLE[0].strip(" |").split("|")] == list(CHECKS)
