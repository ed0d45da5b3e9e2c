"""Chat templates of foreign models, rendered by the guarded renderer (`rollout.renderer`).

A renderer process loads one template after another until one of them ends it.
"""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from engine.models.download import CHAT_TEMPLATE
from engine.protocol.problems import AtelierError
from engine.rollout.rendering.renderer import RenderClient
from engine.rollout.rendering.worker import RENDER_S
from tests.support.tiny_model import TEMPLATE

REFUSALS = (AtelierError,)
SLOW_S = 2 * RENDER_S + 2
"""Compiling and rendering have separate limits.

Exceeding them ends the renderer and is not a hang.
"""
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is Ada?"},
    {"role": "assistant", "content": "<think>hm</think>In the garden.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "find", "arguments": {"q": "Ada"}}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "garden"},
]  # fmt: skip
ANSWER = "<think>hm</think>In the garden."
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
LOOPS = """{% for a in range(99) %}{% for b in range(99) %}{{ a * b }}{% endfor %}{% endfor %}
{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) }}"""
GROWS = """{% set n = namespace(x='ab') %}{% for m in messages %}{% set n.x = n.x ~ n.x %}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content.split('</think>')[-1] | trim }}
{%- endgeneration %}{% else %}{{ m | tojson(indent=2) }}{% endif %}{% endfor %}{{ 'a' * 3000 }}"""


def seeds() -> list[bytes]:
    return [one.encode() for one in (TEMPLATE, CHAT_TEMPLATE, LOOPS, GROWS)]


@cache
def tokenizer() -> str:
    """Write a byte-level tokenizer to a file."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(BPE({token: number for number, token in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    file = Path(tempfile.mkdtemp(prefix="fuzz-tokenizer-")) / "tokenizer.json"
    file.write_text(made.to_str())
    return str(file)


tokenizer()  # before the first execution, during which nothing may be written
_clients: list[RenderClient] = []


def loading(source: str) -> dict[str, Any]:
    special = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "")
    head = {"template": source, "special": special, "tokenizer": tokenizer()}
    return head | {"stops": [], "placeholder": ""}


def execute(data: bytes) -> None:
    if not _clients:
        _clients.append(RenderClient("fuzzed", loading(TEMPLATE)))
    (client,) = _clients
    client.ask("load", **loading(data.decode(errors="replace")))
    spoken = {"messages": TALK[:2], "tools": TOOLS, "variables": {}}
    start = client.ask("render", answer=True, **spoken).head["text"]
    assert isinstance(start, str)
    assert json.dumps(client.ask("describe").head)
    recorded = (start + ANSWER, 3, True, "hm", "In the garden.", True)
    for known in (None, recorded):
        for keep_reasoning in (False, True):
            prompt = client.ask(
                "prompt",
                messages=TALK,
                tools=TOOLS,
                variables={"enable_thinking": False},
                recorded=known,
                keep_reasoning=keep_reasoning,
                most_tokens=10_000,
            )
            assert json.dumps(prompt.head)
            assert all(0 <= token < 256 for token in prompt.tokens)


def close() -> None:
    while _clients:
        _clients.pop().close()
