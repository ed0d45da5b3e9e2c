"""Time of a streamed answer against its length, at the gateway.

`python -m tests.bench.streaming [--tokens 1000 2000 4000 8000] [--chart FILE]`

A scripted policy with the chat format of Qwen3 samples an answer with reasoning, text and a tool
call at its end, a token at a time, without waiting. It is streamed over HTTP by each API, with a
tool offered and, where the API has them, a stop string that never comes. Prints seconds,
microseconds per token and the longest stall of the gateway's event loop, the least of three
measurements each. Linear streaming has the same microseconds per token at each length. `--chart`
draws seconds against tokens, as PNG or SVG.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from engine.policy.base import SampledToken, SampleRequest
from engine.rollout.rendering.chat import ChatFormat
from tests.engine.rollout.conftest import ASK, TOOL, GatewayHarness
from tests.support.families import FAMILIES, make_family

CALL = '<tool_call>\n{"name": "find", "arguments": {"q": "%s"}}\n</tool_call>'
WORDS = "Roses grow <here>, and 3 < 4. "
REPEATS = 3
STOP = "Roses grow nowhere"


def answer_of(tokens: int) -> str:
    """Answer of about this many tokens: a third each of reasoning, text and a tool call."""
    part = (WORDS * (tokens // len(WORDS)))[: tokens // 3 - 20]
    return f"<think>\n{part}\n</think>\n\n{part}\n{CALL % part}"


class StallWatch:
    """Measures how late the event loop of the gateway wakes a sleeping task."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._task or asyncio.get_running_loop().create_task(self._watch())

    def end(self) -> None:
        if self._task:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def _watch(self) -> None:
        while True:
            start_s = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_s = max(self.longest_s, time.perf_counter() - start_s - 0.001)


def stream_chat(harness: GatewayHarness) -> int:
    chunks = harness.ask(stream=True, stop=STOP, tools=[TOOL], logprobs=True)
    return sum(len(c.choices[0].logprobs.content) for c in chunks if c.choices[0].logprobs)


def stream_responses(harness: GatewayHarness) -> int:
    tool = {"type": "function", **TOOL["function"]}
    events = harness.respond(stream=True, tools=[tool])
    *_, last = events
    return int(last.response.usage.output_tokens)


def stream_messages(harness: GatewayHarness) -> int:
    tool: Any = {"name": "find", "input_schema": {"type": "object"}}
    options: Any = {"model": "policy", "max_tokens": 20_000, "messages": ASK, "tools": [tool]}
    events = harness.anthropic.messages.create(**options, stop_sequences=[STOP], stream=True)
    return max(event.usage.output_tokens for event in events if event.type == "message_delta")


APIS: dict[str, Callable[[GatewayHarness], int]] = {
    "chat completions": stream_chat, "responses": stream_responses, "messages": stream_messages,
}  # fmt: skip


def measure(harness: GatewayHarness, api: str, tokens: int) -> tuple[int, float, float]:
    """Tokens, seconds, and the longest stall in seconds, of one streamed answer."""
    policy, watch = harness.policy, StallWatch()
    policy.says = answer_of(tokens)
    sample = policy.sample

    async def watched(request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        async for sampled in sample(request):
            watch.start()
            yield sampled

    policy.sample = watched  # type: ignore[method-assign]
    start_s = time.perf_counter()
    count = APIS[api](harness)
    seconds = time.perf_counter() - start_s
    watch.end()
    policy.sample = sample  # type: ignore[method-assign]
    return count, seconds, watch.longest_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1000, 2000, 4000, 8000])
    parser.add_argument("--chart", type=Path)
    arguments = parser.parse_args()
    lengths, lines = arguments.tokens, dict[str, list[tuple[int, float]]]()
    with tempfile.TemporaryDirectory() as folder:
        with ChatFormat(make_family(FAMILIES["Qwen3"], Path(folder) / "qwen3")) as chat:
            settings = {"max_tokens": 100_000, "max_context": 200_000, "max_turns": 1000}
            harness = GatewayHarness(chat, **settings)
            try:
                print(f"{'API':18}{'tokens':>8}{'s':>8}{'µs/token':>10}{'stall ms':>10}")
                for api in APIS:
                    measure(harness, api, 300)
                    for tokens in lengths:
                        found = [measure(harness, api, tokens) for _ in range(REPEATS)]
                        count, seconds, stall_s = (
                            min(values) for values in zip(*found, strict=True)
                        )
                        lines.setdefault(api, [(0, 0.0)]).append((count, seconds))
                        rate = seconds / count * 1e6
                        stall = stall_s * 1e3
                        print(f"{api:18}{count:8}{seconds:8.2f}{rate:10.0f}{stall:10.1f}")
            finally:
                harness.close()
    if arguments.chart:
        draw(lines, arguments.chart)


def draw(lines: dict[str, list[tuple[int, float]]], file: Path) -> None:
    """Draw lines through points (tokens, seconds), one for each API."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    from studio.theme.theme import Theme
    from studio.widgets.charts.chart_card import ChartCard
    from studio.widgets.charts.link import ChartLink

    app = QApplication([])
    Theme.install(app, "light")
    link = ChartLink()
    link.set_axis("tokens")
    card = ChartCard("Seconds of a streamed answer by its tokens", link)
    for number, (api, points) in enumerate(lines.items(), 1):
        line = card.add_line(api, f"plot-{number}", ghost=False)
        line.set_data(*zip(*points, strict=True))
    card.resize(760, 420)
    card.show()
    for _ in range(20):
        app.processEvents()
        time.sleep(0.02)
    card.save_as(file)


if __name__ == "__main__":
    main()
